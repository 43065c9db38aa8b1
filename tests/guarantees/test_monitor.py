"""Watching rows for a long time: how often there is ever an alarm without a change, and how soon
there is one after it.

Given the calibration rows, rows are covered independently with probability p, and p is Beta(k, n +
1 - k), so streams are drawn from their law, many side by side.
"""

import math
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from laws import FULL
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator

import dco
from dco.service.drift import Stakes
from dco.service.evidence import Evidence

ROWS = 10_000 if FULL else 2_000
STREAMS = 2_000 if FULL else 500
MONITORS = 400 if FULL else 60
ALPHA = 0.1
ERROR_RATES = (0.01, 0.05, 0.1)
pytestmark = pytest.mark.guarantee


@dataclass(frozen=True)
class Urn:
    """The law of hits at a rank of n calibration scores."""

    rank: int
    n: int

    @classmethod
    def of_calibration_rows(cls, n):
        return cls(dco.conformal_rank(n, alpha=ALPHA), n)

    def draw_coverage(self, rng, *, streams=STREAMS):
        """Draw the coverage of streams that have calibration rows of their own."""
        return rng.beta(self.rank, self.n + 1 - self.rank, size=streams)


def draw_hits(coverage, rng, *, rows=ROWS):
    """Draw which rows of each stream are covered, (streams, rows)."""
    return rng.uniform(size=(len(coverage), rows)) < np.asarray(coverage)[:, None]


def watch(hits, urn):
    """Yield the evidence of all streams after each row."""
    evidence = Evidence.before_first_row(len(hits))
    n_hits = np.zeros(len(hits))
    for t, hit in enumerate(hits.T):
        evidence = evidence.after(hit, (urn.rank + n_hits) / (urn.n + 1 + t))
        n_hits += hit
        yield evidence


def watch_all(hits, urn):
    """Return the evidence of all streams after the last row."""
    *_, evidence = watch(hits, urn)
    return evidence


def first_rows(reported, *, streams, rows):
    """Return the first row with a report in each stream; the number of rows + 1 if there is none.

    `reported` yields, for each row, which streams report.
    """
    first = np.full(streams, rows + 1)
    for t, reports in enumerate(reported, start=1):
        first = np.where(reports & (first > t), t, first)
    return first


def first_alarms(hits, urn):
    """Return the row of each stream's first alarm at an error rate of 5 %."""
    alarms = (evidence.p_value() <= 0.05 for evidence in watch(hits, urn))
    return first_rows(alarms, streams=len(hits), rows=hits.shape[1])


def four_errors(rate, *, streams=STREAMS):
    """Return four standard errors of a share of streams."""
    return 4 * math.sqrt(rate * (1 - rate) / streams)


def check_rates(p_values) -> None:
    """Check that at each error rate no more streams have ever had an alarm."""
    for error_rate in ERROR_RATES:
        rate = np.mean(p_values <= error_rate)
        print(f"\n{rate:.2%} at {error_rate:.0%}")
        assert rate <= error_rate + four_errors(error_rate)


# ---------------------------------------------------------------- false alarms


@pytest.fixture(scope="module", params=[9, 19, 50, 1000], ids="{} calibration rows".format)
def unchanged(request):
    """Watch streams without a change."""
    rng = np.random.default_rng(request.param)
    urn = Urn.of_calibration_rows(request.param)
    return watch_all(draw_hits(urn.draw_coverage(rng), rng), urn)


def test_there_is_ever_an_alarm_at_most_at_the_stated_rate(unchanged):
    check_rates(unchanged.p_value())


def test_a_change_is_rarely_reported_within_a_tenth_of_the_run_length(unchanged):
    """P(first passage of A within T) <= T / A, as the detector grows by one a row (Doob)."""
    rate = np.mean(unchanged.detector >= 10 * ROWS)

    print(f"\n{rate:.2%} changes reported within a tenth of the run length")
    assert rate <= 0.1 + four_errors(0.1)


@pytest.mark.parametrize("run_length", [100, 400])
def test_the_mean_run_length_is_at_least_what_is_stated(run_length):
    """Streams are cut at 40 run lengths, which only shortens the mean."""
    rng = np.random.default_rng(run_length)
    urn = Urn.of_calibration_rows(200)
    rows = 40 * run_length
    hits = draw_hits(urn.draw_coverage(rng, streams=400), rng, rows=rows)

    changes = (evidence.detector >= run_length for evidence in watch(hits, urn))
    first = np.minimum(first_rows(changes, streams=400, rows=rows), rows)

    print(f"\nmean run length {first.mean():.0f}, stated {run_length}")
    assert first.mean() + 4 * first.std() / math.sqrt(400) >= run_length


def test_planted_a_fixed_coverage_alarms_too_often_where_calibration_rows_are_few():
    """The coverage 1 - alpha as if it were known: an urn of a million rows instead of 50."""
    rng = np.random.default_rng(1)
    coverage = Urn.of_calibration_rows(50).draw_coverage(rng, streams=500)
    hits = draw_hits(coverage, rng, rows=2_000)

    rate = np.mean(first_alarms(hits, Urn(rank=900_000, n=999_999)) <= 2_000)

    print(f"\nfixed coverage: {rate:.1%} alarms at 5 %")
    assert rate > 0.2


# ---------------------------------------------------------------- ties

every_number_of_values = pytest.mark.parametrize("n_values", [3, 10, 40], ids="{} values".format)


@dataclass(frozen=True, eq=False)
class TiedThreshold:
    """The score at the rank, of scores that are uniform on a few values; one for each stream."""

    n_values: int
    value: np.ndarray
    n_below: np.ndarray
    n_equal: np.ndarray

    @classmethod
    def draw(cls, rng, urn, n_values):
        scores = np.sort(rng.integers(n_values, size=(STREAMS, urn.n)), axis=1)
        value = scores[:, urn.rank - 1]
        n_below = np.sum(scores < value[:, None], axis=1)
        n_equal = np.sum(scores == value[:, None], axis=1)
        return cls(n_values, value, n_below, n_equal)

    def draw_coverage(self, rng, urn):
        """Draw the chance of a hit with ties broken as the monitor does: once for the calibration
        rows, and once for each row.
        """
        rank_among_equal = urn.rank - self.n_below
        share_of_ties = rng.beta(rank_among_equal, self.n_equal - rank_among_equal + 1)
        return (self.value + share_of_ties) / self.n_values

    def coverage_below(self):
        """Return the chance of a hit where tied rows are misses."""
        return self.value / self.n_values


@every_number_of_values
def test_tied_scores_keep_the_rate_of_false_alarms_over_many_rows(n_values):
    rng = np.random.default_rng(n_values)
    urn = Urn.of_calibration_rows(50)
    coverage = TiedThreshold.draw(rng, urn, n_values).draw_coverage(rng, urn)

    evidence = watch_all(draw_hits(coverage, rng), urn)

    check_rates(evidence.p_value())


def test_planted_tied_rows_as_misses_alarm_too_often():
    rng = np.random.default_rng(3)
    urn = Urn.of_calibration_rows(50)
    coverage = TiedThreshold.draw(rng, urn, n_values=3).coverage_below()

    evidence = watch_all(draw_hits(coverage, rng, rows=1_000), urn)

    rate = np.mean(evidence.p_value() <= 0.05)
    print(f"\ntied rows as misses: {rate:.1%} at 5 %")
    assert rate > 0.2


def watch_tied_rows(rng, n_values):
    """Fit on 60 rows whose scores are their targets, and watch 300 rows with the same law."""
    X = rng.normal(size=(60, 1))
    y = rng.integers(n_values, size=60) / n_values
    zero = FrozenEstimator(DummyRegressor(strategy="constant", constant=0.0).fit(X, y))
    score = dco.scores.AbsoluteResidual()
    est = dco.DecoupledRegressor(zero, score, tune_size=0, random_state=0)

    new_X = rng.normal(size=(300, 1))
    new_y = rng.integers(n_values, size=300) / n_values
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dco.Monitor(est.fit(X, y)).update(new_X, new_y)


@every_number_of_values
def test_whole_monitors_of_tied_scores_keep_the_rates_of_false_alarms_and_of_drift(n_values):
    reports = [
        watch_tied_rows(np.random.default_rng([n_values, seed]), n_values)
        for seed in range(MONITORS)
    ]

    alarms = np.mean([report.alarm for report in reports])
    drifts = np.mean([report.drift for report in reports])
    limit = 0.05 + four_errors(0.05, streams=MONITORS)
    print(f"\nalarm {alarms:.2%}, drift {drifts:.2%} at 5 %")
    assert alarms <= limit
    assert drifts <= limit


# ---------------------------------------------------------------- conditions


@dataclass(frozen=True, eq=False)
class ThreeConditions:
    """Evidence of streams whose rows belong to one of three conditions at random.

    `own_urns` takes an urn for each condition, and `one_urn` one urn for all, a planted mistake; it
    sees the first 1,000 rows.
    """

    own_urns: Evidence
    one_urn: Evidence


@pytest.fixture(scope="module")
def three_conditions():
    """Watch streams with conditions of 9, 30 and 200 calibration rows."""
    rng = np.random.default_rng(7)
    sizes = np.array([9, 30, 200])
    ranks = np.array([dco.conformal_rank(int(n), alpha=ALPHA) for n in sizes])
    coverage = rng.beta(ranks, sizes + 1 - ranks, size=(STREAMS, 3))

    streams = np.arange(STREAMS)
    own_urns = Evidence.before_first_row(STREAMS)
    one_urn = Evidence.before_first_row(STREAMS)
    n_hits = np.zeros((STREAMS, 3))
    n_rows = np.zeros((STREAMS, 3))
    for t in range(ROWS):
        condition = rng.integers(3, size=STREAMS)
        hit = rng.uniform(size=STREAMS) < coverage[streams, condition]

        hits_before = n_hits[streams, condition]
        rows_before = n_rows[streams, condition]
        chance = (ranks[condition] + hits_before) / (sizes[condition] + 1 + rows_before)
        own_urns = own_urns.after(hit, chance)
        if t < 1_000:
            common_chance = (ranks.sum() + n_hits.sum(axis=1)) / (sizes.sum() + 3 + t)
            one_urn = one_urn.after(hit, common_chance)

        n_hits[streams, condition] += hit
        n_rows[streams, condition] += 1
    return ThreeConditions(own_urns, one_urn)


def test_conditions_with_urns_of_their_own_keep_the_rate_of_false_alarms(three_conditions):
    check_rates(three_conditions.own_urns.p_value())


def test_planted_one_urn_for_all_conditions_alarms_too_often(three_conditions):
    rate = np.mean(three_conditions.one_urn.p_value() <= 0.05)

    print(f"\none urn for all conditions: {rate:.1%} at 5 %")
    assert rate > 0.05 + four_errors(0.05)


# ---------------------------------------------------------------- drift


def bet_on_uniform_places(rng, *, rows):
    """Return the p-values of drift after rows whose places are uniform, as their law is."""
    stakes = Stakes.before_first_row(STREAMS)
    for _ in range(rows):
        stakes = stakes.after(rng.uniform(size=STREAMS))
    return stakes.p_value()


def test_drift_is_ever_reported_at_most_at_the_stated_rate():
    check_rates(bet_on_uniform_places(np.random.default_rng(5), rows=ROWS))


@pytest.fixture(scope="module")
def thirty_slices():
    """Return p-values of thirty slices that appear one after the other, (30, streams)."""
    rng = np.random.default_rng(6)
    return np.array([bet_on_uniform_places(rng, rows=ROWS // 10) for _ in range(30)])


def test_slices_are_ever_reported_at_most_at_the_stated_rate(thirty_slices):
    """The j-th p-value is multiplied by j (j + 1)."""
    j = np.arange(1, 31)[:, None]

    check_rates(np.min(j * (j + 1) * thirty_slices, axis=0))


def test_planted_slices_without_correction_are_reported_too_often(thirty_slices):
    rate = np.mean(thirty_slices.min(axis=0) <= 0.05)

    print(f"\nslices without correction: {rate:.1%} at 5 %")
    assert rate > 0.3


# ---------------------------------------------------------------- delay


@pytest.mark.parametrize(
    ("n", "change", "coverage", "limit"),
    [
        (1000, 500, 0.8, 150),
        (1000, 0, 0.8, 130),
        (200, 0, 0.79, 140),
        (1000, 500, 0.6, 40),
        (1000, 3000, 0.8, 230),
    ],
)
def test_the_median_delay_after_a_change(n, change, coverage, limit):
    """The number of rows from the change to the alarm, at an error rate of 5 %."""
    rng = np.random.default_rng(2)
    urn = Urn.of_calibration_rows(n)
    before = draw_hits(urn.draw_coverage(rng, streams=500), rng, rows=change)
    after = draw_hits(np.full(500, coverage), rng, rows=1_000)

    first = first_alarms(np.concatenate([before, after], axis=1), urn)

    delay = first[first > change] - change
    print(f"\nmedian {np.median(delay):.0f}, caught {np.mean(delay <= 1_000):.1%}")
    assert np.median(delay) <= limit
