"""The command ``dco``. Its commands are loaded when they are called, so ``dco --help`` is fast."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TextIO

import click

# before NumPy is loaded: only OpenMP uses all cores, or pools compete for them; its threads sleep
# while they wait
os.environ |= {
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
} | os.environ

# Name of a command: its line of `dco --help`. The module dco.cli.<name> has the rest.
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
_LONGEST_MESSAGE = 1200  # characters: a message may quote a whole damaged file
_CLOSED_PIPE = 141  # the status that shells report; 1 means something else for `dco audit`
_INTERRUPTED = 130


class BadInputError(click.ClickException):
    """One sentence: what is wrong, where, and what to do next. Exit status 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        text = " ".join(message.split())
        if len(text) > _LONGEST_MESSAGE:
            text = f"{text[:_LONGEST_MESSAGE]} ..."
        super().__init__(text)

    def show(self, file: Any = None) -> None:
        """Print to standard error, wrapped on a terminal."""
        from dco.cli.printing import say

        say(f"Error: {self.message}", err=True)


class Commands(click.Group):
    """The commands by name, imported when asked for. Every error ends as one sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in their usual order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command from its module."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"dco.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names, and return it with the other words.

        A word that names no command is an error that suggests the most similar one.
        """
        name = args[0]
        is_option = name.startswith("-")
        is_for_completion = ctx.resilient_parsing  # the shell completes a word: no error is shown
        if name not in COMMANDS and not is_option and not is_for_completion:
            nearest = get_close_matches(name.lower(), COMMANDS, n=1)
            advice = f"there are {', '.join(COMMANDS)}."
            if nearest:
                advice = f"did you mean `dco {nearest[0]}`?"
            ctx.fail(f"There is no command {name!r}; {advice}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; every error ends as one sentence and an exit status.

        With the environment variable DCO_TRACEBACK, errors are raised as they are.
        """
        from dco.cli.outputs import finish_from_here

        _prepare_streams()
        try:
            with warnings.catch_warnings():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):  # click handles these
            raise
        except (BrokenPipeError, SystemExit) as error:
            if not _is_closed_pipe(error):
                raise
            sys.stdout = _open_nowhere()  # Python would complain about the pipe when it ends
            ctx.exit(_CLOSED_PIPE)
        except KeyboardInterrupt:
            click.echo(
                "Stopped. No half-written file is left; --resume continues, if the command has it.",
                err=True,
            )
            ctx.exit(_INTERRUPTED)
        except Exception as error:
            if os.environ.get("DCO_TRACEBACK"):
                raise
            raise BadInputError(_explain(error)) from error
        finally:
            finish_from_here()  # Ctrl-C while Python ends would print a traceback


def _prepare_streams() -> None:
    """Make sure that standard output and standard error can be written to.

    A stream that was closed when the process began writes nowhere; a letter that the terminal
    cannot show is printed as "?".
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, _open_nowhere())
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _open_nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def _is_closed_pipe(error: BaseException) -> bool:
    """Say whether the program that reads the output has ended, as in `dco ... | head`.

    rich raises SystemExit then, in the context of the BrokenPipeError.
    """
    return isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError)


def _explain(error: Exception) -> str:
    """Say in a sentence or two what went wrong and what to do, for an error that ends a command."""
    from dco.cli.spelling import spell_error
    from dco.foundations.errors import DcoError

    if isinstance(error, (DcoError, ValueError)):
        return spell_error(error) or type(error).__name__
    if isinstance(error, OSError):
        return _explain_disk(error)
    if isinstance(error, MemoryError):
        return (
            "There is not enough memory for this table; give fewer rows, or smaller batches with "
            "--batch-rows."
        )
    return (
        f"Something unexpected went wrong ({type(error).__name__}: {error}). This is an error of "
        "dco: run again with DCO_TRACEBACK=1 and report what it prints."
    )


def _explain_disk(error: OSError) -> str:
    """Say in a sentence what a disk refused, for which file, and what to do."""
    if error.errno is None:  # a sentence of our own
        return str(error)
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        for_file = "" if error.filename is None else f" for {error.filename}"
        return f"There is no space left on the disk{for_file}; make room, then run again."
    if error.filename is None:
        return f"The disk refused to read or write: {reason}. Solve this, then run again."
    return f"{error.filename}: {reason}. Check the path and its permissions."


@click.command(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="decoupled-conformal", prog_name="dco")
def main() -> None:
    """Prediction sets with a guarantee that survives tuning.

    Start with `dco plan --rows 2000 --alpha 0.1`, then `dco fit DATA.csv --target COLUMN`. Every
    command has --help, which ends with an example, and --json for programs.
    """
