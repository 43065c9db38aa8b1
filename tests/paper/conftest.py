import numpy as np
import pytest

from dco.datasets import ImageFeatures


@pytest.fixture(scope="session")
def made_up() -> ImageFeatures:
    """Make 600 rows of skewed, non-negative features of five classes."""
    rng = np.random.default_rng(3)
    labels = np.tile(np.arange(5), 120)
    centres = rng.normal(size=(5, 12))
    features = np.exp(0.5 * (centres[labels] + rng.normal(size=(600, 12))))
    return ImageFeatures(features.astype(np.float32), labels)
