"""Conditions of rows: what they are called, in which order they come, and which rows fall under
them.
"""

import numpy as np
import pandas as pd
import pytest

import dco
from dco.foundations.arrays import as_labels
from dco.foundations.tables import MISSING, is_missing


def evaluate_by(values) -> list[dco.GroupEvaluation]:
    """Evaluate sets by these values, one a row. The widths of the sets are 1, 2, 4, 8 ..."""
    n = len(values)
    sets = dco.Intervals(np.zeros(n), 2.0 ** np.arange(n))
    return dco.evaluate(sets, np.zeros(n), by=values).by_group


def names_of(values) -> list[object]:
    return [row.group for row in evaluate_by(values)]


def rows_of(group: dco.GroupEvaluation, n_rows: int) -> list[int]:
    """The rows of a group, which are the binary digits of the sum of their widths."""
    total_width = round(group.mean_size * group.n)
    return [row for row in range(n_rows) if total_width >> row & 1]


MISSING_VALUES = [None, float("nan"), np.float32("nan"), np.datetime64("NaT"), pd.NA, pd.NaT]


@pytest.mark.parametrize("value", MISSING_VALUES, ids=repr)
def test_a_missing_value_is_one(value):
    assert is_missing(value)


@pytest.mark.parametrize(
    "value", [0, "", "nan", "(missing)", b"", False, float("inf"), ()], ids=repr
)
def test_any_other_value_is_not_missing(value):
    assert not is_missing(value)


@pytest.mark.parametrize("value", MISSING_VALUES, ids=repr)
def test_missing_values_are_a_condition_of_their_own(value):
    assert names_of(pd.Series(["a", value], dtype=object)) == ["a", MISSING]


@pytest.mark.parametrize(
    "labels", [[1, "a", None], [1, "1"], ["a", "b"]], ids=["mixed", "number and text", "texts"]
)
def test_a_list_keeps_the_kinds_of_its_labels(labels):
    assert as_labels(labels).tolist() == labels


@pytest.mark.parametrize(
    ("labels", "kind"),
    [([1, 2.5], "f"), (np.array(["a", "b"]), "U")],
    ids=["numbers", "array of texts"],
)
def test_labels_of_one_kind_have_its_dtype(labels, kind):
    assert as_labels(labels).dtype.kind == kind


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2, 1, 2], {1: [1], 2: [0, 2]}),
        ([2.5, np.nan, 1.0, np.nan], {1.0: [2], 2.5: [0], MISSING: [1, 3]}),
        (["b", None, "a", "~", "b"], {"a": [2], "b": [0, 4], "~": [3], MISSING: [1]}),
        ([1, "1", 1.0, None, "a", 0.5], {0.5: [5], 1: [0, 2], "1": [1], "a": [4], MISSING: [3]}),
        (
            np.array(["2024-02-01", "NaT", "2024-01-01"], dtype="datetime64[ns]"),
            {"2024-01-01": [2], "2024-02-01": [0], MISSING: [1]},
        ),
    ],
    ids=["whole numbers", "floats", "texts", "mixed", "dates"],
)
def test_conditions_are_sorted_with_missing_last(values, expected):
    groups = evaluate_by(values)
    assert [group.group for group in groups] == list(expected)
    assert [rows_of(group, len(values)) for group in groups] == list(expected.values())


def test_names_are_pythons_own_so_that_messages_show_no_types():
    names = names_of([np.str_("a"), np.int64(1), "b"])
    assert names == [1, "a", "b"]
    assert [type(name) for name in names] == [int, str, str]


def test_dates_among_other_values_stay_dates():
    when = np.datetime64("2020-01-01")
    assert when in names_of([when, "b"])


@pytest.mark.parametrize("unit", ["D", "s", "ms", "us", "ns"])
def test_dates_are_one_condition_in_every_unit(unit):
    days = np.array(["2026-01-05", "2026-02-28", "NaT"], dtype=f"M8[{unit}]")
    assert names_of(days) == ["2026-01-05", "2026-02-28", MISSING]


@pytest.mark.parametrize("unit", ["ms", "ns"])
def test_moments_are_one_condition_in_every_unit(unit):
    noon = np.array(["2026-01-05T12:00:00.250"], dtype=f"M8[{unit}]")
    assert names_of(noon) == ["2026-01-05T12:00:00.25"]


def test_durations_are_one_condition_in_every_unit():
    hours = np.array([36], dtype="m8[h]")
    assert names_of(hours) == names_of(hours.astype("m8[us]"))
