"""What `results/` holds was made by this code: splits of each experiment are run again and
compared.

Two splits where one takes under 3 s, otherwise one. The title of a test says what is compared.
"""

import json
import math
import re
from functools import cache
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

from dco.paper.catalogue import experiments
from dco.paper.experiment import Options, SplitRecord
from dco.paper.records import machine, plain, unpacked, versions

PROCESSOR = machine()["processor"]
RESULTS = Path(__file__).parents[2] / "results"
# On the processor and with the versions of the record, numbers agree to float noise. Elsewhere
# another rounding may send a Gibbs chain or a tree another way: what the protocol fixes must still
# be equal, and results close.
NOISE = 1e-6
FIXED = {
    "method",
    "alpha",
    "guarantee",
    "rank",
    "n",
    "law",
    "n_test",
    "sizes",
    "m",
    "schedule",
    "part",
    "distance",
    "rank_dco",
}
# a few times what another chain or another choice moves them
ELSEWHERE = {"coverage": 0.06, "width": 0.25, "p95": 0.5}
REQUIRED = (
    "diabetes",
    "concrete",
    "asymptotics",
    "tuning-oracle",
    "table-1",
    "beyond-diabetes",
    "beyond-concrete",
)
LARGER = ("california", "beyond-california")  # compared where their results are kept
QUICK = ("diabetes", "concrete", "asymptotics", "tuning-oracle", "beyond-diabetes")
OURS = [*REQUIRED, *(name for name in LARGER if (RESULTS / name / "tables.md").is_file())]


@cache
def records(name: str) -> list[dict]:
    path = RESULTS / name / "records.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def kept_splits(name: str) -> tuple[list[SplitRecord], Options]:
    """All splits of the record, and the options they were made with."""
    found = records(name)
    settings = found[0]["settings"]
    kept = [
        SplitRecord(entry["seed"], tuple(unpacked(entry["rows"])), entry["seconds"])
        for entry in found
    ]
    return kept, Options(tuple(settings["alphas"]), settings["quick"])


def entry_at(name: str, place: int) -> dict | None:
    found = records(name)
    return found[place % len(found)] if found else None


def made_here(name: str, entry: dict | None) -> bool:
    """Whether the record was made on such a processor with these versions."""
    if entry is None or entry["versions"] != versions():
        return False
    return json.loads((RESULTS / name / "machine.json").read_text())["processor"] == PROCESSOR


def title(case: tuple[str, int]) -> str:
    roughly = ", ".join(f"{key} within {away:g}" for key, away in ELSEWHERE.items())
    compared = (
        "every number"
        if made_here(case[0], entry_at(*case))
        else f"made elsewhere, so protocol, {roughly}"
    )
    return f"{case[0]}, record {case[1]}: {compared}"


# Some splits, not always the first.
CASES = [
    (name, place)
    for name in OURS
    for place in (len(name), 2 * len(name))[: 2 if name in QUICK else 1]
]


@pytest.mark.parametrize("case", CASES, ids=title)
def test_a_split_run_again_gives_its_record(case, data_home):
    name, entry = case[0], entry_at(*case)
    assert entry is not None, f"results/{name}/records.jsonl is missing"
    here = made_here(name, entry)
    experiment = experiments()[name]
    options = Options(tuple(entry["settings"]["alphas"]), entry["settings"]["quick"], data_home)
    if experiment.missing is not None and experiment.missing(options) is not None:
        pytest.skip("the data of this experiment are not on this machine")
    with threadpool_limits(1):  # as in a run: sums over several threads round otherwise
        again = plain(experiment.run_split(entry["seed"], options))
    recorded = unpacked(entry["rows"])
    assert len(again) == len(recorded)
    for fresh, kept in zip(again, recorded, strict=True):
        assert list(fresh) == list(kept)
        for key, value in kept.items():
            if not here and kept.get("stopped") and key in ("n", "rank"):
                continue  # a tuning split that grows may stop elsewhere
            assert same(key, fresh[key], value, here=here), (
                f"{name}, seed {entry['seed']}, {kept.get('method')}, {key}: {fresh[key]} for "
                f"{value}"
            )


@pytest.mark.parametrize("name", OURS)
def test_the_tables_are_made_from_the_records(name):
    kept, options = kept_splits(name)
    experiment = experiments()[name]
    assert len(kept) == experiment.splits
    page = "\n".join(table.to_markdown() for table in experiment.tables(kept, options))
    assert page == (RESULTS / name / "tables.md").read_text()


@pytest.mark.parametrize("page", ["paper.md", "paper-classification.md"])
def test_a_figure_on_a_page_is_kept_and_is_the_one_that_is_drawn(page, tmp_path):
    """By its words: another version of matplotlib may lay it out another way."""
    text = (RESULTS.parent / "docs" / page).read_text(encoding="utf-8")
    (shown,) = re.findall(r"\]\(\.\./results/([a-z0-9-]+/[a-z0-9.-]+\.svg)\)", text)
    name, file = shown.split("/")
    assert f"!/{shown}" in (RESULTS / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert (RESULTS / shown).stat().st_size < 100_000
    experiments()[name].figures(*kept_splits(name), tmp_path)
    assert words(tmp_path / file) == words(RESULTS / shown)


def words(svg: Path) -> set[str]:
    """Titles, labels and legends, without the numbers of ticks."""
    found = re.findall(r"<text[^>]*>([^<]+)</text>", svg.read_text(encoding="utf-8"))
    return {each for each in found if re.search("[A-Za-z]", each)}


def same(key: str, fresh: object, kept: object, *, here: bool) -> bool:
    if not here and key not in FIXED:
        return key not in ELSEWHERE or abs(fresh - kept) <= ELSEWHERE[key]
    if isinstance(kept, float) and isinstance(fresh, (int, float)):
        return math.isclose(fresh, kept, rel_tol=NOISE, abs_tol=1e-9)
    return fresh == kept
