"""Open the sealed calibration rows once, and check that a fixed function scores them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dco.calibration.base import Calibrator
from dco.calibration.by_cluster import one_row_per_group
from dco.foundations.arrays import AnyArray, Bools, Floats
from dco.foundations.display import counted, first_few, have
from dco.foundations.errors import DcoError, SealBrokenError
from dco.foundations.notes import Message, Note
from dco.foundations.ranks import checked_scores
from dco.foundations.tables import take_features
from dco.rows.seal import SealedRows
from dco.scores.inverse import check_inverse, is_ours
from dco.structure import ScoredRows, Structure, rows_scored_again

_LARGER = "such scores are infinite, so the statement stays valid and sets are larger."


@dataclass(frozen=True, eq=False)
class OpenedRows:
    """The scored calibration rows, and what their targets showed."""

    scored: ScoredRows
    notes: tuple[Note, ...]


def open_calibration_rows(
    structure: Structure,
    sealed: SealedRows,
    calibrator: Calibrator,
    *,
    support: tuple[float, float] | None,
    seed: int,
) -> OpenedRows:
    """Open the calibration rows for this structure, score them, and check the scores.

    A structure that cannot score the rows is an error, and no other takes its place: which one is
    calibrated may not depend on what the calibration rows hold, a missing value in them included.
    """
    rows = sealed.open_for(structure.fingerprint)
    X = rows.X
    y = rows.y
    clusters = rows.clusters
    picks = np.random.default_rng([seed, 2])  # not the draws that dealt the roles
    one_per_cluster = None if clusters is None else one_row_per_group(clusters, seed=picks)
    try:
        scores = structure.scores(X, y)
    except DcoError:
        raise
    except Exception as error:  # whatever a user's model raises
        raise ValueError(
            f"{structure.name} was chosen on training and tuning rows and cannot score the "
            f"calibration rows ({type(error).__name__}: {error}). They are open now, so no other "
            f"candidate may take its place: leave this model out, or put what it needs (an "
            f"imputer, say) before it."
        ) from error

    if not is_ours(structure.score):  # ours are compared in the tests
        check_inverse(structure.score, structure.prediction(X), y, scores)
    scored = ScoredRows(
        scores=scores,
        covariates=calibrator.covariates(X, y),
        clusters=clusters,
        one_per_cluster=one_per_cluster,
    )
    return OpenedRows(
        scored=settle_scores(scored, structure, calibrator, X, y),
        notes=tuple(note_targets(structure, y, support=support)),
    )


def settle_scores(
    scored: ScoredRows, structure: Structure, calibrator: Calibrator, X: Any, y: AnyArray
) -> ScoredRows:
    """Check scores and covariates against smaller batches, and round tied scores up.

    X may hold those rows alone that `rows_scored_again` chooses.
    """
    check_scores_repeat(structure, X, y, scored.scores)
    calibrator.check_covariates(X, y, scored.covariates)
    rounding = tie_rounding(structure.scores, X, y, scored.scores)
    try:
        scores = checked_scores(scored.scores + rounding)
    except ValueError as error:  # once the seal is open, no other structure may take its place
        message = f"The chosen structure ({structure.name}) cannot be calibrated: {error}"
        raise type(error)(message) from None
    return replace(scored, scores=scores, rounding=rounding)


def check_scores_repeat(structure: Structure, X: Any, y: AnyArray, scores: Floats) -> None:
    """Score some rows again, and raise if the scores differ.

    A model that learns in predict, or leaves dropout on, gives other scores the second time. Rows
    come in smaller batches, so that a model is seen that compares the rows of a batch. Those may
    round otherwise, in single precision to a few digits where features are large: that is not held
    against a model that gives the same scores to the same batch, up to a hundredth of a score's
    usual size.
    """
    first_rows, _ = rows_scored_again(len(y))
    half = first_rows[: len(first_rows) // 2]
    batches = [first_rows, half] if half.size else [first_rows]

    for rows in batches:
        batch = take_features(X, rows)
        again = structure.scores(batch, y[rows])
        if same_but_for_rounding(again, scores[rows]).all():
            continue

        is_near = same_but_for_rounding(again, scores[rows], among=scores, share=0.01).all()
        if is_near:
            a_third_time = structure.scores(batch, y[rows])
            if same_but_for_rounding(a_third_time, again).all():
                continue
        raise SealBrokenError(
            f"The scores of {structure.name} change when the same rows are scored again, so they "
            f"are not those of one fixed function of a row: the model learns, draws at random, "
            f"compares rows or changes them in place in predict. Fix its seed, let it copy, or "
            f"freeze it."
        )


def tie_rounding(
    scores_of: Callable[[Any, AnyArray], Floats], X: Any, y: AnyArray, scores: Floats
) -> float:
    """Return how much to add to every score so that tied rows stay covered when they come alone.

    Where scores are distinct that is nothing. Where some are tied, many rows may share the score at
    the threshold, and a last digit could cost all of them in a batch of another size: every score
    is then raised by what batches round differently, which keeps their order.
    """
    if len(np.unique(scores)) == scores.size:
        return 0.0
    return batch_rounding(scores_of, X, y, scores)


def batch_rounding(
    scores_of: Callable[[Any, AnyArray], Floats], X: Any, y: AnyArray, scores: Floats
) -> float:
    """Return four times the largest difference between a row's score alone and among the others.

    A matrix product of one row may round otherwise than one of many. A larger jump is none of that
    (two labels that change places, in a score of ranks) and does not count.
    """
    _, rows_alone = rows_scored_again(len(y))
    together = scores[rows_alone]
    batches_of_one = rows_alone[:, None]
    alone = np.array([scores_of(take_features(X, row), y[row])[0] for row in batches_of_one])

    is_rounding = same_but_for_rounding(alone, together) & np.isfinite(together)
    differences = np.abs(alone[is_rounding] - together[is_rounding])
    return 4 * float(differences.max(initial=0.0))


def same_but_for_rounding(
    again: Floats, scores: Floats, *, among: Floats | None = None, share: float = 1e-4
) -> Bools:
    """Return where scores differ by no more than batches of another size may round differently.

    A small residual is the difference of large numbers and keeps their rounding (seven digits, in
    single precision), so what counts is a share of the size that scores usually have: the median of
    the finite ones `among` which they are, without their sign.
    """
    sizes = np.abs(scores if among is None else among)
    finite = sizes[np.isfinite(sizes)]
    usual_size = float(np.quantile(finite, 0.5, method="lower")) if finite.size else 0.0
    return np.isclose(again, scores, rtol=1e-5, atol=1e-8 + share * usual_size, equal_nan=True)


def note_targets(
    structure: Structure, y: AnyArray, *, support: tuple[float, float] | None
) -> list[Note]:
    """Count calibration targets that score +inf: outside the support, or of unseen labels."""
    notes = []
    rows = counted(len(y), "calibration row")

    if support is not None:
        low, high = support
        n_outside = int(np.count_nonzero((y < low) | (y > high)))
        if n_outside:
            have_target = f"{have(n_outside)} a target outside the support"
            text = f"{n_outside} of {rows} {have_target}: {_LARGER}"
            remedy = Message("Widen ⟨support⟩, or correct these targets.")
            notes.append(Note("outside-support", text, remedy))

    if structure.classes is not None:
        known_labels = np.asarray(getattr(structure.model, "classes_", structure.classes))
        labels_of_model = set(known_labels.tolist())
        unseen = Counter(label for label in y.tolist() if label not in labels_of_model)
        if unseen:
            shown = first_few(
                [f"{label!r}: {counted(n, 'row')}" for label, n in unseen.most_common()]
            )
            n_unseen = unseen.total()
            have_labels = "has a label" if n_unseen == 1 else "have labels"
            text = (
                f"{n_unseen} of {rows} {have_labels} that the chosen model never saw ({shown}): "
                f"{_LARGER}"
            )
            notes.append(Note("unseen-labels", text, "Bring training rows of them."))
    return notes
