"""Monte-Carlo-dropout heads: against a plain NumPy network, one fit against many, and the
estimator's contract.
"""

import sys

import jax
import numpy as np
import pytest
import skops.io
from scipy.special import log_softmax, logsumexp
from scipy.stats import binomtest, chisquare, kstest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.utils.estimator_checks import check_estimator

from dco.bayes import MCDropoutClassifier, mc_dropout
from dco.bayes.dropout_training import draw_batches, draw_start
from dco.foundations.errors import MissingExtraError

SMALL = {"hidden": (24, 12), "epochs": 12, "batch_size": 32, "learning_rate": 1e-2}


@pytest.fixture(scope="module")
def blobs():
    X, y = make_blobs(700, 7, centers=5, cluster_std=2.0, random_state=0)
    return X[:150].astype(np.float32), y[:150], X[150:].astype(np.float32), y[150:]


@pytest.fixture(scope="module")
def fitted(blobs):
    X, y, _, _ = blobs
    return MCDropoutClassifier(**SMALL, dropout=0.2, passes=9, random_state=0).fit(X, y)


def _plain_passes(head, X):
    """Every pass by itself in double precision: mask, scale, next layer."""
    keep = 1 - head.dropout if head.passes else 1.0
    draws = []
    for t in range(len(head.masks_[0])):
        h = (X.astype(float) - head.feature_mean_) / head.feature_scale_
        for weight, bias, mask in zip(
            head.weights_[:-1], head.biases_[:-1], head.masks_, strict=True
        ):
            h = np.maximum(h @ weight + bias, 0) * mask[t] / keep
        draws.append(log_softmax(h @ head.weights_[-1] + head.biases_[-1], axis=1))
    return np.stack(draws)


def test_every_pass_is_its_own_frozen_network(fitted, blobs):
    _, _, X, _ = blobs
    draws = fitted.predict_draws(X)
    assert draws.draws.shape == (9, len(X), 5)
    np.testing.assert_array_equal(draws.classes, fitted.classes_)
    np.testing.assert_allclose(draws.draws, np.exp(_plain_passes(fitted, X)), atol=2e-6)
    np.testing.assert_array_equal(fitted.predict_distribution(X).draws, draws.draws)
    assert draws.draws.std(axis=0).max() > 0.01


def test_scores_summed_over_passes_equal_those_of_all_draws(fitted, blobs):
    """log p̄ and log p̃ to single precision, far into the tail of unlikely labels."""
    _, _, X, _ = blobs
    far = 20 * X  # log probabilities of a few hundred below zero
    log_p = _plain_passes(fitted, far)
    assert log_p.min() < -100
    once, twice = logsumexp(log_p, axis=0), logsumexp(2 * log_p, axis=0)
    np.testing.assert_allclose(fitted.predict_log_mean(far), once - np.log(9), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(
        fitted.predict_log_add_one_in(far), twice - once, rtol=1e-5, atol=1e-4
    )
    np.testing.assert_allclose(
        fitted.predict_proba(X), fitted.predict_draws(X).draws.mean(axis=0), atol=1e-6
    )
    np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1, atol=1e-5)


def test_a_row_scores_the_same_in_any_company(fitted, blobs):
    _, _, X, _ = blobs
    together = fitted.predict_log_mean(X)
    for i in (0, 3, 255, 256, 549):
        np.testing.assert_array_equal(fitted.predict_log_mean(X[i : i + 1])[0], together[i])
    np.testing.assert_array_equal(fitted.predict_log_mean(X[::-1])[::-1], together)
    assert fitted.predict_draws(X[:0:-200]).draws.shape[1] == 3


def test_training_is_adam_with_coupled_decay_on_every_batch(blobs):
    """Without dropout training is deterministic: a plain NumPy loop from the same start ends at the
    same weights.
    """
    X, y, _, _ = blobs  # 150 rows in batches of 32: the last batch has 22
    options = {**SMALL, "epochs": 2, "dropout": 0.0, "weight_decay": 0.02, "random_state": 3}
    head = MCDropoutClassifier(**options)
    untrained = MCDropoutClassifier(**{**options, "learning_rate": 1e-30}).fit(X, y)
    weights, biases = untrained.weights_, untrained.biases_
    seed = int(np.random.RandomState(3).randint(2**31 - 1))
    order = np.random.SeedSequence(seed).spawn(4)[1]
    batches = draw_batches(np.random.default_rng(order), 150, batch_size=32, epochs=2)
    # training rounds as JAX is told to; a GPU's default is 10 bits
    with jax.default_matmul_precision("highest"):
        head.fit(X, y)
    parameters = [
        np.asarray(a, dtype=float) for layer in zip(weights, biases, strict=True) for a in layer
    ]
    first, second = [np.zeros_like(p) for p in parameters], [np.zeros_like(p) for p in parameters]
    features = (X - head.feature_mean_) / head.feature_scale_
    for step, rows in enumerate(np.asarray(batches), start=1):
        rows = rows[: 22 if step % 5 == 0 else 32]
        inputs = [features[rows]]
        for i in range(0, len(parameters), 2):
            h = inputs[-1] @ parameters[i] + parameters[i + 1]
            inputs.append(np.maximum(h, 0))
        delta = np.exp(log_softmax(h, axis=1))
        delta[np.arange(len(rows)), y[rows]] -= 1
        delta /= len(rows)
        gradients = [np.zeros(0)] * len(parameters)
        for i in range(len(parameters) - 2, -1, -2):
            gradients[i], gradients[i + 1] = inputs[i // 2].T @ delta, delta.sum(axis=0)
            delta = (delta @ parameters[i].T) * (inputs[i // 2] > 0)
        for i, gradient in enumerate(gradients):
            gradient = gradient + 0.02 * parameters[i]
            first[i] = 0.9 * first[i] + 0.1 * gradient
            second[i] = 0.999 * second[i] + 0.001 * gradient**2
            change = first[i] / (1 - 0.9**step) / (np.sqrt(second[i] / (1 - 0.999**step)) + 1e-8)
            parameters[i] = parameters[i] - 1e-2 * change
    assert step == 2 * 5
    for i in range(3):
        np.testing.assert_allclose(head.weights_[i], parameters[2 * i], atol=5e-6)
        np.testing.assert_allclose(head.biases_[i], parameters[2 * i + 1], atol=5e-6)


def test_first_weights_are_uniform_within_one_over_the_root_of_the_inputs():
    """Each test errs once in 1,000 seeds."""
    layers = draw_start(np.random.default_rng(0), (30, 40, 7))
    assert [weight.shape for weight in layers.weights] == [(30, 40), (40, 7)]
    assert [bias.shape for bias in layers.biases] == [(40,), (7,)]
    for values, fan_in in zip([*layers.weights, *layers.biases], [30, 40, 30, 40], strict=True):
        assert values.dtype == np.float32
        assert kstest(np.ravel(values) * np.sqrt(fan_in), "uniform", args=(-1, 2)).pvalue > 1e-3


def test_every_epoch_takes_all_rows_in_a_random_order():
    """Each test errs once in 1,000 seeds."""
    steps = draw_batches(np.random.default_rng(1), 10, batch_size=4, epochs=300)
    steps = steps.reshape(300, 3, 4)
    orders = steps.reshape(300, 12)[:, :10]
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(10), (300, 1)))
    assert not steps[:, 2, 2:].any()  # padding
    for column in (0, 9):
        assert chisquare(np.bincount(orders[:, column], minlength=10)).pvalue > 1e-3


def test_a_constant_feature_stays_zero(blobs):
    X, y, X_new, _ = blobs
    constant = np.column_stack([X, np.full(150, 3e6)])
    head = MCDropoutClassifier(**SMALL, random_state=0).fit(constant, y)
    assert head.feature_scale_[7] == np.inf
    new, far = (np.column_stack([X_new, np.full(len(X_new), value)]) for value in (3e6, -1.0))
    np.testing.assert_array_equal(head.predict_proba(new), head.predict_proba(far))


def test_frozen_masks_keep_the_share_asked_for(blobs):
    X, y, _, _ = blobs
    head = MCDropoutClassifier(
        hidden=(64, 32), dropout=0.3, passes=200, epochs=1, random_state=0
    ).fit(X, y)
    for mask in head.masks_:
        assert binomtest(int(mask.sum()), mask.size, 0.7).pvalue > 1e-3
    other = clone(head).set_params(random_state=1).fit(X, y)
    assert np.mean(head.masks_[0] != other.masks_[0]) > 0.3
    again = clone(head).fit(X, y)
    np.testing.assert_array_equal(head.predict_proba(X), again.predict_proba(X))


def test_dropout_changes_the_weights_and_no_passes_means_the_whole_network(blobs):
    X, y, X_new, y_new = blobs
    head = MCDropoutClassifier(**SMALL, dropout=0.4, passes=0, random_state=0).fit(X, y)
    rate, passes = (
        clone(head).set_params(dropout=0.1).fit(X, y),
        clone(head).set_params(passes=20).fit(X, y),
    )
    assert np.max(np.abs(head.weights_[0] - rate.weights_[0])) > 1e-3
    np.testing.assert_array_equal(head.weights_[0], passes.weights_[0])
    assert head.predict_draws(X_new).draws.shape[0] == 1
    assert all(mask.all() for mask in head.masks_)
    np.testing.assert_allclose(
        head.predict_proba(X_new), np.exp(_plain_passes(head, X_new)[0]), atol=2e-6
    )
    assert head.score(X_new, y_new) > 0.9


def test_many_heads_together_are_the_heads_alone(blobs):
    """Two shapes of network, two data sets, dropout rates and seeds apart: as fitted alone, up to
    single precision.
    """
    X, y, X_new, _ = blobs
    labels = np.array(list("edcba"))[y]
    datasets = [(X, y), (X_new[:150], labels[:150])]
    heads = [
        MCDropoutClassifier(**SMALL, dropout=0.05, passes=3, random_state=0),
        MCDropoutClassifier(**SMALL, dropout=0.4, passes=0, weight_decay=0.1, random_state=1),
        MCDropoutClassifier(
            **{**SMALL, "hidden": (16,)}, passes=3, standardise=False, random_state=2
        ),
    ]
    with jax.default_matmul_precision("highest"):
        alone = [[clone(head).fit(*data) for head in heads] for data in datasets]
    for memory in (None, 1.0):
        with jax.default_matmul_precision("highest"):
            fits = MCDropoutClassifier.fit_many(datasets, heads, memory=memory)
        for row, row_alone in zip(fits, alone, strict=True):
            for head, head_alone in zip(row, row_alone, strict=True):
                np.testing.assert_array_equal(head.classes_, head_alone.classes_)
                np.testing.assert_allclose(
                    head.predict_proba(X_new), head_alone.predict_proba(X_new), atol=2e-4
                )
    assert not hasattr(heads[0], "weights_")


def test_data_sets_of_several_sizes_and_units_train_in_one_call(blobs):
    """Huge and constant features are standardised away."""
    X, y, X_new, y_new = blobs
    wide, wide_new = (
        np.column_stack([1e6 * a + 3e6, np.full(len(a), c)]) for a, c in ((X, 7.0), (X_new, -7.0))
    )
    head = MCDropoutClassifier(**SMALL, random_state=0)
    fits = MCDropoutClassifier.fit_many([(X, y), (X[:140], y[:140]), (wide, y)], [head])
    for (fitted_head,), rows in zip(fits, (X_new, X_new, wide_new), strict=True):
        assert fitted_head.score(rows, y_new) > 0.9
    assert MCDropoutClassifier.fit_many([], [head]) == []


def test_a_class_absent_from_training_has_no_column(blobs):
    X, y, X_new, _ = blobs
    head = MCDropoutClassifier(**SMALL, random_state=0).fit(X[y != 2], y[y != 2])
    np.testing.assert_array_equal(head.classes_, [0, 1, 3, 4])
    assert head.predict_draws(X_new).draws.shape[2] == 4
    assert 2 not in head.predict(X_new)
    two = MCDropoutClassifier(**SMALL, random_state=0).fit(X[:2], [0, 1])
    assert np.all(np.isfinite(two.predict_proba(X_new)))


def test_a_fitted_head_is_arrays_that_skops_can_store(fitted, blobs):
    _, _, X, _ = blobs
    stored = skops.io.dumps(fitted)
    unknown = skops.io.get_untrusted_types(data=stored)
    assert unknown == ["dco.bayes.mc_dropout.MCDropoutClassifier"]
    np.testing.assert_array_equal(
        skops.io.loads(stored, trusted=unknown).predict_proba(X), fitted.predict_proba(X)
    )


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
    X, y, _, _ = blobs
    with pytest.raises(ValueError, match=message):
        MCDropoutClassifier(**parameters).fit(X, y)


def test_bad_rows_are_named(fitted, blobs):
    X, y, _, _ = blobs
    with pytest.raises(ValueError, match="NaN"):
        MCDropoutClassifier(**SMALL).fit(np.where(np.arange(len(X))[:, None] == 3, np.nan, X), y)
    with pytest.raises(ValueError, match="6 features"):
        fitted.predict(X[:, :6])
    with pytest.raises(ValueError, match="continuous"):
        MCDropoutClassifier(**SMALL).fit(X, y + 0.5)
    with pytest.raises(ValueError, match="Training diverged"):
        MCDropoutClassifier(**{**SMALL, "learning_rate": 1e30}, random_state=0).fit(X, y)


def test_without_jax_the_extra_is_named(blobs, monkeypatch):
    X, y, _, _ = blobs
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingExtraError, match=r"\[bayes\]"):
        MCDropoutClassifier(**SMALL).fit(X, y)


def test_scikit_learn_contract():
    check_estimator(
        MCDropoutClassifier(hidden=(16,), passes=2, epochs=30, learning_rate=0.02, random_state=0),
        on_skip=None,
    )


@pytest.mark.parametrize("method", ["predict_log_mean", "predict_log_add_one_in", "predict_draws"])
def test_predictions_ask_for_whole_single_precision(fitted, blobs, monkeypatch, method):
    """A GPU would otherwise round to 10 bits; a CPU gives the same numbers either way, so the test
    looks at the setting.
    """
    asked = []
    program_of = mc_dropout._prediction_program

    def watched(what):
        def program(*arguments):
            asked.append(jax.config.jax_default_matmul_precision)
            return program_of(what)(*arguments)

        return program

    monkeypatch.setattr(mc_dropout, "_prediction_program", watched)
    getattr(fitted, method)(blobs[2])
    assert asked
    assert set(asked) == {"highest"}


@pytest.mark.skipif(jax.default_backend() == "cpu", reason="JAX finds no GPU")
def test_a_gpu_and_a_cpu_give_one_score(fitted, blobs):
    _, _, X, _ = blobs
    here = fitted.predict_log_mean(X), fitted.predict_log_add_one_in(X)
    with jax.default_device(jax.devices("cpu")[0]):
        there = fitted.predict_log_mean(X), fitted.predict_log_add_one_in(X)
    np.testing.assert_allclose(here, there, atol=1e-4)
