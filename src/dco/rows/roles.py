"""Which rows train, tune and calibrate: dealt at random, or brought by the caller and checked.

Roles are fixed before anything is fitted, and are disjoint by row position. Repeated values are
ignored: i.i.d. rows with repeats stay exchangeable when each row is dealt by itself, and do not
when copies are tied together. Rows that belong together for a reason outside their values
(patients, videos) are declared as clusters, and whole clusters then go to one role. No model is
looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, TypeAlias, get_args

import numpy as np

from dco.foundations.arrays import AnyArray, Bools, Integers
from dco.foundations.display import counted
from dco.foundations.errors import OverlappingRolesError
from dco.foundations.fingerprints import (
    Hashes,
    codes_of_values,
    drop_repeats,
    overlap,
    role_fingerprint,
    row_fingerprints,
)
from dco.foundations.notes import Message, Note
from dco.foundations.ranks import as_rational
from dco.foundations.tables import missing_cells
from dco.rows.kept_rows import KeptRows
from dco.rows.rows import Rows
from dco.rows.seal import SealedRows
from dco.rows.sizes import RoleSizes
from dco.rows.splits import Role, Size, Splits, deal_positions

Duplicates: TypeAlias = Literal["natural", "drop", "allow"]


@dataclass(frozen=True, eq=False)
class Split:
    """How rows come to their roles: the sizes of those dealt here, and rows that the caller brings.

    `duplicates` says what repeated rows are: "natural" (roles ignore them), recording errors that
    are dropped before rows are dealt ("drop"), or natural in the caller's roles too ("allow").
    Frozen models need no training rows: ``trains_models=False``.
    """

    sizes: RoleSizes = field(default_factory=RoleSizes)
    duplicates: Duplicates = "natural"
    tune: Rows | None = None
    calibrate: Rows | None = None
    trains_models: bool = True

    def __post_init__(self) -> None:
        """Refuse settings that have no meaning, or contradict each other."""
        if self.duplicates not in get_args(Duplicates):
            raise ValueError(
                f'duplicates must be "natural", "drop" or "allow", got {self.duplicates!r}.'
            )
        if self.tune is not None and self.sizes.folds is not None:
            raise ValueError(
                Message("⟨tune_folds⟩ tunes on all rows but the calibration rows; leave tune= out.")
            )
        if self.duplicates == "drop" and self.brings_rows:
            raise ValueError(
                'duplicates="drop" is for roles made here; drop repeats before you '
                "cut the rows yourself."
            )

    @property
    def brings_rows(self) -> bool:
        """Whether the caller brings the rows of a role."""
        return self.tune is not None or self.calibrate is not None

    @property
    def needs_tuning_rows(self) -> bool:
        """Whether candidates are compared, on rows of their own or by folds."""
        return self.sizes.folds is not None or self.sizes.tune != 0


@dataclass(frozen=True)
class RowFacts:
    """What a certificate says of the rows of a fit.

    `fingerprints` has a digest of the rows of each role, and `repeats_shared` the number of
    calibration rows that equal a row of another role, keyed by "train and calibrate".
    `are_distinct`: repeats were dropped before the rows were dealt.
    """

    fingerprints: Mapping[str, str]
    repeats_shared: Mapping[str, int]
    are_distinct: bool


@dataclass(frozen=True, eq=False)
class Roles:
    """Every row in one role. The calibration rows are sealed.

    `splits` has the positions in the table that the caller brought, `folds` the number of folds
    that rank candidates (None: the tuning rows do), and `kept_rows` recognises the rows later.
    `n_dealt` is how many rows (or clusters) were dealt to calibration and other roles, None if the
    caller brought calibration rows.
    """

    train: Rows
    tune: Rows
    sealed: SealedRows
    splits: Splits
    folds: int | None
    n_dealt: int | None
    facts: RowFacts
    kept_rows: KeptRows
    notes: tuple[Note, ...] = ()
    # Training and tuning rows in one table, of which both are slices, if both were dealt from it.
    dealt_together: Rows | None = None

    def fitting_rows(self) -> Rows:
        """Return the rows on which the winner is refitted: all but the calibration rows."""
        if self.dealt_together is not None:
            return self.dealt_together
        return self.train.followed_by(self.tune)


def deal_roles(rows: Rows, split: Split, *, seed: int) -> Roles:
    """Give every row one role before anything is fitted, and seal the calibration rows.

    Rows are dealt at random, whole clusters at a time. Rows that the caller brought keep their
    role, and are refused if calibration shares any with training or tuning.

    Parameters
    ----------
    rows
        The table that is dealt.
    split
        The sizes of the roles, and the rows that the caller brings for a role.
    seed
        Seeds the random order; the same seed deals in the same way.
    """
    _check_enough_rows(len(rows), split)

    # 1. Drop repeated rows, if the caller takes them for recording errors.
    positions_before_drop = None
    if split.duplicates == "drop":
        positions_before_drop = drop_repeats(rows.X, rows.y)
        rows = rows.take(positions_before_drop)

    # 2. Count what is dealt: rows, or clusters.
    n_units = len(rows)
    if rows.clusters is not None:
        cluster_codes, n_units = codes_of_values(rows.clusters)
        if not split.brings_rows:  # only brought rows are compared by the names of their clusters
            rows = replace(rows, clusters=cluster_codes)

    # 3. Deal positions, and check them before any row is copied.
    splits = _deal_positions_of(rows, split, seed=seed)
    role_rows = _rows_of_roles(rows, split, splits)
    _check_role_rows(role_rows, split)
    facts, kept_rows = _remember_rows(role_rows, are_distinct=positions_before_drop is not None)
    sealed = _seal(role_rows[Role.CALIBRATE], fingerprint=facts.fingerprints[Role.CALIBRATE])

    # 4. Copy training and tuning rows once; each role is a slice of the copy.
    dealt_together = rows.take(np.concatenate([splits.train, splits.tune]))
    n_train = splits.train.size
    train = dealt_together.take(slice(n_train))
    tune = split.tune
    if tune is None:
        tune = dealt_together.take(slice(n_train, None))

    if positions_before_drop is not None:
        splits = _translate_positions(splits, positions_before_drop)
    return Roles(
        train=train,
        tune=tune,
        sealed=sealed,
        splits=splits,
        folds=split.sizes.folds,
        n_dealt=n_units if split.calibrate is None else None,
        facts=facts,
        kept_rows=kept_rows,
        dealt_together=dealt_together if split.tune is None else None,
    )


# ----------------------------------------------------------------------------------- deal positions


def _deal_positions_of(rows: Rows, split: Split, *, seed: int) -> Splits:
    """Deal rows at random to training, tuning and calibration, and return their positions.

    A role for which the caller brings rows of its own gets none of these. Frozen models (fitted
    before) take no training rows: tuning and calibration then get all rows, and sizes that leave
    some over are refused.
    """
    # 1. Collect the sizes of the roles.
    sizes: dict[Role, Size] = {}
    if split.calibrate is None:
        sizes[Role.CALIBRATE] = split.sizes.calibrate
    tunes_by_folds = split.sizes.folds is not None
    if split.tune is None and not tunes_by_folds:
        sizes[Role.TUNE] = split.sizes.tune

    # 2. Choose the role that gets the remaining rows.
    rest = Role.TRAIN
    takes_training_rows = split.trains_models or tunes_by_folds or not sizes
    if not takes_training_rows:
        sizes, rest = _sizes_without_training(sizes)

    # 3. Deal.
    splits = deal_positions(len(rows), sizes, rest=rest, groups=rows.clusters, random_state=seed)
    if not takes_training_rows and splits.train.size > 0:
        raise ValueError(
            Message(
                f"⟨tune_size={split.sizes.tune}⟩ and ⟨calibrate_size={split.sizes.calibrate}⟩ "
                f"leave {counted(splits.train.size, 'row')} over, and frozen models need none for "
                f"training: give one of the two, and the other gets the rest."
            )
        )
    return splits


def _sizes_without_training(sizes: Mapping[Role, Size]) -> tuple[dict[Role, Size], Role]:
    """Change role sizes so that no row is left to train: frozen models are fitted already.

    `sizes` has a count or a share of the rows for tuning, for calibration, or for both. Return the
    sizes of the roles to deal, and the role that gets all remaining rows:

    - One role: it gets all rows.
    - Two shares: only their proportion counts; 0.25 and 0.25 give half the rows to each.
    - A count and a share: the count stays, and the other role gets the remaining rows.
    - Two counts: both stay. What they leave over falls to training, and is refused by the caller.
    """
    if len(sizes) == 1:
        (only_role,) = sizes
        return {}, only_role

    tune = sizes[Role.TUNE]
    calibrate = sizes[Role.CALIBRATE]
    if _is_share(tune) and _is_share(calibrate):
        tune_share = _as_share(tune, name="tune_size")
        calibrate_share = _as_share(calibrate, name="calibrate_size")
        proportion = calibrate_share / (calibrate_share + tune_share)
        return {Role.CALIBRATE: proportion}, Role.TUNE
    if _is_share(tune):
        return {Role.CALIBRATE: calibrate}, Role.TUNE
    if _is_share(calibrate):
        return {Role.TUNE: tune}, Role.CALIBRATE
    return dict(sizes), Role.TRAIN


def _is_share(size: Size) -> bool:
    return not isinstance(size, int | np.integer) and size != 0


def _as_share(size: Size, *, name: str) -> Fraction:
    """Read a share as an exact fraction; 1 is allowed."""
    return Fraction(1) if size == 1 else as_rational(size, name=name)


def _translate_positions(splits: Splits, positions_before_drop: Integers) -> Splits:
    """Translate positions to those in the caller's table, before repeats were dropped."""
    return replace(
        splits,
        train=positions_before_drop[splits.train],
        tune=positions_before_drop[splits.tune],
        calibrate=positions_before_drop[splits.calibrate],
    )


@dataclass(frozen=True, eq=False)
class _RoleRows:
    """The rows of one role, as positions in a table that is not copied yet."""

    table: Rows
    positions: Integers

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def clusters(self) -> AnyArray | None:
        """The cluster of each row."""
        return None if self.table.clusters is None else self.table.clusters[self.positions]


def _rows_of_roles(rows: Rows, split: Split, splits: Splits) -> dict[Role, _RoleRows]:
    """Return the rows of each role: dealt ones, or all rows of a table that the caller brings."""
    role_rows = {Role.TRAIN: _RoleRows(rows, splits.train)}
    brought_tables = {Role.TUNE: split.tune, Role.CALIBRATE: split.calibrate}
    for role, table in brought_tables.items():
        if table is None:
            role_rows[role] = _RoleRows(rows, splits[role])
        else:
            role_rows[role] = _RoleRows(table, np.arange(len(table)))
    return role_rows


def _seal(calibration_rows: _RoleRows, *, fingerprint: str) -> SealedRows:
    """Seal the calibration rows. They are copied when the seal opens."""
    table = calibration_rows.table
    return SealedRows(
        table.X,
        table.y,
        clusters=table.clusters,
        positions=calibration_rows.positions,
        fingerprint=fingerprint,
    )


# ------------------------------------------------------------------------------------------- checks


def _check_enough_rows(n_rows: int, split: Split) -> None:
    """Refuse fewer rows than there are roles to fill."""
    if split.brings_rows:
        return

    other_roles = []
    if split.trains_models:
        other_roles.append(Role.TRAIN)
    if split.needs_tuning_rows:
        other_roles.append(Role.TUNE)

    n_needed = len(other_roles) + 1  # one row for each role, and one to calibrate
    if n_rows < n_needed:
        raise ValueError(
            f"n_samples={n_rows} is too few to {', '.join(other_roles)} and {Role.CALIBRATE}: "
            f"give at least {n_needed} rows."
        )


def _check_role_rows(role_rows: Mapping[Role, _RoleRows], split: Split) -> None:
    """Refuse roles without rows, and rows that the caller brings for two roles.

    The latter are rows with the same values, or from the same cluster (rows that belong together).
    """
    _check_sizes(
        split,
        n_train=len(role_rows[Role.TRAIN]),
        n_tune=len(role_rows[Role.TUNE]),
        n_calibrate=len(role_rows[Role.CALIBRATE]),
    )
    if split.brings_rows:
        _check_clusters(role_rows)
        if split.duplicates != "allow":
            _check_no_shared_rows(role_rows)


def _check_sizes(split: Split, *, n_train: int, n_tune: int, n_calibrate: int) -> None:
    """Refuse roles with too few rows: each needs one, and folds need one row in each fold.

    Frozen models need no training rows. No tuning rows are needed with folds, or with one candidate
    (a tuning size of 0).
    """
    sizes = split.sizes
    if n_calibrate == 0:
        raise ValueError(
            Message(
                f"no row is left for the role calibrate: ⟨calibrate_size={sizes.calibrate}⟩. "
                f"Raise it."
            )
        )
    if n_train == 0 and split.trains_models:
        tuning = "" if sizes.folds is not None else f"⟨tune_size={sizes.tune}⟩ and "
        raise ValueError(
            Message(
                f"no row is left for the role train, with {tuning}"
                f"⟨calibrate_size={sizes.calibrate}⟩: lower a size, or bring rows for that role."
            )
        )
    if sizes.folds is not None and n_train < sizes.folds:
        raise ValueError(
            Message(
                f"{n_train} rows to train and tune on cannot make {sizes.folds} folds: lower "
                f"⟨calibrate_size⟩ or ⟨tune_folds⟩, or try one model and one score with "
                f"⟨tune_size=0⟩."
            )
        )
    if n_tune == 0 and sizes.folds is None and sizes.tune != 0:
        raise ValueError(
            Message(
                "No row is left for tuning: raise ⟨tune_size⟩, or tune by folds with "
                "⟨tune_folds=5⟩."
            )
        )


def _check_clusters(role_rows: Mapping[Role, _RoleRows]) -> None:
    """Refuse clusters that calibration shares with another role, and clusters in some roles only.

    Rows of one cluster depend on each other, so calibration rows must come from other clusters than
    training and tuning rows.
    """
    calibration_clusters = role_rows[Role.CALIBRATE].clusters
    for role in (Role.TRAIN, Role.TUNE):
        clusters = role_rows[role].clusters
        has_no_rows = len(role_rows[role]) == 0
        if has_no_rows or (clusters is None and calibration_clusters is None):
            continue
        if clusters is None or calibration_clusters is None:
            raise ValueError(
                "groups must be given for all roles or for none: pass groups= for X, tune=(X, y, "
                "{'groups': ...}) and calibrate=(X, y, {'groups': ...})."
            )

        shared_rows = overlap(row_fingerprints(calibration_clusters), row_fingerprints(clusters))
        shared_clusters = calibration_clusters[shared_rows]  # with repeats
        if shared_clusters.size > 0:
            _, n_shared = codes_of_values(shared_clusters, missing=True)
            raise OverlappingRolesError(
                f"calibrate and {role} share {counted(n_shared, 'group')} (first: "
                f"{shared_clusters[0]}), so their rows are not independent. Keep every group in "
                f"one role."
            )


def _check_no_shared_rows(role_rows: Mapping[Role, _RoleRows]) -> None:
    """Refuse calibration rows that equal a row of another role after rounding to single precision.

    Where the caller cut the roles, such a row is most likely a leak: a calibration row that the
    models were fitted on.
    """
    hashes = _hash_roles(role_rows, at_float32=True)
    for role in (Role.TRAIN, Role.TUNE):
        if role not in hashes:  # the role has no rows
            continue
        shared = overlap(hashes[Role.CALIBRATE], hashes[role])
        if shared.size > 0:
            raise OverlappingRolesError(
                f"{role} and calibrate share {counted(shared.size, 'row')} (first: calibration row "
                f"{shared[0]}), compared in single precision; coverage needs calibration rows that "
                f"fitting and tuning never saw. Drop them from one role, let assign_roles() build "
                f'both, or pass duplicates="allow" if a new row is as likely to be a repeat.'
            )


# ------------------------------------------------------------------------------- what is remembered


def _remember_rows(
    role_rows: Mapping[Role, _RoleRows], *, are_distinct: bool
) -> tuple[RowFacts, KeptRows]:
    """Hash the rows of every role: for the facts in the certificate, and to recognise rows later.

    `are_distinct` says that repeated rows were dropped before. Return the facts, and the hashes
    that are kept with the fit.
    """
    hashes = _hash_roles(role_rows)
    kept_rows = KeptRows.of(
        {role.value: hashes[role] for role in hashes}, complete=_complete_columns(role_rows)
    )

    # Count the calibration rows that equal a row of another role.
    has_equal_rows = kept_rows.repeated > 0
    repeats_shared = {}
    for role in (Role.TRAIN, Role.TUNE):
        if role not in hashes:  # the role has no rows
            continue
        n_shared = 0
        if has_equal_rows:  # otherwise the search, which takes time, would find nothing
            n_shared = overlap(hashes[Role.CALIBRATE], hashes[role]).size
        repeats_shared[f"{role} and calibrate"] = n_shared

    facts = RowFacts(
        fingerprints={role.value: role_fingerprint(hashes[role]) for role in hashes},
        repeats_shared=repeats_shared,
        are_distinct=are_distinct,
    )
    return facts, kept_rows


def _hash_roles(
    role_rows: Mapping[Role, _RoleRows], *, at_float32: bool = False
) -> dict[Role, Hashes]:
    """Hash the rows of each role that has some: {Role.TRAIN: hashes, Role.TUNE: ...}.

    Roles may be parts of one table, which is hashed once. With `at_float32` numbers are rounded to
    single precision before, so that rows that differ by less have the same hash.
    """
    filled_roles = {role: rows for role, rows in role_rows.items() if len(rows) > 0}
    hashes: dict[Role, Hashes] = {}
    for table in _list_tables(filled_roles):
        table_hashes = row_fingerprints(table.X, table.y, at_float32=at_float32)
        for role, rows in filled_roles.items():
            if rows.table is table:
                hashes[role] = table_hashes[rows.positions]
    return {role: hashes[role] for role in filled_roles}  # in the order of the roles


def _complete_columns(role_rows: Mapping[Role, _RoleRows]) -> Bools:
    """Mark the columns that have no missing cell in any table."""
    n_missing = sum(missing_cells(table.X) for table in _list_tables(role_rows))
    return np.asarray(n_missing == 0)


def _list_tables(role_rows: Mapping[Role, _RoleRows]) -> list[Rows]:
    """List the tables that hold the rows of the roles, each once."""
    tables: list[Rows] = []
    for rows in role_rows.values():
        if not any(rows.table is table for table in tables):
            tables.append(rows.table)
    return tables
