"""Deal rows to roles and to folds, at random and by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from dco.foundations.arrays import Integers
from dco.foundations.display import are, counted, have
from dco.foundations.errors import OverlappingRolesError
from dco.foundations.fingerprints import codes_of_values
from dco.foundations.ranks import as_count, rational
from dco.foundations.seeds import Seed, as_seed
from dco.rows.rows import Cut

Size: TypeAlias = int | float | Fraction


class Role(StrEnum):
    """What a row is used for. A calibration row is used for nothing else."""

    TRAIN = "train"
    TUNE = "tune"
    CALIBRATE = "calibrate"
    TEST = "test"


@dataclass(frozen=True, eq=False, repr=False)
class Splits:
    """Row positions of each role, disjoint, and how they were made.

    `seed` rebuilds the split (None: the caller made it). `grouped`: whole groups have one role.
    """

    train: Integers
    tune: Integers
    calibrate: Integers
    test: Integers
    seed: int | None = None
    grouped: bool = False

    def __post_init__(self) -> None:
        for role in Role:
            positions = _as_positions(getattr(self, role), name=role)
            object.__setattr__(self, role, positions)

        ascending = np.sort(np.concatenate([self[role] for role in Role]))
        is_repeat = ascending[1:] == ascending[:-1]
        shared = np.unique(ascending[1:][is_repeat])
        if shared.size > 0:
            raise OverlappingRolesError(
                f"{counted(shared.size, 'row')} {have(shared.size)} two roles "
                f"(first: row {shared[0]}); coverage needs calibration rows that nothing else saw. "
                f"Give each row one role, or let assign_roles() build them."
            )

    def __getitem__(self, role: Role | str) -> Integers:
        positions: Integers = getattr(self, Role(role).value)
        return positions

    @property
    def sizes(self) -> dict[str, int]:
        """How many rows each role has."""
        return {role.value: int(self[role].size) for role in Role}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{size} {role}" for role, size in self.sizes.items())
        origin = "made by the caller" if self.seed is None else f"seed {self.seed}"
        grouped = ", grouped" if self.grouped else ""
        return f"Splits({sizes}; {origin}{grouped})"


def _as_positions(positions: Any, *, name: str) -> Integers:
    """Read the row positions of a role."""
    array = np.asarray(positions) if len(positions) else np.empty(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.min(initial=0) < 0:
        raise ValueError(
            f"{name} must list row positions, whole numbers from 0 on; got {positions!r:.200}."
        )
    return array


def assign_roles(
    n: int,
    *,
    tune: Size = 0.25,
    calibrate: Size = 0.25,
    test: Size = 0,
    groups: Any = None,
    random_state: Seed = None,
) -> Splits:
    """Deal n rows to roles at random; train gets what the others leave.

    A size is a count (an integer) or a share (a float below 1; a fraction). Rounding, in exact
    arithmetic: calibrate gets floor(n share + 1/2) rows; calibrate and tune together get the sum of
    their sizes, rounded in the same way; then test likewise. So shares that sum to one use every
    row, and no role is off by more than one row.

    With `groups`, whole groups go to one role, and sizes count groups: a cut by rows would depend
    on the sizes of the calibration groups, and these would no longer be exchangeable with a new
    group.
    """
    if as_count(n) == 0:
        raise ValueError("there are no rows to assign to roles; give at least one.")
    sizes = {Role.CALIBRATE: calibrate, Role.TUNE: tune, Role.TEST: test}
    return deal_positions(n, sizes, rest=Role.TRAIN, groups=groups, random_state=random_state)


def deal_positions(
    n: int, sizes: Mapping[Role, Size], *, rest: Role, groups: Any = None, random_state: Seed = None
) -> Splits:
    """Deal rows at random to roles of these sizes, as `assign_roles` does; `rest` gets the others.

    Without sizes there is nothing to deal: all rows stay in their order, in one role.
    """
    if not sizes:
        positions: dict[Role, Integers] = {rest: np.arange(n)}
        seed = None
    else:
        seed = as_seed(random_state)
        shuffled = shuffle_rows(n, groups=groups, seed=seed)
        unit = "row" if groups is None else "group"
        cuts = _cut_points(sizes, shuffled.n_units, unit=unit)
        positions = dict(zip([*sizes, rest], shuffled.cut(cuts), strict=True))

    none = np.empty(0, dtype=np.int64)
    return Splits(
        train=positions.get(Role.TRAIN, none),
        tune=positions.get(Role.TUNE, none),
        calibrate=positions.get(Role.CALIBRATE, none),
        test=positions.get(Role.TEST, none),
        seed=seed,
        grouped=groups is not None,
    )


def _cut_points(sizes: Mapping[Role, Size], n_units: int, *, unit: str) -> list[int]:
    """Return after how many rows (or groups) each role ends, one role after the other."""
    cuts = []
    wanted = Fraction(0)
    last_cut = 0
    for role, size in sizes.items():
        amount = _as_amount(size, n_units, role=role)
        wanted += amount
        if wanted > n_units:
            asked = ", ".join(f"{size} to {role}" for role, size in sizes.items())
            raise ValueError(
                f"the role {role} asks for more than there is: {asked}, of "
                f"{counted(n_units, unit)}. Ask for less, or give more {unit}s."
            )

        cut = _round_half_up(wanted)
        if amount > 0 and cut == last_cut:
            raise ValueError(
                f"{counted(n_units, unit)} {are(n_units)} too few: the size {size} leaves the role "
                f"{role} without a row."
            )
        cuts.append(cut)
        last_cut = cut
    return cuts


def _as_amount(size: Size, n_units: int, *, role: Role) -> Fraction:
    """Return how many rows (or groups) a count or a share asks for, unrounded."""
    is_whole = isinstance(size, (int, np.integer))
    is_count = is_whole and not isinstance(size, bool)
    is_share = isinstance(size, Real) and not is_whole and size <= 1
    if not (is_count or is_share) or not size >= 0:
        raise ValueError(
            f"the size of the role {role} must be a count or a share between 0 and 1, got {size!r}."
        )

    if is_count:
        return Fraction(int(size))
    return rational(size) * n_units


def _round_half_up(amount: Fraction) -> int:
    return (2 * amount.numerator + amount.denominator) // (2 * amount.denominator)


def folds(
    rows: int | Integers, k: int, *, groups: Any = None, seed: Seed = None
) -> list[tuple[Cut, Integers]]:
    """Deal rows to k folds, and return for each fold (rows to fit on, rows held out).

    Each row is held out once, and a group always as a whole. The rows to fit on come in parts, one
    for each of the other folds. `rows` is a number of rows or an array of positions; `groups` has
    one label for each of them. Folds differ by at most one row (one group).
    """
    shuffled = shuffle_rows(rows, groups=groups, seed=seed)
    n_units = shuffled.n_units
    if as_count(k, name="k") < 2 or k > n_units:
        unit = "rows" if groups is None else "groups"
        raise ValueError(f"k must lie between 2 and the number of {unit}, {n_units}; got {k}.")

    parts = shuffled.cut([fold * n_units // k for fold in range(1, k)])
    pairs = []
    for fold, held_out in enumerate(parts):
        others = (*parts[:fold], *parts[fold + 1 :])
        pairs.append((others, held_out))
    return pairs


@dataclass(frozen=True, eq=False)
class ShuffledRows:
    """Row positions in random order, in units that stay together: single rows, or whole groups.

    ``rows[: unit_ends[j]]`` are the first j units.
    """

    rows: Integers
    unit_ends: Integers

    @property
    def n_units(self) -> int:
        """How many rows, or groups, there are."""
        return self.unit_ends.size - 1

    def cut(self, after_units: Sequence[int]) -> list[Integers]:
        """Cut the rows after these numbers of units."""
        return np.split(self.rows, self.unit_ends[list(after_units)])


def shuffle_rows(rows: int | Integers, *, groups: Any = None, seed: Seed = None) -> ShuffledRows:
    """Put rows, or whole groups, in a uniformly random order.

    `rows` is a number of rows or an array of positions; `groups` has one label for each of them.
    """
    positions = _all_positions(rows) if isinstance(rows, (int, np.integer)) else np.asarray(rows)
    rng = np.random.default_rng(as_seed(seed))
    if groups is None:
        n_rows = positions.size
        return ShuffledRows(positions[rng.permutation(n_rows)], np.arange(n_rows + 1))

    codes, n_groups = codes_of_values(groups, name="groups")
    if codes.size != positions.size:
        raise ValueError(
            f"groups has {counted(codes.size, 'label')} for {counted(positions.size, 'row')}; "
            f"give one label per row."
        )
    rank_of_row = rng.permutation(n_groups)[codes]
    group_sizes = np.bincount(rank_of_row, minlength=n_groups)
    unit_ends = np.concatenate([[0], np.cumsum(group_sizes)]).astype(np.int64)
    return ShuffledRows(positions[np.argsort(rank_of_row, kind="stable")], unit_ends)


def _all_positions(n: int | np.integer[Any]) -> Integers:
    """Number the rows, in 32 bits where these suffice, since positions are kept with a fit."""
    return np.arange(as_count(n), dtype=np.int32 if n < 2**31 else np.int64)
