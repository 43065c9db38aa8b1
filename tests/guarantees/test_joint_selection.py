"""Selection on the rows that calibrate: the definition is inside the sets, and coverage holds where EFCP's does not."""

import math
import os

import numpy as np
import pytest

import dco
from dco.foundations.errors import IncompatibleScoreError, InfeasibleLevelWarning
from dco.foundations.ranks import conformal_rank, order_statistic
from dco.scores import APS, LAC, AbsoluteResidual, NeverEmpty, NormalisedResidual, QuantileResidual, TopK

FULL = os.environ.get("DCO_GUARANTEES") == "full"
ALPHA = 0.1


def chosen_by_definition(candidates, y, new, targets, *, alpha):
    """ModSel-CP as it is defined, for one new row (every record in `new` has one) and each target: is it in the set?

    For each target: cut every candidate at the k-th smallest of its n + 1 scores, sum sizes over all n + 1 rows, take the
    first candidate with the least sum, and ask for its score to be at most its own k-th smallest of n.
    """
    k, found = conformal_rank(len(y), alpha=alpha), []
    own = {name: score.observed(record, y) for name, (score, record) in candidates.items()}
    for target in targets:
        asked = {name: float(candidates[name][0].observed(new[name], np.array([target]))[0]) for name in candidates}
        sums = {}
        for name, (score, record) in candidates.items():
            cut = order_statistic(np.append(own[name], asked[name]), k)
            sums[name] = math.fsum([*score.sizes(record, cut), *score.sizes(new[name], cut)])
        winner = min(sums, key=sums.__getitem__)
        found.append(asked[winner] <= order_statistic(own[winner], k))
    return np.array(found)


def left_out_by_definition(candidates, y, new, targets, *, alpha):
    """ModSel-CP-LOO as it is defined, for one new row: each of the n + 1 rows is judged by the choice of the others."""
    k, n, found, known = conformal_rank(len(y), alpha=alpha), len(y), [], {}
    own = {name: score.observed(record, y) for name, (score, record) in candidates.items()}

    def total(name, cut):
        if (name, cut) not in known:
            score, record = candidates[name]
            known[name, cut] = round(math.fsum([*score.sizes(record, cut), *score.sizes(new[name], cut)]), 9)
        return known[name, cut]

    best = min(candidates, key=lambda name: total(name, order_statistic(own[name], k)))
    for target in targets:
        asked = {name: float(candidates[name][0].observed(new[name], np.array([target]))[0]) for name in candidates}
        values = []
        for i in range(n):
            others = {name: np.append(np.delete(own[name], i), asked[name]) for name in candidates}
            judge = min(candidates, key=lambda name, others=others: total(name, order_statistic(others[name], k)))
            values.append(total(judge, float(own[judge][i])))
        found.append(total(best, asked[best]) <= sorted(values)[k - 1])
    return np.array(found)


def union_by_its_formula(candidates, y, new, n_labels, *, alpha):
    """The labels l of one new row with S(l) <= S_(k) and L(max(S_(k-1), S(l))) <= T for some candidate."""
    k = conformal_rank(len(y), alpha=alpha)

    def total(name, cut):
        score, record = candidates[name]
        return score.sizes(record, float(cut)).sum() + score.sizes(new[name], float(cut)).sum()

    own = {name: np.sort(np.append(score.observed(r, y), [-np.inf])) for name, (score, r) in candidates.items()}
    limit = min(total(name, own[name][k]) for name in candidates)
    found = np.zeros(n_labels, dtype=bool)
    for name, (score, _) in candidates.items():
        low, top = own[name][k - 1 : k + 1]
        asked = [score.observed(new[name], np.array([label]))[0] for label in range(n_labels)]
        found |= [bool(s <= top and total(name, max(low, s)) <= limit) for s in asked]
    return found


def number_records(kind, n, rng, digits):
    """Predictions of n rows around `truth` by three candidates, and y; rounded to few digits there are many ties."""
    truth = rng.normal(size=n)
    y, made = np.round(truth + rng.normal(size=n), digits), []
    for _ in range(3):
        mean, spread = np.round(truth + 0.7 * rng.normal(size=n), digits), rng.choice([0.5, 1.0, 2.0], size=n)
        if kind is AbsoluteResidual:
            made.append(dco.Points(mean))
        elif kind is NormalisedResidual:
            made.append(dco.PointsWithSpread(mean, spread))
        else:
            made.append(dco.Quantiles(mean - 2 * spread, mean + spread, median=mean))
    return made, y


def split_record(record, n):
    """The first n rows, and the others one by one."""
    arrays = {name: value for name, value in vars(record).items() if isinstance(value, np.ndarray)}
    kind = type(record)
    rest = range(n, len(record))
    first = kind(**{name: values[:n] for name, values in arrays.items()})
    return first, [kind(**{name: values[i : i + 1] for name, values in arrays.items()}) for i in rest]


SCORES = [
    AbsoluteResidual(),
    NormalisedResidual(),
    QuantileResidual(),
    QuantileResidual(kind="relative"),
    QuantileResidual(kind="median"),
]


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.6, 0.97])  # cut-offs of quantiles are negative at .6; at .97 the rank is 1
@pytest.mark.parametrize("digits", [0, 1, 6])
@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_every_number_of_the_definition_is_in_the_set(score, digits, alpha):
    """Brute force over a grid that holds the ends of all pieces; without ties nothing else is in the set."""
    rng, n = np.random.default_rng([digits, int(100 * alpha)]), 21
    inside, extra = 0, 0
    for _ in range(4):
        records, y = number_records(type(score), n + 3, rng, digits)
        parts = {str(c): split_record(record, n) for c, record in enumerate(records)}
        candidates = {name: (score, first) for name, (first, _) in parts.items()}
        for j in range(3):
            new = {name: rest[j] for name, (_, rest) in parts.items()}
            sets = dco.select_and_calibrate(candidates, y[:n], new, alpha=alpha)
            grid = np.concatenate([np.round(np.linspace(-6, 6, 121), 1), sets.pieces(0).ravel(), rng.normal(size=20)])
            wanted = chosen_by_definition(candidates, y[:n], new, grid, alpha=alpha)
            got = np.array([bool(sets.contains([value])[0]) for value in grid])
            assert not np.any(wanted & ~got)
            inside, extra = inside + wanted.sum(), extra + np.sum(got & ~wanted)
    assert inside > 0 or alpha > 0.9
    if digits == 6:
        assert extra <= 12 * 2 * 3  # the ends themselves are rounded outwards: at most two for each piece


@pytest.mark.parametrize("alpha", [0.1, 0.4, 0.97])
@pytest.mark.parametrize("digits", [1, 2, 8])
def test_every_label_of_the_definition_is_in_the_set(digits, alpha):
    rng, n, classes = np.random.default_rng([digits, int(100 * alpha)]), 21, 5
    scores, sizes = {"lac": LAC(), "aps": APS(), "top": TopK(), "full": NeverEmpty(LAC())}, [0, 0]
    for _ in range(8):
        y = rng.integers(classes, size=n)
        probabilities = {name: rng.dirichlet(np.ones(classes), size=n + 3) for name in scores}
        for values in probabilities.values():  # rounded, with a row sum of 1: ties within rows and between them
            values[:] = np.round(values, digits)
            values[:, 0] += 1 - values.sum(axis=1)
            np.maximum(values, 0, out=values)
            values /= values.sum(axis=1, keepdims=True)
        candidates = {c: (score, dco.ClassProbabilities(probabilities[c][:n])) for c, score in scores.items()}
        new = {c: dco.ClassProbabilities(probabilities[c][n:]) for c in scores}
        sets = dco.select_and_calibrate(candidates, y, new, alpha=alpha).to_dense()
        for j in range(3):
            one = {c: dco.ClassProbabilities(probabilities[c][n + j : n + j + 1]) for c in scores}
            wanted = chosen_by_definition(candidates, y, one, np.arange(classes), alpha=alpha)
            assert not np.any(wanted & ~sets[j])
            assert np.array_equal(sets[j], union_by_its_formula(candidates, y, one, classes, alpha=alpha))
            sizes = [sizes[0] + wanted.sum(), sizes[1] + sets[j].sum()]
    assert sizes[1] <= 1.5 * sizes[0] + 5  # ties in the sums of sizes cost something, not everything


def test_label_sets_are_the_formula_where_everything_is_tied():
    """Few rows and few distinct probabilities: equal scores within a row, and sums of sizes that differ by one."""
    rng, n, classes = np.random.default_rng(6), 7, 6
    for _ in range(100):
        weights = rng.integers(1, 4, size=(2, n + 4, classes)).astype(float)
        records = weights / weights.sum(axis=2, keepdims=True)
        y = rng.integers(classes, size=n)
        candidates = {str(c): (LAC(), dco.ClassProbabilities(p[:n])) for c, p in enumerate(records)}
        new = {str(c): dco.ClassProbabilities(p[n:]) for c, p in enumerate(records)}
        sets = dco.select_and_calibrate(candidates, y, new, alpha=0.4).to_dense()
        for j in range(4):
            one = {str(c): dco.ClassProbabilities(p[n + j : n + j + 1]) for c, p in enumerate(records)}
            assert np.array_equal(sets[j], union_by_its_formula(candidates, y, one, classes, alpha=0.4))


@pytest.mark.parametrize("alpha", [0.1, 0.6, 0.97])
@pytest.mark.parametrize("digits", [0, 1, 6])
@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_leaving_one_out_gives_the_numbers_of_the_definition(score, digits, alpha):
    """Brute force over a grid with the ends of all pieces, ties included; only next to an end may the two differ."""
    rng, n = np.random.default_rng([digits, int(100 * alpha)]), 21
    records, y = number_records(type(score), n + 2, rng, digits)
    parts = {str(c): split_record(record, n) for c, record in enumerate(records)}
    candidates = {name: (score, first) for name, (first, _) in parts.items()}
    for j in range(2):
        new = {name: rest[j] for name, (_, rest) in parts.items()}
        sets = dco.select_and_calibrate(candidates, y[:n], new, alpha=alpha, method="modsel-loo")
        ends = sets.pieces(0).ravel()
        grid = np.concatenate([np.round(np.linspace(-4, 4, 41), 1), ends, ends - 1e-7, ends + 1e-7, rng.normal(size=10)])
        wanted = left_out_by_definition(candidates, y[:n], new, grid, alpha=alpha)
        got = np.array([bool(sets.contains([value])[0]) for value in grid])
        assert not np.any(wanted & ~got)
        beside = np.array([np.abs(ends - value).min(initial=np.inf) < 1e-8 for value in grid])
        assert not np.any(got & ~wanted & ~beside)


@pytest.mark.parametrize("digits", [0, 6])
def test_leaving_one_out_gives_the_numbers_of_the_definition_where_scores_are_infinite(digits):
    """At k = n one row of spread 0 lets candidates cross beyond every score; sets may then have infinite pieces."""
    rng, n, held = np.random.default_rng(digits), 9, 0
    scores = [AbsoluteResidual(), NormalisedResidual(), NormalisedResidual()]
    for _ in range(40):
        y, means = np.round(rng.normal(size=n), digits), np.round(rng.normal(size=(3, n + 1)), digits)
        spreads = rng.choice([0.0, 0.5, 1.0, 2.0], p=[0.1, 0.3, 0.3, 0.3], size=(3, n + 1))
        parts = [split_record(dco.PointsWithSpread(*pair), n) for pair in zip(means, spreads, strict=True)]
        candidates = {str(c): (score, first) for c, (score, (first, _)) in enumerate(zip(scores, parts, strict=True))}
        new = {str(c): rest[0] for c, (_, rest) in enumerate(parts)}
        sets = dco.select_and_calibrate(candidates, y, new, alpha=ALPHA, method="modsel-loo")
        ends = sets.pieces(0).ravel()
        grid = np.concatenate([np.linspace(-12, 12, 49), 3 * rng.normal(size=10)])
        grid = grid[np.abs(grid[:, None] - np.append(ends, means[:, -1])).min(axis=1) > 1e-8]
        wanted = left_out_by_definition(candidates, y, new, grid, alpha=ALPHA)
        assert np.array_equal([bool(sets.contains([value])[0]) for value in grid], wanted)
        held += np.isinf(ends).any()
    assert held > 3


@pytest.mark.parametrize("alpha", [0.1, 0.4, 0.97])
@pytest.mark.parametrize("tied", [False, True])
def test_leaving_one_out_gives_the_labels_of_the_definition(tied, alpha):
    rng, n, classes, held = np.random.default_rng(int(100 * alpha)), 17, 5, 0
    for scores in ([LAC(), APS(), TopK()], [LAC()] * 3) * 4:
        weights = rng.integers(1, 4, size=(3, n + 2, classes)) if tied else rng.dirichlet(np.ones(classes), size=(3, n + 2))
        p, y = weights / weights.sum(axis=2, keepdims=True), rng.integers(classes, size=n)
        candidates = {str(c): (score, dco.ClassProbabilities(p[c, :n])) for c, score in enumerate(scores)}
        new = {name: dco.ClassProbabilities(p[int(name), n:]) for name in candidates}
        sets = dco.select_and_calibrate(candidates, y, new, alpha=alpha, method="modsel-loo").to_dense()
        for j in range(2):
            one = {name: dco.ClassProbabilities(p[int(name), n + j : n + j + 1]) for name in candidates}
            assert np.array_equal(sets[j], left_out_by_definition(candidates, y, one, np.arange(classes), alpha=alpha))
        held += sets.sum()
    assert held > 0


@pytest.mark.parametrize("method", ["modsel", "modsel-loo"])
@pytest.mark.parametrize("score", SCORES[1:], ids=repr)
def test_new_rows_do_not_touch_each_other(score, method):
    """Many at once give what each gives alone, those where a candidate takes no part included."""
    rng, n = np.random.default_rng(3), 25
    records, y = number_records(type(score), n + 40, rng, 6)
    parts = [split_record(record, n) for record in records]
    fields = [{k: v[n:] for k, v in vars(record).items() if isinstance(v, np.ndarray)} for record in records]
    new = {str(c): type(record)(**own) for c, (record, own) in enumerate(zip(records, fields, strict=True))}
    candidates = {str(c): (score, first) for c, (first, _) in enumerate(parts)}
    found = dco.joint_selection(candidates, y[:n], new, alpha=ALPHA, method=method)
    alone = [
        dco.joint_selection(
            candidates, y[:n], {str(c): rest[j] for c, (_, rest) in enumerate(parts)}, alpha=ALPHA, method=method
        )
        for j in range(40)
    ]
    assert found.sets.sizes() == pytest.approx(np.concatenate([each.sets.sizes() for each in alone]))
    assert found.winners == {name: sum(each.winners.get(name, 0) for each in alone) for name in found.winners}


@pytest.mark.parametrize(("alpha", "rank"), [(ALPHA, 55), (0.97, 2)])
def test_residual_sets_have_a_closed_form(alpha, rank):
    """u = min_m S_(k); the union of mean ± u over the candidates with S_(k-1) <= u."""
    rng, n = np.random.default_rng(0), 60
    truth = rng.normal(size=n + 40)
    y = truth + rng.normal(size=n + 40)
    means = truth + 0.3 * rng.normal(size=(6, n + 40))
    means[5] += 20  # no rank is too low to leave it out
    found = dco.joint_selection(
        {str(c): (AbsoluteResidual(), dco.Points(mean[:n])) for c, mean in enumerate(means)},
        y[:n],
        {str(c): dco.Points(mean[n:]) for c, mean in enumerate(means)},
        alpha=alpha,
    )
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
    assert found.sets.sizes() == pytest.approx(2 * u + np.minimum(np.diff(gaps, axis=0), 2 * u).sum(axis=0))


def z_of(coverages):
    """How many standard errors the mean coverage of independent runs lies above 1 - alpha."""
    coverages = np.asarray(coverages)
    return (coverages.mean() - (1 - ALPHA)) / (coverages.std(ddof=1) / math.sqrt(len(coverages)))


def numbers_run(rng, n, n_new, digits):
    truth = rng.normal(size=n + n_new)
    y = np.round(truth + 0.2 * rng.normal(size=n + n_new), digits)
    return y, np.round(truth + rng.normal(size=(10, n + n_new)), digits)


@pytest.mark.guarantee
@pytest.mark.parametrize("method", ["modsel", "modsel-loo"])
@pytest.mark.parametrize("digits", [1, 12])
def test_intervals_cover_where_choosing_without_the_new_row_does_not(digits, method):
    """n = 60, ten candidates of equal quality. z is below -4 once in 30,000 runs of a rule with coverage 1 - alpha.

    EFCP, the classic mistake (choose by the n rows, calibrate the winner on them), covers about .85, and the check sees it.
    """
    rng, n, n_new = np.random.default_rng(8), 60, 100
    last = n + (n_new if method == "modsel" else 4)  # it takes milliseconds to leave each row out for a new one
    joint, plain, ratio = [], [], []
    for _ in range(2000 if FULL else 300):
        y, means = numbers_run(rng, n, n_new, digits)
        candidates = {str(c): (AbsoluteResidual(), dco.Points(mean[:n])) for c, mean in enumerate(means)}
        new = {str(c): dco.Points(mean[n:last]) for c, mean in enumerate(means)}
        sets = dco.select_and_calibrate(candidates, y[:n], new, alpha=ALPHA, method=method)
        joint.append(sets.contains(y[n:last]).mean())
        cuts = np.sort(np.abs(y[:n] - means[:, :n]), axis=1)[:, conformal_rank(n, alpha=ALPHA) - 1]
        best = int(cuts.argmin())
        plain.append((np.abs(y[n:] - means[best, n:]) <= cuts[best]).mean())
        ratio.append(sets.sizes().mean() / np.mean(2 * cuts))
    print(f"\ncoverage {np.mean(joint):.3f}, EFCP {np.mean(plain):.3f}; size / mean size of one {np.mean(ratio):.2f}")
    assert z_of(joint) > -4
    assert z_of(plain) < -4
    assert np.mean(plain) < 0.88
    assert np.mean(ratio) < 1.6  # a union of near-ties is wider than one interval; full sets would cover too


@pytest.mark.guarantee
@pytest.mark.parametrize("method", ["modsel", "modsel-loo"])
@pytest.mark.parametrize("digits", [2, 12])
def test_label_sets_cover_where_choosing_without_the_new_row_does_not(digits, method):
    """As above, for ten classifiers that see the label with noise of their own."""
    rng, n, n_new, classes = np.random.default_rng(9), 60, 100 if method == "modsel" else 20, 20
    joint, plain, sizes = [], [], []
    for _ in range(1000 if FULL else 300):
        y = rng.integers(classes, size=n + n_new)
        logits = 2 * rng.normal(size=(10, n + n_new, classes)) + 3 * (y[:, None] == np.arange(classes))
        weights = np.round(np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True), digits) + 1e-9
        records = weights / weights.sum(axis=2, keepdims=True)
        candidates = {str(c): (LAC(), dco.ClassProbabilities(p[:n])) for c, p in enumerate(records)}
        new = {str(c): dco.ClassProbabilities(p[n:]) for c, p in enumerate(records)}
        sets = dco.select_and_calibrate(candidates, y[:n], new, alpha=ALPHA, method=method)
        joint.append(sets.contains(y[n:]).mean())
        sizes.append(sets.sizes().mean())
        cuts = [dco.split_conformal(LAC().observed(r, y[:n]), alpha=ALPHA) for _, r in candidates.values()]
        best = int(np.argmin([LAC().sizes(r, cut).sum() for (_, r), cut in zip(candidates.values(), cuts, strict=True)]))
        plain.append(LAC().sets(new[str(best)], cuts[best]).contains(y[n:]).mean())
    print(f"\ncoverage {np.mean(joint):.3f}, EFCP {np.mean(plain):.3f}; mean size {np.mean(sizes):.2f}")
    assert z_of(joint) > -4
    assert z_of(plain) < -4
    assert np.mean(sizes) < 0.75 * classes


def test_the_adjusted_rank_is_that_of_yang_and_kuchibhotla():
    """k = ceil((n + 1)(1 - a~)) with their a~; the winner of the n rows alone is cut there."""
    rng, n, count, alpha = np.random.default_rng(2), 400, 4, 0.2
    truth = rng.normal(size=n + 5)
    y, means = truth + rng.normal(size=n + 5), truth + rng.normal(size=(count, n + 5)) * [[2], [0.1], [2], [3]]
    candidates = {str(c): (AbsoluteResidual(), dco.Points(mean[:n])) for c, mean in enumerate(means)}
    new = {str(c): dco.Points(mean[n:]) for c, mean in enumerate(means)}
    found = dco.joint_selection(candidates, y[:n], new, alpha=alpha, method="yk-adjust")
    adjusted = (n * alpha + 1 - n * (1 / (3 * math.sqrt(n)) + math.sqrt(math.log(2 * count) / (2 * n)))) / (n + 1)
    assert found.rank == math.ceil((n + 1) * (1 - adjusted)) == 348
    assert found.winners == {"1": 5}
    cut = order_statistic(np.abs(y[:n] - means[1, :n]), found.rank)
    assert np.array_equal(found.sets.contains(y[n:]), np.abs(y[n:] - means[1, n:]) <= cut)
    assert found.sets.sizes() == pytest.approx(np.full(5, 2 * cut))


@pytest.mark.parametrize(("method", "n", "smallest"), [("modsel", 8, 9), ("modsel-loo", 8, 9), ("yk-adjust", 60, 136)])
def test_too_few_rows_give_full_sets_and_a_warning(method, n, smallest):
    """The smallest n named in the warning is enough, and one row less is not."""
    rng = np.random.default_rng(0)

    def found(rows):
        points = {name: dco.Points(rng.normal(size=rows)) for name in "ab"}
        new = {name: dco.Points(rng.normal(size=2)) for name in "ab"}
        candidates = {name: (AbsoluteResidual(), record) for name, record in points.items()}
        return dco.joint_selection(candidates, rng.normal(size=rows), new, alpha=ALPHA, method=method)

    for rows in (n, smallest - 1):
        with pytest.warns(InfeasibleLevelWarning, match=f"At least {smallest} rows"):
            full = found(rows)
        assert full.rank == rows + 1
        assert full.sets.is_infinite().all()
    assert not found(smallest).sets.is_infinite().any()

    probabilities = dco.ClassProbabilities(rng.dirichlet(np.ones(3), size=4), classes=["a", "b", "c"])
    with pytest.warns(InfeasibleLevelWarning):
        sets = dco.select_and_calibrate(
            {"one": (LAC(), probabilities)}, ["a", "b", "c", "a"], {"one": probabilities}, alpha=ALPHA, method=method
        )
    assert sets.is_full().all()


def test_candidates_may_list_labels_in_their_own_order():
    rng, n = np.random.default_rng(4), 40
    probabilities, y = rng.dirichlet(np.ones(3), size=n + 5), rng.integers(3, size=n)
    names, turned = np.array(["a", "b", "c"]), [2, 0, 1]

    def record(rows, order):
        return dco.ClassProbabilities(probabilities[rows][:, order], classes=names[order])

    first, rest = slice(0, n), slice(n, None)
    one = dco.select_and_calibrate(
        {"p": (LAC(), record(first, [0, 1, 2]))}, names[y], {"p": record(rest, [0, 1, 2])}, alpha=ALPHA
    )
    two = dco.select_and_calibrate(
        {"p": (LAC(), record(first, [0, 1, 2])), "q": (LAC(), record(first, turned))},
        names[y],
        {"p": record(rest, [0, 1, 2]), "q": record(rest, turned)},
        alpha=ALPHA,
    )
    assert one.to_lists() == two.to_lists()


@pytest.mark.parametrize("method", ["modsel", "modsel-loo"])
def test_infinite_scores_are_legal(method):
    """A spread of 0 scores +inf away from the mean: if that is the k-th score, another candidate takes over."""
    rng, n = np.random.default_rng(1), 30
    y = rng.normal(size=n)
    zero = {"flat": dco.PointsWithSpread(np.zeros(n), np.zeros(n)), "wide": dco.PointsWithSpread(np.zeros(n), np.ones(n))}
    new = {name: dco.PointsWithSpread(np.zeros(3), np.full(3, value)) for name, value in (("flat", 0.0), ("wide", 1.0))}
    pairs = {name: (NormalisedResidual(), record) for name, record in zero.items()}
    found = dco.joint_selection(pairs, y, new, alpha=ALPHA, method=method)
    k = order_statistic(np.abs(y), found.rank)
    assert found.sets.sizes() == pytest.approx(np.full(3, 2 * k))
    alone = dco.select_and_calibrate({"flat": pairs["flat"]}, y, {"flat": new["flat"]}, alpha=ALPHA, method=method)
    assert alone.is_infinite().all()


@pytest.mark.parametrize("method", ["modsel", "modsel-loo"])
def test_no_new_rows_give_no_sets(method):
    rng = np.random.default_rng(1)
    points = dco.Points(rng.normal(size=20))
    new = {"a": dco.Points(np.empty(0))}
    one = {"a": (AbsoluteResidual(), points)}
    assert len(dco.select_and_calibrate(one, rng.normal(size=20), new, alpha=ALPHA, method=method)) == 0


def test_bad_input_gets_one_sentence():
    points, y = dco.Points(np.zeros(3)), np.zeros(3)
    labels = dco.ClassProbabilities(np.full((3, 2), 0.5))
    one = {"a": (AbsoluteResidual(), points)}

    def refused(match, candidates, new, kind=ValueError, targets=y, **options):
        with pytest.raises(kind, match=match):
            dco.select_and_calibrate(candidates, targets, new, **{"alpha": 0.4, **options})

    refused("method must be", one, {"a": points}, method="loo")
    refused("new must be a dict", one, {"b": points})
    refused("new must be a dict", one, points)
    refused("a record such as dco.Points, got ndarray", one, {"a": y})
    refused("one label or number", one, {"a": points}, targets=[])
    refused("same rows", {**one, "b": one["a"]}, {"a": points, "b": dco.Points(np.zeros(2))})
    refused("some of each", {**one, "b": (LAC(), labels)}, {"a": points, "b": labels})
    mixtures = dco.GaussianMixtures(np.zeros((3, 2)), np.ones(2))
    refused(
        "length is known at any cut-off",
        {"a": (dco.scores.PredictiveDensity(), mixtures)},
        {"a": mixtures},
        IncompatibleScoreError,
    )
    other = dco.ClassProbabilities(np.full((3, 2), 0.5), classes=["x", "y"])
    refused("same labels", {"a": (LAC(), labels)}, {"a": other}, targets=[0, 1, 0])
