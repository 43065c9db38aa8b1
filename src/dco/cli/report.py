"""``dco report``: one HTML page about a model, or about a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dco.cli.options import FILE, example, force_option, known_options
from dco.cli.printing import as_json, collected_notes, print_json, print_notes, progress, say


@click.command(
    "report",
    epilog=example("dco report model.dco --data new_patients.csv --by sex --out report.html"),
)
@click.argument("model", type=FILE, metavar="MODEL|RESULTS")
@click.option(
    "--data",
    type=FILE,
    help="New rows with known targets; without them the page shows no coverage and no sizes.",
)
@known_options
@click.option("--title", help="The title of the page.")
@click.option(
    "--out",
    type=FILE,
    default=Path("report.html"),
    show_default=True,
    help="The HTML file to write.",
)
@force_option
@as_json
def command(
    model: Path,
    data: Path | None,
    title: str | None,
    out: Path,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write one self-contained HTML file about a model file, or about a folder of results.

    Such a folder is what `dco compare` or `dco reproduce` wrote. On the page of a model, coverage
    and sizes come only from the rows given with --data: calibration rows are never shown as
    coverage.
    """
    from dco.cli.outputs import check_output, check_page, finish_from_here
    from dco.foundations.files import write_file
    from dco.report.results import found_in, read_results, results_html

    inside = [
        file
        for file in model.rglob("*")
        if file.is_file() and file.suffix.lower() not in (".html", ".htm")
    ]
    # a page may be written again
    check_output(out, force=force, inputs=[*(inside if model.is_dir() else [model]), data])
    check_page(out)
    found: tuple[Any, ...] = ()
    with progress("Writing the page", None, quiet=as_json), collected_notes() as notes:
        if model.is_dir():
            for name in [
                name
                for name, value in {"data": data, **options}.items()
                if value not in (None, False, ())
            ]:
                raise ValueError(
                    f"--{name.replace('_', '-')} belongs to a model; a folder of "
                    f"results has its own rows."
                )
            page = results_html(model, title=title)
            found = found_in(read_results(model))
        else:
            page = _page_of_model(model, data, title, **options)
        finish_from_here()
        write_file(out, page, overwrite=force)
    if as_json:
        print_json({"report": str(out), "notes": notes})
        return
    print_notes(notes)
    say(*(f"{each.title}: {' '.join(each.sentences)}" for each in found), f"Wrote {out}.")


def _page_of_model(
    model: Path, data: Path | None, title: str | None, *, trust: Any, **options: Any
) -> str:
    """Make the page of a model file."""
    from dco.cli.model_files import fitted_layout, open_model

    estimator, rows = open_model(model, trust), None
    if data is not None:
        from dco.cli.tables.fitted import TargetOptions, rows_with_targets, was_fitted_on

        rows = rows_with_targets(estimator, data, TargetOptions(**options))
        if was_fitted_on(estimator, rows):
            raise ValueError(
                f"{data} is the table that the model was fitted on: coverage on its rows proves "
                f"nothing. Give other rows, "
                "or leave --data out."
            )
    elif options["by"] is not None:
        raise ValueError("--by needs rows to count: give them with --data.")
    layout = fitted_layout(estimator)
    if title is None and layout is not None:
        wanted = options["target"] or layout.target
        title = f"{wanted} by {model.name}" if data is None else f"{wanted} in {data.name}"
    return model_page(estimator, title=title, model=model, data=data, rows=rows)


def model_page(
    estimator: Any, *, title: str | None, model: Path, data: Path | None, rows: Any
) -> str:
    """Make the page about a model and `rows` (KnownRows) of `data`.

    It says what it was made from, and when.
    """
    from datetime import datetime

    from dco.foundations.fingerprints import role_fingerprint, row_fingerprints
    from dco.report import page

    # hyphens at which no line is broken
    today = datetime.now().astimezone().date().isoformat().replace("-", "\u2011")
    source, shown = f"Model: {model.name}. Made on {today}.", {} if rows is None else rows.on_page()
    if data is not None and rows is not None:
        digest = role_fingerprint(row_fingerprints(rows.X, rows.y))
        source = f"Rows: {len(rows.y)} of {data.name}, fingerprint {digest}. {source}"
    return page.page_html(estimator, title=title, source=source, **shown)
