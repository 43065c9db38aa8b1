"""One width for all, and what the default candidates give, on skewed prices.

Both keep 90 % over all rows. The plain intervals do so by always covering cheap homes and covering
expensive ones too seldom; the default candidates contain widths that follow the row, and the search
weighs evenness beside size.
"""

import warnings

import numpy as np
from matplotlib import pyplot as plt
from sklearn.ensemble import HistGradientBoostingRegressor

import dco

warnings.filterwarnings("ignore", "All intervals have the same width")
rng = np.random.default_rng(0)
X = rng.normal(size=(5000, 3))
price = np.exp(11 + 0.6 * X[:, 0] + 0.3 * X[:, 1]) * np.exp(0.3 * rng.normal(size=5000))
known, new = slice(0, 2500), slice(2500, None)

plain = dco.DecoupledRegressor(
    HistGradientBoostingRegressor(), dco.scores.AbsoluteResidual(), random_state=0
)
default = dco.DecoupledRegressor(support=(0, None), random_state=0)
for shift, colour, name, est in (
    (-0.2, "#bcd4ee", "one width", plain),
    (0.2, "#1d5a9e", "default candidates", default),
):
    found = est.fit(X[known], price[known]).evaluate(X[new], price[new])
    fifths = [row.coverage for row in found.slices if row.by == "fifth"]
    plt.bar(
        np.arange(1, 6) + shift,
        fifths,
        0.38,
        color=colour,
        label=f"{name}, mean width {found.mean_size:,.0f}",
    )
plt.axhline(0.9, color="0.2", linestyle="--")
plt.xlabel("fifth of the prediction, cheap to dear")
plt.ylabel("coverage")
plt.ylim(0.5, 1.2)
plt.legend(frameon=False, loc="upper right")
