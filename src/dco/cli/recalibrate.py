"""``dco recalibrate``: the same model with new calibration rows, and a new certificate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dco.cli.options import FILE, example, force_option, target_options, work_options
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
    **options: Any,
) -> None:
    """Calibrate MODEL on all rows of DATA and write a new model file.

    Nothing is fitted or chosen again, so this takes seconds. DATA holds labelled rows like those to
    come, none of which trained or tuned the model; after an alarm of `dco watch`, rows that came
    later. The new certificate names the old one.
    """
    from dco.cli.model_files import fitted_layout, open_model
    from dco.cli.outputs import check_outputs, finish_from_here
    from dco.cli.tables.fitted import TargetOptions, rows_with_targets
    from dco.foundations.files import write_files
    from dco.service.recalibration import recalibrate
    from dco.storage.saving import pack

    force, in_parts, rest, jobs, scheduler = (
        options.pop(n) for n in ("force", "in_parts", "rest", "jobs", "scheduler")
    )
    if not in_parts and (rest or jobs != 1 or scheduler is not None):
        raise click.UsageError(
            "--rest, --jobs and --scheduler are for calibration in parts: add --in-parts."
        )
    check_outputs({"out": out, "certificate": certificate}, force=force, inputs=[model, data])
    with progress("Recalibrating", None, quiet=as_json or in_parts), collected_notes() as notes:
        old = open_model(model, trust)
        layout = fitted_layout(old)
        how = TargetOptions(by=None if layout is None else layout.groups, **options)
        if in_parts:
            from dco.cli.parts import recalibrate_in_parts

            file, work = (
                (model.resolve(), trust),
                {"jobs": jobs, "scheduler": scheduler, "quiet": as_json},
            )
            new = recalibrate_in_parts(old, file, data, how=how, rest=rest, **work)
        else:
            rows = rows_with_targets(old, data, how)
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
                "replaces": new.certificate_.replaces,
                "notes": notes,
                "model": str(out),
            }
        )
    say(
        f"{counted(new.certificate_.rows['calibrate'], 'calibration row')} of {data}.",
        *str(new.certificate_).splitlines(),
    )
    print_notes(notes)
    return say(f"Wrote {out}." + ("" if certificate is None else f" Wrote {certificate}."))
