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
class _Pair:
    """An increasing function, its inverse, and the least y that it takes."""

    forward: Callable[[Any], Any]
    inverse: Callable[[Any], Any]
    least: float = -np.inf


def _signed_square(z: Any) -> Any:
    """The inverse of a square root; below 0, where there is none, still increasing."""
    return z * np.abs(z)


NAMED: dict[str, _Pair] = {
    "log": _Pair(np.log, np.exp, float(np.finfo(np.float64).tiny)),
    "log1p": _Pair(np.log1p, np.expm1, 0.0),
    "sqrt": _Pair(np.sqrt, _signed_square, 0.0),
    "asinh": _Pair(np.arcsinh, np.sinh),
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
        """At most 100 distinct quantiles of y, each at the middle of the probabilities that it
        takes.
        """
        ordered = np.sort(np.asarray(y, dtype=np.float64))
        places = np.unique(
            np.linspace(0, len(ordered) - 1, min(len(ordered), _MOST_KNOTS))
            .round()
            .astype(np.int64)
        )
        targets = np.unique(ordered[places])
        if len(targets) < 2:
            raise ValueError(
                'the transform "quantile" needs at least two different targets to be fitted to.'
            )
        below, up_to = (np.searchsorted(ordered, targets, side=side) for side in ("left", "right"))
        return cls(
            tuple(targets.tolist()), tuple(ndtri((below + up_to) / (2 * len(ordered))).tolist())
        )

    def forward(self, y: Any) -> Any:
        """The normal score of y."""
        return linear(y, self.targets, self.normal)

    def inverse(self, z: Any) -> Any:
        """The y of a normal score."""
        return linear(z, self.normal, self.targets)


Scale: TypeAlias = _Pair | QuantileScale
Transform: TypeAlias = str | tuple[Callable[[Any], Any], Callable[[Any], Any]] | Scale


def linear(at: Any, from_: ArrayLike, to: ArrayLike) -> Floats:
    """The piecewise linear function through these points, going on as it ends on both sides."""
    value, x, y = (np.asarray(each, dtype=np.float64) for each in (at, from_, to))
    piece = np.clip(np.searchsorted(x, value, side="right") - 1, 0, len(x) - 2)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(
            y[piece] + (value - x[piece]) * ((y[piece + 1] - y[piece]) / (x[piece + 1] - x[piece]))
        )


def checked_transform(transform: Any) -> None:
    """Refuse what names no scale."""
    pair = isinstance(transform, tuple) and len(transform) == 2 and all(map(callable, transform))
    if (
        transform != "quantile"
        and not pair
        and not isinstance(transform, QuantileScale)
        and transform not in NAMED
    ):
        names = ", ".join(f'"{name}"' for name in (*NAMED, "quantile"))
        raise ValueError(
            f"transform must be {names} or a pair (function, inverse), got {transform!r:.200}."
        )


def fitted_transform(transform: Transform, y: ArrayLike) -> Transform:
    """The transform with what it learns from training targets: quantiles; other transforms learn
    nothing.
    """
    return (
        QuantileScale.of(y) if isinstance(transform, str) and transform == "quantile" else transform
    )


def scale_of(transform: Transform) -> Scale:
    """The functions of a transform; one that is still to be fitted is an error."""
    if isinstance(transform, str):
        if transform == "quantile":
            raise ValueError(
                'the transform "quantile" is fitted to training targets: call '
                "score.fitted(y_train) first."
            )
        return NAMED[transform]
    return _Pair(*transform) if isinstance(transform, tuple) else transform


def on_scale(scale: Scale, y: Any) -> Floats:
    """The scale at y, with y raised to the least that it takes."""
    with np.errstate(all="ignore"):
        return np.asarray(
            scale.forward(np.maximum(np.asarray(y, dtype=np.float64), scale.least)),
            dtype=np.float64,
        )
