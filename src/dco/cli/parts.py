"""Evaluate tables larger than memory: files of a folder by themselves, each in batches, here or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dco.cli.features import known_targets, targets
from dco.cli.layout import need_column
from dco.cli.model_files import layout_of, model_features, opened_once
from dco.cli.printing import progress, say
from dco.cli.reading import column_names, even_batches, partitions, table_format
from dco.evaluation.in_parts import Counts, PartsEvaluation
from dco.foundations.display import counted
from dco.foundations.parallel import run_many

_AT_ONCE = 2**16  # rows


@dataclass(frozen=True)
class Part:
    """One file with rows to be counted, and how its columns are read. Plain data, so that it can travel."""

    model: str
    trust: tuple[str, ...]
    target: str | None
    ignore_new: bool
    decimal: str | None
    asked: Mapping[str, Any]  # alpha, guarantee, delta


def evaluate_in_parts(
    model: Any, data: Path, part: Part, *, jobs: int, scheduler: str | None, quiet: bool
) -> PartsEvaluation:
    """Count every file of a folder (or one file), and add the counts up. Memory is set by a batch of each process."""
    files = partitions(data) if table_format(data) == "folder" else [data]
    paths = [os.path.abspath(path) for path in files]  # a worker may stand elsewhere
    with progress("Evaluating", len(paths), quiet=quiet) as reached:
        where: dict[str, Any] = {"n_jobs": jobs, "scheduler": scheduler}
        found = run_many(partial(count_file, part=part), paths, progress=lambda done, of: reached(done), **where)
    own = model.predictor_
    counts = Counts.total(found)
    if counts.rows == 0:
        raise ValueError(f"{data} has no rows; give a table with rows.")
    return PartsEvaluation.of(own, own.stated(**part.asked), counts)


def count_file(path: str, *, part: Part) -> Counts:
    """What is counted in one file."""
    data, model = Path(path), opened_once(part.model, part.trust)
    names = column_names(data)
    layout = layout_of(model, names, target=part.target, path=data, decimal=part.decimal)
    need_column(names, layout.target, path=data, option="--target" if part.target is not None else "the model")
    columns = layout.columns_to_read(data, names, ignore_new=part.ignore_new, also=[str(layout.target)])
    found, row = [], 0
    for batch in even_batches(data, columns, rows=_AT_ONCE):
        table = known_targets(batch, layout, path=data)
        if table.num_rows:
            X = model_features(model, table, layout, path=data, first_row=row)
            y = targets(table, layout, path=data, classes=getattr(model, "classes_", None))
            found.append(Counts.of(model.predictor_, X, y, model.predictor_.stated(**part.asked)))
        row += batch.num_rows
    return Counts.total(found)


def print_parts(found: PartsEvaluation, data: Path) -> None:
    """Coverage, size and verdicts."""
    say(
        f"{counted(found.n, 'row')} of {data}: coverage {found.coverage:.6f} (95 % interval {found.coverage_low:.6f} to "
        f"{found.coverage_high:.6f}), mean size {found.mean_size:.6g}, "
        f"{found.empty:.1%} empty and {found.full:.1%} full sets."
    )
    if found.unknown_labels:
        say(f"{counted(found.unknown_labels, 'row')} have labels that the fit does not know: they are misses.")
    for name, law in found.laws.items():
        of = "" if name == "None" else f"{name}: "
        say(f"{of}expected {law.expected_coverage:.4f} (90 % range {law.low:.4f} to {law.high:.4f}); {law.verdict}.")
    if found.no_verdict is not None:
        say(f"No verdict: {found.no_verdict}.")
