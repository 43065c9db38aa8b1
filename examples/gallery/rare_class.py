"""A rare class, without and with a threshold of its own.

The plain guarantee is about all rows together and can be met while the rare class is missed most of
the time. ``condition_on="label"`` promises 90 % for each class.
"""

import warnings

import numpy as np
from matplotlib import pyplot as plt
from sklearn.linear_model import LogisticRegression

import dco

# fit sees the rare class and says so: here on purpose
warnings.filterwarnings("ignore", "On the tuning rows")
rng = np.random.default_rng(0)
rare = rng.random(12000) < 0.08
X = rng.normal(size=(12000, 2)) + 1.6 * rare[:, None]
y = np.where(rare, "rare", "common")

for shift, colour, condition_on in ((-0.2, "#bcd4ee", None), (0.2, "#1d5a9e", "label")):
    est = dco.DecoupledClassifier(
        LogisticRegression(), alpha=0.1, condition_on=condition_on, random_state=0
    )
    found = est.fit(X[:6000], y[:6000]).evaluate(X[6000:], y[6000:], by="label")
    coverage = [row.coverage for row in found.by_group]
    label = "one threshold" if condition_on is None else "one threshold per class"
    plt.bar(
        np.arange(2) + shift,
        coverage,
        0.38,
        color=colour,
        label=f"{label}, mean size {found.mean_size:.2f}",
    )
plt.xticks([0, 1], [f"{row.group} ({row.n} rows)" for row in found.by_group])
plt.axhline(0.9, color="0.2", linestyle="--")
plt.ylim(0, 1.3)
plt.ylabel("coverage")
plt.legend(frameon=False, loc="upper right")
