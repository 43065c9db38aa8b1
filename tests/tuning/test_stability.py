"""Selection stability against brute force and against binomial laws on constructed ties."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.stats import binom, hypergeom

from dco.predictions import ClassProbabilities, PointsWithSpread, take
from dco.scores.classification import APS, LAC
from dco.scores.regression import AbsoluteResidual, NormalisedResidual
from dco.tuning import (
    EvaluatedCandidate,
    bootstrap_stability,
    rank_evaluated,
    split_stability,
    tune,
)
from dco.tuning.objectives import objective_of
from dco.tuning.stability import winners_of


def fixed(name, sizes):
    """A candidate whose threshold is always 0, so that only its sizes matter."""
    values = np.asarray(sizes, dtype=float)
    return EvaluatedCandidate(name, np.zeros(len(values)), lambda threshold: values)


def within(count, trials, p):
    """Four standard deviations: fails wrongly about once in 16,000."""
    return abs(count - trials * p) <= 4 * math.sqrt(trials * p * (1 - p))


def looked_up(name, matrix, y):
    return EvaluatedCandidate(
        name, matrix[np.arange(len(y)), y], lambda t: (matrix <= t).sum(axis=1).astype(float)
    )


def test_winners_equal_the_search_on_rows_written_out():
    """counts[b] is only a short way of writing the rows of resample b; ties included."""
    rng = np.random.default_rng(0)
    for _ in range(25):
        n, k = int(rng.integers(2, 15)), 3
        y = rng.integers(k, size=n)
        matrices = [rng.integers(0, 4, size=(n, k)) / 3.0 for _ in range(3)]
        evaluated = [looked_up(f"c{i}", matrix, y) for i, matrix in enumerate(matrices)]
        counts = rng.multinomial(n, np.full(n, 1 / n), size=10)
        winners = winners_of(evaluated, counts, alpha=0.2)
        for winner, count in zip(winners, counts, strict=True):
            rows = np.repeat(np.arange(n), count)
            written = [
                looked_up(f"c{i}", matrix[rows], y[rows]) for i, matrix in enumerate(matrices)
            ]
            assert rank_evaluated(written, alpha=0.2).best == f"c{winner}"


@pytest.mark.parametrize("objective", ["p95_size", "even"])
def test_re_splits_by_another_objective_equal_the_search_on_the_rows_of_each_part(objective):
    """Labels and numbers, with slices of the caller's: the same winners as `tune` on the rows
    alone.
    """
    rng, n = np.random.default_rng(3), 60
    y, sides = rng.normal(size=n), rng.integers(2, size=n)
    points = {
        f"m{j}": PointsWithSpread(rng.normal(0.8 * y, 0.7), rng.uniform(0.2, 2.0, n))
        for j in range(3)
    }
    numbers = {
        name: (score, each)
        for name, each in points.items()
        for score in [NormalisedResidual(floor=0.3)]
    }
    numbers |= {f"plain {name}": (AbsoluteResidual(), each) for name, each in points.items()}
    labels = rng.integers(3, size=n)
    chances = [rng.dirichlet(np.ones(3), n) + 0.5 * np.eye(3)[labels] for _ in range(3)]
    named = {
        f"c{j}": ClassProbabilities(each / each.sum(axis=1, keepdims=True))
        for j, each in enumerate(chances)
    }
    classes = {
        f"{score} {name}": (score, each) for name, each in named.items() for score in (LAC(), APS())
    }
    winners = set()
    for candidates, target in ((numbers, y), (classes, labels)):
        found = split_stability(
            candidates,
            target,
            alpha=0.2,
            rng=np.random.default_rng(4),
            repetitions=20,
            objective=objective_of(objective),
            slices={"side": sides},
        )
        again, wins = np.random.default_rng(4), dict.fromkeys(candidates, 0)
        for _ in range(20):
            rows = again.permutation(n)[: n // 2]
            part = {name: (score, take(each, rows)) for name, (score, each) in candidates.items()}
            wins[
                tune(
                    part, target[rows], alpha=0.2, objective=objective, slices={"side": sides[rows]}
                ).best
            ] += 1
        assert found.wins == wins
        assert (
            found.best
            == tune(candidates, target, alpha=0.2, objective=objective, slices={"side": sides}).best
        )
        winners |= {name for name, count in wins.items() if count}
    assert len(winners) > 3, "otherwise nothing is tested here"


def test_a_tie_flips_by_its_binomial_law_and_costs_nothing():
    """Sizes x and 1 - x with half the x one: the first wins a bootstrap when Bin(n, 1/2) <= n / 2,
    and regret is 0.
    """
    n, times = 40, 4000
    ones = np.arange(n) % 2
    found = bootstrap_stability(
        [fixed("x", ones), fixed("mirror", 1 - ones)],
        alpha=0.1,
        rng=np.random.default_rng(1),
        repetitions=times,
    )
    assert within(found.wins["x"], times, binom.cdf(n // 2, n, 0.5))
    assert (found.best, found.regret, found.relative_regret) == ("x", 0.0, 0.0)
    assert found.modal_share == max(found.wins.values()) / times < 0.7


def test_regret_is_the_price_of_the_wrong_choice_times_its_chance():
    """A mean size of 19/41 against a sure 1/2: the sure one wins when Bin(41, 19/41) > 20.5, and
    costs 1/2 - 19/41.
    """
    n, times, p = 41, 4000, 19 / 41
    sizes = (np.arange(n) < 19).astype(float)
    found = bootstrap_stability(
        [fixed("varying", sizes), fixed("sure", np.full(n, 0.5))],
        alpha=0.1,
        rng=np.random.default_rng(2),
        repetitions=times,
    )
    assert within(found.wins["sure"], times, binom.sf(20, n, p))
    assert found.regret == pytest.approx((0.5 - p) * found.wins["sure"] / times)
    assert found.relative_regret == pytest.approx(found.regret / p)
    assert (found.best, found.n, found.repetitions) == ("varying", n, times)


def test_repeated_splits_follow_their_hypergeometric_law():
    """20 of 41 rows without replacement: the sure one, just below 1/2, wins when Hypergeometric(41,
    19, 20) >= 10.
    """
    n, times, kept = 41, 3000, 20
    sizes = (np.arange(n) < 19).astype(float)
    found = split_stability(
        [fixed("varying", sizes), fixed("sure", np.full(n, 0.5 - 1e-9))],
        alpha=0.1,
        rng=np.random.default_rng(3),
        repetitions=times,
        share=kept / n,
    )
    assert within(found.wins["sure"], times, hypergeom.sf(kept // 2 - 1, n, 19, kept))


def test_groups_are_drawn_whole_and_weigh_the_same():
    """Nine groups of 1, 2, .., 9 rows; a candidate's size is 1 in the first four groups: it loses
    to a sure 4.5 / 9 when Bin(9, 4/9) >= 5, whatever the group sizes. Pooled rows would see 10 ones
    in 45.
    """
    groups, times = np.repeat(np.arange(9), np.arange(1, 10)), 4000
    entries = [fixed("varying", groups < 4), fixed("sure", np.full(45, 0.5))]
    found = bootstrap_stability(
        entries, alpha=0.1, rng=np.random.default_rng(9), repetitions=times, groups=groups
    )
    assert within(found.wins["sure"], times, binom.sf(4, 9, 4 / 9))
    assert found.regret == pytest.approx((0.5 - 4 / 9) * found.wins["sure"] / times)
    assert found.best == "varying"


def test_group_sizes_beyond_machine_integers_are_handled():
    """The least common multiple of 1..60 has 25 digits."""
    groups = np.repeat(np.arange(60), np.arange(1, 61))
    n = len(groups)
    entries = [fixed("varying", groups < 20), fixed("sure", np.full(n, 0.4))]
    found = bootstrap_stability(
        entries, alpha=0.1, rng=np.random.default_rng(10), repetitions=1000, groups=groups
    )
    assert found.best == "varying"
    assert within(
        found.wins["sure"], 1000, binom.sf(24, 60, 1 / 3) + 0.5 * binom.pmf(24, 60, 1 / 3)
    )


def test_expensive_size_curves_are_asked_for_at_few_thresholds_and_agree_with_exact_ones():
    """300 rows, intervals: the winners from 16 knots are those from every threshold but for
    near-ties (at most 1 in 50).
    """
    rng = np.random.default_rng(11)
    scores = np.abs(rng.standard_normal((2, 300)))
    spreads = rng.uniform(0.5, 1.5, size=(2, 300))
    asked = []

    def curve(c, threshold):
        asked.append(threshold)
        return 2 * spreads[c] * np.sqrt(np.maximum(threshold, 0))

    knots = [EvaluatedCandidate(str(c), scores[c], partial(curve, c)) for c in range(2)]
    exact = [
        EvaluatedCandidate(
            str(c),
            scores[c],
            partial(curve, c),
            lambda ts, c=c: 2 * spreads[c] * np.sqrt(np.asarray(ts))[:, None],
        )
        for c in range(2)
    ]
    counts = rng.multinomial(300, np.full(300, 1 / 300), size=500)
    by_knots = winners_of(knots, counts, alpha=0.1)
    assert 16 < len(asked) <= 32
    assert 0.05 < by_knots.mean() < 0.95
    assert np.count_nonzero(by_knots != winners_of(exact, counts, alpha=0.1)) <= 10


def test_what_cannot_be_resampled_is_refused():
    entry, rng = fixed("a", np.ones(4)), np.random.default_rng(0)
    for name, wrong in (("repetitions", {"repetitions": 0}), ("share", {"share": 1.5})):
        with pytest.raises(ValueError, match=name):
            split_stability([entry], alpha=0.1, rng=rng, **wrong)
    with pytest.raises(ValueError, match="same tuning rows"):
        bootstrap_stability([entry, fixed("b", np.ones(5))], alpha=0.1, rng=rng)


@pytest.mark.parametrize("wrong", [["a"], None, {"a": 3}])
def test_candidates_of_the_wrong_kind_are_refused(wrong):
    for stability in (bootstrap_stability, split_stability):
        with pytest.raises(ValueError, match=r"\(score, prediction\)"):
            stability(wrong, np.zeros(3), alpha=0.1, rng=np.random.default_rng(0))


def test_each_split_holds_its_share_of_the_rows_without_repeats(monkeypatch):
    held = []

    def noted(evaluated, counts, *, alpha):
        held.append(counts)
        return np.zeros(len(counts), dtype=int)

    monkeypatch.setattr("dco.tuning.stability.winners_of", noted)
    split_stability(
        [fixed("x", np.ones(40))],
        alpha=0.1,
        rng=np.random.default_rng(0),
        repetitions=30,
        share=0.3,
    )
    assert held[0].shape == (30, 40)
    assert set(held[0].sum(axis=1)) == {12}
    assert held[0].max() == 1


def test_equal_mean_sizes_are_told_apart_by_the_p95_size():
    """Of 21 sizes that is the twentieth: 9 and 5, where the nineteenth are 2 and 5."""
    x, y = (fixed(name, [1] * 18 + last) for name, last in (("x", [2, 9, 9]), ("y", [5, 5, 10])))
    assert winners_of([x, y], np.ones((1, 21), dtype=np.int64), alpha=0.1).tolist() == [1]
    assert rank_evaluated([x, y], alpha=0.1).best == "y"


def test_regret_is_neither_nan_nor_negative():
    """Infinite sets cannot be worse than infinite ones; nor is a fallback that covers too little a
    gain.
    """
    x, y, bounded = (
        fixed(name, np.full(10, size))
        for name, size in (("x", np.inf), ("y", np.inf), ("bounded", 1.0))
    )
    for entries, best in (([x, y], "x"), ([x, bounded], "bounded")):
        found = bootstrap_stability(entries, alpha=0.1, rng=np.random.default_rng(0))
        assert (found.best, found.modal_share, found.regret, found.relative_regret) == (
            best,
            1.0,
            0.0,
            0.0,
        )
    # two infinite scores of ten: on all rows "x" falls back to sets of size 1, and it wins in every
    # part without both
    scores = np.repeat([1.0, np.inf], [8, 2])
    short = EvaluatedCandidate("x", scores, lambda threshold: np.full(10, float(threshold)))
    found = split_stability(
        [short, fixed("y", np.full(10, 5.0))], alpha=0.1, rng=np.random.default_rng(0), share=0.2
    )
    assert (found.best, found.modal, found.regret) == ("y", "x", 0.0)
