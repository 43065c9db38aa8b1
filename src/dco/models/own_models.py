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
    """Return the caller's own models by name, in their order.

    Names come from dicts and from (name, model) tuples. Other models are called by their class in
    lower case, numbered where it repeats. Texts name default models (see `default_names`).
    """
    listed_models = _list_models(models)
    times_of_class = Counter(model.class_name for model in listed_models if model.name is None)
    count_so_far: Counter[str] = Counter()

    model_by_name: dict[str, Any] = {}
    for own_model in listed_models:
        name = own_model.name
        if name is None:
            name = own_model.class_name
            count_so_far[name] += 1
            if times_of_class[name] > 1:
                name = f"{name}-{count_so_far[name]}"

        if name in model_by_name:
            raise ValueError(
                f"Two models are called {name!r}: name them in a dict, each name once."
            )
        model_by_name[name] = own_model.model
    return model_by_name


def default_names(models: Any) -> tuple[str, ...] | None:
    """Return the names of the default models that are asked for: () for none, None for all."""
    if models is None:
        return None
    names = list(dict.fromkeys(_list_texts(models)))
    if DEFAULT not in names:
        return tuple(names)
    if len(names) > 1:
        others = ", ".join(repr(name) for name in names if name != DEFAULT)
        raise ValueError(
            f'"{DEFAULT}" stands for all default models: leave {others} out, or name the models '
            f"one by one."
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
    """Return the models with one replaced (``name``) or a parameter of one set (``name__param``).

    A parameter is set in the model that was passed, as scikit-learn does.
    """
    models_by_name = own_models(models)
    matches = [name for name in models_by_name if path == name or path.startswith(f"{name}__")]
    if not matches:
        raise ValueError(
            f"There is no model for {path!r}; the models are {', '.join(models_by_name)}."
        )

    name = max(matches, key=len)
    if path != name:
        models_by_name[name].set_params(**{path.removeprefix(f"{name}__"): value})
        return models
    return _replace_model(models, name, value, names=iter(models_by_name))


def _replace_model(models: Any, name: str, value: Any, *, names: Iterator[str]) -> Any:
    """Return the same dicts, tuples and lists with `value` in place of the model called `name`.

    `names` gives the names of the models in their order; each model that is visited takes one.
    """

    def replace_if_it_is_next(model: Any) -> Any:
        is_called_so = next(names) == name
        return value if is_called_so else model

    if models is None or isinstance(models, str):
        return models
    if isinstance(models, Mapping):
        return {key: replace_if_it_is_next(model) for key, model in models.items()}
    if is_pair(models):
        return (models[0], replace_if_it_is_next(models[1]))
    if isinstance(models, list | tuple):
        return [_replace_model(part, name, value, names=names) for part in models]
    return replace_if_it_is_next(models)


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
    """Clone a model, and seed what in it draws at random without a seed."""
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

    seedless = {}
    for key, value in copy.get_params().items():
        if _is_seedless_splitter(value):
            value.random_state = seed  # the copy's own, since `clone` copies splitters
        if value is None and key.rpartition("__")[2] == "random_state":
            seedless[key] = seed
    return copy.set_params(**seedless) if seedless else copy


def _is_seedless_splitter(value: Any) -> bool:
    """Return whether these are folds that a search or a stack shuffles without a seed."""
    if not hasattr(value, "split") or not getattr(value, "shuffle", True):
        return False
    return getattr(value, "random_state", 0) is None


def note_fitted_again(models: Mapping[str, Any], copies: Mapping[str, Any]) -> list[Note]:
    """Note models that came fitted and whose copies are fitted again.

    A model that ends in a frozen one is fitted in its copy too, and is not meant.
    """
    notes = []
    for name, model in models.items():
        if is_frozen(model) or not _is_fitted(model):
            continue
        if _is_fitted(copies[name]):  # its frozen part is
            continue
        notes.append(
            Note(
                "fitted-again",
                f"The model {name!r} is fitted already, and a copy of it is fitted again on the "
                f"training rows.",
                "To use it as it is, pass sklearn.frozen.FrozenEstimator(model).",
            )
        )
    return notes


def _is_fitted(model: Any) -> bool:
    """Return whether scikit-learn takes the model for fitted."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    with suppress(NotFittedError, TypeError):  # a TypeError: not scikit-learn's kind of estimator
        check_is_fitted(model)
        return True
    return False
