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


def read_value(expected: Any, value: Any, name: str) -> Any:
    """Read a parsed value of JSON as a value of this type, or raise a ValueError.

    `expected` is a type as annotations write it: float, a dataclass, tuple[str, ...], int | None.
    Lists become tuples, and "inf" is a float. `name` is what messages call the value.
    """
    # 1. Types that are made of others.
    origin = get_origin(expected)
    if origin in (Union, UnionType):
        return _read_as_one_of(get_args(expected), value, name)
    if expected is CalibrationFacts:
        return _read_calibration(value, name)
    if is_dataclass(expected):
        return read_record(expected, value, name)
    if origin is tuple and isinstance(value, list):
        return _read_tuple(get_args(expected), value, name)
    if origin is Mapping and isinstance(value, dict):
        _, type_of_items = get_args(expected)
        return {
            key: read_value(type_of_items, item, f"{key} of {name}") for key, item in value.items()
        }

    # 2. Numbers, texts and truth values. True is no int here, and 1 is a float.
    is_number = type(value) in (int, float) or value in ("inf", "-inf")
    if expected is float and is_number:
        with suppress(OverflowError):  # a whole number of hundreds of digits
            return float(value)
    if type(value) is not expected:
        raise _unexpected_value(value, name)
    if expected is int and not 0 <= value < LARGEST_WHOLE_NUMBER:
        raise _unexpected_value(value, name)
    return value


def read_record(record_type: Any, value: Any, name: str) -> Any:
    """Read a JSON object as a dataclass: it must state every field, and no other."""
    if not isinstance(value, dict):
        raise _unexpected_value(value, name)

    field_names = {field.name for field in fields(record_type)}
    missing = sorted(field_names - value.keys())
    unknown = sorted(value.keys() - field_names)
    if missing or unknown:
        raise ValueError(f"{name} misses the fields {missing} and has unknown ones {unknown}")

    type_of_field = get_type_hints(record_type)
    field_values = {
        field: read_value(type_of_field[field], field_value, f"{field} of {name}")
        for field, field_value in value.items()
    }
    return record_type(**field_values)


def _read_as_one_of(types: tuple[Any, ...], value: Any, name: str) -> Any:
    """Read a value as the first of several types that it fits."""
    for expected in types:
        with suppress(ValueError):
            return read_value(expected, value, name)
    raise _unexpected_value(value, name)


def _read_tuple(types: tuple[Any, ...], values: list[Any], name: str) -> tuple[Any, ...]:
    """Read a list as a tuple whose items have these types.

    The types are (float, float), say, or (str, ...) for any number of texts.
    """
    is_of_any_length = types[-1] is Ellipsis
    if is_of_any_length:
        types = types[:1] * len(values)
    if len(types) != len(values):
        raise _unexpected_value(values, name)

    items = []
    for expected, value in zip(types, values, strict=True):
        items.append(read_value(expected, value, f"an entry of {name}"))
    return tuple(items)


def _read_calibration(value: Any, name: str) -> Any:
    """Read the facts of a calibration as the class of facts that its "kind" names."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in FACTS:
        raise _unexpected_value(value, name)
    without_kind = {key: part for key, part in value.items() if key != "kind"}
    return read_record(FACTS[kind], without_kind, name)


def _unexpected_value(value: Any, name: str) -> ValueError:
    """Make the error that a value does not have the type that is expected."""
    return ValueError(f"{name} is {value!r:.200}")
