"""dco report: a page that is tied to its rows and its model, and one of a folder of results."""

import re

import pandas as pd
import pytest


def test_report_writes_a_page_and_refuses_rows_of_the_fit(dco, home, tmp_path):
    out = tmp_path / "r.html"
    dco("report", home / "numbers.dco", "--data", home / "new.csv", "--by", "site", "--out", out)
    assert "<html" in out.read_text()
    assert "--force" in dco.refuses("report", home / "numbers.dco", "--out", out)
    again = ("report", home / "numbers.dco", "--out", tmp_path / "s.html")
    assert "proves nothing" in dco.refuses(*again, "--data", home / "rows.csv")
    assert "--data" in dco.refuses(*again, "--by", "site")
    assert not (tmp_path / "s.html").exists()


def test_a_page_is_tied_to_its_rows_and_its_model(dco, home, tmp_path):
    for name in ("rows.csv", "new.csv"):
        table = pd.read_csv(home / name)
        table.assign(loan=[f"L{row}" for row in range(len(table))]).to_csv(
            tmp_path / name, index=False
        )
    fit = (
        "fit",
        tmp_path / "rows.csv",
        "--target",
        "outcome",
        "--key",
        "loan",
        "--models",
        "linear",
    )
    dco(
        *fit,
        "--test-size",
        60,
        "--by",
        "site",
        "--out",
        tmp_path / "m.dco",
        "--report",
        tmp_path / "f.html",
    )
    dco(
        "report",
        tmp_path / "m.dco",
        "--data",
        tmp_path / "new.csv",
        "--by",
        "site",
        "--out",
        tmp_path / "r.html",
    )
    dco("report", tmp_path / "m.dco", "--out", tmp_path / "none.html")
    written, page, bare = (
        (tmp_path / name).read_text() for name in ("f.html", "r.html", "none.html")
    )
    assert "<title>outcome in new.csv</title>" in page
    assert "<title>outcome by m.dco</title>" in bare
    assert re.search(
        r"Rows: 200 of new\.csv, fingerprint [0-9a-f]{32}\. Model: m\.dco\. Made on "
        r"\d{4}‑\d\d‑\d\d\.",
        page,
    )
    assert re.search(r"Rows: 60 of rows\.csv, fingerprint [0-9a-f]{32}\. Model: m\.dco\.", written)
    assert "Model: m.dco. Made on" in bare
    for html in (written, page):
        assert "By site</h2>" in html
        assert len(re.findall(r'<span class="facts">loan L\d+<br>', html)) == 6
    with_title = ("report", tmp_path / "m.dco", "--title", "Mine", "--out", tmp_path / "t.html")
    dco(*with_title)
    assert "<title>Mine</title>" in (tmp_path / "t.html").read_text()


def test_the_title_of_a_page_of_results_is_the_one_given(dco, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "tables.md").write_text("# One\n\n| a |\n|---|\n| 1 |\n")
    dco("report", tmp_path / "r", "--title", "Loans & losses", "--out", tmp_path / "r.html")
    assert "<title>Loans &amp; losses</title>" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    "option", ["--by x", "--target x", "--ignore-new", "--data x.csv", "--decimal ,", "--trust x"]
)
def test_options_of_models_are_refused_for_a_folder_of_results(dco, tmp_path, option):
    (tmp_path / "r").mkdir()
    told = dco.refuses("report", tmp_path / "r", *option.split(), "--out", tmp_path / "s.html")
    assert f"{option.split()[0]} belongs to a model" in told


def test_a_page_is_not_written_under_the_name_of_another_format(dco, home, tmp_path):
    told = dco.refuses("report", home / "numbers.dco", "--out", tmp_path / "report.pdf")
    assert "report.pdf must end in .html" in told
    assert list(tmp_path.iterdir()) == []
