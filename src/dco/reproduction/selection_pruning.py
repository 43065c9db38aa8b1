"""What joint selection gains where only the best few candidates of the training rows take part.

All candidates are fitted on three quarters of n rows and ranked by five folds of these rows. On the
last quarter ModSel-CP chooses among all of them, and among the best one, two, three and five.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from dco.guarantees.joint_selection import select_and_calibrate
from dco.models.adapt import predict_record
from dco.reproduction.datasets.images import CIFAR100_FEATURES
from dco.reproduction.experiment import Experiment, Options, Records, needs_file
from dco.reproduction.selection_costs import DATA, NUMBERS, Field, cost_rows
from dco.reproduction.selection_costs import TEST as TEST_NUMBERS
from dco.reproduction.selection_costs_labels import FIELDS, superclass_rows
from dco.reproduction.selection_costs_labels import TEST as TEST_LABELS
from dco.reproduction.tables import ResultTable

ROWS, QUICK_ROWS, KEPT = (50, 100, 200, 1000), (50,), (1, 2, 3, 5)
NAMES = ("all", *(f"best {few}" for few in KEPT))


def pruning_split(seed: int, options: Options) -> list[dict[str, Any]]:
    """Sizes on the same test rows, for every table and number of rows."""
    tables = [
        (f"CIFAR-100, {count} candidates", field, *superclass_rows(options.data_home), TEST_LABELS)
        for count, field in FIELDS.items()
    ]
    for name, load in DATA.items():
        table = load(options.data_home)
        tables.append(
            (f"{name}, 6 candidates", NUMBERS, table.X, table.y / table.y.std(), TEST_NUMBERS)
        )
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for data, field, X, y, test in tables:
            order = np.random.default_rng([seed, 19]).permutation(len(y))
            new = order[-test:]
            for n in (n for n in (QUICK_ROWS if options.quick else ROWS) if n + test <= len(y)):
                for alpha in options.alphas:
                    rows = pruned_rows(
                        field, X[order[:n]], y[order[:n]], X[new], y[new], alpha=alpha, seed=seed
                    )
                    found += [{"data": data, "n": n, "alpha": alpha, **row} for row in rows]
    return found


def pruned_rows(
    field: Field, X: Any, y: Any, X_new: Any, y_new: Any, *, alpha: float, seed: int
) -> list[dict[str, Any]]:
    """Joint selection among all candidates, and among the best few of the training rows."""
    est = field.estimator(field.models(), alpha=alpha, random_state=seed, tune_folds=5).fit(X, y)
    train, sealed = np.concatenate([est.splits_.train, est.splits_.tune]), est.splits_.calibrate
    fitted = {name: model.fit(X[train], y[train]) for name, model in field.models().items()}
    own, new, names = {}, {}, {}
    for name, model, score, kind in field.candidates():
        own[name] = score, predict_record(fitted[model], X[sealed], kind)
        new[name] = predict_record(fitted[model], X_new, kind)
        names[model, type(score).__name__] = name
    ranked = [tuple(row.name.split(" / ")) for row in est.ranking_.table]
    order = [
        names[key] for model, score in ranked if (key := (model, score.partition("(")[0])) in names
    ]
    found = []
    for method, few in zip(NAMES, (len(order), *KEPT), strict=True):
        taken = order[:few]
        sets = select_and_calibrate(
            {m: own[m] for m in taken}, y[sealed], {m: new[m] for m in taken}, alpha=alpha
        )
        covered = sets.contains(y_new)
        found.append(
            {
                "method": method,
                "size": float(sets.sizes().mean()),
                "coverage": float(covered.mean()),
            }
        )
    return found


def pruning_tables(records: Records, options: Options) -> list[ResultTable]:
    """Sizes against those among all candidates, and coverage."""
    text = (
        f"{len(records)} splits; the data, rows and candidates of `selection` and "
        f"`selection-cifar100`, other seeds. "
        "ModSel-CP among all candidates, and among the best few by five folds of the training "
        "rows. Mean size among all; "
        "others: change in per cent ± half of its 95 % interval, paired by split."
    )
    sizes, covers = cost_rows(records, names=NAMES)
    return [
        ResultTable.of("Joint selection among the best few: size", text, sizes),
        ResultTable.of(
            "Joint selection among the best few: coverage",
            "Mean coverage of the test rows.",
            covers,
        ),
    ]


EXPERIMENTS = (
    Experiment(
        name="selection-pruned",
        summary="What joint selection gains where only the best few candidates of the training "
        "rows take part.",
        needs="all data but ImageNet-A",
        minutes=4.0,
        run_split=pruning_split,
        tables=pruning_tables,
        missing=needs_file("CIFAR-100", CIFAR100_FEATURES),
        alphas=(0.1,),
        quick_splits=2,
    ),
)
