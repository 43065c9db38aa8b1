"""Options that several commands share, and the parameters of messages spelled as options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dco.foundations.notes import Message, Note, NoteWarning, show

if TYPE_CHECKING:
    from dco.cli.tables.layout import AskedColumns

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator = Callable[[Any], Any]

FILE = click.Path(path_type=Path)
_DELTA = 0.05
_OBJECTIVES = "dco.tuning.objectives:OBJECTIVES"
_RULES = "dco.calibration.rules:RULES"
_OF_MODEL = "that of the model"
_MODELS = {
    "dco.models.QuantilePair(model)": "quantiles",
    "dco.models.ResidualSpread(model)": "spread",
}


def spelled(found: Exception, *, target: str | None = None) -> str:
    """The message of an error or a warning with its parameters as options: ⟨calibrate_size=9⟩ is
    --calibrate-size 9.
    """
    message = found.note if isinstance(found, NoteWarning) else found.args[0] if found.args else ""
    spell = partial(option, target=target)
    return message.spelled(spell) if isinstance(message, (Message, Note)) else str(found)


def option(name: str, value: str | None, *, target: str | None = None) -> str:
    """A parameter as the command line writes it; the label is the column `target`."""
    if name == "support":
        return "--range" if value is None else "--range 0 inf"
    text = _MODELS.get(value or "", value or "").strip('"')
    if (name, text) == ("condition_on", "label"):
        text = "TARGET" if target is None else quote(target)
    return f"--{name.replace('_', '-')} {text}".rstrip()


class LevelType(click.ParamType[float]):
    """A probability strictly between 0 and 1, as a decimal, a fraction (1/20) or a percentage
    (5%).
    """

    name = "level"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number that was written, exactly, as the nearest float."""
        try:
            text = str(value).strip()
            exact = Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)
        except (ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is not a number; write 0.1, 1/10 or 10%.", param, ctx)
        if not 0 < exact < 1:
            meant = f" Did you mean {text}%?" if 1 < exact < 100 and not text.endswith("%") else ""
            if meant and exact > 50 and param is not None and "--alpha" in param.opts:  # a coverage
                alpha, confidence = float(1 - exact / 100), float(exact / 100)
                meant = (
                    f" For {text} % coverage, use --alpha {alpha:g} or --confidence {confidence:g}."
                )
            self.fail(f"{value!r} must lie strictly between 0 and 1.{meant}", param, ctx)
        return float(exact)


class SizeType(click.ParamType[int | float]):
    """A number of rows (500) or a share of them (0.25); 0 if it is allowed."""

    name = "rows or share"

    def __init__(self, *, zero: bool = False) -> None:
        self.zero = zero

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float:
        """An integer is a count, a number below 1 a share."""
        text = str(value).strip()
        if text.isdigit() and (int(text) > 0 or self.zero):
            return int(text)
        share = 0.0
        with suppress(ValueError):
            share = float(text)
        if not 0 < share < 1:
            self.fail(
                f"{value!r} is neither a number of rows nor a share between 0 and 1.",
                param,
                ctx,
            )
        return share


class WholeType(click.IntRange):
    """A whole number from `min` on."""

    name = "integer"


class NameType(click.ParamType[str]):
    """The name of a registered member of a family, which is imported when a value is read or help
    is printed.
    """

    def __init__(self, name: str, family: str) -> None:
        self.name = name
        self.family = family

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """The names, as a choice."""
        return f"[{'|'.join(resolve_name(self.family))}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """One of the names."""
        names: list[str] = list(resolve_name(self.family))
        return click.Choice(names).convert(value, param, ctx)


LEVEL = LevelType()


def example(*lines: str) -> str:
    """The last lines of a command's help: an example that works."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def combined(*options: Decorator) -> Decorator:
    """Several options as one decorator, in this order."""

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def level_options(default: str = "0.1") -> Decorator:
    """--alpha and --confidence, of which one may be given, once."""
    said = f"Share of rows whose set may miss the true value.  [default: {default}]"
    return combined(
        click.option("--alpha", type=LEVEL, multiple=True, callback=_once, help=said),
        click.option(
            "--confidence",
            type=LEVEL,
            multiple=True,
            callback=_once,
            help="1 - alpha, instead of --alpha.",
        ),
    )


def _once(ctx: click.Context, param: click.Parameter, values: tuple[float, ...]) -> float | None:
    """One level; two are an error, where Click would keep the last."""
    if len(values) > 1:
        given = ", ".join(f"{value:g}" for value in values)
        raise click.UsageError(
            f"{param.opts[0]} is given {len(values)} times ({given}): a run "
            f"has one level, so give one."
        )
    return values[0] if values else None


def joined(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str | None:
    """A list that is given in several parts, where Click would keep the last part."""
    return ",".join(values) if values else None


def _processes(ctx: click.Context, param: click.Parameter, number: int | None) -> int | None:
    """A number of processes as joblib counts them; 0 is refused before anything is read or
    written.
    """
    if number == 0:
        raise click.BadParameter("0 processes can do nothing; give 1 or more, or -1 for all cores.")
    return number


def chosen_alpha(
    alpha: float | None, confidence: float | None, *, default: float | None = 0.1
) -> float | None:
    """The level that was asked for."""
    if alpha is not None and confidence is not None:
        raise click.UsageError(
            "--alpha and --confidence say the same thing twice: give one of them."
        )
    if confidence is not None:
        return float(1 - Fraction(str(confidence)))
    return default if alpha is None else alpha


def note_large(alpha: float | None) -> None:
    """Note an alpha above one half: it is often a coverage that was meant."""
    if alpha is not None and alpha > 0.5:
        text = (
            f"alpha = {alpha:g} lets up to {alpha:.4g} of all sets miss the true value: only "
            f"{1 - alpha:.4g} is promised."
        )
        show([Note("large-alpha", text, f"For coverage {alpha:.4g}, use --alpha {1 - alpha:.4g}.")])


def guarantee_options(*, of_model: bool = False) -> Decorator:
    """--guarantee and --delta; a fitted model has its own, and gives others from the same
    calibration rows.
    """
    said = (
        "marginal: on average over calibrations. pac: for this calibration, with confidence 1 "
        "- delta."
    )
    said += f"  [default: {_OF_MODEL if of_model else 'marginal'}]"
    delta = (
        f"Failure probability of a PAC guarantee.  [default: {_OF_MODEL if of_model else _DELTA}]"
    )
    return combined(
        click.option(
            "--guarantee",
            type=NameType("guarantee", _RULES),
            default=None if of_model else "marginal",
            help=said,
        ),
        click.option("--delta", type=LEVEL, help=delta),
    )


def chosen_delta(guarantee: str, delta: float | None) -> float:
    """The delta that was asked for; one that would be ignored is an error."""
    rules = resolve_name(_RULES)
    if delta is not None and not rules[guarantee].needs_delta:
        names = " or ".join(name for name, rule in rules.items() if rule.needs_delta)
        raise click.UsageError(
            f"--delta belongs to --guarantee {names}: a {guarantee} guarantee has none. Give both "
            f"or neither."
        )
    return _DELTA if delta is None else delta


def asked_columns(options: Mapping[str, Any]) -> AskedColumns:
    """Collect what the options of a command say about columns."""
    from dco.cli.tables.layout import AskedColumns

    return AskedColumns(
        target=options["target"],
        task=options["task"],
        conditions=tuple(dict.fromkeys(options.get("condition_on") or ())),
        groups=options["groups"],
        key=options.get("key"),
        dropped=options["drop"],
        decimal=options["decimal"],
        date_order=options["dates"],
        drop_missing_target=options["drop_missing_target"],
    )


def chosen_names(text: str | None, offered: Sequence[str], *, option: str) -> list[str] | None:
    """The names in a comma-separated list, each one that is offered; None if there is no list."""
    if text is None:
        return None
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in offered]
    if unknown or not names:
        said = (
            f"names {unknown[0]!r}, which is not offered for this task"
            if unknown
            else "names nothing"
        )
        raise ValueError(f"{option} {said}; choose from {', '.join(offered)}, separated by commas.")
    return list(dict.fromkeys(names))


def chosen_models(text: str | None, task: str) -> list[str] | None:
    """The models of --models; None for the defaults of the task."""
    from dco.tuning.defaults import NAMES

    return chosen_names(text, NAMES[task], option="--models")


def chosen_scores(text: str | None, task: str) -> list[Any] | None:
    """The scores of --scores; None lets every model try those that suit it."""
    from dco.scores.registry import short_names

    offered = short_names(classes=task == "classification")
    names = chosen_names(text, list(offered), option="--scores")
    return None if names is None else [score for name in names for score in offered[name]]


model_options = combined(level_options(_OF_MODEL), guarantee_options(of_model=True))
scheduler_option = click.option(
    "--scheduler", metavar="ADDRESS", help="Run on a Dask cluster, e.g. tcp://host:8786."
)
jobs_option = partial(click.option, "--jobs", type=int, callback=_processes)
work_options = combined(
    jobs_option(default=1, show_default=True, help="Number of processes; -1 uses all cores."),
    scheduler_option,
)
force_option = click.option("--force", is_flag=True, help="Overwrite existing outputs.")
resume_option = click.option(
    "--resume", is_flag=True, help="Continue a stopped run; the options must be the same."
)
sample_option = click.option(
    "--sample-rows",
    type=WholeType(min=3),
    help="Use this many rows, drawn at random from all files of DATA; for tables larger than "
    "memory.",
)
seed_option = click.option(
    "--seed",
    type=WholeType(min=0),
    default=0,
    show_default=True,
    help="Seed of all random choices.",
)


def objective_option(default: str | None) -> Decorator:
    """--objective, by name; None: as the estimators have it."""
    said = (
        "What the search minimises. even: mean size, but no class, fifth of the prediction or "
        "--by value may be left "
    )
    said += "behind." + ("" if default else "  [default: even for numbers, mean_size for labels]")
    return click.option(
        "--objective",
        type=NameType("objective", _OBJECTIVES),
        default=default,
        show_default=bool(default),
        help=said,
    )


folds_option = click.option(
    "--tune-folds",
    type=WholeType(min=2),
    help="Rank candidates by folds; tuning then takes no rows.",
)
trust_option = click.option(
    "--trust",
    multiple=True,
    metavar="TYPE",
    help="Load this type (full name) from the model file; only if you trust the author of the "
    "file.",
)


def decimal_option(*, default: str | None) -> Decorator:
    """--decimal; None is that of the model."""
    said = "Decimal sign of numbers in text cells." + (
        "" if default else f"  [default: {_OF_MODEL}]"
    )
    return click.option(
        "--decimal",
        type=click.Choice([".", ","]),
        default=default,
        show_default=bool(default),
        help=said,
    )


# A table to fit on.
table_options = combined(
    click.argument("data", type=FILE),
    click.option("--target", required=True, metavar="COL", help="The column to predict."),
    click.option(
        "--task",
        type=click.Choice(["classification", "regression"]),
        help="Inferred from the target if omitted.",
    ),
    click.option(
        "--models",
        metavar="LIST",
        multiple=True,
        callback=joined,
        help="linear, forest, boosting; for numbers also linear-log, boosting-log, shallow, "
        "quantiles, spread.",
    ),
    click.option(
        "--groups",
        metavar="COL",
        help="Rows with the same value here stay in one role; not a feature.",
    ),
    click.option(
        "--drop",
        multiple=True,
        metavar="COL",
        help="A column that is not a feature; can be repeated.",
    ),
    click.option(
        "--drop-missing-target",
        is_flag=True,
        help="Leave out rows without a target; they are counted in a note.",
    ),
    decimal_option(default="."),
    click.option(
        "--dates",
        type=click.Choice(["day-first", "month-first"]),
        help="How to read dates such as 01/02/2026, where day and month cannot be told apart.",
    ),
)
# A table with known targets for a fitted model.
target_options = combined(
    click.option(
        "--target",
        metavar="COL",
        help="The column with the true values.  [default: that of `dco fit`]",
    ),
    decimal_option(default=None),
    click.option(
        "--ignore-new", is_flag=True, help="Ignore columns that the model was not fitted on."
    ),
    trust_option,
)
known_options = combined(
    click.option("--by", metavar="COL", help="Also report by the values of this column."),
    target_options,
)
