"""``dco compare``: the methods of the paper on the user's own table, over repeated splits."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from dco.cli import options as opt
from dco.cli.printing import as_json, collected_notes, print_json, print_notes, print_table, progress, say

_WRITTEN = ("records.jsonl", "held-out.csv", "held-out.parquet", "held-out.feather", "tables.json", "tables.md")
_SETTINGS = "settings.json"
ADVICE = (
    "Fit a method or a level picked from this table on rows that were not in it: the table has seen every row that it was "
    "made from (picking among 16 on the whole table costs up to 4 points of coverage at n = 120)."
)


@click.command(
    "compare",
    epilog=opt.example("dco compare patients.csv --target progression --splits 4 --models linear --out comparison"),
)
@opt.table_options
@click.option("--splits", type=opt.WholeType(min=1), default=50, show_default=True, help="Number of random splits.")
@opt.level_options()
@click.option("--delta", type=opt.LEVEL, default=0.05, show_default=True, help="Failure probability of a PAC guarantee.")
@click.option("--tune-size", type=opt.SizeType(), default="0.25", show_default=True, help="Rows that rank candidates.")
@opt.calibrate_option
@click.option(
    "--test-size", type=opt.SizeType(), default="0.25", show_default=True, help="Rows that measure coverage and size."
)
@click.option("--hold-out", type=opt.SizeType(), help="Rows to keep out of the comparison, in a file for `dco fit`.")
@opt.seed_option
@opt.work_options
@click.option(
    "--out", type=opt.FILE, default=Path("comparison"), show_default=True, help="The folder for records and tables."
)
@opt.resume_option
@opt.force_option
@as_json
def command(data: Path, as_json: bool, **options: Any) -> None:
    """Run split conformal prediction, CRC, BQ, BCP-CRC, LTT, CQR, DirectTune and DCO on repeated splits of DATA.

    All methods see the same models and the same rows; those that tune nothing calibrate on tuning and calibration rows
    together. There is one table per kind of guarantee, with paired Wilcoxon tests against DCO of the same kind. Finished
    splits are kept, so that --resume continues a stopped run with the same result.
    """
    alpha = opt.chosen_alpha(options["alpha"], options["confidence"])
    with collected_notes() as notes:
        comparison = run_comparison(data, {**options, "alpha": alpha}, quiet=as_json)
    held_out = comparison.held_out
    advised = None if held_out is None else _fit_command(held_out, options)
    if as_json:
        print_json(
            {
                "why": comparison.why,
                "splits": options["splits"],
                "alpha": alpha,
                "tables": [json.loads(table.to_json()) for table in comparison.tables],
                "failed": comparison.failed,
                "advice": ADVICE,
                "held_out": None if held_out is None else str(held_out),
                "next": advised,
                "out": str(options["out"]),
                "notes": notes,
            }
        )
        return
    from dco.cli.comparison import CANDIDATE, shown

    say(comparison.why)
    for table in comparison.tables:
        print_table(table.columns, shown(table).rows, title=table.title, spare=[CANDIDATE, "P95 size"])
    say(comparison.tables[0].caption)
    print_notes([*comparison.failed, *notes])
    say(f"Records and tables are in {options['out']}.", ADVICE)
    kept = f"Rows that were not in it are in {held_out}: {advised}"
    say("--hold-out 0.3 would have kept such rows." if advised is None else kept)


def _fit_command(held_out: Path, options: Mapping[str, Any]) -> str:
    """How to fit on the rows that were held out, with the columns, the level and the models of the comparison."""
    words = ["dco", "fit", str(held_out), "--target", options["target"]]
    if options["decimal"] != ".":
        words += ["--decimal", options["decimal"]]
    for name in ("task", "alpha", "confidence", "models", "groups"):
        if options[name] is not None:
            words += [f"--{name}", str(options[name])]
    for column in options["drop"]:
        words += ["--drop", column]
    return shlex.join(words)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Tables by kind of guarantee, and what else there is to say."""

    tables: list[Any]
    why: str
    failed: list[str]
    held_out: Path | None


def run_comparison(data: Path, o: Mapping[str, Any], *, quiet: bool) -> Comparison:
    """Read, hold rows out, run the splits that are not on record, make the tables."""
    from dco.cli.comparison import as_experiment, failures
    from dco.foundations.files import written_together

    out = o["out"]
    _check_input_is_kept(data, out)
    order = _order(data, o)
    order.split.roles(o["seed"])  # impossible sizes are refused before anything is written
    work = _begin(out, order.settings, resume=o["resume"], force=o["force"])
    experiment, options = as_experiment(order.split, order.settings)
    records = _run(experiment, options, work, o, quiet=quiet)
    tables = experiment.tables(records, options)
    with written_together():
        held_out = _write_held_out(order, data, work) if order.held_out.size else None
        _write_tables(tables, work)
    if work != out:
        _replace_results(work, out)
    return Comparison(tables, order.why, failures(records), None if held_out is None else out / held_out.name)


@dataclass(frozen=True, eq=False)
class _Order:
    """What is to be run: the split, the settings that its records must share, and the rows that are held out."""

    table: Any
    why: str
    split: Any
    settings: Mapping[str, Any]
    held_out: Any


def _order(data: Path, o: Mapping[str, Any]) -> _Order:
    """Read the table and hold rows out."""
    import numpy as np

    from dco.cli.candidates import chosen_models, make_models
    from dco.cli.columns import Asked, make_layout
    from dco.cli.comparison import Split
    from dco.cli.features import features, labels, targets
    from dco.cli.reading import read_table
    from dco.rows.fingerprints import role_fingerprint, row_fingerprints

    table = read_table(data)
    layout, why = make_layout(table, Asked.of(o), path=data)
    names = chosen_models(o["models"], layout.task)
    X, y = features(table, layout, path=data), targets(table, layout, path=data)
    if layout.task == "classification" and len(np.unique(y)) < 2:
        raise ValueError(f"{data}: the target {layout.target!r} has one class only; a comparison needs at least two.")
    kept, held_out = _held_out(len(y), o["hold_out"], labels(table, o["groups"]), o["seed"])
    sizes = (o["tune_size"], o["calibrate_size"], o["test_size"])
    settings = {
        "rows": role_fingerprint(row_fingerprints(X, y)),
        "target": layout.target,
        "task": layout.task,
        "models": names,
        "features": list(layout.order),
        "groups": o["groups"],
        "alpha": o["alpha"],
        "delta": o["delta"],
        "sizes": list(sizes),
        "hold_out": o["hold_out"],
        "hold_out_seed": o["seed"] if held_out.size else None,
    }
    rows = (X.iloc[kept].reset_index(drop=True), y[kept], labels(table, o["groups"], kept))
    split = Split(*rows, make_models(names, layout, alpha=o["alpha"]), o["alpha"], o["delta"], sizes)
    return _Order(table, why, split, settings, held_out)


def _held_out(n: int, share: Any, groups: Any, seed: int) -> tuple[Any, Any]:
    import numpy as np

    from dco.rows.roles import assign_roles

    if share is None:
        return np.arange(n), np.arange(0)
    number = int(np.random.SeedSequence([seed, 3]).generate_state(1)[0])
    dealt = assign_roles(n, tune=0, calibrate=0, test=share, groups=groups, seed=number)
    return np.sort(dealt.train), np.sort(dealt.test)


def _run(experiment: Any, options: Any, out: Path, o: Mapping[str, Any], *, quiet: bool) -> Any:
    """The records of all splits; those that are on disk already are not run again."""
    from dco.reproduction.records import run_splits

    with progress("Splits", o["splits"], quiet=quiet) as advance:
        seen = 0

        def tell(done: int, total: int, seconds_left: float) -> None:
            nonlocal seen
            advance(done - seen)
            seen = done

        seeds = range(o["seed"], o["seed"] + o["splits"])
        work = {"jobs": o["jobs"], "scheduler": o["scheduler"], "progress": tell}
        return run_splits(experiment, out / "records.jsonl", seeds=seeds, options=options, **work)


def _check_input_is_kept(data: Path, out: Path) -> None:
    """The results must not go where the table is: rows that are held out could be written over it."""
    from dco.cli.outputs import check_apart

    if data.is_dir():
        check_apart(out, data)
    at = data.parent.resolve()
    if out.resolve() in (at, *at.parents, *data.resolve().parents):
        raise ValueError(f"{data} lies in {out}, where the results would go; choose another folder for --out.")


def _begin(out: Path, settings: Mapping[str, Any], *, resume: bool, force: bool) -> Path:
    """The folder to work in, which is empty or belongs to the same order.

    It is the folder of the results; if --force replaces what is there, a folder in it until all is done.
    """
    from dco.cli.outputs import check_folder
    from dco.cli.resuming import UNFINISHED, continues, write_plan
    from dco.foundations.files import plain

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
    write_plan(plan, asked)
    return plan.parent


def _replace_results(work: Path, out: Path) -> None:
    """Replace earlier results by finished ones, and leave none of those: rows held out then may be compared now."""
    from dco.foundations.files import Written, take_places

    found = [name for name in (_SETTINGS, *_WRITTEN) if (work / name).exists()]
    take_places(
        [Written(work / name, out / name, overwrite=True) for name in found],
        gone=[out / name for name in _WRITTEN if name not in found],
    )
    shutil.rmtree(work, ignore_errors=True)


def _write_held_out(order: _Order, data: Path, out: Path) -> Path:
    """The rows that were held out, all columns, as a table that the other commands read."""
    from dco.cli.reading import table_format
    from dco.cli.sets_files import open_table
    from dco.foundations.files import written_beside

    kind = table_format(data)
    path = out / f"held-out.{'parquet' if kind == 'folder' else kind}"
    rows = order.table.take(order.held_out)
    with written_beside(path) as beside, open_table(beside, kind, rows.schema) as file:
        file.write_table(rows)
    return path


def _write_tables(tables: Sequence[Any], out: Path) -> None:
    from dco.cli.comparison import shown
    from dco.foundations.files import written_beside

    once = [tables[0], *(replace(table, caption="") for table in tables[1:])]  # they share their caption
    pages = {
        "tables.md": "\n".join([*(shown(table).to_markdown() for table in once), ADVICE, ""]),
        "tables.json": "[" + ",\n".join(table.to_json() for table in tables) + "]\n",
    }
    for name, text in pages.items():
        with written_beside(out / name) as beside:
            beside.write_text(text, encoding="utf-8")
