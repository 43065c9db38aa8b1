"""Every Python example in README and docs/ runs, and prints what the page shows.

A page's ```python blocks run in order in one namespace; a ```text block that follows one holds its
exact output.
"""

import contextlib
import io
import os
import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(python|text)( [^\n]*)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "```python" in path.read_text()
]


def steps(page: str) -> list[tuple[str, str | None]]:
    """(code, expected output or None) for each Python block of a page."""
    found: list[tuple[str, str | None]] = []
    position = 0
    for match in BLOCK.finditer(page):
        kind, flags, body = match.group(1), match.group(2) or "", match.group(3)
        close = page[position : match.start()].strip() == ""
        if kind == "python" and "no-run" not in flags:
            found.append((body, None))
        elif kind == "text" and found and found[-1][1] is None and close:
            found[-1] = (found[-1][0], body)
        position = match.end()
    return found


def same(printed: str, shown: str) -> bool:
    """Equal text, trailing blanks aside."""
    return [line.rstrip() for line in printed.strip().splitlines()] == [
        line.rstrip() for line in shown.strip().splitlines()
    ]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_examples_of_a_page_print_what_it_shows(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = steps(path.read_text())
    assert found, "a page with a Python block has at least one step"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    if "DCO_DATA_HOME" not in os.environ and (ROOT.parent / "shared" / "data").is_dir():
        monkeypatch.setenv("DCO_DATA_HOME", str(ROOT.parent / "shared" / "data"))
    namespace: dict[str, object] = {"__name__": "__main__"}
    for code, shown in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("error")
            exec(compile(code, str(path), "exec"), namespace)
        if shown is not None:
            assert same(printed.getvalue(), shown), (
                f"{path.name} shows\n{shown}\nbut the code prints\n{printed.getvalue()}"
            )


def test_a_wrong_output_would_be_seen() -> None:
    ((code, shown),) = steps("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    assert code == "print(1 + 1)\n"
    assert shown is not None
    assert not same("2\n", shown)


SEARCHED_FOR = [
    "covariate shift",
    "class-conditional",
    "text",
    "segmentation",
    "polars",
    "LLM",
    "latency",
    "prefit",
    "time series",
    "multi-label",
]


@pytest.mark.parametrize("words", SEARCHED_FOR)
def test_what_people_search_for_stands_on_a_page(words):
    pages = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    assert any(words.lower() in page.lower() for page in pages)
