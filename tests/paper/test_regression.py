"""The regression experiments follow the paper's protocol through the library's public functions."""

from functools import partial

import numpy as np
import pytest

import dco
from dco.paper import Options, SplitRecord, rows_of
from dco.paper.paper_values import DIABETES_PRIOR_SCALES
from dco.paper.regression_figures import BY_LEVEL, make_figures
from dco.paper.regression_splits import (
    DENSITY,
    STUDIES,
    Outcome,
    SplitFacts,
    TuningOutcome,
    fit_priors,
    load_rows,
    paper_split,
    run_split,
)
from dco.paper.regression_tables import make_tables, selection_table

DIABETES = STUDIES["diabetes"]
LEVEL = Options(alphas=(0.2,))


@pytest.fixture(scope="module")
def diabetes_rows():
    """One split of Diabetes, seed 3."""
    return run_split(3, LEVEL, study=DIABETES)


@pytest.fixture(scope="module")
def outcomes(diabetes_rows):
    return {row.method: row for row in diabetes_rows if isinstance(row, Outcome)}


@pytest.fixture(scope="module")
def records(diabetes_rows):
    return [SplitRecord(seed, tuple(diabetes_rows), 1.0) for seed in (0, 1)]


@pytest.mark.parametrize(
    ("n", "sizes"),
    [(442, (150, 112, 113, 67)), (3000, (1020, 765, 765, 450)), (1030, (350, 262, 263, 155))],
    ids=["diabetes", "california", "concrete"],
)
def test_split_sizes_are_the_papers(n, sizes):
    splits = paper_split(n, seed=0)
    assert (len(splits.train), len(splits.tune), len(splits.calibrate), len(splits.test)) == sizes


# ---- each row again by the public functions

PAC = partial(dco.bayesian_quadrature, delta=0.05)


@pytest.fixture(scope="module")
def fits():
    """Models, rows and split of seed 3, fitted again."""
    table = load_rows("diabetes", None)
    splits = paper_split(len(table), 3)
    return table, splits, fit_priors(table, splits, seed=3, draws=8000)


@pytest.fixture(scope="module")
def best(fits):
    """The prior scale that `dco.tune` chooses."""
    table, splits, models = fits
    candidates = {
        name: (DENSITY, model.predict_distribution(table.X[splits.tune]))
        for name, model in models.on_train.items()
    }
    return dco.tune(candidates, table.y[splits.tune], alpha=0.2).best


@pytest.mark.parametrize(
    ("method", "name", "role", "rule", "is_refit"),
    [
        ("BQ", "c = 1", "pool", PAC, False),
        ("DCO-Warmstart", "best", "calibrate", dco.split_conformal, False),
        ("DCO-PAC", "best", "calibrate", PAC, False),
        ("DCO, refit", "best", "calibrate", dco.split_conformal, True),
        ("Split CP, φ fixed, whole pool", "c = 1", "pool", dco.split_conformal, False),
        ("DCO, φ fixed (c = 0.02)", "c = 0.02", "calibrate", dco.split_conformal, False),
        ("DCO's structure, BQ on the pool", "best", "pool", PAC, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_row_is_one_rule_on_the_scores_of_its_rows(
    method, name, role, rule, is_refit, fits, best, outcomes
):
    table, splits, models = fits
    name = best if name == "best" else name
    model = (models.on_train_and_tune if is_refit else models.on_train)[name]
    pool = np.concatenate([splits.tune, splits.calibrate])
    rows = pool if role == "pool" else splits.calibrate

    scores = DENSITY.observed(model.predict_distribution(table.X[rows]), table.y[rows])
    threshold = rule(scores, alpha=0.2)
    sets = DENSITY.sets(model.predict_distribution(table.X[splits.test]), threshold)

    outcome = outcomes[method]
    assert (outcome.chosen, outcome.rank, outcome.n) == (name, threshold.rank, len(rows))
    assert outcome.threshold == threshold.value
    assert outcome.coverage == sets.contains(table.y[splits.test]).mean()
    unit = table.y[splits.train].std()
    assert outcome.width == pytest.approx(sets.sizes().mean() / unit, rel=1e-9)


def test_the_record_has_the_candidates_on_the_tuning_rows(fits, best, diabetes_rows):
    table, splits, models = fits
    (tuning,) = (row for row in diabetes_rows if isinstance(row, TuningOutcome))
    assert tuning.candidates[0] == best
    for i, name in enumerate(tuning.candidates):
        prediction = models.on_train[name].predict_distribution(table.X[splits.tune])
        threshold = dco.direct_tune(DENSITY, prediction, table.y[splits.tune], alpha=0.2).value
        scores = DENSITY.observed(prediction, table.y[splits.tune])
        assert tuning.tuning_thresholds[i] == threshold
        assert tuning.miscoverages[i] == np.mean(scores > threshold) <= 0.2
        assert tuning.feasible[i]


# ---- tables


def test_the_papers_figures_stand_beside_ours(records):
    table = make_tables(records, LEVEL, study=DIABETES)[1]
    widths = dict(zip(table.column("method"), table.column("paper width"), strict=True))
    assert (widths["BQ"].mean, widths["BQ"].sd) == (2.098, 0.131)
    assert widths["DCO-PAC"] is None


def test_the_law_of_dco_on_diabetes_is_92_of_114(records):
    table = make_tables(records, LEVEL, study=DIABETES)[1]
    laws = dict(zip(table.column("method"), table.column("by law"), strict=True))
    assert laws["DCO-Warmstart"] == pytest.approx(92 / 114)
    assert laws["DirectTune, searched Φ"] is None


def test_the_caption_of_priors_names_both_laws(records):
    caption = make_tables(records, LEVEL, study=DIABETES)[3].caption
    assert "92/114 = .807 whatever the score" in caption
    assert "BQ's law on the pool, .845" in caption
    assert f"coverage .{1000 * DIABETES_PRIOR_SCALES[1.0].coverage.mean:.0f}" in caption


def made_up_record(seed, *, feasible, threshold=1.0, chosen="c = 1"):
    tuning = TuningOutcome(
        alpha=0.2,
        candidates=["c = 1", "c = 0.02"],
        tuning_thresholds=[1.0, 1.0],
        miscoverages=[0.1, 0.3],
        tuning_sizes=[2.0, 2.1],
        feasible=feasible,
    )
    outcome = Outcome(
        method="DCO-Warmstart",
        alpha=0.2,
        guarantee="marginal",
        chosen=chosen,
        threshold=threshold,
        rank=92,
        n=113,
        law=True,
        n_test=67,
        coverage=0.8,
        width=2.0,
        p95=2.0,
    )
    return SplitRecord(seed, (tuning, outcome), 1.0)


@pytest.mark.parametrize(
    ("record", "counts"),
    [
        ({"feasible": [True, True]}, [50, 0, 50]),
        ({"feasible": [False, True]}, [50, 0, 50]),
        ({"feasible": [False, False]}, [0, 50, 50]),
        ({"feasible": [True, True], "threshold": np.inf}, [50, 0, 50]),
        ({"feasible": [True, True], "chosen": "c = 0.02"}, [50, 0, 0]),
    ],
    ids=["all feasible", "one feasible", "none", "infinite when deployed", "other prior"],
)
def test_selection_counts_feasible_tuning_thresholds(record, counts):
    """Not finite thresholds that were deployed, which say that the calibration rows suffice."""
    records = [made_up_record(seed, **record) for seed in range(50)]
    table = selection_table(records, LEVEL, STUDIES["diabetes"])
    assert table.column("outcome") == ["feasible threshold found", "fallback", "c = 1 chosen"]
    assert table.column("count") == counts
    assert table.column("of") == [50, 50, 50]
    assert table.column("paper") == [50, 0, 28]


# ---- figures


def test_figures_show_split_cp_beside_bq_at_each_level_and_widths_by_level():
    others = ["DirectTune, fixed φ", "DCO, φ fixed (c = 1)", "DCO, φ fixed (c = 0.02)"]
    methods = [*BY_LEVEL, *others]
    rows = [
        Outcome(
            method=method,
            alpha=alpha,
            guarantee="marginal",
            chosen="c = 1",
            threshold=1.0,
            rank=92,
            n=113,
            law=True,
            n_test=67,
            coverage=0.8,
            width=2 - alpha,
            p95=2.0,
        )
        for method in methods
        for alpha in (0.2, 0.1)
    ]
    records = [SplitRecord(seed, tuple(rows), 1.0) for seed in (0, 1)]
    drawn = make_figures(records, Options((0.2, 0.1)), study=DIABETES)
    for level in ("0.80", "0.90"):
        boxes = drawn[f"figure-5-{level}.svg"].decode()
        assert "Split CP (ridge)" in boxes
        assert "BQ" in boxes
    curves = drawn["width-against-level.svg"].decode()
    assert all(method in curves for method in BY_LEVEL)


def test_chains_have_mixed(diabetes_rows):
    (facts,) = rows_of([SplitRecord(0, tuple(diabetes_rows), 1.0)], SplitFacts)
    assert facts.sizes == {"train": 150, "tune": 112, "calibrate": 113, "test": 67}
    assert facts.ess > 1000
    assert facts.rhat < 1.02
