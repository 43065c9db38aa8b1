"""What each column of a table is for, and how a fitted model reads it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from dco.cli.option_records import Task
from dco.cli.tables.cells import is_dates, to_texts
from dco.cli.tables.dates import ISO
from dco.cli.tables.table import Column
from dco.foundations.arrays import AnyArray
from dco.foundations.display import counted, first_few

_NAMES_SHOWN = 12  # of columns, in a message


# --- how features are read ------------------------------------------------------------------------


@dataclass(frozen=True)
class Feature(ABC):
    """How the cells of a feature become what models take. It travels with a fitted model."""

    kind: ClassVar[str]

    @abstractmethod
    def read(self, column: Column) -> AnyArray:
        """Read the cells; one that the fit could not have read is an error."""


FeatureKind = TypeVar("FeatureKind", bound=Feature)


@dataclass(frozen=True)
class NumberFeature(Feature):
    """Numbers.

    `takes_dates` is for models that were fitted in Python: what their numbers were is not known, so
    that typed dates are read as seconds since 1970.
    """

    kind = "number"
    takes_dates: bool = False

    def read(self, column: Column) -> AnyArray:
        """Read the cells as float64, NaN where one is missing."""
        if is_dates(column.cells) and not self.takes_dates:
            raise ValueError(
                f"{column.title} contains dates, and the fit had numbers there; give numbers."
            )
        return column.numbers()


@dataclass(frozen=True)
class DateFeature(Feature):
    """Dates, and the form in which they are written."""

    kind = "date"
    form: str = ISO

    def read(self, column: Column) -> AnyArray:
        """Read the cells as seconds since 1970, NaN where one is missing."""
        return column.seconds(self.form)


@dataclass(frozen=True)
class CategoryFeature(Feature):
    """Text, and its values in the fit. `missing` stands for a missing cell; None is missing."""

    kind = "category"
    missing: str | None = None
    values: tuple[str, ...] = ()

    def read(self, column: Column) -> AnyArray:
        """Read the cells as texts in an array of objects."""
        if is_dates(column.cells):
            raise ValueError(
                f"{column.title} contains dates, and the fit read it as text; write it as for the "
                "fit."
            )
        return to_texts(column.cells, fill=self.missing)


_FEATURE_KINDS: dict[str, type[Feature]] = {
    kind.kind: kind for kind in (NumberFeature, DateFeature, CategoryFeature)
}


# --- columns --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """What each column is for. It travels with a fitted model.

    `target` is None in a model that was fitted in Python, until an option names it.
    """

    target: str | None
    task: Task
    features: Mapping[str, Feature]
    conditions: tuple[str, ...] = ()
    groups: str | None = None
    key: str | None = None
    dropped: tuple[str, ...] = ()
    decimal: str = "."
    drop_missing_target: bool = False

    def features_of(self, kind: type[FeatureKind]) -> dict[str, FeatureKind]:
        """Return the features that are read in this way."""
        return {
            name: feature for name, feature in self.features.items() if isinstance(feature, kind)
        }

    def with_categories(self, X: Any) -> Layout:
        """Keep the values of each category in X, a frame with the features of the fit."""
        categories = {
            name: replace(feature, values=tuple(sorted(X[name].dropna().unique())))
            for name, feature in self.features_of(CategoryFeature).items()
        }
        return replace(self, features={**self.features, **categories})

    def names_by_kind(self) -> dict[str, Any]:
        """Name the features by how they are read; categories with the number of their values."""
        categories = self.features_of(CategoryFeature)
        return {
            "numbers": list(self.features_of(NumberFeature)),
            "dates": list(self.features_of(DateFeature)),
            "categories": {name: len(feature.values) for name, feature in categories.items()},
        }

    def in_words(self) -> str:
        """Say in a sentence how each feature is read."""
        phrases = {
            "numbers": list(self.features_of(NumberFeature)),
            "dates": [
                name if feature.form == ISO else f"{name} ({feature.form})"
                for name, feature in self.features_of(DateFeature).items()
            ],
            "categories": [
                f"{name} ({counted(len(feature.values), 'value')})"
                for name, feature in self.features_of(CategoryFeature).items()
            ],
        }
        clauses = [f"{kind}: {_in_one_line(names)}" for kind, names in phrases.items() if names]
        sentence = "; ".join(clauses)
        return f"{sentence[0].upper()}{sentence[1:]}."

    def columns_to_read(
        self, path: Path, names: Sequence[str], *, ignore_new: bool, also: Iterable[str] = ()
    ) -> list[str]:
        """List the columns that a fitted model needs, and those of `also`.

        A feature that the table lacks is an error; so is a column that the fit did not have.
        """
        table_columns = set(names)
        missing = [name for name in self.features if name not in table_columns]
        if missing:
            raise ValueError(
                f"{path} lacks {len(missing)} of the columns that the model was fitted on: "
                f"{first_few([repr(name) for name in missing])}; add them."
            )

        columns_named = {*self.features, *self.dropped, self.target, self.groups, self.key, *also}
        new = [name for name in names if name not in columns_named]
        if new and not ignore_new:
            raise ValueError(
                f"{path} has columns that the model was not fitted on: "
                f"{first_few([repr(name) for name in new])}; remove them, or use --ignore-new."
            )
        return list(dict.fromkeys([*self.features, *also]))

    def to_json(self) -> str:
        """Write the layout as text.

        A model file takes ten microseconds to read for every item of a list, and there may be a
        million categories: a text is one item.
        """
        features = {
            name: {"kind": feature.kind, **asdict(feature)}
            for name, feature in self.features.items()
        }
        return json.dumps({**asdict(replace(self, features={})), "features": features})

    @classmethod
    def from_json(cls, text: str) -> Layout:
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        for name in ("conditions", "dropped"):
            fields[name] = tuple(fields[name])
        fields["features"] = {
            name: _feature_from_json(stored) for name, stored in fields["features"].items()
        }
        return cls(**fields)


def _feature_from_json(stored: dict[str, Any]) -> Feature:
    fields = dict(stored)
    feature = _FEATURE_KINDS[fields.pop("kind")]
    if "values" in fields:
        fields["values"] = tuple(fields["values"])
    return feature(**fields)


def _in_one_line(names: Sequence[str]) -> str:
    """List the first few names; a name may contain line breaks."""
    return first_few([" ".join(name.split()) for name in names], _NAMES_SHOWN)


def need_column(names: Sequence[str], name: str | None, *, path: Path, option: str) -> None:
    """Refuse a column that the table does not have; None asks for none."""
    if name is None or name in names:
        return
    similar = get_close_matches(name, names, n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else "."
    raise ValueError(
        f"{path} has no column {name!r}, which {option} names{hint} Its columns are: "
        f"{first_few(names, _NAMES_SHOWN)}."
    )
