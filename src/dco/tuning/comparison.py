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
from dco.tuning.ranking import FailedCandidate, Ranking, RankingRow, all_failed, list_failed
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
            except Exception as error:  # whatever a user's score or objective raises
                errors[candidate.name] = error
        if not rows:
            raise all_failed(errors)
        return self.make_ranking(rows, list_failed(errors), n_rows=len(candidates[0]))

    def make_ranking(
        self, rows: Sequence[RankingRow], failed: Sequence[FailedCandidate], *, n_rows: int
    ) -> Ranking:
        """Put measured candidates in order, and record which failed. `n_rows` are tuning rows."""
        return Ranking(
            table=tuple(put_in_order(rows, self.objective)),
            failed=tuple(failed),
            alpha=float(self.alpha),
            n=n_rows,
            objective=self.objective.name,
        )

    def measure(self, candidate: EvaluatedCandidate) -> RankingRow:
        """Measure a candidate at the smallest threshold that misses at most a share alpha.

        If the sets are unbounded there, the largest threshold with bounded sets stands in for it,
        and the candidate is not feasible.
        """
        outcome = self.outcome(candidate)
        if math.isfinite(outcome.mean_size) or not self.thresholds.is_single:
            return self.make_row(outcome)

        bounded_threshold = largest_bounded_threshold(candidate)
        if bounded_threshold is None:
            return self.make_row(outcome)
        bounded_outcome = self.outcome_at(candidate, Cutoffs.equal(bounded_threshold))
        return self.make_row(bounded_outcome, feasible=False)

    def outcome(self, candidate: EvaluatedCandidate) -> Outcome:
        """Find the sizes and the covered rows of a candidate at its smallest threshold.

        That is the smallest one that misses at most a share alpha of the rows.
        """
        cutoffs = self.thresholds.cutoffs(candidate, self.weights, self.alpha)
        return self.outcome_at(candidate, cutoffs)

    def outcome_at(
        self, candidate: EvaluatedCandidate, cutoffs: Cutoffs, sizes: Floats | None = None
    ) -> Outcome:
        """Find the sizes and the covered rows of a candidate at these thresholds.

        `sizes` are the set sizes of all rows there, if they were computed before.
        """
        if sizes is None:
            sizes = candidate.sizes_at(cutoffs.for_sets)
        if sizes.shape != candidate.scores.shape:
            raise ValueError(
                f"{candidate.name} gave sizes of shape {sizes.shape} for {len(candidate)} "
                f"tuning rows."
            )
        return Outcome(
            candidate=candidate,
            cutoffs=cutoffs,
            sizes=sizes,
            covered=np.asarray(candidate.scores <= cutoffs.for_true_labels),
            alpha=float(self.alpha),
            weights=self.weights,
            slicings=self.slicings,
        )

    def make_row(self, outcome: Outcome, *, feasible: bool = True) -> RankingRow:
        """Make the candidate's row of the ranking from its outcome."""
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
    """Sort the rows of a ranking, each of which is one candidate, the best first.

    Three groups follow each other:

    1. candidates whose objective is at most ``1 + objective.price`` times the smallest one,
    2. those whose objective is larger,
    3. those whose sets are unbounded (not `feasible`), by their miscoverage.

    In the first two, the smaller shortfall comes first (what a candidate lacks to qualify), then
    the smaller objective, then the smaller sets. Equal candidates stay in their order.
    """
    values = [row.objective for row in rows if row.feasible]
    largest_allowed_value = min(values, default=math.inf) * (1 + objective.price)

    def sort_key(row: RankingRow) -> tuple[float, ...]:
        unbounded_last = 0.0 if row.feasible else 1 + row.miscoverage
        is_too_large = row.objective > largest_allowed_value
        return (
            unbounded_last,
            is_too_large,
            row.shortfall,
            row.objective,
            row.mean_size,
            row.p95_size,
            row.ranking_threshold,
        )

    return sorted(rows, key=sort_key)


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
