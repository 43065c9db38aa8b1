"""Numbers to SVG geometry: scales, ticks and paths, as text that a template puts into the page.

A path is the text of the attribute ``d`` of an SVG element: ``M`` moves the pen to a point, ``L``
draws a line to one, ``H`` and ``V`` draw to another x or y, ``Z`` closes the outline. Pixels are
counted from the upper left corner, so that y grows downwards.
"""

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

# A figure, and the borders of the area that data are drawn in, in pixels.
WIDTH = 420
HEIGHT = 244
LEFT = 46
RIGHT = 408
TOP = 34  # above TOP: a line for the name of the axis, a line for that of a mark
BOTTOM = 202

# The figure of coverage.
COVERAGE_RIGHT = RIGHT - 12  # "100 %" may stand at the end of the axis
RANGE_Y = BOTTOM - 14  # of the bar below the density: the range that is expected for the rows
LAW_BASE = BOTTOM - 34  # of the density: above that bar
SMALLEST_REACH = 0.02  # of the axis of coverage, to each side of the promise
REACH_MARGIN = 0.1  # beyond the farthest value, as a share of its distance
LAW_TAIL = 0.0005  # of the law, that is not drawn at each end
LAW_POINTS = 37  # of the curve of the density

# Small figures in tables and lists.
EXAMPLE_WIDTH = 300
EXAMPLE_HEIGHT = 18
SLICE_WIDTH = 150
SLICE_HEIGHT = 14

GAP_BESIDE_BAR = 0.5  # to each side, so that neighbouring bars are a pixel apart
ROUNDING_SLACK = 1e-9  # a value that rounding pushed over the end of an axis still gets its tick
TICK_DIGITS = 12  # of the value at a tick: no more than float64 computes exactly
LARGEST_REACH_IN_STEPS = 6  # of the axis of coverage, from the promise to one end
EDGE_OF_MODE = 1e-9  # how near the mode of a law comes to 0 and 1


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: its position in pixels, and the number beside it as text."""

    position: float
    label: str


@dataclass(frozen=True)
class Scale:
    """A linear map from numbers (`low` to `high`) to pixels (`start` to `end`).

    Numbers outside are put on the edge.
    """

    low: float
    high: float
    start: float = LEFT
    end: float = RIGHT

    def to_pixels(self, value: float) -> float:
        """Return the position of a number, to a tenth of a pixel."""
        inside = min(max(value, self.low), self.high)
        share = (inside - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, most: int = 6, *, whole_numbers: bool = False) -> list[Tick]:
        """Put about `most` ticks along the axis, at round numbers such as 0, 0.5, 1.

        With `whole_numbers`, ticks are at whole numbers only: 2.5 labels would mean nothing.
        """
        # 1. Choose a round step.
        step = nice_step(self.high - self.low, most)
        if whole_numbers:
            step = float(max(1, math.ceil(step)))

        # 2. Take its multiples on the axis. They are rounded, since 3 * 0.1 is 0.30000000000000004.
        first_multiple = math.ceil(self.low / step - ROUNDING_SLACK)
        last_multiple = math.floor(self.high / step + ROUNDING_SLACK)
        multiples = range(first_multiple, last_multiple + 1)
        values = [float(f"{multiple * step:.{TICK_DIGITS}g}") for multiple in multiples]

        labels = tick_labels(values)
        return [Tick(self.to_pixels(x), label) for x, label in zip(values, labels, strict=True)]

    def bar_ends(self, edges: Floats) -> list[tuple[float, float]]:
        """Return the left and the right end of each bar of a histogram with these bin edges."""
        return [
            (self.to_pixels(left), self.to_pixels(right))
            for left, right in pairwise(edges.tolist())
        ]


def vertical_scale(low: float, high: float) -> Scale:
    """Return the scale of a vertical axis: `low` at the bottom of the plot area, `high` at its top.

    Its pixels run backwards, since those of SVG are counted from above.
    """
    return Scale(low, high, start=BOTTOM, end=TOP)


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


# ---- paths


def coordinate(pixels: float) -> str:
    """Write a coordinate with at most one decimal: 12.0 -> "12", 12.34 -> "12.3"."""
    return f"{pixels:.1f}".removesuffix(".0")


def bars_path(
    bar_ends: Sequence[tuple[float, float]],
    heights: Iterable[float],
    *,
    top: float = TOP,
    base: float = BOTTOM,
) -> str:
    """Draw the bars of a histogram as one SVG path.

    Parameters
    ----------
    bar_ends
        The left and right end of each bar, in pixels.
    heights
        The height of each bar as a share: 0 is no bar, 1 reaches from `base` to `top`.
    top, base
        The upper edge of the highest possible bar, and the line on which bars stand, in pixels
        from the top of the figure.
    """
    path = ""
    for (left, right), height in zip(bar_ends, heights, strict=True):
        if height > 0:
            path += bar_path(
                left + GAP_BESIDE_BAR,
                right - GAP_BESIDE_BAR,
                top=base - (base - top) * height,
                base=base,
            )
    return path


def bar_path(left: float, right: float, *, top: float, base: float) -> str:
    """Draw one upright rectangle."""
    y_base = coordinate(base)
    return f"M{coordinate(left)} {y_base}V{coordinate(top)}H{coordinate(right)}V{y_base}Z"


def curve_path(
    x_values: Sequence[float], y_values: Sequence[float], x_scale: Scale, y_scale: Scale
) -> str:
    """Draw straight lines from point to point, as an SVG path.

    A y that is not finite breaks the line: M moves to the point after it, while L draws to a point.
    """
    path = ""
    command = "M"
    for x, y in zip(x_values, y_values, strict=True):
        if math.isfinite(y):
            x_pixels = coordinate(x_scale.to_pixels(x))
            y_pixels = coordinate(y_scale.to_pixels(y))
            path += f"{command}{x_pixels} {y_pixels}"
            command = "L"
        else:
            command = "M"
    return path


def band_path(
    x_values: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
    x_scale: Scale,
    y_scale: Scale,
) -> str:
    """Draw the area between two curves as one outline: along the upper one, back by the lower."""
    there_and_back = [*x_values, *reversed(x_values)]
    upper_then_lower = [*highs, *reversed(lows)]
    return f"{curve_path(there_and_back, upper_then_lower, x_scale, y_scale)}Z"


def range_path(low: float, high: float, scale: Scale, *, y: float) -> str:
    """Draw a horizontal line from `low` to `high`, at least a pixel long, at the height `y`."""
    left = scale.to_pixels(low)
    right = max(scale.to_pixels(high), left + 1)
    return f"M{coordinate(left)} {coordinate(y)}H{coordinate(right)}"


# ---- coverage


def coverage_scale(promised: float, values: Iterable[float]) -> Scale:
    """Return an axis of coverage around the promise, on which all these values lie.

    It reaches a tenth further than the farthest value, and ends at 0 and at 1.
    """
    farthest = max((abs(value - promised) for value in values), default=0.0)
    reach = max(SMALLEST_REACH, (1 + REACH_MARGIN) * farthest)
    low = max(0.0, promised - reach)
    high = min(1.0, promised + reach)
    return Scale(low, high, start=LEFT, end=COVERAGE_RIGHT)


def coverage_ticks(scale: Scale, promised: float) -> list[Tick]:
    """Put a tick at the promised coverage, and others in round steps to both sides of it."""
    step = nice_step((scale.high - scale.low) / 2, 3)

    # Three steps fit into half of the axis, so that six do on one side if the promise is at an end.
    ticks = []
    for n_steps in range(-LARGEST_REACH_IN_STEPS, LARGEST_REACH_IN_STEPS + 1):
        coverage = promised + n_steps * step
        if scale.low - ROUNDING_SLACK <= coverage <= scale.high + ROUNDING_SLACK:
            ticks.append(Tick(scale.to_pixels(coverage), percent_of_tick(coverage)))
    return ticks


def percent_of_tick(share: float) -> str:
    """Write a share without the decimals that it does not need: 0.9 -> "90 %"."""
    return f"{100 * share:.4g}{NARROW_SPACE}%"


def law_ends(rank: int, n: int) -> tuple[float, float]:
    """Return the ends between which Beta(rank, n + 1 - rank) is drawn: all but 0.1 % of it.

    For rank n + 1 coverage is 1 for certain, so both ends are 1.
    """
    if rank > n:
        return 1.0, 1.0
    law = coverage_law_of_rank(rank, n)
    return float(law.ppf(LAW_TAIL)), float(law.ppf(1 - LAW_TAIL))


def law_path(rank: int, n: int, scale: Scale) -> str:
    """Draw the distribution of coverage, the density of Beta(rank, n + 1 - rank), as an SVG path.

    The threshold is the score of this rank among n calibration scores; `scale` is the axis of
    coverage. The highest point of the density touches the top of the plot area. For rank n + 1
    the threshold is infinite and coverage is 1 for certain: an upright bar of two pixels.
    """
    if rank > n:
        left_of_one = coordinate(scale.to_pixels(1.0) - 1)
        return f"M{left_of_one} {LAW_BASE}V{TOP}h2V{LAW_BASE}Z"

    # 1. Find the part of the density that is on the axis.
    low, high = law_ends(rank, n)
    lowest_coverage = max(scale.low, low)
    highest_coverage = min(scale.high, high)
    if highest_coverage <= lowest_coverage:
        return ""

    # 2. Make a vertical scale: from 0 to the density at the mode.
    law = coverage_law_of_rank(rank, n)
    highest_density = float(law.pdf(mode_of_law(rank, n)))
    density_scale = Scale(0.0, highest_density, start=LAW_BASE, end=TOP)

    # 3. Draw the outline: up from the base line, along the density, and down again.
    coverages = np.linspace(lowest_coverage, highest_coverage, LAW_POINTS)
    curve = curve_path(coverages.tolist(), law.pdf(coverages).tolist(), scale, density_scale)
    curve_to_draw_to = curve.removeprefix("M")  # the pen is down already
    start = coordinate(scale.to_pixels(lowest_coverage))
    return f"M{start} {LAW_BASE}L{curve_to_draw_to}V{LAW_BASE}Z"


def mode_of_law(rank: int, n: int) -> float:
    """Return where Beta(rank, n + 1 - rank) is highest: (rank - 1) / (n - 1), kept inside (0, 1).

    At 0 and at 1 themselves a density may be infinite.
    """
    mode = (rank - 1) / (n - 1) if n > 1 else 0.5
    return min(max(mode, EDGE_OF_MODE), 1 - EDGE_OF_MODE)
