"""Arrays of other libraries: what NumPy refuses or misreads is copied to the host, the rest is left
as it is.
"""

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import dco
from dco.bayes import full_conformal_intervals, full_conformal_p_values
from dco.foundations.arrays import (
    as_real_numbers,
    check_exact_in_float64,
    first_inexact_position,
    to_numpy,
)

PROBABILITIES = np.random.default_rng(0).dirichlet(np.ones(4), 60).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 4, 60)


class Tensor:
    """As much of a torch tensor as NumPy meets: on a GPU, with a gradient, or as bfloat16 it
    refuses to become an array.
    """

    def __init__(self, values, device="cuda:0", requires_grad=False, dtype="torch.float32"):
        self.values, self.device, self.requires_grad, self.dtype = (
            values,
            device,
            requires_grad,
            dtype,
        )

    def __array__(self, dtype=None, copy=None):
        if self.device != "cpu":
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first."
            )
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.values

    def __dlpack_device__(self):
        return (1, 0) if self.device == "cpu" else (2, 0)

    def detach(self):
        return Tensor(self.values, self.device, False, self.dtype)

    def cpu(self):
        return Tensor(self.values, "cpu", self.requires_grad, self.dtype)

    def float(self):
        return Tensor(self.values, self.device, self.requires_grad, "torch.float32")


class CupyArray:
    """As much of a CuPy array as NumPy meets."""

    __cuda_array_interface__ = {"version": 3}  # noqa: RUF012

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def get(self):
        return self.values


REFUSED = {
    "on a GPU": Tensor,
    "on a GPU, with a gradient": lambda values: Tensor(values, requires_grad=True),
    "on a GPU, bfloat16": lambda values: Tensor(values, dtype="torch.bfloat16"),
    "with a gradient": lambda values: Tensor(values, "cpu", requires_grad=True),
    "bfloat16": lambda values: Tensor(values, "cpu", dtype="torch.bfloat16"),
    "CuPy": CupyArray,
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_numpy_refuses_is_copied_to_the_host(kind):
    given = REFUSED[kind](PROBABILITIES)
    with pytest.raises((TypeError, RuntimeError)):
        np.asarray(given)
    np.testing.assert_array_equal(to_numpy(given), PROBABILITIES)
    record = dco.ClassProbabilities(given)
    assert type(record.probabilities) is np.ndarray
    expected = dco.scores.LAC().observed(dco.ClassProbabilities(PROBABILITIES), Y)
    np.testing.assert_array_equal(dco.scores.LAC().observed(record, Y), expected)


def test_every_record_takes_tensors_on_a_gpu():
    column, table = PROBABILITIES[:, 0], Tensor(PROBABILITIES)
    on_gpu = Tensor(column)
    for found, expected in (
        (dco.Points(on_gpu).mean, column),
        (dco.PointsWithSpread(on_gpu, on_gpu).spread, column),
        (dco.Quantiles(on_gpu, on_gpu, on_gpu).upper, column),
        (dco.GaussianMixtures(table, Tensor(PROBABILITIES[:, 0])).means, PROBABILITIES),
        (dco.ClassDraws(Tensor(PROBABILITIES[None])).draws[0], PROBABILITIES),
        (dco.ClassProbabilities(PROBABILITIES, uniforms=on_gpu).uniforms, column),
    ):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="Logits go through a softmax first"):
        dco.ClassProbabilities(Tensor(np.log(PROBABILITIES)))


def test_arrays_that_numpy_takes_are_not_copied():
    assert to_numpy(PROBABILITIES) is PROBABILITIES
    assert np.shares_memory(to_numpy(Tensor(PROBABILITIES, "cpu")), PROBABILITIES)
    assert to_numpy([1, 2]).tolist() == [1, 2]


def test_jax_arrays_in_single_precision_and_bfloat16():
    jnp = pytest.importorskip("jax.numpy")
    np.testing.assert_array_equal(
        dco.ClassProbabilities(jnp.asarray(PROBABILITIES)).probabilities, PROBABILITIES
    )
    rounded = jnp.asarray(PROBABILITIES, dtype=jnp.bfloat16)
    record = dco.ClassProbabilities(rounded)
    assert record.probabilities.dtype == np.float32
    np.testing.assert_array_equal(record.probabilities, np.asarray(rounded.astype(jnp.float32)))
    np.testing.assert_allclose(record.probabilities, PROBABILITIES, rtol=2**-8)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_torch_tensors_on_a_real_gpu(dtype):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    logits = torch.randn(60, 4, device="cuda", dtype=getattr(torch, dtype), requires_grad=True)
    record = dco.ClassProbabilities(logits.softmax(-1))
    expected = logits.softmax(-1).detach().float().cpu().numpy()
    assert record.probabilities.dtype == np.float32
    np.testing.assert_array_equal(record.probabilities, expected)


def test_labels_and_scores_may_live_there_too():
    score, prediction = dco.scores.LAC(), dco.ClassProbabilities(Tensor(PROBABILITIES))
    scores = score.observed(prediction, Tensor(Y))
    assert np.array_equal(scores, score.observed(dco.ClassProbabilities(PROBABILITIES), Y))
    threshold = dco.split_conformal(Tensor(scores), alpha=0.2)
    assert threshold.value == dco.split_conformal(scores, alpha=0.2).value
    assert np.array_equal(
        score.sets(prediction, threshold).contains(Tensor(Y)), scores <= threshold.value
    )
    residuals = dco.scores.AbsoluteResidual().observed(
        dco.Points(np.zeros(60)), Tensor(PROBABILITIES[:, 0])
    )
    assert np.array_equal(residuals, PROBABILITIES[:, 0])


def test_real_numbers_keep_their_kind_and_decimals_and_fractions_are_some():
    for values in (
        [1, 2],
        [0.5, 1.5],
        [True, False],
        np.float32([1, 2]),
        np.zeros((2, 3)),
        3,
        Tensor(np.ones(2)),
    ):
        array = as_real_numbers(values, name="losses")
        assert array.dtype == to_numpy(values).dtype
        np.testing.assert_array_equal(array, to_numpy(values))
    np.testing.assert_array_equal(
        as_real_numbers([Decimal("0.5"), Fraction(1, 4), 2], name="losses"), [0.5, 0.25, 2]
    )


@pytest.mark.parametrize(
    ("values", "got"),
    [
        ("a", "dtype <U1"),
        (["1", "2"], "dtype <U1"),
        ({1: 2}, "dtype object"),
        ([1, {}], "dtype object"),
        ([1j, 2], "dtype complex128"),
        (np.array(["2020-01-01"], dtype="M8[D]"), r"dtype datetime64\[D\]"),
        ([1, [2]], "lists of different lengths"),
        ([[1, 2], [3]], "lists of different lengths"),
    ],
)
def test_what_is_not_real_numbers_is_named(values, got):
    with pytest.raises(ValueError, match=f"^losses must be real numbers, got {got}.$"):
        as_real_numbers(values, name="losses")


@pytest.mark.parametrize("dtype", ["int64", "uint64", "object"])
def test_integers_that_float64_rounds_are_found(dtype):
    """As Python's exact comparison of an integer with its float decides."""
    rng, ends = np.random.default_rng(0), np.iinfo("uint64" if dtype == "uint64" else "int64")
    values = [
        *rng.integers(ends.min, ends.max, 500, dtype=ends.dtype, endpoint=True).tolist(),
        ends.min,
        ends.max,
    ]
    values += [2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**62, 2**62 + 2**9, 2**62 + 2**8, 0, 1]
    values += [value >> shift for value in values for shift in (5, 9, 12)]
    values += [value >> shift << shift for value in values for shift in (5, 9, 12)]
    found = [first_inexact_position(np.array([value], dtype=dtype)) == 0 for value in values]
    assert found == [float(value) != value for value in values]
    assert 0.2 < np.mean(found) < 0.8
    assert first_inexact_position(np.array([0, 5, 2**53 + 1, 2**53 + 3], dtype=dtype)) == 2


TARGETS = {
    "int64": (10**18 + np.arange(3), "y is 1000000000000000001 in row 1, which float64 rounds"),
    "uint64": (
        np.uint64(2**63) + np.arange(3, dtype=np.uint64),
        "y is 9223372036854775809 in row 1",
    ),
    "a list": ([10**20, 10**20 + 1, 7], "y is 100000000000000000001 in row 1"),
    "decimals": (
        [Decimal(10**18), Decimal("1000000000000000000.5"), Decimal(1)],
        "y is 1000000000000000000.5 in row 1",
    ),
    "beyond floats": ([10**400, 1, 2], "y is 1000000000000000000000000000000000000000 in row 0"),
    "nullable": (pd.Series([2**60, 2**60 + 1, 2**60], dtype="Int64"), f"y is {2**60 + 1} in row 1"),
    "dates": (
        np.array(["2026-01-01", "2026-01-02", "NaT"], dtype="M8[D]"),
        "y holds dates.*days since one of them",
    ),
    "date objects": ([datetime.date(2026, 1, 1)] * 3, "y holds dates"),
    "time zone": (pd.Series(pd.date_range("2026", periods=3, tz="UTC")), "y holds dates"),
    "durations": (np.arange(3) * np.timedelta64(1, "s"), "y holds durations.*in one unit"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_targets_that_floats_cannot_hold_are_refused_wherever_they_are_scored(name):
    y, words = TARGETS[name]
    points, mixtures = (
        dco.Points(np.zeros(3)),
        dco.GaussianMixtures(np.zeros((3, 4)), np.ones(4), draws_first=False),
    )
    sets = dco.scores.AbsoluteResidual().sets(points, 1.0)
    wheres = [
        lambda: dco.scores.AbsoluteResidual().observed(points, y),
        lambda: dco.scores.PredictiveDensity().observed(mixtures, y),
        lambda: sets.contains(y),
        lambda: dco.Intervals(np.zeros(3), np.ones(3)).contains(y),
        lambda: full_conformal_p_values(mixtures, y, mixtures, np.zeros(3)),
        lambda: full_conformal_intervals(mixtures, y, mixtures, [0.0, 1.0], alpha=0.5),
    ]
    for where in wheres:
        with pytest.raises(ValueError, match=words):
            where()


def test_large_targets_that_floats_hold_are_taken():
    points = dco.Points(np.zeros(2))
    for y in (
        [2**60, 2**70],
        np.array([2**53, -(2**63)]),
        [1e18, 3.5],
        np.array([2**63, 5], dtype=np.uint64),
    ):
        np.testing.assert_array_equal(
            dco.scores.AbsoluteResidual().observed(points, np.asarray(y, dtype=float)),
            np.abs([float(value) for value in y]),
        )
        check_exact_in_float64(y, name="y")
