"""``dco recalibrate``: the same model with new calibration rows, and a new certificate."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dco.cli.option_records import TargetOptions, Work
from dco.cli.option_types import FILE
from dco.cli.options import example, force_option, target_options, work_options
from dco.cli.printing import as_json, collected_notes, print_json, print_notes, progress, say
from dco.foundations.display import counted


@click.command(
    "recalibrate", epilog=example("dco recalibrate model.dco new_patients.csv --out model-2.dco")
)
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@click.option("--out", type=FILE, required=True, help="The model file to write.")
@click.option(
    "--certificate", type=FILE, help="Also write the new certificate (JSON), to be kept elsewhere."
)
@click.option(
    "--in-parts", is_flag=True, help="Read DATA in batches, for tables larger than memory."
)
@click.option(
    "--rest",
    is_flag=True,
    help="DATA is the table of the fit; leave out the rows that trained or tuned.",
)
@work_options
@target_options
@force_option
@as_json
def command(
    model: Path,
    data: Path,
    out: Path,
    certificate: Path | None,
    trust: tuple[str, ...],
    as_json: bool,
    force: bool,
    in_parts: bool,
    rest: bool,
    work: Work,
    reading: TargetOptions,
) -> None:
    """Calibrate MODEL on all rows of DATA and write a new model file.

    Nothing is fitted or chosen again, so this takes seconds. DATA holds labelled rows like those to
    come, none of which trained or tuned the model; after an alarm of `dco watch`, rows that came
    later. The new certificate names the old one.
    """
    from dco.cli.outputs import check_outputs, finish_from_here
    from dco.cli.recalibrating import RecalibrateOrder, recalibrate_model
    from dco.foundations.files import write_files
    from dco.storage import pack

    if not in_parts and (rest or work.is_asked_for()):
        raise click.UsageError(
            "--rest, --jobs and --scheduler are for calibration in parts: add --in-parts."
        )
    check_outputs({"out": out, "certificate": certificate}, force=force, inputs=[model, data])

    order = RecalibrateOrder(model, data, reading, trust, in_parts=in_parts, rest=rest, work=work)
    with progress("Recalibrating", None, quiet=as_json or in_parts), collected_notes() as notes:
        new_model = recalibrate_model(order, quiet=as_json)
        new_certificate = new_model.certificate_
        contents: dict[Path, str | bytes] = {out: pack(new_model)}
        if certificate is not None:
            contents[certificate] = new_certificate.to_json() + "\n"
        finish_from_here()
        write_files(contents, overwrite=force)

    if as_json:
        facts = {
            "certificate": json.loads(new_certificate.to_json()),
            "replaces": new_certificate.provenance.replaces,
            "notes": notes,
            "model": str(out),
        }
        print_json(facts)
        return
    n_rows = new_certificate.provenance.rows["calibrate"]
    say(f"{counted(n_rows, 'calibration row')} of {data}.", *str(new_certificate).splitlines())
    print_notes(notes)
    say(" ".join(f"Wrote {path}." for path in contents))
