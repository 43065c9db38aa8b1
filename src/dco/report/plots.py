"""Numbers to SVG geometry: scales, ticks and paths, as text that the template and the page's script only put in place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dco.foundations.arrays import Floats, Integers
from dco.guarantees.facts import CertifiedThreshold
from dco.report.numbers import ExampleSet, LevelNumbers, ReportNumbers, exponential, nice_step, number

WIDTH, HEIGHT = 420, 244
LEFT, RIGHT, TOP, BOTTOM = 46, 408, 34, 202  # above TOP: a line for the axis' name, a line for a mark's
NAME_BESIDE, NAME_ABOVE = 7, 48  # characters of a group's name beside the axis, and on a line of its own
COVERAGE_RIGHT = RIGHT - 12  # "100 %" may stand at the end of the axis


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
        return round(self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def ticks(self, most: int = 6, *, whole: bool = False) -> list[Tick]:
        """Round numbers along the axis; whole numbers for counts."""
        step = nice_step(self.high - self.low, most)
        if whole:
            step = float(max(1, math.ceil(step)))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        values = [float(f"{k * step:.12g}") for k in range(first, last + 1)]
        return [Tick(self(value), label) for value, label in zip(values, tick_labels(values), strict=True)]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Numbers in the six characters or so that there are beside an axis, all in one form: 0, 50k, 100k; 0, 5e−5, 1e−4."""
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


def bars(places: Sequence[tuple[float, float]], heights: Sequence[float], base: float) -> str:
    """Bars from `base` up to each height, with a pixel of air between them, as one path."""
    parts = []
    for (left, right), top in zip(places, heights, strict=True):
        if top < base:
            parts.append(f"M{pixels(left + 0.5)} {pixels(base)}V{pixels(top)}H{pixels(right - 0.5)}V{pixels(base)}Z")
    return "".join(parts)


def line(points: Sequence[tuple[float, float]]) -> str:
    """Straight segments through the points; a point that is not finite breaks the line."""
    parts, pen_down = [], False
    for x, y in points:
        if not (math.isfinite(x) and math.isfinite(y)):
            pen_down = False
            continue
        parts.append(f"{'L' if pen_down else 'M'}{pixels(x)} {pixels(y)}")
        pen_down = True
    return "".join(parts)


def area(upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]]) -> str:
    """The region between two lines."""
    return line([*upper, *reversed(lower)]) + "Z" if upper else ""


# ------------------------------------------------------------------------------------------ coverage and its law


@dataclass(frozen=True)
class CoverageWindow:
    """An axis of coverage around 1 - alpha at every level, so that the law stays in view; it ends at 0 and at 1."""

    half_width: float
    step: float

    def scale(self, alpha: float) -> Scale:
        """Coverage to pixels at one level."""
        return Scale(max(0.0, 1 - alpha - self.half_width), min(1.0, 1 - alpha + self.half_width), LEFT, COVERAGE_RIGHT)

    def offsets(self) -> list[float]:
        """Where ticks stand, relative to 1 - alpha."""
        most = math.floor(self.half_width / self.step + 1e-9)
        return [k * self.step for k in range(-most, most + 1)]

    def ticks(self, alpha: float) -> list[Tick]:
        """The ticks at one level, as many at each; one above 1 or below 0 has no label."""
        scale, values = self.scale(alpha), [1 - alpha + offset for offset in self.offsets()]
        return [Tick(scale(value), f"{100 * value:.4g}\u202f%" if -1e-9 <= value <= 1 + 1e-9 else "") for value in values]


def coverage_window(numbers: ReportNumbers) -> CoverageWindow:
    """Wide enough for the law at the certified level and at most others, and for the coverage that was seen."""
    own = numbers.levels[numbers.start]
    reach = [0.02]
    for level in (own, *numbers.levels):
        entries = [entry.threshold for entry in level.conditions] or list(level.thresholds)
        for entry in entries:
            if entry.rank is not None and entry.rank <= entry.n:
                spread = math.sqrt(entry.rank * (entry.n + 1 - entry.rank) / (entry.n + 1) ** 2 / (entry.n + 2))
                shift = abs(entry.rank / (entry.n + 1) - (1 - level.alpha))
                reach.append(shift + 3 * spread)
    seen = [abs(coverage - (1 - own.alpha)) for coverage in _seen(own)]
    widest = min(0.5, max([float(np.quantile(reach, 0.9)), *(1.1 * value for value in seen)]))
    step = nice_step(widest, 3)
    return CoverageWindow(max(widest, step * 1.05), step)


def _seen(level: LevelNumbers) -> list[float]:
    if level.conditions:
        return [entry.evaluation.coverage for entry in level.conditions if entry.evaluation is not None]
    return [] if level.evaluation is None else [level.evaluation.coverage]


def law_path(entry: CertifiedThreshold, scale: Scale) -> str:
    """The density Beta(rank, n + 1 - rank), each level scaled to its own peak."""
    from scipy.stats import beta

    base = BOTTOM - 34  # room for the strip below
    if entry.rank is None:
        return ""
    if entry.rank > entry.n:
        return f"M{pixels(scale(1.0) - 1)} {base}V{TOP}h2V{base}Z"
    law = beta(entry.rank, entry.n + 1 - entry.rank)
    mode = (entry.rank - 1) / (entry.n - 1) if entry.n > 1 else 0.5
    peak = float(law.pdf(min(max(mode, 1e-9), 1 - 1e-9)))
    ends = [float(law.ppf(q)) for q in (0.0005, 0.9995)]
    left, right = max(scale.low, ends[0]), min(scale.high, ends[1])
    if right <= left:
        return ""
    x = np.linspace(left, right, 37)
    y = base - (base - TOP) * np.minimum(law.pdf(x) / peak, 1.0)
    top = [(scale(float(a)), float(b)) for a, b in zip(x, y, strict=True)]
    return f"M{pixels(top[0][0])} {base}" + line(top).replace("M", "L", 1) + f"V{base}Z"


def span(low: float, high: float, scale: Scale, y: float) -> str:
    """A horizontal bar, with a pixel at least."""
    left, right = scale(low), scale(high)
    return f"M{pixels(left)} {pixels(y)}H{pixels(max(right, left + 1))}"


# ------------------------------------------------------------------------------------------ histograms


def score_scale(numbers: ReportNumbers) -> Scale:
    """The axis of calibration scores; the last 14 pixels are for what lies beyond."""
    return Scale(float(numbers.score_edges[0]), float(numbers.score_edges[-1]), LEFT, RIGHT - 14)


def score_bars(counts: Integers, scale: Scale, edges: Floats, *, top: float, base: float) -> str:
    """One histogram, its tallest bar as high as there is room."""
    most = max(int(counts.max()), 1)
    heights = [base - (base - top) * int(count) / most for count in counts]
    return bars([(scale(float(a)), scale(float(b))) for a, b in pairwise(edges)], heights, base)


def threshold_place(value: float, scale: Scale) -> float:
    """Where the threshold's line stands; beyond the axis if it is larger than the axis is long."""
    return RIGHT - 3 if value > scale.high else scale(value)


def size_places(edges: Floats) -> list[tuple[float, float]]:
    """The left and right end of each bar; the last is for sets beyond the last edge."""
    scale = size_scale(edges)
    inside = [(scale(float(a)), scale(float(b))) for a, b in pairwise(edges)]
    return [*inside, (RIGHT - 22, RIGHT)]


def size_scale(edges: Floats) -> Scale:
    """The axis of sizes; the last 28 pixels are for larger sets."""
    return Scale(float(edges[0]), float(edges[-1]), LEFT, RIGHT - 28)


def before_more(ticks: Sequence[Tick]) -> list[Tick]:
    """The ticks whose labels leave room for the word "more" at the end of the axis."""
    return [tick for tick in ticks if tick.at + 4 * len(tick.label) < RIGHT - 30]


def size_bars(counts: Integers, edges: Floats, scale: Scale) -> str:
    """The histogram of sizes at one level; `scale` maps shares of rows."""
    total = max(int(counts.sum()), 1)
    return bars(size_places(edges), [scale(int(count) / total) for count in counts], BOTTOM)


# ------------------------------------------------------------------------------------------ examples on the real line

EXAMPLE_WIDTH, EXAMPLE_HEIGHT = 300, 18


def example_scale(numbers: ReportNumbers) -> Scale | None:
    """A common axis for the examples of a regression: their true values and their sets at the certified level."""
    values = [example.truth_value for example in numbers.examples if example.truth_value is not None]
    if not values:
        return None
    for example in numbers.examples:
        values += [end for piece in example.sets[numbers.start].pieces for end in piece if math.isfinite(end)]
    low, high = min(values), max(values)
    air = 0.08 * (high - low) or 1.0
    return Scale(low - air, high + air, 2, EXAMPLE_WIDTH - 2)


def example_path(found: ExampleSet, scale: Scale) -> str:
    """The pieces of one set as thick strokes."""
    return "".join(span(low, high, scale, EXAMPLE_HEIGHT / 2) for low, high in found.pieces)
