"""The exact search against brute force over every threshold, its tie-breaks, its fallback and its
options.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from dco import scores
from dco.calibration.rules import split_conformal
from dco.foundations.errors import IncompatibleScoreError, NonFiniteScoreError
from dco.foundations.ranks import tuning_rank
from dco.predictions import (
    ClassDraws,
    ClassProbabilities,
    GaussianMixtures,
    Points,
    PointsWithSpread,
    Quantiles,
    take,
)
from dco.scores import LAC, AbsoluteResidual, NormalisedResidual
from dco.scores.score import Score
from dco.sets import LabelSets
from dco.tuning import EvaluatedCandidate, direct_tune, rank_evaluated, tune, tune_levels
from dco.tuning.search import exact_mean


@dataclass(frozen=True)
class Table(Score):
    """A score that is looked up: `scores[i, k]` for label k of row i; the prediction only says how
    many rows there are.
    """

    scores: tuple[tuple[float, ...], ...]
    needs: ClassVar[tuple[type, ...]] = (ClassProbabilities,)

    def observed(self, prediction, y):
        return np.array(self.scores)[np.arange(len(y)), y]

    def sets(self, prediction, threshold):
        return LabelSets.from_dense(np.array(self.scores) <= threshold)


def table(matrix):
    return Table(tuple(tuple(float(value) for value in row) for row in matrix))


class Nothing(AbsoluteResidual):
    """Scores that are no numbers."""

    def observed(self, prediction, y):
        return np.full(len(y), np.nan)


def one(mean):
    """A single candidate, with intervals around these means."""
    return {"r": (AbsoluteResidual(), Points(mean))}


def blank(n, k):
    return ClassProbabilities(np.full((n, k), 1 / k))


def random_problem(rng, *, tied):
    """Several lookup tables over the same rows; with ties the scores take few values."""
    n, k = int(rng.integers(1, 25)), int(rng.integers(1, 6))
    y = rng.integers(k, size=n)
    candidates = {}
    for c in range(int(rng.integers(1, 5))):
        scores = rng.integers(0, 5, size=(n, k)) / 4 if tied else rng.uniform(size=(n, k))
        candidates[f"c{c}"] = (table(scores), blank(n, k))
    return candidates, y


def brute_force(candidates, y, alpha):
    """min over (candidate, every threshold that can matter) of (mean size, P95 size, threshold,
    order).
    """
    best = None
    for place, (name, (score, _)) in enumerate(candidates.items()):
        matrix = np.array(score.scores)
        for threshold in np.unique(matrix):
            errors = int(np.count_nonzero(matrix[np.arange(len(y)), y] > threshold))
            if Fraction(errors, len(y)) > Fraction(alpha):
                continue
            sizes = (matrix <= threshold).sum(axis=1)
            key = (
                Fraction(int(sizes.sum()), len(y)),
                round(np.quantile(sizes, 0.95), 9),
                float(threshold),
                place,
            )
            if best is None or key < best[0]:
                best = (key, name, errors / len(y))
    return best


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("alpha", ["0.1", "0.25", "0.3", "0.5", "0.9"])
def test_exact_search_equals_brute_force_over_every_threshold(tied, alpha):
    rng = np.random.default_rng([int(tied), int(10 * float(alpha))])
    for _ in range(60):
        candidates, y = random_problem(rng, tied=tied)
        ranking = tune(candidates, y, alpha=alpha)
        (mean, p95, _, _), name, risk = brute_force(candidates, y, alpha)
        row = ranking.table[0]
        assert (ranking.best, row.mean_size, row.miscoverage) == (name, float(mean), risk)
        assert row.p95_size == pytest.approx(p95)
        assert row.feasible


def test_the_rank_is_taken_in_exact_arithmetic():
    """100 rows at 1 - 0.9: ten may be missed, although the float 1 - 0.9 is below a tenth."""
    y = np.zeros(100)
    points = np.arange(1.0, 101.0)
    assert tune(one(points), y, alpha=1 - 0.9).table[0].ranking_threshold == 90.0
    assert tune(one(points), y, alpha=0.7).table[0].ranking_threshold == 30.0


def test_ties_fall_by_p95_then_threshold_then_order():
    y = np.zeros(20, dtype=int)
    even = np.full((20, 3), 1.0)
    even[:, :2] = 0.0  # every set has two labels at threshold 0
    uneven = np.full((20, 3), 1.0)
    uneven[:, 0] = 0.0
    uneven[:10] = 0.0  # ten sets of three, ten of one: the same mean, a larger P95
    raised = even + 0.5  # as even, at a larger threshold
    cases = {"uneven": uneven, "raised": raised, "even": even, "again": even}
    ranking = tune({name: (table(m), blank(20, 3)) for name, m in cases.items()}, y, alpha=0.1)
    assert [row.name for row in ranking.table] == ["even", "again", "raised", "uneven"]
    assert {row.mean_size for row in ranking.table} == {2.0}


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_the_order_of_rows_is_irrelevant(seed):
    """Not even the last bit of a mean changes, so ties cannot fall differently."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    y, means, spreads = (
        rng.standard_normal(n),
        rng.standard_normal((3, n)),
        rng.uniform(0.1, 9, size=(3, n)),
    )
    order = rng.permutation(n)

    def ranked(rows):
        return tune(
            {
                f"c{i}": (NormalisedResidual(), PointsWithSpread(means[i][rows], spreads[i][rows]))
                for i in range(3)
            },
            y[rows],
            alpha=0.2,
        )

    assert ranked(np.arange(n)) == ranked(order)


# the paper's options


def test_a_grid_takes_its_smallest_feasible_threshold():
    y, points = np.zeros(10), np.arange(1.0, 11.0)
    row = tune(one(points), y, alpha=0.2, grid=[20.0, 3.0, 8.5, 9.5]).table[0]
    assert (row.ranking_threshold, row.miscoverage, row.feasible) == (8.5, 0.2, True)


def test_the_quantile_grid_is_never_better_than_the_exact_search():
    rng = np.random.default_rng(6)
    worse = 0
    for _ in range(40):
        y = rng.standard_normal(120)
        candidates = one(0 * y)
        exact, paper = (
            tune(candidates, y, alpha=0.2).table[0],
            tune(candidates, y, alpha=0.2, grid=80).table[0],
        )
        values = np.quantile(np.abs(y), np.linspace(0, 1, 80))
        assert (
            paper.ranking_threshold == values[[np.mean(np.abs(y) > v) <= 0.2 for v in values]].min()
        )
        assert paper.mean_size >= exact.mean_size
        worse += paper.mean_size > exact.mean_size
    assert worse > 20


def test_without_a_feasible_threshold_the_smallest_risk_wins_then_the_smallest_size():
    y = np.zeros(10)
    candidates = {
        "wide": (AbsoluteResidual(), Points(np.r_[np.full(6, 1.0), np.full(4, 9.0)])),
        # shortest, but misses more
        "risky": (AbsoluteResidual(), Points(np.r_[np.full(5, 0.1), np.full(5, 9.0)])),
        "narrow": (AbsoluteResidual(), Points(np.r_[np.full(6, 0.5), np.full(4, 9.0)])),
    }
    ranking = tune(candidates, y, alpha=0.1, grid=[0.2, 0.6, 1.2, 2.0])
    assert [(row.name, row.feasible) for row in ranking.table] == [
        ("narrow", False),
        ("wide", False),
        ("risky", False),
    ]
    assert ranking["narrow"].ranking_threshold == 0.6  # 1.2 and 2.0 miss as many rows and are wider
    assert ranking["wide"].ranking_threshold == 1.2
    assert ranking["risky"].mean_size < ranking["narrow"].mean_size
    feasible = candidates | {"feasible": (AbsoluteResidual(), Points(np.full(10, 2.0)))}
    assert tune(feasible, y, alpha=0.1, grid=[0.6, 1.2, 2.0]).best == "feasible"


def test_the_exact_search_falls_back_only_when_sets_are_unbounded():
    """Two of ten labels score +inf at alpha = .1: on the line no finite set is feasible; with
    classes the full set is.
    """
    values = np.r_[np.arange(1.0, 9.0), np.inf, np.inf]
    line = EvaluatedCandidate("line", values, lambda t: np.full(10, 2 * t))
    row = rank_evaluated([line], alpha=0.1).table[0]
    assert (row.feasible, row.ranking_threshold, row.miscoverage, row.mean_size) == (
        False,
        8.0,
        0.2,
        16.0,
    )
    classes = EvaluatedCandidate(
        "classes", values, lambda t: np.full(10, 3.0 if math.isinf(t) else 1.0)
    )
    row = rank_evaluated([classes], alpha=0.1).table[0]
    assert (row.feasible, row.ranking_threshold, row.miscoverage, row.mean_size) == (
        True,
        math.inf,
        0.0,
        3.0,
    )
    assert rank_evaluated([line, classes], alpha=0.1).best == "classes"
    everywhere = EvaluatedCandidate("everywhere", values, lambda t: np.full(10, np.inf))
    assert not rank_evaluated([everywhere], alpha=0.1).table[0].feasible


def test_risk_margin_is_the_tightened_rule():
    rng = np.random.default_rng(7)
    candidates, y = one(np.zeros(50)), rng.normal(size=50)
    for groups in (None, rng.integers(8, size=50)):
        tightened, plain = (
            tune(candidates, y, alpha="0.3", risk_margin="0.2", groups=groups),
            tune(candidates, y, alpha="0.1", groups=groups),
        )
        assert (
            tightened.table == plain.table != tune(candidates, y, alpha="0.3", groups=groups).table
        )
    with pytest.raises(ValueError, match="risk_margin"):
        tune(candidates, y, alpha=0.1, risk_margin=0.1)


def test_rank_matching_compares_at_the_level_that_is_deployed():
    """99 tuning scores 1..99 have levels .01 to .99; the 45th of 49 calibration scores has level
    .9, the 46th .92.
    """
    y, points = np.zeros(99), np.arange(1.0, 100.0)
    candidates = one(points)
    assert tune(candidates, y, alpha=0.1, rank_matching=(45, 49)).table[
        0
    ].mean_size == pytest.approx(2 * 90)
    assert tune(candidates, y, alpha=0.1, rank_matching=(46, 49)).table[
        0
    ].mean_size == pytest.approx(2 * 92)
    # level .9025, a quarter of the way
    between = tune(candidates, y, alpha=0.1, rank_matching=(361, 399)).table[0]
    assert (between.mean_size, between.ranking_threshold) == (
        pytest.approx(180.5),
        pytest.approx(90.25),
    )
    assert tune(candidates, y, alpha=0.1, rank_matching=(999, 999)).table[
        0
    ].mean_size == pytest.approx(2 * 99)
    assert tune(candidates, y, alpha=0.1, rank_matching=(6, 5)) == tune(candidates, y, alpha=0.1)
    with pytest.raises(ValueError, match="rank_matching"):
        tune(candidates, y, alpha=0.1, rank_matching=(9, 5))
    with pytest.raises(ValueError, match="rank_matching"):
        tune(candidates, y, alpha=0.1, rank_matching=(5, 5), grid=80)


# conditions and groups


def test_each_condition_gets_its_own_threshold():
    y, points = np.zeros(20), np.r_[np.arange(1.0, 11.0), 10 * np.arange(1.0, 11.0)]
    conditions = np.repeat(["easy", "hard"], 10)
    row = tune(one(points), y, alpha=0.2, conditions=conditions).table[0]
    assert row.thresholds_by_condition == {"easy": 8.0, "hard": 80.0}
    assert (row.mean_size, row.miscoverage, row.ranking_threshold) == (88.0, 0.2, 80.0)


@pytest.mark.parametrize("n", [4, 40])
def test_conditions_by_label_threshold_each_label(n):
    """A label without tuning rows is in every set, as it will be after calibration; n = K = 4 is
    not ambiguous.
    """
    rng = np.random.default_rng(10)
    probabilities = rng.dirichlet(np.ones(4), size=n)
    y = np.arange(n) % 3
    row = tune(
        {"lac": (LAC(), ClassProbabilities(probabilities))}, y, alpha=0.25, conditions="label"
    ).table[0]
    thresholds = np.full(4, np.inf)
    for label in range(3):
        own = np.sort(LAC().observed(ClassProbabilities(probabilities), y)[y == label])
        thresholds[label] = own[len(own) - len(own) // 4 - 1]
    members = LAC().every_label(ClassProbabilities(probabilities)) <= thresholds
    assert row.mean_size == members.sum(axis=1).mean()
    assert row.miscoverage == np.count_nonzero(~members[np.arange(n), y]) / n
    assert row.thresholds_by_condition == {label: thresholds[label] for label in range(3)}
    lac = {"lac": (LAC(), ClassProbabilities(probabilities))}
    plain, same = (
        tune(lac, y, alpha=0.25, conditions=given).table[0] for given in (None, np.zeros(n))
    )
    assert (same.mean_size, same.miscoverage, same.p95_size) == (
        plain.mean_size,
        plain.miscoverage,
        plain.p95_size,
    )
    named = ClassProbabilities(probabilities, classes=list("abcd"))
    by_name = tune(
        {"lac": (LAC(), named)}, np.array(list("abc"))[y], alpha=0.25, conditions="label"
    ).table[0]
    assert list(by_name.thresholds_by_condition) == ["a", "b", "c"]
    assert by_name.mean_size == row.mean_size
    with pytest.raises(ValueError, match="classes"):
        tune(one(np.zeros(n)), np.zeros(n), alpha=0.2, conditions="label")


def test_groups_weigh_the_same_whatever_their_size():
    """One group of 90 easy rows and nine of one hard row: pooled, alpha = .1 ignores the hard ones;
    by group it may not.
    """
    scores = np.r_[np.full(90, 1.0), np.arange(2.0, 11.0)]
    groups = np.r_[np.zeros(90), np.arange(1, 10)]
    candidate = EvaluatedCandidate("c", scores, lambda t: np.where(np.arange(99) < 90, t, 2 * t))
    assert rank_evaluated([candidate], alpha=0.1).table[0].ranking_threshold == 1.0
    row = rank_evaluated([candidate], alpha=0.1, groups=groups).table[0]
    assert row.ranking_threshold == 9.0  # one of ten groups may be missed
    assert row.miscoverage == pytest.approx(0.1)
    assert row.mean_size == pytest.approx(0.1 * 9 + 0.9 * 18)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_grouped_thresholds_equal_brute_force_in_fractions(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    groups, scores = rng.integers(8, size=n), rng.integers(6, size=n).astype(float)
    weights = [
        Fraction(1, int(np.count_nonzero(groups == g))) / len(np.unique(groups)) for g in groups
    ]
    feasible = [
        t
        for t in np.unique(scores)
        if sum(w for w, s in zip(weights, scores, strict=True) if s > t) <= Fraction(1, 4)
    ]
    candidate = EvaluatedCandidate("c", scores, lambda t: np.full(n, t + 1))
    assert rank_evaluated([candidate], alpha=0.25, groups=groups).table[0].ranking_threshold == min(
        feasible
    )


def test_groups_of_several_kinds_weigh_like_others():
    scores = np.r_[np.full(90, 1.0), np.arange(2.0, 11.0)]
    candidate = EvaluatedCandidate("c", scores, lambda t: np.full(99, t))
    mixed = ["b"] * 90 + [3, "3", 2.5, (1, 2), b"3", "a", 4, 5, 6]
    expected = rank_evaluated([candidate], alpha=0.1, groups=np.r_[np.zeros(90), np.arange(1, 10)])
    stored = np.empty(99, dtype=object)
    stored[:] = mixed
    assert rank_evaluated([candidate], alpha=0.1, groups=stored) == expected
    # a list is not turned into text: 3 and "3" are two groups
    listed = ["b"] * 90 + [3, "3", 2.5, "c", "d", "a", 4, 5, 6]
    assert rank_evaluated([candidate], alpha=0.1, groups=listed) == expected
    with pytest.raises(ValueError, match="groups is missing for 1 rows"):
        rank_evaluated([candidate], alpha=0.1, groups=[*listed[:-1], None])


def test_conditions_of_several_kinds_and_missing_ones_are_conditions_like_others():
    prediction, y = np.zeros(8), np.arange(1.0, 9.0)
    conditions = ["a", "a", 1, 1.0, "1", "1", None, float("nan")]
    row = tune(one(prediction), y, alpha=0.2, conditions=conditions).table[0]
    assert row.thresholds_by_condition == {1: 4.0, "1": 6.0, "a": 2.0, "(missing)": 8.0}


# failures


def test_a_candidate_that_fails_is_reported_and_left_out():
    y = np.random.default_rng(12).standard_normal(20)
    ranking = tune(
        {"nan": (Nothing(), Points(y)), "wrong": (LAC(), Points(y)), **one(0 * y)}, y, alpha=0.1
    )
    assert [row.name for row in ranking.table] == ["r"]
    assert [failed.name for failed in ranking.failed] == ["nan", "wrong"]
    assert "NaN" in ranking.failed[0].reason
    assert "LAC needs" in ranking.failed[1].reason
    broken, fine = (
        EvaluatedCandidate("late", np.abs(y), _explode),
        EvaluatedCandidate("fine", np.abs(y), lambda t: y + t),
    )
    late = rank_evaluated([broken, fine], alpha=0.1)
    assert (late.best, late.failed[0].reason) == ("fine", "RuntimeError: no sizes today")
    assert "no sizes today" in str(late)


def _explode(threshold):
    raise RuntimeError("no sizes today")


def test_when_all_fail_one_error_has_every_reason():
    y = np.zeros(5)
    nan, wrong = {"nan": (Nothing(), Points(y))}, {"wrong": (LAC(), Points(y))}
    for candidates, kind, words in (
        (
            nan | wrong,
            ValueError,
            r"all 2 candidates failed.*nan: NonFinite.*wrong: "
            r"IncompatibleScoreError",
        ),
        (nan, NonFiniteScoreError, r"^the only candidate failed on the tuning rows. nan: "),
        (wrong, IncompatibleScoreError, "LAC"),
    ):
        with pytest.raises(kind, match=words):
            tune(candidates, y, alpha=0.1)


GOOD = one(np.zeros(3))


@pytest.mark.parametrize(
    ("candidates", "y", "options", "words"),
    [
        ({}, np.zeros(3), {}, "no candidate"),
        (GOOD, np.zeros(0), {}, "y_tune"),
        (GOOD, np.zeros(3), {"alpha": 1.5}, "alpha"),
        (GOOD, np.zeros(3), {"conditions": np.zeros(2)}, "conditions"),
        (GOOD, np.zeros(3), {"groups": np.zeros(2)}, "groups"),
        *(
            (GOOD, np.zeros(3), {"rank_matching": w}, "rank_matching must be a pair")
            for w in (5, 0.5, (1,), {}, "90")
        ),
        *(
            (
                GOOD,
                np.zeros(3),
                {"grid": w},
                "grid must be a number of thresholds, at least 1, or a list of at least one",
            )
            for w in (
                0,
                -1,
                True,
                3.5,
                "a",
                {},
                {"a": 1},
                [],
                [[0.0, 1.0]],
                [[0.0], [0.0, 1.0]],
                ["a"],
                [np.nan],
            )
        ),
        *(
            (
                w,
                np.zeros(3),
                {},
                r"candidates must be a dict {name: \(score, prediction\), ...}, "
                r"got \w+\.",
            )
            for w in (["r"], "r", None, (AbsoluteResidual(), Points(np.zeros(3))), np.zeros((3, 2)))
        ),
        *(
            ({"r": w}, np.zeros(3), {}, "candidate 'r' must be a pair")
            for w in (AbsoluteResidual(), None, (AbsoluteResidual(),), "rp")
        ),
    ],
)
def test_bad_input_is_one_clear_sentence(candidates, y, options, words):
    with pytest.raises(ValueError, match=words):
        tune(candidates, y, **{"alpha": 0.1} | options)


def test_a_pair_the_wrong_way_round_is_told_so():
    right, wrong = (LAC(), blank(3, 2)), (blank(3, 2), LAC())
    for candidates in ({"a": wrong}, {"b": right, "a": wrong}):
        with pytest.raises(ValueError, match="candidate 'a' is the wrong way round"):
            tune(candidates, np.zeros(3, dtype=int), alpha=0.1)


def test_a_printed_ranking_keeps_its_columns_under_long_names():
    rows = [
        EvaluatedCandidate(name, np.zeros(9), lambda threshold: np.ones(9))
        for name in ("short", "long " * 12 + "name")
    ]
    head, *lines = str(rank_evaluated(rows, alpha=0.1)).splitlines()
    assert {len(line) for line in lines} == {len(head)}
    for column in ("mean size", "P95 size"):
        end = head.index(column) + len(column)
        assert [line[:end].split()[-1] for line in lines] == ["1", "1"]


@pytest.mark.parametrize("wrong", [0.1, "0.1", None])
def test_a_single_level_for_many_is_sent_to_tune(wrong):
    with pytest.raises(ValueError, match=r"alphas must be a list of levels, got .*dco\.tune"):
        tune_levels(GOOD, np.zeros(3), alphas=wrong)


def test_ranking_reads_as_a_table():
    ranking = tune(one(np.arange(3.0)), np.zeros(3), alpha=0.4)
    assert list(ranking.to_frame()["name"]) == ["r"]
    assert "candidate" in str(ranking)
    assert ranking.alpha == 0.4
    with pytest.raises(KeyError):
        ranking["absent"]


# DirectTune


@pytest.mark.parametrize(("n", "alpha"), [(112, 0.2), (20, 0.1), (7, 0.3)])
def test_direct_tune_has_the_expected_coverage_it_states(n, alpha):
    """The rank-th of n scores, on average as high as rank / (n + 1) of the distribution; it
    certifies nothing.
    """
    y, rank = np.random.default_rng(13).uniform(size=n), n - math.floor(n * Fraction(str(alpha)))
    found = direct_tune(AbsoluteResidual(), Points(np.zeros(n)), y, alpha=alpha)
    assert (found.value, found.guarantee, found.rank, found.n) == (
        np.sort(y)[rank - 1],
        "none",
        rank,
        n,
    )
    assert found.expected_coverage == rank / (n + 1)


def test_a_search_costs_direct_tune_coverage_by_a_known_law_and_fresh_rows_give_it_back():
    """16 independent candidates of equal quality with uniform scores: the search takes the least of
    16 thresholds.

    Each is Beta(r, n + 1 - r), so coverage is the least of 16 such: .776 instead of .799 at n =
    1000. The winner, calibrated on fresh rows, covers k / (m + 1) again. Means over 300 runs within
          4 standard errors.
    """
    rng, runs, n, m = np.random.default_rng(14), 300, 1000, 499
    rank, law = (
        tuning_rank(n, alpha=0.2),
        beta(tuning_rank(n, alpha=0.2), n + 1 - tuning_rank(n, alpha=0.2)),
    )
    grid = np.linspace(0, 1, 200_001)
    expected = np.trapezoid(law.sf(grid) ** 16, grid)
    assert expected == pytest.approx(0.7764, abs=0.0005)
    direct, certified = [], []
    for _ in range(runs):
        scores = rng.uniform(size=(16, n))
        entries = [
            EvaluatedCandidate(str(c), scores[c], lambda t: np.full(n, 2 * t)) for c in range(16)
        ]
        winner = rank_evaluated(entries, alpha=0.2).table[0]
        direct.append(winner.ranking_threshold)
        certified.append(
            split_conformal(rng.uniform(size=(16, m))[int(winner.name)], alpha=0.2).value
        )
    assert rank == 800
    assert np.mean(direct) == pytest.approx(expected, abs=4 * np.std(direct) / math.sqrt(runs))
    assert np.mean(certified) == pytest.approx(
        400 / 500, abs=4 * np.std(certified) / math.sqrt(runs)
    )


# every score of the library


def library():
    """One record of each kind, a y that it predicts, and every score that reads it."""
    rng = np.random.default_rng(15)
    n, uniforms = 60, rng.uniform(size=60)
    draws = rng.dirichlet(np.ones(5), size=(4, n))
    labels, y = rng.integers(5, size=n), rng.standard_normal(n)
    classes = ClassProbabilities(draws[0], uniforms=uniforms)
    lower = rng.uniform(-2, 0, size=n)
    mixtures = GaussianMixtures(rng.standard_normal((n, 6)), np.full(6, 0.7))
    return {
        "LAC": (scores.LAC(), classes, labels),
        "APS": (scores.APS(), classes, labels),
        "APS randomised": (scores.APS(randomised=True), classes, labels),
        "RAPS": (scores.RAPS(penalty=0.1, rank_free=2), classes, labels),
        "SAPS": (scores.SAPS(weight=0.2), classes, labels),
        "TopK": (scores.TopK(), classes, labels),
        "Margin": (scores.Margin(), classes, labels),
        "PosteriorNLL": (scores.PosteriorNLL(), ClassDraws(draws), labels),
        "AddOneIn": (scores.AddOneIn(), ClassDraws(draws), labels),
        "AbsoluteResidual": (scores.AbsoluteResidual(), Points(0.3 * y), y),
        "NormalisedResidual": (
            scores.NormalisedResidual(),
            PointsWithSpread(0.3 * y, rng.uniform(0.5, 2, size=n)),
            y,
        ),
        "QuantileResidual": (scores.QuantileResidual(), Quantiles(lower, lower + 2), y),
        "PredictiveDensity": (scores.PredictiveDensity(), mixtures, y),
        "HighestDensityMass": (scores.HighestDensityMass(), mixtures, y),
    }


# 1e-8 of the smallest sd at either end, as its module says
OUTWARDS = {"HighestDensityMass": 2 * 1e-8 * 0.7}


@pytest.mark.parametrize("name", library())
def test_every_score_is_ranked_by_the_sets_that_it_makes(name):
    score, prediction, y = library()[name]
    row = tune({name: (score, prediction)}, y, alpha=0.2).table[0]
    sets, sizes = (
        score.sets(prediction, row.ranking_threshold),
        score.sizes(prediction, row.ranking_threshold),
    )
    assert row.mean_size == pytest.approx(np.mean(sizes), rel=1e-12)
    assert row.p95_size == pytest.approx(np.quantile(sizes, 0.95), rel=1e-12)
    wider = sets.sizes() - sizes  # ends of sets are rounded outwards
    assert 0 <= wider.min() <= wider.max() <= OUTWARDS.get(name, 1e-9)
    assert row.miscoverage == np.count_nonzero(~sets.contains(y)) / len(y) <= 0.2
    lower = score.sets(prediction, np.nextafter(row.ranking_threshold, -np.inf))
    assert np.count_nonzero(~lower.contains(y)) / len(y) > 0.2  # nothing smaller would do


@pytest.mark.parametrize("name", library())
def test_every_score_is_ranked_by_condition(name):
    score, prediction, y = library()[name]
    conditions, means = np.arange(len(y)) % 2, []
    row = tune({name: (score, prediction)}, y, alpha=0.2, conditions=conditions).table[0]
    for condition, threshold in row.thresholds_by_condition.items():
        rows = np.flatnonzero(conditions == condition)
        own = tune({name: (score, take(prediction, rows))}, y[rows], alpha=0.2).table[0]
        assert threshold == own.ranking_threshold
        means.append(own.mean_size)
    assert row.mean_size == pytest.approx(np.mean(means))


def test_a_candidate_is_feasible_only_if_every_condition_is():
    y, conditions = np.array([5.0, 5.0, 0.0, 0.0]), np.array(["a", "a", "b", "b"])
    candidates = one(np.zeros(4))
    for order in ([0, 1, 2, 3], [2, 3, 0, 1]):
        found = tune(
            candidates, y[order], alpha=0.1, grid=[1.0], conditions=conditions[order]
        ).table[0]
        assert not found.feasible
        assert found.thresholds_by_condition == {"a": 1.0, "b": 1.0}
    assert tune(candidates, y / 9, alpha=0.1, grid=[1.0], conditions=conditions).table[0].feasible


def test_groups_within_a_condition_weigh_as_if_its_rows_were_alone():
    rng = np.random.default_rng(2)
    y, conditions, groups = rng.normal(size=60), rng.integers(2, size=60), rng.integers(6, size=60)
    groups[:20] = 0  # one group is large, and lies unevenly in the two conditions
    conditions[:15] = 0
    together = tune(one(np.zeros(60)), y, alpha=0.25, conditions=conditions, groups=groups).table[0]
    for condition, threshold in together.thresholds_by_condition.items():
        rows = np.flatnonzero(conditions == condition)
        alone = tune(one(np.zeros(rows.size)), y[rows], alpha=0.25, groups=groups[rows])
        assert threshold == alone.table[0].ranking_threshold


def test_weights_too_fine_for_machine_integers_stay_exact():
    """Groups of 2, 3, 5, ... 53 rows: a common denominator has 65 bits."""
    sizes = np.array([2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53])
    groups = np.repeat(np.arange(16), sizes)
    y = np.random.default_rng(4).permutation(groups.size) + 1.0
    found = tune(one(np.zeros(y.size)), y, alpha=0.1, groups=groups).table[0].ranking_threshold
    above = [
        sum(Fraction(1, 16 * int(sizes[g])) for g in groups[y > t]) for t in (found, found - 1)
    ]
    assert above[0] <= Fraction(1, 10) < above[1]


def test_the_p95_size_of_grouped_rows_is_the_least_that_a_twentieth_of_the_weight_exceeds():
    rng = np.random.default_rng(5)
    spread, y, groups = rng.uniform(1, 2, size=80), rng.normal(size=80), rng.integers(7, size=80)
    row = tune(
        {"n": (NormalisedResidual(), PointsWithSpread(np.zeros(80), spread))},
        y,
        alpha=0.2,
        groups=groups,
    ).table[0]
    sizes, weights = 2 * row.ranking_threshold * spread, 1 / (7 * np.bincount(groups)[groups])
    enough = [size for size in sizes if weights[sizes > size + 1e-12].sum() <= 0.05 + 1e-12]
    assert row.p95_size == pytest.approx(min(enough))


def test_a_size_that_is_not_a_number_is_a_failure_with_its_row():
    class Lost(AbsoluteResidual):
        def sizes(self, prediction, threshold):
            return np.where(np.arange(len(prediction)) == 2, np.nan, 1.0)

    points = Points(np.zeros(5))
    found = tune(
        {"lost": (Lost(), points), "plain": (AbsoluteResidual(), points)}, np.arange(5.0), alpha=0.2
    )
    assert found.best == "plain"
    assert found.failed[0].reason == "ValueError: Lost gave a set of size NaN (row 2)."


def test_a_score_of_the_users_is_checked_inside_one_of_ours_too():
    class Shrunk(LAC):
        def sets(self, prediction, threshold):
            return LAC().sets(prediction, threshold - 0.3)

    rng = np.random.default_rng(6)
    prediction, y = ClassProbabilities(rng.dirichlet(np.ones(4), size=60)), rng.integers(4, size=60)
    with pytest.raises(ValueError, match=r"the sets of NeverEmpty leave out .* labels"):
        tune({"wrapped": (scores.NeverEmpty(Shrunk()), prediction)}, y, alpha=0.2)
    assert tune({"wrapped": (scores.NeverEmpty(LAC()), prediction)}, y, alpha=0.2).best == "wrapped"


def test_one_infinite_set_beside_huge_ones_makes_the_mean_infinite():
    """As of a straight line of log y, far from all others: their sum alone overflows."""
    assert exact_mean(np.array([1e308, 1e308, 1e308, np.inf])) == np.inf
    assert exact_mean(np.array([1e308, 1e308])) == 1e308
