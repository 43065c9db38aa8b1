"""Files that are complete or absent: written beside their place, and moved there when all is on the disk."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_beside(path: str | os.PathLike[str], *, within: Path | None = None) -> Iterator[Path]:
    """Yields a name beside `path` to write to; it takes the place of `path` only if all went well.

    A link stays a link, and its target is what is replaced. `within` is a folder on the same disk for the unfinished file,
    so that a kill leaves nothing outside it.
    """
    target = Path(path).resolve()
    beside = (target.parent if within is None else within) / f".{target.name}.{secrets.token_hex(6)}"
    try:
        yield beside
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())  # otherwise a crash of the machine could keep the new name and lose the content
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)
