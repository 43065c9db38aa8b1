"""Watching rows for a long time: how often there is ever an alarm without a change, and how soon there is one after it.

Given the calibration rows, rows are covered independently with probability p, and p is Beta(k, n + 1 - k), so streams are
drawn from their law. Evidence falls with the number of hits: an alarm is a number of hits at or below a bound, which is
found once for each start and each number of rows. "Within 4 standard errors" fails by chance in 1 of 30,000 checks (one
side); all seeds are fixed.
"""

from __future__ import annotations

import math
import os
from functools import cache

import numpy as np
import pytest

from dco.evaluation.monitor import STEP, Evidence, log_evidence, start_weights
from dco.foundations.ranks import conformal_rank

FULL = os.environ.get("DCO_GUARANTEES") == "full"
ROWS, STREAMS = (10_000, 2_000) if FULL else (2_000, 500)
ALPHA = 0.1
pytestmark = pytest.mark.guarantee


@cache
def bounds(rows: int, *, rank: int, n: int, error_rate: float):
    """For each start, the most hits that are an alarm after 0 ... rows rows of its own; -1 if no number is one."""
    ages, found = np.arange(rows + 1), []
    for start, weight in zip(range(0, rows + 1, STEP), start_weights(rows // STEP + 1), strict=True):
        t = ages[: rows + 1 - start]
        low, high = np.full(len(t), -1), t + 1  # an alarm at low, none at high
        while np.any(high - low > 1):
            middle = (low + high) // 2
            alarm = log_evidence(np.maximum(middle, 0), t, rank=rank, n=n) >= -math.log(error_rate * weight)
            low, high = np.where(alarm & (middle >= 0), middle, low), np.where(alarm | (middle < 0), high, middle)
        found.append((start, low.astype(np.int32)))
    return found


def first_alarms(hits, *, rank: int, n: int, error_rate: float):
    """The row of each stream's first alarm; the number of rows + 1 if there is none."""
    streams, rows = hits.shape
    total = np.concatenate([np.zeros((streams, 1), dtype=np.int32), np.cumsum(hits, axis=1, dtype=np.int32)], axis=1)
    first = np.full(streams, rows + 1)
    for start, most in bounds(rows, rank=rank, n=n, error_rate=error_rate):
        alarm = total[:, start:] - total[:, [start]] <= most
        first = np.minimum(first, np.where(alarm.any(axis=1), start + alarm.argmax(axis=1), rows + 1))
    return first


def streams_of(coverage, rng, *, rows: int = ROWS):
    return rng.uniform(size=(len(coverage), rows)) < np.asarray(coverage)[:, None]


def drawn(rng, *, n: int, rank: int, streams: int = STREAMS):
    return rng.beta(rank, n + 1 - rank, size=streams)


TIES = {
    "distinct": lambda p: p,
    "ten values": lambda p: np.ceil(10 * p) / 10,
    "forty values": lambda p: np.ceil(40 * p) / 40,
    "7 % infinite": lambda p: np.where(p > 0.93, 1.0, p),
}


def test_the_bounds_are_those_of_the_evidence():
    rng, n, rank = np.random.default_rng(0), 100, 91
    hits = streams_of(rng.uniform(0.7, 0.95, size=30), rng, rows=450)
    first = first_alarms(hits, rank=rank, n=n, error_rate=0.05)
    assert 5 < np.sum(first <= 450) < 30
    for own, row in zip(hits, first, strict=True):
        evidence = Evidence.none()
        found = 451
        for number, hit in enumerate(own, start=1):
            evidence = evidence.after(np.array([hit]), rank=rank, n=n)
            if evidence.p_value() <= 0.05:
                found = number
                break
        assert found == row


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("n", [19, 50, 1000])
@pytest.mark.parametrize("error_rate", [0.01, 0.05, 0.1] if FULL else [0.05])
def test_there_is_ever_an_alarm_at_most_at_the_stated_rate(n, ties, error_rate):
    rng, rank = np.random.default_rng([n, len(ties)]), conformal_rank(n, alpha=ALPHA)
    hits = streams_of(TIES[ties](drawn(rng, n=n, rank=rank)), rng)
    rate = np.mean(first_alarms(hits, rank=rank, n=n, error_rate=error_rate) <= ROWS)
    print(f"n = {n}, {ties}: {rate:.2%} at {error_rate:.0%}")
    assert rate <= error_rate + 4 * math.sqrt(error_rate * (1 - error_rate) / STREAMS)


def test_planted_a_fixed_coverage_alarms_too_often_where_calibration_rows_are_few():
    """The coverage 1 - alpha as if it were known (an urn of a million rows), and 50 calibration rows."""
    rng, n = np.random.default_rng(1), 50
    rank = conformal_rank(n, alpha=ALPHA)
    hits = streams_of(drawn(rng, n=n, rank=rank, streams=500), rng, rows=2_000)
    planted = np.mean(first_alarms(hits, rank=900_000, n=999_999, error_rate=0.05) <= 2_000)
    print(f"fixed coverage: {planted:.1%} alarms at 5 %")
    assert planted > 0.2


@pytest.mark.parametrize(
    ("n", "change", "coverage", "most"),
    [(1000, 500, 0.8, 230), (1000, 0, 0.8, 130), (200, 0, 0.79, 130), (1000, 500, 0.6, 60)],
)
def test_delay_after_a_change(n, change, coverage, most):
    """The median number of rows from the change to the alarm, at error_rate 0.05."""
    rng, rank = np.random.default_rng(2), conformal_rank(n, alpha=ALPHA)
    before = streams_of(drawn(rng, n=n, rank=rank, streams=500), rng, rows=change)
    hits = np.concatenate([before, rng.uniform(size=(500, 1_000)) < coverage], axis=1)
    first = first_alarms(hits, rank=rank, n=n, error_rate=0.05)
    delay = first[first > change] - change
    caught = np.mean(delay <= 1_000)
    print(f"n = {n}, coverage {coverage} after row {change}: median {np.median(delay):.0f}, caught {caught:.1%}")
    assert np.median(delay) <= most
