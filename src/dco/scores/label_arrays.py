"""Steps on matrices with a row per row and a column per label, for NumPy, torch and other arrays.

Masses are sums of probabilities rounded to multiples of 2**-50. Such sums are exact in double
precision as long as they stay below 8, so that the order of summation does not matter: a GPU and a
CPU get the same masses, whichever way they add.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from dco.foundations.arrays import Array, namespace

FEW_LABELS = 16  # up to here whole columns are sorted and added instead of row after row
# probabilities handled at once on a CPU: what is made of them stays in the cache
BLOCK_SIZE = 2**17
BLOCK_SIZE_ON_DEVICE = 2**26  # on a GPU, where every step costs a launch
LARGEST_MASS = 8.0  # below it, sums of multiples of 2**-50 are exact


def row_blocks(matrix: Array) -> Iterator[slice]:
    """Cut the rows into blocks of bounded size; no rows are one empty block."""
    n_rows = int(matrix.shape[-2])
    n_labels = int(matrix.shape[-1])
    block_size = BLOCK_SIZE if isinstance(matrix, np.ndarray) else BLOCK_SIZE_ON_DEVICE
    rows_per_block = max(1, block_size // n_labels)
    for start in range(0, max(n_rows, 1), rows_per_block):
        yield slice(start, min(start + rows_per_block, n_rows))


def store_few_labels_by_columns(probabilities: Array) -> Array:
    """Store rows of few labels column by column, other rows as they are.

    NumPy's loops then run along many rows instead of a few labels, which makes sets of three to ten
    labels two to three times as fast.
    """
    if probabilities.shape[1] > FEW_LABELS:
        return probabilities
    xp = namespace(probabilities)
    return xp.stack(_columns(probabilities)).T


def take_label(matrix: Array, labels: Array) -> Array:
    """Return the number of one label in each row."""
    xp = namespace(matrix)
    return matrix[xp.arange(matrix.shape[0], device=matrix.device), labels]


def count_true(mask: Array) -> Array:
    """Count the true values of each row."""
    return namespace(mask).count_nonzero(mask, axis=1)


def exact_masses(probabilities: Array) -> Array:
    """Round to multiples of 2**-50: adding and taking away 4 leaves no finer digits."""
    xp = namespace(probabilities)
    return (xp.astype(probabilities, xp.float64) + 4.0) - 4.0


def running_sums(values: Array) -> Array:
    """Add up each row from the first column on."""
    xp = namespace(values)
    if values.shape[1] <= FEW_LABELS:
        return xp.stack(list(accumulate(_columns(values)))).T
    return xp.cumulative_sum(values, axis=1)


def check_masses(masses: Array) -> None:
    """Refuse rows whose sums are so large that they are no longer exact."""
    if masses.shape[0] == 0:
        return
    largest = float(namespace(masses).max(masses))
    if largest >= LARGEST_MASS:
        raise ValueError(
            f"the probabilities of a row sum to at least {largest:g}, but this score adds them up "
            "as the mass of one distribution. Divide each row by its sum first."
        )


def sort_falling(probabilities: Array) -> Array:
    """Sort each row from the largest probability.

    Few labels are sorted by comparing neighbouring columns (a bubble sort of whole columns), which
    takes NumPy a tenth of the time that it takes to sort one short row after the other.
    """
    xp = namespace(probabilities)
    n_labels = int(probabilities.shape[1])
    if n_labels > FEW_LABELS:
        return xp.flip(xp.sort(probabilities, axis=1, stable=False), axis=1)

    columns = _columns(probabilities)
    for end in range(n_labels - 1, 0, -1):
        for label in range(end):
            larger = xp.maximum(columns[label], columns[label + 1])
            smaller = xp.minimum(columns[label], columns[label + 1])
            columns[label] = larger
            columns[label + 1] = smaller
    return xp.stack(columns).T


def first_labels(probabilities: Array, falling: Array, n_first: Array) -> Array:
    """Mark the first labels of each row by falling probability, equal ones by their column.

    `falling` is `sort_falling(probabilities)`, and `n_first` says how many labels to mark in each
    row. One comparison with the last of them marks all, unless others are equal to it.
    """
    xp = namespace(probabilities)
    last = xp.maximum(n_first - 1, xp.zeros_like(n_first))
    smallest = take_label(falling, last)[:, None]
    marked = (probabilities >= smallest) & (n_first > 0)[:, None]

    n_too_many = count_true(marked) - n_first
    if not xp.any(n_too_many > 0):
        return marked
    is_tied = probabilities == smallest
    return marked & ~_last_true(is_tied, n_too_many)


def _last_true(mask: Array, n_last: Array) -> Array:
    """Keep only the last true values of each row."""
    xp = namespace(mask)
    up_to_here = xp.cumulative_sum(xp.astype(mask, xp.int64), axis=1)
    n_before_last = up_to_here[:, -1] - n_last
    return mask & (up_to_here > n_before_last[:, None])


def _columns(matrix: Array) -> list[Array]:
    return [matrix[:, column] for column in range(matrix.shape[1])]
