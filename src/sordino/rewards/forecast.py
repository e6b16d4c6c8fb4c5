"""How well a reward will be learned and what that will cost, from public numbers only.

No data, no ledger: a forecast is asked for before anything is spent. It rests on one assumption,
how well the true reward predicts judgments, and on the model of ``rewards/isotropic.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from scipy.special import expit

from sordino import _validate
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy.guarantee import never_less

from .isotropic import Method
from .outlook import Prediction, World, share_of_judgments, without_privacy
from .utility_curves import utility_curve
from .ways import Way, break_even, offered_ways

__all__ = ["Forecast", "Prediction", "WayForecast", "estimate", "utility_curve"]


@dataclass(frozen=True, kw_only=True)
class WayForecast(Prediction):
    """How well a reward would be learned in one way to be private, and what that way promises.

    Attributes:
        unit: Whose change is hidden: ``"label"``, or ``"record"``, a label with its prompt and
            its answers.
        neighbors: What one change is.
        epsilon: Privacy loss of one label or record, as it would be realized.
        delta: By how much a probability may exceed that bound.
        odds: e^ε: how far the odds about it can move for anybody who looks, apart from delta.
        belief: What a belief of one half about it can become at most, apart from delta.
        flip_probability: Chance that an answer is not the judgment; None where a curator sees
            judgments as they are.
        effective_judgments: Number of judgments that, used as they are, would give the same
            standard error; at most κ²n in the local way.
        person_epsilon: Privacy loss of a person with so many labels as was asked for, at the
            same delta; None where nothing is stated at that delta.
    """

    unit: str
    neighbors: str
    epsilon: float
    delta: float
    odds: float
    belief: float
    flip_probability: float | None
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
        method: Which estimate is meant, in the local way.
        non_private: What the same labels would give without privacy.
        ways: The prediction of each way to be private, by its name: ``"local"``,
            ``"label-central"``, ``"record-central"``.
        left_out: Why a way is not among them, by its name.
        break_even: From how many labels on ``"label-central"`` errs less than ``"local"``; None
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
            f"{name} way, epsilon={never_less(way.epsilon)}, delta={never_less(way.delta)} per "
            f"{way.unit}: accuracy {way.accuracy:.3f}"
            for name, way in self.ways.items()
        ]
        missing = [f"{name} way: {reason}" for name, reason in self.left_out.items()]
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

    It reads no data and touches no ledger. Three ways are compared: ``"local"``, where each label
    is randomized by itself; ``"label-central"``, where a curator sees the labels and releases
    their noised sum (:class:`~sordino.mechanisms.label_gaussian.LabelGaussian`); and
    ``"record-central"``, where a curator hides whole records
    (:class:`~sordino.mechanisms.objective_perturbation.ObjectivePerturbation`, a record made
    empty). The prediction is for features without a preferred direction; where texts share a few
    strong features, fewer labels are needed.

    Args:
        n: Number of labels, at least 1.
        dimension: Number of features, at least 1.
        epsilon: Privacy loss of one label or record, > 0, as for
            :class:`sordino.RandomizedResponse`.
        delta: Failure probability allowed. The local way has none and does not use it; the ways
            with a curator are left out where it is 0.
        accuracy: Assumed share of judgments that the true reward predicts, in (0.5, 1). People
            disagree with themselves and with each other, so that no reward predicts all.
        target: Accuracy to be reached, in (0.5, 1), to learn how many labels it needs.
        labels_per_person: Labels of one person, to learn what they cost that person together.
        method: ``"debiased"``, or ``"mixture"``, which is better where rewards are large; of the
            local way.

    Raises:
        UsageError: A setting is out of range; nothing was computed.

    Source:
        docs/local.md, planning; docs/central.md, "Planning".

    Example:
        >>> forecast = estimate(20_000, dimension=8, epsilon=1.0, target=0.64)
        >>> round(forecast.ways["local"].accuracy, 3), forecast.ways["local"].labels_needed
        (0.649, 1976)
        >>> {name: way.labels_needed for name, way in forecast.ways.items()}
        {'local': 1976, 'label-central': 714, 'record-central': 719}
    """
    n = _validate.integer("n", n, at_least=1)
    world = World.of(dimension, accuracy, method)
    target = None if target is None else share_of_judgments("target", target)
    if labels_per_person is not None:
        _validate.integer("labels_per_person", labels_per_person, at_least=1)
    epsilon = RandomizedResponse(epsilon).epsilon
    delta = _validate.failure_probability("delta", delta)
    ways, left_out = offered_ways(world, epsilon, delta)
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
        break_even=_break_even(ways),
    )


def _break_even(ways: Mapping[str, Way]) -> int | None:
    """Return from how many labels on a curator's noise on labels costs less."""
    central = ways.get("label-central")
    return None if central is None else break_even(ways["local"].outlook, central.outlook)


def _forecast(way: Way, n: int, target: float | None, labels: int | None) -> WayForecast:
    """Return what one way would give from n labels."""
    promise = way.promise()
    return WayForecast(
        **asdict(way.outlook.predict(n, target)),
        unit=promise.unit,
        neighbors=promise.neighbors.name,
        epsilon=promise.epsilon,
        delta=promise.delta,
        odds=_not_below(_exponential(promise.epsilon)),
        belief=min(1.0, _not_below(float(expit(promise.epsilon)))),
        flip_probability=way.flip_probability,
        effective_judgments=way.outlook.effective_judgments(n),
        person_epsilon=None if labels is None else way.person_epsilon(labels),
    )


def _exponential(value: float) -> float:
    """Return e to the value; infinity where no float is as large."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _not_below(value: float) -> float:
    """Return a slightly larger float: exp and what follows may round a bound down."""
    return value * (1 + 2.0**-50)
