"""The house as ARCHITECTURE.md draws it: stages that import one way, and no work done twice."""

import ast
import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import dco

SOURCE = Path(__file__).parents[1] / "src" / "dco"

STAGES = """
foundations
rows
sets
predictions
scores
models
structure
theory
calibration
tuning search objectives
certificate
predictor
evaluation
estimators
recalibration
storage
bayes risk datasets full_conformal
service
paper
report
cli
__main__
"""
# Folders that use the method as a user would, through public names only.
OUTER_RING = ["bayes", "cli", "datasets", "full_conformal", "paper", "report", "risk", "service"]
LINE_OF = {
    stage: number for number, line in enumerate(STAGES.split("\n")) for stage in line.split()
}
MODULES = {
    ".".join(("dco", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(SOURCE.rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def imported(module: str) -> set[str]:
    """The modules of dco that a module imports, wherever in the file; imports for type checkers
    alone do not count.
    """
    tree = TREES[module]
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.level == 0
            and node.module.startswith("dco")
        ):
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in named}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("dco.")}
    return found - {module}


def stage(module: str) -> str:
    """dco.sets.labels → sets."""
    return module.partition(".")[2].partition(".")[0]


@pytest.mark.parametrize("module", [name for name in MODULES if name != "dco"])
def test_a_module_imports_only_from_earlier_stages(module: str) -> None:
    assert stage(module) in LINE_OF, (
        f"{stage(module)} has no place in the order of the stages: add it to STAGES"
    )
    for other in imported(module) - {"dco"}:
        assert LINE_OF[stage(other)] <= LINE_OF[stage(module)], (
            f"{module} imports the later stage {stage(other)}"
        )


def public_names(module: str) -> set[str]:
    """The names that a module offers to everybody: those of `dco` itself, of the public modules
    below it, and of the foundations, which both rings stand on.
    """
    is_public = module in {"dco", *(f"dco.{name}" for name in dco.__all__)}
    if is_public or module.startswith("dco.foundations."):
        return set(import_module(module).__all__)
    return set()


def private_imports(module: str) -> list[str]:
    """The names that a module imports from other folders of dco although they are not public;
    imports for type checkers count.
    """
    own_folder = f"dco.{stage(module)}"
    private = []
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            private += [alias.name for alias in node.names if alias.name.startswith("dco.")]
        if not isinstance(node, ast.ImportFrom):
            continue
        source = node.module or ""
        is_own = source == own_folder or source.startswith(f"{own_folder}.")
        if source.split(".")[0] != "dco" or is_own:
            continue
        names = {alias.name for alias in node.names}
        private += [f"{source}.{name}" for name in sorted(names - public_names(source))]
    return private


@pytest.mark.parametrize("module", [name for name in MODULES if stage(name) in OUTER_RING])
def test_the_outer_ring_imports_public_names_only(module: str) -> None:
    assert private_imports(module) == []


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """The modules that no order of imports can put one after the other; empty if there is an
    order.
    """
    left = dict(graph)
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    return sorted(left)


def test_no_modules_import_each_other_lazy_imports_included() -> None:
    graph = {name: imported(name) for name in MODULES}
    graph["dco"] = set()  # its names are loaded on first use
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    for name in packages - {"dco"}:  # a package that re-exports its members comes after them
        for member in graph[name]:
            graph[member] = graph[member] - {name}
    assert cycle(graph) == []


def test_broken_orders_are_seen() -> None:
    """The checks themselves can fail."""
    assert LINE_OF["scores"] > LINE_OF["foundations"]
    assert {stage(name) for name in imported("dco.scores.score")} >= {
        "predictions",
        "sets",
        "foundations",
    }
    assert "dco.predictions.ClassRecord" in private_imports("dco.scores.bayesian_classes")
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c", "d"]


def test_no_module_is_called_utils() -> None:
    assert not [
        path
        for path in MODULES.values()
        if any(word in path.stem for word in ("util", "helper", "common"))
    ]


def count_calls(call: Callable[[], Any]) -> Counter[str]:
    """Count how often a call runs each function of dco, by its qualified name."""
    counts: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            counts[frame.f_code.co_qualname] += 1

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counts


def test_no_work_is_done_twice() -> None:
    """A fit with one candidate predicts calibration rows, and two batches of these again; what it
    takes of them is kept.
    """
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 4)), rng.integers(3, size=600)
    est = dco.DecoupledClassifier(LogisticRegression(), dco.scores.LAC(), random_state=0).fit(
        X[:400], y[:400]
    )
    for call, thresholds, records in (
        (lambda: est.fit(X[:400], y[:400]), 1, 3),
        (lambda: est.predict_set(X[400:]), 0, 1),
        (lambda: est.evaluate(X[400:], y[400:]), 0, 1),
    ):
        counts = count_calls(call)
        assert counts["order_statistic"] == thresholds
        assert counts["ClassProbabilities.__init__"] == records
