"""How a certificate is checked later.

`verify` recomputes what can be recomputed, compares the rest with the predictor's own certificate,
and names what it could not check.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dco.calibration.facts import CalibrationFacts, Check, compare
from dco.calibration.opening import batch_rounding
from dco.certificate.facts import VOIDED_BY, scores_fingerprint
from dco.certificate.words import WORDS, as_plain, words
from dco.foundations.arrays import Floats
from dco.foundations.display import ShownAsPrinted, counted
from dco.foundations.fingerprints import role_fingerprint, row_fingerprints
from dco.foundations.tables import take_features
from dco.scores.names import score_label
from dco.structure import structure_digest

if TYPE_CHECKING:
    from dco.certificate.certificate import Certificate
    from dco.predictor import DecoupledPredictor

# the same rows in another order or memory layout
_ROUNDING = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}


def verify(
    certificate: Certificate, X_cal: Any = None, y_cal: Any = None, *, predictor: Any = None
) -> VerificationReport:
    """`Certificate.verify`: what holds, what does not, and what could not be checked."""
    own: DecoupledPredictor | None = getattr(predictor, "predictor_", predictor)
    checks, told = [*_arithmetic(certificate)], set[str]()
    if own is not None:
        found = _recomputed(own)
        told, failed = (
            set(found),
            {check.name for check in checks if not check.holds},
        )
        checks += [
            check for check in _comparisons(certificate, own, found) if check.name not in failed
        ]
    if X_cal is not None:
        checks += _rows_checks(certificate, X_cal, y_cal)
    if X_cal is not None and own is not None:
        known = all(check.holds for check in checks if check.name == "calibration fingerprint")
        checks += _score_checks(certificate, X_cal, y_cal, own, rounding=known)
    return VerificationReport(
        tuple(checks), _unchecked(certificate, own, told, rows=X_cal is not None)
    )


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
        """One sentence for each reason why something was not checked."""
        names: dict[str, list[str]] = {}
        for name, why in self.unchecked.items():
            names.setdefault(why, []).append(name)
        return [f"Not checked {why}: {', '.join(entries)}." for why, entries in names.items()]

    def __str__(self) -> str:
        lines = [
            f"{'ok  ' if check.holds else 'FAIL'} {check.name}: {check.detail}"
            for check in self.checks
        ]
        return "\n".join([*lines, *self.notes()])


# ---------------------------------------------------------------------------------------------- the
# certificate alone


def _arithmetic(certificate: Certificate) -> Iterator[Check]:
    """Check what follows from other fields of the certificate: ranks, laws, words, the seal."""
    checks = list(
        certificate.calibration.checks(
            n_rows=certificate.rows.get("calibrate", 0), n_labels=certificate.labels
        )
    )
    yield from checks
    if all(check.holds for check in checks if check.name in _LEVELS):
        for name, text in words(certificate).items():
            is_stated = certificate.written.get(name, text) == text
            yield Check(name, is_stated, f"the other fields say: {text}")
    log = certificate.seal_log
    once = certificate.seal_opened == 1 == len(log) and log[0].endswith(
        f"structure {certificate.structure_fingerprint}"
    )
    yield Check(
        "seal",
        once,
        f"calibration rows were opened {counted(max(certificate.seal_opened, len(log)), 'time')}",
    )
    yield Check(
        "voided_by",
        certificate.voided_by == VOIDED_BY,
        "the ways to lose the guarantee that this format lists",
    )


# ----------------------------------------------------------------------------------------------
# with the predictor


def _recomputed(own: DecoupledPredictor) -> dict[str, Any]:
    """Compute the facts that the predictor itself tells: its structure, its model, the level it was
    asked for, what it deploys.
    """
    structure, before = own.structure, own.certificate
    calibration = own.statement.calibrate(own.calibration.scored)
    rows = before.row_fingerprints
    digest = structure_digest(
        candidate=structure.name,
        model=before.model,
        score=score_label(structure.score),
        fitted_on=[rows.get("train", ""), rows.get("tune", "") if before.refit else ""],
        seed=structure.uniform_seed,
    )
    return {
        "calibration": _to_the_last_digit(calibration.facts(), before.calibration),
        "rows": {**before.rows, "calibrate": len(calibration.scored)},
        "scores_fingerprint": scores_fingerprint(calibration.scored.scores),
        "structure_fingerprint": digest,
        "labels": None if structure.classes is None else len(structure.classes),
        "candidate": structure.name,
        "tuning_threshold": own.ranking.threshold_of(structure.name),
    }


def _to_the_last_digit(facts: CalibrationFacts, before: CalibrationFacts) -> CalibrationFacts:
    """Take the thresholds as they were stated, if they agree but for the last digits of laws."""
    pairs = list(zip(before.thresholds, facts.thresholds, strict=False))
    agree = all(stated.agrees_with(computed) for stated, computed in pairs)
    if agree and len(before.thresholds) == len(facts.thresholds):
        return replace(facts, thresholds=before.thresholds)
    return facts


_CALLED = {
    "structure_fingerprint": "structure",
    "model": "model in words",
    "scores_fingerprint": "scores kept",
    "groups": "overlapping groups",
}


def _comparisons(
    certificate: Certificate, own: DecoupledPredictor, found: Mapping[str, Any]
) -> Iterator[Check]:
    """A line for each field that is recomputed, and for any other in which the certificate differs
    from the predictor's.
    """
    here, there = _flat(certificate), _flat(replace(own.certificate, **found))
    told = {*found, *(entry.name for entry in fields(certificate.calibration))}
    agree, shown = True, {_CALLED.get(name, name) for name in told} | {"rows.calibrate"}
    for name in here | there:
        whole = name.rpartition(": ")[0] or name
        if whole != name and not (whole in here and whole in there):
            continue  # of a threshold that only one has
        says, right = here.get(name, "nothing"), there.get(name, "nothing")
        if says != right:
            agree = False
            yield Check(
                name, False, f"the certificate says {says}, the predictor's own says {right}"
            )
        elif name == whole and (name in shown or name.startswith("deployed")):
            yield Check(name, True, f"the predictor has {right}")
    if agree and own.certificate is not certificate:
        yield Check("all fields", True, "they agree with the predictor's own certificate")


def _flat(certificate: Certificate) -> dict[str, str]:
    """Every field as JSON text; entries of mappings and of thresholds under names of their own."""
    result, fields_of = dict[str, Any](), as_plain(certificate)
    fields_of |= fields_of.pop("calibration")
    fields_of["seal"] = [fields_of.pop("seal_opened"), *fields_of.pop("seal_log")]
    for entry in fields_of.pop("thresholds"):
        name = (
            "deployed threshold"
            if entry["group"] is None
            else f"deployed threshold of group {entry['group']}"
        )
        result |= {
            name if key == "value" else f"{name}: {key}": part for key, part in entry.items()
        }
    for name, value in fields_of.items():
        parts = (
            {f"{name}.{key}": part for key, part in value.items()}
            if isinstance(value, dict)
            else {}
        )
        result |= parts or {_CALLED.get(name, name): value}
    return {
        name: json.dumps(value, sort_keys=True, ensure_ascii=False)
        for name, value in result.items()
    }


# ----------------------------------------------------------------------------------------------
# with the rows


def _rows_checks(certificate: Certificate, X: Any, y: Any) -> list[Check]:
    hashes, stated = row_fingerprints(X, y), certificate.row_fingerprints.get("calibrate")
    return [
        compare(
            "calibration rows", certificate.rows.get("calibrate"), len(hashes), "number of rows"
        ),
        compare(
            "calibration fingerprint", stated, role_fingerprint(hashes), "fingerprint of the rows"
        ),
    ]


def _score_checks(
    certificate: Certificate, X: Any, y: Any, own: DecoupledPredictor, *, rounding: bool
) -> list[Check]:
    """Scores of the rows, and the thresholds they give: to the last bit, or to rounding where the
    rows are those of the fit.

    Linear algebra may round differently for rows in another order or memory layout. What is
    deployed is compared exactly by `_comparisons`; here the scores kept are what the new ones must
    agree with.
    """
    scored = own.score_rows(X, np.asarray(y))
    scores = scored.scores
    kept = np.sort(own.calibration.scored.scores)
    fingerprint = scores_fingerprint(scores)
    stated = certificate.scores_fingerprint
    check = compare("scores", stated, fingerprint, "fingerprint of the scores")

    slack = 0.0
    if rounding and not check.holds:
        slack = _rounding_slack(own, X, y, scores)
        if stated == scores_fingerprint(kept) and _agree(kept, np.sort(scores), slack):
            detail = f"they agree with the scores kept, to rounding (within {slack:.1g})"
            check = Check("scores", True, detail)

    checks = [check]
    if not own.calibration.follows_from_rows:
        return checks  # the predictor alone knows the rest: see `_comparisons`

    recomputed = {
        condition.name: condition.threshold
        for condition in own.statement.calibrate(scored).conditions
    }
    slack *= certificate.calibration.n_scores_combined
    for entry in certificate.thresholds:
        name = "threshold" if entry.group is None else f"threshold of group {entry.group}"
        n, value = 0, math.nan
        if entry.group in recomputed:
            n, value = recomputed[entry.group].n, recomputed[entry.group].value
        if value != entry.value and _agree(entry.value, value, slack):
            detail = f"from {n} scores: {value}, which is {entry.value} to rounding"
            checks.append(Check(name, True, detail))
        else:
            checks.append(compare(name, entry.value, value, f"from {n} scores"))
    return checks


def _rounding_slack(own: DecoupledPredictor, X: Any, y: Any, scores: Floats) -> float:
    """How far scores of the same rows under the same model may differ by rounding alone.

    A part in 10^12 of the largest score (10^5 where the model answers in single precision). It
    grows when targets are far from 0 in units of their spread: a residual inherits the rounding of
    the numbers that it is the difference of. It is at least what can be seen here: a model may
    compute in single precision and answer in double.
    """
    seen = batch_rounding(own.scores, X, np.asarray(y), scores)
    kept = np.abs(own.calibration.scored.scores[np.isfinite(own.calibration.scored.scores)])
    record = own.structure.prediction(take_features(X, np.arange(1)))
    parts = [part.dtype for part in vars(record).values() if isinstance(part, np.ndarray)]
    digits = max(
        (_ROUNDING[dtype] for dtype in parts if dtype in _ROUNDING),
        default=_ROUNDING[np.dtype(np.float64)],
    )
    target, offset = np.asarray(y), 0.0
    if own.structure.classes is None and np.std(target) > 0:
        # 1e-12 / 256 is 18 units in the last place
        offset = float(np.max(np.abs(target)) / np.std(target)) / 256
    return max(seen, digits * (1 + offset) * float(np.max(kept, initial=0.0)))


def _agree(a: Any, b: Any, slack: float) -> bool:
    """Whether numbers are equal (infinite ones exactly) or differ by at most `slack`."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        return False
    with np.errstate(invalid="ignore"):
        return bool(np.all((first == second) | (np.abs(first - second) <= slack)))


# ----------------------------------------------------------------------------------------------
# what is left open


_LEVELS = {"alpha", "delta", "rule"}
_FOLLOWS = _LEVELS | {"seal_opened", "voided_by", "format", "written"}


def _unchecked(
    certificate: Certificate, own: DecoupledPredictor | None, told: set[str], *, rows: bool
) -> dict[str, str]:
    """{what: why}: fields that nothing given here speaks for; `told` are those that the predictor
    tells.
    """
    result: dict[str, str] = {}
    alone = "without the predictor"
    if own is not None:
        alone = "by anything but this certificate (compare a copy that was kept elsewhere)"
    calibration = {entry.name for entry in fields(certificate.calibration)}
    if "calibration" in told:
        told = told | calibration
    names = [entry.name for entry in fields(certificate) if entry.name != "calibration"]
    for name in [*WORDS, *sorted(calibration), *names]:
        if name in _FOLLOWS | told - {"rows"} or (
            own is not None and own.certificate is not certificate
        ):
            continue
        if name in WORDS:
            result[name] = "beyond the facts that this certificate states"
            continue
        if name not in ("rows", "row_fingerprints"):
            result["threshold values" if name == "thresholds" else name] = alone
            continue
        known = ("calibrate",) if rows or name in told else ()
        result |= {
            f"{name}.{role}": alone for role in getattr(certificate, name) if role not in known
        }
    if not rows:
        result["calibration rows"] = "without the rows themselves"
    if own is not None and not rows:
        result["fitted model"] = "without the calibration rows, whose scores speak for it"
    return result
