"""Conditions of rows: what they are called, in which order they come, and which rows fall under
them.
"""

import numpy as np
import pandas as pd
import pytest

from dco.foundations.arrays import as_labels
from dco.foundations.tables import is_missing
from dco.rows.conditions import MISSING, condition_names, rows_by_condition


@pytest.mark.parametrize(
    "value", [None, float("nan"), np.float32("nan"), np.datetime64("NaT"), pd.NA, pd.NaT], ids=repr
)
def test_what_is_missing(value) -> None:
    assert is_missing(value)
    assert condition_names(pd.Series(["a", value], dtype=object)).tolist() == ["a", MISSING]


@pytest.mark.parametrize(
    "value", [0, "", "nan", "(missing)", b"", False, float("inf"), ()], ids=repr
)
def test_what_is_not(value) -> None:
    assert not is_missing(value)


def test_a_list_keeps_the_kinds_of_its_labels() -> None:
    assert as_labels([1, "a", None]).tolist() == [1, "a", None]
    assert as_labels([1, "1"]).tolist() == [1, "1"]
    assert as_labels([1, 2.5]).dtype == np.float64
    assert as_labels(np.array(["a", "b"])).dtype.kind == "U"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2, 1, 2], {1: [1], 2: [0, 2]}),
        ([2.5, np.nan, 1.0, np.nan], {1.0: [2], 2.5: [0], MISSING: [1, 3]}),
        (["b", None, "a", "~", "b"], {"a": [2], "b": [0, 4], "~": [3], MISSING: [1]}),
        ([1, "1", 1.0, None, "a", 0.5], {0.5: [5], 1: [0, 2], "1": [1], "a": [4], MISSING: [3]}),
        (np.array(["2024-02-01", "NaT", "2024-01-01"], dtype="datetime64[ns]"), None),
        ([], {}),
    ],
    ids=["whole", "floats", "text", "mixed", "dates", "none"],
)
def test_rows_by_group_in_sorted_order_with_missing_last(values, expected) -> None:
    found = rows_by_condition(condition_names(values))
    if expected is None:
        assert [name[:10] for name in found] == ["2024-01-01", "2024-02-01", MISSING]
        return
    assert list(found) == list(expected)
    assert {name: rows.tolist() for name, rows in found.items()} == expected


def test_names_are_pythons_own_so_that_messages_show_no_types() -> None:
    when = np.datetime64("2020-01-01")
    names = condition_names([np.str_("a"), np.int64(1), when, "b"]).tolist()
    assert names == ["a", 1, when, "b"]
    assert [type(name) for name in names] == [str, int, np.datetime64, str]


def test_dates_and_durations_are_one_condition_in_every_unit() -> None:
    days = np.array(["2026-01-05", "2026-02-28", "NaT"], dtype="M8[D]")
    for unit in ("s", "ms", "us", "ns"):
        assert condition_names(days.astype(f"M8[{unit}]")).tolist() == [
            "2026-01-05",
            "2026-02-28",
            "(missing)",
        ]
    noon = np.array(["2026-01-05T12:00:00.250"], dtype="M8[ms]")
    assert (
        condition_names(noon).tolist()
        == condition_names(noon.astype("M8[ns]")).tolist()
        == ["2026-01-05T12:00:00.25"]
    )
    hours = np.array([36], dtype="m8[h]")
    assert condition_names(hours).tolist() == condition_names(hours.astype("m8[us]")).tolist()
