"""Watching a fit: the law of hits, what an alarm claims, and the monitor around it. All seeds are
fixed.
"""

import itertools
import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta, binomtest, kstest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge

import dco
from dco.foundations.notes import NoteWarning
from dco.service import drift
from dco.service.drift import SortedScores, Stakes
from dco.service.evidence import (
    ODDS,
    SHARES,
    Evidence,
    confidence_sequence,
    likely_start,
    weight_of_later_starts,
)


def fitted(seed: int = 0, n: int = 800, **parameters) -> dco.DecoupledRegressor:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = X[:, 0] + rng.normal(size=n)
    return dco.DecoupledRegressor(
        Ridge(), dco.scores.AbsoluteResidual(), random_state=0, **parameters
    ).fit(X, y)


def rows(n: int, *, noise: float = 1.0, seed: int = 1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + noise * rng.normal(size=n)


# --------------------------------------------------------------------------------------------------
# ---------- the law


def urn_law(n: int, rank: int, path: tuple[bool, ...]) -> tuple[float, list[float]]:
    """The probability of a path of hits under the urn, and what the urn expected before each
    row.
    """
    probability, expected, hits = 1.0, [], 0
    for t, hit in enumerate(path):
        u = (rank + hits) / (n + 1 + t)
        expected.append(u)
        probability *= u if hit else 1 - u
        hits += hit
    return probability, expected


def after(path, expected) -> Evidence:
    found = Evidence.before_first_row()
    for hit, u in zip(path, expected, strict=True):
        found = found.after(hit, u)
    return found


def ratio(path, expected, start: int, c: float) -> float:
    steps = [
        (c if hit else 1) / (1 - u + c * u)
        for hit, u in zip(path[start:], expected[start:], strict=True)
    ]
    return math.prod(steps)


@pytest.mark.parametrize(("n", "rank"), [(50, 46), (9, 9), (20, 12), (9, 10)])
def test_the_evidence_is_the_mean_over_starts_and_has_mean_one_under_the_urn(n, rank):
    """Over all 2^9 paths; the detector grows by one per row. The urn of full sets has one path."""
    means = np.zeros(2)
    for path in itertools.product((False, True), repeat=9):
        probability, expected = urn_law(n, rank, path)
        found = after(path, expected)
        weights = [
            0.2 + weight_of_later_starts(0) - weight_of_later_starts(1),
            *(weight_of_later_starts(s) - weight_of_later_starts(s + 1) for s in range(1, 9)),
        ]
        by_start = [
            sum(share * ratio(path, expected, s, c) for c, share in zip(ODDS, SHARES, strict=True))
            for s in range(9)
        ]
        mean = float(found.weighted @ SHARES) + weight_of_later_starts(9)
        assert mean == pytest.approx(np.dot(weights, by_start) + weight_of_later_starts(9))
        assert float(found.summed @ SHARES) == pytest.approx(sum(by_start))
        means += probability * np.array([mean, sum(by_start)])
        assert likely_start(path, expected, reported=9) == int(np.argmax(by_start))
    np.testing.assert_allclose(means, [1, 9])
    long = after([False] * 5_000, [0.9] * 5_000)  # no overflow
    assert 0 < long.p_value() < 1e-250
    assert np.isfinite(long.after(True, 0.9).largest_mean)


def test_places_are_uniform_and_independent_with_ties_too(monkeypatch):
    """p-values above .001 of three checks; a place is counted by brute force."""
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=3_000), rng.integers(4, size=3_000).astype(float)):
        monkeypatch.setattr(drift, "_MERGE_AT", 500)  # scores are merged now and then
        places = SortedScores(values[:20].tolist())
        found = []
        for t in range(20, 3_000):
            uniform = rng.random()
            below, equal = np.sum(values[:t] < values[t]), np.sum(values[:t] == values[t])
            found.append(places.place(float(values[t]), uniform=uniform))
            assert found[-1] == (below + uniform * (1 + equal)) / (1 + t)
        assert kstest(found, "uniform").pvalue > 0.001
        assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 3.3 / math.sqrt(3_000)


def test_bets_on_places_have_mean_one():
    """Gauss-Legendre integrates a bet exactly, whatever the stakes."""
    nodes, weights = np.polynomial.legendre.leggauss(5)
    stakes = Stakes.before_first_row().after(0.93).after(0.1)
    after_one = [stakes.after((node + 1) / 2).by_bet.sum() for node in nodes]
    assert np.dot(weights, after_one) / 2 == pytest.approx(stakes.by_bet.sum())


def test_the_confidence_sequence_solves_its_equation_and_holds_at_all_times():
    """At most 5 % of 2,000 streams of 2,000 rows may ever leave it: at most 5 % + 4 standard
    errors.
    """
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
        ever.append(
            np.max(beta(0.5, 0.5).logpdf(p) - beta.logpdf(p, h + 0.5, t - h + 0.5)) >= math.log(20)
        )
    assert np.mean(ever) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2_000)


# --------------------------------------------------------------------------------------------------
# ------- the monitor


@pytest.mark.parametrize("parameters", [{}, {"guarantee": "pac", "delta": 0.1}, {"alpha": "0.2"}])
def test_rows_like_those_of_the_fit_give_no_alarm_and_noisier_rows_give_one(parameters):
    est = fitted(**parameters)
    monitor = dco.Monitor(est)
    assert str(monitor.report()) == "No rows yet: nothing is known."
    report = monitor.update(*rows(400))
    alpha, guarantee = parameters.get("alpha", 0.1), parameters.get("guarantee", "marginal")
    assert (report.alarm, report.since, report.guarantee) == (False, None, guarantee)
    assert report.coverage == np.mean(est.predict_set(rows(400)[0]).contains(rows(400)[1]))
    assert report.interval[0] < report.coverage < report.interval[1]
    ranks = {
        "pac": dco.pac_rank(200, alpha=alpha, delta=0.1),
        "marginal": dco.conformal_rank(200, alpha=alpha),
    }
    assert report.expected_coverage == pytest.approx(ranks[guarantee] / 201, rel=1e-15)
    assert str(report).startswith("No alarm")
    report = monitor.update(*rows(400, noise=2.0, seed=2))
    assert (report.alarm, report.rows, report.p_value <= 0.05) == (True, 800, True)
    assert 300 < report.since < 500
    assert report.coverage_since < report.coverage
    assert "The change probably began near row" in str(report)
    assert monitor.update(*rows(2_000, seed=3)).alarm  # an alarm stays


def test_a_row_seen_twice_counts_once_and_rows_of_the_fit_do_not_count():
    est, (X, y) = fitted(), rows(50)
    monitor = dco.Monitor(est)
    monitor.update(X[:30], y[:30])
    with pytest.warns(NoteWarning, match="30 rows of 50 are equal to rows seen before"):
        report = monitor.update(X, y)
    assert report == dco.Monitor(est).update(X, y)
    with pytest.warns(NoteWarning, match="50 rows of 50 are equal"):  # in other containers too
        assert monitor.update(pd.DataFrame(X).to_numpy().tolist(), pd.Series(y)) == report
    with pytest.warns(NoteWarning, match="800 rows of 800 are equal"):
        assert monitor.update(*rows(800, seed=0)).rows == 50
    every = dco.Monitor(est, duplicates="natural")
    every.update(X, y)
    assert every.update(X, y).rows == 100


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fit_with_natural_copies_is_noted():
    X, y = np.random.default_rng(0).integers(3, size=(2, 300)).astype(float)
    est = dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), random_state=0).fit(
        X[:, None], y
    )
    with pytest.warns(NoteWarning, match="have copies among them.* alarms may then be false"):
        dco.Monitor(est)
    with warnings.catch_warnings(action="error"):
        dco.Monitor(est, duplicates="natural")


def test_an_alarm_and_a_change_are_reported_at_the_stated_rates_and_not_before():
    est, (X, y) = fitted(), rows(60, noise=3)
    monitor, threshold = (
        dco.Monitor(est, error_rate=0.01, run_length=200),
        est.certificate_.thresholds[0],
    )
    reports = [monitor.update(X[row : row + 1], y[row : row + 1]) for row in range(60)]
    path = tuple(map(bool, monitor.timeline()["covered"]))
    _, expected = urn_law(threshold.n, threshold.rank, path)
    found = [float(after(path[:t], expected[:t]).detector) for t in range(1, 61)]
    assert [report.change for report in reports] == [detector >= 200 for detector in found]
    assert any(50 < detector < 200 for detector in found)
    assert [report.alarm for report in reports] == [report.p_value <= 0.01 for report in reports]
    assert any(0.01 < report.p_value <= 0.02 for report in reports)
    first = next(
        row for row, report in enumerate(reports, start=1) if report.alarm or report.change
    )
    assert [report.reported for report in reports] == [None] * (first - 1) + [first] * (61 - first)
    assert reports[-1].alarm


def test_a_label_that_the_fit_does_not_know_is_in_no_condition():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    est = dco.DecoupledClassifier(
        LogisticRegression(), dco.scores.LAC(), condition_on="label", random_state=0
    )
    monitor = dco.Monitor(est.fit(X, np.where(X[:, 0] + rng.normal(size=400) > 0, "a", "b")))
    with pytest.warns(NoteWarning, match="1 label of 3 is not in classes_"):
        report = monitor.update(rng.normal(size=(3, 2)), ["a", "c", "b"])
    assert {entry.condition: entry.rows for entry in report.conditions} == {"a": 1, "b": 1}
    by_sign = est.set_params(condition_on=lambda X: X[:, 0] > 0).fit(
        X, np.where(X[:, 0] + X[:, 1] > 0, "a", "b")
    )
    # a miss in the condition of its row
    with pytest.warns(NoteWarning, match="1 label of 3 is not in classes_"):
        report = dco.Monitor(by_sign).update(
            np.array([[1.0, 0.5], [2.0, 0.5], [-1.0, 0.5]]), ["a", "c", "b"]
        )
    assert {entry.condition: (entry.rows, entry.coverage) for entry in report.conditions} == {
        "False": (1, 1),
        "True": (2, 0.5),
    }


def test_hits_among_tied_scores_have_the_probability_of_the_urn():
    """Both calibration scores and the new one are equal: the row is a hit with probability k / (n +
    1) = 2 / 3.
    """
    rng, runs, misses = np.random.default_rng(0), 150, 0
    for run in range(runs):
        X, y = rng.normal(size=(50, 1)), np.full(50, 1.0 + run)  # another seed of the ties
        model = FrozenEstimator(Ridge().fit(X, np.zeros(50)))
        est = dco.DecoupledRegressor(
            model, dco.scores.AbsoluteResidual(), alpha=0.4, tune_size=0, random_state=0
        )
        report = dco.Monitor(est.fit(X[:2], y[:2])).update(X[9:10], y[9:10])
        assert report.coverage == 1
        misses += report.p_value < 1
    assert binomtest(misses, runs, 1 / 3).pvalue > 1e-3


def test_full_sets_never_alarm_and_do_not_hide_labels_that_the_fit_does_not_know():
    with pytest.warns(dco.InfeasibleLevelWarning):
        est = fitted(n=40, calibrate_size=8, alpha=0.01)
    report = dco.Monitor(est).update(*rows(3_000, noise=9))
    assert (report.coverage, report.p_value, report.alarm) == (1.0, 1.0, False)
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(60, 2)), np.where(np.arange(60) % 2, "a", "b")
    est = dco.DecoupledClassifier(
        LogisticRegression(), dco.scores.LAC(), calibrate_size=5, random_state=0
    )
    with pytest.warns(NoteWarning):
        est.fit(X, labels)
    assert est.predict_set(X).is_full().all()
    with pytest.warns(NoteWarning, match="20 labels of 30 are not in classes_ and count as misses"):
        report = dco.Monitor(est).update(rng.normal(size=(30, 2)), ["a", "c", "d"] * 10)
    assert (report.coverage, report.p_value < 0.1) == (1 / 3, True)


def test_a_condition_of_few_rows_that_the_model_rules_out_is_watched():
    """Its threshold is infinite, and so are calibration scores: no rank of theirs is broken at
    random.
    """
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=600), np.arange(600) % 100 == 0])
    y = np.where(X[:, 1] == 1, "c", np.where(X[:, 0] > rng.normal(size=600), "a", "b"))
    train, rest = (
        np.arange(600)[y != "c"][:200],
        np.r_[np.arange(600)[y != "c"][200:], np.arange(600)[y == "c"]],
    )
    est = dco.DecoupledClassifier(
        LogisticRegression(), dco.scores.LAC(), condition_on=1, tune_size=0.2, random_state=0
    )
    with pytest.warns(NoteWarning):
        est.fit(X[train], y[train], calibrate=(X[rest], y[rest]))
    assert np.isinf(est.predictor_.calibration.scored.scores).sum() == 6
    report = dco.Monitor(est, duplicates="natural").update(X, y)
    assert {entry.condition: entry.coverage for entry in report.conditions}["1.0"] == 1


def test_drift_of_scores_is_seen_where_coverage_stays():
    """Residuals of one size: rows are covered as before, and their scores are not those of the
    calibration rows.
    """
    est, (X, y) = fitted(), rows(600)
    same = est.predict(X) + np.where(y > est.predict(X), 0.9, -0.9) * np.random.default_rng(
        3
    ).uniform(0.9, 1.1, size=600)
    report = dco.Monitor(est).update(X, same)
    assert (report.alarm, report.drift) == (False, True)
    assert "Scores have drifted" in str(report)
    assert not dco.Monitor(est).update(X, y).drift


def test_each_condition_has_an_urn_of_its_own():
    rng = np.random.default_rng(0)

    def made(n, bad=1.0):
        X = np.column_stack([rng.normal(size=n), rng.integers(3, size=n)])
        return X, X[:, 0] + np.where(X[:, 1] == 2, bad, 1.0) * (1 + X[:, 1]) * rng.normal(size=n)

    est = dco.DecoupledRegressor(
        Ridge(), dco.scores.AbsoluteResidual(), condition_on=1, random_state=0
    ).fit(*made(2_000))
    monitor = dco.Monitor(est)
    first = monitor.update(*made(900))
    assert not first.alarm
    assert {entry.condition for entry in first.conditions} == {"0.0", "1.0", "2.0"}
    assert sum(entry.rows for entry in first.conditions) == 900
    report = monitor.update(*made(600, bad=3.0))
    assert report.alarm
    assert [entry.condition for entry in report.conditions if entry.p_value <= 0.05] == ["2.0"]
    X, y = made(40, bad=9.0)
    # of one condition only: its own evidence is all
    alone = dco.Monitor(est).update(X[X[:, 1] == 2], y[X[:, 1] == 2])
    assert {entry.condition: entry.p_value for entry in alone.conditions} == {
        "0.0": 1,
        "1.0": 1,
        "2.0": 3 * alone.p_value,
    }
    assert dco.Monitor(est, state=json.loads(json.dumps(monitor.state()))).report() == report
    timeline = monitor.timeline()
    assert timeline["covered"].mean() == report.coverage
    assert timeline["p_value"][-1] == report.p_value


# --------------------------------------------------------------------------------------------------
# --- one clear sentence


def test_a_change_is_dated_by_its_first_report_and_counted_from_one():
    """From row 51 on all are missed; then 200 bad rows after 500 good ones, and 3,000 good ones
    after them.
    """
    est, (X, _) = fitted(), rows(70)
    report = dco.Monitor(est).update(X, est.predict(X) + np.where(np.arange(70) < 50, 0, 100))
    assert (report.alarm, report.since, report.coverage_since) == (True, 51, 0)
    monitor = dco.Monitor(fitted(n=4_000), run_length=1_000)
    for n, noise, seed in ((500, 1.0, 1), (200, 2.0, 2), (3_000, 1.0, 3)):
        report = monitor.update(*rows(n, noise=noise, seed=seed))
    assert report.change
    assert report.alarm
    assert 450 <= report.since <= 550 <= report.reported + 50
    assert report.since < report.reported < 600
    assert f"near row {report.since} (reported after row {report.reported})" in str(report)


def test_a_slice_is_watched_against_its_own_past():
    """Slices have noise of their own, by which nothing has changed; then one of them gets
    better.
    """

    def made(n, last, seed):
        rng = np.random.default_rng(seed)
        part = rng.integers(3, size=n)
        X = rng.normal(size=(n, 3))
        return (
            X,
            X[:, 0] + np.array([0.3, 1.0, last])[part] * rng.normal(size=n),
            np.array(["a", "b", "c"])[part],
        )

    est = dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), random_state=0).fit(
        *made(2_000, 3.0, 0)[:2]
    )
    monitor = dco.Monitor(est)
    X, y, by = made(900, 3.0, 1)
    report = monitor.update(X, y, by=by)
    assert [each.slice for each in report.slices] == list(dict.fromkeys(by.tolist()))
    assert all(each.drift_p_value > 0.05 for each in report.slices)
    for each in report.slices:
        mine = by == each.slice
        assert (each.rows, each.coverage) == (
            mine.sum(),
            est.predict_set(X).contains(y)[mine].mean(),
        )
    X, y, by = made(900, 1.0, 2)
    report = monitor.update_all([(X[:400], y[:400], by[:400]), (X[400:], y[400:], by[400:])])
    assert [each.slice for each in report.slices if each.drift_p_value <= 0.05] == ["c"]
    assert "c: its scores have changed since its first row" in str(report)
    assert not report.alarm
    assert dco.Monitor(est, state=json.loads(json.dumps(monitor.state()))).report() == report


def test_what_cannot_be_watched_is_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    X[:, 1] = X[:, 1] > 0
    y = rng.normal(size=400)
    make = dco.DecoupledRegressor
    score = dco.scores.AbsoluteResidual()
    for sentence, options, groups in (
        ("cannot be watched: .* rows of this fit belong together", {}, np.arange(400) // 4),
        (
            "cannot be watched: each row has a threshold of its own",
            {"weights": lambda X: np.exp(X[:, 0])},
            None,
        ),
        (
            "cannot be watched: groups overlap",
            {"condition_on": [1, lambda X: X[:, 0] > 0]},
            None,
        ),
    ):
        with pytest.raises(ValueError, match=sentence):
            dco.Monitor(make(Ridge(), score, random_state=0, **options).fit(X, y, groups=groups))


def test_bad_input_gets_one_sentence():
    est, (X, y) = fitted(), rows(5)
    monitor = dco.Monitor(est)
    for given, sentence in (
        ({"error_rate": 1.5}, "error_rate must be a number strictly between 0 and 1"),
        ({"duplicates": "once"}, 'duplicates must be "drop" or "natural"'),
        ({"run_length": 0}, "run_length is a mean number"),
    ):
        with pytest.raises(ValueError, match=sentence):
            dco.Monitor(est, **given)
    with pytest.raises(ValueError, match="not fitted"):
        dco.Monitor(dco.DecoupledRegressor(Ridge()))
    for target, by, sentence in (
        (y[:4], None, "X has 5 rows and y has 4"),
        (y, ["a", "b"], "X has 5 rows and by has 2"),
        ([math.nan, *y[1:]], None, "y is missing in row 0"),
    ):
        with pytest.raises(ValueError, match=sentence):
            monitor.update(X, target, by=by)
    assert monitor.report().rows == 0
    est.fit(*rows(400, seed=5))
    with pytest.raises(ValueError, match="fitted again since this monitor began"):
        monitor.update(X, y)
