"""The work of ``dco recalibrate``: calibrate a model on the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dco.cli.model_files import ModelFile, fitted_layout, open_model
from dco.cli.option_records import TargetOptions, Work
from dco.cli.parts import recalibrate_in_parts
from dco.cli.tables.fitted import rows_with_targets
from dco.recalibration import recalibrate


@dataclass(frozen=True)
class RecalibrateOrder:
    """What the options of `dco recalibrate` ask for."""

    model: Path
    data: Path
    reading: TargetOptions
    trust: tuple[str, ...]
    in_parts: bool
    rest: bool  # data is the table of the fit: leave out the rows that trained or tuned
    work: Work


def recalibrate_model(order: RecalibrateOrder, *, quiet: bool) -> Any:
    """Calibrate a model on the rows of a table, and return it as a new estimator.

    If the fit had clusters (rows that belong together, `--groups`), they are read from the same
    column of the table. `quiet` shows no progress bar.
    """
    old_model = open_model(order.model, order.trust)
    layout = fitted_layout(old_model)
    cluster_column = None if layout is None else layout.groups
    reading = replace(order.reading, by=cluster_column)

    if order.in_parts:  # file by file: the table need not fit into memory
        return recalibrate_in_parts(
            old_model,
            ModelFile(order.model.resolve(), order.trust),
            order.data,
            reading=reading,
            rest=order.rest,
            work=order.work,
            quiet=quiet,
        )
    rows = rows_with_targets(old_model, order.data, reading)
    return recalibrate(old_model, rows.X, rows.y, groups=rows.by)
