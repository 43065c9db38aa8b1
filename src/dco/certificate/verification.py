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

# The fields that say which coverage is wanted, and by which rule the threshold follows from it.
LEVELS = {"alpha", "delta", "rule"}
# Fields that are checked without the predictor, by the other fields of the certificate.
CHECKED_ALONE = LEVELS | {"seal_opened"}
# Fields of the structure (the model and the score that were chosen) that are computed again from
# the predictor.
RECOMPUTED_FROM_STRUCTURE = {"candidate", "labels", "tuning_threshold", "structure_fingerprint"}
# Facts that the calibration rows tell by themselves.
FOLLOWS_FROM_ROWS = {"rows.calibrate", "row_fingerprints.calibrate"}
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

    # 1. The numbers: levels, ranks of the thresholds, and the coverage that follows.
    checks_of_numbers = list(
        certificate.calibration.checks(
            n_rows=provenance.n_calibration_rows, n_labels=certificate.structure.labels
        )
    )
    yield from checks_of_numbers

    # 2. The sentences. They are made again from the other fields, if alpha, delta and the rule make
    # sense. `written` has those of the file if they differ.
    has_valid_levels = all(check.holds for check in checks_of_numbers if check.name in LEVELS)
    if has_valid_levels:
        for name, expected_text in words(certificate).items():
            stated_text = certificate.written.get(name, expected_text)
            detail = f"the other fields say: {expected_text}"
            yield Check(name, stated_text == expected_text, detail)

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
    """Compute the facts of a predictor's certificate again, where the predictor allows it.

    Thresholds follow from its calibration scores, for example. Other facts, such as the seed, are
    copied from the certificate of the fit.
    """
    structure = predictor.structure
    stated = predictor.certificate
    scored = predictor.calibration.scored
    calibration_facts = predictor.statement.calibrate(scored).facts()

    return RecomputedFacts(
        calibration=_ignore_last_digits(calibration_facts, stated.calibration),
        structure=replace(
            stated.structure,
            candidate=structure.name,
            labels=None if structure.classes is None else len(structure.classes),
            tuning_threshold=predictor.ranking.threshold_of(structure.name),
            structure_fingerprint=_recompute_digest(structure, stated),
        ),
        provenance=replace(
            stated.provenance,
            rows={**stated.provenance.rows, "calibrate": len(scored)},
            scores_fingerprint=scores_fingerprint(scored.scores),
        ),
    )


def _recompute_digest(structure: Structure, certificate: WrittenFacts) -> str:
    """Compute the digest of a structure again: a hash that stands for its model, score and rows.

    The rows that the model was fitted on are not here. The certificate has fingerprints of them,
    and says whether the model was fitted again on training and tuning rows together.
    """
    fingerprint_of_role = certificate.provenance.row_fingerprints
    training_rows = fingerprint_of_role.get("train", "")
    tuning_rows = ""
    if certificate.structure.refit:
        tuning_rows = fingerprint_of_role.get("tune", "")

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
    """Compare each fact that a certificate states with the same fact of a predictor.

    A fact that differs gives a check that fails. A fact that agrees gives a check that holds if it
    was computed again from the predictor. If it was only copied from the predictor's certificate
    (`recompute_facts`), the agreement says little, and there is no check.
    """
    stated_texts = facts_as_text(certificate)
    expected_texts = facts_as_text(recompute_facts(predictor))
    recomputed_names = _names_recomputed(certificate)

    all_agree = True
    for name in stated_texts | expected_texts:
        # The parts of a threshold have names such as "deployed threshold: rank". If only one side
        # has this threshold, that is one difference: the threshold, and not each of its parts.
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
        elif is_threshold or name in recomputed_names:
            yield Check(name, True, f"the predictor has {expected}")

    if all_agree and predictor.certificate is not certificate:
        yield Check("all fields", True, "they agree with the predictor's own certificate")


def _names_recomputed(certificate: WrittenFacts) -> set[str]:
    """Name the facts that are computed again from a predictor, as checks call them."""
    field_names = {fact.name for fact in fields(certificate.calibration)}
    field_names |= RECOMPUTED_FROM_STRUCTURE | {"scores_fingerprint"}
    check_names = {CHECK_NAMES.get(name, name) for name in field_names}
    return check_names | {"rows.calibrate"}


def facts_as_text(facts: Facts) -> dict[str, str]:
    """Write every fact of a certificate as JSON text: {"alpha": "0.1", "rows.train": "120", ...}.

    The texts of two certificates are compared one by one, and the keys name the comparisons. A key
    is the name of a field, or a name for a part of it: "rows.train" for an item of a mapping,
    "deployed threshold" for the value of a threshold and "deployed threshold: rank" for its rank.
    """
    # 1. Collect the fields of the three records; their names differ.
    value_of_field: dict[str, Any] = {"kind": facts.calibration.kind}
    for record in (facts.calibration, facts.structure, facts.provenance):
        value_of_field |= plain(asdict(record), nan=ValueError("a certificate holds no NaN"))
    values: dict[str, Any] = {}

    # 2. The seal of the calibration rows: how often it was opened, and each request.
    values["seal"] = [value_of_field.pop("seal_opened"), *value_of_field.pop("seal_log")]

    # 3. Each threshold, and its parts.
    for threshold in value_of_field.pop("thresholds"):
        threshold_name = name_check("deployed threshold", threshold["group"])
        for part, value in threshold.items():
            name = threshold_name if part == "value" else f"{threshold_name}: {part}"
            values[name] = value

    # 4. All other fields, item by item where they are mappings; an empty mapping stays whole.
    for field_name, value in value_of_field.items():
        if isinstance(value, dict) and value:
            for key, item in value.items():
                values[f"{field_name}.{key}"] = item
        else:
            values[CHECK_NAMES.get(field_name, field_name)] = value

    return {
        name: json.dumps(value, sort_keys=True, ensure_ascii=False)
        for name, value in values.items()
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

    The certificate has a fingerprint of the scores, which must be the same. With `allow_rounding`
    (X, y are known to be the rows of the fit) scores may differ a little, since linear algebra
    rounds differently for rows in another order or memory layout. The fingerprint then tells
    nothing, and the scores are compared with those that the predictor has kept.
    """
    scored = predictor.score_rows(X, y)
    stated_fingerprint = certificate.provenance.scores_fingerprint
    computed_fingerprint = scores_fingerprint(scored.scores)

    # 1. Compare the fingerprints.
    check_of_scores = compare(
        "scores", stated_fingerprint, computed_fingerprint, "fingerprint of the scores"
    )

    # 2. If they differ, compare the scores themselves.
    rounding = 0.0
    if allow_rounding and not check_of_scores.holds:
        rounding = largest_rounding(predictor, X, y, scored.scores)
        kept_scores = np.sort(predictor.calibration.scored.scores)
        are_kept_scores_stated = stated_fingerprint == scores_fingerprint(kept_scores)
        if are_kept_scores_stated and _agree(kept_scores, np.sort(scored.scores), rounding):
            detail = f"they agree with the scores kept, to rounding (within {rounding:.1g})"
            check_of_scores = Check("scores", True, detail)

    # 3. Check the thresholds, if they follow from these rows alone.
    checks = [check_of_scores]
    if predictor.calibration.follows_from_rows:
        checks += _check_thresholds(certificate, predictor, scored, rounding=rounding)
    return checks


def _check_thresholds(
    certificate: WrittenFacts, predictor: Certified, scored: ScoredRows, *, rounding: float
) -> Iterator[Check]:
    """Check each threshold of a certificate against the one that the scored rows give.

    There is one threshold, or one for each group of rows. `rounding` is the most by which a score
    may differ. A threshold that is a sum of several scores may differ by as many times as much.
    """
    conditions = predictor.statement.calibrate(scored).conditions
    threshold_of_group = {condition.name: condition.threshold for condition in conditions}
    rounding_of_threshold = rounding * certificate.calibration.n_scores_combined

    for stated in certificate.calibration.thresholds:
        # Without rows of the group there is no threshold: NaN, which equals nothing, fails below.
        n = 0
        value = math.nan
        if stated.group in threshold_of_group:
            n = threshold_of_group[stated.group].n
            value = threshold_of_group[stated.group].value

        name = name_check("threshold", stated.group)
        if value != stated.value and _agree(stated.value, value, rounding_of_threshold):
            detail = f"from {n} scores: {value}, which is {stated.value} to rounding"
            yield Check(name, True, detail)
        else:
            yield compare(name, stated.value, value, f"from {n} scores")


def largest_rounding(predictor: Certified, X: Any, y: AnyArray, scores: Floats) -> float:
    """Bound how far two scores of the same row under the same model may differ by rounding.

    `scores` are those of the rows (X, y). The bound is a small share of the largest calibration
    score. It is larger if the model answers in single precision, and at least as large as what is
    observed on these rows: a model may compute in single precision and answer in double.
    """
    # 1. Score some rows alone, and observe how much their scores change.
    observed_rounding = batch_rounding(predictor.scores, X, y, scores)

    # 2. Take the share for the precision of the model's answer: the least precise array counts.
    share = _relative_rounding(predictor.structure, take_features(X, np.arange(1)))

    # 3. A residual is the difference of two numbers, and has their rounding. Raise the share if
    # targets lie far from 0, compared with how much they vary.
    is_regression = predictor.structure.classes is None
    if is_regression and np.std(y) > 0:
        distance_from_0 = float(np.max(np.abs(y)) / np.std(y))
        share *= 1 + distance_from_0 / OFFSET_THAT_DOUBLES_ROUNDING

    kept_scores = predictor.calibration.scored.scores
    finite_scores = kept_scores[np.isfinite(kept_scores)]
    largest_score = float(np.max(np.abs(finite_scores), initial=0.0))
    return max(observed_rounding, share * largest_score)


def _relative_rounding(structure: Structure, X: Any) -> float:
    """Return the share of a score that rounding may change, by the arrays that a model returns."""
    prediction = structure.prediction(X)
    dtypes = [part.dtype for part in vars(prediction).values() if isinstance(part, np.ndarray)]
    shares = [RELATIVE_ROUNDING[dtype] for dtype in dtypes if dtype in RELATIVE_ROUNDING]
    return max(shares, default=RELATIVE_ROUNDING[np.dtype(np.float64)])


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
    """List the facts of a certificate that could not be checked, each with the reason.

    For example {"seed": "without the predictor"}: a reason continues the sentence "Not checked".
    Checks had the `predictor`, if it is not None, and the calibration rows, if `has_rows`.
    """
    unchecked: dict[str, str] = {}

    # 1. Facts that were compared with nothing outside this certificate. If the predictor brought
    # another copy of the certificate, every fact was compared with that.
    has_other_copy = predictor is not None and predictor.certificate is not certificate
    if not has_other_copy:
        unchecked |= dict.fromkeys(WORDS, "beyond the facts that this certificate states")
        reason = "without the predictor"
        if predictor is not None:
            reason = "by anything but this certificate (compare a copy that was kept elsewhere)"

        names = _names_not_recomputed(certificate, has_predictor=predictor is not None)
        if has_rows:
            names = [name for name in names if name not in FOLLOWS_FROM_ROWS]
        unchecked |= dict.fromkeys(names, reason)

    # 2. Facts that take the calibration rows themselves.
    if not has_rows:
        unchecked["calibration rows"] = "without the rows themselves"
        if predictor is not None:
            unchecked["fitted model"] = "without the calibration rows, whose scores speak for it"
    return unchecked


def _names_not_recomputed(certificate: WrittenFacts, *, has_predictor: bool) -> list[str]:
    """Name the facts that cannot be computed again from other facts, nor from the predictor.

    `has_predictor` says whether there is one. A fact that every role has is named for each role:
    "rows.train", "rows.tune".
    """
    # 1. With a predictor all facts of the calibration are computed again.
    recomputed = set(CHECKED_ALONE)
    calibration_names = sorted(fact.name for fact in fields(certificate.calibration))
    if has_predictor:
        recomputed |= RECOMPUTED_FROM_STRUCTURE | {"scores_fingerprint", "rows.calibrate"}
        recomputed |= set(calibration_names)

    # 2. List all facts: of the calibration, of the structure, and of the rows.
    names = [*calibration_names, *(fact.name for fact in fields(certificate.structure))]
    for fact in fields(certificate.provenance):
        names += _with_roles(fact.name, certificate.provenance)

    # 3. Leave out those that are computed again.
    names = [name for name in names if name not in recomputed]
    return ["threshold values" if name == "thresholds" else name for name in names]


def _with_roles(name: str, provenance: Provenance) -> list[str]:
    """Name a fact for each role that has it: "rows" -> ["rows.train", "rows.calibrate"]."""
    if name not in ("rows", "row_fingerprints"):
        return [name]
    return [f"{name}.{role}" for role in getattr(provenance, name)]
