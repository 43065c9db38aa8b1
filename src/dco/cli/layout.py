"""The `Layout`: what each column of a table is for. It travels with a fitted model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dco.cli.dates import ISO
from dco.foundations.display import counted, first_few

_MOST_SHOWN = 12  # names of columns


@dataclass(frozen=True)
class Layout:
    """The columns of a table by what they are for: as the options ask for it, and with the rest
    that `make_layout` finds.
    """

    target: str | None
    task: str = ""  # empty: to be inferred
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    condition: str | tuple[str, ...] | None = None  # of several columns, groups overlap
    groups: str | None = None
    key: str | None = None
    dropped: tuple[str, ...] = ()
    decimal: str = "."
    # those of the numbers that are dates, with their form (see `dco.cli.dates`); None: not known
    dates: Mapping[str, str] | None = None
    date_order: str | None = None  # for dates that may be day first or month first
    # the values of each text column that the fit saw
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    drop_missing_target: bool = False

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> Layout:
        """What the options of a command say about columns."""
        conditions = tuple(dict.fromkeys(options.get("condition_on") or ()))
        return cls(
            options["target"],
            options["task"] or "",
            condition=conditions if len(conditions) > 1 else next(iter(conditions), None),
            dropped=options["drop"],
            key=options.get("key"),
            date_order=options["dates"],
            **{name: options[name] for name in ("groups", "decimal", "drop_missing_target")},
        )

    @property
    def conditions(self) -> tuple[str, ...]:
        """The columns whose values are groups with thresholds of their own."""
        return (self.condition,) if isinstance(self.condition, str) else self.condition or ()

    def to_plain(self) -> dict[str, Any]:
        """Turn it into lists and texts, which a model file can hold.

        Categories are one text: a model file takes ten microseconds to read for every item of a
        list, and there may be a million categories.
        """
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        plain["categories"] = json.dumps(plain["categories"])
        return plain

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Layout:
        """Read what `to_plain` wrote."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        categories = json.loads(data["categories"])
        values["categories"] = {name: tuple(texts) for name, texts in categories.items()}
        return cls(**values)

    def with_categories(self, X: Any) -> Layout:
        """Return the layout with the values of each text column in X, the features of the fit."""
        categories = {name: tuple(sorted(X[name].dropna().unique())) for name in self.texts}
        return replace(self, categories=categories)

    def by_kind(self) -> dict[str, Any]:
        """Say how each feature is read; categories with the number of their values."""
        dates = self.dates or {}
        return {
            "numbers": [name for name in self.numbers if name not in dates],
            "dates": list(dates),
            "categories": {name: len(self.categories[name]) for name in self.texts},
        }

    def in_words(self) -> str:
        """How each feature is read, in a sentence."""
        kinds = self.by_kind()
        kinds["dates"] = [
            name if form == ISO else f"{name} ({form})" for name, form in (self.dates or {}).items()
        ]
        kinds["categories"] = [
            f"{name} ({counted(n, 'value')})" for name, n in kinds["categories"].items()
        ]
        said = []
        for kind, names in kinds.items():
            if names:
                # a name may contain line breaks
                shown = first_few([" ".join(name.split()) for name in names], _MOST_SHOWN)
                said.append(f"{kind}: {shown}")
        sentence = "; ".join(said)
        return f"{sentence[0].upper()}{sentence[1:]}."

    def columns_to_read(
        self, path: Path, names: Sequence[str], *, ignore_new: bool, also: Iterable[str] = ()
    ) -> list[str]:
        """The columns to read for a fitted model: all features are among `names`, and no unknown
        column is.
        """
        there, known = (
            set(names),
            {*self.order, *self.dropped, self.target, self.groups, self.key, *also},
        )
        missing = [name for name in self.order if name not in there]
        if missing:
            shown = first_few(list(map(repr, missing)))
            raise ValueError(
                f"{path} lacks {len(missing)} of the columns that the model was "
                f"fitted on: {shown}; add them."
            )
        new = [name for name in names if name not in known]
        if new and not ignore_new:
            shown = first_few(list(map(repr, new)))
            raise ValueError(
                f"{path} has columns that the model was not fitted on: {shown}; remove them, or "
                f"use --ignore-new."
            )
        return list(dict.fromkeys([*self.order, *also]))


def need_column(names: Sequence[str], name: str | None, *, path: Path, option: str) -> None:
    """Refuse a column that is not there, with a list of those that are; None asks for none."""
    if name is None or name in names:
        return
    near = get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    shown = first_few(names, _MOST_SHOWN)
    raise ValueError(
        f"{path} has no column {name!r}, which {option} names{hint} Its columns are: {shown}."
    )
