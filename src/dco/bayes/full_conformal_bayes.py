"""Full conformal sets from posterior draws by add-one-in weights (Fong and Holmes 2021).

No rows are held out. For a candidate y at a new x, the posterior given one more row (x, y) is the
posterior given the training rows, reweighted: draw t gets w_t proportional to p(y | x, theta_t).
With sigma_i = sum of w_t p(y_i | x_i, theta_t) for the n training rows and sigma_{n+1} for the
candidate itself, y is in the set when more than alpha (n + 1) of the n + 1 sigmas are at most
sigma_{n+1}.

The reweighting is exact on the draws. With the exact posterior the set has marginal coverage 1 -
alpha for exchangeable rows, whether the model is right or not; with finitely many draws it is an
importance-sampling approximation, which the effective sample size 1 / sum of w_t^2 watches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from dco import ClassDraws, GaussianMixtures, IntervalUnions, LabelSets
from dco.foundations.arrays import (
    Bools,
    Floats,
    Integers,
    check_floats_hold,
    responses,
    to_numpy,
)
from dco.foundations.notes import Note, show
from dco.foundations.ranks import Level, as_rational

_ROUNDING = 1e-12  # sigmas this close, relatively, are equal: rounding must not remove a candidate
_ELEMENTS_AT_ONCE = 2**22

Sets = TypeVar("Sets", LabelSets, IntervalUnions)


class CollapsedWeightsWarning(UserWarning):
    """The add-one-in weights rest on so few draws that the sets are not to be relied on."""


@dataclass(frozen=True, eq=False)
class FullConformalSets(Generic[Sets]):
    """Sets with the evidence behind them: ranks and effective sample sizes of every candidate,
    (n_test, candidates).

    ``p_values`` are rank / (n + 1); a candidate is in when its p-value exceeds alpha.
    """

    sets: Sets
    ranks: Integers
    effective_draws: Floats
    n: int
    n_draws: int
    alpha: float

    @property
    def p_values(self) -> Floats:
        """The conformal p-value of every candidate."""
        return np.asarray(self.ranks / (self.n + 1))


def full_conformal_labels(
    train: ClassDraws,
    y_train: ArrayLike,
    test: ClassDraws,
    *,
    alpha: Level,
    weights: ArrayLike | None = None,
    least_effective_draws: float = 20.0,
) -> FullConformalSets[LabelSets]:
    """Label sets for the rows of `test` from posterior draws given the rows of `train`; every label
    is a candidate.

    `train` and `test` hold the class probabilities of the same T draws. `weights` (T,) are the
    draws' own weights (all equal by default; exact posterior weights when the draws are all values
    that the parameter can take). Labels that the model has never seen have no probability and the
    least rank, 1: they are left out of every set, unless n < 1 / alpha - 1 rows are so few that
    every set is full. A warning says when a set holds labels whose weights rest on fewer than
    `least_effective_draws`.
    """
    codes = to_numpy(train.codes(y_train))
    if np.any(codes >= train.n_known):
        raise ValueError(
            "y_train holds labels without a probability; draws come from a model "
            "fitted on these rows."
        )
    if test.n_known != train.n_known:
        raise ValueError(
            f"train has {train.n_known} labels and test has {test.n_known}; they "
            f"must come from one model."
        )
    if (
        train.classes is not None
        and test.classes is not None
        and not np.array_equal(train.classes, test.classes)
    ):
        raise ValueError(
            "train and test list their labels differently; they must come from one model."
        )
    train_draws = to_numpy(train.draws).astype(np.float64)
    test_draws = to_numpy(test.draws).astype(np.float64)
    observed = np.take_along_axis(train_draws, codes[None, :, None], axis=2)[:, :, 0]

    with np.errstate(divide="ignore"):
        log_train = np.log(observed)
        log_test = np.log(test_draws)

    members, evidence = _decided(log_train, log_test, weights, alpha, least_effective_draws)
    dense = np.full((len(test), test.n_classes), _members(np.array(1), len(codes), alpha))
    dense[:, : test.n_known] = members
    return FullConformalSets(LabelSets.from_dense(dense, test.labels()), **evidence)


def full_conformal_intervals(
    train: GaussianMixtures,
    y_train: ArrayLike,
    test: GaussianMixtures,
    candidates: ArrayLike,
    *,
    alpha: Level,
    weights: ArrayLike | None = None,
    least_effective_draws: float = 20.0,
) -> FullConformalSets[IntervalUnions]:
    """Sets on the real line for the rows of `test`, decided at the ascending `candidates` (G,).

    Between candidates nothing is decided, so each run of candidates that are in is widened to the
    nearest candidates that are out. A set that holds the first or last candidate may go on beyond
    it: it then reaches to infinity, which says that `candidates` were too narrow. For the decision
    at exact responses use `full_conformal_p_values`.
    """
    check_floats_hold(candidates, name="candidates")
    grid = np.asarray(candidates, dtype=np.float64)
    if grid.ndim != 1 or grid.size < 2 or not np.all(np.diff(grid) > 0):
        raise ValueError("candidates must be at least two numbers in ascending order.")
    log_test = _log_densities(test, np.broadcast_to(grid, (len(test), grid.size)))
    members, evidence = _decided(
        _log_observed(train, y_train), log_test, weights, alpha, least_effective_draws
    )
    return FullConformalSets(_widened(members, grid), **evidence)


def full_conformal_p_values(
    train: GaussianMixtures,
    y_train: ArrayLike,
    test: GaussianMixtures,
    y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
) -> Floats:
    """The p-value of one response for each test row, with no grid: y is in the set when it exceeds
    alpha.
    """
    log_train = _log_observed(train, y_train)
    ranks, _ = _ranks(
        log_train, _log_observed(test, y)[:, :, None], _log_weights(weights, len(log_train))
    )
    return np.asarray(ranks[:, 0] / (len(train) + 1))


def _decided(
    log_train: Floats, log_test: Floats, weights: ArrayLike | None, alpha: Level, least: float
) -> tuple[Bools, dict[str, Any]]:
    """Which candidates are in, and the evidence; a warning where their weights rest on fewer than
    `least` draws.
    """
    n_draws, n = log_train.shape
    ranks, effective = _ranks(log_train, log_test, _log_weights(weights, n_draws))
    members, level = _members(ranks, n, alpha), float(as_rational(alpha))
    # Only candidates in the sets count: those far out rest on few draws by nature, and are kept out
    # all the same.
    thin = np.any(members & (effective < least), axis=1)
    if np.any(thin):
        text = (
            f"the add-one-in weights of {int(thin.sum())} of {thin.size} rows rest on fewer than "
            f"{least:g} effective draws "
            f"(lowest: {float(effective[members].min()):.1f}), so their sets are not to be relied "
            f"on."
        )
        note = Note(
            "collapsed-weights", text, "Use more posterior draws, or split conformal prediction."
        )
        show([note], category=CollapsedWeightsWarning)
    return members, {
        "ranks": ranks,
        "effective_draws": effective,
        "n": n,
        "n_draws": n_draws,
        "alpha": level,
    }


def _ranks(log_train: Floats, log_test: Floats, log_prior: Floats) -> tuple[Integers, Floats]:
    """#{i <= n + 1 : sigma_i <= sigma_{n+1}} and the effective number of draws, both (n_test,
    candidates).

    `log_train` is (T, n), `log_test` (T, n_test, candidates), `log_prior` (T,).
    """
    n_draws, n = log_train.shape
    if len(log_test) != n_draws:
        raise ValueError(
            f"train has {n_draws} draws and test has {len(log_test)}; the draws must be the same."
        )
    shape = log_test.shape[1:]
    flat = log_test.reshape(n_draws, -1)
    # one factor per row of train keeps the sums from underflowing
    scale = log_train.max(initial=-np.inf, axis=0)
    safe = np.where(np.isfinite(scale), scale, 0.0)
    likelihood = np.exp(log_train - safe)
    ranks, effective = np.empty(flat.shape[1], dtype=np.int64), np.empty(flat.shape[1])
    step = max(1, _ELEMENTS_AT_ONCE // max(n, n_draws))
    for start in range(0, flat.shape[1], step):
        log_new = flat[:, start : start + step]
        log_weights = log_new + log_prior[:, None]
        total = logsumexp(log_weights, axis=0)
        possible = np.isfinite(total)
        log_weights = log_weights - np.where(possible, total, 0.0)
        # a candidate that no draw allows: sigma_{n+1} is 0 for any weights
        log_weights[:, ~possible] = log_prior[:, None]
        weights = np.exp(log_weights)
        with np.errstate(divide="ignore"):
            log_sigma = np.log(likelihood.T @ weights) + safe[:, None]
        own = logsumexp(log_weights + log_new, axis=0)
        ranks[start : start + step] = 1 + np.count_nonzero(log_sigma <= own + _ROUNDING, axis=0)
        effective[start : start + step] = 1 / np.sum(weights**2, axis=0)
    return ranks.reshape(shape), effective.reshape(shape)


def _members(ranks: Integers, n: int, alpha: Level) -> Bools:
    """rank > alpha (n + 1), in integers."""
    level = as_rational(alpha)
    return np.asarray(ranks > level.numerator * (n + 1) // level.denominator)


def _log_weights(weights: ArrayLike | None, n_draws: int) -> Floats:
    if weights is None:
        return np.full(n_draws, -np.log(n_draws))
    values = np.asarray(weights, dtype=np.float64)
    if (
        values.shape != (n_draws,)
        or not np.all(np.isfinite(values))
        or np.any(values < 0)
        or values.sum() <= 0
    ):
        raise ValueError(
            f"weights must hold one number >= 0 for each of the {n_draws} draws, not all 0."
        )
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values / values.sum()))


def _log_observed(mixture: GaussianMixtures, y: ArrayLike) -> Floats:
    """The log density of each row's own response for every draw, (T, n)."""
    values = responses(y, len(mixture))
    if not np.all(np.isfinite(values)):
        raise ValueError(f"y must hold one finite number for each of the {len(mixture)} rows.")
    return _log_densities(mixture, values[:, None])[:, :, 0]


def _log_densities(mixture: GaussianMixtures, y: Floats) -> Floats:
    """log N(y; mean, sd^2) for every draw, (T, n, G); y is (n, G)."""
    means = np.asarray(mixture.means, dtype=np.float64).T[:, :, None]
    sds = np.broadcast_to(np.asarray(mixture.sds, dtype=np.float64), mixture.means.shape).T[
        :, :, None
    ]
    return np.asarray(-0.5 * ((y[None] - means) / sds) ** 2 - np.log(sds) - 0.5 * np.log(2 * np.pi))


def _widened(members: Bools, grid: Floats) -> IntervalUnions:
    padded = np.pad(members.astype(np.int8), ((0, 0), (1, 1)))
    # two runs that both reach one candidate between them touch there
    padded[:, 1:-1] |= padded[:, :-2] & padded[:, 2:]
    changes = np.diff(padded, axis=1)
    rows, starts = np.nonzero(changes == 1)  # the first candidate of each run
    _, stops = np.nonzero(changes == -1)  # one past its last
    edges = np.concatenate([[-np.inf], grid, [np.inf]])
    pointers = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(members)))]).astype(
        np.int64
    )
    return IntervalUnions(pointers, edges[starts], edges[stops + 1])
