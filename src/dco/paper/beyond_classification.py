"""A stronger candidate class for CIFAR-100 features, certified at the same level as the paper's
DCO.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np
from scipy.special import log_softmax

from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import order_statistic, tuning_rank
from dco.paper.heads import ScoreTable
from dco.paper.tables import Cell, Measured, ResultTable
from dco.predictions import ClassProbabilities
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

# ---- the class -----------------------------------------------------------------------------------
# --------------------


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
        return f"{self.family} {'' if self.width is None else f'{self.width}, '}{self.value:g}"


@dataclass(frozen=True)
class Heads:
    """Heads with their temperatures, whose probabilities or logarithms are averaged, and a score
    (None: -log p).
    """

    parts: tuple[tuple[Head, float], ...]
    mean: Literal["p", "log p"] = "p"
    score: str | None = None

    @property
    def name(self) -> str:
        """Each head with its temperature behind a slash."""
        listed = ", ".join(f"{head.name} / {t:g}" for head, t in self.parts)
        mean = f"mean {self.mean}: {listed}" if len(self.parts) > 1 else listed
        return mean if self.score is None else f"{self.score} on {mean}"

    @property
    def kind(self) -> str:
        """The families in it, or the name of its score."""
        return (
            self.score.split("(")[0]
            if self.score
            else " + ".join(head.family for head, _ in self.parts)
        )


DISCRIMINANTS = tuple((Head("discriminant", g), t) for g, t in product(SHRINKAGE, (20.0, 28.0)))
LOGISTICS = tuple(
    (Head("logistic", penalty), t) for penalty, t in product(PENALTIES, (0.5, 0.7, 1.0))
)
NETWORKS = tuple(
    (Head("network", decay, width), t)
    for (width, decay), t in product(WIDTHS_AND_DECAYS, (0.7, 1.0))
)
LOGISTIC = (Head("logistic", 0.05), 0.7)  # where families are averaged
JOINT_NETWORKS = tuple(part for part in NETWORKS if part[1] == 0.7)
JOINT_DISCRIMINANTS = ((Head("discriminant", 0.75), 28.0), (Head("discriminant", 0.85), 28.0))
ONE = Heads((JOINT_DISCRIMINANTS[0], LOGISTIC, (Head("network", 0.02, 1024), 0.7)))
FIXED = ONE.name


def _structures() -> Iterable[Heads]:
    yield from (Heads((part,)) for part in (*DISCRIMINANTS, *LOGISTICS, *NETWORKS))
    for part in DISCRIMINANTS:
        yield Heads((part, LOGISTIC))
        yield Heads((part, LOGISTIC), mean="log p")
    yield from (Heads((JOINT_DISCRIMINANTS[0], network)) for network in JOINT_NETWORKS)
    yield from (
        Heads((part, LOGISTIC, network))
        for part, network in product(JOINT_DISCRIMINANTS, JOINT_NETWORKS)
    )
    yield from (Heads(ONE.parts, score=score) for score in RANK_SCORES)


STRUCTURES: Mapping[str, Heads] = {structure.name: structure for structure in _structures()}

# ---- fitting it ----------------------------------------------------------------------------------
# --------------------


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
        self.values, vectors = np.linalg.eigh(within.T @ within / len(X))
        self.vectors = vectors.astype(np.float32)
        self.means = means @ self.vectors

    def spread(self, shrinkage: float) -> Floats:
        """The eigenvalues of Σ_g."""
        return np.asarray(
            (1 - shrinkage) * self.values + shrinkage * self.values.mean(), dtype=np.float32
        )

    def logits(self, turned: Floats, shrinkage: float) -> Floats:
        """(n, classes), from rows in the basis of the eigenvectors, X @ vectors."""
        spread = self.spread(shrinkage)
        return np.asarray(
            turned @ (self.means / spread).T - 0.5 * np.sum(self.means**2 / spread, axis=1)
        )


class FittedHeads:
    """The heads fitted on (X, y) and their logits on new rows; each is fitted when it is first
    asked for.
    """

    def __init__(self, X: Floats, y: Integers, X_new: Floats) -> None:
        root, new = np.sqrt(np.maximum(X, 0)), np.sqrt(np.maximum(X_new, 0))
        centre = root.mean(axis=0)
        scale = (root - centre).std()
        self.X, self.y, self.new = (root - centre) / scale, y, (new - centre) / scale
        self.discriminant = LinearDiscriminant(self.X, y)
        self.turned = self.new @ self.discriminant.vectors
        self._logits: dict[Head, Floats] = {}

    @cached_property
    def whitened(self) -> tuple[Floats, Floats]:
        """Both sets of rows times Σ_g^(-1/2), in the basis of its eigenvectors, divided by one
        number.
        """
        root = np.sqrt(self.discriminant.spread(WHITENING))
        rows = self.X @ self.discriminant.vectors / root
        scale = rows.std()
        return rows / scale, self.turned / root / scale

    def log_probabilities(self, head: Head, temperature: float) -> Floats:
        """log p(y | x) of one head at a temperature, (n, classes)."""
        if head not in self._logits:
            self._logits[head] = self._fitted(head).astype(np.float64)
        return np.asarray(log_softmax(self._logits[head] / temperature, axis=1))

    def _fitted(self, head: Head) -> Floats:
        if head.family == "discriminant":
            return self.discriminant.logits(self.turned, head.value)
        return self._logistic(head.value) if head.family == "logistic" else self._network(head)

    def _logistic(self, penalty: float) -> Floats:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=1 / (penalty * len(self.X)), tol=1e-3, max_iter=100)
        with warnings.catch_warnings():
            # a head not quite at its optimum is a head all the same
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(self.X, self.y)
        return np.asarray(model.decision_function(self.new))

    def _network(self, head: Head) -> Floats:
        from dco.bayes.mc_dropout import MCDropoutClassifier

        assert head.width is not None
        model = MCDropoutClassifier(
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
        rows, new = self.whitened
        return model.fit(rows, self.y).predict_log_mean(new)


def strong_tables(
    X: Floats,
    y: Integers,
    X_new: Floats,
    y_new: Integers,
    *,
    n_classes: int,
    names: Iterable[str] = tuple(STRUCTURES),
) -> dict[str, ScoreTable]:
    """The score tables of these members of the class on new rows, fitted on (X, y)."""
    heads = FittedHeads(X, y, X_new)
    tables = {}
    for name in names:
        # a label that training never saw is in no finite set
        every = np.full((len(y_new), n_classes), np.inf)
        every[:, heads.discriminant.classes] = _scores(STRUCTURES[name], heads)
        tables[name] = ScoreTable(every, y_new)
    return tables


def _scores(structure: Heads, heads: FittedHeads) -> Floats:
    logs = [heads.log_probabilities(head, t) for head, t in structure.parts]
    if structure.mean == "p":
        log_p = np.logaddexp.reduce(logs) - np.log(len(logs))
    else:
        log_p = log_softmax(sum(logs) / len(logs), axis=1)
    if structure.score is None:
        return np.asarray(-log_p)
    scores: Floats = RANK_SCORES[structure.score].every_label(ClassProbabilities(np.exp(log_p)))
    return scores


def set_aside_table(
    X: Floats,
    y: Integers,
    *,
    seeds: Sequence[int],
    alphas: Sequence[float],
    train: int = 2000,
    n_classes: int = 100,
) -> ResultTable:
    """Mean sizes of every member on rows set aside: fit on `train` of them, measure at risk <=
    alpha on the others.
    """
    sizes: dict[str, list[list[float]]] = {}
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(y))
        fit, rest = order[:train], order[train:]
        for name, table in strong_tables(
            X[fit], y[fit], X[rest], y[rest], n_classes=n_classes
        ).items():
            cuts = [
                order_statistic(table.observed, tuning_rank(len(table), alpha=alpha))
                for alpha in alphas
            ]
            sizes.setdefault(name, []).append([float(table.sizes(cut).mean()) for cut in cuts])
    rows: list[tuple[Cell, ...]] = [
        (name, *(Measured.of(column) for column in zip(*found, strict=True)))
        for name, found in sizes.items()
    ]
    rows.sort(
        key=lambda row: sum(np.log(cell.mean) for cell in row[1:] if isinstance(cell, Measured))
    )
    return ResultTable(
        "CIFAR-100: the stronger class on rows set aside",
        f"Mean set size on rows that no split uses: {len(seeds)} random divisions, {train} rows "
        f"to fit, the others to "
        "measure, the smallest threshold with empirical risk at most α. EfficientNet-Lite2 "
        "features.",
        ("structure", *(f"size at {1 - alpha:g}" for alpha in alphas)),
        tuple(rows),
    )
