"""No command destroys what it reads, nor leaves what an earlier run wrote to be taken for its
own.
"""

import errno
import json
from typing import Any

import pandas as pd

LINEAR = (
    "--target",
    "outcome",
    "--drop",
    "grade",
    "--drop",
    "patient",
    "--models",
    "linear",
    "--splits",
    1,
)


def test_compare_never_writes_over_its_table(dco, home, tmp_path):
    out = tmp_path / "c"
    dco("compare", home / "rows.csv", *LINEAR, "--hold-out", "0.5", "--out", out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    (tmp_path / "link.csv").symlink_to(out / "held-out.csv")
    for data in (out / "held-out.csv", tmp_path / "link.csv"):
        told = dco.refuses("compare", data, *LINEAR, "--hold-out", "0.3", "--out", out, "--force")
        assert "where the results would go" in told
    parts = tmp_path / "parts"
    parts.mkdir()
    pd.read_csv(home / "rows.csv").to_parquet(parts / "0.parquet")
    assert "that is read" in dco.refuses("compare", parts, *LINEAR, "--out", parts, "--force")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert [path.name for path in parts.iterdir()] == ["0.parquet"]


def test_a_comparison_anew_changes_nothing_until_it_is_complete_and_leaves_no_old_rows(
    dco, home, tmp_path, monkeypatch
):
    import dco.cli.comparing as module

    out, anew = tmp_path / "c", ("--alpha", "0.3", "--splits", 2)
    dco("compare", home / "rows.csv", *LINEAR, "--hold-out", "0.5", "--out", out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(module, "_write_outputs", full)
        assert "no space left" in dco.refuses(
            "compare", home / "rows.csv", *LINEAR, *anew, "--out", out, "--force"
        )
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    with monkeypatch.context() as patch:
        # the splits that are finished are not run again
        patch.setattr(module.Split, "__call__", full)
        dco("compare", home / "rows.csv", *LINEAR, *anew, "--out", out, "--resume")
    assert sorted(path.name for path in out.iterdir()) == [
        "records.jsonl",
        "settings.json",
        "tables.json",
        "tables.md",
    ]
    assert json.loads((out / "settings.json").read_text())["alpha"] == 0.3
    assert len((out / "records.jsonl").read_text().splitlines()) == 2


def test_a_page_never_replaces_the_results_it_shows(dco, tmp_path):
    results = tmp_path / "r"
    results.mkdir()
    (results / "tables.md").write_text("# One\n\n| a |\n|---|\n| 1 |\n")
    (results / "records.jsonl").write_text("{}\n")
    for name in ("tables.md", "records.jsonl"):
        assert "would destroy it" in dco.refuses(
            "report", results, "--out", results / name, "--force"
        )
    assert (results / "records.jsonl").read_text() == "{}\n"
    for _ in range(2):
        dco("report", results, "--out", results / "report.html", "--force")
