"""Increasing functions of y with their inverses: the scales on which models are fitted and
residuals compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from dco.foundations.arrays import Floats

_MOST_KNOTS = 100


@dataclass(frozen=True)
class FunctionScale:
    """An increasing function, its inverse, and the smallest y that it takes."""

    forward: Callable[[Any], Any]
    inverse: Callable[[Any], Any]
    least: float = -np.inf


def _signed_square(z: Any) -> Any:
    """Invert a square root; below 0, where there is none, go on increasing."""
    return z * np.abs(z)


NAMED: dict[str, FunctionScale] = {
    "log": FunctionScale(np.log, np.exp, float(np.finfo(np.float64).tiny)),
    "log1p": FunctionScale(np.log1p, np.expm1, 0.0),
    "sqrt": FunctionScale(np.sqrt, _signed_square, 0.0),
    "asinh": FunctionScale(np.arcsinh, np.sinh),
}


@dataclass(frozen=True)
class QuantileScale:
    """Targets to standard normal scores: linear between the quantiles of the training targets, and
    on beyond them.
    """

    targets: tuple[float, ...]
    normal: tuple[float, ...]
    least = -np.inf

    @classmethod
    def of(cls, y: ArrayLike) -> QuantileScale:
        """Take at most 100 distinct quantiles of y, each at the middle of its probabilities."""
        ordered = np.sort(np.asarray(y, dtype=np.float64))
        n_knots = min(len(ordered), _MOST_KNOTS)
        places = np.linspace(0, len(ordered) - 1, n_knots).round().astype(np.int64)
        targets = np.unique(ordered[np.unique(places)])
        if len(targets) < 2:
            raise ValueError(
                'the transform "quantile" needs at least two different targets to be fitted to.'
            )
        n_below = np.searchsorted(ordered, targets, side="left")
        n_up_to = np.searchsorted(ordered, targets, side="right")
        normal = ndtri((n_below + n_up_to) / (2 * len(ordered)))
        return cls(tuple(targets.tolist()), tuple(normal.tolist()))

    def forward(self, y: Any) -> Any:
        """Return the normal score of y."""
        return linear(y, self.targets, self.normal)

    def inverse(self, z: Any) -> Any:
        """Return the y of a normal score."""
        return linear(z, self.normal, self.targets)


Scale: TypeAlias = FunctionScale | QuantileScale
Transform: TypeAlias = str | tuple[Callable[[Any], Any], Callable[[Any], Any]] | Scale


def linear(at: Any, from_: ArrayLike, to: ArrayLike) -> Floats:
    """Evaluate the piecewise linear function through these points, going on as it ends."""
    value = np.asarray(at, dtype=np.float64)
    x = np.asarray(from_, dtype=np.float64)
    y = np.asarray(to, dtype=np.float64)
    piece = np.clip(np.searchsorted(x, value, side="right") - 1, 0, len(x) - 2)
    with np.errstate(invalid="ignore", over="ignore"):
        slope = (y[piece + 1] - y[piece]) / (x[piece + 1] - x[piece])
        return np.asarray(y[piece] + (value - x[piece]) * slope)


def checked_transform(transform: Any) -> None:
    """Refuse what names no scale."""
    if isinstance(transform, str) and (transform == "quantile" or transform in NAMED):
        return
    if isinstance(transform, FunctionScale | QuantileScale):
        return
    if isinstance(transform, tuple) and len(transform) == 2 and all(map(callable, transform)):
        return
    names = ", ".join(f'"{name}"' for name in (*NAMED, "quantile"))
    raise ValueError(
        f"transform must be {names} or a pair (function, inverse), got {transform!r:.200}."
    )


def fitted_transform(transform: Transform, y: ArrayLike) -> Transform:
    """Return the transform with what it learns from training targets: quantiles, or nothing."""
    if isinstance(transform, str) and transform == "quantile":
        return QuantileScale.of(y)
    return transform


def scale_of(transform: Transform) -> Scale:
    """Return the functions of a transform; one that is still to be fitted is an error."""
    if isinstance(transform, tuple):
        return FunctionScale(*transform)
    if not isinstance(transform, str):
        return transform
    if transform == "quantile":
        raise ValueError(
            'the transform "quantile" is fitted to training targets: call '
            "score.fitted(y_train) first."
        )
    return NAMED[transform]


def on_scale(scale: Scale, y: Any) -> Floats:
    """Return the scale at y, with y raised to the smallest that it takes."""
    values = np.maximum(np.asarray(y, dtype=np.float64), scale.least)
    with np.errstate(all="ignore"):
        return np.asarray(scale.forward(values), dtype=np.float64)
