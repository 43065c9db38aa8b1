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
    """Refuse an output that cannot be written or would replace something.

    `inputs` are the files and folders that are read: not even --force replaces one of them.
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
    """Check the files that options name, by the names of the options; no two may be the same."""
    option_of: dict[Path, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        check_output(path, force=force, inputs=inputs)
        first_option = option_of.setdefault(path.resolve(), option)
        if first_option != option:
            raise ValueError(
                f"--{first_option} and --{option} both name {path}; give them different names."
            )


def finish_from_here() -> None:
    """Ignore Ctrl-C from now on: outputs are about to get their names, and the command finishes."""
    with suppress(ValueError):  # only the main thread may say so
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def check_page(path: Path | None) -> None:
    """Refuse a page that is not HTML or that cannot be made, before the work and not after it."""
    if path is not None:
        check_suffix(path, ".html", ".htm")
        require("jinja2", extra="report")


def check_apart(out: Path, data: Path) -> None:
    """Refuse a folder of outputs that lies in the folder of inputs.

    The outputs would be read the next time.
    """
    if data.resolve() in (out.resolve(), *out.resolve().parents):
        raise ValueError(
            f"{out} is, or lies in, the folder {data} that is read; choose a folder elsewhere."
        )


def check_folder(folder: Path) -> None:
    """Refuse a folder in which no file can be made."""
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
    """Yield the files that are read, those of folders too."""
    for path in inputs:
        if path is not None and path.is_dir():
            from dco.cli.tables.files import files_of

            yield from files_of(path)
        elif path is not None and path.exists():
            yield path
