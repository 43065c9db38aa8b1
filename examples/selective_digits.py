"""Selective prediction on scikit-learn's digits: answer when the error among answers is certified,
else abstain.

Rows go to train, tune, calibrate and test. The order of testing is learned on tuning rows, the
accepted thresholds are certified on calibration rows by learn-then-test with an exact binomial
test, and the largest accepted share is deployed.

    python examples/selective_digits.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dco.risk import accepted, learn_then_test, order_of_testing, selective_error

ALPHA, DELTA = 0.02, 0.1
THRESHOLDS = np.round(np.linspace(0.01, 0.9, 90), 2)  # of 1 - largest probability; fixed beforehand


def doubts(model, X, y):
    """How little each prediction is trusted, and whether it is wrong."""
    probabilities = model.predict_proba(X)
    return 1 - probabilities.max(axis=1), model.classes_[probabilities.argmax(axis=1)] != y


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    X, X_cal, y, y_cal = train_test_split(X, y, test_size=0.5, random_state=1)
    X_train, X_tune, y_train, y_tune = train_test_split(X, y, test_size=0.35, random_state=2)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(X_train, y_train)

    doubt, wrong = doubts(model, X_tune, y_tune)
    tuning_losses, taken = selective_error(doubt, wrong, THRESHOLDS), accepted(doubt, THRESHOLDS)
    # fewer rows cannot certify 2 %
    enough = np.flatnonzero(taken.sum(axis=0) * len(X_cal) / len(X_tune) >= 150)
    order = enough[order_of_testing(tuning_losses[:, enough], alpha=ALPHA, where=taken[:, enough])]

    doubt, wrong = doubts(model, X_cal, y_cal)
    losses, taken = selective_error(doubt, wrong, THRESHOLDS), accepted(doubt, THRESHOLDS)
    certified = learn_then_test(
        losses, THRESHOLDS, alpha=ALPHA, delta=DELTA, test="binomial", order=order, where=taken
    )
    print(
        f"rows: train {len(X_train)}, tune {len(X_tune)}, calibrate {len(X_cal)}, test "
        f"{len(X_test)}"
    )
    print(f"accuracy without abstaining: {model.score(X_test, y_test):.3f}")
    if not len(certified):
        print("no threshold is certified: more calibration rows or a larger alpha are needed.")
        return
    threshold = certified.values.max()
    doubt, wrong = doubts(model, X_test, y_test)
    answered = doubt <= threshold
    print(
        f"certified at alpha = {ALPHA}, delta = {DELTA}: {len(certified)} of {len(order)} "
        f"thresholds, up to {threshold:.2f}"
    )
    print(
        f"answered: {answered.mean():.3f} of the test rows, error among them "
        f"{wrong[answered].mean():.4f}"
    )
    print(f"error among the rows it abstained on: {wrong[~answered].mean():.3f}")


if __name__ == "__main__":
    main()
