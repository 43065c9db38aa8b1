"""Learn then test (Angelopoulos, Bates, Candès, Jordan and Lei 2025): any settings, any bounded
losses, several risks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers, real_numbers
from dco.foundations.display import ShownAsPrinted
from dco.foundations.notes import Note, show
from dco.foundations.ranks import Guarantee, Level, as_positive, as_rational, rational
from dco.risk.loss_matrix import (
    RiskTest,
    TestName,
    checked_losses,
    is_zero_one,
    relative_level,
)

Correction: TypeAlias = Literal["fixed-sequence", "bonferroni", "holm"]

_FIRST_RUNS = 6  # of columns that are printed


@dataclass(frozen=True, eq=False)
class CertifiedSettings(ShownAsPrinted):
    """The columns whose risks are all at most alpha, at once, with probability >= 1 - delta.

    `indices` are column numbers, ascending; choose among them by any rule. ``np.asarray(record)``
    gives them.
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
        head = (
            f"{len(self)} of {len(self.p_values)} settings certified: {risks} with "
            f"probability >= {1 - self.delta:g}"
        )
        none = (
            f"p-values: {self.p_values[0]:.3g} of the first column, {self.p_values.min():.3g} "
            f"the smallest"
        )
        return f"{head} ({self.n} rows)\n{f'columns {_runs(self.indices)}' if len(self) else none}"


def learn_then_test(
    losses: ArrayLike | Sequence[ArrayLike],
    *,
    alpha: Level | Sequence[Level],
    delta: Level,
    bound: float | Sequence[float] = 1.0,
    test: TestName = "hoeffding-bentkus",
    correction: Correction = "fixed-sequence",
    where: ArrayLike | Sequence[ArrayLike | None] | None = None,
    seed: int = 0,
) -> CertifiedSettings:
    """The columns certified by p-values for "the risk of this column exceeds alpha", with
    family-wise error at most delta.

    `losses` is (n, J), one column per setting; for several risks a list of such matrices or an (n,
    J, R) array, with one alpha for all or one each: a column's p-value is then the largest. Losses
    need not be monotone. Settings must be fixed before these rows are seen (for thresholds taken
    from their scores see `risk_controlling`). `where`, shaped like the losses, marks the rows that
    belong to a column's population: the risk is then the mean loss among those rows (selective
    prediction: error among accepted rows).

    `correction`: "fixed-sequence" tests the columns from left to right, each at level delta, and
    stops at the first failure. The order must not come from these rows; `order_of_testing` learns
    one from tuning rows. "bonferroni" tests each at delta / J, "holm" steps down from the smallest
    p-value; both need no order. `test` is one of those of `risk_controlling`.

    Claim (i.i.d. rows): with probability >= 1 - delta every column returned has all its risks at
    most its alpha. If none is returned, an `InfeasibleLevelWarning` says why.
    """
    risks, failure = _risks(losses, alpha, bound, where), as_rational(delta, name="delta")
    columns = risks[0].losses.shape[1]
    if correction not in ("fixed-sequence", "bonferroni", "holm"):
        raise ValueError(
            f'correction must be "fixed-sequence", "bonferroni" or "holm", got {correction!r}.'
        )
    wager = float(failure if correction == "fixed-sequence" else failure / columns)
    options: Any = {"name": test, "wager": wager, "seed": seed}
    tests = [RiskTest(risk.losses, risk.level, counted=risk.counted, **options) for risk in risks]
    p_values = np.array([max(one.p_value(j) for one in tests) for j in range(columns)])
    chosen = _certified(tests, p_values, failure, correction)
    if not chosen:
        show([_why_none(p_values, wager, correction)])
    return CertifiedSettings(
        indices=np.array(sorted(chosen), dtype=np.int64),
        p_values=p_values,
        guarantee="pac",
        alpha=tuple(float(risk.level * rational(risk.bound)) for risk in risks),
        delta=float(failure),
        n=min(len(risk.losses) for risk in risks),
    )


def order_of_testing(
    losses: ArrayLike | Sequence[ArrayLike],
    *,
    alpha: Level | Sequence[Level],
    bound: float | Sequence[float] = 1.0,
    where: ArrayLike | Sequence[ArrayLike | None] | None = None,
) -> Integers:
    """An order for fixed-sequence testing learned on TUNING rows: safest columns first.

    A column's place is its largest ratio of mean tuning loss to alpha over the risks; ties keep
    their order, and a column with no row that counts comes last. Pass ``calibration_losses[:,
    order]`` to `learn_then_test`; its indices are then places in this order.
    """
    ratios = []
    for own, level, _, counted in _risks(losses, alpha, bound, where):
        rows = np.full(own.shape[1], len(own)) if counted is None else counted.sum(axis=0)
        lost = own.sum(axis=0, where=True if counted is None else counted)
        ratios.append(
            np.divide(lost, rows * float(level), out=np.full(own.shape[1], np.inf), where=rows > 0)
        )
    return np.argsort(np.max(ratios, axis=0), kind="stable")


def _certified(
    tests: list[RiskTest], p_values: Floats, failure: Fraction, correction: Correction
) -> list[int]:
    def passes(column: int, level: Fraction) -> bool:
        return all(one.passes(column, level) for one in tests)

    columns = len(p_values)
    if correction == "bonferroni":
        return [j for j in range(columns) if passes(j, failure / columns)]
    order = (
        range(columns)
        if correction == "fixed-sequence"
        else np.argsort(p_values, kind="stable").tolist()
    )
    chosen: list[int] = []
    for place, column in enumerate(order):
        if not passes(
            column, failure if correction == "fixed-sequence" else failure / (columns - place)
        ):
            break
        chosen.append(column)
    return chosen


def _why_none(p_values: Floats, level: float, correction: Correction) -> Note:
    best = int(np.argmin(p_values))
    why = (
        f"the smallest p-value of {len(p_values)} columns is {p_values[best]:.3g} (column "
        f"{best}), and it must be at most"
    )
    why, remedy = f"{why} {level:.3g}.", "More rows, a larger alpha or safer settings are needed."
    if correction == "fixed-sequence" and p_values[best] <= level:
        why = (
            f"the first column failed (p-value {p_values[0]:.3g}, delta {level:g}) and a fixed "
            f"sequence stops there."
        )
        remedy = (
            "Safe columns go first: losses that fall from left to right are passed as losses[:, "
            "::-1], and "
            "order_of_testing() learns an order from tuning rows."
        )
    return Note("infeasible", f"No setting is certified: {why}", remedy)


def _runs(indices: Integers) -> str:
    """0, 1, 2, 5 as "0 to 2, 5"."""
    runs = [
        (int(run[0]), int(run[-1]))
        for run in np.split(indices, np.flatnonzero(np.diff(indices) > 1) + 1)
    ]
    texts = [
        f"{start}" if start == end else f"{start} to {end}" for start, end in runs[:_FIRST_RUNS]
    ]
    return ", ".join(texts + ["..."] * (len(runs) > _FIRST_RUNS))


class _Risk(NamedTuple):
    """Losses over their bound, alpha in the same unit, the bound, and the rows that count."""

    losses: Floats
    level: Fraction
    bound: float
    counted: Bools | None


def _risks(losses: Any, alpha: Any, bound: Any, where: Any) -> list[_Risk]:
    matrices, risks = _one_each(losses, "losses", 2), list[_Risk]()
    others = [
        _one_each(alpha, "alpha", 0, len(matrices)),
        _one_each(bound, "bound", 0, len(matrices)),
    ]
    for matrix, level, most, marks in zip(
        matrices, *others, _one_each(where, "where", 2, len(matrices)), strict=True
    ):
        scale = as_positive(most, name="bound")
        scaled, counted = (
            checked_losses(matrix, bound=scale) / scale,
            None if marks is None else np.asarray(marks),
        )
        if counted is not None and counted.shape != scaled.shape:
            raise ValueError(
                f"where must have the shape of its losses, {scaled.shape}, got {counted.shape}."
            )
        if counted is not None and not is_zero_one(counted):
            raise ValueError("where must mark rows with True or False (1 or 0).")
        risks.append(
            _Risk(
                scaled,
                relative_level(level, scale),
                scale,
                None if counted is None else counted.astype(bool),
            )
        )
    if len({risk.losses.shape[1] for risk in risks}) > 1:
        raise ValueError(
            f"every risk needs the same columns, got "
            f"{[risk.losses.shape[1] for risk in risks]} of them."
        )
    return risks


def _one_each(values: Any, name: str, axes: int, risks: int | None = None) -> list[Any]:
    """What each risk has, with so many axes: a list, an array whose last axis has the risks, or the
    same for all.
    """
    if (
        isinstance(values, (list, tuple))
        and values
        and all(one is None or np.ndim(one) == axes for one in values)
    ):
        each = list(values)
    elif values is None or (axes == 0 and np.ndim(values) == 0):
        each = [values] * (risks or 1)
    else:
        array = real_numbers(values, name=name)
        each = list(np.moveaxis(array, -1, 0)) if array.ndim > axes else [array] * (risks or 1)
    if risks is not None and len(each) != risks:
        raise ValueError(
            f"{name} must be one, or one for each of the {risks} risks, got {len(each)}."
        )
    return each
