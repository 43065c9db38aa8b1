"""Output files: never overwritten without --force, and checked before any work is done."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from dco.foundations.extras import require
from dco.foundations.files import check_regular


def check_output(path: Path, *, force: bool, inputs: Iterable[Path | None] = ()) -> None:
    """Refuse an output that cannot be written or would replace something.

    `inputs` are the files and folders that are read: not even --force replaces one of them.
    """
    if path.exists() and any(os.path.samefile(path, read) for read in _files(inputs)):
        raise ValueError(f"{path} is read by this command, and writing there would destroy it; choose another name.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file.")
    check_regular(path)
    if path.exists() and not force:
        raise ValueError(f"{path} exists already; choose another name, or use --force to overwrite it.")
    check_folder(path.parent)


def check_outputs(outputs: Mapping[str, Path | None], *, force: bool, inputs: Iterable[Path | None]) -> None:
    """`check_output` for the files that options name: different ones."""
    seen: dict[Path, str] = {}
    for name, path in outputs.items():
        if path is None:
            continue
        check_output(path, force=force, inputs=inputs)
        other = seen.setdefault(path.resolve(), name)
        if other != name:
            raise ValueError(f"--{other} and --{name} both name {path}; give them different names.")


def check_page(path: Path | None) -> None:
    """Refuse a page, if one is named, that is not HTML or that cannot be made; said before the work, not after it."""
    if path is not None:
        check_suffix(path, ".html", ".htm")
        require("jinja2", extra="report")


def check_apart(out: Path, data: Path) -> None:
    """A folder of outputs must not be the folder that is read, nor lie in it, where it would be read the next time."""
    if data.resolve() in (out.resolve(), *out.resolve().parents):
        raise ValueError(f"{out} is, or lies in, the folder {data} that is read; choose a folder elsewhere.")


def _files(inputs: Iterable[Path | None]) -> Iterator[Path]:
    for path in inputs:
        if path is not None and path.is_dir():
            from dco.cli.reading import partitions

            yield from partitions(path)
        elif path is not None and path.exists():
            yield path


def check_folder(folder: Path) -> None:
    """Refuse a folder in which no file can be made."""
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder} to write to; make it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"The folder {folder} cannot be written to; choose another place for the output.")


def check_suffix(path: Path, *suffixes: str) -> None:
    """Refuse a name whose ending is not that of the format."""
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{path} must end in {' or '.join(suffixes)}, the format that is written.")
