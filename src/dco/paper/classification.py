"""The paper's classification tables: CIFAR-100, ImageNet-A, matched controls, split ratios, levels,
and what goes beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dco.datasets import CIFAR100_FEATURES
from dco.foundations.files import write_whole, written_together
from dco.paper import classification_splits as splits
from dco.paper import classification_tables as tables
from dco.paper.beyond_classification import set_aside_table
from dco.paper.beyond_classification_tables import (
    auto_table,
    beyond_table,
    chosen_table,
    gain_table,
)
from dco.paper.classification_figures import (
    gain_figures,
    level_figures,
    main_figures,
    ratio_figures,
)
from dco.paper.classification_splits import LEVELS, Study
from dco.paper.experiment import Experiment, Options, Records, needs_file
from dco.paper.tables import ResultTable

CIFAR100 = Study(
    "cifar100",
    "CIFAR-100",
    "CIFAR-100 features from a frozen EfficientNet-Lite2 (the paper's are ResNet-50's).",
    splits.cifar100_rows,
    beyond=True,
)
IMAGENET_A = Study(
    "imagenet-a",
    "ImageNet-A",
    "ImageNet-A features from a frozen ResNet-50, the 198 classes with most images.",
    splits.imagenet_a_rows,
    stratified=True,
    n_classes=splits.IMAGENET_A_CLASSES,
)

TableMaker = Callable[[Study, Records, Options], ResultTable]
MAIN: tuple[TableMaker, ...] = (
    partial(tables.main_table, features="raw"),
    partial(tables.main_table, features="standardised"),
    tables.paired_table,
    tables.single_run_table,
    tables.confidence_table,
    tables.candidates_table,
    tables.selection_table,
)
MATCHED: tuple[TableMaker, ...] = (
    tables.matched_table,
    tables.matched_beside_table,
    partial(tables.matched_table, features="standardised"),
)
RATIOS: tuple[TableMaker, ...] = (tables.ratio_table, tables.ratio_beside_table)
BY_LEVEL: tuple[TableMaker, ...] = (
    tables.levels_table,
    tables.level_sizes_table,
    tables.levels_beside_table,
)


def make_tables(
    records: Records, options: Options, *, study: Study, makers: Sequence[TableMaker]
) -> list[ResultTable]:
    """These tables of one study; one that only sets ours beside the paper's is left out at other
    levels than the paper's.
    """
    made = [maker(study.on(options), records, options) for maker in makers]
    return [table for table in made if table.rows]


def write_rows_set_aside(data_home: str | None, folder: str | Path) -> ResultTable:
    """Measure every member of the stronger class on the rows set aside, and write rows-set-aside.md
    and .csv.

    The class and its one fixed structure were chosen by this table; it is no part of ``dco
    reproduce``.
    """
    rows = splits.cifar100_rows_set_aside(data_home)
    table = set_aside_table(rows.features, rows.labels, seeds=range(6), alphas=LEVELS)
    with written_together():
        for suffix, text in ((".md", table.to_markdown()), (".csv", table.to_csv())):
            write_whole(Path(folder) / f"rows-set-aside{suffix}", text)
    return table


def _needs_imagenet_a(options: Options) -> str | None:
    return splits.NEEDS_IMAGENET_A if splits.find_imagenet_a(options.data_home) is None else None


def _draw(
    figures: Callable[..., list[Path]],
    records: Records,
    options: Options,
    folder: Path,
    *,
    study: Study,
) -> list[Path]:
    return figures(records, options, folder, study=study.on(options))


def _experiment(
    study: Study,
    makers: Sequence[TableMaker],
    figures: Callable[..., list[Path]] | None,
    **own: Any,
) -> Experiment:
    return Experiment(
        run_split=partial(splits.run_split, study=study),
        tables=partial(make_tables, study=study, makers=tuple(makers)),
        figures=None if figures is None else partial(_draw, figures, study=study),
        of_images=True,
        alphas=LEVELS,
        quick_splits=3,
        **own,
    )


_on_cifar100 = partial(
    _experiment,
    CIFAR100,
    needs=CIFAR100_FEATURES,
    missing=needs_file("CIFAR-100", CIFAR100_FEATURES),
    records_of="cifar100",
)
EXPERIMENTS = (
    _on_cifar100(
        MAIN,
        main_figures,
        name="cifar100",
        minutes=23.0,
        summary="CIFAR-100 at three levels; single run, candidates, selection frequencies, BQ's "
        "confidence.",
    ),
    _experiment(
        IMAGENET_A,
        (*MAIN, *MATCHED, *RATIOS, *BY_LEVEL),
        main_figures,
        name="imagenet-a",
        minutes=20.0,
        summary="ImageNet-A: main table, single run, candidates, selection frequencies, controls.",
        needs="the images of ImageNet-A",
        missing=_needs_imagenet_a,
    ),
    _on_cifar100(
        MATCHED,
        None,
        name="matched",
        minutes=0.1,
        summary="Matched candidate class and calibration mechanism on CIFAR-100, from the records "
        "of cifar100.",
    ),
    _on_cifar100(
        RATIOS,
        ratio_figures,
        name="split-ratio",
        minutes=0.1,
        summary="Tuning against calibration rows, 20/80 to 80/20, on CIFAR-100, from the records "
        "of cifar100.",
    ),
    _on_cifar100(
        BY_LEVEL,
        level_figures,
        name="alpha-levels",
        minutes=0.1,
        summary="Three target levels on CIFAR-100, from the records of cifar100.",
    ),
    _on_cifar100(
        (beyond_table, gain_table, auto_table, chosen_table),
        gain_figures,
        name="beyond-cifar100",
        minutes=0.1,
        summary="A stronger class on CIFAR-100 against the paper's DCO, from the records of "
        "cifar100.",
        part_of="beyond",
    ),
)
