"""Any fitted scikit-learn model → a prediction record.

What a model can give is read off what it offers: ``predict_distribution``, ``predict_draws``, ``predict_proba``,
``decision_function``, ``predict(X, return_std=True)``, ``predict``. Pipelines, searches such as `GridSearchCV`, and
`FrozenEstimator` are looked through: the model at the end decides. X goes to the model as it came, data frames included.

Every record is a fixed function of the row, which is all that a score needs to be valid; how small the sets are is another
matter.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, softmax

from dco.arrays import AnyArray, Floats, to_numpy
from dco.errors import IncompatibleScoreError
from dco.mixtures import mean_and_sd
from dco.predictions import (
    ClassDraws,
    ClassProbabilities,
    GaussianMixtures,
    Points,
    PointsWithSpread,
    Prediction,
    Quantiles,
)

Record = TypeVar("Record")

CLASS_RECORDS: tuple[type, ...] = (ClassDraws, ClassProbabilities)
REGRESSION_RECORDS: tuple[type, ...] = (GaussianMixtures, Quantiles, PointsWithSpread, Points)

# What can be had from a record without asking the model again, the richest first.
_DERIVED: dict[type, tuple[type, ...]] = {
    ClassDraws: (ClassDraws, ClassProbabilities),
    ClassProbabilities: (ClassProbabilities,),
    GaussianMixtures: (GaussianMixtures, PointsWithSpread, Points),
    PointsWithSpread: (PointsWithSpread, Points),
    Quantiles: (Quantiles, Points),
    Points: (Points,),
}
_BY_NAME = {record.__name__: record for record in (*CLASS_RECORDS, *REGRESSION_RECORDS)}
_ONE = 1e-3  # half-precision softmax outputs are this far from summing to one; true mistakes are farther


def records_of(model: Any) -> tuple[type, ...]:
    """The prediction records that a model can give, fitted or not, the richest first."""
    last = last_model(model)
    if hasattr(last, "predict_kind"):  # a model of models, which gives what its members give
        records: tuple[type, ...] = last.records()
        return records
    native: list[type] = []
    if hasattr(last, "predict_distribution"):
        native += _announced(last)
    if is_classifier(model):
        if hasattr(last, "predict_draws"):
            native.append(ClassDraws)
        native.append(ClassProbabilities)
    elif is_regressor(model):
        if _takes_return_std(last):
            native.append(PointsWithSpread)
        native.append(Points)
    if not native:
        raise TypeError(
            f"{name_of(model)} is neither a classifier nor a regressor: it has no predict or predict_distribution."
        )
    reachable = {derived for record in native for derived in _DERIVED[record]}
    return tuple(record for record in (*CLASS_RECORDS, *REGRESSION_RECORDS) if record in reachable)


def predict_record(
    model: Any,
    X: Any,
    kind: type | None = None,
    *,
    uniforms: ArrayLike | None = None,
    unseen: ArrayLike | None = None,
) -> Prediction:
    """What a fitted model says about the rows of X, as a record of the given kind (the richest it has if None).

    Class records carry the model's `classes_`, and `uniforms` and `unseen` as given; regression records do not use them.
    Probabilities that are NaN or do not sum to one, NaN predictions and negative spreads are errors that name the model.
    """
    offered = records_of(model)
    kind = offered[0] if kind is None else kind
    if kind not in offered:
        names = " or ".join(record.__name__ for record in offered)
        raise IncompatibleScoreError(f"{name_of(model)} gives {names}, but {kind.__name__} was asked for.")
    try:
        record = _predict(model, X, kind)
    except _PredictionError as bad:
        raise ValueError(f"{name_of(model)}: {bad}") from None
    if isinstance(record, ClassProbabilities | ClassDraws):
        record = _labelled(model, record, uniforms, unseen)
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if len(record) != rows:
        raise ValueError(f"{name_of(model)} gave {len(record)} predictions for {rows} rows.")
    return convert(record, kind)


def convert(prediction: Prediction, kind: type) -> Prediction:
    """A prediction as a simpler record: draws to their mean, mixtures to mean and standard deviation, any to points."""
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
    raise IncompatibleScoreError(f"{type(prediction).__name__} cannot be turned into {kind.__name__}.")


def is_frozen(model: Any) -> bool:
    """Whether `model` is to be used as it is: a `FrozenEstimator`, or a pipeline all of whose steps are frozen.

    A pipeline that merely ends in a frozen model still has steps to fit (a scaler, say), so it is fitted like any other;
    the frozen part stays as it was. To use a fitted pipeline as it is, freeze it whole: ``FrozenEstimator(pipeline)``.
    """
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import Pipeline

    if isinstance(model, Pipeline):
        steps = [step for _, step in model.steps if step is not None and not isinstance(step, str)]
        return bool(steps) and all(is_frozen(step) for step in steps)
    return isinstance(model, FrozenEstimator)


def holds_frozen(model: Any) -> bool:
    """Whether a model is frozen, or any part of it: a vote, a stack or a `CalibratedClassifierCV` around a frozen model.

    A model that is its own clone counts as frozen: it may have been fitted before, on rows that are unknown here.
    """
    from sklearn.base import BaseEstimator, clone

    own_clone = None if isinstance(model, type) else getattr(model, "__sklearn_clone__", None)  # a FrozenEstimator has one
    usual = getattr(own_clone, "__func__", None) is BaseEstimator.__sklearn_clone__
    if own_clone is not None and not usual and clone(model) is model:
        return True
    if isinstance(model, Mapping):  # the values that a search tries, say
        model = list(model.values())
    if isinstance(model, list | tuple):
        return any(map(holds_frozen, model))
    parts = model.get_params(deep=False) if hasattr(model, "get_params") and not isinstance(model, type) else {}
    return any(map(holds_frozen, parts.values()))


def is_classifier(model: Any) -> bool:
    """Whether a model predicts classes, by scikit-learn's tags or, without tags, by having `predict_proba` or `classes_`."""
    from sklearn import base

    try:
        return bool(base.is_classifier(model)) or (
            not base.is_regressor(model) and hasattr(model, "predict") and _looks_like_classes(model)
        )
    except AttributeError:  # no tags: not derived from scikit-learn
        return _looks_like_classes(model)


def is_regressor(model: Any) -> bool:
    """Whether a model predicts numbers, by scikit-learn's tags or, without tags, by having `predict` and no classes."""
    from sklearn import base

    try:
        tags = (
            base.is_regressor(model),
            base.is_classifier(model) or base.is_outlier_detector(model) or base.is_clusterer(model),
        )
    except AttributeError:
        tags = False, False
    if any(tags):
        return bool(tags[0])
    return hasattr(last_model(model), "predict") and not _looks_like_classes(model)


def last_model(model: Any) -> Any:
    """The model at the end of pipelines, searches and frozen wrappers."""
    return _peel(model, None)[0]


def name_of(model: Any) -> str:
    """What to call a model in a message: ``Pipeline(StandardScaler, Ridge)``, ``GridSearchCV(Ridge)``, ``Ridge``."""
    inner = _inside(model)
    parts = [name_of(part) for part in inner if part is not None and not isinstance(part, str)]
    name = type(model).__name__
    return f"{name}({', '.join(parts)})" if parts else name


class _PredictionError(ValueError):
    """Something about a model's output; the caller puts the model's name in front."""


def _predict(model: Any, X: Any, kind: type) -> Prediction:
    last = last_model(model)
    if hasattr(last, "predict_kind"):
        last, rows = _peel(model, X)
        combined: Prediction = last.predict_kind(rows, kind)
        return combined
    if hasattr(last, "predict_distribution") and any(kind in _DERIVED[record] for record in _announced(last)):
        if kind is Points and hasattr(last, "predict"):
            return _points(model.predict(X))
        last, rows = _peel(model, X)
        given: Prediction = last.predict_distribution(rows)
        if not isinstance(given, tuple(_BY_NAME.values())):
            raise _PredictionError(f"predict_distribution returned {type(given).__name__}, not a prediction record.")
        return _with_positive_spread(given) if isinstance(given, PointsWithSpread) else given
    if kind is ClassDraws or (
        kind is ClassProbabilities and hasattr(last, "predict_draws") and not hasattr(last, "predict_proba")
    ):
        last, rows = _peel(model, X)
        answer = last.predict_draws(rows)
        record = answer if isinstance(answer, ClassDraws) else ClassDraws(_array(answer, "predict_draws", ndim=3))
        _check_sums(record.draws, "predict_draws")
        return record
    if kind is ClassProbabilities:
        return _class_probabilities(model, X)
    if kind is PointsWithSpread:
        last, rows = _peel(model, X)
        answer = last.predict(rows, return_std=True)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise _PredictionError("predict(X, return_std=True) did not return a mean and a standard deviation.")
        mean, spread = (_column(part, name) for part, name in zip(answer, ("predict", "return_std"), strict=True))
        return _with_positive_spread(_record(lambda: PointsWithSpread(mean, spread)))
    return _points(model.predict(X))


def _class_probabilities(model: Any, X: Any) -> ClassProbabilities:
    if hasattr(model, "predict_proba"):
        answer = model.predict_proba(X)
        if isinstance(answer, list):
            raise _PredictionError(
                "predict_proba returned a list, so it has several outputs; prediction sets are for one y a row."
            )
        probabilities = _array(answer, "predict_proba", ndim=2)
        _check_sums(probabilities, "predict_proba")
        return _record(lambda: ClassProbabilities(probabilities))
    classes = _classes(model)
    if hasattr(model, "decision_function"):
        decisions = _array(model.decision_function(X), "decision_function")
        if not np.all(np.isfinite(decisions)):
            raise _PredictionError("decision_function returned NaN or infinite values.")
        if decisions.ndim == 1 and len(classes) == 2:
            positive = expit(decisions)
            return ClassProbabilities(np.column_stack([1 - positive, positive]))
        # one column a pair of classes is not one column a class, even where the numbers agree (three classes, three pairs)
        pairs = getattr(last_model(model), "decision_function_shape", None) == "ovo"
        if decisions.ndim == 2 and decisions.shape[1] == len(classes) and not pairs:
            return ClassProbabilities(softmax(decisions, axis=1))
    labels = np.asarray(model.predict(X))
    if labels.ndim != 1:
        raise _PredictionError(f"predict returned an array of shape {labels.shape}; prediction sets are for one y a row.")
    return ClassProbabilities((labels[:, None] == classes[None, :]).astype(np.float64))


def _labelled(
    model: Any, record: ClassProbabilities | ClassDraws, uniforms: ArrayLike | None, unseen: ArrayLike | None
) -> ClassProbabilities | ClassDraws:
    classes = record.classes if record.classes is not None else _classes(model)
    values = record.probabilities if isinstance(record, ClassProbabilities) else record.draws
    if values.shape[-1] != len(classes):
        raise ValueError(f"{name_of(model)} gave {values.shape[-1]} columns for the {len(classes)} classes in its classes_.")
    return type(record)(
        values,
        classes,
        record.uniforms if uniforms is None else uniforms,
        record.unseen if unseen is None else unseen,
    )


def _classes(model: Any) -> AnyArray:
    classes = getattr(model, "classes_", None)
    if classes is None:
        classes = getattr(last_model(model), "classes_", None)
    if classes is None or (isinstance(classes, list) and any(np.ndim(own) > 0 for own in classes)):  # of several outputs
        raise ValueError(f"{name_of(model)} has no classes_ that names its columns: its fit must set it, from one y a row.")
    return np.asarray(classes)


def _points(answer: Any) -> Points:
    return _record(lambda: Points(_column(answer, "predict")))


def _with_positive_spread(record: PointsWithSpread) -> PointsWithSpread:
    """Spreads of 0 (a Gaussian process at its own rows) become a tiny constant, so that residual / spread is never 0 / 0.

    The constant does not depend on the other rows, and is large enough that the quotient does not overflow.
    """
    tiny = np.sqrt(np.finfo(record.spread.dtype).tiny)
    return record if np.all(record.spread >= tiny) else PointsWithSpread(record.mean, np.maximum(record.spread, tiny))


def _record(make: Callable[[], Record]) -> Record:
    try:
        return make()
    except ValueError as bad:
        raise _PredictionError(str(bad)) from None


def _array(answer: Any, method: str, ndim: int | None = None) -> Floats:
    array = to_numpy(answer)
    if array.dtype.kind not in "fiub":
        raise _PredictionError(f"{method} returned values of dtype {array.dtype}, not real numbers.")
    if ndim is not None and array.ndim != ndim:
        raise _PredictionError(f"{method} returned an array of shape {array.shape} where {ndim} dimensions were expected.")
    return array


def _column(answer: Any, method: str) -> Floats:
    array = _array(answer, method)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise _PredictionError(f"{method} returned an array of shape {array.shape}; prediction sets are for one y a row.")
    return array


def _check_sums(values: Floats, method: str) -> None:
    sums = values.sum(axis=-1, dtype=np.float64)
    bad = ~(np.abs(sums - 1) <= _ONE)  # written so that NaN is bad
    if np.any(bad):
        row = int(np.argwhere(bad)[0][-1])
        raise _PredictionError(
            f"{method} must return probabilities that sum to one, but row {row} sums to {sums[bad][0]:.6g}."
        )


def _announced(model: Any) -> list[type]:
    """The records that `predict_distribution` promises in its return annotation."""
    annotation = inspect.signature(model.predict_distribution).return_annotation
    found = [_BY_NAME[name] for name in _BY_NAME if re.search(rf"\b{name}\b", _text(annotation))]
    if not found:
        raise TypeError(
            f"{type(model).__name__}.predict_distribution does not say what it returns: annotate it, for example "
            "`def predict_distribution(self, X) -> dco.PointsWithSpread`."
        )
    return found


def _text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "") + " " + str(annotation)


def _takes_return_std(model: Any) -> bool:
    try:
        return "return_std" in inspect.signature(model.predict).parameters
    except (AttributeError, TypeError, ValueError):
        return False


def _looks_like_classes(model: Any) -> bool:
    last = last_model(model)
    return hasattr(last, "predict_proba") or hasattr(last, "predict_draws") or hasattr(last, "classes_")


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
    """The model at the end, and X as that model sees it (None stays None: only the model is wanted)."""
    while inner := _inside(model):
        *before, model = inner
        if X is not None:
            for step in before:
                if step is not None and not isinstance(step, str):  # None and "passthrough" leave X alone
                    X = step.transform(X)
    return model, X
