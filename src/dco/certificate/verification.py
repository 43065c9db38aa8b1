"""How a certificate is checked later.

`verify` recomputes what can be recomputed, compares the rest with the predictor's own certificate,
and names what it could not check.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from dco.calibration.base import Calibration
from dco.calibration.facts import CalibrationFacts, Check, compare
from dco.calibration.opening import batch_rounding
from dco.calibration.statement import Statement
from dco.certificate.facts import VOIDED_BY, Provenance, StructureFacts, scores_fingerprint
from dco.certificate.words import WORDS, Facts, WrittenFacts, words
from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.display import ShownAsPrinted, counted
from dco.foundations.files import plain
from dco.foundations.fingerprints import role_fingerprint, row_fingerprints
from dco.foundations.tables import take_features
from dco.scores.names import score_label
from dco.structure import ScoredRows, Structure, structure_digest
from dco.tuning import Ranking

# How far scores of the same rows may differ in another order or memory layout, as a share of the
# largest one.
RELATIVE_ROUNDING = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}

LEVELS = {"alpha", "delta", "rule"}
# Fields that the arithmetic checks cover.
CHECKED_ALONE = LEVELS | {"seal_opened"}
# Fields of the structure that a predictor tells by itself.
TOLD_BY_STRUCTURE = {"candidate", "labels", "tuning_threshold", "structure_fingerprint"}
# What checks of some fields are called.
CHECK_NAMES = {
    "structure_fingerprint": "structure",
    "model": "model in words",
    "scores_fingerprint": "scores kept",
    "groups": "overlapping groups",
}


class Certified(Protocol):
    """A predictor with its certificate."""

    @property
    def structure(self) -> Structure:
        """The fitted model with its score."""

    @property
    def statement(self) -> Statement:
        """What was asked for."""

    @property
    def calibration(self) -> Calibration:
        """The thresholds that are deployed."""

    @property
    def certificate(self) -> WrittenFacts:
        """The certificate of the fit."""

    @property
    def ranking(self) -> Ranking:
        """The candidates on the tuning rows."""

    def scores(self, X: Any, y: AnyArray) -> Floats:
        """Score rows as calibration rows were scored."""

    def score_rows(self, X: Any, y: AnyArray) -> ScoredRows:
        """Score rows, and read what the kind of calibration needs to know of them."""


@dataclass(frozen=True)
class VerificationReport(ShownAsPrinted):
    """What holds, what does not, and what could not be checked: {field: what would be needed}."""

    checks: tuple[Check, ...]
    unchecked: Mapping[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether every check holds; it says nothing about what is in `unchecked`."""
        return all(check.holds for check in self.checks)

    def __bool__(self) -> bool:
        return self.holds

    def notes(self) -> list[str]:
        """Say once for each reason what was not checked."""
        names_by_reason: dict[str, list[str]] = {}
        for name, reason in self.unchecked.items():
            names_by_reason.setdefault(reason, []).append(name)
        return [
            f"Not checked {reason}: {', '.join(names)}."
            for reason, names in names_by_reason.items()
        ]

    def __str__(self) -> str:
        lines = [
            f"{'ok  ' if check.holds else 'FAIL'} {check.name}: {check.detail}"
            for check in self.checks
        ]
        return "\n".join([*lines, *self.notes()])


def verify(
    certificate: WrittenFacts,
    X_cal: Any = None,
    y_cal: Any = None,
    *,
    predictor: Certified | None = None,
) -> VerificationReport:
    """Check a certificate by itself, against its predictor, and against the calibration rows."""
    checks = list(check_arithmetic(certificate))

    if predictor is not None:
        failed = {check.name for check in checks if not check.holds}
        comparisons = compare_with_predictor(certificate, predictor)
        checks += [check for check in comparisons if check.name not in failed]

    if X_cal is not None:
        same_number, same_fingerprint = check_rows(certificate, X_cal, y_cal)
        checks += [same_number, same_fingerprint]
        if predictor is not None:
            checks += check_scores(
                certificate,
                X_cal,
                np.asarray(y_cal),
                predictor,
                allow_rounding=same_fingerprint.holds,
            )

    unchecked = list_unchecked(certificate, predictor, has_rows=X_cal is not None)
    return VerificationReport(tuple(checks), unchecked)


# --------------------------------------------------------------------------- the certificate alone


def check_arithmetic(certificate: WrittenFacts) -> Iterator[Check]:
    """Check what follows from other fields of the certificate: ranks, laws, words, the seal."""
    provenance = certificate.provenance
    numbers = list(
        certificate.calibration.checks(
            n_rows=provenance.n_calibration_rows, n_labels=certificate.structure.labels
        )
    )
    yield from numbers

    # No words can be made of a level that makes no sense.
    if all(check.holds for check in numbers if check.name in LEVELS):
        for name, text in words(certificate).items():
            is_stated = certificate.written.get(name, text) == text
            yield Check(name, is_stated, f"the other fields say: {text}")

    n_requests = max(provenance.seal_opened, len(provenance.seal_log))
    detail = f"calibration rows were opened {counted(n_requests, 'time')}"
    yield Check("seal", _was_opened_once(certificate), detail)

    detail = "the ways to lose the guarantee that this format lists"
    yield Check("voided_by", certificate.voided_by == VOIDED_BY, detail)


def _was_opened_once(certificate: WrittenFacts) -> bool:
    """Whether calibration rows were asked for once, for the structure that is certified."""
    log = certificate.provenance.seal_log
    if certificate.provenance.seal_opened != 1 or len(log) != 1:
        return False
    return log[0].endswith(f"structure {certificate.structure.structure_fingerprint}")


# ------------------------------------------------------------------------------ with the predictor


@dataclass(frozen=True)
class RecomputedFacts:
    """The facts of a predictor: computed again where it tells them, else as it has kept them."""

    calibration: CalibrationFacts
    structure: StructureFacts
    provenance: Provenance


def recompute_facts(predictor: Certified) -> RecomputedFacts:
    """Compute the facts that a predictor tells: its structure, its level, and what it deploys."""
    structure = predictor.structure
    kept = predictor.certificate
    calibration = predictor.statement.calibrate(predictor.calibration.scored)

    row_fingerprints = kept.provenance.row_fingerprints
    fitted_on = [row_fingerprints.get("train", "")]
    fitted_on.append(row_fingerprints.get("tune", "") if kept.structure.refit else "")
    digest = structure_digest(
        candidate=structure.name,
        model=kept.structure.model,
        score=score_label(structure.score),
        fitted_on=fitted_on,
        seed=structure.uniform_seed,
    )
    return RecomputedFacts(
        calibration=_keep_last_digits(calibration.facts(), kept.calibration),
        structure=replace(
            kept.structure,
            candidate=structure.name,
            labels=None if structure.classes is None else len(structure.classes),
            tuning_threshold=predictor.ranking.threshold_of(structure.name),
            structure_fingerprint=digest,
        ),
        provenance=replace(
            kept.provenance,
            rows={**kept.provenance.rows, "calibrate": len(calibration.scored)},
            scores_fingerprint=scores_fingerprint(calibration.scored.scores),
        ),
    )


def _keep_last_digits(computed: CalibrationFacts, kept: CalibrationFacts) -> CalibrationFacts:
    """Take the thresholds as they were stated, if they agree but for the last digits of laws."""
    if len(kept.thresholds) != len(computed.thresholds):
        return computed
    pairs = zip(kept.thresholds, computed.thresholds, strict=True)
    if all(stated.agrees_with(again) for stated, again in pairs):
        return replace(computed, thresholds=kept.thresholds)
    return computed


def compare_with_predictor(certificate: WrittenFacts, predictor: Certified) -> Iterator[Check]:
    """Compare a certificate with the facts of a predictor.

    There is a check for each fact that the predictor tells, and for any other that differs.
    """
    stated = facts_as_text(certificate)
    expected = facts_as_text(recompute_facts(predictor))
    told = _names_told_by_predictor(certificate)

    all_agree = True
    for name in stated | expected:
        threshold_name = name.rpartition(": ")[0]
        if threshold_name and not (threshold_name in stated and threshold_name in expected):
            continue  # of a threshold that only one of them has

        here = stated.get(name, "nothing")
        there = expected.get(name, "nothing")
        if here != there:
            all_agree = False
            detail = f"the certificate says {here}, the predictor's own says {there}"
            yield Check(name, False, detail)
        elif name in told or (name.startswith("deployed") and not threshold_name):
            yield Check(name, True, f"the predictor has {there}")

    if all_agree and predictor.certificate is not certificate:
        yield Check("all fields", True, "they agree with the predictor's own certificate")


def _names_told_by_predictor(certificate: WrittenFacts) -> set[str]:
    """Name the facts that a predictor tells by itself, as checks call them."""
    names = {entry.name for entry in fields(certificate.calibration)}
    names |= TOLD_BY_STRUCTURE | {"scores_fingerprint"}
    return {CHECK_NAMES.get(name, name) for name in names} | {"rows.calibrate"}


def facts_as_text(facts: Facts) -> dict[str, str]:
    """Write every fact as JSON, by the name of its check.

    Entries of mappings have names of their own ("rows.train"), and so have parts of thresholds
    ("deployed threshold: rank").
    """
    values: dict[str, Any] = {"kind": facts.calibration.kind}
    for record in (facts.calibration, facts.structure, facts.provenance):
        values |= plain(asdict(record), nan=ValueError("a certificate holds no NaN"))

    texts: dict[str, Any] = {
        "seal": [values.pop("seal_opened"), *values.pop("seal_log")],
    }
    for threshold in values.pop("thresholds"):
        group = threshold["group"]
        name = "deployed threshold" if group is None else f"deployed threshold of group {group}"
        for key, value in threshold.items():
            texts[name if key == "value" else f"{name}: {key}"] = value
    for name, value in values.items():
        if isinstance(value, dict) and value:
            texts |= {f"{name}.{key}": entry for key, entry in value.items()}
        else:
            texts[CHECK_NAMES.get(name, name)] = value
    return {
        name: json.dumps(value, sort_keys=True, ensure_ascii=False) for name, value in texts.items()
    }


# ----------------------------------------------------------------------------------- with the rows


def check_rows(certificate: WrittenFacts, X: Any, y: Any) -> tuple[Check, Check]:
    """Check the number and the fingerprint of the calibration rows."""
    hashes = row_fingerprints(X, y)
    provenance = certificate.provenance
    stated_number = provenance.rows.get("calibrate")
    stated_fingerprint = provenance.row_fingerprints.get("calibrate")
    return (
        compare("calibration rows", stated_number, len(hashes), "number of rows"),
        compare(
            "calibration fingerprint",
            stated_fingerprint,
            role_fingerprint(hashes),
            "fingerprint of the rows",
        ),
    )


def check_scores(
    certificate: WrittenFacts, X: Any, y: AnyArray, predictor: Certified, *, allow_rounding: bool
) -> list[Check]:
    """Check the scores of the calibration rows, and the thresholds that they give.

    Linear algebra may round differently for rows in another order or memory layout: where the rows
    are those of the fit, scores agree if they differ by rounding alone. What is deployed is
    compared exactly by `compare_with_predictor`.
    """
    scored = predictor.score_rows(X, y)
    kept_scores = np.sort(predictor.calibration.scored.scores)
    stated = certificate.provenance.scores_fingerprint
    check = compare(
        "scores", stated, scores_fingerprint(scored.scores), "fingerprint of the scores"
    )

    rounding = 0.0
    if allow_rounding and not check.holds:
        rounding = largest_rounding(predictor, X, y, scored.scores)
        is_of_kept_scores = stated == scores_fingerprint(kept_scores)
        if is_of_kept_scores and _agree(kept_scores, np.sort(scored.scores), rounding):
            detail = f"they agree with the scores kept, to rounding (within {rounding:.1g})"
            check = Check("scores", True, detail)

    checks = [check]
    if predictor.calibration.follows_from_rows:
        checks += _check_thresholds(certificate, predictor, scored, rounding=rounding)
    return checks


def _check_thresholds(
    certificate: WrittenFacts, predictor: Certified, scored: ScoredRows, *, rounding: float
) -> Iterator[Check]:
    """Check each threshold against the one that the scored rows give."""
    conditions = predictor.statement.calibrate(scored).conditions
    recomputed = {condition.name: condition.threshold for condition in conditions}
    rounding *= certificate.calibration.n_scores_combined

    for stated in certificate.calibration.thresholds:
        name = "threshold" if stated.group is None else f"threshold of group {stated.group}"
        n = 0
        value = math.nan
        if stated.group in recomputed:
            n = recomputed[stated.group].n
            value = recomputed[stated.group].value

        if value != stated.value and _agree(stated.value, value, rounding):
            detail = f"from {n} scores: {value}, which is {stated.value} to rounding"
            yield Check(name, True, detail)
        else:
            yield compare(name, stated.value, value, f"from {n} scores")


def largest_rounding(predictor: Certified, X: Any, y: AnyArray, scores: Floats) -> float:
    """Return how far scores of the same rows under the same model may differ by rounding alone.

    It is at least what can be seen here, since a model may compute in single precision and answer
    in double. It grows when targets are far from 0 in units of their spread: a residual inherits
    the rounding of the numbers that it is the difference of.
    """
    seen = batch_rounding(predictor.scores, X, y, scores)
    kept_scores = predictor.calibration.scored.scores
    largest = float(np.max(np.abs(kept_scores[np.isfinite(kept_scores)]), initial=0.0))

    # The precision in which the model answers.
    prediction = predictor.structure.prediction(take_features(X, np.arange(1)))
    dtypes = [part.dtype for part in vars(prediction).values() if isinstance(part, np.ndarray)]
    precisions = [RELATIVE_ROUNDING[dtype] for dtype in dtypes if dtype in RELATIVE_ROUNDING]
    precision = max(precisions, default=RELATIVE_ROUNDING[np.dtype(np.float64)])

    offset = 0.0
    if predictor.structure.classes is None and np.std(y) > 0:
        offset = float(np.max(np.abs(y)) / np.std(y)) / 256
    return max(seen, precision * (1 + offset) * largest)


def _agree(a: ArrayLike, b: ArrayLike, rounding: float) -> bool:
    """Whether numbers are equal (infinite ones exactly) or differ by at most `rounding`."""
    first = np.asarray(a, dtype=np.float64)
    second = np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        return False
    with np.errstate(invalid="ignore"):
        is_near = np.abs(first - second) <= rounding
    return bool(np.all((first == second) | is_near))


# ------------------------------------------------------------------------------- what is left open


def list_unchecked(
    certificate: WrittenFacts, predictor: Certified | None, *, has_rows: bool
) -> dict[str, str]:
    """Name the facts that nothing given here speaks for, with what would be needed."""
    unchecked: dict[str, str] = {}
    is_compared_with_a_copy = predictor is not None and predictor.certificate is not certificate
    if not is_compared_with_a_copy:
        needed = "without the predictor"
        if predictor is not None:
            needed = "by anything but this certificate (compare a copy that was kept elsewhere)"
        unchecked |= dict.fromkeys(WORDS, "beyond the facts that this certificate states")
        for name in _names_not_recomputed(certificate, has_predictor=predictor is not None):
            is_of_given_rows = name in ("rows.calibrate", "row_fingerprints.calibrate")
            if not (has_rows and is_of_given_rows):
                unchecked[name] = needed

    if not has_rows:
        unchecked["calibration rows"] = "without the rows themselves"
        if predictor is not None:
            unchecked["fitted model"] = "without the calibration rows, whose scores speak for it"
    return unchecked


def _names_not_recomputed(certificate: WrittenFacts, *, has_predictor: bool) -> Iterator[str]:
    """Name the facts that a certificate, or its predictor, does not tell twice."""
    recomputed = set(CHECKED_ALONE)
    if has_predictor:
        recomputed |= TOLD_BY_STRUCTURE | {"scores_fingerprint"}
    else:
        for entry in sorted(fields(certificate.calibration), key=lambda entry: entry.name):
            if entry.name not in recomputed:
                yield "threshold values" if entry.name == "thresholds" else entry.name

    for record in (certificate.structure, certificate.provenance):
        for entry in fields(record):
            if entry.name in recomputed:
                continue
            if entry.name not in ("rows", "row_fingerprints"):
                yield entry.name
                continue
            for role in getattr(record, entry.name):
                is_told = has_predictor and entry.name == "rows" and role == "calibrate"
                if not is_told:
                    yield f"{entry.name}.{role}"
