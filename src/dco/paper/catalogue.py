"""Every name of ``dco reproduce``, what it needs, and the function that rebuilds it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dco.datasets import Backbone
from dco.foundations.errors import MissingExtraError
from dco.foundations.files import Written, write_whole, written_together
from dco.foundations.ranks import as_rational
from dco.paper.coverage_z import all_z
from dco.paper.experiment import Experiment, Options, Records
from dco.paper.records import machine, recorded_settings, run_splits
from dco.paper.tables import ResultTable

# Each has a tuple EXPERIMENTS. One that is not installed offers nothing.
MODULES = (
    "regression",
    "classification",
    "theory_checks",
    "beyond_regression",
    "protocol",
    "protocol_classification",
)
GROUPS = {
    "beyond": "A stronger candidate class and refit, certified at the same level, against the "
    "paper's DCO.",
    "all": "Everything above whose data are there.",
}

_SETTINGS = "settings.json"
# in every folder of results, beside a CSV per table and figures
PAGES = ("tables.md", "tables.json", "machine.json")

Progress = Callable[[str, int, int, float], None]


@dataclass(frozen=True)
class Entry:
    """One line of ``dco reproduce --list``; `minutes` is the time on two cores when no records are
    there yet.
    """

    name: str
    summary: str
    needs: str
    minutes: float


@dataclass(frozen=True)
class Reproduction:
    """What ``reproduce`` made: tables, the files it wrote, and what was left out and why."""

    name: str
    tables: tuple[ResultTable, ...]
    paths: tuple[Path, ...]
    skipped: tuple[str, ...]
    seconds: float


def experiments() -> dict[str, Experiment]:
    """Every single experiment by name, in the order of the paper."""
    found: dict[str, Experiment] = {}
    for module in MODULES:
        if find_spec(f"dco.paper.{module}") is not None:
            found |= {each.name: each for each in import_module(f"dco.paper.{module}").EXPERIMENTS}
    return found


def names(*, data_home: str | Path | None = None) -> list[Entry]:
    """What can be reproduced: the single experiments, then the groups, which hold the experiments
    whose data are there.
    """
    single = experiments()
    listed = [
        Entry(each.name, each.summary, each.needs, _minutes([each], single))
        for each in single.values()
    ]
    for group, summary in GROUPS.items():
        parts = _parts(group, single)
        here = [
            each for each in parts if _lacking(each, _options(each, data_home=data_home)) is None
        ]
        needs = "; ".join(dict.fromkeys(each.needs for each in parts if each.needs != "nothing"))
        if len(here) < len(parts):
            summary += f" Here: {len(here)} of {len(parts)}."
        listed.append(Entry(group, summary, needs or "nothing", _minutes(here, single)))
    return listed


def _minutes(parts: Sequence[Experiment], single: dict[str, Experiment]) -> float:
    """The time that these take together; records that several share are made once, even if their
    owner is not asked for.
    """
    needed = {each.name: each.minutes for each in parts} | {
        each.source: single[each.source].minutes for each in parts
    }
    return round(sum(needed.values()), 1)


@dataclass(frozen=True)
class Order:
    """How an experiment is to be run; see `reproduce`."""

    splits: int | None = None
    alpha: float | Sequence[float] | None = None
    seed: int = 0
    jobs: int | None = None
    scheduler: Any = None
    quick: bool = False
    data_home: str | Path | None = None
    backbone: Backbone | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the numbers, but the levels."""
        return {"quick": self.quick, "seed": self.seed, "splits": self.splits}


def reproduce(
    name: str,
    *,
    out: str | Path,
    force: bool = False,
    progress: Progress | None = None,
    **order: Any,
) -> Reproduction:
    """Rebuild what the paper calls `name`: run its splits, write records, tables and figures under
    ``out/<experiment>/``.

    `order` has the fields of `Order`: `splits` seeds are run from `seed` on (default: the paper's
    50; a few with `quick`), at the levels `alpha` (default: the paper's). Records already there
    under the same settings are kept, so a run that was ended goes on. Tables and figures are
    written together at the end. Results of other settings, and files that are not as a run wrote
    them, are replaced only with `force`, and are a ValueError otherwise; records of other settings
    are never removed. `jobs` processes (default: all cores) or the Dask cluster at `scheduler` give
    the same numbers as one process. ``progress(experiment, done, total, seconds_left)`` is called
    after each split. In a group an experiment whose data or packages are missing is left out and
    named in ``skipped``; asked for by itself, it raises.
    """
    begin, asked = time.perf_counter(), Order(**order)
    chosen = _chosen(name, experiments())
    runs: list[_Run] = []
    skipped: list[str] = []
    for experiment in chosen:
        options = _options(
            experiment, alpha=asked.alpha, quick=asked.quick, data_home=asked.data_home
        )
        options = replace(options, backbone=asked.backbone)
        reason = _lacking(experiment, options)
        if reason is not None and len(chosen) == 1:
            raise FileNotFoundError(reason)
        if reason is not None:
            skipped.append(f"{experiment.name}: {reason}")
            continue
        runs.append(
            _Run(
                experiment,
                options,
                range(asked.seed, asked.seed + _count(experiment, asked.splits, quick=asked.quick)),
            )
        )
    places = [_Place(Path(out) / run.experiment.name, run.settings) for run in runs]
    shared = [_Place(Path(out) / run.experiment.source, run.shared_settings) for run in runs]
    group = _Place(Path(out) / name, {**asked.settings, "alphas": list(_levels(asked.alpha))})
    results = [*places, *([group] if len(chosen) > 1 else [])]
    if not force:
        for place in [*shared, *results]:
            place.check_settings()
        for place in results:
            place.check_files(PAGES)
    for place in [*results, *shared]:
        place.claim()
    if asked.backbone is not None:  # once, before processes share the work
        asked.backbone.features()
    done = [
        run_splits(
            run.experiment,
            Path(out) / run.experiment.source / "records.jsonl",
            seeds=run.seeds,
            options=run.options,
            jobs=-1 if asked.jobs is None else asked.jobs,
            scheduler=asked.scheduler,
            progress=None if progress is None else partial(progress, run.experiment.name),
        )
        for run in runs
    ]
    tables: list[ResultTable] = []
    paths: list[Path] = []
    stale: list[Path] = []
    with written_together() as files:
        for run, records, place in zip(runs, done, places, strict=True):
            before = len(files)
            made = run.experiment.tables(records, run.options)
            drawn, undrawn = _drawn(run.experiment, records, run.options, place.folder)
            tables += made
            paths += [*_written(made, place.folder), *drawn]
            skipped += undrawn
            stale += place.end(files[before:], force=force)
        together = all_z(tables) if len(chosen) > 1 else None
        if together is not None:
            before = len(files)
            tables.append(together)
            paths += _written([together], group.folder)
            stale += group.end(files[before:], force=force)
    for path in stale:
        path.unlink()
    return Reproduction(
        name, tuple(tables), tuple(paths), tuple(skipped), time.perf_counter() - begin
    )


@dataclass(frozen=True)
class _Run:
    """One experiment as it was asked for."""

    experiment: Experiment
    options: Options
    seeds: range

    @property
    def shared_settings(self) -> dict[str, Any]:
        """What all records in one file have in common."""
        return {**recorded_settings(self.options), "seed": self.seeds.start}

    @property
    def settings(self) -> dict[str, Any]:
        """What a folder of results is made with."""
        return {**self.shared_settings, "splits": len(self.seeds)}


@dataclass(frozen=True)
class _Place:
    """A folder of results. Its settings.json says what they were made with, and the SHA-256 of each
    file written.
    """

    folder: Path
    settings: dict[str, Any]

    def check_settings(self) -> None:
        """Refuse a folder that was made with other settings, or that has records of nobody knows
        which.
        """
        made = self._made()
        if made is None and (self.folder / "records.jsonl").exists():
            raise self._in_the_way("records.jsonl")
        found = {} if made is None else made["settings"]
        for name, asked in self.settings.items():
            if name in found and found[name] != asked:
                raise ValueError(
                    f"{self.folder} was made with {name} {found[name]} and not {asked}, and "
                    f"nothing is overwritten unasked; "
                    "choose another --out, or say --force."
                )

    def check_files(self, names: Sequence[str]) -> None:
        """Refuse to replace a file that is not as a run wrote it: a person's own, or one changed
        since.
        """
        written = self._files()
        for name in dict.fromkeys([*names, *written]):
            if (self.folder / name).exists() and not self._is_as_written(name, written):
                raise self._in_the_way(name)

    def claim(self) -> None:
        """Say in the folder what is being made there, unless it says so already."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._made() is None:
            self._write({"settings": self.settings, "files": {}})

    def end(self, files: Sequence[Written], *, force: bool) -> list[Path]:
        """Add settings.json to the files that are about to be placed here; returns those of earlier
        results to remove.
        """
        if not force:
            self.check_files([file.target.name for file in files])
        new, written = (
            {file.target.name: _fingerprint(file.beside) for file in files},
            self._files(),
        )
        self._write({"settings": self.settings, "files": new})
        return [
            self.folder / name
            for name in written
            if name not in new and self._is_as_written(name, written)
        ]

    def _made(self) -> dict[str, Any] | None:
        try:
            made = json.loads((self.folder / _SETTINGS).read_text(encoding="utf-8"))
            return (
                made
                if isinstance(made["files"], dict) and isinstance(made["settings"], dict)
                else None
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _files(self) -> dict[str, str]:
        made = self._made()
        return {} if made is None else made["files"]

    def _is_as_written(self, name: str, written: Mapping[str, str]) -> bool:
        path = self.folder / name
        return name in written and path.is_file() and _fingerprint(path) == written[name]

    def _in_the_way(self, name: str) -> ValueError:
        return ValueError(
            f"{self.folder / name} is not as this command wrote it, and nothing is overwritten "
            f"unasked; choose another "
            "--out, or say --force."
        )

    def _write(self, made: Mapping[str, Any]) -> None:
        write_whole(self.folder / _SETTINGS, json.dumps(made, indent=1) + "\n")


def _fingerprint(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _chosen(name: str, single: dict[str, Experiment]) -> list[Experiment]:
    if name in GROUPS:
        return _parts(name, single)
    if name in single:
        return [single[name]]
    raise ValueError(
        f"there is nothing called {name!r} to reproduce; there are {', '.join([*single, *GROUPS])}."
    )


def _parts(group: str, single: dict[str, Experiment]) -> list[Experiment]:
    return [each for each in single.values() if group == "all" or each.part_of == group]


def _options(
    experiment: Experiment, *, alpha: Any = None, quick: bool = False, data_home: str | Path | None
) -> Options:
    return Options(
        _levels(alpha) or experiment.alphas, quick, None if data_home is None else str(data_home)
    )


def _lacking(experiment: Experiment, options: Options) -> str | None:
    """What is not there to run it, in one sentence."""
    if options.backbone is not None:
        if not experiment.of_images:
            return (
                f"{experiment.name} has no image features: --features is for cifar100, "
                f"imagenet-a and their tables."
            )
        return options.backbone.missing() or _other_images(experiment, options.backbone)
    return None if experiment.missing is None else experiment.missing(options)


def _other_images(experiment: Experiment, backbone: Backbone) -> str | None:
    """Why these images are not those of the experiment: ImageNet-A must not pass for CIFAR-100, nor
    the reverse.
    """
    if experiment.source == "imagenet-a" and not backbone.is_imagenet():
        return (
            f"{backbone.images} does not hold ImageNet-A: its images are not in folders named "
            f"as n01498041 is."
        )
    if experiment.source != "imagenet-a" and backbone.is_imagenet():
        return (
            f"{backbone.images} holds ImageNet-A, by the names of its folders, and "
            f"{experiment.name} is made from CIFAR-100."
        )
    return None


def _count(experiment: Experiment, splits: int | None, *, quick: bool) -> int:
    """How many splits are run: those asked for, else the paper's or, quickly, a few; one where
    there is nothing random.
    """
    if splits is not None and experiment.splits > 1:
        return splits
    if quick and splits is None:
        return min(experiment.splits, experiment.quick_splits)
    return experiment.splits


def _drawn(
    experiment: Experiment, records: Records, options: Options, folder: Path
) -> tuple[list[Path], list[str]]:
    """The figures that were written, and why there are none where the package that draws is
    missing.
    """
    if experiment.figures is None:
        return [], []
    try:
        return experiment.figures(records, options, folder), []
    except MissingExtraError as missing:
        return [], [f"figures of {experiment.name}: {missing}"]


def _levels(alpha: float | Sequence[float] | None) -> tuple[float, ...]:
    if alpha is None:
        return ()
    levels = alpha if isinstance(alpha, Sequence) and not isinstance(alpha, str) else [alpha]
    return tuple(float(as_rational(level)) for level in levels)


def _written(tables: Sequence[ResultTable], folder: Path) -> list[Path]:
    """Tables as one Markdown page, one CSV and one JSON file each, and the machine they were made
    on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pages = {
        "tables.md": "\n".join(table.to_markdown() for table in tables),
        "tables.json": "[" + ",\n".join(table.to_json() for table in tables) + "]\n",
        "machine.json": json.dumps(machine(), indent=1) + "\n",
        **{f"{table.slug}.csv": table.to_csv() for table in tables},
    }
    for file, text in pages.items():
        write_whole(folder / file, text)
    records = folder / "records.jsonl"
    return [*([records] if records.is_file() else []), *(folder / file for file in pages)]
