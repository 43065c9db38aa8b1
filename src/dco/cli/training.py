"""Read a table to fit on, for the commands that fit: its layout, features, targets and groups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dco.cli.option_records import AskedColumns
from dco.cli.tables.files import read_sample, read_table
from dco.cli.tables.infer import infer_layout
from dco.cli.tables.layout import Layout, need_column
from dco.cli.tables.rows import (
    note_missing_targets,
    read_as_text,
    read_features,
    read_targets,
    without_missing_targets,
)
from dco.cli.tables.table import Table
from dco.foundations.arrays import AnyArray, Integers
from dco.foundations.notes import show


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """The rows of a table that have a target, as models take them.

    `n_rows` counts all rows of the file, of which `table` may be a sample.
    """

    table: Table
    layout: Layout
    reason: str  # why the task is a classification or a regression
    X: Any
    y: AnyArray
    groups: AnyArray | None
    n_rows: int
    n_left_out: int  # rows without a target

    def known_positions(self) -> Integers:
        """Return the positions of the rows among those that a later command reads of this table.

        Later commands leave out rows without a target if the fit did.
        """
        return np.arange(len(self.table)) if self.n_left_out else self.table.positions

    def n_known_rows(self) -> int:
        """Count the rows that a later command reads of this table."""
        return len(self.table) if self.n_left_out else self.n_rows


def derive_seed(seed: int, stream: int) -> int:
    """Derive a seed for one purpose (`stream`) from --seed, so that draws do not go together."""
    return int(np.random.SeedSequence([seed, stream]).generate_state(1)[0])


def read_training_table(
    path: Path, asked: AskedColumns, *, sample_rows: int | None, seed: int
) -> TrainingTable:
    """Read a table to fit on, and decide what each column is for.

    `asked` is what the options say about the columns. With `sample_rows`, so many rows are drawn at
    random. Shows notes about rows without a target, which are left out if the options say so, and
    about columns of text that look like numbers or dates.
    """
    # 1. Read the rows.
    if sample_rows is None:
        all_rows = read_table(path, decimal=asked.decimal)
        n_rows = len(all_rows)
    else:
        all_rows, n_rows = read_sample(path, sample_rows, seed=seed, decimal=asked.decimal)

    # 2. Leave out rows without a target.
    table = all_rows
    if asked.drop_missing_target:
        need_column(table.names, asked.target, path=path, option="--target")
        table = without_missing_targets(all_rows, asked.target)
    n_left_out = len(all_rows) - len(table)
    show(note_missing_targets(n_left_out, len(all_rows)))

    # 3. Decide what each column is for.
    inferred = infer_layout(table, asked)
    show(inferred.notes)
    return TrainingTable(
        table=table,
        layout=inferred.layout,
        reason=inferred.reason,
        X=read_features(table, inferred.layout),
        y=read_targets(table, inferred.layout),
        groups=None if asked.groups is None else read_as_text(table, asked.groups),
        n_rows=n_rows,
        n_left_out=n_left_out,
    )
