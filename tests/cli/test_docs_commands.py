"""Every `dco ...` line of README and docs/ runs, in order, in an empty folder; so does the example
of every --help.
"""

import re
import shlex
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dco.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
FIRST = ROOT / "docs" / "tutorials" / "table.md"
BLOCK = re.compile(r"^```(python|sh)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def dco_lines(page: str) -> list[str]:
    """The lines of the page's sh blocks that begin with `dco `, lines that end in a backslash
    joined.
    """
    blocks = [body.replace("\\\n", " ") for kind, body in BLOCK.findall(page) if kind == "sh"]
    return [line for body in blocks for line in body.splitlines() if line.startswith("dco ")]


def pages() -> list[Path]:
    return [
        path
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        if dco_lines(path.read_text())
    ]


def run(line: str) -> Any:
    words = shlex.split(line, comments=True)
    assert words[0] == "dco"
    result = CliRunner().invoke(main, words[1:])
    assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception!r}"
    return result


def make_tables(page: str) -> None:
    """Run those Python blocks of a page that write the tables of its commands."""
    for kind, body in BLOCK.findall(page):
        if kind == "python" and re.search(r"\.to_(csv|parquet)\(", body):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                exec(compile(body, "page", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_every_command_of_a_page_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = path.read_text()
    make_tables(page)
    for line in dco_lines(page):
        run(line)
    if path == FIRST:
        assert "The promise held on these rows" in (tmp_path / "report.html").read_text().replace(
            "\u00a0", " "
        )


def test_the_first_tutorial_goes_from_nothing_to_a_checked_report_in_six_commands():
    (block,) = [body for kind, body in BLOCK.findall(FIRST.read_text()) if kind == "sh"]
    first, *others = block.splitlines()
    assert first.startswith("pip install ")
    assert (len(others), others) == (5, dco_lines(FIRST.read_text()))
    assert "tutorials/table.md" in (ROOT / "README.md").read_text()


def examples(name: str) -> list[str]:
    text = CliRunner().invoke(main, [name, "--help"], terminal_width=200).output
    return [
        line.strip()
        for line in text.partition("Example:")[2].splitlines()
        if line.strip().startswith("dco ")
    ]


def test_every_help_has_an_example_that_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "command-line.md").read_text()
    assert {line.split()[1] for line in dco_lines(page)} == set(COMMANDS)
    make_tables(page)
    for name in COMMANDS:
        found = examples(name)
        assert found, f"dco {name} --help has no example"
        for line in found:
            assert line.split()[1] == name
            run(line)


def test_a_command_that_fails_would_be_seen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (line,) = dco_lines("```sh\nmake run\ndco fit nothing.csv \\\n  --target y\n```\n")
    with pytest.raises(AssertionError, match=r"no file nothing\.csv"):
        run(line)
