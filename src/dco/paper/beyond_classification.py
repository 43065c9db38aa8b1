"""Beyond the paper: a stronger candidate class for CIFAR-100 features, at the same guarantee.

All structures read the square roots of the features (a frozen backbone's features are not negative,
and skewed), centred and divided by one number. Three families of heads: a linear discriminant with
its covariance shrunk; a logistic regression with an L2 penalty; a network of one hidden layer with
weight decay, on the roots whitened by the discriminant's covariance. Each head comes with several
strengths of regularisation and at several temperatures, alone and averaged with others (their
probabilities or the logarithms of these); some with RAPS or SAPS in place of the score -log p.
Which values to list, and which structure to fix where nothing is searched, was decided on 8,000
development rows that no split ever uses (`development_table`).
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import log_softmax

import dco
from dco import ClassProbabilities
from dco.foundations.arrays import Floats, Integers
from dco.foundations.ranks import order_statistic, tuning_rank
from dco.paper.heads import ScoreTable, add_unseen_classes, to_scored_rows
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


# ---- the structures of the class


@dataclass(frozen=True)
class Head:
    """One classifier of the features, before it is fitted.

    `regularisation` is the shrinkage of a discriminant, the penalty of a logistic regression, or
    the weight decay of a network. Only networks have a width, that of their hidden layer.
    """

    family: Literal["discriminant", "logistic", "network"]
    regularisation: float
    width: int | None = None

    @property
    def name(self) -> str:
        """Such as "logistic 0.05", or "network 1024, 0.02" with the width first."""
        width = "" if self.width is None else f"{self.width}, "
        return f"{self.family} {width}{self.regularisation:g}"


class TemperedHead(NamedTuple):
    """A head whose logits are divided by a temperature before they become probabilities."""

    head: Head
    temperature: float


@dataclass(frozen=True)
class Structure:
    """A candidate of the class: one head or an average of several, and a score.

    Averaged are the probabilities of the heads, or the logarithms of these. `score` is a name in
    `RANK_SCORES`; without one the score of a label is -log p.
    """

    parts: tuple[TemperedHead, ...]
    mean: Literal["p", "log p"] = "p"
    score: str | None = None

    @property
    def name(self) -> str:
        """Such as "mean p: discriminant 0.75 / 28, logistic 0.05 / 0.7", temperatures last."""
        listed = ", ".join(f"{head.name} / {temperature:g}" for head, temperature in self.parts)
        if len(self.parts) > 1:
            listed = f"mean {self.mean}: {listed}"
        return listed if self.score is None else f"{self.score} on {listed}"

    @property
    def kind(self) -> str:
        """The families in it, "discriminant + logistic", or the name of its score, "RAPS"."""
        if self.score is not None:
            return self.score.split("(")[0]
        return " + ".join(head.family for head, _ in self.parts)


DISCRIMINANTS = tuple(
    TemperedHead(Head("discriminant", shrinkage), temperature)
    for shrinkage, temperature in product(SHRINKAGE, (20.0, 28.0))
)
LOGISTICS = tuple(
    TemperedHead(Head("logistic", penalty), temperature)
    for penalty, temperature in product(PENALTIES, (0.5, 0.7, 1.0))
)
NETWORKS = tuple(
    TemperedHead(Head("network", decay, width), temperature)
    for (width, decay), temperature in product(WIDTHS_AND_DECAYS, (0.7, 1.0))
)
# the heads that are averaged with heads of other families
AVERAGED_LOGISTIC = TemperedHead(Head("logistic", 0.05), 0.7)
AVERAGED_NETWORKS = tuple(part for part in NETWORKS if part.temperature == 0.7)
AVERAGED_DISCRIMINANTS = (
    TemperedHead(Head("discriminant", 0.75), 28.0),
    TemperedHead(Head("discriminant", 0.85), 28.0),
)
ONE_OF_EACH_FAMILY = Structure(
    (
        AVERAGED_DISCRIMINANTS[0],
        AVERAGED_LOGISTIC,
        TemperedHead(Head("network", 0.02, 1024), 0.7),
    )
)
FIXED_STRUCTURE = ONE_OF_EACH_FAMILY.name  # of methods that search nothing


def list_structures() -> Iterator[Structure]:
    """List every candidate: a classifier (head) or an average of several, with a score.

    First come heads alone, then averages of heads of two and of three families, then one average
    with other scores than -log p.
    """
    for part in (*DISCRIMINANTS, *LOGISTICS, *NETWORKS):
        yield Structure((part,))
    for discriminant in DISCRIMINANTS:
        yield Structure((discriminant, AVERAGED_LOGISTIC))
        yield Structure((discriminant, AVERAGED_LOGISTIC), mean="log p")
    for network in AVERAGED_NETWORKS:
        yield Structure((AVERAGED_DISCRIMINANTS[0], network))
    for discriminant, network in product(AVERAGED_DISCRIMINANTS, AVERAGED_NETWORKS):
        yield Structure((discriminant, AVERAGED_LOGISTIC, network))
    for score in RANK_SCORES:
        yield Structure(ONE_OF_EACH_FAMILY.parts, score=score)


STRUCTURES: Mapping[str, Structure] = {structure.name: structure for structure in list_structures()}


# ---- fitting heads, scoring labels


class LinearDiscriminant:
    """Gaussian classes with one covariance, shrunk towards a multiple of the identity.

    With the covariance within classes S = V diag(λ) Vᵀ in d dimensions and the shrinkage g, the
    covariance is Σ_g = (1 - g) S + g tr(S) / d I = V diag(v) Vᵀ, v = (1 - g) λ + g mean(λ): one
    eigendecomposition serves every g.
    """

    def __init__(self, X: Floats, y: Integers) -> None:
        self.classes, class_of_row = np.unique(y, return_inverse=True)
        class_means = np.stack([X[y == label].mean(axis=0) for label in self.classes])
        residuals = (X - class_means[class_of_row]).astype(np.float64)
        covariance = residuals.T @ residuals / len(X)

        self.eigenvalues, eigenvectors = np.linalg.eigh(covariance)
        self.eigenvectors = eigenvectors.astype(np.float32)
        self.rotated_means = class_means @ self.eigenvectors

    def variances(self, shrinkage: float) -> Floats:
        """Return v, the eigenvalues of Σ_g."""
        shrunk = (1 - shrinkage) * self.eigenvalues + shrinkage * self.eigenvalues.mean()
        return np.asarray(shrunk, dtype=np.float32)

    def logits(self, rotated: Floats, shrinkage: float) -> Floats:
        """Return log p(y | x) up to a constant of each row, (n, classes).

        `rotated` are rows in the basis of the eigenvectors, z = Vᵀ x. With the class mean m in that
        basis the logit is Σ_j z_j m_j / v_j - m_j² / (2 v_j).
        """
        variances = self.variances(shrinkage)
        constants = 0.5 * np.sum(self.rotated_means**2 / variances, axis=1)
        return np.asarray(rotated @ (self.rotated_means / variances).T - constants)


class FittedHeads:
    """Heads fitted on rows (X, y), and their log-probabilities on new rows.

    A head is fitted when it is first asked for, and its logits are kept: structures share heads.
    Rows are the square roots of the features, less their mean and divided by one number.
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
        """Return log p(y | x) on the new rows by one head at a temperature, (n, classes)."""
        if head not in self._logits:
            self._logits[head] = self._fit_and_predict(head).astype(np.float64)
        return np.asarray(log_softmax(self._logits[head] / temperature, axis=1))

    @cached_property
    def whitened(self) -> tuple[Floats, Floats]:
        """The fitted and the new rows times Σ_g^(-1/2), which is what networks read.

        They are in the basis of the eigenvectors of Σ_g, and divided by one number.
        """
        sds = np.sqrt(self.discriminant.variances(WHITENING))
        rows = self.X @ self.discriminant.eigenvectors / sds
        new_rows = self.rotated_new / sds
        scale = rows.std()
        return rows / scale, new_rows / scale

    def _fit_and_predict(self, head: Head) -> Floats:
        """Fit a head and return its logits on the new rows."""
        if head.family == "discriminant":
            return self.discriminant.logits(self.rotated_new, shrinkage=head.regularisation)
        if head.family == "logistic":
            return self._fit_logistic(penalty=head.regularisation)
        assert head.width is not None
        return self._fit_network(head.width, decay=head.regularisation)

    def _fit_logistic(self, penalty: float) -> Floats:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        # scikit-learn's C weighs the summed loss, our penalty goes with the mean loss
        model = LogisticRegression(C=1 / (penalty * len(self.X)), tol=1e-3, max_iter=100)
        with warnings.catch_warnings():
            # a head not quite at its optimum is a head all the same
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(self.X, self.y)
        return np.asarray(model.decision_function(self.X_new))

    def _fit_network(self, width: int, decay: float) -> Floats:
        """Fit a network with one hidden layer on whitened rows, and return its logits on new rows.

        `decay` is the weight decay. Dropout helps the training only: `passes=0` predicts without.
        """
        model = dco.bayes.MCDropoutClassifier(
            hidden=(width,),
            dropout=0.5,
            passes=0,
            epochs=4,
            batch_size=256,
            learning_rate=2e-3,
            weight_decay=decay,
            standardise=False,
            random_state=0,
        )
        rows, new_rows = self.whitened
        return model.fit(rows, self.y).predict_log_mean(new_rows)


def score_structures(
    X: Floats,
    y: Integers,
    X_new: Floats,
    y_new: Integers,
    *,
    n_classes: int,
    names: Collection[str] | None = None,
) -> dict[str, ScoreTable]:
    """Fit candidates on the rows (X, y), and score every label of the new rows.

    A candidate (`Structure`) is an average of classifiers with a score. By default all of them are
    fitted, otherwise those in `names`. Returned is {name: its scores of the new rows}.
    """
    heads = FittedHeads(X, y, X_new)
    tables: dict[str, ScoreTable] = {}
    for name in STRUCTURES if names is None else names:
        scores = score_labels(STRUCTURES[name], heads)
        all_scores = add_unseen_classes(scores, heads.discriminant.classes, n_classes)
        tables[name] = ScoreTable(all_scores, y_new)
    return tables


def score_labels(structure: Structure, heads: FittedHeads) -> Floats:
    """Score every label of the new rows by one candidate; the result is (rows, classes).

    The probabilities p of a label by the heads of the candidate are averaged, or their logarithms.
    The score is -log p, or a score that looks at all labels of the row, such as RAPS.
    """
    log_p_of_heads = [
        heads.log_probabilities(head, temperature) for head, temperature in structure.parts
    ]
    n_heads = len(log_p_of_heads)
    if structure.mean == "p":  # the logarithm of the mean of p, from log p
        log_p = np.logaddexp.reduce(log_p_of_heads) - np.log(n_heads)
    else:
        log_p = log_softmax(sum(log_p_of_heads) / n_heads, axis=1)

    if structure.score is None:
        return np.asarray(-log_p)
    score = RANK_SCORES[structure.score]
    return np.asarray(score.every_label(ClassProbabilities(np.exp(log_p))))


# ---- how the class was chosen


def development_table(
    X: Floats,
    y: Integers,
    *,
    seeds: Sequence[int],
    alphas: Sequence[float],
    n_train: int = 2000,
    n_classes: int = 100,
) -> ResultTable:
    """Make the table that compares all candidates by mean set size, the smallest sets first.

    For each seed the rows (X, y) are divided at random: the candidates are fitted on `n_train` of
    them and measured on the others. They are ordered by the product over the levels of their mean
    sizes.
    """
    sizes_of_seeds = [
        measure_structures(X, y, seed=seed, alphas=alphas, n_train=n_train, n_classes=n_classes)
        for seed in seeds
    ]

    rows: list[tuple[Cell, ...]] = []
    log_products: dict[Cell, float] = {}
    for name in STRUCTURES:
        sizes_at_levels = [
            Measured.of(sizes[name][alpha] for sizes in sizes_of_seeds) for alpha in alphas
        ]
        log_products[name] = float(np.sum(np.log([size.mean for size in sizes_at_levels])))
        rows.append((name, *sizes_at_levels))
    rows.sort(key=lambda row: log_products[row[0]])

    caption = (
        f"Mean set size on rows that no split uses: {len(seeds)} random divisions, {n_train} rows "
        "to fit, the others to measure, the smallest threshold with empirical risk at most α. "
        "EfficientNet-Lite2 features."
    )
    return ResultTable(
        title="CIFAR-100: the stronger class on rows set aside",
        caption=caption,
        columns=("structure", *(f"size at {1 - alpha:g}" for alpha in alphas)),
        rows=tuple(rows),
    )


def measure_structures(
    X: Floats, y: Integers, *, seed: int, alphas: Sequence[float], n_train: int, n_classes: int
) -> dict[str, dict[float, float]]:
    """Return {candidate: {alpha: its mean set size}} on one random division of the rows (X, y).

    The candidates are fitted on `n_train` rows and measured on the others, at the smallest
    threshold with empirical risk at most alpha.
    """
    shuffled = np.random.default_rng(seed).permutation(len(y))
    train = shuffled[:n_train]
    test = shuffled[n_train:]
    tables = score_structures(X[train], y[train], X[test], y[test], n_classes=n_classes)
    return {
        name: {alpha: mean_size(table, alpha) for alpha in alphas} for name, table in tables.items()
    }


def mean_size(table: ScoreTable, alpha: float) -> float:
    """Return the mean size of sets at the smallest threshold with empirical risk <= alpha."""
    rows = to_scored_rows(table)
    threshold = order_statistic(rows.scores, tuning_rank(len(table), alpha=alpha))
    return float(rows.sizes(threshold).mean())
