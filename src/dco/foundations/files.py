"""What dco writes: files that are complete or absent, and values that strict JSON can hold."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_LOCK = ".lock"


@contextmanager
def written_beside(path: str | os.PathLike[str], *, within: Path | None = None, overwrite: bool = True) -> Iterator[Path]:
    """Yields a name beside `path` to write to; it takes the place of `path` only if all went well.

    A link stays a link, and its target is what is replaced. `within` is a folder on the same disk for the unfinished file,
    so that a kill leaves nothing outside it. Without `overwrite` a file that has come to `path` meanwhile is kept, and
    this is a ValueError.
    """
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; make it first.")
    beside = (target.parent if within is None else within) / f".{target.name}.{secrets.token_hex(6)}"
    try:
        yield beside
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())  # otherwise a crash of the machine could keep the new name and lose the content
        if overwrite:
            os.replace(beside, target)
        else:
            _give_free_name(beside, target)
    finally:
        beside.unlink(missing_ok=True)


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
