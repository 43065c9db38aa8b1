"""The models that a caller passes: read by name, copied, and given seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.foundations.notes import Note
from dco.models.wrapped import is_frozen

DEFAULT = "default"  # stands for all default models


# ------------------------------------------------------------------------------------ read by name


@dataclass(frozen=True)
class _OwnModel:
    """A model as it was passed, with its name if it has one."""

    name: str | None
    model: Any

    @property
    def class_name(self) -> str:
        """The name of its class, in lower case."""
        return type(self.model).__name__.lower()


def own_models(models: Any) -> dict[str, Any]:
    """Give the estimators in the parameter `models` a name each; return them by name, in order.

    Names come from dicts and from (name, model) tuples. Other models are called by their class in
    lower case, numbered where it repeats: [Ridge(), Ridge(), SVR()] gives "ridge-1", "ridge-2" and
    "svr". Texts are skipped: they name default models (see `default_names`).
    """
    listed_models = _list_models(models)
    class_names = Counter(model.class_name for model in listed_models if model.name is None)
    numbers_used: Counter[str] = Counter()

    model_by_name: dict[str, Any] = {}
    for own_model in listed_models:
        name = own_model.name
        if name is None:
            name = own_model.class_name
            if class_names[name] > 1:
                numbers_used[name] += 1
                name = f"{name}-{numbers_used[name]}"

        if name in model_by_name:
            raise ValueError(
                f"Two models are called {name!r}: name them in a dict, each name once."
            )
        model_by_name[name] = own_model.model
    return model_by_name


def default_names(models: Any) -> tuple[str, ...] | None:
    """Return which default models the parameter `models` asks for, by name.

    None stands for all of them: models=None or "default". Otherwise its texts name them:
    ["linear", Ridge()] gives ("linear",), and () means no default model.
    """
    if models is None:
        return None
    names = list(dict.fromkeys(_list_texts(models)))  # each once
    if DEFAULT not in names:
        return tuple(names)
    if len(names) > 1:
        other_names = ", ".join(repr(name) for name in names if name != DEFAULT)
        raise ValueError(
            f'"{DEFAULT}" stands for all default models: leave {other_names} out, or name the '
            f"models one by one."
        )
    return None


def is_pair(models: Any) -> bool:
    """Return whether this is (name, model), as the steps of a Pipeline are."""
    return isinstance(models, tuple) and len(models) == 2 and isinstance(models[0], str)


def _list_models(models: Any) -> list[_OwnModel]:
    """List the models in dicts, tuples and lists of these, without the names of default models."""
    if models is None or isinstance(models, str):
        return []
    if isinstance(models, Mapping):
        return [_own_model(str(name), model) for name, model in models.items()]
    if is_pair(models):
        return [_own_model(*models)]
    if isinstance(models, list | tuple):
        return [own_model for part in models for own_model in _list_models(part)]
    return [_OwnModel(None, models)]


def _own_model(name: str, model: Any) -> _OwnModel:
    """Pair a model with its name, and refuse a text in place of the model."""
    if isinstance(model, str):
        raise ValueError(
            f"The model {name!r} is the text {model!r}: default models keep their own names, so "
            f"pass {model!r} in a list."
        )
    return _OwnModel(name, model)


def _list_texts(models: Any) -> list[str]:
    """List the texts that do not name a model beside them."""
    if isinstance(models, str):
        return [models]
    if isinstance(models, list | tuple) and not is_pair(models):
        return [text for part in models for text in _list_texts(part)]
    return []


# ------------------------------------------------------------------------------- change parameters


def with_model_param(models: Any, path: str, value: Any) -> Any:
    """Replace a model among `models`, or set a parameter of one; return the models.

    `path` is the name of a model, such as "ridge", which is replaced by `value`; or a name and a
    parameter, such as "ridge__alpha". A parameter is set in the model that was passed, as
    scikit-learn does.
    """
    models_by_name = own_models(models)
    matches = [name for name in models_by_name if path == name or path.startswith(f"{name}__")]
    if not matches:
        raise ValueError(
            f"There is no model for {path!r}; the models are {', '.join(models_by_name)}."
        )

    name = max(matches, key=len)  # "a__b" may be a model beside "a"
    if path == name:
        models_by_name[name] = value
        return _refill(models, iter(models_by_name.values()))
    parameter = path.removeprefix(f"{name}__")
    models_by_name[name].set_params(**{parameter: value})
    return models


def _refill(models: Any, new_models: Iterator[Any]) -> Any:
    """Put new models in the place of the old ones in nested dicts, tuples and lists.

    `new_models` gives one for each old model, in the order of `own_models`. Texts, which name
    default models, stay.
    """
    if models is None or isinstance(models, str):
        return models
    if isinstance(models, Mapping):
        return {name: next(new_models) for name in models}
    if is_pair(models):
        return (models[0], next(new_models))
    if isinstance(models, list | tuple):
        return [_refill(part, new_models) for part in models]
    return next(new_models)


# ----------------------------------------------------------------------------------- copy and seed


def copy_and_seed(models: Mapping[str, Any], *, seed: int) -> dict[str, Any]:
    """Copy models, and give a seed to those that have none. Frozen models are used as they are.

    All seeds follow from `seed`, so a fit with the same seed gives the same models.
    """
    seeds = np.random.SeedSequence([seed, 1]).generate_state(max(len(models), 1)).tolist()
    copies = {}
    for (name, model), model_seed in zip(models.items(), seeds, strict=False):
        if is_frozen(model):
            copies[name] = model
        else:
            copies[name] = _copy(name, model, model_seed % 2**31)
    return copies


def _copy(name: str, model: Any, seed: int) -> Any:
    """Copy a model, and give `seed` to whatever in the copy would draw at random without a seed.

    That is every parameter `random_state` that is None, and every splitter that shuffles rows
    without a seed. `name` is for the message about a model that cannot be copied.
    """
    from sklearn.base import clone

    if not (hasattr(model, "get_params") or hasattr(model, "__sklearn_clone__")):
        raise TypeError(
            f"The model {name!r} has no get_params, so it cannot be copied and fitted: derive it "
            f"from sklearn.base.BaseEstimator, or pass sklearn.frozen.FrozenEstimator(model) if "
            f"it is fitted already."
        )
    copy = clone(model)
    if not hasattr(copy, "get_params"):
        return copy

    seeds = {}  # by path, such as "forest__random_state" for a part of the model
    for path, value in copy.get_params().items():
        if _is_seedless_splitter(value):
            value.random_state = seed  # the copy's own splitter, since `clone` copies splitters
        parameter = path.rpartition("__")[2]
        if parameter == "random_state" and value is None:
            seeds[path] = seed
    return copy.set_params(**seeds) if seeds else copy


def _is_seedless_splitter(value: Any) -> bool:
    """Return whether these are folds that a search or a stack shuffles without a seed."""
    if not hasattr(value, "split") or not getattr(value, "shuffle", True):
        return False
    return getattr(value, "random_state", 0) is None


def note_fitted_again(models: Mapping[str, Any], copies: Mapping[str, Any]) -> list[Note]:
    """Warn of models that are fitted already, since copies of them will be fitted again.

    `models` are the caller's and `copies` their unfitted copies, by name. No warning is due for a
    frozen model, or for a pipeline that ends in one: what was fitted is kept.
    """
    notes = []
    for name, model in models.items():
        keeps_fit = is_frozen(model) or _is_fitted(copies[name])
        if keeps_fit or not _is_fitted(model):
            continue
        text = (
            f"The model {name!r} is fitted already, and a copy of it is fitted again on the "
            f"training rows."
        )
        remedy = "To use it as it is, pass sklearn.frozen.FrozenEstimator(model)."
        notes.append(Note("fitted-again", text, remedy))
    return notes


def _is_fitted(model: Any) -> bool:
    """Return whether scikit-learn takes the model for fitted."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    with suppress(NotFittedError, TypeError):  # a TypeError: not scikit-learn's kind of estimator
        check_is_fitted(model)
        return True
    return False
