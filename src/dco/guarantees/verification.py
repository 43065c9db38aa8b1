"""How a certificate is checked later.

`verify` recomputes what can be recomputed, compares the rest with the predictor's own certificate, and names what it could
not check.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np

from dco.foundations.arrays import AnyArray, Floats
from dco.foundations.display import ShownAsPrinted, counted
from dco.foundations.ranks import as_rational, order_statistic
from dco.guarantees.calibration import Calibration, Statement, batch_rounding
from dco.guarantees.facts import (
    VOIDED_BY,
    CertifiedThreshold,
    Facts,
    certified_threshold,
    certified_thresholds,
    model_fingerprint,
    scores_fingerprint,
    statement_facts,
    structure_digest,
    weight_facts,
)
from dco.guarantees.rules.rule import RULES
from dco.guarantees.words import as_plain, words
from dco.rows.conditions import group_sizes
from dco.rows.fingerprints import role_fingerprint, row_fingerprints
from dco.rows.rows import take_features
from dco.scores.score import score_label

_LAW_DIGITS = 1e-9  # points of a Beta law, from one version of SciPy to the next
_ROUNDING = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}  # the same rows in another order or memory layout


def verify(certificate: Facts, X_cal: Any = None, y_cal: Any = None, *, predictor: Any = None) -> VerificationReport:
    """`Certificate.verify`: what holds, what does not, and what could not be checked."""
    own: Scorer | None = getattr(predictor, "predictor_", predictor)
    checks = [*_arithmetic(certificate)]
    if own is not None:
        failed = {check.name for check in checks if not check.holds}  # one line per mismatch
        checks += [check for check in _predictor_checks(certificate, own) if check.name not in failed]
        checks += _other_fields(certificate, own, {check.name for check in checks if not check.holds})
    if X_cal is not None:
        checks += _rows_checks(certificate, X_cal, y_cal)
    if X_cal is not None and own is not None:
        known = all(check.holds for check in checks if check.name in ("calibration fingerprint", "model"))
        checks += _score_checks(certificate, X_cal, y_cal, own, rounding=known)
    return VerificationReport(tuple(checks), _unchecked(certificate, own, rows=X_cal is not None))


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
        lines = [f"{'ok  ' if check.holds else 'FAIL'} {check.name}: {check.detail}" for check in self.checks]
        return "\n".join([*lines, *self.notes()])


class Scorer(Protocol):
    """What `verify` asks of a predictor."""

    structure: Any
    calibration: Calibration
    statement: Statement
    certificate: Facts
    ranking: Any

    def calibration_scores(self, X: Any, y: Any) -> tuple[Floats, AnyArray | None]:
        """Scores of the rows as `calibrate` keeps them, and what the group of each is called (None without groups)."""
        ...


# ---------------------------------------------------------------------------------------------- the certificate alone


def _arithmetic(certificate: Facts) -> Iterator[Check]:
    """What follows from other fields of the certificate: the guarantee's name, ranks, laws, words, the seal."""
    wrong = _wrong_levels(certificate)
    yield from wrong
    if not wrong:
        rule = RULES[certificate.rule]
        promised = rule.certifies if certificate.reason is None else "none"
        yield _same("guarantee", certificate.guarantee, promised, "guarantee that goes with rule and reason")
        if certificate.simultaneous:
            yield Check("simultaneous", rule.needs_delta, "all groups at once is a PAC statement")
        for entry in certificate.thresholds:
            yield from _law_checks(certificate, entry)
        for name, text in words(certificate).items():
            yield Check(name, certificate.written.get(name, text) == text, f"the other fields say: {text}")
    calibrate, total = certificate.rows.get("calibrate", 0), sum(entry.n for entry in certificate.thresholds)
    scores = calibrate * (len(certificate.thresholds) if certificate.joint else 1)  # all, for each candidate
    possible = total <= scores if certificate.grouped else total == scores
    unit = "groups" if certificate.grouped else "scores"
    yield Check("rows", possible, f"{total} {unit} from {calibrate} calibration rows")
    if certificate.groups:
        whole = sum(rows for _, rows in certificate.groups) % max(calibrate, 1) == 0 and min(certificate.groups)[1] > 0
        yield Check("overlapping groups", whole, "each calibration row is in one group of each condition")
    if certificate.condition_on == repr("label"):
        enough = (certificate.labels or 0) >= len(certificate.thresholds)
        yield Check("labels", enough, "each threshold is for a label that the fit knows")
    log = certificate.seal_log
    once = certificate.seal_opened == 1 == len(log) and log[0].endswith(f"structure {certificate.structure_fingerprint}")
    yield Check("seal", once, f"calibration rows were opened {counted(max(certificate.seal_opened, len(log)), 'time')}")
    yield Check("voided_by", certificate.voided_by == VOIDED_BY, "the ways to lose the guarantee that this format lists")


def _wrong_levels(certificate: Facts) -> list[Check]:
    """A rule that is not known, a delta that its rule does not have or need, levels that are no probabilities."""
    if certificate.rule not in RULES:
        return [Check("rule", False, f"there is no rule {certificate.rule!r}")]
    if RULES[certificate.rule].needs_delta == (certificate.delta is None):
        return [
            Check("delta", False, f"the rule {certificate.rule} {'has' if certificate.delta is None else 'has no'} delta")
        ]
    levels = {"alpha": certificate.alpha, "delta": certificate.delta}
    return [
        Check(name, False, f"{value} is not between 0 and 1")
        for name, value in levels.items()
        if value is not None and not 0 < value < 1
    ]


def _law_checks(certificate: Facts, entry: CertifiedThreshold) -> Iterator[Check]:
    name = "rank" if entry.group is None else f"rank of group {entry.group}"
    rule = RULES[certificate.rule]
    unranked = bool(certificate.groups or certificate.weights) or certificate.joint or (certificate.grouped and rule.weighs)
    if (entry.rank is None) != unranked:
        why = "only thresholds of overlapping groups, joint selection, weights, and rows that belong together have no rank"
        yield Check(name, False, why)
    elif entry.rank is not None:
        delta = None if certificate.delta is None else as_rational(certificate.delta, name="delta")
        if delta is not None and certificate.simultaneous:
            delta /= len(certificate.thresholds)
        right = rule.rank(entry.n, alpha=certificate.alpha, delta=delta)
        yield _same(name, entry.rank, right, f"rank for n = {entry.n}, alpha = {certificate.alpha:g}")
        if right > entry.n:
            yield Check(f"{name}: infinite", entry.value == math.inf, "rank n + 1 asks for an infinite threshold")
    law = certified_threshold(entry.value, rank=entry.rank, n=entry.n, tied=not entry.expected_is_exact, group=entry.group)
    what = "no rank, no law" if entry.rank is None else f"mean, 5 % and 95 % points for rank {entry.rank} of {entry.n}"
    yield Check(f"{name}: coverage law", not _differing(entry, law), what)


def _differing(stated: CertifiedThreshold, right: CertifiedThreshold) -> list[str]:
    """The fields, but the value, in which two thresholds differ; probabilities may differ in the last digits."""
    names = [entry.name for entry in fields(CertifiedThreshold) if entry.name != "value"]
    return [name for name in names if not _close(getattr(stated, name), getattr(right, name))]


def _close(stated: Any, right: Any) -> bool:
    if isinstance(stated, float) and isinstance(right, float):
        return abs(stated - right) < _LAW_DIGITS
    return bool(stated == right)


# ---------------------------------------------------------------------------------------------- with the predictor


def _predictor_checks(certificate: Facts, own: Scorer) -> Iterator[Check]:
    """What the predictor itself tells: its structure, its model, the level it was asked for, and what it deploys."""
    structure, asked = own.structure, own.statement
    rows = own.certificate.row_fingerprints
    found = structure_digest(
        candidate=structure.name,
        model=own.certificate.model,
        score=score_label(structure.score),
        condition_on=structure.clusters or structure.condition_on,
        fitted_on=[rows.get("train", ""), rows.get("tune", "") if own.certificate.refit else ""],
        seed=structure.uniform_seed,
    )
    yield _same("structure", certificate.structure_fingerprint, found, "fingerprint of the structure")
    if certificate.model_fingerprint is not None:
        model = model_fingerprint(structure.model)
        yield _same("model", certificate.model_fingerprint, model, "fingerprint of the fitted model")
    stated = statement_facts(asked, voided=certificate.reason)
    yield _same("rule", certificate.rule, stated["rule"], "rule that the predictor has")
    yield _same("alpha", certificate.alpha, stated["alpha"], "level that the predictor has")
    yield _same("delta", certificate.delta, stated["delta"], "delta that the predictor has")
    yield _same("simultaneous", certificate.simultaneous, stated["simultaneous"], "all groups at once")
    yield _same("grouped", certificate.grouped, own.calibration.clusters is not None, "rows belong together")
    labels = None if structure.classes is None else len(structure.classes)
    if certificate.weights is not None or asked.weights is not None:
        found_weights = weight_facts(asked, own.calibration)
        yield _same("weights", certificate.weights, found_weights, "weights that the predictor has")
    yield _same("labels", certificate.labels, labels, "number of labels that the predictor knows")
    yield _same("candidate", certificate.candidate, structure.name, "name of the structure")
    tuned = None if own.calibration.seen is not None else own.ranking.threshold_of(structure.name)
    yield _same("tuning_threshold", certificate.tuning_threshold, tuned, "threshold on tuning rows")
    yield from _deployed_checks(certificate, own)


def _deployed_checks(certificate: Facts, own: Scorer) -> Iterator[Check]:
    """The predictor's own calibration: the scores it keeps, and the thresholds that it deploys, to the last bit."""
    kept = own.calibration
    found = scores_fingerprint(kept.scores)
    yield _same("scores kept", certificate.scores_fingerprint, found, "fingerprint of the scores kept")
    n = kept.scores.size // (1 if kept.seen is None else len(kept.parts))
    yield _same("rows.calibrate", certificate.rows.get("calibrate"), n, "number of scores kept")
    groups = tuple(group_sizes(kept.parts).items()) if isinstance(own.statement.condition_on, list) else ()
    yield _same("overlapping groups", certificate.groups, groups, "groups and their calibration rows")
    stated = {entry.group: entry for entry in certificate.thresholds}
    found_now = certified_thresholds(kept, own.statement.thresholds(kept), own.statement)
    deployed = {entry.group: entry for entry in found_now}
    yield _same("groups", sorted(map(str, stated)), sorted(map(str, deployed)), "groups with a threshold")
    for group in [group for group in stated if group in deployed]:
        name = "deployed threshold" if group is None else f"deployed threshold of group {group}"
        yield _same(name, stated[group].value, deployed[group].value, "what prediction sets use")
        for part in _differing(stated[group], deployed[group]):
            yield _same(f"{name}: {part}", getattr(stated[group], part), getattr(deployed[group], part), part)


_CHECKED_AS = {
    "structure_fingerprint": "structure",
    "model_fingerprint": "model",
    "scores_fingerprint": "scores kept",
    "groups": "overlapping groups",
    "seal_opened": "seal",
    "seal_log": "seal",
}


def _other_fields(certificate: Facts, own: Scorer, failed: Iterable[str]) -> Iterator[Check]:
    """A line for each field in which the certificate differs from the predictor's own, unless it has failed already."""
    if own.certificate is certificate:
        return
    here, there = _flat(certificate), _flat(own.certificate)
    differing = [name for name in here | there if here.get(name) != there.get(name)]
    if not differing:
        yield Check("all fields", True, "they agree with the predictor's own certificate")
    thresholds = any(name.startswith(("deployed", "groups", "rank")) for name in failed)
    for name in differing:
        known = thresholds if name.startswith("thresholds") else _CHECKED_AS.get(name, name) in failed
        if not known:
            says, right = here.get(name, "nothing"), there.get(name, "nothing")
            yield Check(name, False, f"the certificate says {says}, the predictor's own says {right}")


def _flat(certificate: Facts) -> dict[str, str]:
    """Every field as JSON text; entries of mappings and of thresholds under names of their own."""
    result: dict[str, Any] = {}
    for name, value in as_plain(certificate).items():
        entries = [(name, value)]
        if name == "thresholds":
            entries = [(f"{name}.{place}.{key}", part) for place, one in enumerate(value) for key, part in one.items()]
        elif isinstance(value, dict) and value:
            entries = [(f"{name}.{key}", part) for key, part in value.items()]
        result |= {key: json.dumps(part, sort_keys=True, ensure_ascii=False) for key, part in entries}
    return result


# ---------------------------------------------------------------------------------------------- with the rows


def _rows_checks(certificate: Facts, X: Any, y: Any) -> list[Check]:
    hashes = row_fingerprints(X, y)
    return [
        _same("calibration rows", certificate.rows.get("calibrate"), len(hashes), "number of rows"),
        _same(
            "calibration fingerprint",
            certificate.row_fingerprints.get("calibrate"),
            role_fingerprint(hashes),
            "fingerprint of the rows",
        ),
    ]


def _score_checks(certificate: Facts, X: Any, y: Any, own: Scorer, *, rounding: bool) -> list[Check]:
    """Scores of the rows, and the thresholds they give: to the last bit, or to rounding where rows and model are known.

    Linear algebra may round differently for rows in another order or memory layout. What is deployed is compared exactly
    by `_deployed_checks`; here the scores kept are what the new ones must agree with.
    """
    scores, groups = own.calibration_scores(X, y)
    kept, found = np.sort(own.calibration.scores), np.sort(scores)
    checks = [_same("scores", certificate.scores_fingerprint, scores_fingerprint(scores), "fingerprint of the scores")]
    slack = _rounding_slack(own, X, y, scores) if rounding and not checks[0].holds else 0.0
    if not checks[0].holds and certificate.scores_fingerprint == scores_fingerprint(kept) and _agree(kept, found, slack):
        checks = [Check("scores", True, f"they agree with the scores kept, to rounding (within {slack:.1g})")]
    if own.calibration.seen is not None:
        return [*checks, _sizes_check(own, X)]
    if own.calibration.clusters is not None:
        return checks  # which row speaks for its group is known to the predictor alone: see `_deployed_checks`
    patterns = own.statement.thresholds(Calibration(scores, groups)) if certificate.groups else {}
    for entry in certificate.thresholds:
        if entry.rank is None and not patterns:
            continue
        name = "threshold" if entry.group is None else f"threshold of group {entry.group}"
        part = (
            scores
            if groups is None or entry.group is None
            else scores[np.asarray([str(group) == entry.group for group in groups])]
        )
        what = f"rank {entry.rank} of {part.size} scores" if not patterns else f"cut-off by {scores.size} scores"
        value = math.nan
        if entry.group in patterns:
            value = patterns[entry.group].value
        elif entry.rank is not None and part.size == entry.n:
            value = order_statistic(part, entry.rank)
        if value != entry.value and _agree(entry.value, value, slack * (1 + len(certificate.groups))):
            checks.append(Check(name, True, f"{what}: {value}, which is {entry.value} to rounding"))
        else:
            checks.append(_same(name, entry.value, value, what))
    return checks


def _sizes_check(own: Scorer, X: Any) -> Check:
    """Joint selection compares sizes: those of the predictions kept, at each candidate's cut-off, against those of X."""
    scores, deployed = own.structure.score.scores, own.statement.thresholds(own.calibration)
    cuts = [deployed[name].value for name in own.structure.score.names]
    kept, found = (
        [float(np.sum(score.sizes(*pair))) for score, *pair in zip(scores, each.records, cuts, strict=True)]
        for each in (own.calibration.seen, own.structure.prediction(X))
    )
    return Check("sizes kept", bool(np.allclose(kept, found, rtol=1e-6)), "sizes of each candidate's sets of the rows")


def _rounding_slack(own: Scorer, X: Any, y: Any, scores: Floats) -> float:
    """How far scores of the same rows under the same model may differ by rounding alone.

    A part in 10^12 of the largest score (10^5 where the model answers in single precision). It grows when targets are far
    from 0 in units of their spread: a residual inherits the rounding of the numbers that it is the difference of. It is
    at least what can be seen here: a model may compute in single precision and answer in double.
    """
    seen = batch_rounding(lambda rows, targets: own.calibration_scores(rows, targets)[0], X, np.asarray(y), scores)
    kept = np.abs(own.calibration.scores[np.isfinite(own.calibration.scores)])
    record = own.structure.prediction(take_features(X, np.arange(1)))
    parts = [part.dtype for part in vars(record).values() if isinstance(part, np.ndarray)]
    digits = max((_ROUNDING[dtype] for dtype in parts if dtype in _ROUNDING), default=_ROUNDING[np.dtype(np.float64)])
    target, offset = np.asarray(y), 0.0
    if own.structure.classes is None and np.std(target) > 0:
        offset = float(np.max(np.abs(target)) / np.std(target)) / 256  # 1e-12 / 256 is 18 units in the last place
    return max(seen, digits * (1 + offset) * float(np.max(kept, initial=0.0)))


def _agree(a: Any, b: Any, slack: float) -> bool:
    """Whether numbers are equal (infinite ones exactly) or differ by at most `slack`."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        return False
    with np.errstate(invalid="ignore"):
        return bool(np.all((first == second) | (np.abs(first - second) <= slack)))


# ---------------------------------------------------------------------------------------------- what is left open


_FOLLOWS = {"rule", "alpha", "delta", "simultaneous", "seal_opened", "voided_by"}
_REST_ON_FACTS = {"statement", "assumption", "guarantee"}  # such as `reason` and `distinct`, which no number shows
_TOLD = {"thresholds", "candidate", "tuning_threshold", "structure_fingerprint", "model_fingerprint", "scores_fingerprint"}
_TOLD |= {"grouped", "groups", "labels", "weights"}


def _unchecked(certificate: Facts, own: Scorer | None, *, rows: bool) -> dict[str, str]:
    """{what: why}: fields that nothing given here speaks for."""
    result: dict[str, str] = {}
    alone = "without the predictor"
    if own is not None:
        alone = "by anything but this certificate (compare a copy that was kept elsewhere)"
    for name in ["statement", "assumption", *(entry.name for entry in fields(Facts))]:
        if name in _FOLLOWS or name in ("format", "written") or (own is not None and name in _TOLD):
            continue
        if own is not None and own.certificate is not certificate:
            continue
        if name in _REST_ON_FACTS:
            result[name] = "beyond the facts that this certificate states"
            continue
        if name not in ("rows", "row_fingerprints"):
            result["threshold values" if name == "thresholds" else name] = alone
            continue
        told = rows or (name == "rows" and own is not None)  # of calibration rows
        result |= {f"{name}.{role}": alone for role in getattr(certificate, name) if not (told and role == "calibrate")}
    if own is not None and certificate.model_fingerprint is None and own.certificate.model_fingerprint is None:
        result["fitted model"] = "since it is too large or cannot be written down (its calibration scores speak for it)"
    if not rows:
        result["calibration rows"] = "without the rows themselves"
    return result


def _same(name: str, stated: object, found: object, what: str) -> Check:
    if stated == found:
        return Check(name, True, f"{what}: {found}")
    return Check(name, False, f"{what}: the certificate says {stated}, recomputed {found}")
