"""What to do with rows of an evaluation that equal rows of the fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dco.foundations.display import counted
from dco.foundations.notes import Note

FEWEST_ROWS = 10  # that are judged when others are left out


@dataclass(frozen=True)
class Repeats:
    """What was decided about rows that equal rows of the fit.

    `left_out` rows are not evaluated, those at the positions `rows` where these are known.
    `no_verdict` says why the rows prove nothing, where so many are rows of the fit that nothing is
    left out.
    """

    left_out: int = 0
    rows: tuple[int, ...] = ()
    no_verdict: str | None = None
    note: Note | None = None


NO_REPEATS = Repeats()


def decide_on_repeats(
    n_equal: int,
    n_rows: int,
    *,
    by_role: Mapping[str, int],
    by_chance: float,
    is_exact: bool,
    rows: tuple[int, ...] = (),
) -> Repeats:
    """Decide what to do with rows of an evaluation that equal rows of the fit.

    Rows of the fit prove nothing about new rows. There are three cases:

    - No more rows are equal than by chance, in data where rows repeat: all are evaluated.
    - More are equal: they are left out, and the others evaluated.
    - But if fewer than 10 others remain, or fewer than are left out, or if it is not known which
      rows are equal, there is no verdict on any.

    Parameters
    ----------
    n_equal, n_rows
        How many rows equal rows of the fit, out of how many.
    by_role
        How many of them equal rows of each role: {"train": 3}.
    by_chance
        How many equal rows are to be expected of new rows.
    is_exact
        False if the fit kept only a sample of its rows, so that `n_equal` is an estimate.
    rows
        The positions of the equal rows, where they are known.
    """
    # 1. Chance explains them.
    if n_equal <= by_chance:
        return Repeats()

    finding = repeats_in_words(n_equal, n_rows, is_exact=is_exact)
    roles = ", ".join(f"{count} {role}" for role, count in by_role.items())
    finding_with_roles = f"{finding} ({roles})" if roles else finding

    # 2. No verdict.
    n_others = n_rows - n_equal
    too_few_others = n_others < max(n_equal, FEWEST_ROWS)
    if not is_exact or too_few_others:
        sentence = finding_with_roles[0].upper() + finding_with_roles[1:]
        return without_verdict(finding, sentence=sentence)

    # 3. Leave them out.
    verb = "was" if n_equal == 1 else "were"
    text = f"{finding_with_roles} and {verb} left out; the others are judged."
    return Repeats(left_out=n_equal, rows=rows, note=Note("used-rows", text))


def repeats_in_words(n_equal: int, n_rows: int, *, is_exact: bool) -> str:
    """Say how many rows equal rows of the fit: "3 of 20 rows equal rows of the fit"."""
    equal = "equals a row" if n_equal == 1 else "equal rows"
    finding = f"{n_equal} of {counted(n_rows, 'row')} {equal} of the fit"
    return finding if is_exact else f"about {finding}"


def without_verdict(reason: str, *, sentence: str) -> Repeats:
    """Evaluate all rows, and say why they prove nothing."""
    text = f"{sentence}: such rows prove nothing about new rows, so there is no verdict."
    note = Note("used-rows", text, "Evaluate rows that were used for nothing else.")
    return Repeats(no_verdict=reason, note=note)
