"""The sentences of a report that depend on its numbers; the others are in the template."""

from __future__ import annotations

import math

from dco import Certificate, CertifiedThreshold, Evaluation
from dco.foundations.comparisons import size_in_words
from dco.foundations.display import counted, have, p_in_words
from dco.report.examples import Example
from dco.report.formats import (
    fixed,
    level_percent,
    number,
    percent,
    shortened,
    threshold_decimals,
    threshold_in_words,
)
from dco.report.numbers import ReportNumbers


def size_axis_name(numbers: ReportNumbers) -> str:
    """Name the axis of set sizes: labels, or lengths in the unit of the target."""
    if numbers.n_classes is not None:
        return "labels in the set"
    if numbers.rows is None or numbers.rows.target == "target":  # the target has no name
        return "length of the set"
    return f"length of the set, in units of {shortened(numbers.rows.target, 30)}"


def thresholds(certificate: Certificate) -> str:
    """Write the one threshold, or with conditions the smallest and the largest: "0.2 – 0.9"."""
    values = [threshold.value for threshold in certificate.thresholds]
    if len(values) == 1:
        return threshold_in_words(values[0])

    decimals = threshold_decimals(values)
    smallest = threshold_in_words(min(values), decimals=decimals)
    largest = threshold_in_words(max(values), decimals=decimals)
    return smallest if smallest == largest else f"{smallest} – {largest}"


def threshold_rank(certificate: Certificate) -> str:
    """Say which calibration score the one threshold is: "rank 181 of 200".

    Empty where the threshold is not the score of one rank, as with weighted rows.
    """
    (threshold,) = certificate.thresholds
    if threshold.rank is None:
        return ""
    rank = f"rank {threshold.rank} of {threshold.n}"
    if threshold.rank > threshold.n:
        return f"{rank} (there is none, so it is infinite)"
    return rank


def infinite_thresholds(certificate: Certificate) -> str:
    """Say that thresholds are infinite and their sets full, why, and what helps.

    Empty where every threshold is finite. Several thresholds belong to conditions, one to each.
    """
    thresholds = certificate.thresholds
    infinite = [threshold for threshold in thresholds if math.isinf(threshold.value)]
    if not infinite:
        return ""

    alpha = f"α = {certificate.alpha:g}"
    if len(thresholds) > 1:
        return (
            f"{len(infinite)} of {len(thresholds)} conditions have too few calibration rows for "
            f"{alpha}: their thresholds are infinite and their sets full."
        )

    (threshold,) = infinite
    sets_are_full = (
        f"The threshold at {alpha} is infinite and every set is full: valid, and useless."
    )
    is_score_of_a_row = threshold.rank is not None and threshold.rank <= threshold.n
    if is_score_of_a_row:
        return f"{sets_are_full} Too many calibration scores are infinite."
    remedy = "Take a level with a finite threshold (see Other levels), or calibrate on more rows."
    return f"{sets_are_full} {remedy}"


def coverage_law(numbers: ReportNumbers) -> str:
    """Say which distribution ("law") coverage has over draws of the calibration rows.

    It is known if a threshold is the calibration score of some rank, and follows from that rank.
    """
    thresholds = numbers.certificate.thresholds
    if all(threshold.rank is None for threshold in thresholds):
        return f"No law of coverage is known here: {numbers.why_no_law}."
    has_conditions = len(thresholds) > 1 or thresholds[0].group is not None
    if has_conditions:
        return (
            "Each condition has a law of its own: the bars are the ranges that hold coverage with "
            "probability 90 %."
        )

    (threshold,) = thresholds
    assert threshold.rank is not None
    if threshold.rank > threshold.n:  # a rank that no calibration row has
        return "The threshold is infinite, so every set is full and coverage is 1."
    return law_of_one_threshold(threshold, rank=threshold.rank)


def law_of_one_threshold(threshold: CertifiedThreshold, *, rank: int) -> str:
    """Say which Beta distribution coverage has, with its mean and its 90 % range.

    If the threshold is the score of rank r among n calibration scores, coverage follows
    Beta(r, n + 1 - r). Where some scores are equal, coverage may be higher than that.
    """
    draw = f"Over the draw of {threshold.n} calibration rows"
    law = f"Beta({rank}, {threshold.n + 1 - rank})"
    mean = f"mean {percent(threshold.expected_coverage)}"
    usual_range = f"90 % of the time {coverage_range(threshold)}"
    if threshold.expected_is_exact:
        return f"{draw}, coverage is {law}: {mean}, {usual_range}."

    ties = "Some calibration scores are equal, which can only raise coverage."
    return f"{draw}, coverage is at least as high as {law}: {mean}, {usual_range}. {ties}"


def expected_coverage(threshold: CertifiedThreshold) -> str:
    """Write the expected coverage of a threshold: "90.5 %", or "≥ 90.5 %" where scores are tied."""
    if threshold.expected_coverage is None:
        return "–"
    coverage = percent(threshold.expected_coverage)
    return coverage if threshold.expected_is_exact else f"≥ {coverage}"


def coverage_range(threshold: CertifiedThreshold) -> str:
    """Write the range that holds the coverage of a threshold with probability 90 %.

    Without an upper end, where scores are tied: "≥ 86.2 %".
    """
    if threshold.coverage_low is None:
        return "–"
    if threshold.coverage_high is None:
        return f"≥ {percent(threshold.coverage_low)}"
    return f"{percent(threshold.coverage_low)} – {percent(threshold.coverage_high)}"


def coverage_test(evaluation: Evaluation) -> str:
    """Say whether the coverage of the rows is what the calibration lets one expect.

    Empty where nothing can be expected, since the distribution of coverage is not known.
    """
    test = evaluation.consistency
    if test is None:
        return ""

    threshold_is_infinite = test.rank > test.n_cal
    if threshold_is_infinite:
        sets_are_full = "Every set is full: no known value can be missed"
        return f"{sets_are_full}; {test.verdict}." if test.unknown_labels else f"{sets_are_full}."

    expected_range = f"between {percent(test.low)} and {percent(test.high)}"
    if test.tied:  # where calibration scores are equal, only the lower end is known
        expected_range = f"above {percent(test.low)}"
    expectation = (
        f"If the promise holds, coverage of {test.n_test} rows lies {expected_range} nine times in "
        "ten."
    )
    result = f"{percent(test.coverage)} ({p_in_words(test.p_value)}; {test.verdict})"
    return f"{expectation} Observed: {result}."


def size_facts(numbers: ReportNumbers) -> list[tuple[str, str]]:
    """List facts about the sizes of the sets for a table: ("mean size", "2.31") and so on.

    Averages come first, then the shares of special sets (empty ones, say) if there are any.
    """
    assert numbers.evaluation is not None  # the page has this table only with rows
    sizes = numbers.evaluation.overall.sizes

    # 1. Averages.
    facts = [
        ("mean size", number(sizes.mean)),
        ("median size", number(sizes.median)),
        ("P95 size: 95 % of the sets are no larger", number(sizes.p95)),
    ]
    if 0 < sizes.infinite < 1:
        facts.append(("mean of the finite sizes", number(sizes.mean_finite)))

    # 2. Shares of special sets. Only sets of labels can hold one label.
    are_labels = sizes.one_label is not None
    everything = "all labels" if are_labels else "the whole line"
    shares = {
        "sets that are empty": sizes.empty,
        "sets that hold one label": sizes.one_label or 0.0,
        f"sets that hold {everything}": sizes.full,
        "sets that are infinite": sizes.infinite,
    }
    for name, share in shares.items():
        if share > 0:
            facts.append((name, percent(share)))
    return facts


def unknown_labels(evaluation: Evaluation) -> str:
    """Count the rows whose label no set can hold; empty where there are none."""
    n = evaluation.overall.unknown_labels
    if n == 0:
        return ""
    labels = "a label" if n == 1 else "labels"
    return (
        f"{counted(n, 'row')} {have(n)} {labels} that the fit does not know: no set can hold such "
        f"a label, so each is a miss."
    )


def size_without_model(numbers: ReportNumbers) -> str:
    """Compare the mean set with one that looks at no feature: all labels, or most targets."""
    assert numbers.rows is not None
    mean_size = numbers.rows.evaluation.mean_size
    if numbers.n_classes is not None:
        return f"The mean set holds {fixed(mean_size, 2)} of {numbers.n_classes} labels."

    length = numbers.rows.typical_range or 0.0
    return size_in_words(mean_size, length, alpha=numbers.certificate.alpha, number=number)


def pieces(example: Example) -> str:
    """Write a set of numbers by the ends of its pieces: "1 to 2 or 4 to 5 and 3 more pieces"."""
    if not example.pieces:
        return "no value: the set is empty"
    if example.pieces == ((-math.inf, math.inf),):
        return "every number"
    listed = " or ".join(f"{number(low)} to {number(high)}" for low, high in example.pieces)
    return f"{listed} and {example.n_more} more pieces" if example.n_more else listed


def example_size(example: Example, *, is_labels: bool) -> str:
    """Write the size of one set: "2 labels" or "length 3.5"."""
    if is_labels:
        return counted(round(example.size), "label")
    return f"length {number(example.size)}"


def promise_of_slices(certificate: Certificate, *, are_conditions: bool) -> str:
    """Say what the guarantee promises about the slices in a table, which are parts of the rows.

    It is about all rows together, or about each condition (rows with a threshold of their own).
    `are_conditions` says that these slices are the conditions.
    """
    if certificate.guarantee == "none":
        return "Nothing is guaranteed."
    if all(threshold.group is None for threshold in certificate.thresholds):
        return "The guarantee is for all rows together and promises nothing about a single slice."
    if are_conditions:
        return "These slices are the conditions: the guarantee holds in each of them."
    return (
        "The guarantee is for the conditions, which have their own thresholds, and promises "
        "nothing about these slices."
    )


def validity_of_other_levels(numbers: ReportNumbers) -> str:
    """Warn that the guarantee does not hold at a level that is picked after a look at the results.

    What holds there, if anything, is the simultaneous bound: a lower bound of coverage that holds
    at all levels at once.
    """
    if numbers.certificate.guarantee == "none":
        return "Nothing is guaranteed, at this or any other level."
    evaluation = numbers.evaluation
    if evaluation is not None and evaluation.verdict == "failed":
        return (
            "These rows are not like the calibration rows: for rows like these no bound holds, at "
            "this or any other level."
        )

    guarantee = "The guarantee is for a level that was fixed beforehand."
    picked_level = "For a level picked by its result on this page"
    if numbers.certified.simultaneous_bound is None:
        return f"{guarantee} {picked_level} no bound is known here."
    return f"{guarantee} {picked_level} only the simultaneous bound holds."


def control_label(numbers: ReportNumbers) -> str:
    """Name the certified level for a screen reader, which the control of levels announces."""
    level = numbers.certified
    return f"alpha {level.alpha:g}, promised coverage {level_percent(level.alpha)}"
