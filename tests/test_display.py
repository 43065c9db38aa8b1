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
from dco.search import SearchResult, Trial


class Printer:
    """What IPython hands to `_repr_pretty_`, as far as it is used: text, forced line breaks,
    groups.
    """

    def __init__(self) -> None:
        self.written = ""
        self.texts: list[str] = []

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


def text_in_ipython(result: ShownAsPrinted) -> str:
    """Show a result as a terminal of IPython does.

    The first class in the order of inheritance that writes itself, by either method, is asked.
    """
    for kind in type(result).__mro__:
        if "_repr_pretty_" in vars(kind):
            printer = Printer()
            result._repr_pretty_(printer, cycle=False)
            return printer.written
        if "__repr__" in vars(kind):
            return repr(result)
    raise AssertionError


def html_in_notebook(result: ShownAsPrinted) -> str:
    """Show a result as a notebook does, which takes no HTML that is not well formed."""
    html = result._repr_html_()
    ElementTree.fromstring(f"<div>{html}</div>")
    return html


def text_of(html: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())


def numbers_in(text: str) -> set[str]:
    return set(re.findall(r"\d+\.?\d*", text))


NAMES = ["certificate", "verification", "evaluation", "ranking", "plan", "settings"]


@pytest.fixture(scope="module")
def results() -> dict[str, ShownAsPrinted]:
    """A result of each kind that a notebook shows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = rng.integers(3, size=400)
    estimator = dco.DecoupledClassifier(LogisticRegression(), alpha=0.2, random_state=0)
    estimator.fit(X[:300], y[:300])
    return {
        "certificate": estimator.certificate_,
        "verification": estimator.certificate_.verify(),
        "evaluation": estimator.evaluate(X[300:], y[300:]),
        "ranking": estimator.ranking_,
        "plan": dco.plan(1000, alpha=0.1),
        "settings": dco.risk.learn_then_test(np.zeros((100, 30)), range(30), alpha=0.1, delta=0.1),
    }


@pytest.fixture(params=NAMES)
def result(request, results) -> ShownAsPrinted:
    return results[request.param]


# ------------------------------------------------------------------------------------ in a notebook


def test_a_terminal_of_ipython_shows_what_print_shows(result):
    assert text_in_ipython(result) == str(result)


def test_the_repr_of_a_result_is_that_of_its_class(result):
    assert repr(result).startswith(type(result).__name__ + "(")
    assert repr(result) != str(result)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ranking"])
def test_a_notebook_shows_every_number_that_print_shows(results, name):
    shown = text_of(html_in_notebook(results[name]))
    assert numbers_in(str(results[name])) <= numbers_in(shown)


def test_a_notebook_shows_a_ranking_without_its_thresholds(results):
    ranking = results["ranking"]
    thresholds = {f"{row.ranking_threshold:.4g}" for row in ranking.table}
    shown = text_of(html_in_notebook(ranking))
    assert numbers_in(str(ranking)) - numbers_in(shown) <= thresholds


def test_a_notebook_shows_the_verdict_of_an_evaluation_first(results):
    assert text_of(html_in_notebook(results["evaluation"])).startswith("verdict held")


def test_no_line_break_is_hidden_in_a_text():
    """IPython indents what stands in a list only at breaks that it is told of."""
    printer = Printer()
    dco.plan(1000, alpha=0.1)._repr_pretty_(printer, cycle=False)
    assert len(printer.texts) > 5
    assert not any("\n" in text for text in printer.texts)


@pytest.fixture(scope="module")
def label_sets() -> dco.LabelSets:
    """Twelve sets of one label; the first label is written like HTML."""
    labels = ["<b>x", *"bcdefghijkl"]
    return dco.LabelSets(np.eye(12, dtype=bool), classes=np.array(labels))


def test_a_notebook_shows_the_first_ten_sets(label_sets):
    html = html_in_notebook(label_sets)
    assert "LabelSets: 12 rows, mean size 1, the first 10 here" in html
    assert html.count("<tr>") == 1 + 10


def test_labels_of_sets_are_text_and_no_html(label_sets):
    html = html_in_notebook(label_sets)
    assert "{&lt;b&gt;x}" in html
    assert "<b>x" not in html


def test_names_of_groups_are_text_and_no_html(label_sets):
    evaluation = dco.evaluate(label_sets, label_sets.classes, by=["a", "<i>"] * 6)
    assert "<td>&lt;i&gt;</td><td>6</td><td>1.0000</td>" in html_in_notebook(evaluation)


def test_the_name_of_a_class_may_have_a_line_break():
    sets = dco.LabelSets(np.eye(2, dtype=bool), classes=["c\nd", "e"])
    evaluation = dco.evaluate(sets, sets.classes)
    assert "c\nd (1 row)" in html_in_notebook(evaluation)


def test_a_notebook_shows_intervals_as_people_write_numbers():
    sets = dco.Intervals([12345.6], [12345678.0])
    assert "[12346, 1.235e+07]" in html_in_notebook(sets)


def test_a_notebook_shows_the_pieces_of_a_union():
    union = dco.IntervalUnions(
        row_pointers=np.array([0, 2]), lower=np.array([0.0, 2.0]), upper=np.array([1.0, 3.0])
    )
    assert "[0, 1] or [2, 3]" in html_in_notebook(union)


# ------------------------------------------------------------------------------- counts and numbers


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


@pytest.mark.parametrize(
    ("n", "words", "verb"),
    [(0, "0 rows are", "have"), (1, "1 row is", "has"), (2, "2 rows are", "have")],
)
def test_one_is_singular_and_every_other_number_is_not(n, words, verb):
    assert f"{counted(n, 'row')} {are(n)}" == words
    assert have(n) == verb


@pytest.mark.parametrize(
    ("texts", "expected"),
    [("abcde", "a, b, c, d, e"), ("abcdefg", "a, b, c, d, e and 2 more"), ("", "")],
    ids=["five", "seven", "none"],
)
def test_a_long_list_is_cut_and_counted(texts, expected):
    assert first_few(list(texts)) == expected


# ------------------------------------------------------------------------------ singular and plural


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dco.assign_roles(1, calibrate=0.1), "^1 row is too few: the size 0.1 leaves"),
        (lambda: dco.assign_roles(1, groups=[0], calibrate=0.1), "^1 group is too few"),
        (lambda: dco.assign_roles(2, groups=[0]), "groups has 1 label for 2 rows"),
        (lambda: dco.Splits([0], [0], [1], []), "^1 row has two roles"),
        (lambda: dco.plan(1, alpha=0.1), "^1 row is too few"),
        (lambda: dco.plan(5, alpha=0.1, test=1), "^5 rows less 1 test row are too few"),
    ],
    ids=["roles", "groups", "labels", "splits", "plan", "test row"],
)
def test_messages_speak_of_one_row_in_the_singular(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_message_speaks_of_the_only_candidate():
    predictions = {"a": (dco.scores.LAC(), dco.Points([0.0]))}
    with pytest.raises(dco.IncompatibleScoreError, match=r"^the only candidate failed"):
        dco.tune(predictions, [0], alpha=0.5)


def test_a_message_speaks_of_the_only_trial():
    result = SearchResult((Trial(0, None, None, None, reason="why"),))
    with pytest.raises(ValueError, match=r"^the only trial failed .* trial 0: why"):
        _ = result.best


def test_a_message_speaks_of_one_row_of_sets():
    with pytest.raises(IndexError, match="there is 1 row"):
        _ = dco.Intervals([0.0], [1.0])[1]


def test_printed_sets_speak_of_one_row():
    assert repr(dco.LabelSets([[True]])) == "LabelSets(1 row of 1 label, mean size 1, 0 empty: {0})"


def test_a_warning_speaks_of_one_group():
    words = "^1 calibration group is too few .* At least 2 groups are needed"
    with pytest.warns(dco.InfeasibleLevelWarning, match=words):
        dco.grouped_conformal([0.0, 1.0], [3, 3], alpha=0.4)


def test_a_warning_speaks_of_one_threshold_and_one_row():
    words = "^none of 1 threshold passed with 1 calibration row:"
    with pytest.warns(dco.InfeasibleLevelWarning, match=words):
        dco.risk.conformal_risk_control([[1.0]], [0.0], alpha=0.1)
