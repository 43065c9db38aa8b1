"""Sets of predicted quantiles and draws: coverage at its law, ends that lose no member, lengths."""

import numpy as np
import pytest
from laws import FULL, check_loses, check_mean
from scipy import stats

import dco
from dco.scores import CentralMass, ShortestMass
from dco.scores.linear_distribution import LinearDistribution

pytestmark = pytest.mark.guarantee
SCORES = pytest.mark.parametrize(
    "score", [CentralMass(), ShortestMass()], ids=["central", "shortest"]
)
ALPHA = 0.1
N_CALIBRATE = 59  # rank 54 of 60: coverage has the mean .9 exactly
RUNS = 2000 if FULL else 250
LEVELS = np.arange(1, 100) / 100


def true_quantiles(rng, x):
    """Predict x plus an exponential, the truth."""
    return dco.QuantileFunction(LEVELS, x[:, None] + stats.expon.ppf(LEVELS))


def draw_quantiles(rng, x):
    """Predict x plus an exponential, half as wide as the truth."""
    return dco.QuantileFunction(LEVELS, x[:, None] + 0.5 * stats.expon.ppf(LEVELS))


def draw_draws(rng, x):
    """Draw from x plus an exponential, half as wide as the truth."""
    return dco.TargetDraws(x + 0.5 * rng.exponential(size=(60, x.size)))


RECORDS = pytest.mark.parametrize("draw", [draw_quantiles, draw_draws], ids=["quantiles", "draws"])


def run_once(score, draw, seed):
    """Return the coverage and the mean length with a threshold from calibration rows, and the
    coverage without one: the level taken at its word.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=N_CALIBRATE + 200)
    y = x + rng.exponential(size=x.size)
    record = draw(rng, x)
    known = record.take(slice(N_CALIBRATE))
    new = record.take(slice(N_CALIBRATE, None))

    scores = score.observed(known, y[:N_CALIBRATE])
    sets = score.sets(new, dco.split_conformal(scores, alpha=ALPHA))
    level = 0.5 - ALPHA / 2 if isinstance(score, CentralMass) else 1 - ALPHA
    uncalibrated = score.sets(new, level)

    y_new = y[N_CALIBRATE:]
    return sets.contains(y_new).mean(), sets.sizes().mean(), uncalibrated.contains(y_new).mean()


@RECORDS
@SCORES
def test_coverage_is_at_its_law(score, draw):
    """Calibration is exact though the predictions are half as wide as the truth."""
    coverage = [run_once(score, draw, seed)[0] for seed in range(RUNS)]

    check_mean(coverage, 1 - ALPHA, 1 - ALPHA)


@SCORES
def test_levels_taken_at_their_word_lose_coverage(score):
    uncalibrated = [run_once(score, draw_quantiles, seed)[2] for seed in range(50)]

    check_loses(uncalibrated, 1 - ALPHA)


def test_shortest_sets_of_skewed_targets_are_as_short_as_they_can_be():
    """The shortest interval of 90 % of an exponential is log 10 = 2.30 long, the central one
    log 19 = 2.94. The threshold of 59 rows is above 90 % in half of the runs, which costs length.
    """
    seeds = range(100)
    central = np.mean([run_once(CentralMass(), true_quantiles, seed)[1] for seed in seeds])
    shortest = np.mean([run_once(ShortestMass(), true_quantiles, seed)[1] for seed in seeds])

    assert shortest / central == pytest.approx(np.log(10) / np.log(19), abs=0.06)


# ---------------------------------------------------------------- ends


KINDS_OF_NUMBERS = {
    "decimals": lambda rng, shape: np.round(rng.normal(size=shape), int(rng.integers(3))),
    "counts": lambda rng, shape: rng.poisson(3, shape).astype(float),
    "skewed": lambda rng, shape: np.exp(3 * rng.normal(size=shape)),
    "single precision": lambda rng, shape: rng.normal(size=shape).astype(np.float32),
    "any size": lambda rng, shape: 10.0 ** rng.uniform(-320, 300, shape) * rng.choice([-1, 1]),
    "tiny": lambda rng, shape: rng.choice([0.0, 5e-324, 1e-310, 0.1, 0.3], shape),
    "one value": lambda rng, shape: np.full(shape, rng.normal()),
}
NUMBERS = pytest.mark.parametrize("draw", KINDS_OF_NUMBERS.values(), ids=KINDS_OF_NUMBERS.keys())


def draw_case(score, draw, rng, n=40):
    """Draw quantiles, targets, and thresholds that are scores: one for all or one per row."""
    levels = np.sort(rng.uniform(size=int(rng.integers(2, 12))))
    record = dco.QuantileFunction(levels, draw(rng, (n, levels.size)))
    y = np.asarray(draw(rng, n), dtype=np.float64)
    if rng.uniform() < 0.3:  # a target that is a predicted quantile
        y = record.values[:, 0].astype(np.float64)
    scores = score.observed(record, y)
    threshold = float(rng.choice(scores)) if rng.uniform() < 0.5 else scores
    return record, y, threshold


def floats_beside(ends):
    """Return some floats at and next to the ends."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = [ends + units * np.spacing(ends) for units in (-40, -20, -8, 0, 8, 20, 40)]
    steps += [np.nextafter(ends, -np.inf), np.nextafter(ends, np.inf)]
    return [np.nan_to_num(step) for step in steps]


def is_lost(sets, lower, upper, y):
    return sets.contains(y) & ~((lower <= y) & (y <= upper))


@NUMBERS
@SCORES
def test_no_set_loses_a_member(score, draw):
    rng = np.random.default_rng(5)
    for _ in range(1000 if FULL else 60):
        record, y, threshold = draw_case(score, draw, rng)
        sets = score.sets(record, threshold)
        for point in [y, *floats_beside(sets.lower), *floats_beside(sets.upper)]:
            lost = is_lost(sets, sets.lower, sets.upper, point)
            assert not lost.any(), (record, threshold, point[lost])


def test_ends_that_are_not_rounded_outwards_lose_members():
    """The mistake that the test above would find."""
    rng = np.random.default_rng(5)
    score = CentralMass()
    n_lost = 0
    for _ in range(60):
        record, y, threshold = draw_case(score, KINDS_OF_NUMBERS["decimals"], rng)
        distribution = LinearDistribution.of(score, record)
        lower = distribution.quantile(0.5 - np.asarray(threshold))
        upper = distribution.quantile(0.5 + np.asarray(threshold))
        n_lost += is_lost(score.sets(record, threshold), lower, upper, y).sum()

    assert n_lost > 20


@NUMBERS
@SCORES
def test_contains_is_the_score_compared_with_the_threshold(score, draw):
    rng = np.random.default_rng(6)
    for _ in range(20):
        record, y, threshold = draw_case(score, draw, rng)
        members = score.sets(record, threshold).contains(y)
        assert members.tolist() == (score.observed(record, y) <= threshold).tolist()


@SCORES
def test_sets_are_not_merely_wide(score):
    """Ends lie within 1e-12 of what the masses say."""
    record = dco.QuantileFunction(LEVELS, stats.norm.ppf(LEVELS)[None])
    for threshold in np.linspace(0, 1.2, 25):
        excess = score.sets(record, threshold).sizes() - score.sizes(record, threshold)
        assert np.all((excess >= 0) & (excess < 1e-12))
