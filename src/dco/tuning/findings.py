"""What the winner's sets on the tuning rows tell a user, before any new row is seen and without calibration rows."""

from __future__ import annotations

import numpy as np

from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.foundations.display import counted
from dco.foundations.notes import Message, Note
from dco.foundations.ranks import Level, as_rational
from dco.predictions import fifths
from dco.scores.score import Score
from dco.tuning.objectives import clopper_pearson_upper
from dco.tuning.search import Pieces

_ERROR = 0.05  # the probability of a note about a class or a fifth where none is due
_LOW_CLASS = 0.7
_LOW_FIFTH = 0.1  # below the level
_SILENT = 0.01  # share of empty sets


def notes_on(score: Score, pieces: Pieces, y: AnyArray, threshold: float, *, alpha: Level) -> list[Note]:
    """The notes on a score and predictions of the tuning rows at their own threshold."""
    covered, sizes = pieces.observed(score, y) <= threshold, pieces.sizes(score, threshold)
    labels = pieces.labels() is not None
    return winner_notes(y, covered, sizes, pieces.centres(), alpha=float(as_rational(alpha)), labels=labels)


def winner_notes(y: AnyArray, covered: Bools, sizes: Floats, centres: Floats, *, alpha: float, labels: bool) -> list[Note]:
    """Classes far below the level, empty sets, and one width for errors of several sizes, each with what mends it."""
    if not labels:
        return _one_width(covered, sizes, centres, alpha)
    notes, silent = _classes(y, covered), float(np.mean(sizes == 0))
    if silent >= _SILENT:
        text = f"{100 * silent:.1f} % of the sets of the tuning rows are empty: they say nothing about their rows."
        remedy = "Leave ⟨scores⟩ out, or wrap the score: dco.scores.NeverEmpty(score)."
        notes.append(Note("empty-sets", text, Message(remedy)))
    return notes


def _classes(y: AnyArray, covered: Bools) -> list[Note]:
    """Classes whose coverage is surely under 70 %: the upper bounds hold for all classes at once."""
    names, codes = np.unique(y, return_inverse=True)
    hits, rows, low = _surely_below(codes, covered, _LOW_CLASS)
    if not low.size:
        return []
    shown = ", ".join(f"{names[k]} ({100 * hits[k] / rows[k]:.0f} % of {counted(int(rows[k]), 'row')})" for k in low[:5])
    more = f" and {low.size - 5} more" if low.size > 5 else ""
    text = f"On the tuning rows sets hold some classes far less often than the level says: {shown}{more}."
    return [Note("low-classes", text, Message('⟨condition_on="label"⟩ gives each class a threshold of its own.'))]


def _one_width(covered: Bools, sizes: Floats, centres: Floats, alpha: float) -> list[Note]:
    """One width for all rows, although some fifth of the prediction is surely covered .1 less than the level."""
    if np.ptp(sizes) > 1e-9 * np.abs(sizes).max(initial=0.0):
        return []
    hits, rows, low = _surely_below(fifths(centres), covered, 1 - alpha - _LOW_FIFTH)
    if not low.size:
        return []
    worst = low[np.argmin(hits[low] / rows[low])]
    text = (
        f"All intervals have the same width, but errors differ in size: on the tuning rows, fifth {worst + 1} of the "
        f"prediction is covered {100 * hits[worst] / rows[worst]:.0f} % of the time."
    )
    remedy = Message(
        "Add models whose widths follow the row (⟨models=dco.models.QuantilePair(model)⟩, "
        "⟨models=dco.models.ResidualSpread(model)⟩), and choose with ⟨objective=even⟩."
    )
    return [Note("one-width", text, remedy)]


def _surely_below(codes: Integers, covered: Bools, level: float) -> tuple[Floats, Floats, Integers]:
    """Covered rows and rows of each slice, and the slices whose upper bounds, valid for all at once, are below `level`."""
    rows, hits = np.bincount(codes).astype(np.float64), np.bincount(codes, covered).astype(np.float64)
    bounds = clopper_pearson_upper(hits, rows, _ERROR / rows.size)
    return hits, rows, np.flatnonzero((rows > 0) & (bounds < level))
