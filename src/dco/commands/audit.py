"""``dco audit``: recompute what a certificate claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dco.commands.options import FILE, example, trust_option
from dco.commands.printing import as_json, print_json, print_table, say


@click.command("audit", epilog=example("dco audit model.dco --data patients.csv"))
@click.argument("model", type=FILE)
@click.option("--data", type=FILE, help="The table of the fit, or its calibration rows: scores are then recomputed too.")
@click.option("--target", metavar="COL", help="The target column of DATA.  [default: the one of `dco fit`]")
@trust_option
@as_json
def command(model: Path, data: Path | None, target: str | None, trust: tuple[str, ...], as_json: bool) -> None:
    """Read the certificate of MODEL (a model file, or a certificate in JSON) and recompute what can be recomputed.

    Ranks, coverage laws, fingerprints and thresholds are checked; with the rows of the fit also every calibration score. The
    exit status is 1 if anything does not hold.
    """
    from dco.certificate import Certificate

    if model.suffix.lower() == ".json" and model.is_file():
        if data is not None:
            raise ValueError("A certificate alone cannot be checked against rows: give the model file with --data.")
        certificate = Certificate.from_json(model.read_text(encoding="utf-8"))
        checks = list(certificate.verify().checks)
    else:
        certificate, checks = _audit(model, data, target, trust)
    holds = all(check.holds for check in checks)
    if as_json:
        print_json(
            {
                "holds": holds,
                "statement": certificate.statement,
                "checks": [vars(check) for check in checks],
                "rows_checked": data is not None,
            }
        )
    else:
        say(*str(certificate).splitlines())
        print_table(
            ["", "check", "detail"], [["holds" if check.holds else "FAILS", check.name, check.detail] for check in checks]
        )
        say("Everything that was recomputed holds." if holds else "The certificate does not hold: see the lines that FAIL.")
        if data is None:
            say("The calibration rows themselves were not checked; --data DATA does that.")
        say("What would void it, and cannot be seen from here: " + "; ".join(certificate.voided_by) + ".")
    if not holds:
        raise click.exceptions.Exit(1)


def _audit(path: Path, data: Path | None, target: str | None, trust: tuple[str, ...]) -> tuple[Any, list[Any]]:
    from dco.certificate import Check, scores_fingerprint
    from dco.commands.model_files import calibration_positions, open_model, rows_with_targets
    from dco.rows import take_features

    estimator = open_model(path, trust)
    certificate = estimator.certificate_
    X = y = None
    if data is not None:
        rows = rows_with_targets(estimator, data, target=target, by=None, ignore_new=True)
        X, y = rows.X, rows.y
        total = sum(certificate.rows.values())
        known = {total, getattr(estimator, "table_", {}).get("rows", total)}
        if len(y) in known and len(y) != certificate.rows.get("calibrate"):
            positions = calibration_positions(estimator, len(y))
            X, y = take_features(X, positions), y[positions]
    checks = list(certificate.verify(X, y, predictor=estimator).checks)
    stored = estimator.predictor_.calibration
    digest = scores_fingerprint(stored.scores)
    same = digest == certificate.scores_fingerprint
    checks.append(Check("stored scores", same, f"fingerprint of the calibration scores in the file: {digest}"))
    for name, threshold in estimator.predictor_.thresholds(certificate.alpha).items():
        group = None if name is None else str(name)
        stated = next((entry.value for entry in certificate.thresholds if entry.group == group), None)
        where = "" if group is None else f" of group {group}"
        detail = f"the certificate says {stated}, the stored scores give {threshold.value}"
        checks.append(Check(f"deployed threshold{where}", stated == threshold.value, detail))
    return certificate, checks
