"""A stronger candidate class for CIFAR-100 features, certified at the same level as the paper's DCO.

All members read the square roots of the features (a frozen backbone's features are not negative, and skewed), centred and
divided by one number. Three families: a linear discriminant with its covariance shrunk, a logistic regression with an L2
penalty, and means of the two, of probabilities or of their logarithms; each at several temperatures, and some with RAPS or
SAPS in place of -log p. Which values to list, and which one to fix where nothing is searched, was decided on 8,000 rows
that no split ever uses (`set_aside_table`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import log_softmax

from dco.arrays import Floats, Integers
from dco.experiments.heads import ScoreTable
from dco.experiments.tables import Cell, Measured, ResultTable
from dco.predictions import ClassProbabilities
from dco.ranks import tuning_rank
from dco.scores.classification import RAPS, SAPS, LabelScore
from dco.thresholds.threshold import order_statistic

SHRINKAGE = (0.6, 0.75, 0.85)
DISCRIMINANT_TEMPERATURES = (20.0, 28.0)
LOGISTIC_TEMPERATURES = (0.5, 0.7, 1.0)
PENALTY = 0.05  # of the mean log loss, times half the squared weights: the same for every number of rows
JOINT_TEMPERATURE = 0.7  # of the logistic member where the two families are averaged
FIXED = "mean p: discriminant 0.75 / 28, logistic 0.7"
RANK_SCORES: Mapping[str, LabelScore] = {
    "RAPS(0.01, 3)": RAPS(penalty=0.01, rank_free=3),
    "RAPS(0.1, 1)": RAPS(penalty=0.1, rank_free=1),
    "SAPS(0.1)": SAPS(weight=0.1),
}


class LinearDiscriminant:
    """log p(y | x) up to a constant for Gaussian classes with one covariance, shrunk towards a multiple of the identity.

    Σ_g = (1 - g) S + g tr(S) / d I with S the covariance within classes: one eigendecomposition serves every g.
    """

    def __init__(self, X: Floats, y: Integers) -> None:
        self.classes = np.unique(y)
        means = np.stack([X[y == label].mean(axis=0) for label in self.classes])
        within = (X - means[np.searchsorted(self.classes, y)]).astype(np.float64)
        self.values, vectors = np.linalg.eigh(within.T @ within / len(X))
        self.vectors = vectors.astype(np.float32)
        self.means = means @ self.vectors

    def logits(self, X: Floats, shrinkage: Sequence[float]) -> list[Floats]:
        """(n, classes) for each amount of shrinkage."""
        turned, found = X @ self.vectors, []
        for g in shrinkage:
            spread = ((1 - g) * self.values + g * self.values.mean()).astype(np.float32)
            found.append(turned @ (self.means / spread).T - 0.5 * np.sum(self.means**2 / spread, axis=1))
        return found


def _logistic_logits(X: Floats, y: Integers, X_new: Floats) -> Floats:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1 / (PENALTY * len(X)), tol=1e-3, max_iter=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a head that is not quite at its optimum is a head all the same
        model.fit(X, y)
    return np.asarray(model.decision_function(X_new))


def strong_tables(X: Floats, y: Integers, X_new: Floats, y_new: Integers, *, n_classes: int) -> dict[str, ScoreTable]:
    """The score table of every member of the class on new rows, fitted on (X, y)."""
    root, new = np.sqrt(np.maximum(X, 0)), np.sqrt(np.maximum(X_new, 0))
    centre = root.mean(axis=0)
    scale = (root - centre).std()
    root, new = (root - centre) / scale, (new - centre) / scale
    discriminant = LinearDiscriminant(root, y)
    logs: dict[str, Floats] = {}
    for g, logits in zip(SHRINKAGE, discriminant.logits(new, SHRINKAGE), strict=True):
        for t in DISCRIMINANT_TEMPERATURES:
            logs[f"discriminant {g:g} / {t:g}"] = log_softmax(logits.astype(np.float64) / t, axis=1)
    logits = _logistic_logits(root, y, new)
    linear = {f"logistic {t:g}": log_softmax(logits.astype(np.float64) / t, axis=1) for t in LOGISTIC_TEMPERATURES}
    joint = linear[f"logistic {JOINT_TEMPERATURE:g}"]
    both: dict[str, Floats] = {}
    for name, log_p in logs.items():
        both[f"mean p: {name}, logistic {JOINT_TEMPERATURE:g}"] = np.logaddexp(log_p, joint) - np.log(2)
        both[f"mean log p: {name}, logistic {JOINT_TEMPERATURE:g}"] = log_softmax((log_p + joint) / 2, axis=1)
    logs = {**logs, **linear, **both}
    tables = {name: _table(-log_p, discriminant.classes, y_new, n_classes) for name, log_p in logs.items()}
    probabilities = ClassProbabilities(np.exp(logs[FIXED]))
    for name, score in RANK_SCORES.items():
        tables[f"{name} on {FIXED}"] = _table(score.every_label(probabilities), discriminant.classes, y_new, n_classes)
    return tables


def _table(scores: Floats, classes: Integers, y: Integers, n_classes: int) -> ScoreTable:
    every = np.full((len(y), n_classes), np.inf)
    every[:, classes] = scores
    return ScoreTable(every, y)


def set_aside_table(
    X: Floats, y: Integers, *, seeds: Sequence[int], alphas: Sequence[float], train: int = 2000, n_classes: int = 100
) -> ResultTable:
    """Mean sizes of every member on rows set aside: fit on `train` of them, measure at risk <= alpha on the others."""
    sizes: dict[str, list[list[float]]] = {}
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(y))
        fit, rest = order[:train], order[train:]
        for name, table in strong_tables(X[fit], y[fit], X[rest], y[rest], n_classes=n_classes).items():
            cuts = [order_statistic(table.observed, tuning_rank(len(table), alpha=alpha)) for alpha in alphas]
            sizes.setdefault(name, []).append([float(table.sizes(cut).mean()) for cut in cuts])
    rows: list[tuple[Cell, ...]] = [
        (name, *(Measured.of(column) for column in zip(*found, strict=True))) for name, found in sizes.items()
    ]
    rows.sort(key=lambda row: sum(np.log(cell.mean) for cell in row[1:] if isinstance(cell, Measured)))
    return ResultTable(
        "CIFAR-100: the stronger class on rows set aside",
        f"Mean set size on rows that no split uses: {len(seeds)} random divisions, {train} rows to fit, the others to "
        "measure, the smallest threshold with empirical risk at most α. EfficientNet-Lite2 features.",
        ("structure", *(f"size at {1 - alpha:g}" for alpha in alphas)),
        tuple(rows),
    )
