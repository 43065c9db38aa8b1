"""Model files on the command line: open one, and say what its sets promise."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dco
from dco.cli.option_records import OtherPromise
from dco.cli.options import check_delta, note_large_alpha
from dco.cli.tables.fitted import StoredTable
from dco.cli.tables.layout import Layout
from dco.foundations.errors import UntrustedTypeError
from dco.foundations.notes import show


def open_model(path: Path, trust: Sequence[str] = ()) -> Any:
    """Load the fitted estimator from a file; every error is one sentence that says what to do.

    `trust` has the full names of types that may be loaded besides those that dco knows.
    """
    if not path.exists():
        raise ValueError(f"There is no file {path}; check the name. `dco fit` writes a model file.")
    if path.is_dir():
        raise ValueError(
            f"{path} is a folder, not a model file; give the file that `dco fit` wrote."
        )
    try:
        model = dco.load(path, trusted=trust)
    except UntrustedTypeError as error:
        raise _untrusted(path, error.types) from None
    if not hasattr(model, "predict_set") or not hasattr(model, "predictor_"):
        raise ValueError(
            f"{path} contains a {type(model).__name__}, not a calibrated model; give the file that "
            "`dco fit` wrote."
        )
    return model


def _untrusted(path: Path, type_names: Sequence[str]) -> ValueError:
    options = " ".join(f"--trust {name}" for name in type_names)
    return ValueError(
        f"{path} contains types that are not trusted ({', '.join(type_names)}); if you know them "
        f"and trust whoever wrote the file, add {options}: building them may run their code."
    )


@dataclass(frozen=True)
class ModelFile:
    """A model file and the types that may be loaded from it: plain data, which workers get."""

    path: Path
    trust: tuple[str, ...]


def open_model_once(file: ModelFile) -> Any:
    """Open a model in a worker process, which gets many files and keeps the model between them.

    Warnings are not repeated here: they were shown when the run began.
    """
    return _open_silently(file, modified=file.path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _open_silently(file: ModelFile, *, modified: int) -> Any:
    """Open a model; `modified` is there so that a file that was written anew is read anew."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return open_model(file.path, file.trust)


def fitted_layout(model: Any) -> Layout | None:
    """Return the columns as `dco fit` stored them; None in a model that was fitted in Python."""
    stored = StoredTable.of(model)
    return None if stored is None else stored.layout


def condition_columns(model: Any) -> tuple[str, ...]:
    """Name the columns whose values have thresholds of their own."""
    layout = fitted_layout(model)
    if layout is not None:
        return layout.conditions
    condition_on = model.condition_on
    conditions = condition_on if isinstance(condition_on, list) else [condition_on]
    return tuple(name for name in conditions if isinstance(name, str) and name != "label")


@dataclass(frozen=True)
class StatedPromise:
    """What prediction sets promise: the level 1 - alpha, and the kind of guarantee or "none".

    `delta` is None for a guarantee that has no failure probability.
    """

    alpha: float
    guarantee: str
    delta: float | None


def stated_promise(model: Any, asked: OtherPromise) -> StatedPromise:
    """Return what the sets of a model promise at the level and with the guarantee that are asked.

    Shows a note if the level needs more calibration rows than there are: all sets are then full.
    """
    predictor = model.predictor_
    check_delta(asked.guarantee or predictor.statement.guarantee, asked.delta)
    calibration = predictor.calibrate_at(**asdict(asked))
    show(note_large_alpha(asked.alpha))
    show(calibration.notes())

    facts = calibration.facts()
    return StatedPromise(alpha=facts.alpha, guarantee=facts.guarantee, delta=facts.delta)
