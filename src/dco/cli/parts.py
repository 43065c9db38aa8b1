"""Tables larger than memory: files of a folder are evaluated or scored by themselves, in batches,
here or on a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dco.cli.model_files import opened_once
from dco.cli.option_records import TargetOptions
from dco.cli.printing import progress
from dco.cli.tables.files import files_of, row_counts
from dco.cli.tables.fitted import StoredTable, known_batches
from dco.cli.tables.rows import NewValues
from dco.evaluation.evaluation import Evaluation
from dco.evaluation.in_parts import PartCounts, evaluate_counts
from dco.foundations.arrays import AnyArray, Integers
from dco.foundations.fingerprints import Hashes, role_fingerprint, row_fingerprints
from dco.foundations.notes import show
from dco.foundations.parallel import run_many
from dco.foundations.tables import take_features
from dco.rows.rows import Rows, rows_of
from dco.scores.inverse import is_ours
from dco.service.recalibration import ScoredBatches, recalibrated
from dco.structure import rows_scored_again

# plain data, which travels to workers: the file of a model with the types that are trusted, and
# options
ModelFile: TypeAlias = tuple[Path, tuple[str, ...]]
How: TypeAlias = Mapping[str, Any]
# a file, which rows are left out, which of the others are scored again
Piece: TypeAlias = tuple[Path, Integers, Integers]


def evaluate_in_parts(
    model: Any,
    file: ModelFile,
    data: Path,
    *,
    how: TargetOptions,
    asked: How,
    jobs: int,
    scheduler: str | None,
    quiet: bool,
) -> Evaluation:
    """Count every file of a folder (or one file), and add the counts up. Memory is set by a batch
    of each process.
    """
    paths = [path.absolute() for path in files_of(data)]  # a worker may stand elsewhere
    with progress("Evaluating", len(paths), quiet=quiet) as reached:
        work = partial(count_file, file=file, how=how, asked=asked)
        found = run_many(
            work, paths, n_jobs=jobs, scheduler=scheduler, progress=lambda done, of: reached(done)
        )
    show(NewValues.total(values for _, values in found).notes())
    predictor, counts = model.predictor_, PartCounts.total(counts for counts, _ in found)
    if not counts.rows:
        raise ValueError(f"{data} has no rows; give a table with rows.")
    return evaluate_counts(predictor, predictor.at(**asked), counts)


def count_file(
    path: Path, *, file: ModelFile, how: TargetOptions, asked: How
) -> tuple[PartCounts, NewValues]:
    """What is counted in one file."""
    model, values = opened_once(*file), NewValues()
    own, calibration = model.predictor_, model.predictor_.at(**asked)
    batches = known_batches(model, path, how, values)
    return PartCounts.total(
        PartCounts.of(own, rows.X, rows.y, calibration) for rows in batches
    ), values


def recalibrate_in_parts(
    model: Any,
    file: ModelFile,
    data: Path,
    *,
    how: TargetOptions,
    rest: bool,
    jobs: int,
    scheduler: str | None,
    quiet: bool,
) -> Any:
    """`dco.recalibrate` on all rows of a table, or on the `rest`: those that neither trained nor
    tuned the model.

    Rows are scored where they lie; a score, a target, a fingerprint and a group of each come back,
    and no features.
    """
    own = model.predictor_
    if not is_ours(own.structure.score):
        raise ValueError("Scores of your own need all predictions at once: leave --in-parts out.")
    counts = row_counts(data)
    starts = np.cumsum([0, *counts.values()])
    roles = _places_of_the_fit(model, int(starts[-1]), data) if rest else {}
    out = np.sort(np.concatenate([np.arange(0), *roles.values()]))
    kept = starts - np.searchsorted(out, starts)  # how many rows stay before each file
    if kept[-1] == 0:
        raise ValueError(f"{data} has no rows to calibrate on; give a table with rows.")
    again = np.union1d(*rows_scored_again(int(kept[-1])))
    pieces: list[Piece] = [
        (path.absolute(), _within(out, *starts[i : i + 2]), _within(again, *kept[i : i + 2]))
        for i, path in enumerate(counts)
    ]

    def scored(classes: AnyArray | None) -> tuple[ScoredBatches, NewValues]:
        with progress("Scoring", len(pieces), quiet=quiet) as reached:
            work = partial(score_file, file=file, how=how, classes=classes)
            found = run_many(
                work,
                pieces,
                n_jobs=jobs,
                scheduler=scheduler,
                progress=lambda done, of: reached(done),
            )
        left_out = np.concatenate(
            [hashes for _, each, _ in found for hashes in each] or [np.empty(0, "S16")]
        )
        for role, places in roles.items():
            hashes = left_out[np.searchsorted(out, places)]
            if hashes.size and role_fingerprint(hashes) != own.certificate.row_fingerprints[role]:
                raise ValueError(
                    f"The {role} rows of the fit are not at their places in {data}: rows or files "
                    f"were changed, added or "
                    "reordered. Give the table as it was at the fit, or other rows without --rest."
                )
        rows = ScoredBatches.together([batch for batches, _, _ in found for batch in batches])
        return rows, NewValues.total(values for _, _, values in found)

    rows, values = scored(classes := own.structure.classes)
    # labels that the fit does not know: all at once
    if classes is not None and np.setdiff1d(rows.y, classes).size:
        rows, values = scored(np.union1d(classes, rows.y))
    show(values.notes())
    return recalibrated(model, Rows(rows, rows.y, rows.clusters), rest=rest)


def score_file(
    piece: Piece, *, file: ModelFile, how: TargetOptions, classes: AnyArray | None
) -> tuple[list[ScoredBatches], list[Hashes], NewValues]:
    """The batches of a file, scored; the fingerprints of the rows that are left out; cells that the
    fit never saw.
    """
    (path, out, again), model = piece, opened_once(*file)
    structure = replace(model.predictor_.structure, classes=classes)
    predictor = replace(model.predictor_, structure=structure)
    found, hashes, values, row, kept = list[ScoredBatches](), list[Hashes](), NewValues(), 0, 0
    for batch in known_batches(model, path, how, values, every=True):
        rows = rows_of(
            model.check_features(batch.X), model.check_targets(batch.y), groups=batch.by, params={}
        )
        left_out = _within(out, row, row + len(rows))
        hashes.append(row_fingerprints(take_features(rows.X, left_out), rows.y[left_out]))
        if stay := len(rows) - left_out.size:
            others = rows.take(np.setdiff1d(np.arange(len(rows)), left_out))
            found.append(ScoredBatches.of(predictor, others, _within(again, kept, kept + stay)))
            kept += stay
        row += len(rows)
    return found, hashes, values


def _within(places: Integers, start: int, stop: int) -> Integers:
    """Those of ascending places that are in a range, counted from its start."""
    return places[np.searchsorted(places, start) : np.searchsorted(places, stop)] - start


def _places_of_the_fit(model: Any, total: int, data: Path) -> dict[str, Integers]:
    """Where the rows are that trained and tuned the model, in the table of its fit."""
    stored = StoredTable.of(model)
    if stored is None or stored.n_rows != total:
        known = (
            "the model does not know its table"
            if stored is None
            else f"that had {stored.n_rows:,} rows"
        )
        raise ValueError(
            f"--rest is for the table of the fit: {data} has {total:,} rows, and {known}."
        )
    if model.predictor_.calibration.scored.clusters is not None:
        raise ValueError(
            "--rest would calibrate on rows that belong together with training rows: "
            "give DATA of new groups."
        )
    return {role: stored.fitted_rows[model.splits_[role]] for role in ("train", "tune")}
