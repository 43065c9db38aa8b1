"""Roles of rows: who gets which, whatever was brought, and what is refused."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

import dco
from dco.foundations.fingerprints import role_fingerprint, row_fingerprints
from dco.foundations.tables import take_features
from dco.rows.roles import Roles, Split, deal_roles
from dco.rows.rows import Rows, rows_of
from dco.rows.sizes import RoleSizes, default_sizes


def make_rows(n: int, start: int = 0, clusters: np.ndarray | None = None) -> Rows:
    X = np.arange(start, start + n, dtype=float)[:, None]
    return Rows(X, X[:, 0] % 2, clusters)


TUNE = make_rows(50, 1000)
CALIBRATE = make_rows(40, 2000)


def sizes_of(roles: Roles) -> tuple[int, int, int]:
    return len(roles.train), len(roles.tune), len(roles.sealed)


def open_all(roles: Roles) -> dict[str, Rows]:
    """Return the rows of each role, once: the seal is broken."""
    return {
        "train": roles.train,
        "tune": roles.tune,
        "calibrate": roles.sealed.open_for("a test"),
    }


# ------------------------------------------------------------------------------------ default sizes


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (40, RoleSizes(tune=0.25, calibrate=0.25)),
        (36, RoleSizes(calibrate=10, folds=5)),  # a quarter is 9
        (15, RoleSizes(calibrate=10, folds=5)),
        (14, RoleSizes(tune=0.25, calibrate=0.25)),  # four rows do not make five folds
    ],
)
def test_calibration_gets_what_a_finite_threshold_takes(n, expected):
    assert default_sizes(n, smallest_calibration=10) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"calibrate": 29}, RoleSizes(calibrate=29, folds=5)),
        ({"calibrate": 0.75}, RoleSizes(calibrate=0.75, folds=5)),
        ({"calibrate": 20}, RoleSizes(calibrate=20)),
        ({"calibrate": 29, "tune": 5}, RoleSizes(tune=5, calibrate=29)),
        ({"calibrate": 29, "may_fold": False}, RoleSizes(calibrate=29)),
    ],
    ids=["count", "share", "half", "tune given", "no folds"],
)
def test_no_fewer_rows_train_than_tune_unless_asked_for(options, expected):
    assert default_sizes(40, smallest_calibration=9, **options) == expected


def test_without_folds_a_quarter_of_what_calibration_leaves_tunes():
    sizes = default_sizes(40, smallest_calibration=29, may_fold=False)
    assert sizes == RoleSizes(tune=2, calibrate=29)


@pytest.mark.parametrize(
    ("n", "folds"), [(20, 5), (99, 5), (100, 3), (999, 3), (1000, None)], ids=str
)
def test_candidates_are_ranked_by_folds_below_so_many_rows(n, folds):
    assert default_sizes(n, smallest_calibration=2, fold_below=1000).folds == folds


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_fit_finds_finite_sets_wherever_a_plan_does(alpha, guarantee):
    """One rule: as many calibration rows as a finite threshold takes, if five rows are left."""
    smallest = {"marginal": dco.conformal_rank, "pac": dco.pac_rank}[guarantee]
    options = {} if guarantee == "marginal" else {"delta": 0.05}
    needed = next(n for n in range(1, 1000) if smallest(n, alpha=alpha, **options) <= n)

    for n in range(3, 2 * needed + 20):
        sizes = default_sizes(n, smallest_calibration=needed)
        dealt = sizes.calibrate if isinstance(sizes.calibrate, int) else (n + 2) // 4
        try:
            dco.plan(n, alpha=alpha, guarantee=guarantee, delta=0.05)
        except dco.InfeasibleLevelError:
            assert dealt < needed
        else:
            assert dealt >= needed


# --------------------------------------------------------------------------------------- dealt here


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (RoleSizes(), (50, 25, 25)),
        (RoleSizes(10, 0.5), (40, 10, 50)),
        (RoleSizes(folds=5), (75, 0, 25)),
        (RoleSizes(tune=0), (75, 0, 25)),  # one candidate, which needs no tuning rows
    ],
)
def test_every_row_is_dealt_once_in_the_sizes_asked_for(sizes, expected):
    roles = deal_roles(make_rows(100), Split(sizes), seed=1)
    assert sizes_of(roles) == tuple(roles.splits.sizes.values())[:3] == expected
    assert roles.n_dealt == 100
    dealt = np.concatenate([rows.X[:, 0] for rows in open_all(roles).values()])
    assert np.sort(dealt).tolist() == list(range(100))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (RoleSizes(0.2, 0.3), (0, 40, 60)),  # the same proportion of all rows
        (RoleSizes(10, 90), (0, 10, 90)),
        (RoleSizes(10, 0.5), (0, 10, 90)),
        (RoleSizes(0.5, 30), (0, 70, 30)),
        (RoleSizes(tune=0), (0, 0, 100)),
        (RoleSizes(folds=5), (75, 0, 25)),
    ],
)
def test_frozen_models_leave_all_rows_to_tune_and_calibrate(sizes, expected):
    roles = deal_roles(make_rows(100), Split(sizes, trains_models=False), seed=1)
    assert sizes_of(roles) == expected


def test_the_same_seed_deals_the_same_roles():
    first, again = (deal_roles(make_rows(100), Split(), seed=1) for _ in range(2))
    np.testing.assert_array_equal(again.splits.calibrate, first.splits.calibrate)


def test_each_role_has_the_fingerprint_of_its_rows():
    roles = deal_roles(make_rows(100), Split(), seed=1)
    fingerprints = {
        role: role_fingerprint(row_fingerprints(rows.X, rows.y))
        for role, rows in open_all(roles).items()
    }
    assert roles.facts.fingerprints == fingerprints


def test_training_and_tuning_rows_are_slices_of_one_copy():
    rows = make_rows(100)
    roles = deal_roles(rows, Split(), seed=1)
    fitting = roles.fitting_rows()
    for part in (roles.train, roles.tune):
        assert np.shares_memory(part.X, fitting.X)
        assert not np.shares_memory(part.X, rows.X)
    assert np.array_equal(fitting.X, np.concatenate([roles.train.X, roles.tune.X]))


def test_fit_parameters_are_cut_by_row_or_passed_on():
    """A parameter with one entry per row is cut; one that is as long as both roles by chance is
    passed on.
    """
    whole = make_rows(100)
    params = {"weight": np.arange(100.0), "levels": list(range(75)), "name": "as it is"}
    roles = deal_roles(rows_of(whole.X, whole.y, params=params), Split(), seed=1)
    for part in (roles.train, roles.tune, roles.fitting_rows()):
        np.testing.assert_array_equal(part.params["weight"], part.X[:, 0])
        assert part.params["levels"] == list(range(75))
        assert part.params["name"] == "as it is"


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("part", [slice(10), slice(10, None), slice(10, 20), slice(0, 0)], ids=str)
def test_slices_of_a_sparse_table_are_its_rows(kind, part):
    whole = sparse.random_array((30, 5), density=0.3, format="csr", rng=np.random.default_rng(0))
    whole.sum_duplicates()
    rows = take_features(kind(whole), part)
    assert isinstance(rows, kind)
    np.testing.assert_array_equal(rows.toarray(), whole.toarray()[part])


def test_a_long_slice_of_a_sparse_table_shares_its_memory():
    table = sparse.random_array((30, 5), density=0.3, format="csr", rng=np.random.default_rng(0))
    table.sum_duplicates()
    assert np.shares_memory(take_features(table, slice(25)).data, table.data)  # SciPy copies few


# ------------------------------------------------------------------------------- brought by callers


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        (Split(tune=TUNE, calibrate=CALIBRATE), (100, 50, 40)),
        (Split(tune=TUNE), (75, 50, 25)),
        (Split(calibrate=CALIBRATE), (75, 25, 40)),
        (Split(RoleSizes(folds=3), calibrate=CALIBRATE), (100, 0, 40)),
        (Split(calibrate=CALIBRATE, trains_models=False), (0, 100, 40)),
        (Split(tune=TUNE, trains_models=False), (0, 50, 100)),
        (Split(tune=TUNE, calibrate=CALIBRATE, trains_models=False), (100, 50, 40)),
    ],
    ids=[
        "both",
        "tune",
        "calibrate",
        "calibrate, folds",
        "calibrate, frozen",
        "tune, frozen",
        "both, frozen",
    ],
)
def test_roles_that_are_brought_are_kept_and_the_rest_is_dealt(split, expected):
    """Advice on sizes goes by the rows that are dealt: rows that were brought cannot calibrate."""
    roles = deal_roles(make_rows(100), split, seed=1)
    assert sizes_of(roles) == expected
    assert roles.n_dealt == (None if split.calibrate else 100)
    assert split.tune is None or roles.tune is split.tune
    assert split.calibrate is None or open_all(roles)["calibrate"].X is CALIBRATE.X


def test_the_winner_is_fitted_on_training_and_brought_tuning_rows():
    roles = deal_roles(make_rows(100), Split(tune=TUNE), seed=1)
    expected = np.concatenate([roles.train.X, TUNE.X])
    np.testing.assert_array_equal(roles.fitting_rows().X, expected)


@pytest.mark.parametrize("given", ["train", "tune", "calibrate"])
def test_clusters_of_one_role_only_are_refused(given):
    starts = {"train": 0, "tune": 1000, "calibrate": 2000}
    rows = {
        role: make_rows(30, start, clusters=np.arange(30) if role == given else None)
        for role, start in starts.items()
    }
    with pytest.raises(ValueError, match="for all roles or for none"):
        deal_roles(rows["train"], Split(tune=rows["tune"], calibrate=rows["calibrate"]), seed=0)


def test_a_calibration_cluster_in_another_role_is_refused():
    calibrate = make_rows(30, 2000, clusters=np.arange(30))
    train = make_rows(30, clusters=np.arange(29, 59))
    with pytest.raises(dco.OverlappingRolesError, match=r"share 1 group \(first: 29\)"):
        deal_roles(train, Split(calibrate=calibrate), seed=0)


# ------------------------------------------------------------------------------------------ repeats


def test_repeats_are_counted_where_roles_are_dealt():
    twice = Rows(np.tile(make_rows(60).X, (2, 1)), np.tile(make_rows(60).y, 2))
    repeats = deal_roles(twice, Split(), seed=0).facts.repeats_shared
    assert set(repeats) == {"train and calibrate", "tune and calibrate"}
    assert repeats["train and calibrate"] > 0


def test_repeats_can_be_dropped():
    twice = Rows(np.tile(make_rows(60).X, (2, 1)), np.tile(make_rows(60).y, 2))
    roles = deal_roles(twice, Split(duplicates="drop"), seed=0)
    assert sum(sizes_of(roles)) == 60
    assert set(roles.facts.repeats_shared.values()) == {0}
    assert roles.facts.are_distinct


def test_rows_with_other_targets_are_no_repeats():
    rows = Rows(np.zeros((40, 1)), np.arange(40) // 2.0)
    parts = open_all(deal_roles(rows, Split(duplicates="drop"), seed=0)).values()
    assert sorted(np.concatenate([part.y for part in parts])) == list(range(20))


@pytest.mark.parametrize("duplicates", ["natural", "drop"])
def test_splits_name_the_rows_of_the_table_that_was_given(duplicates):
    twice = Rows(np.repeat(make_rows(60).X, 2, axis=0), np.repeat(make_rows(60).y, 2))
    roles = deal_roles(twice, Split(duplicates=duplicates), seed=0)
    for role, rows in open_all(roles).items():
        np.testing.assert_array_equal(twice.X[roles.splits[role]], rows.X)
        np.testing.assert_array_equal(twice.y[roles.splits[role]], rows.y)


LEAKED = {
    "the same": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "float32 in doubles": lambda X: X.astype(np.float32).astype(float),
    "sparse": sparse.csr_matrix,
    "pandas": lambda X: pd.DataFrame(X.astype(np.float32)),
    "polars": lambda X: pl.DataFrame(X.astype(np.float32)),
    "objects": lambda X: X.astype(object),
}


@pytest.mark.parametrize("role", ["train", "tune"])
@pytest.mark.parametrize("how", LEAKED)
def test_calibration_rows_in_another_role_are_refused(how, role):
    """Equal rows at single precision are copies where the caller cut the roles."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = rng.normal(size=40)
    leaked = Rows(LEAKED[how](X[:25]), y[:25])
    clean = Rows(X[25:35] + 1, y[25:35])
    calibrate = Rows(X[20:], y[20:])
    train, tune = (leaked, clean) if role == "train" else (clean, leaked)
    with pytest.raises(dco.OverlappingRolesError, match=rf"{role} and calibrate share 5 rows"):
        deal_roles(train, Split(tune=tune, calibrate=calibrate), seed=0)


def test_repeats_between_brought_roles_can_be_declared_natural():
    rows = make_rows(100)
    split = Split(calibrate=rows.take(np.arange(90, 100)), duplicates="allow")
    facts = deal_roles(rows, split, seed=0).facts
    assert sum(facts.repeats_shared.values()) == 10


@pytest.mark.parametrize("seed", range(20))
def test_independent_rows_are_no_copies(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 2)) + 10.0 ** rng.integers(0, 6)
    y = rng.normal(size=300)
    deal_roles(Rows(X[:200], y[:200]), Split(calibrate=Rows(X[200:], y[200:])), seed=0)


def test_rows_that_differ_in_their_target_only_are_no_copies():
    X = np.zeros((40, 1))
    y = np.arange(40.0)
    deal_roles(Rows(X[:30], y[:30]), Split(calibrate=Rows(X[30:], y[30:])), seed=0)


# ----------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("n", "split", "match"),
    [
        (2, Split(), "n_samples=2 is too few to train, tune and calibrate: give at least 3 rows"),
        (
            1,
            Split(RoleSizes(tune=0)),
            "n_samples=1 is too few to train and calibrate: give at least 2 rows",
        ),
        (
            2,
            Split(RoleSizes(tune=0, folds=2)),
            "n_samples=2 is too few to train, tune and calibrate: give at least 3 rows",
        ),
        (
            1,
            Split(trains_models=False),
            "n_samples=1 is too few to tune and calibrate: give at least 2 rows",
        ),
        (
            10,
            Split(RoleSizes(0.5, 0.5)),
            "no row is left for the role train, with tune_size=0.5 and "
            "calibrate_size=0.5: lower a size",
        ),
        (
            10,
            Split(RoleSizes(0, 1.0)),
            "no row is left for the role train, with tune_size=0 and "
            "calibrate_size=1.0: lower a size",
        ),
        (
            10,
            Split(RoleSizes(0.25, 0)),
            "no row is left for the role calibrate: calibrate_size=0. Raise it",
        ),
        (10, Split(RoleSizes(0.01, 0.25)), "leaves the role tune without a row"),
        (30, Split(RoleSizes(0.25, 0), tune=TUNE), "no row is left for the role calibrate"),
        (30, Split(RoleSizes(1.0, 0.25), calibrate=CALIBRATE), "no row is left for the role train"),
        (30, Split(RoleSizes(0.01), calibrate=CALIBRATE), "leaves the role tune without a row"),
        (12, Split(RoleSizes(calibrate=9, folds=5)), "3 rows to train and tune on cannot make 5"),
        (
            100,
            Split(RoleSizes(10, 20), trains_models=False),
            "leave 70 rows over, and frozen models need none for training",
        ),
    ],
)
def test_what_leaves_a_role_empty_is_refused(n, split, match):
    with pytest.raises(ValueError, match=match):
        deal_roles(make_rows(n), split, seed=0)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"duplicates": "drop", "calibrate": CALIBRATE},
            'duplicates="drop" is for roles made here',
        ),
        ({"sizes": RoleSizes(folds=5), "tune": TUNE}, "leave tune= out"),
        ({"duplicates": "maybe"}, "duplicates must be"),
    ],
)
def test_what_cannot_be_combined_is_refused(options: dict[str, Any], match):
    with pytest.raises(ValueError, match=match):
        Split(**options)


@pytest.mark.parametrize(
    ("n", "split", "expected"),
    [
        (2, Split(RoleSizes(tune=0)), (1, 0, 1)),
        (1, Split(RoleSizes(tune=0), trains_models=False), (0, 0, 1)),
    ],
    ids=["train and calibrate", "calibrate"],
)
def test_as_few_rows_as_there_are_roles_are_enough(n, split, expected):
    assert sizes_of(deal_roles(make_rows(n), split, seed=0)) == expected
