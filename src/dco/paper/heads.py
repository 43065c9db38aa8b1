"""Appendix C.3, the candidate class for classification: 8 Monte-Carlo-dropout heads × 2 scores.

A head is a small network that reads the features of a frozen backbone. Heads are trained side by
side and predict one after the other; of a head's T × n × K probabilities (T dropout passes, n rows,
K labels) only the scores of every label, n × K for each of the two scores, are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

import dco
from dco import LabelSets
from dco.foundations.arrays import Floats, Integers
from dco.paper.experiment import group_by
from dco.paper.methods import OnRoles, ScoredRows
from dco.scores import AddOneIn, LabelScore, PosteriorNLL, Score

DROPOUTS = (0.05, 0.1, 0.2, 0.3)
WIDTHS = ((512, 256), (256, 128))
SCORES: Mapping[str, LabelScore] = {"posterior_nll": PosteriorNLL(), "aoi_nll": AddOneIn()}
SEEDS_PER_SPLIT = 1000  # more than there are heads, so that no two heads of a run share a seed


class HeadSettings(NamedTuple):
    """What tells one head from another: its dropout rate, and the widths of its hidden layers."""

    dropout: float
    widths: tuple[int, int]


HEADS = tuple(HeadSettings(dropout, widths) for dropout, widths in product(DROPOUTS, WIDTHS))


@dataclass(frozen=True)
class HeadCandidate:
    """One of the paper's 16 structures φ: a head and a score.

    They are numbered as in the paper: by score, then by dropout, then by hidden widths.
    """

    number: int
    score: str
    head_number: int  # a position in HEADS

    @property
    def dropout(self) -> float:
        """The dropout rate."""
        return HEADS[self.head_number].dropout

    @property
    def hidden(self) -> str:
        """The hidden widths as the paper writes them: "(512,256)"."""
        return str(HEADS[self.head_number].widths).replace(" ", "")

    @property
    def name(self) -> str:
        """The paper's name for it: cand_001 to cand_016."""
        return f"cand_{self.number:03d}"


CANDIDATES = tuple(
    HeadCandidate(number, score, head_number)
    for number, (score, head_number) in enumerate(product(SCORES, range(len(HEADS))), start=1)
)
CANDIDATE_BY_NAME = {candidate.name: candidate for candidate in CANDIDATES}
# the structure of the paper's BQ baseline: posterior_nll, dropout 0.05, hidden (512, 256)
FIXED_CANDIDATE = CANDIDATES[0]


# ---- scores of every label, kept in place of predictions


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """The score of every label on n rows, (n, K), and the number of each true label, (n,)."""

    scores: Floats
    labels: Integers

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, start: int, stop: int) -> ScoreTable:
        """Return rows start, ..., stop - 1."""
        return ScoreTable(self.scores[start:stop], self.labels[start:stop])


@dataclass(frozen=True)
class ScoreInTable(Score):
    """A score that was computed for every label beforehand."""

    needs: ClassVar[tuple[type, ...]] = (ScoreTable,)

    def observed(self, prediction: ScoreTable, y: ArrayLike) -> Floats:
        """Look up the score of each row's label."""
        columns = np.asarray(y)[:, None]
        return np.asarray(np.take_along_axis(prediction.scores, columns, axis=1)[:, 0])

    def sets(self, prediction: ScoreTable, threshold: Any) -> LabelSets:
        """Make the sets {y : score <= threshold}."""
        return LabelSets(prediction.scores <= float(threshold))

    def sizes(self, prediction: ScoreTable, threshold: Any) -> Integers:
        """Count the labels of each set."""
        return np.asarray((prediction.scores <= float(threshold)).sum(axis=1))


SCORE_IN_TABLE = ScoreInTable()


def to_scored_rows(table: ScoreTable) -> ScoredRows:
    """Turn a table of label scores into the form in which methods take a candidate's rows."""
    return ScoredRows.of(SCORE_IN_TABLE, table, table.labels)


def divide_into_roles(
    tables: Mapping[str, ScoreTable], *, n_tune: int, n_pool: int
) -> dict[str, OnRoles]:
    """Divide the scored rows of every candidate into tuning, calibration and test rows.

    `tables` has the scores of each candidate on the same rows. The first `n_tune` rows tune, those
    after them up to row `n_pool` calibrate, the rest test. The pool is what tunes or calibrates.
    """
    return {
        name: OnRoles(
            tune=to_scored_rows(table.rows(0, n_tune)),
            calibrate=to_scored_rows(table.rows(n_tune, n_pool)),
            pool=to_scored_rows(table.rows(0, n_pool)),
            test=to_scored_rows(table.rows(n_pool, len(table))),
        )
        for name, table in tables.items()
    }


# ---- training and scoring


@dataclass(frozen=True)
class Training:
    """How heads are trained and how often they predict; the defaults are the paper's."""

    epochs: int = 15
    passes: int = 20
    widths: tuple[tuple[int, ...], ...] = WIDTHS  # in the order of WIDTHS, which tests make smaller


def train_heads(
    X: Floats,
    y: Integers,
    head_numbers: Sequence[int],
    *,
    standardise: bool,
    seed: int,
    training: Training,
) -> dict[int, Any]:
    """Train some of the paper's 8 heads (small networks) on the same rows (X, y), side by side.

    Parameters
    ----------
    X, y:
        The features, (n, d), and the labels, (n,).
    head_numbers:
        The positions in `HEADS` of the heads to train.
    standardise:
        Whether heads read standardised features.
    seed:
        The seed of the split. Each head draws its weights and dropout from a seed of its own.
    training:
        The length of the training.

    Returns
    -------
    The fitted models by head number.
    """
    models = []
    for number in head_numbers:
        settings = HEADS[number]
        hidden_widths = training.widths[WIDTHS.index(settings.widths)]
        model = dco.bayes.MCDropoutClassifier(
            hidden=hidden_widths,
            dropout=settings.dropout,
            passes=training.passes,
            epochs=training.epochs,
            standardise=standardise,
            random_state=SEEDS_PER_SPLIT * seed + number,
        )
        models.append(model)

    (fitted_models,) = dco.bayes.MCDropoutClassifier.fit_many([(X, y)], models)
    return dict(zip(head_numbers, fitted_models, strict=True))


def score_heads(
    heads: Mapping[int, Any], names: Collection[str], X: Floats, y: Integers, *, n_classes: int
) -> dict[str, ScoreTable]:
    """Score every label of the rows (X, y) by some candidates, and return {candidate: its scores}.

    A candidate ("cand_001") is a head (a trained network) with a score. `heads` are those that
    `train_heads` returns, by number; each candidate in `names` must have its head there. The
    result is in order of the candidates' numbers.
    """
    candidates = [candidate for candidate in CANDIDATES if candidate.name in names]
    by_head = group_by(candidates, key=lambda candidate: candidate.head_number)

    tables: dict[str, ScoreTable] = {}
    for head_number, candidates_of_head in by_head.items():
        head = heads[head_number]
        draws = head.predict_draws(X)  # probabilities, once for all candidates with this head
        for candidate in candidates_of_head:
            scores = SCORES[candidate.score].every_label(draws)
            all_scores = add_unseen_classes(scores, head.classes_, n_classes)
            tables[candidate.name] = ScoreTable(all_scores, y)
    return dict(sorted(tables.items()))


def add_unseen_classes(scores: Floats, seen_classes: Integers, n_classes: int) -> Floats:
    """Add a column of infinite scores for each label that training never saw.

    A model scores only the labels of its training rows, (n, seen classes); the result has a column
    for each of the `n_classes` labels. A score of infinity keeps a label out of every finite set.
    """
    all_scores = np.full((len(scores), n_classes), np.inf)
    all_scores[:, seen_classes] = scores
    return all_scores
