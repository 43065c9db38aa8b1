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
    EFFORTS,
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
# Fewer training rows do not train a network.
_NETWORKS_FROM = 1_200
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
    effort: str = "usual"

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
        """Make the default models that were asked for, or the usual ones.

        If the caller chose the scores, models that give nothing for any of them are left out.
        """
        recipe = self._recipe(resampling)
        names = self.default_names
        if names is None:
            names = self._usual_names(resampling, recipe, scores)
        models = {name: make_default_model(name, recipe) for name in names}
        if scores is None:
            return models

        suitable = {name: model for name, model in models.items() if _suits_a_score(model, scores)}
        if not suitable and not self.own:
            return models  # the error that follows says what each of them lacks
        return suitable

    def _recipe(self, resampling: Resampling) -> Recipe:
        """Read off the rows what default models are made for."""
        rows = resampling.training_rows
        return Recipe(
            of_classes=self.of_classes,
            alpha=float(as_rational(self.alpha)),
            columns=columns_of(rows.X),
            log=None if self.of_classes else suiting_log(resampling.targets),
            is_small=resampling.is_by_folds and len(rows) < _SMALL_BELOW,
            effort=EFFORTS[self.effort],
        )

    def _usual_names(
        self, resampling: Resampling, recipe: Recipe, scores: Mapping[str, Score] | None
    ) -> tuple[str, ...]:
        """Name the default models that are worth their cost on these rows.

        `recipe` describes the rows; `scores` are the caller's, or None for the default ones.
        """
        n_rows = len(resampling.training_rows)
        if self.of_classes:
            takes_forest = n_rows <= _FOREST_OF_CLASSES_UP_TO
            return tuple(name for name in CLASSIFIERS if takes_forest or name != "forest")

        excluded = _unsuitable_regressors(recipe, n_rows)
        if scores is None:
            # Levelled scores do its work at a fifth of its cost.
            excluded.add("spread")
            if resampling.is_by_folds and n_rows < FOLDS_BELOW:
                excluded.add("quantiles")
        return tuple(name for name in REGRESSORS if name not in excluded)


def _unsuitable_regressors(recipe: Recipe, n_rows: int) -> set[str]:
    """Name the default regressors that do not suit the rows, or are not worth their cost on them.

    `n_rows` is the number of training rows, and `recipe` what else is known of them.
    """
    excluded = set()

    # 1. Models of the logarithm need targets that have one.
    if recipe.log is None:
        excluded |= {"linear-log", "boosting-log"}

    # 2. A forest is for few rows. Where there is a forest and boosting of the logarithm, plain
    # boosting adds little.
    takes_forest = n_rows <= _FOREST_UP_TO
    if not takes_forest:
        excluded.add("forest")
    if takes_forest and recipe.log is not None:
        excluded.add("boosting")

    # 3. On very few rows boosting costs more than it gains.
    if recipe.is_small:
        excluded |= {"boosting", "boosting-log"}

    # 4. Smooth models take time, which the caller may have limited; networks also need many rows.
    effort = recipe.effort
    if effort.process_rows == 0:
        excluded.add("smooth")
    if effort.n_networks == 0 or n_rows < _NETWORKS_FROM:
        excluded.add("networks")
    return excluded


def _suits_a_score(model: Any, scores: Mapping[str, Score]) -> bool:
    """Return whether one of the scores reads a type of prediction that the model gives."""
    offered = records_of(model)
    return any(record in score.needs for score in scores.values() for record in offered)


def default_scores_of(
    model: Any, *, of_classes: bool, transforms: Sequence[str] = ()
) -> dict[str, Score]:
    """List the scores that are tried on a model where the caller names none, by name.

    Parameters
    ----------
    of_classes
        Whether targets are labels. Then scores are changed so that no set is empty.
    transforms
        Scales of the targets, such as "log", on which residuals are tried besides the plain one.
    """
    # 1. Each type of prediction (record) has default scores, in a registry.
    records = records_of(model)
    registered = [score for record in records for score in default_scores(record)]
    if of_classes:
        return named_scores(never_empty(score) for score in registered)

    # 2. For numbers, add residuals, on the plain scale and on the others.
    scores = [*_RESIDUALS, *registered]
    for residual in _RESIDUALS:
        scores += [Transformed(residual, transform) for transform in transforms]

    # 3. Keep the scores that can read what the model predicts.
    gives_medians = getattr(last_model(model), "median", False)
    readable = []
    for score in scores:
        needs_median = score == QuantileResidual(kind="median")
        if needs_median and not gives_medians:
            continue
        if any(record in score.needs for record in records):
            readable.append(score)
    return named_scores(readable)


def suiting_transforms(resampling: Resampling) -> list[str]:
    """Choose the scales of the targets on which scores are tried besides the plain one.

    On all of them (such as "log") large targets lie closer together. Without tuning rows there is
    nothing to choose by, so the plain scale must do.
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
    nearly_zero = float(np.median(y)) / 1000
    return "log" if smallest > 0 and smallest >= nearly_zero else "log1p"
