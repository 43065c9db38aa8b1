"""The table of docs/decisions.md: sets made for decisions beside LAC and APS sets, on real data
with stated costs.

Two problems that ship with scikit-learn. The costs are ours; they are written down here and nowhere
fitted.

* Breast cancer from two quick measurements (mean radius and mean texture). Actions: discharge,
  biopsy, operate. A discharged malignant tumour costs 10, a needless operation 4, a biopsy 1.
* Digits read from a form. Actions: enter one of the ten digits, or ask a person. A wrong entry
  costs the distance between the two digits, asking costs 1.

    python examples/decision_table.py [repetitions]
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dco import split_conformal
from dco.predictions import ClassProbabilities
from dco.scores import APS, LAC
from dco.scores.decision import RiskAverse, RiskOptimal, act

#                    malignant  benign   (scikit-learn's labels 0 and 1)
TUMOUR = np.array(
    [
        [10.0, 0.0],  # discharge
        [1.0, 1.0],  # biopsy
        [0.0, 4.0],
    ]
)  # operate
DIGIT = np.vstack([np.abs(np.subtract.outer(np.arange(10.0), np.arange(10.0))), np.ones(10)])


def tumours():
    data = load_breast_cancer()
    return data.data[:, :2], data.target


def digits():
    return load_digits(return_X_y=True)


PROBLEMS = {
    "breast cancer, two measurements": (tumours, TUMOUR, 0.05),
    "digits on a form": (digits, DIGIT, 0.02),
}


def one_split(X, y, losses, alpha, seed):
    """Figures of each method on one random split: 40 % train, 30 % calibrate, 30 % test."""
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.6, random_state=seed)
    X_cal, X_test, y_cal, y_test = train_test_split(
        X_rest, y_rest, test_size=0.5, random_state=seed
    )
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(X_train, y_train)
    calibrate, test = (ClassProbabilities(model.predict_proba(part)) for part in (X_cal, X_test))
    scores = {
        "LAC": LAC(),
        "APS": APS(),
        "RiskAverse": RiskAverse(losses),
        "RiskOptimal": RiskOptimal(losses),
    }
    figures = {}
    for name, score in scores.items():
        sets = score.sets(test, split_conformal(score.observed(calibrate, y_cal), alpha=alpha))
        for rule, level in (("averse", None), ("optimal", alpha)):
            if name.startswith("Risk") and rule not in name.lower():
                continue  # each decision score with the action rule that it was made for
            chosen = act(sets, test, loss_matrix=losses, alpha=level)
            realised = losses[chosen.actions, y_test]
            figures[name, rule] = (
                sets.contains(y_test).mean(),
                sets.sizes().mean(),
                realised.mean(),
                (realised > 1).mean(),
                chosen.worst_loss.mean(),
                (realised <= chosen.worst_loss).mean(),
            )
    bayes = losses[(test.probabilities @ losses.T).argmin(axis=1), y_test]
    figures["none", "least expected loss"] = (
        np.nan,
        np.nan,
        bayes.mean(),
        (bayes > 1).mean(),
        np.nan,
        np.nan,
    )
    return figures


def table(problem, repetitions):
    load, losses, alpha = PROBLEMS[problem]
    X, y = load()
    rows = [one_split(X, y, losses, alpha, seed) for seed in range(repetitions)]
    print(f"{problem}: alpha = {alpha}, means over {repetitions} random splits\n")
    print(
        "| sets | action rule | coverage | size | mean loss | loss above 1 | worst loss in the "
        "set | loss within it |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for key in rows[0]:
        mean = np.mean([row[key] for row in rows], axis=0)
        print(
            f"| {key[0]} | {key[1]} | "
            + " | ".join("" if np.isnan(value) else f"{value:.3f}" for value in mean)
            + " |"
        )
    print()


def main() -> None:
    warnings.simplefilter("error")
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for problem in PROBLEMS:
        table(problem, repetitions)


if __name__ == "__main__":
    main()
