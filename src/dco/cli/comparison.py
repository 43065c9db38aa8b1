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
    """Methods with the same kind of guarantee; sizes are compared with those of `reference`."""

    reference: str
    methods: tuple[str, ...]


# Methods that choose and calibrate on the same rows, and may use several candidates at once.
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
# The rows that methods may look at (not the test rows); "pool" is "tune" and "calibrate" together.
ROLES_OF_METHODS: tuple[RoleName, ...] = ("tune", "calibrate", "pool")
METHODS_OF_TABLES = [method for family in FAMILIES.values() for method in family.methods]
_METHODS_OF_ONE_CANDIDATE = {
    name: EFCP if name == "efcp" else METHODS[name]
    for name in METHODS_OF_TABLES
    if name not in SELECTIONS
}
_PRINTED_NAMES = {
    **{name: method.name for name, method in METHODS.items()},
    **SELECTIONS,
    "efcp": "EFCP",
}
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
    """The result of one method on one split.

    `candidate` is the one that the method deployed. A method that deploys several candidates has no
    threshold, and `candidate` is then the one that takes part in most sets.
    """

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
    """A model that could not be fitted on one split: its name and the error message."""

    failed: str


@dataclass(frozen=True)
class SplitSizes:
    """How many rows, or which share of them, tune, calibrate and test."""

    tune: float | int
    calibrate: float | int
    test: float | int


@dataclass(frozen=True, eq=False)
class Split:
    """A table to compare methods on. Calling it with a seed splits the rows and runs every method.

    Models are fitted on training rows; coverage and size are measured on test rows. `groups` has a
    value for each row: rows with equal values belong together and get the same role.
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
        """Run every method on one random split of the table, and measure it on the test rows.

        `seed` decides the split. Returns a `FailedRow` for each model that could not be fitted,
        then a `MethodRow` for each method, in the order of the tables. `options` is not used; the
        caller passes the options of an experiment to every split.
        """
        # 1. Make the test sets of each method. Warnings are about infinite thresholds, or models
        #    that did not converge; both are visible in the results.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            predicted = self._predict_candidates(seed)
            deployments = [
                *self._deploy_selections(predicted),
                *self._deploy_single_candidates(predicted),
            ]

        # 2. Measure them.
        deployment_of = {deployment.method: deployment for deployment in deployments}
        results: list[Row] = [FailedRow(reason) for reason in predicted.failed]
        for method in METHODS_OF_TABLES:
            if method in deployment_of:
                results.append(_measure(deployment_of[method], predicted.targets["test"]))
        return results

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
        """Fit every model on the training rows of a split, and predict its other rows.

        The other rows tune, calibrate or test; "pool" is tuning and calibration rows together. A
        model that fails is left out, and its error message is stored. It is an error if all fail.
        """
        roles = self.deal(seed)
        positions = {
            "tune": roles.tune,
            "calibrate": roles.calibrate,
            "pool": np.concatenate([roles.tune, roles.calibrate]),
            "test": roles.test,
        }

        candidates: dict[str, dict[str, Any]] = {role: {} for role in positions}
        failed = []
        for name, model in copy_and_seed(self.models, seed=seed).items():
            try:
                candidates_of_model = self._fit_and_predict(name, model, roles.train, positions)
            except Exception as error:  # one bad model must not stop the comparison
                failed.append(f"{name}: {type(error).__name__}: {error}")
                continue
            for role in positions:
                candidates[role] |= candidates_of_model[role]

        if not candidates["test"]:
            raise ValueError(
                f"Every model failed on the training rows of split {seed}. {'; '.join(failed)}"
            )
        targets = {role: self.y[rows] for role, rows in positions.items()}
        return PredictedCandidates(candidates, targets, failed)

    def _fit_and_predict(
        self, name: str, model: Any, train_rows: AnyArray, positions: Mapping[str, AnyArray]
    ) -> dict[str, Any]:
        """Fit a model on the training rows, and predict the rows of each role with it.

        `positions` has the rows of each role, such as "tune". A model becomes several candidates,
        one for each score that suits it. Returns for each role a score and a prediction of each
        candidate, by the name of the candidate.
        """
        is_regression = self.y.dtype.kind == "f"  # targets are floats, or labels
        fitted_model = fit_candidates(
            name,
            model,
            take_features(self.X, train_rows),
            self.y[train_rows],
            classes=None if is_regression else np.unique(self.y),
        )
        return {
            role: fitted_model.predict(take_features(self.X, rows))
            for role, rows in positions.items()
        }

    def _deploy_selections(self, predicted: PredictedCandidates) -> Iterator[Deployment]:
        """Make the test sets of the methods that choose and calibrate on the same rows.

        A candidate is a model with a score. These methods (`SELECTIONS`) may choose another
        candidate for each test row, or several, whose sets they unite.
        """
        tuning_and_calibration = "pool"  # the name of these rows together
        test_predictions = {
            name: prediction for name, (_, prediction) in predicted.candidates["test"].items()
        }
        for method in SELECTIONS:
            selected = select_and_calibrate(
                predicted.candidates[tuning_and_calibration],
                predicted.targets[tuning_and_calibration],
                test_predictions,
                alpha=self.alpha,
                method=method,
            )
            chosen_candidates = list(selected.winners)  # the one of most test rows first
            yield Deployment(
                method=method,
                candidate=chosen_candidates[0],
                sets=selected.sets,
                n_calibration=selected.n,
            )

    def _deploy_single_candidates(self, predicted: PredictedCandidates) -> Iterator[Deployment]:
        """Make the test sets of the methods that choose one candidate and calibrate it.

        A candidate is a model with a score. A method without a candidate that suits it is left out:
        CQR needs a model of quantiles, for example.
        """
        candidates: dict[RoleName, Any] = {}
        targets: dict[RoleName, AnyArray] = {}
        for role in ROLES_OF_METHODS:
            candidates[role] = predicted.candidates[role]
            targets[role] = predicted.targets[role]
        scored_candidates = score_on_roles(candidates, targets)

        for name, method in _METHODS_OF_ONE_CANDIDATE.items():
            # 1. Offer the candidates that the method can use.
            suitable = {
                candidate: scored
                for candidate, scored in scored_candidates.items()
                if method.suits(scored.tune.score)
            }
            if not suitable:
                continue
            first_candidate = next(iter(suitable))

            # 2. Let it choose one of them, and a threshold.
            task = Task(
                candidates=suitable,
                y_tune=targets["tune"],
                fixed=first_candidate,  # for the methods that choose nothing
                alpha=self.alpha,
                delta=self.delta,
                objective=self.objective,
            )
            choice = method(task)

            # 3. Make the sets of the test rows.
            score, prediction = predicted.candidates["test"][choice.candidate]
            yield Deployment(
                method=name,
                candidate=choice.candidate,
                sets=score.sets(prediction, choice.threshold),
                n_calibration=choice.threshold.n,
                threshold=choice.threshold.value,
            )


@dataclass(frozen=True, eq=False)
class PredictedCandidates:
    """What the methods of one split work on: candidates (a model with a score) by role.

    Attributes
    ----------
    candidates
        By role, then by the name of the candidate: a pair (score, prediction of the rows).
    targets
        The true values of the rows of each role.
    failed
        The models that could not be fitted, each with its error message.
    """

    candidates: Mapping[str, Mapping[str, Any]]
    targets: Mapping[str, AnyArray]
    failed: list[str]


@dataclass(frozen=True, eq=False)
class Deployment:
    """The sets that a method makes for the test rows; see `MethodRow` for the other fields."""

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
    """Make the tables of `dco compare`: one for each kind of guarantee, with a row for each method.

    Parameters
    ----------
    records
        The results of all splits, as `run_splits` returns them.
    alpha
        The share of rows whose set may miss the true value; for the caption.
    groups
        The column whose equal values mark rows that belong together, if there is one; for the
        caption.
    """
    results_of = group_by(rows_of(records, MethodRow), key=lambda row: row.method)
    caption = _caption(len(records), alpha, groups)

    tables = []
    for guarantee, family in FAMILIES.items():
        rows = []
        for method in family.methods:
            if method in results_of:
                reference_results = results_of[family.reference]
                rows.append(_table_row(method, results_of[method], reference_results))
        if rows:
            heading = _HEADINGS[guarantee]
            tables.append(ResultTable(heading, caption, _COLUMNS, tuple(rows), digits=4))
    return tables


def _table_row(
    method: str, results: list[MethodRow], reference_results: list[MethodRow]
) -> tuple[Any, ...]:
    """Summarise a method over all splits as one row of a table, in the order of `_COLUMNS`.

    `results` has one entry for each split; `reference_results` are those of the method that sizes
    are compared with. Two cells stay empty where there is nothing to compare: for the reference
    itself, for other numbers of splits, and if a mean size is infinite.
    """
    sizes = [result.mean_size for result in results]
    reference_sizes = [result.mean_size for result in reference_results]
    are_finite = all(size < math.inf for size in sizes + reference_sizes)

    size_difference = None
    p_value = None
    is_reference = results is reference_results
    if not is_reference and len(sizes) == len(reference_sizes) and are_finite:
        comparison = paired_comparison(sizes, reference_sizes)
        size_difference = comparison.mean_difference
        p_value = comparison.p_value

    n_splits_of_candidate = Counter(result.candidate for result in results)
    most_frequent_candidate = n_splits_of_candidate.most_common(1)[0][0]
    return (
        _PRINTED_NAMES[method],
        results[0].calibration_rows,
        Measured.of(result.coverage for result in results),
        Measured.of(sizes),
        Measured.of(result.p95_size for result in results),
        size_difference,
        p_value,
        most_frequent_candidate,
    )


def _caption(n_splits: int, alpha: float, groups: str | None) -> str:
    """Write the caption of the tables: columns, p-values, and what the methods cannot promise.

    ModSel-CP, EFCP and ROCP are methods of other papers, in the table or missing from it. `groups`
    is the column whose equal values mark rows that belong together, if there is one.
    """
    about_columns = (
        f"Mean ± standard deviation over {counted(n_splits, 'split')}, alpha = {alpha:g}; n is the "
        "number of rows behind the threshold; size − DCO is the difference in mean size to DCO "
        "with the same kind of guarantee (to DCO-Warmstart if there is none)."
    )
    about_p_values = (
        "Splits of one table are not independent: the p-values are about splits of this table."
    )
    about_unions = "ModSel-CP makes unions of candidates' sets; the one named is in most."
    about_weaker_guarantee = (
        "EFCP chooses and calibrates on the same rows: with M candidates and independent rows it "
        "covers at least 1 − alpha − (1/3 + √(log(2M)/2))/√n."
    )
    about_missing_method = "ROCP is left out: it needs a loss matrix."
    sentences = [
        about_columns,
        about_p_values,
        about_unions,
        about_weaker_guarantee,
        about_missing_method,
    ]

    if groups is not None:
        about_groups = (
            f"Rows come in groups ({groups}), and these methods count rows as if each came alone: "
            "the guarantees of the headings need not hold here. `dco fit --groups` has one for "
            "groups."
        )
        sentences.append(about_groups)
    return " ".join(sentences)


def failures(records: Sequence[Any]) -> list[str]:
    """List the models that failed in some split: "forest: ValueError: ... (in 3 of 50 splits)"."""
    reasons = Counter(row.failed for row in rows_of(records, FailedRow))
    return [f"{reason} (in {count} of {len(records)} splits)" for reason, count in reasons.items()]


def round_for_reading(table: ResultTable) -> ResultTable:
    """Turn the cells of a table into text that is short enough to read."""
    rows = tuple(tuple(_cell_text(cell) for cell in row) for row in table.rows)
    return replace(table, rows=rows)


def _cell_text(cell: Any) -> str:
    """Write a cell: a mean 0.90123 with standard deviation 0.01234 becomes "0.901 ± 0.012".

    The standard deviation gets two significant digits, and the mean as many decimals.
    """
    if isinstance(cell, str):
        return cell
    if not isinstance(cell, Measured):
        return number(cell)
    if math.isnan(cell.sd):  # of a single split
        return number(cell.mean)
    if not (math.isfinite(cell.sd) and cell.sd > 0):
        return f"{number(cell.mean)} ± {number(cell.sd)}"

    power_of_first_digit = math.floor(math.log10(cell.sd))  # -2 for 0.01234
    decimals = max(0, 1 - power_of_first_digit)
    return f"{cell.mean:.{decimals}f} ± {cell.sd:.{decimals}f}"
