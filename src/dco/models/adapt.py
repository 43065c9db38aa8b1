"""Any fitted scikit-learn model → a prediction record.

What a model can give is read off what it offers: ``predict_distribution``, ``predict_draws``,
``predict_proba``, ``decision_function``, ``predict(X, return_std=True)``, ``predict``. Pipelines,
searches such as `GridSearchCV`, and `FrozenEstimator` are looked through: the model at the end
decides. X goes to the model as it came, data frames included.

Every record is a fixed function of the row, which is all that a score needs to be valid; how small
the sets are is another matter.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, softmax

from dco.foundations.arrays import AnyArray, Floats, to_numpy
from dco.foundations.errors import IncompatibleScoreError
from dco.foundations.notes import Note, show
from dco.predictions import (
    ClassDraws,
    ClassProbabilities,
    GaussianMixtures,
    Points,
    PointsWithSpread,
    Prediction,
    Quantiles,
    on_host,
)
from dco.scores.mixtures import mean_and_sd

CLASS_RECORDS: tuple[type, ...] = (ClassDraws, ClassProbabilities)

# Every record, the richest first, and what can be had from it without asking the model again.
_DERIVED: dict[type, tuple[type, ...]] = {
    ClassDraws: (ClassDraws, ClassProbabilities),
    ClassProbabilities: (ClassProbabilities,),
    GaussianMixtures: (GaussianMixtures, PointsWithSpread, Points),
    Quantiles: (Quantiles, Points),
    PointsWithSpread: (PointsWithSpread, Points),
    Points: (Points,),
}
# half-precision softmax outputs are this far from summing to one; true mistakes are farther
_ONE = 1e-3


def records_of(model: Any) -> tuple[type, ...]:
    """The prediction records that a model can give, fitted or not, the richest first."""
    from sklearn.utils import get_tags

    last = last_model(model)
    if hasattr(last, "predict_kind"):  # a model of models, which gives what its members give
        records: tuple[type, ...] = last.records()
        return records
    native = _announced(last) if hasattr(last, "predict_distribution") else []
    knows_classes = any(
        hasattr(last, name) for name in ("predict_proba", "predict_draws", "classes_")
    )
    try:
        kind = get_tags(model).estimator_type
    except AttributeError:  # no tags: not derived from scikit-learn
        kind = "classifier" if knows_classes else None
    if kind == "classifier" or (
        knows_classes and kind != "regressor" and hasattr(model, "predict")
    ):
        native += (
            [ClassDraws, ClassProbabilities]
            if hasattr(last, "predict_draws")
            else [ClassProbabilities]
        )
    elif kind == "regressor" or not (
        knows_classes or kind in ("outlier_detector", "clusterer") or not hasattr(last, "predict")
    ):
        with suppress(AttributeError, TypeError, ValueError):  # a predict that cannot be inspected
            native += (
                [PointsWithSpread]
                if "return_std" in inspect.signature(last.predict).parameters
                else []
            )
        native.append(Points)
    if not native:
        raise TypeError(
            f"{name_of(model)} is neither a classifier nor a regressor: no predict, "
            f"no predict_distribution."
        )
    reachable = {derived for record in native for derived in _DERIVED[record]}
    return tuple(record for record in _DERIVED if record in reachable)


def predict_record(
    model: Any,
    X: Any,
    kind: type | None = None,
    *,
    uniforms: ArrayLike | None = None,
    classes: ArrayLike | None = None,
) -> Prediction:
    """What a fitted model says about the rows of X, as a record of the given kind (the richest it
    has if None).

    Class records carry the model's `classes_`, the `uniforms` as given, and as `unseen` those
    labels in `classes` that the model does not know; regression records do not use them.
    Probabilities that are NaN or do not sum to one, NaN predictions and negative spreads are errors
    that name the model.
    """
    offered = records_of(model)
    kind = offered[0] if kind is None else kind
    if kind not in offered:
        names = " or ".join(record.__name__ for record in offered)
        raise IncompatibleScoreError(
            f"{name_of(model)} gives {names}, but {kind.__name__} was asked for."
        )
    method, answer = _ask(model, X, kind)  # the model's own errors pass as they are
    try:
        record = _read(method, answer, model)
        if isinstance(record, ClassProbabilities | ClassDraws):
            record = _labelled(model, record, uniforms, classes)
        rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if len(record) != rows:
            raise ValueError(f"there are {len(record)} predictions for {rows} rows.")
    except ValueError as bad:
        raise ValueError(f"{name_of(model)}: {bad}") from None
    return record if isinstance(record, kind) else convert(record, kind)


def convert(prediction: Prediction, kind: type) -> Prediction:
    """A prediction as a simpler record: draws to their mean, mixtures to mean and standard
    deviation, any to points.
    """
    if isinstance(prediction, kind):
        return prediction
    match prediction:
        case ClassDraws() if kind is ClassProbabilities:
            return prediction.mean()
        case GaussianMixtures() if kind in (PointsWithSpread, Points):
            mean, sd = mean_and_sd(prediction)
            return Points(mean) if kind is Points else PointsWithSpread(mean, sd)
        case PointsWithSpread(mean, _) if kind is Points:
            return Points(mean)
        case Quantiles(lower, upper, median) if kind is Points:
            return Points((lower + upper) / 2 if median is None else median)
    raise IncompatibleScoreError(
        f"{type(prediction).__name__} cannot be turned into {kind.__name__}."
    )


def is_frozen(model: Any) -> bool:
    """Whether `model` is to be used as it is: a `FrozenEstimator`, or a pipeline all of whose steps
    are frozen.

    A pipeline that merely ends in a frozen model still has steps to fit (a scaler, say), so it is
    fitted like any other; the frozen part stays as it was. To use a fitted pipeline as it is,
    freeze it whole: ``FrozenEstimator(pipeline)``.
    """
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import Pipeline

    if isinstance(model, Pipeline):
        steps = [step for _, step in model.steps if step is not None and not isinstance(step, str)]
        return bool(steps) and all(is_frozen(step) for step in steps)
    return isinstance(model, FrozenEstimator)


def holds_frozen(model: Any) -> bool:
    """Whether a model is frozen, or any part of it: a vote, a stack or a `CalibratedClassifierCV`
    around a frozen model.

    A model that is its own clone counts as frozen: it may have been fitted before, on rows that are
    unknown here.
    """
    from sklearn.base import BaseEstimator, clone

    # a FrozenEstimator has one
    own_clone = None if isinstance(model, type) else getattr(model, "__sklearn_clone__", None)
    usual = getattr(own_clone, "__func__", None) is BaseEstimator.__sklearn_clone__
    if own_clone is not None and not usual and clone(model) is model:
        return True
    if isinstance(model, Mapping):  # the values that a search tries, say
        model = list(model.values())
    if isinstance(model, list | tuple):
        return any(map(holds_frozen, model))
    parts = (
        model.get_params(deep=False)
        if hasattr(model, "get_params") and not isinstance(model, type)
        else {}
    )
    return any(map(holds_frozen, parts.values()))


def last_model(model: Any) -> Any:
    """The model at the end of pipelines, searches and frozen wrappers."""
    while inner := _inside(model):
        model = inner[-1]
    return model


def name_of(model: Any) -> str:
    """What to call a model in a message: ``Pipeline(StandardScaler, Ridge)``,
    ``GridSearchCV(Ridge)``, ``Ridge``.
    """
    inner = _inside(model)
    parts = [name_of(part) for part in inner if part is not None and not isinstance(part, str)]
    name = type(model).__name__
    return f"{name}({', '.join(parts)})" if parts else name


def _ask(model: Any, X: Any, kind: type) -> tuple[str, Any]:
    """The method that serves a record of this kind, and its answer. What a pipeline cannot pass on
    is asked of its end.
    """
    last = last_model(model)
    announced = _announced(last) if hasattr(last, "predict_distribution") else []
    if hasattr(last, "predict_kind"):
        last, rows = _peel(model, X)
        return "predict_kind", last.predict_kind(rows, kind)
    if any(kind in _DERIVED[record] for record in announced) and not (
        kind is Points and hasattr(last, "predict")
    ):
        last, rows = _peel(model, X)
        return "predict_distribution", last.predict_distribution(rows)
    if kind is PointsWithSpread:
        last, rows = _peel(model, X)
        return "return_std", last.predict(rows, return_std=True)
    only_draws = hasattr(last, "predict_draws") and not hasattr(last, "predict_proba")
    if kind is ClassDraws or (kind is ClassProbabilities and only_draws):
        last, rows = _peel(model, X)
        return "predict_draws", last.predict_draws(rows)
    if kind is ClassProbabilities and hasattr(model, "predict_proba"):
        return "predict_proba", model.predict_proba(X)
    if kind is ClassProbabilities and hasattr(model, "decision_function"):
        decisions, classes = (
            to_numpy(model.decision_function(X)),
            getattr(model, "classes_", getattr(last, "classes_", ())),
        )
        # one column per pair of classes is not one per class, even where the numbers agree (three
        # classes, three pairs)
        pairs = getattr(last, "decision_function_shape", None) == "ovo"
        if (decisions.ndim == 1 and len(classes) == 2) or (
            decisions.shape[1:] == (len(classes),) and not pairs
        ):
            return "decision_function", decisions
    return "labels" if kind is ClassProbabilities else "predict", model.predict(X)


def _read(method: str, answer: Any, model: Any) -> Prediction:
    """The record that an answer makes; a ValueError says what is wrong with it."""
    match method:
        case "predict_kind" | "predict_distribution":
            given: Prediction = answer
            if not isinstance(answer, tuple(_DERIVED)):
                raise ValueError(
                    f"{method} returned {type(answer).__name__}, not a prediction record."
                )
            return (
                _with_positive_spread(given)
                if isinstance(given, PointsWithSpread)
                else on_host(given)
            )
        case "predict_draws":
            record = (
                on_host(answer) if isinstance(answer, ClassDraws) else ClassDraws(to_numpy(answer))
            )
            _check_sums(record.draws, method)
            return record
        case "predict_proba":
            if isinstance(answer, list):
                raise ValueError(
                    "predict_proba returned a list, so it has several outputs; sets "
                    "are for one y per row."
                )
            probabilities = ClassProbabilities(to_numpy(answer))
            _check_sums(probabilities.probabilities, method)
            return probabilities
        case "decision_function":
            if not np.all(np.isfinite(answer)):
                raise ValueError("decision_function returned NaN or infinite values.")
            positive = expit(answer)
            return ClassProbabilities(
                np.column_stack([1 - positive, positive])
                if answer.ndim == 1
                else softmax(answer, axis=1)
            )
    if method == "return_std" and not (isinstance(answer, tuple) and len(answer) == 2):
        raise ValueError(
            "predict(X, return_std=True) did not return a mean and a standard deviation."
        )
    parts = [
        part if isinstance(part, np.ndarray) else to_numpy(part)
        for part in (answer if method == "return_std" else [answer])
    ]
    parts = [part[:, 0] if part.ndim == 2 and part.shape[1] == 1 else part for part in parts]
    if parts[0].ndim != 1:
        raise ValueError(
            f"predict returned an array of shape {parts[0].shape}; prediction sets "
            f"are for one y per row."
        )
    if method == "labels":
        return ClassProbabilities(
            (parts[0][:, None] == _classes(model)[None, :]).astype(np.float64)
        )
    return Points(*parts) if len(parts) == 1 else _with_positive_spread(PointsWithSpread(*parts))


def _labelled(
    model: Any,
    record: ClassProbabilities | ClassDraws,
    uniforms: ArrayLike | None,
    labels: ArrayLike | None,
) -> ClassProbabilities | ClassDraws:
    classes = record.classes if record.classes is not None else _classes(model)
    if record.n_known != len(classes):
        raise ValueError(
            f"there are {record.n_known} columns for the {len(classes)} classes in its classes_."
        )
    unseen = (
        record.unseen
        if labels is None
        else np.setdiff1d(labels, getattr(model, "classes_", labels))
    )
    return record.labelled(classes, record.uniforms if uniforms is None else uniforms, unseen)


def _classes(model: Any) -> AnyArray:
    found = [getattr(part, "classes_", None) for part in (model, last_model(model))]
    classes = found[0] if found[0] is not None else found[1]
    # of several outputs
    if classes is None or (isinstance(classes, list) and any(np.ndim(own) > 0 for own in classes)):
        raise ValueError(
            "it has no classes_ that names its columns: its fit must set it, from one y per row."
        )
    return np.asarray(classes)


def _with_positive_spread(record: PointsWithSpread) -> PointsWithSpread:
    """Spreads of 0 (a Gaussian process at its own rows) become a tiny constant, so that residual /
    spread is never 0 / 0.

    The constant does not depend on the other rows, and is large enough that the quotient does not
    overflow.
    """
    tiny = np.sqrt(np.finfo(record.spread.dtype).tiny)
    return (
        record
        if np.all(record.spread >= tiny)
        else PointsWithSpread(record.mean, np.maximum(record.spread, tiny))
    )


def _check_sums(values: Floats, method: str) -> None:
    sums = values.sum(axis=-1, dtype=np.float64)
    bad = ~(np.abs(sums - 1) <= _ONE)  # written so that NaN is bad
    if np.any(bad):
        row = int(np.argwhere(bad)[0][-1])
        raise ValueError(
            f"{method} must return probabilities that sum to one, but row {row} sums "
            f"to {sums[bad][0]:.6g}."
        )


def _announced(model: Any) -> list[type]:
    """The records that `predict_distribution` promises in its return annotation."""
    annotation = inspect.signature(model.predict_distribution).return_annotation
    text = (
        annotation
        if isinstance(annotation, str)
        else f"{getattr(annotation, '__name__', '')} {annotation}"
    )
    found = [record for record in _DERIVED if re.search(rf"\b{record.__name__}\b", text)]
    if not found:
        raise TypeError(
            f"{type(model).__name__}.predict_distribution does not say what it returns: annotate "
            f"it, for example "
            "`def predict_distribution(self, X) -> dco.PointsWithSpread`."
        )
    return found


def _inside(model: Any) -> list[Any]:
    """What a pipeline, a search or a frozen wrapper holds; nothing for other models."""
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


def _peel(model: Any, X: Any) -> tuple[Any, Any]:
    """The model at the end, and X as that model sees it."""
    while inner := _inside(model):
        *before, model = inner
        for step in before:
            # None and "passthrough" leave X alone
            if step is not None and not isinstance(step, str):
                X = step.transform(X)
    return model, X


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


def input_tags(model: Any) -> Any:
    """What scikit-learn's tags say of the input; None for a model without tags, inside a frozen
    wrapper too.

    A Pipeline has no tag of its own for NaN: its first step (an imputer, say) is asked.
    """
    from sklearn.utils import get_tags

    try:
        tags = get_tags(model).input_tags
    except AttributeError:
        return None
    if hasattr(model, "steps"):
        steps = [step for _, step in model.steps if step is not None and not isinstance(step, str)]
        first = input_tags(steps[0]) if steps else None
        return replace(tags, allow_nan=first is not None and bool(first.allow_nan))
    # several at once, each with columns of its own
    if hasattr(model, "transformers") or hasattr(model, "transformer_list"):
        return replace(tags, allow_nan=True)
    return tags


def routed(model: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Fit parameters under the names that this model takes; one that it cannot take is an error
    naming both.
    """
    from sklearn import get_config

    if get_config().get("enable_metadata_routing"):
        from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping

        # a parameter that the model could take but neither asked for nor declined is scikit-learn's
        # error, never dropped
        router = MetadataRouter(owner=type(model).__name__)
        router.add(model=model, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
        return dict(router.route_params(caller="fit", params=dict(params))["model"]["fit"])
    return {_routed_name(model, name): value for name, value in params.items()}


def _routed_name(model: Any, name: str) -> str:
    if hasattr(model, "steps"):  # a Pipeline: `step__name` as it is, a plain name to its last step
        if "__" in name:
            return name
        last, final = model.steps[-1]
        return f"{last}__{_routed_name(final, name)}"
    accepted = inspect.signature(model.fit).parameters
    if name not in accepted and not any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        raise TypeError(f"{type(model).__name__}.fit takes no {name!r}")
    return name


def sources_of(needs: Iterable[type], offered: Collection[type]) -> str:
    """How a model that gives points comes to give the records that a score needs, in sentences."""
    wanted = set(needs) if Points in offered else set()
    return "".join(f" {sentence}" for kind, sentence in _SOURCES.items() if kind in wanted)


_SOURCES: dict[type, str] = {
    PointsWithSpread: (
        "A spread comes from predict(X, return_std=True), from a predict_distribution annotated "
        "-> dco.PointsWithSpread, or "
        "from ⟨models=dco.models.ResidualSpread(model)⟩."
    ),
    Quantiles: "Quantiles come from ⟨models=dco.models.QuantilePair(model)⟩.",
}
