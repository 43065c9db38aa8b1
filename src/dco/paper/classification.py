"""The paper's classification experiments: Section 5.2, the ablations and Appendix C.3.

Tables 3 to 7, 11 and 12, Figures 3 and 4, on CIFAR-100 and on ImageNet-A; and a stronger class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from dco.datasets import CIFAR100_FEATURES
from dco.foundations.files import write_files
from dco.paper import beyond_classification_tables as beyond
from dco.paper import classification_figures as figures
from dco.paper import classification_splits as splits
from dco.paper import classification_tables as tables
from dco.paper import paper_findings
from dco.paper.beyond_classification import development_table
from dco.paper.classification_splits import LEVELS, ROW_KINDS, Study, run_split
from dco.paper.experiment import Experiment, Options, SplitRecords, needs_file
from dco.paper.figures import Files
from dco.paper.paper_parts import Finding
from dco.paper.tables import ResultTable

CIFAR100 = Study(
    name="cifar100",
    title="CIFAR-100",
    data_note="CIFAR-100 features from a frozen EfficientNet-Lite2 (the paper's are ResNet-50's).",
    load=splits.cifar100_rows,
    has_stronger_class=True,
)
IMAGENET_A = Study(
    name="imagenet-a",
    title="ImageNet-A",
    data_note="ImageNet-A features from a frozen ResNet-50, the 198 classes with most images.",
    load=splits.imagenet_a_rows,
    is_stratified=True,
    n_classes=splits.IMAGENET_A_CLASSES,
)

TableMaker: TypeAlias = Callable[[Study, SplitRecords, Options], ResultTable]
FigureMaker: TypeAlias = Callable[..., Files]

MAIN: tuple[TableMaker, ...] = (
    tables.main_beside_table,
    partial(tables.main_table, features="raw"),
    partial(tables.main_table, features="standardised"),
    tables.paired_table,
    tables.single_run_table,
    tables.confidence_table,
    tables.candidates_table,
    tables.selection_table,
)
MATCHED: tuple[TableMaker, ...] = (
    partial(tables.matched_table, features="raw"),
    tables.matched_beside_table,
    partial(tables.matched_table, features="standardised"),
)
RATIOS: tuple[TableMaker, ...] = (
    tables.ratio_table,
    partial(tables.ratio_beside_table, features="raw"),
)
BY_LEVEL: tuple[TableMaker, ...] = (
    tables.levels_table,
    tables.level_sizes_table,
    tables.levels_beside_table,
)
BEYOND: tuple[TableMaker, ...] = (
    beyond.beyond_table,
    beyond.gain_table,
    beyond.auto_split_table,
    beyond.chosen_table,
)

DEVELOPMENT_SEEDS = range(6)  # of the random divisions of the development rows


def make_tables(
    records: SplitRecords, options: Options, *, study: Study, makers: Sequence[TableMaker]
) -> list[ResultTable]:
    """Make tables of a study from its records, and leave out those without rows.

    A table that only sets ours beside the paper's has no rows at other levels than the paper's.
    """
    study = study.with_note_on_backbone(options)
    all_tables = [maker(study, records, options) for maker in makers]
    return [table for table in all_tables if table.rows]


def make_figures(
    records: SplitRecords, options: Options, *, study: Study, maker: FigureMaker
) -> Files:
    """Draw the figures of a study from its records."""
    return maker(records, options, study=study.with_note_on_backbone(options))


def write_development_table(data_home: str | None, folder: str | Path) -> ResultTable:
    """Compare the stronger candidates on CIFAR-100, and write the table to files in `folder`.

    The files are rows-set-aside.md and rows-set-aside.csv; the table is returned too. It tells
    which candidates to list and which one to fix where nothing is searched, on development rows
    that no experiment uses. ``dco reproduce`` does not run it.
    """
    rows = splits.cifar100_development_rows(data_home)
    table = development_table(rows.features, rows.labels, seeds=DEVELOPMENT_SEEDS, alphas=LEVELS)
    write_files(
        {
            Path(folder) / "rows-set-aside.md": table.to_markdown(),
            Path(folder) / "rows-set-aside.csv": table.to_csv(),
        }
    )
    return table


def missing_imagenet_a(options: Options) -> str | None:
    """Say what to do if the images of ImageNet-A are not there."""
    images = splits.find_imagenet_a(options.data_home)
    return splits.NEEDS_IMAGENET_A if images is None else None


def cifar100_experiment(
    name: str,
    *,
    summary: str,
    table_makers: Sequence[TableMaker],
    figure_maker: FigureMaker | None = None,
    minutes: float = 0.1,
    findings: tuple[Finding, ...],
    part_of: str | None = None,
) -> Experiment:
    """Declare an experiment that makes tables and figures from the records of CIFAR-100.

    All such experiments share one file of records, so that splits are run once.

    Parameters
    ----------
    name, summary:
        What ``dco reproduce --list`` shows.
    table_makers:
        Functions that make one table each, from the study, the records and the options.
    figure_maker:
        A function that draws all figures; None for an experiment without figures.
    minutes:
        The time of the experiment where the records are there.
    findings:
        What it finds about parts of the paper.
    part_of:
        The group of experiments that it belongs to, if any.
    """
    figures_from_records = None
    if figure_maker is not None:
        figures_from_records = partial(make_figures, study=CIFAR100, maker=figure_maker)
    return Experiment(
        name=name,
        summary=summary,
        needs=CIFAR100_FEATURES,
        minutes=minutes,
        run_split=partial(run_split, study=CIFAR100),
        tables=partial(make_tables, study=CIFAR100, makers=tuple(table_makers)),
        figures=figures_from_records,
        row_kinds=ROW_KINDS,
        missing=needs_file("CIFAR-100", CIFAR100_FEATURES),
        alphas=LEVELS,
        is_of_images=True,
        quick_splits=3,
        part_of=part_of,
        records_of="cifar100",
        findings=findings,
    )


EXPERIMENTS = (
    cifar100_experiment(
        "cifar100",
        summary="CIFAR-100 at three levels; single run, candidates, selection frequencies, BQ's "
        "confidence.",
        table_makers=MAIN,
        figure_maker=figures.main_figures,
        minutes=22.1,
        findings=paper_findings.CIFAR100,
    ),
    Experiment(
        name="imagenet-a",
        summary="ImageNet-A: main table, single run, candidates, selection frequencies, controls.",
        needs="the images of ImageNet-A",
        minutes=20.0,
        run_split=partial(run_split, study=IMAGENET_A),
        tables=partial(make_tables, study=IMAGENET_A, makers=(*MAIN, *MATCHED, *RATIOS, *BY_LEVEL)),
        figures=partial(make_figures, study=IMAGENET_A, maker=figures.main_figures),
        row_kinds=ROW_KINDS,
        missing=missing_imagenet_a,
        alphas=LEVELS,
        is_of_images=True,
        quick_splits=3,
        findings=paper_findings.IMAGENET_A,
    ),
    cifar100_experiment(
        "matched",
        summary="Matched candidate class and calibration mechanism on CIFAR-100, from the records "
        "of cifar100.",
        table_makers=MATCHED,
        findings=paper_findings.MATCHED,
    ),
    cifar100_experiment(
        "split-ratio",
        summary="Tuning against calibration rows, 20/80 to 80/20, on CIFAR-100, from the records "
        "of cifar100.",
        table_makers=RATIOS,
        figure_maker=figures.ratio_figures,
        findings=paper_findings.SPLIT_RATIO,
    ),
    cifar100_experiment(
        "alpha-levels",
        summary="Three target levels on CIFAR-100, from the records of cifar100.",
        table_makers=BY_LEVEL,
        figure_maker=figures.level_figures,
        findings=paper_findings.ALPHA_LEVELS,
    ),
    cifar100_experiment(
        "beyond-cifar100",
        summary="A stronger class on CIFAR-100 against the paper's DCO, from the records of "
        "cifar100.",
        table_makers=BEYOND,
        figure_maker=beyond.make_figures,
        findings=paper_findings.beyond(
            title="CIFAR-100: beyond the paper", module="dco.paper.beyond_classification"
        ),
        part_of="beyond",
    ),
)
