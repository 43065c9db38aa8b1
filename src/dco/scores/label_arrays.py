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
    """Yield slices that cut the rows of a (..., n, K) matrix into blocks of bounded size.

    A matrix without rows gives one empty block.
    """
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
    """Take one number from each row of a matrix: that in column labels[i] of row i, (n,)."""
    xp = namespace(matrix)
    return matrix[xp.arange(matrix.shape[0], device=matrix.device), labels]


def count_true(mask: Array) -> Array:
    """Count the true values of each row."""
    return namespace(mask).count_nonzero(mask, axis=1)


def exact_masses(probabilities: Array) -> Array:
    """Round probabilities to multiples of 2**-50, whose sums are exact in double precision.

    Between 4 and 8 the floats lie 2**-50 apart, so adding 4 rounds to such multiples.
    """
    xp = namespace(probabilities)
    return (xp.astype(probabilities, xp.float64) + 4.0) - 4.0


def running_sums(values: Array) -> Array:
    """Return the sums of each row from its first column up to each: [1, 2, 3] -> [1, 3, 6]."""
    xp = namespace(values)
    if values.shape[1] <= FEW_LABELS:
        return xp.stack(list(accumulate(_columns(values)))).T
    return xp.cumulative_sum(values, axis=1)


def check_masses(masses: Array) -> None:
    """Refuse probabilities of which sums (`masses`) reach 8, beyond which sums are not exact."""
    if masses.shape[0] == 0:
        return
    largest = float(namespace(masses).max(masses))
    if largest >= LARGEST_MASS:
        raise ValueError(
            f"the probabilities of a row sum to at least {largest:g}, but this score adds them up "
            "as the mass of one distribution. Divide each row by its sum first."
        )


def sort_falling(probabilities: Array) -> Array:
    """Sort each row in descending order: [0.2, 0.5, 0.3] -> [0.5, 0.3, 0.2].

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
    """Mark the most probable labels of each row, n_first[i] of them in row i, (n, K).

    `falling` is `sort_falling(probabilities)`. Of labels with equal probabilities, those in earlier
    columns are marked first.
    """
    xp = namespace(probabilities)

    # 1. Mark all labels that are at least as probable as the last one to be marked.
    last_position = xp.maximum(n_first - 1, xp.zeros_like(n_first))
    smallest = take_label(falling, last_position)[:, None]
    marked = (probabilities >= smallest) & (n_first > 0)[:, None]

    # 2. If others are as probable as that one, too many are marked: take the last of them away.
    n_too_many = count_true(marked) - n_first
    if not xp.any(n_too_many > 0):
        return marked
    is_tied = probabilities == smallest
    return marked & ~_last_true(is_tied, n_too_many)


def _last_true(mask: Array, n_last: Array) -> Array:
    """Keep only the last n_last[i] true values of row i, in a (n, K) mask."""
    xp = namespace(mask)
    n_up_to_here = xp.cumulative_sum(xp.astype(mask, xp.int64), axis=1)
    n_total = n_up_to_here[:, -1]
    n_dropped = (n_total - n_last)[:, None]
    return mask & (n_up_to_here > n_dropped)


def _columns(matrix: Array) -> list[Array]:
    """List the columns of a matrix, each (n,)."""
    return [matrix[:, column] for column in range(matrix.shape[1])]
