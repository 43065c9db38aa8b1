"""Model files on the command line: what is stored beside the estimator, and how a file is opened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dco.commands.reading import Layout


def open_model(path: Path, trust: Sequence[str] = ()) -> Any:
    """The fitted estimator in a file; every way in which this can fail is one sentence."""
    from dco.errors import UntrustedTypeError
    from dco.storage import load

    if not path.exists():
        raise ValueError(f"There is no file {path}; check the name. `dco fit` writes a model file.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a model file; give the file that `dco fit` wrote.")
    try:
        model = load(path, trusted=trust)
    except UntrustedTypeError as error:
        names = str(error).partition("not trusted: ")[2].partition(". If you know")[0]
        options = " ".join(f"--trust {name}" for name in names.split(", "))
        raise ValueError(
            f"{path} holds types that are not trusted ({names}); if you know them and trust whoever wrote the file, say "
            f"{options}: building them may run their code."
        ) from None
    if not hasattr(model, "predict_set") or not hasattr(model, "predictor_"):
        raise ValueError(
            f"{path} holds a {type(model).__name__}, not a calibrated model; give the file that `dco fit` wrote."
        )
    return model


def layout_of(model: Any, names: Sequence[str], *, target: str | None, path: Path) -> Layout:
    """The columns of the model: as `dco fit` stored them, or as the estimator's own feature names tell."""
    from dataclasses import replace

    stored = getattr(model, "table_", None)
    if stored is not None:
        layout = Layout.from_plain(stored["layout"])
        return layout if target is None else replace(layout, target=target)
    task = "classification" if hasattr(model, "classes_") else "regression"
    known = getattr(model, "feature_names_in_", None)
    order = tuple(str(name) for name in known) if known is not None else tuple(name for name in names if name != target)
    if known is None and len(order) != model.n_features_in_:
        raise ValueError(
            f"{path} has {len(order)} columns, and the model was fitted on {model.n_features_in_} without names; give those "
            "columns alone, in that order."
        )
    return Layout(target=target, task=task, numbers=order, texts=(), order=order)


def model_features(model: Any, table: Any, layout: Layout, *, path: Path, first_row: int = 0) -> Any:
    """The features in the form in which the model was fitted: a frame, or an array for a model without column names."""
    from dco.commands.reading import features

    frame = features(table, layout, path=path, first_row=first_row)
    return frame if hasattr(model, "feature_names_in_") else frame.to_numpy()
