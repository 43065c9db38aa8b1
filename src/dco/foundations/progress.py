"""Report how far a search is to whoever watches it, such as a progress bar around ``fit``."""

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
    """How far a search is: fits that are done, of all, and the model that is fitted now.

    `model_now` is None when the candidates are done and the winner is fitted again.
    """

    n_candidates: int
    n_done: int
    n_fits: int
    model_now: str | None


@contextmanager
def watch_search(watcher: Callable[[SearchProgress], None]) -> Iterator[None]:
    """Call `watcher` with the progress of each search that runs inside this context."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def report_search(progress: SearchProgress) -> None:
    """Pass the progress of a search to the watcher of this context, if there is one."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher(progress)
