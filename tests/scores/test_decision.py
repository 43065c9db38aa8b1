"""Scores made for decisions, against their definition in fractions; actions, against loops."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dco import ClassDraws, ClassProbabilities, LabelSets
from dco.scores import LAC, RiskAverse, RiskOptimal, act

LOSSES = np.array([[0.0, 2, 9], [3, 0, 5], [4, 4, 0], [2, 2, 2]])
BOTH = [RiskAverse, RiskOptimal]


def random_problem(rng, k, n_actions):
    """Probabilities in sixteenths (some 0) and small whole losses, so that floats hold every mass
    exactly.
    """
    weights = rng.multinomial(16, rng.dirichlet(np.ones(k)))
    return [Fraction(int(w), 16) for w in weights], rng.integers(0, 7, size=(n_actions, k))


def brute_force_score(kind, p, losses):
    """The definition in fractions: every t in {0, 1} and every cumulative mass, every action, every
    price that matters.
    """
    n_actions, k = losses.shape
    levels = {Fraction(0), Fraction(1)}
    for a in range(n_actions):
        levels |= {sum(p[y] for y in range(k) if losses[a, y] <= v) for v in losses[a]}

    def quantile(a, t):
        return min(
            int(v) for v in losses[a] if sum(p[y] for y in range(k) if losses[a, y] <= v) >= t
        )

    def point(t):
        def value(a):
            if kind is RiskAverse:
                return Fraction(quantile(a, t) if t > 0 else min(int(v) for v in losses[a]))
            if t == 0:
                return Fraction(int(losses[a].max()))
            return t * quantile(a, t) + (1 - t) * int(losses[a].max())

        best = min(value(a) for a in range(n_actions))
        ties = [a for a in range(n_actions) if value(a) == best]
        if kind is RiskOptimal and t == 0:
            return best, [set(range(k))]
        return best, [{y for y in range(k) if losses[a, y] <= quantile(a, t)} for a in ties]

    points = {t: point(t) for t in levels}

    def chosen(b):
        least = min(v - b * t for t, (v, _) in points.items())
        return max(t for t, (v, _) in points.items() if v - b * t == least)

    prices = {Fraction(0)}
    for (t, (v, _)), (s, (w, _)) in product(points.items(), repeat=2):
        if s > t and w > v:
            prices.add((w - v) / (s - t))
    prices = sorted(prices)
    middles = [(a + b) / 2 for a, b in zip(prices, [*prices[1:], prices[-1] + 2], strict=True)]
    # tied actions may give different sets: a problem with such a tie has no single answer
    if any(len({frozenset(s) for s in points[chosen(b)][1]}) > 1 for b in (*prices, *middles)):
        return None
    scores = []
    for y in range(k):
        start = Fraction(0)
        for price, middle, end in zip(prices, middles, [*prices[1:], None], strict=True):
            inside = [y in points[chosen(b)][1][0] for b in (price, middle)]
            assert inside[0] == inside[1]  # the choice changes at these prices only
            if not inside[0]:
                start = end
                if end is None:
                    break
        scores.append(np.inf if start is None else float(start))
    return scores


@pytest.mark.parametrize("kind", BOTH)
def test_envelope_against_its_definition_in_fractions(kind):
    rng = np.random.default_rng(0)
    checked = nested = 0
    while checked < 150:
        k, n_actions = int(rng.integers(2, 5)), int(rng.integers(1, 5))
        p, losses = random_problem(rng, k, n_actions)
        truth = brute_force_score(kind, p, losses)
        if truth is None:
            continue
        ours = kind(losses).every_label(ClassProbabilities([[float(x) for x in p]]))[0]
        assert ours == pytest.approx(truth, rel=1e-12, abs=1e-12)
        checked += 1
        nested += len(set(truth)) > 1
    assert nested > 50  # the problems were not all trivial


@pytest.mark.parametrize("kind", BOTH)
def test_scores_agree_in_every_way_of_asking(kind):
    rng = np.random.default_rng(1)
    prediction = ClassProbabilities(rng.dirichlet(np.ones(3), size=200))
    y = rng.integers(0, 3, size=200)
    score = kind(LOSSES)
    observed, everything = score.observed(prediction, y), score.every_label(prediction)
    assert np.array_equal(observed, everything[np.arange(200), y])
    for t in [0.0, *np.quantile(observed, [0.3, 0.7, 0.95]), np.inf]:
        sets = score.sets(prediction, float(t))
        assert np.array_equal(sets.contains(y), observed <= t)
        assert np.array_equal(sets.to_dense(), everything <= t)
        assert np.array_equal(score.sizes(prediction, float(t)), sets.sizes())


@pytest.fixture
def named() -> ClassProbabilities:
    """Rows of a model that knows the labels c and a, and has never seen b."""
    p = np.random.default_rng(4).dirichlet(np.ones(2), size=20)
    return ClassProbabilities(p, classes=["c", "a"], unseen=["b"])


@pytest.mark.parametrize("kind", BOTH)
def test_columns_of_losses_find_their_labels_by_name(kind, named):
    score = kind(LOSSES, labels=["a", "b", "c"])
    scores = score.every_label(named)[:, :2]
    p = named.probabilities
    in_order = np.column_stack([p[:, 1], np.zeros(20), p[:, 0]])
    expected = score.every_label(ClassProbabilities(in_order, classes=["a", "b", "c"]))[:, [2, 0]]
    is_finite = np.isfinite(scores)
    assert np.array_equal(scores[is_finite], expected[is_finite])


@pytest.mark.parametrize("kind", BOTH)
def test_labels_never_seen_score_infinity(kind, named):
    score = kind(LOSSES, labels=["a", "b", "c"])
    assert np.isinf(score.every_label(named)[:, 2]).all()
    assert np.isinf(score.observed(named, ["b"] * 20)).all()


@pytest.mark.parametrize("kind", BOTH)
def test_labels_never_seen_need_names(kind, named):
    with pytest.raises(ValueError, match="name them with labels="):
        kind(LOSSES).every_label(named)
    with pytest.raises(ValueError, match="name them with labels="):
        act(LAC().sets(named, 0.5), named, loss_matrix=LOSSES)
    with pytest.raises(ValueError, match="no column for the label"):
        kind(LOSSES, labels=["x", "y", "z"]).every_label(named)


def test_scores_are_values():
    assert RiskAverse(LOSSES) == RiskAverse(LOSSES.tolist())
    assert hash(RiskOptimal(LOSSES)) == hash(RiskOptimal(LOSSES))
    assert RiskAverse(LOSSES) != RiskOptimal(LOSSES)
    draws = np.random.default_rng(5).dirichlet(np.ones(3), size=(4, 10))
    assert np.array_equal(
        RiskAverse(LOSSES).every_label(ClassDraws(draws)),
        RiskAverse(LOSSES).every_label(ClassProbabilities(draws.mean(0))),
    )


@pytest.mark.parametrize("alpha", [None, 0.1, 0.4])
def test_actions_against_plain_loops(alpha):
    """The criterion is the largest expected loss over laws that give the set at least 1 - alpha:
    two-point laws suffice.
    """
    rng = np.random.default_rng(6)
    members = rng.uniform(size=(60, 3)) < 0.5
    members[0], members[1] = False, True
    chosen = act(LabelSets(members), loss_matrix=LOSSES, alpha=alpha)
    for i, row in enumerate(members):
        inside = row if row.any() else np.ones(3, bool)
        criteria = []
        for a in range(4):
            worst = LOSSES[a, inside].max()
            if alpha is not None and not inside.all():
                # mass 1 - alpha or more inside: best for the adversary is all inside, or alpha on
                # the worst outside
                worst = max(worst, (1 - alpha) * worst + alpha * LOSSES[a, ~inside].max())
            criteria.append(worst)
        assert chosen.robust_loss[i] == pytest.approx(min(criteria))
        assert criteria[chosen.actions[i]] == pytest.approx(min(criteria))
        assert chosen.worst_loss[i] == LOSSES[chosen.actions[i], inside].max()


def test_equal_actions_are_told_apart_by_expected_loss():
    losses = [[1.0, 1.0], [1.0, 0.0]]
    sets = LabelSets([[True, True]])
    assert act(sets, loss_matrix=losses).actions.tolist() == [0]
    assert act(sets, ClassProbabilities([[0.5, 0.5]]), loss_matrix=losses).actions.tolist() == [1]


def test_methods_of_the_scores_are_the_two_rules():
    sets = LabelSets([[True, False, False], [True, True, False], [False, False, False]])
    averse, optimal = RiskAverse(LOSSES).act(sets), RiskOptimal(LOSSES).act(sets, alpha=0.1)
    assert averse.actions.tolist() == [0, 0, 3]
    assert averse.worst_loss.tolist() == [0, 2, 2]
    assert optimal.robust_loss.tolist() == pytest.approx([0.9, 2.0, 2.0])
    assert len(optimal) == 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RiskAverse([1.0, 2.0]), "one row per action"),
        (lambda: RiskAverse([[np.inf, 1.0]]), "finite"),
        (lambda: RiskAverse(LOSSES, labels=["a", "a", "b"]), "distinct labels"),
        (
            lambda: RiskAverse(LOSSES).every_label(ClassProbabilities([[0.5, 0.5]])),
            "3 columns, but the prediction has 2",
        ),
    ],
    ids=["one dimension", "infinite", "names", "columns"],
)
def test_bad_matrices_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("kind", BOTH)
def test_a_row_of_probabilities_counts_by_its_shares(kind):
    p = np.random.default_rng(5).dirichlet(np.ones(3), size=50)
    scores = kind(LOSSES).every_label(ClassProbabilities(p))
    np.testing.assert_allclose(
        kind(LOSSES).every_label(ClassProbabilities(p / 4)), scores, rtol=1e-12
    )
    assert len(np.unique(scores)) > 10


def test_the_largest_loss_of_an_action_is_over_labels_never_seen_too():
    """The unseen label b is what makes the first action dear; a record that gives it no probability
    says the same.
    """
    p = np.random.default_rng(6).dirichlet(np.ones(2), size=40)
    score = RiskOptimal([[0.0, 9.0, 1.0], [2.0, 3.0, 0.0], [1.0, 2.0, 1.0]], labels=["a", "b", "c"])
    unseen = score.every_label(ClassProbabilities(p, classes=["a", "c"], unseen=["b"]))[:, :2]
    listed = ClassProbabilities(np.insert(p, 1, 0.0, axis=1), classes=["a", "b", "c"])
    known = score.every_label(listed)[:, [0, 2]]
    np.testing.assert_allclose(unseen[np.isfinite(unseen)], known[np.isfinite(unseen)], rtol=1e-12)
    assert (unseen[np.isfinite(unseen)] > 0).any()
