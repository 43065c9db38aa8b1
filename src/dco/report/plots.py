"""Numbers to SVG geometry: scales, ticks and paths, as text that the template and the page's script
only put in place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dco.calibration.facts import CertifiedThreshold
from dco.foundations.arrays import Floats
from dco.foundations.histograms import nice_step
from dco.report.formats import exponential, number
from dco.report.numbers import ReportNumbers
from dco.theory import coverage_law_of_rank

WIDTH, HEIGHT = 420, 244
# above TOP: a line for the axis' name, a line for a mark's
LEFT, RIGHT, TOP, BOTTOM = 46, 408, 34, 202
# characters of a condition's name beside the axis, and on a line of its own
NAME_BESIDE, NAME_ABOVE = 7, 48
COVERAGE_RIGHT = RIGHT - 12  # "100 %" may stand at the end of the axis
EXAMPLE_WIDTH, EXAMPLE_HEIGHT = 300, 18
SLICE_WIDTH, SLICE_HEIGHT = 150, 14


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
        """The place of a number, to a tenth of a pixel."""
        inside = min(max(value, self.low), self.high)
        return round(
            self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start), 1
        )

    def ticks(self, most: int = 6, *, whole: bool = False) -> list[Tick]:
        """Round numbers along the axis; whole numbers for counts."""
        step = nice_step(self.high - self.low, most)
        if whole:
            step = float(max(1, math.ceil(step)))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        values = [float(f"{k * step:.12g}") for k in range(first, last + 1)]
        return [
            Tick(self(value), label)
            for value, label in zip(values, tick_labels(values), strict=True)
        ]

    def bins(self, edges: Floats) -> list[tuple[float, float]]:
        """The left and right end of each bar of a histogram."""
        return [(self(a), self(b)) for a, b in pairwise(edges.tolist())]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Numbers in the six characters or so that there are beside an axis, all in one form: 0, 50k,
    100k; 0, 5e−5, 1e−4.
    """
    largest = max(map(abs, values), default=0.0)
    if 1e5 <= largest < 1e9:
        unit, sign = (1e6, "M") if largest >= 1e6 else (1e3, "k")
        return [f"{number(value / unit)}{sign}" if value else "0" for value in values]
    if largest >= 1e9 or largest < 1e-3:
        return [exponential(value) if value else "0" for value in values]
    return [number(value) for value in values]


def upwards(low: float, high: float) -> Scale:
    """A vertical scale of the plot: larger is higher."""
    return Scale(low, high, BOTTOM, TOP)


def pixels(value: float) -> str:
    """A coordinate, as short as it can be written."""
    return f"{value:.1f}".removesuffix(".0")


def bars(
    places: Sequence[tuple[float, float]],
    shares: Iterable[float],
    *,
    top: float = TOP,
    base: float = BOTTOM,
) -> str:
    """Bars as one path, with a pixel of air between them; a share of 1 reaches from `base` to
    `top`.
    """
    return "".join(
        f"M{pixels(left + 0.5)} "
        f"{pixels(base)}V{pixels(base - (base - top) * share)}"
        f"H{pixels(right - 0.5)}V{pixels(base)}Z"
        for (left, right), share in zip(places, shares, strict=True)
        if share > 0
    )


def curve(points: Iterable[tuple[float, float]], across: Scale, up: Scale) -> str:
    """Straight segments through the points; a point that is not finite breaks the line."""
    path, pen = "", "M"
    for x, y in points:
        finite = math.isfinite(y)
        path += f"{pen}{pixels(across(x))} {pixels(up(y))}" if finite else ""
        pen = "L" if finite else "M"
    return path


def span(ends: tuple[float, float] | None, scale: Scale, y: float) -> str:
    """A horizontal bar, with a pixel at least; nothing where there are no ends."""
    if ends is None:
        return ""
    left, right = map(scale, ends)
    return f"M{pixels(left)} {pixels(y)}H{pixels(max(right, left + 1))}"


@dataclass(frozen=True)
class CoverageWindow:
    """An axis of coverage around 1 - alpha at every level, so that the law stays in view; it ends
    at 0 and at 1.
    """

    half_width: float
    step: float

    def scale(self, alpha: float) -> Scale:
        """Coverage to pixels at one level."""
        return Scale(
            max(0.0, 1 - alpha - self.half_width),
            min(1.0, 1 - alpha + self.half_width),
            LEFT,
            COVERAGE_RIGHT,
        )

    def ticks(self, alpha: float) -> list[Tick]:
        """The ticks at one level, as many at each; one above 1 or below 0 has no label."""
        most = math.floor(self.half_width / self.step + 1e-9)
        scale, values = (
            self.scale(alpha),
            [1 - alpha + k * self.step for k in range(-most, most + 1)],
        )
        return [
            Tick(scale(value), f"{100 * value:.4g}\u202f%" if -1e-9 <= value <= 1 + 1e-9 else "")
            for value in values
        ]


def coverage_window(numbers: ReportNumbers) -> CoverageWindow:
    """Wide enough for the law at the certified level and at most others, and for the coverage that
    was seen.
    """
    own, reach = numbers.own, [0.02]
    for level in (own, *numbers.levels):
        for entry in [condition.threshold for condition in level.conditions] or level.thresholds:
            if entry.rank is not None and entry.rank <= entry.n:
                spread = math.sqrt(
                    entry.rank * (entry.n + 1 - entry.rank) / (entry.n + 1) ** 2 / (entry.n + 2)
                )
                reach.append(abs(entry.rank / (entry.n + 1) - (1 - level.alpha)) + 3 * spread)
    evaluations: list[Any] = [condition.evaluation for condition in own.conditions] or [
        own.evaluation
    ]
    seen = [abs(found.coverage - (1 - own.alpha)) for found in evaluations if found is not None]
    widest = min(0.5, max([float(np.quantile(reach, 0.9)), *(1.1 * value for value in seen)]))
    step = nice_step(widest, 3)
    return CoverageWindow(max(widest, step * 1.05), step)


def law_path(entry: CertifiedThreshold, scale: Scale) -> str:
    """The density Beta(rank, n + 1 - rank), each level scaled to its own peak."""
    base = BOTTOM - 34  # room for the strip below
    if entry.rank is None:
        return ""
    if entry.rank > entry.n:
        return f"M{pixels(scale(1.0) - 1)} {base}V{TOP}h2V{base}Z"
    law = coverage_law_of_rank(entry.rank, entry.n)
    left, right = max(scale.low, float(law.ppf(0.0005))), min(scale.high, float(law.ppf(0.9995)))
    if right <= left:
        return ""
    mode = (entry.rank - 1) / (entry.n - 1) if entry.n > 1 else 0.5
    up = Scale(0.0, float(law.pdf(min(max(mode, 1e-9), 1 - 1e-9))), base, TOP)
    x = np.linspace(left, right, 37)
    top = curve(zip(x.tolist(), law.pdf(x).tolist(), strict=True), scale, up)
    return f"M{pixels(scale(left))} {base}L{top[1:]}V{base}Z"
