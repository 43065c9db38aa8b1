"""Fit parameters such as `sample_weight`, under the names that a model takes them by."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any


def route_params(model: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return fit parameters under the names that this model takes.

    One that it cannot take is an error that names both. With scikit-learn's metadata routing, a
    parameter that the model could take but neither asked for nor declined is scikit-learn's error.
    """
    from sklearn import get_config

    if get_config().get("enable_metadata_routing"):
        return _route_metadata(model, params)
    return {_parameter_path(model, name): value for name, value in params.items()}


def _route_metadata(model: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Let scikit-learn's metadata routing decide what the model's `fit` gets."""
    from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping

    router = MetadataRouter(owner=type(model).__name__)
    router.add(model=model, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
    routed = router.route_params(caller="fit", params=dict(params))
    return dict(routed["model"]["fit"])


def _parameter_path(model: Any, name: str) -> str:
    """Return the name under which the `fit` of a model takes a fit parameter.

    For most models that is the name itself; one that `fit` does not take is an error. A pipeline
    passes "sample_weight" to its last step, as "ridge__sample_weight" if that is called "ridge".
    """
    is_pipeline = hasattr(model, "steps")
    if is_pipeline:
        if "__" in name:  # the caller has named the step
            return name
        step_name, last_step = model.steps[-1]
        return f"{step_name}__{_parameter_path(last_step, name)}"

    parameters = inspect.signature(model.fit).parameters
    takes_any_name = any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    if name not in parameters and not takes_any_name:
        raise TypeError(f"{type(model).__name__}.fit takes no {name!r}")
    return name
