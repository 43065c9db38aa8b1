"""One registration per score: its short name, what `scores=None` tries, and that model files may
hold it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from dco.predictions import ClassRecord
from dco.scores import HOMES
from dco.scores.score import Score


@dataclass(frozen=True)
class Registration:
    """What is known of a kind of score; see `register`."""

    score: type[Score]
    name: str | None
    defaults: tuple[Score, ...]
    named: tuple[Score, ...]
    records: tuple[type, ...]


_REGISTERED: dict[str, Registration] = {}  # by the full names of scores, as model files have them


def register(
    score: type[Score],
    *,
    name: str | None = None,
    defaults: tuple[Score, ...] = (),
    named: tuple[Score, ...] | None = None,
    records: tuple[type, ...] | None = None,
) -> None:
    """Make a kind of score known: `dco.load` then trusts it.

    `name` is its short name on the command line, where it stands for the scores `named` (`defaults`
    if omitted). ``scores=None`` tries `defaults` on models that give one of the `records`
    (``score.needs`` if omitted).
    """
    full_name = f"{score.__module__}.{score.__qualname__}"
    taken = next(
        (known for known, each in _REGISTERED.items() if name is not None and each.name == name),
        full_name,
    )
    if taken != full_name:
        raise ValueError(f"the name {name!r} is taken by {taken}: give {score.__name__} another.")
    read = score.needs if records is None else records
    _REGISTERED[full_name] = Registration(
        score, name, defaults, defaults if named is None else named, read
    )


def registrations() -> list[Registration]:
    """Every registration: dco's own in a fixed order, then others as they came."""
    homes = [f"dco.scores.{name}" for name in HOMES]
    for home in homes:
        import_module(home)
    places = {home: place for place, home in enumerate(homes)}
    return sorted(
        _REGISTERED.values(), key=lambda each: places.get(each.score.__module__, len(places))
    )


def default_scores(record: type) -> list[Score]:
    """What ``scores=None`` tries on a record: every score that suits it, with the parameters that
    its authors propose.
    """
    return [score for each in registrations() if record in each.records for score in each.defaults]


def short_names(*, classes: bool) -> dict[str, tuple[Score, ...]]:
    """{short name: its scores} for tasks with classes, or for those with numbers."""
    return {
        each.name: each.named
        for each in registrations()
        if each.name is not None
        and issubclass((each.named or (each.score,))[0].needs[0], ClassRecord) == classes
    }


def trusted_names() -> list[str]:
    """The full name of every kind of score that a model file may hold."""
    registrations()
    return list(_REGISTERED)


def scores_called(name: str) -> tuple[Score, ...]:
    """The scores that a short name stands for, of either task."""
    offered = short_names(classes=True) | short_names(classes=False)
    if name.lower() not in offered:
        raise ValueError(
            f"scores takes short names ({', '.join(offered)}) and scores such as those of "
            f"dco.scores, got {name!r}."
        )
    return offered[name.lower()]
