"""What dco writes: files that are complete or absent, and values that strict JSON can hold."""

from __future__ import annotations

import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "Written",
    "alone_in",
    "check_regular",
    "held",
    "is_at",
    "locked",
    "plain",
    "take_places",
    "write_whole",
    "written_beside",
    "written_together",
]

_LOCK = ".lock"


@dataclass(frozen=True)
class Written:
    """A finished file under its temporary name, and the place that it is to take."""

    beside: Path
    target: Path
    overwrite: bool


# The finished files of a `written_together` that is open, and the temporary files to remove at its
# end.
_OPEN: ContextVar[tuple[list[Written], ExitStack] | None] = ContextVar("_OPEN", default=None)


@contextmanager
def written_beside(
    path: str | os.PathLike[str], *, within: Path | None = None, overwrite: bool = True
) -> Iterator[Path]:
    """Yields a name beside `path` to write to; the file gets the name `path` only if all went well.

    A link stays a link, and its target is replaced; a folder, a device, a pipe or a socket is a
    ValueError. Unfinished files that killed runs left beside `path` are removed. `within` is a
    folder on the same disk for the unfinished file, so that a kill leaves nothing outside it.
    Without `overwrite`, a file that has appeared at `path` is kept: a ValueError.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; make it first.")
    check_regular(path)
    if within is None:
        _sweep(target)
    with ExitStack() as own:
        files, temporary = _OPEN.get() or (None, own)
        beside = temporary.enter_context(
            _temporary(target.parent if within is None else within, target.name)
        )
        yield beside
        with open(beside, "rb+") as file:
            # otherwise a crash of the machine could keep the new name and lose the content
            os.fsync(file.fileno())
        if files is None:
            _take_place(Written(beside, target, overwrite))
        else:
            files.append(Written(beside, target, overwrite))


def write_whole(path: str | os.PathLike[str], text: str, *, overwrite: bool = True) -> None:
    """Write a file of text with `written_beside`."""
    with written_beside(path, overwrite=overwrite) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def written_together() -> Iterator[list[Written]]:
    """Files that `written_beside` writes in here get their names at the end, all or none. Yields
    the finished ones.
    """
    files: list[Written] = []
    with ExitStack() as temporary:
        token = _OPEN.set((files, temporary))
        try:
            yield files
        finally:
            _OPEN.reset(token)
        take_places(files)


def take_places(files: Sequence[Written], *, gone: Sequence[Path] = ()) -> None:
    """Give finished files their places and remove those in `gone`; if anything fails, everything is
    put back as it was.
    """
    with ExitStack() as temporary, ExitStack() as undo:
        paths = [*(file.target for file in files), *gone]
        old = {path: temporary.enter_context(_second_name(path)) for path in paths}
        for file in files:
            _take_place(file)
            undo.callback(_put_back, old[file.target], file.target)
        for path in gone:
            path.unlink(missing_ok=True)
            undo.callback(_put_back, old[path], path)
        undo.pop_all()


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a place that is neither free nor a regular file (or a link to one)."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(mode), "a device")
        raise ValueError(
            f"{path} is {kind}, and only a regular file is replaced; choose another name."
        )


@contextmanager
def _temporary(folder: Path, name: str) -> Iterator[Path]:
    """A new empty file, removed at the end. It is locked while this process lives: what a killed
    run left is not.
    """
    while True:
        path = folder / f".{name}.{secrets.token_hex(6)}"
        file = open(path, "xb")  # noqa: SIM115  # closed below
        # another run took it for left over, since it was not locked yet
        with suppress(BlockingIOError):
            if not locked(file.fileno(), wait=False):
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


def _sweep(target: Path) -> None:
    """Remove unfinished files for `target` that no living process has locked; none where files
    cannot be locked.
    """
    left = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{12}}")
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if left.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError), open(entry.path, "rb+") as file:
                    if locked(file.fileno(), wait=False):
                        os.unlink(entry.path)


@contextmanager
def _second_name(target: Path) -> Iterator[Path | None]:
    """A second name for what is at `target`, until the end; None if nothing is there."""
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


def _put_back(before: Path | None, target: Path) -> None:
    if before is None:
        target.unlink(missing_ok=True)
    else:
        os.replace(before, target)


def _take_place(file: Written) -> None:
    check_regular(file.target)
    if not file.overwrite:
        try:
            # unlike a rename it fails if the name is taken, also by another process
            os.link(file.beside, file.target)
            return
        except OSError:  # taken, or a disk without hard links
            if file.target.exists():
                raise ValueError(
                    f"{file.target} has been written by another run meanwhile and is kept; choose "
                    f"another name, or ask to "
                    "replace it."
                ) from None
    os.replace(file.beside, file.target)


@contextmanager
def held(folder: Path) -> Iterator[None]:
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
            if locked(file, wait=False) and not is_at(file, lock):
                continue
            yield
            return
        finally:
            os.close(file)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """One process at a time for this folder; others wait. Where folders cannot be locked, nothing
    is.
    """
    with ExitStack() as stack:
        with suppress(OSError):  # Windows opens no folders
            stack.callback(os.close, file := os.open(folder, os.O_RDONLY))
            locked(file, wait=True)
        yield


def locked(file: int, *, wait: bool) -> bool:
    """Lock an open file; False if that is impossible. If another holds it, `wait`, or raise
    BlockingIOError.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    # not a POSIX system, or a disk that knows no locks (some network disks)
    except (ImportError, OSError):
        return False
    return True


def is_at(file: int, path: Path) -> bool:
    """Whether the open file is the one that `path` names now."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def plain(value: Any, *, nan: str | Exception | None = None, digits: int | None = None) -> Any:
    """Nested values in JSON's types: infinity is the text "inf", NaN is `nan` (null, a text, or an
    error that is raised).

    NumPy's scalars and arrays become numbers and lists, and keys become text. Floats keep `digits`
    significant digits (all by default). Anything else is not changed: ``json.dumps`` refuses it or
    turns it into text.
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
