"""Groups and clusters are told apart by their values, however alike their names are."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.frozen import FrozenEstimator

import dco

N_FITS = 40
ALPHA = 0.2


class Zero(RegressorMixin, BaseEstimator):
    """A model of any table that predicts 0, so that the score is |y|."""

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.zeros(len(X))


def rows_of_groups(n, names, *, seed):
    """Rows of two columns; the noise of the first group is five times that of the second."""
    rng = np.random.default_rng(seed)
    is_first = rng.uniform(size=n) < 0.25
    dept = pd.Series([names[0] if first else names[1] for first in is_first], dtype=object)
    X = pd.DataFrame({"dept": dept, "sex": rng.choice(["F", "M"], size=n)})
    return X, rng.normal(size=n) * np.where(is_first, 5.0, 1.0)


ALIKE = {
    "& and the word": ("R & D", "R and D"),
    "number and text": (1, "1"),
    "& at the end": ("A &", "A"),
    "the sign of an entry": ("a=b", "a:b"),
}


@pytest.mark.parametrize("names", ALIKE.values(), ids=ALIKE)
def test_groups_with_names_alike_are_covered_each_at_its_level(names):
    """Mean coverage over 40 fits; the standard error is below .01, so three of them are allowed."""
    coverage = []
    for seed in range(N_FITS):
        X, y = rows_of_groups(400, names, seed=seed)
        est = dco.DecoupledRegressor(
            Zero(),
            dco.scores.AbsoluteResidual(),
            alpha=ALPHA,
            condition_on=["dept", "sex"],
            random_state=seed,
        ).fit(X, y)
        new, targets = rows_of_groups(400, names, seed=1000 + seed)
        is_first = np.array([name == names[0] for name in new["dept"]])
        covered = est.predict_set(new).contains(targets)
        coverage.append(covered[is_first].mean())
    assert np.mean(coverage) > 1 - ALPHA - 0.03


@pytest.mark.parametrize("names", ALIKE.values(), ids=ALIKE)
def test_groups_with_names_alike_are_listed_each_by_itself(names):
    X, y = rows_of_groups(400, names, seed=0)
    est = dco.DecoupledRegressor(
        Zero(),
        dco.scores.AbsoluteResidual(),
        alpha=ALPHA,
        condition_on=["dept", "sex"],
        random_state=0,
    ).fit(X, y)
    listed = dict(est.certificate_.calibration.groups)
    assert len(listed) == 4
    assert len({entry.group for entry in est.certificate_.thresholds}) == 4
    is_first = [name == names[0] for name in X["dept"].iloc[est.splits_.calibrate]]
    assert sum(is_first) in listed.values()
    assert est.certificate_.verify(predictor=est).holds


LABELS = np.array(["blue", "red", "blue, red"])
SHARES = np.array([0.05, 0.05, 0.9])


class Given(ClassifierMixin, BaseEstimator):
    """A classifier whose features are its probabilities."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.asarray(X)

    def predict(self, X):
        return self.classes_[np.asarray(X).argmax(axis=1)]


def labelled_rows(n, rng):
    """Rows whose label "blue, red" has small scores, the rare labels blue and red large ones."""
    classes = np.unique(LABELS)
    y = rng.choice(LABELS, size=n, p=SHARES)
    score = rng.uniform(size=n) * np.where(y == "blue, red", 0.2, 1.0)
    X = np.repeat(score[:, None] / 2, 3, axis=1)
    X[np.arange(n), np.searchsorted(classes, y)] = 1 - score
    return X, y


def test_a_cluster_of_labels_shares_no_threshold_with_a_label_of_its_name():
    """The cluster of blue and red reads like the label "blue, red"."""
    rng = np.random.default_rng(0)
    X, y = labelled_rows(1000, rng)
    est = dco.DecoupledClassifier(
        FrozenEstimator(Given().fit(X, y)),
        dco.scores.LAC(),
        condition_on="label-clusters",
        tune_size=400,
        calibrate_size=600,
        random_state=0,
    ).fit(X, y)
    thresholds = {entry.group: entry.value for entry in est.certificate_.thresholds}
    assert set(thresholds) == {"blue, red", "'blue, red'"}
    assert thresholds["blue, red"] > 0.7  # of the rare labels
    assert thresholds["'blue, red'"] < 0.2

    new, labels = labelled_rows(4000, rng)
    covered = est.predict_set(new).contains(labels)
    for is_rare in (labels != "blue, red", labels == "blue, red"):
        assert covered[is_rare].mean() == pytest.approx(0.9, abs=0.07)
