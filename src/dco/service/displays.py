"""What a monitor has seen, as a matplotlib plot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dco.foundations.arrays import Floats, Integers
from dco.foundations.drawing import BLUE, DASHED, INK, LEGEND_ABOVE, ORANGE, PALE, Display
from dco.service.evidence import confidence_sequence
from dco.service.monitor import Monitor

_POINTS = 200  # of a curve over rows
_PARTS = 24  # of the rows, in time
_LEAST_PART = 25  # rows that each part has at least


@dataclass(kw_only=True, eq=False, repr=False)
class MonitorDisplay(Display):
    """The coverage of rows as they arrived, its interval for all times, what the calibration
    promises, and the alarm.

    `alarm` is the row, counted from 1, at which the monitor raised one; None if there is none.
    `recent` holds the coverage of the rows since the point before: each point stands for about as
    many rows.
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
        """The rows that a monitor has seen."""
        timeline = monitor.timeline()
        covered = timeline["covered"]
        below = np.flatnonzero(timeline["p_value"] <= monitor.error_rate)
        if covered.size == 0:
            raise ValueError("The monitor has seen no rows yet: update it first.")
        rows = np.unique(
            np.linspace(1, covered.size, min(_POINTS, covered.size)).round().astype(np.int64)
        )
        total = np.cumsum(covered)[rows - 1]
        pairs = zip(total.tolist(), rows.tolist(), strict=True)
        low, high = np.array(
            [confidence_sequence(hits, n, error_rate=monitor.error_rate) for hits, n in pairs]
        ).T
        parts = np.array_split(
            np.arange(covered.size), max(1, min(_PARTS, covered.size // _LEAST_PART))
        )
        recent = np.array([[part.mean() + 1, covered[part].mean()] for part in parts]).T
        return cls(
            rows=rows,
            coverage=total / rows,
            low=low,
            high=high,
            expected=monitor.report().expected_coverage,
            alarm=int(below[0]) + 1 if below.size else None,
            recent=(recent[0], recent[1]),
        ).plot(ax)

    def draw(self, ax: Any) -> None:
        """Draw into these axes."""
        ax.fill_between(
            self.rows, self.low, self.high, color=PALE, linewidth=0, label="interval for all times"
        )
        ax.plot(self.rows, self.coverage, color=BLUE, label="covered so far")
        ax.plot(*self.recent, ".", color=INK, label="covered lately")
        # not down to the first interval
        ax.set_ylim(max(0.0, min(self.expected, *self.recent[1]) - 0.15), 1.01)
        ax.axhline(self.expected, **DASHED, label="expected")
        if self.alarm is not None:
            ax.axvline(self.alarm, color=ORANGE, label=f"alarm at row {self.alarm}")
        ax.set(xlabel="rows", ylabel="coverage")
        ax.legend(**LEGEND_ABOVE, ncols=3)
