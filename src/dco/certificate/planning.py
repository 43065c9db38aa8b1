"""How many rows each role should get, and why, before any row is looked at."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from html import escape
from textwrap import wrap
from typing import Any, Literal, SupportsIndex

from dco.foundations.display import ShownAsPrinted, are, counted, html_table
from dco.foundations.errors import InfeasibleLevelError
from dco.foundations.ranks import (
    Level,
    as_count,
    as_positive,
    as_rational,
    rank_for,
    smallest_n_for,
)
from dco.rows.sizes import FEWEST_FOR_OTHER_ROLES
from dco.theory import (
    calibration_size,
    coverage_law_of_rank,
    coverage_variance,
    least_wasteful_size,
    pac_gap,
)

# Beyond this share a row is worth more in training than in calibration.
LARGEST_CALIBRATION_SHARE = Fraction(1, 3)
# The default standard deviation of coverage, unless alpha / 5 is less.
WIDEST_SPREAD = Fraction(1, 50)
# Of the rows that calibration leaves.
TUNING_SHARE = Fraction(1, 4)
# A mean size is then known to about 1 % where sizes vary by half their mean.
ENOUGH_TUNING_ROWS = 2_000


@dataclass(frozen=True)
class PlanRow:
    """The rows of one role, and the reason in a sentence or two."""

    role: str
    rows: int
    reason: str


@dataclass(frozen=True)
class PlannedSplit:
    """How many of `n` rows train, tune, calibrate and test, and what coverage to expect.

    Attributes
    ----------
    n
        All rows.
    train, tune, calibrate, test
        How many of them have each role.
    rank
        The threshold is the score of this rank among the calibration scores.
    expected_coverage, coverage_sd
        Mean and standard deviation of coverage over draws of the calibration rows.
    coverage_low, coverage_high
        The 5 % and 95 % points of coverage: it lies between them in nine of ten draws.
    """

    n: int
    train: int
    tune: int
    calibrate: int
    test: int
    rank: int
    expected_coverage: float
    coverage_sd: float
    coverage_low: float
    coverage_high: float


@dataclass(frozen=True)
class Plan(ShownAsPrinted):
    """Split sizes with reasons. ``print(plan)`` shows it; ``plan.to_dict()`` is for machines.

    `now` holds the numbers of this plan, `doubled` those of twice the rows, and `smallest_useful_n`
    the least number of rows at which every role has something to do.
    """

    n: int
    alpha: float
    guarantee: Literal["marginal", "pac"]
    delta: float | None
    spread: float
    rows: tuple[PlanRow, ...]
    now: PlannedSplit
    doubled: PlannedSplit
    smallest_useful_n: int
    notes: tuple[str, ...]

    @property
    def train(self) -> int:
        """Rows for training."""
        return self.now.train

    @property
    def tune(self) -> int:
        """Rows for tuning."""
        return self.now.tune

    @property
    def calibrate(self) -> int:
        """Rows for calibration."""
        return self.now.calibrate

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and texts, nested."""
        return asdict(self)

    @property
    def heading(self) -> str:
        """What was asked for, in one line."""
        level = f"alpha = {self.alpha:g}"
        if self.delta is not None:
            level += f", delta = {self.delta:g}"
        return f"{counted(self.n, 'row')}, {self.guarantee} guarantee, {level}"

    def _repr_html_(self) -> str:
        rows = [[row.role, str(row.rows), row.reason] for row in self.rows]
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return html_table(["role", "rows", "why"], rows, caption=self.heading) + notes

    def __str__(self) -> str:
        lines = [self.heading, ""]
        for row in self.rows:
            text = f"{row.role:<10}{row.rows:>9}  {row.reason}"
            lines += wrap(text, 100, subsequent_indent=" " * 21)
        for note in self.notes:
            lines += ["", *wrap(note, 100)]
        return "\n".join(lines)


def plan(
    n: SupportsIndex,
    *,
    alpha: Level,
    guarantee: Literal["marginal", "pac"] = "marginal",
    delta: Level = 0.05,
    spread: float | None = None,
    candidates: SupportsIndex = 16,
    tune_folds: SupportsIndex | None = None,
    test: SupportsIndex = 0,
) -> Plan:
    """Divide `n` rows among training, tuning and calibration, with reasons.

    Calibration gets the rows for which the standard deviation of coverage is at most `spread`
    (`dco.theory.calibration_size`), but at most a third of all rows, because a further row is then
    worth more in training. A quarter of the rest tunes, up to 2,000 rows: a rule of thumb, not a
    theorem. With `tune_folds`, or a single candidate, tuning costs no rows.

    Parameters
    ----------
    n
        All rows there are.
    alpha, guarantee, delta
        What is to be guaranteed, as in the estimators. Only "pac" uses `delta`.
    spread
        The standard deviation of coverage that is small enough. None is min(0.02, alpha / 5), so
        that the share of misses stays near a small `alpha`.
    candidates
        How many candidates will be compared.
    tune_folds
        Rank candidates by this many folds of the training rows.
    test
        Rows to set aside.

    Raises
    ------
    InfeasibleLevelError
        If there are too few rows for a finite threshold.
    """
    request = _read_request(
        alpha=alpha,
        guarantee=guarantee,
        delta=delta,
        spread=spread,
        candidates=candidates,
        tune_folds=tune_folds,
    )
    n_rows = as_count(n)
    n_test = as_count(test, name="test")
    smallest_useful_n = request.smallest_useful_size() + n_test
    _check_enough_rows(n_rows, n_test, request=request, smallest_useful_n=smallest_useful_n)

    now = request.divide_rows(n_rows, n_test)
    doubled = request.divide_rows(2 * n_rows, n_test)
    return Plan(
        n=n_rows,
        alpha=float(request.alpha),
        guarantee=guarantee,
        delta=None if request.delta is None else float(request.delta),
        spread=request.spread,
        rows=_explain_roles(request, now),
        now=now,
        doubled=doubled,
        smallest_useful_n=smallest_useful_n,
        notes=tuple(_list_notes(request, now, doubled, smallest_useful_n)),
    )


@dataclass(frozen=True)
class _Request:
    """What the caller of `plan` asked for, in exact numbers."""

    alpha: Fraction
    delta: Fraction | None  # None for the marginal guarantee
    spread: float
    n_candidates: int
    n_folds: int | None  # of cross-validation; None where tuning rows are held out

    @property
    def takes_tuning_rows(self) -> bool:
        """Whether tuning takes rows of its own."""
        return self.n_candidates > 1 and self.n_folds is None

    @cached_property
    def fewest_calibration_rows(self) -> int:
        """How many calibration rows a finite threshold needs."""
        return smallest_n_for(alpha=self.alpha, delta=self.delta)

    @cached_property
    def wanted_calibration_rows(self) -> int:
        """How many calibration rows make the standard deviation of coverage at most `spread`."""
        if self.delta is None:
            return calibration_size(alpha=self.alpha, spread=self.spread).recommended
        return self._count_wanted_rows_for_pac(self.delta)

    def _count_wanted_rows_for_pac(self, delta: Fraction) -> int:
        """Count the wanted rows for PAC, which is coverage >= 1 - alpha with probability 1 - delta.

        The PAC threshold is a higher calibration score than the marginal one (it has a higher
        rank), so coverage is higher, and varies less if 1 - alpha is above one half. This is no
        reason to calibrate with fewer rows: they are counted as for the marginal threshold.
        """
        # 1. Count them. Below one half coverage varies more at the PAC rank, which then decides.
        pac_delta = delta if self.alpha > Fraction(1, 2) else None
        size = calibration_size(alpha=self.alpha, spread=self.spread, pac_delta=pac_delta)
        enough = max(size.safe_from, self.fewest_calibration_rows)

        # 2. Ranks are whole numbers, and rounding them up makes coverage higher than wanted: take
        # the number of rows, from `enough` on, at which it is least too high.
        n_calibrate = least_wasteful_size(enough, alpha=self.alpha, delta=delta)

        # 3. With delta near 1/2 the PAC rank may be below the marginal one. Coverage then varies a
        # little more, and a few more rows are needed.
        while self.coverage_sd(n_calibrate) > self.spread:
            n_calibrate += 1
        return n_calibrate

    def coverage_sd(self, n_calibrate: int) -> float:
        """Return the standard deviation of coverage that these calibration rows imply."""
        rank = rank_for(n_calibrate, alpha=self.alpha, delta=self.delta)
        return math.sqrt(coverage_variance(rank, n_calibrate))

    def smallest_useful_size(self) -> int:
        """Return the fewest rows at which every role has something to do.

        Calibration has a finite threshold, tuning has rows of which one may be missed, and training
        has as many rows as both together.
        """
        tuning_rows = math.ceil(1 / self.alpha) if self.takes_tuning_rows else 0
        return 2 * (self.fewest_calibration_rows + tuning_rows)

    def divide_rows(self, n: int, n_test: int) -> PlannedSplit:
        """Divide n rows among training, tuning, calibration and `n_test` test rows.

        The record that is returned also says what coverage to expect. It is a random number, by the
        draw of the calibration rows, and its law is Beta(rank, n_calibrate + 1 - rank): the
        threshold is the calibration score of this rank.
        """
        # 1. Calibration takes its rows first, tuning a share of the rest, training what remains.
        n_calibrate = self.count_calibration_rows(n - n_test)
        n_train_and_tune = n - n_test - n_calibrate
        n_tune = 0
        if self.takes_tuning_rows:
            n_tune = min(math.floor(n_train_and_tune * TUNING_SHARE), ENOUGH_TUNING_ROWS)

        # 2. The law of coverage.
        rank = rank_for(n_calibrate, alpha=self.alpha, delta=self.delta)
        law = coverage_law_of_rank(rank, n_calibrate)
        low, high = law.ppf([0.05, 0.95])
        return PlannedSplit(
            n=n,
            train=n_train_and_tune - n_tune,
            tune=n_tune,
            calibrate=n_calibrate,
            test=n_test,
            rank=rank,
            expected_coverage=rank / (n_calibrate + 1),
            coverage_sd=float(law.std()),
            coverage_low=float(low),
            coverage_high=float(high),
        )

    def count_calibration_rows(self, n: int) -> int:
        """Choose how many of n rows calibrate; test rows are not among the n.

        As many as are wanted, but at most a third, and never too few for a finite threshold.
        """
        a_third = math.floor(n * LARGEST_CALIBRATION_SHARE)
        if self.wanted_calibration_rows <= a_third:
            return self.wanted_calibration_rows

        # The rank of the threshold is rounded up to a whole number, which makes coverage higher
        # than wanted. Slightly fewer rows than a third may need less rounding.
        at_most = max(a_third, self.fewest_calibration_rows)
        n_calibrate = least_wasteful_size(
            at_most, alpha=self.alpha, delta=self.delta, downwards=True
        )
        return max(self.fewest_calibration_rows, n_calibrate)


def _read_request(
    *,
    alpha: Level,
    guarantee: str,
    delta: Level,
    spread: float | None,
    candidates: SupportsIndex,
    tune_folds: SupportsIndex | None,
) -> _Request:
    """Check the arguments of `plan`, and fill in the default spread: min(0.02, alpha / 5)."""
    if guarantee not in ("marginal", "pac"):
        raise ValueError(f'guarantee must be "marginal" or "pac", got {guarantee!r}.')

    exact_alpha = as_rational(alpha)
    if spread is None:
        checked_spread = float(min(WIDEST_SPREAD, exact_alpha / 5))
    else:
        checked_spread = as_positive(spread, name="spread")

    exact_delta = as_rational(delta, name="delta") if guarantee == "pac" else None
    n_candidates = as_count(candidates, name="candidates", least=1)
    n_folds = None
    if tune_folds is not None:
        n_folds = as_count(tune_folds, name="tune_folds", least=2)

    return _Request(
        alpha=exact_alpha,
        delta=exact_delta,
        spread=checked_spread,
        n_candidates=n_candidates,
        n_folds=n_folds,
    )


def _check_enough_rows(
    n_rows: int, n_test: int, *, request: _Request, smallest_useful_n: int
) -> None:
    """Raise if the rows that calibration needs leave too few to train and tune on.

    `n_test` of the rows are for tests, and `smallest_useful_n` is the number of rows that the
    message recommends.
    """
    needed = request.fewest_calibration_rows
    if n_rows - n_test >= needed + FEWEST_FOR_OTHER_ROLES:
        return

    less_test_rows = f" less {counted(n_test, 'test row')}" if n_test else ""
    raise InfeasibleLevelError(
        f"{counted(n_rows, 'row')}{less_test_rows} {are(n_rows)} too few: calibration alone needs "
        f"{needed} for a finite threshold at alpha = {float(request.alpha):g}. A plan makes sense "
        f"from {smallest_useful_n} rows on."
    )


# ------------------------------------------------------------------------------ reasons and notes


def _explain_roles(request: _Request, now: PlannedSplit) -> tuple[PlanRow, ...]:
    """List the roles, each with its number of rows and the reason for it in a sentence."""
    train, tune = _explain_train_and_tune(request)
    rows = [
        PlanRow("train", now.train, train),
        PlanRow("tune", now.tune, tune),
        PlanRow("calibrate", now.calibrate, _explain_calibration(request, now)),
    ]
    if now.test > 0:
        test = "Set aside as asked, to compare coverage with its law."
        rows.append(PlanRow("test", now.test, test))
    return tuple(rows)


def _explain_train_and_tune(request: _Request) -> tuple[str, str]:
    """Say why training gets its rows, and why tuning gets its rows (or none)."""
    if request.takes_tuning_rows:
        train = (
            "All that is left. The winner is refitted on train and tune rows together, so "
            "tuning rows are not lost."
        )
        tune = (
            "A quarter of what calibration leaves, at most 2,000: a rule of thumb for ranking "
            "candidates by size."
        )
    elif request.n_candidates > 1:
        train = (
            f"All that is left: with {request.n_folds} folds every one of these rows both trains "
            f"and tunes."
        )
        tune = "None set aside: candidates are ranked on the folds of the training rows."
    else:
        train = "All that is left."
        tune = "None: a single candidate leaves nothing to choose."
    return train, tune


def _explain_calibration(request: _Request, now: PlannedSplit) -> str:
    """Say why calibration gets as many rows as it does, and which score its threshold is.

    `request` says how many rows are wanted for coverage to vary little, and `now` how many there
    are. The text goes into the table of a plan.
    """
    threshold = f"The threshold is score number {now.rank} of {now.calibrate}."
    if now.calibrate >= request.wanted_calibration_rows:
        return (
            f"Enough for a standard deviation of coverage of {request.spread:g}; more would only "
            f"be taken from training. {threshold}"
        )

    # 1. There are fewer rows than wanted: a third of all, or more where a finite threshold takes
    # more. A few less than a third may do, since the rank of the threshold is a whole number.
    is_more_than_a_third = now.calibrate > (now.n - now.test) * LARGEST_CALIBRATION_SHARE
    if is_more_than_a_third:
        reason = "The least that gives a finite threshold"
    else:
        reason = (
            "A third of the rows, by a rule of thumb, less those that would waste part of a rank"
        )

    # 2. Say how many are wanted. With a PAC guarantee coverage may vary as little as asked for
    # already, but only because it is higher than asked for: the text must not deny the former.
    varies_little_already = now.coverage_sd <= request.spread
    without_pac = ""
    if request.delta is not None and varies_little_already:
        without_pac = " without the margin of a PAC rank"
    wanted = (
        f"a standard deviation of coverage of {request.spread:g}{without_pac} needs "
        f"{request.wanted_calibration_rows}"
    )
    return f"{reason}; {wanted}. {threshold}"


def _list_notes(
    request: _Request, now: PlannedSplit, doubled: PlannedSplit, smallest_useful_n: int
) -> list[str]:
    """Write what a plan says below its table; `doubled` divides twice the rows of `now`."""
    notes = [_note_coverage(now)]
    if request.delta is not None:
        notes.append(_note_price_of_pac(now, request.alpha, request.delta))
    notes.append(_note_doubled_rows(request, now, doubled))
    if request.takes_tuning_rows and now.tune == 0:
        notes.append("There are no rows for tuning: use folds, or a single candidate.")
    notes.append(_note_smallest_useful_n(now.n, smallest_useful_n))
    return notes


def _note_coverage(now: PlannedSplit) -> str:
    """Say what coverage to expect, and how far it varies."""
    return (
        f"Coverage to expect: {now.expected_coverage:.4f} on average over calibration draws, "
        f"between {now.coverage_low:.4f} and {now.coverage_high:.4f} in nine of ten (5 % and 95 % "
        f"points of Beta({now.rank}, {now.calibrate + 1 - now.rank}))."
    )


def _note_price_of_pac(now: PlannedSplit, alpha: Fraction, delta: Fraction) -> str:
    """Say how much mean coverage a PAC guarantee adds, which makes sets larger."""
    gap = pac_gap(now.calibrate, alpha=alpha, delta=delta)
    return (
        f"The PAC guarantee costs {gap.exact:.4f} of coverage over the marginal one at this size "
        f"(about {gap.approximate:.4f} by z sqrt(alpha (1 - alpha) / n)); more calibration rows "
        f"make it cheaper."
    )


def _note_doubled_rows(request: _Request, now: PlannedSplit, doubled: PlannedSplit) -> str:
    """Say what would change with twice as many rows.

    `now` divides the rows there are among training, tuning and calibration, with the coverage that
    follows, and `doubled` divides twice as many.
    """
    fitted_now = now.train + now.tune
    fitted_if_doubled = doubled.train + doubled.tune

    # 1. If calibration needs no more rows, all new ones go to training and tuning.
    if doubled.calibrate == now.calibrate:
        has_enough_rows = now.calibrate >= request.wanted_calibration_rows
        varies_little = now.coverage_sd <= request.spread
        verdict = f"stays wider than wanted ({now.coverage_sd:.2g})"
        if has_enough_rows or varies_little:
            verdict = "is as wanted"
        return (
            f"Twice the rows would not change the spread of coverage, which {verdict}: all "
            f"{now.n} more would go to training and tuning ({fitted_now} to {fitted_if_doubled})."
        )

    # 2. Otherwise coverage changes too. Its range gets narrower; only from very few rows it gets
    # lower instead, since a PAC threshold is then the largest score.
    range_now = now.coverage_high - now.coverage_low
    range_if_doubled = doubled.coverage_high - doubled.coverage_low
    change = "narrow coverage to" if range_if_doubled < range_now else "bring coverage down to"
    return (
        f"Twice the rows would {change} {doubled.coverage_low:.4f} to {doubled.coverage_high:.4f} "
        f"with {counted(doubled.calibrate, 'calibration row')}, and leave {fitted_if_doubled} "
        f"instead of {fitted_now} for training and tuning."
    )


def _note_smallest_useful_n(n_rows: int, smallest_useful_n: int) -> str:
    """Say from how many rows on every role has something to do."""
    if n_rows >= smallest_useful_n:
        return f"The smallest useful number of rows is {smallest_useful_n}."
    return (
        f"The smallest useful number of rows would be {smallest_useful_n}. These rows are fewer: "
        f"the sets will be valid, and wide."
    )
