"""The experiment of ``dco compare``: every method on one random split, and tables from the records of all splits."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dco.cli.printing import number
from dco.evaluation.evaluate import evaluate, paired_comparison
from dco.foundations.display import counted
from dco.reproduction.experiment import Experiment, Options
from dco.reproduction.methods import METHODS, evaluated_roles
from dco.reproduction.methods import Rows as Given
from dco.reproduction.tables import Measured, ResultTable
from dco.rows.roles import assign_roles
from dco.rows.rows import Rows
from dco.tuning.selection import expand, fit_model, predicted

# The methods in the order of the tables, each beside those with the same kind of guarantee, and the one it is paired with.
FAMILIES = {
    "marginal": ("dco_warmstart", ("dco_warmstart", "score_tuned_cp", "split_cp", "crc", "cqr")),
    "pac": ("dco_pac", ("dco_pac", "bq", "bcp_crc", "ltt")),
    "none": ("dco_warmstart", ("direct_tune",)),
}
CANDIDATE = "candidate, most often"
_HEADINGS = {
    "marginal": "Marginal guarantee: a new row is covered with probability at least 1 − alpha",
    "pac": "PAC guarantee: coverage is at least 1 − alpha with confidence 1 − delta over the calibration rows",
    "none": "No guarantee, for comparison only",
}
_COLUMNS = ("method", "n", "coverage", "mean size", "P95 size", "size − DCO", "Wilcoxon p", CANDIDATE)


@dataclass(frozen=True, eq=False)
class Split:
    """One random split of the table: fit every model on training rows, run every method, measure on test rows."""

    X: Any
    y: Any
    groups: Any
    models: Mapping[str, Any]
    alpha: float
    delta: float
    sizes: tuple[Any, Any, Any]

    def roles(self, seed: int) -> Any:
        """Training, tuning, calibration and test rows of one split."""
        tune, calibrate, test = self.sizes
        roles = assign_roles(len(self.y), tune=tune, calibrate=calibrate, test=test, groups=self.groups, seed=seed)
        if roles.train.size == 0:
            raise ValueError("No row is left for training: ask for smaller --tune-size, --calibrate-size or --test-size.")
        return roles

    def __call__(self, seed: int, options: Any) -> list[dict[str, Any]]:
        """The record of one split: one row per method, and one per model that failed."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # infinite thresholds and unconverged fits show in the numbers
            on, targets, failed = self._candidates(self.roles(seed), seed)
            candidates = evaluated_roles({role: on[role] for role in on if role != "test"}, targets)
            rows: list[dict[str, Any]] = [{"method": None, "failed": reason} for reason in failed]
            for name in [name for _, names in FAMILIES.values() for name in names]:
                method = METHODS[name]
                suited = {each: parts for each, parts in candidates.items() if method.suits(on["tune"][each][0])}
                if not suited:
                    continue  # no quantile model among the candidates
                choice = method(Given(suited, next(iter(suited)), self.alpha, self.delta))
                score, prediction = on["test"][choice.candidate]
                result = evaluate(score.sets(prediction, choice.threshold), targets["test"])
                rows.append(
                    {
                        "method": name,
                        "candidate": choice.candidate,
                        "coverage": result.coverage,
                        "mean_size": result.mean_size,
                        "p95_size": result.p95_size,
                        "threshold": choice.threshold.value,
                        "calibration_rows": choice.threshold.n,
                        "test_rows": result.n,
                    }
                )
        return rows

    def _candidates(self, roles: Any, seed: int) -> tuple[dict[Any, dict[str, Any]], dict[Any, Any], list[str]]:
        """Score and prediction of each candidate by role, the targets by role, and which models failed."""
        classes = None if self.y.dtype.kind == "f" else np.unique(self.y)
        train = Rows(self.X, self.y).take(roles.train)
        pool = np.concatenate([roles.tune, roles.calibrate])
        rows = {"tune": roles.tune, "calibrate": roles.calibrate, "pool": pool, "test": roles.test}
        found: dict[Any, dict[str, Any]] = {role: {} for role in rows}
        failed = []
        for place, (name, model) in enumerate(self.models.items()):
            try:
                fitted = fit_model(_seeded(model, seed, place), train)
                candidates = expand({name: model}, None)
                records = {
                    (role, kind): predicted(fitted, self.X.iloc[at], kind, uniforms=None, classes=classes)
                    for kind in dict.fromkeys(each.kind for each in candidates)
                    for role, at in rows.items()
                }
                for role in rows:
                    found[role] |= {each.name: (each.score, records[role, each.kind]) for each in candidates}
            except Exception as error:  # a model that cannot be fitted is named and left out
                failed.append(f"{name}: {type(error).__name__}: {error}")
        if not found["test"]:
            raise ValueError(f"Every model failed on the training rows of split {seed}. {'; '.join(failed)}")
        return found, {role: self.y[at] for role, at in rows.items()}, failed


def _seeded(model: Any, seed: int, place: int) -> Any:
    from sklearn.base import clone

    state = int(np.random.SeedSequence([seed, place]).generate_state(1)[0]) % 2**31
    free = [name for name, value in model.get_params().items() if name.endswith("random_state") and value is None]
    return clone(model).set_params(**dict.fromkeys(free, state))


def as_experiment(split: Split, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """The comparison as an experiment, so that splits are run, kept and resumed like those of the paper."""

    @dataclass(frozen=True)
    class Settings(Options):
        def settings(self) -> dict[str, Any]:
            return dict(settings)

    experiment = Experiment(
        name="compare",
        summary="The methods of the paper on a table.",
        needs="a table",
        minutes=0,
        tables=lambda records, options: comparison_tables(records, split.alpha, groups=settings["groups"]),
        run_split=split,
    )
    return experiment, Settings((split.alpha,))


def comparison_tables(records: Sequence[Any], alpha: float, *, groups: str | None = None) -> list[Any]:
    """One table per kind of guarantee, from the records alone; `groups` is the column whose values stay together."""
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for row in (row for record in records for row in record.rows if row["method"] is not None):
        runs.setdefault(row["method"], []).append(row)
    caption = _caption(records, alpha, groups)
    tables = []
    for guarantee, (partner, methods) in FAMILIES.items():
        rows = [_row(method, runs[method], runs[partner]) for method in methods if method in runs]
        if rows:
            tables.append(ResultTable(_HEADINGS[guarantee], caption, _COLUMNS, tuple(rows), digits=4))
    return tables


def _row(method: str, own: list[Mapping[str, Any]], partner: list[Mapping[str, Any]]) -> tuple[Any, ...]:
    """One method: its numbers over splits, and its difference in size to its partner, if sizes are finite."""
    sizes, others = ([float(row["mean_size"]) for row in runs] for runs in (own, partner))
    difference: Any = None
    p_value: Any = None
    if own is not partner and len(sizes) == len(others) and all(size < math.inf for size in sizes + others):
        paired = paired_comparison(sizes, others)
        difference, p_value = paired.mean_difference, paired.p_value
    return (
        METHODS[method].name,
        own[0]["calibration_rows"],
        Measured.of(row["coverage"] for row in own),
        Measured.of(sizes),
        Measured.of(float(row["p95_size"]) for row in own),
        difference,
        p_value,
        Counter(row["candidate"] for row in own).most_common(1)[0][0],
    )


def _caption(records: Sequence[Any], alpha: float, groups: str | None) -> str:
    grouped = (
        f" Rows come in groups ({groups}), and these methods count rows as if each came alone: the guarantees of the "
        "headings need not hold here. `dco fit --groups` has one for groups."
    )
    return (
        f"Mean ± standard deviation over {counted(len(records), 'split')}, alpha = {alpha:g}; n is the number of rows "
        "behind the threshold; size − DCO is the difference in mean size to DCO with the same kind of guarantee (to "
        "DCO-Warmstart if there is none). Splits of one table are not independent: the p-values are about splits of this "
        "table. ROCP is left out: it needs a loss matrix." + ("" if groups is None else grouped)
    )


def failures(records: Sequence[Any]) -> list[str]:
    """Models that failed in some split, each reason once."""
    reasons = Counter(row["failed"] for record in records for row in record.rows if row["method"] is None)
    return [f"{reason} (in {count} of {len(records)} splits)" for reason, count in reasons.items()]


def shown(table: Any) -> Any:
    """The table with its cells as people read them: a standard deviation in two digits, its mean to the same decimal."""
    return replace(table, rows=tuple(tuple(_cell(cell) for cell in row) for row in table.rows))


def _cell(cell: Any) -> str:
    if not isinstance(cell, Measured):
        return cell if isinstance(cell, str) else number(cell)
    if not (math.isfinite(cell.sd) and cell.sd > 0):
        return number(cell.mean) if math.isnan(cell.sd) else f"{number(cell.mean)} ± {number(cell.sd)}"
    decimals = max(0, 1 - math.floor(math.log10(cell.sd)))
    return f"{cell.mean:.{decimals}f} ± {cell.sd:.{decimals}f}"
