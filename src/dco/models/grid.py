"""Hyperparameter grids as candidates: every combination is a model or a score of its own, ranked on
tuning rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from itertools import chain, count
from typing import Any

from dco.scores.score import Score


def grid(estimator: Any, /, **values: Any) -> dict[str, Any]:
    """All combinations of the listed parameters of a model or a score, as {readable name: unfitted
    clone, or score}.

    ``grid(RandomForestRegressor(), max_depth=[4, 8])`` gives
    ``{"RandomForestRegressor(max_depth=4)": ..., "...=8)": ...}`` for `models` of an estimator,
    ``grid(SAPS(weight=0.1), weight=[0.05, 0.2])`` gives scores for its `scores`. Parameters of a
    pipeline's steps are written ``step__parameter``, as in scikit-learn. A value that is not a
    list, tuple, array or range is taken as the only one.

    Searching a grid this way keeps the guarantee. A `GridSearchCV` around a calibrated estimator
    does not: it chooses by rows that the calibration has used.
    """
    if isinstance(estimator, type) or not (
        hasattr(estimator, "get_params") or isinstance(estimator, Score)
    ):
        raise ValueError(
            "estimator must be a scikit-learn estimator such as Ridge(), or a score such as "
            "dco.scores.SAPS(weight=0.1), "
            f"got {estimator!r:.200}."
        )
    from sklearn.model_selection import ParameterGrid
    from sklearn.pipeline import Pipeline

    choices = {name: _choices(name, value) for name, value in values.items()}
    # a pipeline is called by its last step, whose parameters go without their path
    last, prefix = estimator, ""
    while isinstance(last, Pipeline):
        step, last = last.steps[-1]
        prefix += f"{step}__"
    found: dict[str, Any] = {}
    for combination in ParameterGrid(choices):
        setting = {name: combination[name] for name in choices}  # in the order of the call
        # two underscores would read as scikit-learn's path to a parameter wherever names of models
        # are part of one
        short = {name: name.removeprefix(prefix).replace("__", ".") for name in setting}
        text = ", ".join(f"{short[name]}={_readable(value)}" for name, value in setting.items())
        title = f"{type(last).__name__}({text})" if text else type(last).__name__
        names = chain([title], (f"{title} #{number}" for number in count(2)))
        found[next(name for name in names if name not in found)] = _with(estimator, setting)
    return found


def _with(base: Any, setting: dict[str, Any]) -> Any:
    """A copy of a model or a score with other parameters."""
    from sklearn.base import clone

    if not isinstance(base, Score):
        return clone(base).set_params(
            **{name: clone(value, safe=False) for name, value in setting.items()}
        )
    score: Any = base  # a dataclass, as every score is
    known = [entry.name for entry in fields(score) if entry.init]
    for name in setting:
        if name not in known:
            raise ValueError(
                f"{type(base).__name__} has no parameter {name!r}; it has "
                f"{', '.join(known) or 'none'}."
            )
    return replace(score, **setting)


def _choices(name: str, value: Any) -> list[Any]:
    several = (
        isinstance(value, Iterable)
        and not isinstance(value, str | bytes | dict)
        and not hasattr(value, "get_params")
    )
    listed = list(value) if several else [value]
    if not listed:
        raise ValueError(f"{name} has no values to try: give at least one, or leave it out.")
    return listed


def _readable(value: Any) -> str:
    if hasattr(value, "get_params"):
        return type(value).__name__
    item = value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value
    text = getattr(item, "__name__", None) or repr(item)
    return " ".join(text.replace("__", "_").split())
