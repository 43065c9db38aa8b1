"""Plans: how many rows each role gets, why, and what coverage to expect."""

import itertools
import json
import math
from fractions import Fraction

import pytest
from scipy.stats import beta

import dco
from dco import conformal_rank, pac_rank, plan, theory
from dco.foundations.ranks import smallest_pac_n


def note(result: dco.Plan, opening: str) -> str:
    """The note that opens with these words."""
    (text,) = [text for text in result.notes if text.startswith(opening)]
    return text


def row_of(result: dco.Plan, role: str):
    """The row of the table that speaks of this role."""
    (row,) = [row for row in result.rows if row.role == role]
    return row


# ------------------------------------------------------------------------------------------- rows

GUARANTEES = ["marginal", "pac"]
guarantees = pytest.mark.parametrize("guarantee", GUARANTEES)
OPTIONS = [{}, {"tune_folds": 5}, {"candidates": 1}, {"test": 40}]


@pytest.fixture(
    scope="module",
    params=itertools.product(GUARANTEES, [0.01, 0.05, 0.1, 0.2, 0.15, 0.7, math.pi / 10], OPTIONS),
    ids=lambda case: f"{case[0]}-{case[1]:.3g}-{case[2] or 'default'}",
)
def plans(request) -> dict[int, dco.Plan]:
    """Plans for 400 to 100,000 rows, by their number."""
    guarantee, alpha, options = request.param
    sizes = [*range(400, 500, 7), 1000, 5003, 100_000]
    return {n: plan(n, alpha=alpha, guarantee=guarantee, **options) for n in sizes}


def test_every_row_has_one_role(plans):
    assert [sum(row.rows for row in result.rows) for result in plans.values()] == list(plans)


def test_no_role_has_fewer_than_no_rows_and_some_rows_train(plans):
    assert all(row.rows >= 0 for result in plans.values() for row in result.rows)
    assert all(result.train > 0 for result in plans.values())


def test_every_number_of_rows_has_a_reason(plans):
    assert all(row.reason.endswith(".") for result in plans.values() for row in result.rows)


def test_the_threshold_is_finite(plans):
    assert all(1 <= result.now.rank <= result.calibrate for result in plans.values())


def test_a_plan_and_its_table_agree_on_the_calibration_rows(plans):
    assert all(row_of(result, "calibrate").rows == result.calibrate for result in plans.values())


@pytest.mark.parametrize("options", [{"tune_folds": 5}, {"candidates": 1}], ids=["folds", "single"])
def test_folds_and_a_single_candidate_lose_no_rows_to_tuning(options):
    usual = plan(900, alpha=0.1)
    result = plan(900, alpha=0.1, **options)
    assert usual.tune > 0
    assert result.tune == 0
    assert result.train == usual.train + usual.tune


def test_folds_are_given_as_the_reason():
    result = plan(900, alpha=0.1, tune_folds=5)
    assert "5 folds" in row_of(result, "train").reason


def test_a_single_candidate_is_given_as_the_reason():
    result = plan(900, alpha=0.1, candidates=1)
    assert "single candidate" in row_of(result, "tune").reason


# ----------------------------------------------------------------------------------------- spread


@pytest.mark.parametrize(("spread", "wanted"), [(0.02, 229), (0.01, 899)])
def test_calibration_gets_what_the_spread_needs_and_not_more(spread, wanted):
    small = plan(10_000, alpha=0.1, spread=spread)
    large = plan(10_000_000, alpha=0.1, spread=spread)
    assert small.calibrate == wanted
    assert large.calibrate == wanted
    assert small.now.coverage_sd <= spread


@pytest.mark.parametrize(("spread", "wanted"), [(0.02, 229), (0.01, 899)])
def test_calibration_gets_the_size_that_theory_recommends(spread, wanted):
    assert theory.calibration_size(alpha=0.1, spread=spread).recommended == wanted


SMALL_ALPHAS = [Fraction(1, 1000), 0.01, 0.03, 0.05]
small_alphas = pytest.mark.parametrize("alpha", SMALL_ALPHAS, ids=str)


@guarantees
@small_alphas
def test_the_default_spread_is_a_fifth_of_a_small_alpha(alpha, guarantee):
    default = plan(1_000_000, alpha=alpha, guarantee=guarantee)
    explicit = plan(1_000_000, alpha=alpha, guarantee=guarantee, spread=float(alpha) / 5)
    assert default.spread == pytest.approx(float(alpha) / 5)
    assert default == explicit


@guarantees
@small_alphas
def test_the_default_spread_is_small_beside_a_small_alpha(alpha, guarantee):
    now = plan(1_000_000, alpha=alpha, guarantee=guarantee).now
    assert now.coverage_sd <= float(alpha) / 5
    assert 1 - now.coverage_low < 1.5 * float(alpha)


@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_the_default_spread_of_other_levels_is_two_per_cent(alpha):
    assert plan(10_000, alpha=alpha).spread == 0.02


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1, 0.3])
@pytest.mark.parametrize(
    ("words", "is_reached"),
    [("is as wanted", True), ("stays wider than wanted", False)],
    ids=["as wanted", "wider"],
)
def test_a_spread_is_called_as_wanted_only_where_it_is(alpha, words, is_reached):
    plans = [plan(n, alpha=alpha) for n in (*range(104, 140, 3), 300, 1000, 5000, 30_000)]
    so_called = [result for result in plans if words in note(result, "Twice the rows")]
    assert all((result.now.coverage_sd <= result.spread) == is_reached for result in so_called)


@pytest.mark.parametrize("n", [20, 26])
def test_a_spread_that_stays_wider_than_wanted_is_shown(n):
    result = plan(n, alpha=0.1)
    assert "stays wider than wanted (0.09)" in note(result, "Twice the rows")


@pytest.mark.parametrize(
    ("n", "spread", "words"),
    [
        (1005, 0.01, "coverage of 0.01 without the margin of a PAC rank needs"),
        (1005, 0.009, "coverage of 0.009 needs"),
        (131, 0.02, "coverage of 0.02 without the margin of a PAC rank needs"),
        (131, 0.01, "coverage of 0.01 needs"),
    ],
)
def test_a_spread_that_is_reached_is_not_said_to_need_more_rows(n, spread, words):
    """A PAC rank has less spread than the marginal one, by which rows are counted, only as its
    coverage is higher.
    """
    result = plan(n, alpha=0.05, guarantee="pac", spread=spread)
    is_reached = result.now.coverage_sd <= spread
    assert words in row_of(result, "calibrate").reason
    assert is_reached == ("without the margin" in words)


def test_the_margin_of_a_pac_rank_may_reach_the_spread_with_few_rows():
    result = plan(70, alpha=0.05, guarantee="pac", spread=0.02)
    assert result.calibrate == 59
    assert result.doubled.calibrate == 59
    assert result.now.coverage_sd < 0.02
    assert "which is as wanted" in note(result, "Twice the rows")


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
    assert row_of(result, "calibrate").reason.startswith("Enough for a standard deviation")
    assert result.now.coverage_sd <= spread


# --------------------------------------------------------------------------------------- few rows


@pytest.fixture(scope="module")
def small_plans() -> dict[int, dco.Plan]:
    """Plans for 30 to 699 rows at alpha = 0.1, where a spread of 0.02 needs 229 of them."""
    return {n: plan(n, alpha=0.1) for n in range(30, 700)}


def test_few_rows_leave_calibration_a_third_at_most_and_nine_at_least(small_plans):
    assert all(result.calibrate <= max(n / 3, 9) for n, result in small_plans.items())
    assert all(9 <= result.calibrate <= 229 for result in small_plans.values())


def test_few_rows_leave_calibration_all_but_ten_of_a_third(small_plans):
    by_a_third = {n: p for n, p in small_plans.items() if n >= 38 and p.calibrate < 229}
    assert all(result.calibrate > n // 3 - 10 for n, result in by_a_third.items())


def test_few_rows_waste_no_rank(small_plans):
    assert {(result.calibrate + 1) % 10 for result in small_plans.values()} == {0}


def test_a_third_of_the_rows_is_given_as_the_reason(small_plans):
    words = "A third of the rows, by a rule of thumb, less those that would waste part of a rank;"
    by_a_third = [result for result in small_plans.values() if result.calibrate < 229]
    assert all(row_of(result, "calibrate").reason.startswith(words) for result in by_a_third)


def test_the_least_that_calibrates_may_be_more_than_a_third():
    result = plan(60, alpha=0.1, test=40)
    assert result.calibrate == 9
    assert row_of(result, "calibrate").reason.startswith("The least that gives a finite threshold")


@pytest.mark.parametrize("n", range(150, 400, 7))
def test_few_rows_take_the_pac_rank_that_wastes_least(n):
    """At most a third of the rows calibrate, and of the ten sizes below that the one with the least
    rank / (n + 1).
    """
    levels = {"alpha": Fraction(1, 10), "delta": Fraction(1, 20)}
    third = max(n // 3, 29)
    waste = {m: Fraction(pac_rank(m, **levels), m + 1) for m in range(third, third - 10, -1)}
    best = min(waste, key=waste.get)
    assert plan(n, guarantee="pac", **levels).calibrate == max(29, best)


def test_fourteen_rows_are_enough_for_a_plan():
    assert plan(14, alpha=0.1).calibrate == 9


@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        (10, {}, r"10 rows are too few: calibration alone needs 9 .* from 38 rows on"),
        (13, {}, "13 rows are too few"),
        (60, {"test": 50}, "60 rows less 50 test rows"),
        (33, {"guarantee": "pac"}, "needs 29"),
    ],
    ids=["10 rows", "13 rows", "test rows", "PAC"],
)
def test_too_few_rows_are_refused_with_the_number_that_would_do(n, options, message):
    with pytest.raises(dco.InfeasibleLevelError, match=message):
        plan(n, alpha=0.1, **options)


smallest_useful = pytest.mark.parametrize(
    ("alpha", "folds", "n"),
    [(0.1, None, 2 * (9 + 10)), (0.1, 5, 18), (0.05, None, 2 * (19 + 20))],
)


@smallest_useful
def test_the_smallest_useful_number_of_rows_is_stated(alpha, folds, n):
    assert plan(1000, alpha=alpha, tune_folds=folds).smallest_useful_n == n


@smallest_useful
def test_the_smallest_useful_number_of_rows_can_be_planned(alpha, folds, n):
    result = plan(n, alpha=alpha, tune_folds=folds)
    assert math.isfinite(result.now.coverage_low)
    assert result.now.rank <= result.calibrate
    assert not any("are fewer" in text for text in result.notes)


@smallest_useful
def test_fewer_rows_than_are_useful_are_noted(alpha, folds, n):
    result = plan(n - 3, alpha=alpha, tune_folds=folds)
    assert any("are fewer" in text for text in result.notes)


def test_tuning_rows_of_the_smallest_useful_number_are_rounded_up():
    assert plan(100, alpha="0.3").smallest_useful_n == 2 * (3 + 4)


# ------------------------------------------------------------------------------ coverage to expect


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_expected_coverage_and_its_points_are_those_of_the_law(guarantee):
    now = plan(2000, alpha=0.1, guarantee=guarantee).now
    m = now.calibrate
    k = conformal_rank(m, alpha=0.1)
    if guarantee == "pac":
        k = pac_rank(m, alpha=0.1, delta=0.05)

    law = beta(k, m + 1 - k)

    assert now.rank == k
    assert now.expected_coverage == pytest.approx(law.mean())
    assert now.coverage_sd == pytest.approx(law.std())
    assert now.coverage_low == pytest.approx(law.ppf(0.05))
    assert now.coverage_high == pytest.approx(law.ppf(0.95))


def test_the_lower_point_of_a_pac_plan_keeps_the_level():
    """Delta is 5 %, and so is the lower point."""
    assert plan(2000, alpha=0.1, guarantee="pac").now.coverage_low >= 0.9


pac_cases = pytest.mark.parametrize(
    ("n", "alpha"), [(n, alpha) for n in (200, 1000, 20_000) for alpha in (0.05, 0.1, 0.2)]
)


@pac_cases
def test_pac_gets_no_fewer_calibration_rows_than_marginal(n, alpha):
    """Up to the window in which a size with a thrifty rank is looked for."""
    marginal = plan(n, alpha=alpha)
    pac = plan(n, alpha=alpha, guarantee="pac")
    assert pac.calibrate > marginal.calibrate - 1 / alpha


@pac_cases
def test_pac_gets_enough_calibration_rows_for_a_finite_threshold(n, alpha):
    result = plan(n, alpha=alpha, guarantee="pac")
    assert result.calibrate >= smallest_pac_n(alpha=alpha, delta=0.05)


@pac_cases
def test_pac_expects_more_coverage_than_marginal(n, alpha):
    marginal = plan(n, alpha=alpha).now
    pac = plan(n, alpha=alpha, guarantee="pac").now
    assert pac.expected_coverage > marginal.expected_coverage


# ---------------------------------------------------------------------------------- twice the rows


@pytest.mark.parametrize(
    ("n", "test"),
    [(300, 0), (442, 0), (50_000, 0), (1000, 300)],
    ids=["300", "442", "50,000", "test rows stay as asked"],
)
def test_twice_the_rows_is_the_plan_of_twice_the_rows(n, test):
    twice = plan(2 * n, alpha=0.1, test=test)
    assert plan(n, alpha=0.1, test=test).doubled == twice.now


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (442, "narrow coverage to 0.8657 to 0.9304 with 229"),
        (5000, "would not change the spread"),
    ],
    ids=["narrower", "the same"],
)
def test_the_note_on_twice_the_rows_says_what_changes(n, words):
    assert words in note(plan(n, alpha=0.1), "Twice the rows")


more_rows = pytest.mark.parametrize("n", [125, 171, 300])


def is_narrowed(result: dco.Plan) -> bool:
    """Whether twice the rows narrow the range of coverage."""
    now = result.now
    doubled = result.doubled
    return doubled.coverage_high - doubled.coverage_low < now.coverage_high - now.coverage_low


@guarantees
@more_rows
def test_twice_the_rows_narrow_coverage_only_where_they_do(n, guarantee):
    result = plan(n, alpha=0.1, guarantee=guarantee, delta=0.01)
    text = note(result, "Twice the rows would ")
    assert ("narrow coverage to" in text) == is_narrowed(result)


@guarantees
@more_rows
def test_twice_the_rows_narrow_coverage_or_bring_it_down(n, guarantee):
    """A PAC rank that leaves the largest score makes coverage lower and its range wider."""
    result = plan(n, alpha=0.1, guarantee=guarantee, delta=0.01)
    assert is_narrowed(result) or result.doubled.coverage_low < result.now.coverage_low


@pytest.mark.parametrize(
    ("guarantee", "comes_down"), [("marginal", False), ("pac", True)], ids=GUARANTEES
)
def test_coverage_that_comes_down_is_noted(guarantee, comes_down):
    result = plan(125, alpha=0.1, guarantee=guarantee, delta=0.01)
    text = note(result, "Twice the rows would ")
    assert ("bring coverage down to" in text) == comes_down


# -------------------------------------------------------------------------------- output and errors


@pytest.mark.parametrize(
    "words", ["train", "tune", "calibrate", "test", "delta = 0.05", "The PAC guarantee costs"]
)
def test_the_printed_plan_shows_every_role_and_the_costs(words):
    assert words in str(plan(442, alpha=0.1, guarantee="pac", test=40))


def test_the_printed_plan_fits_a_terminal():
    text = str(plan(442, alpha=0.1, guarantee="pac", test=40))
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_plan_is_strict_json_too():
    result = plan(442, alpha=Fraction(1, 10))
    values = json.loads(json.dumps(result.to_dict(), allow_nan=False))
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
    ],
    ids=str,
)
def test_bad_wishes_are_named(wish, message):
    with pytest.raises(ValueError, match=message):
        plan(**{"n": 100, "alpha": 0.1, **wish})


@pytest.mark.parametrize("spread", [0, -0.1, "a", "0.02", [0.02], math.nan, math.inf, True])
def test_a_bad_spread_is_named(spread):
    with pytest.raises(ValueError, match="spread must be a positive number, got"):
        plan(100, alpha=0.1, spread=spread)
