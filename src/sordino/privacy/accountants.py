"""The two accountants that run dp_accounting: loss distributions and Rényi orders.

Written around what dp_accounting 0.6.0 really does: its Rényi accountant ignores REPLACE_ONE for
Gaussians; its loss-distribution accountant drops the count of randomized response (so
distributions are built and composed here, one by one); ``noise_multiplier`` is the standard
deviation over the bound on the norm of one value, not over the sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from dp_accounting import NeighboringRelation

from ._search import bracket_up, narrow
from .events import (
    EVENTS,
    ApproximateEvent,
    Event,
    GaussianEvent,
    PoissonGaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
    ZeroConcentratedEvent,
)
from .sampled_gaussian import samples, samples_interval, samples_losses
from .support import SUPPORT

__all__ = ["LossDistributionBound", "RenyiBound", "loss_distribution_bound", "renyi_bound"]

_KINDS = {cls: kind for kind, cls in EVENTS.items()}
_CONTINUOUS = (GaussianEvent, PoissonGaussianEvent)
_CELLS = 2**17  # cells of a loss distribution to aim for
_MOST_CELLS = 2**20
_MOST_LOSS = 400.0  # a larger total loss promises nothing and overflows exp
_MOST_DISTINCT = 64
_UP = 1 + 1e-9
_LEAST_MU = 1e-100  # its square is nothing, and its inverse squared still a number


@dataclass(frozen=True)
class LossDistributionBound:
    """A composed loss distribution, with an allowance for the rounding of Fourier transforms."""

    distribution: Any
    allowance: float

    def fits(self, epsilon: float, delta: float) -> bool:
        """Return whether this bound shows (epsilon, delta)."""
        return self.delta(epsilon) <= delta

    def delta(self, epsilon: float) -> float:
        """Return the delta that this bound shows at epsilon."""
        delta = float(self.distribution.get_delta_for_epsilon(epsilon))
        return min(1.0, max(0.0, delta) + self.allowance)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon that this bound shows at delta; infinite if it shows nothing."""
        if self.fits(0.0, delta):
            return 0.0
        if not self.fits(2 * _MOST_LOSS, delta):
            return math.inf
        fails, succeeds = bracket_up(lambda epsilon: self.fits(epsilon, delta), 1.0)
        return narrow(lambda epsilon: self.fits(epsilon, delta), fails, succeeds, rtol=1e-9)[1]


def loss_distribution_bound(
    counts: Mapping[Event, int], neighbors: NeighboringRelation
) -> LossDistributionBound | None:
    """Return the composition of these releases by loss distributions, or None.

    Args:
        counts: How often each event happened.
        neighbors: What one change is.

    Returns:
        None if an event is not supported, or the arrays would be too long.

    Source:
        Sommer, Meiser, Mohammadi (2019); Doroshenko, Ghazi, Kamath, Kumar, Manurangsi (2022), as
        built in dp_accounting 0.6.0 with pessimistic rounding.

    Guarantee:
        an upper bound: losses are rounded up onto the grid, cut tails count as infinite, and 1e-12
        per distribution plus 1e-14 per release is added for the transforms.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415 - slow

    if not _supported(counts, neighbors, "pld") or len(counts) > _MOST_DISTINCT:
        return None
    sizes = [(min(e.mu, _MOST_LOSS), n) for e, n in counts.items() if isinstance(e, GaussianEvent)]
    mu = math.sqrt(sum(n * size**2 for size, n in sizes))
    if any(size > 0 for size, _ in sizes):
        mu = max(mu, _LEAST_MU)  # more is always safe
    atoms = {e: n for e, n in counts.items() if not isinstance(e, _CONTINUOUS)}
    sums, losses = samples(counts), {e: (_loss(e), n) for e, n in atoms.items()}
    rest = _total(losses, mu)
    interval = samples_interval(sums, neighbors, rest) if sums else _interval(losses, mu)
    if interval is None or rest > _MOST_LOSS:
        return None
    total = pld.identity(value_discretization_interval=interval)
    if mu > 0:
        norm = 2.0 if neighbors == NeighboringRelation.REPLACE_ONE else 1.0
        total = total.compose(
            pld.from_gaussian_mechanism(
                standard_deviation=norm / (mu * _UP),
                value_discretization_interval=interval,
                neighboring_relation=neighbors,
            )
        )
    for event, count in atoms.items():
        total = total.compose(_atoms(event, neighbors, interval, pld).self_compose(count))
    for (noise, chance), steps in sums.items():
        total = total.compose(samples_losses(noise, chance, steps, neighbors, interval))
    releases = sum(atoms.values()) + sum(sums.values())
    allowance = 1e-12 * (len(counts) + 1) + 1e-14 * releases
    return LossDistributionBound(total, allowance)


def _atoms(event: Event, neighbors: NeighboringRelation, interval: float, pld: Any) -> Any:
    """Return the loss distribution of one release that is not Gaussian."""
    from dp_accounting.pld.common import DifferentialPrivacyParameters  # noqa: PLC0415 - slow

    if isinstance(event, RandomizedResponseEvent):
        k = event.categories
        if k > 2 or neighbors != NeighboringRelation.REPLACE_ONE:  # noqa: PLR2004
            return pld.from_randomized_response(
                noise_parameter=_noise_parameter(event),
                num_buckets=k,
                value_discretization_interval=interval,
                neighboring_relation=neighbors,
            )
    delta = event.delta if isinstance(event, ApproximateEvent) else 0.0
    parameters = DifferentialPrivacyParameters(_loss(event), delta)
    return pld.from_privacy_parameters(parameters, value_discretization_interval=interval)


def _noise_parameter(event: RandomizedResponseEvent) -> float:
    """Return the chance of a uniform answer, k/(e^ε + k − 1), rounded towards more loss."""
    return event.categories / (math.expm1(event.epsilon) + event.categories) * (1 - 1e-14)


def _loss(event: Event) -> float:
    """Return the largest finite loss of one release that is not Gaussian."""
    if not isinstance(event, PureEvent | ApproximateEvent | RandomizedResponseEvent):
        raise TypeError(type(event).__name__)
    return event.epsilon


def _total(losses: Mapping[Event, tuple[float, int]], mu: float) -> float:
    """Return about the largest loss of all releases but Poisson samples."""
    return sum(loss * count for loss, count in losses.values()) + mu * (mu + 20)


def _interval(losses: Mapping[Event, tuple[float, int]], mu: float) -> float | None:
    """Return the width of a cell, or None if no width would do.

    It is the loss that weighs most, divided by a power of two: repeated releases of that loss
    then lie on the grid exactly, and their composition is exact.
    """
    if _total(losses, mu) > _MOST_LOSS:
        return None
    spans = [min(n * e, n * e * e / 2 + 10 * math.sqrt(n) * e) for e, n in losses.values()]
    width = 2 * (sum(spans) + mu * mu / 2 + 10 * mu) / _CELLS
    if width == 0:
        return None
    heaviest = max(losses.values(), key=lambda pair: pair[0] * pair[1], default=(width, 1))[0]
    heaviest = heaviest or width
    interval = heaviest / 2.0 ** max(1, math.ceil(math.log2(heaviest / width)))
    if interval == 0:  # the loss is so small that half of it is no float
        return None
    largest = max([loss for loss, _ in losses.values()], default=0.0)
    too_long = 2 * largest / interval > _MOST_CELLS or 20 * mu / interval > _MOST_CELLS
    return None if too_long else interval


@dataclass(frozen=True)
class RenyiBound:
    """Rényi losses at many orders; every order gives a bound, so the least counts."""

    orders: np.ndarray
    losses: np.ndarray

    def fits(self, epsilon: float, delta: float) -> bool:
        """Return whether this bound shows (epsilon, delta)."""
        return self.delta(epsilon) <= delta

    def delta(self, epsilon: float) -> float:
        """Return the delta that this bound shows at epsilon."""
        less = self.orders - 1
        logs = less * (self.losses - epsilon + np.log1p(-1 / self.orders)) - np.log(self.orders)
        return float(min(1.0, math.exp(min(0.0, float(logs.min()))) * _UP))

    def epsilon(self, delta: float) -> float:
        """Return the epsilon that this bound shows at delta; infinite if it shows nothing."""
        if delta == 0:
            return math.inf
        odds = (math.log(delta) + np.log(self.orders)) / (self.orders - 1)
        least = float((self.losses + np.log1p(-1 / self.orders) - odds).min())
        return max(0.0, least * _UP) if least < math.inf else math.inf


def renyi_bound(counts: Mapping[Event, int], neighbors: NeighboringRelation) -> RenyiBound | None:
    """Return the composition of these releases by Rényi orders, or None if one is unsupported.

    Args:
        counts: How often each event happened.
        neighbors: What one change is.

    Returns:
        None if an event is not supported: under REPLACE_ONE every Gaussian.

    Source:
        Mironov (2017), Proposition 1; Canonne, Kamath, Steinke (2020), Proposition 12, with the
        Rényi losses of dp_accounting 0.6.0.

    Guarantee:
        an upper bound: the losses are raised by more than the rounding of the logarithms that they
        come from.
    """
    import dp_accounting as dp  # noqa: PLC0415 - only where it runs
    from dp_accounting.rdp import RdpAccountant  # noqa: PLC0415 - slow

    if not _supported(counts, neighbors, "rdp"):
        return None
    accountant = RdpAccountant(neighboring_relation=neighbors)
    for event, count in counts.items():
        translated = _translated(event, dp)
        if translated is not None:
            accountant.compose(translated, count)
    orders = accountant.orders
    kept = orders > 1.05  # noqa: PLR2004 - near order 1 the conversion is unstable and useless
    orders = orders[kept]
    rounding = 1e-14 * sum(counts.values()) / (orders - 1)
    return RenyiBound(orders, accountant.rdp[kept] * _UP + rounding)


def _translated(event: Event, dp: Any) -> Any:
    """Return the event that dp_accounting knows, or None if there is no loss."""
    if isinstance(event, GaussianEvent):
        mu = max(event.mu * _UP, _LEAST_MU)  # more is always safe
        return dp.GaussianDpEvent(1 / mu) if event.mu > 0 else None
    if isinstance(event, ZeroConcentratedEvent):
        return dp.ZCDpEvent(event.rho)
    if isinstance(event, RandomizedResponseEvent):
        return dp.RandomizedResponseDpEvent(_noise_parameter(event), event.categories)
    raise TypeError(type(event).__name__)


def _supported(
    counts: Mapping[Event, int], neighbors: NeighboringRelation, accountant: str
) -> bool:
    """Return whether an accountant supports every event under the relation."""
    return all(SUPPORT[_KINDS[type(event)], neighbors, accountant][0] for event in counts)
