"""Mean coverage is compared with the law of its rank."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import betabinom

from dco.paper.coverage_z import (
    all_z,
    bonferroni_point,
    chance_below,
    compare_with_theory,
    coverage_sd,
    target_coverage,
)
from dco.paper.tables import ResultTable


@dataclass(frozen=True)
class Split:
    rank: int
    n: int
    n_test: int
    coverage: float


def splits(coverage: float, times: int = 50) -> list[Split]:
    return [Split(92, 113, 67, coverage)] * times


def test_a_target_is_the_decimal_that_a_person_means():
    assert [target_coverage(alpha) for alpha in (0.2, 0.1, 0.05, 1 - 0.9)] == [0.8, 0.9, 0.95, 0.9]


def test_the_sd_of_coverage_is_that_of_the_beta_binomial_law():
    assert coverage_sd(92, 113, 67) == pytest.approx(betabinom(67, 92, 22).std() / 67)


def test_expected_coverage_is_the_rank_among_one_more():
    assert compare_with_theory(splits(0.8)).expected == pytest.approx(92 / 114)


@pytest.mark.parametrize(("sds", "z"), [(0, 0), (-1, -math.sqrt(50))])
def test_z_is_in_standard_errors_of_the_law(sds, z):
    coverage = 92 / 114 + sds * coverage_sd(92, 113, 67)
    assert compare_with_theory(splits(coverage)).z == pytest.approx(z)


def test_the_law_of_unequal_splits_is_the_mean_of_their_laws():
    rows = [Split(9, 10, 50, 0.9), Split(81, 100, 50, 0.7), Split(81, 100, 50, 0.8)]
    law = compare_with_theory(rows)
    means = np.array([9 / 11, 81 / 101, 81 / 101])
    sds = np.array([coverage_sd(row.rank, row.n, row.n_test) for row in rows])
    assert law.expected == pytest.approx(means.mean())
    assert law.z == pytest.approx((0.8 - means.mean()) / np.sqrt(np.sum(sds**2) / 9))


def test_an_infinite_threshold_covers_everything_and_has_no_z():
    law = compare_with_theory([Split(11, 10, 50, 1.0)] * 3)
    assert (law.expected, law.z) == (1.0, None)


def test_the_chance_of_low_coverage_is_a_beta_binomial_tail():
    rows = [Split(92, 113, 67, 0.8), Split(9, 10, 67, 0.8)]
    tails = [betabinom(67, 92, 22).cdf(53), betabinom(67, 9, 2).cdf(53)]  # 0.8 * 67 = 53.6
    assert chance_below(rows, 0.2) == pytest.approx(np.mean(tails))


def test_the_bonferroni_point_of_one_comparison_is_the_normal_one():
    assert bonferroni_point(1) == pytest.approx(2.5758, abs=1e-4)


def test_the_bonferroni_point_grows_with_the_number_of_comparisons():
    assert bonferroni_point(100) > bonferroni_point(10)


COLUMNS = ("target", "method", "coverage", "by law", "z")
FIRST = ResultTable(
    "A", "", COLUMNS, ((0.8, "m", 0.79, 0.8, -1.0), (0.8, "no law", 0.7, None, None))
)
SECOND = ResultTable(
    "B", "", COLUMNS, ((0.9, "high", 0.95, 0.9, 3.5), (0.9, "low", 0.85, 0.9, -4.5))
)
WITHOUT_Z = ResultTable("C", "", ("x",), ((1,),))


def test_every_z_is_listed_largest_first():
    together = all_z([FIRST, SECOND, WITHOUT_Z])
    assert together.column("z") == [-4.5, 3.5, -1.0]
    assert together.column("table") == ["B", "B", "A"]
    assert "3 rows. " in together.caption
    assert f"is {bonferroni_point(3):.2f}; 2 lie beyond it." in together.caption


def test_a_row_that_is_shown_twice_counts_and_is_said_to():
    again = ResultTable("D", "", COLUMNS, ((0.8, "the same row", 0.79, 0.8, -1.0),))
    together = all_z([FIRST, SECOND, again])
    assert "4 rows, 1 of which show a row of another table again" in together.caption


def test_without_any_z_there_is_no_table():
    assert all_z([WITHOUT_Z]) is None
