"""Read tables for a fitted model: at once or in batches, with or without their targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dco.cli.option_records import TargetOptions
from dco.cli.tables.files import column_names, read_batches, read_table
from dco.cli.tables.layout import Layout, NumberFeature, need_column
from dco.cli.tables.rows import (
    NewValues,
    name_rows,
    read_as_text,
    read_features,
    read_targets,
    without_missing_targets,
)
from dco.cli.tables.table import Table
from dco.foundations.arrays import AnyArray, Integers
from dco.foundations.extras import require
from dco.foundations.fingerprints import role_fingerprint, row_fingerprints
from dco.foundations.notes import show
from dco.foundations.tables import take_features


@dataclass(frozen=True, eq=False)
class StoredTable:
    """What a model keeps of the table that it was fitted on.

    Attributes
    ----------
    layout
        What each column is for.
    n_rows
        The number of rows of the table, without rows that were left out for a missing target.
    fitted_rows
        The positions of the rows that the fit used, among these rows, from 0. The fit does not use
        rows that are kept for an evaluation, or that --sample-rows did not draw.
    """

    layout: Layout
    n_rows: int
    fitted_rows: Integers

    @classmethod
    def of(cls, model: Any) -> StoredTable | None:
        """Read what `dco fit` stored; None in a model that was fitted in Python."""
        stored = getattr(model, "table_", None)
        if stored is None:
            return None
        return cls(
            layout=Layout.from_json(stored["layout"]),
            n_rows=stored["rows"],
            fitted_rows=np.asarray(stored["fitted_rows"]),
        )

    def attach_to(self, model: Any) -> None:
        """Store the table in a model, so that it is saved with it."""
        model.table_ = {
            "layout": self.layout.to_json(),
            "rows": self.n_rows,
            "fitted_rows": self.fitted_rows,
        }


def layout_of(
    model: Any, names: Sequence[str], *, target: str | None, path: Path, decimal: str | None
) -> Layout:
    """Say what each column of a table is for, when the table is read for a fitted model.

    Parameters
    ----------
    model
        The fitted estimator.
    names, path
        The columns of the table, and its file.
    target
        The column with the true values; None takes that of the fit.
    decimal
        The decimal sign of numbers in text; None takes that of the fit.
    """
    stored_table = StoredTable.of(model)
    if stored_table is None:
        return _layout_from_python(model, names, target=target, path=path, decimal=decimal)

    layout_of_fit = stored_table.layout
    dropped = layout_of_fit.dropped
    if layout_of_fit.target is not None:
        # the table may have the target of the fit besides another column with true values
        dropped = (*dropped, layout_of_fit.target)
    return replace(
        layout_of_fit,
        target=target or layout_of_fit.target,
        dropped=dropped,
        decimal=decimal or layout_of_fit.decimal,
    )


def _layout_from_python(
    model: Any, names: Sequence[str], *, target: str | None, path: Path, decimal: str | None
) -> Layout:
    """Say what each column is for, when a table is read for a model that was fitted in Python.

    Such a model stores no layout, and its features are numbers. If it does not know the names of
    its features either, all columns of the table but the target are features, in their order.
    Parameters are as in `layout_of`.
    """
    feature_names = getattr(model, "feature_names_in_", None)
    if feature_names is None:
        feature_names = [name for name in names if name != target]
        if len(feature_names) != model.n_features_in_:
            raise ValueError(
                f"{path} has {len(feature_names)} columns, and the model was fitted on "
                f"{model.n_features_in_} without names; give only those columns, in that order."
            )
    return Layout(
        target=target,
        task="classification" if hasattr(model, "classes_") else "regression",
        features={str(name): NumberFeature(takes_dates=True) for name in feature_names},
        decimal=decimal or ".",
    )


def read_model_features(model: Any, table: Table, layout: Layout) -> Any:
    """Read the features as the fit had them: a frame, or an array if it had no names of columns."""
    frame = read_features(table, layout)
    return frame if hasattr(model, "feature_names_in_") else frame.to_numpy()


# --- rows with known targets ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Rows with known targets, for a fitted model."""

    X: Any
    y: AnyArray
    by: AnyArray | None  # the value of the column `by_name` in each row, for slices or clusters
    by_name: str | None
    names: list[str] | None  # of the rows, if the table has a column that names them
    target: str | None

    def by_with_name(self) -> Any:
        """Return the values of `by` as a pandas series with the name of their column."""
        pandas = require("pandas", extra="tables")
        return None if self.by is None else pandas.Series(self.by, name=self.by_name)

    def on_page(self) -> dict[str, Any]:
        """Return the arguments for a page about these rows, with the names of their columns."""
        pandas = require("pandas", extra="tables")
        return {
            "X": self.X,
            "y": pandas.Series(self.y, name=self.target),
            "by": self.by_with_name(),
            "names": self.names,
        }


@dataclass(frozen=True, eq=False)
class _TargetReader:
    """Reads features and known targets from a table, for a fitted model.

    `by` and `key` are columns with the slice and the name of each row, if there are any. `columns`
    are all columns to read.
    """

    model: Any
    layout: Layout
    target: str
    by: str | None
    key: str | None
    columns: list[str]

    @classmethod
    def open(cls, model: Any, path: Path, options: TargetOptions) -> _TargetReader:
        """Prepare to read a table: find the columns that the model and the options need in it.

        It is an error if one of them is missing. `path` is the table; `options` may name another
        target than that of the fit, and a column `by` whose values slice the rows.
        """
        names = column_names(path)
        layout = layout_of(model, names, target=options.target, path=path, decimal=options.decimal)

        # 1. The target.
        target = layout.target
        if target is None:
            raise ValueError("The model does not know its target column; name it with --target.")
        target_option = "the model" if options.target is None else "--target"
        need_column(names, target, path=path, option=target_option)

        # 2. The column of slices, or of clusters (rows that belong together).
        by_option = "the model" if options.by == layout.groups else "--by"
        need_column(names, options.by, path=path, option=by_option)

        # 3. All columns to read: features, and these. The one with names of rows may be missing.
        key = layout.key if layout.key in names else None
        no_features = [name for name in (target, options.by, key) if name is not None]
        columns = layout.columns_to_read(
            path, names, ignore_new=options.ignore_new, also=no_features
        )
        return cls(model, layout, target, by=options.by, key=key, columns=columns)

    def read(self, table: Table) -> KnownRows:
        """Read features, targets, slices and names from some rows of the table."""
        classes = getattr(self.model, "classes_", None)
        return KnownRows(
            X=read_model_features(self.model, table, self.layout),
            y=read_targets(table, self.layout, classes=classes),
            by=None if self.by is None else read_as_text(table, self.by),
            by_name=self.by,
            names=None if self.key is None else name_rows(table, self.key),
            target=self.target,
        )


def read_rows_with_targets(
    model: Any,
    path: Path,
    options: TargetOptions,
    new_values: NewValues,
    *,
    refuse_missing: bool = False,
    complete_lines: bool = False,
) -> Iterator[KnownRows]:
    """Read features and known targets of a table for a fitted model, batch by batch.

    Parameters
    ----------
    model, path, options
        The fitted estimator, the table, and how to read it.
    new_values
        Counts of categories that the fit never saw; they grow while rows are read.
    refuse_missing
        Whether a missing target is an error. Otherwise such rows are left out if the fit left them
        out, too.
    complete_lines
        Leave out the last line of a CSV if it has no line break.
    """
    reader = _TargetReader.open(model, path, options)
    leaves_out_missing = reader.layout.drop_missing_target and not refuse_missing
    for batch in read_batches(
        path, reader.columns, decimal=reader.layout.decimal, complete_lines=complete_lines
    ):
        # 1. Leave out rows without a target.
        labelled_batch = batch
        if leaves_out_missing:
            labelled_batch = without_missing_targets(batch, reader.target)
            new_values.n_without_target += len(batch) - len(labelled_batch)
        if len(labelled_batch) == 0:
            continue

        # 2. Read the others.
        rows = reader.read(labelled_batch)
        new_values.count(rows.X, reader.layout)
        yield rows


def rows_with_targets(model: Any, path: Path, options: TargetOptions) -> KnownRows:
    """Read features and known targets of a whole table for a fitted model.

    Rows without a target are left out if the fit left such rows out, and are an error otherwise.
    Notes are shown about rows left out, and about categories that the fit never saw.
    """
    # 1. Read the table, without rows that have no target.
    reader = _TargetReader.open(model, path, options)
    table = read_table(path, reader.columns, decimal=reader.layout.decimal)
    labelled_table = table
    if reader.layout.drop_missing_target:
        labelled_table = without_missing_targets(table, reader.target)
    if len(labelled_table) == 0:
        raise ValueError(f"{path} has no row with a known target; give a table with such rows.")
    rows = reader.read(labelled_table)

    # 2. Say what is unusual about it.
    new_values = NewValues()
    new_values.n_without_target = len(table) - len(labelled_table)
    new_values.count(rows.X, reader.layout)
    show(new_values.notes())
    return rows


def was_fitted_on(model: Any, rows: KnownRows) -> bool:
    """Say whether a model was fitted on these rows, in this order.

    They may be all rows of the table of the fit, or only those that the fit used (not those that
    `--test-size` kept back). The fingerprint of the calibration rows decides.
    """
    stored_table = StoredTable.of(model)
    if stored_table is None:  # the model was fitted in Python
        return False

    # 1. Find the calibration rows among these.
    calibration_rows = model.splits_.calibrate  # positions among the rows that the fit used
    n_rows = len(rows.y)
    if n_rows == stored_table.n_rows:
        positions = stored_table.fitted_rows[calibration_rows]
    elif n_rows == len(stored_table.fitted_rows):
        positions = calibration_rows
    else:
        return False

    # 2. Compare their fingerprint.
    hashes = row_fingerprints(take_features(rows.X, positions), rows.y[positions])
    stated_fingerprint = model.certificate_.provenance.row_fingerprints.get("calibrate")
    return bool(role_fingerprint(hashes) == stated_fingerprint)
