"""What every score offers: `observed` for the label that happened, and `sets`, its inverse."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats
from dco.foundations.errors import IncompatibleScoreError
from dco.foundations.ranks import Threshold
from dco.predictions import Prediction
from dco.sets.prediction_sets import PredictionSets

Cutoff: TypeAlias = Threshold | float | Floats

Record = TypeVar("Record")


@runtime_checkable
class Score(Protocol):
    """A fixed function of a prediction and a label; larger is stranger.

    `needs` lists the prediction records that the score can read, the most specific first. A score is a frozen dataclass
    whose fields are its parameters, so that it can be compared, hashed, printed and written into a certificate.
    ``sets(prediction, t).contains(y)`` equals ``observed(prediction, y) <= t`` exactly.
    """

    needs: ClassVar[tuple[type, ...]]

    def observed(self, prediction: Any, y: ArrayLike) -> Floats:
        """The score of the label that happened, (n,)."""
        ...

    def sets(self, prediction: Any, threshold: Cutoff) -> PredictionSets:
        """All labels whose score is at most the threshold."""
        ...


def expect(score: object, prediction: Prediction, *kinds: type[Record]) -> Record:
    """`prediction` if it is one of `kinds`, otherwise an error that names both sides."""
    if isinstance(prediction, kinds):
        return prediction
    names = " or ".join(kind.__name__ for kind in kinds)
    raise IncompatibleScoreError(f"{type(score).__name__} needs {names}, but the prediction is {type(prediction).__name__}.")


def cutoff(threshold: Cutoff, n: int, n_classes: int | None = None) -> float | Floats:
    """The threshold as a float, or as an array that broadcasts against (n, K): (n, 1) a row, (1, K) a label.

    For regression (`n_classes` None) an array is returned as (n,).
    """
    if isinstance(threshold, Threshold):
        return threshold.value
    values = np.asarray(threshold)
    if values.dtype.kind in "iub":
        values = values.astype(np.float64)
    if values.dtype.kind != "f" or np.any(np.isnan(values)):
        raise ValueError(f"a threshold must be a number and not NaN, got {threshold!r}.")
    if values.ndim == 0:
        return float(values)
    if n_classes is None:
        if values.shape == (n,):
            return values
        raise ValueError(f"a threshold a row must have shape ({n},), got {values.shape}.")
    if values.shape in ((n, 1), (1, n_classes)):
        return values
    if values.shape == (n,) and (n != n_classes or n == 1):
        return values[:, None]
    if values.shape == (n_classes,) and n != n_classes:
        return values[None, :]
    if values.shape == (n,):
        raise ValueError(
            f"{n} thresholds for {n} rows and {n} labels: pass shape ({n}, 1) for one a row or (1, {n}) for one a label."
        )
    raise ValueError(f"thresholds must have shape ({n},) a row or ({n_classes},) a label, got {values.shape}.")
