"""Training of dropout networks by JAX: those of one shape side by side, in one compiled program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dco.foundations.arrays import Bools, Floats, Integers
from dco.foundations.extras import require

DEFAULT_MEMORY = 2**28  # bytes for one group of networks on a CPU, where more gains nothing
ACCELERATOR_SHARE = 1 / 4  # of an accelerator's memory for one group of networks
BYTES_PER_NUMBER = 4  # single precision
# How often training holds an array of one size at a time. Parameters: themselves, their gradients,
# both moments of Adam, their updates and one spare copy. Activations: a generous guess.
COPIES_OF_PARAMETERS = 6
COPIES_OF_ACTIVATIONS = 6

JaxArray: TypeAlias = Any  # a jax.Array; JAX is optional, so its types cannot be named here
JaxLayers: TypeAlias = tuple[list[JaxArray], list[JaxArray]]  # weights and biases of each layer


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
    """The rows of one data set: features (n, inputs) and the code 0, 1, ... of each label (n,).

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
        The seed of dropout during training.
    dropout, learning_rate, weight_decay
        Settings of this network; networks that are trained side by side may differ in these.
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
        """What must be equal for networks to be trained side by side."""
        return self.widths, len(self.rows.codes), self.batches.shape

    def is_real_row(self) -> Bools:
        """Mark the entries of the batches that are rows, not padding."""
        n = len(self.rows.codes)
        batch_size = self.batches.shape[1]
        padded_length = n + -n % batch_size  # of one epoch, see `draw_batches`
        n_epochs = self.batches.size // padded_length
        one_epoch = np.arange(padded_length) < n
        return np.tile(one_epoch, n_epochs).reshape(-1, batch_size)


class NetworkInputs(NamedTuple):
    """One network as the compiled program takes it, or several, stacked along a first axis.

    `table` is the position of its rows among the tables that the program gets, and `batches` are
    rows of that table; the other fields are those of `Training`. It is a NamedTuple because JAX can
    divide one into networks.
    """

    table: JaxArray
    weights: list[JaxArray]
    biases: list[JaxArray]
    batches: JaxArray
    noise_seed: JaxArray
    dropout: JaxArray
    learning_rate: JaxArray
    weight_decay: JaxArray


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
    """Draw the row numbers of every batch, (steps, batch size).

    Each epoch shuffles the n rows anew. Where they do not fill its last batch, that is padded with
    zeros, which `Training.is_real_row` tells from row 0.
    """
    shuffled = np.stack([rng.permutation(n) for _ in range(epochs)]).astype(np.int32)
    padding = -n % batch_size
    return np.pad(shuffled, ((0, 0), (0, padding))).reshape(-1, batch_size)


def train_networks(trainings: Sequence[Training], *, memory: float | None = None) -> list[Layers]:
    """Train every network, and return their layers in the same order.

    Networks of one shape are trained side by side, in groups that need at most `memory` bytes; None
    takes a default for the device.
    """
    positions_by_shape: dict[tuple[Any, ...], list[int]] = {}
    for position, training in enumerate(trainings):
        positions_by_shape.setdefault(training.shape, []).append(position)

    trained: dict[int, Layers] = {}
    for positions in positions_by_shape.values():
        group_size = _group_size(trainings[positions[0]], memory)
        for start in range(0, len(positions), group_size):
            group = positions[start : start + group_size]
            results = _train_group([trainings[position] for position in group])
            trained.update(zip(group, results, strict=True))
    return [trained[position] for position in range(len(trainings))]


def _group_size(training: Training, memory: float | None) -> int:
    """Return how many networks of this shape fit into `memory` bytes; at least one."""
    if memory is None:
        memory = _default_memory()
    widths = training.widths
    batch_size = training.batches.shape[1]
    n_parameters = sum(fan_in * fan_out + fan_out for fan_in, fan_out in pairwise(widths))
    n_activations = batch_size * sum(widths)
    n_numbers = COPIES_OF_PARAMETERS * n_parameters + COPIES_OF_ACTIVATIONS * n_activations
    return max(1, int(memory // (BYTES_PER_NUMBER * n_numbers)))


def _default_memory() -> float:
    """Return a share of the memory of the accelerator, if JAX has found one."""
    jax = require("jax", extra="bayes")
    statistics = jax.device_put(0).device.memory_stats()  # None on a CPU
    if statistics is None:
        return DEFAULT_MEMORY
    return float(statistics["bytes_limit"] * ACCELERATOR_SHARE)


def _train_group(trainings: Sequence[Training]) -> list[Layers]:
    """Train networks of one shape side by side, and return the layers of each.

    A data set that several networks share is handed to the compiled program once.
    """
    jax = require("jax", extra="bayes")
    datasets = list(dict.fromkeys(training.rows for training in trainings))  # each once
    is_real_row = trainings[0].is_real_row()  # where batches are not padded: the same for all
    train = _training_program()
    weights, biases = train(
        np.stack([rows.features for rows in datasets]),
        np.stack([rows.codes for rows in datasets]),
        is_real_row,
        _stack_networks(trainings, datasets),
    )

    # Each array has a first axis of networks: take it apart.
    weights = jax.tree.map(np.asarray, weights)
    biases = jax.tree.map(np.asarray, biases)
    networks = []
    for network in range(len(trainings)):
        weights_of_network = [layer[network] for layer in weights]
        biases_of_network = [layer[network] for layer in biases]
        networks.append(Layers(weights_of_network, biases_of_network))
    return networks


def _stack_networks(trainings: Sequence[Training], tables: Sequence[TrainingRows]) -> NetworkInputs:
    """Stack networks of one shape along a first axis, field by field.

    By NumPy, because JAX would compile a small program for each shape of array.
    """
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
    """Stack each layer over networks: one array per layer, with a first axis of networks."""
    n_layers = len(networks[0])
    return [np.stack([network[layer] for network in networks]) for layer in range(n_layers)]


@lru_cache(maxsize=1)
def _training_program() -> Any:
    """Build the program that trains networks of one shape side by side.

    It is `_train_network` with a first axis of networks on its last argument and on its result. JAX
    compiles it once for each shape, and keeps it for the life of the process.
    """
    jax = require("jax", extra="bayes")
    return jax.jit(jax.vmap(_train_network, in_axes=(None, None, None, 0)))


def _train_network(
    features: JaxArray, codes: JaxArray, is_real_row: JaxArray, network: NetworkInputs
) -> JaxLayers:
    """Train one network by Adam, and return its weights and biases.

    Parameters
    ----------
    features, codes
        The rows of several data sets ("tables"), (tables, rows, inputs), and the codes 0, 1, ... of
        their labels, (tables, rows).
    is_real_row
        (steps, batch size): False where a batch is padded.
    network
        The first weights and biases, the settings, the number of the network's table, and the rows
        of each batch.
    """
    jax = require("jax", extra="bayes")
    jnp = require("jax.numpy", extra="bayes")
    optax = require("optax", extra="bayes")
    adam = optax.chain(
        optax.add_decayed_weights(network.weight_decay),  # before Adam: coupled L2
        optax.scale_by_adam(),
        optax.scale(-network.learning_rate),
    )
    noise = jax.random.key(network.noise_seed)

    def take_step(state: Any, batch: Any) -> Any:
        """Change the layers by the gradient of one batch; `moments` are Adam's running means."""
        layers, moments = state
        step_number, rows, is_real = batch
        x = features[network.table, rows]
        y = codes[network.table, rows]
        key = jax.random.fold_in(noise, step_number)
        gradient = jax.grad(_batch_loss)(layers, x, y, is_real, key, network.dropout)
        update, moments = adam.update(gradient, moments, layers)
        new_layers = optax.apply_updates(layers, update)
        return (new_layers, moments), None  # `scan` wants a second result: there is none

    # `scan` takes a step for each batch, the first axis of `batches`.
    first_layers = (network.weights, network.biases)
    first_state = (first_layers, adam.init(first_layers))
    batches = (jnp.arange(len(network.batches)), network.batches, is_real_row)
    last_state, _ = jax.lax.scan(take_step, first_state, batches)
    trained_layers, _ = last_state
    return trained_layers  # type: ignore[no-any-return]


def _batch_loss(
    layers: JaxLayers,
    x: JaxArray,
    y: JaxArray,
    is_real: JaxArray,
    key: JaxArray,
    dropout: JaxArray,
) -> JaxArray:
    """Return the mean of -log p(y | x) over the real rows of a batch, with random dropout.

    Each hidden layer is relu(x W + b); then every unit is set to 0 with probability `dropout`, and
    the others are divided by 1 - dropout.
    """
    jax = require("jax", extra="bayes")
    jnp = require("jax.numpy", extra="bayes")
    weights, biases = layers

    # Draw the noise of all hidden layers at once: compiling the generator takes most of the time.
    ends = np.cumsum([len(bias) for bias in biases[:-1]])
    noise = jax.random.uniform(key, (len(x), int(ends[-1])))
    noise_by_layer = jnp.split(noise, ends[:-1], axis=1)

    for weight, bias, uniforms in zip(weights[:-1], biases[:-1], noise_by_layer, strict=True):
        hidden = jax.nn.relu(x @ weight + bias)
        x = jnp.where(uniforms >= dropout, hidden / (1 - dropout), 0.0)

    log_p = jax.nn.log_softmax(x @ weights[-1] + biases[-1])
    log_p_of_label = jnp.take_along_axis(log_p, y[:, None], axis=1)[:, 0]
    return -jnp.sum(log_p_of_label * is_real) / jnp.sum(is_real)
