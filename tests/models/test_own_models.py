"""Models come as one, in lists, in dicts, in pairs and by the names of default ones, in any mix."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_regression
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.model_selection import GridSearchCV, KFold

import dco
from dco.models.own_models import copy_and_seed, default_names, own_models

X, Y = make_regression(160, 3, noise=5.0, random_state=0)


def tried(models: Any) -> set[str]:
    """The models that a fit ranks and that are not made of others."""
    est = dco.DecoupledRegressor(models, random_state=0).fit(X, Y)
    names = {row.name.partition(" / ")[0] for row in est.ranking_.table}
    return {
        name
        for name in names
        if name != "stack" and not name.startswith("average") and not name.endswith("spread")
    }


@pytest.mark.parametrize(
    ("models", "own", "default"),
    [
        (None, [], None),
        ("linear", [], ("linear",)),
        (Ridge(), ["ridge"], ()),
        ([Ridge(), BayesianRidge()], ["ridge", "bayesianridge"], ()),
        ([Ridge(), Ridge(alpha=2.0)], ["ridge-1", "ridge-2"], ()),
        ({"mine": Ridge()}, ["mine"], ()),
        ([("mine", Ridge()), BayesianRidge()], ["mine", "bayesianridge"], ()),
        (("mine", Ridge()), ["mine"], ()),
        (["linear", "forest"], [], ("linear", "forest")),
        (["linear", Ridge()], ["ridge"], ("linear",)),
        (["default", Ridge()], ["ridge"], None),
        ([{"mine": Ridge()}, "linear", ("yours", Ridge())], ["mine", "yours"], ("linear",)),
    ],
    ids=str,
)
def test_names_are_read_in_any_mix(models, own, default):
    assert list(own_models(models)) == own
    assert default_names(models) == default


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        (["linear", Ridge()], {"linear", "ridge"}),
        (["linear", {"mine": Ridge()}], {"linear", "mine"}),
    ],
    ids=["an estimator", "a named one"],
)
def test_default_models_and_own_ones_are_ranked_together(models, expected):
    assert tried(models) == expected


def test_default_stands_for_all_default_models():
    assert tried(["default", {"mine": Ridge()}]) == tried(None) | {"mine"}


def test_own_models_are_tried_with_the_scores_of_default_ones():
    est = dco.DecoupledRegressor(["linear", {"mine": Ridge()}], random_state=0).fit(
        X, np.exp(Y / 50)
    )
    scores: dict[str, set[str]] = {"linear": set(), "mine": set()}
    for row in est.ranking_.table:
        model, _, score = row.name.partition(" / ")
        if model in scores and not score.startswith("Levelled"):  # learnt for the best few
            scores[model].add(score)
    assert len(scores["mine"]) > 1
    assert scores["mine"] == scores["linear"]


@pytest.mark.parametrize(
    ("models", "says"),
    [
        (["nonsense", Ridge()], "no default model 'nonsense' for regression: choose from linear, "),
        ("nonsense", "no default model 'nonsense' for regression"),
        (["default", "linear"], "leave 'linear' out"),
        ([], "models is empty"),
        ({}, "models is empty"),
        ({"b": "linear"}, "pass 'linear' in a list"),
        ([("a", Ridge()), ("a", BayesianRidge())], "Two models are called 'a'"),
        ([{"ridge": Ridge()}, Ridge()], "Two models are called 'ridge'"),
        (["linear", {"linear": Ridge()}], "Your model is called 'linear' as a default one is"),
    ],
    ids=str,
)
def test_names_that_say_nothing_are_errors(models, says):
    with pytest.raises(ValueError, match=says):
        dco.DecoupledRegressor(models).fit(X, Y)


# --------------------------------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("models", "first"),
    [
        ({"a": Ridge(), "b": BayesianRidge()}, "a"),
        ([Ridge(), BayesianRidge()], "ridge"),
        ([("a", Ridge()), ("b", BayesianRidge())], "a"),
        (["linear", {"a": Ridge()}], "a"),
    ],
    ids=str,
)
def test_models_in_a_container_are_reached_by_name(models, first):
    est = dco.DecoupledRegressor(models)
    est.set_params(**{f"models__{first}__alpha": 7.0, "alpha": 0.3})
    assert est.get_params()[f"models__{first}__alpha"] == 7.0
    assert est.alpha == 0.3

    est.set_params(**{f"models__{first}": Ridge(alpha=3.0)})
    assert est.get_params()[f"models__{first}__alpha"] == 3.0
    assert type(est.models) is type(models)
    assert default_names(est.models) == default_names(models)


def test_a_model_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="no model for 'nobody__alpha'; the models are ridge"):
        dco.DecoupledRegressor([Ridge()]).set_params(models__nobody__alpha=1)


# --------------------------------------------------------------------------------- copies and seeds


def test_models_without_a_seed_get_one_of_their_own():
    models = {"a": BayesianRidge(), "b": Ridge(), "c": Ridge(random_state=5)}
    copies = copy_and_seed(models, seed=0)
    assert copies["b"].random_state is not None
    assert copies["c"].random_state == 5
    assert models["b"].random_state is None
    assert copy_and_seed(models, seed=0)["b"].random_state == copies["b"].random_state
    assert copy_and_seed(models, seed=1)["b"].random_state != copies["b"].random_state


def test_shuffled_folds_inside_a_search_get_a_seed():
    search = GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=KFold(3, shuffle=True))
    copy = copy_and_seed({"search": search}, seed=0)["search"]
    assert copy.cv.random_state is not None
    assert search.cv.random_state is None


def test_frozen_models_are_used_as_they_are():
    frozen = FrozenEstimator(Ridge().fit(X, Y))
    assert copy_and_seed({"frozen": frozen}, seed=0)["frozen"] is frozen


def test_a_model_that_cannot_be_copied_is_named():
    class NoParameters:
        def fit(self, X, y):
            return self

    with pytest.raises(TypeError, match="The model 'mine' has no get_params"):
        copy_and_seed({"mine": NoParameters()}, seed=0)
