"""Facts shared by the rules for loss matrices."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy.stats import binom, multinomial

from dco import bayesian_quadrature, split_conformal
from dco.foundations.errors import InfeasibleLevelWarning
from dco.foundations.ranks import conformal_rank, pac_rank
from dco.risk import (
    bayesian_quadrature_risk,
    bq_confidence,
    conformal_risk_control,
    learn_then_test,
    miscoverage,
    order_of_testing,
    risk_controlling,
)
from dco.risk.column_tests import (
    betting_p_value,
    binomial_p_value,
    hoeffding_bentkus_p_value,
)
from dco.risk.loss_matrix import ceil_of_sum
from dco.risk.quadrature import bq_failure

pytestmark = pytest.mark.filterwarnings("ignore::dco.foundations.errors.InfeasibleLevelWarning")
RULES = {
    "conformal_risk_control": partial(conformal_risk_control, alpha=0.3),
    "bayesian_quadrature_risk": partial(bayesian_quadrature_risk, alpha=0.3, delta=0.1),
    "wsr": partial(risk_controlling, alpha=0.3, delta=0.1),
    "hoeffding-bentkus": partial(risk_controlling, alpha=0.3, delta=0.1, test="hoeffding-bentkus"),
}


def certify(losses, **options):
    """`learn_then_test` of settings 0, 1, 2, ..."""
    n_columns = np.shape(losses[0] if isinstance(losses, list) else losses)[1]
    return learn_then_test(losses, np.arange(n_columns), **options)


def falling_losses(n=200, columns=50, seed=0):
    """Row i loses max(0, u_i - t)-like lattice amounts, never rising with t."""
    u = np.random.default_rng(seed).uniform(size=(n, 4))
    cuts = np.linspace(0.02, 1, columns)
    return (u[:, :, None] > cuts).mean(axis=1), cuts


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2, 0.3, 1 - 0.9, "0.35", 0.45, 0.7])
@pytest.mark.parametrize("n", [3, 9, 19, 99, 120])
@pytest.mark.parametrize("tied", [False, True])
def test_zero_one_loss_is_one_order_statistic(n, alpha, tied):
    """On 0/1 loss CRC is split conformal; BQ, binomial RCPS and fixed-sequence LTT are the PAC
    rank. Exactly.
    """
    rng = np.random.default_rng(n)
    scores = rng.integers(0, 12, size=n).astype(float) if tied else rng.normal(size=n)
    cuts = np.unique(scores)
    losses = miscoverage(scores, None, cuts)
    crc = conformal_risk_control(losses, cuts, alpha=alpha, safe_at_infinity=True)
    assert crc.value == split_conformal(scores, alpha=alpha).value
    if not tied and n == 99:  # thresholds 1..n are their own ranks
        losses = miscoverage(np.arange(1.0, n + 1), None, np.arange(1.0, n + 1))
        assert conformal_risk_control(
            losses, np.arange(1.0, n + 1), alpha=alpha
        ).value == conformal_rank(n, alpha=alpha)
    for delta in (0.05, 0.1, 0.3):
        pac = bayesian_quadrature(scores, alpha=alpha, delta=delta)
        bq = bayesian_quadrature_risk(losses, cuts, alpha=alpha, delta=delta, safe_at_infinity=True)
        rcps = risk_controlling(
            losses, cuts, alpha=alpha, delta=delta, test="binomial", safe_at_infinity=True
        )
        ltt = certify(losses[:, ::-1], alpha=alpha, delta=delta, test="binomial")
        assert bq.value == rcps.value == pac.value
        assert bq.guarantee == rcps.guarantee == ltt.guarantee == "pac"
        assert (cuts[::-1][ltt.indices[-1]] if len(ltt) else np.inf) == pac.value


def test_crc_against_brute_force_in_fractions():
    """Losses in sixths: their float sums miss the border by a rounding, the rule must not."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        n = int(rng.integers(5, 40))
        sixths = np.sort(rng.integers(0, 7, size=(n, 8)), axis=1)[:, ::-1]
        bounds = [Fraction(int(total) + 6, 6 * (n + 1)) for total in sixths.sum(axis=0)]
        alpha = bounds[int(rng.integers(3, 8))]  # exactly on the border of one column
        if alpha >= 1:
            continue
        truth = next(j for j, bound in enumerate(bounds) if bound <= alpha)
        assert conformal_risk_control(sixths / 6, np.arange(8.0), alpha=alpha).value == truth


def test_crc_pays_the_whole_bound():
    """Nine rows and a largest loss of 8: (sum + 8) / 10 <= 0.8 allows no loss at all."""
    losses, cuts = falling_losses()
    one, eight = (
        conformal_risk_control(losses * b, cuts, alpha=f"{0.3 * b:.1f}", bound=b) for b in (1, 8)
    )
    assert (eight.value, eight.alpha) == (one.value, 2.4)
    assert (one.guarantee, one.delta) == ("expected_risk", None)
    for loss, value in ((0.5, 2.0), (0.0, 1.0)):
        matrix = np.zeros((9, 2))
        matrix[0, 0] = loss
        assert conformal_risk_control(matrix, [1.0, 2.0], alpha=0.8, bound=8).value == value


def test_crc_counts_no_loss_where_it_certifies_nothing():
    """One threshold of risk 1/2 and ten rows, over all counts of losses: 0.3 holds for all draws,
    not for the certified.
    """
    expected = certified = 0.0
    for errors in range(11):
        chance = binom.pmf(errors, 10, 0.5)
        rule = conformal_risk_control((np.arange(10) < errors)[:, None] * 1.0, [1.0], alpha=0.3)
        certified += chance * (rule.guarantee == "expected_risk")
        expected += chance * 0.5 * (rule.guarantee == "expected_risk")
    assert 0 < expected <= 0.3 < expected / certified


def test_bq_takes_the_first_column_with_enough_confidence():
    losses, cuts = falling_losses()
    confident = [bq_confidence(losses[:, j], alpha=0.3) >= 0.9 for j in range(len(cuts))]
    rule = bayesian_quadrature_risk(losses, cuts, alpha=0.3, delta=0.1)
    assert rule.value == cuts[confident.index(True)]
    assert rule.guarantee == "pac-conjectured"


@pytest.mark.parametrize(("n", "alpha", "delta"), [(25, 0.2, 0.1), (30, 0.1, 0.05), (12, 0.5, 0.2)])
def test_bq_errs_under_the_name_pac_with_probability_at_most_delta(n, alpha, delta):
    """A loss of 1, 1/2 or 0 with probabilities p, q and the rest, at a risk p + q / 2 = alpha; over
    all samples, exactly.
    """
    allowed = n - pac_rank(n, alpha=alpha, delta=delta)  # so many losses of 1
    wrong = np.zeros((n + 1, n + 1), dtype=bool)  # by the numbers of losses of 1 and of 1/2
    for ones in range(n + 1):
        for halves in range(n + 1 - ones):
            losses = np.zeros((n, 2))
            losses[:ones, 0] = 1.0
            losses[ones : ones + halves, 0] = 0.5
            rule = bayesian_quadrature_risk(losses, [0.0, 1.0], alpha=alpha, delta=delta)
            assert rule.guarantee == ("pac" if halves == 0 else "pac-conjectured")
            wrong[ones, halves] = rule.guarantee == "pac" and rule.value == 0.0
    counts, chance = np.argwhere(wrong), {}
    samples = np.column_stack([counts, n - counts.sum(axis=1)])
    for q in np.linspace(0, 2 * min(alpha, 1 - alpha), 21):
        p = alpha - q / 2
        chance[q] = float(multinomial.pmf(samples, n, [p, q, 1 - p - q]).sum())
    assert max(chance.values()) <= delta
    assert chance[0.0] == pytest.approx(binom.cdf(allowed, n, alpha))
    # one more loss would be too many: the bound is used up
    assert binom.cdf(allowed + 1, n, alpha) > delta


@pytest.mark.parametrize("name", RULES)
def test_thresholds_fall_as_alpha_grows_whatever_the_order_of_rows(name):
    losses, cuts = falling_losses()
    values = [RULES[name](losses, cuts, alpha=a).value for a in (0.1, 0.2, 0.3, 0.5, 0.8)]
    assert np.all(np.diff(values) <= 0)
    assert values[0] > values[-1]
    assert RULES[name](np.zeros((100, 4)), np.arange(4.0)).value == 0.0  # every column passes
    shuffled = np.random.default_rng(9).permutation(len(losses))
    # wsr bets row after row
    assert name == "wsr" or RULES[name](losses, cuts) == RULES[name](losses[shuffled], cuts)


@pytest.mark.parametrize("name", RULES)
def test_no_column_passes(name):
    for safe, said, guarantee in (
        (False, "not certified", {"none"}),
        (True, "safe_at_infinity", {"expected_risk", "pac"}),
    ):
        with pytest.warns(InfeasibleLevelWarning, match=said):
            found = RULES[name](np.ones((30, 3)), np.arange(3.0), safe_at_infinity=safe)
        assert found.value == np.inf
        assert found.guarantee in guarantee


LOSSES, CUTS = falling_losses(20, 5)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(
    ("losses", "cuts", "options", "message"),
    [
        (LOSSES, CUTS[:4], {}, "one number for each of the 5 columns"),
        (LOSSES, CUTS[::-1], {}, "strictly ascending"),
        (LOSSES, CUTS[[0, 1, 1, 2, 3]], {}, "strictly ascending"),
        *(
            (LOSSES, wrong, {}, r"^thresholds must be real numbers, got ")
            for wrong in ("abcde", list("abcde"), {1: 2}, [0, 1, 2, 3, [4]], [1j] * 5)
        ),
        (
            [[1.0, 0.5], [1.0]],
            CUTS,
            {},
            r"^losses must be real numbers, got lists of different "
            r"lengths",
        ),
        (np.full((20, 5), 2.0), CUTS, {}, r"\[0, bound\] = \[0, 1\], but they range from 2 to 2"),
        (LOSSES - 1, CUTS, {}, r"\[0, bound\]"),
        (np.where(LOSSES > 0.5, np.nan, LOSSES), CUTS, {}, "NaN"),
        (LOSSES[:, 0], CUTS, {}, "a matrix"),
        (LOSSES[:0], CUTS, {}, "at least one row"),
        (LOSSES, CUTS, {"bound": 0}, "bound must be a positive number, got 0"),
        (LOSSES, CUTS, {"bound": "one"}, "bound must be a positive number, got 'one'"),
        (LOSSES, CUTS, {"alpha": 1.0}, "alpha"),
        (
            LOSSES,
            CUTS,
            {"alpha": 8.0, "bound": 8.0},
            "alpha must be a number strictly between 0 and bound",
        ),
    ],
)
def test_bad_input_is_refused(name, losses, cuts, options, message):
    with pytest.raises(ValueError, match=message):
        RULES[name](losses, cuts, **options)


@pytest.mark.parametrize("name", ["conformal_risk_control", "bayesian_quadrature_risk"])
def test_rising_losses_are_refused_where_falling_ones_are_needed(name):
    with pytest.raises(ValueError, match=r"row 0 rises from column .* learn_then_test"):
        RULES[name](LOSSES[:, ::-1], CUTS)


def test_rcps_stops_at_the_first_failure_from_the_safe_end():
    """A column that would pass again beyond a failure is not reached."""
    losses = np.tile([0.0, 1.0, 0.0, 0.0], (100, 1))
    for test in ("wsr", "hoeffding-bentkus", "binomial"):
        assert (
            risk_controlling(losses, np.arange(4.0), alpha=0.3, delta=0.1, test=test).value == 2.0
        )


@pytest.mark.parametrize(
    ("test", "message"),
    [("binomial", "every loss must be 0 or"), ("t-test", "test must be one of")],
)
def test_rcps_refuses_a_test_that_does_not_fit(test, message):
    with pytest.raises(ValueError, match=message):
        RULES["wsr"](*falling_losses(), test=test)


def test_hoeffding_bentkus_by_hand():
    """No loss at all: Hoeffding's term is (1 - alpha)^n, below Bentkus's e (1 - alpha)^n."""

    def p_value(count, loss, n):
        return hoeffding_bentkus_p_value(
            np.repeat([loss, 0.0], [count, n - count]), Fraction(1, 10)
        )

    assert p_value(0, 1.0, 20) == pytest.approx(0.9**20)
    assert p_value(20, 0.5, 20) == p_value(20, 1.0, 20) == 1.0
    assert binomial_p_value(15, 200, Fraction(1, 10)) < p_value(15, 1.0, 200)
    # 14.5 is 15
    assert (
        p_value(15, 1.0, 200)
        == p_value(29, 0.5, 200)
        == pytest.approx(math.e * binom.cdf(15, 200, 0.1))
    )


def test_wsr_against_the_plain_recursion():
    """The vectorised martingale is the textbook's loop."""
    losses, level, delta = np.random.default_rng(0).uniform(size=40) ** 2, 0.5, 0.1
    total, squares, variance, capital, best = 0.5, 0.25, 0.25, 1.0, 1.0
    for i, loss in enumerate(losses, start=1):
        bet = min(1.0, np.sqrt(2 * np.log(1 / delta) / (len(losses) * variance)))
        capital *= 1 - bet * (loss - level)
        best = max(best, capital)
        total += loss
        squares += (loss - total / (i + 1)) ** 2
        variance = squares / (i + 1)
    assert betting_p_value(losses, level, delta=delta) == pytest.approx(1 / best, rel=1e-10)


def test_a_larger_loss_never_lowers_the_p_value_of_a_count_or_a_mean():
    """So a column that passes speaks for all thresholds up to the next, wherever the columns come
    from.
    """
    rng = np.random.default_rng(0)
    for _ in range(300):
        n, level = int(rng.integers(1, 60)), Fraction(int(rng.integers(1, 20)), 20)
        losses = rng.uniform(size=n) * (rng.uniform(size=n) < rng.uniform())
        larger = losses + (1 - losses) * rng.uniform(size=n) * (rng.uniform(size=n) < 0.2)
        assert hoeffding_bentkus_p_value(losses, level) <= hoeffding_bentkus_p_value(
            larger, level
        ) * (1 + 1e-9)
        few, more = sorted(rng.integers(0, n + 1, size=2).tolist())
        assert binomial_p_value(few, n, level) <= binomial_p_value(more, n, level)


def test_a_larger_loss_can_lower_the_p_value_of_wsr():
    """400 losses of 0.5, or ten of them 0: the larger ones vary less, so that bets on them are
    higher.
    """
    larger, smaller = np.full(400, 0.5), np.repeat([0.0, 0.5], [10, 390])
    assert betting_p_value(larger, 0.6, delta=0.05) < betting_p_value(smaller, 0.6, delta=0.05) / 2


@pytest.mark.parametrize("seed", range(20))
def test_bets_of_wsr_are_sized_for_the_level_and_made_in_one_order_of_the_rows(seed):
    """Delta for RCPS, delta / J for LTT without an order; the seed gives the order for all
    columns.
    """
    alpha, delta, n, columns = 0.3, 0.01, 80, 40
    rng, cuts = np.random.default_rng(seed), np.linspace(0, 1, columns)
    losses = rng.uniform(size=(n, 1)) * (rng.uniform(size=(n, 1)) > cuts)
    ordered = losses[np.random.default_rng(seed).permutation(n)]
    column = columns
    while column and betting_p_value(ordered[:, column - 1], alpha, delta=delta) <= delta:
        column -= 1
    assert column < columns
    assert (
        risk_controlling(
            losses, cuts, alpha=alpha, delta=delta, test="wsr", random_state=seed
        ).value
        == cuts[column]
    )
    for correction in ("bonferroni", "holm"):
        found = certify(
            losses, alpha=alpha, delta=delta, test="wsr", correction=correction, random_state=seed
        )
        assert found.p_values == pytest.approx(
            [betting_p_value(own, alpha, delta=delta / columns) for own in ordered.T]
        )


# ---- learn then test


def test_fixed_sequence_stops_at_the_first_failure():
    falling = certify(
        np.arange(100)[:, None] < [9, 6, 3, 0], alpha=0.3, delta=0.1, correction="holm"
    )
    assert np.all(np.diff(falling.p_values) < 0)
    # ascending whatever the order of their p-values
    assert falling.indices.tolist() == [0, 1, 2, 3]
    losses = np.tile([0.0, 0.0, 1.0, 0.0, 0.0], (100, 1))
    for correction, found in {
        "fixed-sequence": [0, 1],
        "bonferroni": [0, 1, 3, 4],
        "holm": [0, 1, 3, 4],
    }.items():
        record = certify(losses, alpha=0.2, delta=0.1, correction=correction)
        assert np.asarray(record).tolist() == found
        assert len(record) == len(found)
        assert record.p_values.shape == (5,)


def test_holm_holds_what_bonferroni_holds_and_more():
    """By their definitions; columns between delta / 6 and delta / 5 make Holm's second step
    matter.
    """
    rng, more = np.random.default_rng(3), 0
    for _ in range(300):
        losses = (rng.uniform(size=(60, 6)) < rng.uniform(0, 0.3, size=6)).astype(float)
        bonferroni, holm = (
            certify(losses, alpha=0.2, delta=0.1, test="binomial", correction=c)
            for c in ("bonferroni", "holm")
        )
        p = np.sort(holm.p_values)
        fails = np.flatnonzero(p > 0.1 / (6 - np.arange(6)))
        assert len(holm) == (fails[0] if fails.size else 6)
        assert set(bonferroni.indices) <= set(holm.indices)
        more += len(bonferroni) < len(holm)
    assert more > 0


def test_several_risks_take_the_largest_p_value():
    rng = np.random.default_rng(0)
    first, second = ((rng.uniform(size=(80, 4)) < share).astype(float) for share in (0.1, 0.2))
    options = {"alpha": [0.2, 0.4], "delta": 0.1, "test": "binomial"}
    both = certify([first, second], **options)
    alone = [
        certify(one, **{**options, "alpha": a}).p_values for one, a in ((first, 0.2), (second, 0.4))
    ]
    assert np.array_equal(both.p_values, np.maximum(*alone))
    assert np.array_equal(
        both.p_values, certify(np.stack([first, second], axis=2), **options).p_values
    )
    marks = rng.uniform(size=(80, 4, 2)) < 0.7
    in_a_list = certify([first, second], where=[marks[:, :, 0], marks[:, :, 1]], **options)
    in_one_array = certify(np.stack([first, second], axis=2), where=marks, **options)
    assert np.array_equal(in_a_list.p_values, in_one_array.p_values)
    assert not np.array_equal(in_a_list.p_values, both.p_values)
    assert both.alpha == (0.2, 0.4)
    assert certify([first, second[:60]], **options).n == 60  # the fewest rows are reported


@pytest.mark.parametrize("correction", ["fixed-sequence", "bonferroni", "holm"])
@pytest.mark.parametrize("test", ["binomial", "hoeffding-bentkus", "wsr"])
def test_a_column_is_certified_only_if_all_its_risks_are(test, correction):
    """One risk never happens, the other always."""
    safe, unsafe = np.zeros((60, 3)), np.ones((60, 3))
    for risks in ([safe, unsafe], [unsafe, safe]):
        with pytest.warns(InfeasibleLevelWarning, match="No setting is certified"):
            assert len(certify(risks, alpha=0.2, delta=0.1, test=test, correction=correction)) == 0
    assert len(certify([safe, safe], alpha=0.2, delta=0.1, test=test, correction=correction)) == 3


def test_where_is_the_test_on_the_rows_that_count():
    rng = np.random.default_rng(0)
    losses, counted = (
        (rng.uniform(size=(80, 3)) < 0.1).astype(float),
        rng.uniform(size=(80, 3)) < 0.6,
    )
    counted[:, 2] = False
    for test in ("binomial", "hoeffding-bentkus"):
        record = certify(
            losses, alpha=0.2, delta=0.1, test=test, where=counted, correction="bonferroni"
        )
        kept = losses[counted[:, 0], :1]
        alone = certify(kept, alpha=0.2, delta=0.1, test=test)
        assert record.p_values[0] == pytest.approx(alone.p_values[0], rel=1e-12)
        assert record.p_values[2] == 1.0
        assert 2 not in record.indices


def test_a_first_column_that_fails_is_told_where_another_order_would_certify():
    falling = np.tile(np.linspace(1, 0, 101), (500, 1))
    with pytest.warns(
        InfeasibleLevelWarning,
        match=r"first column failed .* order=range.* "
        r"order_of_testing",
    ) as told:
        assert len(certify(falling, alpha=0.1, delta=0.05)) == 0
    assert told[0].filename == __file__
    assert len(certify(falling[:, ::-1], alpha=0.1, delta=0.05)) > 0
    losses = np.ones((10, 5))  # no failures in 10 rows: p = 0.9^10 = 0.349 whatever the order
    losses[:, 3] = 0
    for correction, level in (("fixed-sequence", "0.05"), ("bonferroni", "0.01"), ("holm", "0.01")):
        said = rf"5 columns is 0.349 \(column 3\), .* at most {level}\. More rows"
        with pytest.warns(InfeasibleLevelWarning, match=said):
            certify(losses, alpha=0.1, delta=0.05, test="binomial", correction=correction)


def test_the_result_prints_in_two_short_lines():
    losses = np.zeros((500, 20))
    losses[:, [3, 4, 9]] = 1
    levels, every_second = {"delta": 0.05, "correction": "holm"}, np.tile([0.0, 1.0], (500, 20))
    assert str(certify(losses, alpha=0.1, **levels)) == (
        "17 of 20 settings certified: risk <= 0.1 with probability >= 0.95 (500 rows)\ncolumns 0 "
        "to 2, 5 to 8, 10 to 19"
    )
    several = str(certify([every_second] * 2, alpha=[0.1, 0.2], **levels))
    assert several.startswith("20 of 40 settings certified: risks <= 0.1, 0.2 with")
    assert several.endswith("\ncolumns 0, 2, 4, 6, 8, 10, ...")
    none = certify(np.ones((50, 4)), alpha=0.1, delta=0.05)
    assert str(none).endswith("\np-values: 1 of the first column, 1 the smallest")


def test_an_order_learned_on_tuning_rows():
    losses = np.array([[0.5, 0.0, 1.0, 0.25], [0.5, 0.0, 1.0, 0.25]])
    assert order_of_testing(losses, alpha=0.2).tolist() == [1, 3, 0, 2]
    other = losses[:, ::-1]
    assert order_of_testing([losses, other], alpha=[0.2, 0.9]).tolist() == [1, 3, 0, 2]
    counted = np.array([[True, False, True, True]] * 2)
    assert order_of_testing(losses, alpha=0.2, where=counted).tolist() == [3, 0, 2, 1]
    assert order_of_testing(
        [[1.0, 0.2], [0.0, 0.2]], alpha=0.5, where=[[0, 1], [1, 1]]
    ).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("losses", "options", "message"),
    [
        (np.zeros((10, 3)), {"correction": "sidak"}, "correction must be"),
        ([np.zeros((10, 3)), np.zeros((10, 2))], {}, "same columns"),
        ([np.zeros((10, 3))] * 2, {"alpha": [0.1, 0.1, 0.1]}, "each of the 2 risks"),
        (np.zeros((10, 3)), {"where": np.ones((10, 2), bool)}, "shape of its losses"),
        (np.zeros((10, 3)), {"where": np.full((10, 3), np.nan)}, "True or False"),
        (np.zeros((10, 3)), {"delta": 0}, "delta must be"),
    ],
)
def test_bad_input_of_learn_then_test_is_refused(losses, options, message):
    with pytest.raises(ValueError, match=message):
        certify(losses, **{"alpha": 0.1, "delta": 0.1, **options})
    if message == "same columns":
        with pytest.raises(ValueError, match=message):
            order_of_testing(losses, alpha=0.1)


def test_sums_on_a_border_are_those_of_the_decimals():
    """0.1 + 0.1 + 0.1 is above 0.3 in floats, and a hundred times 0.55 above 55, even when summed
    without rounding.
    """
    losses = np.repeat([0.1, 0.0], [3, 9])[:, None]
    assert math.fsum(losses[:, 0]) > 0.3
    assert conformal_risk_control(losses, [1.0], alpha=0.1).value == 1.0  # (0.3 + 1) / 13 is 0.1
    assert math.fsum(np.full(100, 0.55)) > 55
    assert [ceil_of_sum(np.full(n, x)) for n, x in ((100, 0.55), (30, 0.1), (7, 0.3))] == [55, 3, 3]


def test_a_p_value_of_exactly_delta_certifies():
    losses = np.random.default_rng(0).uniform(0, 0.4, size=(20, 1))
    p_value = hoeffding_bentkus_p_value(losses[:, 0], Fraction(3, 10))
    for delta, certified in ((p_value, 1), (math.nextafter(p_value, 0), 0)):
        assert len(certify(losses, alpha=0.3, delta=delta)) == certified


def test_a_tiny_delta_is_decided_by_digits_that_mean_something():
    """P(L+ > 0.16) is about 1e-19 for these losses, which an absolute error of 1e-12 would hide."""
    losses = np.repeat([0.0, 0.1, 0.5], [300, 100, 30])
    failure = bq_failure(losses, Fraction(4, 25), at_most=1e-18)
    assert 0 < failure < 1e-17
    enough = bayesian_quadrature_risk(losses[:, None], [1.0], alpha=0.16, delta=2 * failure)
    assert (enough.value, enough.guarantee) == (1.0, "pac-conjectured")
    with pytest.warns(InfeasibleLevelWarning, match="not certified"):
        assert (
            bayesian_quadrature_risk(losses[:, None], [1.0], alpha=0.16, delta=failure / 2).value
            == np.inf
        )


def test_certified_settings_are_those_of_the_columns_in_whatever_order_they_are_tested():
    falling, cuts = falling_losses()
    certified = learn_then_test(falling, cuts, alpha=0.3, delta=0.1, order=np.arange(50)[::-1])
    rcps = risk_controlling(falling, cuts, alpha=0.3, delta=0.1, test="hoeffding-bentkus")
    assert certified.values.tolist() == cuts[certified.indices].tolist()
    assert certified.values.min() == rcps.value
    assert certified.values.max() == cuts[-1]


def test_a_setting_can_be_anything():
    losses = np.tile([0.0, 0.0, 1.0], (100, 1))
    certified = learn_then_test(losses, ["small", "medium", "large"], alpha=0.2, delta=0.1)
    assert certified.values.tolist() == ["small", "medium"]


@pytest.mark.parametrize(
    ("thresholds", "options", "message"),
    [
        ([1.0, 2.0], {}, "one setting for each of the 3 columns"),
        ([1.0, 2.0, 3.0], {"order": [0, 3]}, "column numbers from 0 to 2"),
        ([1.0, 2.0, 3.0], {"order": [0, 0]}, "names a column twice"),
        ([1.0, 2.0, 3.0], {"order": [2, 1, 0], "correction": "holm"}, "order is for correction"),
    ],
    ids=["too few settings", "no such column", "twice", "no order needed"],
)
def test_settings_or_an_order_that_do_not_fit_are_refused(thresholds, options, message):
    with pytest.raises(ValueError, match=message):
        learn_then_test(np.zeros((10, 3)), thresholds, alpha=0.1, delta=0.1, **options)
