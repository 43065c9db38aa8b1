"""One split of ``dco compare`` with every method, and tables from the records of all splits."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dco import evaluate, select_and_calibrate
from dco.cli.printing import number
from dco.foundations.display import counted
from dco.models.fitting import fit_model
from dco.models.own_models import copy_and_seed
from dco.models.records import predict_record
from dco.paper import (
    EFCP,
    METHODS,
    Measured,
    ResultTable,
    Row,
    Task,
    group_by,
    paired_comparison,
    rows_of,
    score_on_roles,
)
from dco.rows.rows import Rows
from dco.rows.splits import assign_roles
from dco.tuning.candidates import learn_scores, pair_models_with_scores

# choices that deploy no single candidate
SELECTIONS: dict[Any, str] = {"modsel": "ModSel-CP", "yk-adjust": "YK-adjust"}
# The methods in the order of the tables, each beside those with the same kind of guarantee, and the
# one it is paired with.
FAMILIES = {
    "marginal": (
        "dco_warmstart",
        ("dco_warmstart", "score_tuned_cp", "split_cp", "crc", "cqr", *SELECTIONS),
    ),
    "pac": ("dco_pac", ("dco_pac", "bq", "bcp_crc", "ltt")),
    "none": ("dco_warmstart", ("direct_tune", "efcp")),
}
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


@dataclass(frozen=True, eq=False)
class Split:
    """One random split of the table: fit every model on training rows, run every method, measure on
    test rows.
    """

    X: Any
    y: Any
    groups: Any
    models: Mapping[str, Any]
    alpha: float
    delta: float
    sizes: tuple[Any, Any, Any]
    objective: str = "mean_size"

    def roles(self, seed: int) -> Any:
        """Training, tuning, calibration and test rows of one split."""
        tune, calibrate, test = self.sizes
        roles = assign_roles(
            len(self.y),
            tune=tune,
            calibrate=calibrate,
            test=test,
            groups=self.groups,
            random_state=seed,
        )
        if roles.train.size == 0:
            raise ValueError(
                "No row is left for training: ask for smaller --tune-size, "
                "--calibrate-size or --test-size."
            )
        return roles

    def __call__(self, seed: int, options: Any) -> list[Row]:
        """The record of one split: one row per method, and one per model that failed."""
        with warnings.catch_warnings():
            # infinite thresholds and unconverged fits show in the numbers
            warnings.simplefilter("ignore")
            on, targets, failed = self._candidates(self.roles(seed), seed)
            candidates = score_on_roles({role: on[role] for role in on if role != "test"}, targets)
            rows: list[Row] = [FailedRow(reason) for reason in failed]
            for name in [name for _, names in FAMILIES.values() for name in names]:
                threshold = None
                if name in SELECTIONS:
                    new = {each: prediction for each, (_, prediction) in on["test"].items()}
                    selected = select_and_calibrate(
                        on["pool"], targets["pool"], new, alpha=self.alpha, method=name
                    )
                    most, sets, n = next(iter(selected.winners)), selected.sets, selected.n
                else:
                    method = METHODS.get(name, EFCP)
                    suited = {
                        each: parts
                        for each, parts in candidates.items()
                        if method.suits(on["tune"][each][0])
                    }
                    if not suited:
                        continue  # no quantile model among the candidates
                    choice = method(
                        Task(
                            suited,
                            targets["tune"],
                            next(iter(suited)),
                            self.alpha,
                            self.delta,
                            objective=self.objective,
                        )
                    )
                    most, threshold, n = (
                        choice.candidate,
                        choice.threshold.value,
                        choice.threshold.n,
                    )
                    score, prediction = on["test"][most]
                    sets = score.sets(prediction, choice.threshold)
                found = evaluate(sets, targets["test"])
                rows.append(
                    MethodRow(
                        method=name,
                        candidate=most,
                        coverage=found.coverage,
                        mean_size=found.mean_size,
                        p95_size=found.overall.sizes.p95,
                        calibration_rows=n,
                        test_rows=found.n,
                        threshold=threshold,
                    )
                )
        return rows

    def _candidates(
        self, roles: Any, seed: int
    ) -> tuple[dict[Any, dict[str, Any]], dict[Any, Any], list[str]]:
        """Score and prediction of each candidate by role, the targets by role, and which models
        failed.
        """
        classes = None if self.y.dtype.kind == "f" else np.unique(self.y)
        train = Rows(self.X, self.y).take(roles.train)
        pool = np.concatenate([roles.tune, roles.calibrate])
        rows = {"tune": roles.tune, "calibrate": roles.calibrate, "pool": pool, "test": roles.test}
        found: dict[Any, dict[str, Any]] = {role: {} for role in rows}
        failed = []
        for name, model in copy_and_seed(self.models, seed=seed).items():
            try:
                fitted = fit_model(model, train)
                candidates = learn_scores(
                    pair_models_with_scores({name: model}, None, of_classes=classes is not None),
                    train.y,
                    support=None,
                )
                records = {
                    (role, kind): predict_record(fitted, self.X.iloc[at], kind, classes=classes)
                    for kind in dict.fromkeys(each.record_type for each in candidates)
                    for role, at in rows.items()
                }
                for role in rows:
                    found[role] |= {
                        each.name: (each.score, records[role, each.record_type])
                        for each in candidates
                    }
            except Exception as error:  # a model that cannot be fitted is named and left out
                failed.append(f"{name}: {type(error).__name__}: {error}")
        if not found["test"]:
            raise ValueError(
                f"Every model failed on the training rows of split {seed}. {'; '.join(failed)}"
            )
        return found, {role: self.y[at] for role, at in rows.items()}, failed


def comparison_tables(
    records: Sequence[Any], alpha: float, *, groups: str | None = None
) -> list[Any]:
    """Make a table for each kind of guarantee, from the records alone.

    `groups` is the column whose values stay together.
    """
    runs = group_by(rows_of(records, MethodRow), key=lambda row: row.method)
    caption = _caption(records, alpha, groups)
    tables = []
    for guarantee, (partner, methods) in FAMILIES.items():
        rows = tuple(
            _row(method, runs[method], runs[partner]) for method in methods if method in runs
        )
        if rows:
            tables.append(ResultTable(_HEADINGS[guarantee], caption, _COLUMNS, rows, digits=4))
    return tables


def _row(method: str, own: list[Any], partner: list[Any]) -> tuple[Any, ...]:
    """One method: its numbers over splits, and its difference in size to its partner, if sizes are
    finite.
    """
    sizes, others = [row.mean_size for row in own], [row.mean_size for row in partner]
    paired = None
    if (
        own is not partner
        and len(sizes) == len(others)
        and all(size < math.inf for size in sizes + others)
    ):
        paired = paired_comparison(sizes, others)
    return (
        _NAMES[method],
        own[0].calibration_rows,
        Measured.of(row.coverage for row in own),
        Measured.of(sizes),
        Measured.of(row.p95_size for row in own),
        *((None, None) if paired is None else (paired.mean_difference, paired.p_value)),
        Counter(row.candidate for row in own).most_common(1)[0][0],
    )


def _caption(records: Sequence[Any], alpha: float, groups: str | None) -> str:
    grouped = (
        f" Rows come in groups ({groups}), and these methods count rows as if each came alone: "
        f"the guarantees of the "
        "headings need not hold here. `dco fit --groups` has one for groups."
    )
    return (
        f"Mean ± standard deviation over {counted(len(records), 'split')}, alpha = {alpha:g}; n "
        f"is the number of rows "
        "behind the threshold; size − DCO is the difference in mean size to DCO with the same "
        "kind of guarantee (to "
        "DCO-Warmstart if there is none). Splits of one table are not independent: the p-values "
        "are about splits of this "
        "table. ModSel-CP makes unions of candidates' sets; the one named is in most. EFCP "
        "chooses and calibrates on the "
        "same rows: with M candidates and independent rows it covers at least 1 − alpha − (1/3 + "
        "√(log(2M)/2))/√n. ROCP is "
        "left out: it needs a loss matrix." + ("" if groups is None else grouped)
    )


def failures(records: Sequence[Any]) -> list[str]:
    """Models that failed in some split, each reason once."""
    reasons = Counter(row.failed for row in rows_of(records, FailedRow))
    return [f"{reason} (in {count} of {len(records)} splits)" for reason, count in reasons.items()]


def shown(table: Any) -> Any:
    """The table with its cells as people read them: a standard deviation in two digits, its mean to
    the same decimal.
    """
    return replace(table, rows=tuple(tuple(_cell(cell) for cell in row) for row in table.rows))


def _cell(cell: Any) -> str:
    if not isinstance(cell, Measured):
        return cell if isinstance(cell, str) else number(cell)
    if not (math.isfinite(cell.sd) and cell.sd > 0):
        return (
            number(cell.mean) if math.isnan(cell.sd) else f"{number(cell.mean)} ± {number(cell.sd)}"
        )
    decimals = max(0, 1 - math.floor(math.log10(cell.sd)))
    return f"{cell.mean:.{decimals}f} ± {cell.sd:.{decimals}f}"
