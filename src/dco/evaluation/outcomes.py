"""What prediction sets did on rows with known targets: row by row, and counted."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Bools, Floats, Integers
from dco.sets.prediction_sets import PredictionSets


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What the prediction set of each row did; every field has a value for each row.

    Attributes
    ----------
    covered
        Whether the set holds the row's target.
    known
        Whether any set could: False for a label that the fit does not know.
    sizes
        The size of the set: a number of labels, or a length.
    empty, full
        Whether it holds nothing; whether it holds every label, or the whole line.
    has_one_label
        Whether it holds exactly one label. None for sets of numbers.
    """

    covered: Bools
    known: Bools
    sizes: Floats
    empty: Bools
    full: Bools
    has_one_label: Bools | None

    @classmethod
    def of(cls, sets: PredictionSets, y: ArrayLike) -> Self:
        """Compare each row's set with the row's target."""
        sets = sets.on_host()
        return cls(
            covered=np.asarray(sets.contains(y), dtype=bool),
            known=np.asarray(sets.knows(y), dtype=bool),
            sizes=np.asarray(sets.sizes(), dtype=np.float64),
            empty=np.asarray(sets.is_empty(), dtype=bool),
            full=np.asarray(sets.is_full(), dtype=bool),
            has_one_label=np.asarray(sets.has_one_label()) if sets.holds_labels else None,
        )

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, rows: Integers) -> Outcomes:
        """Return the outcomes of some rows."""
        return Outcomes(
            covered=self.covered[rows],
            known=self.known[rows],
            sizes=self.sizes[rows],
            empty=self.empty[rows],
            full=self.full[rows],
            has_one_label=None if self.has_one_label is None else self.has_one_label[rows],
        )


@dataclass(frozen=True)
class Counts:
    """Counts over some rows, which add up: ``Counts.of(a) + Counts.of(b)`` counts both.

    `finite_sizes` holds sums of finite sizes, one for each part that was counted.
    """

    rows: int = 0
    covered: int = 0
    unknown: int = 0
    empty: int = 0
    full: int = 0
    infinite: int = 0
    one_label: int = 0
    finite_sizes: tuple[float, ...] = ()

    @classmethod
    def of(cls, outcomes: Outcomes) -> Self:
        """Count the rows that are covered, those whose set is empty, full or infinite, and so on.

        The sum of the finite sizes stands alone in a tuple, to which other parts add theirs.
        """
        sizes = outcomes.sizes
        sum_of_finite_sizes = math.fsum(sizes[np.isfinite(sizes)])
        has_one_label = outcomes.has_one_label
        return cls(
            rows=len(outcomes),
            covered=int(outcomes.covered.sum()),
            unknown=int(np.sum(~outcomes.known)),
            empty=int(outcomes.empty.sum()),
            full=int(outcomes.full.sum()),
            infinite=int(np.sum(np.isinf(sizes))),
            one_label=0 if has_one_label is None else int(has_one_label.sum()),
            finite_sizes=(sum_of_finite_sizes,),
        )

    def __add__(self, other: Counts) -> Counts:
        """Add up field by field; the sums of sizes stand one after the other."""
        sums = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
        }
        return Counts(**sums)

    @property
    def mean_finite_size(self) -> float:
        """The mean of the finite sizes; NaN if there is none."""
        n_finite = self.rows - self.infinite
        return math.fsum(self.finite_sizes) / n_finite if n_finite else math.nan

    @property
    def mean_size(self) -> float:
        """The mean size, infinite if one set is."""
        return math.inf if self.infinite else self.mean_finite_size
