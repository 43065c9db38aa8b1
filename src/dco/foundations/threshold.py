"""What every calibration rule returns, and what every score accepts."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats, to_numpy
from dco.foundations.display import are, counted
from dco.foundations.errors import InfeasibleLevelWarning, NonFiniteScoreError

Guarantee: TypeAlias = Literal["marginal", "pac", "pac-conjectured", "expected_risk", "none"]


@dataclass(frozen=True)
class Threshold:
    """A cut-off with its statement: sets made with it are {y : score(x, y) <= value}.

    ``value`` is the `rank`-th smallest of `n` calibration scores (+inf when rank is n + 1). ``rank`` is None for rules
    that do not deploy an order statistic of `n` exchangeable scores (loss matrices, grouped rows). ``guarantee`` names
    what is certified; what certifies nothing says "none".
    """

    value: float
    rank: int | None
    n: int
    guarantee: Guarantee
    alpha: float
    delta: float | None = None

    def __post_init__(self) -> None:
        if math.isnan(self.value):
            raise ValueError("a threshold must be a number and not NaN.")
        object.__setattr__(self, "value", float(self.value))

    @property
    def expected_coverage(self) -> float | None:
        """rank / (n + 1): the mean coverage when scores are distinct, a lower bound otherwise."""
        return None if self.rank is None else self.rank / (self.n + 1)

    def __float__(self) -> float:
        return self.value


def checked_scores(scores: ArrayLike) -> Floats:
    """Calibration scores as a one-dimensional array; NaN is refused, +inf is legal."""
    array = to_numpy(scores)
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    if array.dtype.kind != "f":
        raise ValueError(f"scores must be real numbers, got dtype {array.dtype}.")
    if array.ndim != 1:
        raise ValueError(f"scores must be one number a row, got an array of shape {array.shape}.")
    bad = np.flatnonzero(np.isnan(array))
    if bad.size:
        raise NonFiniteScoreError(
            f"{bad.size} of {array.size} scores are NaN (first: row {bad[0]}); a NaN cannot be ordered. Find out why the "
            "model or the score gives NaN there; dropping the rows would change the population that is certified."
        )
    return array


def order_statistic(scores: Floats, rank: int) -> float:
    """The `rank`-th smallest score (1-based), +inf for rank n + 1."""
    if rank > scores.size:
        return float("inf")
    score = np.partition(scores, rank - 1)[rank - 1]
    value = float(score)
    return value if value >= score else math.nextafter(value, math.inf)  # a longdouble must not be rounded below itself


def warn_infeasible(n: int, smallest: int, statement: str, *, stacklevel: int = 3) -> None:
    """Say that the threshold is infinite and how many rows would give a finite one."""
    warnings.warn(
        f"{counted(n, 'calibration row')} {are(n)} too few for {statement}: the threshold is infinite and every set "
        f"is full (valid, but useless). At least {counted(smallest, 'row')} {are(smallest)} needed.",
        InfeasibleLevelWarning,
        stacklevel=stacklevel,
    )
