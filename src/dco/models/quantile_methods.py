"""Find the method by which a regressor predicts quantiles at many levels."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.foundations.arrays import to_numpy
from dco.predictions import QuantileFunction

# A model that predicts quantiles at any level is asked for every percent.
LEVELS_TO_ASK = tuple(percent / 100 for percent in range(1, 100))


class QuantileMethod(ABC):
    """A way of asking a fitted model for quantiles at many levels."""

    replaces_points = False  # whether `predict` gives quantiles, so that points are their median

    @abstractmethod
    def ask(self, model: Any, X: Any) -> Any:
        """Let the model predict the rows of X, and return its answer as it comes."""

    def read(self, answer: Any) -> QuantileFunction:
        """Read an answer with a column for every percent."""
        return QuantileFunction(LEVELS_TO_ASK, to_numpy(answer))


class PredictQuantiles(QuantileMethod):
    """``predict_quantiles(X, levels)``, a model's own method."""

    def ask(self, model: Any, X: Any) -> Any:
        """Ask for every percent."""
        return model.predict_quantiles(X, list(LEVELS_TO_ASK))


class PredictWithQuantiles(QuantileMethod):
    """``predict(X, quantiles=levels)``, as quantile forests have it."""

    def ask(self, model: Any, X: Any) -> Any:
        """Ask for every percent."""
        return model.predict(X, quantiles=list(LEVELS_TO_ASK))


@dataclass(frozen=True)
class MultiQuantileLoss(QuantileMethod):
    """``predict(X)`` of CatBoost with the loss "MultiQuantile:alpha=0.05,0.5,0.95"."""

    levels: tuple[float, ...]
    replaces_points = True

    def ask(self, model: Any, X: Any) -> Any:
        """Ask for the levels of the loss."""
        return model.predict(X)

    def read(self, answer: Any) -> QuantileFunction:
        """Read an answer with a column for each level of the loss, which may be in any order."""
        values = to_numpy(answer)
        order = np.argsort(self.levels)
        if values.shape[1:] != order.shape:
            raise ValueError(
                f"its loss has {len(order)} quantiles, but predict returned an array of shape "
                f"{values.shape}."
            )
        return QuantileFunction(np.asarray(self.levels)[order], values[:, order])


def find_quantile_method(model: Any) -> QuantileMethod | None:
    """Return how a regressor gives quantiles at many levels, or None if it does not.

    The first that applies: it has a method ``predict_quantiles``; its ``predict`` takes
    ``quantiles``; its parameter ``loss_function`` is CatBoost's MultiQuantile with two levels or
    more. The model need not be fitted. A `predict` that takes ``output_type`` as well, as TabPFN's
    does, gives means unless it is told otherwise: such models are wrapped by their users.
    """
    if hasattr(model, "predict_quantiles"):
        return PredictQuantiles()

    parameters = _parameters_of_predict(model)
    if "quantiles" in parameters and "output_type" not in parameters:
        return PredictWithQuantiles()

    levels = _levels_of_loss(model)
    return MultiQuantileLoss(levels) if len(levels) > 1 else None


def _parameters_of_predict(model: Any) -> set[str]:
    """Return the names of the parameters of `predict`, none if it cannot be inspected."""
    try:
        return set(inspect.signature(model.predict).parameters)
    except (AttributeError, TypeError, ValueError):
        return set()


def _levels_of_loss(model: Any) -> tuple[float, ...]:
    """Read the levels of CatBoost's loss: "MultiQuantile:alpha=0.1,0.9" -> (0.1, 0.9)."""
    params = model.get_params() if hasattr(model, "get_params") else {}
    name, _, settings = str(params.get("loss_function")).partition(":")
    if name != "MultiQuantile":
        return ()
    for setting in settings.split(";"):
        key, _, value = setting.partition("=")
        if key.strip() == "alpha":
            return tuple(float(level) for level in value.split(","))
    return ()
