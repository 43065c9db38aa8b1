"""``condition_on="label-clusters"``: rare labels share a threshold, learnt without calibration
rows, with its own law.
"""

import numpy as np
import pytest
from scipy.stats import kstest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression

import dco
from dco.calibration.label_clusters import cluster_labels, expect_rows
from dco.scores import LAC, Margin
from dco.theory import coverage_law

SHARES = np.array([0.5, 0.26, 0.04, 0.04, 0.04, 0.04, 0.04, 0.04])
# the score of label k has distribution function s ** (1 / POWER)
POWER = np.array([1.0, 0.5, 0.3, 4.0, 0.3, 4.0, 0.3, 4.0])


class FeaturesAreProbabilities(ClassifierMixin, BaseEstimator):
    """A classifier whose features are its probabilities."""

    def fit(self, X, y=None):
        self.classes_ = np.arange(len(SHARES))
        return self

    def predict_proba(self, X):
        return X

    def predict(self, X):
        return X.argmax(axis=1)


def draw_rows(n, rng):
    """Draw rows whose LAC score, 1 - p(y), has a known law in each label."""
    y = rng.choice(len(SHARES), size=n, p=SHARES)
    score = rng.uniform(size=n) ** POWER[y]
    X = np.repeat(score[:, None] / (len(SHARES) - 1), len(SHARES), axis=1)
    X[np.arange(n), y] = 1 - score
    return X, y


def clustered_estimator(X, **options):
    """Make an estimator of rows from `draw_rows`, which learns clusters on 200 tuning rows."""
    model = FrozenEstimator(FeaturesAreProbabilities().fit(X))
    return dco.DecoupledClassifier(
        model, LAC(), condition_on="label-clusters", tune_size=200, **options
    )


def clusters_of(est):
    """Return the labels of each cluster, in the order of the thresholds."""
    return est.predictor_.statement.calibrator.condition.clusters


# ---------------------------------------------------------------- how labels are clustered


def cluster(scores, labels, classes, *, n_rows, enough):
    """Cluster labels by their scores, so that each cluster has enough of so many further rows."""
    expected_rows = expect_rows(labels, classes, n_rows=n_rows)
    return cluster_labels(scores, labels, expected_rows=expected_rows, n_enough=enough)


@pytest.mark.parametrize(
    ("enough", "expected"),
    [
        (1, ((0,), (1,), (2,), (3,), (4,), (5,), (6,), (7,))),
        (30, ((0,), (1,), (2,), (3,), (4,), (5,), (6,), (7,))),
        (110, ((0,), (1,), (2, 4, 6), (3, 5, 7))),
        (10_000, ((0, 1, 2, 3, 4, 5, 6, 7),)),
    ],
)
def test_rare_labels_share_with_those_of_their_law_and_others_stay_alone(enough, expected):
    X, y = draw_rows(4000, np.random.default_rng(0))
    scores = 1 - X[np.arange(4000), y]

    assert cluster(scores, y, np.arange(8), n_rows=1000, enough=enough) == expected


def test_labels_without_rows_and_lone_rare_labels_join_others():
    scores = np.r_[np.zeros(50), np.full(50, 5.0), 4.9, 5.1]
    labels = np.repeat(["a", "b", "c"], [50, 50, 2])
    classes = np.array(["a", "b", "c", "never"])

    clusters = cluster(scores, labels, classes, n_rows=100, enough=36)

    assert clusters == (("a",), ("b", "c", "never"))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("n_unseen", [1, 5, 40])
def test_labels_of_calibration_rows_alone_share_one_cluster_and_move_no_other(n_unseen, seed):
    rng = np.random.default_rng([3, seed])
    labels = rng.choice(12, size=400, p=np.arange(12, 0, -1) / 78)
    scores = rng.normal(size=400) + 0.3 * rng.permutation(12)[labels]

    without = cluster(scores, labels, np.arange(12), n_rows=200, enough=30)
    clusters = cluster(scores, labels, np.arange(-n_unseen, 12), n_rows=200, enough=30)

    of_seen_labels = {tuple(label for label in members if label >= 0) for members in clusters}
    with_unseen = [members for members in clusters if min(members) < 0]
    assert of_seen_labels == set(without)
    assert len(with_unseen) == 1


def test_clusters_need_tuning_rows():
    est = dco.DecoupledClassifier(
        LogisticRegression(), LAC(), condition_on="label-clusters", tune_size=0, random_state=0
    )
    with pytest.raises(ValueError, match="learnt on tuning rows: raise tune_size"):
        est.fit(*draw_rows(200, np.random.default_rng(0)))


def test_clusters_of_labels_are_for_classes():
    est = dco.DecoupledRegressor(LinearRegression(), condition_on="label-clusters")
    with pytest.raises(ValueError, match='condition_on="label-clusters" is for classes'):
        est.fit([[0.0]], [0.0])


# ---------------------------------------------------------------- calibration rows decide nothing


@pytest.mark.parametrize("label", [0, 7])
def test_calibration_rows_have_no_say_in_the_clusters(label):
    rng = np.random.default_rng(1)
    X, y = draw_rows(500, rng)
    calibrate_X, calibrate_y = draw_rows(400, rng)
    all_alike = np.full(400, label)

    est = clustered_estimator(X, random_state=0).fit(X, y, calibrate=(calibrate_X, calibrate_y))
    with pytest.warns(dco.InfeasibleLevelWarning):
        other = clustered_estimator(X, random_state=0).fit(X, y, calibrate=(calibrate_X, all_alike))

    assert clusters_of(other) == clusters_of(est)
    assert len(clusters_of(est)) > 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("condition_on", "objective"),
    [("label", "mean_size"), (None, "even")],
    ids=["thresholds by label", "even"],
)
def test_labels_of_calibration_rows_alone_change_no_ranking(condition_on, objective):
    """How many labels there are is not for a search to know, where only calibration rows tell."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, size=600)
    X = rng.normal(size=(600, 2))
    X[:, 0] += y
    half_are_unseen = np.where(np.arange(200) < 100, y[400:], np.arange(200))

    def rank(calibration_labels):
        est = dco.DecoupledClassifier(
            LogisticRegression(),
            [LAC(), Margin()],
            condition_on=condition_on,
            objective=objective,
            alpha=0.6,
            tune_size=0.4,
            random_state=0,
        )
        return est.fit(X[:400], y[:400], calibrate=(X[400:], calibration_labels)).ranking_

    assert rank(half_are_unseen) == rank(y[400:])


# ---------------------------------------------------------------- coverage


def test_coverage_within_a_cluster_follows_its_beta_law():
    """Exact coverage of each cluster given each of 150 fits, by the law of its own rank: uniform.
    Wrong once in 1000, for all clusters and for those of several labels.
    """
    of_several_labels = []
    of_one_label = []
    for seed in range(150):
        X, y = draw_rows(600, np.random.default_rng(seed))
        est = clustered_estimator(X, calibrate_size=400, random_state=seed).fit(X, y)
        labels_of = {", ".join(map(str, labels)): np.array(labels) for labels in clusters_of(est)}

        for threshold in est.certificate_.thresholds:
            labels = labels_of[threshold.group]
            of_labels = min(threshold.value, 1.0) ** (1 / POWER[labels])
            coverage = np.average(of_labels, weights=SHARES[labels])
            uniform = coverage_law(threshold.n, alpha=0.1).cdf(coverage)
            if len(labels) > 1:
                of_several_labels.append(uniform)
            else:
                of_one_label.append(uniform)

    assert len(of_several_labels) >= 150
    assert kstest(of_several_labels, "uniform").pvalue > 1e-3
    assert kstest(of_several_labels + of_one_label, "uniform").pvalue > 1e-3


# ---------------------------------------------------------------- twelve labels, ten of them rare


def draw_twelve_labels():
    """Draw 1,500 rows of the labels c0 to c11, of which ten have 3 % each."""
    rng = np.random.default_rng(0)
    label = rng.choice(12, size=1500, p=[0.4, 0.3] + [0.03] * 10)
    X = 1.5 * rng.normal(size=(12, 4))[label] + rng.normal(size=(1500, 4))
    return X, np.char.add("c", label.astype(str))


X_TWELVE, Y_TWELVE = draw_twelve_labels()


def fit_twelve_labels(condition_on):
    est = dco.DecoupledClassifier(
        LogisticRegression(), LAC(), condition_on=condition_on, random_state=0
    )
    return est.fit(X_TWELVE[:1000], Y_TWELVE[:1000])


@pytest.fixture(scope="module")
def clustered():
    return fit_twelve_labels("label-clusters")


def test_rare_labels_get_smaller_sets_than_alone(clustered):
    with pytest.warns(dco.InfeasibleLevelWarning):
        alone = fit_twelve_labels("label")

    size = clustered.predict_set(X_TWELVE).sizes().mean()
    size_alone = alone.predict_set(X_TWELVE).sizes().mean()

    assert size < 0.6 * size_alone


def test_the_certificate_names_the_labels_of_each_cluster(clustered):
    certificate = clustered.certificate_

    assert certificate.guarantee == "marginal"
    assert certificate.calibration.condition_on.startswith(
        "'label-clusters': [['c0'], ['c1'], ['c10', 'c11', "
    )
    groups = {threshold.group for threshold in certificate.thresholds}
    assert len(groups) == 4
    assert {"c0", "c1"} < groups


def test_the_certificate_of_clusters_holds_for_its_rows(clustered):
    rows = clustered.splits_.calibrate

    assert clustered.certificate_.verify(X_TWELVE[rows], Y_TWELVE[rows], predictor=clustered).holds


def test_each_cluster_is_evaluated_by_its_own_law(clustered):
    evaluation = clustered.evaluate(X_TWELVE[1000:], Y_TWELVE[1000:])

    groups = {threshold.group for threshold in clustered.certificate_.thresholds}
    assert {row.group for row in evaluation.by_group} == groups
    assert all(row.consistency.consistent for row in evaluation.by_group)


def test_single_labels_of_clusters_can_be_evaluated(clustered):
    evaluation = clustered.evaluate(X_TWELVE[1000:], Y_TWELVE[1000:], by="label")

    assert len(evaluation.by_group) == 12


def test_p_values_above_alpha_are_the_sets_of_clusters(clustered):
    p_values = clustered.predict_p(X_TWELVE)

    assert np.array_equal(p_values > 0.1, clustered.predict_set(X_TWELVE).to_dense())


def test_clusters_come_back_from_a_file(clustered, tmp_path):
    dco.save(clustered, tmp_path / "m.dco")
    again = dco.load(tmp_path / "m.dco")

    assert again.predict_set(X_TWELVE).to_lists() == clustered.predict_set(X_TWELVE).to_lists()


def test_truth_values_are_conditions_that_files_hold(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 2))
    est = dco.DecoupledClassifier(LogisticRegression(), condition_on="label", random_state=0)
    est.fit(X, X[:, 0] > 0)

    dco.save(est, tmp_path / "m.dco")

    assert dco.load(tmp_path / "m.dco").ranking_ == est.ranking_
