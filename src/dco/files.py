"""What dco writes: files that are complete or absent, and values that strict JSON can hold."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
