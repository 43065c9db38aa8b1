"""Densities of Gaussian mixtures: level sets against brute force, scores against closed forms."""

import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.special import logsumexp
from scipy.stats import kstest, norm

from dco import GaussianMixtures, split_conformal
from dco.scores import HighestDensityMass, NormalisedResidual, PredictiveDensity
from dco.scores.densities.level_sets import level_sets

DENSITY = PredictiveDensity()
MASS = HighestDensityMass()
both_scores = pytest.mark.parametrize("score", [DENSITY, MASS], ids=["density", "mass"])
both_kinds_of_sds = pytest.mark.parametrize(
    "sds_by_row", [False, True], ids=["one sd a draw", "sds by row"]
)


@dataclass(frozen=True, eq=False)
class Row:
    """An even mixture of Gaussians, searched by SciPy and without haste."""

    means: np.ndarray
    sds: np.ndarray

    def mixtures(self):
        """Return the row as a prediction of one row."""
        return GaussianMixtures(self.means[:, None], self.sds)

    def times(self, scale):
        """Return the row in other units."""
        return Row(scale * self.means, scale * self.sds)

    def log_density(self, y):
        """Return log f at points y."""
        points = np.asarray(y, dtype=np.float64)[..., None]
        log_sums = logsumexp(norm.logpdf(points, self.means, self.sds), axis=-1)
        return log_sums - np.log(len(self.means))

    def pieces(self, level, *, n_points=4001):
        """Find sign changes on a fine grid, finer still around each mean, and polish them: (p, 2).

        A piece is where log f is at least the level.
        """
        reach_in_sds = np.sqrt(max(2 * (-np.log(self.sds.min()) - level), 1.0)) + 1
        reach = self.sds.max() * reach_in_sds
        wide = np.linspace(self.means.min() - reach, self.means.max() + reach, n_points)
        near_means = self.means[:, None] + self.sds[:, None] * np.linspace(-8, 8, 161)
        grid = np.unique(np.concatenate([wide, near_means.ravel()]))

        heights = [self.log_density(part) for part in np.array_split(grid, 20)]
        is_inside = np.concatenate(heights) >= level
        ends = [
            self.crossing(level, grid[i], grid[i + 1])
            for i in np.flatnonzero(is_inside[1:] != is_inside[:-1])
        ]
        return np.reshape(ends, (-1, 2))

    def crossing(self, level, start, end):
        """Find where log f crosses the level between two points."""
        return brentq(lambda y: self.log_density(y) - level, start, end, xtol=1e-13)


def row_of(mixtures, i):
    """Return one row of a prediction."""
    has_sds_by_row = mixtures.sds.ndim == 2
    return Row(mixtures.means[:, i], mixtures.sds[:, i] if has_sds_by_row else mixtures.sds)


def posterior(n, draws, *, spread=0.25, seed=0, sds_by_row=False):
    """Make rows like the posterior predictive of a linear regression: smooth, one mode."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(n, 1)) + spread * rng.normal(size=(n, draws))
    sds = 0.7 * np.exp(0.05 * rng.normal(size=(n, draws) if sds_by_row else draws))
    return GaussianMixtures(means, sds, draws_first=False)


def awkward_case(seed):
    """Make a row and a level: up to four clusters of means, sds up to a factor of 20 apart."""
    rng = np.random.default_rng(seed)
    n_draws = int(rng.integers(2, 30))
    n_clusters = int(rng.integers(1, 5))
    centres = rng.normal(size=n_clusters) * rng.choice([0.5, 2, 10])
    centre_of_draw = centres[rng.integers(0, n_clusters, n_draws)]
    noise = rng.normal(size=n_draws) * rng.choice([0.01, 0.3, 1])
    sds = np.exp(rng.normal(size=n_draws) * rng.choice([0, 0.1, 1])) * rng.choice([0.1, 1])
    level = -float(rng.choice([-0.5, 0, 0.5, 1, 2, 3, 5, 10, 50]))
    return Row(centre_of_draw + noise, sds), level


# ---------------------------------------------------------------- the density


@both_kinds_of_sds
def test_the_log_density_is_scipys_to_rounding(sds_by_row):
    mixtures = posterior(50, 70, sds_by_row=sds_by_row)
    y = np.linspace(-60, 60, 50)  # far tails included: an unshifted sum would be log(0) there

    scores = DENSITY.observed(mixtures, y)

    expected = [-row_of(mixtures, i).log_density(y[i]) for i in range(50)]
    np.testing.assert_allclose(scores, expected, rtol=1e-13, atol=1e-13)


# ---------------------------------------------------------------- level sets


@both_kinds_of_sds
@pytest.mark.parametrize("level", [0.1, -0.7, -1.5, -3.0, -20.0, -400.0])
@pytest.mark.parametrize("i", range(8))
def test_ends_of_smooth_rows_match_brute_force(i, level, sds_by_row):
    mixtures = posterior(8, 60, sds_by_row=sds_by_row)

    pieces = DENSITY.sets(mixtures, -level).pieces(i)

    expected = row_of(mixtures, i).pieces(level)
    assert pieces.shape == expected.shape
    np.testing.assert_allclose(pieces, expected, rtol=0, atol=1e-9)  # 1e-6 is the promise


@pytest.mark.parametrize("seed", range(60))
def test_pieces_of_awkward_rows_match_brute_force(seed):
    row, level = awkward_case(seed)

    pieces = DENSITY.sets(row.mixtures(), -level).pieces(0)

    expected = row.pieces(level)
    scale = max(1.0, np.abs(row.means).max())
    assert pieces.shape == expected.shape
    np.testing.assert_allclose(pieces, expected, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("seed", range(20))
def test_the_fast_and_the_certified_search_agree(seed):
    rng = np.random.default_rng(seed)
    spread = rng.choice([0.1, 0.5, 1.0])
    mixtures = posterior(20, 40, spread=spread, seed=seed, sds_by_row=True)
    levels = -rng.uniform(0.3, 6, size=20)

    fast = level_sets(mixtures, levels)
    certified = level_sets(mixtures, levels, nodes=())

    np.testing.assert_array_equal(fast.row_pointers, certified.row_pointers)
    np.testing.assert_allclose(fast.lower, certified.lower, rtol=0, atol=1e-9)
    np.testing.assert_allclose(fast.upper, certified.upper, rtol=0, atol=1e-9)


def test_smooth_rows_are_decided_by_the_fast_search():
    """Otherwise the test of agreement would compare a search with itself, bit by bit."""
    mixtures = posterior(100, 200)
    levels = np.full(100, -1.5)

    fast = level_sets(mixtures, levels)
    certified = level_sets(mixtures, levels, nodes=())

    differs = (fast.lower != certified.lower) | (fast.upper != certified.upper)
    assert np.mean(differs) > 0.9


def test_a_needle_beside_a_hill_is_found():
    """One draw in a thousand with an sd of 1e-5: a grid of a few hundred points would miss it."""
    means = np.concatenate([np.zeros(999), [4.2]])
    sds = np.concatenate([np.ones(999), [1e-5]])

    hill, needle = DENSITY.sets(Row(means, sds).mixtures(), -np.log(0.05)).pieces(0)

    half_of_hill = np.sqrt(2 * np.log(0.999 * norm.pdf(0) / 0.05))
    of_same_weight = Row(means[998:], sds[998:]).pieces(np.log(0.05) + np.log(500))
    np.testing.assert_allclose(hill, [-half_of_hill, half_of_hill], atol=1e-9)
    np.testing.assert_allclose(needle, of_same_weight[-1], atol=1e-8)
    assert np.ptp(needle) < 1e-4


@dataclass(frozen=True, eq=False)
class Peak:
    """A row, where its density is highest, and the log density there."""

    row: Row
    mode: float
    level: float


@pytest.fixture(scope="module")
def peak():
    """Find the peak of a smooth row by SciPy."""
    row = row_of(posterior(1, 50), 0)
    mode = minimize_scalar(
        lambda y: -row.log_density(y),
        bounds=(row.means.min(), row.means.max()),
        options={"xatol": 1e-12},
    ).x
    return Peak(row, mode, row.log_density(mode))


@pytest.mark.parametrize("drop", [1e-2, 1e-4, 1e-6, 1e-7])
def test_a_level_just_below_a_peak_has_a_short_piece(peak, drop):
    level = peak.level - drop

    (piece,) = DENSITY.sets(peak.row.mixtures(), -level).pieces(0)

    expected = [
        peak.row.crossing(level, peak.mode, peak.mode - 1),
        peak.row.crossing(level, peak.mode, peak.mode + 1),
    ]
    np.testing.assert_allclose(piece, expected, rtol=0, atol=1e-8)


def test_a_level_just_above_a_peak_has_an_empty_set(peak):
    assert DENSITY.sets(peak.row.mixtures(), -(peak.level + 1e-6)).is_empty().all()


@pytest.mark.parametrize(
    ("shift", "n_pieces"), [(1e-3, 2), (1e-6, 2), (1e-9, 2), (-1e-9, 1), (-1e-6, 1), (-1e-3, 1)]
)
def test_a_valley_parts_two_modes_only_above_its_depth(shift, n_pieces):
    row = Row(np.array([-1.5, 1.5]), np.ones(2))
    depth = row.log_density(0.0)

    pieces = DENSITY.sets(row.mixtures(), -(depth + shift)).pieces(0)

    assert len(pieces) == n_pieces


@pytest.mark.parametrize("scale", [1e-150, 1e-9, 1.0, 1e9, 1e150])
@pytest.mark.parametrize("seed", range(6))
def test_units_do_not_matter(scale, seed):
    row, level = awkward_case(seed)

    plain = DENSITY.sets(row.mixtures(), -level)
    scaled = DENSITY.sets(row.times(scale).mixtures(), np.log(scale) - level)

    np.testing.assert_allclose(scaled.lower / scale, plain.lower, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(scaled.upper / scale, plain.upper, rtol=1e-9, atol=1e-9)


def test_far_from_zero_the_spacing_of_floats_is_the_limit():
    near = posterior(5, 40)
    far = GaussianMixtures(near.means + 1e9, near.sds)

    near_sets = DENSITY.sets(near, 1.5)
    far_sets = DENSITY.sets(far, 1.5)

    np.testing.assert_allclose(far_sets.lower - 1e9, near_sets.lower, rtol=0, atol=1e-6)
    np.testing.assert_allclose(far_sets.upper - 1e9, near_sets.upper, rtol=0, atol=1e-6)


@pytest.mark.parametrize("threshold", [1e3, 1e6, 1e12])
def test_a_set_is_never_cut_off(threshold):
    mixtures = posterior(5, 30)

    sets = DENSITY.sets(mixtures, threshold)

    assert np.all(np.isfinite(sets.lower))
    np.testing.assert_allclose(DENSITY.observed(mixtures, sets.lower), threshold, rtol=1e-9)
    np.testing.assert_allclose(DENSITY.observed(mixtures, sets.upper), threshold, rtol=1e-9)


@pytest.mark.parametrize(
    ("n_rows", "n_draws", "limit"),
    [(1250, 2000, 10e6), (60_000, 3, 24e6)],
    ids=["20 MB of means", "31 MB of curves"],
)
def test_memory_is_bounded_by_blocks_and_batches(n_rows, n_draws, limit):
    """No second copy of the means, and no 65-point curve of every row at once."""
    mixtures = posterior(n_rows, n_draws)

    tracemalloc.start()
    sizes = DENSITY.sizes(mixtures, 1.5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < limit
    assert np.mean(sizes > 0) >= 0.98


# ---------------------------------------------------------------- several levels


def several_levels(seed):
    """Make mixtures and levels (J, n): above every peak, near the top, far down.

    Rows are awkward for odd seeds, and smooth for even ones.
    """
    rng = np.random.default_rng(seed)
    if seed % 2:
        row, level = awkward_case(seed)
        means = np.stack([row.means, 1.3 * row.means], axis=1)
        mixtures = GaussianMixtures(means, row.sds, draws_first=True)
        steps = np.array([0.5, 0.0, -0.2, -2.0, -9.0])
    else:
        level = -1.0
        spread = rng.choice([0.1, 0.5, 1.0, 4.0])
        mixtures = posterior(30, 40, spread=spread, seed=seed, sds_by_row=bool(seed % 4))
        steps = np.array([3.0, 0.2, 0.0, -0.7, -4.0, -60.0])
    return mixtures, level + steps[:, None] + rng.uniform(-0.1, 0.1, size=(1, len(mixtures)))


@pytest.mark.parametrize("seed", range(30))
def test_sizes_at_several_thresholds_of_rows_are_those_one_by_one(seed):
    mixtures, levels = several_levels(seed)

    together = DENSITY.sizes_at_several(mixtures, -levels)

    alone = np.array([DENSITY.sizes(mixtures, -level) for level in levels])
    scale = max(mixtures.sds.min(), 1e-3 * alone.max())
    np.testing.assert_array_equal(together > 0, alone > 0)
    np.testing.assert_allclose(together, alone, rtol=0, atol=4e-9 * scale)


@pytest.mark.parametrize("seed", range(6))
def test_sizes_at_several_thresholds_are_those_one_by_one(seed):
    mixtures, levels = several_levels(seed)
    thresholds = [float(-level) for level in levels[:, 0]]

    together = DENSITY.sizes_at_several(mixtures, thresholds)

    alone = [DENSITY.sizes(mixtures, threshold) for threshold in thresholds]
    np.testing.assert_allclose(together, alone, rtol=1e-8, atol=1e-8 * mixtures.sds.min())


def test_several_thresholds_need_not_be_finite():
    finite, whole, nothing = DENSITY.sizes_at_several(posterior(6, 40), [1.0, np.inf, -np.inf])

    assert np.all(np.isfinite(finite))
    assert np.all(np.isinf(whole))
    assert np.all(nothing == 0)


def test_several_thresholds_may_be_one():
    mixtures = posterior(6, 40)

    (sizes,) = DENSITY.sizes_at_several(mixtures, [1.5])

    np.testing.assert_array_equal(sizes, DENSITY.sizes(mixtures, 1.5))


def test_several_thresholds_may_be_none():
    assert DENSITY.sizes_at_several(posterior(6, 40), []).shape == (0, 6)


# ---------------------------------------------------------------- both scores

MIXTURES = {
    "smooth": posterior(40, 30),
    "several modes": posterior(40, 3, spread=3.0, sds_by_row=True),
    "one Gaussian": posterior(40, 1),
}
kinds_of_mixtures = pytest.mark.parametrize("mixtures", MIXTURES.values(), ids=MIXTURES.keys())


def points_near(mixtures):
    """Draw a point near each row's first mean."""
    return mixtures.means[0] + np.random.default_rng(0).normal(size=len(mixtures))


@both_scores
@kinds_of_mixtures
@pytest.mark.parametrize(
    "threshold_of",
    [
        lambda scores: float(scores[0]),
        lambda scores: scores,
        lambda scores: float(np.median(scores)),
        lambda _: np.inf,
        lambda _: -np.inf,
        lambda _: 0.0,
    ],
    ids=["a score", "all scores", "median", "infinite", "minus infinite", "zero"],
)
def test_membership_is_the_score_compared_with_the_threshold(score, mixtures, threshold_of):
    """Exactly: at random points, at the ends, and one float beside the ends."""
    y = points_near(mixtures)
    threshold = threshold_of(score.observed(mixtures, y))

    sets = score.sets(mixtures, threshold)

    hull = sets.hull()
    beyond = np.nextafter(hull.upper, np.inf)
    points = [y, y.astype(np.float32), hull.lower, hull.upper, beyond]
    expected = [score.observed(mixtures, values) <= threshold for values in points]
    np.testing.assert_array_equal([sets.contains(values) for values in points], expected)


@both_scores
@kinds_of_mixtures
def test_a_point_is_in_the_set_at_its_own_score(score, mixtures):
    y = points_near(mixtures)

    sets = score.sets(mixtures, score.observed(mixtures, y))

    assert sets.contains(y).all()


@both_scores
@settings(max_examples=60)
@given(
    seed_of_row=st.integers(0, 10_000),
    seed_of_point=st.integers(0, 10_000),
    scale=st.sampled_from([1e-100, 1.0, 1e100]),
    is_single=st.booleans(),
)
def test_the_pieces_are_what_membership_says(score, seed_of_row, seed_of_point, scale, is_single):
    """A point that is not within 1e-7 of an end is in a piece exactly when it is a member."""
    plain_row, _ = awkward_case(seed_of_row)
    row = plain_row.times(scale)
    dtype = np.float32 if is_single and scale == 1.0 else np.float64
    mixtures = Row(row.means.astype(dtype), row.sds.astype(dtype)).mixtures()
    rng = np.random.default_rng(seed_of_point)
    draw = rng.integers(len(row.means))
    y = row.means[draw] + row.sds[draw] * rng.normal() * rng.choice([0.1, 1.0, 3.0])
    another_y = row.means[0] + row.sds[0] * rng.normal()
    threshold = float(score.observed(mixtures, [another_y])[0])

    sets = score.sets(mixtures, threshold)

    pieces = sets.pieces(0)
    lower, upper = pieces.T
    is_member = bool(score.observed(mixtures, [y])[0] <= threshold)
    is_in_a_piece = bool(np.any((lower <= y) & (y <= upper)))
    largest = scale * (1 + np.abs(plain_row.means).max())
    is_near_an_end = np.any(np.abs(pieces - y) <= 1e-7 * largest)
    assert bool(sets.contains([y])[0]) == is_member
    assert is_near_an_end or is_in_a_piece == is_member
    assert np.all(lower <= upper)
    assert np.all(lower[1:] > upper[:-1])


all_thresholds = pytest.mark.parametrize(
    ("score", "thresholds"),
    [
        (DENSITY, [-1.0, 0.7, 1.5, 2.0, 3.0, 10.0, np.inf]),
        (MASS, [-0.5, 0.0, 0.05, 0.3, 0.7, 0.9, 0.99, 1.0, np.inf]),
    ],
    ids=["density", "mass"],
)


@pytest.fixture(scope="module")
def several_modes():
    """Make rows of five draws, most with more than one mode."""
    return posterior(30, 5, spread=2.0, sds_by_row=True)


@all_thresholds
def test_sizes_grow_with_the_threshold_from_nothing_to_the_line(several_modes, score, thresholds):
    sizes = np.array([score.sizes(several_modes, threshold) for threshold in thresholds])

    assert np.all(sizes[1:] >= sizes[:-1])
    assert np.all(sizes[0] == 0)
    assert np.all(np.isinf(sizes[-1]))


@all_thresholds
def test_members_stay_members_as_the_threshold_grows(several_modes, score, thresholds):
    points = np.linspace(-4, 4, 30)

    members = np.array([score.sets(several_modes, t).contains(points) for t in thresholds])

    assert np.all(members[1:] >= members[:-1])


@pytest.mark.parametrize(
    ("score", "threshold", "rounding"),
    [(DENSITY, 2.0, 1e-11), (MASS, 0.3, 1e-7)],
    ids=["density", "mass"],
)
def test_ends_of_sets_are_rounded_outwards(several_modes, score, threshold, rounding):
    sizes = score.sizes(several_modes, threshold)

    longer = score.sets(several_modes, threshold).sizes() - sizes

    assert np.all((longer > 0) & (longer < rounding))


@pytest.fixture(scope="module")
def many_rows():
    """Make rows that take several blocks."""
    return posterior(300, 400, sds_by_row=True)


@both_scores
def test_a_score_does_not_depend_on_the_order_of_rows(many_rows, score):
    y = many_rows.means[0]
    order = np.random.default_rng(1).permutation(300)

    reordered = score.observed(many_rows.take(order), y[order])

    np.testing.assert_array_equal(reordered, score.observed(many_rows, y)[order])


@both_scores
@pytest.mark.parametrize("i", [0, 7, 299])
def test_a_score_does_not_depend_on_other_rows(many_rows, score, i):
    y = many_rows.means[0]

    (alone,) = score.observed(many_rows.take(np.array([i])), y[[i]])

    assert alone == score.observed(many_rows, y)[i]


@both_scores
def test_a_set_does_not_depend_on_other_rows(many_rows, score):
    threshold = float(np.median(score.observed(many_rows, many_rows.means[0])))

    alone = score.sets(many_rows.take(np.array([5])), threshold)

    np.testing.assert_array_equal(alone.pieces(0), score.sets(many_rows, threshold).pieces(5))


@both_scores
def test_a_score_does_not_depend_on_the_layout_of_arrays(many_rows, score):
    y = many_rows.means[0]
    means = np.ascontiguousarray(many_rows.means)
    means.flags.writeable = False
    sds = np.repeat(many_rows.sds, 2, axis=1)[:, ::2]

    scores = score.observed(GaussianMixtures(means, sds), y)

    np.testing.assert_array_equal(scores, score.observed(many_rows, y))


@pytest.mark.parametrize(
    ("score", "far_out"), [(MASS, 1.0), (DENSITY, np.inf)], ids=["mass", "density"]
)
def test_infinite_targets_are_far_out_and_missing_ones_have_no_score(score, far_out):
    scores = score.observed(posterior(3, 20), [np.inf, -np.inf, np.nan])

    np.testing.assert_array_equal(scores, [far_out, far_out, np.nan])


@both_scores
@pytest.mark.parametrize("draw", range(3))
def test_a_second_mode_that_just_reaches_the_level_is_in_a_piece(score, draw):
    """The threshold is the score of that mode: a peak of no width, right to rounding."""
    rng = np.random.default_rng(12)
    means = rng.uniform(0, 9, (200, 3)) + [0, 100, 200]
    sds = rng.uniform(1, 2, (200, 3)) * [1, 3, 9]
    mixtures = GaussianMixtures(means, sds, draws_first=False)
    modes = means[:, draw]
    thresholds = score.observed(mixtures, modes)

    sets = score.sets(mixtures, thresholds)

    mode_of_piece = modes[sets.rows()]
    holds_mode = (sets.lower <= mode_of_piece) & (mode_of_piece <= sets.upper)
    assert np.all(np.bincount(sets.rows(), holds_mode, minlength=200) == 1)
    assert np.all(np.abs(sets.sizes() - score.sizes(mixtures, thresholds)) < 1e-4)


# ---------------------------------------------------------------- closed forms: one Gaussian

CENTRES = np.array([-2.0, 0.0, 5.0])
SCALES = np.array([0.1, 1.0, 30.0])
LOG_PEAKS = np.log(SCALES * np.sqrt(2 * np.pi))


@pytest.fixture(params=[1, 4], ids=["one draw", "equal draws"])
def gaussians(request):
    """Make three rows of one Gaussian each, also as four draws that are equal."""
    n_draws = request.param
    return GaussianMixtures(np.tile(CENTRES, (n_draws, 1)), np.tile(SCALES, (n_draws, 1)))


@pytest.mark.parametrize("excess", [0.01, 1.0, 5.0, 300.0])
def test_density_sets_of_one_gaussian(gaussians, excess):
    """The half-width is s sqrt(2 (t - log(s sqrt(2 pi))))."""
    half = SCALES * np.sqrt(2 * excess)

    sizes = DENSITY.sizes(gaussians, LOG_PEAKS + excess)

    np.testing.assert_allclose(sizes, 2 * half, rtol=1e-11)


@pytest.mark.parametrize("excess", [0.01, 1.0, 5.0, 300.0])
def test_ends_of_density_sets_move_out_by_the_rounding_of_the_score(gaussians, excess):
    half = SCALES * np.sqrt(2 * excess)

    sets = DENSITY.sets(gaussians, LOG_PEAKS + excess)

    beyond = np.array([CENTRES - half - sets.lower, sets.upper - CENTRES - half])
    rounding = 1e-13 * (1 + excess) * SCALES**2 / half * 4  # of the score, over its slope
    assert np.all((beyond > 0) & (beyond < rounding))


def test_above_its_peak_a_density_has_no_set(gaussians):
    assert DENSITY.sets(gaussians, LOG_PEAKS - 1e-9).is_empty().all()


@pytest.mark.parametrize("z", [0.0, 0.3, 1.0, 2.5, 5.0])
def test_density_scores_of_one_gaussian(gaussians, z):
    scores = DENSITY.observed(gaussians, CENTRES - z * SCALES)

    np.testing.assert_allclose(scores, LOG_PEAKS + z**2 / 2, rtol=1e-12)


@pytest.mark.parametrize("z", [0.0, 0.3, 1.0, 2.5, 5.0])
def test_masses_of_one_gaussian(gaussians, z):
    masses = MASS.observed(gaussians, CENTRES + z * SCALES)

    np.testing.assert_allclose(masses, 2 * norm.cdf(z) - 1, atol=1e-9)


@pytest.mark.parametrize("mass", [0.01, 0.5, 0.9, 0.999])
def test_highest_density_sets_of_one_gaussian(gaussians, mass):
    half = SCALES * norm.ppf(0.5 + mass / 2)

    sizes = MASS.sizes(gaussians, mass)

    np.testing.assert_allclose(sizes, 2 * half, rtol=1e-9)


@pytest.mark.parametrize("mass", [0.01, 0.5, 0.9, 0.999])
def test_ends_of_highest_density_sets_move_out_by_the_rounding_of_the_mass(gaussians, mass):
    half = SCALES * norm.ppf(0.5 + mass / 2)

    sets = MASS.sets(gaussians, mass)

    beyond = np.array([CENTRES - half - sets.lower, sets.upper - CENTRES - half])
    assert np.all((beyond > 0) & (beyond < 1e-8 * SCALES))  # 4e-9 of the mass outside


# ---------------------------------------------------------------- masses of mixtures


@pytest.mark.parametrize("seed", range(20))
def test_the_mass_is_the_integral_of_the_higher_densities(seed):
    """Against a sum over 400,000 cells of a row with several modes."""
    row, _ = awkward_case(seed)
    y = row.means[0] + 0.8 * row.sds[0]
    outermost = [(row.means - 9 * row.sds).min(), (row.means + 9 * row.sds).max()]
    grid = np.linspace(*outermost, 400_001)
    cell = grid[1] - grid[0]
    density = np.concatenate([np.exp(row.log_density(part)) for part in np.array_split(grid, 20)])

    (mass,) = MASS.observed(row.mixtures(), [y])

    expected = np.sum(density[density > np.exp(row.log_density(y))]) * cell
    # each of the at most 2 T ends is misplaced by at most a cell
    error = 4 * len(row.means) * cell * density.max() * 0.5 + 1e-12
    assert abs(mass - expected) <= error


@pytest.fixture(scope="module")
def rows_of_all_kinds():
    """Make predictions of smooth rows, rows with several modes, and awkward rows."""
    smooth = posterior(20, 100)
    with_several_modes = posterior(20, 6, spread=2.0, sds_by_row=True)
    awkward = [awkward_case(seed)[0].mixtures() for seed in range(25)]
    return [smooth, with_several_modes, *awkward]


def mass_of_pieces(row, pieces):
    """Return the probability that a row gives to pieces, by SciPy."""
    of_ends = norm.cdf(pieces[..., None], row.means, row.sds).mean(axis=-1)
    return np.sum(of_ends[:, 1] - of_ends[:, 0])


masses_asked_for = pytest.mark.parametrize("mass", [1e-3, 0.1, 0.5, 0.8, 0.95, 0.9999, 1 - 1e-12])


@masses_asked_for
def test_highest_density_sets_have_the_mass_asked_for(rows_of_all_kinds, mass):
    masses = []
    for mixtures in rows_of_all_kinds:
        sets = MASS.sets(mixtures, mass)
        masses += [mass_of_pieces(row_of(mixtures, i), sets.pieces(i)) for i in range(len(sets))]

    np.testing.assert_allclose(masses, mass, rtol=0, atol=1e-8)


@masses_asked_for
def test_all_ends_of_a_highest_density_set_have_one_density(rows_of_all_kinds, mass):
    """So nothing of equal mass is shorter."""
    ranges = []
    for mixtures in rows_of_all_kinds:
        sets = MASS.sets(mixtures, mass)
        ranges += [
            np.ptp(row_of(mixtures, i).log_density(sets.pieces(i))) for i in range(len(sets))
        ]

    np.testing.assert_allclose(ranges, 0, atol=1e-6)


@pytest.mark.parametrize("t", [1.0, 2.0, np.inf])
def test_all_the_mass_is_the_whole_line(t):
    assert MASS.sets(posterior(3, 10), t).is_full().all()


@pytest.mark.parametrize("t", [-1e-9, -np.inf])
def test_less_than_no_mass_is_nothing(t):
    assert MASS.sets(posterior(3, 10), t).is_empty().all()


def test_all_but_a_float_of_the_mass_is_bounded():
    assert not MASS.sets(posterior(3, 10), 1 - 1e-15).is_infinite().any()


def test_no_mass_is_the_mode_of_one_gaussian():
    """To rounding: next to its mode a density is flat, so that a few floats have the mass 0."""
    modes = np.array([1.5, -0.25])
    mixtures = GaussianMixtures(modes[None, :], [0.7])

    sets = MASS.sets(mixtures, 0.0)

    hull = sets.hull()
    assert MASS.sizes(mixtures, 0.0).tolist() == [0, 0]
    assert np.all((hull.lower < modes) & (modes < hull.upper) & (hull.sizes() < 1e-6))
    assert sets.contains(modes + 1e-9).all()


# ---------------------------------------------------------------- laws


def draw_from(mixtures, rng):
    """Draw one y from each row's mixture."""
    n_draws, n_rows = mixtures.means.shape
    draw = rng.integers(n_draws, size=n_rows)
    row = np.arange(n_rows)
    return mixtures.means[draw, row] + mixtures.sds[draw, row] * rng.normal(size=n_rows)


def test_the_mass_of_a_draw_is_uniform():
    """Several modes included; Kolmogorov-Smirnov at an error rate of 0.001."""
    mixtures = posterior(3000, 4, spread=2.0, sds_by_row=True)

    masses = MASS.observed(mixtures, draw_from(mixtures, np.random.default_rng(2)))

    assert kstest(masses, "uniform").pvalue > 0.001


class GaussianTruth:
    """20,000 rows whose spreads differ; the prediction is the truth, and half of them calibrate."""

    def __init__(self):
        rng = np.random.default_rng(5)
        self.sds = rng.uniform(0.5, 3.0, size=20_000)
        means = rng.normal(size=20_000)
        self.y = means + self.sds * rng.normal(size=20_000)
        self.mixtures = GaussianMixtures(means[None, :], self.sds[None, :])

    def calibrated_sets(self, score):
        """Return the sets of the other half at a coverage of 0.9."""
        scores = score.observed(self.mixtures.take(slice(10_000)), self.y[:10_000])
        threshold = split_conformal(scores, alpha=0.1)
        return score.sets(self.mixtures.take(slice(10_000, None)), threshold)

    def mean_size(self, score):
        return self.calibrated_sets(score).sizes().mean()

    def smallest_mean_size(self):
        """Return the least mean size of sets with coverage 0.9: they cut densities at one level.

        The level t solves E[2 Phi(half / s) - 1] = 0.9, half = s sqrt(2 (t - log(s sqrt(2 pi))))_+.
        """

        def half(t):
            excess = t - np.log(self.sds * np.sqrt(2 * np.pi))
            return self.sds * np.sqrt(2 * np.maximum(excess, 0))

        def surplus(t):
            return np.mean(2 * norm.cdf(half(t) / self.sds) - 1) - 0.9

        return 2 * half(brentq(surplus, 0, 20)).mean()


@pytest.fixture(scope="module")
def truth():
    return GaussianTruth()


@pytest.mark.parametrize(
    "score", [DENSITY, MASS, NormalisedResidual()], ids=["density", "mass", "residual"]
)
def test_calibrated_sets_cover_at_their_level(truth, score):
    """Within four standard errors of both halves together."""
    coverage = truth.calibrated_sets(score).contains(truth.y[10_000:]).mean()

    assert abs(coverage - 0.9) < 4 * np.sqrt(2 * 0.09 / 10_000)


def test_density_sets_have_the_smallest_mean_size(truth):
    assert truth.mean_size(DENSITY) == pytest.approx(truth.smallest_mean_size(), rel=0.03)


def test_highest_density_sets_have_the_size_of_each_rows_interval(truth):
    assert truth.mean_size(MASS) == pytest.approx(2 * norm.ppf(0.95) * truth.sds.mean(), rel=0.03)


def test_density_sets_are_smaller_than_highest_density_sets(truth):
    assert truth.mean_size(DENSITY) < truth.mean_size(MASS)


def test_masses_and_normalised_residuals_give_the_same_sizes_for_gaussians(truth):
    assert truth.mean_size(MASS) == pytest.approx(truth.mean_size(NormalisedResidual()), rel=1e-6)
