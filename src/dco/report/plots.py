"""Numbers to SVG geometry: scales, ticks and paths, as text that a template puts in place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dco.foundations.arrays import Floats
from dco.foundations.histograms import nice_step
from dco.report.formats import NARROW_SPACE, exponential, number
from dco.theory import coverage_law_of_rank

WIDTH = 420
HEIGHT = 244
LEFT = 46
RIGHT = 408
TOP = 34  # above TOP: a line for the name of the axis, a line for that of a mark
BOTTOM = 202
COVERAGE_RIGHT = RIGHT - 12  # "100 %" may stand at the end of the axis
EXAMPLE_WIDTH = 300
EXAMPLE_HEIGHT = 18
SLICE_WIDTH = 150
SLICE_HEIGHT = 14


@dataclass(frozen=True)
class Tick:
    """A place on an axis and its label."""

    at: float
    label: str


@dataclass(frozen=True)
class Scale:
    """A linear map from numbers to pixels; what lies outside is put on the edge."""

    low: float
    high: float
    start: float = LEFT
    end: float = RIGHT

    def __call__(self, value: float) -> float:
        """Return the place of a number, to a tenth of a pixel."""
        inside = min(max(value, self.low), self.high)
        share = (inside - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, most: int = 6, *, whole: bool = False) -> list[Tick]:
        """Return round numbers along the axis; whole numbers for counts."""
        step = nice_step(self.high - self.low, most)
        if whole:
            step = float(max(1, math.ceil(step)))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        values = [float(f"{k * step:.12g}") for k in range(first, last + 1)]
        labels = tick_labels(values)
        return [Tick(self(value), label) for value, label in zip(values, labels, strict=True)]

    def bins(self, edges: Floats) -> list[tuple[float, float]]:
        """Return the left and right end of each bar of a histogram."""
        return [(self(left), self(right)) for left, right in pairwise(edges.tolist())]


def upwards(low: float, high: float) -> Scale:
    """Return a vertical scale: larger is higher."""
    return Scale(low, high, BOTTOM, TOP)


def tick_labels(values: Sequence[float]) -> list[str]:
    """Write numbers in the six characters or so that there are beside an axis, all in one form.

    Examples are 0, 50k, 100k and 0, 5e−5, 1e−4.
    """
    largest = max(map(abs, values), default=0.0)
    if 1e6 <= largest < 1e9:
        return [f"{number(value / 1e6)}M" if value else "0" for value in values]
    if 1e5 <= largest < 1e6:
        return [f"{number(value / 1e3)}k" if value else "0" for value in values]
    if largest >= 1e9 or largest < 1e-3:
        return [exponential(value) if value else "0" for value in values]
    return [number(value) for value in values]


def pixels(value: float) -> str:
    """Write a coordinate as short as it can be."""
    return f"{value:.1f}".removesuffix(".0")


def bars(
    places: Sequence[tuple[float, float]],
    shares: Iterable[float],
    *,
    top: float = TOP,
    base: float = BOTTOM,
) -> str:
    """Draw bars as one path, with a pixel of air between them.

    A share of 1 reaches from `base` to `top`.
    """
    path = ""
    for (left, right), share in zip(places, shares, strict=True):
        if share > 0:
            height = base - (base - top) * share
            path += f"M{pixels(left + 0.5)} {pixels(base)}V{pixels(height)}"
            path += f"H{pixels(right - 0.5)}V{pixels(base)}Z"
    return path


def curve(points: Iterable[tuple[float, float]], across: Scale, up: Scale) -> str:
    """Draw straight segments through the points; a point that is not finite breaks the line."""
    path = ""
    pen = "M"
    for x, y in points:
        if math.isfinite(y):
            path += f"{pen}{pixels(across(x))} {pixels(up(y))}"
            pen = "L"
        else:
            pen = "M"
    return path


def band(
    values: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
    across: Scale,
    up: Scale,
) -> str:
    """Draw the area between two curves as one outline: along the upper one, back by the lower."""
    x = [*values, *reversed(values)]
    y = [*highs, *reversed(lows)]
    return f"{curve(zip(x, y, strict=True), across, up)}Z"


def span(ends: tuple[float, float], scale: Scale, y: float) -> str:
    """Draw a horizontal bar that is at least a pixel long."""
    left = scale(ends[0])
    right = max(scale(ends[1]), left + 1)
    return f"M{pixels(left)} {pixels(y)}H{pixels(right)}"


def coverage_scale(promised: float, values: Iterable[float]) -> Scale:
    """Return an axis of coverage around the promise that shows these values; it ends at 0 and 1."""
    reach = max([0.02, *(1.1 * abs(value - promised) for value in values)])
    return Scale(max(0.0, promised - reach), min(1.0, promised + reach), LEFT, COVERAGE_RIGHT)


def coverage_ticks(scale: Scale, promised: float) -> list[Tick]:
    """Return round steps from the promise to both sides."""
    step = nice_step((scale.high - scale.low) / 2, 3)
    values = [promised + k * step for k in range(-6, 7)]
    return [
        Tick(scale(value), percent_of_tick(value))
        for value in values
        if scale.low - 1e-9 <= value <= scale.high + 1e-9
    ]


def percent_of_tick(share: float) -> str:
    """Write a share without the decimals that it does not need."""
    return f"{100 * share:.4g}{NARROW_SPACE}%"


def law_ends(rank: int, n: int) -> tuple[float, float]:
    """Return the ends between which Beta(rank, n + 1 - rank) is drawn: all but 0.1 % of it."""
    if rank > n:
        return 1.0, 1.0
    law = coverage_law_of_rank(rank, n)
    return float(law.ppf(0.0005)), float(law.ppf(0.9995))


def law_path(rank: int, n: int, scale: Scale) -> str:
    """Draw the density of Beta(rank, n + 1 - rank), as high as the plot; one line if rank > n."""
    base = BOTTOM - 34  # room for the bar below
    if rank > n:
        return f"M{pixels(scale(1.0) - 1)} {base}V{TOP}h2V{base}Z"

    low, high = law_ends(rank, n)
    left = max(scale.low, low)
    right = min(scale.high, high)
    if right <= left:
        return ""

    law = coverage_law_of_rank(rank, n)
    mode = (rank - 1) / (n - 1) if n > 1 else 0.5
    highest = float(law.pdf(min(max(mode, 1e-9), 1 - 1e-9)))
    up = Scale(0.0, highest, base, TOP)
    x = np.linspace(left, right, 37)
    density = curve(zip(x.tolist(), law.pdf(x).tolist(), strict=True), scale, up)
    return f"M{pixels(scale(left))} {base}L{density.removeprefix('M')}V{base}Z"
