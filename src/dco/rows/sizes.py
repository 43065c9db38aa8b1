"""How many rows tune and calibrate: what the caller asks for, or what suits the number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

from dco.foundations.notes import Message
from dco.foundations.ranks import as_count
from dco.rows.splits import Size

QUARTER = 0.25
# Hundreds of rows rank candidates alike in fewer folds.
FOLDS = 5
FOLDS_OF_HUNDREDS = 3
# Rows that calibration leaves to train and tune on, at least: one in each fold. A `plan` too.
FEWEST_LEFT = FOLDS


@dataclass(frozen=True)
class RoleSizes:
    """How many rows (or clusters) tune and calibrate, each a share or a count. The others train.

    With `folds`, candidates are ranked by folds of the training rows and no row is set aside to
    tune. ``tune=0`` is for a single candidate, which is not compared.
    """

    tune: Size = QUARTER
    calibrate: Size = QUARTER
    folds: int | None = None

    def __post_init__(self) -> None:
        if self.folds is not None and as_count(self.folds, name="tune_folds") < 2:
            raise ValueError(Message(f"⟨tune_folds⟩ must be at least 2, got {self.folds}."))


def default_sizes(
    n: int,
    *,
    smallest_calibration: int,
    tune: Size | None = None,
    calibrate: Size | None = None,
    folds: int | None = None,
    may_fold: bool = True,
    deals_tuning: bool = True,
    fold_below: int = 0,
) -> RoleSizes:
    """Fill in what the caller did not say about the roles of n rows (or clusters).

    A quarter tunes and a quarter calibrates. If a quarter gives no finite threshold, calibration
    gets the smallest number that does. Candidates are then ranked by folds if they can be, so that
    no row is lost to tuning; so they are below `fold_below` rows, and where calibration leaves so
    few rows that fewer would train than tune.

    Parameters
    ----------
    smallest_calibration
        The calibration rows that a finite threshold takes.
    tune, calibrate, folds
        What the caller asked for, None for what is left open.
    may_fold
        Whether candidates can be ranked by folds: the winner is refitted, and the caller brings no
        rows of a role.
    deals_tuning
        Whether some of these rows tune while others train: the caller brings no tuning rows, and
        not all models are frozen.
    """
    n_quarter = _as_number(QUARTER, n)
    holds_out_tuning = deals_tuning and folds is None

    # Calibration leaves some rows to train, and those that were asked for to tune.
    n_to_leave = FEWEST_LEFT
    if holds_out_tuning and tune is not None:
        n_to_leave += _as_number(tune, n)

    is_raised = calibrate is None and n_quarter < smallest_calibration <= n - n_to_leave
    if is_raised:
        calibrate = smallest_calibration
    elif calibrate is None:
        calibrate = QUARTER
    n_left = n - _as_number(calibrate, n)

    # With few rows, no row is set aside to tune, or a quarter of what calibration leaves.
    trains_fewer_than_tunes = n_left < 2 * n_quarter
    are_few = is_raised or trains_fewer_than_tunes or n < fold_below
    if may_fold and are_few and n_left >= FEWEST_LEFT and tune is None and folds is None:
        folds = FOLDS_OF_HUNDREDS if 100 <= n < fold_below else FOLDS
    elif is_raised and holds_out_tuning and tune is None:
        tune = n_left // 4

    return RoleSizes(tune=QUARTER if tune is None else tune, calibrate=calibrate, folds=folds)


def _as_number(size: Size, n: int) -> int:
    """Return how many of n rows a count or a share means, rounded half up; 0 for neither."""
    if isinstance(size, Integral):
        return int(size)
    is_share = isinstance(size, Real) and 0 <= size <= 1
    return math.floor(float(size) * n + 0.5) if is_share else 0
