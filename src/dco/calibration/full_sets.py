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
    n_in_fit: int | None = None,
    reason: str = "",
) -> list[Note]:
    """Say why the one threshold of all rows is infinite; nothing if it is finite.

    Parameters
    ----------
    threshold
        The threshold, with the number of calibration rows that it was taken from.
    smallest
        How many calibration rows a finite threshold needs.
    unit
        What is counted: "row", or "group" where rows belong together.
    n_in_fit
        How many rows (or groups) the fit divided among training, tuning and calibration, for advice
        on these sizes; None if that is not known.
    reason
        A remark on the number needed, such as " (a PAC statement uses one row of each)".
    """
    if not math.isinf(threshold.value):
        return []

    n = threshold.n
    level = f"alpha = {threshold.alpha:g}"
    if n >= smallest:
        return [_note_infinite_scores(f"At {level} the threshold is infinite")]

    text = (
        f"{counted(n, f'calibration {unit}')} {are(n)} too few for {level}: the threshold is "
        f"infinite and every set is full (valid, but useless)."
    )
    needed = f"At least {counted(smallest, unit)} {are(smallest)} needed"
    advice = _advise_on_sizes(smallest, n_in_fit)
    return [Note("infeasible", text, Message(f"{needed}{reason}{advice}."))]


def _advise_on_sizes(smallest: int, n_in_fit: int | None) -> str:
    """Say, at the end of a sentence, whether the fit had enough rows for `smallest` to calibrate.

    If it had, its default sizes would have been enough. `n_in_fit` is how many rows it had; None
    if that is not known.
    """
    if n_in_fit is None:
        return ""
    if smallest + FEWEST_FOR_OTHER_ROLES <= n_in_fit:
        return ": leave ⟨calibrate_size⟩ and ⟨tune_size⟩ out"
    return f", and there are {n_in_fit} in all"


def note_full_conditions(
    thresholds: Mapping[str, Threshold], *, smallest: int, alpha: float
) -> list[Note]:
    """Say which groups of rows have infinite thresholds, and why; nothing if none has.

    `thresholds` has the threshold of each group by the name that is shown, and `smallest` is how
    many calibration rows a finite one needs.
    """
    infinite = {
        name: threshold for name, threshold in thresholds.items() if math.isinf(threshold.value)
    }
    level = f"alpha = {alpha:g}"
    notes = []

    # 1. Groups of too few calibration rows.
    small_groups = [name for name, threshold in infinite.items() if threshold.n < smallest]
    if small_groups:
        n_small = len(small_groups)
        sizes = [f"{name}: {counted(infinite[name].n, 'row')}" for name in small_groups]
        text = (
            f"{n_small} of {counted(len(thresholds), 'group')} {have(n_small)} too few calibration "
            f"rows for {level} ({first_few(sizes)}): their thresholds are infinite and rule "
            f"nothing out (valid, but useless)."
        )
        needed = f"At least {counted(smallest, 'row')} {are(smallest)} needed in each group."
        notes.append(Note("infeasible", text, needed))

    # 2. Groups of enough rows, where too many scores are infinite.
    large_groups = [name for name, threshold in infinite.items() if threshold.n >= smallest]
    if large_groups:
        names = f"{counted(len(large_groups), 'group')} ({first_few(large_groups)})"
        notes.append(_note_infinite_scores(f"At {level} the threshold of {names} is infinite"))
    return notes


def _note_infinite_scores(beginning: str) -> Note:
    """Say why thresholds are infinite although there are enough rows: too many scores are.

    `beginning` starts the sentence, such as "At alpha = 0.1 the threshold is infinite".
    """
    return Note(
        "infeasible",
        f"{beginning} and sets are full (valid, but useless), since too many calibration scores "
        f"are infinite: the model rules out what happened in these rows.",
    )


def note_absent_labels(absent: Sequence[str], *, n_labels: int, smallest: int) -> list[Note]:
    """Say which labels have no calibration rows; nothing if all have some.

    `absent` has these labels as they are shown, out of `n_labels` labels of the fit, and `smallest`
    is how many rows of a label a finite threshold needs.
    """
    if not absent:
        return []

    n_absent = len(absent)
    text = (
        f"{n_absent} of {n_labels} labels ({first_few(list(absent))}) {have(n_absent)} no "
        f"calibration rows: such a label is in every set (valid, but useless)."
    )
    remedy = f"At least {smallest} rows of each label are needed."
    return [Note("infeasible", text, remedy)]


def note_new_conditions(new_groups: Counter[str], rows: str) -> list[Note]:
    """Say how many rows belong to groups without calibration rows; nothing if none does.

    `new_groups` counts the rows of each such group, by its name, and `rows` says how many rows
    there are altogether ("200 rows").
    """
    if not new_groups:
        return []

    n_rows = new_groups.total()
    n_groups = len(new_groups)
    names = first_few([name for name, _ in new_groups.most_common()])
    belong = "belongs" if n_rows == 1 else "belong"
    their_sets_are = "its set is" if n_rows == 1 else "their sets are"
    text = (
        f"{n_rows} of {rows} {belong} to {counted(n_groups, 'group')} that {have(n_groups)} no "
        f"calibration rows ({names}): {their_sets_are} full (valid, but useless)."
    )
    return [Note("infeasible", text, "Calibrate with rows of these groups.")]
