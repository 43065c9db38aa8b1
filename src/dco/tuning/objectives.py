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


@dataclass(frozen=True, eq=False)
class Outcome:
    """One candidate at its own threshold on the tuning rows: all that an objective may look at."""

    candidate: EvaluatedCandidate
    cutoffs: Cutoffs
    sizes: Floats
    covered: Bools
    alpha: float
    weights: RowWeights
    slicings: tuple[Slicing, ...] = ()  # named by the caller
    rows: Positions = field(default_factory=lambda: ALL_ROWS)  # those it is about

    def on(self, rows: Integers) -> Outcome:
        """Look at some of the rows alone."""
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
        """Yield sets, true labels and predictions: of all rows at once, or fold by fold."""
        source = self.candidate.source
        if source is None:
            raise ValueError(
                f"{self.candidate.name} has no sets, which this objective needs: give a score and "
                f"a prediction."
            )
        folds = source.predictions.sets(source.score, self.cutoffs.for_score)
        for rows, record, sets in folds:
            yield sets, source.y[rows], record

    def all_slicings(self) -> list[Slicing]:
        """Cut the rows by class, by fifth of the prediction, and as the caller asked."""
        slicings = list(self.slicings)
        source = self.candidate.source
        if source is None:
            return slicings

        are_classes = source.predictions.are_of_classes
        if are_classes:
            slicings.append(Slicing.by_class(source.y[self.rows]))
        centres = source.predictions.centres[self.rows]
        slicings.append(Slicing.by_prediction(centres, of_classes=are_classes))
        return slicings


class Objective(ABC):
    """What a search minimises. Objectives of your own derive from it as frozen dataclasses, or are
    plain functions.
    """

    name: ClassVar[str]
    words: ClassVar[str]  # as the certificate says it
    columns: tuple[Any, ...] = ()  # columns or functions of X whose values are slices
    price: float = math.inf  # how much larger than the smallest a winner may be, as a share
    reads_sets: ClassVar[bool] = False

    @abstractmethod
    def value(self, at: Outcome) -> float:
        """Return the number to minimise."""

    def shortfall(self, at: Outcome) -> float:
        """Return what the candidate lacks to qualify: candidates are compared by it first."""
        return 0.0

    def describe(self, winner: RankingRow) -> str:
        """Say why the winner won."""
        return self.words

    def trial_value(self, row: RankingRow) -> float:
        """Return the one number that a search strategy minimises."""
        return row.objective


@dataclass(frozen=True)
class MeanSize(Objective):
    """The paper's objective: the mean size of the sets."""

    name = "mean_size"
    words = "smallest mean size"

    def value(self, at: Outcome) -> float:
        """Return the mean size."""
        return at.mean_size


@dataclass(frozen=True)
class P95Size(Objective):
    """The 95 % quantile of the sizes: few rows have much larger sets."""

    name = "p95_size"
    words = "smallest P95 size"

    def value(self, at: Outcome) -> float:
        """Return the 95 % quantile of the sizes."""
        return at.p95_size


@dataclass(frozen=True)
class LeftBehind:
    """The slice of the tuning rows that is covered least for its size."""

    name: str
    coverage: float
    n_rows: float
    lacks: float  # how much its coverage is below what is asked of it; negative if nothing lacks


@dataclass(frozen=True)
class Even(Objective):
    """The smallest mean size among structures that cover every slice of the tuning rows about as
    often as the level asks, if that is to be had for a small price in size.

    Slices are the classes, the fifths of the candidate's own prediction (for classes of its largest
    probability), and the columns or functions of X in `by`. Slice s with n_s rows of which h_s are
    covered lacks

        min(1 - alpha - U(h_s, n_s), 1 - alpha - tolerance - h_s / n_s),

    where U is the one-sided Clopper-Pearson upper bound at error .05 / (number of slices). A
    structure qualifies if no slice lacks anything: coverage is within the tolerance of the level,
    or chance explains the rest. So a structure that covers every slice at the level is turned away
    with probability at most .05, however small the slices. If none qualifies, the one whose worst
    slice lacks least is best, in whole percentage points, so that size decides between those that
    are about as even.

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

    def value(self, at: Outcome) -> float:
        """Return the mean size, an empty set counted as the whole."""
        is_empty = (at.sizes == 0) & ~at.covered  # a covered set of size 0 is a point
        if at.y is None or not is_empty.any():
            return at.mean_size

        n_labels = at.candidate.n_labels
        whole = float(np.ptp(at.y)) if n_labels is None else n_labels
        return at.weights.mean(np.where(is_empty, whole, at.sizes))

    def shortfall(self, at: Outcome) -> float:
        """Return what the worst slice lacks, in whole percentage points."""
        worst = self.left_behind(at)
        if worst is None:
            return 0.0
        return max(0, math.ceil(100 * worst.lacks)) / 100

    def left_behind(self, at: Outcome) -> LeftBehind | None:
        """Find the slice that lacks most; None if there is no slice."""
        # Count the covered rows in every slice that has rows.
        names: list[str] = []
        hits_by_slicing = []
        rows_by_slicing = []
        for slicing in at.all_slicings():
            hits, rows = at.weights.count_hits(slicing.numbers, at.covered)
            filled = np.flatnonzero(rows > 0)
            names += [slicing.names[number] for number in filled.tolist()]
            hits_by_slicing.append(hits[filled])
            rows_by_slicing.append(rows[filled])
        if not names:
            return None

        # Compute what each slice lacks, by the formula of the class.
        hits = np.concatenate(hits_by_slicing)
        rows = np.concatenate(rows_by_slicing)
        level = 1 - at.alpha
        upper_bounds = clopper_pearson_upper(hits, rows, _ERROR / len(rows))
        lacks = np.minimum(level - upper_bounds, level - self.tolerance - hits / rows)

        worst = int(np.argmax(lacks))
        return LeftBehind(
            name=names[worst],
            coverage=hits[worst] / rows[worst],
            n_rows=rows[worst],
            lacks=float(lacks[worst]),
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
        """Raise the size by a fifth for each percentage point that lacks, at most by the price."""
        return row.objective * (1 + min(20 * row.shortfall, self.price))


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

    def value(self, at: Outcome) -> float:
        """Return the mean loss of the actions."""
        return _mean_over_folds(at, self._mean_loss)

    def _mean_loss(self, sets: PredictionSets, y: AnyArray, record: Prediction) -> float:
        """Choose the best action for each set, and return the mean loss at the true labels."""
        if not (isinstance(sets, LabelSets) and isinstance(record, ClassRecord)):
            raise ValueError("a decision loss is for label sets.")
        labels: Any = self.labels
        if labels is None and sets.classes is not None:
            labels = np.sort(sets.classes)

        actions = act(sets, record, loss_matrix=self.loss_matrix, labels=labels).actions
        columns = np.asarray(y)
        if labels is not None:
            columns = codes_of(columns, np.asarray(labels))
        losses = np.asarray(self.loss_matrix)[actions, columns]
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

    def value(self, at: Outcome) -> float:
        """Return what the function says."""
        return _mean_over_folds(at, lambda sets, y, record: self.function(sets, y))


def _mean_over_folds(
    at: Outcome, function: Callable[[PredictionSets, AnyArray, Prediction], float]
) -> float:
    """Return the mean of the function over the folds, each weighted by its number of rows."""
    values = []
    n_rows = []
    for sets, y, record in at.sets():
        values.append(float(function(sets, y, record)))
        n_rows.append(len(y))

    mean = values[0]  # of a single fold, without a rounding error
    if len(values) > 1:
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
