"""A structure that depends on x: one fixed function of a row, calibrated, saved, certified and
checked like any other.
"""

import numpy as np
import pytest
from scipy.stats import betabinom, kstest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

import dco
from dco.predictions import Several, take
from dco.scores import (
    APS,
    LAC,
    AbsoluteResidual,
    HighestDensityMass,
    NormalisedResidual,
    PredictiveDensity,
)
from dco.scores.pointwise import Level, Pointwise

ALPHA = 0.1


def made_of(scores, records, y):
    """The score that tuning rows make: thresholds and distributions of each candidate's scores."""
    found = np.sort(
        [score.observed(record, y) for score, record in zip(scores, records, strict=True)], axis=1
    )
    place = len(y) - int(len(y) * ALPHA) - 1
    return Pointwise(tuple(scores), found[:, place], found, empty_last=True)


def regions(rng, n):
    """y with noise 1; model a is right where x < 0 and knows it, model b where x > 0."""
    x = rng.uniform(-1, 1, size=n)
    y = rng.normal(size=n)
    lost = 5 * rng.normal(size=n)
    a = dco.PointsWithSpread(np.where(x < 0, 0, lost), np.where(x < 0, 1.0, 5.0))
    b = dco.PointsWithSpread(np.where(x > 0, 0, lost), np.where(x > 0, 1.0, 5.0))
    return (a, b), y


def mixtures(rng, n):
    centres = rng.normal(size=(n, 1))
    y = centres[:, 0] + rng.choice([-2, 2], size=n) + 0.5 * rng.normal(size=n)
    two = dco.GaussianMixtures(centres + [-2, 2], np.array([0.5, 0.5]))
    return (two, two, dco.Points(centres[:, 0])), y


def labels(rng, n):
    y = rng.integers(4, size=n)
    logits = 1.5 * rng.normal(size=(2, n, 4)) + 4 * (y[:, None] == np.arange(4))
    p = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    return tuple(dco.ClassProbabilities(each) for each in p), y


CASES = {
    "intervals": (regions, (NormalisedResidual(), NormalisedResidual())),
    "unions": (mixtures, (PredictiveDensity(), HighestDensityMass(), AbsoluteResidual())),
    "labels": (labels, (LAC(), APS())),
}


@pytest.mark.parametrize("case", CASES)
def test_sets_are_what_the_score_says(case):
    """contains(y) is observed(y) <= t exactly, no member lies beyond the ends, sets grow, and the
    choice ignores y.
    """
    draw, scores = CASES[case]
    rng = np.random.default_rng(0)
    score = made_of(scores, *draw(rng, 120))
    records, y = draw(rng, 200)
    record = Several(records)
    seen, before = score.observed(record, y), np.zeros(200)
    for threshold in [*np.quantile(seen, [0.05, 0.5, 0.9], method="lower"), 1.3]:
        sets = score.sets(record, float(threshold))
        assert np.array_equal(sets.contains(y), seen <= threshold)
        assert np.all(sets.sizes() >= before)
        before = sets.sizes()
        if case != "labels":
            hull = sets.hull() if case == "unions" else sets
            there = np.isfinite(hull.lower) & np.isfinite(hull.upper)
            for outside in (np.nextafter(hull.lower, -np.inf), np.nextafter(hull.upper, np.inf)):
                assert not sets.contains(np.where(there, outside, 0.0))[there].any()
    if case == "labels":
        every = score.every_label(record)
        assert np.array_equal(every[np.arange(200), y], seen)
    assert len(np.unique(score.chosen(record))) > 1
    few = take(record, np.arange(7))
    assert np.array_equal(score.observed(few, y[:7]), seen[:7])


def test_levels_keep_the_order_and_have_an_inverse():
    """Ties, one value and infinite ones included; without bounds at the knots floats beside a knot
    would change places.
    """
    rng = np.random.default_rng(1)
    wild = [rng.lognormal(sigma=3, size=50) * rng.choice([-1, 1], size=50) for _ in range(100)]
    for values in (
        rng.normal(size=50),
        np.round(rng.normal(size=50)),
        np.zeros(3),
        np.array([1.0, 2.0, np.inf]),
        *wild,
    ):
        level = Level(np.sort(values))
        beside = [np.nextafter(level.knots, way) for way in (-np.inf, np.inf)]
        asked = np.sort(
            np.concatenate([level.knots, *beside, 3 * rng.normal(size=200), [-np.inf, np.inf]])
        )
        found = level.of(asked)
        assert np.all(found[1:] >= found[:-1])
        assert (found[0], found[-1]) == (-np.inf, np.inf)
        finite = np.isfinite(found)
        beyond = level.beyond(found[finite])
        assert np.all(beyond > asked[finite])
        assert beyond == pytest.approx(asked[finite], rel=1e-9, abs=1e-9)
    assert Level(np.array([1.0, 2.0, np.inf])).of(np.array([1.0, 2.0])) == pytest.approx([1 / 2, 1])


def test_candidates_may_list_labels_in_their_own_order():
    rng = np.random.default_rng(0)
    (first, second), y = labels(rng, 200)
    order = np.array([2, 0, 3, 1])
    turned = dco.ClassProbabilities(second.probabilities[:, order], classes=order)
    named = dco.ClassProbabilities(first.probabilities, classes=np.arange(4))
    score = made_of((LAC(), LAC()), (first, second), y)
    one, other = Several((first, second)), Several((named, turned))
    assert np.array_equal(score.every_label(one), score.every_label(other))
    assert score.sets(one, 0.9).to_lists() == score.sets(other, 0.9).to_lists()
    assert np.array_equal(score.observed(one, y), score.observed(other, y))


def test_the_most_probable_label_is_in_every_set_at_every_level():
    """Scores of different ranges, TopK among them: none of them may carry the label past the least
    score of another.
    """
    rng = np.random.default_rng(0)
    y = rng.choice(6, size=1200)
    X = rng.normal(size=(1200, 4)) + 1.2 * np.eye(6)[y, :4]
    models = {"line": LogisticRegression(), "near": KNeighborsClassifier(25)}
    scores = [
        dco.scores.NeverEmpty(each)
        for each in (LAC(), dco.scores.RAPS(1.5, 1), dco.scores.SAPS(1.0))
    ]
    for own in ([*scores, dco.scores.TopK()], [dco.scores.TopK(), dco.scores.NeverEmpty(LAC())]):
        est = dco.DecoupledClassifier(
            models, own, selection="pointwise", alpha=0.05, random_state=0
        ).fit(X[:600], y[:600])
        assert (
            min(
                sets.sizes().min()
                for sets in est.predict_set(X[600:], alpha=[0.05, 0.2, 0.4, 0.5, 0.6, 0.8])
            )
            == 1
        )


def test_an_empty_label_set_is_not_the_smallest():
    """It holds no label, so to take it is to miss; files written before say nothing of it and keep
    their choice.
    """
    unsure = dco.ClassProbabilities(np.full((3, 4), 0.25))
    some = dco.ClassProbabilities(np.tile([0.4, 0.4, 0.1, 0.1], (3, 1)))
    parts = (LAC(), LAC()), np.array([0.7, 0.7]), np.array([[0.1, 0.7], [0.1, 0.7]])
    record = Several((unsure, some))
    assert Pointwise(*parts, empty_last=True).chosen(record).tolist() == [1, 1, 1]
    assert Pointwise(*parts).chosen(record).tolist() == [0, 0, 0]
    exact, wide = (dco.PointsWithSpread(np.zeros(3), np.full(3, spread)) for spread in (0.0, 1.0))
    residuals = (NormalisedResidual(), NormalisedResidual()), *parts[1:]
    # one number each
    assert Pointwise(*residuals, empty_last=True).chosen(Several((wide, exact))).tolist() == [
        1,
        1,
        1,
    ]


@pytest.mark.guarantee
@pytest.mark.parametrize("case", CASES)
def test_coverage_has_the_law_of_one_order_statistic(case):
    """Hits among 20 new rows are Beta-binomial(20, k, n + 1 - k) for the one score that tuning rows
    fixed (p > .001).
    """
    draw, scores = CASES[case]
    rng, n, new = np.random.default_rng(3), 59, 20
    score = made_of(scores, *draw(rng, 80))
    hits = []
    for _ in range(100):
        records, y = draw(rng, n + new)
        seen = score.observed(Several(records), y)
        threshold = dco.split_conformal(seen[:n], alpha=ALPHA)
        hits.append(np.count_nonzero(seen[n:] <= threshold.value))
    law = betabinom(new, threshold.rank, n + 1 - threshold.rank)
    # spread, so that the law is continuous
    places = law.cdf(np.array(hits) - 1) + rng.uniform(size=100) * law.pmf(hits)
    assert kstest(places, "uniform").pvalue > 0.001


def test_it_wins_where_candidates_are_good_in_different_regions():
    """Each model alone is wide on half of the rows; row by row the narrow one is taken, at the same
    coverage.
    """
    rng = np.random.default_rng(4)
    score = made_of(CASES["intervals"][1], *regions(rng, 500))
    (records, y), (new, y_new), single = regions(rng, 999), regions(rng, 4000), NormalisedResidual()

    def sets_of(one, known, asked):
        return one.sets(asked, dco.split_conformal(one.observed(known, y), alpha=ALPHA))

    alone = [sets_of(single, *pair).sizes().mean() for pair in zip(records, new, strict=True)]
    sets = sets_of(score, Several(records), Several(new))
    assert sets.sizes().mean() < 0.5 * min(alone)
    # what is best: +-1.645 of the noise everywhere
    assert sets.sizes().mean() == pytest.approx(2 * 1.645, rel=0.1)
    assert abs(sets.contains(y_new).mean() - 0.9) < 0.05


class Rounded(ClassifierMixin, BaseEstimator):
    """Probabilities of .01, .5 and .99 with a last digit that depends on how many rows come
    together.
    """

    def __init__(self, column=0):
        self.column = column

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        first = np.select([X[:, self.column] < -0.5, X[:, self.column] < 0.5], [0.01, 0.5], 0.99)
        first += (len(X) % 7 - 3) * 2.0**-50
        return np.stack([first, 1 - first], axis=1)


def test_scores_that_rounding_alone_tells_apart_stay_together():
    """Cut-offs are tied with many scores, as where probabilities saturate; no batch may change what
    a row chooses.
    """
    rng = np.random.default_rng(6)
    X, noise = rng.normal(size=(403, 2)), rng.uniform(size=403)
    y = np.where(noise < 0.3, noise < 0.15, X.sum(axis=1) < 0).astype(int)
    est = dco.DecoupledClassifier(
        [Rounded(0), Rounded(1)], LAC(), alpha=0.3, selection="pointwise", random_state=0
    )
    many = est.fit(X, y).predict_set(X).to_dense()
    assert np.array_equal(
        many, np.concatenate([est.predict_set(row[None]).to_dense() for row in X])
    )
    assert many.size / 2 < many.sum() < many.size


def table(task, n, rng):
    X = rng.normal(size=(n, 3))
    y = X[:, 0] + rng.normal(size=n) * (0.3 + np.abs(X[:, 1]))
    return X, y if task == "numbers" else np.array(["a", "b", "c"])[np.digitize(y, [-0.5, 0.7])]


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("numbers", {}),
        ("numbers", {"tune_folds": 3}),
        ("numbers", {"refit": False, "guarantee": "pac"}),
        ("numbers", {"condition_on": 2}),
        ("labels", {}),
        ("labels", {"condition_on": "label", "tune_folds": 2}),
    ],
)
def test_an_estimator_fits_saves_certifies_and_is_checked(task, options, tmp_path):
    rng = np.random.default_rng(5)
    X, y = table(task, 600, rng)
    X[:, 2] = X[:, 2] > 0
    models = (
        [LogisticRegression(), KNeighborsClassifier(9)]
        if task == "labels"
        else [Ridge(), KNeighborsRegressor(9)]
    )
    if task == "numbers":
        models.append(dco.models.ResidualSpread(Ridge()))
    maker = dco.DecoupledClassifier if task == "labels" else dco.DecoupledRegressor
    est = maker(models, alpha=ALPHA, selection="pointwise", random_state=0, **options).fit(X, y)
    assert est.best_candidate_ == est.ranking_.best == est.certificate_.candidate
    assert est.best_candidate_.startswith("pointwise / ")
    assert "the smallest set at each x" in str(est.certificate_)
    dco.save(est, tmp_path / "model.dco")
    loaded = dco.load(tmp_path / "model.dco")
    sealed = est.splits_.calibrate
    assert dco.Certificate.from_json(est.certificate_.to_json()).verify(
        X[sealed], y[sealed], predictor=loaded
    )
    new, y_new = table(task, 300, rng)
    new[:, 2] = new[:, 2] > 0
    one, two = est.predict_set(new), loaded.predict_set(new)
    assert np.array_equal(one.sizes(), two.sizes())
    assert 0.8 < one.contains(y_new).mean() < 0.99
    if task == "labels":
        assert np.array_equal(est.predict_p(new) > ALPHA, one.to_dense())
    elif "guarantee" not in options:
        assert np.array_equal(est.predict_p(new, y_new) > ALPHA, one.contains(y_new))
    assert len(est.predict(new)) == 300


def test_other_selections_are_refused():
    X, y = table("numbers", 60, np.random.default_rng(0))
    with pytest.raises(
        ValueError, match='selection must be "decoupled", "pointwise" or "joint", got \'best\''
    ):
        dco.DecoupledRegressor(Ridge(), selection="best").fit(X, y)
