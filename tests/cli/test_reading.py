"""Tables read the same from every format, and damaged ones are told in a sentence."""

import gzip
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from dco.cli.columns import features, make_layout, targets
from dco.cli.layout import Layout
from dco.cli.reading import column_names, even_batches, read_table


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def laid_out(
    path: Path, target: str = "y", task: str = "", **asked: str
) -> tuple[pa.Table, Layout]:
    table = read_table(path)
    return table, make_layout(table, Layout(target, task, **asked), path=path)[0]


def read_frame(path: Path) -> tuple[pd.DataFrame, np.ndarray]:
    table, layout = laid_out(path)
    return features(table, layout, path=path), targets(table, layout, path=path)


def test_all_formats_give_the_same_cells(tmp_path):
    frame = pd.DataFrame(
        {"a": [1.5, np.nan, 3.0], "b": ["x", None, "007"], "c": [1, 2, 3], "y": [0.5, 0.25, 0.125]}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    frame.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    frame.to_csv(tmp_path / "semicolons.csv", index=False, sep=";")
    frame.to_csv(tmp_path / "bom.csv", index=False, encoding="utf-8-sig")
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_feather(tmp_path / "t.feather")
    pl.from_pandas(frame).write_ipc(tmp_path / "polars.feather")  # its text columns are views
    for name in (
        "t.csv",
        "t.csv.gz",
        "t.tsv",
        "semicolons.csv",
        "bom.csv",
        "t.parquet",
        "t.feather",
        "polars.feather",
    ):
        X, y = read_frame(tmp_path / name)
        assert list(X.columns) == ["a", "b", "c"], name
        np.testing.assert_array_equal(X["a"], [1.5, np.nan, 3.0])
        assert X["b"].tolist() == ["x", None, "007"], name
        np.testing.assert_array_equal(y, frame["y"])


def test_a_tsv_is_cut_at_tabs_alone_and_capital_endings_are_endings(tmp_path):
    text = "height, cm\tweight, kg\n1,5\t2\n"
    names = {
        "t.tsv": text.encode(),
        "T.TSV": text.encode(),
        "t.tsv.gz": gzip.compress(text.encode()),
    }
    for name, content in (names | {"T.TSV.GZ": names["t.tsv.gz"]}).items():
        table = read_table(write(tmp_path / name, content))
        assert table.to_pydict() == {"height, cm": ["1,5"], "weight, kg": ["2"]}, name
    capital = write(tmp_path / "C.CSV.GZ", gzip.compress(b"a,b\n1,2\n"))
    assert read_table(capital).to_pydict() == {"a": ["1"], "b": ["2"]}
    one = write(tmp_path / "one.csv", "a\n1\n")
    assert read_table(one).to_pydict() == {"a": ["1"]}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('"height,\nin cm",y\n1,2\n', ["height,\nin cm", "y"]),
        ('"height,\r\nin cm";"a;b";y\r\n1;2;3\r\n', ["height,\r\nin cm", "a;b", "y"]),
        ('"height, cm";"weight, kg"\n1;2\n', ["height, cm", "weight, kg"]),
        ('"said ""no, no""",y\n1,2\n', ['said "no, no"', "y"]),
        ("\n\r\na,y\n1,2\n", ["a", "y"]),
        ("a,y\r1,2\r", ["a", "y"]),
    ],
)
def test_names_may_hold_line_breaks_and_blank_lines_may_come_first(tmp_path, text, names):
    for path in (
        write(tmp_path / "t.csv", text),
        write(tmp_path / "t.csv.gz", gzip.compress(text.encode())),
    ):
        assert column_names(path) == names
        table = read_table(path)
        assert table.column_names == names
        assert table.num_rows == 1
        assert [column[0].as_py() for column in table.columns] == [
            str(place + 1) for place in range(len(names))
        ]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["01234", "00987", "10115"], "text"),
        (["0", "007", ""], "text"),
        (["+49", "+1", "+358"], "text"),
        (["-012", "3", "4"], "text"),
        (["+5", "-3", "+12"], "number"),
        (["0", "10", "-0"], "number"),
        (["0.50", "00.5", "1e3"], "number"),
        (["1", "1.0", "2.50"], "number"),
        (["1700000000000000001", "2", ""], "number"),
    ],
)
def test_codes_are_no_numbers(tmp_path, cells, kind):
    frame = pd.DataFrame({"code": cells, "x": [1, 2, 3], "y": ["a", "b", "b"]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.replace("", None).to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        X, _ = read_frame(tmp_path / name)
        if kind == "text":
            assert X["code"].tolist() == [cell or None for cell in cells]
        else:
            np.testing.assert_array_equal(X["code"], [float(cell or "nan") for cell in cells])


def test_words_for_missing_are_missing_among_numbers_alone(tmp_path):
    """NA is Namibia in a column of countries, in a CSV as in Parquet."""
    frame = pd.DataFrame(
        {
            "land": ["NA", "DE", None, "None"],
            "x": ["1", "NA", " n/a ", None],
            "y": [0.5, 1.5, 2.5, 3.5],
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        X, _ = read_frame(tmp_path / name)
        assert X["land"].tolist() == ["NA", "DE", None, "None"]
        np.testing.assert_array_equal(X["x"], [1, np.nan, np.nan, np.nan])
    path = write(tmp_path / "t.csv", "a,y\n1,yes\n2,no\n3,NA\n")
    with pytest.raises(ValueError, match=r"'y' is missing in 1 row \(first: row 3\)"):
        read_frame(path)


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["01234", "00987", "10115"], ["01234", "00987", "10115"]),
        (["1", "1.0", "2"], ["1", "1.0", "2"]),
        (["+1", "1", "2"], ["+1", "1", "2"]),
        (
            ["12345678901234567", "12345678901234568", "1"],
            ["12345678901234567", "12345678901234568", "1"],
        ),
        (["1", "-2", "0"], [1, -2, 0]),
        (["1.0", "2.0", "0.0"], [1, 2, 0]),
    ],
)
def test_different_labels_stay_different_and_as_written(tmp_path, cells, labels):
    path = write(
        tmp_path / "t.csv", "x,y\n" + "\n".join(f"{row},{cell}" for row, cell in enumerate(cells))
    )
    _, y = read_frame(path)
    assert y.tolist() == labels
    # a table that comes later is read by the classes of the model, however it spells them
    table, layout = laid_out(path, task="classification")
    assert targets(table, layout, path=path, classes=np.array([0, 1])).dtype == np.int64
    assert targets(table, layout, path=path, classes=np.array(["a"])).tolist() == cells
    if len(cells[0]) < 16:
        assert targets(*laid_out(path, task="regression"), path=path).tolist() == [
            float(cell) for cell in cells
        ]
    else:
        with pytest.raises(
            ValueError, match="'y' is 12345678901234567 in row 1, which float64 rounds"
        ):
            targets(*laid_out(path, task="regression"), path=path)


def test_dates_booleans_and_categories_of_a_parquet_file(tmp_path):
    frame = pd.DataFrame(
        {
            "when": pd.to_datetime(["1970-01-02 00:00:00", None, "1970-01-01 00:00:01"]),
            "flag": [True, False, True],
            "kind": pd.Categorical(["u", "v", None]),
            "y": [7, 8, 7],  # typed numbers are never codes
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    X, y = read_frame(tmp_path / "t.parquet")
    assert y.dtype == np.int64
    np.testing.assert_array_equal(X["when"], [86400.0, np.nan, 1.0])
    assert X["flag"].tolist() == ["True", "False", "True"]
    assert X["kind"].tolist() == ["u", "v", None]


def test_dates_are_read_alike_from_text_and_from_parquet(tmp_path):
    when = pd.to_datetime(["1970-01-02", None, "2021-05-03", "1969-12-31"])
    hour = pd.to_datetime(
        ["1970-01-01 00:00:01", "2021-05-03 10:20:30.25", None, "2000-02-29 00:00"],
        format="ISO8601",
    )
    frame = pd.DataFrame({"when": when, "hour": hour, "y": [0.5, 1.5, 2.5, 3.5]})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    layout = laid_out(tmp_path / "t.csv")[1]
    assert layout.dates == {"when": "ISO", "hour": "ISO"}
    assert layout.numbers == ("when", "hour")
    assert laid_out(tmp_path / "t.parquet")[1] == layout
    X, same = (
        features(read_table(tmp_path / name), layout, path=tmp_path)
        for name in ("t.csv", "t.parquet")
    )
    pd.testing.assert_frame_equal(X, same)
    np.testing.assert_array_equal(X["when"], [86400.0, np.nan, 1620000000.0, -86400.0])
    for cell in ("3", "2021-02-30", "03.05.2021"):
        wrong = write(tmp_path / "w.csv", f"when,hour\n,\n{cell},2021-01-01\n")
        with pytest.raises(
            ValueError,
            match=rf"'when' has '{cell}' in row 2, where the fit had "
            rf"dates",
        ):
            features(read_table(wrong), layout, path=wrong)
    with pytest.raises(ValueError, match=r"'when' has '7' in row 1, where the fit had dates"):
        features(pa.table({"when": [7], "hour": [None]}), layout, path=tmp_path)


JANUARY_AND_FEBRUARY = [1420070400.0, np.nan, 1422662400.0, 1422748800.0]  # 1 and 31 Jan, 1 Feb


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        (["2015/01/01", "", "2015/01/31", "2015/02/01"], "year-first"),
        (["2015-1-1", "", "2015-1-31", "2015-2-1"], "year-first"),
        (["01.01.2015", "", "31.01.2015", "1.2.2015"], "day-first"),
        (["1/1/2015", "NA", "31/1/2015", "1/2/2015 00:00"], "day-first"),
        (["01/01/2015", "", "01/31/2015", "02/01/2015"], "month-first"),
        (["1/1/2015 12:00:00 AM", "", "01/31/2015 0:00", "2/1/2015"], "month-first"),
        (["1 Jan 2015", "", "31 January 2015", "01-FEB-2015"], "day, name of month"),
        (["Jan 1, 2015", "", "January 31, 2015", "feb 1 2015"], "name of month, day"),
    ],
)
def test_dates_are_read_where_all_cells_have_one_form(tmp_path, cells, form):
    frame = pd.DataFrame({"when": cells, "y": [0.5, 1.5, 2.5, 3.5]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    table, layout = laid_out(tmp_path / "t.csv")
    assert layout.dates == {"when": form}
    assert f"when ({form})" in layout.in_words()
    seconds = features(table, layout, path=tmp_path)["when"]
    np.testing.assert_array_equal(seconds, JANUARY_AND_FEBRUARY)


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        (["2015-01", "2015-02"], "year, month"),
        (["01/2015", "2/2015"], "month, year"),
        (["Jan 2015", "February 2015"], "name of month, year"),
    ],
)
def test_months_are_read_as_their_first_day(tmp_path, cells, form):
    pd.DataFrame({"month": cells, "y": [0.5, 1.5]}).to_csv(tmp_path / "t.csv", index=False)
    table, layout = laid_out(tmp_path / "t.csv")
    assert layout.dates == {"month": form}
    months = features(table, layout, path=tmp_path)["month"]
    np.testing.assert_array_equal(months, [1420070400.0, 1422748800.0])


def test_times_in_twelve_hours_are_read(tmp_path):
    path = write(tmp_path / "t.csv", "when,y\n1/31/1970 1:02:03.5 pm,0.5\n1/1/1970 12:30 AM,1.5\n")
    table, layout = laid_out(path)
    afternoon = 30 * 86400 + 13 * 3600 + 2 * 60 + 3.5
    assert features(table, layout, path=path)["when"].tolist() == [afternoon, 1800.0]


@pytest.mark.parametrize(("order", "days"), [("day-first", [31, 1]), ("month-first", [1, 31])])
def test_day_and_month_that_cannot_be_told_apart_are_asked_for(tmp_path, order, days):
    path = write(tmp_path / "t.csv", "when,y\n,0.1\n01/02/1970,0.5\n02/01/1970,1.5\n")
    with pytest.raises(
        ValueError,
        match=r"dates of the column 'when', such as '01/02/1970'.*--dates day-first or "
        "--dates month-first",
    ):
        laid_out(path)
    table, layout = laid_out(path, date_order=order)
    assert layout.dates == {"when": order}
    assert (features(table, layout, path=path)["when"] / 86400).tolist()[1:] == days


def test_later_tables_are_read_in_the_form_of_the_fit(tmp_path):
    fitted = write(tmp_path / "t.csv", "when,y\n31/01/1970,0.5\n02/01/1970,1.5\n")
    layout = laid_out(fitted)[1]
    for cells, days in (("02/01/1970\n03/01/1970", [1, 2]), ("1970-01-02\n1970-01-03", [1, 2])):
        later = write(tmp_path / "later.csv", f"when\n{cells}\n")
        X = features(read_table(later), layout, path=later)
        assert (X["when"] / 86400).tolist() == days
    wrong = write(tmp_path / "wrong.csv", "when\n02/01/1970\n01/31/1970\n")
    with pytest.raises(
        ValueError, match=r"'when' has '01/31/1970' in row 2.*31/01/2026 \(day-first\)"
    ):
        features(read_table(wrong), layout, path=wrong)


@pytest.mark.parametrize(
    "cells",
    [["31.01.2015", "01/31/2015"], ["30.02.2015", "1.1.2015"], ["31.01.15", "01.02.15"]],
    ids=["two forms", "no day of the calendar", "two digits for the year"],
)
def test_dates_that_cannot_be_read_are_told(tmp_path, cells):
    pd.DataFrame({"when": cells, "y": [0.5, 1.5]}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(UserWarning, match="'when' is read as categories, but looks like dates"):
        layout = laid_out(tmp_path / "t.csv")[1]
    assert layout.texts == ("when",)


def test_dates_where_the_fit_had_none_are_refused(tmp_path):
    path = write(tmp_path / "t.csv", "a,b,y\n2021-01-01,1,0.5\nunknown,2,1.5\n")
    layout = laid_out(path)[1]
    assert layout.texts == ("a",)
    dates = pa.array(pd.to_datetime(["2021-01-01"]))
    with pytest.raises(ValueError, match="'a' contains dates, and the fit read it as text"):
        features(pa.table({"a": dates, "b": [1]}), layout, path=path)
    with pytest.raises(ValueError, match="'b' contains dates, and the fit had numbers"):
        features(pa.table({"a": ["unknown"], "b": dates}), layout, path=path)
    path = write(tmp_path / "t.csv", "a,y\n1,2021-01-01\n2,2021-01-02\n")
    with pytest.raises(ValueError, match="target 'y' contains dates"):
        laid_out(path)


def test_targets_that_floats_would_change_are_refused(tmp_path):
    large = [10**18 + row % 3 for row in range(60)]
    frame = pd.DataFrame({"a": np.arange(60), "y": large})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    exact = pa.table({"a": frame["a"], "y": pa.array(large).cast(pa.decimal128(20, 0))})
    pa.parquet.write_table(exact, tmp_path / "decimal.parquet")
    frame.assign(y=[f"{value},0" for value in large]).to_csv(
        tmp_path / "comma.csv", index=False, sep=";"
    )
    for name, decimal in (
        ("t.csv", "."),
        ("t.parquet", "."),
        ("decimal.parquet", "."),
        ("comma.csv", ","),
    ):
        table, layout = laid_out(tmp_path / name, task="regression", decimal=decimal)
        with pytest.raises(
            ValueError,
            match=r"the target 'y' is 1000000000000000001(,0)? in row "
            r"2, which float64 rounds",
        ):
            targets(table, layout, path=tmp_path)
    table, layout = laid_out(tmp_path / "t.parquet", task="classification")
    assert sorted(set(targets(table, layout, path=tmp_path).tolist())) == [
        str(10**18 + k) for k in range(3)
    ]
    for cells in (
        [1e18 + 1024 * row for row in range(60)],
        [2**60 + 2**10 * row for row in range(60)],
    ):
        held = pa.table({"a": frame["a"], "y": cells})
        layout, _ = make_layout(held, Layout("y", "regression"), path=tmp_path)
        assert targets(held, layout, path=tmp_path).tolist() == cells
    dates = pa.table({"a": frame["a"], "y": pd.date_range("2026-01-01", periods=60)})
    with pytest.raises(
        ValueError,
        match="the target 'y' contains dates; convert them to numbers, such as days since one",
    ):
        targets(dates, layout, path=tmp_path)  # to evaluate a model that was fitted on numbers


def test_batches_have_the_size_asked_for_and_lose_no_row(tmp_path):
    frame = pd.DataFrame({"a": np.arange(1000.0), "b": ["x", "y"] * 500})
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=130)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_feather(tmp_path / "t.feather")
    for name in ("t.parquet", "t.csv", "t.feather"):
        tables = list(even_batches(tmp_path / name, ["b", "a"], rows=300))
        assert [table.num_rows for table in tables] == [300, 300, 300, 100]
        joined = pa.concat_tables(tables)
        assert joined.column_names == ["b", "a"]
        assert [float(value) for value in joined.column("a").to_pylist()] == frame["a"].tolist()


LOOKS = {
    "n.a.": (
        [*[str(cell / 4) for cell in range(30)], "n.a."],
        r"numbers in 30 of 31 cells, and "
        r"'n.a.' in row 31; correct",
    ),
    "dash": (
        ["-", *[str(cell) for cell in range(30)], "", "NA"],
        r"numbers in 30 of 31 cells, "
        r"and '-' in row 1; correct",
    ),
    "comma": (["15", "15,20", "-3,5", ""], r"decimal commas \('15,20' in row 2\); use --decimal ,"),
    "german": (["1.549,34", "12,5"], r"decimal commas \('1.549,34' in row 1\)"),
    "thousands": (
        ["1,549.34", "12.50", "2,000"],
        r"other signs \('1,549.34' in row 1\); write "
        r"plain numbers",
    ),
    "money": (["€ 15.20", "€ 3", "€1,000"], r"other signs \('€ 15.20' in row 1\)"),
    "percent": (["15 %", "3.5 %", "2%"], r"other signs \('15 %' in row 1\)"),
}


@pytest.mark.parametrize("name", LOOKS)
def test_text_that_looks_like_numbers_is_told_and_is_no_target(tmp_path, name):
    cells, words = LOOKS[name]
    path = tmp_path / "t.csv"
    pd.DataFrame(
        {"x": cells, "land": ["DE", "FR"] * (len(cells) // 2) + ["DE"] * (len(cells) % 2)}
    ).to_csv(path, index=False)
    with pytest.warns(
        UserWarning, match=rf"'x' is read as categories, but (has|looks).*{words}"
    ) as told:
        layout = laid_out(path, "land")[1]
    assert len(told) == 1
    assert layout.texts == ("x",)
    path = tmp_path / "long.csv"  # more values than classes have
    more = [cell for cell in dict.fromkeys(cells) if cell] * 3
    more += [
        cell.replace(digit, other)
        for cell in more
        for digit in "135"
        for other in "46789"
        if digit in cell
    ]
    pd.DataFrame({"x": more, "z": np.arange(len(more))}).to_csv(path, index=False)
    if len(set(more)) > 20 or name in ("comma", "german"):
        with pytest.raises(
            ValueError,
            match=r"the target 'x'.*or use --task classification if "
            r"these are labels",
        ):
            laid_out(path, "x")
    assert laid_out(path, "x", "classification")[1].task == "classification"


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
)
def test_text_that_does_not_is_not_told(tmp_path, cells):
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": cells, "y": np.arange(len(cells)) / 2}).to_csv(path, index=False)
    assert laid_out(path)[1].texts == ("x",)


def test_decimal_commas_are_read_where_they_are_asked_for(tmp_path):
    path = write(tmp_path / "t.csv", "a;b;y\n1,5;x,y;0,25\n-2;7,1z;1e-1\n;;3,0\n")
    table = read_table(path)
    layout, why = make_layout(table, Layout("y", decimal=","), path=path)
    assert layout == Layout.from_plain(layout.to_plain())
    assert layout.decimal == ","
    assert "regression" in why
    X = features(table, layout, path=path)
    np.testing.assert_array_equal(X["a"], [1.5, -2, np.nan])
    assert X["b"].tolist() == ["x,y", "7,1z", None]
    np.testing.assert_array_equal(targets(table, layout, path=path), [0.25, 0.1, 3])
    points = write(tmp_path / "p.csv", "a;b\n1,5;x\n2.5;x\n")
    with pytest.raises(
        ValueError,
        match=r"'a' has '2.5' in row 2, where a number is expected; .* "
        r"is missing\.$",
    ):
        features(read_table(points), layout, path=points)
    for cells, own, said in (
        ("928,09", ".", "if a comma is the decimal sign, use --decimal ,"),
        ("928.09", ",", "if a point is the decimal sign, use --decimal ."),
    ):
        wrong = write(tmp_path / "w.csv", f"a;b\n{cells};x\n7;x\n")
        with pytest.raises(ValueError, match=f"; {re.escape(said)}$"):
            features(read_table(wrong), replace(layout, decimal=own), path=wrong)
    later = read_table(write(tmp_path / "p.csv", "a;y\n1.5;0,5\n2.5;1,5\n"))
    with pytest.warns(UserWarning, match="decimal points .*leave out --decimal"):
        make_layout(later, Layout("y", decimal=","), path=points)


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["0.5", "1.25", "2"], "regression"),
        (["0", "1", "1"], "classification"),
        (["a", "b", "a"], "classification"),
        ([str(i) for i in range(50)], "regression"),
        (["1.0", "2.0", "1.0"], "classification"),
        (["1", "2"] * 30 + ["3+"], "classification"),  # nearly numbers, and few
    ],
)
def test_the_task_is_found_out_and_said(tmp_path, values, task):
    path = write(tmp_path / "t.csv", "x,y\n" + "".join(f"1,{value}\n" for value in values))
    layout, why = make_layout(read_table(path), Layout("y"), path=path)
    assert layout.task == task
    assert task in why
    assert "'y'" in why


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.csv", "", "is empty"),
        ("head.csv", "a,y\n", "no rows"),
        ("blank.csv", "\n\n\n", "is empty"),
        ("long.csv", "a,y\n1,2\n1,2,3\n", "row 2: Expected 2 columns, got 3"),
        ("short.csv", "a,y\n1,2\n1\n", "row 2: Expected 2 columns, got 1"),
        ("twice.csv", "a,a\n1,2\n", "more than one column called 'a'"),
        (
            "latin.csv",
            "a,y\nné,1\n".encode("latin-1"),
            "not written in UTF-8.*Latin-1.*save it again as UTF-8",
        ),
        (
            "head.csv",
            "é,y\nn,1\n".encode("cp1252"),
            "not written in UTF-8.*Windows-1252.*save it again as UTF-8",
        ),
        (
            "late.csv",
            b"a,y\n" + b"n,1\n" * 2**19 + "é,1\n".encode("cp1252"),
            "not written in UTF-8",
        ),
        ("wide.csv", "a,y\nn,1\n".encode("utf-16"), "looks like UTF-16.*save it again as UTF-8"),
        ("wide.csv.gz", gzip.compress("a,y\nn,1\n".encode("utf-16"), mtime=0), "looks like UTF-16"),
        ("not.parquet", b"this is no parquet file at all", "cannot be read as a parquet table"),
        ("not.feather", b"this is no feather file at all", "cannot be read as a feather table"),
        ("not.csv.gz", b"this is not compressed", "cannot be read as a csv table"),
        (
            "cut.csv.gz",
            gzip.compress(b"a,y\n" + b"1,2\n" * 9999, mtime=0)[:40],
            "cannot be read as a csv table",
        ),
        ("table.xlsx", b"PK", "is not a table that dco knows"),
    ],
)
def test_a_damaged_table_is_told_in_a_sentence_that_names_it(
    tmp_path, name, content: str | bytes, words
):
    path = write(tmp_path / name, content)
    with pytest.raises(ValueError, match=words) as told:
        read_table(path)
    assert name in str(told.value)


def test_the_bad_cell_is_named(tmp_path):
    path = write(tmp_path / "t.csv", "a,y\n1,2.5\n2,oops\n")
    with pytest.raises(ValueError, match=r"'oops' in row 2.*--task classification"):
        laid_out(path, task="regression")
    path = write(tmp_path / "t.csv", "a,y\n,1.5\ninf,2.5\n2,3.5\n")
    with pytest.raises(ValueError, match="'a' is infinite in row 2"):
        read_frame(path)
    pa.parquet.write_table(
        pa.table({"a": [1.0, 2.0], "y": [0.5, float("nan")]}), tmp_path / "t.parquet"
    )
    for path in (write(tmp_path / "t.csv", "a,y\n1,2.5\n2,\n"), tmp_path / "t.parquet"):
        with pytest.raises(ValueError, match=r"'y' is missing in 1 row \(first: row 2\)"):
            read_frame(path)


def test_columns_without_a_name_and_the_index_of_pandas_are_left_out_and_names_may_hold_dots(
    tmp_path,
):
    path = write(tmp_path / "t.csv", ",a,y\n0,1,2.5\n1,2,3.5\n")
    assert column_names(path) == list(read_table(path).column_names) == ["a", "y"]
    frame = pd.DataFrame({"a.b": [1.0, 2.0, 3.0], "y": [0.5, 1.5, 2.5]}, index=[5, 3, 1])
    frame.to_parquet(tmp_path / "t.parquet")
    X, _ = read_frame(tmp_path / "t.parquet")
    assert X.to_dict("list") == {"a.b": [1.0, 2.0, 3.0]}


def test_the_checks_of_columns_take_time_in_proportion_to_their_number(tmp_path):
    """20,000 columns: far below a second. To compare each with all others took half a minute."""
    names = tuple(f"column {place}" for place in range(20_000))
    layout = Layout("y", numbers=names, order=names, dates=dict.fromkeys(names[10_000:], "ISO"))
    begin = time.process_time()
    assert layout.columns_to_read(tmp_path, names, ignore_new=False) == [*names]
    assert len(layout.by_kind()["numbers"]) == 10_000
    assert time.process_time() - begin < 3


def test_times_with_a_zone_are_the_same_seconds_in_text_and_in_parquet(tmp_path):
    """10:00 in Berlin in May is 08:00 UTC; Z and +0000 are UTC; a column with and without zones is
    on no one clock.
    """
    text = ["2021-05-03T10:00:00+02:00", "2021-05-03 08:00Z", "", "2021-05-03T08:00:01.5+0000"]
    frame = pd.DataFrame({"when": text, "y": [0.5, 0.25, 0.125, 0.75]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame["when"] = pd.to_datetime(frame["when"].replace("", None), format="ISO8601", utc=True)
    frame.to_parquet(tmp_path / "t.parquet")
    found = [read_frame(tmp_path / name)[0]["when"].to_numpy() for name in ("t.csv", "t.parquet")]
    np.testing.assert_array_equal(found[0], found[1])
    assert np.diff(found[0][[0, 1, 3]]).tolist() == [0.0, 1.5]
    mixed = write(tmp_path / "mixed.csv", "when,y\n2021-05-03T10:00:00Z,1\n2021-05-03T10:00:00,2\n")
    with pytest.warns(UserWarning, match="'when' is read as categories, but looks like dates"):
        table, layout = laid_out(mixed, task="regression")
    assert layout.texts == ("when",)
    with pytest.raises(
        ValueError,
        match=r"'2021-05-03T10:00:00' in row 2, where the fit had "
        r"dates; .*zone",
    ):
        features(table, replace(layout, texts=(), dates={"when": "ISO"}), path=mixed)
    for day in ("2021-05-03Z", "2021-05-03+02:00"):  # no time of day
        path = write(tmp_path / "day.csv", f"when,y\n{day},1\n{day},2\n")
        assert laid_out(path, task="regression")[1].texts == ("when",)
