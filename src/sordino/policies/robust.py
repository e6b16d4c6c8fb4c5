"""The stochastic policy whose worst case is best, among all policies over given candidates.

With a KL penalty it is the Gibbs policy of one reward. What certifies it bounds how much better any
policy could be, and needs no knowledge of the best one. Contexts to choose
in come first, as numbers.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Integer
from scipy import sparse
from scipy.sparse import issparse
from scipy.special import xlogy

from sordino import _validate
from sordino._validate import Vector
from sordino.errors import ConvergenceError, DataError, PrivacyError, UsageError
from sordino.preferences.features import Features
from sordino.privacy.guarantee import Guarantee
from sordino.rewards.candidates import CandidateLists, Candidates, Prompts, ReferenceLists
from sordino.rewards.confidence import AnswersNeeded

from .gibbs import ReleasedReward, drawn_indices, scale_label, tilt
from .worst_case import (
    Ellipsoidal,
    FlowProgram,
    PlausibleRewards,
    Response,
    best_mixture,
    one_for_each_feature,
    reach_of,
    refuse_gap,
    second_order_rows,
    solve_conic,
    solve_flows,
    stated,
)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Contexts:
    """All m candidates of n contexts below each other, with where a policy starts from."""

    rows: Any  # features of all candidates, shape (m, d), dense or sparse
    sizes: Integer[np.ndarray, " n"]  # how many candidates each context has, ≥ 1
    # Probabilities of the starting policy, summing to 1 in every context.
    reference: Float[np.ndarray, " m"]
    weights: Float[np.ndarray, " n"]  # how often each context comes, summing to 1

    @classmethod
    def of(
        cls,
        prompts: Prompts,
        candidates: CandidateLists,
        *,
        reference: ReferenceLists = None,
        weights: object = None,
        features: Features | None = None,
    ) -> Contexts:
        """Return checked contexts."""
        options = Candidates.of(prompts, candidates, reference=reference, features=features)
        base = options.reference
        totals = np.repeat(np.add.reduceat(base, options.starts), options.sizes)
        rows, n = options.given, len(options.sizes)
        if features is not None:
            rows = features.transform(options.prompts, options.answers)
        shares = np.full(n, 1 / n)
        if weights is not None:
            given = _validate.finite_array("weights", weights, ndim=1)
            if len(given) != n:
                raise DataError(
                    f"weights must have one entry for each of {n} contexts, got {len(given)}."
                )
            if (given < 0).any() or not given.sum() > 0:
                raise DataError("weights must be at least 0, and not all 0.")
            shares = given / given.max() / (given / given.max()).sum()
        return cls(rows=rows, sizes=options.sizes, reference=base / totals, weights=shares)

    def __len__(self) -> int:
        """Return n, the number of contexts."""
        return len(self.sizes)

    @cached_property
    def starts(self) -> Integer[np.ndarray, " n"]:
        """Where each context's candidates begin."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    @cached_property
    def spread(self) -> Float[np.ndarray, " m"]:
        """The weight of every candidate's context."""
        return np.repeat(self.weights, self.sizes)

    def split(self, values: Float[np.ndarray, " m"]) -> list[Float[np.ndarray, " _"]]:
        """Return one array for each context."""
        return np.split(values, self.starts[1:])

    def best_response(self, theta: Float[np.ndarray, " d"]) -> Response:
        """Return the mean features of the greedy policy, and which candidates it chooses."""
        # Source: docs/planning.md, "Frank–Wolfe by best responses".
        scores = self.rows @ theta
        if bool(np.all(self.sizes == self.sizes[0])):
            best = scores.reshape(len(self), -1).argmax(axis=1)
            chosen = np.asarray(self.starts + best)
        else:  # the first of the best
            top = np.repeat(np.maximum.reduceat(scores, self.starts), self.sizes)
            places = np.where(scores == top, np.arange(len(scores)), len(scores))
            chosen = np.asarray(np.minimum.reduceat(places, self.starts))
        return np.asarray(self.weights @ self.rows[chosen]), chosen

    def start(self) -> Response:
        """Return the mean features of the reference policy, and its probabilities."""
        return self.moments(self.reference), self.reference

    def moments(self, chances: Float[np.ndarray, " m"]) -> Float[np.ndarray, " d"]:
        """Return the mean features of a policy."""
        return np.asarray((self.spread * chances) @ self.rows)

    def means(self, chances: Float[np.ndarray, " m"]) -> Float[np.ndarray, "n d"]:
        """Return a policy's mean features in every context."""
        weighted = _scaled(self.rows, chances)
        if issparse(weighted):
            ends = np.append(self.starts, len(chances))
            sums = sparse.csr_array((np.ones(len(chances)), np.arange(len(chances)), ends))
            return np.asarray((sums @ weighted).toarray())
        return np.asarray(np.add.reduceat(weighted, self.starts, axis=0))

    def mixed(
        self, weights: Float[np.ndarray, " j"], policies: tuple[Any, ...]
    ) -> Float[np.ndarray, " m"]:
        """Return the probabilities of following each policy as often as the weights say."""
        total = np.zeros(len(self.reference))
        for weight, policy in zip(weights, policies, strict=True):
            if policy.dtype.kind == "f":
                total += weight * policy
            else:
                total[policy] += weight
        return np.asarray(total / np.repeat(np.add.reduceat(total, self.starts), self.sizes))

    def kl(self, chances: Float[np.ndarray, " m"]) -> float:
        """Return KL(policy ‖ reference), the mean over contexts, in nats."""
        return max(float(self.spread @ self.divergences(chances)), 0.0)

    def divergences(self, chances: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Return p log(p / reference) of every candidate: summed up, the KL of a context."""
        return np.asarray(xlogy(chances, chances) - xlogy(chances, self.reference))

    def soft(
        self, theta: Float[np.ndarray, " d"], temperature: float
    ) -> tuple[float, Float[np.ndarray, " m"]]:
        """Return the largest θᵀφ − temperature · KL on average, and the policy that has it."""
        # Source: docs/planning.md, "With a KL penalty": the Gibbs policy, and its log-sum-exp.
        scores = np.asarray(self.rows @ theta)
        top = np.maximum.reduceat(scores, self.starts)
        weights = self.reference * np.exp((scores - np.repeat(top, self.sizes)) / temperature)
        logs = np.log(np.add.reduceat(weights, self.starts))
        value = float(self.weights @ (top + temperature * logs))
        return value, tilt(scores, self.starts, temperature, self.reference)

    def covariance(self, chances: Float[np.ndarray, " m"]) -> Float[np.ndarray, "d d"]:
        """Return the mean over contexts of the covariance of the features under a policy."""
        # Source: docs/planning.md, "With a KL penalty".
        second = self.rows.T @ _scaled(self.rows, self.spread * chances)
        means = self.means(chances)
        second = second.toarray() if issparse(second) else second
        return np.asarray(second - means.T @ (self.weights[:, None] * means))


def _scaled(rows: Any, factors: Float[np.ndarray, " m"]) -> Any:
    """Return every row times its factor, dense or sparse as it was."""
    return rows.multiply(factors[:, None]).tocsr() if issparse(rows) else factors[:, None] * rows


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class WorstCaseResult:
    """What certifies a policy whose worst case is best; using it is free."""

    # The least mean reward over all rewards that may be true, relative to the reference vector,
    # less temperature · KL where there is a temperature.
    value: float
    upper: float  # what no policy exceeds in the worst case
    theta: Vector  # the reward that shows `upper`, shape (d,)
    confidence: float  # how often the confidence set holds the true reward
    radius_scale: float = 1.0  # what its radius was multiplied by; below 1 nothing is proved
    # What the release behind the reward promises; None for a bare confidence set.
    guarantee: Guarantee | None = None
    # Until the value is above 0; None of a set that is not one of a fit.
    needed: AnswersNeeded | None = None

    @property
    def gap(self) -> float:
        """How much a better policy could gain in the worst case, at most."""
        return max(self.upper - self.value, 0.0)

    @property
    def label(self) -> str:
        """``"valid"``, or ``"heuristic scale ..."`` for a radius smaller than the proved one."""
        return scale_label(self.radius_scale)

    @property
    def warning(self) -> str:
        """Say that nothing is certain, and what it takes; empty where something is."""
        return "" if self.needed is None or self.needed.times <= 1 else f". {self.needed}"

    def to_dict(self) -> dict[str, Any]:
        """Return what certifies the policy, as JSON holds it."""
        return {
            "value": self.value,
            "gap": self.gap,
            "confidence": self.confidence,
            "radius_scale": self.radius_scale,
            "label": self.label,
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
            "answers_needed": self.needed and self.needed.answers,
            "said": self.needed and str(self.needed),
        }


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class _StochasticPolicy(WorstCaseResult):
    """Probabilities of all candidates of given contexts; worst-case optimal up to the gap."""

    # Made by `robust_policy`, from what was released: using it is free.

    # For every context the probabilities of its candidates.
    probabilities: tuple[Float[np.ndarray, " _"], ...]
    # What the best policy gains over this one at most if the true reward is in the confidence set.
    certificate: float
    temperature: float | None = None  # KL strength, or None

    def __repr__(self) -> str:
        soft = "" if self.temperature is None else f", temperature={self.temperature:g}"
        return (
            f"StochasticPolicy({len(self.probabilities)} contexts, value={self.value:.6g}, "
            f"gap={self.gap:.2g}, certificate={self.certificate:.6g}, "
            f"confidence={self.confidence:g}{soft}, {self.label}{self.warning})"
        )

    def draw(self, *, simulate_seed: int | None = None) -> Integer[np.ndarray, " n"]:
        """Return, for every context, the index of one candidate drawn from the policy."""
        # Guarantee: Drawing spends nothing: the probabilities were computed from what was released.
        # tests/unit/policies/test_robust.py.
        return drawn_indices(self.probabilities, simulate_seed)


_BLOCK = 1 << 16  # candidates whose features are made dense at once


def certified_suboptimality(
    rewards: PlausibleRewards,
    contexts: Contexts,
    chances: Float[np.ndarray, " m"],
    *,
    temperature: float | None = None,
) -> float:
    """Return what the best policy gains over this one at most, on average over contexts."""
    # Valid for every true reward in the set, hence as often as the confidence says. It says nothing
    # of the best policy, which nobody knows.
    # Source: docs/planning.md, "Certificate": max_a θ̂ᵀ(φ_a − φ̄) + radius·‖φ_a − φ̄‖_{M⁻¹}; with a
    # penalty, temperature · (log Σ reference · exp(that / temperature) + KL).
    means = contexts.means(chances)
    place = np.repeat(np.arange(len(contexts)), contexts.sizes)
    gains = np.empty(len(chances))
    for first in range(0, len(chances), _BLOCK):
        here = slice(first, first + _BLOCK)
        rows = contexts.rows[here]
        dense = rows.toarray() if sparse.issparse(rows) else rows
        gains[here] = rewards.most(dense - means[place[here]])
    top = np.maximum.reduceat(gains, contexts.starts)
    if temperature is not None:
        tilted = np.exp((gains - np.repeat(top, contexts.sizes)) / temperature)
        soft = np.log(np.add.reduceat(contexts.reference * tilted, contexts.starts))
        kl = np.add.reduceat(contexts.divergences(chances), contexts.starts)
        top = top + temperature * (soft + kl)
    return max(float(contexts.weights @ top), 0.0)


_COOLING = 5.0
_COARSE = 0.05  # of a temperature on the way: how exactly it is solved


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Certified:
    """A policy, its worst case less the penalty, and what no policy exceeds."""

    chances: Float[np.ndarray, " m"]  # probabilities of all candidates
    theta: Vector  # the reward that shows `upper`
    value: float  # the least θᵀq over the set, less temperature · KL
    upper: float  # what no policy exceeds


def _best_tempered(
    rewards: PlausibleRewards,
    contexts: Contexts,
    *,
    temperature: float,
    reference_vector: Vector,
    gap: float = 1e-4,
) -> _Certified:
    """Return the policy that is best in the worst case less temperature · KL, up to the gap."""
    # Source: docs/planning.md, "With a KL penalty": minimize the log-sum-exp over the set of
    # rewards by Newton steps; the gradient there is the mean features of the Gibbs policy.
    wanted = _validate.positive("gap", gap)

    def state(theta: Vector, level: float) -> _Certified:
        """Return the Gibbs policy of a reward, with its value and the bound."""
        soft, chances = contexts.soft(theta, level)
        worst = rewards.worst(contexts.moments(chances) - reference_vector).value
        return _Certified(
            chances=chances,
            theta=theta,
            value=worst - level * contexts.kl(chances),
            upper=soft - float(theta @ reference_vector),
        )

    theta = rewards.inner
    spread = float(np.ptp(contexts.rows @ theta))
    levels = [_validate.positive("temperature", temperature)]  # falling, to the one asked for
    while levels[-1] * _COOLING < spread:
        levels.append(levels[-1] * _COOLING)
    for level in reversed(levels):
        aim = wanted if level == temperature else max(wanted, _COARSE * level)
        for _ in range(100):  # at one temperature; about five are needed
            found = state(theta, level)
            if found.upper - found.value <= aim:
                break
            theta = _newton_step(rewards, contexts, reference_vector, found, level)
            if theta is found.theta:
                break
    if found.upper - found.value <= wanted:
        return found
    raise ConvergenceError(
        f"gap={gap!r} could not be certified at temperature={temperature!r}: "
        f"{found.upper - found.value:.3g} was reached. No policy was returned. Allow a larger "
        "gap, or take a higher temperature, or None for no penalty."
    )


def _newton_step(
    rewards: PlausibleRewards, contexts: Contexts, offset: Vector, found: _Certified, level: float
) -> Vector:
    """Return a reward with a lower bound than the one found; the same if rounding allows none."""
    theta, before = found.theta, found.upper
    gradient = contexts.moments(found.chances) - offset
    curvature = contexts.covariance(found.chances) / level
    # the minimizer over the set of the second-order expansion at theta
    reach = reach_of(rewards)
    turn = rewards.axes * reach
    moved = rewards.axes.T @ theta - rewards.middle
    z = np.divide(moved, reach, out=np.zeros_like(reach), where=reach > 0)
    square, linear = turn.T @ curvature @ turn, turn.T @ gradient
    size = max(float(abs(square).max()), float(abs(linear).max()), np.finfo(float).tiny)
    cost = (linear - square @ z) / size
    x, _ = solve_conic(cost, second_order_rows(rewards, len(z)), quadratic=square / size)
    way = rewards.pulled(rewards.axes @ (rewards.middle + reach * x)) - theta
    slope = float(gradient @ way)
    for share in 0.5 ** np.arange(40):
        tried = theta + share * way
        after = contexts.soft(tried, level)[0] - float(tried @ offset)
        if after <= before + 1e-4 * share * slope and after < before:
            return np.asarray(tried)
    return theta


Solver = Literal["frank-wolfe", "cone-program"]
_ContextSolver = Literal["frank-wolfe", "cone-program", "smoothing"]
_SOLVERS = (None, "frank-wolfe", "cone-program", "smoothing")
_MANY = 64  # features above which best responses are too many, and smoothing is faster
_DIGITS = 1e-9  # what an interior-point solver gives less is given nothing


def robust_policy(  # noqa: PLR0913 (each is one choice of the user)
    reward: ReleasedReward | Ellipsoidal,
    prompts: Prompts,
    candidates: CandidateLists,
    *,
    confidence: float = 0.95,
    radius_scale: float = 1.0,
    reference: ReferenceLists = None,
    weights: object = None,
    reference_vector: object = "reference",
    temperature: float | None = None,
    within_ball: bool = True,
    gap: float = 1e-4,
    solver: _ContextSolver | None = None,
) -> _StochasticPolicy:
    """Return the policy whose least mean reward, over all that may be true, is largest.

    Over all stochastic policies, not only those that tilt a score: the best one spreads over
    candidates whose errors cancel. Only the mean over contexts is judged, so contexts insure
    each other.

    Source:
        docs/planning.md, "The problem".

    Args:
        reward: A :class:`sordino.RewardModel` with a confidence set, or the set itself.
        prompts: n prompts; None for candidates that are features.
        candidates: n lists of texts, or n arrays of features, shape (k, d).
        confidence: How often the confidence set holds the true reward, in (0, 1).
        radius_scale: What its radius is multiplied by, ≥ 0; below 1 is a heuristic, marked so.
        reference: n lists of probabilities of the starting policy; uniform if left out.
        weights: How often each context comes; all alike if left out.
        reference_vector: What mean features are compared with: ``"reference"``, those of the
            starting policy; or an array of shape (d,); or None for nothing.
        temperature: KL strength against the starting policy, in units of reward; None for none.
        within_ball: Also use that the true reward lies in the ball that the set assumes.
        gap: What the worst case may fall short of the best one, in units of reward, > 0.
        solver: Without a temperature: ``"frank-wolfe"``, by default up to 64 features;
            ``"smoothing"``, by default above: a temperature that costs no more than the gap; or
            ``"cone-program"``, exact, for small problems. With one there is one way.

    Raises:
        UsageError: A setting is out of range, the reward keeps no ellipsoid, no reward is left,
            or nothing bounds the worst case.
        DataError: Lengths disagree, a list is empty, or a reference is no distribution.
        PrivacyError: The reward is not a released one.
        ConvergenceError: The gap could not be certified in floats.
    """
    known = confidence_ellipsoid_of(reward)
    features = reward.features if isinstance(reward, ReleasedReward) else None
    contexts = Contexts.of(
        prompts, candidates, reference=reference, weights=weights, features=features
    )
    if contexts.rows.shape[1] != len(known.center):
        raise DataError(
            f"candidates must have {len(known.center)} features, got {contexts.rows.shape[1]}."
        )
    plausible = PlausibleRewards.of(
        known, confidence=confidence, radius_scale=radius_scale, within_ball=within_ball
    )
    offset = vector_of(reference_vector, contexts.start()[0])
    _validate.one_of("solver", solver, _SOLVERS)
    _validate.positive("gap", gap)
    strength = None if temperature is None else _validate.positive("temperature", temperature)
    found = _solved(plausible, contexts, offset, strength, gap, solver)
    return _StochasticPolicy(
        probabilities=tuple(contexts.split(found.chances)),
        value=found.value,
        upper=found.upper,
        certificate=certified_suboptimality(
            plausible, contexts, found.chances, temperature=strength
        ),
        theta=found.theta,
        temperature=strength,
        **stated(reward, plausible, contexts.best_response, offset, certain=found.value > gap),
    )


def _context_program(contexts: Contexts) -> FlowProgram:
    """Return the program over all probabilities of all candidates."""
    # Source: docs/planning.md, "Two solvers".
    m, n = len(contexts.reference), len(contexts)
    return FlowProgram(
        features=sparse.diags_array(contexts.spread) @ sparse.csr_array(contexts.rows),
        constraints=sparse.csr_array(
            (np.ones(m), np.arange(m), np.append(contexts.starts, m)), shape=(n, m)
        ),
        totals=np.ones(n),
    )


def confidence_ellipsoid_of(reward: object) -> Ellipsoidal:
    """Return the ellipsoid that a reward keeps; refuse one that keeps none."""
    if isinstance(reward, Ellipsoidal):
        return reward
    if not isinstance(reward, ReleasedReward):
        raise PrivacyError(
            "A policy needs a RewardModel from fit_reward, or its ellipsoid, got "
            f"{type(reward).__name__}."
        )
    known = getattr(reward, "ellipsoid", None)
    if known is None:
        raise UsageError(
            "This reward keeps no ellipsoid, so nothing says how wrong it may be. Fit it with "
            "fit_reward(..., ellipsoid=True), on the command line sordino align --confidence 0.95."
        )
    found: Ellipsoidal = known
    return found


def vector_of(reference_vector: object, reference: Vector) -> Vector:
    """Return the vector that mean features are compared with."""
    # Source: docs/planning.md, "The reference vector".
    if reference_vector is None:
        return np.zeros_like(reference)
    if isinstance(reference_vector, str):
        _validate.one_of("reference_vector", reference_vector, ("reference",))
        return reference
    return one_for_each_feature("reference_vector", reference_vector, len(reference))


def _solved(
    plausible: PlausibleRewards,
    contexts: Contexts,
    offset: Vector,
    temperature: float | None,
    gap: float,
    solver: str | None,
) -> _Certified:
    """Return the policy of one solver, with the value of what is handed out."""
    if temperature is None and solver is None:
        if len(offset) > _MANY:
            with suppress(ConvergenceError):
                return _solved(plausible, contexts, offset, temperature, gap, "smoothing")
        solver = "frank-wolfe"
    if temperature is None and solver == "cone-program":
        program = _context_program(contexts)
        found, theta = solve_flows(plausible, program, reference_vector=offset)
    elif temperature is None and solver == "frank-wolfe":
        mix = best_mixture(
            plausible,
            contexts.best_response,
            reference_vector=offset,
            start=(contexts.start(),),
            gap=gap,
        )
        policies = tuple(policy for _, policy in mix.responses)
        found, theta = contexts.mixed(mix.weights, policies), mix.theta
    else:
        level, share = temperature, gap
        if level is None:  # a penalty of at most half the gap: divided by the largest KL there is
            level = gap / 2 / max(float(-np.log(contexts.reference.min())), 1e-3)
            share = gap / 2
        soft = _best_tempered(
            plausible, contexts, temperature=level, reference_vector=offset, gap=share
        )
        found, theta = soft.chances, soft.theta
    kept = np.where(found < _DIGITS, 0.0, found)  # without the rounding of zeros
    chances = kept / np.repeat(np.add.reduceat(kept, contexts.starts), contexts.sizes)
    value = plausible.worst(contexts.moments(chances) - offset).value
    if temperature is None:
        upper = float(contexts.best_response(theta)[0] @ theta) - float(theta @ offset)
    else:
        upper = contexts.soft(theta, temperature)[0] - float(theta @ offset)
        value -= temperature * contexts.kl(chances)
    if solver == "cone-program":
        refuse_gap(upper, value, gap)
    return _Certified(chances=chances, value=value, upper=upper, theta=theta)
