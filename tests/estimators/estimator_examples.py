"""Rows, models and estimators that many tests of the estimators use."""

import numpy as np
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import LogisticRegression, Ridge

import dco


def regression_rows(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_regression(n_samples=n, n_features=4, noise=20.0, random_state=seed)
    return X, y


def class_rows(n: int = 400, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(
        n_samples=n,
        n_features=6,
        n_informative=4,
        n_classes=classes,
        n_clusters_per_class=1,
        flip_y=0.1,
        random_state=seed,
    )
    return X, y


X, y = regression_rows()


X.flags.writeable = y.flags.writeable = False


def ridge(*scores, **options) -> dco.DecoupledRegressor:
    return dco.DecoupledRegressor(Ridge(), *scores, random_state=0, **options)


def logistic(*scores, **options) -> dco.DecoupledClassifier:
    return dco.DecoupledClassifier(LogisticRegression(), *scores, random_state=0, **options)


class Failing(Ridge):
    def fit(self, X, y):
        raise RuntimeError("no luck today")


class FailingClassifier(LogisticRegression):
    fit = Failing.fit
