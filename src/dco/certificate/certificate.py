"""What is certified. A `Certificate` is plain data: it goes to strict JSON and back without
loss."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from html import escape
from typing import Any

from dco.calibration.facts import CalibrationFacts, CertifiedThreshold
from dco.certificate.facts import VOIDED_BY, Provenance, StructureFacts
from dco.certificate.reading import parse_object, read_value
from dco.certificate.verification import Certified, VerificationReport, verify
from dco.certificate.words import WORDS, as_plain, lines, words
from dco.foundations.display import ShownAsPrinted
from dco.foundations.ranks import Guarantee, Level, as_rational
from dco.theory import simultaneous_slack

FORMAT = 6
LARGEST_COUNT = 2**53  # up to here every whole number is a float


@dataclass(frozen=True)
class Certificate(ShownAsPrinted):
    """The statement, its assumption, its numbers, and fingerprints of the rows behind it.

    Statement and assumption are made from the facts. Those that a file holds are kept in `written`,
    so that `verify` sees an edited sentence.

    Attributes
    ----------
    calibration
        The level, the thresholds and what they guarantee.
    structure
        What was calibrated, and how it was chosen.
    provenance
        Which rows were used for what, and what software did it.
    voided_by
        What would make the statement untrue, and cannot be seen from here.
    format
        The version of the file format.
    """

    calibration: CalibrationFacts
    structure: StructureFacts
    provenance: Provenance
    voided_by: tuple[str, ...] = VOIDED_BY
    format: int = FORMAT
    written: Mapping[str, str] = field(default_factory=dict)

    @property
    def statement(self) -> str:
        """The guarantee in one plain sentence."""
        return self.written.get("statement") or words(self)["statement"]

    @property
    def assumption(self) -> str:
        """What must be true of the rows for the statement to hold."""
        return self.written.get("assumption") or words(self)["assumption"]

    @property
    def guarantee(self) -> Guarantee:
        """What is certified; "none" if nothing is."""
        return self.calibration.guarantee

    @property
    def reason(self) -> str | None:
        """Why nothing is guaranteed; None if something is."""
        return self.calibration.reason

    @property
    def alpha(self) -> float:
        """The miscoverage that was asked for."""
        return self.calibration.alpha

    @property
    def delta(self) -> float | None:
        """The failure probability, if the guarantee has one."""
        return self.calibration.delta

    @property
    def thresholds(self) -> tuple[CertifiedThreshold, ...]:
        """The thresholds, with what follows from their ranks."""
        return self.calibration.thresholds

    @property
    def training_rows(self) -> str:
        """Whether the rows of each model are known not to be calibration rows, in words."""
        if self.provenance.training_rows_checked:
            return "checked"
        return "not checked: a frozen model's training rows are unknown"

    @property
    def fingerprint(self) -> str:
        """A digest of all that the certificate says; a recalibration states it in ``replaces``."""
        return blake2b(self.to_json(indent=None).encode(), digest_size=16).hexdigest()

    def to_json(self, *, indent: int | None = 2) -> str:
        """Write strict JSON: no NaN, and infinity as the string "inf"."""
        return json.dumps(as_plain(self), indent=indent, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read a certificate written by `to_json`; anything else is an error that says why."""
        try:
            certificate = _read_certificate(text)
            _check_numbers(certificate)
        except ValueError as error:
            raise ValueError(f"This is not a certificate: {error}.") from None
        return certificate

    def simultaneous_slack(self, delta: Level = 0.05) -> float:
        """Return how far coverage may fall short where alpha is picked after seeing results.

        With probability 1 - delta, coverage is at least 1 - alpha - slack for every alpha at once
        (`dco.theory.simultaneous_slack`), for i.i.d. rows and delta <= 1/2. Where groups of rows
        have thresholds of their own, this holds in each group by itself. It is a ValueError if no
        slack is known: nothing is guaranteed, or rows have weights or belong together.
        """
        # 1. Refuse calibrations for which no slack is known.
        why_no_slack = self.calibration.why_no_slack
        if self.guarantee == "none":
            why_no_slack = "nothing is guaranteed"
        if why_no_slack is not None:
            raise ValueError(
                f"no bound is known for a level that is picked by its result: {why_no_slack} (see "
                f"the certificate)."
            )

        # 2. Compute the slack of each threshold, by the number of its calibration rows. One without
        # rows is given one, so that a delta out of range is always an error.
        pac_delta = None if self.delta is None else as_rational(self.delta, name="delta")
        numbers_of_rows = {threshold.n for threshold in self.thresholds}
        slacks = []
        for n in numbers_of_rows:
            slacks.append(simultaneous_slack(max(n, 1), delta=delta, pac_delta=pac_delta))

        # 3. Take the largest. Without rows nothing is known of coverage, and the slack is 1.
        has_rows = min(numbers_of_rows) > 0
        return max(slacks) if has_rows else 1.0

    def verify(
        self, X_cal: Any = None, y_cal: Any = None, *, predictor: Any = None
    ) -> VerificationReport:
        """Recompute what can be recomputed, say what differs, and name what was not checked.

        Alone: words, ranks and coverage laws must follow from the numbers. With the predictor (or
        the estimator): what it deploys, its fingerprints, and every other field against its own
        certificate. With the calibration rows, in any order: their fingerprint, and with both every
        score and threshold, to rounding.
        """
        certified: Certified | None = getattr(predictor, "predictor_", predictor)
        return verify(self, X_cal, y_cal, predictor=certified)

    def __str__(self) -> str:
        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        first, *others = lines(self)
        paragraphs = [f"<p>{escape(line)}</p>" for line in others]
        return f"<p><b>{escape(first)}</b></p>{''.join(paragraphs)}"


def _read_certificate(text: str) -> Certificate:
    """Read a certificate from the JSON text of a file: its facts, and its sentences.

    Sentences, such as the statement, are made from the facts (`WORDS` has their names). They need
    not be kept, unless those of the file differ: then somebody has edited it, and they go to the
    field `written`, where `verify` finds them.
    """
    # 1. The file must have this format, every field, and no other.
    data = parse_object(text)
    if data.get("format") != FORMAT:
        raise ValueError(
            f"it has format {data.get('format')!r}, and this version reads format {FORMAT}: use "
            f"the one that wrote it, or fit again"
        )
    types: dict[str, Any] = {
        "calibration": CalibrationFacts,
        "structure": StructureFacts,
        "provenance": Provenance,
        "voided_by": tuple[str, ...],
        "format": int,
        **dict.fromkeys(WORDS, str),
    }
    missing = sorted(types.keys() - data.keys())
    unknown = sorted(data.keys() - types.keys())
    if missing or unknown:
        raise ValueError(f"missing fields {missing}, unknown fields {unknown}")

    # 2. Read the fields by their types.
    values = {name: read_value(types[name], data[name], name) for name in types}
    written_words = {name: values.pop(name) for name in WORDS}
    certificate = Certificate(**values)

    # 3. Keep the sentences of the file if they do not follow from its facts.
    with suppress(ValueError, KeyError):  # none can be made from a level above 1, say
        if words(certificate) == written_words:
            return certificate
    return replace(certificate, written=written_words)


def _check_numbers(certificate: Certificate) -> None:
    """Raise if a number has the right type but makes no sense: no check could compute with it."""
    for threshold in certificate.thresholds:
        is_rank_0 = threshold.rank == 0  # ranks count from 1; None is none
        largest_count = max(threshold.n, threshold.rank or 0)
        if is_rank_0 or largest_count >= LARGEST_COUNT:
            raise ValueError(f"a threshold has rank {threshold.rank} of {threshold.n}")

    support = certificate.structure.support
    if support is not None and not support[0] < support[1]:
        raise ValueError(f"support is {support!r}")

    stability = certificate.structure.stability
    if stability is not None and not 0 <= stability <= 1:
        raise ValueError(f"stability is {stability!r}")
