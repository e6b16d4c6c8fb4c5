"""What a curator's run would add as noise, made of settings and public fields alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sordino.cli._inputs import questions_of_one_person
from sordino.cli._options import Unit
from sordino.cli._settings import Settings
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.label_gaussian import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.second_moment import SecondMoment, joint_mechanisms
from sordino.preferences.pairs import Pairs
from sordino.privacy import accounting
from sordino.privacy.events import Event
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE
from sordino.rewards.paid_metrics import SHARE, PaidMetrics
from sordino.rewards.paid_record_metrics import record_metrics_mechanism
from sordino.rewards.record_confidence import least_ridge

__all__ = ["Noise", "records_of"]

_METRICS_SHARE = 0.25  # of delta, where the estimate needs a delta of its own
_ROOM = 1 + 1e-6


@dataclass(frozen=True, kw_only=True)
class Noise:
    """All mechanisms of one run.

    Attributes:
        estimate: What hides a label, or a record, in the reward.
        second_moment: The other half of the estimate, for records; None if it stays hidden.
        metrics: What hides it in held-out metrics; None if none are bought.
        metrics_epsilon: What those may cost.
    """

    estimate: LabelGaussian | ObjectivePerturbation
    second_moment: SecondMoment | None
    metrics: LabelGaussian | GaussianMechanism | None
    metrics_epsilon: float | None

    @classmethod
    def of(cls, settings: Settings, pairs: Pairs) -> Noise:
        """Return the mechanisms that keep what the user asked for.

        Raises:
            DataError: Persons are to be protected and are not known.
            UsageError: No noise keeps it.
        """
        if settings.hides_texts:
            n = records_of(settings, pairs)
            return cls.for_records(settings, n=n, d=settings.features(n).dimension)
        most = None
        if settings.unit is Unit.person:
            most = settings.cap or questions_of_one_person(pairs)
        return cls.for_labels(settings, most=most, n=len(pairs))

    @classmethod
    def for_labels(cls, settings: Settings, *, most: int | None, n: int | None) -> Noise:
        """Return noise for labels.

        Args:
            settings: What the user asked for.
            most: How many labels of one person count, if all of them are hidden together.
                Persons and questions are public, and with them the usual cap.
            n: How many labels there are; None for files of vectors, of which nothing is known,
                and where nobody has counted yet.

        Raises:
            UsageError: No noise keeps it.
        """
        terms: dict[str, Any] = {"delta": settings.failure, "records_per_person": most}
        if n is None:
            estimate = LabelGaussian(settings.total, **terms)
        else:
            features = settings.features(n)
            estimate = LabelGaussian.for_sizes(
                settings.total,
                n=n,
                d=features.dimension,
                feature_bound=features.feature_bound,
                **terms,
            )
        wanted = settings.metrics_epsilon
        return cls(
            estimate=estimate,
            second_moment=None,
            metrics=None if wanted is None else LabelGaussian(wanted, **terms),
            metrics_epsilon=wanted,
        )

    @classmethod
    def for_records(cls, settings: Settings, *, n: int | None, d: int) -> Noise:
        """Return noise for whole records; nothing of the data enters.

        Args:
            settings: What the user asked for.
            n: Number of records; None where it is private, or not known yet.
            d: Number of features.

        Raises:
            UsageError: No noise keeps what the user asked for.
        """
        wanted, delta = settings.metrics_epsilon, settings.failure
        spared = 0.0 if wanted is None else delta * _METRICS_SHARE
        estimate, moment = _tilt(settings, delta - spared, n, d)
        metrics = None
        if wanted is not None:
            metrics = record_metrics_mechanism(wanted, delta=spared, neighbors=settings.relation)
        return cls(estimate=estimate, second_moment=moment, metrics=metrics, metrics_epsilon=wanted)

    @property
    def events(self) -> dict[Event, int]:
        """Return everything that is spent."""
        parts = [self.estimate, *([] if self.metrics is None else [self.metrics])]
        events: dict[Event, int] = {}
        for part in parts:
            events[part.event] = events.get(part.event, 0) + 1
        return events

    def epsilon(self, settings: Settings, delta: float | None = None) -> float:
        """Return the loss of everything together, at the delta that the user allowed or another."""
        known = settings.failure if delta is None else delta
        return accounting.composed_epsilon(self.events, neighbors=settings.relation, delta=known)

    def describe(self) -> dict[str, Any]:
        """Return what is known of the noise of the estimate."""
        found = self.estimate
        common = {"epsilon": found.epsilon, "delta": found.delta}
        if isinstance(found, LabelGaussian):
            return {
                "name": "label-gaussian",
                **common,
                "mu": found.mu,
                "shaped": found.shaped,
                "longest": None if found.longest == math.inf else found.longest,
                "records_per_person": found.records_per_person,
            }
        return {
            "name": "objective-perturbation",
            **common,
            "bound": found.bound,
            "ridge": found.ridge,
            "standard_deviation": found.standard_deviation,
            "second_moment": self.second_moment is not None,
            "second_moment_mu": found.second_moment_mu,
        }

    def describe_metrics(self, paid: PaidMetrics | None = None) -> dict[str, Any] | None:
        """Return what is known of held-out metrics, if they are bought.

        Args:
            paid: What was bought; None before it is.
        """
        found = self.metrics
        if found is None:
            return None
        return {
            "name": "label-gaussian" if isinstance(found, LabelGaussian) else "gaussian",
            "epsilon": self.metrics_epsilon,
            "delta": found.delta,
            "mu": found.event.mu,
            "share": SHARE,
            "pairs": None if paid is None else paid.pairs,
            "reason": None if paid is None else paid.reason,
        }


def records_of(settings: Settings, pairs: Pairs) -> int | None:
    """Return how many records there are; None where that is private."""
    counted = settings.relation != ADD_OR_REMOVE_ONE
    return len(pairs) + pairs.dropped if counted else None


def _tilt(
    settings: Settings, delta: float, n: int | None, d: int
) -> tuple[ObjectivePerturbation, SecondMoment | None]:
    """Return what hides a record in the weights and, where it is wanted, in the second moment."""
    bound, neighbors = settings.clip, settings.relation
    terms: dict[str, Any] = {"delta": delta, "bound": bound, "neighbors": neighbors}
    if settings.ridge is None:
        alone = ObjectivePerturbation.for_sizes(settings.total, n=n, d=d, **terms)
    else:
        alone = ObjectivePerturbation(settings.total, ridge=settings.ridge, **terms)
    if settings.confidence is None and not settings.second_moment:
        return alone, None

    def both(ridge: float | None) -> tuple[ObjectivePerturbation, SecondMoment]:
        return joint_mechanisms(settings.total, ridge=ridge, **terms)

    found = both(alone.ridge)
    if settings.confidence is None or settings.ridge is not None:
        return found
    least = least_ridge(found[1], d=d, ball=settings.ball)
    ridge = found[0].ridge
    # a larger ridge leaves the moment less noise, so that what sufficed for more noise suffices
    return found if ridge is not None and ridge >= least else both(least * _ROOM)
