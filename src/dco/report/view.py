"""What a page shows, figure by figure: positions in pixels and texts for the template."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dco import CertifiedThreshold, GroupEvaluation
from dco.foundations.arrays import Floats
from dco.foundations.histograms import nice_step
from dco.report import plots, words
from dco.report.examples import Example
from dco.report.formats import (
    NARROW_SPACE,
    decimals_for,
    fixed,
    label,
    number,
    percent,
    shortened,
    threshold_decimals,
    threshold_in_words,
)
from dco.report.numbers import (
    MOST_CONDITIONS,
    LevelNumbers,
    ReportNumbers,
    RowNumbers,
    ScoreHistogram,
)
from dco.report.plots import Scale, Tick
from dco.report.slice_tables import SliceTable

# Figures with a line or a panel for each condition, in pixels.
LONGEST_NAME_BESIDE_AXIS = 7  # characters; longer names of conditions stand on a line above
LINE_HEIGHT = 26  # of one condition
NAME_HEIGHT = 14  # of the name of a condition, above its line
GAP_BETWEEN_PANELS = 8
GAP_BELOW_LINES = 6
PROMISE_NAME_WIDTH = 70  # of the word beside the line of the promise

# The right end of an axis of scores is kept for thresholds beyond it.
SCORE_AXIS_END = plots.RIGHT - 14
BEYOND_SCORE_AXIS = plots.RIGHT - 3.0

# The right end of an axis of sizes is kept for the bar of all larger sets.
SIZE_AXIS_END = plots.RIGHT - 28
BAR_OF_LARGER_SETS = (plots.RIGHT - 22.0, float(plots.RIGHT))
MIDDLE_OF_BAR_OF_LARGER_SETS = plots.RIGHT - 11.0
SIZE_LABELS_END = plots.RIGHT - 30  # that bar has no number below it
HALF_CHARACTER_WIDTH = 4  # of the label of a tick, which is centred
SHARE_STEPS = 4  # of the axis of shares

# Coverage above the promise, in percentage points.
SMALLEST_GAP_SHOWN = 0.5  # the axis shows as much to both sides of 0 at least
ROUNDING_OF_GAPS = 1e-9  # a gap that rounding keeps from the one at coverage 1 counts as that one

# How far axes reach beyond the values on them, as a share of what they show.
GAP_AXIS_MARGIN = 0.06
SIZE_AXIS_MARGIN = 0.05
SLICE_AXIS_MARGIN = 0.05
EXAMPLE_AXIS_MARGIN = 0.08

# Examples with intervals.
EXAMPLE_MARGIN = 2  # to each side of the axis
LABEL_MARGIN = 12  # a tick nearer to the end has no room for its label
SLICE_MARGIN = 4  # half of the dot of a slice


@dataclass(frozen=True)
class Mark:
    """A vertical line in a figure, and its label; `anchor` is the text-anchor of SVG.

    The label of an "end" stands to the left of the line, that of a "start" to its right.
    """

    x: float
    label: str
    anchor: str

    @classmethod
    def with_label_inside(cls, x: float, label: str) -> Mark:
        """Put the label on the side of the line where there is more room."""
        return cls(x, label, "end" if x > plots.WIDTH / 2 else "start")


@dataclass(frozen=True)
class ScorePanel:
    """The histogram of the calibration scores of one condition, and its threshold."""

    name: str
    bars_path: str
    top: float
    bars_top: float
    base: float
    threshold: Mark
    counts: list[int]
    n_beyond: int


@dataclass(frozen=True)
class ScoreFigure:
    """Calibration scores and thresholds, one histogram below the other.

    `bins` are the bins in words, for the table below the figure.
    """

    panels: list[ScorePanel]
    ticks: list[Tick]
    count_ticks: list[Tick]
    bottom: float
    names_above: bool
    bins: list[str]


@dataclass(frozen=True)
class CoverageLine:
    """One condition in the figure of coverage, and the texts of its row in the table below.

    `range_path` is a bar where its law expects coverage, `observed_x` a dot at what was observed.
    """

    name: str
    n: int
    rank: str
    expected: str
    range: str
    observed: str
    y: float
    range_path: str
    observed_x: float | None


@dataclass(frozen=True)
class CoverageFigure:
    """Coverage against its law: for all rows, or a line for each condition.

    For all rows: `law_path` is the density of coverage over all calibrations, `law_middle` the ends
    between which it lies with probability 90 %, `range_path` a bar for the coverage of the rows of
    this page, with the same probability, and `observed_x` a dot at their coverage.
    """

    promise: Mark
    ticks: list[Tick]
    bottom: float
    law_path: str = ""
    law_middle: tuple[float, float] | None = None
    range_path: str = ""
    observed_x: float | None = None
    lines: Sequence[CoverageLine] = ()
    names_above: bool = False


@dataclass(frozen=True)
class CurveFigure:
    """A curve against the level, with a second curve or a band, and a dot at the certified level.

    The dot is at (`certified_x`, `certified_y`); there is none where its value is infinite.
    """

    curve_path: str
    second_path: str
    ticks: list[Tick]
    level_ticks: list[Tick]
    certified_x: float
    certified_y: float | None
    zero_y: float


@dataclass(frozen=True)
class SizeFigure:
    """A histogram of set sizes, with the mean; `bins` has the name and count of each bar."""

    bars_path: str
    mean: Mark
    ticks: list[Tick]
    share_ticks: list[Tick]
    bins: list[tuple[str, int]]


@dataclass(frozen=True)
class LabelSetView:
    """A set of labels: the name of each, and whether it is the true one; `more` counts the rest."""

    labels: list[tuple[str, bool]]
    more: str


@dataclass(frozen=True)
class NumberSetView:
    """A set of numbers: its pieces in words and as bars on an axis, with the true value."""

    pieces: str
    pieces_path: str
    truth_x: float


@dataclass(frozen=True)
class ExampleView:
    """One example: the texts about its row, and its set."""

    kind: str
    name: str
    truth: str
    prediction: str
    set: LabelSetView | NumberSetView
    size: str
    outcome: str


@dataclass(frozen=True)
class SliceView:
    """One row of a table by slice: texts, and a small axis with promise, interval and coverage."""

    name: str
    n: int
    coverage: str
    interval: str
    interval_path: str
    promise_x: float
    coverage_x: float
    is_too_low: bool
    mean_size: str
    p95_size: str


@dataclass(frozen=True)
class TableView:
    """A table by slice, and what the guarantee promises about its slices."""

    table: SliceTable
    promise: str
    slices: list[SliceView]


# ---- calibration scores


def score_figure(numbers: ReportNumbers) -> ScoreFigure:
    """Draw the calibration scores: one histogram, or one for each condition below the other.

    A condition is a group of rows with a threshold of its own.
    """
    histograms = numbers.histograms
    edges = numbers.score_edges
    scale = Scale(float(edges[0]), float(edges[-1]), plots.LEFT, SCORE_AXIS_END)

    has_conditions = len(histograms) > 1 or histograms[0].condition is not None
    names = [str(histogram.condition) for histogram in histograms]
    names_above = has_conditions and are_too_long_beside_axis(names)
    if has_conditions:
        bars_height = LINE_HEIGHT
        panel_height = LINE_HEIGHT + GAP_BETWEEN_PANELS + (NAME_HEIGHT if names_above else 0)
        decimals = threshold_decimals(histogram.threshold for histogram in histograms)
    else:
        bars_height = plots.BOTTOM - plots.TOP
        panel_height = bars_height
        decimals = None

    panels = []
    base = plots.TOP  # the line on which the bars of a panel stand
    for histogram in histograms:
        base += panel_height
        panel = score_panel(
            histogram,
            edges,
            scale,
            base=base,
            height=panel_height,
            bars_height=bars_height,
            decimals=decimals,
        )
        panels.append(panel)

    count_scale = plots.vertical_scale(0, largest_count(histograms[0]))
    return ScoreFigure(
        panels=panels,
        ticks=scale.ticks(),
        count_ticks=count_scale.ticks(4),
        bottom=base,
        names_above=names_above,
        bins=[f"{number(low)} to {number(high)}" for low, high in pairwise(edges)],
    )


def score_panel(
    histogram: ScoreHistogram,
    edges: Floats,
    scale: Scale,
    *,
    base: float,
    height: float,
    bars_height: float,
    decimals: int | None,
) -> ScorePanel:
    """Draw the histogram of one condition, with a line at its threshold.

    Parameters
    ----------
    histogram, edges
        The counts, and the edges of their bins.
    scale
        The axis of scores, from numbers to pixels.
    base, height, bars_height
        Pixels: the line on which the bars stand, the height of the whole panel (bars, and the name
        of the condition above them), and that of the highest bar.
    decimals
        The decimals of the threshold; None for as many as it needs.
    """
    shares_of_largest = histogram.counts / largest_count(histogram)
    bars_top = base - bars_height
    return ScorePanel(
        name=str(histogram.condition),
        bars_path=plots.bars_path(
            scale.bar_ends(edges), shares_of_largest.tolist(), top=bars_top, base=base
        ),
        top=base - height,
        bars_top=bars_top,
        base=base,
        threshold=threshold_mark(histogram.threshold, scale, decimals=decimals),
        counts=histogram.counts.tolist(),
        n_beyond=histogram.n_beyond,
    )


def largest_count(histogram: ScoreHistogram) -> int:
    """Return the count of the highest bar, at least 1."""
    return max(int(histogram.counts.max()), 1)


def threshold_mark(threshold: float, scale: Scale, *, decimals: int | None) -> Mark:
    """Mark a threshold on the axis of scores, or beyond its end, where infinite ones are."""
    x = BEYOND_SCORE_AXIS if threshold > scale.high else scale.to_pixels(threshold)
    value = threshold_in_words(threshold, decimals=decimals)
    return Mark.with_label_inside(x, f"threshold {value}")


def are_too_long_beside_axis(names: Sequence[str]) -> bool:
    """Decide whether names of conditions stand on lines of their own, above what they name."""
    return any(len(name) > LONGEST_NAME_BESIDE_AXIS for name in names)


# ---- coverage


def coverage_figure(numbers: ReportNumbers) -> CoverageFigure:
    """Draw coverage against its law: of all rows, or of the largest conditions."""
    has_conditions = any(
        threshold.group is not None for threshold in numbers.certificate.thresholds
    )
    if has_conditions:
        return coverage_by_condition(numbers, largest_conditions(numbers))
    return coverage_of_all_rows(numbers)


def coverage_of_all_rows(numbers: ReportNumbers) -> CoverageFigure:
    """Draw the coverage of a model with one threshold: what is expected, and what was observed.

    The law of coverage is its distribution over draws of the calibration rows. It is not known for
    every kind of calibration; without rows on the page, nothing was observed.
    """
    (threshold,) = numbers.certificate.thresholds
    level = numbers.certified
    promised = 1 - numbers.certificate.alpha
    scale = plots.coverage_scale(promised, coverages_to_show(threshold, level))

    # 1. The law: its density, and the middle 90 % of it.
    law_path = ""
    if threshold.rank is not None:
        law_path = plots.law_path(threshold.rank, threshold.n, scale)
    law_middle = None
    middle = law_range(threshold)
    if middle is not None:
        low, high = middle
        law_middle = (scale.to_pixels(low), scale.to_pixels(high))

    # 2. The rows of the page: a dot at their coverage, and a bar where it was to be expected.
    observed_x = None
    range_path = ""
    if level.coverage is not None:
        observed_x = scale.to_pixels(level.coverage)
        if level.likely_low is not None and level.likely_high is not None:
            range_path = plots.range_path(
                level.likely_low, level.likely_high, scale, y=plots.RANGE_Y
            )

    return CoverageFigure(
        promise=promise_mark(scale.to_pixels(promised)),
        ticks=plots.coverage_ticks(scale, promised),
        bottom=plots.BOTTOM,
        law_path=law_path,
        law_middle=law_middle,
        range_path=range_path,
        observed_x=observed_x,
    )


def coverages_to_show(threshold: CertifiedThreshold, level: LevelNumbers) -> list[float]:
    """Return the coverages that the axis must show: the ends of the law, and what was observed."""
    values = [
        value
        for value in (level.likely_low, level.likely_high, level.coverage)
        if value is not None
    ]
    if threshold.rank is not None:
        values += plots.law_ends(threshold.rank, threshold.n)
    return values


def coverage_by_condition(
    numbers: ReportNumbers, conditions: Sequence[ConditionNumbers]
) -> CoverageFigure:
    """Draw a line for each condition: the likely range of its coverage, and what was observed.

    A condition is a group of rows with a threshold of its own.
    """
    # 1. An axis that shows everything.
    promised = 1 - numbers.certificate.alpha
    coverages = [promised]
    for condition in conditions:
        if condition.range is not None:
            coverages += condition.range
        if condition.observed is not None:
            coverages.append(condition.observed)
    scale = plots.coverage_scale(promised, coverages)

    # 2. The lines, one below the other; long names stand above their lines.
    names_above = are_too_long_beside_axis([condition.name for condition in conditions])
    height_of_name = NAME_HEIGHT if names_above else 0
    line_height = LINE_HEIGHT + height_of_name
    first_y = plots.TOP + NAME_HEIGHT + height_of_name
    lines = [
        condition.line(scale, y=first_y + position * line_height)
        for position, condition in enumerate(conditions)
    ]

    return CoverageFigure(
        promise=promise_mark(scale.to_pixels(promised)),
        ticks=plots.coverage_ticks(scale, promised),
        bottom=plots.TOP + line_height * len(conditions) + GAP_BELOW_LINES,
        lines=lines,
        names_above=names_above,
    )


def promise_mark(x: float) -> Mark:
    """Name the line of the promise on its right, or on its left at the end of the axis."""
    has_room_on_right = x <= plots.RIGHT - PROMISE_NAME_WIDTH
    return Mark(x, "promised", "start" if has_room_on_right else "end")


@dataclass(frozen=True)
class ConditionNumbers:
    """One condition: its threshold, the range of its coverage, and what was observed."""

    name: str
    threshold: CertifiedThreshold
    range: tuple[float, float] | None
    observed: float | None

    def line(self, scale: Scale, *, y: float) -> CoverageLine:
        """Draw the condition as one line of the figure of coverage: a bar and a dot.

        The bar is the likely range of coverage, the dot what was observed. `scale` is the axis of
        coverage, `y` the height of the line in pixels.
        """
        rank = self.threshold.rank
        range_path = ""
        if self.range is not None:
            low, high = self.range
            range_path = plots.range_path(low, high, scale, y=y)
        return CoverageLine(
            name=self.name,
            n=self.threshold.n,
            rank="–" if rank is None else str(rank),
            expected=words.expected_coverage(self.threshold),
            range=words.coverage_range(self.threshold),
            observed=percent(self.observed),
            y=y,
            range_path=range_path,
            observed_x=None if self.observed is None else scale.to_pixels(self.observed),
        )


def largest_conditions(numbers: ReportNumbers) -> list[ConditionNumbers]:
    """Return the conditions with most calibration rows, as many as are shown, largest first.

    A condition is a group of rows with a threshold of its own. If rows are evaluated on this page,
    each condition knows its coverage on them.
    """
    evaluation_of = {}
    if numbers.evaluation is not None:
        evaluation_of = {str(row.group): row for row in numbers.evaluation.by_condition}

    conditions = []
    for threshold in numbers.certificate.thresholds:
        name = str(threshold.group)
        evaluation = evaluation_of.get(name)
        conditions.append(
            ConditionNumbers(
                name=name,
                threshold=threshold,
                range=range_of_coverage(threshold, evaluation),
                observed=None if evaluation is None else evaluation.coverage,
            )
        )
    largest_first = sorted(conditions, key=lambda condition: -condition.threshold.n)
    return largest_first[:MOST_CONDITIONS]


def range_of_coverage(
    threshold: CertifiedThreshold, evaluation: GroupEvaluation | None
) -> tuple[float, float] | None:
    """Return the range that holds the coverage of a condition with probability 90 %.

    It is that of the rows of this page, or without any that of all new rows; None where no law is
    known.
    """
    if evaluation is not None and evaluation.consistency is not None:
        return evaluation.consistency.low, evaluation.consistency.high
    return law_range(threshold)


def law_range(threshold: CertifiedThreshold) -> tuple[float, float] | None:
    """Return the range that holds the coverage of all new rows with probability 90 %.

    Where calibration scores are tied the law has no upper end, and the range reaches to 1.
    """
    if threshold.coverage_low is None:
        return None
    high = 1.0 if threshold.coverage_high is None else threshold.coverage_high
    return threshold.coverage_low, high


# ---- slices


def table_view(numbers: ReportNumbers, table: SliceTable) -> TableView:
    """Prepare a table of slices for the page: texts, and coverage drawn on a small axis.

    All rows of the table have the same axis, from below the lowest coverage to 1.
    """
    promised = 1 - numbers.certificate.alpha
    lowest = min([promised, *(row.coverage_low for row in table.slices)])
    margin = SLICE_AXIS_MARGIN * (1 - lowest)
    scale = Scale(
        low=lowest - margin,
        high=1.0,
        start=SLICE_MARGIN,
        end=plots.SLICE_WIDTH - SLICE_MARGIN,
    )

    decimals = size_decimals(numbers)
    slices = [
        slice_view(
            row,
            scale,
            promised=promised,
            is_too_low=row in table.undercovered,
            size_decimals=decimals,
        )
        for row in table.slices
    ]
    promise = words.promise_of_slices(numbers.certificate, are_conditions=table.are_conditions)
    return TableView(table, promise, slices)


def slice_view(
    row: GroupEvaluation, scale: Scale, *, promised: float, is_too_low: bool, size_decimals: int
) -> SliceView:
    """Prepare one slice of the rows for the page: texts, and its coverage on the axis `scale`.

    `promised` is the coverage that was promised, 1 - alpha; `is_too_low` says that the whole
    interval of coverage lies below it.
    """
    low = row.coverage_low
    high = row.coverage_high
    return SliceView(
        name=label(row.group),
        n=row.n,
        coverage=percent(row.coverage),
        interval=f"{percent(low)} – {percent(high)}",
        interval_path=plots.range_path(low, high, scale, y=plots.SLICE_HEIGHT / 2),
        promise_x=scale.to_pixels(promised),
        coverage_x=scale.to_pixels(row.coverage),
        is_too_low=is_too_low,
        mean_size=fixed(row.mean_size, size_decimals),
        p95_size=fixed(row.sizes.p95, size_decimals),
    )


def size_decimals(numbers: ReportNumbers) -> int:
    """Return the decimals of sizes: two for mean counts of labels, three digits for lengths.

    The digits are those of the mean size at the certified level, or at the first one above it
    where that is finite.
    """
    if numbers.n_classes is not None:
        return 2
    certified_and_later = numbers.levels[numbers.certified_position :]
    sizes = [level.mean_size for level in certified_and_later if level.mean_size is not None]
    first_finite = next((size for size in sizes if math.isfinite(size)), 0.0)
    return decimals_for([first_finite], digits=3)


# ---- sizes


def size_figure(numbers: ReportNumbers, rows: RowNumbers) -> SizeFigure:
    """Draw a histogram of set sizes with a line at the mean size.

    There is a bar for each bin of sizes, and a last one for all sets beyond the last edge. Its
    height is the share of the rows whose set has such a size.
    """
    edges = rows.sizes.edges
    counts = rows.sizes.counts.tolist()
    n_rows = rows.evaluation.n
    has_labels = numbers.n_classes is not None
    scale = Scale(float(edges[0]), float(edges[-1]), plots.LEFT, SIZE_AXIS_END)

    # 1. The bars. The axis of shares ends at a round number, above the highest bar.
    share_step = nice_step(max(counts) / n_rows, SHARE_STEPS)
    share_at_top = SHARE_STEPS * share_step
    heights = [count / n_rows / share_at_top for count in counts]
    bar_ends = [*scale.bar_ends(edges), BAR_OF_LARGER_SETS]

    # 2. The mean, which infinite sets may put beyond the last edge.
    mean = rows.evaluation.mean_size
    mean_x = MIDDLE_OF_BAR_OF_LARGER_SETS if mean > edges[-1] else scale.to_pixels(mean)
    mean_label = f"mean {fixed(mean, size_decimals(numbers))}"

    names = names_of_label_bins(edges) if has_labels else names_of_length_bins(edges)
    return SizeFigure(
        bars_path=plots.bars_path(bar_ends, heights),
        mean=Mark.with_label_inside(mean_x, mean_label),
        ticks=size_ticks(scale, whole_numbers=has_labels),
        share_ticks=share_ticks(share_step),
        bins=list(zip(names, counts, strict=True)),
    )


def size_ticks(scale: Scale, *, whole_numbers: bool) -> list[Tick]:
    """Put ticks on the axis of sizes whose labels end before the bar of larger sets."""
    ticks = []
    for tick in scale.ticks(6, whole_numbers=whole_numbers):
        label_end = tick.position + HALF_CHARACTER_WIDTH * len(tick.label)
        if label_end < SIZE_LABELS_END:
            ticks.append(tick)
    return ticks


def share_ticks(step: float) -> list[Tick]:
    """Put a tick at each step of the axis of shares: 0 %, 10 %, 20 % and so on."""
    scale = plots.vertical_scale(0, SHARE_STEPS)
    return [
        Tick(scale.to_pixels(k), f"{round(100 * k * step, 6):g}{NARROW_SPACE}%")
        for k in range(SHARE_STEPS + 1)
    ]


def names_of_length_bins(edges: Floats) -> list[str]:
    """Name bins of lengths: edges 0, 2, 4 -> "0 to 2", "2 to 4", "4 and more"."""
    names = [f"{number(low)} to {number(high)}" for low, high in pairwise(edges)]
    return [*names, f"{number(edges[-1])} and more"]


def names_of_label_bins(edges: Floats) -> list[str]:
    """Name bins of numbers of labels: edges 0.5, 1.5, 3.5 -> "1", "2 to 3", "4 and more"."""
    smallest_counts = [math.ceil(edge) for edge in edges]  # of labels in each bin
    names = []
    for smallest, smallest_in_next_bin in pairwise(smallest_counts):
        largest = smallest_in_next_bin - 1
        names.append(str(smallest) if smallest == largest else f"{smallest} to {largest}")
    return [*names, f"{smallest_counts[-1]} and more"]


# ---- levels


def gap_figure(numbers: ReportNumbers) -> CurveFigure | None:
    """Draw for each level alpha by how much coverage exceeds what is promised, 1 - alpha.

    This difference is called a gap, in percentage points: 1.5 if 91.5 % are covered and 90 % are
    promised. A band shows the gaps of the likely range of coverage, if that is known. None if
    coverage is not known at every level.
    """
    levels = numbers.levels
    alphas = [level.alpha for level in levels]
    gaps = [gap_in_points(level.alpha, coverage_of(level)) for level in levels]
    if any(math.isnan(gap) for gap in gaps):
        return None
    low_gaps = [gap_in_points(level.alpha, level.likely_low) for level in levels]
    high_gaps = [gap_in_points(level.alpha, level.likely_high) for level in levels]

    x_scale = Scale(0.0, alphas[-1])
    y_scale = gap_scale(alphas, [gaps, low_gaps, high_gaps])
    band_path = ""
    if not any(math.isnan(gap) for gap in [*low_gaps, *high_gaps]):
        band_path = plots.band_path(alphas, low_gaps, high_gaps, x_scale, y_scale)

    return CurveFigure(
        curve_path=plots.curve_path(alphas, gaps, x_scale, y_scale),
        second_path=band_path,
        ticks=y_scale.ticks(5),
        level_ticks=x_scale.ticks(6),
        certified_x=x_scale.to_pixels(numbers.certified.alpha),
        certified_y=y_scale.to_pixels(gaps[numbers.certified_position]),
        zero_y=y_scale.to_pixels(0.0),
    )


def gap_scale(alphas: Sequence[float], curves: Sequence[Sequence[float]]) -> Scale:
    """Return a vertical axis for curves of gaps, which have one value for each alpha.

    A gap is coverage minus 1 - alpha, in percentage points; at coverage 1 it is 100 * alpha. Such
    gaps are ignored, since they stand for an unknown upper end, and would make the axis very long:
    the curve may leave the picture there.
    """
    gaps_to_show = [-SMALLEST_GAP_SHOWN, SMALLEST_GAP_SHOWN]
    for curve in curves:
        for alpha, gap in zip(alphas, curve, strict=True):
            gap_at_full_coverage = 100 * alpha
            if gap < gap_at_full_coverage - ROUNDING_OF_GAPS:
                gaps_to_show.append(gap)

    lowest = min(gaps_to_show)
    highest = max(gaps_to_show)
    margin = GAP_AXIS_MARGIN * (highest - lowest)
    return plots.vertical_scale(lowest - margin, highest + margin)


def coverage_of(level: LevelNumbers) -> float | None:
    """Return the coverage of the rows of this page, or without any the expected one."""
    return level.expected_coverage if level.coverage is None else level.coverage


def gap_in_points(alpha: float, coverage: float | None) -> float:
    """Return coverage minus the promise, 1 - alpha, in percentage points; NaN if it is unknown."""
    return math.nan if coverage is None else 100 * (coverage - 1 + alpha)


def size_curve_figure(numbers: ReportNumbers) -> CurveFigure:
    """Draw the mean and the 95 % quantile of set sizes for each level alpha.

    Sizes that are infinite or unknown are left out.
    """
    alphas = [level.alpha for level in numbers.levels]
    mean_sizes = [nan_if_unknown(level.mean_size) for level in numbers.levels]
    p95_sizes = [nan_if_unknown(level.p95_size) for level in numbers.levels]

    # 1. The axes.
    finite_sizes = [size for size in mean_sizes + p95_sizes if math.isfinite(size)]
    largest = max(finite_sizes, default=0.0)
    largest_shown = (1 + SIZE_AXIS_MARGIN) * largest
    if largest_shown == 0:
        largest_shown = 1.0  # an axis cannot have no length
    x_scale = Scale(0.0, alphas[-1])
    y_scale = plots.vertical_scale(0, largest_shown)

    # 2. The curves, and a dot at the level that was certified.
    certified_size = mean_sizes[numbers.certified_position]
    certified_y = None
    if math.isfinite(certified_size):
        certified_y = y_scale.to_pixels(certified_size)
    return CurveFigure(
        curve_path=plots.curve_path(alphas, mean_sizes, x_scale, y_scale),
        second_path=plots.curve_path(alphas, p95_sizes, x_scale, y_scale),
        ticks=y_scale.ticks(5),
        level_ticks=x_scale.ticks(6),
        certified_x=x_scale.to_pixels(numbers.certified.alpha),
        certified_y=certified_y,
        zero_y=y_scale.to_pixels(0.0),
    )


def nan_if_unknown(size: float | None) -> float:
    """Return a size, or NaN where no rows were measured."""
    return math.nan if size is None else size


# ---- examples


def example_views(
    numbers: ReportNumbers, rows: RowNumbers, names: Sequence[str] | None
) -> tuple[list[ExampleView], list[Tick]]:
    """Prepare the example rows for the page; return them with the ticks of their common axis.

    Sets of labels are written and have no axis; intervals are drawn on one. `names` has the name of
    each row; without names an example goes by the number of its row.
    """
    examples = rows.examples
    ticks: list[Tick] = []
    set_views: list[LabelSetView | NumberSetView]
    if numbers.n_classes is not None:
        set_views = [label_set_view(example) for example in examples]
    else:
        scale = example_scale(examples)
        ticks = example_ticks(scale)
        set_views = [number_set_view(example, scale) for example in examples]

    views = [
        example_view(example, set_view, names)
        for example, set_view in zip(examples, set_views, strict=True)
    ]
    if have_one_size(examples):  # then "small", "typical" and "large" would mean nothing
        views = [replace(view, kind="same size") for view in views]
    return views, ticks


def example_view(
    example: Example, set_view: LabelSetView | NumberSetView, names: Sequence[str] | None
) -> ExampleView:
    """Put an example row into words for the page: its name, true value, prediction and outcome.

    `set_view` shows the prediction set of the row.
    """
    name = f"row {example.row + 1}" if names is None else shortened(names[example.row])
    are_labels = isinstance(set_view, LabelSetView)
    return ExampleView(
        kind=example.kind,
        name=name,
        truth=label(example.truth),
        prediction=label(example.prediction),
        set=set_view,
        size=words.example_size(example, is_labels=are_labels),
        outcome="covered" if example.is_covered else "missed",
    )


def label_set_view(example: Example) -> LabelSetView:
    """Show the most probable labels of a set, and count the others."""
    labels = [(label(value), value == example.truth) for value in example.labels]
    more = f"and {example.n_more} more" if example.n_more else ""
    if not example.size:
        more = "no label: the set is empty"
    return LabelSetView(labels, more)


def number_set_view(example: Example, scale: Scale) -> NumberSetView:
    """Write the pieces of a set of numbers, and draw them in the middle of a line."""
    y = plots.EXAMPLE_HEIGHT / 2
    paths = [plots.range_path(low, high, scale, y=y) for low, high in example.pieces]
    return NumberSetView(
        pieces=words.pieces(example),
        pieces_path="".join(paths),
        truth_x=scale.to_pixels(float(example.truth)),
    )


def have_one_size(examples: Sequence[Example]) -> bool:
    """Decide whether all examples have the same size, so that the choice of rows is arbitrary."""
    nine_digits = {f"{example.size:.9g}" for example in examples}
    return len(nine_digits) == 1


def example_scale(examples: Sequence[Example]) -> Scale:
    """Return an axis that shows the sets of all examples and their true values."""
    values = [float(example.truth) for example in examples]
    for example in examples:
        for low, high in example.pieces:
            values += [end for end in (low, high) if math.isfinite(end)]

    lowest = min(values)
    highest = max(values)
    margin = EXAMPLE_AXIS_MARGIN * (highest - lowest)
    if margin == 0:
        margin = 1.0  # an axis cannot have no length
    return Scale(
        low=lowest - margin,
        high=highest + margin,
        start=EXAMPLE_MARGIN,
        end=plots.EXAMPLE_WIDTH - EXAMPLE_MARGIN,
    )


def example_ticks(scale: Scale) -> list[Tick]:
    """Put ticks on the axis of the examples, but none where its label would leave the axis."""
    last_position = plots.EXAMPLE_WIDTH - LABEL_MARGIN
    return [tick for tick in scale.ticks(5) if LABEL_MARGIN < tick.position < last_position]
