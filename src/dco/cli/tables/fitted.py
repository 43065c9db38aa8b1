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
    read_features,
    read_groups,
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

    `fitted_rows` says where in the table the rows were that the fit took, from 0; `n_rows` is the
    number of all rows. If rows without a target were left out, both are about the rows that stayed.
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
    """Return the columns of a model as its fit had them, for a table with columns of these names.

    `target` is another column with the true values, `decimal` another decimal sign.
    """
    stored = StoredTable.of(model)
    if stored is None:
        return _layout_from_python(model, names, target=target, path=path, decimal=decimal)

    layout = stored.layout
    # where another column has the true values, that of the fit may still be there
    own_target = () if layout.target is None else (layout.target,)
    return replace(
        layout,
        target=target or layout.target,
        dropped=(*layout.dropped, *own_target),
        decimal=decimal or layout.decimal,
    )


def _layout_from_python(
    model: Any, names: Sequence[str], *, target: str | None, path: Path, decimal: str | None
) -> Layout:
    """Take the columns of a model that was fitted in Python from the estimator: all are numbers."""
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
    by: AnyArray | None
    by_name: str | None
    names: list[str] | None  # what the rows are called, if the model knows their key
    target: str | None

    def by_with_name(self) -> Any:
        """Return the groups as a series that carries the name of their column."""
        pandas = require("pandas", extra="tables")
        return None if self.by is None else pandas.Series(self.by, name=self.by_name)

    def on_page(self) -> dict[str, Any]:
        """Return the rows as a page takes them, which prints the names of target and groups."""
        pandas = require("pandas", extra="tables")
        return {
            "X": self.X,
            "y": pandas.Series(self.y, name=self.target),
            "by": self.by_with_name(),
            "names": self.names,
        }


@dataclass(frozen=True, eq=False)
class _TargetReader:
    """A table with known targets and a fitted model, with the columns to read."""

    model: Any
    layout: Layout
    target: str
    by: str | None
    key: str | None
    columns: list[str]

    @classmethod
    def open(cls, model: Any, path: Path, options: TargetOptions) -> _TargetReader:
        """Check that the table has the columns of the model, and choose those to read."""
        names = column_names(path)
        layout = layout_of(model, names, target=options.target, path=path, decimal=options.decimal)

        target = layout.target
        if target is None:
            raise ValueError("The model does not know its target column; name it with --target.")
        target_option = "the model" if options.target is None else "--target"
        need_column(names, target, path=path, option=target_option)

        by = options.by
        by_option = "the model" if by == layout.groups else "--by"
        need_column(names, by, path=path, option=by_option)

        key = layout.key if layout.key in names else None
        also = [name for name in (target, by, key) if name is not None]
        columns = layout.columns_to_read(path, names, ignore_new=options.ignore_new, also=also)
        return cls(model, layout, target, by, key, columns)

    def read(self, table: Table) -> KnownRows:
        """Read features, targets and groups."""
        classes = getattr(self.model, "classes_", None)
        return KnownRows(
            X=read_model_features(self.model, table, self.layout),
            y=read_targets(table, self.layout, classes=classes),
            by=None if self.by is None else read_groups(table, self.by),
            by_name=self.by,
            names=None if self.key is None else name_rows(table, self.key),
            target=self.target,
        )


def read_rows_with_targets(
    model: Any,
    path: Path,
    options: TargetOptions,
    values: NewValues,
    *,
    refuse_missing: bool = False,
    complete_lines: bool = False,
) -> Iterator[KnownRows]:
    """Read the rows with known targets in batches; what the fit never saw is counted in `values`.

    If the fit left out rows with a missing target, so does this, but with `refuse_missing` they are
    an error. With `complete_lines`, a last line of a CSV without a line break is left out.
    """
    reader = _TargetReader.open(model, path, options)
    for table in read_batches(
        path, reader.columns, decimal=reader.layout.decimal, complete_lines=complete_lines
    ):
        labelled_table = table
        if reader.layout.drop_missing_target and not refuse_missing:
            labelled_table = without_missing_targets(table, reader.target)
            values.left_out += len(table) - len(labelled_table)
        if len(labelled_table):
            rows = reader.read(labelled_table)
            values.count(rows.X, reader.layout)
            yield rows


def rows_with_targets(model: Any, path: Path, options: TargetOptions) -> KnownRows:
    """Read all rows with known targets; what the fit never saw is noted."""
    reader = _TargetReader.open(model, path, options)
    table = read_table(path, reader.columns, decimal=reader.layout.decimal)
    labelled_table = table
    if reader.layout.drop_missing_target:
        labelled_table = without_missing_targets(table, reader.target)
    if len(labelled_table) == 0:
        raise ValueError(f"{path} has no row with a known target; give a table with such rows.")

    rows = reader.read(labelled_table)
    values = NewValues()
    values.left_out = len(table) - len(labelled_table)
    values.count(rows.X, reader.layout)
    show(values.notes())
    return rows


def was_fitted_on(model: Any, rows: KnownRows) -> bool:
    """Say whether these are, row by row, all rows of the table of the fit.

    The calibration rows among them decide.
    """
    stored = StoredTable.of(model)
    if stored is None or len(rows.y) not in (stored.n_rows, len(stored.fitted_rows)):
        return False

    positions = model.splits_.calibrate
    if len(rows.y) == stored.n_rows:
        positions = stored.fitted_rows[positions]
    digest = role_fingerprint(row_fingerprints(take_features(rows.X, positions), rows.y[positions]))
    return bool(digest == model.certificate_.provenance.row_fingerprints.get("calibrate"))
