"""What somebody who tries the estimators for the first time runs into: habits of other libraries, slips, and their messages."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge

import dco
from dco.scores import LAC

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3))
LABELS = np.where(X[:, 0] + RNG.normal(size=600) > 0, "yes", "no")
NUMBERS = X[:, 0] + RNG.normal(size=600)
FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(side=np.where(X[:, 1] > 0, 1, 0))


@pytest.fixture(scope="module")
def classifier() -> dco.DecoupledClassifier:
    return dco.DecoupledClassifier(LogisticRegression(), LAC(), random_state=0).fit(X[:400], LABELS[:400])


@pytest.fixture(scope="module")
def framed() -> dco.DecoupledClassifier:
    return dco.DecoupledClassifier(LogisticRegression(), LAC(), random_state=0).fit(FRAME[:400], LABELS[:400])


def test_a_certificate_gives_its_reason_once():
    est = dco.DecoupledClassifier(LogisticRegression(), LAC(), stratify=True, random_state=0).fit(X, LABELS)
    assert str(est.certificate_).count("stratify=True") == 1
