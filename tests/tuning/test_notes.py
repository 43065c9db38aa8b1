"""Notes on tuning rows: seldom when they are not due, blind to calibration rows, and of help.

Every remedy that a note names is carried out on a table that triggers the note.
"""

import warnings

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

import dco
from dco.scores import LAC, AbsoluteResidual
from dco.tuning.notes import note_low_classes, note_one_width

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 3))
RARE = np.where(X[:, 0] + RNG.normal(size=3000) > 2.4, "rare", "common")
POSITIVE = np.abs(X[:, 0] + RNG.normal(size=3000))
UNEVEN = X[:, 0] + np.exp(X[:, 0]) * RNG.normal(size=3000)
LOGISTIC = [LogisticRegression(), LogisticRegression(C=0.5)]
LINES = {"line": LinearRegression(), "ridge": Ridge(10)}
FIT, NEW = slice(2000), slice(2000, None)


def fit(est, y, **rows):
    """Fit the first 2,000 rows, without the warnings that show notes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return est.fit(X[FIT], y[FIT], **rows)


def notes_of(est):
    return {note.kind: note for note in est.notes_}


def classifier(*, models=None, **options):
    return dco.DecoupledClassifier(models or LOGISTIC, random_state=0, **options)


def regressor(**options):
    return dco.DecoupledRegressor(LINES, random_state=0, **options)


def rare_coverage(est):
    is_rare = RARE[NEW] == "rare"
    return est.predict_set(X[NEW]).contains(RARE[NEW])[is_rare].mean()


def worst_fifth(est, y):
    sets = est.predict_set(X[NEW])
    fifth = dco.predictions.fifths(X[NEW, 0])
    return min(sets.contains(y[NEW])[fifth == k].mean() for k in range(5))


def test_a_class_that_is_left_behind_gets_a_threshold_of_its_own():
    est = fit(classifier(), RARE)
    note = notes_of(est)["low-classes"]
    assert "rare" in note.text
    assert 'condition_on="label"' in note.remedy

    mended = fit(classifier(condition_on="label"), RARE)
    assert "low-classes" not in notes_of(mended)
    assert rare_coverage(est) < 0.7
    assert rare_coverage(mended) > 0.8


@pytest.mark.parametrize(
    ("options", "rows"),
    [({}, {"groups": np.arange(2000)}), ({"weights": lambda X: np.ones(len(X))}, {})],
    ids=["groups", "weights"],
)
def test_thresholds_by_class_are_not_advised_where_they_are_refused(options, rows):
    est = fit(classifier(**options), RARE, **rows)
    assert notes_of(est)["low-classes"].remedy == ""
    with pytest.raises(ValueError, match="cannot be combined"):
        fit(classifier(condition_on="label", **options), RARE, **rows)


@pytest.mark.parametrize(
    "mended",
    [{}, {"scores": dco.scores.NeverEmpty(LAC())}],
    ids=["scores left out", "score wrapped"],
)
def test_empty_sets_are_counted_and_can_be_had_without(mended):
    y = np.where(X[:, 0] > 0, "a", "b")
    est = fit(classifier(scores=LAC(), alpha=0.2), y)
    note = notes_of(est)["empty-sets"]
    assert "% of the sets of the tuning rows are empty" in note.text
    assert est.predict_set(X[NEW]).is_empty().any()

    without = fit(classifier(alpha=0.2, **mended), y)
    assert "empty-sets" not in notes_of(without)
    assert not without.predict_set(X[NEW]).is_empty().any()


ONE_WIDTH = [
    (
        {"scores": AbsoluteResidual()},
        {"objective": "even"},
        "Leave scores out, so that widths that follow the prediction are tried, and choose with "
        "objective=even.",
    ),
    (
        {"scores": AbsoluteResidual(), "objective": "even"},
        {"objective": "even"},
        "Leave scores out, so that widths that follow the prediction are tried.",
    ),
]


@pytest.mark.parametrize(("options", "mended", "remedy"), ONE_WIDTH, ids=["by size", "even"])
def test_one_width_is_noted_where_errors_differ_in_size(options, mended, remedy):
    est = fit(regressor(**options), UNEVEN)
    assert notes_of(est)["one-width"].remedy == remedy
    evener = fit(regressor(**mended), UNEVEN)
    assert "one-width" not in notes_of(evener)
    assert worst_fifth(evener, UNEVEN) > worst_fifth(est, UNEVEN) + 0.1


def test_one_width_is_not_noted_where_errors_are_alike():
    y = X[:, 0] + np.random.default_rng(1).normal(size=3000)
    assert "one-width" not in notes_of(fit(regressor(scores=AbsoluteResidual()), y))


def test_a_support_is_advised_and_never_inferred():
    est = fit(regressor(scores=AbsoluteResidual()), POSITIVE)
    assert "support=(0, None)" in notes_of(est)["below-zero"].remedy
    before = est.predict_set(X[NEW])
    assert before.lower.min() < 0

    cut = fit(regressor(scores=AbsoluteResidual(), support=(0, None)), POSITIVE)
    after = cut.predict_set(X[NEW])
    assert "below-zero" not in notes_of(cut)
    assert after.lower.min() == 0
    assert after.sizes().mean() < before.sizes().mean()
    assert after.contains(POSITIVE[NEW]).mean() == pytest.approx(0.9, abs=0.03)


def test_no_support_is_advised_where_a_target_is_negative():
    est = fit(regressor(scores=AbsoluteResidual()), POSITIVE - 1)
    assert "below-zero" not in notes_of(est)


def test_notes_are_seldom_wrong():
    """Coverage of .7 in each of five classes, .8 in each fifth: a note appears with probability at
    most 5 %.
    """
    rng = np.random.default_rng(2)
    n_class_notes = 0
    n_width_notes = 0
    for _ in range(400):
        y = rng.integers(0, 5, size=150)
        covered = rng.random(150) < 0.7
        n_class_notes += len(note_low_classes(y, covered, can_condition=True))
        n_width_notes += len(
            note_one_width(
                rng.random(150) < 0.8,
                np.ones(150),
                rng.normal(size=150),
                alpha=0.1,
                caller_chose_scores=True,
                objective_is_even=False,
            )
        )
    assert max(n_class_notes, n_width_notes) <= binom.ppf(0.999, 400, 0.05)


def test_calibration_rows_change_no_note():
    notes = []
    for seed in (0, 1):
        labels = np.random.default_rng(seed).choice(["rare", "common"], size=500)
        est = dco.DecoupledClassifier(LOGISTIC, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            est.fit(
                X[:500],
                RARE[:500],
                tune=(X[500:1500], RARE[500:1500]),
                calibrate=(X[1500:2000], labels),
            )
        notes.append([note for note in est.notes_ if note.kind == "low-classes"])
    assert notes[0] == notes[1] != []
