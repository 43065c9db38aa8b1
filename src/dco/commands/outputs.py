"""Output files: never overwritten unasked, and checked before any work is done."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from dco.files import check_regular


def check_output(path: Path, *, force: bool, inputs: Iterable[Path | None] = ()) -> None:
    """Say before any work is done that an output cannot be written, or would replace something.

    `inputs` are the files and folders that are read: not even --force replaces one of them.
    """
    if path.exists() and any(os.path.samefile(path, read) for read in _files(inputs)):
        raise ValueError(f"{path} is read by this command, and writing there would destroy it; choose another name.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file.")
    check_regular(path)
    if path.exists() and not force:
        raise ValueError(f"{path} is there already and nothing is overwritten unasked; choose another name, or say --force.")
    check_folder(path.parent)


def check_apart(out: Path, data: Path) -> None:
    """A folder of outputs must not be the folder that is read, nor lie in it, where it would be read the next time."""
    if data.resolve() in (out.resolve(), *out.resolve().parents):
        raise ValueError(f"{out} is, or lies in, the folder {data} that is read; choose a folder elsewhere.")


def _files(inputs: Iterable[Path | None]) -> Iterator[Path]:
    from dco.commands.reading import partitions

    for path in inputs:
        if path is not None and path.is_dir():
            yield from partitions(path)
        elif path is not None and path.exists():
            yield path


def check_folder(folder: Path) -> None:
    """Whether files can be made in this folder."""
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder} to write to; make it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"The folder {folder} cannot be written to; choose another place for the output.")


def check_page_name(path: Path) -> None:
    """A page is HTML, and a browser tells that by its name."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{path} must end in .html: that is what the page is written in.")


def plot_suffix(path: Path) -> str:
    """png or svg, by the name."""
    suffix = path.suffix.lower().lstrip(".")
    if suffix not in ("png", "svg"):
        raise ValueError(f"{path} must end in .png or .svg: those are the plots that can be written.")
    return suffix
