"""Evenness of coverage: slices by definition, and intervals that hold for all at once."""

import json

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression, Ridge

import dco


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


def test_a_fifth_with_one_prediction_is_named_by_it():
    found = dco.evaluate(
        intervals(np.ones(10, dtype=bool)), np.zeros(10), centres=np.repeat([1.5, 2.0], 5)
    )
    assert [row.value for row in found.slices] == ["1: 1.5", "3: 2"]
