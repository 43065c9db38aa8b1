"""Roles are disjoint, of the sizes asked for, random, and the same for the same seed."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import chisquare
from sklearn.linear_model import Ridge

import dco
from dco.foundations.seeds import as_seed, fresh_seed
from dco.rows.splits import folds


def all_rows(splits: dco.Splits) -> list[int]:
    return sorted(np.concatenate([splits[role] for role in dco.Role]).tolist())


SHARES = {
    "calibrate": st.sampled_from([0, 0.2, 0.25, 0.29, 0.4]),
    "tune": st.sampled_from([0, 0.1, 0.25, 0.3, Fraction(1, 3)]),
    "test": st.sampled_from([0, 0.1, 0.2]),
}
some_shares = given(
    n=st.integers(4, 400), shares=st.fixed_dictionaries(SHARES), seed=st.integers(0, 5)
)


def rounded_sizes(n: int, shares: dict[str, float | Fraction]) -> dict[str, int]:
    """Round the ends of the roles, one after the other, to the nearest row; a half goes up."""
    sizes = {}
    exact_end = Fraction(0)
    n_dealt = 0
    for role in ("calibrate", "tune", "test"):
        exact_end += Fraction(str(shares[role])) * n
        sizes[role] = math.floor(exact_end + Fraction(1, 2)) - n_dealt
        n_dealt += sizes[role]
    return sizes


def has_empty_role(sizes: dict[str, int], shares: dict[str, float | Fraction]) -> bool:
    """Whether a role that was asked for would get no row."""
    return any(share > 0 and sizes[role] == 0 for role, share in shares.items())


@some_shares
def test_every_row_has_one_role_and_sizes_follow_the_rounding_rule(n, shares, seed):
    sizes = rounded_sizes(n, shares)
    assume(not has_empty_role(sizes, shares))

    splits = dco.assign_roles(n, **shares, random_state=seed)

    assert all_rows(splits) == list(range(n))
    assert {role: splits[role].size for role in sizes} == sizes


@some_shares
def test_sizes_are_less_than_a_row_away_from_their_shares(n, shares, seed):
    assume(not has_empty_role(rounded_sizes(n, shares), shares))
    splits = dco.assign_roles(n, **shares, random_state=seed)
    assert all(
        abs(splits[role].size - Fraction(str(share)) * n) < 1 for role, share in shares.items()
    )


@given(n=st.integers(1, 12), shares=st.fixed_dictionaries(SHARES))
def test_a_share_that_leaves_a_role_without_a_row_is_refused(n, shares):
    assume(has_empty_role(rounded_sizes(n, shares), shares))
    with pytest.raises(ValueError, match="too few"):
        dco.assign_roles(n, **shares, random_state=0)


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


def deal(random_state) -> list[int]:
    """Deal 40 rows; return those that calibrate."""
    return dco.assign_roles(40, random_state=random_state).calibrate.tolist()


def test_equal_seeds_deal_alike():
    assert deal(7) == deal(np.int32(7))


def test_other_seeds_deal_otherwise():
    assert deal(7) != deal(8)


generators = pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])


@generators
def test_a_generator_is_asked_for_a_seed_each_time(make):
    generator = make(0)
    assert deal(generator) != deal(generator)


@generators
def test_equal_generators_deal_alike(make):
    assert deal(make(0)) == deal(make(0))


@generators
def test_the_seed_that_a_generator_gave_repeats_the_split(make):
    splits = dco.assign_roles(40, random_state=make(0))
    assert deal(splits.seed) == splits.calibrate.tolist()


def test_a_drawn_seed_repeats_the_split():
    splits = dco.assign_roles(40)
    assert deal(splits.seed) == splits.calibrate.tolist()


def test_another_seed_is_drawn_each_time():
    assert as_seed(None) != as_seed(None)


def test_seeds_of_the_operating_system_differ():
    """The function was imported before the tests got fixed seeds."""
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


def deal_groups(labels: list[str], *, seed: int) -> dco.Splits:
    """Deal a quarter of the groups to tuning, a quarter to calibration, and one to tests."""
    return dco.assign_roles(
        len(labels),
        tune=0.25,
        calibrate=0.25,
        test=1,
        groups=np.array(labels),
        random_state=seed,
    )


@given(GROUPS, st.integers(0, 3))
def test_every_row_of_a_group_has_a_role(labels, seed):
    splits = deal_groups(labels, seed=seed)
    assert splits.grouped
    assert all_rows(splits) == list(range(len(labels)))


@given(GROUPS, st.integers(0, 3))
def test_whole_groups_go_to_one_role(labels, seed):
    splits = deal_groups(labels, seed=seed)
    groups_by_role = [{labels[row] for row in splits[role]} for role in dco.Role]
    assert sum(len(groups) for groups in groups_by_role) == len(set(labels))


@given(GROUPS, st.integers(0, 3))
def test_sizes_of_roles_count_groups(labels, seed):
    splits = deal_groups(labels, seed=seed)
    assert len({labels[row] for row in splits.test}) == 1


@given(GROUPS, st.integers(0, 3))
def test_whole_groups_are_held_out_in_one_fold(labels, seed):
    groups = np.array(labels)
    for fit, held_out in folds(groups.size, 3, groups=groups, seed=seed):
        assert not set(groups[np.concatenate(fit)]) & set(groups[held_out])


@given(n=st.integers(2, 50), k=st.integers(2, 10), seed=st.integers(0, 3))
def test_folds_hold_each_row_out_once_and_are_even(n, k, seed):
    assume(k <= n)
    pairs = folds(n, k, seed=seed)
    assert sorted(np.concatenate([held_out for _, held_out in pairs]).tolist()) == list(range(n))
    assert {held_out.size for _, held_out in pairs} <= {n // k, n // k + 1}


@given(n=st.integers(2, 50), k=st.integers(2, 10), seed=st.integers(0, 3))
def test_all_rows_that_a_fold_does_not_hold_out_are_fitted(n, k, seed):
    assume(k <= n)
    for fit, held_out in folds(n, k, seed=seed):
        assert sorted([*np.concatenate(fit), *held_out]) == list(range(n))


@pytest.mark.parametrize(("n", "k"), [(2, 3), (9, 10), (4, 1)])
def test_folds_are_between_two_and_the_number_of_rows(n, k):
    with pytest.raises(ValueError, match="k must lie between"):
        folds(n, k, seed=0)


def test_folds_take_positions():
    rows = np.array([10, 20, 30, 40])
    pairs = folds(rows, 2, seed=0)
    assert sorted(np.concatenate([held_out for _, held_out in pairs]).tolist()) == rows.tolist()


def test_a_role_is_its_name():
    splits = dco.assign_roles(100)
    assert splits["tune"] is splits.tune
    assert splits[dco.Role.TUNE] is splits.tune
    assert f"{dco.Role.CALIBRATE}" == "calibrate"


def test_splits_print_as_one_line():
    splits = dco.assign_roles(100, tune=0.2, calibrate=0.3, random_state=3)
    assert repr(splits) == "Splits(50 train, 20 tune, 30 calibrate, 0 test; seed 3)"
