"""``dco audit``: recompute what a certificate claims."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dco.cli import options as opt
from dco.cli.option_records import TargetOptions
from dco.cli.option_types import FILE
from dco.cli.printing import as_json, collected_notes, print_json, print_notes, print_table, say

if TYPE_CHECKING:
    from dco.cli.auditing import Audit


# Checks that are recomputed from calibration rows, by their names in the report.
_CHECKS_OF_CALIBRATION_ROWS = {
    "calibration rows",
    "calibration fingerprint",
    "scores",
    "threshold",
}


@click.command("audit", epilog=opt.example("dco audit model.dco --data patients.csv"))
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
@opt.decimal_option(default=None)
@opt.trust_option
@as_json
def command(
    model: Path,
    data: Path | None,
    target: str | None,
    copy: Path | None,
    decimal: str | None,
    trust: tuple[str, ...],
    as_json: bool,
) -> None:
    """Read the certificate of MODEL (a model file, or a certificate in JSON) and recompute what can
    be recomputed.

    A certificate in JSON is what `dco fit --certificate` wrote, or all that `dco fit --json`
    printed. Words, ranks and laws of coverage must follow from the numbers; fingerprints and
    thresholds must be those of the model. With the rows of the fit, in any order, every calibration
    score is recomputed, and training and tuning rows are recognised by their fingerprints. The exit
    status is 1 if anything does not hold.
    """
    from dco.cli.auditing import AuditOrder, audit

    reading = TargetOptions(target=target, ignore_new=True, decimal=decimal)
    with collected_notes() as notes:
        result = audit(AuditOrder(model, data, copy, reading, trust))

    if as_json:
        print_json({**_facts(result, data), "notes": notes})
    else:
        _print_audit(result, data, notes)
    if not result.report.holds:
        raise click.exceptions.Exit(1)


def _facts(result: Audit, data: Path | None) -> dict[str, Any]:
    """Collect what --json prints."""
    report = result.report
    return {
        "holds": report.holds,
        "verdict": _verdict(result, data),
        "found": result.row_remark,
        "statement": result.certificate.statement,
        "checks": [vars(check) for check in report.checks],
        "unchecked": dict(report.unchecked),
        "rows_checked": data is not None,
    }


def _print_audit(result: Audit, data: Path | None, notes: list[str]) -> None:
    """Print the certificate, a table of the checks, the verdict, and what nobody can check."""
    certificate = result.certificate
    report = result.report

    say(*str(certificate).splitlines())
    checks = []
    for check in report.checks:
        outcome = "holds" if check.holds else "FAILS"
        checks.append([outcome, check.name, check.detail])
    print_table(["", "check", "detail"], checks)

    if result.row_remark is not None:
        say(result.row_remark)
    say(_verdict(result, data), *report.notes())
    if report.unchecked:
        say(
            "To check everything: dco audit MODEL --data DATA --certificate COPY, with a copy that "
            "was kept elsewhere."
        )
    voided_by = "; ".join(certificate.voided_by)
    say(f"What would void it, and cannot be seen from here: {voided_by}.")
    print_notes(notes)


def _verdict(result: Audit, data: Path | None) -> str:
    """Say in a sentence whether the certificate holds, by the names of the checks that failed.

    If only rows differ, the certificate is not called wrong: `data` may be another table than that
    of the fit.
    """
    from dco.cli.auditing import FITTING_ROLES

    failed = {check.name for check in result.report.checks if not check.holds}
    if not failed:
        return "Everything that was recomputed holds."

    # 1. Training or tuning rows differ, and nothing else: "training rows", "tuning rows".
    checks_of_fitting_rows = {f"{word} rows" for word in FITTING_ROLES.values()}
    if failed <= checks_of_fitting_rows:
        return (
            f"{data} is not the table of the fit: its {' and '.join(sorted(failed))} have changed. "
            "Everything else that was recomputed holds."
        )

    # 2. Calibration rows differ, too, and with them everything that is recomputed from rows.
    checks_by_condition = {name for name in failed if name.startswith("threshold of")}
    checks_of_rows = _CHECKS_OF_CALIBRATION_ROWS | checks_of_fitting_rows | checks_by_condition
    if failed <= checks_of_rows and "calibration fingerprint" in failed:
        return (
            f"{data} is not the table of the fit, or its rows or their order have changed: the "
            "calibration rows were not found in it. Everything that can be checked without them "
            "holds."
        )

    # 3. The certificate itself is wrong.
    return "The certificate does not hold: see the lines that FAIL."
