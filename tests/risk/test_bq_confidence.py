"""The confidence of Bayesian quadrature, P(L+ <= alpha): against closed forms, fractions and
between its methods.
"""

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import betainc

from dco.risk import bq_confidence


def draw_lattice(n):
    """Draw n losses of four values."""
    return np.random.default_rng(n).choice([0.0, 0.25, 0.5, 1.0], size=n, p=[0.5, 0.2, 0.2, 0.1])


def draw_continuous(n):
    """Draw n losses that all differ."""
    return np.random.default_rng(n).uniform(size=n) ** 3


def mean_of_l_plus(losses):
    return (losses.sum() + 1) / (len(losses) + 1)


# ---------------------------------------------------------------- closed forms


def counts_of_errors(*sizes):
    """Parametrize by n and how many of n losses are 1: none, one, a third, all but one and all."""
    counts = [(n, {0, 1, n // 3, n - 1, n}) for n in sizes]
    return pytest.mark.parametrize(
        ("n", "errors"), [(n, errors) for n, several in counts for errors in sorted(several)]
    )


def beta_law(n, errors, alpha):
    """With e ones, L+ is a sum of e + 1 of n + 1 uniform weights: Beta(e + 1, n - e)."""
    return betainc(errors + 1, n - errors, alpha) if errors < n else 0.0


def zeros_and_ones(n, errors):
    return np.repeat([1.0, 0.0], [errors, n - errors])


@counts_of_errors(1, 2, 9, 60, 400)
@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("method", ["exact", "recursion"])
def test_losses_of_0_and_1_have_a_beta_law(n, errors, alpha, method):
    confidence = bq_confidence(zeros_and_ones(n, errors), alpha=alpha, method=method)

    assert confidence == pytest.approx(beta_law(n, errors, alpha), rel=1e-12, abs=1e-300)


@counts_of_errors(9, 60, 400)
@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5])
def test_davies_knows_the_beta_law_to_1e_12(n, errors, alpha):
    confidence = bq_confidence(zeros_and_ones(n, errors), alpha=alpha, method="davies")

    assert confidence == pytest.approx(beta_law(n, errors, alpha), abs=1e-12)


def test_without_losses_one_weight_counts():
    """L+ is the weight of the bound, Beta(1, n)."""
    assert bq_confidence(np.zeros(7), alpha=0.1) == pytest.approx(1 - 0.9**7, rel=1e-13)


@pytest.mark.parametrize(("loss", "confidence"), [(0.25, (0.4 - 0.25) / 0.75), (0.5, 0.0)])
def test_one_row_has_a_uniform_weight(loss, confidence):
    """L+ = l + w (1 - l)."""
    assert bq_confidence([loss], alpha=0.4) == pytest.approx(confidence, rel=1e-13)


@pytest.mark.parametrize("n", [2, 5, 12, 25])
@pytest.mark.parametrize("alpha", [Fraction(1, 10), Fraction(3, 10), Fraction(7, 10)])
def test_the_recursion_is_the_partial_fraction_formula_in_exact_arithmetic(n, alpha):
    """P(sum c_i E_i > 0) = sum over c_i > 0 of c_i^n / prod (c_i - c_j); it cancels badly in
    floats, not in fractions.
    """
    numerators = np.random.default_rng(n).choice(63, size=n, replace=False)
    losses = [Fraction(int(numerator), 64) for numerator in numerators]

    confidence = bq_confidence([float(loss) for loss in losses], alpha=alpha, method="recursion")

    c = [loss - alpha for loss in [*losses, Fraction(1)]]
    above = sum(ci**n / math.prod(ci - cj for cj in c if cj != ci) for ci in c if ci > 0)
    assert confidence == pytest.approx(float(1 - above), rel=1e-12, abs=0)


MANY_ONES = zeros_and_ones(300, 200)


def test_tiny_confidences_keep_their_digits():
    """The recursion has no cancellation: 1e-60 is known to twelve digits."""
    confidence = bq_confidence(MANY_ONES, alpha=0.2, method="recursion")

    law = beta_law(300, 200, 0.2)
    assert law < 1e-60
    assert confidence == pytest.approx(law, rel=1e-12, abs=0)


def test_tiny_confidences_keep_their_digits_without_a_beta_law():
    nearly_ones = MANY_ONES.copy()
    nearly_ones[0] = 1 - 1e-9

    confidence = bq_confidence(nearly_ones, alpha=0.2)

    assert confidence == pytest.approx(beta_law(300, 200, 0.2), rel=1e-6, abs=0)


# ---------------------------------------------------------------- methods


@pytest.mark.parametrize("n", [30, 300, 3000])
@pytest.mark.parametrize("draw", [draw_lattice, draw_continuous], ids=["lattice", "continuous"])
@pytest.mark.parametrize("factor", [0.9, 1.0, 1.05, 1.3])
def test_recursion_and_davies_agree(n, draw, factor):
    losses = draw(n)
    alpha = min(factor * mean_of_l_plus(losses), 0.95)

    by_davies = bq_confidence(losses, alpha=alpha, method="davies")

    by_recursion = bq_confidence(losses, alpha=alpha, method="recursion")
    assert by_davies == pytest.approx(by_recursion, abs=1e-12)


@pytest.mark.parametrize(
    ("draw", "alpha", "limit"),
    [
        (draw_continuous, 0.26, 3000),
        (draw_continuous, 0.2, 20 * 3000),
        (draw_lattice, 0.27, 3000),
    ],
    ids=["davies", "recursion for a tiny one", "equal losses"],
)
def test_the_cost_of_many_losses(lines_run, draw, alpha, limit):
    """A fixed number of steps by Davies' method, one for each loss by recursion."""
    losses = draw(3000)

    lines_run(lambda: bq_confidence(losses, alpha=alpha), at_most=limit)


def test_equal_losses_take_the_memory_of_one():
    """Davies' method takes 64 nodes at once, and eight bytes for each of them and each distinct
    loss.
    """
    losses = draw_lattice(3000)

    tracemalloc.start()
    bq_confidence(losses, alpha=0.27)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 64 * 3000


def confidences_by_draws(seeds):
    return [
        bq_confidence(draw_lattice(20), alpha=0.3, method="dirichlet", draws=400, random_state=seed)
        for seed in seeds
    ]


def test_dirichlet_draws_come_from_the_seed():
    assert len(set(confidences_by_draws(range(6)))) > 1
    assert confidences_by_draws([3]) == confidences_by_draws([3])


def test_the_default_seed_of_dirichlet_draws_is_zero():
    by_default = bq_confidence(draw_lattice(20), alpha=0.3, method="dirichlet", draws=400)

    assert [by_default] == confidences_by_draws([0])


# ---------------------------------------------------------------- invariants


def test_rows_may_come_in_any_order():
    losses = draw_continuous(300)

    confidence = bq_confidence(losses, alpha=0.26)

    assert 0.1 < confidence < 0.9
    assert bq_confidence(losses[::-1], alpha=0.26) == confidence


def test_losses_may_be_scaled():
    losses = draw_continuous(300)

    scaled = bq_confidence(8 * losses, alpha=2.08, bound=8.0)

    assert scaled == pytest.approx(bq_confidence(losses, alpha=0.26), abs=1e-12)


def test_confidence_rises_with_alpha():
    path = [bq_confidence(draw_lattice(80), alpha=alpha) for alpha in np.linspace(0.05, 0.95, 19)]

    assert np.all(np.diff(path) >= 0)


def test_confidence_falls_with_losses():
    losses = draw_lattice(80)
    larger = np.minimum(losses + 0.1, 1)

    assert bq_confidence(larger, alpha=0.4) < bq_confidence(losses, alpha=0.4)


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
    ids=["above the bound", "missing", "matrix", "alpha", "method", "draws"],
)
def test_bad_input_is_refused(losses, options, message):
    with pytest.raises(ValueError, match=message):
        bq_confidence(losses, **{"alpha": 0.1, **options})
