"""Ask any fitted scikit-learn model for a prediction record.

What a model can give is read off what it offers: ``predict_distribution``, ``predict_draws``,
``predict_proba``, ``decision_function``, quantiles at many levels (`find_quantile_method`),
``predict(X, return_std=True)``, ``predict``. Pipelines, searches such as `GridSearchCV`, and
`FrozenEstimator` are looked through: the model at the end decides. X goes to the model as it came,
data frames included.

Every record is a fixed function of the row, which is all that a score needs to be valid; how small
the sets are is another matter.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, softmax

from dco.foundations.arrays import AnyArray, Floats, to_numpy
from dco.foundations.errors import IncompatibleScoreError
from dco.models.quantile_methods import find_quantile_method
from dco.models.wrapped import last_model, name_of, peel
from dco.predictions import (
    ClassDraws,
    ClassProbabilities,
    GaussianMixtures,
    Points,
    PointsWithSpread,
    Prediction,
    QuantileFunction,
    Quantiles,
    TargetDraws,
)
from dco.scores.densities.mixtures import mean_and_sd

CLASS_RECORDS: tuple[type, ...] = (ClassDraws, ClassProbabilities)

# Every record, the richest first, and what can be had from it without asking the model again.
DERIVED_RECORDS: dict[type, tuple[type, ...]] = {
    ClassDraws: (ClassDraws, ClassProbabilities),
    ClassProbabilities: (ClassProbabilities,),
    GaussianMixtures: (GaussianMixtures, PointsWithSpread, Points),
    TargetDraws: (TargetDraws, QuantileFunction, Points),
    QuantileFunction: (QuantileFunction, Points),
    Quantiles: (Quantiles, Points),
    PointsWithSpread: (PointsWithSpread, Points),
    Points: (Points,),
}
# Half-precision softmax outputs are this far from summing to one; true mistakes are farther.
LARGEST_DEVIATION_FROM_ONE = 1e-3

# How a model that gives points comes to give more.
SOURCES_OF_RECORDS: dict[type, str] = {
    PointsWithSpread: (
        "A spread comes from predict(X, return_std=True), from a predict_distribution annotated "
        "-> dco.PointsWithSpread, or from ⟨models=dco.models.ResidualSpread(model)⟩."
    ),
    Quantiles: "Quantiles come from ⟨models=dco.models.QuantilePair(model)⟩.",
    QuantileFunction: (
        "Quantiles at many levels come from predict_quantiles(X, levels), from "
        "predict(X, quantiles=levels), or from a predict_distribution annotated "
        "-> dco.QuantileFunction."
    ),
}


# ------------------------------------------------------------------------ what a model can give


def records_of(model: Any) -> tuple[type, ...]:
    """Return the types of prediction record that a model can give, the richest first.

    A regressor whose `predict` takes return_std, for example, gives (PointsWithSpread, Points). The
    model need not be fitted: its methods and tags tell.
    """
    last = last_model(model)
    if hasattr(last, "predict_kind"):  # an `AveragedModel`, which gives what its members give
        records: tuple[type, ...] = last.records()
        return records

    # 1. What the methods of the model give.
    direct_records = announced_records(last)
    if _predicts_classes(model):
        if hasattr(last, "predict_draws"):
            direct_records.append(ClassDraws)
        direct_records.append(ClassProbabilities)
    elif _predicts_numbers(model):
        if find_quantile_method(last) is not None:
            direct_records.append(QuantileFunction)
        if _returns_std(last):
            direct_records.append(PointsWithSpread)
        direct_records.append(Points)
    if not direct_records:
        raise TypeError(
            f"{name_of(model)} is neither a classifier nor a regressor: no predict, "
            f"no predict_distribution."
        )

    # 2. What can be computed from these: the mean of draws, for example.
    all_records: set[type] = set()
    for record in direct_records:
        all_records.update(DERIVED_RECORDS[record])
    return tuple(record for record in DERIVED_RECORDS if record in all_records)


def announced_records(model: Any) -> list[type]:
    """Return the record types that a model's `predict_distribution` is annotated to return.

    ``def predict_distribution(self, X) -> dco.Quantiles`` gives [Quantiles]. The list is empty for
    a model without the method.
    """
    if not hasattr(model, "predict_distribution"):
        return []

    # The annotation is a class, a union of classes, or a text that names them: look for names.
    annotation = inspect.signature(model.predict_distribution).return_annotation
    if isinstance(annotation, str):
        text = annotation
    else:
        text = f"{getattr(annotation, '__name__', '')} {annotation}"
    records = [record for record in DERIVED_RECORDS if re.search(rf"\b{record.__name__}\b", text)]

    if not records:
        raise TypeError(
            f"{type(model).__name__}.predict_distribution does not say what it returns: annotate "
            f"it, for example `def predict_distribution(self, X) -> dco.PointsWithSpread`."
        )
    return records


def _predicts_classes(model: Any) -> bool:
    """Return whether a model is a classifier by its tags, or else by what it offers."""
    estimator_type = _estimator_type(model)
    if estimator_type == "classifier":
        return True
    if estimator_type == "regressor":
        return False
    return _knows_classes(model) and hasattr(model, "predict")


def _predicts_numbers(model: Any) -> bool:
    """Return whether a model is a regressor by its tags, or else by what it offers."""
    estimator_type = _estimator_type(model)
    if estimator_type == "regressor":
        return True
    if _knows_classes(model) or estimator_type in ("outlier_detector", "clusterer"):
        return False
    return hasattr(last_model(model), "predict")


def _estimator_type(model: Any) -> str | None:
    """Return what scikit-learn's tags say that a model is."""
    from sklearn.utils import get_tags

    try:
        estimator_type: str | None = get_tags(model).estimator_type
    except AttributeError:  # no tags: not derived from scikit-learn
        return "classifier" if _knows_classes(model) else None
    return estimator_type


def _knows_classes(model: Any) -> bool:
    """Return whether a model has a method or an attribute that only classifiers have."""
    last = last_model(model)
    signs = ("predict_proba", "predict_draws", "classes_")
    return any(hasattr(last, sign) for sign in signs)


def _returns_std(model: Any) -> bool:
    """Whether `predict` takes return_std."""
    try:
        return "return_std" in inspect.signature(model.predict).parameters
    except (AttributeError, TypeError, ValueError):  # a predict that cannot be inspected
        return False


def sources_of(needs: Iterable[type], offered: Collection[type]) -> str:
    """Say how a model that gives points comes to give the records that a score needs."""
    if Points not in offered:
        return ""
    wanted = set(needs)
    sentences = [text for record, text in SOURCES_OF_RECORDS.items() if record in wanted]
    return "".join(f" {sentence}" for sentence in sentences)


# --------------------------------------------------------------------------------- asking a model


def predict_record(
    model: Any,
    X: Any,
    kind: type | None = None,
    *,
    uniforms: ArrayLike | None = None,
    classes: ArrayLike | None = None,
) -> Prediction:
    """Let a fitted model predict the rows of X, and return the predictions as a record.

    Probabilities that are NaN or do not sum to one, NaN predictions and negative spreads are errors
    that name the model.

    Parameters
    ----------
    kind
        The type of the record, such as `Quantiles`; None is the richest that the model can give.
    uniforms
        (n,) random numbers in [0, 1) for randomised scores; only for records of classes.
    classes
        All labels there are; only for records of classes. Labels that the model does not know
        become the `unseen` ones of the record.
    """
    possible_types = records_of(model)
    record_type = possible_types[0] if kind is None else kind
    if record_type not in possible_types:
        names = " or ".join(possible.__name__ for possible in possible_types)
        raise IncompatibleScoreError(
            f"{name_of(model)} gives {names}, but {record_type.__name__} was asked for."
        )

    # Errors that the model raises pass as they are; errors in its answer get its name.
    answer = _ask(model, X, record_type)
    try:
        record = answer.read(answer.value)
        if isinstance(record, ClassProbabilities | ClassDraws):
            record = _name_columns(record, model, uniforms=uniforms, classes=classes)
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if len(record) != n_rows:
            raise ValueError(f"there are {len(record)} predictions for {n_rows} rows.")
    except ValueError as error:
        raise ValueError(f"{name_of(model)}: {error}") from None
    return convert(record, record_type)


def convert(prediction: Prediction, kind: type) -> Prediction:
    """Turn a prediction record into one of a simpler type, `kind`.

    Draws of class probabilities become their mean, mixtures a mean and a standard deviation, draws
    of y quantiles, and every record of numbers can become points. A record of that type already is
    returned as it is.
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
        case TargetDraws() if kind is QuantileFunction:
            return prediction.quantile_function()
        case TargetDraws() | QuantileFunction() if kind is Points:
            return Points(prediction.centres)
    raise IncompatibleScoreError(
        f"{type(prediction).__name__} cannot be turned into {kind.__name__}."
    )


@dataclass(frozen=True, eq=False)
class Answer:
    """What a method of a model returned, and the function that turns it into a record.

    `read` raises a ValueError where the value is not what such a method must return.
    """

    value: Any
    read: Callable[[Any], Prediction]


def _ask(model: Any, X: Any, record_type: type) -> Answer:
    """Let a fitted model predict the rows of X, by the method that gives this type of prediction.

    `record_type` is a type of prediction record, such as `PointsWithSpread`; a type from which it
    can be computed will do. Returns what the method gave, with the function that reads it.

    A pipeline does not have all methods of its last step, such as `predict_distribution`. ``peel``
    then gives this step, and X as it comes out of the steps before it.
    """
    last = last_model(model)

    # 1. Models that predict records. For points, `predict` is preferred.
    if hasattr(last, "predict_kind"):  # a model of ours, such as `AveragedModel`
        last, features = peel(model, X)
        return Answer(last.predict_kind(features, record_type), _read_record)

    own_records = announced_records(last)  # of its `predict_distribution`
    is_announced = any(record_type in DERIVED_RECORDS[record] for record in own_records)
    predicts_points = record_type is Points and hasattr(last, "predict")
    if is_announced and not predicts_points:
        last, features = peel(model, X)
        return Answer(last.predict_distribution(features), _read_record)

    # 2. Quantiles at many levels, and points where `predict` gives such quantiles.
    method = find_quantile_method(last)
    if method is not None:
        is_median = record_type is Points and method.replaces_points
        if is_median or record_type is QuantileFunction:
            last, features = peel(model, X)
            return Answer(method.ask(last, features), method.read)

    # 3. Other regressors.
    if record_type is PointsWithSpread:
        last, features = peel(model, X)
        return Answer(last.predict(features, return_std=True), _read_mean_and_std)
    if record_type not in CLASS_RECORDS:
        return Answer(model.predict(X), _read_points)

    # 4. Classifiers. Probabilities are also the mean of draws of them.
    has_only_draws = hasattr(last, "predict_draws") and not hasattr(last, "predict_proba")
    if record_type is ClassDraws or has_only_draws:
        last, features = peel(model, X)
        return Answer(last.predict_draws(features), _read_draws)
    return _ask_for_probabilities(model, X)


def _ask_for_probabilities(model: Any, X: Any) -> Answer:
    """Ask a classifier for class probabilities, by the best method that it has.

    That is `predict_proba`; otherwise `decision_function`, whose values are turned into
    probabilities; otherwise `predict`, whose label gets probability 1.
    """
    if hasattr(model, "predict_proba"):
        return Answer(model.predict_proba(X), _read_probabilities)

    if hasattr(model, "decision_function"):
        decisions = to_numpy(model.decision_function(X))
        if _is_one_column_per_class(decisions, model):
            return Answer(decisions, _read_decisions)

    return Answer(model.predict(X), partial(_read_labels, model=model))


def _is_one_column_per_class(decisions: AnyArray, model: Any) -> bool:
    """Return whether decision values have one column per class, or are one number for two classes.

    A classifier may also give one column per pair of classes. Three classes have three pairs, so
    the number of columns alone does not tell.
    """
    last = last_model(model)
    classes = getattr(model, "classes_", getattr(last, "classes_", ()))
    if decisions.ndim == 1:
        return len(classes) == 2
    is_by_pairs = getattr(last, "decision_function_shape", None) == "ovo"
    return decisions.shape[1:] == (len(classes),) and not is_by_pairs


# ------------------------------------------------------------------------------ reading an answer


def _read_record(answer: Any) -> Prediction:
    """Check that the answer is a prediction record, and copy it to the host's memory."""
    if not isinstance(answer, Prediction):
        raise ValueError(
            f"predict_distribution returned {type(answer).__name__}, not a prediction record."
        )
    if isinstance(answer, PointsWithSpread):
        return _with_positive_spread(answer)
    return answer.on_host()


def _read_draws(answer: Any) -> Prediction:
    """Read draws of class probabilities, which must sum to one."""
    if isinstance(answer, ClassDraws):
        record = answer.on_host()
    else:
        record = ClassDraws(to_numpy(answer))
    _check_sums(record.draws, "predict_draws")
    return record


def _read_probabilities(answer: Any) -> Prediction:
    """Read class probabilities, which must sum to one."""
    if isinstance(answer, list):
        raise ValueError(
            "predict_proba returned a list, so it has several outputs; sets are for one y per row."
        )
    record = ClassProbabilities(to_numpy(answer))
    _check_sums(record.probabilities, "predict_proba")
    return record


def _read_labels(labels: Any, *, model: Any) -> Prediction:
    """Give the predicted label of each row probability 1, and the other classes 0."""
    predicted = _one_column(labels)
    is_predicted = predicted[:, None] == _classes_of(model)[None, :]
    return ClassProbabilities(is_predicted.astype(np.float64))


def _read_decisions(decisions: AnyArray) -> Prediction:
    """Turn decision values into probabilities: one column by the sigmoid, several by softmax."""
    if not np.all(np.isfinite(decisions)):
        raise ValueError("decision_function returned NaN or infinite values.")
    if decisions.ndim == 1:
        positive = expit(decisions)
        return ClassProbabilities(np.column_stack([1 - positive, positive]))
    return ClassProbabilities(softmax(decisions, axis=1))


def _read_mean_and_std(answer: Any) -> Prediction:
    """Read a pair (mean, standard deviation)."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise ValueError(
            "predict(X, return_std=True) did not return a mean and a standard deviation."
        )
    mean, spread = answer
    return _with_positive_spread(PointsWithSpread(_one_column(mean), _one_column(spread)))


def _read_points(answer: Any) -> Prediction:
    return Points(_one_column(answer))


def _one_column(values: Any) -> AnyArray:
    """Return predictions as one number or label per row."""
    array = values if isinstance(values, np.ndarray) else to_numpy(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(
            f"predict returned an array of shape {array.shape}; prediction sets are for one y per "
            f"row."
        )
    return array


def _with_positive_spread(record: PointsWithSpread) -> PointsWithSpread:
    """Raise spreads of 0 to a tiny constant, so that residual / spread is never 0 / 0.

    A Gaussian process has such spreads at its own rows. The constant does not depend on the other
    rows, and is large enough that the quotient does not overflow.
    """
    smallest = np.sqrt(np.finfo(record.spread.dtype).tiny)
    if np.all(record.spread >= smallest):
        return record
    return PointsWithSpread(record.mean, np.maximum(record.spread, smallest))


def _check_sums(probabilities: Floats, method: str) -> None:
    """Refuse class probabilities that do not sum to one; `method` is the one that gave them."""
    sums = probabilities.sum(axis=-1, dtype=np.float64)
    is_one = np.abs(sums - 1) <= LARGEST_DEVIATION_FROM_ONE  # False for NaN
    if np.all(is_one):
        return
    row = int(np.argwhere(~is_one)[0][-1])
    raise ValueError(
        f"{method} must return probabilities that sum to one, but row {row} sums to "
        f"{sums[~is_one][0]:.6g}."
    )


def _name_columns(
    record: ClassProbabilities | ClassDraws,
    model: Any,
    *,
    uniforms: ArrayLike | None,
    classes: ArrayLike | None,
) -> ClassProbabilities | ClassDraws:
    """Add to predicted class probabilities what the model did not put into their record.

    Parameters
    ----------
    record
        The probabilities, with a column for each class that the model knows.
    uniforms
        A random number in [0, 1) for each row, for randomised scores; None to keep the record's.
    classes
        All labels there are, if given. Those that the model does not know have no column; the
        record lists them as `unseen`.

    Columns get the names of the model's classes, unless the record names them.
    """
    column_names = record.classes if record.classes is not None else _classes_of(model)
    if record.n_known != len(column_names):
        raise ValueError(
            f"there are {record.n_known} columns for the {len(column_names)} classes in its "
            f"classes_."
        )

    unseen = record.unseen
    if classes is not None:
        classes_of_model = getattr(model, "classes_", classes)
        unseen = np.setdiff1d(classes, classes_of_model)
    if uniforms is None:
        uniforms = record.uniforms
    return record.labelled(column_names, uniforms, unseen)


def _classes_of(model: Any) -> AnyArray:
    """Return the labels that name a classifier's columns."""
    classes = getattr(model, "classes_", None)
    if classes is None:
        classes = getattr(last_model(model), "classes_", None)
    has_several_outputs = isinstance(classes, list) and any(np.ndim(part) > 0 for part in classes)
    if classes is None or has_several_outputs:
        raise ValueError(
            "it has no classes_ that names its columns: its fit must set it, from one y per row."
        )
    return np.asarray(classes)
