"""The command ``dco``. Its commands are loaded when they are called, so ``dco --help`` is fast."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

# before NumPy is loaded: only OpenMP uses all cores, or pools compete for them; its threads sleep
# while they wait
os.environ |= {
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
} | os.environ

# name: the line of `dco --help`; the module dco.cli.<name> has the rest
COMMANDS = {
    "plan": "How many rows each role needs, and what they give, before you look at any row.",
    "fit": "Fit, tune and calibrate on a table; write a model file.",
    "predict": "Write prediction sets for a table of any size.",
    "evaluate": "Measure coverage and sizes on rows with known targets.",
    "watch": "Take labelled rows as they arrive; say whether the promise still holds.",
    "recalibrate": "Give a model new calibration rows and a new certificate; nothing is fitted.",
    "compare": "Compare the methods of the paper on your own table, over repeated splits.",
    "audit": "Recompute what a model's certificate claims.",
    "report": "Write an HTML page about a model, or about the results of compare or reproduce.",
    "reproduce": "Rebuild a table or a figure of the paper.",
}
_LONGEST = 1200
_CLOSED_PIPE = 141  # as shells report it; not 1, which means something else for `dco audit`


class BadInputError(click.ClickException):
    """One sentence: what is wrong, where, and what to do next. Exit status 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        text = " ".join(message.split())
        # it may quote a whole damaged file
        super().__init__(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ...")

    def show(self, file: Any = None) -> None:
        """To standard error, wrapped on a terminal."""
        from dco.cli.printing import say

        say(f"Error: {self.message}", err=True)


class Commands(click.Group):
    """The commands by name, imported when asked for. Every error ends as one sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In their usual order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, from its module."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"dco.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word; for a misspelled one, the nearest is suggested."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(args[0].lower(), COMMANDS, n=1)
            advice = (
                f"did you mean `dco {near[0]}`?" if near else f"there are {', '.join(COMMANDS)}."
            )
            ctx.fail(f"There is no command {args[0]!r}; {advice}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; any error becomes a sentence."""
        from dco.cli.outputs import finish_from_here

        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:  # closed by whoever started this process
                setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
            stream = getattr(sys, name)
            if hasattr(stream, "reconfigure"):
                # a label that this terminal cannot show is not an error
                stream.reconfigure(errors="replace")
        try:
            with warnings.catch_warnings():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        # the output pipe is closed; Rich turns that into SystemExit
        except (BrokenPipeError, SystemExit) as error:
            if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
                raise
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (Python would complain on the way out)
            ctx.exit(_CLOSED_PIPE)
        except KeyboardInterrupt:
            click.echo(
                "Stopped. No half-written file is left; --resume continues, if the command has it.",
                err=True,
            )
            ctx.exit(130)
        except Exception as error:
            if os.environ.get("DCO_TRACEBACK"):
                raise
            raise BadInputError(_sentence(error)) from error
        finally:
            finish_from_here()


def _sentence(error: Exception) -> str:
    from dco.cli.spelling import spell_error
    from dco.foundations.errors import DcoError

    if isinstance(error, (DcoError, ValueError)):
        return spell_error(error) or type(error).__name__
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = "" if error.filename is None else f" for {error.filename}"
            return f"There is no space left on the disk{where}; make room, then run again."
        if error.errno is None:  # a sentence of our own
            return str(error)
        if error.filename is None:
            return (
                f"The disk refused to read or write: {error.strerror or error}. Solve this, "
                f"then run again."
            )
        return f"{error.filename}: {error.strerror or error}. Check the path and its permissions."
    if isinstance(error, MemoryError):
        return (
            "There is not enough memory for this table; give fewer rows, or smaller batches "
            "with --batch-rows."
        )
    return (
        f"Something unexpected went wrong ({type(error).__name__}: {error}). This is an error of "
        f"dco: run again with "
        "DCO_TRACEBACK=1 and report what it prints."
    )


@click.command(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="decoupled-conformal", prog_name="dco")
def main() -> None:
    """Prediction sets with a guarantee that survives tuning.

    Start with `dco plan --rows 2000 --alpha 0.1`, then `dco fit DATA.csv --target COLUMN`. Every
    command has --help, which ends with an example, and --json for programs.
    """
