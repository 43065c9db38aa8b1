"""Rows of one role, cut together; calibration rows under seal; and what is kept of rows to know
them again.
"""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

from dco.foundations.arrays import AnyArray, Bools, Integers, as_labels
from dco.foundations.display import counted, first_few, have
from dco.foundations.errors import SealBrokenError
from dco.foundations.extras import require
from dco.foundations.notes import Note
from dco.rows.fingerprints import Hashes, first_words, role_fingerprint, row_fingerprints

_BY_CHANCE = 0.01  # probability under exchangeability below which missing values are noted
KEPT_ROWS = 2**16  # of each role, half a megabyte at most

Cut: TypeAlias = tuple[Integers, ...]  # positions in several parts, one after the other


@dataclass(frozen=True, eq=False)
class Rows:
    """Features (an array, a sparse matrix or a frame, untouched) and targets, with what belongs to
    each row.

    `clusters` says which rows belong together. `params` go to the models' ``fit``: those named in
    `by_row` have one entry per row and are cut with the rows, others are passed on.
    """

    X: Any
    y: AnyArray
    clusters: AnyArray | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    by_row: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Cut | Integers | slice) -> Rows:
        """Some of the rows, in the order given; all of them in their order, or a slice, are not
        copied.
        """
        rows = np.concatenate(rows) if isinstance(rows, tuple) else rows
        whole = (
            rows == slice(None)
            if isinstance(rows, slice)
            else rows.size == len(self) and (np.diff(rows) == 1).all()
        )
        if whole:
            return self
        clusters = None if self.clusters is None else self.clusters[rows]
        params = {
            name: np.asarray(value)[rows] if name in self.by_row else value
            for name, value in self.params.items()
        }
        return Rows(take_features(self.X, rows), self.y[rows], clusters, params, self.by_row)

    def followed_by(self, other: Rows) -> Rows:
        """These rows, then the others."""
        if self.params.keys() != other.params.keys():
            raise ValueError(
                f"train rows come with the fit parameters {sorted(self.params)}, tune rows with "
                f"{sorted(other.params)}: "
                "to refit on both, pass tune=(X, y, {...}) with the same names, or set refit=False."
            )
        by_row = self.by_row & other.by_row
        both = {
            name: np.concatenate([np.asarray(own.params[name]) for own in (self, other)])
            for name in by_row
        }
        return Rows(
            stack_features(self.X, other.X),
            np.concatenate([self.y, other.y]),
            None
            if self.clusters is None or other.clusters is None
            else np.concatenate([self.clusters, other.clusters]),
            {**self.params, **both},
            by_row,
        )


def given_rows(X: Any, y: AnyArray, groups: Any, params: Mapping[str, Any]) -> Rows:
    """Rows as a caller brings them, with lengths checked; of parameters other than weights the
    length may be any.
    """
    if len(y) != X.shape[0]:
        raise ValueError(
            f"X has {counted(X.shape[0], 'row')} and y has {len(y)}: give one target per row."
        )
    if isinstance(groups, str):
        raise ValueError(
            f"groups must hold one label per row, got the text {groups!r}: pass X[{groups!r}]."
        )
    clusters = None if groups is None else as_labels(groups)
    if clusters is not None and clusters.shape != y.shape:
        raise ValueError(
            f"groups must hold one label for each of {len(y)} rows, got shape {clusters.shape}."
        )
    given = {name: value for name, value in params.items() if value is not None}
    for name, value in given.items():
        if name.endswith("sample_weight") and np.ndim(value) > 0 and len(value) != len(y):
            raise ValueError(
                f"{name} must hold one weight for each of {len(y)} rows, got {len(value)}."
            )
    listed = {
        name: value for name, value in given.items() if not isinstance(value, (str, bytes, Mapping))
    }
    by_row = frozenset(
        name for name, value in listed.items() if hasattr(value, "__len__") and len(value) == len(y)
    )
    return Rows(X, y, clusters, given, by_row)


def role_parts(role: str, given: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
    """X, y, groups and fit parameters of rows that a caller brings for a role: (X, y) or (X, y,
    {fit parameters}).
    """
    if not isinstance(given, (tuple, list)) or len(given) not in (2, 3):
        raise ValueError(
            f"{role} must be (X, y) or (X, y, {{fit parameters}}), got {type(given).__name__}."
        )
    X, y, extra = given if len(given) == 3 else (*given, {})
    if not isinstance(extra, Mapping):
        raise ValueError(
            f"the third entry of {role} must be a dict of fit parameters, got "
            f"{type(extra).__name__}."
        )
    return (
        X,
        y,
        extra.get("groups"),
        {name: value for name, value in extra.items() if name != "groups"},
    )


def check_table(X: Any) -> None:
    """Refuse tables that cannot be cut by rows, naming what they become."""
    kind = type(X).__name__
    if type(X).__module__.startswith("pyarrow"):
        raise ValueError(
            f"X is a {kind} of Arrow, which models cannot read: pass X.to_pandas() "
            f"or polars.from_arrow(X)."
        )
    if hasattr(X, "collect_schema") and not hasattr(X, "shape"):
        raise ValueError(f"X is a {kind}, whose rows are not there yet: pass X.collect().")
    if hasattr(X, "columns") and hasattr(X, "compute"):
        raise ValueError(f"X is a {kind} of Dask, whose rows are not there yet: pass X.compute().")


def is_frame(X: Any) -> bool:
    """Whether X is a pandas or polars frame (anything with named columns that can be cut by
    rows).
    """
    return hasattr(X, "columns") and hasattr(X, "shape") and not isinstance(X, np.ndarray)


def n_rows(X: Any) -> int:
    """How many rows X has."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def missing_cells(X: Any) -> Integers:
    """How many cells of each column of X are missing: NaN, None, or what a frame calls so."""
    if hasattr(X, "isna"):
        return np.asarray(X.isna().sum(), dtype=np.int64)
    if hasattr(X, "null_count"):  # polars, which tells NaN from null
        nan = [
            int(column.is_nan().sum() or 0) if column.dtype.is_float() else 0
            for column in X.get_columns()
        ]
        return np.asarray(X.null_count().row(0), dtype=np.int64) + np.asarray(nan, dtype=np.int64)
    if issparse(X):
        table: Any = X
        table = table.tocsr()
        return np.bincount(table.indices[np.isnan(table.data)], minlength=table.shape[1])
    cells = np.asarray(X)
    if cells.dtype.kind not in "fO":
        return np.zeros(cells.shape[1], dtype=np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        # the usual case, in a quarter of the time
        if cells.dtype.kind == "f" and not np.isnan(cells.sum()):
            return np.zeros(cells.shape[1], dtype=np.int64)
    gaps = (
        np.isnan(cells)
        if cells.dtype.kind == "f"
        else np.frompyfunc(is_missing, 1, 1)(cells).astype(bool)
    )
    return np.asarray(gaps.sum(axis=0, dtype=np.int64))


def is_missing(value: Any) -> bool:
    """Whether a value is NaN, None, NaT or pandas.NA."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA refuses to be compared
        return True


def take_features(X: Any, rows: Integers | slice) -> Any:
    """Some rows of X, which keeps its type."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(X, np.ndarray) and not isinstance(rows, slice):
        return X.take(rows, axis=0)  # three times as fast as X[rows]
    # not copied either
    if isinstance(rows, slice) and getattr(X, "format", "") == "csr" and X.has_canonical_format:
        ends: Any = X.indptr[slice(rows.start, None if rows.stop is None else rows.stop + 1)]
        own = slice(ends[0], ends[-1])
        return type(X)(
            (X.data[own], X.indices[own], ends - ends[0]),
            shape=(len(ends) - 1, X.shape[1]),
            copy=False,
        )
    return X[rows] if hasattr(X, "shape") or isinstance(rows, slice) else [X[row] for row in rows]


def stack_features(above: Any, below: Any) -> Any:
    """Two feature tables, one after the other."""
    try:
        if hasattr(above, "iloc"):
            return require("pandas", extra="tables").concat(_with_all_categories(above, below))
        if hasattr(above, "vstack"):  # polars
            return above.vstack(below)
        if issparse(above):
            tables: list[Any] = [above, below]
            return vstack(tables).tocsr()
        return np.concatenate([above, below])
    except (AttributeError, TypeError, ValueError) as error:
        if type(above) is type(below):
            raise
        raise ValueError(
            f"train rows are a {type(above).__name__} and tune rows a {type(below).__name__}: to "
            f"refit on both, give them "
            "as one kind of table, or set refit=False."
        ) from error


def _with_all_categories(above: Any, below: Any) -> list[Any]:
    """Both frames with each other's categories: pandas turns columns whose categories differ into
    plain text.
    """
    kind = require("pandas", extra="tables").CategoricalDtype
    types = {}
    for name, one in above.dtypes.items():
        other = below.dtypes[name]
        if (
            isinstance(one, kind)
            and isinstance(other, kind)
            and one != other
            and not (one.ordered or other.ordered)
        ):
            # an order could not be guessed
            types[name] = kind(one.categories.union(other.categories))
    return [frame.astype(types) if types else frame for frame in (above, below)]


@dataclass(frozen=True)
class Access:
    """One request for sealed rows: when (UTC), for which structure, what for, and whether it was
    granted.
    """

    when: datetime.datetime
    structure: str
    purpose: str
    granted: bool

    def __str__(self) -> str:
        return f"{self.when:%Y-%m-%d %H:%M:%S} UTC, {self.purpose}, structure {self.structure}"


class SealedRows:
    """Calibration rows that open once, for one frozen structure.

    The guarantee needs a structure that was fixed before any calibration row was seen, and whoever
    may look twice can choose by what the first look showed. So a second request is refused, whether
    it names another structure or the same: the name of a structure does not fix a random seed, or a
    level that is changed between the looks; what is needed again (the scores) is kept by the one
    who opened. Refused requests are logged too. Rows that were changed after sealing are refused. A
    copy would be a second chance, so there is none: not by copy, not by pickle.

    This guards against mistakes, not against people who read private attributes.
    """

    __slots__ = ("__rows", "_fingerprint", "_log", "_n")
    fingerprint = property(
        attrgetter("_fingerprint"),
        doc="The digest of the rows when they were sealed, in any order.",
    )
    log = property(
        attrgetter("_log"), doc="Every request so far, an `Access` each, granted or not."
    )
    _hashes = staticmethod(row_fingerprints)

    def __init__(
        self, X: Any, y: Any, *, fingerprint: str = "", at: Integers | slice = slice(None)
    ) -> None:
        """The rows of X and y; those `at` some positions, with this fingerprint, are copied when
        they are opened.
        """
        self.__rows: Callable[[], Rows] | None = partial(Rows(X, y).take, at)
        self._fingerprint = fingerprint or role_fingerprint(self._hashes(X, y))
        self._n = len(y) if isinstance(at, slice) else at.size
        self._log: tuple[Access, ...] = ()

    def open_for(self, structure: str, *, purpose: str = "calibrate") -> tuple[Any, Any]:
        """The rows (X, y), once; `structure` is the fingerprint of the frozen structure that will
        score them.
        """
        if not structure:
            raise ValueError("Sealed rows open for a frozen structure: give its fingerprint.")
        rows = None if self.__rows is None else self.__rows()
        changed = (
            rows is not None and role_fingerprint(self._hashes(rows.X, rows.y)) != self._fingerprint
        )
        asked = Access(
            datetime.datetime.now(datetime.UTC),
            structure,
            purpose,
            rows is not None and not changed,
        )
        self._log = (*self._log, asked)
        if changed:
            raise SealBrokenError(
                "The calibration rows are not those that were sealed: something changed them in "
                "place. Seal a copy of them."
            )
        if rows is None:
            first = self.opened_for
            which = "the same structure" if first == structure else "another structure"
            raise SealBrokenError(
                f"The calibration rows were opened for structure {first} and are now asked for by "
                f"{which} ({structure}); "
                "what is chosen after a look at them is not covered. Keep the first result, or "
                "calibrate on fresh rows."
            )
        self.__rows = None  # the seal itself lets go of the rows
        return rows.X, rows.y

    @property
    def opened_for(self) -> str | None:
        """The structure that the rows were opened for, None while sealed."""
        return next((access.structure for access in self._log if access.granted), None)

    def __len__(self) -> int:
        return self._n

    def __repr__(self) -> str:
        state = "sealed" if self.opened_for is None else f"opened for {self.opened_for}"
        return f"<SealedRows: {self._n} rows, {state}, {len(self._log)} requests>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "Sealed rows cannot be copied or pickled: a copy could be opened a second time."
        )


@dataclass(frozen=True, eq=False)
class KeptRows:
    """What is kept of a fit to know its rows again.

    `hashes` holds, for each role, 64 bits of each row's hash, the `KEPT_ROWS` smallest, ascending:
    hashes are uniform, so these are a random sample, and it is known which new rows would be in it.
    `repeated` is the share of rows that have a copy among the others: that share of new rows has
    one by chance.
    """

    hashes: Mapping[str, NDArray[np.uint64]] = field(default_factory=dict)
    repeated: float = 0.0
    n: int = 0
    # which columns had no missing cell
    complete: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @classmethod
    def of(cls, roles: Mapping[str, Hashes], complete: Bools) -> KeptRows:
        """All that is kept, from the fingerprints of the rows of each role."""
        every = np.concatenate([first_words(hashes) for hashes in roles.values()])
        every.sort()
        alike = np.concatenate([[False], every[1:] == every[:-1], [False]])
        repeated = np.count_nonzero(alike[1:] | alike[:-1]) / every.size
        # one at a time
        ordered = ((role, np.sort(first_words(hashes))) for role, hashes in roles.items())
        # each once
        kept = {
            role: own[np.diff(own, prepend=~own[:1]) != 0][:KEPT_ROWS].copy()
            for role, own in ordered
        }
        return cls(kept, repeated, every.size, complete)

    def among(self, hashes: Hashes) -> UsedRows:
        """Which of these rows took part in the fit."""
        numbers = first_words(hashes)
        cut = min(
            (int(own[-1]) for own in self.hashes.values() if own.size == KEPT_ROWS),
            default=2**64 - 1,
        )
        inside = numbers <= np.uint64(cut)
        share = (cut + 1) / 2**64
        found = {role: np.isin(numbers, own) & inside for role, own in self.hashes.items()}
        known = (
            np.logical_or.reduce(list(found.values()))
            if found
            else np.zeros(numbers.size, dtype=bool)
        )
        counts = {role: _scaled(own, share) for role, own in found.items() if own.any()}
        others = _scaled(inside & ~known, share)
        return UsedRows(_scaled(known, share), counts, known, others, exact=share == 1)

    def absent(self, hashes: Hashes) -> dict[str, int]:
        """How many of the rows that are kept of each role are not among these."""
        numbers = first_words(hashes)
        return {
            role: int(np.count_nonzero(~np.isin(own, numbers))) for role, own in self.hashes.items()
        }

    def used(self, hashes: Hashes) -> UsedRows | None:
        """The rows that took part in the fit; None if there are no more than new rows share with it
        by chance.
        """
        found = self.among(hashes)
        return found if found.total > self.by_chance(len(hashes)) else None

    def gaps(self, X: Any) -> Counter[Any]:
        """How many cells of X are missing in each column that had no missing cell in the rows of
        the fit.
        """
        if not self.complete.any():
            return Counter()
        missing = missing_cells(X) * self.complete
        names = list(X.columns) if is_frame(X) else range(len(missing))
        return Counter({names[place]: int(missing[place]) for place in np.flatnonzero(missing)})

    def note_gaps(self, gaps: Counter[Any], n: int) -> list[Note]:
        """A note where so many of n new rows lack such a column that rows like those of the fit
        hardly would.

        If all rows are exchangeable, c rows of N + n without a value are all among the n new ones
        with probability at most (n / (N + n))**c, N rows being in the fit.
        """
        share = n / (n + self.n)
        found = [
            f"{name!r} in {count}"
            for name, count in gaps.most_common()
            if share**count < _BY_CHANCE
        ]
        if not found:
            return []
        text = (
            f"{counted(len(found), 'column')} had no missing value in the fit and "
            f"{have(len(found))} some in "
            f"{counted(n, 'new row')} ({first_few(found)}): such rows are not like those of the "
            f"fit, which the guarantee is "
            "for."
        )
        return [Note("new-gaps", text)]

    def by_chance(self, n: int) -> float:
        """How many of n new rows may have a copy in the fit by chance: the mean and five standard
        deviations.
        """
        if self.repeated == 0:
            return 0.0
        return n * self.repeated + 5 * math.sqrt(
            n * self.repeated * (1 - self.repeated) * (1 + n / self.n)
        )


@dataclass(frozen=True, eq=False)
class UsedRows:
    """Which of some rows took part in a fit: how many, by role, and those that are known (a sample,
    if not `exact`).

    `others` is how many took no part in it.
    """

    total: int
    counts: Mapping[str, int]
    known: Bools
    others: int
    exact: bool


def _scaled(found: Bools, share: float) -> int:
    return min(round(np.count_nonzero(found) / share), found.size)
