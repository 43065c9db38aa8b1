"""The words of a certificate, made from its facts: for terminal, page and JSON alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from dco.calibration.facts import CalibrationFacts
from dco.certificate.facts import Provenance, StructureFacts
from dco.foundations.display import counted
from dco.foundations.files import plain

WORDS = ("statement", "assumption", "guarantee")  # what follows from the other facts of a file
# What is rare among all rows is seen late where repeats were dropped.
LIKE_DISTINCT_ROWS = " drawn like the distinct rows given here"


class Facts(Protocol):
    """The three records of a certificate."""

    @property
    def calibration(self) -> CalibrationFacts:
        """The level, the thresholds and what they guarantee."""

    @property
    def structure(self) -> StructureFacts:
        """What was calibrated, and how it was chosen."""

    @property
    def provenance(self) -> Provenance:
        """Which rows were used for what."""


class WrittenFacts(Facts, Protocol):
    """A certificate, as its words and its verification read it."""

    @property
    def statement(self) -> str:
        """The guarantee in one plain sentence."""

    @property
    def assumption(self) -> str:
        """What must be true of the rows."""

    @property
    def voided_by(self) -> tuple[str, ...]:
        """What would make the statement untrue."""

    @property
    def format(self) -> int:
        """The version of the file format."""

    @property
    def written(self) -> Mapping[str, str]:
        """The words as they stand in a file."""


def words(facts: Facts) -> dict[str, str]:
    """Say what follows from the facts: statement, assumption and the name of the guarantee."""
    return {
        "statement": _statement(facts),
        "assumption": _assumption(facts),
        "guarantee": facts.calibration.guarantee,
    }


def _statement(facts: Facts) -> str:
    """State the guarantee in one plain sentence."""
    if facts.calibration.reason is not None:
        return f"Nothing is guaranteed: {facts.calibration.reason}."
    return facts.calibration.sentence(like=LIKE_DISTINCT_ROWS if facts.provenance.distinct else "")


def _assumption(facts: Facts) -> str:
    """Say what must be true of the rows for the statement to hold.

    Full sets hold known labels only, so labels must be known whatever the threshold: the mean over
    calibrations counts infinite thresholds as coverage of every row.
    """
    text = facts.calibration.assumption()
    if not facts.provenance.training_rows_checked:
        text += " The frozen model was not fitted on calibration rows; this cannot be checked here."
    if facts.structure.labels is not None:
        text += " The label of the new row is known to the fit: sets hold known labels only."
    return text


def as_plain(certificate: WrittenFacts) -> dict[str, Any]:
    """Turn a certificate into plain values for JSON, first its sentences and then its facts.

    Infinity becomes the string "inf".
    """
    calibration = certificate.calibration
    facts = {
        "calibration": {"kind": calibration.kind, **asdict(calibration)},
        "structure": asdict(certificate.structure),
        "provenance": asdict(certificate.provenance),
        "voided_by": certificate.voided_by,
        "format": certificate.format,
    }
    values: dict[str, Any] = plain(facts, nan=ValueError("a certificate holds no NaN"))
    return {**(certificate.written or words(certificate)), **values}


def lines(certificate: WrittenFacts) -> Iterator[str]:
    """Write a certificate as lines of text, for terminal and page."""
    calibration = certificate.calibration

    # 1. What is guaranteed. An assumption without a guarantee would make nothing true.
    yield certificate.statement
    if calibration.guarantee != "none":
        yield f"Assumption: {certificate.assumption}"
    if calibration.reason and calibration.reason not in certificate.statement:
        yield f"Why no guarantee: {calibration.reason}"

    # 2. The thresholds, what was calibrated, and with which rows.
    yield from calibration.lines(n_rows=certificate.provenance.n_calibration_rows)
    yield from _structure_lines(certificate.structure)
    yield from _row_lines(certificate.provenance)


def _structure_lines(structure: StructureFacts) -> Iterator[str]:
    """Say in lines of text what was calibrated, and how it was chosen."""
    yield f"Structure: {structure.candidate}, {_choice_in_words(structure)}"
    if structure.support is not None:
        lowest, highest = structure.support
        yield f"Sets are cut to the support, {lowest:g} to {highest:g}"
    if structure.stability is not None:
        yield f"Stability: {stability_in_words(structure.stability)}"


def _row_lines(provenance: Provenance) -> Iterator[str]:
    """Say in lines of text how many rows each role has, and which rows are special."""
    yield "Rows: " + ", ".join(f"{count} {role}" for role, count in provenance.rows.items())

    if provenance.replaces is not None:
        yield (
            f"Recalibrated: the structure is that of certificate {provenance.replaces}; the "
            f"calibration rows are new"
        )

    repeats = [
        f"{roles} share {counted(count, 'row')}"
        for roles, count in provenance.repeats_shared.items()
        if count > 0
    ]
    if repeats:
        yield f"Repeats, assumed to be natural: {', '.join(repeats)}"


def _choice_in_words(structure: StructureFacts) -> str:
    """Say out of how many candidates the structure was chosen, and by what."""
    if not structure.selection:
        return "the only candidate"
    n_failed = len(structure.failed_candidates)
    failed = f" ({n_failed} failed)" if n_failed else ""
    return f"chosen out of {structure.candidates}{failed} by {structure.selection}"


def stability_in_words(stability: float) -> str:
    """Say how often the winner wins again when half of the tuning rows choose."""
    return f"it wins again on {100 * stability:.0f} % of 50 random halves of the tuning rows"
