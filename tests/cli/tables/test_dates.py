"""Dates are read in the forms that people write, and never guessed."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dco.cli.tables.layout import CategoryFeature, DateFeature, Layout
from dco.cli.tables.rows import read_features

from .reading import arrow_table, features, infer, read, write, write_columns


def forms_of(layout: Layout) -> dict[str, str]:
    """Return the form of each column of dates."""
    return {name: feature.form for name, feature in layout.features_of(DateFeature).items()}


@pytest.fixture
def dates_frame() -> pd.DataFrame:
    hour = ["1970-01-01 00:00:01", "2021-05-03 10:20:30.25", None, "2000-02-29 00:00"]
    return pd.DataFrame(
        {
            "when": pd.to_datetime(["1970-01-02", None, "2021-05-03", "1969-12-31"]),
            "hour": pd.to_datetime(hour, format="ISO8601"),
            "y": [0.5, 1.5, 2.5, 3.5],
        }
    )


def test_dates_are_read_alike_from_text_and_from_parquet(tmp_path, dates_frame):
    dates_frame.to_parquet(tmp_path / "t.parquet")
    dates_frame.to_csv(tmp_path / "t.csv", index=False)
    layout = infer(tmp_path / "t.csv").layout
    assert forms_of(layout) == {"when": "ISO", "hour": "ISO"}
    assert infer(tmp_path / "t.parquet").layout == layout
    from_text, _ = read(tmp_path / "t.csv")
    from_parquet, _ = read(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(from_text, from_parquet)
    np.testing.assert_array_equal(from_text["when"], [86400, np.nan, 1620000000, -86400])


@pytest.mark.parametrize("cell", ["3", "2021-02-30", "03.05.2021"])
def test_a_later_cell_that_is_no_date_is_named(tmp_path, cell):
    layout = Layout("y", "regression", {"when": DateFeature()})
    path = write(tmp_path / "w.csv", f"when,z\n,1\n{cell},1\n")
    with pytest.raises(ValueError, match=rf"'when' has '{cell}' in row 2, where the fit had dates"):
        features(layout, path)


def test_typed_numbers_are_no_dates():
    layout = Layout("y", "regression", {"when": DateFeature()})
    with pytest.raises(ValueError, match=r"'when' has '7' in row 1, where the fit had dates"):
        read_features(arrow_table(when=[7]), layout)


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
    path = write_columns(tmp_path / "t.csv", when=cells, y=[0.5, 1.5, 2.5, 3.5])
    layout = infer(path).layout
    assert forms_of(layout) == {"when": form}
    assert f"when ({form})" in layout.in_words()
    np.testing.assert_array_equal(features(layout, path)["when"], JANUARY_AND_FEBRUARY)


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        (["2015-01", "2015-02"], "year, month"),
        (["01/2015", "2/2015"], "month, year"),
        (["Jan 2015", "February 2015"], "name of month, year"),
    ],
)
def test_months_are_read_as_their_first_day(tmp_path, cells, form):
    path = write_columns(tmp_path / "t.csv", month=cells, y=[0.5, 1.5])
    layout = infer(path).layout
    assert forms_of(layout) == {"month": form}
    np.testing.assert_array_equal(features(layout, path)["month"], [1420070400.0, 1422748800.0])


def test_times_in_twelve_hours_are_read(tmp_path):
    path = write(tmp_path / "t.csv", "when,y\n1/31/1970 1:02:03.5 pm,0.5\n1/1/1970 12:30 AM,1.5\n")
    X, _ = read(path)
    afternoon = 30 * 86400 + 13 * 3600 + 2 * 60 + 3.5
    assert X["when"].tolist() == [afternoon, 1800.0]


AMBIGUOUS = "when,y\n,0.1\n01/02/1970,0.5\n02/01/1970,1.5\n"


def test_day_and_month_that_cannot_be_told_apart_are_asked_for(tmp_path):
    path = write(tmp_path / "t.csv", AMBIGUOUS)
    with pytest.raises(
        ValueError,
        match=r"'when' has dates such as '01/02/1970'.*--dates day-first or --dates month-first",
    ):
        infer(path)


@pytest.mark.parametrize(("order", "days"), [("day-first", [31, 1]), ("month-first", [1, 31])])
def test_day_and_month_are_read_as_asked(tmp_path, order, days):
    path = write(tmp_path / "t.csv", AMBIGUOUS)
    assert forms_of(infer(path, date_order=order).layout) == {"when": order}
    X, _ = read(path, date_order=order)
    assert (X["when"] / 86400).tolist()[1:] == days


@pytest.mark.parametrize(
    "cells", [["02/01/1970", "03/01/1970"], ["1970-01-02", "1970-01-03"]], ids=["fit", "ISO"]
)
def test_later_tables_are_read_in_the_form_of_the_fit_or_in_iso(tmp_path, cells):
    layout = Layout("y", "regression", {"when": DateFeature("day-first")})
    path = write_columns(tmp_path / "later.csv", when=cells)
    assert (features(layout, path)["when"] / 86400).tolist() == [1, 2]


def test_a_later_date_of_another_form_is_named(tmp_path):
    layout = Layout("y", "regression", {"when": DateFeature("day-first")})
    path = write(tmp_path / "wrong.csv", "when\n02/01/1970\n01/31/1970\n")
    with pytest.raises(
        ValueError, match=r"'when' has '01/31/1970' in row 2.*31/01/2026 \(day-first\)"
    ):
        features(layout, path)


@pytest.mark.parametrize(
    "cells",
    [
        ["31.01.2015", "01/31/2015"],
        ["30.02.2015", "1.1.2015"],
        ["31.01.15", "01.02.15"],
        ["2021-05-03T10:00:00Z", "2021-05-03T10:00:00"],
        ["2021-05-03Z", "2021-05-03Z"],
    ],
    ids=["two forms", "no day of the calendar", "short year", "zone or not", "zone without time"],
)
def test_dates_that_cannot_be_read_are_categories(tmp_path, cells):
    path = write_columns(tmp_path / "t.csv", when=cells, y=[0.5, 1.5])
    assert isinstance(infer(path).layout.features["when"], CategoryFeature)


@pytest.mark.parametrize(
    "cells",
    [
        ["31.01.2015", "01/31/2015"],
        ["30.02.2015", "1.1.2015"],
        ["31.01.15", "01.02.15"],
        ["2021-05-03T10:00:00Z", "2021-05-03T10:00:00"],
    ],
    ids=["two forms", "no day of the calendar", "short year", "zone or not"],
)
def test_dates_that_cannot_be_read_are_noted(tmp_path, cells):
    path = write_columns(tmp_path / "t.csv", when=cells, y=[0.5, 1.5])
    (note,) = infer(path).notes
    assert "'when' is read as categories, but looks like dates" in str(note)


@pytest.mark.parametrize(
    ("column", "problem"),
    [("a", "the fit read it as text"), ("b", "the fit had numbers")],
)
def test_typed_dates_where_the_fit_had_none_are_refused(tmp_path, column, problem):
    layout = infer(write(tmp_path / "t.csv", "a,b,y\nunknown,1,0.5\nu,2,1.5\n")).layout
    cells = {"a": ["unknown"], "b": [1]} | {column: pa.array(pd.to_datetime(["2021-01-01"]))}
    with pytest.raises(ValueError, match=f"'{column}' contains dates, and {problem}"):
        read_features(arrow_table(**cells), layout)


def test_a_target_of_dates_is_refused(tmp_path):
    path = write(tmp_path / "t.csv", "a,y\n1,2021-01-01\n2,2021-01-02\n")
    with pytest.raises(ValueError, match="the target 'y' contains dates; convert them to numbers"):
        infer(path)


def test_a_date_that_is_a_condition_stays_text(tmp_path):
    path = write(tmp_path / "t.csv", "when,y\n2021-01-01,1.5\n2021-01-02,2.5\n")
    layout = infer(path, conditions=("when",)).layout
    assert layout.features["when"] == CategoryFeature(missing="(missing)")


def test_times_with_a_zone_are_the_same_seconds_in_text_and_in_parquet(tmp_path):
    """10:00 in Berlin in May is 08:00 UTC; Z and +0000 are UTC."""
    text = ["2021-05-03T10:00:00+02:00", "2021-05-03 08:00Z", "", "2021-05-03T08:00:01.5+0000"]
    frame = pd.DataFrame({"when": text, "y": [0.5, 0.25, 0.125, 0.75]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame["when"] = pd.to_datetime(frame["when"].replace("", None), format="ISO8601", utc=True)
    frame.to_parquet(tmp_path / "t.parquet")
    from_text, _ = read(tmp_path / "t.csv")
    from_parquet, _ = read(tmp_path / "t.parquet")
    np.testing.assert_array_equal(from_text["when"], from_parquet["when"])
    assert np.diff(from_text["when"].to_numpy()[[0, 1, 3]]).tolist() == [0.0, 1.5]


def test_a_column_with_and_without_zones_is_on_no_one_clock(tmp_path):
    layout = Layout("y", "regression", {"when": DateFeature()})
    path = write(tmp_path / "t.csv", "when\n2021-05-03T10:00:00Z\n2021-05-03T10:00:00\n")
    with pytest.raises(ValueError, match=r"'2021-05-03T10:00:00' in row 2, .*zone"):
        features(layout, path)
