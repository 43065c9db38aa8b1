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
    """A count with its noun: "1 row", "2 rows"."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def are(n: int) -> str:
    """The verb that follows a count."""
    return "is" if n == 1 else "are"


def have(n: int) -> str:
    """The verb that follows a count of owners."""
    return "has" if n == 1 else "have"


def first_few(texts: Sequence[str], most: int = 5) -> str:
    """The first few of many texts, and how many there are besides: a message with thousands of
    names is not read.
    """
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def number(value: float) -> str:
    """Four significant digits, and no exponent where a person would write none."""
    return f"{value:.0f}" if 9999.5 <= abs(value) < 1e7 else f"{value:.4g}"


def p_in_words(value: float) -> str:
    """A p-value; nobody reads the exponent of a tiny one."""
    return f"p = {value:.2g}" if value >= 1e-4 else "p < 0.0001"


def html_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", most: int = 30
) -> str:
    """A table for notebooks, which bring their own style; texts are escaped."""
    body = list(rows)
    more = f"<p>and {len(body) - most} more</p>" if len(body) > most else ""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    cells = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in body[:most]
    )
    top = f"<thead><tr>{names}</tr></thead>" if any(head) else ""
    return f"<p>{escape(caption)}</p><table>{top}<tbody>{cells}</tbody></table>{more}".removeprefix(
        "<p></p>"
    )


class ShownAsPrinted:
    """A result that IPython shows as ``print`` does; ``repr`` stays complete, for logs and
    debuggers.

    Notebooks show `_repr_html_`: the printed text, unless the result has a table of its own.
    """

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._repr_pretty_ = ShownAsPrinted._repr_pretty_  # type: ignore[method-assign]  # IPython takes the __repr__ of a dataclass first

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # IPython's signature
        with printer.group(0):
            for number, line in enumerate(str(self).splitlines()):
                if number:
                    printer.break_()
                printer.text(line)
