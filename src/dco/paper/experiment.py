"""What every experiment offers: splits that are pure functions of a seed, and tables made from
their records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from dco.datasets import Backbone, find_file
from dco.paper.tables import ResultTable

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Options:
    """What a user may vary. Everything that changes a number is here; where and how it runs
    is not.
    """

    alphas: tuple[float, ...]
    quick: bool = False
    data_home: str | None = None
    # of image features that are made here; None: those that are ready
    backbone: Backbone | None = None

    def settings(self) -> dict[str, Any]:
        """What a record must share to be taken up again; where the data lie does not change a
        number.
        """
        made = {} if self.backbone is None else {"features": f"resnet50, {self.backbone.digest}"}
        return {"alphas": list(self.alphas), "quick": self.quick, **made}


@dataclass(frozen=True)
class SplitRecord:
    """One finished split as read back from disk: its seed and the rows that `run_split` gave."""

    seed: int
    rows: tuple[Row, ...]
    seconds: float


Records: TypeAlias = Sequence[SplitRecord]


def rows_by(records: Records, key: str = "method", **wanted: Any) -> dict[str, list[Row]]:
    """The rows that have a `key`, grouped by it, each list in order of seed; `wanted=None` means a
    column not present.
    """
    found: dict[str, list[Row]] = {}
    for record in records:
        for row in record.rows:
            if key in row and all(row.get(name) == value for name, value in wanted.items()):
                found.setdefault(row[key], []).append(row)
    return found


def column(rows: Sequence[Row], key: str) -> list[float]:
    """One number of each split."""
    return [float(row[key]) for row in rows]


@dataclass(frozen=True)
class Experiment:
    """One name of ``dco reproduce``.

    ``run_split(seed, options)`` gives the rows of one split: plain dictionaries of numbers, strings
    and lists (a "method" or whatever tells rows apart, "sizes", "threshold", "rank", ...). It is a
    pure function of its two arguments, defined at the top of a module so that other processes can
    import it. It is held to one thread, so that results do not depend on how many run side by side.
    An experiment without random splits has ``splits = 1``.

    ``tables(records, options)`` and ``figures(records, options, folder)`` see records as read back
    from disk, in order of seed. ``missing(options)`` says in one sentence what is not there to run
    it (None: nothing). `records_of` names the experiment whose records it shares: the same splits
    serve both.
    """

    name: str
    summary: str
    needs: str
    minutes: float
    tables: Callable[[Records, Options], list[ResultTable]]
    run_split: Callable[[int, Options], list[dict[str, Any]]]
    figures: Callable[[Records, Options, Path], list[Path]] | None = None
    missing: Callable[[Options], str | None] | None = None
    alphas: tuple[float, ...] = (0.2,)
    of_images: bool = False  # whether it can be run on features that are made here
    splits: int = 50
    quick_splits: int = 5
    part_of: str | None = None
    records_of: str | None = None

    @property
    def source(self) -> str:
        """The name under which its records are kept."""
        return self.name if self.records_of is None else self.records_of


def needs_file(name: str, file: str) -> Callable[[Options], str | None]:
    """A check that the data are on disk: experiments do not download."""
    return partial(_missing_file, file, name)


def _missing_file(file: str, name: str, options: Options) -> str | None:
    try:
        found = find_file(file, options.data_home)
    except FileNotFoundError:
        found = None
    if found is not None:
        return None
    return (
        f"{name} needs {file}: give its folder by --data-home or the environment variable "
        f"DCO_DATA_HOME."
    )
