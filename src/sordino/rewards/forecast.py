"""How well a reward will be learned and what that will cost, from public numbers only.

No data, no ledger: a forecast is asked for before anything is spent. It rests on one assumption,
how well the true reward predicts judgments, and on the model of ``rewards/isotropic.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args

from scipy.special import expit

from sordino import _validate
from sordino.errors import UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy import accounting
from sordino.privacy.guarantee import REPLACE_ONE, never_less
from sordino.rewards.isotropic import (
    Method,
    Scatter,
    asymptotic_scatter,
    lost_accuracy,
    penalized_scatter,
    spread_of,
)

__all__ = ["Forecast", "Prediction", "WayForecast", "estimate", "utility_curve"]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """How well a reward would be learned.

    Attributes:
        accuracy: Share of new judgments that the learned reward would predict.
        standard_error: Of an estimated reward difference, features of norm 1; of each weight too.
        labels_needed: Smallest number of labels that reaches the target; None without a target,
            or where no number of labels does.
    """

    accuracy: float
    standard_error: float
    labels_needed: int | None


@dataclass(frozen=True, kw_only=True)
class WayForecast(Prediction):
    """How well a reward would be learned in one way to be private, and what that way promises.

    Attributes:
        unit: Whose change is hidden.
        neighbors: What one change is.
        epsilon: Privacy loss of one label, as it would be realized.
        delta: Failure probability of that bound.
        odds: e^ε: how far the odds about one label can move for anybody who looks.
        belief: What a belief of one half about one label can become at most.
        flip_probability: Chance that an answer is not the judgment.
        effective_judgments: Number of judgments that, used as they are, would give the same
            standard error; at most κ²n.
        person_epsilon: Privacy loss of a person with so many labels as was asked for.
    """

    unit: str
    neighbors: str
    epsilon: float
    delta: float
    odds: float
    belief: float
    flip_probability: float
    effective_judgments: float
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
        method: Which estimate is meant.
        non_private: What the same labels would give without privacy.
        ways: The prediction of each way to be private, by its name.
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

    @property
    def reachable(self) -> bool:
        """Return whether some number of labels reaches the target; False without a target."""
        return self.target is not None and self.target < self.assumed_accuracy

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
            f"{name} way, epsilon={never_less(way.epsilon)}, delta={never_less(way.delta)} per "
            f"{way.unit}: accuracy {way.accuracy:.3f}"
            for name, way in self.ways.items()
        ]
        free = f"without privacy: accuracy {self.non_private.accuracy:.3f}"
        return "\n".join([question, free, *ways])


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

    It reads no data and touches no ledger. The prediction is for features without a preferred
    direction; where texts share a few strong features, fewer labels are needed.

    Args:
        n: Number of labels, at least 1.
        dimension: Number of features, at least 1.
        epsilon: Privacy loss of one label, > 0, as for :class:`sordino.RandomizedResponse`.
        delta: Failure probability allowed. The local way has none and does not use it.
        accuracy: Assumed share of judgments that the true reward predicts, in (0.5, 1). People
            disagree with themselves and with each other, so that no reward predicts all.
        target: Accuracy to be reached, in (0.5, 1), to learn how many labels it needs.
        labels_per_person: Labels of one person, to learn what they cost that person together.
        method: ``"debiased"``, or ``"mixture"``, which is better where rewards are large.

    Raises:
        UsageError: A setting is out of range; nothing was computed.

    Source:
        docs/local.md, planning.

    Example:
        >>> forecast = estimate(20_000, dimension=8, epsilon=1.0, target=0.64)
        >>> round(forecast.ways["local"].accuracy, 3), forecast.ways["local"].labels_needed
        (0.649, 1976)
    """
    n = _validate.integer("n", n, at_least=1)
    world = _World.of(dimension, accuracy, method)
    target = None if target is None else _share("target", target)
    coin = RandomizedResponse(epsilon)
    return Forecast(
        n=n,
        dimension=world.dimension,
        epsilon=coin.epsilon,
        delta=_validate.failure_probability("delta", delta),
        assumed_accuracy=world.accuracy,
        reward_spread=world.spread,
        target=target,
        labels_per_person=labels_per_person,
        method=method,
        non_private=world.under(0.0).predict(n, target),
        ways={"local": _local(world, coin, n, target, labels_per_person)},
    )


def utility_curve(
    n: int,
    *,
    dimension: int,
    epsilons: Iterable[float],
    accuracy: float = 0.65,
    method: Method = "debiased",
) -> list[dict[str, float]]:
    """Return what the local way would give at several privacy losses, one row for each.

    Args:
        n: As in :func:`estimate`.
        dimension: As in :func:`estimate`.
        epsilons: The privacy losses, each > 0.
        accuracy: As in :func:`estimate`.
        method: As in :func:`estimate`.

    Returns:
        Rows with ``epsilon`` as given, ``flip_probability``, ``accuracy``, ``standard_error``
        and ``effective_judgments``.

    Raises:
        UsageError: A setting is out of range; nothing was computed.

    Source:
        docs/local.md, planning.

    Example:
        >>> rows = utility_curve(2000, dimension=8, epsilons=[0.5, 1.0, 2.0])
        >>> [round(row["accuracy"], 3) for row in rows]
        [0.62, 0.64, 0.646]
    """
    n = _validate.integer("n", n, at_least=1)
    world = _World.of(dimension, accuracy, method)
    rows = []
    for coin in map(RandomizedResponse, epsilons):
        outlook = world.under(coin.flip_probability)
        rows.append(
            {
                "epsilon": coin.epsilon,
                "flip_probability": coin.flip_probability,
                "accuracy": outlook.accuracy(n),
                "standard_error": outlook.standard_error(n),
                "effective_judgments": outlook.effective_judgments(n),
            }
        )
    return rows


def _local(
    world: _World, coin: RandomizedResponse, n: int, target: float | None, labels: int | None
) -> WayForecast:
    """Return the forecast of the local way: every label is randomized by itself."""
    outlook = world.under(coin.flip_probability)
    found = outlook.predict(n, target)
    epsilon = _loss(coin, 1)
    return WayForecast(
        **asdict(found),
        unit="label",
        neighbors=REPLACE_ONE.name,
        epsilon=epsilon,
        delta=0.0,
        odds=_not_below(math.exp(epsilon)),
        belief=min(1.0, _not_below(float(expit(epsilon)))),
        flip_probability=coin.flip_probability,
        effective_judgments=outlook.effective_judgments(n),
        person_epsilon=None if labels is None else _loss(coin, labels),
    )


def _loss(coin: RandomizedResponse, labels: int) -> float:
    """Return the privacy loss of so many labels together."""
    count = _validate.integer("labels_per_person", labels, at_least=1)
    return accounting.composed_epsilon([(coin.event, count)], neighbors=REPLACE_ONE, delta=0.0)


def _not_below(value: float) -> float:
    """Return a slightly larger float: exp and what follows may round a bound down."""
    return value * (1 + 2.0**-50)


def _share(name: str, value: Any) -> float:
    """Return value as a float; refuse what is not strictly between guessing and certainty."""
    share = _validate.number(name, value)
    if not 0.5 < share < 1:  # noqa: PLR2004
        raise UsageError(
            f"{name} must be above 0.5 (guessing) and below 1 (certainty), got {value!r}."
        )
    return share


@dataclass(frozen=True, kw_only=True)
class _World:
    """What is assumed about people and features."""

    dimension: int
    accuracy: float
    spread: float
    method: Method

    @classmethod
    def of(cls, dimension: int, accuracy: float, method: Method) -> _World:
        """Return the world in which the true reward predicts judgments this well."""
        share = _share("accuracy", accuracy)
        return cls(
            dimension=_validate.integer("dimension", dimension, at_least=1),
            accuracy=share,
            spread=spread_of(share),
            method=_validate.one_of("method", method, get_args(Method)),
        )

    def under(self, flip_probability: float) -> _Outlook:
        """Return what can be learned there from answers that are flipped so often."""
        size = self.dimension
        free = asymptotic_scatter(self.spread, 0.0, dimension=size)
        found = asymptotic_scatter(
            self.spread, flip_probability, dimension=size, method=self.method
        )
        penalized = penalized_scatter(self.spread, flip_probability, dimension=size)
        return _Outlook(world=self, free=free, found=found, penalized=penalized)


@dataclass(frozen=True, kw_only=True)
class _Outlook:
    """What can be learned in a world: without flips, with a small ridge, and with a large one."""

    world: _World
    free: Scatter
    found: Scatter
    penalized: Scatter

    def accuracy(self, n: float) -> float:
        """Return the accuracy of the better of the two fits: the ridge is chosen on answers."""
        spread = self.world.spread
        return self.world.accuracy - min(
            lost_accuracy(spread, self.found, n), lost_accuracy(spread, self.penalized, n)
        )

    def standard_error(self, n: float) -> float:
        """Return the standard error of a reward difference."""
        return self.found.standard_error(n)

    def effective_judgments(self, n: float) -> float:
        """Return the number of unflipped judgments with the same standard error."""
        return n * (self.free.standard_error(1) / self.found.standard_error(1)) ** 2

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
