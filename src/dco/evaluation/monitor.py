"""Watch a fitted predictor in service: at any time, do the rows that come still follow the promise?

The law of hits. Let the threshold be the k-th smallest of n calibration scores. If new rows are exchangeable with the
calibration rows and scores are distinct, hits follow a Polya urn: after H hits in t rows the next row is covered with
probability (k + H) / (n + 1 + t). The chance of the calibration rows themselves is in it.

The evidence. The alternative c replaces k by c k and keeps the n + 1 - k misses of the urn, so that the odds of a hit are c
times as high. The likelihood ratio of h hits and m misses is, with b = n + 1 - k and the Beta function B,

    M_c(h, m) = B(c k + h, b + m) / B(c k, b)  :  B(k + h, b + m) / B(k, b),

and M is its mean over a few c below 1. M is a test martingale under the law (it starts at 1 and P(ever M >= x) <= 1 / x;
Ville 1939). It falls when a miss becomes a hit. Scores with ties, broken at random, give hits that follow the urn and are
hits of the sets too, so the bound holds with ties, and for a threshold that is infinite.

Changes that begin later. The law is the same for the rows after any start. Starts are at 0, 100, 200 ..., M_j is the
evidence of the rows after the start j, and the p-value is min_j 1 / (w_j max_t M_j) with weights w_j that sum to 1. By the
union bound P(ever p <= d) <= d: this is for all times together, however long rows come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Bools, Floats, Integers
from dco.foundations.display import ShownAsPrinted, are, counted
from dco.foundations.notes import Note, show
from dco.foundations.ranks import Level, Threshold, as_rational
from dco.rows.fingerprints import row_fingerprints
from dco.rows.rows import check_not_missing, one_column
from dco.sets.labels import LabelSets

if TYPE_CHECKING:
    from dco.estimators import Decoupled
    from dco.predictor import DecoupledPredictor

ODDS = (0.7, 0.45, 0.2)  # the alternatives c; 0.45 takes a coverage of 0.90 to 0.80
STEP = 100  # rows between two starts
_AT_ONCE = 2**10  # rows whose evidence is computed together
_FORMAT = 1


# ------------------------------------------------------------------------------------------------ laws, on hits alone


def log_evidence(hits: ArrayLike, rows: ArrayLike, *, rank: int | Integers, n: int | Integers) -> Floats:
    """log M: how much better lower odds of a hit explain `hits` in `rows` than the urn of rank k of n does."""
    from scipy.special import gammaln, logsumexp

    h, t = np.asarray(hits, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    misses = n + 1 - rank

    def log_ratio(k: float | Floats | Integers) -> Floats:
        """log of B(k + h, b + m) / B(k, b), without what does not depend on k."""
        return np.asarray(gammaln(k + h) - gammaln(k) - gammaln(k + misses + t) + gammaln(k + misses))

    terms = np.stack([log_ratio(c * rank) for c in ODDS]) - log_ratio(rank)
    return np.asarray(logsumexp(terms, axis=0) - math.log(len(ODDS)))


def start_weights(starts: int) -> Floats:
    """w_0 = 1/2 and w_j = (ln 2 / 2) (1 / ln(j + 1) - 1 / ln(j + 2)): the sum over all j is 1, and they fall slowly."""
    j = np.arange(1, starts)
    later = math.log(2) / 2 * (1 / np.log(j + 1) - 1 / np.log(j + 2))
    return np.concatenate([[0.5], later])[:starts]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is kept of the rows so far: hits, and for each start the hits before it and its largest log evidence."""

    rows: int
    hits: int
    hits_before: Integers
    largest: Floats

    @classmethod
    def none(cls) -> Evidence:
        """Before the first row: one start, at row 0."""
        return cls(0, 0, np.zeros(1, dtype=np.int64), np.zeros(1))

    def after(self, hits: Bools, *, rank: int, n: int) -> Evidence:
        """The evidence after more rows, in order of arrival; in one batch or one by one, the result is the same."""
        found = self
        for first in range(0, len(hits), _AT_ONCE):
            found = found._after_some(hits[first : first + _AT_ONCE], rank, n)
        return found

    def _after_some(self, hits: Bools, rank: int, n: int) -> Evidence:
        rows = self.rows + np.arange(1, len(hits) + 1)
        total = self.hits + np.cumsum(hits, dtype=np.int64)
        new = total[rows % STEP == 0]
        before = np.concatenate([self.hits_before, new])
        largest = np.concatenate([self.largest, np.zeros(len(new))])
        age = rows[:, None] - STEP * np.arange(len(before))
        own = np.where(age >= 0, total[:, None] - before, 0)  # a start that is still to come has no rows: M = 1
        found = log_evidence(own, np.maximum(age, 0), rank=rank, n=n)
        return Evidence(int(rows[-1]), int(total[-1]), before, np.maximum(largest, found.max(axis=0)))

    def p_value(self) -> float:
        """min_j 1 / (w_j max M_j), at most 1: valid at any time, P(ever p <= d) <= d."""
        return min(1.0, math.exp(-float(np.max(self.largest + np.log(start_weights(len(self.largest)))))))


def confidence_sequence(hits: int, rows: int, *, error_rate: float) -> tuple[float, float]:
    """An interval for the coverage p that holds at all times together with probability at least 1 - error_rate.

    All p with  B(H + 1/2, m + 1/2) / B(1/2, 1/2) < p**H (1 - p)**m / error_rate,  for H hits and m misses. The ratio of the
    two sides is a test martingale for rows that are covered independently with one and the same probability p (Robbins
    1970; Howard, Ramdas, McAuliffe and Sekhon 2021).
    """
    from scipy.optimize import brentq
    from scipy.special import betaln, xlog1py, xlogy

    misses = rows - hits
    line = betaln(hits + 0.5, misses + 0.5) - betaln(0.5, 0.5) + math.log(error_rate)

    def above(p: float) -> float:
        return float(xlogy(hits, p) + xlog1py(misses, -p) - line)

    if rows == 0:
        return 0.0, 1.0
    share = hits / rows
    low = 0.0 if hits == 0 else float(brentq(above, 1e-300, share)) if share < 1 else math.exp(line / hits)
    high = 1.0 if misses == 0 else -math.expm1(line / misses) if hits == 0 else float(brentq(above, share, 1 - 2**-53))
    return low, high


def most_likely_start(hits: Bools, *, rank: int, n: int) -> int:
    """How many rows came before the change: the start whose rows, up to now, have the largest evidence.

    Rows before the start count as calibration rows here: given H hits in s of them the urn is that of rank k + H of n + s.
    """
    total, before = np.concatenate([[0], np.cumsum(hits)]), np.arange(len(hits))
    own, age = total[-1] - total[:-1], len(hits) - before
    return int(np.argmax(log_evidence(own, age, rank=rank + total[:-1], n=n + before)))


# -------------------------------------------------------------------------------------------------- report and monitor


@dataclass(frozen=True)
class MonitorReport(ShownAsPrinted):
    """What a monitor knows after `rows` rows.

    ``alarm``: the rows are not like the calibration rows, and are covered less often. If they are like them, the
    probability that there is ever an alarm is at most `error_rate`; an alarm stays. ``p_value`` is valid at any time.
    ``coverage`` is the share of covered rows (NaN without rows), ``expected_coverage`` is k / (n + 1). ``interval`` holds
    the coverage at all times together with probability at least 1 - `error_rate`, if rows are independent and their
    coverage does not change. ``since`` is given with an alarm: the row, counted from 1, at which the change probably began,
    an estimate without a guarantee. ``coverage_since`` is the share covered from there on; it is too low on average, since
    the start was picked by it.
    """

    alarm: bool
    p_value: float
    rows: int
    coverage: float
    interval: tuple[float, float]
    since: int | None
    coverage_since: float | None
    expected_coverage: float
    error_rate: float
    guarantee: str

    def __str__(self) -> str:
        if self.rows == 0:
            return "No rows yet: nothing is known."
        low, high = self.interval
        seen = (
            f"{counted(self.rows, 'row')} watched, {self.coverage:.1%} covered (interval for all times {low:.1%} to "
            f"{high:.1%}); at least {self.expected_coverage:.1%} is expected from the calibration."
        )
        rate = f"{100 * self.error_rate:g} %"
        if not self.alarm:
            return f"No alarm: p = {self.p_value:.2g}, and an alarm needs p <= {self.error_rate:g}.\n{seen}"
        return (
            f"Alarm: new rows are covered less often than the calibration rows promise (p = {self.p_value:.2g}).\n{seen}\n"
            f"The change probably began near row {self.since}; {self.coverage_since:.1%} have been covered since.\n"
            f"If rows were like the calibration rows, there would ever be an alarm with probability at most {rate}."
        )


class Monitor:
    """Watch the promise of a fitted estimator on labelled rows as they arrive.

    Claim: while new rows are exchangeable with the calibration rows, P(ever an alarm) <= `error_rate`, over the draw of the
    calibration rows and of all new rows, with ties too. The statement of the fit is watched, "marginal" or "pac", by the
    law of its own rank. An alarm says that rows are covered less often than that law allows; under "pac" this can be while
    coverage is still above 1 - alpha, since its rank leaves a margin.

    A row whose X and y are those of a row seen before, here or in the fit, does not count (``duplicates="drop"``). Where
    different rows are often equal, dropping them changes what rows are like: ``duplicates="natural"`` counts every row.
    `state` is what `state()` returned: the monitor goes on from there.
    """

    def __init__(
        self,
        est: Decoupled,
        *,
        error_rate: Level = 0.05,
        duplicates: Literal["drop", "natural"] = "drop",
        state: Mapping[str, Any] | None = None,
    ) -> None:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(est, "predictor_")
        if duplicates not in ("drop", "natural"):
            raise ValueError(f'duplicates must be "drop" or "natural", got {duplicates!r}.')
        self.error_rate = float(as_rational(error_rate, name="error_rate"))
        self._est, self._own, self._duplicates = est, est.predictor_, duplicates
        threshold = watched_threshold(est.predictor_)
        self.law = {"rank": int(threshold.rank or 0), "n": threshold.n}
        self._threshold = threshold
        self._evidence, self._hits, self._seen = Evidence.none(), np.zeros(0, dtype=bool), dict[str, None]()
        if state is not None:
            self._continue(state)
        if duplicates == "drop" and self._own.kept.repeated > 0:
            text = f"{self._own.kept.repeated:.1%} of the rows of the fit have copies among them"
            show([Note("repeats", f"{text}, and a monitor counts equal rows once.", 'Count all: duplicates="natural".')])

    def update(self, X: Any, y: Any) -> MonitorReport:
        """Take labelled rows in the order in which they arrived, in batches of any size, and report.

        A label that the fit does not know is a miss.
        """
        if self._est.predictor_ is not self._own:
            raise ValueError("The estimator was fitted again since this monitor began: make a new Monitor for the new fit.")
        check_not_missing(y, "a monitor needs rows whose target is known. Leave such rows out until it is.")
        target, sets = one_column(y), self._est.predict_set(X)
        if len(sets) != len(target):
            raise ValueError(f"X has {counted(len(sets), 'row')} and y has {len(target)}: give one target for each row.")
        notes: list[Note] = []
        if isinstance(sets, LabelSets) and (unknown := int(np.sum(~sets.knows(target)))):
            text = f"{counted(unknown, 'label')} of {len(target)} {are(unknown)} not in classes_ and count as misses."
            notes.append(Note("unknown-labels", text, "Are labels spelt as in fit?"))
        hits = np.asarray(sets.contains(target), dtype=bool)
        hits = hits[self._new_rows(X, target, notes)]
        self._hits = np.concatenate([self._hits, hits])
        self._evidence = self._evidence.after(hits, **self.law)
        show(notes)
        return self.report()

    @property
    def hits(self) -> Bools:
        """Whether each row that counts was covered, in order of arrival."""
        return self._hits.copy()

    def report(self) -> MonitorReport:
        """What is known so far."""
        rows, covered, p_value = self._evidence.rows, self._evidence.hits, self._evidence.p_value()
        made = MonitorReport(
            alarm=p_value <= self.error_rate,
            p_value=p_value,
            rows=rows,
            coverage=covered / rows if rows else math.nan,
            interval=confidence_sequence(covered, rows, error_rate=self.error_rate),
            since=None,
            coverage_since=None,
            expected_coverage=self.law["rank"] / (self.law["n"] + 1),
            error_rate=self.error_rate,
            guarantee=self._threshold.guarantee,
        )
        if not made.alarm:
            return made
        start = most_likely_start(self._hits, **self.law)
        return replace(made, since=start + 1, coverage_since=float(np.mean(self._hits[start:])))

    def state(self) -> dict[str, Any]:
        """All that is needed to go on, as plain data for JSON: hits in order and the fingerprints of the rows."""
        hits = "".join("01"[hit] for hit in self._hits.tolist())
        return {"format": _FORMAT, "calibration": self._calibration(), "hits": hits, "seen": list(self._seen)}

    def _calibration(self) -> str:
        certificate = self._own.certificate
        return f"{certificate.structure_fingerprint} {certificate.scores_fingerprint} {self.law['rank']}/{self.law['n']}"

    def _continue(self, state: Mapping[str, Any]) -> None:
        wanted = {"format", "calibration", "hits", "seen"}
        whole = isinstance(state, Mapping) and set(state) == wanted and state["format"] == _FORMAT
        if not whole or not isinstance(state["hits"], str) or set(state["hits"]) - {*"01"}:
            raise ValueError("state must be what Monitor.state() returned, whole and unchanged.")
        if state["calibration"] != self._calibration():
            raise ValueError("state is of a monitor of another fit: make a new Monitor, or load the model it was made for.")
        self._hits = np.array([digit == "1" for digit in state["hits"]], dtype=bool)
        self._evidence = self._evidence.after(self._hits, **self.law)
        self._seen = dict.fromkeys(state["seen"])

    def _new_rows(self, X: Any, y: Any, notes: list[Note]) -> Bools:
        """Which rows count."""
        if self._duplicates == "natural":
            return np.ones(len(y), dtype=bool)
        hashes = row_fingerprints(X, y)
        used = self._own.kept.among(hashes).known
        new = np.zeros(len(y), dtype=bool)
        words = hashes.view(np.uint64).reshape(-1, 2)  # bytes of dtype S16 lose zeros at their end
        for place, name in enumerate(f"{first:016x}{second:016x}" for first, second in words.tolist()):
            new[place] = name not in self._seen and not used[place]
            self._seen[name] = None
        if not new.all():
            old = int(np.sum(~new))
            text = f"{counted(old, 'row')} of {len(y)} {are(old)} equal to rows seen before, here or in the fit: left out."
            notes.append(Note("repeats", text, 'If different rows are often equal: duplicates="natural".'))
        return new


def watched_threshold(own: DecoupledPredictor) -> Threshold:
    """The one threshold whose hits have the law of an urn; an error that says why, if there is none."""
    if own.certificate.guarantee == "none":
        raise ValueError('The fit guarantees nothing (its certificate says "none"), so there is no promise to watch.')
    if own.calibration.clusters is not None:
        raise ValueError("The fit has groups=, and the law that a monitor watches is for rows that do not belong together.")
    thresholds = own.thresholds()
    if None not in thresholds:
        raise ValueError(
            f"The fit has condition_on= with {counted(len(thresholds), 'threshold')}, and a monitor watches one: fit and "
            "watch one estimator for each condition, with its share of error_rate."
        )
    if thresholds[None].rank is None:
        raise ValueError("The threshold of the fit is not a calibration score of a known rank: its hits have no known law.")
    return thresholds[None]
