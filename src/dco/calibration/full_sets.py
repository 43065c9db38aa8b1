"""Notes on infinite thresholds: too few rows, or too many scores that are infinite themselves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from dco.foundations.display import are, counted, first_few, have
from dco.foundations.notes import Message, Note
from dco.foundations.ranks import Threshold
from dco.rows.sizes import FEWEST_FOR_OTHER_ROLES


def note_full_sets(
    threshold: Threshold,
    *,
    smallest: int,
    unit: str = "row",
    dealt_from: int | None = None,
    reason: str = "",
) -> list[Note]:
    """Say why the one threshold of all rows is infinite; nothing if it is finite.

    `smallest` is the number of calibration rows (or of what `unit` names) that is needed, `reason`
    explains the count. `dealt_from` is how many the fit dealt to roles, for advice on sizes.
    """
    if not math.isinf(threshold.value):
        return []

    level = f"alpha = {threshold.alpha:g}"
    if threshold.n >= smallest:
        return [_note_ruled_out(f"At {level} the threshold is infinite")]

    # Where all rows of the fit would be enough, other sizes of the roles help.
    advice = ""
    if dealt_from is not None and smallest + FEWEST_FOR_OTHER_ROLES <= dealt_from:
        advice = ": leave ⟨calibrate_size⟩ and ⟨tune_size⟩ out"
    elif dealt_from is not None:
        advice = f", and there are {dealt_from} in all"

    too_few = (
        f"{counted(threshold.n, f'calibration {unit}')} {are(threshold.n)} too few for {level}"
    )
    needed = f"At least {counted(smallest, unit)} {are(smallest)} needed"
    return [
        Note(
            "infeasible",
            f"{too_few}: the threshold is infinite and every set is full (valid, but useless).",
            Message(f"{needed}{reason}{advice}."),
        )
    ]


def note_full_conditions(
    thresholds: Mapping[str, Threshold], *, smallest: int, alpha: float
) -> list[Note]:
    """Say which conditions have infinite thresholds, and why; `thresholds` by shown name."""
    n_rows_of = {}  # of each condition with an infinite threshold
    for name, threshold in thresholds.items():
        if math.isinf(threshold.value):
            n_rows_of[name] = threshold.n

    too_few = [name for name, n in n_rows_of.items() if n < smallest]
    ruled_out = [name for name, n in n_rows_of.items() if n >= smallest]
    level = f"alpha = {alpha:g}"
    notes = []

    if too_few:
        sizes = [f"{name}: {counted(n_rows_of[name], 'row')}" for name in too_few]
        which = (
            f"{len(too_few)} of {counted(len(thresholds), 'group')} {have(len(too_few))} too few "
            f"calibration rows"
        )
        text = (
            f"{which} for {level} ({first_few(sizes)}): their thresholds are infinite and rule "
            f"nothing out (valid, but useless)."
        )
        needed = f"At least {counted(smallest, 'row')} {are(smallest)} needed in each group."
        notes.append(Note("infeasible", text, needed))

    if ruled_out:
        groups = f"{counted(len(ruled_out), 'group')} ({first_few(ruled_out)})"
        notes.append(_note_ruled_out(f"At {level} the threshold of {groups} is infinite"))
    return notes


def _note_ruled_out(beginning: str) -> Note:
    """Say that thresholds are infinite since too many scores are, after this beginning."""
    return Note(
        "infeasible",
        f"{beginning} and sets are full (valid, but useless), since too many calibration scores "
        f"are infinite: the model rules out what happened in these rows.",
    )


def note_absent_labels(absent: Sequence[str], *, n_labels: int, smallest: int) -> list[Note]:
    """Say which labels have no calibration rows."""
    if not absent:
        return []
    which = (
        f"{len(absent)} of {n_labels} labels ({first_few(list(absent))}) {have(len(absent))} no "
        f"calibration rows"
    )
    return [
        Note(
            "infeasible",
            f"{which}: such a label is in every set (valid, but useless).",
            f"At least {smallest} rows of each label are needed.",
        )
    ]


def note_new_conditions(new: Counter[str], rows: str) -> list[Note]:
    """Say how many of the rows ("200 rows") fall under conditions without calibration rows."""
    if not new:
        return []
    n_new = new.total()
    shown = first_few([name for name, _ in new.most_common()])
    belong = "belongs" if n_new == 1 else "belong"
    its_set = "its set is" if n_new == 1 else "their sets are"
    text = (
        f"{n_new} of {rows} {belong} to {counted(len(new), 'group')} that {have(len(new))} no "
        f"calibration rows ({shown}): {its_set} full (valid, but useless)."
    )
    return [Note("infeasible", text, "Calibrate with rows of these groups.")]
