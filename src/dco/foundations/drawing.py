"""What all plots share: colours, line styles, and the base class of displays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from dco.foundations.extras import require

__all__ = [
    "BLUE",
    "DASHED",
    "INK",
    "LEGEND",
    "LEGEND_ABOVE",
    "ORANGE",
    "PALE",
    "Display",
    "plain_name",
]

BLUE = "#1d5a9e"
PALE = "#bcd4ee"
ORANGE = "#a8420f"
INK = "#1b1d22"
DASHED: dict[str, Any] = {"color": INK, "linestyle": (0, (3, 3)), "linewidth": 1}
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 8}
LEGEND_ABOVE: dict[str, Any] = {**LEGEND, "loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}


class Display(ABC):
    """A plot of numbers that it keeps; `plot` draws them again.

    After `plot` the axes are in ``ax_`` and the figure is in ``figure_``.
    """

    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None) -> Self:
        """Draw into `ax`, or into a new figure of pyplot."""
        if ax is None:
            _, ax = require("matplotlib.pyplot", extra="report").subplots(layout="constrained")
        self.draw(ax)
        self.ax_ = ax
        self.figure_ = ax.figure
        return self

    @abstractmethod
    def draw(self, ax: Any) -> None:
        """Draw into these axes."""


def plain_name(name: object, *, longest: int = 30) -> str:
    """Write a name as plain text of bounded length; matplotlib would read $ as mathematics."""
    text = str(name)
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return text.replace("$", r"\$")
