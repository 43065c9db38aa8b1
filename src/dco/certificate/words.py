"""The words of a certificate, made from its facts: for terminal, page and JSON alike."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dco.calibration.rules.rule import RULES
from dco.foundations.display import counted
from dco.foundations.files import plain
from dco.foundations.ranks import as_rational
from dco.scores.thresholds import LOWEST_SCORE

if TYPE_CHECKING:
    from dco.certificate.certificate import Certificate
    from dco.certificate.facts import CertifiedThreshold


def words(facts: Certificate) -> dict[str, str]:
    """The statement and the assumption that the facts give."""
    return {"statement": _statement(facts), "assumption": _assumption(facts)}


def _statement(facts: Certificate) -> str:
    """The guarantee in one plain sentence."""
    if facts.reason is not None:
        return f"Nothing is guaranteed: {facts.reason}."
    rule = RULES[facts.rule]
    # rows not yet seen are not like these: what is rare is seen late
    like = " drawn like the distinct rows given here"
    who, many = ("a row" + like, "rows" + like) if facts.distinct else ("a new row", "new rows")
    # a group weighs the same whatever its size, so this is not a share of all rows
    if facts.grouped:
        group = "new group" + (f" of rows{like}" if facts.distinct else "")
        who, many = (
            f"a row picked at random from a {group}",
            f"rows picked at random, one from each {group}",
        )
    where = ""
    if any(entry.group is not None for entry in facts.thresholds):
        where = ", whichever of the groups it belongs to"
        if facts.groups:
            where = (
                f", given that it belongs to any one of {len(facts.groups)} groups, which overlap"
            )
        if rule.needs_delta:
            where = ", in each group separately"
    sure = "" if facts.delta is None else _all_but(as_rational(facts.delta, name="delta"))
    text = rule.sentence.format(
        level=_all_but(as_rational(facts.alpha)), sure=sure, who=who, many=many, where=where
    )
    return text if facts.weights is None else text.removesuffix(".") + ", given the stated weights."


def _all_but(level: Fraction) -> str:
    """1 - level in percent, rounded down: four places, or three figures of a level that these would
    not show.
    """
    places = max(4, -math.floor(math.log10(level)))
    whole, rest = divmod(math.floor(100 * (1 - level) * 10**places), 10**places)
    return f"{whole}.{rest:0{places}d}".rstrip("0").rstrip(".") + " %"


def _assumption(facts: Certificate) -> str:
    """What must be true of the rows for the statement to hold.

    Full sets hold known labels only, so labels must be known whatever the threshold: the mean over
    calibrations counts infinite thresholds as coverage of every row.
    """
    unit = "groups of rows" if facts.grouped else "rows"
    how = (
        "exchangeable"
        if RULES[facts.rule].exchangeable
        else "independent and identically distributed"
    )
    text = f"Calibration {unit} and the new one are {how}, given the training and tuning rows."
    if facts.weights is not None:
        of = facts.weights.of
        rest = "y given x is as before" if of == "x" else "x given the label is as before"
        text = (
            f"Calibration rows and the new one are independent, given the training and tuning "
            f"rows, the weights are how much more frequent "
            f"each {of} is among new rows than among calibration rows, and {rest}."
        )
    if facts.grouped:
        text += (
            " A row that is not picked at random (the last visit, say) needs rows "
            "exchangeable within groups as well."
        )
    if not facts.training_rows_checked:
        text += " The frozen model was not fitted on calibration rows; this cannot be checked here."
    if facts.labels is not None:
        text += " The label of the new row is known to the fit: sets hold known labels only."
    return text


def as_plain(facts: Certificate) -> dict[str, Any]:
    """Words and facts as plain values, for JSON; infinity as the string "inf"."""
    found: dict[str, Any] = plain(asdict(facts), nan=ValueError("a certificate holds no NaN"))
    written = found.pop("written")
    return {**(written or words(facts)), **found}


def lines(facts: Certificate) -> Iterator[str]:
    """The certificate as it is printed."""
    certified = facts.guarantee != "none"
    statement, assumption = facts.statement, facts.assumption
    yield statement
    # without a statement there is nothing that an assumption or a law would make true
    if certified:
        yield f"Assumption: {assumption}"
    if facts.reason and facts.reason not in statement:
        yield f"Why no guarantee: {facts.reason}"
    if facts.weights is not None:
        rows, effect = facts.rows.get("calibrate", 0), facts.weights.effective_n
        yield (
            f"Weights: {facts.weights.given}; {rows} calibration rows have the effect of "
            f"{effect:.0f}"
        )
    for entry in facts.thresholds if not facts.groups else ():
        yield threshold_in_words(entry, certified=certified, weighted=facts.weights is not None)
    if facts.groups:
        yield from _groups_in_words(facts, certified=certified)
    failed = f" ({len(facts.failed_candidates)} failed)" if facts.failed_candidates else ""
    chosen = (
        f"chosen out of {facts.candidates}{failed} by {facts.selection}"
        if facts.selection
        else "the only candidate"
    )
    yield f"Structure: {facts.candidate}, {chosen}"
    if facts.support is not None:
        yield f"Sets are cut to the support, {facts.support[0]:g} to {facts.support[1]:g}"
    if facts.stability is not None:
        yield f"Stability: {stability_in_words(facts.stability)}"
    yield "Rows: " + ", ".join(f"{count} {role}" for role, count in facts.rows.items())
    if facts.replaces is not None:
        yield (
            f"Recalibrated: the structure is that of certificate {facts.replaces}; the "
            f"calibration rows are new"
        )
    shared = {roles: count for roles, count in facts.repeats_shared.items() if count}
    repeats = [
        f"{roles} share {count} row{'' if count == 1 else 's'}" for roles, count in shared.items()
    ]
    if repeats:
        yield f"Repeats, assumed to be natural: {', '.join(repeats)}"


def stability_in_words(stability: float) -> str:
    """Say how often the winner wins again when half of the tuning rows choose."""
    return f"it wins again on {100 * stability:.0f} % of 50 random halves of the tuning rows"


def _groups_in_words(facts: Certificate, *, certified: bool) -> Iterator[str]:
    """The groups that overlap: rows, and how far coverage can be above its level, d / ((n + 1)
    P(group)), estimated.
    """
    values, n = (
        [entry.value for entry in facts.thresholds],
        sum(entry.n for entry in facts.thresholds),
    )
    spread = f" from {_cutoff(min(values))} to {_cutoff(max(values))}" if values else ""
    yield f"{counted(len(values), 'threshold')}{spread}, one for each combination of groups"
    independent = 1 + len(facts.groups) - sum(rows for _, rows in facts.groups) // max(n, 1)
    for group, rows in facts.groups:
        most = min(1.0, 1 - facts.alpha + independent / rows)
        law = (
            f", expected coverage {1 - facts.alpha:.6g} to about {most:.3f} where scores are "
            f"distinct"
            if certified
            else ""
        )
        yield f"{group}: {counted(rows, 'row')}{law}"


def threshold_in_words(
    entry: CertifiedThreshold, *, certified: bool, weighted: bool = False
) -> str:
    """One threshold, its rank, and the law of coverage that follows where something is
    certified.
    """
    name = f"{entry.group}: " if entry.group is not None else ""
    rank = (
        f"rank {entry.rank} of {entry.n}"
        if entry.rank is not None
        else counted(entry.n, "row" if weighted else "group")
    )
    rank += ", at a new row of mean weight" if weighted else ""
    law = ""
    if certified and entry.expected_coverage is not None:
        word = "expected coverage" if entry.expected_is_exact else "expected coverage at least"
        law = f", {word} {entry.expected_coverage:.4f}"
    if certified and entry.coverage_low is not None:
        high = f" to {entry.coverage_high:.3f}" if entry.coverage_high is not None else " or more"
        law += f", 90 % range {entry.coverage_low:.3f}{high}"
    return f"{name}threshold {_cutoff(entry.value)}, {rank}{law}"


def _cutoff(value: float) -> str:
    return (
        "the lowest score (only the most probable label)"
        if value == LOWEST_SCORE
        else f"{value:.6g}"
    )
