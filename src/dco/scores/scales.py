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

_MOST_KNOTS = 100  # of a `QuantileScale`


@dataclass(frozen=True)
class FunctionScale:
    """An increasing function, its inverse, and the smallest y for which it is defined."""

    forward: Callable[[Any], Any]
    inverse: Callable[[Any], Any]
    smallest_y: float = -np.inf


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
    """Map targets to normal scores: y -> z with P(Z <= z) = share of training targets up to y.

    The function is linear between the points (`targets`, `normal`), which are quantiles of the
    training targets with their normal scores, and goes on with its last slopes beyond them.
    """

    targets: tuple[float, ...]
    normal: tuple[float, ...]
    smallest_y = -np.inf

    @classmethod
    def of(cls, y: ArrayLike) -> QuantileScale:
        """Learn the scale from training targets, by at most 100 of their distinct values.

        The normal score of a target is z with P(Z <= z) = (share of targets below it + share of
        targets up to it) / 2, which is strictly between 0 and 1.
        """
        ascending = np.sort(np.asarray(y, dtype=np.float64))
        n_targets = len(ascending)

        # 1. Take targets at equal steps of their rank.
        n_knots = min(n_targets, _MOST_KNOTS)
        positions = np.linspace(0, n_targets - 1, n_knots).round().astype(np.int64)
        knots = np.unique(ascending[np.unique(positions)])
        if len(knots) < 2:
            raise ValueError(
                'the transform "quantile" needs at least two different targets to be fitted to.'
            )

        # 2. Compute their normal scores.
        n_below = np.searchsorted(ascending, knots, side="left")
        n_up_to = np.searchsorted(ascending, knots, side="right")
        normal_scores = ndtri((n_below + n_up_to) / (2 * n_targets))
        return cls(targets=tuple(knots.tolist()), normal=tuple(normal_scores.tolist()))

    def forward(self, y: Any) -> Any:
        """Return the normal score of y."""
        return interpolate_linearly(y, self.targets, self.normal)

    def inverse(self, z: Any) -> Any:
        """Return the y of a normal score."""
        return interpolate_linearly(z, self.normal, self.targets)


Scale: TypeAlias = FunctionScale | QuantileScale
Transform: TypeAlias = str | tuple[Callable[[Any], Any], Callable[[Any], Any]] | Scale


def interpolate_linearly(at: Any, knots: ArrayLike, values: ArrayLike) -> Floats:
    """Evaluate the piecewise linear function through the points (knots[j], values[j]).

    Beyond the first and the last knot it goes on with the slope of the outermost piece.
    """
    x = np.asarray(at, dtype=np.float64)
    knots = np.asarray(knots, dtype=np.float64)
    values = np.asarray(values, dtype=np.float64)

    n_pieces = len(knots) - 1
    n_knots_up_to_x = np.searchsorted(knots, x, side="right")
    start = np.clip(n_knots_up_to_x - 1, 0, n_pieces - 1)  # the left knot of the piece at x
    end = start + 1
    with np.errstate(invalid="ignore", over="ignore"):
        slope = (values[end] - values[start]) / (knots[end] - knots[start])
        return np.asarray(values[start] + (x - knots[start]) * slope)


def check_transform(transform: Any) -> None:
    """Refuse what is no transform: neither a known name, nor a scale, nor a pair of functions."""
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


def fit_transform(transform: Transform, y: ArrayLike) -> Transform:
    """Fit a transform to training targets: "quantile" becomes a `QuantileScale`.

    Other transforms learn nothing and are returned as they are.
    """
    if isinstance(transform, str) and transform == "quantile":
        return QuantileScale.of(y)
    return transform


def scale_of(transform: Transform) -> Scale:
    """Return the scale of a transform: "log" -> FunctionScale(np.log, np.exp, ...).

    The transform "quantile" has none before it is fitted, which is an error.
    """
    if isinstance(transform, tuple):
        forward, inverse = transform
        return FunctionScale(forward, inverse)
    if not isinstance(transform, str):
        return transform
    if transform == "quantile":
        raise ValueError(
            'the transform "quantile" is fitted to training targets: call '
            "score.fitted(y_train) first."
        )
    return NAMED[transform]


def map_to_scale(scale: Scale, y: Any) -> Floats:
    """Return the scale's function of y, with y raised to the smallest for which it is defined."""
    values = np.maximum(np.asarray(y, dtype=np.float64), scale.smallest_y)
    with np.errstate(all="ignore"):
        return np.asarray(scale.forward(values), dtype=np.float64)
