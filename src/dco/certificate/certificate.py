"""What is certified. A `Certificate` is plain data: it goes to strict JSON and back without
loss.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from hashlib import blake2b
from html import escape
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dco.calibration.facts import FACTS, CalibrationFacts, CertifiedThreshold
from dco.certificate.facts import VOIDED_BY
from dco.certificate.verification import VerificationReport, verify
from dco.certificate.words import WORDS, as_plain, lines, words
from dco.foundations.display import ShownAsPrinted
from dco.foundations.ranks import Guarantee, Level, as_rational
from dco.theory import simultaneous_slack

FORMAT = 4


@dataclass(frozen=True)
class Certificate(ShownAsPrinted):
    """The statement, its assumption, its numbers, and fingerprints of the rows and the structure
    behind it.

    Statement and assumption are made from the facts (`words`). Those that a file holds are kept in
    `written`, so that `verify` sees an edited sentence.

    `calibration` has the level, the thresholds and what they guarantee. `distinct` says that
    repeats were dropped, `labels` how many labels the fit knows (None for numbers). `stability` is
    the share of random halves of the tuning rows on which the candidate wins again; None where
    this was not measured.
    """

    calibration: CalibrationFacts
    distinct: bool
    labels: int | None
    candidate: str
    candidates: int
    failed_candidates: Mapping[str, str]
    model: str
    score: str
    tuning_threshold: float | None
    selection: str
    refit: bool
    rows: Mapping[str, int]
    row_fingerprints: Mapping[str, str]
    repeats_shared: Mapping[str, int | str]
    training_rows_checked: bool
    structure_fingerprint: str
    scores_fingerprint: str
    seal_opened: int
    seal_log: tuple[str, ...]
    seed: int | None
    versions: Mapping[str, str]
    voided_by: tuple[str, ...] = VOIDED_BY
    # where y lies, by what the caller knows: sets are cut to it
    support: tuple[float, float] | None = None
    format: int = FORMAT
    stability: float | None = None
    # the fingerprint of the certificate of the same structure with the calibration rows before
    replaces: str | None = None
    # the words as they stand in a file, which may be edited
    written: Mapping[str, str] = field(default_factory=dict)

    @property
    def rule(self) -> str:
        """The guarantee that was asked for."""
        return self.calibration.rule

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
    def condition_on(self) -> str | None:
        """What gives rows a threshold of their own, in words; None for one threshold."""
        return self.calibration.condition_on

    @property
    def thresholds(self) -> tuple[CertifiedThreshold, ...]:
        """The thresholds, with what follows from their ranks."""
        return self.calibration.thresholds

    @property
    def statement(self) -> str:
        """The guarantee in one plain sentence."""
        return self.written.get("statement") or words(self)["statement"]

    @property
    def assumption(self) -> str:
        """What must be true of the rows for the statement to hold."""
        return self.written.get("assumption") or words(self)["assumption"]

    @property
    def training_rows(self) -> str:
        """Whether the rows of each model are known not to be calibration rows, in words."""
        return (
            "checked"
            if self.training_rows_checked
            else "not checked: a frozen model's training rows are unknown"
        )

    @property
    def fingerprint(self) -> str:
        """A digest of all that the certificate says; a recalibration states it in ``replaces``."""
        return blake2b(self.to_json(indent=None).encode(), digest_size=16).hexdigest()

    def to_json(self, *, indent: int | None = 2) -> str:
        """Strict JSON: no NaN, infinity written as the string "inf"."""
        return json.dumps(as_plain(self), indent=indent, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read a certificate written by `to_json`; anything else is a ValueError that says what is
        wrong.
        """
        try:
            data = json.loads(text, parse_constant=_no_constant)
        except (json.JSONDecodeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"This is not a certificate: it is not strict JSON ({error})."
            ) from None
        if not isinstance(data, dict):
            raise ValueError("This is not a certificate: the JSON is not an object.")
        if data.get("format") != FORMAT:
            raise ValueError(
                f"This certificate has format {data.get('format')!r}; this version reads format "
                f"{FORMAT}: use the one that "
                "wrote it, or fit again."
            )
        data = dict.fromkeys(("support", "stability", "replaces")) | data  # not always stated
        kinds = {**dict.fromkeys(WORDS, str), **get_type_hints(cls)}
        wanted = kinds.keys() - {"written"}
        if set(data) != wanted:
            missing, spare = sorted(wanted - set(data)), sorted(set(data) - wanted)
            raise ValueError(
                f"This is not a certificate: missing fields {missing}, unknown fields {spare}."
            )
        try:
            values = {name: _read(kinds[name], value, name) for name, value in data.items()}
            written = {name: values.pop(name) for name in WORDS}
            made = cls(**values)
            _check_entries(made)
        except ValueError as error:
            raise ValueError(f"This is not a certificate: {error}.") from None
        # of facts that no words can be made from, such as a level above 1
        with suppress(ValueError, KeyError):
            if words(made) == written:
                return made
        return replace(made, written=written)

    def simultaneous_slack(self, delta: Level = 0.05) -> float:
        """With probability 1 - delta, coverage >= 1 - alpha - slack for every alpha at once: the
        price of a picked level.

        `theory.simultaneous_slack` (i.i.d. rows, delta <= 1/2): sqrt(log(1/delta) / 2n), and more
        for a PAC statement whose own delta is above 1/2, in each group by itself. Without
        calibration rows the slack is 1. Where nothing is guaranteed, or rows belong together and
        the threshold is no order statistic of independent scores, no slack is known: a ValueError.
        """
        why = self.calibration.why_no_slack
        if self.guarantee == "none":
            why = "nothing is guaranteed"
        if why is not None:
            raise ValueError(
                f"no bound is known for a level that is picked by its result: {why} (see the "
                f"certificate)."
            )
        own = None if self.delta is None else as_rational(self.delta, name="delta")
        sizes = {threshold.n for threshold in self.thresholds}
        slack = max(simultaneous_slack(max(n, 1), delta=delta, pac_delta=own) for n in sizes)
        return slack if min(sizes) else 1.0

    def verify(
        self, X_cal: Any = None, y_cal: Any = None, *, predictor: Any = None
    ) -> VerificationReport:
        """Recompute what can be recomputed, say what differs, and name what could not be checked.

        Alone: words, ranks and coverage laws must follow from the numbers. With the predictor (or
        the estimator): what it deploys, its fingerprints, and every other field against its own
        certificate. With the calibration rows, in any order: their fingerprint, and with both every
        score and threshold, to rounding.
        """
        return verify(self, X_cal, y_cal, predictor=predictor)

    def __str__(self) -> str:
        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        first, *rest = lines(self)
        return f"<p><b>{escape(first)}</b></p>" + "".join(f"<p>{escape(line)}</p>" for line in rest)


def _read(kind: Any, value: Any, name: str) -> Any:
    """A value of JSON as a field of this type: lists become tuples, "inf" is a number, any other
    misfit is a ValueError.
    """
    parts, origin = get_args(kind), get_origin(kind)
    if origin in (Union, UnionType):
        for part in parts:
            with suppress(ValueError):
                return _read(part, value, name)
    elif kind is CalibrationFacts:
        return _read_calibration(value, name)
    elif is_dataclass(kind):
        hints = get_type_hints(kind)
        names = {entry.name for entry in fields(kind)}
        if isinstance(value, dict) and value.keys() == names:
            made = {own: _read(hints[own], part, f"{own} of {name}") for own, part in value.items()}
            return kind(**made)  # type: ignore[operator]
    elif origin is tuple and isinstance(value, list):
        wanted = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
        if len(wanted) == len(value):
            return tuple(
                _read(own, part, f"an entry of {name}")
                for own, part in zip(wanted, value, strict=True)
            )
    elif origin is Mapping and isinstance(value, dict):
        return {own: _read(parts[1], part, f"{own} of {name}") for own, part in value.items()}
    elif kind is float and (type(value) in (int, float) or value in ("inf", "-inf")):
        with suppress(OverflowError):
            return float(value)
    elif (origin is Literal and value in parts) or (
        type(value) is kind and (kind is not int or 0 <= value < 10**300)
    ):
        return value
    raise ValueError(f"{name} is {value!r:.200}")


def _read_calibration(value: Any, name: str) -> Any:
    """Read the facts of a calibration as the class that their kind names."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in FACTS:
        raise ValueError(f"{name} is {value!r:.200}")
    stated = {key: part for key, part in value.items() if key != "kind"}
    return _read(FACTS[kind], stated, name)


def _check_entries(made: Certificate) -> None:
    """Refuse numbers of the right type that nothing could be computed from."""
    for entry in made.thresholds:
        if entry.rank == 0 or max(entry.n, entry.rank or 0) >= 2**53:
            raise ValueError(f"a threshold has rank {entry.rank} of {entry.n}")
    if made.support is not None and not made.support[0] < made.support[1]:
        raise ValueError(f"support is {made.support!r}")
    if made.stability is not None and not 0 <= made.stability <= 1:
        raise ValueError(f"stability is {made.stability!r}")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
