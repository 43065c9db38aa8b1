"""California Housing on many subsamples, and standard errors that include them."""

import math

import numpy as np
import pytest
from committed import committed_records

from dco.paper.california_subsamples import (
    ENDS,
    Spread,
    SubsampleRow,
    compare_means,
    values_of,
)
from dco.paper.experiment import group_by, rows_of
from dco.paper.regression_splits import CALIFORNIA_WIDTH_SD
from dco.paper.tables import Measured, difference_in_standard_errors


def test_a_spread_takes_the_variance_apart():
    values = np.array([[0.0, 2.0], [4.0, 6.0], [8.0, 10.0]])  # means 1, 5, 9; variance 2 within
    spread = Spread.of(values)
    assert spread.mean == 5
    assert spread.sd_of_means == pytest.approx(4)
    assert spread.over_splits == pytest.approx(math.sqrt(2))
    assert spread.over_subsamples == pytest.approx(math.sqrt(16 - 1))


def test_subsamples_that_vary_no_more_than_their_splits_have_no_spread():
    assert Spread.of(np.array([[0.0, 4.0], [1.0, 3.0]])).over_subsamples == 0


def test_the_standard_error_has_our_subsamples_and_the_subsample_of_the_paper():
    spread = Spread(
        mean=1.0, sd_of_means=0.2, over_splits=0.3, over_subsamples=0.1, n_subsamples=16
    )
    error = spread.error_of_difference(Measured(1.0, 0.5))
    assert error**2 == pytest.approx(0.2**2 / 16 + 0.1**2 + 0.5**2 / 50)


def test_t_squared_of_the_levels_has_its_law():
    """2,000 times 20 subsamples and one of the other party: p is uniform, so 5 % are below .05."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(3, 3))
    p_values = []
    for _ in range(2000):
        effects = rng.normal(size=(21, 3)) @ mixing
        noise = 0.5 * rng.normal(size=(20, 10, 3)) @ mixing
        theirs = effects[20] + 0.5 * rng.normal(size=3) @ mixing / math.sqrt(50)
        p_values.append(compare_means(effects[:20, None] + noise, theirs).p_value)
    assert np.mean(np.array(p_values) < 0.05) == pytest.approx(0.05, abs=0.02)


@pytest.mark.parametrize(("alpha", "method"), CALIFORNIA_WIDTH_SD)
def test_the_standard_errors_in_use_are_those_of_the_committed_subsamples(alpha, method):
    records = committed_records("california-subsamples")
    rows = group_by(
        rows_of(records, SubsampleRow), key=lambda row: (row.alpha, row.method, row.ends)
    )
    widths = values_of(rows[alpha, method, "exact"], "width", len(records))
    assert CALIFORNIA_WIDTH_SD[alpha, method] == round(Spread.of(widths).over_subsamples, 3)


def test_a_grid_makes_intervals_shorter_in_every_committed_split():
    rows = rows_of(committed_records("california-subsamples"), SubsampleRow)
    widths = {ends: [row.width for row in rows if row.ends == ends] for ends in ENDS.values()}
    assert all(np.array(widths["response grid"]) < np.array(widths["exact"]))


def test_another_subsample_widens_the_standard_error_of_both_parties():
    ours, paper = Measured(2.0, 1.0), Measured(1.0, 1.0)
    off = difference_in_standard_errors(ours, paper, 50, sd_over_subsamples=0.3)
    assert off == pytest.approx(1 / math.sqrt(0.04 + 2 * 0.09))
