"""Recalibration: the same structure, new calibration rows, and a certificate that names the old
one. Seeds are fixed.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta, kstest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline

import dco
from dco.foundations.notes import NoteWarning
from dco.recalibration import choose_rows_to_score_again, recalibrate_scored, score_batch


def draw_rows(n, seed, *, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + noise * rng.normal(size=n)


def draw_labels(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.where(X[:, 0] + rng.normal(size=n) > 0, "b", "a")


def ridge(**parameters):
    return dco.DecoupledRegressor(
        Ridge(), dco.scores.AbsoluteResidual(), random_state=0, **parameters
    )


def classifier(**parameters):
    return dco.DecoupledClassifier(
        LogisticRegression(), dco.scores.LAC(), random_state=0, **parameters
    )


@pytest.fixture(scope="module")
def est():
    return ridge().fit(*draw_rows(800, 0))


@pytest.fixture(scope="module")
def new_rows():
    return draw_rows(500, 1, noise=2.0)


@pytest.fixture(scope="module")
def new(est, new_rows):
    return dco.recalibrate(est, *new_rows)


# ---------------------------------------------------------------- what changes


def test_the_threshold_is_the_order_statistic_of_the_new_rows(est, new, new_rows):
    X, y = new_rows
    residuals = np.sort(np.abs(y - est.predict(X)))
    rank = dco.conformal_rank(500, alpha=0.1)
    assert new.certificate_.thresholds[0].value == residuals[rank - 1]


def test_the_estimator_stays_as_it_is(est, new_rows):
    before = est.certificate_.to_json()
    dco.recalibrate(est, *new_rows)
    assert est.certificate_.to_json() == before


def test_the_structure_stays_and_the_rows_are_new(est, new, new_rows):
    old = est.certificate_
    assert new.certificate_.structure == old.structure
    assert new.certificate_.provenance.rows == {**old.provenance.rows, "calibrate": 500}
    np.testing.assert_array_equal(new.predict(new_rows[0]), est.predict(new_rows[0]))


def test_each_certificate_names_the_one_it_replaces(est, new):
    assert new.certificate_.provenance.replaces == est.certificate_.fingerprint
    newest = dco.recalibrate(new, *draw_rows(300, 2))
    assert newest.certificate_.provenance.replaces == new.certificate_.fingerprint
    assert new.certificate_.fingerprint in str(newest.certificate_)


def test_the_new_certificate_holds_for_its_rows_alone(est, new, new_rows):
    assert new.certificate_.verify(*new_rows, predictor=new).holds
    assert not new.certificate_.verify(*draw_rows(500, 3), predictor=new).holds
    assert not new.certificate_.verify(predictor=est).holds


def test_the_new_fit_comes_back_from_a_file(new, new_rows, tmp_path):
    dco.save(new, tmp_path / "new.dco")
    again = dco.load(tmp_path / "new.dco")
    assert again.certificate_ == new.certificate_
    np.testing.assert_array_equal(
        again.predict_set(new_rows[0]).upper, new.predict_set(new_rows[0]).upper
    )


def test_coverage_of_recalibrated_fits_has_its_beta_law(est):
    """200 recalibrations on 99 rows each, of noise that the fit never saw: Beta(90, 10)."""
    X, y = draw_rows(20_000, 5, noise=3.0)
    residuals = np.abs(y - est.predict(X))
    coverage = []
    for seed in range(200):
        again = dco.recalibrate(est, *draw_rows(99, 100 + seed, noise=3.0))
        coverage.append(np.mean(residuals <= again.certificate_.thresholds[0].value))
    assert kstest(coverage, beta(90, 10).cdf).pvalue > 0.01
    assert np.mean(residuals <= est.certificate_.thresholds[0].value) < 0.5  # the old one fails


# ---------------------------------------------------------------- what stays


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
def test_conditions_and_guarantees_are_those_of_the_fit(guarantee):
    est = classifier(condition_on="label", guarantee=guarantee).fit(*draw_labels(600, 0))
    X, y = draw_labels(300, 1)
    new = dco.recalibrate(est, X, y)
    scores = 1 - new.predict_proba(X)[np.arange(300), np.searchsorted(new.classes_, y)]
    for threshold in new.certificate_.thresholds:
        ordered = np.sort(scores[y == threshold.group])
        rank = {
            "marginal": dco.conformal_rank(len(ordered), alpha=0.1),
            "pac": dco.pac_rank(len(ordered), alpha=0.1, delta=0.05),
        }[guarantee]
        assert threshold.value == pytest.approx(ordered[rank - 1], abs=1e-12)
    assert new.certificate_.guarantee == guarantee


def test_a_guarantee_of_none_is_not_washed_off():
    """Estimated weights guarantee nothing, on the calibration rows of the fit as on others."""
    weights = dco.ShiftWeights(lambda X: np.exp(X[:, 0]), estimated=True)
    X, y = draw_rows(800, 0)
    est = ridge(weights=weights).fit(X, y)
    rows = est.splits_.calibrate
    again = dco.recalibrate(est, X[rows], y[rows], weights=weights)
    assert est.certificate_.guarantee == again.certificate_.guarantee == "none"
    assert again.certificate_.reason == est.certificate_.reason


def test_the_same_rows_give_the_same_threshold(est):
    X, y = draw_rows(800, 0)
    rows = est.splits_.calibrate
    again = dco.recalibrate(est, X[rows], y[rows])
    assert again.certificate_.thresholds == est.certificate_.thresholds


def test_a_label_that_the_model_never_saw_scores_infinity():
    est = classifier().fit(*draw_labels(400, 0))
    X = draw_labels(100, 1)[0]
    y = np.array(["a", "b"] * 48 + ["c"] * 4)
    with pytest.warns(UserWarning, match="never saw"):
        new = dco.recalibrate(est, X, y)
    assert new.classes_.tolist() == ["a", "b", "c"]
    assert est.classes_.tolist() == ["a", "b"]
    assert np.isinf(new.predictor_.calibration.scored.scores).sum() == 4


def test_gaps_in_the_new_rows_are_no_news_afterwards():
    model = make_pipeline(SimpleImputer(), Ridge())
    est = dco.DecoupledRegressor(model, dco.scores.AbsoluteResidual(), random_state=0)
    est.fit(*draw_rows(400, 0))
    with_gaps = np.where(np.arange(3) == 1, np.nan, draw_rows(300, 1)[0])
    new = dco.recalibrate(est, with_gaps[:200], with_gaps[:200, 0])
    with pytest.warns(NoteWarning, match="1 column had no missing value in the fit"):
        est.predict_set(with_gaps[200:])
    new.predict_set(with_gaps[200:])  # warnings are errors


def test_a_monitor_begins_anew_with_the_new_rows(est):
    monitor = dco.Monitor(est)
    assert monitor.update(*draw_rows(600, 11, noise=2.0)).alarm
    new = dco.recalibrate(est, *draw_rows(400, 12, noise=2.0))
    assert not dco.Monitor(new).update(*draw_rows(600, 13, noise=2.0)).alarm
    with pytest.raises(ValueError, match="state is of a monitor of another fit"):
        dco.Monitor(new, state=monitor.state())


# ---------------------------------------------------------------- groups


@pytest.fixture(scope="module")
def grouped():
    return ridge().fit(*draw_rows(400, 7), groups=np.arange(400) // 4)


def test_groups_go_on(grouped):
    rows = draw_rows(200, 8)
    new = dco.recalibrate(grouped, *rows, groups=np.arange(200) // 2)
    assert new.certificate_.thresholds[0].n == 100
    assert new.certificate_.verify(*rows, predictor=new).holds


def test_groups_come_if_the_fit_had_them_and_only_then(grouped, est):
    with pytest.raises(ValueError, match="The fit had groups="):
        dco.recalibrate(grouped, *draw_rows(200, 8))
    with pytest.raises(ValueError, match="The fit had no groups="):
        dco.recalibrate(est, *draw_rows(200, 8), groups=np.arange(200))


# ---------------------------------------------------------------- what is refused


def test_rows_of_the_fit_are_refused(est):
    sentence = r"600 rows of 800 took part .* \(400 in train, 200 in tune\)"
    with pytest.raises(dco.OverlappingRolesError, match=sentence):
        dco.recalibrate(est, *draw_rows(800, 0))


def test_labels_of_another_kind_are_refused():
    est = classifier().fit(*draw_labels(400, 0))
    with pytest.raises(ValueError, match="those of the new rows are numbers"):
        dco.recalibrate(est, draw_labels(100, 1)[0], np.arange(100) % 2)


def test_an_unfitted_estimator_is_refused():
    with pytest.raises(ValueError, match="not fitted"):
        dco.recalibrate(ridge(), *draw_rows(50, 1))


@pytest.mark.parametrize(
    ("n_columns", "n_targets", "sentence"),
    [(2, 50, "X has 2 features"), (3, 40, "give one target per row")],
    ids=["columns", "targets"],
)
def test_rows_of_another_shape_are_refused(est, n_columns, n_targets, sentence):
    X, y = draw_rows(50, 1)
    with pytest.raises(ValueError, match=sentence):
        dco.recalibrate(est, X[:, :n_columns], y[:n_targets])


def test_too_few_rows_give_full_sets_with_a_warning(est):
    with pytest.warns(dco.InfeasibleLevelWarning, match="5 calibration rows are too few"):
        new = dco.recalibrate(est, *draw_rows(5, 1))
    assert new.certificate_.thresholds[0].value == np.inf


# ---------------------------------------------------------------- rows scored in batches


class RoundsRowsAlone(RegressorMixin, BaseEstimator):
    """The first feature; of a row that comes alone, rounded otherwise."""

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return np.round(X[:, 0], 1) + (2.0**-40 if len(X) == 1 else 0.0)


def score_in_batches(est, X, y, stops):
    """Score rows in batches that end before these rows."""
    score_again = choose_rows_to_score_again(len(y))
    batches = []
    start = 0
    for stop in stops:
        is_here = (score_again >= start) & (score_again < stop)
        batches.append(
            score_batch(est, X[start:stop], y[start:stop], score_again=score_again[is_here] - start)
        )
        start = stop
    return batches


@pytest.mark.parametrize("stops", [[500], [2, 500], [200, 210, 498, 500]], ids=str)
def test_rows_that_are_scored_in_batches_give_the_same_calibration(stops):
    """Ties included: the rows that are scored again, alone, say by how much scores are raised."""
    est = dco.DecoupledRegressor(
        RoundsRowsAlone(), dco.scores.AbsoluteResidual(), random_state=0
    ).fit(*draw_rows(400, 0))
    X, y = draw_rows(500, 1)
    y = y.round(1)

    whole = dco.recalibrate(est, X, y).predictor_
    parts = recalibrate_scored(est, score_in_batches(est, X, y, stops)).predictor_

    scored = parts.calibration.scored
    assert scored.rounding == whole.calibration.scored.rounding > 2.0**-39
    np.testing.assert_array_equal(scored.scores, whole.calibration.scored.scores)
    both = (parts.certificate, whole.certificate)
    assert both[0].calibration == both[1].calibration
    assert both[0].structure == both[1].structure
    without_time = [replace(certificate.provenance, seal_log=()) for certificate in both]
    assert without_time[0] == without_time[1]
    for role, hashes in parts.kept_rows.hashes.items():
        np.testing.assert_array_equal(hashes, whole.kept_rows.hashes[role])
