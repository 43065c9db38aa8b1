"""The seal on the calibration rows."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, NoReturn

from dco.foundations.arrays import AnyArray, Integers
from dco.foundations.errors import SealBrokenError
from dco.foundations.fingerprints import Hashes, role_fingerprint, row_fingerprints
from dco.rows.rows import Rows


@dataclass(frozen=True)
class Access:
    """One request for sealed rows: when (UTC), for which structure, what for, and whether it was
    granted.
    """

    when: datetime.datetime
    structure: str
    purpose: str
    granted: bool

    def __str__(self) -> str:
        return f"{self.when:%Y-%m-%d %H:%M:%S} UTC, {self.purpose}, structure {self.structure}"


class SealedRows:
    """Calibration rows that open once, for one frozen structure.

    The guarantee needs a structure that was fixed before any calibration row was seen. Whoever may
    look twice can choose by what the first look showed, so a second request is refused, whether it
    names another structure or the same: a name fixes neither a random seed nor a level that is
    changed between the looks. What is needed again, such as the scores, is kept by the one who
    opened. Refused requests are logged too. Rows that changed after sealing are refused. A copy
    would be a second chance, so there is none: not by copy, not by pickle.

    This guards against mistakes, not against people who read private attributes.

    Parameters
    ----------
    X, y, clusters
        Features and targets, and which rows belong together.
    positions
        Seal only these rows of X. They are copied when the seal opens, so that until then they take
        no memory beside the table.
    fingerprint
        The digest of the rows, if it is known already.
    """

    __slots__ = ("__positions", "__table", "_fingerprint", "_log", "_n_rows")

    def __init__(
        self,
        X: Any,
        y: Any,
        *,
        clusters: AnyArray | None = None,
        positions: Integers | None = None,
        fingerprint: str = "",
    ) -> None:
        """Seal rows of a table: all of them, or those at `positions`.

        The digest of the sealed rows is stored, to find out whether they were changed. Pass it as
        `fingerprint` if it was computed before.
        """
        table = Rows(X, y, clusters)
        # Two underscores: Python changes such names, so that nobody reads them by mistake.
        self.__table: Rows | None = table  # None once the seal is open
        self.__positions = positions
        self._n_rows = len(table) if positions is None else len(positions)
        self._fingerprint = fingerprint or role_fingerprint(self._hash_rows(self.__sealed_rows()))
        self._log: tuple[Access, ...] = ()

    @property
    def fingerprint(self) -> str:
        """The digest of the rows when they were sealed, in any order."""
        return self._fingerprint

    @property
    def log(self) -> tuple[Access, ...]:
        """Every request so far, granted or not."""
        return self._log

    @property
    def opened_for(self) -> str | None:
        """The structure that the rows were opened for, None while they are sealed."""
        return next((access.structure for access in self._log if access.granted), None)

    def open_for(self, structure: str, *, purpose: str = "calibrate") -> Rows:
        """Hand out the sealed calibration rows; a second request is an error.

        `structure` is the fingerprint of the frozen structure that will score the rows, and
        `purpose` says what they are for. Every request is logged, refused ones too. Rows that were
        changed in place since they were sealed are refused.
        """
        if not structure:
            raise ValueError("Sealed rows open for a frozen structure: give its fingerprint.")
        if self.__table is None:
            self._note_access(structure, purpose, granted=False)
            raise SealBrokenError(self._explain_second_request(structure))

        rows = self.__sealed_rows()
        if role_fingerprint(self._hash_rows(rows)) != self._fingerprint:
            self._note_access(structure, purpose, granted=False)
            raise SealBrokenError(
                "The calibration rows are not those that were sealed: something changed them in "
                "place. Seal a copy of them."
            )

        self._note_access(structure, purpose, granted=True)
        self.__table = None
        return rows

    def __sealed_rows(self) -> Rows:
        """Return the rows; they are copied if they are some of a larger table."""
        table = self.__table
        assert table is not None
        return table if self.__positions is None else table.take(self.__positions)

    def _hash_rows(self, rows: Rows) -> Hashes:
        return row_fingerprints(rows.X, rows.y)

    def _note_access(self, structure: str, purpose: str, *, granted: bool) -> None:
        """Add a request to the log."""
        access = Access(datetime.datetime.now(datetime.UTC), structure, purpose, granted)
        self._log = (*self._log, access)

    def _explain_second_request(self, structure: str) -> str:
        first = self.opened_for
        which = "the same structure" if first == structure else "another structure"
        return (
            f"The calibration rows were opened for structure {first} and are now asked for by "
            f"{which} ({structure}); what is chosen after a look at them is not covered. Keep the "
            f"first result, or calibrate on fresh rows."
        )

    def __len__(self) -> int:
        return self._n_rows

    def __repr__(self) -> str:
        state = "sealed" if self.opened_for is None else f"opened for {self.opened_for}"
        return f"<SealedRows: {self._n_rows} rows, {state}, {len(self._log)} requests>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "Sealed rows cannot be copied or pickled: a copy could be opened a second time."
        )
