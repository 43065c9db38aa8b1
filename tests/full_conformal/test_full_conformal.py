"""Full conformal sets: their law of coverage, brute force, symmetry, and width.

If targets are continuous and rows exchangeable, the rank of the new row among all n + 1 is uniform,
so coverage is exactly 1 - floor(alpha (n + 1)) / (n + 1), whatever the truth is.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from laws import FULL, check_mean
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import dco
from dco.foundations.notes import NoteWarning

DATA_SETS = 4000 if FULL else 400


@parametrize_with_checks([dco.FullConformalRegressor(), dco.FullConformalRegressor("linear")])
@pytest.mark.filterwarnings("ignore")
def test_the_contract_of_scikit_learn(estimator, check) -> None:
    """Data are tiny, and a warning says that rows are too few."""
    check(estimator)


# --- data -----------------------------------------------------------------------------------------


def draw_rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows that no kernel fits: steps, and heavy noise that grows with the second column."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    noise = rng.standard_t(2, size=n) * np.exp(X[:, 1])
    return X, np.sign(X[:, 0]) * 3 + noise


def draw_frame(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Draw a frame with gaps, a category and a truth value."""
    rng = np.random.default_rng(seed)
    X, y = draw_rows(n, seed)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["kind"] = rng.choice(["red", "blue", "rare"], size=n, p=[0.5, 0.45, 0.05])
    frame["new"] = rng.random(n) < 0.5
    frame.loc[rng.random(n) < 0.2, "a"] = np.nan
    return frame, y + (frame["kind"] == "red")


def draw_line(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of a linear model with five columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    return X, X @ [3.0, 2.0, 1.0, 0.0, 0.0] + rng.normal(size=n)


# --- coverage -------------------------------------------------------------------------------------


def rank_of_last_row(
    draw: Callable[..., tuple], n: int, seed: int, kernel: str = "smooth"
) -> float:
    """Draw n + 1 rows, fit n of them, and return the rank of the last one among all."""
    X, y = draw(n + 1, seed)
    est = dco.FullConformalRegressor(kernel, alpha=0.5).fit(X[:n], y[:n])
    p = est.predict_p(X[n:], y[n:])[0]
    return round(p * (n + 1))


@pytest.fixture(scope="module", params=[10, 20, 40], ids=lambda n: f"n={n}")
def ranks(request) -> tuple[int, np.ndarray]:
    """n, and the rank of a new row in each of many data sets."""
    n = request.param
    return n, np.array([rank_of_last_row(draw_rows, n, seed) for seed in range(DATA_SETS)])


def law(n: int, alpha: str) -> float:
    """The probability that a set holds its target."""
    return 1 - math.floor(Fraction(alpha) * (n + 1)) / (n + 1)


def check_coverage(covered: np.ndarray, n: int, alpha: str) -> None:
    """Check coverage against its law, within 4 standard errors of the law."""
    level = law(n, alpha)
    standard_error = math.sqrt(level * (1 - level) / len(covered))
    assert abs(np.mean(covered) - level) <= 4 * standard_error


@pytest.mark.parametrize("alpha", ["0.1", "0.2"])
def test_coverage_follows_its_law(ranks, alpha) -> None:
    n, rank = ranks
    check_coverage(rank > Fraction(alpha) * (n + 1), n, alpha)


def test_coverage_of_frames_with_gaps_and_categories_follows_its_law() -> None:
    n = 19
    data_sets = range(DATA_SETS // 2)
    rank = np.array([rank_of_last_row(draw_frame, n, seed) for seed in data_sets])
    check_coverage(rank > 2, n, "0.1")


MISTAKES = {
    "at least instead of more": lambda rank, n, level: rank >= level * (n + 1),
    "alpha n instead of alpha (n + 1)": lambda rank, n, level: rank > level * n,
    "the new row is not counted": lambda rank, n, level: rank - 1 > level * (n + 1),
}


@pytest.fixture(scope="module")
def ranks_of_nine() -> np.ndarray:
    return np.array([rank_of_last_row(draw_rows, 9, seed) for seed in range(1000)])


def test_coverage_follows_its_law_where_alpha_n_plus_1_is_a_whole_number(ranks_of_nine) -> None:
    check_coverage(ranks_of_nine > 2, 9, "0.2")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_breaks_the_law(mistake, ranks_of_nine) -> None:
    covered = MISTAKES[mistake](ranks_of_nine, 9, Fraction("0.2"))
    with pytest.raises(AssertionError):
        check_coverage(covered, 9, "0.2")


# --- symmetry -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["smooth", "linear", RBF(2.0)], ids=["smooth", "linear", "own"])
@pytest.mark.parametrize("draw", [draw_rows, draw_frame])
def test_the_rows_have_all_ranks_if_each_is_the_new_one_in_turn(draw, kernel) -> None:
    """Scores that treat the n + 1 rows alike are the same n + 1 scores in every turn."""
    X, y = draw(25, seed=1)
    y = np.asarray(y)
    rows = np.arange(25)
    found = []
    for new in rows:
        others = rows != new
        table, new_row = X[others], X[~others]
        est = dco.FullConformalRegressor(kernel).fit(table, y[others])
        found.append(round(25 * est.predict_p(new_row, y[~others])[0]))
    assert sorted(found) == list(range(1, 26))


def test_the_order_of_the_rows_changes_nothing() -> None:
    X, y = draw_rows(40, seed=0)
    mixed = np.random.default_rng(0).permutation(30)
    sets = dco.FullConformalRegressor().fit(X[:30], y[:30]).predict_set(X[30:])
    of_mixed = dco.FullConformalRegressor().fit(X[mixed], y[mixed]).predict_set(X[30:])
    np.testing.assert_allclose(of_mixed.hull(), sets.hull(), rtol=1e-6)


def test_sets_follow_the_scale_of_the_targets() -> None:
    X, y = draw_rows(40, seed=0)
    sets = dco.FullConformalRegressor().fit(X[:30], y[:30]).predict_set(X[30:])
    scaled = dco.FullConformalRegressor().fit(X[:30], 1e6 + 1e3 * y[:30]).predict_set(X[30:])
    np.testing.assert_allclose(scaled.hull(), 1e6 + 1e3 * np.asarray(sets.hull()), rtol=1e-8)


def test_a_new_row_does_not_depend_on_the_others_that_come_with_it() -> None:
    X, y = draw_rows(40, seed=0)
    est = dco.FullConformalRegressor().fit(X[:30], y[:30])
    assert est.predict_set(X[30:])[3] == est.predict_set(X[33:34])[0]


# --- the exact set --------------------------------------------------------------------------------


def kernel_matrix(kernel: str, X: np.ndarray) -> np.ndarray:
    """The kernels by their definitions: inner products, and a Gaussian of the distance."""
    Z = StandardScaler().fit_transform(X)
    n_columns = Z.shape[1]
    inner = Z @ Z.T / n_columns
    if kernel == "linear":
        return inner
    squared = ((Z[:, None] - Z[None]) ** 2).sum(axis=2)
    return inner + np.exp(-squared / (2 * n_columns))


def p_value_by_refits(K: np.ndarray, y: np.ndarray, noise: float) -> float:
    """Fit kernel ridge regression with a free intercept without each row, and rank the residual of
    the last one.
    """
    residuals = []
    for row in range(len(y)):
        others = np.arange(len(y)) != row
        n = len(y) - 1
        system = np.ones((n + 1, n + 1))
        system[:n, :n] = K[np.ix_(others, others)] + noise * np.eye(n)
        system[n, n] = 0.0
        *weights, intercept = np.linalg.solve(system, np.append(y[others], 0.0))
        residuals.append(abs(y[row] - K[row, others] @ weights - intercept))
    return float(np.mean(np.array(residuals) >= residuals[-1]))


NEW_ROWS = {"near": [0.1, -0.3], "far": [3.0, 1.0], "farther": [30.0, -40.0]}


@pytest.mark.parametrize("noise", [0.3, 0.01])
@pytest.mark.parametrize("kernel", ["smooth", "linear"])
@pytest.mark.parametrize("new_row", NEW_ROWS)
@pytest.mark.filterwarnings("ignore:1 of 1 set reach:dco.foundations.notes.NoteWarning")
def test_the_set_is_that_of_brute_force(new_row, kernel, noise) -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(14, 2))
    y = X[:, 0] + rng.normal(size=14)
    new = np.array([NEW_ROWS[new_row]])
    K = kernel_matrix(kernel, np.vstack([X, new]))
    est = dco.FullConformalRegressor(kernel, noise=noise, alpha=0.25).fit(X, y)
    sets = est.predict_set(new)

    for t in np.concatenate([np.linspace(-12, 12, 121), [-1e3, -150.0, -40.0, 40.0, 150.0, 1e3]]):
        p = p_value_by_refits(K, np.append(y, t), noise)
        assert sets.contains([t])[0] == (p > 0.25)
        assert est.predict_p(new, [t])[0] == pytest.approx(p)


def test_p_values_and_sets_agree() -> None:
    X, y = draw_rows(140, seed=3)
    est = dco.FullConformalRegressor(alpha=0.2).fit(X[:40], y[:40])
    covered = est.predict_set(X[40:]).contains(y[40:])
    np.testing.assert_array_equal(covered, est.predict_p(X[40:], y[40:]) > 0.2)


def test_a_list_of_levels_gives_nested_sets() -> None:
    X, y = draw_rows(50, seed=3)
    est = dco.FullConformalRegressor().fit(X[:40], y[:40])
    narrow, wide = est.predict_set(X[40:], alpha=[0.3, 0.1])
    assert np.all(narrow.hull().lower > wide.hull().lower)
    assert np.all(narrow.hull().upper < wide.hull().upper)


def test_equal_targets_are_in_their_sets() -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    est = dco.FullConformalRegressor().fit(X, np.full(20, 0.1))
    assert est.predict_set(X + 1).contains(np.full(20, 0.1)).all()


def test_a_repeated_row_is_as_strange_as_its_twin() -> None:
    """Both have the same residual, so the largest is shared by two."""
    X, y = draw_line(19, seed=0)
    y[0] = 1e3
    est = dco.FullConformalRegressor("linear", alpha=0.05).fit(X, y)
    assert est.predict_p(X[:1], y[:1])[0] == pytest.approx(2 / 20)


# --- unbounded sets -------------------------------------------------------------------------------


def test_too_few_rows_for_the_level_give_the_whole_line_and_a_note() -> None:
    X, y = draw_rows(8, seed=0)
    with pytest.warns(dco.InfeasibleLevelWarning, match="At least 9 rows are needed"):
        est = dco.FullConformalRegressor(alpha=0.1).fit(X, y)
    assert est.predict_set(X).is_full().all()
    assert [note.kind for note in est.notes_] == ["infeasible"]


def test_as_many_rows_as_the_level_needs_give_finite_sets() -> None:
    X, y = draw_rows(9, seed=0)
    est = dco.FullConformalRegressor(alpha=0.1, noise=3.0).fit(X, y)
    assert not est.predict_set(X).is_infinite().any()
    assert est.notes_ == []


def test_another_level_that_rows_are_too_few_for_is_noted() -> None:
    X, y = draw_rows(20, seed=0)
    est = dco.FullConformalRegressor(alpha=0.1).fit(X, y)
    with pytest.warns(dco.InfeasibleLevelWarning, match="At least 99 rows"):
        assert est.predict_set(X[:1], alpha=0.01).is_full().all()


def test_a_row_of_the_fit_far_away_makes_sets_unbounded_with_a_note() -> None:
    """Left out, it is predicted by a line that turns with the target of the new row."""
    X, y = draw_line(12, seed=0)
    X[0] = 100.0
    est = dco.FullConformalRegressor("linear", noise=1e-4, alpha=0.1).fit(X, y)
    with pytest.warns(NoteWarning, match="1 of 1 set reach to infinity: rows of the fit"):
        assert est.predict_set(np.full((1, 5), 2.0)).is_infinite().all()


# --- efficiency -----------------------------------------------------------------------------------


def test_sets_are_narrower_than_those_of_a_split_with_the_same_model() -> None:
    """Of 40 rows. The difference is more than 4 standard errors below 0."""
    differences = []
    for seed in range(25):
        X, y = draw_line(140, seed)
        ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 3, 11)))
        split = dco.DecoupledRegressor(
            ridge, dco.scores.AbsoluteResidual(), calibrate_size=0.5, random_state=seed
        ).fit(X[:40], y[:40])
        full = dco.FullConformalRegressor("linear").fit(X[:40], y[:40])
        widths = full.predict_set(X[40:]).sizes().mean(), split.predict_set(X[40:]).sizes().mean()
        differences.append(widths[0] - widths[1])
    check_mean(differences, high=0.0, errors=-4.0)


@pytest.mark.parametrize(
    ("n_rows", "parameters", "is_named"),
    [
        (59, {}, True),
        (60, {}, False),
        (59, {"models": RidgeCV()}, False),
        (59, {"guarantee": "pac"}, False),
    ],
    ids=["few rows", "more rows", "own model", "another guarantee"],
)
@pytest.mark.filterwarnings("ignore")
def test_a_fit_with_few_rows_names_it(n_rows, parameters, is_named) -> None:
    X, y = draw_line(n_rows, seed=0)
    est = dco.DecoupledRegressor(random_state=0, **parameters)
    remedies = [note.remedy for note in est.fit(X, y).notes_ if note.kind == "few-rows"]
    assert any("dco.FullConformalRegressor" in remedy for remedy in remedies) == is_named


# --- tables, files, words -------------------------------------------------------------------------


@pytest.mark.parametrize("to_table", [lambda f: f, pl.from_pandas], ids=["pandas", "polars"])
def test_frames_and_arrays_of_objects_have_the_same_sets(to_table) -> None:
    frame, y = draw_frame(40, seed=0)
    frame["new"] = frame["new"].map({True: "yes", False: "no"})
    table = to_table(frame)
    objects = frame.to_numpy(dtype=object)
    y = y.to_numpy()
    of_frame = dco.FullConformalRegressor().fit(table[:30], y[:30]).predict_set(table[30:])
    of_array = dco.FullConformalRegressor().fit(objects[:30], y[:30]).predict_set(objects[30:])
    np.testing.assert_array_equal(of_frame.hull(), of_array.hull())


def test_a_category_that_only_the_new_row_has_is_one_more_category() -> None:
    frame, y = draw_frame(40, seed=0)
    new = frame[30:].assign(kind="unheard of")
    sets = dco.FullConformalRegressor(noise=1.0).fit(frame[:30], y[:30]).predict_set(new)
    assert np.all(np.isfinite(sets.sizes()))


@pytest.mark.parametrize("draw", [draw_rows, draw_frame])
def test_a_file_gives_the_same_sets(draw, tmp_path) -> None:
    X, y = draw(40, seed=0)
    est = dco.FullConformalRegressor("smooth", noise=0.5).fit(X[:30], y[:30])
    dco.save(est, tmp_path / "model.dco")
    copy = dco.load(tmp_path / "model.dco")
    np.testing.assert_array_equal(copy.predict_set(X[30:]).hull(), est.predict_set(X[30:]).hull())


def test_an_evaluation_has_coverage_and_no_verdict() -> None:
    X, y = draw_rows(240, seed=0)
    est = dco.FullConformalRegressor().fit(X[:40], y[:40])
    evaluation = est.evaluate(X[40:], y[40:])
    assert evaluation.coverage == est.predict_set(X[40:]).contains(y[40:]).mean()
    assert evaluation.verdict == "unchecked"


def test_the_guarantee_in_words() -> None:
    X, y = draw_rows(20, seed=0)
    assert dco.FullConformalRegressor().fit(X, y).in_words() == (
        "The set of a new row holds its target with probability at least 90 %, if the row is "
        "exchangeable with the 20 rows of the fit (marginal).\n"
        "All 20 rows train and calibrate: full conformal prediction with kernel ridge regression "
        "(kernel: smooth, noise: 0.3).\n"
        "The probability is an average over fits: how far the coverage of this one may lie from "
        "it is not known."
    )


# --- bad input ------------------------------------------------------------------------------------

BAD_PARAMETERS = {
    "kernel": ({"kernel": "cubic"}, 'kernel must be one of "smooth", "linear"'),
    "noise": ({"noise": 0.0}, "noise must be a positive number"),
    "alpha": ({"alpha": 1.5}, "alpha"),
    "no matrix": ({"kernel": lambda rows: rows}, "symmetric matrix"),
    "order": (
        {"kernel": lambda rows: np.diag(np.arange(len(rows)) + 1.0)},
        "must treat the rows alike",
    ),
}


@pytest.mark.parametrize("case", BAD_PARAMETERS)
def test_a_parameter_that_means_nothing_is_refused(case) -> None:
    parameters, message = BAD_PARAMETERS[case]
    X, y = draw_rows(20, seed=0)
    with pytest.raises(ValueError, match=message):
        dco.FullConformalRegressor(**parameters).fit(X, y)


def test_a_text_in_a_column_of_numbers_is_refused() -> None:
    frame, y = draw_frame(30, seed=0)
    est = dco.FullConformalRegressor().fit(frame, y)
    with pytest.raises(ValueError, match="Column 0 of X held numbers in fit"):
        est.predict_set(frame[:1].assign(a="many"))


def test_an_infinite_number_in_a_frame_is_refused() -> None:
    frame, y = draw_frame(30, seed=0)
    with pytest.raises(ValueError, match="Column 1 of X holds an infinite number"):
        dco.FullConformalRegressor().fit(frame.assign(b=np.inf), y)
