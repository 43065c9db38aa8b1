"""From a level to a `Threshold`: level, exact rank, order statistic.

This is the only place where a level becomes a rank.

A decimal typed by a person means that decimal. ``alpha=0.1`` is one tenth, and so is ``1 - 0.9``,
although neither is one tenth in binary. Ranks are then integers computed from integers; no float is
ever rounded up.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from numbers import Real
from typing import Any, Literal, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtrik, betainc, betaincc, betaincinv, errstate

from dco.foundations.arrays import AnyArray, Floats, Integers, to_numpy
from dco.foundations.display import are, counted
from dco.foundations.errors import NonFiniteScoreError
from dco.foundations.notes import Note, show

__all__ = [
    "LOWEST_SCORE",
    "Guarantee",
    "Level",
    "Threshold",
    "WeightedThresholds",
    "as_count",
    "as_positive",
    "as_rational",
    "checked_scores",
    "clopper_pearson_upper",
    "conformal_rank",
    "order_statistic",
    "pac_rank",
    "rank_for",
    "rational",
    "round_up",
    "size_quantile",
    "smallest_marginal_n",
    "smallest_n_for",
    "smallest_pac_n",
    "tuning_rank",
    "warn_infeasible",
]

Level: TypeAlias = float | str | Decimal | Fraction | np.floating
Guarantee: TypeAlias = Literal["marginal", "pac", "pac-conjectured", "expected_risk", "none"]

# The score of a label that is in every set. It is not -inf, so that an infinite threshold always
# means that there are too few calibration rows.
LOWEST_SCORE = -float(np.finfo(np.float64).max)

_SPOKEN_DIGITS = 12  # a repr this short was typed by a person and means the decimal it shows
# 1 - 0.9 misses 0.1 by less than this; pi / 10 misses every short fraction by more
_ROUNDING = Fraction(1, 2**52)
_ROUNDING_32 = Fraction(1, 2**23)  # the same for float32
_LARGEST_EXPONENT = 5_000  # of a decimal; 1e-1000000000 as a fraction would fill the memory
# up to this n an undecided binomial tail is summed in integers (about 10 ms)
_EXACT_TAIL_LIMIT = 4_000


def as_rational(level: Level, *, name: str = "alpha") -> Fraction:
    """Return the rational number that `level` means, strictly between 0 and 1.

    Strings, ``Decimal`` and ``Fraction`` are taken as they are; a float with a short decimal form
    means that decimal; a float within 2**-52 of a fraction with denominator up to 10**6 means that
    fraction; any other float means its exact binary value.
    """
    try:
        value = rational(level)
    except (TypeError, ValueError, ArithmeticError):
        value = Fraction(0)
    if 0 < value < 1:
        return value

    advice = ""
    if name == "alpha" and 50 < value < 100:
        advice = f" For {level} % coverage, alpha is {float(1 - value / 100):g}."
    raise ValueError(f"{name} must be a number strictly between 0 and 1, got {level!r}.{advice}")


# typed: Fraction(0.1) == 0.1 == Decimal(0.1), but only the float means one tenth
@lru_cache(maxsize=1024, typed=True)
def rational(level: Level) -> Fraction:
    """Return the rational number that `level` means, of any size."""
    if isinstance(level, (bool, np.bool_)):
        raise TypeError(f"{level!r} is not a number.")
    if isinstance(level, str) and "/" not in level:
        level = Decimal(level)
    if isinstance(level, Decimal) and abs(level.adjusted()) > _LARGEST_EXPONENT:
        raise ValueError(f"{level} is too large or too small a number.")
    if isinstance(level, (str, Decimal, Fraction)):
        return Fraction(level)
    if isinstance(level, np.floating) and not isinstance(level, float):
        return _rational_of_other_float(level)

    text = repr(float(level))
    digits = text.split("e")[0].replace(".", "").replace("-", "").strip("0")
    if len(digits) <= _SPOKEN_DIGITS:
        return Fraction(text)
    return _simplest_near(Fraction(float(level)), largest_denominator=10**6, rounding=_ROUNDING)


def _rational_of_other_float(level: np.floating[Any]) -> Fraction:
    """Return what a float of NumPy means that is not in double precision.

    np.float32(0.2) prints as 0.2; its binary value is far from it.
    """
    printed = Fraction(str(level))
    if level.dtype != np.float32 or printed.denominator <= 10**6:
        return printed
    return _simplest_near(printed, largest_denominator=1_000, rounding=_ROUNDING_32)


def _simplest_near(value: Fraction, *, largest_denominator: int, rounding: Fraction) -> Fraction:
    """Return the nearest short fraction if it differs by rounding alone, otherwise the value."""
    simple = value.limit_denominator(largest_denominator)
    return simple if simple > 0 and abs(simple - value) <= rounding else value


def as_count(n: SupportsIndex, *, name: str = "n", least: int = 0) -> int:
    """Return `n` as a Python integer that is not negative, and not below `least`."""
    try:
        count = operator.index(n)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {n!r}.") from None
    if count < 0 or isinstance(n, (bool, np.bool_)):
        raise ValueError(f"{name} must be a whole number that is not negative, got {n!r}.")
    if count < least:
        raise ValueError(f"{name} must be at least {least}, got {n!r}.")
    return count


def as_positive(value: float, *, name: str) -> float:
    """Return `value` as a finite float greater than 0."""
    is_number = isinstance(value, Real | Decimal) and not isinstance(value, bool)
    if not is_number or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive number, got {value!r}.")
    return float(value)


def conformal_rank(n: SupportsIndex, *, alpha: Level) -> int:
    """Return the rank that gives marginal coverage at least 1 - alpha: ceil((n + 1)(1 - alpha)).

    It is computed exactly. ``n + 1`` means that no finite threshold has this guarantee (then n < (1
    - alpha) / alpha).
    """
    count = as_count(n)
    level = as_rational(alpha)
    return math.ceil((count + 1) * (1 - level))


def tuning_rank(n: SupportsIndex, *, alpha: Level) -> int:
    """Return the least rank above which lies at most a share alpha of n rows: n - floor(n alpha).

    It is computed exactly.
    """
    count = as_count(n)
    level = as_rational(alpha)
    return count - math.floor(count * level)


def pac_rank(n: SupportsIndex, *, alpha: Level, delta: Level) -> int:
    """Return the rank that gives coverage at least 1 - alpha with probability at least 1 - delta.

    It is n - max{e : I_alpha(e + 1, n - e) >= 1 - delta}. Equivalently e is the largest number e of
    uncovered rows with P(Binomial(n, alpha) <= e) <= delta (Vovk 2012; Wilks; Clopper-Pearson;
    Bayesian quadrature with 0/1 loss). ``n + 1`` means that no finite threshold has this guarantee.
    A tail too close to delta for floating point is summed in integers, for n up to 4,000; beyond,
    the larger rank is taken.
    """
    return _pac_rank(as_count(n), as_rational(alpha), as_rational(delta, name="delta"))


@lru_cache(maxsize=4096)
def _pac_rank(n: int, alpha: Fraction, delta: Fraction) -> int:
    """Find by bisection how many rows may be uncovered; SciPy only says where to look first."""
    allowed = -1  # P(Bin <= -1) = 0 <= delta
    refused = n  # P(Bin <= n) = 1 > delta
    # SciPy's search may end without a result, and a tail may underflow. (Its stubs misspell
    # "ignore".)
    with errstate(all="ignore"):  # type: ignore[arg-type]
        guess = float(bdtrik(float(delta), n, float(alpha)))
        likely = [int(guess) + 1, int(guess)] if math.isfinite(guess) else []
        while refused - allowed > 1:
            uncovered = likely.pop() if likely else (allowed + refused) // 2
            if not allowed < uncovered < refused:
                continue
            if _tail_at_most(n, uncovered, alpha, delta):
                allowed = uncovered
            else:
                refused = uncovered
    return n - allowed


def _tail_at_most(n: int, e: int, alpha: Fraction, delta: Fraction) -> bool:
    """Return whether P(Binomial(n, alpha) <= e) <= delta; False where it cannot be decided."""
    if e == 0:
        return _power_at_most(n, alpha, delta)

    # 1. Floating point decides, unless the tail is too close to delta.
    level = float(alpha)
    limit = float(delta)
    if level <= 0.5:
        tail = float(betaincc(e + 1.0, float(n - e), level))
    else:  # a float near 1 has lost the digits of 1 - alpha
        tail = float(betainc(float(n - e), e + 1.0, float(1 - alpha)))
    doubt = limit * (1e-11 if n <= 10**6 else 1e-8)
    if abs(tail - limit) > doubt:
        return tail < limit
    if n > _EXACT_TAIL_LIMIT:
        return False

    # 2. Integers decide the rest.
    hit = alpha.numerator
    miss = alpha.denominator - hit
    exact_tail = sum(math.comb(n, i) * hit**i * miss ** (n - i) for i in range(e + 1))
    return Fraction(exact_tail, alpha.denominator**n) <= delta


def clopper_pearson_upper(hits: Floats, rows: Floats, error: float) -> Floats:
    """Compute the Clopper-Pearson upper bound of a probability at a one-sided error."""
    missed = rows - hits
    return np.where(missed > 1e-9, betaincinv(hits + 1, np.maximum(missed, 1e-9), 1 - error), 1.0)


def smallest_marginal_n(*, alpha: Level) -> int:
    """Return the least n with a finite conformal rank: ceil((1 - alpha) / alpha)."""
    level = as_rational(alpha)
    return math.ceil((1 - level) / level)


def smallest_pac_n(*, alpha: Level, delta: Level) -> int:
    """Return the least n with a finite PAC rank: the least n with (1 - alpha)^n <= delta."""
    level = as_rational(alpha)
    failure = as_rational(delta, name="delta")
    with localcontext(prec=_digits(level, failure)):
        n = max(1, math.ceil(_log(failure) / _log(1 - level)))
    while n > 1 and _power_at_most(n - 1, level, failure):
        n -= 1
    while not _power_at_most(n, level, failure):
        n += 1
    return n


def rank_for(n: SupportsIndex, *, alpha: Level, delta: Level | None = None) -> int:
    """Return `pac_rank` with a delta, `conformal_rank` without."""
    if delta is None:
        return conformal_rank(n, alpha=alpha)
    return pac_rank(n, alpha=alpha, delta=delta)


def smallest_n_for(*, alpha: Level, delta: Level | None = None) -> int:
    """Return `smallest_pac_n` with a delta, `smallest_marginal_n` without."""
    if delta is None:
        return smallest_marginal_n(alpha=alpha)
    return smallest_pac_n(alpha=alpha, delta=delta)


def _power_at_most(n: int, alpha: Fraction, delta: Fraction) -> bool:
    """Return whether (1 - alpha)^n <= delta.

    It is computed in integers while they are short, then by logarithms to many digits. Equality for
    a larger n would need a delta of thousands of digits, so the logarithms always decide.
    """
    if n <= _EXACT_TAIL_LIMIT:
        miss = alpha.denominator - alpha.numerator
        return bool(miss**n * delta.denominator <= alpha.denominator**n * delta.numerator)
    with localcontext(prec=_digits(alpha, delta)):
        return n * _log(1 - alpha) <= _log(delta)


def _log(value: Fraction) -> Decimal:
    """Return the natural logarithm to as many digits as the context has."""
    return (Decimal(value.numerator) / Decimal(value.denominator)).ln()


def _digits(*values: Fraction) -> int:
    """Return how many digits logarithms need to tell powers of such fractions apart."""
    return 50 + 2 * max(len(str(value.denominator)) for value in values)


@dataclass(frozen=True)
class Threshold:
    """A cut-off with its statement: sets made with it are {y : score(x, y) <= value}.

    ``value`` is the `rank`-th smallest of `n` calibration scores (+inf when rank is n + 1).
    ``rank`` is None for rules that do not deploy an order statistic of `n` exchangeable scores
    (loss matrices, grouped rows). ``guarantee`` names what is certified; what certifies nothing
    says "none".
    """

    value: float
    rank: int | None
    n: int
    guarantee: Guarantee
    alpha: float
    delta: float | None = None

    def __post_init__(self) -> None:
        if math.isnan(self.value):
            raise ValueError("a threshold must be a number and not NaN.")
        object.__setattr__(self, "value", float(self.value))

    @property
    def expected_coverage(self) -> float | None:
        """rank / (n + 1): the mean coverage when scores are distinct, a lower bound otherwise."""
        return None if self.rank is None else self.rank / (self.n + 1)

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True, eq=False)  # arrays: == and hash would raise
class WeightedThresholds:
    """Cut-offs of new rows with their statement.

    `values` are (m,) or (m, 1) for each row, (1, K) for each label or (m, K) for both.
    ``guarantee`` holds under `assumption` only. ``effective_n`` is (sum w)^2 / sum w^2, the number
    of equally weighted calibration rows that would vary as much. ``np.asarray(record)`` gives
    `values`, and `score.sets` takes the record.
    """

    values: Floats
    guarantee: Guarantee
    alpha: float
    n: int
    effective_n: float
    assumption: str = "given these weights"

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        return np.array(self.values, dtype=dtype, copy=copy)


def checked_scores(scores: ArrayLike) -> Floats:
    """Return calibration scores as a one-dimensional array; NaN is refused, +inf is legal."""
    is_float_array = isinstance(scores, np.ndarray) and scores.dtype.kind == "f"
    array = np.asarray(scores) if is_float_array else to_numpy(scores)
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    if array.dtype.kind != "f":
        raise ValueError(f"scores must be real numbers, got dtype {array.dtype}.")
    if array.ndim != 1:
        raise ValueError(f"scores must be one number per row, got an array of shape {array.shape}.")

    not_numbers = np.flatnonzero(np.isnan(array))
    if not_numbers.size:
        raise NonFiniteScoreError(
            f"{not_numbers.size} of {array.size} scores are NaN (first: row {not_numbers[0]}); a "
            "NaN cannot be ordered. Find out why the model or the score gives NaN there; dropping "
            "the rows would change the population that is certified."
        )
    return array


def round_up(scores: Floats) -> Floats:
    """Return the scores in float64; a longdouble is not rounded below itself."""
    with np.errstate(over="ignore"):
        values: Floats = scores.astype(np.float64)
    return np.where(values >= scores, values, np.nextafter(values, np.inf))


def order_statistic(scores: Floats, rank: int) -> float:
    """Return the `rank`-th smallest score, from 1; +inf for rank n + 1."""
    if rank > scores.size:
        return float("inf")
    score = np.partition(scores, rank - 1)[rank - 1]
    value = float(score)
    # a longdouble must not be rounded below itself
    return value if value >= score else math.nextafter(value, math.inf)


def warn_infeasible(n: int, smallest: int, statement: str, *, unit: str = "row") -> None:
    """Warn that the threshold is infinite, and say how many rows give a finite one.

    `unit` names what is counted in place of rows.
    """
    text = (
        f"{counted(n, f'calibration {unit}')} {are(n)} too few for {statement}: the threshold is "
        "infinite and every set is full (valid, but useless)."
    )
    show([Note("infeasible", text, f"At least {counted(smallest, unit)} {are(smallest)} needed.")])


def size_quantile(sizes: Floats | Integers, level: float) -> float:
    """Return the quantile of sizes by linear interpolation (NumPy's default).

    It is right also where sizes are infinite: ``np.quantile`` subtracts infinity from infinity and
    answers NaN.
    """
    position = (len(sizes) - 1) * level
    low = math.floor(position)
    high = math.ceil(position)
    ordered = np.partition(np.asarray(sizes, dtype=np.float64), [low, high])
    below = float(ordered[low])
    above = float(ordered[high])
    if below == above:
        return below
    return below + (position - low) * (above - below)
