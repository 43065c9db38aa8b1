"""Roles of rows: who gets which, whatever was brought, and what is refused."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dco.foundations.errors import OverlappingRolesError
from dco.rows.fingerprints import role_fingerprint, row_fingerprints
from dco.rows.roles import Roles, Split, deal_roles
from dco.rows.rows import Rows, given_rows, take_features

NAMES = ("train", "tune", "calibrate")


def rows_of(n: int, start: int = 0, clusters: np.ndarray | None = None) -> Rows:
    X = np.arange(start, start + n, dtype=float)[:, None]
    return Rows(X, X[:, 0] % 2, clusters)


TUNE, CALIBRATE = rows_of(50, 1000), rows_of(40, 2000)


def sizes(roles: Roles) -> dict[str, int]:
    return {"train": len(roles.train), "tune": len(roles.tune), "calibrate": len(roles.sealed)}


def parts_of(roles: Roles) -> dict[str, Any]:
    """The (X, y) of each role, once: the seal is broken. Each has the fingerprints of its rows."""
    parts = {"train": (roles.train.X, roles.train.y), "tune": (roles.tune.X, roles.tune.y)}
    parts["calibrate"] = roles.sealed.open_for("a test")
    assert sizes(roles) == {name: len(y) for name, (_, y) in parts.items()}
    filled = {name: part for name, part in parts.items() if len(part[1])}
    assert roles.fingerprints == {
        name: role_fingerprint(row_fingerprints(*part)) for name, part in filled.items()
    }
    return parts


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        (Split(), (50, 25, 25)),
        (Split(10, 0.5), (40, 10, 50)),
        (Split(0.25, 0.25, folds=5), (75, 0, 25)),
        # frozen models: the same proportion of all rows
        (Split(0.2, 0.3, frozen=True), (0, 40, 60)),
        (Split(10, 90, frozen=True), (0, 10, 90)),
        (Split(10, 0.5, frozen=True), (0, 10, 90)),
        (Split(0.5, 30, frozen=True), (0, 70, 30)),
        (Split(0, 0.25, frozen=True), (0, 0, 100)),
        (Split(0, 0.25), (75, 0, 25)),  # one candidate, which needs no tuning rows
        (Split(0.25, 0.25, folds=5, frozen=True), (75, 0, 25)),
    ],
)
def test_every_row_is_dealt_once_in_the_sizes_asked_for(split, expected) -> None:
    roles = deal_roles(rows_of(100), split, seed=1)
    assert tuple(sizes(roles).values()) == tuple(roles.splits.sizes.values())[:3] == expected
    assert np.sort(np.concatenate([X[:, 0] for X, _ in parts_of(roles).values()])).tolist() == list(
        range(100)
    )
    assert roles.dealt_from == 100
    again = deal_roles(rows_of(100), split, seed=1)
    np.testing.assert_array_equal(again.splits.calibrate, roles.splits.calibrate)


def test_training_and_tuning_rows_are_slices_of_one_copy_with_parameters_of_their_own() -> None:
    """A parameter with one entry per row is cut; one that is as long as both roles by chance is
    passed on.
    """
    whole, params = (
        rows_of(100),
        {"weight": np.arange(100.0), "levels": list(range(75)), "name": "as it is"},
    )
    rows = given_rows(whole.X, whole.y, None, params)
    roles = deal_roles(rows, Split(), seed=1)
    assert roles.together is not None
    for part in (roles.train, roles.tune, roles.together):
        assert np.shares_memory(part.X, roles.together.X)
        assert not np.shares_memory(part.X, rows.X)
        np.testing.assert_array_equal(part.params["weight"], part.X[:, 0])
        assert part.params["levels"] == list(range(75))
        assert part.params["name"] == "as it is"
    assert np.array_equal(roles.together.X, np.concatenate([roles.train.X, roles.tune.X]))
    assert deal_roles(rows_of(100), Split(given_tune=TUNE), seed=1).together is None


def test_slices_of_a_sparse_table_share_its_memory() -> None:
    whole = sparse.random_array((30, 5), density=0.3, format="csr", rng=np.random.default_rng(0))
    whole.sum_duplicates()
    for kind in (sparse.csr_array, sparse.csr_matrix):
        table = kind(whole)
        assert table.has_canonical_format
        for part in (slice(10), slice(10, None), slice(10, 20), slice(0, 0)):
            found = take_features(table, part)
            assert type(found) is type(table)
            np.testing.assert_array_equal(found.toarray(), whole.toarray()[part])
        # SciPy copies short ones
        assert np.shares_memory(take_features(table, slice(25)).data, table.data)


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        (Split(given_tune=TUNE, given_calibrate=CALIBRATE), (100, 50, 40)),
        (Split(given_tune=TUNE), (75, 50, 25)),
        (Split(given_calibrate=CALIBRATE), (75, 25, 40)),
        (Split(given_calibrate=CALIBRATE, folds=3), (100, 0, 40)),
        (Split(given_calibrate=CALIBRATE, frozen=True), (0, 100, 40)),
        (Split(given_tune=TUNE, frozen=True), (0, 50, 100)),
        (Split(given_tune=TUNE, given_calibrate=CALIBRATE, frozen=True), (100, 50, 40)),
    ],
)
def test_roles_that_are_brought_are_kept_and_the_rest_is_dealt(split, expected) -> None:
    """The advice on calibrate_size goes by the rows that are dealt here: rows that were brought
    cannot calibrate.
    """
    roles = deal_roles(rows_of(100), split, seed=1)
    assert tuple(sizes(roles).values()) == expected
    assert roles.dealt_from == (None if split.given_calibrate else 100)
    assert split.given_tune is None or roles.tune is split.given_tune
    assert split.given_calibrate is None or parts_of(roles)["calibrate"][0] is CALIBRATE.X


def test_repeats_are_counted_or_dropped() -> None:
    twice = Rows(np.tile(rows_of(60).X, (2, 1)), np.tile(rows_of(60).y, 2))
    counted = deal_roles(twice, Split(), seed=0).shared
    assert set(counted) == {"train and calibrate", "tune and calibrate"}
    assert counted["train and calibrate"] > 0
    dropped = deal_roles(twice, Split(duplicates="drop"), seed=0)
    assert set(dropped.shared.values()) == {0}
    assert sum(sizes(dropped).values()) == 60
    with pytest.raises(OverlappingRolesError, match="train and calibrate share 10 rows"):
        deal_roles(rows_of(100), Split(given_tune=TUNE, given_calibrate=rows_of(20, 90)), seed=0)
    other_targets = Rows(np.zeros((40, 1)), np.arange(40) // 2.0)
    parts = parts_of(deal_roles(other_targets, Split(duplicates="drop"), seed=0)).values()
    assert sorted(np.concatenate([y for _, y in parts])) == list(range(20))


@pytest.mark.parametrize("duplicates", ["natural", "drop"])
def test_splits_name_the_rows_of_the_table_that_was_given(duplicates) -> None:
    twice = Rows(np.repeat(rows_of(60).X, 2, axis=0), np.repeat(rows_of(60).y, 2))
    roles = deal_roles(twice, Split(duplicates=duplicates), seed=0)
    for name, (X, y) in parts_of(roles).items():
        np.testing.assert_array_equal(twice.X[roles.splits[name]], X)
        np.testing.assert_array_equal(twice.y[roles.splits[name]], y)


@pytest.mark.parametrize(
    ("n", "split", "match"),
    [
        (2, Split(), "n_samples=2 is too few to train, tune and calibrate: give at least 3 rows"),
        (1, Split(tune=0), "n_samples=1 is too few to train and calibrate: give at least 2 rows"),
        (
            2,
            Split(0, folds=2),
            "n_samples=2 is too few to train, tune and calibrate: give at least 3 rows",
        ),
        (
            1,
            Split(frozen=True),
            "n_samples=1 is too few to tune and calibrate: give at least 2 rows",
        ),
        (
            10,
            Split(0.5, 0.5),
            "no row is left for the role train, with tune_size=0.5 and "
            "calibrate_size=0.5: lower a size",
        ),
        (
            10,
            Split(0, 1.0),
            "no row is left for the role train, with tune_size=0 and "
            "calibrate_size=1.0: lower a size",
        ),
        (10, Split(0.25, 0), "no row is left for the role calibrate: calibrate_size=0. Raise it"),
        (10, Split(0.01, 0.25), "leaves the role tune without a row"),
        (30, Split(0.25, 0, given_tune=TUNE), "no row is left for the role calibrate"),
        (30, Split(1.0, 0.25, given_calibrate=CALIBRATE), "no row is left for the role train"),
        (30, Split(0.01, 0.25, given_calibrate=CALIBRATE), "leaves the role tune without a row"),
        (
            100,
            Split(10, 20, frozen=True),
            "leave 70 rows over, and frozen models need none for training",
        ),
    ],
)
def test_what_leaves_a_role_empty_is_refused(n, split, match) -> None:
    with pytest.raises(ValueError, match=match):
        deal_roles(rows_of(n), split, seed=0)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"duplicates": "drop", "given_calibrate": CALIBRATE},
            'duplicates="drop" is for roles made here',
        ),
    ],
)
def test_what_cannot_be_combined_is_refused(options, match) -> None:
    with pytest.raises(ValueError, match=match):
        Split(**options)


def test_as_few_rows_as_there_are_roles_are_enough() -> None:
    assert sizes(deal_roles(rows_of(2), Split(tune=0), seed=0)) == {
        "train": 1,
        "tune": 0,
        "calibrate": 1,
    }
    assert sizes(deal_roles(rows_of(1), Split(tune=0, frozen=True), seed=0)) == {
        "train": 0,
        "tune": 0,
        "calibrate": 1,
    }


@pytest.mark.parametrize("given", ["train", "tune", "calibrate"])
def test_clusters_of_one_role_only_are_refused(given) -> None:
    train, tune, calibrate = (
        rows_of(30, start, clusters=np.arange(30) if role == given else None)
        for role, start in (("train", 0), ("tune", 1000), ("calibrate", 2000))
    )
    with pytest.raises(ValueError, match="for all roles or for none"):
        deal_roles(train, Split(given_tune=tune, given_calibrate=calibrate), seed=0)
