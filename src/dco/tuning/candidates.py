"""Candidates (the paper's phi) on tuning rows, and the ranking that a search over them returns."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.display import ShownAsPrinted
from dco.foundations.errors import DcoError
from dco.foundations.extras import require
from dco.foundations.ranks import checked_scores
from dco.predictions import Prediction
from dco.scores.classification import RankScore, observed_together, sizes_together
from dco.scores.never_empty import LEAST
from dco.scores.score import Score

Candidates: TypeAlias = Mapping[str, tuple[Score, Prediction]]
# What a candidate does not suit, or says of its input. A shared pass then leaves it to be evaluated by itself, where the
# error gets its name. Anything else is a fault of the pass: to go on would hide it behind a slower way to the same numbers.
_UNSUITABLE = (DcoError, ValueError, TypeError)


@dataclass(frozen=True, eq=False)
class EvaluatedCandidate:
    """All that a search needs of one candidate: the scores of the true labels (n,), and set sizes (n,) at any threshold.

    People who keep their own size curves can build it directly. `sizes_at` must not decrease with the threshold.
    """

    name: str
    scores: Floats
    sizes_at: Callable[[float | Floats], Floats]
    sizes_at_each: Callable[[Floats], Floats] | None = None  # (J,) thresholds -> (J, n), where one pass is cheaper than J

    def __len__(self) -> int:
        return len(self.scores)

    def size_curves(self, thresholds: Floats) -> Floats:
        """Set sizes at several thresholds, (J, n)."""
        if self.sizes_at_each is not None:
            return np.asarray(self.sizes_at_each(thresholds), dtype=np.float64)
        return np.stack([self.sizes_at(float(threshold)) for threshold in thresholds])


@dataclass(frozen=True)
class FailedCandidate:
    """A candidate that was left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class RankingRow:
    """One candidate at its own best threshold on the tuning rows.

    ``ranking_threshold`` is a plain float on purpose: it certifies nothing and no predictor accepts it. With `conditions`
    it is the largest of ``thresholds_by_condition``.
    """

    name: str
    ranking_threshold: float
    miscoverage: float
    mean_size: float
    p95_size: float
    feasible: bool
    thresholds_by_condition: Mapping[Any, float] | None = None


@dataclass(frozen=True)
class Ranking(ShownAsPrinted):
    """Candidates, best first; those that failed are in `failed` and not in `table`.

    Both are empty where the only candidate went through without tuning rows.
    """

    table: tuple[RankingRow, ...]
    failed: tuple[FailedCandidate, ...]
    alpha: float
    n: int

    @property
    def best(self) -> str:
        """The name of the winner."""
        if not self.table:
            raise ValueError("nothing was ranked: there was one candidate and no tuning row.")
        return self.table[0].name

    def threshold_of(self, name: str) -> float | None:
        """The candidate's threshold on the tuning rows; None where nothing was ranked."""
        return self[name].ranking_threshold if self.table else None

    def __getitem__(self, name: str) -> RankingRow:
        for row in self.table:
            if row.name == name:
                return row
        raise KeyError(name)

    def __str__(self) -> str:
        if not self.table and not self.failed:
            return "nothing was compared: one candidate and no tuning rows"
        names = [row.name for row in self.table] + [failure.name for failure in self.failed]
        width = max([28, *(len(name) + 2 for name in names)])
        head = f"{'candidate':<{width}}{'mean size':>11}{'P95 size':>11}{'miscoverage':>13}{'threshold':>12}"
        rows = [
            f"{row.name:<{width}}{row.mean_size:>11.4g}{row.p95_size:>11.4g}{row.miscoverage:>13.4f}{row.ranking_threshold:>12.4g}"
            + ("" if row.feasible else "  infeasible")
            for row in self.table
        ]
        lost = [f"{failure.name:<{width}} failed: {failure.reason}" for failure in self.failed]
        return "\n".join([head, *rows, *lost])

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row a candidate, best first."""
        pandas = require("pandas", extra="tables")
        names = ("name", "ranking_threshold", "miscoverage", "mean_size", "p95_size", "feasible")
        return pandas.DataFrame([{name: getattr(row, name) for name in names} for row in self.table], columns=list(names))


def evaluate_candidate(
    name: str, score: Score, prediction: Prediction, y: ArrayLike, observed: Floats | None = None
) -> EvaluatedCandidate:
    """The candidate's scores, computed once, and its size curve, computed where it is asked for (NaN is refused).

    `observed` hands over true-label scores that are known already.
    """
    scores = checked_scores(score.observed(prediction, y) if observed is None else observed)
    n = len(np.asarray(y))
    if scores.shape != (n,):
        raise ValueError(f"{type(score).__name__} gave {scores.size} scores for {n} tuning rows.")
    if not is_ours(score):
        getattr(score, "check_inverse", partial(check_inverse, score))(prediction, y, scores)

    @lru_cache(maxsize=8)  # the same threshold is asked for by the ranking and by its neighbours in level
    def sizes_at_float(threshold: float) -> Floats:
        return set_sizes(score, prediction, threshold)

    def sizes_at(threshold: float | Floats) -> Floats:
        if isinstance(threshold, np.ndarray):
            return set_sizes(score, prediction, threshold)
        return sizes_at_float(float(threshold))

    one_pass = getattr(score, "sizes_at", None)
    sizes_at_each = None if one_pass is None else partial(one_pass, prediction)
    return EvaluatedCandidate(name, scores, sizes_at, sizes_at_each)


def is_ours(score: object) -> bool:
    """Whether the score and those that it wraps are dco's own, whose sets the tests compare with their scores."""
    wrapped = [value for value in getattr(score, "__dict__", {}).values() if isinstance(value, Score)]
    return type(score).__module__.partition(".")[0] == "dco" and all(map(is_ours, wrapped))


def check_inverse(score: Score, prediction: Prediction, y: ArrayLike, scores: Floats) -> None:
    """Refuse a user's score whose sets leave out labels that score below the threshold: then no rank promises anything.

    Larger sets than the scores ask for (an interval around a union, say) cost size and keep the promise. The sets are
    asked for a little above the threshold, where rounding, in single precision too, cannot cost a label.
    """
    finite = scores[np.isfinite(scores) & (scores != LEAST)]  # `NeverEmpty` gives LEAST: a margin from there hides all
    if not finite.size:
        return
    low, *thresholds = np.quantile(finite, (0.1, 0.5, 0.9), method="inverted_cdf")
    margin = 1e-3 * (thresholds[-1] - low)
    for threshold in thresholds:
        below = scores <= threshold
        lost = below & ~score.sets(prediction, float(threshold + margin)).contains(y)
        if lost.any():
            raise ValueError(
                f"the sets of {type(score).__name__} leave out {lost.sum()} of {below.sum()} labels whose scores are at "
                f"most {threshold:.4g}, the threshold (row {int(np.flatnonzero(lost)[0])}): sets(prediction, t) must hold "
                "every label with observed(prediction, label) <= t."
            )


def set_sizes(score: Score, prediction: Prediction, threshold: float | Floats) -> Floats:
    """The size of each row's set, by the score's own `sizes` where it has one, otherwise from its sets."""
    direct = getattr(score, "sizes", None)
    raw = direct(prediction, threshold) if direct is not None else score.sets(prediction, threshold).sizes()
    sizes = np.asarray(raw, dtype=np.float64)
    if np.any(np.isnan(sizes)):
        raise ValueError(f"{type(score).__name__} gave a set of size NaN (row {int(np.flatnonzero(np.isnan(sizes))[0])}).")
    return sizes


def evaluate_candidates(
    candidates: Candidates, y_tune: ArrayLike
) -> tuple[list[EvaluatedCandidate], list[FailedCandidate], type[Exception]]:
    """Evaluate each candidate; one that raises is reported and left out. The last entry is the error to raise if all do."""
    y = checked_targets(y_tune)
    if not candidates:
        raise ValueError("there is no candidate to tune: pass {name: (score, prediction), ...}.")
    done: list[EvaluatedCandidate] = []
    failed: list[FailedCandidate] = []
    kinds: list[type[Exception]] = []
    known = _observed_together(candidates, y)
    for name, pair in candidates.items():
        if isinstance(pair, (tuple, list)) and [hasattr(entry, "observed") for entry in pair] == [False, True]:
            raise ValueError(f"candidate {name!r} is the wrong way round: it must be (score, prediction), the score first.")
        try:
            score, prediction = pair
            done.append(evaluate_candidate(name, score, prediction, y, known.get(name)))
        except Exception as problem:
            failed.append(failure(name, problem))
            kinds.append(type(problem))
    return done, failed, common_kind(kinds)


def with_sizes(
    evaluated: Sequence[EvaluatedCandidate], candidates: Candidates, asked: Mapping[str, Sequence[float]]
) -> list[EvaluatedCandidate]:
    """The same candidates, knowing their sizes at the thresholds `asked` for: one pass for all levels.

    Candidates that read the ranks of one prediction share that pass too. What cannot be had here is left to `sizes_at`,
    whose error then belongs to one candidate.
    """
    known: dict[str, Floats] = {}
    for names, scores, prediction in _of_one_prediction({entry.name: candidates[entry.name] for entry in evaluated}):
        try:
            sizes = sizes_together(scores, prediction, [asked[name] for name in names])
            known.update({name: each.astype(np.float64) for name, each in zip(names, sizes, strict=True)})
        except _UNSUITABLE:
            continue
    for entry in evaluated:
        levels, (score, prediction) = np.asarray(asked[entry.name]), candidates[entry.name]
        if entry.name in known or len(levels) < 2:
            continue
        try:
            if entry.sizes_at_each is not None:
                known[entry.name] = entry.size_curves(levels)
            elif hasattr(score, "sizes_at_several"):
                known[entry.name] = score.sizes_at_several(prediction, levels)
        except _UNSUITABLE:
            continue
        except Exception as problem:
            if is_ours(score):
                raise
            warnings.warn(
                f"{entry.name}: several thresholds at once failed ({type(problem).__name__}: {problem}), so its sets are "
                "made for one threshold after the other.",
                UserWarning,
                stacklevel=2,
            )
    return [_knowing(entry, asked[entry.name], known[entry.name]) if entry.name in known else entry for entry in evaluated]


def _knowing(entry: EvaluatedCandidate, thresholds: Sequence[float], sizes: Floats) -> EvaluatedCandidate:
    """The candidate with sizes looked up where they are known."""
    known = dict(zip(thresholds, sizes, strict=True))

    def sizes_at(threshold: float | Floats) -> Floats:
        found = None if isinstance(threshold, np.ndarray) else known.get(threshold)
        return entry.sizes_at(threshold) if found is None else found

    return replace(entry, sizes_at=sizes_at)


def _observed_together(candidates: Candidates, y: AnyArray) -> dict[str, Floats]:
    """True-label scores of candidates that share the ranks of one prediction."""
    known: dict[str, Floats] = {}
    for names, scores, prediction in _of_one_prediction(candidates):
        try:
            known.update(zip(names, observed_together(scores, prediction, y), strict=True))
        except _UNSUITABLE:
            continue
    return known


def _of_one_prediction(candidates: Candidates) -> Iterator[tuple[list[str], list[RankScore], Any]]:
    """Names, scores and prediction of candidates whose scores read the ranks of the same class probabilities."""
    groups: dict[int, list[str]] = {}
    for name, pair in candidates.items():
        if isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], RankScore) and is_ours(pair[0]):
            groups.setdefault(id(pair[1]), []).append(name)
    for names in groups.values():
        if len(names) > 1:
            scores = [candidates[name][0] for name in names]
            yield names, [score for score in scores if isinstance(score, RankScore)], candidates[names[0]][1]


def checked_targets(y: ArrayLike) -> AnyArray:
    """The labels or responses of the tuning rows: at least one, one a row."""
    array = np.asarray(y)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"y_tune must hold one label or number for each of at least one tuning row, got shape {array.shape}."
        )
    return array


def failure(name: str, problem: Exception) -> FailedCandidate:
    """What went wrong with one candidate, in one line."""
    return FailedCandidate(name, f"{type(problem).__name__}: {problem}")


def common_kind(kinds: Iterable[type[Exception]]) -> type[Exception]:
    """The error type that all failures share if it is one of dco's, otherwise ValueError."""
    found = set(kinds)
    only = found.pop() if len(found) == 1 else ValueError
    return only if issubclass(only, DcoError) else ValueError


def all_failed(failed: Iterable[FailedCandidate], kind: type[Exception] = ValueError) -> Exception:
    """One error with every reason."""
    reasons = [f"{entry.name}: {entry.reason}" for entry in failed]
    who = "the only candidate" if len(reasons) == 1 else f"all {len(reasons)} candidates"
    return kind(f"{who} failed on the tuning rows. " + " | ".join(reasons))


def is_classification(prediction: object) -> bool:
    """Whether the record is about classes: class probabilities or draws, or several of them by folds."""
    return getattr(prediction, "n_classes", 0) > 0


def exact_mean(values: Floats, weights: Floats | None = None) -> float:
    """The mean, summed exactly, so that the order of rows cannot change it (nor break a tie)."""
    if weights is None:
        whole = values.size and bool(np.all(values == np.rint(values))) and float(np.abs(values).max()) * len(values) < 2**53
        return float(values.sum() if whole else math.fsum(values)) / len(values)  # whole numbers add up without rounding
    inside = weights > 0  # 0 times an infinite size is nothing
    return math.fsum(values[inside] * weights[inside])
