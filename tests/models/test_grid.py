"""dco.grid: hyperparameters as candidates."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import dco
from dco.datasets import GaussianClasses
from dco.models.grid import grid
from dco.scores import APS, LAC, RAPS, SAPS, NeverEmpty, NormalisedResidual


def test_every_combination_is_an_unfitted_clone_under_a_readable_name():
    base = RandomForestRegressor(n_estimators=7)
    models = grid(base, max_depth=[4, 8], max_features=["sqrt", 0.5])
    settings = [(depth, features) for depth in (4, 8) for features in ("'sqrt'", 0.5)]
    assert list(models) == [
        f"RandomForestRegressor(max_depth={d}, max_features={f})" for d, f in settings
    ]
    for model, depth in zip(models.values(), (4, 4, 8, 8), strict=True):
        assert model is not base
        assert (model.max_depth, model.n_estimators) == (depth, 7)
        assert not hasattr(model, "estimators_")
    assert base.max_depth is None


def test_parameters_of_a_pipeline_are_named_shortly_and_without_double_underscores():
    pipeline = make_pipeline(StandardScaler(), Ridge())
    models = grid(pipeline, ridge__alpha=np.array([0.1, 1.0]), standardscaler__with_mean=False)
    assert list(models) == [
        f"Ridge(alpha={alpha}, standardscaler.with_mean=False)" for alpha in (0.1, 1.0)
    ]
    assert [model.named_steps["ridge"].alpha for model in models.values()] == [0.1, 1.0]


def test_steps_can_be_exchanged_and_are_cloned():
    scaler = MinMaxScaler()
    pipeline = make_pipeline(StandardScaler(), Ridge())
    models = grid(
        pipeline, standardscaler=[scaler, "passthrough"], ridge=[Ridge(), Ridge(), Lasso()]
    )
    assert len(models) == 6
    assert not any("__" in name for name in models)
    first = next(iter(models.values()))
    assert isinstance(first.named_steps["standardscaler"], MinMaxScaler)
    assert first.named_steps["standardscaler"] is not scaler


def test_the_parameters_of_a_score_make_scores_named_like_models():
    base = RAPS(penalty=0.5, rank_free=9, randomised=True)
    scores = grid(base, rank_free=[1, np.int64(5)], penalty=(0.01, 0.1))
    assert scores == {
        f"RAPS(rank_free={free}, penalty={penalty})": RAPS(penalty, free, randomised=True)
        for penalty in (0.01, 0.1)
        for free in (1, 5)
    }
    assert base == RAPS(0.5, 9, randomised=True)
    assert grid(LAC()) == {"LAC": LAC()}
    assert list(grid(Ridge())) == ["Ridge"]  # nothing to vary
    assert list(grid(NormalisedResidual(), floor=[0.0, 0.1])) == [
        f"NormalisedResidual(floor={f})" for f in (0.0, 0.1)
    ]
    assert list(grid(NeverEmpty(APS()), score=[APS(), LAC()]).values()) == [
        NeverEmpty(APS()),
        NeverEmpty(LAC()),
    ]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: grid(RAPS(0.1, 1), depth=[1]),
            "RAPS has no parameter 'depth'; it has penalty, rank_free, randomised",
        ),
        (lambda: grid(LAC(), penalty=[1]), "LAC has no parameter 'penalty'; it has none"),
        (lambda: grid(RAPS(0.1, 1), penalty=[-1.0]), "penalty"),
        (lambda: grid(SAPS(0.1), weight=[]), "weight has no values"),
        (lambda: grid(SAPS, weight=[1.0]), "or a score such as dco.scores.SAPS"),
        (lambda: grid(Ridge(), alpha=[]), "alpha has no values"),
        (lambda: grid(Ridge(), depth=[1]), "depth"),
        *(
            (
                lambda wrong=wrong: grid(wrong, alpha=[1.0]),
                "estimator must be a scikit-learn estimator such as",
            )
            for wrong in (None, [Ridge()], Ridge, "Ridge")
        ),
    ],
)
def test_what_cannot_be_varied_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_grid_of_scores_is_searched_by_tune_and_by_the_estimators():
    """By hand, score after score, the same candidate comes out as the smallest."""
    population, rng = GaussianClasses(n_classes=6, separation=2.0), np.random.default_rng(0)
    X, y = population.sample(600, rng)
    scores = {
        **grid(RAPS(0.1, 1), penalty=[0.001, 0.1], rank_free=[1, 3]),
        **grid(SAPS(0.1), weight=[0.01, 0.3]),
    }
    prediction = population.prediction(X)
    ranking = dco.tune({name: (score, prediction) for name, score in scores.items()}, y, alpha=0.1)
    alone = {
        name: dco.tune({name: (score, prediction)}, y, alpha=0.1).table[0]
        for name, score in scores.items()
    }
    assert ranking.best == min(
        alone, key=lambda name: (alone[name].mean_size, alone[name].p95_size)
    )
    assert {row.name for row in ranking.table} == set(scores)

    estimator = dco.DecoupledClassifier(
        LogisticRegression(), scores=scores, alpha=0.1, random_state=0
    ).fit(X, y)
    assert {row.name for row in estimator.ranking_.table} == {
        f"logisticregression / {name}" for name in scores
    }
