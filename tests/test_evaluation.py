import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import Ridge

import dco
from dco.calibration.rules import bayesian_quadrature, split_conformal
from dco.evaluation.evaluate import (
    evaluate,
    share_interval,
    size_quantile,
)
from dco.foundations.errors import InfeasibleLevelWarning
from dco.foundations.ranks import Threshold
from dco.sets import Intervals, IntervalUnions, LabelSets
from dco.theory import coverage_consistency


def intervals(n: int, half: float) -> Intervals:
    return Intervals(np.full(n, -half), np.full(n, half))


def test_label_sets_by_hand():
    members = np.array([[1, 0, 0], [1, 1, 1], [0, 0, 0], [0, 1, 1]], dtype=bool)
    result = evaluate(LabelSets.from_dense(members), [0, 2, 1, 0])
    assert (result.coverage, result.mean_size, result.median_size, result.n) == (0.5, 1.5, 1.5, 4)
    assert (result.empty, result.full, result.infinite) == (0.25, 0.25, 0.0)
    assert result.p95_size == pytest.approx(np.quantile([1, 3, 0, 2], 0.95))
    assert result.mean_finite_size == 1.5
    assert result.single == result.to_dict()["single"] == 0.25
    assert "one-label sets     25.0%" in str(result)
    assert result.consistency is None
    assert result.by_group == ()


@pytest.mark.parametrize("classes", [None, ["a", "b", "c"]])
def test_labels_that_no_set_can_hold_are_misses(classes):
    """Full sets of three labels: the fourth label is missed. Only an infinite threshold makes the
    verdict leave it out.
    """
    names = np.arange(5) if classes is None else np.array(["a", "b", "c", "d", "e"])
    sets = LabelSets.from_dense(np.ones((8, 3), dtype=bool), classes)
    y, groups = names[[0, 1, 2, 0, 1, 3, 4, 3]], np.repeat(["x", "y"], [4, 4])
    threshold = split_conformal(np.arange(99.0), alpha=0.1)
    result = evaluate(
        sets, y, threshold=threshold, groups=groups, thresholds={"x": threshold, "y": threshold}
    )
    assert sets.knows(y).tolist() == [True] * 5 + [False] * 3
    assert (result.coverage, result.unknown_labels) == (5 / 8, 3)
    assert result.consistency == coverage_consistency(5, 8, rank=90, n_cal=99)
    assert "unknown labels     3 rows: misses, as no set can hold them" in str(result)
    first, second = result.by_group
    assert (first.unknown_labels, first.consistency.coverage) == (0, 1.0)
    assert (second.unknown_labels, second.consistency.coverage, second.consistency.n_test) == (
        3,
        0.25,
        4,
    )
    with pytest.warns(InfeasibleLevelWarning):
        infinite = split_conformal(np.arange(5.0), alpha=0.1)
    result = evaluate(sets, y, threshold=infinite)
    law = result.consistency
    assert (law.coverage, law.n_test, law.unknown_labels, law.tied) == (1.0, 5, 3, True)
    assert not law.consistent
    assert law.verdict.startswith(
        "the assumption fails: 3 rows have labels that the fit does not know. Coverage of the "
        "other 5"
    )
    assert (
        result.advice
        == "No set can hold a label that the fit does not know: fit again, with rows of each label."
    )
    none_known = evaluate(sets[5:], y[5:], threshold=threshold)
    assert none_known.consistency is None
    assert "verdict            none: no row has a label that a set can hold" in str(none_known)
    assert evaluate(sets[:5], y[:5], threshold=threshold).consistency.consistent


def test_intervals_and_unions_by_hand():
    """The whole line in one piece is full; two half lines are infinite and not full, nor is one
    half line.
    """
    sets = Intervals(np.array([0.0, -np.inf, 3.0, -np.inf]), np.array([1.0, 2.0, 2.0, np.inf]))
    result = evaluate(sets, [0.5, 5.0, 2.5, 7.0])
    assert (result.coverage, result.empty, result.full, result.infinite) == (0.5, 0.25, 0.25, 0.5)
    # halfway between 1 and infinity
    assert result.mean_size == result.p95_size == result.median_size == math.inf
    assert result.mean_finite_size == 0.5
    assert "50.0% of the sets are infinite; 0.5 over the others" in str(result)
    assert result.single is None  # a length of 1 is nothing special
    assert "one-label" not in str(result)

    pointers = np.array([0, 2, 3, 5, 5, 6])
    lower = np.array([0.0, 3.0, -np.inf, -np.inf, 1.0, 4.0])
    upper = np.array([1.0, 5.0, np.inf, 0.0, np.inf, np.inf])
    unions = evaluate(IntervalUnions(pointers, lower, upper), [2.0, 0.0, 0.5, 0.0, 3.0])
    assert (unions.coverage, unions.empty, unions.full, unions.infinite) == (0.2, 0.2, 0.2, 0.6)
    assert unions.mean_finite_size == 1.5
    whole = evaluate(intervals(3, np.inf), np.zeros(3))
    assert (whole.coverage, whole.full, whole.infinite) == (1.0, 1.0, 1.0)
    assert math.isnan(whole.mean_finite_size)
    assert "no set is finite" in str(whole)


def test_size_quantile_is_numpys_and_survives_infinity():
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 20, 101):
        sizes = rng.exponential(size=n)
        for level in (0.5, 0.95, 0.0, 1.0, 0.3):
            assert size_quantile(sizes, level) == pytest.approx(
                np.quantile(sizes, level), rel=1e-12
            )
            assert size_quantile(np.full(n, np.inf), level) == np.inf
    assert size_quantile(np.array([1.0] * 99 + [np.inf]), 0.95) == 1.0


def test_consistency_is_that_of_the_thresholds_rank():
    rng = np.random.default_rng(1)
    scores = np.abs(rng.normal(size=199))
    y = rng.normal(size=300)
    for threshold in (
        split_conformal(scores, alpha=0.1),
        bayesian_quadrature(scores, alpha=0.1, delta=0.1),
    ):
        result = evaluate(intervals(300, threshold.value), y, threshold=threshold)
        hits = int(np.sum(np.abs(y) <= threshold.value))
        assert result.consistency == coverage_consistency(hits, 300, rank=threshold.rank, n_cal=199)
        assert result.consistency.coverage == result.coverage == hits / 300
        assert result.consistency.expected_coverage == threshold.expected_coverage
        tied = evaluate(intervals(300, threshold.value), y, threshold=threshold, tied=True)
        assert tied.consistency == coverage_consistency(
            hits, 300, rank=threshold.rank, n_cal=199, tied=True
        )


@pytest.mark.parametrize(
    ("rank", "guarantee"), [(90, "none"), (None, "marginal"), (None, "expected_risk")]
)
def test_a_threshold_without_a_law_brings_no_consistency(rank, guarantee):
    threshold = Threshold(1.0, rank=rank, n=99, guarantee=guarantee, alpha=0.1)
    assert evaluate(intervals(5, 1.0), np.zeros(5), threshold=threshold).consistency is None


def test_an_infinite_threshold_promises_coverage_one_and_minus_infinity_its_rank():
    """Too few rows, or 40 infinite scores among 300 (rank 271): sets are full. Of -inf they leave
    out one row in ten.
    """
    with pytest.warns(InfeasibleLevelWarning):
        few = split_conformal(np.zeros(3), alpha=0.1)
    many = split_conformal(np.r_[np.arange(260.0), np.full(40, np.inf)], alpha=0.1)
    assert (many.rank, many.value) == (271, np.inf)
    for threshold in (few, many):
        law = evaluate(intervals(200, np.inf), np.zeros(200), threshold=threshold).consistency
        assert (law.p_value, law.expected_coverage, law.verdict) == (
            1.0,
            1.0,
            "consistent with the guarantee",
        )
    threshold = split_conformal(np.r_[np.full(180, -np.inf), np.arange(19.0)], alpha=0.1)
    assert (threshold.rank, threshold.value) == (180, -np.inf)
    law = evaluate(
        intervals(200, 1.0), np.r_[np.zeros(181), np.full(19, 2.0)], threshold=threshold, tied=True
    ).consistency
    assert (law.expected_coverage, law.verdict) == (0.9, "not below what the guarantee allows")


def test_groups_are_evaluated_apart():
    rng = np.random.default_rng(3)
    y, groups = rng.normal(size=200), rng.choice(["b", "a", "long name"], size=200)
    lower, upper = -rng.exponential(size=200), rng.exponential(size=200)
    result = evaluate(Intervals(lower, upper), y, groups=groups)
    assert [row.group for row in result.by_group] == ["a", "b", "long name"]
    for row in result.by_group:
        here = groups == row.group
        alone = evaluate(Intervals(lower[here], upper[here]), y[here])
        assert (row.n, row.coverage, row.mean_size) == (alone.n, alone.coverage, alone.mean_size)
        assert (row.median_size, row.p95_size) == (alone.median_size, alone.p95_size)
        interval = binomtest(round(alone.coverage * alone.n), alone.n).proportion_ci(method="exact")
        assert (row.coverage_low, row.coverage_high) == pytest.approx(
            (interval.low, interval.high), rel=1e-6
        )
        assert (alone.coverage_low, alone.coverage_high) == (row.coverage_low, row.coverage_high)
        assert str(row.group) in str(result)
    assert f"(95 % interval {result.coverage_low:.4f} to {result.coverage_high:.4f})" in str(result)
    assert sum(row.n * row.coverage for row in result.by_group) == pytest.approx(
        200 * result.coverage
    )


@pytest.mark.parametrize(
    ("groups", "names"),
    [
        (np.array([2, 1, 2]), [1, 2]),
        (np.array([True, False, True]), [False, True]),
        (np.array(["x", None, 3], dtype=object), [3, "x", "(missing)"]),
        (np.array([1.5, np.nan, np.nan]), [1.5, "(missing)"]),
        (
            np.array(["2020-01-02", "2020-01-01", "2020-01-02"], dtype="datetime64[ns]"),
            ["2020-01-01", "2020-01-02"],
        ),
        (["u", "v", "u"], ["u", "v"]),
        (pd.Series(["a", pd.NA, "a"], dtype=object), ["a", "(missing)"]),
    ],
    ids=str,
)
def test_groups_of_any_kind(groups, names):
    result = evaluate(intervals(3, 1.0), np.zeros(3), groups=groups)
    assert [row.group for row in result.by_group] == names
    assert sum(row.n for row in result.by_group) == 3


def test_share_interval_at_its_ends():
    assert share_interval(0, 10) == pytest.approx((0.0, 1 - 0.025 ** (1 / 10)))
    assert share_interval(10, 10) == pytest.approx((0.025 ** (1 / 10), 1.0))


def test_bad_rows_are_named():
    with pytest.raises(ValueError, match="no rows to evaluate"):
        evaluate(intervals(0, 1.0), [])
    for groups in ([1, 2], np.zeros((3, 1, 1)), "a"):
        with pytest.raises(ValueError, match="groups must hold one value for each of the 3 rows"):
            evaluate(intervals(3, 1.0), np.zeros(3), groups=groups)
    for wrong in ([[0], [1], [2]], None, np.eye(3)):
        with pytest.raises(
            ValueError, match="sets must be LabelSets, Intervals or IntervalUnions, got"
        ):
            evaluate(wrong, np.arange(3))
    for wrong in (0.5, "a", {}):
        with pytest.raises(ValueError, match=r"a dco\.Threshold, got"):
            evaluate(intervals(3, 1.0), np.arange(3.0), threshold=wrong)
    with pytest.raises(ValueError, match="y must hold one number for each of the 3 rows"):
        evaluate(intervals(3, 1.0), np.zeros(2))
    with pytest.raises(ValueError, match="y is missing in row 1"):
        evaluate(intervals(3, 1.0), [0.0, np.nan, 0.0])


def test_an_evaluation_is_plain_data():
    given = {"threshold": split_conformal(np.arange(9.0), alpha=0.1), "groups": [1, 1, 2]}
    result = evaluate(intervals(3, 1.0), np.zeros(3), **given)
    assert (result.to_dict()["consistency"]["rank"], result.to_dict()["by_group"][0]["n"]) == (9, 2)
    assert result == evaluate(intervals(3, 1.0), np.zeros(3), **given)


@pytest.mark.parametrize("tied", [False, True])
def test_a_group_with_a_threshold_of_its_own_is_judged_by_it(tied):
    rng = np.random.default_rng(0)
    y, groups = rng.normal(size=300), np.repeat(["a", "b", "c"], 100)
    of_group = {
        "a": split_conformal(np.arange(49.0), alpha=0.1),
        "b": split_conformal(np.arange(99.0), alpha=0.4),
    }
    rows = {
        row.group: row
        for row in evaluate(
            intervals(300, 1.5), y, groups=groups, thresholds=of_group, tied=tied
        ).by_group
    }
    for name, threshold in of_group.items():
        hits = int(np.sum(np.abs(y[groups == name]) <= 1.5))
        expected = coverage_consistency(
            hits, 100, rank=threshold.rank, n_cal=threshold.n, tied=tied
        )
        assert rows[name].consistency == expected
    assert rows["c"].consistency is None


@pytest.mark.parametrize(
    ("hits", "verdict"),
    [(700, "failed"), (880, "held"), (900, "held"), (1000, "held")],
    ids=["low", "near", "at", "above"],
)
def test_the_verdict_is_about_low_coverage_alone(hits: int, verdict: str) -> None:
    """Rank 900 of 999 promises 0.9: 0.70 of 1,000 rows is below its law, and 1.00 is above it and
    keeps the promise.
    """
    threshold = Threshold(1.0, rank=900, n=999, guarantee="marginal", alpha=0.1)
    sets = Intervals(np.zeros(1000), np.ones(1000))
    found = evaluate(sets, np.where(np.arange(1000) < hits, 0.5, 2.0), threshold=threshold)
    assert found.verdict == found.to_dict()["verdict"] == verdict
    assert f"\nverdict            {verdict}: " in str(found)
    assert ("lower than chance explains" in str(found)) == (hits == 700)
    assert ("chance explains" in found.in_words()) == (hits == 880)
    assert ("calibration rows (p < 0.0001)" in found.in_words()) == (hits == 700)
    assert evaluate(sets, np.zeros(1000)).verdict == "unchecked"


@pytest.mark.parametrize("alpha", [0.1, "0.3", 0.01], ids=str)
def test_the_words_state_the_level_of_the_sets(alpha) -> None:
    threshold = split_conformal(np.arange(999.0), alpha=alpha)
    found = evaluate(intervals(10, threshold.value), np.zeros(10), threshold=threshold)
    assert found.alpha == float(alpha)
    assert f"covered, {100 - 100 * float(alpha):g} % promised" in found.in_words()


def test_an_evaluation_at_another_level_states_that_level() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = X[:, 0] + rng.normal(size=600)
    est = dco.DecoupledRegressor(Ridge(), alpha=0.1, random_state=0).fit(X[:300], y[:300])
    words = [each.in_words() for each in est.evaluate(X[300:], y[300:], alpha=[0.1, 0.3])]
    assert ["90 % promised" in words[0], "70 % promised" in words[1]] == [True, True]


def test_without_a_level_nothing_is_said_of_a_promise() -> None:
    found = evaluate(intervals(4, 1.0), np.zeros(4))
    assert found.alpha is None
    assert found.in_words().endswith("these rows: 100.0 % of 4 rows covered.")


def test_a_level_that_is_not_that_of_the_threshold_is_refused() -> None:
    threshold = split_conformal(np.arange(99.0), alpha=0.1)
    with pytest.raises(ValueError, match=r"level of the thresholds, got the levels 0\.01, 0\.1"):
        evaluate(intervals(4, 1.0), np.zeros(4), threshold=threshold, alpha=0.01)


@pytest.mark.parametrize(("low", "verdict"), [(95, "held"), (75, "held"), (50, "failed")])
def test_groups_with_thresholds_of_their_own_are_judged_together(low: int, verdict: str) -> None:
    """Rank 90 of 99 promises 0.9 in each of 20 groups. 75 of 100 has p = 0.005: among 20 groups
    that may be chance.
    """
    n, groups = 2000, np.repeat(np.arange(20), 100)
    thresholds = {
        group: Threshold(1.0, rank=90, n=99, guarantee="marginal", alpha=0.1) for group in range(20)
    }
    most = np.where(groups == 7, low, 90)
    y = np.where(np.arange(n) % 100 < most, 0.5, 2.0)
    found = evaluate(Intervals(np.zeros(n), np.ones(n)), y, groups=groups, thresholds=thresholds)
    assert found.verdict == verdict
    assert found.broken == ((7,) if verdict == "failed" else ())
    said = found.in_words()
    assert said.startswith(
        "The promise did not hold in 7: "
        if verdict == "failed"
        else "The promise held in each of 20 groups: "
    )
    assert ("calibrate again" in said) == (verdict == "failed")
    used = replace(found, no_verdict="3 of 2000 rows took part in the fit")
    assert used.verdict == "unchecked"
    assert used.in_words().startswith(
        "Nothing was checked, because 3 of 2000 rows took part in the fit: "
    )


def test_advice_gives_the_p_value_of_a_group_that_is_covered_too_rarely() -> None:
    """Group 0 is covered always, where half is its law; that is no evidence for what is said of
    group 1.
    """
    laws = {
        group: Threshold(1.0, rank=rank, n=99, guarantee="marginal", alpha=0.1)
        for group, rank in enumerate((50, 90))
    }
    y = np.where(np.arange(200) < 170, 0.5, 2.0)  # 70 of the last hundred
    found = evaluate(
        Intervals(np.zeros(200), np.ones(200)), y, groups=np.repeat([0, 1], 100), thresholds=laws
    )
    assert found.broken == (1,)
    assert found.laws[0].p_value < 1e-4 < found.laws[1].p_value
    assert f"(p = {found.laws[1].p_value:.2g})" in found.advice
