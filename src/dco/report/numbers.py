"""Every number of the report page, at every level that its control offers; nothing here knows about HTML."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dco.evaluation.evaluate import Evaluation, GroupEvaluation, evaluate
from dco.evaluation.evenness import conditional_coverage
from dco.evaluation.sizes import BINS, middle_range, nice_step, point_in_words, size_counts, size_edges
from dco.foundations.arrays import AnyArray, Bools, Floats, Integers, as_labels
from dco.foundations.notes import Note, NoteWarning, show
from dco.foundations.ranks import Level, as_rational, size_quantile
from dco.guarantees.certificate import Certificate
from dco.guarantees.facts import CertifiedThreshold, certified_thresholds
from dco.predictor import DecoupledPredictor, Structure
from dco.report.formats import number
from dco.report.slices import MOST_PARTS, Parts, Slicing, by_class, by_fifth, own_thresholds
from dco.rows.conditions import condition_names, groups_of
from dco.rows.fingerprints import role_fingerprint, row_fingerprints
from dco.rows.rows import n_rows, take_features
from dco.scores.score import LEAST
from dco.sets.intervals import Intervals, IntervalUnions
from dco.sets.labels import LabelSets
from dco.sets.prediction_sets import PredictionSets
from dco.tuning import Ranking

GRID = tuple(k / 200 for k in range(1, 21)) + tuple(k / 100 for k in range(11, 51))
PICKED_DELTA = 0.05  # the bound for a level picked by its result holds with probability 1 - PICKED_DELTA
MOST_LABELS = 12  # labels of one example that are named; the rest is counted
MOST_PIECES = 4
EXAMPLES = {0.0: "small", 0.1: "small", 0.45: "typical", 0.55: "typical", 0.9: "large", 1.0: "large"}  # by rank of size


def evaluated_rows(estimator: Any, X: Any, y: Any) -> tuple[Any, AnyArray, AnyArray]:
    """Features, known targets and point predictions: the only place that uses private methods of an estimator."""
    features, target = estimator._features(X), np.asarray(y)
    if target.shape != (n_rows(features),):
        raise ValueError(f"X has {n_rows(features)} rows and y has shape {target.shape}: give one true value per row.")
    notes: list[Note] = []
    target = estimator._known_targets(target, notes)
    show(notes)
    _refuse_used_rows(estimator.predictor_, features, target)
    return features, target, np.asarray(estimator.predict(features))


@dataclass(frozen=True)
class ExampleSet:
    """The set of one row at one level: labels, most plausible first, or the ends of its pieces."""

    size: float
    covered: bool
    labels: tuple[Any, ...] = ()
    pieces: tuple[tuple[float, float], ...] = ()
    more: int = 0  # labels or pieces that are not listed


@dataclass(frozen=True, eq=False)
class Example:
    """One of the given rows, and why it was picked; `places` ranks the labels by score."""

    row: int
    kind: str
    truth: Any
    prediction: Any
    places: Mapping[Any, int]


@dataclass(frozen=True, eq=False)
class ConditionNumbers:
    """One condition at one level: its threshold, and what its rows among the given ones show."""

    threshold: CertifiedThreshold
    evaluation: GroupEvaluation | None = None

    @property
    def range(self) -> tuple[float, float] | None:
        """Holds the share covered of the given rows, or without them coverage itself, with probability 90 %."""
        law = None if self.evaluation is None else self.evaluation.consistency
        return coverage_range(self.threshold) if law is None else (law.low, law.high)


@dataclass(frozen=True, eq=False)
class LevelNumbers:
    """All numbers of one level. `evaluation` is None where no rows were given."""

    alpha: float
    thresholds: tuple[CertifiedThreshold, ...]
    picked_bound: float | None
    conditions: tuple[ConditionNumbers, ...] = ()
    evaluation: Evaluation | None = None
    size_counts: tuple[int, ...] = ()
    examples: tuple[ExampleSet, ...] = ()
    slices: tuple[tuple[GroupEvaluation, ...], ...] = ()  # for each slicing of the rows
    target_range: float | None = None  # the length of the middle 1 - alpha of the targets, for numbers
    joint: bool = False  # `thresholds` has the cut-off of the candidate that comes first
    weighted: bool = False  # `thresholds` has that of a new row of mean weight

    @property
    def threshold(self) -> CertifiedThreshold | None:
        """The one threshold, or None where each condition has its own."""
        return self.thresholds[0] if len(self.thresholds) == 1 and self.thresholds[0].group is None else None

    def coverage_and_range(self) -> tuple[float | None, float | None, float | None]:
        """The coverage seen and the range of its law, or without rows the expected coverage and its range."""
        if self.evaluation is not None:
            law = self.evaluation.consistency
            return self.evaluation.coverage, None if law is None else law.low, None if law is None else law.high
        entry = self.threshold
        if entry is None or entry.expected_coverage is None:
            return None, None, None
        return entry.expected_coverage, *(coverage_range(entry) or (None, None))


def coverage_range(entry: CertifiedThreshold) -> tuple[float, float] | None:
    """The 5 % and 95 % points of coverage; with ties only the lower one holds, and the range ends at 1."""
    if entry.coverage_low is None:
        return None
    return entry.coverage_low, 1.0 if entry.coverage_high is None else entry.coverage_high


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Calibration scores of all rows (condition None) or of one condition, counted in common bins."""

    condition: str | None
    n: int
    counts: Integers
    above: int  # scores beyond the last edge, infinite ones included


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Rows with known outcomes: their sets at any level, how they are divided, and which are examples."""

    sets: Callable[[Level], PredictionSets]
    y: AnyArray
    conditions: Parts | None
    slicings: tuple[Slicing, ...]  # by the values given or the conditions, if any; then by class and by fifth
    size_edges: Floats
    examples: tuple[Example, ...]
    point: str  # how good the point prediction is
    uneven: list[str]  # the worst slab and the excess risk at the certified level
    target: str


@dataclass(frozen=True, eq=False)
class ReportNumbers:
    """What the page shows. ``levels[start]`` is the level that was certified; `rows` is None where none were given."""

    certificate: Certificate
    ranking: Ranking
    classes: int | None
    levels: tuple[LevelNumbers, ...]
    start: int
    score_edges: Floats
    score_histograms: tuple[ScoreHistogram, ...]
    rows: GivenRows | None

    @property
    def own(self) -> LevelNumbers:
        """The numbers at the level that was certified."""
        return self.levels[self.start]

    @property
    def judged(self) -> Evaluation | None:
        """The certified level on the rows given, with the conditions that are shown as its groups."""
        seen, own = self.own.evaluation, tuple(at.evaluation for at in self.own.conditions if at.evaluation is not None)
        return replace(seen, by_group=own) if seen is not None and self.own.threshold is None else seen

    @property
    def verdict(self) -> str:
        """Whether the promise held on the rows given: "held", "failed" or "unchecked"."""
        return "unchecked" if self.judged is None else self.judged.verdict

    @property
    def verdict_in_words(self) -> tuple[str, str]:
        """The same in one sentence, and what to do."""
        if self.judged is None:
            return "Nothing has been checked yet: no rows with known targets were given.", ""
        return self.judged.verdict_in_words(promised=1 - self.own.alpha), self.judged.advice


def report_numbers(estimator: Any, X: Any = None, y: Any = None, *, by: Any = None) -> ReportNumbers:
    """Evaluate a fitted estimator at some 60 levels on rows (X, y) that were used for nothing else.

    Without rows there is no coverage and no size: calibration rows are never used in their place.
    """
    if (X is None) != (y is None):
        raise ValueError("Give X and y together: coverage needs rows with their true values.")
    if X is None and by is not None:
        raise ValueError("by= slices the rows of X and y; give those too.")
    if not hasattr(estimator, "predictor_"):
        raise ValueError(
            f"The report needs a fitted DecoupledClassifier or DecoupledRegressor, got {type(estimator).__name__}."
        )
    predictor: DecoupledPredictor = estimator.predictor_
    alpha, classes = predictor.statement.alpha, predictor.structure.classes
    levels = level_grid(alpha)
    start, target = levels.index(alpha), str(getattr(y, "name", None) or "target")
    rows = None if X is None else _given_rows(predictor, levels[start:], evaluated_rows(estimator, X, y), by, target)
    score_edges, histograms = _score_histograms(predictor)
    return ReportNumbers(
        certificate=predictor.certificate,
        ranking=predictor.ranking,
        classes=None if classes is None else len(classes),
        levels=tuple(_level(predictor, level, rows) for level in levels),
        start=start,
        score_edges=score_edges,
        score_histograms=histograms,
        rows=rows,
    )


def level_grid(alpha: Level) -> tuple[Level, ...]:
    """0.005 to 0.1 by 0.005, then to 0.5 by 0.01, with `alpha` itself in its place, as it was written."""
    own = float(as_rational(alpha))
    return tuple(sorted([*(level for level in GRID if level != own), alpha], key=lambda level: float(as_rational(level))))


def picked_bound(certificate: Certificate, alpha: float) -> float | None:
    """1 - alpha - `simultaneous_slack`: holds for all levels at once with confidence 95 %, in each condition separately.

    None where no slack is known: nothing is guaranteed at all, or rows belong together in clusters.
    """
    try:
        return max(0.0, 1 - alpha - certificate.simultaneous_slack(PICKED_DELTA))
    except ValueError:
        return None


def _level(predictor: DecoupledPredictor, alpha: Level, rows: GivenRows | None) -> LevelNumbers:
    statement, value = predictor.stated(alpha), float(as_rational(alpha))
    found = predictor.thresholds(statement)
    if joint := predictor.calibration.seen is not None:  # of the candidates' cut-offs that of the first
        found = {predictor.ranking.best: found[predictor.ranking.best]}
    certified = certified_thresholds(predictor.calibration, found, statement)
    if joint:
        found, certified = {None: found[predictor.ranking.best]}, (replace(certified[0], group=None),)
    entry_of, weighted = dict(zip(found, certified, strict=True)), statement.weights is not None
    shown = () if None in found else _largest_conditions(predictor)
    bound = picked_bound(predictor.certificate, value)
    if rows is None:
        shown_numbers = tuple(ConditionNumbers(entry_of[name]) for name in shown)
        return LevelNumbers(value, certified, bound, shown_numbers, joint=joint, weighted=weighted)
    sets = rows.sets(alpha)
    # rows of a cluster are not independent: their coverage has no law
    threshold = found.get(None) if predictor.calibration.clusters is None and not joint else None
    tied = {name for name, entry in entry_of.items() if not entry.expected_is_exact}
    evaluation = evaluate(sets, rows.y, threshold=threshold, tied=tied)
    seen: dict[Any, GroupEvaluation] = {}
    if (parts := rows.conditions) is not None:
        laws = {code: found[name] for code, name in enumerate(parts.names)}
        codes = [code for code, name in enumerate(parts.names) if name in tied]
        seen = parts.by_name(evaluate(sets, rows.y, groups=parts.codes, thresholds=laws, tied=codes).by_group)
    hits = np.asarray(sets.contains(rows.y), dtype=bool)
    return LevelNumbers(
        value,
        certified,
        bound,
        tuple(ConditionNumbers(entry_of[name], seen.get(name)) for name in shown),
        evaluation,
        tuple(size_counts(sets.sizes(), rows.size_edges).tolist()),
        tuple(example_set(sets, example.row, hits, example.places) for example in rows.examples),
        tuple(slicing.parts.evaluated(sets, rows.y) for slicing in rows.slicings),
        None if predictor.structure.classes is not None else middle_range(rows.y, alpha=value),
        joint,
        weighted,
    )


def _largest_conditions(predictor: DecoupledPredictor) -> tuple[Any, ...]:
    """The conditions with the most calibration rows; (None,) where there are none."""
    parts = predictor.calibration.parts
    if predictor.calibration.seen is not None:
        return (predictor.ranking.best,)
    return tuple(sorted(parts, key=lambda name: -parts[name].size)[:MOST_PARTS])


def _given_rows(
    predictor: DecoupledPredictor, levels: tuple[Level, ...], rows: tuple[Any, AnyArray, AnyArray], by: Any, target: str
) -> GivenRows:
    """The rows (X, y, points), with the examples and the axis of sizes at the first of `levels`."""
    X, y, points = rows
    structure = predictor.structure
    conditions, slices = structure.conditions(X, y), None if by is None else as_labels(by)
    if slices is not None and slices.shape != y.shape:
        raise ValueError(f"by must hold one value for each of {len(y)} rows, got shape {slices.shape}.")
    prediction = structure.prediction(X)  # once for all levels

    def sets(alpha: Level) -> PredictionSets:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoteWarning)  # rows with weights have full sets at levels that nobody asked for
            return predictor.sets(X, predictor.stated(alpha), prediction=prediction)

    first = sets(levels[0])
    hits = np.asarray(first.contains(y), dtype=bool)
    slicings = _slicings(structure, by, slices, conditions, overlap=bool(predictor.certificate.groups))
    labels, even = structure.classes is not None, "even structures" in (predictor.certificate.selection or "")
    if labels and not any(_same_parts(y, values) for values in (slices, conditions) if values is not None):
        slicings.append(by_class(y, hits, target=target))
    slicings.append(by_fifth(prediction.centres if labels else points, even=even, labels=labels))
    slab, risk = conditional_coverage(X, prediction.centres, hits, alpha=float(as_rational(levels[0])))
    picked = example_rows(first.sizes())
    finite = (sizes[np.isfinite(sizes)] for sizes in (sets(level).sizes() for level in levels))
    shown = next((sizes for sizes in finite if sizes.size), np.ones(1))  # at the first level that has finite sizes
    places = _label_places(predictor, X, [row for row, _ in picked])
    classes = None if structure.classes is None else len(structure.classes)
    return GivenRows(
        sets=sets,
        y=y,
        conditions=None if conditions is None else Parts.of(conditions, _largest_conditions(predictor)),
        slicings=tuple(slicing for slicing in slicings if slicing is not None),
        size_edges=size_edges(shown, classes=classes),
        examples=tuple(
            Example(row, kind, y[row], points[row], order) for (row, kind), order in zip(picked, places, strict=True)
        ),
        uneven=replace(evaluate(first, y), worst_slab=slab, excess_risk=risk).unevenness(),
        point=point_in_words(y, points, labels=classes is not None, number=number),
        target=target,
    )


def _slicings(
    structure: Structure, by: Any, slices: AnyArray | None, conditions: AnyArray | None, *, overlap: bool
) -> list[Slicing | None]:
    """The table that was asked for: by the values given, or else by the conditions."""
    values = conditions if slices is None else slices
    if values is None:
        return []
    if overlap and slices is None:  # the promise is for these
        return [Slicing(Parts.overlapping([groups_of(pattern) for pattern in values.tolist()]), "group", "", True)]
    column = structure.condition_on if by is None else getattr(by, "name", None)
    own = conditions is not None and (slices is None or _same_parts(slices, conditions))
    name, column = (column, column) if isinstance(column, str) else ("slice", "COLUMN")
    return [Slicing(Parts.of(values), name, "" if own else own_thresholds(name, column, column), own)]


def _label_places(predictor: DecoupledPredictor, X: Any, rows: list[int]) -> list[dict[Any, int]]:
    """For each of the rows the place of each label, most plausible first."""
    structure = predictor.structure
    if structure.classes is None:
        return [{} for _ in rows]
    prediction, labels = structure.prediction(take_features(X, np.asarray(rows))), structure.classes.tolist()
    scores = np.asarray([structure.score.observed(prediction, np.full(len(rows), label)) for label in structure.classes])
    if scores.ndim == 3:  # joint selection has a score per candidate: their mean place
        scores = np.argsort(np.argsort(scores, axis=0, kind="stable"), axis=0).mean(axis=2)
    order = np.argsort(scores, axis=0, kind="stable").T
    return [{labels[code]: place for place, code in enumerate(codes)} for codes in order.tolist()]


def _same_parts(values: AnyArray, others: AnyArray) -> bool:
    """Whether two ways to divide the rows differ in the names of the parts at most."""
    names = condition_names(values).tolist(), condition_names(others).tolist()
    return len(set(zip(*names, strict=True))) == len(set(names[0])) == len(set(names[1]))


def _refuse_used_rows(predictor: DecoupledPredictor, X: Any, y: AnyArray) -> None:
    """Rows that made the predictor prove nothing: a page on a tenth or more of them is refused."""
    digest = role_fingerprint(row_fingerprints(X, y))
    for role, stated in predictor.certificate.row_fingerprints.items():
        if stated == digest:  # also where rows repeat so much that single ones prove nothing
            raise ValueError(f"These are the {role} rows of this predictor: coverage on them proves nothing. Give new rows.")
    found = predictor.kept.used(row_fingerprints(X, y))
    if found is not None and found.total >= 0.1 * len(y):
        roles = ", ".join(f"{count} {role}" for role, count in found.counts.items())
        raise ValueError(
            f"{found.total} of the {len(y)} rows given took part in the fit ({roles}); coverage on them proves nothing. "
            "Give rows that were used for nothing else."
        )


# ------------------------------------------------------------------------------------------ histograms and examples


def example_rows(sizes: Floats | Integers) -> list[tuple[int, str]]:
    """Rows with small, typical and large sets, by their place in the order of sizes (earlier rows first among equals)."""
    order = np.argsort(sizes, kind="stable")
    found: dict[int, str] = {}
    for share, kind in EXAMPLES.items():
        found.setdefault(int(order[round(share * (len(order) - 1))]), kind)
    return list(found.items())


def example_set(sets: PredictionSets, row: int, hits: Bools, places: Mapping[Any, int]) -> ExampleSet:
    """The set of one row, with at most `MOST_LABELS` labels (in the order of `places`) or `MOST_PIECES` pieces listed."""
    size, covered = float(sets.sizes()[row]), bool(hits[row])
    if isinstance(sets, LabelSets):
        labels = sorted(sets[row].tolist(), key=lambda label: places.get(label, len(places)))
        return ExampleSet(size, covered, tuple(labels[:MOST_LABELS]), more=max(0, len(labels) - MOST_LABELS))
    if isinstance(sets, IntervalUnions):
        pieces = [(float(low), float(high)) for low, high in sets.pieces(row)]
    elif isinstance(sets, Intervals):
        pieces = [] if sets.is_empty()[row] else [(float(sets.lower[row]), float(sets.upper[row]))]
    else:
        raise TypeError(f"The report knows sets of labels and of intervals, not {type(sets).__name__}.")
    return ExampleSet(size, covered, pieces=tuple(pieces[:MOST_PIECES]), more=max(0, len(pieces) - MOST_PIECES))


def _score_histograms(predictor: DecoupledPredictor) -> tuple[Floats, tuple[ScoreHistogram, ...]]:
    """Scores in common bins; the axis ends where a long tail begins, and what lies beyond is counted."""
    scores = predictor.calibration.scores.astype(np.float64)
    finite = np.sort(scores[np.isfinite(scores) & (scores != LEAST)])  # those of the most probable label: first bin
    if finite.size == 0:
        finite = np.array([0.0, 1.0])
    low, middle, high = float(finite[0]), size_quantile(finite, 0.5), size_quantile(finite, 0.95)
    top = min(float(finite[-1]), middle + 4 * (high - middle)) if high > middle else float(finite[-1])
    step = nice_step(top - low, BINS)
    first = math.floor(low / step + 1e-9)
    edges = step * np.arange(first, math.floor(top / step + 1e-9) + 2)
    parts, called = predictor.calibration.parts, predictor.calibration.condition_labels()
    found = []
    for name in _largest_conditions(predictor):
        counts = size_counts(scores[parts[name]], edges)
        condition = None if predictor.calibration.seen is not None else called[name]
        found.append(ScoreHistogram(condition, int(parts[name].size), counts[:-1], int(counts[-1])))
    return edges, tuple(found)
