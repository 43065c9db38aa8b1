"""One self-contained HTML page about a fitted estimator: nothing is fetched, and nothing is
computed in the browser.

`page_html` is pure; `write_page` writes beside the target and renames. All text that comes from the
data (labels, column names, messages) is hostile: Jinja escapes it, and the embedded JSON holds no
``<``, ``>``, ``&``.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from dco.foundations.files import write_whole
from dco.report.numbers import PICKED_DELTA, report_numbers
from dco.report.rendering import render_template, strict_json
from dco.report.view import build_view

# characters; of a longer one the beginning is shown, and the whole is packed for copying
_LONG_CERTIFICATE = 60_000


def write_page(
    estimator: Any,
    path: Any,
    *,
    X: Any = None,
    y: Any = None,
    by: Any = None,
    title: str | None = None,
    source: str | None = None,
    names: Sequence[str] | None = None,
) -> Path:
    """Write `page_html` to `path`; an existing file is replaced only when the new one is
    complete.
    """
    write_whole(
        path, page_html(estimator, X=X, y=y, by=by, title=title, source=source, names=names)
    )
    return Path(path)


def page_html(
    estimator: Any,
    *,
    X: Any = None,
    y: Any = None,
    by: Any = None,
    title: str | None = None,
    source: str | None = None,
    names: Sequence[str] | None = None,
) -> str:
    """The report as text; coverage and sizes come from the rows (X, y), if any are given.

    `by` holds one value per row and adds the table by slice. `source` is a sentence on what the
    page was made from, shown below the guarantee. `names` says what each row is called; otherwise
    examples go by the number of the row.
    """
    numbers = report_numbers(estimator, X, y, by=by)
    count = 0 if numbers.rows is None else len(numbers.rows.y)
    if names is not None and len(names) != count:
        raise ValueError(f"names must hold one name for each of {count} rows, got {len(names)}.")
    live, view = build_view(numbers, names)
    certificate, packed = numbers.certificate, None
    text = certificate.to_json()
    if len(text) > _LONG_CERTIFICATE:
        packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
        text = text[: text.rfind("\n", 0, _LONG_CERTIFICATE // 4)] + "\n…"
    return render_template(
        "page.html",
        script="page.js",
        title=title or f"Prediction sets of {certificate.candidate}",
        source=source,
        numbers=numbers,
        n_rows=count,
        certificate=certificate,
        certificate_text=escape(text, quote=False),
        packed_certificate=packed,
        live=live,
        view=view,
        data=strict_json(live.data(numbers)),
        picked_confidence=f"{100 * (1 - PICKED_DELTA):g} %",
    )
