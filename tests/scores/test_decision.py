"""Scores made for decisions, against their definition in fractions; actions, against loops."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from dco import ClassDraws, ClassProbabilities, LabelSets
from dco.scores import LAC, RiskAverse, RiskOptimal, act

LOSSES = np.array([[0.0, 2, 9], [3, 0, 5], [4, 4, 0], [2, 2, 2]])
both_scores = pytest.mark.parametrize("kind", [RiskAverse, RiskOptimal])


# ---------------------------------------------------------------- the definition


class ManyAnswersError(Exception):
    """Tied actions give different sets, so that the problem has no single answer."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Probabilities in sixteenths (some 0) and small whole losses: floats hold every mass exactly.

    The scores are computed by their definition in fractions: every t in {0, 1} and every cumulative
    mass, every action, every price that matters.
    """

    probabilities: list[Fraction]
    losses: np.ndarray

    @classmethod
    def draw(cls, rng):
        n_labels = int(rng.integers(2, 5))
        n_actions = int(rng.integers(1, 5))
        weights = rng.multinomial(16, rng.dirichlet(np.ones(n_labels)))
        losses = rng.integers(0, 7, size=(n_actions, n_labels))
        return cls([Fraction(int(weight), 16) for weight in weights], losses)

    def labels_within(self, action, loss):
        """Return the labels for which the action costs at most the loss."""
        return {y for y, cost in enumerate(self.losses[action]) if cost <= loss}

    def mass_within(self, action, loss):
        """Return the probability that the action costs at most the loss."""
        return sum((self.probabilities[y] for y in self.labels_within(action, loss)), Fraction(0))

    def shares(self):
        """Return all t to try: 0, 1 and the cumulative masses of every action."""
        masses = {
            self.mass_within(action, loss)
            for action in range(len(self.losses))
            for loss in self.losses[action]
        }
        return {Fraction(0), Fraction(1)} | masses

    def quantile(self, action, t):
        """Return the smallest loss that the action does not exceed with probability t."""
        enough = [loss for loss in self.losses[action] if self.mass_within(action, loss) >= t]
        return Fraction(int(min(enough)))

    def value(self, kind, action, t):
        """Return what it costs to cover a share t with the action."""
        if kind is RiskAverse:
            return self.quantile(action, t)
        worst = int(self.losses[action].max())
        return t * self.quantile(action, t) + (1 - t) * worst

    def cover(self, kind, t):
        """Return the least cost of covering a share t, and the set of each best action."""
        actions = range(len(self.losses))
        cost = min(self.value(kind, action, t) for action in actions)
        if kind is RiskOptimal and t == 0:
            return cost, [set(range(len(self.probabilities)))]

        best = [action for action in actions if self.value(kind, action, t) == cost]
        return cost, [self.labels_within(action, self.quantile(action, t)) for action in best]

    def scores(self, kind):
        """Return the price from which on each label is covered for good."""
        covers = {t: self.cover(kind, t) for t in self.shares()}

        def covered_at(price):
            smallest = min(cost - price * t for t, (cost, _) in covers.items())
            best = max(t for t, (cost, _) in covers.items() if cost - price * t == smallest)
            _, sets = covers[best]
            if any(labels != sets[0] for labels in sets):
                raise ManyAnswersError
            return sets[0]

        # the best share changes at these prices only
        slopes = {
            (high_cost - low_cost) / (high - low)
            for (low, (low_cost, _)), (high, (high_cost, _)) in product(covers.items(), repeat=2)
            if high > low and high_cost > low_cost
        }
        prices = sorted({Fraction(0)} | slopes)
        at_prices = [covered_at(price) for price in prices]
        between = [
            covered_at((low + high) / 2) for low, high in pairwise([*prices, prices[-1] + 2])
        ]
        assert at_prices == between

        return [first_price_for_good(y, prices, at_prices) for y in range(len(self.probabilities))]


def first_price_for_good(label, prices, sets):
    """Return the price from which on every set has the label; infinity if the last has not."""
    without = [i for i, labels in enumerate(sets) if label not in labels]
    if not without:
        return 0.0
    after = without[-1] + 1
    return float(prices[after]) if after < len(prices) else np.inf


@pytest.fixture(scope="module", params=[RiskAverse, RiskOptimal])
def solved_problems(request):
    """Return a score, and 150 problems with one answer, with their answers by the definition."""
    rng = np.random.default_rng(0)
    solved = []
    while len(solved) < 150:
        problem = Problem.draw(rng)
        try:
            solved.append((problem, problem.scores(request.param)))
        except ManyAnswersError:
            continue
    return request.param, solved


def test_scores_are_those_of_the_definition_in_fractions(solved_problems):
    kind, solved = solved_problems

    for problem, expected in solved:
        prediction = ClassProbabilities([[float(share) for share in problem.probabilities]])
        (scores,) = kind(problem.losses).every_label(prediction)

        assert scores == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_the_problems_are_not_trivial(solved_problems):
    _, solved = solved_problems

    assert sum(len(set(scores)) > 1 for _, scores in solved) > 50


# ---------------------------------------------------------------- scores


@dataclass(frozen=True, eq=False)
class Rows:
    """Probabilities of 200 rows, and labels."""

    prediction: ClassProbabilities
    y: np.ndarray


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    prediction = ClassProbabilities(rng.dirichlet(np.ones(3), size=200))
    return Rows(prediction, rng.integers(0, 3, size=200))


@both_scores
def test_the_score_of_a_label_is_among_those_of_every_label(rows, kind):
    score = kind(LOSSES)

    observed = score.observed(rows.prediction, rows.y)

    every = score.every_label(rows.prediction)
    assert np.array_equal(observed, every[np.arange(200), rows.y])


@both_scores
@pytest.mark.parametrize(
    "threshold_of",
    [
        lambda scores: 0.0,
        lambda scores: float(np.quantile(scores, 0.3)),
        lambda scores: float(np.quantile(scores, 0.7)),
        lambda scores: float(np.quantile(scores, 0.95)),
        lambda scores: np.inf,
    ],
    ids=["zero", "30 %", "70 %", "95 %", "infinite"],
)
def test_sets_hold_the_labels_that_score_at_most_the_threshold(rows, kind, threshold_of):
    score = kind(LOSSES)
    observed = score.observed(rows.prediction, rows.y)
    threshold = threshold_of(observed)

    sets = score.sets(rows.prediction, threshold)

    assert np.array_equal(sets.contains(rows.y), observed <= threshold)
    assert np.array_equal(sets.to_dense(), score.every_label(rows.prediction) <= threshold)
    assert np.array_equal(score.sizes(rows.prediction, threshold), sets.sizes())


@both_scores
def test_a_row_of_probabilities_counts_by_its_shares(kind):
    p = np.random.default_rng(5).dirichlet(np.ones(3), size=50)

    scores = kind(LOSSES).every_label(ClassProbabilities(p))
    of_quarters = kind(LOSSES).every_label(ClassProbabilities(p / 4))

    assert len(np.unique(scores)) > 10
    np.testing.assert_allclose(of_quarters, scores, rtol=1e-12)


def test_draws_are_scored_by_their_mean():
    draws = np.random.default_rng(5).dirichlet(np.ones(3), size=(4, 10))

    scores = RiskAverse(LOSSES).every_label(ClassDraws(draws))

    of_mean = RiskAverse(LOSSES).every_label(ClassProbabilities(draws.mean(axis=0)))
    assert np.array_equal(scores, of_mean)


def test_scores_of_equal_losses_are_equal():
    assert RiskAverse(LOSSES) == RiskAverse(LOSSES.tolist())
    assert hash(RiskOptimal(LOSSES)) == hash(RiskOptimal(LOSSES))


def test_scores_of_two_kinds_differ():
    assert RiskAverse(LOSSES) != RiskOptimal(LOSSES)


# ---------------------------------------------------------------- names of labels


@pytest.fixture
def prediction_without_b() -> ClassProbabilities:
    """Rows of a model that knows the labels c and a, and has never seen b."""
    p = np.random.default_rng(4).dirichlet(np.ones(2), size=20)
    return ClassProbabilities(p, classes=["c", "a"], unseen=["b"])


@both_scores
def test_columns_of_losses_find_their_labels_by_name(kind, prediction_without_b):
    score = kind(LOSSES, labels=["a", "b", "c"])
    p = prediction_without_b.probabilities
    in_order = np.column_stack([p[:, 1], np.zeros(20), p[:, 0]])

    scores = score.every_label(prediction_without_b)[:, :2]

    listed = ClassProbabilities(in_order, classes=["a", "b", "c"])
    expected = score.every_label(listed)[:, [2, 0]]
    is_finite = np.isfinite(scores)
    assert np.array_equal(scores[is_finite], expected[is_finite])


@both_scores
def test_labels_never_seen_score_infinity(kind, prediction_without_b):
    score = kind(LOSSES, labels=["a", "b", "c"])

    assert np.isinf(score.every_label(prediction_without_b)[:, 2]).all()
    assert np.isinf(score.observed(prediction_without_b, ["b"] * 20)).all()


@both_scores
@pytest.mark.parametrize(
    ("labels", "message"),
    [(None, "name them with labels="), (["x", "y", "z"], "no column for the label")],
    ids=["no names", "other names"],
)
def test_labels_never_seen_need_names(kind, prediction_without_b, labels, message):
    with pytest.raises(ValueError, match=message):
        kind(LOSSES, labels=labels).every_label(prediction_without_b)


def test_actions_on_labels_never_seen_need_names(prediction_without_b):
    sets = LAC().sets(prediction_without_b, 0.5)

    with pytest.raises(ValueError, match="name them with labels="):
        act(sets, prediction_without_b, loss_matrix=LOSSES)


def test_the_largest_loss_of_an_action_is_over_labels_never_seen_too():
    """The unseen label b is what makes the first action dear, as if its probability were 0."""
    p = np.random.default_rng(6).dirichlet(np.ones(2), size=40)
    losses = [[0.0, 9.0, 1.0], [2.0, 3.0, 0.0], [1.0, 2.0, 1.0]]
    score = RiskOptimal(losses, labels=["a", "b", "c"])
    without_b = ClassProbabilities(p, classes=["a", "c"], unseen=["b"])
    with_b = ClassProbabilities(np.insert(p, 1, 0.0, axis=1), classes=["a", "b", "c"])

    scores = score.every_label(without_b)[:, :2]

    expected = score.every_label(with_b)[:, [0, 2]]
    is_finite = np.isfinite(scores)
    assert (scores[is_finite] > 0).any()
    np.testing.assert_allclose(scores[is_finite], expected[is_finite], rtol=1e-12)


@pytest.mark.parametrize(
    ("losses", "labels", "message"),
    [
        ([1.0, 2.0], None, "one row per action"),
        ([[np.inf, 1.0]], None, "finite"),
        (LOSSES, ["a", "a", "b"], "distinct labels"),
    ],
    ids=["one dimension", "infinite", "names"],
)
def test_bad_matrices_are_refused(losses, labels, message):
    with pytest.raises(ValueError, match=message):
        RiskAverse(losses, labels=labels)


def test_a_matrix_for_other_labels_is_refused():
    with pytest.raises(ValueError, match="3 columns, but the prediction has 2"):
        RiskAverse(LOSSES).every_label(ClassProbabilities([[0.5, 0.5]]))


# ---------------------------------------------------------------- actions


def worst_expected_loss(losses, is_member, *, alpha):
    """Return the largest expected loss over laws that give the set at least 1 - alpha.

    Two-point laws suffice: all mass on the worst label inside, or alpha on the worst outside.
    """
    is_inside = is_member if is_member.any() else np.ones(3, dtype=bool)
    worst_inside = losses[is_inside].max()
    if alpha is None or is_inside.all():
        return worst_inside
    worst_outside = losses[~is_inside].max()
    return max(worst_inside, (1 - alpha) * worst_inside + alpha * worst_outside)


@pytest.fixture
def members():
    """Make 60 random sets of three labels, the first empty and the second full."""
    members = np.random.default_rng(6).uniform(size=(60, 3)) < 0.5
    members[0] = False
    members[1] = True
    return members


every_alpha = pytest.mark.parametrize("alpha", [None, 0.1, 0.4])


@every_alpha
def test_the_best_action_has_the_smallest_worst_expected_loss(members, alpha):
    chosen = act(LabelSets(members), loss_matrix=LOSSES, alpha=alpha)

    criteria = np.array(
        [
            [worst_expected_loss(losses, is_member, alpha=alpha) for losses in LOSSES]
            for is_member in members
        ]
    )
    assert chosen.robust_loss == pytest.approx(criteria.min(axis=1))
    assert criteria[np.arange(60), chosen.actions] == pytest.approx(criteria.min(axis=1))


@every_alpha
def test_the_worst_loss_is_that_of_the_action_inside_the_set(members, alpha):
    chosen = act(LabelSets(members), loss_matrix=LOSSES, alpha=alpha)

    expected = [
        worst_expected_loss(LOSSES[action], is_member, alpha=None)
        for action, is_member in zip(chosen.actions, members, strict=True)
    ]
    assert chosen.worst_loss.tolist() == expected


@pytest.mark.parametrize(
    ("prediction", "action"),
    [(None, 0), (ClassProbabilities([[0.5, 0.5]]), 1)],
    ids=["without", "with probabilities"],
)
def test_equal_actions_are_told_apart_by_expected_loss(prediction, action):
    sets = LabelSets([[True, True]])

    chosen = act(sets, prediction, loss_matrix=[[1.0, 1.0], [1.0, 0.0]])

    assert chosen.actions.tolist() == [action]


@pytest.fixture
def three_sets():
    return LabelSets([[True, False, False], [True, True, False], [False, False, False]])


def test_risk_averse_actions_are_best_inside_the_sets(three_sets):
    chosen = RiskAverse(LOSSES).act(three_sets)

    assert chosen.actions.tolist() == [0, 0, 3]
    assert chosen.worst_loss.tolist() == [0, 2, 2]


def test_risk_optimal_actions_count_a_share_outside_the_sets(three_sets):
    chosen = RiskOptimal(LOSSES).act(three_sets, alpha=0.1)

    assert len(chosen) == 3
    assert chosen.robust_loss.tolist() == pytest.approx([0.9, 2.0, 2.0])
