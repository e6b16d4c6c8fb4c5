"""How well a reward will be learned and what that will cost, from public numbers only.

No data, no ledger: a forecast is asked for before anything is spent. It rests on one assumption,
how well the true reward predicts judgments, and on the model of a world that comes first.

In it feature differences x have norm about 1 and no preferred direction, so that the reward
difference Δ = θᵀx is normal. Along θ and across it the estimate scatters differently: scatter along
θ changes the scale of the reward, scatter across it the order of the answers. Both ways of a
trusted curator come to one thing: noise on Σ yx tilts the objective by a random linear term, and so
does objective perturbation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import erfc, expit

from sordino import _validate
from sordino.errors import UsageError
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL, Guarantee
from sordino.rewards.pair_losses import debiased_noise, debiased_slope

# Nodes |g| and their weights, g standard normal, at equal steps in log |g|: the rule converges
# exponentially and sees every scale, where Gauss–Hermite misses the kink of |g| at 0 and the steep
# σ of a large reward. What lies outside weighs less than 1e-19.
_STEP = 0.1
SIZES: Final = np.exp(np.arange(-45.0, 2.35, _STEP))
_WEIGHTS: Final = math.sqrt(2 / math.pi) * np.exp(-(SIZES**2) / 2) * SIZES * _STEP


def mean(values: Float[np.ndarray, " k"]) -> float:
    """Return the expectation of a function of |g| that was evaluated at :data:`SIZES`."""
    return float(_WEIGHTS @ values)


def advantage(spread: float) -> Float[np.ndarray, " k"]:
    """Return σ(|Δ|) − σ(−|Δ|) = tanh(|Δ|/2): what is lost where a pair is put in wrong order."""
    return np.asarray(np.tanh(spread * SIZES / 2))


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


def asymptotic_scatter(spread: float, flip_probability: float, *, dimension: int) -> Scatter:
    """Return how the estimate scatters when there are many pairs and the ridge is small."""
    # Source: docs/local.md, planning. With x ∼ N(0, I/d) and g = √d·uᵀx, E[w(Δ)xxᵀ] is E[w g²]/d
    # along θ and E[w]/d across it; the covariance is A⁻¹E[p(1 − p)/κ² xxᵀ]A⁻¹ with A = E[σ′xxᵀ].
    squares, margins = SIZES**2, spread * SIZES
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
    signal = mean(advantage(spread) * SIZES) / 2
    noise = 1 / (2 * (1 - 2 * flip_probability)) ** 2
    return Scatter(signal=signal, along=noise - signal**2, across=noise, dimension=dimension)


def lost_accuracy(spread: float, scatter: Scatter, n: float) -> float:
    """Return by how much an estimate from n pairs predicts judgments worse than the truth does."""
    # Source: docs/local.md, planning: E[tanh(|Δ|/2)·P(Δ̂ has the wrong sign | Δ)].
    noise = scatter.along * SIZES**2 + (scatter.dimension - 1) * scatter.across
    certainty = scatter.signal * SIZES * np.sqrt(n / noise)
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


def _share_of_judgments(name: str, value: object) -> float:
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

    @classmethod
    def of(cls, dimension: int, accuracy: float) -> World:
        """Return the world in which the true reward predicts judgments this well."""
        share = _share_of_judgments("accuracy", accuracy)
        return cls(
            dimension=_validate.integer("dimension", dimension, at_least=1),
            accuracy=share,
            spread=spread_of(share),
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
class Way:
    """One way to be private in a world, or none of them: what can be learned, and its promise."""

    world: World  # what is assumed
    # From a number of labels to how a fit with a small ridge scatters, of which errors are stated:
    # they are then the same thing in every way.
    small_ridge: Callable[[float], Scatter]
    # From a number of labels to the fits of which the best is taken, for the ridge is chosen on
    # what was released.
    fits: Callable[[float], Sequence[Scatter]]
    promise: Guarantee | None = None  # to one label or to one record
    # Chance that an answer is not the judgment; None where none is flipped.
    flip_probability: float | None = None

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
            return mean(_missed(spread, share) * SIZES) - load * share * spread

        # Where the ridge weighs nothing that a float could tell, the truth itself is aimed at.
        share = brentq(excess, 0.0, 1.0, xtol=_EXACT) if excess(1.0) < 0 else 1.0
        return cls.of_share(spread, float(share), load)

    @classmethod
    def of_share(cls, spread: float, share: float, load: float | None = None) -> Aim:
        """Return the aim of a fit whose ridge, the load if that is known, leaves this share."""
        squares, margins, missed = SIZES**2, spread * SIZES, _missed(spread, share)
        pulled = mean(missed * SIZES)
        bend = expit(share * margins) * expit(-share * margins)
        noise = expit(margins) * expit(-margins) + missed**2
        return cls(
            signal=share * spread,
            load=pulled / (share * spread) if load is None else load,
            bends=(mean(bend * squares), mean(bend)),
            variances=(mean(noise * squares) - pulled**2, mean(noise)),
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
    margins = spread * SIZES
    gap = np.tanh((1 - share) * margins / 2)
    # tanh(a − b) = (tanh a − tanh b)/(1 − tanh a tanh b), so that nothing cancels near c = 1
    whole, part = np.tanh(margins / 2), np.tanh(share * margins / 2)
    return np.asarray(gap * (1 - whole * part) / 2)


_FEATURE_NORM = 1.0  # of the differences that the model is about; records are clipped there
_SHARES = tuple(1 / (1 + 4.0**power) for power in range(-3, 5))  # of the reward that a ridge leaves


def _local(world: World, epsilon: float, _: float) -> Way:
    """Return noise on labels: every label is randomized by itself."""
    coin = RandomizedResponse(epsilon)
    flip, spread, size = coin.flip_probability, world.spread, world.dimension
    small = asymptotic_scatter(spread, flip, dimension=size)
    fits = small, penalized_scatter(spread, flip, dimension=size)
    return Way(
        world=world,
        small_ridge=lambda _: small,
        fits=lambda _: fits,
        promise=coin.guarantee(unit="label", neighbors=REPLACE_ONE, trust="local"),
        flip_probability=flip,
    )


def _label_central(world: World, epsilon: float, delta: float) -> Way:
    """Return the way of a curator who releases the noised sum of all labels."""
    # The ridge is chosen on the sum, for nothing.
    mechanism = LabelGaussian(epsilon, delta=delta)
    noise = _FEATURE_NORM / mechanism.mu
    small_ridge = _small_ridge(world, noise)
    aims = [Aim.of_share(world.spread, share) for share in _SHARES]

    def fits(n: float) -> list[Scatter]:
        size = world.dimension
        tilted = [aim.scatter(n, dimension=size, standard_deviation=noise) for aim in aims]
        return [small_ridge(n), *tilted]

    return Way(
        world=world,
        small_ridge=small_ridge,
        fits=fits,
        promise=mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central"),
    )


def _record_central(world: World, epsilon: float, delta: float) -> Way:
    """Return the way of a curator who hides whole records: a tilted objective with its ridge."""
    mechanism = ObjectivePerturbation(
        epsilon, delta=delta, bound=_FEATURE_NORM, neighbors=REPLACE_SPECIAL
    )
    noise = mechanism.standard_deviation

    def fits(n: float) -> list[Scatter]:
        d = world.dimension
        ridge = mechanism.ridge_for(n, d)
        return [
            tilted_scatter(world.spread, n=n, dimension=d, standard_deviation=noise, ridge=ridge)
        ]

    return Way(
        world=world,
        small_ridge=_small_ridge(world, noise),
        fits=fits,
        promise=mechanism.guarantee(unit="record", neighbors=REPLACE_SPECIAL, trust="central"),
    )


def _small_ridge(world: World, standard_deviation: float) -> Callable[[float], Scatter]:
    """Return how a fit with next to no ridge scatters, by the number of labels."""
    aim = Aim.of_load(world.spread, 0.0)
    return functools.partial(
        aim.scatter, dimension=world.dimension, standard_deviation=standard_deviation
    )


WAYS: Final[Mapping[str, Callable[[World, float, float], Way]]] = {
    "labels": _local,
    "label-estimate": _label_central,
    "record-estimate": _record_central,
}
"""From a world, epsilon and delta to each way; those with a curator refuse a delta of 0."""

IN_WORDS: Final[Mapping[str, str]] = {
    "labels": "noise on labels",
    "label-estimate": "noise on the estimate, labels hidden",
    "record-estimate": "noise on the estimate, records hidden",
}
"""What each way is called where people read."""


def _offered_ways(
    world: World, epsilon: float, delta: float
) -> tuple[dict[str, Way], dict[str, str]]:
    """Return the ways that keep the privacy loss, and why the others do not."""
    ways = {"labels": WAYS["labels"](world, epsilon, delta)}
    left_out: dict[str, str] = {}
    for name in ("label-estimate", "record-estimate"):
        if delta == 0:
            left_out[name] = "left out, needs delta above 0"
            continue
        try:
            ways[name] = WAYS[name](world, epsilon, delta)
        except UsageError:  # all settings are in range, so there is no such noise
            left_out[name] = (
                f"left out, no noise is known that keeps epsilon={epsilon!r} with delta={delta!r}"
            )
    return ways, left_out


def utility_curve(
    n: int,
    *,
    dimension: int,
    epsilons: Iterable[float],
    accuracy: float = 0.65,
    noise: str = "labels",
    delta: float = 1e-6,
) -> list[dict[str, float]]:
    """Return the accuracy that one way to be private would give at several privacy losses."""
    # Source: docs/local.md, planning; docs/central.md, "Planning".
    n = _validate.integer("n", n, at_least=1)
    world = World.of(dimension, accuracy)
    plan = WAYS[_validate.one_of("noise", noise, tuple(WAYS))]
    losses = [_validate.positive("epsilon", value) for value in epsilons]
    return [{"epsilon": one, "accuracy": plan(world, one, delta).accuracy(n)} for one in losses]


@dataclass(frozen=True, kw_only=True)
class _WayForecast(Prediction):
    """How well a reward would be learned in one way to be private, and what that way promises."""

    # Whose change is hidden: `"label"`, or `"record"`, a label with its prompt and its answers.
    unit: str
    neighbors: str  # what one change is
    epsilon: float  # privacy loss of one label or record, as it would be realized
    delta: float  # by how much a probability may exceed that bound
    odds: float  # e^ε: how far the odds about it can move for anybody who looks, apart from delta
    belief: float  # what a belief of one half about it can become at most, apart from delta
    # Chance that an answer is not the judgment; None where a curator sees judgments as they are.
    flip_probability: float | None
    # Number of judgments that, used as they are, would give the same standard error; at most κ²n
    # with noise on labels.
    effective_judgments: float


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The answer of :func:`estimate`: the question, the assumption, and every way's prediction.

    Attributes:
        n: Number of labels.
        dimension: Number of features.
        epsilon: Privacy loss asked for.
        delta: Failure probability allowed; a way that needs none does not use it.
        assumed_accuracy: How well the true reward is assumed to predict judgments.
        reward_spread: Standard deviation of true reward differences that this means.
        target: Accuracy asked for, if any.
        non_private: What the same labels would give without privacy.
        ways: The prediction of each way to be private, by its name: ``"labels"``,
            ``"label-estimate"``, ``"record-estimate"``.
        left_out: Why a way is not among them, by its name.
    """

    n: int
    dimension: int
    epsilon: float
    delta: float
    assumed_accuracy: float
    reward_spread: float
    target: float | None
    non_private: Prediction
    ways: Mapping[str, _WayForecast]
    left_out: Mapping[str, str]

    @property
    def reachable(self) -> bool:
        """Return whether some number of labels reaches the target; False without a target."""
        return self.target is not None and self.target < self.assumed_accuracy

    @functools.cached_property
    def world(self) -> World:
        """Return what is assumed about people and features."""
        return World.of(self.dimension, self.assumed_accuracy)

    @property
    def best(self) -> str:
        """Return the way with the highest accuracy; of equal ones, that which trusts the least."""
        return max(self.ways, key=lambda name: self.ways[name].accuracy)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON holds it."""
        return asdict(self)


def estimate(
    n: int,
    *,
    dimension: int,
    epsilon: float,
    delta: float = 1e-6,
    accuracy: float = 0.65,
    target: float | None = None,
) -> Forecast:
    """Return how well a reward would be learned from n labels, before anything is spent.

    It reads no data and touches no ledger. Three ways are compared: ``"labels"``, where each label
    is randomized by itself; ``"label-estimate"``, where a curator sees the labels and releases
    their noised sum (:class:`~sordino.mechanisms.label_sum.LabelGaussian`); and
    ``"record-estimate"``, where a curator hides whole records
    (:class:`~sordino.mechanisms.objective_perturbation.ObjectivePerturbation`, a record made
    empty). The prediction is for features without a preferred direction; where texts share a few
    strong features, fewer labels are needed.

    Args:
        n: Number of labels, at least 1.
        dimension: Number of features, at least 1.
        epsilon: Privacy loss of one label or record, > 0, as for
            :class:`sordino.RandomizedResponse`.
        delta: Failure probability allowed. Noise on labels has none and does not use it; the ways
            with a curator are left out where it is 0.
        accuracy: Assumed share of judgments that the true reward predicts, in (0.5, 1). People
            disagree with themselves and with each other, so that no reward predicts all.
        target: Accuracy to be reached, in (0.5, 1), to learn how many labels it needs.

    Raises:
        UsageError: A setting is out of range; nothing was computed.

    Source:
        docs/local.md, planning; docs/central.md, "Planning".

    Example:
        >>> forecast = estimate(20_000, dimension=8, epsilon=1.0, target=0.64)
        >>> round(forecast.ways["labels"].accuracy, 3), forecast.ways["labels"].labels_needed
        (0.649, 1976)
        >>> {name: way.labels_needed for name, way in forecast.ways.items()}
        {'labels': 1976, 'label-estimate': 714, 'record-estimate': 719}
    """
    n = _validate.integer("n", n, at_least=1)
    world = World.of(dimension, accuracy)
    target = None if target is None else _share_of_judgments("target", target)
    epsilon = RandomizedResponse(epsilon).epsilon
    delta = _validate.failure_probability("delta", delta)
    ways, left_out = _offered_ways(world, epsilon, delta)
    as_they_are = Way(world=world, small_ridge=lambda _: world.free[0], fits=lambda _: world.free)
    return Forecast(
        n=n,
        dimension=world.dimension,
        epsilon=epsilon,
        delta=delta,
        assumed_accuracy=world.accuracy,
        reward_spread=world.spread,
        target=target,
        non_private=as_they_are.predict(n, target),
        ways={name: _forecast(way, n, target) for name, way in ways.items()},
        left_out=left_out,
    )


def _forecast(way: Way, n: int, target: float | None) -> _WayForecast:
    """Return what one way would give from n labels."""
    promise = way.promise
    assert promise is not None  # noqa: S101 - for the type checker
    odds = math.inf  # where no float is as large
    with suppress(OverflowError):
        odds = math.exp(promise.epsilon)
    up = 1 + 2.0**-50  # exp and what follows may round a bound down
    return _WayForecast(
        **asdict(way.predict(n, target)),
        unit=promise.unit,
        neighbors=promise.neighbors.name,
        epsilon=promise.epsilon,
        delta=promise.delta,
        odds=odds * up,
        belief=min(1.0, float(expit(promise.epsilon)) * up),
        flip_probability=way.flip_probability,
        effective_judgments=way.effective_judgments(n),
    )
