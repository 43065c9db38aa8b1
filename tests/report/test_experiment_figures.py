"""How the figures of the experiments look: what a line means is said, and no text is struck
through.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dco.paper import figures


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were saved, for a look at what is in them."""
    kept: list[Any] = []

    def keep(figure: Any, folder: Path, name: str, note: str | None = None) -> list[Path]:
        figure.draw_without_rendering()
        kept.append(figure)
        return []

    monkeypatch.setattr(figures, "save", keep)
    return kept


def rows(guarantee: str) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {
            "guarantee": guarantee,
            "rank": 92,
            "n": 113,
            "n_test": 67,
            "coverage": k / 67,
            "width": 2 + k / 100,
        }
        for k in rng.binomial(67, 0.81, size=50)
    ]


def test_figures_of_coverage_say_what_the_dashed_line_is_and_keep_it_off_their_legend(
    drawn: list[Any], tmp_path: Path
) -> None:
    figures.coverage_histograms(
        {"BQ": rows("pac"), "DCO": rows("marginal")}, target=0.8, folder=tmp_path, name="law"
    )
    figures.coverage_and_size(
        {"BQ": rows("pac")}, target=0.8, size="width", folder=tmp_path, name="boxes"
    )
    histograms, boxes = drawn
    for axis in histograms.axes:
        legend = axis.get_legend()
        assert "target" in [text.get_text() for text in legend.get_texts()]
        (line,) = [line for line in axis.lines if line.get_label() == "target"]
        top = line.get_transform().transform(line.get_xydata())[:, 1].max()
        assert top <= legend.get_window_extent().y0
        assert all(tick == round(tick) for tick in axis.get_yticks())  # splits are counted
    (legend,) = boxes.legends
    assert [text.get_text() for text in legend.get_texts()] == ["guarantee: pac", "target"]
