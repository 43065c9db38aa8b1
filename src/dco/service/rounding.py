"""Scores without the digits that depend on how many rows come in a batch.

A matrix product of one row may round otherwise than one of many, so the last digits of a score say
nothing about its row. A monitor that read them would take tied scores apart.
"""

from __future__ import annotations

import math

import numpy as np

from dco.foundations.arrays import Floats

# A step of the rounded scores is at least
_STEPS_PER_SPREAD = 2.0**20  # ... about a millionth of the usual spread of scores,
_DIGITS_KEPT = 46  # ... the last but 7 of the 53 binary digits of the largest score,
_DIFFERENCES_PER_STEP = 256.0  # ... and so many differences between batches.


def choose_step(scores: Floats, *, rounding: float) -> float:
    """Choose the step to whose multiples scores are rounded, a power of two.

    A score differs in its last digits when its row comes in another batch. The step is many times
    as long as such a difference, so that hardly any score lies where two batches would round it to
    different sides.

    Parameters
    ----------
    scores
        The scores of the calibration rows.
    rounding
        By how much scores of one row were seen to differ between batches.
    """
    finite = scores[np.isfinite(scores)].astype(np.float64)
    largest = float(np.abs(finite).max(initial=0.0))
    if largest == 0.0:
        return 0.0

    quarter, three_quarters = np.quantile(finite, [0.25, 0.75])
    spread = float(three_quarters - quarter)
    if spread == 0.0:
        spread = largest
    step = max(
        spread / _STEPS_PER_SPREAD,
        largest * 2.0**-_DIGITS_KEPT,
        rounding * _DIFFERENCES_PER_STEP,
    )
    return 2.0 ** math.ceil(math.log2(step))


def round_scores(scores: Floats, step: float) -> Floats:
    """Round scores to multiples of the step.

    Scores that are much larger than those of the calibration rows keep so many digits instead.
    """
    values = np.asarray(scores, dtype=np.float64)
    if step == 0.0:
        return values

    _, exponents = np.frexp(values)
    steps = np.maximum(step, np.ldexp(1.0, exponents - _DIGITS_KEPT))
    rounded: Floats = np.round(values / steps) * steps + 0.0  # never -0.0
    return rounded
