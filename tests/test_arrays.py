"""Arrays of other libraries: what NumPy refuses or misreads is copied to the host, the rest is left as it is."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import dco
from dco.foundations.arrays import real_numbers, to_numpy

PROBABILITIES = np.random.default_rng(0).dirichlet(np.ones(4), 60).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 4, 60)


class Tensor:
    """As much of a torch tensor as NumPy meets: on a GPU, with a gradient, or as bfloat16 it refuses to become an array."""

    def __init__(self, values, device="cuda:0", requires_grad=False, dtype="torch.float32"):
        self.values, self.device, self.requires_grad, self.dtype = values, device, requires_grad, dtype

    def __array__(self, dtype=None, copy=None):
        if self.device != "cpu":
            raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first.")
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
        (dco.GaussianMixtures(table, Tensor(PROBABILITIES[0])).means, PROBABILITIES),
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
    np.testing.assert_array_equal(dco.ClassProbabilities(jnp.asarray(PROBABILITIES)).probabilities, PROBABILITIES)
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
    assert np.array_equal(score.sets(prediction, threshold).contains(Tensor(Y)), scores <= threshold.value)
    residuals = dco.scores.AbsoluteResidual().observed(dco.Points(np.zeros(60)), Tensor(PROBABILITIES[:, 0]))
    assert np.array_equal(residuals, PROBABILITIES[:, 0])


def test_real_numbers_keep_their_kind_and_decimals_and_fractions_are_some():
    for values in ([1, 2], [0.5, 1.5], [True, False], np.float32([1, 2]), np.zeros((2, 3)), 3, Tensor(np.ones(2))):
        array = real_numbers(values, name="losses")
        assert array.dtype == to_numpy(values).dtype
        np.testing.assert_array_equal(array, to_numpy(values))
    np.testing.assert_array_equal(real_numbers([Decimal("0.5"), Fraction(1, 4), 2], name="losses"), [0.5, 0.25, 2])


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
        real_numbers(values, name="losses")
