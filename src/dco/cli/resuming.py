"""Unfinished work in a folder: only one run at a time works there, and only the same order continues it."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dco.foundations.files import held, write_whole

PLAN = "plan.json"
UNFINISHED = "_dco_unfinished"  # readers of Parquet folders skip names that begin with _


def fingerprint(path: str | Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def continues(plans: list[Path], order: Any, *, begun: Path | None, resume: bool, force: bool) -> Path | None:
    """The plan of a stopped run with this order that --resume continues; None to start anew.

    `begun` is a place that is in use already: without --resume or --force, or with another order, this is an error.
    """
    if begun is None:
        return None
    if not (resume or force):
        raise ValueError(f"{begun} is not empty; --resume continues a stopped run, --force starts again.")
    same = [plan for plan in plans if _has(plan, order)]
    if resume and not same:
        raise ValueError(
            f"{begun} is not from a stopped run with these options and the same contents of the files that are read; "
            "--force without --resume starts again."
        )
    return same[0] if resume else None


def _has(plan: Path, order: Any) -> bool:
    try:
        return bool(json.loads(plan.read_text(encoding="utf-8")) == order)
    except (OSError, ValueError):
        return False


def write_plan(plan: Path, order: Any) -> None:
    """Write down what must not change between a run and its continuation."""
    write_whole(plan, json.dumps(order, indent=1))


@contextmanager
def only_run(parts: Path, out: Path) -> Iterator[None]:
    """Hold the folder of unfinished parts, so that no two runs write one output. What a disk refuses names the next step.

    A network disk keeps a name for the lock while it is open, and so the folder; it is removed when the lock is closed.
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
        raise ValueError(f"Another run is writing {out} right now; wait until it ends, or choose another --out.") from None
    except OSError as error:
        raise _disk_error(error, out) from error
    finally:
        with suppress(OSError):  # not empty: there is something to continue
            parts.rmdir()


def _disk_error(error: OSError, out: Path) -> OSError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OSError(f"There is no space left at {out.parent.resolve()}; make room, then run again with --resume.")
    if error.errno is None:  # a sentence of our own
        return error
    where = out if error.filename is None else error.filename
    return OSError(f"{where}: {error.strerror or error}. Finished parts are kept: solve this, then run again with --resume.")
