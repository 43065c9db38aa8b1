import json
import math

import pytest

from dco.paper.tables import Measured, ResultTable, difference_in_standard_errors

TABLE = ResultTable(
    title="A | title",
    caption="Caption.",
    columns=("method", "width", "p"),
    rows=(("a|b", Measured(1.25, 0.5), 3.1e-12), ("c", None, 0.5)),
)


def test_a_table_in_csv_has_two_columns_for_mean_and_sd():
    assert TABLE.to_csv().splitlines() == [
        "method,width,width sd,p",
        "a|b,1.25,0.5,3.1e-12",
        "c,,,0.5",
    ]


def test_a_table_in_json_keeps_its_numbers():
    assert json.loads(TABLE.to_json())["rows"][0] == ["a|b", {"mean": 1.25, "sd": 0.5}, 3.1e-12]


def test_a_table_in_markdown_escapes_bars():
    assert "| a\\|b | 1.250 ± 0.500 | 3.1e-12 |" in TABLE.to_markdown()


def test_cells_are_shown_with_the_decimals_of_the_table():
    assert TABLE.shown() == [["a|b", "1.250 ± 0.500", "3.1e-12"], ["c", "", "0.500"]]


def test_a_title_names_a_file():
    assert TABLE.slug == "a-title"


def test_rows_have_as_many_cells_as_columns():
    with pytest.raises(ValueError, match="3 columns"):
        ResultTable("t", "c", ("a", "b", "c"), ((1, 2),))


@pytest.mark.parametrize("values", [[2.0], [1.0, math.inf]], ids=["one value", "infinite"])
def test_a_mean_without_a_standard_deviation_is_shown_alone(values):
    measured = Measured.of(values)
    table = ResultTable.of("t", "c", [{"size": measured}])
    assert math.isnan(measured.sd)
    assert table.shown() == [["inf" if math.inf in values else "2.000"]]
    assert json.loads(table.to_json())["rows"][0][0]["sd"] == "nan"


def test_a_difference_from_the_paper_is_in_standard_errors_of_both():
    """50 splits with sd 3 here and sd 4 there: the difference has standard error 5 / sqrt(50)."""
    off = difference_in_standard_errors(Measured(2.0, 3.0), Measured(1.0, 4.0), splits=50)
    assert off == pytest.approx(math.sqrt(50) / 5)


def test_one_split_has_no_standard_error():
    assert difference_in_standard_errors(Measured.of([2.0]), Measured(1.0, 4.0), splits=1) is None
