"""The work of ``dco fit``: read a table, set rows aside, fit, and evaluate on those rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dco
from dco.cli.option_records import AskedColumns, Promise, Work
from dco.cli.options import check_names
from dco.cli.tables.fitted import KnownRows, StoredTable
from dco.cli.tables.layout import Layout, need_column
from dco.cli.tables.rows import name_rows, read_groups
from dco.cli.training import TrainingTable, read_training_table
from dco.foundations.arrays import Integers
from dco.foundations.display import counted
from dco.foundations.parallel import on_cluster
from dco.scores import short_names

_FEWEST_ROWS = 3  # one each to train, tune and calibrate


@dataclass(frozen=True)
class FitOrder:
    """What the options of `dco fit` ask for."""

    data: Path
    columns: AskedColumns
    promise: Promise
    models: list[str] | None
    scores: list[str] | None
    objective: str | None
    support: tuple[float, float] | None
    by: str | None  # evaluate by this column, on the rows set aside
    tune_size: int | float | None
    calibrate_size: int | float | None
    tune_folds: int | None
    test_size: int | float
    sample_rows: int | None
    seed: int
    work: Work


@dataclass(frozen=True, eq=False)
class SetAside:
    """The rows that were set aside, and how the model did on them."""

    rows: KnownRows
    evaluation: dco.Evaluation


@dataclass(frozen=True, eq=False)
class FittedTable:
    """A fitted model, which task was found and why, and how each column is read."""

    model: Any
    reason: str
    layout: Layout
    set_aside: SetAside | None


@dataclass(frozen=True, eq=False)
class _Parts:
    """Which rows are fitted, and which are set aside to evaluate on."""

    fitted: Integers
    test: Integers


def fit_table(order: FitOrder) -> FittedTable:
    """Read a table, set rows aside, fit on the others, and evaluate on those set aside."""
    # 1. Read the table, and decide what each column is for.
    table = read_training_table(
        order.data, order.columns, sample_rows=order.sample_rows, seed=order.seed
    )
    need_column(table.table.names, order.by, path=order.data, option="--by")
    estimator = _make_estimator(order, table.layout)

    # 2. Set rows aside before anything is fitted.
    parts = _set_rows_aside(table, order)

    # 3. Fit on the others.
    X = table.X.iloc[parts.fitted]
    groups = None if table.groups is None else table.groups[parts.fitted]
    with on_cluster(order.work.scheduler):
        estimator.fit(X.reset_index(drop=True), table.y[parts.fitted], groups=groups)

    # 4. Let the model remember its table.
    layout = table.layout.with_categories(X)
    fitted_rows = table.known_positions()[parts.fitted]
    StoredTable(layout, table.n_known_rows(), fitted_rows).attach_to(estimator)

    # 5. Evaluate on the rows set aside.
    set_aside = None
    if parts.test.size:
        set_aside = _evaluate_rows(estimator, table, parts.test, order.by)
    return FittedTable(estimator, _explain(table, order), layout, set_aside)


def _make_estimator(order: FitOrder, layout: Layout) -> Any:
    """Make the estimator that the options ask for."""
    is_classification = layout.task == "classification"
    check_names(order.scores, list(short_names(classes=is_classification)), option="--scores")
    settings: dict[str, Any] = {
        "models": order.models,
        "scores": order.scores,
        "alpha": order.promise.alpha,
        "guarantee": order.promise.guarantee,
        "delta": order.promise.delta,
        "tune_size": order.tune_size,
        "calibrate_size": order.calibrate_size,
        "tune_folds": order.tune_folds,
        "objective": _choose_objective(order, layout),
        "condition_on": _choose_condition(layout),
        "n_jobs": order.work.jobs,
        "random_state": order.seed,
    }
    if not is_classification:
        return dco.DecoupledRegressor(support=order.support, **settings)
    if order.support is not None:
        raise ValueError("--range is for numbers, and the target is labels here: leave it out.")
    return dco.DecoupledClassifier(**settings)


def _choose_objective(order: FitOrder, layout: Layout) -> Any:
    """Look at the values of the --by column, too, if candidates are to be even."""
    is_even_by_default = order.objective is None and layout.task == "regression"
    is_even = order.objective == "even" or is_even_by_default
    if is_even and order.by in layout.features:
        return dco.objectives.Even(by=(order.by,))
    return order.objective


def _choose_condition(layout: Layout) -> str | list[str] | None:
    """Name the condition as the estimator takes it: the target is the label."""
    if len(layout.conditions) > 1:
        return list(layout.conditions)
    if layout.conditions == (layout.target,):
        return "label"
    return layout.conditions[0] if layout.conditions else None


def _set_rows_aside(table: TrainingTable, order: FitOrder) -> _Parts:
    """Draw the rows to evaluate on; not by the seed that deals the other roles."""
    seed = int(np.random.SeedSequence([order.seed, 2]).generate_state(1)[0])
    n_rows = len(table.y)
    splits = dco.assign_roles(
        n_rows, tune=0, calibrate=0, test=order.test_size, groups=table.groups, random_state=seed
    )
    parts = _Parts(fitted=np.sort(splits.train), test=np.sort(splits.test))
    if parts.test.size and parts.fitted.size < _FEWEST_ROWS:
        raise ValueError(
            f"--test-size {order.test_size} of {counted(n_rows, 'row')} leaves "
            f"{parts.fitted.size} to fit on; ask for less."
        )
    return parts


def _evaluate_rows(
    estimator: Any, table: TrainingTable, rows: Integers, by: str | None
) -> SetAside:
    """Evaluate on the rows set aside.

    If `by` is a condition, the estimator takes the values that have thresholds by itself.
    """
    layout = table.layout
    cells = table.table.take(rows)
    other_by = None if by in layout.conditions else by
    known_rows = KnownRows(
        X=table.X.iloc[rows].reset_index(drop=True),
        y=table.y[rows],
        by=None if other_by is None else read_groups(cells, other_by),
        by_name=other_by,
        names=None if layout.key is None else name_rows(cells, layout.key),
        target=layout.target,
    )
    evaluation = estimator.evaluate(known_rows.X, known_rows.y, by=known_rows.by_with_name())
    return SetAside(known_rows, evaluation)


def _explain(table: TrainingTable, order: FitOrder) -> str:
    """Say which task was found and why, and that the rows are a sample if they are."""
    if order.sample_rows is None:
        return table.reason
    return (
        f"{table.reason} The fit took {len(table.y):,} of {table.n_rows:,} rows of {order.data}, "
        "drawn at random."
    )
