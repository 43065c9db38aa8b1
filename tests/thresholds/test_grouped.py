"""Calibration by group: the quantile against its definition in fractions, and its limits."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dco.foundations.errors import InfeasibleLevelWarning
from dco.foundations.ranks import as_rational
from dco.guarantees.rules import split_conformal
from dco.guarantees.rules.weighted import grouped_conformal, one_row_per_group


def by_definition(scores, groups, alpha):
    """The least value with mass at least 1 - alpha, +inf included, from the definition and in fractions."""
    names = sorted(set(groups))
    sizes = {name: groups.count(name) for name in names}
    for value in [*sorted(set(scores)), np.inf]:
        mass = sum(
            (Fraction(1, sizes[g] * (len(names) + 1)) for s, g in zip(scores, groups, strict=True) if s <= value),
            Fraction(0),
        )
        if value == np.inf:
            mass += Fraction(1, len(names) + 1)
        if mass >= 1 - as_rational(alpha):
            return value
    raise AssertionError("the mass is one")


@pytest.mark.filterwarnings("ignore::dco.foundations.errors.InfeasibleLevelWarning")
@given(
    rows=st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5, np.inf]), st.integers(0, 7)), min_size=1, max_size=40),
    alpha=st.sampled_from([0.05, 0.1, 1 - 0.9, 0.2, 0.25, Fraction(1, 3), 0.5, 0.75, 0.9]),
)
def test_the_quantile_is_its_definition(rows, alpha):
    scores, groups = [s for s, _ in rows], [g for _, g in rows]
    threshold = grouped_conformal(scores, groups, alpha=alpha)
    assert threshold.value == by_definition(scores, groups, alpha)
    assert threshold.n == len(set(groups))
    assert threshold.rank is None
    assert threshold.expected_coverage is None
    assert threshold.guarantee == "marginal"


def test_masses_that_meet_the_level_exactly_are_enough():
    """9 groups at alpha = 0.1: all rows together have mass 9 = 0.9 * 10 exactly; one row less is short by 1 / 31."""
    scores = np.arange(27.0)
    assert grouped_conformal(scores, np.arange(27) % 9, alpha=0.1).value == 26
    sizes = [3, 7, 11, 13, 17, 19, 23, 29, 31]
    groups = np.repeat(np.arange(9), sizes)
    assert grouped_conformal(np.arange(groups.size), groups, alpha=0.1).value == groups.size - 1
    spare = Fraction(32, 310)  # 10 (1 - spare) = 9 - 1 / 31
    assert grouped_conformal(np.arange(groups.size), groups, alpha=spare).value == groups.size - 2
    assert grouped_conformal(np.arange(groups.size), groups, alpha=spare - Fraction(1, 10**15)).value == groups.size - 1


def test_one_row_per_group_is_split_conformal():
    """In the dtype of the scores 18 of 19 distinct ones are at most the value; half of the longdoubles would round down."""
    for seed in range(8):
        scores = np.random.default_rng(seed).normal(size=19).astype(np.longdouble) + np.longdouble(1) / 3
        assert np.sum(scores <= grouped_conformal(scores, np.arange(19), alpha=0.1).value) == 18
        for alpha in (0.06, 0.1, 0.37):
            assert grouped_conformal(scores, np.arange(19), alpha=alpha).value == split_conformal(scores, alpha=alpha).value


def test_order_of_rows_and_names_of_groups_do_not_matter():
    rng = np.random.default_rng(1)
    scores, groups = rng.normal(size=200), rng.integers(0, 30, size=200)
    value = grouped_conformal(scores, groups, alpha=0.1).value
    turn = rng.permutation(200)
    assert grouped_conformal(scores[turn], groups[turn], alpha=0.1).value == value
    assert grouped_conformal(scores, [f"patient {g}" for g in groups], alpha=0.1).value == value


def test_copies_of_a_groups_rows_change_nothing():
    """A group weighs the same however often its rows are repeated; pooled rows would follow the large group."""
    rng = np.random.default_rng(2)
    scores, groups = rng.normal(size=60), np.arange(60) % 20
    more, many = np.concatenate([scores, np.repeat(scores[groups == 3], 50)]), np.concatenate([groups, np.full(150, 3)])
    assert grouped_conformal(more, many, alpha=0.2).value == grouped_conformal(scores, groups, alpha=0.2).value


def test_a_row_that_only_large_groups_have_is_not_promised():
    """Rows of a group are alike: 17 groups of one row score 0, and the two of ten rows, the only ones with a second, 1."""
    labels = np.r_[np.arange(17), np.repeat([17, 18], 10)]
    value = grouped_conformal((labels >= 17) * 1.0, labels, alpha=0.2).value
    assert value == 0
    first = np.unique(labels, return_index=True)[1]
    assert np.mean((labels >= 17)[first] <= value) == 17 / 19
    assert not np.any((labels >= 17)[first[17:] + 1] <= value)


def test_too_few_groups_give_an_infinite_threshold_however_many_rows():
    with pytest.warns(InfeasibleLevelWarning, match=r"8 calibration groups are too few .* At least 9 groups"):
        threshold = grouped_conformal(np.arange(800.0), np.arange(800) % 8, alpha=0.1)
    assert threshold.value == np.inf
    assert threshold.n == 8


@pytest.mark.parametrize(
    ("scores", "groups", "message"),
    [
        ([1.0, np.nan], [0, 1], "are NaN"),
        ([1.0, 2.0], [0, 1, 2], "2 scores and 3 group labels"),
        ([1.0, 2.0], [0, None], "groups is missing for 1 rows"),
    ],
)
def test_bad_input_is_refused(scores, groups, message):
    with pytest.raises(ValueError, match=message):
        grouped_conformal(scores, groups, alpha=0.5)


def test_the_work_in_python_is_not_for_each_row(lines_run):
    rng = np.random.default_rng(0)
    scores, groups = rng.normal(size=200_000), rng.geometric(0.0005, size=200_000)
    lines_run(lambda: grouped_conformal(scores, groups, alpha=0.1), at_most=200_000)


def test_one_row_of_each_group_evenly_and_by_seed():
    """4,000 draws from groups of 1, 2 and 4 rows: each row of a group equally often, within 5 standard errors."""
    groups = np.array(["c", "b", "a", "b", "c", "c", "c"])
    counts = np.zeros(7)
    for seed in range(4_000):
        rows = one_row_per_group(groups, seed=seed)
        assert sorted(groups[rows]) == ["a", "b", "c"]
        assert (np.diff(rows) > 0).all()
        counts[rows] += 1
    share = np.array([{"a": 1.0, "b": 0.5, "c": 0.25}[g] for g in groups])
    assert (np.abs(counts / 4_000 - share) <= 5 * np.sqrt(share * (1 - share) / 4_000)).all()
    assert one_row_per_group(groups, seed=3).tolist() == one_row_per_group(groups, seed=3).tolist()
