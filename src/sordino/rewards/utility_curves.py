"""Accuracy that is foreseen at several privacy losses, or for several numbers of labels."""

from __future__ import annotations

from collections.abc import Iterable

from sordino import _validate

from .isotropic import Method
from .outlook import World, without_privacy
from .ways import WAYS, offered_ways

__all__ = ["growth_curve", "utility_curve"]


def utility_curve(
    n: int,
    *,
    dimension: int,
    epsilons: Iterable[float],
    accuracy: float = 0.65,
    method: Method = "debiased",
    way: str = "local",
    delta: float = 1e-6,
) -> list[dict[str, float]]:
    """Return what one way to be private would give at several privacy losses, one row for each.

    Args:
        n: As in :func:`sordino.estimate`.
        dimension: As in :func:`sordino.estimate`.
        epsilons: The privacy losses, each > 0.
        accuracy: As in :func:`sordino.estimate`.
        method: As in :func:`sordino.estimate`.
        way: ``"local"``, ``"label-central"`` or ``"record-central"``.
        delta: As in :func:`sordino.estimate`; above 0 in a way with a curator.

    Returns:
        Rows with ``epsilon`` as given, ``accuracy``, ``standard_error`` and
        ``effective_judgments``, and in the local way ``flip_probability``.

    Raises:
        UsageError: A setting is out of range, or no noise is known that keeps one of the privacy
            losses; nothing was computed.

    Source:
        docs/local.md, planning; docs/central.md, "Planning".

    Example:
        >>> rows = utility_curve(2000, dimension=8, epsilons=[0.5, 1.0, 2.0])
        >>> [round(row["accuracy"], 3) for row in rows]
        [0.62, 0.64, 0.646]
        >>> rows = utility_curve(2000, dimension=8, epsilons=[0.5, 1.0], way="record-central")
        >>> [round(row["accuracy"], 3) for row in rows]
        [0.646, 0.647]
    """
    n = _validate.integer("n", n, at_least=1)
    world = World.of(dimension, accuracy, method)
    plan = WAYS[_validate.one_of("way", way, tuple(WAYS))]
    rows = []
    for epsilon in map(_positive, epsilons):
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
    """Return the accuracy that several numbers of labels would give, in every way to be private.

    Args:
        counts: Numbers of labels, each at least 1.
        dimension: As in :func:`sordino.estimate`.
        epsilon: As in :func:`sordino.estimate`.
        accuracy: As in :func:`sordino.estimate`.
        method: As in :func:`sordino.estimate`.
        delta: As in :func:`sordino.estimate`.

    Returns:
        Accuracies by the name of the way, after those of ``"non-private"``.

    Raises:
        UsageError: A setting is out of range; nothing was computed.

    Source:
        docs/local.md, planning; docs/central.md, "Planning".

    Example:
        >>> found = growth_curve([1000, 2000], dimension=8, epsilon=1.0)
        >>> [round(value, 3) for value in found["local"]]
        [0.631, 0.64]
        >>> [round(value, 3) for value in found["label-central"]]
        [0.644, 0.647]
    """
    numbers = [_validate.integer("counts", count, at_least=1) for count in counts]
    world = World.of(dimension, accuracy, method)
    ways, _ = offered_ways(world, _positive(epsilon), _validate.failure_probability("delta", delta))
    outlooks = {"non-private": without_privacy(world)} | {
        name: way.outlook for name, way in ways.items()
    }
    return {
        name: [outlook.accuracy(count) for count in numbers] for name, outlook in outlooks.items()
    }


def _positive(epsilon: float) -> float:
    """Return a privacy loss as a float."""
    return _validate.positive("epsilon", epsilon)
