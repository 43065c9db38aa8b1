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
        """Read the positions of each role, and refuse a row that has two roles."""
        for role in Role:
            positions = _as_positions(getattr(self, role), name=role)
            object.__setattr__(self, role, positions)

        # A row with two roles occurs twice among all positions, side by side once they are sorted.
        ascending = np.sort(np.concatenate([self[role] for role in Role]))
        equals_previous = ascending[1:] == ascending[:-1]
        shared_rows = np.unique(ascending[1:][equals_previous])
        if shared_rows.size > 0:
            raise OverlappingRolesError(
                f"{counted(shared_rows.size, 'row')} {have(shared_rows.size)} two roles "
                f"(first: row {shared_rows[0]}); coverage needs calibration rows that nothing else "
                f"saw. Give each row one role, or let assign_roles() build them."
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
    """Deal n rows to roles at random; the rows that no other role asks for train.

    Parameters
    ----------
    n
        How many rows there are.
    tune, calibrate, test
        The size of each role: a count (an integer) or a share (a float below 1; a fraction). Sizes
        are rounded as running sums, in exact arithmetic: calibrate gets floor(n share + 1/2) rows,
        calibrate and tune together floor(n (sum of both shares) + 1/2), and so on. So shares that
        sum to one use every row, and no role is off by more than one row.
    groups
        One label per row. Whole groups then go to one role, and sizes count groups: a cut by rows
        would depend on the sizes of the calibration groups, and these would no longer be
        exchangeable with a new group.
    random_state
        Seeds the random order.
    """
    if as_count(n) == 0:
        raise ValueError("there are no rows to assign to roles; give at least one.")
    sizes = {Role.CALIBRATE: calibrate, Role.TUNE: tune, Role.TEST: test}
    return deal_positions(n, sizes, rest=Role.TRAIN, groups=groups, random_state=random_state)


def deal_positions(
    n: int, sizes: Mapping[Role, Size], *, rest: Role, groups: Any = None, random_state: Seed = None
) -> Splits:
    """Deal the positions 0 ... n - 1 of rows at random to roles such as train, tune and calibrate.

    Parameters
    ----------
    n
        How many rows there are.
    sizes
        A count or a share of the rows for some roles: {Role.CALIBRATE: 0.25, Role.TUNE: 30}.
    rest
        The role that gets the remaining rows; without `sizes` it gets all, in their order.
    groups
        One label per row. Whole groups are then dealt, and sizes count groups.
    random_state
        Seeds the random order.
    """
    if not sizes:
        rows_of_role: dict[Role, Integers] = {rest: np.arange(n)}
        seed = None
    else:
        # Shuffle the rows, and cut them where the rows of a role end.
        seed = as_seed(random_state)
        shuffled = shuffle_rows(n, groups=groups, seed=seed)
        unit = "row" if groups is None else "group"
        ends = _role_ends(sizes, shuffled.n_units, unit=unit)
        roles = [*sizes, rest]
        rows_of_role = dict(zip(roles, shuffled.cut(ends), strict=True))

    no_rows = np.empty(0, dtype=np.int64)
    return Splits(
        train=rows_of_role.get(Role.TRAIN, no_rows),
        tune=rows_of_role.get(Role.TUNE, no_rows),
        calibrate=rows_of_role.get(Role.CALIBRATE, no_rows),
        test=rows_of_role.get(Role.TEST, no_rows),
        seed=seed,
        grouped=groups is not None,
    )


def _role_ends(sizes: Mapping[Role, Size], n_units: int, *, unit: str) -> list[int]:
    """Return where each role ends if roles lie one after the other along the shuffled rows.

    Of 10 rows, sizes 0.25 and 5 give the ends [3, 8]: the first role has 3 rows, the second 5.
    Sizes are added up before they are rounded, so that rounding errors do not add up. `unit` is
    "row" or "group", what is dealt.
    """
    ends: list[int] = []
    unrounded_end = Fraction(0)
    for role, size in sizes.items():
        amount = _as_amount(size, n_units, role=role)
        unrounded_end += amount
        if unrounded_end > n_units:
            all_sizes = ", ".join(f"{size} to {role}" for role, size in sizes.items())
            raise ValueError(
                f"the role {role} asks for more than there is: {all_sizes}, of "
                f"{counted(n_units, unit)}. Ask for less, or give more {unit}s."
            )

        start = ends[-1] if ends else 0
        end = _round_half_up(unrounded_end)
        if amount > 0 and end == start:
            raise ValueError(
                f"{counted(n_units, unit)} {are(n_units)} too few: the size {size} leaves the role "
                f"{role} without a row."
            )
        ends.append(end)
    return ends


def _as_amount(size: Size, n_units: int, *, role: Role) -> Fraction:
    """Return how many of n rows (or groups) the size of a role asks for, not yet rounded.

    A count, such as 30, asks for itself; a share, such as 0.25, for that part of all. Anything else
    is refused.
    """
    is_integer = isinstance(size, (int, np.integer))
    is_count = is_integer and not isinstance(size, bool)
    is_share = isinstance(size, Real) and not is_integer and size <= 1
    if not (is_count or is_share) or not size >= 0:  # NaN is not >= 0 either
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
    """Deal rows at random to k folds for cross-validation.

    Each row is held out in one fold, and a group always as a whole. Folds differ by at most one row
    (one group).

    Parameters
    ----------
    rows
        A number of rows, or an array of their positions.
    k
        The number of folds, at least 2.
    groups
        One label for each of the rows, or None.

    Returns
    -------
    For each fold, a pair: the rows to fit on, and the rows held out. The former are a tuple with
    the rows of each other fold.
    """
    shuffled = shuffle_rows(rows, groups=groups, seed=seed)
    n_units = shuffled.n_units
    if as_count(k, name="k") < 2 or k > n_units:
        unit = "rows" if groups is None else "groups"
        raise ValueError(f"k must lie between 2 and the number of {unit}, {n_units}; got {k}.")

    ends = [fold * n_units // k for fold in range(1, k)]
    rows_of_folds = shuffled.cut(ends)
    pairs = []
    for fold, held_out in enumerate(rows_of_folds):
        other_folds = (*rows_of_folds[:fold], *rows_of_folds[fold + 1 :])
        pairs.append((other_folds, held_out))
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
        """Cut the rows into parts: [3, 8] cuts after the third and after the eighth unit."""
        return np.split(self.rows, self.unit_ends[list(after_units)])


def shuffle_rows(rows: int | Integers, *, groups: Any = None, seed: Seed = None) -> ShuffledRows:
    """Put rows in a uniformly random order; rows of one group stay side by side.

    `rows` is a number of rows or an array of positions, and `groups` has one label for each of
    them. The result also says where each group ends; without groups, each row is one by itself.
    """
    if isinstance(rows, (int, np.integer)):
        positions = _all_positions(rows)
    else:
        positions = np.asarray(rows)
    rng = np.random.default_rng(as_seed(seed))

    if groups is None:
        n_rows = positions.size
        shuffled_positions = positions[rng.permutation(n_rows)]
        return ShuffledRows(shuffled_positions, unit_ends=np.arange(n_rows + 1))

    group_of_row, n_groups = codes_of_values(groups, name="groups")
    if group_of_row.size != positions.size:
        raise ValueError(
            f"groups has {counted(group_of_row.size, 'label')} for "
            f"{counted(positions.size, 'row')}; give one label per row."
        )

    # Give the groups a random order, and sort the rows by the place of their group in it.
    place_of_group = rng.permutation(n_groups)
    place_of_row = place_of_group[group_of_row]
    shuffled_positions = positions[np.argsort(place_of_row, kind="stable")]
    group_sizes = np.bincount(place_of_row, minlength=n_groups)
    unit_ends = np.concatenate([[0], np.cumsum(group_sizes)]).astype(np.int64)
    return ShuffledRows(shuffled_positions, unit_ends)


def _all_positions(n: int | np.integer[Any]) -> Integers:
    """Number the rows, in 32 bits where these suffice, since positions are kept with a fit."""
    return np.arange(as_count(n), dtype=np.int32 if n < 2**31 else np.int64)
