"""Outputs of commands: checked before any work is done, and never overwritten without --force."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from dco.foundations.extras import require
from dco.foundations.files import check_regular


def check_output(path: Path, *, force: bool, inputs: Iterable[Path | None] = ()) -> None:
    """Raise an error if an output cannot be written, or exists already and `force` is not given.

    `inputs` are the files and folders that the command reads: not even `force` replaces those.
    """
    if path.exists() and any(os.path.samefile(path, file) for file in _files_in(inputs)):
        raise ValueError(
            f"{path} is read by this command, and writing there would destroy it; choose another "
            "name."
        )
    check_regular(path)
    if path.exists() and not force:
        raise ValueError(
            f"{path} exists already; choose another name, or use --force to overwrite it."
        )
    check_folder(path.parent)


def check_outputs(
    outputs: Mapping[str, Path | None], *, force: bool, inputs: Iterable[Path | None]
) -> None:
    """Check several outputs as `check_output` does, and that no two of them are the same file.

    `outputs` has the files by the names of their options, such as "report"; None is not asked for.
    """
    option_of_file: dict[Path, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        check_output(path, force=force, inputs=inputs)

        file = path.resolve()
        if file in option_of_file:
            raise ValueError(
                f"--{option_of_file[file]} and --{option} both name {path}; give them different "
                "names."
            )
        option_of_file[file] = option


def finish_from_here() -> None:
    """Ignore Ctrl-C from now on: outputs get their names, and the command ends."""
    with suppress(ValueError):  # only the main thread can ignore it
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def check_page(path: Path | None) -> None:
    """Refuse the name of a page that is not HTML, and pages if jinja2 is not installed."""
    if path is not None:
        check_suffix(path, ".html", ".htm")
        require("jinja2", extra="report")


def check_apart(out: Path, data: Path) -> None:
    """Refuse an output folder in the folder of inputs: outputs would be read as inputs later."""
    if data.resolve() in (out.resolve(), *out.resolve().parents):
        raise ValueError(
            f"{out} is, or lies in, the folder {data} that is read; choose a folder elsewhere."
        )


def check_folder(folder: Path) -> None:
    """Refuse a folder that does not exist or cannot be written to."""
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder} to write to; make it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(
            f"The folder {folder} cannot be written to; choose another place for the output."
        )


def check_suffix(path: Path, *suffixes: str) -> None:
    """Refuse a name whose ending is not that of the format."""
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{path} must end in {' or '.join(suffixes)}, the format that is written.")


def _files_in(inputs: Iterable[Path | None]) -> Iterator[Path]:
    """Yield the files that are read: each file, and the files of each folder."""
    for path in inputs:
        if path is not None and path.is_dir():
            from dco.cli.tables.files import files_of

            yield from files_of(path)
        elif path is not None and path.exists():
            yield path
