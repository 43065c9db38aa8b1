"""The exact search against brute force over every threshold, its tie-breaks and its fallback."""

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
from dco.calibration import split_conformal
from dco.foundations.errors import IncompatibleScoreError, NonFiniteScoreError
from dco.foundations.ranks import tuning_rank
from dco.predictions import (
    ClassDraws,
    ClassProbabilities,
    GaussianMixtures,
    Points,
    PointsWithSpread,
    Quantiles,
)
from dco.scores import LAC, AbsoluteResidual, NormalisedResidual
from dco.scores.score import Score
from dco.sets import LabelSets
from dco.tuning import direct_tune, tune
from dco.tuning.evaluated import EvaluatedCandidate
from dco.tuning.row_weights import exact_mean
from dco.tuning.search import rank_evaluated


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
        return LabelSets(np.array(self.scores) <= threshold)


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


# sets without bounds

TWO_INFINITE = np.r_[np.arange(1.0, 9.0), np.inf, np.inf]  # scores: at alpha = .1 one may be missed


def test_unbounded_sets_fall_back_on_the_largest_threshold_with_bounded_ones():
    line = EvaluatedCandidate("line", TWO_INFINITE, lambda t: np.full(10, 2 * t))
    row = rank_evaluated([line], alpha=0.1).table[0]
    assert not row.feasible
    assert row.ranking_threshold == 8.0
    assert row.miscoverage == 0.2
    assert row.mean_size == 16.0


def full_set_of_three(threshold):
    return np.full(10, 3.0 if math.isinf(threshold) else 1.0)


def test_the_full_set_of_labels_is_bounded():
    classes = EvaluatedCandidate("classes", TWO_INFINITE, full_set_of_three)
    row = rank_evaluated([classes], alpha=0.1).table[0]
    assert row.feasible
    assert row.ranking_threshold == math.inf
    assert row.mean_size == 3.0


def test_a_feasible_candidate_comes_before_a_fallback():
    line = EvaluatedCandidate("line", TWO_INFINITE, lambda t: np.full(10, t / 100))
    classes = EvaluatedCandidate("classes", TWO_INFINITE, full_set_of_three)
    assert rank_evaluated([line, classes], alpha=0.1).best == "classes"


def test_sets_that_are_never_bounded_are_not_feasible():
    everywhere = EvaluatedCandidate("everywhere", TWO_INFINITE, lambda t: np.full(10, np.inf))
    assert not rank_evaluated([everywhere], alpha=0.1).table[0].feasible


# failures


def test_a_candidate_that_fails_is_reported_and_left_out():
    y = np.random.default_rng(12).standard_normal(20)
    candidates = {"nan": (Nothing(), Points(y)), "wrong": (LAC(), Points(y)), **one(0 * y)}
    ranking = tune(candidates, y, alpha=0.1)
    assert [row.name for row in ranking.table] == ["r"]
    reasons = {failed.name: failed.reason for failed in ranking.failed}
    assert "NaN" in reasons["nan"]
    assert "LAC needs" in reasons["wrong"]


def test_a_candidate_whose_sizes_fail_is_left_out_too():
    def explode(threshold):
        raise RuntimeError("no sizes today")

    y = np.arange(20.0)
    broken = EvaluatedCandidate("late", y, explode)
    fine = EvaluatedCandidate("fine", y, lambda t: y + t)
    ranking = rank_evaluated([broken, fine], alpha=0.1)
    assert ranking.best == "fine"
    assert ranking.failed[0].reason == "RuntimeError: no sizes today"
    assert "no sizes today" in str(ranking)


NAN = {"nan": (Nothing(), Points(np.zeros(5)))}
WRONG = {"wrong": (LAC(), Points(np.zeros(5)))}


@pytest.mark.parametrize(
    ("candidates", "error", "words"),
    [
        (NAN | WRONG, ValueError, "all 2 candidates failed.*nan: NonFinite.*wrong: Incompatible"),
        (NAN, NonFiniteScoreError, "^the only candidate failed on the tuning rows. nan: "),
        (WRONG, IncompatibleScoreError, "LAC"),
    ],
    ids=["of two kinds", "of one kind", "of another kind"],
)
def test_when_all_fail_one_error_has_every_reason(candidates, error, words):
    with pytest.raises(error, match=words):
        tune(candidates, np.zeros(5), alpha=0.1)


GOOD = one(np.zeros(3))


@pytest.mark.parametrize(
    "candidates",
    [["r"], "r", None, (AbsoluteResidual(), Points(np.zeros(3))), np.zeros((3, 2))],
    ids=["list", "text", "nothing", "pair", "array"],
)
def test_candidates_must_be_a_dict(candidates):
    with pytest.raises(ValueError, match=r"candidates must be a dict {name: \(score, prediction"):
        tune(candidates, np.zeros(3), alpha=0.1)


@pytest.mark.parametrize(
    "pair",
    [AbsoluteResidual(), None, (AbsoluteResidual(),), "rp"],
    ids=["score alone", "nothing", "too short", "text"],
)
def test_a_candidate_must_be_a_pair(pair):
    with pytest.raises(ValueError, match="candidate 'r' must be a pair"):
        tune({"r": pair}, np.zeros(3), alpha=0.1)


def test_a_pair_the_wrong_way_round_is_told_so():
    candidates = {"b": (LAC(), blank(3, 2)), "a": (blank(3, 2), LAC())}
    with pytest.raises(ValueError, match="candidate 'a' is the wrong way round"):
        tune(candidates, np.zeros(3, dtype=int), alpha=0.1)


def test_no_candidate_no_row_and_no_level_are_refused():
    with pytest.raises(ValueError, match="no candidate"):
        tune({}, np.zeros(3), alpha=0.1)
    with pytest.raises(ValueError, match="y_tune"):
        tune(GOOD, np.zeros(0), alpha=0.1)
    with pytest.raises(ValueError, match="alpha"):
        tune(GOOD, np.zeros(3), alpha=1.5)


# printing


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


def test_the_threshold_of_the_most_probable_label_alone_is_printed_in_a_word():
    sure = ClassProbabilities(np.tile([0.9, 0.1], (20, 1)))
    candidates = {"sure": (scores.NeverEmpty(LAC()), sure)}
    ranking = tune(candidates, np.zeros(20, dtype=int), alpha=0.1)
    assert "lowest" in str(ranking)
    assert "e+308" not in str(ranking)


def test_ranking_reads_as_a_table():
    ranking = tune(one(np.arange(3.0)), np.zeros(3), alpha=0.4)
    assert list(ranking.to_frame()["name"]) == ["r"]
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
    mixtures = GaussianMixtures(rng.standard_normal((n, 6)), np.full(6, 0.7), draws_first=False)
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
        def find_members(self, record, thresholds):
            return super().find_members(record, thresholds - 0.3)

    rng = np.random.default_rng(6)
    prediction, y = ClassProbabilities(rng.dirichlet(np.ones(4), size=60)), rng.integers(4, size=60)
    with pytest.raises(ValueError, match=r"the sets of NeverEmpty leave out .* labels"):
        tune({"wrapped": (scores.NeverEmpty(Shrunk()), prediction)}, y, alpha=0.2)
    assert tune({"wrapped": (scores.NeverEmpty(LAC()), prediction)}, y, alpha=0.2).best == "wrapped"


def test_one_infinite_set_beside_huge_ones_makes_the_mean_infinite():
    """As of a straight line of log y, far from all others: their sum alone overflows."""
    assert exact_mean(np.array([1e308, 1e308, 1e308, np.inf])) == np.inf
    assert exact_mean(np.array([1e308, 1e308])) == 1e308
