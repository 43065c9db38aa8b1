"""Concrete and Diabetes with a class that was chosen on other data."""

import pytest
from committed import committed_records

from dco.paper.beyond_other_class import LEVELS, SEARCHED, OtherClassRow, make_tables
from dco.paper.beyond_regression_class import CLASSES
from dco.paper.catalogue import EXPERIMENTS
from dco.paper.experiment import Options, rows_of


@pytest.fixture(scope="module")
def records():
    return committed_records("beyond-other-class")


def test_every_split_is_committed(records):
    assert len(records) == EXPERIMENTS["beyond-other-class"].splits


def test_the_class_is_not_chosen_on_the_rows_of_the_table():
    assert not CLASSES["california"].is_chosen_on_its_rows
    assert all(CLASSES[data].is_chosen_on_its_rows for data in LEVELS)


def test_the_gain_is_the_difference_of_mean_widths(records):
    (table,) = make_tables(records, Options((0.2,)))
    cells = {tuple(row[:3]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    paper = cells["Concrete", 0.9, "DCO (paper's class)"]["width"].mean
    searched = cells["Concrete", 0.9, SEARCHED]
    assert searched["narrower %"] == pytest.approx(100 * (1 - searched["width"].mean / paper))


def test_thresholds_have_the_ranks_of_the_paper(records):
    ranks = {(row.data, row.alpha): (row.rank, row.n) for row in rows_of(records, OtherClassRow)}
    assert ranks["diabetes", 0.2] == (92, 113)
    assert ranks["concrete", 0.1] == (238, 263)
