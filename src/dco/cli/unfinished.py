"""Unfinished work in a folder: only one run at a time, and only the same order continues it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dco.foundations.files import lock_folder, write_file

PLAN = "plan.json"
UNFINISHED = "_dco_unfinished"  # readers of Parquet folders skip names that begin with _


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_plan_to_continue(
    plans: Iterable[Path], order: Any, *, in_use: Path | None, resume: bool, force: bool
) -> Path | None:
    """Return the plan of a stopped run with the same order, for --resume; None to start anew.

    `in_use` is a file or folder that holds something already: without --resume or --force, or with
    another order, this is an error.
    """
    if in_use is None:
        return None
    if not resume and not force:
        raise ValueError(
            f"{in_use} is not empty; --resume continues a stopped run, --force starts again."
        )
    if not resume:
        return None
    for plan in plans:
        if _has_order(plan, order):
            return plan
    raise ValueError(
        f"{in_use} is not from a stopped run with these options and the same contents of the files "
        "that are read; --force without --resume starts again."
    )


def begin_or_continue(
    folder: Path, order: Any, *, in_use: Path | None, resume: bool, force: bool
) -> None:
    """Continue the work in a folder, or empty it and write the plan of a new run.

    The plan is written last, so that a kill leaves none.
    """
    plan = folder / PLAN
    if find_plan_to_continue([plan], order, in_use=in_use, resume=resume, force=force):
        return

    plan.unlink(missing_ok=True)
    for path in folder.rglob("[!.]*"):  # not the lock
        if path.is_file():
            path.unlink()
    write_file(plan, json.dumps(order, indent=1))


def _has_order(plan: Path, order: Any) -> bool:
    """Say whether a plan is of this order."""
    with suppress(OSError, ValueError):
        return bool(json.loads(plan.read_text(encoding="utf-8")) == json.loads(json.dumps(order)))
    return False


@contextmanager
def hold_folder(folder: Path, out: Path) -> Iterator[None]:
    """Hold the folder of unfinished work, so that no two runs write one output.

    What the disk refuses becomes a sentence that names the next step. At the end the folder goes if
    it is empty, or if the run was refused before any part was finished.
    """
    was_there = folder.exists()
    try:
        with lock_folder(folder):
            try:
                yield
            except BaseException as error:
                if not was_there and not _can_be_continued(folder, error):
                    shutil.rmtree(folder, ignore_errors=True)
                raise
    except BlockingIOError:
        raise ValueError(
            f"Another run is writing {out} right now; wait until it ends, or choose another --out."
        ) from None
    except OSError as error:
        if error.errno is None:  # a sentence of our own
            raise
        raise OSError(f"{_advice(error, out)} run again with --resume.") from error
    finally:
        # after the lock is closed: a network disk keeps a name for an open file
        with suppress(OSError):  # not empty: there is something to continue
            folder.rmdir()


def _can_be_continued(folder: Path, error: BaseException) -> bool:
    """Say whether a run that ended with this error left work that --resume continues."""
    if not (folder / PLAN).exists():
        return False
    has_finished_parts = any(path.is_file() and path.name != PLAN for path in folder.rglob("[!.]*"))
    was_refused = isinstance(error, Exception) and not isinstance(error, OSError)
    found_no_cluster = isinstance(error, ConnectionError)
    return has_finished_parts or not (was_refused or found_no_cluster)


def _advice(error: OSError, out: Path) -> str:
    """Say what to do before the run is continued."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"There is no space left at {out.parent.resolve()}; make room, then"
    problem = error.strerror or os.strerror(error.errno or 0)
    return f"{error.filename or out}: {problem}. Finished parts are kept: solve this, then"
