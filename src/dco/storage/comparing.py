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
    """Return the path of the first part of an object that differs from its copy.

    The path is written as in Python: ".models[0].coef_". It is "" if the objects differ as a whole
    (in type, say), and None if they agree. Numbers and texts are the same if type and content
    agree, NaN with NaN. Functions and classes are the same only if they are one object.

    Leave `compared` out: the function calls itself with the pairs of objects that were compared so
    far, by their ids, so that an object that contains itself does not lead round in circles.
    """
    # 1. Are they one object, or a pair that was compared before?
    compared = {} if compared is None else compared
    pair = (id(original), id(copy))
    if original is copy or pair in compared:
        return None
    compared[pair] = original, copy  # kept, so that no other object gets one of these ids

    # 2. Can they be compared as a whole?
    if type(original) is not type(copy) or isinstance(original, (type, *_FUNCTIONS)):
        return ""
    if is_plain(original):
        return None if _is_same_plain(original, copy) else ""

    # 3. Compare their parts one by one.
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
    """List the parts of an object, each with the name that it has in a path.

    {"a": 1} -> [("['a']", 1)], and an object with the attribute a -> [(".a", 1)]. What has no parts
    of its own, such as a number, gives an empty list.
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
    """Return what pickle would store of an object: in most cases a dict of its attributes.

    A compiled class without a state of its own gives a tuple instead: the arguments from which
    `__reduce__` would build the object again.
    """
    state = value.__getstate__()
    if state is None:
        state = _arguments_to_rebuild(value)

    # A class with __slots__ gives two dicts: the other attributes (None if it has no others), and
    # the slots.
    is_pair_of_dicts = isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict)
    if not is_pair_of_dicts:
        return state
    attributes, slots = state
    return {**(attributes or {}), **slots}


def _arguments_to_rebuild(value: Any) -> Any:
    """Return the arguments that pickle would pass to the constructor of an object.

    An empty dict where the object cannot be pickled: then there is nothing to compare but types.
    """
    try:
        return value.__reduce__()[1:]
    except Exception:
        return {}


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object by name, those in ``__slots__`` included."""
    attributes = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        if isinstance(slots, str):  # a single slot may be written without a tuple
            slots = (slots,)
        for name in slots:
            is_attribute = name not in ("__dict__", "__weakref__")
            if is_attribute and hasattr(value, name):
                attributes[name] = getattr(value, name)
    return attributes


def walk(value: Any) -> Iterator[Any]:
    """Yield an object and every object inside it, however deep, each once.

    Inside are the items of containers and the attributes of objects. Numbers, texts and classes
    are left out.
    """
    pending = [value]
    visited: dict[int, Any] = {}  # by id; the objects are kept, so that no id is used again
    while pending:
        current = pending.pop()
        is_leaf = isinstance(current, str | bytes | int | float | type | None)
        if is_leaf or id(current) in visited:
            continue
        visited[id(current)] = current
        yield current

        if isinstance(current, dict):
            pending += current.values()
        elif isinstance(current, list | tuple | Set):
            pending += current
        elif isinstance(current, np.ndarray) and current.dtype == object:
            pending += current.ravel().tolist()
        pending += attributes_of(current).values()


def is_plain(value: Any) -> bool:
    """Return whether a value has no parts of its own, so that it is compared as a whole."""
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
    if isinstance(one, np.ma.MaskedArray):  # what is stored under the mask does not count
        is_same_mask = np.array_equal(np.ma.getmaskarray(one), np.ma.getmaskarray(other))
        return is_same_mask and _is_same_plain(one.filled(), other.filled())
    if isinstance(one, np.ndarray | np.generic):
        return _is_same_array(np.asarray(one), np.asarray(other))
    if isinstance(one, Set):
        return bool(one == other)
    return repr(one) == repr(other)  # repr tells NaN and every digit


def _is_same_sparse(one: Any, other: Any) -> bool:
    """Compare two sparse matrices cell by cell; the order of their cells counts."""
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
