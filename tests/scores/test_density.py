import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.special import logsumexp
from scipy.stats import kstest, norm

import dco.scores.level_sets
from dco.calibration import split_conformal
from dco.predictions import GaussianMixtures
from dco.scores import density
from dco.scores.density import HighestDensityMass, PredictiveDensity
from dco.scores.level_sets import level_sets, level_sets_at
from dco.scores.mixtures import distribution, log_density
from dco.scores.regression import NormalisedResidual

DENSITY, MASS = PredictiveDensity(), HighestDensityMass()
both = pytest.mark.parametrize("score", [DENSITY, MASS], ids=["density", "mass"])


def reference(mu, s, y):
    """log f at points y by SciPy, one row."""
    return logsumexp(
        norm.logpdf(np.asarray(y, dtype=np.float64)[..., None], mu, s), axis=-1
    ) - np.log(len(mu))


def brute_force(mu, s, level, points=4001):
    """The level set of one row by sign changes on a fine grid, finer still around each mean, and
    brentq: (p, 2).
    """
    reach = s.max() * np.sqrt(max(2 * (-np.log(s.min()) - level), 1.0)) + s.max()
    local = (mu[:, None] + s[:, None] * np.linspace(-8, 8, 161)).ravel()
    grid = np.unique(
        np.concatenate([np.linspace(mu.min() - reach, mu.max() + reach, points), local])
    )
    inside = np.concatenate([reference(mu, s, part) for part in np.array_split(grid, 20)]) >= level
    places = np.flatnonzero(inside[1:] != inside[:-1])
    roots = [
        brentq(lambda y: reference(mu, s, y) - level, grid[i], grid[i + 1], xtol=1e-13)
        for i in places
    ]
    return np.reshape(roots, (-1, 2))


def posterior(n, draws, *, spread=0.25, seed=0, rowwise=False):
    """Rows like the posterior predictive of a linear regression: smooth, one mode."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(n, 1)) + spread * rng.normal(size=(n, draws))
    sds = 0.7 * np.exp(0.05 * rng.normal(size=(n, draws) if rowwise else draws))
    return GaussianMixtures(means, sds)


def awkward(seed):
    """One row with up to four clusters of means, sds up to a factor of 20 apart."""
    rng = np.random.default_rng(seed)
    draws, clusters = int(rng.integers(2, 30)), int(rng.integers(1, 5))
    centres = rng.normal(size=clusters) * rng.choice([0.5, 2, 10])
    mu = centres[rng.integers(0, clusters, draws)] + rng.normal(size=draws) * rng.choice(
        [0.01, 0.3, 1]
    )
    s = np.exp(rng.normal(size=draws) * rng.choice([0, 0.1, 1])) * rng.choice([0.1, 1])
    return mu, s, -float(rng.choice([-0.5, 0, 0.5, 1, 2, 3, 5, 10, 50]))


# --- the density and its level sets


@pytest.mark.parametrize("rowwise", [False, True])
def test_the_log_density_is_scipys_to_rounding(rowwise):
    mixtures = posterior(50, 70, rowwise=rowwise)
    y = np.linspace(-60, 60, 50)  # far tails included: an unshifted sum would be log(0) there
    expected = [
        reference(mixtures.means[i], mixtures.sds[i] if rowwise else mixtures.sds, y[i])
        for i in range(50)
    ]
    np.testing.assert_allclose(log_density(mixtures, y), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(
        DENSITY.observed(mixtures, y), -np.array(expected), rtol=1e-13, atol=1e-13
    )


@pytest.mark.parametrize("rowwise", [False, True])
@pytest.mark.parametrize("level", [0.1, -0.7, -1.5, -3.0, -20.0, -400.0])
def test_ends_of_smooth_rows_match_brute_force(rowwise, level):
    """Below 1e-6 is the promise; root finding on the density itself gives 1e-9 of the
    smallest sd.
    """
    mixtures = posterior(8, 60, rowwise=rowwise)
    found = level_sets(mixtures, np.full(8, level))
    for row in range(8):
        sds = mixtures.sds[row] if rowwise else mixtures.sds
        expected = brute_force(mixtures.means[row], sds, level)
        pieces = slice(found.row_pointers[row], found.row_pointers[row + 1])
        got = np.stack([found.lower[pieces], found.upper[pieces]], axis=1)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_pieces_of_awkward_rows_match_brute_force(seed):
    mu, s, level = awkward(seed)
    found = level_sets(GaussianMixtures(mu[None], s), np.array([level]))
    expected = brute_force(mu, s, level)
    got = np.stack([found.lower, found.upper], axis=1)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9 * max(1.0, np.abs(mu).max()))


@pytest.mark.parametrize("seed", range(30))
def test_several_levels_together_are_those_one_by_one(seed):
    """Smooth rows and awkward ones; levels above every peak, near the top, far down; one
    interpolant for all.
    """
    rng = np.random.default_rng(seed)
    if seed % 2:
        mu, s, level = awkward(seed)
        mixtures, steps = (
            GaussianMixtures(np.stack([mu, 1.3 * mu]), s),
            np.array([0.5, 0.0, -0.2, -2.0, -9.0]),
        )
    else:
        mixtures = posterior(
            30, 40, spread=rng.choice([0.1, 0.5, 1.0, 4.0]), seed=seed, rowwise=bool(seed % 4)
        )
        level, steps = -1.0, np.array([3.0, 0.2, 0.0, -0.7, -4.0, -60.0])
    levels = level + steps[:, None] + rng.uniform(-0.1, 0.1, size=(1, len(mixtures)))
    unit = np.asarray(mixtures.sds).min()
    for each, together in zip(levels, level_sets_at(mixtures, levels), strict=True):
        alone = level_sets(mixtures, each)
        np.testing.assert_array_equal(together.row_pointers, alone.row_pointers)
        scale = max(unit, 1e-3 * np.abs(alone.lower).max(initial=0.0))
        np.testing.assert_allclose(together.lower, alone.lower, rtol=0, atol=2e-9 * scale)
        np.testing.assert_allclose(together.upper, alone.upper, rtol=0, atol=2e-9 * scale)
    sizes = DENSITY.sizes_at_several(mixtures, [float(-value) for value in levels[:, 0]])
    one_by_one = [DENSITY.sizes(mixtures, float(-value)) for value in levels[:, 0]]
    np.testing.assert_allclose(sizes, one_by_one, rtol=1e-8, atol=1e-8 * unit)


def test_several_levels_need_not_be_finite_nor_several():
    mixtures = posterior(6, 40)
    levels = np.array([np.full(6, -1.0), np.full(6, -np.inf), np.full(6, np.inf)])
    whole = level_sets_at(mixtures, levels)[1]
    assert np.all(whole.lower == -np.inf)
    assert np.all(whole.upper == np.inf)
    assert level_sets_at(mixtures, levels)[2].lower.size == 0
    assert DENSITY.sizes_at_several(mixtures, []).shape == (0, 6)
    np.testing.assert_array_equal(
        DENSITY.sizes_at_several(mixtures, [1.5])[0], DENSITY.sizes(mixtures, 1.5)
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_fast_and_the_certified_path_agree(seed, monkeypatch):
    """The same rows with the Chebyshev path switched off."""
    rng = np.random.default_rng(seed)
    mixtures = posterior(20, 40, spread=rng.choice([0.1, 0.5, 1.0]), seed=seed, rowwise=True)
    levels = -rng.uniform(0.3, 6, size=20)
    fast = level_sets(mixtures, levels)
    monkeypatch.setattr(dco.scores.level_sets, "NODES", ())
    slow = level_sets(mixtures, levels)
    np.testing.assert_array_equal(fast.row_pointers, slow.row_pointers)
    np.testing.assert_allclose(fast.lower, slow.lower, rtol=0, atol=1e-9)
    np.testing.assert_allclose(fast.upper, slow.upper, rtol=0, atol=1e-9)


def test_smooth_rows_take_the_fast_path(monkeypatch):
    """Otherwise the test of agreement would compare a path with itself."""
    sent = []
    monkeypatch.setattr(
        dco.scores.level_sets, "_certified_segments", lambda *a: sent.append(len(a[3])) or []
    )
    level_sets(posterior(100, 200), np.full(100, -1.5))
    assert sent == [0]


def test_a_needle_beside_a_hill_is_found():
    """One draw in a thousand with an sd of 1e-5, beside wide ones: no grid of a few hundred points
    would see it.
    """
    means = np.concatenate([np.zeros(999), [4.2]])[None]
    sds = np.concatenate([np.ones(999), [1e-5]])
    got = DENSITY.sets(GaussianMixtures(means, sds), -np.log(0.05)).pieces(0)
    # the needle by itself, same weight
    expected = brute_force(means[0, 998:], sds[998:], np.log(0.05) + np.log(500))
    assert got.shape == (2, 2)
    np.testing.assert_allclose(
        got[0], np.array([-1, 1]) * np.sqrt(2 * np.log(0.999 * norm.pdf(0) / 0.05)), atol=1e-9
    )
    np.testing.assert_allclose(got[1], expected[-1], atol=1e-8)
    assert np.ptp(got[1]) < 1e-4


def test_a_level_just_below_or_above_a_peak():
    """Near the peak the set is tiny and then gone; it neither jumps nor fails."""
    mixtures = posterior(1, 50)
    mu, s = mixtures.means[0], mixtures.sds
    mode = minimize_scalar(
        lambda y: -reference(mu, s, y), bounds=(mu.min(), mu.max()), options={"xatol": 1e-12}
    ).x
    peak = reference(mu, s, mode)
    for drop in (1e-2, 1e-4, 1e-6, 1e-7):
        level = peak - drop
        found = level_sets(mixtures, np.array([level]))
        expected = [
            brentq(lambda y, level=level: reference(mu, s, y) - level, mode, mode + side)
            for side in (-1, 1)
        ]
        np.testing.assert_allclose([found.lower[0], found.upper[0]], expected, rtol=0, atol=1e-8)
    assert level_sets(mixtures, np.array([peak + 1e-6])).lower.size == 0


def test_a_valley_that_touches_the_level():
    """Two equal modes: just above the valley's depth there are two pieces, just below there
    is one.
    """
    mixtures = GaussianMixtures([[-1.5, 1.5]], [1.0, 1.0])
    depth = reference(mixtures.means[0], mixtures.sds, 0.0)
    for shift, pieces in [(1e-3, 2), (1e-6, 2), (1e-9, 2), (-1e-9, 1), (-1e-6, 1), (-1e-3, 1)]:
        assert len(level_sets(mixtures, np.array([depth + shift])).lower) == pieces


@pytest.mark.parametrize("scale", [1e-150, 1e-9, 1.0, 1e9, 1e150])
@pytest.mark.parametrize("seed", range(6))
def test_units_do_not_matter(scale, seed):
    mu, s, level = awkward(seed)
    plain = level_sets(GaussianMixtures(mu[None], s), np.array([level]))
    scaled = level_sets(
        GaussianMixtures(scale * mu[None], scale * s), np.array([level - np.log(scale)])
    )
    np.testing.assert_allclose(scaled.lower / scale, plain.lower, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(scaled.upper / scale, plain.upper, rtol=1e-9, atol=1e-9)


def test_far_from_zero_the_spacing_of_floats_is_the_limit():
    plain = posterior(5, 40)
    far = GaussianMixtures(plain.means + 1e9, plain.sds)
    near_ends, far_ends = level_sets(plain, np.full(5, -1.5)), level_sets(far, np.full(5, -1.5))
    np.testing.assert_allclose(far_ends.lower - 1e9, near_ends.lower, rtol=0, atol=1e-6)
    np.testing.assert_allclose(far_ends.upper - 1e9, near_ends.upper, rtol=0, atol=1e-6)


@pytest.mark.parametrize("level", [-1e3, -1e6, -1e12])
def test_the_response_range_is_never_cut_off(level):
    """At any finite level the set is bounded, and its ends are on the level, however far out."""
    found = level_sets(posterior(5, 30), np.full(5, level))
    assert np.all(np.isfinite(found.lower))
    np.testing.assert_allclose(log_density(posterior(5, 30), found.lower), level, rtol=1e-9)
    np.testing.assert_allclose(log_density(posterior(5, 30), found.upper), level, rtol=1e-9)


@pytest.mark.parametrize(("rows", "draws", "most"), [(1250, 2000, 10e6), (60_000, 3, 24e6)])
def test_memory_is_bounded_by_blocks_and_batches(rows, draws, most):
    """20 MB of means: no array of rows x draws x nodes, no second copy. Many rows: a 65-point curve
    of each is 31 MB.
    """
    mixtures = posterior(rows, draws)
    tracemalloc.start()
    found = level_sets(mixtures, np.full(rows, -1.5))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < most
    assert len(found.lower) >= 0.98 * rows
    np.testing.assert_allclose(log_density(mixtures, found.upper, found.rows()), -1.5, atol=1e-9)


# --- facts that hold for both scores


@both
def test_membership_is_the_score_compared_with_the_threshold(score):
    """Exactly: at random points, at the ends, one float beside the ends, and for thresholds that
    are themselves scores.
    """
    rng = np.random.default_rng(0)
    for mixtures in (
        posterior(40, 30),
        posterior(40, 3, spread=3.0, rowwise=True),
        posterior(40, 1),
    ):
        y = mixtures.means[:, 0] + rng.normal(size=40)
        own = score.observed(mixtures, y)
        for threshold in (float(own[0]), own, float(np.median(own)), np.inf, -np.inf, 0.0):
            sets = score.sets(mixtures, threshold)
            hull = sets.hull()
            for value in (
                y,
                y.astype(np.float32),
                hull.lower,
                hull.upper,
                np.nextafter(hull.upper, np.inf),
            ):
                np.testing.assert_array_equal(
                    sets.contains(value), score.observed(mixtures, value) <= threshold
                )
        assert score.sets(mixtures, own).contains(y).all()


@both
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
    mu, s, _ = awkward(seed)
    dtype = np.float32 if single and scale == 1.0 else np.float64
    mixtures = GaussianMixtures((scale * mu[None]).astype(dtype), (scale * s).astype(dtype))
    rng = np.random.default_rng(place)
    pick = rng.integers(len(mu))
    y = np.array([scale * (mu[pick] + s[pick] * rng.normal() * rng.choice([0.1, 1.0, 3.0]))])
    other = scale * (mu[0] + s[0] * rng.normal())
    threshold = float(score.observed(mixtures, [other])[0])
    sets = score.sets(mixtures, threshold)
    pieces = sets.pieces(0)
    assert np.all(pieces[:, 0] <= pieces[:, 1])
    assert np.all(pieces[1:, 0] > pieces[:-1, 1])
    near = np.any(np.abs(pieces - y) <= 1e-7 * scale * (1 + np.abs(mu).max()))
    by_pieces = bool(np.any((pieces[:, 0] <= y) & (y <= pieces[:, 1])))
    assert near or by_pieces == bool(sets.contains(y)[0])
    assert bool(sets.contains(y)[0]) == bool(score.observed(mixtures, y)[0] <= threshold)


@both
def test_sets_grow_with_the_threshold(score):
    mixtures = posterior(30, 5, spread=2.0, rowwise=True)
    thresholds = (
        [-0.5, 0.0, 0.05, 0.3, 0.7, 0.9, 0.99, 1.0, np.inf]
        if score is MASS
        else [-1.0, 0.7, 1.5, 2.0, 3.0, 10.0, np.inf]
    )
    sizes = np.array([score.sizes(mixtures, t) for t in thresholds])
    assert np.all(sizes[1:] >= sizes[:-1])
    assert np.all(sizes[0] == 0)
    assert np.all(np.isinf(sizes[-1]))
    # the ends of sets are rounded outwards
    longer = score.sets(mixtures, thresholds[3]).sizes() - sizes[3]
    assert np.all((longer > 0) & (longer < (1e-7 if score is MASS else 1e-11)))
    points = np.linspace(-4, 4, 30)
    members = np.array([score.sets(mixtures, t).contains(points) for t in thresholds])
    assert np.all(members[1:] >= members[:-1])


@both
def test_a_row_does_not_depend_on_its_neighbours_its_place_or_its_layout(score):
    mixtures = posterior(300, 400, rowwise=True)
    y = mixtures.means[:, 0]
    plain = score.observed(mixtures, y)
    order = np.random.default_rng(1).permutation(300)
    np.testing.assert_array_equal(score.observed(mixtures.take(order), y[order]), plain[order])
    for row in (0, 7, 299):
        assert score.observed(mixtures.take(np.array([row])), y[[row]])[0] == plain[row]
    means, sds = np.asfortranarray(mixtures.means), np.repeat(mixtures.sds, 2, axis=1)[:, ::2]
    means.flags.writeable = False
    np.testing.assert_array_equal(score.observed(GaussianMixtures(means, sds), y), plain)
    threshold = float(np.median(plain))
    one, many = (
        score.sets(mixtures.take(np.array([5])), threshold),
        score.sets(mixtures, threshold),
    )
    np.testing.assert_array_equal(one.pieces(0), many.pieces(5))


@both
def test_infinite_and_missing_responses(score):
    mixtures = posterior(3, 20)
    scores = score.observed(mixtures, [np.inf, -np.inf, np.nan])
    assert np.isnan(scores[2])
    np.testing.assert_array_equal(scores[:2], [1.0, 1.0] if score is MASS else [np.inf, np.inf])


# --- closed forms and laws


@pytest.mark.parametrize("draws", [1, 4])
def test_one_gaussian_has_a_closed_form(draws):
    """T equal draws are one Gaussian: half-width s sqrt(2 (t - log(s sqrt(2 pi)))), mass 2 Phi(z) -
    1.
    """
    mean, sd = np.array([-2.0, 0.0, 5.0]), np.array([0.1, 1.0, 30.0])
    mixtures = GaussianMixtures(np.tile(mean[:, None], draws), np.tile(sd[:, None], draws))
    peak = np.log(sd * np.sqrt(2 * np.pi))
    for excess in (0.01, 1.0, 5.0, 300.0):
        sets = DENSITY.sets(mixtures, peak + excess)
        half = sd * np.sqrt(2 * excess)
        np.testing.assert_allclose(DENSITY.sizes(mixtures, peak + excess), 2 * half, rtol=1e-11)
        # what the score rounds, over its slope
        for beyond in (mean - half - sets.lower, sets.upper - mean - half):
            assert np.all((beyond > 0) & (beyond < 1e-13 * (1 + excess) * sd**2 / half * 4))
    assert DENSITY.sets(mixtures, peak - 1e-9).is_empty().all()
    for z in (0.0, 0.3, 1.0, 2.5, 5.0):
        np.testing.assert_allclose(
            MASS.observed(mixtures, mean + z * sd), 2 * norm.cdf(z) - 1, atol=1e-9
        )
        np.testing.assert_allclose(
            DENSITY.observed(mixtures, mean - z * sd), peak + z**2 / 2, rtol=1e-12
        )
    for mass in (0.01, 0.5, 0.9, 0.999):
        half = sd * norm.ppf(0.5 + mass / 2)
        sets = MASS.sets(mixtures, mass)
        np.testing.assert_allclose(MASS.sizes(mixtures, mass), 2 * half, rtol=1e-9)
        # 4e-9 of the mass that is left
        for beyond in (mean - half - sets.lower, sets.upper - mean - half):
            assert np.all((beyond > 0) & (beyond < 1e-8 * sd))


@pytest.mark.parametrize("seed", range(20))
def test_the_mass_is_the_integral_of_the_higher_densities(seed):
    """Against a sum over 400,000 cells of a row with several modes."""
    mu, s, _ = awkward(seed)
    mixtures = GaussianMixtures(mu[None], s)
    y = np.array([mu[0] + 0.8 * s[0]])
    grid = np.linspace((mu - 9 * s).min(), (mu + 9 * s).max(), 400_001)
    density = np.zeros_like(grid)
    for m, sd in zip(mu, s, strict=True):
        density += norm.pdf(grid, m, sd) / len(mu)
    higher = density > np.exp(reference(mu, s, y))
    cell = grid[1] - grid[0]
    expected = np.sum(density[higher]) * cell
    # each of the at most 2 T ends is misplaced by at most a cell
    assert (
        abs(MASS.observed(mixtures, y)[0] - expected)
        <= 4 * len(mu) * cell * density.max() * 0.5 + 1e-12
    )


@pytest.mark.parametrize("mass", [1e-3, 0.1, 0.5, 0.8, 0.95, 0.9999, 1 - 1e-12])
def test_highest_density_sets_have_the_mass_asked_for(mass):
    rows = [GaussianMixtures(mu[None], s) for mu, s, _ in map(awkward, range(25))]
    for mixtures in [posterior(20, 100), posterior(20, 6, spread=2.0, rowwise=True), *rows]:
        sets = MASS.sets(mixtures, mass)
        row = np.repeat(np.arange(len(mixtures)), np.diff(sets.row_pointers))
        held = distribution(mixtures, sets.upper, row) - distribution(mixtures, sets.lower, row)
        np.testing.assert_allclose(np.bincount(row, held, len(mixtures)), mass, rtol=0, atol=1e-8)
        ends = log_density(mixtures, sets.upper, row)
        first = ends[sets.row_pointers[:-1]][row]
        # one density level a row: nothing of equal mass is shorter
        np.testing.assert_allclose(ends, first, atol=1e-6)


def test_smooth_rows_need_one_level_set_or_two(monkeypatch):
    """The level is foreseen by following the ends, so that level sets are not searched again and
    again.
    """
    searched = []
    monkeypatch.setattr(
        density, "level_sets", lambda *asked: searched.append(len(asked[0])) or level_sets(*asked)
    )
    for mass in (0.1, 0.5, 0.9, 0.99):
        MASS.sets(posterior(200, 100), mass)
    assert sum(searched) <= 2 * 4 * 200


def test_the_whole_line_and_nothing():
    mixtures = posterior(3, 10)
    for t in (1.0, 2.0, np.inf):
        assert MASS.sets(mixtures, t).is_infinite().all()
    for t in (-1e-9, -np.inf):
        assert MASS.sets(mixtures, t).is_empty().all()
    assert MASS.sets(mixtures, 1 - 1e-15).is_infinite().sum() == 0


def draws_from(mixtures, rng):
    n, t = mixtures.means.shape
    pick = rng.integers(t, size=n)
    sds = mixtures.sds[np.arange(n), pick] if mixtures.sds.ndim == 2 else mixtures.sds[pick]
    return mixtures.means[np.arange(n), pick] + sds * rng.normal(size=n)


def test_the_mass_of_a_draw_is_uniform():
    """If y comes from the mixture its mass is U(0, 1), several modes included; Kolmogorov-Smirnov
    at 0.001.
    """
    mixtures = posterior(3000, 4, spread=2.0, rowwise=True)
    scores = MASS.observed(mixtures, draws_from(mixtures, np.random.default_rng(2)))
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
    truth = GaussianMixtures(mean[:, None], s[:, None])

    def half(t):
        return s * np.sqrt(2 * np.maximum(t - np.log(s * np.sqrt(2 * np.pi)), 0))

    level = brentq(lambda t: np.mean(2 * norm.cdf(half(t) / s) - 1) - 0.9, 0, 20)
    best = 2 * half(level).mean()
    cal, new = np.arange(10_000), np.arange(10_000, 20_000)
    sizes = {}
    for score in (DENSITY, MASS, NormalisedResidual()):
        threshold = split_conformal(score.observed(truth.take(cal), y[cal]), alpha=0.1)
        sizes[score] = score.sizes(truth.take(new), threshold).mean()
        covered = score.sets(truth.take(new), threshold).contains(y[new]).mean()
        assert abs(covered - 0.9) < 4 * np.sqrt(2 * 0.09 / 10_000)
    assert abs(sizes[DENSITY] / best - 1) < 0.03
    assert abs(sizes[MASS] / (2 * norm.ppf(0.95) * s.mean()) - 1) < 0.03
    assert sizes[DENSITY] < sizes[MASS]
    # the same sets, by another road
    np.testing.assert_allclose(sizes[MASS], sizes[NormalisedResidual()], rtol=1e-6)


def test_no_mass_is_the_mode_of_one_gaussian():
    """To rounding: next to its mode a density is flat, so that a few floats have the mass 0."""
    mode, mixtures = np.array([1.5, -0.25]), GaussianMixtures([[1.5], [-0.25]], [0.7])
    hull = MASS.sets(mixtures, 0.0).hull()
    assert MASS.sizes(mixtures, 0.0).tolist() == [0, 0]
    assert np.all((hull.lower < mode) & (mode < hull.upper) & (hull.sizes() < 1e-6))
    assert MASS.sets(mixtures, 0.0).contains(mode + 1e-9).all()


def test_ends_that_were_not_polished_are_searched_for_again(monkeypatch):
    rows = posterior(40, 5)
    expected, smooth = level_sets(rows, -2.0), dco.scores.level_sets._smooth_ends

    def unpolished(*arguments):
        ends, good = smooth(*arguments)
        return ends + 0.1, np.zeros_like(good)

    monkeypatch.setattr(dco.scores.level_sets, "_smooth_ends", unpolished)
    found = level_sets(rows, -2.0)
    np.testing.assert_array_equal(found.row_pointers, expected.row_pointers)
    np.testing.assert_allclose(found.lower, expected.lower, atol=1e-7)
    np.testing.assert_allclose(found.upper, expected.upper, atol=1e-7)
    assert len(found.lower) >= 40


@both
def test_a_second_mode_that_just_reaches_the_level_is_in_a_piece(score):
    """The threshold is the score of that mode: a peak of no width, right to rounding, belongs to
    the set.
    """
    rng = np.random.default_rng(12)
    means, sds = (
        rng.uniform(0, 9, (200, 3)) + [0, 100, 200],
        rng.uniform(1, 2, (200, 3)) * [1, 3, 9],
    )
    for draw in range(3):
        mixtures, mode = GaussianMixtures(means, sds), means[:, draw]
        sets = score.sets(mixtures, score.observed(mixtures, mode))
        assert all(
            any(low <= y <= high for low, high in pieces)
            for pieces, y in zip(sets, mode, strict=True)
        )
        assert np.all(
            np.abs(sets.sizes() - score.sizes(mixtures, score.observed(mixtures, mode))) < 1e-4
        )
