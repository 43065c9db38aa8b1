"""Watching rows for a long time: how often there is ever an alarm without a change, and how soon
there is one after it.

Given the calibration rows, rows are covered independently with probability p, and p is Beta(k, n +
1 - k), so streams are drawn from their law.
"""

import math
import warnings

import numpy as np
import pytest
from laws import FULL
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator

import dco
from dco.foundations.ranks import conformal_rank
from dco.service.drift import Stakes
from dco.service.evidence import Evidence

ROWS, STREAMS = (10_000, 2_000) if FULL else (2_000, 500)
ALPHA, ERROR_RATES = 0.1, (0.01, 0.05, 0.1)
pytestmark = pytest.mark.guarantee


def watched(hits, *, rank: int, n: int):
    """The p-value and the detector after each row of each stream."""
    found, total = Evidence.before_first_row(len(hits)), np.zeros(len(hits))
    for t, hit in enumerate(hits.T):
        found = found.after(hit, (rank + total) / (n + 1 + t))
        total += hit
        yield found.p_value(), found.detector


def first_alarms(hits, *, rank: int, n: int, error_rate: float):
    """The row of each stream's first alarm; the number of rows + 1 if there is none."""
    first = np.full(len(hits), hits.shape[1] + 1)
    for t, (p_value, _) in enumerate(watched(hits, rank=rank, n=n), start=1):
        first = np.where((p_value <= error_rate) & (first > t), t, first)
    return first


def slack(rate: float, streams: int = STREAMS) -> float:
    """Four standard errors."""
    return 4 * math.sqrt(rate * (1 - rate) / streams)


def check_rates(p_value, what: str) -> None:
    """At each error rate no more streams have ever had an alarm."""
    for error_rate in ERROR_RATES:
        rate = np.mean(p_value <= error_rate)
        print(f"{what}: {rate:.2%} at {error_rate:.0%}")
        assert rate <= error_rate + slack(error_rate)


def streams_of(coverage, rng, *, rows: int = ROWS):
    return rng.uniform(size=(len(coverage), rows)) < np.asarray(coverage)[:, None]


def drawn(rng, *, n: int, rank: int, streams: int = STREAMS):
    return rng.beta(rank, n + 1 - rank, size=streams)


@pytest.mark.parametrize("n", [9, 19, 50, 1000])
def test_there_is_ever_an_alarm_at_most_at_the_stated_rate(n):
    rng, rank = np.random.default_rng(n), conformal_rank(n, alpha=ALPHA)
    hits = streams_of(drawn(rng, n=n, rank=rank), rng)
    *_, (p_value, detector) = watched(hits, rank=rank, n=n)
    check_rates(p_value, f"n = {n}")
    # E[first passage] >= A, and P(passage within T) <= T / A for a sum that grows by one per row
    # (Markov, Doob)
    print(
        f"n = {n}: {np.mean(detector >= 10 * ROWS):.2%} changes reported within a tenth of the "
        f"run length"
    )
    assert np.mean(detector >= 10 * ROWS) <= 0.1 + slack(0.1)


def with_ties(rng, *, n: int, values: int, streams: int = STREAMS):
    """The chance of a hit with ties broken as the monitor does, and with tied rows as misses, given
    calibration rows.
    """
    rank = conformal_rank(n, alpha=ALPHA)
    scores = np.sort(rng.integers(values, size=(streams, n)), axis=1)
    cut = scores[:, rank - 1]
    below, equal = np.sum(scores < cut[:, None], axis=1), np.sum(scores == cut[:, None], axis=1)
    tie = rng.beta(rank - below, equal - (rank - below) + 1)
    return (cut + tie) / values, cut / values


@pytest.mark.parametrize("values", [3, 10, 40])
def test_tied_scores_keep_the_rate_of_false_alarms_over_many_rows(values):
    """Scores are uniform on a few values; a tie is broken by one draw for the calibration rows and
    one for each row.
    """
    rng, n = np.random.default_rng(values), 50
    rank, (broken, missed) = conformal_rank(n, alpha=ALPHA), with_ties(rng, n=n, values=values)
    *_, (p_value, _) = watched(streams_of(broken, rng), rank=rank, n=n)
    check_rates(p_value, f"{values} values")
    if values == 3:
        *_, (planted, _) = watched(streams_of(missed, rng, rows=1_000), rank=rank, n=n)
        print(f"planted, tied rows as misses: {np.mean(planted <= 0.05):.1%} at 5%")
        assert np.mean(planted <= 0.05) > 0.2


def test_groups_with_urns_of_their_own_keep_the_rate_of_false_alarms():
    """Three groups of 9, 30 and 200 calibration rows; each row belongs to one at random, and one
    evidence takes them all.
    """
    rng, sizes = np.random.default_rng(7), np.array([9, 30, 200])
    ranks = np.array([conformal_rank(int(n), alpha=ALPHA) for n in sizes])
    coverage = rng.beta(ranks, sizes + 1 - ranks, size=(STREAMS, 3))
    found, planted = Evidence.before_first_row(STREAMS), Evidence.before_first_row(STREAMS)
    hits, rows, every = np.zeros((STREAMS, 3)), np.zeros((STREAMS, 3)), np.arange(STREAMS)
    for t in range(ROWS):
        group = rng.integers(3, size=STREAMS)
        hit = rng.uniform(size=STREAMS) < coverage[every, group]
        found = found.after(
            hit, (ranks[group] + hits[every, group]) / (sizes[group] + 1 + rows[every, group])
        )
        if t < 1_000:
            planted = planted.after(hit, (ranks.sum() + hits.sum(axis=1)) / (sizes.sum() + 3 + t))
        hits[every, group] += hit
        rows[every, group] += 1
    check_rates(found.p_value(), "groups")
    rate = np.mean(planted.p_value() <= 0.05)
    print(f"planted, one urn for all groups: {rate:.1%} at 5%")
    assert rate > 0.05 + slack(0.05)


@pytest.mark.parametrize("run_length", [100, 400])
def test_the_mean_run_length_is_at_least_what_is_stated(run_length):
    """Streams are cut at 40 run lengths, which only shortens the mean."""
    rng, n = np.random.default_rng(run_length), 200
    rank = conformal_rank(n, alpha=ALPHA)
    hits = streams_of(drawn(rng, n=n, rank=rank, streams=400), rng, rows=40 * run_length)
    first = np.full(400, 40 * run_length)
    for t, (_, detector) in enumerate(watched(hits, rank=rank, n=n), start=1):
        first = np.where((detector >= run_length) & (first > t), t, first)
    print(f"mean run length {first.mean():.0f}, stated {run_length}")
    assert first.mean() + 4 * first.std() / 20 >= run_length


@pytest.mark.parametrize("values", [3, 10, 40])
def test_tied_scores_keep_the_rate_of_false_alarms_and_of_drift(values):
    """Whole monitors on scores with few values, calibration rows drawn anew for each; the y are the
    scores.
    """
    streams, ever = (400 if FULL else 60), []
    for seed in range(streams):
        rng = np.random.default_rng([values, seed])
        X, y = rng.normal(size=(60, 1)), rng.integers(values, size=60) / values
        zero = FrozenEstimator(DummyRegressor(strategy="constant", constant=0.0).fit(X, y))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            est = dco.DecoupledRegressor(
                zero, dco.scores.AbsoluteResidual(), tune_size=0, random_state=0
            ).fit(X, y)
            report = dco.Monitor(est).update(
                rng.normal(size=(300, 1)), rng.integers(values, size=300) / values
            )
        ever.append((report.alarm, report.drift))
    rates = np.mean(ever, axis=0)
    print(f"{values} values: alarm {rates[0]:.2%}, drift {rates[1]:.2%} at 5 %")
    assert np.all(rates <= 0.05 + slack(0.05, streams))


def test_drift_is_ever_reported_at_most_at_the_stated_rate():
    """Places are uniform and independent by law (tested beside `place`), so uniforms are drawn."""
    rng, stakes = np.random.default_rng(5), Stakes.before_first_row(STREAMS)
    for _ in range(ROWS):
        stakes = stakes.after(rng.uniform(size=STREAMS))
    check_rates(stakes.p_value(), "drift")


def test_slices_are_ever_reported_at_most_at_the_stated_rate_however_many_there_are():
    """Thirty slices that appear one after the other; the j-th p-value is multiplied by j (j +
    1).
    """
    rng, slices = np.random.default_rng(6), 30
    smallest, uncorrected = np.ones(STREAMS), np.ones(STREAMS)
    for j in range(1, slices + 1):
        stakes = Stakes.before_first_row(STREAMS)
        for _ in range(ROWS // 10):
            stakes = stakes.after(rng.uniform(size=STREAMS))
        smallest = np.minimum(smallest, j * (j + 1) * stakes.p_value())
        uncorrected = np.minimum(uncorrected, stakes.p_value())
    check_rates(smallest, "slices")
    planted = np.mean(uncorrected <= 0.05)
    print(f"planted, slices without correction: {planted:.1%} at 5%")
    assert planted > 0.3


def test_planted_a_fixed_coverage_alarms_too_often_where_calibration_rows_are_few():
    """The coverage 1 - alpha as if it were known (an urn of a million rows), and 50 calibration
    rows.
    """
    rng, n = np.random.default_rng(1), 50
    rank = conformal_rank(n, alpha=ALPHA)
    hits = streams_of(drawn(rng, n=n, rank=rank, streams=500), rng, rows=2_000)
    planted = np.mean(first_alarms(hits, rank=900_000, n=999_999, error_rate=0.05) <= 2_000)
    print(f"fixed coverage: {planted:.1%} alarms at 5 %")
    assert planted > 0.2


@pytest.mark.parametrize(
    ("n", "change", "coverage", "most"),
    [
        (1000, 500, 0.8, 150),
        (1000, 0, 0.8, 130),
        (200, 0, 0.79, 140),
        (1000, 500, 0.6, 40),
        (1000, 3000, 0.8, 230),
    ],
)
def test_delay_after_a_change(n, change, coverage, most):
    """The median number of rows from the change to the alarm, at error_rate 0.05."""
    rng, rank = np.random.default_rng(2), conformal_rank(n, alpha=ALPHA)
    before = streams_of(drawn(rng, n=n, rank=rank, streams=500), rng, rows=change)
    hits = np.concatenate([before, rng.uniform(size=(500, 1_000)) < coverage], axis=1)
    first = first_alarms(hits, rank=rank, n=n, error_rate=0.05)
    delay = first[first > change] - change
    caught = np.mean(delay <= 1_000)
    print(
        f"n = {n}, coverage {coverage} after row {change}: median {np.median(delay):.0f}, "
        f"caught {caught:.1%}"
    )
    assert np.median(delay) <= most
