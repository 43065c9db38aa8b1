"""``dco compare``: the methods of the paper on the user's own table, over repeated splits."""

from __future__ import annotations

import json
import math
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from dco.commands.options import (
    FILE,
    LEVEL,
    SizeType,
    WholeType,
    chosen_alpha,
    decimal_option,
    example,
    force_option,
    level_options,
    work_options,
)
from dco.commands.printing import as_json, note, noted_warnings, number, print_json, print_table, progress, say
from dco.display import counted

# The methods in the order of the tables, each beside those with the same kind of guarantee, and the one it is paired with.
FAMILIES = {
    "marginal": ("dco_warmstart", ("dco_warmstart", "score_tuned_cp", "split_cp", "crc", "cqr")),
    "pac": ("dco_pac", ("dco_pac", "bq", "bcp_crc", "ltt")),
    "none": ("dco_warmstart", ("direct_tune",)),
}
_CANDIDATE = "candidate, most often"
_WRITTEN = ("records.jsonl", "held-out.csv", "held-out.parquet", "held-out.feather", "tables.json", "tables.md")
_SETTINGS = "settings.json"
_ANEW = "_dco_unfinished"  # in the folder of the results, while --force replaces what is there
_HEADINGS = {
    "marginal": "Marginal guarantee: a new row is covered with probability at least 1 − alpha",
    "pac": "PAC guarantee: coverage is at least 1 − alpha with confidence 1 − delta over the calibration rows",
    "none": "No guarantee, for comparison only",
}
ADVICE = (
    "A method or a level picked from this table must be fitted on rows that were not in it: the table has looked at every "
    "row that it was made from (picking among 16 on the whole table costs up to 4 points of coverage at n = 120)."
)


@click.command(
    "compare", epilog=example("dco compare patients.csv --target progression --splits 4 --models linear --out comparison")
)
@click.argument("data", type=FILE)
@click.option("--target", required=True, metavar="COL", help="The column to predict.")
@click.option("--splits", type=WholeType(min=1), default=50, show_default=True, help="How many random splits.")
@level_options
@click.option("--delta", type=LEVEL, default=0.05, show_default=True, help="How often a PAC promise may fail.")
@click.option("--task", type=click.Choice(["classification", "regression"]), help="Otherwise found out, and said.")
@click.option("--models", metavar="LIST", help="linear, forest, boosting; for numbers also quantiles, spread.")
@click.option("--groups", metavar="COL", help="Rows with one value here stay in one role; the column is not a feature.")
@click.option("--drop", multiple=True, metavar="COL", help="A column that is not a feature; may be given again.")
@decimal_option(default=".")
@click.option("--tune-size", type=SizeType(), default="0.25", show_default=True, help="Rows that rank candidates.")
@click.option("--calibrate-size", type=SizeType(), default="0.25", show_default=True, help="Rows that calibrate.")
@click.option("--test-size", type=SizeType(), default="0.25", show_default=True, help="Rows that measure coverage and size.")
@click.option("--hold-out", type=SizeType(), help="Rows to keep out of the comparison, in a file that `dco fit` takes.")
@click.option("--seed", type=WholeType(min=0), default=0, show_default=True, help="The seed of the first split.")
@work_options
@click.option("--out", type=FILE, default=Path("comparison"), show_default=True, help="The folder for records and tables.")
@click.option("--resume", is_flag=True, help="Go on with a run that was stopped; the options must be the same.")
@force_option
@as_json
def command(data: Path, target: str, as_json: bool, **options: Any) -> None:
    """Run split conformal prediction, CRC, BQ, BCP-CRC, LTT, CQR, DirectTune and DCO on repeated splits of DATA.

    All see the same models and the same rows; methods that tune nothing calibrate on tuning and calibration rows together.
    Like is compared with like: tables are by kind of guarantee, with paired Wilcoxon tests against DCO of the same kind.
    Each finished split is kept, so that --resume goes on after a kill with the same result.
    """
    level = {name: options.pop(name) for name in ("alpha", "confidence")}
    alpha = chosen_alpha(**level)
    assert alpha is not None
    notes: list[str] = []
    with noted_warnings(notes):
        comparison = run_comparison(data, target, alpha=alpha, quiet=as_json, **options)
    advised = None if comparison.held_out is None else _fit_command(comparison.held_out, target, **level, **options)
    if as_json:
        tables = [json.loads(table.to_json()) for table in comparison.tables]
        print_json(
            {
                "why": comparison.why,
                "splits": options["splits"],
                "alpha": alpha,
                "tables": tables,
                "failed": comparison.failed,
                "advice": ADVICE,
                "held_out": None if comparison.held_out is None else str(comparison.held_out),
                "next": advised,
                "out": str(options["out"]),
                "notes": notes,
            }
        )
        return
    say(comparison.why)
    for table in comparison.tables:
        print_table(table.columns, shown(table).rows, title=table.title, spare=[_CANDIDATE, "P95 size"])
    say(comparison.tables[0].caption)
    for sentence in [*comparison.failed, *notes]:
        note(f"Note: {sentence}")
    say(f"Records and tables are in {options['out']}.", ADVICE)
    if advised is not None:
        say(f"Rows that were not in it are in {comparison.held_out}: {advised}")
    else:
        say("--hold-out 0.3 would have kept such rows apart.")


def _fit_command(held_out: Path, target: str, **options: Any) -> str:
    """How to fit on the rows that were kept apart, with the columns, the level and the models of the comparison."""
    words = ["dco", "fit", str(held_out), "--target", target]
    if options["decimal"] != ".":
        words += ["--decimal", options["decimal"]]
    for name in ("task", "alpha", "confidence", "models", "groups"):
        if options[name] is not None:
            words += [f"--{name}", str(options[name])]
    for column in options["drop"]:
        words += ["--drop", column]
    return shlex.join(words)


def shown(table: Any) -> Any:
    """The table with its cells as people read them: a standard deviation in two digits, its mean to the same decimal."""
    return replace(table, rows=tuple(tuple(_cell(cell) for cell in row) for row in table.rows))


def _cell(cell: Any) -> str:
    if not hasattr(cell, "sd"):
        return cell if isinstance(cell, str) else number(cell)
    if not (math.isfinite(cell.sd) and cell.sd > 0):
        return number(cell.mean) if math.isnan(cell.sd) else f"{number(cell.mean)} ± {number(cell.sd)}"
    decimals = max(0, 1 - math.floor(math.log10(cell.sd)))
    return f"{cell.mean:.{decimals}f} ± {cell.sd:.{decimals}f}"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Tables by kind of guarantee, and what else there is to say."""

    tables: list[Any]
    why: str
    failed: list[str]
    held_out: Path | None


def run_comparison(data: Path, target: str, *, alpha: float, delta: float, quiet: bool, out: Path, **o: Any) -> Comparison:
    """Read, keep rows apart, run the splits that are not on record, make the tables."""
    from dco.files import written_together

    _check_input_is_kept(data, out)
    order = _order(data, target, alpha=alpha, delta=delta, **o)
    order.split.roles(o["seed"])  # sizes that cannot be dealt are told before anything is written
    work = _begin(out, order.settings, resume=o["resume"], force=o["force"])
    experiment, experiment_options = as_experiment(order.split, order.settings, alpha)
    records = _run(experiment, experiment_options, work, quiet=quiet, **o)
    tables = experiment.tables(records, experiment_options)
    with written_together():
        held_out = _write_apart(order.table, order.apart, data, work) if order.apart.size else None
        _write_tables(tables, work)
    if work != out:
        _replace_results(work, out)
    return Comparison(tables, order.why, failures(records), None if held_out is None else out / held_out.name)


@dataclass(frozen=True, eq=False)
class _Order:
    """What is to be run: the split, the settings that its records must share, and the rows that are kept out of it."""

    table: Any
    why: str
    split: Split
    settings: Mapping[str, Any]
    apart: Any


def _order(data: Path, target: str, *, alpha: float, delta: float, **o: Any) -> _Order:
    """Read the table and keep rows apart."""
    import numpy as np

    from dco.commands.candidates import DEFAULT_MODELS, MODELS, chosen_names, make_models
    from dco.commands.layout import features, labels, make_layout, targets
    from dco.commands.reading import read_table
    from dco.fingerprints import role_fingerprint, row_fingerprints

    table = read_table(data)
    layout, why = make_layout(
        table,
        path=data,
        target=target,
        task=o["task"],
        groups=o["groups"],
        drop=o["drop"],
        decimal=o["decimal"],
    )
    names = chosen_names(o["models"], tuple(MODELS[layout.task]), option="--models", default=DEFAULT_MODELS[layout.task])
    assert names is not None
    X, y = features(table, layout, path=data), targets(table, layout, path=data)
    if layout.task == "classification" and len(np.unique(y)) < 2:
        raise ValueError(f"{data}: the target {target!r} holds one class only; a comparison needs at least two.")
    group_of = None if o["groups"] is None else labels(table, o["groups"])
    kept, apart = _held_out(len(y), o["hold_out"], group_of, o["seed"])
    sizes = (o["tune_size"], o["calibrate_size"], o["test_size"])
    settings = {
        "rows": role_fingerprint(row_fingerprints(X, y)),
        "target": target,
        "task": layout.task,
        "models": names,
        "features": list(layout.order),
        "groups": o["groups"],
        "alpha": alpha,
        "delta": delta,
        "sizes": list(sizes),
        "hold_out": o["hold_out"],
        "hold_out_seed": o["seed"] if apart.size else None,
    }
    split = Split(
        X.iloc[kept].reset_index(drop=True),
        y[kept],
        None if group_of is None else group_of[kept],
        make_models(names, layout, alpha=alpha),
        alpha,
        delta,
        sizes,
    )
    return _Order(table, why, split, settings, apart)


def _run(experiment: Any, options: Any, out: Path, *, quiet: bool, **o: Any) -> Any:
    """The records of all splits; those that are on disk already are not run again."""
    from dco.experiments.records import run_splits

    with progress("Splits", o["splits"], quiet=quiet) as advance:
        seen = 0

        def tell(done: int, total: int, seconds_left: float) -> None:
            nonlocal seen
            advance(done - seen)
            seen = done

        return run_splits(
            experiment,
            out / "records.jsonl",
            seeds=range(o["seed"], o["seed"] + o["splits"]),
            options=options,
            jobs=o["jobs"],
            scheduler=o["scheduler"],
            progress=tell,
        )


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
        from dco.splits import assign_roles

        tune, calibrate, test = self.sizes
        roles = assign_roles(len(self.y), tune=tune, calibrate=calibrate, test=test, groups=self.groups, seed=seed)
        if roles.train.size == 0:
            raise ValueError("No row is left for training: ask for smaller --tune-size, --calibrate-size or --test-size.")
        return roles

    def __call__(self, seed: int, options: Any) -> list[dict[str, Any]]:
        """The rows of the record of one split, one a method."""
        import warnings

        import numpy as np

        from dco.evaluation import evaluate
        from dco.experiments.methods import METHODS, run_method

        roles = self.roles(seed)
        both = np.concatenate([roles.tune, roles.calibrate])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # infinite thresholds and unconverged fits show in the numbers
            candidates, failed = self._candidates(roles, both, seed)
            rows: list[dict[str, Any]] = [{"method": None, "failed": reason} for reason in failed]
            for method in [name for _, names in FAMILIES.values() for name in names]:
                found = METHODS[method]
                fixed = _fixed(method, candidates)
                if fixed is None:
                    continue  # no quantile model among the candidates
                tunes = found.tuned_on == "tune"
                entries = {
                    name: (score, tune, calibrate if tunes else together, test)
                    for name, (score, tune, calibrate, together, test) in candidates.items()
                }
                outcome = run_method(
                    method,
                    entries,
                    self.y[roles.tune],
                    self.y[roles.calibrate if tunes else both],
                    alpha=self.alpha,
                    delta=self.delta,
                    fixed=fixed,
                )
                result = evaluate(outcome.sets, self.y[roles.test])
                rows.append(
                    {
                        "method": method,
                        "candidate": outcome.candidate,
                        "coverage": result.coverage,
                        "mean_size": result.mean_size,
                        "p95_size": result.p95_size,
                        "threshold": outcome.threshold.value,
                        "calibration_rows": outcome.threshold.n,
                        "test_rows": result.n,
                    }
                )
        return rows

    def _candidates(self, roles: Any, both: Any, seed: int) -> tuple[dict[str, tuple[Any, ...]], list[str]]:
        import numpy as np

        from dco.rows import Rows
        from dco.selection import expand, fit_model, predicted

        classes = None if self.y.dtype.kind == "f" else np.unique(self.y)
        train = Rows(self.X, self.y).take(roles.train)
        found: dict[str, tuple[Any, ...]] = {}
        failed = []
        for place, (name, model) in enumerate(self.models.items()):
            try:
                fitted = fit_model(_seeded(model, seed, place), train)
                for candidate in expand({name: model}, None):
                    records = [
                        predicted(fitted, self.X.iloc[rows], candidate.kind, uniforms=None, classes=classes)
                        for rows in (roles.tune, roles.calibrate, both, roles.test)
                    ]
                    found[candidate.name] = (candidate.score, *records)
            except Exception as error:  # a model that cannot be fitted is named and left out
                failed.append(f"{name}: {type(error).__name__}: {error}")
        if not found:
            raise ValueError(f"Every model failed on the training rows of split {seed}. {'; '.join(failed)}")
        return found, failed


def _seeded(model: Any, seed: int, place: int) -> Any:
    import numpy as np
    from sklearn.base import clone

    state = int(np.random.SeedSequence([seed, place]).generate_state(1)[0]) % 2**31
    free = [name for name, value in model.get_params().items() if name.endswith("random_state") and value is None]
    return clone(model).set_params(**dict.fromkeys(free, state))


def _fixed(method: str, candidates: Mapping[str, tuple[Any, ...]]) -> str | None:
    """The candidate of methods that tune nothing: the first, or for CQR the first that is one."""
    from dco.scores import QuantileResidual

    if method != "cqr":
        return next(iter(candidates))
    return next((name for name, entry in candidates.items() if isinstance(entry[0], QuantileResidual)), None)


def as_experiment(split: Split, settings: Mapping[str, Any], alpha: float) -> tuple[Any, Any]:
    """The comparison as an experiment, so that splits are run, kept and resumed like those of the paper."""
    from dco.experiments.experiment import Experiment, Options

    @dataclass(frozen=True)
    class Settings(Options):
        def settings(self) -> dict[str, Any]:
            return dict(settings)

    plain = Settings((alpha,))
    experiment = Experiment(
        name="compare",
        summary="The methods of the paper on a table.",
        needs="a table",
        minutes=0,
        tables=lambda records, options: comparison_tables(records, alpha, groups=settings["groups"]),
        run_split=split,
    )
    return experiment, plain


def comparison_tables(records: Sequence[Any], alpha: float, *, groups: str | None = None) -> list[Any]:
    """A table for each kind of guarantee, made from the records alone; `groups` is the column whose values stay together."""
    from collections import Counter

    from dco.evaluation import paired_comparison
    from dco.experiments.methods import METHODS
    from dco.experiments.tables import Measured, ResultTable

    runs: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        for row in record.rows:
            if row["method"] is not None:
                runs.setdefault(row["method"], []).append(row)
    tables = []
    for guarantee, (partner, methods) in FAMILIES.items():
        rows = []
        for method in methods:
            if method not in runs:
                continue
            own = runs[method]
            difference: Any = None
            p_value: Any = None
            if method != partner and len(own) == len(runs[partner]):
                sizes = [[float(row["mean_size"]) for row in runs[name]] for name in (method, partner)]
                if all(size < float("inf") for size in sizes[0] + sizes[1]):
                    paired = paired_comparison(*sizes)
                    difference, p_value = paired.mean_difference, paired.p_value
            rows.append(
                (
                    METHODS[method].name,
                    own[0]["calibration_rows"],
                    Measured.of(row["coverage"] for row in own),
                    Measured.of(float(row["mean_size"]) for row in own),
                    Measured.of(float(row["p95_size"]) for row in own),
                    difference,
                    p_value,
                    Counter(row["candidate"] for row in own).most_common(1)[0][0],
                )
            )
        if rows:
            columns = ("method", "n", "coverage", "mean size", "P95 size", "size − DCO", "Wilcoxon p", _CANDIDATE)
            tables.append(
                ResultTable(_HEADINGS[guarantee], _caption(records, alpha, groups), columns, tuple(rows), digits=4)
            )
    return tables


def _caption(records: Sequence[Any], alpha: float, groups: str | None) -> str:
    grouped = (
        f" Rows come in groups ({groups}), and these methods count rows as if each came alone: the guarantees of the "
        "headings need not hold here. The one of `dco fit --groups` is for groups."
    )
    return (
        f"Mean ± standard deviation over {counted(len(records), 'split')}, alpha = {alpha:g}; n is the number of rows "
        "behind the threshold; size − DCO is the difference in mean size to DCO with the same kind of guarantee (to "
        "DCO-Warmstart where there is none). Splits of one table are not independent: the p-values speak of splits of this "
        "table. "
        "ROCP is left out: it needs a loss matrix." + ("" if groups is None else grouped)
    )


def failures(records: Sequence[Any]) -> list[str]:
    """Models that failed in some split, each reason once."""
    reasons: dict[str, int] = {}
    for record in records:
        for row in record.rows:
            if row["method"] is None:
                reasons[row["failed"]] = reasons.get(row["failed"], 0) + 1
    return [f"{reason} (in {count} of {len(records)} splits)" for reason, count in reasons.items()]


def _held_out(n: int, share: Any, groups: Any, seed: int) -> tuple[Any, Any]:
    import numpy as np

    from dco.splits import assign_roles

    if share is None:
        return np.arange(n), np.arange(0)
    number = int(np.random.SeedSequence([seed, 3]).generate_state(1)[0])
    dealt = assign_roles(n, tune=0, calibrate=0, test=share, groups=groups, seed=number)
    return np.sort(dealt.train), np.sort(dealt.test)


def _check_input_is_kept(data: Path, out: Path) -> None:
    """The results must not go where the table is: rows that are kept apart could be written over it."""
    from dco.commands.outputs import check_apart

    if data.is_dir():
        check_apart(out, data)
    at = data.parent.resolve()
    if out.resolve() in (at, *at.parents, *data.resolve().parents):
        raise ValueError(f"{data} lies in {out}, where the results would go; choose another folder for --out.")


def _begin(out: Path, settings: Mapping[str, Any], *, resume: bool, force: bool) -> Path:
    """The folder to work in, which holds nothing or belongs to the same order.

    It is the folder of the results; where --force is to replace what is there, a folder in it until all is done.
    """
    from dco.commands.outputs import check_folder
    from dco.files import plain, written_beside

    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; the results go to a folder. Choose another name.")
    check_folder(out if out.exists() else out.parent)
    asked, work = plain(settings), out
    if out.exists() and any(out.iterdir()):
        if not (resume or force):
            raise ValueError(
                f"{out} is not empty and nothing is overwritten unasked; --resume goes on, --force starts anew."
            )
        if resume:
            begun = [place for place in (out / _ANEW, out) if _is_of(place, asked)]
            if not begun:
                raise ValueError(
                    f"{out} belongs to a comparison with other options or another table; choose another folder."
                )
            return begun[0]
        work = out / _ANEW
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(exist_ok=True)
    with written_beside(work / _SETTINGS) as beside:
        beside.write_text(json.dumps(asked, indent=1), encoding="utf-8")
    return work


def _is_of(folder: Path, asked: Any) -> bool:
    """Whether what is there was begun with these settings."""
    try:
        return bool(json.loads((folder / _SETTINGS).read_text(encoding="utf-8")) == asked)
    except (OSError, ValueError):
        return False


def _replace_results(work: Path, out: Path) -> None:
    """Put finished results in the place of earlier ones, and leave none of those: rows held out then may be compared now."""
    from dco.files import Written, take_places

    found = [name for name in (_SETTINGS, *_WRITTEN) if (work / name).exists()]
    take_places(
        [Written(work / name, out / name, overwrite=True) for name in found],
        gone=[out / name for name in _WRITTEN if name not in found],
    )
    shutil.rmtree(work, ignore_errors=True)


def _write_apart(table: Any, rows: Any, data: Path, out: Path) -> Path:
    """The rows that were kept out, all columns, as a table that the other commands take."""
    from dco.commands.reading import table_format
    from dco.extras import require
    from dco.files import written_beside

    chosen = table.take(rows)
    kind = table_format(data)
    path = out / ("held-out.csv" if kind == "csv" else "held-out.feather" if kind == "feather" else "held-out.parquet")
    with written_beside(path) as beside:
        if kind == "csv":
            writer = require("pyarrow.csv", extra="tables")
            writer.write_csv(chosen, str(beside), writer.WriteOptions(quoting_style="needed"))
        elif kind == "feather":
            require("pyarrow.feather", extra="tables").write_feather(chosen, str(beside))
        else:
            require("pyarrow.parquet", extra="tables").write_table(chosen, str(beside))
    return path


def _write_tables(tables: Sequence[Any], out: Path) -> None:
    from dco.files import written_beside

    once = [tables[0], *(replace(table, caption="") for table in tables[1:])]  # they share their caption
    pages = {
        "tables.md": "\n".join([*(shown(table).to_markdown() for table in once), ADVICE, ""]),
        "tables.json": "[" + ",\n".join(table.to_json() for table in tables) + "]\n",
    }
    for name, text in pages.items():
        with written_beside(out / name) as beside:
            beside.write_text(text, encoding="utf-8")
