"""Figures say what their lines mean, and show infinite sizes."""

import math

import numpy as np
import pytest

from dco.paper import figures
from dco.paper.figures import Series


def make_series(guarantee="marginal", *, size=2.0, rank=92):
    hits = np.random.default_rng(0).binomial(67, 0.81, size=50)
    return Series(
        guarantee=guarantee,
        coverage=(hits / 67).tolist(),
        size=[size + k / 100 for k in hits],
        rank=rank,
        n=113,
        n_test=67,
    )


def texts(content: dict[str, bytes]) -> str:
    (svg,) = [data for name, data in content.items() if name.endswith(".svg")]
    return svg.decode()


@pytest.fixture(scope="module")
def histograms():
    figure = figures.draw_coverage_histograms(
        {"BQ": make_series("pac"), "DCO": make_series()}, target=0.8
    )
    figure.draw_without_rendering()
    return figure.axes


def test_the_dashed_line_of_a_histogram_is_named(histograms):
    for axis in histograms:
        labels = [text.get_text() for text in axis.get_legend().get_texts()]
        assert labels == ["Beta-binomial law", "target", "50 splits"]


def test_the_dashed_line_of_a_histogram_ends_below_the_legend(histograms):
    for axis in histograms:
        (line,) = [line for line in axis.lines if line.get_label() == "target"]
        top = line.get_transform().transform(line.get_xydata())[:, 1].max()
        assert top <= axis.get_legend().get_window_extent().y0


def test_splits_are_counted_in_whole_numbers(histograms):
    for axis in histograms:
        assert all(tick == round(tick) for tick in axis.get_yticks())


def test_boxes_name_guarantees_and_the_dashed_line():
    figure = figures.draw_coverage_and_size({"BQ": make_series("pac")}, target=0.8, size="width")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["guarantee: pac", "target"]


def test_infinite_sizes_are_named_in_place_of_a_box():
    content = figures.coverage_and_size(
        {"finite": make_series(), "full": make_series(size=math.inf)},
        target=0.8,
        size="width",
        name="boxes",
    )
    assert texts(content).count("infinite: too few calibration rows") == 1


def test_an_infinite_threshold_has_no_histogram():
    infinite = {"BQ": make_series(rank=114)}
    assert figures.coverage_histograms(infinite, target=0.8, name="law") == {}


def test_a_figure_comes_as_svg_and_png_with_its_note():
    content = figures.coverage_histograms(
        {"DCO": make_series()}, target=0.8, name="law", note="Of these data."
    )
    assert set(content) == {"law.svg", "law.png"}
    assert "Of these data." in texts(content)


def test_the_same_series_give_the_same_file():
    first, second = (
        figures.coverage_and_size({"DCO": make_series()}, target=0.8, size="width", name="boxes")
        for _ in range(2)
    )
    assert first == second
