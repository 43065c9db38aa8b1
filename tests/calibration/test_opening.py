"""What the calibration step guards against: rounding that depends on the batch, groups that do,
labels that nobody has.
"""

import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

import dco
from dco.calibration.statement import make_statement
from dco.foundations.fingerprints import row_uniforms
from dco.scores import APS, LAC, AbsoluteResidual, TopK

CHANCES = np.asarray([0.61, 0.53, 0.83])  # of label 0 in three kinds of rows


class RoundsOtherwiseAlone(ClassifierMixin, BaseEstimator):
    """Three kinds of rows; the probabilities of a row that comes alone are off by a last digit, as
    in a matrix product.
    """

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        p = CHANCES[np.asarray(X)[:, 0].astype(int)]
        if len(p) == 1:
            p = np.nextafter(p, 0.0)
        return np.column_stack([p, 1 - p])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.fixture(scope="module")
def rounded_alone():
    """Fit a model that rounds rows otherwise alone; the threshold is 1 - 0.53, the score of the
    second kind of rows.
    """
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=900)
    X = kind[:, None].astype(float)
    y = (rng.uniform(size=900) > CHANCES[kind]).astype(int)
    est = dco.DecoupledClassifier(RoundsOtherwiseAlone(), [LAC()], alpha=0.35, random_state=0)
    return est.fit(X, y), X, y


ignore_low_classes = pytest.mark.filterwarnings("ignore:On the tuning rows")


@ignore_low_classes
def test_rows_with_the_score_at_the_threshold_are_in_the_set(rounded_alone):
    est, _, _ = rounded_alone

    assert est.predict_set([[0.0], [1.0], [2.0]]).to_lists() == [[0], [0], [0]]


@ignore_low_classes
@pytest.mark.parametrize("kind", [0.0, 1.0, 2.0])
def test_rows_with_the_score_at_the_threshold_are_not_lost_when_they_come_alone(
    rounded_alone, kind
):
    est, _, _ = rounded_alone

    assert est.predict_set([[kind]]).to_lists() == [[0]]


@ignore_low_classes
def test_a_model_that_rounds_otherwise_alone_passes_its_audit(rounded_alone):
    est, X, y = rounded_alone
    rows = est.splits_.calibrate

    assert est.certificate_.verify(X[rows], y[rows], predictor=est).holds


class SinglePrecisionInside(RegressorMixin, BaseEstimator):
    """Computes in float32 and answers in float64, as wrappers of networks do."""

    def fit(self, X, y):
        self.weights_ = np.linalg.lstsq(X, y)[0].astype(np.float32)
        return self

    def predict(self, X):
        return (np.asarray(X, dtype=np.float32) @ self.weights_).astype(np.float64)


def fit_in_single_precision(n_copies, seed):
    """Fit 500 rows of 200 features, each so many times, and return the estimator and rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 200))
    y = X @ rng.normal(size=200) + rng.normal(size=500)
    X = np.tile(X, (n_copies, 1))
    y = np.tile(y, n_copies)
    model = SinglePrecisionInside()
    est = dco.DecoupledRegressor(model, [AbsoluteResidual()], alpha=0.1, random_state=seed)
    return est.fit(X, y), X, y


@pytest.mark.parametrize(("n_copies", "is_raised"), [(1, False), (2, True)])
@pytest.mark.parametrize("seed", range(3))
def test_tied_scores_are_raised_by_what_batches_round_differently(n_copies, is_raised, seed):
    """Copies in one role have equal scores."""
    est, _, _ = fit_in_single_precision(n_copies, seed)

    assert (est.predictor_.calibration.scored.rounding > 0) == is_raised


@pytest.mark.parametrize(
    "reorder",
    [np.asarray, np.sort, np.flip],
    ids=["as dealt", "sorted", "backwards"],
)
@pytest.mark.parametrize("n_copies", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_computes_in_single_precision_passes_its_own_audit(n_copies, seed, reorder):
    est, X, y = fit_in_single_precision(n_copies, seed)
    rows = reorder(est.splits_.calibrate)

    report = est.certificate_.verify(X[rows], y[rows], predictor=est)

    assert report.holds, str(report)


@pytest.mark.parametrize("n_copies", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_scores_that_differ_by_more_than_rounding_do_not_pass_the_audit(n_copies, seed):
    est, X, y = fit_in_single_precision(n_copies, seed)
    rows = est.splits_.calibrate
    scored = est.predictor_.calibration.scored

    scored.scores[:] -= scored.rounding + 1e-4

    assert not est.certificate_.verify(X[rows], y[rows], predictor=est).holds


class SwapsLabelsAlone(RoundsOtherwiseAlone):
    """Two labels a last digit apart: alone, the second comes first."""

    def predict_proba(self, X):
        p = np.tile([0.4, 0.4, 0.2], (len(X), 1))
        p[:, int(len(X) == 1)] = np.nextafter(0.4, 1.0)
        return p


@ignore_low_classes
def test_a_jump_in_rank_is_not_taken_for_rounding():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(300, 1))
    y = rng.choice(3, p=[0.4, 0.4, 0.2], size=300)

    est = dco.DecoupledClassifier(SwapsLabelsAlone(), [TopK()], alpha=0.3, random_state=0).fit(X, y)

    assert est.certificate_.thresholds[0].value == 2.0


# ---------------------------------------------------------------- groups


def fit_groups(condition_on):
    rng = np.random.default_rng(2)
    est = dco.DecoupledRegressor(Ridge(), alpha=0.1, condition_on=condition_on, random_state=0)
    return est.fit(rng.normal(size=(400, 2)), rng.normal(size=400))


def test_groups_that_depend_on_the_other_rows_are_refused():
    with pytest.raises(dco.SealBrokenError, match="another group when it comes with other rows"):
        fit_groups(lambda X: X[:, 0] > np.median(X[:, 0]))


def test_groups_that_depend_on_the_row_alone_are_taken():
    assert len(fit_groups(lambda X: X[:, 0] > 0).certificate_.thresholds) == 2


# ---------------------------------------------------------------- what the certificate is of


@pytest.mark.parametrize("change", [{"score": TopK()}, {"uniform_seed": 7}], ids=["score", "seed"])
def test_a_structure_that_was_changed_does_not_verify_even_without_rows(change):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    est = dco.DecoupledClassifier(KNeighborsClassifier(), [LAC()], alpha=0.2, random_state=0)
    predictor = est.fit(X, y).predictor_

    changed = replace(predictor, structure=replace(predictor.structure, **change))

    assert predictor.certificate.verify(predictor=predictor).holds
    assert not predictor.certificate.verify(predictor=changed).holds


def test_another_condition_than_the_certified_one_is_seen():
    rng = np.random.default_rng(5)
    X = rng.integers(0, 2, size=(400, 2)).astype(float)
    est = dco.DecoupledRegressor(Ridge(), condition_on=0, random_state=0)
    predictor = est.fit(X, rng.normal(size=400)).predictor_

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
    )

    est.fit(X, y)

    thresholds = est.certificate_.thresholds
    assert [threshold.expected_is_exact for threshold in thresholds] == [True, False]
    laws = est.predictor_.calibration.laws().values()
    assert [law.is_tied for law in laws] == [False, True]


@pytest.mark.filterwarnings("ignore::dco.foundations.errors.InfeasibleLevelWarning")
def test_which_row_speaks_for_its_group_does_not_follow_from_the_roles():
    """Four groups of two rows: in each of twelve splits the picks from two calibration groups are
    two fair coins.

    Drawn with the seed of the roles they were not (chi^2 near 500); the limit is the 99.9 % point
    for 33 degrees of freedom.
    """
    groups = np.repeat(np.arange(4), 2)
    X = np.arange(8.0)[:, None]
    picks = {}
    for seed in range(500):
        est = dco.DecoupledRegressor(
            DummyRegressor(),
            AbsoluteResidual(),
            tune_size=0.25,
            calibrate_size=0.5,
            random_state=seed,
        ).fit(X, X[:, 0], groups=groups)
        roles = est.splits_
        split = groups[roles.train[0]], groups[roles.tune[0]]
        rows = roles.calibrate[est.predictor_.calibration.scored.one_per_cluster]
        picks.setdefault(split, Counter())[tuple(rows % 2)] += 1

    coins = list(product((0, 1), repeat=2))
    table = np.array([[of_split[pair] for pair in coins] for of_split in picks.values()])
    assert table.shape == (12, 4)
    assert table.sum() == 500
    assert chi2_contingency(table).statistic < chi2.ppf(0.999, 33)


# ---------------------------------------------------------------- scores, uniforms, memory


class HalfSets(AbsoluteResidual):
    """A score whose sets are half as wide as its own numbers ask for."""

    def sets(self, prediction, threshold):
        return AbsoluteResidual().sets(prediction, 0.5 * float(threshold))


def test_a_score_that_went_through_without_tuning_rows_is_checked_when_it_is_calibrated():
    rng = np.random.default_rng(0)
    est = dco.DecoupledRegressor(Ridge(), HalfSets(), tune_size=0, random_state=0)

    with pytest.raises(ValueError, match="the sets of HalfSets leave out"):
        est.fit(rng.normal(size=(200, 2)), rng.normal(size=200))


def fit_randomised(seed):
    """Fit a randomised score to noise, and return the fixed structure and its features."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = rng.integers(3, size=300)
    est = dco.DecoupledClassifier(GaussianNB(), APS(randomised=True), random_state=seed)
    return est.fit(X, y).predictor_.structure, X


@pytest.mark.parametrize("seed", [0, 1])
def test_the_uniforms_of_a_structure_come_from_its_seed(seed):
    structure, X = fit_randomised(seed)

    expected = row_uniforms(X, seed=structure.uniform_seed)
    np.testing.assert_array_equal(structure.prediction(X).uniforms, expected)


def test_another_random_state_gives_other_uniforms():
    first, _ = fit_randomised(0)
    second, _ = fit_randomised(1)

    assert first.uniform_seed != second.uniform_seed


@pytest.mark.parametrize(
    ("dtype", "settings"),
    [("float64", {}), ("float64", {"tune_folds": 5}), ("float32", {})],
    ids=["double precision", "folds", "single precision"],
)
def test_a_fit_needs_at_most_one_and_a_half_times_its_table_beside_it(dtype, settings):
    """Training and tuning rows are copied, calibration rows only once the structure is fixed; a
    fold is one more copy.
    """
    X = np.random.default_rng(0).normal(size=(150_000, 20)).astype(dtype)
    y = np.zeros(150_000)
    est = dco.DecoupledRegressor(DummyRegressor(), AbsoluteResidual(), random_state=0, **settings)
    est.fit(X[:1000], y[:1000])  # loads modules

    tracemalloc.start()
    try:
        est.fit(X, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak <= 1.5 * (X.nbytes + y.nbytes)
