"""Save and load fitted estimators by skops, never by pickle: loading runs no code that the file
brings along.

A file is a deflated zip archive: skops' members (``schema.json`` and arrays) and ``dco.json``,
which holds the format's version and the SHA-256 of every other member. The hashes find damage; they
do not prove who wrote the file.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import types
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from dco.foundations.arrays import AnyArray
from dco.foundations.errors import CorruptModelError, UntrustedTypeError
from dco.foundations.extras import installed
from dco.foundations.files import write_file
from dco.foundations.notes import Note, show
from dco.storage.trusted_types import PACKAGES, trusted_names

FORMAT = 4
_MANIFEST = "dco.json"
_SCHEMA = "schema.json"


def save(estimator: Any, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
    """Write a fitted estimator to `path`; an existing file is replaced only with `overwrite`, else
    a ValueError.

    What cannot be read back is a TypeError that names the attribute, and leaves an older file as it
    was.
    """
    write_file(path, pack(estimator), overwrite=overwrite)


def pack(estimator: Any) -> bytes:
    """Return the content of a model file, after it was loaded back and compared with the original.

    The comparison is attribute by attribute: what cannot be read back is a TypeError that names the
    attribute.
    """
    try:
        content = _packed(estimator)
        different = _difference(estimator, _own_copy(content))
    except Exception as failure:
        raise _cannot_save(estimator, failure) from failure
    if different is not None:
        raise TypeError(
            f"{type(estimator).__name__}{different} would not come back from a file as it is now. "
            f"{_ADVICE}"
        )
    return content


def load(path: str | os.PathLike[str], *, trusted: Iterable[str | type] = ()) -> Any:
    """Read an estimator that `save` wrote.

    Only types on the list of `trusted_types`, those that skops trusts by itself and those named in
    `trusted` are built; a file that holds any other is an UntrustedTypeError and nothing of it is
    built. A file that is damaged, was edited or is not a model file is a CorruptModelError. One
    that was written with another version of dco or scikit-learn is read with a warning.
    """
    import skops.io
    from sklearn.exceptions import InconsistentVersionWarning

    allowed = trusted_names() | _names(trusted)
    data = _checked(Path(path).read_bytes(), path)
    with _corrupt_if_it_fails(path):
        unknown = sorted(set(skops.io.get_untrusted_types(data=data)) - allowed)
    if unknown:
        raise UntrustedTypeError(
            f"{path} holds types that are not trusted: {', '.join(unknown)}. If you know each of "
            f"them and trust whoever "
            f"wrote the file, pass trusted={_shortest([*_names(trusted), *unknown])!r}; building "
            f"them may run their code.",
            types=tuple(unknown),
        )
    with _corrupt_if_it_fails(path), warnings.catch_warnings():
        # one for each part of the model; ours is one for all
        warnings.simplefilter("ignore", InconsistentVersionWarning)
        estimator = skops.io.loads(data, trusted=sorted(allowed))
        other = _other_versions(data)
    if other:
        text = (
            f"{path} was written with {' and '.join(other)}: it may predict otherwise than "
            f"when it was calibrated."
        )
        remedy = "`dco audit` with the rows of the fit computes the calibration scores again."
        show([Note("other-versions", text, remedy)])
    return estimator


def _other_versions(data: bytes) -> list[str]:
    """The packages that shape predictions and had another version when the file was written."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        written = json.loads(archive.read(_MANIFEST)).get("versions", {})
    here = versions()
    return [
        f"{package} {written[package]} (here: {here.get(package)})"
        for package in ("decoupled-conformal", "scikit-learn")
        if package in written and written[package] != here.get(package)
    ]


def _packed(estimator: Any) -> bytes:
    import skops.io

    data: bytes = skops.io.dumps(estimator)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = {
        "format": FORMAT,
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
        "versions": versions(),
    }
    members[_MANIFEST] = json.dumps(manifest, indent=1).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def versions() -> dict[str, str]:
    """The versions of dco and of the packages that a model file is made of, as they are installed
    here.
    """
    return installed("decoupled-conformal", "numpy", "scipy", "scikit-learn", "skops")


def _checked(data: bytes, path: object) -> bytes:
    """`data` if it is an archive whose members are all there, as they were written, and nothing
    else.
    """
    if not data.startswith(b"PK"):
        kind = (
            " It looks like a pickle, and pickles are never loaded: they can run any code."
            if data[:1] == b"\x80"
            else ""
        )
        raise CorruptModelError(f"{path} is not a model file.{kind}")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            wrong = _wrong_with(archive)
    except Exception as failure:  # zipfile raises many kinds on damaged files
        raise CorruptModelError(f"{path} is damaged or was cut short: {failure}.") from failure
    if wrong is not None:
        raise CorruptModelError(f"{path} {wrong}")
    return data


def _wrong_with(archive: zipfile.ZipFile) -> str | None:
    """Say what is wrong with an archive: members that are missing, added or changed."""
    names = archive.namelist()
    if _MANIFEST not in names or _SCHEMA not in names:
        return f"was not written by dco.save: it has no {_MANIFEST} or no {_SCHEMA}."
    manifest = json.loads(archive.read(_MANIFEST))
    if manifest["format"] != FORMAT:
        there = f"has format {manifest['format']!r}, but this version of dco reads format {FORMAT}"
        return f"{there}: use the one that wrote it, or fit again."
    if set(manifest["sha256"]) != set(names) - {_MANIFEST}:
        return f"was edited: its members are not those that {_MANIFEST} lists."
    for name, digest in manifest["sha256"].items():
        if hashlib.sha256(archive.read(name)).hexdigest() != digest:
            return f"is damaged or was edited: the SHA-256 of {name} is not the one in {_MANIFEST}."
    return None


@contextmanager
def _corrupt_if_it_fails(path: object) -> Iterator[None]:
    """Turn any failure to read a file into a CorruptModelError; a package that is not installed
    stays an ImportError.
    """
    try:
        yield
    except (CorruptModelError, ModuleNotFoundError, MemoryError):
        raise
    except Exception as failure:
        raise CorruptModelError(
            f"{path} cannot be read: {type(failure).__name__}: {failure}. It is damaged, was "
            f"edited, or was written with "
            f"other versions of its packages (its {_MANIFEST} lists them)."
        ) from failure


def _names(trusted: Iterable[str | type]) -> frozenset[str]:
    if not isinstance(trusted, Iterable) or isinstance(trusted, str | type):
        raise TypeError(
            f"trusted must be a list of types or of their full names, got "
            f"{trusted!r}: write trusted=[...]."
        )
    named = [
        item if isinstance(item, str) else f"{item.__module__}.{item.__name__}" for item in trusted
    ]
    return frozenset(name for item in named for name in PACKAGES.get(item, (item,)))


def _shortest(types: Iterable[str]) -> list[str]:
    """The types by the names of packages, where those hold them."""
    found = (
        (name, [package for package, held in PACKAGES.items() if name in held]) for name in types
    )
    return sorted({packages[0] if packages else name for name, packages in found})


# --- is the copy the same?
# --------------------------------------------------------------------------------------------

_ADVICE = "The page 'Saving and loading' of the documentation lists what can be saved."


_OWN_WAY = {  # packages whose models keep their numbers where no file of ours can take them from
    "catboost": "CatBoost models are saved by CatBoost: model.save_model(path), beside "
    "est.certificate_.to_json().",
    "skorch": "skorch nets are saved by skorch: net.save_params(f_params=path), beside "
    "est.certificate_.to_json().",
}


def _cannot_save(estimator: Any, failure: Exception) -> TypeError:
    packages = {
        type(part).__module__.partition(".")[0] for part in islice(_walk(estimator), 10_000)
    }
    advice = next((words for package, words in _OWN_WAY.items() if package in packages), _ADVICE)
    return TypeError(
        f"{type(estimator).__name__}{_culprit(estimator)} cannot be saved: {failure}. {advice}"
    )


def _walk(estimator: Any) -> Iterator[Any]:
    """Yield every object that can be reached from an estimator, once."""
    pending = [estimator]
    visited: dict[int, Any] = {}  # keeps the objects, so that no id is taken again
    while pending:
        thing = pending.pop()
        if id(thing) in visited or isinstance(thing, str | bytes | int | float | type | None):
            continue
        visited[id(thing)] = thing
        yield thing

        if isinstance(thing, dict):
            pending += thing.values()
        elif isinstance(thing, list | tuple | Set):
            pending += thing
        elif isinstance(thing, np.ndarray) and thing.dtype == object:
            pending += thing.ravel().tolist()
        pending += _attributes(thing).values()


def _attributes(thing: Any) -> dict[str, Any]:
    """Return what an object holds, in its dictionary and in slots."""
    held = dict(getattr(thing, "__dict__", {}))
    for base in type(thing).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                held[name] = getattr(thing, name)
    return held


def _culprit(thing: Any) -> str:
    """The path of the innermost part that does not survive a round trip by itself."""
    import skops.io

    with suppress(Exception):  # of an object that does not tell its parts
        # what was given, then what fitted
        for place, part in sorted(_parts(thing), key=lambda part: part[0].endswith("_")):
            survives = False
            with suppress(Exception):
                survives = _difference(part, _own_copy(skops.io.dumps(part))) is None
            if not survives:
                return place + _culprit(part)
    return ""


def _own_copy(data: bytes) -> Any:
    """What is in a file that this process has just written; its types are the caller's own, so all
    are trusted.
    """
    import skops.io

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class on its way out can still be saved
        return skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))


def _parts(thing: Any) -> list[tuple[str, Any]]:
    """What makes up an object, as its own `__getstate__` tells; compiled classes without one tell
    by `__reduce__`.
    """
    if _is_plain(thing):
        return []
    if isinstance(thing, dict):
        return [(f"[{key!r}]", value) for key, value in thing.items()]
    if isinstance(thing, list | tuple):
        return [(f"[{index}]", value) for index, value in enumerate(thing)]
    if isinstance(thing, np.ndarray):
        return [("", thing.shape), *_parts(thing.ravel().tolist())]
    if isinstance(thing, functools.partial):
        return [(f".{name}", getattr(thing, name)) for name in ("func", "args", "keywords")]
    state = thing.__getstate__() if hasattr(thing, "__getstate__") else _attributes(thing)
    if state is None:
        try:
            state = thing.__reduce__()[1:]
        except Exception:
            return []  # nothing to compare: the types agree
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):  # slots
        state = {**(state[0] or {}), **state[1]}
    if not isinstance(state, dict):
        return [("", state)]
    return sorted(((f".{name}", value) for name, value in state.items()), key=lambda pair: pair[0])


def _is_plain(thing: Any) -> bool:
    """Whether a value has no parts of its own, so that `_same_plain` compares all of it."""
    plain = isinstance(
        thing, str | bytes | bytearray | int | float | complex | np.generic | Set | None
    ) or issparse(thing)
    return plain or (isinstance(thing, np.ndarray) and thing.dtype != object)


def _same_plain(one: Any, other: Any) -> bool:
    """Whether two plain values of one type are the same, NaN equal to NaN."""
    if issparse(one):
        return _same_sparse(one, other)
    if isinstance(one, np.ma.MaskedArray):
        same_mask = np.array_equal(np.ma.getmaskarray(one), np.ma.getmaskarray(other))
        return same_mask and _same_plain(one.filled(), other.filled())
    if isinstance(one, np.ndarray | np.generic):
        return _same_array(np.asarray(one), np.asarray(other))
    if isinstance(one, Set):
        return bool(one == other)
    return repr(one) == repr(other)  # repr tells NaN and every digit


def _same_sparse(one: Any, other: Any) -> bool:
    cells, others = one.tocoo(), other.tocoo()
    if cells.shape != others.shape:
        return False
    same_places = all(map(np.array_equal, cells.coords, others.coords))
    return same_places and _same_array(cells.data, others.data)


def _same_array(one: AnyArray, other: AnyArray) -> bool:
    """Whether two arrays hold the same bytes; those between the fields of a record do not count."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.names is not None:
        return all(_same_array(one[field], other[field]) for field in one.dtype.names)
    return one.tobytes() == other.tobytes()


def _difference(one: Any, other: Any, seen: dict[tuple[int, int], Any] | None = None) -> str | None:
    """Where two objects differ ("" for at the top), or None if they are the same in type and
    content, NaN equal to NaN.
    """
    seen = {} if seen is None else seen
    if one is other or (id(one), id(other)) in seen:
        return None
    if type(one) is not type(other) or isinstance(
        one, type | types.FunctionType | types.BuiltinFunctionType | np.ufunc
    ):
        return ""  # not the same object, so not the same function
    seen[id(one), id(other)] = one, other
    if _is_plain(one):
        return None if _same_plain(one, other) else ""
    first, second = _parts(one), _parts(other)
    if [place for place, _ in first] != [place for place, _ in second]:
        return ""
    for (place, a), (_, b) in zip(first, second, strict=True):
        if (inner := _difference(a, b, seen)) is not None:
            return place + inner
    return None
