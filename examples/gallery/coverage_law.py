"""Coverage varies from one calibration to the next, by a known law.

The histogram is the true coverage after 3,000 calibrations on 99 rows each; the curve is Beta(90,
10). The mean is the 90 % that was promised. More calibration rows make the curve narrower, and a
better model does not.
"""

import numpy as np
from matplotlib import pyplot as plt

import dco

rng = np.random.default_rng(0)
uniform_scores = rng.uniform(size=(3000, 99))  # for uniform scores, the threshold is the coverage
coverage = [dco.split_conformal(scores, alpha=0.1).value for scores in uniform_scores]

law = dco.theory.coverage_law(99, alpha=0.1)
grid = np.linspace(0.78, 0.99, 300)
plt.hist(coverage, bins=60, density=True, color="#bcd4ee")
plt.plot(grid, law.pdf(grid), color="#1d5a9e", label="Beta(90, 10)")
plt.axvline(0.9, color="0.2", linestyle="--", label="asked for")
plt.xlabel("coverage of new rows")
plt.yticks([])
plt.legend(frameon=False)
