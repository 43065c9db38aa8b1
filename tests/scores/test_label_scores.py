"""Facts about every score of labels, against the plain definition written out below."""

import math
import tracemalloc
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from label_problems import (
    KINDS,
    LAYOUTS,
    OF_PROBABILITIES,
    SCORES,
    lay_out,
    record_for,
    softmax_rows,
    three_passes,
)

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
)

every_score = pytest.mark.parametrize("score", SCORES.values(), ids=SCORES.keys())
of_passes = pytest.mark.parametrize("score", [PosteriorNLL(), AddOneIn()], ids=str)

# --- the plain definition: one row, one label at a time, in rational arithmetic, with an index sort


def plain_score(score: Any, row: np.ndarray, label: int, uniform: float) -> Fraction | float:
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
    n_labels = probabilities.shape[1]
    return np.array(
        [
            [float(plain_score(score, row, label, uniform)) for label in range(n_labels)]
            for row, uniform in zip(probabilities, uniforms, strict=True)
        ]
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities, labels and uniforms of few rows, with 1 to 1000 labels."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 7))
    k = draw(st.sampled_from([1, 2, 3, 5, 15, 16, 17, 33, 64, 100, 1000]))
    kind = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    dtype = draw(st.sampled_from(["float32", "float64"]))
    values = lay_out(kind(rng, n, k).astype(dtype), draw(st.sampled_from(LAYOUTS)))
    uniforms = rng.choice([0.0, 1.0, 0.5, *rng.uniform(size=5)], size=n)
    return values, rng.integers(k, size=n), uniforms


# --- scores


@every_score
@settings(max_examples=60)
@given(problem=problems())
def test_scores_follow_the_plain_definition(score, problem):
    """Against rational arithmetic with an index sort; what is left is rounding."""
    values, _, uniforms = problem
    values = values[:2, :70]
    every = score.every_label(record_for(score, values, uniforms[:2]))
    expected = plain_scores(score, values, uniforms[:2])
    is_finite = np.isfinite(expected)
    assert np.array_equal(np.isfinite(every), is_finite)
    assert np.max(np.abs(every[is_finite] - expected[is_finite]), initial=0.0) < 2e-12


@every_score
@settings(max_examples=60)
@given(problem=problems())
def test_a_label_has_one_score_however_it_is_asked_for(score, problem):
    values, y, uniforms = problem
    prediction = record_for(score, values, uniforms)
    every = score.every_label(prediction)
    observed = score.observed(prediction, y)
    assert every.dtype == observed.dtype == np.float64
    assert every.shape == values.shape
    assert np.array_equal(observed, every[np.arange(len(y)), y])


# --- sets


@every_score
@settings(max_examples=60)
@given(problem=problems(), data=st.data())
def test_a_set_holds_exactly_the_labels_that_score_at_most_the_threshold(score, problem, data):
    """To the last bit, at thresholds that are scores and at the floats beside them."""
    values, y, uniforms = problem
    prediction = record_for(score, values, uniforms)
    every = score.every_label(prediction)
    observed = score.observed(prediction, y)
    score_that_occurs = data.draw(
        st.sampled_from(sorted({*every.ravel().tolist()[:40], *observed}))
    )
    beside = [np.nextafter(score_that_occurs, end) for end in (np.inf, -np.inf)]
    levels = [score_that_occurs, *beside, np.inf, -np.inf, -0.5, 0.0, 0.9, 1.0, 3.5]

    for level in map(float, levels):
        sets = score.sets(prediction, level)
        assert np.array_equal(sets.to_dense(), every <= level)
        assert np.array_equal(sets.contains(y), observed <= level)
        assert np.array_equal(sets.sizes(), score.sizes(prediction, level))
    several = score.sizes_at_several(prediction, levels)
    assert np.array_equal(several, [(every <= level).sum(axis=1) for level in levels])


@every_score
@settings(max_examples=40)
@given(problem=problems())
def test_thresholds_may_differ_by_row_by_label_or_by_both(score, problem):
    values, y, uniforms = problem
    prediction = record_for(score, values, uniforms)
    every = score.every_label(prediction)
    observed = score.observed(prediction, y)
    by_row = np.where(uniforms < 0.5, observed, every.max(axis=1))[:, None]
    by_label = np.median(every, axis=0)[None, :]
    for threshold in (by_row, by_label, every[::-1]):
        sets = score.sets(prediction, threshold)
        assert np.array_equal(sets.to_dense(), every <= threshold)
        assert np.array_equal(score.sizes(prediction, threshold), sets.sizes())
    both = score.sizes_at_several(prediction, [by_row, by_label])
    assert np.array_equal(both[0], (every <= by_row).sum(axis=1))
    assert np.array_equal(both[1], (every <= by_label).sum(axis=1))


@every_score
def test_a_threshold_with_its_statement_counts_as_its_value(score):
    prediction = record_for(score, np.array([[0.5, 0.3, 0.2]]), np.array([0.5]))
    threshold = Threshold(0.6, rank=1, n=1, guarantee="none", alpha=0.1)
    assert np.array_equal(
        score.sets(prediction, threshold).to_dense(), score.every_label(prediction) <= 0.6
    )


EXACT = {
    "RAPS": RAPS(1 / 64, 2),
    "RAPS randomised": RAPS(1 / 64, 2, randomised=True),
    "RAPS strong": RAPS(0.25, 0),
    "SAPS": SAPS(1 / 16),
    "SAPS randomised": SAPS(1 / 16, randomised=True),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OF_PROBABILITIES)
@pytest.mark.parametrize("k", [1, 2, 7, 16, 17, 40, 65])
def test_sets_are_those_of_the_plain_definition_ties_included(name, dtype, k):
    """Probabilities, uniforms and parameters are multiples of 2**-10: scores are floats, nothing
    rounds.
    """
    rng = np.random.default_rng(5)
    score = EXACT.get(name, SCORES[name])
    counts = rng.multinomial(1024, rng.dirichlet(np.full(k, 0.3)), size=12)
    values = (counts / 1024).astype(dtype)
    uniforms = rng.integers(1024, size=12) / 1024
    expected = plain_scores(score, values, uniforms)
    for level in np.unique(expected)[:: max(1, k // 4)]:
        sets = score.sets(record_for(score, values, uniforms), float(level))
        assert np.array_equal(sets.to_dense(), expected <= level)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [3, 16, 17, 700])
def test_many_rows_get_the_same_sets(kind, k, dtype):
    """Rows of several blocks, against the scores of every label."""
    rng = np.random.default_rng(4)
    n = 2 * 2**17 // k + 5
    values = KINDS[kind](rng, n, k).astype(dtype)
    record = ClassProbabilities(values, uniforms=rng.uniform(size=n))
    for score in (APS(), RAPS(0.05, 1, randomised=True), SAPS(0.1), TopK(), LAC()):
        every = score.every_label(record)
        level = float(np.quantile(every, 0.4, method="nearest"))
        for threshold in (level, np.nextafter(level, -1.0), 0.9):
            assert np.array_equal(score.sets(record, threshold).to_dense(), every <= threshold)


@every_score
def test_the_order_and_the_number_of_rows_are_irrelevant(score):
    """A row's scores and set are the same alone, in any order and in blocks of any size."""
    rng = np.random.default_rng(2)
    values, uniforms = softmax_rows(rng, 500, 700, dtype="float32"), rng.uniform(size=500)
    y = rng.integers(700, size=500)
    prediction = record_for(score, values, uniforms)
    observed = score.observed(prediction, y)
    level = float(np.quantile(observed, 0.8))
    members = score.sets(prediction, level).to_dense()

    order = rng.permutation(500)
    shuffled = record_for(score, values[order], uniforms[order])
    assert np.array_equal(score.sets(shuffled, level).to_dense(), members[order])
    assert np.array_equal(score.observed(shuffled, y[order]), observed[order])
    for row in (0, 186, 187, 499):
        alone = record_for(score, values[[row]], uniforms[[row]])
        assert np.array_equal(score.sets(alone, level).to_dense()[0], members[row])


@every_score
def test_no_rows_give_no_sets(score):
    prediction = record_for(score, np.empty((0, 4)), np.empty(0))
    assert len(score.sets(prediction, 0.5)) == 0
    assert score.observed(prediction, np.empty(0, dtype=int)).shape == (0,)
    assert score.every_label(prediction).shape == (0, 4)
    assert score.sizes_at_several(prediction, [0.1, 0.2]).shape == (2, 0)


@every_score
def test_no_thresholds_give_no_sizes(score):
    prediction = record_for(score, np.full((3, 2), 0.5), np.full(3, 0.5))
    assert score.sizes_at_several(prediction, []).shape == (0, 3)


@every_score
def test_memory_beside_the_result_is_that_of_a_block(score):
    """Neither sets, sizes nor observed scores make a second matrix of all rows and labels."""
    rng = np.random.default_rng(13)
    values, y = softmax_rows(rng, 3000, 1000, dtype="float32"), rng.integers(1000, size=3000)
    prediction = record_for(score, values, rng.uniform(size=3000))
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
        assert peak < values.nbytes


# --- labels that the model has never seen


@pytest.fixture
def unseen() -> dict[str, Any]:
    return {"classes": np.array(["a", "b", "c"]), "unseen": np.array(["d", "e"])}


@every_score
def test_labels_never_seen_score_infinity(score, unseen):
    rng = np.random.default_rng(3)
    prediction = record_for(score, softmax_rows(rng, 4, 3), rng.uniform(size=4), **unseen)
    observed = score.observed(prediction, np.array(["d", "a", "e", "c"]))
    assert np.isinf(observed).tolist() == [True, False, True, False]
    assert np.isinf(score.every_label(prediction)).tolist() == [[False] * 3 + [True] * 2] * 4


@every_score
@pytest.mark.parametrize(
    ("threshold", "labels"),
    [
        (1e9, ["abc"] * 4),
        (np.inf, ["abcde"] * 4),
        (np.array([np.inf, 1e9, np.inf, -np.inf]), ["abcde", "abc", "abcde", ""]),
        (np.array([-np.inf, 1e9, -np.inf, np.inf, 1e9]), ["bd"] * 4),
    ],
    ids=["finite", "infinite", "by row", "by label"],
)
def test_labels_never_seen_are_in_a_set_only_at_an_infinite_threshold(
    score, unseen, threshold, labels
):
    rng = np.random.default_rng(3)
    prediction = record_for(score, softmax_rows(rng, 4, 3), rng.uniform(size=4), **unseen)
    assert score.sets(prediction, threshold).to_lists() == [list(row) for row in labels]
    assert score.sizes(prediction, threshold).tolist() == [len(row) for row in labels]


# --- values


@every_score
def test_a_score_is_a_small_value(score):
    """Comparable, hashable and printable."""
    assert isinstance(score, Score)
    assert isinstance(score, LabelScore)
    assert hash(score) == hash(eval(repr(score)))
    assert score == eval(repr(score))


def test_a_score_of_ones_own_needs_one_method():
    class Odds(LabelScore):
        """1 / p - 1."""

        def score_labels(self, record):
            with np.errstate(divide="ignore"):
                return 1 / record.probabilities - 1

    record = ClassProbabilities([[0.5, 0.4, 0.1], [0.8, 0.2, 0.0]])
    np.testing.assert_allclose(Odds().observed(record, [1, 2]), [1.5, np.inf])
    assert Odds().sets(record, 1.5).to_lists() == [[0, 1], [0]]
    assert Odds().sizes_at_several(record, [1.5, np.inf]).tolist() == [[2, 1], [3, 3]]


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


# --- what is refused

CALLS = {
    "observed": lambda score, record: score.observed(
        record, np.full(len(record), record.n_classes - 1)
    ),
    "every_label": lambda score, record: score.every_label(record),
    "sets": lambda score, record: score.sets(record, 1.0),
    "sizes": lambda score, record: score.sizes(record, 1.0),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


@every_call
@pytest.mark.parametrize(
    "score",
    [APS(randomised=True), RAPS(0.1, 1, randomised=True), SAPS(0.1, randomised=True)],
    ids=str,
)
def test_a_randomised_score_asks_for_uniforms(score, call):
    with pytest.raises(ValueError, match="uniforms="):
        call(score, ClassProbabilities([[0.5, 0.5]]))


@every_call
@pytest.mark.parametrize("score", [APS(), RAPS(0.1, 1)], ids=str)
def test_rows_that_are_no_distribution_are_refused_where_masses_are_added(score, call):
    """Beyond a sum of 8 additions could round, and the mass of a distribution is 1."""
    with pytest.raises(ValueError, match="Divide each row by its sum"):
        call(score, ClassProbabilities(np.ones((2, 9))))


@every_call
@pytest.mark.parametrize("score", [SAPS(0.1), TopK(), LAC(), Margin()], ids=str)
def test_rows_that_are_no_distribution_serve_where_no_masses_are_added(score, call):
    call(score, ClassProbabilities(np.ones((2, 9))))


@every_score
def test_a_prediction_of_another_kind_is_refused(score):
    with pytest.raises(IncompatibleScoreError, match="Points"):
        score.observed(Points([1.0]), [0])


@pytest.mark.parametrize("y", [[0, 3], [-1, 0], np.array([0, 2**63], dtype=np.uint64)])
def test_columns_that_are_not_there_are_refused(y):
    with pytest.raises(ValueError, match=r"y holds labels from .* but there are 3 columns"):
        APS().observed(ClassProbabilities(np.full((2, 3), 1 / 3)), y)


# --- passes and draws


@pytest.mark.parametrize("score", [LAC(), APS(randomised=True), TopK(), Margin()], ids=str)
def test_class_draws_are_read_through_their_mean(score):
    rng = np.random.default_rng(6)
    passes = np.stack([softmax_rows(rng, 9, 4) for _ in range(5)])
    draws = ClassDraws(passes, uniforms=rng.uniform(size=9))
    assert np.array_equal(score.every_label(draws), score.every_label(draws.mean()))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_posterior_nll_gives_the_sets_of_lac_on_the_mean(dtype, alpha):
    """-log is a monotone map of 1 - p: calibrated on the same rows, the sets are the same."""
    rng = np.random.default_rng(9)
    passes = np.stack([softmax_rows(rng, 300, 12, dtype=dtype) for _ in range(8)])
    draws = ClassDraws(passes)
    mean = ClassProbabilities(passes.astype(np.float64).mean(axis=0))
    y = rng.integers(12, size=300)
    of_draws = split_conformal(PosteriorNLL().observed(draws, y), alpha=alpha)
    of_mean = split_conformal(LAC().observed(mean, y), alpha=alpha)
    assert np.array_equal(
        PosteriorNLL().sets(draws, of_draws).to_dense(), LAC().sets(mean, of_mean).to_dense()
    )


@of_passes
def test_a_label_that_is_all_but_ruled_out_keeps_a_finite_score(score):
    """The square of 1e-250 is below the smallest float; the score must not fall over it."""
    draws = ClassDraws(np.array([[[1.0, 1e-250]], [[1.0, 1e-250]]]))
    assert score.every_label(draws)[0, 1] == pytest.approx(250 * math.log(10), rel=1e-14)


@of_passes
@pytest.mark.parametrize(
    "lay_out_passes",
    [
        np.asfortranarray,
        lambda passes: np.ascontiguousarray(passes.transpose(1, 2, 0)).transpose(2, 0, 1),
    ],
    ids=["columns", "passes last"],
)
def test_scores_of_passes_do_not_depend_on_the_layout_in_memory(score, lay_out_passes):
    rng = np.random.default_rng(12)
    passes = np.stack([softmax_rows(rng, 6, 33, dtype="float32") for _ in range(200)])
    y = rng.integers(33, size=6)
    expected = score.every_label(ClassDraws(passes))
    draws = ClassDraws(lay_out_passes(passes))
    assert np.array_equal(score.every_label(draws), expected)
    assert np.array_equal(score.observed(draws, y), expected[np.arange(6), y])


# --- what makes sets exact and fast


def test_masses_are_exact_in_any_order():
    """Probabilities rounded to multiples of 2**-50 add up to their rational sum in any order."""
    rng = np.random.default_rng(8)
    values = softmax_rows(rng, 1, 3000, spread=6.0)
    rounded = (values[0] + 4.0) - 4.0
    least_probable = int(np.argmin(values))
    exact = float(sum(map(Fraction, rounded.tolist()), Fraction(0)))
    for _ in range(20):
        order = rng.permutation(3000)
        place = int(np.flatnonzero(order == least_probable)[0])
        assert APS().observed(ClassProbabilities(values[:, order]), [place]) == exact


@settings(max_examples=300)
@given(
    threshold=st.floats(-1.5, 1.5) | st.floats(allow_nan=False),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_lac_decides_at_the_smallest_probability_as_subtraction_does(threshold, dtype):
    """One comparison replaces 1 - p <= threshold, also for the floats next to 1 - threshold."""
    nearest = np.array(np.clip(1.0 - threshold, 0.0, 1.0), dtype=dtype)
    up = [nearest]
    down = [nearest]
    for _ in range(3):
        up.append(np.nextafter(up[-1], np.array(1, dtype)))
        down.append(np.nextafter(down[-1], np.array(0, dtype)))
    values = np.array([*up, *down, 0.0, np.finfo(dtype).tiny, 2.0**-54, 2.0**-53], dtype=dtype)
    sets = LAC().sets(ClassProbabilities(values[None, :]), threshold)
    assert np.array_equal(sets.to_dense()[0], 1.0 - values.astype(np.float64) <= threshold)
