"""The bounds of paper/bounds.py against simulation, or another exact method."""

import math

import numpy as np
import pytest
from scipy.stats import beta, binom, binomtest

from dco.foundations.ranks import conformal_rank
from dco.paper import bounds

# ---- tuning size ---------------------------------------------------------------------------------
# --------------------


def test_the_papers_tuning_size_is_its_formula():
    """Proposition 3.2 at the paper's ImageNet-A setting: 226,142 rows where 1,000 were used."""
    pairs, bound, delta = 16 * 80, 198, 0.05
    log = math.log(4 * pairs / delta)
    expected = math.ceil(max(log / (2 * 0.02**2), bound**2 * log / (2 * 1.0**2)))
    setting = {
        "candidates": 16,
        "thresholds": 80,
        "size_bound": 198,
        "delta": 0.05,
        "method": "paper",
    }
    assert bounds.tuning_sample_size(risk_error=0.02, size_error=1, **setting) == expected == 226142
    accuracy = bounds.tuning_accuracy(1000, **setting)
    assert accuracy.risk_error == pytest.approx(math.sqrt(log / 2000))
    assert accuracy.size_error == pytest.approx(198 * math.sqrt(log / 2000))


@pytest.mark.parametrize("method", ["uniform", "paper"])
@pytest.mark.parametrize("candidates", [1, 16, 1000])
def test_size_and_accuracy_are_inverse(method, candidates):
    setting = {"candidates": candidates, "size_bound": 10.0, "delta": 0.1, "method": method}
    for risk, size in [(0.05, 100.0), (10.0, 0.7), (0.03, 0.3)]:
        n = bounds.tuning_sample_size(risk_error=risk, size_error=size, **setting)
        enough, less = (bounds.tuning_accuracy(rows, **setting) for rows in (n, max(n - 1, 1)))
        assert enough.risk_error <= risk * (1 + 1e-12)
        assert enough.size_error <= size * (1 + 1e-12)
        assert less.risk_error > risk or less.size_error > size
    exact = bounds.tuning_accuracy(777, **setting)
    assert (
        bounds.tuning_sample_size(
            risk_error=exact.risk_error, size_error=exact.size_error, **setting
        )
        == 777
    )


def test_the_uniform_bound_is_sharper_than_the_papers():
    for n in (100, 1000, 10_000):
        uniform = bounds.tuning_accuracy(n, candidates=16, size_bound=198.0)
        paper = bounds.tuning_accuracy(n, candidates=16, size_bound=198.0, method="paper")
        # E sup and McDiarmid
        plain = 198 * (math.sqrt(math.pi / (2 * n)) + math.sqrt(math.log(2 * 16 / 0.05) / (2 * n)))
        assert uniform.risk_error < paper.risk_error
        # The size bound by its definition: the e at which 16 inf over c of E(D - c)_+ / (e - c) is
        # delta / 2, by quadrature.
        c = np.linspace(0, uniform.size_error / 198, 4000, endpoint=False)
        excess = np.array(
            [math.sqrt(math.pi / (2 * n)) * math.erfc(math.sqrt(2 * n) * x) for x in c]
        )
        assert 16 * np.min(excess / (uniform.size_error / 198 - c)) == pytest.approx(
            0.025, rel=1e-4
        )
        assert uniform.size_error < paper.size_error < plain


def kolmogorov_distances(sorted_uniforms: np.ndarray) -> np.ndarray:
    n = sorted_uniforms.shape[1]
    above = np.arange(1, n + 1) / n - sorted_uniforms
    return np.maximum(above, 1 / n - above).max(axis=1)


def test_the_uniform_bounds_hold_in_the_worst_case_and_are_close_there():
    """Sets that are empty or everything: size is B 1{s <= threshold}, so risk and size errors are
    Kolmogorov distances.

    Each of the two events may fail with probability delta / 2; eight candidates, 3,000 repetitions,
    error rate 0.1 %.
    """
    rng, n, candidates, runs, delta = np.random.default_rng(8), 100, 8, 3000, 0.2
    worst = np.max(
        [
            kolmogorov_distances(np.sort(rng.uniform(size=(runs, n)), axis=1))
            for _ in range(candidates)
        ],
        axis=0,
    )
    accuracy = bounds.tuning_accuracy(n, candidates=candidates, size_bound=1.0, delta=delta)
    for bound in (accuracy.risk_error, accuracy.size_error):
        assert (
            binomtest(int(np.sum(worst > bound)), runs, delta / 2, alternative="greater").pvalue
            > 0.001
        )
    assert accuracy.size_error < 1.25 * np.quantile(worst, 1 - delta / 2)


def test_the_uniform_size_bound_holds_for_sets_of_labels():
    """Ten labels with i.i.d. uniform scores: mean size at threshold t is 10 t, and the error is
    uniform in t.
    """
    rng, n, labels, runs = np.random.default_rng(9), 60, 10, 1000
    bound = bounds.tuning_accuracy(n, candidates=1, size_bound=labels, delta=0.1).size_error
    pooled = np.sort(rng.uniform(size=(runs, n * labels)), axis=1)
    errors = labels * kolmogorov_distances(pooled)
    assert np.mean(errors > bound) <= 0.05


def test_exact_quantile_accuracy_is_the_probability_for_uniform_scores():
    """Density 1: P(|q - (1 - alpha)| > t) by simulation, two-sided tests with error rate 1 %."""
    rng, runs = np.random.default_rng(5), 20_000
    for n, alpha, distance in [(100, 0.1, 0.04), (50, 0.2, 0.08)]:
        k = conformal_rank(n, alpha=alpha)
        q = rng.beta(k, n + 1 - k, size=runs)  # the k-th of n uniforms
        missed = int(np.sum(np.abs(q - (1 - alpha)) > distance))
        exact = bounds.quantile_accuracy(n, alpha=alpha, density=1.0, distance=distance)
        assert binomtest(missed, runs, exact).pvalue > 0.01


def test_quantile_accuracy_by_binomial_tails_and_by_the_lemma_which_is_never_below():
    for n in (20, 99, 500, 1000, 2000):
        for alpha in (0.05, 0.1, 0.3):
            k = conformal_rank(n, alpha=alpha)
            for mass in np.linspace(0.001, 0.5, 40):
                setting = {"alpha": alpha, "density": 4.0, "distance": mass / 4}
                exact, lemma = (
                    bounds.quantile_accuracy(n, method=method, **setting)
                    for method in ("exact", "paper")
                )
                tails = binom.cdf(k - 1, n, min(1 - alpha + mass, 1)) + binom.sf(
                    k - 1, n, max(1 - alpha - mass, 0)
                )
                assert exact == pytest.approx(min(1, tails), rel=1e-9, abs=1e-300)
                assert lemma == pytest.approx(
                    min(1, 2 * math.exp(-2 * n * max(mass - 2 / n, 0) ** 2))
                )
                assert exact <= lemma + 1e-12
    assert bounds.quantile_accuracy(1000, alpha=0.1, density=4, distance=0.005) == pytest.approx(
        0.0344, abs=5e-5
    )


@pytest.mark.parametrize("method", ["exact", "paper"])
def test_distance_and_accuracy_are_inverse(method):
    for n, alpha, delta in [(100, 0.1, 0.05), (1000, 0.05, 0.01), (50, 0.3, 0.5)]:
        setting = {"alpha": alpha, "density": 2.5, "method": method}
        distance = bounds.quantile_distance(n, delta=delta, **setting)
        assert bounds.quantile_accuracy(n, distance=distance, **setting) == pytest.approx(delta)
    assert bounds.quantile_distance(8, alpha=0.1, density=1, delta=0.1, method=method) == math.inf
    assert bounds.quantile_accuracy(8, alpha=0.1, density=1, distance=5, method=method) == 1.0


def test_size_after_recalibration_holds_when_the_whole_procedure_is_run():
    """Candidates c: score s = u^(1/c) for y with u uniform, sets {t <= threshold} of size threshold
    in a region of size 1.

    Coverage at threshold l is P(u <= l^c) = l^c and the size is l itself (the same for all x), so
    that everything in the inequality is known: S(c, l*(v)) = v^(1/c). Failures are allowed with
    probability 0.2.
    """
    rng, n_tune, n_cal, shapes, runs = (
        np.random.default_rng(6),
        4000,
        499,
        np.array([1.0, 0.6, 0.3]),
        300,
    )
    bound = bounds.size_after_recalibration(
        n_tune, n_cal, alpha=0.3, candidates=3, size_bound=1.0, delta=0.1, calibration_delta=0.1
    )
    k = conformal_rank(n_cal, alpha=0.3)
    assert bound.coverage_quantile == pytest.approx(beta(k, n_cal + 1 - k).ppf(0.9))
    assert bound.probability == pytest.approx(0.8)
    assert not bound.vacuous
    best = min(bound.oracle_level ** (1 / c) for c in shapes)
    found = []
    for _ in range(runs):
        tuned = [
            np.sort(rng.uniform(size=n_tune) ** (1 / c))[
                math.ceil(bound.ranking_level * n_tune) - 1
            ]
            for c in shapes
        ]
        chosen = shapes[int(np.argmin(tuned))]
        deployed = np.sort(rng.uniform(size=n_cal) ** (1 / chosen))[k - 1]
        too_low = np.any(np.array(tuned) > bound.oracle_level ** (1 / shapes))
        limits = best + bound.size_excess, min(tuned), (k / (n_cal + 1)) ** (1 / chosen)
        found.append([*(deployed > limit for limit in limits), too_low])
    failures, above_ranking, above_expected, above_oracle = np.mean(found, axis=0)
    assert failures <= 0.2
    assert above_ranking <= 0.2  # the step of the proof that asks for the level u + eR
    assert above_oracle <= 0.1  # the step that asks for the level u + 2 eR
    assert above_expected > 0.3  # ranking at the expected coverage would not do


def test_size_after_recalibration_says_when_it_is_empty():
    small = bounds.size_after_recalibration(100, 100, alpha=0.1, candidates=16, size_bound=10.0)
    accuracy = bounds.tuning_accuracy(100, candidates=16, size_bound=10.0)
    assert small.vacuous
    assert small.oracle_level > 1
    assert small.size_excess == 2 * accuracy.size_error
    assert small.ranking_level - small.coverage_quantile == pytest.approx(accuracy.risk_error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": 2, "size_bound": 1, "method": "magic"}, "method must be"),
        ({"candidates": 0, "size_bound": 1}, "candidates must be at least 1"),
        ({"candidates": 2, "size_bound": math.nan}, "size_bound must be a positive number"),
    ],
)
def test_what_is_wrong_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        bounds.tuning_accuracy(10, **options)
