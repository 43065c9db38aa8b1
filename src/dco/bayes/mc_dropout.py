"""MC-dropout classification heads: small networks on fixed features, which the paper tunes.

A head is Linear-ReLU-Dropout for each hidden layer and a last Linear. Its T dropout masks are drawn
once and frozen: each mask gives one fixed network (a "pass"), the score is one fixed function of a
row, and calibration rows and test rows stay exchangeable. Weights and masks are NumPy arrays; JAX
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
    JaxArray,
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

Output: TypeAlias = Literal["log_mean", "log_add_one_in", "draws"]  # what a prediction returns


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
        How many masks T there are, shared by all rows. 0 switches dropout off when predicting: one
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
        rows = standardise(features, codes) if self.standardise else leave_as_is(features, codes)
        _train_all([self], [self._prepare_training(rows)])
        return self

    @classmethod
    def fit_many(
        cls,
        datasets: Iterable[tuple[ArrayLike, ArrayLike]],
        heads: Sequence[MCDropoutClassifier],
        *,
        memory: float | None = None,
    ) -> list[list[MCDropoutClassifier]]:
        """Fit a clone of every classifier in `heads` to every data set, many networks at once.

        It is much faster than one `fit` after the other: networks with the same layer widths and
        the same number and size of batches train side by side in one compiled program.

        Parameters
        ----------
        datasets
            Pairs (X, y).
        heads
            Classifiers with the settings to try; they are cloned, and not fitted themselves.
        memory
            The bytes that networks which train at once may need, beside the rows. By default 256
            MiB on a CPU, where more gains nothing, and a quarter of a GPU's memory.

        Returns
        -------
        Fitted classifiers: `result[i][j]` is `heads[j]` fitted to `datasets[i]`. It is what `fit`
        gives, up to rounding errors. Those are larger on a GPU, where JAX multiplies matrices in
        reduced precision unless told otherwise.
        """
        fits: list[list[MCDropoutClassifier]] = []
        trainings: list[Training] = []
        for X, y in datasets:
            clones = [clone(head) for head in heads]
            # The rows are checked and standardised once, and shared by the clones.
            features, codes = clones[0]._check_rows(X, y)
            unchanged_rows = leave_as_is(features, codes)
            standardised_rows = standardise(features, codes)
            for classifier in clones:
                classifier._copy_row_facts(clones[0])
                rows = standardised_rows if classifier.standardise else unchanged_rows
                trainings.append(classifier._prepare_training(rows))
            fits.append(clones)

        all_clones = [classifier for clones in fits for classifier in clones]
        _train_all(all_clones, trainings, memory=memory)
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
        """Run the network on X, ROWS_AT_ONCE rows at a time.

        Returns (n, K), or (T, n, K) for the output "draws", with K labels and T passes.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float32, reset=False)
        jax = require("jax", extra="bayes")
        layers = jax.device_put((self.weights_, self.biases_, self._scaled_masks()))
        predict_batch = _prediction_program(output)

        n = len(rows)
        n_labels = len(self.classes_)
        n_passes = len(self.masks_[0])
        result: Floats = np.empty((n, n_labels), np.float64)
        if output == "draws":
            result = np.empty((n_passes, n, n_labels), np.float32)

        # Every batch has one shape. What a short last batch leaves of the one before is computed
        # again and thrown away.
        batch = np.zeros((ROWS_AT_ONCE, rows.shape[1]), dtype=np.float32)
        # A GPU rounds to 10 bits by default: scores would depend on the machine.
        with jax.default_matmul_precision("highest"):
            for start in range(0, n, ROWS_AT_ONCE):
                batch_rows = rows[start : start + ROWS_AT_ONCE]
                size = len(batch_rows)
                batch[:size] = (batch_rows - self.feature_mean_) / self.feature_scale_
                predictions = np.asarray(predict_batch(*layers, batch))
                result[..., start : start + size, :] = predictions[..., :size, :]
        return result

    def _scaled_masks(self) -> list[Floats]:
        """Return the masks divided by the share of units that they keep, 1 - dropout.

        So each unit has the same mean with a mask as without.
        """
        share_kept = 1.0 if self.passes == 0 else 1.0 - float(self.dropout)
        return [(mask / share_kept).astype(np.float32) for mask in self.masks_]

    def _check_rows(self, X: ArrayLike, y: ArrayLike) -> tuple[Floats, Integers]:
        """Check X and y, learn `classes_` and the columns, and return (features, label codes).

        The code of a label is its position in `classes_`.
        """
        rows, labels = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        return rows, codes.astype(np.int32)

    def _copy_row_facts(self, other: MCDropoutClassifier) -> None:
        """Copy the labels and columns that another classifier found in the same rows."""
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(other, name):
                setattr(self, name, getattr(other, name))

    def _prepare_training(self, standardised: StandardisedRows) -> Training:
        """Draw the dropout masks, first weights and batches, and collect what training needs.

        The masks and the scale of the features are kept as attributes, for predictions.
        """
        self._check_parameters()
        self.feature_mean_ = standardised.mean
        self.feature_scale_ = standardised.scale
        n, n_features = standardised.rows.features.shape
        hidden = tuple(int(width) for width in self.hidden)
        widths = (n_features, *hidden, len(self.classes_))

        # Each has a generator of its own, so that a change of one leaves the others as they are.
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        start_seed, batch_seed, mask_seed, noise_seed = np.random.SeedSequence(seed).spawn(4)
        self.masks_ = self._draw_masks(np.random.default_rng(mask_seed), hidden)
        batches = draw_batches(
            np.random.default_rng(batch_seed),
            n,
            batch_size=min(int(self.batch_size), n),
            epochs=int(self.epochs),
        )
        return Training(
            rows=standardised.rows,
            start=draw_start(np.random.default_rng(start_seed), widths),
            batches=batches,
            noise_seed=int(noise_seed.generate_state(1)[0]),
            dropout=float(self.dropout),
            learning_rate=float(self.learning_rate),
            weight_decay=float(self.weight_decay),
        )

    def _draw_masks(self, rng: np.random.Generator, widths: Sequence[int]) -> list[Bools]:
        """Draw the masks of each hidden layer, (passes, width), True where a unit is kept.

        With passes = 0 there is one mask, which keeps every unit.
        """
        if self.passes == 0:
            return [np.ones((1, width), dtype=bool) for width in widths]
        share_kept = 1.0 - float(self.dropout)
        return [rng.random((self.passes, width)) < share_kept for width in widths]

    def _check_parameters(self) -> None:
        """Raise an error for a parameter that no network can be trained with."""
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
    """Raise an error unless `value` is a number with 0 <= value < end."""
    if not isinstance(value, Real) or not 0 <= float(value) < end:
        raise ValueError(f"{name} must lie in [0, {end:g}), got {value!r}.")


@dataclass(frozen=True, eq=False)
class StandardisedRows:
    """Rows as a network takes them, and the mean and scale of each feature that were used."""

    rows: TrainingRows
    mean: Floats
    scale: Floats


def standardise(features: Floats, codes: Integers) -> StandardisedRows:
    """Centre each feature and divide it by its standard deviation; a constant one becomes 0."""
    mean = features.mean(axis=0, dtype=np.float64)
    sd = features.std(axis=0, dtype=np.float64)
    varies = sd > ROUNDING * abs(mean)
    scale = np.where(varies, sd, np.inf).astype(np.float32)  # divided by infinity, it is 0
    mean = mean.astype(np.float32)
    return StandardisedRows(TrainingRows((features - mean) / scale, codes), mean, scale)


def leave_as_is(features: Floats, codes: Integers) -> StandardisedRows:
    """Take features as they are: with mean 0 and scale 1."""
    n_features = features.shape[1]
    return StandardisedRows(
        rows=TrainingRows(features, codes),
        mean=np.zeros(n_features, np.float32),
        scale=np.ones(n_features, np.float32),
    )


def _train_all(
    classifiers: Sequence[MCDropoutClassifier],
    trainings: Sequence[Training],
    *,
    memory: float | None = None,
) -> None:
    """Train the network of every classifier, and store its weights and biases there."""
    networks = train_networks(trainings, memory=memory)
    for classifier, layers in zip(classifiers, networks, strict=True):
        if not layers.are_finite():
            raise ValueError(
                f"Training diverged: take standardise=True, or a learning_rate below "
                f"{classifier.learning_rate}."
            )
        classifier.weights_ = layers.weights
        classifier.biases_ = layers.biases


# ---- prediction, compiled by JAX
#
# A batch of rows x (rows, inputs) goes through the network of each pass t. `weights` and `biases`
# have one array per layer; `masks` has one per hidden layer, (T, width), already scaled, and
# `masks_of_pass` is its t-th row. The first layer before its mask is the same for all passes and
# most of the arithmetic, so it is computed once.


@lru_cache(maxsize=4)
def _prediction_program(output: Output) -> Callable[..., Any]:
    """Build the function of (weights, biases, masks, x) that predicts a batch; JAX compiles it.

    "draws" gives the probabilities p_t of all passes, (T, rows, K); "log_mean" log p̄ and
    "log_add_one_in" log p̃ (see `predict_log_mean` and `predict_log_add_one_in`), (rows, K).
    """
    jax = require("jax", extra="bayes")
    programs = {"draws": _draws, "log_mean": _log_mean, "log_add_one_in": _log_add_one_in}
    return jax.jit(programs[output])  # type: ignore[no-any-return]


def _draws(
    weights: list[JaxArray], biases: list[JaxArray], masks: list[JaxArray], x: JaxArray
) -> JaxArray:
    """Compute the class probabilities of every pass of a batch of rows x, (T, rows, K).

    A pass is the network with one of the T dropout masks. `weights` and `biases` have one array per
    layer, and `masks` has one per hidden layer, (T, width).
    """
    jax = require("jax", extra="bayes")
    jnp = require("jax.numpy", extra="bayes")
    first_hidden = _first_hidden_layer(weights, biases, x)  # the same for all passes

    def run_pass(masks_of_pass: list[JaxArray]) -> JaxArray:
        log_p = _log_p_of_pass(first_hidden, weights, biases, masks_of_pass)
        return jnp.exp(log_p)

    return jax.lax.map(run_pass, masks)


def _log_mean(
    weights: list[JaxArray], biases: list[JaxArray], masks: list[JaxArray], x: JaxArray
) -> JaxArray:
    """Compute log p̄ = log (1/T) Σ_t p_t."""
    jnp = require("jax.numpy", extra="bayes")
    n_passes = len(masks[0])
    (log_sum,) = _log_sums_of_powers(weights, biases, masks, x, highest_power=1)
    return log_sum - jnp.log(n_passes)


def _log_add_one_in(
    weights: list[JaxArray], biases: list[JaxArray], masks: list[JaxArray], x: JaxArray
) -> JaxArray:
    """Compute log p̃ = log (Σ_t p_t² / Σ_t p_t)."""
    log_sum, log_sum_of_squares = _log_sums_of_powers(weights, biases, masks, x, highest_power=2)
    return log_sum_of_squares - log_sum


def _log_sums_of_powers(
    weights: list[JaxArray],
    biases: list[JaxArray],
    masks: list[JaxArray],
    x: JaxArray,
    *,
    highest_power: int,
) -> list[JaxArray]:
    """Compute log Σ_t p_t, log Σ_t p_t², ..., up to the highest power, each (rows, K).

    p_t are the class probabilities of pass t, the network with the t-th of T dropout masks. The
    sums are kept in logarithms, because the square of an unlikely label's probability underflows in
    single precision, and grow pass by pass, so that memory does not grow with T.
    """
    jax = require("jax", extra="bayes")
    jnp = require("jax.numpy", extra="bayes")
    first_hidden = _first_hidden_layer(weights, biases, x)  # the same for all passes

    def add_pass(
        log_sums: list[JaxArray], masks_of_pass: list[JaxArray]
    ) -> tuple[list[JaxArray], None]:
        log_p = _log_p_of_pass(first_hidden, weights, biases, masks_of_pass)
        new_log_sums = []
        for power, log_sum in enumerate(log_sums, start=1):
            new_log_sums.append(jnp.logaddexp(log_sum, power * log_p))
        return new_log_sums, None  # `scan` wants a second result, for each pass: there is none

    n_labels = weights[-1].shape[1]
    log_of_zero = jnp.full((x.shape[0], n_labels), -jnp.inf)
    log_sums, _ = jax.lax.scan(add_pass, [log_of_zero] * highest_power, masks)
    return log_sums  # type: ignore[no-any-return]


def _first_hidden_layer(weights: list[JaxArray], biases: list[JaxArray], x: JaxArray) -> JaxArray:
    """Compute the first hidden layer before its mask."""
    jax = require("jax", extra="bayes")
    return jax.nn.relu(x @ weights[0] + biases[0])


def _log_p_of_pass(
    first_hidden: JaxArray,
    weights: list[JaxArray],
    biases: list[JaxArray],
    masks_of_pass: list[JaxArray],
) -> JaxArray:
    """Compute the log probabilities of all K labels with one dropout mask per layer, (rows, K).

    `first_hidden` is the first hidden layer before its mask, (rows, width), and `masks_of_pass` has
    one mask (width,) for each hidden layer: 0 for units that are left out. `weights` and `biases`
    are those of all layers; the first was used already.
    """
    jax = require("jax", extra="bayes")
    hidden = first_hidden * masks_of_pass[0]
    for weight, bias, mask in zip(weights[1:-1], biases[1:-1], masks_of_pass[1:], strict=True):
        hidden = jax.nn.relu(hidden @ weight + bias) * mask
    return jax.nn.log_softmax(hidden @ weights[-1] + biases[-1])
