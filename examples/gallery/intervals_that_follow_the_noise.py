"""Intervals of one width, and intervals that follow the noise.

Both cover 90 % of all rows. Only the second, from two quantile models, covers about 90 % where rows
are noisy as well.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.ensemble import HistGradientBoostingRegressor

import dco

rng = np.random.default_rng(0)
x = rng.uniform(-3, 3, size=(3000, 1))
y = np.sin(x[:, 0]) + (0.1 + 0.3 * np.abs(x[:, 0])) * rng.normal(size=3000)
trees = HistGradientBoostingRegressor(max_iter=60, max_leaf_nodes=6)
models = {"one width": trees, "two quantiles": dco.models.QuantilePair(trees, alpha=0.1)}

line = np.linspace(-3, 3, 200)[:, None]
figure, panels = plt.subplots(1, 2, sharey=True)
for panel, (name, model) in zip(panels, models.items(), strict=True):
    est = dco.DecoupledRegressor(model, alpha=0.1, random_state=0).fit(x[:2000], y[:2000])
    sets = est.predict_set(line)
    panel.plot(x[2000:], y[2000:], ".", color="0.6", markersize=2)
    panel.fill_between(line[:, 0], sets.lower, sets.upper, color="#1d5a9e", alpha=0.3)
    noisy = np.abs(x[2000:, 0]) > 2
    hits = est.predict_set(x[2000:]).contains(y[2000:])
    panel.set_title(
        f"{name}: covers {hits.mean():.0%},\n{hits[noisy].mean():.0%} where |x| > 2",
        loc="left",
        fontsize=10,
    )
