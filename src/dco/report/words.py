"""Numbers of the report in words: how shares, sizes, ranks and laws are written."""

from __future__ import annotations

import math
from typing import Any

from dco.guarantees.facts import CertifiedThreshold
from dco.report.numbers import LevelNumbers, ReportNumbers, decimals_for, fixed, number

LONGEST_LABEL = 60


def percent(share: float | None, digits: int = 1) -> str:
    """A share in per cent; a share that is not 1 is never written as 100 %."""
    if share is None or math.isnan(share):
        return "–"
    value = round(100 * share, digits)
    if value >= 100 and share < 1:
        value = 100 - 10.0**-digits
    if value <= 0 and share > 0:
        value = 10.0**-digits
    return f"{value:.{digits}f}\u202f%"


def level_percent(alpha: float) -> str:
    """1 - alpha in per cent, with the digits that tell it from 100."""
    places = max(4, -math.floor(math.log10(alpha)))
    return f"{100 * (1 - alpha):.{places}f}".rstrip("0").rstrip(".") + "\u202f%"


def shortened(text: Any, longest: int = LONGEST_LABEL) -> str:
    """Hostile text cut to a length that a table can hold."""
    words = str(text)
    return words if len(words) <= longest else words[: longest - 1] + "…"


def size_decimals(numbers: ReportNumbers) -> int:
    """Decimals of all sizes: two for mean counts of labels; three digits for a length at the certified level."""
    if numbers.classes is not None:
        return 2
    seen = [level.evaluation.mean_size for level in numbers.levels[numbers.start :] if level.evaluation is not None]
    return decimals_for([next((size for size in seen if math.isfinite(size)), 0.0)], 3)


def size_words(size: float, classes: int | None) -> str:
    """A set's size with its unit."""
    if classes is None:
        return "length " + number(size)
    return f"{size:.0f} label{'' if size == 1 else 's'}"


def threshold_words(level: LevelNumbers) -> str:
    """The threshold, or the smallest and the largest of those of the groups."""
    if level.threshold is not None:
        return number(level.threshold.value)
    values = [entry.value for entry in level.thresholds]
    return f"{number(min(values))} – {number(max(values))}"


def rank_words(level: LevelNumbers) -> str:
    """The rank in a sentence."""
    entry = level.threshold
    if entry is None:
        return f"one for each of {len(level.thresholds)} groups"
    if entry.rank is None:
        return f"weighted over {entry.n} groups of rows"
    if entry.rank > entry.n:
        return f"rank {entry.rank} of {entry.n} (there is none, so it is infinite)"
    return f"rank {entry.rank} of {entry.n}"


def place_words(level: LevelNumbers) -> str:
    """The rank in a table."""
    entry = level.threshold
    return "–" if entry is None or entry.rank is None else f"{entry.rank} of {entry.n}"


def expected_words(entry: CertifiedThreshold | None) -> str:
    """Expected coverage; a lower bound where scores are tied."""
    if entry is None or entry.expected_coverage is None:
        return "–"
    return ("" if entry.expected_is_exact else "≥ ") + percent(entry.expected_coverage)


def range_words(entry: CertifiedThreshold | None) -> str:
    """The 5 % and 95 % points of coverage."""
    if entry is None or entry.coverage_low is None:
        return "–"
    if entry.coverage_high is None:
        return f"≥ {percent(entry.coverage_low)}"
    return f"{percent(entry.coverage_low)} – {percent(entry.coverage_high)}"


def groups_words(numbers: ReportNumbers) -> str:
    """What the guarantee says about the groups of the table."""
    if numbers.certificate.guarantee == "none":
        return "Nothing is guaranteed."
    if numbers.levels[numbers.start].threshold is not None:
        return "The guarantee is for all rows together and promises nothing about a single group."
    if numbers.by_conditions:
        return "The guarantee holds in each of these groups, which have thresholds of their own."
    return "The guarantee is for the groups that have thresholds, and promises nothing about these."


def law_words(level: LevelNumbers) -> str:
    """What is known of coverage before any row is seen."""
    entry = level.threshold
    if entry is None:
        return "Each group has a law of its own: the bars are the ranges that hold coverage with probability 90 %."
    if entry.rank is None:
        return "Rows come in groups: the promise holds, but no exact law of coverage is known."
    if entry.rank > entry.n:
        return "The threshold is infinite, so every set is full and coverage is 1."
    at_least = "" if entry.expected_is_exact else "at least as high as "
    tail = "" if entry.expected_is_exact else " Some calibration scores are equal, which can only raise coverage."
    return (
        f"Over the draw of {entry.n} calibration rows, coverage is {at_least}"
        f"Beta({entry.rank}, {entry.n + 1 - entry.rank}): "
        f"mean {percent(entry.expected_coverage)}, 90 % of the time {range_words(entry)}.{tail}"
    )


def output_words(level: LevelNumbers, numbers: ReportNumbers) -> str:
    """What the control announces."""
    own = "the certified level" if level is numbers.levels[numbers.start] else "another level"
    words = f"α = {level.alpha:g} ({own}): promised coverage {level_percent(level.alpha)}"
    if level.evaluation is None:
        return f"{words}, threshold {threshold_words(level)}, {rank_words(level)}."
    seen = level.evaluation
    size = fixed(seen.mean_size, size_decimals(numbers))
    return f"{words}, {percent(seen.coverage)} of {seen.n} rows covered, mean set size {size}."


def share_words(level: LevelNumbers, numbers: ReportNumbers) -> str:
    """Shares of empty, full and infinite sets, and rows that no set can cover."""
    seen = level.evaluation
    assert seen is not None
    full = "all labels" if numbers.classes is not None else "the whole line"
    words = f"{percent(seen.empty)} of the sets are empty, {percent(seen.full)} hold {full}."
    if 0 < seen.infinite < 1:
        words += f" {percent(seen.infinite)} are infinite; the mean over the others is {number(seen.mean_finite_size)}."
    if seen.unknown_labels:
        rows = "1 row has a label" if seen.unknown_labels == 1 else f"{seen.unknown_labels} rows have labels"
        words += f" {rows} that the fit does not know, against its assumption: no set can hold them."
    return words


def verdict_words(level: LevelNumbers) -> str:
    """Whether the coverage that was seen agrees with its law."""
    assert level.evaluation is not None
    found = level.evaluation.consistency
    if found is None:
        return ""
    if found.rank > found.n_cal:
        seen = f"; {found.verdict}" if found.unknown_labels else ""
        return f"Every set is full: no known value can be missed{seen}."
    high = f"between {percent(found.low)} and {percent(found.high)}" if not found.tied else f"above {percent(found.low)}"
    return (
        f"In {found.n_test} rows, 90 % of the time the share covered lies {high}. "
        f"Seen: {percent(found.coverage)} (p = {found.p_value:.2g}; {found.verdict})."
    )


def infinite_words(level: LevelNumbers) -> str | None:
    """A warning where a threshold is infinite for want of calibration rows."""
    short = [entry for entry in level.thresholds if math.isinf(entry.value)]
    if not short:
        return None
    if level.threshold is not None:
        unit = "rows" if short[0].rank is not None else "groups of rows"
        return (
            f"{short[0].n} calibration {unit} are too few for α = {level.alpha:g}: the threshold is infinite and every set "
            "is full. That is valid, and useless. Move the control to a level with a finite threshold, or calibrate on more "
            "rows."
        )
    return (
        f"{len(short)} of {len(level.thresholds)} groups have too few calibration rows for α = {level.alpha:g}: their "
        "thresholds are infinite and their sets full."
    )


def rest_words(size: float, more: int) -> str:
    """What follows the labels of a set that are named."""
    if size == 0:
        return "no label: the set is empty"
    return f"and {more} more" if more else ""


def pieces_words(pieces: tuple[tuple[float, float], ...], more: int) -> str:
    """A set of numbers by the ends of its pieces."""
    if not pieces:
        return "no value: the set is empty"
    if pieces == ((-math.inf, math.inf),):
        return "every number"
    words = " or ".join(f"{number(low)} to {number(high)}" for low, high in pieces)
    return f"{words} and {more} more pieces" if more else words
