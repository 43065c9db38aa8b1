"""What a fitted model hands to a score: small frozen records of arrays.

A record knows nothing of the model that made it, so people who have only logits or posterior draws
can use every score. Records about classes hold arrays of torch, CuPy and JAX where they are; those
about numbers copy them to the host.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations import arrays
from dco.foundations.arrays import (
    AnyArray,
    Floats,
    Integers,
    as_labels,
    beside,
    doubles,
    namespace,
    to_numpy,
)
from dco.sets.labels import codes_of

Record = TypeVar("Record", bound="Prediction")
_set = object.__setattr__  # records are frozen once they are made


class Prediction(ABC):
    """What every record offers: its rows, and its labels if it is about classes (none
    otherwise).
    """

    uniforms: Floats | None = None  # one number in [0, 1) per row, for randomised scores

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def n_classes(self) -> int:
        """How many labels there are, 0 for a record about numbers."""
        return 0

    def labels(self) -> AnyArray | None:
        """The names of all labels, or None if labels are the integers 0..K-1 or there are none."""
        return None

    @property
    def centres(self) -> Floats:
        """One number per row to order rows by, (n,): a point prediction, for classes the largest
        probability.
        """
        return np.zeros(len(self))


class ClassRecord(Prediction):
    """What records about classes share: labels, and uniforms for randomised scores (see
    `ClassProbabilities`).
    """

    classes: AnyArray | None
    unseen: AnyArray | None

    @property
    @abstractmethod
    def array(self) -> Any:
        """All probabilities, labels along the last axis."""

    @property
    def n_known(self) -> int:
        """How many labels have a probability."""
        return int(self.array.shape[-1])

    def __len__(self) -> int:
        return int(self.array.shape[-2])

    @abstractmethod
    def as_probabilities(self) -> ClassProbabilities:
        """One probability per row and label: the mean over draws, where there are several."""

    @property
    def n_classes(self) -> int:
        """How many labels there are, those the model has never seen included."""
        return self.n_known + (0 if self.unseen is None else len(self.unseen))

    @property
    def centres(self) -> Floats:
        """The largest probability of each row."""
        return np.asarray(on_host(self).as_probabilities().probabilities.max(axis=1))

    def labels(self) -> AnyArray | None:
        """The names of all labels, known first, or None if labels are the integers 0..K-1."""
        if self.classes is None or self.unseen is None:
            return self.classes
        parts = [self.classes, self.unseen]
        # joined as they are, numbers would turn into text
        if len({part.dtype.kind in "US" for part in parts}) > 1:
            parts = [part.astype(object) for part in parts]
        return np.concatenate(parts)

    def codes(self, y: ArrayLike) -> Integers:
        """Each label's column; a column >= `n_known` belongs to a label the model has never
        seen.
        """
        return beside(self._codes(y), self.array)  # type: ignore[no-any-return]

    def _codes(self, y: ArrayLike) -> Integers:
        labels, names, k = as_labels(y), self.labels(), self.n_known
        if labels.shape != (len(self),):
            raise ValueError(
                f"y must hold one label for each of the {len(self)} rows, got shape {labels.shape}."
            )
        if names is None:
            use = "Pass classes= to the prediction record to use other labels."
            if labels.dtype.kind not in "iu":
                raise ValueError(
                    f"y has dtype {labels.dtype}, but without classes= labels are the column "
                    f"numbers 0..{k - 1}. {use}"
                )
            columns = labels.astype(np.int64, copy=False)
            # numbers below 0 are the largest there
            if labels.size and columns.view(np.uint64).max() >= k:
                raise ValueError(
                    f"y holds labels from {labels.min()} to {labels.max()}, but there are {k} "
                    f"columns, counted from 0. {use}"
                )
            return columns
        codes = codes_of(labels, names)
        if np.any(codes < 0):
            row = int(np.flatnonzero(codes < 0)[0])
            raise ValueError(
                f"y holds the label {labels.tolist()[row]!r} (row {row}), which is not among the "
                f"{len(names)} classes. If "
                "the model has never seen it, list it in unseen= of the prediction record: it "
                "then scores +inf."
            )
        return codes

    def labelled(
        self: ClassRecordT,
        classes: ArrayLike | None,
        uniforms: ArrayLike | None,
        unseen: ArrayLike | None,
    ) -> ClassRecordT:
        """The same probabilities, which are not checked again, with these labels and uniforms."""
        return _with_labels(copy.copy(self), classes, uniforms, unseen)


ClassRecordT = TypeVar("ClassRecordT", bound=ClassRecord)


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
        matrix = _floats_anywhere(probabilities, "probabilities")
        if matrix.ndim != 2 or matrix.shape[1] == 0:
            raise ValueError(
                f"probabilities must be an (n, K) matrix with K >= 1, got shape {matrix.shape}."
            )
        _check_probabilities(matrix, "probabilities")
        _set(self, "probabilities", matrix)
        _with_labels(self, classes, uniforms, unseen)

    @classmethod
    def from_logits(
        cls, logits: ArrayLike, *, temperature: float = 1.0, classes: ArrayLike | None = None
    ) -> ClassProbabilities:
        """The softmax of logits / temperature, (n, K), computed where the logits are.

        Half precision (float16, bfloat16) becomes single first. Libraries and devices round exp
        differently in the last bit; given the same probabilities, sets are the same everywhere. A
        temperature fitted on calibration rows voids the guarantee: fit it on tuning rows.
        """
        values = _floats_anywhere(logits, "logits")
        if values.ndim != 2 or values.shape[1] == 0:
            raise ValueError(
                f"logits must be an (n, K) matrix with K >= 1, got shape {values.shape}."
            )
        if not (isinstance(temperature, Real) and 0 < temperature < np.inf):
            raise ValueError(f"temperature must be a finite number above 0, got {temperature!r}.")
        xp = namespace(values)
        if temperature == 1 and hasattr(values, "softmax"):  # torch, in one pass
            weights = values.softmax(1)
        else:
            with np.errstate(invalid="ignore"):  # told below
                weights = xp.exp((values - xp.max(values, axis=1, keepdims=True)) / temperature)
                weights /= xp.sum(weights, axis=1, keepdims=True)
        # a row has no softmax at all or is one throughout: it needs no other look
        first = weights[:, 0]
        if not bool(xp.all(first == first)):
            row = int(np.flatnonzero(np.isnan(to_numpy(first)))[0])
            raise ValueError(
                f"logits must be numbers, at least one of a row finite and none "
                f"+inf, which row {row} breaks."
            )
        record = object.__new__(cls)
        _set(record, "probabilities", weights)
        return _with_labels(record, classes, None, None)

    @property
    def array(self) -> Any:
        """The probabilities."""
        return self.probabilities

    def as_probabilities(self) -> ClassProbabilities:
        """The record itself."""
        return self


@dataclass(frozen=True, eq=False)
class ClassDraws(ClassRecord):
    """Class probabilities of T Monte-Carlo-dropout passes or posterior draws, (T, n, K); else as
    `ClassProbabilities`.
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
        array = _floats_anywhere(draws, "draws")
        if array.ndim != 3 or array.shape[0] == 0 or array.shape[2] == 0:
            raise ValueError(
                f"draws must have shape (T, n, K) with T, K >= 1, got shape {array.shape}."
            )
        _check_probabilities(array, "draws")
        _set(self, "draws", array)
        _with_labels(self, classes, uniforms, unseen)

    @property
    def array(self) -> Any:
        """The draws."""
        return self.draws

    def as_probabilities(self) -> ClassProbabilities:
        """The mean over draws."""
        return self.mean()

    def mean(self) -> ClassProbabilities:
        """The posterior predictive probabilities: the mean over draws, added in order so that
        layout is irrelevant.
        """
        total = doubles(self.draws[0, ...])
        for draw in range(1, self.draws.shape[0]):
            total += self.draws[draw, ...]
        return ClassProbabilities(
            total / arrays.one_number(self.draws.shape[0], total),
            self.classes,
            self.uniforms,
            self.unseen,
        )


class _Centred(Prediction):
    """What records with a point prediction share."""

    mean: Floats
    centres = property(attrgetter("mean"), doc="The points.")

    def __len__(self) -> int:
        return len(self.mean)


@dataclass(frozen=True, eq=False)
class Points(_Centred):
    """A point prediction per row, (n,)."""

    mean: Floats

    def __init__(self, mean: ArrayLike) -> None:
        _set(self, "mean", _finite_column(mean, "mean"))


@dataclass(frozen=True, eq=False)
class PointsWithSpread(_Centred):
    """A point prediction and a spread (a scale of the error, >= 0) per row."""

    mean: Floats
    spread: Floats

    def __init__(self, mean: ArrayLike, spread: ArrayLike) -> None:
        _set(self, "mean", _finite_column(mean, "mean"))
        _set(self, "spread", _finite_column(spread, "spread", like=self.mean))
        if np.any(self.spread < 0):
            row = int(np.flatnonzero(self.spread < 0)[0])
            raise ValueError(f"spread must not be negative, but row {row} has {self.spread[row]}.")


@dataclass(frozen=True, eq=False)
class Quantiles(Prediction):
    """A lower and an upper predicted quantile per row (sorted if crossed), and the median where a
    score asks for it.
    """

    lower: Floats
    upper: Floats
    median: Floats | None = None

    def __init__(self, lower: ArrayLike, upper: ArrayLike, median: ArrayLike | None = None) -> None:
        low = _finite_column(lower, "lower")
        high = _finite_column(upper, "upper", like=low)
        if (low > high).any():
            low, high = np.minimum(low, high), np.maximum(low, high)
        _set(self, "lower", low)
        _set(self, "upper", high)
        middle = None if median is None else _finite_column(median, "median", like=low)
        if middle is not None and ((middle < low) | (middle > high)).any():
            middle = np.clip(middle, low, high)
        _set(self, "median", middle)

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def centres(self) -> Floats:
        """The median, or the middle between the quantiles."""
        return (self.lower + self.upper) / 2 if self.median is None else self.median


@dataclass(frozen=True, eq=False)
class GaussianMixtures(Prediction):
    """The posterior predictive of a Bayesian regression: row i is an even mixture of N(means[i, t],
    sds[i, t]^2).

    `means` is (n, T); `sds` is (T,), shared by all rows, or (n, T).
    """

    means: Floats
    sds: Floats

    def __init__(self, means: ArrayLike, sds: ArrayLike) -> None:
        centres, scales = _floats(means, "means"), _floats(sds, "sds")
        if centres.ndim != 2 or centres.shape[1] == 0:
            raise ValueError(
                f"means must be an (n, T) matrix with T >= 1, got shape {centres.shape}."
            )
        if scales.shape not in ((centres.shape[1],), centres.shape):
            raise ValueError(
                f"sds must have shape (T,) = ({centres.shape[1]},) or "
                f"{centres.shape}, got {scales.shape}."
            )
        if not np.all(np.isfinite(centres)):
            raise ValueError("means must be finite.")
        if not (np.all(np.isfinite(scales)) and np.all(scales > 0)):
            raise ValueError("sds must be finite and greater than 0.")
        _set(self, "means", centres)
        _set(self, "sds", scales)

    def __len__(self) -> int:
        return int(self.means.shape[0])

    @property
    def centres(self) -> Floats:
        """The mean of each mixture, in float64."""
        return np.asarray(self.means.mean(axis=1, dtype=np.float64))


def fifths(values: Floats) -> Integers:
    """The fifth of each row by its value, 0 to 4; equal values share the lower one."""
    edges = np.quantile(values, (0.2, 0.4, 0.6, 0.8), method="inverted_cdf")
    return np.searchsorted(edges, values, side="left")


def take(prediction: Record, rows: Integers | slice) -> Record:
    """The same record for some of its rows."""
    parts: dict[str, Any]
    if isinstance(prediction, ClassRecord) and isinstance(rows, np.ndarray):
        rows = beside(rows, prediction.array)
    match prediction:
        case ClassProbabilities(probabilities, _, uniforms):
            parts = {
                "probabilities": probabilities[rows, :],
                "uniforms": None if uniforms is None else uniforms[rows],
            }
        case ClassDraws(draws, _, uniforms):
            parts = {
                "draws": draws[:, rows, :],
                "uniforms": None if uniforms is None else uniforms[rows],
            }
        case GaussianMixtures(means, sds):
            parts = {"means": means[rows], "sds": sds if sds.ndim == 1 else sds[rows]}
        case Points() | PointsWithSpread() | Quantiles():
            parts = {
                name: None if part is None else part[rows]
                for name, part in vars(prediction).items()
            }
        case _:
            raise TypeError(f"not a prediction record: {type(prediction).__name__}")
    some = copy.copy(prediction)  # what was checked as a whole needs no check in part
    for name, part in parts.items():
        _set(some, name, part)
    return some


def on_host(prediction: Record) -> Record:
    """The same record with NumPy's arrays, copied from an accelerator if need be."""
    if not isinstance(prediction, ClassRecord) or isinstance(prediction.array, np.ndarray):
        return prediction
    there = copy.copy(prediction)
    for name in (
        "probabilities" if isinstance(prediction, ClassProbabilities) else "draws",
        "uniforms",
    ):
        part = getattr(prediction, name)
        _set(there, name, None if part is None else to_numpy(part))
    return there


def _floats(values: ArrayLike, name: str) -> Floats:
    array = (
        values if isinstance(values, np.ndarray) and values.dtype.kind == "f" else to_numpy(values)
    )
    if array.dtype.kind in "iub" or array.dtype == np.float16:
        array = array.astype(np.float64 if array.dtype.kind in "iub" else np.float32)
    if array.dtype.kind != "f":
        raise ValueError(f"{name} must be real numbers, got dtype {array.dtype}.")
    return array


def _floats_anywhere(values: Any, name: str) -> Any:
    """`_floats` in the library and on the device that the values are of."""
    array = arrays.where_they_are(values)
    if isinstance(array, np.ndarray):
        return _floats(array, name)
    xp = namespace(array)
    if str(array.dtype).endswith("float16"):
        return xp.astype(array, xp.float32)
    if xp.isdtype(array.dtype, ("bool", "integral")):
        return doubles(array)
    if not xp.isdtype(array.dtype, "real floating"):
        raise ValueError(f"{name} must be real numbers, got dtype {array.dtype}.")
    return array


def _finite_column(values: ArrayLike, name: str, like: Floats | None = None) -> Floats:
    array = _floats(values, name)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one number per row, got shape {array.shape}.")
    if like is not None and array.shape != like.shape:
        raise ValueError(f"{name} has {array.size} rows where {like.size} were expected.")
    if not np.all(np.isfinite(array)):
        row = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(f"{name} must be finite, but row {row} is {array[row]}.")
    return array


def _check_probabilities(array: Floats, name: str) -> None:
    if 0 in array.shape:
        return
    xp = namespace(array)
    # as bits: numbers below 0 and NaN are larger than all others
    if xp is np and array.dtype in (np.float32, np.float64):
        bits = np.dtype(f"u{array.itemsize}")
        # one pass; what is at the limit goes on
        if array.view(bits).max() < array.dtype.type(1 + 1e-3).view(bits):
            return
    # torch: both in one pass
    ends = array.aminmax() if hasattr(array, "aminmax") else (xp.min(array), xp.max(array))
    least, most = to_numpy(xp.stack(ends)).tolist()  # one wait for a device
    if least >= 0 and most <= 1 + 1e-3:  # written so that NaN goes on
        return
    array = to_numpy(array)
    if np.isnan(least):
        missing = np.flatnonzero(np.isnan(array).any(axis=(*range(array.ndim - 2), -1)))
        raise ValueError(
            f"{name} are NaN in {len(missing)} rows (first: row {missing[0]}); a model that gives "
            f"them has not learnt, or "
            "its features hold NaN there."
        )
    if least >= 0 and most <= 101 and np.allclose(array.sum(axis=-1), 100, atol=1.5):
        raise ValueError(
            f"{name} must lie in [0, 1], and these look like percentages: divide them by 100."
        )
    raise ValueError(
        f"{name} must lie in [0, 1], got values from {least} to {most}. Logits go "
        f"through a softmax first."
    )


def _with_labels(
    record: ClassRecordT,
    classes: ArrayLike | None,
    uniforms: ArrayLike | None,
    unseen: ArrayLike | None,
) -> ClassRecordT:
    n, k = len(record), record.n_known
    names = None if classes is None else as_labels(classes)
    if names is not None and (names.shape != (k,) or not _distinct(names)):
        raise ValueError(
            f"classes must hold {k} distinct labels, one per column, got {names.tolist()!r:.200}."
        )
    draws = None if uniforms is None else _floats_anywhere(uniforms, "uniforms")
    if draws is not None:
        if draws.shape != (n,):
            raise ValueError(
                f"uniforms must hold one number for each of the {n} rows, got shape {draws.shape}."
            )
        draws, xp = beside(draws, record.array), namespace(record.array)
        if n and not (xp.min(draws) >= 0 and xp.max(draws) <= 1):
            raise ValueError("uniforms must lie in [0, 1].")
    extra = None if unseen is None else as_labels(unseen)
    if extra is not None and extra.ndim != 1:
        raise ValueError(f"unseen must be a list of labels, got {unseen!r:.200}.")
    if extra is not None and not len(extra):
        extra = None
    if extra is not None and names is None:
        raise ValueError("unseen= lists labels by name, so classes= must name the columns too.")
    if (
        extra is not None
        and names is not None
        and (np.any(codes_of(extra, names) >= 0) or not _distinct(extra))
    ):
        raise ValueError("unseen must hold distinct labels that are not among classes.")
    for name, value in (("classes", names), ("uniforms", draws), ("unseen", extra)):
        _set(record, name, value)
    return record


def _distinct(labels: AnyArray) -> bool:
    """Whether no label occurs twice and none is NaN, which equals no label, not even itself."""
    values = labels.tolist()
    return len(set(values)) == len(values) and all(value == value for value in values)
