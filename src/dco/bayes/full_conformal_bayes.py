"""Full conformal sets from posterior draws by add-one-in weights (Fong and Holmes 2021).

No rows are held out. Given are draws θ_1, ..., θ_T from the posterior given n training rows. For a
candidate y at a new x, the posterior given one more row (x, y) is approximated by weights on the
same draws:

    w_t ∝ v_t p(y | x, θ_t),   Σ_t w_t = 1

where v_t is a draw's own weight, usually 1 / T. The weighted densities of the n + 1 rows are

    σ_i = Σ_t w_t p(y_i | x_i, θ_t),   i = 1, ..., n,   σ_{n+1} = Σ_t w_t p(y | x, θ_t)

The rank of the candidate is how many of the n + 1 are at most σ_{n+1}, and y is in the set if its
rank exceeds alpha (n + 1).

With the exact posterior the set has marginal coverage 1 - alpha for exchangeable rows, whether the
model is right or not. With finitely many draws it is an importance-sampling approximation, which
the effective number of draws 1 / Σ_t w_t² watches.
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

# Densities σ this close, relatively, are equal: rounding must not remove a candidate.
ROUNDING = 1e-12
CELLS_AT_ONCE = 2**22  # entries of the largest array that is held, 32 MiB of doubles

Sets = TypeVar("Sets", LabelSets, IntervalUnions)


class CollapsedWeightsWarning(UserWarning):
    """The add-one-in weights rest on so few draws that the sets are not to be relied on."""


@dataclass(frozen=True, eq=False)
class FullConformalSets(Generic[Sets]):
    """Full conformal sets, with the rank of every candidate and how far it can be relied on.

    Attributes
    ----------
    sets
        The prediction set of each test row.
    ranks, effective_draws
        The rank of every candidate, and the effective number of draws behind it, 1 / Σ_t w_t²;
        both (n_test, candidates).
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
        """The conformal p-value of every candidate, rank / (n + 1).

        A candidate is in the set if its p-value exceeds alpha.
        """
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

    Labels that the model has never seen have no probability and the lowest rank, 1: they are left
    out of every set, unless n < 1 / alpha - 1 rows are so few that every set is full.

    Parameters
    ----------
    train, test
        The class probabilities of the same T draws, for the training and for the test rows.
    y_train
        The labels of the training rows.
    weights
        The draws' own weights v (T,), all equal by default. Where the draws are all the values that
        the parameter can take, these are its exact posterior probabilities.
    least_effective_draws
        A warning says when a set holds labels whose weights rest on fewer draws.
    """
    codes = to_numpy(train.codes(y_train))  # the column of each training label
    _check_same_model(train, test, codes)

    # 1. The log probability of each training row's label, (T, n), and of every test label.
    p_train = to_numpy(train.draws).astype(np.float64)
    p_test = to_numpy(test.draws).astype(np.float64)
    p_observed = np.take_along_axis(p_train, codes[None, :, None], axis=2)[:, :, 0]
    with np.errstate(divide="ignore"):  # log 0 = -inf is right
        log_p_train = np.log(p_observed)
        log_p_candidates = np.log(p_test)

    # 2. Rank every label, and keep those with a large enough rank.
    n = len(codes)
    n_draws = len(log_p_train)
    ranking = _rank_candidates(log_p_train, log_p_candidates, _log_weights(weights, n_draws))
    members = _find_members(ranking.ranks, n, alpha)
    _warn_collapsed(members, ranking.effective_draws, fewest=least_effective_draws)

    # 3. Labels without a probability have rank 1 everywhere.
    is_unseen_label_in = _find_members(np.array(1), n, alpha)
    dense = np.full((len(test), test.n_classes), is_unseen_label_in)
    dense[:, : test.n_known] = members
    return FullConformalSets(
        sets=LabelSets(dense, test.labels()),
        ranks=ranking.ranks,
        effective_draws=ranking.effective_draws,
        n=n,
        n_draws=n_draws,
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
    """Make prediction sets on the real line from posterior draws, decided at given candidates.

    Between candidates nothing is decided, so each run of candidates in the set is widened to the
    nearest candidates outside. A set that holds the first or last candidate may go on beyond it: it
    then reaches to infinity, which says that `candidates` were too narrow. For the decision at one
    exact response use `full_conformal_p_values`.

    Parameters
    ----------
    train, test
        The Gaussian densities of the same T draws, for the training and for the test rows.
    y_train
        The responses of the training rows.
    candidates
        (G,): values of y, ascending.
    weights
        The draws' own weights v (T,), all equal by default.
    least_effective_draws
        A warning says when a set holds candidates whose weights rest on fewer draws.
    """
    check_exact_in_float64(candidates, name="candidates")
    grid = np.asarray(candidates, dtype=np.float64)
    if grid.ndim != 1 or grid.size < 2 or not np.all(np.diff(grid) > 0):
        raise ValueError("candidates must be at least two numbers in ascending order.")

    n = len(train)
    log_p_train = _log_observed(train, y_train)
    n_draws = len(log_p_train)
    log_p_candidates = _log_densities(test, np.broadcast_to(grid, (len(test), grid.size)))
    ranking = _rank_candidates(log_p_train, log_p_candidates, _log_weights(weights, n_draws))
    members = _find_members(ranking.ranks, n, alpha)
    _warn_collapsed(members, ranking.effective_draws, fewest=least_effective_draws)

    return FullConformalSets(
        sets=widen_to_neighbours(members, grid),
        ranks=ranking.ranks,
        effective_draws=ranking.effective_draws,
        n=n,
        n_draws=n_draws,
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
    """Return the conformal p-value of one response for each test row, (n_test,).

    The response is in the row's full conformal set if its p-value exceeds alpha. No grid is needed,
    because each row has one candidate: its `y`. The other parameters are those of
    `full_conformal_intervals`.
    """
    log_p_train = _log_observed(train, y_train)
    log_p_candidate = _log_observed(test, y)
    ranking = _rank_candidates(
        log_p_train,
        log_p_candidate[:, :, None],  # (T, n_test, 1): one candidate
        _log_weights(weights, len(log_p_train)),
    )
    ranks = ranking.ranks[:, 0]
    return np.asarray(ranks / (len(train) + 1))


def _check_same_model(train: ClassDraws, test: ClassDraws, codes: Integers) -> None:
    """Raise an error if the draws of training and test rows cannot come from one model.

    `codes` are the codes of the training labels; the model knows the codes below `train.n_known`.
    """
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
        return  # without names there is no order to compare
    if not np.array_equal(train.classes, test.classes):
        raise ValueError(
            "train and test list their labels differently; they must come from one model."
        )


@dataclass(frozen=True, eq=False)
class CandidateRanks:
    """The rank of every candidate and the effective number of draws behind it.

    Both are (n_test, candidates).
    """

    ranks: Integers
    effective_draws: Floats


def _rank_candidates(
    log_p_train: Floats, log_p_candidates: Floats, log_draw_weights: Floats
) -> CandidateRanks:
    """Count for every candidate how many of the n + 1 rows conform at most as well as it does.

    The n + 1 rows are the training rows and the candidate itself. How well row i conforms is its
    density under the posterior given all n + 1 rows, σ_i = Σ_t w_t p(y_i | x_i, θ_t), with the
    weights w_t of `_add_one_in_weights`.

    Parameters
    ----------
    log_p_train
        (T, n): log p(y_i | x_i, θ_t) of the training rows for each of T posterior draws θ_t.
    log_p_candidates
        (T, n_test, candidates): log p(y | x, θ_t) of each candidate y at each test row.
    log_draw_weights
        (T,): the logarithm of each draw's own weight.
    """
    n_draws, n = log_p_train.shape
    if len(log_p_candidates) != n_draws:
        raise ValueError(
            f"train has {n_draws} draws and test has {len(log_p_candidates)}; the draws must be "
            f"the same."
        )
    log_p_of_columns = log_p_candidates.reshape(n_draws, -1)  # one column per candidate and row
    n_columns = log_p_of_columns.shape[1]
    train = _ScaledDensities.of(log_p_train)

    # as many columns at once as memory holds
    ranks = np.empty(n_columns, dtype=np.int64)
    effective_draws = np.empty(n_columns)
    batch_size = max(1, CELLS_AT_ONCE // max(n, n_draws))
    for start in range(0, n_columns, batch_size):
        batch = slice(start, start + batch_size)
        log_p_new = log_p_of_columns[:, batch]
        log_w = _add_one_in_weights(log_p_new, log_draw_weights)
        w = np.exp(log_w)

        log_sigma_train = train.log_means(w)
        log_sigma_new = logsumexp(log_w + log_p_new, axis=0)
        n_not_above = np.count_nonzero(log_sigma_train <= log_sigma_new + ROUNDING, axis=0)
        ranks[batch] = n_not_above + 1  # the candidate itself
        effective_draws[batch] = 1 / np.sum(w**2, axis=0)

    shape = log_p_candidates.shape[1:]
    return CandidateRanks(ranks.reshape(shape), effective_draws.reshape(shape))


@dataclass(frozen=True, eq=False)
class _ScaledDensities:
    """Densities p (T, n) of n rows for T draws, as p = exp(log_scale) * scaled.

    The scale of a row is its largest density, so that weighted sums of `scaled` do not underflow.
    """

    scaled: Floats
    log_scale: Floats

    @classmethod
    def of(cls, log_p: Floats) -> _ScaledDensities:
        """Scale densities whose logarithms are (T, n)."""
        largest = log_p.max(initial=-np.inf, axis=0)
        log_scale = np.where(np.isfinite(largest), largest, 0.0)
        return cls(scaled=np.exp(log_p - log_scale), log_scale=log_scale)

    def log_means(self, weights: Floats) -> Floats:
        """Return log Σ_t w_t p_t of every row, (n, columns), for weights (T, columns)."""
        with np.errstate(divide="ignore"):  # log 0 = -inf is right
            return np.asarray(np.log(self.scaled.T @ weights) + self.log_scale[:, None])


def _add_one_in_weights(log_p_new: Floats, log_draw_weights: Floats) -> Floats:
    """Return log w_t of every candidate, (T, candidates), where w_t ∝ v_t p(y | x, θ_t).

    A candidate that no draw allows has σ_{n+1} = 0 for any weights: it keeps w_t = v_t.
    """
    log_w = log_p_new + log_draw_weights[:, None]
    log_total = logsumexp(log_w, axis=0)
    is_possible = np.isfinite(log_total)
    log_w = log_w - np.where(is_possible, log_total, 0.0)
    log_w[:, ~is_possible] = log_draw_weights[:, None]
    return np.asarray(log_w)


def _find_members(ranks: Integers, n: int, alpha: Level) -> Bools:
    """Mark the candidates that are in the set: rank > alpha (n + 1), compared in integers."""
    level = as_rational(alpha)
    return np.asarray(ranks > level.numerator * (n + 1) // level.denominator)


def _warn_collapsed(members: Bools, effective_draws: Floats, *, fewest: float) -> None:
    """Warn if the weights of candidates in the sets rest on fewer draws than `fewest`.

    Candidates outside the sets do not matter: unlikely ones rest on few draws by nature.
    """
    is_unreliable = np.any(members & (effective_draws < fewest), axis=1)
    if not np.any(is_unreliable):
        return
    lowest = float(effective_draws[members].min())
    text = (
        f"the add-one-in weights of {int(is_unreliable.sum())} of {is_unreliable.size} rows rest "
        f"on fewer than {fewest:g} effective draws (lowest: {lowest:.1f}), so their sets are not "
        f"to be relied on."
    )
    remedy = "Use more posterior draws, or split conformal prediction."
    show([Note("collapsed-weights", text, remedy)], category=CollapsedWeightsWarning)


def _log_weights(weights: ArrayLike | None, n_draws: int) -> Floats:
    """Return log v_t of the draws' own weights, divided by their sum; None means all equal."""
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
    """Return log N(y; mean, sd²) of every draw at G values y of each row.

    `y` is (n, G); the result is (T, n, G).
    """
    means = np.asarray(mixture.means, dtype=np.float64)[:, :, None]
    sds = np.asarray(mixture.sds, dtype=np.float64)
    has_one_sd_per_draw = sds.ndim == 1
    sds = sds[:, None, None] if has_one_sd_per_draw else sds[:, :, None]
    standardised = (y[None] - means) / sds
    return np.asarray(-0.5 * standardised**2 - np.log(sds) - 0.5 * np.log(2 * np.pi))


def widen_to_neighbours(members: Bools, grid: Floats) -> IntervalUnions:
    """Turn runs of members on a grid into intervals that reach to the nearest grid values outside.

    `members` (rows, G) marks which of the ascending values `grid` (G,) are in each row's set. On
    the grid 0, 1, 2, 3, 4 the members 1, 2 become the interval [0, 3], and the members 3, 4 become
    [2, ∞].
    """
    # 1. Fill gaps of one value: the runs on both sides reach it, and so are one.
    is_in = members.copy()
    is_in[:, 1:-1] |= members[:, :-2] & members[:, 2:]

    # 2. Find where runs start and end. With a column of 0 on each side, a run from column i to
    # column j has a step up at i and a step down at j + 1.
    padded = np.pad(is_in.astype(np.int8), ((0, 0), (1, 1)))
    steps = np.diff(padded, axis=1)
    rows, first_column = np.nonzero(steps == 1)
    _, one_past_last_column = np.nonzero(steps == -1)

    # 3. Look up the grid values beside each run: before_column[i] is the one before column i.
    before_column = np.concatenate([[-np.inf], grid, [np.inf]])
    lower = before_column[first_column]
    upper = before_column[one_past_last_column + 1]

    # 4. The intervals of row r are those from pointers[r] up to pointers[r + 1].
    n_intervals = np.bincount(rows, minlength=len(members))
    pointers = np.concatenate([[0], np.cumsum(n_intervals)]).astype(np.int64)
    return IntervalUnions(pointers, lower, upper)
