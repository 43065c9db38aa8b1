"""Results in a notebook: IPython's protocol, without IPython. Counts in messages."""

import re
from contextlib import contextmanager
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import dco
from dco.foundations.display import ShownAsPrinted, are, counted, first_few, have, number
from dco.tuning.strategies import SearchResult, Trial


class Printer:
    """What IPython hands to `_repr_pretty_`, as far as it is used: text, forced line breaks,
    groups.
    """

    def __init__(self) -> None:
        self.written, self.texts = "", list[str]()

    def text(self, text: str) -> None:
        self.written += text
        self.texts.append(text)

    def break_(self) -> None:
        self.written += "\n"

    @contextmanager
    def group(self, indent: int = 0, open: str = "", close: str = ""):  # IPython's names
        self.written += open
        yield
        self.written += close


def shown(result: ShownAsPrinted) -> str:
    """As IPython does it: the first class of the order of inheritance that writes itself, by either
    method, is asked.
    """
    for kind in type(result).__mro__:
        if "_repr_pretty_" in vars(kind):
            printer = Printer()
            vars(kind)["_repr_pretty_"](result, printer, False)
            return printer.written
        if "__repr__" in vars(kind):
            return repr(result)
    raise AssertionError


@pytest.fixture(scope="module")
def results() -> dict[str, ShownAsPrinted]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), rng.integers(3, size=400)
    estimator = dco.DecoupledClassifier(LogisticRegression(), alpha=0.2, random_state=0).fit(
        X[:300], y[:300]
    )
    return {
        "certificate": estimator.certificate_,
        "verification": estimator.certificate_.verify(),
        "evaluation": estimator.evaluate(X[300:], y[300:]),
        "ranking": estimator.ranking_,
        "plan": dco.plan(1000, alpha=0.1),
        "settings": dco.risk.learn_then_test(np.zeros((100, 30)), range(30), alpha=0.1, delta=0.1),
    }


def text_of(html: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())


@pytest.mark.parametrize(
    "name", ["certificate", "verification", "evaluation", "ranking", "plan", "settings"]
)
def test_a_notebook_shows_what_print_shows(results, name):
    """As text, whatever `repr` says; and as a well-formed page that has every number of the printed
    text.
    """
    result = results[name]
    assert shown(result) == str(result) != repr(result)
    assert repr(result).startswith(type(result).__name__ + "(")
    html = result._repr_html_()
    ElementTree.fromstring(f"<div>{html}</div>")
    missing = set(re.findall(r"\d+\.?\d*", str(result))) - set(
        re.findall(r"\d+\.?\d*", text_of(html))
    )
    assert missing <= (
        {f"{row.ranking_threshold:.4g}" for row in result.table} if name == "ranking" else set()
    )
    assert name != "evaluation" or text_of(html).startswith("verdict held")


def test_sets_and_groups_are_tables_and_their_labels_text():
    sets = dco.LabelSets(np.eye(12, dtype=bool), classes=np.array(["<b>x"] + list("bcdefghijkl")))
    html = sets._repr_html_()
    ElementTree.fromstring(f"<div>{html}</div>")
    assert "LabelSets: 12 rows, mean size 1, the first 10 here" in html
    assert ("<b>x" not in html, "{&lt;b&gt;x}" in html, html.count("<tr>")) == (True, True, 11)
    found = dco.evaluate(sets, sets.classes, by=["a", "<i>"] * 6)
    assert "<td>&lt;i&gt;</td><td>6</td><td>1.0000</td>" in found._repr_html_()
    broken = dco.LabelSets(np.eye(2, dtype=bool), classes=["c\nd", "e"])
    # a line break in the name of a class
    assert "c\nd (1 row)" in dco.evaluate(broken, broken.classes)._repr_html_()
    assert "[12346, 1.235e+07]" in dco.Intervals([12345.6], [12345678.0])._repr_html_()
    assert (
        "or"
        in dco.IntervalUnions(
            np.array([0, 2]), np.array([0.0, 2.0]), np.array([1.0, 3.0])
        )._repr_html_()
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (49790.0, "49790"),
        (1234567.8, "1234568"),
        (9999.6, "10000"),
        (12.3456, "12.35"),
        (1e9, "1e+09"),
        (np.inf, "inf"),
    ],
)
def test_numbers_have_an_exponent_only_where_people_write_one(value, text):
    assert number(value) == text


def test_no_line_break_is_hidden_in_a_text():
    """IPython indents what stands in a list only at breaks it is told of."""
    printer = Printer()
    dco.plan(1000, alpha=0.1)._repr_pretty_(printer, cycle=False)
    assert len(printer.texts) > 5
    assert not any("\n" in text for text in printer.texts)


def test_one_is_singular_and_every_other_number_is_not():
    assert [f"{counted(n, 'row')} {are(n)}" for n in (0, 1, 2)] == [
        "0 rows are",
        "1 row is",
        "2 rows are",
    ]
    assert [have(n) for n in (0, 1, 2)] == ["have", "has", "have"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: dco.assign_roles(1, calibrate=0.1),
            "^1 row is too few: the size 0.1 leaves the role calibrate",
        ),
        (lambda: dco.assign_roles(1, groups=[0], calibrate=0.1), "^1 group is too few"),
        (lambda: dco.assign_roles(2, groups=[0]), "groups has 1 label for 2 rows"),
        (lambda: dco.Splits([0], [0], [1], []), "^1 row has two roles"),
        (lambda: dco.plan(1, alpha=0.1), "^1 row is too few"),
        (lambda: dco.plan(5, alpha=0.1, test=1), "^5 rows less 1 test row are too few"),
        (
            lambda: dco.tune({"a": (dco.scores.LAC(), dco.Points([0.0]))}, [0], alpha=0.5),
            "^the only candidate failed",
        ),
        (
            lambda: SearchResult((Trial(0, None, None, None, reason="why"),)).best,
            "^the only trial failed .* trial 0: why",
        ),
    ],
)
def test_messages_speak_of_one_row_in_the_singular(make, words):
    with pytest.raises((ValueError, dco.foundations.errors.IncompatibleScoreError), match=words):
        make()


def test_printed_sets_and_warnings_do_too():
    assert repr(dco.LabelSets([[True]])) == "LabelSets(1 row of 1 label, mean size 1, 0 empty: {0})"
    with pytest.raises(IndexError, match="there is 1 row"):
        dco.Intervals([0.0], [1.0])[1]
    with pytest.warns(
        dco.InfeasibleLevelWarning,
        match="^1 calibration group is too few .* At least 2 groups are needed",
    ):
        dco.grouped_conformal([0.0, 1.0], [3, 3], alpha=0.4)
    with pytest.warns(
        dco.InfeasibleLevelWarning, match="^none of 1 threshold passed with 1 calibration row:"
    ):
        dco.risk.conformal_risk_control([[1.0]], [0.0], alpha=0.1)


def test_a_long_list_is_cut_and_counted() -> None:
    assert first_few(list("abcde")) == "a, b, c, d, e"
    assert first_few(list("abcdefg")) == "a, b, c, d, e and 2 more"
    assert first_few([]) == ""
