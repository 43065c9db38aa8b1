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
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from dco import ClassDraws, GaussianMixtures, IntervalUnions, LabelSets
from dco.foundations.arrays import (
    Bools,
    Floats,
    Integers,
    as_float_targets,
    check_exact_in_float64,
    to_numpy,
)
from dco.foundations.notes import Note, show
from dco.foundations.ranks import Level, as_rational

# Sigmas this close, relatively, are equal: rounding must not remove a candidate.
ROUNDING = 1e-12
CELLS_AT_ONCE = 2**22

Sets = TypeVar("Sets", LabelSets, IntervalUnions)


class CollapsedWeightsWarning(UserWarning):
    """The add-one-in weights rest on so few draws that the sets are not to be relied on."""


@dataclass(frozen=True, eq=False)
class FullConformalSets(Generic[Sets]):
    """Sets with the evidence behind them.

    Attributes
    ----------
    sets
        The prediction set of each test row.
    ranks, effective_draws
        The rank of every candidate and the effective sample size of its weights, both
        (n_test, candidates).
    n, n_draws, alpha
        How many training rows and posterior draws there were, and the level.
    """

    sets: Sets
    ranks: Integers
    effective_draws: Floats
    n: int
    n_draws: int
    alpha: float

    @property
    def p_values(self) -> Floats:
        """The conformal p-value of every candidate, rank / (n + 1): it is in if that exceeds
        alpha."""
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
    """Make label sets from posterior draws given the training rows; every label is a candidate.

    Labels that the model has never seen have no probability and the least rank, 1: they are left
    out of every set, unless n < 1 / alpha - 1 rows are so few that every set is full.

    Parameters
    ----------
    train, test
        The class probabilities of the same T draws, for the training and for the test rows.
    y_train
        The labels of the training rows.
    weights
        The draws' own weights (T,), all equal by default; exact posterior weights when the draws
        are all values that the parameter can take.
    least_effective_draws
        A warning says when a set holds labels whose weights rest on fewer draws.
    """
    codes = to_numpy(train.codes(y_train))
    _check_same_model(train, test, codes)
    train_draws = to_numpy(train.draws).astype(np.float64)
    test_draws = to_numpy(test.draws).astype(np.float64)
    observed = np.take_along_axis(train_draws, codes[None, :, None], axis=2)[:, :, 0]

    with np.errstate(divide="ignore"):
        log_train = np.log(observed)
        log_test = np.log(test_draws)
    evidence = _rank_candidates(log_train, log_test, _log_weights(weights, len(log_train)))
    members = _find_members(evidence.ranks, len(codes), alpha)
    _warn_collapsed(members, evidence.effective_draws, least=least_effective_draws)

    is_unknown_label_in = _find_members(np.array(1), len(codes), alpha)
    dense = np.full((len(test), test.n_classes), is_unknown_label_in)
    dense[:, : test.n_known] = members
    return FullConformalSets(
        sets=LabelSets(dense, test.labels()),
        ranks=evidence.ranks,
        effective_draws=evidence.effective_draws,
        n=len(codes),
        n_draws=len(log_train),
        alpha=float(as_rational(alpha)),
    )


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
    """Make sets on the real line, decided at the ascending `candidates` (G,).

    Between candidates nothing is decided, so each run of candidates that are in is widened to the
    nearest candidates that are out. A set that holds the first or last candidate may go on beyond
    it: it then reaches to infinity, which says that `candidates` were too narrow. For the decision
    at exact responses use `full_conformal_p_values`. The other parameters are those of
    `full_conformal_labels`.
    """
    check_exact_in_float64(candidates, name="candidates")
    grid = np.asarray(candidates, dtype=np.float64)
    if grid.ndim != 1 or grid.size < 2 or not np.all(np.diff(grid) > 0):
        raise ValueError("candidates must be at least two numbers in ascending order.")

    log_train = _log_observed(train, y_train)
    log_test = _log_densities(test, np.broadcast_to(grid, (len(test), grid.size)))
    evidence = _rank_candidates(log_train, log_test, _log_weights(weights, len(log_train)))
    members = _find_members(evidence.ranks, len(train), alpha)
    _warn_collapsed(members, evidence.effective_draws, least=least_effective_draws)

    return FullConformalSets(
        sets=widen_to_neighbours(members, grid),
        ranks=evidence.ranks,
        effective_draws=evidence.effective_draws,
        n=len(train),
        n_draws=len(log_train),
        alpha=float(as_rational(alpha)),
    )


def full_conformal_p_values(
    train: GaussianMixtures,
    y_train: ArrayLike,
    test: GaussianMixtures,
    y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
) -> Floats:
    """Return the p-value of one response for each test row, with no grid.

    The response is in the set when its p-value exceeds alpha.
    """
    log_train = _log_observed(train, y_train)
    log_test = _log_observed(test, y)[:, :, None]
    evidence = _rank_candidates(log_train, log_test, _log_weights(weights, len(log_train)))
    return np.asarray(evidence.ranks[:, 0] / (len(train) + 1))


def _check_same_model(train: ClassDraws, test: ClassDraws, codes: Integers) -> None:
    """Refuse draws of the training and test rows that do not belong together."""
    if np.any(codes >= train.n_known):
        raise ValueError(
            "y_train holds labels without a probability; draws come from a model fitted on these "
            "rows."
        )
    if test.n_known != train.n_known:
        raise ValueError(
            f"train has {train.n_known} labels and test has {test.n_known}; they must come from "
            f"one model."
        )
    if train.classes is None or test.classes is None:
        return
    if not np.array_equal(train.classes, test.classes):
        raise ValueError(
            "train and test list their labels differently; they must come from one model."
        )


@dataclass(frozen=True, eq=False)
class Evidence:
    """Ranks of candidates and the effective numbers of draws behind them, (n_test, candidates)."""

    ranks: Integers
    effective_draws: Floats


def _rank_candidates(log_train: Floats, log_test: Floats, log_prior: Floats) -> Evidence:
    """Count #{i <= n + 1 : sigma_i <= sigma_{n+1}} for every candidate.

    `log_train` is (T, n), `log_test` (T, n_test, candidates), `log_prior` (T,).
    """
    n_draws, n = log_train.shape
    if len(log_test) != n_draws:
        raise ValueError(
            f"train has {n_draws} draws and test has {len(log_test)}; the draws must be the same."
        )
    shape = log_test.shape[1:]
    log_candidates = log_test.reshape(n_draws, -1)
    n_candidates = log_candidates.shape[1]

    # One factor for each training row keeps the sums from underflowing.
    largest = log_train.max(initial=-np.inf, axis=0)
    log_scale = np.where(np.isfinite(largest), largest, 0.0)
    scaled_likelihood = np.exp(log_train - log_scale)

    ranks = np.empty(n_candidates, dtype=np.int64)
    effective_draws = np.empty(n_candidates)
    batch_size = max(1, CELLS_AT_ONCE // max(n, n_draws))
    for start in range(0, n_candidates, batch_size):
        batch = slice(start, start + batch_size)
        log_new = log_candidates[:, batch]
        log_weights = _add_one_in_weights(log_new, log_prior)
        weights = np.exp(log_weights)

        with np.errstate(divide="ignore"):
            log_sigma = np.log(scaled_likelihood.T @ weights) + log_scale[:, None]
        log_sigma_new = logsumexp(log_weights + log_new, axis=0)
        ranks[batch] = 1 + np.count_nonzero(log_sigma <= log_sigma_new + ROUNDING, axis=0)
        effective_draws[batch] = 1 / np.sum(weights**2, axis=0)
    return Evidence(ranks.reshape(shape), effective_draws.reshape(shape))


def _add_one_in_weights(log_new: Floats, log_prior: Floats) -> Floats:
    """Return the log weights of the draws given one candidate more, (T, candidates).

    A candidate that no draw allows has sigma_{n+1} = 0 for any weights: it keeps the prior ones.
    """
    log_weights = log_new + log_prior[:, None]
    log_total = logsumexp(log_weights, axis=0)
    is_possible = np.isfinite(log_total)
    log_weights = log_weights - np.where(is_possible, log_total, 0.0)
    log_weights[:, ~is_possible] = log_prior[:, None]
    return np.asarray(log_weights)


def _find_members(ranks: Integers, n: int, alpha: Level) -> Bools:
    """Mark the candidates that are in the set: rank > alpha (n + 1), in integers."""
    level = as_rational(alpha)
    return np.asarray(ranks > level.numerator * (n + 1) // level.denominator)


def _warn_collapsed(members: Bools, effective_draws: Floats, *, least: float) -> None:
    """Warn where the weights of candidates in the sets rest on too few draws.

    Candidates far out rest on few draws by nature, and are kept out all the same.
    """
    is_thin = np.any(members & (effective_draws < least), axis=1)
    if not np.any(is_thin):
        return
    lowest = float(effective_draws[members].min())
    text = (
        f"the add-one-in weights of {int(is_thin.sum())} of {is_thin.size} rows rest on fewer than "
        f"{least:g} effective draws (lowest: {lowest:.1f}), so their sets are not to be relied on."
    )
    remedy = "Use more posterior draws, or split conformal prediction."
    show([Note("collapsed-weights", text, remedy)], category=CollapsedWeightsWarning)


def _log_weights(weights: ArrayLike | None, n_draws: int) -> Floats:
    """Return the logarithms of the draws' own weights, which sum to 1."""
    if weights is None:
        return np.full(n_draws, -np.log(n_draws))
    values = np.asarray(weights, dtype=np.float64)
    is_valid = values.shape == (n_draws,) and np.all(np.isfinite(values) & (values >= 0))
    if not is_valid or values.sum() <= 0:
        raise ValueError(
            f"weights must hold one number >= 0 for each of the {n_draws} draws, not all 0."
        )
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values / values.sum()))


def _log_observed(mixture: GaussianMixtures, y: ArrayLike) -> Floats:
    """Return the log density of each row's own response for every draw, (T, n)."""
    values = as_float_targets(y, len(mixture))
    if not np.all(np.isfinite(values)):
        raise ValueError(f"y must hold one finite number for each of the {len(mixture)} rows.")
    return _log_densities(mixture, values[:, None])[:, :, 0]


def _log_densities(mixture: GaussianMixtures, y: Floats) -> Floats:
    """Return log N(y; mean, sd^2) for every draw, (T, n, G), of y (n, G)."""
    means = np.asarray(mixture.means, dtype=np.float64)[:, :, None]
    sds = np.asarray(mixture.sds, dtype=np.float64)
    is_one_per_draw = sds.ndim == 1
    sds = sds[:, None, None] if is_one_per_draw else sds[:, :, None]
    standardised = (y[None] - means) / sds
    return np.asarray(-0.5 * standardised**2 - np.log(sds) - 0.5 * np.log(2 * np.pi))


def widen_to_neighbours(members: Bools, grid: Floats) -> IntervalUnions:
    """Turn runs of candidates into intervals that reach to the nearest candidates that are out."""
    padded = np.pad(members.astype(np.int8), ((0, 0), (1, 1)))
    # Two runs with one candidate between them both reach it, and touch there.
    padded[:, 1:-1] |= padded[:, :-2] & padded[:, 2:]

    changes = np.diff(padded, axis=1)
    rows, first = np.nonzero(changes == 1)
    _, one_past_last = np.nonzero(changes == -1)
    edges = np.concatenate([[-np.inf], grid, [np.inf]])
    n_pieces = np.bincount(rows, minlength=len(members))
    pointers = np.concatenate([[0], np.cumsum(n_pieces)]).astype(np.int64)
    return IntervalUnions(pointers, edges[first], edges[one_past_last + 1])
