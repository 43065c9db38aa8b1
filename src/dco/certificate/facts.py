"""Facts of a certificate that do not come from the calibration: the structure, and the rows."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.extras import installed

VOIDED_BY = (
    "choosing the level, the seed, the split or the model after looking at results on calibration "
    "or test rows",
    "a search or a fitted transformer wrapped around the estimator (GridSearchCV, feature "
    "selection, scaling in an outer Pipeline): it has seen the calibration rows. Search with "
    "dco.grid or search=, and give a Pipeline as a model",
    "models, scalers, encoders or temperatures that were fitted on calibration rows before they "
    "came here",
    "calibration rows that were filtered, weighted, sorted or chosen by the model's output",
    "new rows from another population, time or device than the calibration rows",
    "new rows whose label the fit does not know, where targets are labels: no set can hold such a "
    "label",
)


@dataclass(frozen=True, kw_only=True)
class StructureFacts:
    """What was calibrated, and how it was chosen.

    Attributes
    ----------
    candidate, model, score
        The name of the candidate, and its model and score in words.
    labels
        How many labels the fit knows; None for numbers.
    support
        Where y lies, by what the caller knows: sets are cut to it.
    refit
        Whether the winner was fitted again on training and tuning rows.
    candidates, failed_candidates
        How many candidates were tried, and why some of them failed.
    selection
        By what the candidate was chosen, in words; empty for the only candidate.
    tuning_threshold
        The threshold at which it was ranked, which is not deployed.
    stability
        The share of random halves of the tuning rows on which it wins again; None where this was
        not measured.
    structure_fingerprint, seed
        A digest of names, settings and fitted rows, and the seed of the fit.
    """

    candidate: str
    model: str
    score: str
    labels: int | None
    support: tuple[float, float] | None = None
    refit: bool
    candidates: int
    failed_candidates: Mapping[str, str]
    selection: str
    tuning_threshold: float | None
    stability: float | None = None
    structure_fingerprint: str
    seed: int | None


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Which rows were used for what, and what software did it.

    Attributes
    ----------
    rows, row_fingerprints
        How many rows each role has, and a digest of them in any order.
    repeats_shared
        How many rows two roles share by equal values.
    distinct
        Whether repeated rows were dropped before roles were dealt.
    training_rows_checked
        Whether it is known that no model was fitted on calibration rows: not for frozen models.
    scores_fingerprint
        A digest of the calibration scores in any order.
    seal_opened, seal_log
        How often calibration rows were asked for, and each request.
    versions
        Those of Python, dco and the libraries that make a result.
    replaces
        The fingerprint of the certificate of the same structure with the calibration rows before.
    """

    rows: Mapping[str, int]
    row_fingerprints: Mapping[str, str]
    repeats_shared: Mapping[str, int]
    distinct: bool
    training_rows_checked: bool
    scores_fingerprint: str
    seal_opened: int
    seal_log: tuple[str, ...]
    versions: Mapping[str, str]
    replaces: str | None = None

    @property
    def n_calibration_rows(self) -> int:
        """How many rows calibrated."""
        return self.rows.get("calibrate", 0)


@cache
def software_versions() -> Mapping[str, str]:
    """Return the versions that make a result.

    They are read once, since reading them takes longer than many a fit.
    """
    from dco import __version__

    libraries = installed("numpy", "scipy", "scikit-learn")
    return {"python": platform.python_version(), "dco": __version__, **libraries}


def scores_fingerprint(scores: ArrayLike) -> str:
    """Return a digest of calibration scores, whatever their order."""
    ascending = np.sort(np.asarray(scores, dtype=np.float64))
    return blake2b(ascending.tobytes(), digest_size=16).hexdigest()
