"""Write messages of the library for the command line: calibrate_size=9 as --calibrate-size 9."""

from __future__ import annotations

from functools import partial
from shlex import quote

from dco.foundations.notes import Message, Note, NoteWarning

_MODEL_NAMES = {
    "dco.models.QuantilePair(model)": "quantiles",
    "dco.models.ResidualSpread(model)": "spread",
}


def spell_error(error: Exception, *, target: str | None = None) -> str:
    """Return the message of an error or a warning, with options in place of parameters.

    Messages mark parameters: ⟨calibrate_size=9⟩ becomes --calibrate-size 9. `target` is the column
    of the target, if it is known.
    """
    if isinstance(error, NoteWarning):
        return spell_note(error.note, target=target)
    message = error.args[0] if error.args else ""
    if isinstance(message, Message):
        return message.spelled(partial(spell_parameter, target=target))
    return str(error)


def spell_note(note: Note, *, target: str | None = None) -> str:
    """Return a note as text, with its advice, with options in place of parameters."""
    return note.spelled(partial(spell_parameter, target=target))


def spell_parameter(name: str, value: str | None, *, target: str | None = None) -> str:
    """Write a parameter of Python as an option: ("calibrate_size", "9") -> "--calibrate-size 9".

    The value "label" of `condition_on` becomes the column of the target.
    """
    if name == "support":
        return "--range" if value is None else "--range 0 inf"

    text = _MODEL_NAMES.get(value or "", value or "").strip('"')
    if name == "condition_on" and text == "label":
        text = "TARGET" if target is None else quote(target)
    return f"--{name.replace('_', '-')} {text}".rstrip()
