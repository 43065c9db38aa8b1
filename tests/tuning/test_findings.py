"""What fit notes of tuning rows, seldom when it is not due and blind to calibration rows; and sets
cut to a support.
"""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.stats import beta, binom, kstest, norm
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

import dco
from dco.cli.main import main
from dco.scores import AbsoluteResidual
from dco.tuning.notes import note_classes, note_one_width

RNG = np.random.default_rng(0)
LINES = {"line": LinearRegression(), "through 0": LinearRegression(fit_intercept=False)}
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
    assert not noted(
        dco.DecoupledClassifier(LogisticRegression(), condition_on="label", random_state=0), RARE
    )


def test_empty_sets_are_counted():
    y = np.where(X[:, 0] > 0, "a", "b")
    found = noted(
        dco.DecoupledClassifier(
            [LogisticRegression(), LogisticRegression(C=0.5)],
            dco.scores.LAC(),
            alpha=0.2,
            random_state=0,
        ),
        y,
    )
    assert "% of the sets of the tuning rows are empty" in found["empty-sets"].text
    assert not noted(dco.DecoupledClassifier(LogisticRegression(), alpha=0.2, random_state=0), y)


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_one_width_is_noted_where_errors_differ_in_size(spread):
    y = X[:, 0] + np.exp(spread * X[:, 0]) * np.random.default_rng(1).normal(size=2000)
    found = noted(dco.DecoupledRegressor([Ridge(), Ridge(2)], random_state=0), y)
    assert ("one-width" in found) == (spread > 0)
    if spread:
        assert "objective=even" in found["one-width"].remedy


def test_notes_are_seldom_wrong():
    """Coverage of .7 in each of five classes, .8 in each fifth: a note appears with probability at
    most 5 %.
    """
    rng, classes, widths = np.random.default_rng(2), 0, 0
    for _ in range(400):
        y, centres = rng.integers(0, 5, size=150), rng.normal(size=150)
        classes += bool(note_classes(y, rng.random(150) < 0.7, np.ones(150), can_condition=True))
        widths += bool(
            note_one_width(
                rng.random(150) < 0.8, np.ones(150), centres, alpha=0.1, is_even_aim=False
            )
        )
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


# ``support=``: sets are cut to where y lies, in ranking too, and coverage keeps its law


def rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1))
    return X, np.abs(X[:, 0] + rng.normal(size=n))


def test_sets_are_cut_and_the_rest_is_as_before(tmp_path):
    X, y = rows()
    plain, cut = (
        dco.DecoupledRegressor(
            LinearRegression(), AbsoluteResidual(), support=support, random_state=0
        ).fit(X, y)
        for support in (None, (0, None))
    )
    assert cut.best_candidate_ == plain.best_candidate_ == "linearregression / AbsoluteResidual"
    before, after = plain.predict_set(X), cut.predict_set(X)
    np.testing.assert_array_equal(after.lower, np.maximum(before.lower, 0))
    np.testing.assert_array_equal(after.contains(y), before.contains(y))
    np.testing.assert_array_equal(after.contains(-np.ones(400)), np.zeros(400, dtype=bool))
    assert cut.certificate_.thresholds == plain.certificate_.thresholds
    dco.save(cut, tmp_path / "m.dco")
    again = dco.load(tmp_path / "m.dco")
    np.testing.assert_array_equal(np.asarray(again.predict_set(X)), np.asarray(after))
    certificate = dco.Certificate.from_json(again.certificate_.to_json())
    assert certificate.support == (0.0, np.inf)
    assert "cut to the support, 0 to inf" in str(certificate)
    assert certificate.verify(
        X[cut.splits_.calibrate], y[cut.splits_.calibrate], predictor=again
    ).holds
    assert not replace(certificate, support=(0.0, 5.0)).verify(predictor=again).holds
    older = {
        name: value
        for name, value in json.loads(certificate.to_json()).items()
        if name != "support"
    }
    assert dco.Certificate.from_json(json.dumps(older)).support is None


def test_sizes_in_the_ranking_are_cut():
    X, y = rows()
    sizes = [
        [
            row.mean_size
            for row in dco.DecoupledRegressor(
                LINES, AbsoluteResidual(), support=support, random_state=0
            )
            .fit(X, y)
            .ranking_.table
        ]
        for support in (None, (0, None))
    ]
    assert max(sizes[1]) < min(sizes[0])


def test_coverage_follows_its_beta_law():
    """Rate of error 1 %: |N(0, 1)| around its mean, cut at 0; the ends give the coverage."""
    rng, coverage = np.random.default_rng(1), []
    for seed in range(200):
        y = np.abs(rng.normal(size=60))
        est = dco.DecoupledRegressor(
            DummyRegressor(),
            AbsoluteResidual(),
            tune_size=0,
            calibrate_size=39,
            support=(0, None),
            random_state=seed,
        ).fit(np.zeros((60, 1)), y)
        ((low, high),) = est.predict_set(np.zeros((1, 1)))
        coverage.append(2 * (norm.cdf(high) - norm.cdf(low)))
    assert kstest(coverage, beta(36, 4).cdf).pvalue > 0.01


def test_it_is_advised_and_never_inferred():
    X, y = rows()
    # advice is no warning
    est = dco.DecoupledRegressor(LINES, random_state=0).fit(X, y)
    (note,) = est.notes_
    assert note.kind == "below-zero"
    assert "support=(0, None)" in note.remedy
    assert est.predict_set(X).lower.min() < 0
    assert dco.DecoupledRegressor(LINES, support=(0, None), random_state=0).fit(X, y).notes_ == []
    assert dco.DecoupledRegressor(LINES, random_state=0).fit(X, y - 1).notes_ == []


def test_targets_outside_the_support_are_told():
    X, y = rows(100)
    with pytest.raises(
        ValueError,
        match=r"of 75 training and tuning targets .* lie outside "
        r"support \(1 to inf\)",
    ):
        dco.DecoupledRegressor(LinearRegression(), support=(1, None), random_state=0).fit(X, y)
    est = dco.DecoupledRegressor(LinearRegression(), support=(0, None), random_state=0)
    with pytest.warns(
        UserWarning, match="1 of 20 calibration rows has a target outside the support"
    ):
        est.fit(X[:80], y[:80], calibrate=(X[80:], np.r_[-5.0, y[81:]]))
    assert np.isinf(est.predictor_.calibration.scored.scores).sum() == 1


@pytest.mark.parametrize("support", [(1, 0), 3, (0, 1, 2), ("a", "b")])
def test_a_support_is_a_pair(support):
    X, y = rows(50)
    with pytest.raises(ValueError, match="the lower number first"):
        dco.DecoupledRegressor(LinearRegression(), support=support).fit(X, y)
    with pytest.raises(ValueError, match="for numbers"):
        dco.DecoupledClassifier(support=support).fit(X, y > 1)


def test_the_command_takes_a_range_and_advises_it(tmp_path):
    X, y = rows(200)
    pd.DataFrame({"x": X[:, 0], "y": y}).to_csv(tmp_path / "rows.csv", index=False)
    words = [
        "fit",
        str(tmp_path / "rows.csv"),
        "--target",
        "y",
        "--models",
        "linear,boosting",
        "--scores",
        "absolute",
    ]
    told = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "a.dco")])
    assert "--range 0 inf cuts them there" in told.stderr
    told = CliRunner().invoke(
        main, [*words, "--range", "0", "inf", "--out", str(tmp_path / "b.dco")]
    )
    assert "reach below 0" not in told.stderr
    assert "Sets are cut to the support, 0 to inf" in told.stdout
    assert dco.load(tmp_path / "b.dco").certificate_.support == (0.0, np.inf)
