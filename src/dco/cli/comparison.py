"""One split of ``dco compare`` with every method, and tables from the records of all splits."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dco import Splits, assign_roles, evaluate, select_and_calibrate
from dco.cli.printing import number
from dco.foundations.arrays import AnyArray
from dco.foundations.display import counted
from dco.foundations.tables import take_features
from dco.models import copy_and_seed
from dco.paper import (
    EFCP,
    METHODS,
    Measured,
    Options,
    ResultTable,
    RoleName,
    Row,
    Task,
    group_by,
    paired_comparison,
    rows_of,
    score_on_roles,
)
from dco.sets import PredictionSets
from dco.tuning import fit_candidates


@dataclass(frozen=True)
class Family:
    """Methods with the same kind of guarantee, and the one that the others are compared with."""

    compared_with: str
    methods: tuple[str, ...]


# Methods that deploy no single candidate.
SELECTIONS: dict[Any, str] = {"modsel": "ModSel-CP", "yk-adjust": "YK-adjust"}
# The methods in the order of the tables, by their guarantee.
FAMILIES = {
    "marginal": Family(
        "dco_warmstart",
        ("dco_warmstart", "score_tuned_cp", "split_cp", "crc", "cqr", *SELECTIONS),
    ),
    "pac": Family("dco_pac", ("dco_pac", "bq", "bcp_crc", "ltt")),
    "none": Family("dco_warmstart", ("direct_tune", "efcp")),
}
# The rows that methods may look at; those that test are not among them.
ROLES_OF_METHODS: tuple[RoleName, ...] = ("tune", "calibrate", "pool")
METHODS_OF_TABLES = [method for family in FAMILIES.values() for method in family.methods]
_NAMES = {name: method.name for name, method in METHODS.items()} | SELECTIONS | {"efcp": "EFCP"}
CANDIDATE = "candidate, most often"
ADVICE = (
    "Fit a method or a level picked from this table on rows that were not in it: the table has "
    "seen every row that it was "
    "made from (picking among 16 on the whole table costs up to 4 points of coverage at n = 120)."
)
_HEADINGS = {
    "marginal": "Marginal guarantee: a new row is covered with probability at least 1 − alpha",
    "pac": "PAC guarantee: coverage is at least 1 − alpha with confidence 1 − delta over the "
    "calibration rows",
    "none": "No guarantee, for comparison only",
}
_COLUMNS = (
    "method",
    "n",
    "coverage",
    "mean size",
    "P95 size",
    "size − DCO",
    "Wilcoxon p",
    CANDIDATE,
)


@dataclass(frozen=True)
class MethodRow(Row):
    """What a method did on one split; sets that are chosen row by row have no threshold."""

    method: str
    candidate: str
    coverage: float
    mean_size: float
    p95_size: float
    calibration_rows: int
    test_rows: int
    threshold: float | None = None


@dataclass(frozen=True)
class FailedRow(Row):
    """A model that failed on one split, and why."""

    failed: str


@dataclass(frozen=True)
class SplitSizes:
    """How many rows, or which share of them, tune, calibrate and test."""

    tune: float | int
    calibrate: float | int
    test: float | int


@dataclass(frozen=True, eq=False)
class Split:
    """One random split of the table, on which every method is run.

    Models are fitted on training rows; coverage and size are measured on test rows.
    """

    X: Any
    y: AnyArray
    groups: AnyArray | None
    models: Mapping[str, Any]
    alpha: float
    delta: float
    sizes: SplitSizes
    objective: str = "mean_size"

    def __call__(self, seed: int, options: Options) -> list[Row]:
        """Return a row for each method on one split, and one for each model that failed."""
        with warnings.catch_warnings():
            # Infinite thresholds and unconverged fits show in the numbers.
            warnings.simplefilter("ignore")
            predicted = self._predict_candidates(seed)
            deployments = [
                *self._choose_on_calibration_rows(predicted),
                *self._choose_on_tuning_rows(predicted),
            ]
        by_method = {deployment.method: deployment for deployment in deployments}
        in_order = [by_method[method] for method in METHODS_OF_TABLES if method in by_method]

        rows: list[Row] = [FailedRow(reason) for reason in predicted.failed]
        rows += [_measure(deployment, predicted.targets["test"]) for deployment in in_order]
        return rows

    def deal(self, seed: int) -> Splits:
        """Deal rows to training, tuning, calibration and test."""
        roles = assign_roles(
            len(self.y),
            tune=self.sizes.tune,
            calibrate=self.sizes.calibrate,
            test=self.sizes.test,
            groups=self.groups,
            random_state=seed,
        )
        if roles.train.size == 0:
            raise ValueError(
                "No row is left for training: ask for smaller --tune-size, --calibrate-size or "
                "--test-size."
            )
        return roles

    def _predict_candidates(self, seed: int) -> PredictedCandidates:
        """Fit every model on the training rows, and predict the other rows with it."""
        roles = self.deal(seed)
        positions = {
            "tune": roles.tune,
            "calibrate": roles.calibrate,
            "pool": np.concatenate([roles.tune, roles.calibrate]),
            "test": roles.test,
        }
        classes = None if self.y.dtype.kind == "f" else np.unique(self.y)

        pairs: dict[str, dict[str, Any]] = {role: {} for role in positions}
        failed = []
        for name, model in copy_and_seed(self.models, seed=seed).items():
            try:
                fitted = fit_candidates(
                    name,
                    model,
                    take_features(self.X, roles.train),
                    self.y[roles.train],
                    classes=classes,
                )
                of_model = {
                    role: fitted.predict(take_features(self.X, rows))
                    for role, rows in positions.items()
                }
            except Exception as error:  # a model that cannot be fitted is named and left out
                failed.append(f"{name}: {type(error).__name__}: {error}")
                continue
            for role, candidates in of_model.items():
                pairs[role] |= candidates
        if not pairs["test"]:
            raise ValueError(
                f"Every model failed on the training rows of split {seed}. {'; '.join(failed)}"
            )
        targets = {role: self.y[rows] for role, rows in positions.items()}
        return PredictedCandidates(pairs=pairs, targets=targets, failed=failed)

    def _choose_on_calibration_rows(self, predicted: PredictedCandidates) -> Iterator[Deployment]:
        """Run the methods that choose and calibrate on the same rows, as unions of sets."""
        new = {name: prediction for name, (_, prediction) in predicted.pairs["test"].items()}
        for method in SELECTIONS:
            selected = select_and_calibrate(
                predicted.pairs["pool"],
                predicted.targets["pool"],
                new,
                alpha=self.alpha,
                method=method,
            )
            yield Deployment(
                method=method,
                candidate=next(iter(selected.winners)),  # the one in most sets
                sets=selected.sets,
                n_calibration=selected.n,
            )

    def _choose_on_tuning_rows(self, predicted: PredictedCandidates) -> Iterator[Deployment]:
        """Run the methods that deploy one candidate; those that suit none are left out."""
        pairs: dict[RoleName, Any] = {}
        targets: dict[RoleName, AnyArray] = {}
        for role in ROLES_OF_METHODS:
            pairs[role] = predicted.pairs[role]
            targets[role] = predicted.targets[role]
        candidates = score_on_roles(pairs, targets)
        for name in METHODS_OF_TABLES:
            if name in SELECTIONS:
                continue
            method = METHODS.get(name, EFCP)
            suited = {
                candidate: on_roles
                for candidate, on_roles in candidates.items()
                if method.suits(on_roles.tune.score)
            }
            if not suited:  # no quantile model among the candidates, say
                continue

            choice = method(
                Task(
                    candidates=suited,
                    y_tune=predicted.targets["tune"],
                    fixed=next(iter(suited)),
                    alpha=self.alpha,
                    delta=self.delta,
                    objective=self.objective,
                )
            )
            score, prediction = predicted.pairs["test"][choice.candidate]
            yield Deployment(
                method=name,
                candidate=choice.candidate,
                sets=score.sets(prediction, choice.threshold),
                n_calibration=choice.threshold.n,
                threshold=choice.threshold.value,
            )


@dataclass(frozen=True, eq=False)
class PredictedCandidates:
    """The candidates on the rows of each role, and what is known of these rows.

    `pairs` has the score and the prediction of each candidate by role, `failed` why models failed.
    """

    pairs: Mapping[str, Mapping[str, Any]]
    targets: Mapping[str, AnyArray]
    failed: list[str]


@dataclass(frozen=True, eq=False)
class Deployment:
    """The sets of the test rows by one method; sets chosen row by row have no threshold."""

    method: str
    candidate: str
    sets: PredictionSets
    n_calibration: int
    threshold: float | None = None


def _measure(deployment: Deployment, targets: AnyArray) -> MethodRow:
    """Measure coverage and sizes of a method on the test rows."""
    evaluation = evaluate(deployment.sets, targets)
    return MethodRow(
        method=deployment.method,
        candidate=deployment.candidate,
        coverage=evaluation.coverage,
        mean_size=evaluation.mean_size,
        p95_size=evaluation.overall.sizes.p95,
        calibration_rows=deployment.n_calibration,
        test_rows=evaluation.n,
        threshold=deployment.threshold,
    )


def comparison_tables(
    records: Sequence[Any], alpha: float, *, groups: str | None = None
) -> list[ResultTable]:
    """Make a table for each kind of guarantee, from the records alone.

    `groups` is the column whose equal values mark rows that belong together.
    """
    rows_of_method = group_by(rows_of(records, MethodRow), key=lambda row: row.method)
    caption = _caption(records, alpha, groups)
    tables = []
    for guarantee, family in FAMILIES.items():
        rows = tuple(
            _table_row(method, rows_of_method[method], rows_of_method[family.compared_with])
            for method in family.methods
            if method in rows_of_method
        )
        if rows:
            tables.append(ResultTable(_HEADINGS[guarantee], caption, _COLUMNS, rows, digits=4))
    return tables


def _table_row(
    method: str, rows: list[MethodRow], compared_with: list[MethodRow]
) -> tuple[Any, ...]:
    """Summarise a method over splits, with its difference in size to another if it is known."""
    sizes = [row.mean_size for row in rows]
    other_sizes = [row.mean_size for row in compared_with]
    are_finite = all(size < math.inf for size in sizes + other_sizes)
    size_difference = None
    p_value = None
    if rows is not compared_with and len(sizes) == len(other_sizes) and are_finite:
        comparison = paired_comparison(sizes, other_sizes)
        size_difference = comparison.mean_difference
        p_value = comparison.p_value

    ((most_often, _),) = Counter(row.candidate for row in rows).most_common(1)
    return (
        _NAMES[method],
        rows[0].calibration_rows,
        Measured.of(row.coverage for row in rows),
        Measured.of(sizes),
        Measured.of(row.p95_size for row in rows),
        size_difference,
        p_value,
        most_often,
    )


def _caption(records: Sequence[Any], alpha: float, groups: str | None) -> str:
    """Explain the columns of the tables, and what their p-values are about."""
    text = (
        f"Mean ± standard deviation over {counted(len(records), 'split')}, alpha = {alpha:g}; n "
        f"is the number of rows behind the threshold; size − DCO is the difference in mean size to "
        f"DCO with the same kind of guarantee (to DCO-Warmstart if there is none). Splits of one "
        f"table are not independent: the p-values are about splits of this table. ModSel-CP makes "
        f"unions of candidates' sets; the one named is in most. EFCP chooses and calibrates on the "
        f"same rows: with M candidates and independent rows it covers at least "
        f"1 − alpha − (1/3 + √(log(2M)/2))/√n. ROCP is left out: it needs a loss matrix."
    )
    if groups is not None:
        text += (
            f" Rows come in groups ({groups}), and these methods count rows as if each came alone: "
            f"the guarantees of the headings need not hold here. `dco fit --groups` has one for "
            f"groups."
        )
    return text


def failures(records: Sequence[Any]) -> list[str]:
    """Name the models that failed in some split, each reason once."""
    reasons = Counter(row.failed for row in rows_of(records, FailedRow))
    return [f"{reason} (in {count} of {len(records)} splits)" for reason, count in reasons.items()]


def round_for_reading(table: ResultTable) -> ResultTable:
    """Write the cells of a table as people read them.

    A standard deviation has two digits, and its mean has the same decimals.
    """
    rows = tuple(tuple(_cell(cell) for cell in row) for row in table.rows)
    return replace(table, rows=rows)


def _cell(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    if not isinstance(cell, Measured):
        return number(cell)
    if math.isnan(cell.sd):  # of a single split
        return number(cell.mean)
    if not (math.isfinite(cell.sd) and cell.sd > 0):
        return f"{number(cell.mean)} ± {number(cell.sd)}"
    decimals = max(0, 1 - math.floor(math.log10(cell.sd)))
    return f"{cell.mean:.{decimals}f} ± {cell.sd:.{decimals}f}"
