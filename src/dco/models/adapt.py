"""Candidate models by name: read from what a caller gives, copied, and given seeds."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from dco.foundations.notes import Note, show
from dco.models.wrapped import is_frozen


def named_models(models: Any) -> dict[str, Any]:
    """{name: model}: the names given, in a dict or in pairs, or class names in lower case, numbered
    where they repeat.

    None and names alone stand for default models, which are made when training rows are known: none
    are here.
    """
    texts = isinstance(models, (list, tuple)) and all(isinstance(entry, str) for entry in models)
    if models is None or texts:
        return {}
    if isinstance(models, Mapping):
        return {str(name): model for name, model in models.items()}
    listed = list(models) if isinstance(models, (list, tuple)) and not is_pair(models) else [models]
    pairs: list[Any] = [
        entry for entry in listed if isinstance(entry, (list, tuple)) and is_pair(entry)
    ]
    if pairs:
        if len(dict(pairs)) < len(listed):
            raise ValueError(
                "models must be estimators, or (name, estimator) pairs throughout, each name once."
            )
        return dict(pairs)
    stems = [type(model).__name__.lower() for model in listed]
    numbered = [f"{stem}-{stems[: place + 1].count(stem)}" for place, stem in enumerate(stems)]
    names = [
        stem if stems.count(stem) == 1 else name for stem, name in zip(stems, numbered, strict=True)
    ]
    return dict(zip(names, listed, strict=True))


def is_pair(entry: Any) -> bool:
    """Whether it is (name, model), as the steps of a Pipeline are."""
    return isinstance(entry, (tuple, list)) and len(entry) == 2 and isinstance(entry[0], str)


def with_model_param(models: Any, key: str, value: Any) -> Any:
    """The models with one of them replaced (`key` is its name), or with a parameter of one set
    (``name__param``).
    """
    names = named_models(models)
    name = next(
        (
            name
            for name in sorted(names, key=len, reverse=True)
            if key == name or key.startswith(f"{name}__")
        ),
        None,
    )
    if name is None:
        raise ValueError(f"There is no model for {key!r}; the models are {', '.join(names)}.")
    if key != name:
        names[name].set_params(**{key.removeprefix(f"{name}__"): value})
        return models
    names[name] = value
    named = isinstance(models, Mapping) or any(map(is_pair, [models, *models]))
    return names if named else list(names.values())


def seeded_models(models: Any, seed: int) -> dict[str, Any]:
    """Copies of the models by name; those without a seed get one, so that the certificate's seed
    repeats the fit.
    """
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    named, refitted = named_models(models), list[tuple[str, Any]]()
    numbers = np.random.SeedSequence([seed, 1]).generate_state(max(len(named), 1)).tolist()
    seeded = {}
    for number, (name, model) in zip(numbers, named.items(), strict=False):
        if is_frozen(model):
            seeded[name] = model
            continue
        if not (hasattr(model, "get_params") or hasattr(model, "__sklearn_clone__")):
            raise TypeError(
                f"The model {name!r} has no get_params, so it cannot be copied and fitted: derive "
                f"it from "
                "sklearn.base.BaseEstimator, or pass sklearn.frozen.FrozenEstimator(model) if it "
                "is fitted already."
            )
        copy = clone(model)
        # a TypeError: not scikit-learn's kind of estimator
        with suppress(NotFittedError, TypeError):
            check_is_fitted(model)
            refitted.append((name, copy))
        params = copy.get_params() if hasattr(copy, "get_params") else {}
        # folds that a search or a stack shuffles; the copy's own, as `clone` copies them
        for value in params.values():
            if (
                hasattr(value, "split")
                and getattr(value, "shuffle", True)
                and getattr(value, "random_state", 0) is None
            ):
                value.random_state = number % 2**31
        seeds = [
            key
            for key, value in params.items()
            if value is None and key.rpartition("__")[2] == "random_state"
        ]
        free = dict.fromkeys(seeds, number % 2**31)
        seeded[name] = copy.set_params(**free) if free else copy
    for name, copy in refitted:
        try:
            check_is_fitted(copy)  # what ends in a frozen model is fitted in its copy too
        except NotFittedError:
            text = (
                f"The model {name!r} is fitted already, and a copy of it is fitted again on "
                f"the training rows."
            )
            show(
                [
                    Note(
                        "fitted-again",
                        text,
                        "To use it as it is, pass sklearn.frozen.FrozenEstimator(model).",
                    )
                ]
            )
    return seeded
