"""What a monitor has seen, as a matplotlib plot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dco.foundations.arrays import Bools, Floats, Integers
from dco.foundations.drawing import BLUE, DASHED, INK, LEGEND_ABOVE, ORANGE, PALE, Display
from dco.service.evidence import confidence_sequence
from dco.service.monitor import Monitor

_MOST_POINTS = 200  # of a curve over rows
_MOST_PARTS = 24  # of the rows in their order, for the coverage lately
_SMALLEST_PART = 25  # rows
_ROOM_BELOW = 0.15  # the lowest dot, in coverage


@dataclass(kw_only=True, eq=False, repr=False)
class MonitorDisplay(Display):
    """The coverage of rows as they arrived, with its interval for all times and the alarm.

    `alarm` is the row, counted from 1, at which the monitor raised one; None if there is none.
    `recent` is (middle rows, coverages) of parts of the rows, each with about as many rows.
    """

    rows: Integers
    coverage: Floats
    low: Floats
    high: Floats
    expected: float
    alarm: int | None
    recent: tuple[Floats, Floats]

    @classmethod
    def from_estimator(
        cls, est: Any, X: Any, y: Any, *, error_rate: Any = 0.05, ax: Any = None
    ) -> Self:
        """Watch the rows of X and y in their order, with a new monitor."""
        monitor = Monitor(est, error_rate=error_rate)
        monitor.update(X, y)
        return cls.from_monitor(monitor, ax=ax)

    @classmethod
    def from_monitor(cls, monitor: Monitor, *, ax: Any = None) -> Self:
        """Show the rows that a monitor has seen."""
        timeline = monitor.timeline()
        covered = timeline["covered"]
        if covered.size == 0:
            raise ValueError("The monitor has seen no rows yet: update it first.")

        rows = _rows_to_draw(covered.size)
        n_covered = np.cumsum(covered)[rows - 1]
        intervals = [
            confidence_sequence(hits, n_rows, error_rate=monitor.error_rate)
            for hits, n_rows in zip(n_covered.tolist(), rows.tolist(), strict=True)
        ]
        low, high = np.array(intervals).T
        alarms = np.flatnonzero(timeline["p_value"] <= monitor.error_rate)
        return cls(
            rows=rows,
            coverage=n_covered / rows,
            low=low,
            high=high,
            expected=monitor.report().expected_coverage,
            alarm=int(alarms[0]) + 1 if alarms.size else None,
            recent=_coverage_by_part(covered),
        ).plot(ax)

    def draw(self, ax: Any) -> None:
        """Draw coverage so far with its interval, coverage lately, and the alarm, over the rows."""
        ax.fill_between(
            self.rows, self.low, self.high, color=PALE, linewidth=0, label="interval for all times"
        )
        ax.plot(self.rows, self.coverage, color=BLUE, label="covered so far")
        middle_rows, recent_coverages = self.recent
        ax.plot(middle_rows, recent_coverages, ".", color=INK, label="covered lately")
        ax.axhline(self.expected, **DASHED, label="expected")
        if self.alarm is not None:
            ax.axvline(self.alarm, color=ORANGE, label=f"alarm at row {self.alarm}")

        # The first interval reaches down to 0 and would leave no room for the rest.
        lowest = min(self.expected, *recent_coverages)
        ax.set_ylim(max(0.0, lowest - _ROOM_BELOW), 1.01)
        ax.set(xlabel="rows", ylabel="coverage")
        ax.legend(**LEGEND_ABOVE, ncols=3)


def _rows_to_draw(n_rows: int) -> Integers:
    """Return up to 200 rows, counted from 1, at equal distances from the first to the last."""
    n_points = min(_MOST_POINTS, n_rows)
    return np.unique(np.linspace(1, n_rows, n_points).round().astype(np.int64))


def _coverage_by_part(covered: Bools) -> tuple[Floats, Floats]:
    """Cut the rows into parts of about one size; return their middle rows and coverages."""
    n_parts = max(1, min(_MOST_PARTS, covered.size // _SMALLEST_PART))
    parts = np.array_split(np.arange(covered.size), n_parts)
    middle_rows = np.array([part.mean() + 1 for part in parts])
    coverages = np.array([covered[part].mean() for part in parts])
    return middle_rows, coverages
