"""Model files on the command line: how a file is opened, and what is stored beside the estimator."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dco.cli.layout import Layout, need_column
from dco.cli.options import chosen_delta, note_large
from dco.foundations.arrays import AnyArray
from dco.foundations.errors import UntrustedTypeError
from dco.foundations.extras import require
from dco.foundations.notes import show
from dco.rows.conditions import is_label
from dco.rows.fingerprints import role_fingerprint, row_fingerprints
from dco.rows.rows import take_features
from dco.storage.saving import load


def open_model(path: Path, trust: Sequence[str] = ()) -> Any:
    """The fitted estimator in a file; every failure is one sentence."""
    if not path.exists():
        raise ValueError(f"There is no file {path}; check the name. `dco fit` writes a model file.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a model file; give the file that `dco fit` wrote.")
    try:
        model = load(path, trusted=trust)
    except UntrustedTypeError as error:
        names, options = ", ".join(error.types), " ".join(f"--trust {name}" for name in error.types)
        raise ValueError(
            f"{path} contains types that are not trusted ({names}); if you know them and trust whoever wrote the file, add "
            f"{options}: building them may run their code."
        ) from None
    if not hasattr(model, "predict_set") or not hasattr(model, "predictor_"):
        raise ValueError(
            f"{path} contains a {type(model).__name__}, not a calibrated model; give the file that `dco fit` wrote."
        )
    return model


def opened_once(path: str, trust: tuple[str, ...]) -> Any:
    """The model of a file for a worker, which reads it once for all its files and says nothing about it."""
    return _opened(path, Path(path).stat().st_mtime_ns, trust)


@functools.lru_cache(maxsize=1)
def _opened(path: str, modified: int, trust: tuple[str, ...]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noted when the run began
        return open_model(Path(path), trust)


def layout_of(model: Any, names: Sequence[str], *, target: str | None, path: Path, decimal: str | None = None) -> Layout:
    """The columns of the model: as `dco fit` stored them, or from the estimator's own feature names."""
    stored = getattr(model, "table_", None)
    if stored is not None:
        layout = Layout.from_plain(stored["layout"])
        own = () if layout.target is None else (layout.target,)  # still known, where another column has the true values
        return replace(
            layout, target=target or layout.target, dropped=(*layout.dropped, *own), decimal=decimal or layout.decimal
        )
    task = "classification" if hasattr(model, "classes_") else "regression"
    known = getattr(model, "feature_names_in_", None)
    order = tuple(str(name) for name in known) if known is not None else tuple(name for name in names if name != target)
    if known is None and len(order) != model.n_features_in_:
        raise ValueError(
            f"{path} has {len(order)} columns, and the model was fitted on {model.n_features_in_} without names; give only "
            "those columns, in that order."
        )
    return Layout(target=target, task=task, numbers=order, texts=(), order=order, decimal=decimal or ".")


def labelled_layout(model: Any, names: Sequence[str], *, target: str | None, path: Path, decimal: str | None) -> Layout:
    """`layout_of` for rows with targets: the table has their column."""
    layout = layout_of(model, names, target=target, path=path, decimal=decimal)
    if layout.target is None:
        raise ValueError("The model does not know its target column; name it with --target.")
    need_column(names, layout.target, path=path, option="--target" if target is not None else "the model")
    return layout


def model_features(model: Any, table: Any, layout: Layout, *, path: Path, first_row: int = 0) -> Any:
    """The features as the model was fitted on them: a frame, or an array for a model without column names."""
    from dco.cli.columns import features

    frame = features(table, layout, path=path, first_row=first_row)
    return frame if hasattr(model, "feature_names_in_") else frame.to_numpy()


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Rows with known targets, for a fitted model. `seen`: they are all the rows of the table that it was fitted on."""

    X: Any
    y: AnyArray
    by: AnyArray | None
    by_name: str | None
    names: list[str] | None  # what the rows are called, if the model knows their key
    target: str | None
    seen: bool = False

    def on_page(self) -> dict[str, Any]:
        """The rows as a page takes them; targets and groups carry the names of their columns, which the page prints."""
        series = require("pandas", extra="tables").Series
        by = None if self.by is None else series(self.by, name=self.by_name)
        return {"X": self.X, "y": series(self.y, name=self.target), "by": by, "names": self.names}


def rows_with_targets(
    model: Any, path: Path, *, target: str | None, by: str | None, ignore_new: bool, decimal: str | None = None
) -> KnownRows:
    """Read features, targets and groups of a table as the model needs them."""
    from dco.cli.columns import NewValues, known_targets, labels, row_names, targets
    from dco.cli.reading import column_names, read_table

    names = column_names(path)
    layout = labelled_layout(model, names, target=target, path=path, decimal=decimal)
    need_column(names, by, path=path, option="--by")
    key = layout.key if layout.key in names else None
    also = [name for name in (layout.target, by, key) if name is not None]
    table = read_table(path, layout.columns_to_read(path, names, ignore_new=ignore_new, also=also))
    table = known_targets(table, layout, path=path)
    X, values = model_features(model, table, layout, path=path), NewValues()
    values.count(X, layout)
    show(values.notes())
    y = targets(table, layout, path=path, classes=getattr(model, "classes_", None))
    return KnownRows(X, y, labels(table, by), by, row_names(table, key), layout.target, _was_fitted_on(model, X, y))


def rows_without_targets(model: Any, path: Path, *, ignore_new: bool, decimal: str | None = None, **_: Any) -> Any:
    """The features of a table as the model needs them; a target that is there is not read."""
    from dco.cli.reading import column_names, read_table

    names = column_names(path)
    layout = layout_of(model, names, target=None, path=path, decimal=decimal)
    table = read_table(path, layout.columns_to_read(path, names, ignore_new=ignore_new))
    return model_features(model, table, layout, path=path)


def _was_fitted_on(model: Any, X: Any, y: AnyArray) -> bool:
    """Whether these are, row by row, the rows of the fit: decided by the calibration rows among them."""
    stored = getattr(model, "table_", None)
    if stored is None or len(y) not in (stored["rows"], len(stored["fitted_rows"])):
        return False
    positions = model.splits_.calibrate
    if len(y) == stored["rows"]:
        positions = np.asarray(stored["fitted_rows"])[positions]
    digest = role_fingerprint(row_fingerprints(take_features(X, positions), y[positions]))
    return bool(digest == model.certificate_.row_fingerprints.get("calibrate"))


def condition_columns(model: Any) -> tuple[str, ...]:
    """The columns whose values are groups with thresholds of their own."""
    stored = getattr(model, "table_", None)
    if stored is not None:
        return Layout.from_plain(stored["layout"]).conditions
    given = model.condition_on if isinstance(model.condition_on, list) else [model.condition_on]
    return tuple(name for name in given if isinstance(name, str) and not is_label(name))


def stated(model: Any, asked: Mapping[str, Any], *, noting: bool = False) -> dict[str, Any]:
    """The level and the guarantee of sets: what `asked` (alpha, guarantee, delta) says, and otherwise the model's own.

    If `noting`, a level that needs more calibration rows than there are is noted: sets are then full.
    """
    predictor = model.predictor_
    chosen_delta(asked["guarantee"] or predictor.statement.guarantee, asked["delta"])
    statement = predictor.stated(**asked)
    if noting:
        note_large(asked["alpha"])
        show(statement.note_infeasible(predictor.calibration, predictor.thresholds(statement)))
    return {
        "alpha": float(statement.alpha),
        "guarantee": "none" if model.certificate_.guarantee == "none" else statement.guarantee,
        "delta": float(statement.delta) if statement.rule.needs_delta else None,
    }
