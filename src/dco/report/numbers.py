"""Every number of the report page, at every level that its control offers; nothing here knows about
HTML.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

import numpy as np

from dco.calibration.base import CalibratedCondition, ConditionRows
from dco.calibration.facts import CertifiedThreshold
from dco.certificate.certificate import Certificate
from dco.evaluation.evaluate import evaluate
from dco.evaluation.evaluation import Evaluation
from dco.evaluation.group_evaluation import GroupEvaluation, evaluate_outcomes
from dco.evaluation.outcomes import Outcomes
from dco.foundations.arrays import AnyArray, Bools, Floats, Integers, as_labels
from dco.foundations.comparisons import point_in_words
from dco.foundations.fingerprints import role_fingerprint, row_fingerprints
from dco.foundations.histograms import MOST_BINS, count_in_bins, nice_step, size_edges
from dco.foundations.notes import NoteWarning, show
from dco.foundations.ranks import Level, as_rational, size_quantile
from dco.foundations.tables import n_rows, take_features
from dco.predictions import fifths
from dco.predictor import DecoupledPredictor
from dco.report.formats import number
from dco.rows.conditions import condition_names, rows_by_condition
from dco.scores.thresholds import LOWEST_SCORE
from dco.sets.prediction_sets import PredictionSets
from dco.tuning import Ranking

Parts = Sequence[tuple[Any, Integers]]  # parts of the rows: a name and the rows of each

GRID = tuple(k / 200 for k in range(1, 21)) + tuple(k / 100 for k in range(11, 51))
# the bound for a level picked by its result holds with probability 1 - PICKED_DELTA
PICKED_DELTA = 0.05
MOST_LABELS = 12  # labels of one example that are named; the rest is counted
MOST_PIECES = 4
MOST_PARTS = 12  # conditions and slices whose numbers follow the control
# by rank of size
EXAMPLES = {
    0.0: "small",
    0.1: "small",
    0.45: "typical",
    0.55: "typical",
    0.9: "large",
    1.0: "large",
}


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
        """Holds the share covered of the given rows, or without them coverage itself, with
        probability 90 %.
        """
        law = None if self.evaluation is None else self.evaluation.consistency
        return coverage_range(self.threshold) if law is None else (law.low, law.high)


@dataclass(frozen=True, eq=False)
class LevelNumbers:
    """All numbers of one level; `evaluation` is None where no rows were given.

    `thresholds` has that of a new row of mean weight, where rows have weights.
    """

    alpha: float
    thresholds: tuple[CertifiedThreshold, ...]
    picked_bound: float | None
    conditions: tuple[ConditionNumbers, ...] = ()
    evaluation: Evaluation | None = None
    size_counts: tuple[int, ...] = ()
    examples: tuple[ExampleSet, ...] = ()
    slices: tuple[tuple[GroupEvaluation, ...], ...] = ()  # for each slicing of the rows

    @property
    def threshold(self) -> CertifiedThreshold | None:
        """The one threshold, or None where each condition has its own."""
        return (
            self.thresholds[0]
            if len(self.thresholds) == 1 and self.thresholds[0].group is None
            else None
        )

    def coverage_and_range(self) -> tuple[float | None, float | None, float | None]:
        """The coverage seen and the range of its law, or without rows the expected coverage and its
        range.
        """
        if self.evaluation is not None:
            law = self.evaluation.overall.consistency
            return (
                self.evaluation.coverage,
                None if law is None else law.low,
                None if law is None else law.high,
            )
        entry = self.threshold
        if entry is None or entry.expected_coverage is None:
            return None, None, None
        return entry.expected_coverage, *(coverage_range(entry) or (None, None))


def coverage_range(entry: CertifiedThreshold) -> tuple[float, float] | None:
    """The 5 % and 95 % points of coverage; with ties only the lower one holds, and the range ends
    at 1.
    """
    if entry.coverage_low is None:
        return None
    return entry.coverage_low, 1.0 if entry.coverage_high is None else entry.coverage_high


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Calibration scores of all rows (condition None) or of one condition, counted in common
    bins.
    """

    condition: str | None
    n: int
    counts: Integers
    above: int  # scores beyond the last edge, infinite ones included


@dataclass(frozen=True, eq=False)
class Slicing:
    """One table by slice: the rows of each, what its slices are called, and how a low one is
    mended.
    """

    parts: Parts
    name: str
    mend: str
    left_out: int = 0
    are_conditions: bool = False


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Rows with known outcomes: their sets at any level, how they are divided, and which are
    examples.
    """

    sets: Callable[[Level], PredictionSets]
    y: AnyArray
    conditions: tuple[ConditionRows, ...]
    # by the values given or the conditions, if any; then by class and by fifth
    slicings: tuple[Slicing, ...]
    size_edges: Floats
    examples: tuple[Example, ...]
    point: str  # how good the point prediction is
    target: str


@dataclass(frozen=True, eq=False)
class ReportNumbers:
    """What the page shows. ``levels[start]`` is the level that was certified; `rows` is None where
    none were given.
    """

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
    def verdict(self) -> str:
        """Whether the promise held on the rows given: "held", "failed" or "unchecked"."""
        return "unchecked" if self.own.evaluation is None else self.own.evaluation.verdict

    @property
    def verdict_in_words(self) -> tuple[str, str]:
        """The same in one sentence, and what to do."""
        if (seen := self.own.evaluation) is None:
            return "Nothing has been checked yet: no rows with known targets were given.", ""
        return seen.verdict_in_words(), seen.advice()


def report_numbers(
    estimator: Any, X: Any = None, y: Any = None, *, by: Any = None
) -> ReportNumbers:
    """Evaluate a fitted estimator at some 60 levels on rows (X, y) that were used for nothing else.

    Without rows there is no coverage and no size: calibration rows are never used in their place.
    """
    if (X is None) != (y is None):
        raise ValueError("Give X and y together: coverage needs rows with their true values.")
    if X is None and by is not None:
        raise ValueError("by= slices the rows of X and y; give those too.")
    if not hasattr(estimator, "predictor_"):
        kind = type(estimator).__name__
        raise ValueError(
            f"The report needs a fitted DecoupledClassifier or DecoupledRegressor, got {kind}."
        )
    own: DecoupledPredictor = estimator.predictor_
    levels, classes = level_grid(own.statement.alpha), own.structure.classes
    start = levels.index(own.statement.alpha)
    rows = None if X is None else _given_rows(estimator, X, y, by, levels[start:])
    score_edges, histograms = _score_histograms(own)
    return ReportNumbers(
        certificate=own.certificate,
        ranking=own.ranking,
        classes=None if classes is None else len(classes),
        levels=tuple(_level(own, level, rows) for level in levels),
        start=start,
        score_edges=score_edges,
        score_histograms=histograms,
        rows=rows,
    )


def level_grid(alpha: Level) -> tuple[Level, ...]:
    """0.005 to 0.1 by 0.005, then to 0.5 by 0.01, with `alpha` itself in its place, as it was
    written.
    """
    own = float(as_rational(alpha))
    return tuple(
        sorted(
            [*(level for level in GRID if level != own), alpha],
            key=lambda level: float(as_rational(level)),
        )
    )


def picked_bound(certificate: Certificate, alpha: float) -> float | None:
    """1 - alpha - `simultaneous_slack`: holds for all levels at once with confidence 95 %, in each
    condition separately.

    None where no slack is known: nothing is guaranteed at all, or rows belong together in
    clusters.
    """
    try:
        return max(0.0, 1 - alpha - certificate.simultaneous_slack(PICKED_DELTA))
    except ValueError:
        return None


def _level(own: DecoupledPredictor, alpha: Level, rows: GivenRows | None) -> LevelNumbers:
    value, calibration = float(as_rational(alpha)), own.at(alpha)
    certified = [entry.certified() for entry in calibration.conditions]
    largest = [number for number, entry in _largest_conditions(own) if entry.name is not None]
    shown = {calibration.conditions[number].value: certified[number] for number in largest}
    bound = picked_bound(own.certificate, value)
    numbers = LevelNumbers(
        value,
        tuple(certified),
        bound,
        tuple(map(ConditionNumbers, shown.values())),
    )
    if rows is None:
        return numbers
    sets = rows.sets(alpha)
    seen = Outcomes.of(sets, rows.y)
    # all conditions are judged there, and at other levels some are shown
    certified_here = calibration is own.calibration
    laws = calibration.laws()
    conditions = {
        group.value: evaluate_outcomes(
            seen.take(group.rows), by="condition", group=group.value, law=laws.get(group.value)
        )
        for group in rows.conditions
        if certified_here or group.value in shown
    }
    threshold = None
    if calibration.law is not None and calibration.no_law is None:
        threshold = calibration.conditions[0].threshold
    is_tied = threshold is not None and not certified[0].expected_is_exact
    evaluation = replace(
        evaluate(sets, rows.y, threshold=threshold, tied=is_tied, alpha=alpha),
        by_condition=tuple(conditions.values()),
    )
    return replace(
        numbers,
        conditions=tuple(
            ConditionNumbers(entry, conditions.get(value)) for value, entry in shown.items()
        ),
        evaluation=evaluation,
        size_counts=tuple(count_in_bins(seen.sizes, rows.size_edges).tolist()),
        examples=tuple(
            example_set(sets, example.row, seen.covered, example.places)
            for example in rows.examples
        ),
        slices=tuple(at_once(seen, slicing) for slicing in rows.slicings),
    )


def at_once(seen: Outcomes, slicing: Slicing) -> tuple[GroupEvaluation, ...]:
    """Coverage and size in each slice, with exact 95 % intervals that hold for all slices at
    once.
    """
    confidence = 1 - 0.05 / (len(slicing.parts) + slicing.left_out)
    return tuple(
        evaluate_outcomes(seen.take(rows), by="slice", group=name, confidence=confidence)
        for name, rows in slicing.parts
    )


def _largest_conditions(own: DecoupledPredictor) -> list[tuple[int, CalibratedCondition]]:
    """The conditions with the most calibration rows, each with its place."""
    numbered = list(enumerate(own.calibration.conditions))
    return sorted(numbered, key=lambda pair: -pair[1].scores.size)[:MOST_PARTS]


def _given_rows(estimator: Any, X: Any, y: Any, by: Any, levels: Sequence[Level]) -> GivenRows:
    """The rows, with the examples and the axis of sizes at the first of `levels`; the only use of
    private methods.
    """
    own: DecoupledPredictor = estimator.predictor_
    target = str(getattr(y, "name", None) or "target")
    X, y, structure = estimator.check_features(X), np.asarray(y), own.structure
    if y.shape != (n_rows(X),):
        raise ValueError(
            f"X has {n_rows(X)} rows and y has shape {y.shape}: give one true value per row."
        )
    y, notes = estimator._known_targets(y)
    show(notes)
    _refuse_used_rows(own, X, y)
    points, conditions = np.asarray(estimator.predict(X)), own.calibration.evaluated_groups(X, y)
    slices = None if by is None else as_labels(by)
    if slices is not None and slices.shape != y.shape:
        raise ValueError(
            f"by must hold one value for each of {len(y)} rows, got shape {slices.shape}."
        )
    prediction = structure.prediction(X)  # once for all levels

    def sets(alpha: Level) -> PredictionSets:
        with warnings.catch_warnings():
            # rows with weights have full sets at levels that nobody asked for
            warnings.simplefilter("ignore", NoteWarning)
            return own.sets(X, own.at(alpha), prediction=prediction)

    seen, labels = Outcomes.of(sets(levels[0]), y), structure.classes is not None
    column = _as_column(conditions, len(y))
    slicings = _slicings(own, by, slices, conditions, column)
    if labels and not any(
        _same_parts(y, values) for values in (slices, column) if values is not None
    ):
        slicings.append(_by_class(y, seen.covered, target=target))
    even = "even structures" in (own.certificate.selection or "")
    slicings += by_fifth(prediction.centres if labels else points, even=even, labels=labels)
    picked = example_rows(seen.sizes)
    finite = (sizes[np.isfinite(sizes)] for sizes in (sets(level).sizes() for level in levels))
    # at the first level that has finite sizes
    shown = next((sizes for sizes in finite if sizes.size), np.ones(1))
    places = _label_places(own, X, [row for row, _ in picked])
    return GivenRows(
        sets=sets,
        y=y,
        conditions=_rows_of_conditions(own, X, y),
        slicings=tuple(slicings),
        size_edges=size_edges(
            shown, classes=None if structure.classes is None else len(structure.classes)
        ),
        examples=tuple(
            Example(row, kind, y[row], points[row], order)
            for (row, kind), order in zip(picked, places, strict=True)
        ),
        point=point_in_words(y, points, are_labels=labels, number=number),
        target=target,
    )


def _as_column(conditions: tuple[ConditionRows, ...], n: int) -> AnyArray | None:
    """The condition of each row; None where there are none, or where groups overlap."""
    if sum(len(group.rows) for group in conditions) != n:
        return None
    column = np.empty(n, dtype=object)
    for group in conditions:
        column[group.rows] = group.value
    return column


def _rows_of_conditions(own: DecoupledPredictor, X: Any, y: AnyArray) -> tuple[ConditionRows, ...]:
    """The rows of each condition; of groups that overlap, those of each combination."""
    if not own.certificate.calibration.groups_overlap:
        return own.calibration.evaluated_groups(X, y)
    positions = own.calibration.condition_positions(X, y)
    groups = (
        ConditionRows(entry.value, np.flatnonzero(positions == number), entry.law)
        for number, entry in enumerate(own.calibration.conditions)
    )
    return tuple(group for group in groups if group.rows.size)


def _slicings(
    own: DecoupledPredictor,
    by: Any,
    slices: AnyArray | None,
    conditions: tuple[ConditionRows, ...],
    column: AnyArray | None,
) -> list[Slicing]:
    """The table that was asked for: by the values given, or else by the conditions."""
    if slices is None and not conditions:
        return []
    parts = [(group.value, group.rows) for group in conditions]
    if slices is None and own.certificate.calibration.groups_overlap:  # the promise is for these
        return [Slicing(parts, "group", "", 0, True)]

    if slices is not None:
        parts = list(rows_by_condition(condition_names(slices)).items())
    are_conditions = bool(conditions) and slices is None
    if slices is not None and column is not None:
        are_conditions = _same_parts(slices, column)
    source = getattr(by, "name", None)
    if by is None:
        source = own.statement.calibrator.column_of_conditions()
    name, option = (source, source) if isinstance(source, str) else ("slice", "COLUMN")
    most = sorted(parts, key=lambda part: (-part[1].size, part[1][0]))[:MOST_PARTS]
    mend = "" if are_conditions else _own_thresholds(name, option, option)
    return [Slicing(most, name, mend, len(parts) - len(most), are_conditions)]


def _own_thresholds(part: str, python: str, column: str) -> str:
    """What mends a part that is covered too rarely, in Python and as an option of `dco fit`."""
    return (
        f'Give each {part} a threshold of its own: condition_on="{python}", or dco fit '
        f"--condition-on {quote(column)}."
    )


def _by_class(y: AnyArray, hits: Bools, *, target: str) -> Slicing:
    """By the true label; of many labels those that are covered least often."""
    parts = rows_by_condition(condition_names(y))
    least = sorted(parts.items(), key=lambda part: hits[part[1]].mean())[:MOST_PARTS]
    return Slicing(
        least, "class", _own_thresholds("class", "label", target), len(parts) - len(least)
    )


def by_fifth(points: Floats, *, even: bool, labels: bool = False) -> list[Slicing]:
    """By fifth of the prediction (of its probability, for `labels`), named by its ends; none where
    it has one value.
    """
    codes, parts = fifths(points), []
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        ends = number(float(points[rows].min())), number(float(points[rows].max()))
        parts.append((" to ".join(dict.fromkeys(ends)), rows))
    ask = (
        ""
        if even
        else 'Let the search ask for evenness: objective="even", or dco fit --objective even. '
    )
    widths = (
        "Widths that follow the row help (quantile models, a model with a spread), and so "
        "do more tuning rows."
    )
    of = "largest probability" if labels else "prediction"
    return (
        [Slicing(parts, f"fifth of the {of}", ask if labels else ask + widths)]
        if len(parts) > 1
        else []
    )


def _label_places(predictor: DecoupledPredictor, X: Any, rows: list[int]) -> list[dict[Any, int]]:
    """For each of the rows the place of each label, most plausible first."""
    structure = predictor.structure
    if structure.classes is None:
        return [{} for _ in rows]
    prediction, labels = (
        structure.prediction(take_features(X, np.asarray(rows))),
        structure.classes.tolist(),
    )
    scores = np.asarray(
        [
            structure.score.observed(prediction, np.full(len(rows), label))
            for label in structure.classes
        ]
    )
    order = np.argsort(scores, axis=0, kind="stable").T
    return [{labels[code]: place for place, code in enumerate(codes)} for codes in order.tolist()]


def _same_parts(values: AnyArray, others: AnyArray) -> bool:
    """Whether two ways to divide the rows differ in the names of the parts at most."""
    names = condition_names(values).tolist(), condition_names(others).tolist()
    return len(set(zip(*names, strict=True))) == len(set(names[0])) == len(set(names[1]))


def _refuse_used_rows(predictor: DecoupledPredictor, X: Any, y: AnyArray) -> None:
    """Rows that made the predictor prove nothing, as in `evaluate`; a page shows one verdict, so it
    is refused.
    """
    digest = role_fingerprint(row_fingerprints(X, y))
    for role, stated in predictor.certificate.row_fingerprints.items():
        if stated == digest:  # also where rows repeat so much that single ones prove nothing
            raise ValueError(
                f"These are the {role} rows of this predictor: coverage on them "
                f"proves nothing. Give new rows."
            )
    found = predictor.kept.used(row_fingerprints(X, y))
    if found is not None:
        roles = ", ".join(f"{count} {role}" for role, count in found.counts.items())
        raise ValueError(
            f"{found.total} of the {len(y)} rows given took part in the fit ({roles}); coverage "
            f"on them proves nothing. "
            "Give rows that were used for nothing else."
        )


# ------------------------------------------------------------------------------------------
# histograms and examples


def example_rows(sizes: Floats | Integers) -> list[tuple[int, str]]:
    """Rows with small, typical and large sets, by their place in the order of sizes (earlier rows
    first among equals).
    """
    order = np.argsort(sizes, kind="stable")
    found: dict[int, str] = {}
    for share, kind in EXAMPLES.items():
        found.setdefault(int(order[round(share * (len(order) - 1))]), kind)
    return list(found.items())


def example_set(sets: Any, row: int, hits: Bools, places: Mapping[Any, int]) -> ExampleSet:
    """The set of one row, with at most `MOST_LABELS` labels (in the order of `places`) or
    `MOST_PIECES` pieces listed.
    """
    size, covered = float(sets.sizes()[row]), bool(hits[row])
    if sets.holds_labels:
        labels = sorted(sets[row].tolist(), key=lambda label: places.get(label, len(places)))
        return ExampleSet(
            size, covered, tuple(labels[:MOST_LABELS]), more=max(0, len(labels) - MOST_LABELS)
        )
    pieces = [(float(low), float(high)) for low, high in sets.pieces(row)]
    return ExampleSet(
        size, covered, pieces=tuple(pieces[:MOST_PIECES]), more=max(0, len(pieces) - MOST_PIECES)
    )


def _score_histograms(predictor: DecoupledPredictor) -> tuple[Floats, tuple[ScoreHistogram, ...]]:
    """Scores in common bins; the axis ends where a long tail begins, and what lies beyond is
    counted.
    """
    scores = predictor.calibration.scored.scores.astype(np.float64)
    # those of the most probable label: first bin
    finite = np.sort(scores[np.isfinite(scores) & (scores != LOWEST_SCORE)])
    if finite.size == 0:
        finite = np.array([0.0, 1.0])
    low, middle, high = float(finite[0]), size_quantile(finite, 0.5), size_quantile(finite, 0.95)
    top = (
        min(float(finite[-1]), middle + 4 * (high - middle)) if high > middle else float(finite[-1])
    )
    step = nice_step(top - low, MOST_BINS)
    first = math.floor(low / step + 1e-9)
    edges = step * np.arange(first, math.floor(top / step + 1e-9) + 2)
    histograms = []
    for _, condition in _largest_conditions(predictor):
        counts = count_in_bins(condition.scores.astype(np.float64), edges)
        n = int(condition.scores.size)
        histograms.append(ScoreHistogram(condition.name, n, counts[:-1], int(counts[-1])))
    return edges, tuple(histograms)
