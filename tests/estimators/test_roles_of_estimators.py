"""Rows in their roles: copies, clusters, and rows that the caller brings."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from estimator_examples import X, regression_rows, ridge, y
from scipy.sparse import csr_array
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dco
from dco.foundations.fingerprints import row_fingerprints


class Itself(KNeighborsRegressor):
    """A model that is its own clone and, once fitted, fits no more."""

    def __sklearn_clone__(self):
        return self

    def fit(self, X, y):
        return self if hasattr(self, "n_features_in_") else super().fit(X, y)


def fit_roles_with_groups(train, tune, calibrate) -> dco.DecoupledRegressor:
    """150, 75 and 75 rows brought for each role, with these groups."""
    roles = {
        role: (X[rows], y[rows], {} if groups is None else {"groups": groups})
        for role, rows, groups in (
            ("tune", slice(150, 225), tune),
            ("calibrate", slice(225, None), calibrate),
        )
    }
    return ridge(alpha=0.3).fit(X[:150], y[:150], groups=train, **roles)


@pytest.mark.parametrize("role", ["train", "tune"])
def test_near_copies_of_calibration_rows_are_refused(role) -> None:
    """A nearest neighbour knows each of these rows: coverage was 0 with a certificate that said 90
    %.
    """
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), rng.normal(size=400)
    near, other = (X[200:].astype(np.float32), y[200:]), (X[:200], y[:200])
    train, tune = (near, other) if role == "train" else (other, near)
    est = dco.DecoupledRegressor(KNeighborsRegressor(1), random_state=0)
    with pytest.raises(
        dco.OverlappingRolesError,
        match=f"{role} and calibrate share 200 rows",
    ):
        est.fit(*train, tune=tune, calibrate=(X[200:], y[200:]))
    assert not hasattr(est, "predictor_")
    est.set_params(duplicates="allow").fit(*train, tune=tune, calibrate=(X[200:], y[200:]))
    assert est.certificate_.provenance.repeats_shared == {
        "train and calibrate": 0,
        "tune and calibrate": 0,
    }


def test_a_model_that_is_its_own_clone_has_training_rows_that_nobody_checked() -> None:
    model = Itself(1).fit(X, y)  # on the calibration rows, too
    for own in (model, make_pipeline(StandardScaler(), model), {"usual": Ridge(), "itself": model}):
        est = dco.DecoupledRegressor(own, random_state=0).fit(X, y)
        assert est.certificate_.training_rows.startswith("not checked")
        assert "cannot be checked here" in est.certificate_.assumption
    assert (
        dco.DecoupledRegressor(KNeighborsRegressor(1), random_state=0)
        .fit(X, y)
        .certificate_.training_rows
        == "checked"
    )


def test_a_statement_about_groups_counts_groups() -> None:
    X, y = regression_rows(400)
    groups = np.arange(400) // 4
    est = ridge().fit(X, y, groups=groups)
    assert est.certificate_.thresholds[0].n == 25
    assert "new group" in est.certificate_.statement
    pac = ridge(guarantee="pac", alpha=0.2).fit(X, y, groups=groups)
    assert pac.certificate_.thresholds[0].n == 25
    assert pac.certificate_.thresholds[0].rank == dco.pac_rank(25, alpha=0.2, delta=0.05)
    with pytest.raises(ValueError, match="condition_on"):
        dco.DecoupledRegressor(Ridge(), condition_on=0).fit(X, y, groups=groups)


@pytest.mark.parametrize("role", ["tune", "calibrate"])
def test_fit_parameters_of_own_rows_are_a_dict(role) -> None:
    X, y = regression_rows(60)
    with pytest.raises(
        ValueError, match=f"third entry of {role} must be a dict of fit parameters, got list"
    ):
        dco.DecoupledRegressor(Ridge()).fit(X, y, **{role: (X + 1, y, [1.0])})


def test_groups_that_the_caller_split_across_roles_are_refused() -> None:
    train, tune, calibrate = np.arange(150) // 3, 100 + np.arange(75) // 3, 200 + np.arange(75) // 3
    assert fit_roles_with_groups(train, tune, calibrate).certificate_.thresholds[0].n == 25
    with pytest.raises(dco.OverlappingRolesError, match="calibrate and tune share 25 groups"):
        fit_roles_with_groups(train, calibrate, calibrate)


@pytest.mark.parametrize("options", [{}, {"tune_folds": 3}], ids=str)
def test_row_groups_may_be_of_several_kinds(options) -> None:
    codes = np.arange(300) // 3
    names = np.array([f"g{code}" if code % 2 else code for code in range(100)], dtype=object)
    fits = [
        dco.DecoupledRegressor([Ridge(), Ridge(100.0)], random_state=0, **options).fit(
            X, y, groups=groups
        )
        for groups in (codes, names[codes], names[codes].tolist())
    ]
    assert len({fit.certificate_.structure.structure_fingerprint for fit in fits}) == 1
    for fit in fits:
        assert fit.certificate_.thresholds == fits[0].certificate_.thresholds
        np.testing.assert_array_equal(fit.predict_p(X, y), fits[0].predict_p(X, y))


@pytest.mark.parametrize(
    ("train", "calibrate", "shared"),
    [
        (np.arange(150) // 3, np.arange(75) // 3.0, 25),  # 1 and 1.0 are one label
        (np.arange(150) // 3, [1, "a"] + [2.0, 3] * 36 + ["b"], 3),
        (["a", 1] * 75, np.arange(75) // 3, 1),  # a list of several kinds keeps them
        (np.arange(150) // 3, (np.arange(75) // 3).astype(str), 0),  # 1 and "1" are two
    ],
)
def test_a_group_is_the_same_group_however_it_is_stored(train, calibrate, shared) -> None:
    tune = 1000 + np.arange(75) // 3
    if shared:
        with pytest.raises(
            dco.OverlappingRolesError, match=f"calibrate and train share {shared} group"
        ):
            fit_roles_with_groups(train, tune, calibrate)
    else:
        assert fit_roles_with_groups(train, tune, calibrate).certificate_.thresholds[0].n == len(
            set(calibrate)
        )


def test_rows_are_hashed_once_and_calibration_rows_again_when_they_are_opened(monkeypatch) -> None:
    X, y = regression_rows(400)
    original, hashed = row_fingerprints, []

    def counting(*args, **kwargs):
        hashes = original(*args, **kwargs)
        hashed.append(len(hashes))
        return hashes

    monkeypatch.setattr("dco.rows.roles.row_fingerprints", counting)
    monkeypatch.setattr("dco.rows.seal.row_fingerprints", counting)
    est = ridge().fit(X, y)
    assert sum(hashed) == 400 + est.splits_.calibrate.size
    hashed.clear()
    dco.DecoupledRegressor(Ridge(), duplicates="allow").fit(
        X[:200], y[:200], tune=(X[200:300], y[200:300]), calibrate=(X[300:], y[300:])
    )
    assert sum(hashed) == 400 + 100


def test_train_and_tune_rows_of_two_kinds_of_table_are_named() -> None:
    est, frame = ridge(), pd.DataFrame(X, columns=list("abcd"))
    for train, tune in ((frame, pl.DataFrame(X, schema=list("abcd"))), (X, csr_array(X))):
        with pytest.raises(
            ValueError,
            match=rf"train rows are a {type(train).__name__} and tune rows a "
            rf"{type(tune).__name__}",
        ):
            est.fit(train[:150], y[:150], tune=(tune[150:], y[150:]))
