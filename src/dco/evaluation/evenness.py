"""How evenly sets cover: by slice, in the worst slab, and how well coverage can be predicted from
x.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.foundations.display import first_few, number
from dco.rows.conditions import condition_names, rows_by_condition
from dco.rows.fingerprints import codes_of_values

_CHOOSING = 20_000  # rows that choose a slab and a tree, at most
_COLUMNS = 32  # of X that are looked at, at most
_MIXES = 32  # random directions
_BINS = 20  # of a direction; a slab holds some that lie side by side
_LEAST_SHARE, _LEAST_ROWS = 0.1, 20  # that a slab holds of those that choose it
_LARGEST = 1e30  # numbers beyond are not told apart: trees read single precision
_FEWEST = 100  # rows; with fewer nothing is said


@dataclass(frozen=True)
class Slice:
    """Coverage and size in one slice of the rows.

    `coverage_low` and `coverage_high` are exact (Clopper-Pearson), and hold for all slices at once
    with confidence 95 %.
    """

    by: str
    value: Any
    n: int
    coverage: float
    coverage_low: float
    coverage_high: float
    mean_size: float


@dataclass(frozen=True)
class Slab:
    """The worst slab a <= v'x <= b (Cauchois, Gupta and Duchi 2021) that one part of the rows
    found, on the other rows.

    The `n` rows behind `coverage` did not choose the slab, so its exact 95 % interval needs no
    correction.
    """

    where: str
    n: int
    coverage: float
    coverage_low: float
    coverage_high: float


@dataclass(frozen=True)
class ExcessRisk:
    """At least how far coverage given x lies from the level, on average over rows: E|P(covered | x)
    - (1 - alpha)|.

    A small tree, grown on one part of the rows, says where coverage is above the level. On the
    other rows, `n` of them, `value` is the mean of sign(tree(x) - (1 - alpha)) (covered - (1 -
    alpha)), which is no larger on average than the distance, whatever the tree (the excess risk ERT
    of Braun et al. 2025 for the absolute distance). Its 95 % interval comes from exact intervals of
    both parts. Near 0, or below: no tree of this size finds uneven coverage.
    """

    value: float
    low: float
    high: float
    n: int


def slices_of(named: Mapping[str, AnyArray], covered: Bools, sizes: Floats) -> tuple[Slice, ...]:
    """One row for each value of each named array, in sorted order; intervals hold for all rows of
    the table at once.
    """
    parts = [
        (by, value, rows)
        for by, values in named.items()
        for value, rows in rows_by_condition(values).items()
    ]
    found = []
    for by, value, rows in parts:
        hits = int(covered[rows].sum())
        low, high = share_interval(hits, rows.size, confidence=1 - 0.05 / len(parts))
        found.append(
            Slice(by, value, rows.size, hits / rows.size, low, high, float(sizes[rows].mean()))
        )
    return tuple(found)


def fifths_in_words(values: Floats, codes: Integers) -> AnyArray:
    """The fifth of each row as its range, "1: 0.2 to 3.5"."""
    ends = {
        code: (values[codes == code].min(), values[codes == code].max())
        for code in np.unique(codes).tolist()
    }
    names = {
        code: f"{code + 1}: {' to '.join(dict.fromkeys(map(number, pair)))}"
        for code, pair in ends.items()
    }
    return condition_names([names[code] for code in codes.tolist()])


def share_interval(hits: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """The exact (Clopper-Pearson) confidence interval for a probability, `hits` of `n` observed."""
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(betaincinv(hits, n - hits + 1, tail))
    return low, 1.0 if hits == n else float(betaincinv(hits + 1, n - hits, 1 - tail))


def conditional_coverage(
    X: Any, centres: Floats, covered: Bools, *, alpha: float
) -> tuple[Slab | None, ExcessRisk | None]:
    """The worst slab and the excess risk, by the columns of X and the prediction; None for fewer
    than 100 rows.
    """
    n = len(covered)
    if n < _FEWEST:
        return None, None
    choosing, others = np.split(np.random.default_rng(0).permutation(n), [min(n // 2, _CHOOSING)])
    columns = {**_columns(X), "the prediction": (centres, None)}
    features = np.clip(
        np.column_stack([values for values, _ in columns.values()]), -_LARGEST, _LARGEST
    )
    labels = [(name, kind) for name, (_, kind) in columns.items()]
    risk = _excess_risk(features, covered, choosing, others, level=1 - alpha)
    return _worst_slab(features, labels, covered, choosing, others), risk


def _columns(X: Any) -> dict[str, tuple[Floats, AnyArray | str | None]]:
    """The columns of a table as numbers, with what these stand for: texts become codes, dates
    seconds, gaps the median.
    """
    if hasattr(X, "columns"):
        found = {str(name): np.asarray(X[name]) for name in list(X.columns)[:_COLUMNS]}
    elif isinstance(X, np.ndarray) and X.ndim == 2:
        found = {f"column {place}": X[:, place] for place in range(min(X.shape[1], _COLUMNS))}
    else:
        return {}
    dates, made = (
        getattr(X, "attrs", {}).get("dates") or (),
        dict[str, tuple[Floats, AnyArray | str | None]](),
    )
    for name, values in found.items():
        kind: AnyArray | str | None = "date" if name in dates else None
        if values.dtype.kind in "iufb":
            column = values.astype(np.float64)
        elif values.dtype.kind == "M":
            column, kind = (
                np.where(np.isnat(values), np.nan, values.astype("M8[s]").astype(np.float64)),
                "date",
            )
        else:
            codes = codes_of_values(values, missing=True)[0]
            column, kind = codes.astype(np.float64), values[np.unique(codes, return_index=True)[1]]
        known = np.isfinite(column)
        made[name] = np.where(known, column, np.median(column[known]) if known.any() else 0.0), kind
    return made


def _where(column: tuple[str, AnyArray | str | None], values: Floats) -> str:
    """The values inside a slab along one column: their ends, or the texts themselves."""
    name, kind = column
    if isinstance(kind, np.ndarray):
        return f"{name}: {first_few([str(kind[int(code)]) for code in np.unique(values)], 3)}"
    ends = values.min(), values.max()
    low, high = (
        str(np.datetime64(int(end), "s"))[:10] if kind == "date" else number(end) for end in ends
    )
    return f"{name} from {low} to {high}" if low != high else f"{name} {low}"


def _worst_slab(
    features: Floats, columns: list[Any], covered: Bools, choosing: Integers, others: Integers
) -> Slab | None:
    """Slabs along each column and along random directions, cut at quantiles: the least coverage
    among `choosing`.
    """
    d, scale = features.shape[1], features[choosing].std(axis=0)
    mixes = np.random.default_rng([0, 1]).normal(size=(d, _MIXES if d > 1 else 0))
    directions = np.hstack([np.eye(d), mixes / np.where(scale > 0, scale, 1)[:, None]])
    along, hits = features[choosing] @ directions, covered[choosing].astype(np.float64)
    worst, at = 2.0, (0, -np.inf, np.inf)
    for place, values in enumerate(along.T):
        edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1), method="inverted_cdf"))
        last = max(len(edges) - 1, 1)
        # bin b holds (edges[b], edges[b + 1]]
        bins = np.clip(np.searchsorted(edges, values, side="left"), 1, last) - 1
        rows = np.concatenate([[0.0], np.cumsum(np.bincount(bins, minlength=last))])
        inside = np.concatenate([[0.0], np.cumsum(np.bincount(bins, hits, minlength=last))])
        counts = rows[None, :] - rows[:, None]  # bins i to j - 1
        large = counts >= max(_LEAST_SHARE * len(values), _LEAST_ROWS)
        share = np.where(large, (inside[None, :] - inside[:, None]) / np.maximum(counts, 1), 2.0)
        i, j = np.unravel_index(np.argmin(share), share.shape)
        if share[i, j] < worst:
            ends = float(edges[i]) if i else -np.inf, float(edges[j]) if j < last else np.inf
            worst, at = float(share[i, j]), (place, *ends)
    place, low, high = at
    new = features[others] @ directions[:, place]
    held = others[(new > low) & (new <= high)]
    if not held.size:
        return None
    values, found = along[:, place], int(covered[held].sum())
    where = (
        _where(columns[place], values[(values > low) & (values <= high)])
        if place < d
        else "a mix of columns"
    )
    return Slab(where, held.size, found / held.size, *share_interval(found, held.size))


def _excess_risk(
    features: Floats, covered: Bools, choosing: Integers, others: Integers, *, level: float
) -> ExcessRisk:
    from sklearn.tree import DecisionTreeRegressor

    least = max(25, len(choosing) // 20)
    tree = DecisionTreeRegressor(max_leaf_nodes=8, min_samples_leaf=least, random_state=0)
    above = tree.fit(features[choosing], covered[choosing]).predict(features[others]) >= level
    value = low = high = 0.0
    for rows, sign in ((others[above], 1.0), (others[~above], -1.0)):
        if rows.size:
            share, hits = rows.size / len(others), int(covered[rows].sum())
            ends = [
                sign * share * (end - level)
                for end in share_interval(hits, rows.size, confidence=0.975)
            ]
            value += sign * share * (hits / rows.size - level)
            low, high = low + min(ends), high + max(ends)
    return ExcessRisk(value, low, high, len(others))
