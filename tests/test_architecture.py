"""The stages import one way: a module never imports from a later line of this list."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "dco"

STAGES = """
foundations
rows
sets
predictions
losses
scores
models
tuning search
guarantees
evaluation
predictor
estimators
storage
reproduction
report
cli
__main__
"""
LINE_OF = {stage: number for number, line in enumerate(STAGES.split("\n")) for stage in line.split()}


def stage(module: str) -> str:
    """dco.sets.labels → sets."""
    return module.split(".")[1]


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def imported(path: Path) -> set[str]:
    """The dco stages that a file imports, wherever in the file; imports for type checkers alone do not count."""
    tree = ast.parse(path.read_text())
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
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"dco.{alias.name}" for alias in node.names] if node.module == "dco" else [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {stage(name) for name in names if name.startswith("dco.") and not name.startswith("dco.__")}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_earlier_stages(path: Path) -> None:
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert own in LINE_OF, f"{own} has no place in the order of the stages: add it to STAGES"
    for other in imported(path) - {own}:
        assert other in LINE_OF, f"{path.name} imports {other}, which has no place in the order of the stages"
        assert LINE_OF[other] <= LINE_OF[own], f"{path.relative_to(SOURCE)} imports the later stage {other}"


def test_the_order_is_seen_to_be_broken_when_it_is() -> None:
    """The check itself can fail: foundations importing a score would be found."""
    assert LINE_OF["scores"] > LINE_OF["foundations"]
    assert imported(SOURCE / "scores" / "score.py") >= {"predictions", "sets", "foundations"}


def test_no_module_is_called_utils() -> None:
    assert not [path for path in modules() if "util" in path.stem or "helper" in path.stem or "common" in path.stem]
