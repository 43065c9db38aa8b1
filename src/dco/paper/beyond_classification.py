"""Beyond the paper: a stronger candidate class for CIFAR-100 features, at the same guarantee.

All members read the square roots of the features (a frozen backbone's features are not negative,
and skewed), centred and divided by one number. Three families: a linear discriminant with its
covariance shrunk; a logistic regression with an L2 penalty; a network of one hidden layer with
weight decay, on the roots whitened by the discriminant's covariance. Each comes at several
temperatures and with several values of its own, and in means with others, of probabilities or of
their logarithms; some with RAPS or SAPS in place of -log p. Which values to list, and which
structure to fix where nothing is searched, was decided on 8,000 rows that no split ever uses
(`set_aside_table`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal, TypeAlias

import numpy as np
from scipy.special import log_softmax

import dco
from dco import ClassProbabilities
from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import order_statistic, tuning_rank
from dco.paper.heads import ScoreTable, score_table_rows
from dco.paper.tables import Cell, Measured, ResultTable
from dco.scores import RAPS, SAPS, LabelScore

SHRINKAGE = (0.6, 0.75, 0.85)
WHITENING = 0.75  # the shrinkage of the covariance that whitens the networks' input
# of the mean log loss, times half the squared weights: the same for every number of rows
PENALTIES = (0.02, 0.05, 0.1)
WIDTHS_AND_DECAYS = ((256, 0.01), (256, 0.02), (1024, 0.02))
RANK_SCORES: Mapping[str, LabelScore] = {
    "RAPS(0.01, 3)": RAPS(penalty=0.01, rank_free=3),
    "RAPS(0.1, 1)": RAPS(penalty=0.1, rank_free=1),
    "SAPS(0.1)": SAPS(weight=0.1),
}


# ---- the class


@dataclass(frozen=True)
class Head:
    """One fitted model: its family, and its shrinkage, penalty or weight decay; networks have a
    width.
    """

    family: Literal["discriminant", "logistic", "network"]
    value: float
    width: int | None = None

    @property
    def name(self) -> str:
        """Family, width, value."""
        width = "" if self.width is None else f"{self.width}, "
        return f"{self.family} {width}{self.value:g}"


Part: TypeAlias = tuple[Head, float]  # a head at a temperature


@dataclass(frozen=True)
class Structure:
    """Heads at temperatures, whose probabilities or logarithms are averaged, and a score.

    The score is -log p where none is named.
    """

    parts: tuple[Part, ...]
    mean: Literal["p", "log p"] = "p"
    score: str | None = None

    @property
    def name(self) -> str:
        """Each head with its temperature behind a slash."""
        listed = ", ".join(f"{head.name} / {temperature:g}" for head, temperature in self.parts)
        if len(self.parts) > 1:
            listed = f"mean {self.mean}: {listed}"
        return listed if self.score is None else f"{self.score} on {listed}"

    @property
    def kind(self) -> str:
        """The families in it, or the name of its score."""
        if self.score is not None:
            return self.score.split("(")[0]
        return " + ".join(head.family for head, _ in self.parts)


DISCRIMINANTS: tuple[Part, ...] = tuple(
    (Head("discriminant", shrinkage), temperature)
    for shrinkage, temperature in product(SHRINKAGE, (20.0, 28.0))
)
LOGISTICS: tuple[Part, ...] = tuple(
    (Head("logistic", penalty), temperature)
    for penalty, temperature in product(PENALTIES, (0.5, 0.7, 1.0))
)
NETWORKS: tuple[Part, ...] = tuple(
    (Head("network", decay, width), temperature)
    for (width, decay), temperature in product(WIDTHS_AND_DECAYS, (0.7, 1.0))
)
LOGISTIC: Part = (Head("logistic", 0.05), 0.7)  # where families are averaged
JOINT_NETWORKS = tuple(part for part in NETWORKS if part[1] == 0.7)
JOINT_DISCRIMINANTS: tuple[Part, ...] = (
    (Head("discriminant", 0.75), 28.0),
    (Head("discriminant", 0.85), 28.0),
)
ONE = Structure((JOINT_DISCRIMINANTS[0], LOGISTIC, (Head("network", 0.02, 1024), 0.7)))
FIXED = ONE.name


def list_structures() -> Iterator[Structure]:
    """List every member of the class: heads alone, means of two and of three, other scores."""
    for part in (*DISCRIMINANTS, *LOGISTICS, *NETWORKS):
        yield Structure((part,))
    for part in DISCRIMINANTS:
        yield Structure((part, LOGISTIC))
        yield Structure((part, LOGISTIC), mean="log p")
    for network in JOINT_NETWORKS:
        yield Structure((JOINT_DISCRIMINANTS[0], network))
    for part, network in product(JOINT_DISCRIMINANTS, JOINT_NETWORKS):
        yield Structure((part, LOGISTIC, network))
    for score in RANK_SCORES:
        yield Structure(ONE.parts, score=score)


STRUCTURES: Mapping[str, Structure] = {structure.name: structure for structure in list_structures()}


# ---- fitting it


class LinearDiscriminant:
    """log p(y | x) up to a constant for Gaussian classes with one covariance, shrunk towards a
    multiple of the identity.

    Σ_g = (1 - g) S + g tr(S) / d I with S the covariance within classes: one eigendecomposition
    serves every g.
    """

    def __init__(self, X: Floats, y: Integers) -> None:
        self.classes = np.unique(y)
        means = np.stack([X[y == label].mean(axis=0) for label in self.classes])
        within = (X - means[np.searchsorted(self.classes, y)]).astype(np.float64)
        self.eigenvalues, eigenvectors = np.linalg.eigh(within.T @ within / len(X))
        self.eigenvectors = eigenvectors.astype(np.float32)
        self.means = means @ self.eigenvectors

    def variances(self, shrinkage: float) -> Floats:
        """Return the eigenvalues of Σ_g."""
        shrunk = (1 - shrinkage) * self.eigenvalues + shrinkage * self.eigenvalues.mean()
        return np.asarray(shrunk, dtype=np.float32)

    def logits(self, rotated: Floats, shrinkage: float) -> Floats:
        """Return (n, classes), from rows in the basis of the eigenvectors."""
        variances = self.variances(shrinkage)
        constants = 0.5 * np.sum(self.means**2 / variances, axis=1)
        return np.asarray(rotated @ (self.means / variances).T - constants)


class FittedHeads:
    """The heads fitted on (X, y) and their logits on new rows; each is fitted when it is first
    asked for.
    """

    def __init__(self, X: Floats, y: Integers, X_new: Floats) -> None:
        roots = np.sqrt(np.maximum(X, 0))
        centre = roots.mean(axis=0)
        scale = (roots - centre).std()
        self.X = (roots - centre) / scale
        self.y = y
        self.X_new = (np.sqrt(np.maximum(X_new, 0)) - centre) / scale
        self.discriminant = LinearDiscriminant(self.X, y)
        self.rotated_new = self.X_new @ self.discriminant.eigenvectors
        self._logits: dict[Head, Floats] = {}

    def log_probabilities(self, head: Head, temperature: float) -> Floats:
        """Return log p(y | x) of one head at a temperature, (n, classes)."""
        if head not in self._logits:
            self._logits[head] = self._fit(head).astype(np.float64)
        return np.asarray(log_softmax(self._logits[head] / temperature, axis=1))

    @cached_property
    def whitened(self) -> tuple[Floats, Floats]:
        """Both sets of rows times Σ_g^(-1/2), in the basis of its eigenvectors, divided by one
        number.
        """
        sds = np.sqrt(self.discriminant.variances(WHITENING))
        rows = self.X @ self.discriminant.eigenvectors / sds
        scale = rows.std()
        return rows / scale, self.rotated_new / sds / scale

    def _fit(self, head: Head) -> Floats:
        if head.family == "discriminant":
            return self.discriminant.logits(self.rotated_new, head.value)
        if head.family == "logistic":
            return self._fit_logistic(head.value)
        return self._fit_network(head)

    def _fit_logistic(self, penalty: float) -> Floats:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=1 / (penalty * len(self.X)), tol=1e-3, max_iter=100)
        with warnings.catch_warnings():
            # a head not quite at its optimum is a head all the same
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(self.X, self.y)
        return np.asarray(model.decision_function(self.X_new))

    def _fit_network(self, head: Head) -> Floats:
        assert head.width is not None
        model = dco.bayes.MCDropoutClassifier(
            hidden=(head.width,),
            dropout=0.5,
            passes=0,
            epochs=4,
            batch_size=256,
            learning_rate=2e-3,
            weight_decay=head.value,
            standardise=False,
            random_state=0,
        )
        rows, new_rows = self.whitened
        return model.fit(rows, self.y).predict_log_mean(new_rows)


def strong_tables(
    X: Floats,
    y: Integers,
    X_new: Floats,
    y_new: Integers,
    *,
    n_classes: int,
    names: Iterable[str] | None = None,
) -> dict[str, ScoreTable]:
    """Fit members of the class (all by default) on (X, y), and score every label of new rows."""
    heads = FittedHeads(X, y, X_new)
    tables: dict[str, ScoreTable] = {}
    for name in STRUCTURES if names is None else names:
        # a label that training never saw is in no finite set
        scores = np.full((len(y_new), n_classes), np.inf)
        scores[:, heads.discriminant.classes] = score_labels(STRUCTURES[name], heads)
        tables[name] = ScoreTable(scores, y_new)
    return tables


def score_labels(structure: Structure, heads: FittedHeads) -> Floats:
    """Score every label that training has seen."""
    logs = [heads.log_probabilities(head, temperature) for head, temperature in structure.parts]
    if structure.mean == "p":
        log_p = np.logaddexp.reduce(logs) - np.log(len(logs))
    else:
        log_p = log_softmax(sum(logs) / len(logs), axis=1)
    if structure.score is None:
        return np.asarray(-log_p)
    score = RANK_SCORES[structure.score]
    return np.asarray(score.every_label(ClassProbabilities(np.exp(log_p))))


# ---- how the class was chosen


def set_aside_table(
    X: Floats,
    y: Integers,
    *,
    seeds: Sequence[int],
    alphas: Sequence[float],
    n_train: int = 2000,
    n_classes: int = 100,
) -> ResultTable:
    """Measure every member on rows set aside: fit on `n_train` of them, and take the mean size at
    risk <= alpha on the others.
    """
    mean_sizes: dict[str, list[list[float]]] = {name: [] for name in STRUCTURES}
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(y))
        fit = order[:n_train]
        rest = order[n_train:]
        tables = strong_tables(X[fit], y[fit], X[rest], y[rest], n_classes=n_classes)
        for name, table in tables.items():
            mean_sizes[name].append([mean_size(table, alpha) for alpha in alphas])

    by_level = {
        name: [Measured.of(column) for column in zip(*by_seed, strict=True)]
        for name, by_seed in mean_sizes.items()
    }
    names = sorted(
        by_level, key=lambda name: float(np.sum(np.log([cell.mean for cell in by_level[name]])))
    )
    rows: list[tuple[Cell, ...]] = [(name, *by_level[name]) for name in names]
    return ResultTable(
        title="CIFAR-100: the stronger class on rows set aside",
        caption=f"Mean set size on rows that no split uses: {len(seeds)} random divisions, "
        f"{n_train} rows to fit, the others to measure, the smallest threshold with empirical risk "
        "at most α. EfficientNet-Lite2 features.",
        columns=("structure", *(f"size at {1 - alpha:g}" for alpha in alphas)),
        rows=tuple(rows),
    )


def mean_size(table: ScoreTable, alpha: float) -> float:
    """Return the mean size of sets at the smallest threshold with empirical risk <= alpha."""
    rows = score_table_rows(table)
    threshold = order_statistic(rows.scores, tuning_rank(len(table), alpha=alpha))
    return float(rows.sizes(threshold).mean())
