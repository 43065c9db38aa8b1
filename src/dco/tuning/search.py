"""The smallest sets on tuning rows: for each candidate one order statistic, then a comparison of sizes.

The paper minimises the mean set size over (phi, lambda) subject to empirical risk <= alpha. Sizes grow and risk falls with
lambda, so for a fixed phi the best lambda is the smallest feasible one: the (n - floor(n alpha))-th smallest true-label
score. No grid of thresholds is needed; `grid` exists to repeat the paper's runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Floats, Integers, as_labels
from dco.foundations.ranks import Level, as_count, as_rational, order_statistic, tuning_rank
from dco.rows.conditions import condition_names, rows_by_condition
from dco.rows.fingerprints import codes_of_values
from dco.sets.prediction_sets import size_quantile
from dco.tuning.candidates import (
    Candidates,
    EvaluatedCandidate,
    FailedCandidate,
    Ranking,
    RankingRow,
    all_failed,
    checked_targets,
    common_kind,
    evaluate_candidates,
    exact_mean,
    failure,
    is_classification,
    with_sizes,
)

_TAIL = Fraction(1, 20)  # P95 of weighted rows: the least size that at most a twentieth of the weight exceeds

Grid: TypeAlias = int | Sequence[float] | Floats
Conditions: TypeAlias = ArrayLike | Literal["label"]


def tune(
    candidates: Candidates,
    y_tune: ArrayLike,
    *,
    alpha: Level,
    grid: Grid | None = None,
    risk_margin: Level = 0,
    rank_matching: tuple[SupportsIndex, SupportsIndex] | None = None,
    conditions: Conditions | None = None,
    groups: ArrayLike | None = None,
) -> Ranking:
    """Rank candidates ``{name: (score, prediction on tuning rows)}`` by mean set size at empirical risk <= alpha.

    For each candidate lambda is the (n - floor(n alpha))-th smallest true-label score, in integers. Ties in mean size are
    broken by the P95 size, then lambda, then the order of candidates. A candidate that raises, or scores NaN, is in
    ``ranking.failed``. Nothing here is certified: calibrate the winner on rows that this function never saw.

    - `grid`: thresholds to choose from, or how many quantiles of the tuning scores to take (the paper: 80). When none of a
      candidate's thresholds is feasible, the paper's fallback takes its smallest risk, then its smallest size.
    - `risk_margin`: the paper's tightened rule, risk <= alpha - risk_margin.
    - `rank_matching=(k, m)`: compare sizes at the level k / (m + 1) that the k-th of m calibration scores will have on
      average, by linear interpolation between neighbouring tuning scores, instead of at 1 - alpha. Ranking only.
    - `conditions`: a condition a row, or "label" for the row's own class: each gets its own lambda, as in Mondrian
      calibration.
    - `groups`: a group a row; every group then weighs the same and every row 1 / n_g within it.
    """
    return tune_levels(
        candidates,
        y_tune,
        alphas=[alpha],
        grid=grid,
        risk_margin=risk_margin,
        rank_matching=rank_matching,
        conditions=conditions,
        groups=groups,
    )[0]


def tune_levels(
    candidates: Candidates,
    y_tune: ArrayLike,
    *,
    alphas: Sequence[Level],
    grid: Grid | None = None,
    risk_margin: Level = 0,
    rank_matching: tuple[SupportsIndex, SupportsIndex] | None = None,
    conditions: Conditions | None = None,
    groups: ArrayLike | None = None,
) -> tuple[Ranking, ...]:
    """`tune` at several levels; the scores of each candidate are computed once, its sizes in one pass for all levels."""
    check_candidates(candidates)
    y = checked_targets(y_tune)
    if isinstance(alphas, str) or not isinstance(alphas, Iterable):
        raise ValueError(f"alphas must be a list of levels, got {alphas!r}; dco.tune takes a single one.")
    rules = [
        _Rule.of(len(y), alpha, grid, risk_margin, rank_matching, conditions=conditions, groups=groups) for alpha in alphas
    ]
    done, failed, kind = evaluate_candidates(candidates, y)
    if conditions is None:
        asked = {entry.name: sorted({value for rule in rules for value in _thresholds(entry, rule)}) for entry in done}
        done = with_sizes(done, candidates, asked)
        return tuple(_ranked(done, failed, rule, kind) for rule in rules)
    members = {name: _members(candidates[name], y, conditions) for name in (entry.name for entry in done)}
    return tuple(_ranked(done, failed, rule, kind, members) for rule in rules)


def check_candidates(candidates: Candidates) -> None:
    """Say what candidates look like, where these do not."""
    if not isinstance(candidates, Mapping):
        raise ValueError(f"candidates must be a dict {{name: (score, prediction), ...}}, got {type(candidates).__name__}.")
    for name, pair in candidates.items():
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
            raise ValueError(f"candidate {name!r} must be a pair (score, prediction), got {type(pair).__name__}.")


def rank_evaluated(
    evaluated: Sequence[EvaluatedCandidate],
    *,
    alpha: Level,
    grid: Grid | None = None,
    risk_margin: Level = 0,
    rank_matching: tuple[SupportsIndex, SupportsIndex] | None = None,
    groups: ArrayLike | None = None,
) -> Ranking:
    """`tune` for candidates whose scores and size curves are already there."""
    if not evaluated:
        raise ValueError("there is no candidate to rank.")
    if len({len(entry) for entry in evaluated}) != 1:
        raise ValueError("all candidates must be evaluated on the same tuning rows.")
    return _ranked(evaluated, [], _Rule.of(len(evaluated[0]), alpha, grid, risk_margin, rank_matching, groups=groups))


@dataclass(frozen=True, eq=False)
class _Rule:
    """What is asked of every candidate, checked once."""

    n: int
    alpha: Fraction
    level: Fraction  # alpha less the margin
    grid: int | Floats | None
    matched: Fraction | None
    groups: Integers | None  # as codes
    masses: Integers | None  # integer weights of rows, None when all weigh the same
    weights: Floats | None  # the same as shares

    @classmethod
    def of(
        cls,
        n: int,
        alpha: Level,
        grid: Grid | None,
        risk_margin: Level,
        rank_matching: tuple[SupportsIndex, SupportsIndex] | None,
        *,
        conditions: Conditions | None = None,
        groups: ArrayLike | None = None,
    ) -> _Rule:
        level = as_rational(alpha)
        margin = Fraction(0) if risk_margin == 0 else as_rational(risk_margin, name="risk_margin")
        if margin >= level:
            raise ValueError(f"risk_margin must be less than alpha = {float(level):g}, got {risk_margin!r}.")
        matched = None
        if rank_matching is not None:
            if grid is not None or margin or conditions is not None or groups is not None:
                raise ValueError("rank_matching fixes the level itself: leave out grid, risk_margin, conditions and groups.")
            if not (isinstance(rank_matching, (tuple, list)) and len(rank_matching) == 2):
                raise ValueError(f"rank_matching must be a pair (k, m) of whole numbers, got {rank_matching!r}.")
            rank, m = as_count(rank_matching[0], name="rank"), as_count(rank_matching[1], name="m")
            if not 1 <= rank <= m + 1:
                raise ValueError(f"rank_matching=(k, m) needs 1 <= k <= m + 1, got ({rank}, {m}).")
            # k = m + 1 deploys no finite threshold at all: every candidate has full sets, and ranking falls back to alpha
            matched = Fraction(rank, m + 1) if rank <= m else None
        steps = None if grid is None else _checked_grid(grid)
        if groups is None:
            return cls(n, level, level - margin, steps, matched, None, None, None)
        codes = group_codes(groups, n)
        counts = np.bincount(codes)
        return cls(n, level, level - margin, steps, matched, codes, row_masses(codes), 1 / (len(counts) * counts[codes]))


def group_codes(groups: ArrayLike, n: int) -> Integers:
    """The groups of n tuning rows as codes 0 ... G - 1."""
    labels = as_labels(groups)
    if labels.shape != (n,):
        raise ValueError(f"groups must name a group for each of the {n} tuning rows, got shape {labels.shape}.")
    return codes_of_values(labels)[0]


def row_masses(codes: Integers) -> Integers:
    """Integer weights proportional to 1 / n_g, exact, whatever the sizes of the groups; `codes` may leave numbers out."""
    present, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
    common = math.lcm(*counts.tolist())
    each = np.array([common // count for count in counts.tolist()], dtype=object)
    masses: Integers = each[place]
    return masses if common * len(present) >= 2**62 else masses.astype(np.int64)


def _ranked(
    evaluated: Sequence[EvaluatedCandidate],
    failed: Sequence[FailedCandidate],
    rule: _Rule,
    kind: type[Exception] = ValueError,
    members: dict[str, _Members] | None = None,
) -> Ranking:
    rows: list[RankingRow] = []
    lost = list(failed)
    kinds = [kind] if failed else []
    for entry in evaluated:
        try:
            rows.append(_row(entry, rule) if members is None else _conditional_row(entry, rule, members[entry.name]))
        except Exception as problem:
            lost.append(failure(entry.name, problem))
            kinds.append(type(problem))
    if not rows:
        raise all_failed(lost, common_kind(kinds))
    return Ranking(tuple(sorted(rows, key=_preference)), tuple(lost), float(rule.alpha), rule.n)


def _preference(row: RankingRow) -> tuple[float, ...]:
    """Sort key; the sort is stable, so the order of candidates decides last."""
    if row.feasible:
        return (0.0, row.mean_size, row.p95_size, row.ranking_threshold)
    return (1.0, row.miscoverage, row.mean_size, row.p95_size, row.ranking_threshold)  # the paper's fallback


def _row(entry: EvaluatedCandidate, rule: _Rule) -> RankingRow:
    if rule.matched is not None:
        row = _matched_row(entry, rule, rule.matched)
    else:
        threshold, feasible = _best_threshold(entry.scores, rule.level, rule.grid, rule.masses)
        row = _measured(entry, rule, threshold, entry.sizes_at(threshold), feasible)
    return row if math.isfinite(row.mean_size) else _largest_finite(entry, rule, row)


def _thresholds(entry: EvaluatedCandidate, rule: _Rule) -> list[float]:
    """Where the sizes of a candidate will be asked for."""
    if rule.matched is None:
        return [_best_threshold(entry.scores, rule.level, rule.grid, rule.masses)[0]]
    lower, upper, _ = _neighbours(entry.scores, rule.matched)
    return [lower, upper]


def _best_threshold(
    scores: Floats, level: Fraction, grid: int | Floats | None, masses: Integers | None
) -> tuple[float, bool]:
    """The smallest threshold with a share of scores above it of at most `level`, and whether there is one."""
    if grid is None:
        if masses is None:
            return order_statistic(scores, tuning_rank(len(scores), alpha=level)), True
        order = np.argsort(scores, kind="stable")
        above = int(masses.sum()) - np.cumsum(masses[order])
        return float(scores[order][_first_within(above, masses, level)]), True
    values = _grid_values(scores, grid)
    order = np.argsort(scores, kind="stable")
    mass = np.ones(len(scores), dtype=np.int64) if masses is None else masses
    below = np.concatenate([np.zeros(1, dtype=mass.dtype), np.cumsum(mass[order])])
    above = below[-1] - below[np.searchsorted(scores[order], values, side="right")]
    within = [int(weight) * level.denominator <= level.numerator * int(below[-1]) for weight in above]
    if any(within):
        return float(values[within.index(True)]), True
    return float(values[np.flatnonzero(above == above[-1])[0]]), False  # smallest risk, then smallest size


def _first_within(above: AnyArray, masses: Integers, level: Fraction) -> int:
    """The first place with above <= level * total, by bisection in integers (`above` does not increase)."""
    bound = level.numerator * int(masses.sum()) // level.denominator
    low, high = 0, len(above) - 1  # nothing lies above the last place
    while low < high:
        middle = (low + high) // 2
        if int(above[middle]) <= bound:
            high = middle
        else:
            low = middle + 1
    return low


def _checked_grid(grid: Grid) -> int | Floats:
    """A count of quantiles, at least 1, or thresholds in ascending order."""
    if isinstance(grid, (int, np.integer)) and not isinstance(grid, bool) and grid >= 1:
        return int(grid)
    try:
        values = np.asarray(grid, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 1 or values.size == 0 or np.any(np.isnan(values)):
        raise ValueError(
            "grid must be a number of thresholds, at least 1, or a list of at least one threshold, none of them NaN; got "
            f"{grid!r:.200}."
        )
    return np.unique(values)


def _grid_values(scores: Floats, grid: int | Floats) -> Floats:
    if not isinstance(grid, int):
        return grid
    finite = scores[np.isfinite(scores)]
    if finite.size == 0:
        return np.array([np.inf])
    # the paper's grid, as its words are usually read: linear quantiles at evenly spaced levels from 0 to 1
    return np.unique(np.quantile(finite.astype(np.float64), np.linspace(0, 1, grid)))


def _measured(
    entry: EvaluatedCandidate,
    rule: _Rule,
    threshold: float,
    sizes: Floats,
    feasible: bool,
    by_condition: dict[Any, float] | None = None,
    cutoffs: Floats | None = None,
) -> RankingRow:
    if sizes.shape != entry.scores.shape:
        raise ValueError(f"{entry.name} gave sizes of shape {sizes.shape} for {len(entry)} tuning rows.")
    weights = rule.weights
    above = np.asarray(entry.scores > (threshold if cutoffs is None else cutoffs))
    mean = exact_mean(sizes, weights)
    miscoverage = int(np.count_nonzero(above)) / rule.n if weights is None else math.fsum(weights[above])
    p95 = size_quantile(sizes, 0.95) if rule.masses is None else _best_threshold(sizes, _TAIL, None, rule.masses)[0]
    return RankingRow(entry.name, threshold, miscoverage, mean, p95, feasible and math.isfinite(mean), by_condition)


def _matched_row(entry: EvaluatedCandidate, rule: _Rule, level: Fraction) -> RankingRow:
    """Sizes at a level between two order statistics: the j-th of n scores has level j / (n + 1) on average."""
    threshold, upper, share = _neighbours(entry.scores, level)
    sizes = entry.sizes_at(threshold)
    if upper > threshold:
        sizes = (1 - share) * sizes + share * entry.sizes_at(upper)
        threshold = threshold + share * (upper - threshold) if math.isfinite(upper - threshold) else upper
    return _measured(entry, rule, threshold, sizes, feasible=True)


def _neighbours(scores: Floats, level: Fraction) -> tuple[float, float, float]:
    """The scores on both sides of a level, and the share of the upper one (equal scores if it has none)."""
    ordered, n = np.sort(scores), len(scores)
    place = level * (n + 1)
    j = min(max(math.floor(place), 1), n)
    share = float(min(max(place - j, Fraction(0)), Fraction(1))) if j < n else 0.0
    lower = float(ordered[j - 1])
    return lower, float(ordered[j]) if share else lower, share


def _largest_finite(entry: EvaluatedCandidate, rule: _Rule, row: RankingRow) -> RankingRow:
    """The fallback for unbounded sets: the smallest risk among thresholds at which the mean size is finite."""
    if rule.grid is None:
        steps: Floats = np.unique(entry.scores[np.isfinite(entry.scores)])
    else:
        steps = _grid_values(entry.scores, rule.grid)
    bounded, unbounded = -1, len(steps)  # sizes grow with the threshold: bisect
    while unbounded - bounded > 1:
        middle = (bounded + unbounded) // 2
        if np.all(np.isfinite(entry.sizes_at(float(steps[middle])))):
            bounded = middle
        else:
            unbounded = middle
    if bounded < 0:
        return row
    threshold = float(steps[bounded])
    return _measured(entry, rule, threshold, entry.sizes_at(threshold), feasible=False)


@dataclass(frozen=True, eq=False)
class _Members:
    """Which condition each row's true label falls under, and where thresholds go: a row's, or a label's (1, K)."""

    names: list[Any]  # as the caller knows them
    codes: Integers
    columns: Integers  # where a label's threshold goes
    n_labels: int | None  # thresholds a label
    as_column: bool  # thresholds a row of a classification: (n, 1)

    def spread(self, thresholds: Floats) -> Floats:
        if self.n_labels is not None:
            # a label without tuning rows is in every set, as it will be when calibrated
            row = np.full(self.n_labels, np.inf)
            row[self.columns] = thresholds
            return row[None, :]
        each = thresholds[self.codes]
        return each[:, None] if self.as_column else each


def _members(pair: tuple[Any, Any], y: AnyArray, conditions: Conditions) -> _Members:
    prediction = pair[1]
    if isinstance(conditions, str):
        if conditions != "label":
            raise ValueError(f'conditions must be "label" or one condition a row, got {conditions!r}.')
        if not is_classification(prediction):
            raise ValueError('conditions="label" is for classes; for a regression pass one condition a row.')
        columns, codes = np.unique(prediction.codes(y), return_inverse=True)
        labels = prediction.labels()
        names = (columns if labels is None else labels[columns]).tolist()
        return _Members(names, codes, columns, prediction.n_classes, True)
    given = condition_names(conditions)
    if given.shape != y.shape:
        raise ValueError(f"conditions must hold one entry for each of the {len(y)} tuning rows, got shape {given.shape}.")
    parts = rows_by_condition(given)
    codes = np.empty(len(y), dtype=np.int64)
    for code, rows in enumerate(parts.values()):
        codes[rows] = code
    return _Members(list(parts), codes, codes, None, is_classification(prediction))


def _conditional_row(entry: EvaluatedCandidate, rule: _Rule, members: _Members) -> RankingRow:
    thresholds = np.empty(len(members.names))
    feasible = True
    for code in range(len(members.names)):
        rows = members.codes == code
        masses = None if rule.groups is None else row_masses(rule.groups[rows])
        thresholds[code], met = _best_threshold(entry.scores[rows], rule.level, rule.grid, masses)
        feasible = feasible and met
    by_condition = {name: float(value) for name, value in zip(members.names, thresholds, strict=True)}
    return _measured(
        entry,
        rule,
        float(thresholds.max()),
        entry.sizes_at(members.spread(thresholds)),
        feasible,
        by_condition,
        cutoffs=thresholds[members.codes],
    )
