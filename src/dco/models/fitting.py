"""Fit a copy of a model on rows, and leave the model and the rows as they were."""

from __future__ import annotations

from typing import Any

from dco.models.composed import ComposedModel
from dco.models.routing import route_params
from dco.models.wrapped import is_frozen
from dco.rows.rows import Rows


def fit_model(model: Any, rows: Rows) -> Any:
    """Fit a copy of a model on some rows, with their fit parameters, and return the copy.

    A frozen model is returned as it is. Of a model that is made of others, every
    member is fitted by itself.
    """
    if is_frozen(model):
        return model
    if isinstance(model, ComposedModel):
        fitted_members = [fit_model(member, rows) for member in model.members]
        return model.with_fitted(fitted_members)

    from sklearn.base import clone

    cloned = clone(model)
    forbid_work_in_place(cloned)
    params = route_params(cloned, rows.params) if rows.params else {}
    cloned.fit(rows.X, rows.y, **params)
    return cloned


def forbid_work_in_place(model: Any) -> None:
    """Set copy=True in a model that would overwrite its rows: other models read them after it."""
    params = model.get_params() if hasattr(model, "get_params") else {}
    new_params = {}
    for path, value in params.items():
        name = path.rpartition("__")[2]  # "scaler__copy" is the parameter `copy` of a step
        if name in ("copy", "copy_X") and value is False:
            new_params[path] = True
    if new_params:
        model.set_params(**new_params)
