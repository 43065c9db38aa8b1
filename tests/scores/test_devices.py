"""Arrays of other libraries stay where they are, and give NumPy's scores and sets to the last
bit.
"""

from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

import dco
from dco.foundations.arrays import namespace, to_numpy
from dco.scores import APS, LAC, RAPS, SAPS, AddOneIn, Margin, NeverEmpty, PosteriorNLL, TopK
from dco.scores.classification import RankScore

SCORES = [
    LAC(),
    Margin(),
    TopK(),
    APS(),
    APS(randomised=True),
    RAPS(penalty=0.05, rank_free=2, randomised=True),
    SAPS(weight=0.1),
    SAPS(weight=0.1, randomised=True),
]


@pytest.fixture(params=[name for name in ("array_api_strict", "torch", "cupy") if find_spec(name)])
def library(request):
    """The way into a library that is not NumPy, of those installed; a GPU where torch finds one."""
    xp = import_module(request.param)
    if request.param == "torch" and xp.cuda.is_available():
        return lambda values: xp.asarray(values, device="cuda")
    return xp.asarray


def rows(n: int, k: int, *, dtype: str = "float32", seed: int = 0):
    """Probabilities with many ties, uniforms, and labels."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(k), size=n)
    p[::3] = np.round(4 * p[::3]) / 4
    p[1::3] = 1 / k
    return p.astype(dtype), rng.uniform(size=n), rng.integers(k, size=n)


def equal(there, here) -> None:
    """The same bits, there in another library."""
    assert not isinstance(there, np.ndarray)
    np.testing.assert_array_equal(to_numpy(there), here)


@pytest.mark.parametrize("score", SCORES, ids=str)
@pytest.mark.parametrize(
    ("k", "dtype"), [(1, "float32"), (5, "float64"), (30, "float32"), (100, "float32")]
)
def test_scores_and_sets_are_numpys(library, score, k, dtype):
    p, u, y = rows(60, k, dtype=dtype)
    there, here = (
        dco.ClassProbabilities(library(p), uniforms=library(u)),
        dco.ClassProbabilities(p, uniforms=u),
    )
    observed, every = score.observed(here, y), score.every_label(here)
    equal(score.observed(there, library(y)), observed)
    equal(score.every_label(there), every)
    thresholds = [
        *np.quantile(observed, [0.0, 0.5, 0.9]),
        -1.0,
        np.inf,
        np.quantile(every, 0.7, axis=1)[:, None],
    ]
    thresholds.append(np.quantile(every, 0.7, axis=0)[None, :])
    several = score.sizes_at_several(there, thresholds)
    for row, threshold in enumerate(thresholds):
        ours, theirs = score.sets(here, threshold), score.sets(there, threshold)
        equal(theirs.row_pointers, ours.row_pointers)
        equal(theirs.codes, ours.codes)
        equal(several[row, :], ours.sizes())
        equal(theirs.sizes(), ours.sizes())
        equal(theirs.contains(library(y)), ours.contains(y))
        equal(theirs.is_empty(), ours.is_empty())
        equal(theirs.is_full(), ours.is_full())
        assert theirs.to_lists() == ours.to_lists()
        assert repr(theirs) == repr(ours)
        np.testing.assert_array_equal(theirs.to_dense(), ours.to_dense())
        np.testing.assert_array_equal(theirs[3:9].codes, ours[3:9].codes)


@pytest.mark.parametrize("score", SCORES, ids=str)
def test_long_rows_are_scored_only_as_far_as_sets_reach(library, score, monkeypatch):
    """A quarter of the ranks is enough for most rows; a few need more, and get them."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(300, 0.03), size=40)
    p[[5, 17]] = 1 / 300
    p[21] = np.arange(300) // 2 / (np.arange(300) // 2).sum()
    p, u = p.astype("float32"), rng.uniform(size=40)
    there, here = (
        dco.ClassProbabilities(library(p), uniforms=library(u)),
        dco.ClassProbabilities(p, uniforms=u),
    )
    scored, rank_scores = [], RankScore._rank_scores
    monkeypatch.setattr(
        RankScore, "_rank_scores", lambda *args: scored.append(args[1].shape) or rank_scores(*args)
    )
    every = score.every_label(here)
    thresholds = [0.9, float(np.quantile(every, 0.1)), np.quantile(every, 0.1, axis=1)[:, None]]
    for threshold in thresholds:
        equal(score.sets(there, threshold).codes, score.sets(here, threshold).codes)
    assert isinstance(score, (LAC, Margin)) or any(rows == 40 and k < 300 for rows, k in scored)
    several = score.sizes_at_several(there, thresholds)
    for row, threshold in enumerate(thresholds):
        equal(several[row, :], score.sizes(here, threshold))


def test_chunks_of_a_device_are_joined(library, monkeypatch):
    p, u, _ = rows(50, 7)
    whole = APS(randomised=True).every_label(dco.ClassProbabilities(library(p), uniforms=u))
    monkeypatch.setattr("dco.scores.classification._DEVICE_CHUNK", 40)
    equal(
        APS(randomised=True).every_label(dco.ClassProbabilities(library(p), uniforms=u)),
        to_numpy(whole),
    )


def test_labels_and_labels_never_seen(library):
    p, _, y = rows(40, 3)
    names = np.array(["a", "b", "c", "d"])
    there, here = (
        dco.ClassProbabilities(values, ["a", "b", "c"], unseen=["d"]) for values in (library(p), p)
    )
    truth = names[np.where(np.arange(40) % 5, y, 3)]
    for score in (LAC(), APS()):
        equal(score.observed(there, truth), score.observed(here, truth))
        equal(score.every_label(there), score.every_label(here))
        for threshold in (0.6, np.inf, np.full((40, 4), 0.6)):
            theirs, ours = score.sets(there, threshold), score.sets(here, threshold)
            equal(theirs.codes, ours.codes)
            equal(score.sizes(there, threshold), ours.sizes())
            equal(theirs.contains(truth), ours.contains(truth))
            equal(theirs.knows(truth), ours.knows(truth))
            assert theirs.in_order(names[::-1]).to_lists() == ours.in_order(names[::-1]).to_lists()


def test_draws_are_averaged_there_and_other_scores_copy_to_the_host(library):
    rng = np.random.default_rng(0)
    draws, y = rng.dirichlet(np.ones(4), size=(7, 30)), rng.integers(4, size=30)
    there, here = dco.ClassDraws(library(draws)), dco.ClassDraws(draws)
    equal(there.mean().probabilities, here.mean().probabilities)
    equal(APS().observed(there, y), APS().observed(here, y))
    for score in (PosteriorNLL(), AddOneIn(), NeverEmpty(APS())):
        np.testing.assert_array_equal(score.observed(there, y), score.observed(here, y))
        np.testing.assert_array_equal(score.sets(there, 0.7).codes, score.sets(here, 0.7).codes)


def test_what_takes_scores_and_sets_takes_them_from_a_device(library):
    p, u, y = rows(200, 6)
    there, here = (
        dco.ClassProbabilities(library(p), uniforms=library(u)),
        dco.ClassProbabilities(p, uniforms=u),
    )
    threshold = dco.split_conformal(APS().observed(there, y), alpha=0.1)
    assert threshold == dco.split_conformal(APS().observed(here, y), alpha=0.1)
    theirs, ours = APS().sets(there, threshold), APS().sets(here, threshold)
    assert dco.evaluate(theirs, y, threshold=threshold) == dco.evaluate(
        ours, y, threshold=threshold
    )
    tables = [
        dco.tune({str(score): (score, record) for score in SCORES}, y, alpha=0.1).table
        for record in (there, here)
    ]
    assert tables[0] == tables[1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_logits_of_every_precision(library, dtype):
    rng = np.random.default_rng(0)
    given = library(rng.normal(size=(20, 5)))
    kind = getattr(namespace(given), dtype, None)
    if kind is None:
        pytest.skip(f"the library has no {dtype}")
    logits = namespace(given).astype(given, kind)
    record = dco.ClassProbabilities.from_logits(logits, temperature=2.0, classes=list("abcde"))
    assert str(record.probabilities.dtype).endswith("float64" if dtype == "float64" else "float32")
    weights = np.exp(to_numpy(logits).astype(np.float64) / 2)
    np.testing.assert_allclose(
        to_numpy(record.probabilities), weights / weights.sum(axis=1, keepdims=True), rtol=1e-5
    )
    again = dco.ClassProbabilities(to_numpy(record.probabilities), classes=list("abcde"))
    assert APS().sets(record, 0.8).to_lists() == APS().sets(again, 0.8).to_lists()


def test_jax_with_double_precision():
    jax = pytest.importorskip("jax")
    p, _, y = rows(20, 4, dtype="float64")
    with jax.enable_x64(True):
        there, here = dco.ClassProbabilities(jax.numpy.asarray(p)), dco.ClassProbabilities(p)
        for score in (LAC(), APS()):  # ties among these rows
            equal(score.observed(there, y), score.observed(here, y))
            equal(score.sets(there, 0.8).codes, score.sets(here, 0.8).codes)


def test_a_library_without_double_precision_is_copied_to_the_host():
    jnp = pytest.importorskip("jax.numpy")
    assert isinstance(dco.ClassProbabilities(jnp.full((2, 2), 0.5)).probabilities, np.ndarray)


def test_gradients_are_left_behind():
    torch = pytest.importorskip("torch")
    logits = torch.randn(20, 3, requires_grad=True)
    assert (
        not LAC()
        .observed(dco.ClassProbabilities.from_logits(logits), np.zeros(20, dtype=int))
        .requires_grad
    )


def test_softmax_of_large_logits_and_of_masked_labels():
    record = dco.ClassProbabilities.from_logits([[1e4, 1e4 - 1, -np.inf], [0.0, -1e5, 0.0]])
    np.testing.assert_allclose(
        record.probabilities, [[0.73105858, 0.26894142, 0.0], [0.5, 0.0, 0.5]], rtol=1e-7
    )


@pytest.mark.parametrize(
    ("logits", "temperature", "message"),
    [
        ([[0.0, np.nan], [0.0, 1.0]], 1.0, "which row 0 breaks"),
        ([[0.0, 1.0], [0.0, np.inf]], 1.0, "which row 1 breaks"),
        ([0.0, 1.0], 1.0, r"\(n, K\) matrix"),
        ([["a", "b"]], 1.0, "real numbers"),
        ([[0.0, 1.0]], 0.0, "temperature must be"),
        ([[0.0, 1.0]], "hot", "temperature must be"),
    ],
)
def test_bad_logits_are_told(logits, temperature, message):
    with pytest.raises(ValueError, match=message):
        dco.ClassProbabilities.from_logits(logits, temperature=temperature)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("k", [1, 2, 40])
def test_one_bad_logit_spoils_its_row_wherever_it_stands(library, k, temperature):
    """One column of the softmax is looked at, and tells of all."""
    for bad in (np.nan, np.inf, -np.inf):
        logits = np.random.default_rng(0).normal(size=(4, k))
        logits[2, -1 if bad != -np.inf else slice(None)] = bad
        with pytest.raises(ValueError, match="which row 2 breaks"):
            dco.ClassProbabilities.from_logits(library(logits), temperature=temperature)


def test_bad_probabilities_are_told_on_a_device(library):
    with pytest.raises(ValueError, match="Logits go through a softmax first"):
        dco.ClassProbabilities(library(np.array([[-3.0, 4.0]])))
    with pytest.raises(ValueError, match="real numbers"):
        dco.ClassProbabilities(library(np.array([[1j, 0j]])))
