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
    beyond_other_class,
    beyond_regression,
    california_subsamples,
    classification,
    diabetes_400,
    further_splits,
    protocol,
    protocol_cifar100,
    regression,
    table_1,
    table_1_results,
    tuning_oracle,
)
from dco.paper.coverage_z import all_z
from dco.paper.experiment import Experiment, Options, SplitRecords, failed_download
from dco.paper.paper_parts import find_part, group_numbers
from dco.paper.records import RecordFile, machine, recorded_settings, run_splits
from dco.paper.results_folder import RECORDS_FILE, SETTINGS_FILE, ResultsFolder
from dco.paper.tables import ResultTable

MODULES = (
    regression,
    classification,
    asymptotics,
    tuning_oracle,
    table_1,
    table_1_results,
    california_subsamples,
    diabetes_400,
    beyond_regression,
    beyond_other_class,
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

# called after each split with the experiment, splits done, all splits, and seconds left
Progress = Callable[[str, int, int, float], None]


@dataclass(frozen=True)
class ListedExperiment:
    """One line of ``dco reproduce --list``: an experiment, or a group of them.

    `paper` says which parts of the paper it is about, "Tables 2, 9; Figure 2", and is empty for a
    group. `minutes` is the time on two cores where no split is on record.
    """

    name: str
    summary: str
    needs: str
    minutes: float
    paper: str = ""


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` made: tables, the files it wrote, and what was left out and why."""

    name: str
    tables: tuple[ResultTable, ...]
    paths: tuple[Path, ...]
    skipped: tuple[str, ...]
    seconds: float


# ---- the list


def list_experiments(*, data_home: str | Path | None = None) -> list[ListedExperiment]:
    """List the experiments, then the groups of experiments, for ``dco reproduce --list``.

    A group counts the time of those of its experiments whose data are there, in `data_home`.
    """
    listed = [
        ListedExperiment(
            name=experiment.name,
            summary=experiment.summary,
            needs=experiment.needs,
            minutes=total_minutes([experiment]),
            paper=group_numbers(experiment.paper_parts),
        )
        for experiment in EXPERIMENTS.values()
    ]
    return listed + [describe_group(name, data_home) for name in GROUPS]


def describe_group(name: str, data_home: str | Path | None) -> ListedExperiment:
    """Describe a group of experiments: what they need, and how many of them can be run here.

    An experiment can be run where its data are there, in `data_home`.
    """
    members = experiments_of(name)
    runnable = [
        experiment
        for experiment in members
        if missing_data(experiment, make_options(experiment, data_home=data_home)) is None
    ]
    summary = GROUPS[name]
    if len(runnable) < len(members):
        summary += f" Here: {len(runnable)} of {len(members)}."

    needs = [member.needs for member in members if member.needs != "nothing"]
    unique_needs = dict.fromkeys(needs)
    return ListedExperiment(
        name=name,
        summary=summary,
        needs="; ".join(unique_needs) or "nothing",
        minutes=total_minutes(runnable),
    )


def total_minutes(experiments: Iterable[Experiment]) -> float:
    """Add up the minutes that experiments take together.

    Experiments that share records need the splits of the experiment that owns them, once.
    """
    minutes_of: dict[str, float] = {}
    for experiment in experiments:
        owner = EXPERIMENTS[experiment.source]
        minutes_of[experiment.name] = experiment.minutes
        minutes_of[owner.name] = owner.minutes
    return round(sum(minutes_of.values()), 1)


def experiments_of(name: str) -> list[Experiment]:
    """Return the experiments that a name stands for.

    A name is that of an experiment, of a group of them, or the number of a part of the paper:
    "Table 6" stands for all experiments that find something about it.
    """
    if name in EXPERIMENTS:
        return [EXPERIMENTS[name]]
    if name == "all":
        return list(EXPERIMENTS.values())
    if name in GROUPS:
        return [member for member in EXPERIMENTS.values() if member.part_of == name]

    part = find_part(name)
    if part is not None:
        return [member for member in EXPERIMENTS.values() if part.number in member.paper_parts]
    raise ValueError(
        f"There is no experiment {name!r}; there are {', '.join([*EXPERIMENTS, *GROUPS])}, and the "
        f"numbers of the paper, such as 'table 6'."
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
    """Run the splits of an experiment or a group, and write its records, tables and figures.

    Results go to ``out/<experiment>/``. Splits that have a record there under the same settings are
    not run again, so a run that was stopped goes on, and tables can be drawn again without the
    data. Tables and figures are written together at the end.

    Where several experiments are asked for, those whose data or packages are missing are left out
    and named in ``skipped``; if none is left, that is an error.

    Parameters
    ----------
    name:
        An experiment or a group, as `list_experiments` names them, or the number of a part of the
        paper, "table 6".
    out:
        The folder of all results.
    splits:
        How many splits to run, by default the paper's 50; a few with `quick`.
    alpha:
        One miscoverage level or several, by default the paper's.
    seed:
        The seed of the first split; the others follow it.
    jobs, scheduler:
        The number of processes (default: all cores), or the address of a Dask cluster. Neither
        changes a number.
    quick:
        Run a smaller protocol than the paper's.
    data_home:
        The folder of the data.
    backbone:
        Makes image features here, in place of those that are ready.
    force:
        Replace results of other settings, and files that no run wrote; otherwise they are a
        ValueError. Records of other settings are never removed.
    progress:
        Called after each split as ``progress(experiment, done, total, seconds_left)``.
    """
    begin = time.perf_counter()
    levels = to_levels(alpha)
    is_group = name in GROUPS

    # 1. Find out which experiments can be run here.
    runs: list[Run] = []
    skipped: list[str] = []
    experiments = experiments_of(name)
    for experiment in experiments:
        options = make_options(
            experiment, alphas=levels, quick=quick, data_home=data_home, backbone=backbone
        )
        n_splits = number_of_splits(experiment, splits, quick=quick)
        run = Run(experiment, options, seeds=range(seed, seed + n_splits), out=Path(out))
        reason = run.reason_not_to_run()
        if reason is None:
            runs.append(run)
        elif len(experiments) > 1:
            skipped.append(f"{experiment.name}: {reason}")
        else:
            raise FileNotFoundError(reason)
    if not runs:
        raise FileNotFoundError(" ".join(skipped))

    # 2. Refuse to write where other results are, and mark the folders as ours.
    group_settings = {"quick": quick, "seed": seed, "splits": splits, "alphas": list(levels)}
    group_folder = ResultsFolder(Path(out) / name, group_settings) if is_group else None
    claim_folders(runs, group_folder, force=force)

    # 3. Run the splits that have no record. Experiments may share records, so those without new
    # splits are told apart before the first one runs.
    names_with_new_splits = {run.experiment.name for run in runs if run.unrecorded_seeds()}
    if backbone is not None:
        backbone.features()  # made once, before several processes ask for them
    n_jobs = -1 if jobs is None else jobs
    all_records = [run.run_splits(n_jobs, scheduler, progress) for run in runs]

    # 4. Make tables and figures, and write all of them or none.
    pages: list[Page] = []
    for run, records in zip(runs, all_records, strict=True):
        is_redrawn = run.experiment.name not in names_with_new_splits
        pages.append(make_page(run, records, is_redrawn=is_redrawn))
    if group_folder is not None:
        pages += make_group_page(group_folder, pages, is_redrawn=not names_with_new_splits)
    if not force:
        for page in pages:
            page.folder.check_files(page.files)
    paths = write_pages(pages)

    for page in pages:
        skipped += page.skipped
    return Reproduction(
        name=name,
        tables=tuple(table for page in pages for table in page.tables),
        paths=tuple(paths),
        skipped=tuple(skipped),
        seconds=time.perf_counter() - begin,
    )


@dataclass(frozen=True)
class Run:
    """One experiment with the options and seeds that were asked for, and the folder of results."""

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
        """Say what is missing for the splits that have no record yet; None if all can be run.

        Records of features made here are found by the file of weights, so that this file is needed
        even where every split is on record.
        """
        if self.options.backbone is not None:
            return missing_data(self.experiment, self.options)
        if not self.unrecorded_seeds():
            return None

        reason = missing_data(self.experiment, self.options)
        if reason is None:
            reason = failed_download(self.experiment, self.options)
        return reason

    def run_splits(self, n_jobs: int, scheduler: Any, progress: Progress | None) -> SplitRecords:
        """Run the splits that have no record yet, and return the records of all splits.

        `n_jobs` and `scheduler` say where they run. `progress` is called after each split, with the
        name of the experiment as its first argument.
        """
        progress_of_experiment = None
        if progress is not None:
            progress_of_experiment = partial(progress, self.experiment.name)
        return run_splits(
            self.experiment,
            self.record_path,
            seeds=self.seeds,
            options=self.options,
            jobs=n_jobs,
            scheduler=scheduler,
            progress=progress_of_experiment,
        )


def claim_folders(runs: Sequence[Run], group_folder: ResultsFolder | None, *, force: bool) -> None:
    """Write a settings file into every folder of results, before any split is run.

    It says with which settings the results are made. Without `force` it is an error (ValueError) if
    a folder has results of other settings, or a file in the place of a page that no run wrote. All
    folders are checked before the first is claimed.
    """
    folders = [run.folder for run in runs]
    if group_folder is not None:
        folders.append(group_folder)
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
    """Make the options of an experiment; without `alphas` they have the experiment's own levels."""
    return Options(
        alphas=alphas or experiment.alphas,
        quick=quick,
        data_home=None if data_home is None else str(data_home),
        backbone=backbone,
    )


def to_levels(alpha: Level | Sequence[Level] | None) -> tuple[float, ...]:
    """Turn one level or several into floats: "0.1" -> (0.1,), [0.1, 0.2] -> (0.1, 0.2), None -> ().

    A string is one level, such as "1/10".
    """
    if alpha is None:
        return ()
    if isinstance(alpha, Sequence) and not isinstance(alpha, str):
        return tuple(float(as_rational(level)) for level in alpha)
    return (float(as_rational(alpha)),)


def number_of_splits(experiment: Experiment, splits: int | None, *, quick: bool) -> int:
    """Return how many splits to run: `splits` of them, or the experiment's own number if None.

    With `quick` the own number is a smaller one. An experiment with one split has no random splits,
    and never runs more.
    """
    if experiment.splits == 1:
        return 1
    if splits is not None:
        return splits
    if quick:
        return min(experiment.splits, experiment.quick_splits)
    return experiment.splits


def missing_data(experiment: Experiment, options: Options) -> str | None:
    """Say in one sentence what data are missing to run an experiment; None if all are there.

    An experiment reads features from disk. Those on images can also make them from a folder of
    images, with a backbone (a network that turns an image into features) in the options.
    """
    backbone = options.backbone
    if backbone is None:
        return experiment.missing(options) if experiment.missing is not None else None

    if not experiment.is_of_images:
        return (
            f"{experiment.name} has no image features: --features is for cifar100, imagenet-a and "
            f"their tables."
        )
    reason = backbone.missing()
    if reason is not None:
        return reason
    return explain_wrong_images(experiment, backbone)


def explain_wrong_images(experiment: Experiment, backbone: Backbone) -> str | None:
    """Say why the folder of images in `backbone` is of other data than an experiment needs.

    None if it may be the right one. The experiment on ImageNet-A needs a folder with subfolders
    named as ImageNet's classes are, "n01498041"; the others are on CIFAR-100 and must not get one.
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
    """What is to be written to a folder of results: tables, and the content of files by name.

    `skipped` says what could not be made, and why.
    """

    folder: ResultsFolder
    tables: list[ResultTable]
    files: dict[str, str | bytes]
    skipped: list[str] = field(default_factory=list)


def make_page(run: Run, records: SplitRecords, *, is_redrawn: bool) -> Page:
    """Make the tables and figures of an experiment from its records, as the files of its folder.

    Figures are skipped, with a reason, where matplotlib is not installed. `is_redrawn` says that
    all records were there already: no split was run for these files.
    """
    experiment = run.experiment
    tables = experiment.tables(records, run.options)

    figures: dict[str, bytes] = {}
    skipped: list[str] = []
    if experiment.figures is not None:
        try:
            figures = experiment.figures(records, run.options)
        except MissingExtraError as error:
            skipped.append(f"figures of {experiment.name}: {error}")

    machine_page = machine_file(run.folder, is_redrawn=is_redrawn)
    return Page(
        folder=run.folder,
        tables=tables,
        files={**files_of(tables), **machine_page, **figures},
        skipped=skipped,
    )


def make_group_page(
    folder: ResultsFolder, pages: Sequence[Page], *, is_redrawn: bool
) -> list[Page]:
    """Make the page of a group: one table with every coverage of its pages beside its law.

    Without a coverage that has a law the list is empty.
    """
    table = all_z([table for page in pages for table in page.tables])
    if table is None:
        return []
    files = {**files_of([table]), **machine_file(folder, is_redrawn=is_redrawn)}
    return [Page(folder=folder, tables=[table], files=files)]


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
    """Describe the machine that the splits ran on, as the content of machine.json.

    It is this one, or where tables are only redrawn the one that the folder names already.
    """
    path = folder.path / MACHINE_FILE
    if is_redrawn and path.is_file():
        return {MACHINE_FILE: path.read_text(encoding="utf-8")}
    return {MACHINE_FILE: json.dumps(machine(), indent=1) + "\n"}


def write_pages(pages: Sequence[Page]) -> list[Path]:
    """Write the files of all pages, or none of them, and return the paths of all files there.

    A page is a folder of results with its tables and figures. Files that earlier results wrote
    there and these do not, such as tables of other levels, are removed. Records are not written
    here; their paths are returned too.
    """
    contents: dict[Path, str | bytes] = {}
    files_to_remove: list[Path] = []
    paths: list[Path] = []
    for page in pages:
        folder = page.folder.path
        contents[folder / SETTINGS_FILE] = page.folder.settings_text(page.files)
        for name, content in page.files.items():
            contents[folder / name] = content
        outdated_names = page.folder.written_files() - page.files.keys()
        files_to_remove += [folder / name for name in outdated_names]

        if (folder / RECORDS_FILE).is_file():
            paths.append(folder / RECORDS_FILE)
        paths += [folder / name for name in page.files]
    write_files(contents, remove=files_to_remove)
    return paths
