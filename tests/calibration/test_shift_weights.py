"""`weights=` in estimators: the weighted rule, stated on the certificate. The rule itself:
test_known_shift.py.
"""

import json

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import dco
from dco.report import page_html

SCORE = dco.scores.AbsoluteResidual()
LAC = dco.scores.LAC()


def double(X):
    """Weigh a row by twice its first column."""
    return 2 * X[:, 0]


def draw_loads(n, seed, *, heavy=False):
    """Draw loads from 0 to 1, evenly or with density 2x; heavy ones are noisier."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=n)
    if heavy:
        x = np.sqrt(x)
    return x[:, None], 3 * x + (0.2 + x) * rng.normal(size=n)


def draw_labels(n, seed, share):
    """Draw labels of which this share is 1, and a feature."""
    rng = np.random.default_rng(seed)
    y = (rng.uniform(size=n) < share).astype(int)
    return (2 * y + 1.5 * rng.normal(size=n))[:, None], y


def fit_line(**parameters):
    """Fit a line to 1,200 even loads."""
    est = dco.DecoupledRegressor(LinearRegression(), SCORE, random_state=0, **parameters)
    return est.fit(*draw_loads(1200, 0))


def fit_classifier(X, y, **parameters):
    est = dco.DecoupledClassifier(LogisticRegression(), LAC, random_state=0, **parameters)
    return est.fit(X, y)


@pytest.fixture(scope="module")
def weighted():
    return fit_line(weights=double)


@pytest.fixture(scope="module")
def estimated():
    return fit_line(weights=dco.ShiftWeights(double, estimated=True))


@pytest.fixture(scope="module")
def calibration_rows(weighted):
    X, y = draw_loads(1200, 0)
    rows = weighted.splits_.calibrate
    return X[rows], y[rows]


# ---------------------------------------------------------------- sets


@pytest.mark.parametrize("alpha", [0.1, 0.2])
def test_the_sets_are_those_of_the_weighted_rule(weighted, calibration_rows, alpha):
    X, y = calibration_rows
    new_X, _ = draw_loads(300, 1, heavy=True)

    sets = weighted.predict_set(new_X, alpha=alpha)

    scores = np.abs(y - weighted.predict(X))
    thresholds = dco.weighted_conformal(scores, double(X), double(new_X), alpha=alpha)
    expected = SCORE.sets(dco.Points(weighted.predict(new_X)), thresholds)
    np.testing.assert_array_equal(sets, expected)


def test_equal_weights_are_split_conformal_to_the_last_bit():
    new_X, _ = draw_loads(300, 1)
    equal = fit_line(weights=lambda X: np.full(len(X), 0.3))

    np.testing.assert_array_equal(fit_line().predict_set(new_X), equal.predict_set(new_X))


def expected_label_sets(est, X, y, new_X, weights, new_weights):
    """Return the sets of the weighted rule, as a matrix of rows by labels."""
    rows = est.splits_.calibrate
    prediction = dco.ClassProbabilities(est.predict_proba(X[rows]))
    new_prediction = dco.ClassProbabilities(est.predict_proba(new_X))
    scores = LAC.observed(prediction, y[rows])
    thresholds = dco.weighted_conformal(scores, weights[rows], new_weights, alpha=0.1)
    return LAC.sets(new_prediction, thresholds).to_dense()


def test_weights_by_label_are_those_of_each_label_that_is_tried():
    X, y = draw_labels(900, 4, 0.3)
    new_X, _ = draw_labels(200, 3, 0.8)
    ratio = np.array([0.2 / 0.7, 0.8 / 0.3])

    est = fit_classifier(X, y, weights={0: ratio[0], 1: ratio[1]})

    expected = expected_label_sets(est, X, y, new_X, ratio[y], ratio[None, :])
    assert np.array_equal(est.predict_set(new_X).to_dense(), expected)


def test_weights_by_x_are_the_same_for_every_label():
    X, y = draw_labels(900, 4, 0.3)
    new_X, _ = draw_labels(200, 3, 0.8)

    def tilt(X):
        return np.exp(0.3 * X[:, 0])

    est = fit_classifier(X, y, weights=tilt)

    expected = expected_label_sets(est, X, y, new_X, tilt(X), tilt(new_X)[:, None])
    assert np.array_equal(est.predict_set(new_X).to_dense(), expected)


def test_weights_of_the_fit_say_nothing_of_new_calibration_rows(weighted):
    new = dco.recalibrate(weighted, *draw_loads(200, 100))

    assert new.certificate_.calibration.kind != "known weights"
    assert new.certificate_.thresholds[0].rank == 181
    assert new.get_params()["weights"] is None


# ---------------------------------------------------------------- certificate


def test_the_certificate_states_the_weights(weighted, calibration_rows):
    X, _ = calibration_rows
    certificate = weighted.certificate_

    assert certificate.statement.endswith("at least 90 %, given the stated weights.")
    assert "y given x is as before" in certificate.assumption
    assert "300 calibration rows have the effect of" in str(certificate)

    weights = certificate.calibration.weights
    w = double(X)
    assert weights.depends_on == "x"
    assert weights.ratios == "double"
    assert not weights.estimated
    assert weights.effective_n == pytest.approx(w.sum() ** 2 / np.sum(w**2))
    assert weights.largest_over_mean == pytest.approx(w.max() / w.mean())


def test_the_certificate_holds_for_its_fit_and_rows(weighted, calibration_rows):
    assert weighted.certificate_.verify(*calibration_rows, predictor=weighted).holds


def test_the_certificate_comes_back_from_json(weighted):
    text = weighted.certificate_.to_json()

    assert dco.Certificate.from_json(text) == weighted.certificate_


def test_a_certificate_whose_weights_were_edited_does_not_hold(weighted):
    edited = json.loads(weighted.certificate_.to_json())
    edited["calibration"]["weights"]["ratios"] = "triple"

    certificate = dco.Certificate.from_json(json.dumps(edited))

    assert not certificate.verify(predictor=weighted).holds


def test_a_certificate_without_weights_does_not_hold_for_a_weighted_fit(weighted):
    assert not fit_line().certificate_.verify(predictor=weighted).holds


def test_label_weights_come_back_from_a_file(tmp_path):
    est = fit_classifier(*draw_labels(900, 5, 0.5), weights={0: 0.5, 1: 2.0})
    new_X, _ = draw_labels(100, 6, 0.3)

    dco.save(est, tmp_path / "model.dco")
    again = dco.load(tmp_path / "model.dco")

    assert again.certificate_ == est.certificate_
    np.testing.assert_array_equal(
        again.predict_set(new_X).to_dense(), est.predict_set(new_X).to_dense()
    )


# ---------------------------------------------------------------- no law of coverage


def test_an_evaluation_says_why_there_is_no_verdict(weighted):
    evaluation = weighted.evaluate(*draw_loads(300, 1, heavy=True))

    assert evaluation.verdict == "unchecked"
    assert "by its weight, and such sets have no known law" in str(evaluation)


def test_a_page_says_why_there_is_no_verdict(weighted):
    X, y = draw_loads(300, 1, heavy=True)

    page = page_html(weighted, X=X, y=y)

    assert "No law of coverage is known here: each row has a threshold of its own" in page
    assert "such sets have no known law of coverage" in page
    body = page.partition("<body")[2].partition("<script")[0]
    assert "clusters" not in body


def test_there_is_no_simultaneous_slack(weighted):
    with pytest.raises(ValueError, match="rows have weights"):
        weighted.certificate_.simultaneous_slack()


def test_a_monitor_refuses_what_has_no_law(weighted):
    with pytest.raises(ValueError, match="no known law"):
        dco.Monitor(weighted)


# ---------------------------------------------------------------- estimated weights


def test_estimated_weights_make_the_same_sets(weighted, estimated):
    new_X, _ = draw_loads(50, 1)

    np.testing.assert_array_equal(estimated.predict_set(new_X), weighted.predict_set(new_X))


def test_estimated_weights_certify_nothing(weighted, estimated):
    assert weighted.certificate_.guarantee == "marginal"
    assert estimated.certificate_.guarantee == "none"
    assert estimated.predictor_.calibration.conditions[0].threshold.guarantee == "none"
    assert "total variation" in estimated.certificate_.statement
    assert estimated.certificate_.verify(predictor=estimated).holds


def test_a_monitor_refuses_estimated_weights(estimated):
    with pytest.raises(ValueError, match="there is no promise to watch"):
        dco.Monitor(estimated)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guarantee": "pac"}, 'weights cannot be combined with guarantee="pac"'),
        ({"condition_on": 0}, "weights cannot be combined with condition_on"),
    ],
    ids=["pac", "conditions"],
)
def test_weights_have_neither_pac_statements_nor_conditions(options, message):
    with pytest.raises(ValueError, match=message):
        fit_line(weights=double, **options)


def test_weights_have_no_groups():
    est = dco.DecoupledRegressor(LinearRegression(), SCORE, weights=double)

    with pytest.raises(ValueError, match="groups= cannot be combined with weights="):
        est.fit(*draw_loads(400, 0), groups=np.arange(400))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(400), "weights must be a function of X or a dict"),
        (lambda X: np.ones(3), "one number for each of"),
        (lambda X: -X[:, 0], "must be finite and not negative"),
    ],
    ids=["array", "too few", "negative"],
)
def test_weights_are_a_number_for_each_row(weights, message):
    with pytest.raises(ValueError, match=message):
        fit_line(weights=weights)


def test_every_label_needs_a_weight():
    with pytest.raises(ValueError, match="weights lack the label 1"):
        fit_classifier(*draw_labels(300, 0, 0.5), weights={0: 1.0})


def test_p_values_are_not_known_for_weights(weighted):
    with pytest.raises(ValueError, match="p-values are not known for weights"):
        weighted.predict_p(*draw_loads(400, 0))


def test_pac_sets_of_a_weighted_fit_are_refused(weighted):
    X, _ = draw_loads(400, 0)
    with pytest.raises(ValueError, match='weights cannot be combined with guarantee="pac"'):
        weighted.predict_set(X, guarantee="pac")


COMPARING = {
    "divided by their sum": lambda X: X[:, 0] / X[:, 0].sum(),
    "divided by their mean": lambda X: X[:, 0] / X[:, 0].mean(),
    "divided by the largest": lambda X: X[:, 0] / X[:, 0].max(),
    "ranks": lambda X: 1.0 + np.argsort(np.argsort(X[:, 0])),
    "above the median": lambda X: np.where(X[:, 0] > np.median(X[:, 0]), 2.0, 1.0),
}


@pytest.mark.parametrize("weights", COMPARING.values(), ids=COMPARING)
@pytest.mark.parametrize("n_calibrate", [2, 20, 400])
def test_weights_that_compare_rows_are_refused(weights, n_calibrate):
    est = dco.DecoupledRegressor(
        LinearRegression(),
        SCORE,
        weights=weights,
        tune_size=0,
        calibrate_size=n_calibrate,
        random_state=0,
    )

    with pytest.raises(dco.SealBrokenError, match="weights gives a row another weight"):
        est.fit(*draw_loads(600, 0))


def test_recalibration_refuses_weights_that_compare_rows(weighted):
    weights = COMPARING["divided by their sum"]
    with pytest.raises(dco.SealBrokenError, match="weights gives a row another weight"):
        dco.recalibrate(weighted, *draw_loads(200, 100), weights=weights)


@pytest.mark.parametrize(
    "weights",
    [
        lambda X: 1e-200 * X[:, 0],
        lambda X: np.maximum(X[:, 0] - 0.5, 0.0),
        lambda X: (X.astype(np.float32) @ np.ones((1, 1), np.float32)).ravel(),
        dco.ShiftWeights(double, estimated=True),
    ],
    ids=["tiny", "some are 0", "single precision", "estimated"],
)
def test_weights_of_single_rows_are_accepted(weights):
    assert fit_line(weights=weights).certificate_.calibration.kind == "known weights"
