"""Advice that helps: the remedy of a note or page is followed on a table that triggers it."""

import re
import warnings
from html import unescape

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

import dco
from dco.report import page_html

MODELS = [LogisticRegression(), LogisticRegression(C=0.1)]
ONE_LABEL = 'condition_on="label"'


def fit(est, X, y, **options):
    """Fit, and return the estimator with its notes by kind; warnings only repeat those notes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est.fit(X, y, **options)
    return est, {note.kind: str(note) for note in est.notes_}


def evaluate(est, X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return est.evaluate(X, y, **options)


def lowest_coverage(est, X, y, *, by):
    """Return the coverage of the slice that is covered least."""
    return min(row.coverage for row in evaluate(est, X, y).slices_by(by))


def page_text(est, X, y, **options):
    """Return what a reader of the page sees."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        html = page_html(est, X=X, y=y, **options)
    body = re.sub(r"<(script|style|pre).*?</\1>", "", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


# ---------------------------------------------------------------- a class that is covered rarely


def rare_class(n, seed):
    """Draw rows of which one in ten is of a class that the model often takes for the other."""
    rng = np.random.default_rng(seed)
    is_rare = rng.random(n) < 0.1
    X = rng.normal(size=(n, 2)) + 1.5 * is_rare[:, None]
    return X, pd.Series(np.where(is_rare, "rare", "common"), name="status")


def test_a_threshold_for_each_class_covers_the_rare_one():
    X, y = rare_class(3000, 0)
    new_X, new_y = rare_class(3000, 1)
    plain, _ = fit(dco.DecoupledClassifier(MODELS, random_state=0), X, y)
    by_label = dco.DecoupledClassifier(LogisticRegression(), condition_on="label", random_state=0)
    mended, _ = fit(by_label, X, y)

    assert lowest_coverage(plain, new_X, new_y, by="class") < 0.7
    assert lowest_coverage(mended, new_X, new_y, by="class") > 0.8
    assert evaluate(mended, new_X, new_y).overall.sizes.full < 0.7


def test_a_threshold_for_each_class_is_advised_by_fit_evaluation_and_page():
    new_X, new_y = rare_class(3000, 1)
    est, notes = fit(dco.DecoupledClassifier(MODELS, random_state=0), *rare_class(3000, 0))

    evaluation = evaluate(est, new_X, new_y)
    page = page_text(est, new_X, new_y)

    assert ONE_LABEL in notes["low-classes"]
    assert ONE_LABEL in str(evaluation.notes[0])
    assert ONE_LABEL in page
    assert "dco fit --condition-on status" in page


@pytest.mark.parametrize(
    ("settings", "fitted_with"),
    [
        ({}, {"groups": np.arange(3000) // 2}),
        ({"weights": lambda X: 1.0 + (X[:, 0] > 0)}, {}),
        ({"condition_on": lambda X: X[:, 0] > 0}, {}),
    ],
    ids=["clusters", "weights", "conditions"],
)
def test_a_threshold_for_each_class_is_not_advised_where_it_is_refused(settings, fitted_with):
    X, y = rare_class(3000, 0)
    new_X, new_y = rare_class(3000, 1)
    est, notes = fit(
        dco.DecoupledClassifier(MODELS, random_state=0, **settings),
        X,
        y,
        **fitted_with,
    )

    advice = [
        notes.get("low-classes", ""),
        str(evaluate(est, new_X, new_y).notes),
        page_text(est, new_X, new_y),
    ]

    assert lowest_coverage(est, new_X, new_y, by="class") < 0.7
    assert not any("condition_on" in text or "--condition-on" in text for text in advice)


@pytest.fixture(scope="module")
def new_class():
    """Draw 3,000 rows of the classes a, b and new."""
    rng = np.random.default_rng(0)
    code = rng.integers(0, 3, 3000)
    X = rng.normal(size=(3000, 3)) + 3 * np.eye(3)[code]
    return X, np.array(["a", "b", "new"])[code]


def test_for_a_class_that_the_fit_never_saw_rows_of_it_are_advised(new_class):
    X, y = new_class
    is_seen = (np.arange(3000) < 1500) & (y != "new")
    est, _ = fit(dco.DecoupledClassifier(MODELS, random_state=0), X[is_seen], y[is_seen])

    evaluation = evaluate(est, X[1500:], y[1500:])

    assert "fit again, with rows of them" in str(evaluation.notes[0])
    assert "fit again, with rows of each label" in evaluation.in_words()
    assert "condition_on" not in page_text(est, X[1500:], y[1500:])


def test_rows_of_a_class_that_the_fit_never_saw_help(new_class):
    X, y = new_class
    est, _ = fit(dco.DecoupledClassifier(MODELS, random_state=0), X[:1500], y[:1500])

    evaluation = evaluate(est, X[1500:], y[1500:])

    assert evaluation.verdict == "held"
    assert evaluation.notes == ()


@pytest.mark.parametrize("seed", range(3))
def test_evenness_is_never_advised_for_classes(seed):
    """It would make sets of two labels nearly full."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(4000, 3))
    y = np.where(X[:, 0] + 1.5 * rng.normal(size=4000) > 0.8, "yes", "no")
    est, notes = fit(
        dco.DecoupledClassifier(LogisticRegression(), random_state=0), X[:2000], y[:2000]
    )
    page = page_text(est, X[2000:], y[2000:])
    assert "too low" in page, "otherwise nothing is tested here"
    assert "objective" not in page
    assert not any("objective" in note for note in notes.values())


# ---------------------------------------------------------------- widths


def growing_noise(n, seed):
    """Draw rows whose errors grow with the prediction."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 4, size=(n, 2))
    return X, 10 + 5 * X[:, 0] + (0.2 + X[:, 0] ** 2) * rng.normal(size=n)


LINES = [LinearRegression(), Ridge()]
ONE_WIDTH = dco.scores.AbsoluteResidual()


@pytest.fixture(scope="module")
def one_width():
    """Fit sets of one width to rows whose errors grow, and return the estimator and its notes."""
    est = dco.DecoupledRegressor(LINES, ONE_WIDTH, random_state=0)
    return fit(est, *growing_noise(3000, 0))


@pytest.mark.parametrize(
    "model",
    [
        dco.models.ResidualSpread(LinearRegression()),
        dco.models.QuantilePair(HistGradientBoostingRegressor(max_iter=60), alpha=0.1),
    ],
    ids=["ResidualSpread", "QuantilePair"],
)
def test_models_whose_widths_follow_the_row_mend_one_width(one_width, model):
    plain, _ = one_width
    new_X, new_y = growing_noise(3000, 1)
    assert f"dco.models.{type(model).__name__}" in page_text(plain, new_X, new_y)

    models = [LinearRegression(), model]
    even = dco.DecoupledRegressor(models, objective="even", random_state=0)
    mended, _ = fit(even, *growing_noise(3000, 0))

    before = lowest_coverage(plain, new_X, new_y, by="fifth")
    after = lowest_coverage(mended, new_X, new_y, by="fifth")
    assert before < 0.8
    assert after > max(0.8, before + 0.05)
    size = evaluate(mended, new_X, new_y).mean_size
    assert size < evaluate(plain, new_X, new_y).mean_size


def test_leaving_scores_out_is_advised_for_one_width(one_width):
    _, notes = one_width

    assert "Leave scores out" in notes["one-width"]
    assert "objective=even" in notes["one-width"]


def test_leaving_scores_out_mends_one_width(one_width):
    plain, _ = one_width
    new_X, new_y = growing_noise(3000, 1)

    even = dco.DecoupledRegressor(LINES, objective="even", random_state=0)
    mended, notes = fit(even, *growing_noise(3000, 0))

    assert "one-width" not in notes
    before = lowest_coverage(plain, new_X, new_y, by="fifth")
    after = lowest_coverage(mended, new_X, new_y, by="fifth")
    assert after > max(0.8, before + 0.05)


@pytest.fixture(scope="module")
def wards():
    """Draw 6,000 rows of two wards, one of them four times as noisy."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"dose": rng.normal(size=6000), "ward": rng.integers(0, 2, 6000)})
    return X, X["dose"] + np.where(X["ward"] == 1, 4, 1) * rng.normal(size=6000)


def test_a_threshold_for_each_value_of_a_column_is_advised(wards):
    X, y = wards
    est, _ = fit(dco.DecoupledRegressor(Ridge(), ONE_WIDTH, random_state=0), X[:3000], y[:3000])

    page = page_text(est, X[3000:], y[3000:], by="ward")

    assert 'condition_on="ward", or dco fit --condition-on ward' in page


def test_a_threshold_for_each_value_of_a_column_covers_the_noisy_one(wards):
    X, y = wards
    by_ward = dco.DecoupledRegressor(Ridge(), ONE_WIDTH, condition_on="ward", random_state=0)
    est, _ = fit(by_ward, X[:3000], y[:3000])

    evaluation = evaluate(est, X[3000:], y[3000:])

    assert min(row.coverage for row in evaluation.by_condition) > 0.87


def test_for_slices_by_values_that_are_no_column_nothing_is_advised():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 1))
    is_noisy = rng.random(4000) < 0.3
    y = X[:, 0] + np.where(is_noisy, 4, 1) * rng.normal(size=4000)
    est, _ = fit(dco.DecoupledRegressor(Ridge(), random_state=0), X[:2000], y[:2000])
    page = page_text(est, X[2000:], y[2000:], by=is_noisy[2000:])
    assert "Not for every slice" in page
    assert "condition_on" not in page


def test_a_support_cuts_sets_and_keeps_coverage():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    y = rng.exponential(np.exp(X[:, 0] / 2))
    lines = [LinearRegression(), Ridge(alpha=10)]
    plain, notes = fit(dco.DecoupledRegressor(lines, ONE_WIDTH, random_state=0), X[:1500], y[:1500])
    assert "support=(0, None)" in notes["below-zero"]

    cut = dco.DecoupledRegressor(lines, ONE_WIDTH, support=(0, None), random_state=0)
    mended, notes = fit(cut, X[:1500], y[:1500])

    assert "below-zero" not in notes
    assert mended.predict_set(X[1500:]).lower.min() >= 0
    evaluation = evaluate(mended, X[1500:], y[1500:])
    assert evaluation.mean_size < evaluate(plain, X[1500:], y[1500:]).mean_size
    assert evaluation.verdict == "held"


@pytest.mark.parametrize(
    "scores",
    [dco.scores.NeverEmpty(dco.scores.LAC()), None],
    ids=["score wrapped", "scores left out"],
)
def test_a_score_that_is_never_empty_leaves_no_set_empty(scores):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 3000)
    X = rng.normal(size=(3000, 3)) + 4 * np.eye(3)[y]
    lac = dco.DecoupledClassifier(MODELS, dco.scores.LAC(), alpha=0.2, random_state=0)
    plain, notes = fit(lac, X[:1500], y[:1500])
    assert "dco.scores.NeverEmpty(score)" in notes["empty-sets"]
    assert evaluate(plain, X[1500:], y[1500:]).overall.sizes.empty > 0.05

    never_empty = dco.DecoupledClassifier(MODELS, scores, alpha=0.2, random_state=0)
    mended, _ = fit(never_empty, X[:1500], y[:1500])

    evaluation = evaluate(mended, X[1500:], y[1500:])
    assert evaluation.overall.sizes.empty == 0
    assert evaluation.verdict == "held"


# ---------------------------------------------------------------- too few rows


def test_as_many_calibration_rows_as_are_needed_give_finite_sets():
    X, y = growing_noise(60, 0)
    few, notes = fit(dco.DecoupledRegressor(Ridge(), calibrate_size=5, random_state=0), X, y)
    assert np.all(np.isinf(few.predict_set(X).sizes()))
    (needed,) = re.findall(r"At least (\d+) rows", notes["infeasible"])

    enough = dco.DecoupledRegressor(Ridge(), calibrate_size=int(needed), random_state=0)
    mended, notes = fit(enough, X, y)

    assert "infeasible" not in notes
    assert np.all(np.isfinite(mended.predict_set(X).sizes()))


def test_the_default_sizes_give_few_rows_finite_sets():
    _, notes = fit(dco.DecoupledRegressor(Ridge(), random_state=0), *growing_noise(60, 0))

    assert "infeasible" not in notes


def test_as_many_rows_of_a_condition_as_are_needed_give_it_a_finite_threshold():
    def draw_with_small_ward(n_small):
        rng = np.random.default_rng(0)
        ward = np.r_[np.zeros(400), np.ones(n_small)]
        return np.c_[rng.normal(size=ward.size), ward], rng.normal(size=ward.size)

    est = dco.DecoupledRegressor(Ridge(), condition_on=1, random_state=0)
    few, notes = fit(est, *draw_with_small_ward(8))
    (needed,) = re.findall(r"At least (\d+) rows are needed in each group", notes["infeasible"])
    assert np.isinf(few.predict_set(np.array([[0.0, 1.0]])).sizes()).all()

    _, notes = fit(est, *draw_with_small_ward(8 * int(needed)))
    assert "infeasible" not in notes


# ---------------------------------------------------------------- rows unlike those of the fit


def test_calibrating_again_on_rows_like_these_keeps_the_promise():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    y = X[:, 0] + np.where(np.arange(3000) < 1000, 1, 3) * rng.normal(size=3000)
    est, _ = fit(dco.DecoupledRegressor(Ridge(), random_state=0), X[:1000], y[:1000])
    before = evaluate(est, X[2000:], y[2000:])
    assert before.verdict == "failed"
    assert "calibrate again on rows like these, with dco recalibrate" in before.in_words()

    again = dco.recalibrate(est, X[1000:2000], y[1000:2000])
    assert evaluate(again, X[2000:], y[2000:]).verdict == "held"


def test_rows_that_were_used_for_nothing_else_get_a_verdict():
    X, y = growing_noise(900, 0)
    est, _ = fit(dco.DecoupledRegressor(Ridge(), random_state=0), X[:600], y[:600])
    used = evaluate(est, X[:600], y[:600])
    assert "Evaluate rows that were used for nothing else" in str(used.notes[0])
    assert evaluate(est, X[600:], y[600:]).verdict == "held"
