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
COLUMN = PROBABILITIES[:, 0]
Y = np.random.default_rng(1).integers(0, 4, 60)


class Tensor:
    """As much of a torch tensor as NumPy meets: on a GPU, with a gradient, or as bfloat16 it
    refuses to become an array.
    """

    def __init__(self, values, device="cuda:0", requires_grad=False, dtype="torch.float32"):
        self.values = values
        self.device = device
        self.requires_grad = requires_grad
        self.dtype = dtype

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


@pytest.fixture(params=REFUSED.values(), ids=REFUSED)
def refused_array(request):
    """The probabilities as an array of another library that NumPy refuses."""
    return request.param(PROBABILITIES)


def test_the_arrays_below_are_refused_by_numpy(refused_array):
    with pytest.raises((TypeError, RuntimeError)):
        np.asarray(refused_array)


def test_what_numpy_refuses_is_copied_to_the_host(refused_array):
    np.testing.assert_array_equal(to_numpy(refused_array), PROBABILITIES)


def test_what_numpy_refuses_is_a_prediction(refused_array):
    prediction = dco.ClassProbabilities(refused_array)
    assert type(prediction.probabilities) is np.ndarray
    np.testing.assert_array_equal(prediction.probabilities, PROBABILITIES)


def test_what_numpy_refuses_is_scored_as_its_copy_on_the_host(refused_array):
    score = dco.scores.LAC()
    scores = score.observed(dco.ClassProbabilities(refused_array), Y)
    expected = score.observed(dco.ClassProbabilities(PROBABILITIES), Y)
    np.testing.assert_array_equal(scores, expected)


# --------------------------------------------------------------------------------- tensors on a GPU


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (lambda column, table: dco.Points(column).mean, COLUMN),
        (lambda column, table: dco.PointsWithSpread(column, column).spread, COLUMN),
        (lambda column, table: dco.Quantiles(column, column, column).upper, COLUMN),
        (lambda column, table: dco.GaussianMixtures(table, column).means, PROBABILITIES),
        (lambda column, table: dco.ClassProbabilities(table, uniforms=column).uniforms, COLUMN),
    ],
    ids=["points", "spreads", "quantiles", "mixtures", "uniforms"],
)
def test_every_prediction_takes_tensors_on_a_gpu(field, expected):
    np.testing.assert_array_equal(field(Tensor(COLUMN), Tensor(PROBABILITIES)), expected)


def test_draws_take_tensors_on_a_gpu():
    draws = dco.ClassDraws(Tensor(PROBABILITIES[None])).draws
    np.testing.assert_array_equal(draws[0], PROBABILITIES)


def test_logits_on_a_gpu_are_refused_as_logits():
    with pytest.raises(ValueError, match="Logits go through a softmax first"):
        dco.ClassProbabilities(Tensor(np.log(PROBABILITIES)))


def test_labels_on_a_gpu_are_scored():
    score = dco.scores.LAC()
    prediction = dco.ClassProbabilities(PROBABILITIES)
    np.testing.assert_array_equal(
        score.observed(prediction, Tensor(Y)), score.observed(prediction, Y)
    )


def test_labels_on_a_gpu_are_looked_for_in_sets():
    sets = dco.scores.LAC().sets(dco.ClassProbabilities(PROBABILITIES), 0.7)
    np.testing.assert_array_equal(sets.contains(Tensor(Y)), sets.contains(Y))


def test_scores_on_a_gpu_have_the_same_threshold():
    scores = np.random.default_rng(2).random(60)
    threshold = dco.split_conformal(Tensor(scores), alpha=0.2)
    assert threshold.value == dco.split_conformal(scores, alpha=0.2).value


def test_targets_on_a_gpu_are_scored():
    points = dco.Points(np.zeros(60))
    residuals = dco.scores.AbsoluteResidual().observed(points, Tensor(COLUMN))
    np.testing.assert_array_equal(residuals, COLUMN)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_torch_tensors_on_a_real_gpu(dtype):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    logits = torch.randn(60, 4, device="cuda", dtype=getattr(torch, dtype), requires_grad=True)

    prediction = dco.ClassProbabilities(logits.softmax(-1))

    expected = logits.softmax(-1).detach().float().cpu().numpy()
    assert prediction.probabilities.dtype == np.float32
    np.testing.assert_array_equal(prediction.probabilities, expected)


# -------------------------------------------------------------------------- arrays that NumPy takes


def test_an_array_of_numpy_is_not_copied():
    assert to_numpy(PROBABILITIES) is PROBABILITIES


def test_a_tensor_on_the_host_is_not_copied():
    assert np.shares_memory(to_numpy(Tensor(PROBABILITIES, "cpu")), PROBABILITIES)


def test_a_list_becomes_an_array():
    assert to_numpy([1, 2]).tolist() == [1, 2]


def test_jax_arrays_in_single_precision_stay_as_they_are():
    jnp = pytest.importorskip("jax.numpy")
    prediction = dco.ClassProbabilities(jnp.asarray(PROBABILITIES))
    np.testing.assert_array_equal(prediction.probabilities, PROBABILITIES)


def test_jax_arrays_in_bfloat16_become_single_precision():
    jnp = pytest.importorskip("jax.numpy")
    rounded = jnp.asarray(PROBABILITIES, dtype=jnp.bfloat16)

    probabilities = dco.ClassProbabilities(rounded).probabilities

    assert probabilities.dtype == np.float32
    np.testing.assert_array_equal(probabilities, np.asarray(rounded.astype(jnp.float32)))
    np.testing.assert_allclose(probabilities, PROBABILITIES, rtol=2**-8)


# ------------------------------------------------------------------------------------- real numbers


@pytest.mark.parametrize(
    "values",
    [
        [1, 2],
        [0.5, 1.5],
        [True, False],
        np.float32([1, 2]),
        np.zeros((2, 3)),
        3,
        Tensor(np.ones(2)),
    ],
    ids=["integers", "floats", "truth values", "float32", "table", "number", "tensor"],
)
def test_real_numbers_keep_their_kind(values):
    array = as_real_numbers(values, name="losses")
    assert array.dtype == to_numpy(values).dtype
    np.testing.assert_array_equal(array, to_numpy(values))


def test_decimals_and_fractions_are_real_numbers():
    array = as_real_numbers([Decimal("0.5"), Fraction(1, 4), 2], name="losses")
    np.testing.assert_array_equal(array, [0.5, 0.25, 2])


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
    ids=["text", "texts", "mapping", "mixed", "complex", "dates", "nested", "ragged"],
)
def test_what_is_not_real_numbers_is_named(values, got):
    with pytest.raises(ValueError, match=f"^losses must be real numbers, got {got}.$"):
        as_real_numbers(values, name="losses")


# --------------------------------------------------------------------- integers that float64 rounds

INTEGER_DTYPES = {"int64": "int64", "uint64": "uint64", "object": "int64"}  # and their range
integer_dtypes = pytest.mark.parametrize("dtype", INTEGER_DTYPES)


def draw_integers(dtype: str) -> list[int]:
    """Integers of all lengths: drawn at random, at the ends, about 2**53 and about 2**62.

    Of each there are copies shifted to the right, and copies whose last bits are 0.
    """
    ends = np.iinfo(INTEGER_DTYPES[dtype])
    rng = np.random.default_rng(0)
    drawn = rng.integers(ends.min, ends.max, 500, dtype=ends.dtype, endpoint=True).tolist()
    values = [
        *drawn,
        ends.min,
        ends.max,
        *[2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2],
        *[2**62, 2**62 + 2**9, 2**62 + 2**8],
        *[0, 1],
    ]
    values += [value >> shift for value in values for shift in (5, 9, 12)]
    values += [value >> shift << shift for value in values for shift in (5, 9, 12)]
    return values


@integer_dtypes
def test_integers_that_float64_rounds_are_detected(dtype):
    """As Python's exact comparison of an integer with its float decides."""
    values = draw_integers(dtype)
    is_rounded = [first_inexact_position(np.array([v], dtype=dtype)) == 0 for v in values]
    assert is_rounded == [float(value) != value for value in values]
    assert 0.2 < np.mean(is_rounded) < 0.8


@integer_dtypes
def test_the_first_integer_that_float64_rounds_is_named(dtype):
    assert first_inexact_position(np.array([0, 5, 2**53 + 1, 2**53 + 3], dtype=dtype)) == 2


# ------------------------------------------------------------------------------------------ targets

POINTS = dco.Points(np.zeros(3))
MIXTURES = dco.GaussianMixtures(np.zeros((3, 4)), np.ones(4), draws_first=False)
READERS = {
    "residual": lambda y: dco.scores.AbsoluteResidual().observed(POINTS, y),
    "density": lambda y: dco.scores.PredictiveDensity().observed(MIXTURES, y),
    "sets": lambda y: dco.scores.AbsoluteResidual().sets(POINTS, 1.0).contains(y),
    "intervals": lambda y: dco.Intervals(np.zeros(3), np.ones(3)).contains(y),
    "p-values": lambda y: full_conformal_p_values(MIXTURES, y, MIXTURES, np.zeros(3)),
    "full conformal": lambda y: full_conformal_intervals(
        MIXTURES, y, MIXTURES, [0.0, 1.0], alpha=0.5
    ),
}
DAYS = np.array(["2026-01-01", "2026-01-02", "NaT"], dtype="M8[D]")
HALF = Decimal("1000000000000000000.5")
TARGETS = {
    "int64": (10**18 + np.arange(3), "y is 1000000000000000001 in row 1, which float64 rounds"),
    "uint64": (np.array([2**63, 2**63 + 1, 1], dtype=np.uint64), f"y is {2**63 + 1} in row 1"),
    "a list": ([10**20, 10**20 + 1, 7], "y is 100000000000000000001 in row 1"),
    "decimals": ([Decimal(10**18), HALF, Decimal(1)], "y is 1000000000000000000.5 in row 1"),
    "beyond floats": ([10**400, 1, 2], "y is 1000000000000000000000000000000000000000 in row 0"),
    "nullable": (pd.Series([2**60, 2**60 + 1, 2**60], dtype="Int64"), f"y is {2**60 + 1} in row 1"),
    "dates": (DAYS, "y holds dates.*days since one of them"),
    "date objects": ([datetime.date(2026, 1, 1)] * 3, "y holds dates"),
    "time zone": (pd.Series(pd.date_range("2026", periods=3, tz="UTC")), "y holds dates"),
    "durations": (np.arange(3) * np.timedelta64(1, "s"), "y holds durations.*in one unit"),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize(("y", "words"), TARGETS.values(), ids=TARGETS)
def test_targets_that_floats_cannot_hold_are_refused_wherever_they_are_scored(read, y, words):
    with pytest.raises(ValueError, match=words):
        read(y)


exact_targets = pytest.mark.parametrize(
    "y",
    [
        [2**60, 2**70],
        np.array([2**53, -(2**63)]),
        [1e18, 3.5],
        np.array([2**63, 5], dtype=np.uint64),
    ],
    ids=["list", "int64", "floats", "uint64"],
)


@exact_targets
def test_large_targets_that_floats_hold_are_taken(y):
    check_exact_in_float64(y, name="y")  # raises no error


@exact_targets
def test_large_targets_that_floats_hold_are_scored(y):
    residuals = dco.scores.AbsoluteResidual().observed(dco.Points(np.zeros(2)), y)
    assert residuals.tolist() == [abs(float(value)) for value in y]
