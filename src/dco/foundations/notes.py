"""Notes: what a stage found on its way, kept on the result, and shown once at the border.

A sentence that names a parameter writes it as ⟨name⟩ or ⟨name=value⟩ inside a `Message`. Python's
border spells it ``name=value``, the command line ``--name value``.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import FrameType

from dco.foundations.errors import InfeasibleLevelWarning

__all__ = [
    "QUIET",
    "InfeasibleNoteWarning",
    "Message",
    "Note",
    "NoteWarning",
    "show",
]

# advice: kept, printed, no warning in Python
QUIET = frozenset(("empty-sets", "one-width", "below-zero", "left-behind", "few-rows"))
_PARAMETER = re.compile("⟨(\\w+)(?:=([^⟩]*))?⟩")


class Message(str):
    """A sentence as a Python user reads it, which the command line can spell in its own options."""

    template: str

    def __new__(cls, template: str) -> Message:
        """Keep the template beside the sentence."""
        sentence = _PARAMETER.sub(lambda match: match[0][1:-1], template)
        message = super().__new__(cls, sentence)
        message.template = template
        return message

    def spelled(self, spell: Callable[[str, str | None], str]) -> str:
        """Return the sentence with each parameter as `spell(name, value)` writes it."""
        return _PARAMETER.sub(lambda match: spell(match[1], match[2]), self.template)

    def __reduce__(self) -> tuple[type[Message], tuple[str]]:
        return Message, (self.template,)


@dataclass(frozen=True)
class Note:
    """One finding: a short name for its kind, a sentence, and what to try, if anything helps."""

    kind: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.remedy}".rstrip()

    def plain(self) -> Note:
        """Return the note with plain text, as Python spells it, to be kept."""
        return replace(self, text=str.__str__(self.text), remedy=str.__str__(self.remedy))

    def spelled(self, spell: Callable[[str, str | None], str]) -> str:
        """Return text and remedy with parameters as `spell` writes them."""
        parts = [
            part.spelled(spell) if isinstance(part, Message) else part
            for part in (self.text, self.remedy)
        ]
        return " ".join(filter(None, parts))


class NoteWarning(UserWarning):
    """A note as a warning; `note` has its parts."""

    def __init__(self, note: Note) -> None:
        super().__init__(str(note))
        self.note = note


class InfeasibleNoteWarning(NoteWarning, InfeasibleLevelWarning):
    """A note about a level that cannot be met."""


def show(notes: Iterable[Note], *, category: type[Warning] | None = None) -> None:
    """Warn of each note that is not `QUIET`, at the line that called dco.

    The warning is of `category`, or of the note's own kind.
    """
    stacklevel = _stacklevel_outside()
    for note in notes:
        if note.kind in QUIET:
            continue
        warning = _to_warning(note) if category is None else category(str(note))
        warnings.warn(warning, stacklevel=stacklevel)


def _to_warning(note: Note) -> Warning:
    """Return the warning that fits the kind of the note."""
    if note.kind == "failed-candidates":
        from sklearn.exceptions import FitFailedWarning

        return FitFailedWarning(str(note))  # type: ignore[no-any-return]
    if note.kind == "infeasible":
        return InfeasibleNoteWarning(note)
    return NoteWarning(note)


def _stacklevel_outside() -> int:
    """Return the stacklevel, for `show`, of the innermost frame that is not dco's."""
    frame: FrameType | None = sys._getframe(2)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "dco":
        frame = frame.f_back
        level += 1
    return level
