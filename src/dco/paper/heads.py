"""The paper's candidate class for classification: 8 Monte-Carlo-dropout heads × 2 scores, trained
and scored on one split.

Heads are trained side by side and predict head by head; of a head's T × n × K probabilities only
the scores of every label, n × K for each of the two scores, are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np

from dco.foundations.arrays import Floats, Integers
from dco.paper.methods import ByRole, Role
from dco.scores.bayesian_classes import AddOneIn, NegativeLogScore, PosteriorNLL
from dco.tuning import EvaluatedCandidate

DROPOUTS = (0.05, 0.1, 0.2, 0.3)
WIDTHS = ((512, 256), (256, 128))
SCORES: Mapping[str, NegativeLogScore] = {"posterior_nll": PosteriorNLL(), "aoi_nll": AddOneIn()}
HEADS = tuple(product(DROPOUTS, WIDTHS))


@dataclass(frozen=True)
class HeadCandidate:
    """One of the 16 structures φ, numbered as in the paper: score, then dropout, then hidden
    widths.
    """

    number: int
    score: str
    head: int  # its place in HEADS

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
BY_NAME = {each.name: each for each in CANDIDATES}
# the structure of the paper's BQ baseline: posterior_nll, dropout 0.05, hidden (512, 256)
FIXED = CANDIDATES[0]


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """The score of every label on some rows, (n, K), and the place of the label that happened,
    (n,).
    """

    scores: Floats
    codes: Integers

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def observed(self) -> Floats:
        """The scores of the labels that happened."""
        return np.asarray(np.take_along_axis(self.scores, self.codes[:, None], axis=1)[:, 0])

    def rows(self, start: int, stop: int) -> ScoreTable:
        """Rows start, ..., stop - 1."""
        return ScoreTable(self.scores[start:stop], self.codes[start:stop])

    def sizes(self, threshold: float | Floats) -> Floats:
        """How many labels each set {y : score <= threshold} holds."""
        return np.asarray((self.scores <= threshold).sum(axis=1), dtype=np.float64)

    def evaluated(self, name: str) -> EvaluatedCandidate:
        """The candidate as a search sees it; methods ask for the same sizes several times."""
        known = lru_cache(maxsize=8)(self.sizes)
        return EvaluatedCandidate(name, self.observed, lambda threshold: known(float(threshold)))

    def by_role(self, name: str, tune: int, pool: int) -> ByRole:
        """The candidate on the rows of each role; rows come in order: tune, calibrate, test."""
        ends: dict[Role, tuple[int, int]] = {
            "tune": (0, tune),
            "calibrate": (tune, pool),
            "pool": (0, pool),
            "test": (pool, len(self)),
        }
        return {
            role: self.rows(start, stop).evaluated(name) for role, (start, stop) in ends.items()
        }


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
    """Train these of the 8 heads on the same rows, side by side; by number."""
    from dco.bayes.mc_dropout import MCDropoutClassifier

    heads = [
        MCDropoutClassifier(
            hidden=training.widths[WIDTHS.index(HEADS[number][1])],
            dropout=HEADS[number][0],
            passes=training.passes,
            epochs=training.epochs,
            standardise=standardise,
            random_state=1000 * seed + number,
        )
        for number in numbers
    ]
    return dict(zip(numbers, MCDropoutClassifier.fit_many([(X, y)], heads)[0], strict=True))


def score_heads(
    fitted: Mapping[int, Any], names: Collection[str], X: Floats, y: Integers, *, n_classes: int
) -> dict[str, ScoreTable]:
    """The score tables of these candidates on the rows of X; labels that training never saw score
    +inf.
    """
    wanted = [each for each in CANDIDATES if each.name in names]
    tables: dict[str, ScoreTable] = {}
    for number in dict.fromkeys(each.head for each in wanted):
        draws = fitted[number].predict_draws(X)
        for candidate in (each for each in wanted if each.head == number):
            scores = np.full((len(y), n_classes), np.inf)
            scores[:, fitted[number].classes_] = SCORES[candidate.score].every_label(draws)
            tables[candidate.name] = ScoreTable(scores, y)
    return dict(sorted(tables.items()))
