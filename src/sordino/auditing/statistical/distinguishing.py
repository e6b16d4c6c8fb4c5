"""Distinguishing games: a mechanism is played on two neighboring inputs and told apart.

An audit also says what it would have refuted, for without that it says nothing: by exact quantiles
of the counts of a mechanism of the shape that is easiest to catch. One that hides its fault better
can have a larger loss and go unnoticed. What is played may be code of other people: whatever it
does, it ends in one of our errors.
"""

from __future__ import annotations

import math
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib import import_module
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import numpy as np
from jaxtyping import Float
from scipy.special import expit, ndtr

from sordino import _validate
from sordino._random import SimulatedEntropy, SystemEntropy
from sordino._validate import failure_probability, integer, non_negative
from sordino.auditing.findings import POWER, Audit, Finding, Measurement, Metric, Outcome
from sordino.errors import SordinoError, UsageError
from sordino.mechanisms.base import Mechanism, Repeatable, WorstCase
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.gibbs import ExponentialMechanism
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy.conversions import (
    bounded_range_composition_epsilon,
    bounded_range_for,
    bracket_up,
    gaussian_epsilon,
    gaussian_mu,
    narrow,
)
from sordino.privacy.guarantee import (
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
    float_to_json,
    never_less,
    never_more,
)

from .bounds import (
    SELECTION_SHARE,
    Counts,
    Cut,
    epsilon_cut,
    epsilon_from_counts,
    mu_cut,
    mu_from_counts,
    odds_ratio_bound,
    odds_ratio_refutes,
    range_cut,
    split_sizes,
)

_TERMINATED: Final = 143  # how the command line leaves when it is told to: no doing of a stranger


@contextmanager
def _explained_stranger(problem: str) -> Iterator[None]:
    """Turn what somebody's code raises into one error that names the kind and is chained."""
    # Code that leaves the interpreter would leave with a code of its own, which could be the code
    # of an audit that refuted nothing: it is an error like any other.
    try:
        yield
    except SordinoError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code == _TERMINATED:
            raise
        raise UsageError(problem.format(type(error).__name__)) from error


@contextmanager
def _explained_calls(mechanism: object, member: str) -> Iterator[None]:
    """Turn what a member of a mechanism raises into one error."""
    kind = type(mechanism).__name__
    with _explained_stranger(
        f"{member} of {kind} raised {{}}; nothing was audited. Call it in Python to see why."
    ):
        yield


Score = Callable[[np.ndarray], np.ndarray]
"""From outputs, one in each row, to one number for each: large on one input, small on the other."""

Progress = Callable[[int, int], None]
"""Called with how many releases were played, and how many there will be."""

_CHUNK: Final = 1000  # releases that one task plays
_CATEGORIES: Final = 64  # fewer different outputs are told apart one by one
_LARGEST: Final = 1e100  # of an output that is projected: sums and products then stay finite
_SHAPES: Final = "release must return arrays of one shape; nothing was audited."


@dataclass(frozen=True)
class _Game:
    """What is played."""

    mechanism: Mechanism  # whose releases are told apart
    case: WorstCase  # the two inputs
    trials: int  # releases of each
    score: Score | None  # how outputs are told apart; None learns it from one trial in ten
    processes: int  # how many work at once
    seed: int | None  # seed of simulated entropy; None draws from the operating system
    progress: Progress | None  # called after every task; None calls nobody


class _Scores(NamedTuple):
    """The scores of a game, in the order played, and how they were made."""

    one: Float[np.ndarray, " n"]  # on `case.one`
    other: Float[np.ndarray, " m"]  # on `case.other`
    score: str  # `"given"`, `"log-ratio"` or `"learned"`
    one_direction: bool  # whether the score saw the outputs along one direction only


@dataclass(frozen=True)
class _Projection:
    """A score that sees outputs along one direction: what lies across it is not looked at."""

    direction: Float[np.ndarray, " d"]

    def __call__(self, rows: np.ndarray) -> Float[np.ndarray, " n"]:
        flat = _flat(rows)
        if flat.shape[1] != len(self.direction):
            raise UsageError(_SHAPES)
        return np.asarray(np.clip(flat, -_LARGEST, _LARGEST) @ self.direction)


def _says_of_itself(mechanism: object, method: str) -> bool:
    """Return whether a method of :class:`Repeatable` speaks of the mechanism's own ``release``."""
    # A subclass that overrides `release` alone inherits a `repeat` and a `log_ratio` that would
    # play the game of another mechanism: what it really does is then played and learned.
    if not isinstance(mechanism, Repeatable):
        return False
    names = [vars(cls) for cls in type(mechanism).__mro__]
    own, release = (
        next((i for i, names_of in enumerate(names) if name in names_of), 0)
        for name in (method, "release")
    )
    return own <= release


def _played(mechanism: Mechanism, values: np.ndarray, trials: int, seed: int | None) -> np.ndarray:
    """Return some releases of one input; these four are everything that another process needs."""
    source = SystemEntropy() if seed is None else SimulatedEntropy(seed)
    if isinstance(mechanism, Repeatable) and _says_of_itself(mechanism, "repeat"):
        with _explained_calls(mechanism, "repeat"):
            outputs = np.asarray(mechanism.repeat(values, trials, entropy=source))
        if outputs.shape[:1] != (trials,):
            raise UsageError(
                f"repeat of {type(mechanism).__name__} must return {trials} rows, got shape "
                f"{outputs.shape}; nothing was audited."
            )
        return outputs
    with _explained_calls(mechanism, "release"):
        rows = [np.asarray(mechanism.release(values, entropy=source)) for _ in range(trials)]
    if len({row.shape for row in rows}) > 1:
        raise UsageError(_SHAPES)
    return np.stack(rows)


def _play(game: _Game) -> _Scores:
    """Return the scores of a game: of many releases of made-up inputs, never of private data."""
    # The same seed gives the same scores whatever the number of processes.
    mechanism = game.mechanism
    with _worker(game) as outputs:
        if game.score is not None:
            return _scored(outputs, game.score, game.trials, "given")
        if isinstance(mechanism, Repeatable) and _says_of_itself(mechanism, "log_ratio"):

            def ratio(rows: np.ndarray) -> np.ndarray:
                with _explained_calls(mechanism, "log_ratio"):
                    return mechanism.log_ratio(rows, game.case)

            return _scored(outputs, ratio, game.trials, "log-ratio")
        few = max(1, game.trials // 10)  # one trial in so many teaches a score
        seen = [[_flat(rows) for rows in outputs(side, few)] for side in (0, 1)]
        if len({rows.shape[1] for side in seen for rows in side}) > 1:
            raise UsageError(_SHAPES)
        first, second = map(np.concatenate, seen)
        kinds = np.unique(np.concatenate([first, second]), axis=0)
        means = [np.clip(rows, -_LARGEST, _LARGEST).mean(axis=0) for rows in (first, second)]
        score: Score = _Projection(means[0] - means[1])
        if len(kinds) <= _CATEGORIES:
            counts = [_occurrences(rows, kinds)[0] + 0.5 for rows in (first, second)]
            ratios = np.append(np.log(counts[0]) - np.log(counts[1]), 0.0)  # the last one: unseen

            def score(rows: np.ndarray) -> np.ndarray:
                return np.asarray(ratios[_occurrences(_flat(rows), kinds)[1]])

        return _scored(outputs, score, game.trials - few, "learned")


_Outputs = Callable[[int, int], Iterator[np.ndarray]]


@contextmanager
def _worker(game: _Game) -> Iterator[_Outputs]:
    """Yield what plays a number of releases of one side (0 or 1), task by task."""
    played, inputs = partial(_played, game.mechanism), (game.case.one, game.case.other)
    started, done = 0, 0

    def outputs(side: int, trials: int) -> Iterator[np.ndarray]:
        nonlocal done, started
        sizes = [min(_CHUNK, trials - first) for first in range(0, trials, _CHUNK)]
        seeds = [  # of every task its own
            None if game.seed is None else game.seed * 2**32 + started + place
            for place in range(len(sizes))
        ]
        started += len(sizes)
        for rows in mapped(played, repeat(inputs[side]), sizes, seeds):
            done += len(rows)
            yield rows
            if game.progress is not None:
                game.progress(done, 2 * game.trials)

    mapped: Callable[..., Iterator[np.ndarray]] = map
    if game.processes == 1:
        yield outputs
        return
    try:
        pickle.dumps(game.mechanism)
    except Exception as error:
        raise UsageError(
            f"{type(game.mechanism).__name__} cannot be sent to another process "
            f"({type(error).__name__}). Define its class in a module, or use processes=1."
        ) from error
    with ProcessPoolExecutor(game.processes, mp_context=get_context("spawn")) as pool:
        mapped = pool.map
        try:
            yield outputs
        except BrokenProcessPool as error:
            raise UsageError(
                "The other processes stopped before they began. In a script, put the call below "
                "`if __name__ == '__main__':`, or use processes=1."
            ) from error


def _scored(outputs: _Outputs, score: Score, trials: int, name: str) -> _Scores:
    """Return the scores of both sides; outputs are dropped as soon as they are scored."""
    one, other = (
        np.concatenate([_numbers(score(rows), rows, name) for rows in outputs(side, trials)])
        for side in (0, 1)
    )
    return _Scores(one, other, name, isinstance(score, _Projection))


def _numbers(scores: object, rows: np.ndarray, name: str) -> Float[np.ndarray, " n"]:
    """Return scores as floats; refuse what is not one number for each output."""
    array = np.asarray(scores)
    if rows.dtype.kind == "f" and array.dtype.kind == "f" and np.isnan(array).any():
        _refuse_nan(rows)
    if array.shape != (len(rows),) or array.dtype.kind not in "biuf" or np.isnan(array).any():
        raise UsageError(
            f"{'log_ratio' if name == 'log-ratio' else 'score'} must return one number for each of "
            f"{len(rows)} outputs and no NaN, got shape {array.shape}, dtype {array.dtype}. "
            "Nothing was audited."
        )
    return array.astype(np.float64, copy=False)


def _flat(outputs: np.ndarray) -> Float[np.ndarray, "n d"]:
    """Return outputs as rows of floats; refuse what are no numbers."""
    if outputs.dtype.kind not in "biuf":
        raise UsageError(
            f"release must return an array of numbers, got dtype {outputs.dtype}; nothing was "
            "audited."
        )
    _refuse_nan(outputs)
    # adding 0 makes −0.0 the same bytes as 0.0
    return np.asarray(outputs, dtype=np.float64).reshape(len(outputs), -1) + 0.0


def _refuse_nan(outputs: np.ndarray) -> None:
    """Refuse outputs that no score can order."""
    if outputs.dtype.kind == "f" and np.isnan(outputs).any():
        raise UsageError(
            "release returned NaN, which is told apart from nothing; nothing was "
            "audited. Let it return numbers."
        )


def _occurrences(rows: np.ndarray, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each kind occurs, and which kind every row is: one too many if none."""
    index = {kind.tobytes(): i for i, kind in enumerate(kinds)}
    which = np.array([index.get(row.tobytes(), len(kinds)) for row in rows], dtype=np.int64)
    return np.bincount(which, minlength=len(kinds) + 1)[: len(kinds)], which


_MEMBERS: Final = ("event", "sensitivity", "guarantee", "release", "worst_case")
_BOUND: Final = 1.0  # of a value; only its ratio to the noise matters
NAMES: Final = ("randomized-response", "gaussian", "exponential")
"""What :func:`build_mechanism` knows beside ``module:attribute``."""


def build_mechanism(
    name: str, *, epsilon: float | None, delta: float, neighbors: NeighboringRelation
) -> Mechanism:
    """Return a mechanism by name, as noisy as a promise needs, or somebody's own."""
    if ":" in name:
        kind = "no mechanism: give it what sordino.mechanisms.base.Mechanism lists"
        mechanism: Mechanism = load_own(name, _MEMBERS, kind=kind, undone="nothing was audited")
        return mechanism
    if name not in NAMES:
        raise UsageError(
            f"No mechanism is called {name!r}. Choose {', '.join(NAMES)}, or give "
            "module:attribute for one of your own."
        )
    epsilon = _validate.positive("epsilon", epsilon)
    delta = _validate.failure_probability("delta", delta)
    if name == "gaussian":  # noise on one number in [−1, 1]
        if delta == 0:
            raise UsageError("delta must be above 0 for gaussian: its noise keeps no pure promise.")
        return GaussianMechanism.calibrated(epsilon, delta=delta, bound=_BOUND, neighbors=neighbors)
    if name == "exponential":  # a draw of one of two actions
        return ExponentialMechanism.calibrated(
            epsilon, delta=delta, bound=_BOUND, reference=(0.5, 0.5), neighbors=neighbors
        )
    if delta > 0:  # a coin needs none, and would ignore one
        raise UsageError(f"delta must be 0 for randomized-response, which is pure, got {delta!r}.")
    coin = RandomizedResponse(epsilon)
    coin.sensitivity(neighbors)
    return coin


def load_own(name: str, members: Iterable[str], *, kind: str, undone: str) -> Any:
    """Return an object of somebody's own, ``module:attribute``; what only makes one is called."""

    def lacking(found: object) -> list[str]:
        return [member for member in members if not hasattr(found, member)]

    shown = repr(name).replace("{", "{{").replace("}", "}}")
    with _explained_stranger(
        f"{shown} could not be loaded ({{}}): {undone}. Import it in Python to see why."
    ):
        module_name, _, path = name.partition(":")
        parts = path.split(".")
        if not all(part.isidentifier() for part in [*module_name.split("."), *parts]):
            raise UsageError(f"What is your own is named module:attribute, got {name!r}.")
        here = str(Path.cwd())
        if here not in sys.path:
            # at the end, so that no file here hides an installed package; processes inherit it
            sys.path.append(here)
        found: Any = import_module(module_name)
        for part in parts:
            if not hasattr(found, part):
                raise UsageError(f"{name!r} was not found: {module_name} has no {path}.")
            found = getattr(found, part)
        if callable(found) and (isinstance(found, type) or lacking(found)):
            found = found()
        missing = lacking(found)
    if missing:
        raise UsageError(
            f"{name!r} is {kind}. {type(found).__name__} lacks {', '.join(missing)}, and {undone}."
        )
    return found


_CHOICE: Final = 0.01  # how often the event may be chosen badly
_COUNT: Final = (1 - POWER - _CHOICE) / 2  # how often either count may be worse than assumed
_OFF: Final = 1.25  # standard deviations from the best threshold; passed in 1 % of seeded audits
_RTOL: Final = 1e-4


@lru_cache(maxsize=256)
def _detectable_epsilon(claimed: float, trials: int, *, delta: float, confidence: float) -> float:
    """Return the smallest true ε that would refute a claimed one, with probability .95."""
    # Source: Quantiles of the two binomial counts; a Chernoff bound for choosing the opposite
    # event.
    delta = failure_probability("delta", delta)

    def refutes(epsilon: float) -> bool:
        hit = delta + (1 - delta) * float(expit(epsilon))
        counts = _unlucky(hit, 1 - hit, trials)
        if counts is None:
            return False
        return epsilon_from_counts(*counts, delta=delta, confidence=confidence) > claimed

    return _least(refutes, claimed)


@lru_cache(maxsize=256)
def _detectable_range(
    claimed: float, trials: int, *, confidence: float, center: float = 0.0
) -> float:
    """Return the smallest true bounded range that would refute a claimed one, just as often."""

    def refutes(bounded_range: float) -> bool:
        hit, alarm = expit(center + bounded_range / 2), expit(center - bounded_range / 2)
        counts = _unlucky(float(hit), float(alarm), trials)
        return counts is not None and odds_ratio_refutes(counts, claimed, confidence=confidence)

    return _least(refutes, claimed)


@lru_cache(maxsize=256)
def _detectable_mu(claimed: float, trials: int, *, confidence: float) -> float:
    """Return the smallest true μ that would refute a claimed one, with probability .95."""
    # Source: Quantiles of the two binomial counts. How far off the chosen threshold lies was
    # measured: tests/statistical/test_mechanism_audits.py.
    counted = split_sizes(integer("trials", trials, at_least=1))[1]

    def refutes(mu: float) -> bool:
        ends = (mu / 2 - _OFF, mu / 2 + _OFF)
        tests = [_pessimistic(float(ndtr(mu - t)), float(ndtr(-t)), counted) for t in ends]
        return all(mu_from_counts(*counts, confidence=confidence) > claimed for counts in tests)

    return _least(refutes, claimed)


def _unlucky(hit: float, alarm: float, trials: int) -> Counts | None:
    """Return pessimistic counts of an event that has these chances p > q on the two inputs."""
    # None if the first fifth of the trials could take the opposite event for it: it does if it
    # happens no more often on one input than on the other, which has probability at most (√(pq) +
    # √((1 − p)(1 − q)))^(2n).
    chosen, counted = split_sizes(integer("trials", trials, at_least=1))
    alike = math.sqrt(hit * alarm) + math.sqrt((1 - hit) * (1 - alarm))
    if alike ** (2 * chosen) > _CHOICE:
        return None
    return _pessimistic(hit, alarm, counted)


def _pessimistic(hit: float, alarm: float, n: int) -> Counts:
    """Return counts that are no better with probability at most 2·_COUNT."""
    from scipy.stats import binom  # noqa: PLC0415 (slow to import)

    return Counts(int(binom.ppf(_COUNT, n, hit)), n, int(binom.ppf(1 - _COUNT, n, alarm)), n)


def _least(refutes: Callable[[float], bool], claimed: float) -> float:
    """Return the smallest loss that is refuted; it only gets easier with the loss."""
    start = max(non_negative("claimed", claimed), _RTOL)
    if math.isinf(start) or not refutes(start + 1e3):  # a loss at which every guess is right
        return math.inf
    fails, found = bracket_up(refutes, start)
    return narrow(refutes, fails, found, rtol=_RTOL)[1]


_ATTACK: Final = "distinguishing-game"
_LEAST_TRIALS = 100


class Sure(NamedTuple):
    """How surely bounds hold: those that are reported, and those that decide a verdict."""

    confidence: float  # of the bounds that are reported
    level: float  # chance of a verdict against a claim that is true

    @classmethod
    def of(cls, confidence: float, level: float) -> Sure:
        """Return both; refuse what is no chance."""
        _validate.failure_probability("confidence", confidence, zero=False)
        _validate.failure_probability("level", level, zero=False)
        return cls(confidence, level)

    def shared(self, tests: int) -> Sure:
        """Return it for each of several tests that may refute."""
        return self._replace(level=self.level / tests)

    @property
    def verdict(self) -> float:
        """Return the confidence of the bounds that decide."""
        return 1 - self.level


class _Answer(NamedTuple):
    """What a game showed in one metric: at the confidence reported, and at the verdict's."""

    cut: Cut
    shown: Measurement
    needed: float
    sure: float  # the confidence of the verdict

    @property
    def outcome(self) -> Outcome:
        """Return how much it shows: some suspicion is no refutation."""
        refutes, odd = self.needed > self.shown.claimed, self.shown.lower > self.shown.claimed
        return "refutes" if refutes else "warning" if odd else "clear"

    @property
    def said(self) -> str:
        """Return the bound in words: that of the verdict if it refutes."""
        lower, sure = self.shown.lower, self.shown.confidence
        if self.outcome == "refutes":
            lower, sure = self.needed, self.sure
        return (
            f"{self.shown.metric} is at least {never_more(lower, 4)} at {100 * sure:.6g} % "
            f"confidence, and {never_less(self.shown.claimed)} is claimed"
        )


@dataclass(frozen=True, kw_only=True)
class Question:
    """One metric in which a claim can be refuted."""

    metric: Metric  # its name
    claimed: float  # what is claimed in it
    # From the scores of both sides to an event with counts.
    cut: Callable[[np.ndarray, np.ndarray], Cut]
    bound: Callable[[Counts, float], float]  # from counts and a confidence to a lower bound
    # From the event, trials and a confidence to the smallest loss that is refuted.
    detectable: Callable[[Cut, int, float], float]
    attack: str = _ATTACK

    def answer(self, one: np.ndarray, other: np.ndarray, sure: Sure) -> _Answer:
        """Return what the scores show in this metric."""
        cut, needed = self.cut(one, other), sure.verdict
        shown = Measurement(
            metric=self.metric,
            claimed=self.claimed,
            lower=self.bound(cut.counts, sure.confidence),
            confidence=sure.confidence,
            power=self.detectable(cut, len(one), needed),
            attack=self.attack,
        )
        return _Answer(cut, shown, self.bound(cut.counts, needed), needed)


def mu_question(claimed: float, *, attack: str = _ATTACK) -> Question:
    """Return the question whether the trade-off is that of a Gaussian mechanism."""
    return Question(
        attack=attack,
        metric="mu",
        claimed=claimed,
        cut=mu_cut,
        bound=lambda counts, confidence: mu_from_counts(*counts, confidence=confidence),
        detectable=lambda _, n, confidence: _detectable_mu(claimed, n, confidence=confidence),
    )


def _range_question(claimed: float) -> Question:
    """Return the question how far the odds of two outputs move."""

    def detectable(cut: Cut, _trials: int, confidence: float) -> float:
        # With odds as uneven as those played, which are known up to what was counted: two standard
        # errors are given away, and a tenth.
        hits, n, alarms, m = cut.counts
        one, other = ((k + 0.5) / (total - k + 0.5) for k, total in ((hits, n), (alarms, m)))
        error = math.sqrt(sum(1 / (k + 0.5) for k in (hits, n - hits, alarms, m - alarms)))
        center = math.ceil(10 * (abs(math.log(one * other)) / 2 + error)) / 10
        played = max(1, int(min(n, m) / (1 - SELECTION_SHARE)))
        return _detectable_range(claimed, played, confidence=confidence, center=center)

    return Question(
        metric="bounded range",
        claimed=claimed,
        cut=range_cut,
        bound=lambda counts, confidence: odds_ratio_bound(*counts, confidence=confidence),
        detectable=detectable,
    )


def _questions(event: Event, claim: Guarantee) -> list[Question]:
    """Return the metrics in which a claim about an event can be refuted, the sharpest first."""
    # The event says which family the mechanism is of; how large its loss may be is said by the
    # claim alone, for the event may be about another relation.
    epsilon, delta = claim.epsilon, claim.delta
    in_epsilon: Callable[[float], float]
    sharpest: list[Question] = []
    if isinstance(event, GaussianEvent):
        sharpest = [mu_question(gaussian_mu(epsilon, delta))]
        in_epsilon = partial(gaussian_epsilon, delta)
    elif isinstance(event, BoundedRangeEvent) and (event.draws == 1 or delta == 0):
        sharpest = [_range_question(bounded_range_for(epsilon, delta))]

        def in_epsilon(size: float) -> float:
            # infinity if no bounded range would be seen
            return size if math.isinf(size) else bounded_range_composition_epsilon(delta, size, 1)

    def detectable(cut: Cut, trials: int, confidence: float) -> float:
        # Where a shape has a sharper question, that one says which ε would have been refuted.
        for question in sharpest:
            return in_epsilon(question.detectable(cut, trials, confidence))
        return _detectable_epsilon(epsilon, trials, delta=delta, confidence=confidence)

    def bound(counts: Counts, confidence: float) -> float:
        return epsilon_from_counts(*counts, delta=delta, confidence=confidence)

    of_any = Question(
        metric="epsilon",
        claimed=epsilon,
        cut=partial(epsilon_cut, delta=delta),
        bound=bound,
        detectable=detectable,
    )
    return [*sharpest, of_any]


def audit_mechanism(  # noqa: PLR0913 (each is one choice of the user)
    mechanism: Mechanism,
    *,
    unit: Unit,
    neighbors: NeighboringRelation,
    trust: Trust,
    claim: Guarantee | None = None,
    trials: int = 20_000,
    confidence: float = 0.95,
    level: float = 1e-3,
    score: Score | None = None,
    processes: int = 1,
    simulate_seed: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Return what telling apart many releases of two neighboring inputs shows of a mechanism."""
    # The inputs are `mechanism.worst_case(neighbors)`. A mechanism that is `Repeatable` is repeated
    # and told apart by its own log-ratio; any other is released once per trial, and a score is
    # learned from one trial in ten. Neither can make a bound invalid, for the event is chosen on
    # other trials than those it is counted on.
    # Source: Jagielski, Ullman & Oprea 2020 (the game); docs/auditing.md.
    trials = _validate.integer("trials", trials, at_least=_LEAST_TRIALS)
    processes = _validate.integer("processes", processes, at_least=1)
    sure = Sure.of(confidence, level)
    if simulate_seed is not None:
        _validate.integer("simulate_seed", simulate_seed, at_least=0)
    with _explained_calls(mechanism, "guarantee"):
        own = mechanism.guarantee(unit=unit, neighbors=neighbors, trust=trust)
    if not isinstance(own, Guarantee):
        raise UsageError(
            f"guarantee must return a Guarantee, got {type(own).__name__}; nothing was audited."
        )
    # A unit that the worst case is not about would break a promise nobody made.
    most = getattr(mechanism, "records_per_person", None)
    if unit != "person" and most not in {None, 1}:
        raise UsageError(
            f"With records_per_person={most} the worst case is one person with {most} records, "
            f"so unit={unit!r} cannot be audited and nothing was played. Use unit='person', or a "
            "mechanism without records_per_person."
        )
    for name in ("unit", "neighbors", "trust") if claim is not None else ():
        told, meant = getattr(claim, name), getattr(own, name)
        if told != meant:
            told, meant = (getattr(value, "name", None) or repr(value) for value in (told, meant))
            raise UsageError(
                f"claim is about {name}={told} and the audit is about {meant}: nothing was played. "
                f"Pass the same {name} to both."
            )
    claim = own if claim is None else claim
    if simulate_seed is not None:
        claim = replace(claim, randomness="simulated")
    with _explained_calls(mechanism, "worst_case"):
        case: object = mechanism.worst_case(neighbors)
    if not isinstance(case, WorstCase):
        raise UsageError(
            f"worst_case of {type(mechanism).__name__} must return a WorstCase, got "
            f"{type(case).__name__}; nothing was audited."
        )
    game = _Game(mechanism, case, trials, score, processes, simulate_seed, progress)
    answers: list[_Answer] = []
    lacks: tuple[str, ...] = ()
    if math.isinf(claim.epsilon):
        nothing = "A claim of epsilon=inf promises nothing, so nothing can refute it."
        found, lacks = Finding.skipped(_ATTACK, nothing), (nothing,)
    else:
        with _explained_calls(mechanism, "event"):
            event = mechanism.event
        questions, scores = _questions(event, claim), _play(game)
        sure = sure.shared(len(questions))  # every question may refute
        answers = [one.answer(scores.one, scores.other, sure) for one in questions]
        found = _judged(answers, game, scores)
    return Audit(
        kind="mechanism",
        subject=type(mechanism).__name__,
        claim=claim,
        findings=(found,),
        measured=tuple(answer.shown for answer in answers),
        level=level,
        lacks=lacks,
    )


def _judged(answers: list[_Answer], game: _Game, scores: _Scores) -> Finding:
    ranks = get_args(Outcome)
    decisive = min(answers, key=lambda answer: ranks.index(answer.outcome))
    shown, said = decisive.shown, decisive.said
    limits = ""  # what a game that refutes nothing would have missed
    if shown.power is not None and math.isfinite(shown.power):
        limits = (
            f" {shown.metric} of {never_less(shown.power, 4)} or more would have been detected, "
            "less with more trials."
        )
    if scores.one_direction:
        limits += " Only one direction of the outputs was looked at: pass score=... for another."
    metrics = {
        shown.metric: {
            "event": cut.to_dict(),
            "lower_at_verdict": lower,
            "would_have_refuted": None if shown.power is None else float_to_json(shown.power),
        }
        for cut, shown, lower, _ in answers
    }
    return Finding.judged(
        _ATTACK,
        wrong=decisive.outcome == "refutes",
        odd=decisive.outcome == "warning",
        said=said,
        begins=said[:1].upper() + said[1:],
        sure=100 * decisive.sure,
        limits=limits,
        details={
            "trials": game.trials,
            "selection_share": SELECTION_SHARE,
            "score": scores.score,
            "one_direction": scores.one_direction,
            "randomness": "system" if game.seed is None else "simulated",
            "verdict_confidence": decisive.sure,
            "power": POWER,
            "metrics": metrics,
        },
    )
