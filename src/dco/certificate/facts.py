"""The facts of a certificate: numbers, names and fingerprints. Words are made from them in
`words`.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from dco.calibration.calibration import Calibration, Statement
from dco.calibration.shift import ESTIMATED
from dco.foundations.extras import installed
from dco.foundations.ranks import Threshold, as_rational
from dco.models.wrapped import is_frozen
from dco.rows.conditions import group_sizes
from dco.rows.roles import Roles
from dco.rows.seal import SealedRows
from dco.scores.names import score_label
from dco.tuning.choose import Choice, Tuning

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


@dataclass(frozen=True)
class CertifiedThreshold:
    """One threshold: the `rank`-th smallest of `n` calibration scores, for all rows or for one
    group of them.

    `expected_coverage` is rank / (n + 1): the mean coverage when scores are distinct, a lower bound
    when some near the threshold are tied (`expected_is_exact` says which). `coverage_low` and
    `coverage_high` are the 5 % and 95 % points of coverage given the calibration rows, Beta(rank, n
    + 1 - rank); they need i.i.d. rows, and with ties only the lower one holds.
    """

    group: str | None
    n: int
    rank: int | None
    value: float
    expected_coverage: float | None
    expected_is_exact: bool
    coverage_low: float | None
    coverage_high: float | None


def certified_threshold(
    value: float, *, rank: int | None, n: int, tied: bool, group: str | None = None
) -> CertifiedThreshold:
    """The numbers that follow from a rank: expected coverage and its 5 % and 95 % points; full sets
    cover everything.
    """
    if rank is None:
        return CertifiedThreshold(group, n, None, value, None, False, None, None)
    if rank > n or value == math.inf:
        return CertifiedThreshold(group, n, rank, value, 1.0, True, 1.0, 1.0)
    low, high = betaincinv(rank, n + 1 - rank, [0.05, 0.95])
    return CertifiedThreshold(
        group, n, rank, value, rank / (n + 1), not tied, float(low), None if tied else float(high)
    )


def certified_thresholds(
    calibration: Calibration, thresholds: Mapping[Any, Threshold], statement: Statement
) -> tuple[CertifiedThreshold, ...]:
    """The thresholds of a calibration with the numbers that follow, each condition by its name on
    the certificate.
    """
    called = calibration.condition_labels()
    return tuple(
        certified_threshold(
            threshold.value,
            rank=threshold.rank,
            n=threshold.n,
            tied=calibration.is_tied(calibration.parts[name], threshold, statement.rule),
            group=called[name],
        )
        for name, threshold in thresholds.items()
    )


def calibrated_facts(
    statement: Statement,
    calibration: Calibration,
    thresholds: Mapping[Any, Threshold],
    *,
    rows: Mapping[str, int],
) -> dict[str, Any]:
    """What the certificate says of the statement and of the calibration; `rows` are those of the
    other roles.
    """
    weights, held = statement.weights, calibration.weights
    voided = ESTIMATED if weights is not None and weights.estimated else None
    return {
        "rule": statement.guarantee,
        "guarantee": statement.rule.certifies if voided is None else "none",
        "reason": voided,
        "alpha": float(as_rational(statement.alpha)),
        "delta": float(as_rational(statement.delta, name="delta"))
        if statement.rule.needs_delta
        else None,
        "grouped": calibration.clusters is not None,
        "thresholds": certified_thresholds(calibration, thresholds, statement),
        "groups": tuple(group_sizes(calibration.parts).items())
        if isinstance(statement.condition_on, list)
        else (),
        "rows": {**rows, "calibrate": len(calibration.scores)},
        "scores_fingerprint": scores_fingerprint(calibration.scores),
        "weights": None
        if weights is None or held is None
        else weights.facts(held, describe(weights.given)),
    }


def certified_facts(
    statement: Statement,
    structure: Any,
    choice: Choice,
    calibration: Calibration,
    thresholds: Mapping[Any, Threshold],
    roles: Roles,
    *,
    tuning: Tuning,
    seed: int,
) -> dict[str, Any]:
    """All that is known when one structure has been calibrated."""
    shared = f": {describe(structure.label_clusters)}" if structure.label_clusters else ""
    rows = {"train": len(roles.train), "tune": len(roles.tune)}
    return calibrated_facts(statement, calibration, thresholds, rows=rows) | {
        "distinct": roles.facts.are_distinct,
        "labels": None if structure.classes is None else len(structure.classes),
        "candidate": structure.name,
        "candidates": choice.n_candidates,
        "failed_candidates": {entry.name: entry.reason for entry in choice.ranking.failed},
        "model": describe(choice.winner.model),
        "score": score_label(structure.score),
        "condition_on": None
        if structure.condition_on is None
        else describe(structure.condition_on) + shared,
        "tuning_threshold": choice.ranking.table[0].ranking_threshold
        if choice.ranking.table
        else None,
        "selection": choice.selection,
        "refit": tuning.refit and not is_frozen(choice.winner.model),
        "row_fingerprints": dict(roles.facts.fingerprints),
        "repeats_shared": dict(roles.facts.repeats_shared),
        "training_rows_checked": choice.training_rows_known,
        "structure_fingerprint": structure.fingerprint,
        "seal_opened": len(roles.sealed.log),
        "seal_log": tuple(map(str, roles.sealed.log)),
        "seed": seed,
        "versions": dict(versions()),
        "support": tuning.support,
        "stability": choice.stability,
    }


def recalibrated_facts(
    before: Any,
    statement: Statement,
    calibration: Calibration,
    thresholds: Mapping[Any, Threshold],
    sealed: SealedRows,
) -> dict[str, Any]:
    """What other calibration rows of the same structure change; `before` is the certificate that is
    replaced.
    """
    return calibrated_facts(statement, calibration, thresholds, rows=before.rows) | {
        "distinct": False,
        "row_fingerprints": {**before.row_fingerprints, "calibrate": sealed.fingerprint},
        "seal_opened": len(sealed.log),
        "seal_log": tuple(map(str, sealed.log)),
        "versions": dict(versions()),
        "replaces": before.fingerprint,
        "written": {},
    }


def structure_digest(
    *,
    candidate: str,
    model: str,
    score: str,
    condition_on: Any,
    fitted_on: Sequence[str],
    seed: int,
) -> str:
    """Digest the names and settings of a structure and the rows that it was fitted on.

    A function counts by its name, and the numbers inside a fitted model do not count: the
    calibration scores speak for both.
    """
    described = {
        "candidate": candidate,
        "model": model,
        "score": score,
        "condition": describe(condition_on),
        "fitted on": list(fitted_on),
        "seed": seed,
    }
    return blake2b(json.dumps(described, sort_keys=True).encode(), digest_size=16).hexdigest()


def describe(thing: Any) -> str:
    """A model, score or rule in words that are the same in every run: no memory addresses."""
    if thing is None or isinstance(thing, (str, int, float, bool, np.generic)):
        return repr(thing.item() if isinstance(thing, np.generic) else thing)
    if isinstance(thing, (list, tuple)):
        return "[" + ", ".join(describe(entry) for entry in thing) + "]"
    if isinstance(thing, Mapping):
        return (
            "{"
            + ", ".join(f"{describe(key)}: {describe(value)}" for key, value in thing.items())
            + "}"
        )
    if isinstance(thing, np.ndarray):
        return (
            f"array of shape {thing.shape}, "
            f"{blake2b(np.ascontiguousarray(thing).tobytes(), digest_size=8).hexdigest()}"
        )
    if hasattr(thing, "get_params") and not isinstance(thing, type):
        params = ", ".join(
            f"{name}={describe(value)}"
            for name, value in sorted(thing.get_params(deep=False).items())
        )
        return f"{type(thing).__name__}({params})"
    if callable(thing):
        return str(getattr(thing, "__qualname__", type(thing).__name__))
    return type(thing).__name__


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
