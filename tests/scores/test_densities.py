"""Densities of Gaussian mixtures: level sets against brute force, scores against closed forms."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.special import logsumexp
from scipy.stats import kstest, norm

from dco import GaussianMixtures, split_conformal
from dco.scores import HighestDensityMass, NormalisedResidual, PredictiveDensity
from dco.scores.densities.chebyshev import cut, interpolate
from dco.scores.densities.level_sets import NODES, level_sets, level_sets_at
from dco.scores.densities.mixtures import distribution, log_density
from dco.scores.densities.pieces import Outlines

DENSITY, MASS = PredictiveDensity(), HighestDensityMass()
both_scores = pytest.mark.parametrize("score", [DENSITY, MASS], ids=["density", "mass"])


def one_row(means: np.ndarray, sds: np.ndarray) -> GaussianMixtures:
    return GaussianMixtures(np.asarray(means)[:, None], sds)


def log_density_of_row(means, sds, y):
    """Return log f at points y by SciPy."""
    points = np.asarray(y, dtype=np.float64)[..., None]
    return logsumexp(norm.logpdf(points, means, sds), axis=-1) - np.log(len(means))


def pieces_by_brute_force(means, sds, level, *, n_points=4001):
    """Find sign changes on a fine grid, finer still around each mean, and polish them: (p, 2)."""
    reach = sds.max() * np.sqrt(max(2 * (-np.log(sds.min()) - level), 1.0)) + sds.max()
    wide = np.linspace(means.min() - reach, means.max() + reach, n_points)
    near_means = means[:, None] + sds[:, None] * np.linspace(-8, 8, 161)
    grid = np.unique(np.concatenate([wide, near_means.ravel()]))

    heights = [log_density_of_row(means, sds, part) for part in np.array_split(grid, 20)]
    is_inside = np.concatenate(heights) >= level
    roots = [
        brentq(
            lambda y: log_density_of_row(means, sds, y) - level, grid[i], grid[i + 1], xtol=1e-13
        )
        for i in np.flatnonzero(is_inside[1:] != is_inside[:-1])
    ]
    return np.reshape(roots, (-1, 2))


def posterior(n, draws, *, spread=0.25, seed=0, own_sds=False):
    """Rows like the posterior predictive of a linear regression: smooth, one mode."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(n, 1)) + spread * rng.normal(size=(n, draws))
    sds = 0.7 * np.exp(0.05 * rng.normal(size=(n, draws) if own_sds else draws))
    return GaussianMixtures(means, sds, draws_first=False)


def awkward_row(seed):
    """Means, sds and a level of one row: up to four clusters, sds up to a factor of 20 apart."""
    rng = np.random.default_rng(seed)
    draws, clusters = int(rng.integers(2, 30)), int(rng.integers(1, 5))
    centres = rng.normal(size=clusters) * rng.choice([0.5, 2, 10])
    of_cluster = centres[rng.integers(0, clusters, draws)]
    noise = rng.normal(size=draws) * rng.choice([0.01, 0.3, 1])
    sds = np.exp(rng.normal(size=draws) * rng.choice([0, 0.1, 1])) * rng.choice([0.1, 1])
    return of_cluster + noise, sds, -float(rng.choice([-0.5, 0, 0.5, 1, 2, 3, 5, 10, 50]))


# --- the density


@pytest.mark.parametrize("own_sds", [False, True])
def test_the_log_density_is_scipys_to_rounding(own_sds):
    mixtures = posterior(50, 70, own_sds=own_sds)
    y = np.linspace(-60, 60, 50)  # far tails included: an unshifted sum would be log(0) there
    sds = mixtures.sds if own_sds else np.tile(mixtures.sds[:, None], 50)
    expected = [log_density_of_row(mixtures.means[:, i], sds[:, i], y[i]) for i in range(50)]
    np.testing.assert_allclose(log_density(mixtures, y), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(DENSITY.observed(mixtures, y), -log_density(mixtures, y))


# --- its level sets


@pytest.mark.parametrize("own_sds", [False, True])
@pytest.mark.parametrize("level", [0.1, -0.7, -1.5, -3.0, -20.0, -400.0])
def test_ends_of_smooth_rows_match_brute_force(own_sds, level):
    """Below 1e-6 is the promise; root finding on the density itself gives 1e-9 of the smallest
    sd.
    """
    mixtures = posterior(8, 60, own_sds=own_sds)
    sets = level_sets(mixtures, np.full(8, level))
    for row in range(8):
        sds = mixtures.sds[:, row] if own_sds else mixtures.sds
        expected = pieces_by_brute_force(mixtures.means[:, row], sds, level)
        assert sets.pieces(row).shape == expected.shape
        np.testing.assert_allclose(sets.pieces(row), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_pieces_of_awkward_rows_match_brute_force(seed):
    means, sds, level = awkward_row(seed)
    pieces = level_sets(one_row(means, sds), np.array([level])).pieces(0)
    expected = pieces_by_brute_force(means, sds, level)
    assert pieces.shape == expected.shape
    np.testing.assert_allclose(pieces, expected, rtol=0, atol=1e-9 * max(1.0, np.abs(means).max()))


def several_levels(seed):
    """Smooth rows or awkward ones; levels above every peak, near the top, far down."""
    rng = np.random.default_rng(seed)
    if seed % 2:
        means, sds, level = awkward_row(seed)
        mixtures = GaussianMixtures(np.stack([means, 1.3 * means], axis=1), sds, draws_first=True)
        steps = np.array([0.5, 0.0, -0.2, -2.0, -9.0])
    else:
        spread = rng.choice([0.1, 0.5, 1.0, 4.0])
        mixtures = posterior(30, 40, spread=spread, seed=seed, own_sds=bool(seed % 4))
        level, steps = -1.0, np.array([3.0, 0.2, 0.0, -0.7, -4.0, -60.0])
    return mixtures, level + steps[:, None] + rng.uniform(-0.1, 0.1, size=(1, len(mixtures)))


@pytest.mark.parametrize("seed", range(30))
def test_several_levels_together_are_those_one_by_one(seed):
    mixtures, levels = several_levels(seed)
    smallest_sd = mixtures.sds.min()
    for level, together in zip(levels, level_sets_at(mixtures, levels), strict=True):
        alone = level_sets(mixtures, level)
        np.testing.assert_array_equal(together.row_pointers, alone.row_pointers)
        scale = max(smallest_sd, 1e-3 * np.abs(alone.lower).max(initial=0.0))
        np.testing.assert_allclose(together.lower, alone.lower, rtol=0, atol=2e-9 * scale)
        np.testing.assert_allclose(together.upper, alone.upper, rtol=0, atol=2e-9 * scale)


@pytest.mark.parametrize("seed", range(6))
def test_sizes_at_several_thresholds_are_those_one_by_one(seed):
    mixtures, levels = several_levels(seed)
    thresholds = [float(-level) for level in levels[:, 0]]
    together = DENSITY.sizes_at_several(mixtures, thresholds)
    alone = [DENSITY.sizes(mixtures, threshold) for threshold in thresholds]
    np.testing.assert_allclose(together, alone, rtol=1e-8, atol=1e-8 * mixtures.sds.min())


def test_several_levels_need_not_be_finite():
    mixtures = posterior(6, 40)
    levels = np.array([np.full(6, -1.0), np.full(6, -np.inf), np.full(6, np.inf)])
    _, whole, nothing = level_sets_at(mixtures, levels)
    assert whole.is_full().all()
    assert nothing.is_empty().all()


def test_several_thresholds_may_be_one_or_none():
    mixtures = posterior(6, 40)
    assert DENSITY.sizes_at_several(mixtures, []).shape == (0, 6)
    one = DENSITY.sizes_at_several(mixtures, [1.5])
    np.testing.assert_array_equal(one[0], DENSITY.sizes(mixtures, 1.5))


@pytest.mark.parametrize("seed", range(20))
def test_the_fast_and_the_certified_search_agree(seed):
    rng = np.random.default_rng(seed)
    mixtures = posterior(20, 40, spread=rng.choice([0.1, 0.5, 1.0]), seed=seed, own_sds=True)
    levels = -rng.uniform(0.3, 6, size=20)
    fast = level_sets(mixtures, levels)
    certified = level_sets(mixtures, levels, nodes=())
    np.testing.assert_array_equal(fast.row_pointers, certified.row_pointers)
    np.testing.assert_allclose(fast.lower, certified.lower, rtol=0, atol=1e-9)
    np.testing.assert_allclose(fast.upper, certified.upper, rtol=0, atol=1e-9)


def test_smooth_rows_are_decided_by_the_fast_search():
    """Otherwise the test of agreement would compare a search with itself."""
    mixtures, levels = posterior(100, 200), np.full(100, -1.5)
    curves, rows = interpolate(
        mixtures, Outlines.of(mixtures, levels), np.arange(100), n_nodes=NODES[-1]
    )
    pieces, undecided = cut(mixtures, curves, levels)
    assert rows.size == undecided.size == 0
    assert len(pieces.rows) == 100


def test_a_needle_beside_a_hill_is_found():
    """One draw in a thousand with an sd of 1e-5, beside wide ones: no grid of a few hundred points
    would see it.
    """
    means, sds = np.concatenate([np.zeros(999), [4.2]]), np.concatenate([np.ones(999), [1e-5]])
    hill, needle = DENSITY.sets(one_row(means, sds), -np.log(0.05)).pieces(0)
    half = np.sqrt(2 * np.log(0.999 * norm.pdf(0) / 0.05))
    np.testing.assert_allclose(hill, [-half, half], atol=1e-9)
    alone = pieces_by_brute_force(means[998:], sds[998:], np.log(0.05) + np.log(500))  # same weight
    np.testing.assert_allclose(needle, alone[-1], atol=1e-8)
    assert np.ptp(needle) < 1e-4


@pytest.mark.parametrize("drop", [1e-2, 1e-4, 1e-6, 1e-7])
def test_a_level_just_below_a_peak(drop):
    mixtures = posterior(1, 50)
    means, sds = mixtures.means[:, 0], mixtures.sds
    mode = minimize_scalar(
        lambda y: -log_density_of_row(means, sds, y),
        bounds=(means.min(), means.max()),
        options={"xatol": 1e-12},
    ).x
    level = log_density_of_row(means, sds, mode) - drop
    expected = [
        brentq(lambda y: log_density_of_row(means, sds, y) - level, mode, mode + side)
        for side in (-1, 1)
    ]
    sets = level_sets(mixtures, np.array([level]))
    np.testing.assert_allclose(sets.pieces(0)[0], expected, rtol=0, atol=1e-8)
    assert level_sets(mixtures, np.array([level + drop + 1e-6])).is_empty().all()


@pytest.mark.parametrize(
    ("shift", "pieces"), [(1e-3, 2), (1e-6, 2), (1e-9, 2), (-1e-9, 1), (-1e-6, 1), (-1e-3, 1)]
)
def test_a_valley_that_touches_the_level(shift, pieces):
    """Two equal modes: just above the valley's depth there are two pieces, just below one."""
    means, sds = np.array([-1.5, 1.5]), np.ones(2)
    depth = log_density_of_row(means, sds, 0.0)
    assert len(level_sets(one_row(means, sds), np.array([depth + shift])).pieces(0)) == pieces


@pytest.mark.parametrize("scale", [1e-150, 1e-9, 1.0, 1e9, 1e150])
@pytest.mark.parametrize("seed", range(6))
def test_units_do_not_matter(scale, seed):
    means, sds, level = awkward_row(seed)
    plain = level_sets(one_row(means, sds), np.array([level]))
    scaled = level_sets(one_row(scale * means, scale * sds), np.array([level - np.log(scale)]))
    np.testing.assert_allclose(scaled.lower / scale, plain.lower, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(scaled.upper / scale, plain.upper, rtol=1e-9, atol=1e-9)


def test_far_from_zero_the_spacing_of_floats_is_the_limit():
    near = posterior(5, 40)
    far = GaussianMixtures(near.means + 1e9, near.sds)
    near_sets, far_sets = (level_sets(mixtures, np.full(5, -1.5)) for mixtures in (near, far))
    np.testing.assert_allclose(far_sets.lower - 1e9, near_sets.lower, rtol=0, atol=1e-6)
    np.testing.assert_allclose(far_sets.upper - 1e9, near_sets.upper, rtol=0, atol=1e-6)


@pytest.mark.parametrize("level", [-1e3, -1e6, -1e12])
def test_a_set_is_never_cut_off(level):
    """At any finite level the set is bounded, and its ends are on the level, however far out."""
    mixtures = posterior(5, 30)
    sets = level_sets(mixtures, np.full(5, level))
    assert np.all(np.isfinite(sets.lower))
    np.testing.assert_allclose(log_density(mixtures, sets.lower), level, rtol=1e-9)
    np.testing.assert_allclose(log_density(mixtures, sets.upper), level, rtol=1e-9)


@pytest.mark.parametrize(("rows", "draws", "most"), [(1250, 2000, 10e6), (60_000, 3, 24e6)])
def test_memory_is_bounded_by_blocks_and_batches(rows, draws, most):
    """20 MB of means: no array of rows x draws x nodes, no second copy. Many rows: a 65-point curve
    of each is 31 MB.
    """
    mixtures = posterior(rows, draws)
    tracemalloc.start()
    sets = level_sets(mixtures, np.full(rows, -1.5))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < most
    assert len(sets.lower) >= 0.98 * rows
    np.testing.assert_allclose(log_density(mixtures, sets.upper, sets.rows()), -1.5, atol=1e-9)


# --- facts that hold for both scores

MIXTURES = {
    "smooth": posterior(40, 30),
    "several modes": posterior(40, 3, spread=3.0, own_sds=True),
    "one Gaussian": posterior(40, 1),
}


@both_scores
@pytest.mark.parametrize("kind", MIXTURES)
def test_membership_is_the_score_compared_with_the_threshold(score, kind):
    """Exactly: at random points, at the ends, one float beside the ends, and for thresholds that
    are themselves scores.
    """
    mixtures = MIXTURES[kind]
    y = mixtures.means[0] + np.random.default_rng(0).normal(size=40)
    scores = score.observed(mixtures, y)
    assert score.sets(mixtures, scores).contains(y).all()
    for threshold in (float(scores[0]), scores, float(np.median(scores)), np.inf, -np.inf, 0.0):
        sets = score.sets(mixtures, threshold)
        hull = sets.hull()
        beyond = np.nextafter(hull.upper, np.inf)
        for value in (y, y.astype(np.float32), hull.lower, hull.upper, beyond):
            expected = score.observed(mixtures, value) <= threshold
            np.testing.assert_array_equal(sets.contains(value), expected)


@both_scores
@settings(max_examples=60)
@given(
    st.integers(0, 10_000),
    st.integers(0, 10_000),
    st.sampled_from([1e-100, 1.0, 1e100]),
    st.booleans(),
)
def test_the_pieces_are_what_membership_says(score, seed, place, scale, single):
    """A point that is not within 1e-7 of an end is in a piece exactly when its score is at most the
    threshold.
    """
    means, sds, _ = awkward_row(seed)
    dtype = np.float32 if single and scale == 1.0 else np.float64
    mixtures = one_row((scale * means).astype(dtype), (scale * sds).astype(dtype))
    rng = np.random.default_rng(place)
    draw = rng.integers(len(means))
    deviation = sds[draw] * rng.normal() * rng.choice([0.1, 1.0, 3.0])
    y = np.array([scale * (means[draw] + deviation)])
    another_y = scale * (means[0] + sds[0] * rng.normal())
    threshold = float(score.observed(mixtures, [another_y])[0])

    sets = score.sets(mixtures, threshold)
    is_member = bool(score.observed(mixtures, y)[0] <= threshold)
    assert bool(sets.contains(y)[0]) == is_member
    lower, upper = sets.pieces(0).T
    assert np.all(lower <= upper)
    assert np.all(lower[1:] > upper[:-1])
    is_near = np.any(np.abs(sets.pieces(0) - y) <= 1e-7 * scale * (1 + np.abs(means).max()))
    assert is_near or np.any((lower <= y) & (y <= upper)) == is_member


@pytest.mark.parametrize(
    ("score", "thresholds", "rounding"),
    [
        (MASS, [-0.5, 0.0, 0.05, 0.3, 0.7, 0.9, 0.99, 1.0, np.inf], 1e-7),
        (DENSITY, [-1.0, 0.7, 1.5, 2.0, 3.0, 10.0, np.inf], 1e-11),
    ],
    ids=["mass", "density"],
)
def test_sets_grow_with_the_threshold(score, thresholds, rounding):
    mixtures = posterior(30, 5, spread=2.0, own_sds=True)
    sizes = np.array([score.sizes(mixtures, threshold) for threshold in thresholds])
    assert np.all(sizes[1:] >= sizes[:-1])
    assert np.all(sizes[0] == 0)
    assert np.all(np.isinf(sizes[-1]))
    points = np.linspace(-4, 4, 30)
    members = np.array([score.sets(mixtures, t).contains(points) for t in thresholds])
    assert np.all(members[1:] >= members[:-1])
    # the ends of sets are rounded outwards
    longer = score.sets(mixtures, thresholds[3]).sizes() - sizes[3]
    assert np.all((longer > 0) & (longer < rounding))


@both_scores
def test_a_row_does_not_depend_on_its_neighbours_its_place_or_its_layout(score):
    mixtures = posterior(300, 400, own_sds=True)
    y = mixtures.means[0]
    scores = score.observed(mixtures, y)
    order = np.random.default_rng(1).permutation(300)
    np.testing.assert_array_equal(score.observed(mixtures.take(order), y[order]), scores[order])
    for row in (0, 7, 299):
        alone = mixtures.take(np.array([row]))
        assert score.observed(alone, y[[row]])[0] == scores[row]

    means = np.ascontiguousarray(mixtures.means)
    means.flags.writeable = False
    sds = np.repeat(mixtures.sds, 2, axis=1)[:, ::2]
    np.testing.assert_array_equal(score.observed(GaussianMixtures(means, sds), y), scores)

    threshold = float(np.median(scores))
    one = score.sets(mixtures.take(np.array([5])), threshold)
    many = score.sets(mixtures, threshold)
    np.testing.assert_array_equal(one.pieces(0), many.pieces(5))


@pytest.mark.parametrize(
    ("score", "far_out"), [(MASS, 1.0), (DENSITY, np.inf)], ids=["mass", "density"]
)
def test_infinite_and_missing_responses(score, far_out):
    scores = score.observed(posterior(3, 20), [np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(scores, [far_out, far_out, np.nan])


# --- closed forms and laws

CENTRES, SCALES = np.array([-2.0, 0.0, 5.0]), np.array([0.1, 1.0, 30.0])
LOG_PEAKS = np.log(SCALES * np.sqrt(2 * np.pi))
one_gaussian = pytest.mark.parametrize("draws", [1, 4])  # T equal draws are one Gaussian


def equal_draws(draws):
    return GaussianMixtures(np.tile(CENTRES, (draws, 1)), np.tile(SCALES, (draws, 1)))


@one_gaussian
@pytest.mark.parametrize("excess", [0.01, 1.0, 5.0, 300.0])
def test_density_sets_of_one_gaussian(draws, excess):
    """The half-width is s sqrt(2 (t - log(s sqrt(2 pi))))."""
    mixtures, half = equal_draws(draws), SCALES * np.sqrt(2 * excess)
    sizes = DENSITY.sizes(mixtures, LOG_PEAKS + excess)
    np.testing.assert_allclose(sizes, 2 * half, rtol=1e-11)
    sets = DENSITY.sets(mixtures, LOG_PEAKS + excess)
    rounding = 1e-13 * (1 + excess) * SCALES**2 / half * 4  # of the score, over its slope
    for beyond in (CENTRES - half - sets.lower, sets.upper - CENTRES - half):
        assert np.all((beyond > 0) & (beyond < rounding))


@one_gaussian
def test_above_its_peak_a_density_has_no_set(draws):
    assert DENSITY.sets(equal_draws(draws), LOG_PEAKS - 1e-9).is_empty().all()


@one_gaussian
@pytest.mark.parametrize("z", [0.0, 0.3, 1.0, 2.5, 5.0])
def test_scores_of_one_gaussian(draws, z):
    """The mass is 2 Phi(z) - 1 and the density's score z^2 / 2 above its least."""
    mixtures = equal_draws(draws)
    masses = MASS.observed(mixtures, CENTRES + z * SCALES)
    np.testing.assert_allclose(masses, 2 * norm.cdf(z) - 1, atol=1e-9)
    scores = DENSITY.observed(mixtures, CENTRES - z * SCALES)
    np.testing.assert_allclose(scores, LOG_PEAKS + z**2 / 2, rtol=1e-12)


@one_gaussian
@pytest.mark.parametrize("mass", [0.01, 0.5, 0.9, 0.999])
def test_highest_density_sets_of_one_gaussian(draws, mass):
    mixtures, half = equal_draws(draws), SCALES * norm.ppf(0.5 + mass / 2)
    np.testing.assert_allclose(MASS.sizes(mixtures, mass), 2 * half, rtol=1e-9)
    sets = MASS.sets(mixtures, mass)
    for beyond in (CENTRES - half - sets.lower, sets.upper - CENTRES - half):
        assert np.all((beyond > 0) & (beyond < 1e-8 * SCALES))  # 4e-9 of the mass that is left


@pytest.mark.parametrize("seed", range(20))
def test_the_mass_is_the_integral_of_the_higher_densities(seed):
    """Against a sum over 400,000 cells of a row with several modes."""
    means, sds, _ = awkward_row(seed)
    y = np.array([means[0] + 0.8 * sds[0]])
    grid = np.linspace((means - 9 * sds).min(), (means + 9 * sds).max(), 400_001)
    density = np.zeros_like(grid)
    for mean, sd in zip(means, sds, strict=True):
        density += norm.pdf(grid, mean, sd) / len(means)
    cell = grid[1] - grid[0]
    expected = np.sum(density[density > np.exp(log_density_of_row(means, sds, y))]) * cell
    # each of the at most 2 T ends is misplaced by at most a cell
    error = 4 * len(means) * cell * density.max() * 0.5 + 1e-12
    assert abs(MASS.observed(one_row(means, sds), y)[0] - expected) <= error


@pytest.mark.parametrize("mass", [1e-3, 0.1, 0.5, 0.8, 0.95, 0.9999, 1 - 1e-12])
def test_highest_density_sets_have_the_mass_asked_for(mass):
    awkward = [one_row(means, sds) for means, sds, _ in map(awkward_row, range(25))]
    smooth = [posterior(20, 100), posterior(20, 6, spread=2.0, own_sds=True)]
    for mixtures in [*smooth, *awkward]:
        sets = MASS.sets(mixtures, mass)
        row = sets.rows()
        of_pieces = distribution(mixtures, sets.upper, row) - distribution(
            mixtures, sets.lower, row
        )
        masses = np.bincount(row, of_pieces, len(mixtures))
        np.testing.assert_allclose(masses, mass, rtol=0, atol=1e-8)
        # one density level a row: nothing of equal mass is shorter
        levels = log_density(mixtures, sets.upper, row)
        np.testing.assert_allclose(levels, levels[sets.row_pointers[:-1]][row], atol=1e-6)


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
    hull = MASS.sets(mixtures, 0.0).hull()
    assert MASS.sizes(mixtures, 0.0).tolist() == [0, 0]
    assert np.all((hull.lower < modes) & (modes < hull.upper) & (hull.sizes() < 1e-6))
    assert MASS.sets(mixtures, 0.0).contains(modes + 1e-9).all()


def draw_from(mixtures, rng):
    """Draw one y from each row's mixture."""
    n_draws, n_rows = mixtures.means.shape
    draw, row = rng.integers(n_draws, size=n_rows), np.arange(n_rows)
    return mixtures.means[draw, row] + mixtures.sds[draw, row] * rng.normal(size=n_rows)


def test_the_mass_of_a_draw_is_uniform():
    """If y comes from the mixture its mass is U(0, 1), several modes included; Kolmogorov-Smirnov
    at 0.001.
    """
    mixtures = posterior(3000, 4, spread=2.0, own_sds=True)
    scores = MASS.observed(mixtures, draw_from(mixtures, np.random.default_rng(2)))
    assert kstest(scores, "uniform").pvalue > 0.001


def test_sizes_are_the_oracle_sizes_and_density_sets_are_the_smallest():
    """Gaussian truth with unequal spreads. At marginal coverage 0.9 the best sets cut all densities
    at one level: their mean width solves E[2 Phi(half / s) - 1] = 0.9 with half = s sqrt(2 (t -
    log(s sqrt(2 pi))))_+. HPD-split gives 2 z s.
    """
    rng = np.random.default_rng(5)
    s = rng.uniform(0.5, 3.0, size=20_000)
    mean = rng.normal(size=20_000)
    y = mean + s * rng.normal(size=20_000)
    truth = GaussianMixtures(mean[None, :], s[None, :])

    def half(t):
        return s * np.sqrt(2 * np.maximum(t - np.log(s * np.sqrt(2 * np.pi)), 0))

    level = brentq(lambda t: np.mean(2 * norm.cdf(half(t) / s) - 1) - 0.9, 0, 20)
    calibrate, new = truth.take(slice(10_000)), truth.take(slice(10_000, None))
    sizes = {}
    for score in (DENSITY, MASS, NormalisedResidual()):
        threshold = split_conformal(score.observed(calibrate, y[:10_000]), alpha=0.1)
        sizes[score] = score.sizes(new, threshold).mean()
        covered = score.sets(new, threshold).contains(y[10_000:]).mean()
        assert abs(covered - 0.9) < 4 * np.sqrt(2 * 0.09 / 10_000)
    assert abs(sizes[DENSITY] / (2 * half(level).mean()) - 1) < 0.03
    assert abs(sizes[MASS] / (2 * norm.ppf(0.95) * s.mean()) - 1) < 0.03
    assert sizes[DENSITY] < sizes[MASS]
    # the same sets, by another road
    np.testing.assert_allclose(sizes[MASS], sizes[NormalisedResidual()], rtol=1e-6)


@both_scores
@pytest.mark.parametrize("draw", range(3))
def test_a_second_mode_that_just_reaches_the_level_is_in_a_piece(score, draw):
    """The threshold is the score of that mode: a peak of no width, right to rounding, belongs to
    the set.
    """
    rng = np.random.default_rng(12)
    means = rng.uniform(0, 9, (200, 3)) + [0, 100, 200]
    sds = rng.uniform(1, 2, (200, 3)) * [1, 3, 9]
    mixtures, modes = GaussianMixtures(means, sds, draws_first=False), means[:, draw]
    thresholds = score.observed(mixtures, modes)
    sets = score.sets(mixtures, thresholds)
    for row, mode in enumerate(modes):
        lower, upper = sets.pieces(row).T
        assert np.any((lower <= mode) & (mode <= upper))
    assert np.all(np.abs(sets.sizes() - score.sizes(mixtures, thresholds)) < 1e-4)
