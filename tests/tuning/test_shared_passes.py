"""Candidates that share a pass over one prediction are ranked as if each had its own."""

import numpy as np
import pytest

from dco.predictions import ClassDraws, ClassProbabilities, Points
from dco.scores import APS, LAC, RAPS, SAPS, AbsoluteResidual, Margin, TopK
from dco.scores.together import observed_together, sizes_together
from dco.tuning import tune
from dco.tuning.search import tune_levels

SCORES = [
    APS(),
    APS(randomised=True),
    RAPS(penalty=0.01, rank_free=2),
    RAPS(penalty=0.3, rank_free=0, randomised=True),
    SAPS(weight=0.1),
    SAPS(weight=0.02, randomised=True),
    TopK(),
]


def tied_rows(rng, n, k, dtype):
    """Rows of small counts over their sum: many equal probabilities, many zeros, as from a few
    trees.
    """
    counts = rng.multinomial(6, rng.dirichlet(np.ones(k)), size=n)
    return (counts / 6).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [1, 2, 31, 32, 33, 100])
def test_a_shared_pass_gives_what_each_score_gives(k, dtype):
    rng = np.random.default_rng(k)
    for rows in (tied_rows(rng, 60, k, dtype), rng.dirichlet(np.ones(k), size=60).astype(dtype)):
        prediction = ClassProbabilities(rows, uniforms=rng.uniform(size=60))
        y = rng.integers(k, size=60)
        together = observed_together(SCORES, prediction, y)
        thresholds = [[*np.unique(scores)[:: max(1, k // 8)], -1.0, np.inf] for scores in together]
        sizes = sizes_together(SCORES, prediction, thresholds)
        for score, scores, levels, each in zip(SCORES, together, thresholds, sizes, strict=True):
            assert np.array_equal(scores, score.observed(prediction, y))
            assert np.array_equal(each, score.sizes_at_several(prediction, levels))
            assert np.array_equal(each, [score.sets(prediction, level).sizes() for level in levels])


def test_labels_never_seen_and_draws_are_read_alike():
    rng = np.random.default_rng(1)
    draws = rng.dirichlet(np.ones(4), size=(3, 40))
    prediction = ClassDraws(
        draws, classes=list("abcd"), uniforms=rng.uniform(size=40), unseen=["e"]
    )
    y = rng.choice(list("abcde"), size=40)
    together = observed_together(SCORES, prediction, y)
    sizes = sizes_together(SCORES, prediction, [[0.5, np.inf]] * len(SCORES))
    assert np.isposinf(together[:, y == "e"]).all()
    for score, scores, each in zip(SCORES, together, sizes, strict=True):
        assert np.array_equal(scores, score.observed(prediction, y))
        assert np.array_equal(each, score.sizes_at_several(prediction, [0.5, np.inf]))


@pytest.mark.parametrize("matching", [None, (45, 50)])
def test_several_levels_and_candidates_rank_as_each_alone(matching):
    rng = np.random.default_rng(2)
    n, k = 80, 12
    predictions = [
        ClassProbabilities(rng.dirichlet(np.full(k, share), size=n), uniforms=rng.uniform(size=n))
        for share in (0.2, 1.0)
    ]
    y = rng.integers(k, size=n)
    scores = [*SCORES, LAC(), Margin()]
    candidates = {
        f"{i} {score!r}": (score, p) for i, p in enumerate(predictions) for score in scores
    }
    alphas = ["0.1", "0.25", "0.5"]
    rankings = tune_levels(candidates, y, alphas=alphas, rank_matching=matching)
    for alpha, ranking in zip(alphas, rankings, strict=True):
        alone = [
            tune({name: pair}, y, alpha=alpha, rank_matching=matching).table[0]
            for name, pair in candidates.items()
        ]
        assert sorted(ranking.table, key=lambda row: row.name) == sorted(
            alone, key=lambda row: row.name
        )


def test_one_that_fails_in_a_shared_pass_fails_alone():
    """A randomised score without uniforms cannot be evaluated; its neighbours on the same
    prediction can.
    """
    rng = np.random.default_rng(3)
    prediction, y = ClassProbabilities(rng.dirichlet(np.ones(5), size=30)), rng.integers(5, size=30)
    pairs = {
        "aps": (APS(), prediction),
        "drawn": (APS(randomised=True), prediction),
        "saps": (SAPS(0.1), prediction),
    }
    ranking = tune(pairs, y, alpha=0.2)
    assert [entry.name for entry in ranking.failed] == ["drawn"]
    assert "uniform" in ranking.failed[0].reason
    assert {row.name for row in ranking.table} == {"aps", "saps"}


class OwnCurve(AbsoluteResidual):
    """A score with a pass of its own for many thresholds, which raises."""

    def sizes_at_several(self, prediction, thresholds):
        raise ValueError("in the pass over many thresholds")


@pytest.mark.parametrize("name", ["observed_together", "sizes_together"])
def test_a_fault_in_a_shared_pass_is_not_hidden(name, monkeypatch):
    def fault(*_):
        raise IndexError("a fault of the pass")

    rng = np.random.default_rng(5)
    prediction, y = ClassProbabilities(rng.dirichlet(np.ones(5), size=30)), rng.integers(5, size=30)
    monkeypatch.setattr(f"dco.tuning.search.{name}", fault)
    with pytest.raises(IndexError, match="a fault of the pass"):
        tune_levels(
            {"APS": (APS(), prediction), "TopK": (TopK(), prediction)}, y, alphas=["0.1", "0.2"]
        )


def test_a_pass_over_many_thresholds_that_raises_costs_that_candidate_alone():
    rng = np.random.default_rng(6)
    points, y = Points(rng.normal(size=30)), rng.normal(size=30)
    pairs = {"plain": (AbsoluteResidual(), points), "broken": (OwnCurve(), points)}
    for ranking in tune_levels(pairs, y, alphas=["0.1", "0.2"]):
        assert [row.name for row in ranking.table] == ["plain"]
        assert ranking.failed[0].reason == "ValueError: in the pass over many thresholds"
    assert len(tune(pairs, y, alpha="0.1").table) == 2  # one level needs no such pass
