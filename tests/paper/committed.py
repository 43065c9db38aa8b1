"""The committed results, for tests that read them."""

from pathlib import Path

from dco.paper import Options, SplitRecord
from dco.paper.catalogue import EXPERIMENTS
from dco.paper.records import RecordFile

RESULTS = Path(__file__).parents[2] / "results"


def committed_records(name: str) -> list[SplitRecord]:
    """Read the committed records of an experiment, in order of seed."""
    experiment = EXPERIMENTS[name]
    path = RESULTS / experiment.source / "records.jsonl"
    records = RecordFile(path, experiment, Options(experiment.alphas)).read()
    return [records[seed] for seed in sorted(records)]
