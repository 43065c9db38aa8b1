"""A pipeline that is already in service: calibrate it unchanged, on rows that it has never seen.

`FrozenEstimator` keeps it from being fitted again; all rows then go to tuning (which score gives
the smallest sets) and to calibration. Nobody can check here which rows the pipeline was fitted on,
so the certificate says "not checked" and states the assumption: none of them is a calibration row.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import dco


def flowers():
    """Iris as a frame of two measurements, one of them in words, with the species by name."""
    data = load_iris()
    frame = pd.DataFrame(
        {
            "length": data.data[:, 0],
            "petal": np.where(
                data.data[:, 2] > 4.5, "long", np.where(data.data[:, 2] > 3, "middling", "short")
            ),
        }
    )
    return frame, data.target_names[data.target]


def main():
    X, y = flowers()
    shuffled = np.random.default_rng(0).permutation(len(y))
    long_ago, known, new = np.split(shuffled, [50, 110])
    encode = make_column_transformer((OneHotEncoder(), ["petal"]), (StandardScaler(), ["length"]))
    in_service = make_pipeline(encode, LogisticRegression()).fit(X.iloc[long_ago], y[long_ago])

    est = dco.DecoupledClassifier(FrozenEstimator(in_service), alpha=0.1, random_state=0).fit(
        X.iloc[known], y[known]
    )
    print(est.certificate_.statement)
    print(est.certificate_.assumption)
    print(f"training rows: {est.certificate_.training_rows}")
    print(
        f"\n{est.best_candidate_}, on the rows that nothing has "
        f"seen:\n{est.evaluate(X.iloc[new], y[new])}"
    )
    for labels, truth in list(zip(est.predict_set(X.iloc[new]).to_lists(), y[new], strict=True))[
        :5
    ]:
        print(f"{' or '.join(labels) or 'none of them':25} (it is {truth})")


if __name__ == "__main__":
    main()
