"""dco audit: an honest model passes with its rows in any order, a changed one does not."""

import json
from dataclasses import replace

import pandas as pd
import pytest

import dco as library

HOLDS = "Everything that was recomputed holds."
OTHER_ORDER = "are in another order than"
MORE_ROWS = "has rows besides those of the fit; the calibration rows were found"


def unwrapped(printed):
    """What was printed, on one line."""
    return " ".join(printed.split())


@pytest.fixture
def numbers(home):
    return library.load(home / "numbers.dco")


@pytest.fixture
def audit(home, table):
    """``audit(frame)``: an audit with these rows, as words of the command line."""

    def words(frame, model="numbers.dco"):
        return ("audit", home / model, "--data", table(frame))

    return words


# --- honest models --------------------------------------------------------------------------------


def in_order(rows, new):
    return rows


def in_another_order(rows, new):
    return rows.sample(frac=1, random_state=1)


def with_more_rows(rows, new):
    return pd.concat([rows, new])


ALL_ROWS = [(in_order, None), (in_another_order, OTHER_ORDER), (with_more_rows, MORE_ROWS)]


@pytest.mark.parametrize(("arrange", "remark"), ALL_ROWS)
@pytest.mark.parametrize("model", ["numbers.dco", "labels.dco"])
def test_an_honest_model_passes_with_its_rows_in_any_order(
    dco, audit, rows, new, model, arrange, remark
):
    result = dco.json(*audit(arrange(rows, new), model))
    assert result["holds"]
    assert result["verdict"] == HOLDS
    if remark is None:
        assert result["found"] is None
    else:
        assert remark in result["found"]


@pytest.mark.parametrize(("arrange", "remark"), ALL_ROWS)
def test_the_verdict_and_the_order_of_the_rows_are_printed(dco, audit, rows, new, arrange, remark):
    printed = dco(*audit(arrange(rows, new))).output
    remarks = [text for text in (OTHER_ORDER, MORE_ROWS) if text in printed]
    assert HOLDS in printed
    assert remarks == ([] if remark is None else [remark])


@pytest.mark.parametrize(("arrange", "remark"), ALL_ROWS)
def test_all_roles_are_checked_where_all_rows_are_there(dco, audit, rows, new, arrange, remark):
    result = dco.json(*audit(arrange(rows, new)))
    checks = {check["name"] for check in result["checks"]}
    assert {"calibration fingerprint", "scores", "threshold"} <= checks
    assert {"training rows", "tuning rows"} <= checks
    assert [name for name in result["unchecked"] if name.endswith((".train", ".tune"))] == []


def test_calibration_rows_are_enough(dco, audit, rows, numbers):
    backwards = rows.iloc[numbers.splits_.calibrate[::-1]]
    result = dco.json(*audit(backwards))
    checks = {check["name"] for check in result["checks"]}
    assert result["holds"]
    assert {"calibration fingerprint", "scores", "threshold"} <= checks


@pytest.fixture
def fit(home, tmp_path):
    """A fit of the linear model, as words of the command line."""
    words = ("fit", home / "rows.csv", "--target", "outcome", "--models", "linear")
    return (*words, "--out", tmp_path / "m.dco")


@pytest.mark.parametrize(
    ("has_data", "unchecked"),
    [(False, ["rows.train"]), (True, [])],
    ids=["without data", "with data"],
)
def test_a_role_without_rows_is_not_listed_as_unchecked(
    dco, home, tmp_path, fit, has_data, unchecked
):
    dco(*fit, "--scores", "absolute", "--tune-size", 0)
    data = ("--data", home / "rows.csv") if has_data else ()
    result = dco.json("audit", tmp_path / "m.dco", *data)
    roles = [name for name in result["unchecked"] if name in ("rows.train", "rows.tune")]
    assert result["holds"]
    assert roles == unchecked


# --- forged models --------------------------------------------------------------------------------


def forge_threshold(certificate, **changes):
    facts = certificate.calibration
    (threshold,) = facts.thresholds
    forged = replace(facts, thresholds=(replace(threshold, **changes),))
    return replace(certificate, calibration=forged)


def halve_the_threshold(certificate):
    return forge_threshold(certificate, value=certificate.thresholds[0].value / 2)


def lower_the_rank(certificate):
    return forge_threshold(certificate, rank=certificate.thresholds[0].rank - 5)


def forge_training_rows(certificate):
    provenance = certificate.provenance
    forged = {**provenance.row_fingerprints, "train": "0" * 32}
    return replace(certificate, provenance=replace(provenance, row_fingerprints=forged))


@pytest.mark.parametrize(
    ("forge", "check"),
    [
        (halve_the_threshold, "deployed threshold"),
        (lower_the_rank, "rank"),
        (forge_training_rows, "training rows"),
    ],
)
def test_a_forged_certificate_fails(dco, home, tmp_path, numbers, forge, check):
    honest = numbers.predictor_
    numbers.predictor_ = replace(honest, certificate=forge(honest.certificate))
    library.save(numbers, tmp_path / "forged.dco")
    words = ("audit", tmp_path / "forged.dco", "--data", home / "rows.csv")
    assert f"FAILS  {check}" in dco(*words, status=1).output


# --- rows that have changed -----------------------------------------------------------------------


def test_calibration_rows_that_have_changed_fail(dco, audit, rows, numbers):
    rows.loc[numbers.splits_.calibrate[0], "outcome"] += 1
    result = dco.json(*audit(rows), status=1)
    failed = {check["name"] for check in result["checks"] if not check["holds"]}
    assert {"calibration fingerprint", "scores"} <= failed


@pytest.mark.parametrize("role", ["train", "tune"])
@pytest.mark.parametrize("is_changed", [slice(1), slice(None)], ids=["one row", "all rows"])
def test_other_rows_of_the_fit_that_have_changed_fail(dco, audit, rows, numbers, role, is_changed):
    positions = numbers.splits_[role]
    changed = positions[is_changed]
    rows.loc[changed, "outcome"] += 1

    printed = unwrapped(dco(*audit(rows), status=1).output)

    word = {"train": "training", "tune": "tuning"}[role]
    others = "1 row that is" if len(changed) == 1 else f"{len(changed)} rows that are"
    assert f"FAILS {word} rows" in printed
    assert f"its {word} rows have changed" in printed
    assert f"{len(changed)} of {len(positions)} are not in" in printed
    assert f"which has at least {others} not of the fit" in printed


def test_training_rows_that_are_missing_are_counted(dco, audit, rows, numbers):
    words = audit(rows.drop(index=numbers.splits_.train[:7]))
    printed = dco(*words).output
    path = words[-1]
    assert (
        f"Rows of the fit are missing from {path} (7 training); all calibration rows were found"
        in printed
    )
    assert "lacks some of the rows: rows.train, row_fingerprints.train." in printed
    assert OTHER_ORDER not in printed


def test_calibration_rows_that_are_missing_fail(dco, audit, rows, numbers):
    words = audit(rows.drop(index=numbers.splits_.calibrate[:2]))
    assert "(2 calibration)." in dco(*words, status=1).output


@pytest.fixture
def with_test_rows(dco, tmp_path, fit):
    """A model whose fit kept 60 rows to evaluate on, and the rows of its table that trained."""
    dco(*fit, "--test-size", "60")
    model = library.load(tmp_path / "m.dco")
    return tmp_path / "m.dco", model.table_["fitted_rows"][model.splits_.train]


def test_test_rows_do_not_count_as_new_rows(dco, home, with_test_rows):
    model, _ = with_test_rows
    assert dco.json("audit", model, "--data", home / "rows.csv")["holds"]


def test_training_rows_that_are_missing_beside_test_rows_are_counted(
    dco, rows, table, with_test_rows
):
    model, train = with_test_rows
    data = table(rows.drop(index=train[:3]))
    assert "(3 training)" in dco("audit", model, "--data", data).output


def test_training_rows_that_have_changed_beside_test_rows_fail(dco, rows, table, with_test_rows):
    model, train = with_test_rows
    rows.loc[train[:3], "age"] = 1.0
    printed = dco("audit", model, "--data", table(rows), status=1).output
    assert "FAILS  training rows" in printed


def new_rows(rows, new):
    return new


def rows_with_another_dose(rows, new):
    return rows.iloc[::-1].assign(dose=1.0)


@pytest.mark.parametrize("make", [new_rows, rows_with_another_dose])
def test_another_table_is_said_to_be_another_table(dco, audit, rows, new, make):
    printed = dco(*audit(make(rows, new)), status=1).output
    assert "is not the table of the fit, or its rows or their order have changed" in printed
    assert "The certificate does not hold" not in printed


# --- certificates by themselves -------------------------------------------------------------------


@pytest.fixture
def text(numbers):
    """The certificate of numbers.dco as JSON."""
    return numbers.certificate_.to_json()


@pytest.fixture
def copy(tmp_path, text):
    """A file with this certificate."""
    (tmp_path / "copy.json").write_text(text)
    return tmp_path / "copy.json"


def test_a_certificate_can_be_audited_by_itself(dco, copy):
    result = dco.json("audit", copy)
    assert result["holds"]
    assert {"seed", "versions", "row_fingerprints.train"} <= set(result["unchecked"])
    assert "Not checked without the predictor: " in dco("audit", copy).output


@pytest.mark.parametrize(
    ("true", "edited", "failure"),
    [
        ("at least 90 %", "at least 99 %", "FAILS  statement"),
        ('"rank": ', '"rank": 1', "FAILS"),
    ],
    ids=["statement", "rank"],
)
def test_an_edited_certificate_fails(dco, copy, text, true, edited, failure):
    copy.write_text(text.replace(true, edited))
    assert failure in dco("audit", copy, status=1).output


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"format": 2}', b"\xff\xfe\x00"],
    ids=["empty", "a list", "an object", "another format", "no text"],
)
def test_what_is_no_certificate_is_named(dco, tmp_path, content):
    (tmp_path / "c.json").write_bytes(content)
    message = dco.refuses("audit", tmp_path / "c.json")
    assert message.startswith(f"Error: {tmp_path / 'c.json'}")
    assert message.endswith("Give what `dco fit --certificate` wrote.")


def test_a_copy_of_a_certificate_leaves_nothing_unchecked(dco, audit, rows, copy):
    assert dco.json(*audit(rows), "--certificate", copy)["unchecked"] == {}


def test_a_copy_is_checked_against_the_model(dco, audit, rows, copy, text):
    copy.write_text(text.replace('"seed": 3', '"seed": 4'))
    printed = dco(*audit(rows), "--certificate", copy, status=1).output
    assert "the certificate says 4, the predictor's own says 3" in unwrapped(printed)


def test_a_certificate_alone_is_not_audited_with_data(dco, home, copy):
    message = dco.refuses("audit", copy, "--data", home / "rows.csv")
    assert "give the model file" in message


# --- certificates that a fit writes ---------------------------------------------------------------


@pytest.fixture
def certificate(dco, tmp_path, fit):
    """The certificate that a fit of m.dco wrote."""
    dco(*fit, "--certificate", tmp_path / "kept.json")
    return tmp_path / "kept.json"


@pytest.fixture
def printed_certificate(dco, tmp_path, fit):
    """What a fit of m.dco printed as JSON, which has the certificate."""
    printed = dco.json(*fit)
    (tmp_path / "fit.json").write_text(json.dumps(printed))
    return tmp_path / "fit.json"


def test_a_fit_writes_its_certificate(tmp_path, certificate):
    model = library.load(tmp_path / "m.dco")
    assert library.Certificate.from_json(certificate.read_text()) == model.certificate_


@pytest.mark.parametrize("name", ["certificate", "printed_certificate"])
def test_either_certificate_can_be_audited(request, dco, tmp_path, name):
    path = request.getfixturevalue(name)
    result = dco.json("audit", tmp_path / "m.dco", "--certificate", path)
    assert result["holds"]
    assert set(result["unchecked"]) == {"calibration rows", "fitted model"}
    assert dco.json("audit", path)["holds"]


def test_an_edited_certificate_fails_beside_its_model(dco, tmp_path, printed_certificate):
    text = printed_certificate.read_text()
    printed_certificate.write_text(text.replace("at least 90 %", "at least 99 %"))
    words = ("audit", tmp_path / "m.dco", "--certificate", printed_certificate)
    assert "FAILS  statement" in dco(*words, status=1).output


def test_a_certificate_is_replaced_on_request_alone(dco, fit, tmp_path, certificate):
    other_model = ("--out", tmp_path / "n.dco", "--certificate", certificate)
    assert "--force" in dco.refuses(*fit, *other_model)
    assert not (tmp_path / "n.dco").exists()
    assert f"Wrote {certificate}." in dco(*fit, *other_model, "--force").output


@pytest.mark.parametrize("command", ["fit", "recalibrate"])
def test_a_model_and_its_certificate_are_two_files(dco, home, tmp_path, fit, command):
    words = {
        "fit": fit,
        "recalibrate": ("recalibrate", home / "numbers.dco", home / "new.csv"),
    }[command]
    out = tmp_path / "n.dco"
    message = dco.refuses(*words, "--out", out, "--certificate", out)
    assert "--out and --certificate both name" in message
    assert not out.exists()
