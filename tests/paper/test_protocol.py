"""The paper's protocol to the letter: the response grid by its definition, and one deviation at a
time.
"""

import math

import numpy as np
import pytest

import dco
from dco.paper import Options, SplitRecord, further_splits, protocol, protocol_cifar100
from dco.paper.classification_splits import RatioOutcome
from dco.paper.coverage_z import coverage_sd, expected_coverage
from dco.paper.paper_values import CALIFORNIA, CONCRETE, DIABETES
from dco.paper.protocol import LEVELS, VARIANTS, OnResponseGrid, ProtocolRow
from dco.paper.protocol_cifar100 import VariantOutcome
from dco.scores import PredictiveDensity

# ---- ends on a response grid


@pytest.mark.parametrize("threshold", [0.3, 1.5, 2.5, 20.0])
def test_ends_are_the_extreme_accepted_grid_points(threshold):
    """By brute force: the density at every grid point. One and two modes, empty sets, sets beyond
    the grid.
    """
    rng = np.random.default_rng(0)
    mixtures = dco.GaussianMixtures(
        rng.normal(size=(30, 4)) * 2, np.array([0.2, 0.3, 0.2, 0.4]), draws_first=False
    )
    grid = np.linspace(-5, 5, 60)
    intervals = OnResponseGrid(grid).sets(mixtures, threshold)
    for row in range(30):
        means = np.repeat(mixtures.means[:, [row]], 60, axis=1)
        scores = PredictiveDensity().observed(dco.GaussianMixtures(means, mixtures.sds), grid)
        accepted = grid[scores <= threshold]
        if accepted.size:
            ends = (intervals.lower[row], intervals.upper[row])
            assert ends == (accepted[0], accepted[-1])
        else:
            assert intervals.is_empty()[row]
    assert (intervals.sizes() >= 0).all()


# ---- one split


@pytest.fixture(scope="module")
def split(data_home):
    """One quick split of every data set, by data, level, method and variant."""
    options = Options((0.2,), quick=True, data_home=data_home)
    (experiment,) = protocol.EXPERIMENTS
    if experiment.missing(options) is not None:
        pytest.skip("the data are not here")
    rows = protocol.run_split(0, options)
    return {(row.data, row.alpha, row.method, row.variant): row for row in rows}


CASES = [(data, alpha) for data, alphas in LEVELS.items() for alpha in alphas]


@pytest.mark.parametrize(("data", "alpha"), CASES)
def test_bq_has_one_structure_and_chooses_nothing_on_a_grid(data, alpha, split):
    ours, on_grid = (split[data, alpha, "BQ", name] for name in ("ours", "80 thresholds"))
    assert on_grid.width == ours.width


@pytest.mark.parametrize(("data", "alpha"), CASES)
def test_a_response_grid_makes_intervals_shorter_at_the_same_threshold(data, alpha, split):
    ours, on_grid = (split[data, alpha, "BQ", name] for name in ("ours", "response grid"))
    assert on_grid.threshold == ours.threshold
    assert on_grid.width < ours.width  # by up to two steps of the grid
    assert on_grid.coverage <= ours.coverage


@pytest.mark.parametrize(("data", "alpha"), CASES)
def test_nuts_gives_about_the_same_intervals(data, alpha, split):
    ours, nuts = (split[data, alpha, "BQ", name] for name in ("ours", "NUTS"))
    assert nuts.width == pytest.approx(ours.width, rel=0.1)


# ---- tables


def made_up_split(seed):
    rows = [
        ProtocolRow(
            data=data,
            alpha=alpha,
            variant=variant.name,
            method=method,
            chosen=f"c = {number % 2}",
            threshold=1.0,
            coverage=1 - alpha,
            width=1.0 + number,
        )
        for data, alpha in CASES
        for method in ("BQ", "DCO-Warmstart")
        for number, variant in enumerate(VARIANTS)
    ]
    return SplitRecord(seed, tuple(rows), 0.0)


@pytest.fixture(scope="module")
def protocol_table():
    (table,) = protocol.make_tables([made_up_split(seed) for seed in range(3)], Options((0.2,)))
    return table


def test_every_printed_mean_has_a_row_for_each_variant(protocol_table):
    printed = {method for method in DIABETES if method in ("BQ", "DCO-Warmstart")}
    n_printed = len(printed) + len(CALIFORNIA) + len(CONCRETE)
    assert len(protocol_table.rows) == len(VARIANTS) * n_printed


def test_other_winners_than_ours_are_counted(protocol_table):
    columns = [protocol_table.column(name) for name in ("variant", "other winner")]
    assert dict(zip(*columns, strict=True)) == {
        variant.name: 3 * (number % 2) for number, variant in enumerate(VARIANTS)
    }


def cifar_row(features, variant, chosen):
    return VariantOutcome(
        features=features,
        method="DCO-Warmstart",
        alpha=0.2,
        chosen=chosen,
        threshold=1.0,
        rank=1601,
        n=2000,
        n_test=2000,
        coverage=0.8,
        size=3.0,
        p95=5.0,
        variant=variant,
    )


def test_the_table_of_cifar100_counts_other_winners():
    records = [
        SplitRecord(
            seed,
            tuple(
                cifar_row(features, variant, chosen)
                for features in ("raw", "standardised")
                for variant, chosen in (("exact thresholds", 3), ("80 thresholds", 3 + (seed < 2)))
            ),
            0.0,
        )
        for seed in range(4)
    ]
    table = protocol_cifar100.grid_table(records, Options((0.2,)))
    assert table.column("other winner") == [0, 2, 0, 2]


def test_variants_and_ratios_of_cifar100_are_told_apart_in_a_record():
    (experiment,) = protocol_cifar100.EXPERIMENTS
    row = cifar_row("raw", "exact thresholds", 3)
    kinds = [kind for kind in experiment.row_kinds if kind.has_columns(row.cells())]
    assert kinds == [VariantOutcome]
    assert RatioOutcome in experiment.row_kinds


# ---- 20,000 further splits


@pytest.fixture(scope="module")
def further_rows(data_home):
    options = Options((0.2, 0.1), quick=True, data_home=data_home)
    (experiment,) = further_splits.EXPERIMENTS
    if experiment.missing(options) is not None:
        pytest.skip("the data are not here")
    return further_splits.run_split(0, options)


def test_further_splits_obey_the_law(further_rows):
    """1,000 splits: |z| < 4 with probability .9999, and an sd has an error of 2 %."""
    for row in further_rows:
        assert abs(row.z) < 4
        assert row.sd == pytest.approx(coverage_sd(row.rank, row.n, row.n_test), rel=0.1)


def test_further_splits_would_show_a_wrong_rank(further_rows):
    """Four ranks of 2,001 lower."""
    for row in further_rows:
        excess = row.coverage - expected_coverage(row.rank - 4, row.n)
        assert excess / (row.sd / math.sqrt(row.splits)) > 3


def test_the_table_of_further_splits_shows_z(further_rows):
    record = SplitRecord(0, tuple(further_rows), 0.0)
    (table,) = further_splits.make_tables([record], Options((0.2, 0.1)))
    assert table.column("deviation") == [row.z for row in further_rows]
