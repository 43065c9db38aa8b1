"""``condition_on="label-clusters"``: rare labels share a threshold, learnt without calibration
rows, with its own law.
"""

import warnings
from contextlib import nullcontext

import numpy as np
import pytest
from scipy.stats import kstest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression

import dco
from dco.calibration.label_clusters import cluster_labels, expect_rows
from dco.theory import coverage_law

SHARES = np.array([0.5, 0.26, 0.04, 0.04, 0.04, 0.04, 0.04, 0.04])
# the score of label k has distribution function s ** (1 / POWER)
POWER = np.array([1.0, 0.5, 0.3, 4.0, 0.3, 4.0, 0.3, 4.0])


class Given(ClassifierMixin, BaseEstimator):
    """A classifier whose features are its probabilities."""

    def fit(self, X, y=None):
        self.classes_ = np.arange(len(SHARES))
        return self

    def predict_proba(self, X):
        return X

    def predict(self, X):
        return X.argmax(axis=1)


def rows(n, rng):
    """Rows whose LAC score, 1 - p(y), has a known law in each label."""
    y = rng.choice(len(SHARES), size=n, p=SHARES)
    score = rng.uniform(size=n) ** POWER[y]
    X = np.repeat(score[:, None] / (len(SHARES) - 1), len(SHARES), axis=1)
    X[np.arange(n), y] = 1 - score
    return X, y


def fitted(seed, *, n=600):
    X, y = rows(n, np.random.default_rng(seed))
    model = FrozenEstimator(Given().fit(X))
    sizes = {"tune_size": 200, "calibrate_size": n - 200, "random_state": seed}
    return dco.DecoupledClassifier(
        model, dco.scores.LAC(), condition_on="label-clusters", **sizes
    ).fit(X, y)


def clusters_of(est):
    """The labels of each cluster."""
    return est.predictor_.statement.calibrator.condition.clusters


def cluster(scores, labels, classes, *, n_rows, enough):
    expected_rows = expect_rows(labels, classes, n_rows=n_rows)
    return cluster_labels(scores, labels, expected_rows=expected_rows, enough=enough)


EACH, KINDS, ALL = (
    tuple((label,) for label in range(8)),
    ((0,), (1,), (2, 4, 6), (3, 5, 7)),
    (tuple(range(8)),),
)


@pytest.mark.parametrize(("least", "wanted"), [(1, EACH), (30, EACH), (110, KINDS), (10_000, ALL)])
def test_labels_with_rows_stay_alone_and_rare_ones_share_with_those_of_their_law(least, wanted):
    X, y = rows(4000, np.random.default_rng(0))
    scores = 1 - X[np.arange(4000), y]
    assert cluster(scores, y, np.arange(8), n_rows=1000, enough=least) == wanted


def test_labels_without_rows_and_lone_rare_labels_join_others():
    scores, labels = (
        np.r_[np.zeros(50), np.full(50, 5.0), 4.9, 5.1],
        np.array(["a"] * 50 + ["b"] * 50 + ["c"] * 2),
    )
    classes = np.array(["a", "b", "c", "never"])
    assert cluster(scores, labels, classes, n_rows=100, enough=36) == (
        ("a",),
        ("b", "c", "never"),
    )


def test_labels_of_calibration_rows_alone_move_no_other_label():
    rng = np.random.default_rng(3)
    for more in (1, 5, 40) * 10:
        labels = rng.choice(12, size=400, p=np.arange(12, 0, -1) / 78)
        scores = rng.normal(size=400) + 0.3 * rng.permutation(12)[labels]
        own = cluster(scores, labels, np.arange(12), n_rows=200, enough=30)
        found = cluster(scores, labels, np.arange(-more, 12), n_rows=200, enough=30)
        assert {tuple(label for label in cluster if label >= 0) for cluster in found} == set(own)
        assert sum(any(label < 0 for label in cluster) for cluster in found) == 1


@pytest.mark.parametrize(("condition_on", "objective"), [("label", "mean_size"), (None, "even")])
def test_labels_of_calibration_rows_alone_change_no_ranking(condition_on, objective):
    """How many labels there are is not for a search to know, where only calibration rows tell."""
    rng = np.random.default_rng(0)
    y, X = rng.choice(3, size=600), rng.normal(size=(600, 2))
    X[:, 0] += y
    found = []
    for labels in (y[400:], np.where(np.arange(200) < 100, y[400:], np.arange(200))):
        options = {
            "condition_on": condition_on,
            "objective": objective,
            "alpha": 0.6,
            "tune_size": 0.4,
            "random_state": 0,
        }
        est = dco.DecoupledClassifier(
            LogisticRegression(), [dco.scores.LAC(), dco.scores.Margin()], **options
        )
        with warnings.catch_warnings(action="ignore"):
            found.append(est.fit(X[:400], y[:400], calibrate=(X[400:], labels)).ranking_)
    assert found[0] == found[1]


def test_truth_values_are_conditions_that_files_hold(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    est = dco.DecoupledClassifier(LogisticRegression(), condition_on="label", random_state=0).fit(
        X, X[:, 0] > 0
    )
    dco.save(est, tmp_path / "m.dco")
    assert dco.load(tmp_path / "m.dco").ranking_ == est.ranking_


def test_coverage_within_a_cluster_follows_its_beta_law():
    """Exact coverage of each cluster given each of 150 fits, by the law of its own rank: uniform.
    Wrong once in 1000.
    """
    places = []
    for seed in range(150):
        est = fitted(seed)
        names = {
            name: labels for labels in clusters_of(est) for name in [", ".join(map(str, labels))]
        }
        for entry in est.certificate_.thresholds:
            own = np.array(names[entry.group])
            covered = np.average(min(entry.value, 1.0) ** (1 / POWER[own]), weights=SHARES[own])
            places.append((len(own) > 1, coverage_law(entry.n, alpha=0.1).cdf(covered)))
    shared = np.array([place for is_shared, place in places if is_shared])
    assert len(shared) >= 150
    assert kstest(shared, "uniform").pvalue > 1e-3
    assert kstest([place for _, place in places], "uniform").pvalue > 1e-3


def test_calibration_rows_have_no_say_in_the_clusters():
    rng = np.random.default_rng(1)
    X, y = rows(500, rng)
    other, others = rows(400, rng)
    model = FrozenEstimator(Given().fit(X))
    found = []
    for calibrate in ((other, others), (other, np.zeros(400, int)), (other, np.full(400, 7))):
        est = dco.DecoupledClassifier(
            model, dco.scores.LAC(), condition_on="label-clusters", tune_size=200, random_state=0
        )
        with (
            pytest.warns(dco.InfeasibleLevelWarning)
            if len(set(calibrate[1])) == 1
            else nullcontext()
        ):
            found.append(clusters_of(est.fit(X, y, calibrate=calibrate)))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 2


def test_rare_labels_get_smaller_sets_than_alone_and_the_certificate_names_them(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.choice(12, size=1500, p=[0.4, 0.3] + [0.03] * 10)
    X = 1.5 * rng.normal(size=(12, 4))[y] + rng.normal(size=(1500, 4))
    y = np.char.add("c", y.astype(str))
    made = {}
    for condition_on in ("label", "label-clusters"):
        est = dco.DecoupledClassifier(
            LogisticRegression(), dco.scores.LAC(), condition_on=condition_on, random_state=0
        )
        with pytest.warns(dco.InfeasibleLevelWarning) if condition_on == "label" else nullcontext():
            made[condition_on] = est.fit(X[:1000], y[:1000])
    est, sizes = (
        made["label-clusters"],
        {name: own.predict_set(X).sizes().mean() for name, own in made.items()},
    )
    assert sizes["label-clusters"] < 0.6 * sizes["label"]
    certificate = est.certificate_
    assert certificate.guarantee == "marginal"
    assert certificate.calibration.condition_on.startswith(
        "'label-clusters': [['c0'], ['c1'], ['c10', 'c11', "
    )
    groups = {entry.group for entry in certificate.thresholds}
    assert len(groups) == 4
    assert {"c0", "c1"} < groups
    calibrate = est.splits_.calibrate
    assert certificate.verify(X[calibrate], y[calibrate], predictor=est)
    found = est.evaluate(X[1000:], y[1000:])
    assert {row.group for row in found.by_group} == groups
    assert all(row.consistency.consistent for row in found.by_group)
    assert len(est.evaluate(X[1000:], y[1000:], by="label").by_group) == 12
    assert np.array_equal(est.predict_p(X) > 0.1, est.predict_set(X).to_dense())
    dco.save(est, tmp_path / "m.dco")
    assert dco.load(tmp_path / "m.dco").predict_set(X).to_lists() == est.predict_set(X).to_lists()


def test_what_cannot_be_learnt_is_said():
    with pytest.raises(ValueError, match="learnt on tuning rows: raise tune_size"):
        dco.DecoupledClassifier(
            LogisticRegression(),
            dco.scores.LAC(),
            condition_on="label-clusters",
            tune_size=0,
            random_state=0,
        ).fit(*rows(200, np.random.default_rng(0)))
    with pytest.raises(ValueError, match='condition_on="label-clusters" is for classes'):
        dco.DecoupledRegressor(LinearRegression(), condition_on="label-clusters").fit(
            [[0.0]], [0.0]
        )
