"""Rows of probabilities of every kind that people meet, and the label scores to try on them."""

from typing import Any

import numpy as np

from dco import ClassDraws, ClassProbabilities
from dco.scores import APS, LAC, RAPS, SAPS, AddOneIn, Margin, PosteriorNLL, TopK

SCORES: dict[str, Any] = {
    "LAC": LAC(),
    "APS": APS(),
    "APS randomised": APS(randomised=True),
    "RAPS": RAPS(penalty=0.01, rank_free=2),
    "RAPS strong": RAPS(penalty=0.3, rank_free=0),
    "RAPS randomised": RAPS(penalty=0.01, rank_free=2, randomised=True),
    "SAPS": SAPS(weight=0.07),
    "SAPS randomised": SAPS(weight=0.07, randomised=True),
    "SAPS without weight": SAPS(weight=0.0),
    "TopK": TopK(),
    "Margin": Margin(),
    "PosteriorNLL": PosteriorNLL(),
    "AddOneIn": AddOneIn(),
}
OF_PASSES = ("PosteriorNLL", "AddOneIn")
OF_PROBABILITIES = {name: score for name, score in SCORES.items() if name not in OF_PASSES}


def record_for(
    score: Any, probabilities: np.ndarray, uniforms: np.ndarray | None = None, **labels: Any
) -> Any:
    """Return a record that the score can read; a score of draws gets three passes."""
    if ClassProbabilities in score.needs:
        return ClassProbabilities(probabilities, uniforms=uniforms, **labels)
    return ClassDraws(three_passes(probabilities), uniforms=uniforms, **labels)


def three_passes(probabilities: np.ndarray) -> np.ndarray:
    """Make passes that disagree a little."""
    return np.stack([probabilities, probabilities / 2, probabilities * np.sqrt(probabilities)])


def softmax_rows(
    rng: np.random.Generator, n: int, k: int, spread: float = 2.0, dtype: str = "float64"
) -> np.ndarray:
    logits = spread * rng.standard_normal((n, k))
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)).astype(dtype)


def tree_rows(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """Shares of a few votes, as from leaves of trees: many ties and many zeros."""
    votes = rng.multinomial(int(rng.integers(1, 12)), np.full(k, 1 / k), size=n)
    return votes / votes.sum(axis=1, keepdims=True)


def saturated_rows(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """Rows that are all but certain, every third entirely."""
    rows = softmax_rows(rng, n, k, spread=40.0)
    rows[::3] = np.eye(k)[rng.integers(k, size=len(rows[::3]))]
    return rows


def equal_rows(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    return np.full((n, k), 1 / k)


def nearly_tied_rows(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """Sixteenths, some of them smaller by a millionth, and rows of zeros."""
    votes = rng.multinomial(16, np.full(k, 1 / k), size=n) / 16
    rows = votes * (1 - rng.choice([0.0, 1e-6], size=(n, 1)))
    rows[::11] = 0.0
    return rows


KINDS = {
    "softmax": softmax_rows,
    "trees": tree_rows,
    "saturated": saturated_rows,
    "equal": equal_rows,
    "nearly tied": nearly_tied_rows,
}


def lay_out(values: np.ndarray, layout: str) -> np.ndarray:
    """Store the same numbers in another way."""
    if layout == "columns":
        return np.asfortranarray(values)
    if layout == "strided":
        wide = np.zeros((2 * len(values), 2 * values.shape[1]), dtype=values.dtype)
        wide[::2, ::2] = values
        return wide[::2, ::2]
    if layout == "backwards":
        return np.ascontiguousarray(values[::-1, ::-1])[::-1, ::-1]
    if layout == "read-only":
        values.flags.writeable = False
    if layout == "byte-swapped":
        return values.astype(values.dtype.newbyteorder())
    return values


LAYOUTS = ["plain", "columns", "strided", "backwards", "read-only", "byte-swapped"]
