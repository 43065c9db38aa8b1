"""The page as text: self-contained, safe with hostile names, strict JSON, small, and written whole
or not at all.
"""

import base64
import json
import os
import re
import zlib
from hashlib import sha256
from html import unescape as html_unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta
from sklearn.dummy import DummyRegressor

import dco
from dco.calibration.facts import certified_threshold
from dco.certificate.certificate import Certificate
from dco.report import page_html, plots, report_numbers, write_page
from dco.report.formats import level_percent, percent, shortened
from dco.report.numbers import by_fifth
from dco.report.rendering import render_template, strict_json
from dco.report.view import build_view

ALL = [
    "classification",
    "pac classification",
    "by label",
    "regression",
    "by sign",
    "infeasible",
    "no rows",
]
ALL += ["clusters", "nothing guaranteed", "conditions without rows"]
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"


def refuse(name: str) -> float:
    raise AssertionError(f"{name} is not strict JSON")


def embedded(html: str) -> Any:
    (found,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL
    )
    return json.loads(found, parse_constant=refuse)


class Tags(HTMLParser):
    """Tags with their attributes, and whether they are balanced."""

    VOID = ("meta", "input", "br", "img", "link")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ALL)
def test_the_page_is_whole_and_holds_all_it_needs(html_of: Any, case: Any, name: str) -> None:
    chosen, html = case(name), html_of(name)
    assert len(html.encode()) <= 300_000
    tags = Tags(html)
    assert tags.open == []
    assert not {"img", "iframe", "link", "object", "form"} & {tag for tag, _ in tags.found}
    for _, attributes in tags.found:
        assert not {"src", "href", "style", "onerror", "onclick"} & attributes.keys()
    identities = [attributes["id"] for _, attributes in tags.found if "id" in attributes]
    assert len(identities) == len(set(identities))
    assert chosen.estimator.certificate_.statement in html
    assert page_html(chosen.estimator, **chosen.rows()) == html


@pytest.mark.parametrize("name", ALL)
def test_plots_and_tables_are_named_and_every_name_that_is_looked_up_is_there(
    html_of: Any, name: str
) -> None:
    """A title, a description and a table for each plot; a caption for each table, a scope for each
    head.
    """
    html, data = html_of(name), embedded(html_of(name))
    figures, tables = (
        re.findall(rf"<{tag}>.*?</{tag}>", html, re.DOTALL) for tag in ("figure", "table")
    )
    assert len(figures) == {"no rows": 3, "conditions without rows": 2}.get(name, 5)
    for figure in figures:
        ((title, words),) = re.findall(r'role="img" aria-labelledby="(\S+) (\S+)"', figure)
        assert re.search(
            rf'<title id="{title}">[^<]+</title><desc id="{words}">[^<]+</desc>', figure
        )
        assert re.search(r"<details>.*<table>.*</table>.*</details>", figure, re.DOTALL)
    captions = [re.findall(r"^<table><caption>([^<]+)</caption>", table) for table in tables]
    assert min(map(len, captions)) == 1
    assert len({caption for (caption,) in captions}) == len(captions) >= 4
    assert set(re.findall(r"<th\b(?! scope=\"(?:row|col)\")[^>]*>", html)) == set()
    assert set(re.findall(r'data-text="([^"]+)"', html)) <= data["text"].keys()
    assert set(re.findall(r'data-drawn="([^"]+)"', html)) <= data["drawn"].keys()
    assert set(re.findall(r'data-set="([^"]+)"', html)) == data["sets"].keys()
    entries = [
        *data["text"].values(),
        *(values for entry in data["drawn"].values() for values in entry.values()),
    ]
    assert {len(values) for values in entries} == {len(data["numbers"])}


def test_hostile_names_are_text_and_nothing_else(case: Any) -> None:
    chosen = case("classification")
    html = page_html(chosen.estimator, **chosen.rows(), title=HOSTILE)
    assert "<img" not in html
    assert html.count("</script>") == 2  # the data and the script
    assert (
        "\u2028" not in re.sub(r"<pre.*?</pre>", "", html, flags=re.DOTALL).split('id="data">')[1]
    )
    assert HOSTILE in embedded(html)["labels"]
    assert "49" not in shortened("{{ 7 * 7 }}")


def test_the_policy_allows_the_one_style_and_the_one_script(html_of: Any) -> None:
    html = html_of("no rows")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    allowed = policy.replace("&#39;", "'").split("; ")
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(sha256(inside.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in allowed
    assert allowed[0] == "default-src 'none'"
    assert "unsafe" not in policy


def test_infinity_is_a_string_in_the_data_and_a_sign_on_the_page(html_of: Any) -> None:
    html, data = html_of("infeasible"), embedded(html_of("infeasible"))
    at = data["numbers"][data["start"]]
    assert at["threshold"] == at["mean_size"] == "inf"
    assert data["words"][data["text"]["mean_size"][data["start"]]] == "∞"
    assert "too few for α = 0.01" in html


def test_strict_json_comes_back_and_cannot_end_its_element() -> None:
    hostile = [1.5, None, "</script>", "&amp;", "\u2028\u2029"]
    text = strict_json({"a": [np.inf, -np.inf, *hostile], "b": np.nan})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"a": ["inf", "-inf", *hostile], "b": None}


def test_without_rows_the_page_says_so_and_shows_no_coverage(html_of: Any) -> None:
    html = html_of("no rows")
    assert "No rows with known outcomes were given" in html
    assert not {"coverage", "mean_size", "verdict"} & embedded(html)["text"].keys()
    assert "No rows with known outcomes" not in html_of("classification")
    assert re.search(r"<h1[^>]*>Nothing has been checked yet", html)


@pytest.mark.parametrize("name", ["classification", "by label"])
def test_the_whole_certificate_can_be_read_back_from_the_page(
    case: Any, html_of: Any, name: str
) -> None:
    chosen = case(name)
    (found,) = re.findall(r'<pre id="certificate"[^>]*>(.*?)</pre>', html_of(name), re.DOTALL)
    assert Certificate.from_json(html_unescape(found)) == chosen.estimator.certificate_


@pytest.mark.parametrize("name", ["thousand", "thousand by label"])
def test_a_thousand_classes_fit_into_300_kilobytes(html_of: Any, case: Any, name: str) -> None:
    chosen, html, by_label = case(name), html_of(name), name == "thousand by label"
    assert len(html.encode()) <= 300_000
    assert ("988 smaller conditions are not drawn" in html) == by_label
    assert "others are not" in html
    whole = re.search(r'id="packed">([^<]*)<', html)
    text = (
        html_unescape(html)
        if whole is None
        else zlib.decompress(base64.b64decode(whole.group(1))).decode()
    )
    assert (whole is not None) == by_label
    assert chosen.estimator.certificate_.to_json() in text


def test_the_law_is_drawn_where_it_lies() -> None:
    """The highest point of the path is at the mode of Beta(k, n + 1 - k); bars are as high as their
    shares.
    """
    n, rank = 200, 181
    entry = certified_threshold(0.5, rank=rank, n=n, is_tied=False)
    scale = plots.Scale(0.8, 1.0)
    path = plots.law_path(entry, scale)
    points = [tuple(map(float, pair.split(" "))) for pair in re.findall(r"L([\d.]+ [\d.]+)", path)]
    mode = (rank - 1) / (n - 1)
    assert min(points, key=lambda point: point[1])[0] == pytest.approx(scale(mode), abs=4)
    base = plots.BOTTOM - 34
    law = beta(rank, n + 1 - rank)
    full = plots.BOTTOM - plots.TOP
    tops = re.findall(
        r"V([\d.]+)H", plots.bars([(k, k + 1) for k in range(4)], [0.0, 0.5, 0.25, 1.0])
    )
    assert [(plots.BOTTOM - float(top)) / full for top in tops] == pytest.approx(
        [0.5, 0.25, 1.0], abs=0.001
    )
    for x, y in points[::6]:
        coverage = scale.low + (x - scale.start) / (scale.end - scale.start) * (
            scale.high - scale.low
        )
        assert (base - y) / (base - plots.TOP) == pytest.approx(
            law.pdf(coverage) / law.pdf(mode), abs=0.03
        )


def test_the_axis_of_coverage_ends_at_all_and_at_nothing() -> None:
    window = plots.CoverageWindow(0.3, 0.1)
    for alpha in (0.01, 0.1, 0.25, 0.5):
        scale, ticks = window.scale(alpha), window.ticks(alpha)
        assert (scale.low, scale.high) == pytest.approx(
            (1 - alpha - 0.3, min(1.0, 1 - alpha + 0.3))
        )
        shown, places = [tick for tick in ticks if tick.label], [k / 10 for k in range(-3, 4)]
        expected = [
            f"{100 * (1 - alpha + place):.4g}\u202f%" for place in places if place <= alpha + 1e-9
        ]
        assert [tick.label for tick in shown] == expected
        for tick in shown:
            assert tick.at == pytest.approx(scale(float(tick.label[:-2]) / 100), abs=0.2)
    assert window.scale(0.9).low == 0


def test_the_labels_of_an_axis_have_one_form() -> None:
    for values, labels in (
        ([0, 50_000, 100_000], ["0", "50k", "100k"]),
        ([-500_000, 0, 2_500_000], ["−0.5M", "0", "2.5M"]),
        ([0, 5e8, 1e9], ["0", "5e8", "1e9"]),
        ([0, 5e-5, 1e-4], ["0", "5e−5", "1e−4"]),
        ([0, 0.5, 1], ["0", "0.5", "1"]),
        ([0, 50_000], ["0", "50\u202f000"]),
    ):
        assert plots.tick_labels(values) == labels


def test_a_law_without_an_upper_end_leaves_the_rest_of_the_picture_in_view() -> None:
    """Tied scores at some levels: the band leaves the picture there, and the axis is that of the
    other levels.
    """
    y = np.random.default_rng(0).normal(size=1200)
    y[(abs(y) > 0.5) & (abs(y) < 0.7)] = 0.6
    model = DummyRegressor(strategy="constant", constant=0.0)
    est = dco.DecoupledRegressor(model, dco.scores.AbsoluteResidual(), random_state=0).fit(
        y[:600, None], y[:600]
    )
    numbers = report_numbers(est, y[600:, None], y[600:])
    ends = {level.alpha: level.coverage_and_range()[2] for level in numbers.levels}
    assert [alpha for alpha, end in ends.items() if end == 1 and alpha > 0.2], (
        "otherwise nothing is tested here"
    )
    ticks = build_view(numbers)[1]["gap_ticks"]
    assert max(float(tick.label.replace("−", "-")) for tick in ticks) <= 20


def test_neither_a_share_nor_a_promise_below_one_is_written_as_all() -> None:
    shares = {1.0: "100.0", 0.99999: "99.9", 0.5: "50.0", 0.00001: "0.1", 0.0: "0.0"}
    assert {share: percent(share) for share in shares} == {
        share: f"{text}\u202f%" for share, text in shares.items()
    }
    levels = {0.1: "90", 0.07: "93", 0.005: "99.5", 0.4: "60", 1e-9: "99.9999999", 1e-5: "99.999"}
    assert {alpha: level_percent(alpha) for alpha in levels} == {
        alpha: f"{text}\u202f%" for alpha, text in levels.items()
    }


def test_write_page_writes_page_html(case: Any, tmp_path: Path) -> None:
    chosen = case("regression")
    path = write_page(chosen.estimator, tmp_path / "r.html", **chosen.rows(), title="Widths")
    assert path.read_text(encoding="utf-8") == page_html(
        chosen.estimator, **chosen.rows(), title="Widths"
    )
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    with pytest.raises(FileNotFoundError, match="does not exist"):
        write_page(chosen.estimator, tmp_path / "nowhere" / "r.html")


def test_the_page_says_what_it_was_made_from_and_calls_rows_by_name(
    case: Any, numbers_of: Any, html_of: Any
) -> None:
    chosen = case("regression")
    names = [f"<loan> {100 + row}" for row in range(len(chosen.y))]
    html = page_html(
        chosen.estimator, X=chosen.X, y=chosen.y, source="Rows: 7 of <a>.csv.", names=names
    )
    assert "Rows: 7 of &lt;a&gt;.csv." in html
    for example in numbers_of("regression").rows.examples:
        assert f'<span class="facts">&lt;loan&gt; {100 + example.row}<br>' in html
    assert not re.search(r">row \d", html)
    assert re.search(r">row \d", html_of("regression"))
    with pytest.raises(ValueError, match="names must hold one name for each of 300 rows, got 299"):
        page_html(chosen.estimator, X=chosen.X, y=chosen.y, names=names[1:])


def test_levels_that_cannot_be_bounded_say_so(case: Any, numbers_of: Any, html_of: Any) -> None:
    """Clusters: the threshold is no order statistic of independent scores, so no simultaneous bound
    is claimed.
    """
    assert {level.picked_bound for level in numbers_of("clusters").levels} == {None}
    html, law = (
        html_of("clusters"),
        ("The bar below", "Against its law", "follows from the rank", "90 % range over"),
    )
    assert "no bound is known here: rows belong together in groups" in html
    assert "a quantile of the calibration scores, weighted over 38 clusters of rows." in re.sub(
        r"<[^>]+>", "", html
    )
    assert "simultaneous bound holds" not in html
    assert "no exact law of coverage is known. The dot is what was seen." in re.sub(
        r"<[^>]+>", "", html
    )
    # the page does not speak of a bar that is not there
    for name, drawn in (("clusters", False), ("regression", True)):
        assert [words in html_of(name) for words in law] == [drawn] * 4
        # without rows too
        assert ('aria-labelledby="law' in page_html(case(name).estimator)) == drawn


def test_rows_in_clusters_get_no_verdict(case: Any) -> None:
    """A PAC threshold has a rank, that of one row of each cluster; rows of one cluster are still
    not independent.
    """
    chosen = case("pac clusters")
    new = {"X": chosen.X, "y": np.full(len(chosen.y), 1000.0)}
    levels = report_numbers(chosen.estimator, **new).levels
    assert levels[0].threshold.rank is not None
    assert {level.evaluation.consistency for level in levels} == {None}
    html = page_html(chosen.estimator, **new)
    assert "The bar below" not in html
    assert "lower than chance explains" not in html


def test_a_predictor_that_guarantees_nothing_says_so_at_every_level(html_of: Any) -> None:
    html = html_of("nothing guaranteed")
    slices, reason = "Nothing is guaranteed. The 95 % intervals", "the weights were estimated"
    for said in (slices, reason, "Nothing is guaranteed, at this or any other level."):
        assert said in html
    # nothing is claimed, so nothing is assumed
    assert not re.search('class="assumption">|simultaneous bound holds', html)


def test_the_table_by_slice_says_what_is_guaranteed_of_these_slices(
    case: Any, html_of: Any
) -> None:
    given, of_these = case("by label"), "the guarantee holds in each of them"
    assert of_these in page_html(given.estimator, X=given.X, y=given.y)
    assert of_these in page_html(
        given.estimator, X=given.X, y=given.y, by=np.char.add("class ", given.y)
    )
    assert "own thresholds, and promises nothing about these slices" in html_of("by label")
    assert "promises nothing about a single slice" in html_of("classification")


def test_a_slice_is_too_low_where_its_whole_interval_lies_below_the_promise(case: Any) -> None:
    """One half of the rows has moved targets: below the promise at every level, and the other half
    at none.
    """
    chosen = case("regression")
    half = np.arange(len(chosen.y)) % 2 == 0
    numbers = report_numbers(chosen.estimator, chosen.X, chosen.y + 4 * half, by=half)
    for place, row in enumerate(numbers.own.slices[0]):
        low = [level.slices[0][place].coverage_high < 1 - level.alpha for level in numbers.levels]
        assert build_view(numbers)[0].text[f"g0.{place}.low"] == [
            "too low" if below else "" for below in low
        ]
        assert any(low) == row.group


def test_a_search_for_evenness_is_not_told_to_ask_for_it() -> None:
    points = np.arange(100.0)
    assert 'objective="even"' in by_fifth(points, even=False)[0].mend
    assert 'objective="even"' not in by_fifth(points, even=True)[0].mend
    assert by_fifth(np.ones(9), even=False) == []


def test_a_template_without_a_value_fails_loudly() -> None:
    import jinja2

    with pytest.raises(jinja2.UndefinedError):
        render_template("results.html", title="x")


def test_sets_of_one_size_are_not_called_small_and_large(html_of: Any) -> None:
    """The absolute residual gives every row the same length; labels differ in number."""
    words = (
        '<span class="kind">same size</span>',
        '<span class="kind">large</span>',
        "All sets have the same size",
    )
    assert [said in html_of("regression") for said in words] == [True, False, True]
    assert [said in html_of("classification") for said in words] == [False, True, False]
