"""Spell the parameters that a message of the library names as options of the command line."""

from __future__ import annotations

from functools import partial
from shlex import quote

from dco.foundations.notes import Message, Note, NoteWarning

_MODEL_NAMES = {
    "dco.models.QuantilePair(model)": "quantiles",
    "dco.models.ResidualSpread(model)": "spread",
}


def spell_error(error: Exception, *, target: str | None = None) -> str:
    """Return the message of an error or a warning: ⟨calibrate_size=9⟩ is --calibrate-size 9."""
    if isinstance(error, NoteWarning):
        return spell_note(error.note, target=target)
    message = error.args[0] if error.args else ""
    if isinstance(message, Message):
        return message.spelled(partial(spell_parameter, target=target))
    return str(error)


def spell_note(note: Note, *, target: str | None = None) -> str:
    """Return text and remedy of a note."""
    return note.spelled(partial(spell_parameter, target=target))


def spell_parameter(name: str, value: str | None, *, target: str | None = None) -> str:
    """Write a parameter as an option; the label is the column `target`."""
    if name == "support":
        return "--range" if value is None else "--range 0 inf"

    text = _MODEL_NAMES.get(value or "", value or "").strip('"')
    if name == "condition_on" and text == "label":
        text = "TARGET" if target is None else quote(target)
    return f"--{name.replace('_', '-')} {text}".rstrip()
