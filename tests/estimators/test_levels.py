"""Sets, p-values and levels of one fit; labels in their order; too few rows."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
from estimator_examples import class_rows, logistic, regression_rows, ridge
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

import dco
from dco.scores import APS, LAC, AbsoluteResidual

# --- p-values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_a_label_is_in_the_set_if_its_p_value_is_above_alpha(alpha) -> None:
    X, y = class_rows(500)
    est = logistic().fit(X[:400], y[:400])
    sets = est.predict_set(X[400:], alpha=alpha)
    np.testing.assert_array_equal(est.predict_p(X[400:]) > alpha, sets.to_dense())


GROUPS_OF_MANY_SIZES = np.repeat(np.arange(130), np.tile([1, 2, 3, 5, 7], 26))[:400]


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.25, "1/3"])
@pytest.mark.parametrize("groups", [None, GROUPS_OF_MANY_SIZES], ids=["rows", "groups"])
def test_a_number_is_in_the_set_if_its_p_value_is_above_alpha(groups, alpha) -> None:
    X, y = regression_rows(400)
    est = ridge(calibrate_size=0.5).fit(X, y, groups=groups)
    covered = est.predict_set(X, alpha=alpha).contains(y)
    np.testing.assert_array_equal(est.predict_p(X, y) > float(Fraction(alpha)), covered)


def test_a_missing_number_has_no_p_value() -> None:
    X, y = regression_rows(400)
    with pytest.raises(ValueError, match="missing in row 1"):
        ridge().fit(X, y).predict_p(X[:2], [0.0, np.nan])


# --- labels in their order ------------------------------------------------------------------------


def list_classes_backwards(model):
    """Let a model of labels list them in the other order."""
    model.classes_ = model.classes_[::-1]
    model.coef_ = model.coef_[::-1]
    model.intercept_ = model.intercept_[::-1]


@pytest.fixture(params=[False, True], ids=["ascending", "backwards"])
def rows_with_a_rare_label(request):
    """A model of a, b and c, frozen, which lists them in either order, and 400 rows after its own.
    Three of these have the label "aa".
    """
    X, y = class_rows(600)
    labels = np.array(["a", "b", "c"], dtype="<U2")[y]
    labels[250:253] = "aa"
    model = LogisticRegression().fit(X[:200], labels[:200])
    if request.param:
        list_classes_backwards(model)
    return FrozenEstimator(model), X[200:], labels[200:]


@pytest.mark.parametrize("condition_on", [None, "label"])
@pytest.mark.filterwarnings("ignore")
def test_labels_of_sets_are_in_the_order_of_classes(rows_with_a_rare_label, condition_on) -> None:
    """Also where training rows lack a label."""
    model, X, labels = rows_with_a_rare_label
    options = {"tune_size": 0, "condition_on": condition_on, "random_state": 0}
    est = dco.DecoupledClassifier(model, LAC(), **options).fit(X[:200], labels[:200])

    sets = est.predict_set(X[200:])

    assert est.classes_.tolist() == ["a", "aa", "b", "c"]
    assert sets.classes.tolist() == ["a", "aa", "b", "c"]
    np.testing.assert_array_equal(est.predict_p(X[200:]) > 0.1, sets.to_dense())
    assert 0.7 < sets.contains(labels[200:]).mean() < 1
    assert all(row == sorted(row) for row in sets.to_lists())


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_folds_rank_a_frozen_model_that_knows_a_label_beside_those_of_the_rows(absent) -> None:
    """Its own label once had the threshold of another, or none: an IndexError."""
    X, y = class_rows()
    model = LogisticRegression().fit(X, y)
    is_there = y != absent
    models = [FrozenEstimator(model), FrozenEstimator(model)]
    options = {"tune_folds": 3, "condition_on": "label", "random_state": 0}
    est = dco.DecoupledClassifier(models, LAC(), **options)
    with pytest.warns(dco.InfeasibleLevelWarning, match="1 of 3 labels"):
        est.fit(X[is_there], y[is_there])

    rows = np.delete(np.flatnonzero(is_there), est.splits_.calibrate)
    scores = 1 - model.predict_proba(X[rows])
    thresholds = np.full(3, np.inf)
    for label in np.unique(y[rows]):
        of_label = np.sort(scores[y[rows] == label, label])
        thresholds[label] = of_label[len(of_label) - len(of_label) // 10 - 1]
    mean_size = (scores <= thresholds).sum(axis=1).mean()
    assert est.ranking_.table[0].mean_size == pytest.approx(mean_size)


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_probabilities_stand_under_their_own_labels_where_the_rows_lack_one(absent) -> None:
    X, y = class_rows(600)
    labels = np.array(["a", "b", "c"])[y]
    model = LogisticRegression().fit(X, labels)
    options = {"condition_on": "label", "random_state": 0}
    est = dco.DecoupledClassifier(FrozenEstimator(model), LAC(), **options)
    with pytest.warns(dco.InfeasibleLevelWarning, match="1 of 3 labels .* no calibration rows"):
        est.fit(X[y != absent], labels[y != absent])

    sets = est.predict_set(X).to_dense()

    assert est.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(est.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(est.predict_p(X) > 0.1, sets)
    assert sets[:, absent].all()


# --- another guarantee, another level -------------------------------------------------------------

PROMISES = {
    "marginal": {"guarantee": "marginal", "alpha": 0.1},
    "pac": {"guarantee": "pac", "alpha": 0.3, "delta": 0.2},
}


@pytest.mark.parametrize("groups", [None, np.arange(300) // 2], ids=["rows", "groups"])
@pytest.mark.parametrize("fitted", PROMISES)
@pytest.mark.parametrize("asked", PROMISES)
def test_both_guarantees_come_from_one_fit(fitted, asked, groups) -> None:
    X, y = regression_rows(400)
    score = AbsoluteResidual()
    est = ridge(scores=score, **PROMISES[fitted]).fit(X[:300], y[:300], groups=groups)
    expected = ridge(scores=score, **PROMISES[asked]).fit(X[:300], y[:300], groups=groups)

    sets = est.predict_set(X[300:], **PROMISES[asked])
    evaluation = est.evaluate(X[300:], y[300:], **PROMISES[asked])

    np.testing.assert_array_equal(sets.lower, expected.predict_set(X[300:]).lower)
    assert evaluation == expected.evaluate(X[300:], y[300:])


def test_pac_sets_are_larger() -> None:
    X, y = regression_rows(400)
    est = ridge(scores=AbsoluteResidual()).fit(X[:300], y[:300])
    pac, _ = est.predict_set(X[300:], [0.3, 0.4], guarantee="pac")
    assert np.all(pac.sizes() > est.predict_set(X[300:], 0.3).sizes())


@pytest.mark.parametrize(
    ("guarantee", "asked", "message"),
    [
        ("marginal", {"delta": 0.1}, "delta belongs"),
        ("marginal", {"guarantee": "sure"}, "got 'sure'"),
        ("pac", {"delta": 2}, "delta"),
    ],
    ids=["a delta without use", "no guarantee", "no probability"],
)
def test_what_is_no_promise_is_refused(guarantee, asked, message) -> None:
    X, y = regression_rows(400)
    est = ridge(guarantee=guarantee).fit(X[:300], y[:300])
    with pytest.raises(ValueError, match=message):
        est.predict_set(X, **asked)
    with pytest.raises(ValueError, match=message):
        est.evaluate(X[300:], y[300:], **asked)


@pytest.mark.parametrize(
    ("alpha", "is_tied"),
    [(0.1, True), (0.3, True), (0.6, False), (0.001, False)],
    ids=["a repeated score", "near a repeated score", "far from it", "no finite threshold"],
)
@pytest.mark.filterwarnings("ignore::dco.InfeasibleLevelWarning")
def test_ties_are_found_at_every_level(alpha, is_tied) -> None:
    """A fifth of the scores is the same number, the largest."""
    X, _ = regression_rows(400)
    y = np.where(np.arange(400) % 5 == 0, 1000.0, np.arange(400) / 400)
    zero = FrozenEstimator(DummyRegressor(strategy="constant", constant=0).fit(X, y))
    est = dco.DecoupledRegressor(zero, random_state=0).fit(X[:300], y[:300])
    assert est.evaluate(X[300:], y[300:], alpha=alpha).consistency.tied == is_tied


def test_randomised_scores_give_a_row_the_same_set_alone_and_in_a_batch() -> None:
    X, y = class_rows(500)
    est = logistic(APS(randomised=True)).fit(X[:400], y[:400])
    together = est.predict_set(X[400:]).to_lists()
    alone = [est.predict_set(X[row : row + 1]).to_lists()[0] for row in range(400, 500)]
    assert together == alone


def test_randomised_scores_draw_another_number_for_each_row() -> None:
    X, y = class_rows(500)
    est = logistic(APS(randomised=True)).fit(X[:400], y[:400])
    uniforms = est.predictor_.structure.prediction(X[400:]).uniforms
    assert len(set(uniforms)) == 100


# --- labels that training never saw ---------------------------------------------------------------


@pytest.fixture
def one_new_label():
    """150 training, 50 tuning and 100 calibration rows; one of the latter has a new label."""
    X, y = class_rows(300)
    labels = y.astype("<U9")
    labels[250] = "only once"
    return X, labels


def fit_roles(X, labels):
    roles = {"tune": (X[150:200], labels[150:200]), "calibrate": (X[200:], labels[200:])}
    return logistic().fit(X[:150], labels[:150], **roles)


def test_a_label_that_training_never_saw_is_noted(one_new_label) -> None:
    """At the line of the caller."""
    X, labels = one_new_label
    roles = {"tune": (X[150:200], labels[150:200]), "calibrate": (X[200:], labels[200:])}
    text = r"1 of 100 calibration rows .* never saw \('only once': 1 row\)"
    with pytest.warns(UserWarning, match=text) as warned:
        logistic().fit(X[:150], labels[:150], **roles)
    assert [warning.filename for warning in warned] == [__file__]


@pytest.mark.filterwarnings("ignore:.*never saw")
def test_a_label_that_training_never_saw_scores_infinity(one_new_label) -> None:
    """Its row is the one of 100 calibration rows that scores as much: p = (1 + 1) / 101."""
    X, labels = one_new_label
    est = fit_roles(X, labels)
    column = est.classes_.tolist().index("only once")
    np.testing.assert_allclose(est.predict_p(X)[:, column], 2 / 101)
    assert not est.predict_set(X).to_dense()[:, column].any()
    assert est.certificate_.thresholds[0].n == 100


@pytest.mark.filterwarnings("ignore:.*never saw")
def test_a_label_that_training_never_saw_is_in_full_sets(one_new_label) -> None:
    est = fit_roles(*one_new_label)
    X, _ = one_new_label
    with pytest.warns(dco.InfeasibleLevelWarning, match="100 calibration rows"):
        sets = est.predict_set(X[:5], alpha=0.005)
    assert sets.is_full().all()


@pytest.fixture
def many_new_labels():
    """A fit whose threshold is infinite, because 40 of 300 calibration rows have a label that
    training never saw; its warnings, and its rows.
    """
    X, y = class_rows(600, classes=2)
    labels = np.where(y == 1, "a", "b").astype(object)
    labels[400:440] = "new"
    with pytest.warns() as warned:
        est = logistic().fit(X[:300], labels[:300], calibrate=(X[300:], labels[300:]))
    return est, [str(warning.message) for warning in warned], X, labels


def test_many_labels_that_training_never_saw_are_counted(many_new_labels) -> None:
    _, (counts, consequence), _, _ = many_new_labels
    assert (
        "40 of 300 calibration rows have labels that the chosen model never saw ('new': 40 rows)"
        in counts
    )
    assert "At alpha = 0.1 the threshold is infinite and sets are full" in consequence


def test_many_labels_that_training_never_saw_make_full_sets(many_new_labels) -> None:
    est, _, X, labels = many_new_labels
    evaluation = est.evaluate(X[:100] + 0.01, labels[:100])
    assert np.isinf(est.certificate_.thresholds[0].value)
    assert evaluation.coverage == 1
    assert evaluation.overall.sizes.full == 1
    assert evaluation.consistency.expected_coverage == 1
    assert evaluation.consistency.verdict == "consistent with the guarantee"


# --- too few rows ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error::dco.InfeasibleLevelWarning")
def test_a_filter_of_warnings_makes_a_level_out_of_reach_an_error() -> None:
    """The earlier fit stays."""
    X, y = regression_rows(60)
    est = ridge().fit(X, y)
    before = est.certificate_.to_json()
    with pytest.raises(dco.InfeasibleLevelWarning, match="At least 9"):
        est.fit(X[:12], y[:12])
    with pytest.raises(dco.InfeasibleLevelWarning, match="too few"):
        est.predict_set(X, alpha=0.001)
    assert est.certificate_.to_json() == before


def test_too_few_rows_give_full_sets_and_a_warning() -> None:
    X, y = regression_rows(16)
    text = (
        r"4 calibration rows .* every set is full .* 9 rows are needed: leave calibrate_size and "
        r"tune_size out\."
    )
    with pytest.warns(dco.InfeasibleLevelWarning, match=text):
        est = ridge(calibrate_size=4).fit(X, y)
    assert est.predict_set(X).is_infinite().all()


def test_the_advice_of_that_warning_helps() -> None:
    X, y = regression_rows(16)
    assert np.isfinite(ridge().fit(X, y).predict_set(X).sizes()).all()


def test_more_rows_are_asked_for_where_all_are_too_few() -> None:
    X, y = regression_rows(16)
    text = r"99 rows are needed, and there are 16 in all\."
    with pytest.warns(dco.InfeasibleLevelWarning, match=text):
        ridge(alpha=0.01).fit(X, y)


def test_no_size_is_advised_where_the_caller_gives_the_rows() -> None:
    X, y = regression_rows(16)
    with pytest.warns(dco.InfeasibleLevelWarning, match=r"99 rows are needed\.$"):
        ridge(alpha=0.01).fit(X[:12], y[:12], calibrate=(X[12:], y[12:]))


@pytest.mark.parametrize(
    ("guarantee", "needed"),
    [("marginal", r"9 groups are needed,"), ("pac", r"29 groups are needed \(")],
)
def test_too_few_groups_are_counted_as_groups(guarantee, needed) -> None:
    X, y = regression_rows(240)
    text = f"3 calibration groups are too few .* At least {needed}"
    with pytest.warns(dco.InfeasibleLevelWarning, match=text):
        ridge(guarantee=guarantee).fit(X, y, groups=np.arange(240) // 20)


def make_sets(est, X, y):
    return est.predict_set(X, alpha=0.001)


def make_sets_of_two_levels(est, X, y):
    return est.predict_set(X, alpha=[0.2, 0.001])


def evaluate(est, X, y):
    return est.evaluate(X, y, alpha=0.001)


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
@pytest.mark.parametrize("call", [make_sets, make_sets_of_two_levels, evaluate])
def test_a_level_out_of_reach_is_noted_once(guarantee, call) -> None:
    """At the line of the caller."""
    X, y = regression_rows(400)
    est = ridge(guarantee=guarantee).fit(X[:300], y[:300])
    text = r"75 calibration rows are too few for alpha = 0.001"
    with pytest.warns(dco.InfeasibleLevelWarning, match=text) as warned:
        call(est, X[300:], y[300:])
    assert [warning.filename for warning in warned] == [__file__]


def notes_on_alpha(alpha) -> list[str]:
    X, y = regression_rows(200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = ridge(alpha=alpha).fit(X, y)
    return [str(note) for note in est.notes_ if note.kind == "large-alpha"]


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_a_level_up_to_one_half_gets_no_note(alpha) -> None:
    assert notes_on_alpha(alpha) == []


def test_a_level_that_looks_like_a_confidence_is_noted() -> None:
    (note,) = notes_on_alpha(0.9)
    assert note.endswith("For sets that cover 90 % of rows, give alpha=0.1.")
