"""What choosing costs on image features: the 20 superclasses of CIFAR-100, with few candidates and
with many near-ties.

The comparison is that of `selection_costs`. Labels are superclasses, since of 100 classes most have
no row where n is 50, and every set would be full. The 1,280 features are cut to 32 principal
components, found on the rows set aside. Every model counts one more row of each class, so that it
has a probability for classes that it never saw.
"""

from __future__ import annotations

import warnings
from functools import lru_cache, partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from dco.estimators import DecoupledClassifier
from dco.foundations.arrays import Floats, Integers
from dco.predictions import ClassProbabilities
from dco.reproduction.classification_splits import cifar100_rows, cifar100_rows_set_aside
from dco.reproduction.datasets.images import CIFAR100_FEATURES
from dco.reproduction.experiment import Experiment, Options, Records, needs_file
from dco.reproduction.selection_costs import QUICK_ROWS, ROWS, Field, cost_rows, methods_rows
from dco.reproduction.tables import ResultTable
from dco.scores.classification import LAC, RAPS
from dco.scores.score import Score

# The superclass of each of CIFAR-100's classes, in alphabetical order of both.
SUPERCLASSES = np.array(
    [
        4,
        1,
        14,
        8,
        0,
        6,
        7,
        7,
        18,
        3,
        3,
        14,
        9,
        18,
        7,
        11,
        3,
        9,
        7,
        11,
        6,
        11,
        5,
        10,
        7,
        6,
        13,
        15,
        3,
        15,
        0,
        11,
        1,
        10,
        12,
        14,
        16,
        9,
        11,
        5,
        5,
        19,
        8,
        8,
        15,
        13,
        14,
        17,
        18,
        10,
        16,
        4,
        17,
        4,
        2,
        0,
        17,
        4,
        18,
        17,
        10,
        3,
        2,
        12,
        12,
        16,
        12,
        1,
        9,
        19,
        2,
        10,
        0,
        1,
        16,
        12,
        9,
        13,
        15,
        13,
        16,
        19,
        2,
        4,
        6,
        19,
        5,
        5,
        8,
        19,
        18,
        1,
        2,
        15,
        6,
        0,
        17,
        8,
        14,
        13,
    ]
)
COMPONENTS, TEST = 32, 200
SCORES: dict[str, Score] = {"LAC": LAC(), "RAPS": RAPS(penalty=0.02, rank_free=3)}
# of the discriminants, by number of candidates
SHRINKAGE = {6: (0.1, 0.5), 16: (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)}
NEIGHBOURS = {6: (15,), 16: (10, 20)}


class OneMoreRow(ClassifierMixin, BaseEstimator):
    """A classifier that also counts one row of each of `n_classes` classes, and so knows all of
    them.
    """

    def __init__(self, model: Any, n_classes: int) -> None:
        self.model = model
        self.n_classes = n_classes

    def fit(self, X: Any, y: Any) -> OneMoreRow:
        """Fit the model to the classes that are there."""
        self.fitted_, self.n_, self.classes_ = (
            clone(self.model).fit(X, y),
            len(y),
            np.arange(self.n_classes),
        )
        return self

    def predict_proba(self, X: Any) -> Floats:
        """(n p + 1) / (n + K), p = 0 for classes that the model does not know; others by their
        fourth roots, since few rows make a discriminant too sure of itself.
        """
        known, roots = np.zeros((len(X), self.n_classes)), self.fitted_.predict_proba(X) ** 0.25
        known[:, self.fitted_.classes_] = roots / roots.sum(axis=1, keepdims=True)
        return np.asarray((self.n_ * known + 1) / (self.n_ + self.n_classes))

    def predict(self, X: Any) -> Integers:
        """The most probable class."""
        return np.asarray(self.predict_proba(X).argmax(axis=1))


def _models(count: int) -> dict[str, Any]:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.neighbors import KNeighborsClassifier

    made = {
        f"discriminant {share:g}": LinearDiscriminantAnalysis(solver="lsqr", shrinkage=share)
        for share in SHRINKAGE[count]
    } | {f"{k} neighbours": KNeighborsClassifier(k) for k in NEIGHBOURS[count]}
    return {name: OneMoreRow(model, int(SUPERCLASSES.max()) + 1) for name, model in made.items()}


def _candidates(count: int) -> list[tuple[str, str, Score, type]]:
    return [
        (f"{model} / {name}", model, score, ClassProbabilities)
        for model in _models(count)
        for name, score in SCORES.items()
    ]


FIELDS = {
    count: Field(
        partial(DecoupledClassifier, scores=SCORES),
        partial(_models, count),
        partial(_candidates, count),
    )
    for count in SHRINKAGE
}


@lru_cache(maxsize=1)
def superclass_rows(data_home: str | None) -> tuple[Floats, Integers]:
    """Components of the roots of the features, and superclasses, of all rows but those set
    aside.
    """
    aside, rows = cifar100_rows_set_aside(data_home), cifar100_rows(data_home)
    roots = np.sqrt(np.maximum(aside.features.astype(np.float64), 0))
    centre = roots.mean(axis=0)
    axes = np.linalg.eigh(np.cov(roots.T))[1][:, -COMPONENTS:]
    X = (np.sqrt(np.maximum(rows.features.astype(np.float64), 0)) - centre) @ axes
    return X, SUPERCLASSES[rows.labels]


def labels_split(seed: int, options: Options) -> list[dict[str, Any]]:
    """Every method on the first n rows of a permutation, measured on the same rows at its end; few
    candidates and many.
    """
    X, y = superclass_rows(options.data_home)
    order = np.random.default_rng([seed, 18]).permutation(len(y))
    X, y = X[order], y[order]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # scikit-learn's, of classes with one row
        return [
            {"data": f"CIFAR-100, {count} candidates", "n": n, "alpha": alpha, **row}
            for count, field in FIELDS.items()
            for n in (QUICK_ROWS if options.quick else ROWS)
            for alpha in options.alphas
            for row in methods_rows(
                field, X[:n], y[:n], X[-TEST:], y[-TEST:], alpha=alpha, seed=seed
            )
        ]


def labels_tables(records: Records, options: Options) -> list[ResultTable]:
    """The costs on labels."""
    text = (
        f"CIFAR-100's 20 superclasses on {COMPONENTS} components of EfficientNet-Lite2's "
        f"features; {len(records)} splits, "
        f"{TEST} test rows each. Candidates: shrunken discriminants and neighbours, each by LAC "
        f"and RAPS. n rows in all: "
        "half train, a quarter tunes, a quarter calibrates; joint selection trains on three "
        "quarters, and chooses and "
        "calibrates on the last."
    )
    shown = (
        "DCO: mean number of labels; others: change in per cent ± half of its 95 % interval, "
        "paired by split."
    )
    best = "Hindsight: the one candidate that is best over all splits, by split CP."
    sizes, covers = cost_rows(records)
    return [
        ResultTable.of("What selection costs on CIFAR-100: size", f"{text} {shown} {best}", sizes),
        ResultTable.of(
            "What selection costs on CIFAR-100: coverage",
            f"{text} Mean coverage of the test rows.",
            covers,
        ),
    ]


EXPERIMENTS = (
    Experiment(
        name="selection-cifar100",
        summary="What choosing costs on image features, with 6 candidates and with 16 that are "
        "nearly tied.",
        needs=CIFAR100_FEATURES,
        minutes=4.0,
        run_split=labels_split,
        tables=labels_tables,
        missing=needs_file("CIFAR-100", CIFAR100_FEATURES),
        alphas=(0.1,),
        quick_splits=2,
    ),
)
