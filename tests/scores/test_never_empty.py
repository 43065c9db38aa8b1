"""A score whose sets always hold the most probable label, against the definition written out
below.
"""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import dco
from dco import ClassDraws, ClassProbabilities, IncompatibleScoreError, Points, split_conformal
from dco.scores import (
    APS,
    LAC,
    RAPS,
    SAPS,
    AbsoluteResidual,
    AddOneIn,
    Margin,
    PosteriorNLL,
    RiskAverse,
    Score,
    TopK,
)
from dco.scores.never_empty import LEAST, NeverEmpty
from dco.scores.registry import short_names

SCORES: dict[str, Any] = {
    "LAC": LAC(),
    "APS": APS(),
    "APS randomised": APS(randomised=True),
    "RAPS randomised": RAPS(penalty=0.1, rank_free=1, randomised=True),
    "SAPS": SAPS(weight=0.07),
    "SAPS randomised": SAPS(weight=0.07, randomised=True),
    "TopK": TopK(),
    "Margin": Margin(),
    "PosteriorNLL": PosteriorNLL(),
    "AddOneIn": AddOneIn(),
    "RiskAverse": RiskAverse(1 - np.eye(5), labels=list("abcde")),
}
every_score = pytest.mark.parametrize("score", SCORES.values(), ids=SCORES.keys())


def record(score: Any, probabilities: np.ndarray, **labels: Any) -> Any:
    uniforms = np.random.default_rng(len(probabilities)).uniform(size=len(probabilities))
    if ClassProbabilities not in score.needs:
        return ClassDraws(np.stack([probabilities, probabilities**2]), uniforms=uniforms, **labels)
    return ClassProbabilities(probabilities, uniforms=uniforms, **labels)


def tied_rows(n: int, seed: int, k: int = 4) -> np.ndarray:
    """Probabilities in eighths: most rows have ties, many of them at the top."""
    return np.random.default_rng(seed).multinomial(8, np.full(k, 1 / k), size=n) / 8


def by_definition(score: Any, prediction: Any) -> np.ndarray:
    """Every label's score, with the least float at the largest probability; row by row, the first
    column among equals.
    """
    scores = score.every_label(prediction)
    mean = (
        prediction.draws.mean(axis=0)
        if isinstance(prediction, ClassDraws)
        else prediction.probabilities
    )
    for row, p in zip(scores, mean.tolist(), strict=True):
        row[p.index(max(p))] = LEAST
    return scores


@every_score
@settings(max_examples=30)
@given(n=st.integers(1, 40), seed=st.integers(0, 10**6), data=st.data())
def test_a_score_is_one_number_whichever_way_it_is_asked_for(score, n, seed, data):
    """Scores, membership, sets and sizes agree with the definition, for a threshold, one a row and
    one a label.
    """
    prediction = record(score, tied_rows(n, seed), classes=["d", "b", "a", "c"], unseen=["e"])
    labels, never_empty = prediction.labels(), NeverEmpty(score)
    expected = by_definition(score, prediction)
    np.testing.assert_array_equal(never_empty.every_label(prediction), expected)
    y = np.random.default_rng(seed).integers(5, size=n)
    np.testing.assert_array_equal(
        never_empty.observed(prediction, labels[y]), expected[np.arange(n), y]
    )
    some = st.sampled_from([*np.unique(expected), -np.inf, 0.5, np.inf])
    a_row = np.array(data.draw(st.lists(some, min_size=n, max_size=n)))[:, None]
    a_label = np.array(data.draw(st.lists(some, min_size=5, max_size=5)))[None, :]
    thresholds = [data.draw(some), a_row, a_label]
    for threshold, sizes in zip(
        thresholds, never_empty.sizes_at_several(prediction, thresholds), strict=True
    ):
        sets = never_empty.sets(prediction, threshold)
        np.testing.assert_array_equal(sets.to_dense(), expected <= threshold)
        np.testing.assert_array_equal(
            sets.contains(labels[y]), (expected <= threshold)[np.arange(n), y]
        )
        np.testing.assert_array_equal(sizes, sets.sizes())
        np.testing.assert_array_equal(never_empty.sizes(prediction, threshold), sets.sizes())
        assert all(
            np.all(np.diff(sets.codes[a:b]) > 0)
            for a, b in zip(sets.row_pointers, sets.row_pointers[1:], strict=False)
        )
        held = (
            np.broadcast_to(threshold, expected.shape)[np.arange(n), np.argmin(expected, axis=1)]
            >= LEAST
        )
        np.testing.assert_array_equal(sets.is_empty()[held], False)


@every_score
def test_no_threshold_and_no_rows_and_one_label(score):
    assert NeverEmpty(score).sizes_at_several(
        record(score, tied_rows(3, 0, 5), classes=list("abcde")), []
    ).shape == (0, 3)
    nothing = record(score, np.empty((0, 5)), classes=list("abcde"))
    assert NeverEmpty(score).sets(nothing, 0.5).sizes().shape == (0,)
    if not isinstance(score, RiskAverse):
        alone = record(score, np.ones((2, 1)))
        np.testing.assert_array_equal(NeverEmpty(score).sets(alone, LEAST).to_lists(), [[0], [0]])


@pytest.mark.parametrize(
    "score",
    [APS(randomised=True), RAPS(penalty=0.05, rank_free=1, randomised=True), LAC()],
    ids=str,
)
def test_calibrated_sets_are_not_larger_than_they_must_be(score):
    """Apart from the first label no label is added to the calibrated plain sets, and the threshold
    is no larger.
    """
    rng = np.random.default_rng(3)
    n, fresh, k, alpha = 199, 2000, 10, 0.4
    p = rng.dirichlet(np.full(k, 0.5), size=n + fresh)
    y = np.argmax(rng.uniform(size=(n + fresh, 1)) < np.cumsum(p, axis=1), axis=1)
    u = rng.uniform(size=n + fresh)
    calibration, test = (
        ClassProbabilities(p[part], uniforms=u[part]) for part in (slice(n), slice(n, None))
    )
    plain, threshold = (
        split_conformal(each.observed(calibration, y[:n]), alpha=alpha)
        for each in (score, NeverEmpty(score))
    )
    assert LEAST < threshold.value <= plain.value
    sets = NeverEmpty(score).sets(test, threshold)
    assert abs(sets.contains(y[n:]).mean() - 0.6) < 4 * np.sqrt(0.24 * (1 / n + 1 / fresh))
    added = score.sets(test, plain).to_dense()
    assert not added.any(axis=1).all()  # some plain sets are empty
    added[np.arange(fresh), np.argmax(p[n:], axis=1)] = True
    assert np.all(sets.to_dense() <= added)


def test_an_estimator_says_that_the_law_is_a_bound_where_the_first_label_is_enough():
    """Nine in ten rows are right by the first label: scores are tied at the least float, and
    nothing is called infinite.
    """
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(5)
    y = rng.integers(2, size=600)
    X = (y + 0.3 * rng.normal(size=600))[:, None]
    est = dco.DecoupledClassifier(
        LogisticRegression(), NeverEmpty(LAC()), alpha=0.2, random_state=0
    ).fit(X[:400], y[:400])
    (entry,) = est.certificate_.thresholds
    assert entry.value == LEAST
    assert not entry.expected_is_exact
    report = est.evaluate(X[400:], y[400:])
    assert report.mean_size == 1
    assert report.consistency.consistent
    assert est.certificate_.verify(
        X[est.splits_.calibrate], y[est.splits_.calibrate], predictor=est
    ).holds


def test_it_is_a_score_that_compares_prints_and_pickles():
    score = NeverEmpty(RAPS(penalty=0.1, rank_free=1))
    assert isinstance(score, Score)
    assert score == NeverEmpty(RAPS(penalty=0.1, rank_free=1)) != NeverEmpty(APS())
    assert hash(score) == hash(pickle.loads(pickle.dumps(score)))
    assert repr(score) == "NeverEmpty(score=RAPS(penalty=0.1, rank_free=1, randomised=False))"
    assert NeverEmpty(AddOneIn()).needs == (ClassDraws,)
    assert NeverEmpty(APS(randomised=True)).randomised
    assert not score.randomised


def test_what_it_cannot_wrap_or_read_is_refused():
    for wrong in (AbsoluteResidual(), APS, None, "APS"):
        with pytest.raises(ValueError, match="NeverEmpty needs a score of labels such as"):
            NeverEmpty(wrong)
    with pytest.raises(IncompatibleScoreError, match="LAC needs ClassProbabilities"):
        NeverEmpty(LAC()).observed(Points([0.0]), [0])
    with pytest.raises(ValueError, match="uniforms="):
        NeverEmpty(APS(randomised=True)).sets(ClassProbabilities(tied_rows(3, 0)), 0.5)


def test_an_estimator_takes_it_among_its_scores():
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression

    X, y = load_iris(return_X_y=True)
    scores = {"plain": LAC(), "never empty": NeverEmpty(LAC())}
    est = dco.DecoupledClassifier(
        LogisticRegression(C=0.01), {"never empty": NeverEmpty(LAC())}, alpha=0.2, random_state=0
    )
    sets = est.fit(X, y).predict_set(X)
    assert not sets.is_empty().any()
    top = est.classes_[np.argmax(est.predict_proba(X), axis=1)]
    assert sets.contains(top).all()
    p = est.predict_p(X)
    np.testing.assert_array_equal(p > 0.2, sets.to_dense())
    assert est.set_params(scores=scores).fit(X, y).ranking_.failed == ()


def test_default_candidates_are_never_empty_and_the_papers_scores_have_their_names():
    X, y = dco.datasets.GaussianClasses(n_classes=3, separation=4.0).sample(
        400, np.random.default_rng(0)
    )
    est = dco.DecoupledClassifier(LogisticRegression(), alpha=0.3, random_state=0).fit(X, y)
    names = {row.name.partition(" / ")[2] for row in est.ranking_.table}
    assert {"NeverEmpty(LAC)", "NeverEmpty(RAPS(penalty=0.1, rank_free=1))", "TopK"} <= names
    assert not any(name in ("LAC", "APS", "Margin") for name in names)
    assert not est.predict_set(X).is_empty().any()
    assert short_names(classes=True)["lac"] == (dco.scores.LAC(),)
    silent = dco.DecoupledClassifier(
        LogisticRegression(), dco.scores.LAC(), alpha=0.3, random_state=0
    ).fit(X, y)
    assert silent.predict_set(X).is_empty().any()  # the paper's, by name
