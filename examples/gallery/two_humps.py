"""Sets of several pieces where a prediction has two humps.

The target is near +x or near -x, and nothing tells which. An interval must hold the gap between
them; sets by predictive density leave it out.
"""

import numpy as np
from matplotlib import pyplot as plt

import dco

rng = np.random.default_rng(0)
x = rng.uniform(0, 3, size=2000)
y = np.where(rng.random(2000) < 0.5, x, -x) + 0.3 * rng.normal(size=2000)


def mixture(x):
    return dco.GaussianMixtures(np.stack([x, -x]), np.array([0.3, 0.3]))


score = dco.scores.PredictiveDensity()
threshold = dco.split_conformal(score.observed(mixture(x[:1000]), y[:1000]), alpha=0.1)
line = np.linspace(0, 3, 120)
sets = score.sets(mixture(line), threshold)

plt.plot(x[1000:], y[1000:], ".", color="0.6", markersize=2)
for row, place in enumerate(line):
    for low, high in sets.pieces(row):
        plt.plot([place, place], [low, high], color="#1d5a9e", alpha=0.35, linewidth=2.5)
plt.xlabel("x")
plt.title(
    f"coverage {score.sets(mixture(x[1000:]), threshold).contains(y[1000:]).mean():.0%}",
    loc="left",
    fontsize=10,
)
