"""What selection costs: every method on the same rows, and tables that pair them by split."""

import math

import pytest

from dco.reproduction.experiment import Options, SplitRecord
from dco.reproduction.selection_costs import EXPERIMENTS, JOINT, OURS, selection_split, selection_tables


def made_up(seed):
    """Sizes that are known: DCO 2, ModSel 1 more, the bound always full, and of the single candidates the tree is best."""
    sizes = {"DCO": 2 + seed, "DCO, folds": 1.9 + seed, "DCO, pointwise": 2.1 + seed, "ModSel": 3 + seed}
    sizes |= {"ModSel-LOO": 2 + seed, "YK-adjust": math.inf, "ridge": 4, "stiff ridge": 4, "5 neighbours": 4}
    sizes |= {"15 neighbours": 4, "tree": 1 + seed, "normalised": 4}
    rows = [
        {"data": "D", "n": 50, "alpha": 0.1, "method": name, "size": size, "coverage": 0.9} for name, size in sizes.items()
    ]
    return SplitRecord(seed, tuple(rows), 0.0)


def test_tables_pair_methods_by_split():
    size, coverage = selection_tables([made_up(seed) for seed in range(3)], Options((0.1,)))
    (row,) = size.rows
    assert dict(zip(size.columns, row, strict=True)) == {
        "data": "D", "n": 50, "target": 0.9, "DCO": 3.0, "DCO, folds": "-3.3 ± 0.0", "DCO, pointwise": "+3.3 ± 0.0",
        "ModSel": "+33.3 ± 0.0", "ModSel-LOO": "+0.0 ± 0.0", "YK-adjust": "full", "hindsight": "-33.3 ± 0.0",
    }  # fmt: skip
    assert coverage.column("ModSel") == [pytest.approx(0.9)]


def test_a_split_runs_every_method_on_the_same_rows(data_home):
    options = Options((0.1,), quick=True, data_home=data_home)
    if EXPERIMENTS[0].missing(options) is not None:
        pytest.skip("the data are not here")
    rows = selection_split(0, options)
    assert {row["method"] for row in rows} >= {*OURS, *JOINT}
    assert {(row["data"], row["n"]) for row in rows} == {
        (d, n) for d in ("Diabetes", "Concrete", "California") for n in (50, 100)
    }
    assert all(math.isinf(row["size"]) for row in rows if row["method"] == "YK-adjust")
    assert all(0.5 < row["coverage"] <= 1 for row in rows)
    assert rows == selection_split(0, options)
