"""dco fit: the task is said, roles stay apart, and preparation sees no calibration row."""

import numpy as np
import pandas as pd
import pytest

import dco as library

from .conftest import features_of

SITES = {"north", "south", "east"}
WARDS = {"A1", "B2", "C3", "(missing)"}
GRADES = {"low", "mid", "high"}


def unwrapped(printed):
    """What was printed, on one line."""
    return " ".join(printed.split())


@pytest.fixture
def words(home, tmp_path):
    """``words(*options)``: a fit of the linear models, as words of the command line."""

    def write(*options, target="outcome", out="m.dco", data=home / "rows.csv"):
        fit = ("fit", data, "--target", target, "--models", "linear", "--out", tmp_path / out)
        return (*fit, *options)

    return write


@pytest.fixture
def fitted(dco, words, tmp_path):
    """``fitted(*options)``: what such a fit prints as JSON, and the model."""

    def fit(*options, out="m.dco", **others):
        printed = dco.json(*words(*options, out=out, **others))
        return printed, library.load(tmp_path / out)

    return fit


def model_names(printed) -> set[str]:
    """Return the names of the models in the ranking that are not made of others."""
    names = {row["name"].split(" / ")[0] for row in printed["ranking"]}
    return {
        name
        for name in names
        if name != "stack" and not name.startswith("average of") and not name.endswith("spread")
    }


# --- what is printed ------------------------------------------------------------------------------


def test_it_says_the_task_the_candidates_and_the_guarantee(dco, words):
    printed = dco(*words()).output
    assert "Task: regression" in printed
    assert "linear / AbsoluteResidual" in printed
    assert "contains the true value with probability at least 90 %" in printed


def test_it_says_how_columns_are_read(dco, words):
    printed = dco(*words("--drop", "grade", "--drop", "patient")).output
    assert "Numbers: age, dose; categories: site (3 values), ward (3 values)." in printed


def test_json_lists_how_columns_are_read(fitted):
    printed, _ = fitted("--drop", "grade", "--drop", "patient")
    categories = {"site": 3, "ward": 3}
    expected = {"numbers": ["age", "dose"], "dates": [], "categories": categories}
    assert printed["columns"] == expected


@pytest.fixture
def many_candidates(dco, words):
    """What a fit of forests prints, and how many candidates it has."""
    printed = dco(*words("--models", "forest", target="grade")).output
    n_candidates = int(printed.partition(" candidates on the tuning rows")[0].split()[-1])
    assert n_candidates > 8
    return printed, n_candidates


def test_a_long_ranking_does_not_flood_the_terminal(many_candidates):
    printed, n_candidates = many_candidates
    assert f"and {n_candidates - 8} more: --json lists them all." in printed
    assert len(printed.splitlines()) < 45


def test_lines_of_a_ranking_fit_a_terminal(many_candidates):
    printed, _ = many_candidates
    ranking = printed.partition("best first")[2].partition("and ")[0]
    assert max(len(line) for line in ranking.splitlines()) <= 80


@pytest.fixture
def one_candidate(tmp_path):
    """Options of a fit with one candidate, and its page."""
    return ("--scores", "absolute", "--tune-size", 0, "--report", tmp_path / "m.html")


def test_the_only_candidate_is_not_compared(dco, words, tmp_path, one_candidate):
    printed = unwrapped(dco(*words(*one_candidate)).output)
    assert "the only candidate" in printed
    assert "on the tuning rows" not in printed
    assert "nothing was compared" in (tmp_path / "m.html").read_text(encoding="utf-8")


def test_a_fit_of_the_only_candidate_passes_its_audit(dco, home, words, tmp_path, one_candidate):
    dco(*words(*one_candidate))
    assert dco.json("audit", tmp_path / "m.dco", "--data", home / "rows.csv")["holds"]


# --- candidates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "models"),
    [
        ("outcome", {"linear", "linear-log", "shallow", "forest", "smooth"}),
        ("grade", {"linear", "forest", "boosting"}),
    ],
    ids=["regression", "classification"],
)
def test_default_candidates_are_named_and_all_work(dco, home, tmp_path, target, models):
    """Missing numbers, missing texts and categories reach every default model. Rows are few, so
    candidates are ranked by folds.
    """
    printed = dco.json("fit", home / "rows.csv", "--target", target, "--out", tmp_path / "m.dco")
    n_rows = printed["certificate"]["provenance"]["rows"]
    assert model_names(printed) == models
    assert printed["failed"] == {}
    assert n_rows == {"train": 240, "tune": 0, "calibrate": 80}


def test_quick_effort_leaves_out_smooth_models(dco, home, tmp_path):
    table = home / "rows.csv"
    printed = dco.json(
        "fit", table, "--target", "outcome", "--effort", "quick", "--out", tmp_path / "m.dco"
    )
    assert "smooth" not in model_names(printed)


def test_effort_is_refused_for_labels(dco, home):
    message = dco.refuses("fit", home / "rows.csv", "--target", "grade", "--effort", "quick")
    assert "--effort is for numbers" in message


def test_a_list_may_be_given_in_parts(fitted):
    scores = ("--scores", "absolute", "--scores", "transformed")
    printed, _ = fitted("--models", "linear-log", *scores)
    names = {row["name"] for row in printed["ranking"]}
    assert {"linear / AbsoluteResidual", "linear-log / AbsoluteResidual"} < names
    assert any("Transformed" in name for name in names)


def test_preparation_is_fitted_without_calibration_rows(home, rows):
    """The medians inside the winner are those of training and tuning rows."""
    model = library.load(home / "numbers.dco")
    columns = model.predictor_.structure.model["columns"]
    medians = columns.named_transformers_["numbers"]["impute"].statistics_

    not_calibrated = np.concatenate([model.splits_.train, model.splits_.tune])
    numbers = rows[["age", "dose"]]
    np.testing.assert_array_equal(medians, numbers.iloc[not_calibrated].median())
    assert not np.array_equal(medians, numbers.median())


@pytest.mark.parametrize(
    ("second", "models"),
    [("rows.csv", "forest"), ("rows.parquet", "linear")],
    ids=["the same file", "another format"],
)
def test_the_same_seed_and_rows_give_the_same_model(dco, home, tmp_path, second, models):
    fit = ("--target", "grade", "--models", models, "--seed", 5)
    dco("fit", home / "rows.csv", *fit, "--out", tmp_path / "first.dco")
    dco("fit", home / second, *fit, "--out", tmp_path / "second.dco")
    a = library.load(tmp_path / "first.dco").certificate_
    b = library.load(tmp_path / "second.dco").certificate_
    assert a.provenance.row_fingerprints == b.provenance.row_fingerprints
    assert a.thresholds == b.thresholds
    assert a.provenance.scores_fingerprint == b.provenance.scores_fingerprint


# --- objectives -----------------------------------------------------------------------------------


def test_even_coverage_is_wanted_of_the_values_of_a_column(fitted):
    printed, model = fitted("--objective", "even", "--by", "site")
    selection = printed["certificate"]["structure"]["selection"]
    assert selection.startswith("smallest mean size among even structures")
    assert {"objective", "shortfall"} <= printed["ranking"][0].keys()
    assert model.objective == library.objectives.Even(by=("site",))


def test_the_objective_is_an_option_of_a_fit(dco, words):
    assert "smallest P95 size" in dco(*words("--objective", "p95_size")).output


def test_the_objective_is_an_option_of_a_comparison(dco, home, tmp_path):
    words = ("compare", home / "rows.csv", "--target", "outcome", "--models", "linear")
    options = ("--splits", 1, "--hold-out", 0.3, "--objective", "p95_size")
    printed = dco.json(*words, *options, "--out", tmp_path / "c")
    assert printed["next"].endswith("--objective p95_size")


def test_words_say_even_only_of_structures_that_are(tmp_path, fitted):
    """The spread follows the dose: sets of one width for all rows leave the fifth of the largest
    predictions behind.
    """
    rng = np.random.default_rng(0)
    dose = rng.uniform(0, 5, size=600)
    frame = pd.DataFrame({"dose": dose, "outcome": dose + dose**2 * rng.normal(size=600) / 5})
    frame.to_csv(tmp_path / "rows.csv", index=False)

    options = ("--models", "forest", "--scores", "absolute")
    printed, _ = fitted(*options, data=tmp_path / "rows.csv")

    assert all(row["shortfall"] > 0 for row in printed["ranking"])
    assert printed["certificate"]["structure"]["selection"].startswith("the least shortfall")


# --- levels ---------------------------------------------------------------------------------------


def test_confidence_is_one_minus_alpha(fitted):
    _, by_alpha = fitted("--alpha", "0.2", out="a.dco")
    _, by_confidence = fitted("--confidence", "80%", out="b.dco")
    assert by_alpha.certificate_.alpha == 0.2
    assert by_confidence.certificate_.alpha == 0.2
    assert by_alpha.certificate_.thresholds == by_confidence.certificate_.thresholds


def test_confidence_and_alpha_exclude_each_other(dco, words):
    message = dco.refuses(*words("--alpha", "0.1", "--confidence", "0.9"))
    assert "give one of them" in message


def test_too_few_rows_for_the_level_is_a_note(dco, words):
    assert "too few for alpha = 0.001" in dco(*words("--alpha", "0.001")).output


@pytest.fixture(params=["fit", "evaluate", "plan"])
def command(request, home, words):
    """A command with a level, as words of the command line."""
    return {
        "fit": words("--drop", "grade", "--drop", "patient"),
        "evaluate": ("evaluate", home / "numbers.dco", home / "new.csv", "--ignore-new"),
        "plan": ("plan", "--rows", 300),
    }[request.param]


@pytest.mark.parametrize(("alpha", "n_notes"), [(0.5, 0), (0.9, 1)])
def test_an_alpha_above_one_half_is_confirmed_by_a_note(dco, command, alpha, n_notes):
    notes = dco.json(*command, "--alpha", alpha)["notes"]
    text = "only 0.1 is promised. For coverage 0.9, use --alpha 0.1."
    assert sum(text in note for note in notes) == n_notes
    assert sum("use --alpha" in note for note in notes) == n_notes


@pytest.mark.parametrize(("alpha", "n_notes"), [(0.5, 0), (0.9, 1)])
def test_a_plan_prints_that_note_once(dco, alpha, n_notes):
    printed = dco("plan", "--rows", 300, "--alpha", alpha).stderr
    assert printed.count("use --alpha 0.1") == n_notes


# --- rows that belong together --------------------------------------------------------------------


def test_groups_stay_together(rows, fitted):
    _, model = fitted("--groups", "patient")
    patient = rows["patient"].to_numpy()
    splits = model.splits_
    roles = [set(patient[splits[role]]) for role in ("train", "tune", "calibrate")]
    assert sum(len(patients) for patients in roles) == len(set.union(*roles))
    assert "new group" in model.certificate_.statement


def test_groups_are_no_feature(fitted):
    _, model = fitted("--groups", "patient")
    assert "patient" not in model.feature_names_in_


# --- conditions -----------------------------------------------------------------------------------


def conditions_of(model):
    return {threshold.group for threshold in model.certificate_.thresholds}


def test_each_value_of_a_column_gets_a_threshold(dco, home, tmp_path, new, fitted):
    """Missing values too. An absolute residual gives one width a ward."""
    _, model = fitted("--condition-on", "ward", "--calibrate-size", 150)
    dco("predict", tmp_path / "m.dco", home / "new.csv", "--out", tmp_path / "sets.csv")

    sizes = pd.read_csv(tmp_path / "sets.csv")["size"].round(9)
    n_widths = sizes.groupby(new["ward"].fillna("(missing)")).nunique()
    assert conditions_of(model) == WARDS
    assert n_widths.to_dict() == dict.fromkeys(WARDS, 1)


OVERLAPPING = ("--condition-on", "ward", "--condition-on", "site", "--calibrate-size", 150)


def test_values_of_several_columns_overlap(dco, words):
    printed = dco(*words(*OVERLAPPING, "--test-size", 60)).output
    assert "they overlap; the guarantee holds in each" in unwrapped(printed)


@pytest.mark.parametrize("by", [(), ("--by", "site")], ids=["unasked", "by a column"])
def test_values_of_several_columns_are_evaluated_one_by_one(dco, home, tmp_path, words, by):
    dco(*words(*OVERLAPPING, "--test-size", 60))
    result = dco.json("evaluate", tmp_path / "m.dco", home / "new.csv", *by)
    expected = {f"ward={ward}" for ward in WARDS} | {f"site={site}" for site in SITES}
    assert {row["group"] for row in result["by_condition"]} == expected


def test_a_model_with_overlapping_conditions_passes_its_audit(dco, home, tmp_path, words):
    dco(*words(*OVERLAPPING, "--test-size", 60))
    dco("audit", tmp_path / "m.dco", "--data", home / "rows.csv")


def test_overlapping_conditions_have_no_pac_statement(dco, words):
    message = dco.refuses(*words(*OVERLAPPING, "--guarantee", "pac"))
    assert "No PAC statement is known" in message


@pytest.fixture
def by_grade(words, tmp_path):
    """A fit with a threshold for each class, as words of the command line."""
    roles = ("--calibrate-size", 150, "--test-size", 60, "--report", tmp_path / "r.html")
    columns = ("--drop", "outcome", "--drop", "patient", "--condition-on", "grade")
    return words(*columns, *roles, target="grade")


def test_each_class_gets_a_threshold(dco, tmp_path, by_grade):
    printed = dco(*by_grade).output
    model = library.load(tmp_path / "m.dco")
    assert conditions_of(model) == GRADES
    assert model.certificate_.statement in unwrapped(printed)


def test_sets_with_a_threshold_for_each_class_are_those_of_the_estimator(
    dco, home, tmp_path, new, by_grade
):
    dco(*by_grade)
    words = ("predict", tmp_path / "m.dco", home / "new.csv", "--ignore-new")
    dco(*words, "--out", tmp_path / "sets.csv")
    model = library.load(tmp_path / "m.dco")
    expected = model.predict_set(features_of(model, new)).sizes()
    assert pd.read_csv(tmp_path / "sets.csv")["size"].tolist() == expected.tolist()


def test_each_class_is_evaluated(dco, home, tmp_path, by_grade):
    dco(*by_grade)
    result = dco.json("evaluate", tmp_path / "m.dco", home / "new.csv")
    assert {row["group"] for row in result["by_condition"]} == GRADES


def test_a_model_with_a_threshold_for_each_class_passes_its_audit(dco, home, tmp_path, by_grade):
    dco(*by_grade)
    dco("audit", tmp_path / "m.dco", "--data", home / "rows.csv")


@pytest.fixture
def clustered(fitted):
    """A model in which rare classes share a threshold."""
    columns = ("--drop", "outcome", "--drop", "patient")
    _, model = fitted(*columns, "--condition-on", "label-clusters", target="grade")
    return model


def test_rare_classes_share_a_threshold_on_request(clustered):
    condition = clustered.certificate_.calibration.condition_on
    labels = [label for names in conditions_of(clustered) for label in names.split(", ")]
    assert condition.startswith("'label-clusters': [[")
    assert sorted(labels) == ["high", "low", "mid"]


@pytest.mark.usefixtures("clustered")
def test_classes_that_share_a_threshold_are_evaluated_one_by_one(dco, home, tmp_path):
    result = dco.json("evaluate", tmp_path / "m.dco", home / "new.csv", "--by", "grade")
    assert {row["group"] for row in result["slices"] if row["by"] == "grade"} == GRADES


@pytest.mark.parametrize("target", ["grade", "outcome"])
def test_a_feature_called_label_is_not_taken_for_the_classes(dco, rows, table, words, target):
    data = table(rows.rename(columns={"site": "label"}))
    message = dco.refuses(*words("--condition-on", "label", target=target, data=data))
    assert "another name" in message


# --- test rows ------------------------------------------------------------------------------------


def test_test_rows_are_evaluated_by_a_column_and_not_fitted(fitted):
    printed, _ = fitted("--by", "site", "--test-size", "80")
    evaluation = printed["evaluation"]
    assert evaluation["n"] == 80
    assert {row["group"] for row in evaluation["slices"] if row["by"] == "site"} == SITES
    assert sum(printed["certificate"]["provenance"]["rows"].values()) == 240


def test_calibration_rows_are_found_in_a_table_with_test_rows(dco, home, tmp_path, words):
    dco(*words("--test-size", "80"))
    dco("audit", tmp_path / "m.dco", "--data", home / "rows.csv")


# --- rows without a target ------------------------------------------------------------------------


@pytest.fixture
def rows_with_gaps(rows, tmp_path):
    """A table of which every tenth row has no target."""
    frame = rows.drop(columns=["grade", "patient"])
    frame.loc[::10, "outcome"] = np.nan
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    return tmp_path / "gaps.csv"


def test_rows_without_a_target_are_not_left_out_unasked(dco, words, rows_with_gaps):
    message = dco.refuses(*words(data=rows_with_gaps))
    assert "remove such rows, or fit with --drop-missing-target." in message


def test_rows_without_a_target_are_left_out_on_request(fitted, rows_with_gaps):
    printed, _ = fitted("--drop-missing-target", data=rows_with_gaps)
    assert "32 rows of 320 without a target are left out." in printed["notes"]
    assert sum(printed["certificate"]["provenance"]["rows"].values()) == 288


def test_the_audit_leaves_out_the_same_rows(dco, tmp_path, words, rows_with_gaps):
    dco(*words("--drop-missing-target", data=rows_with_gaps))
    printed = dco("audit", tmp_path / "m.dco", "--data", rows_with_gaps).stdout
    assert "Everything that was recomputed holds." in printed


def test_an_evaluation_leaves_out_rows_without_a_target_too(
    dco, tmp_path, new, table, words, rows_with_gaps
):
    dco(*words("--drop-missing-target", data=rows_with_gaps))
    new.loc[:4, "outcome"] = np.nan
    data = table(new.drop(columns=["grade", "patient"]))
    result = dco.json("evaluate", tmp_path / "m.dco", data)
    assert result["n"] == 195
    assert "5 rows of 200 without a target are left out." in result["notes"]


# --- how numbers and dates are written ------------------------------------------------------------


@pytest.fixture
def written_with(home, tmp_path):
    """``written_with(",", "rows")``: such a table with decimal commas, or with points."""

    def write(decimal, name):
        frame = pd.read_csv(home / f"{name}.csv").drop(columns=["grade", "patient"])
        path = tmp_path / f"{name}{ord(decimal)}.csv"
        frame.to_csv(path, index=False, sep=";" if decimal == "," else ",", decimal=decimal)
        return path

    return write


def test_decimal_commas_are_not_guessed(dco, words, written_with):
    message = dco.refuses(*words(data=written_with(",", "rows")))
    assert "the target 'outcome' looks like numbers with decimal commas" in message


@pytest.fixture
def fit_by_commas(dco, tmp_path, words, written_with):
    """A model that was fitted on a table with decimal commas."""
    dco(*words("--decimal", ",", data=written_with(",", "rows")))
    return tmp_path / "m.dco"


@pytest.fixture
def fit_by_points(dco, tmp_path, words, written_with):
    """The same model, fitted on a table with decimal points."""
    dco(*words(data=written_with(".", "rows"), out="points.dco"))
    return tmp_path / "points.dco"


@pytest.mark.parametrize(
    ("decimal", "options"),
    [(",", ()), (".", ("--decimal", "."))],
    ids=["commas travel with the model", "points on request"],
)
def test_sets_do_not_depend_on_decimal_signs(
    dco, tmp_path, fit_by_commas, fit_by_points, written_with, decimal, options
):
    by_commas = (fit_by_commas, written_with(decimal, "new"), *options)
    by_points = (fit_by_points, written_with(".", "new"))

    dco("predict", *by_commas, "--out", tmp_path / "a.csv")
    dco("predict", *by_points, "--out", tmp_path / "b.csv")

    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    coverage = dco.json("evaluate", *by_points)["coverage"]
    assert dco.json("evaluate", *by_commas)["coverage"] == coverage


@pytest.mark.parametrize(
    ("decimal", "options"),
    [(",", ()), (".", ("--decimal", "."))],
    ids=["commas travel with the model", "points on request"],
)
def test_an_audit_reads_both_decimal_signs(dco, fit_by_commas, written_with, decimal, options):
    dco("audit", fit_by_commas, "--data", written_with(decimal, "rows"), *options)


@pytest.fixture
def dated(tmp_path):
    """``dated("%d/%m/%Y")``: a table with a row a day, whose dates are written like this."""
    days = pd.date_range("2015-01-01", periods=200)
    y = np.arange(200) + np.random.default_rng(0).normal(size=200)

    def write(form, n_rows=200):
        frame = pd.DataFrame({"day": days.strftime(form), "y": y})
        path = tmp_path / (form.replace("/", "-") + ".csv")
        frame[:n_rows].to_csv(path, index=False)
        return path

    return write


@pytest.fixture
def sets_of_dated(dco, tmp_path):
    """``sets_of_dated(table, *options)``: the text of the sets of a model of this table."""

    def write(data, *options):
        model = tmp_path / "dated.dco"
        out = tmp_path / "dated-sets.csv"
        fit = ("fit", data, "--target", "y", "--models", "linear", "--seed", 1, "--force")
        dco(*fit, "--out", model, *options)
        dco("predict", model, data, "--ignore-new", "--force", "--out", out)
        return out.read_text()

    return write


def test_sets_do_not_depend_on_how_dates_are_written(dated, sets_of_dated):
    assert sets_of_dated(dated("%m/%d/%Y")) == sets_of_dated(dated("%Y-%m-%d"))


def test_dates_that_can_be_read_in_two_ways_are_not_guessed(dco, tmp_path, dated):
    """Of the first twelve days, 02/01/2015 may be in February."""
    early = dated("%d/%m/%Y", n_rows=12)
    message = dco.refuses("fit", early, "--target", "y", "--out", tmp_path / "m.dco")
    assert "the column 'day' has dates such as '01/01/2015'" in message
    assert "--dates day-first" in message


def test_such_dates_are_read_on_request(dated, sets_of_dated):
    early = dated("%d/%m/%Y", n_rows=12)
    assert len(sets_of_dated(early, "--dates", "day-first").splitlines()) == 13
