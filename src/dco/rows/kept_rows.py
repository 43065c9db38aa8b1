"""What a fit remembers of its rows: hashes that recognise them later, and columns without gaps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dco.foundations.arrays import Bools
from dco.foundations.display import counted, first_few, have
from dco.foundations.fingerprints import Hashes, first_words
from dco.foundations.notes import Note
from dco.foundations.tables import is_frame, missing_cells

KEPT_HASHES = 2**16  # of each role, half a megabyte at most
LARGEST_UINT64 = 2**64 - 1
# Columns with new gaps are noted where chance would leave so many with a probability below this.
_UNLIKELY = 0.01
_DEVIATIONS_ABOVE_MEAN = 5  # standard deviations that a bound on chance allows


@dataclass(frozen=True, eq=False)
class RecognisedRows:
    """Which of some new rows equal rows of a fit.

    `is_recognised` marks the new rows that equal a row of the fit. If not `is_exact`, only a random
    sample of the new rows could be looked up: the others are not marked, and the three counts are
    estimates.
    """

    n_rows: int  # recognised rows in all
    n_rows_by_role: Mapping[str, int]
    n_new: int  # rows that equal no row of the fit
    is_recognised: Bools
    is_exact: bool


@dataclass(frozen=True, eq=False)
class KeptRows:
    """What a fit keeps of its rows, to recognise them among later rows.

    `hashes` holds, for each role, the first 64 bits of the hashes of its rows: the `KEPT_HASHES`
    smallest, ascending. Hashes are uniform, so these are a random sample of the role, and a new row
    can be looked up if its own hash is small enough to be in the sample. `repeated` is the share of
    the `n` rows that have a copy among them: of new rows, that share has one by chance. `complete`
    marks the columns that had no missing cell.
    """

    hashes: Mapping[str, NDArray[np.uint64]] = field(default_factory=dict)
    repeated: float = 0.0
    n: int = 0
    complete: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @classmethod
    def of(cls, hashes_by_role: Mapping[str, Hashes], complete: Bools) -> KeptRows:
        """Keep of a fit what `recognise` and `gaps` need to know of its rows.

        `hashes_by_role` has a hash for each row of the roles "train", "tune" and "calibrate".
        `complete` marks the columns that have no missing cell in any of these rows.
        """
        # 1. Take the first 64 bits of each hash, as a number.
        numbers_of_role = {
            role: np.sort(first_words(hashes)) for role, hashes in hashes_by_role.items()
        }

        # 2. Mark the rows that have a copy. Equal rows have equal numbers, which are neighbours
        # when sorted: each equals the one before it or the one after it.
        all_numbers = np.sort(np.concatenate(list(numbers_of_role.values())))
        equals_next = all_numbers[:-1] == all_numbers[1:]
        has_copy = np.append(equals_next, False) | np.insert(equals_next, 0, False)

        return cls(
            hashes={role: _keep_smallest(numbers) for role, numbers in numbers_of_role.items()},
            repeated=np.count_nonzero(has_copy) / all_numbers.size,
            n=all_numbers.size,
            complete=complete,
        )

    # ----------------------------------------------------------------------------- recognise rows

    def recognise(self, hashes: Hashes) -> RecognisedRows:
        """Find which new rows equal rows of the fit; `hashes` has the hash of each new row.

        Of a role (train, tune, calibrate) with many rows only the smallest hashes are kept. So a
        new row can be looked up only if its own hash is small. Hashes are uniform random numbers:
        the share of new rows that can be looked up is known, and counts are divided by it.
        """
        # 1. Mark the new rows that can be looked up.
        numbers = first_words(hashes)
        largest_number = self._largest_searchable_number()
        is_searchable = numbers <= np.uint64(largest_number)
        searchable_share = (largest_number + 1) / (LARGEST_UINT64 + 1)

        # 2. Look them up in each role. A row may be found in several.
        is_recognised = np.zeros(numbers.size, dtype=bool)
        n_rows_by_role = {}
        for role, kept_numbers in self.hashes.items():
            is_of_role = np.isin(numbers, kept_numbers) & is_searchable
            is_recognised |= is_of_role
            if is_of_role.any():
                n_rows_by_role[role] = _scale_up(is_of_role, searchable_share)

        return RecognisedRows(
            n_rows=_scale_up(is_recognised, searchable_share),
            n_rows_by_role=n_rows_by_role,
            n_new=_scale_up(is_searchable & ~is_recognised, searchable_share),
            is_recognised=is_recognised,
            is_exact=searchable_share == 1,
        )

    def recognise_unless_by_chance(self, hashes: Hashes) -> RecognisedRows | None:
        """Recognise rows of the fit; None if no more rows are equal than chance explains."""
        recognised = self.recognise(hashes)
        is_by_chance = recognised.n_rows <= self.by_chance(len(hashes))
        return None if is_by_chance else recognised

    def of_role(self, role: str) -> KeptRows:
        """Keep the hashes of one role alone, to recognise its rows and no others."""
        hashes = {name: numbers for name, numbers in self.hashes.items() if name == role}
        return replace(self, hashes=hashes)

    def _largest_searchable_number(self) -> int:
        """Return the number up to which all hashes of all roles were kept."""
        last_numbers = [
            int(numbers[-1]) for numbers in self.hashes.values() if numbers.size == KEPT_HASHES
        ]
        return min(last_numbers, default=LARGEST_UINT64)

    def absent(self, hashes: Hashes) -> dict[str, int]:
        """Count, for each role, the kept hashes that no row of a table has.

        `hashes` has the hash of each row of the table.
        """
        numbers = first_words(hashes)
        return {
            role: int(np.count_nonzero(~np.isin(kept_numbers, numbers)))
            for role, kept_numbers in self.hashes.items()
        }

    def by_chance(self, n: int) -> float:
        """Bound how many of n new rows equal a row of the fit by chance.

        The bound is mean + 5 standard deviations. With p the share of the N rows of the fit that
        have a copy, the mean is n p and the variance n p (1 - p) (1 + n / N).
        """
        p = self.repeated
        if p == 0:
            return 0.0
        variance = n * p * (1 - p) * (1 + n / self.n)
        return n * p + _DEVIATIONS_ABOVE_MEAN * math.sqrt(variance)

    # --------------------------------------------------------------------------------- note gaps

    def gaps(self, X: Any) -> Counter[Any]:
        """Count the missing cells of X in each column that had none in the fit, by its name."""
        if not self.complete.any():
            return Counter()
        missing = missing_cells(X) * self.complete
        names = list(X.columns) if is_frame(X) else range(len(missing))
        return Counter({names[column]: int(missing[column]) for column in np.flatnonzero(missing)})

    def note_gaps(self, gaps: Counter[Any], n: int) -> list[Note]:
        """Warn of columns that had no missing value in the fit and have many in n new rows.

        `gaps` counts the missing values of each such column: {"age": 12}. A column is reported if
        so many are unlikely for rows like those of the fit. With c missing values among the N rows
        of the fit and the n new ones, exchangeable, all c fall on new rows with probability at most
        (n / (N + n))**c.
        """
        share_of_new_rows = n / (n + self.n)
        columns = []
        for name, count in gaps.most_common():
            probability = share_of_new_rows**count
            if probability < _UNLIKELY:
                columns.append(f"{name!r} in {count}")
        if not columns:
            return []

        text = (
            f"{counted(len(columns), 'column')} had no missing value in the fit and "
            f"{have(len(columns))} some in {counted(n, 'new row')} ({first_few(columns)}): such "
            f"rows are not like those of the fit, which the guarantee is for."
        )
        return [Note("new-gaps", text)]


def _keep_smallest(ascending: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the `KEPT_HASHES` smallest of some ascending numbers, each once."""
    is_first = np.ones(ascending.size, dtype=bool)
    is_first[1:] = ascending[1:] != ascending[:-1]
    smallest: NDArray[np.uint64] = ascending[is_first][:KEPT_HASHES]
    return smallest.copy()  # so that the other numbers can be forgotten


def _scale_up(is_counted: Bools, searchable_share: float) -> int:
    """Estimate a count among all rows from the marked rows among those that can be looked up."""
    n_counted = np.count_nonzero(is_counted)
    return min(round(n_counted / searchable_share), is_counted.size)
