"""The paper's classification tables: CIFAR-100, ImageNet-A, matched controls, split ratios, levels, and what goes beyond."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dco.datasets.images import CIFAR100_FEATURES
from dco.experiments.beyond_classification import set_aside_table
from dco.experiments.classification_figures import gain_figures, level_figures, main_figures, ratio_figures
from dco.experiments.classification_splits import (
    LEVELS,
    NEEDS_IMAGENET_A,
    Study,
    cifar100_rows,
    cifar100_rows_set_aside,
    find_imagenet_a,
    imagenet_a_rows,
    run_split,
)
from dco.experiments.classification_tables import (
    auto_table,
    beyond_table,
    candidates_table,
    chosen_table,
    confidence_table,
    gain_table,
    level_sizes_table,
    levels_table,
    main_table,
    matched_beside_table,
    matched_table,
    paired_table,
    ratio_beside_table,
    ratio_table,
    selection_table,
    single_run_table,
)
from dco.experiments.experiment import Experiment, Options, Records, needs_file
from dco.experiments.tables import ResultTable
from dco.files import written_beside, written_together

CIFAR100 = Study(
    "cifar100", "CIFAR-100", "CIFAR-100 features from a frozen EfficientNet-Lite2 (the paper's are ResNet-50's).",
    cifar100_rows, beyond=True,
)  # fmt: skip
IMAGENET_A = Study(
    "imagenet-a", "ImageNet-A", "ImageNet-A features from a frozen ResNet-50, the 198 classes with most images.",
    imagenet_a_rows, stratified=True,
)  # fmt: skip

TableMaker = Callable[[Study, Records, Options], ResultTable]
MAIN: tuple[TableMaker, ...] = (
    partial(main_table, features="raw"),
    partial(main_table, features="standardised"),
    paired_table,
    single_run_table,
    confidence_table,
    candidates_table,
    selection_table,
)
MATCHED: tuple[TableMaker, ...] = (matched_table, matched_beside_table)
RATIOS: tuple[TableMaker, ...] = (ratio_table, ratio_beside_table)
BY_LEVEL: tuple[TableMaker, ...] = (levels_table, level_sizes_table)


def make_tables(records: Records, options: Options, *, study: Study, makers: Sequence[TableMaker]) -> list[ResultTable]:
    """These tables of one study; one that only sets ours beside the paper's is left out at other levels than the paper's."""
    made = [maker(study, records, options) for maker in makers]
    return [table for table in made if table.rows]


def write_rows_set_aside(data_home: str | None, folder: str | Path) -> ResultTable:
    """Measure every member of the stronger class on the rows set aside, and write rows-set-aside.md and .csv.

    The class and its one fixed structure were chosen by this table; it is no part of ``dco reproduce``.
    """
    rows = cifar100_rows_set_aside(data_home)
    table = set_aside_table(rows.features, rows.labels, seeds=range(6), alphas=LEVELS)
    with written_together():
        for suffix, text in ((".md", table.to_markdown()), (".csv", table.to_csv())):
            with written_beside(Path(folder) / f"rows-set-aside{suffix}") as path:
                path.write_text(text, encoding="utf-8")
    return table


def _needs_imagenet_a(options: Options) -> str | None:
    return NEEDS_IMAGENET_A if find_imagenet_a(options.data_home) is None else None


def _on_cifar100(
    name: str,
    summary: str,
    makers: Sequence[TableMaker],
    *,
    figures: Callable[..., list[Path]] | None = None,
    minutes: float = 0.1,
    part_of: str | None = None,
) -> Experiment:
    return Experiment(
        name=name,
        summary=summary,
        needs=CIFAR100_FEATURES,
        minutes=minutes,
        run_split=partial(run_split, study=CIFAR100),
        tables=partial(make_tables, study=CIFAR100, makers=tuple(makers)),
        figures=None if figures is None else partial(figures, study=CIFAR100),
        missing=needs_file("CIFAR-100", CIFAR100_FEATURES),
        alphas=LEVELS,
        quick_splits=3,
        part_of=part_of,
        records_of="cifar100",
    )


EXPERIMENTS = (
    _on_cifar100(
        "cifar100", "CIFAR-100 at three levels; single run, candidates, selection frequencies, BQ's confidence.", MAIN,
        figures=main_figures, minutes=23.0,
    ),
    Experiment(
        name="imagenet-a",
        summary="ImageNet-A: main table, single run, candidates, selection frequencies, controls.",
        needs="the images of ImageNet-A",
        minutes=20.0,
        run_split=partial(run_split, study=IMAGENET_A),
        tables=partial(make_tables, study=IMAGENET_A, makers=(*MAIN, *MATCHED, *RATIOS, *BY_LEVEL)),
        figures=partial(main_figures, study=IMAGENET_A),
        missing=_needs_imagenet_a,
        alphas=LEVELS,
        quick_splits=3,
    ),
    _on_cifar100(
        "matched", "Matched candidate class and calibration mechanism on CIFAR-100, from the records of cifar100.",
        MATCHED,
    ),
    _on_cifar100(
        "split-ratio", "Tuning against calibration rows, 20/80 to 80/20, on CIFAR-100, from the records of cifar100.",
        RATIOS, figures=ratio_figures,
    ),
    _on_cifar100(
        "alpha-levels", "Three target levels on CIFAR-100, from the records of cifar100.", BY_LEVEL,
        figures=level_figures,
    ),
    _on_cifar100(
        "beyond-cifar100", "A stronger class on CIFAR-100 against the paper's DCO, from the records of cifar100.",
        (beyond_table, gain_table, auto_table, chosen_table), figures=gain_figures, part_of="beyond",
    ),
)  # fmt: skip
