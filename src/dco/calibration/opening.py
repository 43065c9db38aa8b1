"""Open the sealed calibration rows once, and check that a fixed function scores them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dco.calibration.base import Calibrator
from dco.calibration.by_cluster import one_row_per_group
from dco.foundations.arrays import AnyArray, Bools, Floats, Integers
from dco.foundations.display import counted, first_few, have
from dco.foundations.errors import DcoError, SealBrokenError
from dco.foundations.notes import Message, Note
from dco.foundations.ranks import checked_scores
from dco.foundations.tables import take_features
from dco.rows.seal import SealedRows
from dco.scores.inverse import check_inverse, is_ours
from dco.structure import ScoredRows, Structure, rows_scored_again

_STAYS_VALID = "such scores are infinite, so the statement stays valid and sets are larger."

# How far scores of the same row may differ in batches of another size (`same_but_for_rounding`).
_ROUNDING_OF_SCORE = 1e-5  # as a share of the score itself
_ROUNDING_OF_USUAL_SIZE = 1e-4  # as a share of the size that scores usually have
_ROUNDING_OF_REPEATABLE = 0.01  # the same, for a model that repeats itself exactly on a batch
_SMALLEST_ROUNDING = 1e-8
_SAFETY_FACTOR = 4  # a few rows are compared, and others may differ by more


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
    """Open the sealed calibration rows for this structure, score them, and check the scores.

    Parameters
    ----------
    structure
        The fitted model with its score; nothing about it changes any more.
    sealed
        The calibration rows. They can be opened once.
    calibrator
        Says what is needed of each row beside its score: a weight, say, or the group that it is in.
    support
        The lowest and the highest y that are possible, if the caller knows them.
    seed
        The seed of the fit.
    """
    rows = sealed.open_for(structure.fingerprint)

    # 1. Where rows belong together in clusters, pick a row of each before any score is seen.
    one_per_cluster = pick_one_per_cluster(rows.clusters, seed=seed)

    # 2. Score the rows. A score that the user wrote must agree with the sets that it makes; for
    # those of this library its tests show that.
    scores = _score_opened_rows(structure, rows.X, rows.y)
    if not is_ours(structure.score):
        check_inverse(structure.score, structure.prediction(rows.X), rows.y, scores)
    scored = ScoredRows(
        scores=scores,
        covariates=calibrator.covariates(rows.X, rows.y),
        clusters=rows.clusters,
        one_per_cluster=one_per_cluster,
    )

    # 3. Check that a fixed function scored them, one that gives a row the same score every time.
    return OpenedRows(
        scored=settle_scores(scored, structure, calibrator, rows.X, rows.y),
        notes=tuple(note_targets(structure, rows.y, support=support)),
    )


def pick_one_per_cluster(clusters: AnyArray | None, *, seed: int) -> Integers | None:
    """Pick the position of one row of each cluster at random; None without clusters.

    `seed` is that of the fit, which dealt roles by other draws.
    """
    if clusters is None:
        return None
    return one_row_per_group(clusters, seed=np.random.default_rng([seed, 2]))


def _score_opened_rows(structure: Structure, X: Any, y: AnyArray) -> Floats:
    """Score the calibration rows, and explain the error if the model cannot predict them.

    A missing value may be the cause. No other model may then be tried: which model is calibrated
    may not depend on what the calibration rows hold.
    """
    try:
        return structure.scores(X, y)
    except DcoError:
        raise
    except Exception as error:  # whatever a user's model raises
        raise ValueError(
            f"{structure.name} was chosen on training and tuning rows and cannot score the "
            f"calibration rows ({type(error).__name__}: {error}). They are open now, so no other "
            f"candidate may take its place: leave this model out, or put what it needs (an "
            f"imputer, say) before it."
        ) from error


def settle_scores(
    scored: ScoredRows, structure: Structure, calibrator: Calibrator, X: Any, y: AnyArray
) -> ScoredRows:
    """Check the scores of calibration rows, and return them in their final form.

    Scores, and what else `scored` has of each row (its covariate: a weight, say, or a group), must
    not depend on the other rows. Some rows are therefore scored again in smaller batches: those
    that `rows_scored_again` chooses. X must have these rows, y and `scored` must have all.
    """
    # 1. Check that nothing changes in smaller batches.
    check_scores_repeat(structure, X, y, scored.scores)
    calibrator.check_covariates(X, y, scored.covariates)

    # 2. Raise all scores by a little if some are equal, so that rounding cannot part them.
    rounding = tie_rounding(structure.scores, X, y, scored.scores)
    try:
        scores = checked_scores(scored.scores + rounding)
    except ValueError as error:  # NaN, say: name the structure
        message = f"The chosen structure ({structure.name}) cannot be calibrated: {error}"
        raise type(error)(message) from None
    return replace(scored, scores=scores, rounding=rounding)


def check_scores_repeat(structure: Structure, X: Any, y: AnyArray, scores: Floats) -> None:
    """Score some rows again in smaller batches, and raise if their scores change.

    They do if the model learns in predict, leaves dropout on, or compares the rows of a batch.
    `scores` are those of all rows (X, y), scored together.
    """
    first_rows, _ = rows_scored_again(len(y))
    batches = [first_rows]
    first_half = first_rows[: len(first_rows) // 2]
    if first_half.size > 0:
        batches.append(first_half)

    for rows in batches:
        is_repeated = _scores_repeat(
            structure, take_features(X, rows), y[rows], scores[rows], all_scores=scores
        )
        if not is_repeated:
            raise SealBrokenError(
                f"The scores of {structure.name} change when the same rows are scored again, so "
                f"they are not those of one fixed function of a row: the model learns, draws at "
                f"random, compares rows or changes them in place in predict. Fix its seed, let it "
                f"copy, or freeze it."
            )


def _scores_repeat(
    structure: Structure, X: Any, y: AnyArray, scores: Floats, *, all_scores: Floats
) -> bool:
    """Return whether the rows of a batch (X, y) get the same scores as they got among all rows.

    `scores` are those that they got then, and `all_scores` those of all rows.
    """
    # 1. They are the same but for the usual rounding.
    scores_now = structure.scores(X, y)
    if same_but_for_rounding(scores_now, scores).all():
        return True

    # 2. In single precision and with large features, batches of another size may agree in few
    # digits only. That is accepted from a model that gives the same batch the same scores.
    is_near = same_but_for_rounding(
        scores_now, scores, usual_scores=all_scores, share=_ROUNDING_OF_REPEATABLE
    )
    if not is_near.all():
        return False
    scores_once_more = structure.scores(X, y)
    return bool(same_but_for_rounding(scores_once_more, scores_now).all())


def tie_rounding(
    scores_of: Callable[[Any, AnyArray], Floats], X: Any, y: AnyArray, scores: Floats
) -> float:
    """Return how much to add to every calibration score because some scores are tied: 0 if none is.

    Many rows may share the score that becomes the threshold. In a batch of another size their
    scores may be larger in the last digit, and all of them would be missed at once. Raising every
    score by as much as batches round differently prevents that, and keeps the order.
    """
    if len(np.unique(scores)) == scores.size:
        return 0.0
    return batch_rounding(scores_of, X, y, scores)


def batch_rounding(
    scores_of: Callable[[Any, AnyArray], Floats], X: Any, y: AnyArray, scores: Floats
) -> float:
    """Estimate by how much the score of a row may differ if it is predicted without other rows.

    A matrix product of one row may be rounded in another way than one of many rows. `scores` are
    those of all rows (X, y), scored together. Some rows are scored alone with the function
    `scores_of(X, y)`, and the estimate is four times the largest difference. Differences too large
    for rounding do not count: a score that ranks labels jumps if two labels change places.
    """
    _, rows_to_compare = rows_scored_again(len(y))
    scores_together = scores[rows_to_compare]
    batches_of_one = rows_to_compare[:, None]
    scores_alone = np.array(
        [scores_of(take_features(X, batch), y[batch])[0] for batch in batches_of_one]
    )

    is_finite = np.isfinite(scores_together)
    differs_by_rounding = is_finite & same_but_for_rounding(scores_alone, scores_together)
    differences = np.abs(scores_alone[differs_by_rounding] - scores_together[differs_by_rounding])
    return _SAFETY_FACTOR * float(differences.max(initial=0.0))


def same_but_for_rounding(
    scores_again: Floats,
    scores: Floats,
    *,
    usual_scores: Floats | None = None,
    share: float = _ROUNDING_OF_USUAL_SIZE,
) -> Bools:
    """Say for each row whether its two scores differ by no more than rounding.

    A small residual is the difference of two large numbers and keeps their rounding. A difference
    may therefore be up to `share` of the size that scores usually have, which is the median of
    |usual_scores|. None for `usual_scores`: the median of |scores|.
    """
    if usual_scores is None:
        usual_scores = scores
    sizes = np.abs(usual_scores)
    finite_sizes = sizes[np.isfinite(sizes)]
    usual_size = 0.0
    if finite_sizes.size > 0:
        usual_size = float(np.quantile(finite_sizes, 0.5, method="lower"))

    return np.isclose(
        scores_again,
        scores,
        rtol=_ROUNDING_OF_SCORE,
        atol=_SMALLEST_ROUNDING + share * usual_size,
        equal_nan=True,
    )


def note_targets(
    structure: Structure, y: AnyArray, *, support: tuple[float, float] | None
) -> list[Note]:
    """Note calibration targets whose scores are infinite: outside the support, or unseen labels.

    `support` are the bounds of y that the caller knows.
    """
    notes = []
    if support is not None:
        notes += _note_outside_support(y, support)
    if structure.classes is not None:
        labels_of_model = np.asarray(getattr(structure.model, "classes_", structure.classes))
        notes += _note_unseen_labels(y, set(labels_of_model.tolist()))
    return notes


def _note_outside_support(y: AnyArray, support: tuple[float, float]) -> list[Note]:
    """Note how many calibration targets `y` lie outside the bounds that the caller gave for y.

    `support` is (lowest, highest). The list is empty if all targets lie within.
    """
    low, high = support
    n_outside = int(np.count_nonzero((y < low) | (y > high)))
    if n_outside == 0:
        return []

    text = (
        f"{n_outside} of {counted(len(y), 'calibration row')} {have(n_outside)} a target outside "
        f"the support: {_STAYS_VALID}"
    )
    remedy = Message("Widen ⟨support⟩, or correct these targets.")
    return [Note("outside-support", text, remedy)]


def _note_unseen_labels(y: AnyArray, labels_of_model: set[Any]) -> list[Note]:
    """Note calibration labels that the model was not trained on; nothing if it knows all."""
    n_rows_of = Counter(label for label in y.tolist() if label not in labels_of_model)
    if not n_rows_of:
        return []

    n_unseen = n_rows_of.total()
    have_labels = "has a label" if n_unseen == 1 else "have labels"
    examples = first_few(
        [f"{label!r}: {counted(n, 'row')}" for label, n in n_rows_of.most_common()]
    )
    text = (
        f"{n_unseen} of {counted(len(y), 'calibration row')} {have_labels} that the chosen model "
        f"never saw ({examples}): {_STAYS_VALID}"
    )
    return [Note("unseen-labels", text, "Bring training rows of them.")]
