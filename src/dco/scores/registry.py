"""One registration per score: its short name, what `scores=None` tries, and that model files may
hold it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from importlib import import_module

from dco.predictions import ClassRecord
from dco.scores import NAMES_BY_MODULE
from dco.scores.score import Score


@dataclass(frozen=True)
class Registration:
    """A class of scores as it was registered; see `register` for the fields.

    `stands_for` are the scores that the short name means.
    """

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
        """Tell whether the scores of the short name read predictions of classes, not numbers."""
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
    """Make a class of scores known, so that `dco.load` trusts it.

    Parameters
    ----------
    score
        The class.
    name
        A short name for ``scores=`` and the command line, if there should be one.
    defaults
        Scores of this class that ``scores=None`` tries.
    named
        Scores for which the short name stands (default: `defaults`).
    records
        Prediction records on which `defaults` are tried (default: all that the class reads).
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
    """List every registration: dco's own in the order of their modules, then those of others."""
    modules = [f"dco.scores.{name}" for name in NAMES_BY_MODULE]
    for module in modules:
        import_module(module)  # a module registers its scores when it is imported

    by_module: dict[str, list[Registration]] = {module: [] for module in modules}
    others: list[Registration] = []
    for registration in _REGISTERED.values():
        by_module.get(registration.score.__module__, others).append(registration)
    return [*itertools.chain.from_iterable(by_module.values()), *others]


def default_scores(record: type) -> list[Score]:
    """List the scores that ``scores=None`` tries on a prediction record, such as `Quantiles`.

    These are all registered scores that suit the record, with the parameters that their authors
    propose.
    """
    scores: list[Score] = []
    for registration in registrations():
        if record in registration.records:
            scores += registration.defaults
    return scores


def short_names(*, classes: bool) -> dict[str, tuple[Score, ...]]:
    """Return the scores that each short name stands for: {"aps": (APS(),), ...}.

    With `classes` these are scores of labels, otherwise scores of numbers.
    """
    return {
        registration.short_name: registration.stands_for
        for registration in registrations()
        if registration.short_name is not None and registration.is_for_classes() == classes
    }


def trusted_names() -> list[str]:
    """List the full name of every class of scores that a model file may hold."""
    registrations()  # imports the modules that register dco's own
    return list(_REGISTERED)


def scores_called(name: str) -> tuple[Score, ...]:
    """Return the scores that a short name stands for: "aps" -> (APS(),). Case does not matter."""
    scores_by_name = short_names(classes=True) | short_names(classes=False)
    if name.lower() not in scores_by_name:
        raise ValueError(
            f"scores takes short names ({', '.join(scores_by_name)}) and scores such as those of "
            f"dco.scores, got {name!r}."
        )
    return scores_by_name[name.lower()]
