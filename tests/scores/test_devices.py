"""Arrays of a GPU stay where they are, and give NumPy's scores and sets to the last bit.

Without a GPU the strict implementation of the array API standard shows that no step is NumPy's own.
"""

from dataclasses import dataclass
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
every_shape = pytest.mark.parametrize(
    ("n_labels", "dtype"),
    [(1, "float32"), (5, "float64"), (16, "float32"), (30, "float32"), (300, "float32")],
)


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


def tied_probabilities(n_rows, n_labels, *, dtype="float32"):
    """Draw probabilities of which two rows in three have ties."""
    p = np.random.default_rng(0).dirichlet(np.ones(n_labels), size=n_rows)
    p[::3] = np.round(4 * p[::3]) / 4
    p[1::3] = 1 / n_labels
    return p.astype(dtype)


def draw_labels(n_rows, n_labels):
    return np.random.default_rng(1).integers(n_labels, size=n_rows)


@dataclass(frozen=True, eq=False)
class Rows:
    """One prediction there, in another library, and here, in NumPy; and labels."""

    there: dco.ClassProbabilities
    here: dco.ClassProbabilities
    y: np.ndarray

    @classmethod
    def draw(cls, library, n_rows, n_labels, *, dtype="float32"):
        p = tied_probabilities(n_rows, n_labels, dtype=dtype)
        uniforms = np.random.default_rng(2).uniform(size=n_rows)
        return cls(
            there=dco.ClassProbabilities(library(p), uniforms=library(uniforms)),
            here=dco.ClassProbabilities(p, uniforms=uniforms),
            y=draw_labels(n_rows, n_labels),
        )


def assert_same_bits(there, here) -> None:
    """Check that numbers of another library are those of NumPy, and are still there."""
    assert not isinstance(there, np.ndarray)
    np.testing.assert_array_equal(to_numpy(there), here)


# ---------------------------------------------------------------- scores and sets


@every_score
@every_shape
def test_scores_are_numpys(library, score, n_labels, dtype):
    rows = Rows.draw(library, 60, n_labels, dtype=dtype)

    there = score.observed(rows.there, library(rows.y))

    assert_same_bits(there, score.observed(rows.here, rows.y))


@every_score
@every_shape
def test_scores_of_every_label_are_numpys(library, score, n_labels, dtype):
    rows = Rows.draw(library, 60, n_labels, dtype=dtype)

    assert_same_bits(score.every_label(rows.there), score.every_label(rows.here))


def thresholds_for(score, rows):
    """Make thresholds: quantiles, none and all, one for each row, and one for each label."""
    every = score.every_label(rows.here)
    return [
        *np.quantile(score.observed(rows.here, rows.y), [0.0, 0.5, 0.9]),
        -1.0,
        np.inf,
        np.quantile(every, 0.7, axis=1)[:, None],
        np.quantile(every, 0.7, axis=0)[None, :],
    ]


@every_score
@every_shape
@pytest.mark.parametrize(
    "i", range(7), ids=["0 %", "50 %", "90 %", "negative", "infinite", "by row", "by label"]
)
def test_sets_are_numpys(library, score, n_labels, dtype, i):
    rows = Rows.draw(library, 60, n_labels, dtype=dtype)
    threshold = thresholds_for(score, rows)[i]

    sets = score.sets(rows.there, threshold)

    assert_same_bits(sets.members, score.sets(rows.here, threshold).members)


@every_score
@every_shape
def test_sizes_at_several_thresholds_are_numpys(library, score, n_labels, dtype):
    rows = Rows.draw(library, 60, n_labels, dtype=dtype)
    thresholds = thresholds_for(score, rows)

    sizes = score.sizes_at_several(rows.there, thresholds)

    expected = [score.sets(rows.here, threshold).sizes() for threshold in thresholds]
    assert_same_bits(sizes, expected)


@dataclass(frozen=True, eq=False)
class Sets:
    """Sets there and here, and labels of the other library and of NumPy."""

    there: dco.LabelSets
    here: dco.LabelSets
    y_there: object
    y: np.ndarray


@pytest.fixture
def sets(library):
    rows = Rows.draw(library, 60, 5)
    there = APS().sets(rows.there, 0.9)
    here = APS().sets(rows.here, 0.9)
    return Sets(there, here, library(rows.y), rows.y)


@pytest.mark.parametrize("method", ["sizes", "is_empty", "is_full", "has_one_label"])
def test_sets_answer_where_they_are(sets, method):
    assert_same_bits(getattr(sets.there, method)(), getattr(sets.here, method)())


def test_sets_tell_what_they_contain_where_they_are(sets):
    assert_same_bits(sets.there.contains(sets.y_there), sets.here.contains(sets.y))


def test_sets_are_taken_apart_where_they_are(sets):
    assert_same_bits(sets.there[3:9].members, sets.here[3:9].members)


def test_sets_come_to_the_host_to_be_read(sets):
    assert sets.there.to_lists() == sets.here.to_lists()
    assert repr(sets.there) == repr(sets.here)
    np.testing.assert_array_equal(sets.there.to_dense(), sets.here.to_dense())
    np.testing.assert_array_equal(sets.there.knows(sets.y_there), sets.here.knows(sets.y))


def test_blocks_of_a_device_are_joined(library, monkeypatch):
    """There are several blocks from 2**26 probabilities on, too many for a test."""
    monkeypatch.setattr("dco.scores.label_arrays.BLOCK_SIZE_ON_DEVICE", 40)
    rows = Rows.draw(library, 50, 7)
    score = APS(randomised=True)

    assert_same_bits(score.every_label(rows.there), score.every_label(rows.here))
    assert_same_bits(score.sets(rows.there, 0.8).members, score.sets(rows.here, 0.8).members)


# ---------------------------------------------------------------- labels

with_unseen_labels = pytest.mark.parametrize("score", [LAC(), APS()], ids=str)
NAMES = np.array(["a", "b", "c", "d"])


@pytest.fixture
def rows_without_d(library):
    """Make rows of a model that knows the labels a, b and c; every fifth row has the label d."""
    p = tied_probabilities(40, 3)
    codes = np.where(np.arange(40) % 5, draw_labels(40, 3), 3)
    return Rows(
        there=dco.ClassProbabilities(library(p), ["a", "b", "c"], unseen=["d"]),
        here=dco.ClassProbabilities(p, ["a", "b", "c"], unseen=["d"]),
        y=NAMES[codes],
    )


@with_unseen_labels
def test_scores_of_labels_never_seen_are_numpys(rows_without_d, score):
    rows = rows_without_d

    assert_same_bits(score.observed(rows.there, rows.y), score.observed(rows.here, rows.y))


@with_unseen_labels
@pytest.mark.parametrize(
    "threshold", [0.6, np.inf, np.full((40, 4), 0.6)], ids=["one", "infinite", "matrix"]
)
def test_sets_with_labels_never_seen_are_numpys(rows_without_d, score, threshold):
    rows = rows_without_d

    there = score.sets(rows.there, threshold)
    here = score.sets(rows.here, threshold)

    assert_same_bits(there.members, here.members)
    assert_same_bits(there.contains(rows.y), here.contains(rows.y))
    assert_same_bits(score.sizes(rows.there, threshold), here.sizes())
    assert there.in_order(NAMES[::-1]).to_lists() == here.in_order(NAMES[::-1]).to_lists()


# ---------------------------------------------------------------- draws


@pytest.fixture
def draws():
    """Draw seven probabilities of four labels for each of 30 rows."""
    return np.random.default_rng(0).dirichlet(np.ones(4), size=(7, 30))


def test_draws_are_averaged_there(library, draws):
    there = dco.ClassDraws(library(draws))
    here = dco.ClassDraws(draws)
    y = draw_labels(30, 4)

    assert_same_bits(there.mean().probabilities, here.mean().probabilities)
    assert_same_bits(APS().observed(there, y), APS().observed(here, y))


@pytest.mark.parametrize("score", [PosteriorNLL(), AddOneIn(), NeverEmpty(PosteriorNLL())], ids=str)
def test_scores_of_draws_copy_to_the_host(library, draws, score):
    there = dco.ClassDraws(library(draws))
    here = dco.ClassDraws(draws)
    y = draw_labels(30, 4)

    np.testing.assert_array_equal(score.observed(there, y), score.observed(here, y))
    np.testing.assert_array_equal(score.sets(there, 0.7).members, score.sets(here, 0.7).members)


# ---------------------------------------------------------------- rules


def test_a_threshold_of_scores_on_a_device_is_numpys(library):
    rows = Rows.draw(library, 200, 6)

    threshold = dco.split_conformal(APS().observed(rows.there, rows.y), alpha=0.1)

    assert threshold == dco.split_conformal(APS().observed(rows.here, rows.y), alpha=0.1)


def test_an_evaluation_of_sets_on_a_device_is_numpys(library):
    rows = Rows.draw(library, 200, 6)
    threshold = dco.split_conformal(APS().observed(rows.here, rows.y), alpha=0.1)

    there, here = (
        dco.evaluate(APS().sets(prediction, threshold), rows.y, threshold=threshold)
        for prediction in (rows.there, rows.here)
    )

    assert there == here


def test_a_ranking_of_predictions_on_a_device_is_numpys(library):
    rows = Rows.draw(library, 200, 6)

    there, here = (
        dco.tune({str(score): (score, prediction) for score in SCORES}, rows.y, alpha=0.1)
        for prediction in (rows.there, rows.here)
    )

    assert there.table == here.table


# ---------------------------------------------------------------- what is taken


@pytest.mark.parametrize(
    ("dtype", "kept_as"),
    [
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
    ],
)
def test_logits_of_every_precision_are_taken(library, dtype, kept_as):
    values = library(np.random.default_rng(0).normal(size=(20, 5)))
    xp = namespace(values)
    if not hasattr(xp, dtype):
        pytest.skip(f"the library has no {dtype}")
    logits = xp.astype(values, getattr(xp, dtype))

    prediction = dco.ClassProbabilities.from_logits(logits, temperature=2.0, classes=list("abcde"))

    weights = np.exp(to_numpy(logits).astype(np.float64) / 2)
    expected = weights / weights.sum(axis=1, keepdims=True)
    assert str(prediction.probabilities.dtype).endswith(kept_as)
    np.testing.assert_allclose(to_numpy(prediction.probabilities), expected, rtol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("n_labels", [1, 2, 40])
@pytest.mark.parametrize(
    ("bad", "columns"),
    [(np.nan, -1), (np.inf, -1), (-np.inf, slice(None))],
    ids=["nan", "inf", "all -inf"],
)
def test_a_bad_logit_is_an_error_that_names_its_row(library, n_labels, temperature, bad, columns):
    """One column of the softmax is looked at, and shows all."""
    logits = np.random.default_rng(0).normal(size=(4, n_labels))
    logits[2, columns] = bad

    with pytest.raises(ValueError, match="which row 2 breaks"):
        dco.ClassProbabilities.from_logits(library(logits), temperature=temperature)


@pytest.mark.parametrize(
    ("values", "message"),
    [([[-3.0, 4.0]], "Logits go through a softmax first"), ([[1j, 0j]], "real numbers")],
    ids=["logits", "complex"],
)
def test_bad_probabilities_on_a_device_are_refused(library, values, message):
    with pytest.raises(ValueError, match=message):
        dco.ClassProbabilities(library(np.array(values)))


# ---------------------------------------------------------------- JAX and torch


@pytest.mark.parametrize("score", [LAC(), APS()], ids=str)
def test_jax_with_double_precision_gives_numpys_bits(score):
    jax = pytest.importorskip("jax")
    p = tied_probabilities(20, 4, dtype="float64")
    here = dco.ClassProbabilities(p)
    y = draw_labels(20, 4)

    with jax.enable_x64(True):
        there = dco.ClassProbabilities(jax.numpy.asarray(p))

        assert_same_bits(score.observed(there, y), score.observed(here, y))
        assert_same_bits(score.sets(there, 0.8).members, score.sets(here, 0.8).members)


def test_a_library_without_double_precision_is_copied_to_the_host():
    jnp = pytest.importorskip("jax.numpy")

    prediction = dco.ClassProbabilities(jnp.full((2, 2), 0.5))

    assert isinstance(prediction.probabilities, np.ndarray)


def test_tensors_on_a_cpu_become_numpys():
    torch = pytest.importorskip("torch")

    prediction = dco.ClassProbabilities.from_logits(torch.randn(20, 3, requires_grad=True))

    assert isinstance(prediction.probabilities, np.ndarray)
    assert 1 <= APS().sets(prediction, 0.9).sizes().mean() <= 3
