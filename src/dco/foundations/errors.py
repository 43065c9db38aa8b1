"""Every error and warning of the library. Each is also the builtin that a caller would expect."""

from __future__ import annotations

__all__ = [
    "CorruptModelError",
    "DcoError",
    "IncompatibleScoreError",
    "InfeasibleLevelError",
    "InfeasibleLevelWarning",
    "MissingExtraError",
    "MissingTypeError",
    "NonFiniteScoreError",
    "OverlappingRolesError",
    "SealBrokenError",
    "UnsuitableWorkerError",
    "UntrustedTypeError",
]


class DcoError(Exception):
    """The base of all errors raised on purpose by dco."""


class OverlappingRolesError(DcoError, ValueError):
    """Rows of one role also appear in another role that must not share them."""


class SealBrokenError(DcoError, RuntimeError):
    """Calibration rows were requested a second time, or for a second structure."""


class InfeasibleLevelError(DcoError, ValueError):
    """There are too few calibration rows for a finite threshold at the requested level."""


class IncompatibleScoreError(DcoError, TypeError):
    """A score needs something that the prediction does not have."""


class NonFiniteScoreError(DcoError, ValueError):
    """A score is NaN, so it cannot be ordered. (+inf is legal: it sorts last.)"""


class CorruptModelError(DcoError, ValueError):
    """A model file is truncated, was edited, or is not a model file at all."""


class UntrustedTypeError(DcoError, TypeError):
    """A model file holds types that the caller has not declared trusted; `types` has their full
    names.
    """

    def __init__(self, message: str = "", types: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.types = types


class UnsuitableWorkerError(DcoError, RuntimeError):
    """A worker of a Dask cluster has no dco, or another one than this process."""


class MissingExtraError(DcoError, ImportError):
    """A part of dco needs a package that is not installed; the message names the extra to
    install.
    """


class MissingTypeError(DcoError, ImportError):
    """A model file holds a type or a function that cannot be imported here."""


class InfeasibleLevelWarning(UserWarning):
    """A level cannot be met: the threshold is infinite, so that sets are full and valid, or no
    setting is certified.
    """
