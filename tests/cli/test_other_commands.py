"""dco plan, evaluate, compare, audit, report, reproduce, and what all commands share."""

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dco as library
from dco.calibration import GUARANTEES
from dco.cli.spelling import spell_error
from dco.cli.tables.fitted import StoredTable
from dco.foundations.notes import Message, Note, NoteWarning
from dco.paper.records import unpacked

from .conftest import read_as_the_fit

# --- plan -----------------------------------------------------------------------------------------
# ----------------


def test_plan_prints_the_librarys_numbers(dco):
    for rows, alpha, more in (
        (2000, 0.1, {}),
        (20_000, 0.01, {}),
        (20_000, 0.01, {"spread": 0.02}),
    ):
        told = dco.json(
            "plan",
            "--rows",
            rows,
            "--alpha",
            alpha,
            *(word for name in more for word in ("--spread", more[name])),
        )
        plan = library.plan(rows, alpha=alpha, **more)
        assert told["now"]["calibrate"] == plan.calibrate
        assert told["smallest_useful_n"] == plan.smallest_useful_n
        assert told["spread"] == plan.spread
        assert [entry["n"] for entry in told["outlooks"]] == [
            rows // 4,
            rows // 2,
            rows,
            2 * rows,
            4 * rows,
        ]
    printed = dco("plan", "--rows", 20_000, "--alpha", 0.01).output
    for row in library.plan(20_000, alpha=0.01).rows:
        assert row.reason in " ".join(printed.split()), (
            "not a terminal: nothing is cut, and words are wrapped whole"
        )
    assert printed.count("o") > 5


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--alpha", "0.2", "--test", 40),
        ("--guarantee", "pac", "--delta", "0.1"),
        ("--tune-folds", 3),
        ("--candidates", 1),
    ],
)
def test_plan_ends_with_the_fit_that_deals_the_rows_so(dco, home, tmp_path, more):
    told = dco.json("plan", "--rows", 320, *more)
    assert told["fit"] in dco("plan", "--rows", 320, *more).output.strip().splitlines()[-1]
    words = told["fit"].replace("DATA.csv", str(home / "rows.csv")).replace("COLUMN", "outcome")
    words = words.replace("MODEL", "linear").replace("SCORE", "absolute").split()
    fitted = dco.json(*words[1:], "--models", "linear", "--out", tmp_path / "m.dco")
    certificate, now = fitted["certificate"], told["now"]
    rows = {role: now[role] for role in ("train", "tune", "calibrate") if now[role]}
    assert {role: count for role, count in certificate["rows"].items() if count} == rows
    facts = certificate["calibration"]
    assert (facts["alpha"], facts["delta"]) == (told["alpha"], told["delta"])
    assert (fitted["evaluation"] or {"n": 0})["n"] == now["test"]


def test_plan_draws_and_refuses_what_it_cannot_do(dco, tmp_path):
    for name, start in (("p.png", b"\x89PNG"), ("p.svg", b"<?xml")):
        dco("plan", "--rows", 500, "--plot", tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    assert "--force" in dco.refuses("plan", "--rows", 500, "--plot", tmp_path / "p.png")
    assert ".png or .svg" in dco.refuses("plan", "--rows", 500, "--plot", tmp_path / "p.gif")
    assert "too few" in dco.refuses("plan", "--rows", 5, "--alpha", "0.01")


# --- levels ---------------------------------------------------------------------------------------
# ----------------


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("plan", "0.1"),
        ("fit", "0.1"),
        ("compare", "0.1"),
        ("predict", "that of the model"),
        ("evaluate", "that of the model"),
    ],
)
def test_the_help_names_the_level_that_is_used(dco, name, default):
    said = " ".join(dco(name, "--help").output.split())
    assert (
        f"--alpha LEVEL Share of rows whose set may miss the true value. [default: {default}]"
        in said
    )


def test_a_level_given_twice_is_an_error(dco, home, tmp_path):
    twice = ("--alpha", "0.05", "--alpha", "0.2")
    model, new = home / "numbers.dco", home / "new.csv"
    for arguments in (
        ("plan", "--rows", 500),
        ("evaluate", model, new),
        ("predict", model, new, "--out", tmp_path / "s.csv"),
    ):
        assert "--alpha is given 2 times (0.05, 0.2)" in dco.refuses(*arguments, *twice)
    assert "--delta belongs to --guarantee pac" in dco.refuses(
        "plan", "--rows", 500, "--delta", "0.1"
    )
    again = ("--confidence", "0.9", "--confidence", "0.9")
    assert "--confidence is given 2 times" in dco.refuses("plan", "--rows", 500, *again)
    assert not list(tmp_path.iterdir())


# --- evaluate and audit
# -------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    """``table(frame)`` is the path of a CSV with its rows."""

    def written(frame):
        frame.to_csv(tmp_path / "t.csv", index=False)
        return tmp_path / "t.csv"

    return written


@pytest.fixture
def rows(home):
    return pd.read_csv(home / "rows.csv")


def test_evaluate_agrees_with_the_estimator(dco, home):
    for name, target in (("numbers.dco", "outcome"), ("labels.dco", "grade")):
        told = dco.json("evaluate", home / name, home / "new.csv", "--by", "site")
        estimator = library.load(home / name)
        frame = pd.read_csv(home / "new.csv")
        X = read_as_the_fit(estimator, home / "new.csv")
        wanted = estimator.evaluate(X, frame[target].to_numpy(), by=frame["site"].to_numpy())
        assert told["coverage"] == wanted.coverage
        assert told["mean_size"] == wanted.mean_size
        assert told["overall"]["consistency"]["verdict"] == wanted.consistency.verdict
        by_site = [row["coverage"] for row in told["slices"] if row["by"] == "site"]
        assert by_site == [row.coverage for row in wanted.by_group]
        printed = dco("evaluate", home / name, home / "new.csv").output
        assert f"the promise held (p = {wanted.consistency.p_value:.3g})" in printed
        assert f"{wanted.consistency.low:.4f} to {wanted.consistency.high:.4f}" in printed
        low, high = wanted.overall.coverage_low, wanted.overall.coverage_high
        assert (told["overall"]["coverage_low"], told["overall"]["coverage_high"]) == (low, high)
        assert f"{low:.4f} to {high:.4f}" in printed


def test_rows_of_the_fit_prove_nothing_and_this_is_said(dco, home, rows, new, table):
    splits = library.load(home / "numbers.dco").splits_
    tables = {
        "320 of 320": rows,
        f"{len(splits.calibrate)} of {len(splits.calibrate)}": rows.iloc[splits.calibrate],
        f"{len(splits.train)} of {len(splits.train)}": rows.iloc[splits.train],
        "240 of 440": pd.concat([new, rows.iloc[7:247]]),
    }
    for count, frame in tables.items():
        evaluate = ("evaluate", home / "numbers.dco", table(frame))
        told = dco(*evaluate)
        assert f"Note: {count} rows equal rows of the fit" in told.output
        assert told.output.count("Note: ") == 1
        assert f"none: {count} rows equal rows of the fit" in told.stdout
        assert "the promise held (" not in told.stdout
        found = dco.json(*evaluate)
        assert "prove nothing about new rows" in found["notes"][0]
        assert found["overall"]["consistency"] is None
        assert found["no_verdict"] == f"{count} rows equal rows of the fit"
    assert "of the fit" not in dco("evaluate", home / "numbers.dco", home / "new.csv").output


def test_rows_of_the_fit_among_new_rows_are_left_out(dco, home, rows, new, table):
    evaluate = ("evaluate", home / "numbers.dco")
    mixed = table(pd.concat([new, rows.iloc[7:47]]))
    told = dco(*evaluate, mixed).output
    assert told.count("Note: 40 of 240 rows equal rows of the fit") == 1
    found, expected = dco.json(*evaluate, mixed), dco.json(*evaluate, home / "new.csv")
    assert (found["left_out"], found["n"]) == (40, 200)
    assert found["overall"] == expected["overall"]


def test_evaluate_can_ask_for_the_other_guarantee(dco, home):
    model, new = home / "numbers.dco", home / "new.csv"
    plain = dco.json("evaluate", model, new)
    told = dco.json(
        "evaluate", model, new, "--guarantee", "pac", "--delta", "0.2", "--alpha", "0.2"
    )
    assert (plain["alpha"], plain["guarantee"], plain["delta"]) == (0.1, "marginal", None)
    assert (told["alpha"], told["guarantee"], told["delta"]) == (0.2, "pac", 0.2)
    n = told["overall"]["consistency"]["n_cal"]
    assert told["overall"]["consistency"]["rank"] == library.pac_rank(n, alpha=0.2, delta=0.2)
    printed = dco("evaluate", model, new, "--guarantee", "pac").output
    assert "200 rows of" in printed
    assert "pac guarantee, alpha = 0.1, delta = 0.05" in printed
    assert "with probability at least" not in printed, "the sentence is that of another guarantee"
    assert plain["statement"] == library.load(model).certificate_.statement
    assert told["statement"] is None, "the model's sentence is that of another guarantee"
    assert "--delta belongs to --guarantee pac" in dco.refuses(
        "evaluate", model, new, "--delta", "0.2"
    )


def test_groups_with_thresholds_of_their_own_get_a_verdict(dco, home, tmp_path):
    model, new = tmp_path / "m.dco", home / "new.csv"
    fit = ("fit", home / "rows.csv", "--models", "linear", "--out", model, "--force", "--target")
    for target, condition in (("outcome", "site"), ("grade", "grade")):
        printed = dco(*fit, target, "--condition-on", condition, "--by", condition).output
        assert "the guarantee holds in each" in printed, (
            "rows set aside by the groups of the thresholds"
        )
        for by in ((), ("--by", condition)):
            printed = dco("evaluate", model, new, *by).output
            assert "each has its own threshold; the guarantee holds in each" in printed
            assert "says nothing" not in printed
            rows = dco.json("evaluate", model, new, *by)["by_condition"]
            assert len(rows) == 3
            for row in rows:
                assert f"{row['consistency']['expected_coverage']:.4f}" in printed
                assert f"held (p = {row['consistency']['p_value']:.3g})" in printed
    printed = dco("evaluate", model, new, "--by", "site").output
    assert (
        "the guarantee is for the conditions of the model, and says nothing about these" in printed
    )
    printed = dco("evaluate", home / "numbers.dco", new, "--by", "site").output
    assert (
        "By site (the guarantee is for all rows together and says nothing about a single value)"
        in printed
    )
    assert printed.count("verdict") == 1


def test_a_column_with_many_values_does_not_flood_the_terminal(dco, home, new, table):
    new["dose"] = np.arange(len(new)) // 2  # 100 values
    new.loc[:9, "dose"] = 0
    evaluate = ("evaluate", home / "numbers.dco", table(new), "--by", "dose")
    told = dco(*evaluate).output
    slices = dco.json(*evaluate)["slices"]
    assert len([row for row in slices if row["by"] == "dose"]) == 96
    assert "and 66 more, none with more rows" in told
    assert [line.split()[:2] for line in told.splitlines()].count(["0", "10"]) == 1, (
        "the largest group is shown"
    )
    assert len(told.splitlines()) < 75


def test_evaluate_counts_labels_that_the_fit_does_not_know(dco, home, new, table):
    new.loc[:4, "grade"] = "unheard of"
    evaluate = ("evaluate", home / "labels.dco", table(new), "--ignore-new")
    told = json.loads(dco(*evaluate, "--json").stdout)
    overall = told["overall"]
    assert (overall["unknown_labels"], overall["consistency"]["n_test"]) == (5, 200)
    assert overall["consistency"]["coverage"] == told["coverage"]
    assert (
        "5 of 200 rows have labels that are not in classes_ ('unheard of': 5)" in told["notes"][0]
    )
    printed = " ".join(dco(*evaluate).stdout.split())
    assert "rows with unknown labels 5" in printed


def test_evaluate_ends_with_the_verdict_and_can_stop_a_pipeline(dco, home, new, table):
    """Rows whose outcomes lie far outside the sets: the promise did not hold, whatever the share
    asked for.
    """
    held = dco("evaluate", home / "numbers.dco", home / "new.csv", "--fail-below", "0.5").stdout
    assert held.strip().splitlines()[-1].startswith("The promise held on these rows: ")
    new["outcome"] += 1000 * (np.arange(len(new)) % 3 == 0)
    shifted = table(new)
    printed = dco("evaluate", home / "numbers.dco", shifted).stdout
    assert "The promise did not hold on these rows: " in printed
    assert "calibrate again on rows like these" in printed
    assert (
        "is below --fail-below 0.9."
        in dco("evaluate", home / "numbers.dco", shifted, "--fail-below", "0.9", status=1).stdout
    )
    told = dco.json("evaluate", home / "numbers.dco", shifted, "--fail-below", "0.9", status=1)
    assert told["verdict"] == "failed"
    assert dco.json("evaluate", home / "numbers.dco", home / "rows.csv")["verdict"] == "unchecked"


def test_other_rows_fail_the_audit(dco, home, rows, table):
    estimator = library.load(home / "numbers.dco")
    rows.loc[estimator.splits_.calibrate[0], "outcome"] += 1
    failed = dco.json("audit", home / "numbers.dco", "--data", table(rows), status=1)
    assert {check["name"] for check in failed["checks"] if not check["holds"]} >= {
        "calibration fingerprint",
        "scores",
    }


def forge_threshold(certificate: Any, **changes: Any) -> Any:
    facts = certificate.calibration
    (threshold,) = facts.thresholds
    forged = replace(facts, thresholds=(replace(threshold, **changes),))
    return replace(certificate, calibration=forged)


FORGERIES = {
    "deployed threshold": lambda honest: forge_threshold(
        honest, value=honest.thresholds[0].value / 2
    ),
    "rank": lambda honest: forge_threshold(honest, rank=honest.thresholds[0].rank - 5),
    "training rows": lambda honest: replace(
        honest, row_fingerprints={**honest.row_fingerprints, "train": "0" * 32}
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_certificate_fails_the_audit(dco, home, tmp_path, name):
    estimator = library.load(home / "numbers.dco")
    honest = estimator.predictor_
    forged = FORGERIES[name](honest.certificate)
    estimator.predictor_ = replace(honest, certificate=forged)
    library.save(estimator, tmp_path / "forged.dco")
    told = dco("audit", tmp_path / "forged.dco", "--data", home / "rows.csv", status=1).output
    assert f"FAILS  {name}" in told


@pytest.mark.parametrize("model", ["numbers.dco", "labels.dco"])
def test_an_honest_model_passes_its_audit_with_rows_in_any_order(
    dco, home, rows, new, table, model
):
    calibrate = library.load(home / model).splits_.calibrate
    order, more = (
        "are in another order than",
        "has rows besides those of the fit; the calibration rows were found",
    )
    tables = [
        (rows, None),
        (rows.sample(frac=1, random_state=1), order),
        (pd.concat([rows, new]), more),
    ]
    for frame, said in (*tables, (rows.iloc[calibrate[::-1]], None)):
        audit = ("audit", home / model, "--data", table(frame))
        printed, told = dco(*audit).output, dco.json(*audit)
        assert told["holds"]
        assert told["verdict"] == "Everything that was recomputed holds."
        assert told["verdict"] in printed
        checks = {check["name"] for check in told["checks"]}
        assert {"calibration fingerprint", "scores", "threshold"} <= checks
        if len(frame) >= len(rows):
            assert said in told["found"] if said else told["found"] is None
            assert {"training rows", "tuning rows"} <= checks
            assert not any(name.endswith((".train", ".tune")) for name in told["unchecked"])
        for sentence in (order, more):
            assert (sentence in printed) == (sentence == said)


def test_training_and_tuning_rows_that_have_changed_fail_the_audit(dco, home, rows, table):
    splits = library.load(home / "numbers.dco").splits_
    for role, word in (("train", "training"), ("tune", "tuning")):
        for places in (splits[role], splits[role][:1]):
            changed = rows.copy()
            changed.loc[places, "outcome"] += 1
            told = dco("audit", home / "numbers.dco", "--data", table(changed), status=1).output
            printed = " ".join(told.split())  # cells are wrapped
            assert f"FAILS {word} rows" in printed
            assert f"its {word} rows have changed" in printed
            assert f"{len(places)} of {len(splits[role])} are not in" in printed
            others = "1 row that is" if len(places) == 1 else f"{len(places)} rows that are"
            assert f"which has at least {others} not of the fit" in printed


def test_a_role_without_rows_is_not_listed_as_unchecked(dco, home, tmp_path):
    dco(
        *(
            "fit",
            home / "rows.csv",
            "--target",
            "outcome",
            "--models",
            "linear",
            "--scores",
            "absolute",
        ),
        *("--tune-size", 0, "--out", tmp_path / "m.dco"),
    )
    for data in ((), ("--data", home / "rows.csv")):
        told = dco.json("audit", tmp_path / "m.dco", *data)
        assert told["holds"]
        assert "rows.tune" not in told["unchecked"]
        assert ("rows.train" in told["unchecked"]) == (not data)


def test_rows_that_are_missing_are_said_to_be_missing(dco, home, rows, table):
    splits, audit = (
        library.load(home / "numbers.dco").splits_,
        ("audit", home / "numbers.dco", "--data"),
    )
    path = table(rows.drop(index=splits.train[:7]))
    printed = dco(*audit, path).output
    assert (
        f"Rows of the fit are missing from {path} (7 training); all calibration rows were found"
        in printed
    )
    assert "another order" not in printed
    assert "lacks some of the rows: rows.train, row_fingerprints.train." in printed
    assert (
        "(2 calibration)."
        in dco(*audit, table(rows.drop(index=splits.calibrate[:2])), status=1).output
    )


def test_rows_set_aside_at_the_fit_do_not_count_as_strangers(dco, home, tmp_path, rows, table):
    model = tmp_path / "m.dco"
    dco(
        "fit",
        home / "rows.csv",
        "--target",
        "outcome",
        "--models",
        "linear",
        "--test-size",
        "60",
        "--out",
        model,
    )
    assert dco.json("audit", model, "--data", home / "rows.csv")["holds"]
    fitted = library.load(model)
    places = fitted.table_["fitted_rows"][fitted.splits_.train][:3]
    assert "(3 training)" in dco("audit", model, "--data", table(rows.drop(index=places))).output
    rows.loc[places, "age"] = 1.0
    assert "FAILS  training rows" in dco("audit", model, "--data", table(rows), status=1).output


def test_another_table_is_said_to_be_another_table(dco, home, rows, table):
    for path in (home / "new.csv", table(rows.iloc[::-1].assign(dose=1.0))):
        printed = dco("audit", home / "numbers.dco", "--data", path, status=1).output
        assert "is not the table of the fit, or its rows or their order have changed" in printed
        assert "The certificate does not hold" not in printed


def test_a_certificate_can_be_audited_by_itself(dco, home, tmp_path):
    copy, text = tmp_path / "copy.json", library.load(home / "numbers.dco").certificate_.to_json()
    copy.write_text(text)
    told = dco.json("audit", copy)
    assert told["holds"]
    assert {"seed", "versions", "row_fingerprints.train"} <= set(told["unchecked"])
    assert "Not checked without the predictor: " in dco("audit", copy).output
    for true, edited, said in (
        ("at least 90 %", "at least 99 %", "FAILS  statement"),
        ('"rank": ', '"rank": 1', "FAILS"),
    ):
        copy.write_text(text.replace(true, edited))
        assert said in dco("audit", copy, status=1).output


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"format": 2}', b"\xff\xfe\x00"])
def test_what_is_no_certificate_is_named(dco, tmp_path, text):
    (tmp_path / "c.json").write_bytes(text)
    told = dco.refuses("audit", tmp_path / "c.json")
    assert told.startswith(f"Error: {tmp_path / 'c.json'}")
    assert told.endswith("Give what `dco fit --certificate` wrote.")


def test_a_copy_is_checked_against_the_model(dco, home, tmp_path):
    copy = tmp_path / "copy.json"
    text = library.load(home / "numbers.dco").certificate_.to_json()
    copy.write_text(text)
    arguments = ("audit", home / "numbers.dco", "--data", home / "rows.csv", "--certificate", copy)
    assert dco.json(*arguments)["unchecked"] == {}
    copy.write_text(text.replace('"seed": 3', '"seed": 4'))
    assert "the certificate says 4, the predictor's own says 3" in " ".join(
        dco(*arguments, status=1).output.split()
    )
    assert "give the model file" in dco.refuses("audit", copy, "--data", home / "rows.csv")


def test_fit_writes_a_certificate_to_keep_elsewhere(dco, home, tmp_path):
    copy, model = tmp_path / "kept.json", tmp_path / "m.dco"
    fit = (
        "fit",
        home / "rows.csv",
        "--target",
        "outcome",
        "--drop",
        "grade",
        "--models",
        "linear",
        "--out",
        model,
    )
    printed = dco.json(*fit, "--certificate", copy)
    assert library.Certificate.from_json(copy.read_text()) == library.load(model).certificate_
    (tmp_path / "fit.json").write_text(json.dumps(printed))
    for kept in (copy, tmp_path / "fit.json"):
        assert dco.json("audit", kept)["holds"]
        told = dco.json("audit", model, "--certificate", kept)
        assert told["holds"]
        assert set(told["unchecked"]) == {"calibration rows", "fitted model"}
    (tmp_path / "fit.json").write_text(
        json.dumps(printed).replace("at least 90 %", "at least 99 %")
    )
    assert (
        "FAILS  statement"
        in dco("audit", model, "--certificate", tmp_path / "fit.json", status=1).output
    )

    fresh = (*fit[:-1], tmp_path / "n.dco", "--certificate")
    assert "--force" in dco.refuses(*fresh, copy)
    again = ("recalibrate", model, home / "new.csv", "--out", tmp_path / "n.dco", "--certificate")
    for writing in (fresh, again):
        assert "--out and --certificate both name" in dco.refuses(*writing, tmp_path / "n.dco")
    assert not (tmp_path / "n.dco").exists()
    assert f"Wrote {copy}." in dco(*fit, "--certificate", copy, "--force").output


# --- compare --------------------------------------------------------------------------------------
# ----------------


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


def test_no_processes_are_refused_before_a_folder_is_made(dco, home, tmp_path):
    assert "'--jobs': 0 processes can do nothing" in dco.refuses(
        *comparing(home, tmp_path / "out", "--jobs", 0)
    )
    assert "'--jobs': 0 processes" in dco.refuses(
        "reproduce", "table-1", "--jobs", 0, "--out", tmp_path / "out"
    )
    assert not (tmp_path / "out").exists()


def by_method(out):
    """The rows of each split, by method."""
    lines = filter(str.strip, (out / "records.jsonl").read_text().splitlines())
    return [{row["method"]: row for row in unpacked(json.loads(line)["rows"])} for line in lines]


def test_compare_puts_like_beside_like_and_ends_with_the_warning(dco, home, tmp_path):
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


def test_compare_resumes_with_the_same_result(dco, home, tmp_path):
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


def test_compare_claims_no_guarantee_for_rows_in_groups(dco, home, tmp_path):
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


def test_the_command_that_compare_recommends_can_be_pasted(dco, home, tmp_path):
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


# --- report and reproduce
# -----------------------------------------------------------------------------------------


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
    for option in (
        "--by x",
        "--target x",
        "--ignore-new",
        "--data x.csv",
        "--decimal ,",
        "--trust x",
    ):
        told = dco.refuses("report", tmp_path / "r", *option.split(), "--out", tmp_path / "s.html")
        assert f"{option.split()[0]} belongs to a model" in told


def test_reproduce_lists_what_there_is(dco):
    listed = dco.json("reproduce")["experiments"]
    assert "diabetes" in {entry["name"] for entry in listed}
    assert all(isinstance(entry["minutes"], (int, float)) for entry in listed)
    assert "no experiment 'table-99'" in dco.refuses("reproduce", "table-99")


# --- all commands
# -------------------------------------------------------------------------------------------------


def test_output_that_is_not_a_terminal_is_never_cut(home):
    command = [
        sys.executable,
        "-m",
        "dco",
        "evaluate",
        str(home / "numbers.dco"),
        str(home / "new.csv"),
        "--by",
        "site",
    ]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "40"}
    )
    assert max(map(len, run.stdout.splitlines())) > 60
    assert "…" not in run.stdout
    assert run.stderr == ""


def test_control_characters_of_a_table_do_not_reach_the_terminal(dco, home, tmp_path):
    frame = pd.read_csv(home / "new.csv")
    frame["site"] = np.where(frame["site"] == "north", "\x1b[31mred\x1b[0m", "[bold]plain[/bold]")
    frame.to_csv(tmp_path / "x.csv", index=False)
    printed = dco("evaluate", home / "numbers.dco", tmp_path / "x.csv", "--by", "site").output
    assert "\x1b" not in printed
    assert "[bold]plain[/bold]" in printed


def test_every_error_of_a_process_is_a_sentence_and_status_2(home, tmp_path):
    words = ("predict", home / "rows.csv", home / "new.csv", "--out", tmp_path / "s.csv")
    run = subprocess.run(
        [sys.executable, "-m", "dco", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert run.stderr.startswith("Error: ")


def test_an_unwritable_folder_is_told(dco, home, tmp_path, monkeypatch):
    # root may write anywhere
    monkeypatch.setattr(os, "access", lambda path, mode, **options: not mode & os.W_OK)
    told = dco.refuses(
        "predict", home / "numbers.dco", home / "new.csv", "--out", tmp_path / "s.csv"
    )
    assert "cannot be written to" in told


@pytest.mark.parametrize(
    ("typed", "meant"), [("fti", "fit"), ("predcit", "predict"), ("FIT", "fit")]
)
def test_a_misspelt_command_is_answered_with_the_nearest(dco, typed, meant):
    assert f"There is no command '{typed}'; did you mean `dco {meant}`?" in dco.refuses(typed, "x")
    assert "there are plan, fit, predict" in dco.refuses("xyzzy")


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("Pass ⟨calibrate_size=29⟩.", "Pass --calibrate-size 29."),
        (
            "raise ⟨tune_size⟩, or ⟨tune_folds=5⟩, with",
            "raise --tune-size, or --tune-folds 5, with",
        ),
        ("⟨groups=⟩ and ⟨condition_on=⟩ cannot", "--groups and --condition-on cannot"),
        ('⟨guarantee="pac"⟩ or ⟨tune_size=0.25⟩.', "--guarantee pac or --tune-size 0.25."),
        ("from ⟨models=dco.models.QuantilePair(model)⟩.", "from --models quantiles."),
        ("data/groups=7/tune_size.csv is empty", "data/groups=7/tune_size.csv is empty"),
    ],
)
def test_parameters_of_the_library_are_spelled_as_options(sentence, told):
    assert spell_error(ValueError(Message(sentence))) == told
    assert spell_error(NoteWarning(Note("kind", "A note.", Message(sentence)))) == f"A note. {told}"


def test_every_registered_rule_is_offered_as_a_guarantee(dco, monkeypatch):
    monkeypatch.setitem(GUARANTEES, "toy", GUARANTEES["pac"])
    assert "[marginal|pac|toy]" in dco("evaluate", "--help").output
    assert "'other' is not one of 'marginal', 'pac', 'toy'" in dco.refuses(
        "plan", "--rows", 500, "--guarantee", "other"
    )
    assert dco.json("plan", "--rows", 500, "--guarantee", "pac", "--delta", "0.1")["delta"] == 0.1


def test_a_process_without_output_streams_does_its_work(home, tmp_path):
    command = [
        sys.executable,
        "-m",
        "dco",
        "predict",
        str(home / "numbers.dco"),
        str(home / "new.csv"),
        "--out",
        "s.csv",
    ]
    shell = f"{shlex.join(command)} >&- 2>&-"
    assert subprocess.run(["sh", "-c", shell], cwd=tmp_path, check=False).returncode == 0
    assert (tmp_path / "s.csv").exists()


def test_a_refusal_of_the_disk_is_a_sentence(dco, monkeypatch):
    def refused(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr("dco.cli.plan.print_json", refused)
    told = dco.refuses("plan", "--rows", 500, "--json")
    assert (
        told
        == "Error: The disk refused to read or write: File too large. Solve this, then run again."
    )


def test_a_page_is_not_written_under_the_name_of_another_format(dco, home, tmp_path):
    told = dco.refuses("report", home / "numbers.dco", "--out", tmp_path / "report.pdf")
    assert "report.pdf must end in .html" in told
    assert list(tmp_path.iterdir()) == []


def test_the_target_of_the_fit_may_stay_beside_another_column_of_true_values(dco, home, tmp_path):
    frame = pd.read_csv(home / "new.csv")
    frame.assign(measured=frame["outcome"], outcome=0.0).to_csv(tmp_path / "x.csv", index=False)
    own = dco.json("evaluate", home / "numbers.dco", home / "new.csv")
    other = dco.json("evaluate", home / "numbers.dco", tmp_path / "x.csv", "--target", "measured")
    assert other["coverage"] == own["coverage"]
    frame.drop(columns="outcome").to_csv(tmp_path / "x.csv", index=False)
    assert "no column 'outcome'" in dco.refuses(
        "evaluate", home / "numbers.dco", tmp_path / "x.csv"
    )


def test_one_row_is_counted_as_one(dco, home, tmp_path):
    pd.read_csv(home / "new.csv").head(1).to_csv(tmp_path / "one.csv", index=False)
    assert "1 row of" in dco("evaluate", home / "numbers.dco", tmp_path / "one.csv").output
    told = dco(
        "predict", home / "numbers.dco", tmp_path / "one.csv", "--out", tmp_path / "s.csv"
    ).output
    assert "Wrote the set of 1 row to" in told


@pytest.mark.parametrize(
    "arguments",
    [("plan", "--rows", "500"), ("plan", "--rows", "500", "--json"), ("plan", "--help")],
)
def test_a_reader_that_has_gone_is_no_error(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "dco", *arguments]
    run = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (run.returncode, run.stderr) == (141, "")


def test_commands_leave_the_cores_to_one_pool_of_threads():
    """Two pools with a thread for each core, waiting awake, took eight times the CPU time on a busy
    machine.
    """
    script = (
        "import dco.cli.main, json, os, numpy, scipy.linalg, sklearn.ensemble\n"
        "from threadpoolctl import threadpool_info\n"
        "pools = [pool['num_threads'] for pool in threadpool_info() if pool['user_api'] == "
        "'blas']\n"
        "print(json.dumps([pools, os.environ['OMP_WAIT_POLICY'], "
        "os.environ['OPENBLAS_NUM_THREADS']]))"
    )
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY")
    plain = {name: value for name, value in os.environ.items() if name not in names}
    for given, wait, blas in (
        ({}, "PASSIVE", "1"),
        ({"OMP_WAIT_POLICY": "ACTIVE", "OPENBLAS_NUM_THREADS": "2"}, "ACTIVE", "2"),
    ):
        command = [sys.executable, "-c", script]
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=plain | given)
        pools, *found = json.loads(run.stdout)
        assert found == [wait, blas], "what the user has set stays"
        assert pools
        assert max(pools) <= int(blas)
