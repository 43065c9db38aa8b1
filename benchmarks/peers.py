"""Other libraries on the same probabilities: from calibration labels to prediction sets, through
their public functions.

Each entry of `PEERS` takes (score name, calibration probabilities, their labels, test
probabilities) and returns a function that does all the work and gives the sets as the library does,
an (n, K) matrix of truth values or of 0 and 1, or None if the library has no such score. Randomised
variants are off wherever a library lets one, so that sets can be compared. puncc needs NumPy below
2 and so an environment of its own: `peer_puncc.py` runs it there, on the same arrays saved to disk.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

ALPHA = 0.1
PENALTY, RANK_FREE, WEIGHT = 0.01, 5, 0.02

Job: TypeAlias = Callable[[], np.ndarray]


def mapie(score: str, cal: np.ndarray, y_cal: np.ndarray, test: np.ndarray) -> Job | None:
    """MAPIE. Its RAPS tunes penalty and rank by itself on a fifth of the rows, so its sets are
    other sets.
    """
    from mapie.classification import SplitConformalClassifier
    from mapie.conformity_scores import RAPSConformityScore
    from sklearn.base import BaseEstimator, ClassifierMixin

    if score not in ("LAC", "APS", "RAPS"):
        return None

    class Given(ClassifierMixin, BaseEstimator):
        """A classifier whose probabilities are known: the first column of X says which rows are
        meant.
        """

        classes_ = np.arange(cal.shape[1])
        n_features_in_ = 1

        def fit(self, X: Any, y: Any) -> Given:
            return self

        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            rows = np.asarray(X)[:, 0].astype(np.int64)
            source, rows = (cal, rows) if rows[0] < len(cal) else (test, rows - len(cal))
            return source if len(rows) == len(source) else source[rows]

        def predict(self, X: np.ndarray) -> np.ndarray:
            return self.predict_proba(X).argmax(axis=1)

    X_cal = np.arange(len(cal), dtype=float)[:, None]
    X_test = np.arange(len(cal), len(cal) + len(test), dtype=float)[:, None]
    rule = {"LAC": "lac", "APS": "aps", "RAPS": RAPSConformityScore(size_raps=0.2)}[score]
    last = {} if score == "LAC" else {"conformity_score_params": {"include_last_label": True}}

    def job() -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = SplitConformalClassifier(
                Given(), confidence_level=1 - ALPHA, conformity_score=rule, random_state=0
            )
            fitted.conformalize(X_cal, y_cal)
            return np.asarray(fitted.predict_set(X_test, **last)[1][:, :, 0])

    return job


def crepes(score: str, cal: np.ndarray, y_cal: np.ndarray, test: np.ndarray) -> Job | None:
    """crepes, which has LAC under the name of hinge."""
    from crepes import ConformalClassifier
    from crepes.extras import hinge

    if score != "LAC":
        return None
    classes = np.arange(cal.shape[1])

    def job() -> np.ndarray:
        fitted = ConformalClassifier().fit(hinge(cal, classes, y_cal))
        return np.asarray(fitted.predict_set(hinge(test), confidence=1 - ALPHA, smoothing=False))

    return job


def torchcp(score: str, cal: np.ndarray, y_cal: np.ndarray, test: np.ndarray) -> Job | None:
    """TorchCP, given probabilities (score_type="identity"), in single precision on one thread."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchcp.classification.predictor import SplitPredictor
        from torchcp.classification.score import APS, LAC, RAPS, SAPS
    torch.set_num_threads(1)
    made = {
        "LAC": lambda: LAC(score_type="identity"),
        "APS": lambda: APS(score_type="identity", randomized=False),
        "RAPS": lambda: RAPS(
            score_type="identity", randomized=False, penalty=PENALTY, kreg=RANK_FREE
        ),
        "SAPS": lambda: SAPS(score_type="identity", randomized=False, weight=WEIGHT),
    }
    if score not in made:
        return None
    given, labels, deploy = torch.from_numpy(cal), torch.from_numpy(y_cal), torch.from_numpy(test)

    def job() -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            predictor = SplitPredictor(made[score](), alpha=ALPHA)
            predictor.calculate_threshold(given, labels)
            return np.asarray(predictor.predict_with_logits(deploy).numpy())

    return job


PEERS: dict[str, Callable[[str, np.ndarray, np.ndarray, np.ndarray], Job | None]] = {
    "MAPIE": mapie,
    "crepes": crepes,
    "TorchCP": torchcp,
}
