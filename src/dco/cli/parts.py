"""Tables larger than memory: evaluate or score file by file, here or on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dco.calibration.scored_batches import ScoredBatch, join_batches, score_batch
from dco.cli.model_files import opened_once
from dco.cli.option_records import TargetOptions
from dco.cli.printing import progress
from dco.cli.tables.files import errors_named, files_of, row_counts
from dco.cli.tables.fitted import StoredTable, known_batches
from dco.cli.tables.rows import NewValues
from dco.evaluation.evaluation import Evaluation
from dco.evaluation.in_parts import PartCounts, evaluate_counts
from dco.foundations.arrays import AnyArray, Integers
from dco.foundations.fingerprints import Hashes, role_fingerprint, row_fingerprints
from dco.foundations.notes import show
from dco.foundations.parallel import run_many
from dco.foundations.tables import take_features
from dco.recalibration import recalibrate_scored
from dco.rows.rows import rows_of
from dco.scores.inverse import is_ours
from dco.structure import rows_scored_again

# plain data, which travels to workers: the file of a model with the types that are trusted
ModelFile: TypeAlias = tuple[Path, tuple[str, ...]]


# ---------------------------------------------------------------- evaluation


def evaluate_in_parts(
    model: Any,
    file: ModelFile,
    data: Path,
    *,
    how: TargetOptions,
    asked: Mapping[str, Any],
    jobs: int,
    scheduler: str | None,
    quiet: bool,
) -> Evaluation:
    """Count every file of a folder (or one file), and add the counts up.

    `asked` has the level and the guarantee. One batch of each process is in memory at a time.
    """
    paths = [path.absolute() for path in files_of(data)]  # a worker may stand elsewhere
    with progress("Evaluating", len(paths), quiet=quiet) as reached:
        counted_files = run_many(
            partial(count_file, file=file, how=how, asked=asked),
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
    path: Path, *, file: ModelFile, how: TargetOptions, asked: Mapping[str, Any]
) -> CountedFile:
    """Count rows, hits and sizes in one file."""
    model = opened_once(*file)
    predictor = model.predictor_
    calibration = predictor.at(**asked)
    new_values = NewValues()
    with errors_named(path):
        counts = PartCounts.total(
            PartCounts.of(predictor, rows.X, rows.y, calibration)
            for rows in known_batches(model, path, how, new_values)
        )
    return CountedFile(counts, new_values)


# ---------------------------------------------------------------- calibration


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
    """Recalibrate on all rows of a table, or on the `rest` of the table of the fit.

    The rest are the rows that neither trained nor tuned the model. Rows are scored where they lie;
    a score, a target, a fingerprint and a group of each come back, and no features.
    """
    if not is_ours(model.predictor_.structure.score):
        raise ValueError("Scores of your own need all predictions at once: leave --in-parts out.")

    counts = row_counts(data)
    n_rows = sum(counts.values())
    left_out = _rows_of_the_fit(model, n_rows, data) if rest else {}
    pieces = cut_into_pieces(counts, left_out)
    if sum(piece.n_scored for piece in pieces) == 0:
        raise ValueError(f"{data} has no rows to calibrate on; give a table with rows.")

    def score_all(classes: AnyArray | None) -> list[ScoredFile]:
        with progress("Scoring", len(pieces), quiet=quiet) as reached:
            return run_many(
                partial(score_file, file=file, how=how, classes=classes),
                pieces,
                n_jobs=jobs,
                scheduler=scheduler,
                progress=lambda n_done, n_files: reached(n_done),
            )

    classes = model.predictor_.structure.classes
    scored_files = score_all(classes)
    scored = join_batches([batch for scored in scored_files for batch in scored.batches])
    if classes is not None and np.setdiff1d(scored.y, classes).size:
        # labels that the fit does not know must be known in every file
        scored_files = score_all(np.union1d(classes, scored.y))
        scored = join_batches([batch for scored in scored_files for batch in scored.batches])

    _check_rows_left_out(scored_files, left_out, model.predictor_.certificate, data)
    show(NewValues.total(scored_file.new_values for scored_file in scored_files).notes())
    return recalibrate_scored(model, scored, is_rest=rest)


@dataclass(frozen=True, eq=False)
class Piece:
    """One file, and what is to be done with its rows.

    `left_out` are rows that are not scored, by their position in the file; `score_again` are rows
    that are scored a second time, by their position among those that are scored.
    """

    path: Path
    n_scored: int
    left_out: Integers
    score_again: Integers


def cut_into_pieces(counts: Mapping[Path, int], left_out: Mapping[str, Integers]) -> list[Piece]:
    """Say what is to be done with the rows of each file; `left_out` has rows of roles."""
    all_left_out = np.sort(np.concatenate([np.arange(0), *left_out.values()]))
    n_scored = sum(counts.values()) - all_left_out.size
    score_again = np.union1d(*rows_scored_again(n_scored))

    pieces = []
    first_row = 0
    first_scored = 0
    for path, n_rows in counts.items():
        left_out_here = _within(all_left_out, first_row, first_row + n_rows)
        n_scored_here = n_rows - left_out_here.size
        pieces.append(
            Piece(
                path=path.absolute(),
                n_scored=n_scored_here,
                left_out=left_out_here,
                score_again=_within(score_again, first_scored, first_scored + n_scored_here),
            )
        )
        first_row += n_rows
        first_scored += n_scored_here
    return pieces


@dataclass(frozen=True, eq=False)
class ScoredFile:
    """The scored rows of a file, and fingerprints of those that were left out."""

    batches: list[ScoredBatch]
    hashes_left_out: list[Hashes]
    new_values: NewValues


def score_file(
    piece: Piece, *, file: ModelFile, how: TargetOptions, classes: AnyArray | None
) -> ScoredFile:
    """Score the rows of one file, batch by batch; `classes` are all labels of the table."""
    model = opened_once(*file)
    structure = replace(model.predictor_.structure, classes=classes)
    calibrator = model.predictor_.statement.calibrator
    scored = ScoredFile(batches=[], hashes_left_out=[], new_values=NewValues())

    first_row = 0
    first_scored = 0
    with errors_named(piece.path):
        for batch in known_batches(model, piece.path, how, scored.new_values, every=True):
            X = model.check_features(batch.X)
            rows = rows_of(X, model.check_targets(batch.y), groups=batch.by, params={})
            left_out = _within(piece.left_out, first_row, first_row + len(rows))
            first_row += len(rows)
            hashes = row_fingerprints(take_features(rows.X, left_out), rows.y[left_out])
            scored.hashes_left_out.append(hashes)

            stay = np.setdiff1d(np.arange(len(rows)), left_out)
            if stay.size:
                again = _within(piece.score_again, first_scored, first_scored + stay.size)
                scored.batches.append(
                    score_batch(structure, calibrator, rows.take(stay), score_again=again)
                )
                first_scored += stay.size
    return scored


def _within(positions: Integers, start: int, stop: int) -> Integers:
    """Return those of ascending positions that are in a range, counted from its start."""
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
        is_same = role_fingerprint(hashes_of_role) == certificate.provenance.row_fingerprints.get(
            role
        )
        if positions.size and not is_same:
            raise ValueError(
                f"The {role} rows of the fit are not at their places in {data}: rows or files were "
                "changed, added or reordered. Give the table as it was at the fit, or other rows "
                "without --rest."
            )
