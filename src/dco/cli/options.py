"""Options that several commands share, and the records in which they reach a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import wraps
from pkgutil import resolve_name
from typing import Any, TypeAlias

import click

from dco.cli.option_records import (
    AskedColumns,
    Guarantee,
    OtherPromise,
    Promise,
    TargetOptions,
    Work,
)
from dco.cli.option_types import LEVEL, NameType, WholeType
from dco.foundations.notes import Note

Decorator: TypeAlias = Callable[[Any], Any]

USUAL_ALPHA = 0.1
_USUAL_DELTA = 0.05
_OBJECTIVES = "dco.tuning.objectives:OBJECTIVES"
_GUARANTEES = "dco.calibration:GUARANTEES"
_OF_MODEL = "that of the model"


# --- putting options together ---------------------------------------------------------------------


def combine(*options: Decorator) -> Decorator:
    """Put several options together as one decorator, in this order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def as_record(name: str, record: Callable[..., Any], *options: Decorator) -> Decorator:
    """Add options to a command, and pass their values to it together, as one argument.

    For example, with ``as_record("work", Work, jobs_option(), scheduler_option)`` the command gets
    ``work=Work(jobs=..., scheduler=...)`` in place of two arguments. `record` is a class or a
    function; it takes every option of the command that has the name of one of its parameters.
    """
    parameters = inspect.signature(record).parameters

    def decorate(command: Any) -> Any:
        @wraps(command)
        def command_with_record(**option_values: Any) -> Any:
            fields = {}
            for parameter in parameters:
                if parameter in option_values:
                    fields[parameter] = option_values.pop(parameter)
            option_values[name] = record(**fields)
            return command(**option_values)

        return combine(*options)(command_with_record)

    return decorate


def example(*lines: str) -> str:
    """Write the last lines of a command's help: an example that works."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


# --- the promise ----------------------------------------------------------------------------------


def _level_options(default: str) -> Decorator:
    """Add the options --alpha and --confidence = 1 - alpha; `default` is for their help."""
    return combine(
        click.option(
            "--alpha",
            type=LEVEL,
            multiple=True,
            callback=_refuse_twice,
            help=f"Share of rows whose set may miss the true value.  [default: {default}]",
        ),
        click.option(
            "--confidence",
            type=LEVEL,
            multiple=True,
            callback=_refuse_twice,
            help="1 - alpha, instead of --alpha.",
        ),
    )


def _refuse_twice(
    ctx: click.Context, param: click.Parameter, values: tuple[float, ...]
) -> float | None:
    """Return the level, or None if it is not given; two levels are an error."""
    if len(values) > 1:
        listed = ", ".join(f"{value:g}" for value in values)
        raise click.UsageError(
            f"{param.opts[0]} is given {len(values)} times ({listed}): a run has one level, so "
            "give one."
        )
    return values[0] if values else None


def _choose_alpha(alpha: float | None, confidence: float | None) -> float | None:
    """Return alpha from the two options; None if neither is given."""
    if alpha is not None and confidence is not None:
        raise click.UsageError(
            "--alpha and --confidence say the same thing twice: give one of them."
        )
    if confidence is not None:
        return float(1 - Fraction(str(confidence)))
    return alpha


def _choose_alpha_or_usual(alpha: float | None, confidence: float | None) -> float:
    asked = _choose_alpha(alpha, confidence)
    return USUAL_ALPHA if asked is None else asked


def _guarantee_options(*, default: str | None) -> Decorator:
    """Add the options --guarantee (marginal or pac) and --delta, the probability that pac fails.

    `default` is the guarantee without the option. None is for commands that take a fitted model:
    help then says "that of the model".
    """
    default_delta = _OF_MODEL if default is None else _USUAL_DELTA
    return combine(
        click.option(
            "--guarantee",
            type=NameType("guarantee", _GUARANTEES),
            default=default,
            help=(
                "marginal: coverage is at least 1 - alpha on average over draws of the calibration "
                "rows. pac: with these calibration rows it is at least 1 - alpha, except with "
                "probability delta.  "
                f"[default: {default or _OF_MODEL}]"
            ),
        ),
        click.option(
            "--delta",
            type=LEVEL,
            help=f"Failure probability of a PAC guarantee.  [default: {default_delta}]",
        ),
    )


def _make_promise(
    alpha: float | None, confidence: float | None, guarantee: Guarantee, delta: float | None
) -> Promise:
    check_delta(guarantee, delta)
    return Promise(
        alpha=_choose_alpha_or_usual(alpha, confidence),
        guarantee=guarantee,
        delta=_USUAL_DELTA if delta is None else delta,
    )


def _make_other_promise(
    alpha: float | None, confidence: float | None, guarantee: str | None, delta: float | None
) -> OtherPromise:
    return OtherPromise(_choose_alpha(alpha, confidence), guarantee, delta)


def check_delta(guarantee: str, delta: float | None) -> None:
    """Refuse a delta (failure probability) that the guarantee would ignore."""
    guarantees = resolve_name(_GUARANTEES)
    if delta is not None and not guarantees[guarantee].needs_delta:
        names = " or ".join(name for name, rule in guarantees.items() if rule.needs_delta)
        raise click.UsageError(
            f"--delta belongs to --guarantee {names}: a {guarantee} guarantee has none. Give both "
            "or neither."
        )


def note_large_alpha(alpha: float | None) -> list[Note]:
    """Write a note about an alpha above one half: often the coverage was meant."""
    if alpha is None or alpha <= 0.5:
        return []
    return [
        Note(
            "large-alpha",
            f"alpha = {alpha:g} lets up to {alpha:.4g} of all sets miss the true value: only "
            f"{1 - alpha:.4g} is promised.",
            f"For coverage {alpha:.4g}, use --alpha {1 - alpha:.4g}.",
        )
    ]


level_option = as_record("alpha", _choose_alpha_or_usual, _level_options(str(USUAL_ALPHA)))
promise_options = as_record(
    "promise",
    _make_promise,
    _level_options(str(USUAL_ALPHA)),
    _guarantee_options(default="marginal"),
)
model_options = as_record(
    "promise", _make_other_promise, _level_options(_OF_MODEL), _guarantee_options(default=None)
)


# --- names in lists -------------------------------------------------------------------------------


def join_lists(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> list[str] | None:
    """Read names separated by commas: ("linear,forest", "boosting") -> three names.

    The option may be repeated. None if it is not given.
    """
    if not values:
        return None
    names = [name.strip().lower() for name in ",".join(values).split(",") if name.strip()]
    if not names:
        raise click.BadParameter("it names nothing; give names, separated by commas.")
    return list(dict.fromkeys(names))


def drop_repeats(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the values of an option without repeated ones, in their order."""
    return tuple(dict.fromkeys(values))


def check_names(names: Sequence[str] | None, offered: Sequence[str], *, option: str) -> None:
    """Raise an error if an option names something that is not offered for the task."""
    for name in names or ():
        if name not in offered:
            raise ValueError(
                f"{option} names {name!r}, which is not offered for this task; choose from "
                f"{', '.join(offered)}, separated by commas."
            )


# --- work -----------------------------------------------------------------------------------------


def _check_jobs(ctx: click.Context, param: click.Parameter, jobs: int | None) -> int | None:
    """Refuse 0 processes before anything is read or written."""
    if jobs == 0:
        raise click.BadParameter("0 processes can do nothing; give 1 or more, or -1 for all cores.")
    return jobs


def jobs_option(**settings: Any) -> Decorator:
    """Add the option --jobs; `settings` are its default and its help."""
    return click.option("--jobs", type=int, callback=_check_jobs, **settings)


scheduler_option = click.option(
    "--scheduler", metavar="ADDRESS", help="Run on a Dask cluster, e.g. tcp://host:8786."
)
work_options = as_record(
    "work",
    Work,
    jobs_option(default=1, show_default=True, help="Number of processes; -1 uses all cores."),
    scheduler_option,
)
force_option = click.option("--force", is_flag=True, help="Overwrite existing outputs.")
resume_option = click.option(
    "--resume", is_flag=True, help="Continue a stopped run; the options must be the same."
)
seed_option = click.option(
    "--seed",
    type=WholeType(min=0),
    default=0,
    show_default=True,
    help="Seed of all random choices.",
)


# --- tables ---------------------------------------------------------------------------------------


def decimal_option(*, default: str | None) -> Decorator:
    """Add the option --decimal; the default None stands for the sign of the model."""
    text = "Decimal sign of numbers in text cells."
    return click.option(
        "--decimal",
        type=click.Choice([".", ","]),
        default=default,
        show_default=default is not None,
        help=text if default else f"{text}  [default: {_OF_MODEL}]",
    )


sample_option = click.option(
    "--sample-rows",
    type=WholeType(min=3),
    help=(
        "Use this many rows, drawn at random from all files of DATA; for tables larger than memory."
    ),
)
column_options = as_record(
    "columns",
    AskedColumns,
    click.option("--target", required=True, metavar="COL", help="The column to predict."),
    click.option(
        "--task",
        type=click.Choice(["classification", "regression"]),
        help="Inferred from the target if omitted.",
    ),
    click.option(
        "--groups",
        metavar="COL",
        help=(
            "Rows with the same value here belong together (visits of a patient): they stay in "
            "one role. Not a feature."
        ),
    ),
    click.option(
        "--drop",
        "dropped",
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
        "date_order",
        type=click.Choice(["day-first", "month-first"]),
        help="How to read dates such as 01/02/2026, where day and month cannot be told apart.",
    ),
)
trust_option = click.option(
    "--trust",
    multiple=True,
    metavar="TYPE",
    help=(
        "Load this type (full name) from the model file; only if you trust the author of the file."
    ),
)
# A table with known targets for a fitted model.
target_options = combine(
    as_record(
        "reading",
        TargetOptions,
        click.option(
            "--target",
            metavar="COL",
            help="The column with the true values.  [default: that of `dco fit`]",
        ),
        decimal_option(default=None),
        click.option(
            "--ignore-new", is_flag=True, help="Ignore columns that the model was not fitted on."
        ),
    ),
    trust_option,
)
by_option = click.option("--by", metavar="COL", help="Also report by the values of this column.")


# --- candidates -----------------------------------------------------------------------------------


models_option = click.option(
    "--models",
    metavar="LIST",
    multiple=True,
    callback=join_lists,
    help=(
        "linear, forest, boosting; for numbers also linear-log, boosting-log, shallow, quantiles, "
        "spread, smooth, networks."
    ),
)
effort_option = click.option(
    "--effort",
    type=click.Choice(["quick", "usual", "thorough"]),
    help=(
        "How much time the default models for numbers take: without smooth models; with a Gaussian "
        "process and small networks; with larger ones.  [default: usual]"
    ),
)
folds_option = click.option(
    "--tune-folds",
    type=WholeType(min=2),
    help="Rank candidates by folds; tuning then takes no rows.",
)


def objective_option(default: str | None) -> Decorator:
    """Add the option --objective: what the best candidate is best at, such as the mean set size.

    The default None leaves the choice to the estimator.
    """
    help_text = (
        "What the search minimises. even: the mean size, among candidates that cover each class, "
        "each fifth of the rows by prediction and each --by value nearly as promised."
    )
    if default is None:
        help_text += "  [default: even for numbers, mean_size for labels]"
    return click.option(
        "--objective",
        type=NameType("objective", _OBJECTIVES),
        default=default,
        show_default=default is not None,
        help=help_text,
    )
