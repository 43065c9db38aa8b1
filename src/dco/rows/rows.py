"""Rows of a table, with their targets and whatever else belongs to each row, cut and joined
together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from dco.foundations.arrays import AnyArray, Integers, as_labels
from dco.foundations.display import counted
from dco.foundations.tables import stack_features, take_features

Cut: TypeAlias = tuple[Integers, ...]  # positions in several parts, one after the other


@dataclass(frozen=True, eq=False)
class Rows:
    """Features (an array, a sparse matrix or a frame, untouched) and targets of some rows.

    `clusters` says which rows belong together. `params` go to the models' ``fit``: those named in
    `params_by_row` have one entry per row and are cut with the rows, others are passed on whole.
    """

    X: Any
    y: AnyArray
    clusters: AnyArray | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    params_by_row: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_units(self) -> int:
        """How many rows there are, or clusters where rows belong together."""
        return len(self) if self.clusters is None else len(set(self.clusters.tolist()))

    def take(self, positions: Cut | Integers | slice) -> Rows:
        """Return the rows at some positions, in the order given, with all that belongs to them.

        Positions are an array, a slice, or a tuple of arrays that are joined. Neither a slice nor
        the whole table is copied.
        """
        if isinstance(positions, tuple):
            positions = np.concatenate(positions)
        if self._are_all_rows(positions):
            return self

        params = dict(self.params)
        for name in self.params_by_row:
            params[name] = np.asarray(params[name])[positions]
        return Rows(
            X=take_features(self.X, positions),
            y=self.y[positions],
            clusters=None if self.clusters is None else self.clusters[positions],
            params=params,
            params_by_row=self.params_by_row,
        )

    def _are_all_rows(self, positions: Integers | slice) -> bool:
        """Return whether these are the positions of all rows, in their order."""
        if isinstance(positions, slice):
            return positions == slice(None)
        return len(positions) == len(self) and bool((np.diff(positions) == 1).all())

    def followed_by(self, other: Rows) -> Rows:
        """Join two tables: these rows first, then those of `other`.

        Fit parameters with one entry per row are joined too, so both tables must have the same
        ones. Clusters are kept if both have them.
        """
        if self.params.keys() != other.params.keys():
            raise ValueError(
                f"train rows come with the fit parameters {sorted(self.params)}, tune rows with "
                f"{sorted(other.params)}: to refit on both, pass tune=(X, y, {{...}}) with the "
                f"same names, or set refit=False."
            )

        params_by_row = self.params_by_row & other.params_by_row
        params = dict(self.params)
        for name in params_by_row:
            first = np.asarray(self.params[name])
            second = np.asarray(other.params[name])
            params[name] = np.concatenate([first, second])

        clusters = None
        if self.clusters is not None and other.clusters is not None:
            clusters = np.concatenate([self.clusters, other.clusters])
        return Rows(
            X=stack_features(self.X, other.X),
            y=np.concatenate([self.y, other.y]),
            clusters=clusters,
            params=params,
            params_by_row=params_by_row,
        )


def rows_of(X: Any, y: AnyArray, *, groups: Any = None, params: Mapping[str, Any]) -> Rows:
    """Make a `Rows` record of a caller's table, after a check that lengths agree.

    Parameters
    ----------
    X, y
        Features and targets, read and checked already.
    groups
        One label per row, or None. Rows with the same label belong together (a cluster).
    params
        Parameters for the `fit` of the models, by name; None stands for one that is not set. One
        with an entry for each row is cut with the rows, any other goes to every fit as it is.
        Weights must have an entry for each row.
    """
    if len(y) != X.shape[0]:
        raise ValueError(
            f"X has {counted(X.shape[0], 'row')} and y has {len(y)}: give one target per row."
        )

    set_params = {name: value for name, value in params.items() if value is not None}
    for name, value in set_params.items():
        is_weights = name.endswith("sample_weight") and np.ndim(value) > 0
        if is_weights and len(value) != len(y):
            raise ValueError(
                f"{name} must hold one weight for each of {len(y)} rows, got {len(value)}."
            )

    params_by_row = [name for name, value in set_params.items() if _has_length(value, len(y))]
    clusters = None if groups is None else _cluster_labels(groups, y)
    return Rows(
        X=X,
        y=y,
        clusters=clusters,
        params=set_params,
        params_by_row=frozenset(params_by_row),
    )


def _has_length(value: Any, n: int) -> bool:
    """Return whether a parameter is a list of n entries; texts and dicts are no lists."""
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
        return False
    return len(value) == n


def _cluster_labels(groups: Any, y: AnyArray) -> AnyArray:
    """Read ``groups=``: one label for each row."""
    if isinstance(groups, str):
        raise ValueError(
            f"groups must hold one label per row, got the text {groups!r}: pass X[{groups!r}]."
        )
    labels = as_labels(groups)
    if labels.shape != y.shape:
        raise ValueError(
            f"groups must hold one label for each of {len(y)} rows, got shape {labels.shape}."
        )
    return labels


@dataclass(frozen=True, eq=False)
class BroughtRows:
    """What a caller passes as ``tune=`` or ``calibrate=``, taken apart."""

    X: Any
    y: Any
    groups: Any
    params: Mapping[str, Any]


def read_brought_rows(role: str, brought: Any) -> BroughtRows:
    """Take apart what a caller passes for a role: (X, y) or (X, y, {fit parameters}).

    The dict may also hold "groups", which are no fit parameter. `role` ("tune" or "calibrate") is
    for messages.
    """
    if not isinstance(brought, (tuple, list)) or len(brought) not in (2, 3):
        raise ValueError(
            f"{role} must be (X, y) or (X, y, {{fit parameters}}), got {type(brought).__name__}."
        )
    options = brought[2] if len(brought) == 3 else {}
    if not isinstance(options, Mapping):
        raise ValueError(
            f"the third entry of {role} must be a dict of fit parameters, got "
            f"{type(options).__name__}."
        )

    params = dict(options)
    groups = params.pop("groups", None)
    return BroughtRows(X=brought[0], y=brought[1], groups=groups, params=params)
