"""Calibration rows under seal: they open once, for one frozen structure, and every request is on record."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, NoReturn

from dco.foundations.errors import SealBrokenError
from dco.rows.fingerprints import role_fingerprint, row_fingerprints


@dataclass(frozen=True)
class Access:
    """One request for sealed rows: when (UTC), for which structure, what for, and whether it was granted."""

    when: datetime.datetime
    structure: str
    purpose: str
    granted: bool

    def __str__(self) -> str:
        return f"{self.when:%Y-%m-%d %H:%M:%S} UTC, {self.purpose}, structure {self.structure}"


class SealedRows:
    """Calibration rows that open once, for one frozen structure.

    The guarantee needs a structure that was fixed before any calibration row was seen, and whoever may look twice can
    choose by what the first look showed. So a second request is refused, whether it names another structure or the same:
    the name of a structure does not fix a random seed, or a level that is changed between the looks; what is needed
    again (the scores) is kept by the one who opened. Refused requests are logged too. Rows that were changed after
    sealing are refused. A copy would be a second chance, so there is none: not by copy, not by pickle.

    This guards against mistakes, not against people who read private attributes.
    """

    __slots__ = ("__rows", "_fingerprint", "_log", "_n")

    def __init__(self, X: Any, y: Any, *, fingerprint: str | None = None) -> None:
        self.__rows: tuple[Any, Any] | None = (X, y)
        self._fingerprint = _fingerprint_of(X, y) if fingerprint is None else fingerprint
        self._n = int(X.shape[0]) if hasattr(X, "shape") else len(X)
        self._log: tuple[Access, ...] = ()

    def open_for(self, structure: str, *, purpose: str = "calibrate") -> tuple[Any, Any]:
        """The rows (X, y), once; `structure` is the fingerprint of the frozen structure that will score them."""
        if not structure:
            raise ValueError("Sealed rows open for a frozen structure: give its fingerprint.")
        first = self.opened_for
        rows = self.__rows
        changed = rows is not None and _fingerprint_of(*rows) != self._fingerprint
        granted = rows is not None and not changed
        self._log = (*self._log, Access(datetime.datetime.now(datetime.UTC), structure, purpose, granted))
        if changed:
            raise SealBrokenError(
                "The calibration rows are not those that were sealed: something changed them in place. Seal a copy of them."
            )
        if rows is None:
            which = "the same structure" if first == structure else "another structure"
            raise SealBrokenError(
                f"The calibration rows were opened for structure {first} and are now asked for by {which} ({structure}); "
                "what is chosen after a look at them is not covered. Keep the first result, or calibrate on fresh rows."
            )
        self.__rows = None  # the seal itself lets go of the rows
        return rows

    @property
    def fingerprint(self) -> str:
        """The digest of the rows, taken when they were sealed; the order of the rows does not matter."""
        return self._fingerprint

    @property
    def log(self) -> tuple[Access, ...]:
        """Every request so far, granted or not."""
        return self._log

    @property
    def opened_for(self) -> str | None:
        """The structure that the rows were opened for, None while sealed."""
        return next((access.structure for access in self._log if access.granted), None)

    def __len__(self) -> int:
        return self._n

    def __repr__(self) -> str:
        state = "sealed" if self.opened_for is None else f"opened for {self.opened_for}"
        return f"<SealedRows: {self._n} rows, {state}, {len(self._log)} requests>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("Sealed rows cannot be copied or pickled: a copy could be opened a second time.")


def _fingerprint_of(X: Any, y: Any) -> str:
    return role_fingerprint(row_fingerprints(X, y))
