from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_home() -> str | None:
    """The folder with the data files, where there is one: DCO_DATA_HOME, or shared/data beside the checkout."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    return os.environ.get("DCO_DATA_HOME") or (str(beside) if beside.is_dir() else None)
