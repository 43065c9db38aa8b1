"""Sparse Bayesian regression: the samplers against laws, quadrature and each other; the estimator
against its contract.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid
from scipy.stats import expon, kstest, laplace, norm
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

from dco.bayes import SparseBayesianRegression
from dco.bayes.diagnostics import effective_sample_size, split_rhat
from dco.bayes.random_variates import generalised_inverse_gaussian, laplace_variances
from dco.bayes.samplers import SufficientStatistics, gibbs_draws, nuts_draws

SCALES = (1.0, 0.02)
ignore_few_draws = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
both_samplers = pytest.mark.parametrize("sampler", ["gibbs", "nuts"])


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows to train on, and new ones."""

    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))
    return Rows(X[rows[:150]], y[rows[:150]], X[rows[150:]])


# ---------------------------------------------------------------- random variates


def generalised_inverse_gaussian_draws(rng, order, a, b, *, n):
    """Draw n numbers with equal parameters."""
    return generalised_inverse_gaussian(rng, np.full(n, order), np.full(n, a), np.full(n, b))


@pytest.mark.parametrize("order", [0.0, 1e-6, -0.3, 1.0, -20.0, 1e3, -5e5])
@pytest.mark.parametrize("omega", [1e-6, 1e-2, 1.0, 30.0, 1e4, 1e6])
def test_generalised_inverse_gaussian_follows_its_law(order, omega):
    """Against the density of log x, which is concave, added up on a grid; -5e5 is the order for a
    million rows. Each test errs once in 10,000 seeds.
    """
    a = omega * 0.1
    b = omega / 0.1
    root = np.hypot(order, omega)
    mode = np.log((order + root) / a if order >= 0 else b / (root - order))

    def log_density(offset):
        upwards = a * np.exp(mode) * np.expm1(offset)
        downwards = b * np.exp(-mode) * np.expm1(-offset)
        return order * offset - 0.5 * (upwards + downwards)

    def end_of_grid(offset):
        while log_density(offset) > -40:
            offset *= 1.2
        return offset

    offsets = np.linspace(end_of_grid(-1e-6), end_of_grid(1e-6), 20_001)
    mass_below = cumulative_trapezoid(np.exp(log_density(offsets)), offsets, initial=0)

    draws = generalised_inverse_gaussian_draws(np.random.default_rng(1), order, a, b, n=20_000)

    uniforms = np.interp(np.log(draws) - mode, offsets, mass_below / mass_below[-1])
    assert kstest(uniforms, "uniform").pvalue > 1e-4


class CountingGenerator:
    """A generator that counts the entries it proposes for, four proposals for each."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.n_entries = 0

    def random(self, shape):
        assert shape[1] == 4
        self.n_entries += shape[2]
        return self.rng.random(shape)


@pytest.mark.parametrize("order", [0.0, *np.geomspace(1e-6, 1e6, 13)])
@pytest.mark.parametrize("omega", np.geomspace(1e-8, 1e6, 15))
def test_generalised_inverse_gaussian_accepts_six_proposals_in_ten(order, omega):
    """Then all four of an entry are refused in fewer than 0.4^4 of the entries.

    The smallest share of accepted proposals is about 0.64.
    """
    counting = CountingGenerator()

    draws = generalised_inverse_gaussian_draws(counting, order, omega, omega, n=16_000)

    assert counting.n_entries < 16_000 * (1 + 0.4**4)
    assert np.all((draws > 0) & np.isfinite(draws))


@dataclass(frozen=True, eq=False)
class LaplaceMixture:
    """Draws of theta ~ Laplace(0, 0.3), and of their variances."""

    theta: np.ndarray
    variances: np.ndarray


@pytest.fixture(scope="module")
def laplace_mixture():
    rng = np.random.default_rng(0)
    theta = laplace(scale=0.3).rvs(size=20_000, random_state=rng)
    return LaplaceMixture(theta, laplace_variances(rng, theta, np.full(theta.shape, 0.3)))


def test_variances_of_a_laplace_are_exponential(laplace_mixture):
    """With mean 2 b^2; errs once in 1,000 seeds."""
    assert kstest(laplace_mixture.variances, expon(scale=2 * 0.3**2).cdf).pvalue > 1e-3


@pytest.mark.parametrize("is_large", [False, True], ids=["small variances", "large variances"])
def test_a_laplace_is_normal_given_its_variances(laplace_mixture, is_large):
    """Errs once in 1,000 seeds."""
    variances = laplace_mixture.variances
    half = (variances >= np.median(variances)) == is_large

    standard = laplace_mixture.theta[half] / np.sqrt(variances[half])

    assert kstest(standard, norm.cdf).pvalue > 1e-3


# ---------------------------------------------------------------- effective draws


@pytest.fixture(scope="module")
def autoregression():
    """Draw four chains of an AR(1) with coefficient 0.6."""
    rng = np.random.default_rng(0)
    x = np.empty((4, 20_000))
    x[:, 0] = rng.standard_normal(4) / np.sqrt(1 - 0.6**2)
    for t in range(1, 20_000):
        x[:, t] = 0.6 * x[:, t - 1] + rng.standard_normal(4)
    return x


def test_effective_draws_of_an_autoregression(autoregression):
    """N (1 - rho) / (1 + rho)."""
    assert effective_sample_size(autoregression) == pytest.approx(80_000 * 0.4 / 1.6, rel=0.1)


def test_effective_draws_of_independent_ones_are_all():
    x = np.random.default_rng(1).standard_normal((4, 20_000))

    assert effective_sample_size(x) == pytest.approx(80_000, rel=0.1)


def test_rhat_of_chains_that_agree_is_one(autoregression):
    assert split_rhat(autoregression) < 1.01


@pytest.mark.parametrize(
    "shift",
    [np.array([0, 0, 0, 5])[:, None], np.linspace(0, 8, 20_000)],
    ids=["one chain apart", "a trend"],
)
def test_rhat_sees_chains_that_have_not_mixed(autoregression, shift):
    assert split_rhat(autoregression + shift) > 1.5


# ---------------------------------------------------------------- the posterior

FIVE_X = np.array([-1.2, -0.5, 0.1, 0.6, 1.0])
FIVE_Y = np.array([-0.9, -0.2, 0.4, 0.1, 1.3])


def log_posterior_of_five_rows(theta, log_b, log_tau, *, c):
    """Return the log density of (theta, log b, log tau), the intercept integrated out."""
    b = np.exp(log_b)
    tau = np.exp(log_tau)
    residuals = FIVE_Y - theta[..., None] * FIVE_X
    mean_square = residuals.sum(axis=-1) ** 2 / 5
    squares = (residuals**2).sum(axis=-1)

    # N(residuals; 0, tau^2 I + 100 11'): one direction has variance tau^2 + 500, four tau^2.
    wide = tau**2 + 500
    log_likelihood = (
        -4 * log_tau
        - 0.5 * np.log(wide)
        - 0.5 * ((squares - mean_square) / tau**2 + mean_square / wide)
    )
    log_prior = -np.abs(theta) / b - log_b - b - 0.5 * (tau / c) ** 2
    return log_likelihood + log_prior + log_b + log_tau


def moments_by_quadrature(c):
    """Return posterior means and sds of theta, b and tau, by sums on a fine grid: (3,), (3,)."""
    theta = np.linspace(-4, 4, 241)[:, None, None]
    log_b = np.linspace(-7, 3, 161)[None, :, None]
    log_tau = np.linspace(-5, 2, 161)[None, None, :]
    log_p = log_posterior_of_five_rows(theta, log_b, log_tau, c=c)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()

    values = [theta, np.exp(log_b), np.exp(log_tau)]
    means = np.array([(value * p).sum() for value in values])
    squares = np.array([(value**2 * p).sum() for value in values])
    return means, np.sqrt(squares - means**2)


def chains_of_five_rows(sampler, c):
    """Return draws of theta, b and tau, (chains, draws, 3)."""
    statistics = SufficientStatistics.from_datasets([(FIVE_X[:, None], FIVE_Y)])
    scales = np.array([c])
    if sampler == "gibbs":
        rng = np.random.default_rng(0)
        (chains,) = gibbs_draws(statistics, scales, chains=50, draws=800, warmup=300, rng=rng)
    else:
        (chains,) = nuts_draws(statistics, scales, chains=40, draws=500, warmup=400, seed=0)
    return chains[..., [0, 2, 3]]


@pytest.mark.parametrize("c", [1.0, 0.3])
@both_samplers
def test_the_posterior_is_that_of_quadrature_in_one_dimension(sampler, c):
    """Five rows, so that every prior matters; means and sds within 4.5 Monte-Carlo standard
    errors.
    """
    means, sds = moments_by_quadrature(c)

    draws = chains_of_five_rows(sampler, c)

    squares = (draws - means) ** 2
    for j in range(3):
        error_of_mean = sds[j] / np.sqrt(effective_sample_size(draws[..., j]))
        error_of_square = squares[..., j].std() / np.sqrt(effective_sample_size(squares[..., j]))
        assert abs(draws[..., j].mean() - means[j]) < 4.5 * error_of_mean
        assert abs(squares[..., j].mean() - sds[j] ** 2) < 4.5 * error_of_square


def fit_both_scales(diabetes, **settings):
    (models,) = SparseBayesianRegression.fit_many([(diabetes.X, diabetes.y)], SCALES, **settings)
    return dict(zip(SCALES, models, strict=True))


@pytest.fixture(scope="module")
def gibbs_models(diabetes):
    return fit_both_scales(diabetes, draws=24_000, random_state=1)


@pytest.fixture(scope="module")
def nuts_models(diabetes):
    return fit_both_scales(diabetes, draws=2_400, warmup=400, sampler="nuts", random_state=2)


every_scale = pytest.mark.parametrize("scale", SCALES)


@every_scale
@pytest.mark.parametrize(
    "draws", ["coef_draws_", "intercept_draws_", "noise_sd_draws_", "prior_width_draws_"]
)
def test_gibbs_and_nuts_have_the_same_posterior(gibbs_models, nuts_models, scale, draws):
    """Every mean within 4 standard errors, every sd within 15 %."""
    gibbs = getattr(gibbs_models[scale], draws)
    nuts = getattr(nuts_models[scale], draws)

    share = np.sqrt(1 / gibbs_models[scale].ess_ + 1 / nuts_models[scale].ess_)
    error = nuts.std(axis=0) * share
    assert np.all(np.abs(gibbs.mean(axis=0) - nuts.mean(axis=0)) < 4 * error)
    np.testing.assert_allclose(gibbs.std(axis=0), nuts.std(axis=0), rtol=0.15)


@every_scale
def test_gibbs_has_converged(gibbs_models, scale):
    assert gibbs_models[scale].rhat_ <= 1.01
    assert gibbs_models[scale].ess_ > 6_000


@every_scale
def test_nuts_has_converged(nuts_models, scale):
    assert nuts_models[scale].rhat_ <= 1.02  # of 2,400 draws it is noisy to about 1 %
    assert nuts_models[scale].ess_ > 600


def test_noise_prior_binds_on_diabetes_as_in_the_paper():
    """Training splits of 150 rows: noise sd near .716 for c = 1 and .378 for c = .02, in units of
    the targets' sd.
    """
    X, y = load_diabetes(return_X_y=True)
    rng = np.random.default_rng(3)
    splits = [rng.permutation(len(y))[:150] for _ in range(30)]

    fits = SparseBayesianRegression.fit_many(
        [(X[rows], y[rows]) for rows in splits], SCALES, draws=4000, warmup=100, random_state=0
    )

    noise = np.array([[model.noise_sd_ / model.y_scale_ for model in models] for models in fits])
    error = noise.std(axis=0) / np.sqrt(len(splits))
    assert np.all(np.abs(noise.mean(axis=0) - (0.716, 0.378)) < 4 * error + 0.001)


# ---------------------------------------------------------------- draws


def test_few_draws_are_called_out_to_the_caller(diabetes):
    model = SparseBayesianRegression(draws=40, warmup=5, random_state=0)

    with pytest.warns(ConvergenceWarning, match="effective draws") as warned:
        model.fit(diabetes.X, diabetes.y)

    assert model.ess_ < 400
    assert warned[0].filename == __file__


def noise_of_few_draws(diabetes, *, draws):
    model = SparseBayesianRegression(draws=draws, chains=4, warmup=5, random_state=0)
    return model.fit(diabetes.X, diabetes.y).noise_sd_draws_


@ignore_few_draws
def test_a_count_that_the_chains_do_not_divide_cuts_the_last_steps(diabetes):
    """Four chains of three steps for ten draws: the third step of two chains is left out."""
    ten = noise_of_few_draws(diabetes, draws=10)

    np.testing.assert_array_equal(ten, noise_of_few_draws(diabetes, draws=12)[:10])


@ignore_few_draws
def test_draws_are_in_the_order_of_steps(diabetes):
    """The first four are the first steps of the four chains."""
    first_steps = noise_of_few_draws(diabetes, draws=4)

    np.testing.assert_array_equal(noise_of_few_draws(diabetes, draws=12)[:4], first_steps)


@ignore_few_draws
def test_the_same_seed_gives_the_same_draws(diabetes):
    first = noise_of_few_draws(diabetes, draws=400)

    np.testing.assert_array_equal(first, noise_of_few_draws(diabetes, draws=400))


@ignore_few_draws
def test_another_seed_gives_other_draws(diabetes):
    model = SparseBayesianRegression(draws=400, warmup=5, random_state=1)
    model.fit(diabetes.X, diabetes.y)

    assert not np.any(model.noise_sd_draws_ == noise_of_few_draws(diabetes, draws=400))


# ---------------------------------------------------------------- fits


@pytest.fixture(scope="module")
def model(diabetes):
    return SparseBayesianRegression(draws=2001, random_state=0).fit(diabetes.X, diabetes.y)


def test_predictions_are_the_moments_of_the_mixture(model, diabetes):
    mixture = model.predict_distribution(diabetes.X_new)

    mean, sd = model.predict(diabetes.X_new, return_std=True)

    variance = mixture.means.var(axis=0) + np.mean(mixture.sds**2)
    assert mixture.means.shape == (2001, len(diabetes.X_new))
    np.testing.assert_allclose(mean, mixture.means.mean(axis=0))
    np.testing.assert_allclose(sd, np.sqrt(variance))


def test_means_are_the_same_without_standard_deviations(model, diabetes):
    mean, _ = model.predict(diabetes.X_new, return_std=True)

    np.testing.assert_array_equal(model.predict(diabetes.X_new), mean)


def test_units_of_the_caller_come_back(model, diabetes):
    """Another origin and unit for every column and for y: the same predictions in the new unit."""
    shift = np.linspace(-3, 5, 10)
    unit = np.linspace(0.5, 20, 10)

    other = SparseBayesianRegression(draws=2001, random_state=0)
    other.fit(diabetes.X * unit + shift, 100 * diabetes.y - 7)

    predictions = other.predict(diabetes.X_new * unit + shift)
    expected = 100 * model.predict(diabetes.X_new) - 7
    np.testing.assert_allclose(predictions, expected, rtol=1e-6)
    np.testing.assert_allclose(other.noise_sd_draws_, 100 * model.noise_sd_draws_, rtol=1e-6)


def test_a_constant_column_changes_nothing(model, diabetes):
    wider = SparseBayesianRegression(draws=2001, random_state=0)
    wider.fit(np.insert(diabetes.X, 3, 0.1, axis=1), diabetes.y)

    predictions = wider.predict(np.insert(diabetes.X_new, 3, 9.0, axis=1))

    np.testing.assert_allclose(predictions, model.predict(diabetes.X_new), rtol=1e-9)


@both_samplers
def test_only_constant_columns_leave_the_mean(sampler):
    y = np.random.default_rng(0).normal(5, 2, size=50)
    model = SparseBayesianRegression(draws=4000, sampler=sampler, random_state=0)

    model.fit(np.ones((50, 2)), y)

    assert model.coef_.tolist() == [0, 0]
    assert model.predict([[7.0, 8.0]])[0] == pytest.approx(y.mean(), abs=0.05)


@pytest.fixture(scope="module")
def wide_X():
    """Draw 30 rows of 60 inputs."""
    return np.random.default_rng(0).standard_normal((30, 60))


@ignore_few_draws
def test_one_real_effect_is_found_among_more_columns_than_rows(wide_X):
    y = 3 * wide_X[:, 0] + 0.3 * np.random.default_rng(1).standard_normal(30)

    model = SparseBayesianRegression(draws=2000, random_state=0).fit(wide_X, y)

    assert np.argmax(np.abs(model.coef_)) == 0
    assert model.coef_[0] > 1


@ignore_few_draws
def test_two_rows_are_enough(wide_X):
    model = SparseBayesianRegression(draws=2000, random_state=0).fit(wide_X[:2, :3], [3.0, -1.0])

    mean, sd = model.predict(wide_X[:, :3], return_std=True)

    assert np.all(np.isfinite(mean))
    assert np.all(sd > 0)


@ignore_few_draws
def test_rows_without_noise_have_a_tiny_noise_sd(wide_X):
    X = wide_X[:, :3]

    model = SparseBayesianRegression(draws=2000, random_state=0).fit(X, X @ [1.0, 2.0, 3.0])

    np.testing.assert_allclose(model.coef_, [1, 2, 3], rtol=1e-4)
    assert 0 < model.noise_sd_ < 1e-4


@pytest.fixture(scope="module")
def datasets(diabetes):
    """Make data sets that differ in rows and in constant columns."""
    with_constant = diabetes.X[:100].copy()
    with_constant[:, 2] = 1.0
    return [
        (diabetes.X, diabetes.y),
        (with_constant, diabetes.y[:100]),
        (diabetes.X[:80], diabetes.y[:80]),
    ]


@pytest.fixture(scope="module")
def many_fits(datasets):
    return SparseBayesianRegression.fit_many(datasets, SCALES, draws=4000, random_state=0)


def test_fit_many_fits_every_data_set_with_every_prior(many_fits):
    assert [[model.prior_scale for model in models] for models in many_fits] == 3 * [[1.0, 0.02]]


@pytest.mark.parametrize("i", range(3), ids=["all rows", "a constant column", "fewer rows"])
@pytest.mark.parametrize("j", range(2), ids=["wide prior", "narrow prior"])
def test_fits_of_fit_many_are_fits_alone(many_fits, datasets, i, j):
    """Within 4.5 standard errors."""
    model = many_fits[i][j]

    alone = SparseBayesianRegression(SCALES[j], draws=4000, random_state=5).fit(*datasets[i])

    error = alone.coef_draws_.std(axis=0) * np.sqrt(1 / alone.ess_ + 1 / model.ess_)
    error_of_noise = alone.noise_sd_draws_.std() * np.sqrt(2 / alone.ess_)
    assert np.all(np.abs(alone.coef_ - model.coef_) <= 4.5 * error)
    assert abs(alone.noise_sd_ - model.noise_sd_) < 4.5 * error_of_noise


def test_no_data_sets_have_no_fits():
    assert SparseBayesianRegression.fit_many([], SCALES) == []


# ---------------------------------------------------------------- the estimator


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"sampler": "vi"}, "sampler must be 'gibbs' or 'nuts'"),
        ({"prior_scale": 0.0}, "prior_scale must be a positive number"),
        ({"prior_scale": "wide"}, "prior_scale must be"),
        ({"draws": 0}, "draws must be at least 1"),
        ({"warmup": -1}, "warmup must be a whole number"),
        ({"chains": 1.5}, "chains must be a whole number"),
    ],
)
def test_bad_settings_are_named(diabetes, parameters, message):
    with pytest.raises(ValueError, match=message):
        SparseBayesianRegression(**parameters).fit(diabetes.X, diabetes.y)


def test_a_constant_target_is_refused(diabetes):
    with pytest.raises(ValueError, match="y is constant"):
        SparseBayesianRegression().fit(diabetes.X, np.full(150, 0.1))


def test_missing_inputs_are_refused(diabetes):
    X = diabetes.X.copy()
    X[3] = np.nan

    with pytest.raises(ValueError, match="NaN"):
        SparseBayesianRegression().fit(X, diabetes.y)


def test_one_row_is_refused(diabetes):
    with pytest.raises(ValueError, match="1 sample"):
        SparseBayesianRegression().fit(diabetes.X[:1], diabetes.y[:1])


def test_fewer_columns_than_in_the_fit_are_refused(model, diabetes):
    with pytest.raises(ValueError, match="9 features"):
        model.predict(diabetes.X[:, :9])


@ignore_few_draws
def test_the_contract_of_scikit_learn_holds():
    check_estimator(SparseBayesianRegression(draws=400, warmup=40, random_state=0), on_skip=None)
