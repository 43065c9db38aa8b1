"""Displays: what is drawn is what the numbers say."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import dco
from dco.sets import Intervals, IntervalUnions, LabelSets

figures = pytest.importorskip("matplotlib.figure", reason="needs the extra report")


@pytest.fixture
def ax():
    return figures.Figure().subplots()


@pytest.fixture(scope="module")
def regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2))
    y = X[:, 0] + rng.normal(size=900)
    est = dco.DecoupledRegressor([Ridge(), Ridge(alpha=1000)], random_state=0).fit(X[:600], y[:600])
    return est, X[600:], y[600:]


@pytest.fixture(scope="module")
def classification():
    rng = np.random.default_rng(0)
    code = rng.integers(3, size=900)
    X, y = rng.normal(size=(900, 3)) + 1.5 * np.eye(3)[code], np.array(["a", "b$c", "d"])[code]
    return (
        dco.DecoupledClassifier(LogisticRegression(), random_state=0).fit(X[:600], y[:600]),
        X[600:],
        y[600:],
    )


def line(ax, label):
    (found,) = [each for each in ax.lines if each.get_label() == label]
    return found


def test_coverage_stands_beside_its_law(regression, ax):
    est, X, y = regression
    shown = dco.CoverageDisplay.from_estimator(est, X, y, ax=ax)
    (entry,) = est.certificate_.thresholds
    assert (shown.ax_, shown.figure_) == (ax, ax.figure)
    assert line(ax, "promised").get_xdata()[0] == pytest.approx(0.9)
    assert line(ax, "observed on 300 rows").get_xdata()[0] == est.evaluate(X, y).coverage
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert f"Beta({entry.rank}, {entry.n + 1 - entry.rank})" in names
    given = {
        "threshold": est.predictor_.calibration.conditions[0].threshold,
        "ax": figures.Figure().subplots(),
    }
    other = dco.CoverageDisplay.from_predictions(est.predict_set(X), y, **given)
    assert (other.coverage, other.rank, other.n_cal) == (shown.coverage, shown.rank, shown.n_cal)
    assert other.promised == shown.promised == 0.9


def test_coverage_by_slice_has_a_row_for_each(classification, ax):
    est, X, y = classification
    dco.CoverageDisplay.from_estimator(est, X, y, by=y, ax=ax)
    # no mathematics
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", r"b\$c", "d"]
    dots = [each.get_xdata()[0] for each in ax.lines if each.get_marker() == "o"]
    assert dots == [row.coverage for row in est.evaluate(X, y, by=y).by_group]


@pytest.mark.parametrize(
    ("kind", "label"),
    [("regression", "length of the set"), ("classification", "labels in the set")],
)
def test_sizes_are_counted_once(kind, label, ax, request):
    est, X, y = request.getfixturevalue(kind)
    shown = dco.SizeDisplay.from_estimator(est, X, y, ax=ax)
    assert shown.shares.sum() == pytest.approx(1)
    assert (ax.lines[-1].get_xdata()[0], ax.get_xlabel()) == (
        est.predict_set(X).sizes().mean(),
        label,
    )


def segments(ax):
    (drawn,) = ax.collections
    return np.array([[low, high] for (_, low), (_, high) in drawn.get_segments()])


def test_intervals_are_sorted_and_true_values_coloured_by_whether_they_are_covered(regression, ax):
    est, X, y = regression
    dco.SetsDisplay.from_estimator(est, X, y, most=50, ax=ax)
    rows = np.unique(np.linspace(0, 299, 50).round().astype(int))
    sets, y = est.predict_set(X[rows]), y[rows]
    np.testing.assert_allclose(segments(ax), np.stack([sets.lower, sets.upper], axis=1))
    place, covered = np.argsort(np.argsort((sets.lower + sets.upper) / 2)), sets.contains(y)
    for label, shown in (("covered", covered), ("missed", ~covered)):
        np.testing.assert_array_equal(
            line(ax, label).get_xydata(), np.stack([place, y], axis=1)[shown]
        )


def test_intervals_along_a_feature_stand_at_its_values(regression, ax):
    est, X, y = regression
    dco.SetsDisplay.from_estimator(est, X, y, feature=1, most=10**6, ax=ax)
    assert sorted(np.concatenate([each.get_xdata() for each in ax.lines])) == sorted(X[:, 1])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("feature 1", "target")
    named = dco.SetsDisplay.from_estimator(
        est, X, pd.Series(y, name="price in $"), ax=figures.Figure().subplots()
    )
    assert named.ax_.get_ylabel() == r"price in \$"


@pytest.mark.filterwarnings("error")
def test_pieces_empty_sets_and_ends_at_infinity_are_drawn_as_what_they_are(ax):
    pieces = IntervalUnions(np.array([0, 2, 2]), np.array([0.0, 3.0]), np.array([1.0, 5.0]))
    dco.SetsDisplay.from_predictions(pieces, ax=ax)
    assert segments(ax).tolist() == [[0.0, 1.0], [3.0, 5.0]]
    other = figures.Figure().subplots()
    dco.SetsDisplay.from_predictions(
        Intervals([-np.inf, 1.0, 3.0], [2.0, np.inf, 2.0]), [0.0, 4.0, 2.0], ax=other
    )
    assert segments(other).tolist() == [[0.0, 2.0], [1.0, 4.0]]
    other.figure.draw_without_rendering()


def test_label_sets_are_a_grid(ax):
    sets = LabelSets(np.array([[True, False], [True, True]]), classes=np.array(["no", "yes"]))
    dco.SetsDisplay.from_predictions(sets, np.array(["yes", "yes"]), ax=ax)
    (grid,) = ax.collections
    assert grid.get_array().reshape(2, 2).tolist() == [[1.0, 1.0], [0.0, 1.0]]
    assert line(ax, "missed").get_xydata().tolist() == [[0.5, 1.5]]
    assert line(ax, "covered").get_xydata().tolist() == [[1.5, 1.5]]


def test_a_ranking_is_drawn_best_first(regression, ax):
    est, *_ = regression
    dco.RankingDisplay.from_estimator(est, most=3, ax=ax)
    rows = est.ranking_.table[:3]
    assert [bar.get_width() for bar in ax.patches] == [row.mean_size for row in rows]
    assert line(ax, "P95 size").get_xdata().tolist() == [row.p95_size for row in rows]
    shown = [label.get_text() for label in ax.get_yticklabels()]
    # whole names, so that two scores can be told apart
    assert shown == [row.name.replace(" / ", "\n") for row in rows]


@pytest.mark.filterwarnings("error")
def test_a_ranking_without_candidates_says_so(ax):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    est = dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), tune_size=0)
    dco.RankingDisplay.from_estimator(est.fit(X, X[:, 0] + rng.normal(size=300)), ax=ax)
    assert "nothing was compared" in ax.texts[0].get_text()


def test_a_monitor_shows_its_coverage_interval_and_alarm(regression, ax):
    est, X, y = regression
    calm = dco.MonitorDisplay.from_estimator(est, X, y, ax=ax)
    assert calm.alarm is None
    monitor = dco.Monitor(est)
    report = monitor.update(X, y)
    assert (calm.coverage[-1], (calm.low[-1], calm.high[-1])) == (report.coverage, report.interval)
    assert line(ax, "covered so far").get_ydata()[-1] == report.coverage
    monitor.update(X + 1e-9, y + 20)
    other = dco.MonitorDisplay.from_monitor(monitor, ax=figures.Figure().subplots())
    assert monitor.report().alarm
    assert 300 < other.alarm < 360  # every row since the 301st is missed
    with pytest.raises(ValueError, match="no rows yet"):
        dco.MonitorDisplay.from_monitor(dco.Monitor(est))


def test_a_legend_is_not_cut_at_the_edges_of_a_figure_of_the_usual_size(regression):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    est, X, y = regression
    for kind in (dco.CoverageDisplay, dco.SetsDisplay, dco.RankingDisplay, dco.MonitorDisplay):
        # every row is missed: the monitor draws its alarm too
        shown = kind.from_estimator(est, X, y + 20)
        shown.figure_.canvas.draw()
        box, page = shown.ax_.get_legend().get_window_extent(), shown.figure_.bbox
        assert (page.x0 <= box.x0, box.x1 <= page.x1, box.y1 <= page.y1) == (True, True, True), (
            kind.__name__
        )
        pyplot.close(shown.figure_)
