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
from dco.rows.rows import Rows
from dco.service.recalibration import recalibrate_scored
from dco.service.scored_batches import join_batches, score_batch
from dco.structure import rows_scored_again


def made(n: int, seed: int, *, noise: float = 1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + noise * rng.normal(size=n)


@pytest.fixture(scope="module")
def est():
    return dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), random_state=0).fit(
        *made(800, 0)
    )


def test_the_threshold_is_the_order_statistic_of_the_new_rows_and_nothing_else_changes(est):
    X, y = made(500, 1, noise=2.0)
    before = est.certificate_.to_json()
    new = dco.recalibrate(est, X, y)
    residuals = np.sort(np.abs(y - est.predict(X)))
    assert new.certificate_.thresholds[0].value == residuals[dco.conformal_rank(500, alpha=0.1) - 1]
    assert est.certificate_.to_json() == before  # the old one is as it was
    old, fresh = est.certificate_, new.certificate_
    assert fresh.replaces == old.fingerprint
    assert fresh.structure_fingerprint == old.structure_fingerprint
    assert (fresh.guarantee, fresh.rows) == ("marginal", {**old.rows, "calibrate": 500})
    np.testing.assert_array_equal(new.predict(X), est.predict(X))
    assert fresh.fingerprint in str(dco.recalibrate(new, *made(300, 2)).certificate_)  # a chain


def test_the_new_certificate_is_checked_with_its_rows_and_comes_back_from_json_and_files(
    est, tmp_path
):
    X, y = made(400, 1, noise=2.0)
    new = dco.recalibrate(est, X, y)
    assert new.certificate_.verify(X, y, predictor=new).holds
    assert not new.certificate_.verify(*made(400, 3), predictor=new).holds
    assert not new.certificate_.verify(predictor=est).holds
    text = new.certificate_.to_json()
    assert dco.Certificate.from_json(text) == new.certificate_
    dco.save(new, tmp_path / "new.dco")
    again = dco.load(tmp_path / "new.dco")
    assert again.certificate_ == new.certificate_
    np.testing.assert_array_equal(again.predict_set(X).upper, new.predict_set(X).upper)


def test_coverage_of_recalibrated_fits_has_its_beta_law(est):
    """200 recalibrations on 99 rows each, of noise that the fit never saw: coverage is Beta(90,
    10).
    """
    X, y = made(20_000, 5, noise=3.0)
    residuals = np.abs(y - est.predict(X))
    coverage = [
        np.mean(
            residuals
            <= dco.recalibrate(est, *made(99, 100 + seed, noise=3.0))
            .certificate_.thresholds[0]
            .value
        )
        for seed in range(200)
    ]
    assert kstest(coverage, beta(90, 10).cdf).pvalue > 0.01
    kept = np.mean(residuals <= est.certificate_.thresholds[0].value)
    assert kept < 0.5, "the old threshold fails on such rows"


def labelled(n: int, seed: int):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.where(X[:, 0] + rng.normal(size=n) > 0, "b", "a")


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
def test_conditions_and_guarantees_are_those_of_the_fit(guarantee):
    score = dco.scores.LAC()
    est = dco.DecoupledClassifier(
        LogisticRegression(), score, condition_on="label", guarantee=guarantee, random_state=0
    )
    X, y = labelled(300, 1)
    new = dco.recalibrate(est.fit(*labelled(600, 0)), X, y)
    scores = score.observed(new.predictor_.structure.prediction(X), y)
    thresholds = {entry.group: entry for entry in new.certificate_.thresholds}
    for label in ("a", "b"):
        own = np.sort(scores[y == label])
        ranks = {
            "marginal": dco.conformal_rank(len(own), alpha=0.1),
            "pac": dco.pac_rank(len(own), alpha=0.1, delta=0.05),
        }
        assert thresholds[label].value == own[ranks[guarantee] - 1]
    assert new.certificate_.guarantee == guarantee


def test_a_label_that_the_model_never_saw_scores_infinity():
    est = dco.DecoupledClassifier(LogisticRegression(), dco.scores.LAC(), random_state=0).fit(
        *labelled(400, 0)
    )
    fresh, y = labelled(100, 1)[0], np.array(["a", "b"] * 48 + ["c"] * 4)
    with pytest.warns(UserWarning, match="never saw"):
        new = dco.recalibrate(est, fresh, y)
    assert (new.classes_.tolist(), est.classes_.tolist()) == (["a", "b", "c"], ["a", "b"])
    assert np.isinf(new.predictor_.calibration.scored.scores).sum() == np.sum(y == "c")
    with pytest.raises(ValueError, match="those of the new rows are numbers"):
        dco.recalibrate(est, fresh, np.arange(100) % 2)


def test_gaps_in_the_new_rows_are_no_news_afterwards():
    X, y = made(400, 0)
    model = make_pipeline(SimpleImputer(), Ridge())
    est = dco.DecoupledRegressor(model, dco.scores.AbsoluteResidual(), random_state=0).fit(X, y)
    gaps = np.where(np.arange(3) == 1, np.nan, made(300, 1)[0])
    new = dco.recalibrate(est, gaps[:200], gaps[:200, 0])
    with pytest.warns(NoteWarning, match="1 column had no missing value in the fit"):
        est.predict_set(gaps[200:])
    new.predict_set(gaps[200:])  # warnings are errors


def test_groups_go_on_and_rows_of_the_fit_are_refused(est):
    X, y = made(400, 7)
    groups = np.arange(400) // 4
    grouped = dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), random_state=0).fit(
        X, y, groups=groups
    )
    fresh = made(200, 8)
    new = dco.recalibrate(grouped, *fresh, groups=np.arange(200) // 2)
    assert new.certificate_.thresholds[0].n == 100
    assert new.certificate_.verify(*fresh, predictor=new).holds
    with pytest.raises(ValueError, match="The fit had groups="):
        dco.recalibrate(grouped, *fresh)
    with pytest.raises(ValueError, match="The fit had no groups="):
        dco.recalibrate(est, *fresh, groups=np.arange(200))
    used = made(800, 0)
    with pytest.raises(
        dco.OverlappingRolesError,
        match=r"600 rows of 800 took part .* \(400 in "
        r"train, 200 in tune\)",
    ):
        dco.recalibrate(est, *used)
    rows = est.splits_.calibrate  # these trained nothing: the same rows give the same threshold
    again = dco.recalibrate(est, used[0][rows], used[1][rows])
    assert again.certificate_.thresholds == est.certificate_.thresholds


def test_bad_input_gets_one_sentence(est):
    X, y = made(50, 1)
    for given, rows, sentence in (
        (dco.DecoupledRegressor(Ridge()), (X, y), "not fitted"),
        (est, (X[:, :2], y), "X has 2 features"),
        (est, (X, y[:40]), "give one target per row"),
    ):
        with pytest.raises(ValueError, match=sentence):
            dco.recalibrate(given, *rows)
    with pytest.warns(dco.InfeasibleLevelWarning, match="5 calibration rows are too few"):
        assert dco.recalibrate(est, X[:5], y[:5]).certificate_.thresholds[0].value == np.inf


def test_a_monitor_begins_anew_with_the_new_rows(est):
    monitor = dco.Monitor(est)
    assert monitor.update(*made(600, 11, noise=2.0)).alarm
    new = dco.recalibrate(est, *made(400, 12, noise=2.0))
    assert not dco.Monitor(new).update(*made(600, 13, noise=2.0)).alarm
    with pytest.raises(ValueError, match="state is of a monitor of another fit"):
        dco.Monitor(new, state=monitor.state())


class Alone(RegressorMixin, BaseEstimator):
    """The first feature; of a row that comes alone, rounded otherwise."""

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return np.round(X[:, 0], 1) + (2.0**-40 if len(X) == 1 else 0.0)


@pytest.mark.parametrize("cuts", [[], [2], [200, 210, 498]])
def test_rows_that_are_scored_in_batches_give_the_same_calibration(cuts):
    """Ties included: the rows that are scored again, alone, say by how much scores are raised."""
    est = dco.DecoupledRegressor(Alone(), dco.scores.AbsoluteResidual(), random_state=0).fit(
        *made(400, 0)
    )
    X, y = made(500, 1)
    y = y.round(1)
    whole = dco.recalibrate(est, X, y).predictor_
    again, batches, start = np.union1d(*rows_scored_again(500)), [], 0
    for stop in [*cuts, 500]:
        rows, own = (
            Rows(X[start:stop], y[start:stop]),
            again[(again >= start) & (again < stop)] - start,
        )
        batches.append(score_batch(est.predictor_, rows, score_again=own))
        start = stop
    parts = recalibrate_scored(est, join_batches(batches)).predictor_
    assert parts.calibration.scored.rounding == whole.calibration.scored.rounding > 2.0**-39
    assert replace(parts.certificate, seal_log=()) == replace(whole.certificate, seal_log=())
    np.testing.assert_array_equal(parts.calibration.scored.scores, whole.calibration.scored.scores)
    for mine, theirs in zip(parts.kept.hashes.values(), whole.kept.hashes.values(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
