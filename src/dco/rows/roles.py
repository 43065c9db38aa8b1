"""Which rows train, tune, calibrate and test: dealt by sizes and a seed, or brought by the caller
and checked.

Roles are fixed before anything is fitted, and are disjoint by row position. Repeated values are
ignored: i.i.d. rows with repeats stay exchangeable when each row is dealt by itself, and do not
when copies are tied together. Rows that belong together for a reason outside their values
(patients, videos) are declared by `groups`, and whole groups then go to one role. No model is
looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import partial
from numbers import Real
from typing import Any, TypeAlias, get_args

import numpy as np

from dco.foundations.arrays import AnyArray, Integers
from dco.foundations.display import are, counted
from dco.foundations.errors import OverlappingRolesError
from dco.foundations.notes import Message, Note
from dco.foundations.ranks import as_count, as_rational, rational
from dco.rows.copies import Duplicates, check_overlap
from dco.rows.fingerprints import (
    codes_of_values,
    drop_repeats,
    overlap,
    role_fingerprint,
    row_fingerprints,
)
from dco.rows.rows import Cut, KeptRows, Rows, SealedRows, missing_cells

Seed: TypeAlias = int | np.integer[Any] | np.random.Generator | np.random.RandomState | None
Size: TypeAlias = int | float | Fraction

_NOTHING = np.empty(0, dtype=np.int64)
_FOLDS = 5


class Role(StrEnum):
    """What a row is used for. A calibration row is used for nothing else."""

    TRAIN = "train"
    TUNE = "tune"
    CALIBRATE = "calibrate"
    TEST = "test"


@dataclass(frozen=True, eq=False, repr=False)
class Splits:
    """Row positions of each role, disjoint, and how they were made.

    `seed` rebuilds the split (None: the caller made it). `grouped`: whole groups.
    """

    train: Integers
    tune: Integers
    calibrate: Integers
    test: Integers
    seed: int | None = None
    grouped: bool = False

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(self[role])} {role.value}" for role in Role)
        made = "made by the caller" if self.seed is None else f"seed {self.seed}"
        grouped = ", grouped" if self.grouped else ""
        return f"Splits({sizes}; {made}{grouped})"

    def __post_init__(self) -> None:
        for role in Role:
            given = getattr(self, role)
            rows = np.asarray(given) if len(given) else _NOTHING
            if rows.ndim != 1 or rows.dtype.kind not in "iu" or rows.min(initial=0) < 0:
                raise ValueError(
                    f"{role} must list row positions, whole numbers from 0 on; got {given!r:.200}."
                )
            object.__setattr__(self, role, rows)
        rows = np.sort(np.concatenate([self.train, self.tune, self.calibrate, self.test]))
        shared = np.unique(rows[1:][rows[1:] == rows[:-1]])
        if shared.size:
            raise OverlappingRolesError(
                f"{counted(shared.size, 'row')} {'has' if shared.size == 1 else 'have'} two roles "
                f"(first: row {shared[0]}); "
                "coverage needs calibration rows that nothing else saw. Give each row one role, "
                "or let assign_roles() build "
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
class Split:
    """How rows come to their roles: sizes of the roles that are dealt here, and rows that the
    caller brings.

    `tune` and `calibrate` are shares or counts of rows (of clusters, where rows belong together);
    `folds`: tuning takes place on folds of the training rows. `frozen` models need no training
    rows.
    """

    tune: float | int = 0.25  # 0: one candidate, which is not compared
    calibrate: float | int = 0.25
    folds: int | None = None
    duplicates: Duplicates = "natural"
    frozen: bool = False
    given_tune: Rows | None = None
    given_calibrate: Rows | None = None

    def __post_init__(self) -> None:
        if self.duplicates not in get_args(Duplicates):
            raise ValueError(
                f'duplicates must be "natural", "drop" or "allow", got {self.duplicates!r}.'
            )
        if self.folds is not None and as_count(self.folds, name="tune_folds") < 2:
            raise ValueError(Message(f"⟨tune_folds⟩ must be at least 2, got {self.folds}."))
        if self.folds is not None and self.given_tune is not None:
            raise ValueError(
                Message("⟨tune_folds⟩ tunes on all rows but the calibration rows; leave tune= out.")
            )
        given = self.given_tune is not None or self.given_calibrate is not None
        if given and self.duplicates == "drop":
            raise ValueError(
                'duplicates="drop" is for roles made here; drop repeats before you '
                "cut the rows yourself."
            )


def sizes_of_roles(
    rows: Rows,
    tune: Any,
    calibrate: Any,
    folds: int | None,
    *,
    statement: Any,
    foldable: bool,
    enough: int = 0,
) -> tuple[Any, Any, int | None]:
    """(tune, calibrate, folds) for n rows (or clusters), with what was not given (None) filled in.

    A quarter each. Where a quarter has no finite threshold, and the least number of calibration
    rows with one leaves as many to train on, calibration gets these, as in a `plan`, and candidates
    are ranked by folds; below `enough` rows too, by three from 100 rows on.
    """
    n = len(rows) if rows.clusters is None else len(set(rows.clusters.tolist()))
    quarter = (n + 2) // 4  # as `assign_roles` rounds it
    finite = statement.rule.rank(quarter, alpha=statement.alpha, delta=statement.delta) <= quarter
    least = 0 if calibrate is not None or finite else statement.smallest_n()
    short = 0 < 2 * least <= n
    if tune is None and folds is None and foldable and n >= 2 * _FOLDS and (short or n < enough):
        folds = 3 if 100 <= n < enough else _FOLDS  # hundreds of rows rank alike in fewer folds
    calibrate = (least if short else 0.25) if calibrate is None else calibrate
    return 0.25 if tune is None else tune, calibrate, folds


@dataclass(frozen=True, eq=False)
class Roles:
    """Rows by role, those for calibration under seal, with their fingerprints and how many repeats
    roles share.

    `clusters` are those of the calibration rows. `distinct`: repeats were dropped before rows were
    dealt. `kept`: what knows these rows again. `notes` are about rows of the caller.
    """

    train: Rows
    tune: Rows
    # training and tuning rows, of which both are slices; None if the caller brought tuning rows
    together: Rows | None
    sealed: SealedRows
    clusters: AnyArray | None
    splits: Splits
    fingerprints: Mapping[str, str]  # a digest of the rows of each role that has some
    shared: Mapping[str, int | str]
    # rows (or clusters) dealt to calibration and other roles; None if calibration rows were given
    dealt_from: int | None
    distinct: bool
    kept: KeptRows
    notes: tuple[Note, ...]

    def fitting_rows(self) -> Rows:
        """Return the rows on which the winner is refitted: all but the calibration rows."""
        if self.together is not None:
            return self.together
        return self.train.followed_by(self.tune) if len(self.tune) else self.train


def deal_roles(rows: Rows, split: Split, *, seed: int) -> Roles:
    """Rows by role, checked: dealt here by sizes and a seed, or brought by the caller. Repeats are
    counted, or dropped.
    """
    brought = {"tune": split.given_tune, "calibrate": split.given_calibrate}
    given = any(own is not None for own in brought.values())
    uses = {
        "train": not split.frozen,
        "tune": split.tune != 0 or split.folds is not None,
        "calibrate": True,
    }
    *others, last = (use for use, needed in uses.items() if needed)
    if not given and len(rows) <= len(others):
        few = f"n_samples={len(rows)} is too few to {', '.join(others)} and {last}"
        raise ValueError(f"{few}: give at least {len(others) + 1} rows.")
    kept = drop_repeats(rows.X, rows.y) if split.duplicates == "drop" else None
    rows = rows if kept is None else rows.take(kept)
    units = len(rows)
    if rows.clusters is not None:
        codes, units = codes_of_values(rows.clusters)
        # texts are hashed here and never again
        rows = rows if given else replace(rows, clusters=codes)
    deal: Callable[..., Splits] = partial(assign_roles, len(rows), groups=rows.clusters, seed=seed)
    usual = not (given or split.frozen or split.folds is not None)
    splits = (
        deal(tune=split.tune, calibrate=split.calibrate) if usual else _dealt(rows, split, deal)
    )
    tables = {"train": rows} | {role: rows if own is None else own for role, own in brought.items()}
    at = {
        role: getattr(splits, role) if own is rows else np.arange(len(own))
        for role, own in tables.items()
    }
    if given:
        _check_clusters({role: own.take(at[role]) for role, own in tables.items()})
    if not all(own.size for own in at.values()):
        _check_empty(at, split)
    distinct = {id(own): own for own in tables.values()}
    # once, and before rows are copied
    every = {key: row_fingerprints(own.X, own.y) for key, own in distinct.items()}
    hashes = {role: every[id(own)][at[role]] for role, own in tables.items() if at[role].size}
    fingerprints = {role: role_fingerprint(own) for role, own in hashes.items()}
    known = KeptRows.of(
        hashes, np.sum([missing_cells(own.X) for own in distinct.values()], axis=0) == 0
    )
    notes: list[Note] = []
    if given:
        parts = {role: tables[role].take(at[role]) for role in hashes}
        shared = check_overlap(parts, hashes, duplicates=split.duplicates, notes=notes)
    else:
        others = [role for role in hashes if role != "calibrate"]
        shared = {
            role: overlap(hashes["calibrate"], hashes[role]).size if known.repeated else 0
            for role in others
        }
    del every, hashes  # a fifth of a table in single precision
    # copied once: the two roles are slices of it
    together = rows.take(np.concatenate([splits.train, splits.tune]))
    calibrate, tune = tables["calibrate"], brought["tune"]
    positions: Any = {} if kept is None else {role: kept[splits[role]] for role in tables}
    return Roles(
        together.take(slice(splits.train.size)),
        together.take(slice(splits.train.size, None)) if tune is None else tune,
        together if tune is None else None,
        SealedRows(
            calibrate.X, calibrate.y, fingerprint=fingerprints["calibrate"], at=at["calibrate"]
        ),
        None if calibrate.clusters is None else calibrate.clusters[at["calibrate"]],
        replace(splits, **positions) if positions else splits,
        fingerprints,
        {f"{role} and calibrate": count for role, count in shared.items()},
        units if splits.calibrate.size else None,
        kept is not None,
        known,
        tuple(notes),
    )


def _dealt(rows: Rows, split: Split, deal: Callable[..., Splits]) -> Splits:
    """How `rows` are dealt where a role is brought by the caller, or not needed."""
    every = np.arange(len(rows))
    if split.given_calibrate is not None:
        if split.given_tune is not None or split.folds is not None:
            return Splits(every, _NOTHING, _NOTHING, _NOTHING)
        return (
            Splits(_NOTHING, every, _NOTHING, _NOTHING)
            if split.frozen
            else deal(tune=split.tune, calibrate=0)
        )
    if split.given_tune is not None and split.frozen:
        return Splits(_NOTHING, _NOTHING, every, _NOTHING, grouped=rows.clusters is not None)
    if split.given_tune is not None or split.folds is not None:
        return deal(tune=0, calibrate=split.calibrate)
    return _without_training(split, deal)


def _without_training(split: Split, deal: Callable[..., Splits]) -> Splits:
    """Frozen models need no training rows: tuning and calibration share all rows.

    Two shares are a proportion; a count is kept, and the other role gets the rest.
    """
    tune, calibrate = (
        _share(split.tune, name="tune_size"),
        _share(split.calibrate, name="calibrate_size"),
    )
    if tune is not None:
        made = deal(
            tune=0,
            calibrate=split.calibrate if calibrate is None else calibrate / (calibrate + tune),
        )
        return replace(made, train=_NOTHING, tune=made.train)
    made = deal(tune=split.tune, calibrate=0 if calibrate is not None else split.calibrate)
    if calibrate is not None:
        return replace(made, train=_NOTHING, calibrate=made.train)
    if made.train.size:
        raise ValueError(
            Message(
                f"⟨tune_size={split.tune}⟩ and ⟨calibrate_size={split.calibrate}⟩ leave "
                f"{counted(made.train.size, 'row')} "
                "over, and frozen models need none for training: give one of the two, and the "
                "other gets the rest."
            )
        )
    return made


def _share(size: Any, *, name: str) -> Fraction | None:
    """The size as a share, None if it is a count (or no share at all)."""
    if not isinstance(size, float) or size == 0:
        return None
    return Fraction(1) if size == 1 else as_rational(size, name=name)


def _check_empty(parts: Mapping[str, Integers], split: Split) -> None:
    """Refuse an empty role that is not meant to be empty."""
    if len(parts["calibrate"]) == 0:
        raise ValueError(
            Message(
                f"no row is left for the role calibrate: "
                f"⟨calibrate_size={split.calibrate}⟩. Raise it."
            )
        )
    if len(parts["train"]) == 0 and not split.frozen:
        tuning = "" if split.folds is not None else f"⟨tune_size={split.tune}⟩ and "
        sizes = f"{tuning}⟨calibrate_size={split.calibrate}⟩"
        text = (
            f"no row is left for the role train, with {sizes}: lower a size, or bring rows "
            f"for that role."
        )
        raise ValueError(Message(text))
    if (left := len(parts["train"])) < (split.folds or 0):
        text = (
            f"{left} rows to train and tune on cannot make {split.folds} folds: lower "
            f"⟨calibrate_size⟩ or ⟨tune_folds⟩, "
        )
        raise ValueError(Message(text + "or try one model and one score with ⟨tune_size=0⟩."))
    # 0 is for a single candidate, which needs none
    if len(parts["tune"]) == 0 and split.folds is None and split.tune != 0:
        raise ValueError(
            Message(
                "No row is left for tuning: raise ⟨tune_size⟩, or tune by folds "
                "with ⟨tune_folds=5⟩."
            )
        )


def _check_clusters(parts: Mapping[str, Rows]) -> None:
    """Clusters in every role or in none, and no calibration cluster in another role."""
    own = parts["calibrate"].clusters
    for role, other in (
        (role, parts[role].clusters) for role in ("train", "tune") if len(parts[role])
    ):
        if own is None and other is None:
            continue
        if own is None or other is None:
            raise ValueError(
                "groups must be given for all roles or for none: pass groups= for X, tune=(X, y, "
                "{'groups': ...}) and "
                "calibrate=(X, y, {'groups': ...})."
            )
        labels = own[overlap(row_fingerprints(own), row_fingerprints(other))]
        if labels.size:
            count = codes_of_values(labels, missing=True)[1]
            raise OverlappingRolesError(
                f"calibrate and {role} share {counted(count, 'group')} (first: {labels[0]}), so "
                f"their rows are not "
                "independent. Keep every group in one role."
            )


def assign_roles(
    n: int,
    *,
    tune: Size = 0.25,
    calibrate: Size = 0.25,
    test: Size = 0,
    groups: Any = None,
    seed: Seed = None,
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
    total = as_count(n)
    if total == 0:
        raise ValueError("there are no rows to assign to roles; give at least one.")
    number = as_seed(seed)
    order = random_order(total, groups=groups, seed=number)
    units, unit = order.ends.size - 1, "row" if groups is None else "group"
    asked = {Role.CALIBRATE: calibrate, Role.TUNE: tune, Role.TEST: test}
    cuts, wanted = [0], Fraction(0)
    for role, size in asked.items():
        whole = isinstance(size, (int, np.integer))
        if isinstance(size, bool) or not (
            isinstance(size, Real) and size >= 0 and (whole or size <= 1)
        ):
            raise ValueError(
                f"the size of the role {role} must be a count or a share between 0 "
                f"and 1, got {size!r}."
            )
        amount = Fraction(int(size)) if whole else rational(size) * units
        wanted += amount
        # floor(wanted + 1/2)
        cuts.append((2 * wanted.numerator + wanted.denominator) // (2 * wanted.denominator))
        if wanted > units:
            raise ValueError(
                f"the role {role} asks for more than there is: {calibrate} to calibrate, {tune} "
                f"to tune and {test} to test, "
                f"of {counted(units, unit)}. Ask for less, or give more {unit}s."
            )
        if amount and cuts[-1] == cuts[-2]:
            few = f"{counted(units, unit)} {are(units)} too few"
            raise ValueError(f"{few}: the size {size} leaves the role {role} without a row.")
    calibrated, tuned, tested, rest = np.split(order.rows, order.ends[cuts[1:]])
    return Splits(rest, tuned, calibrated, tested, number, groups is not None)


def folds(
    rows: int | Integers, k: int, *, groups: Any = None, seed: Seed = None
) -> list[tuple[Cut, Integers]]:
    """k pairs (rows to fit on, rows held out): each row is held out once, and a group always as a
    whole.

    The rows to fit on come in parts, one for each of the other folds. `rows` is a number of rows or
    an array of positions; `groups` has one label for each of them. Folds differ by at most one row
    (one group).
    """
    order = random_order(rows, groups=groups, seed=seed)
    units = order.ends.size - 1
    if as_count(k, name="k") < 2 or k > units:
        unit = "rows" if groups is None else "groups"
        raise ValueError(f"k must lie between 2 and the number of {unit}, {units}; got {k}.")
    parts = np.split(order.rows, order.ends[[i * units // k for i in range(1, k)]])
    return [((*parts[:i], *parts[i + 1 :]), held_out) for i, held_out in enumerate(parts)]


@dataclass(frozen=True, eq=False)
class RowOrder:
    """Rows in an order fixed in advance, in units that stay together (single rows, or whole
    groups).

    ``rows[: ends[j]]`` are the first j units. Taking the first j as tuning rows and the rest for
    calibration keeps the guarantee for any j that is chosen by looking only at the units already
    taken (a stopping time).
    """

    rows: Integers
    ends: Integers


def random_order(rows: int | Integers, *, groups: Any = None, seed: Seed = None) -> RowOrder:
    """A uniformly random order of the rows, of whole groups if `groups` is given.

    `rows` is a number of rows or an array of positions; `groups` has one label for each of them.
    """
    if isinstance(rows, (int, np.integer)):
        # kept with the fit
        rows = np.arange(as_count(rows), dtype=np.int32 if rows < 2**31 else np.int64)
    positions = np.asarray(rows)
    rng = np.random.default_rng(as_seed(seed))
    if groups is not None:
        codes, count = _codes(groups, positions.size, "groups")
        place = rng.permutation(count)[codes]  # each group's place in the order
        ends = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=count))]).astype(
            np.int64
        )
        return RowOrder(positions[np.argsort(place, kind="stable")], ends)
    n = positions.size
    return RowOrder(positions[rng.permutation(n)], np.arange(n + 1))


def _codes(values: Any, n: int, name: str) -> tuple[Integers, int]:
    codes, count = codes_of_values(values, name=name)
    if codes.size != n:
        raise ValueError(
            f"{name} has {counted(codes.size, 'label')} for {counted(n, 'row')}; "
            f"give one label per row."
        )
    return codes, count


def fresh_seed() -> int:
    """A seed from the operating system's entropy."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def as_seed(seed: Seed) -> int:
    """`seed` as an integer that can be written down, by scikit-learn's rules for random_state.

    An integer is itself; None draws a fresh one from the operating system; a generator is asked for
    one.
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
            f"seed must be None, a whole number that is not negative or a NumPy generator, got "
            f"{seed!r}."
        ) from None
