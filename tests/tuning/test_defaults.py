"""The candidates of ``models=None``: one place for estimators and command line, chosen without
calibration rows.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge

import dco
from dco.foundations.notes import NoteWarning
from dco.rows.rows import Rows
from dco.tuning.defaults import Models, suiting_log, suiting_transforms
from dco.tuning.resampling import Folds, Holdout

SCANT = {"linear", "shallow", "forest"}  # of any numbers, where each is fitted once per fold
FEW = SCANT | {"quantiles"}
LOGS = {"linear-log", "boosting-log"}


def table(n=200, seed=0):
    """Numbers with gaps, categories with gaps, truth values; targets are positive, with relative
    errors.
    """
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "b": np.where(rng.uniform(size=n) < 0.2, np.nan, rng.normal(size=n)),
            "town": rng.choice(np.array(["x", "y", None], dtype=object), size=n),
            "kind": pd.Categorical(rng.choice(["p", "q"], size=n)),
            "flag": rng.uniform(size=n) < 0.5,
        }
    )
    return frame, np.exp(
        2 + frame["a"].to_numpy() + frame["flag"] + 0.3 * rng.normal(size=n)
    ).to_numpy()


def models_of(est):
    return {
        row.name.split(" / ")[0]
        for row in est.ranking_.table
        if not row.name.startswith("average of")
    }


def test_a_regressor_without_models_takes_any_frame_and_finds_the_scale_of_the_errors():
    X, y = table()
    est = dco.DecoupledRegressor(random_state=0).fit(X, y)
    assert models_of(est) == SCANT | {"linear-log"}
    assert "predicted by 3 folds" in est.certificate_.structure.selection
    assert est.ranking_.failed == ()
    plain = dco.DecoupledRegressor(
        ["linear", "boosting"], dco.scores.AbsoluteResidual(), random_state=0
    ).fit(X, y)
    assert est.ranking_.table[0].mean_size < 0.8 * plain.ranking_.table[0].mean_size
    assert np.isfinite(est.predict_set(X).sizes()).all()


def test_a_classifier_without_models_takes_frames_and_arrays():
    X, y = table(120)
    labels = np.where(y > np.median(y), "high", "low")
    for rows in (X, X[["a", "b"]].to_numpy(), X[["a", "town"]].to_numpy(dtype=object)):
        est = dco.DecoupledClassifier(random_state=0).fit(rows, labels)
        assert models_of(est) == {"linear", "forest", "boosting"}
        assert est.ranking_.failed == ()


def test_candidates_are_chosen_without_calibration_rows():
    """A negative target among calibration rows leaves the logarithms in; it scores +inf where they
    win.
    """
    X, y = table()
    given = X.iloc[:50], np.r_[-1.0, y[1:50]]
    est = dco.DecoupledRegressor(["linear", "linear-log"], random_state=0).fit(
        X.iloc[50:], y[50:], calibrate=given
    )
    assert "linear-log" in models_of(est)
    assert "Transformed" in est.best_candidate_
    assert np.isinf(est.predictor_.calibration.scored.scores).sum() == 1


@pytest.mark.parametrize(("target", "log"), [(0.0, "log1p"), (-1.0, None)])
def test_a_tuning_target_that_a_log_does_not_take_leaves_it_out(target, log):
    """The winner is fitted to tuning targets too: that fit must not fail for what training rows do
    not show.
    """
    X, y = table(400)
    settings = {"tune_size": 0.25, "calibrate_size": 0.25, "random_state": 0}
    first = dco.DecoupledRegressor(["linear"], **settings).fit(X, y).splits_.tune[0]
    y = np.where(np.arange(400) == first, target, y)
    est = dco.DecoupledRegressor(["linear", "spread"], **settings).fit(X, y)
    assert any(f"transform='{log}'" in row.name for row in est.ranking_.table) == (log is not None)
    assert not any("transform='log'" in row.name for row in est.ranking_.table)


def test_one_target_for_all_and_predictions_far_from_it():
    X, y = table(120)
    est = dco.DecoupledRegressor(["linear"], random_state=0).fit(X, np.full(120, -5.0))
    assert est.predict_set(X).sizes().max() < 1e-6
    # some lines pass below 0: e**700 sizes
    est = dco.DecoupledRegressor(["linear"], random_state=0).fit(X[["a"]], y**3)
    assert est.ranking_.failed == ()


def test_missing_values_of_any_kind_are_one():
    """pandas.NA in columns of pandas' own types, also where training rows had none: the same sets
    as of plain columns.
    """
    X, y = table(160)
    X["count"] = np.where(np.arange(160) % 7 == 0, np.nan, np.arange(160) % 5)
    X["late"] = np.where(np.arange(160) < 150, "u", None)
    own = X.convert_dtypes()
    own["flag"] = own["flag"].mask(np.arange(160) % 9 == 0)
    X["flag"] = X["flag"].astype(object).mask(np.arange(160) % 9 == 0)
    assert {str(dtype) for dtype in own.dtypes} >= {"Float64", "Int64", "boolean"}
    for estimator, target in (
        (dco.DecoupledRegressor, y),
        (dco.DecoupledClassifier, y > np.median(y)),
    ):
        plain, other = (
            estimator(random_state=0).fit(rows[:150], target[:150]) for rows in (X, own)
        )
        assert other.ranking_.failed == ()
        assert other.ranking_ == plain.ranking_
        with pytest.warns(NoteWarning, match="'late' in 10"):
            assert np.array_equal(other.predict_set(own).sizes(), plain.predict_set(X).sizes())


@pytest.mark.parametrize(
    ("n", "folds", "shift", "names", "log"),
    [
        (100, None, 0.0, FEW | LOGS, "log"),
        (100, None, -1e3, FEW | {"boosting"}, "quantile"),
        (399, 3, 0.0, SCANT | {"linear-log"}, "log"),
        (399, 3, -1e3, SCANT, "quantile"),
        (400, 3, 0.0, SCANT | LOGS, "log"),
        (1000, 3, 0.0, FEW | LOGS, "log"),
        (6000, None, 0.0, (FEW | LOGS | {"boosting"}) - {"forest"}, "log"),
    ],
)
def test_what_cannot_pay_is_left_out(n, folds, shift, names, log):
    X, y = table(n)
    rows = Rows(X, y + shift)
    resampling = Folds(rows, folds, seed=0) if folds else Holdout(rows, rows)
    models = Models({}, None, of_classes=False, alpha=0.1, seed=0)
    assert set(models.make(resampling, None)) == names
    assert suiting_transforms(resampling)[0] == log


def test_default_models_that_read_none_of_the_given_scores_are_left_out():
    X, y = table(200)
    est = dco.DecoupledRegressor(scores="normalised", random_state=0).fit(X, y)
    assert est.best_candidate_ == "spread / NormalisedResidual"


@pytest.mark.parametrize("scale", ["log", "log1p"])
def test_own_models_get_the_transformed_and_levelled_scores_of_default_ones(scale):
    X, y = table(300)
    y = y if scale == "log" else np.where(y < 3, 0.0, y)
    settings = {"tune_size": 0.4, "calibrate_size": 0.2, "random_state": 0}
    est = dco.DecoupledRegressor({"mine": Ridge()}, **settings).fit(X[["a"]], y)
    names = {row.name.removeprefix("mine / ") for row in est.ranking_.table}
    plain = {
        "AbsoluteResidual",
        f"Transformed(AbsoluteResidual, transform='{scale}')",
        "Transformed(AbsoluteResidual, transform='sqrt')",
    }
    assert names == plain | {f"Levelled({name})" for name in plain}


def test_without_tuning_rows_one_model_has_one_score():
    X, y = table(200)
    est = dco.DecoupledRegressor(Ridge(), tune_size=0, random_state=0).fit(X[["a"]], y)
    assert est.best_candidate_ == "ridge / AbsoluteResidual"


def test_names_that_are_not_offered_are_named():
    with pytest.raises(ValueError, match=r"'bosting'.*boosting"):
        dco.DecoupledRegressor(["bosting"]).fit(np.zeros((20, 1)), np.arange(20.0))


@pytest.mark.parametrize(
    ("n", "rows", "folds"),
    [
        (24, {"train": 15, "tune": 0, "calibrate": 9}, True),
        (39, {"train": 19, "tune": 10, "calibrate": 10}, False),
    ],
)
def test_few_rows_get_finite_sets_by_default(n, rows, folds):
    """mtcars has 32 rows, and 24 of them are often what is left to fit on: a quarter is too few for
    a threshold.
    """
    X, y = table(n)
    est = dco.DecoupledRegressor([Ridge(), DummyRegressor()], random_state=0).fit(X[["a"]], y)
    assert est.certificate_.provenance.rows == rows
    assert ("folds" in est.certificate_.structure.selection) == folds
    assert np.isfinite(est.predict_set(X[["a"]]).sizes()).all()


def test_sizes_that_are_given_stay_and_too_few_rows_are_noted():
    X, y = table(24)
    given = dco.DecoupledRegressor(Ridge(), tune_size=0.25, calibrate_size=10, random_state=0).fit(
        X[["a"]], y
    )
    assert given.certificate_.provenance.rows == {"train": 8, "tune": 6, "calibrate": 10}
    with pytest.warns(dco.InfeasibleLevelWarning, match="too few"):
        dco.DecoupledRegressor(Ridge(), random_state=0).fit(X[["a"]][:10], y[:10])


@pytest.mark.parametrize(
    ("y", "wanted"),
    [
        ([0.001, 1, 5], "log"),
        ([0.0009, 1, 5], "log1p"),
        ([0, 1, 5], "log1p"),
        ([-1e-9, 1, 5], None),
        ([3, 3, 3], "log"),
    ],
)
def test_the_log_is_one_that_suits_the_least_target(y, wanted):
    """Targets of a thousandth of the median, or 0, would lie far out on the scale of a plain
    log.
    """
    assert suiting_log(np.array(y, dtype=float)) == wanted
