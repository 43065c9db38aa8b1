"""What is certified, by which numbers, and how to check it later.

A `Certificate` is plain data: it goes to strict JSON and back without loss. `verify` recomputes what can be recomputed,
compares the rest with the predictor's own certificate, and names what it could not check.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from hashlib import blake2b
from itertools import product
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from dco.arrays import AnyArray, Bools, Floats, Integers
from dco.calibration import Calibration
from dco.display import ShownAsPrinted, counted
from dco.files import plain
from dco.fingerprints import object_fingerprint, role_fingerprint, row_fingerprints
from dco.ranks import Level, as_rational, conformal_rank, pac_rank
from dco.rows import take_features
from dco.theory import simultaneous_slack
from dco.thresholds.threshold import Guarantee, Threshold, order_statistic

FORMAT = 2
_LARGEST_MODEL = 2**26  # bytes of a pickle: beyond, reading it takes longer than most people want to wait
_LAW_DIGITS = 1e-9  # points of a Beta law, from one version of SciPy to the next
_ROUNDING = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}  # the same rows in another order or memory layout

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

    `expected_coverage` is rank / (n + 1): the mean coverage when scores are distinct, a lower bound when some near the
    threshold are tied (`expected_is_exact` says which). `coverage_low` and `coverage_high` are the 5 % and 95 % points of
    coverage given the calibration rows, Beta(rank, n + 1 - rank); they need i.i.d. rows, and with ties only the lower one
    holds.
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
    """The numbers that follow from a rank: expected coverage and its 5 % and 95 % points; full sets cover everything."""
    if rank is None:
        return CertifiedThreshold(group, n, None, value, None, False, None, None)
    if rank > n or value == math.inf:
        return CertifiedThreshold(group, n, rank, value, 1.0, True, 1.0, 1.0)
    low, high = betaincinv(rank, n + 1 - rank, [0.05, 0.95])
    return CertifiedThreshold(group, n, rank, value, rank / (n + 1), not tied, float(low), None if tied else float(high))


def certified_thresholds(
    calibration: Calibration, thresholds: Mapping[Any, Threshold], *, guarantee: str
) -> tuple[CertifiedThreshold, ...]:
    """The thresholds of a calibration with the numbers that follow, each group by the name that a certificate gives it."""
    parts, called = calibration.parts(), calibration.group_labels()
    return tuple(
        certified_threshold(
            threshold.value,
            rank=threshold.rank,
            n=threshold.n,
            tied=calibration.is_tied(parts[name], threshold, guarantee=guarantee),
            group=called[name],
        )
        for name, threshold in thresholds.items()
    )


def statement_in_words(
    guarantee: str,
    *,
    alpha: Level,
    delta: Level | None = None,
    simultaneous: bool = False,
    conditional: bool = False,
    grouped: bool = False,
    distinct: bool = False,
) -> str:
    """The guarantee ("marginal" or "pac") in one plain sentence.

    `conditional`: a threshold in each Mondrian group. `grouped`: rows belong together. `distinct`: repeats were dropped.
    """
    level = _all_but(as_rational(alpha))
    like = " drawn like the distinct rows given here"  # rows not yet seen are not like these: what is rare is seen late
    who, many = ("a row" + like, "rows" + like) if distinct else ("a new row", "new rows")
    if grouped:  # a group weighs the same whatever its size, so this is not a share of all rows
        group = "new group" + (f" of rows{like}" if distinct else "")
        who, many = f"a row picked at random from a {group}", f"rows picked at random, one from each {group}"
    if guarantee == "marginal" or delta is None:
        where = ", whichever of the groups it belongs to" if conditional else ""
        return f"The set of {who} holds its true value with probability at least {level}{where}."
    sure = _all_but(as_rational(delta, name="delta"))
    each = ""
    if conditional:
        each = " in all groups at once" if simultaneous else ", in each group separately"
    return (
        f"With confidence at least {sure} over the draw of the calibration rows, the sets hold the true value for at least "
        f"{level} of {many}{each}."
    )


def _all_but(level: Fraction) -> str:
    """1 - level in percent, rounded down: four places, or three figures of a level that these would not show."""
    places = max(4, -math.floor(math.log10(level)))
    whole, rest = divmod(math.floor(100 * (1 - level) * 10**places), 10**places)
    return f"{whole}.{rest:0{places}d}".rstrip("0").rstrip(".") + " %"


Full = Literal["threshold", "groups", "labels"]
_NEW_LABELS: dict[Full, str] = {
    "threshold": " Where the threshold is infinite, labels",
    "groups": " Where the threshold is infinite, as in groups without calibration rows, labels",
    "labels": " Labels",
}


def assumption_in_words(guarantee: str, *, grouped: bool = False, frozen: bool = False, full: Full | None = None) -> str:
    """What must be true of the rows for the statement to hold.

    `frozen`: a model came fitted, on rows unknown here. `full`, for classes, says where sets may be full, for these hold the
    labels that are known and no other: the threshold is infinite, conditions name groups that may be new, or labels do.
    """
    unit = "groups of rows" if grouped else "rows"
    how = "exchangeable" if guarantee == "marginal" else "independent and identically distributed"
    text = f"Calibration {unit} and the new one are {how}, given the training and tuning rows."
    if grouped:
        text += " A row that is not picked at random (the last visit, say) needs rows exchangeable within groups as well."
    if frozen:
        text += " The frozen model was not fitted on calibration rows; this cannot be checked here."
    if full is not None:
        text += f"{_NEW_LABELS[full]} of new rows are among those of the rows given here."
    return text


@dataclass(frozen=True)
class Certificate(ShownAsPrinted):
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
    training_rows_checked: bool
    structure_fingerprint: str
    model_fingerprint: str | None
    scores_fingerprint: str
    seal_opened: int
    seal_log: tuple[str, ...]
    seed: int | None
    versions: Mapping[str, str]
    voided_by: tuple[str, ...] = VOIDED_BY
    format: int = FORMAT

    @property
    def training_rows(self) -> str:
        """Whether the rows of each model are known not to be calibration rows, in words."""
        return "checked" if self.training_rows_checked else "not checked: a frozen model's training rows are unknown"

    def to_json(self, *, indent: int | None = 2) -> str:
        """Strict JSON: no NaN, infinity written as the string "inf"."""
        return json.dumps(_to_plain(self), indent=indent, allow_nan=False, ensure_ascii=False)

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
            raise ValueError(
                f"This certificate has format {data.get('format')!r}; this version reads format {FORMAT}: use the one that "
                "wrote it, or fit again."
            )
        wanted = {field.name for field in fields(cls)}
        if set(data) != wanted:
            missing, spare = sorted(wanted - set(data)), sorted(set(data) - wanted)
            raise ValueError(f"This is not a certificate: missing fields {missing}, unknown fields {spare}.")
        try:
            thresholds = tuple(_threshold_from_plain(entry) for entry in data["thresholds"])
            values = {**data, "thresholds": thresholds}
            for name in ("seal_log", "voided_by"):
                values[name] = tuple(str(entry) for entry in data[name])
            for name in ("failed_candidates", "rows", "row_fingerprints", "repeats_shared", "versions"):
                values[name] = dict(data[name])
            for name in ("alpha", "delta", "tuning_threshold"):
                values[name] = _from_plain(data[name])
            _check_types(values)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"This is not a certificate: {error}.") from None
        return cls(**values)

    def simultaneous_slack(self, delta: Level = 0.05) -> float:
        """sqrt(log(1/delta) / 2n): with probability 1 - delta, coverage >= 1 - alpha - slack for every alpha at once.

        One-sided DKW inequality (i.i.d. rows, delta <= 1/2). It is the statement that holds for a level picked by its
        result. Without calibration rows the slack is 1. Where nothing is guaranteed, or rows belong together and the
        threshold is no order statistic of independent scores, no slack is known: a ValueError.
        """
        if self.guarantee == "none" or any(threshold.rank is None for threshold in self.thresholds):
            why = "nothing is guaranteed" if self.guarantee == "none" else "rows belong together in groups"
            raise ValueError(f"no bound is known for a level that is picked by its result: {why} (see the certificate).")
        n = min(threshold.n for threshold in self.thresholds)
        slack = simultaneous_slack(max(n, 1), delta=delta)
        return slack if n else 1.0

    def verify(self, X_cal: Any = None, y_cal: Any = None, *, predictor: Any = None) -> VerificationReport:
        """Recompute what can be recomputed, say what differs, and name what could not be checked.

        Alone: words, ranks and coverage laws must follow from the numbers. With the predictor (or the estimator): what it
        deploys, its fingerprints, and every other field against its own certificate. With the calibration rows, in any
        order: their fingerprint, and with both every score and threshold, to rounding.
        """
        own: Scorer | None = getattr(predictor, "predictor_", predictor)
        checks = [*_arithmetic(self)]
        if own is not None:
            failed = {check.name for check in checks if not check.holds}  # one line a mismatch
            checks += [check for check in _predictor_checks(self, own) if check.name not in failed]
            checks += _other_fields(self, own, {check.name for check in checks if not check.holds})
        if X_cal is not None:
            checks += _rows_checks(self, X_cal, y_cal)
        if X_cal is not None and own is not None:
            known = all(check.holds for check in checks if check.name in ("calibration fingerprint", "model"))
            checks += _score_checks(self, X_cal, y_cal, own, rounding=known)
        return VerificationReport(tuple(checks), _unchecked(self, own, rows=X_cal is not None))

    def __str__(self) -> str:
        certified = self.guarantee != "none"
        lines = [self.statement]
        if certified:  # without a statement there is nothing that an assumption or a law would make true
            lines.append(f"Assumption: {self.assumption}")
        if self.reason and self.reason not in self.statement:
            lines.append(f"Why no guarantee: {self.reason}")
        for entry in self.thresholds:
            name = f"{entry.group}: " if entry.group is not None else ""
            rank = f"rank {entry.rank} of {entry.n}" if entry.rank is not None else counted(entry.n, "group")
            law = ""
            if certified and entry.expected_coverage is not None:
                word = "expected coverage" if entry.expected_is_exact else "expected coverage at least"
                law = f", {word} {entry.expected_coverage:.4f}"
            if certified and entry.coverage_low is not None:
                high = f" to {entry.coverage_high:.3f}" if entry.coverage_high is not None else " or more"
                law += f", 90 % range {entry.coverage_low:.3f}{high}"
            lines.append(f"{name}threshold {entry.value:.6g}, {rank}{law}")
        failed = f" ({len(self.failed_candidates)} failed)" if self.failed_candidates else ""
        chosen = f"chosen out of {self.candidates}{failed} by {self.selection}" if self.selection else "the only candidate"
        lines.append(f"Structure: {self.candidate}, {chosen}")
        lines.append("Rows: " + ", ".join(f"{count} {role}" for role, count in self.rows.items()))
        repeats = [f"{roles} share {count}" for roles, count in self.repeats_shared.items() if count]
        if repeats:
            lines.append(f"Repeats, taken to be natural: {', '.join(repeats)} rows")
        return "\n".join(lines)


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
    statement: Any
    certificate: Certificate
    ranking: Any

    def thresholds(self) -> Mapping[Any, Threshold]:
        """The threshold of each group, or one under the key None."""
        ...

    def structure_fingerprint(self) -> str:
        """The fingerprint of the fixed structure, taken again."""
        ...

    def calibration_scores(self, X: Any, y: Any) -> tuple[Floats, AnyArray | None]:
        """Scores of the rows as `calibrate` keeps them, and what the group of each is called (None without groups)."""
        ...


def model_fingerprint(model: Any, *, largest: int = _LARGEST_MODEL) -> str | None:
    """A digest of all that a fitted model holds; None if it is too large or cannot be written down.

    Without it a change of the model is still seen in its calibration scores.
    """
    size = _Size(largest)
    try:
        pickle.Pickler(size, protocol=5, buffer_callback=size.count).dump(model)
        return object_fingerprint(model)
    except Exception:  # whatever a user's model raises when it is written down
        return None


class _Size:
    """A file that keeps nothing of what is written to it, and refuses more than `largest` bytes in all."""

    def __init__(self, largest: int) -> None:
        self.left = largest

    def write(self, data: Any) -> int:
        self.count(data)
        return memoryview(data).nbytes

    def count(self, data: Any) -> None:
        """Arrays come here as they lie in memory: nothing is copied."""
        self.left -= memoryview(data).nbytes
        if self.left < 0:
            raise ValueError("This is larger than was allowed.")


def scores_fingerprint(scores: ArrayLike) -> str:
    """A digest of calibration scores, whatever their order."""
    return blake2b(np.sort(np.asarray(scores, dtype=np.float64)).tobytes(), digest_size=16).hexdigest()


def batch_rounding(
    scores_of: Callable[[Any, AnyArray], Floats], X: Any, y: AnyArray, scores: Floats, *, n: int = 32
) -> float:
    """Four times the largest difference between a row's score alone and among the others, over n of the rows.

    A matrix product of one row may round otherwise than one of many. A larger jump is none of that (two labels that change
    places, in a score of ranks) and does not count.
    """
    some = np.unique(np.linspace(0, len(y) - 1, min(n, len(y))).astype(np.int64))
    alone = np.asarray([scores_of(_some_rows(X, row), y[row])[0] for row in some[:, None]])
    together = scores[some]
    near = same_but_for_rounding(alone, together) & np.isfinite(together)
    return 4 * float(np.abs(alone[near] - together[near]).max(initial=0.0))


def same_but_for_rounding(again: Floats, scores: Floats) -> Bools:
    """Where scores differ by no more than batches of another size may round differently.

    A small residual is the difference of large numbers and keeps their rounding (seven digits, in single precision), so
    what counts is the size that scores usually have.
    """
    return np.isclose(again, scores, rtol=1e-5, atol=1e-8 + 1e-4 * usual_size(scores), equal_nan=True)


def usual_size(scores: Floats) -> float:
    """The median of the finite scores without their sign; 0 where there is none."""
    finite = np.abs(scores[np.isfinite(scores)])
    return float(np.quantile(finite, 0.5, method="lower")) if finite.size else 0.0


# ---------------------------------------------------------------------------------------------- the certificate alone


def _arithmetic(certificate: Certificate) -> Iterator[Check]:
    """What follows from other fields of the certificate: the guarantee's name, ranks, laws, words, the seal."""
    aim = "marginal" if certificate.delta is None else "pac"
    promised = aim if certificate.reason is None else "none"
    yield _same("guarantee", certificate.guarantee, promised, "guarantee that goes with delta and reason")
    if certificate.simultaneous:
        yield Check("simultaneous", aim == "pac", "all groups at once is a PAC statement")
    wrong = _wrong_levels(certificate)
    yield from wrong
    if not wrong:
        for entry in certificate.thresholds:
            yield from _law_checks(certificate, entry)
        yield from _words(certificate, aim)
    calibrate, total = certificate.rows.get("calibrate", 0), sum(entry.n for entry in certificate.thresholds)
    possible = total <= calibrate if True in _may_be_grouped(certificate) else total == calibrate
    yield Check("rows", possible, f"{total} scores or groups from {calibrate} calibration rows")
    log = certificate.seal_log
    once = certificate.seal_opened == 1 == len(log) and log[0].endswith(f"structure {certificate.structure_fingerprint}")
    yield Check("seal", once, f"calibration rows were asked for {max(certificate.seal_opened, len(log))} time(s)")
    yield Check("voided_by", certificate.voided_by == VOIDED_BY, "the ways to lose the guarantee that this format lists")


def _wrong_levels(certificate: Certificate) -> list[Check]:
    levels = {"alpha": certificate.alpha, "delta": certificate.delta}
    return [
        Check(name, False, f"{value} is not between 0 and 1")
        for name, value in levels.items()
        if value is not None and not 0 < value < 1
    ]


def _law_checks(certificate: Certificate, entry: CertifiedThreshold) -> Iterator[Check]:
    name = "rank" if entry.group is None else f"rank of group {entry.group}"
    if entry.rank is not None:
        if certificate.delta is None:
            right = conformal_rank(entry.n, alpha=certificate.alpha)
        else:
            delta = as_rational(certificate.delta, name="delta")
            parts = len(certificate.thresholds) if certificate.simultaneous else 1
            right = pac_rank(entry.n, alpha=certificate.alpha, delta=delta / parts)
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


def _may_be_grouped(certificate: Certificate) -> set[bool]:
    """Whether rows belonged together: marginal thresholds then have no rank, PAC ones use fewer scores than rows."""
    if certificate.delta is None:
        return {any(entry.rank is None for entry in certificate.thresholds)}
    total = sum(entry.n for entry in certificate.thresholds)
    return {True, False} if total == certificate.rows.get("calibrate") else {True}


def _may_be_full(certificate: Certificate) -> tuple[Full | None, ...]:
    """Where sets may be full, as far as a certificate tells: it does not say whether there are classes."""
    if certificate.condition_on is not None:
        return ("labels",) if certificate.condition_on == repr("label") else (None, "groups")
    infinite = any(entry.value == math.inf for entry in certificate.thresholds)
    return (None, "threshold") if infinite else (None,)


def _words(certificate: Certificate, aim: str) -> Iterator[Check]:
    conditional = any(entry.group is not None for entry in certificate.thresholds)
    frozen = not certificate.training_rows_checked
    pairs = []
    for grouped, full, distinct in product(sorted(_may_be_grouped(certificate)), _may_be_full(certificate), (False, True)):
        assumption = assumption_in_words(aim, grouped=grouped, frozen=frozen, full=full)
        statement = statement_in_words(
            aim,
            alpha=certificate.alpha,
            delta=certificate.delta,
            simultaneous=certificate.simultaneous,
            conditional=conditional,
            grouped=grouped,
            distinct=distinct,
        )
        if certificate.reason is not None:
            statement = f"Nothing is guaranteed: {certificate.reason}."
        pairs.append((statement, assumption))
    fitting = [pair for pair in pairs if pair[0] == certificate.statement]
    yield Check("statement", bool(fitting), f"the numbers say: {(fitting or pairs)[0][0]}")
    assumed = [assumption for _, assumption in fitting or pairs]
    right = certificate.assumption if certificate.assumption in assumed else assumed[0]
    yield Check("assumption", certificate.assumption in assumed, f"the statement needs: {right}")


# ---------------------------------------------------------------------------------------------- with the predictor


def _predictor_checks(certificate: Certificate, own: Scorer) -> Iterator[Check]:
    """What the predictor itself tells: its structure, its model, the level it was asked for, and what it deploys."""
    structure, asked = own.structure, own.statement
    found = own.structure_fingerprint()
    yield _same("structure", certificate.structure_fingerprint, found, "fingerprint of the structure")
    if certificate.model_fingerprint is not None:
        model = model_fingerprint(structure.model)
        yield _same("model", certificate.model_fingerprint, model, "fingerprint of the fitted model")
    pac = asked.guarantee == "pac"
    delta = float(as_rational(asked.delta, name="delta")) if pac else None
    yield _same("alpha", certificate.alpha, float(as_rational(asked.alpha)), "level that the predictor has")
    yield _same("delta", certificate.delta, delta, "delta that the predictor has")
    yield _same("simultaneous", certificate.simultaneous, pac and bool(asked.simultaneous), "all groups at once")
    yield _same("candidate", certificate.candidate, structure.name, "name of the structure")
    tuned = own.ranking.threshold_of(structure.name)
    yield _same("tuning_threshold", certificate.tuning_threshold, tuned, "threshold on tuning rows")
    yield from _deployed_checks(certificate, own)


def _deployed_checks(certificate: Certificate, own: Scorer) -> Iterator[Check]:
    """The predictor's own calibration: the scores it keeps, and the thresholds that it deploys, to the last bit."""
    kept = own.calibration
    found = scores_fingerprint(kept.scores)
    yield _same("scores kept", certificate.scores_fingerprint, found, "fingerprint of the scores kept")
    yield _same("rows.calibrate", certificate.rows.get("calibrate"), kept.scores.size, "number of scores kept")
    stated = {entry.group: entry for entry in certificate.thresholds}
    found_now = certified_thresholds(kept, own.thresholds(), guarantee=own.statement.guarantee)
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
    "seal_opened": "seal",
    "seal_log": "seal",
}


def _other_fields(certificate: Certificate, own: Scorer, failed: Iterable[str]) -> Iterator[Check]:
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


def _flat(certificate: Certificate) -> dict[str, str]:
    """Every field as JSON text; entries of mappings and of thresholds under names of their own."""
    result: dict[str, Any] = {}
    for name, value in _to_plain(certificate).items():
        entries = [(name, value)]
        if name == "thresholds":
            entries = [(f"{name}.{place}.{key}", part) for place, one in enumerate(value) for key, part in one.items()]
        elif isinstance(value, dict) and value:
            entries = [(f"{name}.{key}", part) for key, part in value.items()]
        result |= {key: json.dumps(part, sort_keys=True, ensure_ascii=False) for key, part in entries}
    return result


# ---------------------------------------------------------------------------------------------- with the rows


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


def _score_checks(certificate: Certificate, X: Any, y: Any, own: Scorer, *, rounding: bool) -> list[Check]:
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
    if own.calibration.groups is not None:
        return checks  # which row speaks for its group is known to the predictor alone: see `_deployed_checks`
    for entry in certificate.thresholds:
        if entry.rank is None:
            continue
        name = "threshold" if entry.group is None else f"threshold of group {entry.group}"
        part = (
            scores
            if groups is None or entry.group is None
            else scores[np.asarray([str(group) == entry.group for group in groups])]
        )
        value = order_statistic(part, entry.rank) if part.size == entry.n else math.nan
        what = f"rank {entry.rank} of {part.size} scores"
        if value != entry.value and _agree(entry.value, value, slack):
            checks.append(Check(name, True, f"{what}: {value}, which is {entry.value} to rounding"))
        else:
            checks.append(_same(name, entry.value, value, what))
    return checks


def _rounding_slack(own: Scorer, X: Any, y: Any, scores: Floats) -> float:
    """How far scores of the same rows under the same model may differ by rounding alone.

    A part in 10^12 of the largest score (10^5 where the model answers in single precision). It grows when targets are far
    from 0 in units of their spread: a residual inherits the rounding of the numbers that it is the difference of. It is
    at least what can be seen here: a model may compute in single precision and answer in double.
    """
    seen = batch_rounding(lambda rows, targets: own.calibration_scores(rows, targets)[0], X, np.asarray(y), scores)
    kept = np.abs(own.calibration.scores[np.isfinite(own.calibration.scores)])
    record = own.structure.prediction(_some_rows(X, np.arange(1)))
    parts = [part.dtype for part in vars(record).values() if isinstance(part, np.ndarray)]
    digits = max((_ROUNDING[dtype] for dtype in parts if dtype in _ROUNDING), default=_ROUNDING[np.dtype(np.float64)])
    target, offset = np.asarray(y), 0.0
    if own.structure.classes is None and np.std(target) > 0:
        offset = float(np.max(np.abs(target)) / np.std(target)) / 256  # 1e-12 / 256 is 18 units in the last place
    return max(seen, digits * (1 + offset) * float(np.max(kept, initial=0.0)))


def _some_rows(X: Any, rows: Integers) -> Any:
    return take_features(X, rows) if hasattr(X, "shape") else [X[row] for row in rows]


def _agree(a: Any, b: Any, slack: float) -> bool:
    """Whether numbers are equal (infinite ones exactly) or differ by at most `slack`."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        return False
    with np.errstate(invalid="ignore"):
        return bool(np.all((first == second) | (np.abs(first - second) <= slack)))


# ---------------------------------------------------------------------------------------------- what is left open


_FOLLOWS = {"statement", "assumption", "guarantee", "reason", "alpha", "delta", "simultaneous", "seal_opened", "voided_by"}
_TOLD = {"thresholds", "candidate", "tuning_threshold", "structure_fingerprint", "model_fingerprint", "scores_fingerprint"}


def _unchecked(certificate: Certificate, own: Scorer | None, *, rows: bool) -> dict[str, str]:
    """{what: why}: fields that nothing given here speaks for."""
    result: dict[str, str] = {}
    alone = "without the predictor"
    if own is not None:
        alone = "by anything but this certificate (compare a copy that was kept elsewhere)"
    for name in [entry.name for entry in fields(Certificate)]:
        if name in _FOLLOWS or name == "format" or (own is not None and name in _TOLD):
            continue
        if own is not None and own.certificate is not certificate:
            continue
        value = getattr(certificate, name)
        if name not in ("rows", "row_fingerprints"):
            result["threshold values" if name == "thresholds" else name] = alone
            continue
        told = rows or (name == "rows" and own is not None)  # of calibration rows
        result |= {f"{name}.{role}": alone for role in value if not (told and role == "calibrate")}
    if own is not None and certificate.model_fingerprint is None and own.certificate.model_fingerprint is None:
        result["fitted model"] = "since it is too large or cannot be written down (its calibration scores speak for it)"
    if not rows:
        result["calibration rows"] = "without the rows themselves"
    return result


# ---------------------------------------------------------------------------------------------- small parts


def _same(name: str, stated: object, found: object, what: str) -> Check:
    if stated == found:
        return Check(name, True, f"{what}: {found}")
    return Check(name, False, f"{what}: the certificate says {stated}, recomputed {found}")


def _to_plain(certificate: Certificate) -> dict[str, Any]:
    found: dict[str, Any] = plain(asdict(certificate), nan=ValueError("a certificate holds no NaN"))
    return found


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
    counts = [entry["n"], *([] if entry["rank"] is None else [entry["rank"]])]
    if value is None or not all(type(count) is int and 0 <= count < 2**53 for count in counts):
        raise ValueError("a threshold entry lacks its numbers")
    if entry["rank"] == 0 or type(entry["expected_is_exact"]) is not bool or not isinstance(entry["group"], str | None):
        raise ValueError("a threshold entry has values of the wrong kind")
    return CertifiedThreshold(**{**entry, **numbers, "value": value})


_TYPES: dict[type | tuple[type, ...], str] = {
    str: "statement assumption guarantee candidate model score selection structure_fingerprint scores_fingerprint",
    (str, type(None)): "reason condition_on model_fingerprint",
    float: "alpha",
    (int, type(None)): "seed",
    int: "candidates seal_opened",
    bool: "simultaneous refit training_rows_checked",
}


def _check_types(values: Mapping[str, Any]) -> None:
    for kind, names in _TYPES.items():
        for name in names.split():
            if not isinstance(values[name], kind) or (isinstance(values[name], bool) and kind is not bool):
                raise ValueError(f"{name} is {values[name]!r}")
    for role, count in values["rows"].items():
        if type(count) is not int:
            raise ValueError(f"rows has {count!r} for {role}")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
