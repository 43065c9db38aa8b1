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

_NUMBERS_AT_ONCE = 2**20  # rows times actions times labels: 8 MiB in double precision


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
        """Check the losses and the labels, and keep them as tuples."""
        losses = _NamedLosses.read(loss_matrix, labels)
        if losses.labels is not None:
            n_columns = losses.matrix.shape[1]
            n_distinct = len(set(losses.labels))
            if len(losses.labels) != n_columns or n_distinct < n_columns:
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
        """Return what covering a share t of the probability costs with an action, V(x, t) of it.

        - `masses`: the shares t, (n, actions, labels)
        - `quantiles`: q_t, the loss that the action does not exceed with probability t,
          (actions, labels)
        - `worst`: M, the largest loss of each action, (actions, 1)
        """

    def score_labels(self, record: Any) -> Doubles:
        """Score every label that the model knows, (n, K), a few rows at a time.

        A label scores low if it costs much to leave it out of the set. `record` holds the class
        probabilities of n rows.
        """
        named_losses = _NamedLosses(np.asarray(self.loss_matrix), self.labels)
        losses = named_losses.in_order_of(
            record.labels(), n_labels=record.n_classes, unseen=record.unseen is not None
        )
        probabilities: Doubles = np.asarray(record.probabilities, dtype=np.float64)
        n_rows, n_known = probabilities.shape
        n_actions = len(losses)

        rows_at_once = max(1, _NUMBERS_AT_ONCE // (n_actions * n_known))
        scores = np.zeros((n_rows, n_known))
        for start in range(0, n_rows, rows_at_once):
            rows = slice(start, start + rows_at_once)
            scores[rows] = self._score_by_hull(probabilities[rows], losses)
        return scores

    def _score_by_hull(self, probabilities: Doubles, losses: Floats) -> Doubles:
        """Score the labels of some rows, (n, K), by the price at which they join the set for good.

        A row has points (t, V): the share t of probability that a set covers, and the value V that
        this costs. At a price b for coverage the best point is that with the smallest V - b t. As
        the price rises from 0, the best point moves to the right along the lower convex hull of the
        points, and each hull point is best from one price on. A label's score is the price from
        which on it is in the set of every best point.

        So the hull is walked from left to right, in all rows at once: from a hull point, the line
        with the smallest slope leads to the next one, and its slope is the price from which on that
        is best (Jarvis's gift wrapping).

        Parameters
        ----------
        probabilities : (n, K), of the labels that the model knows
        losses : (actions, labels), first the columns of those K labels, then of labels never seen
        """
        n_rows, n_known = probabilities.shape
        known_losses = losses[:, :n_known]
        points = self._candidate_points(probabilities, losses)
        scores = np.zeros((n_rows, n_known))

        walking = np.arange(n_rows)  # the rows whose walk goes on
        point = _position_of_smallest(points.value, prefer_largest=points.share)  # best at price 0
        price = np.zeros(n_rows)  # from which on `point` is best
        while walking.size:
            # 1. Find the next hull point of each row and its price; inf at the end of the hull.
            slopes = points.slopes_from(walking, point)
            next_point = _position_of_smallest(slopes, prefer_largest=points.share[walking])
            smallest_slope = np.take_along_axis(slopes, next_point[:, None], axis=1)[:, 0]
            next_price = np.maximum(price, smallest_slope)

            # 2. A label outside this point's set scores at least the next price, unless the point
            # is best at no price.
            loss_of_labels = known_losses[points.action[point]]
            is_outside = loss_of_labels > points.largest_loss[point][:, None]
            is_ever_best = (next_price > price)[:, None]
            scores[walking] = np.where(
                is_outside & is_ever_best, next_price[:, None], scores[walking]
            )

            # 3. Go there.
            goes_on = np.isfinite(next_price)
            walking = walking[goes_on]
            point = next_point[goes_on]
            price = next_price[goes_on]
        return scores

    def _candidate_points(self, probabilities: Doubles, losses: Floats) -> _Points:
        """Return the points (t, V) of each row among which are the vertices of its convex hull.

        t is the share of probability that a set covers. The best set for an action holds the labels
        with the smallest losses, so its shares are cumulated probabilities in the order of loss,
        and the t-quantile q_t of the action's loss is the largest loss in the set. V is the value
        that `values` computes from t and q_t. Between two such shares V does not rise with t, so
        the next share is as good or better at any price.

        `probabilities` (n, K) are those of the labels that the model knows. `losses` (actions,
        labels) has the columns of these K labels first, then those of labels never seen.
        """
        n_rows, n_known = probabilities.shape
        known_losses = losses[:, :n_known]
        labels_by_loss = np.argsort(known_losses, axis=1, kind="stable")  # (actions, K)
        quantiles = np.take_along_axis(known_losses, labels_by_loss, axis=1)

        masses = np.cumsum(probabilities[:, labels_by_loss], axis=2)  # (n, actions, K)
        totals = masses[:, :, -1:]
        if n_rows and totals[:, 0].min() <= 0:
            raise ValueError("a row of probabilities sums to 0.")
        shares = masses / totals

        # one axis of points in place of actions and labels
        values = self.values(shares, quantiles, worst=losses.max(axis=1)[:, None])
        return _Points(
            share=shares.reshape(n_rows, -1),
            value=np.broadcast_to(values, shares.shape).reshape(n_rows, -1),
            largest_loss=quantiles.ravel(),
            action=np.repeat(np.arange(len(losses)), n_known),
        )


@dataclass(frozen=True, eq=False)
class _Points:
    """Points (t, V) of each row, one for each action and label: a set's coverage and what it costs.

    The set of point j holds the labels whose loss under action[j] is at most largest_loss[j].
    """

    share: Floats  # t, (n, points)
    value: Floats  # V, (n, points)
    largest_loss: Floats  # (points,)
    action: Integers  # (points,)

    def slopes_from(self, rows: Integers, vertex: Integers) -> Doubles:
        """Return the slopes (V - V') / (t - t') of lines from one point of a row to all its points.

        vertex[i] is the position of the point (t', V') in row rows[i]; the result is
        (len(rows), points). Points that are not to the right of it have the slope +inf.
        """
        share = self.share[rows]
        value = self.value[rows]
        share_here = np.take_along_axis(share, vertex[:, None], axis=1)
        value_here = np.take_along_axis(value, vertex[:, None], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = (value - value_here) / (share - share_here)
        slopes[share <= share_here] = np.inf
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
        """Return the quantile of each action's loss, q_t."""
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
    """Choose the best action for each prediction set, whatever score made it.

    Parameters
    ----------
    sets
        The sets. An empty one is treated as the set of all labels.
    prediction
        The prediction of the same rows. If given, actions with equal criteria are told apart by
        their expected loss; after that the first is chosen.
    loss_matrix
        ``loss_matrix[a][y]`` is the loss of action a when the label is y.
    labels
        The labels of the columns; without them, the labels of the sets in their order.
    alpha
        Without it, an action is chosen by the largest loss over the set (RAC's rule). With it, by
        inside + alpha max(0, outside - inside), where inside and outside are its largest losses
        over the set and over the other labels: the largest expected loss if the set has probability
        at least 1 - alpha (ROCP's rule).
    """
    # 1. The losses (actions, labels) in the order of the sets' labels, and what is in the sets.
    losses = _NamedLosses.read(loss_matrix, labels).in_order_of(
        sets.classes,
        n_labels=sets.n_classes,
        unseen=prediction is not None and prediction.unseen is not None,
    )
    is_empty = sets.on_host().is_empty()
    members = sets.to_dense() | is_empty[:, None]

    # 2. The expected loss of each action, (n, actions), the same for all if nothing is known.
    expected_losses: Floats = np.zeros((len(sets), len(losses)))
    if prediction is not None:
        expected_losses = _expected_losses(prediction, sets, losses)

    # 3. Choose, a few rows at a time; one empty block if there are no rows.
    miscoverage = None if alpha is None else float(as_rational(alpha))
    rows_at_once = max(1, _NUMBERS_AT_ONCE // losses.size)
    blocks = []
    for start in range(0, max(len(sets), 1), rows_at_once):
        rows = slice(start, start + rows_at_once)
        blocks.append(_choose_actions(losses, members[rows], expected_losses[rows], miscoverage))
    return Actions(
        actions=np.concatenate([block.actions for block in blocks]),
        worst_loss=np.concatenate([block.worst_loss for block in blocks]),
        robust_loss=np.concatenate([block.robust_loss for block in blocks]),
    )


def _choose_actions(
    losses: Floats, members: Bools, expected_losses: Floats, miscoverage: float | None
) -> Actions:
    """Choose the action of each of a few rows, by the criterion that `act` describes.

    Parameters
    ----------
    losses : (A, K), the loss of each of A actions if the label is one of K
    members : (n, K), the labels in the set of each row
    expected_losses : (n, A), by which actions with equal criteria are told apart
    miscoverage : the probability that the label is outside the set; None to look at the set only
    """
    inside = _largest_losses(losses, members)
    criterion = inside
    if miscoverage is not None:
        outside = _largest_losses(losses, ~members)
        criterion = inside + miscoverage * np.maximum(outside - inside, 0)

    is_best = criterion == criterion.min(axis=1, keepdims=True)
    actions = np.argmin(np.where(is_best, expected_losses, np.inf), axis=1)
    rows = np.arange(len(actions))
    return Actions(
        actions=actions,
        worst_loss=inside[rows, actions],
        robust_loss=criterion[rows, actions],
    )


def _largest_losses(losses: Floats, members: Bools) -> Floats:
    """Return the largest loss of each action over each row's members, (n, A).

    Where a row has no members it is the smallest of all losses.
    """
    losses_of_members = np.where(members[:, None, :], losses[None], losses.min())  # (n, A, K)
    return np.asarray(losses_of_members.max(axis=2))


def _position_of_smallest(values: Floats, *, prefer_largest: Floats) -> Integers:
    """Find the column of the smallest value of each row.

    Among equal ones it is that with the largest `prefer_largest` (at least 0), and then the first.
    """
    is_smallest = values == values.min(axis=1, keepdims=True)
    below_all = -1.0
    return np.asarray(np.argmax(np.where(is_smallest, prefer_largest, below_all), axis=1))


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
        """Check a loss matrix, and keep it with the labels of its columns, if they are given."""
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
        """Return the matrix with one column for each wanted label, in their order.

        - `wanted`: the labels of a prediction or of sets; None stands for 0 to K - 1
        - `n_labels`: how many they are
        - `unseen`: whether some of them are labels that the model has never seen; then columns
          without names cannot be matched
        """
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
