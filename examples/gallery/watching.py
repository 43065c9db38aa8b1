"""Watching a fit while rows arrive: the alarm comes soon after a change.

From row 500 on the noise is 1.5 times as large. The p-value may be looked at after every batch: if
nothing had changed, it would ever fall to 0.05 with probability at most 5 %.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.linear_model import Ridge

import dco

rng = np.random.default_rng(0)


def made_rows(n, noise):
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + noise * rng.normal(size=n)


est = dco.DecoupledRegressor(Ridge(), dco.scores.AbsoluteResidual(), alpha=0.1, random_state=0).fit(
    *made_rows(4000, 1.0)
)
monitor = dco.Monitor(est, error_rate=0.05)
reports = [monitor.update(*made_rows(20, 1.0 if batch < 25 else 1.5)) for batch in range(40)]
rows = [report.rows for report in reports]
first = next(report.rows for report in reports if report.alarm)

figure, (above, below) = plt.subplots(2, 1, sharex=True)
above.plot(rows, [report.coverage for report in reports], color="#1d5a9e")
above.fill_between(rows, *np.transpose([report.interval for report in reports]), color="#bcd4ee")
above.axhline(0.9, color="0.2", linestyle="--")
above.set(ylabel="coverage", ylim=(0.5, 1))
below.semilogy(rows, [report.p_value for report in reports], color="#a8420f")
below.axhline(0.05, color="0.2", linestyle="--")
below.set(ylabel="p-value", xlabel=f"rows watched; the change is at 500, the alarm at {first}")
for panel in (above, below):
    panel.axvline(500, color="0.7")
