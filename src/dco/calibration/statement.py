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
        """Say that alpha is the share of misses, where it looks like the share of hits."""
        if self.alpha <= Fraction(1, 2):
            return []
        text = Message(
            f"⟨alpha={float(self.alpha):g}⟩ lets sets miss {float(100 * self.alpha):g} % of rows: "
            "alpha is the share of misses."
        )
        remedy = Message(
            f"For sets that cover {float(100 * self.alpha):g} % of rows, give "
            f"⟨alpha={float(1 - self.alpha):g}⟩."
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
        """Return the statement at another level, or with another guarantee."""
        level = self.alpha if alpha is None else as_rational(alpha)
        failure = self.delta if delta is None else as_rational(delta, name="delta")
        name = self.guarantee if guarantee is None else guarantee
        needs_delta = guarantee_called(name, delta=failure).needs_delta
        if delta is not None and not needs_delta:
            raise ValueError('delta belongs to the guarantee "pac"; pass guarantee="pac" with it.')

        calibrator = self.calibrator
        if (name, failure) != (self.guarantee, self.delta):
            calibrator = calibrator.with_guarantee(name, delta=failure)
        return Statement(level, calibrator, name, failure)

    def reweight(self, weights: Any) -> Statement:
        """Return the statement for new rows of this mix; weights of before no longer count."""
        calibrator = self.calibrator
        if isinstance(calibrator, Weighted):
            calibrator = OneThreshold(Marginal())
        if weights is None:
            return replace(self, calibrator=calibrator)

        if not isinstance(calibrator, OneThreshold):
            raise _no_kind_for("⟨weights⟩", "⟨condition_on⟩ or ⟨groups=⟩")
        calibrator = choose_calibrator(
            calibrator.guarantee, condition_on=None, weights=weights, is_clustered=False
        )
        return replace(self, calibrator=calibrator)


def make_statement(
    alpha: Level,
    *,
    guarantee: str = "marginal",
    delta: Level = 0.05,
    condition_on: Any = None,
    weights: Any = None,
    is_clustered: bool = False,
) -> Statement:
    """Turn what a user asks for into a level and a kind of calibration.

    `is_clustered`: rows belong together (``groups=`` of the fit).
    """
    level = as_rational(alpha)
    failure = as_rational(delta, name="delta")
    calibrator = choose_calibrator(
        guarantee_called(guarantee, delta=failure),
        condition_on=condition_on,
        weights=weights,
        is_clustered=is_clustered,
    )
    return Statement(level, calibrator, guarantee, failure)


def choose_calibrator(
    guarantee: RankGuarantee, *, condition_on: Any, weights: Any, is_clustered: bool
) -> Calibrator:
    """Choose the kind of calibration, or say which wishes no kind can meet together."""
    if is_clustered:
        if condition_on is not None:
            raise _no_kind_for("⟨groups=⟩", "⟨condition_on=⟩")
        if weights is not None:
            raise _no_kind_for("⟨groups=⟩", "⟨weights=⟩")
        return cluster_calibrator(guarantee)

    if weights is not None:
        if condition_on is not None:
            raise _no_kind_for("⟨weights⟩", "⟨condition_on⟩")
        if not guarantee.weighs_rows:
            raise _no_kind_for("⟨weights⟩", f'⟨guarantee="{guarantee.name}"⟩')
        if not isinstance(weights, ShiftWeights):
            weights = ShiftWeights(weights)
        return Weighted(weights)

    if condition_on is None:
        return OneThreshold(guarantee)
    if isinstance(condition_on, list):
        parts = tuple(ColumnCondition(source) for source in condition_on)
        calibrator = OverlappingGroups(PatternCondition(parts))
        return calibrator.with_guarantee(guarantee.name, delta=guarantee.delta)
    if isinstance(condition_on, str) and condition_on == LABEL_CLUSTERS:
        return ByLabelCluster(guarantee)
    if isinstance(condition_on, str) and condition_on == "label":
        return ByCondition(LabelCondition(), guarantee)
    return ByCondition(ColumnCondition(condition_on), guarantee)


def _no_kind_for(one: str, other: str) -> ValueError:
    """Make the error that these two wishes cannot be met together."""
    return ValueError(
        Message(f"{one} cannot be combined with {other}: no threshold is known for both.")
    )
