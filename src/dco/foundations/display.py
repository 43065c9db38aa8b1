"""How results show themselves at the end of a notebook cell, and how messages count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

__all__ = [
    "ShownAsPrinted",
    "are",
    "counted",
    "first_few",
    "have",
    "html_table",
    "number",
    "p_in_words",
]


def counted(n: int, noun: str) -> str:
    """Write a count with its noun: "1 row", "2 rows"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def are(n: int) -> str:
    """Return the verb that follows a count."""
    return "is" if n == 1 else "are"


def have(n: int) -> str:
    """Return the verb that follows a count of owners."""
    return "has" if n == 1 else "have"


def first_few(texts: Sequence[str], most: int = 5) -> str:
    """List the first of many texts, at most `most`: "a, b, c, d, e and 7 more"."""
    listed = ", ".join(texts[:most])
    n_more = len(texts) - most
    return f"{listed} and {n_more} more" if n_more > 0 else listed


def number(value: float) -> str:
    """Write a number with four significant digits: 0.123456 -> "0.1235", 123456.7 -> "123457".

    Python alone would write the second with an exponent, 1.235e+05.
    """
    has_long_integer_part = 9999.5 <= abs(value) < 1e7
    return f"{value:.0f}" if has_long_integer_part else f"{value:.4g}"


def p_in_words(value: float) -> str:
    """Write a p-value: "p = 0.012", or "p < 0.0001", since nobody reads a tiny one's exponent."""
    return f"p = {value:.2g}" if value >= 1e-4 else "p < 0.0001"


def html_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", max_rows: int = 30
) -> str:
    """Make the HTML of a table for notebooks, which bring their own style.

    `header` and each row are texts of cells, which are escaped. A header of empty texts is left
    out. Beyond `max_rows` rows, a line below says how many more there are.
    """
    rows = list(rows)
    title = f"<p>{escape(caption)}</p>" if caption else ""
    head = f"<thead><tr>{_html_cells('th', header)}</tr></thead>" if any(header) else ""
    body = "".join(f"<tr>{_html_cells('td', cells)}</tr>" for cells in rows[:max_rows])
    n_more = len(rows) - max_rows
    footer = f"<p>and {n_more} more</p>" if n_more > 0 else ""
    return f"{title}<table>{head}<tbody>{body}</tbody></table>{footer}"


def _html_cells(tag: str, texts: Sequence[str]) -> str:
    """Write texts as cells of one row of a table; `tag` is "td", or "th" in the header."""
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


class ShownAsPrinted:
    """A result that IPython shows as ``print`` does.

    ``repr`` stays complete, for logs and debuggers. Notebooks show `_repr_html_`: the printed text,
    unless the result has a table of its own.
    """

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # set on each subclass, because IPython takes the __repr__ of a dataclass before what the
        # class inherits
        cls._repr_pretty_ = ShownAsPrinted._repr_pretty_  # type: ignore[method-assign]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print to a terminal of IPython, line by line; the signature is IPython's."""
        with printer.group(0):
            for index, line in enumerate(str(self).splitlines()):
                if index > 0:
                    printer.break_()
                printer.text(line)
