"""What the report says at each level; sentences that do not change are in the template."""

from __future__ import annotations

import math

from dco.calibration.facts import CertifiedThreshold
from dco.evaluation.evaluation import Evaluation
from dco.foundations.comparisons import middle_range, size_in_words
from dco.foundations.display import counted, have, p_in_words
from dco.report.formats import decimals_for, fixed, level_percent, number, percent, shortened
from dco.report.numbers import ExampleSet, LevelNumbers, ReportNumbers
from dco.scores.thresholds import LOWEST_SCORE


def size_decimals(numbers: ReportNumbers) -> int:
    """Decimals of all sizes: two for mean counts of labels; three digits for a length at the
    certified level.
    """
    if numbers.classes is not None:
        return 2
    seen = [
        level.evaluation.mean_size
        for level in numbers.levels[numbers.start :]
        if level.evaluation is not None
    ]
    return decimals_for([next((size for size in seen if math.isfinite(size)), 0.0)], 3)


def size_name(numbers: ReportNumbers) -> str:
    """What the axis of sizes counts, in the unit of the target."""
    if numbers.classes is not None:
        return "labels in the set"
    target = "" if numbers.rows is None else shortened(numbers.rows.target, 30)
    return "length of the set" + (f", in units of {target}" if target not in ("", "target") else "")


def threshold(level: LevelNumbers) -> str:
    """The threshold, or the smallest and the largest of those of the conditions."""
    if level.threshold is not None:
        return "lowest" if level.threshold.value == LOWEST_SCORE else number(level.threshold.value)
    values = [entry.value for entry in level.thresholds]
    return f"{number(min(values))} – {number(max(values))}"


def rank(level: LevelNumbers, numbers: ReportNumbers) -> str:
    """The rank in a sentence."""
    entry = level.threshold
    if entry is None:
        overlap = numbers.certificate.calibration.groups_overlap
        of = "combinations of groups" if overlap else "conditions"
        return f"one for each of {len(level.thresholds)} {of}"
    origin = numbers.certificate.calibration.origin(entry)
    is_beyond_all = entry.rank is not None and entry.rank > entry.n
    return f"{origin} (there is none, so it is infinite)" if is_beyond_all else origin


def expected(entry: CertifiedThreshold | None) -> str:
    """Expected coverage; a lower bound where scores are tied."""
    if entry is None or entry.expected_coverage is None:
        return "–"
    return ("" if entry.expected_is_exact else "≥ ") + percent(entry.expected_coverage)


def spread(entry: CertifiedThreshold | None) -> str:
    """The 5 % and 95 % points of coverage."""
    if entry is None or entry.coverage_low is None:
        return "–"
    if entry.coverage_high is None:
        return f"≥ {percent(entry.coverage_low)}"
    return f"{percent(entry.coverage_low)} – {percent(entry.coverage_high)}"


def law(level: LevelNumbers, numbers: ReportNumbers) -> str:
    """What is known of coverage before any row is seen."""
    entry = level.threshold
    no_law = numbers.certificate.calibration.no_law
    if no_law is not None:
        return no_law
    if entry is None:
        return (
            "Each condition has a law of its own: the bars are the ranges that hold coverage "
            "with probability 90 %."
        )
    assert entry.rank is not None
    if entry.rank > entry.n:
        return "The threshold is infinite, so every set is full and coverage is 1."
    at_least = "" if entry.expected_is_exact else "at least as high as "
    tail = (
        ""
        if entry.expected_is_exact
        else " Some calibration scores are equal, which can only raise coverage."
    )
    return (
        f"Over the draw of {entry.n} calibration rows, coverage is {at_least}"
        f"Beta({entry.rank}, {entry.n + 1 - entry.rank}): "
        f"mean {percent(entry.expected_coverage)}, 90 % of the time {spread(entry)}.{tail}"
    )


def announced(level: LevelNumbers, numbers: ReportNumbers) -> str:
    """What the control announces."""
    own = "the certified level" if level is numbers.own else "another level"
    words = f"α = {level.alpha:g} ({own}): promised coverage {level_percent(level.alpha)}"
    if level.evaluation is None:
        return f"{words}, threshold {threshold(level)}, {rank(level, numbers)}."
    seen = level.evaluation
    size = fixed(seen.mean_size, size_decimals(numbers))
    return f"{words}, {percent(seen.coverage)} of {seen.n} rows covered, mean set size {size}."


def shares(seen: Evaluation) -> str:
    """Shares of empty, full and infinite sets, and rows that no set can cover."""
    sizes = seen.overall.sizes
    unknown = seen.overall.unknown_labels
    full = "the whole line" if sizes.one_label is None else "all labels"
    told = [
        (sizes.empty, "are empty"),
        (sizes.one_label or 0, "hold one label"),
        (sizes.full, f"hold {full}"),
    ]
    if sizes.infinite < 1:
        told.append(
            (
                sizes.infinite,
                f"are infinite (the mean over the others is {number(sizes.mean_finite)})",
            )
        )
    found = [f"{percent(share)} {what}" for share, what in told if share > 0]
    words = f"Of the sets, {', '.join(found)}." if found else ""
    if unknown:
        labels = "a label" if unknown == 1 else "labels"
        rows = f"{counted(unknown, 'row')} {have(unknown)} {labels}"
        words += (
            f" {rows} that the fit does not know: no set can hold such a label, so each is a miss."
        )
    return words


def against_targets(level: LevelNumbers, numbers: ReportNumbers) -> str:
    """The mean size beside what a set would be without a model: the middle 1 - alpha of the
    targets, or all labels.
    """
    assert level.evaluation is not None
    mean = level.evaluation.mean_size
    if numbers.classes is not None:
        return f"The mean set holds {fixed(mean, 2)} of {numbers.classes} labels."
    span = 0.0 if numbers.rows is None else middle_range(numbers.rows.y, alpha=level.alpha)
    return size_in_words(mean, span, alpha=level.alpha, number=number)


def verdict(evaluation: Evaluation) -> str:
    """Whether the coverage that was seen agrees with its law."""
    found = evaluation.overall.consistency
    if found is None:
        return ""
    if found.rank > found.n_cal:
        seen = f"; {found.verdict}" if found.unknown_labels else ""
        return f"Every set is full: no known value can be missed{seen}."
    high = (
        f"between {percent(found.low)} and {percent(found.high)}"
        if not found.tied
        else f"above {percent(found.low)}"
    )
    return (
        f"If the promise holds, coverage of {found.n_test} rows lies {high} nine times in ten. "
        f"Seen: {percent(found.coverage)} ({p_in_words(found.p_value)}; {found.verdict})."
    )


def pieces(found: ExampleSet) -> str:
    """A set of numbers by the ends of its pieces."""
    if not found.pieces:
        return "no value: the set is empty"
    if found.pieces == ((-math.inf, math.inf),):
        return "every number"
    words = " or ".join(f"{number(low)} to {number(high)}" for low, high in found.pieces)
    return f"{words} and {found.more} more pieces" if found.more else words
