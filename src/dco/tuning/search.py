"""The smallest sets on tuning rows: for each candidate one order statistic, then a comparison of
sizes.

The paper minimises the mean set size over (phi, lambda) subject to empirical risk <= alpha. Sizes
grow and risk falls with lambda, so for a fixed phi the best lambda is the smallest feasible one:
the (n - floor(n alpha))-th smallest true-label score. No grid of thresholds is needed; `grid`
exists to repeat the paper's runs.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, partial
from operator import attrgetter
from typing import Any, SupportsIndex, TypeAlias, Unpack

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Floats, Integers, to_numpy
from dco.foundations.errors import DcoError
from dco.foundations.ranks import (
    Level,
    Threshold,
    as_rational,
    checked_scores,
    order_statistic,
    size_quantile,
    tuning_rank,
)
from dco.predictions import ClassRecord, Prediction
from dco.rows.fingerprints import codes_of_values
from dco.scores.classification import RankScore
from dco.scores.score import Score, check_inverse, checked_score, is_ours
from dco.scores.together import observed_together, sizes_together
from dco.sets.labels import codes_of
from dco.sets.prediction_sets import PredictionSets
from dco.tuning.objectives import MEAN_SIZE, Aimed, Objective, Outcome, objective_of
from dco.tuning.options import (
    Conditions,
    Grid,
    Members,
    Options,
    checked_grid,
    each_row,
    grid_values,
    matched_level,
    members_of,
    neighbours,
    row_masses,
    smallest_within,
)
from dco.tuning.ranking import EvaluatedCandidate, FailedCandidate, Ranking, RankingRow, all_failed

Candidates: TypeAlias = Mapping[str, tuple[Score, Prediction]]
# What a score says of its input. A shared pass then leaves its candidates to be evaluated one by
# one, where the error gets a name. Anything else is a fault of the pass: to go on would hide it
# behind a slower way to the same numbers.
_UNSUITABLE = (DcoError, ValueError, TypeError)
_LARGE = 1e250
# P95 of weighted rows: the least size that at most a twentieth of the weight exceeds
_TAIL = Fraction(1, 20)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Predictions of the tuning rows: one record, or one per fold with the rows that it
    predicts.
    """

    records: tuple[Prediction, ...]
    rows: tuple[Any, ...] = (slice(None),)

    def labels(self) -> AnyArray | None:
        """All labels: those of the one record in its order, or those of all folds, ascending."""
        names = [_label_names(record) for record in self.records if isinstance(record, ClassRecord)]
        return (
            None if not names else names[0] if len(names) == 1 else np.unique(np.concatenate(names))
        )

    def observed(self, score: Score, y: AnyArray) -> Floats:
        """The score of the label that happened, row by row."""
        parts = [
            score.observed(record, y[rows])
            for record, rows in zip(self.records, self.rows, strict=True)
        ]
        return parts[0] if len(parts) == 1 else self.joined(parts)

    def sizes(self, score: Score, threshold: float | Floats) -> Floats:
        """The size of each row's set in float64; NaN is refused."""
        one = len(self.records) == 1
        cutoffs = (
            [threshold] if one else map(partial(self._own, threshold), self.records, self.rows)
        )
        found = [
            score.sizes(record, own) for record, own in zip(self.records, cutoffs, strict=True)
        ]
        parts = [own if isinstance(own, np.ndarray) else to_numpy(own) for own in found]
        sizes = np.asarray(parts[0] if one else self.joined(parts), dtype=np.float64)
        if np.any(np.isnan(sizes)):
            raise ValueError(
                f"{type(score).__name__} gave a set of size NaN (row "
                f"{np.flatnonzero(np.isnan(sizes))[0]})."
            )
        return sizes

    def sets(
        self, score: Score, threshold: float | Floats
    ) -> Iterator[tuple[Any, Prediction, PredictionSets]]:
        """The rows of each piece, their record and their sets."""
        for record, rows in zip(self.records, self.rows, strict=True):
            own = threshold if len(self.records) == 1 else self._own(threshold, record, rows)
            yield rows, record, score.sets(record, own)

    def centres(self) -> Floats:
        """One number per row to order rows by."""
        parts = [record.centres for record in self.records]
        return parts[0] if len(parts) == 1 else self.joined(parts)

    def sizes_at_several(self, score: Score, thresholds: Sequence[float] | Floats) -> Floats:
        """The sizes at several thresholds, (J, n)."""
        parts = [to_numpy(score.sizes_at_several(record, thresholds)) for record in self.records]
        return self.joined(parts).astype(np.float64)

    def joined(self, parts: Sequence[AnyArray]) -> Floats:
        """Values of each piece (last axis) in the order of the rows."""
        if len(parts) == 1:
            return parts[0]
        joined = np.empty((*parts[0].shape[:-1], sum(map(len, self.rows))))
        for part, rows in zip(parts, self.rows, strict=True):
            joined[..., rows] = part
        return joined

    def _own(self, threshold: float | Floats, record: Prediction, rows: Integers) -> float | Floats:
        """The thresholds of a piece: per row, or per label (1, K) in the order in which its record
        lists the labels.
        """
        values = np.asarray(threshold)
        if values.ndim == 0:
            return float(values)
        labels = self.labels() if values.ndim == 2 and values.shape[0] == 1 else None
        if labels is None or not isinstance(record, ClassRecord):
            return np.asarray(values[rows])
        return np.asarray(values[:, codes_of(_label_names(record), labels)])


def _label_names(record: ClassRecord) -> AnyArray:
    labels = record.labels()
    return np.arange(record.n_classes) if labels is None else labels


Pairs: TypeAlias = Mapping[str, tuple[Score, Pieces]]


def tune(
    candidates: Candidates,
    y_tune: ArrayLike,
    *,
    alpha: Level,
    objective: Aimed = "mean_size",
    conditions: Conditions | None = None,
    **options: Unpack[Options],
) -> Ranking:
    """Rank candidates ``{name: (score, prediction on tuning rows)}`` by mean set size at empirical
    risk <= alpha.

    For each candidate lambda is the (n - floor(n alpha))-th smallest true-label score, in integers.
    Ties in mean size are broken by the P95 size, then lambda, then the order of candidates. A
    candidate that raises, or scores NaN, is in ``ranking.failed``. Nothing here is certified:
    calibrate the winner on rows that this function never saw.

    - `objective`: "mean_size" (the paper's), "p95_size", "even", another of `dco.objectives`, or a
      function of (sets, y).
    - `slices`: ``{name: one value per row}``, slices of the rows for "even" beside classes and
      fifths of the prediction.
    - `grid`: thresholds to choose from, or how many quantiles of the tuning scores to take (the
      paper: 80). When none of a candidate's thresholds is feasible, the paper's fallback takes its
      smallest risk, then its smallest size.
    - `risk_margin`: the paper's tightened rule, risk <= alpha - risk_margin.
    - `rank_matching=(k, m)`: compare sizes at the level k / (m + 1) that the k-th of m calibration
      scores will have on average, by linear interpolation between neighbouring tuning scores,
      instead of at 1 - alpha. Ranking only.
    - `conditions`: one condition per row, or "label" for the row's own class: each gets its own
      lambda, as in Mondrian calibration.
    - `groups`: one group per row; every group then weighs the same and every row 1 / n_g
    within it.
    """
    return tune_levels(
        candidates, y_tune, alphas=[alpha], objective=objective, conditions=conditions, **options
    )[0]


def tune_levels(
    candidates: Candidates,
    y_tune: ArrayLike,
    *,
    alphas: Sequence[Level],
    objective: Aimed = "mean_size",
    conditions: Conditions | None = None,
    **options: Unpack[Options],
) -> tuple[Ranking, ...]:
    """`tune` at several levels; the scores of each candidate are computed once, its sizes in one
    pass for all levels.
    """
    pairs, y = checked_pairs(candidates), checked_targets(y_tune)
    if isinstance(alphas, str) or not isinstance(alphas, Iterable):
        raise ValueError(
            f"alphas must be a list of levels, got {alphas!r}; dco.tune takes a single one."
        )
    if conditions is not None and options.get("rank_matching") is not None:
        raise ValueError("rank_matching is for one threshold: leave out conditions.")
    rules = [Rule.of(len(y), each, objective=objective_of(objective), **options) for each in alphas]
    return rank_pairs(pairs, y, rules, conditions)


def checked_pairs(candidates: Candidates) -> dict[str, tuple[Score, Pieces]]:
    """Validate the candidates: {name: (score, prediction), ...}."""
    if not isinstance(candidates, Mapping):
        raise ValueError(
            f"candidates must be a dict {{name: (score, prediction), ...}}, got "
            f"{type(candidates).__name__}."
        )
    if not candidates:
        raise ValueError("there is no candidate to tune: pass {name: (score, prediction), ...}.")
    for name, pair in candidates.items():
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
            raise ValueError(
                f"candidate {name!r} must be a pair (score, prediction), got {type(pair).__name__}."
            )
        if isinstance(pair[1], Score):
            raise ValueError(
                f"candidate {name!r} is the wrong way round: it must be (score, "
                f"prediction), the score first."
            )
    return {
        name: (checked_score(score), Pieces((record,)))
        for name, (score, record) in candidates.items()
    }


def checked_targets(y: ArrayLike, name: str = "y_tune") -> AnyArray:
    """The labels or responses of the rows that choose: at least one, one per row."""
    array = to_numpy(y)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name} must hold one label or number for each of at least one row, got "
            f"shape {array.shape}."
        )
    return array


def rank_evaluated(
    evaluated: Sequence[EvaluatedCandidate],
    *,
    alpha: Level,
    groups: ArrayLike | None = None,
    objective: Aimed = "mean_size",
) -> Ranking:
    """`tune` for candidates whose scores and size curves are already there."""
    rule = Rule.of(rows_of(evaluated), alpha, groups=groups, objective=objective_of(objective))
    return ranked(evaluated, {}, rule)


def rows_of(evaluated: Sequence[EvaluatedCandidate]) -> int:
    """How many rows the candidates were evaluated on."""
    lengths = {len(entry) for entry in evaluated}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            "there must be at least one candidate, and all evaluated on the same "
            "tuning rows, at least one."
        )
    return lengths.pop()


@dataclass(frozen=True, eq=False)
class Rule:
    """What is asked of every candidate, checked once."""

    n: int
    alpha: Fraction
    level: Fraction  # alpha less the margin
    grid: int | Floats | None = None
    matched: Fraction | None = None
    groups: Integers | None = None  # as codes
    masses: Integers | None = None  # integer weights of rows, None when all weigh the same
    weights: Floats | None = None  # the same as shares
    objective: Objective = MEAN_SIZE
    slices: Mapping[str, Integers] = field(default_factory=dict)  # the caller's, as codes

    @classmethod
    def of(
        cls,
        n: int,
        alpha: Level,
        grid: Grid | None = None,
        risk_margin: Level = 0,
        rank_matching: tuple[SupportsIndex, SupportsIndex] | None = None,
        groups: ArrayLike | None = None,
        slices: Mapping[str, ArrayLike] | None = None,
        objective: Objective = MEAN_SIZE,
    ) -> Rule:
        """The rule for n tuning rows; the other parameters are those of `tune`."""
        level = as_rational(alpha)
        margin = Fraction(0) if risk_margin == 0 else as_rational(risk_margin, name="risk_margin")
        if margin >= level:
            raise ValueError(
                f"risk_margin must be less than alpha = {float(level):g}, got {risk_margin!r}."
            )
        if rank_matching is not None and (grid is not None or margin or groups is not None):
            raise ValueError(
                "rank_matching fixes the level itself: leave out grid, risk_margin and groups."
            )
        matched = None if rank_matching is None else matched_level(rank_matching)
        codes = masses = weights = None
        if groups is not None:
            codes = codes_of_values(each_row(groups, n, name="groups"))[0]
            counts = np.bincount(codes)
            masses, weights = row_masses(codes), 1 / (len(counts) * counts[codes])
        values = None if grid is None else checked_grid(grid)
        given = {
            name: each_row(of, n, name=f"slices[{name!r}]") for name, of in (slices or {}).items()
        }
        own = {name: codes_of_values(of, missing=True)[0] for name, of in given.items()}
        return cls(
            n, level, level - margin, values, matched, codes, masses, weights, objective, own
        )

    def best_threshold(self, scores: Floats, masses: Integers | None) -> tuple[float, bool]:
        """The smallest threshold with a share of scores above it of at most `level`, and whether
        there is one.
        """
        if self.grid is None and masses is None:
            return order_statistic(scores, tuning_rank(len(scores), alpha=self.level)), True
        return smallest_within(scores, self.level, self.grid, masses)

    def asked(self, scores: Floats) -> list[float]:
        """Where the sizes of a candidate will be asked for."""
        if self.matched is None:
            return [self.best_threshold(scores, self.masses)[0]]
        return list(neighbours(scores, self.matched)[:2])


def rank_pairs(
    pairs: Pairs, y: AnyArray, rules: Sequence[Rule], conditions: Conditions | None = None
) -> tuple[Ranking, ...]:
    """The ranking by each rule; scores are computed once for all rules."""
    done, lost = evaluate_pairs(pairs, y)
    if conditions is None:
        if len(pairs) > 1 or len(rules) > 1:
            done = _with_sizes(done, pairs, rules)
        return tuple(ranked(done, lost, rule) for rule in rules)
    pieces = {entry.name: pairs[entry.name][1] for entry in done}
    members = {
        name: members_of(own.records[0], own.labels(), y, conditions)
        for name, own in pieces.items()
    }
    return tuple(ranked(done, lost, rule, members) for rule in rules)


def evaluate_candidate(
    name: str, score: Score, prediction: Prediction, y: ArrayLike
) -> EvaluatedCandidate:
    """The candidate's scores, computed once, and its size curve, computed where it is asked for
    (NaN is refused).
    """
    done, lost = evaluate_pairs({name: (checked_score(score), Pieces((prediction,)))}, to_numpy(y))
    if lost:
        raise lost[name]
    return done[0]


def evaluate_pairs(
    pairs: Pairs, y: AnyArray
) -> tuple[list[EvaluatedCandidate], dict[str, Exception]]:
    """Evaluate each candidate; one that raises is left out, with its error."""
    known: dict[str, Floats] = {}
    for names, scores, pieces in _sharing(pairs) if len(pairs) > 1 else ():
        with suppress(*_UNSUITABLE):
            parts = [
                observed_together(scores, record, y[rows])
                for record, rows in zip(pieces.records, pieces.rows, strict=True)
            ]
            known.update(zip(names, pieces.joined(parts), strict=True))
    done, lost = [], {}
    for name, (score, pieces) in pairs.items():
        try:
            own = checked_scores(known[name] if name in known else pieces.observed(score, y))
            if own.shape != (len(y),):
                raise ValueError(
                    f"{type(score).__name__} gave {own.size} scores for {len(y)} tuning rows."
                )
            for record, rows in (
                () if is_ours(score) else zip(pieces.records, pieces.rows, strict=True)
            ):
                check_inverse(score, record, y[rows], own[rows])
            labels = pieces.labels() if isinstance(pieces.records[0], ClassRecord) else None
            sizes_at, sets_at = partial(pieces.sizes, score), partial(pieces.sets, score)
            # counts jump, and have such a pass
            curve = None if labels is None else partial(pieces.sizes_at_several, score)
            k = None if labels is None else len(labels)
            done.append(
                EvaluatedCandidate(name, own, sizes_at, curve, sets_at, cache(pieces.centres), y, k)
            )
        except Exception as problem:
            lost[name] = problem
    return done, lost


def _with_sizes(
    evaluated: Sequence[EvaluatedCandidate], pairs: Pairs, rules: Sequence[Rule]
) -> list[EvaluatedCandidate]:
    """The same candidates, looking sizes up at the thresholds that the rules ask for: one pass for
    all levels.

    Candidates that read the ranks of one prediction share that pass too.
    """
    asked = {
        entry.name: sorted({each for rule in rules for each in rule.asked(entry.scores)})
        for entry in evaluated
    }
    known: dict[str, dict[float, Floats]] = {name: {} for name in asked}
    for names, scores, pieces in _sharing({name: pairs[name] for name in asked}):
        with suppress(*_UNSUITABLE):
            found = [
                sizes_together(scores, record, [asked[name] for name in names])
                for record in pieces.records
            ]
            for name, *parts in zip(names, *found, strict=True):
                known[name] = dict(
                    zip(asked[name], pieces.joined(parts).astype(np.float64), strict=True)
                )

    def looking_up(entry: EvaluatedCandidate) -> EvaluatedCandidate:
        (score, pieces), levels, sizes = pairs[entry.name], asked[entry.name], known[entry.name]

        def sizes_at(threshold: Any) -> Floats:
            if not sizes and len(levels) > 1:
                sizes.update(zip(levels, pieces.sizes_at_several(score, levels), strict=True))
            return sizes[threshold] if threshold in sizes else entry.sizes_at(threshold)

        return replace(entry, sizes_at=sizes_at)

    return [looking_up(entry) for entry in evaluated]


def _sharing(pairs: Pairs) -> Iterator[tuple[list[str], list[RankScore], Pieces]]:
    """Names, scores and prediction of candidates whose scores read the ranks of the same
    probabilities, in NumPy.
    """
    groups: dict[tuple[int, ...], dict[str, RankScore]] = {}
    for name, (score, pieces) in pairs.items():
        on_host = all(
            isinstance(record, ClassRecord) and isinstance(record.array, np.ndarray)
            for record in pieces.records
        )
        if on_host and isinstance(score, RankScore) and is_ours(score):
            groups.setdefault(tuple(map(id, pieces.records)), {})[name] = score
    for scores in groups.values():
        if len(scores) > 1:
            yield list(scores), list(scores.values()), pairs[next(iter(scores))][1]


def ranked(
    evaluated: Sequence[EvaluatedCandidate],
    failed: Mapping[str, Exception],
    rule: Rule,
    members: Mapping[str, Members] | None = None,
) -> Ranking:
    """The candidates in the order of the rule's objective."""
    rows, lost = [], dict(failed)
    for entry in evaluated:
        try:
            if members is not None:
                row = _conditional_row(entry, rule, members[entry.name])
            elif rule.matched is not None:
                row = _matched_row(entry, rule, rule.matched)
            else:
                threshold, feasible = rule.best_threshold(entry.scores, rule.masses)
                row = _measured(entry, rule, threshold, entry.sizes_at(threshold), feasible)
            unbounded = members is None and not math.isfinite(row.mean_size)
            rows.append(_largest_finite(entry, rule, row) if unbounded else row)
        except Exception as problem:
            lost[entry.name] = problem
    if not rows:
        raise all_failed(lost)
    # the sort is stable, so the order of candidates decides last; infeasible ones are the paper's
    # fallback
    values = {row.name: row.mean_size if row.objective is None else row.objective for row in rows}
    then = attrgetter("mean_size", "p95_size", "ranking_threshold")
    rows.sort(
        key=lambda row: (
            0 if row.feasible else 1 + row.miscoverage,
            row.shortfall,
            values[row.name],
            then(row),
        )
    )
    reasons = (
        FailedCandidate(name, f"{type(error).__name__}: {error}") for name, error in lost.items()
    )
    return Ranking(tuple(rows), tuple(reasons), float(rule.alpha), rule.n, rule.objective.name)


def _matched_row(entry: EvaluatedCandidate, rule: Rule, level: Fraction) -> RankingRow:
    threshold, upper, share = neighbours(entry.scores, level)
    sizes = entry.sizes_at(threshold)
    if upper > threshold:
        sizes = (1 - share) * sizes + share * entry.sizes_at(upper)
        threshold = (
            threshold + share * (upper - threshold) if math.isfinite(upper - threshold) else upper
        )
    return _measured(entry, rule, threshold, sizes, feasible=True)


def _measured(
    entry: EvaluatedCandidate,
    rule: Rule,
    threshold: float,
    sizes: Floats,
    feasible: bool,
    by_condition: dict[Any, float] | None = None,
    cutoffs: tuple[Floats, Floats] | None = None,
) -> RankingRow:
    """The row of a candidate; `cutoffs` are those of the true labels, and as the score reads them,
    if they differ.
    """
    if sizes.shape != entry.scores.shape:
        raise ValueError(
            f"{entry.name} gave sizes of shape {sizes.shape} for {len(entry)} tuning rows."
        )
    own, deployed = (threshold, threshold) if cutoffs is None else cutoffs
    above = np.asarray(entry.scores > own)
    if rule.masses is None or rule.weights is None:
        mean, miscoverage = exact_mean(sizes), int(np.count_nonzero(above)) / rule.n
        p95 = size_quantile(sizes, 0.95)
    else:
        mean, miscoverage = math.fsum(sizes * rule.weights), math.fsum(rule.weights[above])
        p95 = smallest_within(sizes, _TAIL, None, rule.masses)[0]
    row = RankingRow(
        entry.name,
        threshold,
        miscoverage,
        mean,
        p95,
        feasible and math.isfinite(mean),
        by_condition,
        mean,
    )
    if rule.objective == MEAN_SIZE:
        return row
    at = Outcome(
        row,
        entry,
        ~above,
        sizes,
        deployed,
        float(rule.alpha),
        rule.slices,
        rule.groups,
        rule.weights,
    )
    return replace(row, objective=rule.objective.value(at), shortfall=rule.objective.shortfall(at))


def exact_mean(values: Floats) -> float:
    """The mean, summed exactly, so that the order of rows cannot change it (nor break a tie)."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest > _LARGE:  # their sum may be larger than any float
        return math.fsum(values / len(values)) if math.isfinite(largest) else math.inf
    whole = bool(np.all(values == np.rint(values))) and largest * len(values) < 2**53
    # whole numbers add up without rounding
    return float(values.sum() if whole else math.fsum(values)) / len(values)


def _largest_finite(entry: EvaluatedCandidate, rule: Rule, row: RankingRow) -> RankingRow:
    """The fallback for unbounded sets: the smallest risk among thresholds at which the mean size is
    finite.
    """
    steps = grid_values(entry.scores, rule.grid)
    # they grow
    bounded = bisect_left(
        steps, True, key=lambda step: not np.all(np.isfinite(entry.sizes_at(float(step))))
    )
    if not bounded:
        return row
    threshold = float(steps[bounded - 1])
    return _measured(entry, rule, threshold, entry.sizes_at(threshold), feasible=False)


def _conditional_row(entry: EvaluatedCandidate, rule: Rule, members: Members) -> RankingRow:
    thresholds = np.empty(len(members.names))
    feasible = True
    for code in range(len(members.names)):
        rows = members.codes == code
        masses = None if rule.groups is None else row_masses(rule.groups[rows])
        thresholds[code], met = rule.best_threshold(entry.scores[rows], masses)
        feasible = feasible and met
    by_condition = {
        name: float(value) for name, value in zip(members.names, thresholds, strict=True)
    }
    spread = members.spread(thresholds)
    cutoffs = thresholds[members.codes], spread
    return _measured(
        entry,
        rule,
        float(thresholds.max()),
        entry.sizes_at(spread),
        feasible,
        by_condition,
        cutoffs,
    )


def tuning_threshold(scores: Floats, *, alpha: Level) -> Threshold:
    """The least threshold with empirical risk <= alpha on the tuning rows: the (n - floor(n
    alpha))-th smallest score.
    """
    rank = tuning_rank(len(scores), alpha=alpha)
    return Threshold(
        order_statistic(scores, rank),
        rank=rank,
        n=len(scores),
        guarantee="none",
        alpha=float(as_rational(alpha)),
    )


def direct_tune(
    score: Score, prediction_tune: Prediction, y_tune: ArrayLike, *, alpha: Level
) -> Threshold:
    """The (n - floor(n alpha))-th smallest tuning score; guarantee "none".

    ``expected_coverage`` is (n - floor(n alpha)) / (n + 1) and holds for a score fixed in advance:
    always below 1 - alpha + 1 / (n + 1). After a search over candidates on the same rows it is
    lower still, by an amount that nothing here bounds (16 equal candidates, n = 1000, 1 - alpha =
    0.8: about 0.776).
    """
    y = checked_targets(y_tune)
    scores = evaluate_candidate(type(score).__name__, score, prediction_tune, y).scores
    return tuning_threshold(scores, alpha=alpha)
