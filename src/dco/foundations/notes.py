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

# Kinds of notes that are advice: they are kept on the result and printed, but give no warning.
QUIET = frozenset(("empty-sets", "one-width", "below-zero", "left-behind", "few-rows"))
_PARAMETER = re.compile("⟨(\\w+)(?:=([^⟩]*))?⟩")


class Message(str):
    """A sentence that names parameters, which Python and the command line spell in different ways.

    As text it reads as in Python: Message("Set ⟨alpha=0.1⟩.") is "Set alpha=0.1.".
    """

    template: str

    def __new__(cls, template: str) -> Message:
        """Spell the sentence as in Python, and keep the template beside it."""
        sentence = _PARAMETER.sub(
            lambda match: match[0].removeprefix("⟨").removesuffix("⟩"), template
        )
        message = super().__new__(cls, sentence)
        message.template = template
        return message

    def spelled(self, spell: Callable[[str, str | None], str]) -> str:
        """Return the sentence with each parameter as `spell(name, value)` writes it.

        The value is None where the sentence names the parameter only.
        """
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
    """Give a Python warning for each note that is not `QUIET`, at the line that called dco.

    The warning is of the class `category`, or of the class that fits the note's kind.
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
    """Count, for `show`, the calls up to the first that is not dco's: where warnings point to.

    `warnings.warn` calls this number its stacklevel; it is 1 in `show` itself.
    """
    frame: FrameType | None = sys._getframe(2)  # that which called `show`
    level = 2
    while frame is not None and _is_of_dco(frame):
        frame = frame.f_back
        level += 1
    return level


def _is_of_dco(frame: FrameType) -> bool:
    module_name = frame.f_globals.get("__name__", "")
    return bool(module_name.partition(".")[0] == "dco")
