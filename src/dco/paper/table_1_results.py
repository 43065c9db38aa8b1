"""Table 1 with results: every method of it on the same splits, also LTT, BCP-CRC and ROCP.

The rows are those of the first twenty classes of CIFAR-100, so that a decision score can weigh
every action against every label in little time. Candidates are logistic regressions with three
penalties. Their score is 1 - p; ROCP needs one for decisions, the risk-optimal score. A
decision names a class (loss 0 if right, 1 if wrong) or hands the row to a person (loss 0.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dco import ClassProbabilities, LabelSets
from dco.datasets import CIFAR100_FEATURES, ImageFeatures
from dco.foundations.arrays import Integers
from dco.paper import paper_findings
from dco.paper.classification_splits import cifar100_rows
from dco.paper.coverage_z import NO_THEORY, compare_with_theory, target_coverage
from dco.paper.experiment import (
    Experiment,
    Options,
    Row,
    SplitRecords,
    group_by,
    needs_file,
    rows_of,
)
from dco.paper.methods import METHODS, Pairs, RoleName, Task, score_on_roles
from dco.paper.tables import Measured, ResultTable, TableRow, join_sentences
from dco.scores import LAC, RiskOptimal, Score, act

N_CLASSES = 20
PENALTIES = (100.0, 10.0, 1.0)
FIXED = "penalty 10"
HAND_OVER = 0.3  # the loss of giving a row to a person
LOSSES = np.vstack([1.0 - np.eye(N_CLASSES), np.full(N_CLASSES, HAND_OVER)])
N_TUNE = 400
N_CALIBRATE = 800
N_TEST = 400
METHODS_SHOWN = tuple(name for name in METHODS if name != "cqr")  # CQR is for regression


@dataclass(frozen=True)
class MethodResult(Row):
    """What a method of Table 1 deployed on one split, and how its sets did on the test rows.

    The threshold is the `rank`-th smallest of `n` scores. `robust_loss` is the mean over test rows
    of the largest expected loss of acting on the set, and `loss` that of the action itself.
    """

    method: str
    alpha: float
    guarantee: str
    chosen: str
    rank: int
    n: int
    law: bool
    n_test: int
    coverage: float
    size: float
    robust_loss: float
    loss: float


# ---- one split


def load_twenty_classes(data_home: str | None) -> ImageFeatures:
    """Load the rows of the first twenty classes, of the rows that splits are drawn from."""
    rows = cifar100_rows(data_home)
    is_in = rows.labels < N_CLASSES
    return ImageFeatures(rows.features[is_in], rows.labels[is_in])


def run_split(seed: int, options: Options) -> list[Row]:
    """Run every method of Table 1 on one random split, at every level."""
    data = load_twenty_classes(options.data_home)
    positions = deal_rows(len(data), seed)
    targets = {role: data.labels[rows] for role, rows in positions.items()}
    models = fit_on_rest(data, positions)

    sets_on_roles = score_on_roles(pair_with(LAC(), models, data, positions), targets)
    decisions = pair_with(RiskOptimal(LOSSES), models, data, positions)
    decisions_on_roles = score_on_roles(decisions, targets)

    rows: list[Row] = []
    for alpha in options.alphas:
        for name in METHODS_SHOWN:
            candidates = decisions_on_roles if name == "rocp" else sets_on_roles
            task = Task(candidates, y_tune=targets["tune"], fixed=FIXED, alpha=alpha)
            rows.append(measure(name, task, targets["test"]))
    return rows


def deal_rows(n_rows: int, seed: int) -> dict[RoleName, Integers]:
    """Deal rows to roles at random; the pool holds those that tune and those that calibrate."""
    order = np.random.default_rng([seed, N_CLASSES]).permutation(n_rows)
    tune, calibrate, test, _ = np.split(order, np.cumsum([N_TUNE, N_CALIBRATE, N_TEST]))
    pool = np.concatenate([tune, calibrate])
    return {"tune": tune, "calibrate": calibrate, "pool": pool, "test": test}


def fit_on_rest(data: ImageFeatures, positions: Mapping[RoleName, Integers]) -> dict[str, Any]:
    """Fit a logistic regression at each penalty, on the rows without another role."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    has_role = np.zeros(len(data), dtype=bool)
    for rows in positions.values():
        has_role[rows] = True
    models: dict[str, Any] = {}
    for penalty in PENALTIES:
        model = make_pipeline(
            StandardScaler(), LogisticRegression(C=1 / penalty, max_iter=2000, tol=1e-8)
        )
        models[f"penalty {penalty:g}"] = model.fit(data.features[~has_role], data.labels[~has_role])
    return models


def pair_with(
    score: Score, models: Mapping[str, Any], data: ImageFeatures, positions: Mapping[RoleName, Any]
) -> dict[RoleName, Pairs]:
    """Pair every model with the score, and predict the rows of each role."""
    return {
        role: {
            name: (score, ClassProbabilities(model.predict_proba(data.features[rows])))
            for name, model in models.items()
        }
        for role, rows in positions.items()
    }


def measure(name: str, task: Task, y_test: Integers) -> MethodResult:
    """Run a method, and measure its sets and the decisions on them on the test rows."""
    method = METHODS[name]
    choice = method(task)
    test = choice.deployed.test
    threshold = choice.threshold
    assert test is not None
    assert threshold.rank is not None

    sets = test.score.sets(test.prediction, threshold.value)
    assert isinstance(sets, LabelSets)
    actions = act(sets, test.prediction, loss_matrix=LOSSES, alpha=task.alpha)
    return MethodResult(
        method=method.name,
        alpha=threshold.alpha,
        guarantee=threshold.guarantee,
        chosen=choice.candidate,
        rank=threshold.rank,
        n=threshold.n,
        # decision scores are often equal, and coverage is then above the law of the rank
        law=method.has_law and name != "rocp",
        n_test=len(y_test),
        coverage=float(np.mean(sets.contains(y_test))),
        size=float(np.mean(sets.sizes())),
        robust_loss=float(actions.robust_loss.mean()),
        loss=float(LOSSES[actions.actions, y_test].mean()),
    )


# ---- the table


def make_tables(records: SplitRecords, options: Options) -> list[ResultTable]:
    """Make the table of every method's coverage, size and losses at each level."""
    outcomes_of = group_by(rows_of(records, MethodResult), key=lambda row: (row.alpha, row.method))
    rows = [describe_method(outcomes) for outcomes in outcomes_of.values()]
    caption = join_sentences(
        f"{len(records)} random splits of the first twenty classes of the CIFAR-100 features: "
        f"{N_TUNE} rows tune, {N_CALIBRATE} calibrate, {N_TEST} test, the rest train; mean ± sd.",
        "Candidates: logistic regression at three penalties. Methods that tune nothing take the "
        "middle one, and calibrate on the rows of tuning and calibration together, as do BCP-CRC "
        "and LTT, which search there.",
        "LTT and BCP-CRC are the same rule on 0/1 loss, and so are split CP and CRC.",
        "ROCP has the risk-optimal score, and tunes and is meant for 'robust loss': the largest "
        "expected loss of acting on the set (naming a class costs 1 if wrong, a person "
        f"{HAND_OVER:g}). 'Loss' is what the actions cost. Its score has many zeros, so that it "
        "covers more than its rank says, and no law is shown.",
    )
    return [ResultTable.of("Table 1 with results: twenty classes of CIFAR-100", caption, rows)]


def describe_method(outcomes: Sequence[MethodResult]) -> TableRow:
    """Make the row of one method at one level; `outcomes` has one outcome for each split."""
    first = outcomes[0]
    theory = compare_with_theory(outcomes) if first.law else NO_THEORY
    return {
        "target": target_coverage(first.alpha),
        "method": first.method,
        "guarantee": first.guarantee,
        "rank": first.rank,
        "n": first.n,
        "coverage": Measured.of(row.coverage for row in outcomes),
        "by law": theory.expected,
        "z": theory.z,
        "size": Measured.of(row.size for row in outcomes),
        "robust loss": Measured.of(row.robust_loss for row in outcomes),
        "loss": Measured.of(row.loss for row in outcomes),
    }


EXPERIMENTS = (
    Experiment(
        name="table-1-results",
        summary="Every method of Table 1 on the same splits, LTT, BCP-CRC and ROCP among them.",
        needs=CIFAR100_FEATURES,
        minutes=3.0,
        run_split=run_split,
        tables=make_tables,
        row_kinds=(MethodResult,),
        missing=needs_file("table-1-results", CIFAR100_FEATURES),
        alphas=(0.2, 0.1, 0.05),
        quick_splits=3,
        findings=paper_findings.TABLE_1_RESULTS,
    ),
)
