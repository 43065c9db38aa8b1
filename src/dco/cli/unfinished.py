"""Unfinished work in a folder: only one run at a time, and only a run like it continues it.

A run writes down what it is to do as its plan: the options and the contents of its inputs.
"""

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
    plan_files: Iterable[Path], plan: Any, *, in_use: Path | None, resume: bool, force: bool
) -> Path | None:
    """Find the stopped run that --resume continues; return the file of its plan.

    Returns None if a new run begins. It is an error if the output holds something already and
    neither --resume nor --force is given, or if no stopped run has the same plan.

    Parameters
    ----------
    plan_files
        The files in which a stopped run may have left its plan.
    plan
        What this run is to do, as JSON data: its options, and digests of the files it reads.
    in_use
        The file or folder of outputs if it holds something already; None if it is new or empty.
    resume, force
        Whether these options are given.
    """
    if in_use is None:
        return None
    if not resume and not force:
        raise ValueError(
            f"{in_use} is not empty; --resume continues a stopped run, --force starts again."
        )
    if not resume:
        return None

    for plan_file in plan_files:
        if _has_plan(plan_file, plan):
            return plan_file
    raise ValueError(
        f"{in_use} is not from a stopped run with these options and the same contents of the files "
        "that are read; --force without --resume starts again."
    )


def begin_or_continue(
    folder: Path, plan: Any, *, in_use: Path | None, resume: bool, force: bool
) -> None:
    """Keep the work in a folder if it is continued, or empty the folder and write a new plan.

    Parameters are as in `find_plan_to_continue`.
    """
    plan_file = folder / PLAN
    if find_plan_to_continue([plan_file], plan, in_use=in_use, resume=resume, force=force):
        return

    # The plan goes first and comes last: a run that is killed in between leaves none.
    plan_file.unlink(missing_ok=True)
    for path in folder.rglob("[!.]*"):  # not the lock
        if path.is_file():
            path.unlink()
    write_file(plan_file, json.dumps(plan, indent=1))


def _has_plan(plan_file: Path, plan: Any) -> bool:
    """Say whether a file holds this plan."""
    with suppress(OSError, ValueError):  # no file, or no JSON
        stored_plan = json.loads(plan_file.read_text(encoding="utf-8"))
        plan_as_stored = json.loads(json.dumps(plan))  # tuples become lists, for instance
        return bool(stored_plan == plan_as_stored)
    return False


@contextmanager
def hold_folder(folder: Path, out: Path) -> Iterator[None]:
    """Lock the folder of unfinished work for the `with` block: two runs must not write one output.

    The folder is made if it is new, and removed at the end unless it has work that --resume can
    continue. `out` is the output, for messages about the disk.
    """
    is_new = not folder.exists()
    # The lock is closed before an empty folder is removed: a network disk keeps the name of a file
    # that is open.
    with (
        _explain_disk_errors(out),
        _remove_if_empty(folder),
        lock_folder(folder),
        _remove_if_failed_for_good(folder, is_new=is_new),
    ):
        yield


@contextmanager
def _explain_disk_errors(out: Path) -> Iterator[None]:
    """Turn errors of the disk in the `with` block into sentences that say what to do."""
    try:
        yield
    except BlockingIOError:
        raise ValueError(
            f"Another run is writing {out} right now; wait until it ends, or choose another --out."
        ) from None
    except OSError as error:
        if error.errno is None:  # a sentence of our own
            raise
        raise OSError(f"{_advice(error, out)} run again with --resume.") from error


@contextmanager
def _remove_if_empty(folder: Path) -> Iterator[None]:
    """Remove the folder after the `with` block, unless something is left in it."""
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty
            folder.rmdir()


@contextmanager
def _remove_if_failed_for_good(folder: Path, *, is_new: bool) -> Iterator[None]:
    """Remove a new folder if the `with` block fails in such a way that --resume is of no use."""
    try:
        yield
    except BaseException as error:
        if is_new and not _can_be_continued(folder, error):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _can_be_continued(folder: Path, error: BaseException) -> bool:
    """Say whether a run that ended with this error left work that --resume continues.

    That is so if a part is finished, or if the run might have finished one: it was stopped or the
    disk failed, but its input was not refused and its cluster was found.
    """
    if not (folder / PLAN).exists():
        return False
    has_finished_parts = any(path.is_file() and path.name != PLAN for path in folder.rglob("[!.]*"))
    was_refused = isinstance(error, Exception) and not isinstance(error, OSError)
    found_no_cluster = isinstance(error, ConnectionError)
    return has_finished_parts or not (was_refused or found_no_cluster)


def _advice(error: OSError, out: Path) -> str:
    """Begin a sentence about an error of the disk that ends with "run again with --resume"."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"There is no space left at {out.parent.resolve()}; make room, then"
    problem = error.strerror or os.strerror(error.errno or 0)
    return f"{error.filename or out}: {problem}. Finished parts are kept: solve this, then"
