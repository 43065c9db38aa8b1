"""The candidates of ``models=None``: one place for estimators and command line, chosen without
calibration rows.
"""

import re

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

# Of any numbers, where each is fitted once per fold.
SCANT = {"linear", "shallow", "forest", "smooth"}
FEW = SCANT | {"quantiles"}
LOGS = {"linear-log", "boosting-log"}


def draw_table(n=200):
    """Draw numbers with gaps, categories with gaps and truth values; targets are positive, with
    relative errors.
    """
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "b": np.where(rng.uniform(size=n) < 0.2, np.nan, rng.normal(size=n)),
            "town": rng.choice(np.array(["x", "y", None], dtype=object), size=n),
            "kind": pd.Categorical(rng.choice(["p", "q"], size=n)),
            "flag": rng.uniform(size=n) < 0.5,
        }
    )
    log_y = 2 + frame["a"] + frame["flag"] + 0.3 * rng.normal(size=n)
    return frame, np.exp(log_y.to_numpy())


def models_of(est):
    """Return the names of the models in the ranking that are not made of others."""
    names = {row.name.split(" / ")[0] for row in est.ranking_.table}
    return {
        name
        for name in names
        if name != "stack" and not name.startswith("average of") and not name.endswith("spread")
    }


@pytest.fixture(scope="module")
def default_regressor():
    return dco.DecoupledRegressor(random_state=0).fit(*draw_table())


def test_a_regressor_without_models_takes_any_frame(default_regressor):
    X, _ = draw_table()

    assert models_of(default_regressor) == SCANT | {"linear-log"}
    assert "predicted by 3 folds" in default_regressor.certificate_.structure.selection
    assert default_regressor.ranking_.failed == ()
    assert np.isfinite(default_regressor.predict_set(X).sizes()).all()


def test_a_regressor_without_models_finds_the_scale_of_the_errors(default_regressor):
    plain = dco.DecoupledRegressor(
        ["linear", "boosting"], dco.scores.AbsoluteResidual(), random_state=0
    ).fit(*draw_table())

    size = default_regressor.ranking_.table[0].mean_size
    assert size < 0.8 * plain.ranking_.table[0].mean_size


@pytest.mark.parametrize(
    "select",
    [
        lambda X: X,
        lambda X: X[["a", "b"]].to_numpy(),
        lambda X: X[["a", "town"]].to_numpy(dtype=object),
    ],
    ids=["frame", "numbers", "objects"],
)
def test_a_classifier_without_models_takes_frames_and_arrays(select):
    X, y = draw_table(120)
    labels = np.where(y > np.median(y), "high", "low")

    est = dco.DecoupledClassifier(random_state=0).fit(select(X), labels)

    assert models_of(est) == {"linear", "forest", "boosting"}
    assert est.ranking_.failed == ()


def test_candidates_are_chosen_without_calibration_rows():
    """A negative target among calibration rows leaves the logarithms in; it scores +inf where they
    win.
    """
    X, y = draw_table()
    calibrate = X.iloc[:50], np.r_[-1.0, y[1:50]]
    est = dco.DecoupledRegressor(["linear", "linear-log"], random_state=0)

    est.fit(X.iloc[50:], y[50:], calibrate=calibrate)

    assert "linear-log" in models_of(est)
    assert "Transformed" in est.best_candidate_
    assert np.isinf(est.predictor_.calibration.scored.scores).sum() == 1


@pytest.mark.parametrize(
    ("target", "transforms"),
    [(0.0, {"log1p", "sqrt"}), (-1.0, {"quantile"})],
    ids=["zero", "negative"],
)
def test_a_tuning_target_that_a_log_does_not_take_leaves_it_out(target, transforms):
    """The winner is fitted to tuning targets too: that fit must not fail for what training rows do
    not show.
    """
    X, y = draw_table(400)
    settings = {"tune_size": 0.25, "calibrate_size": 0.25, "random_state": 0}
    splits = dco.DecoupledRegressor(["linear"], **settings).fit(X, y).splits_
    y[splits.tune[0]] = target

    est = dco.DecoupledRegressor(["linear", "spread"], **settings).fit(X, y)

    names = " ".join(row.name for row in est.ranking_.table)
    assert set(re.findall(r"transform='(\w+)'", names)) == transforms


def test_one_target_for_all_rows_has_narrow_sets():
    X, _ = draw_table(120)
    est = dco.DecoupledRegressor(["linear"], random_state=0).fit(X, np.full(120, -5.0))

    assert est.predict_set(X).sizes().max() < 1e-6


def test_predictions_far_from_all_targets_fail_no_candidate():
    """Some lines pass below 0: e**700 sizes."""
    X, y = draw_table(120)
    est = dco.DecoupledRegressor(["linear"], random_state=0).fit(X[["a"]], y**3)

    assert est.ranking_.failed == ()


@pytest.mark.parametrize("estimator", [dco.DecoupledRegressor, dco.DecoupledClassifier])
def test_missing_values_of_any_kind_are_one(estimator):
    """pandas.NA in columns of pandas' own types, also where training rows had none: the same sets
    as of plain columns.
    """
    X, y = draw_table(160)
    if estimator is dco.DecoupledClassifier:
        y = y > np.median(y)
    numbers = np.arange(160)
    is_missing = numbers % 9 == 0
    X["count"] = np.where(numbers % 7 == 0, np.nan, numbers % 5)
    X["late"] = np.where(numbers < 150, "u", None)
    of_pandas = X.convert_dtypes()
    of_pandas["flag"] = of_pandas["flag"].mask(is_missing)
    X["flag"] = X["flag"].astype(object).mask(is_missing)
    assert {str(dtype) for dtype in of_pandas.dtypes} >= {"Float64", "Int64", "boolean"}

    plain = estimator(random_state=0).fit(X[:150], y[:150])
    other = estimator(random_state=0).fit(of_pandas[:150], y[:150])

    assert other.ranking_.failed == ()
    assert other.ranking_ == plain.ranking_
    with pytest.warns(NoteWarning, match="'late' in 10"):
        sizes = plain.predict_set(X).sizes()
    with pytest.warns(NoteWarning, match="'late' in 10"):
        assert np.array_equal(other.predict_set(of_pandas).sizes(), sizes)


@pytest.mark.parametrize(
    ("n", "folds", "shift", "names", "log"),
    [
        (100, None, 0.0, FEW | LOGS, "log"),
        (100, None, -1e3, FEW | {"boosting"}, "quantile"),
        (399, 3, 0.0, SCANT | {"linear-log"}, "log"),
        (399, 3, -1e3, SCANT, "quantile"),
        (400, 3, 0.0, SCANT | LOGS, "log"),
        (1000, 3, 0.0, FEW | LOGS, "log"),
        (6000, None, 0.0, (FEW | LOGS | {"boosting", "networks"}) - {"forest"}, "log"),
    ],
)
def test_what_cannot_pay_is_left_out(n, folds, shift, names, log):
    X, y = draw_table(n)
    rows = Rows(X, y + shift)
    resampling = Folds(rows, folds, seed=0) if folds else Holdout(rows, rows)
    models = Models({}, None, of_classes=False, alpha=0.1, seed=0)

    assert set(models.make(resampling, None)) == names
    assert suiting_transforms(resampling)[0] == log


@pytest.mark.parametrize(
    ("effort", "smooth"),
    [("quick", set()), ("usual", {"smooth", "networks"}), ("thorough", {"smooth", "networks"})],
)
def test_effort_says_which_smooth_models_are_tried(effort, smooth):
    X, y = draw_table(1300)
    rows = Rows(X, y)
    models = Models({}, None, of_classes=False, alpha=0.1, seed=0, effort=effort)

    names = set(models.make(Holdout(rows, rows), None))

    assert names & {"smooth", "networks"} == smooth


def test_an_effort_that_is_unknown_is_refused():
    with pytest.raises(ValueError, match='effort must be one of "quick", "usual", "thorough"'):
        dco.DecoupledRegressor(effort="much").fit(np.zeros((20, 1)), np.arange(20.0))


def test_an_effort_without_default_models_is_refused():
    with pytest.raises(ValueError, match="only your own"):
        dco.DecoupledRegressor(Ridge(), effort="quick").fit(np.zeros((20, 1)), np.arange(20.0))


def test_default_models_that_read_none_of_the_given_scores_are_left_out():
    X, y = draw_table(200)
    est = dco.DecoupledRegressor(scores="normalised", random_state=0).fit(X, y)
    assert est.best_candidate_ == "spread / NormalisedResidual"


@pytest.mark.parametrize(
    ("scale", "smallest"), [("log", 0.0), ("log1p", 3.0)], ids=["log", "log1p"]
)
def test_own_models_get_the_transformed_and_levelled_scores_of_default_ones(scale, smallest):
    """Targets below the smallest one are 0."""
    X, y = draw_table(300)
    y = np.where(y < smallest, 0.0, y)
    settings = {"tune_size": 0.4, "calibrate_size": 0.2, "random_state": 0}

    est = dco.DecoupledRegressor({"mine": Ridge()}, **settings).fit(X[["a"]], y)

    plain = {
        "AbsoluteResidual",
        f"Transformed(AbsoluteResidual, transform='{scale}')",
        "Transformed(AbsoluteResidual, transform='sqrt')",
    }
    levelled = {f"Levelled({name})" for name in plain}
    names = {row.name for row in est.ranking_.table if row.name.startswith("mine / ")}
    assert names == {f"mine / {name}" for name in plain | levelled}


def test_without_tuning_rows_one_model_has_one_score():
    X, y = draw_table(200)
    est = dco.DecoupledRegressor(Ridge(), tune_size=0, random_state=0).fit(X[["a"]], y)
    assert est.best_candidate_ == "ridge / AbsoluteResidual"


def test_names_that_are_not_offered_are_named():
    with pytest.raises(ValueError, match=r"'bosting'.*boosting"):
        dco.DecoupledRegressor(["bosting"]).fit(np.zeros((20, 1)), np.arange(20.0))


@pytest.mark.parametrize(
    ("n", "rows", "by_folds"),
    [
        (24, {"train": 15, "tune": 0, "calibrate": 9}, True),
        (39, {"train": 19, "tune": 10, "calibrate": 10}, False),
    ],
    ids=["24 rows", "39 rows"],
)
def test_few_rows_get_finite_sets_by_default(n, rows, by_folds):
    """mtcars has 32 rows, and 24 of them are often what is left to fit on: a quarter is too few for
    a threshold.
    """
    X, y = draw_table(n)

    est = dco.DecoupledRegressor([Ridge(), DummyRegressor()], random_state=0).fit(X[["a"]], y)

    assert est.certificate_.provenance.rows == rows
    assert ("folds" in est.certificate_.structure.selection) == by_folds
    assert np.isfinite(est.predict_set(X[["a"]]).sizes()).all()


def test_sizes_that_the_caller_chose_stay():
    X, y = draw_table(24)
    est = dco.DecoupledRegressor(Ridge(), tune_size=0.25, calibrate_size=10, random_state=0)

    est.fit(X[["a"]], y)

    assert est.certificate_.provenance.rows == {"train": 8, "tune": 6, "calibrate": 10}


def test_too_few_rows_for_a_finite_set_are_noted():
    X, y = draw_table(10)

    with pytest.warns(dco.InfeasibleLevelWarning, match="too few"):
        dco.DecoupledRegressor(Ridge(), random_state=0).fit(X[["a"]], y)


@pytest.mark.parametrize(
    ("y", "log"),
    [
        ([0.001, 1, 5], "log"),
        ([0.0009, 1, 5], "log1p"),
        ([0, 1, 5], "log1p"),
        ([-1e-9, 1, 5], None),
        ([3, 3, 3], "log"),
    ],
    ids=str,
)
def test_the_log_is_one_that_suits_the_smallest_target(y, log):
    """Targets of less than a thousandth of the median, or 0, would lie far out on the scale of a
    plain log.
    """
    assert suiting_log(np.array(y, dtype=float)) == log
