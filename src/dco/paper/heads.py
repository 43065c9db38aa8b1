"""Appendix C.3, the candidate class for classification: 8 Monte-Carlo-dropout heads × 2 scores.

Heads are trained side by side and predict head by head; of a head's T × n × K probabilities only
the scores of every label, n × K for each of the two scores, are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

import dco
from dco import LabelSets
from dco.foundations.arrays import Floats, Integers
from dco.paper.methods import OnRoles, ScoredRows
from dco.scores import AddOneIn, LabelScore, PosteriorNLL, Score

DROPOUTS = (0.05, 0.1, 0.2, 0.3)
WIDTHS = ((512, 256), (256, 128))
SCORES: Mapping[str, LabelScore] = {"posterior_nll": PosteriorNLL(), "aoi_nll": AddOneIn()}
HEADS = tuple(product(DROPOUTS, WIDTHS))


@dataclass(frozen=True)
class HeadCandidate:
    """One of the 16 structures φ, numbered as in the paper: score, then dropout, then hidden
    widths.
    """

    number: int
    score: str
    head: int  # its position in HEADS

    @property
    def dropout(self) -> float:
        """The dropout rate."""
        return HEADS[self.head][0]

    @property
    def hidden(self) -> str:
        """The hidden widths, as the paper writes them."""
        return str(HEADS[self.head][1]).replace(" ", "")

    @property
    def name(self) -> str:
        """The paper's name for it: cand_001 to cand_016."""
        return f"cand_{self.number:03d}"


CANDIDATES = tuple(
    HeadCandidate(number, score, head)
    for number, (score, head) in enumerate(product(SCORES, range(len(HEADS))), start=1)
)
BY_NAME = {candidate.name: candidate for candidate in CANDIDATES}
# the structure of the paper's BQ baseline: posterior_nll, dropout 0.05, hidden (512, 256)
FIXED = CANDIDATES[0]


# ---- scores of every label, kept in place of predictions


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """The score of every label on some rows, (n, K), and the number of the true label, (n,)."""

    scores: Floats
    codes: Integers

    def __len__(self) -> int:
        return len(self.codes)

    def rows(self, start: int, stop: int) -> ScoreTable:
        """Return rows start, ..., stop - 1."""
        return ScoreTable(self.scores[start:stop], self.codes[start:stop])


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


IN_TABLE = ScoreInTable()


def score_table_rows(table: ScoreTable) -> ScoredRows:
    """Turn a table into the rows that methods look at."""
    return ScoredRows.of(IN_TABLE, table, table.codes)


def split_tables(
    tables: Mapping[str, ScoreTable], *, n_tune: int, n_pool: int
) -> dict[str, OnRoles]:
    """Give every candidate the rows of each role; rows come in order: tune, calibrate, test."""
    return {
        name: OnRoles(
            tune=score_table_rows(table.rows(0, n_tune)),
            calibrate=score_table_rows(table.rows(n_tune, n_pool)),
            pool=score_table_rows(table.rows(0, n_pool)),
            test=score_table_rows(table.rows(n_pool, len(table))),
        )
        for name, table in tables.items()
    }


# ---- training and scoring


@dataclass(frozen=True)
class Training:
    """How heads are trained and how often they predict; the defaults are the paper's."""

    epochs: int = 15
    passes: int = 20
    widths: tuple[tuple[int, ...], ...] = WIDTHS


def train_heads(
    X: Floats,
    y: Integers,
    numbers: Sequence[int],
    *,
    standardise: bool,
    seed: int,
    training: Training,
) -> dict[int, Any]:
    """Train these of the 8 heads on the same rows, side by side; return them by number."""
    heads = [
        dco.bayes.MCDropoutClassifier(
            hidden=training.widths[WIDTHS.index(HEADS[number][1])],
            dropout=HEADS[number][0],
            passes=training.passes,
            epochs=training.epochs,
            standardise=standardise,
            random_state=1000 * seed + number,
        )
        for number in numbers
    ]
    (fitted,) = dco.bayes.MCDropoutClassifier.fit_many([(X, y)], heads)
    return dict(zip(numbers, fitted, strict=True))


def score_heads(
    fitted: Mapping[int, Any], names: Collection[str], X: Floats, y: Integers, *, n_classes: int
) -> dict[str, ScoreTable]:
    """Score every label of these rows by these candidates, in order of their numbers.

    Labels that training never saw score infinity.
    """
    wanted = [candidate for candidate in CANDIDATES if candidate.name in names]
    tables: dict[str, ScoreTable] = {}
    for number in dict.fromkeys(candidate.head for candidate in wanted):
        head = fitted[number]
        draws = head.predict_draws(X)
        for candidate in wanted:
            if candidate.head == number:
                scores = np.full((len(y), n_classes), np.inf)
                scores[:, head.classes_] = SCORES[candidate.score].every_label(draws)
                tables[candidate.name] = ScoreTable(scores, y)
    return dict(sorted(tables.items()))
