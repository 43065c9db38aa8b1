"""What somebody who tries the estimators for the first time runs into: habits of other libraries, slips, messages."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
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


@pytest.mark.parametrize("n", [1, 5])
def test_labels_that_are_not_among_the_classes_are_counted(classifier, n):
    new = LABELS[400:].astype(object)
    new[:n] = "yes "
    has = "has a label that is" if n == 1 else "have labels that are"
    with pytest.warns(UserWarning, match=rf"^{n} of 200 rows {has} not in classes_ \('yes ': {n}\)") as told:
        found = classifier.evaluate(X[400:], new)
    assert told[0].filename == __file__
    hits = classifier.predict_set(X[400:]).contains(LABELS[400:])
    assert found.coverage == np.mean(hits[n:]) * (200 - n) / 200
    with pytest.raises(ValueError, match="None of y's labels"):
        classifier.evaluate(X[400:], np.full(200, "yes "))


def test_a_message_names_five_unknown_labels_and_not_more(classifier):
    new = LABELS[400:].astype(object)
    new[:7] = [f"label {i}" for i in range(7)]
    with pytest.warns(UserWarning, match=r"^7 of 200 rows .*'label 4': 1 and 2 more\)"):
        classifier.evaluate(X[400:], new)


def test_a_table_by_group_takes_a_column_as_condition_on_does(classifier, framed):
    expected = framed.evaluate(FRAME[400:], LABELS[400:], by=FRAME["side"][400:]).by_group
    assert [row.group for row in expected] == [0, 1]
    assert framed.evaluate(FRAME[400:], LABELS[400:], by="side").by_group == expected
    assert framed.evaluate(FRAME[400:], LABELS[400:], by=lambda rows: rows["side"]).by_group == expected
    by_label = classifier.evaluate(X[400:], LABELS[400:], by="label").by_group
    assert by_label == classifier.evaluate(X[400:], LABELS[400:], by=LABELS[400:]).by_group
    assert sum(row.n for row in classifier.evaluate(X[400:], LABELS[400:], by=0).by_group) == 200


def test_a_table_by_something_else_is_refused_by_its_name(classifier, framed):
    with pytest.raises(ValueError, match="by names the column 'town', which X does not have"):
        framed.evaluate(FRAME[400:], LABELS[400:], by="town")
    with pytest.raises(ValueError, match="by must be a column number below 3 or a callable, as X is an array"):
        classifier.evaluate(X[400:], LABELS[400:], by="side")
    with pytest.raises(ValueError, match=r"by must hold one label for each of 200 rows, got shape \(1,\)"):
        classifier.evaluate(X[400:], LABELS[400:], by=[1])
    regressor = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X[:400], NUMBERS[:400])
    with pytest.raises(ValueError, match='by="label" is for classes'):
        regressor.evaluate(X[400:], NUMBERS[400:], by="label")


def test_several_levels_are_evaluated_at_once(framed):
    levels = [0.1, 0.2, "1/3"]
    found = framed.evaluate(FRAME[400:], LABELS[400:], alpha=levels, by="side")
    assert found == [framed.evaluate(FRAME[400:], LABELS[400:], alpha=level, by="side") for level in levels]
    assert found[0].coverage > found[2].coverage
    assert framed.evaluate(FRAME[400:], LABELS[400:], alpha=np.array([0.1])) == [framed.evaluate(FRAME[400:], LABELS[400:])]


@pytest.mark.parametrize("rule", [["a", "side"], FRAME["side"].to_numpy(), FRAME["side"]], ids=["list", "array", "series"])
@pytest.mark.parametrize("rows", [X, FRAME], ids=["array", "frame"])
def test_several_columns_to_condition_on_are_refused_with_what_to_do(rule, rows):
    est = dco.DecoupledClassifier(LogisticRegression(), condition_on=rule)
    with pytest.raises(
        ValueError, match=r"condition_on must be one column or a callable, got .* pass a callable that takes X"
    ):
        est.fit(rows, LABELS)
