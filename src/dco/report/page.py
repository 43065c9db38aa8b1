"""One self-contained HTML page about a fitted estimator: nothing is fetched.

All text that comes from the data (labels, column names, messages) is hostile: Jinja escapes it, and
the embedded JSON holds no ``<``, ``>``, ``&``.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dco.foundations.files import write_file
from dco.report import plots, view, words
from dco.report.formats import (
    decimals_for,
    plain_score,
    threshold_decimals,
    threshold_in_words,
)
from dco.report.numbers import (
    SIMULTANEOUS_DELTA,
    FittedEstimator,
    ReportNumbers,
    report_numbers,
)
from dco.report.rendering import render_template, strict_json

# Characters. Of a longer certificate the beginning is shown, and the whole is packed for copying.
LONG_CERTIFICATE = 60_000
SHOWN_OF_LONG_CERTIFICATE = 15_000
MOST_CANDIDATES = 30
FIRST_CANDIDATES = 8  # before the rest is unfolded
LARGEST_NUMBER = 1e300  # that the script of the page reads as a number


def write_page(
    estimator: FittedEstimator,
    path: Any,
    *,
    X: Any = None,
    y: Any = None,
    by: Any = None,
    title: str | None = None,
    source: str | None = None,
    names: Sequence[str] | None = None,
) -> Path:
    """Write the report to a file; the parameters are those of `page_html`.

    An existing file is replaced only when the page is complete.
    """
    html = page_html(estimator, X=X, y=y, by=by, title=title, source=source, names=names)
    write_file(path, html, overwrite=True)
    return Path(path)


def page_html(
    estimator: FittedEstimator,
    *,
    X: Any = None,
    y: Any = None,
    by: Any = None,
    title: str | None = None,
    source: str | None = None,
    names: Sequence[str] | None = None,
) -> str:
    """Return the report as text; coverage and sizes come from the rows (X, y), if any are given.

    Parameters
    ----------
    by
        A column of X, a function of X or one value for each row: a table by slice is added.
    title
        The title of the page.
    source
        A sentence on what the page was made from.
    names
        What each row is called; otherwise examples go by the number of the row.
    """
    numbers = report_numbers(estimator, X, y, by=by)
    check_names(names, y)
    certificate = numbers.certificate
    shown_certificate, packed_certificate = certificate_texts(certificate.to_json())

    rows = numbers.rows
    examples: list[view.ExampleView] = []
    example_ticks: list[plots.Tick] = []
    if rows is not None:
        examples, example_ticks = view.example_views(numbers, rows, names)

    return render_template(
        "page.html",
        script="page.js",
        title=title or f"Prediction sets of {certificate.structure.candidate}",
        source=source,
        numbers=numbers,
        certificate=certificate,
        score=plain_score(certificate.structure.score),
        shown_certificate=escape(shown_certificate, quote=False),
        packed_certificate=packed_certificate,
        has_conditions=any(entry.group is not None for entry in certificate.thresholds),
        has_law=any(entry.rank is not None for entry in certificate.thresholds),
        box=plots,
        words=words,
        name_above=view.NAME_HEIGHT,
        coverage=view.coverage_figure(numbers),
        conditions=view.largest_conditions(numbers),
        threshold_decimals=threshold_decimals(e.value for e in certificate.thresholds),
        tables=[] if rows is None else [view.table_view(numbers, table) for table in rows.tables],
        sizes=None if rows is None else view.size_figure(numbers, rows),
        size_decimals=view.size_decimals(numbers),
        gaps=view.gap_figure(numbers),
        size_curve=None if rows is None else view.size_curve_figure(numbers),
        scores=view.score_figure(numbers),
        examples=examples,
        example_ticks=example_ticks,
        one_size=rows is not None and view.have_one_size(rows.examples),
        candidates=numbers.ranking.table[:MOST_CANDIDATES],
        first_candidates=FIRST_CANDIDATES,
        candidate_decimals=candidate_decimals(numbers),
        bound_confidence=f"{100 * (1 - SIMULTANEOUS_DELTA):g} %",
        data=strict_json(level_arrays(numbers)),
    )


def check_names(names: Sequence[str] | None, y: Any) -> None:
    """Raise unless there is a name for each row."""
    n = 0 if y is None else len(y)
    if names is not None and len(names) != n:
        raise ValueError(f"names must hold one name for each of {n} rows, got {len(names)}.")


def certificate_texts(text: str) -> tuple[str, str | None]:
    """Return the text of a certificate that is shown, and the whole text packed for copying.

    A short certificate is shown whole, and nothing is packed (None). Of a long one whole lines from
    the beginning are shown; all of it is compressed, in base64.
    """
    if len(text) <= LONG_CERTIFICATE:
        return text, None
    end_of_line = text.rfind("\n", 0, SHOWN_OF_LONG_CERTIFICATE)
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return f"{text[:end_of_line]}\n…", packed


def candidate_decimals(numbers: ReportNumbers) -> int:
    """Return the decimals of the candidates' sizes: two for labels, three digits for lengths."""
    if numbers.n_classes is not None:
        return 2
    sizes_of_best = [row.mean_size for row in numbers.ranking.table[:1]]
    return decimals_for(sizes_of_best, digits=3)


def level_arrays(numbers: ReportNumbers) -> dict[str, Any]:
    """Collect the numbers that the page shows when its reader moves the slider of levels.

    They go into the page as JSON, for `page.js`: a list for each quantity, with one value for each
    level. A quantity that is unknown at some level is left out.
    """
    # 1. A list for each quantity, under the name that `page.js` knows.
    attribute_of_name = {
        "alpha": "alpha",
        "expected": "expected_coverage",
        "coverage": "coverage",
        "mean_size": "mean_size",
        "p95_size": "p95_size",
        "threshold": "threshold",
        "bound": "simultaneous_bound",
    }
    values_of_name = {}
    for name, attribute in attribute_of_name.items():
        values = [getattr(level, attribute) for level in numbers.levels]
        if None not in values:
            values_of_name[name] = json_values(values)

    # 2. The position of the slider, and how sizes are written.
    return {
        "start": numbers.certified_position,
        "size_decimals": view.size_decimals(numbers),
        **values_of_name,
    }


def json_values(values: Iterable[float]) -> list[float | str]:
    """Round numbers to nine digits; write those that JSON or the page's script cannot hold as text.

    Infinity is "∞", and the threshold at the lowest of all scores is "lowest score".
    """
    return [
        threshold_in_words(value) if is_written_as_text(value) else float(f"{value:.9g}")
        for value in values
    ]


def is_written_as_text(value: float) -> bool:
    """Decide whether a value is infinite, or as good as that: the lowest of all scores."""
    return math.isinf(value) or abs(value) > LARGEST_NUMBER
