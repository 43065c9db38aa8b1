"""One threshold for all rows: the plain case of split conformal prediction."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dco.calibration.base import (
    CalibratedCondition,
    Calibration,
    Calibrator,
    CoverageLaw,
    has_ties_near,
)
from dco.calibration.facts import OrderStatisticFacts
from dco.calibration.full_sets import note_full_sets
from dco.calibration.guarantee import RankGuarantee, guarantee_called
from dco.foundations.arrays import AnyArray
from dco.foundations.notes import Note
from dco.structure import ScoredRows


@dataclass(frozen=True)
class OneThreshold(Calibrator):
    """One order statistic of all calibration scores, by the rank of the guarantee."""

    guarantee: RankGuarantee

    takes_condition = True

    def calibrate(self, scored: ScoredRows, *, alpha: Fraction) -> ThresholdForAll:
        return ThresholdForAll(self, scored, alpha)

    def smallest_size(self, *, alpha: Fraction) -> int:
        return self.guarantee.smallest_size(alpha=alpha)

    def with_guarantee(self, guarantee: str, *, delta: Fraction | None) -> OneThreshold:
        return OneThreshold(guarantee_called(guarantee, delta=delta))


@dataclass(frozen=True, eq=False)
class ThresholdForAll(Calibration):
    """The calibration score of one rank, for all rows."""

    calibrator: OneThreshold

    @cached_property
    def conditions(self) -> tuple[CalibratedCondition, ...]:
        scores = self.scored.scores
        threshold = self.calibrator.guarantee.threshold(scores, alpha=self.alpha)
        law = CoverageLaw.of_threshold(threshold, is_tied=has_ties_near(threshold, scores))
        return (CalibratedCondition.of_all_rows(threshold, scores, law=law),)

    def facts(self) -> OrderStatisticFacts:
        guarantee = self.calibrator.guarantee
        return OrderStatisticFacts(
            rule=guarantee.name,
            alpha=float(self.alpha),
            delta=None if guarantee.delta is None else float(guarantee.delta),
            thresholds=tuple(condition.certified() for condition in self.conditions),
        )

    def notes(self, *, n_in_fit: int | None = None, classes: AnyArray | None = None) -> list[Note]:
        return note_full_sets(
            self.conditions[0].threshold,
            smallest=self.calibrator.smallest_size(alpha=self.alpha),
            n_in_fit=n_in_fit,
        )
