"""Monte-Carlo-dropout classification heads on fixed features, the classification structures that
the paper tunes.

A head is Linear-ReLU-Dropout for each hidden layer and a last Linear. Its `passes` dropout masks
are drawn once and frozen: the passes are then T fixed networks, the score is one fixed function of
a row, and calibration rows and test rows stay exchangeable. Weights and masks are NumPy arrays; JAX
(extra `bayes`) trains and predicts, on whatever device it finds. On a GPU it also standardises
features and draws first weights and batches: heads of the same law as a CPU's, not the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from numbers import Real
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dco import ClassDraws
from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.extras import require
from dco.foundations.ranks import as_count, as_positive

# Rows are predicted in batches of one fixed shape: a row's numbers do not depend on how many rows
# it comes with.
ROWS_AT_ONCE = 256
# what a head learns of them when it checks them
_OF_ROWS = {"classes_", "n_features_in_", "feature_names_in_"}


class MCDropoutClassifier(ClassifierMixin, BaseEstimator):
    """A dropout network on fixed features; its posterior draws are `passes` fixed dropout masks,
    shared by all rows.

    Trained by Adam with coupled L2 (the penalty enters the gradient, as torch's `weight_decay`
    does) on shuffled batches, the last short one kept. `standardise` centres and scales each
    feature by the training rows; a constant feature stays 0. `passes=0` switches dropout off when
    predicting: one pass of the whole network. Dropout is on in training all the same.

    After `fit`: `classes_`; `weights_` and `biases_`, one array per layer; `masks_`, (T, width)
    booleans, one array per hidden layer; `feature_mean_`, `feature_scale_`.
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
        """Train on these rows. Labels that are not among them have no column: `classes_` lists
        those that are.
        """
        _train([(self, self._prepare(*self._checked(X, y), {}))])
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
        tasks: list[tuple[MCDropoutClassifier, _Task]] = []
        for X, y in datasets:
            fits.append([clone(head) for head in heads])
            shared: dict[bool, Any] = {}  # heads on the same rows share them, and their check
            first = clone(heads[0])
            rows, codes = first._checked(X, y)
            for head in fits[-1]:
                head.__dict__ |= {
                    name: value for name, value in vars(first).items() if name in _OF_ROWS
                }
                tasks.append((head, head._prepare(rows, codes, shared)))
        _train(tasks, memory=memory)
        return fits

    def predict(self, X: ArrayLike) -> AnyArray:
        """The label with the largest mean probability over passes."""
        log_mean = self.predict_log_mean(X)  # first: it checks that the head is fitted
        return np.asarray(self.classes_[np.argmax(log_mean, axis=1)])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """The mean probability over passes, (n, K)."""
        return np.exp(self.predict_log_mean(X))

    def predict_log_mean(self, X: ArrayLike) -> Floats:
        """log p̄ = log (1/T) Σ_t p_t, (n, K), summed pass by pass: its negative is the posterior
        NLL score.
        """
        return np.asarray(self._in_batches(X, "log_mean"))

    def predict_log_add_one_in(self, X: ArrayLike) -> Floats:
        """log p̃ = log (Σ_t p_t² / Σ_t p_t), (n, K), summed pass by pass: its negative is the
        add-one-in score.
        """
        return np.asarray(self._in_batches(X, "log_add_one_in"))

    def predict_draws(self, X: ArrayLike) -> ClassDraws:
        """The probabilities of every pass, (T, n, K) in single precision."""
        return ClassDraws(self._in_batches(X, "draws"), classes=self.classes_)

    predict_distribution = predict_draws  # what scores ask for

    def _in_batches(
        self, X: ArrayLike, what: Literal["log_mean", "log_add_one_in", "draws"]
    ) -> Any:
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float32, reset=False)
        keep = 1.0 if self.passes == 0 else 1.0 - float(self.dropout)
        jax = require("jax", extra="bayes")
        layers = jax.device_put(
            (
                self.weights_,
                self.biases_,
                [(mask / keep).astype(np.float32) for mask in self.masks_],
            )
        )
        program = _prediction_program(what)
        n, k, t = len(rows), len(self.classes_), len(self.masks_[0])
        result = (
            np.empty((t, n, k), np.float32) if what == "draws" else np.empty((n, k), np.float64)
        )
        block = np.zeros((ROWS_AT_ONCE, rows.shape[1]), dtype=np.float32)
        # a GPU rounds to 10 bits by default: scores would depend on the machine
        with jax.default_matmul_precision("highest"):
            for start in range(0, n, ROWS_AT_ONCE):
                here = rows[start : start + ROWS_AT_ONCE]
                block[: len(here)] = (here - self.feature_mean_) / self.feature_scale_
                result[..., start : start + len(here), :] = np.asarray(program(*layers, block))[
                    ..., : len(here), :
                ]
        return result

    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[Floats, Integers]:
        rows, labels = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        return rows, codes.astype(np.int32)

    def _prepare(self, rows: Floats, codes: Integers, shared: dict[bool, Any]) -> _Task:
        """Draw from `random_state` all that training needs, in an order that no batching
        changes.
        """
        self._check_parameters()
        standardise = bool(self.standardise)
        if standardise not in shared:
            shared[standardise] = _features(rows, standardise)
        features, self.feature_mean_, self.feature_scale_ = shared[standardise]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        start, order, frozen, noise = np.random.SeedSequence(seed).spawn(4)
        widths = (rows.shape[1], *(int(width) for width in self.hidden), len(self.classes_))
        rng = np.random.default_rng(frozen)
        keep = 1.0 - float(self.dropout)
        self.masks_ = [
            rng.random((self.passes, width)) < keep
            if self.passes
            else np.ones((1, width), dtype=bool)
            for width in widths[1:-1]
        ]
        size, epochs = min(int(self.batch_size), len(codes)), int(self.epochs)
        drawn: dict[str, Any] = {
            "start": start.generate_state(1)[0],
            "order": order.generate_state(1)[0],
        }
        if _trains_on_host():
            drawn = _drawn_here(start, order, widths, len(codes), size, epochs)
        return _Task(
            features, codes, widths, epochs, size, drawn | {"noise": noise.generate_state(1)[0]}
        )

    def _check_parameters(self) -> None:
        if not isinstance(self.hidden, Sequence) or not self.hidden:
            raise ValueError(
                f"hidden must list the width of each hidden layer, e.g. (512, 256), "
                f"got {self.hidden!r}."
            )
        for width in self.hidden:
            as_count(width, name="every width in hidden", least=1)
        for name, least in (("passes", 0), ("epochs", 1), ("batch_size", 1)):
            as_count(getattr(self, name), name=name, least=least)
        as_positive(self.learning_rate, name="learning_rate")
        for name, end in (("dropout", 1), ("weight_decay", np.inf)):
            value = getattr(self, name)
            if not (isinstance(value, Real) and 0 <= float(value) < end):
                raise ValueError(f"{name} must lie in [0, {end:g}), got {value!r}.")


class _Task(NamedTuple):
    """All that training one head on one data set needs."""

    features: Any
    codes: Integers
    widths: tuple[int, ...]
    epochs: int
    batch: int  # rows of one
    # first weights and biases, and the rows of each batch; for a GPU the seeds of both
    drawn: dict[str, Any]


def _features(rows: Any, standardise: bool) -> tuple[Any, Floats, Floats]:
    """The rows where heads train, standardised or as they are; the mean and the scale that were
    used.
    """
    width, xp, exact = rows.shape[1], np, {"dtype": np.float64}
    if not _trains_on_host():
        xp, exact = require("jax.numpy", extra="bayes"), {}
        rows = xp.asarray(rows)
    if not standardise:
        return rows, np.zeros(width, np.float32), np.ones(width, np.float32)
    mean, spread = rows.mean(axis=0, **exact), rows.std(axis=0, **exact)
    # dividing by inf: a constant feature stays 0
    scale = xp.where(spread > 1e-6 * abs(mean), spread, np.inf)
    mean, scale = mean.astype(np.float32), scale.astype(np.float32)
    return (rows - mean) / scale, np.asarray(mean), np.asarray(scale)


def _trains_on_host() -> bool:
    """Whether JAX has no accelerator, or was told to leave it alone."""
    return bool(require("jax", extra="bayes").device_put(0).device.platform == "cpu")


def _first_layers(uniform: Any, widths: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    """Weights and biases, uniform within 1 / sqrt(fan_in): torch's default for a linear layer."""
    layers = [
        (uniform(1 / np.sqrt(a), a, b), uniform(1 / np.sqrt(a), b)) for a, b in pairwise(widths)
    ]
    return [weight for weight, _ in layers], [bias for _, bias in layers]


def _drawn_here(
    start: Any, order: Any, widths: tuple[int, ...], n: int, size: int, epochs: int
) -> dict[str, Any]:
    """The first layers and the row numbers of every step, (epochs · ceil(n / size), size), the last
    batch padded.
    """
    rng, shuffle = np.random.default_rng(start), np.random.default_rng(order)
    weights, biases = _first_layers(
        lambda bound, *shape: rng.uniform(-bound, bound, shape).astype(np.float32), widths
    )
    orders = np.stack([shuffle.permutation(n) for _ in range(epochs)]).astype(np.int32)
    return {
        "weights": weights,
        "biases": biases,
        "rows": np.pad(orders, ((0, 0), (0, -n % size))).reshape(-1, size),
    }


def _drawn_there(
    start: Any, order: Any, widths: tuple[int, ...], n: int, size: int, epochs: int
) -> dict[str, Any]:
    """The same law, drawn by JAX."""
    jax, jnp = require("jax", extra="bayes"), require("jax.numpy", extra="bayes")
    keys = iter(jax.random.split(jax.random.key(start), 2 * len(widths)))

    def uniform(bound: float, *shape: int) -> Any:
        return jax.random.uniform(next(keys), shape, minval=-bound, maxval=bound)

    weights, biases = _first_layers(uniform, widths)
    orders = jax.vmap(lambda key: jax.random.permutation(key, n))(
        jax.random.split(jax.random.key(order), epochs)
    )
    return {
        "weights": weights,
        "biases": biases,
        "rows": jnp.pad(orders, ((0, 0), (0, -n % size))).reshape(-1, size),
    }


def _train(
    tasks: Sequence[tuple[MCDropoutClassifier, _Task]], *, memory: float | None = None
) -> None:
    """Train every head, those of one shape together in groups, and hand each its weights."""
    shapes: dict[tuple[Any, ...], list[tuple[MCDropoutClassifier, _Task]]] = {}
    for head, task in tasks:
        shapes.setdefault((task.widths, len(task.codes), task.epochs, task.batch), []).append(
            (head, task)
        )
    for (widths, _, _, batch), alike in shapes.items():
        size = _group_size(widths, batch, memory)
        for start in range(0, len(alike), size):
            group = alike[start : start + size]
            for (head, _), (head.weights_, head.biases_) in zip(
                group, _run_training(group), strict=True
            ):
                if not all(np.all(np.isfinite(a)) for a in (*head.weights_, *head.biases_)):
                    raise ValueError(
                        f"Training diverged: take standardise=True, or a learning_rate below "
                        f"{head.learning_rate}."
                    )


def _group_size(widths: tuple[int, ...], batch: int, memory: float | None) -> int:
    """How many heads train at once: weights, gradients, both Adam moments and their updates, and
    the activations.
    """
    weights = sum(a * b + b for a, b in pairwise(widths))
    need = 4 * (6 * weights + 6 * batch * sum(widths))
    if memory is None:
        # None of a CPU
        statistics = require("jax", extra="bayes").device_put(0).device.memory_stats()
        memory = (statistics or {}).get("bytes_limit", 2**30) / 4
    return max(1, int(memory // need))


def _run_training(group: Sequence[tuple[MCDropoutClassifier, _Task]]) -> list[Any]:
    """The weights and biases of each head."""
    jax = require("jax", extra="bayes")
    tasks = [task for _, task in group]
    # heads on the same rows share them
    tables = {id(task.features): (task.features, task.codes) for task in tasks}
    # NumPy arrays where they are: stacking them in JAX would compile a small program for each
    # shape.
    per_head = jax.tree.map(lambda *parts: np.stack(parts), *(task.drawn for task in tasks))
    per_head["table"] = np.asarray(
        [list(tables).index(id(task.features)) for task in tasks], dtype=np.int32
    )
    for name in ("dropout", "learning_rate", "weight_decay"):
        per_head[name] = np.asarray([getattr(head, name) for head, _ in group], dtype=np.float32)
    features = (np if _trains_on_host() else jax.numpy).stack([rows for rows, _ in tables.values()])
    codes = np.stack([codes for _, codes in tables.values()])
    first = tasks[0]
    real = np.tile(
        np.arange(-(-len(first.codes) // first.batch) * first.batch) < len(first.codes),
        first.epochs,
    )
    program = _training_program(first.widths, first.epochs)
    layers = jax.tree.map(
        np.asarray, program(features, codes, real.reshape(-1, first.batch), per_head)
    )
    return [tuple([part[i] for part in parts] for parts in layers) for i in range(len(group))]


@lru_cache(maxsize=32)
def _training_program(widths: tuple[int, ...], epochs: int) -> Any:
    """One compiled program for each shape; JAX keeps them for the process (and on disk, if the
    caller has set its cache).
    """
    jax, jnp, optax = (require(name, extra="bayes") for name in ("jax", "jax.numpy", "optax"))

    def loss(layers: Any, x: Any, y: Any, real: Any, key: Any, dropout: Any) -> Any:
        weights, biases = layers
        # One draw for all hidden layers: the generator is most of the time that compiling takes.
        ends = np.cumsum([len(bias) for bias in biases[:-1]])
        chances = jnp.split(jax.random.uniform(key, (len(x), int(ends[-1]))), ends[:-1], axis=1)
        for weight, bias, chance in zip(weights[:-1], biases[:-1], chances, strict=True):
            x = jnp.where(chance >= dropout, jax.nn.relu(x @ weight + bias) / (1 - dropout), 0.0)
        log_p = jax.nn.log_softmax(x @ weights[-1] + biases[-1])
        return -jnp.sum(jnp.take_along_axis(log_p, y[:, None], axis=1)[:, 0] * real) / jnp.sum(real)

    def train(features: Any, codes: Any, real: Any, head: Any) -> Any:
        adam = optax.chain(
            optax.add_decayed_weights(head["weight_decay"]),  # before Adam's scaling: coupled L2
            optax.scale_by_adam(),
            optax.scale(-head["learning_rate"]),
        )

        def step(state: Any, batch: Any) -> Any:
            layers, moments = state
            number, rows, mask = batch
            x, y = features[head["table"], rows], codes[head["table"], rows]
            key = jax.random.fold_in(noise, number)
            gradient = jax.grad(loss)(layers, x, y, mask, key, head["dropout"])
            change, moments = adam.update(gradient, moments, layers)
            return (optax.apply_updates(layers, change), moments), None

        if "start" in head:
            head = head | _drawn_there(
                head["start"], head["order"], widths, codes.shape[1], real.shape[1], epochs
            )
        noise = jax.random.key(head["noise"])
        layers = (head["weights"], head["biases"])
        numbers = jnp.arange(len(head["rows"]))
        (layers, _), _ = jax.lax.scan(
            step, (layers, adam.init(layers)), (numbers, head["rows"], real)
        )
        return layers

    return jax.jit(jax.vmap(train, in_axes=(None, None, None, 0)))


@lru_cache(maxsize=4)
def _prediction_program(what: Literal["log_mean", "log_add_one_in", "draws"]) -> Any:
    """Rows to log p̄, log p̃ or all passes. The first layer is the same for all passes, and most of
    the arithmetic.
    """
    jax, jnp = require("jax", extra="bayes"), require("jax.numpy", extra="bayes")

    def run(weights: Any, biases: Any, masks: Any, x: Any) -> Any:
        first = jax.nn.relu(x @ weights[0] + biases[0])

        def log_p(mask: Any) -> Any:
            h = first * mask[0]
            for weight, bias, on in zip(weights[1:-1], biases[1:-1], mask[1:], strict=True):
                h = jax.nn.relu(h @ weight + bias) * on
            return jax.nn.log_softmax(h @ weights[-1] + biases[-1])

        if what == "draws":
            return jax.lax.map(lambda mask: jnp.exp(log_p(mask)), masks)

        def add(sums: Any, mask: Any) -> Any:
            now = log_p(mask)
            return [
                jnp.logaddexp(total, power * now) for power, total in enumerate(sums, start=1)
            ], None

        # In logarithms: p_t² of an unlikely label underflows in single precision, its logarithm
        # does not.
        powers = 1 if what == "log_mean" else 2
        nothing = jnp.full((x.shape[0], weights[-1].shape[1]), -jnp.inf)
        sums, _ = jax.lax.scan(add, [nothing] * powers, masks)
        return sums[0] - jnp.log(len(masks[0])) if what == "log_mean" else sums[1] - sums[0]

    return jax.jit(run)
