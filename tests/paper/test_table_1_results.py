"""Every method of Table 1 on the same splits."""

import pytest
from committed import committed_records

from dco.paper import Options, SplitRecord, table_1_results
from dco.paper.experiment import rows_of
from dco.paper.table_1_results import METHODS_SHOWN, MethodResult


@pytest.fixture(scope="module")
def by_method(data_home):
    options = Options((0.2,), quick=True, data_home=data_home)
    (experiment,) = table_1_results.EXPERIMENTS
    if experiment.missing(options) is not None:
        pytest.skip("the data are not here")
    record = SplitRecord(0, tuple(table_1_results.run_split(0, options)), 0.0)
    (table,) = table_1_results.make_tables([record], options)
    return {row[1]: row for row in table.rows}


@pytest.mark.parametrize(("one", "other"), [("LTT", "BCP-CRC"), ("Split CP", "CRC")])
def test_two_names_of_one_rule_give_the_same(one, other, by_method):
    assert by_method[one][3:7] == by_method[other][3:7]


def test_every_method_for_classes_has_a_row(by_method):
    assert {"LTT", "BCP-CRC", "ROCP", "BQ", "DCO-Warmstart"} <= by_method.keys()


@pytest.mark.parametrize(("one", "other"), [("LTT", "BCP-CRC"), ("Split CP", "CRC")])
def test_so_they_do_in_every_committed_split(one, other):
    rows = rows_of(committed_records("table-1-results"), MethodResult)
    coverage = {
        name: [(row.rank, row.coverage, row.size) for row in rows if row.method == name]
        for name in (one, other)
    }
    assert coverage[one] == coverage[other]
    assert len(coverage[one]) == 3 * 50


def test_cqr_is_left_out_since_it_needs_quantiles():
    assert "cqr" not in METHODS_SHOWN
