"""Which rows fit the models of a search, and which rows they are then compared on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from dco.foundations.arrays import AnyArray, Integers
from dco.rows.rows import Cut, Rows
from dco.rows.splits import folds
from dco.tuning.evaluated import ALL_ROWS, Positions

_CROSS_FITTING_FOLDS = 5


@dataclass(frozen=True, eq=False)
class Part:
    """One fit of a model: the rows to fit on, and the rows to predict afterwards."""

    table: Rows
    fit_on: Cut | slice  # positions in the table
    predicted: Positions  # among the tuning rows

    def training_rows(self) -> Rows:
        """Cut out the rows to fit on; those of all folds at once would be many times the table."""
        return self.table.take(self.fit_on)


class Resampling(ABC):
    """A way to fit models on some of the rows that a search may see and to compare them on others.

    `training_rows` are those that models are fitted on, `tuning_rows` those that candidates are
    ranked on.
    """

    training_rows: Rows
    tuning_rows: Rows
    is_by_folds: ClassVar[bool] = False

    @property
    @abstractmethod
    def targets(self) -> AnyArray:
        """The targets of all rows that a search may see."""

    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """Return what is to be fitted and predicted for each model."""

    @abstractmethod
    def in_words(self) -> str:
        """Say on which rows candidates were ranked."""

    def rows_to_learn_from(self) -> Rows:
        """Return the rows that scores learn from; with frozen models no row trains."""
        return self.training_rows if len(self.training_rows) else self.tuning_rows


@dataclass(frozen=True, eq=False)
class Holdout(Resampling):
    """Fit on the training rows, and compare on the tuning rows."""

    training_rows: Rows
    tuning_rows: Rows

    @cached_property
    def targets(self) -> AnyArray:
        """Return the targets of training and tuning rows."""
        return np.concatenate([self.training_rows.y, self.tuning_rows.y])

    def parts(self) -> list[Part]:
        """Return the one part: fit on the training rows, predict all tuning rows."""
        return [Part(self.training_rows, fit_on=ALL_ROWS, predicted=ALL_ROWS)]

    def in_words(self) -> str:
        """Count the tuning rows."""
        return f"on {len(self.tuning_rows)} tuning rows"


@dataclass(frozen=True, eq=False)
class Folds(Resampling):
    """Predict each fold of the rows by models that were fitted on the other folds."""

    tuning_rows: Rows
    n_folds: int
    seed: int
    is_by_folds = True

    @property
    def training_rows(self) -> Rows:  # type: ignore[override]
        """Return all rows: each is trained on, in the models that predict another fold."""
        return self.tuning_rows

    @property
    def targets(self) -> AnyArray:
        """Return the targets of all rows."""
        return self.tuning_rows.y

    def parts(self) -> list[Part]:
        """Return one part for each fold: fit on the other folds, predict this one."""
        rows = self.tuning_rows
        cuts = folds(len(rows), self.n_folds, groups=rows.clusters, seed=fold_seed(self.seed))
        return [Part(rows, fit_on=fit_on, predicted=held_out) for fit_on, held_out in cuts]

    def in_words(self) -> str:
        """Count the tuning rows and the folds."""
        return f"on {len(self.tuning_rows)} tuning rows, predicted by {self.n_folds} folds"


def resample(train: Rows, tune: Rows, *, n_folds: int | None, seed: int) -> Resampling:
    """Choose how candidates are compared: on the tuning rows, or by folds of the training rows.

    Folds are taken if their number is given, and then there are no tuning rows.
    """
    if n_folds is None:
        return Holdout(train, tune)
    return Folds(train, n_folds, seed)


def uniform_seed(seed: int) -> int:
    """Return the seed of the uniforms of randomised scores."""
    return int(np.random.SeedSequence(seed).generate_state(2)[0])


def fold_seed(seed: int) -> int:
    """Return the seed that deals rows to folds."""
    return int(np.random.SeedSequence(seed).generate_state(2)[1])


def cross_fitting_folds(rows: Rows) -> list[tuple[Integers, Integers]]:
    """Cut tuning rows into folds, for what is learnt from some of them and tried on the others.

    Each fold is a pair: the positions to learn from, and those that are held out. Rows of a cluster
    stay together.
    """
    cuts = folds(len(rows), _CROSS_FITTING_FOLDS, groups=rows.clusters, seed=0)
    return [(np.concatenate(learn_from), held_out) for learn_from, held_out in cuts]
