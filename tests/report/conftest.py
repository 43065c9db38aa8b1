"""Fitted estimators with rows to show, and their pages in the browser."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier

import dco
from dco import DecoupledClassifier, DecoupledRegressor
from dco.foundations.errors import InfeasibleLevelWarning
from dco.report import ReportNumbers, page_html, report_numbers

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"
LABELS = np.array([HOSTILE, "b & c", "'quoted\" {{ 7 * 7 }}", "d\u2028e" + "long" * 30])

PATIENCE = 120_000  # milliseconds; it only turns a browser that hangs into a failure


class Softmax(ClassifierMixin, BaseEstimator):
    """Features are logits: a model for many classes that costs nothing to fit."""

    def fit(self, X: Any, y: Any) -> Any:
        self.classes_ = np.unique(y)
        self.n_features_in_ = X.shape[1]
        return self

    def predict_proba(self, X: Any) -> Any:
        weights = np.exp(X[:, : len(self.classes_)])
        return weights / weights.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> Any:
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


@dataclass(frozen=True, eq=False)
class Case:
    """A fitted estimator with new rows, or without any; `fitted` are the rows of the fit."""

    estimator: Any
    X: Any = None
    y: Any = None
    by: Any = None
    fitted: Any = None

    def rows(self) -> dict[str, Any]:
        return {"X": self.X, "y": self.y, "by": self.by}


def classes(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    code = rng.integers(0, 4, size=n)
    return rng.normal(size=(n, 4)) + 1.2 * np.eye(4)[code], LABELS[code]


def numbers(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, 40 + 10 * X[:, 0] + (1 + np.abs(X[:, 1])) * rng.normal(size=n)


def classifier(**settings: Any) -> Case:
    models = {
        "logistic": LogisticRegression(max_iter=200),
        HOSTILE: DecisionTreeClassifier(max_depth=3),
    }
    fitted = classes(800, 1)
    estimator = DecoupledClassifier(models, random_state=0, **settings).fit(*fitted)
    X, y = classes(300, 2)
    return Case(estimator, X, y, np.where(X[:, 0] > 0, HOSTILE, "low"), fitted)


def regressor(**settings: Any) -> Case:
    fitted = numbers(600, 1)
    estimator = DecoupledRegressor(
        [Ridge(), LinearRegression()], dco.scores.AbsoluteResidual(), random_state=0, **settings
    ).fit(*fitted)
    X, y = numbers(300, 2)
    return Case(estimator, X, y, np.where(X[:, 1] > 0, "right", "left"), fitted)


def clusters(**settings: Any) -> Case:
    """Rows that belong together by fours."""
    estimator = DecoupledRegressor(Ridge(), random_state=0, **settings).fit(
        *numbers(600, 1), groups=np.arange(600) // 4
    )
    return Case(estimator, *numbers(50, 2))


def tilt(X: Any) -> Any:
    return 1.0 + (X[:, 0] > 0)


def estimated_weights() -> Case:
    """Weights that were estimated: nothing is guaranteed."""
    estimator = DecoupledClassifier(
        LogisticRegression(max_iter=200),
        weights=dco.ShiftWeights(tilt, estimated=True),
        random_state=0,
    ).fit(*classes(300, 1))
    X, y = classes(60, 2)
    return Case(estimator, X, y, X[:, 1] > 0)


def overlapping() -> Case:
    """A threshold for each combination of two groups."""
    return regressor(condition_on=[_sign, lambda X: X[:, 0] > 0])


def infeasible() -> Case:
    with pytest.warns(InfeasibleLevelWarning):
        estimator = DecoupledRegressor(Ridge(), alpha=0.01, calibrate_size=30, random_state=0).fit(
            *numbers(120, 1)
        )
    return Case(estimator, *numbers(80, 2))


def thousand(**settings: Any) -> Case:
    rng = np.random.default_rng(3)
    names = np.array([f"class number {code:04d} of a thousand" for code in range(1000)])
    code = np.concatenate([np.tile(np.arange(1000), 6), rng.integers(0, 1000, size=1500)])
    X = rng.normal(size=(code.size, 1000)).astype(np.float32)
    X[np.arange(code.size), code] += 4.5
    estimator = DecoupledClassifier(
        Softmax(), dco.scores.LAC(), random_state=0, refit=False, **settings
    )
    train, tune, calibrate, new = (
        slice(0, 2000),
        slice(2000, 4000),
        slice(4000, 6000),
        slice(6000, None),
    )
    estimator.fit(
        X[train],
        names[code[train]],
        tune=(X[tune], names[code[tune]]),
        calibrate=(X[calibrate], names[code[calibrate]]),
    )
    return Case(estimator, X[new], names[code[new]], names[code[new]])


CASES: dict[str, Callable[[], Case]] = {
    "classification": classifier,
    "pac classification": lambda: classifier(guarantee="pac", alpha=0.2),
    "by label": lambda: classifier(condition_on="label"),
    "regression": regressor,
    "by sign": lambda: regressor(condition_on=_sign),
    "infeasible": infeasible,
    "clusters": clusters,
    "pac clusters": lambda: clusters(guarantee="pac", alpha=0.2),
    "nothing guaranteed": estimated_weights,
    "overlapping": overlapping,
    "no rows": lambda: Case(classifier().estimator),
    "conditions without rows": lambda: Case(classifier(condition_on="label").estimator),
    "thousand": thousand,
    "thousand by label": lambda: thousand(condition_on="label", alpha=0.4),
}


def _sign(X: Any) -> Any:
    return np.where(X[:, 1] > 0, "plus", "minus")


@cache
def made(name: str) -> Case:
    return CASES[name]()


@cache
def page_of(name: str) -> str:
    return page_html(made(name).estimator, **made(name).rows())


@pytest.fixture(scope="session")
def case() -> Callable[[str], Case]:
    """A case by name, fitted once."""
    return made


@pytest.fixture(scope="session")
def numbers_of() -> Callable[[str], ReportNumbers]:
    """The numbers of a case by name, made once, without `by`."""
    return cache(lambda name: report_numbers(made(name).estimator, made(name).X, made(name).y))


@pytest.fixture(scope="session")
def html_of() -> Callable[[str], str]:
    """The page of a case by name, made once."""
    return page_of


@dataclass(eq=False)
class Opened:
    """A page in the browser, with all that it said and asked for."""

    page: Any
    complaints: list[str]
    requests: list[str]

    def show(self, index: int) -> None:
        """Move the control as an assistive tool would: set its value and tell the page."""
        self.page.evaluate(
            "i => { const c = document.getElementById('alpha'); c.value = i; c.dispatchEvent(new "
            "Event('input')); }",
            index,
        )

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.text_content())

    def width(self) -> int:
        """The width that the page takes; wider than the window, it scrolls sideways."""
        return int(self.page.evaluate("document.documentElement.scrollWidth"))


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Open the page of a case, or a page given as text, in a fresh window."""
    contexts = []

    def open_page(page_or_case: str, *, width: int = 1200, scheme: str = "light") -> Opened:
        file = tmp_path / "opened.html"
        file.write_text(
            page_of(page_or_case) if page_or_case in CASES else page_or_case, encoding="utf-8"
        )
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        window = Opened(page, [], [])
        page.on("console", lambda message: window.complaints.append(message.text))
        page.on("pageerror", lambda error: window.complaints.append(str(error)))
        page.on("dialog", lambda dialog: window.complaints.append(dialog.message))
        page.on("request", lambda request: window.requests.append(request.url))
        page.goto(file.as_uri())
        return window

    yield open_page
    for context in contexts:
        context.close()
