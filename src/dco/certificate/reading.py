"""Read values of JSON as fields of typed records; whatever does not fit is a ValueError."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from dco.calibration.facts import FACTS, CalibrationFacts

LARGEST_WHOLE_NUMBER = 10**300


def parse_object(text: str) -> dict[str, Any]:
    """Parse strict JSON that must hold an object."""
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except (json.JSONDecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"it is not strict JSON ({error})") from None
    if not isinstance(data, dict):
        raise ValueError("the JSON is not an object")
    return data


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def read_value(kind: Any, value: Any, name: str) -> Any:
    """Read a value as this type: lists become tuples, and "inf" is a number."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _read_as_one_of(get_args(kind), value, name)
    if kind is CalibrationFacts:
        return _read_calibration(value, name)
    if is_dataclass(kind):
        return read_record(kind, value, name)
    if origin is tuple and isinstance(value, list):
        return _read_tuple(get_args(kind), value, name)
    if origin is Mapping and isinstance(value, dict):
        _, kind_of_entries = get_args(kind)
        return {
            key: read_value(kind_of_entries, entry, f"{key} of {name}")
            for key, entry in value.items()
        }
    if kind is float and (type(value) in (int, float) or value in ("inf", "-inf")):
        with suppress(OverflowError):
            return float(value)
    if type(value) is kind and (kind is not int or 0 <= value < LARGEST_WHOLE_NUMBER):
        return value
    raise _misfit(value, name)


def read_record(kind: Any, value: Any, name: str) -> Any:
    """Read an object as a record: it must state every field, and no other."""
    if not isinstance(value, dict):
        raise _misfit(value, name)
    names = {field.name for field in fields(kind)}
    missing = sorted(names - value.keys())
    unknown = sorted(value.keys() - names)
    if missing or unknown:
        raise ValueError(f"{name} misses the fields {missing} and has unknown ones {unknown}")
    hints = get_type_hints(kind)
    read = {key: read_value(hints[key], part, f"{key} of {name}") for key, part in value.items()}
    return kind(**read)


def _read_as_one_of(kinds: tuple[Any, ...], value: Any, name: str) -> Any:
    for kind in kinds:
        with suppress(ValueError):
            return read_value(kind, value, name)
    raise _misfit(value, name)


def _read_tuple(kinds: tuple[Any, ...], values: list[Any], name: str) -> tuple[Any, ...]:
    is_of_any_length = kinds[-1] is Ellipsis
    expected = kinds[:1] * len(values) if is_of_any_length else kinds
    if len(expected) != len(values):
        raise _misfit(values, name)
    entry = f"an entry of {name}"
    return tuple(
        read_value(kind, value, entry) for kind, value in zip(expected, values, strict=True)
    )


def _read_calibration(value: Any, name: str) -> Any:
    """Read the facts of a calibration as the class that their kind names."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in FACTS:
        raise _misfit(value, name)
    stated = {key: part for key, part in value.items() if key != "kind"}
    return read_record(FACTS[kind], stated, name)


def _misfit(value: Any, name: str) -> ValueError:
    return ValueError(f"{name} is {value!r:.200}")
