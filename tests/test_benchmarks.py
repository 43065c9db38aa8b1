"""The benchmarks run at tiny sizes, compare like with like, and agree with other libraries where
definitions do.

No test here looks at a time.
"""

import importlib
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import trapezoid

from dco import ClassProbabilities
from dco.datasets import ImageFeatures
from dco.predictions import GaussianMixtures
from dco.scores import APS, LAC, RAPS, SAPS, PredictiveDensity

ROOT = Path(__file__).parents[1]


def benchmark(name: str):
    """A script of benchmarks/ as a module."""
    folder = str(ROOT / "benchmarks")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def cells(markdown: str) -> list[list[str]]:
    """The rows of the Markdown tables in a text, heads and rules left out."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    body = [
        line
        for number, line in enumerate(lines)
        if not (re.match(r"\|---", line) or is_head(lines, number))
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body]


def is_head(lines: list[str], number: int) -> bool:
    return number + 1 < len(lines) and lines[number + 1].startswith("|---")


def rows_without_rounding(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Distinct probabilities that are multiples of 1/64, so that sums and differences are exact in
    single precision.
    """
    bases = np.array([[29, 15, 9, 5, 3, 2, 1, 0], [14, 13, 11, 9, 7, 5, 3, 2]])
    chosen = rng.permuted(bases[rng.choice(2, size=n)], axis=1)
    assert np.all(chosen.sum(axis=1) == 64)
    labels = np.array([rng.choice(8, p=row / 64) for row in chosen])
    return (chosen / 64).astype(np.float32), labels


SCORES = {
    "LAC": LAC(),
    "APS": APS(),
    "RAPS": RAPS(penalty=1 / 64, rank_free=2),
    "SAPS": SAPS(weight=1 / 64),
}
# not TorchCP's SAPS: without randomisation it scores a top-ranked true label 0 in calibration and
# p_max in prediction
AGREEING = [
    ("mapie", "LAC"),
    ("crepes", "LAC"),
    ("torchcp", "LAC"),
    ("torchcp", "APS"),
    ("torchcp", "RAPS"),
]


@pytest.mark.parametrize(("library", "score"), AGREEING)
@pytest.mark.filterwarnings("default")  # what other libraries warn about is theirs
def test_another_library_makes_the_same_sets(library, score, monkeypatch):
    pytest.importorskip(library)
    peers = benchmark("peers")
    monkeypatch.setattr(peers, "PENALTY", 1 / 64)
    monkeypatch.setattr(peers, "RANK_FREE", 2)
    monkeypatch.setattr(peers, "WEIGHT", 1 / 64)
    rng = np.random.default_rng(0)
    (cal, y_cal), (test, _) = rows_without_rounding(rng, 199), rows_without_rounding(rng, 300)
    theirs = getattr(peers, library)(score, cal, y_cal, test)()
    label_sets = benchmark("label_sets")
    ours = label_sets.our_sets(SCORES[score], label_sets.Problem(cal, y_cal, test)).to_dense()
    assert 0 < ours.sum() < ours.size
    assert np.array_equal(ours, theirs)
    assert theirs.dtype.kind == {"mapie": "b"}.get(library, "i"), (
        "in the library's own form: no conversion is charged to it"
    )


@pytest.mark.filterwarnings("default")  # peers, where they are installed
def test_label_sets_are_compared_for_few_and_for_many_classes():
    label_sets = benchmark("label_sets")
    text = label_sets.ratios_by_classes(
        (3, 30), numbers=3000, fewest_rows=300, dtype="float32", repeats=1
    )
    assert [(row[0], row[1], row[2]) for row in cells(text)] == [
        (classes, rows, score)
        for classes, rows in (("3", "1,000"), ("30", "300"))
        for score in SCORES
    ]


@pytest.mark.filterwarnings("default")
def test_label_sets_print_a_row_for_each_of_our_scores():
    label_sets = benchmark("label_sets")
    problem = label_sets.Problem.draw(150, 10, spread=2.0, dtype="float32")
    text, missing = label_sets.compare_sets(problem, repeats=1, puncc=None)
    ours = [row[0] for row in cells(text) if row[0].endswith("ours")]
    assert ours == [f"{name}, ours" for name in SCORES]
    assert any("puncc" in library for library in missing)
    parts = cells(label_sets.ratios_of_parts(problem, repeats=1))
    assert [row[0] for row in parts] == list(label_sets.OURS)


def test_flatter_probabilities_make_larger_sets():
    flat = cells(
        benchmark("label_sets").ratios_by_spread(
            150, 10, spreads=(1.0, 0.1), dtype="float32", repeats=1
        )
    )
    assert [row[0] for row in flat] == [
        f"{name}, spread {spread}" for spread in ("1", "0.1") for name in SCORES
    ]
    for first, second in zip(flat[:4], flat[4:], strict=True):
        assert float(first[-1]) < float(second[-1])


def test_tuning_runs_on_64_candidates():
    tuning_search = benchmark("tuning_search")
    assert len(set(tuning_search.candidate_scores())) == 64
    assert all(float(row[1]) > 0 for row in cells(tuning_search.measure(40, 12, 1)))


def test_draws_find_the_rank_of_the_closed_form_up_to_noise():
    """1,000 draws estimate a probability to about 0.007; ranks near the closed form's are what they
    can tell.
    """
    rows = cells(benchmark("quadrature").measure(200, 1000, 3))
    closed, sampled = rows[-1][1].split(";")
    assert all(abs(int(each) - int(closed)) <= 2 for each in sampled.split(","))


@pytest.mark.filterwarnings("default")  # peers, where they are installed
def test_the_way_from_a_table_to_sets_runs_and_leaves_the_models_their_time(monkeypatch):
    end_to_end = benchmark("end_to_end")
    monkeypatch.setattr(end_to_end, "SMALL", 300)
    beside = cells(end_to_end.beside_mapie(900, 1))
    assert [row[0] for row in beside[:3]] == [
        "Ridge, 300 rows",
        "Ridge, 900 rows",
        "LogisticRegression, 900 rows",
    ]
    assert all(float(row[1]) > 0 and float(row[3]) > float(row[1]) for row in beside[:3]), (
        "a fit holds the model's own"
    )
    shares = [float(row[2].rstrip("%")) for row in cells(end_to_end.shares(900, 300))]
    assert len(shares) == 5
    assert all(0 < share < 100 for share in shares)


def test_peak_memory_of_a_fit_counts_the_table_and_the_copies_that_a_model_makes():
    end_to_end = benchmark("end_to_end")
    assert [float(row[2]) > 1 for row in cells(end_to_end.memory(2000))] == [True] * 5
    X, y = end_to_end.rows_of(20_000)
    plain = end_to_end.peak(X, y)

    class Copying(end_to_end.Nothing):
        def fit(self, X, y):
            self.kept_ = [X.copy() for _ in range(4)]
            return super().fit(X, y)

    planted = end_to_end.peak(X, y, model=Copying())
    assert X.nbytes < plain < 2 * X.nbytes
    assert planted > plain + 2 * X.nbytes


def test_growth_runs_and_its_memory_follows_the_batch():
    growth = benchmark("growth")
    assert len(cells(growth.measure(1_600, 12, 10, 1))) == 4
    made = {rows: [growth.softmax_rows(rows, 50, spread=2.0, seed=1)[0]] for rows in (500, 2000)}
    few, longer, wider = (
        growth.peak(LAC(), 0.9, made[b], rows)
        for b, rows in ((500, 4_000), (500, 40_000), (2000, 40_000))
    )
    assert longer < 1.2 * few, "ten times the rows need no more"
    assert wider > 2 * longer, "four times the rows a batch need more"


def test_densities_run(capsys):
    densities = benchmark("densities")
    densities.residuals(500, repeats=1)
    densities.densities(30, 40, sample=10, repeats=1)
    rows = cells(capsys.readouterr().out)
    assert len([row for row in rows if "Residual" in row[0]]) == 5
    error = next(row for row in rows if "error of our ends" in row[0])
    assert float(error[1]) < 1e-6


def test_the_plain_diabetes_way_has_our_scores_and_widths():
    """One made-up posterior through both: the same -log density, and grid widths within two steps
    of the grid.
    """
    diabetes_table = benchmark("diabetes_table")
    rng = np.random.default_rng(5)
    fit = {
        "slopes": rng.normal(size=(60, 3)),
        "intercept": rng.normal(size=60),
        "sd": rng.uniform(0.8, 1.2, size=60),
    }
    X, y = rng.normal(size=(7, 3)) / 3, rng.normal(size=7)
    mixtures = GaussianMixtures(
        X @ fit["slopes"].T + fit["intercept"], fit["sd"], draws_first=False
    )
    score = PredictiveDensity()
    assert diabetes_table.plain_scores(fit, X, y) == pytest.approx(
        score.observed(mixtures, y), rel=1e-9
    )
    grid = diabetes_table.plain_grid(fit, X, -12.0, 12.0)
    step = 24 / (diabetes_table.POINTS - 1)
    assert trapezoid(np.exp(-grid), dx=step, axis=1) == pytest.approx(np.ones(7), abs=1e-4)
    widths = (grid <= 2.5).sum(axis=1) * step
    assert np.abs(widths - score.sets(mixtures, 2.5).sizes()).max() < 2 * step


@pytest.mark.filterwarnings("ignore:.*effective draws")  # of so few steps
def test_the_bayesian_engines_print_the_rows_of_their_page(capsys):
    for package in ("numpyro", "optax"):
        pytest.importorskip(package)
    engines = benchmark("bayesian_engines")
    rng = np.random.default_rng(6)
    labels = rng.integers(4, size=240)
    engines.regression(splits=1, plain_fits=1, draws=20, warmup=20)
    engines.classification(
        ImageFeatures(rng.normal(size=(240, 6)) + labels[:, None], labels), size=80
    )
    page = (
        (ROOT / "docs" / "bayesian-engines.md")
        .read_text()
        .split("## What it costs")[1]
        .split("## On a GPU")[0]
    )

    def without_numbers(text: str) -> list[str]:
        return [re.sub(r"\d[\d.,]*", "#", row[0]) for row in cells(text)]

    assert without_numbers(capsys.readouterr().out) == without_numbers(page)


@pytest.mark.filterwarnings("default")
def test_heads_of_a_gpu_print_times_and_what_they_learnt(monkeypatch):
    """Where JAX has a CPU only, both ways are the CPU's, and the heads are equal."""
    bench = benchmark("device_heads")
    monkeypatch.setattr(bench, "HEADS", ((0.1, (8,)), (0.2, (8,))))
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=120)
    data = ImageFeatures((rng.normal(size=(120, 4)) + 3 * y[:, None]).astype(np.float32), y)
    text = bench.measured(data, splits=2, size=60, on_host=1, repeats=1)
    assert [row[0] for row in cells(text)] == ["2 splits in one call", "one split"]
    assert "is +0.0000 on average, ± 0.0000" in text


def test_cutoffs_of_overlapping_groups_are_those_of_mapie():
    pytest.importorskip("mapie.conditional_conformal_prediction")
    pytest.importorskip("cvxpy")
    rows = cells(benchmark("overlapping_groups").measure(150, 8, 1))
    assert [row[5] for row in rows[:2]] == ["100.0%", "100.0%"]


def test_a_candidate_of_the_cluster_benchmark_is_a_mean_size():
    cluster = benchmark("cluster")
    size = cluster.candidate(0, rows=60, classes=10)
    assert 1 <= size <= 10
    assert size == cluster.candidate(0, rows=60, classes=10)


def test_results_are_kept_by_section(tmp_path, monkeypatch):
    run_all = benchmark("run_all")
    output = tmp_path / "RESULTS.md"
    monkeypatch.setattr(
        run_all,
        "section",
        lambda name, options: f"## {run_all.TITLES[name]}\n\n{name} {len(options)}\n",
    )
    monkeypatch.setattr(sys, "argv", ["run_all.py", "--output", str(output)])
    run_all.main()
    monkeypatch.setattr(
        sys, "argv", ["run_all.py", "--only", "growth", "--quick", "--output", str(output)]
    )
    run_all.main()
    titles = re.findall(r"(?m)^## (.*)$", output.read_text())
    assert titles == [
        title for name, title in run_all.TITLES.items() if name not in run_all.ON_REQUEST
    ]
    assert "growth 8" in output.read_text()
    assert "cluster 0" in output.read_text()


def test_the_page_of_results_begins_with_the_versions_that_are_pinned(monkeypatch, tmp_path):
    run_all = benchmark("run_all")
    assert (ROOT / "benchmarks" / "RESULTS.md").read_text().startswith(run_all.HEAD)
    assert (
        f"mapie=={run_all.pinned('MAPIE')}\n"
        in (ROOT / "benchmarks" / "requirements.txt").read_text()
    )
    (tmp_path / "puncc.txt").write_text("puncc\n")
    monkeypatch.setattr(run_all, "HERE", tmp_path)
    with pytest.raises(ValueError, match=r"puncc.txt does not pin puncc"):
        run_all.pinned("puncc")


def test_verdicts_say_when_a_target_is_missed():
    harness = benchmark("harness")
    assert harness.verdict(2.0, at_most=1.0).endswith("MISSED")
    assert harness.verdict(2.0, at_least=1.0).endswith(": met")
    assert math.isfinite(harness.least(lambda: ClassProbabilities([[1.0]]), 2))


@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="needs Linux's account of each thread"
)
def test_threads_that_want_a_core_are_counted(tmp_path, monkeypatch):
    """Two threads that compute, in a stand-in for the command, are two; one that sleeps is none."""
    commands = benchmark("commands")
    monkeypatch.setattr(commands, "LOADED", 0.05)
    work = (
        "from hashlib import blake2b\ndef work():\n    for _ in range(300): blake2b(bytes(10**7))\n"
    )
    script = (
        f"{work}import threading, time\nthreads = [threading.Thread(target=work) for _ in "
        f"range(2)]\n"
    )
    script += (
        "[each.start() for each in [*threads, threading.Thread(target=time.sleep, args=(1,))]]\n"
    )
    package = tmp_path / "dco"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(script)
    seconds, most, fitting = commands.run(
        [], tmp_path, dict(commands.PLAIN, PYTHONPATH=str(tmp_path))
    )
    assert seconds > 0.5
    assert 1.6 < most < 2.4
    assert 1.6 < fitting < 2.4
