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
@click.option(
    "--certificate", "copy", type=FILE, help="A copy of the certificate that was kept elsewhere, checked instead of MODEL's."
)
@trust_option
@as_json
def command(
    model: Path, data: Path | None, target: str | None, copy: Path | None, trust: tuple[str, ...], as_json: bool
) -> None:
    """Read the certificate of MODEL (a model file, or a certificate in JSON) and recompute what can be recomputed.

    A certificate in JSON is what `dco fit --certificate` wrote, or all that `dco fit --json` printed.
    Words, ranks and coverage laws must follow from the numbers; fingerprints and thresholds must be those of the model; with
    the rows of the fit, in any order, every calibration score is computed again. The exit status is 1 if anything does not
    hold.
    """
    if model.suffix.lower() == ".json" and model.is_file():
        if data is not None or copy is not None:
            raise ValueError("A certificate alone cannot be checked against rows or a copy: give the model file.")
        certificate, found = _read(model), None
        report = certificate.verify()
    else:
        certificate, report, found = _audit(model, data, target, copy, trust)
    failed = {check.name for check in report.checks if not check.holds}
    if as_json:
        print_json(
            {
                "holds": report.holds,
                "statement": certificate.statement,
                "checks": [vars(check) for check in report.checks],
                "unchecked": dict(report.unchecked),
                "rows_checked": data is not None,
            }
        )
    else:
        say(*str(certificate).splitlines())
        print_table(
            ["", "check", "detail"],
            [["holds" if check.holds else "FAILS", check.name, check.detail] for check in report.checks],
        )
        if found is not None:
            say(found)
        say(_verdict(failed, data))
        say(*report.notes())
        if report.unchecked:
            say("All of it is checked by: dco audit MODEL --data DATA --certificate COPY, a copy that was kept elsewhere.")
        say("What would void it, and cannot be seen from here: " + "; ".join(certificate.voided_by) + ".")
    if failed:
        raise click.exceptions.Exit(1)


def _verdict(failed: set[str], data: Path | None) -> str:
    if not failed:
        return "Everything that was recomputed holds."
    by_rows = {"calibration rows", "calibration fingerprint", "scores", "threshold"}
    if "calibration fingerprint" in failed and all(name in by_rows or name.startswith("threshold of") for name in failed):
        return (
            f"{data} is not the table of the fit, or its rows or their order have changed: the calibration rows were not "
            "found in it. All that can be checked without them holds."
        )
    return "The certificate does not hold: see the lines that FAIL."


def _read(path: Path) -> Any:
    """The certificate in a file: by itself, or within the JSON of `dco fit`."""
    import json

    from dco.certificate import Certificate

    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} is not a certificate: it is not JSON text. Give what `dco fit --certificate` wrote."
        ) from None
    try:
        within = json.loads(text)
    except (ValueError, RecursionError):
        within = None  # `from_json` says what is wrong
    if isinstance(within, dict) and "format" not in within and isinstance(within.get("certificate"), dict):
        text = json.dumps(within["certificate"])
    return Certificate.from_json(text)


def _audit(
    path: Path, data: Path | None, target: str | None, copy: Path | None, trust: tuple[str, ...]
) -> tuple[Any, Any, str | None]:
    """The certificate, what was checked, and a sentence if the calibration rows were not where the fit had them."""
    from dco.commands.model_files import open_model, rows_with_targets
    from dco.rows import take_features

    estimator = open_model(path, trust)
    certificate = estimator.certificate_ if copy is None else _read(copy)
    X = y = found = None
    if data is not None:
        rows = rows_with_targets(estimator, data, target=target, by=None, ignore_new=True)
        positions, moved = _calibration_rows(estimator, rows.X, rows.y)
        X, y = take_features(rows.X, positions), rows.y[positions]
        found = (
            f"The rows of {data} are in another order than at the fit; the calibration rows were found." if moved else None
        )
    return certificate, certificate.verify(X, y, predictor=estimator), found


def _calibration_rows(estimator: Any, X: Any, y: Any) -> tuple[Any, bool]:
    """Where the calibration rows are, and whether this is not where they were at the fit; a guess if they are not there.

    They are looked for at their places, then by their hashes; the fingerprint of all of them decides.
    """
    import numpy as np

    from dco.commands.model_files import calibration_positions
    from dco.fingerprints import role_fingerprint, row_fingerprints
    from dco.rows import KeptRows

    hashes, wanted = row_fingerprints(X, y), estimator.certificate_.row_fingerprints.get("calibrate")
    everywhere = np.arange(len(y))
    places = calibration_positions(estimator, len(y))
    if not places.size or places.max() >= len(y):  # rows that came by themselves, or another table
        places = everywhere
    for guess in (places, everywhere):
        if role_fingerprint(hashes[guess]) == wanted:
            return guess, False
    kept = KeptRows({"calibrate": estimator.predictor_.row_hashes["calibrate"]})
    known = np.flatnonzero(kept.among(hashes).known)
    if role_fingerprint(hashes[known]) == wanted:
        return known, True
    return places, False
