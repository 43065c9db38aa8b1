"""How many calibration rows make coverage steady.

The band holds the coverage of 90 % of all calibrations. It narrows with the square root of the
number of rows, for every model. PAC thresholds lift the whole band above the line.
"""

import numpy as np
from matplotlib import pyplot as plt

import dco

sizes = np.unique(np.geomspace(40, 4000, 60).astype(int))
for name, colour in (("marginal", "#1d5a9e"), ("PAC, 95 % confidence", "#a8420f")):
    laws = []
    for n in map(int, sizes):
        rank = (
            dco.conformal_rank(n, alpha=0.1)
            if name == "marginal"
            else dco.pac_rank(n, alpha=0.1, delta=0.05)
        )
        laws.append(dco.theory.coverage_law_of_rank(rank, n))
    plt.fill_between(
        sizes, *np.transpose([law.ppf([0.05, 0.95]) for law in laws]), color=colour, alpha=0.25
    )
    plt.plot(sizes, [law.mean() for law in laws], color=colour, label=name)
plt.axhline(0.9, color="0.2", linestyle="--")
plt.xscale("log")
plt.xlabel("calibration rows")
plt.ylabel("coverage of new rows")
plt.legend(frameon=False)
