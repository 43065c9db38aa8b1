"""Learn then test: p-values of columns, and which settings they certify."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from dco import InfeasibleLevelWarning, bayesian_quadrature
from dco.risk import learn_then_test, miscoverage, order_of_testing, risk_controlling

pytestmark = pytest.mark.filterwarnings("ignore::dco.foundations.errors.InfeasibleLevelWarning")
every_correction = pytest.mark.parametrize("correction", ["fixed-sequence", "bonferroni", "holm"])
every_test = pytest.mark.parametrize("test", ["binomial", "hoeffding-bentkus", "wsr"])


def certify(losses, **options):
    """Apply `learn_then_test` to settings 0, 1, 2, ..."""
    first = losses[0] if isinstance(losses, list) else losses
    return learn_then_test(losses, np.arange(np.shape(first)[1]), **options)


def p_value(losses, alpha, *, test="hoeffding-bentkus", delta=0.1, seed=0):
    """Return the p-value of one column of losses."""
    column = np.asarray(losses, dtype=np.float64)[:, None]
    (value,) = certify(column, alpha=alpha, delta=delta, test=test, random_state=seed).p_values
    return value


def coins(rng, n_rows, chances):
    """Draw losses of 0 and 1, a column for each chance of a loss."""
    return (rng.uniform(size=(n_rows, len(chances))) < chances).astype(float)


def falling_losses(n_rows=200, columns=50):
    """Make losses in quarters that never rise with the threshold; and thresholds."""
    u = np.random.default_rng(0).uniform(size=(n_rows, 4))
    cuts = np.linspace(0.02, 1, columns)
    return (u[:, :, None] > cuts).mean(axis=1), cuts


# ---------------------------------------------------------------- p-values


def test_binomial_counts_losses():
    losses = np.repeat([1.0, 0.0], [15, 185])

    assert p_value(losses, 0.1, test="binomial") == pytest.approx(binom.cdf(15, 200, 0.1))


def test_hoeffding_decides_where_there_is_no_loss():
    """Its term is (1 - alpha)^n, below Bentkus's e (1 - alpha)^n."""
    assert p_value(np.zeros(20), 0.1) == pytest.approx(0.9**20)


@pytest.mark.parametrize(
    ("losses", "alpha", "ceil_of_sum"),
    [
        (np.repeat([1.0, 0.0], [15, 185]), 0.1, 15),
        (np.repeat([0.5, 0.0], [29, 171]), 0.1, 15),
        (np.full(100, 0.55), 0.65, 55),
        (np.full(30, 0.1), 0.3, 3),
    ],
    ids=["ones", "14.5 is 15", "55 though floats are above", "3 though floats are above"],
)
def test_bentkus_counts_the_sum_of_losses(losses, alpha, ceil_of_sum):
    """e P(Binomial(n, alpha) <= ceil(sum)), the sum of decimals."""
    expected = math.e * binom.cdf(ceil_of_sum, len(losses), alpha)

    assert p_value(losses, alpha) == pytest.approx(expected)


@pytest.mark.parametrize("loss", [0.5, 1.0])
def test_losses_above_alpha_have_a_p_value_of_one(loss):
    assert p_value(np.full(20, loss), 0.1) == 1.0


def wsr_by_hand(losses, level, *, delta):
    """Bet on one loss after the other, as in the textbook."""
    total = 0.5
    squares = 0.25
    variance = 0.25
    capital = 1.0
    largest = 1.0
    for i, loss in enumerate(losses, start=1):
        bet = min(1.0, np.sqrt(2 * np.log(1 / delta) / (len(losses) * variance)))
        capital *= 1 - bet * (loss - level)
        largest = max(largest, capital)
        total += loss
        squares += (loss - total / (i + 1)) ** 2
        variance = squares / (i + 1)
    return 1 / largest


def in_betting_order(losses, seed):
    """Return the rows in the order in which wsr bets on them."""
    return losses[np.random.default_rng(seed).permutation(len(losses))]


def test_wsr_is_the_plain_recursion():
    losses = np.random.default_rng(0).uniform(size=40) ** 2

    value = p_value(losses, 0.5, test="wsr", delta=0.1, seed=3)

    expected = wsr_by_hand(in_betting_order(losses, seed=3), 0.5, delta=0.1)
    assert value == pytest.approx(expected, rel=1e-10)


@pytest.fixture(params=range(20))
def seed(request):
    return request.param


@pytest.fixture
def losses_of_a_coin(seed):
    """Make 80 losses of up to 1 that a threshold cuts off, for 40 thresholds from 0 to 1."""
    rng = np.random.default_rng(seed)
    size = rng.uniform(size=(80, 1))
    return size * (rng.uniform(size=(80, 1)) > np.linspace(0, 1, 40))


def test_rcps_sizes_the_bets_of_wsr_for_delta(losses_of_a_coin, seed):
    columns = in_betting_order(losses_of_a_coin, seed).T
    passes = [wsr_by_hand(column, 0.3, delta=0.01) <= 0.01 for column in columns]
    last_failure = max(np.flatnonzero(~np.array(passes)), default=-1)

    rule = risk_controlling(
        losses_of_a_coin, np.arange(40.0), alpha=0.3, delta=0.01, test="wsr", random_state=seed
    )

    assert 0 <= last_failure < 39
    assert rule.value == last_failure + 1


@pytest.mark.parametrize("correction", ["bonferroni", "holm"])
def test_corrections_size_the_bets_of_wsr_for_delta_over_the_columns(
    losses_of_a_coin, seed, correction
):
    certified = certify(
        losses_of_a_coin,
        alpha=0.3,
        delta=0.01,
        test="wsr",
        correction=correction,
        random_state=seed,
    )

    columns = in_betting_order(losses_of_a_coin, seed).T
    expected = [wsr_by_hand(column, 0.3, delta=0.01 / 40) for column in columns]
    assert certified.p_values == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(300))
def test_a_larger_loss_never_lowers_the_p_value_of_a_mean(seed):
    """So a column that passes speaks for all thresholds up to the next, wherever the columns come
    from.
    """
    rng = np.random.default_rng(seed)
    n_rows = int(rng.integers(1, 60))
    alpha = Fraction(int(rng.integers(1, 20)), 20)
    losses = rng.uniform(size=n_rows) * (rng.uniform(size=n_rows) < rng.uniform())
    is_larger = rng.uniform(size=n_rows) < 0.2
    larger = losses + (1 - losses) * rng.uniform(size=n_rows) * is_larger

    assert p_value(losses, alpha) <= p_value(larger, alpha) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(300))
def test_a_larger_loss_never_lowers_the_p_value_of_a_count(seed):
    rng = np.random.default_rng(seed)
    n_rows = int(rng.integers(1, 60))
    alpha = Fraction(int(rng.integers(1, 20)), 20)
    counts = np.sort(rng.integers(0, n_rows + 1, size=2))

    few, more = (
        p_value(np.repeat([1.0, 0.0], [count, n_rows - count]), alpha, test="binomial")
        for count in counts
    )

    assert few <= more


def test_a_larger_loss_can_lower_the_p_value_of_wsr():
    """400 losses of 0.5 vary less than 390 and ten of 0, so that bets on them are higher."""
    larger = np.full(400, 0.5)
    smaller = in_reverse_of_betting_order(np.repeat([0.0, 0.5], [10, 390]), seed=0)

    of_larger = p_value(larger, 0.6, test="wsr", delta=0.05)
    of_smaller = p_value(smaller, 0.6, test="wsr", delta=0.05)

    assert of_larger < of_smaller / 2


def in_reverse_of_betting_order(losses, seed):
    """Arrange rows so that wsr bets on them in the order given."""
    rows = np.empty_like(losses)
    rows[np.random.default_rng(seed).permutation(len(losses))] = losses
    return rows


@pytest.mark.parametrize("test", ["binomial", "hoeffding-bentkus"])
def test_where_is_the_test_on_the_rows_that_count(test):
    rng = np.random.default_rng(0)
    losses = coins(rng, 80, [0.1] * 3)
    counted = rng.uniform(size=(80, 3)) < 0.6
    options = {"alpha": 0.2, "delta": 0.1, "test": test, "correction": "bonferroni"}

    certified = certify(losses, where=counted, **options)

    for column in range(3):
        alone = p_value(losses[counted[:, column], column], 0.2, test=test)
        assert certified.p_values[column] == pytest.approx(alone, rel=1e-12)


@every_test
def test_a_column_where_no_row_counts_is_not_certified(test):
    counted = np.tile([True, False], (80, 1))

    certified = certify(
        np.zeros((80, 2)), alpha=0.2, delta=0.1, test=test, where=counted, correction="holm"
    )

    assert certified.p_values[1] == 1.0
    assert certified.indices.tolist() == [0]


# ---------------------------------------------------------------- corrections


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2, 0.3, 1 - 0.9, "0.35", 0.45, 0.7])
@pytest.mark.parametrize("delta", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("is_tied", [False, True], ids=["distinct", "tied"])
@pytest.mark.parametrize("n_rows", [3, 9, 19, 99, 120])
def test_a_fixed_sequence_on_misses_ends_at_the_pac_rank(n_rows, is_tied, delta, alpha):
    rng = np.random.default_rng(n_rows)
    scores = rng.integers(0, 12, size=n_rows) if is_tied else rng.normal(size=n_rows)
    cuts = np.unique(scores.astype(float))
    misses = miscoverage(scores.astype(float), None, cuts)

    certified = learn_then_test(
        misses[:, ::-1], cuts[::-1], alpha=alpha, delta=delta, test="binomial"
    )

    pac = bayesian_quadrature(scores.astype(float), alpha=alpha, delta=delta)
    assert certified.values.min(initial=np.inf) == pac.value
    assert certified.guarantee == "pac"


@pytest.mark.parametrize(
    ("correction", "certified"),
    [("fixed-sequence", [0, 1]), ("bonferroni", [0, 1, 3, 4]), ("holm", [0, 1, 3, 4])],
)
def test_a_fixed_sequence_alone_stops_at_the_first_failure(correction, certified):
    losses = np.tile([0.0, 0.0, 1.0, 0.0, 0.0], (100, 1))

    record = certify(losses, alpha=0.2, delta=0.1, correction=correction)

    assert np.asarray(record).tolist() == certified
    assert len(record) == len(certified)
    assert record.p_values.shape == (5,)


def test_columns_are_ascending_whatever_the_order_of_their_p_values():
    falling = np.arange(100)[:, None] < [9, 6, 3, 0]

    certified = certify(falling, alpha=0.3, delta=0.1, correction="holm")

    assert np.all(np.diff(certified.p_values) < 0)
    assert certified.indices.tolist() == [0, 1, 2, 3]


@pytest.fixture(scope="module")
def holm_and_bonferroni():
    """Certify 300 samples of six columns by both corrections.

    Columns between delta / 6 and delta / 5 make Holm's second step matter.
    """
    rng = np.random.default_rng(3)
    samples = [coins(rng, 60, rng.uniform(0, 0.3, size=6)) for _ in range(300)]
    options = {"alpha": 0.2, "delta": 0.1, "test": "binomial"}
    return [
        (
            certify(losses, correction="holm", **options),
            certify(losses, correction="bonferroni", **options),
        )
        for losses in samples
    ]


def test_holm_steps_down_as_it_is_defined(holm_and_bonferroni):
    sizes = [len(holm) for holm, _ in holm_and_bonferroni]

    levels = 0.1 / (6 - np.arange(6))
    passes = [np.sort(holm.p_values) <= levels for holm, _ in holm_and_bonferroni]
    assert sizes == [int(np.logical_and.accumulate(one).sum()) for one in passes]


def test_holm_certifies_what_bonferroni_does_and_more(holm_and_bonferroni):
    assert all(
        set(bonferroni.indices) <= set(holm.indices) for holm, bonferroni in holm_and_bonferroni
    )
    assert any(len(bonferroni) < len(holm) for holm, bonferroni in holm_and_bonferroni)


@pytest.mark.parametrize(("factor", "n_certified"), [(1.0, 1), (1 - 2**-53, 0)])
def test_a_p_value_of_exactly_delta_certifies(factor, n_certified):
    losses = np.random.default_rng(0).uniform(0, 0.4, size=(20, 1))
    delta = factor * p_value(losses[:, 0], 0.3)

    assert len(certify(losses, alpha=0.3, delta=delta)) == n_certified


# ---------------------------------------------------------------- several risks


@pytest.fixture(scope="module")
def two_risks():
    rng = np.random.default_rng(0)
    return [coins(rng, 80, [0.1] * 4), coins(rng, 80, [0.2] * 4)]


@pytest.fixture(scope="module")
def marks():
    """Make marks of rows that count, for two risks of four columns."""
    return np.random.default_rng(1).uniform(size=(80, 4, 2)) < 0.7


def certify_both(risks, **options):
    return certify(risks, alpha=[0.2, 0.4], delta=0.1, test="binomial", **options)


def test_several_risks_take_the_largest_p_value(two_risks):
    both = certify_both(two_risks)

    first = certify(two_risks[0], alpha=0.2, delta=0.1, test="binomial")
    second = certify(two_risks[1], alpha=0.4, delta=0.1, test="binomial")
    assert both.alpha == (0.2, 0.4)
    assert np.array_equal(both.p_values, np.maximum(first.p_values, second.p_values))


def test_several_risks_may_be_one_array(two_risks):
    in_one_array = certify_both(np.stack(two_risks, axis=2))

    assert np.array_equal(in_one_array.p_values, certify_both(two_risks).p_values)


def test_marks_of_several_risks_may_be_one_array(two_risks, marks):
    in_a_list = certify_both(two_risks, where=[marks[:, :, 0], marks[:, :, 1]])
    in_one_array = certify_both(np.stack(two_risks, axis=2), where=marks)

    assert np.array_equal(in_a_list.p_values, in_one_array.p_values)
    assert not np.array_equal(in_a_list.p_values, certify_both(two_risks).p_values)


def test_the_fewest_rows_of_several_risks_are_reported(two_risks):
    first, second = two_risks

    assert certify_both([first, second[:60]]).n == 60


@every_correction
@every_test
@pytest.mark.parametrize("risks", [(0.0, 1.0), (1.0, 0.0)], ids=["second", "first"])
def test_a_column_is_not_certified_if_one_of_its_risks_is_too_high(risks, test, correction):
    losses = [np.full((60, 3), risk) for risk in risks]

    with pytest.warns(InfeasibleLevelWarning, match="No setting is certified"):
        certified = certify(losses, alpha=0.2, delta=0.1, test=test, correction=correction)

    assert len(certified) == 0


@every_correction
@every_test
def test_a_column_is_certified_if_all_its_risks_are_low(test, correction):
    losses = [np.zeros((60, 3)), np.zeros((60, 3))]

    assert len(certify(losses, alpha=0.2, delta=0.1, test=test, correction=correction)) == 3


# ---------------------------------------------------------------- settings and their order


def test_settings_are_those_of_the_certified_columns():
    losses, cuts = falling_losses()

    certified = learn_then_test(losses, cuts, alpha=0.3, delta=0.1, order=np.arange(50)[::-1])

    assert certified.values.tolist() == cuts[certified.indices].tolist()
    assert certified.values.max() == cuts[-1]


def test_a_fixed_sequence_from_the_safe_end_is_rcps():
    losses, cuts = falling_losses()

    certified = learn_then_test(losses, cuts, alpha=0.3, delta=0.1, order=np.arange(50)[::-1])

    rcps = risk_controlling(losses, cuts, alpha=0.3, delta=0.1, test="hoeffding-bentkus")
    assert certified.values.min() == rcps.value


def test_a_setting_can_be_anything():
    losses = np.tile([0.0, 0.0, 1.0], (100, 1))

    certified = learn_then_test(losses, ["small", "medium", "large"], alpha=0.2, delta=0.1)

    assert certified.values.tolist() == ["small", "medium"]


TUNING_LOSSES = np.array([[0.5, 0.0, 1.0, 0.25], [0.5, 0.0, 1.0, 0.25]])


@pytest.mark.parametrize(
    ("losses", "options", "order"),
    [
        (TUNING_LOSSES, {"alpha": 0.2}, [1, 3, 0, 2]),
        ([TUNING_LOSSES, TUNING_LOSSES[:, ::-1]], {"alpha": [0.2, 0.9]}, [1, 3, 0, 2]),
        (TUNING_LOSSES, {"alpha": 0.2, "where": [[True, False, True, True]] * 2}, [3, 0, 2, 1]),
        ([[1.0, 0.2], [0.0, 0.2]], {"alpha": 0.5, "where": [[0, 1], [1, 1]]}, [0, 1]),
    ],
    ids=["one risk", "by the larger of two", "no row counts", "mean of rows that count"],
)
def test_the_order_learned_on_tuning_rows_starts_with_the_safest(losses, options, order):
    assert order_of_testing(losses, **options).tolist() == order


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ([1.0, 2.0], {}, "one setting for each of the 3 columns"),
        ([1.0, 2.0, 3.0], {"order": [0, 3]}, "column numbers from 0 to 2"),
        ([1.0, 2.0, 3.0], {"order": [0, 0]}, "names a column twice"),
        ([1.0, 2.0, 3.0], {"order": [2, 1, 0], "correction": "holm"}, "order is for correction"),
    ],
    ids=["too few settings", "no such column", "twice", "no order needed"],
)
def test_settings_or_an_order_that_do_not_fit_are_refused(settings, options, message):
    with pytest.raises(ValueError, match=message):
        learn_then_test(np.zeros((10, 3)), settings, alpha=0.1, delta=0.1, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"correction": "sidak"}, "correction must be"),
        ({"where": np.ones((10, 2), bool)}, "shape of its losses"),
        ({"where": np.full((10, 3), np.nan)}, "True or False"),
        ({"delta": 0}, "delta must be"),
    ],
    ids=["correction", "shape of marks", "missing marks", "delta"],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        certify(np.zeros((10, 3)), **{"alpha": 0.1, "delta": 0.1, **options})


def test_one_alpha_is_needed_for_each_risk():
    with pytest.raises(ValueError, match="each of the 2 risks"):
        certify([np.zeros((10, 3))] * 2, alpha=[0.1, 0.1, 0.1], delta=0.1)


def test_risks_of_different_columns_are_refused():
    risks = [np.zeros((10, 3)), np.zeros((10, 2))]

    with pytest.raises(ValueError, match="same columns"):
        certify(risks, alpha=0.1, delta=0.1)
    with pytest.raises(ValueError, match="same columns"):
        order_of_testing(risks, alpha=0.1)


# ---------------------------------------------------------------- what is said


def test_a_first_column_that_fails_is_named_where_another_order_would_certify():
    falling = np.tile(np.linspace(1, 0, 101), (500, 1))

    with pytest.warns(
        InfeasibleLevelWarning, match=r"first column failed .* order=range.* order_of_testing"
    ) as warned:
        learn_then_test(falling, np.arange(101), alpha=0.1, delta=0.05)

    assert warned[0].filename == __file__
    assert len(certify(falling[:, ::-1], alpha=0.1, delta=0.05)) > 0


@pytest.mark.parametrize(
    ("correction", "level"), [("fixed-sequence", "0.05"), ("bonferroni", "0.01"), ("holm", "0.01")]
)
def test_columns_that_all_fail_are_named_with_the_smallest_p_value(correction, level):
    """No losses in 10 rows: p = 0.9^10 = 0.349 whatever the order."""
    losses = np.ones((10, 5))
    losses[:, 3] = 0

    with pytest.warns(
        InfeasibleLevelWarning,
        match=rf"5 columns is 0.349 \(column 3\), .* at most {level}\. More rows",
    ):
        certify(losses, alpha=0.1, delta=0.05, test="binomial", correction=correction)


def test_certified_columns_print_as_runs():
    losses = np.zeros((500, 20))
    losses[:, [3, 4, 9]] = 1

    certified = certify(losses, alpha=0.1, delta=0.05, correction="holm")

    assert str(certified) == (
        "17 of 20 settings certified: risk <= 0.1 with probability >= 0.95 (500 rows)\n"
        "columns 0 to 2, 5 to 8, 10 to 19"
    )


def test_many_runs_of_several_risks_print_cut_short():
    every_second = np.tile([0.0, 1.0], (500, 20))

    certified = certify([every_second] * 2, alpha=[0.1, 0.2], delta=0.05, correction="holm")

    first_line, second_line = str(certified).split("\n")
    assert first_line.startswith("20 of 40 settings certified: risks <= 0.1, 0.2 with")
    assert second_line == "columns 0, 2, 4, 6, 8, 10, ..."


def test_no_certified_column_prints_p_values():
    certified = certify(np.ones((50, 4)), alpha=0.1, delta=0.05)

    assert str(certified).endswith("\np-values: 1 of the first column, 1 the smallest")
