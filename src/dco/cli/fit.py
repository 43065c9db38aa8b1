"""``dco fit``: from a table to a calibrated model file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

import click

from dco.cli import options as opt
from dco.cli.outputs import check_outputs, check_page, finish_from_here
from dco.cli.printing import (
    as_json,
    collected_notes,
    print_json,
    print_notes,
    print_table,
    progress,
    say,
)
from dco.foundations.display import counted
from dco.foundations.notes import QUIET

_FEWEST = 3  # rows: one each to train, tune and calibrate
_OUTPUTS = ("out", "report", "certificate")
# of the ranking
_COLUMNS = ("name", "mean_size", "p95_size", "miscoverage", "feasible", "objective", "shortfall")
_SAME = (
    "alpha",
    "guarantee",
    "delta",
    "tune_size",
    "calibrate_size",
    "tune_folds",
    "support",
)
_MOST_CANDIDATES = 8  # that are printed


@click.command(
    "fit",
    epilog=opt.example(
        "dco fit patients.csv --target progression --alpha 0.1 --seed 0 --out model.dco"
    ),
)
@opt.table_options
@opt.level_options()
@opt.guarantee_options()
@click.option(
    "--scores",
    metavar="LIST",
    multiple=True,
    callback=opt.joined,
    help="lac, aps, raps, saps, topk, margin; absolute, normalised, quantile, transformed.",
)
@opt.objective_option(None)
@click.option(
    "--range",
    "support",
    type=float,
    nargs=2,
    metavar="LOW HIGH",
    help="Ends of the target's range: 0 inf, say.",
)
@click.option(
    "--condition-on",
    metavar="COL",
    multiple=True,
    help="A threshold for each value of this column, or for each class if it is the target; "
    "label-clusters: rare classes "
    "share one. Repeat it for groups that overlap.",
)
@click.option(
    "--by", metavar="COL", help="Evaluate by this column, on rows set aside (see --test-size)."
)
@click.option("--key", metavar="COL", help="A column that names the rows; not a feature.")
@click.option(
    "--tune-size",
    type=opt.SizeType(zero=True),
    help="Rows that rank candidates. 0: for one model and one score.  "
    "[default: 0.25; with few rows, folds instead]",
)
@click.option(
    "--calibrate-size",
    type=opt.SizeType(),
    help="Rows for calibration.  [default: 0.25; with few rows, what they need]",
)
@opt.folds_option
@opt.sample_option
@click.option(
    "--test-size",
    type=opt.SizeType(zero=True),
    help="Rows to evaluate on.  [default: 0, with --by 0.2]",
)
@opt.seed_option
@opt.work_options
@click.option(
    "--out",
    type=opt.FILE,
    default=Path("model.dco"),
    show_default=True,
    help="The model file to write.",
)
@click.option("--report", type=opt.FILE, help="Also write an HTML page that explains the model.")
@click.option(
    "--certificate",
    type=opt.FILE,
    help="Also write the certificate (JSON), to be kept elsewhere for `dco audit`.",
)
@opt.force_option
@as_json
def command(data: Path, as_json: bool, **options: Any) -> None:
    """Fit models on DATA (CSV, Parquet or Feather), pick the smallest sets, calibrate once, write a
    model file.

    Rows are assigned to training, tuning and calibration at random. Models and scores compete on
    training and tuning rows; the calibration rows are opened once, for the winner. Missing values
    and categories are handled inside each model.
    """
    options["alpha"] = opt.chosen_alpha(options["alpha"], options.pop("confidence"))
    options["delta"] = opt.chosen_delta(options["guarantee"], options["delta"])
    outputs = {name: options[name] for name in _OUTPUTS}
    check_outputs(outputs, force=options["force"], inputs=[data])
    check_page(options["report"])
    if options["tune_folds"] is not None and options["tune_size"] is not None:
        raise click.UsageError(
            "--tune-folds ranks candidates on the training rows: leave --tune-size out."
        )
    if options["by"] is not None and options["test_size"] == 0:
        raise click.UsageError(
            "--by evaluates rows set aside, and --test-size 0 sets none aside: "
            "leave one of them out."
        )
    if options["test_size"] is None:
        options["test_size"] = 0 if options["by"] is None else 0.2
    with progress("Fitting", None, quiet=as_json), collected_notes(options["target"]) as notes:
        opt.note_large(options["alpha"])
        fitted = fit_table(data, options)
    certificate, told = (
        fitted.model.certificate_,
        [note for note in fitted.model.notes_ if note.kind in QUIET],
    )
    told += [] if fitted.evaluation is None else fitted.evaluation.notes
    notes += [note.spelled(partial(opt.option, target=options["target"])) for note in told]
    _write(fitted, data, options)
    ranking = fitted.model.ranking_
    if as_json:
        print_json(
            {
                "task": fitted.layout.task,
                "why": fitted.why,
                "columns": fitted.layout.names_by_kind(),
                "candidate": fitted.model.best_candidate_,
                "ranking": [
                    {column: getattr(row, column) for column in _COLUMNS} for row in ranking.table
                ],
                "failed": dict(certificate.failed_candidates),
                "certificate": json.loads(certificate.to_json()),
                "evaluation": None if fitted.evaluation is None else fitted.evaluation.to_dict(),
                "notes": notes,
                "model": str(options["out"]),
                "report": options["report"],
            }
        )
        return
    say(fitted.why, fitted.layout.in_words())
    if ranking.table:  # none if the only candidate went through without tuning rows
        _show_ranking(ranking)
    say(*str(certificate).splitlines())
    if fitted.rows is not None:
        from dco.cli.evaluate import print_evaluation

        print_evaluation(
            fitted.evaluation, certificate, title="Rows set aside", by=fitted.rows.by_name
        )
    print_notes(notes)
    say(" ".join(f"Wrote {path}." for path in outputs.values() if path is not None))
    if fitted.rows is None:
        say(
            f"Next, check the promise on new rows: dco evaluate {quote(str(options['out']))} "
            f"NEW_ROWS.csv"
        )


def _write(fitted: Fitted, data: Path, options: dict[str, Any]) -> None:
    """Write all outputs, or none of them."""
    from dco.foundations.files import write_files
    from dco.storage.saving import pack

    out, report, certificate, force = (options[name] for name in (*_OUTPUTS, "force"))
    contents: dict[Path, str | bytes] = {out: pack(fitted.model)}
    if certificate is not None:
        contents[certificate] = fitted.model.certificate_.to_json() + "\n"
    if report is not None:
        from dco.cli.report import model_page

        title = f"{options['target']} in {data.name}"
        contents[report] = model_page(
            fitted.model, title=title, model=out, data=data, rows=fitted.rows
        )
    finish_from_here()
    write_files(contents, overwrite=force)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model, the task and columns in words, and the rows that were set aside with their
    evaluation.
    """

    model: Any
    why: str
    layout: Any
    rows: Any = None  # KnownRows
    evaluation: Any = None


def fit_table(data: Path, o: dict[str, Any]) -> Fitted:
    """Read, set test rows aside, fit, evaluate."""
    import numpy as np

    from dco.cli.tables.fitted import KnownRows, StoredTable
    from dco.cli.tables.layout import need_column
    from dco.cli.tables.rows import name_rows, read_groups
    from dco.cli.training import read_training_table
    from dco.foundations.parallel import on_cluster
    from dco.rows.splits import assign_roles

    source = read_training_table(
        data, opt.asked_columns(o), sample_rows=o["sample_rows"], seed=o["seed"]
    )
    layout, why, X, y, groups = source.layout, source.reason, source.X, source.y, source.groups
    by = o["by"]
    need_column(source.table.names, by, path=data, option="--by")
    model = _unfitted(layout, o)
    # not the seed that deals the other roles
    own_seed = int(np.random.SeedSequence([o["seed"], 2]).generate_state(1)[0])
    dealt = assign_roles(
        len(y), tune=0, calibrate=0, test=o["test_size"], groups=groups, random_state=own_seed
    )
    kept, tested = np.sort(dealt.train), np.sort(dealt.test)
    if tested.size and kept.size < _FEWEST:
        raise ValueError(
            f"--test-size {o['test_size']} of {counted(len(y), 'row')} leaves {kept.size} to fit "
            f"on; ask for less."
        )
    with on_cluster(o["scheduler"]):
        model.fit(
            X.iloc[kept].reset_index(drop=True),
            y[kept],
            groups=None if groups is None else groups[kept],
        )
    layout = layout.with_categories(X.iloc[kept])
    if o["sample_rows"]:
        why += f" The fit took {len(y):,} of {source.n_rows:,} rows of {data}, drawn at random."
    positions = source.known_positions()
    StoredTable(layout, n_rows=source.n_known_rows(), fitted_rows=positions[kept]).attach_to(model)
    if not tested.size:
        return Fitted(model, why, layout)
    by = None if by in layout.conditions else by  # the model takes the groups that it calibrated
    tested_rows = source.table.take(tested)
    rows = KnownRows(
        X.iloc[tested].reset_index(drop=True),
        y[tested],
        None if by is None else read_groups(tested_rows, by),
        by,
        None if layout.key is None else name_rows(tested_rows, layout.key),
        layout.target,
    )
    return Fitted(model, why, layout, rows, model.evaluate(rows.X, rows.y, by=rows.on_page()["by"]))


def _unfitted(layout: Any, o: dict[str, Any]) -> Any:
    """The estimator that the options ask for."""
    from dco.estimators import DecoupledClassifier, DecoupledRegressor
    from dco.tuning.objectives import EVEN, OBJECTIVES, Even

    classes, objective = layout.task == "classification", o["objective"]
    usual = "mean_size" if classes else EVEN.name
    if isinstance(OBJECTIVES[objective or usual], Even) and o["by"] in layout.features:
        objective = Even(by=(o["by"],))
    several = len(layout.conditions) > 1
    condition = list(layout.conditions) if several else next(iter(layout.conditions), None)
    return (DecoupledClassifier if classes else DecoupledRegressor)(
        opt.chosen_models(o["models"], layout.task),
        opt.chosen_scores(o["scores"], layout.task),
        **{name: o[name] for name in _SAME},
        objective=objective,
        condition_on="label" if condition == layout.target else condition,
        n_jobs=o["jobs"],
        random_state=o["seed"],
    )


def _show_ranking(ranking: Any) -> None:
    """The best few; the mean size of an objective that is one has its column already."""
    rows = ranking.table
    columns = {
        "candidate": "name",
        "mean size": "mean_size",
        "P95 size": "p95_size",
        "miscoverage": "miscoverage",
    }
    if ranking.objective not in ("mean_size", "p95_size", "even"):
        columns[ranking.objective] = "objective"
    if any(row.shortfall for row in rows):
        columns["shortfall"] = "shortfall"
    cells = [[getattr(row, key) for key in columns.values()] for row in rows[:_MOST_CANDIDATES]]
    if not all(row.feasible for row in rows):
        columns["feasible"] = "feasible"
        cells = [
            [*own, "yes" if row.feasible else "no"] for own, row in zip(cells, rows, strict=False)
        ]
    title = f"{counted(len(rows), 'candidate')} on the tuning rows, best first"
    print_table(list(columns), cells, title=title, spare=["P95 size"])
    if len(rows) > _MOST_CANDIDATES:
        say(f"and {len(rows) - _MOST_CANDIDATES} more: --json lists them all.")
    if "shortfall" in columns:
        say(
            "shortfall: how far the worst class or fifth of the prediction falls below the "
            "promise, beyond chance."
        )
