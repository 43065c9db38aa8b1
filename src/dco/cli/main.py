"""The command ``dco``: one small command a stage. A command is loaded when it is called, so ``dco --help`` is quick."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

# name: the line of `dco --help`; the module dco.cli.main.<name> holds the rest
COMMANDS = {
    "plan": "How many rows each role needs, and what they buy, before any row is looked at.",
    "fit": "Fit, tune and calibrate on a table; write a model file.",
    "predict": "Prediction sets for a table of any size.",
    "evaluate": "Coverage and sizes on rows with known targets.",
    "compare": "The methods of the paper on your own table, over repeated splits.",
    "audit": "Recompute what a model's certificate claims.",
    "report": "One HTML page about a model, or about the results of compare or reproduce.",
    "reproduce": "Rebuild a table or a figure of the paper.",
}
_LONGEST = 1200
_GONE = 141  # what a shell calls the end by a closed pipe; not 1, which `dco audit` gives its own meaning


class BadInputError(click.ClickException):
    """One sentence: what is wrong, where, and what to do next. Exit status 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        text = " ".join(message.split())
        super().__init__(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ...")  # a damaged file may be quoted in full


class Commands(click.Group):
    """The commands by name, imported when asked for; errors that a user can mend end as one sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they are usually called."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, from its module."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"dco.cli.{cmd_name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word; for a misspelt one the nearest is named."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(args[0].lower(), COMMANDS, n=1)
            advice = f"did you mean `dco {near[0]}`?" if near else f"there are {', '.join(COMMANDS)}."
            ctx.fail(f"There is no command {args[0]!r}; {advice}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what goes wrong is told in a sentence."""
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:  # closed by whoever started this process
                setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
            stream = getattr(sys, name)
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")  # a label that this terminal cannot show is no reason to fail
        try:
            with warnings.catch_warnings():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (BrokenPipeError, SystemExit) as error:  # whoever read the output has gone; Rich turns that into SystemExit
            if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
                raise
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (Python would complain on the way out)
            ctx.exit(_GONE)
        except KeyboardInterrupt:
            click.echo(
                "Stopped. Nothing half-written was left behind; --resume goes on where a command offers it.", err=True
            )
            ctx.exit(130)
        except Exception as error:
            if os.environ.get("DCO_TRACEBACK"):
                raise
            raise BadInputError(_sentence(error)) from error


def _sentence(error: Exception) -> str:
    from dco.cli.options import in_options
    from dco.foundations.errors import DcoError

    if isinstance(error, (DcoError, ValueError)):
        return in_options(str(error)) or type(error).__name__
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = "" if error.filename is None else f" for {error.filename}"
            return f"There is no space left on the disk{where}; make room, then run again."
        if error.errno is None:  # raised by us, in a sentence of its own
            return str(error)
        if error.filename is None:
            return f"The disk refused to read or write: {error.strerror or error}. Mend this, then run again."
        return f"{error.filename}: {error.strerror or error}. Check the path and its permissions."
    if isinstance(error, MemoryError):
        return "There is not enough memory for this table; give fewer rows, or smaller batches by --batch-rows."
    return (
        f"Something unexpected went wrong ({type(error).__name__}: {error}). This is a fault of dco: run again with "
        "DCO_TRACEBACK=1 and report what it prints."
    )


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="decoupled-conformal", prog_name="dco")
def main() -> None:
    """Prediction sets with a guarantee that survives tuning.

    Start with `dco plan --rows 2000 --alpha 0.1`, then `dco fit DATA.csv --target COLUMN`. Every command takes --help, which
    ends with an example, and --json for machines.
    """
