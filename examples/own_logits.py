"""Any network by its logits: the array core needs no model, only what it said about tuning,
calibration and new rows.

The network here is a small torch module; where torch is not installed, softmax regression in NumPy
stands in for it. Everything after `logits_of` is the same for any framework: softmax, choose a
score on tuning rows, take one order statistic of the calibration scores, make sets.
"""

from __future__ import annotations

import importlib.util

import numpy as np
from scipy.special import softmax
from sklearn.datasets import load_digits

import dco

ALPHA = 0.05


def logits_of(X_train, y_train, X):
    """The logits of a network fitted on training rows, for all rows of X."""
    fit = torch_logits if importlib.util.find_spec("torch") else numpy_logits
    return fit(X_train, y_train, X)


def torch_logits(X_train, y_train, X):
    import torch

    torch.manual_seed(0)
    place = "cuda" if torch.cuda.is_available() else "cpu"
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).to(
        place
    )
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    inputs, targets = (
        torch.tensor(X_train, dtype=torch.float32, device=place),
        torch.tensor(y_train, device=place),
    )
    for _ in range(100):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(inputs), targets).backward()
        optimiser.step()
    net.eval()  # dropout and batch norm off: a score must be one fixed function of the row
    with torch.no_grad():
        return net(torch.tensor(X, dtype=torch.float32, device=place)).cpu().numpy()


def numpy_logits(X_train, y_train, X, steps=300, rate=0.5):
    weights = np.zeros((X_train.shape[1], 10))
    truth = np.eye(10)[y_train]
    for _ in range(steps):
        weights -= rate * X_train.T @ (softmax(X_train @ weights, axis=1) - truth) / len(y_train)
    return X @ weights


def main():
    X, y = load_digits(return_X_y=True)
    X = X / 16
    shuffled = np.random.default_rng(0).permutation(len(y))
    train, tune, calibrate, new = np.split(shuffled, [500, 800, 1200])

    probabilities = softmax(logits_of(X[train], y[train], X), axis=1)
    record = {
        role: dco.ClassProbabilities(probabilities[rows])
        for role, rows in (("tune", tune), ("calibrate", calibrate), ("new", new))
    }
    scores = {
        "LAC": dco.scores.LAC(),
        "APS": dco.scores.APS(),
        **{f"RAPS {penalty}": dco.scores.RAPS(penalty, 2) for penalty in (0.01, 0.1)},
        "margin": dco.scores.Margin(),
    }
    ranking = dco.tune(
        {name: (score, record["tune"]) for name, score in scores.items()}, y[tune], alpha=ALPHA
    )
    for row in ranking.table:
        print(f"{row.name:10} mean size {row.mean_size:.3f} on tuning rows")

    best = scores[ranking.best]
    threshold = dco.split_conformal(best.observed(record["calibrate"], y[calibrate]), alpha=ALPHA)
    sets = best.sets(record["new"], threshold)
    print(
        f"\n{ranking.best}, rank {threshold.rank} of {threshold.n}: coverage at least "
        f"{1 - ALPHA:.0%}"
    )
    print(dco.evaluate(sets, y[new], threshold=threshold))
    unsure = int(np.argmax(sets.sizes()))
    print(
        f"\nthe least certain new digit is a {y[new][unsure]}: its set is {sets.to_lists()[unsure]}"
    )


if __name__ == "__main__":
    main()
