"""What the options of a command ask for, in records.

They are light, so that `--help` is fast: neither NumPy nor pyarrow is loaded for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Task: TypeAlias = Literal["classification", "regression"]
Guarantee: TypeAlias = Literal["marginal", "pac"]


@dataclass(frozen=True)
class Promise:
    """What a fit is to guarantee."""

    alpha: float
    guarantee: Guarantee
    delta: float


@dataclass(frozen=True)
class OtherPromise:
    """The promise to make with a fitted model; None is as the fit had it.

    Any level and guarantee can be had from the same calibration rows.
    """

    alpha: float | None = None
    guarantee: str | None = None
    delta: float | None = None

    def is_of_the_fit(self) -> bool:
        """Say whether no option asks for another promise than that of the fit."""
        return self == OtherPromise()


@dataclass(frozen=True)
class Work:
    """Where work runs: in `jobs` processes here, or on the Dask cluster at address `scheduler`."""

    jobs: int = 1
    scheduler: str | None = None

    def is_asked_for(self) -> bool:
        """Say whether an option asks for several processes or a cluster."""
        return self != Work()


@dataclass(frozen=True)
class AskedColumns:
    """What options say about the columns of a table to fit on."""

    target: str
    task: Task | None = None  # None: the target decides
    conditions: tuple[str, ...] = ()  # columns whose values get thresholds of their own
    groups: str | None = None
    key: str | None = None  # the column that names the rows
    dropped: tuple[str, ...] = ()
    decimal: str = "."
    date_order: str | None = None  # for dates that may be day first or month first
    drop_missing_target: bool = False


@dataclass(frozen=True)
class TargetOptions:
    """How to read a table with known targets for a fitted model; None is as the fit had it."""

    target: str | None = None
    by: str | None = None  # a column whose values are slices or groups of rows
    ignore_new: bool = False  # allow columns that the fit did not have
    decimal: str | None = None
