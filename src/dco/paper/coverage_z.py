"""Mean coverage over splits against its law, and how far a family of such comparisons may stray by
chance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from scipy.special import ndtri

from dco.foundations.ranks import as_rational
from dco.paper.experiment import Row
from dco.paper.tables import Cell, ResultTable
from dco.theory import coverage_law_of_rank

FAMILY_ERROR = 0.01


def target(alpha: float) -> float:
    """1 - alpha without the rounding of binary fractions."""
    return float(1 - as_rational(alpha))


def expected_coverage(rank: int, n: int) -> float:
    """rank / (n + 1): the mean coverage at the rank-th smallest of n distinct exchangeable
    scores.
    """
    return rank / (n + 1)


def coverage_sd(rank: int, n: int, n_test: int) -> float:
    """The standard deviation of test coverage: of Beta-binomial(n_test, rank, n + 1 - rank) /
    n_test.

    Exact given the table too: when roles are dealt at random, the hits among `n_test` rows of a
    finite table without ties have this very law (a negative hypergeometric one, which is the
    Beta-binomial), whatever the table.
    """
    law = coverage_law_of_rank(rank, n)
    mean, variance = float(law.mean()), float(law.var())
    return math.sqrt(variance + (mean * (1 - mean) - variance) / n_test)


def coverage_z(coverages: Sequence[float], *, rank: int, n: int, n_test: int) -> float:
    """(mean - rank / (n + 1)) / (sd / sqrt(splits)); splits of one table are independent given the
    table.
    """
    sd = coverage_sd(rank, n, n_test)
    if sd == 0:
        return 0.0
    return (sum(coverages) / len(coverages) - expected_coverage(rank, n)) / (
        sd / math.sqrt(len(coverages))
    )


def own_law(rows: Sequence[Row]) -> tuple[float, float]:
    """Expected coverage by theory and z where each split has its own rank and number of calibration
    rows.

    Given what was chosen, split i has mean rank_i / (n_i + 1) and the Beta-binomial variance; the
    sum of the differences over the root of the sum of the variances is z. Equal ranks give
    `coverage_z`.
    """
    means = [expected_coverage(int(row["rank"]), int(row["n"])) for row in rows]
    laws = Counter((int(row["rank"]), int(row["n"]), int(row["n_test"])) for row in rows)
    variance = math.fsum(count * coverage_sd(*law) ** 2 for law, count in laws.items())
    excess = math.fsum(row["coverage"] - mean for row, mean in zip(rows, means, strict=True))
    return math.fsum(means) / len(means), excess / math.sqrt(variance) if variance > 0 else 0.0


def bonferroni_point(comparisons: int, *, family_error: float = FAMILY_ERROR) -> float:
    """The |z| that the largest of `comparisons` exceeds with probability at most `family_error`."""
    return float(-ndtri(family_error / (2 * max(1, comparisons))))


def all_z(tables: Sequence[ResultTable]) -> ResultTable | None:
    """Every row with a "z" in one table, the largest first, against the Bonferroni point of them
    all.
    """
    rows: list[tuple[Cell, ...]] = []
    for table in tables:
        if "z" not in table.columns or "method" not in table.columns:
            continue
        for row in table.rows:
            entry = dict(zip(table.columns, row, strict=True))
            if isinstance(entry["z"], float):
                rows.append(
                    (
                        table.title,
                        entry.get("target"),
                        entry["method"],
                        entry["coverage"],
                        entry["by law"],
                        entry["z"],
                    )
                )
    if not rows:
        return None
    point = bonferroni_point(len(rows))
    rows.sort(key=lambda row: -abs(float(row[-1])))  # type: ignore[arg-type]
    beyond = sum(abs(float(row[-1])) > point for row in rows)  # type: ignore[arg-type]
    repeats = len(rows) - len({(row[1], row[3], round(float(row[-1]), 9)) for row in rows})  # type: ignore[arg-type]
    again = (
        f", {repeats} of which show a row of another table again, such as the paper's DCO as a base"
        if repeats
        else ""
    )
    return ResultTable(
        "Coverage against its law: every row",
        f"z = (mean coverage - rank / (n + 1)) over its standard error by the Beta-binomial law; "
        f"{len(rows)} rows{again}. "
        f"The two-sided Bonferroni point for a family-wise error of {FAMILY_ERROR:.0%} is "
        f"{point:.2f}; {beyond} lie "
        "beyond it.",
        ("table", "target", "method", "coverage", "by law", "z"),
        tuple(rows),
    )
