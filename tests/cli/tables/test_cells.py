"""Which cells are numbers, codes, words for missing, labels, and what text looks like."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dco.cli.option_records import AskedColumns
from dco.cli.tables.cells import to_floats
from dco.cli.tables.files import read_table
from dco.cli.tables.layout import (
    CategoryFeature,
    DateFeature,
    Layout,
    NumberFeature,
)
from dco.cli.tables.rows import read_features, read_targets

from .reading import arrow_table, features, infer, read, read_with, write, write_columns

SUFFIXES = ["csv", "parquet"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["+5", "-3", "+12"], [5, -3, 12]),
        (["0", "10", "-0"], [0, 10, 0]),
        (["0.50", "00.5", "1e3"], [0.5, 0.5, 1000]),
        (["1", "1.0", "2.50"], [1, 1, 2.5]),
        ([" 1", "2 ", " 3 "], [1, 2, 3]),
        (["1700000000000000001", "2", None], [1.7e18, 2, np.nan]),
        (["1", "NA", " n/a "], [1, np.nan, np.nan]),
    ],
    ids=["signs", "zero", "decimals", "one spelling", "blanks", "large", "words for missing"],
)
def test_a_column_is_numeric_if_all_cells_are_numbers(tmp_path, suffix, cells, numbers):
    path = write_columns(tmp_path / f"t.{suffix}", x=cells, y=["a", "b", "b"])
    X, _ = read(path)
    np.testing.assert_array_equal(X["x"], numbers)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "cells",
    [
        ["01234", "00987", "10115"],
        ["0", "007", None],
        ["+49", "+1", "+358"],
        ["-012", "3", "4"],
        ["NA", "DE", "None"],
    ],
    ids=["postcodes", "a gap", "dialling codes", "a sign", "Namibia"],
)
def test_codes_and_words_stay_text(tmp_path, suffix, cells):
    path = write_columns(tmp_path / f"t.{suffix}", x=cells, y=["a", "b", "b"])
    X, _ = read(path)
    assert X["x"].tolist() == cells


def test_typed_columns_of_parquet_become_numbers_and_categories(tmp_path):
    path = write_columns(
        tmp_path / "t.parquet",
        when=pd.to_datetime(["1970-01-02 00:00:00", None, "1970-01-01 00:00:01"]),
        flag=[True, False, True],
        kind=pd.Categorical(["u", "v", None]),
        y=[7, 8, 7],  # typed numbers are never codes
    )
    X, y = read(path)
    assert y.dtype == np.int64
    np.testing.assert_array_equal(X["when"], [86400.0, np.nan, 1.0])
    assert X["flag"].tolist() == ["True", "False", "True"]
    assert X["kind"].tolist() == ["u", "v", None]


def test_a_type_that_no_model_can_use_is_named(tmp_path):
    path = write_columns(tmp_path / "t.parquet", x=[[1], [2]], y=[0.5, 1.5])
    with pytest.raises(ValueError, match=r"the column 'x' holds list<.*--drop 'x'"):
        read(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,y\n,1.5\ninf,2.5\n2,3.5\n", "the column 'a' is infinite in row 2"),
        ("a,y\n1,2.5\n2,inf\n", "the target 'y' is infinite in row 2"),
        ("a,y\n1,2.5\n2,\n", r"the target 'y' is missing in 1 row \(first: row 2\)"),
        ("a,y\n1,yes\n2,no\n3,NA\n", r"the target 'y' is missing in 1 row \(first: row 3\)"),
    ],
    ids=["infinite feature", "infinite target", "missing target", "missing label"],
)
def test_the_bad_cell_is_named(tmp_path, text, problem):
    with pytest.raises(ValueError, match=problem):
        read(write(tmp_path / "t.csv", text))


def test_a_missing_number_of_parquet_is_missing(tmp_path):
    path = write_columns(tmp_path / "t.parquet", a=[1.0, 2.0], y=[0.5, float("nan")])
    with pytest.raises(ValueError, match=r"the target 'y' is missing in 1 row \(first: row 2\)"):
        read(path)


def test_a_cell_of_a_later_table_that_is_no_number_is_named(tmp_path):
    layout = infer(write(tmp_path / "t.csv", "a,y\n1,2.5\n2,3.5\n")).layout
    later = write(tmp_path / "later.csv", "a\n1\noops\n")
    with pytest.raises(ValueError, match=r"later\.csv: the column 'a' has 'oops' in row 2"):
        features(layout, later)


def test_rows_are_numbered_as_in_the_file_after_others_were_left_out(tmp_path):
    path = write(tmp_path / "t.csv", "a,y\n1,\n2,2.5\ninf,3.5\n")
    table = read_table(path)
    layout = Layout("y", "regression", {"a": NumberFeature()})
    with pytest.raises(ValueError, match="infinite in row 3"):
        read_features(table.take(np.array([1, 2])), layout)


# --- labels ---------------------------------------------------------------------------------------

LABELS = {
    "codes": (["01234", "00987", "10115"], ["01234", "00987", "10115"]),
    "two spellings": (["1", "1.0", "2"], ["1", "1.0", "2"]),
    "a sign": (["+1", "1", "2"], ["+1", "1", "2"]),
    "whole": (["1", "-2", "0"], [1, -2, 0]),
    "with .0": (["1.0", "2.0", "0.0"], [1, 2, 0]),
}
LONG = ["12345678901234567", "12345678901234568", "1"]


@pytest.fixture
def labels_path(tmp_path: Path) -> Callable[[list[str]], Path]:
    return lambda cells: write_columns(tmp_path / "t.csv", x=range(len(cells)), y=cells)


@pytest.mark.parametrize(("cells", "labels"), [*LABELS.values(), (LONG, LONG)])
def test_different_labels_stay_different_and_as_written(labels_path, cells, labels):
    _, y = read(labels_path(cells), task="classification")
    assert y.tolist() == labels


@pytest.mark.parametrize("cells", [cells for cells, _ in LABELS.values()], ids=LABELS)
def test_labels_of_a_later_table_are_of_the_kind_of_the_models(labels_path, cells):
    path = labels_path(cells)
    layout = infer(path, task="classification").layout
    table = read_table(path)
    assert read_targets(table, layout, classes=np.array([0, 1])).dtype == np.int64
    assert read_targets(table, layout, classes=np.array(["a"])).tolist() == cells


def test_labels_that_are_no_whole_numbers_unlike_those_of_the_model_are_refused(labels_path):
    path = labels_path(["1", "b", "2"])
    layout = infer(path).layout
    with pytest.raises(ValueError, match=r"not whole numbers, unlike those of the model \(0, 1\)"):
        read_targets(read_table(path), layout, classes=np.array([0, 1]))


@pytest.mark.parametrize("cells", [cells for cells, _ in LABELS.values()], ids=LABELS)
def test_numbers_are_read_for_a_regression_however_they_are_spelled(labels_path, cells):
    _, y = read(labels_path(cells), task="regression")
    assert y.tolist() == [float(cell) for cell in cells]


LARGE = [10**18 + row % 3 for row in range(60)]


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("t.csv", LARGE),
        ("t.parquet", LARGE),
        ("decimal.parquet", pa.array(LARGE).cast(pa.decimal128(20, 0)).to_pylist()),
        ("comma.csv", [f"{value},0" for value in LARGE]),
    ],
)
def test_targets_that_floats_would_change_are_refused(tmp_path, name, cells):
    path = write_columns(tmp_path / name, a=range(60), y=cells)
    decimal = "," if name == "comma.csv" else "."
    with pytest.raises(
        ValueError,
        match=r"the target 'y' is 1000000000000000001(,0)? in row 2, which float64 rounds",
    ):
        read(path, task="regression", decimal=decimal)


def test_labels_that_floats_would_change_stay_different(tmp_path):
    path = write_columns(tmp_path / "t.parquet", a=range(60), y=LARGE)
    _, y = read(path, task="classification")
    assert sorted(set(y.tolist())) == [str(10**18 + k) for k in range(3)]


@pytest.mark.parametrize(
    "cells",
    [[1e18 + 1024 * row for row in range(60)], [2**60 + 2**10 * row for row in range(60)]],
    ids=["floats", "integers"],
)
def test_large_targets_that_floats_hold_are_read(tmp_path, cells):
    path = write_columns(tmp_path / "t.parquet", a=range(60), y=cells)
    _, y = read(path, task="regression")
    assert y.tolist() == cells


# --- the task -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["0.5", "1.25", "2"], "regression"),
        (["0", "1", "1"], "classification"),
        (["1.0", "2.0", "1.0"], "classification"),
        (["1", "2", "3", "4", "5"] * 6, "classification"),
        (["a", "b", "a"], "classification"),
        (["007", "008", "007"], "classification"),
        ([str(number) for number in range(50)], "regression"),
        (["1", "2"] * 30 + ["3+"], "classification"),
    ],
    ids=[
        "decimals",
        "two values",
        "with .0",
        "ratings",
        "text",
        "codes",
        "many values",
        "nearly numbers",
    ],
)
def test_the_task_is_found_out_and_said(tmp_path, values, task):
    path = write_columns(tmp_path / "t.csv", x=[1] * len(values), y=values)
    inferred = infer(path)
    assert inferred.layout.task == task
    assert inferred.reason.startswith(f"Task: {task}, because the target 'y' ")


def test_whole_numbers_that_few_rows_share_are_a_quantity(tmp_path):
    """Stackloss: 14 rows, 11 different whole numbers."""
    stack_loss = [42, 37, 37, 28, 18, 18, 19, 20, 15, 14, 14, 13, 11, 12]
    inferred = infer(write_columns(tmp_path / "t.csv", x=range(14), y=stack_loss))
    assert inferred.layout.task == "regression"
    assert "11 different whole numbers in 14 rows" in inferred.reason
    assert "--task classification" in inferred.reason


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_task_that_is_asked_for_is_taken(tmp_path, task):
    path = write_columns(tmp_path / "t.csv", x=range(40), y=[0, 1] * 20)
    assert infer(path, task=task).layout.task == task


def test_a_regression_on_text_names_the_cell(tmp_path):
    path = write(tmp_path / "t.csv", "a,y\n1,2.5\n2,oops\n")
    with pytest.raises(ValueError, match=r"'oops' in row 2.*--task classification"):
        infer(path, task="regression")


# --- text that looks like something else ----------------------------------------------------------

LOOKS = {
    "n.a.": (
        [*[str(cell / 4) for cell in range(30)], "n.a."],
        "numbers in 30 of 31 cells, and 'n.a.' in row 31; correct",
    ),
    "dash": (
        ["-", *[str(cell) for cell in range(30)], "", "NA"],
        "numbers in 30 of 31 cells, and '-' in row 1; correct",
    ),
    "comma": (["15", "15,20", "-3,5", ""], "decimal commas ('15,20' in row 2); use --decimal ,"),
    "german": (["1.549,34", "12,5"], "decimal commas ('1.549,34' in row 1)"),
    "thousands": (
        ["1,549.34", "12.50", "2,000"],
        "other signs ('1,549.34' in row 1); write plain numbers",
    ),
    "money": (["€ 15.20", "€ 3", "€1,000"], "other signs ('€ 15.20' in row 1)"),
    "percent": (["15 %", "3.5 %", "2%"], "other signs ('15 %' in row 1)"),
}


@pytest.mark.parametrize(("cells", "words"), LOOKS.values(), ids=LOOKS)
def test_a_feature_that_looks_like_numbers_is_noted(tmp_path, cells, words):
    path = write_columns(tmp_path / "t.csv", x=cells, y=np.arange(len(cells)) / 2)
    inferred = infer(path)
    assert isinstance(inferred.layout.features["x"], CategoryFeature)
    (note,) = inferred.notes
    assert str(note).startswith("The column 'x' is read as categories, but ")
    assert words in str(note)


@pytest.mark.parametrize("name", ["comma", "german"])
def test_a_target_with_the_other_decimal_sign_is_refused(tmp_path, name):
    cells, words = LOOKS[name]
    path = write_columns(tmp_path / "t.csv", x=cells, z=range(len(cells)))
    with pytest.raises(ValueError, match="or use --task classification if these are") as error:
        infer(path, "x")
    assert words in str(error.value)


@pytest.mark.parametrize("sign", ["%", " %", "€"])
def test_a_target_of_many_values_with_other_signs_is_refused(tmp_path, sign):
    path = write_columns(tmp_path / "t.csv", x=[f"{k}{sign}" for k in range(25)], z=range(25))
    with pytest.raises(ValueError, match="the target 'x' looks like numbers with other signs"):
        infer(path, "x")


@pytest.mark.parametrize("cells", [cells for cells, _ in LOOKS.values()], ids=LOOKS)
def test_labels_that_look_like_numbers_are_labels_on_request(tmp_path, cells):
    path = write_columns(tmp_path / "t.csv", x=cells, z=range(len(cells)))
    assert infer(path, "x", task="classification").layout.task == "classification"


@pytest.mark.parametrize(
    "cells",
    [
        ["a", "b", "1"],
        ["2021-13", "2022-03"],
        ["1.2.3", "4.5.6"],
        ["10-20", "20-30"],
        ["007", "1"],
        ["A 15", "B 3"],
    ],
    ids=str,
)
def test_text_that_looks_like_text_gets_no_note(tmp_path, cells):
    path = write_columns(tmp_path / "t.csv", x=cells, y=np.arange(len(cells)) / 2)
    inferred = infer(path)
    assert isinstance(inferred.layout.features["x"], CategoryFeature)
    assert inferred.notes == []


# --- decimal commas -------------------------------------------------------------------------------


@pytest.fixture
def commas(tmp_path: Path) -> Path:
    return write(tmp_path / "t.csv", "a;b;y\n1,5;x,y;0,25\n-2;7,1z;1e-1\n;;3,0\n")


def test_decimal_commas_are_read_where_they_are_asked_for(commas):
    X, y = read(commas, decimal=",")
    np.testing.assert_array_equal(X["a"], [1.5, -2, np.nan])
    assert X["b"].tolist() == ["x,y", "7,1z", None]
    np.testing.assert_array_equal(y, [0.25, 0.1, 3])


def test_a_decimal_point_is_no_number_where_the_sign_is_a_comma(commas, tmp_path):
    layout = infer(commas, decimal=",").layout
    points = write(tmp_path / "p.csv", "a;b\n1,5;x\n2.5;x\n")
    with pytest.raises(ValueError, match=r"'a' has '2.5' in row 2.*value is missing\.$"):
        features(layout, points)


@pytest.mark.parametrize(
    ("decimal", "cells", "advice"),
    [
        (".", "928,09", "if a comma is the decimal sign, use --decimal ,"),
        (",", "928.09", "if a point is the decimal sign, use --decimal ."),
    ],
)
def test_the_other_decimal_sign_is_proposed(tmp_path, decimal, cells, advice):
    layout = Layout("y", "regression", {"a": NumberFeature()}, decimal=decimal)
    path = write(tmp_path / "w.csv", f"a;b\n{cells};x\n7;x\n")
    with pytest.raises(ValueError, match=f"; {re.escape(advice)}$"):
        features(layout, path)


def test_points_are_noted_where_commas_are_asked_for(tmp_path):
    path = write(tmp_path / "p.csv", "a;y\n1.5;0,5\n2.5;1,5\n")
    (note,) = infer(path, decimal=",").notes
    assert "decimal points ('1.5' in row 1); leave out --decimal ," in str(note)


# --- layouts --------------------------------------------------------------------------------------


def test_a_layout_travels_unchanged():
    layout = Layout(
        "y",
        "regression",
        {
            "A\n(b)": NumberFeature(),
            "when": DateFeature("day-first"),
            "b": CategoryFeature(missing="(missing)", values=("u", "v")),
        },
        conditions=("b",),
        dropped=("c", "d"),
    )
    assert Layout.from_json(layout.to_json()) == layout


def test_a_layout_says_how_columns_are_read():
    layout = Layout(
        "y",
        "regression",
        {
            "A\n(b)": NumberFeature(),
            "when": DateFeature("day-first"),
            "iso": DateFeature(),
            "b": CategoryFeature(),
        },
    )
    layout = layout.with_categories(pd.DataFrame({"b": ["u", None, "v", "u"]}))
    assert (
        layout.in_words()
        == "Numbers: A (b); dates: when (day-first), iso; categories: b (2 values)."
    )


def test_the_checks_of_columns_take_time_in_proportion_to_their_number(tmp_path):
    """20,000 columns: far below a second. To compare each with all others took half a minute."""
    names = [f"column {number}" for number in range(20_000)]
    layout = Layout("y", "regression", dict.fromkeys(names, NumberFeature()))
    begin = time.process_time()
    assert layout.columns_to_read(tmp_path, names, ignore_new=False) == names
    assert len(layout.names_by_kind()["numbers"]) == 20_000
    assert time.process_time() - begin < 3


def test_what_a_model_from_python_took_for_numbers_may_be_dates():
    dates = arrow_table(a=pa.array(pd.to_datetime(["1970-01-02"])))
    layout = Layout(None, "regression", {"a": NumberFeature(takes_dates=True)})
    assert read_features(dates, layout)["a"].tolist() == [86400.0]
    assert to_floats(dates.column("a").cells).tolist() == [86400.0]
    with pytest.raises(ValueError, match="contains dates, and the fit had numbers there"):
        read_features(dates, Layout(None, "regression", {"a": NumberFeature()}))


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (AskedColumns("z"), "no column 'z', which --target names"),
        (AskedColumns("y", groups="site"), "no column 'site', which --groups names.*'sites'"),
        (AskedColumns("y", dropped=("q",)), "no column 'q', which --drop names"),
        (AskedColumns("y", conditions=("q",)), "no column 'q', which --condition-on names"),
        (AskedColumns("y", dropped=("a", "sites")), "no column left to predict 'y' from"),
    ],
)
def test_a_column_that_is_not_there_is_named_with_its_option(tmp_path, asked, problem):
    path = write(tmp_path / "t.csv", "a,sites,y\n1,n,0.5\n2,s,1.5\n")
    fields = {name: value for name, value in vars(asked).items() if name != "target"}
    with pytest.raises(ValueError, match=problem):
        infer(path, asked.target, **fields)


def test_a_later_table_lacks_a_column_or_has_one_more(tmp_path):
    layout = infer(write(tmp_path / "t.csv", "a,b,y\n1,2,0.5\n2,3,1.5\n")).layout
    with pytest.raises(ValueError, match=r"lacks 1 of the columns .* fitted on: 'b'; add them"):
        layout.columns_to_read(tmp_path, ["a", "y"], ignore_new=False)
    with pytest.raises(ValueError, match="not fitted on: 'c'; remove them, or use --ignore-new"):
        layout.columns_to_read(tmp_path, ["a", "b", "c"], ignore_new=False)
    assert layout.columns_to_read(tmp_path, ["a", "b", "c"], ignore_new=True) == ["a", "b"]


def test_features_and_targets_of_another_file_are_read_by_a_layout(tmp_path):
    layout = infer(write(tmp_path / "t.csv", "a,b,y\n1,x,0.5\n2,x,1.5\n")).layout
    X, y = read_with(layout, write(tmp_path / "later.csv", "y,b,a\n2.5,007,3\n"))
    assert X.to_dict("list") == {"a": [3.0], "b": ["007"]}
    assert y.tolist() == [2.5]
