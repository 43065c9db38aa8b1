"""A few small neural networks, averaged, trained for a fixed number of steps."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.utils.validation import check_is_fitted, validate_data

from dco.foundations.arrays import Floats

_LEARNING_RATES = (3e-3, 1e-3, 2e-4)  # of three stages of equal length
_ACTIVATIONS = ("relu", "tanh")  # taken in turn
_ROWS_PER_STEP = 200


class SmallNetworks(RegressorMixin, BaseEstimator):
    """The average of small neural networks, for columns of unit variance.

    Each has two hidden layers and takes a fixed number of steps at a falling learning rate, so that
    the time does not grow with the table.

    Parameters
    ----------
    n_networks : int, default=2
        How many networks are averaged. Their activations alternate between relu and tanh.
    steps : int, default=1500
        The steps of each network, of 200 rows a step.
    width : int, default=128
        The number of units in each of the two hidden layers.
    penalty : float, default=0.01
        The L2 penalty of the weights.
    random_state : int or None
        Seed of the first network; the others follow it.

    Attributes
    ----------
    networks_ : list of MLPRegressor
        The fitted networks of the standardised target.
    """

    def __init__(
        self,
        n_networks: int = 2,
        *,
        steps: int = 1500,
        width: int = 128,
        penalty: float = 0.01,
        random_state: int | None = None,
    ) -> None:
        self.n_networks = n_networks
        self.steps = steps
        self.width = width
        self.penalty = penalty
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> SmallNetworks:
        """Train every network on all rows, each with its own seed; activations alternate."""
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        self.mean_ = float(np.mean(y))
        self.scale_ = float(np.std(y)) or 1.0
        target = (y - self.mean_) / self.scale_

        seeds = np.random.SeedSequence(self.random_state).generate_state(self.n_networks)
        self.networks_ = [
            self._train(X, target, _ACTIVATIONS[number % len(_ACTIVATIONS)], int(seed))
            for number, seed in enumerate(seeds)
        ]
        return self

    def predict(self, X: Any) -> Floats:
        """Return the average prediction of the networks."""
        check_is_fitted(self, "networks_")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        predictions = [network.predict(X) for network in self.networks_]
        return np.asarray(np.mean(predictions, axis=0) * self.scale_ + self.mean_)

    def _train(self, X: Floats, target: Floats, activation: str, seed: int) -> MLPRegressor:
        """Train one network in stages, each at a lower learning rate than the one before.

        Every stage takes the same number of steps, of `_ROWS_PER_STEP` rows each. scikit-learn
        counts epochs (passes over all rows) instead, so the steps are converted.
        """
        rows_per_step = min(_ROWS_PER_STEP, len(target))
        steps_per_epoch = math.ceil(len(target) / rows_per_step)
        steps_per_stage = self.steps / len(_LEARNING_RATES)
        network = MLPRegressor(
            hidden_layer_sizes=(self.width, self.width),
            activation=activation,
            alpha=self.penalty,
            batch_size=rows_per_step,
            max_iter=max(1, round(steps_per_stage / steps_per_epoch)),
            n_iter_no_change=self.steps,  # never stops early
            warm_start=True,
            random_state=seed,
        )
        for learning_rate in _LEARNING_RATES:
            network.set_params(learning_rate_init=learning_rate)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # the steps are bounded
                network.fit(X, target)
        del network._optimizer  # twice the size of the weights, and of no use from here on
        return network
