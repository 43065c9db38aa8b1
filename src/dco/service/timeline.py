"""What a monitor knew after each row, in compact columns."""

from __future__ import annotations

from array import array

import numpy as np

from dco.foundations.arrays import Bools, Floats


class Timeline:
    """One value per row and column, in the order of the rows."""

    def __init__(self) -> None:
        self._hit = array("b")
        self._chance_of_hit = array("d")
        self._p_value = array("d")
        self._drift_p_value = array("d")
        self._detector = array("d")

    def append(
        self,
        *,
        hit: bool,
        chance_of_hit: float,
        p_value: float,
        drift_p_value: float,
        detector: float,
    ) -> None:
        """Add a row."""
        self._hit.append(hit)
        self._chance_of_hit.append(chance_of_hit)
        self._p_value.append(p_value)
        self._drift_p_value.append(drift_p_value)
        self._detector.append(detector)

    @property
    def hit(self) -> Bools:
        """Whether each row was a hit."""
        return np.array(self._hit, dtype=bool)

    @property
    def chance_of_hit(self) -> Floats:
        """The probability with which each row was expected to be a hit."""
        return np.array(self._chance_of_hit)

    @property
    def p_value(self) -> Floats:
        """The p-value of the alarm as it stood after each row."""
        return np.array(self._p_value)

    @property
    def drift_p_value(self) -> Floats:
        """The p-value of the drift as it stood after each row."""
        return np.array(self._drift_p_value)

    @property
    def detector(self) -> Floats:
        """The sum of the evidence for a change as it stood after each row."""
        return np.array(self._detector)
