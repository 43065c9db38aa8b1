"""Tables larger than memory: evaluate or score file by file, in processes here or on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dco import Certificate, Evaluation
from dco.cli.model_files import ModelFile, open_model_once
from dco.cli.option_records import OtherPromise, TargetOptions, Work
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

# ---------------------------------------------------------------- evaluation


def evaluate_in_parts(
    model: Any,
    file: ModelFile,
    data: Path,
    *,
    reading: TargetOptions,
    promise: OtherPromise,
    work: Work,
    quiet: bool,
) -> Evaluation:
    """Evaluate a model on a table that need not fit into memory.

    Rows, hits (sets that hold the true value) and set sizes are counted in each file by itself, and
    the counts are added. Each process has one batch of rows in memory at a time.

    Parameters
    ----------
    model, file
        The opened model, and the file that other processes open it from.
    data
        A table, or a folder of Parquet files.
    reading
        How the rows are read.
    promise
        The level and the guarantee to evaluate.
    work
        The number of processes, or the cluster.
    quiet
        Show no progress bar.
    """
    paths = [path.absolute() for path in files_of(data)]  # a worker may have another directory
    with progress("Evaluating", len(paths), quiet=quiet) as show_n_done:
        counted_files = run_many(
            partial(count_file, file=file, reading=reading, promise=promise),
            paths,
            n_jobs=work.jobs,
            scheduler=work.scheduler,
            progress=lambda n_done, n_files: show_n_done(n_done),
        )
    show(NewValues.total(counted_file.new_values for counted_file in counted_files).notes())

    counts = PartCounts.total(counted_file.counts for counted_file in counted_files)
    if not counts.rows:
        raise ValueError(f"{data} has no rows; give a table with rows.")
    predictor = model.predictor_
    return evaluate_counts(predictor, predictor.calibrate_at(**asdict(promise)), counts)


@dataclass(frozen=True, eq=False)
class CountedFile:
    """The counts of one file: its hits and sizes, and what the fit never saw."""

    counts: PartCounts
    new_values: NewValues


def count_file(
    path: Path, *, file: ModelFile, reading: TargetOptions, promise: OtherPromise
) -> CountedFile:
    """Count rows, hits and set sizes in one file of a table; this runs in a worker process.

    A hit is a row whose set holds the true value. `promise` says at which level sets are made.
    """
    model = open_model_once(file)
    predictor = model.predictor_
    calibration = predictor.calibrate_at(**asdict(promise))
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
    work: Work,
    quiet: bool,
) -> Any:
    """Calibrate a model on the rows of a table that need not fit into memory.

    Each file is scored in the process that reads it. That process sends back a score, a target, a
    fingerprint and a cluster of each row (rows that belong together have the same cluster), and
    features only of the few rows that are scored twice, as a check.

    Parameters
    ----------
    model, file
        The opened model, and the file that other processes open it from.
    data
        A table, or a folder of Parquet files.
    reading
        How the rows are read.
    rest
        `data` is the table of the fit: leave out the rows that trained or tuned the model.
    work
        The number of processes, or the cluster.
    quiet
        Show no progress bar.
    """
    if not can_score_in_batches(model):
        raise ValueError("Scores of your own need all predictions at once: leave --in-parts out.")

    # 1. Plan which rows of each file are scored.
    counts = row_counts(data)
    n_rows = sum(counts.values())
    left_out = _rows_of_the_fit(model, n_rows, data) if rest else {}
    plans = plan_files(counts, left_out)
    if sum(plan.n_scored for plan in plans) == 0:
        raise ValueError(f"{data} has no rows to calibrate on; give a table with rows.")

    # 2. Score them. Scores of labels need all labels of the table, which nobody knows before all
    #    files were read: if the table has others than the fit, score once more.
    score_with = partial(_score_files, plans, file, reading=reading, work=work, quiet=quiet)
    classes_of_fit = model.predictor_.structure.classes
    scored_files = score_with(classes=classes_of_fit)
    all_classes = _classes_with_new_labels(classes_of_fit, scored_files)
    if all_classes is not None:
        scored_files = score_with(classes=all_classes)

    # 3. Calibrate on the scores.
    _check_rows_left_out(scored_files, left_out, model.predictor_.certificate, data)
    show(NewValues.total(scored_file.new_values for scored_file in scored_files).notes())
    return recalibrate_scored(model, _batches(scored_files), is_rest=rest)


def _score_files(
    plans: list[FilePlan],
    file: ModelFile,
    *,
    reading: TargetOptions,
    work: Work,
    quiet: bool,
    classes: AnyArray | None,
) -> list[ScoredFile]:
    """Score each file as planned, in several processes or on a cluster of machines.

    `classes` are as in `score_file`, the other parameters as in `recalibrate_in_parts`.
    """
    with progress("Scoring", len(plans), quiet=quiet) as show_n_done:
        return run_many(
            partial(score_file, file=file, reading=reading, classes=classes),
            plans,
            n_jobs=work.jobs,
            scheduler=work.scheduler,
            progress=lambda n_done, n_files: show_n_done(n_done),
        )


def _batches(scored_files: list[ScoredFile]) -> list[ScoredBatch]:
    return [batch for scored_file in scored_files for batch in scored_file.batches]


def _classes_with_new_labels(
    classes_of_fit: AnyArray | None, scored_files: list[ScoredFile]
) -> AnyArray | None:
    """Return the classes of the fit and the new labels of a table; None if there is no new one."""
    if classes_of_fit is None:  # a regression
        return None
    labels = np.concatenate([np.unique(batch.y) for batch in _batches(scored_files)])
    if np.setdiff1d(labels, classes_of_fit).size == 0:
        return None
    return np.union1d(classes_of_fit, labels)


@dataclass(frozen=True, eq=False)
class FilePlan:
    """Which rows of a file are scored, and which of them twice.

    Attributes
    ----------
    path
        The file.
    n_scored
        How many of its rows are scored.
    left_out
        The rows that are not scored, ascending, by their position in the file.
    score_again
        The rows that are scored a second time, to check that a row's score does not depend on the
        rows beside it; ascending, by their position among the scored rows of the file.
    """

    path: Path
    n_scored: int
    left_out: Integers
    score_again: Integers


def plan_files(counts: Mapping[Path, int], left_out: Mapping[str, Integers]) -> list[FilePlan]:
    """Plan which rows of each file of a table are scored, and which of them twice.

    A few rows are scored a second time, to check that the score of a row does not depend on the
    rows beside it.

    Parameters
    ----------
    counts
        The number of rows of each file, in the order of the table.
    left_out
        For each role, such as "train", its rows by position in the whole table: not scored.
    """
    no_rows = np.arange(0)
    all_left_out = np.sort(np.concatenate([no_rows, *left_out.values()]))
    n_scored = sum(counts.values()) - all_left_out.size
    score_again = choose_rows_to_score_again(n_scored)  # positions among the scored rows

    plans = []
    n_rows_before = 0  # in the files before this one
    n_scored_before = 0  # of them, those that are scored
    for path, n_rows in counts.items():
        left_out_here = _within(all_left_out, n_rows_before, n_rows)
        n_scored_here = n_rows - left_out_here.size
        score_again_here = _within(score_again, n_scored_before, n_scored_here)
        plans.append(FilePlan(path.absolute(), n_scored_here, left_out_here, score_again_here))

        n_rows_before += n_rows
        n_scored_before += n_scored_here
    return plans


@dataclass(frozen=True, eq=False)
class ScoredFile:
    """The scored rows of a file, the fingerprints of rows left out, and what the fit never saw."""

    batches: list[ScoredBatch]
    hashes_left_out: list[Hashes]
    new_values: NewValues


def score_file(
    plan: FilePlan, *, file: ModelFile, reading: TargetOptions, classes: AnyArray | None
) -> ScoredFile:
    """Score the calibration rows of one file, batch by batch; this runs in a worker process.

    `plan` says which rows are scored. `classes` are all labels of the table, also those of other
    files; None for a regression.
    """
    model = open_model_once(file)
    scored_file = ScoredFile(batches=[], hashes_left_out=[], new_values=NewValues())

    n_rows_before = 0  # in the batches before this one
    n_scored_before = 0  # of them, those that are scored
    with name_file_in_errors(plan.path):
        for rows in read_rows_with_targets(
            model, plan.path, reading, scored_file.new_values, refuse_missing=True
        ):
            n_rows = len(rows.y)

            # 1. Fingerprint the rows left out: the caller checks that they are the right ones.
            left_out = _within(plan.left_out, n_rows_before, n_rows)
            hashes = row_fingerprints(take_features(rows.X, left_out), rows.y[left_out])
            scored_file.hashes_left_out.append(hashes)
            n_rows_before += n_rows

            # 2. Score the others.
            to_score = np.setdiff1d(np.arange(n_rows), left_out)
            if to_score.size == 0:
                continue
            scored_batch = score_batch(
                model,
                take_features(rows.X, to_score),
                rows.y[to_score],
                groups=None if rows.by is None else rows.by[to_score],
                classes=classes,
                score_again=_within(plan.score_again, n_scored_before, to_score.size),
            )
            scored_file.batches.append(scored_batch)
            n_scored_before += to_score.size
    return scored_file


def _within(positions: Integers, start: int, length: int) -> Integers:
    """Select the positions in a block of rows, and count them from the start of the block.

    The positions must ascend. [2, 5, 7, 11] within the 4 rows from 5 on -> [0, 2]
    """
    first, last = np.searchsorted(positions, [start, start + length])
    return positions[first:last] - start


def _rows_of_the_fit(model: Any, n_rows: int, data: Path) -> dict[str, Integers]:
    """Find the rows of a table that trained and tuned a model, for --rest, which leaves them out.

    `data` is the table, with `n_rows` rows. It must be the table of the fit, by the number of its
    rows, and the fit must not have had clusters (rows that belong together, `--groups`). Returns
    positions in the table for "train" and for "tune".
    """
    # 1. The table must be that of the fit.
    stored_table = StoredTable.of(model)
    if stored_table is None or stored_table.n_rows != n_rows:
        difference = "the model does not know its table"
        if stored_table is not None:
            difference = f"that had {stored_table.n_rows:,} rows"
        raise ValueError(
            f"--rest is for the table of the fit: {data} has {n_rows:,} rows, and {difference}."
        )

    # 2. A cluster may have rows among those left out and among the rest.
    has_clusters = model.predictor_.calibration.scored.clusters is not None
    if has_clusters:
        raise ValueError(
            "--rest would calibrate on rows that belong together with training rows: give DATA of "
            "new groups."
        )

    # 3. The model knows positions among the rows that it was fitted on.
    return {role: stored_table.fitted_rows[model.splits_[role]] for role in ("train", "tune")}


def _check_rows_left_out(
    scored_files: list[ScoredFile],
    left_out: Mapping[str, Integers],
    certificate: Certificate,
    data: Path,
) -> None:
    """Raise an error unless the rows left out are those that trained and tuned the model.

    The files may have changed since the fit, so that other rows are at these positions.

    Parameters
    ----------
    scored_files
        What was read of each file, with hashes of the rows left out.
    left_out
        The positions of the rows left out in the table `data`, by role.
    certificate
        It states the fingerprint of the rows of each role.
    """
    if not left_out:
        return

    # 1. Know the hash of the row at each position. Files have the hashes in the order of rows.
    positions_in_order = np.sort(np.concatenate(list(left_out.values())))
    hashes_of_files = [hashes for scored in scored_files for hashes in scored.hashes_left_out]
    hashes_in_order = np.concatenate(hashes_of_files)

    # 2. Compare the fingerprint of each role.
    for role, positions in left_out.items():
        hashes_of_role = hashes_in_order[np.searchsorted(positions_in_order, positions)]
        stated_fingerprint = certificate.provenance.row_fingerprints.get(role)
        if positions.size and role_fingerprint(hashes_of_role) != stated_fingerprint:
            raise ValueError(
                f"The {role} rows of the fit are not at their places in {data}: rows or files were "
                "changed, added or reordered. Give the table as it was at the fit, or other rows "
                "without --rest."
            )
