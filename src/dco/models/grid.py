"""Hyperparameter grids as candidates: every combination is a model or a score of its own, ranked on
tuning rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import count
from typing import Any

from dco.scores.score import Score


def grid(estimator: Any, /, **values: Any) -> dict[str, Any]:
    """Make a candidate of every combination of the listed parameters of a model or a score.

    ``grid(RandomForestRegressor(), max_depth=[4, 8])`` gives
    ``{"RandomForestRegressor(max_depth=4)": ..., "...=8)": ...}`` for `models` of an estimator,
    ``grid(SAPS(weight=0.1), weight=[0.05, 0.2])`` gives scores for its `scores`. Parameters of a
    pipeline's steps are written ``step__parameter``, as in scikit-learn. A value that is not a
    list, tuple, array or range is taken as the only one.

    Searching a grid this way keeps the guarantee. A `GridSearchCV` around a calibrated estimator
    does not: it chooses by rows that the calibration has used.
    """
    is_model = hasattr(estimator, "get_params")
    if isinstance(estimator, type) or not (is_model or isinstance(estimator, Score)):
        raise ValueError(
            f"estimator must be a scikit-learn estimator such as Ridge(), or a score such as "
            f"dco.scores.SAPS(weight=0.1), got {estimator!r:.200}."
        )
    from sklearn.model_selection import ParameterGrid

    choices = {name: _choices(name, value) for name, value in values.items()}
    candidates: dict[str, Any] = {}
    for combination in ParameterGrid(choices):
        parameters = {name: combination[name] for name in choices}  # in the order of the call
        title = _number_if_used(_title(estimator, parameters), candidates)
        candidates[title] = _with_parameters(estimator, parameters)
    return candidates


def _choices(name: str, value: Any) -> list[Any]:
    """Return the values to try for one parameter."""
    is_single = isinstance(value, str | bytes | dict) or hasattr(value, "get_params")
    if is_single or not isinstance(value, Iterable):
        return [value]
    choices = list(value)
    if not choices:
        raise ValueError(f"{name} has no values to try: give at least one, or leave it out.")
    return choices


def _title(estimator: Any, parameters: Mapping[str, Any]) -> str:
    """Name a candidate by its class and the parameters that are tried, such as "Ridge(alpha=2)".

    A pipeline is named by its last step: with {"ridge__alpha": 2, "pca__whiten": True} it is called
    "Ridge(alpha=2, pca.whiten=True)".
    """
    from sklearn.pipeline import Pipeline

    # Find the last step, and the path to its parameters ("ridge__").
    last_step = estimator
    path = ""
    while isinstance(last_step, Pipeline):
        step_name, last_step = last_step.steps[-1]
        path += f"{step_name}__"

    # A title must not contain "__": as the name of a model it is part of scikit-learn's paths.
    texts = []
    for name, value in parameters.items():
        short_name = name.removeprefix(path).replace("__", ".")
        texts.append(f"{short_name}={_in_words(value)}")
    class_name = type(last_step).__name__
    return f"{class_name}({', '.join(texts)})" if texts else class_name


def _number_if_used(title: str, used: Collection[str]) -> str:
    """Return the title; if it is used already, with the first number that makes it new."""
    if title not in used:
        return title
    numbered = (f"{title} #{n}" for n in count(2))
    return next(candidate for candidate in numbered if candidate not in used)


def _with_parameters(estimator: Any, parameters: Mapping[str, Any]) -> Any:
    """Return a copy of a model or a score with other parameters."""
    from sklearn.base import clone

    if isinstance(estimator, Score):
        return _score_with_parameters(estimator, parameters)
    copies = {name: clone(value, safe=False) for name, value in parameters.items()}
    return clone(estimator).set_params(**copies)


def _score_with_parameters(score: Score, parameters: Mapping[str, Any]) -> Score:
    """Return a copy of a score with other parameters, and refuse those that it does not have."""
    assert is_dataclass(score)  # as every score is
    names = [field.name for field in fields(score) if field.init]
    for name in parameters:
        if name not in names:
            raise ValueError(
                f"{type(score).__name__} has no parameter {name!r}; it has "
                f"{', '.join(names) or 'none'}."
            )
    return replace(score, **parameters)


def _in_words(value: Any) -> str:
    """Write a value of a parameter: models and functions by name, numbers without their type."""
    if hasattr(value, "get_params"):
        return type(value).__name__
    is_array_scalar = hasattr(value, "item") and getattr(value, "ndim", None) == 0
    item = value.item() if is_array_scalar else value
    text = getattr(item, "__name__", None) or repr(item)
    return " ".join(text.replace("__", "_").split())
