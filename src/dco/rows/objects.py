"""Fingerprints of objects: equal structures have equal digests, in every process, and after saving and loading.

`joblib.hash` is not enough: it counts shared parts other than copies of them, arrays by their memory layout too, and fails
on functions inside functions.
"""

from __future__ import annotations

import struct
import types
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any

import numpy as np

from dco.foundations.arrays import AnyArray


def object_fingerprint(thing: Any) -> str:
    """A digest, in hex, of any object: nested plain data, arrays, dataclasses, fitted estimators.

    Dictionaries and sets are read in a canonical order, arrays by dtype, shape and values (not by memory layout), classes
    and functions by name (a lambda by its code), any other object by what it would hand to pickle. A part that occurs twice
    counts like two copies of it, and is read once.
    """
    return blake2b(_Walk().written(thing), digest_size=16, person=b"dco structure").hexdigest()


class _Walk:
    """One walk over a structure, which writes each part of it once.

    A part is written as the digest of a tag and of its own parts. One that is met again is written as before, shared or
    copied. A part that leads back to itself has no digest before its whole circle is read, so within a circle a part that is
    met again is written as how far back it is. Circles (strongly connected components) are found as Tarjan (1972) does:
    `open` holds the parts whose circle is not yet complete, in the order in which they were met, and `back` the earliest of
    them that the part being read leads to.
    """

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.open: list[int] = []
        self.places: dict[int, int] = {}  # of the parts in `open`
        self.back = 0
        self.in_circle = False  # whether the part being read leads to a circle
        self.kept: list[Any] = []  # an id is taken again once its object is gone

    def written(self, value: Any) -> bytes:
        """A value as bytes: plain values and names in full, anything else by its digest."""
        if isinstance(value, np.generic):
            value = value.item() if value.dtype.kind in "biufSU" else np.asarray(value)
        plain = _plain_value(value)
        if plain is not None:
            return plain
        if id(value) in self.parts:
            known = self.parts[id(value)]
            self.in_circle |= _leads_to_circle(known)
            return known
        if id(value) in self.places:
            self.back, self.in_circle = min(self.back, self.places[id(value)]), True
            return _tagged("back", str(len(self.open) - self.places[id(value)]).encode())
        return self._first_meeting(value)

    def _first_meeting(self, value: Any) -> bytes:
        above, place = (self.back, self.in_circle), len(self.open)
        self.kept.append(value)
        self.open.append(id(value))
        self.places[id(value)] = self.back = place
        self.in_circle = False
        digest = blake2b(self._content(value), digest_size=32, person=b"dco part").digest()
        result = _tagged("circle" if self.in_circle else "part", digest)
        if self.back == place:  # nothing below leads further back: the circle is complete
            for number, member in enumerate(self.open[place:]):
                self.parts[member] = result if number == 0 else _tagged("circle", digest, str(number).encode())
                del self.places[member]
            del self.open[place:]
        self.back, self.in_circle = min(above[0], self.back), above[1] or self.in_circle
        return result

    def _content(self, value: Any) -> bytes:
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, dict):
            entries = [
                entry for entry in value.items() if not (isinstance(entry[0], str) and entry[0] == "_sklearn_version")
            ]
            keys = self._in_order([key for key, _ in entries])
            pairs = sorted((key, self.written(entries[place][1])) for key, place in keys)
            return _tagged("dict", *(part for pair in pairs for part in pair))
        if isinstance(value, (set, frozenset)):
            return _tagged("set", *(written for written, _ in self._in_order(list(value))))
        if type(value) in (list, tuple):
            return _tagged(type(value).__name__, *map(self.written, value))
        if isinstance(value, types.FunctionType):
            return self._local_function(value)
        if is_dataclass(value):
            parts = {f.name: getattr(value, f.name) for f in fields(value)}
            return _tagged("record", _name_of(type(value)), self.written(parts))
        return self._object(value)

    def _in_order(self, values: list[Any]) -> list[tuple[bytes, int]]:
        """Values that have no order of their own as (written, place), sorted."""
        found = sorted((self.written(value), place) for place, value in enumerate(values))
        if sum(_leads_to_circle(written) for written, _ in found) > 1:  # which is met first would matter
            raise TypeError(
                "A structure holds a set, or a dictionary with keys, of objects that lead back to themselves: they have no "
                "order, so it has no fingerprint. Keep them in a list."
            )
        return found

    def _array(self, value: AnyArray) -> bytes:
        if isinstance(value, np.ma.MaskedArray):
            return _tagged("masked", self.written(value.filled()), self.written(np.ma.getmaskarray(value)))
        if value.dtype.names and not value.dtype.hasobject:  # field by field: the bytes between fields are undefined
            columns = (self._array(np.asarray(value[name])) for name in value.dtype.names)
            return _tagged("fields", repr(value.dtype.names).encode(), *columns)
        shape = repr(value.shape).encode()
        if value.dtype.hasobject:
            return _tagged("objects", shape, *map(self.written, value.ravel().tolist()))
        plain = np.asarray(value).astype(value.dtype.newbyteorder("<"), order="C", copy=False)
        data = plain.reshape(-1).view(np.uint8).data if plain.nbytes else b""  # read where it lies, not copied
        return _tagged("array", plain.dtype.str.encode(), shape, blake2b(data, digest_size=32).digest())

    def _local_function(self, value: types.FunctionType) -> bytes:
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        around = [_code_parts(value.__code__), cells, value.__defaults__, value.__kwdefaults__]
        return _tagged("local", _name_of(value), self.written(around))

    def _object(self, value: Any) -> bytes:
        if isinstance(value, np.random.RandomState):
            return _tagged("random", self.written(value.get_state(legacy=False)))
        if isinstance(value, np.random.Generator):
            return _tagged("random", self.written(value.bit_generator.state))
        if hasattr(value, "get_arrays") and hasattr(value, "reset_n_calls"):  # scikit-learn's search trees count queries
            return _tagged("tree", _name_of(type(value)), *(self.written(np.asarray(part)) for part in value.get_arrays()))
        try:
            reduced = value.__reduce_ex__(4)
        except TypeError:
            raise TypeError(
                f"A structure holds a {type(value).__module__}.{type(value).__qualname__}, which cannot be written down, so "
                "it has no fingerprint. Use plain data, arrays, dataclasses or objects that can be pickled."
            ) from None
        if isinstance(reduced, str):
            return _tagged("global", _name_of(type(value)), reduced.encode())
        maker, arguments, *rest = reduced
        state = rest[0] if rest else None
        items = [list(part) if part is not None else None for part in rest[1:3]]
        return _tagged("object", _name_of(type(value)), _name_of(maker), *map(self.written, (arguments, state, items)))


def _plain_value(value: Any) -> bytes | None:
    """A plain value, a class or a function with a name of its own; None for anything that has parts."""
    if value is None or isinstance(value, (bool, int, complex)):
        return _tagged(type(value).__name__ if not isinstance(value, Enum) else "enum", repr(value).encode())
    if isinstance(value, float):
        return _tagged("float", struct.pack("<d", value if value == value else np.nan))
    if isinstance(value, str):
        return _tagged("str", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, (bytes, bytearray)):
        return _tagged("bytes", bytes(value))
    if isinstance(value, (type, types.BuiltinFunctionType)):
        return _tagged("name", _name_of(value))
    if isinstance(value, types.FunctionType) and "<" not in value.__qualname__:
        return _tagged("name", _name_of(value))
    return None


def _code_parts(code: types.CodeType) -> list[Any]:
    """What a function does, the functions and comprehensions inside it included."""
    constants = [_code_parts(entry) if isinstance(entry, types.CodeType) else entry for entry in code.co_consts]
    return [code.co_code, list(code.co_names), constants]


def _leads_to_circle(written: bytes) -> bool:
    return written.startswith((b"circle:", b"back:"))


def _name_of(value: Any) -> bytes:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}".encode()


def _tagged(tag: str, *parts: bytes) -> bytes:
    return b"".join([tag.encode(), b":", *(struct.pack("<Q", len(part)) + part for part in parts)])
