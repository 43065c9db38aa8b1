"""Tables on terminals: numbers and words stay whole, and columns that can be spared go first."""

import io
import warnings

import numpy as np
import pytest
from rich.console import Console
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression

import dco as library
from dco.certificate.planning import plan
from dco.cli import printing
from dco.cli.comparison import round_for_reading
from dco.cli.plan import print_planned_splits
from dco.cli.printing import print_table
from dco.cli.reproduce import optional_columns
from dco.foundations.progress import watch_search
from dco.paper import Measured, ResultTable

COLUMNS = [
    "method",
    "coverage",
    "mean size",
    "P95 size",
    "size − DCO",
    "Wilcoxon p",
    "candidate, most often",
]
ROWS = [
    [
        "DCO-Warmstart",
        "0.913 ± 0.043",
        "201.8 ± 4.3",
        "201.8 ± 4.3",
        None,
        None,
        "linear / AbsoluteResidual",
    ],
    [
        "DCO with a PAC rank",
        "0.9219 ± 0.0052",
        "187.1 ± 3.0",
        "259 ± 14",
        -27.84,
        0.0625,
        "quantiles / AbsoluteResidual",
    ],
]


@pytest.fixture(autouse=True)
def no_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich takes a dumb terminal to be 80 columns wide, whatever it is told."""
    monkeypatch.setenv("TERM", "xterm")


def printed(monkeypatch, width, *arguments, show=print_table, **options):
    """What a terminal of this width shows."""
    page = io.StringIO()
    terminal = Console(
        file=page,
        width=width,
        force_terminal=True,
        color_system=None,
        markup=False,
        highlight=False,
    )
    monkeypatch.setattr(printing, "_console", lambda file: terminal)
    show(*arguments, **options)
    return page.getvalue().splitlines()


@pytest.mark.parametrize("width", [66, 80, 100, 140])
def test_no_word_and_no_number_is_broken(monkeypatch, width):
    lines = printed(monkeypatch, width, COLUMNS, ROWS, optional=[COLUMNS[-1], "P95 size"])
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for whole in (
        "DCO-Warmstart",
        "0.9219 ± 0.0052",
        "187.1 ± 3.0",
        "-27.84",
        "0.0625",
        "Wilcoxon",
    ):
        assert whole in text
    assert ("AbsoluteResidual" in text) == (width > 80)
    assert ("P95" in text) == (width > 66)


def test_a_table_wider_than_the_terminal_is_a_block_a_row_headed_by_words(monkeypatch):
    lines = [line.rstrip() for line in printed(monkeypatch, 30, COLUMNS, ROWS)]
    assert max(map(len, lines)) <= 30
    assert lines[:4] == [
        "DCO-Warmstart",
        "  coverage: 0.913 ± 0.043",
        "  mean size: 201.8 ± 4.3",
        "  P95 size: 201.8 ± 4.3",
    ]
    assert "  Wilcoxon p: 0.0625" in lines
    lines = [
        line.rstrip()
        for line in printed(monkeypatch, 15, ["target", "method"], [[0.8, "quadrature"]])
    ]
    assert lines == ["quadrature", "  target: 0.8", ""]


@pytest.mark.parametrize(("width", "row"), [(50, ["cifar100", "x" * 90]), (40, ["x" * 90, 7])])
def test_words_longer_than_a_line_may_break(monkeypatch, width, row):
    lines = printed(monkeypatch, width, ["name", "needs"], [row])
    assert "name" in lines[1]
    assert max(map(len, lines)) <= width
    assert sum(line.count("x") for line in lines) == 90


def test_what_is_left_out_is_told_and_the_guarantee_of_the_papers_tables_stays(monkeypatch):
    printed(monkeypatch, 80, COLUMNS, ROWS)
    assert print_table(COLUMNS, ROWS, optional=COLUMNS[:3:-1]) == COLUMNS[-1:]
    assert print_table(COLUMNS[:2], ROWS, optional=["coverage"]) == []
    columns = [
        "method",
        "tuned",
        "tuned on",
        "calibrated on",
        "rule",
        "guarantee",
        "z",
        "width off",
        "reference",
    ]
    assert optional_columns(columns) == ["z", "width off", "reference", "rule"]


def test_a_title_has_the_width_of_the_terminal(monkeypatch):
    title = "By group (the guarantee is for all rows together)"
    assert printed(monkeypatch, 60, ["n"], [[1]], title=title)[0] == title
    assert [line.strip() for line in printed(monkeypatch, 30, ["n"], [[1]], title=title)[:2]] == [
        title[:30],
        title[31:],
    ]


@pytest.mark.parametrize("width", [50, 60, 80, 200])
def test_the_drawing_of_a_plan_fits_the_terminal(monkeypatch, width):
    planned_splits = [plan(n, alpha=0.1).now for n in (500, 2000)]
    lines = printed(monkeypatch, width, planned_splits, 0.1, show=print_planned_splits)
    assert max(map(len, lines)) <= width
    (row,) = [line for line in lines if line.lstrip().startswith("2000 ")]
    assert row.count("o") - row.count("to") == (1 if width >= 60 else 0)
    assert sum("─" in line for line in lines) - 1 - any("marks" in line for line in lines) == (
        2 if width >= 60 else 0
    )


@pytest.mark.parametrize("places", [slice(0, 4), slice(0, None)], ids=["table", "blocks"])
def test_what_is_not_on_a_terminal_keeps_every_column_within_80(capsys, places):
    print_table(COLUMNS[places], [row[places] for row in ROWS], optional=COLUMNS[1:])
    told = capsys.readouterr().out
    for row in ROWS:
        assert all(cell in told for cell in row[places] if isinstance(cell, str))
    assert all(name in told for name in COLUMNS[places][1:])
    assert max(map(len, told.splitlines())) <= 80


def test_long_names_wrap_between_words(monkeypatch):
    row = ["quantiles / QuantileResidual(kind='relative')", 183.3, 269.6, 0.1, "yes"]
    lines = printed(
        monkeypatch, 80, ["candidate", "mean size", "P95 size", "miscoverage", "feasible"], [row]
    )
    assert any("QuantileResidual(kind='relative')" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_deviations_have_two_digits_and_means_the_same_decimals():
    cells = [
        Measured(211.2854, 18.2869),
        Measured(0.91291, 0.04257),
        Measured(1234.5, 321.0),
        Measured(2.5, float("nan")),
        Measured(3.0, 0.0),
        None,
        0.03125,
    ]
    table = ResultTable("t", "c", tuple("abcdefg"), (tuple(cells),), digits=4)
    found = round_for_reading(table).rows[0]
    assert found == ("211 ± 18", "0.913 ± 0.043", "1234 ± 321", "2.5", "3 ± 0", "–", "0.03125")


def test_a_fit_says_how_many_candidates_there_are_and_what_runs_now():
    rng, told = np.random.default_rng(0), []
    X = rng.normal(size=(300, 2))
    models = {"flat": DummyRegressor(), "line": LinearRegression()}
    est = library.DecoupledRegressor(models, tune_folds=2, random_state=0)
    with watch_search(lambda search: told.append(printing.search_in_words(search))):
        est.fit(X, X[:, 0] + rng.normal(size=300))
    now = ["flat", "flat", "line", "line", "the winner"]
    for done, (sentence, name) in enumerate(zip(told, now, strict=True)):
        assert sentence.endswith(f" candidates, {done} of 4 fits done, now {name}")
    est.fit(X, X[:, 0])
    assert len(told) == 5, "nobody follows any more"


def test_what_joblib_says_of_its_idle_processes_is_no_note():
    with printing.collected_notes() as notes:
        warnings.warn(
            "A worker stopped while some jobs were given to the executor. This can be "
            "caused by ...",
            stacklevel=2,
        )
        warnings.warn("something else", stacklevel=2)
    assert notes == ["something else"]
