"""Look through pipelines, searches and frozen wrappers to the models inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any


def is_frozen(model: Any) -> bool:
    """Whether a model is to be used as it is.

    That is a `FrozenEstimator`, or a pipeline all of whose steps are frozen. A pipeline that merely
    ends in a frozen model still has steps to fit (a scaler, say), so it is fitted like any other;
    the frozen part stays as it was. To use a fitted pipeline as it is, freeze it whole:
    ``FrozenEstimator(pipeline)``.
    """
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import Pipeline

    if isinstance(model, Pipeline):
        steps = [step for _, step in model.steps if is_step(step)]
        return bool(steps) and all(is_frozen(step) for step in steps)
    return isinstance(model, FrozenEstimator)


def holds_frozen(model: Any) -> bool:
    """Whether a model is frozen, or any part of it: a vote or a stack with a frozen member, say.

    A model that is its own clone counts as frozen: it may have been fitted before, on rows that are
    unknown here.
    """
    if _is_its_own_clone(model):
        return True
    if isinstance(model, Mapping):  # the values that a search tries, say
        return any(holds_frozen(value) for value in model.values())
    if isinstance(model, list | tuple):
        return any(holds_frozen(part) for part in model)
    if isinstance(model, type) or not hasattr(model, "get_params"):
        return False
    return any(holds_frozen(part) for part in model.get_params(deep=False).values())


def _is_its_own_clone(model: Any) -> bool:
    """Whether the model has a way of cloning of its own that gives itself, as frozen ones do."""
    from sklearn.base import BaseEstimator, clone

    if isinstance(model, type):
        return False
    clone_method = getattr(model, "__sklearn_clone__", None)
    if clone_method is None:
        return False
    is_usual = getattr(clone_method, "__func__", None) is BaseEstimator.__sklearn_clone__
    return not is_usual and clone(model) is model


def last_model(model: Any) -> Any:
    """Return the model at the end of pipelines, searches and frozen wrappers."""
    while steps := steps_inside(model):
        model = steps[-1]
    return model


def peel(model: Any, X: Any) -> tuple[Any, Any]:
    """Take the last model out of pipelines and wrappers: return it, and X as that model sees it.

    X is sent through the fitted steps before it.
    """
    while steps := steps_inside(model):
        *transformers, model = steps
        for transformer in transformers:
            if is_step(transformer):
                X = transformer.transform(X)
    return model, X


def steps_inside(model: Any) -> list[Any]:
    """Return the models that a pipeline, a search or a frozen wrapper holds, the deciding one last.

    A pipeline gives its steps, a search its best model (unfitted: the model that it tunes), other
    models an empty list.
    """
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection._search import BaseSearchCV
    from sklearn.pipeline import Pipeline

    if isinstance(model, FrozenEstimator):
        return [model.estimator]
    if isinstance(model, BaseSearchCV):
        return [getattr(model, "best_estimator_", model.estimator)]
    if isinstance(model, Pipeline):
        return [step for _, step in model.steps]
    return []


def is_step(step: Any) -> bool:
    """Whether a step of a pipeline does something: None and "passthrough" do nothing."""
    return step is not None and not isinstance(step, str)


def name_of(model: Any) -> str:
    """Name a model for a message: ``Pipeline(StandardScaler, Ridge)``, ``Ridge``."""
    name = type(model).__name__
    parts = [name_of(part) for part in steps_inside(model) if is_step(part)]
    return f"{name}({', '.join(parts)})" if parts else name


def input_tags(model: Any) -> Any:
    """Return scikit-learn's input tags of a model, with a better answer on missing values.

    `tags.allow_nan` of a pipeline is that of its first step, such as an imputer. A transformer made
    of several (`ColumnTransformer`, `FeatureUnion`) is taken to allow missing values. None is
    returned for a model without tags.
    """
    from sklearn.utils import get_tags

    try:
        tags = get_tags(model).input_tags
    except AttributeError:  # not derived from scikit-learn, perhaps inside a frozen wrapper
        return None

    is_pipeline = hasattr(model, "steps")
    if is_pipeline:
        steps = [step for _, step in model.steps if is_step(step)]
        tags_of_first = input_tags(steps[0]) if steps else None
        allows_nan = tags_of_first is not None and bool(tags_of_first.allow_nan)
        return replace(tags, allow_nan=allows_nan)

    is_made_of_transformers = hasattr(model, "transformers") or hasattr(model, "transformer_list")
    if is_made_of_transformers:
        return replace(tags, allow_nan=True)
    return tags
