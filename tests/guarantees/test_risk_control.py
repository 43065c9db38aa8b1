"""The statements of the risk-control rules, checked where the true risk is known.

Losses: "bernoulli", row i loses 1[u_i > t] at threshold t, so that the risk at t is 1 - t;
"lattice", the mean of four such coins, in {0, 1/4, ..., 1}, with the same risk 1 - t; "rare", a
loss of 1 with probability 1 - t and lattice noise below, so that few rows carry most of the risk.
`make guarantees` prints the figures.
"""

import math

import numpy as np
import pytest
from laws import FULL, check_mean, ignore_infeasible

from dco.risk import (
    accepted,
    bayesian_quadrature_risk,
    bq_confidence,
    column_tests,
    conformal_risk_control,
    learn_then_test,
    risk_controlling,
    selective_error,
)

REPETITIONS = 4000 if FULL else 320
CUTS = np.arange(1, 101) / 100
ALPHA, DELTA = 0.2, 0.1

pytestmark = [pytest.mark.guarantee, pytest.mark.filterwarnings(ignore_infeasible)]


def bernoulli(rng, n):
    return (rng.uniform(size=(n, 1)) > CUTS).astype(float)


def lattice(rng, n):
    return (rng.uniform(size=(n, 4, 1)) > CUTS).mean(axis=1)


def rare(rng, n):
    """0.9 of a coin that is shared by the row, and 0.1 of lattice noise."""
    return 0.9 * bernoulli(rng, n) + 0.1 * lattice(rng, n)


LOSSES = {"bernoulli": bernoulli, "lattice": lattice, "rare": rare}


def ltt(losses, **options):
    """Fixed-sequence LTT from the safe end; of a method without an order the boldest column that it
    certifies.
    """
    if "correction" not in options:
        options["order"] = np.arange(len(CUTS))[::-1]
    certified = learn_then_test(losses, CUTS, alpha=ALPHA, delta=DELTA, **options)
    return certified.values.min(initial=np.inf)


def rcps(losses, **options):
    return risk_controlling(losses, CUTS, alpha=ALPHA, delta=DELTA, **options).value


PAC_RULES = {
    "BQ": lambda losses: bayesian_quadrature_risk(losses, CUTS, alpha=ALPHA, delta=DELTA).value,
    "RCPS wsr": rcps,
    "RCPS HB": lambda losses: rcps(losses, test="hoeffding-bentkus"),
    "LTT fixed sequence HB": ltt,
    "LTT bonferroni wsr": lambda losses: ltt(losses, test="wsr", correction="bonferroni"),
    "LTT holm HB": lambda losses: ltt(losses, correction="holm"),
}
BINOMIAL_RULES = {
    "RCPS binomial": lambda losses: rcps(losses, test="binomial"),
    "LTT fixed sequence binomial": lambda losses: ltt(losses, test="binomial"),
}


def failures(rule, kind, n, repetitions, seed):
    """How often the true risk at the chosen threshold exceeds alpha, and the mean threshold."""
    rng = np.random.default_rng([seed, n])
    chosen = np.minimum([rule(LOSSES[kind](rng, n)) for _ in range(repetitions)], 1.0)
    # the risk at t is 1 - t; an infinite threshold has none
    return np.mean(1 - chosen > ALPHA + 1e-9), chosen.mean()


def allowed(repetitions, level=DELTA):
    """delta and three standard errors: a rule at exactly delta fails this in one run of 700."""
    return level + 3 * math.sqrt(level * (1 - level) / repetitions)


@pytest.mark.parametrize("n", [20, 100, 500])
@pytest.mark.parametrize("kind", LOSSES)
def test_pac_rules_fail_no_more_often_than_delta(kind, n):
    rules = PAC_RULES | (BINOMIAL_RULES if kind == "bernoulli" else {})
    for name, rule in rules.items():
        slow = name.startswith("LTT b") or name.startswith("LTT h")  # every column is tested
        repetitions = REPETITIONS // 8 if slow else REPETITIONS // (4 if n == 500 else 1)
        share, mean = failures(rule, kind, n, repetitions, seed=1)
        print(
            f"{kind:9s} n = {n:3d}  {name:28s} P(risk > alpha) = {share:.4f} (delta = {DELTA}), "
            f"mean threshold {mean:.3f}"
        )
        assert share <= allowed(repetitions), (name, share)


@pytest.mark.parametrize("n", [20, 100, 500])
@pytest.mark.parametrize("kind", LOSSES)
def test_expected_risk_of_crc_is_at_most_alpha(kind, n):
    rng = np.random.default_rng([2, n])
    risks = [
        1 - conformal_risk_control(LOSSES[kind](rng, n), CUTS, alpha=ALPHA).value
        for _ in range(REPETITIONS)
    ]
    # not far below: the lower bound and the grid's step
    check_mean(risks, ALPHA - 2 / (n + 1) - 0.01, ALPHA, errors=3)


def test_crc_is_not_pac():
    """The check that PAC rules pass refuses CRC, whose risk is above alpha in about four runs of
    ten.
    """
    crc = lambda losses: conformal_risk_control(losses, CUTS, alpha=ALPHA).value  # noqa: E731
    assert failures(crc, "bernoulli", 100, REPETITIONS, seed=3)[0] > allowed(REPETITIONS)


def two_maxima_added(losses, level, *, delta):
    """The planted mistake: the martingale's maximum taken on two halves and the two added."""
    steps = np.arange(1, losses.size + 1)
    means = (0.5 + np.cumsum(losses)) / (steps + 1)
    variances = (0.25 + np.cumsum((losses - means) ** 2)) / (steps + 1)
    earlier = np.concatenate([[0.25], variances[:-1]])
    bets = np.minimum(1.0, np.sqrt(2 * math.log(1 / delta) / (losses.size * earlier)))
    gains = np.log1p(-bets * (losses - level))
    half = losses.size // 2
    capital = max(0.0, np.cumsum(gains[:half]).max()) + max(0.0, np.cumsum(gains[half:]).max())
    return math.exp(-capital)


def test_the_check_sees_two_maxima_added(monkeypatch):
    """A library adds the maxima of two halves of the WSR path; the same check as above must refuse
    that.
    """
    repetitions = max(REPETITIONS, 1000)
    right = pointwise_failures(repetitions)
    monkeypatch.setattr(column_tests, "betting_p_value", two_maxima_added)
    wrong = pointwise_failures(repetitions)
    print(
        f"WSR at the boundary, n = 100: P(accept a risk at alpha) = {right:.4f}; with two "
        f"maxima added {wrong:.4f}"
    )
    assert right <= allowed(repetitions)
    assert wrong > allowed(repetitions)


def pointwise_failures(repetitions, n=100, risk=0.1):
    """How often one column whose risk is just above alpha passes the WSR test at level delta."""
    rng = np.random.default_rng(4)
    losses = (rng.uniform(size=(repetitions, n, 1)) < risk).astype(float)
    found = [risk_controlling(own, [0.0], alpha=risk - 1e-9, delta=DELTA).value for own in losses]
    return np.isfinite(found).mean()


@pytest.mark.parametrize("n", [5, 20, 100])
def test_exact_bq_against_dirichlet_draws(n):
    """10^6 draws in full; z-scores of nine comparisons stay within the 99.9 % band of nine."""
    draws = 1_000_000 if FULL else 100_000
    rng = np.random.default_rng([5, n])
    worst = 0.0
    for losses in (
        rng.uniform(size=n) ** 2,
        rng.integers(0, 5, size=n) / 4,
        (rng.uniform(size=n) < 0.2).astype(float),
    ):
        centre = (losses.sum() + 1) / (n + 1)
        for factor in (0.85, 1.0, 1.2):
            alpha = round(min(centre * factor, 0.99), 6)
            exact = bq_confidence(losses, alpha=alpha)
            assert bq_confidence(losses, alpha=alpha, method="recursion") == pytest.approx(
                exact, abs=1e-12
            )
            if n >= 20:
                assert bq_confidence(losses, alpha=alpha, method="davies") == pytest.approx(
                    exact, abs=1e-12
                )
            sampled = bq_confidence(
                losses, alpha=alpha, method="dirichlet", draws=draws, random_state=rng
            )
            worst = max(
                worst, abs(sampled - exact) / math.sqrt(max(exact * (1 - exact), 1e-12) / draws)
            )
    print(f"BQ exact against {draws} Dirichlet draws, n = {n}: largest |z| of 9 = {worst:.2f}")
    assert worst < 4


def test_several_risks_at_once_are_all_controlled():
    """Two risks that pull in opposite directions, non-monotone together: the certified settings
    keep both.
    """
    rng = np.random.default_rng(6)
    repetitions, bad = REPETITIONS // 2, 0
    grid = np.linspace(0.05, 0.95, 19)
    for _ in range(repetitions):
        u, v = rng.uniform(size=(2, 150, 1))
        certified = learn_then_test(
            [(u > grid).astype(float), (v < 0.3 * grid).astype(float)],
            grid,
            alpha=[0.3, 0.25],
            delta=DELTA,
            test="binomial",
            correction="bonferroni",
        )
        chosen = certified.values
        bad += bool(np.any((1 - chosen > 0.3 + 1e-9) | (0.3 * chosen > 0.25 + 1e-9)))
    print(
        f"LTT with two risks: P(some certified setting breaks a limit) = "
        f"{bad / repetitions:.4f} (delta = {DELTA})"
    )
    assert bad / repetitions <= allowed(repetitions)


def selective_runs(repetitions, n, grid, *, told):
    """The boldest threshold of each run. Doubt u is uniform and a prediction is wrong with
    probability u / 2.
    """
    rng, chosen = np.random.default_rng(7), []
    for _ in range(repetitions):
        doubt = rng.uniform(size=n)
        losses = selective_error(doubt, rng.uniform(size=n) < 0.5 * doubt, grid)
        where = accepted(doubt, grid) if told else None
        certified = learn_then_test(
            losses, grid, alpha=0.1, delta=DELTA, test="binomial", where=where
        )
        chosen.append(certified.values.max(initial=0.0))
    return np.array(chosen)


def test_the_error_among_accepted_rows_is_controlled():
    """Among rows with u <= t it is t / 4. The share of all rows that are accepted and wrong is a
    weaker statement; taken for the other, the check refuses it.
    """
    chosen = selective_runs(REPETITIONS, 1000, np.linspace(0.2, 1, 17), told=True)
    share = np.mean(chosen / 4 > 0.1 + 1e-9)
    print(
        f"selective prediction: P(error among accepted > alpha) = {share:.4f}, mean threshold "
        f"{chosen.mean():.3f}"
    )
    assert share <= allowed(REPETITIONS)
    assert chosen.mean() > 0.2  # it does certify something: the largest safe threshold is 0.4
    assert np.mean(
        selective_runs(100, 300, np.linspace(0.05, 1, 20), told=False) / 4 > 0.1 + 1e-9
    ) > allowed(100)
