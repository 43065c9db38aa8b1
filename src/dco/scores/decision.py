"""Sets made for decisions: risk-optimal (ROCP) and risk-averse (RAC) sets as ordinary scores, and
the actions they support.

A loss matrix says what action a costs when the label is y. For a row x with class probabilities f
and a share t, let q_t(a) be the t-quantile of loss[a, Y], Y ~ f, and M(a) the largest loss of
action a. The value of covering a share t is

    RAC   V(x, t) = min over a of q_t(a)                             (risk-averse calibration,
    Kiyani et al. 2025) ROCP  V(x, t) = min over a of t q_t(a) + (1 - t) M(a)            (Wang and
    Dobriban 2026)

with the set C(x, t) = {y : loss[a_t, y] <= q_t(a_t)} for the best action a_t. A price b >= 0 for
coverage picks one t per row, g(x, b) = argmin over t of V(x, t) - b t (ties to the largest t): the
vertices of the lower convex hull of (t, V).

The papers then search for one price b with the calibration rows and every candidate label, which is
needed because the sets C(x, g(x, b)) are not always nested in b. Ours is the nested envelope: the
score

    s(x, y) = inf {b : y is in C(x, g(x, b')) for all b' >= b}

is one fixed function, so that split conformal prediction, PAC ranks, tuning and certificates work
on it unchanged.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.foundations.ranks import Level, as_rational
from dco.predictions import ClassRecord, on_host
from dco.scores.classification import LabelScore
from dco.scores.ranks import Doubles, picked
from dco.scores.registry import register
from dco.sets.labels import LabelSets, codes_of

_POINTS_AT_ONCE = 2**20


@dataclass(frozen=True)
class DecisionScore(LabelScore):
    """What RiskOptimal and RiskAverse share; `loss_matrix[a][y]` is the loss of action a when the
    label is y.

    Columns follow the labels of the prediction record. `labels` names them instead; this is needed
    where a model has not seen every label, because the record then lists the labels it knows first.
    """

    loss_matrix: tuple[tuple[float, ...], ...]
    labels: tuple[Any, ...] | None = None

    def __init__(
        self, loss_matrix: ArrayLike, labels: Sequence[Any] | AnyArray | None = None
    ) -> None:
        matrix, names = _checked(loss_matrix, labels)
        if names is not None and (len(names) != matrix.shape[1] or len(set(names)) != len(names)):
            raise ValueError(
                f"labels must hold {matrix.shape[1]} distinct labels, one for each "
                f"column of loss_matrix."
            )
        object.__setattr__(self, "loss_matrix", tuple(tuple(row) for row in matrix.tolist()))
        object.__setattr__(self, "labels", names)

    @abstractmethod
    def values(self, masses: Doubles, quantiles: Doubles, worst: Doubles) -> Doubles:
        """What covering the share `masses` costs with each action, given the quantile and the
        largest loss.
        """

    def row_scores(self, probabilities: Floats, uniforms: Doubles) -> Doubles:
        """The nested-envelope score of every label; rows are cut so that the points of one piece
        stay small.
        """
        losses = np.asarray(self.loss_matrix)
        step = max(1, _POINTS_AT_ONCE // (losses.shape[0] * probabilities.shape[1]))
        pieces = [
            self._envelope(
                np.asarray(probabilities[start : start + step], dtype=np.float64), losses
            )
            for start in range(0, len(probabilities), step)
        ]
        return np.concatenate(pieces) if pieces else np.zeros(probabilities.shape)

    def label_scores(self, probabilities: Floats, codes: Integers, uniforms: Doubles) -> Doubles:
        """The score of one label per row."""
        return np.asarray(picked(self.row_scores(probabilities, uniforms), codes), dtype=np.float64)

    def bound(self, prediction: Any) -> tuple[LabelScore, ClassRecord]:
        """The score with its columns in the order of the record's labels, and the record."""
        record = on_host(self._expected(prediction).as_probabilities())
        matrix = _columns_of(
            np.asarray(self.loss_matrix), self.labels, record, unseen=record.unseen is not None
        )
        return self if self.labels is None else type(self)(matrix), record

    def _envelope(self, probabilities: Doubles, losses: Doubles) -> Doubles:
        """Walk along the lower hull of (t, V) from b = 0 upwards, for all rows at once.

        It suffices to look at the points (cumulative mass of action a, value of action a): between
        two such masses the value of an action does not rise with t, so that any other t is beaten
        for every price.
        """
        n, k = probabilities.shape
        known = losses[:, :k]
        order = np.argsort(known, axis=1, kind="stable")
        quantiles = np.take_along_axis(known, order, axis=1)
        masses = np.cumsum(probabilities[:, order], axis=2)
        if n and masses[:, 0, -1].min() <= 0:
            raise ValueError("a row of probabilities sums to 0.")
        masses /= masses[:, :, -1:]
        share = masses.reshape(n, -1)
        value = np.broadcast_to(
            self.values(masses, quantiles, losses.max(axis=1)[:, None]), masses.shape
        ).reshape(n, -1)
        cut, action = quantiles.ravel(), np.repeat(np.arange(len(losses)), k)

        scores, rows = np.zeros((n, k)), np.arange(n)
        price, here = np.zeros(n), _best(value, share)
        while rows.size:
            at_t, at_v = share[rows, here], value[rows, here]
            with np.errstate(divide="ignore", invalid="ignore"):
                slope = (value[rows] - at_v[:, None]) / (share[rows] - at_t[:, None])
            slope[share[rows] <= at_t[:, None]] = np.inf
            following = _best(slope, share[rows])
            next_price = np.maximum(price, slope[np.arange(len(rows)), following])
            outside = known[action[here]] > cut[here][:, None]
            lasts = (next_price > price)[:, None]  # a vertex that no price picks says nothing
            scores[rows] = np.where(outside & lasts, next_price[:, None], scores[rows])
            going = np.isfinite(next_price)
            rows, here, price = rows[going], following[going], next_price[going]
        return scores


@dataclass(frozen=True, init=False)
class RiskAverse(DecisionScore):
    """Risk-averse calibration: sets whose worst-case loss, under the best action for the set, is
    small.

    From the paper (Kiyani, Pappas, Roth and Hassani 2025): V(x, t), the sets and the action. Ours:
    the nested-envelope score. Claim, with a conformal threshold: P(loss of `act`'s action <= the
    worst loss over its set) >= 1 - alpha.
    """

    def values(self, masses: Doubles, quantiles: Doubles, worst: Doubles) -> Doubles:
        """The quantile."""
        return quantiles

    def act(self, sets: LabelSets, prediction: ClassRecord | None = None) -> Actions:
        """For each set the action with the least worst-case loss over the set; see `act`."""
        return act(sets, prediction, loss_matrix=self.loss_matrix, labels=self.labels)


@dataclass(frozen=True, init=False)
class RiskOptimal(DecisionScore):
    """Risk-optimal conformal prediction: sets made for the largest expected loss given only that
    they cover.

    From the paper (Wang and Dobriban 2026): V(x, t), the sets and the action. Ours: the
    nested-envelope score. A price of 0 already charges for what the set leaves out, so that the
    sets may cover more than 1 - alpha: many scores are then 0.
    """

    def values(self, masses: Doubles, quantiles: Doubles, worst: Doubles) -> Doubles:
        """t q + (1 - t) M, written so that q = M gives q without rounding."""
        return quantiles + (1.0 - masses) * (worst - quantiles)

    def act(
        self, sets: LabelSets, prediction: ClassRecord | None = None, *, alpha: Level
    ) -> Actions:
        """For each set the action with the least of all largest expected losses at miscoverage
        alpha; see `act`.
        """
        return act(sets, prediction, loss_matrix=self.loss_matrix, labels=self.labels, alpha=alpha)


@dataclass(frozen=True, eq=False)
class Actions:
    """One action per row: its number, the worst loss over the row's set, and the criterion that the
    action minimises.

    `robust_loss` is the criterion: the worst loss over the set, or with a given alpha the largest
    expected loss under any law that gives the set at least 1 - alpha. For an empty set both are
    taken over all labels.
    """

    actions: Integers
    worst_loss: Floats
    robust_loss: Floats

    def __len__(self) -> int:
        return len(self.actions)


def act(
    sets: LabelSets,
    prediction: ClassRecord | None = None,
    *,
    loss_matrix: ArrayLike,
    labels: Sequence[Any] | AnyArray | None = None,
    alpha: Level | None = None,
) -> Actions:
    """The best action for each set, from any score.

    Without `alpha`: the least of max over y in the set of loss[a, y] (RAC's rule). With it: the
    least of inside + alpha max(0, outside - inside), where inside and outside are the largest
    losses over the set and over its complement; this is the largest expected loss under laws that
    give the set at least 1 - alpha (ROCP's rule). An empty set is treated as the set of all labels.
    Equal actions are told apart by their expected loss where `prediction` is given, and by their
    number after that.
    """
    matrix, names = _checked(loss_matrix, labels)
    losses = _columns_of(
        matrix, names, sets, unseen=prediction is not None and prediction.unseen is not None
    )
    miss = None if alpha is None else float(as_rational(alpha))
    expected = (
        np.zeros((len(sets), len(losses)))
        if prediction is None
        else _expected_losses(prediction, sets, losses)
    )
    n, step = len(sets), max(1, _POINTS_AT_ONCE // losses.size)
    actions, worst, robust = np.zeros(n, dtype=np.int64), np.zeros(n), np.zeros(n)
    members = sets.to_dense()
    members[sets.is_empty()] = True
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        inside = _largest(losses, members[rows])
        criterion = inside
        if miss is not None:
            outside = _largest(losses, ~members[rows])
            criterion = inside + miss * np.maximum(outside - inside, 0)
        ties = criterion == criterion.min(axis=1, keepdims=True)
        chosen = np.argmin(np.where(ties, expected[rows], np.inf), axis=1)
        here = np.arange(len(chosen))
        actions[rows], worst[rows], robust[rows] = (
            chosen,
            inside[here, chosen],
            criterion[here, chosen],
        )
    return Actions(actions, worst, robust)


def _largest(losses: Floats, members: Bools) -> Floats:
    """The largest loss of each action over each row's members, (n, A); the overall least loss where
    there are none.
    """
    return np.asarray(np.where(members[:, None, :], losses[None], losses.min()).max(axis=2))


def _best(key: Floats, share: Floats) -> Integers:
    """For each row the place of the least key; among equal keys that of the largest share, then the
    first.
    """
    least = key.min(axis=1, keepdims=True)
    return np.asarray(np.argmax(np.where(key == least, share, -1.0), axis=1))


def _expected_losses(prediction: ClassRecord, sets: LabelSets, losses: Floats) -> Floats:
    record = on_host(prediction.as_probabilities())
    if len(record) != len(sets) or record.n_classes != sets.n_classes:
        raise ValueError(
            f"the sets have {len(sets)} rows, {sets.n_classes} labels, the prediction "
            f"{len(record)} and {record.n_classes}."
        )
    return np.asarray(record.probabilities @ losses[:, : record.n_known].T)


def _checked(
    loss_matrix: ArrayLike, labels: Sequence[Any] | AnyArray | None
) -> tuple[Floats, tuple[Any, ...] | None]:
    matrix = np.asarray(loss_matrix, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(
            f"loss_matrix must have one row per action and one column per label, got "
            f"shape {matrix.shape}."
        )
    if not np.all(np.isfinite(matrix)):
        raise ValueError("loss_matrix must be finite.")
    return matrix, None if labels is None else tuple(np.asarray(labels).tolist())


def _columns_of(
    matrix: Floats, names: tuple[Any, ...] | None, record: ClassRecord | LabelSets, *, unseen: bool
) -> Floats:
    """The loss matrix with one column for each label of a record or of sets, in their order."""
    labels = record.classes if isinstance(record, LabelSets) else record.labels()
    columns, n_classes = matrix.shape[1], record.n_classes
    if names is None:
        if unseen:
            raise ValueError(
                "the prediction has labels that the model has never seen, so the order of the "
                "columns of loss_matrix is not "
                "clear: name them with labels=."
            )
        if columns != n_classes:
            raise ValueError(
                f"loss_matrix has {columns} columns, but the prediction has {n_classes} labels."
            )
        return matrix
    if len(names) != columns:
        raise ValueError(
            f"loss_matrix has {columns} columns for {len(names)} labels ({list(names)!r:.200}): "
            f"name all by labels="
        )
    wanted = np.arange(n_classes) if labels is None else labels
    places = codes_of(wanted, np.asarray(names))
    if np.any(places < 0):
        missing = wanted[int(np.flatnonzero(places < 0)[0])]
        raise ValueError(
            f"loss_matrix has no column for the label {missing!r}; its columns are "
            f"{list(names)!r:.200}."
        )
    return matrix[:, places]


register(RiskAverse)
register(RiskOptimal)
