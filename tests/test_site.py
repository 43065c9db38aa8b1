"""The documentation site: every public name has its entry, every page its place, and the built site
works from disk.

The site itself is built and opened where MkDocs and Chromium are installed (`make docs` installs
the first).
"""

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dco

ROOT = Path(__file__).parents[1]
HOOK = runpy.run_path(str(ROOT / "docs" / "theme" / "hook.py"))


def entries() -> set[str]:
    """The names that the reference has, as users write them: `tune`, `scores.LAC`."""
    pages = (path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md"))
    return {shown or path for page in pages for path, shown in HOOK["ENTRY"].findall(page)}


def public_names() -> set[str]:
    """Names of dco and of its public modules; a module without `__all__` is one entry."""
    modules = {name for name in dco.__all__ if type(getattr(dco, name)).__name__ == "module"}
    listed = {
        f"{name}.{member}"
        for name in modules
        for member in getattr(getattr(dco, name), "__all__", ())
    }
    whole = {name for name in modules if not hasattr(getattr(dco, name), "__all__")}
    return (set(dco.__all__) - modules) | whole | listed


def test_every_public_name_has_an_entry_and_every_entry_a_name() -> None:
    # dco.LabelSets is also dco.sets.LabelSets
    short = {name.rpartition(".")[2] for name in entries()}
    undocumented = {"RULES", "Guarantee"}  # a dictionary and a type alias
    missing = {
        name
        for name in public_names() - entries()
        if name.rpartition(".")[2] not in short | undocumented
    }
    assert not missing, f"give them a line `::: dco.NAME` in docs/reference: {sorted(missing)}"
    assert entries() <= public_names()


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    named = set(re.findall(r"[\w/.-]+\.md", nav))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= named
    assert {page for page in named - pages if not (ROOT / page).exists()} == {"gallery/index.md"}


@pytest.mark.parametrize("path", HOOK["gallery"](), ids=lambda path: path.stem)
def test_an_example_of_the_gallery_draws(path: Path) -> None:
    pytest.importorskip("matplotlib")
    example = HOOK["executed"](path)
    assert example.figures
    assert all("<svg" in figure for figure in example.figures)
    assert example.title
    assert example.text


def test_the_picture_of_the_readme_is_what_its_script_draws() -> None:
    images = ROOT / "docs" / "images"
    assert (
        runpy.run_path(str(images / "decoupled.py"))["picture"]()
        == (images / "decoupled.svg").read_text()
    )


@pytest.mark.parametrize(
    ("source", "link", "wanted"),
    [
        ("docs/a.md", "../VISION.md", "VISION.md"),
        ("docs/tutorials/a.md", "../../examples/own_logits.py", "../gallery/own_logits.md"),
        ("docs/tutorials/a.md", "../b.md#part", "../b.md#part"),
        ("benchmarks/RESULTS.md", "../docs/b.md", "../b.md"),
        ("VISION.md", "docs/b.md", "b.md"),
        ("docs/a.md", "#part", "#part"),
        ("docs/a.md", "https://example.org/x.md", "https://example.org/x.md"),
    ],
)
def test_links_between_folders_are_translated(source: str, link: str, wanted: str) -> None:
    assert HOOK["translated"](f"see [it]({link})", source) == f"see [it]({wanted})"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does: a broken link ends it."""
    if (
        importlib.util.find_spec("material") is None
        or importlib.util.find_spec("mkdocstrings") is None
    ):
        pytest.skip("MkDocs is not installed: make docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture
def window(browser: Any) -> Iterator[Any]:
    """A window of the browser, which notes errors and every request that leaves the disk."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(120_000)
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on(
        "request",
        lambda sent: (
            sent.url.startswith(("file:", "data:", "blob:")) or page.complaints.append(sent.url)
        ),
    )
    yield page
    page.close()


@pytest.mark.browser
def test_the_site_is_searched_from_disk(site: Path, window: Any) -> None:
    window.goto((site / "index.html").as_uri())
    window.locator("input.md-search__input").click()
    window.keyboard.type("pac_rank")
    window.locator(".md-search-result__item a").first.wait_for()
    found = window.locator(".md-search-result__item a").evaluate_all(
        "links => links.map(link => link.href)"
    )
    window.goto(next(link for link in found if "reference/rules.html" in link))
    assert window.locator("h1").inner_text().startswith("Calibration rules")
    assert window.complaints == []


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_the_window_and_show_their_pictures(site: Path, window: Any, width: int) -> None:
    window.set_viewport_size({"width": width, "height": 800})
    for name in (
        "index",
        "explanation",
        "tutorials/table",
        "gallery/index",
        "reference/estimators",
        "paper",
        "questions",
    ):
        window.goto((site / f"{name}.html").as_uri())
        assert window.evaluate("document.documentElement.scrollWidth") <= width, name
        assert window.evaluate("[...document.images].every(image => image.naturalWidth > 0)"), name
    assert window.complaints == []


def test_every_local_link_of_the_site_leads_somewhere(site: Path) -> None:
    """Also those that MkDocs does not check: cards of the gallery, anchors of the reference."""
    texts = {path: path.read_text() for path in site.rglob("*.html")}
    ids = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in texts.items()}
    broken = []
    for path, text in texts.items():
        for link in re.findall(
            r'\b(?:href|src)="([^"]+)"', text.partition("<article")[2].partition("</article>")[0]
        ):
            if re.match(r"\w+:", link):
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            if not target.exists() or (anchor and target in ids and anchor not in ids[target]):
                broken.append((path.relative_to(site).as_posix(), link))
    assert broken == []
