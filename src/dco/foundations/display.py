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
    """List the first few of many texts, and say how many more there are."""
    listed = ", ".join(texts[:most])
    n_more = len(texts) - most
    return f"{listed} and {n_more} more" if n_more > 0 else listed


def number(value: float) -> str:
    """Write four significant digits, and no exponent where a person would write none."""
    return f"{value:.0f}" if 9999.5 <= abs(value) < 1e7 else f"{value:.4g}"


def p_in_words(value: float) -> str:
    """Write a p-value; nobody reads the exponent of a tiny one."""
    return f"p = {value:.2g}" if value >= 1e-4 else "p < 0.0001"


def html_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", most: int = 30
) -> str:
    """Make a table for notebooks, which bring their own style; texts are escaped."""
    all_rows = list(rows)
    title = f"<p>{escape(caption)}</p>" if caption else ""
    header = f"<thead><tr>{_html_cells('th', head)}</tr></thead>" if any(head) else ""
    body = "".join(f"<tr>{_html_cells('td', cells)}</tr>" for cells in all_rows[:most])
    n_more = len(all_rows) - most
    footer = f"<p>and {n_more} more</p>" if n_more > 0 else ""
    return f"{title}<table>{header}<tbody>{body}</tbody></table>{footer}"


def _html_cells(tag: str, texts: Sequence[str]) -> str:
    """Write texts as cells of one row of a table."""
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
        # otherwise IPython takes the __repr__ of a dataclass first
        cls._repr_pretty_ = ShownAsPrinted._repr_pretty_  # type: ignore[method-assign]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # IPython's signature
        with printer.group(0):
            for index, line in enumerate(str(self).splitlines()):
                if index > 0:
                    printer.break_()
                printer.text(line)
