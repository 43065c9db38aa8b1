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
from typing import Any

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
    with ExitStack() as temporary_files:
        finished = {}
        for path, content in contents.items():
            target = _resolve_target(path)
            temporary = temporary_files.enter_context(_temporary_file(target.parent, target.name))
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
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
    target = _resolve_target(path, sweep=temporary_folder is None)
    with _temporary_file(temporary_folder or target.parent, target.name) as temporary:
        yield temporary
        _flush_to_disk(temporary)
        put_in_place({target: temporary}, overwrite=overwrite)


def put_in_place(
    finished: Mapping[Path, Path], *, overwrite: bool = True, remove: Collection[Path] = ()
) -> None:
    """Give finished files their names and remove others; if anything fails, put everything back.

    `finished` holds, for each name, where the file lies now, on the same disk.
    """
    with ExitStack() as second_names, ExitStack() as undo:
        old_files = {}
        if len(finished) + len(remove) > 1:  # one file is all or nothing by itself
            for path in [*finished, *remove]:
                old_files[path] = second_names.enter_context(_second_name(path))

        for target, temporary in finished.items():
            _give_name(temporary, target, overwrite=overwrite)
            undo.callback(_put_back, old_files.get(target), target)
        for path in remove:
            path.unlink(missing_ok=True)
            undo.callback(_put_back, old_files.get(path), path)
        undo.pop_all()


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a name that is neither free nor that of a regular file (or of a link to one)."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kind = _FILE_KINDS.get(stat.S_IFMT(mode), "a device")
        raise ValueError(
            f"{path} is {kind}, and only a regular file is replaced; choose another name."
        )


def _resolve_target(path: str | os.PathLike[str], *, sweep: bool = True) -> Path:
    """Return where a file is to be written, and remove what killed runs left there."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; make it first.")
    check_regular(path)
    if sweep:
        _remove_left_files(target)
    return target


def _flush_to_disk(path: Path) -> None:
    """Wait until a file is on the disk: a crash could keep its new name and lose its content."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _give_name(temporary: Path, target: Path, *, overwrite: bool) -> None:
    """Rename a finished file; without `overwrite`, refuse a name that is taken."""
    check_regular(target)
    if not overwrite:
        try:
            os.link(temporary, target)  # unlike a rename it fails if the name is taken
            return
        except OSError:  # taken, or a disk without hard links
            if target.exists():
                raise ValueError(
                    f"{target} has been written by another run meanwhile and is kept; choose "
                    "another name, or ask to replace it."
                ) from None
    os.replace(temporary, target)


def _put_back(old_file: Path | None, target: Path) -> None:
    """Give a name back to its old file; remove what has the name now if there was none."""
    if old_file is None:
        target.unlink(missing_ok=True)
    else:
        os.replace(old_file, target)


# ---------------------------------------------------------------- temporary files


@contextmanager
def _temporary_file(folder: Path, name: str) -> Iterator[Path]:
    """Make an empty file, and remove it at the end.

    It is locked while this process lives, so that it can be told from what a killed run left.
    """
    while True:
        path = folder / f".{name}.{secrets.token_hex(6)}"
        file = open(path, "xb")  # noqa: SIM115  # closed below
        # another run may take it for left over and lock it before this one does
        with suppress(BlockingIOError):
            if not lock_file(file.fileno(), wait=False):
                file.close()  # such systems may not rename an open file
                break
            if is_at(file.fileno(), path):
                break
        file.close()
    try:
        yield path
    finally:
        file.close()  # before the name goes: a network disk would keep another for an open file
        path.unlink(missing_ok=True)


def _remove_left_files(target: Path) -> None:
    """Remove temporary files of this target that no living process has locked."""
    temporary_name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{12}}")
    with suppress(OSError), os.scandir(target.parent) as directory:
        for item in directory:
            if not temporary_name.fullmatch(item.name) or not item.is_file(follow_symlinks=False):
                continue
            with suppress(OSError), open(item.path, "rb+") as file:
                if lock_file(file.fileno(), wait=False):
                    os.unlink(item.path)


@contextmanager
def _second_name(target: Path) -> Iterator[Path | None]:
    """Keep a file under a second name until the end; yield None if there is no such file."""
    if not target.exists():
        yield None
        return
    name = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        try:
            os.link(target, name)
        except OSError:  # a disk without hard links
            shutil.copy2(target, name)
        yield name
    finally:
        name.unlink(missing_ok=True)


# ---------------------------------------------------------------- locks


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make a folder, if needed, and lock it; a BlockingIOError if another process holds it.

    The lock ends with the process, so a kill leaves none. On disks without locks, nothing is
    locked.
    """
    while True:
        folder.mkdir(exist_ok=True)
        lock = folder / _LOCK
        try:
            file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # the other run is done and has just removed the folder
            continue
        try:
            if lock_file(file, wait=False) and not is_at(file, lock):
                continue
            yield
            return
        finally:
            os.close(file)


@contextmanager
def wait_for_folder(folder: Path) -> Iterator[None]:
    """Wait until no other process is in here for this folder.

    Where folders cannot be locked, nothing is.
    """
    with ExitStack() as stack:
        with suppress(OSError):  # Windows opens no folders
            file = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, file)
            lock_file(file, wait=True)
        yield


def lock_file(file: int, *, wait: bool) -> bool:
    """Lock an open file; return False where files cannot be locked.

    If another process holds the lock, `wait`, or raise BlockingIOError.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except (ImportError, OSError):  # not a POSIX system, or a network disk that knows no locks
        return False
    return True


def is_at(file: int, path: Path) -> bool:
    """Say whether the open file is the one that `path` names now."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def plain(value: Any, *, nan: str | Exception | None = None, digits: int | None = None) -> Any:
    """Convert nested values to JSON's types.

    NumPy's scalars and arrays become numbers and lists, and keys become text. Infinity becomes the
    text "inf", and NaN becomes `nan`: null or a text; an error given as `nan` is raised. Floats
    keep `digits` significant digits (all by default). Anything else is not changed:
    ``json.dumps`` refuses it or turns it into text.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(entry, nan=nan, digits=digits) for key, entry in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(entry, nan=nan, digits=digits) for entry in value]
    if not isinstance(value, float):
        return value
    if math.isnan(value):
        if isinstance(nan, Exception):
            raise nan
        return nan
    if math.isinf(value):
        return str(value)
    return value if digits is None else float(f"{value:.{digits}g}")
