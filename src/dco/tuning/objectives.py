"""What a search minimises: a family. A member gives one number for each candidate at its own
threshold on the tuning rows.

Calibration rows do not know how the structure was chosen, so every objective leaves the guarantee
untouched. A new one is one class with `value`, registered by `register_objective`: estimators,
`dco.tune`, command line and certificate then know it by its name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.foundations.ranks import clopper_pearson_upper
from dco.predictions import ClassRecord, Prediction, fifths
from dco.scores.decision import act
from dco.sets.labels import LabelSets, codes_of
from dco.sets.prediction_sets import PredictionSets
from dco.tuning.ranking import EvaluatedCandidate, RankingRow

_ERROR = 0.05  # the probability of finding a structure uneven that is not


@dataclass(frozen=True, eq=False)
class Outcome:
    """One candidate at its own threshold on the tuning rows: all that an objective may look at."""

    row: RankingRow
    entry: EvaluatedCandidate
    covered: Bools
    sizes: Floats
    cutoffs: float | Floats  # as the score reads them
    alpha: float
    slices: Mapping[str, Integers] = field(default_factory=dict)  # the caller's, as codes
    clusters: Integers | None = None  # of rows that belong together, as codes
    weights: Floats | None = None  # of rows, where clusters weigh the same

    def sets(self) -> Iterator[tuple[PredictionSets, AnyArray, Prediction]]:
        """The sets, the true values of their rows and the prediction: all at once, or fold by
        fold.
        """
        if self.entry.sets_at is None or self.entry.y is None:
            raise ValueError(
                f"{self.entry.name} has no sets, which this objective needs: give a "
                f"score and a prediction."
            )
        for rows, record, sets in self.entry.sets_at(self.cutoffs):
            yield sets, self.entry.y[rows], record

    def every_slice(self) -> list[Integers]:
        """The slices of the rows as codes: by class, by fifth of the prediction, and the caller's
        own.
        """
        found = [*self.slices.values()]
        if self.entry.n_labels is not None and self.entry.y is not None:
            found.append(np.unique(self.entry.y, return_inverse=True)[1])
        return found if self.entry.centres is None else [*found, fifths(self.entry.centres())]


class Objective(ABC):
    """What a search minimises. Objectives of your own derive from it as frozen dataclasses, or are
    plain functions.
    """

    name: ClassVar[str]
    words: ClassVar[str]  # as the certificate says it
    columns: tuple[Any, ...] = ()  # columns or functions of X whose values are slices
    reads_sets: ClassVar[bool] = False

    @abstractmethod
    def value(self, at: Outcome) -> float:
        """The number to minimise."""

    def shortfall(self, at: Outcome) -> float:
        """What the candidate lacks to qualify: candidates are compared by it first."""
        return 0.0


@dataclass(frozen=True)
class MeanSize(Objective):
    """The paper's objective: the mean size of the sets."""

    name = "mean_size"
    words = "smallest mean size"

    def value(self, at: Outcome) -> float:
        """The mean size."""
        return at.row.mean_size


@dataclass(frozen=True)
class P95Size(Objective):
    """The 95 % quantile of the sizes: no few rows with sets of no use."""

    name = "p95_size"
    words = "smallest P95 size"

    def value(self, at: Outcome) -> float:
        """The P95 size."""
        return at.row.p95_size


@dataclass(frozen=True)
class Even(Objective):
    """The smallest mean size among structures that cover every slice of the tuning rows about as
    often as the level asks.

    Slices are the classes, the fifths of the candidate's own prediction (for classes of its largest
    probability), and the columns or functions of X in `by`. Slice s with n_s rows of which h_s are
    covered lacks

        min(1 - alpha - U(h_s, n_s), 1 - alpha - tolerance - h_s / n_s),

    where U is the one-sided Clopper-Pearson upper bound at error .05 / (number of slices). A
    structure qualifies if no slice lacks anything: coverage is within the tolerance of the level,
    or chance explains the rest. So a structure that covers every slice at the level is turned away
    with probability at most .05, however small the slices. If none qualifies, the one whose worst
    slice lacks least is best, in whole percentage points, so that size decides between those that
    are about as even. An empty set counts as the whole: all labels, or the range of the targets.
    """

    tolerance: float = 0.05
    by: Any = ()

    name = "even"
    words = "smallest mean size among even structures"

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"tolerance must lie between 0 and 1, got {self.tolerance!r}.")

    @property
    def columns(self) -> tuple[Any, ...]:  # type: ignore[override]
        """`by` as a tuple."""
        return tuple(self.by) if isinstance(self.by, (list, tuple)) else (self.by,)

    def value(self, at: Outcome) -> float:
        """The mean size, an empty set counted as the whole."""
        silent = (at.sizes == 0) & ~at.covered
        if at.entry.y is None or not silent.any():
            return at.row.mean_size
        whole = float(np.ptp(at.entry.y)) if at.entry.n_labels is None else at.entry.n_labels
        return float(np.average(np.where(silent, whole, at.sizes), weights=at.weights))

    def shortfall(self, at: Outcome) -> float:
        """What the worst slice lacks."""
        counts = [_hits(at, codes) for codes in at.every_slice()]
        if not counts:
            return 0.0
        hits, rows = (np.concatenate(parts) for parts in zip(*counts, strict=True))
        least, bound = 1 - at.alpha, clopper_pearson_upper(hits, rows, _ERROR / rows.size)
        lacking = float(np.minimum(least - bound, least - self.tolerance - hits / rows).max())
        return max(0, math.ceil(100 * lacking)) / 100


def _hits(at: Outcome, codes: Integers) -> tuple[Floats, Floats]:
    """Covered rows and rows of each slice that has any; of rows that belong together, shares of as
    many clusters.
    """
    weights = np.ones(len(codes)) if at.weights is None else at.weights
    mass, covered = np.bincount(codes, weights), np.bincount(codes, weights * at.covered)
    rows = mass
    if at.clusters is not None:
        rows = np.bincount(np.unique(np.stack([codes, at.clusters]), axis=1)[0]).astype(np.float64)
    some = mass > 0
    return np.asarray(covered[some] / mass[some] * rows[some]), np.asarray(rows[some])


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
        object.__setattr__(
            self,
            "loss_matrix",
            tuple(map(tuple, np.asarray(loss_matrix, dtype=np.float64).tolist())),
        )
        object.__setattr__(self, "labels", None if labels is None else tuple(labels))

    def value(self, at: Outcome) -> float:
        """The mean loss of the actions."""
        return _over_folds(at, self._loss)

    def _loss(self, sets: PredictionSets, y: AnyArray, record: Prediction) -> float:
        if not (isinstance(sets, LabelSets) and isinstance(record, ClassRecord)):
            raise ValueError("a decision loss is for label sets.")
        names = (
            np.sort(sets.classes)
            if self.labels is None and sets.classes is not None
            else self.labels
        )
        actions = act(sets, record, loss_matrix=self.loss_matrix, labels=names).actions
        columns = np.asarray(y) if names is None else codes_of(np.asarray(y), np.asarray(names))
        return float(np.asarray(self.loss_matrix)[actions, columns].mean())


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
        """With the name of the function."""
        return f"smallest {getattr(self.function, '__qualname__', type(self.function).__name__)}"

    def value(self, at: Outcome) -> float:
        """What the function says."""
        return _over_folds(at, lambda sets, y, record: self.function(sets, y))


def _over_folds(
    at: Outcome, function: Callable[[PredictionSets, AnyArray, Prediction], float]
) -> float:
    found = [(len(y), float(function(sets, y, record))) for sets, y, record in at.sets()]
    value = (
        found[0][1]
        if len(found) == 1
        else sum(n * each for n, each in found) / sum(n for n, _ in found)
    )
    if np.isnan(value):
        raise ValueError("the objective is NaN.")
    return value


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
register_objective(Even())
# of the default candidates for numbers (benchmarks/tables.py); otherwise it is the paper's,
# "mean_size"
DEFAULT = "even"

Aimed: TypeAlias = str | Objective | Callable[[PredictionSets, AnyArray], float]


def objective_of(given: Any) -> Objective:
    """The objective that a name, an objective or a function stands for."""
    if isinstance(given, Objective):
        return given
    if isinstance(given, str) and given in OBJECTIVES:
        return OBJECTIVES[given]
    if callable(given) and not isinstance(given, type):
        return Custom(given)
    names = ", ".join(f'"{name}"' for name in OBJECTIVES)
    wanted = f"one of {names}, an objective of dco.objectives, or a function of (sets, y)"
    raise ValueError(f"objective must be {wanted}; got {given!r:.200}.")
