"""Prediction records: what a fitted model hands to a score, as small frozen records of arrays.

A record knows nothing of the model that made it, so people who have only logits or posterior draws
can use every score. Records about classes hold arrays of a GPU where they are. All other arrays
become NumPy's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import (
    AnyArray,
    Array,
    Floats,
    Integers,
    as_labels,
    namespace,
    to_array,
    to_device_of,
    to_numpy,
)
from dco.sets.labels import codes_of

LARGEST_PROBABILITY = 1 + 1e-3  # models round
_MOST_LEVELS_OF_DRAWS = 199
_LARGEST_QUANTILE = np.float64(1e307)  # differences of quantiles must be finite


class Prediction(ABC):
    """What a model says about some rows."""

    uniforms: Floats | None = None  # one number in [0, 1) per row, for randomised scores

    @abstractmethod
    def __len__(self) -> int:
        """Count the rows."""

    @abstractmethod
    def take(self, rows: Integers | slice) -> Self:
        """Return the record of some of the rows."""

    def on_host(self) -> Self:
        """Return the same record in NumPy's arrays."""
        return self

    @property
    def n_classes(self) -> int:
        """The number of labels; 0 for a record about numbers."""
        return 0

    def labels(self) -> AnyArray | None:
        """Return the names of all labels, or None if they are the integers 0..K-1 or there are
        none.
        """
        return None

    @property
    def centres(self) -> Floats:
        """One number per row to order rows by, (n,): a point prediction, for classes the largest
        probability.
        """
        return np.zeros(len(self))

    def _with(self, **parts: Any) -> Self:
        """Copy the record with other values for some of its fields, which are not checked again."""
        changed = object.__new__(type(self))
        vars(changed).update(vars(self))
        vars(changed).update(parts)
        return changed


class ClassRecord(Prediction):
    """A prediction of class probabilities; `ClassProbabilities` says what the fields are."""

    classes: AnyArray | None
    unseen: AnyArray | None

    @property
    @abstractmethod
    def array(self) -> Any:
        """All probabilities, labels along the last axis and rows along the one before."""

    @abstractmethod
    def as_probabilities(self) -> ClassProbabilities:
        """Return one probability per row and label."""

    def __len__(self) -> int:
        return int(self.array.shape[-2])

    @property
    def n_known(self) -> int:
        """The number of labels that have a probability."""
        return int(self.array.shape[-1])

    @property
    def n_unseen(self) -> int:
        """The number of labels that the model has never seen."""
        return 0 if self.unseen is None else len(self.unseen)

    @property
    def n_classes(self) -> int:
        """The number of labels, those that the model has never seen included."""
        return self.n_known + self.n_unseen

    @property
    def centres(self) -> Floats:
        """The largest probability of each row."""
        return np.asarray(self.on_host().as_probabilities().probabilities.max(axis=1))

    def labels(self) -> AnyArray | None:
        """Return the names of all labels, known ones first, or None if they are the integers
        0..K-1.
        """
        if self.classes is None or self.unseen is None:
            return self.classes

        parts = [self.classes, self.unseen]
        are_texts = {part.dtype.kind in "US" for part in parts}
        if len(are_texts) > 1:  # joined as they are, numbers would turn into text
            parts = [part.astype(object) for part in parts]
        return np.concatenate(parts)

    def codes(self, y: ArrayLike) -> Integers:
        """Return the column of each label.

        A column from `n_known` on belongs to a label that the model has never seen.
        """
        labels = as_labels(y)
        if labels.shape != (len(self),):
            raise ValueError(
                f"y must hold one label for each of the {len(self)} rows, got shape {labels.shape}."
            )
        names = self.labels()
        columns = self._columns_of_numbers(labels) if names is None else _find(labels, names)
        return to_device_of(columns, self.array)  # type: ignore[no-any-return]

    def _columns_of_numbers(self, labels: AnyArray) -> Integers:
        """Return labels that are column numbers as they are, and refuse all others.

        Without `classes`, the labels of K columns are 0..K-1.
        """
        advice = "Pass classes= to the prediction record to use other labels."
        if labels.dtype.kind not in "iu":
            raise ValueError(
                f"y has dtype {labels.dtype}, but without classes= labels are the column "
                f"numbers 0..{self.n_known - 1}. {advice}"
            )
        if labels.size and (labels.min() < 0 or labels.max() >= self.n_known):
            raise ValueError(
                f"y holds labels from {labels.min()} to {labels.max()}, but there are "
                f"{self.n_known} columns, counted from 0. {advice}"
            )
        return labels.astype(np.int64, copy=False)

    def labelled(
        self, classes: ArrayLike | None, uniforms: ArrayLike | None, unseen: ArrayLike | None
    ) -> Self:
        """Return a record of the same probabilities with other labels, uniforms and unseen labels.

        `ClassProbabilities` says what these are.
        """
        names = None if classes is None else _read_classes(classes, n_known=self.n_known)
        return self._with(
            classes=names,
            uniforms=None if uniforms is None else _read_uniforms(uniforms, self),
            unseen=None if unseen is None else _read_unseen(unseen, classes=names),
        )

    def _set_labels(
        self, classes: ArrayLike | None, uniforms: ArrayLike | None, unseen: ArrayLike | None
    ) -> None:
        """Check the fields beside the probabilities while the record is made."""
        labelled = self.labelled(classes, uniforms, unseen)
        for name in ("classes", "uniforms", "unseen"):
            object.__setattr__(self, name, getattr(labelled, name))


@dataclass(frozen=True, eq=False)
class ClassProbabilities(ClassRecord):
    """Class probabilities, (n, K).

    `classes` (K,) names the columns: y and prediction sets then speak labels. Without it y must be
    integers 0..K-1. `uniforms` (n,) in [0, 1) serve randomised scores, one per row: they must not
    depend on y. `unseen` lists labels that exist but that the model has never seen; every score
    gives them +inf, so they are in a set only when its threshold is infinite.
    """

    probabilities: Floats
    classes: AnyArray | None = None
    uniforms: Floats | None = None
    unseen: AnyArray | None = None

    def __init__(
        self,
        probabilities: ArrayLike,
        classes: ArrayLike | None = None,
        uniforms: ArrayLike | None = None,
        unseen: ArrayLike | None = None,
    ) -> None:
        matrix = _read_matrix(probabilities, "probabilities")
        _check_probabilities(matrix, "probabilities")
        object.__setattr__(self, "probabilities", matrix)
        self._set_labels(classes, uniforms, unseen)

    @classmethod
    def from_logits(
        cls,
        logits: ArrayLike,
        *,
        temperature: float = 1.0,
        classes: ArrayLike | None = None,
        uniforms: ArrayLike | None = None,
        unseen: ArrayLike | None = None,
    ) -> Self:
        """Make the record from logits, by a softmax on the device where the logits are.

        Half precision (float16, bfloat16) becomes single first. Libraries and devices round exp
        differently in the last bit; given the same probabilities, sets are the same everywhere.

        Parameters
        ----------
        logits
            (n, K) real numbers.
        temperature
            The softmax is of logits / temperature. Fit it on tuning rows: a temperature fitted on
            calibration rows voids the guarantee.
        classes, uniforms, unseen
            The other fields of the record.
        """
        matrix = _read_matrix(logits, "logits")
        if not (isinstance(temperature, Real) and 0 < temperature < np.inf):
            raise ValueError(f"temperature must be a finite number above 0, got {temperature!r}.")

        record = object.__new__(cls)
        object.__setattr__(record, "probabilities", _softmax(matrix, float(temperature)))
        record._set_labels(classes, uniforms, unseen)
        return record

    @property
    def array(self) -> Any:
        """The probabilities."""
        return self.probabilities

    def as_probabilities(self) -> ClassProbabilities:
        """Return the record itself."""
        return self

    def take(self, rows: Integers | slice) -> Self:
        """Return the record of some of the rows."""
        return self._with(
            probabilities=_take_rows(self.probabilities, rows, axis=0),
            uniforms=None if self.uniforms is None else _take_rows(self.uniforms, rows, axis=0),
        )

    def on_host(self) -> Self:
        """Return the same record in NumPy's arrays."""
        return self._with(
            probabilities=to_numpy(self.probabilities),
            uniforms=None if self.uniforms is None else to_numpy(self.uniforms),
        )


@dataclass(frozen=True, eq=False)
class ClassDraws(ClassRecord):
    """Class probabilities of T Monte-Carlo-dropout passes or posterior draws, (T, n, K).

    The other fields are those of `ClassProbabilities`.
    """

    draws: Floats
    classes: AnyArray | None = None
    uniforms: Floats | None = None
    unseen: AnyArray | None = None

    def __init__(
        self,
        draws: ArrayLike,
        classes: ArrayLike | None = None,
        uniforms: ArrayLike | None = None,
        unseen: ArrayLike | None = None,
    ) -> None:
        """Read the probabilities of T posterior draws for n rows and K classes, and check them.

        `draws` has the shape (T, n, K). The record is frozen, so that its fields are set by
        `object.__setattr__`.
        """
        array = _read_floats(draws, "draws")
        if array.ndim != 3 or array.shape[0] == 0 or array.shape[2] == 0:
            raise ValueError(
                f"draws must have shape (T, n, K) with T, K >= 1, got shape {array.shape}."
            )
        _check_probabilities(array, "draws")
        object.__setattr__(self, "draws", array)
        self._set_labels(classes, uniforms, unseen)

    @property
    def array(self) -> Any:
        """The draws."""
        return self.draws

    def as_probabilities(self) -> ClassProbabilities:
        """Return the mean over draws."""
        return self.mean()

    def mean(self) -> ClassProbabilities:
        """Return the posterior predictive probabilities, the mean over draws.

        Draws are added in their order, so that the layout in memory does not matter.
        """
        xp = namespace(self.draws)
        total = xp.astype(self.draws[0, ...], xp.float64, copy=True)
        for draw in range(1, self.draws.shape[0]):
            total += self.draws[draw, ...]

        # a GPU may round a division by a number otherwise than one by an array
        n_draws = xp.full((1, 1), self.draws.shape[0], dtype=xp.float64, device=total.device)
        return ClassProbabilities(total / n_draws, self.classes, self.uniforms, self.unseen)

    def take(self, rows: Integers | slice) -> Self:
        """Return the record of some of the rows."""
        return self._with(
            draws=_take_rows(self.draws, rows, axis=1),
            uniforms=None if self.uniforms is None else _take_rows(self.uniforms, rows, axis=0),
        )

    def on_host(self) -> Self:
        """Return the same record in NumPy's arrays."""
        return self._with(
            draws=to_numpy(self.draws),
            uniforms=None if self.uniforms is None else to_numpy(self.uniforms),
        )


@dataclass(frozen=True, eq=False)
class Points(Prediction):
    """A point prediction per row, (n,)."""

    mean: Floats

    def __init__(self, mean: ArrayLike) -> None:
        object.__setattr__(self, "mean", _read_column(mean, "mean"))

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def centres(self) -> Floats:
        """The points."""
        return self.mean

    def take(self, rows: Integers | slice) -> Self:
        """Return the record of some of the rows."""
        return self._with(mean=self.mean[rows])


@dataclass(frozen=True, eq=False)
class PointsWithSpread(Prediction):
    """A point prediction and a spread (a scale of the error, >= 0) per row."""

    mean: Floats
    spread: Floats

    def __init__(self, mean: ArrayLike, spread: ArrayLike) -> None:
        """Read a mean and a spread for each row, and check that no spread is negative."""
        points = _read_column(mean, "mean")
        scales = _read_column(spread, "spread", n_rows=points.size)
        if np.any(scales < 0):
            row = int(np.flatnonzero(scales < 0)[0])
            raise ValueError(f"spread must not be negative, but row {row} has {scales[row]}.")
        object.__setattr__(self, "mean", points)
        object.__setattr__(self, "spread", scales)

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def centres(self) -> Floats:
        """The points."""
        return self.mean

    def take(self, rows: Integers | slice) -> Self:
        """Return the record of some of the rows."""
        return self._with(mean=self.mean[rows], spread=self.spread[rows])


@dataclass(frozen=True, eq=False)
class Quantiles(Prediction):
    """A lower and an upper predicted quantile per row, and the median where a score asks for it.

    Crossed quantiles are sorted, and a median is moved between them.
    """

    lower: Floats
    upper: Floats
    median: Floats | None = None

    def __init__(self, lower: ArrayLike, upper: ArrayLike, median: ArrayLike | None = None) -> None:
        """Read the quantiles of each row, and put them in order where they cross."""
        low = _read_column(lower, "lower")
        high = _read_column(upper, "upper", n_rows=low.size)
        if np.any(low > high):
            smaller = np.minimum(low, high)
            larger = np.maximum(low, high)
            low = smaller
            high = larger

        middle = None
        if median is not None:
            middle = _read_column(median, "median", n_rows=low.size)
            if np.any((middle < low) | (middle > high)):
                middle = np.clip(middle, low, high)

        object.__setattr__(self, "lower", low)
        object.__setattr__(self, "upper", high)
        object.__setattr__(self, "median", middle)

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def centres(self) -> Floats:
        """The median, or the middle between the quantiles."""
        return (self.lower + self.upper) / 2 if self.median is None else self.median

    def take(self, rows: Integers | slice) -> Self:
        """Return the record of some of the rows."""
        return self._with(
            lower=self.lower[rows],
            upper=self.upper[rows],
            median=None if self.median is None else self.median[rows],
        )


@dataclass(frozen=True, eq=False)
class QuantileFunction(Prediction):
    """Predicted quantiles at L levels per row: row i is below values[i, j] with probability
    levels[j].

    `levels` (L,) are ascending numbers between 0 and 1, at least two; `values` is (n, L). Where the
    quantiles of a row cross, they are sorted; a row may have equal ones, for a value of y that has
    a probability of its own.
    """

    levels: Floats
    values: Floats

    def __init__(self, levels: ArrayLike, values: ArrayLike) -> None:
        """Read the quantiles of each row, and sort them where they cross."""
        array = _read_finite_matrix(values, "values")
        probabilities = np.asarray(_read_column(levels, "levels"), dtype=np.float64)
        _check_levels(probabilities)
        if array.shape[1] != probabilities.size:
            raise ValueError(
                f"values must have a column for each of the {probabilities.size} levels, got shape "
                f"{array.shape}."
            )
        object.__setattr__(self, "levels", probabilities)
        object.__setattr__(self, "values", np.sort(array, axis=1))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def centres(self) -> Floats:
        """The median of each row, as `values_at` gives it."""
        return self.values_at([0.5])[:, 0]

    def values_at(self, levels: ArrayLike) -> Floats:
        """Return quantiles at other levels, (n, number of levels), in float64.

        They are interpolated linearly. Beyond the outermost levels they are the outermost
        quantiles.
        """
        wanted = np.clip(levels, self.levels[0], self.levels[-1])
        right = np.clip(np.searchsorted(self.levels, wanted), 1, self.levels.size - 1)
        left = right - 1
        share = (wanted - self.levels[left]) / (self.levels[right] - self.levels[left])
        values = self.values.astype(np.float64, copy=False)
        return np.asarray((1 - share) * values[:, left] + share * values[:, right])

    def take(self, rows: Integers | slice) -> Self:
        """Return the record of some of the rows."""
        return self._with(values=self.values[rows])


@dataclass(frozen=True, eq=False)
class TargetDraws(Prediction):
    """T draws of y per row from a predictive distribution, (T, n), draws first.

    They are draws of y itself, noise included (posterior predictive), not of its mean.
    """

    draws: Floats

    def __init__(self, draws: ArrayLike) -> None:
        array = _read_finite_matrix(draws, "draws")
        if len(array) < 2:
            raise ValueError(
                f"draws must hold at least two draws of y per row, draws first, got shape "
                f"{array.shape}."
            )
        object.__setattr__(self, "draws", array)

    def __len__(self) -> int:
        return int(self.draws.shape[1])

    @property
    def centres(self) -> Floats:
        """The median of each row's draws, in float64."""
        return np.asarray(np.median(self.draws.astype(np.float64, copy=False), axis=0))

    def quantile_function(self) -> QuantileFunction:
        """Return the quantiles of each row's draws.

        The k-th smallest of T draws is the quantile at level k / (T + 1). More than 199 draws give
        the quantiles at 199 even levels.
        """
        n_levels = min(len(self.draws), _MOST_LEVELS_OF_DRAWS)
        levels = np.arange(1, n_levels + 1) / (n_levels + 1)
        if n_levels == len(self.draws):
            return QuantileFunction(levels, self.draws.T)
        values = np.quantile(self.draws, levels, axis=0, method="weibull")
        return QuantileFunction(levels, values.T)

    def take(self, rows: Integers | slice) -> Self:
        """Return the record of some of the rows."""
        return self._with(draws=self.draws[:, rows])


@dataclass(frozen=True, eq=False)
class GaussianMixtures(Prediction):
    """The posterior predictive of a Bayesian regression: each row is an even mixture of Gaussians.

    Row i has the T components N(means[t, i], sds[t, i]^2).

    `means` is (T, n), draws first as in `ClassDraws`; `sds` is (T,), shared by all rows, or (T, n).
    With ``draws_first=False`` both are given as (n, T). Where there are as many draws as rows, say
    which they are: without `draws_first` a square matrix is refused.
    """

    means: Floats
    sds: Floats

    def __init__(
        self, means: ArrayLike, sds: ArrayLike, *, draws_first: bool | None = None
    ) -> None:
        """Read the means and standard deviations of the T Gaussians in each of n rows' mixtures.

        `means` and `sds` have the shape (T, n), or (n, T) with draws_first=False; `sds` may be
        (T,). None is (T, n) too, but refuses a square matrix, whose layout nobody can tell.
        """
        centres = _read_on_host(means, "means")
        scales = _read_on_host(sds, "sds")
        if centres.ndim != 2:
            raise ValueError(f"means must be a (T, n) matrix, got shape {centres.shape}.")
        if draws_first is None and 1 < centres.shape[0] == centres.shape[1]:
            raise ValueError(
                f"means has as many draws as rows, {len(centres)}: pass draws_first=True if it is "
                "(T, n), a row of the matrix for each draw, and draws_first=False if it is (n, T)."
            )
        if draws_first is False:
            centres = centres.T
            scales = scales.T
        self._check(centres, scales)

        # Store (T, n) with the numbers of a row side by side in memory: sums over a row round
        # differently in another layout, and must not depend on what came in.
        object.__setattr__(self, "means", np.ascontiguousarray(centres.T).T)
        object.__setattr__(self, "sds", np.ascontiguousarray(scales.T).T)

    @staticmethod
    def _check(means: Floats, sds: Floats) -> None:
        """Refuse means (T, n) and standard deviations (T,) or (T, n) that make no mixtures."""
        n_draws = means.shape[0]
        if n_draws == 0:
            raise ValueError("means must hold at least one draw, got none.")
        if sds.shape not in ((n_draws,), means.shape):
            raise ValueError(
                f"sds must hold one number for each of the {n_draws} draws, or one for each of "
                f"means, which are {means.shape} as (T, n); got shape {sds.shape}. "
                "draws_first=False is for means of shape (n, T)."
            )
        if not np.all(np.isfinite(means)):
            raise ValueError("means must be finite.")
        if not (np.all(np.isfinite(sds)) and np.all(sds > 0)):
            raise ValueError("sds must be finite and greater than 0.")

    def __len__(self) -> int:
        return int(self.means.shape[1])

    @property
    def centres(self) -> Floats:
        """The mean of each mixture, in float64."""
        return np.asarray(self.means.T.mean(axis=1, dtype=np.float64))

    def take(self, rows: Integers | slice) -> Self:
        """Return the record of some of the rows."""
        return self._with(
            means=self.means.T[rows].T, sds=self.sds if self.sds.ndim == 1 else self.sds.T[rows].T
        )


def fifths(values: Floats) -> Integers:
    """Return which fifth of all values each value is in, from 0 (the lowest) to 4.

    Equal values are in the same fifth.
    """
    edges = np.quantile(values, (0.2, 0.4, 0.6, 0.8), method="inverted_cdf")
    return np.searchsorted(edges, values, side="left")


def _read_floats(values: Any, name: str) -> Any:
    """Convert numbers to single or double precision, without moving them off a GPU.

    Lists and NumPy arrays become NumPy arrays, arrays of torch and others stay what they are.
    `name` is what messages call the numbers; those that are not real are refused.
    """
    array = to_array(values)
    if isinstance(array, np.ndarray):
        return _read_on_host(array, name)

    xp = namespace(array)  # the functions of the library that the array belongs to
    if str(array.dtype).endswith("float16"):  # bfloat16 too
        return xp.astype(array, xp.float32)
    if xp.isdtype(array.dtype, ("bool", "integral")):
        return xp.astype(array, xp.float64)
    if not xp.isdtype(array.dtype, "real floating"):
        raise ValueError(f"{name} must be real numbers, got dtype {array.dtype}.")
    return array


def _read_on_host(values: ArrayLike, name: str) -> Floats:
    """Return real numbers as a NumPy array in single or double precision, in native byte order."""
    array = to_numpy(values)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be real numbers, got dtype {array.dtype}.")
    is_short = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    return array.astype(np.float32 if is_short else np.float64, copy=False)


def _read_matrix(values: ArrayLike, name: str) -> Any:
    """Return an (n, K) matrix of real numbers, on a GPU if it is there."""
    matrix = _read_floats(values, name)
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise ValueError(f"{name} must be an (n, K) matrix with K >= 1, got shape {matrix.shape}.")
    return matrix


def _read_column(values: ArrayLike, name: str, *, n_rows: int | None = None) -> Floats:
    """Return one finite number per row."""
    column = _read_on_host(values, name)
    if column.ndim != 1:
        raise ValueError(f"{name} must be one number per row, got shape {column.shape}.")
    if n_rows is not None and column.size != n_rows:
        raise ValueError(f"{name} has {column.size} rows where {n_rows} were expected.")
    if not np.all(np.isfinite(column)):
        row = int(np.flatnonzero(~np.isfinite(column))[0])
        raise ValueError(f"{name} must be finite, but row {row} is {column[row]}.")
    return column


def _read_finite_matrix(values: ArrayLike, name: str) -> Floats:
    """Return a matrix of finite real numbers whose differences are finite too."""
    matrix = _read_on_host(values, name)
    if matrix.ndim != 2:
        raise ValueError(f"{name} must be a matrix, got shape {matrix.shape}.")
    if not np.all(np.abs(matrix) <= _LARGEST_QUANTILE):  # False for NaN
        raise ValueError(f"{name} must be finite, and not beyond {_LARGEST_QUANTILE:g}.")
    return matrix


def _check_levels(levels: Floats) -> None:
    """Refuse levels that are not at least two ascending numbers between 0 and 1."""
    is_inside = np.all((levels > 0) & (levels < 1))
    if levels.size < 2 or not is_inside or not np.all(np.diff(levels) > 0):
        raise ValueError(
            f"levels must be at least two ascending numbers between 0 and 1, got "
            f"{levels.tolist()!r:.200}."
        )


def _softmax(logits: Any, temperature: float) -> Any:
    """Return exp(logits / temperature) divided by its sum, row by row, for logits of shape (n, K).

    The largest logit of each row is subtracted first, so that exp does not overflow.
    """
    xp = namespace(logits)  # NumPy, torch, or another library that the array belongs to
    with np.errstate(invalid="ignore"):  # rows that become NaN are refused below
        largest = xp.max(logits, axis=1, keepdims=True)
        probabilities = xp.exp((logits - largest) / temperature)
        probabilities /= xp.sum(probabilities, axis=1, keepdims=True)

    # All numbers of a row are NaN or none is, so the first column tells.
    is_nan = np.isnan(to_numpy(probabilities[:, 0]))
    if is_nan.any():
        row = int(np.flatnonzero(is_nan)[0])
        raise ValueError(
            f"logits must be numbers, at least one of a row finite and none +inf, which row {row} "
            f"breaks."
        )
    return probabilities


def _check_probabilities(array: Array, name: str) -> None:
    """Refuse probabilities that are NaN or outside [0, 1], and say what may have gone wrong.

    `array` has labels along its last axis and rows along the one before. `name` is what messages
    call it.
    """
    if 0 in array.shape or _are_surely_probabilities(array):
        return
    xp = namespace(array)  # NumPy, torch, or another library that the array belongs to
    smallest = float(xp.min(array))
    largest = float(xp.max(array))
    if smallest >= 0 and largest <= LARGEST_PROBABILITY:
        return

    values = to_numpy(array)
    if np.isnan(smallest):
        row_axis = values.ndim - 2
        other_axes = tuple(axis for axis in range(values.ndim) if axis != row_axis)
        rows = np.flatnonzero(np.isnan(values).any(axis=other_axes))
        raise ValueError(
            f"{name} are NaN in {len(rows)} rows (first: row {rows[0]}); a model that gives "
            "them has not learnt, or its features hold NaN there."
        )
    if smallest >= 0 and _look_like_percentages(values):
        raise ValueError(
            f"{name} must lie in [0, 1], and these look like percentages: divide them by 100."
        )
    raise ValueError(
        f"{name} must lie in [0, 1], got values from {smallest} to {largest}. Logits go "
        f"through a softmax first."
    )


def _look_like_percentages(values: AnyArray) -> bool:
    """Return whether the numbers of each row sum to 100, or nearly so where they were rounded."""
    sums_to_100 = np.allclose(values.sum(axis=-1), 100, atol=1.5)
    return bool(sums_to_100 and values.max() <= 101)


def _are_surely_probabilities(array: Array) -> bool:
    """Return True if all numbers of a NumPy array lie between 0 and 1; False may mean unknown.

    The plain test is ``array.min() >= 0 and array.max() <= 1``. This one reads the array once, not
    twice, which saves LAC a fifth of its time: read as unsigned integers, the bits of floats from 0
    on are in the order of the floats, and those of negative numbers and NaN are larger than all.
    """
    if not isinstance(array, np.ndarray):
        return False
    unsigned = np.dtype(f"u{array.itemsize}")
    largest_allowed = array.dtype.type(LARGEST_PROBABILITY)
    return bool(array.view(unsigned).max() <= largest_allowed.view(unsigned))


def _read_classes(classes: ArrayLike, *, n_known: int) -> AnyArray:
    """Return the names of the columns."""
    names = as_labels(classes)
    if names.shape != (n_known,) or not _are_distinct(names):
        raise ValueError(
            f"classes must hold {n_known} distinct labels, one per column, got "
            f"{names.tolist()!r:.200}."
        )
    return names


def _read_uniforms(uniforms: ArrayLike, record: ClassRecord) -> Floats:
    """Read one random number in [0, 1] per row, and move it to the device of the probabilities."""
    numbers = _read_floats(uniforms, "uniforms")
    if numbers.shape != (len(record),):
        raise ValueError(
            f"uniforms must hold one number for each of the {len(record)} rows, got "
            f"shape {numbers.shape}."
        )
    numbers = to_device_of(numbers, record.array)
    xp = namespace(numbers)
    if len(record) and not (xp.min(numbers) >= 0 and xp.max(numbers) <= 1):
        raise ValueError("uniforms must lie in [0, 1].")
    return numbers  # type: ignore[no-any-return]


def _read_unseen(unseen: ArrayLike, *, classes: AnyArray | None) -> AnyArray | None:
    """Read a list of labels that the model has never seen; None if the list is empty.

    `classes` are the labels that it knows, one for each column of probabilities. The unseen ones
    must be other labels, each listed once.
    """
    labels = as_labels(unseen)
    if labels.ndim != 1:
        raise ValueError(f"unseen must be a list of labels, got {unseen!r:.200}.")
    if not len(labels):
        return None
    if classes is None:
        raise ValueError("unseen= lists labels by name, so classes= must name the columns too.")
    if np.any(codes_of(labels, classes) >= 0) or not _are_distinct(labels):
        raise ValueError("unseen must hold distinct labels that are not among classes.")
    return labels


def _are_distinct(labels: AnyArray) -> bool:
    """Say whether no label occurs twice and none is NaN, which equals no label, not even itself."""
    values = labels.tolist()
    return len(set(values)) == len(values) and all(value == value for value in values)


def _find(labels: AnyArray, names: AnyArray) -> Integers:
    """Return the position of each label among `names`, and refuse a label that is not there."""
    columns = codes_of(labels, names)
    if np.any(columns < 0):
        row = int(np.flatnonzero(columns < 0)[0])
        raise ValueError(
            f"y holds the label {labels.tolist()[row]!r} (row {row}), which is not among the "
            f"{len(names)} classes. If the model has never seen it, list it in unseen= of the "
            "prediction record: it then scores +inf."
        )
    return columns


def _take_rows(array: Array, rows: Integers | slice, *, axis: int) -> Array:
    """Return some rows of an array where it is: a view of a slice, a copy of numbered rows."""
    if not isinstance(rows, slice):
        return namespace(array).take(array, to_device_of(rows, array), axis=axis)
    return array[rows, ...] if axis == 0 else array[:, rows, ...]
