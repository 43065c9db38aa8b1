"""Run every benchmark, each in a process of its own, and write benchmarks/RESULTS.md.

python benchmarks/run_all.py [--puncc PYTHON] [--only NAME ...] [--quick] [--options TEXT]
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TITLES = {
    "tables": "Real tables",
    "end_to_end": "From a table to sets",
    "commands": "Commands and threads",
    "label_sets": "Label sets",
    "device": "Label sets on a GPU",
    "device_heads": "Dropout heads on a GPU",
    "tuning_search": "Tuning",
    "quadrature": "Bayesian quadrature",
    "overlapping_groups": "Overlapping groups",
    "watching": "Watching rows in service",
    "densities": "Regression residuals and mixture densities",
    "growth": "Memory and growth",
    "counting": "An order statistic by counting",
    "diabetes_table": "The Diabetes table",
    "cluster": "Candidate search on a Dask cluster",
    "bayesian_engines": "Bayesian engines",
}
QUICK = {
    "tables": "--splits 1 --rows 300 --only penguins",
    "end_to_end": "--rows 2000 --boosting 2000 --models 600 --repeats 1",
    "commands": "--rows 600 --repeats 1",
    "label_sets": "--numbers 30000 --rows 3000 --classes 3 30 100 --repeats 1",
    "device": "--calibrate 100 --test 200 --classes 20 --rows 200 --batch 100 --repeats 1",
    "device_heads": "--splits 2 --size 200 --on-host 1 --repeats 1",
    "tuning_search": "--rows 500 --classes 100 --repeats 1",
    "quadrature": "--rows 300 --repeats 3",
    "overlapping_groups": "--calibrate 200 --test 20 --repeats 1",
    "watching": "--streams 1 --calibrate 200 --coverage 0.6",
    "densities": "--quick",
    "growth": "--rows 40000 --classes 100 --batch 100 --repeats 1",
    "counting": "--rows 20000 40000",
    "diabetes_table": "--seeds 1 --draws 200",
    "cluster": "--tasks 4 --empty 20 --rows 500 --classes 100 --repeats 1",
    "bayesian_engines": "--quick",
}
ON_REQUEST = ("device", "device_heads")  # they need a GPU
# The peers by the names they go by, and the file that pins each.
PEERS = {
    "MAPIE": "constraints.txt",
    "crepes": "constraints.txt",
    "TorchCP": "constraints.txt",
    "puncc": "puncc.txt",
}


def pinned(peer: str) -> str:
    """The version that `make bench` installs."""
    found = re.search(rf"(?mi)^{peer}==(\S+)$", (HERE / PEERS[peer]).read_text())
    if found is None:
        raise ValueError(f"benchmarks/{PEERS[peer]} does not pin {peer}.")
    return found[1]


*MOST, LAST = (f"{peer} {pinned(peer)}" for peer in PEERS)
HEAD = f"""# Benchmark results

Written by `make bench`, or a section at a time by `run_all.py --only NAME`; not edited by hand. Every figure is a ratio of
two measurements in one run, or says what it is; each section names the command that makes it again. Times are CPU seconds of
one process and one thread, the least of several runs in turn, except where a section says otherwise. "MISSED" marks a target
that this run did not meet. A single run on a shared machine moves by a tenth or so, and more for the small figures. The
peers are those pinned in `benchmarks/`: {", ".join(MOST)} and {LAST}.
"""


def section(name: str, options: list[str]) -> str:
    """One benchmark's output under its title, with its command."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if name not in ON_REQUEST:
        environment["JAX_PLATFORMS"] = "cpu"
    command = [sys.executable, str(HERE / f"{name}.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    body = done.stdout.strip()
    if done.returncode:
        body += f"\n\nThis benchmark failed: `{done.stderr.strip().splitlines()[-1]}`"
    shown = " ".join(["python", f"benchmarks/{name}.py", *options])
    return f"## {TITLES[name]}\n\n`{shown}`\n\n{body}\n"


def main() -> None:
    """Write the sections that were run; those that were not are kept from the file that is
    there.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--puncc", help="the Python of an environment that has puncc")
    usual = [name for name in TITLES if name not in ON_REQUEST]
    parser.add_argument("--only", nargs="*", choices=list(TITLES), default=usual)
    parser.add_argument("--options", default="", help="passed on to each benchmark")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to see that everything runs"
    )
    parser.add_argument("--output", type=Path, default=HERE / "RESULTS.md")
    given = parser.parse_args()
    kept = {}
    if given.output.exists():
        for text in re.split(r"(?m)^(?=## )", given.output.read_text())[1:]:
            kept[text.splitlines()[0][3:]] = text.strip() + "\n"
    for name in given.only:
        options = [*(QUICK[name].split() if given.quick else []), *given.options.split()]
        if name == "label_sets" and given.puncc:
            options += ["--puncc", given.puncc]
        kept[TITLES[name]] = (
            section(name, options) + f"\nMeasured {datetime.date.today():%d %B %Y}.\n"
        )
        print(kept[TITLES[name]], flush=True)
        given.output.write_text(
            "\n".join([HEAD, *(kept[title] for title in TITLES.values() if title in kept)])
        )


if __name__ == "__main__":
    main()
