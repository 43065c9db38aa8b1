"""The stronger class on the paper's regression data: nothing is chosen by calibration or test
targets.
"""

import math

import numpy as np
import pytest

from dco import conformal_rank
from dco.datasets import Table
from dco.paper import METHODS, Options, SplitRecord, rows_of
from dco.paper import beyond_regression as beyond
from dco.paper.beyond_regression import (
    BeyondOutcome,
    SizesRow,
    StrongerClass,
    calibration_reserve,
    move_cut,
)
from dco.paper.beyond_regression_class import (
    CLASSES,
    PAIR,
    CandidateClass,
    FittedClass,
    Structure,
    fit_class,
    mean_model,
    refit_class,
    structures_of,
)
from dco.paper.regression_splits import paper_split

LEVELS = Options(alphas=(0.2, 0.1))
SMALL = CandidateClass(
    study="concrete",
    averaged=("extra trees", "support vectors"),
    fixed="average, residual / (spread + 0.3)",
    chosen_on="other rows",
    alone=("ridge",),
)
QUICK = CandidateClass(
    study="concrete",
    averaged=("ridge", "support vectors"),
    fixed="average, absolute residual",
    chosen_on="other rows",
)


def small_table(n=240):
    """Draw rows whose mean is a sine and a square, with a spread that grows."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, (n, 3))
    spread = 0.1 + 0.3 * np.abs(X[:, 2])
    y = np.sin(3 * X[:, 0]) * 3 + X[:, 1] ** 2 + spread * rng.standard_normal(n)
    return Table(X, y, ("a", "b", "c"), "small")


def garble(table, rows):
    """Replace the targets of these rows by others, unrelated to the inputs."""
    y = table.y.copy()
    y[rows] = 50 * np.random.default_rng(1).standard_cauchy(len(rows))
    return Table(table.X, y, table.feature_names, table.name)


@pytest.fixture(scope="module")
def records():
    """Two splits of the small table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beyond, "load_rows", lambda name, data_home: small_table())
        return [
            SplitRecord(seed, tuple(beyond.run_split(seed, LEVELS, candidate_class=SMALL)), 1.0)
            for seed in (0, 1)
        ]


# ---- what is recorded


def test_the_stronger_class_is_narrower_where_the_truth_bends(records):
    """A linear model cannot follow a sine and a square: at least 20 %."""
    outcomes = beyond.outcomes_by_method(records, 0.2)
    widths = {method: np.mean([row.width for row in rows]) for method, rows in outcomes.items()}
    assert widths["stronger class, fixed"] < 0.8 * widths[beyond.BASE]


def test_every_row_has_a_law(records):
    assert all(row.law for row in rows_of(records, BeyondOutcome))


def test_only_the_grown_split_has_its_own_tuning_rows(records):
    for record in records:
        (sizes_row,) = (row for row in record.rows if isinstance(row, SizesRow))
        sizes = sizes_row.sizes
        for row in rows_of([record], BeyondOutcome):
            assert row.n_tune + row.n == sizes["tune"] + sizes["calibrate"]
            assert row.n_test == sizes["test"]
            if row.method == beyond.AUTO_SPLIT:
                assert row.stopped in ("settled", "limit")
                assert row.n >= calibration_reserve(sizes["calibrate"])
                assert row.rank == conformal_rank(row.n, alpha=row.alpha)
            else:
                assert (row.n_tune, row.n) == (sizes["tune"], sizes["calibrate"])
                assert row.stopped == ""


# ---- tables


def test_steps_add_up(records):
    gains = {step: gain.mean for step, gain in beyond.measure_gains(records, 0.2).items()}
    first_three = gains["class"] + gains["refit"] + gains["search"]
    assert first_three == pytest.approx(gains[beyond.ALL_BUT_AUTO_SPLIT])
    assert first_three + gains["auto tuning split"] == pytest.approx(gains["all together"])


@pytest.fixture(scope="module")
def tables(records):
    return beyond.make_tables(records, LEVELS, candidate_class=SMALL, title="Small")


def test_the_main_table_and_the_steps_show_the_grown_split(tables):
    main, gain, _, _ = tables
    assert main.column("method").count(beyond.AUTO_SPLIT) == len(LEVELS.alphas)
    assert gain.column("step").count("auto tuning split") == len(LEVELS.alphas)


def test_every_split_has_chosen_a_structure(tables, records):
    n_choices = len(records) * len(LEVELS.alphas)
    assert sum(tables[2].column("splits")) == sum(tables[2].column("auto split")) == n_choices


def test_the_table_of_growth_has_the_fewest_and_the_most_tuning_rows(tables, records):
    n_tune = [row.n_tune for row in beyond.outcomes_by_method(records, 0.2)[beyond.AUTO_SPLIT]]
    assert (tables[3].column("least")[0], tables[3].column("most")[0]) == (
        min(n_tune),
        max(n_tune),
    )


# ---- the classes


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_has_its_fixed_structure_an_average_and_a_pair(name):
    candidate_class = CLASSES[name]
    structures = structures_of(candidate_class)
    assert candidate_class.fixed in structures
    assert PAIR in structures
    assert structures["average, absolute residual"].models == candidate_class.averaged
    assert any(structure.floor is not None for structure in structures.values())


@pytest.mark.parametrize("name", CLASSES)
def test_small_data_get_a_gaussian_process_and_all_get_trees(name):
    models = CLASSES[name].models
    assert ("gaussian process" in models) == (name != "california")
    assert any("trees" in model or "boosting" in model for model in models)


@pytest.mark.parametrize("name", sorted({m for each in CLASSES.values() for m in each.models}))
def test_every_mean_model_can_be_made(name):
    assert hasattr(mean_model(name, n_columns=3, seed=0), "fit")


def test_a_model_that_is_misspelt_is_not_another_one():
    with pytest.raises(ValueError, match="'exrta trees'"):
        mean_model("exrta trees", n_columns=3, seed=0)


@pytest.mark.parametrize(("alpha", "tolerance"), [(0.5, 0.1), (0.1, 0.07)])
def test_a_quantile_pair_is_trained_for_its_level(alpha, tolerance):
    """On the rows it was fitted on, the share between the two quantiles is near 1 - alpha."""
    table = small_table(600)
    fits = FittedClass(table.X, table.y, table.X, {}, seed=0)
    _, predict = fits.score_and_predictor(Structure(()), alpha=alpha)
    pair = predict(np.arange(600))
    inside = np.mean((pair.lower <= table.y) & (table.y <= pair.upper))
    assert inside == pytest.approx(1 - alpha, abs=tolerance)


@pytest.mark.parametrize("n_calibrate", [113, 263, 765])
def test_half_of_the_calibration_rows_are_kept_and_no_rank_is_wasted(n_calibrate):
    n = calibration_reserve(n_calibrate)
    assert n_calibrate / 2 - 1 < n < n_calibrate / 2 + 20
    assert all((n + 1) % inverse_alpha == 0 for inverse_alpha in (5, 10, 20))


# ---- nothing chosen may depend on a calibration or test target


def choose_on(table, splits, *, alpha, seed):
    """Grow the split and choose on it; return the new split, the choice and its refitted
    predictions.
    """
    fits = fit_class(table, splits.train, candidate_class=QUICK, seed=seed)
    stronger = StrongerClass(table, QUICK, fits)
    grown = move_cut(splits, stronger.find_tuning_size(splits, alpha=alpha, seed=seed).n_tune)
    best = METHODS["dco_warmstart"](stronger.make_task(grown, alpha)).candidate
    _, predict = refit_class(fits, table, grown.tune).score_and_predictor(
        structures_of(QUICK)[best], alpha=alpha
    )
    prediction = predict(np.arange(len(table)))
    values = prediction.lower if best == PAIR else prediction.mean
    return grown, (best, grown.tune.tolist(), values.tolist())


@pytest.fixture(scope="module")
def table():
    return small_table(600)


CASES = [(alpha, seed) for alpha in LEVELS.alphas for seed in range(3)]


@pytest.mark.parametrize(("alpha", "seed"), CASES)
def test_calibration_and_test_targets_change_nothing_that_is_chosen(alpha, seed, table):
    splits = paper_split(len(table), seed)
    grown, chosen = choose_on(table, splits, alpha=alpha, seed=seed)
    untouched = np.concatenate([grown.calibrate, grown.test])
    _, again = choose_on(garble(table, untouched), splits, alpha=alpha, seed=seed)
    assert again == chosen


@pytest.mark.parametrize(("alpha", "seed"), CASES)
def test_tuning_targets_do_change_it(alpha, seed, table):
    splits = paper_split(len(table), seed)
    grown, chosen = choose_on(table, splits, alpha=alpha, seed=seed)
    _, again = choose_on(garble(table, grown.tune[:15]), splits, alpha=alpha, seed=seed)
    assert again != chosen


def test_growth_stops_early_somewhere(table):
    """So that there was something to look at."""
    n_tune = [
        len(choose_on(table, paper_split(600, seed), alpha=0.2, seed=seed)[0].tune)
        for seed in range(3)
    ]
    assert min(n_tune) < len(paper_split(600, 0).tune)


def test_the_grown_split_is_a_beginning_of_the_dealt_order(table):
    splits = paper_split(len(table), 3)
    grown, _ = choose_on(table, splits, alpha=0.2, seed=3)
    order = [*splits.tune, *splits.calibrate]
    assert [*grown.tune, *grown.calibrate] == order
    assert np.array_equal(grown.train, splits.train)
    assert np.array_equal(grown.test, splits.test)


# ---- refit


def fit_quick(table, splits):
    return fit_class(table, splits.train, candidate_class=QUICK, seed=0)


def test_a_refit_changes_predictions():
    table, splits = small_table(), paper_split(240, 0)
    fits = fit_quick(table, splits)
    again = refit_class(fits, table, splits.tune)
    assert not np.array_equal(again.mean(("ridge",)), fits.mean(("ridge",)))


def test_a_refit_holds_out_tuning_rows_by_models_that_never_saw_them():
    table, splits = small_table(), paper_split(240, 0)
    fits = fit_quick(table, splits)
    held_out = refit_class(fits, table, splits.tune).held_out["ridge"]
    assert np.array_equal(held_out[len(splits.train) :], fits.mean(("ridge",))[splits.tune])

    other = garble(table, splits.tune)
    others = refit_class(fit_quick(other, splits), other, splits.tune).held_out["ridge"]
    assert np.array_equal(others, held_out)


def test_a_threshold_on_fewer_rows_has_its_own_rank():
    assert conformal_rank(calibration_reserve(113), alpha=0.2) == math.ceil(60 * 0.8)
