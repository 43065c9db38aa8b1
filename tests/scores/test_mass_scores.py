"""Scores of predicted quantiles and draws, against closed forms."""

import numpy as np
import pytest
from scipy import stats

import dco
from dco.scores import CentralMass, ShortestMass

LEVELS = np.arange(1, 200) / 200
EXPONENTIAL = dco.QuantileFunction(LEVELS, stats.expon.ppf(LEVELS)[None])
NORMAL = dco.QuantileFunction(LEVELS, stats.norm.ppf(LEVELS)[None])
SCORES = pytest.mark.parametrize(
    "score", [CentralMass(), ShortestMass()], ids=["central", "shortest"]
)


def ends(score, record, threshold):
    """Return the set of the only row."""
    return score.sets(record, threshold)[0]


# ---------------------------------------------------------------- central sets


@pytest.mark.parametrize("half_mass", [0.0, 0.1, 0.4, 0.45])
def test_central_sets_lie_between_two_quantiles(half_mass):
    expected = stats.expon.ppf([0.5 - half_mass, 0.5 + half_mass])

    assert ends(CentralMass(), EXPONENTIAL, half_mass) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("level", [0.005, 0.2, 0.5, 0.9])
def test_the_central_score_is_the_distance_of_the_level_from_one_half(level):
    y = stats.expon.ppf([level])

    assert CentralMass().observed(EXPONENTIAL, y) == pytest.approx(abs(level - 0.5), abs=1e-12)


def test_the_distribution_is_linear_between_quantiles():
    record = dco.QuantileFunction([0.5, 0.7], [[0.0, 10.0]])

    assert CentralMass().observed(record, [2.5]) == pytest.approx(0.05)


def test_the_distribution_goes_on_with_its_average_slope():
    record = dco.QuantileFunction([0.1, 0.2, 0.9], [[0.0, 1.0, 8.0]])

    assert CentralMass().observed(record.take([0, 0]), [10.0, -1.0]) == pytest.approx([0.6, 0.5])


@pytest.mark.parametrize(
    ("y", "expected"), [(0.0, 0.1), (0.5, 0.05), (-1.0, 0.8)], ids=["at", "above", "below"]
)
def test_a_value_with_probability_scores_its_level_nearest_to_one_half(y, expected):
    """0 has the levels from .1 to .4."""
    record = dco.QuantileFunction([0.1, 0.4, 0.5, 0.9], [[0.0, 0.0, 1.0, 2.0]])

    assert CentralMass().observed(record, [y]) == pytest.approx(expected)


# ---------------------------------------------------------------- shortest sets


@pytest.mark.parametrize("mass", [0.2, 0.5, 0.9, 0.95])
def test_shortest_sets_of_an_exponential_begin_at_its_lowest_quantile(mass):
    expected = stats.expon.ppf([0.005, 0.005 + mass])

    assert ends(ShortestMass(), EXPONENTIAL, mass) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("mass", [0.2, 0.5, 0.9, 0.95])
def test_shortest_sets_of_a_normal_are_central(mass):
    expected = stats.norm.ppf([0.5 - mass / 2, 0.5 + mass / 2])

    assert ends(ShortestMass(), NORMAL, mass) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("mass", [0.1, 0.3, 0.6, 0.8, 0.9])
def test_no_interval_of_one_mode_is_shorter(mass):
    """Every interval of the mass between interpolated quantiles is tried."""
    levels = np.linspace(0.02, 0.98, 13)
    values = stats.gamma(2).ppf(levels)
    starts = np.append(levels, levels - mass)
    starts = starts[(starts >= 0.02) & (starts + mass <= 0.98)]
    lengths = np.interp(starts + mass, levels, values) - np.interp(starts, levels, values)

    length = ShortestMass(mass=0.5).sizes(dco.QuantileFunction(levels, [values]), mass)

    assert length == pytest.approx([lengths.min()], abs=1e-12)


def test_the_start_is_the_shortest_interval_of_its_mass_though_there_are_two_modes():
    values = np.quantile([0.0, 0.1, 0.2, 5.0, 5.3, 5.6, 5.9, 6.2, 6.5, 6.8], LEVELS)
    record = dco.QuantileFunction(LEVELS, [values])
    lengths = values[140:] - values[:-140]

    assert ShortestMass(mass=0.7).sizes(record, 0.7) == pytest.approx([lengths.min()])


def test_a_start_of_more_mass_than_the_levels_hold_is_all_of_it():
    record = dco.QuantileFunction([0.25, 0.5, 0.75], [[0.0, 1.0, 3.0]])

    assert ends(ShortestMass(mass=0.8), record, 0.5) == pytest.approx((0, 3))


def test_shortest_sets_grow_on_both_sides_beyond_the_outermost_quantiles():
    record = dco.QuantileFunction([0.1, 0.2, 0.9], [[0.0, 1.0, 8.0]])

    assert ends(ShortestMass(), record, 1.0) == pytest.approx((-1, 9))


@pytest.mark.parametrize("mass", [0.0, 1.0, float("nan")])
def test_a_mass_that_is_none_is_refused(mass):
    with pytest.raises(ValueError, match="between 0 and 1"):
        ShortestMass(mass=mass)


# ---------------------------------------------------------------- both


@SCORES
def test_sets_are_nested(score):
    rng = np.random.default_rng(1)
    record = dco.QuantileFunction(LEVELS, rng.standard_t(2, size=(50, 199)))
    inner = score.sets(record, 0.0)
    for threshold in np.linspace(0.01, 1.3, 60):
        outer = score.sets(record, threshold)
        assert np.all((outer.lower <= inner.lower) & (inner.upper <= outer.upper))
        inner = outer


@SCORES
def test_no_threshold_below_zero_has_a_member(score):
    assert score.sets(NORMAL, -0.1).is_empty().all()


@SCORES
def test_an_infinite_threshold_gives_the_whole_line(score):
    assert score.sets(NORMAL, np.inf).is_full().all()


@SCORES
def test_a_missing_target_has_no_score(score):
    assert np.isnan(score.observed(NORMAL, [np.nan])).all()


@SCORES
def test_sizes_are_the_lengths_of_the_sets(score):
    rng = np.random.default_rng(2)
    record = dco.QuantileFunction(LEVELS, rng.normal(size=(30, 199)))
    thresholds = [0.0, 0.3, 0.8, 1.1]

    sizes = score.sizes_at_several(record, thresholds)

    for size, threshold in zip(sizes, thresholds, strict=True):
        assert size == pytest.approx(score.sets(record, threshold).sizes(), abs=1e-12)


@SCORES
def test_a_row_does_not_depend_on_the_others(score):
    rng = np.random.default_rng(3)
    record = dco.QuantileFunction(LEVELS, rng.normal(size=(30, 199)))
    y = rng.normal(size=30)
    alone = [score.observed(record.take([row]), y[[row]])[0] for row in range(30)]

    assert alone == score.observed(record, y).tolist()


@SCORES
def test_draws_score_as_their_quantiles(score):
    draws = dco.TargetDraws(np.random.default_rng(4).normal(size=(50, 8)))
    y = np.linspace(-2, 2, 8)

    of_quantiles = score.observed(draws.quantile_function(), y)

    assert score.observed(draws, y).tolist() == of_quantiles.tolist()


@SCORES
def test_points_are_refused(score):
    with pytest.raises(dco.IncompatibleScoreError, match="needs QuantileFunction or TargetDraws"):
        score.observed(dco.Points([1.0]), [1.0])
