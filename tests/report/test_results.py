"""A folder of results as one page."""

import base64
import json
import re
from pathlib import Path

import pytest

from dco.report import read_results, results_html, write_results_page
from dco.report.results import Table

SVG = '<svg xmlns="http://www.w3.org/2000/svg"/>'
MARKDOWN = """# Table 2: sizes <b>

Mean size, *five* splits.

| method | size | coverage |
|---|---:|---:|
| **dco** | 1.50 ± 0.1 | 90.1 % |
| a \\| b | 12 | 89.0 % |

Lower is better.
"""


def test_markdown_tables_keep_their_cells_and_align_numbers(tmp_path: Path) -> None:
    (tmp_path / "table-2.md").write_text(MARKDOWN)
    (result,) = read_results(tmp_path)
    page = write_results_page(tmp_path, tmp_path / "page.html")
    assert page.read_text(encoding="utf-8") == results_html(tmp_path)
    assert result.title == "Table 2: sizes <b>"
    text, table, last = result.blocks
    assert (text.text, last.text) == ("Mean size, *five* splits.", "Lower is better.")
    assert table.head == ("method", "size", "coverage")
    assert table.rows == (("dco", "1.50 ± 0.1", "90.1 %"), ("a | b", "12", "89.0 %"))
    assert table.numeric == (False, True, True)


def test_the_same_name_is_one_result_and_names_count_by_value(tmp_path: Path) -> None:
    for name in ("table-10", "table-9"):
        (tmp_path / f"{name}.md").write_text(MARKDOWN)
        (tmp_path / f"{name}.csv").write_text("a,b\n1,2\n")
    (tmp_path / "table-9.svg").write_text(SVG)
    (tmp_path / "notes.txt").write_text("not a result")
    figure, none = (result.figure for result in read_results(tmp_path))
    assert none is None
    assert figure is not None
    assert base64.b64decode(figure.partition(",")[2]) == (tmp_path / "table-9.svg").read_bytes()


def test_each_heading_of_written_tables_is_a_result_and_data_beside_it_is_not(
    tmp_path: Path,
) -> None:
    from dco.paper import Measured, ResultTable

    tables = [
        ResultTable(
            f"Table {place}", "Over splits.", ("method", "size"), (("dco", Measured(1.5, 0.25)),)
        )
        for place in (2, 3)
    ]
    inner = tmp_path / "table-2"
    inner.mkdir()
    (inner / "tables.md").write_text("\n".join(table.to_markdown() for table in tables))
    (inner / "tables.json").write_text("[" + ",".join(table.to_json() for table in tables) + "]")
    (inner / "held-out.csv").write_text("secret,y\n1,2\n")
    (inner / "sizes.svg").write_text(SVG)
    found = read_results(tmp_path)
    assert [result.title for result in found] == [
        "table-2: Table 2",
        "table-2: Table 3",
        "table-2: Figure: sizes",
    ]
    assert found[0].blocks[0].rows == (("dco", "1.500 ± 0.250"),)
    assert found[0].blocks[0].numeric == (False, True)
    assert "secret" not in results_html(tmp_path)


@pytest.mark.parametrize(
    ("folder", "heading", "title"),
    [
        ("diabetes", "Diabetes: sizes", "Diabetes: sizes"),  # not said twice
        ("m", "Marginal guarantee", "m: Marginal guarantee"),  # only the first letter of the title
    ],
)
def test_a_title_tells_its_folder(tmp_path: Path, folder: str, heading: str, title: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "tables.md").write_text(f"### {heading}\n\n| a |\n|---|\n| 1 |\n")
    (tmp_path / folder / "law.svg").write_text(SVG)
    assert [result.title for result in read_results(tmp_path)] == [title, f"{folder}: Figure: law"]


def test_a_comparison_is_headed_as_one(tmp_path: Path) -> None:
    (tmp_path / "tables.md").write_text(
        "### Table\n\n| method | difference |\n| --- | --- |\n| dco | – |\n| bq | -1.5 |\n"
    )
    assert "Report on reproduced results" in results_html(tmp_path)
    assert read_results(tmp_path)[0].blocks[0].numeric == (False, True)
    (tmp_path / "settings.json").write_text(
        json.dumps({"target": "<b>weight</b>", "task": "regression"})
    )
    html = results_html(tmp_path)
    assert "Report on a comparison of methods" in html
    assert "reproduced" not in html
    assert "sets for &lt;b&gt;weight" in html
    for other in ("[1]", "{", "{}"):
        (tmp_path / "settings.json").write_text(other)
        assert "Report on reproduced results" in results_html(tmp_path)


def test_hostile_cells_are_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("</script><img src=x>,b\n<script>alert(1)</script>,2\n")
    html = results_html(tmp_path)
    assert "<img" not in html
    assert "<script" not in html
    assert "default-src &#39;none&#39;" in html or "default-src 'none'" in html
    assert not re.search(r"script-src|unsafe", html)


def test_a_folder_without_results_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no table"):
        write_results_page(tmp_path, tmp_path / "page.html")
    with pytest.raises(ValueError, match="is not a folder"):
        write_results_page(tmp_path / "nowhere", tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_only_tables_too_wide_for_a_phone_are_stacked() -> None:
    narrow = Table(
        head=("target", "outcome", "count"), rows=(("0.8", "a feasible threshold was found", "50"),)
    )
    assert narrow.layout == ()
    columns = ("target", "method", "coverage", "size", "P95", "paper size")
    wide = Table(head=columns, rows=(("0.8", "BQ", *["0.841 ± 0.050"] * 4),))
    assert wide.layout == ("stack",)
    assert wide.name_column == 1
    assert [wide.kind(place, cell) for place, cell in enumerate(wide.rows[0])] == [
        "n",
        "short",
        "n",
        "n",
        "n",
        "n",
    ]
    assert Table(head=("a", "b"), rows=(("1", "2"),)).name_column is None


def test_csv_files_are_tables_and_a_row_longer_than_its_head_is_shown_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("method,size\nx,1.5\ny,2,kept\n")
    (table,) = read_results(tmp_path)[0].blocks
    assert (table.head, table.rows) == (("method", "size", ""), (("x", "1.5"), ("y", "2", "kept")))
    assert ">kept<" in results_html(tmp_path)


def test_a_figure_is_called_one_and_says_where_its_numbers_are(tmp_path: Path) -> None:
    (tmp_path / "coverage-law.svg").write_text(SVG)
    assert 'alt="Figure: coverage law"' in results_html(tmp_path)
    (tmp_path / "tables.md").write_text(MARKDOWN)
    html = results_html(tmp_path)
    assert 'alt="Figure: coverage law; the tables of this page hold its numbers"' in html
    assert ">Figure: coverage law</h2>" in html
