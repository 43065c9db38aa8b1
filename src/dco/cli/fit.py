"""``dco fit``: from a table to a calibrated model file."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from dco.cli import options as opt
from dco.cli.option_types import FILE, SizeType
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
from dco.cli.spelling import spell_note
from dco.foundations.display import counted
from dco.foundations.notes import QUIET, show

if TYPE_CHECKING:
    from dco import Ranking
    from dco.cli.fitting import FittedTable

_MAX_CANDIDATES = 8  # that are printed
_USUAL_TEST_SHARE = 0.2  # of the rows, if --by asks for an evaluation
# Objectives whose values are in a column of the table of candidates anyway.
_OBJECTIVES_WITH_COLUMN = ("mean_size", "p95_size", "even")
_RANKING_FIELDS = (
    "name",
    "mean_size",
    "p95_size",
    "miscoverage",
    "feasible",
    "objective",
    "shortfall",
)


@click.command(
    "fit",
    epilog=opt.example(
        "dco fit patients.csv --target progression --alpha 0.1 --seed 0 --out model.dco"
    ),
)
@click.argument("data", type=FILE)
@opt.column_options
@opt.models_option
@opt.effort_option
@click.option(
    "--scores",
    metavar="LIST",
    multiple=True,
    callback=opt.join_lists,
    help="lac, aps, raps, saps, topk, margin; absolute, normalised, quantile, transformed.",
)
@opt.objective_option(None)
@opt.promise_options
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
    "conditions",
    metavar="COL",
    multiple=True,
    callback=opt.drop_repeats,
    help=(
        "Give each value of this column its own threshold, so that the promise holds for each; "
        "each class, if it is the target. label-clusters: rare classes share a threshold. Repeat "
        "it for conditions that overlap."
    ),
)
@click.option(
    "--by", metavar="COL", help="Evaluate by this column, on rows set aside (see --test-size)."
)
@click.option("--key", metavar="COL", help="A column that names the rows; not a feature.")
@click.option(
    "--tune-size",
    type=SizeType(zero=True),
    help=(
        "Rows that rank candidates. 0: for one model and one score.  "
        "[default: 0.25; with few rows, folds instead]"
    ),
)
@click.option(
    "--calibrate-size",
    type=SizeType(),
    help="Rows for calibration.  [default: 0.25; with few rows, what they need]",
)
@opt.folds_option
@opt.sample_option
@click.option(
    "--test-size",
    type=SizeType(zero=True),
    help="Rows to evaluate on.  [default: 0, with --by 0.2]",
)
@opt.seed_option
@opt.work_options
@click.option(
    "--out",
    type=FILE,
    default=Path("model.dco"),
    show_default=True,
    help="The model file to write.",
)
@click.option("--report", type=FILE, help="Also write an HTML page that explains the model.")
@click.option(
    "--certificate",
    type=FILE,
    help="Also write the certificate (JSON), to be kept elsewhere for `dco audit`.",
)
@opt.force_option
@as_json
def command(
    data: Path,
    test_size: int | float | None,
    out: Path,
    report: Path | None,
    certificate: Path | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Fit models on DATA (CSV, Parquet or Feather), pick the smallest sets, calibrate once, write a
    model file.

    Rows are assigned to training, tuning and calibration at random. Models and scores compete on
    training and tuning rows; the calibration rows are opened once, for the winner. Missing values
    and categories are handled inside each model.
    """
    from dco.cli.fitting import FitOrder, fit_table

    _check_options_agree(
        tune_folds=options["tune_folds"],
        tune_size=options["tune_size"],
        by=options["by"],
        test_size=test_size,
    )
    outputs = {"out": out, "report": report, "certificate": certificate}
    check_outputs(outputs, force=force, inputs=[data])
    check_page(report)

    order = FitOrder(data=data, test_size=_choose_test_size(test_size, options["by"]), **options)
    with progress("Fitting", None, quiet=as_json), collected_notes(order.columns.target) as notes:
        show(opt.note_large_alpha(order.promise.alpha))
        fitted = fit_table(order)
    notes += _notes_without_warning(fitted)
    _write_outputs(fitted, outputs, data=data, force=force)

    if as_json:
        print_json({**_facts(fitted), "notes": notes, "model": str(out), "report": report})
    else:
        _print_fit(fitted, notes)
        say(" ".join(f"Wrote {path}." for path in outputs.values() if path is not None))
        if fitted.test is None:
            say(f"Next, check the promise on new rows: dco evaluate {quote(str(out))} NEW_ROWS.csv")


def _check_options_agree(
    *,
    tune_folds: int | None,
    tune_size: int | float | None,
    by: str | None,
    test_size: int | float | None,
) -> None:
    """Refuse combinations in which one option would have no effect; None is not given."""
    if tune_folds is not None and tune_size is not None:
        raise click.UsageError(
            "--tune-folds ranks candidates on the training rows: leave --tune-size out."
        )
    if by is not None and test_size == 0:
        raise click.UsageError(
            "--by evaluates rows set aside, and --test-size 0 sets none aside: leave one of them "
            "out."
        )


def _choose_test_size(test_size: int | float | None, by: str | None) -> int | float:
    """Return how many rows to evaluate on: as asked, or a fifth of them with --by, or none."""
    if test_size is not None:
        return test_size
    return 0 if by is None else _USUAL_TEST_SHARE


def _notes_without_warning(fitted: FittedTable) -> list[str]:
    """Return the notes that no Python warning shows: advice, and those of the evaluation."""
    notes = [note for note in fitted.model.notes_ if note.kind in QUIET]
    if fitted.test is not None:
        notes += fitted.test.evaluation.notes
    return [spell_note(note, target=fitted.layout.target) for note in notes]


def _write_outputs(
    fitted: FittedTable, outputs: dict[str, Path | None], *, data: Path, force: bool
) -> None:
    """Write the model file, and the certificate and the page if they are asked for.

    `outputs` has the files by the names of their options; None is not asked for. Either all files
    are written or none.
    """
    from dco.cli.report import model_page
    from dco.foundations.files import write_files
    from dco.storage import pack

    model_file = outputs["out"]
    certificate_file = outputs["certificate"]
    page_file = outputs["report"]
    assert model_file is not None  # --out has a default

    contents: dict[Path, str | bytes] = {model_file: pack(fitted.model)}
    if certificate_file is not None:
        contents[certificate_file] = fitted.model.certificate_.to_json() + "\n"
    if page_file is not None:
        contents[page_file] = model_page(
            fitted.model,
            title=f"{fitted.layout.target} in {data.name}",
            model=model_file,
            data=data,
            rows=None if fitted.test is None else fitted.test.rows,
        )
    finish_from_here()
    write_files(contents, overwrite=force)


# --- printing -------------------------------------------------------------------------------------


def _facts(fitted: FittedTable) -> dict[str, Any]:
    """Collect what --json prints: the task, the ranking, the certificate and the evaluation."""
    certificate = fitted.model.certificate_
    ranking = [
        {field: getattr(candidate, field) for field in _RANKING_FIELDS}
        for candidate in fitted.model.ranking_.table
    ]
    return {
        "task": fitted.layout.task,
        "why": fitted.reason,
        "columns": fitted.layout.names_by_kind(),
        "candidate": fitted.model.best_candidate_,
        "ranking": ranking,
        "failed": dict(certificate.structure.failed_candidates),
        "certificate": json.loads(certificate.to_json()),
        "evaluation": None if fitted.test is None else fitted.test.evaluation.to_dict(),
    }


def _print_fit(fitted: FittedTable, notes: list[str]) -> None:
    """Print how the columns are read, the ranking, the certificate and the evaluation."""
    certificate = fitted.model.certificate_
    ranking = fitted.model.ranking_

    say(fitted.reason, fitted.layout.in_words())
    if ranking.table:  # empty if the only candidate needed no tuning rows
        _print_ranking(ranking)
    say(*str(certificate).splitlines())
    if fitted.test is not None:
        from dco.cli.evaluation_tables import print_evaluation

        print_evaluation(
            fitted.test.evaluation,
            certificate,
            title="Rows set aside",
            by=fitted.test.rows.by_name,
        )
    print_notes(notes)


def _print_ranking(ranking: Ranking) -> None:
    """Print the best candidates with their results on the tuning rows, and explain the columns.

    A candidate is a model with a score. It is feasible if its sets miss no more tuning rows than
    they may.
    """
    candidates = ranking.table
    best = candidates[:_MAX_CANDIDATES]

    # 1. Choose the columns, as heading: attribute of a candidate.
    attribute_of_heading = {
        "candidate": "name",
        "mean size": "mean_size",
        "95 % up to": "p95_size",
        "missed": "miscoverage",
    }
    if ranking.objective not in _OBJECTIVES_WITH_COLUMN:
        attribute_of_heading[ranking.objective] = "objective"
    has_shortfall = any(candidate.shortfall for candidate in candidates)
    if has_shortfall:
        attribute_of_heading["shortfall"] = "shortfall"

    # 2. Fill the rows. Whether candidates are feasible is said only if some are not.
    headings = list(attribute_of_heading)
    rows = [
        [getattr(candidate, attribute) for attribute in attribute_of_heading.values()]
        for candidate in best
    ]
    if not all(candidate.feasible for candidate in candidates):
        headings.append("feasible")
        for row, candidate in zip(rows, best, strict=True):
            row.append("yes" if candidate.feasible else "no")

    # 3. Print the table, and explain its columns.
    title = f"{counted(len(candidates), 'candidate')} on the tuning rows, best first"
    print_table(headings, rows, title=title, optional=["95 % up to"])
    if len(candidates) > _MAX_CANDIDATES:
        say(f"and {len(candidates) - _MAX_CANDIDATES} more: --json lists them all.")
    say("missed: the share of tuning rows whose set misses the true value.")
    if has_shortfall:
        say(
            "shortfall: how far coverage of the worst class, or of the worst fifth of the rows "
            "sorted by prediction, lies below the promise, beyond chance."
        )
