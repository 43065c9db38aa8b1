import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import betainc

from dco.risk import bq_confidence
from dco.risk.quadrature import bq_failure


def lattice(n, seed, values=(0.0, 0.25, 0.5, 1.0), shares=(0.5, 0.2, 0.2, 0.1)):
    return np.random.default_rng(seed).choice(values, size=n, p=shares)


@pytest.mark.parametrize("n", [1, 2, 9, 60, 400])
@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5])
def test_zero_one_loss_has_a_beta_law(n, alpha):
    """With e ones, L+ is a sum of e + 1 of n + 1 uniform weights: Beta(e + 1, n - e)."""
    for errors in {0, 1 % (n + 1), n // 3, n - 1, n}:
        losses = np.r_[np.ones(errors), np.zeros(n - errors)]
        law = betainc(errors + 1, n - errors, alpha) if errors < n else 0.0
        for method in ("exact", "recursion"):
            assert bq_confidence(losses, alpha=alpha, method=method) == pytest.approx(
                law, rel=1e-12, abs=1e-300
            )
        if n >= 9:
            assert bq_confidence(losses, alpha=alpha, method="davies") == pytest.approx(
                law, abs=1e-12
            )


def test_by_hand():
    """No loss at all: L+ = w B with w ~ Beta(1, n). One row: L+ = l + w (1 - l) with w uniform."""
    assert bq_confidence(np.zeros(7), alpha=0.1) == pytest.approx(1 - 0.9**7, rel=1e-13)
    assert bq_confidence([0.25], alpha=0.4) == pytest.approx((0.4 - 0.25) / 0.75, rel=1e-13)
    assert bq_confidence([0.5], alpha=0.4) == 0.0


@pytest.mark.parametrize("n", [2, 5, 12, 25])
def test_recursion_against_the_partial_fraction_formula_in_exact_arithmetic(n):
    """P(sum c_i E_i > 0) = sum over c_i > 0 of c_i^n / prod (c_i - c_j); it cancels badly in
    floats, not in fractions.
    """
    losses = [
        Fraction(int(k), 64) for k in np.random.default_rng(n).choice(63, size=n, replace=False)
    ]
    for alpha in (Fraction(1, 10), Fraction(3, 10), Fraction(7, 10)):
        c = [loss - alpha for loss in [*losses, Fraction(1)]]
        above = sum(ci**n / math.prod(ci - cj for cj in c if cj != ci) for ci in c if ci > 0)
        ours = bq_confidence([float(loss) for loss in losses], alpha=alpha, method="recursion")
        assert ours == pytest.approx(float(1 - above), rel=1e-12, abs=0)


def test_tiny_probabilities_keep_their_digits():
    """The recursion has no cancellation: 1e-60 is known to twelve digits (against the Beta law)."""
    losses = np.r_[np.ones(200), np.zeros(100)]
    law = float(betainc(201, 100, 0.2))
    assert law < 1e-60
    assert bq_confidence(losses, alpha=0.2, method="recursion") == pytest.approx(
        law, rel=1e-12, abs=0
    )
    nearly = losses.copy()
    nearly[0] = 1 - 1e-9  # not 0/1 any more, so "exact" cannot use the Beta law
    assert bq_confidence(nearly, alpha=0.2) == pytest.approx(law, rel=1e-6, abs=0)


def test_a_tiny_delta_is_compared_with_digits_that_mean_something():
    """Davies' method knows P(L+ > level) to 1e-12 only: below a delta of 1e-9 the recursion
    decides.
    """
    losses = np.repeat([0.0, 0.1, 0.5], [300, 100, 30])
    level = Fraction(7, 50)
    truth = bq_failure(losses, level, at_most=1e-13)
    assert 1e-16 < truth < 1e-12
    complement = bq_confidence(losses, alpha=level, method="recursion")
    assert 1 - complement == pytest.approx(truth, abs=1e-15)
    assert bq_failure(losses, level, at_most=0.05) == pytest.approx(truth, abs=1e-11)
    few = np.repeat([0.5, 0.0], [10, 300])
    # 1 less the confidence has lost every digit
    assert 0 < bq_failure(few, Fraction(1, 2), at_most=1e-12) < 1e-30
    assert bq_confidence(few, alpha=0.5, method="recursion") == 1.0


@pytest.mark.parametrize("n", [30, 300, 3000])
@pytest.mark.parametrize("kind", ["lattice", "continuous"])
def test_recursion_and_davies_agree(n, kind):
    rng = np.random.default_rng(n)
    losses = lattice(n, n) if kind == "lattice" else rng.uniform(size=n) ** 3
    mean = (losses.sum() + 1) / (n + 1)
    for factor in (0.9, 1.0, 1.05, 1.3):
        found = [
            bq_confidence(losses, alpha=min(mean * factor, 0.95), method=m)
            for m in ("davies", "recursion")
        ]
        assert found[0] == pytest.approx(found[1], abs=1e-12)


def test_rows_may_come_in_any_order_and_losses_may_be_scaled():
    losses = np.random.default_rng(0).uniform(size=300)
    confidence = bq_confidence(losses, alpha=0.53)
    assert bq_confidence(losses[::-1], alpha=0.53) == confidence
    assert bq_confidence(losses * 8, alpha=4.24, bound=8.0) == pytest.approx(confidence, abs=1e-12)


def test_confidence_rises_with_alpha_and_falls_with_losses():
    losses = lattice(80, 3)
    path = [bq_confidence(losses, alpha=a) for a in np.linspace(0.05, 0.95, 19)]
    assert np.all(np.diff(path) >= 0)
    assert bq_confidence(np.minimum(losses + 0.1, 1), alpha=0.4) < bq_confidence(losses, alpha=0.4)


def test_the_cost_of_many_losses(lines_run):
    """A fixed number of steps by Davies' method, one for each loss by recursion; equal losses cost
    no more than one.
    """
    n = 3000
    continuous, few = np.random.default_rng(0).uniform(size=n) ** 3, lattice(n, 0)
    lines_run(lambda: bq_confidence(continuous, alpha=0.26), at_most=n)
    # a tiny probability, by recursion
    lines_run(lambda: bq_confidence(continuous, alpha=0.2), at_most=20 * n)
    lines_run(lambda: bq_confidence(few, alpha=0.27), at_most=n)
    tracemalloc.start()
    bq_confidence(few, alpha=0.27)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Davies' method takes 64 nodes at once, and eight bytes for each of them and each distinct loss
    assert peak < 64 * n


@pytest.mark.parametrize(
    ("losses", "options", "message"),
    [
        ([0.0, 2.0], {}, r"\[0, bound\]"),
        ([0.0, np.nan], {}, "NaN"),
        ([[0.0]], {}, "one number per row"),
        ([0.0], {"alpha": 3.0, "bound": 2.0}, "between 0 and bound"),
        ([0.0], {"method": "quick"}, "method must be"),
        ([0.0], {"method": "dirichlet", "draws": 0}, "draws must be at least 1"),
    ],
)
def test_bad_input_is_refused(losses, options, message):
    with pytest.raises(ValueError, match=message):
        bq_confidence(losses, **{"alpha": 0.1, **options})


def test_dirichlet_draws_come_from_the_generator_that_is_given():
    losses = lattice(20, seed=0)
    options = {"alpha": 0.3, "method": "dirichlet", "draws": 400}
    found = [bq_confidence(losses, random_state=seed, **options) for seed in range(6)]
    assert len(set(found)) > 1
    assert found[3] == bq_confidence(losses, random_state=3, **options)
    assert found[0] == bq_confidence(losses, **options)  # seed 0 is the default
