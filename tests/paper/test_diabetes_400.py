"""Diabetes on 400 splits: what a rank rounded up costs."""

from committed import committed_records

from dco.paper import Options, diabetes_400
from dco.paper.catalogue import EXPERIMENTS
from dco.paper.regression_splits import Outcome


def test_109_rows_waste_no_part_of_a_rank():
    (split,) = committed_records("diabetes-400")[:1]
    ranks = {row.method: (row.rank, row.n) for row in split.rows if isinstance(row, Outcome)}
    assert ranks["DCO-Warmstart"] == (92, 113)
    assert ranks[diabetes_400.DCO_ON_109] == (88, 109)
    assert ranks[diabetes_400.POOL] == (181, 225)


def test_rounding_a_rank_up_makes_most_of_the_difference_from_the_pool():
    experiment = EXPERIMENTS["diabetes-400"]
    pairs = experiment.tables(committed_records("diabetes-400"), Options(experiment.alphas))[1]
    change = {(row[1], row[2]): row[3] for row in pairs.rows}
    with_rounding = change["DCO-Warmstart", diabetes_400.POOL]
    without_rounding = change[diabetes_400.DCO_ON_109, diabetes_400.POOL]
    assert without_rounding < with_rounding / 2
