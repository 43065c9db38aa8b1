"""Slices of an evaluation: by definition, and with intervals that hold for all at once."""

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression, Ridge

import dco


def make_sets(is_covered):
    """Make intervals that hold y = 0 where `is_covered`."""
    return dco.Intervals(np.where(is_covered, -1.0, 1.0), np.full(len(is_covered), 2.0))


class RandomLabelSets:
    """300 random label sets, their evaluation, and by each division the part of every row."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.y = rng.choice(["a", "b", "c"], size=300)
        self.sets = dco.LabelSets(rng.random((300, 3)) < 0.7, classes=["a", "b", "c"])
        centres = np.round(rng.normal(size=300), 1)
        side = rng.integers(0, 2, size=300)
        self.evaluation = dco.evaluate(self.sets, self.y, centres=centres, by=side)

        fifth_edges = np.sort(centres)[[59, 119, 179, 239]]
        fifth = np.searchsorted(fifth_edges, centres, side="left")
        self.parts = {"class": self.y, "fifth": fifth, "slice": side}

    def rows_by_slice(self, by):
        """Which rows fall into each slice, in order of the slices."""
        parts = self.parts[by]
        return [parts == part for part in np.unique(parts)]


@pytest.fixture(scope="module")
def labelled():
    return RandomLabelSets()


divisions = pytest.mark.parametrize("by", ["class", "fifth", "slice"])


@divisions
def test_a_slice_has_its_number_of_rows(labelled, by):
    slices = labelled.evaluation.slices_by(by)
    assert [row.n for row in slices] == [rows.sum() for rows in labelled.rows_by_slice(by)]


@divisions
def test_a_slice_has_the_coverage_of_its_rows(labelled, by):
    covered = labelled.sets.contains(labelled.y)
    slices = labelled.evaluation.slices_by(by)
    assert [row.coverage for row in slices] == [
        covered[rows].mean() for rows in labelled.rows_by_slice(by)
    ]


@divisions
def test_a_slice_has_the_mean_size_of_its_sets(labelled, by):
    sizes = labelled.sets.sizes()
    slices = labelled.evaluation.slices_by(by)
    assert [row.mean_size for row in slices] == pytest.approx(
        [sizes[rows].mean() for rows in labelled.rows_by_slice(by)]
    )


def test_intervals_of_slices_hold_for_all_at_once():
    """Coverage 0.9 in every slice: some interval misses it with probability at most 5 %.

    The number of 300 evaluations with such an interval is above its 99.9 % point once in 1,000.
    """
    rng = np.random.default_rng(1)

    n_missed = 0
    for _ in range(300):
        is_covered = rng.random(200) < 0.9
        centres = rng.normal(size=200)
        by = rng.integers(0, 9, 200)
        evaluation = dco.evaluate(make_sets(is_covered), np.zeros(200), centres=centres, by=by)
        holds = [row.coverage_low <= 0.9 <= row.coverage_high for row in evaluation.slices]
        n_missed += not all(holds)

    assert n_missed <= binom.ppf(0.999, 300, 0.05)


def test_a_fifth_is_named_by_its_range():
    sets = make_sets(np.ones(10))
    evaluation = dco.evaluate(sets, np.zeros(10), centres=np.repeat([1.5, 2.0], 5))
    assert [row.group for row in evaluation.slices] == ["1: 1.5", "3: 2"]


def test_numbers_are_sliced_by_fifths_of_the_prediction():
    X = np.random.default_rng(5).normal(size=(1500, 3))
    y = X[:, 0]

    est = dco.DecoupledRegressor(Ridge(), random_state=0).fit(X[:1000], y[:1000])
    evaluation = est.evaluate(X[1000:], y[1000:])

    assert [row.by for row in evaluation.slices] == ["fifth"] * 5


def evaluate_rare_class(condition_on):
    """Fit and evaluate a classifier of a "rare" and a "common" class."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(1500, 3))
    y = np.where(X[:, 0] + rng.normal(size=1500) > 2.2, "rare", "common")
    est = dco.DecoupledClassifier(
        LogisticRegression(), condition_on=condition_on, random_state=0
    ).fit(X[:1000], y[:1000])
    return est.evaluate(X[1000:], y[1000:])


@pytest.mark.filterwarnings("ignore:On the tuning rows")  # a class is left behind
def test_every_class_that_is_covered_rarely_is_named():
    (note,) = evaluate_rare_class(condition_on=None).notes
    assert note.kind == "low-classes"
    assert "rare" in note.text


def test_classes_with_their_own_thresholds_are_not_covered_rarely():
    assert evaluate_rare_class(condition_on="label").notes == ()
