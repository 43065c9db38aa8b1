"""Calibration scores of one fixed structure, and every threshold and p-value that follows from them."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from dco.foundations.arrays import AnyArray, Floats, Integers
from dco.foundations.display import are, counted, first_few, have
from dco.foundations.errors import InfeasibleLevelError, InfeasibleLevelWarning
from dco.foundations.ranks import Level, Threshold, as_rational, checked_scores
from dco.guarantees.rules import RULES
from dco.guarantees.theory import ranks_near_threshold
from dco.rows.fingerprints import codes_of_values
from dco.rows.groups import rows_by_group


@dataclass(frozen=True, eq=False)
class Calibration:
    """The scores of the calibration rows under the one structure they were opened for.

    `conditions` gives each row's Mondrian group: thresholds are then one a group. `groups` gives the row groups of
    clustered data: the marginal threshold is then by group, and a PAC threshold uses `one_per_group`, rows that were
    picked by seed before any score was seen.
    """

    scores: Floats
    conditions: AnyArray | None = None
    groups: AnyArray | None = None
    one_per_group: Integers | None = None

    def thresholds(self, *, alpha: Level, guarantee: str, delta: Level, simultaneous: bool = False) -> dict[Any, Threshold]:
        """One threshold a Mondrian group, or one under the key None."""
        parts = self.parts()
        failure = as_rational(delta, name="delta") / len(parts) if simultaneous else as_rational(delta, name="delta")
        return {name: self._threshold(rows, alpha=alpha, guarantee=guarantee, delta=failure) for name, rows in parts.items()}

    def parts(self) -> dict[Any, Integers]:
        """The rows of each Mondrian group, or all rows under the key None."""
        return dict(self._parts)

    @cached_property
    def _parts(self) -> dict[Any, Integers]:
        """Taken once: every set that is asked for needs them."""
        return {None: np.arange(self.scores.size)} if self.conditions is None else rows_by_group(self.conditions)

    @cached_property
    def _group_codes(self) -> Integers:
        """Taken once: texts are slow to compare."""
        return codes_of_values(self.groups)[0]

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: files and copies hold nothing that follows from them."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    def group_labels(self) -> dict[Any, str | None]:
        """What a certificate calls each group: its text, or its repr where two groups share a text (1 and "1")."""
        names = list(self.parts())
        if names == [None]:
            return {None: None}
        texts = {name: str(name) for name in names}
        count = Counter(texts.values())
        return {name: text if count[text] == 1 else repr(name) for name, text in texts.items()}

    def used(self, rows: Integers, *, guarantee: str) -> Floats:
        """The scores whose order statistic is deployed."""
        if self.one_per_group is not None and RULES[guarantee].one_per_cluster:
            rows = np.intersect1d(rows, self.one_per_group)
        return self.scores[rows]

    def is_tied(self, rows: Integers, threshold: Threshold, *, guarantee: str) -> bool:
        """Whether two scores are equal where thresholds fall (`theory.ranks_near_threshold`): at the threshold or around it.

        Coverage has the law of distinct scores unless the threshold is at an atom of theirs, and is higher if it is. Equal
        scores that no threshold comes near, such as those of saturated probabilities, change nothing. Near it they count
        even where the threshold's own score is alone: that others repeat is what can be seen of its being an atom.
        """
        if threshold.rank is None or not np.isfinite(threshold.value):
            return False
        scores = np.sort(self.used(rows, guarantee=guarantee))
        equal = scores[1:] == scores[:-1]
        if not equal.any():
            return False
        first, last = ranks_near_threshold(threshold.rank, n_cal=threshold.n)
        return bool(equal[max(first - 2, 0) : last].any())  # every pair with a score of these ranks in it

    def p_values(self, scores: Floats, conditions: AnyArray | None = None) -> Floats:
        """(1 + #{calibration scores >= s}) / (n + 1), within each Mondrian group; by group weights for clustered rows.

        ``p > alpha`` is the same event as ``s <= threshold`` of `split_conformal`, which reads alpha as it was written:
        compare with 0.1, not with the float 1 - 0.9.
        """
        values = np.asarray(scores, dtype=np.float64)
        result = np.ones(values.size)
        parts = self.parts()
        code_of = {name: code for code, name in enumerate(parts)}
        given = np.asarray([None], dtype=object) if conditions is None else np.asarray(conditions)
        codes = np.asarray([code_of.get(name, -1) for name in given.ravel().tolist()]).reshape(given.shape)
        flat = np.broadcast_to(codes, values.shape).ravel()
        by_group = np.argsort(flat, kind="stable")
        ends = np.searchsorted(flat[by_group], np.arange(len(parts) + 1))
        for code, rows in enumerate(parts.values()):
            asked = by_group[ends[code] : ends[code + 1]]
            own = self.scores[rows].astype(np.float64)
            order = np.argsort(own, kind="stable")
            result[asked] = self._steps(rows[order])[np.searchsorted(own[order], values.ravel()[asked], side="left")]
        return result.reshape(values.shape)

    def _steps(self, ordered: Integers) -> Floats:
        """The p-value of a score above i of the ordered ones, i = 0 ... n: one division each, so ``p > alpha`` is exact."""
        if self.groups is None:
            return np.arange(ordered.size + 1, 0, -1) / (ordered.size + 1)
        codes, _ = codes_of_values(self._group_codes[ordered])
        counts = np.bincount(codes)
        unit = math.lcm(*counts.tolist())
        weights = [unit // int(counts[code]) for code in codes]  # whole numbers: a group weighs `unit`, whatever its size
        at_least = [unit, *(unit + total for total in accumulate(reversed(weights)))]
        return np.asarray([total / (unit * (counts.size + 1)) for total in reversed(at_least)])

    def _threshold(self, rows: Integers, *, alpha: Level, guarantee: str, delta: Fraction) -> Threshold:
        """The rules without their warnings: `tell_infeasible` tells once for all groups."""
        rule = RULES[guarantee]
        clusters = None if self.groups is None or rule.one_per_cluster else self._group_codes[rows]
        return rule.threshold(self.used(rows, guarantee=guarantee), alpha=alpha, delta=delta, clusters=clusters)


def tell_infeasible(
    thresholds: dict[Any, Threshold],
    *,
    smallest: int,
    on_infeasible: Literal["warn", "raise"],
    unit: Literal["rows", "groups"] | None = None,
    advice: str = "",
    stacklevel: int = 2,
) -> None:
    """Say once which thresholds are infinite, and why: too few rows, or too many scores that are infinite themselves.

    `unit` is what a threshold's n counts, "groups" where rows belong together (None: told by the threshold, if it has no
    rank). `advice` says what to do about too few.
    """
    short = {name: entry for name, entry in thresholds.items() if _is_short(entry, smallest)}
    if None in short:
        entry = short[None]
        noun = (unit or ("groups" if entry.rank is None else "rows")).removesuffix("s")
        warn_or_raise(
            f"{counted(entry.n, f'calibration {noun}')} {are(entry.n)} too few for alpha = {entry.alpha:g}: the threshold "
            f"is infinite and every set is full (valid, but useless). At least {counted(smallest, noun)} {are(smallest)} "
            f"needed{advice}.",
            on_infeasible,
            stacklevel=stacklevel + 1,
        )
    elif short:
        sizes = first_few([f"{name!r}: {counted(entry.n, 'row')}" for name, entry in short.items()])
        warn_or_raise(
            f"{len(short)} of {counted(len(thresholds), 'group')} {have(len(short))} too few calibration rows for alpha = "
            f"{next(iter(short.values())).alpha:g} ({sizes}): their thresholds are infinite and rule nothing out "
            f"(valid, but useless). At least {counted(smallest, 'row')} {are(smallest)} needed in each group.",
            on_infeasible,
            stacklevel=stacklevel + 1,
        )
    ruled_out = [name for name, entry in thresholds.items() if np.isinf(entry.value) and name not in short]
    if ruled_out:
        groups = f" of {counted(len(ruled_out), 'group')} ({first_few(list(map(repr, ruled_out)))})"
        where = "" if None in thresholds else groups
        warn_or_raise(
            f"At alpha = {thresholds[ruled_out[0]].alpha:g} the threshold{where} is infinite and sets are full (valid, but "
            "useless), since too many calibration scores are infinite: the model rules out what happened in these rows.",
            on_infeasible,
            stacklevel=stacklevel + 1,
        )


def tell_new_groups(
    new: Counter[Any], rows: str, *, on_infeasible: Literal["warn", "raise"] = "warn", stacklevel: int = 2
) -> None:
    """Say once how many of the rows ("200 rows") belong to Mondrian groups that no calibration row belongs to."""
    if not new:
        return
    groups = first_few([repr(name) for name, _ in new.most_common()])
    n = new.total()
    warn_or_raise(
        f"{n} of {rows} {'belongs' if n == 1 else 'belong'} to {counted(len(new), 'group')} that {have(len(new))} no "
        f"calibration rows ({groups}): {'its set is' if n == 1 else 'their sets are'} full (valid, but useless). Calibrate "
        "with rows of these groups.",
        on_infeasible,
        stacklevel=stacklevel + 1,
    )


def warn_or_raise(message: str, on_infeasible: Literal["warn", "raise"], *, stacklevel: int = 2) -> None:
    """One sentence about sets that are full, as a warning or as an error."""
    if on_infeasible == "raise":
        raise InfeasibleLevelError(message)
    warnings.warn(message, InfeasibleLevelWarning, stacklevel=stacklevel)


def _is_short(threshold: Threshold, smallest: int) -> bool:
    return bool(np.isinf(threshold.value)) and threshold.n < smallest


def checked_calibration_scores(scores: Floats, *, structure: str) -> Floats:
    """Calibration scores without NaN; once the seal is open there is no other structure to fall back to."""
    try:
        return checked_scores(scores)
    except ValueError as error:
        raise type(error)(f"The chosen structure ({structure}) cannot be calibrated: {error}") from None
