"""Every number of the report page, at every level that its control offers; nothing here knows about HTML."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from dco.evaluation.evaluate import Evaluation, GroupEvaluation, evaluate
from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.foundations.notes import Note, show
from dco.foundations.ranks import Level, as_rational
from dco.guarantees.certificate import Certificate
from dco.guarantees.facts import CertifiedThreshold, certified_thresholds
from dco.guarantees.theory import Consistency, coverage_consistency
from dco.predictor import DecoupledPredictor
from dco.rows.conditions import condition_names
from dco.rows.fingerprints import role_fingerprint, row_fingerprints
from dco.rows.rows import n_rows, take_features
from dco.sets.intervals import Intervals, IntervalUnions
from dco.sets.labels import LabelSets
from dco.sets.prediction_sets import PredictionSets, size_quantile
from dco.tuning import Ranking

GRID = tuple(k / 200 for k in range(1, 21)) + tuple(k / 100 for k in range(11, 51))
PICKED_CONFIDENCE = 0.95  # of the bound that holds for a level picked by its result
MOST_GROUPS = 12  # groups whose numbers follow the control; the largest come first
MOST_LABELS = 12  # labels of one example that are named; the rest is counted
MOST_PIECES = 4
BINS = 24

Kind = Literal["small", "typical", "large"]
_EXAMPLE_PLACES: tuple[tuple[float, Kind], ...] = (
    (0.0, "small"),
    (0.1, "small"),
    (0.45, "typical"),
    (0.55, "typical"),
    (0.9, "large"),
    (1.0, "large"),
)


@dataclass(frozen=True)
class ExampleSet:
    """One row's set at one level: labels, most plausible first, or the ends of its pieces."""

    size: float
    covered: bool
    labels: tuple[str, ...] = ()
    pieces: tuple[tuple[float, float], ...] = ()
    more: int = 0  # labels or pieces that are not listed


@dataclass(frozen=True)
class Example:
    """A row that was given, why it was picked, and its set at each level."""

    row: int
    kind: Kind
    truth: str
    truth_value: float | None
    prediction: str
    sets: tuple[ExampleSet, ...]


@dataclass(frozen=True, eq=False)
class ConditionNumbers:
    """One Mondrian group at one level: its threshold, and what the rows of the group that were given show."""

    threshold: CertifiedThreshold
    evaluation: GroupEvaluation | None
    consistency: Consistency | None


@dataclass(frozen=True, eq=False)
class LevelNumbers:
    """All numbers of one level. `evaluation` is None where no rows were given."""

    alpha: float
    thresholds: tuple[CertifiedThreshold, ...]
    picked_bound: float | None
    evaluation: Evaluation | None = None
    conditions: tuple[ConditionNumbers, ...] = ()
    size_counts: Integers | None = None

    @property
    def threshold(self) -> CertifiedThreshold | None:
        """The one threshold, or None where there is one a group."""
        return self.thresholds[0] if len(self.thresholds) == 1 and self.thresholds[0].group is None else None

    @property
    def is_infinite(self) -> bool:
        """Whether a threshold is infinite for want of calibration rows."""
        return any(math.isinf(entry.value) for entry in self.thresholds)


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Calibration scores of all rows (group None) or of one Mondrian group, counted in common bins."""

    group: str | None
    n: int
    counts: Integers
    above: int  # scores beyond the last edge, infinite ones included


@dataclass(frozen=True, eq=False)
class ReportNumbers:
    """What the page shows. ``levels[start]`` is the level that was certified."""

    certificate: Certificate
    ranking: Ranking
    classes: int | None
    levels: tuple[LevelNumbers, ...]
    start: int
    score_edges: Floats
    score_histograms: tuple[ScoreHistogram, ...]
    n_rows: int = 0
    size_edges: Floats | None = None
    examples: tuple[Example, ...] = ()
    by_name: str = "group"
    groups: tuple[Any, ...] = ()
    groups_left_out: int = 0
    by_conditions: bool = False  # whether `groups` are the Mondrian groups, which have thresholds

    @property
    def has_rows(self) -> bool:
        """Whether rows with known outcomes were given."""
        return self.n_rows > 0


def report_numbers(estimator: Any, X: Any = None, y: Any = None, *, by: Any = None) -> ReportNumbers:
    """Evaluate a fitted estimator at some 60 levels on rows (X, y) that were used for nothing else.

    Without rows there is no coverage and no size: calibration rows are never used in their place.
    """
    if (X is None) != (y is None):
        raise ValueError("Give X and y together: coverage needs rows with their true values.")
    if X is None and by is not None:
        raise ValueError("by= groups the rows of X and y; give those too.")
    if not hasattr(estimator, "predictor_"):
        raise ValueError(
            f"The report needs a fitted DecoupledClassifier or DecoupledRegressor, got {type(estimator).__name__}."
        )
    predictor: DecoupledPredictor = estimator.predictor_
    levels = level_grid(predictor.statement.alpha)
    start = [float(as_rational(level)) for level in levels].index(float(as_rational(predictor.statement.alpha)))
    edges, histograms = _score_histograms(predictor)
    shared: dict[str, Any] = {
        "certificate": predictor.certificate,
        "ranking": predictor.ranking,
        "classes": None if predictor.structure.classes is None else len(predictor.structure.classes),
        "start": start,
        "score_edges": edges,
        "score_histograms": histograms,
    }
    if X is None:
        return ReportNumbers(levels=tuple(_without_rows(predictor, level) for level in levels), **shared)
    rows = _GivenRows.checked(estimator, X, y, by)
    numbers, examples, size_edges = rows.numbers(levels, start)
    return ReportNumbers(
        levels=numbers,
        n_rows=len(rows.y),
        size_edges=size_edges,
        examples=examples,
        by_name=rows.by_name,
        groups=() if rows.table is None else rows.table.names,
        groups_left_out=0 if rows.table is None else rows.table.left_out,
        by_conditions=rows.by_conditions,
        **shared,
    )


def level_grid(alpha: Level) -> tuple[Level, ...]:
    """0.005 to 0.1 by 0.005, then to 0.5 by 0.01, with `alpha` itself in its place, as it was written."""
    own = float(as_rational(alpha))
    return tuple(sorted([*(level for level in GRID if level != own), alpha], key=lambda level: float(as_rational(level))))


def thresholds_at(predictor: DecoupledPredictor, alpha: Level) -> tuple[CertifiedThreshold, ...]:
    """The thresholds at one level with the numbers of their coverage law, as the certificate has them at its own level."""
    statement = predictor.stated(alpha)
    return certified_thresholds(predictor.calibration, predictor.thresholds(statement), statement)


def picked_bound(thresholds: tuple[CertifiedThreshold, ...], certificate: Certificate, alpha: float) -> float | None:
    """1 - alpha - `simultaneous_slack`: holds for all levels at once with confidence 95 %, in each group separately.

    None where it does not hold: nothing is guaranteed at all, or rows come in groups and the threshold is no order
    statistic of independent scores.
    """
    if certificate.guarantee not in ("marginal", "pac") or any(entry.rank is None for entry in thresholds):
        return None
    return max(0.0, 1 - alpha - certificate.simultaneous_slack(round(1 - PICKED_CONFIDENCE, 9)))


def _without_rows(predictor: DecoupledPredictor, alpha: Level) -> LevelNumbers:
    value, thresholds = float(as_rational(alpha)), thresholds_at(predictor, alpha)
    conditions = tuple(ConditionNumbers(entry, None, None) for entry in thresholds if entry.group is not None)
    return LevelNumbers(
        value, thresholds, picked_bound(thresholds, predictor.certificate, value), conditions=_largest(conditions)
    )


def _largest(conditions: tuple[ConditionNumbers, ...]) -> tuple[ConditionNumbers, ...]:
    """The groups with the most calibration rows: the same ones at every level."""
    return tuple(sorted(conditions, key=lambda entry: -entry.threshold.n)[:MOST_GROUPS])


def _largest_parts(predictor: DecoupledPredictor) -> tuple[Any, ...]:
    """The Mondrian groups with the most calibration rows."""
    parts = predictor.calibration.parts
    return tuple(sorted(parts, key=lambda name: -parts[name].size)[:MOST_GROUPS])


@dataclass(frozen=True, eq=False)
class _Groups:
    """The group of each row as a place in `names`, the largest first; rows of all other groups share the last code."""

    codes: Integers
    names: tuple[Any, ...]
    left_out: int

    @classmethod
    def of(cls, groups: AnyArray, *, names: tuple[Any, ...] | None = None) -> _Groups:
        """Code the groups given, or by default the `MOST_GROUPS` that have the most rows."""
        values = condition_names(groups).tolist()
        counts = Counter(values)
        shown = tuple(name for name, _ in counts.most_common(MOST_GROUPS)) if names is None else names
        place = {name: code for code, name in enumerate(shown)}
        codes = np.asarray([place.get(value, len(shown)) for value in values])
        return cls(codes, shown, len(counts.keys() - place.keys()))

    def named(self, rows: tuple[GroupEvaluation, ...]) -> tuple[GroupEvaluation, ...]:
        """The rows of a table by code, with the names of their groups."""
        return tuple(replace(row, group=self.names[row.group]) for row in rows if row.group < len(self.names))


def _same_parts(groups: AnyArray, others: AnyArray) -> bool:
    """Whether two ways to group the rows differ in the names of the groups at most."""
    names = condition_names(groups).tolist(), condition_names(others).tolist()
    return len(set(zip(*names, strict=True))) == len(set(names[0])) == len(set(names[1]))


@dataclass(frozen=True, eq=False)
class _GivenRows:
    """Rows with known outcomes, their prediction (made once) and their groups."""

    predictor: DecoupledPredictor
    X: Any
    y: AnyArray
    by_name: str
    table: _Groups | None  # what the by-group table goes by: the groups given, or those of the conditions
    by_conditions: bool
    conditions: _Groups | None
    points: AnyArray
    prediction: Any

    @classmethod
    def checked(cls, estimator: Any, X: Any, y: Any, by: Any) -> _GivenRows:
        features, target = estimator._features(X), np.asarray(y)
        if target.shape != (n_rows(features),):
            raise ValueError(f"X has {n_rows(features)} rows and y has shape {target.shape}: give one true value a row.")
        notes: list[Note] = []
        target = estimator._known_targets(target, notes)
        show(notes)
        predictor: DecoupledPredictor = estimator.predictor_
        _refuse_used_rows(predictor, features, target)
        found = predictor.structure.conditions(features, target)
        largest = _largest_parts(predictor)
        conditions = None if found is None else _Groups.of(found, names=largest)
        groups = None if by is None else np.asarray(by)
        if groups is not None and groups.shape != target.shape:
            raise ValueError(f"by must hold one value for each of {len(target)} rows, got shape {groups.shape}.")
        name = getattr(by, "name", None)
        if by is None and found is not None:
            given = predictor.structure.condition_on
            name = given if isinstance(given, str) else None
        table = found if groups is None else groups
        return cls(
            predictor,
            features,
            target,
            "group" if name is None else str(name),
            None if table is None else _Groups.of(table),
            found is not None and (groups is None or _same_parts(groups, found)),
            conditions,
            np.asarray(estimator.predict(features)),
            predictor.structure.prediction(features),
        )

    def sets(self, alpha: Level) -> PredictionSets:
        return self.predictor.sets(self.X, self.predictor.stated(alpha), prediction=self.prediction)

    def numbers(self, levels: tuple[Level, ...], start: int) -> tuple[tuple[LevelNumbers, ...], tuple[Example, ...], Floats]:
        sizes = self._sizes_to_look_at(levels, start)
        labels = self.predictor.structure.classes
        edges = size_edges(sizes, classes=None if labels is None else len(labels))
        picked = example_rows(np.asarray(self.sets(levels[start]).sizes(), dtype=np.float64))
        order = self._label_order([row for row, _ in picked])
        numbers, listed = [], []
        for alpha in levels:
            made = self.sets(alpha)
            hits = np.asarray(made.contains(self.y), dtype=bool)
            numbers.append(self._level(alpha, made, edges))
            listed.append([example_set(made, row, hits, order.get(row)) for row, _ in picked])
        examples = tuple(
            Example(
                row,
                kind,
                _plain(self.y[row]),
                None if labels is not None else float(self.y[row]),
                _plain(self.points[row]),
                tuple(at[place] for at in listed),
            )
            for place, (row, kind) in enumerate(picked)
        )
        return tuple(numbers), examples, edges

    def _sizes_to_look_at(self, levels: tuple[Level, ...], start: int) -> Floats:
        """Finite sizes that set the axis: at the certified level, or at the next larger one that has any."""
        for alpha in (*levels[start:], 0.5):
            sizes = np.asarray(self.sets(alpha).sizes(), dtype=np.float64)
            if np.any(np.isfinite(sizes)):
                return sizes[np.isfinite(sizes)]
        return np.ones(1)

    def _label_order(self, rows: list[int]) -> dict[int, dict[Any, int]]:
        """For each example the place of each label, most plausible first."""
        every = getattr(self.predictor.structure.score, "every_label", None)
        if every is None or self.predictor.structure.classes is None:
            return {}
        record = self.predictor.structure.prediction(take_features(self.X, np.asarray(rows)))
        names = record.labels().tolist()  # type: ignore[union-attr]
        order = np.argsort(np.asarray(every(record)), axis=1, kind="stable")
        return {row: {names[code]: place for place, code in enumerate(order[i].tolist())} for i, row in enumerate(rows)}

    def _level(self, alpha: Level, made: PredictionSets, edges: Floats) -> LevelNumbers:
        value, thresholds = float(as_rational(alpha)), thresholds_at(self.predictor, alpha)
        # rows of a group are not independent: their coverage has no law
        one_law = self.conditions is None and self.predictor.calibration.clusters is None
        evaluation = evaluate(
            made,
            self.y,
            threshold=self.predictor.thresholds(self.predictor.stated(alpha))[None] if one_law else None,
            groups=None if self.table is None else self.table.codes,
            tied=any(not entry.expected_is_exact for entry in thresholds),
        )
        if self.table is not None:
            evaluation = replace(evaluation, by_group=self.table.named(evaluation.by_group))
        conditions: tuple[ConditionNumbers, ...] = ()
        if self.conditions is not None:
            by_condition = self.conditions.named(evaluate(made, self.y, groups=self.conditions.codes).by_group)
            called = self.predictor.calibration.condition_labels()
            shown = {called[entry.group]: entry for entry in by_condition}
            listed = {called[name] for name in self.conditions.names}
            conditions = tuple(_condition(entry, shown.get(entry.group)) for entry in thresholds if entry.group in listed)
        bound = picked_bound(thresholds, self.predictor.certificate, value)
        counts = size_counts(np.asarray(made.sizes(), dtype=np.float64), edges)
        return LevelNumbers(value, thresholds, bound, evaluation, _largest(conditions), counts)


def _condition(entry: CertifiedThreshold, found: GroupEvaluation | None) -> ConditionNumbers:
    if found is None or entry.rank is None or found.n == found.unknown_labels:
        return ConditionNumbers(entry, found, None)
    hits = round(found.coverage * found.n)
    tied = not entry.expected_is_exact
    rank = entry.n + 1 if entry.value == math.inf else entry.rank  # full sets, as in `evaluate`
    unknown = found.unknown_labels
    law = coverage_consistency(hits, found.n - unknown, rank=rank, n_cal=entry.n, tied=tied, unknown_labels=unknown)
    return ConditionNumbers(entry, found, law)


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


def nice_step(span: float, most: int) -> float:
    """The least of 1, 2, 2.5, 5 times a power of ten that cuts `span` into at most `most` parts."""
    if not (span > 0 and math.isfinite(span)):
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(step * power for step in (1, 2, 2.5, 5, 10, 20) if span / (step * power) <= most + 1e-9)


def size_edges(sizes: Floats, *, classes: int | None) -> Floats:
    """Edges of the size histogram, common to all levels: up to 1.5 times the P99 size; larger sets are counted beyond."""
    upper = 1.5 * size_quantile(sizes, 0.99)
    if classes is not None:
        top = classes if classes < BINS else min(classes, max(math.ceil(upper), BINS - 1))
        width = max(1, math.ceil((top + 1) / BINS))
        return np.arange(0, width * (math.ceil((top + 1) / width) + 1), width) - 0.5
    if upper <= 0:
        upper = 1.0
    step = nice_step(upper, BINS)
    return step * np.arange(math.ceil(upper / step - 1e-9) + 1)


def size_counts(sizes: Floats, edges: Floats) -> Integers:
    """Sets in each bin [a, b), and in the last place those at or beyond the last edge."""
    place = np.searchsorted(edges, sizes, side="right") - 1
    return np.bincount(np.clip(place, 0, len(edges) - 1), minlength=len(edges))


def example_rows(sizes: Floats) -> list[tuple[int, Kind]]:
    """Rows with small, typical and large sets, by their place in the order of sizes (earlier rows first among equals)."""
    order = np.argsort(sizes, kind="stable")
    found: dict[int, Kind] = {}
    for share, kind in _EXAMPLE_PLACES:
        found.setdefault(int(order[round(share * (len(order) - 1))]), kind)
    return list(found.items())


def example_set(made: PredictionSets, row: int, hits: Bools, order: dict[Any, int] | None) -> ExampleSet:
    """One row's set, with at most `MOST_LABELS` labels or `MOST_PIECES` pieces listed."""
    size, covered = float(made.sizes()[row]), bool(hits[row])
    if isinstance(made, LabelSets):
        labels = made[row].tolist()
        if order is not None:
            labels.sort(key=lambda label: order.get(label, len(order)))
        more = max(0, len(labels) - MOST_LABELS)
        return ExampleSet(size, covered, tuple(_plain(label) for label in labels[:MOST_LABELS]), more=more)
    if isinstance(made, IntervalUnions):
        pieces = [(float(low), float(high)) for low, high in made.pieces(row)]
    elif isinstance(made, Intervals):
        pieces = [] if made.is_empty()[row] else [(float(made.lower[row]), float(made.upper[row]))]
    else:
        raise TypeError(f"The report knows sets of labels and of intervals, not {type(made).__name__}.")
    return ExampleSet(size, covered, pieces=tuple(pieces[:MOST_PIECES]), more=max(0, len(pieces) - MOST_PIECES))


def _score_histograms(predictor: DecoupledPredictor) -> tuple[Floats, tuple[ScoreHistogram, ...]]:
    """Scores in common bins; the axis ends where a long tail begins, and what lies beyond is counted."""
    scores = predictor.calibration.scores.astype(np.float64)
    finite = np.sort(scores[np.isfinite(scores)])
    if finite.size == 0:
        finite = np.array([0.0, 1.0])
    low, middle, high = float(finite[0]), size_quantile(finite, 0.5), size_quantile(finite, 0.95)
    top = min(float(finite[-1]), middle + 4 * (high - middle)) if high > middle else float(finite[-1])
    step = nice_step(top - low, BINS)
    first = math.floor(low / step + 1e-9)
    edges = step * np.arange(first, math.floor(top / step + 1e-9) + 2)
    parts, called = predictor.calibration.parts, predictor.calibration.condition_labels()
    found = []
    for name in _largest_parts(predictor):
        rows = parts[name]
        counts = size_counts(scores[rows], edges)
        found.append(ScoreHistogram(called[name], int(rows.size), counts[:-1], int(counts[-1])))
    return edges, tuple(found)


def _plain(value: Any) -> str:
    """A label or a number as a reader would write it."""
    if isinstance(value, (float, np.floating)):
        return number(float(value))
    return str(value)


def decimals_for(values: Iterable[float], digits: int = 4) -> int:
    """How many decimals give the largest of the values so many digits: one column, one number of decimals."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return 0 if largest == 0 else min(max(digits - 1 - math.floor(math.log10(largest)), 0), 6)


def fixed(value: float, decimals: int) -> str:
    """A number with so many decimals, to stand under others in a column; what these would write as 0 is in full."""
    lost = value != 0 and (round(value, decimals) == 0 or (decimals >= 6 and abs(value) < 1e-4))
    if lost or not math.isfinite(value) or abs(value) >= 1e7:
        return number(value)
    return f"{value:,.{decimals}f}".replace(",", "\u202f").replace("-", "−")


def number(value: float) -> str:
    """Four significant digits, no exponent where a person would write none."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size >= 1e7 or 0 < size < 1e-4:
        return exponential(value)
    if size >= 1000:
        text = f"{value:,.0f}".replace(",", "\u202f")
    else:
        text = f"{value:.4g}"
    return text.replace("-", "−")


def exponential(value: float) -> str:
    """Up to four digits and a power of ten."""
    digits, power = f"{value:.3e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}".replace("-", "−")
