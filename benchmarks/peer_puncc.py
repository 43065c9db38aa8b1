"""puncc on arrays saved by label_sets.py, in an environment of its own: it needs NumPy below 2.
Prints JSON.

    python benchmarks/peer_puncc.py FOLDER REPEATS

The folder holds cal.npy, y_cal.npy and test.npy; sets go back as LAC.npy, APS.npy and RAPS.npy
(packed bits).
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np


def least(job, repeats):
    job()  # not timed
    times = []
    for _ in range(repeats):
        start = time.process_time()
        result = job()
        times.append(time.process_time() - start)
    return min(times), result


def main() -> None:
    from deel.puncc.api.prediction import BasePredictor
    from deel.puncc.classification import APS, LAC, RAPS

    folder, repeats = Path(sys.argv[1]), int(sys.argv[2])
    settings = json.loads((folder / "settings.json").read_text())
    cal, y_cal, test = (np.load(folder / f"{name}.npy") for name in ("cal", "y_cal", "test"))

    class Given(BasePredictor):
        """A predictor whose probabilities are known: the first entry of X says which rows are
        meant.
        """

        def predict(self, X, **kwargs):
            return cal if X[0, 0] == 0 else test

    X_cal, X_test = np.zeros((len(cal), 1)), np.ones((len(test), 1))
    rules = {
        "LAC": lambda: LAC(Given(object(), is_trained=True), train=False),
        "APS": lambda: APS(Given(object(), is_trained=True), train=False, rand=False),
        "RAPS": lambda: RAPS(
            Given(object(), is_trained=True),
            train=False,
            lambd=settings["penalty"],
            k_reg=settings["rank_free"],
            rand=False,
        ),
    }
    found = {}
    for name, rule in rules.items():

        def job(rule=rule):
            fitted = rule()
            # fits nothing: train=False
            fitted.fit(X_fit=X_cal[:1], y_fit=y_cal[:1], X_calib=X_cal, y_calib=y_cal)
            return fitted.predict(X_test, alpha=settings["alpha"])[1]

        try:
            seconds, sets = least(job, repeats)
        except Exception as problem:
            found[name] = {"failed": f"{type(problem).__name__}: {problem}"}
            continue
        members = np.zeros(test.shape, dtype=bool)
        for row, labels in enumerate(sets):
            members[row, np.asarray(labels, dtype=np.int64)] = True
        np.save(folder / f"{name}.npy", np.packbits(members, axis=1))
        found[name] = {"seconds": seconds}
    print(json.dumps({"numpy": np.__version__, "scores": found}))


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
