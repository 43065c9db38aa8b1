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
from dco.calibration.facts import CalibrationFacts, Check, compare, name_check
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
# Targets that lie this many times their spread from 0 double that share, since a residual inherits
# the rounding of the numbers that it is the difference of.
OFFSET_THAT_DOUBLES_ROUNDING = 256

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
    """Check a certificate by itself, against its predictor, and against the calibration rows.

    Without predictor or rows the checks that need them are left out, and the report says so.
    """
    # 1. What follows from other fields of the certificate.
    checks = list(check_arithmetic(certificate))

    # 2. What the predictor tells. A check that failed in step 1 is not reported again.
    if predictor is not None:
        failed_names = {check.name for check in checks if not check.holds}
        comparisons = compare_with_predictor(certificate, predictor)
        checks += [check for check in comparisons if check.name not in failed_names]

    # 3. What the calibration rows tell, and their scores under the predictor.
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
    """Check what follows from other fields of the certificate, without predictor or rows."""
    provenance = certificate.provenance

    # 1. Levels, ranks and laws of coverage.
    checks_of_numbers = list(
        certificate.calibration.checks(
            n_rows=provenance.n_calibration_rows, n_labels=certificate.structure.labels
        )
    )
    yield from checks_of_numbers

    # 2. The sentences, which can be made if the levels make sense.
    has_valid_levels = all(check.holds for check in checks_of_numbers if check.name in LEVELS)
    if has_valid_levels:
        for name, text in words(certificate).items():
            is_stated = certificate.written.get(name, text) == text
            yield Check(name, is_stated, f"the other fields say: {text}")

    # 3. The calibration rows were sealed, and opened once.
    n_requests = max(provenance.seal_opened, len(provenance.seal_log))
    detail = f"calibration rows were opened {counted(n_requests, 'time')}"
    yield Check("seal", _was_opened_once(certificate), detail)

    # 4. The list of what would make the statement untrue is complete.
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
    """The facts of a predictor, in place of those that a certificate states.

    They are computed again where the predictor has what it takes, and copied from its own
    certificate where not.
    """

    calibration: CalibrationFacts
    structure: StructureFacts
    provenance: Provenance


def recompute_facts(predictor: Certified) -> RecomputedFacts:
    """Compute the facts of a predictor anew, from its model, its statement and its scores.

    Facts that none of these tell (the seed, the log of the seal) are copied from its certificate.
    """
    structure = predictor.structure
    own = predictor.certificate
    scored = predictor.calibration.scored
    calibration_facts = predictor.statement.calibrate(scored).facts()

    return RecomputedFacts(
        calibration=_ignore_last_digits(calibration_facts, own.calibration),
        structure=replace(
            own.structure,
            candidate=structure.name,
            labels=None if structure.classes is None else len(structure.classes),
            tuning_threshold=predictor.ranking.threshold_of(structure.name),
            structure_fingerprint=_recompute_digest(structure, own),
        ),
        provenance=replace(
            own.provenance,
            rows={**own.provenance.rows, "calibrate": len(scored)},
            scores_fingerprint=scores_fingerprint(scored.scores),
        ),
    )


def _recompute_digest(structure: Structure, certificate: WrittenFacts) -> str:
    """Digest the names of a structure again, with the rows that its certificate says it fitted."""
    fingerprints = certificate.provenance.row_fingerprints
    training_rows = fingerprints.get("train", "")
    tuning_rows = fingerprints.get("tune", "") if certificate.structure.refit else ""
    return structure_digest(
        candidate=structure.name,
        model=certificate.structure.model,
        score=score_label(structure.score),
        fitted_on=[training_rows, tuning_rows],
        seed=structure.uniform_seed,
    )


def _ignore_last_digits(computed: CalibrationFacts, stated: CalibrationFacts) -> CalibrationFacts:
    """Return the computed facts, so that they equal the stated ones where rounding alone differs.

    Laws of coverage may differ in their last digits: if all thresholds agree but for these, the
    stated thresholds take the place of the computed ones.
    """
    if len(stated.thresholds) != len(computed.thresholds):
        return computed
    for stated_threshold, threshold in zip(stated.thresholds, computed.thresholds, strict=True):
        if not stated_threshold.agrees_with(threshold):
            return computed
    return replace(computed, thresholds=stated.thresholds)


def compare_with_predictor(certificate: WrittenFacts, predictor: Certified) -> Iterator[Check]:
    """Compare each fact that a certificate states with that of a predictor.

    A fact that differs gives a check that fails. One that agrees gives a check that holds if the
    predictor tells it by itself; facts that it only copied from its certificate are passed over.
    """
    stated_texts = facts_as_text(certificate)
    expected_texts = facts_as_text(recompute_facts(predictor))
    shown_names = _names_told_by_predictor(certificate)

    all_agree = True
    for name in stated_texts | expected_texts:
        # "deployed threshold: rank" is a part of "deployed threshold". If only one side has the
        # threshold, that is one difference, and its parts are passed over.
        threshold_name, _, _ = name.rpartition(": ")
        is_part = threshold_name != ""
        if is_part and not (threshold_name in stated_texts and threshold_name in expected_texts):
            continue

        stated = stated_texts.get(name, "nothing")
        expected = expected_texts.get(name, "nothing")
        is_threshold = name.startswith("deployed") and not is_part
        if stated != expected:
            all_agree = False
            detail = f"the certificate says {stated}, the predictor's own says {expected}"
            yield Check(name, False, detail)
        elif is_threshold or name in shown_names:
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
    """Write every fact as JSON, by the name of the check that compares it.

    Most facts keep the name of their field: {"alpha": "0.1", ...}. The items of a mapping have
    names of their own ("rows.train"), and so have the parts of a threshold ("deployed threshold"
    is its value, "deployed threshold: rank" its rank).
    """
    values: dict[str, Any] = {"kind": facts.calibration.kind}
    for record in (facts.calibration, facts.structure, facts.provenance):
        values |= plain(asdict(record), nan=ValueError("a certificate holds no NaN"))
    value_of_check: dict[str, Any] = {}

    # 1. The seal: how often it was opened, and each request.
    value_of_check["seal"] = [values.pop("seal_opened"), *values.pop("seal_log")]

    # 2. Each threshold, and its parts.
    for threshold in values.pop("thresholds"):
        threshold_name = name_check("deployed threshold", threshold["group"])
        for part, value in threshold.items():
            is_value = part == "value"
            name = threshold_name if is_value else f"{threshold_name}: {part}"
            value_of_check[name] = value

    # 3. All other facts. An empty mapping is a fact as well.
    for name, value in values.items():
        if isinstance(value, dict) and value:
            for key, item in value.items():
                value_of_check[f"{name}.{key}"] = item
        else:
            value_of_check[CHECK_NAMES.get(name, name)] = value

    return {
        name: json.dumps(value, sort_keys=True, ensure_ascii=False)
        for name, value in value_of_check.items()
    }


# ----------------------------------------------------------------------------------- with the rows


def check_rows(certificate: WrittenFacts, X: Any, y: Any) -> tuple[Check, Check]:
    """Check that these are the calibration rows: first their number, then their fingerprint.

    The fingerprint is a digest of all rows, in whatever order they come.
    """
    hashes = row_fingerprints(X, y)
    stated_number = certificate.provenance.rows.get("calibrate")
    stated_fingerprint = certificate.provenance.row_fingerprints.get("calibrate")

    same_number = compare("calibration rows", stated_number, len(hashes), "number of rows")
    same_fingerprint = compare(
        "calibration fingerprint",
        stated_fingerprint,
        role_fingerprint(hashes),
        "fingerprint of the rows",
    )
    return same_number, same_fingerprint


def check_scores(
    certificate: WrittenFacts, X: Any, y: AnyArray, predictor: Certified, *, allow_rounding: bool
) -> list[Check]:
    """Score the calibration rows again, and check the scores and the thresholds that they give.

    Linear algebra may round differently for rows in another order or memory layout. With
    `allow_rounding` (the rows are those of the fit) scores may therefore differ a little from those
    that the predictor has kept. What is deployed is compared exactly, in `compare_with_predictor`.
    """
    scored = predictor.score_rows(X, y)
    stated = certificate.provenance.scores_fingerprint
    computed = scores_fingerprint(scored.scores)

    # 1. The scores: equal, or equal but for rounding.
    check = compare("scores", stated, computed, "fingerprint of the scores")
    rounding = 0.0
    if allow_rounding and not check.holds:
        rounding = largest_rounding(predictor, X, y, scored.scores)
        kept_scores = np.sort(predictor.calibration.scored.scores)
        states_kept_scores = stated == scores_fingerprint(kept_scores)
        if states_kept_scores and _agree(kept_scores, np.sort(scored.scores), rounding):
            detail = f"they agree with the scores kept, to rounding (within {rounding:.1g})"
            check = Check("scores", True, detail)
    checks = [check]

    # 2. The thresholds, where these rows alone decide them.
    if predictor.calibration.follows_from_rows:
        checks += _check_thresholds(certificate, predictor, scored, rounding=rounding)
    return checks


def _check_thresholds(
    certificate: WrittenFacts, predictor: Certified, scored: ScoredRows, *, rounding: float
) -> Iterator[Check]:
    """Check each stated threshold against the one that the scored rows give.

    `rounding` is by how much a score may be off. A threshold that combines several scores may be
    off by as many times as much.
    """
    conditions = predictor.statement.calibrate(scored).conditions
    threshold_of_group = {condition.name: condition.threshold for condition in conditions}
    threshold_rounding = rounding * certificate.calibration.n_scores_combined

    for stated in certificate.calibration.thresholds:
        # A group without rows has no threshold. NaN equals nothing, so its check fails.
        n = 0
        value = math.nan
        if stated.group in threshold_of_group:
            n = threshold_of_group[stated.group].n
            value = threshold_of_group[stated.group].value

        name = name_check("threshold", stated.group)
        if value != stated.value and _agree(stated.value, value, threshold_rounding):
            detail = f"from {n} scores: {value}, which is {stated.value} to rounding"
            yield Check(name, True, detail)
        else:
            yield compare(name, stated.value, value, f"from {n} scores")


def largest_rounding(predictor: Certified, X: Any, y: AnyArray, scores: Floats) -> float:
    """Bound how far two scores of the same row under the same model may differ by rounding.

    The bound is a share of the largest score, by the precision in which the model answers, and at
    least what is observed on these rows: a model may compute in single precision and answer in
    double.
    """
    # 1. What is observed, when rows are scored alone.
    observed_rounding = batch_rounding(predictor.scores, X, y, scores)

    # 2. The precision of the model, by the arrays of one prediction.
    prediction = predictor.structure.prediction(take_features(X, np.arange(1)))
    dtypes = [part.dtype for part in vars(prediction).values() if isinstance(part, np.ndarray)]
    shares = [RELATIVE_ROUNDING[dtype] for dtype in dtypes if dtype in RELATIVE_ROUNDING]
    share = max(shares, default=RELATIVE_ROUNDING[np.dtype(np.float64)])

    # 3. Targets far from 0, in units of their spread, add to the rounding of their residuals.
    offset = 0.0
    if predictor.structure.classes is None and np.std(y) > 0:
        offset = float(np.max(np.abs(y)) / np.std(y)) / OFFSET_THAT_DOUBLES_ROUNDING

    kept_scores = predictor.calibration.scored.scores
    finite_scores = kept_scores[np.isfinite(kept_scores)]
    largest_score = float(np.max(np.abs(finite_scores), initial=0.0))
    return max(observed_rounding, share * (1 + offset) * largest_score)


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
    """List the facts that could not be checked, each with the reason: {"seed": "without ..."}.

    A reason continues the sentence "Not checked ...".
    """
    unchecked: dict[str, str] = {}

    # 1. Facts that stand in this certificate alone. A predictor with a certificate of its own was
    # compared in every fact, and leaves none.
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

    # 2. Facts that the calibration rows would confirm.
    if not has_rows:
        unchecked["calibration rows"] = "without the rows themselves"
        if predictor is not None:
            unchecked["fitted model"] = "without the calibration rows, whose scores speak for it"
    return unchecked


def _names_not_recomputed(certificate: WrittenFacts, *, has_predictor: bool) -> Iterator[str]:
    """List the facts that follow neither from other facts nor from the predictor, if it is there.

    Facts that every role has are listed for each: "rows.train", "rows.tune".
    """
    confirmed = set(CHECKED_ALONE)
    if has_predictor:
        confirmed |= TOLD_BY_STRUCTURE | {"scores_fingerprint", "rows.calibrate"}

    # 1. Facts of the calibration; a predictor confirms all of them.
    if not has_predictor:
        for name in sorted(fact.name for fact in fields(certificate.calibration)):
            if name not in confirmed:
                yield "threshold values" if name == "thresholds" else name

    # 2. Facts of the structure and of the rows.
    names = [fact.name for fact in fields(certificate.structure)]
    for fact in fields(certificate.provenance):
        names += _with_roles(fact.name, certificate.provenance)
    yield from (name for name in names if name not in confirmed)


def _with_roles(name: str, provenance: Provenance) -> list[str]:
    """Name a fact for each role that has it: "rows" -> ["rows.train", "rows.calibrate"]."""
    if name not in ("rows", "row_fingerprints"):
        return [name]
    return [f"{name}.{role}" for role in getattr(provenance, name)]
