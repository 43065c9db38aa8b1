"""The page in a real browser: it moves, it is quiet, it asks for nothing, and it can be read and
used by everyone.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from dco import DecoupledClassifier, DecoupledRegressor
from dco.foundations.notes import NoteWarning
from dco.report import page_html, report_numbers, results_html
from dco.report.formats import fixed, level_percent, percent, threshold_in_words
from dco.report.view import size_decimals

pytestmark = pytest.mark.browser

RESULTS = Path(__file__).parents[2] / "results"
ALL = [
    "classification",
    "pac classification",
    "by label",
    "regression",
    "by sign",
    "infeasible",
    "no rows",
]

LIGHT = """() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
"""

BARS = """
  const page = light(parse(getComputedStyle(document.body).backgroundColor));
  const edges = {bars: "fill", inner: "fill", law: "stroke", band: "stroke", range: "stroke", piece: "stroke"};
  return Object.entries(edges).flatMap(([name, what]) => [...document.querySelectorAll("svg ." + name)].map(shape => {
    const own = light(parse(getComputedStyle(shape)[what]));
    return [(Math.max(own, page) + 0.05) / (Math.min(own, page) + 0.05), name];
  }));
}"""

CONTRAST = """
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  for (const details of document.querySelectorAll("details")) details.open = true;
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest("script, style, title, desc") || !element.checkVisibility()) continue;
    if (![...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())) continue;
    const style = getComputedStyle(element);
    if (style.visibility !== "visible") continue;
    const ink = parse(element.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([ratio, element.tagName + "." + element.getAttribute("class") + ": " + element.textContent.slice(0, 40)]);
  }
  return found;
}"""


CUT = """() => [...document.querySelectorAll(".scroll")]
  .filter(box => box.checkVisibility() && box.scrollWidth > box.clientWidth + 1).map(box => box.textContent.slice(0, 80))"""

CLIPPED = """() => [...document.querySelectorAll(".figures dd")]
  .filter(figure => figure.scrollWidth > figure.clientWidth + 1).map(figure => figure.textContent)"""

OUTSIDE = """() => [...document.querySelectorAll("figure svg text")].filter(text => {
  const box = text.getBoundingClientRect(), frame = text.closest("svg").getBoundingClientRect();
  const beside = box.left < frame.left - 2 || box.right > frame.right + 2;
  return box.width && (beside || box.bottom > frame.bottom + 2);
}).map(text => text.textContent)"""

CROSSED = """plot => {
  const boxes = [...document.querySelectorAll(`svg[aria-labelledby^=${plot}] text`)]
    .map(text => text.getBoundingClientRect()).filter(box => box.width);
  return boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b =>
    a.left < b.right && b.left < a.right && a.top < b.bottom - 2 && b.top < a.bottom - 2)).length;
}"""


@pytest.mark.parametrize("width", [1200, 390, 320])
@pytest.mark.parametrize("name", ALL)
def test_the_page_is_quiet_and_stays_in_its_frame(opened: Any, name: str, width: int) -> None:
    """It asks for nothing, hostile names do nothing, and a phone never scrolls sideways."""
    window = opened(name, width=width)
    window.page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    assert window.width() <= width
    assert width < 1200 or window.page.evaluate(OUTSIDE) == []
    assert window.complaints == []
    assert len(window.requests) == 1
    assert window.page.title().startswith("Prediction sets of ")
    assert window.page.locator("img").count() == 0


@pytest.mark.parametrize("name", ["classification", "regression"])
def test_tables_need_no_scrolling_on_a_phone(opened: Any, name: str) -> None:
    cut = opened(name, width=390).page.evaluate(CUT)
    assert [text for text in cut if "candidate" in text or "sizes by" in text] == []


@pytest.mark.parametrize("width", [1200, 390, 320])
@pytest.mark.parametrize("name", ["classification", "regression", "infeasible", "no rows"])
def test_figures_beside_the_control_are_never_cut(opened: Any, name: str, width: int) -> None:
    window = opened(name, width=width)
    for index in (0, 12, 30, 59):
        window.show(index)
        assert window.page.evaluate(CLIPPED) == []
        assert window.width() <= width


def test_cells_of_a_table_by_slice_know_their_column(opened: Any) -> None:
    page = opened("classification").page
    heads = page.locator('[aria-labelledby="h-slices0"] thead th').all_text_contents()
    cells = "[...document.querySelectorAll('[aria-labelledby=h-slices0] tbody tr:first-child td')]"
    assert page.evaluate(f"{cells}.map(cell => cell.dataset.label)") == heads[1:]


# levels without a finite threshold
@pytest.mark.filterwarnings("ignore::dco.foundations.errors.InfeasibleLevelWarning")
@pytest.mark.parametrize(
    "name", ["classification", "pac classification", "by label", "regression", "infeasible"]
)
def test_the_control_shows_what_python_computes(case: Any, opened: Any, name: str) -> None:
    """Against `estimator.evaluate` at the same level, called here."""
    chosen, window = case(name), opened(name)
    numbers = report_numbers(chosen.estimator, chosen.X, chosen.y)
    decimals = size_decimals(numbers)
    slack = chosen.estimator.certificate_.simultaneous_slack(0.05)
    for index in (0, 7, 19, 33, 59):
        window.show(index)
        level = numbers.levels[index]
        expected = chosen.estimator.evaluate(chosen.X, chosen.y, alpha=level.alpha)
        assert window.text("#coverage") == percent(expected.coverage)
        assert window.text("#mean-size") == fixed(expected.mean_size, decimals)
        assert window.text('label [data-figure="promise"]') == level_percent(level.alpha)
        assert window.text("#bound") == percent(max(0.0, 1 - level.alpha - slack))
        if level.threshold is not None:
            assert window.text("#threshold") == threshold_in_words(level.threshold)


@pytest.mark.parametrize("name", ["classification", "infeasible", "no rows"])
def test_the_script_writes_what_the_page_was_written_with(
    opened: Any, html_of: Any, name: str
) -> None:
    """At the certified level the figures are those of the page without a script."""
    written = re.findall(r'<span data-figure="\w+">([^<]*)</span>', html_of(name))
    assert opened(name).page.locator("[data-figure]").all_text_contents() == written


def test_without_a_script_the_control_is_hidden(html_of: Any, browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(html_of("regression"), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert not page.locator("#alpha").is_visible()
    assert page.locator("h1").is_visible()
    context.close()


def test_the_keyboard_moves_the_control_and_goes_back(opened: Any) -> None:
    window = opened("regression")
    page = window.page
    start, spoken = window.text("#coverage"), page.get_attribute("#alpha", "aria-valuetext")
    page.focus("#alpha")
    page.keyboard.press("End")
    assert window.text('label [data-figure="alpha"]') == "0.5"
    assert window.text("#coverage") != start
    assert page.get_attribute("#alpha", "aria-valuetext") != spoken
    page.keyboard.press("ArrowLeft")
    assert window.text('label [data-figure="alpha"]') == "0.49"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "reset"
    page.keyboard.press("Enter")
    assert window.text("#coverage") == start
    assert page.evaluate("document.activeElement.id") == "alpha"


@pytest.mark.parametrize("name", ["regression", "thousand by label"])
def test_the_certificate_is_copied_or_selected_whole(case: Any, opened: Any, name: str) -> None:
    """Also where it is too long to be shown."""
    window, text = opened(name), case(name).estimator.certificate_.to_json()
    assert len(window.text("#certificate")) < 20_000
    window.page.evaluate(
        "() => { navigator.clipboard.writeText = async text => { window.kept = text; }; }"
    )
    window.page.click("#copy")
    window.page.locator("#copied", has_text=re.compile(".")).wait_for()
    assert window.page.evaluate("window.kept") == text
    window.page.evaluate(
        "() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')); }"
    )
    window.page.click("#copy")
    window.page.locator("#copied", has_text=re.compile("^Selected")).wait_for()
    assert json.loads(window.page.evaluate("String(getSelection())")) == json.loads(text)
    assert window.complaints == []


def test_the_policy_stops_what_the_page_does_not_bring(opened: Any) -> None:
    window = opened("no rows")
    with window.page.expect_event("requestfailed") as failed:
        window.page.evaluate("""() => {
          const script = document.createElement("script");
          script.textContent = "window.ran = true";
          document.body.append(script);
          const image = document.createElement("img");
          image.src = "https://example.org/x.png";
          document.body.append(image);
        }""")
    assert window.page.evaluate("window.ran === undefined")
    # not stopped by the network
    assert (failed.value.url, failed.value.failure) == ("https://example.org/x.png", "csp")


def test_the_tables_of_a_comparison_fit_on_a_desk(tmp_path: Path, opened: Any) -> None:
    from dco.cli.comparison import round_for_reading
    from dco.paper import Measured, ResultTable

    columns = (
        "method",
        "n",
        "coverage",
        "mean size",
        "P95 size",
        "size − DCO",
        "Wilcoxon p",
        "candidate, most often",
    )
    measured = (Measured(0.91291, 0.0042), Measured(211.2854, 8.2869), Measured(258.8699, 13.8435))
    row = (
        "DCO with a PAC rank",
        1111,
        *measured,
        -27.8438,
        0.0312500,
        "quantiles / QuantileResidual(kind='relative')",
    )
    (tmp_path / "tables.md").write_text(
        round_for_reading(
            ResultTable("Marginal", "Over splits.", columns, (row, row))
        ).to_markdown()
    )
    names = ("table-1", "diabetes", "split-ratio")  # columns of sentences; many columns
    for folder in (tmp_path, *(RESULTS / name for name in names)):
        assert opened(results_html(folder)).page.evaluate(CUT) == []


@pytest.mark.parametrize("width", [320, 390])
def test_the_tables_of_results_are_read_without_scrolling_on_a_phone(
    opened: Any, width: int
) -> None:
    """Rows become blocks: the name on top, each number below its heading, empty cells left out, all
    still a table.

    Drawings keep a size that can be read: they are moved inside their frame, by the keyboard too,
    and the page stays.
    """
    frame = "box => [box.tabIndex, box.children[0].clientWidth, box.scrollWidth]"
    for name in ("diabetes", "table-1", "split-ratio"):
        window = opened(results_html(RESULTS / name), width=width)
        assert (window.page.evaluate(CUT), window.width() <= width) == ([], True)
        frames = window.page.evaluate(f"[...document.querySelectorAll('.drawing')].map({frame})")
        assert [tab == 0 and 500 <= image <= inside for tab, image, inside in frames] == [
            True
        ] * len(frames)
        assert name != "diabetes" or frames
    shown = window.page.evaluate("""() => {
      const row = document.querySelector(".stack tbody tr");
      const top = cell => cell.getBoundingClientRect().top;
      const cells = [...row.querySelectorAll("td")];
      return {
        first: cells.every(cell => top(cell) > top(row.querySelector("th"))),
        labels: cells.map(cell => getComputedStyle(cell, "::before").content.slice(1, -1)),
        heads: [...document.querySelectorAll(".stack thead th")].map(cell => cell.textContent),
        roles: ["table", "row", "rowheader", "cell"].map(role => document.querySelector(`.stack [role=${role}]`) !== null),
      };
    }""")
    assert shown["first"]
    assert all(shown["roles"])
    assert window.page.locator(".stack tbody tr").first.locator("th").count() == 1
    assert set(shown["labels"]) < set(shown["heads"])
    for size, media in ((1200, "screen"), (width, "print")):
        window.page.set_viewport_size({"width": size, "height": 800})
        window.page.emulate_media(media=media)
        assert (
            window.page.evaluate(
                "getComputedStyle(document.querySelector('.stack tbody tr')).display"
            )
            == "table-row"
        )


@pytest.mark.parametrize("scale", [1e-12, 6e4, 1e9])
def test_numbers_of_any_size_are_told_and_drawn(opened: Any, scale: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    y = scale * (X[:, 0] + rng.normal(size=500))
    estimator = DecoupledRegressor(Ridge(), random_state=0).fit(X[:400], y[:400])
    html, mean = (
        page_html(estimator, X=X[400:], y=y[400:]),
        estimator.evaluate(X[400:], y[400:]).mean_size,
    )
    for width in (390, 1200):
        window = opened(html, width=width)
        assert float(
            window.text("#mean-size").replace("−", "-").replace("\u202f", "")
        ) == pytest.approx(mean, rel=1e-3)
        assert window.width() <= width
        assert window.page.evaluate(OUTSIDE) == []
        ticks = window.page.locator("svg[aria-labelledby^=curve] text").all_text_contents()
        assert not any("000" in tick for tick in ticks)
        assert [window.page.evaluate(CROSSED, plot) for plot in ("sizes", "curve", "scores")] == [
            0,
            0,
            0,
        ]
        tall = window.page.evaluate(
            "document.querySelector('svg[aria-labelledby^=curve] .curve').getBBox().height"
        )
        assert tall > 30  # the curve fills its plot


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["classification", "regression", "by label", "infeasible"])
def test_text_and_bars_have_enough_contrast(opened: Any, name: str, scheme: str) -> None:
    """WCAG AA: 4.5 to 1 for all text, axes included, 3 to 1 for areas (1.4.11); coverage is no
    alarm by its colour.
    """
    window = opened(name, scheme=scheme)
    window.show(3)
    for script, least, count in ((BARS, 3, 4), (CONTRAST, 4.5, 100)):
        found = window.page.evaluate(LIGHT + script)
        assert len(found) > count
        assert [entry for entry in found if entry[0] < least] == []
    colour = "name => getComputedStyle(document.getElementById(name)).color"
    assert window.page.evaluate(colour, "coverage") == window.page.evaluate(colour, "mean-size")


def test_the_two_schemes_differ_and_print_is_light_and_no_phone(opened: Any) -> None:
    """A4 is narrower than many windows: plots stand side by side all the same."""
    background = "getComputedStyle(document.body).backgroundColor"
    light, dark = opened("no rows"), opened("no rows", scheme="dark")
    assert light.page.evaluate(background) != dark.page.evaluate(background)
    dark.page.emulate_media(media="print")
    assert dark.page.evaluate(background) == "rgb(255, 255, 255)"
    assert not dark.page.locator("#alpha").is_visible()
    page, columns = (
        opened("regression", width=680).page,
        "getComputedStyle(document.querySelector('.plots')).gridTemplateColumns",
    )
    assert len(page.evaluate(columns).split()) == 1
    page.emulate_media(media="print")
    assert len(page.evaluate(columns).split()) == 2


def test_conditions_with_long_names_can_be_told_apart_in_plots(opened: Any) -> None:
    """A thousand names that begin alike: each plot writes them above the bars, and none covers
    another text.
    """
    page, names = opened("thousand by label").page, "svg[aria-labelledby^={}] text.name"
    for plot in ("law", "scores"):
        shown = page.locator(names.format(plot)).all_text_contents()
        assert (len(set(shown)), len(shown), page.evaluate(CROSSED, plot)) == (12, 12, 0)
    assert page.evaluate(OUTSIDE) == []
    beside = opened("by sign").page
    assert beside.locator("svg text.name").count() == 0
    assert "minus" in beside.locator("svg[aria-labelledby^=law] text").all_text_contents()


def test_the_page_of_results_is_quiet_too(opened: Any, tmp_path: Path) -> None:
    (tmp_path / "table-2.csv").write_text("method,size\n<img src=x onerror=alert(1)>,1.5\n")
    drawn = '<script>alert(1)</script><rect width="40" height="20" style="fill:red"/>'
    (tmp_path / "table-2.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">{drawn}</svg>'
    )
    window = opened(results_html(tmp_path), width=390)
    assert window.page.locator("td img").count() == 0
    assert window.page.evaluate("document.querySelector('figure img').naturalWidth") == 40
    assert (window.complaints, window.width() <= 390) == ([], True)


@pytest.mark.parametrize("shift", [0.0, 3.0], ids=["held", "failed"])
def test_the_first_heading_says_whether_the_promise_held(
    case: Any, opened: Any, shift: float
) -> None:
    """Rows as in the fit, and rows whose targets have moved by three standard deviations."""
    chosen = case("regression")
    rows = {"X": chosen.X, "y": chosen.y + 5 * shift}
    window = opened(page_html(chosen.estimator, **rows))
    heading, whole = (window.page.locator(at).first.inner_text() for at in ("h1, h2, h3", "body"))
    words = "The promise did not hold on these rows" if shift else "The promise held on these rows"
    told = f"{words}: {100 * chosen.estimator.evaluate(**rows).coverage:.1f} % of 300 rows covered"
    assert heading.replace("\u00a0", " ").startswith(told)
    assert ("calibrate again on rows like these" in whole) == bool(shift)
    assert ("no bound holds" in whole) == bool(shift)
    # a promise that failed is not repeated
    assert ("simultaneous bound holds" in whole) == (not shift)
    assert window.complaints == []


def test_a_rare_class_that_is_missed_is_named_with_what_mends_it(opened: Any) -> None:
    """One row in a hundred is of a class that the model cannot tell: it is covered far below the
    promise.
    """
    rng = np.random.default_rng(0)
    code = rng.choice(3, p=[0.7, 0.29, 0.01], size=3000)
    X = rng.normal(size=(3000, 3)) + np.where(code == 2, 0.0, 2.0)[:, None] * np.eye(3)[code]
    y = np.array(["common", "usual", "rare"])[code]
    with pytest.warns(NoteWarning, match="rare"):
        estimator = DecoupledClassifier(LogisticRegression(), random_state=0).fit(
            X[:1500], y[:1500]
        )
    window = opened(page_html(estimator, X=X[1500:], y=y[1500:]), width=390)
    shown = window.page.locator("header, main > section").all_inner_texts()
    told = (
        f"rare is covered in "
        f"{100 * estimator.evaluate(X[1500:], y[1500:], by='label').by_group[1].coverage:.1f}"
    )
    assert "Not for every class: " + told in shown[0].replace("\u00a0", " ")  # beside the verdict
    assert shown[2].startswith("By class")  # before sizes and examples
    note = window.page.locator(".slices .note").first.inner_text()
    assert "Covered less often than" in note
    assert 'condition_on="label", or dco fit --condition-on target.' in note
    rows = window.page.locator(".slices tbody tr")
    assert rows.first.locator("th").inner_text() == "rare"
    assert rows.first.locator(".low").inner_text() == "too low"
    assert (window.width() <= 390, window.complaints) == (True, [])


def test_examples_of_numbers_have_an_axis_with_the_name_of_the_target(opened: Any) -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = pandas.Series(6e4 + 1e4 * (X[:, 0] + rng.normal(size=600)), name="price")
    estimator = DecoupledRegressor(Ridge(), random_state=0).fit(X[:400], y[:400])
    window = opened(page_html(estimator, X=X[400:], y=y[400:]))
    words = window.page.locator(".scale text").all_text_contents()
    assert words[-1] == "price"
    assert len(words) >= 3
    assert (
        "e+"
        not in window.page.locator("main section:not([aria-labelledby=h-certificate])")
        .all_inner_texts()
        .__str__()
    )
