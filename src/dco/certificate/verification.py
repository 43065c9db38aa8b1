"""How a certificate is checked later.

`verify` recomputes what can be recomputed, compares the rest with the predictor's own certificate,
and names what it could not check.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
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

    def with_check(self, check: Check, *, of_fields: Iterable[str] = ()) -> VerificationReport:
        """Add a check to the report; the fields that it covers are no longer unchecked."""
        report = replace(self, checks=(*self.checks, check))
        return report.without_unchecked(of_fields)

    def with_unchecked(self, fields: Iterable[str], *, reason: str) -> VerificationReport:
        """Add fields that could not be checked to the report, with the reason."""
        reasons = dict.fromkeys(fields, reason)
        return replace(self, unchecked={**self.unchecked, **reasons})

    def without_unchecked(self, fields: Iterable[str]) -> VerificationReport:
        """Take fields off the list of those that could not be checked."""
        names = set(fields)
        unchecked = {name: why for name, why in self.unchecked.items() if name not in names}
        return replace(self, unchecked=unchecked)

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
    certificate = predictor.certificate
    calibration = predictor.statement.calibrate(predictor.calibration.scored)

    row_fingerprints = certificate.provenance.row_fingerprints
    training_rows = row_fingerprints.get("train", "")
    tuning_rows = row_fingerprints.get("tune", "") if certificate.structure.refit else ""
    digest = structure_digest(
        candidate=structure.name,
        model=certificate.structure.model,
        score=score_label(structure.score),
        fitted_on=[training_rows, tuning_rows],
        seed=structure.uniform_seed,
    )
    return RecomputedFacts(
        calibration=_keep_last_digits(calibration.facts(), certificate.calibration),
        structure=replace(
            certificate.structure,
            candidate=structure.name,
            labels=None if structure.classes is None else len(structure.classes),
            tuning_threshold=predictor.ranking.threshold_of(structure.name),
            structure_fingerprint=digest,
        ),
        provenance=replace(
            certificate.provenance,
            rows={**certificate.provenance.rows, "calibrate": len(calibration.scored)},
            scores_fingerprint=scores_fingerprint(calibration.scored.scores),
        ),
    )


def _keep_last_digits(computed: CalibrationFacts, kept: CalibrationFacts) -> CalibrationFacts:
    """Return the computed facts, with the kept thresholds if these differ in last digits alone."""
    if len(kept.thresholds) != len(computed.thresholds):
        return computed

    pairs = zip(kept.thresholds, computed.thresholds, strict=True)
    all_agree = all(kept_one.agrees_with(computed_one) for kept_one, computed_one in pairs)
    return replace(computed, thresholds=kept.thresholds) if all_agree else computed


def compare_with_predictor(certificate: WrittenFacts, predictor: Certified) -> Iterator[Check]:
    """Compare a certificate with the facts of a predictor.

    There is a check for each fact that the predictor tells, and for any other that differs.
    """
    stated_texts = facts_as_text(certificate)
    expected_texts = facts_as_text(recompute_facts(predictor))
    shown_names = _names_told_by_predictor(certificate)

    all_agree = True
    for name in stated_texts | expected_texts:
        # The parts of a threshold that only one of them has are not compared one by one.
        threshold_name, _, _ = name.rpartition(": ")
        is_part = threshold_name != ""
        in_both = threshold_name in stated_texts and threshold_name in expected_texts
        if is_part and not in_both:
            continue

        stated = stated_texts.get(name, "nothing")
        expected = expected_texts.get(name, "nothing")
        is_threshold = name.startswith("deployed") and not is_part
        if stated != expected:
            all_agree = False
            detail = f"the certificate says {stated}, the predictor's own says {expected}"
            yield Check(name, False, detail)
        elif name in shown_names or is_threshold:
            yield Check(name, True, f"the predictor has {expected}")

    if all_agree and predictor.certificate is not certificate:
        yield Check("all fields", True, "they agree with the predictor's own certificate")


def _names_told_by_predictor(certificate: WrittenFacts) -> set[str]:
    """Name the facts that a predictor tells by itself, as checks call them."""
    field_names = {fact.name for fact in fields(certificate.calibration)}
    field_names |= TOLD_BY_STRUCTURE | {"scores_fingerprint"}
    check_names = {CHECK_NAMES.get(name, name) for name in field_names}
    return check_names | {"rows.calibrate"}


def facts_as_text(facts: Facts) -> dict[str, str]:
    """Write every fact as JSON, by the name of its check.

    The items of a mapping have names of their own ("rows.train"), and so have the parts of a
    threshold ("deployed threshold: rank").
    """
    values: dict[str, Any] = {"kind": facts.calibration.kind}
    for record in (facts.calibration, facts.structure, facts.provenance):
        values |= plain(asdict(record), nan=ValueError("a certificate holds no NaN"))

    # 1. The seal: how often it was opened, and each request.
    by_check: dict[str, Any] = {
        "seal": [values.pop("seal_opened"), *values.pop("seal_log")],
    }

    # 2. Each threshold, and its parts.
    for threshold in values.pop("thresholds"):
        group = threshold["group"]
        name = "deployed threshold" if group is None else f"deployed threshold of group {group}"
        for part, value in threshold.items():
            full_name = name if part == "value" else f"{name}: {part}"
            by_check[full_name] = value

    # 3. All other facts. An empty mapping is a fact as well.
    for name, value in values.items():
        if isinstance(value, dict) and value:
            for key, item in value.items():
                by_check[f"{name}.{key}"] = item
        else:
            by_check[CHECK_NAMES.get(name, name)] = value

    return {
        name: json.dumps(value, sort_keys=True, ensure_ascii=False)
        for name, value in by_check.items()
    }


# ----------------------------------------------------------------------------------- with the rows


def check_rows(certificate: WrittenFacts, X: Any, y: Any) -> tuple[Check, Check]:
    """Check the number and the fingerprint of the calibration rows."""
    hashes = row_fingerprints(X, y)
    provenance = certificate.provenance

    stated_number = provenance.rows.get("calibrate")
    number = compare("calibration rows", stated_number, len(hashes), "number of rows")

    fingerprint = compare(
        "calibration fingerprint",
        provenance.row_fingerprints.get("calibrate"),
        role_fingerprint(hashes),
        "fingerprint of the rows",
    )
    return number, fingerprint


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
        states_kept_scores = stated == scores_fingerprint(kept_scores)
        if states_kept_scores and _agree(kept_scores, np.sort(scored.scores), rounding):
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
        value = math.nan  # where no rows give this threshold: NaN equals nothing
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
    seen_rounding = batch_rounding(predictor.scores, X, y, scores)
    kept_scores = predictor.calibration.scored.scores
    largest_score = float(np.max(np.abs(kept_scores[np.isfinite(kept_scores)]), initial=0.0))

    # The precision in which the model answers, by the arrays of one prediction.
    prediction = predictor.structure.prediction(take_features(X, np.arange(1)))
    dtypes = [part.dtype for part in vars(prediction).values() if isinstance(part, np.ndarray)]
    precisions = [RELATIVE_ROUNDING[dtype] for dtype in dtypes if dtype in RELATIVE_ROUNDING]
    precision = max(precisions, default=RELATIVE_ROUNDING[np.dtype(np.float64)])

    # How far targets are from 0, in units of their spread.
    offset = 0.0
    if predictor.structure.classes is None and np.std(y) > 0:
        offset = float(np.max(np.abs(y)) / np.std(y)) / 256
    return max(seen_rounding, precision * (1 + offset) * largest_score)


def _agree(a: ArrayLike, b: ArrayLike, rounding: float) -> bool:
    """Return whether all numbers are equal, or differ by at most `rounding` if they are finite."""
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

    # 1. Facts that stand in this certificate alone. If the predictor has its own certificate, each
    # of its facts was compared.
    has_own_certificate = predictor is not None and predictor.certificate is not certificate
    if not has_own_certificate:
        unchecked |= dict.fromkeys(WORDS, "beyond the facts that this certificate states")
        reason = "without the predictor"
        if predictor is not None:
            reason = "by anything but this certificate (compare a copy that was kept elsewhere)"
        for name in _names_not_recomputed(certificate, has_predictor=predictor is not None):
            follows_from_rows = name in ("rows.calibrate", "row_fingerprints.calibrate")
            if not (has_rows and follows_from_rows):
                unchecked[name] = reason

    # 2. What takes the calibration rows.
    if not has_rows:
        unchecked["calibration rows"] = "without the rows themselves"
        if predictor is not None:
            unchecked["fitted model"] = "without the calibration rows, whose scores speak for it"
    return unchecked


def _names_not_recomputed(certificate: WrittenFacts, *, has_predictor: bool) -> Iterator[str]:
    """Name the facts that neither other facts nor the predictor (if there is one) confirm."""
    confirmed = set(CHECKED_ALONE)
    if has_predictor:
        confirmed |= TOLD_BY_STRUCTURE | {"scores_fingerprint"}

    # 1. Facts of the calibration; a predictor confirms all of them.
    if not has_predictor:
        for name in sorted(fact.name for fact in fields(certificate.calibration)):
            if name not in confirmed:
                yield "threshold values" if name == "thresholds" else name

    # 2. Facts of the structure and of the rows, with a name for each role.
    for record in (certificate.structure, certificate.provenance):
        for name in (fact.name for fact in fields(record)):
            if name in ("rows", "row_fingerprints"):
                yield from _names_by_role(certificate, name, has_predictor=has_predictor)
            elif name not in confirmed:
                yield name


def _names_by_role(certificate: WrittenFacts, name: str, *, has_predictor: bool) -> Iterator[str]:
    """Name a fact of each role, such as "rows.train"; a predictor confirms "rows.calibrate"."""
    for role in getattr(certificate.provenance, name):
        full_name = f"{name}.{role}"
        if not (has_predictor and full_name == "rows.calibrate"):
            yield full_name
