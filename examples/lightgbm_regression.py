"""LightGBM: quantile models, learned spreads and a grid of plain models compete; the best is
calibrated and saved.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import lightgbm
import numpy as np
from sklearn.datasets import load_diabetes

import dco
from dco.models import QuantilePair, ResidualSpread

ALPHA = 0.1


def main():
    X, y = load_diabetes(return_X_y=True)
    shuffled = np.random.default_rng(0).permutation(len(y))
    known, new = shuffled[:350], shuffled[350:]
    base = lightgbm.LGBMRegressor(
        n_estimators=60, num_leaves=7, min_child_samples=10, verbose=-1, n_jobs=1
    )
    models = {
        **dco.grid(base, learning_rate=[0.03, 0.1]),
        "quantiles": QuantilePair(base, alpha=ALPHA),
        "spread": ResidualSpread(base),
    }
    est = dco.DecoupledRegressor(models, alpha=ALPHA, tune_folds=5, random_state=0).fit(
        X[known], y[known]
    )
    for row in est.ranking_.table:
        print(f"{row.name:50} mean width {row.mean_size:.1f}")
    print(
        f"\n{est.certificate_.statement}\n\nOn the rows that nothing has "
        f"seen:\n{est.evaluate(X[new], y[new])}"
    )

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.dco"
        dco.save(est, path)
        # its types are not trusted unless they are named
        copy = dco.load(path, trusted=["lightgbm"])
        same = np.array_equal(copy.predict_set(X[new]).sizes(), est.predict_set(X[new]).sizes())
        print(
            f"\nsaved in {path.stat().st_size // 1024} kB; the loaded copy gives the same sets: "
            f"{same}"
        )


if __name__ == "__main__":
    main()
