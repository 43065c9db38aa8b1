"""Labels that no row of the fit had: what is lost, that the certificate assumes there are none, and
what verdicts count.

40 labels with weights 1 / rank^1.2, 100 rows in all, Gaussian naive Bayes and LAC at 90 %. About a
tenth of new rows have a label that the fit does not know.
"""

import warnings
from typing import NamedTuple

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


class Run(NamedTuple):
    """One fit and 500 new rows."""

    certificate: dco.Certificate
    found: dco.Evaluation

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.certificate.thresholds[0].value))


@pytest.fixture(scope="module")
def fits() -> list[Run]:
    return [one_fit(seed) for seed in range(RUNS)]


def one_fit(seed: int) -> Run:
    rng = np.random.default_rng([7, seed])
    y = rng.choice(40, p=WEIGHTS, size=600)
    X = CENTRES[y] + rng.normal(size=(600, 2))
    est = dco.DecoupledClassifier(GaussianNB(), LAC(), random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # infinite thresholds and unknown labels, told each time
        est.fit(X[:100], y[:100])
        return Run(est.certificate_, est.evaluate(X[100:], y[100:]))


def test_every_certificate_assumes_known_labels_whatever_its_threshold(fits) -> None:
    assert {run.finite for run in fits} == {False, True}
    for run in fits:
        assert "The label of the new row is known to the fit" in run.certificate.assumption
        assert run.certificate.structure.labels < 40


def test_exchangeability_alone_leaves_out_unknown_labels(fits) -> None:
    """A row is covered or has an unknown label at least nine times in ten; covered alone, where q
    is finite, it is not.
    """
    either = np.array(
        [run.found.coverage + run.found.overall.unknown_labels / run.found.n for run in fits]
    )
    check_mean(either, 0.9)
    covered = [run.found.coverage for run in fits if run.finite]
    if FULL:
        check_loses(covered, 0.9, errors=4)
    else:
        check_mean(covered, high=0.9)


def test_verdicts_count_unknown_labels_as_misses_where_the_threshold_is_finite(fits) -> None:
    """p-values keep their rate, unknown labels included: at most a share u of them is below u
    (error rate 0.1 %).
    """
    for run in fits:
        law, n, unknown = run.found.consistency, run.found.n, run.found.overall.unknown_labels
        if run.finite:
            assert (law.n_test, law.coverage, law.unknown_labels) == (n, run.found.coverage, 0)
            assert unknown > 0
            assert run.found.verdict == (
                "failed" if law.p_value < 0.01 and law.coverage < law.expected_coverage else "held"
            )
        else:  # full sets miss nothing else
            assert (law.n_test, law.coverage, law.unknown_labels) == (n - unknown, 1.0, unknown)
            assert law.verdict.startswith("the assumption fails: ")
            assert "No set can hold a label that the fit does not know" in run.found.in_words()
    assert any(run.found.verdict == "held" for run in fits if run.finite)
    for level in (0.01, 0.05, 0.2):
        low = sum(run.found.consistency.p_value <= level for run in fits)
        assert binomtest(low, RUNS, level, alternative="greater").pvalue > 0.001
