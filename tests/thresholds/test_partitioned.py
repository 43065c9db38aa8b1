"""Scores in many places: the threshold is that of all of them together, to the last bit."""

import numpy as np
import pytest

import dco


def cases():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=5_000)
    tied = rng.integers(-3, 3, size=4_000) / 4
    inf = np.where(rng.random(900) < 0.2, np.inf, rng.exponential(size=900))
    tiny = rng.normal(size=2_000) * 10.0 ** rng.integers(-320, 300, size=2_000)
    zeros = np.where(rng.random(300) < 0.5, -0.0, 0.0)
    return {"normal": normal, "tied": tied, "infinite": inf, "all sizes": tiny, "zeros": zeros}


@pytest.mark.parametrize("name", cases())
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_the_threshold_is_that_of_a_sort(name, kind):
    with np.errstate(over="ignore"):
        scores = cases()[name].astype(kind)
    parts = np.array_split(scores, [0, 7, 11, len(scores) // 2])
    for alpha in (0.1, "1/3", 0.9, 0.02):
        assert dco.partitioned_conformal(parts, alpha=alpha) == dco.split_conformal(scores, alpha=alpha)
        together = dco.bayesian_quadrature(scores, alpha=alpha, delta=0.3)
        assert dco.partitioned_conformal(parts, alpha=alpha, delta=0.3) == together


def test_parts_are_read_where_they_lie(tmp_path):
    rng = np.random.default_rng(1)
    for part in range(3):
        np.save(tmp_path / f"{part}.npy", rng.normal(size=400))
    read = [Reader(tmp_path / f"{part}.npy") for part in range(3)]
    every = np.concatenate([reader() for reader in read])
    assert dco.partitioned_conformal(read, alpha=0.1, n_jobs=2) == dco.split_conformal(every, alpha=0.1)


class Reader:
    def __init__(self, path):
        self.path = path

    def __call__(self):
        return np.load(self.path)


def test_too_few_scores_and_scores_that_are_no_numbers():
    with pytest.warns(dco.InfeasibleLevelWarning, match="At least 9 rows are needed"):
        assert dco.partitioned_conformal([[0.1, 0.2], [0.3]], alpha=0.1).value == np.inf
    with pytest.raises(dco.NonFiniteScoreError, match="1 of 2 scores are NaN"):
        dco.partitioned_conformal([[0.1, np.nan]], alpha=0.1)
