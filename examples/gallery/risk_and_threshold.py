"""A loss other than miscoverage, and what each rule makes of it.

The loss is the share of true tags that a set leaves out. All rules promise a mean loss of at most
10 %: conformal risk control on average over calibrations, the others for this calibration with
confidence 95 %.
"""

import numpy as np
from matplotlib import pyplot as plt

from dco import risk

rng = np.random.default_rng(0)
truth = rng.uniform(size=(500, 6)) < 0.4
scores = rng.beta(np.where(truth, 1, 4), np.where(truth, 4, 1))  # small for likely tags
thresholds = np.linspace(0.01, 1, 100)
losses = risk.false_negative_rate(scores, truth, thresholds)

plt.plot(thresholds, losses.mean(axis=0), color="0.3", label="mean loss of 500 calibration rows")
plt.axhline(0.1, color="0.2", linestyle="--")
rules = {
    "conformal risk control": risk.conformal_risk_control(losses, thresholds, alpha=0.1),
    "Bayesian quadrature": risk.bayesian_quadrature_risk(losses, thresholds, alpha=0.1, delta=0.05),
    "RCPS by betting": risk.risk_controlling(losses, thresholds, alpha=0.1, delta=0.05),
}
for (name, rule), colour in zip(rules.items(), ("#1d5a9e", "#3a7d44", "#a8420f"), strict=True):
    plt.axvline(
        rule.value, ymax=0.65, color=colour, label=f"{name}: {rule.value:.2f} ({rule.guarantee})"
    )
plt.xlim(0.2, 0.8)
plt.ylim(0, 0.6)
plt.xlabel("threshold")
plt.ylabel("mean loss")
plt.legend(frameon=False, loc="upper right")
