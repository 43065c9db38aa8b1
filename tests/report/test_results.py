"""A folder of results as one page."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dco.paper import Measured, ResultTable
from dco.report import read_results, results_html, write_results_page

SVG = '<svg xmlns="http://www.w3.org/2000/svg"/>'
MARKDOWN = """# Table 2: sizes <b>

Mean size, *five* splits.

| method | size | coverage |
|---|---:|---:|
| **dco** | 1.50 ± 0.1 | 90.1 % |
| a \\| b | 12 | 89.0 % |

Lower is better.
"""


def read_table(folder: Path, csv_text: str) -> Any:
    """Write one CSV file into the folder, and return the table that a page shows of it."""
    (folder / "table.csv").write_text(csv_text)
    (result,) = read_results(folder)
    (table,) = result.blocks
    return table


# ---------------------------------------------------------------- reading


def test_markdown_is_a_title_paragraphs_and_tables(tmp_path):
    (tmp_path / "table-2.md").write_text(MARKDOWN)

    (result,) = read_results(tmp_path)

    before, table, after = result.blocks
    assert result.title == "Table 2: sizes <b>"
    assert before.text == "Mean size, *five* splits."
    assert table.head == ("method", "size", "coverage")
    assert table.rows == (("dco", "1.50 ± 0.1", "90.1 %"), ("a | b", "12", "89.0 %"))
    assert after.text == "Lower is better."


@pytest.mark.parametrize(
    ("cells", "is_numeric"),
    [
        (["1.50 ± 0.1", "12"], True),
        (["90.1 %", "89.0 %"], True),
        (["–", "-1.5"], True),
        (["dco", "12"], False),
    ],
    ids=["with errors", "percent", "with a dash", "words"],
)
def test_a_column_of_numbers_is_known(tmp_path, cells, is_numeric):
    table = read_table(tmp_path, "\n".join(["column", *cells]))

    assert table.numeric == (is_numeric,)


def test_a_row_longer_than_its_head_is_shown_whole(tmp_path):
    table = read_table(tmp_path, "method,size\nx,1.5\ny,2,surplus\n")

    assert table.head == ("method", "size", "")
    assert table.rows == (("x", "1.5"), ("y", "2", "surplus"))
    assert ">surplus<" in results_html(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("table.csv", "method,size,coverage\ndco,1.5\nbq\n"),
        ("table.md", "| method | size | coverage |\n|---|---|---|\n| dco | 1.5 |\n| bq |\n"),
    ],
    ids=["csv", "markdown"],
)
def test_a_head_longer_than_every_row_is_shown_whole(tmp_path, name, text):
    (tmp_path / name).write_text(text)

    html = results_html(tmp_path)

    heads = re.findall(r"<th scope=\"col\".*?>(.*?)</th>", html)
    assert heads == ["method", "size", "coverage"]
    assert ">1.5</td>" in html


def test_files_of_the_same_name_are_one_result(tmp_path):
    (tmp_path / "table.md").write_text(MARKDOWN)
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "table.svg").write_text(SVG)
    (tmp_path / "notes.txt").write_text("not a result")

    (result,) = read_results(tmp_path)

    (table,) = result.tables()
    picture = result.figure.partition(",")[2]
    assert table.head == ("method", "size", "coverage")
    assert base64.b64decode(picture) == SVG.encode()


def test_numbers_in_names_count_by_value(tmp_path):
    for number in (10, 9):
        (tmp_path / f"table-{number}.md").write_text(f"# Table {number}\n\n| a |\n|---|\n| 1 |\n")

    titles = [result.title for result in read_results(tmp_path)]

    assert titles == ["Table 9", "Table 10"]


@pytest.fixture
def written_tables(tmp_path: Path) -> Path:
    """A folder as `dco reproduce` leaves it: tables, the same as JSON, data and a figure."""
    tables = [
        ResultTable(
            f"Table {number}", "Over splits.", ("method", "size"), (("dco", Measured(1.5, 0.25)),)
        )
        for number in (2, 3)
    ]
    inner = tmp_path / "table-2"
    inner.mkdir()
    (inner / "tables.md").write_text("\n".join(table.to_markdown() for table in tables))
    (inner / "tables.json").write_text("[" + ",".join(table.to_json() for table in tables) + "]")
    (inner / "held-out.csv").write_text("secret,y\n1,2\n")
    (inner / "sizes.svg").write_text(SVG)
    return tmp_path


def test_each_heading_of_written_tables_is_a_result(written_tables):
    results = read_results(written_tables)

    assert [result.title for result in results] == [
        "table-2: Table 2",
        "table-2: Table 3",
        "table-2: Figure: sizes",
    ]
    assert results[0].blocks[0].rows == (("dco", "1.500 ± 0.250"),)


def test_data_beside_written_tables_is_not_shown(written_tables):
    assert "secret" not in results_html(written_tables)


@pytest.mark.parametrize(
    ("folder", "heading", "title"),
    [
        ("diabetes", "Diabetes: sizes", "Diabetes: sizes"),
        ("m", "Marginal guarantee", "m: Marginal guarantee"),
    ],
    ids=["begins with it", "begins with its letter"],
)
def test_a_title_has_its_folder_once(tmp_path, folder, heading, title):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "tables.md").write_text(f"### {heading}\n\n| a |\n|---|\n| 1 |\n")
    (tmp_path / folder / "law.svg").write_text(SVG)

    titles = [result.title for result in read_results(tmp_path)]

    assert titles == [title, f"{folder}: Figure: law"]


# ---------------------------------------------------------------- the page


def test_the_written_page_is_that_of_results_html(tmp_path):
    (tmp_path / "table-2.md").write_text(MARKDOWN)

    page = write_results_page(tmp_path, tmp_path / "page.html")

    assert page.read_text(encoding="utf-8") == results_html(tmp_path)


@pytest.mark.parametrize(
    "settings", [None, "[1]", "{", "{}"], ids=["none", "a list", "broken", "without a target"]
)
def test_results_without_settings_are_headed_as_reproduced(tmp_path, settings):
    (tmp_path / "tables.md").write_text(MARKDOWN)
    if settings is not None:
        (tmp_path / "settings.json").write_text(settings)

    assert "Report on reproduced results" in results_html(tmp_path)


def test_a_comparison_is_headed_by_its_target(tmp_path):
    (tmp_path / "tables.md").write_text(MARKDOWN)
    settings = {"target": "<b>weight</b>", "task": "regression"}
    (tmp_path / "settings.json").write_text(json.dumps(settings))

    html = results_html(tmp_path)

    assert "Report on a comparison of methods" in html
    assert "reproduced" not in html
    assert "sets for &lt;b&gt;weight" in html


def test_hostile_cells_are_text(tmp_path):
    (tmp_path / "a.csv").write_text("</script><img src=x>,b\n<script>alert(1)</script>,2\n")

    html = results_html(tmp_path)

    assert "<img" not in html
    assert "<script" not in html


def test_a_page_allows_no_scripts(tmp_path):
    (tmp_path / "table-2.md").write_text(MARKDOWN)

    html = results_html(tmp_path)

    assert re.search("default-src ('|&#39;)none('|&#39;)", html)
    assert not re.search(r"script-src|unsafe", html)


@pytest.mark.parametrize(
    ("folder", "message"), [(".", "holds no table"), ("nowhere", "is not a folder")]
)
def test_a_folder_without_results_is_refused(tmp_path, folder, message):
    with pytest.raises(ValueError, match=message):
        write_results_page(tmp_path / folder, tmp_path / "page.html")

    assert list(tmp_path.iterdir()) == []


def test_a_table_that_fits_a_phone_is_not_stacked(tmp_path):
    table = read_table(tmp_path, "target,outcome,count\n0.8,a feasible threshold was found,50\n")

    assert table.layout == ()


def test_a_table_too_wide_for_a_phone_is_stacked(tmp_path):
    numbers = ",".join(["0.841 ± 0.050"] * 4)
    table = read_table(tmp_path, f"target,method,coverage,size,P95,paper size\n0.8,BQ,{numbers}\n")

    kinds = [table.kind(column, cell) for column, cell in enumerate(table.rows[0])]

    assert table.layout == ("stack",)
    assert kinds == ["n", "short", "n", "n", "n", "n"]


@pytest.mark.parametrize(
    ("text", "column"), [("target,method\n0.8,BQ\n", 1), ("a,b\n1,2\n", None)], ids=["second", "no"]
)
def test_the_first_column_of_words_names_the_rows(tmp_path, text, column):
    assert read_table(tmp_path, text).name_column == column


def test_a_figure_is_called_one(tmp_path):
    (tmp_path / "coverage-law.svg").write_text(SVG)

    html = results_html(tmp_path)

    assert ">Figure: coverage law</h2>" in html
    assert 'alt="Figure: coverage law"' in html


def test_a_figure_beside_tables_says_where_its_numbers_are(tmp_path):
    (tmp_path / "coverage-law.svg").write_text(SVG)
    (tmp_path / "tables.md").write_text(MARKDOWN)

    html = results_html(tmp_path)

    assert 'alt="Figure: coverage law; the tables of this page hold its numbers"' in html
