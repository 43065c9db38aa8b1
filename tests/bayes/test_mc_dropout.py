"""Monte-Carlo-dropout heads: against a plain NumPy network, one fit against many, and the
estimator's contract.
"""

import sys
from dataclasses import dataclass

import jax
import numpy as np
import pytest
import skops.io
from scipy.special import log_softmax, logsumexp
from scipy.stats import binomtest, chisquare, kstest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.utils.estimator_checks import check_estimator

from dco import MissingExtraError
from dco.bayes import MCDropoutClassifier
from dco.bayes.dropout_training import draw_batches, draw_start

SETTINGS = {"epochs": 12, "batch_size": 32, "learning_rate": 1e-2}
SMALL = {**SETTINGS, "hidden": (24, 12)}


@dataclass(frozen=True, eq=False)
class Blobs:
    """Five clouds of seven features: 150 rows to train on, and new ones."""

    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray


@pytest.fixture(scope="module")
def blobs():
    X, y = make_blobs(700, 7, centers=5, cluster_std=2.0, random_state=0)
    X = X.astype(np.float32)
    return Blobs(X[:150], y[:150], X[150:], y[150:])


@pytest.fixture(scope="module")
def head(blobs):
    """Fit a head with nine passes."""
    return MCDropoutClassifier(**SMALL, dropout=0.2, passes=9, random_state=0).fit(blobs.X, blobs.y)


def log_p_of_pass(head, X, t):
    """Compute one pass in double precision: mask, scale, next layer."""
    share_of_units = 1 - head.dropout if head.passes else 1.0
    hidden_layers = zip(head.weights_[:-1], head.biases_[:-1], head.masks_, strict=True)
    h = (X.astype(float) - head.feature_mean_) / head.feature_scale_
    for weight, bias, mask in hidden_layers:
        h = np.maximum(h @ weight + bias, 0) * mask[t] / share_of_units
    return log_softmax(h @ head.weights_[-1] + head.biases_[-1], axis=1)


def log_p_of_passes(head, X):
    """Compute every pass by itself, (passes, n, K)."""
    return np.stack([log_p_of_pass(head, X, t) for t in range(len(head.masks_[0]))])


# ---------------------------------------------------------------- predictions


def test_every_pass_is_its_own_frozen_network(head, blobs):
    draws = head.predict_draws(blobs.X_new)

    expected = np.exp(log_p_of_passes(head, blobs.X_new))
    assert draws.draws.shape == (9, 550, 5)
    assert draws.draws.std(axis=0).max() > 0.01
    np.testing.assert_array_equal(draws.classes, head.classes_)
    np.testing.assert_allclose(draws.draws, expected, atol=2e-6)


def test_the_predicted_distribution_is_the_draws(head, blobs):
    distribution = head.predict_distribution(blobs.X_new)

    np.testing.assert_array_equal(distribution.draws, head.predict_draws(blobs.X_new).draws)


@pytest.fixture(scope="module")
def far_X(blobs):
    """Rows with log probabilities of a few hundred below zero."""
    return 20 * blobs.X_new


def test_far_rows_have_very_unlikely_labels(head, far_X):
    assert log_p_of_passes(head, far_X).min() < -100


def test_the_log_mean_is_that_of_all_passes_far_into_the_tail(head, far_X):
    log_means = head.predict_log_mean(far_X)

    expected = logsumexp(log_p_of_passes(head, far_X), axis=0) - np.log(9)
    np.testing.assert_allclose(log_means, expected, rtol=1e-5, atol=1e-4)


def test_the_log_add_one_in_is_that_of_all_passes_far_into_the_tail(head, far_X):
    log_add_one_in = head.predict_log_add_one_in(far_X)

    log_p = log_p_of_passes(head, far_X)
    expected = logsumexp(2 * log_p, axis=0) - logsumexp(log_p, axis=0)
    np.testing.assert_allclose(log_add_one_in, expected, rtol=1e-5, atol=1e-4)


def test_probabilities_are_the_mean_of_all_passes(head, blobs):
    p = head.predict_proba(blobs.X_new)

    np.testing.assert_allclose(p, head.predict_draws(blobs.X_new).draws.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("i", [0, 3, 255, 256, 549])
def test_a_row_alone_scores_as_among_others(head, blobs, i):
    together = head.predict_log_mean(blobs.X_new)

    (alone,) = head.predict_log_mean(blobs.X_new[i : i + 1])

    np.testing.assert_array_equal(alone, together[i])


def test_the_order_of_rows_does_not_matter(head, blobs):
    reversed_scores = head.predict_log_mean(blobs.X_new[::-1])

    np.testing.assert_array_equal(reversed_scores[::-1], head.predict_log_mean(blobs.X_new))


def test_rows_may_be_a_view_in_reverse(head, blobs):
    assert head.predict_draws(blobs.X_new[:0:-200]).draws.shape == (9, 3, 5)


@pytest.mark.parametrize("method", ["predict_log_mean", "predict_log_add_one_in", "predict_draws"])
def test_predictions_ask_for_whole_single_precision(head, blobs, monkeypatch, method):
    """A GPU would otherwise round to 10 bits; a CPU gives the same numbers either way, so the test
    looks at what JAX is asked for.
    """
    precisions = []
    ask = jax.default_matmul_precision

    def watch(precision):
        precisions.append(precision)
        return ask(precision)

    monkeypatch.setattr(jax, "default_matmul_precision", watch)
    getattr(head, method)(blobs.X_new)

    assert precisions == ["highest"]


@pytest.mark.skipif(jax.default_backend() == "cpu", reason="JAX finds no GPU")
@pytest.mark.parametrize("method", ["predict_log_mean", "predict_log_add_one_in"])
def test_a_gpu_and_a_cpu_give_one_score(head, blobs, method):
    on_gpu = getattr(head, method)(blobs.X_new)

    with jax.default_device(jax.devices("cpu")[0]):
        on_cpu = getattr(head, method)(blobs.X_new)

    np.testing.assert_allclose(on_gpu, on_cpu, atol=1e-4)


# ---------------------------------------------------------------- training


class PlainNetwork:
    """A network without dropout, and Adam with coupled decay, in NumPy.

    `parameters` are weights and biases in turn.
    """

    def __init__(self, weights, biases, *, learning_rate, weight_decay):
        layers = zip(weights, biases, strict=True)
        self.parameters = [np.asarray(array, dtype=float) for layer in layers for array in layer]
        self.first_moments = [np.zeros_like(array) for array in self.parameters]
        self.second_moments = [np.zeros_like(array) for array in self.parameters]
        self.n_steps = 0
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay

    def gradients(self, X, y):
        """Return the gradient of the mean loss of the rows for every parameter."""
        weights = self.parameters[::2]
        biases = self.parameters[1::2]
        inputs = [X]
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            inputs.append(np.maximum(inputs[-1] @ weight + bias, 0))
        p = np.exp(log_softmax(inputs[-1] @ weights[-1] + biases[-1], axis=1))

        delta = (p - np.eye(p.shape[1])[y]) / len(y)
        gradients = []
        for weight, layer_inputs in zip(weights[::-1], inputs[::-1], strict=True):
            gradients = [layer_inputs.T @ delta, delta.sum(axis=0), *gradients]
            delta = (delta @ weight.T) * (layer_inputs > 0)
        return gradients

    def step(self, X, y):
        """Take one step of Adam."""
        self.n_steps += 1
        for i, gradient in enumerate(self.gradients(X, y)):
            penalised = gradient + self.weight_decay * self.parameters[i]
            self.first_moments[i] = 0.9 * self.first_moments[i] + 0.1 * penalised
            self.second_moments[i] = 0.999 * self.second_moments[i] + 0.001 * penalised**2

            mean = self.first_moments[i] / (1 - 0.9**self.n_steps)
            square = self.second_moments[i] / (1 - 0.999**self.n_steps)
            change = mean / (np.sqrt(square) + 1e-8)
            self.parameters[i] = self.parameters[i] - self.learning_rate * change


def batches_of_seed(random_state, n_rows, *, epochs):
    """Return the rows of each batch of 32 that a fit with this seed takes, without padding."""
    seed = int(np.random.RandomState(random_state).randint(2**31 - 1))
    order = np.random.SeedSequence(seed).spawn(4)[1]
    batches = draw_batches(np.random.default_rng(order), n_rows, batch_size=32, epochs=epochs)
    size_of_last = n_rows % 32
    steps_per_epoch = len(batches) // epochs
    is_last = np.arange(1, len(batches) + 1) % steps_per_epoch == 0
    return [
        rows[:size_of_last] if last else rows for rows, last in zip(batches, is_last, strict=True)
    ]


def test_training_is_adam_with_coupled_decay_on_every_batch(blobs):
    """Without dropout training is deterministic: a plain NumPy loop from the same start ends at the
    same weights.
    """
    settings = {**SMALL, "epochs": 2, "dropout": 0.0, "weight_decay": 0.02, "random_state": 3}
    untrained = MCDropoutClassifier(**{**settings, "learning_rate": 1e-30}).fit(blobs.X, blobs.y)
    plain = PlainNetwork(
        untrained.weights_, untrained.biases_, learning_rate=1e-2, weight_decay=0.02
    )

    # training rounds as JAX is told to; a GPU's default is 10 bits
    with jax.default_matmul_precision("highest"):
        trained = MCDropoutClassifier(**settings).fit(blobs.X, blobs.y)
    features = (blobs.X - trained.feature_mean_) / trained.feature_scale_
    for rows in batches_of_seed(3, 150, epochs=2):
        plain.step(features[rows], blobs.y[rows])

    assert plain.n_steps == 2 * 5  # 150 rows in batches of 32: the last batch has 22
    for weights, expected in zip(trained.weights_, plain.parameters[::2], strict=True):
        np.testing.assert_allclose(weights, expected, atol=5e-6)
    for biases, expected in zip(trained.biases_, plain.parameters[1::2], strict=True):
        np.testing.assert_allclose(biases, expected, atol=5e-6)


@pytest.mark.parametrize("layer", [0, 1])
def test_first_weights_are_uniform_within_one_over_the_root_of_the_inputs(layer):
    """Each test errs once in 1,000 seeds."""
    start = draw_start(np.random.default_rng(0), (30, 40, 7))
    n_inputs = (30, 40)[layer]
    n_outputs = (40, 7)[layer]

    for values in (start.weights[layer], start.biases[layer]):
        scaled = np.ravel(values) * np.sqrt(n_inputs)
        assert values.dtype == np.float32
        assert kstest(scaled, "uniform", args=(-1, 2)).pvalue > 1e-3
    assert start.weights[layer].shape == (n_inputs, n_outputs)
    assert start.biases[layer].shape == (n_outputs,)


@pytest.fixture(scope="module")
def padded_orders():
    """Draw 300 epochs of ten rows in batches of four, (epochs, 12) with two of padding."""
    batches = draw_batches(np.random.default_rng(1), 10, batch_size=4, epochs=300)
    return batches.reshape(300, 12)


def test_every_epoch_takes_all_rows(padded_orders):
    rows = np.sort(padded_orders[:, :10], axis=1)

    np.testing.assert_array_equal(rows, np.tile(np.arange(10), (300, 1)))
    assert not padded_orders[:, 10:].any()


@pytest.mark.parametrize("position", [0, 9])
def test_every_row_comes_first_and_last_equally_often(padded_orders, position):
    """Each test errs once in 1,000 seeds."""
    counts = np.bincount(padded_orders[:, position], minlength=10)

    assert chisquare(counts).pvalue > 1e-3


def test_a_constant_feature_changes_nothing_later(blobs):
    def with_constant(X, value):
        return np.column_stack([X, np.full(len(X), value)])

    head = MCDropoutClassifier(**SMALL, random_state=0).fit(with_constant(blobs.X, 3e6), blobs.y)

    same = head.predict_proba(with_constant(blobs.X_new, 3e6))
    other = head.predict_proba(with_constant(blobs.X_new, -1.0))
    assert head.feature_scale_[7] == np.inf
    np.testing.assert_array_equal(same, other)


def test_a_class_absent_from_training_has_no_column(blobs):
    is_present = blobs.y != 2

    head = MCDropoutClassifier(**SMALL, random_state=0).fit(
        blobs.X[is_present], blobs.y[is_present]
    )

    assert head.classes_.tolist() == [0, 1, 3, 4]
    assert head.predict_draws(blobs.X_new).draws.shape[2] == 4
    assert 2 not in head.predict(blobs.X_new)


def test_two_rows_are_enough(blobs):
    head = MCDropoutClassifier(**SMALL, random_state=0).fit(blobs.X[:2], [0, 1])

    assert np.all(np.isfinite(head.predict_proba(blobs.X_new)))


# ---------------------------------------------------------------- masks and dropout


@pytest.fixture(scope="module")
def masked(blobs):
    """Fit a head with 200 passes for one epoch."""
    head = MCDropoutClassifier(hidden=(64, 32), dropout=0.3, passes=200, epochs=1, random_state=0)
    return head.fit(blobs.X, blobs.y)


@pytest.mark.parametrize("layer", [0, 1])
def test_frozen_masks_leave_out_the_share_of_dropout(masked, layer):
    """Errs once in 1,000 seeds."""
    mask = masked.masks_[layer]

    assert binomtest(int(mask.sum()), mask.size, 0.7).pvalue > 1e-3


def test_another_seed_draws_other_masks(masked, blobs):
    other = clone(masked).set_params(random_state=1).fit(blobs.X, blobs.y)

    assert np.mean(masked.masks_[0] != other.masks_[0]) > 0.3


def test_the_same_seed_gives_the_same_head(masked, blobs):
    again = clone(masked).fit(blobs.X, blobs.y)

    np.testing.assert_array_equal(masked.predict_proba(blobs.X), again.predict_proba(blobs.X))


@pytest.fixture(scope="module")
def whole(blobs):
    """Fit a head without passes, which predicts by the whole network."""
    head = MCDropoutClassifier(**SMALL, dropout=0.4, passes=0, random_state=0)
    return head.fit(blobs.X, blobs.y)


def test_dropout_changes_the_weights(whole, blobs):
    other = clone(whole).set_params(dropout=0.1).fit(blobs.X, blobs.y)

    assert np.max(np.abs(whole.weights_[0] - other.weights_[0])) > 1e-3


def test_passes_do_not_change_the_weights(whole, blobs):
    other = clone(whole).set_params(passes=20).fit(blobs.X, blobs.y)

    np.testing.assert_array_equal(whole.weights_[0], other.weights_[0])


def test_no_passes_mean_the_whole_network(whole, blobs):
    (draw,) = whole.predict_draws(blobs.X_new).draws

    expected = np.exp(log_p_of_pass(whole, blobs.X_new, 0))
    assert all(mask.all() for mask in whole.masks_)
    assert whole.score(blobs.X_new, blobs.y_new) > 0.9
    np.testing.assert_allclose(draw, expected, atol=2e-6)
    np.testing.assert_allclose(whole.predict_proba(blobs.X_new), expected, atol=2e-6)


# ---------------------------------------------------------------- many heads


@pytest.fixture(scope="module")
def different_heads():
    """Make heads with two shapes, and with dropout rates and seeds apart."""
    return [
        MCDropoutClassifier(**SMALL, dropout=0.05, passes=3, random_state=0),
        MCDropoutClassifier(**SMALL, dropout=0.4, passes=0, weight_decay=0.1, random_state=1),
        MCDropoutClassifier(**SETTINGS, hidden=(16,), passes=3, standardise=False, random_state=2),
    ]


@pytest.fixture(scope="module")
def two_datasets(blobs):
    labels = np.array(list("edcba"))[blobs.y]
    return [(blobs.X, blobs.y), (blobs.X_new[:150], labels)]


@pytest.fixture(scope="module")
def heads_alone(different_heads, two_datasets):
    """Fit every head by itself: a list for each data set."""
    with jax.default_matmul_precision("highest"):
        return [[clone(head).fit(X, y) for head in different_heads] for X, y in two_datasets]


@pytest.mark.parametrize("memory", [None, 1.0], ids=["side by side", "one by one"])
def test_many_heads_together_are_the_heads_alone(
    different_heads, two_datasets, heads_alone, blobs, memory
):
    """Up to single precision."""
    with jax.default_matmul_precision("highest"):
        fits = MCDropoutClassifier.fit_many(two_datasets, different_heads, memory=memory)

    together = [head for heads in fits for head in heads]
    alone = [head for heads in heads_alone for head in heads]
    assert [head.classes_.tolist() for head in together] == [
        head.classes_.tolist() for head in alone
    ]
    np.testing.assert_allclose(
        [head.predict_proba(blobs.X_new) for head in together],
        [head.predict_proba(blobs.X_new) for head in alone],
        atol=2e-4,
    )


def test_fits_of_many_heads_leave_the_heads_unfitted(different_heads, two_datasets):
    MCDropoutClassifier.fit_many(two_datasets[:1], different_heads[:1])

    assert not hasattr(different_heads[0], "weights_")


def test_data_sets_of_several_sizes_and_units_train_in_one_call(blobs):
    """Huge and constant features are standardised away."""

    def in_huge_units(X, constant):
        return np.column_stack([1e6 * X + 3e6, np.full(len(X), constant)])

    datasets = [
        (blobs.X, blobs.y),
        (blobs.X[:140], blobs.y[:140]),
        (in_huge_units(blobs.X, 7.0), blobs.y),
    ]

    (first,), (shorter,), (huge,) = MCDropoutClassifier.fit_many(
        datasets, [MCDropoutClassifier(**SMALL, random_state=0)]
    )

    assert first.score(blobs.X_new, blobs.y_new) > 0.9
    assert shorter.score(blobs.X_new, blobs.y_new) > 0.9
    assert huge.score(in_huge_units(blobs.X_new, -7.0), blobs.y_new) > 0.9


def test_no_data_sets_have_no_heads():
    assert MCDropoutClassifier.fit_many([], [MCDropoutClassifier()]) == []


# ---------------------------------------------------------------- the estimator


def test_a_fitted_head_is_arrays_that_skops_can_store(head, blobs):
    stored = skops.io.dumps(head)

    unknown = skops.io.get_untrusted_types(data=stored)
    loaded = skops.io.loads(stored, trusted=unknown)
    assert unknown == ["dco.bayes.mc_dropout.MCDropoutClassifier"]
    np.testing.assert_array_equal(loaded.predict_proba(blobs.X), head.predict_proba(blobs.X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hidden": ()}, "hidden must list the width of each hidden layer"),
        ({"hidden": (8, 0)}, "every width in hidden must be at least 1, got 0"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\)"),
        ({"passes": -1}, "passes must be a whole number that is not negative"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"batch_size": 2.5}, "batch_size must be a whole number"),
        ({"learning_rate": 0.0}, "learning_rate must be a positive number"),
        ({"weight_decay": -1.0}, r"weight_decay must lie in \[0, inf\)"),
    ],
)
def test_bad_settings_are_named(blobs, parameters, message):
    with pytest.raises(ValueError, match=message):
        MCDropoutClassifier(**parameters).fit(blobs.X, blobs.y)


def test_missing_features_are_refused(blobs):
    X = blobs.X.copy()
    X[3] = np.nan

    with pytest.raises(ValueError, match="NaN"):
        MCDropoutClassifier(**SMALL).fit(X, blobs.y)


def test_fewer_features_than_in_training_are_refused(head, blobs):
    with pytest.raises(ValueError, match="6 features"):
        head.predict(blobs.X[:, :6])


def test_targets_that_are_no_classes_are_refused(blobs):
    with pytest.raises(ValueError, match="continuous"):
        MCDropoutClassifier(**SMALL).fit(blobs.X, blobs.y + 0.5)


def test_training_that_diverges_is_an_error(blobs):
    head = MCDropoutClassifier(**{**SMALL, "learning_rate": 1e30}, random_state=0)

    with pytest.raises(ValueError, match="Training diverged"):
        head.fit(blobs.X, blobs.y)


def test_without_jax_the_extra_is_named(blobs, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)

    with pytest.raises(MissingExtraError, match=r"\[bayes\]"):
        MCDropoutClassifier(**SMALL).fit(blobs.X, blobs.y)


def test_the_contract_of_scikit_learn_holds():
    head = MCDropoutClassifier(
        hidden=(16,), passes=2, epochs=30, learning_rate=0.02, random_state=0
    )

    check_estimator(head, on_skip=None)
