"""`weights=` in estimators: the weighted rule, stated on the certificate. The rule itself:
test_known_shift.py.
"""

import json

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import dco

SCORE = dco.scores.AbsoluteResidual()


def heavier(X):
    return 2 * X[:, 0]


def loads(n: int, seed: int, *, heavy: bool = False):
    """Loads from 0 to 1, even or with density 2x; heavy ones are noisier."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=n)
    x = np.sqrt(x) if heavy else x
    return x[:, None], 3 * x + (0.2 + x) * rng.normal(size=n)


def labels(n: int, seed: int, share: float):
    rng = np.random.default_rng(seed)
    y = (rng.uniform(size=n) < share).astype(int)
    return (2 * y + 1.5 * rng.normal(size=n))[:, None], y


def fitted(**parameters):
    return dco.DecoupledRegressor(LinearRegression(), SCORE, random_state=0, **parameters).fit(
        *loads(1200, 0)
    )


def classifier(*rows, **parameters):
    return dco.DecoupledClassifier(
        LogisticRegression(), dco.scores.LAC(), random_state=0, **parameters
    ).fit(*rows)


def test_the_sets_are_those_of_the_weighted_rule():
    est, (X, y), new = fitted(weights=heavier), loads(1200, 0), loads(300, 1, heavy=True)[0]
    rows = est.splits_.calibrate
    scores, points = np.abs(y[rows] - est.predict(X[rows])), dco.Points(est.predict(new))
    for alpha in (0.1, 0.2):
        wanted = SCORE.sets(
            points, dco.weighted_conformal(scores, heavier(X[rows]), heavier(new), alpha=alpha)
        )
        np.testing.assert_array_equal(est.predict_set(new, alpha=alpha), wanted)


def test_equal_weights_are_split_conformal_to_the_last_bit():
    new = loads(300, 1)[0]
    weighed = fitted(weights=lambda X: np.full(len(X), 0.3))
    np.testing.assert_array_equal(fitted().predict_set(new), weighed.predict_set(new))


def test_the_sets_of_labels_are_those_of_the_weighted_rule():
    """By the label of each calibration row and of each label that is tried, or by x."""
    (X, y), new, ratio = (
        labels(900, 4, 0.3),
        labels(200, 3, 0.8)[0],
        np.array([0.2 / 0.7, 0.8 / 0.3]),
    )
    tilt = lambda X: np.exp(0.3 * X[:, 0])  # noqa: E731
    for given in (dict(enumerate(ratio)), tilt):
        est, score = classifier(X, y, weights=given), dco.scores.LAC()
        rows, (known, asked) = (
            est.splits_.calibrate,
            (dco.ClassProbabilities(est.predict_proba(each)) for each in (X, new)),
        )
        old, own = (tilt(X), tilt(new)[:, None]) if given is tilt else (ratio[y], ratio[None, :])
        wanted = dco.weighted_conformal(score.observed(known, y)[rows], old[rows], own, alpha=0.1)
        assert np.array_equal(est.predict_set(new).to_dense(), score.sets(asked, wanted).to_dense())


def test_weights_of_the_fit_say_nothing_of_new_calibration_rows():
    est, (X, y) = fitted(weights=heavier), loads(200, 100)
    new = dco.recalibrate(est, X, y)
    assert new.certificate_.calibration.kind != "known weights"
    assert new.certificate_.thresholds[0].rank == 181
    assert new.get_params()["weights"] is None


def test_the_certificate_states_the_weights_and_is_checked(tmp_path):
    est, (X, y) = fitted(weights=heavier), loads(1200, 0)
    certificate, rows = est.certificate_, est.splits_.calibrate
    assert certificate.statement.endswith("at least 90 %, given the stated weights.")
    assert "y given x is as before" in certificate.assumption
    weights = certificate.calibration.weights
    assert (weights.of, weights.given, weights.estimated) == (
        "x",
        "heavier",
        False,
    )
    w = heavier(X[rows])
    assert weights.effective_n == pytest.approx(w.sum() ** 2 / np.sum(w**2))
    assert weights.most == pytest.approx(w.max() / w.mean())
    assert certificate.verify(X[rows], y[rows], predictor=est).holds
    assert dco.Certificate.from_json(certificate.to_json()) == certificate
    edited = json.loads(certificate.to_json())
    edited["calibration"]["weights"]["given"] = "lighter"
    assert not dco.Certificate.from_json(json.dumps(edited)).verify(predictor=est).holds
    assert not fitted().certificate_.verify(predictor=est).holds
    assert "300 calibration rows have the effect of" in str(certificate)


def test_evaluation_and_page_say_why_there_is_no_verdict():
    from dco.report.page import page_html

    est, (X, y) = fitted(weights=heavier), loads(300, 1, heavy=True)
    assert "by its weight, and such sets have no known law" in str(est.evaluate(X, y))
    page = page_html(est, X=X, y=y)
    assert "No law of coverage is known here: each row has a threshold of its own" in page
    assert "such sets have no known law of coverage" in page
    assert "clusters" not in page.partition("<body")[2].partition("<script")[0]
    with pytest.raises(ValueError, match="rows have weights"):
        est.certificate_.simultaneous_slack()


def test_label_weights_come_back_from_a_file(tmp_path):
    est, (X, _) = classifier(*labels(900, 5, 0.5), weights={0: 0.5, 1: 2.0}), labels(100, 6, 0.3)
    dco.save(est, tmp_path / "model.dco")
    again = dco.load(tmp_path / "model.dco")
    np.testing.assert_array_equal(again.predict_set(X).to_dense(), est.predict_set(X).to_dense())
    assert again.certificate_ == est.certificate_


def test_estimated_weights_make_the_same_sets_and_certify_nothing():
    known, guessed = (
        fitted(weights=heavier),
        fitted(weights=dco.ShiftWeights(heavier, estimated=True)),
    )
    new = loads(50, 1)[0]
    np.testing.assert_array_equal(known.predict_set(new).lower, guessed.predict_set(new).lower)
    assert (known.certificate_.guarantee, guessed.certificate_.guarantee) == ("marginal", "none")
    assert guessed.predictor_.calibration.conditions[0].threshold.guarantee == "none"
    assert "total variation" in guessed.certificate_.statement
    assert guessed.certificate_.verify(predictor=guessed).holds
    with pytest.raises(ValueError, match="there is no promise to watch"):
        dco.Monitor(guessed)
    with pytest.raises(ValueError, match="no known law"):
        dco.Monitor(known)


@pytest.mark.parametrize(
    ("weights", "options", "rows", "said"),
    [
        (heavier, {"guarantee": "pac"}, {}, 'weights cannot be combined with guarantee="pac"'),
        (heavier, {"condition_on": 0}, {}, "weights cannot be combined with condition_on"),
        (heavier, {}, {"groups": np.arange(400)}, "groups= cannot be combined with weights="),
        (np.ones(400), {}, {}, "weights must be a function of X or a dict"),
        (lambda X: np.ones(3), {}, {}, "one number for each of"),
        (lambda X: -X[:, 0], {}, {}, "must be finite and not negative"),
    ],
)
def test_what_is_not_known_is_refused(weights, options, rows, said):
    est = dco.DecoupledRegressor(LinearRegression(), SCORE, weights=weights, **options)
    with pytest.raises(ValueError, match=said):
        est.fit(*loads(400, 0), **rows)


def test_what_is_not_known_of_a_fit_is_refused():
    (X, y), est = loads(400, 0), fitted(weights=heavier)
    with pytest.raises(ValueError, match="p-values are not known for weights"):
        est.predict_p(X, y)
    with pytest.raises(ValueError, match='weights cannot be combined with guarantee="pac"'):
        est.predict_set(X, guarantee="pac")
    with pytest.raises(ValueError, match="weights lack the label 1"):
        classifier(*labels(300, 0, 0.5), weights={0: 1.0})


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
        est.fit(*loads(600, 0))


def test_recalibrate_refuses_weights_that_compare_rows():
    with pytest.raises(dco.SealBrokenError, match="weights gives a row another weight"):
        dco.recalibrate(fitted(), *loads(200, 100), weights=COMPARING["divided by their sum"])


FIXED = {
    "tiny": lambda X: 1e-200 * X[:, 0],
    "some are 0": lambda X: np.maximum(X[:, 0] - 0.5, 0.0),
    "single precision": lambda X: (X.astype(np.float32) @ np.ones((1, 1), np.float32)).ravel(),
    "estimated": dco.ShiftWeights(heavier, estimated=True),
}


@pytest.mark.parametrize("weights", FIXED.values(), ids=FIXED)
def test_weights_of_single_rows_are_accepted(weights):
    assert fitted(weights=weights).certificate_.calibration.kind == "known weights"
