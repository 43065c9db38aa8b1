"""Sets, p-values and levels of one fit; labels in their order; too few rows."""

import warnings

import numpy as np
import pytest
from estimator_examples import class_rows, logistic, regression_rows, ridge
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

import dco
from dco.scores import APS, LAC, AbsoluteResidual


def test_p_values_and_sets_are_one_statement() -> None:
    X, y = class_rows(500)
    est = logistic().fit(X[:400], y[:400])
    p = est.predict_p(X[400:])
    for alpha in (0.05, 0.1, 0.3):
        np.testing.assert_array_equal(p > alpha, est.predict_set(X[400:], alpha=alpha).to_dense())
    X, y = regression_rows(400)
    for groups in (None, np.repeat(np.arange(130), np.tile([1, 2, 3, 5, 7], 26))[:400]):
        reg = ridge(calibrate_size=0.5).fit(X, y, groups=groups)
        for alpha in (0.05, 0.1, 0.25, "1/3"):
            level = float(dco.foundations.ranks.as_rational(alpha))
            np.testing.assert_array_equal(
                reg.predict_p(X, y) > level, reg.predict_set(X, alpha=alpha).contains(y)
            )
    with pytest.raises(ValueError, match="missing in row 1"):
        reg.predict_p(X[:2], [0.0, np.nan])


@pytest.mark.parametrize("condition_on", [None, "label"])
@pytest.mark.parametrize("backwards", [False, True])
def test_labels_of_sets_are_in_the_order_of_classes(
    condition_on: str | None, backwards: bool
) -> None:
    """Also where training rows lack a label, and where a model lists its labels in another
    order.
    """
    X, y = class_rows(600)
    names = np.array(["a", "b", "c"], dtype="<U2")[y]
    names[250:253] = "aa"
    model = LogisticRegression().fit(X[:200], names[:200])
    if backwards:
        model.classes_, model.coef_, model.intercept_ = (
            model.classes_[::-1],
            model.coef_[::-1],
            model.intercept_[::-1],
        )
    est = dco.DecoupledClassifier(
        FrozenEstimator(model),
        dco.scores.LAC(),
        tune_size=0,
        condition_on=condition_on,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est.fit(X[200:400], names[200:400])
    sets = est.predict_set(X[400:])
    assert sets.classes.tolist() == est.classes_.tolist() == ["a", "aa", "b", "c"]
    np.testing.assert_array_equal(est.predict_p(X[400:]) > 0.1, sets.to_dense())
    assert 0.7 < sets.contains(names[400:]).mean() < 1
    assert all(row == sorted(row) for row in sets.to_lists())


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_folds_rank_a_frozen_model_that_knows_a_label_beside_those_of_the_rows(absent: int) -> None:
    """Its own label once had the threshold of another, or none: an IndexError."""
    X, y = class_rows()
    model, held = LogisticRegression().fit(X, y), y != absent
    est = dco.DecoupledClassifier(
        [FrozenEstimator(model), FrozenEstimator(model)],
        LAC(),
        tune_folds=3,
        condition_on="label",
        random_state=0,
    )
    with pytest.warns(dco.InfeasibleLevelWarning, match="1 of 3 labels"):
        est.fit(X[held], y[held])

    rows = np.delete(np.flatnonzero(held), est.splits_.calibrate)
    scores = 1 - model.predict_proba(X[rows])
    thresholds = np.full(3, np.inf)
    for label in np.unique(y[rows]):
        of_label = np.sort(scores[y[rows] == label, label])
        thresholds[label] = of_label[len(of_label) - len(of_label) // 10 - 1]
    mean_size = (scores <= thresholds).sum(axis=1).mean()
    assert est.ranking_.table[0].mean_size == pytest.approx(mean_size)


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_probabilities_stand_under_their_own_labels_where_the_rows_lack_one(absent: int) -> None:
    X, y = class_rows(600)
    names = np.array(["a", "b", "c"])[y]
    model = LogisticRegression().fit(X, names)
    est = dco.DecoupledClassifier(
        FrozenEstimator(model), LAC(), condition_on="label", random_state=0
    )
    with pytest.warns(dco.InfeasibleLevelWarning, match="1 of 3 labels .* no calibration rows"):
        est.fit(X[y != absent], names[y != absent])
    assert est.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(est.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(est.predict_p(X) > 0.1, est.predict_set(X).to_dense())
    assert est.predict_set(X).to_dense()[:, absent].all()


@pytest.mark.parametrize("groups", [None, np.arange(300) // 2], ids=["rows", "groups"])
def test_both_guarantees_come_from_one_fit(groups) -> None:
    X, y = regression_rows(400)
    asked = {
        "marginal": {"guarantee": "marginal"},
        "pac": {"guarantee": "pac", "delta": 0.2, "alpha": 0.3},
    }
    fits = {
        name: ridge(scores=AbsoluteResidual(), **options).fit(X[:300], y[:300], groups=groups)
        for name, options in asked.items()
    }
    for name, options in asked.items():
        for est in fits.values():
            other = {"alpha": 0.1} | options
            np.testing.assert_array_equal(
                est.predict_set(X[300:], **other).lower, fits[name].predict_set(X[300:]).lower
            )
            assert est.evaluate(X[300:], y[300:], **other) == fits[name].evaluate(X[300:], y[300:])
    both = fits["marginal"].predict_set(X[300:], [0.3, 0.4], guarantee="pac")
    assert np.all(both[0].sizes() > fits["marginal"].predict_set(X[300:], 0.3).sizes())
    with pytest.raises(ValueError, match="delta belongs"):
        fits["marginal"].predict_set(X, delta=0.1)
    with pytest.raises(ValueError, match="got 'sure'"):
        fits["marginal"].evaluate(X, y, guarantee="sure")
    with pytest.raises(ValueError, match="delta"):
        fits["pac"].predict_set(X, delta=2)


def test_ties_are_told_at_every_level_that_has_a_finite_threshold() -> None:
    X, y = regression_rows(400)
    # a fifth of the scores is the same number
    far = np.where(np.arange(400) % 5 == 0, 1000.0, np.arange(400) / 400)
    zero = FrozenEstimator(DummyRegressor(strategy="constant", constant=0).fit(X, y))
    est = dco.DecoupledRegressor(zero, random_state=0).fit(X[:300], far[:300])
    assert est.evaluate(X[300:], far[300:]).consistency.tied
    # its score is not repeated, others near it are
    assert est.evaluate(X[300:], far[300:], alpha=0.3).consistency.tied
    # no threshold of 100 rows comes near the fifth
    assert not est.evaluate(X[300:], far[300:], alpha=0.6).consistency.tied
    with pytest.warns(dco.InfeasibleLevelWarning):
        assert not est.evaluate(X[300:], far[300:], alpha=0.001).consistency.tied


def test_randomised_scores_give_a_row_the_same_set_alone_and_in_a_batch() -> None:
    X, y = class_rows(500)
    est = logistic(APS(randomised=True)).fit(X[:400], y[:400])
    together = est.predict_set(X[400:]).to_lists()
    assert together == [est.predict_set(X[i : i + 1]).to_lists()[0] for i in range(400, 500)]
    assert len(set(est.predictor_.structure.prediction(X[400:]).uniforms)) == 100


def test_a_label_that_training_never_saw_scores_infinity() -> None:
    X, y = class_rows(300)
    y = y.astype(object)
    y[250] = "only once"
    y = y.astype(str)
    est = logistic()
    with pytest.warns(
        UserWarning,
        match=r"1 of 100 calibration rows .* never saw \('only once': "
        r"1 row\)",
    ) as told:
        est.fit(X[:150], y[:150], tune=(X[150:200], y[150:200]), calibrate=(X[200:], y[200:]))
    assert [warning.filename for warning in told] == [__file__]
    assert "only once" in est.classes_
    assert np.isinf(est.predictor_.calibration.scored.scores).sum() == 1
    assert est.certificate_.thresholds[0].n == 100  # it stays in n
    assert (
        not est.predict_set(X)
        .to_dense()[:, list(est.predict_set(X[:1]).classes).index("only once")]
        .any()
    )
    with pytest.warns(dco.InfeasibleLevelWarning, match="100 calibration rows"):
        assert est.predict_set(X[:5], alpha=0.005).is_full().all()


def test_many_labels_that_training_never_saw_are_counted_and_make_full_sets() -> None:
    X, y = class_rows(600, classes=2)
    y = np.where(y == 1, "a", "b").astype(object)
    y[400:440] = "new"
    est = logistic()
    with pytest.warns() as told:
        est.fit(X[:300], y[:300], calibrate=(X[300:], y[300:]))
    counted, infinite = (str(warning.message) for warning in told)
    assert (
        "40 of 300 calibration rows have labels that the chosen model never saw ('new': 40 rows)"
        in counted
    )
    assert "At alpha = 0.1 the threshold is infinite and sets are full" in infinite
    assert np.isinf(est.certificate_.thresholds[0].value)
    new = X[:100] + 0.01
    found = est.evaluate(new, y[:100])
    assert (found.coverage, found.overall.sizes.full) == (1, 1)
    assert found.consistency.expected_coverage == 1
    assert found.consistency.verdict == "consistent with the guarantee"


def test_a_filter_of_warnings_makes_a_level_out_of_reach_an_error_and_keeps_the_earlier_fit() -> (
    None
):
    X, y = regression_rows(60)
    est = ridge().fit(X, y)
    before = est.certificate_.to_json()
    with warnings.catch_warnings():
        warnings.simplefilter("error", dco.InfeasibleLevelWarning)
        with pytest.raises(dco.InfeasibleLevelWarning, match="At least 9"):
            est.fit(X[:12], y[:12])
        with pytest.raises(dco.InfeasibleLevelWarning, match="too few"):
            est.predict_set(X, alpha=0.001)
    assert est.certificate_.to_json() == before


def test_too_few_rows_give_full_sets_and_a_warning() -> None:
    X, y = regression_rows(16)
    with pytest.warns(
        dco.InfeasibleLevelWarning,
        match=r"4 calibration rows .* every set is full .* 9 rows are needed: leave "
        r"calibrate_size and tune_size out\.",
    ):
        est = ridge(calibrate_size=4).fit(X, y)
    assert est.predict_set(X).is_infinite().all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the advice holds
        assert np.isfinite(ridge().fit(X, y).predict_set(X).sizes()).all()
    with pytest.warns(
        dco.InfeasibleLevelWarning,
        match=r"99 rows are needed, and there are 16 in "
        r"all\.",
    ):
        ridge(alpha=0.01).fit(X, y)
    # the caller's own rows: no size to set
    with pytest.warns(dco.InfeasibleLevelWarning, match=r"99 rows are needed\.$"):
        ridge(alpha=0.01).fit(X[:12], y[:12], calibrate=(X[12:], y[12:]))


@pytest.mark.parametrize(
    ("guarantee", "needed"),
    [
        ("marginal", r"9 groups are needed,"),
        (
            "pac",
            r"29 groups are "
            r"needed \(",
        ),
    ],
)
def test_too_few_groups_are_counted_as_groups(guarantee, needed) -> None:
    X, y = regression_rows(240)
    est = ridge(guarantee=guarantee)
    with pytest.warns(
        dco.InfeasibleLevelWarning, match=f"3 calibration groups are too few .* At least {needed}"
    ):
        est.fit(X, y, groups=np.arange(240) // 20)


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
def test_a_level_that_is_out_of_reach_is_told_when_sets_are_made(guarantee) -> None:
    X, y = regression_rows(400)
    est = ridge(guarantee=guarantee).fit(X[:300], y[:300])
    asks = [
        lambda: est.predict_set(X[300:], alpha=0.001),
        lambda: est.predict_set(X[300:], alpha=[0.2, 0.001]),
        lambda: est.evaluate(X[300:], y[300:], alpha=0.001),
    ]
    for ask in asks:
        with pytest.warns(
            dco.InfeasibleLevelWarning,
            match=r"75 calibration rows are too few for "
            r"alpha = 0.001",
        ) as told:
            ask()
        # once, and at the line of the caller
        assert [warning.filename for warning in told] == [__file__]


@pytest.mark.parametrize(("alpha", "is_told"), [(0.1, False), (0.5, False), (0.9, True)])
def test_a_level_that_looks_like_a_confidence_is_told(alpha: float, is_told: bool) -> None:
    X, y = regression_rows(200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = ridge(alpha=alpha).fit(X, y)
    told = [str(note) for note in est.notes_ if note.kind == "large-alpha"]
    assert bool(told) == is_told
    if is_told:
        assert told[0].endswith("For sets that cover 90 % of rows, give alpha=0.1.")
