"""What it costs to choose on the rows that calibrate.

200 candidates that are all equally good compete for the smallest sets. If the same 100 rows choose
and calibrate, the winner is the one whose threshold came out too low by chance, and coverage falls
far below the 90 % promised. If other rows choose, the winner's threshold is as good as any.
"""

import numpy as np
from matplotlib import pyplot as plt

import dco

rng = np.random.default_rng(0)
rank = dco.conformal_rank(100, alpha=0.1)


def one_run():
    """Scores of 200 candidates are independent and uniform, so a threshold is its own coverage, and
    the set size too.
    """
    tune, calibrate = np.partition(rng.uniform(size=(2, 200, 100)), rank - 1)[..., rank - 1]
    return calibrate.min(), calibrate[np.argmin(tune)]


same, decoupled = np.transpose([one_run() for _ in range(400)])
bins = np.linspace(0.65, 1, 60)
plt.hist(
    same,
    bins=bins,
    color="#a8420f",
    alpha=0.6,
    label=f"chosen on calibration rows: {same.mean():.0%} on average",
)
plt.hist(
    decoupled,
    bins=bins,
    color="#1d5a9e",
    alpha=0.6,
    label=f"chosen on other rows: {decoupled.mean():.0%} on average",
)
plt.axvline(0.9, ymax=0.8, color="0.2", linestyle="--")
plt.ylim(0, 100)
plt.xlabel("coverage of new rows")
plt.ylabel("runs of 400")
plt.legend(frameon=False, loc="upper left")
