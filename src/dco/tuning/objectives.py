"""What a search minimises: a family. A member gives one number for each candidate at its own
threshold on the tuning rows.

Calibration rows do not know how the structure was chosen, so no objective changes the guarantee. A
new one is one class with `value`, registered by `register_objective`: estimators, `dco.tune`,
command line and certificate then know it by its name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.foundations.ranks import clopper_pearson_upper
from dco.predictions import ClassRecord, Prediction
from dco.scores.decision import act
from dco.sets.labels import LabelSets, codes_of
from dco.sets.prediction_sets import PredictionSets
from dco.tuning.cutoffs import Cutoffs
from dco.tuning.evaluated import ALL_ROWS, EvaluatedCandidate, Positions
from dco.tuning.ranking import RankingRow
from dco.tuning.row_weights import RowWeights
from dco.tuning.slices import Slicing

_ERROR = 0.05  # the probability of finding a structure uneven that is not
_INCREASE_PER_SHORTFALL = 20  # a fifth of the size for a shortfall of 0.01


@dataclass(frozen=True, eq=False)
class Outcome:
    """One candidate at its own threshold on the tuning rows: all that an objective may look at."""

    candidate: EvaluatedCandidate
    cutoffs: Cutoffs
    sizes: Floats  # of each row's set
    covered: Bools  # whether each row's set holds its true label
    alpha: float
    weights: RowWeights  # how much each row counts
    slicings: tuple[Slicing, ...] = ()  # those that the objective asks for, and conditions
    rows: Positions = field(default_factory=lambda: ALL_ROWS)  # the tuning rows it is about

    def on(self, rows: Integers) -> Outcome:
        """Return the outcome on some of the rows alone."""
        return replace(
            self,
            sizes=self.sizes[rows],
            covered=self.covered[rows],
            weights=self.weights.take(rows),
            slicings=tuple(slicing.take(rows) for slicing in self.slicings),
            rows=rows,
        )

    @property
    def miscoverage(self) -> float:
        """The share of rows that are not covered."""
        return self.weights.share(~self.covered)

    @cached_property
    def mean_size(self) -> float:
        """The mean size of the sets."""
        return self.weights.mean(self.sizes)

    @cached_property
    def p95_size(self) -> float:
        """The 95 % quantile of the sizes."""
        return self.weights.p95(self.sizes)

    @property
    def y(self) -> AnyArray | None:
        """The true labels; None for candidates that are size curves."""
        source = self.candidate.source
        return None if source is None else source.y[self.rows]

    def sets(self) -> Iterator[tuple[PredictionSets, AnyArray, Prediction]]:
        """Yield (sets, true labels, predictions) of all rows at once, or of each fold."""
        source = self.candidate.source
        if source is None:
            raise ValueError(
                f"{self.candidate.name} has no sets, which this objective needs: give a score and "
                f"a prediction."
            )
        folds = source.predictions.sets(source.score, self.cutoffs.for_sets)
        for rows, record, sets in folds:
            yield sets, source.y[rows], record

    def all_slicings(self) -> list[Slicing]:
        """List all ways to slice the rows: as asked for, by class, by fifth of the prediction.

        A candidate without predictions (one of size curves) has only the slices that were asked
        for.
        """
        slicings = list(self.slicings)
        source = self.candidate.source
        if source is None:
            return slicings

        of_classes = source.predictions.are_of_classes
        if of_classes:
            y = source.y[self.rows]
            slicings.append(Slicing.by_class(y))
        centres = source.predictions.centres[self.rows]
        slicings.append(Slicing.by_prediction(centres, of_classes=of_classes))
        return slicings


class Objective(ABC):
    """What a search minimises. Objectives of your own derive from it as frozen dataclasses, or are
    plain functions.
    """

    name: ClassVar[str]
    words: ClassVar[str]  # what it is called in the certificate: "smallest mean size"
    columns: tuple[Any, ...] = ()  # columns or functions of X whose values are slices
    price: float = math.inf  # how much larger than the smallest a winner may be, as a share
    reads_sets: ClassVar[bool] = False

    @abstractmethod
    def value(self, outcome: Outcome) -> float:
        """Return the number to minimise."""

    def shortfall(self, outcome: Outcome) -> float:
        """Return how far the candidate is from qualifying; 0 if it qualifies.

        Candidates are compared by it first, and only then by their value.
        """
        return 0.0

    def describe(self, winner: RankingRow) -> str:
        """Say why the winner won: "smallest mean size"."""
        return self.words

    def trial_value(self, row: RankingRow) -> float:
        """Return the one number that a search strategy minimises."""
        return row.objective


@dataclass(frozen=True)
class MeanSize(Objective):
    """The paper's objective: the mean size of the sets."""

    name = "mean_size"
    words = "smallest mean size"

    def value(self, outcome: Outcome) -> float:
        """Return the mean size."""
        return outcome.mean_size


@dataclass(frozen=True)
class P95Size(Objective):
    """The 95 % quantile of the sizes: few rows have much larger sets."""

    name = "p95_size"
    words = "smallest P95 size"

    def value(self, outcome: Outcome) -> float:
        """Return the 95 % quantile of the sizes."""
        return outcome.p95_size


@dataclass(frozen=True)
class WorstSlice:
    """The slice of the tuning rows whose coverage is furthest below what is asked of it.

    `shortfall` is by how much; it is negative if even this slice is covered often enough. `n_rows`
    counts independent rows, or clusters of rows.
    """

    name: str
    coverage: float
    n_rows: float
    shortfall: float


@dataclass(frozen=True)
class Even(Objective):
    """The smallest mean size among structures that cover every slice of the tuning rows about as
    often as the level asks, if that is to be had for a small price in size.

    Slices are the classes, the fifths of the candidate's own prediction (for classes of its largest
    probability), and the columns or functions of X in `by`. Slice s with n_s rows of which h_s are
    covered has the shortfall

        min(1 - alpha - U(h_s, n_s), 1 - alpha - tolerance - h_s / n_s),

    where U is the one-sided Clopper-Pearson upper bound at error .05 / (number of slices). A
    structure qualifies if no slice has a positive shortfall: coverage is within the tolerance of
    the level, or chance explains the rest. So a structure that covers every slice at the level is
    turned away with probability at most .05, however small the slices. If none qualifies, the one
    with the smallest shortfall in its worst slice is best, in whole percentage points, so that size
    decides between those that are about as even.

    Evenness may cost the share `price` of the mean size: structures that are larger than the
    smallest by more come last. An empty set counts as the whole: all labels, or the range of the
    targets.
    """

    tolerance: float = 0.05
    by: Any = ()
    price: float = 0.1

    name = "even"
    words = "smallest mean size among even structures"

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"tolerance must lie between 0 and 1, got {self.tolerance!r}.")
        if not self.price >= 0:
            raise ValueError(f"price must be a share of the size, 0 or more, got {self.price!r}.")

    @property
    def columns(self) -> tuple[Any, ...]:  # type: ignore[override]
        """`by` as a tuple."""
        return tuple(self.by) if isinstance(self.by, (list, tuple)) else (self.by,)

    def value(self, outcome: Outcome) -> float:
        """Return the mean size, where an empty set counts as a set of everything.

        Otherwise empty sets, which say nothing, would make a candidate look good. A set of
        everything holds all labels, or for numbers the range of the targets.
        """
        is_empty = (outcome.sizes == 0) & ~outcome.covered  # a covered set of size 0 is a point
        y = outcome.y
        if y is None or not is_empty.any():
            return outcome.mean_size

        n_labels = outcome.candidate.n_labels  # None for numbers
        size_of_everything = float(np.ptp(y)) if n_labels is None else float(n_labels)
        sizes = np.where(is_empty, size_of_everything, outcome.sizes)
        return outcome.weights.mean(sizes)

    def shortfall(self, outcome: Outcome) -> float:
        """Return the shortfall of the worst slice, rounded up to whole percentage points."""
        worst = self.worst_slice(outcome)
        if worst is None:
            return 0.0
        return max(0, math.ceil(100 * worst.shortfall)) / 100

    def worst_slice(self, outcome: Outcome) -> WorstSlice | None:
        """Find the slice with the largest shortfall of coverage; None if there is no slice.

        Slice s with n_s rows, h_s of them covered, has the shortfall

            min(1 - alpha - U(h_s, n_s), 1 - alpha - tolerance - h_s / n_s),

        U the upper Clopper-Pearson bound of coverage. So it is positive only if coverage is below
        the level by more than the tolerance and by more than chance explains.
        """
        slices = _count_slices(outcome)
        if not slices.names:
            return None

        # The error is divided by the number of slices, so that all bounds hold at once.
        coverage = slices.n_covered / slices.n_rows
        error = _ERROR / len(slices.names)
        highest_coverage = clopper_pearson_upper(slices.n_covered, slices.n_rows, error)
        level = 1 - outcome.alpha
        shortfalls = np.minimum(level - highest_coverage, level - self.tolerance - coverage)

        worst = int(np.argmax(shortfalls))
        return WorstSlice(
            name=slices.names[worst],
            coverage=coverage[worst],
            n_rows=slices.n_rows[worst],
            shortfall=float(shortfalls[worst]),
        )

    def describe(self, winner: RankingRow) -> str:
        """Say whether the winner is even, or only the least uneven that is affordable."""
        if winner.shortfall == 0:
            return self.words
        if math.isinf(self.price):
            return "the least shortfall, since no structure is even,"
        return (
            f"the least shortfall among structures at most {100 * self.price:g} % larger than "
            f"the smallest"
        )

    def trial_value(self, row: RankingRow) -> float:
        """Raise the size by a fifth per percentage point of shortfall, at most by the price."""
        increase = min(_INCREASE_PER_SHORTFALL * row.shortfall, self.price)
        return row.objective * (1 + increase)


@dataclass(frozen=True, eq=False)
class _SliceCounts:
    """How many rows each slice of the tuning rows has, and how many of them are covered.

    Clusters of rows are counted instead, where the tuning rows have clusters.
    """

    names: list[str]
    n_rows: Floats
    n_covered: Floats


def _count_slices(outcome: Outcome) -> _SliceCounts:
    """Count the rows of every slice that has some, and those that are covered."""
    names: list[str] = []
    n_rows: list[float] = []
    n_covered: list[float] = []
    for slicing in outcome.all_slicings():
        covered_of_slice, rows_of_slice = outcome.weights.count_hits(
            slicing.numbers, outcome.covered
        )
        for number in np.flatnonzero(rows_of_slice > 0).tolist():
            names.append(slicing.names[number])
            n_rows.append(rows_of_slice[number])
            n_covered.append(covered_of_slice[number])
    return _SliceCounts(names, np.asarray(n_rows), np.asarray(n_covered))


@dataclass(frozen=True)
class DecisionLoss(Objective):
    """The mean loss on the tuning rows of the action that is best against each label set
    (`scores.decision.act`).

    ``loss_matrix[a][k]`` is the loss of action a when the label is the k-th of `labels` (None: all
    labels, ascending).
    """

    loss_matrix: tuple[tuple[float, ...], ...]
    labels: tuple[Any, ...] | None = None

    name = "decision_loss"
    reads_sets = True
    words = "smallest decision loss"

    def __init__(self, loss_matrix: ArrayLike, labels: Sequence[Any] | None = None) -> None:
        rows = np.asarray(loss_matrix, dtype=np.float64).tolist()
        object.__setattr__(self, "loss_matrix", tuple(map(tuple, rows)))
        object.__setattr__(self, "labels", None if labels is None else tuple(labels))

    def value(self, outcome: Outcome) -> float:
        """Return the mean loss of the actions."""
        return _mean_over_folds(outcome, self._mean_loss)

    def _mean_loss(self, sets: PredictionSets, y: AnyArray, record: Prediction) -> float:
        """Take the best action for each row by its set, and return the mean of their true losses.

        `record` holds the predicted probabilities behind the sets, and `y` the true labels, which
        decide what an action costs.
        """
        if not (isinstance(sets, LabelSets) and isinstance(record, ClassRecord)):
            raise ValueError("a decision loss is for label sets.")

        # 1. Find which label each column of the loss matrix is for.
        labels: Any = self.labels
        if labels is None and sets.classes is not None:
            labels = np.sort(sets.classes)

        # 2. Choose the actions without the true labels.
        actions = act(sets, record, loss_matrix=self.loss_matrix, labels=labels).actions

        # 3. Look up what each of them costs. Labels without names are column numbers themselves.
        true_columns = np.asarray(y)
        if labels is not None:
            true_columns = codes_of(true_columns, np.asarray(labels))
        losses = np.asarray(self.loss_matrix)[actions, true_columns]
        return float(losses.mean())


@dataclass(frozen=True)
class Custom(Objective):
    """A function ``(sets, y) -> float`` of the tuning rows; with folds, its mean over folds by
    their numbers of rows.
    """

    function: Callable[[PredictionSets, AnyArray], float]

    name = "custom"
    reads_sets = True

    @property
    def words(self) -> str:  # type: ignore[override]
        """Name the function."""
        return f"smallest {getattr(self.function, '__qualname__', type(self.function).__name__)}"

    def value(self, outcome: Outcome) -> float:
        """Return the value of the function on the sets of the tuning rows."""
        return _mean_over_folds(outcome, self._value_of_fold)

    def _value_of_fold(self, sets: PredictionSets, y: AnyArray, record: Prediction) -> float:
        """Call the function, which takes no predictions."""
        return self.function(sets, y)


def _mean_over_folds(
    outcome: Outcome, function: Callable[[PredictionSets, AnyArray, Prediction], float]
) -> float:
    """Compute ``function(sets, y, predictions)`` on each fold, and return the mean.

    Each fold is weighted by its number of rows. A mean of NaN is an error.
    """
    values = []
    n_rows = []
    for sets, y, record in outcome.sets():
        values.append(float(function(sets, y, record)))
        n_rows.append(len(y))

    if len(values) == 1:
        mean = values[0]  # without the rounding error of a product and a quotient
    else:
        total = sum(n * value for n, value in zip(n_rows, values, strict=True))
        mean = total / sum(n_rows)
    if np.isnan(mean):
        raise ValueError("the objective is NaN.")
    return mean


OBJECTIVES: dict[str, Objective] = {}


def register_objective(objective: Objective) -> Objective:
    """Make the objective known by its name; another one of that name is an error."""
    if OBJECTIVES.setdefault(objective.name, objective) != objective:
        raise ValueError(
            f'there is an objective named "{objective.name}" already; give this one another name.'
        )
    return objective


MEAN_SIZE = register_objective(MeanSize())
register_objective(P95Size())
EVEN = register_objective(Even())

Aimed: TypeAlias = str | Objective | Callable[[PredictionSets, AnyArray], float]


def objective_of(objective: Aimed) -> Objective:
    """Return the objective that a name, an objective or a function stands for."""
    if isinstance(objective, Objective):
        return objective
    if isinstance(objective, str) and objective in OBJECTIVES:
        return OBJECTIVES[objective]
    if callable(objective) and not isinstance(objective, type):
        return Custom(objective)
    names = ", ".join(f'"{name}"' for name in OBJECTIVES)
    raise ValueError(
        f"objective must be one of {names}, an objective of dco.objectives, or a function of "
        f"(sets, y); got {objective!r:.200}."
    )
