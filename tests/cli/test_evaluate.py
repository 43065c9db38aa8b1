"""dco evaluate: the estimator's numbers, a verdict, and no verdict where nothing is proved."""

import numpy as np
import pandas as pd
import pytest

import dco as library

from .conftest import read_as_the_fit

MODELS = {"numbers.dco": "outcome", "labels.dco": "grade"}


@pytest.fixture(params=MODELS)
def both(request, dco, home):
    """What the command tells and prints, and what the estimator says of the same rows."""
    model, new = home / request.param, home / "new.csv"
    estimator, frame = library.load(model), pd.read_csv(new)
    evaluation = estimator.evaluate(
        read_as_the_fit(estimator, new), frame[MODELS[request.param]].to_numpy(), by=frame["site"]
    )
    told = dco.json("evaluate", model, new, "--by", "site")
    return told, dco("evaluate", model, new).output, evaluation


def test_it_agrees_with_the_estimator(both):
    told, _, evaluation = both
    assert told["coverage"] == evaluation.coverage
    assert told["mean_size"] == evaluation.mean_size
    assert told["verdict"] == evaluation.verdict
    assert told["overall"]["coverage_low"] == evaluation.overall.coverage_low
    by_site = [row["coverage"] for row in told["slices"] if row["by"] == "site"]
    assert by_site == [row.coverage for row in evaluation.slices_by("site")]


def test_it_prints_intervals_and_the_verdict(both):
    _, printed, evaluation = both
    test, overall = evaluation.consistency, evaluation.overall
    assert f"the promise held (p = {test.p_value:.3g})" in printed
    assert f"{test.low:.4f} to {test.high:.4f}" in printed
    assert f"{overall.coverage_low:.4f} to {overall.coverage_high:.4f}" in printed


# --- rows of the fit ------------------------------------------------------------------------------


@pytest.fixture
def rows_of_the_fit(home, rows, new, table):
    """``rows_of_the_fit(name)``: a table with rows that took part in the fit."""
    splits = library.load(home / "numbers.dco").splits_
    frames = {
        "all": lambda: rows,
        "calibrate": lambda: rows.iloc[splits.calibrate],
        "train": lambda: rows.iloc[splits.train],
        "most": lambda: pd.concat([new, rows.iloc[7:247]]),
    }
    return lambda name: table(frames[name]())


@pytest.mark.parametrize("name", ["all", "calibrate", "train", "most"])
def test_rows_of_the_fit_prove_nothing(dco, home, rows_of_the_fit, name):
    evaluate = ("evaluate", home / "numbers.dco", rows_of_the_fit(name))
    told = dco.json(*evaluate)
    assert told["verdict"] == "unchecked"
    assert "rows of the fit" in told["no_verdict"]
    (note,) = told["notes"]
    assert "prove nothing about new rows" in note
    printed = dco(*evaluate)
    assert f"none: {told['no_verdict']}" in printed.stdout
    assert printed.output.count("Note: ") == 1


def test_a_few_rows_of_the_fit_are_left_out(dco, home, rows, new, table):
    evaluate = ("evaluate", home / "numbers.dco")
    mixed = dco.json(*evaluate, table(pd.concat([new, rows.iloc[7:47]])))
    alone = dco.json(*evaluate, home / "new.csv")
    assert (mixed["left_out"], mixed["n"]) == (40, 200)
    assert mixed["overall"] == alone["overall"]
    assert [note for note in mixed["notes"] if "40 of 240 rows equal rows of the fit" in note]


# --- another promise ------------------------------------------------------------------------------


def test_another_promise_from_the_same_calibration_rows(dco, home):
    model, new = home / "numbers.dco", home / "new.csv"
    told = dco.json("evaluate", model, new, "--guarantee", "pac", "--delta", 0.2, "--alpha", 0.2)
    assert (told["alpha"], told["guarantee"], told["delta"]) == (0.2, "pac", 0.2)
    test = told["overall"]["consistency"]
    assert test["rank"] == library.pac_rank(test["n_cal"], alpha=0.2, delta=0.2)


def test_the_sentence_of_the_certificate_is_printed_for_its_own_promise_alone(dco, home):
    model, new = home / "numbers.dco", home / "new.csv"
    statement = library.load(model).certificate_.statement
    assert dco.json("evaluate", model, new)["statement"] == statement
    assert dco.json("evaluate", model, new, "--guarantee", "pac")["statement"] is None
    printed = dco("evaluate", model, new, "--guarantee", "pac").output
    assert "pac guarantee, alpha = 0.1, delta = 0.05" in printed
    assert statement not in printed


def test_a_delta_belongs_to_a_pac_guarantee(dco, home):
    told = dco.refuses("evaluate", home / "numbers.dco", home / "new.csv", "--delta", "0.2")
    assert "--delta belongs to --guarantee pac" in told


# --- conditions and columns -----------------------------------------------------------------------


@pytest.fixture(params=[("outcome", "site"), ("grade", "grade")], ids=["column", "classes"])
def conditional(request, dco, home, tmp_path):
    """A model with a threshold for each value of a column, and the column."""
    target, condition = request.param
    model = tmp_path / "m.dco"
    words = ("--target", target, "--condition-on", condition, "--models", "linear", "--out", model)
    dco("fit", home / "rows.csv", *words)
    return model, condition


@pytest.mark.parametrize("is_named", [False, True])
def test_each_condition_gets_a_verdict(dco, home, conditional, is_named):
    model, condition = conditional
    evaluate = ("evaluate", model, home / "new.csv", *(("--by", condition) if is_named else ()))
    printed = dco(*evaluate).output
    rows = dco.json(*evaluate)["by_condition"]
    assert len(rows) == 3
    for row in rows:
        assert f"{row['consistency']['expected_coverage']:.4f}" in printed
        assert f"held (p = {row['consistency']['p_value']:.3g})" in printed
    assert "each has its own threshold; the guarantee holds in each" in printed


def test_nothing_is_promised_about_the_values_of_another_column(dco, home, conditional):
    new = home / "new.csv"
    printed = dco("evaluate", conditional[0], new, "--by", "ward").output
    assert "guarantee is for the conditions of the model, and says nothing about these" in printed
    printed = dco("evaluate", home / "numbers.dco", new, "--by", "site").output
    assert "guarantee is for all rows together and says nothing about a single value" in printed


def test_a_column_with_many_values_does_not_flood_the_terminal(dco, home, new, table):
    new["dose"] = np.arange(len(new)) // 2  # 100 values
    new.loc[:9, "dose"] = 0  # 10 rows
    evaluate = ("evaluate", home / "numbers.dco", table(new), "--by", "dose")
    lines = dco(*evaluate).output.splitlines()
    assert len([row for row in dco.json(*evaluate)["slices"] if row["by"] == "dose"]) == 96
    assert "and 66 more, none with more rows: --json lists them all." in lines
    assert ["0", "10"] in [line.split()[:2] for line in lines], "the largest is shown"
    assert len(lines) < 75


# --- verdicts -------------------------------------------------------------------------------------


def test_labels_that_the_fit_does_not_know_are_counted(dco, home, new, table):
    new.loc[:4, "grade"] = "unheard of"
    evaluate = ("evaluate", home / "labels.dco", table(new), "--ignore-new")
    told = dco.json(*evaluate)
    assert told["overall"]["unknown_labels"] == 5
    assert "5 of 200 rows have labels" in told["notes"][0]
    assert "rows with unknown labels 5" in " ".join(dco(*evaluate).stdout.split())


def test_it_ends_with_the_verdict(dco, home):
    printed = dco("evaluate", home / "numbers.dco", home / "new.csv").stdout
    assert printed.strip().splitlines()[-1].startswith("The promise held on these rows: ")


def test_rows_far_outside_their_sets_break_the_promise(dco, home, new, table):
    new["outcome"] += 1000 * (np.arange(len(new)) % 3 == 0)
    evaluate = ("evaluate", home / "numbers.dco", table(new))
    assert dco.json(*evaluate)["verdict"] == "failed"
    printed = dco(*evaluate).stdout
    assert "the promise did not hold (p = " in printed
    assert "calibrate again on rows like these" in printed


@pytest.mark.parametrize(("share", "status"), [("0.5", 0), ("0.999", 1)])
def test_low_coverage_can_stop_a_pipeline(dco, home, share, status):
    evaluate = ("evaluate", home / "numbers.dco", home / "new.csv", "--fail-below", share)
    printed = dco(*evaluate, status=status).stdout
    assert (f"is below --fail-below {share}." in printed) == bool(status)
    dco.json(*evaluate, status=status)


def test_another_column_may_have_the_true_values(dco, home, new, table):
    evaluate = ("evaluate", home / "numbers.dco")
    own = dco.json(*evaluate, home / "new.csv")
    path = table(new.assign(measured=new["outcome"], outcome=0.0))
    assert dco.json(*evaluate, path, "--target", "measured")["coverage"] == own["coverage"]
    assert "no column 'outcome'" in dco.refuses(*evaluate, table(new.drop(columns="outcome")))


def test_one_row_is_counted_as_one(dco, home, new, table):
    assert "1 row of" in dco("evaluate", home / "numbers.dco", table(new.head(1))).output
