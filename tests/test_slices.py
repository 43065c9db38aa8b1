"""Slices of an evaluation: by definition, and with intervals that hold for all at once."""

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression, Ridge

import dco


def covering(is_covered):
    """Sets that hold y = 0 where `is_covered`."""
    return dco.Intervals(np.where(is_covered, -1.0, 1.0), np.full(len(is_covered), 2.0))


@pytest.fixture(scope="module")
def labelled():
    """An evaluation of random label sets, with what its slices are made of."""
    rng = np.random.default_rng(0)
    y = rng.choice(["a", "b", "c"], size=300)
    sets = dco.LabelSets(rng.random((300, 3)) < 0.7, classes=["a", "b", "c"])
    centres = np.round(rng.normal(size=300), 1)
    by = rng.integers(0, 2, size=300)
    edges = np.sort(centres)[[59, 119, 179, 239]]
    part_of_row = {"class": y, "fifth": np.searchsorted(edges, centres, side="left"), "slice": by}
    return dco.evaluate(sets, y, centres=centres, by=by), sets, y, part_of_row


@pytest.mark.parametrize("by", ["class", "fifth", "slice"])
def test_slices_are_counted(labelled, by):
    found, sets, y, part_of_row = labelled
    parts = part_of_row[by]
    rows = found.slices_by(by)
    assert len(rows) == len(np.unique(parts))
    for row, part in zip(rows, np.unique(parts), strict=True):
        inside = parts == part
        assert row.n == inside.sum()
        assert row.coverage == sets.contains(y)[inside].mean()
        assert row.mean_size == pytest.approx(sets.sizes()[inside].mean())


def test_intervals_of_slices_hold_for_all_at_once():
    """Coverage 0.9 in every slice: some interval misses it with probability at most 5 %."""
    rng = np.random.default_rng(1)
    n_missed = 0
    for _ in range(300):
        is_covered = rng.random(200) < 0.9
        centres, by = rng.normal(size=200), rng.integers(0, 9, 200)
        found = dco.evaluate(covering(is_covered), np.zeros(200), centres=centres, by=by)
        n_missed += any(not row.coverage_low <= 0.9 <= row.coverage_high for row in found.slices)
    assert n_missed <= binom.ppf(0.999, 300, 0.05)


def test_a_fifth_is_named_by_its_range():
    found = dco.evaluate(covering(np.ones(10)), np.zeros(10), centres=np.repeat([1.5, 2.0], 5))
    assert [row.group for row in found.slices] == ["1: 1.5", "3: 2"]


def test_numbers_are_sliced_by_fifths_of_the_prediction():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(1500, 3))
    est = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X[:1000], X[:1000, 0])
    assert [row.by for row in est.evaluate(X[1000:], X[1000:, 0]).slices] == ["fifth"] * 5


@pytest.mark.filterwarnings("ignore:On the tuning rows")  # a class is left behind
@pytest.mark.parametrize(
    ("condition_on", "low"), [(None, ["rare"]), ("label", [])], ids=["one threshold", "by class"]
)
def test_every_class_that_is_covered_rarely_is_named(condition_on, low):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(1500, 3))
    y = np.where(X[:, 0] + rng.normal(size=1500) > 2.2, "rare", "common")
    est = dco.DecoupledClassifier(
        LogisticRegression(), condition_on=condition_on, random_state=0
    ).fit(X[:1000], y[:1000])
    notes = est.evaluate(X[1000:], y[1000:]).notes
    assert [note.kind for note in notes] == ["low-classes"] * len(low)
    assert all(name in notes[0].text for name in low)
