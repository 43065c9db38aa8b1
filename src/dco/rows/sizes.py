"""How many rows tune and calibrate: what the caller asks for, or what suits the number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

from dco.foundations.notes import Message
from dco.foundations.ranks import as_count
from dco.rows.splits import Size

QUARTER = 0.25
FOLDS = 5
# With hundreds of rows, three folds rank candidates as five do, in less time.
FOLDS_FROM_HUNDREDS = 3
HUNDREDS = 100
# The fewest rows for all roles but calibration: one in each fold.
FEWEST_FOR_OTHER_ROLES = FOLDS


@dataclass(frozen=True)
class RoleSizes:
    """How many rows (or clusters) tune and calibrate, each a share or a count. The others train.

    With `folds`, candidates are ranked by cross-validation on the training rows, and `tune` is not
    used. ``tune=0`` is for a single candidate, which needs no ranking.
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
    """Choose how many of n rows (or clusters) tune and calibrate, where the caller did not say.

    A quarter tunes, a quarter calibrates, and the others train, with two exceptions:

    1. If a quarter is too small for a finite threshold, more rows calibrate: as many as that takes.
    2. With few rows, candidates are ranked by folds, so that no row is lost to tuning. Rows are few
       below `fold_below`, after exception 1, or if fewer rows would train than tune.

    Parameters
    ----------
    n
        How many rows, or clusters of rows that belong together, there are.
    smallest_calibration
        How many of them a finite threshold takes.
    tune, calibrate, folds
        What the caller asked for: a count or a share of the rows to tune and to calibrate, and a
        number of folds. None where this function chooses.
    may_fold
        Whether candidates can be ranked by folds: the winner is refitted, and the caller brings no
        rows of a role.
    deals_tuning
        Whether some of these rows tune while others train: the caller brings no tuning rows, and
        not all models are frozen.
    fold_below
        The number of rows below which candidates are ranked by folds; 0 for no such limit.
    """
    n_quarter = _as_number(QUARTER, n)
    holds_out_tuning_rows = deals_tuning and folds is None

    # 1. Calibration rows: a quarter, or more if a finite threshold takes more and the other roles
    #    can spare them.
    n_for_other_roles = FEWEST_FOR_OTHER_ROLES
    if holds_out_tuning_rows and tune is not None:
        n_for_other_roles += _as_number(tune, n)
    is_quarter_too_small = n_quarter < smallest_calibration
    can_spare_more = smallest_calibration <= n - n_for_other_roles
    is_enlarged = calibrate is None and is_quarter_too_small and can_spare_more
    if calibrate is None:
        calibrate = smallest_calibration if is_enlarged else QUARTER

    # 2. Folds, if the caller asked for no other way to tune and the remaining rows are few.
    n_remaining = n - _as_number(calibrate, n)
    would_train_fewer_than_tune = n_remaining < 2 * n_quarter
    has_few_rows = is_enlarged or would_train_fewer_than_tune or n < fold_below
    can_fold = may_fold and n_remaining >= FEWEST_FOR_OTHER_ROLES
    is_free_to_fold = tune is None and folds is None and can_fold
    if is_free_to_fold and has_few_rows:
        folds = FOLDS_FROM_HUNDREDS if HUNDREDS <= n < fold_below else FOLDS
        return RoleSizes(tune=QUARTER, calibrate=calibrate, folds=folds)

    # 3. Tuning rows: a quarter of all rows, or of the remaining ones after exception 1.
    if tune is None:
        tune = n_remaining // 4 if is_enlarged and holds_out_tuning_rows else QUARTER
    return RoleSizes(tune=tune, calibrate=calibrate, folds=folds)


def _as_number(size: Size, n: int) -> int:
    """Return how many of n rows a size means: a count itself, a share times n, rounded half up.

    A size that is neither (it is refused later) counts as 0.
    """
    if isinstance(size, Integral):
        return int(size)
    is_share = isinstance(size, Real) and 0 <= size <= 1
    return math.floor(float(size) * n + 0.5) if is_share else 0
