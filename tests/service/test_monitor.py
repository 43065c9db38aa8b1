"""What a monitor reports of rows as they arrive. Every seed is fixed."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge

import dco
from dco.foundations.notes import NoteWarning

from .conftest import draw_rows, fit_ridge


def fit_classes(X, labels, **parameters):
    est = dco.DecoupledClassifier(
        LogisticRegression(), dco.scores.LAC(), random_state=0, **parameters
    )
    return est.fit(X, labels)


# ---------------------------------------------------------------- alarm and change

PARAMETERS = {
    "marginal": {},
    "pac": {"guarantee": "pac", "delta": 0.1},
    "another level": {"alpha": "0.2"},
}
of_each_statement = pytest.mark.parametrize("parameters", PARAMETERS.values(), ids=PARAMETERS)


@of_each_statement
def test_rows_like_those_of_the_fit_give_no_alarm(parameters):
    est = fit_ridge(**parameters)
    X, y = draw_rows(400)
    report = dco.Monitor(est).update(X, y)
    assert not report.alarm
    assert report.since is None
    assert report.coverage == np.mean(est.predict_set(X).contains(y))
    assert report.interval[0] < report.coverage < report.interval[1]


@of_each_statement
def test_the_expected_coverage_is_that_of_the_rank(parameters):
    est = fit_ridge(**parameters)
    report = dco.Monitor(est).report()
    threshold = est.certificate_.thresholds[0]
    assert report.guarantee == est.certificate_.guarantee
    assert report.expected_coverage == pytest.approx(threshold.rank / 201, rel=1e-15)


@of_each_statement
def test_rows_with_more_noise_give_an_alarm_that_stays(parameters):
    monitor = dco.Monitor(fit_ridge(**parameters))
    monitor.update(*draw_rows(400))
    report = monitor.update(*draw_rows(400, noise=2.0, seed=2))
    assert report.alarm
    assert report.p_value <= 0.05
    assert 300 < report.since < 500
    assert report.coverage_since < report.coverage
    assert monitor.update(*draw_rows(2_000, seed=3)).alarm


@pytest.fixture(scope="module")
def reports_by_row(est):
    """Reports after each of 60 bad rows, at an error rate of 1 % and a run length of 200."""
    X, y = draw_rows(60, noise=3)
    monitor = dco.Monitor(est, error_rate=0.01, run_length=200)
    return [monitor.update(X[[row]], y[[row]]) for row in range(60)]


def test_an_alarm_comes_at_the_stated_p_value(reports_by_row):
    assert [report.alarm for report in reports_by_row] == [
        report.p_value <= 0.01 for report in reports_by_row
    ]
    assert any(0.01 < report.p_value <= 0.02 for report in reports_by_row)
    assert reports_by_row[-1].alarm


def test_the_first_report_is_remembered(reports_by_row):
    reported = [report.alarm or report.change for report in reports_by_row]
    first = reported.index(True) + 1
    assert [report.reported for report in reports_by_row] == [None] * (first - 1) + [first] * (
        61 - first
    )


def test_a_change_is_dated_from_one(est):
    """From row 51 on all rows are missed."""
    X, _ = draw_rows(70)
    y = est.predict(X) + np.where(np.arange(70) < 50, 0, 100)
    report = dco.Monitor(est).update(X, y)
    assert report.alarm
    assert report.since == 51
    assert report.coverage_since == 0


def test_a_change_that_ended_is_dated_by_its_first_report():
    """200 bad rows after 500 good ones, and 3,000 good ones after them."""
    monitor = dco.Monitor(fit_ridge(4_000), run_length=1_000)
    monitor.update(*draw_rows(500, seed=1))
    monitor.update(*draw_rows(200, noise=2.0, seed=2))
    report = monitor.update(*draw_rows(3_000, seed=3))
    assert report.alarm
    assert report.change
    assert 450 <= report.since <= 550
    assert report.since < report.reported < 600


def test_drift_of_scores_is_seen_where_coverage_stays(est):
    """Residuals of one size: rows are covered as before."""
    X, y = draw_rows(600)
    sizes = np.random.default_rng(3).uniform(0.81, 0.99, size=600)
    residuals = np.where(y > est.predict(X), sizes, -sizes)
    report = dco.Monitor(est).update(X, est.predict(X) + residuals)
    assert not report.alarm
    assert report.drift
    assert not dco.Monitor(est).update(X, y).drift


def test_the_timeline_has_a_value_for_each_row(est):
    monitor = dco.Monitor(est)
    report = monitor.update(*draw_rows(100))
    timeline = monitor.timeline()
    assert timeline["covered"].mean() == report.coverage
    assert timeline["p_value"][-1] == report.p_value
    assert timeline["drift_p_value"][-1] == report.drift_p_value


def test_the_report_tells_what_it_knows(est):
    monitor = dco.Monitor(est)
    assert str(monitor.report()) == "No rows yet: nothing is known."
    assert str(monitor.update(*draw_rows(400))).startswith("No alarm")
    report = monitor.update(*draw_rows(400, noise=2.0, seed=2))
    assert f"near row {report.since} (reported after row {report.reported})" in str(report)


# ---------------------------------------------------------------- rows that come twice


def test_a_row_that_comes_twice_counts_once(est):
    X, y = draw_rows(50)
    monitor = dco.Monitor(est)
    monitor.update(X[:30], y[:30])
    with pytest.warns(NoteWarning, match="30 rows of 50 are equal to rows seen before"):
        report = monitor.update(X, y)
    assert report == dco.Monitor(est).update(X, y)
    with pytest.warns(NoteWarning, match="50 rows of 50 are equal"):  # in other containers too
        assert monitor.update(X.tolist(), pd.Series(y)) == report


def test_rows_of_the_fit_do_not_count(est):
    with pytest.warns(NoteWarning, match="800 rows of 800 are equal"):
        assert dco.Monitor(est).update(*draw_rows(800, seed=0)).rows == 0


def test_natural_copies_count_each_time(est):
    monitor = dco.Monitor(est, duplicates="natural")
    monitor.update(*draw_rows(50))
    assert monitor.update(*draw_rows(50)).rows == 100


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fit_with_natural_copies_is_noted():
    X, y = np.random.default_rng(0).integers(3, size=(2, 300)).astype(float)
    est = dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), random_state=0)
    est.fit(X[:, None], y)
    with pytest.warns(NoteWarning, match="have copies among them.* alarms may then be false"):
        dco.Monitor(est)
    with warnings.catch_warnings(action="error"):
        dco.Monitor(est, duplicates="natural")


# ---------------------------------------------------------------- labels, ties, full sets


def test_a_label_that_the_fit_does_not_know_is_a_miss_in_the_condition_of_its_row():
    X = np.random.default_rng(0).normal(size=(400, 2))
    labels = np.where(X[:, 0] + X[:, 1] > 0, "a", "b")
    est = fit_classes(X, labels, condition_on=lambda X: X[:, 0] > 0)
    rows = np.array([[1.0, 0.5], [2.0, 0.5], [-1.0, 0.5]])
    with pytest.warns(NoteWarning, match="1 label of 3 is not in classes_"):
        report = dco.Monitor(est).update(rows, ["a", "c", "b"])
    coverage = {watched.condition: watched.coverage for watched in report.conditions}
    assert coverage == {"False": 1, "True": 0.5}


def test_a_label_that_the_fit_does_not_know_is_in_no_condition_of_labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    est = fit_classes(X, np.where(X[:, 0] > rng.normal(size=400), "a", "b"), condition_on="label")
    with pytest.warns(NoteWarning, match="1 label of 3 is not in classes_"):
        report = dco.Monitor(est).update(rng.normal(size=(3, 2)), ["a", "c", "b"])
    assert {watched.condition: watched.rows for watched in report.conditions} == {"a": 1, "b": 1}


def test_hits_among_tied_scores_have_the_probability_of_the_urn():
    """Both calibration scores and the new one are equal: k / (n + 1) = 2 / 3 of such rows hit."""
    rng = np.random.default_rng(0)
    n_runs = 150
    n_misses = 0
    for run in range(n_runs):
        X = rng.normal(size=(50, 1))
        y = np.full(50, 1.0 + run)  # another seed of the ties
        est = dco.DecoupledRegressor(
            FrozenEstimator(Ridge().fit(X, np.zeros(50))),
            dco.scores.AbsoluteResidual(),
            alpha=0.4,
            tune_size=0,
            random_state=0,
        )
        report = dco.Monitor(est.fit(X[:2], y[:2])).update(X[9:10], y[9:10])
        assert report.coverage == 1
        n_misses += report.p_value < 1
    assert binomtest(n_misses, n_runs, 1 / 3).pvalue > 1e-3


def test_full_sets_never_alarm():
    with pytest.warns(dco.InfeasibleLevelWarning):
        est = fit_ridge(40, calibrate_size=8, alpha=0.01)
    report = dco.Monitor(est).update(*draw_rows(3_000, noise=9))
    assert report.coverage == 1.0
    assert report.p_value == 1.0
    assert not report.alarm


def test_full_sets_do_not_hide_labels_that_the_fit_does_not_know():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    with pytest.warns(NoteWarning):
        est = fit_classes(X, np.where(np.arange(60) % 2, "a", "b"), calibrate_size=5)
    assert est.predict_set(X).is_full().all()
    with pytest.warns(NoteWarning, match="20 labels of 30 are not in classes_ and count as misses"):
        report = dco.Monitor(est).update(rng.normal(size=(30, 2)), ["a", "c", "d"] * 10)
    assert report.coverage == 1 / 3
    assert report.p_value < 0.1


def test_a_condition_with_infinite_scores_is_watched():
    """The model never saw its label: thresholds and calibration scores are infinite."""
    rng = np.random.default_rng(0)
    is_rare = np.arange(600) % 100 == 0
    X = np.column_stack([rng.normal(size=600), is_rare])
    y = np.where(is_rare, "c", np.where(X[:, 0] > rng.normal(size=600), "a", "b"))
    train = np.flatnonzero(~is_rare)[:200]
    calibrate = np.setdiff1d(np.arange(600), train)
    est = dco.DecoupledClassifier(
        LogisticRegression(), dco.scores.LAC(), condition_on=1, tune_size=0.2, random_state=0
    )
    with pytest.warns(NoteWarning):
        est.fit(X[train], y[train], calibrate=(X[calibrate], y[calibrate]))
    report = dco.Monitor(est, duplicates="natural").update(X, y)
    coverage = {watched.condition: watched.coverage for watched in report.conditions}
    assert coverage["1.0"] == 1


# ---------------------------------------------------------------- conditions


def draw_conditions(n, *, bad=1.0, seed=0):
    """Draw rows with three conditions, of which the last may be worse than in the fit."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=n), rng.integers(3, size=n)])
    scale = np.where(X[:, 1] == 2, bad, 1.0) * (1 + X[:, 1])
    return X, X[:, 0] + scale * rng.normal(size=n)


@pytest.fixture(scope="module")
def by_condition():
    est = dco.DecoupledRegressor(
        Ridge(), dco.scores.AbsoluteResidual(), condition_on=1, random_state=0
    )
    return est.fit(*draw_conditions(2_000))


def test_each_condition_is_watched_by_its_own_law(by_condition):
    monitor = dco.Monitor(by_condition)
    report = monitor.update(*draw_conditions(900, seed=1))
    assert not report.alarm
    assert {watched.condition for watched in report.conditions} == {"0.0", "1.0", "2.0"}
    assert sum(watched.rows for watched in report.conditions) == 900

    report = monitor.update(*draw_conditions(600, bad=3.0, seed=2))
    assert report.alarm
    bad = [watched.condition for watched in report.conditions if watched.p_value <= 0.05]
    assert bad == ["2.0"]


def test_p_values_of_conditions_account_for_their_number(by_condition):
    """Rows of one condition only: its own evidence is all."""
    X, y = draw_conditions(40, bad=9.0, seed=3)
    report = dco.Monitor(by_condition).update(X[X[:, 1] == 2], y[X[:, 1] == 2])
    p_values = {watched.condition: watched.p_value for watched in report.conditions}
    assert p_values == {"0.0": 1, "1.0": 1, "2.0": 3 * report.p_value}


def test_a_monitor_of_conditions_goes_on_from_its_state(by_condition):
    monitor = dco.Monitor(by_condition)
    report = monitor.update(*draw_conditions(300, seed=1))
    assert dco.Monitor(by_condition, state=monitor.state()).report() == report


# ---------------------------------------------------------------- slices


def draw_slices(n, *, last, seed):
    """Draw rows of three slices with noise of their own; `last` is that of the third."""
    rng = np.random.default_rng(seed)
    part = rng.integers(3, size=n)
    X = rng.normal(size=(n, 3))
    noise = np.array([0.3, 1.0, last])[part]
    return X, X[:, 0] + noise * rng.normal(size=n), np.array(["a", "b", "c"])[part]


def test_a_slice_is_watched_against_its_own_past():
    """Noise of its own is no change; then one slice gets better."""
    est = dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), random_state=0)
    monitor = dco.Monitor(est.fit(*draw_slices(2_000, last=3.0, seed=0)[:2]))
    X, y, by = draw_slices(900, last=3.0, seed=1)
    report = monitor.update(X, y, by=by)
    assert [watched.slice for watched in report.slices] == list(dict.fromkeys(by.tolist()))
    assert all(watched.drift_p_value > 0.05 for watched in report.slices)
    covered = est.predict_set(X).contains(y)
    for watched in report.slices:
        assert watched.coverage == covered[by == watched.slice].mean()

    X, y, by = draw_slices(900, last=1.0, seed=2)
    report = monitor.update_all([(X[:400], y[:400], by[:400]), (X[400:], y[400:], by[400:])])
    assert [watched.slice for watched in report.slices if watched.drift_p_value <= 0.05] == ["c"]
    assert not report.alarm


# ---------------------------------------------------------------- what is refused

NO_LAWS = {
    "clusters": ({}, np.arange(400) // 4, "rows of this fit belong together"),
    "weights": (
        {"weights": lambda X: np.exp(X[:, 0])},
        None,
        "each row has a threshold of its own",
    ),
    "overlapping groups": ({"condition_on": [1, lambda X: X[:, 0] > 0]}, None, "groups overlap"),
}


@pytest.mark.parametrize(("parameters", "groups", "why"), NO_LAWS.values(), ids=NO_LAWS)
def test_a_fit_without_a_law_cannot_be_watched(parameters, groups, why):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    X[:, 1] = X[:, 1] > 0
    est = dco.DecoupledRegressor(
        Ridge(), dco.scores.AbsoluteResidual(), random_state=0, **parameters
    )
    est.fit(X, rng.normal(size=400), groups=groups)
    with pytest.raises(ValueError, match=f"cannot be watched: .*{why}"):
        dco.Monitor(est)


def test_a_fit_that_guarantees_nothing_cannot_be_watched():
    weights = dco.ShiftWeights(lambda X: np.exp(X[:, 0]), estimated=True)
    with pytest.raises(ValueError, match="there is no promise to watch"):
        dco.Monitor(fit_ridge(weights=weights))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"error_rate": 1.5}, "error_rate must be a number strictly between 0 and 1"),
        ({"duplicates": "once"}, 'duplicates must be "drop" or "natural"'),
        ({"run_length": 0}, "run_length is a mean number"),
    ],
    ids=["error rate", "duplicates", "run length"],
)
def test_bad_settings_are_refused(est, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        dco.Monitor(est, **settings)


X5, Y5 = draw_rows(5)


@pytest.mark.parametrize(
    ("y", "by", "sentence"),
    [
        (Y5[:4], None, "X has 5 rows and y has 4"),
        (Y5, ["a", "b"], "X has 5 rows and by has 2"),
        ([math.nan, *Y5[1:]], None, "y is missing in row 0"),
        ([math.inf, *Y5[1:]], None, "y is infinite in row 0"),
        (np.ma.masked_array(Y5, mask=[1, 0, 0, 0, 0]), None, "y is missing in row 0"),
    ],
    ids=["too few targets", "too few slices", "missing", "infinite", "masked"],
)
def test_a_bad_batch_is_refused_and_nothing_of_it_counts(est, y, by, sentence):
    monitor = dco.Monitor(est)
    with pytest.raises(ValueError, match=sentence):
        monitor.update(X5, y, by=by)
    assert monitor.state() == dco.Monitor(est).state()


def test_an_unfitted_estimator_is_refused():
    with pytest.raises(ValueError, match="not fitted"):
        dco.Monitor(dco.DecoupledRegressor(Ridge()))


def test_an_estimator_that_was_fitted_again_needs_a_new_monitor():
    est = fit_ridge(400)
    monitor = dco.Monitor(est)
    est.fit(*draw_rows(400, seed=5))
    with pytest.raises(ValueError, match="fitted again since this monitor began"):
        monitor.update(*draw_rows(5))
