"""The work of ``dco audit``: compare a certificate with a model, a copy and the rows of the fit."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import dco
from dco.certificate import Check, VerificationReport
from dco.cli.model_files import open_model
from dco.cli.option_records import TargetOptions
from dco.cli.tables.fitted import StoredTable, rows_with_targets
from dco.foundations.arrays import Integers
from dco.foundations.display import are, counted
from dco.foundations.fingerprints import Hashes, role_fingerprint, row_fingerprints
from dco.foundations.tables import take_features

OTHER_ROLES = {"train": "training", "tune": "tuning"}
_ROLES = {**OTHER_ROLES, "calibrate": "calibration"}
# A count by a sample may be off; this share of the rows is more than ten standard deviations.
_SAMPLING_ERROR = 0.02


@dataclass(frozen=True)
class AuditOrder:
    """What the options of `dco audit` ask for."""

    model: Path
    data: Path | None
    copy: Path | None  # a certificate that was kept elsewhere
    reading: TargetOptions
    trust: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Audit:
    """A certificate, what was checked of it, and where the rows of the fit were found.

    `whereabouts` is a sentence if rows are missing or not where the fit had them.
    """

    certificate: dco.Certificate
    report: VerificationReport
    whereabouts: str | None = None


def audit(order: AuditOrder) -> Audit:
    """Check a certificate: by itself, or against a model, a copy of it and the rows of the fit."""
    is_certificate = order.model.suffix.lower() == ".json" and order.model.is_file()
    if is_certificate:
        return _audit_alone(order)

    estimator = open_model(order.model, order.trust)
    certificate = estimator.certificate_ if order.copy is None else read_certificate(order.copy)
    if order.data is None:
        result = Audit(certificate, certificate.verify(predictor=estimator))
    else:
        result = _audit_with_rows(order, order.data, estimator, certificate)
    return replace(result, report=_without_empty_roles(result, estimator))


def read_certificate(path: Path) -> dco.Certificate:
    """Read a certificate from a file: by itself, or within what `dco fit --json` printed."""
    try:
        text = path.read_text(encoding="utf-8")
        with suppress(ValueError, RecursionError):  # `from_json` says what is wrong
            content = json.loads(text)
            if _is_output_of_fit(content):
                text = json.dumps(content["certificate"])
        return dco.Certificate.from_json(text)
    except UnicodeDecodeError:
        problem = "this is no certificate, since it is not JSON text."
    except ValueError as error:
        problem = str(error)
    raise ValueError(f"{path}: {problem} Give what `dco fit --certificate` wrote.")


def _is_output_of_fit(content: Any) -> bool:
    """Return whether this is what `dco fit --json` printed, with a certificate in it."""
    is_mapping = isinstance(content, dict)
    return is_mapping and "format" not in content and isinstance(content.get("certificate"), dict)


def _audit_alone(order: AuditOrder) -> Audit:
    """Check a certificate against itself."""
    if order.data is not None or order.copy is not None:
        raise ValueError(
            "A certificate alone cannot be checked against rows or a copy: give the model file."
        )
    certificate = read_certificate(order.model)
    return Audit(certificate, certificate.verify())


def _audit_with_rows(
    order: AuditOrder, data: Path, estimator: Any, certificate: dco.Certificate
) -> Audit:
    """Find the rows of the fit in a table, and check the certificate against them."""
    rows = rows_with_targets(estimator, data, order.reading)
    table = FitTable.of(estimator, row_fingerprints(rows.X, rows.y))
    calibration_rows = table.find_calibration_rows()
    positions = calibration_rows.positions
    report = certificate.verify(
        take_features(rows.X, positions), rows.y[positions], predictor=estimator
    )
    for role in OTHER_ROLES:
        report = _check_role(report, role, certificate, table, data)
    return Audit(certificate, report, table.whereabouts(data, has_moved=calibration_rows.has_moved))


def _without_empty_roles(result: Audit, estimator: Any) -> VerificationReport:
    """Do not list roles without rows, in the certificate as in the model, as unchecked."""
    stated_rows = result.certificate.provenance.rows
    empty_fields = [
        f"rows.{role}"
        for role in OTHER_ROLES
        if stated_rows.get(role) == 0 and not estimator.splits_[role].size
    ]
    return result.report.without_unchecked(empty_fields)


# --- the rows of the fit --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FoundRows:
    """Where calibration rows are in a table, and whether the fit had them elsewhere."""

    positions: Integers
    has_moved: bool


@dataclass(frozen=True, eq=False)
class FitTable:
    """A table in which the rows of a fit are looked for, by their hashes.

    Attributes
    ----------
    predictor
        The predictor, which keeps hashes of its rows.
    hashes
        The hash of each row of the table.
    fitted_rows
        Where the rows of the fit were in their table; None if this table has another length.
    has_more_rows
        Whether the table has more rows than that of the fit.
    n_absent
        The rows of each role that are not in the table, where some are not.
    n_strangers
        The rows of the table that neither took part in the fit nor can have been set aside.
    knows_every_row
        Whether the model keeps a hash of every row, and not of a sample.
    """

    predictor: Any
    hashes: Hashes
    fitted_rows: Integers | None
    has_more_rows: bool
    n_absent: dict[str, int]
    n_strangers: int
    knows_every_row: bool

    @classmethod
    def of(cls, estimator: Any, hashes: Hashes) -> FitTable:
        """Count the rows of the fit in a table."""
        predictor = estimator.predictor_
        n_rows = len(hashes)
        stored = StoredTable.of(estimator)
        n_set_aside = 0 if stored is None else stored.n_rows - len(stored.fitted_rows)
        used = predictor.kept_rows.recognise(hashes)
        error = 0 if used.is_exact else _SAMPLING_ERROR * n_rows
        absent = predictor.kept_rows.absent(hashes)
        return cls(
            predictor=predictor,
            hashes=hashes,
            fitted_rows=_fitted_rows(stored, n_rows),
            has_more_rows=stored is not None and n_rows > stored.n_rows,
            n_absent={role: n for role, n in absent.items() if n},
            n_strangers=max(0, int(used.n_new - n_set_aside - error)),
            knows_every_row=used.is_exact,
        )

    def find_calibration_rows(self) -> FoundRows:
        """Find the calibration rows where the fit had them, or else wherever their hashes are.

        If the table lacks some, return the rows that are now where the fit had them, or all rows;
        the checks that follow refuse these.
        """
        all_rows = np.arange(len(self.hashes))
        at_the_fit = self._positions_at_the_fit("calibrate")

        # 1. They are where the fit had them, or all rows, or all that neither trained nor tuned.
        unmoved = self.pick_rows_of("calibrate", [at_the_fit, all_rows, self._rest()])
        if unmoved is not None:
            return FoundRows(unmoved, has_moved=False)

        # 2. They are in other positions.
        moved = self.pick_rows_of("calibrate", [self.find_by_hashes("calibrate")])
        if moved is not None:
            return FoundRows(moved, has_moved=True)

        # 3. They are not all in the table.
        wrong_rows = all_rows if at_the_fit is None else at_the_fit
        return FoundRows(wrong_rows, has_moved=False)

    def find_role(self, role: str) -> Integers | None:
        """Find the rows of a role where the fit had them, or else wherever their hashes are."""
        return self.pick_rows_of(
            role, [self._positions_at_the_fit(role), self.find_by_hashes(role)]
        )

    def pick_rows_of(self, role: str, guesses: Iterable[Integers | None]) -> Integers | None:
        """Return the first guess whose rows, together, have the fingerprint of the role."""
        fingerprint = self.fingerprint_of(role)
        for positions in guesses:
            if positions is None:
                continue
            if role_fingerprint(self.hashes[positions]) == fingerprint:
                return positions
        return None

    def fingerprint_of(self, role: str) -> str | None:
        """Return the fingerprint of a role, as the model has it."""
        fingerprint: str | None = self.predictor.certificate.provenance.row_fingerprints.get(role)
        return fingerprint

    def find_by_hashes(self, role: str) -> Integers:
        """Find the rows of the table whose hashes the model keeps for a role."""
        rows_of_role = self.predictor.kept_rows.of_role(role)
        return np.flatnonzero(rows_of_role.recognise(self.hashes).is_recognised)

    def _positions_at_the_fit(self, role: str) -> Integers | None:
        """Return where the rows of a role were at the fit; None if this is another table."""
        positions: Integers = self.predictor.splits[role]
        if self.fitted_rows is None or not positions.size:
            return None
        if positions.max() >= len(self.fitted_rows):
            return None
        return self.fitted_rows[positions]

    def _rest(self) -> Integers:
        """Return the rows that neither trained nor tuned, which `dco recalibrate --rest` takes."""
        rest = np.arange(len(self.hashes))
        for role in OTHER_ROLES:
            positions = self._positions_at_the_fit(role)
            if positions is not None:
                rest = np.setdiff1d(rest, positions)
        return rest

    def whereabouts(self, data: Path, *, has_moved: bool) -> str | None:
        """Say that rows are missing, or are not where the fit had them."""
        if self.n_absent and not self.n_strangers:
            roles = ", ".join(f"{n} {_ROLES[role]}" for role, n in self.n_absent.items())
            rest = "" if "calibrate" in self.n_absent else "; all calibration rows were found"
            return f"Rows of the fit are missing from {data} ({roles}){rest}."
        if not has_moved:
            return None
        if self.has_more_rows:
            return f"{data} has rows besides those of the fit; the calibration rows were found."
        return (
            f"The rows of {data} are in another order than at the fit; the calibration rows were "
            "found."
        )


def _fitted_rows(stored: StoredTable | None, n_rows: int) -> Integers | None:
    """Return where the rows of the fit are in a table of so many rows; None if it is another one.

    It may hold all rows of the table of the fit, or those that were fitted. In a model from Python,
    positions are those of the rows that were given to the fit.
    """
    if stored is None or n_rows == len(stored.fitted_rows):
        return np.arange(n_rows)
    if n_rows == stored.n_rows:
        return stored.fitted_rows
    return None


# --- training and tuning rows ---------------------------------------------------------------------


def _check_role(
    report: VerificationReport,
    role: str,
    certificate: dco.Certificate,
    table: FitTable,
    data: Path,
) -> VerificationReport:
    """Add to the report whether the table has the rows that the certificate states for a role.

    If the table does not decide that, the role stays unchecked, and the report says why.
    """
    if certificate.provenance.row_fingerprints.get(role) is None:
        return report

    fields_of_role = [f"row_fingerprints.{role}", f"rows.{role}"]
    check = _compare_role(role, certificate, table, data)
    if check is not None:
        return report.with_check(check, of_fields=fields_of_role)

    if table.n_absent.get(role):
        reason = f"since {data} lacks some of the rows"
    else:
        reason = "since its rows cannot be told from others"
    return report.with_unchecked(fields_of_role, reason=reason)


def _compare_role(
    role: str, certificate: dco.Certificate, table: FitTable, data: Path
) -> Check | None:
    """Compare the rows of a role with the certificate; None if the table does not decide it."""
    name = f"{OTHER_ROLES[role]} rows"
    stated_fingerprint = certificate.provenance.row_fingerprints[role]
    n_stated = certificate.provenance.rows.get(role)

    # 1. The table has the rows of the model: they must be those of the certificate.
    positions = table.find_role(role)
    if positions is not None:
        fingerprint = table.fingerprint_of(role)
        holds = stated_fingerprint == fingerprint and n_stated == len(positions)
        return Check(name, holds, f"fingerprint of {len(positions)} rows: {fingerprint}")

    # 2. Each row that the model keeps is there once, so that no other rows can be meant.
    n_kept = len(table.predictor.kept_rows.hashes.get(role, ()))
    has_each_once = len(table.find_by_hashes(role)) == n_kept > 0
    if table.knows_every_row and has_each_once:
        detail = f"they are in {data}, and their fingerprint is not {stated_fingerprint}"
        return Check(name, False, detail)

    # 3. Rows are missing, and others are in their place.
    n_absent = table.n_absent.get(role)
    if n_absent and table.n_strangers:
        strangers = f"{counted(table.n_strangers, 'row')} that {are(table.n_strangers)}"
        detail = (
            f"{n_absent} of {n_stated} are not in {data}, which has at least {strangers} not of "
            "the fit"
        )
        return Check(name, False, detail)
    return None
