"""The models and scores that options of ``dco fit`` and ``dco compare`` name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dco.tuning.defaults import NAMES


def chosen_names(text: str | None, offered: Sequence[str], *, option: str) -> list[str] | None:
    """The names in a comma-separated list, each one that is offered."""
    if text is None:
        return None
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in offered]
    if unknown or not names:
        said = f"names {unknown[0]!r}, which is not offered for this task" if unknown else "names nothing"
        raise ValueError(f"{option} {said}; choose from {', '.join(offered)}, separated by commas.")
    return list(dict.fromkeys(names))


def chosen_models(text: str | None, task: str) -> list[str] | None:
    """The models of --models; None for the defaults of the task."""
    return chosen_names(text, NAMES[task], option="--models")


def make_scores(text: str | None, task: str) -> list[Any] | None:
    """The scores of a comma-separated list of short names; None lets every model try those that suit it."""
    from dco.scores.registry import short_names

    offered = short_names(classes=task == "classification")
    names = chosen_names(text, list(offered), option="--scores")
    return None if names is None else [score for name in names for score in offered[name]]
