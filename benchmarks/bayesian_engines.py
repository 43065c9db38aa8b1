"""What the Bayesian engines cost, beside the plain way of doing the same. Prints the two tables of
docs/bayesian-engines.md.

    python benchmarks/bayesian_engines.py [--features FOLDER] [--quick]

FOLDER holds the CIFAR-100 features; without it DCO_DATA_HOME is looked at, and without that the
second table is left out. All times are CPU seconds of this process (other programs on the machine
do not count), the plain way and ours in one run.
"""

from __future__ import annotations

import argparse
import time
from itertools import product

from harness import conditions  # isort: skip (sets the threads)

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import MCMC, NUTS
from sklearn.datasets import load_diabetes

from dco.bayes.mc_dropout import MCDropoutClassifier, standardise
from dco.bayes.sparse_regression import SparseBayesianRegression
from dco.datasets import load_cifar100_features


def timed(function):
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def plain_numpyro(X, y, c, seed, *, draws, warmup):
    """The model as one would write it in NumPyro, a fresh run with its own compilation, one
    chain.
    """
    Z, t = jnp.asarray((X - X.mean(0)) / X.std(0)), jnp.asarray((y - y.mean()) / y.std())

    def model(Z, t):
        b = numpyro.sample("b", dist.Gamma(1.0, 1.0))
        tau = numpyro.sample("tau", dist.HalfNormal(c))
        theta = numpyro.sample("theta", dist.Laplace(0.0, b).expand([Z.shape[1]]).to_event(1))
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 10.0))
        numpyro.sample("t", dist.Normal(Z @ theta + intercept, tau), obs=t)

    run = MCMC(NUTS(model), num_warmup=warmup, num_samples=draws, progress_bar=False)
    run.run(jax.random.PRNGKey(seed), Z, t)
    return float(np.mean(run.get_samples()["tau"]))


def regression(*, splits=50, plain_fits=4, draws=8000, warmup=600):
    X, y = load_diabetes(return_X_y=True)
    rng = np.random.default_rng(0)
    datasets = [
        (X[rows], y[rows]) for rows in (rng.permutation(len(y))[:150] for _ in range(splits))
    ]
    scales = (1.0, 0.02)
    fits_in_all = splits * len(scales)
    length = {"draws": draws, "warmup": warmup}

    first = list(product(range(splits), scales))[:plain_fits]
    measured = [
        timed(lambda i=i, c=c: plain_numpyro(*datasets[i], c, i, **length)) for i, c in first
    ]
    plain = np.mean([seconds for seconds, _ in measured])
    one, model = timed(lambda: SparseBayesianRegression(random_state=0, **length).fit(*datasets[0]))
    many, fits = timed(
        lambda: SparseBayesianRegression.fit_many(datasets, scales, random_state=0, **length)
    )
    settings = {"sampler": "nuts", "chains": 1, "random_state": 0, **length}
    nuts, nuts_fits = timed(lambda: SparseBayesianRegression.fit_many(datasets, scales, **settings))
    noise = [np.mean([row[j].noise_sd_ / row[j].y_scale_ for row in fits]) for j in range(2)]
    print(
        f"- Noise sd, mean over {splits} splits: {noise[0]:.3f} (c = 1), {noise[1]:.3f} (c = 0.02)"
    )
    print(f"- Gibbs, one fit: {model.ess_:.0f} effective draws, R-hat {model.rhat_:.4f}")
    for name, rows in (("gibbs", fits), ("nuts", nuts_fits)):
        worst = min(m.ess_ for row in rows for m in row), max(m.rhat_ for row in rows for m in row)
        print(
            f"- fit_many, {name}: least effective draws {worst[0]:.0f}, largest R-hat "
            f"{worst[1]:.4f}"
        )
    print(
        f"\n| Diabetes, 150 rows, {draws:,} draws after {warmup} | CPU s | times cheaper "
        f"|\n|---|---|---|"
    )
    print(f"| NumPyro, one fit (mean of {len(measured)}) | {plain:.1f} | |")
    print(f"| Gibbs, one fit | {one:.2f} | {plain / one:.0f} |")
    print(
        f"| NumPyro, {fits_in_all} separate fits (scaled from {len(measured)}) | "
        f"{fits_in_all * plain:.0f} | 1 |"
    )
    print(
        f"| `fit_many`, {splits} splits × 2 priors, NUTS, compiled once | {nuts:.1f} | "
        f"{fits_in_all * plain / nuts:.0f} |"
    )
    print(
        f"| `fit_many`, {splits} splits × 2 priors, Gibbs | {many:.1f} | "
        f"{fits_in_all * plain / many:.0f} |"
    )


def plain_head(task, head):
    """The usual loop: one compiled step, called batch by batch; returns the trained layers."""
    optimiser = optax.chain(
        optax.add_decayed_weights(head.weight_decay),
        optax.scale_by_adam(),
        optax.scale(-head.learning_rate),
    )

    def loss(layers, x, y, key):
        weights, biases = layers
        for i in range(len(weights) - 1):
            x = jax.nn.relu(x @ weights[i] + biases[i])
            x = jnp.where(
                jax.random.bernoulli(jax.random.fold_in(key, i), 1 - head.dropout, x.shape),
                x / (1 - head.dropout),
                0,
            )
        return optax.softmax_cross_entropy_with_integer_labels(
            x @ weights[-1] + biases[-1], y
        ).mean()

    @jax.jit
    def step(layers, moments, x, y, key):
        change, moments = optimiser.update(jax.grad(loss)(layers, x, y, key), moments, layers)
        return optax.apply_updates(layers, change), moments

    layers = tuple(
        [jnp.asarray(array) for array in arrays]
        for arrays in (task.start.weights, task.start.biases)
    )
    moments, key = optimiser.init(layers), jax.random.key(0)
    n = len(task.rows.codes)
    batch_size = task.batches.shape[1]
    per_epoch = -(-n // batch_size)
    for number, rows in enumerate(task.batches):
        rows = rows[: n - number % per_epoch * batch_size]  # without what fills the last batch
        layers, moments = step(
            layers,
            moments,
            task.rows.features[rows],
            task.rows.codes[rows],
            jax.random.fold_in(key, number),
        )
    return jax.block_until_ready(layers)


@jax.jit
def whole_pass(weights, biases, masks, x):
    for weight, bias, mask in zip(weights[:-1], biases[:-1], masks, strict=True):
        x = jax.nn.relu(x @ weight + bias) * mask
    return jax.nn.softmax(x @ weights[-1] + biases[-1])


def plain_predict(head, rows):
    """Every pass through the whole network; all T × n × K probabilities kept, then averaged."""
    x = jnp.asarray((rows - head.feature_mean_) / head.feature_scale_)
    draws = [
        np.asarray(
            whole_pass(
                head.weights_, head.biases_, [m[t] / (1 - head.dropout) for m in head.masks_], x
            )
        )
        for t in range(head.passes)
    ]
    return np.mean(draws, axis=0)


def classification(data, *, size=2000):
    rows = np.random.default_rng(0).permutation(len(data))
    train, other, test = rows[:size], rows[size : 2 * size], rows[2 * size : 3 * size]
    X_test, y_test = data.features[test], data.labels[test]
    datasets = [(data.features[part], data.labels[part]) for part in (train, other)]
    heads = [MCDropoutClassifier(dropout=rate, random_state=0) for rate in (0.1, 0.3)]

    def cold_and_warm(function):
        cold, _ = timed(function)
        warm, result = timed(function)
        return cold, warm, result

    features, codes = heads[0]._check_rows(*datasets[0])
    task = heads[0]._prepare_training(standardise(features, codes))
    loop, (weights, biases) = timed(lambda: plain_head(task, heads[0]))
    cold, warm, head = cold_and_warm(lambda: MCDropoutClassifier(random_state=0).fit(*datasets[0]))
    many_cold, many, _ = cold_and_warm(lambda: MCDropoutClassifier.fit_many(datasets, heads))
    _, plain, p_plain = cold_and_warm(lambda: plain_predict(head, X_test))
    _, ours, p_ours = cold_and_warm(lambda: head.predict_proba(X_test))
    looped = MCDropoutClassifier(random_state=0).fit(*datasets[0])
    looped.weights_, looped.biases_ = (
        [np.asarray(w) for w in weights],
        [np.asarray(b) for b in biases],
    )
    head_passes = head.passes
    whole = head.set_params(passes=0)
    masks, whole.masks_ = whole.masks_, [np.ones((1, m.shape[1]), dtype=bool) for m in whole.masks_]
    off = whole.score(X_test, y_test)
    print(
        f"\n| CIFAR-100 features, {size:,} train / {size:,} test rows | CPU s | accuracy "
        f"|\n|---|---|---|"
    )
    print(
        f"| train one head, plain loop over batches (with compilation) | {loop:.1f} | "
        f"{looped.score(X_test, y_test):.3f} |"
    )
    print(f"| train one head, `fit` (first call, with compilation) | {cold:.1f} | |")
    accuracy = np.mean(head.classes_[p_ours.argmax(1)] == y_test)
    print(f"| train one head, `fit` (again) | {warm:.1f} | {accuracy:.3f} |")
    print(
        f"| train a head in `fit_many`, 2 splits × 2 rates (again; first {many_cold / 4:.1f}) | "
        f"{many / 4:.1f} | |"
    )
    right = np.mean(p_plain.argmax(1) == y_test)
    print(
        f"| predict {size:,} rows, {head_passes} whole passes, all kept | {plain:.2f} | "
        f"{right:.3f} |"
    )
    print(f"| predict {size:,} rows, `predict_proba` | {ours:.2f} | {accuracy:.3f} |")
    print(f"| the same with dropout off (`passes=0`) | | {off:.3f} |")
    print(
        f"\nLargest difference of the two predictions: {np.max(np.abs(p_plain - p_ours)):.1e}; "
        f"{len(masks[0])} passes"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", help="the folder of the CIFAR-100 features")
    parser.add_argument(
        "--quick", action="store_true", help="one split and few draws, to see that it runs"
    )
    given = parser.parse_args()
    print(conditions() + "\n")
    if given.quick:
        regression(splits=1, plain_fits=1, draws=200, warmup=100)
    else:
        regression()
    try:
        data = load_cifar100_features(given.features)
    except FileNotFoundError as problem:
        print(f"\nThe second table was not measured. {problem}")
        return
    classification(data, size=200 if given.quick else 2000)


if __name__ == "__main__":
    main()
