"""What is shipped: `.ci/dist` builds it and tries it in fresh environments; these are the facts
that need no build.
"""

import re
import runpy
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import pytest

import dco
from dco.foundations.errors import MissingExtraError
from dco.foundations.extras import require

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def shipped(path: str) -> bool:
    """Is this file in the sdist?"""
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    return any(
        fnmatch(f"/{path}", pattern) or f"/{path}".startswith(f"{pattern}/") for pattern in included
    )


def test_the_sdist_has_every_file_that_the_readme_and_the_pages_link() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    targets = {
        (page.parent / link).resolve() for page in pages for link in LINK.findall(page.read_text())
    }
    names = {target.relative_to(ROOT).as_posix() for target in targets}
    assert {name for name in names if not (ROOT / name).exists()} == set()
    assert {name for name in names if not shipped(name)} == set()
    assert not shipped("results/diabetes/records.jsonl")


def test_the_version_is_written_once() -> None:
    assert "version" not in PROJECT["project"]
    assert "version" in PROJECT["project"]["dynamic"]
    path = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert len(re.findall(r'^__version__ = "\d+\.\d+\.\d+"$', path.read_text(), re.MULTILINE)) == 1


@pytest.mark.parametrize("address", [None, "https://example.org/dco"])
def test_a_package_index_shows_no_link_that_leads_nowhere(
    monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    """hatchling is there when a package is built, and not needed for this."""
    monkeypatch.setitem(
        sys.modules,
        "hatchling.metadata.plugin.interface",
        SimpleNamespace(MetadataHookInterface=object),
    )
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["Readme"]()
    hook.root, metadata = str(ROOT), {} if address is None else {"urls": {"Source": address}}
    hook.update(metadata)
    text, links = metadata["readme"]["text"], LINK.findall((ROOT / "README.md").read_text())
    assert LINK.findall(text) == []
    assert "docs/images/decoupled.svg" in links
    assert text.count(f"]({address}/") == (0 if address is None else len(links))
    assert ("](https://example.org/dco/raw/HEAD/docs/images/decoupled.svg)" in text) == (
        address is not None
    )


def test_a_missing_package_is_named_with_the_extra_that_brings_it() -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'decoupled-conformal\[report\]'\.$"):
        require("no_such_package", extra="report")
    extras = PROJECT["project"]["optional-dependencies"]
    named = {
        extra
        for path in ROOT.glob("src/**/*.py")
        for extra in re.findall(r'\bextra="(\w+)"', path.read_text())
    }
    assert named <= extras.keys()


def test_sentences_are_folded_into_the_changelog_as_often_as_needed(tmp_path: Path) -> None:
    main = runpy.run_path(str(ROOT / ".ci" / "changelog"))["main"]
    log, told = tmp_path / "CHANGELOG.md", tmp_path / "changelog.d"
    told.mkdir()
    log.write_text("# What changed\n\n## 0.1.0\n\n### Old\n- `a` is there.\n")
    for version, words in (
        ("0.2.0", "`b` is\nthere.\n`c` too.\n"),
        (None, "`c` too.\n`d` as well.\n"),
        ("0.2.0", "`e` at last.\n"),
    ):
        (told / "new-things.md").write_text(words)
        main(tmp_path, version)
        assert list(told.iterdir()) == []
    new = "### New things\n- `b` is there.\n- `c` too.\n- `d` as well.\n- `e` at last.\n"
    assert (
        log.read_text()
        == f"# What changed\n\n## 0.2.0\n\n{new}\n## 0.1.0\n\n### Old\n- `a` is there.\n"
    )


def test_the_changelog_has_a_section_for_this_version() -> None:
    newest = re.search(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == dco.__version__
    assert f"version: {dco.__version__}\n" in (ROOT / "CITATION.cff").read_text()
