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

# --- copies of rows -------------------------------------------------------------------------------


@pytest.fixture(params=["train", "tune"])
def near_copies(request):
    """Rows of three roles of which one has those of the calibration in single precision."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = rng.normal(size=400)
    roles = {
        "train": (X[:200], y[:200]),
        "tune": (X[:200], y[:200]),
        "calibrate": (X[200:], y[200:]),
        request.param: (X[200:].astype(np.float32), y[200:]),
    }
    return request.param, roles


def fit_copies(roles, **options):
    est = dco.DecoupledRegressor(KNeighborsRegressor(1), random_state=0, **options)
    return est.fit(*roles["train"], tune=roles["tune"], calibrate=roles["calibrate"])


def test_near_copies_of_calibration_rows_are_refused(near_copies) -> None:
    """A nearest neighbour knows each of these rows: coverage was 0 with a certificate that said
    90 %.
    """
    role, roles = near_copies
    with pytest.raises(dco.OverlappingRolesError, match=f"{role} and calibrate share 200 rows"):
        fit_copies(roles)


def test_near_copies_may_be_allowed(near_copies) -> None:
    """They are no copies to the last bit, which the certificate counts."""
    _, roles = near_copies
    provenance = fit_copies(roles, duplicates="allow").certificate_.provenance
    expected = {"train and calibrate": 0, "tune and calibrate": 0}
    assert provenance.repeats_shared == expected


# --- models whose training rows nobody knows ------------------------------------------------------


class OwnClone(KNeighborsRegressor):
    """A model that is its own clone and, once fitted, fits no more."""

    def __sklearn_clone__(self):
        return self

    def fit(self, X, y):
        return self if hasattr(self, "n_features_in_") else super().fit(X, y)


def alone(model):
    return model


def in_a_pipeline(model):
    return make_pipeline(StandardScaler(), model)


def beside_another(model):
    return {"usual": Ridge(), "its own clone": model}


@pytest.mark.parametrize("wrap", [alone, in_a_pipeline, beside_another])
def test_a_model_that_is_its_own_clone_has_training_rows_that_nobody_checked(wrap) -> None:
    """It was fitted on the calibration rows, too."""
    models = wrap(OwnClone(1).fit(X, y))
    certificate = dco.DecoupledRegressor(models, random_state=0).fit(X, y).certificate_
    assert certificate.training_rows.startswith("not checked")
    assert "cannot be checked here" in certificate.assumption


def test_training_rows_of_a_model_that_is_cloned_are_checked() -> None:
    est = dco.DecoupledRegressor(KNeighborsRegressor(1), random_state=0).fit(X, y)
    assert est.certificate_.training_rows == "checked"


# --- groups ---------------------------------------------------------------------------------------


@pytest.fixture
def by_fours():
    """400 rows of which each four belong together."""
    X, y = regression_rows(400)
    return X, y, np.arange(400) // 4


def test_a_statement_about_groups_counts_groups(by_fours) -> None:
    X, y, groups = by_fours
    certificate = ridge().fit(X, y, groups=groups).certificate_
    assert certificate.thresholds[0].n == 25
    assert "new group" in certificate.statement


def test_a_pac_rank_counts_groups(by_fours) -> None:
    X, y, groups = by_fours
    est = ridge(guarantee="pac", alpha=0.2).fit(X, y, groups=groups)
    assert est.certificate_.thresholds[0].n == 25
    assert est.certificate_.thresholds[0].rank == dco.pac_rank(25, alpha=0.2, delta=0.05)


def test_groups_and_conditions_exclude_each_other(by_fours) -> None:
    X, y, groups = by_fours
    with pytest.raises(ValueError, match="condition_on"):
        dco.DecoupledRegressor(Ridge(), condition_on=0).fit(X, y, groups=groups)


TEXTS_AND_NUMBERS = [f"g{code}" if code % 2 else code for code in range(100)]
NAMES = np.array(TEXTS_AND_NUMBERS, dtype=object)[np.arange(300) // 3]


@pytest.mark.parametrize("groups", [NAMES, NAMES.tolist()], ids=["array", "list"])
@pytest.mark.parametrize("options", [{}, {"tune_folds": 3}], ids=["tuning rows", "folds"])
def test_groups_may_be_of_several_kinds(options, groups) -> None:
    models = [Ridge(), Ridge(100.0)]
    est = dco.DecoupledRegressor(models, random_state=0, **options)
    certificate = est.fit(X, y, groups=groups).certificate_
    p_values = est.predict_p(X, y)

    by_codes = dco.DecoupledRegressor(models, random_state=0, **options)
    expected = by_codes.fit(X, y, groups=np.arange(300) // 3).certificate_

    fingerprint = certificate.structure.structure_fingerprint
    assert fingerprint == expected.structure.structure_fingerprint
    assert certificate.thresholds == expected.thresholds
    np.testing.assert_array_equal(p_values, by_codes.predict_p(X, y))


# --- groups of rows that the caller brings --------------------------------------------------------


def fit_roles_with_groups(*, train, tune, calibrate) -> dco.DecoupledRegressor:
    """150, 75 and 75 rows brought for each role, with these groups."""
    return ridge(alpha=0.3).fit(
        X[:150],
        y[:150],
        groups=train,
        tune=(X[150:225], y[150:225], {"groups": tune}),
        calibrate=(X[225:], y[225:], {"groups": calibrate}),
    )


FIRST_FIFTY = np.arange(150) // 3
TWENTY_FIVE = np.arange(75) // 3


def test_groups_that_the_caller_keeps_apart_are_counted() -> None:
    est = fit_roles_with_groups(
        train=FIRST_FIFTY, tune=100 + TWENTY_FIVE, calibrate=200 + TWENTY_FIVE
    )
    assert est.certificate_.thresholds[0].n == 25


def test_groups_that_the_caller_splits_across_roles_are_refused() -> None:
    groups = 200 + TWENTY_FIVE
    with pytest.raises(dco.OverlappingRolesError, match="calibrate and tune share 25 groups"):
        fit_roles_with_groups(train=FIRST_FIFTY, tune=groups, calibrate=groups)


@pytest.mark.parametrize(
    ("train", "calibrate", "n_shared"),
    [
        (FIRST_FIFTY, TWENTY_FIVE.astype(float), 25),
        (FIRST_FIFTY, [1, "a"] + [2.0, 3] * 36 + ["b"], 3),
        (["a", 1] * 75, TWENTY_FIVE, 1),
    ],
    ids=["1 and 1.0", "a list of several kinds", "a list of several kinds that trains"],
)
def test_a_group_is_the_same_group_however_it_is_stored(train, calibrate, n_shared) -> None:
    text = f"calibrate and train share {n_shared} group"
    with pytest.raises(dco.OverlappingRolesError, match=text):
        fit_roles_with_groups(train=train, tune=1000 + TWENTY_FIVE, calibrate=calibrate)


def test_a_number_and_its_text_are_two_groups() -> None:
    calibrate = TWENTY_FIVE.astype(str)
    est = fit_roles_with_groups(train=FIRST_FIFTY, tune=1000 + TWENTY_FIVE, calibrate=calibrate)
    assert est.certificate_.thresholds[0].n == 25


# --- rows that the caller brings ------------------------------------------------------------------


@pytest.mark.parametrize("role", ["tune", "calibrate"])
def test_fit_parameters_of_rows_are_a_dict(role) -> None:
    X, y = regression_rows(60)
    text = f"third entry of {role} must be a dict of fit parameters, got list"
    with pytest.raises(ValueError, match=text):
        dco.DecoupledRegressor(Ridge()).fit(X, y, **{role: (X + 1, y, [1.0])})


@pytest.mark.parametrize(
    ("train", "tune", "names"),
    [
        (
            pd.DataFrame(X, columns=list("abcd")),
            pl.DataFrame(X, schema=list("abcd")),
            "train rows are a DataFrame and tune rows a DataFrame",
        ),
        (X, csr_array(X), "train rows are a ndarray and tune rows a csr_array"),
    ],
    ids=["pandas and polars", "dense and sparse"],
)
def test_train_and_tune_rows_of_two_kinds_of_table_are_named(train, tune, names) -> None:
    with pytest.raises(ValueError, match=names):
        ridge().fit(train[:150], y[:150], tune=(tune[150:], y[150:]))


# --- how often rows are hashed --------------------------------------------------------------------


@pytest.fixture
def n_hashed(monkeypatch):
    """The numbers of rows of each call that hashes rows."""
    numbers = []

    def count(*arguments, **options):
        hashes = row_fingerprints(*arguments, **options)
        numbers.append(len(hashes))
        return hashes

    monkeypatch.setattr("dco.rows.roles.row_fingerprints", count)
    monkeypatch.setattr("dco.rows.seal.row_fingerprints", count)
    return numbers


def test_rows_are_hashed_once_and_calibration_rows_again_when_they_are_opened(n_hashed) -> None:
    X, y = regression_rows(400)
    est = ridge().fit(X, y)
    assert sum(n_hashed) == 400 + est.splits_.calibrate.size


def test_rows_that_may_be_copies_are_hashed_as_often(n_hashed) -> None:
    X, y = regression_rows(400)
    roles = {"tune": (X[200:300], y[200:300]), "calibrate": (X[300:], y[300:])}
    ridge(duplicates="allow").fit(X[:200], y[:200], **roles)
    assert sum(n_hashed) == 400 + 100
