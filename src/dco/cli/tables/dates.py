"""Dates that are written as text: the forms that people use, and seconds since 1970.

A column is read as dates if all its cells agree on one form. ``01/02/2015`` may be the first of
February or the second of January; if every cell of a column may be both, it has two forms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.cli.tables.arrow import arrow, compute
from dco.foundations.arrays import AnyArray, Floats

DAY_FIRST = "day-first"
MONTH_FIRST = "month-first"
ISO = "ISO"

_TEXT = arrow.large_string()
_MONTHS = arrow.array(
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], _TEXT
)

_YEAR = "(?P<year>[0-9]{4})"
_USUAL_YEAR = "(?P<year>1[5-9][0-9]{2}|2[01][0-9]{2})"  # where a code could look like a month
_MONTH = "(?P<month>1[0-2]|0?[1-9])"
_DAY = "(?P<day>3[01]|[12][0-9]|0?[1-9])"
_NAME = (
    "(?P<name>(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    "sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?))[.]?"
)
_TIME = (
    "(?:[T ]+(?P<hour>2[0-3]|[01]?[0-9]):(?P<minute>[0-5][0-9])"
    "(?::(?P<second>[0-5][0-9](?:[.][0-9]{1,9})?))?(?: ?(?P<half>(?i:[ap]m)))?)?"
)
_ISO_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ISO_TIME = r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_ISO_LOCAL = f"{_ISO_DAY}(?:{_ISO_TIME})?"
_ISO_IN_ZONE = f"{_ISO_DAY}{_ISO_TIME}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})"
_TWO_DIGIT_YEAR = "[0-9]{1,2}[/.-][0-9]{1,2}[/.-][0-9]{2}"


@dataclass(frozen=True)
class DateForm:
    """One way of writing dates. Day and time of day may be left out if the pattern says so."""

    pattern: str
    example: str


FORMS = {
    "year-first": DateForm(f"{_YEAR}[/.-]{_MONTH}[/.-]{_DAY}{_TIME}", "2026/01/31"),
    DAY_FIRST: DateForm(f"{_DAY}[/.-] ?{_MONTH}[/.-] ?{_YEAR}{_TIME}", "31/01/2026"),
    MONTH_FIRST: DateForm(f"{_MONTH}[/.-]{_DAY}[/.-]{_YEAR}{_TIME}", "01/31/2026"),
    "day, name of month": DateForm(f"{_DAY}[. -]*{_NAME}[, -]*{_YEAR}{_TIME}", "31 Jan 2026"),
    "name of month, day": DateForm(f"{_NAME}[ -]*{_DAY}[, -]+{_YEAR}{_TIME}", "Jan 31, 2026"),
    "year, month": DateForm(f"{_USUAL_YEAR}[/-]{_MONTH}", "2026-01"),
    "month, year": DateForm(f"{_MONTH}/{_USUAL_YEAR}", "01/2026"),
    "name of month, year": DateForm(f"{_NAME}[ -]+{_USUAL_YEAR}", "Jan 2026"),
}


def forms_of(cells: Any) -> list[str]:
    """List the forms in which every cell is a date; `cells` is text without blanks around it."""
    filled = cells.drop_null()
    if len(filled) == 0:
        return []
    if read_iso(cells) is not None:
        return [ISO]

    # the first cell rules out nearly all forms of nearly all columns
    first = filled[0].as_py()
    possible = [name for name, form in FORMS.items() if re.fullmatch(form.pattern, first)]
    return [name for name in possible if read_form(cells, name) is not None]


def read_dates(cells: Any, form: str) -> Floats | None:
    """Read dates in ISO form or in another one as seconds since 1970; None if a cell is neither."""
    seconds = read_iso(cells)
    if seconds is None and form != ISO:
        seconds = read_form(cells, form)
    return seconds


def read_iso(cells: Any) -> Floats | None:
    """Read ISO dates, with a zone in all cells or in none, as seconds since 1970.

    Returns None if a cell is no such date.
    """
    filled = cells.drop_null()
    in_zone = len(filled) > 0 and _all_match(filled, _ISO_IN_ZONE)
    if not in_zone and not _all_match(filled, _ISO_LOCAL):
        return None

    try:
        times = compute.cast(cells, arrow.timestamp("us", "UTC" if in_zone else None))
    except arrow.ArrowInvalid:  # not a day of the calendar
        return None
    microseconds = times.cast(arrow.int64()).cast(arrow.float64(), safe=False)
    return np.asarray(compute.divide(microseconds, 1e6))


def read_form(cells: Any, form: str) -> Floats | None:
    """Read dates of one form as seconds since 1970; None if a cell has another form."""
    texts = compute.cast(cells, _TEXT)
    fields = compute.extract_regex(texts, f"^{FORMS[form].pattern}$")
    if fields.null_count > cells.null_count:
        return None

    try:
        days = _numbers(compute.cast(_iso_days(fields), arrow.date32()).cast(arrow.int32()))
    except arrow.ArrowInvalid:  # not a day of the calendar
        return None
    return 86400 * days + _seconds_of_day(fields)


def look_like_dates(cells: Any) -> AnyArray:
    """Mark the cells that look like dates of any form, also with two digits for the year."""
    # group names may come only once in a pattern
    patterns = [re.sub(r"\?P<[a-z]+>", "", form.pattern) for form in FORMS.values()]
    any_form = "|".join([*patterns, _ISO_IN_ZONE, _TWO_DIGIT_YEAR])
    return np.asarray(compute.match_substring_regex(cells, f"^({any_form})$").fill_null(False))


def _iso_days(fields: Any) -> Any:
    """Write year, month and day as 2026-01-31; the day is the first where a form has none."""
    names = {field.name for field in fields.type}
    year = compute.struct_field(fields, "year")
    day = compute.struct_field(fields, "day") if "day" in names else arrow.scalar("1", _TEXT)

    if "month" in names:
        month = compute.struct_field(fields, "month")
    else:
        first_letters = compute.utf8_slice_codeunits(compute.struct_field(fields, "name"), 0, 3)
        positions = compute.index_in(compute.utf8_lower(first_letters), value_set=_MONTHS)
        month = compute.cast(compute.add(positions, 1), _TEXT)

    two_digits = [compute.utf8_lpad(part, 2, "0") for part in (month, day)]
    return compute.binary_join_element_wise(year, *two_digits, arrow.scalar("-", _TEXT))


def _seconds_of_day(fields: Any) -> Floats | float:
    """Return the seconds since midnight; 0 where there is no time of day."""
    if "hour" not in {field.name for field in fields.type}:
        return 0.0

    hour = _field_number(fields, "hour")
    half = compute.utf8_lower(compute.struct_field(fields, "half"))
    in_twelve_hours = np.asarray(compute.not_equal(half, "").fill_null(False))
    is_afternoon = np.asarray(compute.equal(half, "pm").fill_null(False))
    hour = np.where(in_twelve_hours, hour % 12 + 12 * is_afternoon, hour)
    return 3600 * hour + 60 * _field_number(fields, "minute") + _field_number(fields, "second")


def _field_number(fields: Any, name: str) -> Floats:
    texts = compute.struct_field(fields, name)
    texts = compute.if_else(compute.equal(texts, ""), "0", texts)
    return _numbers(texts)


def _numbers(column: Any) -> Floats:
    """Turn an Arrow column into floats, NaN where a cell is missing."""
    return np.asarray(compute.cast(column, arrow.float64()), dtype=np.float64)


def _all_match(cells: Any, pattern: str) -> bool:
    return bool(np.asarray(compute.match_substring_regex(cells, f"^{pattern}$")).all())
