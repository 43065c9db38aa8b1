"""Learn then test (Angelopoulos, Bates, Candès, Jordan and Lei 2025): any settings, any bounded losses, several risks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers, real_numbers
from dco.foundations.display import ShownAsPrinted
from dco.foundations.notes import Note, show
from dco.foundations.ranks import Guarantee, Level, as_rational, rational
from dco.guarantees.rules.loss_matrix import checked_bound, checked_losses, relative_level
from dco.guarantees.rules.risk_tests import RiskTest, risk_test

Correction: TypeAlias = Literal["fixed-sequence", "bonferroni", "holm"]

_FIRST_RUNS = 6  # of columns that are printed


@dataclass(frozen=True, eq=False)
class CertifiedSettings(ShownAsPrinted):
    """The columns whose risks are all at most alpha, at once, with probability >= 1 - delta.

    `indices` are column numbers, ascending; choose among them by any rule. ``np.asarray(record)`` gives them.
    """

    indices: Integers
    p_values: Floats
    guarantee: Guarantee
    alpha: tuple[float, ...]
    delta: float
    n: int

    def __len__(self) -> int:
        return len(self.indices)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        return np.array(self.indices, dtype=dtype, copy=copy)

    def __str__(self) -> str:
        levels = ", ".join(f"{level:g}" for level in self.alpha)
        risks = f"risk <= {levels}" if len(self.alpha) == 1 else f"risks <= {levels}"
        head = f"{len(self)} of {len(self.p_values)} settings certified: {risks} with probability >= {1 - self.delta:g}"
        none = f"p-values: {self.p_values[0]:.3g} of the first column, {self.p_values.min():.3g} the smallest"
        return f"{head} ({self.n} rows)\n{f'columns {_runs(self.indices)}' if len(self) else none}"


def learn_then_test(
    losses: ArrayLike | Sequence[ArrayLike],
    *,
    alpha: Level | Sequence[Level],
    delta: Level,
    bound: float | Sequence[float] = 1.0,
    test: Literal["wsr", "hoeffding-bentkus", "binomial"] = "hoeffding-bentkus",
    correction: Correction = "fixed-sequence",
    where: ArrayLike | Sequence[ArrayLike | None] | None = None,
    seed: int = 0,
) -> CertifiedSettings:
    """The columns certified by p-values for "the risk of this column exceeds alpha", with family-wise error at most delta.

    `losses` is (n, J), one column per setting; for several risks a list of such matrices or an (n, J, R) array, with one
    alpha for all or one each: a column's p-value is then the largest. Losses need not be monotone. Settings must be fixed
    before these rows are seen (for thresholds taken from their scores see `risk_controlling`). `where`, shaped like the
    losses, marks the rows that belong to a column's population: the risk is then the mean loss among those rows (selective
    prediction: error among accepted rows).

    `correction`: "fixed-sequence" tests the columns from left to right, each at level delta, and stops at the first failure.
    The order must not come from these rows; `order_of_testing` learns one from tuning rows. "bonferroni" tests each at
    delta / J, "holm" steps down from the smallest p-value; both need no order.

    Claim (i.i.d. rows): with probability >= 1 - delta every column returned has all its risks at most its alpha. If none is
    returned, an `InfeasibleLevelWarning` says why.
    """
    scaled, levels, bounds = _scaled_risks(losses, alpha, bound)
    failure, columns = as_rational(delta, name="delta"), scaled[0].shape[1]
    if correction not in ("fixed-sequence", "bonferroni", "holm"):
        raise ValueError(f'correction must be "fixed-sequence", "bonferroni" or "holm", got {correction!r}.')
    wager = float(failure if correction == "fixed-sequence" else failure / columns)
    tests = [
        risk_test(matrix, level, name=test, wager=wager, seed=seed, counted=counted)
        for matrix, level, counted in zip(scaled, levels, _counted(where, scaled), strict=True)
    ]
    p_values = np.array([max(one.p_value(j) for one in tests) for j in range(columns)])
    chosen = _certified(tests, p_values, failure, correction)
    if not chosen:
        show([_why_none(p_values, wager, correction)])
    return CertifiedSettings(
        indices=np.array(sorted(chosen), dtype=np.int64),
        p_values=p_values,
        guarantee="pac",
        alpha=tuple(float(level * rational(b)) for level, b in zip(levels, bounds, strict=True)),
        delta=float(failure),
        n=min(len(matrix) for matrix in scaled),
    )


def order_of_testing(
    losses: ArrayLike | Sequence[ArrayLike],
    *,
    alpha: Level | Sequence[Level],
    bound: float | Sequence[float] = 1.0,
    where: ArrayLike | Sequence[ArrayLike | None] | None = None,
) -> Integers:
    """An order for fixed-sequence testing learned on TUNING rows: safest columns first.

    A column's place is its largest ratio of mean tuning loss to alpha over the risks; ties keep their order, and a column
    with no row that counts comes last. Pass ``calibration_losses[:, order]`` to `learn_then_test`; its indices are then
    places in this order.
    """
    scaled, levels, _ = _scaled_risks(losses, alpha, bound)
    ratios = []
    for matrix, level, counted in zip(scaled, levels, _counted(where, scaled), strict=True):
        weights = np.ones(matrix.shape) if counted is None else counted.astype(np.float64)
        rows = weights.sum(axis=0)
        risk = np.divide((matrix * weights).sum(axis=0), rows, out=np.full(matrix.shape[1], np.inf), where=rows > 0)
        ratios.append(risk / float(level))
    return np.argsort(np.max(ratios, axis=0), kind="stable")


def _certified(tests: list[RiskTest], p_values: Floats, failure: Fraction, correction: Correction) -> list[int]:
    def passes(column: int, level: Fraction) -> bool:
        return all(one.passes(column, level) for one in tests)

    columns = len(p_values)
    if correction == "bonferroni":
        return [j for j in range(columns) if passes(j, failure / columns)]
    order = range(columns) if correction == "fixed-sequence" else np.argsort(p_values, kind="stable").tolist()
    chosen: list[int] = []
    for place, column in enumerate(order):
        if not passes(column, failure if correction == "fixed-sequence" else failure / (columns - place)):
            break
        chosen.append(column)
    return chosen


def _why_none(p_values: Floats, level: float, correction: Correction) -> Note:
    best = int(np.argmin(p_values))
    if correction == "fixed-sequence" and p_values[best] <= level:
        why = f"the first column failed (p-value {p_values[0]:.3g}, delta {level:g}) and a fixed sequence stops there."
        remedy = (
            "Safe columns go first: losses that fall from left to right are passed as losses[:, ::-1], and "
            "order_of_testing() learns an order from tuning rows."
        )
    else:
        smallest = f"the smallest p-value of {len(p_values)} columns is {p_values[best]:.3g} (column {best})"
        why, remedy = (
            f"{smallest}, and it must be at most {level:.3g}.",
            "More rows, a larger alpha or safer settings are needed.",
        )
    return Note("infeasible", f"No setting is certified: {why}", remedy)


def _runs(indices: Integers) -> str:
    """0, 1, 2, 5 as "0 to 2, 5"."""
    runs = [(int(run[0]), int(run[-1])) for run in np.split(indices, np.flatnonzero(np.diff(indices) > 1) + 1)]
    texts = [f"{start}" if start == end else f"{start} to {end}" for start, end in runs[:_FIRST_RUNS]]
    return ", ".join(texts + ["..."] * (len(runs) > _FIRST_RUNS))


def _scaled_risks(losses: Any, alpha: Any, bound: Any) -> tuple[list[Floats], list[Fraction], list[float]]:
    """The losses of each risk over its bound, the level in the same unit, and the bound."""
    matrices = _matrices(losses)
    bounds = [checked_bound(b) for b in _one_each(bound, len(matrices), "bound")]
    levels = [relative_level(a, b) for a, b in zip(_one_each(alpha, len(matrices), "alpha"), bounds, strict=True)]
    scaled = [checked_losses(matrix, bound=b) / b for matrix, b in zip(matrices, bounds, strict=True)]
    if len({matrix.shape[1] for matrix in scaled}) > 1:
        raise ValueError(f"every risk needs the same columns, got {[matrix.shape[1] for matrix in scaled]} of them.")
    return scaled, levels, bounds


def _matrices(losses: Any) -> list[Any]:
    if isinstance(losses, (list, tuple)) and losses and np.ndim(losses[0]) == 2:
        return list(losses)
    array = real_numbers(losses, name="losses")
    return list(np.moveaxis(array, 2, 0)) if array.ndim == 3 else [array]


def _one_each(values: Any, risks: int, name: str) -> list[Any]:
    if isinstance(values, (str, bytes)) or np.ndim(values) == 0:
        return [values] * risks
    each = list(values)
    if len(each) != risks:
        raise ValueError(f"{name} must be one number or one for each of the {risks} risks, got {len(each)}.")
    return each


def _counted(where: Any, scaled: list[Floats]) -> list[Bools | None]:
    if isinstance(where, (list, tuple)) and len(where) == len(scaled) and all(w is None or np.ndim(w) == 2 for w in where):
        each: list[Any] = list(where)
    elif where is not None and np.ndim(where) == 3:
        each = list(np.moveaxis(np.asarray(where), 2, 0))
    else:
        each = [where] * len(scaled)
    return [
        None if mark is None else _marks(np.asarray(mark), matrix.shape) for mark, matrix in zip(each, scaled, strict=True)
    ]


def _marks(array: AnyArray, shape: tuple[int, ...]) -> Bools:
    if array.shape != shape:
        raise ValueError(f"where must have the shape of its losses, {shape}, got {array.shape}.")
    if not np.all((array == 0) | (array == 1)):
        raise ValueError("where must mark rows with True or False (1 or 0).")
    return array.astype(bool)
