"""Which rows train, tune and calibrate: dealt here by sizes and a seed, or brought by the caller and checked.

No model is looked at, but for a tuning split that grows: the caller then says how (`Growth`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from dco.foundations.arrays import Integers
from dco.foundations.display import counted
from dco.foundations.errors import OverlappingRolesError
from dco.foundations.ranks import as_rational
from dco.rows.fingerprints import (
    Duplicates,
    Hashes,
    check_overlap,
    codes_of_values,
    drop_repeats,
    overlap,
    row_fingerprints,
)
from dco.rows.rows import Rows
from dco.rows.splits import Splits, assign_roles, random_order

_NOTHING = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Sizes:
    """Shares or counts of rows (of groups, for grouped rows); `folds`: tuning takes place on folds of the training rows."""

    tune: float | int | Literal["auto"] = 0.25  # 0: one candidate, which is not compared
    calibrate: float | int = 0.25
    folds: int | None = None


@dataclass(frozen=True, eq=False)
class Growth:
    """A tuning split to be grown: the first of `order` tune, the others calibrate, at least `least` rows (or groups)."""

    rows: Rows
    train: Integers
    tune: Integers  # as many rows as a fixed split would have
    order: Integers
    least: int


Grow: TypeAlias = Callable[[Growth], tuple[Integers, Integers, Mapping[str, Any]]]  # tune, calibrate, models fitted on train


@dataclass(frozen=True, eq=False)
class Roles:
    """Rows by role, where they came from, their fingerprints (of roles with rows), and how many repeats they share."""

    train: Rows
    tune: Rows
    calibrate: Rows
    splits: Splits
    hashes: Mapping[str, Hashes]
    shared: Mapping[str, int | str]
    prefitted: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """How many rows each role has."""
        return {"train": len(self.train), "tune": len(self.tune), "calibrate": len(self.calibrate)}

    def dealt_from(self) -> int | None:
        """How many rows (or groups) were dealt to calibration and other roles here; None if calibration rows were given."""
        if not self.splits.calibrate.size:
            return None
        parts = [getattr(self, name) for name in ("train", "tune", "calibrate") if self.splits[name].size]
        if self.calibrate.groups is None:
            return sum(map(len, parts))
        return sum(codes_of_values(rows.groups)[1] for rows in parts if rows.groups is not None)


def deal_roles(
    rows: Rows,
    sizes: Sizes,
    *,
    seed: int,
    frozen: bool = False,
    stratify: bool = False,
    duplicates: Duplicates = "natural",
    grow: Grow | None = None,
) -> Roles:
    """Deal all rows to roles; `frozen` models need no training rows. Repeats are counted, or dropped first."""
    uses = {"train": not frozen, "tune": sizes.tune != 0 or sizes.folds is not None, "calibrate": True}
    needed = [use for use, needs in uses.items() if needs]
    if len(rows) < len(needed):
        *others, last = needed
        raise ValueError(
            f"n_samples={len(rows)} is too few to {', '.join(others)} and {last}: give at least {len(needed)} rows."
        )
    keep: Integers = np.arange(len(rows))
    if duplicates == "drop":
        keep = drop_repeats(rows.X, rows.y)
        rows = rows.take(keep)
    if rows.groups is not None:
        rows = replace(rows, groups=codes_of_values(rows.groups)[0])  # texts are hashed here and never again
    prefitted: Mapping[str, Any] = {}
    labels = rows.y if stratify else None
    dealt = partial(assign_roles, len(rows), calibrate=sizes.calibrate, groups=rows.groups, stratify=labels, seed=seed)
    if sizes.folds is not None:
        made = dealt(tune=0)
    elif sizes.tune == "auto":
        assert grow is not None, 'Sizes(tune="auto") needs grow='
        if stratify:
            raise ValueError('tune_size="auto" and stratify=True cannot be combined: the split grows along a random order.')
        made, prefitted = _grown(rows, sizes, seed=seed, frozen=frozen, grow=grow)
    elif frozen:
        made = _without_training(rows, sizes, stratify=labels, seed=seed)
    else:
        made = dealt(tune=sizes.tune)
    splits = Splits(
        keep[made.train], keep[made.tune], keep[made.calibrate], _NOTHING, made.seed, made.stratified, made.grouped
    )
    _check_stratify(splits, stratify)
    train, tuned, calibration = (rows.take(made[name]) for name in ("train", "tune", "calibrate"))
    _check_not_empty(train, tuned, calibration, sizes, frozen=frozen)
    hashes = _hashes(train, tuned, calibration)
    shared = {
        f"{name} and calibrate": overlap(hashes["calibrate"], hashes[name]).count
        for name in ("train", "tune")
        if name in hashes
    }
    return Roles(train, tuned, calibration, splits, hashes, shared, prefitted)


def given_roles(
    rows: Rows,
    sizes: Sizes,
    *,
    tune: Rows | None = None,
    calibrate: Rows | None = None,
    seed: int,
    frozen: bool = False,
    stratify: bool = False,
    duplicates: Duplicates = "natural",
) -> Roles:
    """The roles that the caller brings, what is left of `rows` dealt to the others, and all of them checked for leaks."""
    if duplicates == "drop":
        raise ValueError('duplicates="drop" is for roles made here; drop repeats before you cut the rows yourself.')
    splits = _splits_beside(rows, sizes, tune=tune, calibrate=calibrate, seed=seed, frozen=frozen, stratify=stratify)
    _check_stratify(splits, stratify)
    train = _taken(rows, splits.train)
    tuned = _taken(rows, splits.tune) if tune is None else tune
    calibration = _taken(rows, splits.calibrate) if calibrate is None else calibrate
    _check_not_empty(train, tuned, calibration, sizes, frozen=frozen)
    _check_groups(train, tuned, calibration)
    hashes = _hashes(train, tuned, calibration)
    shared = check_overlap(
        (calibration.X, calibration.y),
        train=(train.X, train.y) if len(train) else None,
        tune=(tuned.X, tuned.y) if len(tuned) else None,
        duplicates=duplicates,
        hashes=hashes,
    )
    counts = {f"{name} and calibrate": count for name, count in shared.items()}
    return Roles(train, tuned, calibration, splits, hashes, counts)


def _splits_beside(
    rows: Rows, sizes: Sizes, *, tune: Rows | None, calibrate: Rows | None, seed: int, frozen: bool, stratify: bool
) -> Splits:
    """How `rows` are dealt to the roles that the caller has not brought."""
    if sizes.tune == "auto":
        raise ValueError('tune_size="auto" needs both tuning and calibration rows from X; leave tune= and calibrate= out.')
    every, labels = np.arange(len(rows)), rows.y if stratify else None
    deal = partial(assign_roles, len(rows), groups=rows.groups, stratify=labels, seed=seed)
    if calibrate is None:
        if frozen:
            return Splits(_NOTHING, _NOTHING, every, _NOTHING, grouped=rows.groups is not None)
        return deal(tune=0, calibrate=sizes.calibrate)
    if tune is not None or sizes.folds is not None:
        return Splits(every, _NOTHING, _NOTHING, _NOTHING)
    if frozen:
        return Splits(_NOTHING, every, _NOTHING, _NOTHING)
    return deal(tune=sizes.tune, calibrate=0)


def _taken(rows: Rows, places: Integers) -> Rows:
    """Some of the rows; all of them in their order are not copied."""
    return rows if np.array_equal(places, np.arange(len(rows))) else rows.take(places)


def _without_training(rows: Rows, sizes: Sizes, *, stratify: Any, seed: int) -> Splits:
    """Frozen models need no training rows: tuning and calibration share all rows.

    Two shares are a proportion; a count is kept, and the other role gets the rest.
    """
    deal = partial(assign_roles, len(rows), groups=rows.groups, stratify=stratify, seed=seed)
    assert sizes.tune != "auto", "a tuning split that grows is dealt by _grown"
    tune, calibrate = _share(sizes.tune, name="tune_size"), _share(sizes.calibrate, name="calibrate_size")
    if tune is None:  # a count
        made = deal(tune=sizes.tune, calibrate=0 if calibrate is not None else sizes.calibrate)
        if calibrate is None and made.train.size:
            raise ValueError(
                f"tune_size={sizes.tune} and calibrate_size={sizes.calibrate} leave {counted(made.train.size, 'row')} over, "
                "and frozen models need none for training: give one of the two, and the other gets the rest."
            )
        tuning, calibration = made.tune, made.train if calibrate is not None else made.calibrate
    else:
        made = deal(tune=0, calibrate=sizes.calibrate if calibrate is None else calibrate / (calibrate + tune))
        tuning, calibration = made.train, made.calibrate
    return replace(made, train=_NOTHING, tune=tuning, calibrate=calibration)


def _share(size: float, *, name: str) -> Fraction | None:
    """The size as a share, None if it is a count (or no share at all)."""
    if not isinstance(size, float) or size == 0:
        return None
    return Fraction(1) if size == 1 else as_rational(size, name=name)


def _grown(rows: Rows, sizes: Sizes, *, seed: int, frozen: bool, grow: Grow) -> tuple[Splits, Mapping[str, Any]]:
    """Train on half of what calibration does not need; grow the tuning split from the rest until selection settles."""
    made = assign_roles(len(rows), tune=0.25, calibrate=sizes.calibrate, groups=rows.groups, seed=seed)
    pool, train = np.concatenate([made.tune, made.calibrate]), made.train
    if frozen:  # nothing to train
        pool, train = np.arange(len(rows)), _NOTHING
    labels = None if rows.groups is None else rows.groups[pool]
    order = random_order(pool, groups=labels, seed=seed + 1).rows  # fixed before any row is looked at
    least = made.calibrate.size if rows.groups is None else codes_of_values(rows.groups[made.calibrate])[1]
    tune, calibrate, prefitted = grow(Growth(rows, train, made.tune, order, least))
    splits = Splits(train, tune, calibrate, _NOTHING, seed=seed, grouped=rows.groups is not None)
    return splits, prefitted


def _check_not_empty(train: Rows, tune: Rows, calibrate: Rows, sizes: Sizes, *, frozen: bool) -> None:
    if len(calibrate) == 0:
        raise ValueError(f"no row is left for the role calibrate: calibrate_size={sizes.calibrate}. Raise it.")
    if len(train) == 0 and not frozen:
        tuning = "" if sizes.folds is not None else f"tune_size={sizes.tune} and "
        raise ValueError(
            f"no row is left for the role train, with {tuning}calibrate_size={sizes.calibrate}: lower a size, or bring rows "
            "for that role."
        )
    if len(tune) == 0 and sizes.folds is None and sizes.tune != 0:  # 0 is for a single candidate, which needs none
        raise ValueError("No row is left for tuning: raise tune_size, or tune by folds with tune_folds=5.")


def _check_stratify(splits: Splits, stratify: bool) -> None:
    dealt = [role for role, count in splits.sizes.items() if count]
    if stratify and len(dealt) == 1:
        raise ValueError(f"stratify=True has no effect here: all rows of X go to the role {dealt[0]}. Leave it out.")


def _hashes(train: Rows, tune: Rows, calibrate: Rows) -> dict[str, Hashes]:
    """The fingerprints of each role that has rows: taken once, since they cost more than many a fit."""
    parts = {"train": train, "tune": tune, "calibrate": calibrate}
    return {name: row_fingerprints(rows.X, rows.y) for name, rows in parts.items() if len(rows)}


def _check_groups(train: Rows, tune: Rows, calibrate: Rows) -> None:
    """Groups in every role or in none, and no calibration group in another role."""
    filled = {name: rows for name, rows in (("train", train), ("tune", tune)) if len(rows)}
    for name, rows in filled.items():
        if (rows.groups is None) != (calibrate.groups is None):
            raise ValueError(
                "groups must be given for all roles or for none: pass groups= for X, tune=(X, y, {'groups': ...}) and "
                "calibrate=(X, y, {'groups': ...})."
            )
        if rows.groups is None or calibrate.groups is None:
            continue
        shared = overlap(row_fingerprints(calibrate.groups), row_fingerprints(rows.groups))
        if shared.count:
            labels = calibrate.groups[shared.rows]
            count = codes_of_values(labels, missing=True)[1]
            raise OverlappingRolesError(
                f"calibrate and {name} share {counted(count, 'group')} (first: {labels[0]}), so their rows are not "
                "independent. Keep every group in one role."
            )
