"""A score whose sets always hold the most probable label."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
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
    NeverEmpty,
    PosteriorNLL,
    RiskAverse,
    Score,
    TopK,
)
from dco.scores.registry import short_names
from dco.scores.thresholds import LOWEST_SCORE

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


def record_for(score: Any, probabilities: np.ndarray, **labels: Any) -> Any:
    """Return a record that the score can read, with uniforms."""
    uniforms = np.random.default_rng(len(probabilities)).uniform(size=len(probabilities))
    if ClassProbabilities in score.needs:
        return ClassProbabilities(probabilities, uniforms=uniforms, **labels)
    return ClassDraws(np.stack([probabilities, probabilities**2]), uniforms=uniforms, **labels)


def tied_rows(n: int, seed: int, k: int = 4) -> np.ndarray:
    """Probabilities in eighths: most rows have ties, many of them at the top."""
    return np.random.default_rng(seed).multinomial(8, np.full(k, 1 / k), size=n) / 8


def scores_by_definition(score: Any, prediction: Any) -> np.ndarray:
    """Put the lowest float at the largest probability; among equals at the first column."""
    scores = score.every_label(prediction)
    probabilities = prediction.as_probabilities().probabilities.tolist()
    for row, p in zip(scores, probabilities, strict=True):
        row[p.index(max(p))] = LOWEST_SCORE
    return scores


@every_score
@settings(max_examples=30)
@given(n=st.integers(1, 40), seed=st.integers(0, 10**6), data=st.data())
def test_a_score_is_one_number_however_it_is_asked_for(score, n, seed, data):
    """Scores, sets and sizes agree with the definition, for one threshold, by row and by label."""
    prediction = record_for(score, tied_rows(n, seed), classes=["d", "b", "a", "c"], unseen=["e"])
    expected = scores_by_definition(score, prediction)
    y = np.random.default_rng(seed).integers(5, size=n)
    labels = prediction.labels()[y]
    never_empty = NeverEmpty(score)
    assert np.array_equal(never_empty.every_label(prediction), expected)
    assert np.array_equal(never_empty.observed(prediction, labels), expected[np.arange(n), y])

    level = st.sampled_from([*np.unique(expected), -np.inf, 0.5, np.inf])
    by_row = np.array(data.draw(st.lists(level, min_size=n, max_size=n)))[:, None]
    by_label = np.array(data.draw(st.lists(level, min_size=5, max_size=5)))[None, :]
    thresholds = [data.draw(level), by_row, by_label]
    several = never_empty.sizes_at_several(prediction, thresholds)
    for threshold, sizes in zip(thresholds, several, strict=True):
        members = expected <= threshold
        sets = never_empty.sets(prediction, threshold)
        assert np.array_equal(sets.to_dense(), members)
        assert np.array_equal(sets.contains(labels), members[np.arange(n), y])
        assert np.array_equal(never_empty.sizes(prediction, threshold), members.sum(axis=1))
        assert np.array_equal(sizes, members.sum(axis=1))


@every_score
def test_no_set_is_empty_from_the_lowest_float_on(score):
    prediction = record_for(score, tied_rows(20, 1, 5), classes=list("abcde"))
    assert not NeverEmpty(score).sets(prediction, LOWEST_SCORE).is_empty().any()
    assert NeverEmpty(score).sets(prediction, -np.inf).is_empty().all()


@every_score
def test_no_rows_give_no_sets(score):
    nothing = record_for(score, np.empty((0, 5)), classes=list("abcde"))
    assert NeverEmpty(score).sets(nothing, 0.5).sizes().shape == (0,)


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
    n, n_new, k, alpha = 199, 2000, 10, 0.4
    p = rng.dirichlet(np.full(k, 0.5), size=n + n_new)
    y = np.argmax(rng.uniform(size=(n + n_new, 1)) < np.cumsum(p, axis=1), axis=1)
    record = ClassProbabilities(p, uniforms=rng.uniform(size=n + n_new))
    calibration, new = record.take(slice(n)), record.take(slice(n, None))
    plain = split_conformal(score.observed(calibration, y[:n]), alpha=alpha)
    threshold = split_conformal(NeverEmpty(score).observed(calibration, y[:n]), alpha=alpha)
    assert LOWEST_SCORE < threshold.value <= plain.value

    sets = NeverEmpty(score).sets(new, threshold)
    assert abs(sets.contains(y[n:]).mean() - 0.6) < 4 * np.sqrt(0.24 * (1 / n + 1 / n_new))
    plain_sets = score.sets(new, plain)
    assert plain_sets.is_empty().any()
    allowed = plain_sets.to_dense().copy()
    allowed[np.arange(n_new), np.argmax(p[n:], axis=1)] = True
    assert np.all(sets.to_dense() <= allowed)


def test_the_law_is_a_bound_where_the_first_label_is_enough():
    """Nine in ten rows are right by the first label: calibration scores are tied at the lowest."""
    rng = np.random.default_rng(5)
    y = rng.integers(2, size=600)
    X = (y + 0.3 * rng.normal(size=600))[:, None]
    est = dco.DecoupledClassifier(
        LogisticRegression(), NeverEmpty(LAC()), alpha=0.2, random_state=0
    ).fit(X[:400], y[:400])
    (entry,) = est.certificate_.thresholds
    assert entry.value == LOWEST_SCORE
    assert not entry.expected_is_exact
    assert est.evaluate(X[400:], y[400:]).mean_size == 1
    rows = est.splits_.calibrate
    assert est.certificate_.verify(X[rows], y[rows], predictor=est).holds


def test_it_is_a_score_that_compares_prints_and_pickles():
    score = NeverEmpty(RAPS(penalty=0.1, rank_free=1))
    assert isinstance(score, Score)
    assert score == NeverEmpty(RAPS(penalty=0.1, rank_free=1)) != NeverEmpty(APS())
    assert hash(score) == hash(pickle.loads(pickle.dumps(score)))
    assert repr(score) == "NeverEmpty(score=RAPS(penalty=0.1, rank_free=1, randomised=False))"


def test_it_reads_and_draws_what_its_score_does():
    assert NeverEmpty(AddOneIn()).needs == (ClassDraws,)
    assert NeverEmpty(APS(randomised=True)).randomised
    assert not NeverEmpty(APS()).randomised


@pytest.mark.parametrize("wrong", [AbsoluteResidual(), APS, None, "APS"], ids=repr)
def test_only_a_score_of_labels_is_wrapped(wrong):
    with pytest.raises(ValueError, match="NeverEmpty needs a score of labels such as"):
        NeverEmpty(wrong)


def test_what_its_score_refuses_is_refused():
    with pytest.raises(IncompatibleScoreError, match="LAC needs ClassProbabilities"):
        NeverEmpty(LAC()).observed(Points([0.0]), [0])
    with pytest.raises(ValueError, match="uniforms="):
        NeverEmpty(APS(randomised=True)).sets(ClassProbabilities(tied_rows(3, 0)), 0.5)


def test_an_estimator_takes_it_among_its_scores():
    X, y = load_iris(return_X_y=True)
    est = dco.DecoupledClassifier(
        LogisticRegression(C=0.01),
        {"plain": LAC(), "never empty": NeverEmpty(LAC())},
        alpha=0.2,
        random_state=0,
    ).fit(X, y)
    assert est.ranking_.failed == ()


def test_its_p_values_are_those_of_its_sets():
    X, y = load_iris(return_X_y=True)
    est = dco.DecoupledClassifier(
        LogisticRegression(C=0.01), NeverEmpty(LAC()), alpha=0.2, random_state=0
    ).fit(X, y)
    sets = est.predict_set(X)
    top = est.classes_[np.argmax(est.predict_proba(X), axis=1)]
    assert sets.contains(top).all()
    assert np.array_equal(est.predict_p(X) > 0.2, sets.to_dense())


def test_default_candidates_are_never_empty_and_the_papers_scores_have_their_names():
    classes = dco.datasets.GaussianClasses(n_classes=3, separation=4.0)
    X, y = classes.sample(400, np.random.default_rng(0))
    est = dco.DecoupledClassifier(LogisticRegression(), alpha=0.3, random_state=0).fit(X, y)
    names = {row.name.partition(" / ")[2] for row in est.ranking_.table}
    assert {"NeverEmpty(LAC)", "NeverEmpty(RAPS(penalty=0.1, rank_free=1))", "TopK"} <= names
    assert not {"LAC", "APS", "Margin"} & names
    assert not est.predict_set(X).is_empty().any()
    assert short_names(classes=True)["lac"] == (LAC(),)
    plain = dco.DecoupledClassifier(LogisticRegression(), LAC(), alpha=0.3, random_state=0)
    assert plain.fit(X, y).predict_set(X).is_empty().any()  # the paper's, by name
