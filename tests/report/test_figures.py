"""Figures show the numbers of the report and come out the same every time."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dco.report import figures


@pytest.mark.parametrize("name", ["classification", "by label", "infeasible"])
def test_the_same_numbers_give_the_same_files(numbers_of: Any, tmp_path: Path, name: str) -> None:
    found = numbers_of(name)
    first = figures.save_figures(found, tmp_path / "first")
    second = figures.save_figures(found, tmp_path / "second")
    assert [path.name for path in first] == [
        f"{stem}.{end}" for stem in figures.FIGURES for end in ("svg", "png")
    ]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    for path in first:
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        else:
            assert path.read_bytes().startswith(b"\x89PNG")


def test_a_figure_that_cannot_be_finished_leaves_the_old_one(
    numbers_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    found = numbers_of("regression")
    first = figures.save_figures(found, tmp_path)
    before = {path: path.read_bytes() for path in first}

    def stopped(self: Any, target: Any, **options: Any) -> None:
        Path(target).write_bytes(b"half a fig")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", stopped)
    with pytest.raises(KeyboardInterrupt):
        figures.save_figures(found, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_threshold_the_promise_and_the_coverage_seen_stand_at_their_values(
    case: Any, numbers_of: Any
) -> None:
    chosen, numbers = case("regression"), numbers_of("regression")
    (scores,), (law,) = figures.score_distribution(numbers).axes, figures.coverage_law(numbers).axes
    (entry,) = chosen.estimator.certificate_.thresholds
    assert scores.lines[0].get_xdata()[0] == entry.value
    assert f"rank {entry.rank} of {entry.n}" in scores.get_title(loc="left")
    marks = {line.get_label(): line.get_xdata()[0] for line in law.lines}
    seen = chosen.estimator.evaluate(chosen.X, chosen.y).coverage
    assert marks == {"promised": pytest.approx(0.9), "observed on 300 rows": seen}


def test_size_curves_are_those_of_evaluate(case: Any, numbers_of: Any) -> None:
    chosen = case("classification")
    (panel,) = figures.size_against_alpha(numbers_of("classification")).axes
    curve = next(line for line in panel.lines if line.get_label() == "mean")
    for alpha, size in list(zip(curve.get_xdata(), curve.get_ydata(), strict=True))[::20]:
        assert size == chosen.estimator.evaluate(chosen.X, chosen.y, alpha=alpha).mean_size


def test_without_rows_there_are_no_sizes_to_draw(numbers_of: Any, tmp_path: Path) -> None:
    found = numbers_of("no rows")
    assert [path.name for path in figures.save_figures(found, tmp_path, formats=("svg",))] == [
        "score-distribution.svg",
        "coverage-law.svg",
    ]
    for draw in (figures.size_distribution, figures.size_against_alpha):
        with pytest.raises(ValueError, match="Sizes need rows"):
            draw(found)
    with pytest.raises(ValueError, match="svg or png"):
        figures.save_figures(found, tmp_path, formats=("pdf",))
