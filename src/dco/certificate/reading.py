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
    """Read a value of JSON as a type: lists become tuples, and "inf" is a number.

    `name` is what the value is called if it does not fit.
    """
    # 1. Types that are made of others.
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
        _, kind_of_values = get_args(kind)
        return {
            key: read_value(kind_of_values, item, f"{key} of {name}") for key, item in value.items()
        }

    # 2. Numbers, texts and truth values.
    is_number = type(value) in (int, float) or value in ("inf", "-inf")
    if kind is float and is_number:
        with suppress(OverflowError):
            return float(value)
    if type(value) is not kind:
        raise _misfit(value, name)
    if kind is int and not 0 <= value < LARGEST_WHOLE_NUMBER:
        raise _misfit(value, name)
    return value


def read_record(kind: Any, value: Any, name: str) -> Any:
    """Read an object as a record: it must state every field, and no other."""
    if not isinstance(value, dict):
        raise _misfit(value, name)

    field_names = {field.name for field in fields(kind)}
    missing = sorted(field_names - value.keys())
    unknown = sorted(value.keys() - field_names)
    if missing or unknown:
        raise ValueError(f"{name} misses the fields {missing} and has unknown ones {unknown}")

    types = get_type_hints(kind)
    field_values = {
        field: read_value(types[field], part, f"{field} of {name}") for field, part in value.items()
    }
    return kind(**field_values)


def _read_as_one_of(kinds: tuple[Any, ...], value: Any, name: str) -> Any:
    """Read a value as the first of several types that it fits."""
    for kind in kinds:
        with suppress(ValueError):
            return read_value(kind, value, name)
    raise _misfit(value, name)


def _read_tuple(kinds: tuple[Any, ...], values: list[Any], name: str) -> tuple[Any, ...]:
    """Read a list as a tuple, such as tuple[float, float], or tuple[str, ...] of any length."""
    is_of_any_length = kinds[-1] is Ellipsis
    if is_of_any_length:
        kinds = kinds[:1] * len(values)
    if len(kinds) != len(values):
        raise _misfit(values, name)

    pairs = zip(kinds, values, strict=True)
    return tuple(read_value(kind, value, f"an entry of {name}") for kind, value in pairs)


def _read_calibration(value: Any, name: str) -> Any:
    """Read the facts of a calibration as the class that their kind names."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in FACTS:
        raise _misfit(value, name)
    stated = {key: part for key, part in value.items() if key != "kind"}
    return read_record(FACTS[kind], stated, name)


def _misfit(value: Any, name: str) -> ValueError:
    return ValueError(f"{name} is {value!r:.200}")
