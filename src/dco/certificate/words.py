"""The words of a certificate, made from its facts: for terminal, page and JSON alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dco.foundations.files import plain

if TYPE_CHECKING:
    from dco.certificate.certificate import Certificate

WORDS = ("statement", "assumption", "guarantee")  # what follows from the other facts of a file
_DISTINCT = " drawn like the distinct rows given here"  # what is rare is seen late


def words(facts: Certificate) -> dict[str, str]:
    """Say what follows from the facts: statement, assumption and the name of the guarantee."""
    return {
        "statement": _statement(facts),
        "assumption": _assumption(facts),
        "guarantee": facts.guarantee,
    }


def _statement(facts: Certificate) -> str:
    """State the guarantee in one plain sentence."""
    if facts.reason is not None:
        return f"Nothing is guaranteed: {facts.reason}."
    return facts.calibration.sentence(like=_DISTINCT if facts.distinct else "")


def _assumption(facts: Certificate) -> str:
    """Say what must be true of the rows for the statement to hold.

    Full sets hold known labels only, so labels must be known whatever the threshold: the mean over
    calibrations counts infinite thresholds as coverage of every row.
    """
    text = facts.calibration.assumption()
    if not facts.training_rows_checked:
        text += " The frozen model was not fitted on calibration rows; this cannot be checked here."
    if facts.labels is not None:
        text += " The label of the new row is known to the fit: sets hold known labels only."
    return text


def as_plain(facts: Certificate) -> dict[str, Any]:
    """Words and facts as plain values, for JSON; infinity as the string "inf"."""
    found: dict[str, Any] = plain(asdict(facts), nan=ValueError("a certificate holds no NaN"))
    written = found.pop("written")
    found["calibration"] = {"kind": facts.calibration.kind, **found["calibration"]}
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
    yield from facts.calibration.lines(n_rows=facts.rows.get("calibrate", 0))
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
