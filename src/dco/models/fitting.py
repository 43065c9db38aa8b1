"""Fit a copy of a model on rows, and leave the model and the rows as they were."""

from __future__ import annotations

from typing import Any

from dco.models.averaged import AveragedModel
from dco.models.routing import route_params
from dco.models.wrapped import is_frozen
from dco.rows.rows import Rows


def fit_model(model: Any, rows: Rows) -> Any:
    """Fit a clone of the model; a frozen model is returned as it is."""
    if is_frozen(model):
        return model
    if isinstance(model, AveragedModel):  # each member takes fit parameters under its own names
        return model.of_fitted([fit_model(member, rows) for member in model.members])

    from sklearn.base import clone

    cloned = clone(model)
    forbid_work_in_place(cloned)
    params = route_params(cloned, rows.params) if rows.params else {}
    cloned.fit(rows.X, rows.y, **params)
    return cloned


def forbid_work_in_place(model: Any) -> None:
    """Make a model copy the rows that it would overwrite: other models read them after it."""
    params = model.get_params() if hasattr(model, "get_params") else {}
    in_place = [
        name
        for name, value in params.items()
        if value is False and name.rpartition("__")[2] in ("copy", "copy_X")
    ]
    if in_place:
        model.set_params(**dict.fromkeys(in_place, True))
