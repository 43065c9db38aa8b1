"""Labels that no row of the fit had: what is lost, that the certificate assumes there are none, and
what verdicts count.

40 labels with weights 1 / rank^1.2, 100 rows in all, Gaussian naive Bayes and LAC at 90 %. About a
tenth of new rows have a label that the fit does not know.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from laws import FULL, check_loses, check_mean
from scipy.stats import binomtest
from sklearn.naive_bayes import GaussianNB

import dco
from dco.scores import LAC

RUNS = 300 if FULL else 60
WEIGHTS = np.arange(1, 41) ** -1.2 / np.sum(np.arange(1, 41) ** -1.2)
CENTRES = np.random.default_rng(0).normal(size=(40, 2))

pytestmark = pytest.mark.guarantee


@dataclass(frozen=True)
class Run:
    """One fit and 500 new rows."""

    certificate: dco.Certificate
    evaluation: dco.Evaluation

    @classmethod
    def of_seed(cls, seed):
        rng = np.random.default_rng([7, seed])
        y = rng.choice(40, p=WEIGHTS, size=600)
        X = CENTRES[y] + rng.normal(size=(600, 2))
        est = dco.DecoupledClassifier(GaussianNB(), LAC(), random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # infinite thresholds and unknown labels
            est.fit(X[:100], y[:100])
            return cls(est.certificate_, est.evaluate(X[100:], y[100:]))

    @property
    def has_finite_threshold(self):
        return bool(np.isfinite(self.certificate.thresholds[0].value))

    @property
    def n_unknown(self):
        return self.evaluation.overall.unknown_labels


@pytest.fixture(scope="module")
def runs():
    return [Run.of_seed(seed) for seed in range(RUNS)]


@pytest.fixture(scope="module")
def finite_runs(runs):
    return [run for run in runs if run.has_finite_threshold]


@pytest.fixture(scope="module")
def full_runs(runs):
    """Return the runs whose sets are full."""
    return [run for run in runs if not run.has_finite_threshold]


def test_there_are_finite_thresholds_and_full_sets(finite_runs, full_runs):
    assert finite_runs
    assert full_runs


def test_every_fit_knows_some_of_the_labels_only(runs):
    assert all(run.certificate.structure.labels < 40 for run in runs)


def test_every_certificate_assumes_known_labels(runs):
    assumption = "The label of the new row is known to the fit"

    assert all(assumption in run.certificate.assumption for run in runs)


def test_a_row_is_covered_or_has_an_unknown_label_at_the_level(runs):
    shares = [run.evaluation.coverage + run.n_unknown / run.evaluation.n for run in runs]

    check_mean(shares, 0.9)


def test_coverage_alone_is_below_the_level_where_the_threshold_is_finite(finite_runs):
    coverage = [run.evaluation.coverage for run in finite_runs]

    if FULL:
        check_loses(coverage, 0.9, errors=4)
    else:
        check_mean(coverage, high=0.9)


def test_unknown_labels_count_as_misses_where_the_threshold_is_finite(finite_runs):
    for run in finite_runs:
        test = run.evaluation.consistency
        assert run.n_unknown > 0
        assert test.n_test == run.evaluation.n
        assert test.coverage == run.evaluation.coverage
        assert test.unknown_labels == 0


def test_verdicts_follow_the_p_value_where_the_threshold_is_finite(finite_runs):
    def is_too_low(test):
        return test.p_value < 0.01 and test.coverage < test.expected_coverage

    verdicts = [run.evaluation.verdict for run in finite_runs]

    assert verdicts == [
        "failed" if is_too_low(run.evaluation.consistency) else "held" for run in finite_runs
    ]
    assert "held" in verdicts


def test_full_sets_miss_unknown_labels_only(full_runs):
    for run in full_runs:
        test = run.evaluation.consistency
        assert test.n_test == run.evaluation.n - run.n_unknown
        assert test.coverage == 1.0
        assert test.unknown_labels == run.n_unknown


def test_the_assumption_fails_where_full_sets_miss_unknown_labels(full_runs):
    for run in full_runs:
        assert run.evaluation.consistency.verdict.startswith("the assumption fails: ")
        assert "No set can hold a label that the fit does not know" in run.evaluation.in_words()


@pytest.mark.parametrize("level", [0.01, 0.05, 0.2])
def test_p_values_keep_their_rate_with_unknown_labels(runs, level):
    """At most a share u of them is below u; error rate 0.1 %."""
    n_below = sum(run.evaluation.consistency.p_value <= level for run in runs)

    assert binomtest(n_below, RUNS, level, alternative="greater").pvalue > 0.001
