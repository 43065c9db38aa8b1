"""The paper's protocol to the letter: the response grid by its definition, and one deviation at a
time.
"""

import math

import numpy as np
import pytest

import dco
from dco.paper import protocol_classification
from dco.paper.coverage_z import coverage_sd, expected_coverage
from dco.paper.experiment import Options, SplitRecord
from dco.paper.paper_values import CALIFORNIA, CONCRETE, DIABETES
from dco.paper.protocol import (
    EXPERIMENTS,
    LEVELS,
    VARIANTS,
    on_grid,
    protocol_split,
    protocol_tables,
)
from dco.paper.protocol_classification import grid_table
from dco.scores import PredictiveDensity


@pytest.mark.parametrize("threshold", [0.3, 1.5, 2.5, 20.0])
def test_ends_are_the_extreme_accepted_grid_points(threshold):
    """By brute force: the density at every grid point. One and two modes, empty sets, sets beyond
    the grid.
    """
    rng = np.random.default_rng(0)
    record = dco.GaussianMixtures(
        rng.normal(size=(30, 4)) * 2, np.array([0.2, 0.3, 0.2, 0.4]), draws_first=False
    )
    grid = np.linspace(-5, 5, 60)
    found = on_grid(PredictiveDensity().sets(record, threshold), grid)
    for row in range(30):
        one = dco.GaussianMixtures(np.repeat(record.means[:, [row]], 60, axis=1), record.sds)
        accepted = grid[PredictiveDensity().observed(one, grid) <= threshold]
        if accepted.size:
            assert (found.lower[row], found.upper[row]) == (accepted[0], accepted[-1])
        else:
            assert found.is_empty()[row]
    assert (found.sizes() >= 0).all()


def made_up(seed):
    rows = [
        {
            "data": data,
            "alpha": alpha,
            "variant": variant,
            "method": method,
            "chosen": f"c = {place % 2}",
            "coverage": 1 - alpha,
            "width": 1.0 + place,
        }
        for data, alphas in LEVELS.items()
        for alpha in alphas
        for method in ("BQ", "DCO-Warmstart")
        for place, variant in enumerate(VARIANTS)
    ]
    return SplitRecord(seed, tuple(rows), 0.0)


def test_every_printed_mean_has_a_row_for_each_variant():
    (table,) = protocol_tables([made_up(seed) for seed in range(3)], Options((0.2,)))
    printed = {method for method in DIABETES if method in ("BQ", "DCO-Warmstart")}
    assert len(table.rows) == len(VARIANTS) * (len(printed) + len(CALIFORNIA) + len(CONCRETE))
    moved = dict(zip(table.column("variant"), table.column("other winner"), strict=True))
    assert moved == dict(zip(VARIANTS, (0, 3, 0, 3, 0), strict=True))


def test_a_split_differs_from_ours_by_one_thing_at_a_time(data_home):
    options = Options((0.2,), quick=True, data_home=data_home)
    if EXPERIMENTS[0].missing(options) is not None:
        pytest.skip("the data are not here")
    rows = {
        (row["data"], row["alpha"], row["method"], row["variant"]): row
        for row in protocol_split(0, options)
    }
    for data, alphas in LEVELS.items():
        for alpha in alphas:
            ours, gridded, few = (
                rows[data, alpha, "BQ", name] for name in ("ours", "response grid", "80 thresholds")
            )
            # BQ has one structure: nothing is chosen on a threshold grid
            assert few["width"] == ours["width"]
            assert gridded["threshold"] == ours["threshold"]
            assert gridded["width"] < ours["width"]  # by up to two steps of the grid
            assert gridded["coverage"] <= ours["coverage"]
            nuts = rows[data, alpha, "BQ", "NUTS"]
            assert nuts["width"] == pytest.approx(ours["width"], rel=0.1)


def test_the_table_of_thresholds_counts_other_winners():
    def row(variant, chosen):
        own = {"chosen": chosen, "coverage": 0.8, "size": 3.0, "p95": 5.0, "alpha": 0.2}
        return [
            {"features": features, "variant": variant, **own}
            for features in ("raw", "standardised")
        ]

    records = [
        SplitRecord(
            seed, tuple(row("exact thresholds", 3) + row("80 thresholds", 3 + (seed < 2))), 0.0
        )
        for seed in range(4)
    ]
    table = grid_table(records, Options((0.2,)))
    assert table.column("other winner") == [0, 2, 0, 2]


def test_further_splits_obey_the_law_and_a_wrong_rank_is_seen(data_home):
    options = Options((0.2, 0.1), quick=True, data_home=data_home)
    experiment = next(
        each for each in protocol_classification.EXPERIMENTS if each.name == "further-splits"
    )
    if experiment.missing(options) is not None:
        pytest.skip("the data are not here")
    rows = protocol_classification.further_splits(0, options)
    for row in rows:  # fixed seed; |z| < 4 with probability .9999
        assert abs(row["z"]) < 4
        # sd of an sd: 2 %
        assert row["sd"] == pytest.approx(
            coverage_sd(row["rank"], row["n"], row["n_test"]), rel=0.1
        )
        wrong = (row["coverage"] - expected_coverage(row["rank"] - 4, row["n"])) / (
            row["sd"] / math.sqrt(row["splits"])
        )
        assert wrong > 3  # four ranks of 2,001 lower
    (table,) = protocol_classification.further_table([SplitRecord(0, tuple(rows), 0.0)], options)
    assert table.column("deviation") == [row["z"] for row in rows]
