"""How far a search is, told to whoever watches: a progress bar around a call of ``fit``, say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = [
    "SearchProgress",
    "report_search",
    "watch_search",
]

_WATCHER: ContextVar[Callable[[SearchProgress], None] | None] = ContextVar("watcher", default=None)


@dataclass(frozen=True)
class SearchProgress:
    """How many fits of a search are done, and which model is fitted now; None for the winner."""

    n_candidates: int
    n_done: int
    n_fits: int
    model_now: str | None


@contextmanager
def watch_search(watcher: Callable[[SearchProgress], None]) -> Iterator[None]:
    """Tell `watcher` how far each search in here is."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def report_search(progress: SearchProgress) -> None:
    """Tell whoever watches how far a search is; nobody may watch."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher(progress)
