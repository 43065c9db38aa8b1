"""Growing the tuning split: what it does, and that coverage keeps its law (while peeking at calibration rows loses it)."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from dco.datasets.synthetic import NoisyPoints
from dco.predictions import Points
from dco.ranks import conformal_rank
from dco.thresholds import split_conformal
from dco.tuning import EvaluatedCandidate, grow_tuning_split, grow_until_settled, rank_evaluated, smallest_calibration
from dco.tuning.stability import bootstrap_evaluated

FULL = os.environ.get("DCO_GUARANTEES") == "full"


def test_calibration_keeps_what_the_level_needs():
    assert smallest_calibration(alpha=0.1) == 9
    assert smallest_calibration(alpha=0.1, calibrate_size=50) == 50
    assert smallest_calibration(alpha=0.1, delta=0.05, calibrate_size=5) == 29  # .9^29 = .047, .9^28 = .052
    assert smallest_calibration(alpha=0.01) == 99


def test_rows_are_taken_in_order_until_settled():
    looks = []

    def settled(rows):
        looks.append(rows.tolist())
        return len(rows) >= 12

    order = np.random.default_rng(0).permutation(60)
    found = grow_until_settled(order, settled, alpha=0.1, start=4, growth=2)
    assert [len(look) for look in looks] == [4, 8, 16]
    assert looks == [order[:4].tolist(), order[:8].tolist(), order[:16].tolist()]
    assert found.reason == "settled"
    assert found.tune.tolist() == order[:16].tolist()
    assert found.calibrate.tolist() == order[16:].tolist()
    assert [(step.n_tune, step.settled) for step in found.steps] == [(4, False), (8, False), (16, True)]


def test_growth_stops_where_calibration_would_starve():
    found = grow_until_settled(np.arange(50), lambda rows: False, alpha=0.1, delta=0.05, start=10)
    assert (found.reason, len(found.calibrate)) == ("limit", 29)
    with pytest.raises(ValueError, match="leave none for tuning"):
        grow_until_settled(np.arange(9), lambda rows: True, alpha=0.1)
    with pytest.raises(ValueError, match="each once"):
        grow_until_settled([1, 1, 2], lambda rows: True, alpha=0.5)
    with pytest.raises(ValueError, match="growth"):
        grow_until_settled(np.arange(50), lambda rows: True, alpha=0.1, growth=1)


def test_whole_groups_go_to_one_role():
    rng = np.random.default_rng(1)
    groups = rng.integers(40, size=200)
    found = grow_until_settled(rng.permutation(200), lambda rows: len(rows) > 60, alpha=0.1, start=2, groups=groups)
    assert not set(groups[found.tune]) & set(groups[found.calibrate])
    assert sorted([*found.tune, *found.calibrate]) == list(range(200))
    assert len(set(groups[found.calibrate])) >= 9


def test_clear_winners_settle_early_and_near_ties_do_not_matter():
    """Residual sds 1 and 3 settle at the first look; so do two candidates that differ by nothing."""
    rng = np.random.default_rng(2)
    y = rng.standard_normal(400)
    bad = 3 * rng.standard_normal(400)

    @_points(y)
    def clear(rows):
        return {"good": 0 * y[rows], "bad": bad[rows]}

    @_points(y)
    def same(rows):
        return {"a": 0 * y[rows], "b": 0 * y[rows]}

    for candidates_on in (clear, same):
        found = grow_tuning_split(np.arange(400), candidates_on, alpha=0.1, seed=0, start=40, calibrate_size=100)
        assert (found.reason, len(found.tune)) == ("settled", 40)
        assert found.steps[0].stability.relative_regret <= 0.01
    again = grow_tuning_split(np.arange(400), clear, alpha=0.1, seed=0, start=40, calibrate_size=100)
    assert again.steps == grow_tuning_split(np.arange(400), clear, alpha=0.1, seed=0, start=40, calibrate_size=100).steps


class _Residual:
    def observed(self, prediction, y):
        return np.abs(y - prediction.mean)

    def sizes(self, prediction, threshold):
        return np.full(len(prediction), 2.0 * threshold)


def _points(y):
    def decorate(means_on):
        def candidates_on(rows):
            return {name: (_Residual(), Points(mean)) for name, mean in means_on(rows).items()}, y[rows]

        return candidates_on

    return decorate


def constant_width(name, scores):
    return EvaluatedCandidate(name, scores, lambda threshold: np.full(len(scores), 2 * threshold))


def chosen(scores, rows, alpha):
    return int(rank_evaluated([constant_width(str(c), scores[c, rows]) for c in range(len(scores))], alpha=alpha).best)


def law_z(coverages, sizes, alpha):
    """How many standard errors the mean coverage is from its law, each run with the law of its own calibration size."""
    ranks = np.array([conformal_rank(int(m), alpha=alpha) for m in sizes])
    means = ranks / (sizes + 1)
    variances = means * (1 - means) / (sizes + 2)
    return float((coverages - means).sum() / math.sqrt(variances.sum()))


def test_coverage_follows_its_law_under_a_growing_split_and_not_under_a_split_chosen_by_width():
    """N = 120, alpha = .1, three near-equal candidates; coverage is known in closed form.

    The growing split must be within 4 standard errors of its law (wrong once in 16,000); choosing, among the same splits,
    the one whose calibrated interval is shortest must be seen by the same check, and lands near .87 instead of .90.
    """
    rng, alpha, runs = np.random.default_rng(3), 0.1, 3000 if FULL else 500
    population = NoisyPoints(noises=(0.3, 0.4, 0.5))
    grown, grown_sizes, peeked, peeked_sizes = [], [], [], []
    for run in range(runs):
        points, y = population.sample(120, rng)
        scores = np.stack([np.abs(y - record.mean) for record in points])

        def look(rows, scores=scores, run=run):
            evaluated = [constant_width(str(c), scores[c, rows]) for c in range(3)]
            resample = np.random.default_rng([run, len(rows)])
            return bootstrap_evaluated(evaluated, alpha=alpha, rng=resample, repetitions=20)

        found = grow_until_settled(np.arange(120), look, alpha=alpha, start=10, growth=1.4, calibrate_size=30)
        winner = chosen(scores, found.tune, alpha)
        grown.append(population.coverage(winner, split_conformal(scores[winner, found.calibrate], alpha=alpha).value))
        grown_sizes.append(len(found.calibrate))

        options = []
        for n_tune in range(10, 100, 4):
            pick = chosen(scores, np.arange(n_tune), alpha)
            options.append((split_conformal(scores[pick, n_tune:], alpha=alpha).value, pick, 120 - n_tune))
        value, pick, m = min(options)
        peeked.append(population.coverage(pick, value))
        peeked_sizes.append(m)
    assert len(set(grown_sizes)) > 3  # the rule does stop at different sizes
    assert abs(law_z(np.array(grown), np.array(grown_sizes), alpha)) < 4
    assert law_z(np.array(peeked), np.array(peeked_sizes), alpha) < -4
    assert np.mean(peeked) < 0.885
