"""Arrays of a GPU stay where they are, and give NumPy's scores and sets to the last bit.

Without a GPU the strict implementation of the array API standard shows that no step is NumPy's own.
"""

from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

import dco
from dco.foundations.arrays import namespace, to_numpy
from dco.scores import APS, LAC, RAPS, SAPS, AddOneIn, Margin, NeverEmpty, PosteriorNLL, TopK

SCORES = [
    LAC(),
    Margin(),
    TopK(),
    APS(),
    APS(randomised=True),
    RAPS(penalty=0.05, rank_free=2, randomised=True),
    SAPS(weight=0.1),
    SAPS(weight=0.1, randomised=True),
    NeverEmpty(APS()),
]
every_score = pytest.mark.parametrize("score", SCORES, ids=str)


@pytest.fixture(params=["array_api_strict", "torch", "cupy"])
def library(request):
    """Make arrays of a library that is not NumPy: on a GPU, or strict ones on the CPU."""
    if not find_spec(request.param):
        pytest.skip(f"{request.param} is not installed")
    xp = import_module(request.param)
    if request.param != "torch":
        return xp.asarray
    if not xp.cuda.is_available():
        pytest.skip("torch finds no GPU, and its arrays on a CPU become NumPy's")
    return lambda values: xp.asarray(values, device="cuda")


def tied_rows(n: int, k: int, *, dtype: str = "float32", seed: int = 0):
    """Probabilities with many ties, uniforms, and labels."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(k), size=n)
    p[::3] = np.round(4 * p[::3]) / 4
    p[1::3] = 1 / k
    return p.astype(dtype), rng.uniform(size=n), rng.integers(k, size=n)


def records(library, n: int, k: int, *, dtype: str = "float32"):
    """The same rows there and here, and their labels."""
    p, u, y = tied_rows(n, k, dtype=dtype)
    there = dco.ClassProbabilities(library(p), uniforms=library(u))
    return there, dco.ClassProbabilities(p, uniforms=u), y


def assert_same_bits(there, here) -> None:
    """The same numbers, there in another library."""
    assert not isinstance(there, np.ndarray)
    np.testing.assert_array_equal(to_numpy(there), here)


SHAPES = [(1, "float32"), (5, "float64"), (16, "float32"), (30, "float32"), (300, "float32")]
every_shape = pytest.mark.parametrize(("k", "dtype"), SHAPES)


@every_score
@every_shape
def test_scores_are_numpys(library, score, k, dtype):
    there, here, y = records(library, 60, k, dtype=dtype)
    assert_same_bits(score.observed(there, library(y)), score.observed(here, y))
    assert_same_bits(score.every_label(there), score.every_label(here))


@every_score
@every_shape
def test_sets_and_sizes_are_numpys(library, score, k, dtype):
    there, here, y = records(library, 60, k, dtype=dtype)
    observed, every = score.observed(here, y), score.every_label(here)
    thresholds = [
        *np.quantile(observed, [0.0, 0.5, 0.9]),
        -1.0,
        np.inf,
        np.quantile(every, 0.7, axis=1)[:, None],
        np.quantile(every, 0.7, axis=0)[None, :],
    ]
    several = score.sizes_at_several(there, thresholds)
    for row, threshold in enumerate(thresholds):
        expected, sets = score.sets(here, threshold), score.sets(there, threshold)
        assert_same_bits(sets.members, expected.members)
        assert_same_bits(several[row, :], expected.sizes())


def test_sets_answer_where_they_are(library):
    there, here, y = records(library, 60, 5)
    sets, expected = APS().sets(there, 0.9), APS().sets(here, 0.9)
    assert_same_bits(sets.sizes(), expected.sizes())
    assert_same_bits(sets.contains(library(y)), expected.contains(y))
    assert_same_bits(sets.is_empty(), expected.is_empty())
    assert_same_bits(sets.is_full(), expected.is_full())
    assert_same_bits(sets.has_one_label(), expected.has_one_label())
    assert_same_bits(sets[3:9].members, expected[3:9].members)


def test_sets_come_to_the_host_to_be_read(library):
    there, here, y = records(library, 60, 5)
    sets, expected = APS().sets(there, 0.9), APS().sets(here, 0.9)
    assert sets.to_lists() == expected.to_lists()
    assert repr(sets) == repr(expected)
    np.testing.assert_array_equal(sets.to_dense(), expected.to_dense())
    np.testing.assert_array_equal(sets.knows(library(y)), expected.knows(y))


def test_blocks_of_a_device_are_joined(library, monkeypatch):
    there, here, _ = records(library, 50, 7)
    monkeypatch.setattr("dco.scores.label_arrays.BLOCK_SIZE_ON_DEVICE", 40)
    score = APS(randomised=True)
    assert_same_bits(score.every_label(there), score.every_label(here))
    assert_same_bits(score.sets(there, 0.8).members, score.sets(here, 0.8).members)


@pytest.mark.parametrize("score", [LAC(), APS()], ids=str)
@pytest.mark.parametrize(
    "threshold", [0.6, np.inf, np.full((40, 4), 0.6)], ids=["one", "infinite", "matrix"]
)
def test_labels_and_labels_never_seen(library, score, threshold):
    p, _, y = tied_rows(40, 3)
    there, here = (
        dco.ClassProbabilities(values, ["a", "b", "c"], unseen=["d"]) for values in (library(p), p)
    )
    names = np.array(["a", "b", "c", "d"])
    truth = names[np.where(np.arange(40) % 5, y, 3)]
    assert_same_bits(score.observed(there, truth), score.observed(here, truth))
    sets, expected = score.sets(there, threshold), score.sets(here, threshold)
    assert_same_bits(sets.members, expected.members)
    assert_same_bits(sets.contains(truth), expected.contains(truth))
    assert_same_bits(score.sizes(there, threshold), expected.sizes())
    assert sets.in_order(names[::-1]).to_lists() == expected.in_order(names[::-1]).to_lists()


def test_draws_are_averaged_there(library):
    rng = np.random.default_rng(0)
    draws, y = rng.dirichlet(np.ones(4), size=(7, 30)), rng.integers(4, size=30)
    there, here = dco.ClassDraws(library(draws)), dco.ClassDraws(draws)
    assert_same_bits(there.mean().probabilities, here.mean().probabilities)
    assert_same_bits(APS().observed(there, y), APS().observed(here, y))


@pytest.mark.parametrize("score", [PosteriorNLL(), AddOneIn(), NeverEmpty(PosteriorNLL())], ids=str)
def test_other_scores_copy_to_the_host(library, score):
    rng = np.random.default_rng(0)
    draws, y = rng.dirichlet(np.ones(4), size=(7, 30)), rng.integers(4, size=30)
    there, here = dco.ClassDraws(library(draws)), dco.ClassDraws(draws)
    np.testing.assert_array_equal(score.observed(there, y), score.observed(here, y))
    np.testing.assert_array_equal(score.sets(there, 0.7).members, score.sets(here, 0.7).members)


def test_rules_and_evaluation_take_what_is_on_a_device(library):
    there, here, y = records(library, 200, 6)
    threshold = dco.split_conformal(APS().observed(there, y), alpha=0.1)
    assert threshold == dco.split_conformal(APS().observed(here, y), alpha=0.1)
    there_sets, here_sets = APS().sets(there, threshold), APS().sets(here, threshold)
    assert dco.evaluate(there_sets, y, threshold=threshold) == dco.evaluate(
        here_sets, y, threshold=threshold
    )


def test_tuning_takes_what_is_on_a_device(library):
    there, here, y = records(library, 200, 6)
    tables = [
        dco.tune({str(score): (score, record) for score in SCORES}, y, alpha=0.1).table
        for record in (there, here)
    ]
    assert tables[0] == tables[1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_logits_of_every_precision(library, dtype):
    rng = np.random.default_rng(0)
    values = library(rng.normal(size=(20, 5)))
    kind = getattr(namespace(values), dtype, None)
    if kind is None:
        pytest.skip(f"the library has no {dtype}")
    logits = namespace(values).astype(values, kind)
    record = dco.ClassProbabilities.from_logits(logits, temperature=2.0, classes=list("abcde"))
    assert str(record.probabilities.dtype).endswith("float64" if dtype == "float64" else "float32")
    weights = np.exp(to_numpy(logits).astype(np.float64) / 2)
    np.testing.assert_allclose(
        to_numpy(record.probabilities), weights / weights.sum(axis=1, keepdims=True), rtol=1e-5
    )


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("k", [1, 2, 40])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_bad_logit_spoils_its_row_wherever_it_stands(library, k, temperature, bad):
    """One column of the softmax is looked at, and tells of all; -inf spoils a row of its own."""
    logits = np.random.default_rng(0).normal(size=(4, k))
    logits[2, -1 if bad != -np.inf else slice(None)] = bad
    with pytest.raises(ValueError, match="which row 2 breaks"):
        dco.ClassProbabilities.from_logits(library(logits), temperature=temperature)


def test_bad_probabilities_are_told_on_a_device(library):
    with pytest.raises(ValueError, match="Logits go through a softmax first"):
        dco.ClassProbabilities(library(np.array([[-3.0, 4.0]])))
    with pytest.raises(ValueError, match="real numbers"):
        dco.ClassProbabilities(library(np.array([[1j, 0j]])))


@pytest.mark.parametrize("score", [LAC(), APS()], ids=str)
def test_jax_with_double_precision(score):
    jax = pytest.importorskip("jax")
    p, _, y = tied_rows(20, 4, dtype="float64")
    with jax.enable_x64(True):
        there, here = dco.ClassProbabilities(jax.numpy.asarray(p)), dco.ClassProbabilities(p)
        assert_same_bits(score.observed(there, y), score.observed(here, y))
        assert_same_bits(score.sets(there, 0.8).members, score.sets(here, 0.8).members)


def test_a_library_without_double_precision_is_copied_to_the_host():
    jnp = pytest.importorskip("jax.numpy")
    assert isinstance(dco.ClassProbabilities(jnp.full((2, 2), 0.5)).probabilities, np.ndarray)


def test_torch_on_a_cpu_gives_numpys_sizes():
    torch = pytest.importorskip("torch")
    record = dco.ClassProbabilities.from_logits(torch.randn(20, 3, requires_grad=True))
    assert isinstance(record.probabilities, np.ndarray)
    sizes = APS().sets(record, 0.9).sizes()
    assert 1 <= sizes.mean() <= 3
