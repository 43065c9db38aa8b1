"""Output files: never overwritten unasked, written beside their place and moved there when complete."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_output(path: Path, *, force: bool) -> None:
    """Say before any work is done that an output cannot be written, or would replace something."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file.")
    if path.exists() and not force:
        raise ValueError(f"{path} is there already and nothing is overwritten unasked; choose another name, or say --force.")
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Whether files can be made in this folder."""
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder} to write to; make it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"The folder {folder} cannot be written to; choose another place for the output.")


@contextmanager
def written_beside(path: Path, *, within: Path | None = None) -> Iterator[Path]:
    """Yields a name beside `path` to write to; it takes the place of `path` only if all went well.

    `within` is a folder on the same disk for the unfinished file, so that a kill leaves nothing outside it.
    """
    beside = (path.parent if within is None else within) / f".{path.name}.{secrets.token_hex(6)}"
    try:
        yield beside
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def plot_suffix(path: Path) -> str:
    """png or svg, by the name."""
    suffix = path.suffix.lower().lstrip(".")
    if suffix not in ("png", "svg"):
        raise ValueError(f"{path} must end in .png or .svg: those are the plots that can be written.")
    return suffix
