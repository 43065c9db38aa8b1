"""Model files on the command line: how a file is opened, what is stored beside the estimator, and
what its sets promise.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dco.cli.options import chosen_delta, note_large
from dco.cli.tables.fitted import StoredTable
from dco.cli.tables.layout import Layout
from dco.foundations.errors import UntrustedTypeError
from dco.foundations.notes import show
from dco.rows.conditions import is_label
from dco.storage.saving import load


def open_model(path: Path, trust: Sequence[str] = ()) -> Any:
    """The fitted estimator in a file; every failure is one sentence."""
    if not path.exists():
        raise ValueError(f"There is no file {path}; check the name. `dco fit` writes a model file.")
    if path.is_dir():
        raise ValueError(
            f"{path} is a folder, not a model file; give the file that `dco fit` wrote."
        )
    try:
        model = load(path, trusted=trust)
    except UntrustedTypeError as error:
        names, options = ", ".join(error.types), " ".join(f"--trust {name}" for name in error.types)
        raise ValueError(
            f"{path} contains types that are not trusted ({names}); if you know them and trust "
            f"whoever wrote the file, add "
            f"{options}: building them may run their code."
        ) from None
    if not hasattr(model, "predict_set") or not hasattr(model, "predictor_"):
        raise ValueError(
            f"{path} contains a {type(model).__name__}, not a calibrated model; give the file "
            f"that `dco fit` wrote."
        )
    return model


def opened_once(path: Path, trust: tuple[str, ...]) -> Any:
    """The model of a file for a worker, which reads it once for all its files and says nothing
    about it.
    """
    return _opened(path, path.stat().st_mtime_ns, trust)


@functools.lru_cache(maxsize=1)
def _opened(path: Path, modified: int, trust: tuple[str, ...]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noted when the run began
        return open_model(path, trust)


def fitted_layout(model: Any) -> Layout | None:
    """Return the columns as `dco fit` stored them; None in a model that was fitted in Python."""
    stored = StoredTable.of(model)
    return None if stored is None else stored.layout


def condition_columns(model: Any) -> tuple[str, ...]:
    """The columns whose values are groups with thresholds of their own."""
    layout = fitted_layout(model)
    if layout is not None:
        return layout.conditions
    given = model.condition_on if isinstance(model.condition_on, list) else [model.condition_on]
    return tuple(name for name in given if isinstance(name, str) and not is_label(name))


def stated(model: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The level and the guarantee of sets: what `asked` (alpha, guarantee, delta) says, and
    otherwise the model's own.

    A level that needs more calibration rows than there are is noted: sets are then full.
    """
    predictor = model.predictor_
    chosen_delta(asked["guarantee"] or predictor.statement.guarantee, asked["delta"])
    statement = predictor.stated(**asked)
    note_large(asked["alpha"])
    show(statement.note_infeasible(predictor.calibration, predictor.thresholds(statement)))
    return {
        "alpha": float(statement.alpha),
        "guarantee": "none" if model.certificate_.guarantee == "none" else statement.guarantee,
        "delta": float(statement.delta) if statement.rule.needs_delta else None,
    }
