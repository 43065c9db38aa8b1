"""The work of ``dco compare``: every method on repeated random splits, and tables from the records
of the splits.
"""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dco.cli.options import asked_columns, chosen_models
from dco.cli.outputs import UNFINISHED, check_apart, check_folder, continues
from dco.cli.printing import number, progress
from dco.cli.sets_files import write_tables
from dco.cli.tables.files import table_format
from dco.cli.training import read_training_table
from dco.evaluation.evaluate import evaluate
from dco.foundations.display import counted
from dco.foundations.files import (
    Written,
    plain,
    take_places,
    write_whole,
    written_beside,
    written_together,
)
from dco.foundations.fingerprints import role_fingerprint, row_fingerprints
from dco.models.fitting import fit_model
from dco.models.own_models import copy_and_seed
from dco.models.records import predict_record
from dco.paper.experiment import Experiment, Options, column, rows_by
from dco.paper.methods import (
    METHODS,
    SELECTIONS,
    TABLE_ROWS,
    Given,
    evaluated_roles,
    select_sets,
)
from dco.paper.paired import paired_comparison
from dco.paper.records import run_splits
from dco.paper.tables import Measured, ResultTable
from dco.rows.rows import Rows
from dco.rows.splits import assign_roles
from dco.tuning.candidates import learn_scores, pair_models_with_scores
from dco.tuning.defaults import Maker, columns_of

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
# what ModSel-CP repairs: the same choice, uncorrected
EFCP = TABLE_ROWS["EFCP (tuned and calibrated on the pool)"]
CANDIDATE = "candidate, most often"
ADVICE = (
    "Fit a method or a level picked from this table on rows that were not in it: the table has "
    "seen every row that it was "
    "made from (picking among 16 on the whole table costs up to 4 points of coverage at n = 120)."
)
_WRITTEN = (
    "records.jsonl",
    "held-out.csv",
    "held-out.parquet",
    "held-out.feather",
    "tables.json",
    "tables.md",
)
_SETTINGS = "settings.json"
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


@dataclass(frozen=True, eq=False)
class Comparison:
    """Tables by kind of guarantee, and what else there is to say."""

    tables: list[Any]
    why: str
    failed: list[str]
    held_out: Path | None


@dataclass(frozen=True)
class _Settings(Options):
    """What all records of one comparison have in common."""

    given: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        return dict(self.given)


def run_comparison(data: Path, o: Mapping[str, Any], *, quiet: bool) -> Comparison:
    """Read, hold rows out, run the splits that are not on record, make the tables."""
    out, seed, groups = o["out"], o["seed"], o["groups"]
    _check_input_is_kept(data, out)
    split, settings, held_out, why = _order(data, o)
    split.roles(seed)  # impossible sizes are refused before anything is written
    work = _begin(out, settings, resume=o["resume"], force=o["force"])
    experiment = Experiment(  # so that splits are run, kept and resumed like those of the paper
        "compare",
        "The methods of the paper on a table.",
        "a table",
        0,
        tables=lambda records, options: comparison_tables(records, split.alpha, groups=groups),
        run_split=split,
    )
    options = _Settings((split.alpha,), given=settings)
    with progress("Splits", o["splits"], quiet=quiet) as reached:
        records = run_splits(  # those that are on disk already are not run again
            experiment,
            work / "records.jsonl",
            seeds=range(seed, seed + o["splits"]),
            options=options,
            jobs=o["jobs"],
            scheduler=o["scheduler"],
            progress=lambda done, total, seconds_left: reached(done),
        )
    tables, path = experiment.tables(records, options), None
    with written_together():
        if held_out.num_rows:
            path = out / _write_held_out(held_out, data, work)
        _write_tables(tables, work)
    if work != out:
        _replace_results(work, out)
    return Comparison(tables, why, failures(records), path)


def _order(data: Path, o: Mapping[str, Any]) -> tuple[Split, dict[str, Any], Any, str]:
    """Read the table: the split to run, the settings that its records share, the rows held out, and
    the task in words.
    """
    rows, seed = o["sample_rows"], o["seed"]
    source = read_training_table(data, asked_columns(o), sample_rows=rows, seed=seed)
    layout, why, X, y = source.layout, source.reason, source.X, source.y
    if o["sample_rows"]:
        why += f" The comparison is on {len(y):,} of {source.n_rows:,} rows, drawn at random."
    classes = layout.task == "classification"
    names = chosen_models(o["models"], layout.task) or [
        "linear",
        "forest",
        "boosting",
        *([] if classes else ["quantiles"]),
    ]
    groups = source.groups
    if classes and len(np.unique(y)) < 2:
        raise ValueError(
            f"{data}: the target {layout.target!r} has one class only; a comparison "
            f"needs at least two."
        )
    own_seed = int(np.random.SeedSequence([o["seed"], 3]).generate_state(1)[0])
    dealt = assign_roles(
        len(y), tune=0, calibrate=0, test=o["hold_out"] or 0, groups=groups, random_state=own_seed
    )
    kept, apart = np.sort(dealt.train), np.sort(dealt.test)
    sizes = (o["tune_size"], o["calibrate_size"], o["test_size"])
    settings = {
        "rows": role_fingerprint(row_fingerprints(X, y)),
        "target": layout.target,
        "task": layout.task,
        "models": names,
        "features": list(layout.features),
        "groups": o["groups"],
        "alpha": o["alpha"],
        "delta": o["delta"],
        "sizes": list(sizes),
        "hold_out": o["hold_out"],
        "hold_out_seed": o["seed"] if apart.size else None,
    } | ({} if o["objective"] == "mean_size" else {"objective": o["objective"]})
    maker = Maker(columns_of(X), classes, o["alpha"])
    models = {name: maker.model(name) for name in names}
    rows = (X.iloc[kept].reset_index(drop=True), y[kept], None if groups is None else groups[kept])
    return (
        Split(*rows, models, o["alpha"], o["delta"], sizes, o["objective"]),
        settings,
        source.table.take(apart).cells,
        why,
    )


def _check_input_is_kept(data: Path, out: Path) -> None:
    """The results must not go where the table is: rows that are held out could be written
    over it.
    """
    if data.is_dir():
        check_apart(out, data)
    at = data.parent.resolve()
    if out.resolve() in (at, *at.parents, *data.resolve().parents):
        raise ValueError(
            f"{data} lies in {out}, where the results would go; choose another folder for --out."
        )


def _begin(out: Path, settings: Mapping[str, Any], *, resume: bool, force: bool) -> Path:
    """The folder to work in, which is empty or belongs to the same order.

    It is the folder of the results; if --force replaces what is there, a folder in it until all is
    done.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; the results go to a folder. Choose another name.")
    check_folder(out if out.exists() else out.parent)
    asked, begun = plain(settings), out if out.exists() and any(out.iterdir()) else None
    plans = [out / UNFINISHED / _SETTINGS, out / _SETTINGS]
    same = continues(plans, asked, begun=begun, resume=resume, force=force)
    if same is not None:
        return same.parent
    plan = plans[1] if begun is None else plans[0]
    shutil.rmtree(plans[0].parent, ignore_errors=True)
    plan.parent.mkdir(exist_ok=True)
    write_whole(plan, json.dumps(asked, indent=1))
    return plan.parent


def _replace_results(work: Path, out: Path) -> None:
    """Replace earlier results by finished ones, and leave none of those: rows held out then may be
    compared now.
    """
    found = [name for name in (_SETTINGS, *_WRITTEN) if (work / name).exists()]
    take_places(
        [Written(work / name, out / name, overwrite=True) for name in found],
        gone=[out / name for name in _WRITTEN if name not in found],
    )
    shutil.rmtree(work, ignore_errors=True)


def _write_held_out(rows: Any, data: Path, out: Path) -> str:
    """The rows that were held out, all columns, as a table that the other commands read; the name
    of the file.
    """
    kind = table_format(data)
    name = f"held-out.{'parquet' if kind == 'folder' else kind}"
    with written_beside(out / name) as beside:
        write_tables([rows], beside, kind)
    return name


def _write_tables(tables: Sequence[Any], out: Path) -> None:
    # they share their caption
    once = [tables[0], *(replace(table, caption="") for table in tables[1:])]
    write_whole(
        out / "tables.md", "\n".join([*(shown(table).to_markdown() for table in once), ADVICE, ""])
    )
    write_whole(out / "tables.json", "[" + ",\n".join(table.to_json() for table in tables) + "]\n")


# --- one split, and the tables of all
# ----------------------------------------------------------------------------


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

    def __call__(self, seed: int, options: Any) -> list[dict[str, Any]]:
        """The record of one split: one row per method, and one per model that failed."""
        with warnings.catch_warnings():
            # infinite thresholds and unconverged fits show in the numbers
            warnings.simplefilter("ignore")
            on, targets, failed = self._candidates(self.roles(seed), seed)
            candidates = evaluated_roles({role: on[role] for role in on if role != "test"}, targets)
            rows: list[dict[str, Any]] = [{"method": None, "failed": reason} for reason in failed]
            for name in [name for _, names in FAMILIES.values() for name in names]:
                threshold = None
                if name in SELECTIONS:
                    selected = select_sets(name, on, targets, alpha=self.alpha)
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
                        Given(
                            suited,
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
                measured = {
                    "coverage": found.coverage,
                    "mean_size": found.mean_size,
                    "p95_size": found.overall.sizes.p95,
                }
                counts = {"threshold": threshold, "calibration_rows": n, "test_rows": found.n}
                rows.append({"method": name, "candidate": most, **measured, **counts})
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
    """One table per kind of guarantee, from the records alone; `groups` is the column whose values
    stay together.
    """
    runs, caption, tables = rows_by(records), _caption(records, alpha, groups), []
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
    sizes, others = column(own, "mean_size"), column(partner, "mean_size")
    paired = None
    if (
        own is not partner
        and len(sizes) == len(others)
        and all(size < math.inf for size in sizes + others)
    ):
        paired = paired_comparison(sizes, others)
    return (
        _NAMES[method],
        own[0]["calibration_rows"],
        *(Measured.of(column(own, name)) for name in ("coverage", "mean_size", "p95_size")),
        *((None, None) if paired is None else (paired.mean_difference, paired.p_value)),
        Counter(row["candidate"] for row in own).most_common(1)[0][0],
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
    reasons = Counter(
        row["failed"] for record in records for row in record.rows if row["method"] is None
    )
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
