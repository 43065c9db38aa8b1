import os
from pathlib import Path

import numpy as np
import pytest

from dco.datasets.images import ImageFeatures


@pytest.fixture(scope="session")
def data_home() -> str | None:
    """The folder with the data files, where there is one: DCO_DATA_HOME, or shared/data beside the
    checkout.
    """
    beside = Path(__file__).parents[3] / "shared" / "data"
    return os.environ.get("DCO_DATA_HOME") or (str(beside) if beside.is_dir() else None)


@pytest.fixture(scope="session")
def made_up() -> ImageFeatures:
    """600 rows of skewed, non-negative features of five classes."""
    rng = np.random.default_rng(3)
    labels = np.tile(np.arange(5), 120)
    centres = rng.normal(size=(5, 12))
    return ImageFeatures(
        np.exp(0.5 * (centres[labels] + rng.normal(size=(600, 12)))).astype(np.float32), labels
    )
