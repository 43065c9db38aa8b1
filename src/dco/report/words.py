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

    Empty where every threshold is finite.
    """
    infinite = [threshold for threshold in certificate.thresholds if math.isinf(threshold.value)]
    if not infinite:
        return ""

    alpha = f"α = {certificate.alpha:g}"
    n_thresholds = len(certificate.thresholds)
    if n_thresholds > 1:
        return (
            f"{len(infinite)} of {n_thresholds} conditions have too few calibration rows for "
            f"{alpha}: their thresholds are infinite and their sets full."
        )

    (threshold,) = infinite
    sets_are_full = (
        f"The threshold at {alpha} is infinite and every set is full: valid, and useless."
    )
    if threshold.rank is not None and threshold.rank <= threshold.n:
        return f"{sets_are_full} Too many calibration scores are infinite."
    remedy = "Take a level with a finite threshold (see Other levels), or calibrate on more rows."
    return f"{sets_are_full} {remedy}"


def coverage_law(numbers: ReportNumbers) -> str:
    """Say what is known of coverage before any new row is seen."""
    certified = numbers.certificate.thresholds
    if all(threshold.rank is None for threshold in certified):
        return f"No law of coverage is known here: {numbers.no_law}."
    if len(certified) > 1 or certified[0].group is not None:
        return (
            "Each condition has a law of its own: the bars are the ranges that hold coverage with "
            "probability 90 %."
        )

    (threshold,) = certified
    assert threshold.rank is not None
    if threshold.rank > threshold.n:
        return "The threshold is infinite, so every set is full and coverage is 1."
    return law_of_one_threshold(threshold, rank=threshold.rank)


def law_of_one_threshold(threshold: CertifiedThreshold, *, rank: int) -> str:
    """Say which Beta law coverage has, with its mean and its 90 % range.

    Where calibration scores are tied, coverage may be higher than the law says.
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
    """Say whether the coverage of the rows agrees with its law; empty where no law is known."""
    test = evaluation.consistency
    if test is None:
        return ""
    if test.rank > test.n_cal:  # the threshold is infinite
        if test.unknown_labels:
            return f"Every set is full: no known value can be missed; {test.verdict}."
        return "Every set is full: no known value can be missed."

    usual = f"between {percent(test.low)} and {percent(test.high)}"
    if test.tied:  # the law has no upper end
        usual = f"above {percent(test.low)}"
    promise = (
        f"If the promise holds, coverage of {test.n_test} rows lies {usual} nine times in ten."
    )
    result = f"{percent(test.coverage)} ({p_in_words(test.p_value)}; {test.verdict})"
    return f"{promise} Observed: {result}."


def size_facts(numbers: ReportNumbers) -> list[tuple[str, str]]:
    """Return the table of set sizes as (name, value): averages, then shares of unusual sets.

    A kind of set that does not occur is left out.
    """
    assert numbers.evaluation is not None
    sizes = numbers.evaluation.overall.sizes
    facts = [
        ("mean size", number(sizes.mean)),
        ("median size", number(sizes.median)),
        ("P95 size: 95 % of the sets are no larger", number(sizes.p95)),
    ]
    if 0 < sizes.infinite < 1:
        facts.append(("mean of the finite sizes", number(sizes.mean_finite)))

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
    """Say what the guarantee promises about the slices of a table.

    It holds in each condition (rows with a threshold of their own), but in no other slice.
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
    """Say what is guaranteed at a level that the reader picks on the page, by its result.

    A bound for such a level, where one is known, is one that holds at all levels at once.
    """
    if numbers.certificate.guarantee == "none":
        return "Nothing is guaranteed, at this or any other level."
    evaluation = numbers.evaluation
    if evaluation is not None and evaluation.verdict == "failed":
        return (
            "These rows are not like the calibration rows: for rows like these no bound holds, at "
            "this or any other level."
        )
    if numbers.certified.picked_bound is None:
        return (
            "The guarantee is for a level that was fixed beforehand. For a level picked by its "
            "result on this page no bound is known here."
        )
    return (
        "The guarantee is for a level that was fixed beforehand. For a level picked by its result "
        "on this page only the simultaneous bound holds."
    )


def control_label(numbers: ReportNumbers) -> str:
    """Name the certified level for a screen reader, which the control of levels announces."""
    level = numbers.certified
    return f"alpha {level.alpha:g}, promised coverage {level_percent(level.alpha)}"
