"""Mean coverage over splits against its law, and how far many such comparisons stray by chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from scipy.special import ndtri

from dco.foundations.ranks import as_rational
from dco.paper.tables import Cell, ResultTable
from dco.theory import coverage_variance, hits_cdf

FAMILY_ERROR = 0.01


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
    """Return 1 - alpha without the rounding of binary fractions."""
    return float(1 - as_rational(alpha))


def expected_coverage(rank: int, n: int) -> float:
    """rank / (n + 1): the mean coverage at the rank-th smallest of n distinct exchangeable
    scores.
    """
    return rank / (n + 1)


def coverage_sd(rank: int, n: int, n_test: int) -> float:
    """Return the standard deviation of test coverage: of Beta-binomial(n_test, rank, n + 1 - rank)
    / n_test.

    It is exact given the table too: when roles are dealt at random, the hits among `n_test` rows of
    a finite table without ties have this very law (a negative hypergeometric one, which is the
    Beta-binomial), whatever the table.
    """
    mean = expected_coverage(rank, n)
    variance = coverage_variance(rank, n)
    return math.sqrt(variance + (mean * (1 - mean) - variance) / n_test)


def law_of_mean(rows: Sequence[CoveredRow]) -> MeanLaw:
    """Compare the mean coverage of these splits with its law.

    Each split has its own rank and number of calibration rows. Given these, split i has mean
    rank_i / (n_i + 1) and the Beta-binomial variance, and splits of one table are independent given
    the table. So z is the sum of the differences over the root of the sum of the variances.
    """
    laws = Counter((row.rank, row.n, row.n_test) for row in rows)
    total = math.fsum(times * expected_coverage(rank, n) for (rank, n, _), times in laws.items())
    variance = math.fsum(times * coverage_sd(*law) ** 2 for law, times in laws.items())
    excess = math.fsum(row.coverage for row in rows) - total
    z = excess / math.sqrt(variance) if variance > 0 else None
    return MeanLaw(expected=total / len(rows), z=z)


def chance_below(rows: Sequence[CoveredRow], alpha: float) -> float:
    """Return the chance by law that the test coverage of a split falls below 1 - alpha."""
    laws = Counter((row.rank, row.n, row.n_test) for row in rows)
    chance = 0.0
    for (rank, n, n_test), times in laws.items():
        needed = math.ceil((1 - as_rational(alpha)) * n_test)
        chance += times * hits_cdf(needed - 1, n_test, rank=rank, n_cal=n)
    return chance / len(rows)


def bonferroni_point(comparisons: int, *, family_error: float = FAMILY_ERROR) -> float:
    """Return the |z| that the largest of `comparisons` exceeds with probability at most
    `family_error`.
    """
    return float(-ndtri(family_error / (2 * max(1, comparisons))))


def all_z(tables: Sequence[ResultTable]) -> ResultTable | None:
    """Put every row with a "z" into one table, the largest first, beside the Bonferroni point.

    None where no table has such a row.
    """
    rows: list[tuple[Cell, ...]] = []
    z_values: list[float] = []
    for table in tables:
        if not {"method", "z"} <= set(table.columns):
            continue
        for row in table.rows:
            cells = dict(zip(table.columns, row, strict=True))
            z = cells["z"]
            if isinstance(z, float):
                shown = (cells.get("target"), cells["method"], cells["coverage"], cells["by law"])
                rows.append((table.title, *shown, z))
                z_values.append(z)
    if not rows:
        return None

    point = bonferroni_point(len(rows))
    n_beyond = sum(abs(z) > point for z in z_values)
    # rows that were shown already have the same target, coverage and z
    distinct = {(row[1], row[3], round(z, 9)) for row, z in zip(rows, z_values, strict=True)}
    n_repeats = len(rows) - len(distinct)
    repeats = ""
    if n_repeats:
        repeats = (
            f", {n_repeats} of which show a row of another table again, such as the paper's DCO as "
            "a base"
        )

    order = sorted(range(len(rows)), key=lambda i: -round(abs(z_values[i]), 9))
    return ResultTable(
        title="Coverage against its law: every row",
        caption="z = (mean coverage - rank / (n + 1)) over its standard error by the Beta-binomial "
        f"law; {len(rows)} rows{repeats}. The two-sided Bonferroni point for a family-wise error "
        f"of {FAMILY_ERROR:.0%} is {point:.2f}; {n_beyond} lie beyond it.",
        columns=("table", "target", "method", "coverage", "by law", "z"),
        rows=tuple(rows[i] for i in order),
    )
