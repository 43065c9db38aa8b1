"""Roles of rows: who gets which, whatever was brought, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dco.foundations.errors import OverlappingRolesError
from dco.rows.fingerprints import row_fingerprints
from dco.rows.roles import Growth, Roles, Sizes, deal_roles, given_roles
from dco.rows.rows import Rows


def rows_of(n: int, start: int = 0, groups: np.ndarray | None = None) -> Rows:
    X = np.arange(start, start + n, dtype=float)[:, None]
    return Rows(X, X[:, 0] % 2, groups)


def numbers(rows: Rows) -> list[int]:
    return sorted(rows.X[:, 0].astype(int).tolist())


def check(roles: Roles) -> None:
    """Roles hold the rows that `splits` names, with the fingerprints of these rows."""
    for name in ("train", "tune", "calibrate"):
        part: Rows = getattr(roles, name)
        assert roles.sizes[name] == len(part)
        if len(part):
            np.testing.assert_array_equal(roles.hashes[name], row_fingerprints(part.X, part.y))
        else:
            assert name not in roles.hashes


@pytest.mark.parametrize(
    ("sizes", "frozen", "expected"),
    [
        (Sizes(), False, (50, 25, 25)),
        (Sizes(10, 0.5), False, (40, 10, 50)),
        (Sizes(0.25, 0.25, folds=5), False, (75, 0, 25)),
        (Sizes(0.2, 0.3), True, (0, 40, 60)),  # frozen models: the same proportion of all rows
        (Sizes(10, 90), True, (0, 10, 90)),
        (Sizes(10, 0.5), True, (0, 10, 90)),
        (Sizes(0.5, 30), True, (0, 70, 30)),
        (Sizes(0, 0.25), True, (0, 0, 100)),
        (Sizes(0, 0.25), False, (75, 0, 25)),  # one candidate, which needs no tuning rows
        (Sizes(0.25, 0.25, folds=5), True, (75, 0, 25)),
    ],
)
def test_every_row_is_dealt_once_in_the_sizes_asked_for(sizes, frozen, expected) -> None:
    roles = deal_roles(rows_of(100), sizes, seed=1, frozen=frozen)
    check(roles)
    assert tuple(roles.sizes.values()) == tuple(roles.splits.sizes.values())[:3] == expected
    parts = (roles.train, roles.tune, roles.calibrate)
    assert sorted(number for part in parts for number in numbers(part)) == list(range(100))
    assert roles.dealt_from() == 100
    again = deal_roles(rows_of(100), sizes, seed=1, frozen=frozen)
    np.testing.assert_array_equal(again.splits.calibrate, roles.splits.calibrate)


@pytest.mark.parametrize(
    ("tune", "calibrate", "options", "expected"),
    [
        (True, True, {}, (100, 50, 40)),
        (True, False, {}, (75, 50, 25)),
        (False, True, {}, (75, 25, 40)),
        (False, True, {"frozen": True}, (0, 100, 40)),
        (True, False, {"frozen": True}, (0, 50, 100)),
        (True, True, {"frozen": True}, (100, 50, 40)),
    ],
)
def test_roles_that_are_brought_are_kept_and_the_rest_is_dealt(tune, calibrate, options, expected) -> None:
    brought = {"tune": rows_of(50, 1000) if tune else None, "calibrate": rows_of(40, 2000) if calibrate else None}
    roles = given_roles(rows_of(100), Sizes(), **brought, seed=1, **options)
    check(roles)
    assert tuple(roles.sizes.values()) == expected
    assert roles.dealt_from() == (None if calibrate else 100)
    for name, rows in brought.items():
        if rows is not None:
            assert getattr(roles, name) is rows
    folds = given_roles(rows_of(100), Sizes(folds=3), calibrate=rows_of(40, 2000), seed=1)
    assert folds.sizes == {"train": 100, "tune": 0, "calibrate": 40}


def test_repeats_are_counted_or_dropped() -> None:
    once = rows_of(60)
    twice = Rows(np.vstack([once.X, once.X]), np.concatenate([once.y, once.y]))
    counted = deal_roles(twice, Sizes(), seed=0).shared
    assert set(counted) == {"train and calibrate", "tune and calibrate"}
    assert counted["train and calibrate"] > 0
    dropped = deal_roles(twice, Sizes(), seed=0, duplicates="drop")
    assert set(dropped.shared.values()) == {0}
    assert sum(dropped.sizes.values()) == 60
    check(dropped)
    with pytest.raises(OverlappingRolesError, match="train and calibrate share 10 rows"):
        given_roles(rows_of(100), Sizes(), tune=rows_of(50, 1000), calibrate=rows_of(20, 90), seed=0)


def test_a_split_grows_along_an_order_that_is_fixed_beforehand() -> None:
    groups = np.arange(100) // 2
    seen = []

    def grow(growth: Growth):
        seen.append(growth)
        return growth.order[:10], growth.order[10:], {"model": "fitted"}

    roles = deal_roles(rows_of(100, groups=groups), Sizes("auto", 0.3), seed=3, grow=grow)
    (growth,) = seen
    assert sorted([*growth.train, *growth.order]) == list(range(100))
    assert growth.least == 15  # groups
    assert roles.splits.tune.tolist() == growth.order[:10].tolist()
    assert roles.prefitted == {"model": "fitted"}
    assert not {*groups[growth.train]} & {*groups[growth.order]}
    assert roles.dealt_from() == 50
    frozen = deal_roles(rows_of(100), Sizes("auto", 0.3), seed=3, frozen=True, grow=grow)
    assert frozen.sizes == {"train": 0, "tune": 10, "calibrate": 90}


@pytest.mark.parametrize(
    ("n", "sizes", "match"),
    [
        (2, Sizes(), "n_samples=2 is too few to train, tune and calibrate: give at least 3 rows"),
        (1, Sizes(tune=0), "n_samples=1 is too few to train and calibrate: give at least 2 rows"),
        (2, Sizes(0, folds=2), "n_samples=2 is too few to train, tune and calibrate: give at least 3 rows"),
        (10, Sizes(0.5, 0.5), "no row is left for the role train, with tune_size=0.5 and calibrate_size=0.5: lower a size"),
        (10, Sizes(0, 1.0), "no row is left for the role train, with tune_size=0 and calibrate_size=1.0: lower a size"),
        (10, Sizes(0.25, 0), "no row is left for the role calibrate: calibrate_size=0. Raise it"),
        (10, Sizes(0.01, 0.25), "leaves the role tune without a row"),
    ],
)
def test_a_role_without_rows_is_refused(n, sizes, match) -> None:
    with pytest.raises(ValueError, match=match):
        deal_roles(rows_of(n), sizes, seed=0)


def test_as_few_rows_as_there_are_roles_are_enough() -> None:
    assert deal_roles(rows_of(2), Sizes(tune=0), seed=0).sizes == {"train": 1, "tune": 0, "calibrate": 1}
    assert deal_roles(rows_of(1), Sizes(tune=0), seed=0, frozen=True).sizes == {"train": 0, "tune": 0, "calibrate": 1}
    with pytest.raises(ValueError, match="n_samples=1 is too few to tune and calibrate: give at least 2 rows"):
        deal_roles(rows_of(1), Sizes(), seed=0, frozen=True)


@pytest.mark.parametrize(
    ("sizes", "brought", "match"),
    [
        (Sizes(0.25, 0), "tune", "no row is left for the role calibrate"),
        (Sizes(1.0, 0.25), "calibrate", "no row is left for the role train"),
        (Sizes(0.01, 0.25), "calibrate", "leaves the role tune without a row"),
    ],
)
def test_a_role_without_rows_is_refused_beside_roles_of_the_caller_too(sizes, brought, match) -> None:
    with pytest.raises(ValueError, match=match):
        given_roles(rows_of(30), sizes, **{brought: rows_of(9, 100)}, seed=0)


def test_what_cannot_be_combined_with_roles_of_the_caller_is_refused() -> None:
    with pytest.raises(ValueError, match='duplicates="drop" is for roles made here'):
        given_roles(rows_of(30), Sizes(), calibrate=rows_of(9, 100), seed=0, duplicates="drop")
    with pytest.raises(ValueError, match='tune_size="auto" needs both'):
        given_roles(rows_of(30), Sizes("auto"), calibrate=rows_of(9, 100), seed=0)


def test_rows_to_deal_from_are_those_dealt_here() -> None:
    """The advice on calibrate_size goes by them: tuning rows that were brought cannot calibrate."""
    assert given_roles(rows_of(40), Sizes(), tune=rows_of(100, 100), seed=0).dealt_from() == 40


@pytest.mark.parametrize(
    "sizes", [Sizes(0.2, 0.3), Sizes(10, 90), Sizes(10, 0.5), Sizes(0.5, 30), Sizes(0.25, 0.25, folds=5)]
)
def test_rows_beside_frozen_models_can_be_balanced_over_labels(sizes) -> None:
    for seed in range(5):
        roles = deal_roles(rows_of(100), sizes, seed=seed, frozen=True, stratify=True)
        check(roles)
        assert roles.splits.stratified
        assert roles.splits.seed == seed
        for part in (roles.train, roles.tune, roles.calibrate):
            assert abs(part.y.sum() - len(part) / 2) <= 1


@pytest.mark.parametrize("brought", ["tune", "calibrate"])
def test_rows_beside_a_role_that_was_brought_can_be_balanced_over_labels(brought) -> None:
    for seed in range(5):
        roles = given_roles(rows_of(100), Sizes(0.3, 0.3), seed=seed, stratify=True, **{brought: rows_of(40, 1000)})
        check(roles)
        assert roles.splits.stratified
        dealt = [getattr(roles, name) for name in ("train", "tune", "calibrate") if name != brought]
        assert [len(part) for part in dealt] == [70, 30]
        assert [part.y.sum() for part in dealt] == [35, 15]


def test_balancing_that_would_have_no_effect_is_refused() -> None:
    own = {"tune": rows_of(50, 2000), "calibrate": rows_of(40, 1000)}
    one = {"calibrate": own["calibrate"], "stratify": True, "seed": 0}
    with pytest.raises(ValueError, match="stratify=True has no effect here: all rows of X go to the role train"):
        given_roles(rows_of(100), Sizes(), stratify=True, seed=0, **own)
    for sizes in (Sizes(folds=5), Sizes(tune=0)):
        with pytest.raises(ValueError, match="no effect here: all rows of X go to the role train"):
            given_roles(rows_of(100), sizes, **one)
    with pytest.raises(ValueError, match="no effect here: all rows of X go to the role tune"):
        given_roles(rows_of(100), Sizes(), frozen=True, **one)
    with pytest.raises(ValueError, match="no effect here: all rows of X go to the role calibrate"):
        deal_roles(rows_of(100), Sizes(tune=0), seed=0, frozen=True, stratify=True)
    with pytest.raises(ValueError, match='tune_size="auto" and stratify=True cannot be combined'):
        deal_roles(rows_of(100), Sizes("auto"), seed=0, stratify=True, grow=lambda growth: pytest.fail("grown"))


@pytest.mark.parametrize("duplicates", ["natural", "drop"])
def test_splits_name_the_rows_of_the_table_that_was_given(duplicates) -> None:
    once = rows_of(60)
    twice = Rows(np.repeat(once.X, 2, axis=0), np.repeat(once.y, 2))
    roles = deal_roles(twice, Sizes(), seed=0, duplicates=duplicates)
    for name in ("train", "tune", "calibrate"):
        np.testing.assert_array_equal(twice.X[roles.splits[name]], getattr(roles, name).X)
        np.testing.assert_array_equal(twice.y[roles.splits[name]], getattr(roles, name).y)


def test_equal_features_with_other_targets_are_no_repeats() -> None:
    rows = Rows(np.zeros((40, 1)), np.arange(40) // 2.0)
    dropped = deal_roles(rows, Sizes(), seed=0, duplicates="drop")
    assert sorted(np.concatenate([dropped.train.y, dropped.tune.y, dropped.calibrate.y])) == list(range(20))


def test_the_order_of_a_growing_split_comes_from_the_seed() -> None:
    orders = []

    def grow(growth: Growth):
        orders.append(growth.order.tolist())
        return growth.order[:10], growth.order[10:], {}

    for seed in (3, 4, 3):
        deal_roles(rows_of(100), Sizes("auto", 0.3), seed=seed, frozen=True, grow=grow)
    assert orders[0] == orders[2] != orders[1]


def test_groups_of_some_roles_only_are_refused() -> None:
    for train, calibrate in ((np.arange(30), None), (None, np.arange(40))):
        with pytest.raises(ValueError, match="for all roles or for none"):
            given_roles(rows_of(30, groups=train), Sizes(0), calibrate=rows_of(40, 1000, groups=calibrate), seed=0)
