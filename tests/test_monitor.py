"""Watching a fit: the law of hits, what an alarm claims, and the monitor around it. All seeds are fixed."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from scipy.stats import beta, betabinom
from sklearn.linear_model import LogisticRegression, Ridge

import dco
from dco.evaluation.monitor import (
    ODDS,
    STEP,
    Evidence,
    confidence_sequence,
    log_evidence,
    most_likely_start,
    start_weights,
)
from dco.foundations.notes import NoteWarning


def fitted(seed: int = 0, n: int = 800, **parameters) -> dco.DecoupledRegressor:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = X[:, 0] + rng.normal(size=n)
    return dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), random_state=0, **parameters).fit(X, y)


def rows(n: int, *, noise: float = 1.0, seed: int = 1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + noise * rng.normal(size=n)


# ------------------------------------------------------------------------------------------------------------ the law


@pytest.mark.parametrize(("n", "rank"), [(50, 46), (19, 19), (200, 150), (9, 10)])
def test_the_evidence_is_a_ratio_of_beta_binomial_laws_with_mean_one(n, rank):
    """M times the urn's law of hits sums to 1 over all numbers of hits: a fair bet, whichever number of rows."""
    for t in (1, 7, 60):
        h = np.arange(t + 1)
        if rank <= n:
            law = betabinom(t, rank, n + 1 - rank).pmf(h)
            other = np.mean([betabinom(t, c * rank, n + 1 - rank).pmf(h) for c in ODDS], axis=0)
            np.testing.assert_allclose(np.exp(log_evidence(h, t, rank=rank, n=n)), other / law, rtol=1e-9)
            assert np.sum(law * np.exp(log_evidence(h, t, rank=rank, n=n))) == pytest.approx(1, abs=1e-9)
        assert np.exp(log_evidence(t, t, rank=rank, n=n)) <= 1 + 1e-9  # hits are never evidence; full sets always hit


def test_the_evidence_is_a_martingale_of_the_urn_step_by_step():
    n, rank = 30, 28
    for h, m in ((0, 0), (3, 1), (10, 10)):
        t, u = h + m, (rank + h) / (n + 1 + h + m)
        after = np.exp(log_evidence([h + 1, h], t + 1, rank=rank, n=n))
        assert u * after[0] + (1 - u) * after[1] == pytest.approx(math.exp(log_evidence(h, t, rank=rank, n=n)))


@pytest.mark.parametrize(("n", "rank"), [(50, 46), (1000, 901), (19, 19), (9, 10), (40, 3)])
def test_a_miss_that_becomes_a_hit_lowers_the_evidence(n, rank):
    """What carries the claim over to tied scores: their sets cover whatever sets with ties broken at random cover."""
    t = 300
    assert np.all(np.diff(log_evidence(np.arange(t + 1), t, rank=rank, n=n)) < 0)


def test_weights_of_the_starts_sum_to_one():
    """The sum telescopes: what j starts leave over is ln 2 / (2 ln(j + 1))."""
    for j in (1, 2, 10, 100_000):
        assert start_weights(j).sum() == pytest.approx(1 - math.log(2) / (2 * math.log(j + 1)) if j > 1 else 0.5)
    assert np.all(np.diff(start_weights(1000)) < 0)


def test_one_batch_and_single_rows_give_the_same_evidence_as_brute_force():
    rng = np.random.default_rng(3)
    hits = rng.uniform(size=1_250) < np.where(np.arange(1_250) < 700, 0.9, 0.7)
    law = {"rank": 91, "n": 100}
    whole, single = Evidence.none().after(hits, **law), Evidence.none()
    for hit in hits:
        single = single.after(np.array([hit]), **law)
    np.testing.assert_array_equal(whole.hits_before, single.hits_before)
    np.testing.assert_array_equal(whole.largest, single.largest)
    total = np.concatenate([[0], np.cumsum(hits)])
    for j, largest in enumerate(whole.largest):
        s = j * STEP
        t = np.arange(s, len(hits) + 1)
        assert largest == pytest.approx(np.max(log_evidence(total[t] - total[s], t - s, **law)))
    assert len(whole.largest) == 13
    assert 600 < most_likely_start(hits, **law) < 800


def test_the_confidence_sequence_solves_its_equation_and_holds_at_all_times():
    """At most 5 % of 2,000 streams of 2,000 rows may ever leave it: at most 5 % + 4 standard errors."""
    for hits, misses in ((0, 5), (5, 0), (90, 10), (1, 99)):
        low, high = confidence_sequence(hits, hits + misses, error_rate=0.05)
        assert low <= hits / (hits + misses) <= high
        for end in (low, high):
            if 0 < end < 1:
                # B(H + 1/2, m + 1/2) / (B(1/2, 1/2) p^H q^m), by the density of the posterior
                log_ratio = -beta(hits + 0.5, misses + 0.5).logpdf(end) + beta(0.5, 0.5).logpdf(end)
                assert log_ratio == pytest.approx(math.log(20), abs=1e-6)
    assert confidence_sequence(0, 0, error_rate=0.05) == (0.0, 1.0)
    rng, p, t = np.random.default_rng(4), 0.9, np.arange(1, 2_001)
    ever = []
    for _ in range(2_000):
        h = np.cumsum(rng.uniform(size=2_000) < p)
        ever.append(np.max(beta(0.5, 0.5).logpdf(p) - beta_logpdf(p, h + 0.5, t - h + 0.5)) >= math.log(20))
    assert np.mean(ever) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2_000)


def beta_logpdf(p, a, b):
    from scipy.special import betaln

    return (a - 1) * math.log(p) + (b - 1) * math.log1p(-p) - betaln(a, b)


# --------------------------------------------------------------------------------------------------------- the monitor


@pytest.mark.parametrize("parameters", [{}, {"guarantee": "pac", "delta": 0.1}, {"alpha": "0.2"}])
def test_rows_like_those_of_the_fit_give_no_alarm_and_noisier_rows_give_one(parameters):
    monitor = dco.Monitor(fitted(**parameters))
    assert str(monitor.report()) == "No rows yet: nothing is known."
    report = monitor.update(*rows(400))
    assert not report.alarm
    assert report.since is None
    assert report.guarantee == parameters.get("guarantee", "marginal")
    assert report.interval[0] < report.coverage < report.interval[1]
    rank = {"pac": dco.pac_rank(200, alpha=0.1, delta=0.1)}.get(
        report.guarantee, dco.conformal_rank(200, alpha=parameters.get("alpha", 0.1))
    )
    assert report.expected_coverage == rank / 201
    assert str(report).startswith("No alarm")
    report = monitor.update(*rows(400, noise=2.0, seed=2))
    assert report.alarm
    assert report.p_value <= 0.05
    assert report.rows == 800
    assert 300 < report.since < 500
    assert report.coverage_since < report.coverage
    assert "The change probably began near row" in str(report)
    assert monitor.update(*rows(2_000, seed=3)).alarm  # an alarm stays


def test_hits_are_those_of_the_sets():
    est, (X, y) = fitted(), rows(300)
    report = dco.Monitor(est).update(X, y)
    assert report.coverage == np.mean(est.predict_set(X).contains(y))


def test_one_by_one_in_batches_and_resumed_give_the_same_state():
    est, (X, y) = fitted(), rows(230, noise=1.5)
    whole, single = dco.Monitor(est), dco.Monitor(est)
    report = whole.update(X, y)
    for i in range(230):
        if i == 100:
            single = dco.Monitor(est, state=json.loads(json.dumps(single.state())))
        last = single.update(X[[i]], y[[i]])
    assert last == report
    assert single.state() == whole.state()


def test_a_saved_model_goes_on_with_its_state_and_knows_rows_in_other_containers(tmp_path):
    pd = pytest.importorskip("pandas")
    est, (X, y) = fitted(), rows(60)
    monitor = dco.Monitor(est)
    report = monitor.update(X, y)
    dco.save(est, tmp_path / "model.dco")
    again = dco.Monitor(dco.load(tmp_path / "model.dco"), state=monitor.state())
    assert again.report() == report
    with pytest.warns(NoteWarning, match="60 rows of 60 are equal"):
        assert again.update(pd.DataFrame(X).to_numpy().tolist(), pd.Series(y)) == report


def test_a_row_seen_twice_counts_once_and_rows_of_the_fit_do_not_count():
    est, (X, y) = fitted(), rows(50)
    monitor = dco.Monitor(est)
    monitor.update(X[:30], y[:30])
    with pytest.warns(NoteWarning, match="30 rows of 50 are equal to rows seen before"):
        report = monitor.update(X, y)
    assert report == dco.Monitor(est).update(X, y)
    rng = np.random.default_rng(0)
    old = rng.normal(size=(800, 3))
    with pytest.warns(NoteWarning, match="800 rows of 800 are equal"):
        assert monitor.update(old, old[:, 0] + rng.normal(size=800)).rows == 50
    every = dco.Monitor(est, duplicates="natural")
    every.update(X, y)
    assert every.update(X, y).rows == 100


def test_a_fit_with_natural_copies_is_noted():
    rng = np.random.default_rng(0)
    X = rng.integers(3, size=(300, 1)).astype(float)
    y = rng.integers(3, size=300).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), random_state=0).fit(X, y)
    with pytest.warns(NoteWarning, match="have copies among them"):
        dco.Monitor(est)
    dco.Monitor(est, duplicates="natural")


def test_labels_that_the_fit_does_not_know_are_misses():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = np.where(X[:, 0] + rng.normal(size=400) > 0, "a", "b")
    est = dco.DecoupledClassifier(LogisticRegression(), dco.scores.LAC(), random_state=0).fit(X, y)
    with pytest.warns(NoteWarning, match="2 labels of 2 are not in classes_ and count as misses"):
        assert dco.Monitor(est).update(rng.normal(size=(2, 2)), ["c", "d"]).coverage == 0


def test_full_sets_never_alarm():
    with pytest.warns(dco.InfeasibleLevelWarning):
        est = fitted(n=40, calibrate_size=8, alpha=0.01)
    report = dco.Monitor(est).update(*rows(3_000, noise=9))
    assert (report.coverage, report.p_value, report.alarm) == (1.0, 1.0, False)


# ----------------------------------------------------------------------------------------------------- one clear sentence


def test_what_cannot_be_watched_is_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    X[:, 1] = X[:, 1] > 0
    y = rng.normal(size=400)
    make = dco.DecoupledRegressor
    score = dco.scores.AbsoluteResidual()
    with pytest.raises(ValueError, match="condition_on= with 2 thresholds, and a monitor watches one"):
        dco.Monitor(make(Ridge(), score, condition_on=1, random_state=0).fit(X, y))
    with pytest.raises(ValueError, match="The fit has groups="):
        dco.Monitor(make(Ridge(), score, random_state=0).fit(X, y, groups=np.arange(400) // 4))
    labels = np.where(X[:, 0] > 0, "a", "b")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        none = dco.DecoupledClassifier(LogisticRegression(), dco.scores.LAC(), stratify=True, random_state=0).fit(X, labels)
    with pytest.raises(ValueError, match="there is no promise to watch"):
        dco.Monitor(none)


def test_bad_input_gets_one_sentence():
    est = fitted()
    with pytest.raises(ValueError, match="error_rate must be a number strictly between 0 and 1"):
        dco.Monitor(est, error_rate=1.5)
    with pytest.raises(ValueError, match='duplicates must be "drop" or "natural"'):
        dco.Monitor(est, duplicates="once")
    with pytest.raises(ValueError, match="not fitted"):
        dco.Monitor(dco.DecoupledRegressor(Ridge()))
    monitor = dco.Monitor(est)
    X, y = rows(5)
    with pytest.raises(ValueError, match="X has 5 rows and y has 4"):
        monitor.update(X, y[:4])
    with pytest.raises(ValueError, match="y is missing in row 0"):
        monitor.update(X, [math.nan, *y[1:]])
    with pytest.raises(ValueError, match="state must be what"):
        dco.Monitor(est, state={"hits": "01"})
    with pytest.raises(ValueError, match="state is of a monitor of another fit"):
        dco.Monitor(fitted(seed=1), state=monitor.state())
    assert monitor.report().rows == 0
    est.fit(X=np.random.default_rng(5).normal(size=(400, 3)), y=np.random.default_rng(6).normal(size=400))
    with pytest.raises(ValueError, match="fitted again since this monitor began"):
        monitor.update(X, y)
