"""Write files that are complete or absent, several of them all or none.

A file is written under a temporary name in the folder of its target, flushed to the disk, and gets
its own name when it is complete. A run that is killed leaves a temporary file; the next run that
writes the same target removes it, since no living process has it locked.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

__all__ = [
    "check_regular",
    "is_at",
    "lock_file",
    "lock_folder",
    "new_file",
    "plain",
    "put_in_place",
    "wait_for_folder",
    "write_file",
    "write_files",
]

_LOCK = ".lock"
_FILE_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def write_file(
    path: str | os.PathLike[str], content: str | bytes, *, overwrite: bool = True
) -> None:
    """Write one file, which is complete or not there; see `write_files`."""
    write_files({Path(path): content}, overwrite=overwrite)


def write_files(
    contents: Mapping[Path, str | bytes],
    *,
    overwrite: bool = True,
    remove: Collection[Path] = (),
) -> None:
    """Write files that belong together and remove others: all of it is done, or nothing.

    A link stays a link, and its target is replaced; a folder, a device, a pipe or a socket is a
    ValueError. Without `overwrite`, a file that has appeared meanwhile is kept: a ValueError. Text
    is written in UTF-8.
    """
    with ExitStack() as temporary_files:  # removes at the end those that got no name
        finished = {}
        for path, content in contents.items():
            target = _resolve_target(path)
            temporary = temporary_files.enter_context(_temporary_file(target.parent, target.name))
            content_bytes = content.encode() if isinstance(content, str) else content
            temporary.write_bytes(content_bytes)
            _flush_to_disk(temporary)
            finished[target] = temporary
        put_in_place(finished, overwrite=overwrite, remove=remove)


@contextmanager
def new_file(
    path: str | os.PathLike[str], *, overwrite: bool = True, temporary_folder: Path | None = None
) -> Iterator[Path]:
    """Yield a temporary name to write to; the file gets the name `path` if no error was raised.

    This is for files that are written piece by piece; see `write_files` for the promises.
    `temporary_folder` is a folder on the same disk, so that a kill leaves nothing outside it.
    """
    target = _resolve_target(path, clean_up=temporary_folder is None)
    with _temporary_file(temporary_folder or target.parent, target.name) as temporary:
        yield temporary
        _flush_to_disk(temporary)
        put_in_place({target: temporary}, overwrite=overwrite)


def put_in_place(
    finished: Mapping[Path, Path], *, overwrite: bool = True, remove: Collection[Path] = ()
) -> None:
    """Rename finished files to their final names and remove others: all of it, or nothing.

    `finished` maps each final name to the file as it lies now, on the same disk. If a step fails,
    the steps before it are undone, and the error is raised.
    """
    with ExitStack() as backup_names, ExitStack() as undo_if_one_fails:
        # 1. Keep the old files under backup names. A single change needs none: it cannot be half
        # done.
        backups: dict[Path, Path | None] = {}
        if len(finished) + len(remove) > 1:
            for path in [*finished, *remove]:
                backups[path] = backup_names.enter_context(_backup_name(path))

        # 2. Make the changes, and note after each how to undo it.
        for target, temporary in finished.items():
            _give_name(temporary, target, overwrite=overwrite)
            undo_if_one_fails.callback(_put_back, backups.get(target), target)
        for path in remove:
            path.unlink(missing_ok=True)
            undo_if_one_fails.callback(_put_back, backups.get(path), path)

        # 3. None failed, so nothing is undone at the end of the `with`.
        undo_if_one_fails.pop_all()


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise a ValueError if a name belongs to a folder, a device, a pipe or a socket.

    A name that is free, or that of a regular file or of a link to one, is all right.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kind = _FILE_KINDS.get(stat.S_IFMT(mode), "a device")
        raise ValueError(
            f"{path} is {kind}, and only a regular file is replaced; choose another name."
        )


def _resolve_target(path: str | os.PathLike[str], *, clean_up: bool = True) -> Path:
    """Follow links to the path where a file is to be written, and check that it can be.

    With `clean_up`, temporary files that killed runs left there for this target are removed.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; make it first.")
    check_regular(path)
    if clean_up:
        _remove_abandoned_files(target)
    return target


def _flush_to_disk(path: Path) -> None:
    """Wait until a file is on the disk: a crash could keep its new name and lose its content."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _give_name(temporary: Path, target: Path, *, overwrite: bool) -> None:
    """Give a finished file its final name; without `overwrite`, refuse a name that is taken.

    A rename would silently replace a file that another run has written meanwhile. A second name by
    a hard link does not: it fails if the name is taken.
    """
    check_regular(target)
    if overwrite:
        os.replace(temporary, target)
        return
    try:
        os.link(temporary, target)
    except OSError:
        if target.exists():
            raise ValueError(
                f"{target} has been written by another run meanwhile and is kept; choose "
                "another name, or ask to replace it."
            ) from None
        os.replace(temporary, target)  # a disk without hard links


def _put_back(backup: Path | None, target: Path) -> None:
    """Give a name back to its old file; without one, remove the file that has the name now."""
    if backup is None:
        target.unlink(missing_ok=True)
    else:
        os.replace(backup, target)


# ---------------------------------------------------------------- temporary files


@contextmanager
def _temporary_file(folder: Path, name: str) -> Iterator[Path]:
    """Make an empty file named ".NAME.<12 hex digits>", yield its path, and remove it at the end.

    It is locked while this process lives, by which other runs tell it from the file of a killed
    run, which they remove.
    """
    # A new file is not locked for a moment, in which another run may remove it: then try again.
    is_ours = False
    while not is_ours:
        path = folder / f".{name}.{secrets.token_hex(6)}"
        file = open(path, "xb")  # noqa: SIM115  # closed below
        is_ours = _lock_new_file(file, path)

    try:
        yield path
    finally:
        file.close()  # before the name goes: a network disk would keep another for an open file
        path.unlink(missing_ok=True)


def _lock_new_file(file: BinaryIO, path: Path) -> bool:
    """Lock an open file that was just made; return False, and close it, if another run removes it.

    Where files cannot be locked, it is closed too, since such systems may not rename an open file.
    """
    try:
        can_lock = lock_file(file.fileno(), wait=False)
    except BlockingIOError:  # the other run has locked it to remove it
        file.close()
        return False
    if not can_lock:
        file.close()
        return True

    is_still_there = is_at(file.fileno(), path)
    if not is_still_there:
        file.close()
    return is_still_there


def _remove_abandoned_files(target: Path) -> None:
    """Remove temporary files of this target that no living process has locked.

    A killed run has left them. What cannot be removed is left to a later run.
    """
    temporary_name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{12}}")
    with suppress(OSError), os.scandir(target.parent) as directory:
        for item in directory:
            has_temporary_name = temporary_name.fullmatch(item.name) is not None
            if not has_temporary_name or not item.is_file(follow_symlinks=False):
                continue
            with suppress(OSError), open(item.path, "rb+") as file:
                if lock_file(file.fileno(), wait=False):
                    os.unlink(item.path)


@contextmanager
def _backup_name(target: Path) -> Iterator[Path | None]:
    """Keep a file under a second name until the end, and yield that name; None without a file."""
    if not target.exists():
        yield None
        return
    backup = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        try:
            os.link(target, backup)
        except OSError:  # a disk without hard links
            shutil.copy2(target, backup)
        yield backup
    finally:
        backup.unlink(missing_ok=True)


# ---------------------------------------------------------------- locks


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make a folder, if needed, and lock it; a BlockingIOError if another process has locked it.

    The lock is on a file in the folder. It ends with the process, so a killed one leaves none. On
    disks without locks, nothing is locked.
    """
    # A run that ends may remove the folder at any moment: then make it again.
    while True:
        folder.mkdir(exist_ok=True)
        lock = folder / _LOCK
        try:
            file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # removed before the file was opened
            continue
        try:
            is_locked = lock_file(file, wait=False)
            if is_locked and not is_at(file, lock):  # removed before the file was locked
                continue
            yield
            return
        finally:
            os.close(file)


@contextmanager
def wait_for_folder(folder: Path) -> Iterator[None]:
    """Wait until no other process is inside this context with the same folder, and enter it.

    Where folders cannot be locked (Windows), nobody waits.
    """
    with ExitStack() as stack:
        with suppress(OSError):  # Windows opens no folders
            file = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, file)
            lock_file(file, wait=True)
        yield


def lock_file(file: int, *, wait: bool) -> bool:
    """Lock an open file, given by its descriptor; return whether files can be locked here.

    If another process has locked it, wait for that one, or raise BlockingIOError if not `wait`.
    """
    try:
        import fcntl

        operation = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        fcntl.flock(file, operation)
    except BlockingIOError:
        raise
    except (ImportError, OSError):  # not a POSIX system, or a network disk that knows no locks
        return False
    return True


def is_at(file: int, path: Path) -> bool:
    """Tell whether an open file, given by its descriptor, is the one that `path` names now."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def plain(value: Any, *, nan: str | Exception | None = None, digits: int | None = None) -> Any:
    """Convert nested values to JSON's types: {1: np.array([0.5, inf])} -> {"1": [0.5, "inf"]}.

    NumPy's scalars and arrays become numbers and lists, and keys become text. Infinity becomes the
    text "inf", and NaN becomes `nan`: null or a text; an error given as `nan` is raised. Floats
    keep `digits` significant digits (all by default). Anything else is not changed:
    ``json.dumps`` refuses it or turns it into text.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item, nan=nan, digits=digits) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item, nan=nan, digits=digits) for item in value]
    if not isinstance(value, float):
        return value
    if math.isnan(value):
        if isinstance(nan, Exception):
            raise nan
        return nan
    if math.isinf(value):
        return str(value)
    return value if digits is None else float(f"{value:.{digits}g}")
