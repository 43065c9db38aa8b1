"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)
_DELTA = 0.05
_PARAMETER = re.compile(  # no part of a path or of another word: tune_size.csv, data/groups=7/rows.csv
    r"""(?<![\w'"./\\-])(?>(?:(tune_size|calibrate_size|tune_folds|condition_on)\b|(groups)(?==))"""
    r"""(?:="?(\w+(?:\.\w+)?(?:-\d+)?|)"?)?)(?![/\\-]|\.\w)"""
)
_MAKERS = {"dco.models.QuantilePair(model)": "--models quantiles", "dco.models.ResidualSpread(model)": "--models spread"}


class LevelType(click.ParamType[float]):
    """A probability strictly between 0 and 1, as a decimal, a fraction (1/20) or a percentage (5%)."""

    name = "level"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number that was written, exactly, as the nearest float."""
        try:
            text = str(value).strip()
            exact = Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)
        except (ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is not a number; write 0.1, 1/10 or 10%.", param, ctx)
        if not 0 < exact < 1:
            percent = f" Did you mean {text}%?" if 1 < exact < 100 and not text.endswith("%") else ""
            self.fail(f"{value!r} must lie strictly between 0 and 1.{percent}", param, ctx)
        return float(exact)


class JobsType(click.ParamType[int]):
    """A number of processes, as joblib counts them: -1 is one a core, and none is no number."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Refused before anything is read or written."""
        number: int = click.INT.convert(value, param, ctx)
        if number == 0:
            self.fail("0 processes can do nothing; give 1 or more, or -1 for one a core.", param, ctx)
        return number


class SizeType(click.ParamType[int | float | str]):
    """A number of rows (500), or a share of them (0.25); "auto" where it is offered."""

    name = "rows or share"

    def __init__(self, *, auto: bool = False, none: bool = False) -> None:
        self.auto = auto
        self.none = none

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | float | str:
        """An integer is a count, a number below 1 a share."""
        if self.auto and value == "auto":
            return "auto"
        text = str(value).strip()
        if text.isdigit() and (int(text) > 0 or self.none):
            return int(text)
        try:
            share = float(text)
        except ValueError:
            share = 0.0
        if not 0 < share < 1:
            word = ', or "auto"' if self.auto else ""
            self.fail(f"{value!r} is neither a number of rows nor a share between 0 and 1{word}.", param, ctx)
        return share


LEVEL = LevelType()


class WholeType(click.IntRange):
    """A whole number from `min` on."""

    name = "integer"


def in_options(sentence: str) -> str:
    """A sentence of the library with its parameters as options of the commands: calibrate_size=9 is --calibrate-size 9."""
    for maker, option in _MAKERS.items():
        sentence = sentence.replace(maker, option)
    return _PARAMETER.sub(lambda found: _option(found[1] or found[2], found[3]), sentence)


def _option(name: str, value: str | None) -> str:
    return f"--{name.replace('_', '-')}" + (f" {value}" if value else "")


def example(*lines: str) -> str:
    """The last lines of a command's help: an example that works."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def level_options(function: Function) -> Function:
    """--alpha and --confidence, of which one may be given, once; a level of 0.1 where none is."""
    return _levels(function, default="0.1")


def model_level_options(function: Function) -> Function:
    """The same for a model that is fitted, which has a level of its own."""
    return _levels(function, default="the level of the model")


def _levels(function: Function, *, default: str) -> Function:
    function = click.option(
        "--confidence", type=LEVEL, multiple=True, callback=_once, help="1 − alpha, for those who prefer to say it so."
    )(function)
    said = f"The share of rows that may be missed.  [default: {default}]"
    return click.option("--alpha", type=LEVEL, multiple=True, callback=_once, help=said)(function)


def _once(ctx: click.Context, param: click.Parameter, values: tuple[float, ...]) -> float | None:
    """One level; two are an error, where Click would keep the last."""
    if len(values) > 1:
        given = ", ".join(f"{value:g}" for value in values)
        raise click.UsageError(f"{param.opts[0]} is given {len(values)} times ({given}): a run has one level, so give one.")
    return values[0] if values else None


def chosen_alpha(alpha: float | None, confidence: float | None, *, default: float | None = 0.1) -> float | None:
    """The one level that was asked for."""
    if alpha is not None and confidence is not None:
        raise click.UsageError("--alpha and --confidence say the same thing twice: give one of them.")
    if confidence is not None:
        return float(1 - Fraction(str(confidence)))
    return default if alpha is None else alpha


def guarantee_options(function: Function) -> Function:
    """--guarantee and --delta."""
    said = f"How often a PAC promise may fail; with --guarantee pac.  [default: {_DELTA}]"
    function = click.option("--delta", type=LEVEL, help=said)(function)
    return click.option(
        "--guarantee",
        type=click.Choice(["marginal", "pac"]),
        default="marginal",
        show_default=True,
        help="marginal: over rows and calibration together. pac: for this calibration, with confidence 1 − delta.",
    )(function)


def chosen_delta(guarantee: str, delta: float | None) -> float:
    """The delta that was asked for; one that would be ignored is an error."""
    if delta is not None and guarantee != "pac":
        raise click.UsageError("--delta belongs to --guarantee pac: a marginal guarantee has none. Give both or neither.")
    return _DELTA if delta is None else delta


def model_guarantee_options(function: Function) -> Function:
    """The same for a model that is fitted: another statement from the same calibration rows."""
    said = "How often a PAC promise may fail; with --guarantee pac.  [default: that of the model]"
    function = click.option("--delta", type=LEVEL, help=said)(function)
    said = "marginal or pac.  [default: the guarantee of the model]"
    return click.option("--guarantee", type=click.Choice(["marginal", "pac"]), help=said)(function)


def work_options(function: Function) -> Function:
    """--jobs and --scheduler."""
    function = click.option("--scheduler", metavar="ADDRESS", help="Run on a Dask cluster, e.g. tcp://host:8786.")(function)
    return click.option("--jobs", type=JobsType(), default=1, show_default=True, help="Processes; -1 is one a core.")(
        function
    )


def decimal_option(*, default: str | None) -> Callable[[Function], Function]:
    """--decimal: the sign before the decimals; None is that of the model."""
    said = "The sign before the decimals in cells of text." + ("" if default else "  [default: that of the fit]")
    return click.option("--decimal", type=click.Choice([".", ","]), default=default, show_default=bool(default), help=said)


def force_option(function: Function) -> Function:
    """--force: outputs are otherwise never overwritten."""
    return click.option("--force", is_flag=True, help="Replace an output that is there already.")(function)


def trust_option(function: Function) -> Function:
    """--trust TYPE, for model files with types of one's own."""
    return click.option(
        "--trust",
        multiple=True,
        metavar="TYPE",
        help="Build this type, named in full, from the model file; only for files whose writer you trust.",
    )(function)
