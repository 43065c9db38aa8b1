"""The sentences of a report that depend on its numbers; the others are in the template."""

from __future__ import annotations

import math

from dco import Certificate, Evaluation
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


def size_name(numbers: ReportNumbers) -> str:
    """Name the axis of sizes, in the unit of the target."""
    if numbers.n_classes is not None:
        return "labels in the set"
    target = "target" if numbers.rows is None else shortened(numbers.rows.target, 30)
    return "length of the set" if target == "target" else f"length of the set, in units of {target}"


def thresholds(certificate: Certificate) -> str:
    """Write the one threshold, or the smallest and the largest of those of the conditions."""
    values = [threshold.value for threshold in certificate.thresholds]
    if len(values) == 1:
        return threshold_in_words(values[0])

    decimals = threshold_decimals(values)
    smallest = threshold_in_words(min(values), decimals=decimals)
    largest = threshold_in_words(max(values), decimals=decimals)
    return smallest if smallest == largest else f"{smallest} – {largest}"


def rank(certificate: Certificate) -> str:
    """Say which calibration score the one threshold is; empty where it is none."""
    (threshold,) = certificate.thresholds
    if threshold.rank is None:
        return ""
    if threshold.rank > threshold.n:
        return f"rank {threshold.rank} of {threshold.n} (there is none, so it is infinite)"
    return f"rank {threshold.rank} of {threshold.n}"


def infinite_thresholds(certificate: Certificate) -> str:
    """Say that sets are full, and what helps; empty where every threshold is finite."""
    infinite = [threshold for threshold in certificate.thresholds if math.isinf(threshold.value)]
    if not infinite:
        return ""

    alpha = f"α = {certificate.alpha:g}"
    if len(certificate.thresholds) > 1:
        return (
            f"{len(infinite)} of {len(certificate.thresholds)} conditions have too few calibration "
            f"rows for {alpha}: their thresholds are infinite and their sets full."
        )
    (threshold,) = infinite
    full = f"The threshold at {alpha} is infinite and every set is full: valid, and useless."
    if threshold.rank is not None and threshold.rank <= threshold.n:
        return f"{full} Too many calibration scores are infinite."
    return (
        f"{full} Take a level with a finite threshold (see Other levels), or calibrate on more "
        f"rows."
    )


def law(numbers: ReportNumbers) -> str:
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
    distribution = f"Beta({threshold.rank}, {threshold.n + 1 - threshold.rank})"
    facts = f"mean {percent(threshold.expected_coverage)}, 90 % of the time {spread(numbers)}"
    if threshold.expected_is_exact:
        return (
            f"Over the draw of {threshold.n} calibration rows, coverage is {distribution}: {facts}."
        )
    return (
        f"Over the draw of {threshold.n} calibration rows, coverage is at least as high as "
        f"{distribution}: {facts}. Some calibration scores are equal, which can only raise "
        f"coverage."
    )


def expected(numbers: ReportNumbers, position: int = 0) -> str:
    """Write the expected coverage of a threshold; a lower bound where scores are tied."""
    threshold = numbers.certificate.thresholds[position]
    if threshold.expected_coverage is None:
        return "–"
    coverage = percent(threshold.expected_coverage)
    return coverage if threshold.expected_is_exact else f"≥ {coverage}"


def spread(numbers: ReportNumbers, position: int = 0) -> str:
    """Write the 5 % and 95 % points of the coverage of a threshold."""
    threshold = numbers.certificate.thresholds[position]
    if threshold.coverage_low is None:
        return "–"
    if threshold.coverage_high is None:
        return f"≥ {percent(threshold.coverage_low)}"
    return f"{percent(threshold.coverage_low)} – {percent(threshold.coverage_high)}"


def coverage_test(evaluation: Evaluation) -> str:
    """Say whether the coverage of all rows agrees with its law; empty where there is none."""
    test = evaluation.consistency
    if test is None:
        return ""
    if test.rank > test.n_cal:
        unknown = f"; {test.verdict}" if test.unknown_labels else ""
        return f"Every set is full: no known value can be missed{unknown}."

    usual = f"above {percent(test.low)}"
    if not test.tied:
        usual = f"between {percent(test.low)} and {percent(test.high)}"
    return (
        f"If the promise holds, coverage of {test.n_test} rows lies {usual} nine times in ten. "
        f"Observed: {percent(test.coverage)} ({p_in_words(test.p_value)}; {test.verdict})."
    )


def size_facts(numbers: ReportNumbers) -> list[tuple[str, str]]:
    """Return the rows of the table of sizes: averages, then the share of each kind of set."""
    assert numbers.evaluation is not None
    sizes = numbers.evaluation.overall.sizes
    facts = [
        ("mean size", number(sizes.mean)),
        ("median size", number(sizes.median)),
        ("P95 size: 95 % of the sets are no larger", number(sizes.p95)),
    ]
    if 0 < sizes.infinite < 1:
        facts.append(("mean of the finite sizes", number(sizes.mean_finite)))

    full = "the whole line" if sizes.one_label is None else "all labels"
    shares = {
        "sets that are empty": sizes.empty,
        "sets that hold one label": sizes.one_label or 0.0,
        f"sets that hold {full}": sizes.full,
        "sets that are infinite": sizes.infinite,
    }
    for name, share in shares.items():
        if share > 0:
            facts.append((name, percent(share)))
    return facts


def unknown_labels(evaluation: Evaluation) -> str:
    """Count rows that no set can cover; empty where there are none."""
    n = evaluation.overall.unknown_labels
    if n == 0:
        return ""
    labels = "a label" if n == 1 else "labels"
    return (
        f"{counted(n, 'row')} {have(n)} {labels} that the fit does not know: no set can hold such "
        f"a label, so each is a miss."
    )


def against_targets(numbers: ReportNumbers) -> str:
    """Compare the mean size with what a set would be without a model."""
    assert numbers.rows is not None
    mean_size = numbers.rows.evaluation.mean_size
    if numbers.n_classes is not None:
        return f"The mean set holds {fixed(mean_size, 2)} of {numbers.n_classes} labels."

    length = numbers.rows.typical_range or 0.0
    return size_in_words(mean_size, length, alpha=numbers.certificate.alpha, number=number)


def pieces(example: Example) -> str:
    """Write a set of numbers by the ends of its pieces."""
    if not example.pieces:
        return "no value: the set is empty"
    if example.pieces == ((-math.inf, math.inf),):
        return "every number"
    listed = " or ".join(f"{number(low)} to {number(high)}" for low, high in example.pieces)
    return f"{listed} and {example.n_more} more pieces" if example.n_more else listed


def example_size(example: Example, *, is_labels: bool) -> str:
    """Write the size of one set."""
    if is_labels:
        return counted(round(example.size), "label")
    return f"length {number(example.size)}"


def promise_of_slices(certificate: Certificate, *, are_conditions: bool) -> str:
    """Say what the guarantee promises about the slices of a table."""
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


def about_other_levels(numbers: ReportNumbers) -> str:
    """Say what holds for a level that is picked by its result."""
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
    """Say what the control announces at the level that was certified."""
    level = numbers.certified
    return f"alpha {level.alpha:g}, promised coverage {level_percent(level.alpha)}"
