"""Facts of a certificate that do not come from the calibration."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.extras import installed

VOIDED_BY = (
    "choosing the level, the seed, the split or the model after looking at results on calibration "
    "or test rows",
    "a search or a fitted transformer wrapped around the estimator (GridSearchCV, feature "
    "selection, scaling in an outer "
    "Pipeline): it has seen the calibration rows. Search with dco.grid or search=, and give a "
    "Pipeline as a model",
    "models, scalers, encoders or temperatures that were fitted on calibration rows before they "
    "came here",
    "calibration rows that were filtered, weighted, sorted or chosen by the model's output",
    "new rows from another population, time or device than the calibration rows",
    "new rows whose label the fit does not know, where targets are labels: no set can hold such a "
    "label",
)


@cache
def versions() -> Mapping[str, str]:
    """The versions that make a result; read once, since reading them takes longer than many a
    fit.
    """
    from dco import __version__

    return {"python": platform.python_version(), "dco": __version__} | installed(
        "numpy", "scipy", "scikit-learn"
    )


def scores_fingerprint(scores: ArrayLike) -> str:
    """A digest of calibration scores, whatever their order."""
    return blake2b(
        np.sort(np.asarray(scores, dtype=np.float64)).tobytes(), digest_size=16
    ).hexdigest()
