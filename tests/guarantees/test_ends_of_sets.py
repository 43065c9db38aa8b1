"""What ends say is what `contains` says: every y that scores at most the threshold lies between the
ends, to the last bit.

Thresholds are scores of rows, so a value of y that many rows share sits exactly on an end. Ends
rounded to nearest lose it half of the time, and with it all rows that share it.
"""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from laws import FULL, check_mean
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

import dco
from dco import GaussianMixtures, Points, PointsWithSpread, Quantiles, split_conformal
from dco.cli.main import main
from dco.models import ResidualSpread
from dco.scores import (
    AbsoluteResidual,
    HighestDensityMass,
    Levelled,
    NormalisedResidual,
    PredictiveDensity,
    QuantileResidual,
)

pytestmark = pytest.mark.guarantee
density_scores = pytest.mark.parametrize(
    "score", [PredictiveDensity(), HighestDensityMass()], ids=["density", "mass"]
)


def is_between(lower, upper, y):
    return (lower <= y) & (y <= upper)


def is_in_a_piece(sets, y):
    return np.array(
        [
            any(low <= value <= high for low, high in pieces)
            for pieces, value in zip(sets, y, strict=True)
        ]
    )


# ---------------------------------------------------------------- values that many rows share


def draw_detection_limit(n, rng):
    """Draw one binary feature and targets, 15 % at the limit 0.1, the others near 3 + x.

    From a mean in [2.1, 4) the limit is at a distance that floats round down, so mean - distance is
    above the limit.
    """
    x = rng.integers(0, 2, n).astype(float)
    above = 3 + x + 0.1 * rng.normal(size=n)
    return x[:, None], np.where(rng.uniform(size=n) < 0.15, 0.1, above)


@pytest.fixture(scope="module")
def detection_limits():
    """Return coverage by ends and by `contains`, (runs, 2), on new rows of several fits."""
    coverage = []
    for seed in range(120 if FULL else 12):
        rng = np.random.default_rng([1, seed])
        model = DecisionTreeRegressor(max_depth=1)
        est = dco.DecoupledRegressor(model, [AbsoluteResidual()], alpha=0.1, random_state=seed)
        est.fit(*draw_detection_limit(2000, rng))

        X, y = draw_detection_limit(5000, rng)
        sets = est.predict_set(X)
        frame = sets.to_frame()
        by_ends = is_between(frame["lower"], frame["upper"], y).mean()
        coverage.append([by_ends, sets.contains(y).mean()])
    return np.array(coverage)


def test_values_at_a_detection_limit_lie_between_the_ends(detection_limits):
    by_ends, by_contains = detection_limits.T

    assert by_ends.tolist() == by_contains.tolist()


def test_ends_cover_at_the_level_with_a_detection_limit(detection_limits):
    """Without the rows at the limit it would be .85."""
    check_mean(detection_limits[:, 0], 0.9)


def test_the_limit_is_at_the_threshold(detection_limits):
    """By `contains` 92.5 % are covered: the rank lies within the rows at the limit with x = 0."""
    assert abs(detection_limits[:, 1].mean() - 0.925) < 0.01


@density_scores
@pytest.mark.parametrize("n", [200, 500, 1000] if FULL else [500])
def test_counts_of_zero_lie_in_the_hull_of_density_sets(score, n):
    """y = 0 in 20 % of rows, else 1 + Poisson(4), and the same two Gaussians for every row; 0 is at
    the threshold. Without the zeros coverage would be .78.
    """
    rng = np.random.default_rng(n)
    y, y_new = np.where(rng.uniform(size=(2, n)) < 0.2, 0, 1 + rng.poisson(4, size=(2, n)))
    prediction = GaussianMixtures(np.repeat([[3, 6.1]], n, axis=0), [1.5, 2], draws_first=False)
    threshold = split_conformal(score.observed(prediction, y), alpha=0.1)

    sets = score.sets(prediction, threshold)

    members = sets.contains(y_new)
    assert threshold.value == score.observed(prediction, np.zeros(n))[0]
    np.testing.assert_array_equal(sets.hull().contains(y_new), members)
    np.testing.assert_array_equal(is_in_a_piece(sets, y_new), members)
    assert members.mean() > 0.95


# ---------------------------------------------------------------- residuals of any numbers

KINDS_OF_NUMBERS = [
    lambda rng, n: np.round(rng.normal(size=n), int(rng.integers(3))),
    lambda rng, n: rng.poisson(3, n).astype(float),
    lambda rng, n: np.exp(3 * rng.normal(size=n)),
    lambda rng, n: rng.normal(size=n).astype(np.float32),
    lambda rng, n: 10.0 ** rng.uniform(-320, 300, n) * rng.choice([-1, 1], n),
    lambda rng, n: rng.choice([0.0, 5e-324, 1e-310, 0.1, 0.2, 0.3, 1.0, 4.0], n),
    lambda rng, n: 10.0 ** int(rng.integers(-8, 9)) * rng.normal(size=n),
]


def draw_numbers(rng, n):
    """Draw whole, decimal, skewed, single-precision, tiny or huge numbers, or many equal ones."""
    return KINDS_OF_NUMBERS[int(rng.integers(7))](rng, n)


def floats_beside(ends):
    """Return the floats next to the ends and some that are near them."""
    beside = []
    for direction in (-np.inf, np.inf):
        step = ends
        for _ in range(3):
            step = np.nextafter(step, direction)
            beside.append(step)
        beside.append(ends + np.sign(direction) * 20 * np.spacing(np.abs(ends)))
    return beside


RESIDUAL_SCORES = {
    "absolute": (AbsoluteResidual(), lambda centre, width: Points(centre)),
    "levelled": (
        Levelled(AbsoluteResidual(), (-1.0, 0.1, 3.0), (0.6137, 1.7321, 1.1001)),
        lambda centre, width: Points(centre),
    ),
    "normalised": (NormalisedResidual(), PointsWithSpread),
    "normalised with a floor": (NormalisedResidual(floor=0.5), PointsWithSpread),
    **{
        f"quantile {kind}": (
            QuantileResidual(kind),
            lambda centre, width: Quantiles(centre, centre + width, centre + width / 3),
        )
        for kind in ("plain", "relative", "median")
    },
}


def draw_residual_case(rng, score, predict, n=50):
    """Draw predictions, targets, and a threshold that is a score, for all rows or for each."""
    centre = draw_numbers(rng, n)
    width = np.abs(draw_numbers(rng, n))
    if rng.uniform() < 0.3:
        centre = np.full(n, centre[0])
    y = draw_numbers(rng, n).astype(np.float64)
    prediction = predict(centre, width)
    scores = score.observed(prediction, y)
    threshold = float(rng.choice(scores)) if rng.uniform() < 0.7 else rng.choice(scores, n)
    return prediction, y, threshold


@np.errstate(over="ignore", invalid="ignore")
@pytest.mark.parametrize(("score", "predict"), RESIDUAL_SCORES.values(), ids=RESIDUAL_SCORES.keys())
def test_no_residual_set_loses_a_member(score, predict):
    """100,000 rows a score in full: every float near an end that is a member is inside."""
    rng = np.random.default_rng(3)
    for _ in range(2000 if FULL else 60):
        prediction, y, threshold = draw_residual_case(rng, score, predict)
        sets = score.sets(prediction, threshold)
        points = [y, rng.permutation(y), *floats_beside(sets.lower), *floats_beside(sets.upper)]

        for point in np.nan_to_num(points):
            is_lost = sets.contains(point) & ~is_between(sets.lower, sets.upper, point)
            assert not is_lost.any(), (prediction, threshold, point[is_lost])


@np.errstate(over="ignore", invalid="ignore")
def test_residual_sets_are_not_merely_wide():
    """Lower ends lie within three units in the last place of mean - threshold."""
    rng = np.random.default_rng(8)
    excesses = []
    for _ in range(2000 if FULL else 60):
        prediction, y, _ = draw_residual_case(rng, AbsoluteResidual(), lambda c, w: Points(c))
        threshold = float(rng.choice(AbsoluteResidual().observed(prediction, y)))
        if 1e-300 < threshold < 1e300:
            lower = AbsoluteResidual().sets(prediction, threshold).lower
            largest = np.max([np.abs(prediction.mean), np.abs(lower), np.full(50, threshold)], 0)
            excess = (prediction.mean - lower - threshold) / np.spacing(largest)
            excesses.append(excess.max())

    assert len(excesses) > 30
    assert max(excesses) <= 3


# ---------------------------------------------------------------- densities of any numbers


def draw_mixtures(rng, n):
    """Draw means and sds of all sorts: decimals, modes, far tails, sds by draw, repeated rows."""
    n_draws = int(rng.choice([1, 2, 2, 3, 5, 20]))
    means = 4 * rng.normal(size=(n, n_draws))
    if rng.uniform() < 0.5:
        means = np.round(3 * rng.normal(size=(n, n_draws)), 1)
    sds = rng.choice([0.5, 1, 2], n_draws)
    if rng.uniform() < 0.5:
        sds = 10.0 ** rng.uniform(-1, 0.5, (n, n_draws))
    if rng.uniform() < 0.4:
        means = np.repeat(means[:1], n, axis=0)
        sds = sds if sds.ndim == 1 else np.repeat(sds[:1], n, axis=0)
    return means, sds


def draw_mixture_case(rng, n):
    """Draw mixtures and targets in units from 1e-4 to 1e4, some in single precision."""
    means, sds = draw_mixtures(rng, n)
    y = np.round(3 * rng.normal(size=n), 1)
    if rng.uniform() < 0.5:
        y = means[:, 0] + rng.choice([0, 1e-9, 1, 9]) * rng.normal(size=n)

    scale = 10.0 ** int(rng.integers(-4, 5))
    dtype = np.float32 if rng.uniform() < 0.3 else np.float64
    means = (scale * means).astype(dtype)
    sds = (scale * sds).astype(dtype)
    return GaussianMixtures(means, sds, draws_first=False), scale * y


@density_scores
def test_no_density_set_loses_a_member(score):
    """100,000 rows in full, whose threshold is the score of their own y or of another row's."""
    rng = np.random.default_rng(4)
    for _ in range(200 if FULL else 4):
        mixtures, y = draw_mixture_case(rng, 500)
        scores = score.observed(mixtures, y)
        threshold = scores if rng.uniform() < 0.5 else float(rng.choice(scores))
        sets = score.sets(mixtures, threshold)

        assert np.all(is_in_a_piece(sets, y)[scores <= threshold])
        for point in points_beyond(sets.hull(), mixtures, rng):
            assert np.all(is_in_a_piece(sets, point) >= sets.contains(point))


def points_beyond(hull, mixtures, rng):
    """Return the next floats beyond the ends, and points up to 1e-6 of the smallest sd away."""
    smallest_sd = np.broadcast_to(mixtures.sds.T.min(axis=-1), len(mixtures)).astype(np.float64)
    lower = np.nan_to_num(hull.lower, posinf=0, neginf=0)
    upper = np.nan_to_num(hull.upper, posinf=0, neginf=0)
    distance = smallest_sd * 10.0 ** rng.uniform(-17, -6, len(mixtures))
    return [
        np.nextafter(lower, -np.inf),
        np.nextafter(upper, np.inf),
        lower - distance,
        upper + distance,
    ]


# ---------------------------------------------------------------- models and files


class InSinglePrecision(RegressorMixin, BaseEstimator):
    """A linear model whose predictions are float32."""

    def fit(self, X, y):
        self.model_ = LinearRegression().fit(X, y)
        return self

    def predict(self, X):
        return self.model_.predict(X).astype(np.float32)


MODELS = {
    "single precision": InSinglePrecision(),
    "nearest rows": KNeighborsRegressor(1),
    "forest": RandomForestRegressor(5, max_depth=3, random_state=0),
    "logs": TransformedTargetRegressor(LinearRegression(), func=np.log, inverse_func=np.exp),
    "spread": ResidualSpread(DecisionTreeRegressor(max_depth=2)),
}


def through_memory(frame, folder):
    return frame


def through_csv(frame, folder):
    frame.to_csv(folder / "sets.csv")
    return pd.read_csv(folder / "sets.csv")


def through_parquet(frame, folder):
    frame.to_parquet(folder / "sets.parquet")
    return pd.read_parquet(folder / "sets.parquet")


@pytest.mark.parametrize("through", [through_memory, through_csv, through_parquet])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("seed", range(20 if FULL else 2))
def test_frames_and_their_files_say_what_contains_says(model, through, seed, tmp_path):
    """Targets with ties and decimals, 100,000 rows over all models in full. Ends may also hold
    decimals that miss the threshold by a unit in the last place.
    """
    rng = np.random.default_rng([5, seed])
    X = np.round(rng.normal(size=(1400, 2)), 1)
    decimals = int(rng.integers(1, 3))
    y = np.maximum(np.round(np.exp(X[:, 0] + 0.5 * rng.normal(size=1400)), decimals), 0.1)
    est = dco.DecoupledRegressor(model, alpha=0.2, random_state=seed).fit(X[:400], y[:400])
    sets = est.predict_set(X[400:])

    frame = through(sets.to_frame(), tmp_path)

    members = sets.contains(y[400:])
    is_inside = is_between(frame["lower"].to_numpy(), frame["upper"].to_numpy(), y[400:])
    assert np.all(is_inside[members])
    assert np.mean(is_inside & ~members) <= 0.01


@pytest.mark.parametrize("seed", range(100 if FULL else 10))
def test_sets_of_log_y_are_carried_to_y_whole(seed):
    """A power of ten in a fifth of the rows; exp(log(0.1)) is above 0.1, so exp of the lower end
    alone would lose them all.
    """
    rng = np.random.default_rng([6, seed])
    power = 10.0 ** int(rng.integers(-3, 3))
    y = np.where(rng.uniform(size=1000) < 0.2, power, np.exp(rng.normal(size=1000) + 5))
    mean = np.full(1000, np.log(y).mean()) + rng.integers(0, 2, 1000)
    threshold = split_conformal(AbsoluteResidual().observed(Points(mean), np.log(y)), alpha=0.1)
    logs = AbsoluteResidual().sets(Points(mean), threshold)

    sets = logs.mapped(np.exp, np.log)

    members = sets.contains(y)
    np.testing.assert_array_equal(members, logs.contains(np.log(y)))
    assert np.all(is_between(sets.lower, sets.upper, y)[members])
    np.testing.assert_allclose(sets.lower, np.exp(logs.lower), rtol=1e-13)
    np.testing.assert_allclose(sets.upper, np.exp(logs.upper), rtol=1e-13)


# ---------------------------------------------------------------- files of the command


def run_command(line):
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == 0, result.output


def as_table(X, y):
    return pd.DataFrame({"id": np.arange(len(y)), "x": X[:, 0], "y": y})


def read_as_text(path):
    """Read a file of sets; cells of CSV are read as text, as they stand there."""
    if path.suffix == ".csv":
        return pd.read_csv(path, dtype=str)
    return getattr(pd, f"read_{path.suffix[1:]}")(path)


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather"])
@pytest.mark.parametrize("seed", range(10 if FULL else 1))
def test_files_of_the_command_say_what_contains_says(ending, seed, tmp_path):
    """The rows at a detection limit, through `dco fit --models boosting` and `dco predict`."""
    rng = np.random.default_rng([7, seed])
    table = as_table(*draw_detection_limit(2000, rng))
    new = as_table(*draw_detection_limit(4000, rng))
    table.to_csv(tmp_path / "table.csv", index=False)
    new.drop(columns="y").to_csv(tmp_path / "new.csv", index=False)
    model = tmp_path / "model.dco"
    out = tmp_path / f"sets.{ending}"

    options = f"--target y --drop id --models boosting --scores absolute --seed {seed}"
    run_command(f"fit {tmp_path}/table.csv --out {model} {options}")
    run_command(f"predict {model} {tmp_path}/new.csv --out {out}")

    y = new["y"].to_numpy()
    frame = read_as_text(out)
    is_inside = is_between(frame["lower"].map(float), frame["upper"].map(float), y)
    np.testing.assert_array_equal(is_inside, dco.load(model).predict_set(new[["x"]]).contains(y))
    assert is_inside.mean() > 0.9 - 4 * np.sqrt(0.09 / 4000 + 0.09 / 500)
