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

_LOCK = ".lock"


@dataclass(frozen=True)
class Written:
    """A finished file under its temporary name, and the place that it is to take."""

    beside: Path
    target: Path
    overwrite: bool


@dataclass(frozen=True)
class _Together:
    """The finished files of a `written_together` that is open, and the temporary files to remove at its end."""

    files: list[Written]
    temporary: ExitStack


_OPEN: ContextVar[_Together | None] = ContextVar("_OPEN", default=None)


@contextmanager
def written_beside(path: str | os.PathLike[str], *, within: Path | None = None, overwrite: bool = True) -> Iterator[Path]:
    """Yields a name beside `path` to write to; it takes the place of `path` only if all went well.

    A link stays a link, and its target is what is replaced; a ValueError if that is a folder, a device, a pipe or a socket.
    Unfinished files that killed runs left beside `path` are removed. `within` is a folder on the same disk for the
    unfinished file, so that a kill leaves nothing outside it. Without `overwrite` a file that has come to `path` meanwhile
    is kept, and this is a ValueError.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; make it first.")
    check_regular(path)
    if within is None:
        _sweep(target)
    together = _OPEN.get()
    with ExitStack() as own:
        temporary = own if together is None else together.temporary
        beside = temporary.enter_context(_temporary(target.parent if within is None else within, target.name))
        yield beside
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())  # otherwise a crash of the machine could keep the new name and lose the content
        if together is None:
            _take_place(Written(beside, target, overwrite))
        else:
            together.files.append(Written(beside, target, overwrite))


@contextmanager
def written_together() -> Iterator[list[Written]]:
    """The files that `written_beside` writes in here take their places at the end, all of them or none.

    Yields those that are finished.
    """
    with ExitStack() as temporary:
        together = _Together([], temporary)
        token = _OPEN.set(together)
        try:
            yield together.files
        finally:
            _OPEN.reset(token)
        take_places(together.files)


def take_places(files: Sequence[Written], *, gone: Sequence[Path] = ()) -> None:
    """Give finished files their places and remove those that are `gone`: all of it, or everything is put back as it was."""
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
    """Refuse what a new file must not replace: all but a regular file, a link to one, and a free name."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(mode), "a device")
        raise ValueError(f"{path} is {kind}, and only a regular file is replaced; choose another name.")


@contextmanager
def _temporary(folder: Path, name: str) -> Iterator[Path]:
    """A new empty file, locked while this process lives, which tells it from what a killed run left; removed at the end."""
    with ExitStack() as held:
        while True:
            path = folder / f".{name}.{secrets.token_hex(6)}"
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                lockable = locked(file, wait=False)
            except BlockingIOError:  # another run takes it for left over, which it was for a moment
                os.close(file)
                continue
            if lockable and is_at(file, path):
                held.callback(os.close, file)
                break
            os.close(file)
            if not lockable:
                break
        try:
            yield path
        finally:
            held.close()  # before the name goes: a network disk would keep another for an open file
            path.unlink(missing_ok=True)


def _sweep(target: Path) -> None:
    """Remove unfinished files for `target` that no living process has locked; none where files cannot be locked."""
    left = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{12}}")
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if left.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    _remove_unless_locked(entry.path)


def _remove_unless_locked(path: str) -> None:
    file = os.open(path, os.O_RDWR)
    try:
        if locked(file, wait=False):
            os.unlink(path)
    finally:
        os.close(file)


@contextmanager
def _second_name(target: Path) -> Iterator[Path | None]:
    """What is at `target` now under another name too, until the end; None where nothing is."""
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
    if file.overwrite:
        os.replace(file.beside, file.target)
    else:
        _give_free_name(file.beside, file.target)


def _give_free_name(beside: Path, target: Path) -> None:
    try:
        os.link(beside, target)  # unlike a rename it fails if the name is taken, also by another process just now
    except FileExistsError:
        raise ValueError(
            f"{target} has been written by another run meanwhile and is kept; choose another name, or ask to replace it."
        ) from None
    except OSError:  # a disk without hard links
        if target.exists():
            raise ValueError(f"{target} has been written by another run meanwhile and is kept.") from None
        os.replace(beside, target)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make a folder if need be and hold it against all others who would hold it; a BlockingIOError if another does.

    The hold ends with the process, so a kill leaves none behind. Where files cannot be locked nothing is held.
    """
    while True:
        folder.mkdir(exist_ok=True)
        lock = folder / _LOCK
        try:
            file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # the other has just removed the folder, being done with it
            continue
        try:
            if locked(file, wait=False) and not is_at(file, lock):
                continue
            yield
            return
        finally:
            os.close(file)


def locked(file: int, *, wait: bool) -> bool:
    """Lock an open file; False where that cannot be done. What another holds is waited for, or a BlockingIOError."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except (ImportError, OSError):  # not a POSIX system, or a disk that knows no locks (some network disks)
        return False
    return True


def is_at(file: int, path: Path) -> bool:
    """Whether the open file is the one that `path` names now."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def plain(value: Any, *, nan: str | Exception | None = None, digits: int | None = None) -> Any:
    """Nested values as JSON's types: infinity is the text "inf", NaN is `nan` (null, a text, or an error that is raised).

    NumPy's scalars and arrays become numbers and lists, and keys become texts. Floats keep `digits` significant digits,
    all of them by default. Anything else is left as it is, for ``json.dumps`` to refuse or to turn into text.
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
        return "inf" if value > 0 else "-inf"
    return value if digits is None else float(f"{value:.{digits}g}")
