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
    """Run the seeds that have no record in `path`, write theirs down, and return all records.

    `jobs` and `scheduler` are those of `run_many`; neither changes a number. ``progress(done,
    total, seconds_left)`` counts splits, those on record included.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    check_regular(path)
    file = RecordFile(path, experiment, options)
    begin = time.perf_counter()

    def report(finished: int, total: int) -> None:
        if progress is not None:
            seconds_each = (time.perf_counter() - begin) / finished
            on_record = len(seeds) - total
            progress(on_record + finished, len(seeds), seconds_each * (total - finished))

    with wait_for_folder(path.parent):  # a second run waits, and then finds these splits on record
        on_record = file.read()
        run_many(
            SplitRun(experiment, options),
            [seed for seed in seeds if seed not in on_record],
            n_jobs=jobs,
            scheduler=scheduler,
            on_result=file.append,
            progress=report,
        )
        file.sort()
    finished = file.read()
    return [finished[seed] for seed in seeds]


@dataclass(frozen=True)
class SplitRun:
    """A split that can travel to another process; it returns the line of its record."""

    experiment: Experiment
    options: Options

    def __call__(self, seed: int) -> str:
        """Run the split on one thread."""
        # untyped; scikit-learn brings it
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
    """The records of one experiment under one set of options; those of others stay untouched."""

    path: Path
    experiment: Experiment
    options: Options

    def read(self) -> dict[int, SplitRecord]:
        """Read the records by seed."""
        return {
            stored["seed"]: SplitRecord(
                seed=stored["seed"],
                rows=tuple(unpack_rows(stored["rows"], self.experiment.row_kinds)),
                seconds=float(stored["seconds"]),
            )
            for stored in self._stored_records()
            if self._is_ours(stored)
        }

    def append(self, line: str) -> None:
        """Add the line of one split."""
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            # the first newline ends a line that a kill cut short; empty lines are passed over
            file.write(f"\n{line}\n")

    def sort(self) -> None:
        """Rewrite the file in order of seed, one line for each; other records stay in front."""
        others: list[str] = []
        ours: dict[int, str] = {}
        for stored in self._stored_records():
            if self._is_ours(stored):
                ours[stored["seed"]] = to_line(stored)
            else:
                others.append(to_line(stored))

        lines = [*others, *(ours[seed] for seed in sorted(ours))]
        text = "".join(f"{line}\n" for line in lines)
        if not self.path.is_file() or text != self.path.read_text(encoding="utf-8"):
            write_file(self.path, text)

    def _is_ours(self, stored: Mapping[str, Any]) -> bool:
        settings = recorded_settings(self.experiment, self.options)
        is_ours = stored["experiment"] == self.experiment.source
        return is_ours and bool(stored["settings"] == settings)

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
    """Return what records must share to be taken up again: the protocol, not the release."""
    return {**options.settings(), "protocol": experiment.protocol}


def to_line(content: Mapping[str, Any]) -> str:
    """Write a record as one line of JSON."""
    return json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def pack_rows(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Turn rows into blocks whose columns are named once: a third of the size."""
    blocks: list[dict[str, Any]] = []
    for row in rows:
        cells = plain(row.cells(), nan="nan", digits=DIGITS)
        if not blocks or blocks[-1]["columns"] != list(cells):
            blocks.append({"columns": list(cells), "values": []})
        blocks[-1]["values"].append(list(cells.values()))
    return blocks


def unpack_rows(blocks: Iterable[Mapping[str, Any]], kinds: Iterable[type[Row]]) -> Iterator[Row]:
    """Turn blocks back into rows, each of the first kind that has its columns."""
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
    """Describe what a run ran on, without anything that names the machine."""
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
