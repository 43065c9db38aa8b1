"""Which candidates to try: all of them, some at random, or those that Optuna proposes.

A strategy sees one function, ``evaluate(model, score) -> objective``, which must look at train and
tune rows only. What it finds is then a function of those rows and the seed, so any strategy, over
any space, leaves the guarantee untouched.
"""

from __future__ import annotations

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from dco.foundations.extras import require
from dco.foundations.ranks import as_count

Evaluate: TypeAlias = Callable[..., float]
Pair: TypeAlias = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Trial:
    """One candidate that was tried. `objective` is None when it failed or was pruned, and `reason`
    says why.
    """

    number: int
    model: Any
    score: Any
    objective: float | None
    params: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Found:
    """Every trial, in the order of trying; `best` has the smallest objective, the earliest among
    equals.
    """

    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """The winner; one error with every reason if no trial gave a number."""
        finished = [trial for trial in self.trials if trial.objective is not None]
        if not finished:
            reasons = " | ".join(f"trial {trial.number}: {trial.reason}" for trial in self.trials)
            who = "the only trial" if len(self.trials) == 1 else f"all {len(self.trials)} trials"
            raise ValueError(f"{who} failed on the tuning rows. {reasons}")
        return min(
            finished, key=lambda trial: math.inf if trial.objective is None else trial.objective
        )


class Strategy(ABC):
    """A way of searching."""

    @abstractmethod
    def search(self, evaluate: Evaluate, candidates: Sequence[Pair] = ()) -> Found:
        """Try some candidates. `evaluate(model, score)` gives the objective, smaller is better; a
        trial that raises failed.

        `candidates` lists (model, score) pairs for strategies that have no space of their own.
        """


@dataclass(frozen=True)
class Exhaustive(Strategy):
    """Try every candidate."""

    def search(self, evaluate: Evaluate, candidates: Sequence[Pair] = ()) -> Found:
        """Try every candidate, in order."""
        return _try_all(evaluate, candidates, range(len(candidates)))


@dataclass(frozen=True)
class Random(Strategy):
    """Try `n` different candidates, drawn evenly by `seed` (all of them if there are no more than
    `n`).
    """

    n: int
    seed: int | None = None

    def __post_init__(self) -> None:
        as_count(self.n, least=1)

    def search(self, evaluate: Evaluate, candidates: Sequence[Pair] = ()) -> Found:
        """Try the drawn candidates, in their original order, so that ties fall as in an exhaustive
        search.
        """
        drawn = np.random.default_rng(self.seed).permutation(len(candidates))[: self.n]
        return _try_all(evaluate, candidates, sorted(drawn.tolist()))


@dataclass(frozen=True)
class Optuna(Strategy):
    """Let Optuna propose `trials` candidates: ``space(trial) -> (model, score)`` (needs the extra
    ``search``).

    `sampler` is None (TPE with `seed`), a class or function called with ``seed=``, or a sampler
    object, which is copied so that every search starts from its first state. With a `pruner`, an
    `evaluate` that has a parameter ``report`` is handed ``report(step, value) -> bool``: True means
    stop now and return.
    """

    space: Callable[[Any], Pair]
    trials: int
    seed: int | None = None
    sampler: Any = None
    pruner: Any = None

    def __post_init__(self) -> None:
        as_count(self.trials, name="trials", least=1)

    def search(self, evaluate: Evaluate, candidates: Sequence[Pair] = ()) -> Found:
        """Run the study in memory; `candidates` is not used, the space says what to try."""
        optuna = require("optuna", extra="search")
        known = inspect.signature(evaluate).parameters.values()
        reports = self.pruner is not None and any(
            each.name == "report" or each.kind is each.VAR_KEYWORD for each in known
        )
        log: list[Trial] = []

        def objective(trial: Any) -> float:
            stopped = False

            def report(step: int, value: float) -> bool:
                nonlocal stopped
                trial.report(float(value), step)
                stopped = stopped or bool(trial.should_prune())
                return stopped

            model = score = None
            try:
                model, score = _own_pair(self.space(trial))
                value = _number(evaluate(model, score, **({"report": report} if reports else {})))
                if stopped:
                    raise optuna.TrialPruned
            except Exception as problem:
                pruned = isinstance(problem, optuna.TrialPruned)
                reason = "pruned" if pruned else f"{type(problem).__name__}: {problem}"
                log.append(Trial(trial.number, model, score, None, dict(trial.params), reason))
                if pruned:
                    raise
                return math.nan  # Optuna counts a NaN as a failed trial and goes on
            log.append(Trial(trial.number, model, score, value, dict(trial.params)))
            return value

        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            study = optuna.create_study(
                sampler=self._sampler(optuna), pruner=copy.deepcopy(self.pruner)
            )
            study.optimize(objective, n_trials=self.trials)
        finally:
            optuna.logging.set_verbosity(verbosity)
        return Found(tuple(log))

    def _sampler(self, optuna: Any) -> Any:
        if self.sampler is None:
            return optuna.samplers.TPESampler(seed=self.seed)
        return (
            self.sampler(seed=self.seed) if callable(self.sampler) else copy.deepcopy(self.sampler)
        )


def _own_pair(proposed: Any) -> Pair:
    """(model, score) of a trial; the model as a copy, since a space may give one object with other
    parameters every time.
    """
    if not (isinstance(proposed, (tuple, list)) and len(proposed) == 2):
        raise TypeError(
            f"space(trial) must return a pair (model, score), got {type(proposed).__name__}"
        )
    from sklearn.base import clone

    model, score = proposed
    return clone(model) if hasattr(model, "get_params") else model, score


def _try_all(evaluate: Evaluate, candidates: Sequence[Pair], numbers: Sequence[int]) -> Found:
    if not len(candidates):
        raise ValueError("there is no candidate to try: pass (model, score) pairs.")
    trials = []
    for number in numbers:
        model, score = candidates[number]
        try:
            trials.append(Trial(number, model, score, _number(evaluate(model, score))))
        except Exception as problem:
            trials.append(
                Trial(number, model, score, None, reason=f"{type(problem).__name__}: {problem}")
            )
    return Found(tuple(trials))


def _number(objective: float) -> float:
    value = float(objective)
    if math.isnan(value):
        raise ValueError("the objective is NaN.")
    return value
