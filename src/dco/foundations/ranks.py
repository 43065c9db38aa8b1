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

_MOST_TYPED_DIGITS = 12  # a float printed with so few was typed by a person: the decimal is meant
# 1 - 0.9 misses 0.1 by less than this; pi / 10 misses every short fraction by more
_ROUNDING = Fraction(1, 2**52)
_ROUNDING_32 = Fraction(1, 2**23)  # the same for float32
_LARGEST_DENOMINATOR = 10**6  # of a fraction that a float may stand for, such as 1/3
_LARGEST_DENOMINATOR_32 = 1_000  # the same for float32, which has fewer digits
_LARGEST_EXPONENT = 5_000  # of a decimal; 1e-1000000000 as a fraction would fill the memory
# up to this n an undecided binomial tail is summed in integers (about 10 ms)
_EXACT_TAIL_LIMIT = 4_000
_SPARE_DIGITS = 50  # of a logarithm, beyond those of the fractions that are compared
# SciPy's binomial tails are trusted where they differ from delta by more than this share of it:
# the first for n up to a million rows, the second beyond
_TAIL_ERROR = 1e-11
_TAIL_ERROR_OF_MANY_ROWS = 1e-8
_MANY_ROWS = 10**6
_FEWEST_MISSES = 1e-9  # fewer are none: what rounding leaves of a sum of weights


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
    """Return the rational number that `level` means, of any size: 0.1 -> 1/10, "1/3" -> 1/3.

    Other floats, such as 1 - 0.9 = 0.09999999999999998, are the nearest short fraction if rounding
    explains the difference, and otherwise their exact binary value.
    """
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
    mantissa = text.split("e")[0]  # of 2.5e-05 it is 2.5
    digits = mantissa.replace(".", "").replace("-", "").strip("0")
    if len(digits) <= _MOST_TYPED_DIGITS:
        return Fraction(text)
    return _undo_rounding(
        Fraction(float(level)), largest_denominator=_LARGEST_DENOMINATOR, rounding=_ROUNDING
    )


def _rational_of_other_float(level: np.floating[Any]) -> Fraction:
    """Return what a float of NumPy in another precision than double means: the number it prints.

    np.float32(0.2) prints as 0.2, although its binary value is 0.200000003. A float32 with more
    digits may stand for a short fraction, as np.float32(1 / 3) does.
    """
    printed = Fraction(str(level))
    is_short = printed.denominator <= _LARGEST_DENOMINATOR
    if level.dtype != np.float32 or is_short:
        return printed
    return _undo_rounding(
        printed, largest_denominator=_LARGEST_DENOMINATOR_32, rounding=_ROUNDING_32
    )


def _undo_rounding(value: Fraction, *, largest_denominator: int, rounding: Fraction) -> Fraction:
    """Return the nearest fraction with a small denominator if it is as near as `rounding`.

    Otherwise no short fraction was meant, and the value itself is returned.
    """
    short = value.limit_denominator(largest_denominator)
    return short if short > 0 and abs(short - value) <= rounding else value


def as_count(n: SupportsIndex, *, name: str = "n", least: int = 0) -> int:
    """Return `n` as a Python integer; refuse what is no whole number, is negative or below `least`.

    `name` is what errors call the number, such as "n_folds".
    """
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
    """Return `value` as a float; refuse what is not a finite number greater than 0.

    `name` is what the error calls it.
    """
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

    It is n - e for the largest number e of uncovered rows with P(Binomial(n, alpha) <= e) <= delta,
    which is the same as I_alpha(e + 1, n - e) >= 1 - delta with the regularised incomplete beta
    function I (Vovk 2012; Wilks; Clopper-Pearson; Bayesian quadrature with 0/1 loss). ``n + 1``
    means that no finite threshold has this guarantee. A probability too close to delta for floating
    point is computed in integers, for n up to 4,000; beyond, the larger rank is taken.
    """
    return _pac_rank(as_count(n), as_rational(alpha), as_rational(delta, name="delta"))


@lru_cache(maxsize=4096)
def _pac_rank(n: int, alpha: Fraction, delta: Fraction) -> int:
    """Compute `pac_rank`: n - e for the largest e with P(Binomial(n, alpha) <= e) <= delta.

    The range that holds e is halved until it is found. Two good guesses, which mostly settle it,
    are tried before.
    """
    largest_allowed = -1  # P(Binomial <= -1) = 0 <= delta
    smallest_refused = n  # P(Binomial <= n) = 1 > delta
    guesses = _guess_uncovered(n, alpha, delta)

    while smallest_refused - largest_allowed > 1:
        middle = (largest_allowed + smallest_refused) // 2
        e = guesses.pop(0) if guesses else middle
        is_decided = e <= largest_allowed or e >= smallest_refused
        if is_decided:
            continue  # a guess that the one before it has settled
        if _is_tail_at_most(n, e, alpha, delta):
            largest_allowed = e
        else:
            smallest_refused = e
    return n - largest_allowed


def _guess_uncovered(n: int, alpha: Fraction, delta: Fraction) -> list[int]:
    """Guess the largest e with P(Binomial(n, alpha) <= e) <= delta, by SciPy's inverse of it.

    Returns two neighbours, or nothing where SciPy's search ends without a result.
    """
    with errstate(all="ignore"):  # type: ignore[arg-type]  # the stubs misspell "ignore"
        inverse = float(bdtrik(float(delta), n, float(alpha)))
    return [int(inverse), int(inverse) + 1] if math.isfinite(inverse) else []


def _is_tail_at_most(n: int, e: int, alpha: Fraction, delta: Fraction) -> bool:
    """Tell whether P(Binomial(n, alpha) <= e) <= delta; False where it cannot be decided.

    It is computed in floating point, and only if that is too close to delta, in integers.
    """
    if e == 0:
        return _is_power_at_most(n, alpha, delta)

    # 1. Floating point.
    tail = _binomial_tail(n, e, alpha)
    limit = float(delta)
    relative_error = _TAIL_ERROR if n <= _MANY_ROWS else _TAIL_ERROR_OF_MANY_ROWS
    is_clear = abs(tail - limit) > limit * relative_error
    if is_clear:
        return tail < limit

    # 2. Integers, which would take too long for many rows.
    return n <= _EXACT_TAIL_LIMIT and _exact_binomial_tail(n, e, alpha) <= delta


def _exact_binomial_tail(n: int, e: int, alpha: Fraction) -> Fraction:
    """Compute P(Binomial(n, alpha) <= e) exactly.

    With alpha = a / b and c = b - a it is the sum over i = 0 ... e of

        comb(n, i) a^i c^(n - i) / b^n
    """
    a = alpha.numerator
    b = alpha.denominator
    c = b - a
    numerator = sum(math.comb(n, i) * a**i * c ** (n - i) for i in range(e + 1))
    return Fraction(numerator, b**n)


def _binomial_tail(n: int, e: int, alpha: Fraction) -> float:
    """Compute P(Binomial(n, alpha) <= e) = I_{1 - alpha}(n - e, e + 1), in floating point.

    I is the regularised incomplete beta function. A very small probability may become 0.
    """
    level = float(alpha)
    with errstate(all="ignore"):  # type: ignore[arg-type]  # the stubs misspell "ignore"
        if level <= 0.5:
            return float(betaincc(e + 1.0, float(n - e), level))
        # a float near 1 has lost the digits of 1 - alpha
        return float(betainc(float(n - e), e + 1.0, float(1 - alpha)))


def clopper_pearson_upper(hits: Floats, rows: Floats, error: float) -> Floats:
    """Compute the Clopper-Pearson upper bound of a probability, from its hits among some rows.

    The probability exceeds the bound with probability at most `error`. Counts need not be integers.
    The bound is 1 where every row is a hit.
    """
    misses = rows - hits
    some_misses = np.maximum(misses, _FEWEST_MISSES)  # betaincinv refuses 0
    bounds = betaincinv(hits + 1, some_misses, 1 - error)
    return np.where(misses > _FEWEST_MISSES, bounds, 1.0)


def smallest_marginal_n(*, alpha: Level) -> int:
    """Return the smallest n with a finite conformal rank: ceil((1 - alpha) / alpha)."""
    level = as_rational(alpha)
    return math.ceil((1 - level) / level)


def smallest_pac_n(*, alpha: Level, delta: Level) -> int:
    """Return the smallest n with a finite PAC rank: the smallest n with (1 - alpha)^n <= delta."""
    alpha = as_rational(alpha)
    delta = as_rational(delta, name="delta")

    # 1. Solve (1 - alpha)^n = delta for n. The logarithms are rounded, so it may be off by one.
    with localcontext(prec=_digits_needed(alpha, delta)):
        n = max(1, math.ceil(_log(delta) / _log(1 - alpha)))

    # 2. Correct it exactly.
    while n > 1 and _is_power_at_most(n - 1, alpha, delta):
        n -= 1
    while not _is_power_at_most(n, alpha, delta):
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


def _is_power_at_most(n: int, alpha: Fraction, delta: Fraction) -> bool:
    """Tell whether (1 - alpha)^n <= delta.

    It is computed in integers while they are short, then by logarithms to many digits. Equality for
    a larger n would need a delta of thousands of digits, so the logarithms always decide.
    """
    if n <= _EXACT_TAIL_LIMIT:
        total = alpha.denominator
        miss = total - alpha.numerator
        # (miss / total)^n <= delta, multiplied by both denominators
        return bool(miss**n * delta.denominator <= total**n * delta.numerator)
    with localcontext(prec=_digits_needed(alpha, delta)):
        return n * _log(1 - alpha) <= _log(delta)


def _log(value: Fraction) -> Decimal:
    """Return the natural logarithm to as many digits as the context has."""
    return (Decimal(value.numerator) / Decimal(value.denominator)).ln()


def _digits_needed(*values: Fraction) -> int:
    """Return how many digits logarithms need to tell powers of such fractions apart."""
    return _SPARE_DIGITS + 2 * max(len(str(value.denominator)) for value in values)


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
    """Return calibration scores as a one-dimensional array; NaN is refused, +inf is legal.

    Integers become float64; floats keep their precision.
    """
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
    """Return the scores in float64; those in a longer format are rounded upwards."""
    with np.errstate(over="ignore"):
        values: Floats = scores.astype(np.float64)
    return np.where(values >= scores, values, np.nextafter(values, np.inf))


def order_statistic(scores: Floats, rank: int) -> float:
    """Return the `rank`-th smallest of n scores, counted from 1; +inf for rank n + 1.

    A score in a longer format than float64 is rounded upwards.
    """
    if rank > scores.size:
        return float("inf")
    score = np.partition(scores, rank - 1)[rank - 1]
    value = float(score)
    return value if value >= score else math.nextafter(value, math.inf)


def warn_infeasible(n: int, smallest: int, statement: str, *, unit: str = "row") -> None:
    """Warn that the threshold is infinite, and say how many calibration rows give a finite one.

    `n` is how many there are, `smallest` how many are needed for `statement`, such as "marginal
    coverage at alpha = 0.01". `unit` is what is counted: rows, or another noun such as "cluster".
    """
    text = (
        f"{counted(n, f'calibration {unit}')} {are(n)} too few for {statement}: the threshold is "
        "infinite and every set is full (valid, but useless)."
    )
    show([Note("infeasible", text, f"At least {counted(smallest, unit)} {are(smallest)} needed.")])


def size_quantile(sizes: Floats | Integers, level: float) -> float:
    """Return the quantile of set sizes at a level, by linear interpolation (NumPy's default).

    It is right also where sizes are infinite: ``np.quantile`` subtracts infinity from infinity and
    answers NaN.
    """
    position = (len(sizes) - 1) * level  # among ascending sizes, mostly between two of them
    low = math.floor(position)
    high = math.ceil(position)
    partly_sorted = np.partition(np.asarray(sizes, dtype=np.float64), [low, high])
    size_below = float(partly_sorted[low])
    size_above = float(partly_sorted[high])
    if size_below == size_above:
        return size_below
    return size_below + (position - low) * (size_above - size_below)
