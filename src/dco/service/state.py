"""The state of a monitor as plain data: what it holds, and how it is checked when it comes back."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from dco.foundations.notes import Message
from dco.foundations.ranks import Level, as_rational

FORMAT = 3
_DAMAGED = "state must be what Monitor.state() returned, whole and unchanged."


@dataclass(frozen=True)
class MonitorSettings:
    """What a monitor was begun with. It cannot change later: the claims are about one setting."""

    error_rate: float
    run_length: int
    duplicates: Literal["drop", "natural"]

    @classmethod
    def checked(cls, *, error_rate: Level, run_length: int, duplicates: Any) -> MonitorSettings:
        """Read the settings as a user gives them."""
        if duplicates not in ("drop", "natural"):
            raise ValueError(f'duplicates must be "drop" or "natural", got {duplicates!r}.')
        if run_length < 1:
            raise ValueError(
                f"run_length is a mean number of rows, at least 1; got {run_length!r}."
            )
        rate = float(as_rational(error_rate, name="error_rate"))
        return cls(error_rate=rate, run_length=int(run_length), duplicates=duplicates)


@dataclass
class TakenRows:
    """The rows that a monitor has taken, in their order, and fingerprints of all that it met."""

    covered: list[bool] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    conditions: list[str | None] = field(default_factory=list)
    slices: list[str | None] = field(default_factory=list)
    fingerprints: dict[str, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.covered)

    def append(
        self, score: float, *, covered: bool, condition: str | None, slice_name: str | None
    ) -> None:
        """Add a row."""
        self.covered.append(covered)
        self.scores.append(score)
        self.conditions.append(condition)
        self.slices.append(slice_name)


def settings_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a state was begun with, as parameters of `dco.Monitor`."""
    _check_unchanged(state)
    return {entry.name: state[entry.name] for entry in fields(MonitorSettings)}


def write_state(rows: TakenRows, settings: MonitorSettings, *, calibration: str) -> dict[str, Any]:
    """Return the state of a monitor as plain data for JSON, with a checksum.

    `calibration` names the calibration that is watched.
    """
    state = {
        "format": FORMAT,
        "calibration": calibration,
        **asdict(settings),
        "covered": "".join("1" if covered else "0" for covered in rows.covered),
        "scores": [score if math.isfinite(score) else str(score) for score in rows.scores],
        "conditions": _none_if_empty(rows.conditions),
        "slices": _none_if_empty(rows.slices),
        "seen": list(rows.fingerprints),
    }
    return state | {"sha256": _checksum(state)}


def _none_if_empty(names: list[str | None]) -> list[str | None] | None:
    """Return None in place of a list that names nothing."""
    return None if all(name is None for name in names) else list(names)


def read_state(
    state: Mapping[str, Any], settings: MonitorSettings, *, calibration: str
) -> TakenRows:
    """Return the rows that a monitor had taken when its state was written.

    A state that a monitor cannot continue from is an error that says why.

    Parameters
    ----------
    state
        What `write_state` returned, perhaps by way of a JSON file.
    settings, calibration
        The settings of the monitor that is to continue, and the name of the calibration that it
        watches; the state must be of the same.
    """
    # 1. Is it a state of this monitor?
    _check_unchanged(state)
    if state["calibration"] != calibration:
        raise ValueError(
            Message(
                "⟨state⟩ is of a monitor of another fit: begin a new one, or load the model of "
                "that one."
            )
        )
    for name, value in asdict(settings).items():
        if state[name] != value:
            begun_with = f"⟨{name}={state[name]}⟩"
            raise ValueError(
                Message(
                    f"This state was begun with {begun_with}, and its claims are about that: "
                    f"continue with {begun_with}, or begin a new state."
                )
            )

    # 2. Read the rows.
    n_rows = len(state["covered"])
    rows = TakenRows(
        covered=[digit == "1" for digit in state["covered"]],
        scores=[float(score) for score in state["scores"]],
        conditions=state["conditions"] or [None] * n_rows,
        slices=state["slices"] or [None] * n_rows,
        fingerprints=dict.fromkeys(state["seen"]),
    )
    _check_facts_agree(rows, settings)
    return rows


def _check_unchanged(state: Any) -> None:
    """Refuse what is no state, and a state that was edited or cut short."""
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        raise ValueError(_DAMAGED)
    if state.get("sha256") != _checksum(state):
        raise ValueError(_DAMAGED)


def _checksum(state: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all facts of a state but the checksum itself."""
    facts = {name: value for name, value in state.items() if name != "sha256"}
    try:
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise ValueError(_DAMAGED) from None
    return hashlib.sha256(text.encode()).hexdigest()


def _check_facts_agree(rows: TakenRows, settings: MonitorSettings) -> None:
    """Refuse rows that no monitor can have taken, though the checksum of their state is right."""
    n_rows = len(rows.covered)
    has_equal_lengths = len(rows.scores) == len(rows.conditions) == len(rows.slices) == n_rows
    has_missing_scores = any(math.isnan(score) for score in rows.scores)

    # A monitor that drops duplicates keeps the fingerprint of every row, to recognise the next.
    drops_duplicates = settings.duplicates == "drop"
    lacks_fingerprints = drops_duplicates and len(rows.fingerprints) < n_rows
    if not has_equal_lengths or has_missing_scores or lacks_fingerprints:
        raise ValueError(_DAMAGED)
