"""The page as text: self-contained, safe with hostile names, strict JSON, small, written whole."""

import base64
import json
import os
import re
import zlib
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest
from scipy.stats import beta
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LogisticRegression

import dco
from dco.report import page_html, plots, report_numbers, write_page
from dco.report.rendering import render_template, strict_json
from dco.report.view import gap_figure

ALL = [
    "classification",
    "pac classification",
    "by label",
    "regression",
    "by sign",
    "infeasible",
    "no rows",
    "clusters",
    "overlapping",
    "nothing guaranteed",
    "conditions without rows",
]
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"


def embedded(html: str) -> Any:
    """The arrays of the page, which must be strict JSON."""

    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is not strict JSON")

    (text,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL
    )
    return json.loads(text, parse_constant=refuse)


def plain_text(html: str) -> str:
    """What a reader sees, on one line."""
    body = re.sub(r"<(script|style|pre).*?</\1>", "", html, flags=re.DOTALL)
    text = unescape(re.sub(r"<[^>]+>", " ", body))
    return " ".join(text.split())


class Tags(HTMLParser):
    """Tags with their attributes, and whether they are balanced."""

    VOID = ("meta", "input", "br", "img", "link")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, Any]]] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, Any]]) -> None:
        self.all.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, Any]]) -> None:
        self.all.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


# ---- structure and safety


@pytest.mark.parametrize("name", ALL)
def test_the_page_is_well_formed_and_loads_nothing(html_of: Any, name: str) -> None:
    tags = Tags(html_of(name))
    assert tags.open == []
    assert not {"link", "img", "iframe", "object", "form"} & {tag for tag, _ in tags.all}
    for _, attributes in tags.all:
        assert not {"src", "href", "style", "onerror", "onclick"} & attributes.keys()
    identities = [attributes["id"] for _, attributes in tags.all if "id" in attributes]
    assert len(identities) == len(set(identities))


@pytest.mark.parametrize("name", ["classification", "by label", "infeasible"])
def test_the_same_fit_and_rows_give_the_same_page(case: Any, html_of: Any, name: str) -> None:
    assert page_html(case(name).estimator, **case(name).rows()) == html_of(name)


@pytest.mark.parametrize("name", ALL)
def test_plots_and_tables_are_named(html_of: Any, name: str) -> None:
    """A title, a description and a table for each plot; a caption for each table."""
    html = html_of(name)
    for figure in re.findall(r"<figure>.*?</figure>", html, re.DOTALL):
        ((title, words),) = re.findall(r'role="img" aria-labelledby="(\S+) (\S+)"', figure)
        assert re.search(
            rf'<title id="{title}">[^<]+</title><desc id="{words}">[^<]+</desc>', figure
        )
        assert re.search(r"<details>.*<table>.*</table>.*</details>", figure, re.DOTALL)
    captions = re.findall(r"<table[^>]*><caption>([^<]+)</caption>", html)
    assert len(captions) == html.count("<table")
    assert len(set(captions)) == len(captions)
    assert set(re.findall(r"<th\b(?! scope=\"(?:row|col)\")[^>]*>", html)) == set()


@pytest.mark.parametrize("name", ALL)
def test_the_control_reads_one_array_for_each_figure(html_of: Any, name: str) -> None:
    html = html_of(name)
    data = embedded(html)
    figures = set(re.findall(r'data-figure="([^"]+)"', html)) - {"promise"}
    assert figures <= data.keys()
    assert {len(data[figure]) for figure in figures} == {len(data["alpha"])}


def test_hostile_names_are_text_and_nothing_else(case: Any) -> None:
    chosen = case("classification")
    html = page_html(chosen.estimator, **chosen.rows(), title=HOSTILE)
    assert "<img" not in html
    assert html.count("</script>") == 2  # the data and the script
    assert unescape(html).count(HOSTILE) > 3


def test_the_policy_allows_the_one_style_and_the_one_script(html_of: Any) -> None:
    html = html_of("no rows")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    directives = policy.replace("&#39;", "'").split("; ")
    assert directives[0] == "default-src 'none'"
    assert "unsafe" not in policy
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(sha256(inside.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in directives


def test_strict_json_comes_back_and_cannot_end_its_element() -> None:
    hostile = [1.5, None, "</script>", "&amp;", "\u2028\u2029"]
    text = strict_json({"a": [np.inf, -np.inf, *hostile], "b": np.nan})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"a": ["inf", "-inf", *hostile], "b": None}


def test_a_template_without_a_value_fails_loudly() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render_template("results.html", title="x")


# ---- what it says


def test_infinity_is_a_sign(html_of: Any) -> None:
    html = html_of("infeasible")
    data = embedded(html)
    start = data["start"]
    assert data["threshold"][start] == "∞"
    assert data["mean_size"][start] == "∞"
    assert "The threshold at α = 0.01 is infinite and every set is full" in plain_text(html)


def test_a_threshold_at_the_lowest_score_is_a_word() -> None:
    """Labels that the model knows: the most probable one is enough, and the other needs more."""
    rng = np.random.default_rng(0)
    code = rng.choice(2, p=[0.7, 0.3], size=1200)
    X = rng.normal(size=(1200, 2)) + 1.5 * np.eye(2)[code]
    y = np.array(["no", "yes"])[code]
    est = dco.DecoupledClassifier(
        LogisticRegression(), condition_on="label", alpha=0.2, random_state=0
    ).fit(X[:800], y[:800])
    lowest, other = sorted(threshold.value for threshold in est.certificate_.thresholds)
    assert lowest < -1e300, "otherwise nothing is tested here"
    text = plain_text(page_html(est, X=X[800:], y=y[800:]))
    assert "lowest score" in text
    assert f" {other:.4f} " in text
    assert "e308" not in text


@pytest.mark.parametrize("name", ALL)
def test_no_page_shows_a_digest_or_a_huge_number(html_of: Any, name: str) -> None:
    text = plain_text(html_of(name))
    assert not re.search(r"=<\d+ [0-9a-f]{8}>|e\+?308|e\+\d", text)


def test_without_rows_the_page_says_so_and_shows_no_coverage(html_of: Any) -> None:
    html = html_of("no rows")
    assert "No rows with known outcomes were given" in html
    assert re.search(r"<h1[^>]*>Nothing has been checked yet", html)
    assert not {"coverage", "mean_size"} & embedded(html).keys()


def test_rows_that_were_left_out_are_named(case: Any) -> None:
    chosen = case("regression")
    X = np.r_[chosen.fitted[0][:2], chosen.X]
    y = np.r_[chosen.fitted[1][:2], chosen.y]
    with pytest.warns(UserWarning, match="2 of 302 rows"):
        html = page_html(chosen.estimator, X=X, y=y)
    assert "2 of 302 rows equal rows of the fit" in html
    assert "on the <strong>300 rows</strong>" in html


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("clusters", "no bound is known here"),
        ("nothing guaranteed", "Nothing is guaranteed, at this or any other level."),
        ("overlapping", "no bound is known here"),
        ("regression", "only the simultaneous bound holds"),
    ],
)
def test_the_page_says_what_holds_at_other_levels(html_of: Any, name: str, words: str) -> None:
    assert words in plain_text(html_of(name))


@pytest.mark.parametrize("name", ["clusters", "overlapping", "nothing guaranteed"])
def test_without_a_law_none_is_spoken_of(html_of: Any, name: str) -> None:
    text = plain_text(html_of(name))
    assert "No law of coverage is known here" in text
    assert "follows from the rank" not in text
    assert "Nothing was checked" in text


def test_where_nothing_is_claimed_nothing_is_assumed(html_of: Any) -> None:
    assert "Assumption:" not in plain_text(html_of("nothing guaranteed"))


@pytest.mark.parametrize(
    ("name", "by", "words"),
    [
        ("by label", None, "the guarantee holds in each of them"),
        ("by label", "side", "own thresholds, and promises nothing about these slices"),
        ("classification", None, "promises nothing about a single slice"),
    ],
)
def test_tables_say_what_is_promised_of_their_slices(
    case: Any, name: str, by: str | None, words: str
) -> None:
    chosen = case(name)
    values = None if by is None else chosen.by
    html = page_html(chosen.estimator, X=chosen.X, y=chosen.y, by=values)
    assert words in plain_text(html)


def test_sets_of_one_size_are_not_called_small_and_large(html_of: Any) -> None:
    """The absolute residual gives every row the same length; labels differ in number."""
    assert "All sets have the same size" in html_of("regression")
    assert '<span class="kind">large</span>' not in html_of("regression")
    assert '<span class="kind">large</span>' in html_of("classification")


def test_the_page_says_what_it_was_made_from_and_calls_rows_by_name(
    case: Any, numbers_of: Any
) -> None:
    chosen = case("regression")
    names = [f"<loan> {100 + row}" for row in range(len(chosen.y))]
    html = page_html(
        chosen.estimator, X=chosen.X, y=chosen.y, source="Rows: 7 of <a>.csv.", names=names
    )
    assert "Rows: 7 of &lt;a&gt;.csv." in html
    for example in numbers_of("regression").rows.examples:
        assert f'<span class="facts">&lt;loan&gt; {100 + example.row}<br>' in html


def test_a_name_is_needed_for_each_row(case: Any) -> None:
    chosen = case("regression")
    with pytest.raises(ValueError, match="names must hold one name for each of 300 rows, got 299"):
        page_html(chosen.estimator, X=chosen.X, y=chosen.y, names=["a"] * 299)


# ---- the certificate, and how large a page is


@pytest.mark.parametrize("name", ["classification", "by label"])
def test_the_whole_certificate_can_be_read_back(case: Any, html_of: Any, name: str) -> None:
    (text,) = re.findall(r'<pre id="certificate"[^>]*>(.*?)</pre>', html_of(name), re.DOTALL)
    assert dco.Certificate.from_json(unescape(text)) == case(name).estimator.certificate_


def test_a_long_certificate_is_packed(case: Any, html_of: Any) -> None:
    (packed,) = re.findall(r'id="packed">([^<]*)<', html_of("thousand by label"))
    text = zlib.decompress(base64.b64decode(packed)).decode()
    assert text == case("thousand by label").estimator.certificate_.to_json()


@pytest.mark.parametrize("name", ["thousand", "thousand by label"])
def test_a_thousand_classes_fit_into_200_kilobytes(html_of: Any, name: str) -> None:
    assert len(html_of(name).encode()) <= 200_000


def test_conditions_that_are_not_drawn_are_counted(html_of: Any) -> None:
    assert "988 smaller conditions are not drawn" in plain_text(html_of("thousand by label"))


def test_write_page_writes_page_html(case: Any, tmp_path: Path) -> None:
    chosen = case("regression")
    path = write_page(chosen.estimator, tmp_path / "r.html", **chosen.rows(), title="Widths")
    assert path.read_text(encoding="utf-8") == page_html(
        chosen.estimator, **chosen.rows(), title="Widths"
    )
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_folder_that_is_not_there_is_named(case: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        write_page(case("regression").estimator, tmp_path / "nowhere" / "r.html")


# ---- plots


def test_the_law_is_drawn_where_it_lies() -> None:
    """The highest point of the path is at the mode of Beta(k, n + 1 - k)."""
    n = 200
    rank = 181
    law = beta(rank, n + 1 - rank)
    mode = (rank - 1) / (n - 1)
    scale = plots.Scale(0.8, 1.0)
    path = plots.law_path(rank, n, scale)
    points = [tuple(map(float, pair.split(" "))) for pair in re.findall(r"L([\d.]+ [\d.]+)", path)]
    assert min(points, key=lambda point: point[1])[0] == pytest.approx(scale.to_pixels(mode), abs=4)
    base = plots.LAW_BASE
    for x, y in points[::6]:
        share = (x - scale.start) / (scale.end - scale.start)
        coverage = scale.low + share * (scale.high - scale.low)
        height = (base - y) / (base - plots.TOP)
        assert height == pytest.approx(law.pdf(coverage) / law.pdf(mode), abs=0.03)


def test_bars_are_as_high_as_their_shares() -> None:
    path = plots.bars_path([(k, k + 1) for k in range(4)], [0.0, 0.5, 0.25, 1.0])
    full = plots.BOTTOM - plots.TOP
    heights = [(plots.BOTTOM - float(top)) / full for top in re.findall(r"V([\d.]+)H", path)]
    assert heights == pytest.approx([0.5, 0.25, 1.0], abs=0.001)


@pytest.mark.parametrize("promised", [0.99, 0.9, 0.75, 0.5])
def test_the_axis_of_coverage_shows_the_promise_and_ends_at_all(promised: float) -> None:
    scale = plots.coverage_scale(promised, [promised - 0.2])
    ticks = plots.coverage_ticks(scale, promised)
    assert scale.low < promised - 0.2
    assert scale.high == min(1.0, promised + 0.22)
    assert f"{100 * promised:g}\u202f%" in [tick.label for tick in ticks]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0, 50_000, 100_000], ["0", "50k", "100k"]),
        ([-500_000, 0, 2_500_000], ["−0.5M", "0", "2.5M"]),
        ([0, 5e8, 1e9], ["0", "5e8", "1e9"]),
        ([0, 5e-5, 1e-4], ["0", "5e−5", "1e−4"]),
        ([0, 50_000], ["0", "50\u202f000"]),
    ],
)
def test_the_labels_of_an_axis_have_one_form(values: list[float], labels: list[str]) -> None:
    assert plots.tick_labels(values) == labels


def test_a_law_without_an_upper_end_leaves_the_rest_of_the_picture_in_view() -> None:
    """Tied scores at some levels: the band leaves the picture there."""
    y = np.random.default_rng(0).normal(size=1200)
    y[(abs(y) > 0.5) & (abs(y) < 0.7)] = 0.6
    model = DummyRegressor(strategy="constant", constant=0.0)
    est = dco.DecoupledRegressor(model, dco.scores.AbsoluteResidual(), random_state=0)
    numbers = report_numbers(est.fit(y[:600, None], y[:600]), y[600:, None], y[600:])
    unbounded = [level.alpha for level in numbers.levels if level.likely_high == 1]
    assert max(unbounded) > 0.2, "otherwise nothing is tested here"
    figure = gap_figure(numbers)
    assert figure is not None
    assert max(float(tick.label.replace("−", "-")) for tick in figure.ticks) <= 20
