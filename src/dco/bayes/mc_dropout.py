"""Monte-Carlo-dropout classification heads on fixed features: the classification structures that
the paper tunes.

A head is Linear-ReLU-Dropout for each hidden layer and a last Linear. Its `passes` dropout masks
are drawn once and frozen: the passes are then T fixed networks, the score is one fixed function of
a row, and calibration rows and test rows stay exchangeable. Weights and masks are NumPy arrays; JAX
(extra `bayes`) trains and predicts, on whatever device it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dco import ClassDraws
from dco.bayes.dropout_training import (
    Training,
    TrainingRows,
    draw_batches,
    draw_start,
    train_networks,
)
from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.foundations.extras import require
from dco.foundations.ranks import as_count, as_positive

# Rows are predicted in batches of one fixed shape: a row's numbers do not depend on how many rows
# it comes with.
ROWS_AT_ONCE = 256
ROUNDING = 1e-6  # a spread this far below the mean is a rounding error of it

Output: TypeAlias = Literal["log_mean", "log_add_one_in", "draws"]


class MCDropoutClassifier(ClassifierMixin, BaseEstimator):
    """A dropout network on fixed features; its posterior draws are fixed dropout masks.

    Trained by Adam with coupled L2 (the penalty enters the gradient, as torch's `weight_decay`
    does) on shuffled batches, the last short one kept.

    Parameters
    ----------
    hidden
        The width of each hidden layer.
    dropout
        The probability that a unit is left out, in training and in each pass.
    passes
        How many masks there are, shared by all rows. 0 switches dropout off when predicting: one
        pass of the whole network. Dropout is on in training all the same.
    epochs, batch_size, learning_rate, weight_decay
        Settings of the training.
    standardise
        Centre and scale each feature by the training rows; a constant feature stays 0.
    random_state
        The seed of first weights, batches, masks and dropout.

    Attributes
    ----------
    classes_
        The labels of the training rows.
    weights_, biases_
        One array per layer.
    masks_
        (T, width) booleans, one array per hidden layer.
    feature_mean_, feature_scale_
        By which features are standardised.
    """

    def __init__(
        self,
        hidden: Sequence[int] = (512, 256),
        dropout: float = 0.1,
        passes: int = 20,
        epochs: int = 15,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-4,
        standardise: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.hidden = hidden
        self.dropout = dropout
        self.passes = passes
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.standardise = standardise
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on these rows; `classes_` lists the labels that are among them."""
        features, codes = self._check_rows(X, y)
        rows = standardise(features, codes, is_wanted=self.standardise)
        _train_heads([self], [self._prepare(rows)])
        return self

    @classmethod
    def fit_many(
        cls,
        datasets: Iterable[tuple[ArrayLike, ArrayLike]],
        heads: Sequence[MCDropoutClassifier],
        *,
        memory: float | None = None,
    ) -> list[list[MCDropoutClassifier]]:
        """Train a clone of every head on every (X, y); `result[i][j]` is data set i with head j.

        Heads of one shape on data of one shape train side by side in one compiled program, in
        groups that need at most `memory` bytes beside the rows (by default 256 MiB on a CPU, where
        more gains nothing, and a quarter of a GPU's). Each is the head that `fit` would give, up to
        rounding, which on a GPU is that of JAX's default matrix precision.
        """
        fits: list[list[MCDropoutClassifier]] = []
        trainings: list[Training] = []
        for X, y in datasets:
            clones = [clone(head) for head in heads]
            # The rows are checked and standardised once, and shared by the heads.
            features, codes = clones[0]._check_rows(X, y)
            as_given = standardise(features, codes, is_wanted=False)
            standardised = standardise(features, codes, is_wanted=True)
            for head in clones:
                head._take_over_rows_of(clones[0])
                trainings.append(head._prepare(standardised if head.standardise else as_given))
            fits.append(clones)

        _train_heads([head for clones in fits for head in clones], trainings, memory=memory)
        return fits

    def predict(self, X: ArrayLike) -> AnyArray:
        """Return the label with the largest mean probability over passes."""
        log_mean = self.predict_log_mean(X)  # first: it checks that the head is fitted
        return np.asarray(self.classes_[np.argmax(log_mean, axis=1)])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the mean probability over passes, (n, K)."""
        return np.exp(self.predict_log_mean(X))

    def predict_log_mean(self, X: ArrayLike) -> Floats:
        """Return log p̄ = log (1/T) Σ_t p_t, (n, K), summed pass by pass.

        Its negative is the posterior NLL score.
        """
        return self._predict_in_batches(X, "log_mean")

    def predict_log_add_one_in(self, X: ArrayLike) -> Floats:
        """Return log p̃ = log (Σ_t p_t² / Σ_t p_t), (n, K), summed pass by pass.

        Its negative is the add-one-in score.
        """
        return self._predict_in_batches(X, "log_add_one_in")

    def predict_draws(self, X: ArrayLike) -> ClassDraws:
        """Return the probabilities of every pass, (T, n, K) in single precision."""
        return ClassDraws(self._predict_in_batches(X, "draws"), classes=self.classes_)

    predict_distribution = predict_draws  # what scores ask for

    def _predict_in_batches(self, X: ArrayLike, output: Output) -> Floats:
        """Run the network on batches of rows of one shape."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float32, reset=False)
        jax = require("jax", extra="bayes")
        layers = jax.device_put((self.weights_, self.biases_, self._scaled_masks()))
        program = _prediction_program(output)

        n = len(rows)
        n_labels = len(self.classes_)
        n_passes = len(self.masks_[0])
        result: Floats = np.empty((n, n_labels), np.float64)
        if output == "draws":
            result = np.empty((n_passes, n, n_labels), np.float32)

        batch = np.zeros((ROWS_AT_ONCE, rows.shape[1]), dtype=np.float32)
        # A GPU rounds to 10 bits by default: scores would depend on the machine.
        with jax.default_matmul_precision("highest"):
            for start in range(0, n, ROWS_AT_ONCE):
                rows_here = rows[start : start + ROWS_AT_ONCE]
                size = len(rows_here)
                batch[:size] = (rows_here - self.feature_mean_) / self.feature_scale_
                predictions = np.asarray(program(*layers, batch))
                result[..., start : start + size, :] = predictions[..., :size, :]
        return result

    def _scaled_masks(self) -> list[Floats]:
        """Return the masks over the share of units that they keep."""
        share_kept = 1.0 if self.passes == 0 else 1.0 - float(self.dropout)
        return [(mask / share_kept).astype(np.float32) for mask in self.masks_]

    def _check_rows(self, X: ArrayLike, y: ArrayLike) -> tuple[Floats, Integers]:
        """Return features and label codes; learn `classes_` and the columns."""
        rows, labels = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        return rows, codes.astype(np.int32)

    def _take_over_rows_of(self, other: MCDropoutClassifier) -> None:
        """Learn from another head what it has learnt when it checked the same rows."""
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(other, name):
                setattr(self, name, getattr(other, name))

    def _prepare(self, standardised: StandardisedRows) -> Training:
        """Draw all that training needs, in an order that no batching changes."""
        self._check_parameters()
        self.feature_mean_ = standardised.mean
        self.feature_scale_ = standardised.scale
        n, n_features = standardised.rows.features.shape
        widths = (n_features, *(int(width) for width in self.hidden), len(self.classes_))

        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        start, order, masks, noise = np.random.SeedSequence(seed).spawn(4)
        self.masks_ = self._draw_masks(np.random.default_rng(masks), widths[1:-1])
        return Training(
            rows=standardised.rows,
            start=draw_start(np.random.default_rng(start), widths),
            batches=draw_batches(
                np.random.default_rng(order),
                n,
                batch_size=min(int(self.batch_size), n),
                epochs=int(self.epochs),
            ),
            noise_seed=int(noise.generate_state(1)[0]),
            dropout=float(self.dropout),
            learning_rate=float(self.learning_rate),
            weight_decay=float(self.weight_decay),
        )

    def _draw_masks(self, rng: np.random.Generator, widths: Sequence[int]) -> list[Bools]:
        """Draw the frozen masks of each hidden layer; without passes one that keeps all units."""
        if self.passes == 0:
            return [np.ones((1, width), dtype=bool) for width in widths]
        share_kept = 1.0 - float(self.dropout)
        return [rng.random((self.passes, width)) < share_kept for width in widths]

    def _check_parameters(self) -> None:
        """Refuse parameters that no network can be trained with."""
        if not isinstance(self.hidden, Sequence) or not self.hidden:
            raise ValueError(
                f"hidden must list the width of each hidden layer, e.g. (512, 256), "
                f"got {self.hidden!r}."
            )
        for width in self.hidden:
            as_count(width, name="every width in hidden", least=1)
        as_count(self.passes, name="passes", least=0)
        as_count(self.epochs, name="epochs", least=1)
        as_count(self.batch_size, name="batch_size", least=1)
        as_positive(self.learning_rate, name="learning_rate")
        _check_in_range(self.dropout, name="dropout", end=1)
        _check_in_range(self.weight_decay, name="weight_decay", end=np.inf)


def _check_in_range(value: Any, *, name: str, end: float) -> None:
    """Refuse what is no number from 0 up to, but not including, `end`."""
    if not isinstance(value, Real) or not 0 <= float(value) < end:
        raise ValueError(f"{name} must lie in [0, {end:g}), got {value!r}.")


@dataclass(frozen=True, eq=False)
class StandardisedRows:
    """Rows as a network takes them, and the mean and scale that were used."""

    rows: TrainingRows
    mean: Floats
    scale: Floats


def standardise(features: Floats, codes: Integers, *, is_wanted: bool) -> StandardisedRows:
    """Centre and scale the columns of the features, or leave them as they are."""
    n_features = features.shape[1]
    if not is_wanted:
        return StandardisedRows(
            rows=TrainingRows(features, codes),
            mean=np.zeros(n_features, np.float32),
            scale=np.ones(n_features, np.float32),
        )

    mean = features.mean(axis=0, dtype=np.float64)
    spread = features.std(axis=0, dtype=np.float64)
    varies = spread > ROUNDING * abs(mean)
    scale = np.where(varies, spread, np.inf).astype(np.float32)  # a constant feature becomes 0
    mean = mean.astype(np.float32)
    return StandardisedRows(TrainingRows((features - mean) / scale, codes), mean, scale)


def _train_heads(
    heads: Sequence[MCDropoutClassifier],
    trainings: Sequence[Training],
    *,
    memory: float | None = None,
) -> None:
    """Train every head and hand it its weights."""
    networks = train_networks(trainings, memory=memory)
    for head, layers in zip(heads, networks, strict=True):
        if not layers.are_finite():
            raise ValueError(
                f"Training diverged: take standardise=True, or a learning_rate below "
                f"{head.learning_rate}."
            )
        head.weights_ = layers.weights
        head.biases_ = layers.biases


@lru_cache(maxsize=4)
def _prediction_program(output: Output) -> Callable[..., Any]:
    """Build the program that predicts a batch of rows; JAX compiles it.

    It returns log p̄ (`predict_log_mean`), log p̃ (`predict_log_add_one_in`) or the probabilities of
    all passes. The first layer is computed once: it is the same for all passes, and most of the
    arithmetic.
    """
    jax = require("jax", extra="bayes")
    jnp = require("jax.numpy", extra="bayes")

    def log_p_of_passes(weights: Any, biases: Any, x: Any) -> Callable[[Any], Any]:
        first = jax.nn.relu(x @ weights[0] + biases[0])

        def log_p(masks: Any) -> Any:
            hidden = first * masks[0]
            for weight, bias, mask in zip(weights[1:-1], biases[1:-1], masks[1:], strict=True):
                hidden = jax.nn.relu(hidden @ weight + bias) * mask
            return jax.nn.log_softmax(hidden @ weights[-1] + biases[-1])

        return log_p

    def draws(weights: Any, biases: Any, masks: Any, x: Any) -> Any:
        log_p = log_p_of_passes(weights, biases, x)
        return jax.lax.map(lambda pass_masks: jnp.exp(log_p(pass_masks)), masks)

    def log_mean(weights: Any, biases: Any, masks: Any, x: Any) -> Any:
        (log_sum,) = log_sums_of_powers(1, weights, biases, masks, x)
        return log_sum - jnp.log(len(masks[0]))

    def log_add_one_in(weights: Any, biases: Any, masks: Any, x: Any) -> Any:
        log_sum, log_sum_of_squares = log_sums_of_powers(2, weights, biases, masks, x)
        return log_sum_of_squares - log_sum

    def log_sums_of_powers(highest: int, weights: Any, biases: Any, masks: Any, x: Any) -> Any:
        """Sum p_t, p_t², ... over passes, in logarithms.

        The square of an unlikely label's probability underflows in single precision, its logarithm
        does not.
        """
        log_p = log_p_of_passes(weights, biases, x)

        def add(log_sums: Any, pass_masks: Any) -> Any:
            log_p_now = log_p(pass_masks)
            new_log_sums = [
                jnp.logaddexp(log_sum, power * log_p_now)
                for power, log_sum in enumerate(log_sums, start=1)
            ]
            return new_log_sums, None

        log_of_zero = jnp.full((x.shape[0], weights[-1].shape[1]), -jnp.inf)
        log_sums, _ = jax.lax.scan(add, [log_of_zero] * highest, masks)
        return log_sums

    programs = {"draws": draws, "log_mean": log_mean, "log_add_one_in": log_add_one_in}
    return jax.jit(programs[output])  # type: ignore[no-any-return]
