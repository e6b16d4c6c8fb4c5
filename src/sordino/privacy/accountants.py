"""The two accountants that run dp_accounting, and which of them supports which event, and why not.

Written around what dp_accounting 0.6.0 really does: its Rényi accountant ignores REPLACE_ONE for
Gaussians; its loss-distribution accountant drops the count of randomized response (so
distributions are built and composed here, one by one); ``noise_multiplier`` is the standard
deviation over the bound on the norm of one value, not over the sensitivity. What one change does at
worst to noised sums of Poisson samples is proved in docs/privacy.md, "Poisson-sampled Gaussian";
settings that dp_accounting cannot compute with are moved to where more is lost: less noise, more
sampling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

from .closed_forms import Shown
from .events import (
    EVENTS,
    KINDS,
    ApproximateEvent,
    Event,
    GaussianEvent,
    PoissonGaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
    ZeroConcentratedEvent,
)
from .gaussian import bracket_up, narrow
from .guarantee import NeighboringRelation

Samples = Mapping[tuple[float, float], int]
"""(noise multiplier, sampling probability) → how many sums."""

_MOST_NOISE = 1e6
_LEAST_CHANCE = 1e-6  # from here on log(1 − q) is precise enough to be told from a loss
_WIDEST = 1e-4
_NARROWEST = 1e-6  # rounding of masses is 1e-16 over the width
_MOST_CELLS = 2**18
_MOST_LOSS = 400.0  # a larger loss promises nothing and overflows exp
_TAIL = 10.5  # standard deviations until nothing is left


def samples(counts: Mapping[Event, int]) -> Samples:
    """Return how many sums there were of each noise and chance, within what can be computed."""
    found: dict[tuple[float, float], int] = {}
    for event, count in counts.items():
        if isinstance(event, PoissonGaussianEvent):
            chance = max(event.sampling_probability, _LEAST_CHANCE)
            key = (
                min(event.noise_multiplier, _MOST_NOISE),
                chance if chance <= 1 - _LEAST_CHANCE else 1.0,
            )
            found[key] = found.get(key, 0) + count * event.steps
    return found


def _samples_interval(
    sums: Samples, neighbors: NeighboringRelation, rest: float = 0.0
) -> float | None:
    """Return the width of a cell, or None if no width would do."""
    norm = 2.0 if neighbors == NeighboringRelation.REPLACE_ONE else 1.0
    span, interval = 2 * rest, _WIDEST
    for (noise, chance), steps in sums.items():
        farthest = (_TAIL + norm / noise) / noise * norm
        if farthest > _MOST_LOSS:
            return None
        typical = norm * chance * math.sqrt(math.expm1(min(noise**-2, 500.0)))
        mean = min(chance * (norm / noise) ** 2 / 2, typical**2)
        span += farthest + steps * mean + _TAIL * math.sqrt(steps) * min(typical, farthest)
        interval = min(interval, typical / 16)
        if steps * mean > _MOST_LOSS or steps * min(typical, farthest) > _MOST_CELLS:
            return None
    # A power of two, so that the searches for a budget's rest find their distributions again.
    interval = 2.0 ** math.ceil(math.log2(max(interval, _NARROWEST, span / _MOST_CELLS)))
    # No cell may end so near log(1 − q) that dp_accounting takes it for that loss.
    last = [-math.log1p(-chance) for _, chance in sums if chance < 1]
    while any(math.isclose(cells := loss / interval, round(cells), rel_tol=1e-8) for loss in last):
        interval *= 1 + 1e-6
    return interval


@lru_cache(maxsize=4)
def samples_losses(
    noise: float, chance: float, steps: int, neighbors: NeighboringRelation, interval: float
) -> Any:
    """Return the loss distribution of so many sums, as dp_accounting holds it.

    Guarantee:
        dominates each of ``steps`` such sums, chosen adaptively, under the relation.
    """
    # Source: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi (2022), Algorithm 1 (connect the dots);
    # docs/privacy.md, "Poisson-sampled Gaussian".
    from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415 - slow

    one = pld.from_gaussian_mechanism(
        standard_deviation=noise,
        sampling_prob=chance,
        value_discretization_interval=interval,
        neighboring_relation=_theirs(neighbors),
    )
    return one.self_compose(steps)


ACCOUNTANTS = ("closed", "pld", "rdp")

_NO_COIN = (
    "randomized response reveals that there was a label, so adding or removing a record is "
    "unprotected"
)
_SAMPLED = "RdpAccountant is looser for Poisson samples, and does not know REPLACE_ONE"
_UNKNOWN = "dp_accounting 0.6.0 has no such event"
_UNDER_REPORTED = "RdpAccountant ignores REPLACE_ONE for Gaussians and under-reports"
_CLOSED = "closed form"
_TRANSLATED = "translated for dp_accounting"


def _theirs(neighbors: NeighboringRelation) -> Any:
    """Return the relation as dp_accounting has it."""
    import dp_accounting as dp  # noqa: PLC0415 - only where it runs

    return dp.NeighboringRelation[neighbors.name]


def _why_not(kind: str, neighbors: NeighboringRelation, accountant: str) -> str:
    """Return why a cell is unsupported, or nothing if it is supported."""
    replaced = neighbors == NeighboringRelation.REPLACE_ONE
    reasons = {
        "non-private": "its spend is infinite, which needs no accountant",
        "bounded-range": _UNKNOWN,
    }
    if accountant == "pld":
        reasons["zero-concentrated"] = "a bound on all Rényi orders has no loss distribution"
    elif accountant == "rdp":
        reasons |= {"pure": _UNKNOWN, "approximate": _UNKNOWN, "poisson-gaussian": _SAMPLED}
        if replaced:
            reasons["gaussian"] = _UNDER_REPORTED
    else:
        reasons = {}
    if neighbors == NeighboringRelation.ADD_OR_REMOVE_ONE:
        reasons["randomized-response"] = _NO_COIN
    return reasons.get(kind, "")


def _table() -> dict[tuple[str, NeighboringRelation, str], tuple[bool, str]]:
    cells = {}
    for kind, neighbors, accountant in product(EVENTS, NeighboringRelation, ACCOUNTANTS):
        why_not = _why_not(kind, neighbors, accountant)
        why = _CLOSED if accountant == "closed" else _TRANSLATED
        cells[kind, neighbors, accountant] = (not why_not, why_not or why)
    return cells


SUPPORT: Mapping[tuple[str, NeighboringRelation, str], tuple[bool, str]] = MappingProxyType(
    _table()
)
"""(event kind, relation, accountant) → (supported, why)."""


def support_table() -> list[dict[str, str | bool]]:
    """Return the support table as rows that print: event, relation, accountant, supported, why."""
    return [
        {
            "event": kind,
            "relation": neighbors.name,
            "accountant": accountant,
            "supported": supported,
            "why": why,
        }
        for (kind, neighbors, accountant), (supported, why) in SUPPORT.items()
    ]


_CONTINUOUS = (GaussianEvent, PoissonGaussianEvent)
_CELLS = 2**17  # cells of a loss distribution to aim for
_MOST_GRID_CELLS = 2**20
_MOST_DISTINCT = 64
_UP = 1 + 1e-9
_LEAST_MU = 1e-100  # its square is nothing, and its inverse squared still a number


@dataclass(frozen=True)
class _LossDistributionBound(Shown):
    """A composed loss distribution, with an allowance for the rounding of Fourier transforms."""

    distribution: Any
    allowance: float

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
) -> _LossDistributionBound | None:
    """Return the composition of these releases by loss distributions, or None.

    Guarantee:
        an upper bound: losses are rounded up onto the grid, cut tails count as infinite, and 1e-12
        per distribution plus 1e-14 per release is added for the transforms.
    """
    # Source: Sommer, Meiser, Mohammadi (2019); Doroshenko, Ghazi, Kamath, Kumar, Manurangsi (2022),
    # as built in dp_accounting 0.6.0 with pessimistic rounding.
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
    interval = _samples_interval(sums, neighbors, rest) if sums else _interval(losses, mu)
    if interval is None or rest > _MOST_LOSS:
        return None
    total = pld.identity(value_discretization_interval=interval)
    if mu > 0:
        norm = 2.0 if neighbors == NeighboringRelation.REPLACE_ONE else 1.0
        total = total.compose(
            pld.from_gaussian_mechanism(
                standard_deviation=norm / (mu * _UP),
                value_discretization_interval=interval,
                neighboring_relation=_theirs(neighbors),
            )
        )
    for event, count in atoms.items():
        total = total.compose(_atoms(event, neighbors, interval, pld).self_compose(count))
    for (noise, chance), steps in sums.items():
        total = total.compose(samples_losses(noise, chance, steps, neighbors, interval))
    releases = sum(atoms.values()) + sum(sums.values())
    allowance = 1e-12 * (len(counts) + 1) + 1e-14 * releases
    return _LossDistributionBound(total, allowance)


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
                neighboring_relation=_theirs(neighbors),
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
    """Return the width of a cell, or None if no width would do."""
    # It is the loss that weighs most, divided by a power of two: repeated releases of that loss
    # then lie on the grid exactly, and their composition is exact.
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
    too_long = 2 * largest / interval > _MOST_GRID_CELLS or 20 * mu / interval > _MOST_GRID_CELLS
    return None if too_long else interval


@dataclass(frozen=True)
class _RenyiBound(Shown):
    """Rényi losses at many orders; every order gives a bound, so the least counts."""

    orders: np.ndarray
    losses: np.ndarray

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


def renyi_bound(counts: Mapping[Event, int], neighbors: NeighboringRelation) -> _RenyiBound | None:
    """Return the composition of these releases by Rényi orders, or None if one is unsupported.

    Guarantee:
        an upper bound: the losses are raised by more than the rounding of the logarithms that they
        come from.
    """
    # Source: Mironov (2017), Proposition 1; Canonne, Kamath, Steinke (2020), Proposition 12, with
    # the Rényi losses of dp_accounting 0.6.0.
    import dp_accounting as dp  # noqa: PLC0415 - only where it runs
    from dp_accounting.rdp import RdpAccountant  # noqa: PLC0415 - slow

    if not _supported(counts, neighbors, "rdp"):
        return None
    accountant = RdpAccountant(neighboring_relation=_theirs(neighbors))
    for event, count in counts.items():
        translated = _translated(event, dp)
        if translated is not None:
            accountant.compose(translated, count)
    orders = accountant.orders
    kept = orders > 1.05  # noqa: PLR2004 - near order 1 the conversion is unstable and useless
    orders = orders[kept]
    rounding = 1e-14 * sum(counts.values()) / (orders - 1)
    return _RenyiBound(orders, accountant.rdp[kept] * _UP + rounding)


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
    return all(SUPPORT[KINDS[type(event)], neighbors, accountant][0] for event in counts)
