"""Roles are disjoint, of the sizes asked for, random, and the same for the same seed."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from sklearn.linear_model import Ridge

import dco
from dco.foundations.seeds import as_seed, fresh_seed
from dco.rows.splits import folds


def all_rows(splits: dco.Splits) -> list[int]:
    return sorted(np.concatenate([splits[role] for role in dco.Role]).tolist())


@given(
    n=st.integers(4, 400),
    tune=st.sampled_from([0, 0.1, 0.25, 0.3, Fraction(1, 3)]),
    calibrate=st.sampled_from([0, 0.2, 0.25, 0.29, 0.4]),
    test=st.sampled_from([0, 0.1, 0.2]),
    seed=st.integers(0, 5),
)
def test_every_row_has_one_role_and_sizes_follow_the_rounding_rule(n, tune, calibrate, test, seed):
    exact = [Fraction(str(calibrate)) * n, Fraction(str(tune)) * n, Fraction(str(test)) * n]
    ends = [math.floor(sum(exact[: i + 1]) + Fraction(1, 2)) for i in range(3)]
    sizes = [ends[0], ends[1] - ends[0], ends[2] - ends[1]]

    if any(share and not size for share, size in zip(exact, sizes, strict=True)):
        with pytest.raises(ValueError, match="too few"):
            dco.assign_roles(n, tune=tune, calibrate=calibrate, test=test, random_state=seed)
        return

    splits = dco.assign_roles(n, tune=tune, calibrate=calibrate, test=test, random_state=seed)
    assert all_rows(splits) == list(range(n))
    assert [splits.calibrate.size, splits.tune.size, splits.test.size] == sizes
    assert all(abs(size - share) < 1 for size, share in zip(sizes, exact, strict=True))


@pytest.mark.parametrize(
    ("n", "sizes", "expected"),
    [
        (50, {"calibrate": 0.29, "tune": 0.25}, 15),  # 14.5 rounds up; 0.29 * 50 is below
        (100, {"calibrate": 1 - 0.9, "tune": 0}, 10),
        (10, {"calibrate": 1, "tune": 1}, 1),
        (10, {"calibrate": 1.0, "tune": 0}, 10),
        (100, {"calibrate": np.int64(45), "tune": 30}, 45),
        (7, {"calibrate": 0.5, "tune": 0.5}, 4),
    ],
    ids=["half", "float", "count 1", "share 1.0", "count", "halves"],
)
def test_shares_are_the_decimals_that_were_typed_and_counts_are_kept(n, sizes, expected):
    assert dco.assign_roles(n, **sizes, random_state=0).sizes["calibrate"] == expected


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            {"tune": 0.6, "calibrate": 0.7},
            "role tune asks for more than there is: 0.7 to calibrate, 0.6 to tune, 0 to test",
        ),
        ({"tune": 101, "calibrate": 0}, "role tune asks for more than there is"),
        ({"calibrate": 1.5}, "the size of the role calibrate must be a count or a share"),
        ({"calibrate": -0.1}, "a count or a share"),
        ({"calibrate": float("nan")}, "a count or a share"),
        ({"calibrate": True}, "a count or a share"),
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
        ({"random_state": "x"}, "random_state must be"),
        ({"random_state": -1}, "random_state must be"),
    ],
)
def test_impossible_requests_say_what_is_wrong(sizes, message):
    with pytest.raises(ValueError, match=message):
        dco.assign_roles(100, **sizes)


def test_no_rows_cannot_be_dealt():
    with pytest.raises(ValueError, match="no rows"):
        dco.assign_roles(0)


@pytest.mark.parametrize(
    "size", [{"calibrate_size": 1.5}, {"calibrate_size": -1}, {"calibrate_size": 0.001}]
)
def test_an_estimator_speaks_of_the_size_and_not_of_its_argument_calibrate(size):
    """There `calibrate` is rows; the sentence must be true where the size is called
    `calibrate_size`.
    """
    with pytest.raises(ValueError, match=r"size .*role calibrate"):
        dco.DecoupledRegressor(Ridge(), alpha=0.1, **size).fit(
            np.arange(100.0)[:, None], np.arange(100.0)
        )


def test_roles_made_by_hand_are_taken():
    assert dco.Splits([0], [1], [2], []).sizes == {"train": 1, "tune": 1, "calibrate": 1, "test": 0}


@pytest.mark.parametrize("rows", [[-1], [0.5], [[7]], ["a"]])
def test_roles_made_by_hand_hold_row_positions(rows):
    with pytest.raises(ValueError, match="tune must list row positions"):
        dco.Splits([0], rows, [2], [])


def test_roles_made_by_hand_are_disjoint():
    with pytest.raises(dco.OverlappingRolesError, match=r"2 rows have two roles \(first: row 3\)"):
        dco.Splits(np.arange(5), np.array([3, 4]), np.array([7]), np.array([], dtype=int))


# ------------------------------------------------------------------------------------------- seeds


def dealt(random_state) -> list[int]:
    return dco.assign_roles(40, random_state=random_state).calibrate.tolist()


def test_equal_seeds_deal_alike_and_others_do_not():
    assert dealt(7) == dealt(np.int32(7))
    assert dealt(7) != dealt(8)


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_a_generator_is_asked_for_a_seed_each_time(make):
    source = make(0)
    first = dco.assign_roles(40, random_state=source)
    assert dealt(source) != first.calibrate.tolist()
    assert dealt(make(0)) == first.calibrate.tolist()
    assert dealt(first.seed) == first.calibrate.tolist()


def test_a_drawn_seed_repeats_the_split():
    drawn = dco.assign_roles(40)
    assert dealt(drawn.seed) == drawn.calibrate.tolist()
    assert as_seed(None) != as_seed(None)
    # the real one, imported before `as_seed` was given a fixed one
    assert fresh_seed() != fresh_seed()


# -------------------------------------------------------------------------------------- randomness


def test_the_split_is_uniform_over_all_splits():
    """5 rows, 2 for calibration: 10 subsets, 5,000 seeds; chi-square at level 0.001."""
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(5_000):
        splits = dco.assign_roles(5, tune=1, calibrate=2, random_state=seed)
        counts[tuple(sorted(splits.calibrate.tolist()))] += 1
    assert len(counts) == 10
    assert chisquare(list(counts.values())).pvalue > 0.001


def test_groups_are_dealt_evenly_whatever_their_size():
    """Each of 5 groups is the one calibration group equally often: 4,000 seeds, chi-square at level
    0.001.
    """
    groups = np.repeat(np.arange(5), [1, 1, 2, 5, 20])
    chosen = []
    for seed in range(4_000):
        splits = dco.assign_roles(29, tune=1, calibrate=1, groups=groups, random_state=seed)
        chosen.append(groups[splits.calibrate[0]])
    assert chisquare(np.bincount(chosen, minlength=5)).pvalue > 0.001


# ------------------------------------------------------------------------------- groups and folds

GROUPS = st.lists(st.sampled_from("abcdefghij"), min_size=30, max_size=60).filter(
    lambda labels: len(set(labels)) >= 4
)


@given(GROUPS, st.integers(0, 3))
def test_whole_groups_go_to_one_role_and_sizes_count_groups(labels, seed):
    groups = np.array(labels)
    splits = dco.assign_roles(
        groups.size, tune=0.25, calibrate=0.25, test=1, groups=groups, random_state=seed
    )
    assert splits.grouped
    assert all_rows(splits) == list(range(groups.size))
    groups_by_role = [set(groups[splits[role]]) for role in dco.Role]
    assert sum(map(len, groups_by_role)) == len(set(labels))
    assert len(set(groups[splits.test])) == 1


@given(GROUPS, st.integers(0, 3))
def test_whole_groups_are_held_out_in_one_fold(labels, seed):
    groups = np.array(labels)
    for fit, held_out in folds(groups.size, 3, groups=groups, seed=seed):
        assert not set(groups[np.concatenate(fit)]) & set(groups[held_out])


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
    pairs = folds(rows, 2, seed=0)
    assert sorted(np.concatenate([held_out for _, held_out in pairs]).tolist()) == rows.tolist()


def test_one_fold_is_none():
    with pytest.raises(ValueError, match="k must lie"):
        folds(4, 1, seed=0)


def test_a_role_is_its_name_and_splits_print_as_one_line():
    splits = dco.assign_roles(100, tune=0.2, calibrate=0.3, random_state=3)
    assert splits["tune"] is splits[dco.Role.TUNE] is splits.tune
    assert f"{dco.Role.CALIBRATE}" == "calibrate"
    assert repr(splits) == "Splits(50 train, 20 tune, 30 calibrate, 0 test; seed 3)"
