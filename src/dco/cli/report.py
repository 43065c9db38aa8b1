"""``dco report``: one HTML page about a model, or about a folder of results."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dco.cli import options as opt
from dco.cli.option_records import TargetOptions
from dco.cli.option_types import FILE
from dco.cli.printing import as_json, collected_notes, print_json, print_notes, progress, say

if TYPE_CHECKING:
    from dco.cli.tables.fitted import KnownRows


@click.command(
    "report",
    epilog=opt.example("dco report model.dco --data new_patients.csv --by sex --out report.html"),
)
@click.argument("model", type=FILE, metavar="MODEL|RESULTS")
@click.option(
    "--data",
    type=FILE,
    help="New rows with known targets; without them the page shows no coverage and no sizes.",
)
@opt.by_option
@opt.target_options
@click.option("--title", help="The title of the page.")
@click.option(
    "--out",
    type=FILE,
    default=Path("report.html"),
    show_default=True,
    help="The HTML file to write.",
)
@opt.force_option
@as_json
def command(
    model: Path,
    data: Path | None,
    reading: TargetOptions,
    trust: tuple[str, ...],
    title: str | None,
    out: Path,
    force: bool,
    as_json: bool,
) -> None:
    """Write one self-contained HTML file about a model file, or about a folder of results.

    Such a folder is what `dco compare` or `dco reproduce` wrote. On the page of a model, coverage
    and sizes come only from the rows given with --data: calibration rows are never shown as
    coverage.
    """
    from dco.cli.outputs import check_output, check_page, finish_from_here
    from dco.foundations.files import write_file

    check_output(out, force=force, inputs=[*_files_read(model), data])
    check_page(out)
    findings: list[str] = []
    with progress("Writing the page", None, quiet=as_json), collected_notes() as notes:
        if model.is_dir():
            _refuse_options_of_models(data, reading, trust)
            page, findings = _page_of_results(model, title)
        else:
            page = _page_of_model(model, data, title, reading, trust)
        finish_from_here()
        write_file(out, page, overwrite=force)

    if as_json:
        print_json({"report": str(out), "notes": notes})
        return
    print_notes(notes)
    say(*findings, f"Wrote {out}.")


def _files_read(model: Path) -> list[Path]:
    """List the files that the page must not replace: the model, or the results in a folder.

    Pages in the folder are not among them: they may be written again.
    """
    if not model.is_dir():
        return [model]
    return [
        file
        for file in model.rglob("*")
        if file.is_file() and file.suffix.lower() not in (".html", ".htm")
    ]


def _refuse_options_of_models(
    data: Path | None, reading: TargetOptions, trust: tuple[str, ...]
) -> None:
    """Refuse options that are for models only, on the page of a folder of results."""
    options = {"data": data, **vars(reading), "trust": trust}
    for name, value in options.items():
        if value not in (None, False, ()):
            raise ValueError(
                f"--{name.replace('_', '-')} belongs to a model; a folder of results has its own "
                "rows."
            )


def _page_of_results(folder: Path, title: str | None) -> tuple[str, list[str]]:
    """Make the page of a folder of results; return it and a sentence about each finding."""
    from dco.report import findings_of, read_results, results_html

    findings = [
        f"{finding.title}: {' '.join(finding.sentences)}"
        for finding in findings_of(read_results(folder))
    ]
    return results_html(folder, title=title), findings


def _page_of_model(
    model: Path,
    data: Path | None,
    title: str | None,
    reading: TargetOptions,
    trust: tuple[str, ...],
) -> str:
    """Make the HTML page about a model file, with coverage and set sizes on the rows of `data`.

    Without `data` the page has neither. Without `title`, the page is named after the target column,
    if that is known. `reading` says how the columns of `data` are read.
    """
    from dco.cli.model_files import fitted_layout, open_model

    if data is None and reading.by is not None:
        raise ValueError("--by needs rows to count: give them with --data.")
    estimator = open_model(model, trust)
    rows = None if data is None else _read_new_rows(estimator, data, reading)

    layout = fitted_layout(estimator)
    if title is None and layout is not None:
        target = reading.target or layout.target
        title = f"{target} by {model.name}" if data is None else f"{target} in {data.name}"
    return model_page(estimator, title=title, model=model, data=data, rows=rows)


def _read_new_rows(estimator: Any, data: Path, reading: TargetOptions) -> KnownRows:
    """Read rows with known targets; the table of the fit is an error, since it proves nothing."""
    from dco.cli.tables.fitted import rows_with_targets, was_fitted_on

    rows = rows_with_targets(estimator, data, reading)
    if was_fitted_on(estimator, rows):
        raise ValueError(
            f"{data} is the table that the model was fitted on: coverage on its rows proves "
            "nothing. Give other rows, or leave --data out."
        )
    return rows


def model_page(
    estimator: Any, *, title: str | None, model: Path, data: Path | None, rows: KnownRows | None
) -> str:
    """Make the HTML page about a model, with the rows of a table if there are any.

    `model` and `data` are the files of the model and of the table: the page says what it was made
    from, and when.
    """
    from dco.foundations.fingerprints import role_fingerprint, row_fingerprints
    from dco.report import page_html

    today = datetime.now().astimezone().date().isoformat()
    today = today.replace("-", "\u2011")  # hyphens at which no line is broken
    source = f"Model: {model.name}. Made on {today}."
    if data is None or rows is None:
        return page_html(estimator, title=title, source=source)

    digest = role_fingerprint(row_fingerprints(rows.X, rows.y))
    source = f"Rows: {len(rows.y)} of {data.name}, fingerprint {digest}. {source}"
    return page_html(estimator, title=title, source=source, **rows.on_page())
