"""What every kind of calibration offers, and the records that it hands over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from scipy.special import betaincinv

from dco.calibration.conditions import Condition
from dco.calibration.facts import CalibrationFacts, CertifiedThreshold, certified_threshold
from dco.calibration.full_sets import note_new_conditions
from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.notes import Note
from dco.foundations.ranks import Threshold
from dco.foundations.tables import n_rows
from dco.structure import ScoredRows
from dco.theory import Consistency, coverage_consistency, ranks_near_threshold


class Calibrator(ABC):
    """How scores of calibration rows become thresholds, and what these guarantee.

    A calibrator is chosen before the calibration rows are opened. The same scored rows can be
    calibrated again at another level, since a level is no choice among structures.
    """

    learns_from_tuning: ClassVar[bool] = False  # whether `learn` needs scores of tuning rows
    takes_condition: ClassVar[bool] = False  # whether condition_on= may be added to it

    @abstractmethod
    def calibrate(self, scored: ScoredRows, *, alpha: Fraction) -> Calibration:
        """Compute the thresholds at level 1 - alpha."""

    @abstractmethod
    def smallest_size(self, *, alpha: Fraction) -> int:
        """Return how many rows a finite threshold needs (in each condition, if there are any)."""

    @abstractmethod
    def with_guarantee(self, guarantee: str, *, delta: Fraction | None) -> Calibrator:
        """Return this kind with another guarantee, such as "pac"."""

    def covariates(self, X: Any, y: AnyArray) -> AnyArray | None:
        """Read what this kind needs of each row beside its score: its condition, say, or weight."""
        return None

    def check_covariates(self, X: Any, y: AnyArray, covariates: AnyArray | None) -> None:
        """Raise if the covariates of a row change when it comes in a smaller batch."""
        return

    def condition_for_tuning(self, X: Any, y: AnyArray) -> Condition | None:
        """Return what decides the thresholds of tuning rows; None for one threshold."""
        return None

    def learn(
        self,
        *,
        tuning_scores: Floats | None,
        tuning_labels: AnyArray,
        fitting_labels: AnyArray,
        classes: AnyArray | None,
        n_calibration_rows: int,
        alpha: Fraction,
    ) -> Calibrator:
        """Return this calibrator with what it learns from training and tuning rows.

        Most kinds learn nothing and return themselves. One that gives clusters of labels a
        threshold, for example, learns here which labels are in a cluster. Calibration rows are not
        seen: only their number is known.

        Parameters
        ----------
        tuning_scores, tuning_labels
            The scores of the tuning rows under the chosen model, and their labels (or targets).
            None instead of scores: nothing was tuned.
        fitting_labels
            The labels of the training and tuning rows together.
        classes
            All labels; None for a regression.
        n_calibration_rows
            How many rows will calibrate.
        alpha
            One minus the coverage wanted.
        """
        return self

    def is_conditioned_on(self, source: Any) -> bool:
        """Return whether this column, function or list of them gives rows their thresholds."""
        return False

    def condition_column(self) -> Any:
        """Return the column (or "label") that gives rows their thresholds, if it is one."""
        return None

    def condition_in_words(self) -> str | None:
        """Say in words, the same in every run, what decides which threshold a row gets."""
        return None


@dataclass(frozen=True, eq=False)
class CalibratedCondition:
    """The rows that share a threshold: those of one condition, or all of them (key None).

    `value` is what evaluations show of the key, and `name` is its name on a certificate.
    `threshold` is an order statistic of `scores` if it has a rank. `law` is None where no law of
    coverage is known.
    """

    key: Hashable
    value: Any
    name: str | None
    threshold: Threshold
    scores: Floats
    law: CoverageLaw | None

    @classmethod
    def of_all_rows(
        cls, threshold: Threshold, scores: Floats, *, law: CoverageLaw | None = None
    ) -> CalibratedCondition:
        """Say that all rows share this threshold."""
        return cls(key=None, value=None, name=None, threshold=threshold, scores=scores, law=law)

    def certified(self) -> CertifiedThreshold:
        """Return the threshold with the numbers that follow from its rank."""
        return certified_threshold(
            self.threshold.value,
            rank=self.threshold.rank,
            n=self.threshold.n,
            is_tied=self.law is not None and self.law.is_tied,
            group=self.name,
        )


@dataclass(frozen=True, eq=False)
class ConditionRows:
    """Rows that an evaluation looks at together, since they share a value: a condition or group."""

    value: Any
    rows: Integers
    law: CoverageLaw | None


@dataclass(frozen=True, eq=False)
class Calibration(ABC):
    """Thresholds at one level, and everything that follows from them."""

    calibrator: Calibrator
    scored: ScoredRows
    alpha: Fraction

    # why hits of new rows have no known law of coverage; None if they have one
    no_law: ClassVar[str | None] = None
    # whether the thresholds follow from scores and covariates of the rows alone, in any order
    follows_from_rows: ClassVar[bool] = True

    @property
    @abstractmethod
    def conditions(self) -> tuple[CalibratedCondition, ...]:
        """The conditions of the calibration rows, each with its threshold."""

    @abstractmethod
    def facts(self) -> CalibrationFacts:
        """Return what a certificate states of this calibration."""

    @abstractmethod
    def notes(self, *, n_in_fit: int | None = None, classes: AnyArray | None = None) -> list[Note]:
        """Say which thresholds are infinite, why, and what helps.

        `n_in_fit` is how many rows (or clusters) the fit divided among training, tuning and
        calibration, for advice on these sizes; `classes` are all labels of the fit, to name those
        without calibration rows.
        """

    @property
    def law(self) -> CoverageLaw | None:
        """The law of coverage of all rows together; None if they share no threshold."""
        if len(self.conditions) == 1 and self.conditions[0].key is None:
            return self.conditions[0].law
        return None

    def laws(self) -> dict[Any, CoverageLaw]:
        """Return the law of coverage for each condition, by the value that its rows share."""
        return {}

    def thresholds(self, X: Any, labels: AnyArray | None = None) -> float | Floats:
        """Return the thresholds of new rows in the shape that a score takes.

        That is one number for all of them, or one for each row, (n,). For classes `labels` are
        those that are tried, and the shape is (n, 1), (1, K) or (n, K).
        """
        return self.conditions[0].threshold.value

    def p_values(
        self,
        scores: Floats,
        X: Any,
        *,
        targets: AnyArray | None = None,
        labels: AnyArray | None = None,
    ) -> Floats:
        """Compute (1 + #{calibration scores >= s}) / (n + 1) for scores of targets, or of labels.

        ``p > alpha`` is the same event as ``s <= threshold`` of the marginal guarantee, which reads
        alpha as it was written: compare with 0.1, not with the float 1 - 0.9.
        """
        return p_values_among(self.scored.scores, scores)

    def condition_positions(self, X: Any, y: AnyArray) -> Integers:
        """Find the condition of each row in `conditions`; -1 for one without calibration rows."""
        return np.zeros(n_rows(X), dtype=np.int64)

    def evaluated_groups(self, X: Any, y: AnyArray) -> tuple[ConditionRows, ...]:
        """Find the rows that are evaluated by themselves; none where all share one threshold."""
        return ()

    def new_conditions(self, X: Any) -> Counter[str]:
        """Count the rows of each condition without calibration rows: their sets are full."""
        return Counter()

    def note_new_conditions(self, n_rows_of: Counter[str], rows: str) -> list[Note]:
        """Note how many of the rows ("200 rows") have conditions without calibration rows.

        `n_rows_of` counts the rows of each such condition, as `new_conditions` does.
        """
        return note_new_conditions(n_rows_of, rows)

    def sentence(self) -> str:
        """Say what is guaranteed, to somebody who has to rely on it."""
        return self.facts().sentence()

    def __getstate__(self) -> dict[str, Any]:
        """Keep the fields alone: files and copies hold nothing that follows from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class CoverageLaw:
    """How coverage is distributed over calibrations: Beta(rank, n + 1 - rank), for i.i.d. rows.

    With ties at the threshold coverage is at least that. Rank n + 1 stands for full sets, which
    cover every label that is known.
    """

    n: int
    rank: int
    is_tied: bool = False

    @classmethod
    def of_threshold(cls, threshold: Threshold, *, is_tied: bool) -> CoverageLaw | None:
        """Return the law of a threshold; None if it certifies no coverage by its rank."""
        if threshold.rank is None or threshold.guarantee not in ("marginal", "pac"):
            return None
        if threshold.value == np.inf:
            return cls(threshold.n, threshold.n + 1)
        return cls(threshold.n, threshold.rank, is_tied)

    @property
    def is_infinite(self) -> bool:
        """Whether the threshold is infinite, so that every set is full."""
        return self.rank > self.n

    @property
    def mean(self) -> float:
        """The expected coverage if scores are distinct, a lower bound otherwise."""
        return self.rank / (self.n + 1)

    def interval(self, share: float = 0.9) -> tuple[float, float]:
        """Return an interval that holds coverage with this probability over calibrations."""
        if self.is_infinite:
            return 1.0, 1.0
        tails = [(1 - share) / 2, (1 + share) / 2]
        low, high = betaincinv(self.rank, self.n + 1 - self.rank, tails)
        return float(low), float(high)

    def judge(self, hits: int, n_rows: int, *, unknown_labels: int = 0) -> Consistency | None:
        """Test whether a number of covered test rows agrees with this law of coverage.

        Of `n_rows` test rows, `hits` are covered by their sets, and `unknown_labels` have a label
        that the fit does not know, so that no set can cover them. Return the result of the test, or
        None if all labels are unknown: such rows say nothing.
        """
        if unknown_labels == n_rows:
            return None

        # With a finite threshold, rows of unknown labels are misses like others: the law allows for
        # them, as calibration rows of such labels had the score +inf. With an infinite threshold it
        # says that every row is covered, which holds for rows of known labels only.
        n_not_tested = unknown_labels if self.is_infinite else 0
        return coverage_consistency(
            hits,
            n_rows - n_not_tested,
            rank=self.rank,
            n_cal=self.n,
            tied=self.is_tied,
            unknown_labels=n_not_tested,
        )


def has_ties_near(threshold: Threshold, scores: Floats) -> bool:
    """Return whether two calibration scores are equal at the threshold or near it.

    If they are, coverage may be higher than its law says, which is for distinct scores. Near are
    all ranks at which the threshold would fall with other calibration rows. Equal scores elsewhere,
    such as many probabilities of 1, change nothing.
    """
    if threshold.rank is None or not np.isfinite(threshold.value):
        return False
    ascending = np.sort(scores)
    equals_previous = ascending[1:] == ascending[:-1]
    if not equals_previous.any():
        return False

    # Compare each pair of neighbours of which one has a rank from first to last. Entry i of
    # `equals_previous` is the pair of the ranks i + 1 and i + 2 (ranks count from 1).
    first, last = ranks_near_threshold(threshold.rank, n_cal=threshold.n)
    first_pair = max(first - 2, 0)
    last_pair = last - 1
    return bool(equals_previous[first_pair : last_pair + 1].any())


def p_values_among(calibration_scores: Floats, scores: Floats) -> Floats:
    """Compute p-values: (1 + #{calibration scores >= s}) / (n + 1) for each score s."""
    ordered = np.sort(calibration_scores.astype(np.float64))
    n = ordered.size
    n_below = np.searchsorted(ordered, np.asarray(scores, dtype=np.float64), side="left")
    p_value_of_count = np.arange(n + 1, 0, -1) / (n + 1)  # one division each keeps p > alpha exact
    return np.asarray(p_value_of_count[n_below])
