"""Nothing in the suite is left to chance: a test gives the same answer in every run, on a busy machine too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

import dco.splits

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes stay out of test names: a compressed table carries the second it was made in, and two workers then
    collect different tests."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def fixed_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds for what names none: our own `random_state=None`, and models that draw from NumPy's global state."""
    drawn = np.random.default_rng(0)
    monkeypatch.setattr(dco.splits, "fresh_seed", lambda: int(drawn.integers(2**32)))
    np.random.seed(0)  # noqa: NPY002 - scikit-learn's own default
