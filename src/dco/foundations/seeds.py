"""Seeds that can be written down."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from dco.foundations.ranks import as_count

__all__ = ["Seed", "as_seed", "fresh_seed"]

Seed: TypeAlias = int | np.integer[Any] | np.random.Generator | np.random.RandomState | None


def fresh_seed() -> int:
    """Draw a seed from the operating system's entropy."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def as_seed(random_state: Seed) -> int:
    """Return an integer that can be written down, by scikit-learn's rules for random_state.

    An integer is itself; None draws a fresh one from the operating system; a generator is asked for
    one.
    """
    if random_state is None:
        return fresh_seed()
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    try:
        return as_count(random_state, name="random_state")
    except ValueError:
        raise ValueError(
            f"random_state must be None, a whole number that is not negative or a NumPy generator, "
            f"got {random_state!r}."
        ) from None
