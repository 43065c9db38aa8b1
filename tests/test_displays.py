"""Displays: what is drawn is what the numbers say."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import dco

figures = pytest.importorskip("matplotlib.figure", reason="needs the extra report")


def new_axes() -> Any:
    """Empty axes of a figure of their own, which no window shows."""
    return figures.Figure().subplots()


@pytest.fixture
def ax():
    return new_axes()


@pytest.fixture(scope="module")
def regression():
    """A regressor fitted on 600 rows, and 300 new rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2))
    y = X[:, 0] + rng.normal(size=900)
    est = dco.DecoupledRegressor([Ridge(), Ridge(alpha=1000)], random_state=0)
    est.fit(X[:600], y[:600])
    return est, X[600:], y[600:]


@pytest.fixture(scope="module")
def classification():
    """A classifier of "a", "b$c" and "d" fitted on 600 rows, and 300 new rows."""
    rng = np.random.default_rng(0)
    code = rng.integers(3, size=900)
    X = rng.normal(size=(900, 3)) + 1.5 * np.eye(3)[code]
    y = np.array(["a", "b$c", "d"])[code]
    est = dco.DecoupledClassifier(LogisticRegression(), random_state=0)
    est.fit(X[:600], y[:600])
    return est, X[600:], y[600:]


def line(ax, label):
    """The only line of the legend's name `label`."""
    (artist,) = [artist for artist in ax.lines if artist.get_label() == label]
    return artist


def segments(ax):
    """The ends of the drawn intervals, as an array of [low, high]."""
    (drawn,) = ax.collections
    return np.array([[low, high] for (_, low), (_, high) in drawn.get_segments()])


def texts(labels):
    return [label.get_text() for label in labels]


# ---------------------------------------------------------------------------------------- coverage


def test_a_display_draws_on_the_axes_it_gets(regression, ax):
    est, X, y = regression

    display = dco.CoverageDisplay.from_estimator(est, X, y, ax=ax)

    assert display.ax_ is ax
    assert display.figure_ is ax.figure


def test_coverage_stands_beside_what_was_promised(regression, ax):
    est, X, y = regression

    dco.CoverageDisplay.from_estimator(est, X, y, ax=ax)

    assert line(ax, "promised").get_xdata()[0] == pytest.approx(0.9)
    assert line(ax, "observed on 300 rows").get_xdata()[0] == est.evaluate(X, y).coverage


def test_coverage_stands_beside_its_beta_law(regression, ax):
    est, X, y = regression
    (certified,) = est.certificate_.thresholds

    dco.CoverageDisplay.from_estimator(est, X, y, ax=ax)

    law = f"Beta({certified.rank}, {certified.n + 1 - certified.rank})"
    assert law in texts(ax.get_legend().get_texts())


@pytest.mark.parametrize("fact", ["coverage", "promised", "rank", "n_cal"])
def test_coverage_of_sets_and_their_threshold_is_that_of_the_estimator(regression, fact):
    est, X, y = regression
    threshold = est.predictor_.calibration.conditions[0].threshold

    of_estimator = dco.CoverageDisplay.from_estimator(est, X, y, ax=new_axes())
    of_sets = dco.CoverageDisplay.from_predictions(
        est.predict_set(X), y, threshold=threshold, ax=new_axes()
    )

    assert getattr(of_sets, fact) == getattr(of_estimator, fact)


def test_coverage_by_slice_has_a_dot_for_each(classification, ax):
    est, X, y = classification

    dco.CoverageDisplay.from_estimator(est, X, y, by=y, ax=ax)

    dots = [artist.get_xdata()[0] for artist in ax.lines if artist.get_marker() == "o"]
    assert dots == [row.coverage for row in est.evaluate(X, y, by=y).by_group]


def test_names_of_slices_are_not_read_as_mathematics(classification, ax):
    est, X, y = classification

    dco.CoverageDisplay.from_estimator(est, X, y, by=y, ax=ax)

    assert texts(ax.get_yticklabels()) == ["a", r"b\$c", "d"]


# ------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_every_size_is_counted_once(task, ax, request):
    est, X, y = request.getfixturevalue(task)
    display = dco.SizeDisplay.from_estimator(est, X, y, ax=ax)
    assert display.shares.sum() == pytest.approx(1)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_the_mean_size_is_marked(task, ax, request):
    est, X, y = request.getfixturevalue(task)
    dco.SizeDisplay.from_estimator(est, X, y, ax=ax)
    assert ax.lines[-1].get_xdata()[0] == est.predict_set(X).sizes().mean()


@pytest.mark.parametrize(
    ("task", "label"),
    [("regression", "length of the set"), ("classification", "labels in the set")],
)
def test_the_axis_of_sizes_says_what_is_counted(task, label, ax, request):
    est, X, y = request.getfixturevalue(task)
    dco.SizeDisplay.from_estimator(est, X, y, ax=ax)
    assert ax.get_xlabel() == label


# -------------------------------------------------------------------------------------------- sets


@pytest.fixture(scope="module")
def fifty_intervals(regression):
    """Axes with 50 of 300 intervals, these intervals, and their true values."""
    est, X, y = regression
    ax = new_axes()
    dco.SetsDisplay.from_estimator(est, X, y, most=50, ax=ax)
    rows = np.unique(np.linspace(0, 299, 50).round().astype(int))
    return ax, est.predict_set(X[rows]), y[rows]


def test_intervals_are_drawn_from_end_to_end(fifty_intervals):
    ax, sets, _ = fifty_intervals
    np.testing.assert_allclose(segments(ax), np.stack([sets.lower, sets.upper], axis=1))


@pytest.mark.parametrize("label", ["covered", "missed"])
def test_true_values_are_coloured_by_whether_they_are_covered(fifty_intervals, label):
    ax, sets, y = fifty_intervals
    middles = (sets.lower + sets.upper) / 2
    positions = np.argsort(np.argsort(middles))
    is_drawn = sets.contains(y) == (label == "covered")

    expected = np.stack([positions, y], axis=1)[is_drawn]

    np.testing.assert_array_equal(line(ax, label).get_xydata(), expected)


def test_intervals_along_a_feature_stand_at_its_values(regression, ax):
    est, X, y = regression

    dco.SetsDisplay.from_estimator(est, X, y, feature=1, most=10**6, ax=ax)

    drawn = np.concatenate([artist.get_xdata() for artist in ax.lines])
    assert sorted(drawn) == sorted(X[:, 1])
    assert ax.get_xlabel() == "feature 1"
    assert ax.get_ylabel() == "target"


def test_the_axis_of_targets_has_their_name(regression, ax):
    est, X, y = regression
    dco.SetsDisplay.from_estimator(est, X, pd.Series(y, name="price in $"), ax=ax)
    assert ax.get_ylabel() == r"price in \$"


@pytest.mark.filterwarnings("error")
def test_all_pieces_are_drawn_and_of_empty_sets_nothing(ax):
    pieces = dco.IntervalUnions(
        row_pointers=np.array([0, 2, 2]), lower=np.array([0.0, 3.0]), upper=np.array([1.0, 5.0])
    )
    dco.SetsDisplay.from_predictions(pieces, ax=ax)
    assert segments(ax).tolist() == [[0.0, 1.0], [3.0, 5.0]]


@pytest.mark.filterwarnings("error")
def test_ends_at_infinity_are_drawn_to_the_edge(ax):
    sets = dco.Intervals([-np.inf, 1.0, 3.0], [2.0, np.inf, 2.0])

    dco.SetsDisplay.from_predictions(sets, [0.0, 4.0, 2.0], ax=ax)

    assert segments(ax).tolist() == [[0.0, 2.0], [1.0, 4.0]]
    ax.figure.draw_without_rendering()


def test_label_sets_are_a_grid(ax):
    sets = dco.LabelSets(np.array([[True, False], [True, True]]), classes=np.array(["no", "yes"]))

    dco.SetsDisplay.from_predictions(sets, np.array(["yes", "yes"]), ax=ax)

    (grid,) = ax.collections
    assert grid.get_array().reshape(2, 2).tolist() == [[1.0, 1.0], [0.0, 1.0]]
    assert line(ax, "missed").get_xydata().tolist() == [[0.5, 1.5]]
    assert line(ax, "covered").get_xydata().tolist() == [[1.5, 1.5]]


# ----------------------------------------------------------------------------------------- ranking


def test_a_ranking_is_drawn_best_first(regression, ax):
    est, *_ = regression
    best = est.ranking_.table[:3]

    dco.RankingDisplay.from_estimator(est, most=3, ax=ax)

    assert [bar.get_width() for bar in ax.patches] == [row.mean_size for row in best]
    assert line(ax, "P95 size").get_xdata().tolist() == [row.p95_size for row in best]


def test_candidates_have_their_whole_names_so_that_two_scores_can_be_told_apart(regression, ax):
    est, *_ = regression
    dco.RankingDisplay.from_estimator(est, most=3, ax=ax)
    names = [row.name.replace(" / ", "\n") for row in est.ranking_.table[:3]]
    assert texts(ax.get_yticklabels()) == names


@pytest.mark.filterwarnings("error")
def test_a_ranking_without_candidates_says_so(ax):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    y = X[:, 0] + rng.normal(size=300)
    est = dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), tune_size=0).fit(X, y)

    dco.RankingDisplay.from_estimator(est, ax=ax)

    assert "nothing was compared" in ax.texts[0].get_text()


# ----------------------------------------------------------------------------------------- monitor


def test_a_monitor_shows_its_coverage_and_its_interval(regression, ax):
    est, X, y = regression
    report = dco.Monitor(est).update(X, y)

    display = dco.MonitorDisplay.from_estimator(est, X, y, ax=ax)

    assert display.coverage[-1] == report.coverage
    assert (display.low[-1], display.high[-1]) == report.interval
    assert line(ax, "covered so far").get_ydata()[-1] == report.coverage


def test_a_calm_monitor_shows_no_alarm(regression, ax):
    est, X, y = regression
    assert dco.MonitorDisplay.from_estimator(est, X, y, ax=ax).alarm is None


def test_a_monitor_shows_when_its_alarm_came(regression, ax):
    est, X, y = regression
    monitor = dco.Monitor(est)
    monitor.update(X, y)
    monitor.update(X + 1e-9, y + 20)  # every row since the 301st is missed

    display = dco.MonitorDisplay.from_monitor(monitor, ax=ax)

    assert monitor.report().alarm
    assert 300 < display.alarm < 360


def test_a_monitor_without_rows_is_refused(regression):
    est, *_ = regression
    with pytest.raises(ValueError, match="no rows yet"):
        dco.MonitorDisplay.from_monitor(dco.Monitor(est))


# ----------------------------------------------------------------------------------------- legends


@pytest.mark.parametrize(
    "display",
    [dco.CoverageDisplay, dco.SetsDisplay, dco.RankingDisplay, dco.MonitorDisplay],
    ids=["coverage", "sets", "ranking", "monitor"],
)
def test_a_legend_is_not_cut_at_the_edges_of_a_figure_of_the_usual_size(regression, display):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    est, X, y = regression

    # every row is missed, so that the monitor draws its alarm too
    drawn = display.from_estimator(est, X, y + 20)
    drawn.figure_.canvas.draw()
    legend = drawn.ax_.get_legend().get_window_extent()
    page = drawn.figure_.bbox
    pyplot.close(drawn.figure_)

    assert page.x0 <= legend.x0
    assert legend.x1 <= page.x1
    assert legend.y1 <= page.y1
