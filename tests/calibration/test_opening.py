"""What the calibration step guards against: rounding that depends on the batch, groups that do,
labels that nobody has.
"""

import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

import dco
from dco.calibration.opening import open_calibration_rows
from dco.calibration.statement import make_statement
from dco.foundations.errors import SealBrokenError
from dco.foundations.fingerprints import row_uniforms
from dco.rows.seal import SealedRows
from dco.rows.splits import assign_roles
from dco.scores import LAC, AbsoluteResidual, TopK


class RoundsOtherwiseAlone(ClassifierMixin, BaseEstimator):
    """Three kinds of rows; the probabilities of a row that comes alone are off by a last digit, as
    in a matrix product.
    """

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        p = np.asarray([0.61, 0.53, 0.83])[np.asarray(X)[:, 0].astype(int)]
        if len(p) == 1:
            p = np.nextafter(p, 0.0)
        return np.column_stack([p, 1 - p])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.mark.filterwarnings("ignore:On the tuning rows")  # a class is left behind
def test_rows_with_the_score_at_the_threshold_are_not_lost_when_they_come_alone():
    rng = np.random.default_rng(0)
    X = rng.integers(3, size=(900, 1)).astype(float)
    y = (rng.uniform(size=900) > np.asarray([0.61, 0.53, 0.83])[X[:, 0].astype(int)]).astype(int)
    est = dco.DecoupledClassifier(RoundsOtherwiseAlone(), [LAC()], alpha=0.35, random_state=0).fit(
        X, y
    )
    new = np.arange(3.0)[:, None]
    together = est.predict_set(new).to_lists()
    assert together == [[0], [0], [0]]  # the threshold is 1 - 0.53 in the second kind of rows
    assert [est.predict_set(new[i : i + 1]).to_lists()[0] for i in range(3)] == together
    rows = est.splits_.calibrate
    assert est.certificate_.verify(X[rows], y[rows], predictor=est).holds


class SinglePrecisionInside(RegressorMixin, BaseEstimator):
    """Computes in float32 and answers in float64, as wrappers of networks do."""

    def fit(self, X, y):
        self.weights_ = np.linalg.lstsq(X, y)[0].astype(np.float32)
        return self

    def predict(self, X):
        return (np.asarray(X, dtype=np.float32) @ self.weights_).astype(np.float64)


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_computes_in_single_precision_passes_its_own_audit(copies, seed):
    """Of copies in one role the scores are tied, and raised by what batches round differently; the
    audit knows it.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 200))
    y = X @ rng.normal(size=200) + rng.normal(size=500)
    X, y = np.tile(X, (copies, 1)), np.tile(y, copies)
    est = dco.DecoupledRegressor(
        SinglePrecisionInside(), [AbsoluteResidual()], alpha=0.1, random_state=seed
    ).fit(X, y)
    assert (est.predictor_.calibration.scored.rounding > 0) == (copies > 1)
    given = est.splits_.calibrate
    for rows in (given, np.sort(given), given[::-1]):
        report = est.certificate_.verify(X[rows], y[rows], predictor=est)
        assert report.holds, str(report)
    est.predictor_.calibration.scored.scores[:] -= (
        est.predictor_.calibration.scored.rounding + 1e-4
    )  # more than rounding
    assert not est.certificate_.verify(X[given], y[given], predictor=est).holds


class SwapsLabelsAlone(RoundsOtherwiseAlone):
    """Two labels a last digit apart: alone, the second comes first."""

    def predict_proba(self, X):
        p = np.tile([0.4, 0.4, 0.2], (len(X), 1))
        p[:, int(len(X) == 1)] = np.nextafter(0.4, 1.0)
        return p


@pytest.mark.filterwarnings("ignore:On the tuning rows")  # a class is left behind
def test_a_jump_in_rank_is_not_taken_for_rounding():
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(300, 1)), rng.choice(3, p=[0.4, 0.4, 0.2], size=300)
    est = dco.DecoupledClassifier(SwapsLabelsAlone(), [TopK()], alpha=0.3, random_state=0).fit(X, y)
    assert est.certificate_.thresholds[0].value == 2.0


def test_groups_that_depend_on_the_other_rows_are_refused():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(400, 2)), rng.normal(size=400)
    moving = dco.DecoupledRegressor(
        Ridge(), alpha=0.1, condition_on=lambda X: X[:, 0] > np.median(X[:, 0]), random_state=0
    )
    with pytest.raises(SealBrokenError, match="another group when it comes with other rows"):
        moving.fit(X, y)
    fixed = dco.DecoupledRegressor(
        Ridge(), alpha=0.1, condition_on=lambda X: X[:, 0] > 0, random_state=0
    ).fit(X, y)
    assert len(fixed.certificate_.thresholds) == 2


@pytest.mark.parametrize("change", [{"score": TopK()}, {"uniform_seed": 7}])
def test_a_structure_that_was_changed_does_not_verify_even_without_rows(change):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    predictor = (
        dco.DecoupledClassifier(KNeighborsClassifier(), [LAC()], alpha=0.2, random_state=0)
        .fit(X, y)
        .predictor_
    )
    assert predictor.certificate.verify(predictor=predictor).holds
    changed = replace(predictor, structure=replace(predictor.structure, **change))
    assert not predictor.certificate.verify(predictor=changed).holds


def test_another_condition_than_the_certified_one_is_seen():
    rng = np.random.default_rng(5)
    X = rng.integers(0, 2, size=(400, 2)).astype(float)
    predictor = (
        dco.DecoupledRegressor(Ridge(), condition_on=0, random_state=0)
        .fit(X, rng.normal(size=400))
        .predictor_
    )
    calibrator = make_statement(0.1, condition_on=1).calibrator
    changed = replace(predictor, statement=replace(predictor.statement, calibrator=calibrator))
    assert predictor.certificate.verify(predictor=predictor).holds
    assert not predictor.certificate.verify(predictor=changed).holds


def test_the_tied_groups_are_named():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=400), rng.integers(0, 2, size=400)])
    y = np.where(X[:, 1] == 0, rng.normal(size=400), np.sign(rng.normal(size=400)))
    zero = DummyRegressor(strategy="constant", constant=0.0)
    est = dco.DecoupledRegressor(
        zero, [AbsoluteResidual()], alpha=0.2, condition_on=1, random_state=0
    ).fit(X, y)
    assert [entry.expected_is_exact for entry in est.certificate_.thresholds] == [True, False]
    assert [law.is_tied for law in est.predictor_.calibration.laws().values()] == [False, True]


def test_which_row_speaks_for_its_group_does_not_follow_from_the_roles():
    """Four groups of two rows: in each of twelve splits the picks from two calibration groups are
    two fair coins.

    Drawn with the seed of the roles they were not (chi^2 near 500); the limit is the 99.9 % point
    for 33 degrees of freedom.
    """
    groups = np.repeat(np.arange(4), 2)
    structure: Any = SimpleNamespace(
        name="a",
        fingerprint="a",
        score=AbsoluteResidual(),
        classes=None,
        scores=lambda X, y: X[:, 0],
    )
    calibrator = make_statement(0.1, is_clustered=True).calibrator
    counts: Counter[tuple[Any, ...]] = Counter()
    for seed in range(500):
        roles = assign_roles(8, tune=0.25, calibrate=0.5, groups=groups, random_state=seed)
        rows = roles.calibrate
        sealed = SealedRows(rows[:, None], rows, clusters=groups[rows])
        opened = open_calibration_rows(structure, sealed, calibrator, support=None, seed=seed)
        counts[
            *groups[roles.train[:1]],
            *groups[roles.tune[:1]],
            *(rows[opened.scored.one_per_cluster] % 2),
        ] += 1
    splits = Counter(key[:2] for key in counts.elements())
    table = np.array(
        [[counts[*split, *coins] for coins in product((0, 1), repeat=2)] for split in splits]
    )
    assert table.shape == (12, 4)
    assert chi2_contingency(table).statistic < chi2.ppf(0.999, 33)


class HalfSets(AbsoluteResidual):
    """A score whose sets are half as wide as its own numbers ask for."""

    def sets(self, prediction, threshold):
        return AbsoluteResidual().sets(prediction, 0.5 * float(threshold))


def test_a_score_that_went_through_without_tuning_rows_is_checked_when_it_is_calibrated():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), rng.normal(size=200)
    with pytest.raises(ValueError, match="the sets of HalfSets leave out"):
        dco.DecoupledRegressor(Ridge(), HalfSets(), tune_size=0, random_state=0).fit(X, y)


def test_the_uniforms_of_a_structure_come_from_its_seed():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.integers(3, size=300)
    score = dco.scores.APS(randomised=True)
    fits = [
        dco.DecoupledClassifier(GaussianNB(), score, random_state=seed)
        .fit(X, y)
        .predictor_.structure
        for seed in (0, 1)
    ]
    for structure in fits:
        np.testing.assert_array_equal(
            structure.prediction(X).uniforms, row_uniforms(X, seed=structure.uniform_seed)
        )
    assert fits[0].uniform_seed != fits[1].uniform_seed


@pytest.mark.parametrize(
    ("dtype", "settings"), [("float64", {}), ("float64", {"tune_folds": 5}), ("float32", {})]
)
def test_a_fit_needs_at_most_one_and_a_half_times_its_table_beside_it(dtype, settings):
    """Training and tuning rows are copied, calibration rows only once the structure is fixed; a
    fold is one more copy.
    """
    X, y = np.random.default_rng(0).normal(size=(150_000, 20)).astype(dtype), np.zeros(150_000)
    model = DummyRegressor()
    # loads modules
    dco.DecoupledRegressor(model, AbsoluteResidual(), random_state=0, **settings).fit(
        X[:1000], y[:1000]
    )
    tracemalloc.start()
    try:
        dco.DecoupledRegressor(model, AbsoluteResidual(), random_state=0, **settings).fit(X, y)
        assert tracemalloc.get_traced_memory()[1] <= 1.5 * (X.nbytes + y.nbytes)
    finally:
        tracemalloc.stop()
