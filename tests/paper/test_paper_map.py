"""The map from the paper's numbers to commands, results and modules."""

import re
from pathlib import Path

import pytest
from committed import committed_records

from dco.paper import SplitRecord, experiments_of
from dco.paper.catalogue import EXPERIMENTS
from dco.paper.experiment import Options
from dco.paper.paper_map import make_pages, minutes_on_record, module_path, results_path
from dco.paper.paper_parts import PARTS, Finding, find_part, group_numbers

ROOT = Path(__file__).parents[2]
# As the PDF numbers them: the appendix has its own letters, tables and figures one count each.
NUMBERED = {
    *(f"Table {k}" for k in range(1, 13)),
    *(f"Figure {k}" for k in range(1, 7)),
    *(f"Algorithm {k}" for k in range(1, 4)),
    "Theorem 3.1",
    "Proposition 3.2",
    "Proposition 3.3",
    "Remark B.1",
    "Remark B.2",
    "Lemma B.3",
    "Assumption B.4",
    "Remark B.5",
    "Remark B.6",
}
FINDINGS = [
    pytest.param(experiment, finding, id=f"{finding.part}, {experiment.name}")
    for experiment in EXPERIMENTS.values()
    for finding in experiment.findings
]


def test_every_number_of_the_paper_is_a_part():
    sections = {part.number for part in PARTS if re.match("Section|Appendix", part.number)}
    assert {part.number for part in PARTS} == NUMBERED | sections


def test_every_part_has_a_row():
    rows = {finding.part for experiment in EXPERIMENTS.values() for finding in experiment.findings}
    assert rows == {part.number for part in PARTS}


def test_every_experiment_is_about_a_part():
    assert [name for name, experiment in EXPERIMENTS.items() if not experiment.findings] == []


@pytest.mark.parametrize("page", ["results/README.md", "docs/paper.md"])
def test_the_committed_map_is_what_the_code_makes(page):
    committed = (ROOT / page).read_text(encoding="utf-8")
    assert committed == make_pages(ROOT)[page], (
        "python -c \"from dco.paper.paper_map import write_map as write; write('.')\""
    )


@pytest.mark.parametrize(("experiment", "finding"), FINDINGS)
def test_a_row_leads_to_files(experiment, finding):
    assert (ROOT / module_path(finding.module)).is_file()
    results = results_path(experiment, finding)
    if results is None:
        assert finding.verdict == "impossible"
    else:
        assert (ROOT / results.partition("#")[0]).is_file()


@pytest.mark.parametrize(("experiment", "finding"), FINDINGS)
def test_a_row_names_a_table_of_its_page(experiment, finding):
    if finding.shown_in and not finding.shown_in.endswith(".svg"):
        tables = (ROOT / "results" / experiment.name / "tables.md").read_text(encoding="utf-8")
        assert f"### {finding.shown_in}\n" in tables


@pytest.mark.parametrize("number", range(1, 7))
def test_every_figure_of_the_paper_is_committed_and_small(number):
    (figure,) = (ROOT / "results").glob(f"*/figure-{number}.svg")
    assert figure.stat().st_size < 200_000
    experiment = EXPERIMENTS[figure.parent.name]
    assert f"Figure {number}" in experiment.paper_parts


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "imagenet-a"])
def test_the_minutes_of_the_list_are_those_of_the_records(name):
    experiment = EXPERIMENTS[name]
    if experiment.records_of is None:
        recorded = minutes_on_record(experiment, ROOT / "results")
        minutes = 0.0 if recorded == "< 0.1" else float(recorded)
        assert experiment.minutes == pytest.approx(minutes, rel=0.25, abs=0.15)


@pytest.mark.parametrize("typed", ["Table 6", "table 6", "TABLE-6", " table  6 "])
def test_a_number_of_the_paper_finds_its_experiments(typed):
    assert "split-ratio" in [experiment.name for experiment in experiments_of(typed)]


def test_a_figure_may_be_abbreviated():
    assert find_part("fig. 2") == find_part("Figure 2")


def test_a_number_that_the_paper_lacks_is_an_error():
    with pytest.raises(ValueError, match="The paper has no 'Table 13'"):
        Finding(part="Table 13", verdict="agrees", why="", shown_in="", module="dco")


def test_numbers_of_one_kind_share_a_word():
    assert group_numbers(["Table 2", "Table 9", "Figure 2"]) == "Tables 2, 9; Figure 2"


# ---- tables with the paper's rows first


def test_table_1_has_the_seven_methods_of_the_paper():
    experiment = EXPERIMENTS["table-1"]
    table, _ = experiment.tables(committed_records("table-1"), Options(experiment.alphas))
    assert table.column("method") == [
        "Split CP",
        "Score-tuned CP",
        "CRC/BQ-style",
        "LTT",
        "ROCP",
        "DCO-Warmstart",
        "DirectTune",
    ]
    assert set(table.column("guarantee, ours")) == {"same"}
    assert set(table.column("parameter, ours")) == {"same"}


@pytest.mark.parametrize("name", ["diabetes", "california", "concrete"])
def test_the_first_table_has_the_rows_of_the_paper(name):
    experiment = EXPERIMENTS[name]
    first = experiment.tables(committed_records(name), Options(experiment.alphas))[0]
    assert first.title.endswith("the paper's rows beside ours")
    assert None not in first.column("paper coverage")
    assert None not in first.column("our coverage")


def test_at_another_level_there_are_no_rows_of_the_paper():
    experiment = EXPERIMENTS["diabetes"]
    options = Options((0.3,), quick=True)
    records = [SplitRecord(seed=0, rows=tuple(experiment.run_split(0, options)), seconds=0.0)]
    assert experiment.tables(records, options)[0].title == "Diabetes"
