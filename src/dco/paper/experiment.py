"""What every experiment offers: splits that are pure functions of a seed, and tables made from
their records.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import partial
from typing import Any, Self, TypeAlias, TypeVar

from dco.datasets import Backbone, find_file, load_california_housing, load_concrete
from dco.paper.paper_parts import Finding
from dco.paper.tables import ResultTable

NOT_FINITE = {"inf", "-inf", "nan"}  # how JSON holds such numbers


@dataclass(frozen=True)
class Options:
    """What a user may vary of an experiment.

    The levels, the quick protocol, the folder of the data (which changes no number), and a backbone
    that makes image features here; without one, features that are ready are read.
    """

    alphas: tuple[float, ...]
    quick: bool = False
    data_home: str | None = None
    backbone: Backbone | None = None

    def settings(self) -> dict[str, Any]:
        """Return what all records of one run have in common."""
        settings: dict[str, Any] = {"alphas": list(self.alphas), "quick": self.quick}
        if self.backbone is not None:
            settings["features"] = f"resnet50, {self.backbone.digest}"
        return settings


@dataclass(frozen=True)
class Row:
    """One row of a record: its fields are numbers, texts, and lists or dicts of them.

    Kinds of rows derive from it. A field that is None is left out of the record.
    """

    def cells(self) -> dict[str, Any]:
        """Return the fields that are written to the record, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def of(cls, cells: Mapping[str, Any]) -> Self:
        """Make the row from its cells as read from a record."""
        return cls(**{name: from_json(value) for name, value in cells.items()})

    @classmethod
    def has_columns(cls, names: Iterable[str]) -> bool:
        """Say whether cells with these names are a row of this kind."""
        all_names = {field.name for field in fields(cls)}
        required = {field.name for field in fields(cls) if field.default is MISSING}
        return required <= set(names) <= all_names


def from_json(value: Any) -> Any:
    """Turn the texts "inf", "-inf" and "nan" back into numbers, in lists too."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    return value


@dataclass(frozen=True)
class SplitRecord:
    """One finished split as read back from disk: its seed and the rows that `run_split` gave."""

    seed: int
    rows: tuple[Row, ...]
    seconds: float


SplitRecords: TypeAlias = Sequence[SplitRecord]
RowKind = TypeVar("RowKind", bound=Row)
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def rows_of(records: SplitRecords, kind: type[RowKind]) -> list[RowKind]:
    """Return the rows of a kind (and of kinds derived from it), in order of seed."""
    return [row for record in records for row in record.rows if isinstance(row, kind)]


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items that have the same key, in order of first appearance."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


@dataclass(frozen=True)
class Experiment:
    """One name of ``dco reproduce``: how to run one split, and what to make of all splits.

    name, summary, needs, minutes:
        What ``dco reproduce --list`` shows: the data it needs, and the time on two cores.
    run_split:
        ``run_split(seed, options)`` gives the rows of one split, of the kinds in `row_kinds`. It is
        a pure function of its two arguments, defined at the top of a module so that other processes
        can import it. It runs on one thread: results do not depend on how many run side by side.
    tables, figures:
        ``tables(records, options)`` makes tables, and ``figures(records, options)`` the content of
        files by name, from the records as read back from disk, in order of seed.
    missing:
        ``missing(options)`` says in one sentence what is not there to run it; None if nothing.
    alphas, splits, quick_splits:
        The levels and the number of splits unless others are asked for. An experiment without
        random splits has ``splits = 1``.
    is_of_images:
        Whether it can be run on features that are made here.
    part_of:
        The group that it belongs to.
    records_of:
        The experiment whose records it shares: the same splits serve both.
    protocol:
        Goes up by one whenever the numbers of a split change: records of another protocol are not
        read.
    findings:
        The parts of the paper that it is about, and what it finds there.
    """

    name: str
    summary: str
    needs: str
    minutes: float
    run_split: Callable[[int, Options], list[Any]]
    tables: Callable[[SplitRecords, Options], list[ResultTable]]
    row_kinds: tuple[type[Row], ...]
    figures: Callable[[SplitRecords, Options], dict[str, bytes]] | None = None
    missing: Callable[[Options], str | None] | None = None
    alphas: tuple[float, ...] = (0.2,)
    is_of_images: bool = False
    splits: int = 50
    quick_splits: int = 5
    part_of: str | None = None
    records_of: str | None = None
    protocol: int = 1
    findings: tuple[Finding, ...] = ()

    @property
    def source(self) -> str:
        """The name under which its records are kept."""
        return self.name if self.records_of is None else self.records_of

    @property
    def paper_parts(self) -> tuple[str, ...]:
        """The parts of the paper that it is about, such as "Table 6", each once."""
        return tuple(dict.fromkeys(finding.part for finding in self.findings))


def needs_file(experiment: str, file: str) -> Callable[[Options], str | None]:
    """Make a check that a file of data is on disk, or is one that can be downloaded."""
    return partial(missing_file, file, experiment)


def missing_file(file: str, experiment: str, options: Options) -> str | None:
    """Return a sentence that asks for a file of data, or None if the file is found.

    It is looked for in `options.data_home`, or else in the folder that DCO_DATA_HOME names. Without
    `options.data_home` a file that can be downloaded is not missing.
    """
    if options.data_home is None and file in DOWNLOADS:
        return None
    try:
        path = find_file(file, options.data_home)
    except FileNotFoundError:
        path = None
    if path is not None:
        return None
    return ask_for_file(experiment, file)


def ask_for_file(experiment: str, file: str) -> str:
    """Write the sentence that asks for a file of data."""
    return (
        f"{experiment} needs {file}: give its folder by --data-home or the environment variable "
        f"DCO_DATA_HOME. docs/paper-data.md says where it comes from."
    )


# Files that need not be on disk, and what downloads their data otherwise; scikit-learn keeps them.
DOWNLOADS: dict[str, Callable[[], Any]] = {
    "california_housing.csv.gz": load_california_housing,
    "concrete.csv": load_concrete,
}


def failed_download(experiment: Experiment, options: Options) -> str | None:
    """Download what an experiment needs and no folder holds; say what to do if that fails.

    Done once before the splits, which then find the data in scikit-learn's cache.
    """
    if options.data_home is not None:
        return None
    for file, download in DOWNLOADS.items():
        if file in experiment.needs and find_file(file) is None:
            try:
                download()
            except (OSError, ImportError) as error:
                return f"{ask_for_file(experiment.name, file)} It could not be downloaded: {error}"
    return None
