"""Rules that take one threshold from a matrix of losses."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import binom, multinomial

from dco import (
    InfeasibleLevelWarning,
    bayesian_quadrature,
    conformal_rank,
    pac_rank,
    split_conformal,
)
from dco.risk import (
    bayesian_quadrature_risk,
    bq_confidence,
    conformal_risk_control,
    miscoverage,
    risk_controlling,
)

pytestmark = pytest.mark.filterwarnings("ignore::dco.foundations.errors.InfeasibleLevelWarning")

CRC = partial(conformal_risk_control, alpha=0.3)
BQ = partial(bayesian_quadrature_risk, alpha=0.3, delta=0.1)
RCPS = partial(risk_controlling, alpha=0.3, delta=0.1)
RULES = {
    "CRC": CRC,
    "BQ": BQ,
    "RCPS wsr": RCPS,
    "RCPS hoeffding-bentkus": partial(RCPS, test="hoeffding-bentkus"),
}
RULES_BY_COUNTS = {name: rule for name, rule in RULES.items() if name != "RCPS wsr"}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())


def falling_losses(n=200, columns=50):
    """Make losses in quarters, (n, columns), that never rise with the threshold; and thresholds."""
    u = np.random.default_rng(0).uniform(size=(n, 4))
    cuts = np.linspace(0.02, 1, columns)
    return (u[:, :, None] > cuts).mean(axis=1), cuts


LOSSES, CUTS = falling_losses()


# ---------------------------------------------------------------- losses of 0 and 1

every_alpha = pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2, 0.3, 1 - 0.9, "0.35", 0.45, 0.7])
every_delta = pytest.mark.parametrize("delta", [0.05, 0.1, 0.3])


@pytest.fixture(params=[3, 9, 19, 99, 120], ids="{} rows".format)
def n(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["distinct", "tied"])
def scores(request, n):
    """Make scores, distinct or with ties."""
    rng = np.random.default_rng(n)
    is_tied = request.param
    return rng.integers(0, 12, size=n).astype(float) if is_tied else rng.normal(size=n)


@pytest.fixture
def cuts(scores):
    return np.unique(scores)


@pytest.fixture
def misses(scores, cuts):
    return miscoverage(scores, None, cuts)


@every_alpha
def test_crc_of_misses_is_split_conformal(scores, misses, cuts, alpha):
    rule = conformal_risk_control(misses, cuts, alpha=alpha, safe_at_infinity=True)

    assert rule.value == split_conformal(scores, alpha=alpha).value


@every_alpha
def test_crc_of_misses_takes_the_conformal_rank(alpha):
    ranks = np.arange(1.0, 100)

    rule = conformal_risk_control(miscoverage(ranks, None, ranks), ranks, alpha=alpha)

    assert rule.value == conformal_rank(99, alpha=alpha)


@every_alpha
@every_delta
@pytest.mark.parametrize(
    "rule",
    [bayesian_quadrature_risk, partial(risk_controlling, test="binomial")],
    ids=["BQ", "RCPS binomial"],
)
def test_pac_rules_of_misses_take_the_pac_rank(scores, misses, cuts, rule, alpha, delta):
    threshold = rule(misses, cuts, alpha=alpha, delta=delta, safe_at_infinity=True)

    assert threshold.value == bayesian_quadrature(scores, alpha=alpha, delta=delta).value
    assert threshold.guarantee == "pac"


# ---------------------------------------------------------------- all rules


@every_rule
def test_thresholds_fall_as_alpha_grows(rule):
    values = [rule(LOSSES, CUTS, alpha=alpha).value for alpha in (0.1, 0.2, 0.3, 0.5, 0.8)]

    assert np.all(np.diff(values) <= 0)
    assert values[0] > values[-1]


@every_rule
def test_the_first_threshold_is_taken_where_all_pass(rule):
    assert rule(np.zeros((100, 4)), np.arange(4.0)).value == 0.0


@pytest.mark.parametrize("rule", RULES_BY_COUNTS.values(), ids=RULES_BY_COUNTS.keys())
def test_the_order_of_rows_does_not_matter(rule):
    """But for wsr, which bets row after row."""
    order = np.random.default_rng(9).permutation(len(LOSSES))

    assert rule(LOSSES[order], CUTS) == rule(LOSSES, CUTS)


@every_rule
def test_nothing_is_certified_where_no_column_passes(rule):
    with pytest.warns(InfeasibleLevelWarning, match="not certified"):
        threshold = rule(np.ones((30, 3)), np.arange(3.0))

    assert threshold.value == np.inf
    assert threshold.guarantee == "none"


@every_rule
def test_an_infinite_threshold_is_certified_where_it_is_safe(rule):
    with pytest.warns(InfeasibleLevelWarning, match="safe_at_infinity"):
        threshold = rule(np.ones((30, 3)), np.arange(3.0), safe_at_infinity=True)

    assert threshold.value == np.inf
    assert threshold.guarantee in ("expected_risk", "pac")


SMALL = np.full((20, 5), 0.5)
FIVE = np.arange(5.0)


@every_rule
@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ([[1.0, 0.5], [1.0]], "^losses must be real numbers, got lists of different lengths"),
        (4 * SMALL, r"\[0, bound\] = \[0, 1\], but they range from 2 to 2"),
        (-SMALL, r"\[0, bound\]"),
        (np.nan * SMALL, "NaN"),
        (SMALL[:, 0], "a matrix"),
        (SMALL[:0], "at least one row"),
    ],
    ids=["ragged", "above the bound", "negative", "missing", "one column", "no rows"],
)
def test_bad_losses_are_refused(rule, losses, message):
    with pytest.raises(ValueError, match=message):
        rule(losses, FIVE)


@every_rule
@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        (FIVE[:4], "one number for each of the 5 columns"),
        (FIVE[::-1], "strictly ascending"),
        (FIVE[[0, 1, 1, 2, 3]], "strictly ascending"),
        ("abcde", "^thresholds must be real numbers, got "),
        (list("abcde"), "^thresholds must be real numbers, got "),
        ({1: 2}, "^thresholds must be real numbers, got "),
        ([0, 1, 2, 3, [4]], "^thresholds must be real numbers, got "),
        ([1j] * 5, "^thresholds must be real numbers, got "),
    ],
    ids=["too few", "falling", "equal", "text", "letters", "mapping", "nested", "complex"],
)
def test_bad_thresholds_are_refused(rule, thresholds, message):
    with pytest.raises(ValueError, match=message):
        rule(SMALL, thresholds)


@every_rule
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bound": 0}, "bound must be a positive number, got 0"),
        ({"bound": "one"}, "bound must be a positive number, got 'one'"),
        ({"alpha": 1.0}, "alpha"),
        ({"alpha": 8.0, "bound": 8.0}, "alpha must be a number strictly between 0 and bound"),
    ],
    ids=["no bound", "text as bound", "alpha of 1", "alpha at the bound"],
)
def test_bad_levels_are_refused(rule, options, message):
    with pytest.raises(ValueError, match=message):
        rule(SMALL, FIVE, **options)


@pytest.mark.parametrize("rule", [CRC, BQ], ids=["CRC", "BQ"])
def test_rising_losses_are_refused_where_falling_ones_are_needed(rule):
    with pytest.raises(ValueError, match=r"row 0 rises from column .* learn_then_test"):
        rule(LOSSES[:, ::-1], CUTS)


# ---------------------------------------------------------------- conformal risk control


@pytest.mark.parametrize("seed", range(200))
def test_crc_is_exact_on_the_border(seed):
    """Losses in sixths: their float sums miss the border by a rounding, the rule must not."""
    rng = np.random.default_rng([1, seed])
    n_rows = int(rng.integers(5, 40))
    sixths = np.sort(rng.integers(0, 7, size=(n_rows, 8)), axis=1)[:, ::-1]
    bounds = [Fraction(int(total) + 6, 6 * (n_rows + 1)) for total in sixths.sum(axis=0)]
    alpha = min(bounds[int(rng.integers(3, 8))], Fraction(99, 100))

    rule = conformal_risk_control(sixths / 6, np.arange(8.0), alpha=alpha)

    first = next((column for column, bound in enumerate(bounds) if bound <= alpha), np.inf)
    assert rule.value == first


def test_crc_states_an_expected_risk():
    rule = CRC(LOSSES, CUTS)

    assert rule.guarantee == "expected_risk"
    assert rule.delta is None


def test_crc_scales_with_the_bound():
    rule = conformal_risk_control(8 * LOSSES, CUTS, alpha="2.4", bound=8)

    assert rule.value == CRC(LOSSES, CUTS).value
    assert rule.alpha == 2.4


@pytest.mark.parametrize(("loss", "value"), [(0.5, 2.0), (0.0, 1.0)])
def test_crc_pays_the_whole_bound(loss, value):
    """Nine rows and a largest loss of 8: (sum + 8) / 10 <= 0.8 allows no loss at all."""
    losses = np.zeros((9, 2))
    losses[0, 0] = loss

    assert conformal_risk_control(losses, [1.0, 2.0], alpha=0.8, bound=8).value == value


def test_crc_counts_no_loss_where_it_certifies_nothing():
    """One threshold of risk 1/2 and ten rows: its risk is 0.3 over all draws of rows, by their
    number of losses, though 1/2 over those where it is certified.
    """
    n_losses = np.arange(11)
    matrices = [np.repeat([[1.0], [0.0]], [k, 10 - k], axis=0) for k in n_losses]

    rules = [conformal_risk_control(losses, [1.0], alpha=0.3) for losses in matrices]

    is_certified = np.array([rule.guarantee == "expected_risk" for rule in rules])
    chance_of_certified = binom.pmf(n_losses, 10, 0.5)[is_certified].sum()
    assert 0 < 0.5 * chance_of_certified <= 0.3


def test_sums_on_a_border_are_those_of_the_decimals():
    """0.1 + 0.1 + 0.1 is above 0.3 in floats, and (0.3 + 1) / 13 is 0.1."""
    losses = np.repeat([0.1, 0.0], [3, 9])[:, None]

    assert math.fsum(losses[:, 0]) > 0.3
    assert conformal_risk_control(losses, [1.0], alpha=0.1).value == 1.0


# ---------------------------------------------------------------- Bayesian quadrature


def test_bq_takes_the_first_column_with_enough_confidence():
    is_confident = [bq_confidence(column, alpha=0.3) >= 0.9 for column in LOSSES.T]

    rule = BQ(LOSSES, CUTS)

    assert rule.value == CUTS[is_confident.index(True)]
    assert rule.guarantee == "pac-conjectured"


every_sample_size = pytest.mark.parametrize(
    ("n_rows", "alpha", "delta"), [(25, 0.2, 0.1), (30, 0.1, 0.05), (12, 0.5, 0.2)]
)


def bq_of_counts(n_rows, ones, halves, *, alpha, delta):
    """Apply BQ to so many losses of 1, of 1/2 and of 0, beside a column without losses."""
    losses = np.zeros((n_rows, 2))
    losses[:ones, 0] = 1.0
    losses[ones : ones + halves, 0] = 0.5
    return bayesian_quadrature_risk(losses, [0.0, 1.0], alpha=alpha, delta=delta)


def all_counts(n_rows):
    """Return all (ones, halves) of n rows."""
    return [(ones, halves) for ones in range(n_rows + 1) for halves in range(n_rows + 1 - ones)]


@every_sample_size
def test_bq_says_pac_for_losses_of_0_and_1_only(n_rows, alpha, delta):
    counts = all_counts(n_rows)

    guarantees = [
        bq_of_counts(n_rows, ones, halves, alpha=alpha, delta=delta).guarantee
        for ones, halves in counts
    ]

    assert guarantees == ["pac" if halves == 0 else "pac-conjectured" for _, halves in counts]


@every_sample_size
def test_bq_errs_under_the_name_pac_with_probability_at_most_delta(n_rows, alpha, delta):
    """A loss of 1, 1/2 or 0 with probabilities p, q and the rest, at a risk p + q / 2 = alpha; over
    all samples, exactly.
    """
    rules = {
        counts: bq_of_counts(n_rows, *counts, alpha=alpha, delta=delta)
        for counts in all_counts(n_rows)
    }
    wrong = [
        (ones, halves, n_rows - ones - halves)
        for (ones, halves), rule in rules.items()
        if rule.guarantee == "pac" and rule.value == 0.0
    ]

    q = np.linspace(0, 2 * min(alpha, 1 - alpha), 21)
    p = alpha - q / 2
    chances = [
        multinomial.pmf(wrong, n_rows, shares).sum()
        for shares in np.stack([p, q, 1 - p - q], axis=1)
    ]

    allowed = n_rows - pac_rank(n_rows, alpha=alpha, delta=delta)
    assert max(chances) <= delta
    assert chances[0] == pytest.approx(binom.cdf(allowed, n_rows, alpha))
    # one more loss would be too many: the bound is used up
    assert binom.cdf(allowed + 1, n_rows, alpha) > delta


MANY_LOSSES = np.repeat([0.0, 0.1, 0.5], [300, 100, 30])
FEW_LOSSES = np.repeat([0.0, 0.5], [300, 10])
every_tiny_failure = pytest.mark.parametrize(
    ("losses", "alpha", "order_of_magnitude"),
    [(MANY_LOSSES, 0.14, 1e-15), (MANY_LOSSES, 0.16, 1e-18), (FEW_LOSSES, 0.5, 1e-90)],
    ids=["1e-15", "1e-18", "1e-90"],
)


def failure_by_contour(losses, alpha):
    """Integrate P(L+ > alpha) along the contour through its saddle point.

    L+ > alpha means that c_1 G(n_1) + c_2 G(n_2) + ... > 0, with gamma variables G and a distance c
    to alpha for each distinct loss; one more row has a loss of 1.
    """
    values, counts = np.unique([*losses, 1.0], return_counts=True)
    distances = values - alpha

    def log_integrand(s):
        return -np.sum(counts * np.log(1 - distances * s)) - np.log(s)

    ends = (0, 1 / distances.max())
    saddle = minimize_scalar(log_integrand, bounds=ends, options={"xatol": 1e-9}).x
    height = log_integrand(saddle)

    def relative_integrand(u):
        return np.exp(log_integrand(complex(saddle, u)) - height).real

    return np.exp(height) * quad(relative_integrand, 0, np.inf, limit=500)[0] / np.pi


def bq_of_column(losses, *, alpha, delta):
    return bayesian_quadrature_risk(losses[:, None], [1.0], alpha=alpha, delta=delta)


def test_the_contour_gives_a_failure_that_is_known_in_closed_form():
    """L+ > 1/2 means that one exponential variable exceeds the sum of 300."""
    assert failure_by_contour(FEW_LOSSES, 0.5) == pytest.approx(2.0**-300, rel=1e-6)


@every_tiny_failure
def test_a_failure_that_delta_allows_is_certified_however_tiny(losses, alpha, order_of_magnitude):
    """An absolute error of 1e-12 would hide it."""
    failure = failure_by_contour(losses, alpha)

    rule = bq_of_column(losses, alpha=alpha, delta=1.001 * failure)

    assert order_of_magnitude / 10 < failure < 10 * order_of_magnitude
    assert rule.value == 1.0
    assert rule.guarantee == "pac-conjectured"


@every_tiny_failure
def test_a_failure_that_delta_does_not_allow_is_not_certified_however_tiny(
    losses, alpha, order_of_magnitude
):
    failure = failure_by_contour(losses, alpha)

    with pytest.warns(InfeasibleLevelWarning, match="not certified"):
        rule = bq_of_column(losses, alpha=alpha, delta=0.999 * failure)

    assert order_of_magnitude / 10 < failure < 10 * order_of_magnitude
    assert rule.value == np.inf


# ---------------------------------------------------------------- risk-controlling sets


@pytest.mark.parametrize("test", ["wsr", "hoeffding-bentkus", "binomial"])
def test_rcps_stops_at_the_first_failure_from_the_safe_end(test):
    """A column that would pass again beyond a failure is not reached."""
    losses = np.tile([0.0, 1.0, 0.0, 0.0], (100, 1))

    assert RCPS(losses, np.arange(4.0), test=test).value == 2.0


@pytest.mark.parametrize(
    ("test", "message"),
    [("binomial", "every loss must be 0 or"), ("t-test", "test must be one of")],
)
def test_rcps_refuses_a_test_that_does_not_fit(test, message):
    with pytest.raises(ValueError, match=message):
        RCPS(LOSSES, CUTS, test=test)
