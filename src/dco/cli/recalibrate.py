"""``dco recalibrate``: the same model with new calibration rows, and a new certificate."""

from __future__ import annotations

import json
from dataclasses import replace
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
    from dco.cli.model_files import ModelFile, fitted_layout, open_model
    from dco.cli.outputs import check_outputs, finish_from_here
    from dco.cli.tables.fitted import rows_with_targets
    from dco.foundations.files import write_files
    from dco.recalibration import recalibrate
    from dco.storage import pack

    if not in_parts and (rest or work.is_asked_for()):
        raise click.UsageError(
            "--rest, --jobs and --scheduler are for calibration in parts: add --in-parts."
        )
    check_outputs({"out": out, "certificate": certificate}, force=force, inputs=[model, data])
    with progress("Recalibrating", None, quiet=as_json or in_parts), collected_notes() as notes:
        old = open_model(model, trust)
        layout = fitted_layout(old)
        reading_with_groups = replace(reading, by=None if layout is None else layout.groups)
        if in_parts:
            from dco.cli.parts import recalibrate_in_parts

            new = recalibrate_in_parts(
                old,
                ModelFile(model.resolve(), trust),
                data,
                reading=reading_with_groups,
                rest=rest,
                work=work,
                quiet=as_json,
            )
        else:
            rows = rows_with_targets(old, data, reading_with_groups)
            new = recalibrate(old, rows.X, rows.y, groups=rows.by)
        contents: dict[Path, str | bytes] = {out: pack(new)}
        if certificate is not None:
            contents[certificate] = new.certificate_.to_json() + "\n"
        finish_from_here()
        write_files(contents, overwrite=force)
    if as_json:
        facts = json.loads(new.certificate_.to_json())
        return print_json(
            {
                "certificate": facts,
                "replaces": new.certificate_.provenance.replaces,
                "notes": notes,
                "model": str(out),
            }
        )
    say(
        f"{counted(new.certificate_.provenance.rows['calibrate'], 'calibration row')} of {data}.",
        *str(new.certificate_).splitlines(),
    )
    print_notes(notes)
    return say(f"Wrote {out}." + ("" if certificate is None else f" Wrote {certificate}."))
