"""A record for each split, appended as it finishes, so that a run that was ended goes on where it
stopped.

One line of JSON a split: seed, settings, seconds, versions, and the rows (columns named once, then
values). Tables are always made from what was read back, so a run in one go, one that was resumed
and one on many cores give the same tables.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dco.foundations import files
from dco.foundations.extras import installed
from dco.foundations.parallel import run_many
from dco.paper.experiment import Experiment, Options, SplitRecord

PACKAGES = ("numpy", "scipy", "scikit-learn", "jax", "numpyro", "joblib")
# splits sent to a cluster at a time; its workers may not see our disk, so records are written here
# after each
WAVE = 32

Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class _Unit:
    """A split that can travel to another process; with `path` it writes its own records."""

    experiment: Experiment
    options: Options
    path: str | None

    def __call__(self, seed: int) -> str:
        # untyped; scikit-learn brings it
        threadpool_limits = import_module("threadpoolctl").threadpool_limits

        begin = time.perf_counter()
        with threadpool_limits(limits=1):
            rows = self.experiment.run_split(seed, self.options)
        line = _line(self.experiment.source, seed, self.options, rows, time.perf_counter() - begin)
        if self.path is not None:
            append(Path(self.path), [line])
        return line


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
    """Run the seeds that `path` has no record of, append theirs, and give all records in order of
    seed.

    `jobs` and `scheduler` are those of `run_many`; neither changes a number. ``progress(done,
    total, seconds_left)`` counts splits, those on record included.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    done = read(path, experiment, options)
    left = [seed for seed in seeds if seed not in done]
    begin = time.perf_counter()

    def watch(finished: int, of: int) -> None:
        if progress is not None:
            pace = (time.perf_counter() - begin) / max(1, finished)
            progress(len(seeds) - of + finished, len(seeds), pace * (of - finished))

    if scheduler is None:
        run_many(_Unit(experiment, options, str(path)), left, n_jobs=jobs, progress=watch)
    else:
        for start in range(0, len(left), WAVE):
            wave = left[start : start + WAVE]
            for number, line in enumerate(
                run_many(_Unit(experiment, options, None), wave, scheduler=scheduler), start + 1
            ):
                append(path, [line])
                watch(number, len(left))
    done = read(path, experiment, options)
    _sort(path, experiment, options)
    return [done[seed] for seed in seeds]


def read(path: Path, experiment: Experiment, options: Options) -> dict[int, SplitRecord]:
    """The records of this experiment under these settings, by seed; a line cut short by a kill is
    passed over.
    """
    wanted = recorded_settings(options)
    return {
        int(entry["seed"]): SplitRecord(
            int(entry["seed"]), tuple(unpacked(entry["rows"])), float(entry["seconds"])
        )
        for entry in _entries(path)
        if entry["experiment"] == experiment.source and entry["settings"] == wanted
    }


def append(path: Path, lines: Iterable[str]) -> None:
    """Add whole lines, however many processes append to the file or sort it."""
    with _held(path) as (file, _):
        # A leading newline ends a line that a kill cut short; empty lines are passed over when
        # read.
        rest = memoryview(("\n" + "\n".join(lines) + "\n").encode())
        while rest:
            rest = rest[os.write(file, rest) :]


@contextmanager
def _held(path: Path) -> Iterator[tuple[int, bool]]:
    """The file, open to append and held against all others who open it so; False where files cannot
    be locked.
    """
    files.check_regular(path)
    while True:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            locked = files.lock_file(file, wait=True)
            if locked and not files.is_at(file, path):
                continue  # it was sorted while we waited: the name belongs to another file now
            yield file, locked
            return
        finally:
            os.close(file)  # which ends the lock, as a kill does


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if (
            isinstance(entry, dict)
            and {"experiment", "seed", "settings", "rows", "seconds"} <= entry.keys()
        ):
            yield entry


def _sort(path: Path, experiment: Experiment, options: Options) -> None:
    """Rewrite the file in order of seed, one line per seed; records of other settings stay in
    front.

    Where files cannot be locked it stays as it is: a line that another process adds meanwhile would
    be lost.
    """
    wanted = recorded_settings(options)
    with _held(path) as (_, locked):
        others, ours = [], {}
        for entry in _entries(path):
            if entry["experiment"] == experiment.source and entry["settings"] == wanted:
                ours[int(entry["seed"])] = entry
            else:
                others.append(entry)
        text = "".join(
            _dump(entry) + "\n" for entry in [*others, *(ours[seed] for seed in sorted(ours))]
        )
        if locked and text != path.read_text(encoding="utf-8"):
            files.write_whole(path, text)


def _line(
    name: str, seed: int, options: Options, rows: Sequence[Mapping[str, Any]], seconds: float
) -> str:
    return _dump(
        {
            "experiment": name,
            "seed": seed,
            "settings": recorded_settings(options),
            "seconds": round(seconds, 3),
            "versions": versions(),
            "rows": packed([plain(row) for row in rows]),
        }
    )


def _dump(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def recorded_settings(options: Options) -> dict[str, Any]:
    """What records must share to be taken up again."""
    return {**options.settings(), "dco": version("decoupled-conformal")}


def packed(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows as blocks of equal columns, which are named once: files a third as large."""
    blocks: list[dict[str, Any]] = []
    for row in rows:
        if not blocks or blocks[-1]["columns"] != list(row):
            blocks.append({"columns": list(row), "values": []})
        blocks[-1]["values"].append(list(row.values()))
    return blocks


def unpacked(blocks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `packed`, in their order."""
    return [
        dict(zip(block["columns"], values, strict=True))
        for block in blocks
        for values in block["values"]
    ]


def plain(value: Any) -> Any:
    """The value in JSON's types, floats to 12 digits; what is not finite is a text that ``float()``
    turns back.
    """
    return files.plain(value, nan="nan", digits=12)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """The versions of Python and of the packages that numbers depend on, where installed."""
    return {"python": platform.python_version(), **installed(*PACKAGES)}


def machine() -> dict[str, Any]:
    """What a run ran on: processor, cores, memory, operating system, versions. Nothing that names
    the machine.
    """
    described: dict[str, Any] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "versions": versions(),
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        described["memory_gib"] = round(
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1
        )
    return described


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
