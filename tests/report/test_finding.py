"""What a page of results says before its tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dco.cli.main import main
from dco.paper import METHODS, TABLE_ROWS
from dco.report import results_html
from dco.report.finding import explain_method, find_differences

HEAD = ("target", "first", "second", "width %", "low %", "high %")
RESULTS = Path(__file__).parents[2] / "results"


def paired(*rows: tuple[str, str, float, float, float]) -> Any:
    cells = [(target, first, "BQ", *map(str, numbers)) for target, first, *numbers in rows]
    another = ("0.8", "DCO-PAC", "another", "1", "1", "1")
    return find_differences("Wine: paired comparisons", HEAD, [*cells, another])


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((4.87, 3.07, 6.68), "4.9 % wider (95 % interval 3.1 to 6.7 %)"),
        ((-8.58, -10.35, -6.82), "8.6 % narrower (95 % interval 6.8 to 10.3 %)"),
        ((-0.63, -2.16, 0.9), "0.6 % narrower (95 % interval −2.2 to 0.9 %, no clear difference)"),
    ],
)
def test_one_target_is_said_with_its_interval(
    numbers: tuple[float, float, float], said: str
) -> None:
    found = paired(("0.8", "DCO-PAC", *numbers))
    assert found.title == "Wine"
    assert found.sentences == (
        f"With the same promise as Bayesian quadrature (BQ: coverage for this one calibration), "
        f"DCO's sets are {said}.",
    )


@pytest.mark.parametrize(
    ("middles", "said"),
    [
        ((-3.0, -8.0), "3.0 % to 8.0 % narrower"),
        ((-0.6, 4.2), "between 0.6 % narrower and 4.2 % wider"),
    ],
)
def test_several_targets_are_said_as_a_range(middles: tuple[float, float], said: str) -> None:
    found = paired(
        *(
            (f"0.{8 + place}", "DCO-Warmstart", each, each - 1, each + 1)
            for place, each in enumerate(middles)
        )
    )
    (sentence,) = found.sentences
    assert f"they are {said}, over 2 comparisons." in sentence


def test_the_figure_has_zero_in_view_and_the_same_guarantee_first() -> None:
    found = paired(("0.8", "DCO-Warmstart", -8, -10, -6), ("0.8", "DCO-PAC", -4, -6, -2))
    first, second = found.lines()
    assert (first.name, first.target, first.mean) == ("same guarantee", "80 %", "−4.0 %")
    assert (second.name, second.target) == ("weaker guarantee", "")
    assert second.mean_x < first.mean_x < found.baseline_x < found.scale.end


def test_other_tables_have_no_finding() -> None:
    assert find_differences("T", ("target", "method", "width"), [("0.8", "BQ", "2")]) is None
    others = [("0.8", "DCO, refit", "DCO-Warmstart", "1", "0", "2")]
    assert find_differences("T", HEAD, others) is None


def test_every_method_is_explained_and_other_names_are_not() -> None:
    for name, method in {
        **{method.name: method for method in METHODS.values()},
        **TABLE_ROWS,
    }.items():
        words = explain_method(name)
        assert words is not None
        assert method.rule in words
        assert ("No guarantee" in words) == (method.guarantee == "none")
    assert explain_method("CQR (gradient boosting)") == explain_method("CQR")
    assert "fitted again" in str(explain_method("DCO, refit"))
    assert explain_method("<script>") is None


def test_the_page_of_make_run_opens_with_the_finding_and_fits_a_phone(
    opened: Callable[..., Any],
) -> None:
    window = opened(results_html(RESULTS / "diabetes"), width=390)
    texts = window.page.locator("header p.finding, table").all_text_contents()
    assert texts[0].startswith("With the same promise as Bayesian quadrature")
    assert texts[1].startswith("With the usual, weaker promise")
    hovered = window.page.locator("td abbr, th abbr").first
    assert hovered.text_content() == "BQ"
    assert "PAC guarantee" in hovered.get_attribute("title")
    assert {"BQ", "DCO-Warmstart", "CQR (gradient boosting)"} <= set(
        window.page.locator(".legend dt").all_text_contents()
    )
    assert (window.complaints, window.width() <= 390) == ([], True)


def test_the_command_ends_with_the_finding(tmp_path: Path) -> None:
    printed = (
        CliRunner()
        .invoke(main, ["report", str(RESULTS / "diabetes"), "--out", str(tmp_path / "page.html")])
        .output
    )
    assert printed.startswith("Diabetes: With the same promise as Bayesian quadrature")
    assert (
        " With the usual, weaker promise (coverage on average over calibrations), they are "
        in printed
    )
