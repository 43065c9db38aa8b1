"""Selection on the rows that calibrate: the definition is inside the sets, and coverage holds where
EFCP's does not.
"""

import math

import numpy as np
import pytest
from laws import FULL, check_loses, check_mean

import dco
from dco.foundations.errors import IncompatibleScoreError, InfeasibleLevelWarning
from dco.foundations.ranks import conformal_rank, order_statistic
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


class Definition:
    """ModSel-CP as it is defined, for one new row (every record in `new` has one)."""

    def __init__(self, candidates, y, new, *, alpha):
        self.candidates, self.new, self.n, self.k = (
            candidates,
            new,
            len(y),
            conformal_rank(len(y), alpha=alpha),
        )
        self.own = {name: score.observed(record, y) for name, (score, record) in candidates.items()}
        self.known = {}

    def total(self, name, cut):
        """The sum of sizes over all n + 1 rows."""
        if (name, cut) not in self.known:
            score, record = self.candidates[name]
            sizes = [*score.sizes(record, cut), *score.sizes(self.new[name], cut)]
            self.known[name, cut] = round(math.fsum(sizes), 15)
        return self.known[name, cut]

    def best(self, scores):
        """The first candidate with the least sum at its k-th smallest score."""
        return min(
            self.candidates,
            key=lambda name: self.total(name, order_statistic(scores[name], self.k)),
        )

    def asked(self, target):
        return {
            name: float(self.candidates[name][0].observed(self.new[name], np.array([target]))[0])
            for name in self.own
        }

    def holds(self, target):
        """Whether the target is in the set."""
        asked = self.asked(target)
        winner = self.best({name: np.append(self.own[name], asked[name]) for name in self.own})
        return asked[winner] <= order_statistic(self.own[winner], self.k)

    def in_the_union(self, label):
        """Whether S(l) <= S_(k) and L(max(S_(k-1), S(l))) <= T for some candidate."""
        ends = {
            name: np.sort(np.append(own, -np.inf))[self.k - 1 : self.k + 1]
            for name, own in self.own.items()
        }
        limit = min(self.total(name, top) for name, (_, top) in ends.items())
        asked = self.asked(label)
        return any(
            asked[m] <= top and self.total(m, max(low, asked[m])) <= limit
            for m, (low, top) in ends.items()
        )


def number_records(kind, n, rng, digits):
    """Predictions of n rows around `truth` by three candidates, and y; rounded to few digits there
    are many ties.
    """
    truth = rng.normal(size=n)
    y, made = np.round(truth + rng.normal(size=n), digits), []
    for _ in range(3):
        mean, spread = (
            np.round(truth + 0.7 * rng.normal(size=n), digits),
            rng.choice([0.5, 1.0, 2.0], size=n),
        )
        if kind is AbsoluteResidual:
            made.append(dco.Points(mean))
        elif kind is NormalisedResidual:
            made.append(dco.PointsWithSpread(mean, spread))
        else:
            made.append(dco.Quantiles(mean - 2 * spread, mean + spread, median=mean))
    return made, y


def split(scores, records, n):
    """{name: (score, the first n rows)} and {name: the others}."""
    parts = {
        str(c): (score, record.take(slice(0, n)), record.take(slice(n, None)))
        for c, (score, record) in enumerate(zip(scores, records, strict=True))
    }
    return {c: own[:2] for c, own in parts.items()}, {c: own[2] for c, own in parts.items()}


def one_by_one(new):
    """The new rows, each alone."""
    count = len(next(iter(new.values())))
    return [
        {name: record.take(slice(j, j + 1)) for name, record in new.items()} for j in range(count)
    ]


SCORES = [
    AbsoluteResidual(),
    NormalisedResidual(),
    QuantileResidual(),
    QuantileResidual(kind="relative"),
    QuantileResidual(kind="median"),
]


# cut-offs of quantiles are negative at .6; at .97 the rank is 1
@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.6, 0.97])
@pytest.mark.parametrize("digits", [0, 1, 6])
@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_numbers_are_those_of_the_definition(score, digits, alpha):
    """Brute force over a grid with the ends of all pieces. Ties may add to the union, and
    nothing else.
    """
    rng, n, inside = np.random.default_rng([digits, int(100 * alpha)]), 21, 0
    for _ in range(4):
        records, y = number_records(type(score), n + 3, rng, digits)
        candidates, every = split([score] * 3, records, n)
        for new in one_by_one(every):
            sets = dco.select_and_calibrate(candidates, y[:n], new, alpha=alpha).sets
            ends = sets.pieces(0).ravel()
            grid = [
                np.round(np.linspace(-6, 6, 121), 1),
                ends,
                ends - 1e-7,
                ends + 1e-7,
                rng.normal(size=20),
            ]
            grid, defined = (
                np.concatenate(grid),
                Definition(candidates, y[:n], new, alpha=alpha),
            )
            wanted = np.array([defined.holds(value) for value in grid])
            got = np.array([bool(sets.contains([value])[0]) for value in grid])
            assert not np.any(wanted & ~got)
            # ends are rounded outwards
            beside = np.abs(grid[:, None] - np.append(ends, np.inf)).min(axis=1) < 1e-8
            assert not np.any(got & ~wanted & ~beside) or digits < 6
            inside += wanted.sum()
    assert inside > 0 or alpha > 0.9


@pytest.mark.parametrize("alpha", [0.1, 0.4, 0.97])
@pytest.mark.parametrize("digits", [0, 1, 2, 8])
def test_labels_are_those_of_the_definition(digits, alpha):
    """Rounded probabilities tie within rows and between them; with 0 digits all do, and sums of
    sizes differ by one.
    """
    rng, sizes = np.random.default_rng([digits, int(100 * alpha)]), []
    several = [LAC(), APS(), TopK(), NeverEmpty(LAC())], 21, 5
    for scores, n, classes in (
        [several] * 4 + [([LAC(), APS(), TopK()], 17, 5)] * 2 + [([LAC()] * 2, 9, 6)] * 12
    ):
        y, shape = rng.integers(classes, size=n), (len(scores), n + 3, classes)
        p = 1e-9 + rng.dirichlet(np.ones(classes), shape[:2]).round(digits)
        p = rng.integers(1, 4, size=shape) if digits == 0 else p
        p = p / p.sum(axis=2, keepdims=True)
        candidates, every = split(scores, [dco.ClassProbabilities(each) for each in p], n)
        union = dco.select_and_calibrate(candidates, y, every, alpha=alpha).sets.to_dense()
        defined = [Definition(candidates, y, new, alpha=alpha) for new in one_by_one(every)]
        wanted = np.array([[own.holds(label) for label in range(classes)] for own in defined])
        assert union.tolist() == [
            [own.in_the_union(label) for label in range(classes)] for own in defined
        ]
        assert not np.any(wanted & ~union)
        sizes.append([wanted.sum(), union.sum()])
    least, most = np.sum(sizes, axis=0)
    # ties in the sums of sizes cost something, not everything
    assert most <= 1.5 * least + 5 or digits == 0


@pytest.mark.parametrize("score", SCORES[1:], ids=repr)
def test_new_rows_do_not_touch_each_other(score):
    """Many at once give what each gives alone, those where a candidate takes no part included."""
    records, y = number_records(type(score), 65, np.random.default_rng(3), 6)
    candidates, every = split([score] * 3, records, 25)
    found, *alone = (
        dco.select_and_calibrate(candidates, y[:25], new, alpha=ALPHA)
        for new in (every, *one_by_one(every))
    )
    assert found.sets.sizes() == pytest.approx(
        np.concatenate([each.sets.sizes() for each in alone])
    )
    assert found.winners == {
        name: sum(each.winners.get(name, 0) for each in alone) for name in found.winners
    }


@pytest.mark.parametrize(("alpha", "rank"), [(ALPHA, 55), (0.97, 2)])
def test_residual_sets_have_a_closed_form(alpha, rank):
    """u = min_m S_(k); the union of mean ± u over the candidates with S_(k-1) <= u."""
    rng, n = np.random.default_rng(0), 60
    truth = rng.normal(size=n + 40)
    y = truth + rng.normal(size=n + 40)
    means = truth + 0.3 * rng.normal(size=(6, n + 40))
    means[5] += 20  # no rank is too low to leave it out
    candidates, new = split([AbsoluteResidual()] * 6, map(dco.Points, means), n)
    found = dco.select_and_calibrate(candidates, y[:n], new, alpha=alpha)
    scores = np.sort(np.abs(y[:n] - means[:, :n]), axis=1)
    u = scores[:, found.rank - 1].min()
    taken = scores[:, found.rank - 2] <= u
    assert 2 <= taken.sum() < 6
    distance = np.abs(np.linspace(-5, 5, 40)[:, None] - means[taken, n:].T).min(axis=1)
    assert np.array_equal(found.sets.contains(np.linspace(-5, 5, 40)), distance <= u)
    assert set(found.winners) == set(np.flatnonzero(taken).astype(str))
    assert set(found.winners.values()) == {40}
    assert (found.guarantee, found.rank, found.n, found.method) == ("marginal", rank, 60, "modsel")
    gaps = np.sort(means[taken, n:], axis=0)
    assert found.sets.sizes() == pytest.approx(
        2 * u + np.minimum(np.diff(gaps, axis=0), 2 * u).sum(axis=0)
    )


def numbers_run(rng, n, n_new, digits):
    truth = rng.normal(size=n + n_new)
    y = np.round(truth + 0.2 * rng.normal(size=n + n_new), digits)
    return (
        [AbsoluteResidual()] * 10,
        y,
        [dco.Points(m) for m in np.round(truth + rng.normal(size=(10, n + n_new)), digits)],
    )


def labels_run(rng, n, n_new, digits):
    """Ten classifiers that see the label with noise of their own."""
    y = rng.integers(20, size=n + n_new)
    logits = 2 * rng.normal(size=(10, n + n_new, 20)) + 3 * (y[:, None] == np.arange(20))
    weights = np.round(np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True), digits) + 1e-9
    return (
        [LAC()] * 10,
        y,
        [dco.ClassProbabilities(p) for p in weights / weights.sum(axis=2, keepdims=True)],
    )


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("draw", "digits"), [(numbers_run, 1), (numbers_run, 12), (labels_run, 2), (labels_run, 12)]
)
def test_sets_cover_where_choosing_without_the_new_row_does_not(draw, digits):
    """n = 60, ten candidates of equal quality. EFCP, the classic mistake (choose by the n rows,
    calibrate the winner on them), covers less, and the check sees it. Sets are not much larger than
    those of one candidate: full ones cover too.
    """
    rng, n, n_new = np.random.default_rng(8), 60, 100
    corrected, plain, ratio = [], [], []
    for _ in range(2000 if FULL and draw is numbers_run else 1000 if FULL else 300):
        scores, y, records = draw(rng, n, n_new, digits)
        candidates, new = split(scores, records, n)
        sets = dco.select_and_calibrate(candidates, y[:n], new, alpha=ALPHA).sets
        corrected.append(sets.contains(y[n:]).mean())
        cuts = {
            m: dco.split_conformal(score.observed(seen, y[:n]), alpha=ALPHA)
            for m, (score, seen) in candidates.items()
        }
        sizes = {m: score.sizes(seen, cuts[m]).mean() for m, (score, seen) in candidates.items()}
        best = min(sizes, key=sizes.__getitem__)
        plain.append(scores[0].sets(new[best], cuts[best]).contains(y[n:]).mean())
        ratio.append(sets.sizes().mean() / np.mean(list(sizes.values())))
    check_mean(corrected, 1 - ALPHA)
    check_loses(plain, 1 - ALPHA, errors=4)
    print(f"size / mean size of one {np.mean(ratio):.2f}")
    assert np.mean(plain) < 0.88
    assert np.mean(ratio) < 1.6


def test_the_adjusted_rank_is_that_of_yang_and_kuchibhotla():
    """k = ceil((n + 1)(1 - a~)) with their a~; the winner of the n rows alone is cut there."""
    rng, n, count, alpha = np.random.default_rng(2), 400, 4, 0.2
    truth = rng.normal(size=n + 5)
    y, means = (
        truth + rng.normal(size=n + 5),
        truth + rng.normal(size=(count, n + 5)) * [[2], [0.1], [2], [3]],
    )
    candidates, new = split([AbsoluteResidual()] * count, map(dco.Points, means), n)
    found = dco.select_and_calibrate(candidates, y[:n], new, alpha=alpha, method="yk-adjust")
    adjusted = (
        n * alpha + 1 - n * (1 / (3 * math.sqrt(n)) + math.sqrt(math.log(2 * count) / (2 * n)))
    ) / (n + 1)
    assert found.rank == math.ceil((n + 1) * (1 - adjusted)) == 348
    assert found.winners == {"1": 5}
    cut = order_statistic(np.abs(y[:n] - means[1, :n]), found.rank)
    assert np.array_equal(found.sets.contains(y[n:]), np.abs(y[n:] - means[1, n:]) <= cut)
    assert found.sets.sizes() == pytest.approx(np.full(5, 2 * cut))


@pytest.mark.parametrize(("method", "n", "smallest"), [("modsel", 8, 9), ("yk-adjust", 60, 136)])
def test_too_few_rows_give_full_sets_and_a_warning(method, n, smallest):
    """The smallest n named in the warning is enough, and one row less is not."""
    rng = np.random.default_rng(0)

    def found(rows):
        (*known, y), new = rng.normal(size=(3, rows)), rng.normal(size=(2, 2))
        candidates = {
            name: (AbsoluteResidual(), dco.Points(own))
            for name, own in zip("ab", known, strict=True)
        }
        asked = {name: dco.Points(own) for name, own in zip("ab", new, strict=True)}
        return dco.select_and_calibrate(candidates, y, asked, alpha=ALPHA, method=method)

    for rows in (n, smallest - 1):
        with pytest.warns(InfeasibleLevelWarning, match=f"At least {smallest} rows"):
            full = found(rows)
        assert full.rank == rows + 1
        assert full.sets.is_infinite().all()
    assert not found(smallest).sets.is_infinite().any()

    probabilities = dco.ClassProbabilities(
        rng.dirichlet(np.ones(3), size=4), classes=["a", "b", "c"]
    )
    with pytest.warns(InfeasibleLevelWarning):
        sets = dco.select_and_calibrate(
            {"one": (LAC(), probabilities)},
            ["a", "b", "c", "a"],
            {"one": probabilities},
            alpha=ALPHA,
            method=method,
        ).sets
    assert sets.is_full().all()


def test_candidates_may_list_labels_in_their_own_order():
    rng, n, names = np.random.default_rng(4), 40, np.array(["a", "b", "c"])
    probabilities, y = rng.dirichlet(np.ones(3), size=n + 5), names[rng.integers(3, size=n)]
    records = [
        dco.ClassProbabilities(probabilities[:, order], classes=names[order])
        for order in ([0, 1, 2], [2, 0, 1])
    ]
    one, two = (
        dco.select_and_calibrate(candidates, y, new, alpha=ALPHA).sets.to_lists()
        for candidates, new in (split([LAC()] * count, records[:count], n) for count in (1, 2))
    )
    assert one == two


def test_infinite_scores_are_legal():
    """A spread of 0 scores +inf away from the mean: if that is the k-th score, another candidate
    takes over.
    """
    rng, n = np.random.default_rng(1), 30
    y = rng.normal(size=n)
    zero = {
        "flat": dco.PointsWithSpread(np.zeros(n), np.zeros(n)),
        "wide": dco.PointsWithSpread(np.zeros(n), np.ones(n)),
    }
    new = {
        name: dco.PointsWithSpread(np.zeros(3), np.full(3, value))
        for name, value in (("flat", 0.0), ("wide", 1.0))
    }
    pairs = {name: (NormalisedResidual(), record) for name, record in zero.items()}
    found = dco.select_and_calibrate(pairs, y, new, alpha=ALPHA)
    k = order_statistic(np.abs(y), found.rank)
    assert found.sets.sizes() == pytest.approx(np.full(3, 2 * k))
    alone = dco.select_and_calibrate({"flat": pairs["flat"]}, y, {"flat": new["flat"]}, alpha=ALPHA)
    assert alone.sets.is_infinite().all()


def test_no_new_rows_give_no_sets():
    rng = np.random.default_rng(1)
    points = dco.Points(rng.normal(size=20))
    new = {"a": dco.Points(np.empty(0))}
    one = {"a": (AbsoluteResidual(), points)}
    selected = dco.select_and_calibrate(one, rng.normal(size=20), new, alpha=ALPHA)
    assert len(selected.sets) == 0


def test_bad_input_gets_one_sentence():
    points, y, labels = (
        dco.Points(np.zeros(3)),
        np.zeros(3),
        dco.ClassProbabilities(np.full((3, 2), 0.5)),
    )
    one, mixtures = (
        {"a": (AbsoluteResidual(), points)},
        dco.GaussianMixtures(np.zeros((3, 2)), np.ones(2), draws_first=False),
    )
    other = dco.ClassProbabilities(np.full((3, 2), 0.5), classes=["x", "y"])
    for match, candidates, new, options in (
        ("method must be", one, {"a": points}, {"method": "loo"}),
        ("new must be a dict", one, {"b": points}, {}),
        ("new must be a dict", one, points, {}),
        ("a record such as dco.Points, got ndarray", one, {"a": y}, {}),
        ("one label or number", one, {"a": points}, {"y": []}),
        ("same rows", {**one, "b": one["a"]}, {"a": points, "b": dco.Points(np.zeros(2))}, {}),
        ("some of each", {**one, "b": (LAC(), labels)}, {"a": points, "b": labels}, {}),
        (
            "length is known at any cut-off",
            {"a": (PredictiveDensity(), mixtures)},
            {"a": mixtures},
            {},
        ),
        ("same labels", {"a": (LAC(), labels)}, {"a": other}, {"y": [0, 1, 0]}),
    ):
        with pytest.raises(
            IncompatibleScoreError if "length" in match else ValueError, match=match
        ):
            dco.select_and_calibrate(candidates, new=new, **{"y": y, "alpha": 0.4, **options})
