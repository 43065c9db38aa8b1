"""dco compare: like beside like, resumed with the same result, rows held out whole and apart."""

import json
import shlex

import numpy as np
import pandas as pd

import dco as library
from dco.cli.tables.fitted import StoredTable


def comparing(home, out, *more, target="outcome"):
    drop = ("--drop", "grade" if target == "outcome" else "outcome", "--drop", "patient")
    return (
        "compare",
        home / "rows.csv",
        "--target",
        target,
        *drop,
        "--models",
        "linear",
        "--out",
        out,
        *more,
    )


def by_method(out):
    """The rows of each split, by method."""
    splits = []
    for line in filter(str.strip, (out / "records.jsonl").read_text().splitlines()):
        rows = [
            dict(zip(block["columns"], cells, strict=True))
            for block in json.loads(line)["rows"]
            for cells in block["values"]
        ]
        splits.append({row["method"]: row for row in rows if "method" in row})
    return splits


def test_it_puts_like_beside_like_and_ends_with_the_warning(dco, home, tmp_path):
    printed = dco(*comparing(home, tmp_path / "c", "--splits", 3, target="grade")).output
    places = [
        printed.index(text)
        for text in ("Marginal guarantee", "DCO-Warmstart", "PAC guarantee", "BQ", "No guarantee")
    ]
    assert places == sorted(places)
    assert "rows that were not in it" in printed
    assert len(by_method(tmp_path / "c")) == 3


def test_selection_on_the_rows_that_calibrate_never_covers_less_than_without_its_correction(
    dco, home, tmp_path
):
    """ModSel-CP's union holds the sets of EFCP's winner, at the same rank of the same rows; only
    the first promises.
    """
    out = tmp_path / "compared"
    few = ("--tune-size", 15, "--calibrate-size", 15)  # so that the choice is worth correcting
    dco(*comparing(home, out, "--models", "linear-log", "--splits", 8, *few))
    larger = 0
    for by in by_method(out):
        union, plain, bound = by["modsel"], by["efcp"], by["yk-adjust"]
        assert bound["calibration_rows"] == plain["calibration_rows"]
        # its bound is for many rows
        assert (bound["coverage"], float(bound["mean_size"])) == (1, np.inf)
        assert (
            union["calibration_rows"]
            == plain["calibration_rows"]
            == by["split_cp"]["calibration_rows"]
        )
        assert union["coverage"] >= plain["coverage"]
        assert union["mean_size"] >= plain["mean_size"] - 1e-9
        larger += union["mean_size"] > plain["mean_size"] + 1e-9
    assert larger, "otherwise nothing is corrected here"
    tables = json.loads((out / "tables.json").read_text())
    rows = {table["title"].split(" ")[0]: [row[0] for row in table["rows"]] for table in tables}
    assert rows["Marginal"][-2:] == ["ModSel-CP", "YK-adjust"]
    assert "EFCP" in rows["No"]


def test_it_resumes_with_the_same_result(dco, home, tmp_path):
    whole = dco.json(*comparing(home, tmp_path / "a", "--splits", 4))
    dco(*comparing(home, tmp_path / "b", "--splits", 4))
    records = tmp_path / "b" / "records.jsonl"
    lines = records.read_text().splitlines()
    # killed while it wrote a line
    records.write_text("\n".join([lines[2], lines[0][: len(lines[0]) // 2]]))
    assert "--resume" in dco.refuses(*comparing(home, tmp_path / "b", "--splits", 4))
    assert "is not from a stopped run" in dco.refuses(
        *comparing(home, tmp_path / "b", "--splits", 4, "--alpha", 0.2, "--resume")
    )
    resumed = dco.json(*comparing(home, tmp_path / "b", "--splits", 4, "--resume"))
    assert resumed["tables"] == whole["tables"]


def test_methods_on_the_same_rows_are_as_they_claim(dco, home, tmp_path):
    """On 0/1 loss CRC is split conformal, and BQ makes sets that are never smaller."""
    dco(*comparing(home, tmp_path / "c", "--splits", 5))
    for rows in by_method(tmp_path / "c"):
        assert rows["crc"]["mean_size"] == rows["split_cp"]["mean_size"]
        assert rows["bq"]["mean_size"] >= rows["split_cp"]["mean_size"]
        assert rows["bq"]["calibration_rows"] == rows["split_cp"]["calibration_rows"] == 160
        assert rows["dco_warmstart"]["calibration_rows"] == 80
        assert rows["dco_pac"]["coverage"] >= rows["dco_warmstart"]["coverage"]
        assert "cqr" not in rows, "no quantile model was asked for"


def test_rows_held_out_are_kept_whole_and_apart(dco, home, tmp_path):
    printed = dco(*comparing(home, tmp_path / "c", "--splits", 2, "--hold-out", "0.25")).output
    held = tmp_path / "c" / "held-out.csv"
    assert str(held) in printed
    frame, apart = pd.read_csv(home / "rows.csv"), pd.read_csv(held)
    assert len(apart) == 80
    assert list(apart.columns) == list(frame.columns)
    merged = frame.merge(apart.drop_duplicates(), how="left", indicator=True)
    assert (merged["_merge"] == "both").sum() == 80
    assert by_method(tmp_path / "c")[0]["split_cp"]["test_rows"] == 60, (
        "a quarter of the 240 rows that were left"
    )
    words = shlex.split(printed.strip().splitlines()[-1].partition(f"{held}: ")[2])
    assert words[:3] == ["dco", "fit", str(held)]
    told = dco.json(*words[1:], "--out", tmp_path / "m.dco")
    features = StoredTable.of(library.load(tmp_path / "m.dco")).layout.features
    assert set(features) == {"age", "dose", "site", "ward"}, (
        "what compare was told to drop is dropped"
    )
    assert {row["name"].split(" / ")[0] for row in told["ranking"]} == {"linear"}


def test_it_claims_no_guarantee_for_rows_in_groups(dco, home, tmp_path):
    base = (
        "compare",
        home / "rows.csv",
        "--target",
        "outcome",
        "--models",
        "linear",
        "--splits",
        1,
    )
    alone = dco(*base, "--out", tmp_path / "alone").output
    grouped = dco(*base, "--groups", "patient", "--out", tmp_path / "grouped").output
    told = "Rows come in groups (patient), and these methods count rows as if each came alone"
    assert told in grouped
    assert told in (tmp_path / "grouped" / "tables.md").read_text()
    assert "Rows come in groups" not in alone
    assert "over 1 split," in alone


def test_the_fit_that_it_recommends_can_be_pasted(dco, home, tmp_path):
    frame = pd.read_csv(home / "rows.csv").rename(
        columns={"outcome": "the outcome", "patient": "patient's no"}
    )
    frame.to_csv(tmp_path / "my rows.csv", index=False)
    level = ("--confidence", "80%", "--task", "regression", "--groups", "patient's no")
    told = json.loads(
        dco(
            *(
                "compare",
                tmp_path / "my rows.csv",
                "--target",
                "the outcome",
                "--drop",
                "grade",
                "--drop",
                "ward",
                *level,
            ),
            *(
                "--models",
                "linear",
                "--splits",
                1,
                "--hold-out",
                "0.5",
                "--out",
                tmp_path / "my folder",
                "--json",
            ),
        ).output
    )
    words = shlex.split(told["next"])
    assert words[:5] == ["dco", "fit", told["held_out"], "--target", "the outcome"]
    certificate = dco.json(*words[1:], "--out", tmp_path / "m.dco")["certificate"]
    assert certificate["calibration"]["alpha"] == 0.2
    assert "from a new group" in certificate["statement"]
    layout = StoredTable.of(library.load(tmp_path / "m.dco")).layout
    assert set(layout.features) == {"age", "dose", "site"}
