"""Selection on the rows that calibrate: the definition is inside the sets, and coverage holds where
EFCP's does not.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from laws import FULL, check_loses, check_mean

import dco
from dco.foundations.ranks import order_statistic
from dco.scores import (
    APS,
    LAC,
    AbsoluteResidual,
    NeverEmpty,
    NormalisedResidual,
    PredictiveDensity,
    QuantileResidual,
    TopK,
)

ALPHA = 0.1


def split(scores, records, n):
    """Return candidates with their first n rows, {name: (score, record)}, and {name: record} of the
    rows after them.
    """
    names = [str(number) for number in range(len(scores))]
    candidates = {
        name: (score, record.take(slice(0, n)))
        for name, score, record in zip(names, scores, records, strict=True)
    }
    new = {name: record.take(slice(n, None)) for name, record in zip(names, records, strict=True)}
    return candidates, new


def one_by_one(new):
    """Return the new rows one at a time, each as {name: record of one row}."""
    n_new = len(next(iter(new.values())))
    return [
        {name: record.take(slice(row, row + 1)) for name, record in new.items()}
        for row in range(n_new)
    ]


# ---------------------------------------------------------------- the definition, in plain loops


class Definition:
    """ModSel-CP as it is defined: one new row, and a choice for every target that it may have."""

    def __init__(self, candidates, y, new_row, *, alpha):
        self.candidates = candidates
        self.new_row = new_row
        self.rank = dco.conformal_rank(len(y), alpha=alpha)
        self.scores = {
            name: score.observed(record, y) for name, (score, record) in candidates.items()
        }
        self.totals = {}

    def total(self, name, threshold):
        """The sum of the sizes over all n + 1 rows."""
        if (name, threshold) not in self.totals:
            score, record = self.candidates[name]
            sizes = [
                *score.sizes(record, threshold),
                *score.sizes(self.new_row[name], threshold),
            ]
            self.totals[name, threshold] = round(math.fsum(sizes), 15)
        return self.totals[name, threshold]

    def score_target(self, name, target):
        score, _ = self.candidates[name]
        return float(score.observed(self.new_row[name], np.array([target]))[0])

    def holds(self, target):
        """The first candidate with the smallest total over n + 1 rows covers it."""
        total_of = {}
        for name, scores in self.scores.items():
            with_target = np.append(scores, self.score_target(name, target))
            total_of[name] = self.total(name, order_statistic(with_target, self.rank))
        winner = min(total_of, key=total_of.__getitem__)
        threshold = order_statistic(self.scores[winner], self.rank)
        return self.score_target(winner, target) <= threshold

    def in_the_union(self, target):
        """S(y) <= S_(k) and L(max(S_(k-1), S(y))) <= min L(S_(k)) for some candidate."""
        upper = {name: order_statistic(s, self.rank) for name, s in self.scores.items()}
        limit = min(self.total(name, threshold) for name, threshold in upper.items())

        for name, scores in self.scores.items():
            lower = np.sort(scores)[self.rank - 2] if self.rank > 1 else -np.inf
            of_target = self.score_target(name, target)
            if of_target <= upper[name] and self.total(name, max(lower, of_target)) <= limit:
                return True
        return False


def draw_records(score_type, n_rows, rng, digits):
    """Draw predictions by three candidates, and targets; few digits make many ties."""
    truth = rng.normal(size=n_rows)
    y = np.round(truth + rng.normal(size=n_rows), digits)

    records = []
    for _ in range(3):
        mean = np.round(truth + 0.7 * rng.normal(size=n_rows), digits)
        spread = rng.choice([0.5, 1.0, 2.0], size=n_rows)
        if score_type is AbsoluteResidual:
            record = dco.Points(mean)
        elif score_type is NormalisedResidual:
            record = dco.PointsWithSpread(mean, spread)
        else:
            record = dco.Quantiles(mean - 2 * spread, mean + spread, median=mean)
        records.append(record)
    return records, y


SCORES = [
    AbsoluteResidual(),
    NormalisedResidual(),
    QuantileResidual(),
    QuantileResidual(kind="relative"),
    QuantileResidual(kind="median"),
]
# thresholds of quantiles are negative at .6; at .97 the rank is 1
LEVELS = [0.1, 0.3, 0.6, 0.97]


@dataclass(frozen=True)
class Membership:
    """Of targets on a grid: which the definition and the sets hold, and which lie at an end."""

    defined: np.ndarray
    in_set: np.ndarray
    at_an_end: np.ndarray


@cache
def numbers_on_a_grid(score, digits, alpha):
    """Compare 12 new rows on a grid with the ends of all pieces, and points beside them."""
    rng = np.random.default_rng([digits, int(100 * alpha)])
    n = 21
    defined = []
    in_set = []
    at_an_end = []

    for _ in range(4):
        records, y = draw_records(type(score), n + 3, rng, digits)
        candidates, new = split([score] * 3, records, n)
        for new_row in one_by_one(new):
            sets = dco.select_and_calibrate(candidates, y[:n], new_row, alpha=alpha).sets
            definition = Definition(candidates, y[:n], new_row, alpha=alpha)
            ends = sets.pieces(0).ravel()
            evenly = np.round(np.linspace(-6, 6, 121), 1)
            grid = np.r_[evenly, ends, ends - 1e-7, ends + 1e-7, rng.normal(size=20)]
            distance = np.abs(grid[:, None] - np.append(ends, np.inf)).min(axis=1)
            defined.append([definition.holds(target) for target in grid])
            in_set.append([bool(sets.contains([target])[0]) for target in grid])
            at_an_end.append(distance < 1e-8)

    return Membership(np.concatenate(defined), np.concatenate(in_set), np.concatenate(at_an_end))


@pytest.mark.parametrize("alpha", LEVELS)
@pytest.mark.parametrize("digits", [0, 1, 6])
@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_intervals_hold_the_definition(score, digits, alpha):
    numbers = numbers_on_a_grid(score, digits, alpha)

    assert not np.any(numbers.defined & ~numbers.in_set)
    assert numbers.defined.any() or alpha > 0.9


@pytest.mark.parametrize("alpha", LEVELS)
@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_intervals_without_ties_are_the_definition(score, alpha):
    """Ends are rounded outwards."""
    numbers = numbers_on_a_grid(score, 6, alpha)

    assert not np.any(numbers.in_set & ~numbers.defined & ~numbers.at_an_end)


@dataclass(frozen=True)
class LabelProblem:
    """How many rows calibrate these scores, and how many labels there are."""

    scores: tuple
    n: int
    n_labels: int


LABEL_PROBLEMS = [
    *[LabelProblem((LAC(), APS(), TopK(), NeverEmpty(LAC())), n=21, n_labels=5)] * 4,
    *[LabelProblem((LAC(), APS(), TopK()), n=17, n_labels=5)] * 2,
    *[LabelProblem((LAC(), LAC()), n=9, n_labels=6)] * 12,
]
TIES = [0, 1, 2, 8]  # digits of probabilities; with 0 all tie, and sums of sizes differ by one


@cache
def labels_by_definition(digits, alpha):
    """Return the sets of three new rows of every problem, by the library, by the definition and by
    the formula of the union, as flat arrays.
    """
    rng = np.random.default_rng([digits, int(100 * alpha)])
    in_set = []
    defined = []
    in_the_union = []

    for problem in LABEL_PROBLEMS:
        n = problem.n
        y = rng.integers(problem.n_labels, size=n)
        shape = (len(problem.scores), n + 3, problem.n_labels)
        p = 1e-9 + rng.dirichlet(np.ones(problem.n_labels), shape[:2]).round(digits)
        if digits == 0:
            p = rng.integers(1, 4, size=shape)
        p = p / p.sum(axis=2, keepdims=True)
        records = [dco.ClassProbabilities(of_candidate) for of_candidate in p]
        candidates, new = split(problem.scores, records, n)

        sets = dco.select_and_calibrate(candidates, y, new, alpha=alpha).sets
        in_set.extend(sets.to_dense().ravel())
        for new_row in one_by_one(new):
            definition = Definition(candidates, y, new_row, alpha=alpha)
            defined.extend(definition.holds(label) for label in range(problem.n_labels))
            in_the_union.extend(definition.in_the_union(label) for label in range(problem.n_labels))

    return np.array(in_set), np.array(defined), np.array(in_the_union)


@pytest.mark.parametrize("alpha", [0.1, 0.4, 0.97])
@pytest.mark.parametrize("digits", TIES)
def test_label_sets_are_the_union_over_the_candidates(digits, alpha):
    in_set, _, in_the_union = labels_by_definition(digits, alpha)

    assert in_set.tolist() == in_the_union.tolist()


@pytest.mark.parametrize("alpha", [0.1, 0.4, 0.97])
@pytest.mark.parametrize("digits", TIES)
def test_label_sets_hold_the_definition(digits, alpha):
    in_set, defined, _ = labels_by_definition(digits, alpha)

    assert not np.any(defined & ~in_set)


@pytest.mark.parametrize("alpha", [0.1, 0.4, 0.97])
@pytest.mark.parametrize("digits", TIES[1:])
def test_ties_cost_label_sets_something_and_not_everything(digits, alpha):
    in_set, defined, _ = labels_by_definition(digits, alpha)

    assert in_set.sum() <= 1.5 * defined.sum() + 5


# ---------------------------------------------------------------- many new rows at once


@pytest.mark.parametrize("score", SCORES[1:], ids=repr)
def test_new_rows_do_not_touch_each_other(score):
    """Many at once give what each gives alone, those where a candidate takes no part included."""
    records, y = draw_records(type(score), 65, np.random.default_rng(3), 6)
    candidates, new = split([score] * 3, records, 25)

    together = dco.select_and_calibrate(candidates, y[:25], new, alpha=ALPHA)
    alone = [
        dco.select_and_calibrate(candidates, y[:25], new_row, alpha=ALPHA)
        for new_row in one_by_one(new)
    ]

    sizes = np.concatenate([selected.sets.sizes() for selected in alone])
    assert together.sets.sizes() == pytest.approx(sizes)
    assert together.winners == {
        name: sum(selected.winners.get(name, 0) for selected in alone) for name in together.winners
    }


def test_no_new_rows_give_no_sets():
    rng = np.random.default_rng(1)
    candidates = {"a": (AbsoluteResidual(), dco.Points(rng.normal(size=20)))}
    new = {"a": dco.Points(np.empty(0))}

    selected = dco.select_and_calibrate(candidates, rng.normal(size=20), new, alpha=ALPHA)

    assert len(selected.sets) == 0


# ---------------------------------------------------------------- closed form of residual sets


class ResidualProblem:
    """60 rows calibrate six candidates, the last of them useless; 40 rows are new.

    The half width is u = min S_(k) over the candidates, and those with S_(k-1) <= u take part: a
    set is the union of mean ± u over them.
    """

    def __init__(self, alpha, rank):
        rng = np.random.default_rng(0)
        n = 60
        truth = rng.normal(size=n + 40)
        y = truth + rng.normal(size=n + 40)
        means = truth + 0.3 * rng.normal(size=(6, n + 40))
        means[5] += 20  # no rank is too low to leave it out

        candidates, new = split([AbsoluteResidual()] * 6, [dco.Points(mean) for mean in means], n)
        self.selected = dco.select_and_calibrate(candidates, y[:n], new, alpha=alpha)

        scores = np.sort(np.abs(y[:n] - means[:, :n]), axis=1)
        self.half_width = scores[:, rank - 1].min()
        self.takes_part = scores[:, rank - 2] <= self.half_width
        self.new_means = means[self.takes_part, n:]


LEVEL_AND_RANK = pytest.mark.parametrize(("alpha", "rank"), [(ALPHA, 55), (0.97, 2)])


@LEVEL_AND_RANK
def test_residual_sets_are_unions_of_intervals_of_one_width(alpha, rank):
    problem = ResidualProblem(alpha, rank)
    targets = np.linspace(-5, 5, 40)

    distance = np.abs(targets[:, None] - problem.new_means.T).min(axis=1)
    contains = problem.selected.sets.contains(targets)

    assert np.array_equal(contains, distance <= problem.half_width)


@LEVEL_AND_RANK
def test_residual_sets_have_the_length_of_their_union(alpha, rank):
    problem = ResidualProblem(alpha, rank)

    width = 2 * problem.half_width
    gaps = np.diff(np.sort(problem.new_means, axis=0), axis=0)

    assert problem.selected.sets.sizes() == pytest.approx(
        width + np.minimum(gaps, width).sum(axis=0)
    )


@LEVEL_AND_RANK
def test_winners_are_the_candidates_that_take_part(alpha, rank):
    problem = ResidualProblem(alpha, rank)

    assert 2 <= problem.takes_part.sum() < 6
    names = np.flatnonzero(problem.takes_part).astype(str)
    assert problem.selected.winners == dict.fromkeys(names, 40)


@LEVEL_AND_RANK
def test_selected_sets_say_what_they_certify(alpha, rank):
    selected = ResidualProblem(alpha, rank).selected

    assert selected.guarantee == "marginal"
    assert selected.method == "modsel"
    assert selected.rank == rank
    assert selected.n == 60


# ---------------------------------------------------------------- coverage


def draw_numbers(rng, n_rows, digits):
    """Draw ten predictions of equal quality, and the targets."""
    truth = rng.normal(size=n_rows)
    y = np.round(truth + 0.2 * rng.normal(size=n_rows), digits)
    means = np.round(truth + rng.normal(size=(10, n_rows)), digits)
    return AbsoluteResidual(), [dco.Points(mean) for mean in means], y


def draw_labels(rng, n_rows, digits):
    """Draw ten classifiers that see the label with noise of their own, and the labels."""
    y = rng.integers(20, size=n_rows)
    logits = 2 * rng.normal(size=(10, n_rows, 20)) + 3 * (y[:, None] == np.arange(20))
    p = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    p = np.round(p, digits) + 1e-9
    p = p / p.sum(axis=2, keepdims=True)
    return LAC(), [dco.ClassProbabilities(of_candidate) for of_candidate in p], y


@dataclass(frozen=True)
class Runs:
    """Of each data set: the coverage of the selected sets and of EFCP's, and how much larger the
    selected sets are than those of one candidate on average.
    """

    coverage: list[float]
    efcp_coverage: list[float]
    size_ratio: list[float]


@pytest.fixture(
    scope="module",
    params=[(draw_numbers, 1), (draw_numbers, 12), (draw_labels, 2), (draw_labels, 12)],
    ids=["numbers with ties", "numbers", "labels with ties", "labels"],
)
def runs(request):
    """Draw data sets of 60 rows with ten candidates of equal quality.

    EFCP, the classic mistake, chooses by these rows and calibrates the winner on them.
    """
    draw, digits = request.param
    rng = np.random.default_rng(8)
    n = 60
    n_runs = 300
    if FULL:
        n_runs = 2000 if draw is draw_numbers else 1000

    runs = Runs([], [], [])
    for _ in range(n_runs):
        score, records, y = draw(rng, n + 100, digits)
        candidates, new = split([score] * 10, records, n)
        sets = dco.select_and_calibrate(candidates, y[:n], new, alpha=ALPHA).sets

        thresholds = {
            name: dco.split_conformal(score.observed(record, y[:n]), alpha=ALPHA)
            for name, (_, record) in candidates.items()
        }
        sizes = {
            name: score.sizes(record, thresholds[name]).mean()
            for name, (_, record) in candidates.items()
        }
        best = min(sizes, key=sizes.__getitem__)
        efcp_sets = score.sets(new[best], thresholds[best])

        runs.coverage.append(sets.contains(y[n:]).mean())
        runs.efcp_coverage.append(efcp_sets.contains(y[n:]).mean())
        runs.size_ratio.append(sets.sizes().mean() / np.mean(list(sizes.values())))
    return runs


@pytest.mark.guarantee
def test_selected_sets_cover_a_new_row(runs):
    check_mean(runs.coverage, 1 - ALPHA)


@pytest.mark.guarantee
def test_choosing_without_the_new_row_loses_coverage(runs):
    check_loses(runs.efcp_coverage, 1 - ALPHA, errors=4)
    assert np.mean(runs.efcp_coverage) < 0.88


@pytest.mark.guarantee
def test_selected_sets_are_not_much_larger_than_those_of_one_candidate(runs):
    """Full sets would cover too."""
    assert np.mean(runs.size_ratio) < 1.6


# ---------------------------------------------------------------- the adjusted rank


def test_the_adjusted_rank_is_that_of_yang_and_kuchibhotla():
    """k = ceil((n + 1)(1 - a~)) with their a~; the winner of the n rows alone is cut there."""
    rng = np.random.default_rng(2)
    n = 400
    n_candidates = 4
    alpha = 0.2
    truth = rng.normal(size=n + 5)
    y = truth + rng.normal(size=n + 5)
    means = truth + rng.normal(size=(n_candidates, n + 5)) * [[2], [0.1], [2], [3]]
    records = [dco.Points(mean) for mean in means]
    candidates, new = split([AbsoluteResidual()] * n_candidates, records, n)

    selected = dco.select_and_calibrate(candidates, y[:n], new, alpha=alpha, method="yk-adjust")

    penalty = 1 / (3 * math.sqrt(n)) + math.sqrt(math.log(2 * n_candidates) / (2 * n))
    adjusted = (n * alpha + 1 - n * penalty) / (n + 1)
    assert selected.rank == math.ceil((n + 1) * (1 - adjusted)) == 348
    assert selected.winners == {"1": 5}

    threshold = order_statistic(np.abs(y[:n] - means[1, :n]), 348)
    residuals = np.abs(y[n:] - means[1, n:])
    assert np.array_equal(selected.sets.contains(y[n:]), residuals <= threshold)
    assert selected.sets.sizes() == pytest.approx(np.full(5, 2 * threshold))


# ---------------------------------------------------------------- few rows, and odd ones


def select_from_noise(n, method):
    """Select among two candidates that predict noise, on n rows of noise."""
    rng = np.random.default_rng(0)
    first, second, y = rng.normal(size=(3, n))
    candidates = {
        "a": (AbsoluteResidual(), dco.Points(first)),
        "b": (AbsoluteResidual(), dco.Points(second)),
    }
    new = {name: dco.Points(rng.normal(size=2)) for name in candidates}
    return dco.select_and_calibrate(candidates, y, new, alpha=ALPHA, method=method)


@pytest.mark.parametrize(
    ("method", "n", "smallest"),
    [
        ("modsel", 8, 9),
        ("yk-adjust", 60, 136),
        ("yk-adjust", 135, 136),
    ],
)
def test_too_few_rows_give_full_intervals_and_a_warning(method, n, smallest):
    with pytest.warns(dco.InfeasibleLevelWarning, match=f"At least {smallest} rows"):
        selected = select_from_noise(n, method)

    assert selected.rank == n + 1
    assert selected.sets.is_infinite().all()


@pytest.mark.parametrize(("method", "smallest"), [("modsel", 9), ("yk-adjust", 136)])
def test_as_many_rows_as_the_warning_names_are_enough(method, smallest):
    selected = select_from_noise(smallest, method)

    assert not selected.sets.is_infinite().any()


@pytest.mark.parametrize("method", ["modsel", "yk-adjust"])
def test_too_few_rows_give_full_label_sets(method):
    p = np.random.default_rng(0).dirichlet(np.ones(3), size=4)
    record = dco.ClassProbabilities(p, classes=["a", "b", "c"])
    labels = ["a", "b", "c", "a"]

    with pytest.warns(dco.InfeasibleLevelWarning):
        selected = dco.select_and_calibrate(
            {"one": (LAC(), record)}, labels, {"one": record}, alpha=ALPHA, method=method
        )

    assert selected.sets.is_full().all()


def test_candidates_may_list_labels_in_their_own_order():
    rng = np.random.default_rng(4)
    names = np.array(["a", "b", "c"])
    p = rng.dirichlet(np.ones(3), size=45)
    y = names[rng.integers(3, size=40)]
    in_order = dco.ClassProbabilities(p, classes=names)
    reordered = dco.ClassProbabilities(p[:, [2, 0, 1]], classes=names[[2, 0, 1]])

    candidates, new = split([LAC()], [in_order], 40)
    of_one = dco.select_and_calibrate(candidates, y, new, alpha=ALPHA)
    candidates, new = split([LAC(), LAC()], [in_order, reordered], 40)
    of_both = dco.select_and_calibrate(candidates, y, new, alpha=ALPHA)

    assert of_one.sets.to_lists() == of_both.sets.to_lists()


# A spread of 0 scores +inf away from the mean.
FLAT = (NormalisedResidual(), dco.PointsWithSpread(np.zeros(30), np.zeros(30)))
WIDE = (NormalisedResidual(), dco.PointsWithSpread(np.zeros(30), np.ones(30)))
NEW_FLAT = dco.PointsWithSpread(np.zeros(3), np.zeros(3))
NEW_WIDE = dco.PointsWithSpread(np.zeros(3), np.ones(3))


def test_a_candidate_whose_threshold_is_infinite_gives_way_to_another():
    y = np.random.default_rng(1).normal(size=30)

    selected = dco.select_and_calibrate(
        {"flat": FLAT, "wide": WIDE}, y, {"flat": NEW_FLAT, "wide": NEW_WIDE}, alpha=ALPHA
    )

    threshold = order_statistic(np.abs(y), selected.rank)
    assert selected.sets.sizes() == pytest.approx(np.full(3, 2 * threshold))


def test_a_single_candidate_whose_threshold_is_infinite_gives_full_sets():
    y = np.random.default_rng(1).normal(size=30)

    selected = dco.select_and_calibrate({"flat": FLAT}, y, {"flat": NEW_FLAT}, alpha=ALPHA)

    assert selected.sets.is_infinite().all()


# ---------------------------------------------------------------- what is refused

POINTS = dco.Points(np.zeros(3))
RESIDUALS = (AbsoluteResidual(), POINTS)
LABELS = dco.ClassProbabilities(np.full((3, 2), 0.5))
OTHER_LABELS = dco.ClassProbabilities(np.full((3, 2), 0.5), classes=["x", "y"])
MIXTURES = dco.GaussianMixtures(np.zeros((3, 2)), np.ones(2), draws_first=False)


def test_a_method_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="method must be"):
        dco.select_and_calibrate(
            {"a": RESIDUALS}, np.zeros(3), {"a": POINTS}, alpha=0.4, method="loo"
        )


@pytest.mark.parametrize("new", [{"b": POINTS}, POINTS], ids=["other names", "a record"])
def test_new_rows_come_as_a_dict_with_the_names_of_the_candidates(new):
    with pytest.raises(ValueError, match="new must be a dict"):
        dco.select_and_calibrate({"a": RESIDUALS}, np.zeros(3), new, alpha=0.4)


def test_new_rows_of_a_candidate_must_be_a_record():
    new = {"a": np.zeros(3)}
    with pytest.raises(ValueError, match=r"a record such as dco\.Points, got ndarray"):
        dco.select_and_calibrate({"a": RESIDUALS}, np.zeros(3), new, alpha=0.4)


def test_targets_are_as_many_as_rows():
    with pytest.raises(ValueError, match="one label or number"):
        dco.select_and_calibrate({"a": RESIDUALS}, [], {"a": POINTS}, alpha=0.4)


def test_candidates_must_predict_the_same_new_rows():
    new = {"a": POINTS, "b": dco.Points(np.zeros(2))}
    with pytest.raises(ValueError, match="same rows"):
        dco.select_and_calibrate({"a": RESIDUALS, "b": RESIDUALS}, np.zeros(3), new, alpha=0.4)


def test_intervals_and_label_sets_cannot_be_united():
    candidates = {"a": RESIDUALS, "b": (LAC(), LABELS)}
    with pytest.raises(ValueError, match="some of each"):
        dco.select_and_calibrate(candidates, np.zeros(3), {"a": POINTS, "b": LABELS}, alpha=0.4)


def test_new_rows_must_have_the_labels_of_the_calibration_rows():
    with pytest.raises(ValueError, match="same labels"):
        dco.select_and_calibrate({"a": (LAC(), LABELS)}, [0, 1, 0], {"a": OTHER_LABELS}, alpha=0.4)


def test_scores_whose_lengths_have_no_formula_are_refused():
    candidates = {"a": (PredictiveDensity(), MIXTURES)}
    with pytest.raises(dco.IncompatibleScoreError, match="length is known at any cut-off"):
        dco.select_and_calibrate(candidates, np.zeros(3), {"a": MIXTURES}, alpha=0.4)
