import json
import math
from fractions import Fraction

import pytest
from scipy.stats import beta

from dco import theory
from dco.certificate.planning import Plan, plan
from dco.foundations.errors import InfeasibleLevelError
from dco.foundations.ranks import pac_rank, rank_for, smallest_pac_n


def note(result: Plan, opening: str) -> str:
    return next(text for text in result.notes if text.startswith(opening))


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1, 0.2, 0.15, 0.7, math.pi / 10])
@pytest.mark.parametrize(
    "options", [{}, {"tune_folds": 5}, {"candidates": 1}, {"test": 40}], ids=str
)
def test_every_row_has_one_role_and_the_threshold_is_finite(guarantee, alpha, options):
    for n in (*range(400, 500, 7), 1000, 5003, 100_000):
        result = plan(n, alpha=alpha, guarantee=guarantee, **options)
        assert sum(row.rows for row in result.rows) == n
        assert all(row.rows >= 0 and row.reason.endswith(".") for row in result.rows)
        assert result.train > 0
        assert 1 <= result.now.rank <= result.calibrate
        assert {row.role: row.rows for row in result.rows}["calibrate"] == result.calibrate


def test_calibration_gets_what_the_spread_needs_and_not_more():
    for spread, wanted in ((0.02, 229), (0.01, 899)):
        assert theory.calibration_size(alpha=0.1, spread=spread).recommended == wanted
        small, large = (
            plan(10_000, alpha=0.1, spread=spread),
            plan(10_000_000, alpha=0.1, spread=spread),
        )
        assert small.calibrate == large.calibrate == wanted
        assert small.now.coverage_sd <= spread


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
@pytest.mark.parametrize("alpha", [Fraction(1, 1000), 0.01, 0.03, 0.05])
def test_the_default_spread_is_small_beside_a_small_alpha(alpha, guarantee):
    result = plan(1_000_000, alpha=alpha, guarantee=guarantee)
    assert result.spread == pytest.approx(float(alpha) / 5)
    assert result.now.coverage_sd <= float(alpha) / 5
    assert 1 - result.now.coverage_low < 1.5 * float(alpha)
    assert plan(1_000_000, alpha=alpha, guarantee=guarantee, spread=float(alpha) / 5) == result
    assert plan(10_000, alpha=0.3).spread == plan(10_000, alpha=0.1).spread == 0.02


def test_a_spread_is_called_as_wanted_only_where_it_is():
    for alpha in (0.01, 0.05, 0.1, 0.3):
        for n in (*range(104, 140, 3), 300, 1000, 5000, 30_000):
            result = plan(n, alpha=alpha)
            text = note(result, "Twice the rows")
            if "is as wanted" in text:
                assert result.now.coverage_sd <= result.spread
            if "stays wider than wanted" in text:
                assert result.now.coverage_sd > result.spread
    for n in (20, 26):
        assert "stays wider than wanted (0.09)" in note(plan(n, alpha=0.1), "Twice the rows")


def test_few_rows_leave_calibration_at_most_a_third_and_the_reason_says_so():
    def reason(n, **options):
        (row,) = [row for row in plan(n, alpha=0.1, **options).rows if row.role == "calibrate"]
        return row.rows, row.reason

    for n in range(30, 700):
        rows, said = reason(n)
        assert rows <= max(n / 3, 9)
        assert rows <= 229
        assert (rows + 1) % 10 == 0  # no rank is wasted
        third = (
            "A third of the rows, by a rule of thumb, less those that would waste part of a rank;"
        )
        assert rows == 229 or said.startswith(third)
        assert rows == 229 or n < 38 or n // 3 - 10 < rows <= n // 3  # 9 of 38 is not a third
    rows, said = reason(60, test=40)
    assert rows == 9  # more than a third of the 20 rows that tests leave
    assert said.startswith("The least that gives a finite threshold")


def test_a_spread_that_is_reached_is_not_said_to_need_more_rows():
    """A PAC rank has less spread than the marginal one, by which rows are counted, only as its
    coverage is higher.
    """
    for n, spread, reached in [
        (1005, 0.01, True),
        (1005, 0.009, False),
        (131, 0.02, True),
        (131, 0.01, False),
    ]:
        result = plan(n, alpha=0.05, guarantee="pac", spread=spread)
        assert (result.now.coverage_sd <= spread) == reached
        said = (
            f"coverage of {spread}"
            + (" without the margin of a PAC rank" if reached else "")
            + " needs"
        )
        assert said in result.rows[2].reason
    few = plan(70, alpha=0.05, guarantee="pac", spread=0.02)
    assert few.calibrate == few.doubled.calibrate == 59
    assert few.now.coverage_sd < 0.02
    assert "which is as wanted" in note(few, "Twice the rows")


def test_few_rows_take_the_pac_rank_that_wastes_least():
    """At most a third of the rows calibrate, and of the ten sizes below that the one with the least
    rank / (n + 1).
    """
    levels = {"alpha": Fraction(1, 10), "delta": Fraction(1, 20)}
    for n in range(150, 400, 7):
        most = max(n // 3, 29)
        best = min(range(most, most - 10, -1), key=lambda m: Fraction(pac_rank(m, **levels), m + 1))
        assert plan(n, guarantee="pac", **levels).calibrate == max(29, best)


def test_expected_coverage_and_its_points_are_those_of_the_law():
    for guarantee, delta in [("marginal", None), ("pac", 0.05)]:
        now = plan(2000, alpha=0.1, guarantee=guarantee).now
        k, m = rank_for(now.calibrate, alpha=0.1, delta=delta), now.calibrate
        law, found = (
            beta(k, m + 1 - k),
            (now.expected_coverage, now.coverage_sd, now.coverage_low, now.coverage_high),
        )
        assert now.rank == k
        assert found == pytest.approx((law.mean(), law.std(), *law.ppf([0.05, 0.95])))
        if guarantee == "pac":
            assert now.coverage_low >= 0.9  # delta is 5 %, and so is the lower point


def test_pac_gets_no_fewer_calibration_rows_than_marginal():
    """Up to the window in which a size with a thrifty rank is looked for."""
    for n in (200, 1000, 20_000):
        for alpha in (0.05, 0.1, 0.2):
            marginal, pac = plan(n, alpha=alpha), plan(n, alpha=alpha, guarantee="pac")
            assert pac.calibrate > marginal.calibrate - 1 / alpha
            assert pac.now.expected_coverage > marginal.now.expected_coverage
            assert pac.calibrate >= smallest_pac_n(alpha=alpha, delta=0.05)


@pytest.mark.parametrize(
    ("alpha", "delta", "spread"),
    [(0.05, 0.5, 0.02), (0.1, 0.6, 0.02), (0.3, 0.9, 0.03), (0.7, 0.5, 0.03)]
    + [(alpha, 0.05, spread) for alpha in (0.2, 0.6, 0.8) for spread in (0.01, 0.03)],
)
def test_enough_rows_keep_the_spread_of_a_pac_plan_within_the_wish(alpha, delta, spread):
    """With a delta near 1/2 the PAC rank may be below the marginal one, with more spread at the
    same number of rows.
    """
    result = plan(50_000, alpha=alpha, guarantee="pac", delta=delta, spread=spread)
    assert result.rows[2].reason.startswith("Enough for a standard deviation")
    assert result.now.coverage_sd <= spread


def test_twice_the_rows_is_the_plan_of_twice_the_rows():
    for n, test in ((300, 0), (442, 0), (50_000, 0), (1000, 300)):  # test rows stay as asked
        assert plan(n, alpha=0.1, test=test).doubled == plan(2 * n, alpha=0.1, test=test).now
    assert "narrow coverage to 0.8657 to 0.9304 with 229" in note(
        plan(442, alpha=0.1), "Twice the rows"
    )
    assert "would not change the spread" in note(plan(5000, alpha=0.1), "Twice the rows")


@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
def test_twice_the_rows_narrow_coverage_only_where_they_do(guarantee):
    """A PAC rank that leaves the largest score makes coverage lower and its range wider, as that of
    125 rows does.
    """
    for n in (125, 171, 300):
        result = plan(n, alpha=0.1, guarantee=guarantee, delta=0.01)
        now, doubled, told = result.now, result.doubled, note(result, "Twice the rows would ")
        narrower = (
            doubled.coverage_high - doubled.coverage_low < now.coverage_high - now.coverage_low
        )
        assert ("narrow coverage to" in told) == narrower
        assert narrower or doubled.coverage_low < now.coverage_low
        assert n > 125 or ("bring coverage down to" in told) == (guarantee == "pac")


def test_folds_and_a_single_candidate_lose_no_rows_to_tuning():
    own, folds, single = (
        plan(900, alpha=0.1),
        plan(900, alpha=0.1, tune_folds=5),
        plan(900, alpha=0.1, candidates=1),
    )
    assert own.tune > 0
    assert folds.tune == single.tune == 0
    assert folds.train == single.train == own.train + own.tune
    assert "5 folds" in folds.rows[0].reason
    assert "single candidate" in single.rows[1].reason


def test_the_smallest_useful_n_is_said_and_can_be_planned():
    for alpha, folds, least in [
        (0.1, None, 2 * (9 + 10)),
        (0.1, 5, 18),
        (0.05, None, 2 * (19 + 20)),
    ]:
        result = plan(1000, alpha=alpha, tune_folds=folds)
        assert result.smallest_useful_n == least
        there = plan(least, alpha=alpha, tune_folds=folds)
        assert math.isfinite(there.now.coverage_low)
        assert there.now.rank <= there.calibrate
        assert not any("are fewer" in text for text in there.notes)
        assert any(
            "are fewer" in text for text in plan(least - 3, alpha=alpha, tune_folds=folds).notes
        )

    assert plan(100, alpha="0.3").smallest_useful_n == 2 * (3 + 4)  # tuning rows are rounded up


@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        (10, {}, r"10 rows are too few: calibration alone needs 9 .* from 38 rows on"),
        (13, {}, "13 rows are too few"),
        (60, {"test": 50}, "60 rows less 50 test rows"),
        (33, {"guarantee": "pac"}, "needs 29"),
    ],
)
def test_too_few_rows_are_refused_with_the_number_that_would_do(n, options, message):
    assert plan(14, alpha=0.1).calibrate == 9
    with pytest.raises(InfeasibleLevelError, match=message):
        plan(n, alpha=0.1, **options)


def test_the_printed_plan_shows_every_role_and_fits_a_terminal_and_is_strict_json_too():
    text = str(plan(442, alpha=0.1, guarantee="pac", test=40))
    for word in ("train", "tune", "calibrate", "test", "delta = 0.05", "The PAC guarantee costs"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 100
    values = json.loads(json.dumps(plan(442, alpha=Fraction(1, 10)).to_dict(), allow_nan=False))
    assert values["now"]["calibrate"] == 139
    assert [row["role"] for row in values["rows"]] == ["train", "tune", "calibrate"]


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"guarantee": "hope"}, "guarantee must be"),
        ({"alpha": 10}, "alpha must be"),
        ({"tune_folds": 1}, "tune_folds must be at least 2"),
        ({"candidates": 0}, "candidates must be at least 1"),
        ({"n": 100.0}, "n must be a whole number"),
        *(
            ({"spread": wrong}, "spread must be a positive number, got")
            for wrong in (0, -0.1, "a", "0.02", [0.02], math.nan, math.inf, True)
        ),
    ],
)
def test_bad_wishes_are_named(wish, message):
    with pytest.raises(ValueError, match=message):
        plan(**{"n": 100, "alpha": 0.1, **wish})
