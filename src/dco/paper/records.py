"""A record for each split, written as it finishes, so that a run that was stopped goes on.

A file of records holds one line of JSON for each split: experiment, seed, settings, seconds,
versions and rows. Tables are always made from what was read back, so a run in one go, one that was
resumed and one on many cores give the same tables.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from dco.foundations.extras import installed
from dco.foundations.files import check_regular, plain, wait_for_folder, write_file
from dco.foundations.parallel import run_many
from dco.paper.experiment import Experiment, Options, Row, SplitRecord

PACKAGES = ("numpy", "scipy", "scikit-learn", "jax", "numpyro", "joblib")
DIGITS = 12  # significant digits of the numbers in a record
KEYS = {"experiment", "seed", "settings", "seconds", "rows"}

# called after each split with splits done, all splits, and seconds left
Progress = Callable[[int, int, float], None]


def run_splits(
    experiment: Experiment,
    path: Path,
    *,
    seeds: Sequence[int],
    options: Options,
    jobs: int | None = None,
    scheduler: Any = None,
    progress: Progress | None = None,
) -> list[SplitRecord]:
    """Run the splits of an experiment that have no record yet; return the records of all splits.

    A split is one random division of the data, given by its seed; its record holds what came out.

    Parameters
    ----------
    experiment, options:
        What to run. Records of other options do not count.
    path:
        The file of records. Each record is written to it as soon as its split finishes.
    seeds:
        The seeds of the splits.
    jobs, scheduler:
        The number of processes, or the address of a Dask cluster, as in `run_many`. Neither changes
        a number.
    progress:
        Called as ``progress(done, total, seconds_left)``; splits on record count as done.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    check_regular(path)  # lines are to be appended: no device, no folder
    file = RecordFile(path, experiment, options)
    runner = SplitRunner(experiment, options)

    report = None
    if progress is not None:
        report = ProgressReport(progress, n_splits=len(seeds), begin=time.perf_counter())

    with wait_for_folder(path.parent):  # a second run waits, and then finds these splits on record
        records = file.read()
        unrecorded_seeds = [seed for seed in seeds if seed not in records]
        run_many(
            runner,
            unrecorded_seeds,
            n_jobs=jobs,
            scheduler=scheduler,
            on_result=file.append,
            progress=report,
        )
        file.sort()

    records = file.read()
    return [records[seed] for seed in seeds]


@dataclass(frozen=True)
class ProgressReport:
    """Tells a caller's `progress` how many of all splits are done, and how long the rest will take.

    `run_many` counts only the splits that it runs; those on record are done already.
    """

    progress: Progress
    n_splits: int
    begin: float

    def __call__(self, n_finished: int, n_to_run: int) -> None:
        """Report that `n_finished` of the `n_to_run` splits without a record have finished."""
        seconds_per_split = (time.perf_counter() - self.begin) / n_finished
        seconds_left = seconds_per_split * (n_to_run - n_finished)
        n_on_record = self.n_splits - n_to_run
        self.progress(n_on_record + n_finished, self.n_splits, seconds_left)


@dataclass(frozen=True)
class SplitRunner:
    """Runs a split and returns the line of its record; it can be sent to another process."""

    experiment: Experiment
    options: Options

    def __call__(self, seed: int) -> str:
        """Run the split of a seed, and return its record as one line of JSON.

        It runs on one thread, so that numbers do not depend on the number of cores.
        """
        # imported by name because it has no type hints; scikit-learn brings it
        threadpool_limits = import_module("threadpoolctl").threadpool_limits

        begin = time.perf_counter()
        with threadpool_limits(limits=1):
            rows = self.experiment.run_split(seed, self.options)
        content = {
            "experiment": self.experiment.source,
            "seed": seed,
            "settings": recorded_settings(self.experiment, self.options),
            "seconds": round(time.perf_counter() - begin, 3),
            "versions": versions(),
            "rows": pack_rows(rows),
        }
        return to_line(content)


@dataclass(frozen=True)
class RecordFile:
    """The records of one experiment under one set of options.

    The file may hold records of other experiments or options too; these are kept as they are.
    """

    path: Path
    experiment: Experiment
    options: Options

    def read(self) -> dict[int, SplitRecord]:
        """Read the records by seed."""
        records: dict[int, SplitRecord] = {}
        for stored in self._stored_records():
            if self._is_ours(stored):
                rows = unpack_rows(stored["rows"], self.experiment.row_kinds)
                records[stored["seed"]] = SplitRecord(
                    seed=stored["seed"], rows=tuple(rows), seconds=float(stored["seconds"])
                )
        return records

    def append(self, line: str) -> None:
        """Add the line of one split."""
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            # the first newline ends a line that a kill cut short; empty lines are passed over
            file.write(f"\n{line}\n")

    def sort(self) -> None:
        """Rewrite the file with our records in order of seed, after those of other options.

        Where a seed has two lines the later one is kept.
        """
        other_lines: list[str] = []
        our_lines: dict[int, str] = {}
        for stored in self._stored_records():
            if self._is_ours(stored):
                our_lines[stored["seed"]] = to_line(stored)
            else:
                other_lines.append(to_line(stored))

        sorted_lines = [our_lines[seed] for seed in sorted(our_lines)]
        text = "".join(f"{line}\n" for line in other_lines + sorted_lines)
        if not self.path.is_file() or text != self.path.read_text(encoding="utf-8"):
            write_file(self.path, text)

    def _is_ours(self, stored: Mapping[str, Any]) -> bool:
        if stored["experiment"] != self.experiment.source:
            return False
        return bool(stored["settings"] == recorded_settings(self.experiment, self.options))

    def _stored_records(self) -> Iterator[dict[str, Any]]:
        """Read every whole line; one that a kill cut short is passed over."""
        if not self.path.is_file():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                stored = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(stored, dict) and stored.keys() >= KEYS:
                yield stored


def recorded_settings(experiment: Experiment, options: Options) -> dict[str, Any]:
    """Return the settings that a record carries. Records with the same are not run again.

    The version of the protocol is one of them, the release of this package is not.
    """
    return {**options.settings(), "protocol": experiment.protocol}


def to_line(content: Mapping[str, Any]) -> str:
    """Write a record as one line of JSON."""
    return json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def pack_rows(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Turn rows into blocks of rows with the same columns, whose names are written once.

    Two rows {"a": 1, "b": 2} and {"a": 3, "b": 4} become one block,
    {"columns": ["a", "b"], "values": [[1, 2], [3, 4]]}, which takes a third of the space.
    """
    blocks: list[dict[str, Any]] = []
    for row in rows:
        cells = plain(row.cells(), nan="nan", digits=DIGITS)
        if not blocks or blocks[-1]["columns"] != list(cells):
            blocks.append({"columns": list(cells), "values": []})
        blocks[-1]["values"].append(list(cells.values()))
    return blocks


def unpack_rows(blocks: Iterable[Mapping[str, Any]], kinds: Iterable[type[Row]]) -> Iterator[Row]:
    """Turn the blocks that `pack_rows` made back into rows of a record.

    `kinds` are the classes of rows that an experiment has. The rows of a block are of the first
    kind that has its columns.
    """
    for block in blocks:
        columns = block["columns"]
        kind = next((kind for kind in kinds if kind.has_columns(columns)), None)
        if kind is None:
            raise ValueError(
                f"a record has rows of {', '.join(columns)}, which this version does not know; "
                "run its splits again into another folder."
            )
        for values in block["values"]:
            yield kind.of(dict(zip(columns, values, strict=True)))


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that numbers depend on, where installed."""
    return {"python": platform.python_version(), **installed(*PACKAGES)}


def machine() -> dict[str, Any]:
    """Describe the machine: processor, cores, system, memory, versions; but not its name."""
    description: dict[str, Any] = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "versions": versions(),
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        description["memory_gib"] = round(memory / 2**30, 1)
    return description


def processor() -> str:
    """Name the model of the processor."""
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
