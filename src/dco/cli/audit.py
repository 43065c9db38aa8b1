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
        "found": result.whereabouts,
        "statement": result.certificate.statement,
        "checks": [vars(check) for check in report.checks],
        "unchecked": dict(report.unchecked),
        "rows_checked": data is not None,
    }


def _print_audit(result: Audit, data: Path | None, notes: list[str]) -> None:
    certificate = result.certificate
    report = result.report
    say(*str(certificate).splitlines())
    checks = [
        ["holds" if check.holds else "FAILS", check.name, check.detail] for check in report.checks
    ]
    print_table(["", "check", "detail"], checks)
    if result.whereabouts is not None:
        say(result.whereabouts)
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
    """Say in a sentence what failed: the table is another one, or the certificate is wrong."""
    from dco.cli.auditing import OTHER_ROLES

    failed = {check.name for check in result.report.checks if not check.holds}
    if not failed:
        return "Everything that was recomputed holds."

    other_rows = {f"{word} rows" for word in OTHER_ROLES.values()}
    if failed <= other_rows:
        return (
            f"{data} is not the table of the fit: its {' and '.join(sorted(failed))} have changed. "
            "Everything else that was recomputed holds."
        )

    by_rows = {"calibration rows", "calibration fingerprint", "scores", "threshold", *other_rows}
    follows_from_rows = all(name in by_rows or name.startswith("threshold of") for name in failed)
    if "calibration fingerprint" in failed and follows_from_rows:
        return (
            f"{data} is not the table of the fit, or its rows or their order have changed: the "
            "calibration rows were not found in it. Everything that can be checked without them "
            "holds."
        )
    return "The certificate does not hold: see the lines that FAIL."
