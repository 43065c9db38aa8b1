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

# The roles whose rows are recognised by fingerprints alone, in words; no score is recomputed there.
FITTING_ROLES = {"train": "training", "tune": "tuning"}
_ROLES = {**FITTING_ROLES, "calibrate": "calibration"}
# A count that is estimated from a sample of hashes may be wrong; this share of the rows is more
# than ten standard deviations.
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
    """A certificate and the checks of it.

    `row_remark` is a sentence if rows of the fit are missing from the table or have moved in it.
    """

    certificate: dco.Certificate
    report: VerificationReport
    row_remark: str | None = None


def audit(order: AuditOrder) -> Audit:
    """Check a certificate against everything that the options of `dco audit` name.

    A certificate file (JSON) is checked by itself: its numbers must agree with one another. The
    certificate of a model file, or a copy of it, is checked against the model, and against the rows
    of the fit if a table is given.
    """
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
    """Read a certificate from a JSON file.

    The file has the certificate alone, or the whole output of `dco fit --json`.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return dco.Certificate.from_json(_extract_certificate(text))
    except UnicodeDecodeError:
        problem = "this is no certificate, since it is not JSON text."
    except ValueError as error:
        problem = str(error)
    raise ValueError(f"{path}: {problem} Give what `dco fit --certificate` wrote.")


def _extract_certificate(text: str) -> str:
    """Take the certificate out of the output of `dco fit --json`; return other text unchanged."""
    with suppress(ValueError, RecursionError):  # no JSON: `Certificate.from_json` says so
        content = json.loads(text)
        is_certificate = not isinstance(content, dict) or "format" in content
        if not is_certificate and isinstance(content.get("certificate"), dict):
            return json.dumps(content["certificate"])
    return text


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
    table = AuditedTable.of(estimator, row_fingerprints(rows.X, rows.y))

    # 1. Recompute the scores of the calibration rows.
    calibration_rows = table.find_calibration_rows()
    positions = calibration_rows.positions
    report = certificate.verify(
        take_features(rows.X, positions), rows.y[positions], predictor=estimator
    )

    # 2. Compare the fingerprints of training and tuning rows.
    for role in FITTING_ROLES:
        report = _check_role(report, role, certificate, table, data)

    remark = table.describe_row_changes(data, has_moved=calibration_rows.has_moved)
    return Audit(certificate, report, remark)


def _without_empty_roles(result: Audit, estimator: Any) -> VerificationReport:
    """Take roles without rows off the list of unchecked fields: there is nothing to check."""
    stated_rows = result.certificate.provenance.rows
    empty_fields = [
        f"rows.{role}"
        for role in FITTING_ROLES
        if stated_rows.get(role) == 0 and not estimator.splits_[role].size
    ]
    return result.report.without_unchecked(empty_fields)


# --- the rows of the fit --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FoundRows:
    """Where calibration rows are in a table, and whether the fit had them at other positions."""

    positions: Integers
    has_moved: bool


@dataclass(frozen=True, eq=False)
class AuditedTable:
    """A table in which the rows of a fit are looked for, by their hashes.

    The model keeps a hash of each row of its fit, or of a random sample of them if there are many.

    Attributes
    ----------
    predictor
        The predictor, with the hashes of the fit.
    hashes
        The hash of each row of this table.
    fitted_rows
        The position in this table of each row that the fit used, if this is the table of the fit;
        None if the number of rows says that it is another one.
    has_more_rows
        Whether this table has more rows than the table of the fit.
    n_missing
        How many rows of each role are not in this table; only roles that lack some.
    n_new_rows
        How many rows of this table were not in the table of the fit, at least.
    has_all_hashes
        Whether the model keeps the hashes of all rows of the fit, not of a sample.
    """

    predictor: Any
    hashes: Hashes
    fitted_rows: Integers | None
    has_more_rows: bool
    n_missing: dict[str, int]
    n_new_rows: int
    has_all_hashes: bool

    @classmethod
    def of(cls, estimator: Any, hashes: Hashes) -> AuditedTable:
        """Compare the hashes of a table, one for each row, with those that a model keeps.

        The model keeps a hash of each row that it was fitted on (or of a sample of them, if there
        are many), so that the same rows are recognised in another file or order.
        """
        predictor = estimator.predictor_
        stored_table = StoredTable.of(estimator)
        n_rows = len(hashes)
        recognised = predictor.kept_rows.recognise(hashes)
        n_missing = predictor.kept_rows.absent(hashes)

        n_new_rows = _count_new_rows(
            recognised.n_new, n_rows, stored_table, is_exact=recognised.is_exact
        )
        return cls(
            predictor=predictor,
            hashes=hashes,
            fitted_rows=_fitted_rows(stored_table, n_rows),
            has_more_rows=stored_table is not None and n_rows > stored_table.n_rows,
            n_missing={role: n for role, n in n_missing.items() if n},
            n_new_rows=n_new_rows,
            has_all_hashes=recognised.is_exact,
        )

    def find_calibration_rows(self) -> FoundRows:
        """Find the calibration rows of the fit in this table.

        Rows are tried one set after the other, until one has the fingerprint of the calibration
        rows. If none has it, some calibration rows are not in this table. Then the rows at their
        old positions are returned all the same, so that the audit fails at their fingerprint.
        """
        all_rows = np.arange(len(self.hashes))
        positions_at_the_fit = self._positions_at_the_fit("calibrate")

        # 1. Rows that are where they were at the fit; or all rows, if only calibration rows were
        #    given; or all that neither trained nor tuned, after `dco recalibrate --rest`.
        guesses = [positions_at_the_fit, all_rows, self._rows_without_fitting_role()]
        unmoved_rows = self.pick_rows_of("calibrate", guesses)
        if unmoved_rows is not None:
            return FoundRows(unmoved_rows, has_moved=False)

        # 2. Rows at other positions, which are recognised by their hashes.
        moved_rows = self.pick_rows_of("calibrate", [self.find_by_hashes("calibrate")])
        if moved_rows is not None:
            return FoundRows(moved_rows, has_moved=True)

        # 3. None of these.
        if positions_at_the_fit is None:
            return FoundRows(all_rows, has_moved=False)
        return FoundRows(positions_at_the_fit, has_moved=False)

    def find_role(self, role: str) -> Integers | None:
        """Find the rows of a role; None if this table does not have all of them."""
        return self.pick_rows_of(
            role, [self._positions_at_the_fit(role), self.find_by_hashes(role)]
        )

    def pick_rows_of(self, role: str, guesses: Iterable[Integers | None]) -> Integers | None:
        """Return the first guess that has the fingerprint of the role; None if none has it.

        A guess is an array of row positions; None stands for no guess.
        """
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
        """Find the rows of this table whose hashes the model keeps for a role."""
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

    def _rows_without_fitting_role(self) -> Integers:
        """Return all rows but those that trained or tuned, as `dco recalibrate --rest` does."""
        remaining = np.arange(len(self.hashes))
        for role in FITTING_ROLES:
            positions = self._positions_at_the_fit(role)
            if positions is not None:
                remaining = np.setdiff1d(remaining, positions)
        return remaining

    def describe_row_changes(self, data: Path, *, has_moved: bool) -> str | None:
        """Write a remark if rows of the fit are missing or have moved; None if all are in place.

        `data` is the file of this table, for the text. `has_moved` says that the calibration rows
        were found at other positions than at the fit.
        """
        if self.n_missing and not self.n_new_rows:
            roles = ", ".join(f"{n} {_ROLES[role]}" for role, n in self.n_missing.items())
            sentence = f"Rows of the fit are missing from {data} ({roles})"
            if "calibrate" not in self.n_missing:
                sentence += "; all calibration rows were found"
            return f"{sentence}."

        if not has_moved:
            return None
        if self.has_more_rows:
            return f"{data} has rows besides those of the fit; the calibration rows were found."
        return (
            f"The rows of {data} are in another order than at the fit; the calibration rows were "
            "found."
        )


def _count_new_rows(
    n_unrecognised: int, n_rows: int, stored_table: StoredTable | None, *, is_exact: bool
) -> int:
    """Count the rows of a table that the table of the fit did not have, at least.

    Parameters
    ----------
    n_unrecognised
        How many of the `n_rows` rows have a hash that the model does not keep.
    stored_table
        What the model knows of the table of the fit; None if it was fitted in Python.
    is_exact
        Whether `n_unrecognised` is a count, not an estimate from a sample.
    """
    # The rows that `dco fit --test-size` kept for an evaluation have no hash, and are not new.
    n_unused_rows = 0
    if stored_table is not None:
        n_unused_rows = stored_table.n_rows - len(stored_table.fitted_rows)
    possible_error = 0 if is_exact else _SAMPLING_ERROR * n_rows
    return max(0, int(n_unrecognised - n_unused_rows - possible_error))


def _fitted_rows(stored: StoredTable | None, n_rows: int) -> Integers | None:
    """Return the position of each row that the fit used, in a table with so many rows.

    The table is that of the fit, or only those of its rows that the fit used; None if the number of
    rows fits neither. A model that was fitted in Python (`stored` is None) used all rows.
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
    table: AuditedTable,
    data: Path,
) -> VerificationReport:
    """Check that the training or tuning rows in the table are those that the certificate states.

    `role` is "train" or "tune". Returns the report with one more check; or, if the table cannot
    decide, with the role among what stays unchecked, and the reason.
    """
    if certificate.provenance.row_fingerprints.get(role) is None:
        return report

    fields_of_role = [f"row_fingerprints.{role}", f"rows.{role}"]
    check = _compare_role(role, certificate, table, data)
    if check is not None:
        return report.with_check(check, of_fields=fields_of_role)

    if table.n_missing.get(role):
        reason = f"since {data} lacks some of the rows"
    else:
        reason = "since its rows cannot be told from others"
    return report.with_unchecked(fields_of_role, reason=reason)


def _compare_role(
    role: str, certificate: dco.Certificate, table: AuditedTable, data: Path
) -> Check | None:
    """Compare the training or tuning rows in a table with what the certificate states of them.

    `role` is "train" or "tune"; the certificate states a fingerprint and a number of rows. Returns
    None if the table cannot decide: some rows are missing, but no others have taken their place.
    """
    name = f"{FITTING_ROLES[role]} rows"
    stated_fingerprint = certificate.provenance.row_fingerprints[role]
    n_stated = certificate.provenance.rows.get(role)

    # 1. All rows are found: the check holds if the certificate states their fingerprint.
    positions = table.find_role(role)
    if positions is not None:
        fingerprint = table.fingerprint_of(role)
        holds = stated_fingerprint == fingerprint and n_stated == len(positions)
        return Check(name, holds, f"fingerprint of {len(positions)} rows: {fingerprint}")

    # 2. All rows are there, each once, and do not have the fingerprint that the model states.
    n_hashes = len(table.predictor.kept_rows.hashes.get(role, ()))
    has_each_row_once = n_hashes > 0 and len(table.find_by_hashes(role)) == n_hashes
    if table.has_all_hashes and has_each_row_once:
        detail = f"they are in {data}, and their fingerprint is not {stated_fingerprint}"
        return Check(name, False, detail)

    # 3. Some rows were replaced: they are missing, and the table has new rows.
    n_missing = table.n_missing.get(role)
    if n_missing and table.n_new_rows:
        new_rows = f"{counted(table.n_new_rows, 'row')} that {are(table.n_new_rows)} not of the fit"
        detail = f"{n_missing} of {n_stated} are not in {data}, which has at least {new_rows}"
        return Check(name, False, detail)

    # 4. Some rows are missing, or cannot be told from others: nothing follows.
    return None
