"""Which rows train, tune and calibrate: dealt here by sizes and a seed, or brought by the caller and checked.

No model is looked at, but for a tuning split that grows: the caller then says how (`Growth`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from dco.foundations.arrays import AnyArray, Bools, Integers
from dco.foundations.display import counted
from dco.foundations.errors import OverlappingRolesError
from dco.foundations.notes import Message
from dco.foundations.ranks import as_count, as_rational
from dco.rows.fingerprints import (
    Duplicates,
    Hashes,
    check_overlap,
    codes_of_values,
    drop_repeats,
    overlap,
    role_fingerprint,
    row_fingerprints,
)
from dco.rows.rows import Rows, missing_cells
from dco.rows.seal import SealedRows
from dco.rows.splits import Splits, assign_roles, random_order

_NOTHING = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Split:
    """How rows come to their roles: sizes of the roles that are dealt here, and rows that the caller brings.

    `tune` and `calibrate` are shares or counts of rows (of clusters, where rows belong together); `folds`: tuning takes
    place on folds of the training rows. `frozen` models need no training rows.
    """

    tune: float | int | Literal["auto"] = 0.25  # 0: one candidate, which is not compared
    calibrate: float | int = 0.25
    folds: int | None = None
    stratify: bool = False
    duplicates: Duplicates = "natural"
    frozen: bool = False
    given_tune: Rows | None = None
    given_calibrate: Rows | None = None

    def __post_init__(self) -> None:
        if self.duplicates not in get_args(Duplicates):
            raise ValueError(f'duplicates must be "natural", "drop" or "allow", got {self.duplicates!r}.')
        if self.folds is not None and as_count(self.folds, name="tune_folds") < 2:
            raise ValueError(Message(f"⟨tune_folds⟩ must be at least 2, got {self.folds}."))
        if self.folds is not None and self.given_tune is not None:
            raise ValueError(Message("⟨tune_folds⟩ tunes on all rows but the calibration rows; leave tune= out."))


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
    """Rows by role, those for calibration under seal, with their fingerprints and how many repeats roles share.

    `clusters` are those of the calibration rows. `distinct`: repeats were dropped before rows were dealt. `complete`: which
    columns have no missing cell in any role.
    """

    train: Rows
    tune: Rows
    sealed: SealedRows
    clusters: AnyArray | None
    splits: Splits
    hashes: Mapping[str, Hashes]
    shared: Mapping[str, int | str]
    dealt_from: int | None  # rows (or clusters) dealt to calibration and other roles; None if calibration rows were given
    prefitted: Mapping[str, Any]
    distinct: bool
    complete: Bools

    @property
    def sizes(self) -> dict[str, int]:
        """How many rows each role has."""
        return {"train": len(self.train), "tune": len(self.tune), "calibrate": len(self.sealed)}

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """A digest of the rows of each role that has some."""
        return {name: role_fingerprint(own) for name, own in self.hashes.items()}


def deal_roles(rows: Rows, split: Split, *, seed: int, grow: Grow | None = None) -> Roles:
    """Rows by role, checked: dealt here by sizes and a seed, or brought by the caller."""
    if split.stratify and rows.groups is not None:
        raise ValueError(Message("⟨groups=⟩ and stratify=True cannot be combined: whole groups cannot also be balanced."))
    if split.given_tune is None and split.given_calibrate is None:
        return _dealt(rows, split, seed=seed, grow=grow)
    if split.duplicates == "drop":
        raise ValueError('duplicates="drop" is for roles made here; drop repeats before you cut the rows yourself.')
    splits = _splits_beside(rows, split, seed=seed)
    train = _taken(rows, splits.train)
    tune = _taken(rows, splits.tune) if split.given_tune is None else split.given_tune
    calibrate = _taken(rows, splits.calibrate) if split.given_calibrate is None else split.given_calibrate
    _check_groups(train, tune, calibrate)
    return _sealed(train, tune, calibrate, splits, split)


def _dealt(rows: Rows, split: Split, *, seed: int, grow: Grow | None) -> Roles:
    """All rows dealt to roles. Repeats are counted, or dropped first."""
    uses = {"train": not split.frozen, "tune": split.tune != 0 or split.folds is not None, "calibrate": True}
    needed = [use for use, needs in uses.items() if needs]
    if len(rows) < len(needed):
        *others, last = needed
        raise ValueError(
            f"n_samples={len(rows)} is too few to {', '.join(others)} and {last}: give at least {len(needed)} rows."
        )
    keep: Integers = np.arange(len(rows))
    if split.duplicates == "drop":
        keep = drop_repeats(rows.X, rows.y)
        rows = rows.take(keep)
    if rows.groups is not None:
        rows = replace(rows, groups=codes_of_values(rows.groups)[0])  # texts are hashed here and never again
    prefitted: Mapping[str, Any] = {}
    labels = rows.y if split.stratify else None
    deal = partial(assign_roles, len(rows), calibrate=split.calibrate, groups=rows.groups, stratify=labels, seed=seed)
    if split.folds is not None:
        made = deal(tune=0)
    elif split.tune == "auto":
        assert grow is not None, 'Split(tune="auto") needs grow='
        if split.stratify:
            raise ValueError(
                Message("⟨tune_size=auto⟩ and stratify=True cannot be combined: the split grows along a random order.")
            )
        made, prefitted = _grown(rows, split, seed=seed, grow=grow)
    elif split.frozen:
        made = _without_training(rows, split, seed=seed)
    else:
        made = deal(tune=split.tune)
    splits = Splits(
        keep[made.train], keep[made.tune], keep[made.calibrate], _NOTHING, made.seed, made.stratified, made.grouped
    )
    train, tune, calibrate = (rows.take(made[name]) for name in ("train", "tune", "calibrate"))
    return _sealed(train, tune, calibrate, splits, split, prefitted)


def _sealed(
    train: Rows, tune: Rows, calibrate: Rows, splits: Splits, split: Split, prefitted: Mapping[str, Any] | None = None
) -> Roles:
    """The roles, checked for empty ones and for leaks; from here on calibration rows are under seal."""
    parts = {"train": train, "tune": tune, "calibrate": calibrate}
    _check_not_empty(train, tune, calibrate, split)
    dealt = [name for name, count in splits.sizes.items() if count]
    if split.stratify and len(dealt) == 1:
        raise ValueError(f"stratify=True has no effect here: all rows of X go to the role {dealt[0]}. Leave it out.")
    filled = {name: rows for name, rows in parts.items() if len(rows)}
    hashes = {
        name: row_fingerprints(rows.X, rows.y) for name, rows in filled.items()
    }  # once: they cost more than many a fit
    if split.given_tune is None and split.given_calibrate is None:
        shared = {name: overlap(hashes["calibrate"], hashes[name]).count for name in hashes if name != "calibrate"}
    else:
        pairs = {name: (rows.X, rows.y) for name, rows in filled.items()}
        shared = check_overlap(
            pairs["calibrate"], train=pairs.get("train"), tune=pairs.get("tune"), duplicates=split.duplicates, hashes=hashes
        )
    units = None
    if splits.calibrate.size:
        from_x = [parts[name] for name in dealt]
        units = sum(len(rows) if rows.groups is None else codes_of_values(rows.groups)[1] for rows in from_x)
    return Roles(
        train,
        tune,
        SealedRows(calibrate.X, calibrate.y, fingerprint=role_fingerprint(hashes["calibrate"])),
        calibrate.groups,
        splits,
        hashes,
        {f"{name} and calibrate": count for name, count in shared.items()},
        units,
        prefitted or {},
        split.duplicates == "drop",
        np.sum([missing_cells(rows.X) for rows in filled.values()], axis=0) == 0,
    )


def _splits_beside(rows: Rows, split: Split, *, seed: int) -> Splits:
    """How `rows` are dealt to the roles that the caller has not brought."""
    if split.tune == "auto":
        raise ValueError(
            Message("⟨tune_size=auto⟩ needs both tuning and calibration rows from X; leave tune= and calibrate= out.")
        )
    every, labels = np.arange(len(rows)), rows.y if split.stratify else None
    deal = partial(assign_roles, len(rows), groups=rows.groups, stratify=labels, seed=seed)
    if split.given_calibrate is None:
        if split.frozen:
            return Splits(_NOTHING, _NOTHING, every, _NOTHING, grouped=rows.groups is not None)
        return deal(tune=0, calibrate=split.calibrate)
    if split.given_tune is not None or split.folds is not None:
        return Splits(every, _NOTHING, _NOTHING, _NOTHING)
    if split.frozen:
        return Splits(_NOTHING, every, _NOTHING, _NOTHING)
    return deal(tune=split.tune, calibrate=0)


def _taken(rows: Rows, places: Integers) -> Rows:
    """Some of the rows; all of them in their order are not copied."""
    return rows if np.array_equal(places, np.arange(len(rows))) else rows.take(places)


def _without_training(rows: Rows, sizes: Split, *, seed: int) -> Splits:
    """Frozen models need no training rows: tuning and calibration share all rows.

    Two shares are a proportion; a count is kept, and the other role gets the rest.
    """
    labels = rows.y if sizes.stratify else None
    deal = partial(assign_roles, len(rows), groups=rows.groups, stratify=labels, seed=seed)
    assert sizes.tune != "auto", "a tuning split that grows is dealt by _grown"
    tune, calibrate = _share(sizes.tune, name="tune_size"), _share(sizes.calibrate, name="calibrate_size")
    if tune is None:  # a count
        made = deal(tune=sizes.tune, calibrate=0 if calibrate is not None else sizes.calibrate)
        if calibrate is None and made.train.size:
            raise ValueError(
                Message(
                    f"⟨tune_size={sizes.tune}⟩ and ⟨calibrate_size={sizes.calibrate}⟩ leave "
                    f"{counted(made.train.size, 'row')} over, and frozen models need none for training: give one of the "
                    "two, and the other gets the rest."
                )
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


def _grown(rows: Rows, sizes: Split, *, seed: int, grow: Grow) -> tuple[Splits, Mapping[str, Any]]:
    """Train on half of what calibration does not need; grow the tuning split from the rest until selection settles."""
    made = assign_roles(len(rows), tune=0.25, calibrate=sizes.calibrate, groups=rows.groups, seed=seed)
    pool, train = np.concatenate([made.tune, made.calibrate]), made.train
    if sizes.frozen:  # nothing to train
        pool, train = np.arange(len(rows)), _NOTHING
    labels = None if rows.groups is None else rows.groups[pool]
    order = random_order(pool, groups=labels, seed=seed + 1).rows  # fixed before any row is looked at
    least = made.calibrate.size if rows.groups is None else codes_of_values(rows.groups[made.calibrate])[1]
    tune, calibrate, prefitted = grow(Growth(rows, train, made.tune, order, least))
    splits = Splits(train, tune, calibrate, _NOTHING, seed=seed, grouped=rows.groups is not None)
    return splits, prefitted


def _check_not_empty(train: Rows, tune: Rows, calibrate: Rows, sizes: Split) -> None:
    if len(calibrate) == 0:
        raise ValueError(Message(f"no row is left for the role calibrate: ⟨calibrate_size={sizes.calibrate}⟩. Raise it."))
    if len(train) == 0 and not sizes.frozen:
        tuning = "" if sizes.folds is not None else f"⟨tune_size={sizes.tune}⟩ and "
        raise ValueError(
            Message(
                f"no row is left for the role train, with {tuning}⟨calibrate_size={sizes.calibrate}⟩: lower a size, or "
                "bring rows for that role."
            )
        )
    if len(tune) == 0 and sizes.folds is None and sizes.tune != 0:  # 0 is for a single candidate, which needs none
        raise ValueError(Message("No row is left for tuning: raise ⟨tune_size⟩, or tune by folds with ⟨tune_folds=5⟩."))


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
