"""dco plan: the library's numbers, a drawing, and a `dco fit` that can be pasted."""

import pytest

import dco as library
from dco.calibration import GUARANTEES

FACTORS = (0.25, 0.5, 1, 2, 4)


@pytest.mark.parametrize(
    ("rows", "alpha", "spread"), [(2000, 0.1, None), (20_000, 0.01, None), (20_000, 0.01, 0.02)]
)
def test_it_prints_the_librarys_numbers(dco, rows, alpha, spread):
    more = () if spread is None else ("--spread", spread)
    told = dco.json("plan", "--rows", rows, "--alpha", alpha, *more)
    plan = library.plan(rows, alpha=alpha, spread=spread)
    assert told["now"]["calibrate"] == plan.calibrate
    assert told["smallest_useful_n"] == plan.smallest_useful_n
    assert told["spread"] == plan.spread
    splits = told["planned_splits"]
    assert [planned["n"] for planned in splits] == [rows * factor for factor in FACTORS]


def test_reasons_are_printed_whole(dco):
    printed = " ".join(dco("plan", "--rows", 20_000, "--alpha", 0.01).output.split())
    for row in library.plan(20_000, alpha=0.01).rows:
        assert row.reason in printed


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--alpha", "0.2", "--test", 40),
        ("--guarantee", "pac", "--delta", "0.1"),
        ("--tune-folds", 3),
        ("--candidates", 1),
    ],
    ids=["usual", "test rows", "pac", "folds", "one candidate"],
)
def test_it_ends_with_the_fit_that_deals_the_rows_so(dco, home, tmp_path, more):
    told = dco.json("plan", "--rows", 320, *more)
    assert told["fit"] in dco("plan", "--rows", 320, *more).output.strip().splitlines()[-1]
    words = told["fit"].replace("DATA.csv", str(home / "rows.csv")).replace("COLUMN", "outcome")
    words = words.replace("MODEL", "linear").replace("SCORE", "absolute").split()
    fitted = dco.json(*words[1:], "--models", "linear", "--out", tmp_path / "m.dco")
    certificate = fitted["certificate"]
    planned = {role: told["now"][role] for role in ("train", "tune", "calibrate")}
    dealt = {role: n for role, n in certificate["provenance"]["rows"].items() if n}
    assert dealt == {role: n for role, n in planned.items() if n}
    assert certificate["calibration"]["alpha"] == told["alpha"]
    assert certificate["calibration"]["delta"] == told["delta"]
    n_test = 0 if fitted["evaluation"] is None else fitted["evaluation"]["n"]
    assert n_test == told["now"]["test"]


@pytest.mark.parametrize(("name", "start"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml")])
def test_it_draws(dco, tmp_path, name, start):
    dco("plan", "--rows", 500, "--plot", tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert "--force" in dco.refuses("plan", "--rows", 500, "--plot", tmp_path / name)
    dco("plan", "--rows", 500, "--plot", tmp_path / name, "--force")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--rows", 500, "--plot", "p.gif"), ".png or .svg"),
        (("--rows", 5, "--alpha", "0.01"), "too few"),
        (("--rows", 500, "--delta", "0.1"), "--delta belongs to --guarantee pac"),
        (("--rows", 500, "--confidence", "0.9", "--confidence", "0.9"), "--confidence is given 2"),
    ],
    ids=["format", "few rows", "delta alone", "twice"],
)
def test_it_refuses_what_it_cannot_do(dco, words, problem):
    assert problem in dco.refuses("plan", *words)


def test_every_registered_guarantee_is_offered(dco, monkeypatch):
    monkeypatch.setitem(GUARANTEES, "toy", GUARANTEES["pac"])
    assert "[marginal|pac|toy]" in dco("evaluate", "--help").output
    told = dco.refuses("plan", "--rows", 500, "--guarantee", "other")
    assert "'other' is not one of 'marginal', 'pac', 'toy'" in told
