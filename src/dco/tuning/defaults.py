"""Which models and scores are tried where the caller leaves them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco.foundations.arrays import Floats
from dco.foundations.ranks import Level, as_rational
from dco.models.own_models import copy_and_seed
from dco.models.records import records_of
from dco.models.wrapped import last_model
from dco.scores.names import named_scores
from dco.scores.never_empty import never_empty
from dco.scores.registry import default_scores
from dco.scores.regression import AbsoluteResidual, NormalisedResidual, QuantileResidual
from dco.scores.score import Score
from dco.scores.transformed import Transformed
from dco.tuning.default_models import (
    CLASSIFIERS,
    REGRESSORS,
    Recipe,
    check_default_names,
    columns_of,
    make_default_model,
)
from dco.tuning.resampling import Resampling

# A quarter of fewer rows would be too few to choose among so many candidates by.
FOLDS_BELOW = 1_000
# In folds of fewer rows, boosting as it comes costs more than its small trees, and loses.
_SMALL_BELOW = 400
# Beyond so many training rows a forest costs more than boosting, and loses.
_FOREST_UP_TO = 1_500
_FOREST_OF_CLASSES_UP_TO = 5_000
_RESIDUALS: tuple[Score, ...] = (AbsoluteResidual(), NormalisedResidual(), QuantileResidual())


@dataclass(frozen=True, eq=False)
class Models:
    """The models to try: the caller's own, copied and seeded, and default ones by name.

    `default_names` are () for none, and None for the usual ones, which depend on the rows.
    """

    own: Mapping[str, Any]
    default_names: tuple[str, ...] | None
    of_classes: bool
    alpha: Level
    seed: int

    def __post_init__(self) -> None:
        check_default_names(self.default_names or (), of_classes=self.of_classes)

    @property
    def has_defaults(self) -> bool:
        """Whether default models are among them."""
        return self.default_names != ()

    def make(self, resampling: Resampling, scores: Mapping[str, Score] | None) -> dict[str, Any]:
        """Make the default models for the rows, and put the caller's own beside them.

        With scores of the caller, default models that give nothing for them are left out.
        """
        if not self.has_defaults:
            return dict(self.own)
        models = self._make_defaults(resampling, scores)
        for name in models:
            if name in self.own:
                raise ValueError(
                    f"Your model is called {name!r} as a default one is: give it another name."
                )
        return {**copy_and_seed(models, seed=self.seed), **self.own}

    def _make_defaults(
        self, resampling: Resampling, scores: Mapping[str, Score] | None
    ) -> dict[str, Any]:
        """Make the default models that were asked for, or the usual ones."""
        recipe = self._recipe(resampling)
        names = self.default_names
        if names is None:
            names = self._usual_names(resampling, recipe, scores)
        models = {name: make_default_model(name, recipe) for name in names}
        if scores is None:
            return models

        readable = {name: model for name, model in models.items() if _gives_for(model, scores)}
        if not readable and not self.own:
            return models  # and the error that follows says what they lack
        return readable

    def _recipe(self, resampling: Resampling) -> Recipe:
        """Read off the rows what default models are made for."""
        rows = resampling.training_rows
        return Recipe(
            of_classes=self.of_classes,
            alpha=float(as_rational(self.alpha)),
            columns=columns_of(rows.X),
            log=None if self.of_classes else suiting_log(resampling.targets),
            is_small=resampling.is_by_folds and len(rows) < _SMALL_BELOW,
        )

    def _usual_names(
        self, resampling: Resampling, recipe: Recipe, scores: Mapping[str, Score] | None
    ) -> tuple[str, ...]:
        """Name the default models that are worth their cost on these rows.

        `recipe` describes the rows; `scores` are the caller's, or None for the default ones.
        """
        n_rows = len(resampling.training_rows)
        if self.of_classes:
            if n_rows <= _FOREST_OF_CLASSES_UP_TO:
                return tuple(CLASSIFIERS)
            return tuple(name for name in CLASSIFIERS if name != "forest")

        left_out = set()

        # 1. A forest is for few rows; beside it, where a logarithm suits, boosting is left out.
        takes_forest = n_rows <= _FOREST_UP_TO
        if not takes_forest:
            left_out.add("forest")
        if recipe.log is None:
            left_out |= {"linear-log", "boosting-log"}
        elif takes_forest:
            left_out.add("boosting")

        # 2. Very few rows do not pay for boosting.
        if recipe.is_small:
            left_out |= {"boosting", "boosting-log"}

        # 3. The default scores do not need every model that gives more than a point prediction.
        if scores is None:
            left_out.add("spread")  # levelled scores do its work at a fifth of its cost
        if scores is None and resampling.is_by_folds and n_rows < FOLDS_BELOW:
            left_out.add("quantiles")

        return tuple(name for name in REGRESSORS if name not in left_out)


def _gives_for(model: Any, scores: Mapping[str, Score]) -> bool:
    """Return whether the model gives a record that one of the scores reads."""
    offered = records_of(model)
    return any(record in score.needs for score in scores.values() for record in offered)


def default_scores_of(
    model: Any, *, of_classes: bool, transforms: Sequence[str] = ()
) -> dict[str, Score]:
    """List the scores that are tried on a model where the caller names none.

    For classes these are the registered ones, so that no set is empty. For numbers the residual
    scores come on the scale of the targets and on the scales of `transforms`.
    """
    offered = records_of(model)
    registered = [score for record in offered for score in default_scores(record)]
    if of_classes:
        return named_scores(never_empty(score) for score in registered)

    gives_medians = getattr(last_model(model), "median", False)
    scores = [*_RESIDUALS, *registered]
    scores += [Transformed(score, name) for score in _RESIDUALS for name in transforms]
    if not gives_medians:
        scores = [score for score in scores if score != QuantileResidual(kind="median")]
    return named_scores(
        score for score in scores if any(record in score.needs for record in offered)
    )


def suiting_transforms(resampling: Resampling) -> list[str]:
    """Choose the scales, flatter towards large targets, on which scores are tried too.

    Without tuning rows there is nothing to choose by, so one scale must do.
    """
    if not len(resampling.tuning_rows):
        return []
    log = suiting_log(resampling.targets)
    if log is not None:
        return [log, "sqrt"]
    are_all_equal = np.ptp(resampling.rows_to_learn_from().y) == 0
    return [] if are_all_equal else ["quantile"]


def suiting_log(y: Floats) -> str | None:
    """Choose "log", "log1p" where some targets are (nearly) 0, or None where some are negative."""
    smallest = float(np.min(y))
    if smallest < 0:
        return None
    is_far_from_zero = smallest > 0 and smallest >= float(np.median(y)) / 1000
    return "log" if is_far_from_zero else "log1p"
