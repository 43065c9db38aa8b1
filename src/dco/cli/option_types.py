"""Kinds of values that options take: levels, sizes, names of registered members."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click

FILE = click.Path(path_type=Path)


class LevelType(click.ParamType[float]):
    """A probability strictly between 0 and 1: a decimal, a fraction (1/20) or a percentage (5%)."""

    name = "level"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a level exactly, and return the nearest float: "1/20" and "5%" -> 0.05."""
        text = str(value).strip()
        try:
            level = Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)
        except (ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is not a number; write 0.1, 1/10 or 10%.", param, ctx)

        if not 0 < level < 1:
            is_alpha = param is not None and "--alpha" in param.opts
            advice = _advise_percentage(text, level, is_alpha=is_alpha)
            self.fail(f"{value!r} must lie strictly between 0 and 1.{advice}", param, ctx)
        return float(level)


def _advise_percentage(text: str, number: Fraction, *, is_alpha: bool) -> str:
    """Say what somebody meant who wrote 5 or 90 as a level; "" if that cannot be guessed.

    `text` is what was written, `number` its value. A number above 50 for alpha, the share of
    misses, was meant as the share of hits.
    """
    may_be_percentage = 1 < number < 100 and not text.endswith("%")
    if not may_be_percentage:
        return ""
    is_share_of_hits = is_alpha and number > 50
    if not is_share_of_hits:
        return f" Did you mean {text}%?"
    confidence = number / 100
    return (
        f" For {text} % coverage, use --alpha {float(1 - confidence):g} or --confidence "
        f"{float(confidence):g}."
    )


class SizeType(click.ParamType[int | float]):
    """A number of rows (500) or a share of them (0.25); 0 rows if `zero` allows it."""

    name = "rows or share"

    def __init__(self, *, zero: bool = False) -> None:
        self.zero = zero

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float:
        """Read a number of rows as an integer, a share as a float: "500" -> 500, "0.25" -> 0.25."""
        text = str(value).strip()
        if text.isdigit() and (int(text) > 0 or self.zero):
            return int(text)

        share = 0.0
        with suppress(ValueError):
            share = float(text)
        if not 0 < share < 1:
            problem = f"{value!r} is neither a number of rows nor a share between 0 and 1."
            self.fail(problem, param, ctx)
        return share


class WholeType(click.IntRange):
    """A whole number from `min` on."""

    name = "integer"


class NameType(click.ParamType[str]):
    """The name of a registered guarantee, objective or member of another family.

    `family` says where the registry is ("dco.calibration:GUARANTEES"). It is imported only when a
    value is read or help is printed, so that a command starts quickly.
    """

    def __init__(self, name: str, family: str) -> None:
        self.name = name
        self.family = family

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Show the names as a choice."""
        return f"[{'|'.join(resolve_name(self.family))}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return one of the names."""
        names: list[str] = list(resolve_name(self.family))
        return click.Choice(names).convert(value, param, ctx)


LEVEL = LevelType()
