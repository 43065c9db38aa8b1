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
    """How the cells of a column are read as a feature. It is stored with the fitted model."""

    kind: ClassVar[str]

    @abstractmethod
    def read(self, column: Column) -> AnyArray:
        """Read the cells; a cell that does not suit the feature is an error that names it."""


FeatureKind = TypeVar("FeatureKind", bound=Feature)


@dataclass(frozen=True)
class NumberFeature(Feature):
    """A feature of numbers.

    `takes_dates` is for models that were fitted in Python: what their numbers were is not known, so
    a column of dates is read as seconds since 1970. Otherwise it is an error.
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
    """A feature of dates, and how they are written: `form` is a name of `dates.FORMS`, or ISO."""

    kind = "date"
    form: str = ISO

    def read(self, column: Column) -> AnyArray:
        """Read the cells as seconds since 1970, NaN where one is missing."""
        return column.seconds(self.form)


@dataclass(frozen=True)
class CategoryFeature(Feature):
    """A feature of text.

    `values` are the texts that the fit had. `missing` is the text for a missing cell; None keeps it
    missing.
    """

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
    """What each column of a table is for. It is stored with the fitted model.

    Attributes
    ----------
    target
        The column to predict; None if a model was fitted in Python and no option names it.
    task
        "classification" or "regression".
    features
        How each feature is read, by the name of its column.
    conditions
        Columns whose values have thresholds of their own.
    groups
        The column whose equal values mark rows that belong together: clusters.
    key
        The column that names the rows.
    dropped
        Columns that are not used.
    decimal
        The decimal sign of numbers in text.
    drop_missing_target
        Whether rows without a target are left out; otherwise they are an error.
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
        """Return the features of one kind, such as all `CategoryFeature`s, by name."""
        return {
            name: feature for name, feature in self.features.items() if isinstance(feature, kind)
        }

    def with_categories(self, X: Any) -> Layout:
        """Add the values of each category, taken from X, the frame of features of the fit."""
        categories = {
            name: replace(feature, values=tuple(sorted(X[name].dropna().unique())))
            for name, feature in self.features_of(CategoryFeature).items()
        }
        return replace(self, features={**self.features, **categories})

    def names_by_kind(self) -> dict[str, Any]:
        """List the features by kind, for JSON; a category with the number of its values."""
        categories = self.features_of(CategoryFeature)
        return {
            "numbers": list(self.features_of(NumberFeature)),
            "dates": list(self.features_of(DateFeature)),
            "categories": {name: len(feature.values) for name, feature in categories.items()},
        }

    def in_words(self) -> str:
        """Say in a sentence how each feature is read.

        "Numbers: age, dose; dates: visit (day-first); categories: site (3 values)."
        """
        # 1. List the features of each kind; dates with their form, unless it is the usual one.
        numbers = list(self.features_of(NumberFeature))
        dates = []
        for name, date_feature in self.features_of(DateFeature).items():
            dates.append(name if date_feature.form == ISO else f"{name} ({date_feature.form})")
        categories = []
        for name, category_feature in self.features_of(CategoryFeature).items():
            categories.append(f"{name} ({counted(len(category_feature.values), 'value')})")

        # 2. Put the lists together.
        features_by_kind = {"numbers": numbers, "dates": dates, "categories": categories}
        clauses = [
            f"{kind}: {_in_one_line(names)}" for kind, names in features_by_kind.items() if names
        ]
        sentence = "; ".join(clauses)
        return f"{sentence[0].upper()}{sentence[1:]}."

    def columns_to_read(
        self, path: Path, names: Sequence[str], *, ignore_new: bool, also: Iterable[str] = ()
    ) -> list[str]:
        """List the columns to read from a table for a fitted model: its features, then `also`.

        `names` are the columns of the table. It is an error if a feature is not among them, or,
        without `ignore_new`, if the table has a column that the fit did not have.
        """
        table_columns = set(names)
        missing = [name for name in self.features if name not in table_columns]
        if missing:
            raise ValueError(
                f"{path} lacks {len(missing)} of the columns that the model was fitted on: "
                f"{first_few([repr(name) for name in missing])}; add them."
            )

        known = {*self.features, *self.dropped, self.target, self.groups, self.key, *also}
        new = [name for name in names if name not in known]
        if new and not ignore_new:
            raise ValueError(
                f"{path} has columns that the model was not fitted on: "
                f"{first_few([repr(name) for name in new])}; remove them, or use --ignore-new."
            )
        return list(dict.fromkeys([*self.features, *also]))

    def to_json(self) -> str:
        """Write the layout as one JSON text.

        A model file takes ten microseconds for every item of a list, and there may be a million
        categories; a text is one item.
        """
        features = {
            name: {"kind": feature.kind, **asdict(feature)}
            for name, feature in self.features.items()
        }
        return json.dumps({**asdict(replace(self, features={})), "features": features})

    @classmethod
    def from_json(cls, text: str) -> Layout:
        """Read a layout that `to_json` wrote."""
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
    """Raise an error if a table has no column of this name; `option` is what names the column.

    `names` are the columns of the table. The name None stands for no column, which is no error.
    """
    if name is None or name in names:
        return
    similar = get_close_matches(name, names, n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else "."
    raise ValueError(
        f"{path} has no column {name!r}, which {option} names{hint} Its columns are: "
        f"{first_few(names, _NAMES_SHOWN)}."
    )
