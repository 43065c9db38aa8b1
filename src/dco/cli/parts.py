"""Tables larger than memory: evaluate or score file by file, here or on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dco import Evaluation
from dco.cli.model_files import open_model_once
from dco.cli.option_records import TargetOptions
from dco.cli.printing import progress
from dco.cli.tables.files import files_of, name_file_in_errors, row_counts
from dco.cli.tables.fitted import StoredTable, read_rows_with_targets
from dco.cli.tables.rows import NewValues
from dco.evaluation import PartCounts, evaluate_counts
from dco.foundations.arrays import AnyArray, Integers
from dco.foundations.fingerprints import Hashes, role_fingerprint, row_fingerprints
from dco.foundations.notes import show
from dco.foundations.parallel import run_many
from dco.foundations.tables import take_features
from dco.recalibration import (
    ScoredBatch,
    can_score_in_batches,
    choose_rows_to_score_again,
    recalibrate_scored,
    score_batch,
)

# plain data, which travels to workers: the file of a model with the types that are trusted
ModelFile: TypeAlias = tuple[Path, tuple[str, ...]]


# ---------------------------------------------------------------- evaluation


def evaluate_in_parts(
    model: Any,
    file: ModelFile,
    data: Path,
    *,
    reading: TargetOptions,
    asked: Mapping[str, Any],
    jobs: int,
    scheduler: str | None,
    quiet: bool,
) -> Evaluation:
    """Count every file of a folder (or one file), and add the counts up.

    `reading` says how rows are read, `asked` has the level and the guarantee. Each process has one
    batch in memory at a time.
    """
    paths = [path.absolute() for path in files_of(data)]  # a worker may stand elsewhere
    with progress("Evaluating", len(paths), quiet=quiet) as reached:
        counted_files = run_many(
            partial(count_file, file=file, reading=reading, asked=asked),
            paths,
            n_jobs=jobs,
            scheduler=scheduler,
            progress=lambda n_done, n_files: reached(n_done),
        )
    show(NewValues.total(counted.new_values for counted in counted_files).notes())

    counts = PartCounts.total(counted.counts for counted in counted_files)
    if not counts.rows:
        raise ValueError(f"{data} has no rows; give a table with rows.")
    predictor = model.predictor_
    return evaluate_counts(predictor, predictor.at(**asked), counts)


@dataclass(frozen=True, eq=False)
class CountedFile:
    """What was counted in one file."""

    counts: PartCounts
    new_values: NewValues


def count_file(
    path: Path, *, file: ModelFile, reading: TargetOptions, asked: Mapping[str, Any]
) -> CountedFile:
    """Count rows, hits and sizes in one file."""
    model = open_model_once(*file)
    predictor = model.predictor_
    calibration = predictor.at(**asked)
    new_values = NewValues()
    with name_file_in_errors(path):
        counts = PartCounts.total(
            PartCounts.of(predictor, rows.X, rows.y, calibration)
            for rows in read_rows_with_targets(model, path, reading, new_values)
        )
    return CountedFile(counts, new_values)


# ---------------------------------------------------------------- calibration


def recalibrate_in_parts(
    model: Any,
    file: ModelFile,
    data: Path,
    *,
    reading: TargetOptions,
    rest: bool,
    jobs: int,
    scheduler: str | None,
    quiet: bool,
) -> Any:
    """Recalibrate on all rows of a table, or on the `rest` of the table of the fit.

    The rest are the rows that neither trained nor tuned the model. Each file is scored in the
    process that reads it, which sends back a score, a target, a fingerprint and a group of each
    row, and features only of the few rows that are scored a second time.
    """
    if not can_score_in_batches(model):
        raise ValueError("Scores of your own need all predictions at once: leave --in-parts out.")

    counts = row_counts(data)
    n_rows = sum(counts.values())
    left_out = _rows_of_the_fit(model, n_rows, data) if rest else {}
    plans = plan_files(counts, left_out)
    if sum(plan.n_scored for plan in plans) == 0:
        raise ValueError(f"{data} has no rows to calibrate on; give a table with rows.")

    def score_all(classes: AnyArray | None) -> list[ScoredFile]:
        with progress("Scoring", len(plans), quiet=quiet) as reached:
            return run_many(
                partial(score_file, file=file, reading=reading, classes=classes),
                plans,
                n_jobs=jobs,
                scheduler=scheduler,
                progress=lambda n_done, n_files: reached(n_done),
            )

    classes = model.predictor_.structure.classes
    scored_files = score_all(classes)
    if classes is not None:
        labels = np.unique(np.concatenate([np.unique(batch.y) for batch in _batches(scored_files)]))
        if np.setdiff1d(labels, classes).size:
            # labels that the fit does not know must be known in every file
            scored_files = score_all(np.union1d(classes, labels))

    _check_rows_left_out(scored_files, left_out, model.predictor_.certificate, data)
    show(NewValues.total(scored_file.new_values for scored_file in scored_files).notes())
    return recalibrate_scored(model, _batches(scored_files), is_rest=rest)


def _batches(scored_files: list[ScoredFile]) -> list[ScoredBatch]:
    return [batch for scored_file in scored_files for batch in scored_file.batches]


@dataclass(frozen=True, eq=False)
class FilePlan:
    """A file, and what is to be done with its rows.

    Attributes
    ----------
    path
        The file.
    n_scored
        How many of its rows are scored.
    left_out
        The rows that are not scored, ascending, by their position in the file.
    score_again
        The rows whose features are sent back, since they are scored a second time to check that a
        row's score does not depend on the rows beside it; ascending, by their position among the
        scored rows of the file.
    """

    path: Path
    n_scored: int
    left_out: Integers
    score_again: Integers


def plan_files(counts: Mapping[Path, int], left_out: Mapping[str, Integers]) -> list[FilePlan]:
    """Plan what is to be done with the rows of each file.

    `counts` has the number of rows of each file, `left_out` the rows of each role that are not
    scored, by their position in the whole table.
    """
    all_left_out = np.sort(np.concatenate([np.arange(0), *left_out.values()]))
    n_scored = sum(counts.values()) - all_left_out.size
    score_again = choose_rows_to_score_again(n_scored)

    plans = []
    first_row = 0  # of this file, among all rows
    first_scored = 0  # of this file, among the scored rows
    for path, n_rows in counts.items():
        left_out_here = _within(all_left_out, first_row, first_row + n_rows)
        n_scored_here = n_rows - left_out_here.size
        plans.append(
            FilePlan(
                path=path.absolute(),
                n_scored=n_scored_here,
                left_out=left_out_here,
                score_again=_within(score_again, first_scored, first_scored + n_scored_here),
            )
        )
        first_row += n_rows
        first_scored += n_scored_here
    return plans


@dataclass(frozen=True, eq=False)
class ScoredFile:
    """The scored rows of a file, and fingerprints of those that were left out."""

    batches: list[ScoredBatch]
    hashes_left_out: list[Hashes]
    new_values: NewValues


def score_file(
    plan: FilePlan, *, file: ModelFile, reading: TargetOptions, classes: AnyArray | None
) -> ScoredFile:
    """Score the rows of one file, batch by batch, but for those that the plan leaves out.

    `classes` are all labels of the table, also those of other files. Rows left out are hashed, so
    that the caller can check that they are the rows meant.
    """
    model = open_model_once(*file)
    scored_file = ScoredFile(batches=[], hashes_left_out=[], new_values=NewValues())

    first_row = 0  # of this batch, among the rows of the file
    first_scored = 0  # of this batch, among the scored rows of the file
    with name_file_in_errors(plan.path):
        for batch in read_rows_with_targets(
            model, plan.path, reading, scored_file.new_values, refuse_missing=True
        ):
            n_rows = len(batch.y)
            left_out = _within(plan.left_out, first_row, first_row + n_rows)
            hashes = row_fingerprints(take_features(batch.X, left_out), batch.y[left_out])
            scored_file.hashes_left_out.append(hashes)
            first_row += n_rows

            positions = np.setdiff1d(np.arange(n_rows), left_out)
            if positions.size == 0:
                continue
            score_again = _within(plan.score_again, first_scored, first_scored + positions.size)
            scored_file.batches.append(
                score_batch(
                    model,
                    take_features(batch.X, positions),
                    batch.y[positions],
                    groups=None if batch.by is None else batch.by[positions],
                    classes=classes,
                    score_again=score_again,
                )
            )
            first_scored += positions.size
    return scored_file


def _within(positions: Integers, start: int, stop: int) -> Integers:
    """Select the positions from `start` to before `stop`, and count them from `start`.

    `positions` ascend.
    """
    first, last = np.searchsorted(positions, [start, stop])
    return positions[first:last] - start


def _rows_of_the_fit(model: Any, n_rows: int, data: Path) -> dict[str, Integers]:
    """Find the rows that trained and tuned the model, in the table of its fit."""
    stored = StoredTable.of(model)
    if stored is None or stored.n_rows != n_rows:
        difference = "the model does not know its table"
        if stored is not None:
            difference = f"that had {stored.n_rows:,} rows"
        raise ValueError(
            f"--rest is for the table of the fit: {data} has {n_rows:,} rows, and {difference}."
        )
    if model.predictor_.calibration.scored.clusters is not None:
        raise ValueError(
            "--rest would calibrate on rows that belong together with training rows: give DATA of "
            "new groups."
        )
    return {role: stored.fitted_rows[model.splits_[role]] for role in ("train", "tune")}


def _check_rows_left_out(
    scored_files: list[ScoredFile],
    left_out: Mapping[str, Integers],
    certificate: Any,
    data: Path,
) -> None:
    """Check by their fingerprints that the rows left out are those that trained and tuned."""
    if not left_out:
        return
    all_left_out = np.sort(np.concatenate(list(left_out.values())))
    hashes = np.concatenate([part for scored in scored_files for part in scored.hashes_left_out])
    for role, positions in left_out.items():
        hashes_of_role = hashes[np.searchsorted(all_left_out, positions)]
        stated_fingerprint = certificate.provenance.row_fingerprints.get(role)
        if positions.size and role_fingerprint(hashes_of_role) != stated_fingerprint:
            raise ValueError(
                f"The {role} rows of the fit are not at their places in {data}: rows or files were "
                "changed, added or reordered. Give the table as it was at the fit, or other rows "
                "without --rest."
            )
