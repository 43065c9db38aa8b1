"""Sets made for decisions: risk-optimal (ROCP) and risk-averse (RAC) sets as ordinary scores, and
the actions they support.

A loss matrix says what action a costs when the label is y. For a row x with class probabilities f
and a share t, let q_t(a) be the t-quantile of loss[a, Y], Y ~ f, and M(a) the largest loss of
action a. The value of covering a share t is

- RAC: V(x, t) = min over a of q_t(a) (risk-averse calibration, Kiyani et al. 2025),
- ROCP: V(x, t) = min over a of t q_t(a) + (1 - t) M(a) (Wang and Dobriban 2026),

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

from dco.foundations.arrays import AnyArray, Bools, Doubles, Floats, Integers
from dco.foundations.ranks import Level, as_rational
from dco.predictions import ClassRecord
from dco.scores.label_score import LabelScore
from dco.scores.registry import register
from dco.sets.labels import LabelSets, codes_of

_NUMBERS_AT_ONCE = 2**20  # rows times actions times labels


@dataclass(frozen=True)
class DecisionScore(LabelScore):
    """A score of labels by what it costs to leave them out of the set.

    ``loss_matrix[a][y]`` is the loss of action a when the label is y. Columns follow the labels of
    the prediction record. `labels` names them instead; this is needed where a model has not seen
    every label, because the record then lists the labels it knows first.
    """

    loss_matrix: tuple[tuple[float, ...], ...]
    labels: tuple[Any, ...] | None = None

    def __init__(
        self, loss_matrix: ArrayLike, labels: Sequence[Any] | AnyArray | None = None
    ) -> None:
        losses = _NamedLosses.read(loss_matrix, labels)
        if losses.labels is not None:
            n_columns = losses.matrix.shape[1]
            has_repeats = len(set(losses.labels)) < len(losses.labels)
            if len(losses.labels) != n_columns or has_repeats:
                raise ValueError(
                    f"labels must hold {n_columns} distinct labels, one for each column of "
                    "loss_matrix."
                )

        # tuples, so that equal scores compare equal; a frozen dataclass is set in this way only
        rows = tuple(tuple(row) for row in losses.matrix.tolist())
        object.__setattr__(self, "loss_matrix", rows)
        object.__setattr__(self, "labels", losses.labels)

    @abstractmethod
    def values(self, masses: Floats, quantiles: Floats, worst: Floats) -> Floats:
        """Return what covering the share `masses` costs with each action.

        `quantiles` are the losses that the action then has at most, `worst` its largest losses.
        """

    def score_labels(self, record: Any) -> Doubles:
        """Score every label by the nested envelope, a few rows at a time."""
        losses = _NamedLosses(np.asarray(self.loss_matrix), self.labels).in_order_of(
            record.labels(), n_labels=record.n_classes, unseen=record.unseen is not None
        )
        probabilities: Doubles = np.asarray(record.probabilities, dtype=np.float64)
        step = max(1, _NUMBERS_AT_ONCE // (losses.shape[0] * probabilities.shape[1]))
        scores = [
            self._score_by_envelope(probabilities[start : start + step], losses)
            for start in range(0, len(probabilities), step)
        ]
        return np.concatenate(scores) if scores else np.zeros(probabilities.shape)

    def _score_by_envelope(self, probabilities: Doubles, losses: Floats) -> Doubles:
        """Score the labels by a walk along the lower convex hull of (t, V), all rows at once.

        The walk starts at the vertex that price 0 picks and goes to the next one by the smallest
        slope, which is the price from which on that one is picked (Jarvis's gift wrapping). A
        label's score is the price from which on it is in the set of every vertex.

        It suffices to look at the points (cumulative mass of action a, value of action a): between
        two such masses the value of an action does not rise with t, so that any other t is beaten
        for every price.
        """
        n_rows, n_known = probabilities.shape
        known_losses = losses[:, :n_known]
        points = self._points_of_hull(probabilities, losses)
        scores = np.zeros((n_rows, n_known))

        # the vertex where each row stands, and the price from which on it stands there
        rows = np.arange(n_rows)
        price = np.zeros(n_rows)
        vertex = _position_of_smallest(points.value, prefer_largest=points.share)
        while rows.size:
            slope = points.slopes_from(rows, vertex)
            next_vertex = _position_of_smallest(slope, prefer_largest=points.share[rows])
            next_price = np.maximum(price, slope[np.arange(len(rows)), next_vertex])

            # a label outside this vertex's set enters at the next price at the earliest; a vertex
            # that no price picks says nothing
            is_outside = known_losses[points.action[vertex]] > points.cut[vertex][:, None]
            lasts = (next_price > price)[:, None]
            scores[rows] = np.where(is_outside & lasts, next_price[:, None], scores[rows])

            goes_on = np.isfinite(next_price)
            rows = rows[goes_on]
            vertex = next_vertex[goes_on]
            price = next_price[goes_on]
        return scores

    def _points_of_hull(self, probabilities: Doubles, losses: Floats) -> _Points:
        """Return the points among which the hull of each row has its vertices."""
        n_rows, n_known = probabilities.shape
        known_losses = losses[:, :n_known]
        order = np.argsort(known_losses, axis=1, kind="stable")
        quantiles = np.take_along_axis(known_losses, order, axis=1)

        masses = np.cumsum(probabilities[:, order], axis=2)
        if n_rows and masses[:, 0, -1].min() <= 0:
            raise ValueError("a row of probabilities sums to 0.")
        masses /= masses[:, :, -1:]

        values = self.values(masses, quantiles, losses.max(axis=1)[:, None])
        return _Points(
            share=masses.reshape(n_rows, -1),
            value=np.broadcast_to(values, masses.shape).reshape(n_rows, -1),
            cut=quantiles.ravel(),
            action=np.repeat(np.arange(len(losses)), n_known),
        )


@dataclass(frozen=True, eq=False)
class _Points:
    """Points (t, V) of each row, one for each action and label.

    The set of a point holds the labels whose loss under `action` is at most `cut`.
    """

    share: Floats  # (n, points): t
    value: Floats  # (n, points): V
    cut: Floats  # (points,)
    action: Integers  # (points,)

    def slopes_from(self, rows: Integers, vertex: Integers) -> Doubles:
        """Return the slopes from one point of each row to all points, +inf to those that are not
        further right.
        """
        share_here = self.share[rows, vertex][:, None]
        value_here = self.value[rows, vertex][:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = (self.value[rows] - value_here) / (self.share[rows] - share_here)
        slopes[self.share[rows] <= share_here] = np.inf
        return slopes


@dataclass(frozen=True, init=False)
class RiskAverse(DecisionScore):
    """Risk-averse calibration: sets whose worst-case loss, under the best action for the set, is
    small.

    From the paper (Kiyani, Pappas, Roth and Hassani 2025): V(x, t), the sets and the action. Ours:
    the nested-envelope score. Claim, with a conformal threshold: P(loss of `act`'s action <= the
    worst loss over its set) >= 1 - alpha.
    """

    def values(self, masses: Floats, quantiles: Floats, worst: Floats) -> Floats:
        """Return the quantile."""
        return quantiles

    def act(self, sets: LabelSets, prediction: ClassRecord | None = None) -> Actions:
        """Choose for each set the action with the least worst-case loss over the set; see `act`."""
        return act(sets, prediction, loss_matrix=self.loss_matrix, labels=self.labels)


@dataclass(frozen=True, init=False)
class RiskOptimal(DecisionScore):
    """Risk-optimal conformal prediction: sets made for the largest expected loss given only that
    they cover.

    From the paper (Wang and Dobriban 2026): V(x, t), the sets and the action. Ours: the
    nested-envelope score. A price of 0 already charges for what the set leaves out, so that the
    sets may cover more than 1 - alpha: many scores are then 0.
    """

    def values(self, masses: Floats, quantiles: Floats, worst: Floats) -> Floats:
        """Return t q + (1 - t) M, written so that q = M gives q without rounding."""
        return quantiles + (1.0 - masses) * (worst - quantiles)

    def act(
        self, sets: LabelSets, prediction: ClassRecord | None = None, *, alpha: Level
    ) -> Actions:
        """Choose for each set the action whose largest expected loss at miscoverage alpha is least;
        see `act`.
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
    """Choose the best action for each set, from any score.

    Without `alpha`: the least of max over y in the set of loss[a, y] (RAC's rule). With it: the
    least of inside + alpha max(0, outside - inside), where inside and outside are the largest
    losses over the set and over its complement; this is the largest expected loss under laws that
    give the set at least 1 - alpha (ROCP's rule). An empty set is treated as the set of all labels.
    Equal actions are told apart by their expected loss where `prediction` is given, and by their
    number after that.
    """
    losses = _NamedLosses.read(loss_matrix, labels).in_order_of(
        sets.classes,
        n_labels=sets.n_classes,
        unseen=prediction is not None and prediction.unseen is not None,
    )
    members = sets.to_dense()
    members = members | sets.on_host().is_empty()[:, None]
    expected: Floats = np.zeros((len(sets), len(losses)))
    if prediction is not None:
        expected = _expected_losses(prediction, sets, losses)
    share_missed = None if alpha is None else float(as_rational(alpha))

    step = max(1, _NUMBERS_AT_ONCE // losses.size)
    blocks = [slice(start, start + step) for start in range(0, max(len(sets), 1), step)]
    chosen = [
        _choose_actions(losses, members[rows], expected[rows], share_missed) for rows in blocks
    ]
    return Actions(
        actions=np.concatenate([block.actions for block in chosen]),
        worst_loss=np.concatenate([block.worst_loss for block in chosen]),
        robust_loss=np.concatenate([block.robust_loss for block in chosen]),
    )


def _choose_actions(
    losses: Floats, members: Bools, expected: Floats, share_missed: float | None
) -> Actions:
    """Choose the action of each of a few rows."""
    inside = _largest_losses(losses, members)
    criterion = inside
    if share_missed is not None:
        outside = _largest_losses(losses, ~members)
        criterion = inside + share_missed * np.maximum(outside - inside, 0)

    is_best = criterion == criterion.min(axis=1, keepdims=True)
    actions = np.argmin(np.where(is_best, expected, np.inf), axis=1)
    rows = np.arange(len(actions))
    return Actions(actions, inside[rows, actions], criterion[rows, actions])


def _largest_losses(losses: Floats, members: Bools) -> Floats:
    """Return the largest loss of each action over each row's members, (n, A); the overall least
    loss where there are none.
    """
    return np.asarray(np.where(members[:, None, :], losses[None], losses.min()).max(axis=2))


def _position_of_smallest(values: Floats, *, prefer_largest: Floats) -> Integers:
    """Find the smallest value of each row; among equal ones that with the largest
    `prefer_largest`, and the first of those.
    """
    is_smallest = values == values.min(axis=1, keepdims=True)
    return np.asarray(np.argmax(np.where(is_smallest, prefer_largest, -1.0), axis=1))


def _expected_losses(prediction: ClassRecord, sets: LabelSets, losses: Floats) -> Floats:
    """Return the expected loss of each action in each row, (n, A)."""
    record = prediction.as_probabilities().on_host()
    if len(record) != len(sets) or record.n_classes != sets.n_classes:
        raise ValueError(
            f"the sets have {len(sets)} rows, {sets.n_classes} labels, the prediction "
            f"{len(record)} and {record.n_classes}."
        )
    return np.asarray(record.probabilities @ losses[:, : record.n_known].T)


@dataclass(frozen=True, eq=False)
class _NamedLosses:
    """A loss matrix, with the names of its columns if they were given."""

    matrix: Floats
    labels: tuple[Any, ...] | None

    @classmethod
    def read(cls, loss_matrix: ArrayLike, labels: Sequence[Any] | AnyArray | None) -> _NamedLosses:
        """Check what a caller gave."""
        matrix = np.asarray(loss_matrix, dtype=np.float64)
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise ValueError(
                f"loss_matrix must have one row per action and one column per label, got "
                f"shape {matrix.shape}."
            )
        if not np.all(np.isfinite(matrix)):
            raise ValueError("loss_matrix must be finite.")
        return cls(matrix, None if labels is None else tuple(np.asarray(labels).tolist()))

    def in_order_of(self, wanted: AnyArray | None, *, n_labels: int, unseen: bool) -> Floats:
        """Return one column per wanted label, in their order; None means 0 to K - 1."""
        n_columns = self.matrix.shape[1]
        if self.labels is None:
            if unseen:
                raise ValueError(
                    "the prediction has labels that the model has never seen, so the order of the "
                    "columns of loss_matrix is not clear: name them with labels=."
                )
            if n_columns != n_labels:
                raise ValueError(
                    f"loss_matrix has {n_columns} columns, but the prediction has {n_labels} "
                    "labels."
                )
            return self.matrix

        if len(self.labels) != n_columns:
            raise ValueError(
                f"loss_matrix has {n_columns} columns for {len(self.labels)} labels "
                f"({list(self.labels)!r:.200}): name all by labels="
            )
        names = np.arange(n_labels) if wanted is None else wanted
        columns = codes_of(names, np.asarray(self.labels))
        if np.any(columns < 0):
            missing = names[int(np.flatnonzero(columns < 0)[0])]
            raise ValueError(
                f"loss_matrix has no column for the label {missing!r}; its columns are "
                f"{list(self.labels)!r:.200}."
            )
        return self.matrix[:, columns]


register(RiskAverse)
register(RiskOptimal)
