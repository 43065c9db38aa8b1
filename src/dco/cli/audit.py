"""``dco audit``: recompute what a certificate claims."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from dco.cli.option_types import FILE
from dco.cli.options import decimal_option, example, trust_option
from dco.cli.printing import as_json, collected_notes, print_json, print_notes, print_table, say
from dco.foundations.display import are, counted
from dco.foundations.fingerprints import role_fingerprint, row_fingerprints
from dco.foundations.tables import take_features
from dco.rows.kept_rows import KeptRows

_OTHER_ROLES = {"train": "training", "tune": "tuning"}
_ROLES = {**_OTHER_ROLES, "calibrate": "calibration"}


@click.command("audit", epilog=example("dco audit model.dco --data patients.csv"))
@click.argument("model", type=FILE)
@click.option(
    "--data",
    type=FILE,
    help="The table of the fit, or its calibration rows: scores are then recomputed too.",
)
@click.option(
    "--target", metavar="COL", help="The target column of DATA.  [default: that of `dco fit`]"
)
@click.option(
    "--certificate",
    "copy",
    type=FILE,
    help="Check this copy of the certificate, which was kept elsewhere.",
)
@decimal_option(default=None)
@trust_option
@as_json
def command(
    model: Path, data: Path | None, copy: Path | None, as_json: bool, **options: Any
) -> None:
    """Read the certificate of MODEL (a model file, or a certificate in JSON) and recompute what can
    be recomputed.

    A certificate in JSON is what `dco fit --certificate` wrote, or all that `dco fit --json`
    printed. Words, ranks and coverage laws must follow from the numbers; fingerprints and
    thresholds must be those of the model. With the rows of the fit, in any order, every calibration
    score is recomputed, and training and tuning rows are recognised by their fingerprints. The exit
    status is 1 if anything does not hold.
    """
    with collected_notes() as notes:
        if model.suffix.lower() == ".json" and model.is_file():
            if data is not None or copy is not None:
                raise ValueError(
                    "A certificate alone cannot be checked against rows or a copy: "
                    "give the model file."
                )
            certificate, found = _read(model), None
            report = certificate.verify()
        else:
            certificate, report, found = _audit(model, data, copy, **options)
    failed = {check.name for check in report.checks if not check.holds}
    if as_json:
        print_json(
            {
                "holds": report.holds,
                "verdict": _verdict(failed, data),
                "found": found,
                "statement": certificate.statement,
                "checks": [vars(check) for check in report.checks],
                "unchecked": dict(report.unchecked),
                "rows_checked": data is not None,
                "notes": notes,
            }
        )
    else:
        say(*str(certificate).splitlines())
        checks = [
            ["holds" if check.holds else "FAILS", check.name, check.detail]
            for check in report.checks
        ]
        print_table(["", "check", "detail"], checks)
        say(*([] if found is None else [found]), _verdict(failed, data), *report.notes())
        if report.unchecked:
            say(
                "To check everything: dco audit MODEL --data DATA --certificate COPY, with a copy "
                "that was kept elsewhere."
            )
        say(
            "What would void it, and cannot be seen from here: "
            + "; ".join(certificate.voided_by)
            + "."
        )
        print_notes(notes)
    if failed:
        raise click.exceptions.Exit(1)


def _verdict(failed: set[str], data: Path | None) -> str:
    if not failed:
        return "Everything that was recomputed holds."
    others = {f"{word} rows" for word in _OTHER_ROLES.values()}
    if failed <= others:
        return (
            f"{data} is not the table of the fit: its {' and '.join(sorted(failed))} have "
            f"changed. Everything else that was "
            "recomputed holds."
        )
    by_rows = {"calibration rows", "calibration fingerprint", "scores", "threshold"} | others
    if "calibration fingerprint" in failed and all(
        name in by_rows or name.startswith("threshold of") for name in failed
    ):
        return (
            f"{data} is not the table of the fit, or its rows or their order have changed: the "
            f"calibration rows were not "
            "found in it. Everything that can be checked without them holds."
        )
    return "The certificate does not hold: see the lines that FAIL."


def _read(path: Path) -> Any:
    """The certificate in a file: by itself, or within the JSON of `dco fit`."""
    from dco.certificate.certificate import Certificate

    try:
        text = path.read_text(encoding="utf-8")
        with suppress(ValueError, RecursionError):  # `from_json` says what is wrong
            within = json.loads(text)
            if (
                isinstance(within, dict)
                and "format" not in within
                and isinstance(within.get("certificate"), dict)
            ):
                text = json.dumps(within["certificate"])
        return Certificate.from_json(text)
    except ValueError as error:
        why = (
            "this is no certificate, since it is not JSON text."
            if isinstance(error, UnicodeDecodeError)
            else error
        )
        raise ValueError(f"{path}: {why} Give what `dco fit --certificate` wrote.") from None


def _audit(
    path: Path, data: Path | None, copy: Path | None, *, trust: tuple[str, ...], **o: Any
) -> tuple[Any, Any, str | None]:
    """The certificate, what was checked, and a sentence if the rows of the fit are elsewhere in
    DATA, or not all there.
    """
    from dco.cli.model_files import open_model

    estimator = open_model(path, trust)
    certificate, found = estimator.certificate_ if copy is None else _read(copy), None
    if data is None:
        report = certificate.verify(predictor=estimator)
    else:
        from dco.cli.option_records import TargetOptions
        from dco.cli.tables.fitted import rows_with_targets

        rows = rows_with_targets(estimator, data, TargetOptions(ignore_new=True, **o))
        table = _Table.of(estimator, rows.X, rows.y)
        positions, moved = table.calibration()
        report = certificate.verify(
            take_features(rows.X, positions), rows.y[positions], predictor=estimator
        )
        report, found = (
            _with_other_roles(report, certificate, table, data),
            table.in_words(moved, data),
        )
    # a role without rows, in the certificate as in the model, leaves nothing to check
    empty = [
        f"rows.{role}"
        for role in _OTHER_ROLES
        if certificate.provenance.rows.get(role) == 0 and not estimator.splits_[role].size
    ]
    unchecked = {name: why for name, why in report.unchecked.items() if name not in empty}
    return certificate, replace(report, unchecked=unchecked), found


@dataclass(frozen=True, eq=False)
class _Table:
    """The rows of DATA by their hashes, where the rows of the fit were, and which of them are not
    there.
    """

    own: Any  # the predictor, which keeps hashes of its rows
    hashes: Any
    fitted: Any  # where the rows of the fit were in their table; None if DATA has another length
    more: bool  # DATA has more rows than the table of the fit
    absent: dict[str, int]  # rows of each role that are not in DATA
    strangers: int  # rows of DATA that neither took part in the fit nor can have been set aside
    exact: bool  # the model keeps a hash of every row

    @classmethod
    def of(cls, estimator: Any, X: Any, y: Any) -> _Table:
        own, n, stored = estimator.predictor_, len(y), getattr(estimator, "table_", None)
        fitted: Any = np.arange(n)
        aside, more = 0, False  # in a model from Python, positions are those of the rows given
        if stored is not None:
            places, rows = np.asarray(stored["fitted_rows"]), stored["rows"]
            fitted, aside, more = (
                {len(places): fitted, rows: places}.get(n),
                rows - len(places),
                n > rows,
            )
        hashes = row_fingerprints(X, y)
        found, absent = own.kept.among(hashes), own.kept.absent(hashes)
        # more than ten standard deviations of a count by a sample
        noise = 0 if found.exact else 0.02 * n
        strangers = max(0, int(found.others - aside - noise))
        return cls(
            own,
            hashes,
            fitted,
            more,
            {role: n for role, n in absent.items() if n},
            strangers,
            found.exact,
        )

    def places(self, role: str) -> Any:
        """Where the rows of a role were at the fit; None if DATA is another table."""
        own = self.own.splits[role]
        if self.fitted is None or not own.size or own.max() >= len(self.fitted):
            return None
        return self.fitted[own]

    def elsewhere(self, role: str) -> Any:
        """The rows that have the hashes of a role."""
        own = {name: hashes for name, hashes in self.own.kept.hashes.items() if name == role}
        return np.flatnonzero(KeptRows(own).among(self.hashes).known)

    def first(self, role: str, *guesses: Any) -> Any:
        """The first of these that are the rows of a role, as the fingerprint of all of them
        decides; None if none are.
        """
        wanted = self.own.certificate.provenance.row_fingerprints.get(role)
        found = (
            rows
            for rows in guesses
            if rows is not None and role_fingerprint(self.hashes[rows]) == wanted
        )
        return next(found, None)

    def calibration(self) -> tuple[Any, bool]:
        """Where the calibration rows are, and whether this is not where they were at the fit; a
        guess if they are not there.

        They are looked for at their places, then by their hashes.
        """
        everywhere, places = np.arange(len(self.hashes)), self.places("calibrate")
        others = [found for role in _OTHER_ROLES if (found := self.places(role)) is not None]
        # as `dco recalibrate --rest` takes them
        rest = np.setdiff1d(everywhere, np.concatenate([np.arange(0), *others]))
        # all rows: they came by themselves
        found = self.first("calibrate", places, everywhere, rest)
        if found is not None:
            return found, False
        known = self.first("calibrate", self.elsewhere("calibrate"))
        return (everywhere if places is None else places, False) if known is None else (known, True)

    def in_words(self, moved: bool, data: Path) -> str | None:
        """A sentence if rows are not where the fit had them, or missing."""
        if self.absent and not self.strangers:
            roles = ", ".join(f"{count} {_ROLES[role]}" for role, count in self.absent.items())
            found = "" if "calibrate" in self.absent else "; all calibration rows were found"
            return f"Rows of the fit are missing from {data} ({roles}){found}."
        if not moved:
            return None
        if self.more:
            return f"{data} has rows besides those of the fit; the calibration rows were found."
        return (
            f"The rows of {data} are in another order than at the fit; the calibration rows "
            f"were found."
        )


def _with_other_roles(report: Any, certificate: Any, table: _Table, data: Path) -> Any:
    """The report with a line for training and tuning rows, or with the reason why there is none."""
    from dco.calibration.facts import Check

    checks, unchecked = list(report.checks), dict(report.unchecked)
    for role, word in _OTHER_ROLES.items():
        stated = certificate.provenance.row_fingerprints.get(role)
        n = certificate.provenance.rows.get(role)
        if stated is None:
            continue
        fields, lost = (f"row_fingerprints.{role}", f"rows.{role}"), table.absent.get(role)
        alike, kept = table.elsewhere(role), table.own.kept.hashes.get(role, ())
        found = table.first(role, table.places(role), alike)
        if found is not None:
            own = table.own.certificate.provenance.row_fingerprints[role]
            same, detail = (
                stated == own and n == len(found),
                f"fingerprint of {len(found)} rows: {own}",
            )
        # each once, and nothing else can be meant
        elif table.exact and len(alike) == len(kept) > 0:
            same, detail = False, f"they are in {data}, and their fingerprint is not {stated}"
        elif lost and table.strangers:
            others = f"{counted(table.strangers, 'row')} that {are(table.strangers)}"
            same, detail = (
                False,
                f"{lost} of {n} are not in {data}, which has at least {others} not of the fit",
            )
        else:
            why = (
                f"since {data} lacks some of the rows"
                if lost
                else "since its rows cannot be told from others"
            )
            unchecked |= dict.fromkeys(fields, why)
            continue
        checks.append(Check(f"{word} rows", same, detail))
        unchecked = {name: why for name, why in unchecked.items() if name not in fields}
    return replace(report, checks=tuple(checks), unchecked=unchecked)
