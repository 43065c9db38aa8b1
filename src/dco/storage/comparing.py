"""Compare an estimator with its copy from a file, attribute by attribute."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Set
from typing import Any

import numpy as np
from scipy.sparse import issparse

from dco.foundations.arrays import AnyArray

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, np.ufunc)


def find_difference(
    original: Any, copy: Any, compared: dict[tuple[int, int], Any] | None = None
) -> str | None:
    """Return the path of the first part that differs ("" for the whole); None if none does.

    Parts are the same if they agree in type and content, NaN with NaN. Functions and classes are
    the same only if they are one object. `compared` holds the pairs that have been met.
    """
    compared = {} if compared is None else compared
    if original is copy or (id(original), id(copy)) in compared:
        return None
    if type(original) is not type(copy) or isinstance(original, (type, *_FUNCTIONS)):
        return ""

    compared[id(original), id(copy)] = original, copy
    if is_plain(original):
        return None if _is_same_plain(original, copy) else ""

    parts = parts_of(original)
    parts_of_copy = parts_of(copy)
    if [name for name, _ in parts] != [name for name, _ in parts_of_copy]:
        return ""
    for (name, part), (_, part_of_copy) in zip(parts, parts_of_copy, strict=True):
        path = find_difference(part, part_of_copy, compared)
        if path is not None:
            return name + path
    return None


def parts_of(value: Any) -> list[tuple[str, Any]]:
    """Return what makes up an object, each part with its name in a path.

    An object tells its parts by its own `__getstate__`; compiled classes without one tell by
    `__reduce__`.
    """
    if is_plain(value):
        return []
    if isinstance(value, dict):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    if isinstance(value, np.ndarray):
        return [("", value.shape), *parts_of(value.ravel().tolist())]
    if isinstance(value, functools.partial):
        return [(f".{name}", getattr(value, name)) for name in ("func", "args", "keywords")]

    state = _state_of(value)
    if not isinstance(state, dict):
        return [("", state)]
    return [(f".{name}", state[name]) for name in sorted(state)]


def _state_of(value: Any) -> Any:
    """Return the state of an object as pickle would ask for it."""
    state = value.__getstate__() if hasattr(value, "__getstate__") else attributes_of(value)
    if state is None:
        try:
            state = value.__reduce__()[1:]
        except Exception:
            return {}  # nothing to compare: the types agree
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
        attributes, slots = state
        return {**(attributes or {}), **slots}
    return state


def attributes_of(value: Any) -> dict[str, Any]:
    """Return what an object holds, in its dictionary and in slots."""
    attributes = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                attributes[name] = getattr(value, name)
    return attributes


def walk(value: Any) -> Iterator[Any]:
    """Yield every object that can be reached from another one, once."""
    pending = [value]
    visited: dict[int, Any] = {}  # keeps the objects, so that no id is taken again
    while pending:
        reached = pending.pop()
        is_leaf = isinstance(reached, str | bytes | int | float | type | None)
        if is_leaf or id(reached) in visited:
            continue
        visited[id(reached)] = reached
        yield reached

        if isinstance(reached, dict):
            pending += reached.values()
        elif isinstance(reached, list | tuple | Set):
            pending += reached
        elif isinstance(reached, np.ndarray) and reached.dtype == object:
            pending += reached.ravel().tolist()
        pending += attributes_of(reached).values()


def is_plain(value: Any) -> bool:
    """Say whether a value has no parts of its own, so that it is compared as a whole."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype != object)
    is_one_value = isinstance(
        value, str | bytes | bytearray | int | float | complex | np.generic | Set | None
    )
    return is_one_value or bool(issparse(value))


def _is_same_plain(one: Any, other: Any) -> bool:
    """Compare two plain values of one type; NaN equals NaN."""
    if issparse(one):
        return _is_same_sparse(one, other)
    if isinstance(one, np.ma.MaskedArray):
        is_same_mask = np.array_equal(np.ma.getmaskarray(one), np.ma.getmaskarray(other))
        return is_same_mask and _is_same_plain(one.filled(), other.filled())
    if isinstance(one, np.ndarray | np.generic):
        return _is_same_array(np.asarray(one), np.asarray(other))
    if isinstance(one, Set):
        return bool(one == other)
    return repr(one) == repr(other)  # repr tells NaN and every digit


def _is_same_sparse(one: Any, other: Any) -> bool:
    cells = one.tocoo()
    other_cells = other.tocoo()
    if cells.shape != other_cells.shape:
        return False
    is_same_layout = all(map(np.array_equal, cells.coords, other_cells.coords))
    return is_same_layout and _is_same_array(cells.data, other_cells.data)


def _is_same_array(one: AnyArray, other: AnyArray) -> bool:
    """Compare the bytes of two arrays; those between the fields of a record do not count."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.names is not None:
        return all(_is_same_array(one[field], other[field]) for field in one.dtype.names)
    return one.tobytes() == other.tobytes()
