"""Watch a fitted predictor in service: do the rows that come still follow the promise?"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from dco import DecoupledClassifier, DecoupledRegressor
from dco.foundations.arrays import AnyArray, Bools, Floats
from dco.foundations.display import are, counted
from dco.foundations.fingerprints import row_fingerprints
from dco.foundations.notes import Message, Note, show
from dco.foundations.ranks import Level
from dco.foundations.tables import take_features
from dco.service.drift import SortedScores, Stakes
from dco.service.evidence import Evidence, confidence_sequence, likely_start
from dco.service.monitor_report import MonitorReport, WatchedCondition, WatchedSlice
from dco.service.rounding import choose_step, round_scores
from dco.service.state import MonitorSettings, TakenRows, read_state, write_state
from dco.service.timeline import Timeline
from dco.service.watched_threshold import WatchedThreshold


class Monitor:
    """Watch the promise of a fitted estimator on labelled rows as they arrive.

    Claim: while new rows are exchangeable with the calibration rows, P(ever an alarm) <=
    `error_rate`, over the draw of the calibration rows and of all new rows, with ties too (they are
    broken at random, with a fixed seed). The statement of the fit is watched, "marginal" or "pac",
    by the law of its own rank, and one urn for each condition. An alarm says that rows are covered
    less often than that law allows; under "pac" and with tied scores this can be while coverage is
    still above 1 - alpha, since they leave a margin. `run_length` is the mean number of rows
    between false reports of a ``change``.

    Scores are compared after rounding to about a millionth of their usual spread, so that rows give
    the same result one by one and in batches, whose last digits differ.

    A row whose X and y are those of a row met before, here or in the fit, does not count
    (``duplicates="drop"``). Where different rows are often equal, dropping them leaves the unusual
    ones, and the claim holds with ``duplicates="natural"`` only, which counts every row. Labels
    that the fit does not know are misses; where each label has a threshold of its own, the claim is
    for rows whose label is known, as the guarantee is.

    `state` is what `state()` returned: the monitor continues from there, with the same settings.
    `dco.save` writes a monitor with its fit. Several threads may use one monitor: rows count in the
    order in which they are taken.
    """

    def __init__(
        self,
        est: DecoupledClassifier | DecoupledRegressor,
        *,
        error_rate: Level = 0.05,
        run_length: int = 10_000,
        duplicates: Literal["drop", "natural"] = "drop",
        state: Mapping[str, Any] | None = None,
    ) -> None:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(est, "predictor_")
        check_can_be_watched(est)
        self._settings = MonitorSettings.checked(
            error_rate=error_rate, run_length=run_length, duplicates=duplicates
        )
        self._est = est
        self._predictor = est.predictor_
        self._lock = threading.RLock()
        self._start()
        if state is not None:
            self._continue_from(state)
        self._note_copies_in_fit()

    @property
    def error_rate(self) -> float:
        """The probability that there is ever an alarm without a change, at most."""
        return self._settings.error_rate

    @property
    def run_length(self) -> int:
        """The mean number of rows between false reports of a change."""
        return self._settings.run_length

    def update(self, X: Any, y: Any, *, by: Any = None) -> MonitorReport:
        """Take labelled rows in the order in which they arrived, in batches of any size, and
        report.

        A label that the fit does not know is a miss. `by` names the slice of each row, if slices
        are to be watched too.
        """
        return self.update_all([(X, y, by)])

    def update_all(self, batches: Iterable[tuple[Any, Any, Any]]) -> MonitorReport:
        """Do `update` for many batches (X, y, by), of which one is in memory at a time.

        Notes are about all of them together.
        """
        if self._est.predictor_ is not self._predictor:
            raise ValueError(
                "The estimator was fitted again since this monitor began: make a new Monitor for "
                "the new fit."
            )

        n_rows = 0
        n_unknown = 0
        n_repeated = 0
        for X, y, by in batches:
            batch = self._score(X, y, by)
            n_rows += len(batch)
            n_unknown += int(np.sum(~batch.has_known_label))
            n_repeated += self._take(batch)
        _note_rows(n_rows, n_unknown=n_unknown, n_repeated=n_repeated)
        return self.report()

    def report(self) -> MonitorReport:
        """Say what is known so far: about all rows, each condition and each slice.

        An alarm says that rows are covered less often than the fit allows. A change is a weaker
        sign of the same, and a drift says that scores differ from those of the calibration rows.
        """
        with self._lock:
            rows = self._rows
            n_covered = sum(rows.covered)
            is_alarm = self._p_value <= self.error_rate
            is_change = float(self._evidence.detector) >= self.run_length

            # where a change was first reported, and with which row it probably began
            reported = since = coverage_since = None
            if is_alarm or is_change:
                reported = self._first_report()
                since = self._likely_start(reported)
                coverage_since = float(np.mean(rows.covered[since - 1 :]))

            return MonitorReport(
                alarm=is_alarm,
                p_value=self._p_value,
                change=is_change,
                drift=self._drift_p_value <= self.error_rate,
                drift_p_value=self._drift_p_value,
                rows=len(rows),
                coverage=n_covered / len(rows) if len(rows) else math.nan,
                interval=confidence_sequence(n_covered, len(rows), error_rate=self.error_rate),
                reported=reported,
                since=since,
                coverage_since=coverage_since,
                expected_coverage=self._expected_coverage(),
                error_rate=self.error_rate,
                run_length=self.run_length,
                guarantee=self._predictor.statement.guarantee,
                conditions=self._watched_conditions(),
                slices=self._watched_slices(),
            )

    def timeline(self) -> dict[str, AnyArray]:
        """Return one value per row, in order.

        ``covered``, and ``p_value`` and ``drift_p_value`` as they stood after the row.
        """
        with self._lock:
            return {
                "covered": np.array(self._rows.covered, dtype=bool),
                "p_value": self._timeline.p_value,
                "drift_p_value": self._timeline.drift_p_value,
            }

    def state(self) -> dict[str, Any]:
        """Return all that is needed to go on, as plain data for JSON with a checksum.

        It holds the settings, hits, scores, conditions, slices and fingerprints of rows; no X and
        no y.
        """
        with self._lock:
            return write_state(self._rows, self._settings, calibration=self._calibration_digest())

    # ---------------------------------------------------------------- beginning and continuing

    def _start(self) -> None:
        """Begin before the first row: with the thresholds of the fit, and without evidence."""
        certificate = self._predictor.certificate
        calibration = self._predictor.calibration

        # Ties are broken by numbers that are the same whenever this fit is watched.
        fingerprint = certificate.provenance.scores_fingerprint
        self._random = np.random.default_rng([0, *fingerprint.encode()])

        # Scores are compared after rounding to multiples of this step.
        self._step = choose_step(calibration.scored.scores, rounding=calibration.scored.rounding)

        # One threshold for each condition, a group of rows with a threshold of its own.
        self._thresholds = {}
        for condition in calibration.conditions:
            threshold = condition.threshold
            rounded_value = round_scores(np.array([threshold.value]), self._step)[0]
            self._thresholds[condition.name] = WatchedThreshold(
                float(rounded_value),
                rank=int(threshold.rank or 0),
                scores=round_scores(condition.scores, self._step),
                random=self._random,
            )

        # What is known of the rows so far: nothing.
        self._rows = TakenRows()
        self._slices: dict[str, _WatchedSlice] = {}
        self._evidence = Evidence.before_first_row()  # of a change of coverage
        self._stakes = Stakes.before_first_row()  # of bets on a drift of scores
        self._timeline = Timeline()

    def _continue_from(self, state: Mapping[str, Any]) -> None:
        """Take the rows of a state again, one by one, as if they had just arrived."""
        rows = read_state(state, self._settings, calibration=self._calibration_digest())
        columns = zip(rows.covered, rows.scores, rows.conditions, rows.slices, strict=True)
        for covered, score, condition, slice_name in columns:
            self._take_row(score, covered=covered, condition=condition, slice_name=slice_name)
        self._rows.fingerprints = rows.fingerprints

    def _calibration_digest(self) -> str:
        """Name the calibration that is watched, so that a state is not continued with another."""
        certificate = self._predictor.certificate
        ranks = " ".join(
            f"{watched.rank}/{watched.n_calibration}" for watched in self._thresholds.values()
        )
        structure = certificate.structure.structure_fingerprint
        return f"{structure} {certificate.provenance.scores_fingerprint} {ranks}"

    def _note_copies_in_fit(self) -> None:
        """Show a note if rows of the fit have copies, which a monitor would count once."""
        share_repeated = self._predictor.kept_rows.repeated
        if self._settings.duplicates == "natural" or share_repeated == 0:
            return
        text = (
            f"{share_repeated:.1%} of the rows of the fit have copies among them, and a monitor "
            "counts equal rows once: alarms may then be false."
        )
        show([Note("repeats", text, Message("Count all: ⟨duplicates=natural⟩."))])

    def __getstate__(self) -> dict[str, Any]:
        return {
            "est": self._est,
            **asdict(self._settings),
            "state": json.dumps(self.state()),
        }

    def __setstate__(self, saved: dict[str, Any]) -> None:
        Monitor.__init__(self, **saved | {"state": json.loads(saved["state"])})

    # ---------------------------------------------------------------- taking rows

    def _score(self, X: Any, y: Any, by: Any) -> _ScoredBatch:
        """Predict and score the rows of a batch, one value per row for all that is counted later.

        `by` names the slice of each row, if slices are watched. No result depends on other rows, so
        several threads may do this at once.
        """
        X = self._est.check_features(X)
        y = self._predictor.read_targets(y)
        sets = self._est.predict_set(X)
        slices: list[str | None] = [None] * len(y)
        if by is not None:
            slices = [str(value) for value in np.asarray(by).tolist()]
        _check_lengths(len(sets), {"y": len(y), "by": len(slices)})

        has_known_label = sets.knows(y)
        hashes = row_fingerprints(X, y)
        return _ScoredBatch(
            covered=np.asarray(sets.contains(y), dtype=bool),
            has_known_label=has_known_label,
            scores=self._rounded_scores(X, y, has_known_label),
            conditions=self._condition_names(X, y),
            slices=slices,
            fingerprints=_in_hex(hashes),
            was_in_fit=self._predictor.kept_rows.recognise(hashes).is_recognised,
        )

    def _rounded_scores(self, X: Any, y: AnyArray, has_known_label: Bools) -> Floats:
        """Score the rows; a label that the fit does not know has an infinite score."""
        scores = np.full(len(y), np.inf)
        rows = np.flatnonzero(has_known_label)
        if rows.size:
            scores[rows] = self._predictor.scores(take_features(X, rows), y[rows])
        return round_scores(scores, self._step)

    def _condition_names(self, X: Any, y: AnyArray) -> list[str | None]:
        """Name the condition of each row; None for one without calibration rows."""
        calibration = self._predictor.calibration
        names = [condition.name for condition in calibration.conditions]
        positions = calibration.condition_positions(X, y).tolist()  # -1 where there is none
        return [names[position] if position >= 0 else None for position in positions]

    def _take(self, batch: _ScoredBatch) -> int:
        """Take the rows of a batch that count; return how many do not."""
        n_repeated = 0
        with self._lock:
            for row in range(len(batch)):
                if self._is_repeated(batch, row):
                    n_repeated += 1
                    continue
                self._take_row(
                    float(batch.scores[row]),
                    covered=bool(batch.covered[row]),
                    condition=batch.conditions[row],
                    slice_name=batch.slices[row],
                )
        return n_repeated

    def _is_repeated(self, batch: _ScoredBatch, row: int) -> bool:
        """Decide whether a row was met before and does not count, and remember the row."""
        if self._settings.duplicates == "natural":
            return False
        fingerprint = batch.fingerprints[row]
        is_repeated = bool(batch.was_in_fit[row]) or fingerprint in self._rows.fingerprints
        self._rows.fingerprints[fingerprint] = None
        return is_repeated

    def _take_row(
        self, score: float, *, covered: bool, condition: str | None, slice_name: str | None
    ) -> None:
        """Take one row: count it, and update the evidence for a change and for a drift.

        Parameters
        ----------
        score
            The rounded score of the row.
        covered
            Whether its prediction set holds its label.
        condition
            The group of rows whose threshold it has; None for rows without one.
        slice_name
            The part of the rows in which it counts as well, if slices are watched.
        """
        tie_uniform, place_uniform = self._random.random(2).tolist()

        # 1. The threshold of its condition. A hit is a covered row, but for ties. A condition
        # without calibration rows has full sets, so that nothing is learnt from its rows.
        is_hit = covered
        chance_of_hit = 1.0
        threshold = self._thresholds.get(condition)
        if threshold is not None:
            chance_of_hit = threshold.chance_of_hit()
            is_hit = threshold.is_hit(score, uniform=tie_uniform, covered=covered)
            threshold.count(hit=is_hit, covered=covered)

            # A drift shows in the place of the score among earlier ones.
            place = threshold.scores.place(score, uniform=place_uniform)
            self._stakes = self._stakes.after(place)

        # 2. Its slice.
        if slice_name is not None:
            watched = self._slices.setdefault(slice_name, _WatchedSlice())
            watched.take(score, uniform=place_uniform, covered=covered)

        # 3. All rows together.
        self._evidence = self._evidence.after(is_hit, chance_of_hit)
        self._rows.append(score, covered=covered, condition=condition, slice_name=slice_name)
        self._timeline.append(
            hit=is_hit,
            chance_of_hit=chance_of_hit,
            p_value=self._p_value,
            drift_p_value=self._drift_p_value,
            detector=float(self._evidence.detector),
        )

    # ---------------------------------------------------------------- reporting

    @property
    def _p_value(self) -> float:
        """The p-value of the alarm."""
        return float(self._evidence.p_value())

    @property
    def _drift_p_value(self) -> float:
        """The p-value of the drift."""
        return float(self._stakes.p_value())

    def _first_report(self) -> int:
        """Return the row, from 1, after which there was an alarm or a change for the first time."""
        is_alarm = self._timeline.p_value <= self.error_rate
        is_change = self._timeline.detector >= self.run_length
        return int(np.argmax(is_alarm | is_change)) + 1

    def _likely_start(self, reported: int) -> int:
        """Estimate the row, from 1, with which the change that was reported after a row began."""
        n_rows_before = likely_start(
            self._timeline.hit, self._timeline.chance_of_hit, reported=reported
        )
        return n_rows_before + 1

    def _expected_coverage(self) -> float:
        """Return the expected coverage, k / (n + 1), as a mean over all calibration rows.

        Each condition counts with the number of its calibration rows; 1 where there are none.
        """
        thresholds = self._thresholds.values()
        n_calibration = sum(watched.n_calibration for watched in thresholds)
        if n_calibration == 0:
            return 1.0
        n_expected_covered = sum(
            watched.n_calibration * watched.rank / (watched.n_calibration + 1)
            for watched in thresholds
        )
        return n_expected_covered / n_calibration

    def _watched_conditions(self) -> tuple[WatchedCondition, ...]:
        """Describe the conditions with thresholds of their own.

        Their p-values are multiplied by the number of conditions (Bonferroni).
        """
        n_conditions = len(self._thresholds)
        return tuple(
            WatchedCondition(
                condition=condition,
                rows=watched.n_rows,
                coverage=watched.n_covered / watched.n_rows if watched.n_rows else math.nan,
                expected_coverage=watched.expected_coverage,
                p_value=min(1.0, n_conditions * float(watched.evidence.p_value())),
            )
            for condition, watched in self._thresholds.items()
            if condition is not None
        )

    def _watched_slices(self) -> tuple[WatchedSlice, ...]:
        """Describe the slices, in the order in which they appeared.

        The sum of 1 / (j (j + 1)) over all j is 1, so the p-value of the j-th slice is multiplied
        by j (j + 1), however many slices come.
        """
        return tuple(
            WatchedSlice(
                slice=name,
                rows=watched.n_rows,
                coverage=watched.n_covered / watched.n_rows,
                drift_p_value=min(1.0, j * (j + 1) * float(watched.stakes.p_value())),
            )
            for j, (name, watched) in enumerate(self._slices.items(), start=1)
        )


@dataclass(frozen=True, eq=False)
class _ScoredBatch:
    """What a monitor needs to know of the rows of a batch, one value per row."""

    covered: Bools
    has_known_label: Bools
    scores: Floats
    conditions: list[str | None]
    slices: list[str | None]
    fingerprints: list[str]
    was_in_fit: Bools

    def __len__(self) -> int:
        return len(self.covered)


@dataclass
class _WatchedSlice:
    """The rows of one slice, and bets on the places of their scores.

    No promise is about a slice, so its scores are placed among its own earlier ones alone.
    """

    n_rows: int = 0
    n_covered: int = 0
    scores: SortedScores = field(default_factory=SortedScores)
    stakes: Stakes = field(default_factory=Stakes.before_first_row)

    def take(self, score: float, *, uniform: float, covered: bool) -> None:
        """Take one more row."""
        self.n_rows += 1
        self.n_covered += covered
        self.stakes = self.stakes.after(self.scores.place(score, uniform=uniform))


def check_can_be_watched(est: DecoupledClassifier | DecoupledRegressor) -> None:
    """Refuse a fit without a guarantee, and one whose coverage has no known law, and say why."""
    if est.certificate_.guarantee == "none":
        raise ValueError(
            'The fit guarantees nothing (its certificate says "none"), so there is no promise to '
            "watch."
        )
    no_law = est.predictor_.calibration.no_law
    if no_law is not None:
        raise ValueError(f"This fit cannot be watched: {no_law}.")


def _check_lengths(n_rows: int, lengths: Mapping[str, int]) -> None:
    """Raise unless each argument has one value for each row of X; `lengths` is by its name."""
    for name, length in lengths.items():
        if length != n_rows:
            raise ValueError(
                f"X has {counted(n_rows, 'row')} and {name} has {length}: give one for each row."
            )


def _in_hex(hashes: AnyArray) -> list[str]:
    """Write 16-byte hashes as text; as bytes they would lose zeros at their end."""
    words = hashes.view(np.uint64).reshape(-1, 2)
    return [f"{first:016x}{second:016x}" for first, second in words.tolist()]


def _note_rows(n_rows: int, *, n_unknown: int, n_repeated: int) -> None:
    """Show notes on rows with unknown labels and on rows that were met before."""
    if n_unknown:
        text = (
            f"{counted(n_unknown, 'label')} of {n_rows} {are(n_unknown)} not in classes_ and "
            "count as misses."
        )
        show([Note("unknown-labels", text, "Are labels spelt as in fit?")])
    if n_repeated:
        text = (
            f"{counted(n_repeated, 'row')} of {n_rows} {are(n_repeated)} equal to rows seen "
            "before, here or in the fit: left out."
        )
        remedy = Message("If different rows are often equal: ⟨duplicates=natural⟩.")
        show([Note("repeats", text, remedy)])
