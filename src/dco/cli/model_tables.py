"""Tables as a fitted model reads them: at once or in batches, with or without their targets."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dco.cli.columns import NewValues, features, known_targets, labels, row_names, targets
from dco.cli.layout import Layout, need_column
from dco.cli.model_files import fitted_layout
from dco.cli.reading import column_names, even_batches
from dco.foundations.arrays import AnyArray
from dco.foundations.extras import require
from dco.foundations.notes import show
from dco.rows.fingerprints import role_fingerprint, row_fingerprints
from dco.rows.rows import take_features


def layout_of(
    model: Any, names: Sequence[str], *, target: str | None, path: Path, decimal: str | None = None
) -> Layout:
    """The columns of the model: as `dco fit` stored them, or from the estimator's own feature
    names.
    """
    layout = fitted_layout(model)
    if layout is not None:
        # still known, where another column has the true values
        own = () if layout.target is None else (layout.target,)
        return replace(
            layout,
            target=target or layout.target,
            dropped=(*layout.dropped, *own),
            decimal=decimal or layout.decimal,
        )
    known = getattr(model, "feature_names_in_", None)
    order = (
        tuple(str(name) for name in known)
        if known is not None
        else tuple(name for name in names if name != target)
    )
    if known is None and len(order) != model.n_features_in_:
        raise ValueError(
            f"{path} has {len(order)} columns, and the model was fitted on {model.n_features_in_} "
            f"without names; give only "
            "those columns, in that order."
        )
    task = "classification" if hasattr(model, "classes_") else "regression"
    return Layout(target=target, task=task, numbers=order, order=order, decimal=decimal or ".")


def model_features(
    model: Any, table: Any, layout: Layout, *, path: Path, first_row: int = 0
) -> Any:
    """The features as the model was fitted on them: a frame, or an array for a model without column
    names.
    """
    frame = features(table, layout, path=path, first_row=first_row)
    return frame if hasattr(model, "feature_names_in_") else frame.to_numpy()


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Rows with known targets, for a fitted model."""

    X: Any
    y: AnyArray
    by: AnyArray | None
    by_name: str | None
    names: list[str] | None  # what the rows are called, if the model knows their key
    target: str | None

    def on_page(self) -> dict[str, Any]:
        """The rows as a page takes them; targets and groups carry the names of their columns, which
        the page prints.
        """
        series = require("pandas", extra="tables").Series
        by = None if self.by is None else series(self.by, name=self.by_name)
        return {"X": self.X, "y": series(self.y, name=self.target), "by": by, "names": self.names}


def known_batches(
    model: Any,
    path: Path,
    how: Mapping[str, Any],
    values: NewValues,
    *,
    rows: int = 0,
    every: bool = False,
) -> Iterator[KnownRows]:
    """The rows of a table with known targets, some at a time; cells that the fit never saw are
    counted in `values`.

    `how` has the options target, by, ignore_new and decimal. With `every`, a row without a target
    is an error also where the fit left such rows out.
    """
    names, row, by = column_names(path), 0, how["by"]
    layout = layout_of(model, names, target=how["target"], path=path, decimal=how.get("decimal"))
    if layout.target is None:
        raise ValueError("The model does not know its target column; name it with --target.")
    need_column(
        names, layout.target, path=path, option="the model" if how["target"] is None else "--target"
    )
    need_column(names, by, path=path, option="the model" if by == layout.groups else "--by")
    # small batches need no names of rows
    key = layout.key if rows and layout.key in names else None
    also = [name for name in (layout.target, by, key) if name is not None]
    columns = layout.columns_to_read(path, names, ignore_new=how["ignore_new"], also=also)
    for batch in even_batches(path, columns, rows=rows):
        table = batch if every else known_targets(batch, layout)
        if table.num_rows:
            X = model_features(model, table, layout, path=path, first_row=row)
            y = targets(table, layout, path=path, classes=getattr(model, "classes_", None))
            values.count(X, layout)
            yield KnownRows(X, y, labels(table, by), by, row_names(table, key), layout.target)
        row += batch.num_rows


def rows_with_targets(model: Any, path: Path, **how: Any) -> KnownRows:
    """All rows of a table with known targets."""
    values = NewValues()
    rows = next(known_batches(model, path, how, values, rows=sys.maxsize), None)
    if rows is None:
        raise ValueError(f"{path} has no row with a known target; give a table with such rows.")
    show(values.notes())
    return rows


def was_fitted_on(model: Any, rows: KnownRows) -> bool:
    """Whether these are, row by row, all rows of the table of the fit: decided by the calibration
    rows among them.
    """
    stored = getattr(model, "table_", None)
    if stored is None or len(rows.y) not in (stored["rows"], len(stored["fitted_rows"])):
        return False
    positions = model.splits_.calibrate
    if len(rows.y) == stored["rows"]:
        positions = np.asarray(stored["fitted_rows"])[positions]
    digest = role_fingerprint(row_fingerprints(take_features(rows.X, positions), rows.y[positions]))
    return bool(digest == model.certificate_.row_fingerprints.get("calibrate"))
