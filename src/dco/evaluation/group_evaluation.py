"""Coverage and size on some rows: all of them, one condition, or one slice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dco.calibration.base import CoverageLaw
from dco.evaluation.outcomes import Counts, Outcomes
from dco.foundations.arrays import Floats
from dco.foundations.ranks import size_quantile
from dco.theory import Consistency


@dataclass(frozen=True)
class SizeSummary:
    """How large the sets of some rows are.

    One infinite set makes `mean` infinite; `mean_finite` leaves such sets out (NaN if there is no
    other). `median` and `p95` are NaN where rows were counted in parts. Shares are of rows:
    `empty` sets, `full` sets (every label, or the whole line), `infinite` ones (a side without
    end), and for labels those that hold `one_label` (None for numbers).
    """

    mean: float
    mean_finite: float
    median: float
    p95: float
    empty: float
    full: float
    infinite: float
    one_label: float | None

    @classmethod
    def of_outcomes(cls, outcomes: Outcomes) -> Self:
        """Summarise the sizes of sets that are in memory."""
        sizes = outcomes.sizes
        one_label = outcomes.has_one_label
        return cls(
            mean=float(sizes.mean()),
            mean_finite=mean_or_nan(sizes[np.isfinite(sizes)]),
            median=size_quantile(sizes, 0.5),
            p95=size_quantile(sizes, 0.95),
            empty=float(np.mean(outcomes.empty)),
            full=float(np.mean(outcomes.full)),
            infinite=float(np.mean(np.isinf(sizes))),
            one_label=None if one_label is None else float(np.mean(one_label)),
        )

    @classmethod
    def of_counts(cls, counts: Counts, *, has_labels: bool) -> Self:
        """Summarise the sizes of sets that were counted and let go."""
        return cls(
            mean=counts.mean_size,
            mean_finite=counts.mean_finite_size,
            median=math.nan,
            p95=math.nan,
            empty=counts.empty / counts.rows,
            full=counts.full / counts.rows,
            infinite=counts.infinite / counts.rows,
            one_label=counts.one_label / counts.rows if has_labels else None,
        )


@dataclass(frozen=True)
class GroupEvaluation:
    """Coverage and size on some rows: those whose `by` is `group`.

    `by` is "rows" for all of them, "condition" for rows with a threshold of their own, or the way
    in which rows were sliced. `coverage_low` and `coverage_high` are an exact (Clopper-Pearson)
    95 % interval for the coverage by these sets, if rows are independent; those of slices hold for
    all slices of an evaluation at once. `unknown_labels` counts rows whose label no set can hold:
    they are misses. `consistency` compares the coverage with the law of the threshold, and is None
    where no law is known.
    """

    by: str
    group: Any
    n: int
    coverage: float
    coverage_low: float
    coverage_high: float
    sizes: SizeSummary
    unknown_labels: int = 0
    consistency: Consistency | None = None

    @property
    def mean_size(self) -> float:
        """The mean size, infinite if one set is."""
        return self.sizes.mean


def evaluate_outcomes(
    outcomes: Outcomes,
    *,
    by: str = "rows",
    group: Any = None,
    law: CoverageLaw | None = None,
    confidence: float = 0.95,
) -> GroupEvaluation:
    """Evaluate rows whose outcomes are in memory, with the law of their threshold if it has one.

    `by` and `group` say which rows they are, such as "class" and "cat".
    """
    return evaluate_group(
        Counts.of(outcomes),
        SizeSummary.of_outcomes(outcomes),
        by=by,
        group=group,
        law=law,
        confidence=confidence,
    )


def evaluate_group(
    counts: Counts,
    sizes: SizeSummary,
    *,
    by: str = "rows",
    group: Any = None,
    law: CoverageLaw | None = None,
    confidence: float = 0.95,
) -> GroupEvaluation:
    """Evaluate rows from their counts and the summary of their sizes.

    `by` and `group` say which rows they are, such as "class" and "cat". If the `law` of their
    coverage is known, the coverage is compared with it. `confidence` is that of the interval for
    the coverage.
    """
    low, high = share_interval(counts.covered, counts.rows, confidence=confidence)
    consistency = None
    if law is not None:
        consistency = law.judge(counts.covered, counts.rows, unknown_labels=counts.unknown)

    return GroupEvaluation(
        by=by,
        group=group,
        n=counts.rows,
        coverage=counts.covered / counts.rows,
        coverage_low=low,
        coverage_high=high,
        sizes=sizes,
        unknown_labels=counts.unknown,
        consistency=consistency,
    )


def share_interval(hits: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact (Clopper-Pearson) interval for a probability, `hits` of `n` observed."""
    from scipy.special import betaincinv  # slow to import

    tail = (1 - confidence) / 2
    low = 0.0
    high = 1.0
    if hits > 0:
        low = float(betaincinv(hits, n - hits + 1, tail))
    if hits < n:
        high = float(betaincinv(hits + 1, n - hits, 1 - tail))
    return low, high


def mean_or_nan(values: Floats) -> float:
    """Return the mean; NaN of no values, without a warning."""
    return float(values.mean()) if values.size else math.nan
