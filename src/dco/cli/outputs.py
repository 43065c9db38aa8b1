"""Outputs: checked before any work is done, never overwritten without --force; and unfinished work
in a folder.

Only one run at a time works in such a folder, and only the same order continues it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dco.foundations.extras import require
from dco.foundations.files import check_regular, held, write_whole

PLAN = "plan.json"
UNFINISHED = "_dco_unfinished"  # readers of Parquet folders skip names that begin with _


def check_output(path: Path, *, force: bool, inputs: Iterable[Path | None] = ()) -> None:
    """Refuse an output that cannot be written or would replace something.

    `inputs` are the files and folders that are read: not even --force replaces one of them.
    """
    if path.exists() and any(os.path.samefile(path, read) for read in _files(inputs)):
        raise ValueError(
            f"{path} is read by this command, and writing there would destroy it; "
            f"choose another name."
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
    """`check_output` for the files that options name: different ones."""
    seen: dict[Path, str] = {}
    for name, path in outputs.items():
        if path is None:
            continue
        check_output(path, force=force, inputs=inputs)
        other = seen.setdefault(path.resolve(), name)
        if other != name:
            raise ValueError(f"--{other} and --{name} both name {path}; give them different names.")


def finish_from_here() -> None:
    """Ignore Ctrl-C from now on: outputs are about to get their names, and the command finishes."""
    with suppress(ValueError):  # only the main thread may say so
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def check_page(path: Path | None) -> None:
    """Refuse a page, if one is named, that is not HTML or that cannot be made; said before the
    work, not after it.
    """
    if path is not None:
        check_suffix(path, ".html", ".htm")
        require("jinja2", extra="report")


def check_apart(out: Path, data: Path) -> None:
    """A folder of outputs must not be the folder that is read, nor lie in it, where it would be
    read the next time.
    """
    if data.resolve() in (out.resolve(), *out.resolve().parents):
        raise ValueError(
            f"{out} is, or lies in, the folder {data} that is read; choose a folder elsewhere."
        )


def _files(inputs: Iterable[Path | None]) -> Iterator[Path]:
    for path in inputs:
        if path is not None and path.is_dir():
            from dco.cli.tables.files import files_of

            yield from files_of(path)
        elif path is not None and path.exists():
            yield path


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


# --- unfinished work
# ------------------------------------------------------------------------------------------------


def fingerprint(path: str | Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def continues(
    plans: list[Path], order: Any, *, begun: Path | None, resume: bool, force: bool
) -> Path | None:
    """The plan of a stopped run with this order that --resume continues; None to start anew.

    `begun` is a place that is in use already: without --resume or --force, or with another order,
    this is an error.
    """
    if begun is None:
        return None
    if not (resume or force):
        raise ValueError(
            f"{begun} is not empty; --resume continues a stopped run, --force starts again."
        )
    same = [plan for plan in plans if _has(plan, order)]
    if resume and not same:
        raise ValueError(
            f"{begun} is not from a stopped run with these options and the same contents of the "
            f"files that are read; "
            "--force without --resume starts again."
        )
    return same[0] if resume else None


def begin(parts: Path, order: Any, *, begun: Path | None, resume: bool, force: bool) -> None:
    """Continue the work in a folder, or empty it and write the plan of a new run: last, so that a
    kill leaves no plan.
    """
    plan = parts / PLAN
    if not continues([plan], order, begun=begun, resume=resume, force=force):
        for path in (plan, *parts.rglob("[!.]*")):  # not the lock
            if path.is_file():
                path.unlink()
        write_whole(plan, json.dumps(order, indent=1))


def _has(plan: Path, order: Any) -> bool:
    with suppress(OSError, ValueError):
        return bool(json.loads(plan.read_text(encoding="utf-8")) == json.loads(json.dumps(order)))
    return False


@contextmanager
def only_run(parts: Path, out: Path) -> Iterator[None]:
    """Hold the folder of unfinished parts, so that no two runs write one output. What a disk
    refuses names the next step.

    A network disk keeps a name for the lock while it is open, and so the folder; it is removed when
    the lock is closed.
    """
    there = parts.exists()
    try:
        with held(parts):
            try:
                yield
            finally:
                if not there and parts.is_dir() and not (parts / PLAN).exists():
                    shutil.rmtree(parts, ignore_errors=True)  # refused before anything was done
    except BlockingIOError:
        raise ValueError(
            f"Another run is writing {out} right now; wait until it ends, or choose another --out."
        ) from None
    except OSError as error:
        if error.errno is None:  # a sentence of our own
            raise
        told = (
            f"{error.filename or out}: {error.strerror or error}. Finished parts are kept: "
            f"solve this, then"
        )
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            told = f"There is no space left at {out.parent.resolve()}; make room, then"
        raise OSError(f"{told} run again with --resume.") from error
    finally:
        with suppress(OSError):  # not empty: there is something to continue
            parts.rmdir()
