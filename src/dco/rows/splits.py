"""Roles of rows: train, tune, calibrate, test. Disjoint by construction, at random, fixed before anything is fitted.

Roles are disjoint by row position and ignore repeated values: i.i.d. rows with repeats stay exchangeable when each row is
dealt by itself, and do not when copies are tied together. Rows that belong together for a reason outside their values
(patients, videos) are declared by `groups`, and whole groups then go to one role.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from dco.foundations.arrays import Floats, Integers
from dco.foundations.display import are, counted
from dco.foundations.errors import OverlappingRolesError
from dco.foundations.ranks import as_count, as_rational
from dco.rows.fingerprints import codes_of_values

Seed: TypeAlias = int | np.integer[Any] | np.random.Generator | np.random.RandomState | None
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

    `seed` rebuilds the split (None: the caller made it). `stratified`: the split was balanced over labels, so
    calibration rows are not exchangeable with a new row and marginal coverage is approximate. `grouped`: whole groups.
    """

    train: Integers
    tune: Integers
    calibrate: Integers
    test: Integers
    seed: int | None = None
    stratified: bool = False
    grouped: bool = False

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(self[role])} {role.value}" for role in Role)
        made = "".join(f", {name}" for name in ("stratified", "grouped") if getattr(self, name))
        return f"Splits({sizes}; {'made by the caller' if self.seed is None else f'seed {self.seed}'}{made})"

    def __post_init__(self) -> None:
        for role in Role:
            object.__setattr__(self, role.value, _positions(self[role], role))
        rows = np.concatenate([self[role] for role in Role])
        distinct, counts = np.unique(rows, return_counts=True)
        shared = distinct[counts > 1]
        if shared.size:
            raise OverlappingRolesError(
                f"{counted(shared.size, 'row')} {'has' if shared.size == 1 else 'have'} two roles (first: row {shared[0]}); "
                "coverage needs calibration rows that nothing else saw. Give each row one role, or let assign_roles() build "
                "them."
            )

    def __getitem__(self, role: Role | str) -> Integers:
        rows: Integers = getattr(self, Role(role).value)
        return rows

    @property
    def sizes(self) -> dict[str, int]:
        """How many rows each role has."""
        return {role.value: int(self[role].size) for role in Role}


@dataclass(frozen=True, eq=False)
class RowOrder:
    """Rows in an order fixed in advance, in units that stay together (single rows, or whole groups).

    ``rows[: ends[j]]`` are the first j units. Taking the first j as tuning rows and the rest for calibration keeps the
    guarantee for any j that is chosen by looking only at the units already taken (a stopping time).
    """

    rows: Integers
    ends: Integers

    @property
    def units(self) -> int:
        """How many units there are: rows, or groups."""
        return int(self.ends.size) - 1

    def first(self, units: int) -> Integers:
        """The rows of the first `units` units."""
        return self.rows[: self.ends[self._checked(units)]]

    def rest(self, units: int) -> Integers:
        """The rows after the first `units` units."""
        return self.rows[self.ends[self._checked(units)] :]

    def between(self, start: int, stop: int) -> Integers:
        """The rows of units start, ..., stop - 1."""
        return self.rows[self.ends[self._checked(start)] : self.ends[self._checked(stop)]]

    def _checked(self, units: int) -> int:
        if not 0 <= units <= self.units:
            raise ValueError(f"There are {self.units} units, so {units} cannot be taken.")
        return units


def fresh_seed() -> int:
    """A seed from the operating system's entropy."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def as_seed(seed: Seed) -> int:
    """`seed` as an integer that can be written down, by scikit-learn's rules for random_state.

    An integer is itself; None draws a fresh one from the operating system; a generator is asked for one.
    """
    if seed is None:
        return fresh_seed()
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**32))
    if isinstance(seed, np.random.RandomState):
        return int(seed.randint(2**31 - 1))
    try:
        return as_count(seed, name="seed")
    except ValueError:
        raise ValueError(
            f"seed must be None, a whole number that is not negative or a NumPy generator, got {seed!r}."
        ) from None


def random_order(rows: int | Integers, *, groups: Any = None, stratify: Any = None, seed: Seed = None) -> RowOrder:
    """A uniformly random order of the rows, of whole groups if `groups` is given.

    `rows` is a number of rows or an array of positions; `groups` and `stratify` have one label for each of them. With
    `stratify`, every beginning of the order holds each label in its share to within one row; the order of rows within a
    label is random.
    """
    positions = np.arange(as_count(rows)) if isinstance(rows, (int, np.integer)) else np.asarray(rows)
    rng = np.random.default_rng(as_seed(seed))
    if groups is not None and stratify is not None:
        raise ValueError("groups and stratify cannot both be given: whole groups cannot also be balanced over labels.")
    if groups is not None:
        codes, count = _codes(groups, positions.size, "groups")
        place = rng.permutation(count)[codes]  # each group's place in the order
        order = np.argsort(place, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=count))])
        return RowOrder(positions[order], ends.astype(np.int64))
    shuffled: Integers = (
        _stratified_order(stratify, positions.size, rng) if stratify is not None else rng.permutation(positions.size)
    )
    return RowOrder(positions[shuffled], np.arange(positions.size + 1))


def _stratified_order(labels: Any, n: int, rng: np.random.Generator) -> Integers:
    codes, count = _codes(labels, n, "stratify", missing=True)
    shuffled = rng.permutation(n)
    by_label = shuffled[np.argsort(codes[shuffled], kind="stable")]
    sizes = np.bincount(codes, minlength=count)
    start = np.repeat(np.cumsum(sizes) - sizes, sizes)
    # the j-th row of a label of m rows comes at time (j + u) / m: by time t each label has given its share to within one
    time: Floats = (np.arange(n) - start + np.repeat(rng.uniform(size=count), sizes)) / np.repeat(sizes, sizes)
    return by_label[np.argsort(time, kind="stable")]


def assign_roles(
    n: int,
    *,
    tune: Size = 0.25,
    calibrate: Size = 0.25,
    test: Size = 0,
    groups: Any = None,
    stratify: Any = None,
    seed: Seed = None,
) -> Splits:
    """Deal n rows to roles at random; train gets what the others leave.

    A size is a count (an integer) or a share (a float below 1; a fraction). Rounding, in exact arithmetic: calibrate
    gets floor(n share + 1/2) rows; calibrate and tune together get the sum of their sizes, rounded in the same way; then
    test likewise. So shares that sum to one use every row, and no role is off by more than one row.

    With `groups`, whole groups go to one role, and sizes count groups: a cut by rows would depend on the sizes of the
    calibration groups, and these would no longer be exchangeable with a new group. `stratify` balances labels over the
    roles; it is recorded, since marginal coverage is then approximate.
    """
    total = as_count(n)
    if total == 0:
        raise ValueError("there are no rows to assign to roles; give at least one.")
    number = as_seed(seed)
    order = random_order(total, groups=groups, stratify=stratify, seed=number)
    unit = "row" if groups is None else "group"
    asked = {Role.CALIBRATE: calibrate, Role.TUNE: tune, Role.TEST: test}
    cuts = [0]
    wanted = Fraction(0)
    for role, size in asked.items():
        amount = _amount(size, order.units, role)
        wanted += amount
        cuts.append((2 * wanted.numerator + wanted.denominator) // (2 * wanted.denominator))  # floor(wanted + 1/2)
        if wanted > order.units:
            raise ValueError(
                f"the role {role} asks for more than there is: {calibrate} to calibrate, {tune} to tune and {test} to test, "
                f"of {counted(order.units, unit)}. Ask for less, or give more {unit}s."
            )
        if amount and cuts[-1] == cuts[-2]:
            few = f"{counted(order.units, unit)} {are(order.units)} too few"
            raise ValueError(f"{few}: the size {size} leaves the role {role} without a row.")
    parts = {role: order.between(*cuts[i : i + 2]) for i, role in enumerate(asked)}
    return Splits(
        train=order.rest(cuts[-1]),
        tune=parts[Role.TUNE],
        calibrate=parts[Role.CALIBRATE],
        test=parts[Role.TEST],
        seed=number,
        stratified=stratify is not None,
        grouped=groups is not None,
    )


def folds(rows: int | Integers, k: int, *, groups: Any = None, seed: Seed = None) -> list[tuple[Integers, Integers]]:
    """k pairs (rows to fit on, rows held out): each row is held out once, and a group always as a whole.

    `rows` is a number of rows or an array of positions; `groups` has one label for each of them. Folds differ by at most
    one row (one group).
    """
    order = random_order(rows, groups=groups, seed=seed)
    if as_count(k, name="k") < 2 or k > order.units:
        unit = "rows" if groups is None else "groups"
        raise ValueError(f"k must lie between 2 and the number of {unit}, {order.units}; got {k}.")
    cuts = [i * order.units // k for i in range(k + 1)]
    return [(np.concatenate([order.first(a), order.rest(b)]), order.between(a, b)) for a, b in pairwise(cuts)]


def _codes(values: Any, n: int, name: str, *, missing: bool = False) -> tuple[Integers, int]:
    codes, count = codes_of_values(values, name=name, missing=missing)
    if codes.size != n:
        raise ValueError(f"{name} has {counted(codes.size, 'label')} for {counted(n, 'row')}; give one label a row.")
    return codes, count


def _positions(rows: Any, role: Role) -> Integers:
    positions = np.asarray(rows)
    if positions.size == 0:
        return np.empty(0, dtype=np.int64)
    if positions.ndim != 1 or positions.dtype.kind not in "iu" or positions.min() < 0:
        raise ValueError(f"{role} must list row positions, whole numbers from 0 on; got {rows!r:.200}.")
    return positions


def _amount(size: Size, units: int, role: Role) -> Fraction:
    """How many units a size means, not yet rounded."""
    if isinstance(size, (int, np.integer)) and not isinstance(size, bool):
        return Fraction(as_count(size, name=f"the size of the role {role}"))
    if size == 0 or size == 1:
        return Fraction(int(size) * units)
    try:
        return as_rational(size) * units
    except ValueError:
        raise ValueError(f"the size of the role {role} must be a count or a share between 0 and 1, got {size!r}.") from None
