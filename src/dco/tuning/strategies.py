"""Which candidates to try: all of them, some at random, or those that Optuna proposes.

A strategy sees one function, ``evaluate(model, score) -> objective``, which must look at training
and tuning rows only. What a search finds is then a function of those rows and the seed, so any
strategy, over any space, leaves the guarantee untouched.
"""

from __future__ import annotations

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from dco.foundations.extras import require
from dco.foundations.ranks import as_count

Evaluate: TypeAlias = Callable[..., float]
Pair: TypeAlias = tuple[Any, Any]  # a model and a score


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
class SearchResult:
    """Every trial, in the order of trying."""

    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """The trial with the smallest objective, the earliest among equals.

        If all trials failed or were pruned, one error gives every reason.
        """
        best: Trial | None = None
        smallest = math.inf
        for trial in self.trials:
            if trial.objective is None:  # it failed or was pruned
                continue
            if best is None or trial.objective < smallest:
                best = trial
                smallest = trial.objective
        if best is not None:
            return best

        who = "the only trial" if len(self.trials) == 1 else f"all {len(self.trials)} trials"
        reasons = " | ".join(f"trial {trial.number}: {trial.reason}" for trial in self.trials)
        raise ValueError(f"{who} failed on the tuning rows. {reasons}")


class Strategy(ABC):
    """A way of searching."""

    @abstractmethod
    def search(self, evaluate: Evaluate, candidates: Sequence[Pair] = ()) -> SearchResult:
        """Try some candidates.

        `evaluate(model, score)` gives the objective, smaller is better; a trial that raises failed.
        `candidates` lists (model, score) pairs for strategies that have no space of their own.
        """

    def with_random_state(self, random_state: int) -> Strategy:
        """Return the strategy as it is, or with this seed if it draws and was given none."""
        return self


@dataclass(frozen=True)
class Exhaustive(Strategy):
    """Try every candidate."""

    def search(self, evaluate: Evaluate, candidates: Sequence[Pair] = ()) -> SearchResult:
        """Try every candidate, in order."""
        return _try_listed(evaluate, candidates, range(len(candidates)))


@dataclass(frozen=True)
class Random(Strategy):
    """Try `n` different candidates, drawn evenly by `random_state`; all if there are no more."""

    n: int
    random_state: int | None = None

    def __post_init__(self) -> None:
        as_count(self.n, least=1)

    def with_random_state(self, random_state: int) -> Strategy:
        """Return the strategy with this seed, unless it was given one."""
        return self if self.random_state is not None else replace(self, random_state=random_state)

    def search(self, evaluate: Evaluate, candidates: Sequence[Pair] = ()) -> SearchResult:
        """Try the drawn candidates in their original order, so that ties fall as if all were
        tried.
        """
        shuffled = np.random.default_rng(self.random_state).permutation(len(candidates))
        drawn = sorted(shuffled[: self.n].tolist())
        return _try_listed(evaluate, candidates, drawn)


@dataclass(frozen=True)
class Optuna(Strategy):
    """Let Optuna propose `trials` candidates: ``space(trial) -> (model, score)`` (needs the extra
    ``search``).

    `sampler` is None (TPE with `random_state`), a class or function called with ``seed=``, or a
    sampler object, which is copied so that every search starts from its first state. With a
    `pruner`, an `evaluate` that has a parameter ``report`` is handed a function
    ``report(step, value) -> bool``: True means stop now and return.
    """

    space: Callable[[Any], Pair]
    trials: int
    random_state: int | None = None
    sampler: Any = None
    pruner: Any = None

    def __post_init__(self) -> None:
        as_count(self.trials, name="trials", least=1)

    def with_random_state(self, random_state: int) -> Strategy:
        """Return the strategy with this seed, unless it was given one."""
        return self if self.random_state is not None else replace(self, random_state=random_state)

    def search(self, evaluate: Evaluate, candidates: Sequence[Pair] = ()) -> SearchResult:
        """Run the study in memory; `candidates` is not used, the space says what to try."""
        optuna = require("optuna", extra="search")
        can_prune = self.pruner is not None and _takes_report(evaluate)
        trials: list[Trial] = []

        def objective(optuna_trial: Any) -> float:
            trial = self._run_trial(evaluate, optuna_trial, can_prune=can_prune)
            trials.append(trial)
            if trial.reason == "pruned":
                raise optuna.TrialPruned
            return math.nan if trial.objective is None else trial.objective  # NaN: it failed

        with _without_messages(optuna):
            sampler = self._sampler(optuna)
            study = optuna.create_study(sampler=sampler, pruner=copy.deepcopy(self.pruner))
            study.optimize(objective, n_trials=self.trials)
        return SearchResult(tuple(trials))

    def _run_trial(self, evaluate: Evaluate, optuna_trial: Any, *, can_prune: bool) -> Trial:
        """Evaluate the model and the score that the space proposes for one trial of Optuna.

        An error is recorded as the reason why the trial has no objective. With `can_prune`,
        `evaluate` reports each step to Optuna's pruner, which may stop the trial.
        """
        report = _PruningReport(optuna_trial)
        options = {"report": report} if can_prune else {}
        model = None
        score = None
        value = None
        reason = ""
        try:
            model, score = _copy_pair(self.space(optuna_trial))
            value = _check_number(evaluate(model, score, **options))
        except Exception as error:
            reason = "pruned" if _is_pruned(error) else f"{type(error).__name__}: {error}"

        # An evaluation that was told to stop returns, and the number that it returns means nothing.
        if report.must_stop and not reason:
            value = None
            reason = "pruned"
        return Trial(
            number=optuna_trial.number,
            model=model,
            score=score,
            objective=value,
            params=dict(optuna_trial.params),
            reason=reason,
        )

    def _sampler(self, optuna: Any) -> Any:
        """Make the sampler of a study, in its first state."""
        if self.sampler is None:
            return optuna.samplers.TPESampler(seed=self.random_state)
        if callable(self.sampler):
            return self.sampler(seed=self.random_state)
        return copy.deepcopy(self.sampler)


class _PruningReport:
    """Passes the objective of each step of a trial on to Optuna's pruner.

    It is called as ``report(step, value)`` and returns whether to stop, which it also remembers.
    """

    def __init__(self, optuna_trial: Any) -> None:
        self.optuna_trial = optuna_trial
        self.must_stop = False

    def __call__(self, step: int, value: float) -> bool:
        self.optuna_trial.report(float(value), step)
        self.must_stop = self.must_stop or bool(self.optuna_trial.should_prune())
        return self.must_stop


def _takes_report(evaluate: Evaluate) -> bool:
    """Return whether the function has a parameter `report`, or takes any keyword."""
    parameters = inspect.signature(evaluate).parameters.values()
    return any(
        parameter.name == "report" or parameter.kind is parameter.VAR_KEYWORD
        for parameter in parameters
    )


def _is_pruned(error: Exception) -> bool:
    """Return whether a space or an evaluation stopped the trial by itself."""
    import optuna

    return isinstance(error, optuna.TrialPruned)


@contextmanager
def _without_messages(optuna: Any) -> Iterator[None]:
    """Silence Optuna's log, and put its verbosity back."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def _copy_pair(proposed: Any) -> Pair:
    """Check that a space returned (model, score), and copy the model.

    Without a copy, a space that changes one model for every trial would change earlier trials.
    """
    if not (isinstance(proposed, (tuple, list)) and len(proposed) == 2):
        raise TypeError(
            f"space(trial) must return a pair (model, score), got {type(proposed).__name__}"
        )
    from sklearn.base import clone

    model, score = proposed
    if hasattr(model, "get_params"):
        model = clone(model)
    return model, score


def _try_listed(
    evaluate: Evaluate, candidates: Sequence[Pair], numbers: Sequence[int]
) -> SearchResult:
    """Evaluate the candidates at these positions of the list, (model, score) each.

    An error is recorded as the reason why a trial has no objective.
    """
    if not len(candidates):
        raise ValueError("there is no candidate to try: pass (model, score) pairs.")

    trials = []
    for number in numbers:
        model, score = candidates[number]
        value = None
        reason = ""
        try:
            value = _check_number(evaluate(model, score))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        trials.append(Trial(number, model, score, value, reason=reason))
    return SearchResult(tuple(trials))


def _check_number(objective: float) -> float:
    """Convert an objective to a float, and refuse NaN."""
    value = float(objective)
    if math.isnan(value):
        raise ValueError("the objective is NaN.")
    return value
