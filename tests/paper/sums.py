"""A small experiment for tests of records and of the command."""

from dataclasses import dataclass

import numpy as np

from dco.paper import Experiment, Measured, Options, ResultTable, Row, rows_of


@dataclass(frozen=True)
class SumRow(Row):
    method: str
    alpha: float
    value: float


def sum_singular_values(seed: int, options: Options) -> list[Row]:
    """Return numbers that depend on the seed, and on sums that BLAS may order by threads."""
    matrix = np.random.default_rng(seed).standard_normal((200, 200))
    total = float(np.linalg.svd(matrix @ matrix)[1].sum())
    return [SumRow("sum", alpha, total) for alpha in options.alphas]


def mean_table(records, options):
    mean = Measured.of(row.value for row in rows_of(records, SumRow))
    return [ResultTable.of("Means", "The mean of sums.", [{"rows": len(records), "value": mean}])]


SUMS = Experiment(
    name="sums",
    summary="sums of singular values",
    needs="nothing",
    minutes=0.1,
    run_split=sum_singular_values,
    tables=mean_table,
    row_kinds=(SumRow,),
)
