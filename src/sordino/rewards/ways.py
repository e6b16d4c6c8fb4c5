"""The ways to be private that a forecast compares: what each promises, and what it leaves to learn.

Nothing here reads data or spends: settings in, promises and outlooks out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sordino.errors import UsageError
from sordino.mechanisms.label_gaussian import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy import accounting
from sordino.privacy.conversions import group_gaussian
from sordino.privacy.events import GaussianEvent
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL, Guarantee

from .isotropic import Scatter, asymptotic_scatter, penalized_scatter
from .outlook import Outlook, World
from .tilted import Aim, tilted_scatter

__all__ = ["WAYS", "Way", "break_even", "offered_ways"]

_CENTRAL = ("label-central", "record-central")
_FEATURE_NORM = 1.0  # of the differences that the model is about; records are clipped there
_SHARES = tuple(1 / (1 + 4.0**power) for power in range(-3, 5))  # of the reward that a ridge leaves


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to be private in a world.

    Attributes:
        promise: Returns what it promises to one label or to one record.
        outlook: What can be learned.
        flip_probability: Chance that an answer is not the judgment; None where none is flipped.
        person_epsilon: From a number of labels of one person to what they cost that person at
            the same delta; None where nothing is stated.
    """

    promise: Callable[[], Guarantee]
    outlook: Outlook
    flip_probability: float | None
    person_epsilon: Callable[[int], float | None]


def _local(world: World, epsilon: float, _: float) -> Way:
    """Return the local way: every label is randomized by itself."""
    coin = RandomizedResponse(epsilon)
    flip, spread, size = coin.flip_probability, world.spread, world.dimension
    small = asymptotic_scatter(spread, flip, dimension=size, method=world.method)
    fits = small, penalized_scatter(spread, flip, dimension=size)

    def loss(labels: int) -> float:
        counts = [(coin.event, labels)]
        return accounting.composed_epsilon(counts, neighbors=REPLACE_ONE, delta=0.0)

    return Way(
        promise=lambda: Guarantee(
            loss(1), delta=0.0, unit="label", neighbors=REPLACE_ONE, trust="local"
        ),
        outlook=Outlook(world=world, small_ridge=lambda _: small, fits=lambda _: fits),
        flip_probability=flip,
        person_epsilon=loss,
    )


def _label_central(world: World, epsilon: float, delta: float) -> Way:
    """Return the way of a curator who releases the noised sum of all labels.

    The ridge is chosen on the sum, for nothing.
    """
    mechanism = LabelGaussian(epsilon, delta=delta)
    noise = _FEATURE_NORM / mechanism.mu
    small_ridge = _small_ridge(world, noise)
    aims = [Aim.of_share(world.spread, share) for share in _SHARES]

    def fits(n: float) -> list[Scatter]:
        size = world.dimension
        tilted = [aim.scatter(n, dimension=size, standard_deviation=noise) for aim in aims]
        return [small_ridge(n), *tilted]

    def loss(labels: int) -> float:
        # One release, so all labels of a person may move it in one direction.
        event = GaussianEvent(group_gaussian(mechanism.mu, labels))
        return accounting.composed_epsilon([(event, 1)], neighbors=REPLACE_ONE, delta=delta)

    return Way(
        promise=lambda: mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central"),
        outlook=Outlook(world=world, small_ridge=small_ridge, fits=fits),
        flip_probability=None,
        person_epsilon=loss,
    )


def _record_central(world: World, epsilon: float, delta: float) -> Way:
    """Return the way of a curator who hides whole records: a tilted objective with its ridge."""
    mechanism = ObjectivePerturbation(
        epsilon, delta=delta, bound=_FEATURE_NORM, neighbors=REPLACE_SPECIAL
    )
    noise = mechanism.standard_deviation

    def fits(n: float) -> list[Scatter]:
        found = tilted_scatter(
            world.spread,
            n=n,
            dimension=world.dimension,
            standard_deviation=noise,
            ridge=mechanism.ridge_for(n, world.dimension),
        )
        return [found]

    return Way(
        promise=lambda: mechanism.guarantee(
            unit="record", neighbors=REPLACE_SPECIAL, trust="central"
        ),
        outlook=Outlook(world=world, small_ridge=_small_ridge(world, noise), fits=fits),
        flip_probability=None,
        # A group of records keeps a multiple of epsilon, but at a larger delta.
        person_epsilon=lambda _: None,
    )


def _small_ridge(world: World, standard_deviation: float) -> Callable[[float], Scatter]:
    """Return how a fit with next to no ridge scatters, by the number of labels."""
    aim = Aim.of_load(world.spread, 0.0)
    return functools.partial(
        aim.scatter, dimension=world.dimension, standard_deviation=standard_deviation
    )


WAYS: Mapping[str, Callable[[World, float, float], Way]] = MappingProxyType(
    {"local": _local, "label-central": _label_central, "record-central": _record_central}
)
"""From a world, epsilon and delta to each way; those with a curator refuse a delta of 0."""


def offered_ways(
    world: World, epsilon: float, delta: float
) -> tuple[dict[str, Way], dict[str, str]]:
    """Return the ways that keep the privacy loss, and why the others do not.

    Args:
        world: What is assumed.
        epsilon: Privacy loss of one label or record, > 0.
        delta: Failure probability, in [0, 1).

    Raises:
        UsageError: No coin keeps epsilon.
    """
    ways = {"local": WAYS["local"](world, epsilon, delta)}
    left_out: dict[str, str] = {}
    for name in _CENTRAL:
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


def break_even(local: Outlook, central: Outlook) -> int | None:
    """Return from how many labels on a curator's one noise costs less than one coin for each.

    Source:
        docs/central.md, "Planning": squared errors are a/n for coins and (b + c/n)/n for the
        noised sum, so that they meet at n = c/(a − b).

    Args:
        local: Of the local way.
        central: Of the way of a curator who hides labels, in the same world.

    Returns:
        The least whole number; None where coins never cost more, for they hardly ever flip.
    """
    free = local.world.free[0].standard_error(1) ** 2
    coins = local.standard_error(1) ** 2
    noise = central.standard_error(1) ** 2 - free
    if coins <= free * (1 + _SAME):
        return None
    return math.floor(noise / (coins - free)) + 1


_SAME = 1e-9  # relative differences of variances that rounding may make
