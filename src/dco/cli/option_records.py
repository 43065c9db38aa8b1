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
    """Another promise from the calibration rows of a fitted model; None is as the fit had it."""

    alpha: float | None = None
    guarantee: str | None = None
    delta: float | None = None

    def is_of_the_fit(self) -> bool:
        """Say whether nothing else than the promise of the fit is asked for."""
        return self == OtherPromise()


@dataclass(frozen=True)
class Work:
    """Where work runs: in so many processes here, or on the Dask cluster at this address."""

    jobs: int = 1
    scheduler: str | None = None

    def is_asked_for(self) -> bool:
        """Say whether an option asks for several processes or a cluster."""
        return self != Work()


@dataclass(frozen=True)
class AskedColumns:
    """What the columns of a table to fit on are for, as far as options say it."""

    target: str
    task: Task | None = None  # None: to be found out
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
    by: str | None = None  # a column of groups
    ignore_new: bool = False  # columns that the fit did not have
    decimal: str | None = None
