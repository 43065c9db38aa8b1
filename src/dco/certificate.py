"""What is certified, by which numbers, and how to check it later.

A `Certificate` is plain data: it goes to strict JSON and back without loss. `verify` recomputes what can be recomputed.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from dco.arrays import AnyArray, Floats
from dco.fingerprints import role_fingerprint, row_fingerprints, structure_fingerprint
from dco.ranks import conformal_rank, pac_rank
from dco.thresholds.threshold import Guarantee

FORMAT = 1
_LARGEST_MODEL = 2**26  # bytes of a pickle: beyond, reading it takes longer than most people want to wait

VOIDED_BY = (
    "choosing the level, the seed, the split or the model after looking at results on calibration or test rows",
    "a search or a fitted transformer wrapped around the estimator (GridSearchCV, feature selection, scaling in an outer "
    "Pipeline): it has seen the calibration rows. Search with dco.grid or search=, and give a Pipeline as a model",
    "models, scalers, encoders or temperatures that were fitted on calibration rows before they came here",
    "calibration rows that were filtered, weighted, sorted or chosen by the model's output",
    "new rows from another population, time or device than the calibration rows",
)


@dataclass(frozen=True)
class CertifiedThreshold:
    """One threshold: the `rank`-th smallest of `n` calibration scores, for all rows or for one group of them.

    `expected_coverage` is rank / (n + 1): the mean coverage when scores are distinct, a lower bound when they are tied
    (`expected_is_exact` says which). `coverage_low` and `coverage_high` are the 5 % and 95 % points of coverage given the
    calibration rows, Beta(rank, n + 1 - rank); they need i.i.d. rows, and with ties only the lower one holds.
    """

    group: str | None
    n: int
    rank: int | None
    value: float
    expected_coverage: float | None
    expected_is_exact: bool
    coverage_low: float | None
    coverage_high: float | None


def certified_threshold(
    value: float, *, rank: int | None, n: int, tied: bool, group: str | None = None
) -> CertifiedThreshold:
    """The numbers that follow from a rank: expected coverage and its 5 % and 95 % points."""
    if rank is None:
        return CertifiedThreshold(group, n, None, value, None, False, None, None)
    if rank > n:
        return CertifiedThreshold(group, n, rank, value, 1.0, True, 1.0, 1.0)
    low, high = betaincinv(rank, n + 1 - rank, [0.05, 0.95])
    return CertifiedThreshold(group, n, rank, value, rank / (n + 1), not tied, float(low), None if tied else float(high))


@dataclass(frozen=True)
class Certificate:
    """The statement, its assumption, its numbers, and fingerprints of the rows and the structure behind it."""

    statement: str
    assumption: str
    guarantee: Guarantee
    reason: str | None
    alpha: float
    delta: float | None
    simultaneous: bool
    thresholds: tuple[CertifiedThreshold, ...]
    candidate: str
    candidates: int
    failed_candidates: Mapping[str, str]
    model: str
    score: str
    condition_on: str | None
    tuning_threshold: float | None
    selection: str
    refit: bool
    rows: Mapping[str, int]
    row_fingerprints: Mapping[str, str]
    repeats_shared: Mapping[str, int | str]
    training_rows: str
    structure_fingerprint: str
    model_fingerprint: str | None
    scores_fingerprint: str
    seal_opened: int
    seal_log: tuple[str, ...]
    seed: int | None
    versions: Mapping[str, str]
    voided_by: tuple[str, ...] = VOIDED_BY
    format: int = FORMAT

    def to_json(self, *, indent: int | None = 2) -> str:
        """Strict JSON: no NaN, infinity written as the string "inf"."""
        return json.dumps(_to_plain(asdict(self)), indent=indent, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read a certificate written by `to_json`; anything else is a ValueError that says what is wrong."""
        try:
            data = json.loads(text, parse_constant=_no_constant)
        except (json.JSONDecodeError, ValueError, RecursionError) as error:
            raise ValueError(f"This is not a certificate: it is not strict JSON ({error}).") from None
        if not isinstance(data, dict):
            raise ValueError("This is not a certificate: the JSON is not an object.")
        if data.get("format") != FORMAT:
            raise ValueError(f"This certificate has format {data.get('format')!r}; this version reads format {FORMAT}.")
        wanted = {field.name for field in fields(cls)}
        if set(data) != wanted:
            missing, spare = sorted(wanted - set(data)), sorted(set(data) - wanted)
            raise ValueError(f"This is not a certificate: missing fields {missing}, unknown fields {spare}.")
        try:
            thresholds = tuple(_threshold_from_plain(entry) for entry in data["thresholds"])
            values = {**data, "thresholds": thresholds, "alpha": float(data["alpha"])}
            for name in ("seal_log", "voided_by"):
                values[name] = tuple(str(entry) for entry in data[name])
            for name in ("failed_candidates", "rows", "row_fingerprints", "repeats_shared", "versions"):
                values[name] = dict(data[name])
            values["tuning_threshold"] = _from_plain(data["tuning_threshold"])
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ValueError(f"This is not a certificate: {error}.") from None
        return cls(**values)

    def simultaneous_slack(self, delta: float = 0.05) -> float:
        """sqrt(log(1/delta) / 2n): with probability 1 - delta, coverage >= 1 - alpha - slack for every alpha at once.

        One-sided DKW inequality (i.i.d. rows). It is the statement that holds for a level picked by its result.
        """
        n = min(threshold.n for threshold in self.thresholds)
        return math.sqrt(math.log(1 / delta) / (2 * n)) if n else 1.0

    def verify(self, X_cal: Any = None, y_cal: Any = None, *, predictor: Any = None) -> VerificationReport:
        """Recompute ranks, and with rows and the predictor also fingerprints, scores and thresholds; say what differs."""
        checks = [*_arithmetic(self)]
        if predictor is not None:
            own: Scorer = getattr(predictor, "predictor_", predictor)
            checks.append(
                _same("structure", self.structure_fingerprint, own.structure.fingerprint, "fingerprint of the structure")
            )
            if self.model_fingerprint is not None:
                found = model_fingerprint(own.structure.model)
                checks.append(_same("model", self.model_fingerprint, found, "fingerprint of the fitted model"))
            checks += _deployed_checks(self, own)
        if X_cal is not None:
            checks += _rows_checks(self, X_cal, y_cal)
            if predictor is not None:
                checks += _score_checks(self, X_cal, y_cal, getattr(predictor, "predictor_", predictor))
        return VerificationReport(tuple(checks))

    def __str__(self) -> str:
        lines = [self.statement, f"Assumption: {self.assumption}"]
        if self.reason:
            lines.append(f"Why no guarantee: {self.reason}")
        for entry in self.thresholds:
            name = f"{entry.group}: " if entry.group is not None else ""
            rank = f"rank {entry.rank} of {entry.n}" if entry.rank is not None else f"{entry.n} groups"
            law = ""
            if entry.expected_coverage is not None:
                word = "expected coverage" if entry.expected_is_exact else "expected coverage at least"
                law = f", {word} {entry.expected_coverage:.4f}"
            if entry.coverage_low is not None:
                high = f" to {entry.coverage_high:.3f}" if entry.coverage_high is not None else " or more"
                law += f", 90 % range {entry.coverage_low:.3f}{high}"
            lines.append(f"{name}threshold {entry.value:.6g}, {rank}{law}")
        lines.append(f"Structure: {self.candidate}, chosen out of {self.candidates} by {self.selection}")
        lines.append("Rows: " + ", ".join(f"{count} {role}" for role, count in self.rows.items()))
        return "\n".join(lines)


@dataclass(frozen=True)
class Check:
    """One thing that was recomputed."""

    name: str
    holds: bool
    detail: str


@dataclass(frozen=True)
class VerificationReport:
    """What holds and what does not."""

    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        return "\n".join(f"{'ok  ' if check.holds else 'FAIL'} {check.name}: {check.detail}" for check in self.checks)


class Scorer(Protocol):
    """What `verify` asks of a predictor."""

    structure: Any
    calibration: Any

    def thresholds(self) -> Mapping[Any, Any]:
        """The threshold of each group, or one under the key None."""
        ...

    def calibration_scores(self, X: Any, y: Any) -> tuple[Floats, AnyArray | None]:
        """Scores of the rows that calibrate, and what the group of each is called (None without groups)."""
        ...


def model_fingerprint(model: Any, *, largest: int = _LARGEST_MODEL) -> str | None:
    """A digest of all that a fitted model holds; None if it is too large or cannot be written down.

    Without it a change of the model is still seen in its calibration scores.
    """
    try:
        if len(pickle.dumps(model)) > largest:
            return None
        return structure_fingerprint(model)
    except Exception:  # whatever a user's model raises when it is written down
        return None


def scores_fingerprint(scores: ArrayLike) -> str:
    """A digest of calibration scores, whatever their order."""
    return blake2b(np.sort(np.asarray(scores, dtype=np.float64)).tobytes(), digest_size=16).hexdigest()


def threshold_at(scores: Floats, rank: int) -> float:
    """The `rank`-th smallest score, +inf for n + 1."""
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= scores.size else math.inf


def _arithmetic(certificate: Certificate) -> Iterable[Check]:
    delta = certificate.delta
    if certificate.simultaneous and delta is not None:
        delta = delta / len(certificate.thresholds)
    for entry in certificate.thresholds:
        if entry.rank is None:
            continue
        name = "rank" if entry.group is None else f"rank of group {entry.group}"
        if certificate.guarantee == "pac" or (certificate.guarantee == "none" and delta is not None):
            right = pac_rank(entry.n, alpha=certificate.alpha, delta=delta if delta is not None else 0.05)
        else:
            right = conformal_rank(entry.n, alpha=certificate.alpha)
        yield _same(name, right, entry.rank, f"rank for n = {entry.n}, alpha = {certificate.alpha:g}")
        low = certified_threshold(entry.value, rank=right, n=entry.n, tied=not entry.expected_is_exact, group=entry.group)
        agrees = (
            entry.coverage_low is not None
            and low.coverage_low is not None
            and (abs(entry.coverage_low - low.coverage_low) < 1e-9)
        )
        yield Check(f"{name}: coverage law", agrees, f"5 % point of Beta({right}, {entry.n + 1 - right})")
        if right > entry.n:
            yield Check(f"{name}: infinite", math.isinf(entry.value), "rank n + 1 asks for an infinite threshold")
    calibrate = certificate.rows.get("calibrate", 0)
    total = sum(entry.n for entry in certificate.thresholds)
    ranked = all(entry.rank is not None for entry in certificate.thresholds)
    if ranked and certificate.condition_on is None and certificate.guarantee in ("marginal", "pac"):
        yield Check("rows", total <= calibrate, f"{total} scores from {calibrate} calibration rows")
    yield Check("seal", certificate.seal_opened == 1, f"calibration rows were opened {certificate.seal_opened} time(s)")


def _rows_checks(certificate: Certificate, X: Any, y: Any) -> list[Check]:
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


def _deployed_checks(certificate: Certificate, predictor: Any) -> list[Check]:
    """The predictor's own calibration: the scores it keeps, and the thresholds that it deploys."""
    kept = predictor.calibration
    checks = [
        _same(
            "scores kept", certificate.scores_fingerprint, scores_fingerprint(kept.scores), "fingerprint of the scores kept"
        )
    ]
    called, stated = kept.group_labels(), {entry.group: entry.value for entry in certificate.thresholds}
    deployed = {called[name]: threshold.value for name, threshold in predictor.thresholds().items()}
    checks.append(_same("groups", sorted(map(str, stated)), sorted(map(str, deployed)), "groups with a threshold"))
    for group in [group for group in stated if group in deployed]:
        name = "deployed threshold" if group is None else f"deployed threshold of group {group}"
        checks.append(_same(name, stated[group], deployed[group], "what prediction sets use"))
    return checks


def _score_checks(certificate: Certificate, X: Any, y: Any, predictor: Any) -> list[Check]:
    scores, groups = predictor.calibration_scores(X, y)
    checks = [
        _same("scores", certificate.scores_fingerprint, scores_fingerprint(scores), "fingerprint of the calibration scores")
    ]
    if predictor.calibration.groups is not None:
        return checks  # which row speaks for its group is known to the predictor alone: see `_deployed_checks`
    for entry in certificate.thresholds:
        if entry.rank is None:
            continue
        own = scores if entry.group is None else scores[np.asarray([str(group) == entry.group for group in groups])]
        checks.append(
            _same(
                "threshold" if entry.group is None else f"threshold of group {entry.group}",
                entry.value,
                threshold_at(own, entry.rank) if own.size == entry.n else math.nan,
                f"rank {entry.rank} of {own.size} scores",
            )
        )
    return checks


def _same(name: str, stated: object, found: object, what: str) -> Check:
    if stated == found:
        return Check(name, True, f"{what}: {found}")
    return Check(name, False, f"{what}: the certificate says {stated}, recomputed {found}")


def _to_plain(value: Any) -> Any:
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError("a certificate holds no NaN")
        return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(key): _to_plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(entry) for entry in value]
    return value


def _from_plain(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, str) and value not in ("inf", "-inf"):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _threshold_from_plain(entry: Any) -> CertifiedThreshold:
    wanted = {field.name for field in fields(CertifiedThreshold)}
    if not isinstance(entry, dict) or set(entry) != wanted:
        raise ValueError("a threshold entry has the wrong fields")
    numbers = {name: _from_plain(entry[name]) for name in ("expected_coverage", "coverage_low", "coverage_high")}
    value = _from_plain(entry["value"])
    if value is None or not isinstance(entry["n"], int) or not isinstance(entry["rank"], (int, type(None))):
        raise ValueError("a threshold entry lacks its numbers")
    return CertifiedThreshold(**{**entry, **numbers, "value": value})


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
