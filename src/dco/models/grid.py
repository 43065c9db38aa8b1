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
        setting = {name: combination[name] for name in choices}  # in the order of the call
        title = _title(estimator, setting)
        candidates[_number_if_used(title, candidates)] = _with_parameters(estimator, setting)
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


def _title(estimator: Any, setting: Mapping[str, Any]) -> str:
    """Name a candidate: a pipeline by its last step, whose parameters go without their path."""
    from sklearn.pipeline import Pipeline

    last = estimator
    path = ""
    while isinstance(last, Pipeline):
        step_name, last = last.steps[-1]
        path += f"{step_name}__"

    # Two underscores would read as scikit-learn's path to a parameter wherever the name of a model
    # is part of one.
    parameters = []
    for name, value in setting.items():
        short_name = name.removeprefix(path).replace("__", ".")
        parameters.append(f"{short_name}={_in_words(value)}")
    class_name = type(last).__name__
    return f"{class_name}({', '.join(parameters)})" if parameters else class_name


def _number_if_used(title: str, used: Collection[str]) -> str:
    """Return the title; if it is used already, with the first number that makes it new."""
    if title not in used:
        return title
    numbered = (f"{title} #{n}" for n in count(2))
    return next(candidate for candidate in numbered if candidate not in used)


def _with_parameters(estimator: Any, setting: Mapping[str, Any]) -> Any:
    """Return a copy of a model or a score with other parameters."""
    from sklearn.base import clone

    if isinstance(estimator, Score):
        return _score_with_parameters(estimator, setting)
    params = {name: clone(value, safe=False) for name, value in setting.items()}
    return clone(estimator).set_params(**params)


def _score_with_parameters(score: Score, setting: Mapping[str, Any]) -> Score:
    """Return a copy of a score with other parameters, and refuse those that it does not have."""
    assert is_dataclass(score)  # as every score is
    names = [field.name for field in fields(score) if field.init]
    for name in setting:
        if name not in names:
            raise ValueError(
                f"{type(score).__name__} has no parameter {name!r}; it has "
                f"{', '.join(names) or 'none'}."
            )
    return replace(score, **setting)


def _in_words(value: Any) -> str:
    """Write a value of a parameter: models and functions by name, numbers without their type."""
    if hasattr(value, "get_params"):
        return type(value).__name__
    is_array_scalar = hasattr(value, "item") and getattr(value, "ndim", None) == 0
    item = value.item() if is_array_scalar else value
    text = getattr(item, "__name__", None) or repr(item)
    return " ".join(text.replace("__", "_").split())
