"""The work of ``dco fit``: read a table, fit on some rows, and evaluate on the test rows."""

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
from dco.cli.tables.rows import name_rows, read_as_text
from dco.cli.training import TrainingTable, derive_seed, read_training_table
from dco.foundations.arrays import Integers
from dco.foundations.display import counted
from dco.foundations.parallel import on_cluster
from dco.scores import short_names

_FEWEST_ROWS = 3  # one each to train, tune and calibrate
_TEST_STREAM = 2  # differs from the number of every other draw that --seed decides


@dataclass(frozen=True)
class FitOrder:
    """What the options of `dco fit` ask for."""

    data: Path
    columns: AskedColumns
    promise: Promise
    models: list[str] | None
    scores: list[str] | None
    effort: str | None
    objective: str | None
    support: tuple[float, float] | None
    by: str | None  # evaluate by this column, on the test rows
    tune_size: int | float | None
    calibrate_size: int | float | None
    tune_folds: int | None
    test_size: int | float
    sample_rows: int | None
    seed: int
    work: Work


@dataclass(frozen=True, eq=False)
class EvaluatedRows:
    """The test rows, which took no part in the fit, and the evaluation of the model on them."""

    rows: KnownRows
    evaluation: dco.Evaluation


@dataclass(frozen=True, eq=False)
class FittedTable:
    """A model that was fitted on a table; `test` is None if --test-size asks for no test rows."""

    model: Any
    reason: str  # why the task is a classification or a regression
    layout: Layout
    test: EvaluatedRows | None


@dataclass(frozen=True, eq=False)
class _RowPositions:
    """The positions of the rows to fit on and of the test rows, ascending."""

    fitted: Integers
    test: Integers


def fit_table(order: FitOrder) -> FittedTable:
    """Read a table, fit on some of its rows, and evaluate on the others (the test rows)."""
    # 1. Read the table, and decide what each column is for.
    table = read_training_table(
        order.data, order.columns, sample_rows=order.sample_rows, seed=order.seed
    )
    need_column(table.table.names, order.by, path=order.data, option="--by")
    estimator = _make_estimator(order, table.layout)

    # 2. Choose the test rows before anything is fitted.
    rows = _draw_test_rows(table, order)

    # 3. Fit on the others.
    X = table.X.iloc[rows.fitted]
    groups = None if table.groups is None else table.groups[rows.fitted]
    with on_cluster(order.work.scheduler):
        estimator.fit(X.reset_index(drop=True), table.y[rows.fitted], groups=groups)

    # 4. Store in the model how its table is read, and where its rows were.
    layout = table.layout.with_categories(X)
    fitted_rows = table.known_positions()[rows.fitted]
    StoredTable(layout, table.n_known_rows(), fitted_rows).attach_to(estimator)

    # 5. Evaluate on the test rows.
    test = None
    if rows.test.size:
        test = _evaluate_rows(estimator, table, rows.test, order.by)
    return FittedTable(estimator, _explain(table, order), layout, test)


def _make_estimator(order: FitOrder, layout: Layout) -> Any:
    """Make the unfitted estimator that the options of `dco fit` ask for.

    `layout` says whether the target is labels or numbers. An option that is for the other task is
    an error.
    """
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
        effort = order.effort or "usual"
        return dco.DecoupledRegressor(effort=effort, support=order.support, **settings)
    if order.effort is not None:
        raise ValueError("--effort is for numbers, and the target is labels here: leave it out.")
    if order.support is not None:
        raise ValueError("--range is for numbers, and the target is labels here: leave it out.")
    return dco.DecoupledClassifier(**settings)


def _choose_objective(order: FitOrder, layout: Layout) -> Any:
    """Return the objective of tuning, by name or as an object; None is that of the estimator.

    The objective "even" wants coverage to be even over slices of the rows. The values of a --by
    column that is a feature are slices, too.
    """
    is_even_by_default = order.objective is None and layout.task == "regression"
    is_even = order.objective == "even" or is_even_by_default
    if is_even and order.by in layout.features:
        return dco.objectives.Even(by=(order.by,))
    return order.objective


def _choose_condition(layout: Layout) -> str | list[str] | None:
    """Return the condition as `condition_on=` takes it: the target is called "label" there."""
    if len(layout.conditions) > 1:
        return list(layout.conditions)
    if layout.conditions == (layout.target,):
        return "label"
    return layout.conditions[0] if layout.conditions else None


def _draw_test_rows(table: TrainingTable, order: FitOrder) -> _RowPositions:
    """Divide the rows of a table at random: rows to fit on, and test rows to evaluate on.

    Rows that belong together (the same value in the column `--groups`) stay together.
    """
    n_rows = len(table.y)
    splits = dco.assign_roles(
        n_rows,
        tune=0,
        calibrate=0,
        test=order.test_size,
        groups=table.groups,
        random_state=derive_seed(order.seed, _TEST_STREAM),
    )
    rows = _RowPositions(fitted=np.sort(splits.train), test=np.sort(splits.test))
    if rows.test.size and rows.fitted.size < _FEWEST_ROWS:
        raise ValueError(
            f"--test-size {order.test_size} of {counted(n_rows, 'row')} leaves "
            f"{rows.fitted.size} to fit on; ask for less."
        )
    return rows


def _evaluate_rows(
    estimator: Any, table: TrainingTable, rows: Integers, by: str | None
) -> EvaluatedRows:
    """Evaluate a fitted estimator on some rows of the table, by their positions.

    `by` is a column whose values slice the rows: each slice gets an evaluation of its own. The
    conditions of the model (columns whose values have thresholds of their own) are evaluated
    anyway, without `by`.
    """
    layout = table.layout
    table_rows = table.table.take(rows)
    slice_column = None if by in layout.conditions else by
    known_rows = KnownRows(
        X=table.X.iloc[rows].reset_index(drop=True),
        y=table.y[rows],
        by=None if slice_column is None else read_as_text(table_rows, slice_column),
        by_name=slice_column,
        names=None if layout.key is None else name_rows(table_rows, layout.key),
        target=layout.target,
    )
    evaluation = estimator.evaluate(known_rows.X, known_rows.y, by=known_rows.by_with_name())
    return EvaluatedRows(known_rows, evaluation)


def _explain(table: TrainingTable, order: FitOrder) -> str:
    """Say why the target is a quantity or labels, and how many rows --sample-rows drew."""
    if order.sample_rows is None:
        return table.reason
    return (
        f"{table.reason} The fit took {len(table.y):,} of {table.n_rows:,} rows of {order.data}, "
        "drawn at random."
    )
