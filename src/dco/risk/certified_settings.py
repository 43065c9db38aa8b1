"""Learn then test (Angelopoulos, Bates, Candès, Jordan and Lei 2025): any settings, any bounded
losses, several risks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers, as_real_numbers
from dco.foundations.display import ShownAsPrinted
from dco.foundations.notes import Note, show
from dco.foundations.ranks import Guarantee, Level, as_positive, as_rational, rational
from dco.risk.column_tests import ColumnTests, TestName, prepare_tests
from dco.risk.loss_matrix import alpha_over_bound, check_losses, is_zero_one

Correction: TypeAlias = Literal["fixed-sequence", "bonferroni", "holm"]
CORRECTIONS = ("fixed-sequence", "bonferroni", "holm")
RUNS_SHOWN = 6  # of neighbouring columns, when a result is printed


@dataclass(frozen=True, eq=False)
class CertifiedSettings(ShownAsPrinted):
    """Settings whose risks are all at most alpha, at once, with probability at least 1 - delta.

    Choose among them by any rule.

    Attributes
    ----------
    values
        The certified settings, in the order of their columns.
    indices
        Their column numbers, ascending; ``np.asarray(record)`` gives them too.
    p_values
        One for each column: of "a risk of this column exceeds alpha".
    guarantee, alpha, delta, n
        What is certified, with one alpha for each risk, and from how many rows.
    """

    values: AnyArray
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
        alphas = ", ".join(f"{alpha:g}" for alpha in self.alpha)
        risks = "risk" if len(self.alpha) == 1 else "risks"
        heading = (
            f"{len(self)} of {len(self.p_values)} settings certified: {risks} <= {alphas} with "
            f"probability >= {1 - self.delta:g} ({self.n} rows)"
        )
        if len(self) > 0:
            return f"{heading}\ncolumns {_spell_runs(self.indices)}"
        return (
            f"{heading}\np-values: {self.p_values[0]:.3g} of the first column, "
            f"{self.p_values.min():.3g} the smallest"
        )


def learn_then_test(
    losses: ArrayLike | Sequence[ArrayLike],
    thresholds: ArrayLike,
    *,
    alpha: Level | Sequence[Level],
    delta: Level,
    bound: float | Sequence[float] = 1.0,
    test: TestName = "hoeffding-bentkus",
    correction: Correction = "fixed-sequence",
    order: ArrayLike | None = None,
    where: ArrayLike | Sequence[ArrayLike | None] | None = None,
    random_state: int = 0,
) -> CertifiedSettings:
    """Certify thresholds, or other settings, whose risks are at most alpha.

    Claim (i.i.d. rows): with probability at least 1 - delta every setting returned has all its
    risks at most its alpha. Losses need not be monotone. Settings must be fixed before these rows
    are seen (for thresholds taken from their scores see `risk_controlling`). If none is certified,
    an `InfeasibleLevelWarning` says why.

    Parameters
    ----------
    losses
        Losses (n, J), one column per setting. For several risks a list of such matrices or an
        (n, J, R) array: a column's p-value is then the largest of its risks.
    thresholds
        The J settings: thresholds, or whatever else the columns stand for.
    alpha, bound
        The limit of each risk and the largest possible loss: one for all risks, or one each.
    delta
        The failure probability, for all settings at once.
    test
        A test of `risk_controlling`.
    correction
        "fixed-sequence" tests columns one after the other, each at level delta, and stops at the
        first failure. "bonferroni" tests each at delta / J, "holm" steps down from the smallest
        p-value; both need no order.
    order
        Column numbers in the order in which a fixed sequence tests them; from left to right by
        default. The order must not come from these rows: `order_of_testing` learns one from tuning
        rows.
    where
        Marks, shaped like the losses, for the rows that belong to a column's population: the risk
        is then the mean loss among those rows (selective prediction: the error among accepted
        rows).
    random_state
        The seed of the order in which "wsr" bets on rows.
    """
    # 1. Read the risks, the settings and the order in which they are tested.
    risks = _read_risks(losses, alpha, bound, where)
    exact_delta = as_rational(delta, name="delta")
    if correction not in CORRECTIONS:
        names = " or ".join(f'"{name}"' for name in CORRECTIONS)
        raise ValueError(f"correction must be {names}, got {correction!r}.")
    n_settings = risks[0].losses.shape[1]
    settings = _read_settings(thresholds, n_settings)
    sequence = _read_order(order, n_settings, correction)

    # 2. Test every setting.
    delta_each = exact_delta if correction == "fixed-sequence" else exact_delta / n_settings
    tests = _prepare_all_tests(risks, name=test, delta=delta_each, random_state=random_state)
    p_values = tests.p_values()

    # 3. Certify those that pass after the correction for many tests.
    if correction == "fixed-sequence":
        certified = _test_in_sequence(tests, sequence, exact_delta)
    elif correction == "bonferroni":
        certified = [column for column in range(n_settings) if tests.passes(column, delta_each)]
    else:
        certified = _step_down(tests, p_values, exact_delta)
    if not certified:
        show([_note_none_certified(p_values, float(delta_each), sequence, correction)])

    columns = np.array(sorted(certified), dtype=np.int64)
    return CertifiedSettings(
        values=settings[columns],
        indices=columns,
        p_values=p_values,
        guarantee="pac",
        alpha=tuple(float(risk.scaled_alpha * rational(risk.bound)) for risk in risks),
        delta=float(exact_delta),
        n=min(len(risk.losses) for risk in risks),
    )


def order_of_testing(
    losses: ArrayLike | Sequence[ArrayLike],
    *,
    alpha: Level | Sequence[Level],
    bound: float | Sequence[float] = 1.0,
    where: ArrayLike | Sequence[ArrayLike | None] | None = None,
) -> Integers:
    """Learn an order of testing on TUNING rows: the safest columns first.

    Columns are sorted by their largest ratio of mean tuning loss to alpha over the risks; ties keep
    their order, and a column without a row that counts comes last. Pass the result to
    `learn_then_test` as `order`.
    """
    risks = _read_risks(losses, alpha, bound, where)
    ratios = [_mean_over_alpha(risk) for risk in risks]
    return np.argsort(np.max(ratios, axis=0), kind="stable")


def _mean_over_alpha(risk: Risk) -> Floats:
    """Return the mean loss of each column divided by alpha; infinity where no row counts."""
    is_counted = np.ones(risk.losses.shape, dtype=bool) if risk.counted is None else risk.counted
    n_counted = is_counted.sum(axis=0)
    total_loss = risk.losses.sum(axis=0, where=is_counted)

    ratios = np.full(len(n_counted), np.inf)
    np.divide(total_loss, n_counted * float(risk.scaled_alpha), out=ratios, where=n_counted > 0)
    return ratios


# ------------------------------------------------------------------------------- multiple testing


@dataclass(frozen=True, eq=False)
class SettingTests:
    """The tests of all settings, each of them against every risk.

    A setting passes if none of its risks exceeds its alpha, by the tests in `by_risk`.
    """

    by_risk: Sequence[ColumnTests]
    n_settings: int

    def p_values(self) -> Floats:
        """Return the p-value of each setting: the largest over its risks."""
        by_setting = [
            max(tests.p_value(column) for tests in self.by_risk)
            for column in range(self.n_settings)
        ]
        return np.array(by_setting)

    def passes(self, column: int, delta: Fraction) -> bool:
        """Decide whether a setting passes at level `delta`, for every risk."""
        return all(tests.passes(column, delta) for tests in self.by_risk)


def _prepare_all_tests(
    risks: Sequence[Risk], *, name: TestName, delta: Fraction, random_state: int
) -> SettingTests:
    """Make the test of this name for each risk, to be used at level `delta`."""
    by_risk = [
        prepare_tests(
            risk.losses,
            risk.scaled_alpha,
            name=name,
            delta=float(delta),
            random_state=random_state,
            counted=risk.counted,
        )
        for risk in risks
    ]
    return SettingTests(by_risk, n_settings=risks[0].losses.shape[1])


def _test_in_sequence(tests: SettingTests, sequence: Sequence[int], delta: Fraction) -> list[int]:
    """Certify settings in the order of the sequence, each at the full level, until one fails."""
    certified: list[int] = []
    for column in sequence:
        if not tests.passes(column, delta):
            break
        certified.append(column)
    return certified


def _step_down(tests: SettingTests, p_values: Floats, delta: Fraction) -> list[int]:
    """Certify settings from the smallest p-value on, until one fails (Holm 1979).

    Each is tested at delta over the number of settings that are not certified yet.
    """
    certified: list[int] = []
    for column in np.argsort(p_values, kind="stable").tolist():
        n_untested = tests.n_settings - len(certified)
        if not tests.passes(column, delta / n_untested):
            break
        certified.append(column)
    return certified


def _note_none_certified(
    p_values: Floats, delta_each: float, sequence: Sequence[int], correction: Correction
) -> Note:
    """Say why no setting is certified, and what would help.

    `delta_each` is what a p-value must be at most. A fixed sequence may have stopped at its first
    column although other columns would pass.
    """
    best = int(np.argmin(p_values))
    if correction == "fixed-sequence" and p_values[best] <= delta_each:
        text = (
            f"No setting is certified: the first column failed (p-value "
            f"{p_values[sequence[0]]:.3g}, delta {delta_each:g}) and a fixed sequence stops there."
        )
        remedy = (
            "Safe columns go first: for losses that fall from left to right pass "
            "order=range(J)[::-1], or learn an order from tuning rows by order_of_testing()."
        )
        return Note("infeasible", text, remedy)

    text = (
        f"No setting is certified: the smallest p-value of {len(p_values)} columns is "
        f"{p_values[best]:.3g} (column {best}), and it must be at most {delta_each:.3g}."
    )
    return Note("infeasible", text, "More rows, a larger alpha or safer settings are needed.")


def _spell_runs(indices: Integers) -> str:
    """Write ascending numbers by their runs: [0, 1, 2, 5] -> "0 to 2, 5"."""
    starts_of_runs = np.flatnonzero(np.diff(indices) > 1) + 1
    runs = np.split(indices, starts_of_runs)
    texts = []
    for run in runs[:RUNS_SHOWN]:
        texts.append(f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}")
    if len(runs) > RUNS_SHOWN:
        texts.append("...")
    return ", ".join(texts)


# ------------------------------------------------------------------------------ reading arguments


@dataclass(frozen=True, eq=False)
class Risk:
    """One risk that is to be controlled, checked.

    Attributes
    ----------
    losses
        Its losses (n, J) over the bound, in [0, 1]: a column for each setting.
    scaled_alpha
        alpha / bound, the limit of their mean, as an exact rational number.
    bound
        The largest loss that is possible at all.
    counted
        Which rows count in which column (n, J); None if all do.
    """

    losses: Floats
    scaled_alpha: Fraction
    bound: float
    counted: Bools | None


def _read_risks(losses: Any, alpha: Any, bound: Any, where: Any) -> list[Risk]:
    """Check the arguments of `learn_then_test` that describe the risks, and return the risks.

    There is one risk, or several: then `losses` is a list of matrices, or an array with the risks
    as last axis, and `alpha`, `bound` and `where` are one for all risks or one for each.
    """
    matrices = _split_by_risk(losses, "losses", n_axes=2)
    n_risks = len(matrices)
    alphas = _for_each_risk(alpha, "alpha", n_axes=0, n_risks=n_risks)
    bounds = _for_each_risk(bound, "bound", n_axes=0, n_risks=n_risks)
    wheres = _for_each_risk(where, "where", n_axes=2, n_risks=n_risks)
    risks = list(map(_read_risk, matrices, alphas, bounds, wheres))

    n_columns = [risk.losses.shape[1] for risk in risks]
    if len(set(n_columns)) > 1:
        raise ValueError(f"every risk needs the same columns, got {n_columns} of them.")
    return risks


def _read_risk(losses: ArrayLike, alpha: Level, bound: float, where: ArrayLike | None) -> Risk:
    """Check the losses, alpha, bound and marks of one risk."""
    largest_loss = as_positive(bound, name="bound")
    scaled_losses = check_losses(losses, bound=largest_loss) / largest_loss
    scaled_alpha = alpha_over_bound(alpha, largest_loss)
    if where is None:
        return Risk(scaled_losses, scaled_alpha, largest_loss, counted=None)

    marks = np.asarray(where)
    if marks.shape != scaled_losses.shape:
        raise ValueError(
            f"where must have the shape of its losses, {scaled_losses.shape}, got {marks.shape}."
        )
    if not is_zero_one(marks):
        raise ValueError("where must mark rows with True or False (1 or 0).")
    return Risk(scaled_losses, scaled_alpha, largest_loss, counted=marks.astype(bool))


def _split_by_risk(values: Any, name: str, *, n_axes: int) -> list[Any]:
    """Return one entry for each risk, from a list of them or an array with the risks as last axis.

    `n_axes` is how many axes an entry has: 2 for a matrix, 0 for a number. An array with so many
    axes is for a single risk.
    """
    if isinstance(values, (list, tuple)) and values:
        if all(value is None or np.ndim(value) == n_axes for value in values):
            return list(values)
    array = as_real_numbers(values, name=name)
    if array.ndim > n_axes:
        return list(np.moveaxis(array, -1, 0))
    return [array]


def _for_each_risk(values: Any, name: str, *, n_axes: int, n_risks: int) -> list[Any]:
    """Return one value for each of several risks, from one for all of them or one for each.

    For numbers (n_axes = 0) and 2 risks, 0.1 -> [0.1, 0.1] and [0.1, 0.2] -> [0.1, 0.2]. For
    matrices (n_axes = 2) one for each is a list of them, or an array with the risks as last axis;
    None stands for "not given". `name` is the argument's, for the message.
    """
    is_one_number = n_axes == 0 and np.ndim(values) == 0
    if values is None or is_one_number:
        return [values] * n_risks

    by_risk = _split_by_risk(values, name, n_axes=n_axes)
    is_list = isinstance(values, (list, tuple))
    if len(by_risk) == 1 and not is_list:  # one matrix for all risks
        return by_risk * n_risks
    if len(by_risk) != n_risks:
        raise ValueError(
            f"{name} must be one, or one for each of the {n_risks} risks, got {len(by_risk)}."
        )
    return by_risk


def _read_settings(thresholds: ArrayLike, n_columns: int) -> AnyArray:
    """Return the settings as an array, one for each column of the losses."""
    settings = np.asarray(thresholds)
    if settings.ndim == 0 or len(settings) != n_columns:
        raise ValueError(
            f"thresholds must hold one setting for each of the {n_columns} columns, "
            f"got shape {settings.shape}."
        )
    return settings


def _read_order(order: ArrayLike | None, n_columns: int, correction: Correction) -> list[int]:
    """Return the column numbers in the order of testing: from left to right if None is given."""
    if order is None:
        return list(range(n_columns))
    if correction != "fixed-sequence":
        raise ValueError(f'order is for correction="fixed-sequence"; "{correction}" has none.')

    sequence = np.asarray(order)
    is_list_of_integers = sequence.ndim == 1 and sequence.size > 0 and sequence.dtype.kind in "iu"
    if not is_list_of_integers or not np.isin(sequence, np.arange(n_columns)).all():
        raise ValueError(
            f"order must list column numbers from 0 to {n_columns - 1}, got {order!r:.200}."
        )
    if len(np.unique(sequence)) < len(sequence):
        raise ValueError("order names a column twice.")
    return [int(column) for column in sequence]
