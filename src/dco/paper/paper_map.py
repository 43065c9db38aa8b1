"""The map from the paper's numbers to commands, results and modules, made from the catalogue.

It stands in results/README.md and at the beginning of docs/paper.md, between two comments. After a
change of findings or of records, in a checkout:
``python -c "from dco.paper.paper_map import write_map as write; write('.')"``.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from dco.foundations.files import write_files
from dco.paper.catalogue import EXPERIMENTS
from dco.paper.experiment import Experiment
from dco.paper.paper_parts import PARTS, Finding, PaperPart
from dco.paper.results_folder import RECORDS_FILE
from dco.paper.tables import markdown_row

BEGIN = "<!-- map of the paper: begin -->"
END = "<!-- map of the paper: end -->"
COLUMNS = ("in the paper", "what it shows", "command", "minutes", "results", "module", "finding")
CORES = 2  # minutes are those of a machine with so many
README = """# Results

What `dco reproduce all` wrote: a folder for each experiment, with the records of all splits
(`records.jsonl`), tables (`tables.md` and a CSV file each), the figures of the paper, and what they
were made with (`settings.json`, `machine.json`). In a checkout `dco reproduce NAME` draws them
again from the records, in seconds and without data. [Every coverage beside its law](all/tables.md);
[the paper, claim by claim](../docs/paper.md); [where the data come from](../docs/paper-data.md).

## From the paper's numbers to ours

{map}
"""


def write_map(root: str | Path) -> None:
    """Write the map into results/README.md and docs/paper.md of a checkout."""
    pages = make_pages(Path(root))
    write_files({Path(root) / name: text for name, text in pages.items()})


def make_pages(root: Path) -> dict[str, str]:
    """Return what the two pages with the map should hold, by their paths in a checkout."""
    old_page = (root / "docs" / "paper.md").read_text(encoding="utf-8")
    before, _, rest = old_page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return {
        "results/README.md": README.format(map=make_map(root, folder="results")),
        "docs/paper.md": f"{before}{BEGIN}\n{make_map(root, folder='docs')}\n{END}{after}",
    }


def make_map(root: Path, *, folder: str) -> str:
    """Write the map as a table in Markdown, with links from a page in `folder` of a checkout.

    Rows are in the order of `PARTS`; a part that several experiments are about has a row for each.
    """
    lines = [markdown_row(COLUMNS), markdown_row("---" for _ in COLUMNS)]
    for part in PARTS:
        for experiment in EXPERIMENTS.values():
            for finding in experiment.findings:
                if finding.part == part.number:
                    lines.append(map_row(part, experiment, finding, root=root, folder=folder))
    note = (
        f"Minutes are those of all splits on {CORES} cores, by the seconds on record; drawn again "
        'from records, everything takes seconds. "–": never run.'
    )
    return "\n".join([*lines, "", note])


def map_row(
    part: PaperPart, experiment: Experiment, finding: Finding, *, root: Path, folder: str
) -> str:
    """Write the row of the map for what one experiment finds about one part."""
    module_file = module_path(finding.module)
    results_file = results_path(experiment, finding)
    results_link = "–"
    if results_file is not None:
        name = results_file.removeprefix("results/").partition("#")[0]
        results_link = f"[{name}]({os.path.relpath(results_file, folder)})"
    return markdown_row(
        [
            part.number,
            part.shows,
            f"`dco reproduce {experiment.name}`",
            minutes_on_record(experiment, root / "results"),
            results_link,
            f"[{finding.module}]({os.path.relpath(module_file, folder)})",
            f"**{finding.verdict}**: {finding.why}",
        ]
    )


def module_path(module: str) -> str:
    """Return the file of a module: "dco.paper.bounds" -> "src/dco/paper/bounds.py"."""
    return f"src/{module.replace('.', '/')}.py"


def results_path(experiment: Experiment, finding: Finding) -> str | None:
    """Return where a finding is seen, in a checkout: a figure, or a table on the page of tables.

    None if there are no results.
    """
    if not finding.shown_in:
        return None
    if finding.shown_in.endswith(".svg"):
        return f"results/{experiment.name}/{finding.shown_in}"
    return f"results/{experiment.name}/tables.md#{anchor(finding.shown_in)}"


def anchor(title: str) -> str:
    """Turn the title of a table into the anchor that its heading gets in Markdown."""
    without_punctuation = re.sub(r"[^a-z0-9 -]", "", title.lower())
    return without_punctuation.replace(" ", "-")


def minutes_on_record(experiment: Experiment, results: Path) -> str:
    """Write how many minutes all splits take on two cores, by the seconds of their records."""
    path = results / experiment.source / RECORDS_FILE
    if not path.is_file():
        return "–"
    lines = path.read_text(encoding="utf-8").splitlines()
    seconds = sum(json.loads(line)["seconds"] for line in lines)
    minutes = seconds / 60 / CORES
    return f"{minutes:.1f}" if minutes >= 0.05 else "< 0.1"
