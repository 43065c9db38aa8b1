"""Hyperparameter grids as candidates: every combination is a model of its own, ranked on tuning rows like any other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def grid(estimator: Any, /, **values: Any) -> dict[str, Any]:
    """All combinations of the listed hyperparameters, as {readable name: unfitted clone}.

    ``grid(RandomForestRegressor(), max_depth=[4, 8])`` gives ``{"RandomForestRegressor(max_depth=4)": ..., "...=8)": ...}``.
    Parameters of a pipeline's steps are written ``step__parameter``, as in scikit-learn. A value that is not a list, tuple,
    array or range is taken as the only one.

    Searching a grid this way keeps the guarantee. A `GridSearchCV` around a calibrated estimator does not: it chooses by
    rows that the calibration has used.
    """
    from sklearn.base import clone
    from sklearn.model_selection import ParameterGrid
    from sklearn.pipeline import Pipeline

    if not hasattr(estimator, "get_params") or isinstance(estimator, type):
        raise ValueError(f"estimator must be a scikit-learn estimator such as Ridge(), got {estimator!r:.200}.")
    choices = {name: _choices(name, value) for name, value in values.items()}
    last = estimator
    prefix = ""
    while isinstance(last, Pipeline):
        step, last = last.steps[-1]
        prefix += f"{step}__"
    models: dict[str, Any] = {}
    for setting in ParameterGrid(choices):
        ordered = {name: setting[name] for name in choices}  # in the order of the call, not of the alphabet
        text = ", ".join(f"{_short(name, prefix)}={_readable(value)}" for name, value in ordered.items())
        title = f"{type(last).__name__}({text})" if text else type(last).__name__
        models[_unused(title, models)] = clone(estimator).set_params(**{n: _copied(v) for n, v in ordered.items()})
    return models


def _choices(name: str, value: Any) -> list[Any]:
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes | dict) and not hasattr(value, "get_params")
    listed = list(value) if several else [value]
    if not listed:
        raise ValueError(f"{name} has no values to try: give at least one, or leave it out.")
    return listed


def _short(name: str, prefix: str) -> str:
    # two underscores would read as scikit-learn's path to a parameter wherever names of models are part of one
    return name.removeprefix(prefix).replace("__", ".")


def _readable(value: Any) -> str:
    if hasattr(value, "get_params"):
        return type(value).__name__
    item = value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value
    text = getattr(item, "__name__", None) or repr(item)
    return " ".join(text.replace("__", "_").split())


def _copied(value: Any) -> Any:
    from sklearn.base import clone

    return clone(value) if hasattr(value, "get_params") and not isinstance(value, type) else value


def _unused(title: str, taken: dict[str, Any]) -> str:
    number, name = 1, title
    while name in taken:
        number += 1
        name = f"{title} #{number}"
    return name
