"""Compare evaluated candidates: each at its own threshold, then by the objective."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from dco.foundations.arrays import Floats
from dco.tuning.cutoffs import Cutoffs, OneThreshold, ThresholdKind
from dco.tuning.evaluated import EvaluatedCandidate
from dco.tuning.objectives import MEAN_SIZE, Objective, Outcome
from dco.tuning.ranking import FailedCandidate, Ranking, RankingRow, all_failed
from dco.tuning.row_weights import EqualRows, RowWeights
from dco.tuning.slices import Slicing


@dataclass(frozen=True, eq=False)
class Comparison:
    """How candidates are compared on the tuning rows."""

    alpha: Fraction
    objective: Objective = MEAN_SIZE
    weights: RowWeights = field(default_factory=EqualRows)
    thresholds: ThresholdKind = field(default_factory=OneThreshold)
    slicings: tuple[Slicing, ...] = ()

    def rank(
        self,
        candidates: Sequence[EvaluatedCandidate],
        errors: Mapping[str, Exception] | None = None,
    ) -> Ranking:
        """Measure the candidates and put them in order, best first.

        `errors` are those of candidates that could not be evaluated. If no candidate can be
        measured, one error gives the reasons of all.
        """
        rows = []
        errors = dict(errors or {})
        for candidate in candidates:
            try:
                rows.append(self.measure(candidate))
            except Exception as error:
                errors[candidate.name] = error
        if not rows:
            raise all_failed(errors)

        failed = tuple(
            FailedCandidate(name, f"{type(error).__name__}: {error}")
            for name, error in errors.items()
        )
        return Ranking(
            table=tuple(put_in_order(rows, self.objective)),
            failed=failed,
            alpha=float(self.alpha),
            n=len(candidates[0]),
            objective=self.objective.name,
        )

    def measure(self, candidate: EvaluatedCandidate) -> RankingRow:
        """Measure a candidate at the smallest threshold that misses at most a share alpha.

        If the sets are unbounded there, the largest threshold with bounded sets stands in for it,
        and the candidate is not feasible.
        """
        outcome = self.outcome(candidate)
        if math.isfinite(outcome.mean_size) or not self.thresholds.is_single:
            return self.row(outcome)

        threshold = largest_bounded_threshold(candidate)
        if threshold is None:
            return self.row(outcome)
        bounded = self.outcome_at(candidate, Cutoffs.equal(threshold))
        return self.row(bounded, feasible=False)

    def outcome(self, candidate: EvaluatedCandidate) -> Outcome:
        """Find the sizes and the covered rows of a candidate at its own threshold."""
        return self.outcome_at(
            candidate, self.thresholds.cutoffs(candidate, self.weights, self.alpha)
        )

    def outcome_at(
        self, candidate: EvaluatedCandidate, cutoffs: Cutoffs, sizes: Floats | None = None
    ) -> Outcome:
        """Find the sizes and the covered rows of a candidate; pass `sizes` if they are known."""
        if sizes is None:
            sizes = candidate.sizes_at(cutoffs.for_score)
        if sizes.shape != candidate.scores.shape:
            raise ValueError(
                f"{candidate.name} gave sizes of shape {sizes.shape} for {len(candidate)} "
                f"tuning rows."
            )
        return Outcome(
            candidate=candidate,
            cutoffs=cutoffs,
            sizes=sizes,
            covered=np.asarray(candidate.scores <= cutoffs.of_rows),
            alpha=float(self.alpha),
            weights=self.weights,
            slicings=self.slicings,
        )

    def row(self, outcome: Outcome, *, feasible: bool = True) -> RankingRow:
        """Make the row of the ranking that states an outcome."""
        return RankingRow(
            name=outcome.candidate.name,
            ranking_threshold=outcome.cutoffs.largest,
            miscoverage=outcome.miscoverage,
            mean_size=outcome.mean_size,
            p95_size=outcome.p95_size,
            feasible=feasible and math.isfinite(outcome.mean_size),
            objective=self.objective.value(outcome),
            shortfall=self.objective.shortfall(outcome),
        )


def put_in_order(rows: Sequence[RankingRow], objective: Objective) -> list[RankingRow]:
    """Sort rows, best first. The order in which they came decides last.

    Candidates without a feasible threshold come last, by miscoverage (the paper's fallback). Before
    them come those whose sets are larger than the objective pays for.
    """
    values = [row.objective for row in rows if row.feasible]
    affordable = min(values, default=math.inf) * (1 + objective.price)

    def key(row: RankingRow) -> tuple[float, ...]:
        return (
            0 if row.feasible else 1 + row.miscoverage,
            row.objective > affordable,
            row.shortfall,
            row.objective,
            row.mean_size,
            row.p95_size,
            row.ranking_threshold,
        )

    return sorted(rows, key=key)


def largest_bounded_threshold(candidate: EvaluatedCandidate) -> float | None:
    """Return the largest score at which all sets are bounded; None if there is none."""
    ascending = np.unique(candidate.scores[np.isfinite(candidate.scores)])

    def has_unbounded_set(threshold: float) -> bool:
        return not np.all(np.isfinite(candidate.sizes_at(float(threshold))))

    # Sets grow with the threshold: first come scores without an unbounded set, then those with one.
    n_bounded = bisect_left(ascending, True, key=has_unbounded_set)
    if n_bounded == 0:
        return None
    return float(ascending[n_bounded - 1])
