"""Every name of ``dco reproduce``, what it needs, and the function that rebuilds it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dco.datasets import Backbone
from dco.foundations.errors import MissingExtraError
from dco.foundations.files import write_files
from dco.foundations.ranks import Level, as_rational
from dco.paper import (
    asymptotics,
    beyond_regression,
    classification,
    further_splits,
    protocol,
    protocol_cifar100,
    regression,
    table_1,
    tuning_oracle,
)
from dco.paper.coverage_z import all_z
from dco.paper.experiment import Experiment, Options, Records
from dco.paper.records import RecordFile, machine, recorded_settings, run_splits
from dco.paper.results_folder import RECORDS_FILE, SETTINGS_FILE, ResultsFolder
from dco.paper.tables import ResultTable

MODULES = (
    regression,
    classification,
    asymptotics,
    tuning_oracle,
    table_1,
    beyond_regression,
    protocol,
    further_splits,
    protocol_cifar100,
)
EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for module in MODULES for experiment in module.EXPERIMENTS
}
GROUPS = {
    "beyond": "A stronger candidate class and refit, certified at the same level, against the "
    "paper's DCO.",
    "all": "Everything above whose data are there.",
}
MACHINE_FILE = "machine.json"
# in every folder of results, beside a CSV for each table and the figures
PAGES = ("tables.md", "tables.json", MACHINE_FILE)

Progress = Callable[[str, int, int, float], None]


@dataclass(frozen=True)
class Entry:
    """One line of ``dco reproduce --list``; `minutes` is the time without any records, on two
    cores.
    """

    name: str
    summary: str
    needs: str
    minutes: float


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` made: tables, the files it wrote, and what was left out and why."""

    name: str
    tables: tuple[ResultTable, ...]
    paths: tuple[Path, ...]
    skipped: tuple[str, ...]
    seconds: float


# ---- the list


def list_experiments(*, data_home: str | Path | None = None) -> list[Entry]:
    """List the single experiments, then the groups, with the time of those whose data are there."""
    entries = [
        Entry(experiment.name, experiment.summary, experiment.needs, total_minutes([experiment]))
        for experiment in EXPERIMENTS.values()
    ]
    return entries + [describe_group(name, data_home) for name in GROUPS]


def describe_group(name: str, data_home: str | Path | None) -> Entry:
    """Describe a group: what its experiments need, and how many of them can be run here."""
    members = experiments_of(name)
    here = [
        experiment
        for experiment in members
        if missing_data(experiment, make_options(experiment, data_home=data_home)) is None
    ]
    summary = GROUPS[name]
    if len(here) < len(members):
        summary += f" Here: {len(here)} of {len(members)}."

    needs = dict.fromkeys(member.needs for member in members if member.needs != "nothing")
    return Entry(
        name=name,
        summary=summary,
        needs="; ".join(needs) or "nothing",
        minutes=total_minutes(here),
    )


def total_minutes(experiments: Iterable[Experiment]) -> float:
    """Add up the time of experiments; records that several share are made once, by their owner."""
    needed: dict[str, float] = {}
    for experiment in experiments:
        needed[experiment.name] = experiment.minutes
        needed[experiment.source] = EXPERIMENTS[experiment.source].minutes
    return round(sum(needed.values()), 1)


def experiments_of(name: str) -> list[Experiment]:
    """Return the experiments that a name stands for: itself, or the members of a group."""
    if name in EXPERIMENTS:
        return [EXPERIMENTS[name]]
    if name == "all":
        return list(EXPERIMENTS.values())
    if name in GROUPS:
        return [member for member in EXPERIMENTS.values() if member.part_of == name]
    raise ValueError(
        f"There is no experiment {name!r}; there are {', '.join([*EXPERIMENTS, *GROUPS])}."
    )


# ---- running one, or a group


def reproduce(
    name: str,
    *,
    out: str | Path,
    splits: int | None = None,
    alpha: Level | Sequence[Level] | None = None,
    seed: int = 0,
    jobs: int | None = None,
    scheduler: Any = None,
    quick: bool = False,
    data_home: str | Path | None = None,
    backbone: Backbone | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Reproduction:
    """Rebuild what the paper calls `name`: run its splits, and write records, tables and figures
    under ``out/<experiment>/``.

    `splits` seeds are run from `seed` on (default: the paper's 50; a few with `quick`), at the
    levels `alpha` (default: the paper's). Splits with a record under the same settings are not run
    again, so a run that was stopped goes on, and tables can be redrawn without the data. Tables and
    figures are written together at the end. Results of other settings, and files that no run
    wrote, are replaced only with `force`, and are a ValueError otherwise; records of other settings
    are never removed. `jobs` processes (default: all cores) or the Dask cluster at `scheduler` give
    the same numbers as one process. ``progress(experiment, done, total, seconds_left)`` is called
    after each split. In a group an experiment whose data or packages are missing is left out and
    named in ``skipped``; asked for by itself, it raises.
    """
    begin = time.perf_counter()
    levels = to_levels(alpha)
    is_group = name in GROUPS

    # 1. Which experiments can be run here?
    runs: list[Run] = []
    skipped: list[str] = []
    for experiment in experiments_of(name):
        options = make_options(
            experiment, alphas=levels, quick=quick, data_home=data_home, backbone=backbone
        )
        n_splits = number_of_splits(experiment, splits, quick=quick)
        run = Run(experiment, options, seeds=range(seed, seed + n_splits), out=Path(out))
        reason = run.reason_not_to_run()
        if reason is None:
            runs.append(run)
        elif is_group:
            skipped.append(f"{experiment.name}: {reason}")
        else:
            raise FileNotFoundError(reason)

    # 2. Nothing that others made may be in the way.
    group_settings = {"quick": quick, "seed": seed, "splits": splits, "alphas": list(levels)}
    group = ResultsFolder(Path(out) / name, group_settings) if is_group else None
    claim_folders(runs, group, force=force)

    # 3. Run the splits that are not on record.
    runs_with_new_splits = [run for run in runs if run.unrecorded_seeds()]
    if backbone is not None:
        backbone.features()  # once, before processes share the work
    all_records = [
        run_splits(
            run.experiment,
            run.record_path,
            seeds=run.seeds,
            options=run.options,
            jobs=-1 if jobs is None else jobs,
            scheduler=scheduler,
            progress=None if progress is None else partial(progress, run.experiment.name),
        )
        for run in runs
    ]

    # 4. Make tables and figures, and write all of them or none.
    pages = [
        make_page(run, records, is_redrawn=run not in runs_with_new_splits)
        for run, records in zip(runs, all_records, strict=True)
    ]
    if group is not None:
        pages += make_group_page(group, pages, is_redrawn=not runs_with_new_splits)
    if not force:
        for page in pages:
            page.folder.check_files(page.files)
    paths = write_pages(pages)

    return Reproduction(
        name=name,
        tables=tuple(table for page in pages for table in page.tables),
        paths=tuple(paths),
        skipped=(*skipped, *(reason for page in pages for reason in page.skipped)),
        seconds=time.perf_counter() - begin,
    )


@dataclass(frozen=True)
class Run:
    """One experiment as it was asked for."""

    experiment: Experiment
    options: Options
    seeds: range
    out: Path

    @property
    def record_folder(self) -> ResultsFolder:
        """The folder of its records, which may be that of another experiment."""
        settings = {**recorded_settings(self.experiment, self.options), "seed": self.seeds.start}
        return ResultsFolder(self.out / self.experiment.source, settings)

    @property
    def record_path(self) -> Path:
        """The file of its records."""
        return self.record_folder.path / RECORDS_FILE

    @property
    def folder(self) -> ResultsFolder:
        """The folder of its tables and figures."""
        settings = {**self.record_folder.settings, "splits": len(self.seeds)}
        return ResultsFolder(self.out / self.experiment.name, settings)

    def unrecorded_seeds(self) -> list[int]:
        """Return the splits that have no record yet."""
        records = RecordFile(self.record_path, self.experiment, self.options).read()
        return [seed for seed in self.seeds if seed not in records]

    def reason_not_to_run(self) -> str | None:
        """Say what is missing for the splits that have no record yet; None if all can be run."""
        reason = missing_data(self.experiment, self.options)
        if reason is None or self.options.backbone is not None:
            return reason  # records of features made here are known by the file of weights
        return reason if self.unrecorded_seeds() else None


def claim_folders(runs: Sequence[Run], group: ResultsFolder | None, *, force: bool) -> None:
    """Say in every folder what is made there; without `force`, refuse what others made there."""
    folders = [run.folder for run in runs]
    if group is not None:
        folders.append(group)
    record_folders = [run.record_folder for run in runs]

    if not force:
        for folder in [*record_folders, *folders]:
            folder.check_settings()
        for folder in folders:
            folder.check_files(PAGES)
    for folder in [*folders, *record_folders]:
        folder.claim()


def make_options(
    experiment: Experiment,
    *,
    alphas: tuple[float, ...] = (),
    quick: bool = False,
    data_home: str | Path | None = None,
    backbone: Backbone | None = None,
) -> Options:
    """Make the options of an experiment: its own levels unless others are asked for."""
    return Options(
        alphas=alphas or experiment.alphas,
        quick=quick,
        data_home=None if data_home is None else str(data_home),
        backbone=backbone,
    )


def to_levels(alpha: Level | Sequence[Level] | None) -> tuple[float, ...]:
    """Turn one level or several into floats; none if none is asked for."""
    if alpha is None:
        return ()
    if isinstance(alpha, Sequence) and not isinstance(alpha, str):
        return tuple(float(as_rational(level)) for level in alpha)
    return (float(as_rational(alpha)),)


def number_of_splits(experiment: Experiment, splits: int | None, *, quick: bool) -> int:
    """Return how many splits to run: those asked for, else the paper's, or a few where it is to be
    quick; one where nothing is random.
    """
    if experiment.splits == 1:
        return 1
    if splits is not None:
        return splits
    return min(experiment.splits, experiment.quick_splits) if quick else experiment.splits


def missing_data(experiment: Experiment, options: Options) -> str | None:
    """Say in one sentence what is not there to run an experiment."""
    if options.backbone is None:
        return None if experiment.missing is None else experiment.missing(options)
    if not experiment.is_of_images:
        return (
            f"{experiment.name} has no image features: --features is for cifar100, imagenet-a and "
            f"their tables."
        )
    return options.backbone.missing() or wrong_images(experiment, options.backbone)


def wrong_images(experiment: Experiment, backbone: Backbone) -> str | None:
    """Say why images are not those of the experiment: ImageNet-A must not pass for CIFAR-100, nor
    the reverse.
    """
    needs_imagenet = experiment.source == "imagenet-a"
    if needs_imagenet == backbone.is_imagenet():
        return None
    if needs_imagenet:
        return (
            f"{backbone.images} does not hold ImageNet-A: its images are not in folders named as "
            f"n01498041 is."
        )
    return (
        f"{backbone.images} holds ImageNet-A, by the names of its folders, and {experiment.name} "
        f"is made from CIFAR-100."
    )


# ---- what a run leaves in its folder


@dataclass(frozen=True)
class Page:
    """The tables of a folder, and the content of its files by name."""

    folder: ResultsFolder
    tables: list[ResultTable]
    files: dict[str, str | bytes]
    skipped: list[str] = field(default_factory=list)


def make_page(run: Run, records: Records, *, is_redrawn: bool) -> Page:
    """Make the tables and figures of an experiment from its records."""
    tables = run.experiment.tables(records, run.options)
    figures: dict[str, bytes] = {}
    skipped: list[str] = []
    if run.experiment.figures is not None:
        try:
            figures = run.experiment.figures(records, run.options)
        except MissingExtraError as error:
            skipped.append(f"figures of {run.experiment.name}: {error}")
    machine_page = machine_file(run.folder, is_redrawn=is_redrawn)
    return Page(
        folder=run.folder,
        tables=tables,
        files={**files_of(tables), **machine_page, **figures},
        skipped=skipped,
    )


def make_group_page(group: ResultsFolder, pages: Sequence[Page], *, is_redrawn: bool) -> list[Page]:
    """Put every coverage of a group beside its law; no page where none has a law."""
    table = all_z([table for page in pages for table in page.tables])
    if table is None:
        return []
    files = {**files_of([table]), **machine_file(group, is_redrawn=is_redrawn)}
    return [Page(folder=group, tables=[table], files=files)]


def files_of(tables: Sequence[ResultTable]) -> dict[str, str | bytes]:
    """Write tables as one page of Markdown, one of JSON and a CSV each."""
    files: dict[str, str | bytes] = {
        "tables.md": "\n".join(table.to_markdown() for table in tables),
        "tables.json": "[" + ",\n".join(table.to_json() for table in tables) + "]\n",
    }
    for table in tables:
        files[f"{table.slug}.csv"] = table.to_csv()
    return files


def machine_file(folder: ResultsFolder, *, is_redrawn: bool) -> dict[str, str]:
    """Describe the machine that splits ran on: this one, or that of earlier results redrawn."""
    path = folder.path / MACHINE_FILE
    if is_redrawn and path.is_file():
        return {MACHINE_FILE: path.read_text(encoding="utf-8")}
    return {MACHINE_FILE: json.dumps(machine(), indent=1) + "\n"}


def write_pages(pages: Sequence[Page]) -> list[Path]:
    """Write all pages or none, remove what earlier results left, and return what lies there now."""
    contents: dict[Path, str | bytes] = {}
    outdated: list[Path] = []
    paths: list[Path] = []
    for page in pages:
        folder = page.folder.path
        contents[folder / SETTINGS_FILE] = page.folder.settings_text(page.files)
        for name, content in page.files.items():
            contents[folder / name] = content
        outdated += [folder / name for name in page.folder.written_files() - page.files.keys()]

        if (folder / RECORDS_FILE).is_file():
            paths.append(folder / RECORDS_FILE)
        paths += [folder / name for name in page.files]
    write_files(contents, remove=outdated)
    return paths
