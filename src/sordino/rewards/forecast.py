"""How well a reward will be learned and what that will cost, from public numbers only.

No data, no ledger: a forecast is asked for before anything is spent. It rests on one assumption,
how well the true reward predicts judgments, and on the model of ``rewards/forecast_model.py``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from scipy.special import expit

from sordino import _validate
from sordino.errors import UsageError
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy import accounting
from sordino.privacy.conversions import group_gaussian
from sordino.privacy.events import GaussianEvent
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL, Guarantee, never_less

from .forecast_model import (
    Aim,
    Method,
    Outlook,
    Prediction,
    Scatter,
    World,
    asymptotic_scatter,
    penalized_scatter,
    share_of_judgments,
    tilted_scatter,
    without_privacy,
)

_CENTRAL = ("label-estimate", "record-estimate")
_FEATURE_NORM = 1.0  # of the differences that the model is about; records are clipped there
_SHARES = tuple(1 / (1 + 4.0**power) for power in range(-3, 5))  # of the reward that a ridge leaves


@dataclass(frozen=True, kw_only=True)
class _Way:
    """One way to be private in a world."""

    promise: Callable[[], Guarantee]  # returns what it promises to one label or to one record
    outlook: Outlook  # what can be learned
    # Chance that an answer is not the judgment; None where none is flipped.
    flip_probability: float | None
    # From a number of labels of one person to what they cost that person at the same delta; None
    # where nothing is stated.
    person_epsilon: Callable[[int], float | None]


def _local(world: World, epsilon: float, _: float) -> _Way:
    """Return noise on labels: every label is randomized by itself."""
    coin = RandomizedResponse(epsilon)
    flip, spread, size = coin.flip_probability, world.spread, world.dimension
    small = asymptotic_scatter(spread, flip, dimension=size, method=world.method)
    fits = small, penalized_scatter(spread, flip, dimension=size)

    def loss(labels: int) -> float:
        counts = [(coin.event, labels)]
        return accounting.composed_epsilon(counts, neighbors=REPLACE_ONE, delta=0.0)

    return _Way(
        promise=lambda: Guarantee(
            loss(1), delta=0.0, unit="label", neighbors=REPLACE_ONE, trust="local"
        ),
        outlook=Outlook(world=world, small_ridge=lambda _: small, fits=lambda _: fits),
        flip_probability=flip,
        person_epsilon=loss,
    )


def _label_central(world: World, epsilon: float, delta: float) -> _Way:
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

    def loss(labels: int) -> float:
        # One release, so all labels of a person may move it in one direction.
        event = GaussianEvent(group_gaussian(mechanism.mu, labels))
        return accounting.composed_epsilon([(event, 1)], neighbors=REPLACE_ONE, delta=delta)

    return _Way(
        promise=lambda: mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central"),
        outlook=Outlook(world=world, small_ridge=small_ridge, fits=fits),
        flip_probability=None,
        person_epsilon=loss,
    )


def _record_central(world: World, epsilon: float, delta: float) -> _Way:
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

    return _Way(
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


WAYS: Mapping[str, Callable[[World, float, float], _Way]] = MappingProxyType(
    {"labels": _local, "label-estimate": _label_central, "record-estimate": _record_central}
)
"""From a world, epsilon and delta to each way; those with a curator refuse a delta of 0."""

IN_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "labels": "noise on labels",
        "label-estimate": "noise on the estimate, labels hidden",
        "record-estimate": "noise on the estimate, records hidden",
    }
)
"""What each way is called where people read."""


def _offered_ways(
    world: World, epsilon: float, delta: float
) -> tuple[dict[str, _Way], dict[str, str]]:
    """Return the ways that keep the privacy loss, and why the others do not."""
    ways = {"labels": WAYS["labels"](world, epsilon, delta)}
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
    """Return from how many labels on a curator's one noise costs less than one coin for each."""
    # Source: docs/central.md, "Planning": squared errors are a/n for coins and (b + c/n)/n for the
    # noised sum, so that they meet at n = c/(a − b).
    free = local.world.free[0].standard_error(1) ** 2
    coins = local.standard_error(1) ** 2
    noise = central.standard_error(1) ** 2 - free
    if coins <= free * (1 + _SAME):
        return None
    return math.floor(noise / (coins - free)) + 1


_SAME = 1e-9  # relative differences of variances that rounding may make


def utility_curve(
    n: int,
    *,
    dimension: int,
    epsilons: Iterable[float],
    accuracy: float = 0.65,
    method: Method = "debiased",
    noise: str = "labels",
    delta: float = 1e-6,
) -> list[dict[str, float]]:
    """Return what one way to be private would give at several privacy losses, one row for each."""
    # Source: docs/local.md, planning; docs/central.md, "Planning".
    n = _validate.integer("n", n, at_least=1)
    world = World.of(dimension, accuracy, method)
    plan = WAYS[_validate.one_of("noise", noise, tuple(WAYS))]
    rows = []
    for value in epsilons:
        epsilon = _validate.positive("epsilon", value)
        offered = plan(world, epsilon, delta)
        flip = offered.flip_probability
        rows.append(
            {
                "epsilon": epsilon,
                **({} if flip is None else {"flip_probability": flip}),
                "accuracy": offered.outlook.accuracy(n),
                "standard_error": offered.outlook.standard_error(n),
                "effective_judgments": offered.outlook.effective_judgments(n),
            }
        )
    return rows


def growth_curve(
    counts: Iterable[int],
    *,
    dimension: int,
    epsilon: float,
    accuracy: float = 0.65,
    method: Method = "debiased",
    delta: float = 1e-6,
) -> dict[str, list[float]]:
    """Return the accuracy that several numbers of labels would give, in every way to be private."""
    # Source: docs/local.md, planning; docs/central.md, "Planning".
    numbers = [_validate.integer("counts", count, at_least=1) for count in counts]
    world = World.of(dimension, accuracy, method)
    ways, _ = _offered_ways(
        world, _validate.positive("epsilon", epsilon), _validate.failure_probability("delta", delta)
    )
    outlooks = {"non-private": without_privacy(world)} | {
        name: way.outlook for name, way in ways.items()
    }
    return {
        name: [outlook.accuracy(count) for count in numbers] for name, outlook in outlooks.items()
    }


@dataclass(frozen=True, kw_only=True)
class WayForecast(Prediction):
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
    # Privacy loss of a person with so many labels as was asked for, at the same delta; None where
    # nothing is stated at that delta.
    person_epsilon: float | None


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
        labels_per_person: Labels of one person, if asked for.
        method: Which estimate is meant, with noise on labels.
        non_private: What the same labels would give without privacy.
        ways: The prediction of each way to be private, by its name: ``"labels"``,
            ``"label-estimate"``, ``"record-estimate"``.
        left_out: Why a way is not among them, by its name.
        break_even: From how many labels on ``"label-estimate"`` errs less than ``"labels"``; None
            where it never does, or where it is left out.
    """

    n: int
    dimension: int
    epsilon: float
    delta: float
    assumed_accuracy: float
    reward_spread: float
    target: float | None
    labels_per_person: int | None
    method: Method
    non_private: Prediction
    ways: Mapping[str, WayForecast]
    left_out: Mapping[str, str]
    break_even: int | None

    @property
    def reachable(self) -> bool:
        """Return whether some number of labels reaches the target; False without a target."""
        return self.target is not None and self.target < self.assumed_accuracy

    @property
    def best(self) -> str:
        """Return the way with the highest accuracy; of equal ones, that which trusts the least."""
        return max(self.ways, key=lambda name: self.ways[name].accuracy)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON holds it."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the forecast in a few lines."""
        question = (
            f"{self.n:,} labels, {self.dimension:,} features, assuming that the true reward "
            f"predicts {self.assumed_accuracy:.3g} of judgments"
        )
        ways = [
            f"{IN_WORDS[name]}: epsilon={never_less(way.epsilon)}, delta={never_less(way.delta)} "
            f"per {way.unit}: accuracy {way.accuracy:.3f}"
            for name, way in self.ways.items()
        ]
        missing = [f"{IN_WORDS[name]}: {reason}" for name, reason in self.left_out.items()]
        free = f"without privacy: accuracy {self.non_private.accuracy:.3f}"
        return "\n".join([question, free, *ways, *missing])


def estimate(
    n: int,
    *,
    dimension: int,
    epsilon: float,
    delta: float = 1e-6,
    accuracy: float = 0.65,
    target: float | None = None,
    labels_per_person: int | None = None,
    method: Method = "debiased",
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
        labels_per_person: Labels of one person, to learn what they cost that person together.
        method: ``"debiased"``, or ``"mixture"``, which is better where rewards are large; of the
            noise on labels.

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
    world = World.of(dimension, accuracy, method)
    target = None if target is None else share_of_judgments("target", target)
    if labels_per_person is not None:
        _validate.integer("labels_per_person", labels_per_person, at_least=1)
    epsilon = RandomizedResponse(epsilon).epsilon
    delta = _validate.failure_probability("delta", delta)
    ways, left_out = _offered_ways(world, epsilon, delta)
    return Forecast(
        n=n,
        dimension=world.dimension,
        epsilon=epsilon,
        delta=delta,
        assumed_accuracy=world.accuracy,
        reward_spread=world.spread,
        target=target,
        labels_per_person=labels_per_person,
        method=method,
        non_private=without_privacy(world).predict(n, target),
        ways={name: _forecast(way, n, target, labels_per_person) for name, way in ways.items()},
        left_out=left_out,
        break_even=None
        if "label-estimate" not in ways
        else break_even(ways["labels"].outlook, ways["label-estimate"].outlook),
    )


def _forecast(way: _Way, n: int, target: float | None, labels: int | None) -> WayForecast:
    """Return what one way would give from n labels."""
    promise = way.promise()
    odds = math.inf  # where no float is as large
    with suppress(OverflowError):
        odds = math.exp(promise.epsilon)
    # exp and what follows may round a bound down
    up = 1 + 2.0**-50
    return WayForecast(
        **asdict(way.outlook.predict(n, target)),
        unit=promise.unit,
        neighbors=promise.neighbors.name,
        epsilon=promise.epsilon,
        delta=promise.delta,
        odds=odds * up,
        belief=min(1.0, float(expit(promise.epsilon)) * up),
        flip_probability=way.flip_probability,
        effective_judgments=way.outlook.effective_judgments(n),
        person_epsilon=None if labels is None else way.person_epsilon(labels),
    )
