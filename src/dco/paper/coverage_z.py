"""Mean coverage over splits against its law, and how far many such comparisons stray by chance."""

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
class MeanLaw:
    """What theory says of a mean coverage over splits: its expectation, and how far off it is.

    `z` is (mean - expected) in standard errors of the law; None where nothing is left to chance,
    with an infinite threshold. Both are None for a method without a law.
    """

    expected: float | None
    z: float | None


def target(alpha: float) -> float:
    """Return 1 - alpha without the rounding of binary fractions: 0.1 -> 0.9."""
    return float(1 - as_rational(alpha))


def expected_coverage(rank: int, n: int) -> float:
    """Return rank / (n + 1), the mean coverage of a threshold at the rank-th smallest of n scores.

    The scores are distinct, and exchangeable with those of new rows.
    """
    return rank / (n + 1)


def coverage_sd(rank: int, n: int, n_test: int) -> float:
    """Return the standard deviation of the coverage of `n_test` test rows by such a threshold.

    The number of covered rows has the law Beta-binomial(n_test, rank, n + 1 - rank). With the mean
    m and the variance v of the Beta law, the variance of coverage is v + (m (1 - m) - v) / n_test.

    It is exact given the table too: when roles are dealt at random, the hits among `n_test` rows of
    a finite table without ties have this very law (a negative hypergeometric one, which is the
    Beta-binomial), whatever the table.
    """
    mean = expected_coverage(rank, n)
    variance = coverage_variance(rank, n)
    return math.sqrt(variance + (mean * (1 - mean) - variance) / n_test)


class SplitLaw(NamedTuple):
    """What decides the law of the coverage of one split."""

    rank: int
    n: int
    n_test: int


def count_laws(rows: Sequence[CoveredRow]) -> Counter[SplitLaw]:
    """Count how many splits have the same law; most often it is one law for all."""
    return Counter(SplitLaw(row.rank, row.n, row.n_test) for row in rows)


def law_of_mean(rows: Sequence[CoveredRow]) -> MeanLaw:
    """Compare the mean coverage of these splits with its law.

    Each split has its own rank and number of calibration rows. Given these, split i has mean
    rank_i / (n_i + 1) and the Beta-binomial variance, and splits of one table are independent given
    the table. So z is the sum of the differences over the root of the sum of the variances.
    """
    laws = count_laws(rows)
    expected_sum = math.fsum(
        n_splits * expected_coverage(law.rank, law.n) for law, n_splits in laws.items()
    )
    variance_of_sum = math.fsum(
        n_splits * coverage_sd(law.rank, law.n, law.n_test) ** 2 for law, n_splits in laws.items()
    )
    difference = math.fsum(row.coverage for row in rows) - expected_sum

    # without variance every threshold is infinite, and all rows are covered
    z = difference / math.sqrt(variance_of_sum) if variance_of_sum > 0 else None
    return MeanLaw(expected=expected_sum / len(rows), z=z)


def chance_below(rows: Sequence[CoveredRow], alpha: float) -> float:
    """Return the chance by law that the test coverage of a split falls below 1 - alpha.

    Where splits have several laws, it is the mean of their chances.
    """
    chances = 0.0
    for law, n_splits in count_laws(rows).items():
        needed_hits = math.ceil((1 - as_rational(alpha)) * law.n_test)
        chance = hits_cdf(needed_hits - 1, law.n_test, rank=law.rank, n_cal=law.n)
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
    """Put every row with a "z" into one table, the largest |z| first, beside the Bonferroni point.

    None where no table has such a row.
    """
    rows: list[ComparedRow] = []
    for table in tables:
        rows += compared_rows(table)
    if not rows:
        return None

    # a row of another table is shown again if it has the same target, coverage and z
    distinct = {(row.target, row.coverage, round(row.z, Z_DIGITS)) for row in rows}
    n_repeats = len(rows) - len(distinct)
    repeats = ""
    if n_repeats:
        repeats = (
            f", {n_repeats} of which show a row of another table again, such as the paper's DCO as "
            "a base"
        )

    point = bonferroni_point(len(rows))
    n_beyond = sum(abs(row.z) > point for row in rows)
    what_z_is = (
        "z = (mean coverage - rank / (n + 1)) over its standard error by the Beta-binomial law; "
        f"{len(rows)} rows{repeats}."
    )
    what_is_large = (
        f"The two-sided Bonferroni point for a family-wise error of {FAMILY_ERROR:.0%} is "
        f"{point:.2f}; {n_beyond} lie beyond it."
    )
    largest_first = sorted(rows, key=lambda row: -round(abs(row.z), Z_DIGITS))
    return ResultTable(
        title="Coverage against its law: every row",
        caption=join_sentences(what_z_is, what_is_large),
        columns=("table", "target", "method", "coverage", "by law", "z"),
        rows=tuple(largest_first),
    )


def compared_rows(table: ResultTable) -> list[ComparedRow]:
    """Return the rows of a table that have a z; none if it has no columns "method" and "z"."""
    if not {"method", "z"} <= set(table.columns):
        return []
    rows: list[ComparedRow] = []
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        z = cells["z"]
        if isinstance(z, float):
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
