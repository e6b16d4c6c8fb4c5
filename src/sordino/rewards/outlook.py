"""What can be learned in a world of public numbers, in one way to be private or in none."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from sordino import _validate
from sordino.errors import UsageError

from .isotropic import (
    Method,
    Scatter,
    asymptotic_scatter,
    lost_accuracy,
    penalized_scatter,
    spread_of,
)

__all__ = ["Outlook", "Prediction", "World", "share_of_judgments", "without_privacy"]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """How well a reward would be learned.

    Attributes:
        accuracy: Share of new judgments that the learned reward would predict.
        standard_error: Of an estimated reward difference, features of norm 1; of each weight too.
            It is that of a fit with a small ridge.
        labels_needed: Smallest number of labels that reaches the target; None without a target,
            or where no number of labels does.
    """

    accuracy: float
    standard_error: float
    labels_needed: int | None


def share_of_judgments(name: str, value: Any) -> float:
    """Return value as a float; refuse what is not strictly between guessing and certainty.

    Raises:
        UsageError: The value is not above 0.5 and below 1; nothing was computed.
    """
    share = _validate.number(name, value)
    if not 0.5 < share < 1:  # noqa: PLR2004
        raise UsageError(
            f"{name} must be above 0.5 (guessing) and below 1 (certainty), got {value!r}."
        )
    return share


@dataclass(frozen=True, kw_only=True)
class World:
    """What is assumed about people and features.

    Attributes:
        dimension: Number of features.
        accuracy: Share of judgments that the true reward predicts.
        spread: Standard deviation of true reward differences.
        method: Which estimate is made of randomized answers.
    """

    dimension: int
    accuracy: float
    spread: float
    method: Method

    @classmethod
    def of(cls, dimension: int, accuracy: float, method: Method) -> World:
        """Return the world in which the true reward predicts judgments this well.

        Raises:
            UsageError: A setting is out of range; nothing was computed.
        """
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
    """What can be learned in a world.

    Attributes:
        world: What is assumed.
        small_ridge: From a number of labels to how a fit with a small ridge scatters, of which
            errors are stated: they are then the same thing in every way.
        fits: From a number of labels to the fits of which the best is taken, for the ridge is
            chosen on what was released.
    """

    world: World
    small_ridge: Callable[[float], Scatter]
    fits: Callable[[float], Sequence[Scatter]]

    def accuracy(self, n: float) -> float:
        """Return the accuracy that is foreseen, at most that of judgments used as they are.

        More ridges are looked at where noise is released than where none is, so that a model of
        both could rank them the wrong way round.
        """
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
