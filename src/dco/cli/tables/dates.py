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
    "(?::(?P<second>[0-5][0-9](?:[.][0-9]{1,9})?))?(?: ?(?P<am_or_pm>(?i:[ap]m)))?)?"
)
_ISO_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ISO_TIME = r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_ISO_LOCAL = f"{_ISO_DAY}(?:{_ISO_TIME})?"
_ISO_IN_ZONE = f"{_ISO_DAY}{_ISO_TIME}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})"
_TWO_DIGIT_YEAR = "[0-9]{1,2}[/.-][0-9]{1,2}[/.-][0-9]{2}"

_MICROSECONDS = 1e6  # in a second
_SECONDS_OF_A_DAY = 86400


@dataclass(frozen=True)
class DateForm:
    """One way of writing dates: a regular expression with named parts, and an example.

    The parts are year, month or name (of the month), day, hour, minute, second, and am_or_pm. A
    form without a day means the first of the month, one without an hour midnight.
    """

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
    """List the forms in which every cell is a date: ISO alone, or names of `FORMS`.

    `cells` is a text column without blanks around its texts. The list has two forms if every cell
    may have the day or the month first, and is empty if the cells are no dates.
    """
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
    """Read dates as seconds since 1970, all of them ISO or all in `form`; None if a cell is not."""
    seconds = read_iso(cells)
    if seconds is None and form != ISO:
        seconds = read_form(cells, form)
    return seconds


def read_iso(cells: Any) -> Floats | None:
    """Read ISO dates such as 2026-01-31 or 2026-01-31T08:30Z as seconds since 1970.

    Either all cells have a time zone or none has. Returns None if a cell is no such date.
    """
    filled = cells.drop_null()
    have_zone = len(filled) > 0 and _all_match(filled, _ISO_IN_ZONE)
    if not have_zone and not _all_match(filled, _ISO_LOCAL):
        return None

    zone = "UTC" if have_zone else None
    try:
        times = compute.cast(cells, arrow.timestamp("us", zone))
    except arrow.ArrowInvalid:  # not a day of the calendar
        return None
    microseconds = times.cast(arrow.int64()).cast(arrow.float64(), safe=False)
    return np.asarray(compute.divide(microseconds, _MICROSECONDS))


def read_form(cells: Any, form: str) -> Floats | None:
    """Read a column of dates that are all written in one form, as seconds since 1970.

    `form` is a name in `FORMS`, such as "day-first". Returns None if a cell has another form, or is
    not a day of the calendar (February 30).
    """
    # 1. Take each cell apart: a column of structs with the parts year, month, day and so on.
    texts = compute.cast(cells, _TEXT)
    parts = compute.extract_regex(texts, f"^{FORMS[form].pattern}$")
    has_cell_of_other_form = parts.null_count > cells.null_count
    if has_cell_of_other_form:
        return None

    # 2. Count days since 1970; Arrow reads texts such as 2026-01-31.
    try:
        dates = compute.cast(_iso_days(parts), arrow.date32())
    except arrow.ArrowInvalid:  # not a day of the calendar
        return None
    days = _numbers(dates.cast(arrow.int32()))
    return _SECONDS_OF_A_DAY * days + _seconds_of_day(parts)


def look_like_dates(cells: Any) -> AnyArray:
    """Mark the cells that look like dates of any form, also with two digits for the year."""
    # the names of parts are taken out, since a pattern may have each name only once
    patterns = [re.sub(r"\?P<[a-z]+>", "", form.pattern) for form in FORMS.values()]
    any_form = "|".join([*patterns, _ISO_IN_ZONE, _TWO_DIGIT_YEAR])
    return np.asarray(compute.match_substring_regex(cells, f"^({any_form})$").fill_null(False))


def _iso_days(parts: Any) -> Any:
    """Write the dates of a column as texts such as 2026-01-31.

    `parts` is an Arrow column of structs: the year, month and so on that a `DateForm` finds in each
    cell. The day is the first of the month in a form without days.
    """
    names = {part.name for part in parts.type}
    year = compute.struct_field(parts, "year")

    if "month" in names:
        month = compute.struct_field(parts, "month")
    else:
        month = _month_numbers(compute.struct_field(parts, "name"))

    day = arrow.scalar("1", _TEXT)
    if "day" in names:
        day = compute.struct_field(parts, "day")

    # Put them together, with two digits for month and day.
    month = compute.utf8_lpad(month, 2, "0")
    day = compute.utf8_lpad(day, 2, "0")
    return compute.binary_join_element_wise(year, month, day, arrow.scalar("-", _TEXT))


def _month_numbers(names: Any) -> Any:
    """Turn a column of names of months into texts of their numbers: "Feb." -> "2"."""
    first_letters = compute.utf8_lower(compute.utf8_slice_codeunits(names, 0, 3))
    positions = compute.index_in(first_letters, value_set=_MONTHS)
    return compute.cast(compute.add(positions, 1), _TEXT)


def _seconds_of_day(parts: Any) -> Floats | float:
    """Return the seconds since midnight of each time; 0 where there is no time of day.

    `parts` are as in `_iso_days`.
    """
    names = {part.name for part in parts.type}
    if "hour" not in names:
        return 0.0

    # Hours with am or pm: 12 am is hour 0, 1 am is 1, 12 pm is 12, and 1 pm is 13.
    hour = _part_as_number(parts, "hour")
    am_or_pm = compute.utf8_lower(compute.struct_field(parts, "am_or_pm"))
    has_am_or_pm = np.asarray(compute.not_equal(am_or_pm, "").fill_null(False))
    is_pm = np.asarray(compute.equal(am_or_pm, "pm").fill_null(False))
    hour_of_24 = np.where(has_am_or_pm, hour % 12 + 12 * is_pm, hour)

    minute = _part_as_number(parts, "minute")
    second = _part_as_number(parts, "second")
    return 3600 * hour_of_24 + 60 * minute + second


def _part_as_number(parts: Any, name: str) -> Floats:
    """Read one part of all dates as numbers; a part that is not written is 0."""
    texts = compute.struct_field(parts, name)
    texts = compute.if_else(compute.equal(texts, ""), "0", texts)
    return _numbers(texts)


def _numbers(column: Any) -> Floats:
    """Turn an Arrow column into floats, NaN where a cell is missing."""
    return np.asarray(compute.cast(column, arrow.float64()), dtype=np.float64)


def _all_match(cells: Any, pattern: str) -> bool:
    return bool(np.asarray(compute.match_substring_regex(cells, f"^{pattern}$")).all())
