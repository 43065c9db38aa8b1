"""Where y can lie: what the caller says of it, and when to advise saying it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dco.foundations.arrays import Floats
from dco.foundations.notes import Message, Note
from dco.scores.score import Score
from dco.sets.intervals import IntervalUnions
from dco.tuning.search import Pieces


def check_support(y: Floats, support: tuple[float, float]) -> None:
    """Refuse training and tuning targets outside the support: it is what the caller knows of y, and is wrong."""
    outside = y[(y < support[0]) | (y > support[1])]
    if outside.size:
        raise ValueError(
            Message(
                f"{outside.size} of {len(y)} training and tuning targets (such as {outside[0]:g}) lie outside ⟨support⟩ "
                f"({support[0]:g} to {support[1]:g}): widen it, or leave it out."
            )
        )


def note_below_zero(score: Score, pieces: Pieces, threshold: float) -> list[Note]:
    """Advise a support where tuning sets reach below 0 and no training or tuning target does, as the caller has seen."""
    if not np.isfinite(threshold):
        return []
    sets: list[Any] = [score.sets(record, threshold) for record in pieces.records]
    below = sum(int(np.count_nonzero((own.hull() if isinstance(own, IntervalUnions) else own).lower < 0)) for own in sets)
    if not below:
        return []
    text = f"No target is negative, but {below} of {sum(map(len, sets))} sets of tuning rows reach below 0."
    remedy = Message("If y cannot be negative, ⟨support=(0, None)⟩ cuts them there and keeps the guarantee.")
    return [Note("below-zero", text, remedy)]
