"""A test before the first step: is what is counted of a unit its own clipped gradient, always?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

import torch

from sordino.errors import UsageError

from .clipped_sums import without_dropout

UnitLosses: TypeAlias = Callable[[Any, Sequence[Any]], Any]
"""From a model and some units to the loss of each, shape (units,)."""

UnitSums: TypeAlias = Callable[[Sequence[Any], float], list[Any]]
"""From some units and a bound to the sum of their clipped gradients, tensor by tensor."""

_RTOL: Final = 1e-4
_SIZE: Final = 0.02  # of weights that are 0, while they are tested


class Differences(NamedTuple):
    """What a test of sums shows, all of it over the bound."""

    gradients: float  # how far what a unit adds alone is from its clipped gradient by autograd
    partners: float  # how far the sum of several is from the sum of what each adds alone
    moved: float  # how far one unit moves the sum of others; 1 is permitted


def refuse_shared_gradients(
    model: Any, losses: UnitLosses, sums: UnitSums, units: Sequence[Any]
) -> None:
    """Refuse to train where what is counted of a unit is not its own clipped gradient."""
    # Give it units that are nobody's: that training is refused would otherwise tell of those it was
    # tested on.
    found = differences(model, losses, sums, units)
    if found.gradients <= _RTOL and found.partners <= _RTOL and found.moved <= 1 + _RTOL:
        return  # NaN is no number that is small enough
    raise UsageError(
        "What is counted of a unit is not its own clipped gradient on this model, or depends on "
        f"who else is in a step (by more than {_RTOL:g} of the bound), so a unit could move a sum "
        "by more than the bound. Nothing was trained and nothing was spent. Switch "
        "gradient_checkpointing off, freeze layers that remember or that draw, or train adapters "
        "on linear layers."
    )


def differences(
    model: Any, losses: UnitLosses, sums: UnitSums, units: Sequence[Any]
) -> Differences:
    """Return how far sums of clipped gradients are from what they should be."""
    # Each unit is read alone, and in steps with others: the first one, which should be long, stands
    # in front of others, long and short, and behind them. Whatever remembers a text, draws, or
    # shares something between units shows then. Weights that are 0, such as those of a new head or
    # adapter, hide what is behind them; for the test they get small random values. Model,
    # gradients, modes and random state are left as they were.
    # Source: docs/language_models.md, "Norms of pairs".
    canary, *short = units
    others = [*short, canary, *short]
    with _left_alone(model), without_dropout(model), _awake(model):
        plain = [_gradient(model, losses, unit) for unit in units]
        norms = [_norm(one) for one in plain]
        largest = max(norms)
        bound = largest / 2 if math.isfinite(largest) and largest > 0 else 1.0
        shares = [min(1.0, bound / norm) if norm > 0 else 1.0 for norm in norms]
        alone = [sums([unit], bound) for unit in units]
        without = sums(others, bound)
        steps = [sums([canary, *others], bound), sums([*others, canary], bound)]
    expected = [[share * one for one in each] for share, each in zip(shares, plain, strict=True)]
    rest = _added([*alone[1:], alone[0], *alone[1:]])
    whole = _added([alone[0], rest])
    gaps = [_gap(one, other) for one, other in zip(alone, expected, strict=True)]
    shared = [_gap(without, rest), *(_gap(one, whole) for one in steps)]
    moved = [_gap(one, without) for one in steps]
    return Differences(*(_most(some) / bound for some in (gaps, shared, moved)))


def _gradient(model: Any, losses: UnitLosses, unit: Any) -> list[Any]:
    """Return the gradient of one unit as plain autograd finds it, and leave none behind."""
    losses(model, [unit]).sum().backward()
    trained = [one for one in model.parameters() if one.requires_grad]
    found = [torch.zeros_like(one) if one.grad is None else one.grad for one in trained]
    for one in trained:
        one.grad = None
    return [one.double().cpu() for one in found]


def _added(sums: Sequence[list[Any]]) -> list[Any]:
    """Return the sum of several, tensor by tensor."""
    return [torch.stack([one.cpu() for one in each]).sum(0) for each in zip(*sums, strict=True)]


def _gap(one: Sequence[Any], other: Sequence[Any]) -> float:
    """Return the norm of a difference."""
    return _norm([a.cpu() - b.cpu() for a, b in zip(one, other, strict=True)])


def _norm(gradient: Sequence[Any]) -> float:
    """Return the norm of a gradient."""
    return math.sqrt(sum(float(one.square().sum()) for one in gradient))


def _most(values: Sequence[float]) -> float:
    """Return the largest, or NaN if there is one."""
    return max(values) if all(map(math.isfinite, values)) else math.nan


@contextmanager
def _left_alone(model: Any) -> Iterator[None]:
    """Put gradients and random state back."""
    before = [(one, one.grad) for one in model.parameters()]
    for one, _ in before:
        one.grad = None
    devices = {one.device for one, _ in before if one.is_cuda}
    try:
        with torch.random.fork_rng(devices=list(devices)):
            yield
    finally:
        for one, gradient in before:
            one.grad = gradient


@contextmanager
def _awake(model: Any) -> Iterator[None]:
    """Give trained weights that are 0 small random values for a while."""
    asleep = [one for one in model.parameters() if one.requires_grad and not bool(one.any())]
    torch.manual_seed(0)
    try:
        with torch.no_grad():
            for one in asleep:
                one.normal_(std=_SIZE)
        yield
    finally:
        with torch.no_grad():
            for one in asleep:
                one.zero_()
