"""Evidence against the law of hits, and the confidence sequence. Every seed is fixed."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import beta

from dco.service.evidence import (
    ALTERNATIVE_WEIGHTS,
    ODDS_FACTORS,
    Evidence,
    confidence_sequence,
    likely_start,
    weight_of_later_starts,
)

N_ROWS = 9
PATHS = list(itertools.product((False, True), repeat=N_ROWS))


def chances_of_hits(path, *, n, rank):
    """Return what the urn expects before each row of a path of hits."""
    hits_before = np.cumsum([0, *path[:-1]])
    return (rank + hits_before) / (n + 1 + np.arange(len(path)))


def probability(path, chances):
    return math.prod(u if hit else 1 - u for hit, u in zip(path, chances, strict=True))


def take_path(path, chances):
    evidence = Evidence.before_first_row()
    for hit, chance in zip(path, chances, strict=True):
        evidence = evidence.after(hit, chance)
    return evidence


def ratio_from(start, path, chances):
    """Compute the likelihood ratio of the rows after a start, by its definition."""
    ratios = np.ones(len(ODDS_FACTORS))
    for hit, u in zip(path[start:], chances[start:], strict=True):
        ratios *= np.where(hit, ODDS_FACTORS, 1.0) / (1 - u + ODDS_FACTORS * u)
    return float(ratios @ ALTERNATIVE_WEIGHTS)


@pytest.mark.parametrize(
    ("n", "rank"), [(50, 46), (9, 9), (20, 12), (9, 10)], ids=["50", "9", "20", "full sets"]
)
class TestAgainstTheUrn:
    def test_evidence_is_the_weighted_mean_over_starts(self, n, rank):
        """And the detector is their sum; the likely start has the largest ratio."""
        weights = -np.diff([weight_of_later_starts(rows) for rows in range(N_ROWS + 1)])
        weights[0] += 0.2
        for path in PATHS:
            chances = chances_of_hits(path, n=n, rank=rank)
            by_start = [ratio_from(start, path, chances) for start in range(N_ROWS)]
            evidence = take_path(path, chances)
            assert float(evidence.weighted @ ALTERNATIVE_WEIGHTS) == pytest.approx(
                weights @ by_start
            )
            assert float(evidence.summed @ ALTERNATIVE_WEIGHTS) == pytest.approx(sum(by_start))
            assert likely_start(path, chances, reported=N_ROWS) == int(np.argmax(by_start))

    def test_the_mean_of_the_evidence_is_one_and_the_detector_grows_by_one_per_row(self, n, rank):
        mean, detector = 0.0, 0.0
        for path in PATHS:
            chances = chances_of_hits(path, n=n, rank=rank)
            evidence = take_path(path, chances)
            share = probability(path, chances)
            mean += share * (
                float(evidence.weighted @ ALTERNATIVE_WEIGHTS) + weight_of_later_starts(N_ROWS)
            )
            detector += share * float(evidence.summed @ ALTERNATIVE_WEIGHTS)
        assert mean == pytest.approx(1)
        assert detector == pytest.approx(N_ROWS)


def test_many_misses_do_not_overflow():
    evidence = take_path([False] * 5_000, [0.9] * 5_000)
    assert 0 < evidence.p_value() < 1e-250
    assert np.isfinite(evidence.after(True, 0.9).largest_martingale)


def test_without_rows_every_coverage_is_possible():
    assert confidence_sequence(0, 0, error_rate=0.05) == (0.0, 1.0)


@pytest.mark.parametrize(("hits", "misses"), [(0, 5), (5, 0), (90, 10), (1, 99)])
def test_the_ends_of_the_interval_solve_its_equation(hits, misses):
    """B(H + 1/2, m + 1/2) / (B(1/2, 1/2) p^H q^m) by the density of the posterior."""
    low, high = confidence_sequence(hits, hits + misses, error_rate=0.05)
    assert low <= hits / (hits + misses) <= high
    for end in (low, high):
        if 0 < end < 1:
            log_prior = beta(0.5, 0.5).logpdf(end)
            log_posterior = beta(hits + 0.5, misses + 0.5).logpdf(end)
            assert log_prior - log_posterior == pytest.approx(math.log(20), abs=1e-6)


def test_the_interval_holds_at_all_times():
    """At most 5 % of 2,000 streams of 2,000 rows may ever leave it, and four standard errors."""
    rng = np.random.default_rng(4)
    coverage, n_streams = 0.9, 2_000
    rows = np.arange(1, 2_001)
    n_left = 0
    for _ in range(n_streams):
        hits = np.cumsum(rng.uniform(size=2_000) < coverage)
        log_prior = beta(0.5, 0.5).logpdf(coverage)
        log_posterior = beta.logpdf(coverage, hits + 0.5, rows - hits + 0.5)
        n_left += np.max(log_prior - log_posterior) >= math.log(20)
    assert n_left / n_streams <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / n_streams)
