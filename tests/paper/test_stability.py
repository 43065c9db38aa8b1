"""Selection stability against brute force and against binomial laws on constructed ties."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from dco.paper.stability import bootstrap_stability, winners_of
from dco.tuning import EvaluatedCandidate, rank_evaluated


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


def test_what_cannot_be_resampled_is_refused():
    entry, rng = fixed("a", np.ones(4)), np.random.default_rng(0)
    with pytest.raises(ValueError, match="repetitions"):
        bootstrap_stability([entry], alpha=0.1, rng=rng, repetitions=0)
    with pytest.raises(ValueError, match="same tuning rows"):
        bootstrap_stability([entry, fixed("b", np.ones(5))], alpha=0.1, rng=rng)


@pytest.mark.parametrize("wrong", [["a"], None, {"a": 3}])
def test_candidates_of_the_wrong_kind_are_refused(wrong):
    with pytest.raises(ValueError, match=r"\(score, prediction\)"):
        bootstrap_stability(wrong, np.zeros(3), alpha=0.1, rng=np.random.default_rng(0))


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
