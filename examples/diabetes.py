"""The main job in a few lines: Diabetes, several models and scores, tuned, calibrated, evaluated,
printed as a table.
"""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import BayesianRidge

import dco
from dco.models import QuantilePair, ResidualSpread

ALPHA = 0.1


def main() -> None:
    X, y = load_diabetes(return_X_y=True)
    shuffled = np.random.default_rng(0).permutation(len(y))
    known, new = shuffled[:350], shuffled[350:]
    models = {
        "bayesian ridge": BayesianRidge(),
        "forest": RandomForestRegressor(200, min_samples_leaf=5),
        "spread": ResidualSpread(RandomForestRegressor(100, min_samples_leaf=5)),
        "quantiles": QuantilePair(
            HistGradientBoostingRegressor(max_iter=60, max_leaf_nodes=8), alpha=ALPHA
        ),
    }
    est = dco.DecoupledRegressor(models, alpha=ALPHA, tune_folds=5, random_state=0).fit(
        X[known], y[known]
    )

    table = Table(title="Candidates on tuning rows, best first")
    for heading in ("candidate", "mean width", "P95 width", "miscoverage"):
        table.add_column(heading, justify="left" if heading == "candidate" else "right")
    for row in est.ranking_.table:
        table.add_row(
            row.name, f"{row.mean_size:.1f}", f"{row.p95_size:.1f}", f"{row.miscoverage:.3f}"
        )
    console = Console(width=100)
    console.print(table)
    console.print(str(est.certificate_), markup=False)
    console.print("\nOn the rows that nothing has seen:", markup=False)
    console.print(str(est.evaluate(X[new], y[new])), markup=False)


if __name__ == "__main__":
    main()
