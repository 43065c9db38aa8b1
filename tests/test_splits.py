"""Roles are disjoint, of the sizes asked for, random, and the same for the same seed."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from sklearn.linear_model import Ridge

from dco import DecoupledRegressor
from dco.foundations.errors import OverlappingRolesError
from dco.rows.roles import Role, Splits, as_seed, assign_roles, folds, fresh_seed, random_order


def all_rows(splits: Splits) -> list[int]:
    return sorted(np.concatenate([splits[role] for role in Role]).tolist())


@given(
    n=st.integers(4, 400),
    tune=st.sampled_from([0, 0.1, 0.25, 0.3, Fraction(1, 3)]),
    calibrate=st.sampled_from([0, 0.2, 0.25, 0.29, 0.4]),
    test=st.sampled_from([0, 0.1, 0.2]),
    seed=st.integers(0, 5),
)
def test_every_row_has_one_role_and_sizes_follow_the_rounding_rule(n, tune, calibrate, test, seed):
    exact = [Fraction(str(calibrate)) * n, Fraction(str(tune)) * n, Fraction(str(test)) * n]
    cumulative = [(sum(exact[: i + 1]) + Fraction(1, 2)).__floor__() for i in range(3)]
    sizes = [cumulative[0], cumulative[1] - cumulative[0], cumulative[2] - cumulative[1]]
    if any(share and not size for share, size in zip(exact, sizes, strict=True)):
        with pytest.raises(ValueError, match="too few"):
            assign_roles(n, tune=tune, calibrate=calibrate, test=test, seed=seed)
        return
    splits = assign_roles(n, tune=tune, calibrate=calibrate, test=test, seed=seed)
    assert all_rows(splits) == list(range(n))
    assert [splits.calibrate.size, splits.tune.size, splits.test.size] == sizes
    assert all(abs(size - share) < 1 for size, share in zip(sizes, exact, strict=True))


def test_shares_are_the_decimals_that_were_typed():
    # 14.5 rounds up; 0.29 * 50 is below
    assert assign_roles(50, calibrate=0.29, tune=0.25, seed=0).sizes["calibrate"] == 15
    assert assign_roles(100, calibrate=1 - 0.9, tune=0, seed=0).sizes["calibrate"] == 10
    halves = assign_roles(7, tune=0.5, calibrate=0.5, seed=0)
    assert halves.sizes == {"train": 0, "tune": 3, "calibrate": 4, "test": 0}


def test_counts_are_taken_as_they_are():
    splits = assign_roles(100, tune=30, calibrate=np.int64(45), test=5, seed=1)
    assert splits.sizes == {"train": 20, "tune": 30, "calibrate": 45, "test": 5}
    # the count 1; the share 1.0 is everything
    assert assign_roles(10, tune=1, calibrate=1, seed=0).sizes["tune"] == 1
    assert assign_roles(10, tune=0, calibrate=1.0, seed=0).sizes["calibrate"] == 10


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            {"tune": 0.6, "calibrate": 0.7},
            "role tune asks for more than there is: 0.7 to calibrate, 0.6 to tune and 0 to test",
        ),
        ({"tune": 101, "calibrate": 0}, "role tune asks for more than there is"),
        ({"calibrate": 1.5}, "the size of the role calibrate must be a count or a share"),
        ({"calibrate": -0.1}, "a count or a share"),
        ({"calibrate": float("nan")}, "a count or a share"),
        (
            {"calibrate": -1},
            "the size of the role calibrate must be a count or a share between 0 and 1, got -1",
        ),
        ({"calibrate": "half"}, "a count or a share between 0 and 1, got 'half'"),
        (
            {"calibrate": 0.001},
            "100 rows are too few: the size 0.001 leaves the role calibrate without a row",
        ),
        ({"groups": np.zeros(3)}, "3 labels for 100 rows"),
        ({"seed": "x"}, "seed must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_impossible_requests_say_what_is_wrong(sizes, message):
    with pytest.raises(ValueError, match=message):
        assign_roles(100, **sizes)


@pytest.mark.parametrize(
    "size", [{"calibrate_size": 1.5}, {"calibrate_size": -1}, {"calibrate_size": 0.001}]
)
def test_an_estimator_speaks_of_the_size_and_not_of_its_argument_calibrate(size):
    """There `calibrate` is rows; the sentence must be true where the size is called
    `calibrate_size`.
    """
    with pytest.raises(ValueError, match=r"size .*role calibrate"):
        DecoupledRegressor(Ridge(), alpha=0.1, **size).fit(
            np.arange(100.0)[:, None], np.arange(100.0)
        )


def test_roles_made_by_hand_are_disjoint_row_positions():
    assert Splits([0], [1], [2], []).sizes == {"train": 1, "tune": 1, "calibrate": 1, "test": 0}
    for rows in ([-1], [0.5], [[7]], ["a"]):
        with pytest.raises(ValueError, match="tune must list row positions"):
            Splits([0], rows, [2], [])
    with pytest.raises(ValueError, match="no rows"):
        assign_roles(0)
    with pytest.raises(OverlappingRolesError, match=r"2 rows have two roles \(first: row 3\)"):
        Splits(np.arange(5), np.array([3, 4]), np.array([7]), np.array([], dtype=int))


def test_seeds_are_scikit_learns():
    same = [assign_roles(40, seed=seed).calibrate.tolist() for seed in (7, np.int32(7))]
    assert same[0] == same[1]
    assert assign_roles(40, seed=8).calibrate.tolist() != same[0]
    for make in (np.random.default_rng, np.random.RandomState):
        source = make(0)
        first, second = assign_roles(40, seed=source), assign_roles(40, seed=source)
        assert first.calibrate.tolist() != second.calibrate.tolist()
        assert assign_roles(40, seed=make(0)).calibrate.tolist() == first.calibrate.tolist()
        assert assign_roles(40, seed=first.seed).calibrate.tolist() == first.calibrate.tolist()
    drawn = assign_roles(40)
    assert assign_roles(40, seed=drawn.seed).calibrate.tolist() == drawn.calibrate.tolist()
    assert as_seed(None) != as_seed(None)
    # the real one, imported before `as_seed` was given a fixed one
    assert fresh_seed() != fresh_seed()


def test_the_split_is_uniform_over_all_splits():
    """5 rows, 2 for calibration: 10 subsets, 5,000 seeds; chi-square at level 0.001."""
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(5_000):
        chosen = tuple(sorted(assign_roles(5, tune=1, calibrate=2, seed=seed).calibrate.tolist()))
        counts[chosen] = counts.get(chosen, 0) + 1
    assert len(counts) == 10
    assert chisquare(list(counts.values())).pvalue > 0.001


@given(st.lists(st.sampled_from("abcdefghij"), min_size=30, max_size=60), st.integers(0, 3))
def test_whole_groups_go_to_one_role_fold_and_step(labels, seed):
    groups = np.array(labels)
    count = len(set(labels))
    if count < 4:
        return
    splits = assign_roles(groups.size, tune=0.25, calibrate=0.25, test=1, groups=groups, seed=seed)
    assert all_rows(splits) == list(range(groups.size))
    assert splits.grouped
    homes = [set(groups[splits[role]]) for role in Role]
    assert sum(map(len, homes)) == count
    assert len(set(groups[splits.test])) == 1  # sizes count groups
    for fit, held_out in folds(groups.size, 3, groups=groups, seed=seed):
        assert not set(groups[np.concatenate(fit)]) & set(groups[held_out])
    order = random_order(groups.size, groups=groups, seed=seed)
    assert order.ends.size == count + 1
    for j in range(count + 1):
        first, rest = np.split(order.rows, [order.ends[j]])
        assert sorted([*first, *rest]) == list(range(groups.size))
        assert len(set(groups[first])) == j
        assert not set(groups[first]) & set(groups[rest])


def test_groups_are_dealt_evenly_whatever_their_size():
    """Each of 5 groups is the one calibration group equally often: 4,000 seeds, chi-square at level
    0.001.
    """
    groups = np.repeat(np.arange(5), [1, 1, 2, 5, 20])
    chosen = [
        groups[assign_roles(29, tune=1, calibrate=1, groups=groups, seed=s).calibrate[0]]
        for s in range(4_000)
    ]
    assert chisquare(np.bincount(chosen, minlength=5)).pvalue > 0.001


@given(st.integers(2, 50), st.integers(2, 10), st.integers(0, 3))
def test_folds_hold_each_row_out_once_and_are_even(n, k, seed):
    if k > n:
        with pytest.raises(ValueError, match="k must lie between"):
            folds(n, k, seed=seed)
        return
    pairs = folds(n, k, seed=seed)
    assert sorted(np.concatenate([held_out for _, held_out in pairs]).tolist()) == list(range(n))
    for fit, held_out in pairs:
        assert sorted([*np.concatenate(fit), *held_out]) == list(range(n))
        assert held_out.size in (n // k, n // k + 1)


def test_folds_take_positions():
    rows = np.array([10, 20, 30, 40])
    assert sorted(random_order(rows, seed=0).rows) == rows.tolist()
    pairs = folds(rows, 2, seed=0)
    assert sorted(np.concatenate([held_out for _, held_out in pairs]).tolist()) == rows.tolist()
    with pytest.raises(ValueError, match="k must lie"):
        folds(rows, 1, seed=0)


def test_a_role_is_its_name_and_splits_print_as_one_line():
    splits = assign_roles(100, tune=0.2, calibrate=0.3, seed=3)
    assert splits["tune"] is splits[Role.TUNE] is splits.tune
    assert f"{Role.CALIBRATE}" == "calibrate"
    assert repr(splits) == "Splits(50 train, 20 tune, 30 calibrate, 0 test; seed 3)"
