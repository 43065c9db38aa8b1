"""What somebody who tries the estimators for the first time runs into: habits of other libraries,
slips, messages.
"""

import inspect
import typing

import dask.dataframe as dask_frames
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import BayesianRidge, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import dco
from dco.foundations.errors import IncompatibleScoreError
from dco.scores import LAC

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3))
LABELS = np.where(X[:, 0] + RNG.normal(size=600) > 0, "yes", "no")
NUMBERS = X[:, 0] + RNG.normal(size=600)
FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(side=np.where(X[:, 1] > 0, 1, 0))


@pytest.fixture(scope="module")
def classifier() -> dco.DecoupledClassifier:
    return dco.DecoupledClassifier(LogisticRegression(), LAC(), random_state=0).fit(
        X[:400], LABELS[:400]
    )


@pytest.fixture(scope="module")
def framed() -> dco.DecoupledClassifier:
    return dco.DecoupledClassifier(LogisticRegression(), LAC(), random_state=0).fit(
        FRAME[:400], LABELS[:400]
    )


@pytest.mark.parametrize(
    "as_given", [np.asarray, pd.DataFrame, np.ndarray.tolist], ids=["array", "frame", "list"]
)
def test_several_targets_are_told_to_take_an_estimator_each(as_given):
    two = as_given(np.column_stack([X[:, 0], X[:, 1]]) > 0)
    for est in (dco.DecoupledRegressor(Ridge()), dco.DecoupledClassifier(LogisticRegression())):
        with pytest.raises(
            ValueError,
            match="y has 2 columns, and an estimator has one target: fit one estimator for each",
        ):
            est.fit(X, two)


@pytest.mark.parametrize("as_given", [np.asarray, pd.Series, list], ids=["array", "series", "list"])
def test_a_regressor_names_the_classifier_to_text(as_given):
    with pytest.raises(
        ValueError,
        match=r"y holds text \('[a-z]+'\), and a regressor needs numbers. For classes, use "
        r"DecoupledClass",
    ):
        dco.DecoupledRegressor(Ridge()).fit(X, as_given(np.where(X[:, 0] > 0, "up", "down")))


@pytest.mark.parametrize("kind", [dco.DecoupledClassifier, dco.DecoupledRegressor])
def test_a_wrong_keyword_is_named(kind):
    def called(*args, **keywords):
        with pytest.raises(TypeError) as told:
            kind(*args, **keywords)
        return str(told.value)

    assert "__init__() got an unexpected keyword argument 'alpa'" in called(Ridge(), alpa=0.1)
    assert "__init__() takes from 1 to 3 positional arguments" in called(1, 2, 3)
    assert list(inspect.signature(kind).parameters)[:3] == ["models", "scores", "alpha"]
    assert typing.get_type_hints(kind.__init__)["refit"] is bool


class Narrow(dco.DecoupledRegressor):
    def __init__(self, models, *, alpha=0.2):
        super().__init__(models, alpha=alpha)


def test_a_subclass_keeps_its_own_parameters():
    assert Narrow(Ridge()).get_params(deep=False).keys() == {"models", "alpha"}
    assert Narrow(Ridge()).refit


@pytest.mark.parametrize("n", [1, 5])
def test_labels_that_are_not_among_the_classes_are_counted(classifier, n):
    new = LABELS[400:].astype(object)
    new[:n] = "yes "
    has = "has a label that is" if n == 1 else "have labels that are"
    with pytest.warns(
        UserWarning,
        match=rf"^{n} of 200 rows {has} not in classes_ \('yes ': "
        rf"{n}\)",
    ) as told:
        found = classifier.evaluate(X[400:], new)
    assert told[0].filename == __file__
    hits = classifier.predict_set(X[400:]).contains(LABELS[400:])
    assert found.coverage == np.mean(hits[n:]) * (200 - n) / 200
    with pytest.raises(ValueError, match="None of y's labels"):
        classifier.evaluate(X[400:], np.full(200, "yes "))


def test_a_message_names_five_unknown_labels_and_not_more(classifier):
    new = LABELS[400:].astype(object)
    new[:7] = [f"label {i}" for i in range(7)]
    with pytest.warns(UserWarning, match=r"^7 of 200 rows .*'label 4': 1 and 2 more\)"):
        classifier.evaluate(X[400:], new)


def test_a_table_by_group_takes_a_column_as_condition_on_does(classifier, framed):
    def side(rows):
        return rows["side"]

    expected = framed.evaluate(FRAME[400:], LABELS[400:], by=FRAME["side"][400:]).by_group
    assert [(row.by, row.group) for row in expected] == [("side", 0), ("side", 1)]
    assert framed.evaluate(FRAME[400:], LABELS[400:], by="side").by_group == expected
    assert framed.evaluate(FRAME[400:], LABELS[400:], by=side).by_group == expected
    by_label = classifier.evaluate(X[400:], LABELS[400:], by="label").by_group
    by_values = classifier.evaluate(X[400:], LABELS[400:], by=LABELS[400:]).by_group
    assert [row.coverage for row in by_label] == [row.coverage for row in by_values]
    assert sum(row.n for row in classifier.evaluate(X[400:], LABELS[400:], by=0).by_group) == 200


def test_a_table_by_something_else_is_refused_by_its_name(classifier, framed):
    with pytest.raises(ValueError, match="by names the column 'town', which X does not have"):
        framed.evaluate(FRAME[400:], LABELS[400:], by="town")
    with pytest.raises(
        ValueError, match="by must be a column number below 3 or a callable, as X is an array"
    ):
        classifier.evaluate(X[400:], LABELS[400:], by="side")
    with pytest.raises(
        ValueError,
        match=r"by must hold one value for each of 200 rows, got shape "
        r"\(1,\)",
    ):
        classifier.evaluate(X[400:], LABELS[400:], by=[1])
    regressor = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X[:400], NUMBERS[:400])
    with pytest.raises(ValueError, match='by="label" is for classes'):
        regressor.evaluate(X[400:], NUMBERS[400:], by="label")


def test_several_levels_are_evaluated_at_once(framed):
    levels = [0.1, 0.2, "1/3"]
    found = framed.evaluate(FRAME[400:], LABELS[400:], alpha=levels, by="side")
    assert found == [
        framed.evaluate(FRAME[400:], LABELS[400:], alpha=level, by="side") for level in levels
    ]
    assert found[0].coverage > found[2].coverage
    assert framed.evaluate(FRAME[400:], LABELS[400:], alpha=np.array([0.1])) == [
        framed.evaluate(FRAME[400:], LABELS[400:])
    ]


@pytest.mark.parametrize(
    "rule", [{"side"}, FRAME["side"].to_numpy(), FRAME["side"]], ids=["set", "array", "series"]
)
@pytest.mark.parametrize("rows", [X, FRAME], ids=["array", "frame"])
def test_groups_to_condition_on_are_refused_with_what_to_do(rule, rows):
    est = dco.DecoupledClassifier(LogisticRegression(), condition_on=rule)
    with pytest.raises(
        ValueError,
        match=r"condition_on must be a column, a callable or a list of these, got .* "
        r"pass a callable that",
    ):
        est.fit(rows, LABELS)


def test_weights_that_are_too_few_are_named():
    est = dco.DecoupledRegressor(Ridge(), random_state=0)
    with pytest.raises(
        ValueError,
        match=r"^sample_weight must hold one weight for each of 600 "
        r"rows, got 399",
    ):
        est.fit(X, NUMBERS, sample_weight=np.ones(399))
    with pytest.raises(
        ValueError,
        match=r"^sample_weight must hold one weight for each of 200 "
        r"rows, got 3",
    ):
        est.fit(
            X[:400],
            NUMBERS[:400],
            sample_weight=np.ones(400),
            tune=(X[400:], NUMBERS[400:], {"sample_weight": [1, 1, 1]}),
        )
    piped = dco.DecoupledRegressor(make_pipeline(StandardScaler(), Ridge()), random_state=0)
    with pytest.raises(ValueError, match=r"^ridge__sample_weight must hold one weight"):
        piped.fit(X, NUMBERS, ridge__sample_weight=np.ones(399))


def test_a_category_that_only_tuning_rows_have_is_not_blamed_on_training_rows():
    town = np.where(np.arange(600)[:, None] < 400, "here", "there").astype(object)
    est = dco.DecoupledRegressor(
        [make_pipeline(OneHotEncoder(), model) for model in (Ridge(), BayesianRidge())],
        random_state=0,
    )
    with pytest.raises(
        ValueError,
        match=r"^Every candidate failed on the training and tuning "
        r"rows \(.*unknown categories",
    ):
        est.fit(town[:400], NUMBERS[:400], tune=(town[400:], NUMBERS[400:]))


def test_labels_of_two_kinds_are_refused_before_they_are_joined():
    est = dco.DecoupledClassifier(LogisticRegression(), LAC(), random_state=0)
    codes = (LABELS == "yes").astype(int)
    with pytest.raises(
        ValueError,
        match=r"those of the train rows are text \('.*calibrate rows "
        r"are numbers \(",
    ) as told:
        est.fit(X[:400], LABELS[:400], calibrate=(X[400:], codes[400:]))
    assert "np." not in str(told.value)
    with pytest.raises(ValueError, match="of one kind in all roles"):
        est.fit(X[:400], codes[:400], calibrate=(X[400:], codes[400:].astype(str).astype(object)))
    mixed = est.fit(X[:400], codes[:400] == 1, calibrate=(X[400:], codes[400:]))  # True is 1
    assert mixed.classes_.tolist() == [0, 1]


def test_models_may_come_as_pairs_like_the_steps_of_a_pipeline():
    models = [("weak", Ridge()), ("strong", Ridge(alpha=100.0))]
    est = clone(dco.DecoupledRegressor(models, random_state=0)).fit(X, NUMBERS)
    expected = dco.DecoupledRegressor(dict(models), random_state=0).fit(X, NUMBERS)
    assert str(est.ranking_) == str(expected.ranking_)
    assert est.certificate_.thresholds == expected.certificate_.thresholds


@pytest.mark.parametrize(
    "kind", [np.asarray, list, lambda y: pd.Series(y, dtype="Float64"), pl.Series]
)
def test_a_missing_number_is_named_by_its_row(kind):
    y = NUMBERS.copy()
    y[[7, 9]] = np.nan
    with pytest.raises(
        ValueError,
        match=r"^y is missing in row 7 \(2 rows in all\): every row needs",
    ):
        dco.DecoupledRegressor(Ridge()).fit(X, kind(y))


def test_tables_that_must_be_collected_or_converted_are_told_so():
    est = dco.DecoupledRegressor(Ridge(), random_state=0)
    columns = ["a", "b", "c"]
    frame = pl.DataFrame(FRAME[columns].to_dict("list"))
    with pytest.raises(ValueError, match=r"X is a LazyFrame, .*X\.collect\(\)"):
        est.fit(frame.lazy(), NUMBERS)
    est.fit(frame, NUMBERS)
    with pytest.raises(ValueError, match=r"X is a LazyFrame, .*X\.collect\(\)"):
        est.predict_set(frame.lazy())
    with pytest.raises(
        ValueError,
        match=r"of Dask, whose rows are not there yet: pass "
        r"X\.compute\(\)",
    ):
        est.fit(dask_frames.from_pandas(FRAME[columns], npartitions=2), NUMBERS)
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(FRAME[columns].to_dict("list"))
    with pytest.raises(ValueError, match=r"X is a Table of Arrow, .*to_pandas\(\)"):
        est.fit(table, NUMBERS)
    assert len(est.predict_set(pl.from_arrow(table))) == 600


class Plain(dco.scores.Score):
    """A score of one's own that says nothing about all labels at once."""

    needs = (dco.ClassProbabilities,)

    def observed(self, prediction, y):
        return LAC().observed(prediction, y)

    def sets(self, prediction, threshold):
        return LAC().sets(prediction, threshold)

    def sizes(self, prediction, threshold):
        return LAC().sizes(prediction, threshold)


def test_p_values_of_a_score_without_every_label_are_refused():
    est = dco.DecoupledClassifier(LogisticRegression(), Plain(), random_state=0).fit(X, LABELS)
    with pytest.raises(
        IncompatibleScoreError,
        match=r"Plain does not give .* no "
        r"every_label\(prediction\)",
    ):
        est.predict_p(X)


def test_a_folder_that_is_not_there_is_named(classifier, tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"the folder .*nowhere does not exist; make it "
        r"first",
    ) as told:
        dco.save(classifier, tmp_path / "nowhere" / "model.dco")
    assert "/." not in str(told.value)


def test_one_class_is_shown_without_its_type():
    with pytest.raises(ValueError, match=r"one class only \('a'\)"):
        dco.DecoupledClassifier(LogisticRegression()).fit(X, np.full(600, "a"))


@pytest.mark.parametrize("n", [34, 40, 50])
def test_pac_sets_of_few_rows_are_finite_by_default(n):
    """29 calibration rows are the fewest with a finite threshold at delta = 0.05."""
    rng = np.random.default_rng(0)
    few = rng.normal(size=(n, 3))
    y = few[:, 0] + rng.normal(size=n)
    est = dco.DecoupledRegressor([Ridge(), Ridge(100.0)], guarantee="pac", random_state=0)
    est.fit(few, y)
    assert est.certificate_.provenance.rows == {"train": n - 29, "tune": 0, "calibrate": 29}
    assert np.isfinite(est.predict_set(few).sizes()).all()


def test_calibration_rows_that_leave_few_to_train_rank_candidates_by_folds():
    rng = np.random.default_rng(0)
    few = rng.normal(size=(40, 3))
    est = dco.DecoupledRegressor([Ridge(), Ridge(100.0)], calibrate_size=29, random_state=0)
    est.fit(few, few[:, 0] + rng.normal(size=40))
    assert est.certificate_.provenance.rows == {"train": 11, "tune": 0, "calibrate": 29}


@pytest.mark.parametrize(
    "settings",
    [{"calibrate_size": 5}, {"tune_size": 10}, {"tune_size": 10, "refit": False}],
    ids=["calibrate_size", "tune_size", "no refit"],
)
def test_the_advice_on_few_rows_helps(settings):
    """It says to leave the sizes out: then calibration gets as many rows as it needs."""
    rng = np.random.default_rng(0)
    few = rng.normal(size=(40, 3))
    y = few[:, 0] + rng.normal(size=40)
    models = [Ridge(), Ridge(100.0)]
    est = dco.DecoupledRegressor(models, guarantee="pac", random_state=0, **settings)
    with pytest.warns(dco.InfeasibleLevelWarning, match="leave calibrate_size and tune_size out"):
        est.fit(few, y)
    est.set_params(calibrate_size=None, tune_size=None).fit(few, y)
    assert np.isfinite(est.predict_set(few).sizes()).all()
