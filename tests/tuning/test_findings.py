"""Notes of `fit` that tuning rows give: there when they are due, seldom when not, and blind to calibration rows."""

import warnings

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression, Ridge

import dco
from dco.tuning.selection import note_classes, note_one_width

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 3))
RARE = np.where(X[:, 0] + RNG.normal(size=2000) > 2.4, "rare", "common")


def noted(est, y, **rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return {note.kind: note for note in est.fit(X, y, **rows).notes_}


def test_a_class_that_is_left_behind_is_named_with_what_mends_it():
    found = noted(dco.DecoupledClassifier(LogisticRegression(), random_state=0), RARE)
    assert "rare" in found["low-classes"].text
    assert "condition_on" in found["low-classes"].remedy
    assert not noted(dco.DecoupledClassifier(LogisticRegression(), condition_on="label", random_state=0), RARE)


def test_empty_sets_are_counted():
    y = np.where(X[:, 0] > 0, "a", "b")
    found = noted(dco.DecoupledClassifier(LogisticRegression(), dco.scores.LAC(), alpha=0.2, random_state=0), y)
    assert "% of the sets of the tuning rows are empty" in found["empty-sets"].text
    assert not noted(dco.DecoupledClassifier(LogisticRegression(), alpha=0.2, random_state=0), y)


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_one_width_is_noted_where_errors_differ_in_size(spread):
    y = X[:, 0] + np.exp(spread * X[:, 0]) * np.random.default_rng(1).normal(size=2000)
    found = noted(dco.DecoupledRegressor(Ridge(), random_state=0), y)
    assert ("one-width" in found) == (spread > 0)
    if spread:
        assert "objective=even" in found["one-width"].remedy


def test_notes_are_seldom_wrong():
    """Coverage of .7 in each of five classes, .8 in each fifth: a note appears with probability at most 5 %."""
    rng, classes, widths = np.random.default_rng(2), 0, 0
    for _ in range(400):
        y, centres = rng.integers(0, 5, size=150), rng.normal(size=150)
        classes += bool(note_classes(y, rng.random(150) < 0.7, np.ones(150)))
        widths += bool(note_one_width(rng.random(150) < 0.8, np.ones(150), centres, alpha=0.1))
    assert max(classes, widths) <= binom.ppf(0.999, 400, 0.05)


def test_calibration_rows_change_no_note():
    est = dco.DecoupledClassifier(LogisticRegression(), random_state=0)
    parts = {"tune": (X[500:1000], RARE[500:1000])}
    notes = []
    for seed in (0, 1):
        labels = np.random.default_rng(seed).choice(["rare", "common"], size=500)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            est.fit(X[:500], RARE[:500], calibrate=(X[1000:1500], labels), **parts)
        notes.append([note for note in est.notes_ if note.kind == "low-classes"])
    assert notes[0] == notes[1] != []
