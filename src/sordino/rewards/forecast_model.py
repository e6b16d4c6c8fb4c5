"""A world described by public numbers only, to foresee how well a reward can be learned.

Feature differences x have norm about 1 and no preferred direction, so that the reward difference
Δ = θᵀx is normal. Along θ and across it the estimate scatters differently: scatter along θ changes
the scale of the reward, scatter across it the order of the answers. Both ways of a trusted curator
come to one thing: noise on Σ yx tilts the objective by a random linear term, and so does objective
perturbation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import erfc, expit

from sordino import _validate
from sordino.errors import UsageError

from .covariance import debiased_noise, debiased_slope, mixture_information

_STEP = 0.1
_SMALLEST, _LARGEST = -45.0, 2.35  # logarithms of |g|; what lies outside weighs less than 1e-19


@functools.cache
def _rule() -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Return nodes |g| and their weights, g standard normal."""
    # Equal steps in log |g|: the rule converges exponentially and sees every scale, where
    # Gauss–Hermite misses the kink of |g| at 0 and the steep σ of a large reward.
    nodes = np.exp(np.arange(_SMALLEST, _LARGEST, _STEP))
    density = math.sqrt(2 / math.pi) * np.exp(-(nodes**2) / 2)
    return nodes, density * nodes * _STEP


def sizes() -> Float[np.ndarray, " k"]:
    """Return the nodes |g| at which functions are evaluated."""
    return _rule()[0]


def mean(values: Float[np.ndarray, " k"]) -> float:
    """Return the expectation of a function that was evaluated at the nodes."""
    return float(_rule()[1] @ values)


def advantage(spread: float) -> Float[np.ndarray, " k"]:
    """Return σ(|Δ|) − σ(−|Δ|) = tanh(|Δ|/2): what is lost where a pair is put in wrong order."""
    return np.asarray(np.tanh(spread * sizes() / 2))


Method = Literal["debiased", "mixture"]

_NEVER = 1e-12  # chance of a flip below which nothing here changes
_LOG_RANGE = 40.0  # logarithms of the spreads at which a float tells the accuracy from 1/2 and 1


def spread_of(accuracy: float) -> float:
    """Return the standard deviation of Δ at which knowing Δ predicts a judgment this well."""
    # Source: docs/local.md, planning: accuracy = E σ(|Δ|) = ½ + ½ E tanh(|Δ|/2).

    def excess(logarithm: float) -> float:
        return mean(advantage(math.exp(logarithm))) / 2 - (accuracy - 0.5)

    if excess(_LOG_RANGE) <= 0:  # as near to 1 as floats go
        return math.exp(_LOG_RANGE)
    return math.exp(brentq(excess, -_LOG_RANGE, _LOG_RANGE, xtol=1e-14))


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """What an estimate of the weights aims at, and how far one pair lets it scatter around that."""

    # An estimated reward difference at x with g = √d·uᵀx is normal around signal·g, with variance
    # (along·g² + (d − 1)·across)/n.
    # Source: docs/local.md, planning: n·Cov = d·(along·uuᵀ + across·(I − uuᵀ)), u = θ/‖θ‖.

    signal: float  # standard deviation of the reward difference that is aimed at
    along: float  # n/d times the variance of the weight in the direction of θ
    across: float  # n/d times the variance in each of the d − 1 other directions
    dimension: int  # d

    def standard_error(self, n: float) -> float:
        """Return the standard error of a reward difference, x of norm 1 in any direction."""
        # It is that of each weight too, in the quadratic mean over directions.
        # Source: docs/local.md, planning: √(tr Cov/d).
        return math.sqrt((self.along + (self.dimension - 1) * self.across) / n)


def asymptotic_scatter(
    spread: float, flip_probability: float, *, dimension: int, method: Method = "debiased"
) -> Scatter:
    """Return how the estimate scatters when there are many pairs and the ridge is small."""
    # Source: docs/local.md, planning. With x ∼ N(0, I/d) and g = √d·uᵀx, E[w(Δ)xxᵀ] is E[w g²]/d
    # along θ and E[w]/d across it; the covariance is A⁻¹E[p(1 − p)/κ² xxᵀ]A⁻¹ with A = E[σ′xxᵀ], or
    # (E[κ²σ′²/(p(1 − p)) xxᵀ])⁻¹ for the mixture.
    squares = sizes() ** 2
    margins = spread * sizes()
    # Without flips, or with next to none, both are the maximum of the one likelihood.
    if method == "mixture" and flip_probability > _NEVER:
        bend = noise = mixture_information(margins, flip_probability)
    else:
        bend, noise = debiased_slope(margins), debiased_noise(margins, flip_probability)
    return Scatter(
        signal=spread,
        along=mean(noise * squares) / mean(bend * squares) ** 2,
        across=mean(noise) / mean(bend) ** 2,
        dimension=dimension,
    )


def penalized_scatter(spread: float, flip_probability: float, *, dimension: int) -> Scatter:
    """Return how the estimate scatters when the ridge is large: then it is the mean of (ỹ − ½)x."""
    # Such a mean has lost the scale of the reward and kept its direction. Where rewards are large
    # it scatters less than an estimate that must find the scale too.
    # Source: docs/local.md, planning: E (ỹ − ½)x = E[(σ(Δ) − ½)g]·u/√d, and (ỹ − ½)² = 1/(4κ²).
    signal = mean(advantage(spread) * sizes()) / 2
    noise = 1 / (2 * (1 - 2 * flip_probability)) ** 2
    return Scatter(signal=signal, along=noise - signal**2, across=noise, dimension=dimension)


def lost_accuracy(spread: float, scatter: Scatter, n: float) -> float:
    """Return by how much an estimate from n pairs predicts judgments worse than the truth does."""
    # Source: docs/local.md, planning: E[tanh(|Δ|/2)·P(Δ̂ has the wrong sign | Δ)].
    noise = scatter.along * sizes() ** 2 + (scatter.dimension - 1) * scatter.across
    certainty = scatter.signal * sizes() * np.sqrt(n / noise)
    return mean(advantage(spread) * erfc(certainty / math.sqrt(2))) / 2


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """How well a reward would be learned."""

    accuracy: float  # share of new judgments that the learned reward would predict
    # Of an estimated reward difference, features of norm 1; of each weight too. It is that of a fit
    # with a small ridge.
    standard_error: float
    # Smallest number of labels that reaches the target; None without a target, or where no number
    # of labels does.
    labels_needed: int | None


def share_of_judgments(name: str, value: object) -> float:
    """Return value as a float; refuse what is not strictly between guessing and certainty."""
    share = _validate.number(name, value)
    if not 0.5 < share < 1:  # noqa: PLR2004
        raise UsageError(
            f"{name} must be above 0.5 (guessing) and below 1 (certainty), got {value!r}."
        )
    return share


@dataclass(frozen=True, kw_only=True)
class World:
    """What is assumed about people and features."""

    dimension: int  # number of features
    accuracy: float  # share of judgments that the true reward predicts
    spread: float  # standard deviation of true reward differences
    method: Method  # which estimate is made of randomized answers

    @classmethod
    def of(cls, dimension: int, accuracy: float, method: Method) -> World:
        """Return the world in which the true reward predicts judgments this well."""
        share = share_of_judgments("accuracy", accuracy)
        return cls(
            dimension=_validate.integer("dimension", dimension, at_least=1),
            accuracy=share,
            spread=spread_of(share),
            method=_validate.one_of("method", method, get_args(Method)),
        )

    @functools.cached_property
    def free(self) -> tuple[Scatter, Scatter]:
        """Return how fits of judgments as they are scatter: with a small and with a large ridge."""
        return (
            asymptotic_scatter(self.spread, 0.0, dimension=self.dimension),
            penalized_scatter(self.spread, 0.0, dimension=self.dimension),
        )

    def lost(self, fits: Sequence[Scatter], n: float) -> float:
        """Return by how much the best of several fits predicts worse than the truth."""
        return min(lost_accuracy(self.spread, scatter, n) for scatter in fits)


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What can be learned in a world."""

    world: World  # what is assumed
    # From a number of labels to how a fit with a small ridge scatters, of which errors are stated:
    # they are then the same thing in every way.
    small_ridge: Callable[[float], Scatter]
    # From a number of labels to the fits of which the best is taken, for the ridge is chosen on
    # what was released.
    fits: Callable[[float], Sequence[Scatter]]

    def accuracy(self, n: float) -> float:
        """Return the accuracy that is foreseen, at most that of judgments used as they are."""
        # More ridges are looked at where noise is released than where none is, so that a model of
        # both could rank them the wrong way round.
        world = self.world
        return world.accuracy - max(world.lost(self.fits(n), n), world.lost(world.free, n))

    def standard_error(self, n: float) -> float:
        """Return the standard error of a reward difference."""
        return self.small_ridge(n).standard_error(n)

    def effective_judgments(self, n: float) -> float:
        """Return the number of judgments without privacy with the same standard error."""
        free, _ = self.world.free
        return n * (free.standard_error(1) / self.small_ridge(n).standard_error(1)) ** 2

    def labels_needed(self, target: float) -> int | None:
        """Return the smallest number of labels whose accuracy is at least the target."""
        if target >= self.world.accuracy:
            return None
        enough = 1
        while self.accuracy(enough) < target:
            enough *= 2
        too_few = enough // 2
        while enough - too_few > 1:
            middle = (enough + too_few) // 2
            if self.accuracy(middle) < target:
                too_few = middle
            else:
                enough = middle
        return enough

    def predict(self, n: int, target: float | None) -> Prediction:
        """Return everything at once."""
        return Prediction(
            accuracy=self.accuracy(n),
            standard_error=self.standard_error(n),
            labels_needed=None if target is None else self.labels_needed(target),
        )


def without_privacy(world: World) -> Outlook:
    """Return what can be learned from judgments as they are."""
    return Outlook(world=world, small_ridge=lambda _: world.free[0], fits=lambda _: world.free)


_EXACT = 1e-300  # absolute tolerance of a root: the relative one decides


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What a fit with a ridge aims at, and how one pair bends its loss and makes it scatter."""

    # Source: docs/central.md, "Planning": bends B and variances S along θ and across it.

    signal: float  # standard deviation of the reward difference that is aimed at, c·s
    load: float  # λ = Λd/n, the ridge over what a pair weighs in one direction
    bends: tuple[float, float]  # E[σ′(cΔ)g²] and E[σ′(cΔ)]
    variances: tuple[float, float]  # of (y − σ(cΔ))g, and E(y − σ(cΔ))²

    @classmethod
    def of_load(cls, spread: float, load: float) -> Aim:
        """Return the aim of a fit whose ridge weighs so much."""
        # Source: docs/central.md, "Planning": E[(σ(Δ) − σ(cΔ))g] = λcs.

        def excess(share: float) -> float:
            return mean(_missed(spread, share) * sizes()) - load * share * spread

        # Where the ridge weighs nothing that a float could tell, the truth itself is aimed at.
        share = brentq(excess, 0.0, 1.0, xtol=_EXACT) if excess(1.0) < 0 else 1.0
        return cls._at(spread, float(share), load)

    @classmethod
    def of_share(cls, spread: float, share: float) -> Aim:
        """Return the aim of a fit whose ridge leaves this share of the reward."""
        load = mean(_missed(spread, share) * sizes()) / (share * spread)
        return cls._at(spread, share, load)

    @classmethod
    def _at(cls, spread: float, share: float, load: float) -> Aim:
        """Return all expectations."""
        squares, margins = sizes() ** 2, spread * sizes()
        missed = _missed(spread, share)
        bend = expit(share * margins) * expit(-share * margins)
        noise = expit(margins) * expit(-margins) + missed**2
        return cls(
            signal=share * spread,
            load=load,
            bends=(mean(bend * squares), mean(bend)),
            variances=(mean(noise * squares) - mean(missed * sizes()) ** 2, mean(noise)),
        )

    def scatter(self, n: float, *, dimension: int, standard_deviation: float) -> Scatter:
        """Return how far n pairs and the tilt let the fit scatter."""
        # Source: docs/central.md, "Planning": (S + d·σ²/n)/(B + λ)², along θ and across it.
        tilt = dimension * standard_deviation**2 / n
        along, across = (
            (variance + tilt) / (bend + self.load) ** 2
            for variance, bend in zip(self.variances, self.bends, strict=True)
        )
        return Scatter(signal=self.signal, along=along, across=across, dimension=dimension)


def tilted_scatter(
    spread: float, *, n: float, dimension: int, standard_deviation: float, ridge: float
) -> Scatter:
    """Return how the minimizer of a tilted objective with a fixed ridge scatters."""
    # Source: docs/central.md, "Planning".
    aim = Aim.of_load(spread, ridge * dimension / n)
    return aim.scatter(n, dimension=dimension, standard_deviation=standard_deviation)


def _missed(spread: float, share: float) -> Float[np.ndarray, " k"]:
    """Return σ(Δ) − σ(cΔ): what a reward that is too small misses of the chances."""
    margins = spread * sizes()
    gap = np.tanh((1 - share) * margins / 2)
    # tanh(a − b) = (tanh a − tanh b)/(1 − tanh a tanh b), so that nothing cancels near c = 1
    whole, part = np.tanh(margins / 2), np.tanh(share * margins / 2)
    return np.asarray(gap * (1 - whole * part) / 2)
