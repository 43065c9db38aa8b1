"""What every kind of prediction set offers."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from dco.arrays import Bools, Floats, Integers


@runtime_checkable
class PredictionSets(Protocol):
    """One set a row. ``contains(y)`` is exactly ``observed(prediction, y) <= threshold``."""

    def __len__(self) -> int:
        """The number of rows."""
        ...

    def sizes(self) -> Floats | Integers:
        """The size of each set: labels counted, or length on the real line."""
        ...

    def contains(self, y: ArrayLike) -> Bools:
        """Whether each row's set holds that row's y."""
        ...

    def is_empty(self) -> Bools:
        """Rows whose set is empty."""
        ...

    def to_frame(self, index: Any = None) -> Any:
        """A pandas DataFrame, a row a set (needs the extra ``tables``)."""
        ...
