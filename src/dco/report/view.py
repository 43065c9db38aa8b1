"""What a page shows, figure by figure: places in pixels and texts for the template."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dco import CertifiedThreshold, GroupEvaluation
from dco.foundations.histograms import nice_step
from dco.report import plots, words
from dco.report.examples import Example
from dco.report.formats import (
    decimals_for,
    fixed,
    label,
    number,
    percent,
    shortened,
    threshold_decimals,
    threshold_in_words,
)
from dco.report.numbers import LevelNumbers, ReportNumbers, RowNumbers
from dco.report.plots import Scale, Tick
from dco.report.slice_tables import SliceTable

NAME_BESIDE_AXIS = 7  # characters of the name of a condition; longer ones stand on a line above
LINE_HEIGHT = 26  # of one condition in a figure
NAME_HEIGHT = 14


@dataclass(frozen=True)
class Mark:
    """A vertical line in a figure, with its name on the side where there is more room."""

    at: float
    name: str
    anchor: str

    @classmethod
    def of(cls, at: float, name: str) -> Mark:
        """Put the name to the left of lines in the right half."""
        return cls(at, name, "end" if at > plots.WIDTH / 2 else "start")


@dataclass(frozen=True)
class ScoreRow:
    """The histogram of one condition, and its threshold."""

    name: str
    path: str
    top: float
    base: float
    mark: Mark
    counts: list[int]
    n_beyond: int


@dataclass(frozen=True)
class ScoreFigure:
    """Calibration scores and thresholds, one histogram below the other."""

    rows: list[ScoreRow]
    ticks: list[Tick]
    count_ticks: list[Tick]
    bottom: float
    names_above: bool
    bins: list[str]


@dataclass(frozen=True)
class CoverageLine:
    """Coverage in one condition: the range of its law, and what was observed."""

    name: str
    n: int
    rank: str
    expected: str
    range: str
    observed: str
    y: float
    path: str
    at: float | None


@dataclass(frozen=True)
class CoverageFigure:
    """Coverage against its law, for all rows or a line for each condition.

    `inner` is where the law lies with probability 90 %, `range` where the coverage of the rows
    given does, `at` that coverage.
    """

    promise: Mark
    ticks: list[Tick]
    bottom: float
    law: str = ""
    inner: tuple[float, float] | None = None
    range: str = ""
    at: float | None = None
    lines: Sequence[CoverageLine] = ()
    names_above: bool = False


@dataclass(frozen=True)
class CurveFigure:
    """A figure against the level: its line, a dashed line or a band, and the certified level."""

    line: str
    other: str
    ticks: list[Tick]
    level_ticks: list[Tick]
    level_at: float
    dot_y: float | None
    zero: float


@dataclass(frozen=True)
class SizeFigure:
    """A histogram of set sizes, with the mean."""

    path: str
    mean: Mark
    ticks: list[Tick]
    share_ticks: list[Tick]
    bins: list[tuple[str, int]]


@dataclass(frozen=True)
class ExampleView:
    """One example, ready to be shown."""

    kind: str
    name: str
    truth: str
    prediction: str
    set: str
    labels: list[tuple[str, bool]]
    more: str
    path: str
    truth_at: float | None
    size: str
    outcome: str


@dataclass(frozen=True)
class SliceView:
    """One slice of a table."""

    name: str
    n: int
    coverage: str
    interval: str
    path: str
    promise_at: float
    at: float
    is_too_low: bool
    mean_size: str
    p95_size: str


@dataclass(frozen=True)
class TableView:
    """A table by slice, with what is said of it."""

    table: SliceTable
    promise: str
    slices: list[SliceView]


# ---- calibration scores


def score_figure(numbers: ReportNumbers) -> ScoreFigure:
    """Draw calibration scores; the last 14 pixels of the axis are for thresholds beyond."""
    edges = numbers.score_edges
    scale = Scale(float(edges[0]), float(edges[-1]), plots.LEFT, plots.RIGHT - 14)
    histograms = numbers.histograms
    is_alone = len(histograms) == 1 and histograms[0].condition is None
    names_above = need_a_line([str(histogram.condition) for histogram in histograms])
    room = LINE_HEIGHT + 8 + (NAME_HEIGHT if names_above else 0)
    height = plots.BOTTOM - plots.TOP if is_alone else room
    decimals = threshold_decimals(histogram.threshold for histogram in histograms)

    rows = []
    for position, histogram in enumerate(histograms):
        top = plots.TOP + position * height
        largest = max(int(histogram.counts.max()), 1)
        threshold = histogram.threshold
        at = plots.RIGHT - 3.0 if threshold > scale.high else scale(threshold)
        name = threshold_in_words(threshold, decimals=None if is_alone else decimals)
        path = plots.bars(
            scale.bins(edges),
            (histogram.counts / largest).tolist(),
            top=top if is_alone else top + height - LINE_HEIGHT,
            base=top + height,
        )
        rows.append(
            ScoreRow(
                name=str(histogram.condition),
                path=path,
                top=top,
                base=top + height,
                mark=Mark.of(at, f"threshold {name}"),
                counts=histogram.counts.tolist(),
                n_beyond=histogram.n_beyond,
            )
        )
    return ScoreFigure(
        rows=rows,
        ticks=scale.ticks(),
        count_ticks=plots.upwards(0, max(int(histograms[0].counts.max()), 1)).ticks(4),
        bottom=plots.TOP + len(rows) * height,
        names_above=names_above,
        bins=[f"{number(low)} to {number(high)}" for low, high in pairwise(edges)],
    )


def need_a_line(names: Sequence[str]) -> bool:
    """Decide whether names are too long to stand beside the axis."""
    return any(len(name) > NAME_BESIDE_AXIS for name in names)


# ---- coverage


def coverage_figure(numbers: ReportNumbers, most_lines: int) -> CoverageFigure:
    """Draw coverage against its law: of all rows, or of the largest conditions."""
    if any(threshold.group is not None for threshold in numbers.certificate.thresholds):
        return figure_of_conditions(numbers, condition_lines(numbers)[:most_lines])
    return figure_of_all_rows(numbers)


def figure_of_all_rows(numbers: ReportNumbers) -> CoverageFigure:
    """Draw the law of coverage, the range that it expects for the rows, and their coverage."""
    (threshold,) = numbers.certificate.thresholds
    level = numbers.certified
    promised = 1 - numbers.certificate.alpha
    scale = plots.coverage_scale(promised, values_of_law(numbers))

    inner = None
    if threshold.coverage_low is not None:
        high = 1.0 if threshold.coverage_high is None else threshold.coverage_high
        inner = (scale(threshold.coverage_low), scale(high))
    expected_range = ""
    if level.coverage is not None and level.low is not None and level.high is not None:
        expected_range = plots.span((level.low, level.high), scale, plots.BOTTOM - 14)
    law = ""
    if threshold.rank is not None:
        law = plots.law_path(threshold.rank, threshold.n, scale)

    return CoverageFigure(
        promise=promise_mark(scale(promised)),
        ticks=plots.coverage_ticks(scale, promised),
        bottom=plots.BOTTOM,
        law=law,
        inner=inner,
        range=expected_range,
        at=None if level.coverage is None else scale(level.coverage),
    )


def values_of_law(numbers: ReportNumbers) -> list[float]:
    """Return the coverages that the axis must show: the ends of the law, and what was observed."""
    (threshold,) = numbers.certificate.thresholds
    level = numbers.certified
    values = [value for value in (level.low, level.high, level.coverage) if value is not None]
    if threshold.rank is not None:
        values += plots.law_ends(threshold.rank, threshold.n)
    return values


def figure_of_conditions(
    numbers: ReportNumbers, conditions: Sequence[ConditionNumbers]
) -> CoverageFigure:
    """Draw a line for each condition: the range of its coverage, and what was observed."""
    promised = 1 - numbers.certificate.alpha
    shown = [promised]
    for condition in conditions:
        if condition.range is not None:
            shown += condition.range
        if condition.observed is not None:
            shown.append(condition.observed)
    scale = plots.coverage_scale(promised, shown)

    names_above = need_a_line([condition.name for condition in conditions])
    room_for_name = NAME_HEIGHT if names_above else 0
    line_height = LINE_HEIGHT + room_for_name
    first_y = plots.TOP + NAME_HEIGHT + room_for_name
    return CoverageFigure(
        promise=promise_mark(scale(promised)),
        ticks=plots.coverage_ticks(scale, promised),
        bottom=plots.TOP + line_height * len(conditions) + 6,
        lines=[
            condition.draw(scale, first_y + position * line_height)
            for position, condition in enumerate(conditions)
        ],
        names_above=names_above,
    )


def promise_mark(at: float) -> Mark:
    """Name the line of the promise on its right, or on its left at the end of the axis."""
    if at > plots.RIGHT - 70:
        return Mark(at, "promised", "end")
    return Mark(at, "promised", "start")


@dataclass(frozen=True)
class ConditionNumbers:
    """One condition: its threshold, the range of its coverage, and what was observed."""

    name: str
    threshold: CertifiedThreshold
    range: tuple[float, float] | None
    observed: float | None
    expected_in_words: str
    range_in_words: str

    def draw(self, scale: Scale, y: float) -> CoverageLine:
        """Draw the line of this condition at a height."""
        rank = self.threshold.rank
        return CoverageLine(
            name=self.name,
            n=self.threshold.n,
            rank="–" if rank is None else str(rank),
            expected=self.expected_in_words,
            range=self.range_in_words,
            observed=percent(self.observed),
            y=y,
            path="" if self.range is None else plots.span(self.range, scale, y),
            at=None if self.observed is None else scale(self.observed),
        )


def condition_lines(numbers: ReportNumbers) -> list[ConditionNumbers]:
    """Return the conditions, those with most calibration rows first."""
    evaluated = {}
    if numbers.evaluation is not None:
        evaluated = {str(row.group): row for row in numbers.evaluation.by_condition}

    lines = []
    for position, threshold in enumerate(numbers.certificate.thresholds):
        group = evaluated.get(str(threshold.group))
        lines.append(
            ConditionNumbers(
                name=str(threshold.group),
                threshold=threshold,
                range=range_of_coverage(threshold, group),
                observed=None if group is None else group.coverage,
                expected_in_words=words.expected(numbers, position),
                range_in_words=words.spread(numbers, position),
            )
        )
    return sorted(lines, key=lambda line: -line.threshold.n)


def range_of_coverage(
    threshold: CertifiedThreshold, group: GroupEvaluation | None
) -> tuple[float, float] | None:
    """Return the range that holds coverage with probability 90 %; None where no law is known.

    It is that of the rows given, or where there are none, that of all new rows.
    """
    if group is not None and group.consistency is not None:
        return group.consistency.low, group.consistency.high
    if threshold.coverage_low is None:
        return None
    high = 1.0 if threshold.coverage_high is None else threshold.coverage_high
    return threshold.coverage_low, high


# ---- slices


def table_view(numbers: ReportNumbers, table: SliceTable) -> TableView:
    """Show a table by slice, with a small axis for each row that ends at 1."""
    promised = 1 - numbers.certificate.alpha
    lowest = min([promised, *(row.coverage_low for row in table.slices)])
    scale = Scale(lowest - 0.05 * (1 - lowest), 1.0, 4, plots.SLICE_WIDTH - 4)
    decimals = size_decimals(numbers)
    slices = [
        SliceView(
            name=label(row.group),
            n=row.n,
            coverage=percent(row.coverage),
            interval=f"{percent(row.coverage_low)} – {percent(row.coverage_high)}",
            path=plots.span((row.coverage_low, row.coverage_high), scale, plots.SLICE_HEIGHT / 2),
            promise_at=scale(promised),
            at=scale(row.coverage),
            is_too_low=row in table.too_low,
            mean_size=fixed(row.mean_size, decimals),
            p95_size=fixed(row.sizes.p95, decimals),
        )
        for row in table.slices
    ]
    promise = words.promise_of_slices(numbers.certificate, are_conditions=table.are_conditions)
    return TableView(table, promise, slices)


def size_decimals(numbers: ReportNumbers) -> int:
    """Return the decimals of sizes: two for mean counts of labels, three digits for lengths."""
    if numbers.n_classes is not None:
        return 2
    later_levels = numbers.levels[numbers.start :]
    sizes = [level.mean_size for level in later_levels if level.mean_size is not None]
    first_finite = next((size for size in sizes if math.isfinite(size)), 0.0)
    return decimals_for([first_finite], digits=3)


# ---- sizes


def size_figure(numbers: ReportNumbers, rows: RowNumbers) -> SizeFigure:
    """Draw a histogram of sizes; the last 28 pixels of the axis are for larger sets."""
    edges = rows.sizes.edges
    counts = rows.sizes.counts.tolist()
    scale = Scale(float(edges[0]), float(edges[-1]), plots.LEFT, plots.RIGHT - 28)
    places = [*scale.bins(edges), (plots.RIGHT - 22.0, float(plots.RIGHT))]

    total = rows.evaluation.n
    step = nice_step(max(counts) / total, 4)
    up = plots.upwards(0, 4)
    mean = rows.evaluation.mean_size
    mean_at = plots.RIGHT - 11.0 if mean > edges[-1] else scale(mean)
    ticks = scale.ticks(6, whole=numbers.n_classes is not None)
    labels_end = plots.RIGHT - 30  # the bar of larger sets has no number below it
    return SizeFigure(
        path=plots.bars(places, [count / total / (4 * step) for count in counts]),
        mean=Mark.of(mean_at, f"mean {fixed(mean, size_decimals(numbers))}"),
        ticks=[tick for tick in ticks if tick.at + 4 * len(tick.label) < labels_end],
        share_ticks=[Tick(up(k), f"{round(100 * k * step, 6):g}\u202f%") for k in range(5)],
        bins=list(zip(names_of_bins(numbers, rows), counts, strict=True)),
    )


def names_of_bins(numbers: ReportNumbers, rows: RowNumbers) -> list[str]:
    """Name the bins of sizes: whole numbers of labels, or lengths."""
    edges = rows.sizes.edges
    if numbers.n_classes is None:
        names = [f"{number(low)} to {number(high)}" for low, high in pairwise(edges)]
        return [*names, f"{number(edges[-1])} and more"]

    firsts = [math.ceil(edge) for edge in edges]
    names = []
    for first, after in pairwise(firsts):
        is_one_number = after == first + 1
        names.append(str(first) if is_one_number else f"{first} to {after - 1}")
    return [*names, f"{firsts[-1]} and more"]


# ---- levels


def gap_figure(numbers: ReportNumbers) -> CurveFigure | None:
    """Draw coverage above the promise against the level, in percentage points.

    Coverage is that of the rows given, or else the expected one; None where neither is known.
    """
    levels = numbers.levels
    gaps = [gap(level, coverage_of(level)) for level in levels]
    if any(math.isnan(value) for value in gaps):
        return None
    lows = [gap(level, level.low) for level in levels]
    highs = [gap(level, level.high) for level in levels]

    # Where scores are tied the law has no upper end (coverage 1): the band leaves the picture.
    shown = [-0.5, 0.5]
    for level, *gaps_at_level in zip(levels, gaps, lows, highs, strict=True):
        gap_at_full_coverage = 100 * level.alpha
        shown += [value for value in gaps_at_level if value < gap_at_full_coverage - 1e-9]
    bottom = min(shown)
    top = max(shown)
    air = 0.06 * (top - bottom)
    up = plots.upwards(bottom - air, top + air)
    across = Scale(0.0, levels[-1].alpha)

    alphas = [level.alpha for level in levels]
    has_band = not any(math.isnan(value) for value in [*lows, *highs])
    return CurveFigure(
        line=plots.curve(zip(alphas, gaps, strict=True), across, up),
        other=plots.band(alphas, lows, highs, across, up) if has_band else "",
        ticks=up.ticks(5),
        level_ticks=across.ticks(6),
        level_at=across(numbers.certified.alpha),
        dot_y=up(gaps[numbers.start]),
        zero=up(0.0),
    )


def coverage_of(level: LevelNumbers) -> float | None:
    """Return the coverage of the rows given, or else the expected one."""
    return level.expected if level.coverage is None else level.coverage


def gap(level: LevelNumbers, coverage: float | None) -> float:
    """Return coverage above the promise, in percentage points; NaN where it is not known."""
    return math.nan if coverage is None else 100 * (coverage - 1 + level.alpha)


def size_curve_figure(numbers: ReportNumbers) -> CurveFigure:
    """Draw mean and P95 size against the level; infinite sizes are left out."""
    across = Scale(0.0, numbers.levels[-1].alpha)
    means = [(level.alpha, level.mean_size or 0.0) for level in numbers.levels]
    p95s = [(level.alpha, level.p95_size or 0.0) for level in numbers.levels]
    finite = [size for _, size in means + p95s if math.isfinite(size)]
    up = plots.upwards(0, 1.05 * max(finite, default=0.0) or 1.0)
    certified_mean = means[numbers.start][1]
    return CurveFigure(
        line=plots.curve(means, across, up),
        other=plots.curve(p95s, across, up),
        ticks=up.ticks(5),
        level_ticks=across.ticks(6),
        level_at=across(numbers.certified.alpha),
        dot_y=up(certified_mean) if math.isfinite(certified_mean) else None,
        zero=up(0.0),
    )


# ---- examples


def example_views(
    numbers: ReportNumbers, rows: RowNumbers, names: Sequence[str] | None
) -> tuple[list[ExampleView], list[Tick]]:
    """Show the examples; those of numbers on one axis, whose ticks come second."""
    scale = example_scale(rows.examples) if numbers.n_classes is None else None
    views = [example_view(example, scale, names) for example in rows.examples]
    if have_one_size(rows.examples):
        views = [replace(view, kind="same size") for view in views]

    ticks = [] if scale is None else scale.ticks(5)
    inside = [tick for tick in ticks if 12 < tick.at < plots.EXAMPLE_WIDTH - 12]
    return views, inside


def example_view(example: Example, scale: Scale | None, names: Sequence[str] | None) -> ExampleView:
    """Show one example: the pieces of its set on the scale, or without a scale its labels."""
    are_labels = scale is None
    return ExampleView(
        kind=example.kind,
        name=f"row {example.row + 1}" if names is None else shortened(names[example.row]),
        truth=label(example.truth),
        prediction=label(example.prediction),
        set="" if are_labels else words.pieces(example),
        labels=[(label(value), value == example.truth) for value in example.labels],
        more=more_labels(example) if are_labels else "",
        path="" if scale is None else draw_pieces(example, scale),
        truth_at=None if scale is None else scale(float(example.truth)),
        size=words.example_size(example, is_labels=are_labels),
        outcome="covered" if example.is_covered else "missed",
    )


def have_one_size(examples: Sequence[Example]) -> bool:
    """Decide whether all examples have the same size, so that the choice of rows is arbitrary."""
    return len({f"{example.size:.9g}" for example in examples}) == 1


def example_scale(examples: Sequence[Example]) -> Scale:
    """Return an axis that shows the sets and the true values."""
    ends = [end for example in examples for piece in example.pieces for end in piece]
    finite = [end for end in ends if math.isfinite(end)]
    values = [*finite, *(float(example.truth) for example in examples)]
    air = 0.08 * (max(values) - min(values)) or 1.0
    return Scale(min(values) - air, max(values) + air, 2, plots.EXAMPLE_WIDTH - 2)


def draw_pieces(example: Example, scale: Scale) -> str:
    """Draw the pieces of one set."""
    middle = plots.EXAMPLE_HEIGHT / 2
    return "".join(plots.span(piece, scale, middle) for piece in example.pieces)


def more_labels(example: Example) -> str:
    """Count the labels that are not listed."""
    if not example.size:
        return "no label: the set is empty"
    return f"and {example.n_more} more" if example.n_more else ""
