"""The Diabetes table (50 splits, two priors, every method but CQR): ours against a fresh NumPyro
run a fit and SciPy grids.

    python benchmarks/diabetes_table.py --seeds 2

Both ways are run on the same splits in this process and scaled to 50; compilation is counted where
it happens, once for ours and in every fresh run for NumPyro. Ours fits four models a split (two
priors, each again with tuning rows), and so does the plain way; what it would save by refitting the
chosen prior only is printed too. The plain way evaluates a density on a grid only for rows whose
widths some method asks for (tune and test rows of the first fits, test rows of the deployed refit).
Written method by method it does so for every threshold; the least it can do is once for all of
them. That is what is run; the grids of the other thresholds are counted at what the same grids
took. Thresholds of the other methods and the ridge, which cost it next to nothing, are left out of
it.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

from harness import conditions, once, table, verdict  # isort: skip (sets the threads)

import numpy as np
from scipy.special import logsumexp

from dco import split_conformal
from dco.bayes.diagnostics import effective_sample_size
from dco.foundations.ranks import order_statistic
from dco.paper import Options
from dco.paper.regression_splits import (
    PRIOR_SCALES,
    STUDIES,
    Outcome,
    SplitFacts,
    load_rows,
    paper_split,
    run_split,
)
from dco.predictions import Points
from dco.scores.regression import AbsoluteResidual

ALPHA = 0.2
POINTS = 400
# tuning rows, split CP, BQ and BQ at a share of delta: each compares the priors by widths on tuning
# rows
TUNING_RULES = 4


def ours(seed: int, draws: int) -> dict[str, float]:
    """The experiment as the library runs it, without CQR; the mean width by method, and "ess" as in
    `plain`.
    """
    study = replace(STUDIES["diabetes"], has_baselines=False, draws=draws)
    rows = run_split(seed, Options(alphas=(ALPHA,)), study=study)
    widths = {row.method: row.width for row in rows if isinstance(row, Outcome)}
    (facts,) = (row for row in rows if isinstance(row, SplitFacts))
    return widths | {"Split CP (ridge)": ridge_width(seed), "ess": facts.ess}


def ridge_width(seed: int) -> float:
    """Split CP on a ridge regression."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = load_rows("diabetes", None)
    splits = paper_split(len(rows), seed)
    model = make_pipeline(StandardScaler(), Ridge()).fit(rows.X[splits.train], rows.y[splits.train])
    observed = AbsoluteResidual().observed(
        Points(model.predict(rows.X[splits.calibrate])), rows.y[splits.calibrate]
    )
    return 2 * float(split_conformal(observed, alpha=ALPHA)) / float(rows.y[splits.train].std())


def plain_fit(
    X: np.ndarray, y: np.ndarray, c: float, *, seed: int, draws: int
) -> dict[str, np.ndarray]:
    """The model as one would write it in NumPyro, run anew: its draws on the scale of the data, and
    their worth.
    """
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    def model(Z: Any, t: Any) -> None:
        b = numpyro.sample("b", dist.Gamma(1.0, 1.0))
        tau = numpyro.sample("tau", dist.HalfNormal(c))
        theta = numpyro.sample("theta", dist.Laplace(0.0, b).expand([Z.shape[1]]).to_event(1))
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 10.0))
        numpyro.sample("t", dist.Normal(Z @ theta + intercept, tau), obs=t)

    centre, scale, mean, sd = X.mean(0), X.std(0), y.mean(), y.std()
    run = MCMC(NUTS(model), num_warmup=600, num_samples=draws, progress_bar=False)
    run.run(
        jax.random.PRNGKey(seed), jnp.asarray((X - centre) / scale), jnp.asarray((y - mean) / sd)
    )
    found = {name: np.asarray(value, dtype=np.float64) for name, value in run.get_samples().items()}
    ess = effective_sample_size(np.column_stack(list(found.values()))[None]).min()
    slopes, intercept = found["theta"] * sd / scale, mean + sd * found["intercept"]
    return {
        "slopes": slopes,
        "intercept": intercept - slopes @ centre,
        "sd": sd * found["tau"],
        "ess": ess,
    }


def plain_scores(fit: dict[str, np.ndarray], X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """-log of the posterior predictive density at y: one row of X a value, or one row for all of
    them.
    """
    z = (y[:, None] - X @ fit["slopes"].T - fit["intercept"]) / fit["sd"]
    return -(
        logsumexp(-0.5 * z**2 - np.log(fit["sd"]), axis=1)
        - np.log(len(fit["sd"]))
        - 0.5 * np.log(2 * np.pi)
    )


def plain_grid(fit: dict[str, np.ndarray], X: np.ndarray, low: float, high: float) -> np.ndarray:
    """-log density of each row at the points of one grid, (rows, POINTS)."""
    grid = np.linspace(low, high, POINTS)
    return np.stack([plain_scores(fit, x[None], grid) for x in X])


def plain(seed: int, draws: int) -> dict[str, float]:
    """The same thresholds and widths from fresh fits and grids.

    "spare" is the CPU time of a refit that is not deployed, "tune" and "test" that of the grids of
    a candidate's rows. "ess" is the least effective number of draws of a fit.
    """
    rows = load_rows("diabetes", None)
    splits = paper_split(len(rows), seed)
    train, unit = splits.train, float(rows.y[splits.train].std())
    low, high = rows.y.min() - 3 * unit, rows.y.max() + 3 * unit
    step = (high - low) / (POINTS - 1)

    def measured(
        fit: dict[str, np.ndarray], *, scored: tuple[str, ...], sized: tuple[str, ...]
    ) -> dict[str, Any]:
        scores = {
            role: plain_scores(fit, rows.X[roles[role]], rows.y[roles[role]]) for role in scored
        }
        timed = {
            role: once(partial(plain_grid, fit, rows.X[roles[role]], low, high)) for role in sized
        }
        grids = {role: grid for role, (_, grid) in timed.items()}
        seconds = {role: taken for role, (taken, _) in timed.items()}
        return {"scores": scores, "grid": grids, "seconds": seconds, "ess": fit["ess"]}

    def width(candidate: dict[str, Any], role: str, threshold: float) -> float:
        return float((candidate["grid"][role] <= threshold).sum(axis=1).mean() * step / unit)

    roles = {"tune": splits.tune, "calibrate": splits.calibrate, "test": splits.test}
    candidates = {}
    for c in PRIOR_SCALES:
        fit = plain_fit(rows.X[train], rows.y[train], c, seed=seed, draws=draws)
        candidates[c] = measured(fit, scored=("tune", "calibrate", "test"), sized=("tune", "test"))
    tuned = {}
    for c, candidate in candidates.items():
        scores = candidate["scores"]["tune"]
        tuned[c] = order_statistic(scores, len(scores) - int(ALPHA * len(scores)))
    best = min(candidates, key=lambda c: width(candidates[c], "tune", tuned[c]))
    both = np.concatenate([train, splits.tune])
    refits, seconds = {}, {}
    for c in PRIOR_SCALES:

        def refitted(c: float = c) -> dict[str, Any]:
            fit = plain_fit(rows.X[both], rows.y[both], c, seed=seed + 1, draws=draws)
            return (
                measured(fit, scored=("calibrate", "test"), sized=("test",)) if c == best else fit
            )

        seconds[c], refits[c] = once(refitted)
    widths = {"spare": sum(taken for c, taken in seconds.items() if c != best)}
    widths |= {
        role: float(np.mean([each["seconds"][role] for each in candidates.values()]))
        for role in ("tune", "test")
    }
    widths["ess"] = min(float(fit["ess"]) for fit in (*candidates.values(), *refits.values()))
    for name, candidate in (("DCO-Warmstart", candidates[best]), ("DCO, refit", refits[best])):
        widths[name] = width(
            candidate, "test", float(split_conformal(candidate["scores"]["calibrate"], alpha=ALPHA))
        )
    return widths


def measure(seeds: int, draws: int, splits: int = 50) -> str:
    """One table."""
    mine = [once(partial(ours, seed, draws)) for seed in range(seeds + 2)]
    theirs = [once(partial(plain, seed, draws)) for seed in range(seeds)]
    again = float(np.mean([seconds for seconds, _ in mine[1:]]))
    our_total = mine[0][0] + (splits - 1) * again
    plain_total = splits * float(np.mean([seconds for seconds, _ in theirs]))
    spare, tune, test = (
        splits * float(np.mean([found[part] for _, found in theirs]))
        for part in ("spare", "tune", "test")
    )
    methods = len(mine[0][1]) - 2  # without the ridge; "ess" is none
    by_method = (
        plain_total
        + (TUNING_RULES - 1) * len(PRIOR_SCALES) * tune
        + (methods - len(PRIOR_SCALES) - 1) * test
    )
    ratio = plain_total / our_total
    rows: list[list[object]] = [
        [
            f"NumPyro anew a fit, SciPy grids that all methods share / ours, CPU, "
            f"scaled from {seeds} and {seeds + 2} splits to {splits}",
            f"{ratio:.0f}",
            verdict(ratio, at_least=60),
        ],
        [
            "the same, if only the chosen prior is refitted (ours refits both)",
            f"{(plain_total - spare) / our_total:.0f}",
            "",
        ],
        [
            f"with a grid for each of {methods} methods (the others counted at what the shared "
            f"grids took, not run)",
            f"{by_method / our_total:.0f}",
            "",
        ],
        [
            "one split the plain way / one of ours after the first",
            f"{plain_total / splits / again:.0f}",
            "",
        ],
        [
            "our first split (with what is compiled or loaded once) / a later one",
            f"{mine[0][0] / again:.1f}",
            "",
        ],
    ]
    worth = [min(found["ess"] for _, found in each) for each in (mine, theirs)]
    rows.append(
        [
            "least effective draws of a fit, ours and plain",
            f"{worth[0]:,.0f} and {worth[1]:,.0f}",
            "",
        ]
    )
    for name in ("DCO-Warmstart", "DCO, refit"):
        pairs = "; ".join(
            f"{mine[seed][1][name]:.3f} and {theirs[seed][1][name]:.3f}" for seed in range(seeds)
        )
        rows.append([f"{name}: mean width, ours and plain, by split", pairs, "about equal"])
    return table([f"Diabetes table, {draws:,} draws", "measured", "target"], rows)


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--draws", type=int, default=8000)
    given = parser.parse_args()
    print(conditions() + "\n")
    print(measure(given.seeds, given.draws))


if __name__ == "__main__":
    main()
