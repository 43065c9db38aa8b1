"""dco evaluate: the estimator's numbers, a verdict, and no verdict where nothing is proved."""

import numpy as np
import pandas as pd
import pytest

import dco as library

from .conftest import features_of

TARGETS = {"numbers.dco": "outcome", "labels.dco": "grade"}


def unwrapped(printed):
    """What was printed, on one line."""
    return " ".join(printed.split())


@pytest.fixture(params=TARGETS)
def model(request, home):
    return home / request.param


@pytest.fixture
def evaluation(model, new):
    """What the estimator says of the new rows."""
    estimator = library.load(model)
    targets = new[TARGETS[model.name]].to_numpy()
    return estimator.evaluate(features_of(estimator, new), targets, by=new["site"])


def test_it_agrees_with_the_estimator(dco, home, model, evaluation):
    result = dco.json("evaluate", model, home / "new.csv", "--by", "site")
    assert result["coverage"] == evaluation.coverage
    assert result["mean_size"] == evaluation.mean_size
    assert result["verdict"] == evaluation.verdict
    assert result["overall"]["coverage_low"] == evaluation.overall.coverage_low


def test_slices_agree_with_the_estimator(dco, home, model, evaluation):
    slices = dco.json("evaluate", model, home / "new.csv", "--by", "site")["slices"]
    coverage_of_sites = [row["coverage"] for row in slices if row["by"] == "site"]
    assert coverage_of_sites == [row.coverage for row in evaluation.slices_by("site")]


def test_it_prints_intervals_and_the_verdict(dco, home, model, evaluation):
    printed = dco("evaluate", model, home / "new.csv").output
    test = evaluation.consistency
    overall = evaluation.overall
    assert f"the promise held (p = {test.p_value:.3g})" in printed
    assert f"{test.low:.4f} to {test.high:.4f}" in printed
    assert f"{overall.coverage_low:.4f} to {overall.coverage_high:.4f}" in printed


# --- rows of the fit ------------------------------------------------------------------------------


def calibration_rows(rows, new, splits):
    return rows.iloc[splits.calibrate]


def training_rows(rows, new, splits):
    return rows.iloc[splits.train]


def all_rows(rows, new, splits):
    return rows


def more_old_rows_than_new(rows, new, splits):
    return pd.concat([new, rows.iloc[7:247]])


@pytest.fixture(params=[all_rows, calibration_rows, training_rows, more_old_rows_than_new])
def evaluate_old_rows(request, home, rows, new, table):
    """An evaluation of rows of the fit, as words of the command line."""
    splits = library.load(home / "numbers.dco").splits_
    return ("evaluate", home / "numbers.dco", table(request.param(rows, new, splits)))


def test_rows_of_the_fit_get_no_verdict(dco, evaluate_old_rows):
    result = dco.json(*evaluate_old_rows)
    assert result["verdict"] == "unchecked"
    assert "rows of the fit" in result["no_verdict"]
    assert f"none: {result['no_verdict']}" in dco(*evaluate_old_rows).stdout


def test_rows_of_the_fit_get_one_note(dco, evaluate_old_rows):
    (note,) = dco.json(*evaluate_old_rows)["notes"]
    assert "prove nothing about new rows" in note
    assert dco(*evaluate_old_rows).output.count("Note: ") == 1


def test_a_few_rows_of_the_fit_are_left_out(dco, home, rows, new, table):
    data = table(pd.concat([new, rows.iloc[7:47]]))
    result = dco.json("evaluate", home / "numbers.dco", data)
    new_rows_alone = dco.json("evaluate", home / "numbers.dco", home / "new.csv")
    assert (result["left_out"], result["n"]) == (40, 200)
    assert result["overall"] == new_rows_alone["overall"]
    assert "40 of 240 rows equal rows of the fit" in " ".join(result["notes"])


# --- another promise ------------------------------------------------------------------------------


def test_another_promise_from_the_same_calibration_rows(dco, home):
    words = ("evaluate", home / "numbers.dco", home / "new.csv")
    result = dco.json(*words, "--guarantee", "pac", "--delta", 0.2, "--alpha", 0.2)
    assert (result["alpha"], result["guarantee"], result["delta"]) == (0.2, "pac", 0.2)
    test = result["overall"]["consistency"]
    assert test["rank"] == library.pac_rank(test["n_cal"], alpha=0.2, delta=0.2)


def test_the_sentence_of_the_certificate_stands_for_its_promise(dco, home):
    statement = library.load(home / "numbers.dco").certificate_.statement
    words = ("evaluate", home / "numbers.dco", home / "new.csv")
    assert dco.json(*words)["statement"] == statement


def test_another_promise_is_not_stated_by_the_certificate(dco, home):
    statement = library.load(home / "numbers.dco").certificate_.statement
    words = ("evaluate", home / "numbers.dco", home / "new.csv", "--guarantee", "pac")
    printed = dco(*words).output
    assert dco.json(*words)["statement"] is None
    assert statement not in printed
    assert "pac guarantee, alpha = 0.1, delta = 0.05" in printed


def test_a_delta_belongs_to_a_pac_guarantee(dco, home):
    words = ("evaluate", home / "numbers.dco", home / "new.csv", "--delta", "0.2")
    assert "--delta belongs to --guarantee pac" in dco.refuses(*words)


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
    by = ("--by", condition) if is_named else ()
    conditions = dco.json("evaluate", model, home / "new.csv", *by)["by_condition"]
    tests = [row["consistency"] for row in conditions]

    printed = dco("evaluate", model, home / "new.csv", *by).output

    assert len(tests) == 3
    assert all(f"{test['expected_coverage']:.4f}" in printed for test in tests)
    assert all(f"held (p = {test['p_value']:.3g})" in printed for test in tests)
    assert "each has its own threshold; the guarantee holds in each" in printed


def test_nothing_is_promised_about_another_column_than_the_condition(dco, home, conditional):
    model, _ = conditional
    printed = dco("evaluate", model, home / "new.csv", "--by", "ward").output
    assert "guarantee is for the conditions of the model, and says nothing about these" in printed


def test_nothing_is_promised_about_a_column_without_conditions(dco, home):
    printed = dco("evaluate", home / "numbers.dco", home / "new.csv", "--by", "site").output
    assert "guarantee is for all rows together and says nothing about a single value" in printed


@pytest.fixture
def evaluate_many_slices(home, new, table):
    """An evaluation by a column with 96 values, of which "0" has ten rows and others have two."""
    new["dose"] = np.arange(len(new)) // 2
    new.loc[:9, "dose"] = 0
    return ("evaluate", home / "numbers.dco", table(new), "--by", "dose")


def test_a_column_with_many_values_does_not_flood_the_terminal(dco, evaluate_many_slices):
    lines = dco(*evaluate_many_slices).output.splitlines()
    assert "and 66 more, none with more rows: --json lists them all." in lines
    assert len(lines) < 75


def test_the_largest_slice_is_shown(dco, evaluate_many_slices):
    lines = dco(*evaluate_many_slices).output.splitlines()
    assert ["0", "10"] in [line.split()[:2] for line in lines]


def test_json_lists_all_slices(dco, evaluate_many_slices):
    slices = dco.json(*evaluate_many_slices)["slices"]
    assert len([row for row in slices if row["by"] == "dose"]) == 96


# --- verdicts -------------------------------------------------------------------------------------


def test_labels_that_the_fit_does_not_know_are_counted(dco, home, new, table):
    new.loc[:4, "grade"] = "unheard of"
    words = ("evaluate", home / "labels.dco", table(new), "--ignore-new")
    result = dco.json(*words)
    assert result["overall"]["unknown_labels"] == 5
    assert "5 of 200 rows have labels" in result["notes"][0]
    assert "rows with unknown labels 5" in unwrapped(dco(*words).stdout)


def test_it_ends_with_the_verdict(dco, home):
    printed = dco("evaluate", home / "numbers.dco", home / "new.csv").stdout
    assert printed.strip().splitlines()[-1].startswith("The promise held on these rows: ")


def test_rows_far_outside_their_sets_break_the_promise(dco, home, new, table):
    new["outcome"] += 1000 * (np.arange(len(new)) % 3 == 0)
    words = ("evaluate", home / "numbers.dco", table(new))
    printed = dco(*words).stdout
    assert dco.json(*words)["verdict"] == "failed"
    assert "the promise did not hold (p = " in printed
    assert "calibrate again on rows like these" in printed


@pytest.mark.parametrize(
    ("share", "status"), [("0.5", 0), ("0.999", 1)], ids=["above the share", "below the share"]
)
def test_low_coverage_can_stop_a_pipeline(dco, home, share, status):
    words = ("evaluate", home / "numbers.dco", home / "new.csv", "--fail-below", share)
    printed = dco(*words, status=status).stdout
    assert (f"is below --fail-below {share}." in printed) == (status == 1)
    dco.json(*words, status=status)


def test_another_column_may_have_the_true_values(dco, home, new, table):
    moved = table(new.assign(measured=new["outcome"], outcome=0.0))
    result = dco.json("evaluate", home / "numbers.dco", moved, "--target", "measured")
    expected = dco.json("evaluate", home / "numbers.dco", home / "new.csv")
    assert result["coverage"] == expected["coverage"]


def test_a_table_without_true_values_is_refused(dco, home, new, table):
    words = ("evaluate", home / "numbers.dco", table(new.drop(columns="outcome")))
    assert "no column 'outcome'" in dco.refuses(*words)


def test_one_row_is_counted_as_one(dco, home, new, table):
    assert "1 row of" in dco("evaluate", home / "numbers.dco", table(new.head(1))).output
