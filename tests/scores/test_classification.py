"""Facts about every score of labels, each checked against the plain definition written out
below.
"""

import math
import tracemalloc
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dco import (
    ClassDraws,
    ClassProbabilities,
    IncompatibleScoreError,
    Points,
    Threshold,
    split_conformal,
)
from dco.scores import (
    APS,
    LAC,
    RAPS,
    SAPS,
    AddOneIn,
    LabelScore,
    Margin,
    PosteriorNLL,
    Score,
    TopK,
    ranks,
)
from dco.scores.classification import RankScore

SCORES: dict[str, Any] = {
    "LAC": LAC(),
    "APS": APS(),
    "APS randomised": APS(randomised=True),
    "RAPS": RAPS(penalty=0.01, rank_free=2),
    "RAPS strong": RAPS(penalty=0.3, rank_free=0),
    "RAPS randomised": RAPS(penalty=0.01, rank_free=2, randomised=True),
    "SAPS": SAPS(weight=0.07),
    "SAPS randomised": SAPS(weight=0.07, randomised=True),
    "SAPS without weight": SAPS(weight=0.0),
    "TopK": TopK(),
    "Margin": Margin(),
    "PosteriorNLL": PosteriorNLL(),
    "AddOneIn": AddOneIn(),
}
every_score = pytest.mark.parametrize("score", SCORES.values(), ids=SCORES.keys())


def record(
    score: Any, probabilities: np.ndarray, uniforms: np.ndarray | None = None, **labels: Any
) -> Any:
    """A record the score can read; the score of draws gets three passes that disagree a little."""
    if ClassProbabilities not in score.needs:
        return ClassDraws(three_passes(probabilities), uniforms=uniforms, **labels)
    return ClassProbabilities(probabilities, uniforms=uniforms, **labels)


def three_passes(probabilities: np.ndarray) -> np.ndarray:
    return np.stack([probabilities, probabilities / 2, probabilities * np.sqrt(probabilities)])


def softmax(
    rng: np.random.Generator, n: int, k: int, spread: float = 2.0, dtype: str = "float64"
) -> np.ndarray:
    logits = spread * rng.standard_normal((n, k))
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)).astype(dtype)


# --------------------------------------------------------------------------------------------------
# ------------------- The plain definition: one row, one label at a time, in rational arithmetic,
# with an index sort.
# --------------------------------------------------------------------------------------------------
# -------------------


def plain(score: Any, row: np.ndarray, label: int, uniform: float) -> Fraction | float:
    p = [Fraction(float(value)) for value in row]
    order = sorted(range(len(p)), key=lambda j: (-p[j], j))
    rank = order.index(label) + 1
    u = Fraction(float(uniform))
    match score:
        case LAC():
            return 1 - p[label]
        case TopK():
            return Fraction(rank)
        case Margin():
            return max([p[j] for j in range(len(p)) if j != label], default=Fraction(0)) - p[label]
        case APS() | RAPS():
            mass = sum(p[j] for j in order[:rank]) - (u * p[label] if score.randomised else 0)
            if isinstance(score, RAPS):
                mass += Fraction(score.penalty) * max(0, rank - score.rank_free)
            return mass
        case SAPS():
            u = u if score.randomised else Fraction(1)
            top = p[order[0]]
            return u * top if rank == 1 else top + (rank - 2 + u) * Fraction(score.weight)
        case PosteriorNLL():
            return -math.log(p[label]) if p[label] else math.inf
        case AddOneIn():
            passes = [Fraction(float(value)) for value in three_passes(row[label])]
            total = sum(passes)
            return -math.log(sum(q * q for q in passes) / total) if total else math.inf
    raise TypeError(score)


def plain_scores(score: Any, probabilities: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    rows = zip(probabilities, uniforms, strict=True)
    return np.array(
        [[float(plain(score, row, label, u)) for label in range(len(row))] for row, u in rows]
    )


# --------------------------------------------------------------------------------------------------
# ------------------- Rows of every kind that people meet.
# --------------------------------------------------------------------------------------------------
# -------------------


def tree_rows(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """Shares of a few votes, as from leaves of trees: many ties and many zeros."""
    votes = rng.multinomial(int(rng.integers(1, 12)), np.full(k, 1 / k), size=n)
    return votes / votes.sum(axis=1, keepdims=True)


def saturated_rows(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    rows = softmax(rng, n, k, spread=40.0)
    rows[::3] = np.eye(k)[rng.integers(k, size=len(rows[::3]))]
    return rows


def equal_rows(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    return np.full((n, k), 1 / k)


KINDS = {"softmax": softmax, "trees": tree_rows, "saturated": saturated_rows, "equal": equal_rows}


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities, labels and uniforms of few rows; K from 1 to beyond two blocks of ranks, and
    1000.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 7))
    k = draw(st.sampled_from([1, 2, 3, 5, 31, 32, 33, 64, 100, 1000]))
    values = KINDS[draw(st.sampled_from(sorted(KINDS)))](rng, n, k).astype(
        draw(st.sampled_from(["float32", "float64"]))
    )
    layout = draw(
        st.sampled_from(["plain", "columns", "strided", "backwards", "read-only", "byte-swapped"])
    )
    if layout == "columns":
        values = np.asfortranarray(values)
    elif layout == "strided":
        wide = np.zeros((2 * n, 2 * k), dtype=values.dtype)
        wide[::2, ::2] = values
        values = wide[::2, ::2]
    elif layout == "backwards":
        values = values[::-1, ::-1]
    elif layout == "read-only":
        values.flags.writeable = False
    elif layout == "byte-swapped":
        values = values.astype(values.dtype.newbyteorder())
    uniforms = rng.choice([0.0, 1.0, 0.5, *rng.uniform(size=5)], size=n)
    return values, rng.integers(k, size=n), uniforms


@every_score
@settings(max_examples=60)
@given(problem=problems(), data=st.data())
def test_a_set_holds_exactly_the_labels_that_score_at_most_the_threshold(score, problem, data):
    """observed, every_label, sets and sizes agree to the last bit, at thresholds that are scores
    and beside them.

    So sets grow with the threshold. A record counts as its value.
    """
    values, y, uniforms = problem
    prediction = record(score, values, uniforms)
    every = score.every_label(prediction)
    seen = score.observed(prediction, y)
    assert every.dtype == seen.dtype == np.float64
    assert every.shape == values.shape
    assert np.array_equal(seen, every[np.arange(len(y)), y])

    chosen = data.draw(st.sampled_from(sorted({*every.ravel().tolist()[:40], *seen.tolist()})))
    levels = [
        chosen,
        np.nextafter(chosen, np.inf),
        np.nextafter(chosen, -np.inf),
        np.inf,
        -np.inf,
        -0.5,
        0.0,
        0.9,
        1.0,
        3.5,
    ]
    for level in map(float, levels):
        sets = score.sets(prediction, level)
        assert np.array_equal(sets.to_dense(), every <= level)
        assert np.array_equal(sets.contains(y), seen <= level)
        assert np.array_equal(sets.sizes(), score.sizes(prediction, level))
    assert np.array_equal(
        score.sizes_at_several(prediction, levels),
        [(every <= level).sum(axis=1) for level in levels],
    )
    as_record = Threshold(chosen, rank=1, n=1, guarantee="none", alpha=0.1)
    assert np.array_equal(score.sets(prediction, as_record).to_dense(), every <= chosen)

    by_row = np.where(uniforms < 0.5, seen, every.max(axis=1))[:, None]
    assert np.array_equal(score.sets(prediction, by_row).to_dense(), every <= by_row)
    assert np.array_equal(score.sizes(prediction, by_row), (every <= by_row).sum(axis=1))
    by_label = np.median(every, axis=0)[None, :]
    assert np.array_equal(score.sets(prediction, by_label).to_dense(), every <= by_label)
    assert np.array_equal(score.sizes(prediction, by_label), (every <= by_label).sum(axis=1))


@every_score
@settings(max_examples=60)
@given(problem=problems())
def test_scores_follow_the_plain_definition(score, problem):
    """Against rational arithmetic with an index sort; what is left is rounding."""
    values, _, uniforms = problem
    values = values[:2, :70]
    every = score.every_label(record(score, values, uniforms[:2]))
    wanted = plain_scores(score, values, uniforms[:2])
    finite = np.isfinite(wanted)
    assert np.array_equal(np.isfinite(every), finite)
    assert np.max(np.abs(every[finite] - wanted[finite]), initial=0.0) < 2e-12


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "name", [name for name in SCORES if name not in ("PosteriorNLL", "AddOneIn")]
)
def test_sets_are_those_of_the_plain_definition_ties_included(name, dtype):
    """Probabilities, uniforms and parameters that are multiples of 2**-10: scores are floats,
    nothing rounds.
    """
    rng = np.random.default_rng(5)
    exact = {
        "RAPS": RAPS(1 / 64, 2),
        "RAPS randomised": RAPS(1 / 64, 2, randomised=True),
        "RAPS strong": RAPS(0.25, 0),
    }
    exact |= {"SAPS": SAPS(1 / 16), "SAPS randomised": SAPS(1 / 16, randomised=True)}
    score = exact.get(name, SCORES[name])
    for k in (1, 2, 7, 40, 65):
        values = (rng.multinomial(1024, rng.dirichlet(np.full(k, 0.3)), size=12) / 1024).astype(
            dtype
        )
        uniforms = rng.integers(1024, size=12) / 1024
        wanted = plain_scores(score, values, uniforms)
        for level in np.unique(wanted)[:: max(1, k // 4)]:
            sets = score.sets(record(score, values, uniforms), float(level))
            assert np.array_equal(sets.to_dense(), wanted <= level)


@every_score
def test_the_order_and_the_number_of_rows_are_irrelevant(score):
    """A row's scores and set are the same alone, in any order and in chunks of any size."""
    rng = np.random.default_rng(2)
    values, uniforms = softmax(rng, 200, 700, dtype="float32"), rng.uniform(size=200)
    y = rng.integers(700, size=200)
    level = float(np.quantile(score.observed(record(score, values, uniforms), y), 0.8))
    dense = score.sets(record(score, values, uniforms), level).to_dense()
    order = rng.permutation(200)
    shuffled = record(score, values[order], uniforms[order])
    assert np.array_equal(score.sets(shuffled, level).to_dense(), dense[order])
    assert np.array_equal(
        score.observed(shuffled, y[order]),
        score.observed(record(score, values, uniforms), y)[order],
    )
    for row in (0, 93, 94, 199):
        alone = record(score, values[[row]], uniforms[[row]])
        assert np.array_equal(score.sets(alone, level).to_dense()[0], dense[row])


@every_score
def test_no_rows_give_no_sets(score):
    prediction = record(score, np.empty((0, 4)), np.empty(0))
    assert len(score.sets(prediction, 0.5)) == 0
    assert score.observed(prediction, np.empty(0, dtype=int)).shape == (0,)
    assert score.every_label(prediction).shape == (0, 4)
    assert score.sizes_at_several(prediction, [0.1, 0.2]).shape == (2, 0)


@every_score
def test_labels_never_seen_score_inf_and_are_in_a_set_only_at_an_infinite_threshold(score):
    rng = np.random.default_rng(3)
    names = np.array(["a", "b", "c"])
    values, uniforms = softmax(rng, 4, 3), rng.uniform(size=4)
    prediction = record(score, values, uniforms, classes=names, unseen=np.array(["d", "e"]))
    y = np.array(["d", "a", "e", "c"])
    seen = score.observed(prediction, y)
    assert np.isinf(seen[[0, 2]]).all()
    assert np.isfinite(seen[[1, 3]]).all()
    assert np.array_equal(
        np.isinf(score.every_label(prediction)), np.tile([False] * 3 + [True] * 2, (4, 1))
    )
    assert score.sets(prediction, 1e9).to_lists() == [["a", "b", "c"]] * 4
    assert score.sets(prediction, np.inf).is_full().all()
    assert score.sizes(prediction, np.inf).tolist() == [5] * 4
    rows = np.array([np.inf, 1e9, np.inf, -np.inf])
    assert score.sets(prediction, rows).sizes().tolist() == [5, 3, 5, 0]
    assert score.sizes(prediction, rows).tolist() == [5, 3, 5, 0]
    labels = np.array([-np.inf, 1e9, -np.inf, np.inf, 1e9])
    assert score.sets(prediction, labels).to_lists() == [["b", "d"]] * 4
    assert score.sizes(prediction, labels).tolist() == [2] * 4


@pytest.mark.parametrize("known", [3, 7, 8, 9, 20])
def test_labels_never_seen_may_need_bytes_of_their_own(known):
    """Sets of few labels are stored as bits; those of labels never seen start or end a byte, or lie
    across two.
    """
    values = softmax(np.random.default_rng(4), 9, known)
    prediction = ClassProbabilities(
        values, classes=[f"known {i}" for i in range(known)], unseen=["a", "b", "c"]
    )
    for level in (0.7, np.inf, np.where(np.arange(9) % 2, 0.7, np.inf)[:, None]):
        sets = LAC().sets(prediction, level)
        assert np.array_equal(sets.to_dense(), LAC().every_label(prediction) <= level)
        assert np.array_equal(sets.sizes(), LAC().sizes(prediction, level))


@every_score
def test_a_score_is_a_small_value(score):
    """Comparable, hashable, printable, and what the protocol asks for."""
    assert isinstance(score, Score)
    assert isinstance(score, LabelScore)
    assert hash(score) == hash(eval(repr(score)))
    assert score == eval(repr(score))


@pytest.mark.parametrize(
    "score", [APS(randomised=True), RAPS(0.1, 1, randomised=True), SAPS(0.1, randomised=True)]
)
def test_a_randomised_score_asks_for_uniforms(score):
    prediction = ClassProbabilities([[0.5, 0.5]])
    for call in (
        lambda: score.observed(prediction, [0]),
        lambda: score.every_label(prediction),
        lambda: score.sets(prediction, 1),
    ):
        with pytest.raises(ValueError, match="uniforms="):
            call()


@every_score
def test_a_prediction_of_another_kind_is_refused(score):
    with pytest.raises(IncompatibleScoreError, match="Points"):
        score.observed(Points([1.0]), [0])


def test_class_draws_are_read_through_their_mean():
    rng = np.random.default_rng(6)
    draws = ClassDraws(
        np.stack([softmax(rng, 9, 4) for _ in range(5)]), uniforms=rng.uniform(size=9)
    )
    for score in (LAC(), APS(randomised=True), TopK(), Margin()):
        assert np.array_equal(score.every_label(draws), score.every_label(draws.mean()))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: RAPS(-0.1, 1), "penalty"),
        (lambda: RAPS(math.nan, 1), "penalty"),
        (lambda: RAPS(math.inf, 1), "penalty"),
        (lambda: RAPS(0.1, -1), "rank_free"),
        (lambda: RAPS(0.1, 1.5), "rank_free"),
        (lambda: SAPS(-1.0), "weight"),
        (lambda: SAPS("a"), "weight must be a finite number"),
        (lambda: RAPS(None, 1), "penalty must be a finite number"),
        (lambda: SAPS(math.nan), "weight"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(make, name):
    with pytest.raises(ValueError, match=name):
        make()


@pytest.mark.parametrize("score", [APS(), RAPS(0.1, 1)])
def test_rows_that_are_no_distribution_are_refused_where_masses_are_added(score):
    """Beyond a sum of 8 additions could round, and the mass of a distribution is 1."""
    prediction = ClassProbabilities(np.ones((2, 9)))
    for call in (
        lambda: score.sets(prediction, 1.0),
        lambda: score.every_label(prediction),
        lambda: score.observed(prediction, [8, 8]),
    ):
        with pytest.raises(ValueError, match="Divide each row by its sum"):
            call()


def test_masses_are_exact_in_any_order():
    """Sums of rounded probabilities equal their rational sum, whatever the order."""
    rng = np.random.default_rng(8)
    rounded = ranks.rounded(softmax(rng, 1, 3000, spread=6.0))[0]
    exact = sum(map(Fraction, rounded.tolist()), Fraction(0))
    for _ in range(20):
        order = rng.permutation(3000)
        assert Fraction(float(np.cumsum(rounded[order])[-1])) == exact
        assert Fraction(float(rounded[order].sum())) == exact


@settings(max_examples=300)
@given(threshold=st.floats(-1.5, 1.5) | st.floats(allow_nan=False), single=st.booleans())
def test_the_least_probability_of_a_threshold_is_the_least(threshold, single):
    kind = np.float32 if single else np.float64
    least = ranks.least_probability(threshold, single)
    if np.isinf(least):
        assert threshold < -1.0
        return
    assert 1.0 - float(least) <= threshold
    if least > 0:
        assert 1.0 - float(np.nextafter(kind(least), kind(-1))) > threshold


# --------------------------------------------------------------------------------------------------
# ------------------- Scores of passes.
# --------------------------------------------------------------------------------------------------
# -------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_posterior_nll_gives_the_sets_of_lac_on_the_mean(dtype):
    """-log is a monotone map of 1 - p: calibrated on the same rows, the sets are the same."""
    rng = np.random.default_rng(9)
    draws = np.stack([softmax(rng, 300, 12, dtype=dtype) for _ in range(8)])
    mean = ClassProbabilities(draws.astype(np.float64).mean(axis=0))
    y = rng.integers(12, size=300)
    for alpha in (0.05, 0.1, 0.3):
        nll = split_conformal(PosteriorNLL().observed(ClassDraws(draws), y), alpha=alpha)
        lac = split_conformal(LAC().observed(mean, y), alpha=alpha)
        assert np.array_equal(
            PosteriorNLL().sets(ClassDraws(draws), nll).to_dense(), LAC().sets(mean, lac).to_dense()
        )


@pytest.mark.parametrize("score", [PosteriorNLL(), AddOneIn()])
def test_a_label_that_is_all_but_ruled_out_keeps_a_finite_score(score):
    """The square of 1e-250 is below the smallest float; the score must not fall over it."""
    draws = ClassDraws(np.array([[[1.0, 1e-250]], [[1.0, 1e-250]]]))
    assert score.every_label(draws)[0, 1] == pytest.approx(250 * math.log(10), rel=1e-14)


@pytest.mark.parametrize("score", [PosteriorNLL(), AddOneIn()])
def test_scores_of_passes_do_not_depend_on_the_layout_in_memory(score):
    rng = np.random.default_rng(12)
    draws = np.stack([softmax(rng, 6, 33, dtype="float32") for _ in range(200)])
    y = rng.integers(33, size=6)
    wanted = score.every_label(ClassDraws(draws))
    for layout in (
        np.asfortranarray(draws),
        np.ascontiguousarray(draws.transpose(1, 2, 0)).transpose(2, 0, 1),
    ):
        assert np.array_equal(score.every_label(ClassDraws(layout)), wanted)
        assert np.array_equal(score.observed(ClassDraws(layout), y), wanted[np.arange(6), y])


# --------------------------------------------------------------------------------------------------
# ------------------- Long rows, of which only the values that the sets may reach are sorted.
# --------------------------------------------------------------------------------------------------
# -------------------


def sure_and_unsure_rows(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """Most rows sharp, some nearly flat: what a few sampled rows reach says little about the
    others.
    """
    rows = softmax(rng, n, k, spread=5.0)
    rows[3::20] = softmax(rng, len(rows[3::20]), k, spread=0.1)
    return rows


LONG_ROWS = {**KINDS, "sure and unsure": sure_and_unsure_rows}
RANK_SCORES = {name: score for name, score in SCORES.items() if isinstance(score, RankScore)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", LONG_ROWS)
@pytest.mark.parametrize("score", RANK_SCORES.values(), ids=RANK_SCORES.keys())
def test_long_rows_get_the_same_sets(score, kind, dtype):
    """Against scores of every label, which sort all indices: at scores that occur, beside them, and
    row by row.
    """
    rng = np.random.default_rng(29)
    values = LONG_ROWS[kind](rng, 130, 700).astype(dtype)
    prediction = record(score, values, rng.uniform(size=130))
    every = score.every_label(prediction)
    ranked = np.sort(every, axis=1)
    levels = [
        ranked[:, 0].max(),
        ranked[:, 3].min(),
        *ranked[7, [0, 2, 40, 260]],
        np.quantile(ranked[:, 20], 0.9),
        0.95,
    ]
    levels += [np.nextafter(levels[2], -np.inf), np.nextafter(levels[4], np.inf)]
    for level in map(float, levels):
        sets = score.sets(prediction, level)
        assert np.array_equal(sets.to_dense(), every <= level)
    assert np.array_equal(
        score.sizes_at_several(prediction, levels),
        [(every <= level).sum(axis=1) for level in levels],
    )
    for near, far in ((0, 4), (1, 7), (2, 6)):  # two thresholds that reach differently far
        both = [float(levels[near]), float(levels[far])]
        assert np.array_equal(
            score.sizes_at_several(prediction, both),
            [(every <= level).sum(axis=1) for level in both],
        )
    by_row = ranked[
        np.arange(130), rng.choice([0, 5, 30, 699], p=[0.4, 0.3, 0.29, 0.01], size=130)
    ][:, None]
    assert np.array_equal(score.sets(prediction, by_row).to_dense(), every <= by_row)
    assert np.array_equal(score.sizes(prediction, by_row), (every <= by_row).sum(axis=1))


def test_a_row_whose_set_goes_on_below_all_sorted_values_is_not_cut_there():
    """The sampled rows are cut among values of .032; the others go on below their 32 values of
    .025, which fill a block.
    """
    values = np.full((130, 700), 0.2 / 668)
    values[:, :32] = 0.025
    values[:: 130 // 8] = 0.04 / 670
    values[:: 130 // 8, :30] = 0.032
    sizes = (APS().every_label(ClassProbabilities(values)) <= 0.9).sum(axis=1)
    assert set(sizes) == {28, 365}
    assert np.array_equal(APS().sizes(ClassProbabilities(values), 0.9), sizes)
    assert np.array_equal(APS().sets(ClassProbabilities(values), 0.9).sizes(), sizes)


def test_long_rows_are_sorted_as_far_as_their_sets_reach():
    """The case above meets all three ways: a part of each row, a part of most rows, and whole
    rows.
    """
    rng, ones = np.random.default_rng(30), np.ones((130, 1))

    def widths(values: np.ndarray, level: float) -> list[int]:
        return [falling.shape[1] for _, falling, _ in APS()._sorted_parts(values, ones, [level])]

    assert [width < 350 for width in widths(softmax(rng, 130, 700, spread=2.5), 0.9)] == [True]
    assert [width < 350 for width in widths(sure_and_unsure_rows(rng, 130, 700), 0.9)] == [
        True,
        False,
    ]
    assert [width < 350 for width in widths(equal_rows(rng, 130, 700), 0.9)] == [False]


# --------------------------------------------------------------------------------------------------
# ------------------- Memory.
# --------------------------------------------------------------------------------------------------
# -------------------


@every_score
def test_memory_beside_the_result_is_that_of_a_chunk(score):
    """Neither sets, sizes nor observed scores make a second n x K matrix, nor a second T x n x K
    array.
    """
    rng = np.random.default_rng(13)
    values, y = softmax(rng, 3000, 1000, dtype="float32"), rng.integers(1000, size=3000)
    prediction = record(score, values, rng.uniform(size=3000))
    threshold = float(np.quantile(score.observed(prediction, y), 0.05))
    for job in (
        lambda: score.sets(prediction, threshold),
        lambda: score.sizes(prediction, threshold),
        lambda: score.observed(prediction, y),
    ):
        tracemalloc.start()
        job()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10e6 < values.nbytes


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [*sorted(KINDS), "sixteenths", "no distribution"])
def test_many_rows_of_few_labels_get_the_same_sets(kind, dtype):
    """They are screened in 16 bits first; what comes close to a threshold, to a tie or to their
    range is looked at again.
    """
    rng = np.random.default_rng(4)
    scores = (APS(), RAPS(0.05, 1), SAPS(0.1), TopK(), APS(randomised=True))
    for (k, n), score in product(((5, 5000), (9, 5000), (32, 9000)), scores):
        if kind == "no distribution":
            values = rng.uniform(0.0, 7.5 / k, size=(n, k)).clip(0.0, 1.0)
            values[::9, :2] = 1.0, 1.0
        elif kind == "sixteenths":  # and beside them, by less than 16 bits show
            values = (
                rng.multinomial(16, np.full(k, 1 / k), size=n)
                / 16
                * (1 - rng.choice([0.0, 1e-6], size=(n, 1)))
            )
            values[::11] = 0.0
        else:
            values = KINDS[kind](rng, n, k)
        names = {"classes": np.arange(k), "unseen": [k] if k == 9 else None}
        stored = np.asfortranarray(values.astype(dtype))[:: 1 if k == 9 else -1]
        record = ClassProbabilities(stored, **names, uniforms=rng.uniform(size=n))
        every = score.every_label(record)
        middle = float(np.quantile(every, 0.4, method="nearest"))
        for level in (
            middle,
            np.nextafter(middle, -1.0),
            0.9,
            0.5,
            1.0,
            2.0,
            2.0005,
            3.0,
            0.0,
            np.inf,
            -np.inf,
        ):
            assert np.array_equal(score.sets(record, float(level)).to_dense(), every <= level)


@pytest.mark.parametrize("y", [[0, 3], [-1, 0], np.array([0, 2**63], dtype=np.uint64)])
def test_columns_that_are_not_there_are_refused(y):
    with pytest.raises(ValueError, match=r"y holds labels from .* but there are 3 columns"):
        APS().observed(ClassProbabilities(np.full((2, 3), 1 / 3)), y)
