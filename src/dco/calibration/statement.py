"""What is to be guaranteed, from what a user asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dco.calibration.base import Calibration, Calibrator
from dco.calibration.by_cluster import cluster_calibrator
from dco.calibration.by_condition import ByCondition
from dco.calibration.conditions import ColumnCondition, LabelCondition, PatternCondition
from dco.calibration.guarantee import RankGuarantee, guarantee_called
from dco.calibration.label_clusters import ByLabelCluster
from dco.calibration.marginal import Marginal
from dco.calibration.one_threshold import OneThreshold
from dco.calibration.overlapping_groups import OverlappingGroups
from dco.calibration.weighted import ShiftWeights, Weighted
from dco.foundations.notes import Message, Note
from dco.foundations.ranks import Level, as_rational
from dco.rows.conditions import LABEL_CLUSTERS
from dco.structure import ScoredRows


@dataclass(frozen=True)
class Statement:
    """What is to be guaranteed: the level, and the kind of calibration.

    `guarantee` and `delta` are what the user asked for; `delta` also counts for a guarantee that is
    asked for after the fit.
    """

    alpha: Fraction
    calibrator: Calibrator
    guarantee: str
    delta: Fraction

    def smallest_size(self) -> int:
        """Return how many calibration rows a finite threshold needs (in each condition)."""
        return self.calibrator.smallest_size(alpha=self.alpha)

    def notes(self) -> list[Note]:
        """Warn of an alpha above 1/2, such as 0.9, by which 0.1 may have been meant."""
        if self.alpha <= Fraction(1, 2):
            return []

        alpha = float(self.alpha)
        percent = float(100 * self.alpha)
        alpha_meant = float(1 - self.alpha)
        text = Message(
            f"⟨alpha={alpha:g}⟩ lets sets miss {percent:g} % of rows: alpha is the share of misses."
        )
        remedy = Message(
            f"For sets that cover {percent:g} % of rows, give ⟨alpha={alpha_meant:g}⟩."
        )
        return [Note("large-alpha", text, remedy)]

    def calibrate(self, scored: ScoredRows) -> Calibration:
        """Compute the thresholds of this statement."""
        return self.calibrator.calibrate(scored, alpha=self.alpha)

    def change(
        self,
        alpha: Level | None = None,
        *,
        guarantee: str | None = None,
        delta: Level | None = None,
    ) -> Statement:
        """Return this statement at another level or with another guarantee; None keeps a part.

        `guarantee` is a name, such as "marginal" or "pac". Only "pac" has a failure probability
        `delta`; with another guarantee it is an error.
        """
        new_alpha = self.alpha if alpha is None else as_rational(alpha)
        new_delta = self.delta if delta is None else as_rational(delta, name="delta")
        new_guarantee = self.guarantee if guarantee is None else guarantee

        needs_delta = guarantee_called(new_guarantee, delta=new_delta).needs_delta
        if delta is not None and not needs_delta:
            raise ValueError('delta belongs to the guarantee "pac"; pass guarantee="pac" with it.')

        calibrator = self.calibrator
        if (new_guarantee, new_delta) != (self.guarantee, self.delta):
            calibrator = calibrator.with_guarantee(new_guarantee, delta=new_delta)
        return Statement(new_alpha, calibrator, new_guarantee, new_delta)

    def reweight(self, weights: Any) -> Statement:
        """Return this statement with other weights in place of those that it has, if any.

        `weights` say how much more frequent rows are among new rows than in calibration, as a
        function of X, a dict {label: ratio} or `ShiftWeights`. None returns the statement without
        weights.
        """
        # 1. Take the present weights away. What stays is one threshold for all rows, with the
        # marginal guarantee, the only one that weights can have.
        unweighted = self.calibrator
        if isinstance(self.calibrator, Weighted):
            unweighted = OneThreshold(Marginal())
        if weights is None:
            return replace(self, calibrator=unweighted)

        # 2. Add the new ones.
        if not isinstance(unweighted, OneThreshold):
            raise _cannot_combine("weights", "condition_on", "groups=")
        return replace(self, calibrator=weighted_calibrator(unweighted.guarantee, weights))


def make_statement(
    alpha: Level,
    *,
    guarantee: str = "marginal",
    delta: Level = 0.05,
    condition_on: Any = None,
    weights: Any = None,
    is_clustered: bool = False,
) -> Statement:
    """Turn what a user asks for into a statement: a level and a kind of calibration.

    Parameters
    ----------
    alpha
        The share of new rows that may be missed.
    guarantee, delta
        The name of the guarantee, and the failure probability if it has one.
    condition_on
        What gives rows thresholds of their own: a column of X, a function of X, a list of these,
        "label" or "label-clusters".
    weights
        How much more frequent rows are among new rows than in calibration (`ShiftWeights`).
    is_clustered
        Whether rows belong together (``groups=`` of the fit).
    """
    exact_alpha = as_rational(alpha)
    exact_delta = as_rational(delta, name="delta")
    calibrator = choose_calibrator(
        guarantee_called(guarantee, delta=exact_delta),
        condition_on=condition_on,
        weights=weights,
        is_clustered=is_clustered,
    )
    return Statement(exact_alpha, calibrator, guarantee, exact_delta)


def choose_calibrator(
    guarantee: RankGuarantee, *, condition_on: Any, weights: Any, is_clustered: bool
) -> Calibrator:
    """Choose the kind of calibration for these arguments of `make_statement`.

    Clusters (``groups=``), weights and conditions exclude each other: two of them are an error.
    """
    if is_clustered:
        if condition_on is not None:
            raise _cannot_combine("groups=", "condition_on=")
        if weights is not None:
            raise _cannot_combine("groups=", "weights=")
        return cluster_calibrator(guarantee)

    if weights is not None:
        if condition_on is not None:
            raise _cannot_combine("weights", "condition_on")
        return weighted_calibrator(guarantee, weights)

    if condition_on is None:
        return OneThreshold(guarantee)
    return condition_calibrator(guarantee, condition_on)


def weighted_calibrator(guarantee: RankGuarantee, weights: Any) -> Weighted:
    """Make the calibrator for new rows that come in other proportions than calibration rows.

    `weights` are a function of X, a dict {label: ratio}, or `ShiftWeights` made of one of these.
    """
    if not guarantee.weighs_rows:
        raise _cannot_combine("weights", f'guarantee="{guarantee.name}"')
    if isinstance(weights, ShiftWeights):
        return Weighted(weights)
    return Weighted(ShiftWeights(weights))


def condition_calibrator(guarantee: RankGuarantee, condition_on: Any) -> Calibrator:
    """Make the calibrator that gives rows thresholds of their own.

    `condition_on` is a column of X, a function of X, a list of these (groups that overlap), "label"
    or "label-clusters".
    """
    if isinstance(condition_on, list):
        parts = tuple(ColumnCondition(source) for source in condition_on)
        calibrator = OverlappingGroups(PatternCondition(parts))
        return calibrator.with_guarantee(guarantee.name, delta=guarantee.delta)

    if isinstance(condition_on, str) and condition_on == LABEL_CLUSTERS:
        return ByLabelCluster(guarantee)
    if isinstance(condition_on, str) and condition_on == "label":
        return ByCondition(LabelCondition(), guarantee)
    return ByCondition(ColumnCondition(condition_on), guarantee)


def _cannot_combine(parameter: str, *others: str) -> ValueError:
    """Make the error that a parameter cannot be given together with any of the others."""
    other_parameters = " or ".join(f"⟨{other}⟩" for other in others)
    return ValueError(
        Message(
            f"⟨{parameter}⟩ cannot be combined with {other_parameters}: no threshold is known for "
            f"both."
        )
    )
