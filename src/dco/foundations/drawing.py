"""What all plots share: colours, line styles, and the base class of displays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np

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
    "drawing_style",
    "empty_figure",
    "plain_name",
]

BLUE = "#1d5a9e"
PALE = "#bcd4ee"
ORANGE = "#a8420f"
INK = "#1b1d22"
DASHED: dict[str, Any] = {"color": INK, "linestyle": (0, (3, 3)), "linewidth": 1}
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 8}
LEGEND_ABOVE: dict[str, Any] = {**LEGEND, "loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9a9a94",
    "axes.labelcolor": INK,
    # the names inside an SVG are drawn from this, so that the same figure is the same file
    "svg.hashsalt": "dco",
    "svg.fonttype": "path",
}


class Display(ABC):
    """A plot that keeps the numbers it shows, so that it can be drawn again.

    After `plot` the axes are in ``ax_`` and the figure is in ``figure_``.
    """

    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None) -> Self:
        """Draw into the axes `ax`, or into those of a new figure of pyplot; return the display."""
        if ax is None:
            _, ax = require("matplotlib.pyplot", extra="report").subplots(layout="constrained")
        self.draw(ax)
        self.ax_ = ax
        self.figure_ = ax.figure
        return self

    @abstractmethod
    def draw(self, ax: Any) -> None:
        """Draw into these axes."""


def drawing_style() -> AbstractContextManager[None]:
    """Return the settings of matplotlib that all figures are drawn and written with."""
    matplotlib: Any = require("matplotlib", extra="report")
    style: AbstractContextManager[None] = matplotlib.rc_context(STYLE)
    return style


def empty_figure(*, width: float = 4.6, height: float = 2.6, panels: int = 1) -> tuple[Any, Any]:
    """Make a figure for a file, with some panels below each other that share a horizontal axis.

    Return the figure and an array of the axes of its panels. Width and height are in inches.
    """
    # not by pyplot, which opens windows and keeps every figure in a global list
    figure = require("matplotlib.figure", extra="report").Figure(
        figsize=(width, height), layout="constrained"
    )
    return figure, np.atleast_1d(figure.subplots(panels, 1, sharex=True))


def plain_name(name: object, *, longest: int = 30) -> str:
    """Write a name for matplotlib: cut to `longest` characters, with $ as plain text.

    Between two dollar signs matplotlib would read mathematics.
    """
    text = str(name)
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return text.replace("$", r"\$")
