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
_BY_CHANCE = 0.01  # probability under exchangeability below which missing values are noted


@dataclass(frozen=True, eq=False)
class UsedRows:
    """Rows that equal rows of a fit.

    `known` marks those that were recognised: all of them if `exact`, otherwise a random sample,
    from which `total`, the `counts` by role, and the number of the `others` are estimated.
    """

    total: int
    counts: Mapping[str, int]
    known: Bools
    others: int
    exact: bool


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Recognise rows of a fit among later rows.

    `hashes` holds, for each role, the first 64 bits of the hashes of its rows, the `KEPT_HASHES`
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
        """Keep the smallest hashes of each role, and count rows that have a copy among all rows."""
        words = {role: np.sort(first_words(hashes)) for role, hashes in hashes_by_role.items()}
        all_words = np.sort(np.concatenate(list(words.values())))

        # Equal rows have equal hashes, which are neighbours when sorted.
        is_repeat = all_words[1:] == all_words[:-1]
        has_copy = np.zeros(all_words.size, dtype=bool)
        has_copy[1:] |= is_repeat
        has_copy[:-1] |= is_repeat

        return cls(
            hashes={role: _keep_smallest(role_words) for role, role_words in words.items()},
            repeated=np.count_nonzero(has_copy) / all_words.size,
            n=all_words.size,
            complete=complete,
        )

    # ----------------------------------------------------------------------------- recognise rows

    def used(self, hashes: Hashes) -> UsedRows | None:
        """Recognise rows of the fit; None if they are no more than new rows equal by chance."""
        used = self.among(hashes)
        return used if used.total > self.by_chance(len(hashes)) else None

    def of_role(self, role: str) -> KeptRows:
        """Keep the hashes of one role alone, to recognise its rows and no others."""
        hashes = {name: words for name, words in self.hashes.items() if name == role}
        return replace(self, hashes=hashes)

    def among(self, hashes: Hashes) -> UsedRows:
        """Recognise rows of the fit, and estimate how many there are from the hashes kept."""
        words = first_words(hashes)
        largest_kept = self._largest_complete_word()
        sampled_share = (largest_kept + 1) / 2**64
        is_sampled = words <= np.uint64(largest_kept)

        is_known = np.zeros(words.size, dtype=bool)
        counts = {}
        for role, role_words in self.hashes.items():
            is_of_role = np.isin(words, role_words) & is_sampled
            is_known |= is_of_role
            if is_of_role.any():
                counts[role] = _scale_up(is_of_role, sampled_share)

        return UsedRows(
            total=_scale_up(is_known, sampled_share),
            counts=counts,
            known=is_known,
            others=_scale_up(is_sampled & ~is_known, sampled_share),
            exact=sampled_share == 1,
        )

    def _largest_complete_word(self) -> int:
        """Return the number up to which all hashes of all roles were kept."""
        full_samples = [words for words in self.hashes.values() if words.size == KEPT_HASHES]
        return min((int(words[-1]) for words in full_samples), default=2**64 - 1)

    def absent(self, hashes: Hashes) -> dict[str, int]:
        """Count, for each role, the hashes kept that none of these rows has."""
        words = first_words(hashes)
        return {
            role: int(np.count_nonzero(~np.isin(role_words, words)))
            for role, role_words in self.hashes.items()
        }

    def by_chance(self, n: int) -> float:
        """Bound how many of n new rows equal a row of the fit by chance: the mean and five standard
        deviations.
        """
        if self.repeated == 0:
            return 0.0
        variance = n * self.repeated * (1 - self.repeated) * (1 + n / self.n)
        return n * self.repeated + 5 * math.sqrt(variance)

    # --------------------------------------------------------------------------------- note gaps

    def gaps(self, X: Any) -> Counter[Any]:
        """Count the missing cells of X in each column that had none in the fit, by its name."""
        if not self.complete.any():
            return Counter()
        missing = missing_cells(X) * self.complete
        names = list(X.columns) if is_frame(X) else range(len(missing))
        return Counter({names[column]: int(missing[column]) for column in np.flatnonzero(missing)})

    def note_gaps(self, gaps: Counter[Any], n: int) -> list[Note]:
        """Note columns of which so many of n new rows lack a value that rows like those of the fit
        hardly would.

        If all rows are exchangeable, c rows of N + n without a value are all among the n new ones
        with probability at most (n / (N + n))**c, N rows being in the fit.
        """
        share_of_new_rows = n / (n + self.n)
        columns = [
            f"{name!r} in {count}"
            for name, count in gaps.most_common()
            if share_of_new_rows**count < _BY_CHANCE
        ]
        if not columns:
            return []
        text = (
            f"{counted(len(columns), 'column')} had no missing value in the fit and "
            f"{have(len(columns))} some in {counted(n, 'new row')} ({first_few(columns)}): such "
            f"rows are not like those of the fit, which the guarantee is for."
        )
        return [Note("new-gaps", text)]


def _keep_smallest(ascending: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the `KEPT_HASHES` smallest of the numbers, each once."""
    is_first = np.ones(ascending.size, dtype=bool)
    is_first[1:] = ascending[1:] != ascending[:-1]
    smallest: NDArray[np.uint64] = ascending[is_first][:KEPT_HASHES]
    return smallest.copy()  # so that the other numbers can be forgotten


def _scale_up(is_counted: Bools, sampled_share: float) -> int:
    """Estimate how many rows there are from those in the sample."""
    return min(round(np.count_nonzero(is_counted) / sampled_share), is_counted.size)
