"""The exact search against brute force over every threshold, its tie-breaks and its fallback."""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

import dco
from dco import ClassProbabilities, GaussianMixtures, Points, PointsWithSpread, scores, tune
from dco.foundations.ranks import tuning_rank
from dco.scores import LAC, AbsoluteResidual, NormalisedResidual, Score
from dco.sets import Intervals, LabelSets


@dataclass(frozen=True)
class Table(Score):
    """A score that is looked up: `scores[i][k]` for label k of row i; the prediction only says how
    many rows there are.
    """

    scores: tuple[tuple[float, ...], ...]
    needs: ClassVar[tuple[type, ...]] = (ClassProbabilities,)

    def observed(self, prediction, y):
        return np.array(self.scores)[np.arange(len(y)), y]

    def sets(self, prediction, threshold):
        return LabelSets(np.array(self.scores) <= threshold)


def look_up(matrix):
    """Make a candidate whose scores are looked up in this matrix of rows by labels."""
    n, n_labels = matrix.shape
    score = Table(tuple(tuple(float(value) for value in row) for row in matrix))
    return score, uniform(n, n_labels)


def uniform(n, n_labels):
    """Predict all labels alike."""
    return ClassProbabilities(np.full((n, n_labels), 1 / n_labels))


def around(mean):
    """Make a candidate with intervals around these means."""
    return AbsoluteResidual(), Points(mean)


# ---------------------------------------------------------------- brute force


def draw_problem(rng, *, tied):
    """Draw several lookup tables over the same rows; with ties the scores take few values."""
    n = int(rng.integers(1, 25))
    n_labels = int(rng.integers(1, 6))
    y = rng.integers(n_labels, size=n)
    candidates = {}
    for number in range(int(rng.integers(1, 5))):
        shape = (n, n_labels)
        matrix = rng.integers(0, 5, size=shape) / 4 if tied else rng.uniform(size=shape)
        candidates[f"c{number}"] = look_up(matrix)
    return candidates, y


@dataclass(frozen=True, order=True)
class Setting:
    """A candidate at a threshold; the smallest one wins."""

    mean_size: Fraction
    p95_size: float
    threshold: float
    number: int
    name: str
    miscoverage: float


def search_by_force(candidates, y, alpha):
    """Return the best setting of all candidates at every threshold that can matter."""
    settings = []
    for number, (name, (score, _)) in enumerate(candidates.items()):
        matrix = np.array(score.scores)
        of_true_label = matrix[np.arange(len(y)), y]
        for threshold in np.unique(matrix):
            n_missed = int(np.count_nonzero(of_true_label > threshold))
            if Fraction(n_missed, len(y)) > Fraction(alpha):
                continue
            sizes = (matrix <= threshold).sum(axis=1)
            setting = Setting(
                mean_size=Fraction(int(sizes.sum()), len(y)),
                p95_size=round(np.quantile(sizes, 0.95), 9),
                threshold=float(threshold),
                number=number,
                name=name,
                miscoverage=n_missed / len(y),
            )
            settings.append(setting)
    return min(settings)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "distinct"])
@pytest.mark.parametrize("alpha", ["0.1", "0.25", "0.3", "0.5", "0.9"])
def test_exact_search_equals_brute_force_over_every_threshold(tied, alpha):
    rng = np.random.default_rng([int(tied), int(10 * float(alpha))])
    for _ in range(60):
        candidates, y = draw_problem(rng, tied=tied)
        best = search_by_force(candidates, y, alpha)

        row = tune(candidates, y, alpha=alpha).table[0]

        assert row.name == best.name
        assert row.mean_size == float(best.mean_size)
        assert row.p95_size == pytest.approx(best.p95_size)
        assert row.miscoverage == best.miscoverage
        assert row.feasible


@pytest.mark.parametrize(
    ("alpha", "threshold"), [(1 - 0.9, 90.0), (0.7, 30.0)], ids=["1 - 0.9", "0.7"]
)
def test_the_rank_is_taken_in_exact_arithmetic(alpha, threshold):
    """100 rows at 1 - 0.9: ten may be missed, although the float 1 - 0.9 is below a tenth."""
    candidates = {"r": around(np.arange(1.0, 101.0))}

    row = tune(candidates, np.zeros(100), alpha=alpha).table[0]

    assert row.ranking_threshold == threshold


def test_ties_fall_by_p95_then_threshold_then_order():
    even = np.full((20, 3), 1.0)
    even[:, :2] = 0.0  # every set has two labels at threshold 0
    uneven = np.full((20, 3), 1.0)
    uneven[:, 0] = 0.0
    uneven[:10] = 0.0  # ten sets of three, ten of one: the same mean, a larger P95
    raised = even + 0.5  # as even, at a larger threshold
    tables = {"uneven": uneven, "raised": raised, "even": even, "again": even}
    candidates = {name: look_up(matrix) for name, matrix in tables.items()}

    ranking = tune(candidates, np.zeros(20, dtype=int), alpha=0.1)

    assert [row.name for row in ranking.table] == ["even", "again", "raised", "uneven"]
    assert {row.mean_size for row in ranking.table} == {2.0}


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_the_order_of_rows_is_irrelevant(seed):
    """Not even the last bit of a mean changes, so ties cannot fall differently."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    y = rng.standard_normal(n)
    records = [
        PointsWithSpread(rng.standard_normal(n), rng.uniform(0.1, 9, size=n)) for _ in range(3)
    ]
    order = rng.permutation(n)

    candidates = {str(i): (NormalisedResidual(), record) for i, record in enumerate(records)}
    shuffled = {
        str(i): (NormalisedResidual(), record.take(order)) for i, record in enumerate(records)
    }

    assert tune(shuffled, y[order], alpha=0.2) == tune(candidates, y, alpha=0.2)


# ---------------------------------------------------------------- sets without bounds

# Scores 1, 2, ..., 8 and two infinite ones, of rows with a spread of 0; at alpha = .1 one of the
# ten may be missed.
TEN_TARGETS = np.r_[np.arange(1.0, 9.0), 1.0, 1.0]
TWO_INFINITE = (
    NormalisedResidual(),
    PointsWithSpread(np.zeros(10), np.repeat([1.0, 0.0], [8, 2])),
)


def test_unbounded_sets_fall_back_on_the_largest_threshold_with_bounded_ones():
    row = tune({"line": TWO_INFINITE}, TEN_TARGETS, alpha=0.1).table[0]

    assert not row.feasible
    assert row.ranking_threshold == 8.0
    assert row.miscoverage == 0.2
    assert row.mean_size == pytest.approx((8 * 16 + 2 * 0) / 10)


def test_the_full_set_of_labels_is_bounded():
    matrix = np.full((10, 3), np.inf)
    matrix[:8, 0] = np.arange(1.0, 9.0)

    row = tune({"classes": look_up(matrix)}, np.zeros(10, dtype=int), alpha=0.1).table[0]

    assert row.feasible
    assert row.ranking_threshold == math.inf
    assert row.mean_size == 3.0


def test_a_feasible_candidate_comes_before_a_fallback():
    candidates = {"line": TWO_INFINITE, "far": around(np.full(10, 1000.0))}

    ranking = tune(candidates, TEN_TARGETS, alpha=0.1)

    assert ranking.best == "far"
    assert ranking["far"].mean_size > 50 * ranking["line"].mean_size


class Everywhere(AbsoluteResidual):
    """A score whose sets are the whole line at any threshold."""

    def sets(self, prediction, threshold):
        ends = np.full(len(prediction), np.inf)
        return Intervals(-ends, ends)

    def sizes(self, prediction, threshold):
        return np.full(len(prediction), np.inf)


def test_sets_that_are_never_bounded_are_not_feasible():
    candidates = {"everywhere": (Everywhere(), Points(np.zeros(10)))}

    assert not tune(candidates, TEN_TARGETS, alpha=0.1).table[0].feasible


class WithSizes(AbsoluteResidual):
    """Sets of the sizes 1e308, 1e308, 1e308 and infinity."""

    def sizes(self, prediction, threshold):
        return np.array([1e308, 1e308, 1e308, np.inf])


def test_one_infinite_set_beside_huge_ones_makes_the_mean_infinite():
    """As of a straight line of log y, far from all others: their sum alone overflows."""
    candidates = {"huge": (WithSizes(), Points(np.zeros(4)))}

    assert tune(candidates, np.arange(4.0), alpha=0.3).table[0].mean_size == np.inf


def test_the_mean_of_huge_sizes_is_finite():
    candidates = {"huge": around(np.zeros(4))}

    assert tune(candidates, np.full(4, 5e307), alpha=0.3).table[0].mean_size == 1e308


# ---------------------------------------------------------------- failures


class NotANumber(AbsoluteResidual):
    """Scores that are no numbers."""

    def observed(self, prediction, y):
        return np.full(len(y), np.nan)


class WithoutSizes(AbsoluteResidual):
    """A score whose sizes cannot be computed."""

    def sizes(self, prediction, threshold):
        raise RuntimeError("no sizes today")


class OneSizeIsNotANumber(AbsoluteResidual):
    """A score whose set of row 2 has no size."""

    def sizes(self, prediction, threshold):
        return np.where(np.arange(len(prediction)) == 2, np.nan, 1.0)


FIVE = np.arange(5.0)
FIVE_POINTS = Points(np.zeros(5))
FAILING = {
    "nan": (NotANumber(), FIVE_POINTS),
    "wrong": (LAC(), FIVE_POINTS),
}


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        (NotANumber(), "NonFiniteScoreError: .*NaN"),
        (LAC(), "LAC needs"),
        (WithoutSizes(), "^RuntimeError: no sizes today$"),
        (OneSizeIsNotANumber(), r"^ValueError: OneSizeIsNotANumber gave a set of size NaN \(row 2"),
    ],
    ids=["nan", "another record", "error in sizes", "size nan"],
)
def test_a_candidate_that_fails_is_left_out_with_its_reason(score, reason):
    candidates = {"failing": (score, FIVE_POINTS), "fine": around(np.zeros(5))}

    ranking = tune(candidates, FIVE, alpha=0.2)

    assert [row.name for row in ranking.table] == ["fine"]
    (failed,) = ranking.failed
    assert failed.name == "failing"
    assert failed.reason in str(ranking)
    assert re.search(reason, failed.reason)


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (
            ["nan", "wrong"],
            ValueError,
            "all 2 candidates failed.*nan: NonFinite.*wrong: Incompatible",
        ),
        (
            ["nan"],
            dco.NonFiniteScoreError,
            "^the only candidate failed on the tuning rows. nan: ",
        ),
        (["wrong"], dco.IncompatibleScoreError, "LAC"),
    ],
    ids=["of two kinds", "of one kind", "of another kind"],
)
def test_when_all_fail_one_error_has_every_reason(names, error, message):
    candidates = {name: FAILING[name] for name in names}
    with pytest.raises(error, match=message):
        tune(candidates, FIVE, alpha=0.1)


class Shrunk(LAC):
    """A user's score whose sets are smaller than its scores say."""

    def find_members(self, record, thresholds):
        return super().find_members(record, thresholds - 0.3)


def test_a_score_of_the_users_is_checked_inside_one_of_ours_too():
    rng = np.random.default_rng(6)
    prediction = ClassProbabilities(rng.dirichlet(np.ones(4), size=60))
    y = rng.integers(4, size=60)

    with pytest.raises(ValueError, match=r"the sets of NeverEmpty leave out .* labels"):
        tune({"wrapped": (scores.NeverEmpty(Shrunk()), prediction)}, y, alpha=0.2)
    assert tune({"wrapped": (scores.NeverEmpty(LAC()), prediction)}, y, alpha=0.2).best == "wrapped"


# ---------------------------------------------------------------- wrong arguments

THREE = around(np.zeros(3))


@pytest.mark.parametrize(
    "candidates",
    [["r"], "r", None, THREE, np.zeros((3, 2))],
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
    candidates = {"b": (LAC(), uniform(3, 2)), "a": (uniform(3, 2), LAC())}
    with pytest.raises(ValueError, match="candidate 'a' is the wrong way round"):
        tune(candidates, np.zeros(3, dtype=int), alpha=0.1)


@pytest.mark.parametrize(
    ("candidates", "y", "alpha", "message"),
    [
        ({}, np.zeros(3), 0.1, "no candidate"),
        ({"r": THREE}, np.zeros(0), 0.1, "y_tune"),
        ({"r": THREE}, np.zeros(3), 1.5, "alpha"),
    ],
    ids=["no candidate", "no row", "no level"],
)
def test_no_candidate_no_row_and_no_level_are_refused(candidates, y, alpha, message):
    with pytest.raises(ValueError, match=message):
        tune(candidates, y, alpha=alpha)


# ---------------------------------------------------------------- printing


def test_a_printed_ranking_keeps_its_columns_under_long_names():
    candidate = around(np.zeros(9))
    candidates = {"short": candidate, "long " * 12 + "name": candidate}

    head, *lines = str(tune(candidates, np.full(9, 0.5), alpha=0.1)).splitlines()

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


def test_a_ranking_reads_as_a_table():
    ranking = tune({"r": around(np.arange(3.0))}, np.zeros(3), alpha=0.4)

    assert list(ranking.to_frame()["name"]) == ["r"]
    assert ranking.alpha == 0.4


def test_a_ranking_knows_its_candidates_alone():
    ranking = tune({"r": around(np.arange(3.0))}, np.zeros(3), alpha=0.4)

    with pytest.raises(KeyError):
        ranking["absent"]


# ---------------------------------------------------------------- what a search costs


@pytest.mark.parametrize(("n", "alpha", "rank"), [(112, 0.2, 90), (20, 0.1, 18), (7, 0.3, 5)])
def test_direct_tune_has_the_expected_coverage_it_states(n, alpha, rank):
    """The rank-th of n scores, on average as high as rank / (n + 1) of the distribution; it
    certifies nothing.
    """
    y = np.random.default_rng(13).uniform(size=n)

    threshold = dco.direct_tune(AbsoluteResidual(), Points(np.zeros(n)), y, alpha=alpha)

    assert threshold.value == np.sort(y)[rank - 1]
    assert threshold.guarantee == "none"
    assert threshold.rank == rank
    assert threshold.n == n
    assert threshold.expected_coverage == rank / (n + 1)


@dataclass(frozen=True)
class SearchRuns:
    """Coverage of the ranking threshold of the best of 16, and of one calibrated on fresh rows."""

    direct: list[float]
    certified: list[float]


@pytest.fixture(scope="module")
def search_runs():
    """Search 300 times among 16 independent candidates of equal quality, whose scores are uniform:
    coverage is the threshold.
    """
    rng = np.random.default_rng(14)
    runs = SearchRuns([], [])
    for _ in range(300):
        tuning_scores = rng.uniform(size=(16, 1000))
        candidates = {str(c): around(tuning_scores[c]) for c in range(16)}
        winner = tune(candidates, np.zeros(1000), alpha=0.2).table[0]
        fresh_scores = rng.uniform(size=(16, 499))[int(winner.name)]
        runs.direct.append(winner.ranking_threshold)
        runs.certified.append(dco.split_conformal(fresh_scores, alpha=0.2).value)
    return runs


def test_a_search_costs_direct_tune_coverage_by_a_known_law(search_runs):
    """The search takes the smallest of 16 thresholds, each Beta(r, n + 1 - r): .776 instead of .799
    at n = 1000. The mean lies within 4 standard errors.
    """
    rank = tuning_rank(1000, alpha=0.2)
    law = beta(rank, 1001 - rank)
    grid = np.linspace(0, 1, 200_001)
    expected = np.trapezoid(law.sf(grid) ** 16, grid)

    standard_error = np.std(search_runs.direct) / math.sqrt(300)
    assert rank == 800
    assert expected == pytest.approx(0.7764, abs=0.0005)
    assert np.mean(search_runs.direct) == pytest.approx(expected, abs=4 * standard_error)


def test_fresh_rows_give_the_coverage_back(search_runs):
    """The winner covers k / (m + 1) again, within 4 standard errors."""
    standard_error = np.std(search_runs.certified) / math.sqrt(300)

    assert np.mean(search_runs.certified) == pytest.approx(400 / 500, abs=4 * standard_error)


# ---------------------------------------------------------------- every score of the library


def draw_library():
    """Draw predictions of each kind and targets, and return {name: (score, prediction, targets)}
    with every score.
    """
    rng = np.random.default_rng(15)
    n = 60
    draws = rng.dirichlet(np.ones(5), size=(4, n))
    labels = rng.integers(5, size=n)
    classes = ClassProbabilities(draws[0], uniforms=rng.uniform(size=n))
    class_draws = dco.ClassDraws(draws)
    y = rng.standard_normal(n)
    points = Points(0.3 * y)
    with_spread = PointsWithSpread(0.3 * y, rng.uniform(0.5, 2, size=n))
    lower = rng.uniform(-2, 0, size=n)
    quantiles = dco.Quantiles(lower, lower + 2)
    mixtures = GaussianMixtures(rng.standard_normal((n, 6)), np.full(6, 0.7), draws_first=False)
    return {
        "LAC": (scores.LAC(), classes, labels),
        "APS": (scores.APS(), classes, labels),
        "APS randomised": (scores.APS(randomised=True), classes, labels),
        "RAPS": (scores.RAPS(penalty=0.1, rank_free=2), classes, labels),
        "SAPS": (scores.SAPS(weight=0.2), classes, labels),
        "TopK": (scores.TopK(), classes, labels),
        "Margin": (scores.Margin(), classes, labels),
        "PosteriorNLL": (scores.PosteriorNLL(), class_draws, labels),
        "AddOneIn": (scores.AddOneIn(), class_draws, labels),
        "AbsoluteResidual": (scores.AbsoluteResidual(), points, y),
        "NormalisedResidual": (scores.NormalisedResidual(), with_spread, y),
        "QuantileResidual": (scores.QuantileResidual(), quantiles, y),
        "PredictiveDensity": (scores.PredictiveDensity(), mixtures, y),
        "HighestDensityMass": (scores.HighestDensityMass(), mixtures, y),
    }


LIBRARY = draw_library()
every_score = pytest.mark.parametrize(("score", "prediction", "y"), LIBRARY.values(), ids=LIBRARY)


@every_score
def test_every_score_is_ranked_by_the_sizes_of_its_sets(score, prediction, y):
    row = tune({"one": (score, prediction)}, y, alpha=0.2).table[0]

    sizes = score.sizes(prediction, row.ranking_threshold)
    assert row.mean_size == pytest.approx(np.mean(sizes), rel=1e-12)
    assert row.p95_size == pytest.approx(np.quantile(sizes, 0.95), rel=1e-12)


@every_score
def test_every_score_is_cut_at_the_smallest_threshold_of_the_level(score, prediction, y):
    row = tune({"one": (score, prediction)}, y, alpha=0.2).table[0]

    def miscoverage(threshold):
        return np.count_nonzero(~score.sets(prediction, threshold).contains(y)) / len(y)

    below = np.nextafter(row.ranking_threshold, -np.inf)
    assert row.miscoverage == miscoverage(row.ranking_threshold) <= 0.2
    assert miscoverage(below) > 0.2


@every_score
def test_ends_of_sets_are_rounded_outwards_by_no_more_than_rounding(score, prediction, y):
    row = tune({"one": (score, prediction)}, y, alpha=0.2).table[0]

    sets = score.sets(prediction, row.ranking_threshold)
    wider = sets.sizes() - score.sizes(prediction, row.ranking_threshold)

    # HighestDensityMass: 1e-8 of the smallest sd, .7, at either end, as its module says
    is_mass = isinstance(score, scores.HighestDensityMass)
    rounding = 2 * 1e-8 * 0.7 if is_mass else 1e-9
    assert wider.min() >= 0
    assert wider.max() <= rounding
