"""Results in a notebook: IPython's protocol, without IPython."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import dco
from dco.display import ShownAsPrinted


class Printer:
    """What IPython hands to `_repr_pretty_`, as far as it is used: text, forced line breaks, groups."""

    def __init__(self) -> None:
        self.written = ""

    def text(self, text: str) -> None:
        self.written += text

    def break_(self) -> None:
        self.written += "\n"

    @contextmanager
    def group(self, indent: int = 0, open: str = "", close: str = ""):  # IPython's names
        self.written += open
        yield
        self.written += close


def shown(result: ShownAsPrinted) -> str:
    """As IPython does it: the first class of the order of inheritance that writes itself, by either method, is asked."""
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
    estimator = dco.DecoupledClassifier(LogisticRegression(), alpha=0.2, random_state=0).fit(X[:300], y[:300])
    return {
        "certificate": estimator.certificate_,
        "verification": estimator.certificate_.verify(),
        "evaluation": estimator.evaluate(X[300:], y[300:]),
        "ranking": estimator.ranking_,
        "plan": dco.plan(1000, alpha=0.1),
        "settings": dco.learn_then_test(np.zeros((100, 30)), alpha=0.1, delta=0.1),
    }


@pytest.mark.parametrize("name", ["certificate", "verification", "evaluation", "ranking", "plan", "settings"])
def test_a_cell_shows_what_print_shows(results, name):
    result = results[name]
    assert shown(result) == str(result)
    assert str(result) != repr(result)
    assert repr(result).startswith(type(result).__name__ + "(")


def test_no_line_break_is_hidden_in_a_text():
    """IPython indents what stands in a list only at breaks it is told of."""
    texts = []

    class Listener(Printer):
        def text(self, text: str) -> None:
            texts.append(text)

    dco.plan(1000, alpha=0.1)._repr_pretty_(Listener(), cycle=False)
    assert len(texts) > 5
    assert not any("\n" in text for text in texts)


def test_ipython_itself_shows_the_same(results):
    pretty = pytest.importorskip("IPython.lib.pretty")
    for result in results.values():
        assert pretty.pretty(result) == str(result)
