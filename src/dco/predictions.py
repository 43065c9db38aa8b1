"""What a fitted model hands to a score: small frozen records of arrays.

A record knows nothing of the model that made it, so people who have only logits or posterior draws can use every score.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Floats, Integers, as_labels, to_numpy
from dco.sets.labels import codes_of


class ClassRecord(ABC):
    """What records about classes share: the names of their labels."""

    classes: AnyArray | None
    unseen: AnyArray | None

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def n_known(self) -> int:
        """How many labels have a probability."""

    @property
    def n_classes(self) -> int:
        """How many labels there are, those the model has never seen included."""
        return self.n_known + (0 if self.unseen is None else len(self.unseen))

    def labels(self) -> AnyArray | None:
        """The names of all labels, known first, or None if labels are the integers 0..K-1."""
        return _all_labels(self.classes, self.unseen)

    def codes(self, y: ArrayLike) -> Integers:
        """Each label's column; a column >= `n_known` belongs to a label the model has never seen."""
        return _codes(y, len(self), self.n_known, self.classes, self.unseen)


@dataclass(frozen=True, eq=False)
class ClassProbabilities(ClassRecord):
    """Class probabilities, (n, K).

    `classes` (K,) names the columns: y and prediction sets then speak labels. Without it y must be integers 0..K-1.
    `uniforms` (n,) in [0, 1) serve randomised scores, one a row: they must not depend on y.
    `unseen` lists labels that exist but that the model has never seen; every score gives them +inf, so they are in a set
    only when its threshold is infinite.
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
        matrix = _floats(probabilities, "probabilities")
        if matrix.ndim != 2 or matrix.shape[1] == 0:
            raise ValueError(f"probabilities must be an (n, K) matrix with K >= 1, got shape {matrix.shape}.")
        _check_probabilities(matrix, "probabilities")
        _set(self, "probabilities", matrix)
        _set_labels(self, matrix.shape[0], matrix.shape[1], classes, uniforms, unseen)

    def __len__(self) -> int:
        return int(self.probabilities.shape[0])

    @property
    def n_known(self) -> int:
        """How many labels have a probability."""
        return int(self.probabilities.shape[1])


@dataclass(frozen=True, eq=False)
class ClassDraws(ClassRecord):
    """Class probabilities of T Monte-Carlo-dropout passes or posterior draws, (T, n, K)."""

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
        array = _floats(draws, "draws")
        if array.ndim != 3 or array.shape[0] == 0 or array.shape[2] == 0:
            raise ValueError(f"draws must have shape (T, n, K) with T, K >= 1, got shape {array.shape}.")
        _check_probabilities(array, "draws")
        _set(self, "draws", array)
        _set_labels(self, array.shape[1], array.shape[2], classes, uniforms, unseen)

    def __len__(self) -> int:
        return int(self.draws.shape[1])

    @property
    def n_known(self) -> int:
        """How many labels have a probability."""
        return int(self.draws.shape[2])

    def mean(self) -> ClassProbabilities:
        """The posterior predictive probabilities: the mean over draws, added in order so that layout is irrelevant."""
        total = np.zeros(self.draws.shape[1:])
        for draw in self.draws:
            total += draw
        return ClassProbabilities(total / len(self.draws), self.classes, self.uniforms, self.unseen)


@dataclass(frozen=True, eq=False)
class Points:
    """A point prediction a row, (n,)."""

    mean: Floats

    def __init__(self, mean: ArrayLike) -> None:
        _set(self, "mean", _finite_column(mean, "mean"))

    def __len__(self) -> int:
        return len(self.mean)


@dataclass(frozen=True, eq=False)
class PointsWithSpread:
    """A point prediction and a spread (a scale of the error, >= 0) a row."""

    mean: Floats
    spread: Floats

    def __init__(self, mean: ArrayLike, spread: ArrayLike) -> None:
        _set(self, "mean", _finite_column(mean, "mean"))
        _set(self, "spread", _finite_column(spread, "spread", like=self.mean))
        if np.any(self.spread < 0):
            row = int(np.flatnonzero(self.spread < 0)[0])
            raise ValueError(f"spread must not be negative, but row {row} has {self.spread[row]}.")

    def __len__(self) -> int:
        return len(self.mean)


@dataclass(frozen=True, eq=False)
class Quantiles:
    """A lower and an upper predicted quantile a row, and the median where a score asks for it.

    Crossed quantiles (lower > upper) are sorted.
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


@dataclass(frozen=True, eq=False)
class GaussianMixtures:
    """The posterior predictive of a Bayesian regression: row i is an even mixture of N(means[i, t], sds[i, t]^2).

    `means` is (n, T); `sds` is (T,), shared by all rows, or (n, T).
    """

    means: Floats
    sds: Floats

    def __init__(self, means: ArrayLike, sds: ArrayLike) -> None:
        centres, scales = _floats(means, "means"), _floats(sds, "sds")
        if centres.ndim != 2 or centres.shape[1] == 0:
            raise ValueError(f"means must be an (n, T) matrix with T >= 1, got shape {centres.shape}.")
        if scales.shape not in ((centres.shape[1],), centres.shape):
            raise ValueError(f"sds must have shape (T,) = ({centres.shape[1]},) or {centres.shape}, got {scales.shape}.")
        if not np.all(np.isfinite(centres)):
            raise ValueError("means must be finite.")
        if not (np.all(np.isfinite(scales)) and np.all(scales > 0)):
            raise ValueError("sds must be finite and greater than 0.")
        _set(self, "means", centres)
        _set(self, "sds", scales)

    def __len__(self) -> int:
        return int(self.means.shape[0])


Prediction: TypeAlias = ClassProbabilities | ClassDraws | Points | PointsWithSpread | Quantiles | GaussianMixtures


def take(prediction: Prediction, rows: Integers | slice) -> Prediction:
    """The same record for some of its rows."""
    match prediction:
        case ClassProbabilities(probabilities, classes, uniforms, unseen):
            return ClassProbabilities(probabilities[rows], classes, None if uniforms is None else uniforms[rows], unseen)
        case ClassDraws(draws, classes, uniforms, unseen):
            return ClassDraws(draws[:, rows], classes, None if uniforms is None else uniforms[rows], unseen)
        case Points(mean):
            return Points(mean[rows])
        case PointsWithSpread(mean, spread):
            return PointsWithSpread(mean[rows], spread[rows])
        case Quantiles(lower, upper, median):
            return Quantiles(lower[rows], upper[rows], None if median is None else median[rows])
        case GaussianMixtures(means, sds):
            return GaussianMixtures(means[rows], sds if sds.ndim == 1 else sds[rows])
    raise TypeError(f"not a prediction record: {type(prediction).__name__}")


def _set(record: object, name: str, value: object) -> None:
    object.__setattr__(record, name, value)


def _floats(values: ArrayLike, name: str) -> Floats:
    array = to_numpy(values)
    if array.dtype.kind in "iub" or array.dtype == np.float16:
        array = array.astype(np.float64 if array.dtype.kind in "iub" else np.float32)
    if array.dtype.kind != "f":
        raise ValueError(f"{name} must be real numbers, got dtype {array.dtype}.")
    return array


def _finite_column(values: ArrayLike, name: str, like: Floats | None = None) -> Floats:
    array = _floats(values, name)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one number a row, got shape {array.shape}.")
    if like is not None and array.shape != like.shape:
        raise ValueError(f"{name} has {array.size} rows where {like.size} were expected.")
    if not np.all(np.isfinite(array)):
        row = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(f"{name} must be finite, but row {row} is {array[row]}.")
    return array


def _check_probabilities(array: Floats, name: str) -> None:
    if array.size == 0:
        return
    least, most = array.min(), array.max()
    if least >= 0 and most <= 1 + 1e-3:  # written so that NaN goes on
        return
    if np.isnan(least):
        missing = np.flatnonzero(np.isnan(array).any(axis=(*range(array.ndim - 2), -1)))
        raise ValueError(
            f"{name} are NaN in {len(missing)} rows (first: row {missing[0]}); a model that gives them has not learnt, or "
            "its features hold NaN there."
        )
    if least >= 0 and most <= 101 and np.allclose(array.sum(axis=-1), 100, atol=1.5):
        raise ValueError(f"{name} must lie in [0, 1], and these look like percentages: divide them by 100.")
    raise ValueError(f"{name} must lie in [0, 1], got values from {least} to {most}. Logits go through a softmax first.")


def _set_labels(
    record: object,
    n: int,
    k: int,
    classes: ArrayLike | None,
    uniforms: ArrayLike | None,
    unseen: ArrayLike | None,
) -> None:
    names = None if classes is None else as_labels(classes)
    if names is not None and (names.shape != (k,) or not _distinct(names)):
        raise ValueError(f"classes must hold {k} distinct labels, one a column, got {names.tolist()!r:.200}.")
    draws = None if uniforms is None else _floats(uniforms, "uniforms")
    if draws is not None:
        if draws.shape != (n,):
            raise ValueError(f"uniforms must hold one number for each of the {n} rows, got shape {draws.shape}.")
        if not (np.all(draws >= 0) and np.all(draws <= 1)):
            raise ValueError("uniforms must lie in [0, 1].")
    extra = None if unseen is None else as_labels(unseen)
    if extra is not None and extra.ndim != 1:
        raise ValueError(f"unseen must be a list of labels, got {unseen!r:.200}.")
    extra = None if extra is None or len(extra) == 0 else extra
    if extra is not None and names is None:
        raise ValueError("unseen= lists labels by name, so classes= must name the columns too.")
    if extra is not None and names is not None and (np.any(codes_of(extra, names) >= 0) or not _distinct(extra)):
        raise ValueError("unseen must hold distinct labels that are not among classes.")
    _set(record, "classes", names)
    _set(record, "uniforms", draws)
    _set(record, "unseen", extra)


def _distinct(labels: AnyArray) -> bool:
    """Whether no label occurs twice and none is NaN, which equals no label, not even itself."""
    values = labels.tolist()
    return len(set(values)) == len(values) and all(value == value for value in values)


def _all_labels(classes: AnyArray | None, unseen: AnyArray | None) -> AnyArray | None:
    if classes is None or unseen is None:
        return classes
    if (classes.dtype.kind in "US") != (unseen.dtype.kind in "US"):  # joined as they are, numbers would turn into text
        return np.concatenate([classes.astype(object), unseen.astype(object)])
    return np.concatenate([classes, unseen])


def _codes(y: ArrayLike, n: int, k: int, classes: AnyArray | None, unseen: AnyArray | None) -> Integers:
    labels = as_labels(y)
    if labels.shape != (n,):
        raise ValueError(f"y must hold one label for each of the {n} rows, got shape {labels.shape}.")
    if classes is None:
        if labels.dtype.kind not in "iu":
            raise ValueError(
                f"y has dtype {labels.dtype}, but without classes= labels are the column numbers 0..{k - 1}. Pass "
                "classes= to the prediction record to use other labels."
            )
        if n and (labels.min() < 0 or labels.max() >= k):
            raise ValueError(
                f"y holds labels from {labels.min()} to {labels.max()}, but there are {k} columns, numbered from 0. Pass "
                "classes= to the prediction record to use other labels."
            )
        return labels.astype(np.int64)
    names = _all_labels(classes, unseen)
    assert names is not None
    codes = codes_of(labels, names)
    if np.any(codes < 0):
        row = int(np.flatnonzero(codes < 0)[0])
        raise ValueError(
            f"y holds the label {labels.tolist()[row]!r} (row {row}), which is not among the {len(names)} classes. If the "
            "model has never seen it, list it in unseen= of the prediction record: it then scores +inf."
        )
    return codes
