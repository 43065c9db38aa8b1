"""Checks that see mistakes: each check passes on the code as it is, and fails when its mistake is
planted.

The mistakes are those that other libraries have shipped: a float ceil, `np.quantile(...,
"higher")`, a rank clamped to n, a strict inequality, tuning rows used for calibration, a reversed
comparison.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta, kstest, norm
from sklearn.linear_model import Ridge

import dco
import dco.calibration.guarantee
import dco.calibration.marginal
import dco.foundations.ranks
import dco.predictor
from dco.scores import LAC
from dco.structure import ScoredRows

MARGINAL = dco.calibration.marginal


def check_ranks() -> None:
    """Every cell n = 5..400 x confidence .50 .. .99, the level typed as a complement, against
    fractions.
    """
    for percent in range(50, 100):
        level = Fraction(100 - percent, 100)
        for n in range(5, 401):
            right = math.ceil((n + 1) * (1 - level))
            assert MARGINAL.conformal_rank(n, alpha=1 - percent / 100) == right, (n, percent)


def check_beta_law() -> None:
    """Uniform scores: the threshold is the coverage, Beta(k, n + 1 - k); KS at level 1e-4 (fixed
    seed).
    """
    rng = np.random.default_rng(0)
    found = [dco.split_conformal(rng.uniform(size=99), alpha=0.1).value for _ in range(3000)]
    assert kstest(found, beta(90, 10).cdf).pvalue > 1e-4


def check_too_few_rows() -> None:
    """Eight rows cannot give 90 %: the threshold is infinite."""
    with pytest.warns(dco.InfeasibleLevelWarning, match="At least 9"):
        assert math.isinf(dco.split_conformal(np.arange(8.0), alpha=0.1).value)


def check_ties() -> None:
    """A label whose score equals the threshold is in the set, so sets hold at least k of the
    calibration rows.
    """
    probabilities = np.repeat([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1]], 50, axis=0)
    y = np.repeat([0, 1], 50)
    prediction = dco.ClassProbabilities(probabilities)
    score = LAC()
    threshold = dco.split_conformal(score.observed(prediction, y), alpha=0.1)
    assert np.mean(score.sets(prediction, threshold).contains(y)) >= 0.9


def check_sizes() -> None:
    """LAC sets have the size of the oracle's: coverage alone would not see a reversed
    comparison.
    """
    rng = np.random.default_rng(1)
    logits = 3 * rng.normal(size=(2000, 10))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) > rng.uniform(size=(2000, 1))).argmax(axis=1)
    prediction = dco.ClassProbabilities(p)
    threshold = dco.split_conformal(LAC().observed(prediction, y), alpha=0.1)
    kept = np.sort(p.ravel())[::-1]
    # p is the truth: keep the likeliest labels
    oracle = (np.searchsorted(np.cumsum(kept), 0.9 * len(p)) + 1) / len(p)
    size = LAC().sets(prediction, threshold).sizes().mean()
    assert size == pytest.approx(oracle, rel=0.1)


def check_sealed_calibration(runs: int = 300) -> None:
    """Sixteen equal candidates, one chosen: mean coverage agrees with k / (n + 1) (two-sided z at
    1e-4).
    """
    z = norm.ppf(1 - 0.5e-4)
    rank, n = dco.conformal_rank(40, alpha=0.2), 40
    found = [_coverage_after_search(seed) for seed in range(runs)]
    sd = beta(rank, n + 1 - rank).std()
    assert abs(np.mean(found) - rank / (n + 1)) < z * sd / math.sqrt(runs)


class _Shift(Ridge):
    """A model without any skill: y is independent of x, and so is what it says."""

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.number = number

    def predict(self, X):
        return np.sin(1e4 * X[:, 0] * (1 + self.number))


def _coverage_after_search(seed: int) -> float:
    """Exact coverage given everything: y ~ uniform(-1, 1) + noise-free, so an interval's mass is
    known.
    """
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(120, 1)), rng.uniform(-1, 1, size=120)
    models = {str(i): _Shift(i) for i in range(16)}
    est = dco.DecoupledRegressor(
        models, alpha=0.2, tune_size=40, calibrate_size=40, random_state=seed
    ).fit(X, y)
    sets = est.predict_set(rng.normal(size=(2000, 1)))
    return float(np.mean((np.clip(sets.upper, -1, 1) - np.clip(sets.lower, -1, 1)) / 2))


def _float_ceil(n, *, alpha):
    return math.ceil((n + 1) * (1 - float(alpha)))


def _higher_quantile(scores, rank):
    return float(np.quantile(scores, min(rank / scores.size, 1.0), method="higher"))


def _clamped(n, *, alpha):
    return min(dco.foundations.ranks.conformal_rank(n, alpha=alpha), n)


def _strict(self, prediction, threshold):
    return dco.LabelSets(self.every_label(prediction) < float(threshold))


def _reversed(self, prediction, threshold):
    return dco.LabelSets(self.every_label(prediction) > 1 - float(threshold))


def _open_tuning_rows(
    structure, sealed, calibrator, *, _right=dco.predictor.open_calibration_rows, **settings
):
    """The rows that chose the structure certify it too."""
    opened = _right(structure, sealed, calibrator, **settings)
    X, y = _open_tuning_rows.tuning  # type: ignore[attr-defined]
    scores = structure.score.observed(structure.prediction(X), y)
    return replace(opened, scored=ScoredRows(scores))


MISTAKES = {
    "float ceil": (MARGINAL, "conformal_rank", _float_ceil, check_ranks),
    "np.quantile higher": (
        dco.calibration.guarantee,
        "order_statistic",
        _higher_quantile,
        check_beta_law,
    ),
    "rank clamped to n": (MARGINAL, "conformal_rank", _clamped, check_too_few_rows),
    "strict inequality": (LAC, "sets", _strict, check_ties),
    "reversed comparison": (LAC, "sets", _reversed, check_sizes),
}


@pytest.mark.parametrize(("target", "name", "wrong", "check"), MISTAKES.values(), ids=MISTAKES)
def test_a_check_passes_on_the_code_as_it_is_and_catches_its_mistake(
    target, name, wrong, check, monkeypatch
) -> None:
    check()
    monkeypatch.setattr(target, name, wrong)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check()


def test_sealed_rows_keep_the_law_after_a_search() -> None:
    check_sealed_calibration()


def test_tuning_rows_used_for_calibration_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coupling that the library exists to prevent: the tuning rows certify what they chose."""
    right_choose = dco.predictor.choose

    def coupled(models, scores, resampling, **settings):
        rows = resampling.tuning_rows
        _open_tuning_rows.tuning = (rows.X, rows.y)  # type: ignore[attr-defined]
        return right_choose(models, scores, resampling, **settings)

    monkeypatch.setattr(dco.predictor, "choose", coupled)
    monkeypatch.setattr(dco.predictor, "open_calibration_rows", _open_tuning_rows)
    with pytest.raises(AssertionError):
        check_sealed_calibration()
