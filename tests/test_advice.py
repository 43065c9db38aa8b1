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
    """Fit, and return the estimator with its notes by kind; warnings are those notes again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est.fit(X, y, **options)
    return est, {note.kind: str(note) for note in est.notes_}


def evaluate(est, X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return est.evaluate(X, y, **options)


def page_text(est, X, y, **options):
    """What a reader of the page sees."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        html = page_html(est, X=X, y=y, **options)
    body = re.sub(r"<(script|style|pre).*?</\1>", "", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


# ---- a class that is covered rarely


def rare_class(n, seed):
    """One row in ten is of a class that the model often takes for the other."""
    rng = np.random.default_rng(seed)
    is_rare = rng.random(n) < 0.1
    X = rng.normal(size=(n, 2)) + 1.5 * is_rare[:, None]
    return X, pd.Series(np.where(is_rare, "rare", "common"), name="status")


def test_a_threshold_for_each_class_covers_the_rare_one():
    (X, y), (new_X, new_y) = rare_class(3000, 0), rare_class(3000, 1)
    plain, notes = fit(dco.DecoupledClassifier(MODELS, random_state=0), X, y)
    found = evaluate(plain, new_X, new_y)
    low = {row.group: row.coverage for row in found.slices_by("class")}
    assert low["rare"] < 0.7
    page = page_text(plain, new_X, new_y)
    for advice in (notes["low-classes"], str(found.notes[0]), page):
        assert ONE_LABEL in advice
    assert "dco fit --condition-on status" in page

    mended, _ = fit(
        dco.DecoupledClassifier(LogisticRegression(), condition_on="label", random_state=0), X, y
    )
    found = evaluate(mended, new_X, new_y)
    assert min(row.coverage for row in found.slices_by("class")) > 0.8
    assert found.overall.sizes.full < 0.7


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
    found = evaluate(est, new_X, new_y)
    page = page_text(est, new_X, new_y)
    assert min(row.coverage for row in found.slices_by("class")) < 0.7
    for advice in (notes.get("low-classes", ""), str(found.notes), page):
        assert "condition_on" not in advice
        assert "--condition-on" not in advice


def test_for_a_class_that_the_fit_never_saw_only_rows_of_it_help():
    rng = np.random.default_rng(0)
    code = rng.integers(0, 3, 3000)
    X = rng.normal(size=(3000, 3)) + 3 * np.eye(3)[code]
    y = np.array(["a", "b", "new"])[code]
    is_known = y != "new"
    old, later = np.arange(3000) < 1500, np.arange(3000) >= 1500
    candidates = [LogisticRegression(), LogisticRegression(C=0.1)]
    plain, _ = fit(
        dco.DecoupledClassifier(candidates, random_state=0), X[old & is_known], y[old & is_known]
    )
    found = evaluate(plain, X[later], y[later])
    assert "fit again, with rows of them" in str(found.notes[0])
    assert "fit again, with rows of each label" in found.in_words()
    assert "condition_on" not in page_text(plain, X[later], y[later])

    mended, _ = fit(dco.DecoupledClassifier(candidates, random_state=0), X[old], y[old])
    found = evaluate(mended, X[later], y[later])
    assert found.verdict == "held"
    assert found.notes == ()


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


# ---- widths


def growing_noise(n, seed):
    """Errors grow with the prediction."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 4, size=(n, 2))
    return X, 10 + 5 * X[:, 0] + (0.2 + X[:, 0] ** 2) * rng.normal(size=n)


@pytest.mark.parametrize(
    "model",
    [
        dco.models.ResidualSpread(LinearRegression()),
        dco.models.QuantilePair(HistGradientBoostingRegressor(max_iter=60), alpha=0.1),
    ],
    ids=["ResidualSpread", "QuantilePair"],
)
def test_models_whose_widths_follow_the_row_mend_one_width(model):
    (X, y), (new_X, new_y) = growing_noise(3000, 0), growing_noise(3000, 1)
    score = dco.scores.AbsoluteResidual()
    lines = [LinearRegression(), Ridge()]
    plain, _ = fit(dco.DecoupledRegressor(lines, score, random_state=0), X, y)
    assert f"dco.models.{type(model).__name__}" in page_text(plain, new_X, new_y)
    lowest = min(row.coverage for row in evaluate(plain, new_X, new_y).slices_by("fifth"))
    assert lowest < 0.8

    mended, _ = fit(
        dco.DecoupledRegressor([LinearRegression(), model], objective="even", random_state=0), X, y
    )
    found = evaluate(mended, new_X, new_y)
    assert min(row.coverage for row in found.slices_by("fifth")) > max(0.8, lowest + 0.05)
    assert found.mean_size < evaluate(plain, new_X, new_y).mean_size


def test_leaving_scores_out_mends_one_width():
    (X, y), (new_X, new_y) = growing_noise(3000, 0), growing_noise(3000, 1)
    lines = [LinearRegression(), Ridge()]
    score = dco.scores.AbsoluteResidual()
    plain, notes = fit(dco.DecoupledRegressor(lines, score, random_state=0), X, y)
    assert "Leave scores out" in notes["one-width"]
    assert "objective=even" in notes["one-width"]

    mended, notes = fit(dco.DecoupledRegressor(lines, objective="even", random_state=0), X, y)
    assert "one-width" not in notes
    lowest, mended_lowest = (
        min(row.coverage for row in evaluate(est, new_X, new_y).slices_by("fifth"))
        for est in (plain, mended)
    )
    assert mended_lowest > max(0.8, lowest + 0.05)


def test_a_threshold_for_each_value_of_a_column_covers_the_noisy_one():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"dose": rng.normal(size=6000), "ward": rng.integers(0, 2, 6000)})
    y = X["dose"] + np.where(X["ward"] == 1, 4, 1) * rng.normal(size=6000)
    old, new = slice(0, 3000), slice(3000, None)
    score = dco.scores.AbsoluteResidual()
    plain, _ = fit(dco.DecoupledRegressor(Ridge(), score, random_state=0), X[old], y[old])
    page = page_text(plain, X[new], y[new], by="ward")
    assert 'condition_on="ward", or dco fit --condition-on ward' in page

    mended, _ = fit(
        dco.DecoupledRegressor(Ridge(), score, condition_on="ward", random_state=0), X[old], y[old]
    )
    found = evaluate(mended, X[new], y[new])
    assert min(row.coverage for row in found.by_condition) > 0.87


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
    score = dco.scores.AbsoluteResidual()
    lines = [LinearRegression(), Ridge(alpha=10)]
    plain, notes = fit(dco.DecoupledRegressor(lines, score, random_state=0), X[:1500], y[:1500])
    assert "support=(0, None)" in notes["below-zero"]

    mended, notes = fit(
        dco.DecoupledRegressor(lines, score, support=(0, None), random_state=0),
        X[:1500],
        y[:1500],
    )
    assert "below-zero" not in notes
    assert mended.predict_set(X[1500:]).lower.min() >= 0
    before, after = (evaluate(est, X[1500:], y[1500:]) for est in (plain, mended))
    assert after.mean_size < before.mean_size
    assert after.verdict == "held"


def test_a_score_that_is_never_empty_leaves_no_set_empty():
    rng = np.random.default_rng(0)
    code = rng.integers(0, 3, 3000)
    X = rng.normal(size=(3000, 3)) + 4 * np.eye(3)[code]
    lac = dco.scores.LAC()
    plain, notes = fit(
        dco.DecoupledClassifier(MODELS, lac, alpha=0.2, random_state=0),
        X[:1500],
        code[:1500],
    )
    assert "dco.scores.NeverEmpty(score)" in notes["empty-sets"]
    assert evaluate(plain, X[1500:], code[1500:]).overall.sizes.empty > 0.05
    for scores in (dco.scores.NeverEmpty(lac), None):
        mended, _ = fit(
            dco.DecoupledClassifier(MODELS, scores, alpha=0.2, random_state=0),
            X[:1500],
            code[:1500],
        )
        found = evaluate(mended, X[1500:], code[1500:])
        assert found.overall.sizes.empty == 0
        assert found.verdict == "held"


# ---- too few rows


def test_as_many_calibration_rows_as_are_needed_give_finite_sets():
    X, y = growing_noise(60, 0)
    few, notes = fit(dco.DecoupledRegressor(Ridge(), calibrate_size=5, random_state=0), X, y)
    assert np.all(np.isinf(few.predict_set(X).sizes()))
    (needed,) = re.findall(r"At least (\d+) rows", notes["infeasible"])

    mended, notes = fit(
        dco.DecoupledRegressor(Ridge(), calibrate_size=int(needed), random_state=0), X, y
    )
    assert "infeasible" not in notes
    assert np.all(np.isfinite(mended.predict_set(X).sizes()))
    _, notes = fit(dco.DecoupledRegressor(Ridge(), random_state=0), X, y)
    assert "infeasible" not in notes


def test_as_many_rows_of_a_condition_as_are_needed_give_it_a_finite_threshold():
    def with_small_ward(n_small):
        rng = np.random.default_rng(0)
        ward = np.r_[np.zeros(400), np.ones(n_small)]
        return np.c_[rng.normal(size=ward.size), ward], rng.normal(size=ward.size)

    est = dco.DecoupledRegressor(Ridge(), condition_on=1, random_state=0)
    few, notes = fit(est, *with_small_ward(8))
    (needed,) = re.findall(r"At least (\d+) rows are needed in each group", notes["infeasible"])
    assert np.isinf(few.predict_set(np.array([[0.0, 1.0]])).sizes()).all()

    _, notes = fit(est, *with_small_ward(8 * int(needed)))
    assert "infeasible" not in notes


# ---- rows unlike those of the fit


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
