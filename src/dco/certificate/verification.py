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

from dco.calibration.calibration import Calibration, batch_rounding
from dco.calibration.rules.rule import RULES
from dco.certificate.facts import (
    VOIDED_BY,
    CertifiedThreshold,
    calibrated_facts,
    certified_threshold,
    scores_fingerprint,
    structure_digest,
)
from dco.certificate.words import as_plain, words
from dco.foundations.arrays import Floats
from dco.foundations.display import ShownAsPrinted, counted
from dco.foundations.fingerprints import role_fingerprint, row_fingerprints
from dco.foundations.ranks import as_rational
from dco.foundations.tables import take_features
from dco.scores.names import score_label

if TYPE_CHECKING:
    from dco.certificate.certificate import Certificate
    from dco.predictor import DecoupledPredictor

_LAW_DIGITS = 1e-9  # points of a Beta law, from one version of SciPy to the next
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
            set(found) - {"reason", "guarantee"},
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
class Check:
    """One thing that was recomputed."""

    name: str
    holds: bool
    detail: str


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
    """What follows from other fields of the certificate: the guarantee's name, ranks, laws, words,
    the seal.
    """
    wrong = _wrong_levels(certificate)
    yield from wrong
    if not wrong:
        rule = RULES[certificate.rule]
        promised = rule.certifies if certificate.reason is None else "none"
        yield _same(
            "guarantee", certificate.guarantee, promised, "guarantee that goes with rule and reason"
        )
        for entry in certificate.thresholds:
            yield from _law_checks(certificate, entry)
        for name, text in words(certificate).items():
            yield Check(
                name, certificate.written.get(name, text) == text, f"the other fields say: {text}"
            )
    calibrate, total = (
        certificate.rows.get("calibrate", 0),
        sum(entry.n for entry in certificate.thresholds),
    )
    possible = total <= calibrate if certificate.grouped else total == calibrate
    unit = "groups" if certificate.grouped else "scores"
    yield Check("rows", possible, f"{total} {unit} from {calibrate} calibration rows")
    if certificate.groups:
        whole = (
            sum(rows for _, rows in certificate.groups) % max(calibrate, 1) == 0
            and min(certificate.groups)[1] > 0
        )
        yield Check(
            "overlapping groups", whole, "each calibration row is in one group of each condition"
        )
    if certificate.condition_on == repr("label"):
        enough = (certificate.labels or 0) >= len(certificate.thresholds)
        yield Check("labels", enough, "each threshold is for a label that the fit knows")
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


def _wrong_levels(certificate: Certificate) -> list[Check]:
    """A rule that is not known, a delta that its rule does not have or need, levels that are no
    probabilities.
    """
    rule, levels = (
        RULES.get(certificate.rule),
        {"alpha": certificate.alpha, "delta": certificate.delta},
    )
    if rule is None:
        return [Check("rule", False, f"there is no rule {certificate.rule!r}")]
    if rule.needs_delta == (certificate.delta is None):
        return [
            Check(
                "delta",
                False,
                f"the rule {certificate.rule} {'has' if rule.needs_delta else 'has no'} delta",
            )
        ]
    wrong = {
        name: value for name, value in levels.items() if value is not None and not 0 < value < 1
    }
    return [Check(name, False, f"{value} is not between 0 and 1") for name, value in wrong.items()]


def _law_checks(certificate: Certificate, entry: CertifiedThreshold) -> Iterator[Check]:
    name = "rank" if entry.group is None else f"rank of group {entry.group}"
    rule = RULES[certificate.rule]
    unranked = bool(certificate.groups or certificate.weights) or (
        certificate.grouped and rule.weighs
    )
    if (entry.rank is None) != unranked:
        why = (
            "only thresholds of overlapping groups, weights, and rows that "
            "belong together have no rank"
        )
        yield Check(name, False, why)
    elif entry.rank is not None:
        delta = None if certificate.delta is None else as_rational(certificate.delta, name="delta")
        right = rule.rank(entry.n, alpha=certificate.alpha, delta=delta)
        yield _same(
            name, entry.rank, right, f"rank for n = {entry.n}, alpha = {certificate.alpha:g}"
        )
        if right > entry.n:
            yield Check(
                f"{name}: infinite",
                entry.value == math.inf,
                "rank n + 1 asks for an infinite threshold",
            )
    law = certified_threshold(
        entry.value, rank=entry.rank, n=entry.n, tied=not entry.expected_is_exact, group=entry.group
    )
    what = (
        "no rank, no law"
        if entry.rank is None
        else f"mean, 5 % and 95 % points for rank {entry.rank} of {entry.n}"
    )
    yield Check(f"{name}: coverage law", _alike(replace(entry, value=law.value), law), what)


def _alike(stated: CertifiedThreshold, right: CertifiedThreshold) -> bool:
    """Whether two thresholds agree; points of their laws may differ in the last digits."""
    pairs = zip(vars(stated).items(), vars(right).values(), strict=True)
    laws = ("expected_coverage", "coverage_low", "coverage_high")
    return all(
        a == b or (name in laws and None not in (a, b) and abs(a - b) < _LAW_DIGITS)
        for (name, a), b in pairs
    )


# ----------------------------------------------------------------------------------------------
# with the predictor


def _recomputed(own: DecoupledPredictor) -> dict[str, Any]:
    """The facts that the predictor itself tells: its structure, its model, the level it was asked
    for, what it deploys.
    """
    structure, kept, before = own.structure, own.calibration, own.certificate
    now = own.statement.thresholds(kept)
    facts = calibrated_facts(own.statement, kept, now, rows=before.rows)
    if len(facts["thresholds"]) == len(before.thresholds) and all(
        map(_alike, before.thresholds, facts["thresholds"])
    ):
        facts["thresholds"] = before.thresholds  # to the last digit
    rows = before.row_fingerprints
    digest = structure_digest(
        candidate=structure.name,
        model=before.model,
        score=score_label(structure.score),
        condition_on=structure.label_clusters or structure.condition_on,
        fitted_on=[rows.get("train", ""), rows.get("tune", "") if before.refit else ""],
        seed=structure.uniform_seed,
    )
    return facts | {
        "structure_fingerprint": digest,
        "labels": None if structure.classes is None else len(structure.classes),
        "candidate": structure.name,
        "tuning_threshold": own.ranking.threshold_of(structure.name),
    }


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
    agree, shown = True, {_CALLED.get(name, name) for name in found} | {"rows.calibrate"}
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
        _same("calibration rows", certificate.rows.get("calibrate"), len(hashes), "number of rows"),
        _same(
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
    scores, groups = own.calibration_scores(X, y)
    kept, found = np.sort(own.calibration.scores), np.sort(scores)
    checks = [
        _same(
            "scores",
            certificate.scores_fingerprint,
            scores_fingerprint(scores),
            "fingerprint of the scores",
        )
    ]
    slack = _rounding_slack(own, X, y, scores) if rounding and not checks[0].holds else 0.0
    if (
        not checks[0].holds
        and certificate.scores_fingerprint == scores_fingerprint(kept)
        and _agree(kept, found, slack)
    ):
        checks = [
            Check(
                "scores", True, f"they agree with the scores kept, to rounding (within {slack:.1g})"
            )
        ]
    if own.calibration.clusters is not None or own.statement.weights is not None:
        # which row speaks for its group is known to the predictor alone: see `_comparisons`
        return checks
    right = own.statement.thresholds(Calibration(scores, groups))
    for entry in certificate.thresholds:
        name = "threshold" if entry.group is None else f"threshold of group {entry.group}"
        n, value = (
            (right[entry.group].n, right[entry.group].value)
            if entry.group in right
            else (0, math.nan)
        )
        if value != entry.value and _agree(
            entry.value, value, slack * (1 + len(certificate.groups))
        ):
            checks.append(
                Check(name, True, f"from {n} scores: {value}, which is {entry.value} to rounding")
            )
        else:
            checks.append(_same(name, entry.value, value, f"from {n} scores"))
    return checks


def _rounding_slack(own: DecoupledPredictor, X: Any, y: Any, scores: Floats) -> float:
    """How far scores of the same rows under the same model may differ by rounding alone.

    A part in 10^12 of the largest score (10^5 where the model answers in single precision). It
    grows when targets are far from 0 in units of their spread: a residual inherits the rounding of
    the numbers that it is the difference of. It is at least what can be seen here: a model may
    compute in single precision and answer in double.
    """
    seen = batch_rounding(
        lambda rows, targets: own.calibration_scores(rows, targets)[0], X, np.asarray(y), scores
    )
    kept = np.abs(own.calibration.scores[np.isfinite(own.calibration.scores)])
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


_FOLLOWS = {
    "rule",
    "alpha",
    "delta",
    "seal_opened",
    "voided_by",
    "format",
    "written",
}
# such as `reason` and `distinct`, which no number shows
_REST_ON_FACTS = {"statement", "assumption", "guarantee"}


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
    for name in ["statement", "assumption", *(entry.name for entry in fields(certificate))]:
        if name in _FOLLOWS | told - {"rows"} or (
            own is not None and own.certificate is not certificate
        ):
            continue
        if name in _REST_ON_FACTS:
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


def _same(name: str, stated: object, found: object, what: str) -> Check:
    if stated == found:
        return Check(name, True, f"{what}: {found}")
    return Check(name, False, f"{what}: the certificate says {stated}, recomputed {found}")
