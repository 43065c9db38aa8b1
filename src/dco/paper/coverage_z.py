"""Mean coverage over splits against theory, and how far many such comparisons stray by chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from scipy.special import ndtri

from dco.foundations.ranks import as_rational
from dco.paper.tables import Cell, ResultTable, join_sentences
from dco.theory import coverage_variance, hits_cdf

FAMILY_ERROR = 0.01
Z_DIGITS = 9  # values of z that agree to so many digits are the same but for rounding


class CoveredRow(Protocol):
    """A threshold that was taken on one split, and the coverage that it had on the test rows."""

    @property
    def rank(self) -> int:
        """The threshold is the rank-th smallest ..."""

    @property
    def n(self) -> int:
        """... of n scores."""

    @property
    def n_test(self) -> int:
        """The number of test rows."""

    @property
    def coverage(self) -> float:
        """The share of test rows that were covered."""


@dataclass(frozen=True)
class TheoryComparison:
    """The mean test coverage that theory expects over splits, and how far the measured mean is off.

    `z` is (measured - expected) in standard errors; None where an infinite threshold covers
    everything and leaves nothing to chance. Both are None where theory says nothing of a method.
    """

    expected: float | None
    z: float | None


NO_THEORY = TheoryComparison(expected=None, z=None)


def target_coverage(alpha: float) -> float:
    """Return 1 - alpha without the rounding of binary fractions: 0.1 -> 0.9."""
    return float(1 - as_rational(alpha))


def expected_coverage(rank: int, n: int) -> float:
    """Return rank / (n + 1), the mean coverage of a threshold at the rank-th smallest of n scores.

    The scores are distinct, and exchangeable with those of new rows.
    """
    return rank / (n + 1)


def coverage_sd(rank: int, n: int, n_test: int) -> float:
    """Return the standard deviation of test coverage where a threshold is an order statistic.

    The threshold is the `rank`-th smallest of `n` calibration scores, and coverage is the share of
    `n_test` test rows that it covers. The number of covered rows has the law
    Beta-binomial(n_test, rank, n + 1 - rank). With the mean m and the variance v of the Beta law,
    the variance of coverage is v + (m (1 - m) - v) / n_test.

    It is exact given the table too: when roles are dealt at random, the hits among `n_test` rows of
    a finite table without ties have this very law (a negative hypergeometric one, which is the
    Beta-binomial), whatever the table.
    """
    mean = expected_coverage(rank, n)
    variance = coverage_variance(rank, n)
    return math.sqrt(variance + (mean * (1 - mean) - variance) / n_test)


class SplitDesign(NamedTuple):
    """The numbers that decide the distribution of test coverage on a split.

    The threshold is the `rank`-th smallest of `n` calibration scores, and `n_test` rows test it.
    """

    rank: int
    n: int
    n_test: int

    def expected_coverage(self) -> float:
        """Return the expectation of test coverage."""
        return expected_coverage(self.rank, self.n)

    def coverage_variance(self) -> float:
        """Return the variance of test coverage."""
        return coverage_sd(self.rank, self.n, self.n_test) ** 2


def count_designs(rows: Sequence[CoveredRow]) -> Counter[SplitDesign]:
    """Count how many splits have the same design; most often all of them have."""
    return Counter(SplitDesign(row.rank, row.n, row.n_test) for row in rows)


def compare_with_theory(rows: Sequence[CoveredRow]) -> TheoryComparison:
    """Compare the mean test coverage over splits with the one that theory expects.

    `rows` has the coverage of a method on each split, with the rank of its threshold among n
    calibration scores. For split i theory gives the mean rank_i / (n_i + 1) and a Beta-binomial
    variance. Splits are independent, so with sums over all of them

        z = Σ (coverage_i - mean_i) / sqrt(Σ variance_i)
    """
    # Splits with the same design have the same mean and variance, which are computed once.
    designs = count_designs(rows)
    expected_sum = math.fsum(
        n_splits * design.expected_coverage() for design, n_splits in designs.items()
    )
    variance_of_sum = math.fsum(
        n_splits * design.coverage_variance() for design, n_splits in designs.items()
    )
    excess = math.fsum(row.coverage for row in rows) - expected_sum

    # without variance every threshold is infinite, and all rows are covered
    z = excess / math.sqrt(variance_of_sum) if variance_of_sum > 0 else None
    return TheoryComparison(expected=expected_sum / len(rows), z=z)


def chance_below(rows: Sequence[CoveredRow], alpha: float) -> float:
    """Return the probability, in theory, that the test coverage of a split is below 1 - alpha.

    `rows` has one row for each split; the result is the mean of their probabilities.
    """
    chances = 0.0
    for design, n_splits in count_designs(rows).items():
        needed_hits = math.ceil((1 - as_rational(alpha)) * design.n_test)
        chance = hits_cdf(needed_hits - 1, design.n_test, rank=design.rank, n_cal=design.n)
        chances += n_splits * chance
    return chances / len(rows)


def bonferroni_point(comparisons: int, *, family_error: float = FAMILY_ERROR) -> float:
    """Return the |z| that the largest of so many exceeds with probability at most `family_error`.

    This is Bonferroni's bound: each of the comparisons gets an equal share of the error, two-sided.
    """
    share = family_error / max(1, comparisons)
    return float(-ndtri(share / 2))


# ---- every z of several tables


class ComparedRow(NamedTuple):
    """A row of a table that sets a mean coverage beside its law."""

    table: str
    target: Cell
    method: Cell
    coverage: Cell
    by_law: Cell
    z: float


def all_z(tables: Sequence[ResultTable]) -> ResultTable | None:
    """Collect the rows of all tables that have a z into one table, the largest |z| first.

    A z says by how many standard errors a mean coverage is off the one that theory expects. The
    caption says how many are beyond what chance explains. None where no table has such a row.
    """
    rows: list[ComparedRow] = []
    for table in tables:
        rows += compared_rows(table)
    if not rows:
        return None

    caption = join_sentences(explain_z(rows), explain_largest_z(rows))
    largest_first = sorted(rows, key=lambda row: -round(abs(row.z), Z_DIGITS))
    return ResultTable(
        title="Coverage against its law: every row",
        caption=caption,
        columns=("table", "target", "method", "coverage", "by law", "z"),
        rows=tuple(largest_first),
    )


def explain_z(rows: Sequence[ComparedRow]) -> str:
    """Write the sentence of the caption that says what z is, and how many rows there are.

    Some tables repeat a row of another table: one with the same target, coverage and z.
    """
    distinct = {(row.target, row.coverage, round(row.z, Z_DIGITS)) for row in rows}
    n_repeats = len(rows) - len(distinct)
    repeats = ""
    if n_repeats:
        repeats = (
            f", {n_repeats} of which show a row of another table again, such as the paper's DCO as "
            "a base"
        )
    return (
        "z = (mean coverage - rank / (n + 1)) over its standard error by the Beta-binomial law; "
        f"{len(rows)} rows{repeats}."
    )


def explain_largest_z(rows: Sequence[ComparedRow]) -> str:
    """Write the sentence of the caption that says how large |z| may be by chance."""
    point = bonferroni_point(len(rows))
    n_beyond = sum(abs(row.z) > point for row in rows)
    return (
        f"The two-sided Bonferroni point for a family-wise error of {FAMILY_ERROR:.0%} is "
        f"{point:.2f}; {n_beyond} lie beyond it."
    )


def compared_rows(table: ResultTable) -> list[ComparedRow]:
    """Return the rows of a table that compare a mean coverage with theory: those that have a z.

    There are none if the table has no columns "method" and "z".
    """
    if "method" not in table.columns or "z" not in table.columns:
        return []
    rows: list[ComparedRow] = []
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        z = cells["z"]
        if not isinstance(z, float):
            continue  # of this method theory says nothing
        rows.append(
            ComparedRow(
                table=table.title,
                target=cells.get("target"),
                method=cells["method"],
                coverage=cells["coverage"],
                by_law=cells["by law"],
                z=z,
            )
        )
    return rows
