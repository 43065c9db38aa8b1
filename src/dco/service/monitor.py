"""Watch a fitted predictor in service: at any time, do the rows that come still follow the
promise?
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dco.evaluation.evaluate import Outcomes
from dco.evaluation.on_rows import no_law
from dco.foundations.arrays import AnyArray, Bools, Floats
from dco.foundations.display import ShownAsPrinted, are, counted
from dco.foundations.notes import Message, Note, show
from dco.foundations.ranks import Level, Threshold, as_rational
from dco.rows.fingerprints import row_fingerprints
from dco.rows.rows import take_features
from dco.rows.targets import read_targets
from dco.service.watching import Evidence, Places, Stakes, confidence_sequence, likely_start

if TYPE_CHECKING:
    from dco.estimators import Decoupled
    from dco.predictor import DecoupledPredictor

_FORMAT = 2
_MOST_SLICES = 30  # in a table


@dataclass(frozen=True)
class WatchedCondition:
    """One condition: its rows, the share covered, and its own p-value, corrected for the number of
    conditions.
    """

    condition: str
    rows: int
    coverage: float
    expected_coverage: float
    p_value: float


@dataclass(frozen=True)
class WatchedSlice:
    """One slice: its rows, the share covered, and a p-value against a change of its scores since
    its own first row.

    The p-value of the j-th slice to appear is multiplied by j (j + 1), so that any of them, however
    many come, is ever at most d with probability at most d.
    """

    slice: str
    rows: int
    coverage: float
    drift_p_value: float


@dataclass(frozen=True)
class MonitorReport(ShownAsPrinted):
    """What a monitor knows after `rows` rows.

    ``alarm``: rows are covered less often than the law of the calibration allows. If new rows are
    exchangeable with the calibration rows, the probability that there is ever an alarm is at most
    `error_rate`; an alarm stays. ``p_value`` is valid at any time. ``change`` is quicker for
    changes that come late: without a change it turns true after `run_length` rows on average, or
    more. ``drift`` looks at the places of the scores instead of coverage, and is ever true with
    probability at most `error_rate` without a change; ``drift_p_value`` goes with it.

    ``coverage`` is the share of covered rows (NaN without rows), ``expected_coverage`` the mean of
    its law, k / (n + 1). ``interval`` holds the coverage at all times together with probability at
    least 1 - `error_rate`, if rows are independent and their coverage does not change. ``reported``
    is the row, counted from 1, after which there was an alarm or a change for the first time, and
    ``since`` the row at which it probably began, an estimate without a guarantee.
    ``coverage_since`` is the share covered from there on; it is too low on average, since the start
    was picked by it. ``conditions`` has one entry for each condition with a threshold of its own,
    ``slices`` one for each slice.
    """

    alarm: bool
    p_value: float
    change: bool
    drift: bool
    drift_p_value: float
    rows: int
    coverage: float
    interval: tuple[float, float]
    reported: int | None
    since: int | None
    coverage_since: float | None
    expected_coverage: float
    error_rate: float
    run_length: int
    guarantee: str
    conditions: tuple[WatchedCondition, ...] = ()
    slices: tuple[WatchedSlice, ...] = ()

    def __str__(self) -> str:
        if self.rows == 0:
            return "No rows yet: nothing is known."
        (low, high), said = (
            self.interval,
            "Alarm: new rows are covered less often than the calibration rows promise",
        )
        lines = [
            f"{said} (p = {self.p_value:.2g})."
            if self.alarm
            else f"No alarm: p = {self.p_value:.2g}, and an alarm needs p <= {self.error_rate:g}.",
            f"{counted(self.rows, 'row')} watched, {self.coverage:.1%} covered (interval for all "
            f"times {low:.1%} to "
            f"{high:.1%}); at least {self.expected_coverage:.1%} is expected from the calibration.",
        ]
        if self.change and not self.alarm:
            lines.append(
                f"A change is likely: without one, this is first said after "
                f"{self.run_length:,} rows on average."
            )
        if self.since is not None:
            began = (
                f"The change probably began near row {self.since} (reported after row "
                f"{self.reported})"
            )
            lines.append(f"{began}; {self.coverage_since:.1%} have been covered since.")
        if self.drift:
            lines.append(
                f"Scores have drifted from those of the calibration rows (p = "
                f"{self.drift_p_value:.2g})."
            )
        lines += [
            f"{entry.condition}: {entry.coverage:.1%} of {counted(entry.rows, 'row')} covered (p "
            f"= {entry.p_value:.2g})."
            for entry in self.conditions
            if entry.p_value <= self.error_rate
        ]
        lines += [
            f"{each.slice}: its scores have changed since its first row (p = "
            f"{each.drift_p_value:.2g}); {each.coverage:.1%} "
            f"of {counted(each.rows, 'row')} covered."
            for each in self.slices
            if each.drift_p_value <= self.error_rate
        ]
        if self.alarm:
            words = (
                "If rows were like the calibration rows, there would ever be an alarm with "
                "probability at most"
            )
            lines.append(f"{words} {100 * self.error_rate:g} %.")
        return "\n".join(lines)

    def tables(self) -> list[tuple[str, str, list[str], list[list[str]]]]:
        """Title, explanation, columns and cells: of the conditions, and of the slices that have
        changed most.
        """
        groups = [
            [
                own.condition,
                str(own.rows),
                f"{own.coverage:.4f}",
                f"{own.expected_coverage:.4f}",
                f"{own.p_value:.2g}",
            ]
            for own in self.conditions
        ]
        changed = sorted(self.slices, key=lambda own: own.drift_p_value)[:_MOST_SLICES]
        slices = [
            [own.slice, str(own.rows), f"{own.coverage:.4f}", f"{own.drift_p_value:.2g}"]
            for own in changed
        ]
        head, of = ["group", "rows", "coverage", "expected", "p-value"], "account for the number of"
        since = f"p-values against a change of scores since the slice's first row {of} slices"
        found = [
            ("By group", f"p-values {of} groups", head, groups),
            ("By slice", since, ["slice", "rows", "coverage", "p-value"], slices),
        ]
        return [table for table in found if table[3]]


class _Urn:
    """One threshold in service: the law of its hits, and the scores that new ones are ranked
    among.
    """

    def __init__(self, threshold: Threshold, scores: Floats, tie: np.random.Generator) -> None:
        self.rank, self.n = int(threshold.rank or 0), threshold.n
        self.cut, self.rows, self.hits, self.covered = threshold.value, 0, 0, 0
        self.evidence, self.places = Evidence.none(), Places(scores.tolist())
        below, equal = int(np.sum(scores < self.cut)), int(np.sum(scores == self.cut))
        # of the calibration scores equal to the threshold, put in random order, the threshold is
        # the (k - below)-th
        ranked = equal and self.rank <= self.n  # rank n + 1 is beyond them all, infinite ones too
        self.tie = tie.beta(self.rank - below, equal - (self.rank - below) + 1) if ranked else 1.0

    def take(self, score: float, uniform: float, *, covered: bool) -> tuple[bool, float]:
        """One more row: whether it is a hit with ties broken at random, and what the urn
        expected.
        """
        hit = (
            covered
            if math.isinf(self.cut)
            else score < self.cut or (score == self.cut and uniform <= self.tie)
        )
        expected = (self.rank + self.hits) / (self.n + 1 + self.rows)
        self.evidence = self.evidence.after(hit, expected)
        self.rows, self.hits, self.covered = self.rows + 1, self.hits + hit, self.covered + covered
        return hit, expected


@dataclass
class _Slice:
    """A slice in service: no promise is about it, so its scores are placed among its own earlier
    ones alone.
    """

    rows: int = 0
    covered: int = 0
    places: Places = field(default_factory=Places)
    stakes: Stakes = field(default_factory=Stakes.none)

    def take(self, score: float, uniform: float, *, covered: bool) -> None:
        """One more row."""
        self.rows, self.covered = self.rows + 1, self.covered + covered
        self.stakes = self.stakes.after(self.places.take(score, uniform))


class Monitor:
    """Watch the promise of a fitted estimator on labelled rows as they arrive.

    Claim: while new rows are exchangeable with the calibration rows, P(ever an alarm) <=
    `error_rate`, over the draw of the calibration rows and of all new rows, with ties too (they are
    broken at random, with a fixed seed). The statement of the fit is watched, "marginal" or "pac",
    by the law of its own rank, and one urn for each condition. An alarm says that rows are covered
    less often than that law allows; under "pac" and with tied scores this can be while coverage is
    still above 1 - alpha, since they leave a margin. `run_length` is the mean number of rows
    between false reports of a ``change``.

    A row whose X and y are those of a row seen before, here or in the fit, does not count
    (``duplicates="drop"``). Where different rows are often equal, dropping them leaves the unusual
    ones, and the claim holds with ``duplicates="natural"`` only, which counts every row. Labels
    that the fit does not know are misses; where each label has a threshold of its own, the claim is
    for rows whose label is known, as the guarantee is. `state` is what `state()` returned: the
    monitor continues from there. `dco.save` writes a monitor with its fit.
    """

    def __init__(
        self,
        est: Decoupled,
        *,
        error_rate: Level = 0.05,
        run_length: int = 10_000,
        duplicates: Literal["drop", "natural"] = "drop",
        state: Mapping[str, Any] | None = None,
    ) -> None:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(est, "predictor_")
        if duplicates not in ("drop", "natural"):
            raise ValueError(f'duplicates must be "drop" or "natural", got {duplicates!r}.')
        if run_length < 1:
            raise ValueError(
                f"run_length is a mean number of rows, at least 1; got {run_length!r}."
            )
        self.error_rate, self.run_length = (
            float(as_rational(error_rate, name="error_rate")),
            int(run_length),
        )
        self._est, self._own, self._duplicates = est, est.predictor_, duplicates
        self._uniforms = np.random.default_rng(
            [0, *self._own.certificate.scores_fingerprint.encode()]
        )
        known, names = self._own.calibration, self._own.calibration.condition_labels()
        self._urns = {
            names[name]: _Urn(
                threshold,
                known.used(known.parts[name], self._own.statement.rule)[0],
                self._uniforms,
            )
            for name, threshold in watched_thresholds(self._own).items()
        }
        self._evidence, self._stakes, self._seen = Evidence.none(), Stakes.none(), dict[str, None]()
        self._slices: dict[str, _Slice] = {}
        # covered, score, condition, slice: for a state
        self._taken: list[tuple[bool, float, str | None, str | None]] = []
        self._steps = array("d")  # of each row: hit, expected, p-value, p-value of drift, detector
        if state is not None:
            self._continue(state)
        if duplicates == "drop" and self._own.kept.repeated > 0:
            text = f"{self._own.kept.repeated:.1%} of the rows of the fit have copies among them"
            remedy = Message("Count all: ⟨duplicates=natural⟩.")
            show(
                [
                    Note(
                        "repeats",
                        f"{text}, and a monitor counts equal rows once: alarms may then be false.",
                        remedy,
                    )
                ]
            )

    def update(self, X: Any, y: Any, *, by: Any = None) -> MonitorReport:
        """Take labelled rows in the order in which they arrived, in batches of any size, and
        report.

        A label that the fit does not know is a miss. `by` names the slice of each row, if slices
        are to be watched too.
        """
        return self.update_all([(X, y, by)])

    def update_all(self, batches: Iterable[tuple[Any, Any, Any]]) -> MonitorReport:
        """`update` for many batches (X, y, by), of which one is in memory at a time; notes are
        about all of them.
        """
        if self._est.predictor_ is not self._own:
            raise ValueError(
                "The estimator was fitted again since this monitor began: make a new "
                "Monitor for the new fit."
            )
        counts = [(0, 0, 0), *(self._take_batch(*batch) for batch in batches)]
        n, unknown, old = (sum(each) for each in zip(*counts, strict=True))
        if unknown:
            text = (
                f"{counted(unknown, 'label')} of {n} {are(unknown)} not in classes_ and count "
                f"as misses."
            )
            show([Note("unknown-labels", text, "Are labels spelt as in fit?")])
        if old:
            text = (
                f"{counted(old, 'row')} of {n} {are(old)} equal to rows seen before, here or "
                f"in the fit: left out."
            )
            show(
                [
                    Note(
                        "repeats",
                        text,
                        Message("If different rows are often equal: ⟨duplicates=natural⟩."),
                    )
                ]
            )
        return self.report()

    def _take_batch(self, X: Any, y: Any, by: Any) -> tuple[int, int, int]:
        """Take the new rows of a batch; how many rows it has, how many of unknown labels, and how
        many seen before.
        """
        X = self._est._features(X)
        target = read_targets(y, as_numbers=self._own.structure.classes is None)
        sets = self._est.predict_set(X)
        slices = (
            [None] * len(target)
            if by is None
            else [str(value) for value in np.asarray(by).tolist()]
        )
        for name, values in (("y", target), ("by", slices)):
            if len(sets) != len(values):
                raise ValueError(
                    f"X has {counted(len(sets), 'row')} and {name} has "
                    f"{len(values)}: give one for each row."
                )
        own, seen = self._own, Outcomes.of(sets, target)
        rows = np.flatnonzero(seen.known)
        scores = np.full(len(target), np.inf)  # of labels that the fit does not know
        if rows.size:
            scores[rows] = own.structure.scores(take_features(X, rows), target[rows]) + own.rounding
        called, names = own.calibration.condition_labels(), own.structure.conditions(X, target)
        conditions = (
            [None] * len(target)
            if names is None
            else [called.get(name, str(name)) for name in names.tolist()]
        )
        new = np.flatnonzero(self._new_rows(X, target))
        for row in new.tolist():
            self._take(bool(seen.covered[row]), float(scores[row]), conditions[row], slices[row])
        return len(target), len(target) - rows.size, len(target) - new.size

    def _take(self, covered: bool, score: float, condition: str | None, part: str | None) -> None:
        """One row. A condition without calibration rows has the whole as its set, so that nothing
        is learnt from it.
        """
        tie, rank = self._uniforms.random(2).tolist()
        self._taken.append((covered, score, condition, part))
        urn = self._urns.get(condition)
        if urn is None:
            hit, expected = covered, 1.0
        else:
            hit, expected = urn.take(score, tie, covered=covered)
            self._stakes = self._stakes.after(urn.places.take(score, rank))
        if part is not None:
            self._slices.setdefault(part, _Slice()).take(score, rank, covered=covered)
        self._evidence = now = self._evidence.after(hit, expected)
        self._steps.extend(
            (
                hit,
                expected,
                float(now.p_value()),
                float(self._stakes.p_value()),
                float(now.detector),
            )
        )

    def report(self) -> MonitorReport:
        """What is known so far."""
        rows, covered = len(self._taken), sum(row[0] for row in self._taken)
        p_value, drift = float(self._evidence.p_value()), float(self._stakes.p_value())
        alarm, change = (
            p_value <= self.error_rate,
            float(self._evidence.detector) >= self.run_length,
        )
        reported = since = coverage_since = None
        if alarm or change:
            hits, expected, p_values, _, detector = self._history()
            reported = (
                int(np.argmax((p_values <= self.error_rate) | (detector >= self.run_length))) + 1
            )
            since = likely_start(hits, expected, reported=reported) + 1
            coverage_since = float(np.mean([row[0] for row in self._taken[since - 1 :]]))
        n = sum(urn.n for urn in self._urns.values())
        conditions = tuple(
            WatchedCondition(
                name,
                urn.rows,
                urn.covered / (urn.rows or math.nan),
                urn.rank / (urn.n + 1),
                min(1.0, len(self._urns) * float(urn.evidence.p_value())),
            )
            for name, urn in self._urns.items()
            if name is not None
        )
        slices = tuple(
            WatchedSlice(
                name,
                own.rows,
                own.covered / own.rows,
                min(1.0, j * (j + 1) * float(own.stakes.p_value())),
            )
            for j, (name, own) in enumerate(self._slices.items(), start=1)
        )
        return MonitorReport(
            alarm=alarm,
            p_value=p_value,
            change=change,
            drift=drift <= self.error_rate,
            drift_p_value=drift,
            rows=rows,
            coverage=covered / (rows or math.nan),
            interval=confidence_sequence(covered, rows, error_rate=self.error_rate),
            reported=reported,
            since=since,
            coverage_since=coverage_since,
            expected_coverage=sum(urn.n * urn.rank / (urn.n + 1) for urn in self._urns.values()) / n
            if n
            else 1.0,
            error_rate=self.error_rate,
            run_length=self.run_length,
            guarantee=self._own.statement.guarantee,
            conditions=conditions,
            slices=slices,
        )

    def timeline(self) -> dict[str, AnyArray]:
        """One value per row, in order: ``covered``, and ``p_value`` and ``drift_p_value`` as they
        stood after it.
        """
        covered = np.array([row[0] for row in self._taken], dtype=bool)
        _, _, p_value, drift_p_value, _ = self._history()
        return {"covered": covered, "p_value": p_value, "drift_p_value": drift_p_value}

    def _history(self) -> Floats:
        return np.array(self._steps).reshape(-1, 5).T

    def __getstate__(self) -> dict[str, Any]:
        own = {"est": self._est, "error_rate": self.error_rate, "run_length": self.run_length}
        return own | {"duplicates": self._duplicates, "state": json.dumps(self.state())}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        Monitor.__init__(self, **kept | {"state": json.loads(kept["state"])})

    def state(self) -> dict[str, Any]:
        """All that is needed to go on, as plain data for JSON: hits, scores, conditions, slices,
        and rows' fingerprints.
        """
        covered, scores = (
            "".join("01"[row[0]] for row in self._taken),
            [row[1].hex() for row in self._taken],
        )
        conditions = None if None in self._urns else [row[2] for row in self._taken]
        own = {
            "format": _FORMAT,
            "calibration": self._calibration(),
            "covered": covered,
            "scores": scores,
        }
        slices = {"slices": [row[3] for row in self._taken]} if self._slices else {}
        return own | {"conditions": conditions, "seen": list(self._seen)} | slices

    def _calibration(self) -> str:
        certificate = self._own.certificate
        laws = " ".join(f"{urn.rank}/{urn.n}" for urn in self._urns.values())
        return f"{certificate.structure_fingerprint} {certificate.scores_fingerprint} {laws}"

    def _continue(self, state: Mapping[str, Any]) -> None:
        known = False
        try:
            if state["format"] != _FORMAT:
                raise ValueError
            if known := state["calibration"] == self._calibration():
                covered = [{"0": False, "1": True}[digit] for digit in state["covered"]]
                parts = (
                    own or [None] * len(covered)
                    for own in (state["conditions"], state.get("slices"))
                )
                for row in zip(covered, map(float.fromhex, state["scores"]), *parts, strict=True):
                    self._take(*row)
                self._seen = dict.fromkeys(state["seen"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError(
                "state must be what Monitor.state() returned, whole and unchanged."
            ) from None
        if not known:
            text = (
                "⟨state⟩ is of a monitor of another fit: begin a new one, or load the model "
                "of that one."
            )
            raise ValueError(Message(text))

    def _new_rows(self, X: Any, y: Any) -> Bools:
        """Which rows count."""
        if self._duplicates == "natural":
            return np.ones(len(y), dtype=bool)
        hashes = row_fingerprints(X, y)
        used = self._own.kept.among(hashes).known
        new = np.zeros(len(y), dtype=bool)
        words = hashes.view(np.uint64).reshape(-1, 2)  # bytes of dtype S16 lose zeros at their end
        for row, name in enumerate(
            f"{first:016x}{second:016x}" for first, second in words.tolist()
        ):
            new[row] = name not in self._seen and not used[row]
            self._seen[name] = None
        return new


def watched_thresholds(own: DecoupledPredictor) -> dict[Any, Threshold]:
    """The thresholds whose hits have the law of an urn; an error that says why, if they have
    not.
    """
    if own.certificate.guarantee == "none":
        raise ValueError(
            'The fit guarantees nothing (its certificate says "none"), so there is '
            "no promise to watch."
        )
    thresholds, why = own.thresholds(), no_law(own)
    if why is None and any(threshold.rank is None for threshold in thresholds.values()):
        why = (
            "thresholds of overlapping groups are not calibration scores of a known rank, and "
            "such sets have no known law"
        )
    if why is not None:
        raise ValueError(f"This fit cannot be watched: {why}.")
    return thresholds
