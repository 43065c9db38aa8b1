"""One registration per score: its short name, what `scores=None` tries, and that model files may
hold it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from dco.predictions import ClassRecord
from dco.scores import NAMES_BY_MODULE
from dco.scores.score import Score


@dataclass(frozen=True)
class Registration:
    """A kind of score with the names and defaults that `register` gave it."""

    score: type[Score]
    short_name: str | None
    defaults: tuple[Score, ...]
    stands_for: tuple[Score, ...]
    records: tuple[type, ...]

    @property
    def full_name(self) -> str:
        """The name of the class with its module, as model files have it."""
        return f"{self.score.__module__}.{self.score.__qualname__}"

    def is_for_classes(self) -> bool:
        """Say whether the scores of the short name read predictions of classes."""
        example = self.stands_for[0] if self.stands_for else self.score
        return issubclass(example.needs[0], ClassRecord)


_REGISTERED: dict[str, Registration] = {}  # by full name


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
    registration = Registration(
        score=score,
        short_name=name,
        defaults=defaults,
        stands_for=defaults if named is None else named,
        records=score.needs if records is None else records,
    )
    for other in _REGISTERED.values():
        is_taken = name is not None and other.short_name == name
        if is_taken and other.full_name != registration.full_name:
            raise ValueError(
                f"the name {name!r} is taken by {other.full_name}: give {score.__name__} another."
            )
    _REGISTERED[registration.full_name] = registration


def registrations() -> list[Registration]:
    """List every registration: dco's own in a fixed order, then others as they came."""
    modules = [f"dco.scores.{name}" for name in NAMES_BY_MODULE]
    for module in modules:
        import_module(module)
    places = {module: position for position, module in enumerate(modules)}
    return sorted(
        _REGISTERED.values(),
        key=lambda registration: places.get(registration.score.__module__, len(places)),
    )


def default_scores(record: type) -> list[Score]:
    """List what ``scores=None`` tries on a record: every score that suits it, with the parameters
    that its authors propose.
    """
    scores: list[Score] = []
    for registration in registrations():
        if record in registration.records:
            scores += registration.defaults
    return scores


def short_names(*, classes: bool) -> dict[str, tuple[Score, ...]]:
    """Return the scores of each short name, for tasks with classes or for those with numbers."""
    return {
        registration.short_name: registration.stands_for
        for registration in registrations()
        if registration.short_name is not None and registration.is_for_classes() == classes
    }


def trusted_names() -> list[str]:
    """List the full name of every kind of score that a model file may hold."""
    registrations()
    return list(_REGISTERED)


def scores_called(name: str) -> tuple[Score, ...]:
    """Return the scores that a short name stands for, of either task."""
    offered = short_names(classes=True) | short_names(classes=False)
    if name.lower() not in offered:
        raise ValueError(
            f"scores takes short names ({', '.join(offered)}) and scores such as those of "
            f"dco.scores, got {name!r}."
        )
    return offered[name.lower()]
