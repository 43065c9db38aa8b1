"""Figures show the numbers of the report and come out the same every time."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from dco.report import save_figures
from dco.report.figures import (
    coverage_law,
    score_distribution,
    size_against_alpha,
    size_distribution,
)

NAMES = ["score-distribution", "coverage-law", "size-distribution", "size-against-alpha"]


@pytest.mark.parametrize("name", ["classification", "by label", "infeasible"])
def test_the_same_numbers_give_the_same_files(numbers_of: Any, tmp_path: Path, name: str) -> None:
    first = save_figures(numbers_of(name), tmp_path / "first")
    second = save_figures(numbers_of(name), tmp_path / "second")
    assert [path.name for path in first] == [f"{n}.{end}" for n in NAMES for end in ("svg", "png")]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_files_are_what_their_names_say(numbers_of: Any, tmp_path: Path) -> None:
    for path in save_figures(numbers_of("regression"), tmp_path):
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        else:
            assert path.read_bytes().startswith(b"\x89PNG")


def test_a_figure_that_cannot_be_finished_leaves_the_old_ones(
    numbers_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    save_figures(numbers_of("regression"), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def stop(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", stop)
    with pytest.raises(KeyboardInterrupt):
        save_figures(numbers_of("regression"), tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_threshold_stands_at_its_value(case: Any, numbers_of: Any) -> None:
    (panel,) = score_distribution(numbers_of("regression")).axes
    (entry,) = case("regression").estimator.certificate_.thresholds
    assert panel.lines[0].get_xdata()[0] == entry.value
    assert f"rank {entry.rank} of {entry.n}" in panel.get_title(loc="left")


def test_the_promise_and_the_coverage_stand_at_their_values(case: Any, numbers_of: Any) -> None:
    chosen = case("regression")
    (panel,) = coverage_law(numbers_of("regression")).axes
    marks = {line.get_label(): line.get_xdata()[0] for line in panel.lines}
    observed = chosen.estimator.evaluate(chosen.X, chosen.y).coverage
    assert marks == {"promised": pytest.approx(0.9), "observed on 300 rows": observed}


@pytest.mark.parametrize("name", ["by label", "conditions without rows"])
def test_conditions_have_a_line_each(case: Any, numbers_of: Any, name: str) -> None:
    (panel,) = coverage_law(numbers_of(name)).axes
    thresholds = case(name).estimator.certificate_.thresholds
    assert len(panel.get_yticklabels()) == len(thresholds)


def test_size_curves_are_those_of_evaluate(case: Any, numbers_of: Any) -> None:
    chosen = case("regression")
    (panel,) = size_against_alpha(numbers_of("regression")).axes
    alphas = panel.lines[0].get_xdata()
    for position in (5, 19, 40):
        found = chosen.estimator.evaluate(chosen.X, chosen.y, alpha=float(alphas[position]))
        assert panel.lines[0].get_ydata()[position] == found.overall.sizes.p95
        assert panel.lines[1].get_ydata()[position] == found.mean_size


def test_shares_of_sizes_add_up(numbers_of: Any) -> None:
    sizes = numbers_of("classification").rows.sizes
    assert np.sum(sizes.counts) == 300


def test_without_rows_there_are_no_sizes_to_draw(numbers_of: Any, tmp_path: Path) -> None:
    found = numbers_of("no rows")
    files = save_figures(found, tmp_path, formats=("svg",))
    assert [path.name for path in files] == ["score-distribution.svg", "coverage-law.svg"]
    for draw in (size_distribution, size_against_alpha):
        with pytest.raises(ValueError, match="Sizes need rows"):
            draw(found)


def test_an_unknown_format_is_refused(numbers_of: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="svg or png"):
        save_figures(numbers_of("no rows"), tmp_path, formats=("pdf",))
