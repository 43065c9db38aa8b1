"""What is certified, in words and numbers. A `Certificate` is plain data: it goes to strict JSON and back without loss."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from dco.foundations.display import ShownAsPrinted, counted
from dco.foundations.files import plain
from dco.foundations.ranks import Guarantee, Level, Threshold, as_rational
from dco.guarantees.calibration import Calibration
from dco.guarantees.theory import simultaneous_slack
from dco.rows.fingerprints import object_fingerprint

if TYPE_CHECKING:
    from dco.guarantees.verification import VerificationReport

FORMAT = 3
_LARGEST_MODEL = 2**26  # bytes of a pickle: beyond, reading it takes longer than most people want to wait

VOIDED_BY = (
    "choosing the level, the seed, the split or the model after looking at results on calibration or test rows",
    "a search or a fitted transformer wrapped around the estimator (GridSearchCV, feature selection, scaling in an outer "
    "Pipeline): it has seen the calibration rows. Search with dco.grid or search=, and give a Pipeline as a model",
    "models, scalers, encoders or temperatures that were fitted on calibration rows before they came here",
    "calibration rows that were filtered, weighted, sorted or chosen by the model's output",
    "new rows from another population, time or device than the calibration rows",
    "new rows whose label the fit does not know, where targets are labels: no set can hold such a label",
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


def assumption_in_words(guarantee: str, *, grouped: bool = False, frozen: bool = False, labels: bool = False) -> str:
    """What must be true of the rows for the statement to hold.

    `frozen`: a model came fitted, on rows unknown here. `labels`: sets are of labels. Full ones hold known labels only, so
    this is needed whatever the threshold: the mean over calibrations counts infinite thresholds as coverage of every row.
    """
    unit = "groups of rows" if grouped else "rows"
    how = "exchangeable" if guarantee == "marginal" else "independent and identically distributed"
    text = f"Calibration {unit} and the new one are {how}, given the training and tuning rows."
    if grouped:
        text += " A row that is not picked at random (the last visit, say) needs rows exchangeable within groups as well."
    if frozen:
        text += " The frozen model was not fitted on calibration rows; this cannot be checked here."
    if labels:
        text += " The label of the new row is known to the fit: sets hold known labels only."
    return text


@dataclass(frozen=True)
class Certificate(ShownAsPrinted):
    """The statement, its assumption, its numbers, and fingerprints of the rows and the structure behind it.

    Statement and assumption are what `words` writes from the other fields. Among these are `reason` (why nothing is
    guaranteed, or None), `grouped` (rows belong together), `distinct` (repeats were dropped) and `labels` (how many the fit
    knows; None for numbers).
    """

    statement: str
    assumption: str
    guarantee: Guarantee
    reason: str | None
    alpha: float
    delta: float | None
    simultaneous: bool
    grouped: bool
    distinct: bool
    labels: int | None
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
        """With probability 1 - delta, coverage >= 1 - alpha - slack for every alpha at once: what a picked level may lack.

        `theory.simultaneous_slack` (i.i.d. rows, delta <= 1/2): sqrt(log(1/delta) / 2n), and more for a PAC statement whose
        own delta is above 1/2, in each group by itself (for all G groups at once: delta / G). Without calibration rows the
        slack is 1. Where nothing is guaranteed, or rows belong together and the threshold is no order statistic of
        independent scores, no slack is known: a ValueError.
        """
        if self.guarantee == "none" or any(threshold.rank is None for threshold in self.thresholds):
            why = "nothing is guaranteed" if self.guarantee == "none" else "rows belong together in groups"
            raise ValueError(f"no bound is known for a level that is picked by its result: {why} (see the certificate).")
        own = None if self.delta is None else as_rational(self.delta, name="delta")
        if own is not None and self.simultaneous:
            own /= len(self.thresholds)
        sizes = {threshold.n for threshold in self.thresholds}
        slack = max(simultaneous_slack(max(n, 1), delta=delta, pac_delta=own) for n in sizes)
        return slack if min(sizes) else 1.0

    def verify(self, X_cal: Any = None, y_cal: Any = None, *, predictor: Any = None) -> VerificationReport:
        """Recompute what can be recomputed, say what differs, and name what could not be checked.

        Alone: words, ranks and coverage laws must follow from the numbers. With the predictor (or the estimator): what it
        deploys, its fingerprints, and every other field against its own certificate. With the calibration rows, in any
        order: their fingerprint, and with both every score and threshold, to rounding.
        """
        from dco.guarantees.verification import verify  # it recomputes what this module states, so it comes after it

        return verify(self, X_cal, y_cal, predictor=predictor)

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


def words(facts: Certificate) -> dict[str, Any]:
    """The statement and the assumption that the other fields of a certificate give."""
    aim = "marginal" if facts.delta is None else "pac"
    statement = f"Nothing is guaranteed: {facts.reason}."
    if facts.reason is None:
        statement = statement_in_words(
            aim,
            alpha=facts.alpha,
            delta=facts.delta,
            simultaneous=facts.simultaneous,
            conditional=any(entry.group is not None for entry in facts.thresholds),
            grouped=facts.grouped,
            distinct=facts.distinct,
        )
    assumption = assumption_in_words(
        aim, grouped=facts.grouped, frozen=not facts.training_rows_checked, labels=facts.labels is not None
    )
    return {"statement": statement, "assumption": assumption}


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
    (int, type(None)): "seed labels",
    int: "candidates seal_opened",
    bool: "simultaneous grouped distinct refit training_rows_checked",
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
