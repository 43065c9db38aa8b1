"""dco audit: an honest model passes with its rows in any order, a changed one does not."""

import json
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import dco as library


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


def forge_fingerprint(certificate: Any, role: str) -> Any:
    provenance = certificate.provenance
    forged = {**provenance.row_fingerprints, role: "0" * 32}
    return replace(certificate, provenance=replace(provenance, row_fingerprints=forged))


FORGERIES = {
    "deployed threshold": lambda honest: forge_threshold(
        honest, value=honest.thresholds[0].value / 2
    ),
    "rank": lambda honest: forge_threshold(honest, rank=honest.thresholds[0].rank - 5),
    "training rows": lambda honest: forge_fingerprint(honest, "train"),
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


def test_rows_set_aside_at_the_fit_do_not_count_as_new_rows(dco, home, tmp_path, rows, table):
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
