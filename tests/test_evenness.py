"""Evenness of coverage: slices by definition, intervals that hold for all at once, and rows that
did not choose the slab.
"""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from scipy.stats import beta, binom
from sklearn.linear_model import LogisticRegression, Ridge

import dco
from dco.evaluation.evenness import conditional_coverage


def intervals(covered):
    """Sets that hold y = 0 where `covered`."""
    return dco.Intervals(np.where(covered, -1.0, 1.0), np.full(len(covered), 2.0))


def test_slices_are_counted():
    rng = np.random.default_rng(0)
    members, y = rng.random((300, 3)) < 0.7, rng.choice(["a", "b", "c"], size=300)
    sets, centres = (
        dco.LabelSets.from_dense(members, classes=["a", "b", "c"]),
        np.round(rng.normal(size=300), 1),
    )
    groups = rng.integers(0, 2, size=300)
    found = dco.evaluate(sets, y, centres=centres, groups=groups)
    edges = [np.sort(centres)[k - 1] for k in (60, 120, 180, 240)]
    part_of = {
        "class": y,
        "fifth": np.array([sum(value > edge for edge in edges) for value in centres]),
        "group": groups,
    }
    assert [row.by for row in found.slices] == ["class"] * 3 + ["fifth"] * 5 + ["group"] * 2
    for by, parts in part_of.items():
        own = [row for row in found.slices if row.by == by]
        for row, value in zip(own, np.unique(parts), strict=True):
            inside = parts == value
            assert row.n == inside.sum()
            assert row.coverage == pytest.approx(sets.contains(y)[inside].mean())
            assert row.mean_size == pytest.approx(members.sum(axis=1)[inside].mean())
            assert by == "fifth" or row.value == value
    fifth = next(row for row in found.slices if row.by == "fifth")
    assert fifth.value == f"1: {centres.min():.4g} to {edges[0]:.4g}"
    assert json.loads(json.dumps(found.to_dict()))["slices"][0]["by"] == "class"


def test_intervals_of_slices_hold_for_all_at_once():
    """Coverage .9 in every slice: some interval misses it with probability at most 5 %."""
    rng, missed = np.random.default_rng(1), 0
    for _ in range(300):
        covered = rng.random(200) < 0.9
        found = dco.evaluate(
            intervals(covered),
            np.zeros(200),
            centres=rng.normal(size=200),
            groups=rng.integers(0, 9, 200),
        )
        missed += any(not row.coverage_low <= 0.9 <= row.coverage_high for row in found.slices)
    assert missed <= binom.ppf(0.999, 300, 0.05)


def test_slab_and_excess_risk_keep_their_error_rates_where_coverage_is_even():
    rng, slabs, risks = np.random.default_rng(2), 0, []
    for _ in range(200):
        X, covered = rng.normal(size=(300, 3)), rng.random(300) < 0.9
        slab, risk = conditional_coverage(X, X[:, 0], covered, alpha=0.1)
        slabs += not slab.coverage_low <= 0.9 <= slab.coverage_high
        risks.append(risk)
    assert slabs <= binom.ppf(0.999, 200, 0.05)
    assert sum(not risk.low <= 0 <= risk.high for risk in risks) <= binom.ppf(0.999, 200, 0.05)
    assert abs(np.mean([risk.value for risk in risks])) < 0.005


def test_excess_risk_is_bounded_on_each_side_of_the_tree():
    """A tree without a split, or with one: each side has an exact 97.5 % interval, and their errors
    add up to 5 %.
    """
    side = np.arange(800) % 2
    for split in (np.zeros(800), side.astype(float)):
        covered = (side == 0) | (np.arange(800) % 4 == 1)  # .75, or 1 and .5
        risk = conditional_coverage(split[:, None], split, covered, alpha=0.2)[1]
        others = np.random.default_rng(0).permutation(800)[400:]
        ends = np.zeros(2)
        for value in np.unique(split):
            own = covered[others][split[others] == value]
            hits, n = own.sum(), own.size
            low, high = (
                beta.ppf(0.0125, hits, n - hits + 1),
                1.0 if hits == n else beta.ppf(0.9875, hits + 1, n - hits),
            )
            ends += (
                n
                / 400
                * ((np.array([low, high]) - 0.8) if hits == n else 0.8 - np.array([high, low]))
            )
        assert (risk.low, risk.high) == pytest.approx(tuple(ends))


def test_the_rows_that_choose_a_slab_would_flatter_it():
    """The planted mistake: evaluated on the rows that chose it, the worst slab of even sets looks
    far too low.
    """
    rng = np.random.default_rng(3)
    X, covered = rng.normal(size=(200, 20)), rng.random(200) < 0.9
    honest = conditional_coverage(X, X[:, 0], covered, alpha=0.1)[0]
    order = np.random.default_rng(0).permutation(200)[:100]  # those that choose
    twice = np.concatenate([order, order])
    places = np.empty(200, dtype=int)
    # the others are copies of those that choose
    places[np.random.default_rng(0).permutation(200)] = twice
    planted = conditional_coverage(X[places], X[places, 0], covered[places], alpha=0.1)[0]
    assert planted.coverage_high < 0.9 < honest.coverage_high


def test_uneven_coverage_is_found():
    """Rows with a dose above 1, 15.9 % of them, are covered .4 of the time, others always: at 90 %
    the distance is .163.
    """
    rng = np.random.default_rng(4)
    X = pd.DataFrame(
        {
            "dose": rng.normal(size=4000),
            "site": rng.choice(["n", None, "s"], size=4000),
            "x": np.nan,
        }
    )
    covered = (X["dose"] < 1) | (rng.random(4000) < 0.4)
    slab, risk = conditional_coverage(X, rng.normal(size=4000), covered.to_numpy(), alpha=0.1)
    assert slab.where.startswith("dose from")
    assert slab.coverage_low < 0.4 < slab.coverage_high < 0.7
    assert risk.low < 0.163 < risk.high
    assert risk.value == pytest.approx(0.163, abs=0.02)
    for other in (csr_matrix(X[["dose"]].to_numpy()), ["text"] * 4000):  # then the prediction alone
        slab, risk = conditional_coverage(
            other, X["dose"].to_numpy(), covered.to_numpy(), alpha=0.1
        )
        assert slab.where.startswith("the prediction from")
    assert conditional_coverage(X[:99], X["dose"][:99], covered[:99], alpha=0.1) == (None, None)
    # numbers beyond single precision tell signs apart
    half = rng.uniform(size=4000) < np.where(X["dose"] > 0, 0.5, 0.99)
    slab, risk = conditional_coverage(X[["dose"]] * 1e300, rng.normal(size=4000), half, alpha=0.1)
    assert (slab.coverage_low < 0.5 < slab.coverage_high, risk.low > 0.1) == (True, True)


@pytest.mark.filterwarnings("ignore:On the tuning rows")  # a class is left behind
def test_an_estimator_shows_evenness_and_names_every_low_class():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(1500, 3))
    y = np.where(X[:, 0] + rng.normal(size=1500) > 2.2, "rare", "common")
    est = dco.DecoupledClassifier(LogisticRegression(), random_state=0).fit(X[:1000], y[:1000])
    found = est.evaluate(X[1000:], y[1000:])
    assert [note.kind for note in found.notes] == ["low-classes"]
    assert "rare" in found.notes[0].text
    assert "condition_on" in found.notes[0].remedy
    for words in (
        "worst class",
        "worst fifth",
        "worst slab",
        "excess risk",
        "one-label sets",
        "note",
    ):
        assert words in str(found)
    each = dco.DecoupledClassifier(LogisticRegression(), condition_on="label", random_state=0).fit(
        X[:1000], y[:1000]
    )
    assert each.evaluate(X[1000:], y[1000:]).notes == ()
    line = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X[:1000], X[:1000, 0])
    assert [row.by for row in line.evaluate(X[1000:], X[1000:, 0]).slices] == ["fifth"] * 5


@pytest.mark.parametrize(
    ("column", "where"),
    [
        (
            pd.Series(np.repeat(pd.date_range("2026-01-01", periods=20), 50)),
            "when from 2026-01-19 to 2026-01-20",
        ),
        (pd.Series(np.repeat(np.arange(20.0) * 86_400, 50)), "when from 1970-01-19 to 1970-01-20"),
        (pd.Series(np.repeat(list("abcdefghij"), 100)), "when: j"),
        (pd.Series(np.repeat(np.arange(10), 100)), "when 9"),
    ],
)
def test_a_slab_is_named_by_what_its_column_holds(column, where):
    """Dates as dates, seconds that a frame declares as dates too, texts as texts, and one value
    alone.
    """
    X = pd.DataFrame({"when": column})
    X.attrs["dates"] = ("when",) if column.dtype == np.float64 else None
    slab, _ = conditional_coverage(X, np.zeros(1000), np.arange(1000) < 900, alpha=0.1)
    assert (slab.where, slab.coverage) == (where, 0.0)


def test_one_low_slab_is_a_sign_of_unevenness():
    rng = np.random.default_rng(6)
    found = dco.evaluate(intervals(rng.random(400) < 0.9), np.zeros(400))
    slab, risk = conditional_coverage(
        rng.normal(size=(400, 2)), np.zeros(400), rng.random(400) < 0.9, alpha=0.1
    )
    for high, lead in ((1.0, "No sign of unevenness: the mean"), (0.7, "The mean")):
        told = replace(
            found,
            worst_slab=replace(slab, coverage_high=high),
            excess_risk=replace(risk, low=-0.01),
        ).unevenness()
        assert told[1].startswith(f"{lead} distance of coverage given x from the level is about ")
    assert found.unevenness() == []


def test_few_rows_have_a_slab_that_says_something():
    """20 of the 50 rows that choose: of the other 50 it holds some too, and not one, as without a
    least number.
    """
    for seed in range(10):
        rng = np.random.default_rng(seed)
        slab, risk = conditional_coverage(
            rng.normal(size=(100, 3)), rng.normal(size=100), rng.random(100) < 0.9, alpha=0.1
        )
        assert slab.n >= 5
    told = replace(
        dco.evaluate(intervals(np.ones(9)), np.zeros(9)),
        excess_risk=replace(risk, value=-0.0002, low=-0.0004),
    )
    assert "is about 0.000 (95 % interval 0.000 to " in told.unevenness()[-1]


def test_a_fifth_with_one_prediction_is_named_by_it():
    found = dco.evaluate(
        intervals(np.ones(10, dtype=bool)), np.zeros(10), centres=np.repeat([1.5, 2.0], 5)
    )
    assert [row.value for row in found.slices] == ["1: 1.5", "3: 2"]
