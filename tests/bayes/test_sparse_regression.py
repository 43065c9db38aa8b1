"""Sparse Bayesian regression: the samplers against laws, quadrature and each other; the estimator
against its contract.
"""

import itertools

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid
from scipy.stats import expon, kstest, laplace, norm
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

from dco.bayes import SparseBayesianRegression, random_variates
from dco.bayes.diagnostics import effective_sample_size, split_rhat
from dco.bayes.random_variates import generalised_inverse_gaussian, laplace_variances
from dco.bayes.samplers import SufficientStatistics, gibbs_draws, nuts_draws
from dco.bayes.sparse_regression import standardise_rows

SCALES = (1.0, 0.02)


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))
    return X[rows[:150]], y[rows[:150]], X[rows[150:]], y[rows[150:]]


@pytest.fixture(scope="module")
def both_samplers(diabetes):
    X, y, _, _ = diabetes
    gibbs = SparseBayesianRegression.fit_many([(X, y)], SCALES, draws=24_000, random_state=1)[0]
    nuts = SparseBayesianRegression.fit_many(
        [(X, y)], SCALES, draws=2_400, warmup=400, sampler="nuts", random_state=2
    )[0]
    return list(zip(gibbs, nuts, strict=True))


@pytest.mark.parametrize("order", [0.0, 1e-6, -0.3, 1.0, -20.0, 1e3, -5e5])
def test_generalised_inverse_gaussian_follows_its_law_from_tiny_to_huge_parameters(order):
    """Against the density of log x, which is concave, added up on a grid; -5e5 is the order for a
    million rows.
    """
    rng = np.random.default_rng(1)
    for omega in (1e-6, 1e-2, 1.0, 30.0, 1e4, 1e6):
        a, b = omega * 0.1, omega / 0.1
        mode = np.log(
            (order + np.hypot(order, omega)) / a
            if order >= 0
            else b / (np.hypot(order, omega) - order)
        )

        def log_density(off, mode=mode, a=a, b=b):
            return order * off - 0.5 * (
                a * np.exp(mode) * np.expm1(off) + b * np.exp(-mode) * np.expm1(-off)
            )

        ends = []
        for end in (-1e-6, 1e-6):
            while log_density(end) > -40:
                end *= 1.2
            ends.append(end)
        off = np.linspace(*ends, 20_001)
        reached = cumulative_trapezoid(np.exp(log_density(off)), off, initial=0)
        draws = generalised_inverse_gaussian(
            rng, *(np.full(20_000, value) for value in (order, a, b))
        )
        uniforms = np.interp(np.log(draws) - mode, off, reached / reached[-1])
        assert kstest(uniforms, "uniform").pvalue > 1e-4, omega


def test_generalised_inverse_gaussian_accepts_most_proposals_whatever_its_parameters(monkeypatch):
    class Counting:
        def __init__(self):
            self.rng, self.made = np.random.default_rng(0), 0

        def random(self, shape):
            self.made += shape[1] * shape[2]
            return self.rng.random(shape)

    monkeypatch.setattr(random_variates, "PROPOSALS", 1)
    orders, omegas = np.append(0.0, np.geomspace(1e-6, 1e6, 13)), np.geomspace(1e-8, 1e6, 15)
    for order, omega in itertools.product(orders, omegas):
        counting = Counting()
        draws = generalised_inverse_gaussian(
            counting, *(np.full(4000, value) for value in (order, omega, omega))
        )
        assert np.all((draws > 0) & np.isfinite(draws))
        # the least share is about 0.64, the spread over draws 0.005
        assert counting.made < 4000 / 0.6, (order, omega)


def test_laplace_is_a_scale_mixture_of_the_variances_drawn():
    """θ ~ Laplace(0, b), then s | θ: s is Exponential(mean 2b²), and θ / sqrt(s) is standard normal
    whatever s.
    """
    rng = np.random.default_rng(0)
    b = 0.3
    theta = laplace(scale=b).rvs(size=20_000, random_state=rng)
    s = laplace_variances(rng, theta, np.full(theta.shape, b))
    assert kstest(s, expon(scale=2 * b**2).cdf).pvalue > 1e-3
    for half in (s < np.median(s), s >= np.median(s)):
        assert kstest(theta[half] / np.sqrt(s[half]), norm.cdf).pvalue > 1e-3


def _moments_by_quadrature(x, y, c):
    """Posterior means and sds of (θ, b, τ) for one input, the intercept integrated in closed form,
    on a fine grid.
    """
    theta = np.linspace(-4, 4, 241)[:, None, None]
    log_b = np.linspace(-7, 3, 161)[None, :, None]
    log_tau = np.linspace(-5, 2, 161)[None, None, :]
    b, tau, n = np.exp(log_b), np.exp(log_tau), len(y)
    residuals = y - theta[..., None] * x
    total, squares = residuals.sum(axis=-1), (residuals**2).sum(axis=-1)
    # N(residuals; 0, τ²I + 100·11'): one direction has variance τ² + 100 n, the others τ².
    wide = tau**2 + 100 * n
    log_p = (
        -(n - 1) * log_tau
        - 0.5 * np.log(wide)
        - 0.5 * ((squares - total**2 / n) / tau**2 + total**2 / n / wide)
    )
    log_p = log_p - np.abs(theta) / b - log_b - b - 0.5 * (tau / c) ** 2 + log_b + log_tau
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    return [
        ((v * p).sum(), np.sqrt((v**2 * p).sum() - (v * p).sum() ** 2)) for v in (theta, b, tau)
    ]


@pytest.mark.parametrize("c", [1.0, 0.3])
@pytest.mark.parametrize("sampler", ["gibbs", "nuts"])
def test_posterior_equals_quadrature_in_one_dimension(sampler, c):
    """Five rows, so that every prior matters; means and sds within 4.5 Monte-Carlo standard
    errors.
    """
    x, y = np.array([-1.2, -0.5, 0.1, 0.6, 1.0]), np.array([-0.9, -0.2, 0.4, 0.1, 1.3])
    statistics = SufficientStatistics.from_datasets([(x[:, None], y)])
    if sampler == "gibbs":
        chains = gibbs_draws(
            statistics,
            np.array([c]),
            chains=50,
            draws=800,
            warmup=300,
            rng=np.random.default_rng(0),
        )[0]
    else:
        chains = nuts_draws(statistics, np.array([c]), chains=40, draws=500, warmup=400, seed=0)[0]
    found = chains[..., [0, 2, 3]]
    for j, (mean, sd) in enumerate(_moments_by_quadrature(x, y, c)):
        draws = found[..., j]
        squares = (draws - mean) ** 2
        assert abs(draws.mean() - mean) < 4.5 * sd / np.sqrt(effective_sample_size(draws))
        assert abs(squares.mean() - sd**2) < 4.5 * squares.std() / np.sqrt(
            effective_sample_size(squares)
        )


def test_gibbs_and_nuts_have_the_same_posterior_on_diabetes(both_samplers):
    """Every mean within 4 standard errors, every sd within 15 %, for both prior scales; both have
    converged.
    """
    for gibbs, nuts in both_samplers:
        assert gibbs.rhat_ <= 1.01
        assert nuts.rhat_ <= 1.02  # 2,400 draws: R-hat itself is noisy to about 1 %
        assert gibbs.ess_ > 6_000
        assert nuts.ess_ > 600
        for name in ("coef_draws_", "intercept_draws_", "noise_sd_draws_", "prior_width_draws_"):
            a, b = getattr(gibbs, name), getattr(nuts, name)
            error = b.std(axis=0) * np.sqrt(1 / gibbs.ess_ + 1 / nuts.ess_)
            assert np.all(np.abs(a.mean(axis=0) - b.mean(axis=0)) < 4 * error), name
            np.testing.assert_allclose(a.std(axis=0), b.std(axis=0), rtol=0.15)


def test_noise_prior_binds_on_diabetes_as_in_the_paper():
    """Training splits of 150 rows: noise sd near .716 for c = 1 and .378 for c = .02, in units of
    the targets' sd.
    """
    X, y = load_diabetes(return_X_y=True)
    rng = np.random.default_rng(3)
    splits = [rng.permutation(len(y))[:150] for _ in range(30)]
    fits = SparseBayesianRegression.fit_many(
        [(X[i], y[i]) for i in splits], SCALES, draws=4000, warmup=100, random_state=0
    )
    noise = np.array([[model.noise_sd_ / model.y_scale_ for model in row] for row in fits])
    error = noise.std(axis=0) / np.sqrt(len(splits))
    assert np.all(np.abs(noise.mean(axis=0) - (0.716, 0.378)) < 4 * error + 0.001)


def test_effective_sample_size_of_an_autoregression():
    """AR(1) with coefficient ρ: N (1 - ρ) / (1 + ρ) effective draws."""
    rng = np.random.default_rng(0)
    rho, n = 0.6, 20_000
    x = np.empty((4, n))
    x[:, 0] = rng.standard_normal(4) / np.sqrt(1 - rho**2)
    for t in range(1, n):
        x[:, t] = rho * x[:, t - 1] + rng.standard_normal(4)
    assert effective_sample_size(x) == pytest.approx(4 * n * (1 - rho) / (1 + rho), rel=0.1)
    assert effective_sample_size(rng.standard_normal((4, n))) == pytest.approx(4 * n, rel=0.1)
    assert split_rhat(x) < 1.01
    assert split_rhat(x + np.array([0, 0, 0, 5])[:, None]) > 1.5
    assert split_rhat(x + np.linspace(0, 8, n)) > 1.5


def test_few_draws_are_called_out(diabetes):
    X, y, _, _ = diabetes
    with pytest.warns(ConvergenceWarning, match="effective draws"):
        model = SparseBayesianRegression(draws=40, warmup=5, random_state=0).fit(X, y)
    assert model.ess_ < 400
    with pytest.warns(ConvergenceWarning) as told:
        SparseBayesianRegression(draws=3, warmup=5, random_state=0).fit(X, y)
    assert told[0].filename == __file__  # the warning points at the caller


def test_predictions_are_the_moments_of_the_mixture(diabetes):
    X, y, X_new, _ = diabetes
    model = SparseBayesianRegression(draws=2001, random_state=0).fit(X, y)
    mixture = model.predict_distribution(X_new)
    assert mixture.means.shape == (2001, len(X_new))
    mean, sd = model.predict(X_new, return_std=True)
    np.testing.assert_allclose(mean, mixture.means.mean(axis=0))
    np.testing.assert_allclose(sd, np.sqrt(mixture.means.var(axis=0) + np.mean(mixture.sds**2)))
    np.testing.assert_array_equal(model.predict(X_new), mean)


def test_units_of_the_caller_come_back_and_a_constant_column_changes_nothing(diabetes):
    """Another origin and unit for every column and for y: the same predictions in the new unit."""
    X, y, X_new, _ = diabetes
    plain = SparseBayesianRegression(draws=1600, random_state=0).fit(X, y)
    shift, unit = np.linspace(-3, 5, X.shape[1]), np.linspace(0.5, 20, X.shape[1])
    other = SparseBayesianRegression(draws=1600, random_state=0).fit(X * unit + shift, 100 * y - 7)
    np.testing.assert_allclose(
        other.predict(X_new * unit + shift), 100 * plain.predict(X_new) - 7, rtol=1e-6
    )
    np.testing.assert_allclose(other.noise_sd_draws_, 100 * plain.noise_sd_draws_, rtol=1e-6)
    wider = SparseBayesianRegression(draws=1600, random_state=0).fit(
        np.insert(X, 3, 0.1, axis=1), y
    )
    np.testing.assert_allclose(
        wider.predict(np.insert(X_new, 3, 9.0, axis=1)), plain.predict(X_new), rtol=1e-9
    )


@pytest.mark.parametrize("sampler", ["gibbs", "nuts"])
def test_only_constant_columns_leave_the_mean(sampler):
    y = np.random.default_rng(0).normal(5, 2, size=50)
    model = SparseBayesianRegression(draws=4000, sampler=sampler, random_state=0).fit(
        np.ones((50, 2)), y
    )
    np.testing.assert_array_equal(model.coef_, 0)
    assert model.predict([[7.0, 8.0]])[0] == pytest.approx(y.mean(), abs=0.05)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_more_columns_than_rows_and_two_rows_are_answered():
    """With 60 inputs and 30 rows the prior carries the fit; the one real effect is found."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 60))
    y = 3 * X[:, 0] + 0.3 * rng.standard_normal(30)
    wide = SparseBayesianRegression(draws=2000, random_state=0).fit(X, y)
    two = SparseBayesianRegression(draws=2000, random_state=0).fit(X[:2, :3], y[:2])
    assert np.argmax(np.abs(wide.coef_)) == 0
    assert wide.coef_[0] > 1
    mean, sd = two.predict(X[:, :3], return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(sd > 0)
    perfect = SparseBayesianRegression(draws=2000, random_state=0).fit(
        X[:, :3], X[:, :3] @ [1.0, 2.0, 3.0]
    )
    np.testing.assert_allclose(perfect.coef_, [1, 2, 3], rtol=1e-4)
    assert 0 < perfect.noise_sd_ < 1e-4


def test_fit_many_runs_every_split_with_every_prior(diabetes):
    """Data sets may differ in rows and in constant columns; each agrees with a fit of its own
    within error.
    """
    X, y, _, _ = diabetes
    holed = X[:100].copy()
    holed[:, 2] = 1.0
    datasets = [(X, y), (holed, y[:100]), (X[:80], y[:80])]
    fits = SparseBayesianRegression.fit_many(datasets, SCALES, draws=4000, random_state=0)
    assert [len(row) for row in fits] == [2, 2, 2]
    for (inputs, targets), row in zip(datasets, fits, strict=True):
        for scale, model in zip(SCALES, row, strict=True):
            assert model.prior_scale == scale
            alone = SparseBayesianRegression(scale, draws=4000, random_state=5).fit(inputs, targets)
            error = alone.coef_draws_.std(axis=0) * np.sqrt(1 / alone.ess_ + 1 / model.ess_)
            assert np.all(np.abs(alone.coef_ - model.coef_) <= 4.5 * error)
            assert abs(
                alone.noise_sd_ - model.noise_sd_
            ) < 4.5 * alone.noise_sd_draws_.std() * np.sqrt(2 / alone.ess_)
    assert SparseBayesianRegression.fit_many([], SCALES) == []


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
    X, y, _, _ = diabetes
    with pytest.raises(ValueError, match=message):
        SparseBayesianRegression(**parameters).fit(X, y)


def test_bad_rows_are_named(diabetes):
    X, y, _, _ = diabetes
    model = SparseBayesianRegression(draws=2000, warmup=50, random_state=0)
    with pytest.raises(ValueError, match="y is constant"):
        model.fit(X, np.full(len(y), 0.1))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(np.arange(len(X))[:, None] == 3, np.nan, X), y)
    with pytest.raises(ValueError, match="1 sample"):
        model.fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="9 features"):
        model.fit(X, y).predict(X[:, :9])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_contract_and_the_seed_decides_the_draws(diabetes):
    check_estimator(SparseBayesianRegression(draws=400, warmup=40, random_state=0), on_skip=None)
    X, y, _, _ = diabetes
    options = {"draws": 400, "warmup": 50}
    first, again, other = (
        SparseBayesianRegression(random_state=seed, **options).fit(X[:, :2], y)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.coef_draws_, again.coef_draws_)
    assert not np.any(first.noise_sd_draws_ == other.noise_sd_draws_)


def test_a_count_that_the_chains_do_not_divide_cuts_the_last_steps():
    """Four chains of three steps for ten draws: the third step of two chains is left out, and no
    chain is cut short.
    """
    data = standardise_rows(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 2.0, 4.0]))
    chains = np.zeros((4, 3, 4))
    # step and chain, where the noise is kept
    chains[..., -1] = 10 * np.arange(1, 4) + np.arange(4)[:, None]
    model = SparseBayesianRegression(draws=10)
    with pytest.warns(ConvergenceWarning):
        model._store_draws(chains, data)
    kept = [10, 11, 12, 13, 20, 21, 22, 23, 30, 31]
    np.testing.assert_allclose(model.noise_sd_draws_ / data.y_scale, kept)
