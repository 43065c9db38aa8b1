import math

import numpy as np
import pytest

from dco.datasets import Table
from dco.paper import beyond_regression as beyond
from dco.paper.experiment import Options, SplitRecord, rows_by
from dco.paper.methods import METHODS
from dco.paper.regression import paper_split
from dco.rows.splits import Splits

LEVELS = Options(alphas=(0.2, 0.1))
SMALL = beyond.Class(
    "concrete",
    ("extra trees", "support vectors"),
    "average, residual / (spread + 0.3)",
    "other rows",
    alone=("ridge",),
)
QUICK = beyond.Class(
    "concrete", ("ridge", "support vectors"), "average, absolute residual", "other rows"
)


def small_table(n: int = 240) -> Table:
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, (n, 3))
    y = (
        np.sin(3 * X[:, 0]) * 3
        + X[:, 1] ** 2
        + (0.1 + 0.3 * np.abs(X[:, 2])) * rng.standard_normal(n)
    )
    return Table(X, y, ("a", "b", "c"), "small")


def with_targets(table: Table, y: np.ndarray) -> Table:
    return Table(table.X, y, table.feature_names, table.name)


def garbled(table: Table, rows: np.ndarray) -> Table:
    """The same table with other targets in these rows, on another scale and unrelated to the
    inputs.
    """
    y = table.y.copy()
    y[rows] = 50 * np.random.default_rng(1).standard_cauchy(len(rows))
    return with_targets(table, y)


@pytest.fixture(scope="module")
def records():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beyond, "load_rows", lambda name, data_home: small_table())
        return [
            SplitRecord(seed, tuple(beyond.run_split(seed, LEVELS, members=SMALL)), 1.0)
            for seed in (0, 1)
        ]


def test_the_stronger_class_beats_a_linear_model_where_the_truth_bends(records):
    """The signal is a sine and a square: a linear model cannot follow it, the class must be at
    least 20 % narrower.
    """
    found = rows_by(records, alpha=0.2)
    widths = {method: np.mean([row["width"] for row in rows]) for method, rows in found.items()}
    assert widths["stronger class, fixed"] < 0.8 * widths[beyond.BASE]
    assert all(row["law"] for rows in found.values() for row in rows)


def test_steps_add_up(records):
    steps = {step: each[0] for step, each in beyond.gains(records, 0.2).items()}
    assert steps["class"] + steps["refit"] + steps["search"] == pytest.approx(steps[beyond.THREE])
    assert steps[beyond.THREE] + steps["auto tuning split"] == pytest.approx(steps["all together"])


def test_records_say_how_the_rows_were_divided(records):
    """Each row's tuning and calibration rows are the pool; only the auto split has its own."""
    for record in records:
        sizes = record.rows[0]["sizes"]
        pool = sizes["tune"] + sizes["calibrate"]
        for row in record.rows[1:]:
            assert row["n_tune"] + row["n"] == pool
            assert row["n_test"] == sizes["test"]
            if row["method"] == beyond.AUTO:
                assert row["stopped"] in ("settled", "limit")
                assert row["n"] >= beyond.reserve(sizes["calibrate"])
                assert row["rank"] == math.ceil((row["n"] + 1) * (1 - row["alpha"]) - 1e-9)
            else:
                assert (row["n_tune"], row["n"], row["stopped"]) == (
                    sizes["tune"],
                    sizes["calibrate"],
                    "",
                )


def test_tables_show_the_auto_split(records):
    main, gain, chosen, growth = beyond.beyond_tables(records, LEVELS, members=SMALL, title="Small")
    assert main.column("method").count(beyond.AUTO) == len(LEVELS.alphas)
    assert gain.column("step").count("auto tuning split") == len(LEVELS.alphas)
    assert (
        sum(chosen.column("splits"))
        == sum(chosen.column("auto split"))
        == len(records) * len(LEVELS.alphas)
    )
    sizes = [row["n_tune"] for row in rows_by(records, alpha=0.2)[beyond.AUTO]]
    assert (growth.column("least")[0], growth.column("most")[0]) == (min(sizes), max(sizes))


@pytest.mark.parametrize("name", list(beyond.CLASSES))
def test_every_class_has_what_it_should(name):
    members = beyond.CLASSES[name]
    offered = beyond.structures(members)
    assert members.fixed in offered
    assert beyond.PAIR in offered
    assert offered["average, absolute residual"].models == members.averaged
    assert any(each.floor is not None for each in offered.values())
    assert ("gaussian process" in members.models) == (name != "california")  # small data
    assert any("trees" in model or "boosting" in model for model in members.models)
    assert all(
        hasattr(beyond.mean_model(model, columns=3, seed=0), "fit") for model in members.models
    )


def test_a_quantile_pair_is_trained_for_its_level():
    """On the rows it was fitted on, the share between the two quantiles is near 1 - alpha, and
    grows with it.
    """
    table = small_table(600)
    fits = beyond.Fits(table.X, table.y, table.X, {}, seed=0)
    inside = []
    for alpha in (0.5, 0.1):
        _, pair = fits.predict(beyond.Average(()), alpha=alpha)
        inside.append(np.mean((pair.lower <= table.y) & (table.y <= pair.upper)))
    assert inside == [pytest.approx(0.5, abs=0.1), pytest.approx(0.9, abs=0.07)]


def test_half_of_the_calibration_rows_are_kept_and_no_rank_is_wasted():
    for calibrate in (113, 263, 765):
        m = beyond.reserve(calibrate)
        assert calibrate / 2 - 1 < m < calibrate / 2 + 20
        for alpha in (5, 10, 20):
            assert (m + 1) % alpha == 0


# ---- nothing chosen may depend on a calibration or test target
# ---------------------------------------------------------


def chosen_with(
    table: Table, splits: Splits, *, alpha: float, seed: int = 0
) -> tuple[Splits, str, bytes, bytes]:
    """The grown split, the structure chosen on it, and its refitted predictions for the rows
    left.
    """
    fits = beyond.first_fits(table, splits.train, members=QUICK, seed=seed)
    grown, _ = beyond.grown_split(fits, table, splits, members=QUICK, alpha=alpha, seed=seed)
    best = METHODS["dco_warmstart"](
        beyond.class_rows(fits, table, grown, members=QUICK, alpha=alpha)
    ).candidate
    _, prediction = beyond.refits(fits, table, grown.tune).predict(
        beyond.structures(QUICK)[best], alpha=alpha
    )
    mean = prediction.lower if best == beyond.PAIR else prediction.mean
    return grown, best, grown.tune.tobytes(), mean.tobytes()


@pytest.mark.parametrize("alpha", [0.2, 0.1])
def test_calibration_and_test_targets_change_nothing_that_is_chosen(alpha):
    """Garble what the grown split left to calibration and test: the same rows, the same structure,
    the same predictions.

    With a few tuning rows garbled instead, they change.
    """
    table = small_table(600)
    seen = set()
    for seed in range(3):
        splits = paper_split(len(table), seed)
        grown, *rest = chosen_with(table, splits, alpha=alpha, seed=seed)
        for rows, same in (
            (np.concatenate([grown.calibrate, grown.test]), True),
            (grown.tune[:15], False),
        ):
            _, *again = chosen_with(garbled(table, rows), splits, alpha=alpha, seed=seed)
            assert (rest == again) == same
        seen.add(len(grown.tune))
    # it does stop early, so there was something to look at
    assert min(seen) < len(paper_split(len(table), 0).tune)


def test_the_grown_split_is_a_beginning_of_the_dealt_order():
    table = small_table(600)
    splits = paper_split(len(table), 3)
    fits = beyond.first_fits(table, splits.train, members=QUICK, seed=3)
    grown, _ = beyond.grown_split(fits, table, splits, members=QUICK, alpha=0.2, seed=3)
    order = np.concatenate([splits.tune, splits.calibrate])
    assert np.array_equal(np.concatenate([grown.tune, grown.calibrate]), order)
    assert np.array_equal(grown.train, splits.train)
    assert np.array_equal(grown.test, splits.test)


def test_refit_holds_out_by_models_that_saw_train_only():
    """For tuning rows the spread is learnt from predictions of the first fits, which never saw
    them.
    """
    table = small_table()
    splits = paper_split(len(table), 0)
    fits = beyond.first_fits(table, splits.train, members=QUICK, seed=0)
    first = fits.mean(("ridge",))
    again = beyond.refits(fits, table, splits.tune)
    assert np.array_equal(again.held_out["ridge"][len(splits.train) :], first[splits.tune])
    assert not np.array_equal(again.mean(("ridge",)), first)
    other = garbled(table, splits.tune)
    unseen = beyond.refits(
        beyond.first_fits(other, splits.train, members=QUICK, seed=0), other, splits.tune
    )
    assert np.array_equal(unseen.held_out["ridge"], again.held_out["ridge"])


# ---- the law with a number of calibration rows that differs between splits
# ---------------------------------------------


def test_a_model_that_is_misspelt_is_not_another_one():
    with pytest.raises(ValueError, match="'exrta trees'"):
        beyond.mean_model("exrta trees", columns=3, seed=0)
