"""Rows of one role: features, targets, row groups and fit parameters, cut together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

from dco.arrays import AnyArray, Bools, Integers
from dco.fingerprints import Hashes

KEPT_ROWS = 2**16  # of each role, half a megabyte at most


@dataclass(frozen=True, eq=False)
class Rows:
    """Features (an array, a sparse matrix or a frame, untouched) and targets, with what belongs to each row.

    `params` go to the models' ``fit``: values that hold one entry a row are cut with the rows, others are passed on.
    """

    X: Any
    y: AnyArray
    groups: AnyArray | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.y)

    def check_weights(self) -> None:
        """Refuse weights that are not one a row; of other parameters it is not known whether they belong to rows."""
        for name, value in self.params.items():
            if name.endswith("sample_weight") and np.ndim(value) > 0 and len(value) != len(self):
                raise ValueError(f"{name} must hold one weight for each of {len(self)} rows, got {len(value)}.")

    def take(self, rows: Integers) -> Rows:
        """Some of the rows, in the order given."""
        return Rows(
            take_features(self.X, rows),
            self.y[rows],
            None if self.groups is None else self.groups[rows],
            {name: self._cut(value, rows) for name, value in self.params.items()},
        )

    def followed_by(self, other: Rows) -> Rows:
        """These rows, then the others."""
        if self.params.keys() != other.params.keys():
            raise ValueError(
                f"train rows come with the fit parameters {sorted(self.params)}, tune rows with {sorted(other.params)}: "
                "to refit on both, pass tune=(X, y, {...}) with the same names, or set refit=False."
            )
        return Rows(
            stack_features(self.X, other.X),
            np.concatenate([self.y, other.y]),
            None if self.groups is None or other.groups is None else np.concatenate([self.groups, other.groups]),
            {name: self._join(value, other.params[name], len(other)) for name, value in self.params.items()},
        )

    def _cut(self, value: Any, rows: Integers) -> Any:
        return np.asarray(value)[rows] if self._one_a_row(value, len(self)) else value

    def _join(self, value: Any, other: Any, n_other: int) -> Any:
        if self._one_a_row(value, len(self)) and self._one_a_row(other, n_other):
            return np.concatenate([np.asarray(value), np.asarray(other)])
        return value

    @staticmethod
    def _one_a_row(value: Any, n: int) -> bool:
        return not isinstance(value, (str, bytes, Mapping)) and hasattr(value, "__len__") and len(value) == n


def check_table(X: Any) -> None:
    """Refuse tables that cannot be cut by rows, naming what they become."""
    kind = type(X).__name__
    if type(X).__module__.startswith("pyarrow"):
        raise ValueError(f"X is a {kind} of Arrow, which models cannot read: pass X.to_pandas() or polars.from_arrow(X).")
    if hasattr(X, "collect_schema") and not hasattr(X, "shape"):
        raise ValueError(f"X is a {kind}, whose rows are not there yet: pass X.collect().")
    if hasattr(X, "columns") and hasattr(X, "compute"):
        raise ValueError(f"X is a {kind} of Dask, whose rows are not there yet: pass X.compute().")


def is_frame(X: Any) -> bool:
    """Whether X is a pandas or polars frame (anything with named columns that can be cut by rows)."""
    return hasattr(X, "columns") and hasattr(X, "shape") and not isinstance(X, np.ndarray)


def n_rows(X: Any) -> int:
    """How many rows X has."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def missing_cells(X: Any) -> Integers:
    """How many cells of each column of X are missing: NaN, None, or what a frame calls so."""
    if hasattr(X, "isna"):
        return np.asarray(X.isna().sum(), dtype=np.int64)
    if is_frame(X):  # polars, which tells NaN from null
        nan = [int(column.is_nan().sum() or 0) if column.dtype.is_float() else 0 for column in X.get_columns()]
        return np.asarray(X.null_count().row(0), dtype=np.int64) + np.asarray(nan, dtype=np.int64)
    if issparse(X):
        table: Any = X
        table = table.tocsr()
        return np.bincount(table.indices[np.isnan(table.data)], minlength=table.shape[1])
    cells = np.asarray(X)
    if cells.dtype.kind not in "fO":
        return np.zeros(cells.shape[1], dtype=np.int64)
    gaps = np.isnan(cells) if cells.dtype.kind == "f" else np.frompyfunc(_is_gap, 1, 1)(cells).astype(bool)
    return np.asarray(gaps.sum(axis=0, dtype=np.int64))


def _is_gap(cell: Any) -> bool:
    return cell is None or bool(cell != cell)


def take_features(X: Any, rows: Integers) -> Any:
    """Some rows of X, which keeps its type."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows]


def _with_all_categories(frame: Any, other: Any, pandas: Any) -> Any:
    """The frame with the other's categories added: pandas turns columns whose categories differ into plain text."""
    types = {}
    for name, dtype in frame.dtypes.items():
        theirs = other.dtypes[name]
        both = isinstance(dtype, pandas.CategoricalDtype) and isinstance(theirs, pandas.CategoricalDtype)
        if both and dtype != theirs and not (dtype.ordered or theirs.ordered):  # an order cannot be guessed
            types[name] = pandas.CategoricalDtype(dtype.categories.union(theirs.categories))
    return frame.astype(types) if types else frame


def stack_features(above: Any, below: Any) -> Any:
    """Two feature tables, one after the other."""
    try:
        return _stacked(above, below)
    except (AttributeError, TypeError, ValueError) as error:
        if type(above) is type(below):
            raise
        raise ValueError(
            f"train rows are a {type(above).__name__} and tune rows a {type(below).__name__}: to refit on both, give them "
            "as one kind of table, or set refit=False."
        ) from error


def _stacked(above: Any, below: Any) -> Any:
    if hasattr(above, "iloc"):
        from dco.extras import require

        pandas = require("pandas", extra="tables")
        return pandas.concat([_with_all_categories(above, below, pandas), _with_all_categories(below, above, pandas)])
    if is_frame(above):
        return above.vstack(below)
    if issparse(above):
        tables: list[Any] = [above, below]
        return vstack(tables).tocsr()
    return np.concatenate([above, below])


@dataclass(frozen=True, eq=False)
class KeptRows:
    """What is kept of a fit to know its rows again.

    `hashes` holds, for each role, 64 bits of each row's hash, the `KEPT_ROWS` smallest, ascending: hashes are uniform, so
    these are a random sample, and it is known which new rows would be in it. `repeated` is the share of rows that have a
    copy among the others: that share of new rows has one by chance.
    """

    hashes: Mapping[str, NDArray[np.uint64]] = field(default_factory=dict)
    repeated: float = 0.0
    n: int = 0

    @classmethod
    def of(cls, roles: Mapping[str, Hashes]) -> KeptRows:
        """All that is kept, from the fingerprints of the rows of each role."""
        numbers = {role: _numbers(hashes) for role, hashes in roles.items()}
        every = np.concatenate(list(numbers.values()))
        copies = np.unique(every, return_counts=True)[1]
        repeated = float(copies[copies > 1].sum()) / every.size
        return cls({role: np.unique(own)[:KEPT_ROWS] for role, own in numbers.items()}, repeated, every.size)

    def among(self, hashes: Hashes) -> UsedRows:
        """Which of these rows took part in the fit."""
        numbers = _numbers(hashes)
        cut = min((int(own[-1]) for own in self.hashes.values() if own.size == KEPT_ROWS), default=2**64 - 1)
        inside = numbers <= np.uint64(cut)
        share = (cut + 1) / 2**64
        found = {role: np.isin(numbers, own) & inside for role, own in self.hashes.items()}
        known = np.logical_or.reduce(list(found.values())) if found else np.zeros(numbers.size, dtype=bool)
        counts = {role: _scaled(own, share) for role, own in found.items() if own.any()}
        others = _scaled(inside & ~known, share)
        return UsedRows(_scaled(known, share), counts, known, others, exact=share == 1)

    def absent(self, hashes: Hashes) -> dict[str, int]:
        """How many of the rows that are kept of each role are not among these."""
        numbers = _numbers(hashes)
        return {role: int(np.count_nonzero(~np.isin(own, numbers))) for role, own in self.hashes.items()}

    def by_chance(self, n: int) -> float:
        """How many of n new rows may have a copy in the fit by chance: the mean and five standard deviations."""
        if self.repeated == 0:
            return 0.0
        return n * self.repeated + 5 * math.sqrt(n * self.repeated * (1 - self.repeated) * (1 + n / self.n))


@dataclass(frozen=True, eq=False)
class UsedRows:
    """Which of some rows took part in a fit: how many, by role, and those that are known (a sample, if not `exact`).

    `others` is how many took no part in it.
    """

    total: int
    counts: Mapping[str, int]
    known: Bools
    others: int
    exact: bool


def _scaled(found: Bools, share: float) -> int:
    return min(round(np.count_nonzero(found) / share), found.size)


def _numbers(hashes: Hashes) -> NDArray[np.uint64]:
    return np.frombuffer(np.ascontiguousarray(hashes, dtype="S16").tobytes(), dtype="<u8")[::2].astype(np.uint64)
