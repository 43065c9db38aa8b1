"""``dco report``: one HTML page about a model, or about a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dco.cli.options import FILE, decimal_option, example, force_option, trust_option
from dco.cli.printing import as_json, note, noted_warnings, print_json, progress, say


@click.command("report", epilog=example("dco report model.dco --data new_patients.csv --by sex --out report.html"))
@click.argument("model", type=FILE, metavar="MODEL|RESULTS")
@click.option("--data", type=FILE, help="New rows with known targets: without them the page shows no coverage and no sizes.")
@click.option("--target", metavar="COL", help="The target column of DATA.  [default: the one of `dco fit`]")
@click.option("--by", metavar="COL", help="A table by the values of this column.")
@decimal_option(default=None)
@click.option("--ignore-new", is_flag=True, help="Leave out columns that the model was not fitted on.")
@click.option("--title", help="The title of the page.")
@click.option("--out", type=FILE, default=Path("report.html"), show_default=True, help="The HTML file to write.")
@force_option
@trust_option
@as_json
def command(
    model: Path,
    data: Path | None,
    target: str | None,
    by: str | None,
    decimal: str | None,
    ignore_new: bool,
    title: str | None,
    out: Path,
    force: bool,
    trust: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write one self-contained HTML file about a model file, or about a folder of results.

    Such a folder is what `dco compare` or `dco reproduce` wrote. On the page of a model, coverage and sizes come from
    the rows given with --data and from nowhere else: calibration rows are never shown as coverage.
    """
    from dco.cli.model_files import open_model, rows_with_targets
    from dco.cli.outputs import check_output, check_page_name
    from dco.foundations.extras import require

    check_output(out, force=force, inputs=[*(_results(model) if model.is_dir() else [model]), data])
    check_page_name(out)
    require("jinja2", extra="report")
    from dco.report import page

    notes: list[str] = []
    with progress("Writing the page", None, quiet=as_json), noted_warnings(notes):
        if model.is_dir():
            given: dict[str, Any] = {"--data": data, "--target": target, "--by": by, "--decimal": decimal}
            given |= {"--ignore-new": ignore_new or None, "--trust": trust or None}
            for option in [name for name, value in given.items() if value is not None]:
                raise ValueError(f"{option} belongs to a model; a folder of results brings its own rows.")
            page.write_results_page(model, out, title=title)
        else:
            estimator = open_model(model, trust)
            rows = None
            if data is not None:
                rows = rows_with_targets(estimator, data, target=target, by=by, ignore_new=ignore_new, decimal=decimal)
                if rows.seen:
                    raise ValueError(
                        f"{data} is the table that the model was fitted on: coverage on its rows proves nothing. Give other "
                        "rows, or leave --data out."
                    )
            elif by is not None:
                raise ValueError("--by needs rows to count: give them with --data.")
            known = {} if rows is None else {"X": rows.X, "y": rows.y, "by": named(rows.by, by), "names": rows.names}
            stored = getattr(estimator, "table_", None)
            if title is None and stored is not None:
                wanted = target or stored["layout"]["target"]
                title = f"{wanted} by {model.name}" if data is None else f"{wanted} in {data.name}"
            page.write_page(
                estimator, out, title=title, source=source_words(model, data, known.get("X"), known.get("y")), **known
            )
    if as_json:
        print_json({"report": str(out), "notes": notes})
        return
    for sentence in notes:
        note(f"Note: {sentence}")
    say(f"Wrote {out}.")


def _results(folder: Path) -> list[Path]:
    """The files of a folder of results; a page that was written into it may be written again."""
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix.lower() not in (".html", ".htm")]


def named(groups: Any, name: str | None) -> Any:
    """The groups of the rows under the name of their column, by which the page calls them."""
    if groups is None or name is None:
        return None
    from dco.foundations.extras import require

    return require("pandas", extra="tables").Series(groups, name=name)


def source_words(model: Path, data: Path | None, X: Any, y: Any) -> str:
    """What a page was made from, and when: the rows by file and fingerprint, and the model."""
    from datetime import datetime

    from dco.rows.fingerprints import role_fingerprint, row_fingerprints

    today = datetime.now().astimezone().date().isoformat().replace("-", "\u2011")  # hyphens at which no line is broken
    made = f"Model: {model.name}. Made on {today}."
    if data is None or y is None:
        return made
    return f"Rows: {len(y)} of {data.name}, fingerprint {role_fingerprint(row_fingerprints(X, y))}. {made}"
