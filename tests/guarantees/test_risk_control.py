"""The statements of the risk-control rules, checked where the true risk is known.

Losses: "bernoulli", row i loses 1[u_i > t] at threshold t, so that the risk at t is 1 - t;
"lattice", the mean of four such coins, in {0, 1/4, ..., 1}, with the same risk 1 - t; "rare", a
loss of 1 with probability 1 - t and lattice noise below, so that few rows carry most of the risk.
`make guarantees` prints the figures.
"""

import math
from functools import partial

import numpy as np
import pytest
from laws import FULL, check_mean, ignore_infeasible

from dco.risk import (
    accepted,
    bayesian_quadrature_risk,
    bq_confidence,
    conformal_risk_control,
    learn_then_test,
    risk_controlling,
    selective_error,
)

REPETITIONS = 4000 if FULL else 320
CUTS = np.arange(1, 101) / 100
ALPHA = 0.2
DELTA = 0.1

pytestmark = [pytest.mark.guarantee, pytest.mark.filterwarnings(ignore_infeasible)]


def bernoulli(rng, n):
    return (rng.uniform(size=(n, 1)) > CUTS).astype(float)


def lattice(rng, n):
    return (rng.uniform(size=(n, 4, 1)) > CUTS).mean(axis=1)


def rare(rng, n):
    """Draw 0.9 of a coin that is shared by the row, and 0.1 of lattice noise."""
    return 0.9 * bernoulli(rng, n) + 0.1 * lattice(rng, n)


every_loss = pytest.mark.parametrize("draw", [bernoulli, lattice, rare])
every_size = pytest.mark.parametrize("n", [20, 100, 500])


# ---------------------------------------------------------------- PAC rules


def bq(losses):
    return bayesian_quadrature_risk(losses, CUTS, alpha=ALPHA, delta=DELTA).value


def crc(losses):
    return conformal_risk_control(losses, CUTS, alpha=ALPHA).value


def rcps(losses, **options):
    return risk_controlling(losses, CUTS, alpha=ALPHA, delta=DELTA, **options).value


def ltt(losses, **options):
    """Return the boldest threshold that learn then test certifies."""
    certified = learn_then_test(losses, CUTS, alpha=ALPHA, delta=DELTA, **options)
    return certified.values.min(initial=np.inf)


ltt_from_the_safe_end = partial(ltt, order=np.arange(len(CUTS))[::-1])
PAC_RULES = {
    "BQ": bq,
    "RCPS wsr": rcps,
    "RCPS HB": partial(rcps, test="hoeffding-bentkus"),
    "LTT fixed sequence HB": ltt_from_the_safe_end,
}
RULES_OF_EVERY_COLUMN = {  # they are slower
    "LTT bonferroni wsr": partial(ltt, test="wsr", correction="bonferroni"),
    "LTT holm HB": partial(ltt, correction="holm"),
}
BINOMIAL_RULES = {
    "RCPS binomial": partial(rcps, test="binomial"),
    "LTT fixed sequence binomial": partial(ltt_from_the_safe_end, test="binomial"),
}


def chosen_risks(rule, draw, n, *, repetitions, seed=1):
    """Return the true risks at the thresholds chosen: 1 - t, and none at an infinite one."""
    rng = np.random.default_rng([seed, n])
    thresholds = [rule(draw(rng, n)) for _ in range(repetitions)]
    return 1 - np.minimum(thresholds, 1.0)


def share_of_failures(risks, alpha=ALPHA):
    """Return how often the true risk exceeds alpha."""
    share = np.mean(np.asarray(risks) > alpha + 1e-9)
    print(f"\nP(risk > alpha) = {share:.4f} (delta = {DELTA}), mean risk {np.mean(risks):.3f}")
    return share


def largest_share(repetitions):
    """Return delta and three standard errors: a rule at delta exceeds it in one run of 700."""
    return DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / repetitions)


@every_size
@every_loss
@pytest.mark.parametrize("rule", PAC_RULES.values(), ids=PAC_RULES.keys())
def test_pac_rules_fail_no_more_often_than_delta(rule, draw, n):
    repetitions = REPETITIONS // 4 if n == 500 else REPETITIONS

    risks = chosen_risks(rule, draw, n, repetitions=repetitions)

    assert share_of_failures(risks) <= largest_share(repetitions)


@every_size
@every_loss
@pytest.mark.parametrize("rule", RULES_OF_EVERY_COLUMN.values(), ids=RULES_OF_EVERY_COLUMN.keys())
def test_rules_of_every_column_fail_no_more_often_than_delta(rule, draw, n):
    risks = chosen_risks(rule, draw, n, repetitions=REPETITIONS // 8)

    assert share_of_failures(risks) <= largest_share(REPETITIONS // 8)


@every_size
@pytest.mark.parametrize("rule", BINOMIAL_RULES.values(), ids=BINOMIAL_RULES.keys())
def test_binomial_rules_fail_no_more_often_than_delta(rule, n):
    repetitions = REPETITIONS // 4 if n == 500 else REPETITIONS

    risks = chosen_risks(rule, bernoulli, n, repetitions=repetitions)

    assert share_of_failures(risks) <= largest_share(repetitions)


def test_crc_is_not_pac():
    """The check that PAC rules pass refuses CRC, whose risk is above alpha in about four runs of
    ten.
    """
    risks = chosen_risks(crc, bernoulli, 100, repetitions=REPETITIONS, seed=3)

    assert share_of_failures(risks) > largest_share(REPETITIONS)


@every_size
@every_loss
def test_the_expected_risk_of_crc_is_at_most_alpha(draw, n):
    """And not far below: by the rule's own lower bound and the step of the thresholds."""
    risks = chosen_risks(crc, draw, n, repetitions=REPETITIONS, seed=2)

    check_mean(risks, ALPHA - 2 / (n + 1) - 0.01, ALPHA, errors=3)


# ---------------------------------------------------------------- betting on one column


def wsr_passes(losses):
    """Decide by the library whether a risk of 0.1 passes the WSR test."""
    rule = risk_controlling(losses[:, None], [0.0], alpha=0.1 - 1e-9, delta=DELTA)
    return math.isfinite(rule.value)


def log_capital(losses, alpha):
    """Return the logarithm of the WSR capital after each row."""
    steps = np.arange(1, losses.size + 1)
    means = (0.5 + np.cumsum(losses)) / (steps + 1)
    variances = (0.25 + np.cumsum((losses - means) ** 2)) / (steps + 1)
    earlier = np.concatenate([[0.25], variances[:-1]])
    bets = np.minimum(1.0, np.sqrt(2 * math.log(1 / DELTA) / (losses.size * earlier)))
    return np.cumsum(np.log1p(-bets * (losses - alpha)))


def two_maxima_pass(losses):
    """Decide by a mistake: take the maximum of the capital in two halves, and add both."""
    capital = log_capital(losses, 0.1 - 1e-9)
    half = losses.size // 2
    of_first = max(0.0, capital[:half].max())
    of_second = max(0.0, (capital[half:] - capital[half - 1]).max())
    return of_first + of_second >= math.log(1 / DELTA)


def share_that_passes(decide, repetitions):
    """Return how often one column of 100 losses with a risk just above alpha passes."""
    rng = np.random.default_rng(4)
    columns = rng.uniform(size=(repetitions, 100)) < 0.1
    share = np.mean([decide(losses.astype(float)) for losses in columns])
    print(f"\nP(accept a risk at alpha) = {share:.4f}")
    return share


BOUNDARY_REPETITIONS = max(REPETITIONS, 1000)


def test_wsr_accepts_a_risk_at_alpha_no_more_often_than_delta():
    share = share_that_passes(wsr_passes, BOUNDARY_REPETITIONS)

    assert share <= largest_share(BOUNDARY_REPETITIONS)


def test_planted_two_maxima_added_accept_a_risk_at_alpha_too_often():
    """A library adds the maxima of two halves of the WSR path."""
    share = share_that_passes(two_maxima_pass, BOUNDARY_REPETITIONS)

    assert share > largest_share(BOUNDARY_REPETITIONS)


# ---------------------------------------------------------------- Bayesian quadrature

BQ_LOSSES = {
    "squares": lambda rng, n: rng.uniform(size=n) ** 2,
    "quarters": lambda rng, n: rng.integers(0, 5, size=n) / 4,
    "zeros and ones": lambda rng, n: (rng.uniform(size=n) < 0.2).astype(float),
}


every_bq_loss = pytest.mark.parametrize("draw", BQ_LOSSES.values(), ids=BQ_LOSSES.keys())
every_factor = pytest.mark.parametrize("factor", [0.85, 1.0, 1.2])


def losses_and_level(draw, n, factor):
    """Draw losses, and take a level near the centre of the law of L+."""
    losses = draw(np.random.default_rng([5, n]), n)
    centre = (losses.sum() + 1) / (n + 1)
    return losses, round(min(centre * factor, 0.99), 6)


@every_bq_loss
@every_factor
@pytest.mark.parametrize("n", [5, 20, 100])
def test_the_exact_confidence_is_that_of_dirichlet_draws(draw, n, factor):
    """10^6 draws in full; within four standard errors."""
    draws = 1_000_000 if FULL else 100_000
    losses, alpha = losses_and_level(draw, n, factor)

    share = bq_confidence(losses, alpha=alpha, method="dirichlet", draws=draws)

    exact = bq_confidence(losses, alpha=alpha)
    error = math.sqrt(max(exact * (1 - exact), 1e-12) / draws)
    assert abs(share - exact) < 4 * error


@every_bq_loss
@every_factor
@pytest.mark.parametrize(
    ("method", "n"),
    [("recursion", 5), ("recursion", 20), ("recursion", 100), ("davies", 20), ("davies", 100)],
)
def test_methods_agree_on_the_confidence(draw, method, n, factor):
    losses, alpha = losses_and_level(draw, n, factor)

    confidence = bq_confidence(losses, alpha=alpha, method=method)

    assert confidence == pytest.approx(bq_confidence(losses, alpha=alpha), abs=1e-12)


# ---------------------------------------------------------------- several risks, selection


def test_several_risks_at_once_are_all_controlled():
    """Two risks that pull in opposite directions, non-monotone together: the certified settings
    keep both.
    """
    rng = np.random.default_rng(6)
    grid = np.linspace(0.05, 0.95, 19)
    repetitions = REPETITIONS // 2
    n_failures = 0
    for _ in range(repetitions):
        u, v = rng.uniform(size=(2, 150, 1))
        settings = learn_then_test(
            [(u > grid).astype(float), (v < 0.3 * grid).astype(float)],
            grid,
            alpha=[0.3, 0.25],
            delta=DELTA,
            test="binomial",
            correction="bonferroni",
        ).values
        n_failures += bool(np.any((1 - settings > 0.3 + 1e-9) | (0.3 * settings > 0.25 + 1e-9)))

    print(f"\nP(some certified setting breaks a limit) = {n_failures / repetitions:.4f}")
    assert n_failures / repetitions <= largest_share(repetitions)


def boldest_thresholds(repetitions, n, grid, *, among_accepted):
    """Return the boldest threshold of each run for a selective error of 0.1.

    Doubt u is uniform and a prediction is wrong with probability u / 2: among rows with u <= t the
    error is t / 4. Otherwise the risk is the share of all rows that are accepted and wrong.
    """
    rng = np.random.default_rng(7)
    boldest = []
    for _ in range(repetitions):
        doubt = rng.uniform(size=n)
        losses = selective_error(doubt, rng.uniform(size=n) < 0.5 * doubt, grid)
        where = accepted(doubt, grid) if among_accepted else None
        certified = learn_then_test(
            losses, grid, alpha=0.1, delta=DELTA, test="binomial", where=where
        )
        boldest.append(certified.values.max(initial=0.0))
    return np.array(boldest)


def test_the_error_among_accepted_rows_is_controlled():
    """It does certify something: the largest safe threshold is 0.4."""
    grid = np.linspace(0.2, 1, 17)

    thresholds = boldest_thresholds(REPETITIONS, 1000, grid, among_accepted=True)

    assert share_of_failures(thresholds / 4, alpha=0.1) <= largest_share(REPETITIONS)
    assert thresholds.mean() > 0.2


def test_planted_the_share_of_all_rows_is_not_the_error_among_accepted_rows():
    grid = np.linspace(0.05, 1, 20)

    thresholds = boldest_thresholds(100, 300, grid, among_accepted=False)

    assert share_of_failures(thresholds / 4, alpha=0.1) > largest_share(100)
