"""What MkDocs does not do by itself: pages from other folders, executed examples with their
figures, links between them.

A file keeps its path in the repository as its address on the site, except that `docs/` is dropped
and `examples/NAME.py` becomes `gallery/NAME.md`. Links are written as the repository needs them and
translated here. The comment ``<!-- figure: NAME -->`` on a page becomes the first figure of
`examples/gallery/NAME.py`.
"""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import re
import runpy
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ELSEWHERE = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "RELEASING.md",
    "VISION.md",
    "benchmarks/RESULTS.md",
    "results/*/*.svg",
    "results/*/tables.md",
    "src/dco/paper/*.py",
    "src/dco/predictor.py",
)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
FIGURE = re.compile(r"^<!-- figure: (\w+) -->$", re.MULTILINE)
# a name, and how users call it
ENTRY = re.compile(r"^::: dco\.(\S+)$(?:\n    options: {heading: dco\.([\w.]+))?", re.M)


@dataclass(frozen=True)
class Executed:
    """A gallery example after its run."""

    name: str
    title: str
    text: str
    code: str
    printed: str
    figures: tuple[str, ...]  # SVG


@cache
def executed(path: Path) -> Executed:
    """Run an example of the gallery in this process; a warning is an error, and every figure that
    it leaves open is kept.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    printed, code = io.StringIO(), path.read_text()
    style = {
        "svg.hashsalt": "dco",
        "figure.figsize": (6.4, 3.6),
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with (
        matplotlib.rc_context(style),
        warnings.catch_warnings(),
        contextlib.redirect_stdout(printed),
    ):
        warnings.simplefilter("error")
        docstring = str(runpy.run_path(str(path))["__doc__"])
        figures = tuple(map(_svg, map(pyplot.figure, pyplot.get_fignums())))
        pyplot.close("all")
    title, _, text = docstring.partition("\n")
    body = code.split('"""\n', 1)[1].strip()
    return Executed(path.stem, title.rstrip("."), text.strip(), body, printed.getvalue(), figures)


def _svg(figure: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    return out.getvalue()


def gallery() -> list[Path]:
    """The examples that draw."""
    return sorted((ROOT / "examples" / "gallery").glob("*.py"))


def longer() -> list[Path]:
    """The examples that only print; they are shown and not run here."""
    return sorted((ROOT / "examples").glob("*.py"))


def gallery_page(example: Executed) -> str:
    """Figures, code and output of one example."""
    pictures = "\n\n".join(
        f"![{example.title}]({example.name}-{i}.svg)" for i in range(len(example.figures))
    )
    output = f"\n\n```text\n{example.printed.rstrip()}\n```" if example.printed.strip() else ""
    code = f"```python\n{example.code}\n```"
    return f"# {example.title}\n\n{example.text}\n\n{pictures}\n\n{code}{output}\n"


def longer_page(path: Path) -> str:
    """The code of one longer example under the first line of its docstring."""
    title = path.read_text().split('"""')[1].split("\n")[0].rstrip(".")
    return f"# {path.name}\n\n{title}.\n\n```python\n{path.read_text()}```\n"


def gallery_index(examples: list[Executed]) -> str:
    """Thumbnails that lead to the pages."""
    cards = "\n".join(
        f'<a class="card" href="{example.name}.html"><img src="{example.name}-0.svg" '
        f'alt=""><span>{example.title}</span></a>'
        for example in examples
    )
    others = "\n".join(f"- [{path.stem.replace('_', ' ')}]({path.stem}.md)" for path in longer())
    return (
        "# Gallery\n\nEvery figure is drawn when this site is built, by the code on its page.\n\n"
        f'<div class="cards">\n{cards}\n</div>\n\n## Longer examples\n\n{others}\n'
    )


def names_table() -> str:
    """The pages of the reference with the names on each."""
    lines = ["| page | names |", "|---|---|"]
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        if names := ENTRY.findall(page.read_text()):
            title = page.read_text().split("\n")[0].removeprefix("# ")
            links = " · ".join(f"[{shown or path}][dco.{path}]" for path, shown in names)
            lines.append(f"| [{title}]({page.name}) | {links} |")
    return "\n".join(lines)


def site_path(path: str) -> str:
    """Where a file of the repository stands on the site."""
    if path.startswith("examples/"):
        return f"gallery/{posixpath.basename(path).removesuffix('.py')}.md"
    return path.removeprefix("docs/")


def translated(markdown: str, source: str) -> str:
    """A page of the repository with its links as the site needs them."""
    here = posixpath.dirname(source)

    def link(found: re.Match[str]) -> str:
        target = site_path(posixpath.normpath(posixpath.join(here, found[1])))
        return f"]({posixpath.relpath(target, posixpath.dirname(site_path(source)) or '.')}"

    return LINK.sub(link, markdown)


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages of other folders and the gallery."""
    from mkdocs.structure.files import File

    for pattern in ELSEWHERE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    examples = [executed(path) for path in gallery()]
    pages = {f"{example.name}.md": gallery_page(example) for example in examples}
    pages |= {
        f"{example.name}-{i}.svg": svg
        for example in examples
        for i, svg in enumerate(example.figures)
    }
    pages |= {f"{path.stem}.md": longer_page(path) for path in longer()}
    for name, content in {**pages, "index.md": gallery_index(examples)}.items():
        files.append(File.generated(config, f"gallery/{name}", content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Translate links and put figures in."""
    uri = page.file.src_uri
    if uri.startswith("gallery/"):
        return markdown
    if uri.startswith("results/"):
        page.meta["search"] = {"exclude": True}  # tables of numbers, which nobody searches for
    source = f"docs/{uri}" if (ROOT / "docs" / uri).exists() else uri
    up = posixpath.relpath("gallery", posixpath.dirname(uri) or ".")

    def figure(found: re.Match[str]) -> str:
        example = executed(ROOT / "examples" / "gallery" / f"{found[1]}.py")
        return f"[![{example.title}]({up}/{found[1]}-0.svg)]({up}/{found[1]}.md)"

    return FIGURE.sub(figure, translated(markdown, source)).replace("<!-- names -->", names_table())
