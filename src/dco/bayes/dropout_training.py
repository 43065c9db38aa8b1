"""Training of dropout networks by JAX: those of one shape side by side, in one compiled program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dco.foundations.arrays import Bools, Floats, Integers
from dco.foundations.extras import require

DEFAULT_MEMORY = 2**28  # bytes for one group of networks on a CPU, where more gains nothing


@dataclass(frozen=True, eq=False)
class Layers:
    """Weights (fan_in, fan_out) and biases (fan_out,) of a network, one array per layer."""

    weights: list[Floats]
    biases: list[Floats]

    def are_finite(self) -> bool:
        """Whether training has kept every number finite."""
        return all(bool(np.isfinite(array).all()) for array in (*self.weights, *self.biases))


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """The rows of one data set as networks take them, and the code of each row's label.

    Networks on the same rows share one such record, so that the rows are held once.
    """

    features: Floats
    codes: Integers


@dataclass(frozen=True, eq=False)
class Training:
    """All that training one network on one data set needs.

    Attributes
    ----------
    rows
        The rows that it is trained on.
    start
        The first weights and biases.
    batches
        Row numbers of every step, (steps, batch size); the last batch of an epoch is padded.
    noise_seed
        The seed of dropout.
    dropout, learning_rate, weight_decay
        Settings of this network, which may differ within a group.
    """

    rows: TrainingRows
    start: Layers
    batches: Integers
    noise_seed: int
    dropout: float
    learning_rate: float
    weight_decay: float

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of inputs, the width of each hidden layer, and the number of labels."""
        n_inputs = self.start.weights[0].shape[0]
        return (n_inputs, *(len(bias) for bias in self.start.biases))

    @property
    def shape(self) -> tuple[Any, ...]:
        """The numbers that must agree for networks to be trained side by side."""
        return self.widths, len(self.rows.codes), self.batches.shape

    def is_real_row(self) -> Bools:
        """Mark the entries of the batches that are rows, not padding."""
        n = len(self.rows.codes)
        batch_size = self.batches.shape[1]
        padded = -(-n // batch_size) * batch_size
        n_epochs = self.batches.size // padded
        one_epoch = np.arange(padded) < n
        return np.tile(one_epoch, n_epochs).reshape(-1, batch_size)


class NetworkInputs(NamedTuple):
    """One network as the compiled program takes it, or several, stacked along a first axis.

    `table` is the position of its rows among the tables that the program gets, and `batches` are
    rows of that table. It is a NamedTuple because JAX can divide one into networks.
    """

    table: Any
    weights: Any
    biases: Any
    batches: Any
    noise_seed: Any
    dropout: Any
    learning_rate: Any
    weight_decay: Any


def draw_start(rng: np.random.Generator, widths: Sequence[int]) -> Layers:
    """Draw first weights and biases within 1 / sqrt(fan_in), torch's default for linear layers."""
    weights = []
    biases = []
    for fan_in, fan_out in pairwise(widths):
        bound = 1 / np.sqrt(fan_in)
        weights.append(rng.uniform(-bound, bound, (fan_in, fan_out)).astype(np.float32))
        biases.append(rng.uniform(-bound, bound, (fan_out,)).astype(np.float32))
    return Layers(weights, biases)


def draw_batches(rng: np.random.Generator, n: int, *, batch_size: int, epochs: int) -> Integers:
    """Shuffle the rows anew in each epoch, and cut them into batches; the last one is padded."""
    orders = np.stack([rng.permutation(n) for _ in range(epochs)]).astype(np.int32)
    padding = -n % batch_size
    return np.pad(orders, ((0, 0), (0, padding))).reshape(-1, batch_size)


def train_networks(trainings: Sequence[Training], *, memory: float | None = None) -> list[Layers]:
    """Train every network, those of one shape in groups that need at most `memory` bytes."""
    by_shape: dict[tuple[Any, ...], list[int]] = {}
    for index, training in enumerate(trainings):
        by_shape.setdefault(training.shape, []).append(index)

    trained: dict[int, Layers] = {}
    for indices in by_shape.values():
        group_size = _group_size(trainings[indices[0]], memory)
        for start in range(0, len(indices), group_size):
            group = indices[start : start + group_size]
            results = _train_group([trainings[index] for index in group])
            trained.update(zip(group, results, strict=True))
    return [trained[index] for index in range(len(trainings))]


def _group_size(training: Training, memory: float | None) -> int:
    """Return how many networks train at once.

    Each needs its weights, gradients, both moments of Adam and their updates, and the activations.
    """
    widths = training.widths
    batch_size = training.batches.shape[1]
    n_parameters = sum(fan_in * fan_out + fan_out for fan_in, fan_out in pairwise(widths))
    bytes_needed = 4 * (6 * n_parameters + 6 * batch_size * sum(widths))
    if memory is None:
        memory = _default_memory()
    return max(1, int(memory // bytes_needed))


def _default_memory() -> float:
    """Return a quarter of the memory of the accelerator, if JAX has found one."""
    jax = require("jax", extra="bayes")
    statistics = jax.device_put(0).device.memory_stats()  # None on a CPU
    if statistics is None:
        return DEFAULT_MEMORY
    return float(statistics["bytes_limit"] / 4)


def _train_group(trainings: Sequence[Training]) -> list[Layers]:
    """Train networks of one shape in one run of the compiled program."""
    jax = require("jax", extra="bayes")
    tables = list(dict.fromkeys(training.rows for training in trainings))
    train = _training_program()
    results = train(
        np.stack([table.features for table in tables]),
        np.stack([table.codes for table in tables]),
        trainings[0].is_real_row(),
        _stack_networks(trainings, tables),
    )

    weights, biases = jax.tree.map(np.asarray, results)
    return [
        Layers([layer[index] for layer in weights], [layer[index] for layer in biases])
        for index in range(len(trainings))
    ]


def _stack_networks(trainings: Sequence[Training], tables: Sequence[TrainingRows]) -> NetworkInputs:
    """Stack networks of one shape by NumPy: JAX would compile a small program for each shape."""
    position_of = {table: position for position, table in enumerate(tables)}
    return NetworkInputs(
        table=np.asarray([position_of[training.rows] for training in trainings], np.int32),
        weights=_stack_layers([training.start.weights for training in trainings]),
        biases=_stack_layers([training.start.biases for training in trainings]),
        batches=np.stack([training.batches for training in trainings]),
        noise_seed=np.asarray([training.noise_seed for training in trainings], np.uint32),
        dropout=np.asarray([training.dropout for training in trainings], np.float32),
        learning_rate=np.asarray([training.learning_rate for training in trainings], np.float32),
        weight_decay=np.asarray([training.weight_decay for training in trainings], np.float32),
    )


def _stack_layers(networks: Sequence[Sequence[Floats]]) -> list[Floats]:
    """Stack the arrays of each layer over networks."""
    return [np.stack(layers) for layers in zip(*networks, strict=True)]


@lru_cache(maxsize=1)
def _training_program() -> Any:
    """Build the program that trains networks side by side.

    JAX compiles it once for each shape, and keeps it for the life of the process.
    """
    jax = require("jax", extra="bayes")
    jnp = require("jax.numpy", extra="bayes")
    optax = require("optax", extra="bayes")

    def loss(layers: Any, x: Any, y: Any, is_real: Any, key: Any, dropout: Any) -> Any:
        weights, biases = layers
        # One draw for all hidden layers: the generator is most of the time that compiling takes.
        ends = np.cumsum([len(bias) for bias in biases[:-1]])
        uniforms = jax.random.uniform(key, (len(x), int(ends[-1])))
        chances = jnp.split(uniforms, ends[:-1], axis=1)
        for weight, bias, chance in zip(weights[:-1], biases[:-1], chances, strict=True):
            hidden = jax.nn.relu(x @ weight + bias)
            x = jnp.where(chance >= dropout, hidden / (1 - dropout), 0.0)
        log_p = jax.nn.log_softmax(x @ weights[-1] + biases[-1])
        log_p_of_label = jnp.take_along_axis(log_p, y[:, None], axis=1)[:, 0]
        return -jnp.sum(log_p_of_label * is_real) / jnp.sum(is_real)

    def train(features: Any, codes: Any, is_real: Any, network: NetworkInputs) -> Any:
        adam = optax.chain(
            optax.add_decayed_weights(network.weight_decay),  # before Adam: coupled L2
            optax.scale_by_adam(),
            optax.scale(-network.learning_rate),
        )
        noise = jax.random.key(network.noise_seed)

        def step(state: Any, batch: Any) -> Any:
            layers, moments = state
            number, rows, is_real_row = batch
            x = features[network.table, rows]
            y = codes[network.table, rows]
            key = jax.random.fold_in(noise, number)
            gradient = jax.grad(loss)(layers, x, y, is_real_row, key, network.dropout)
            change, moments = adam.update(gradient, moments, layers)
            return (optax.apply_updates(layers, change), moments), None

        first_layers = (network.weights, network.biases)
        start = (first_layers, adam.init(first_layers))
        step_numbers = jnp.arange(len(network.batches))
        end, _ = jax.lax.scan(step, start, (step_numbers, network.batches, is_real))
        trained_layers, _ = end
        return trained_layers

    return jax.jit(jax.vmap(train, in_axes=(None, None, None, 0)))
