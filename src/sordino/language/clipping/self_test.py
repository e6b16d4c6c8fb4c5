"""A test before the first step: are clipped gradients of units those that autograd finds?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import torch

from sordino.errors import UsageError
from sordino.language.clipping._modes import without_dropout
from sordino.language.clipping.methods import PerPairClipping
from sordino.language.clipping.unit_gradients import ROUNDING

__all__ = ["Rows", "UnitLosses", "differences_from_autograd", "refuse_wrong_gradients"]

UnitLosses: TypeAlias = Callable[[Any, Sequence[Any]], Any]
"""From a model and some units to the loss of each, shape (units,)."""

Rows: TypeAlias = Callable[[Sequence[Any]], Any]
"""From some units to their rows in the batch, shape (units, m), where −1 stands for none."""

_RTOL: Final = 1e-4
_FAINT: Final = 1e-3  # a norm below this share of the largest is compared as if it were so large
_SIZE: Final = 0.02  # of weights that are 0, while they are tested


def refuse_wrong_gradients(
    model: Any, losses: UnitLosses, rows: Rows, units: Sequence[Any], clipping: str = "ghost"
) -> None:
    """Refuse to train where clipped gradients are not what they should be.

    Give it units that are nobody's: that training is refused would otherwise tell of those it
    was tested on.

    Args:
        model: The user's own, as it will be trained.
        losses: As in :func:`differences_from_autograd`.
        rows: Likewise.
        units: A few, made up.
        clipping: As in :class:`~sordino.language.clipping.methods.PerPairClipping`.

    Raises:
        UsageError: Norms or clipped sums differ by more than 1e-4, or a layer is not known.
    """
    found = differences_from_autograd(model, losses, rows, units, clipping)
    if all(one <= _RTOL for one in found):
        return  # NaN is no number that is small enough
    raise UsageError(
        "Gradients that are clipped unit by unit differ from those of one unit at a time by more "
        f"than {_RTOL:g} on this model, so a unit could add more than the bound. Nothing was "
        "trained and nothing was spent. Switch gradient_checkpointing off, freeze unusual layers, "
        "or train adapters on linear layers."
    )


def differences_from_autograd(
    model: Any, losses: UnitLosses, rows: Rows, units: Sequence[Any], clipping: str = "ghost"
) -> tuple[float, float]:
    """Return how far norms, and a clipped sum, are from those of one unit at a time, relatively.

    Each unit is also read alone, so that a loss in which units see each other shows. Weights that
    are 0, such as those of a new head or adapter, hide what is behind them; for the test they get
    small random values. Model, gradients, modes and random state are left as they were.

    Args:
        model: It is read without dropout.
        losses: From model and units to the loss of each, shape (units,).
        rows: From units to their rows in the batch, as :class:`PerPairClipping` takes them.
        units: Whatever ``losses`` takes; at least one.
        clipping: The method that is compared.

    Returns:
        The largest difference of a norm, and the norm of the difference of the sums.

    Raises:
        UsageError: A trained layer is of a kind whose gradients are not known.

    Source:
        docs/language_models.md, "Norms of pairs".
    """
    with _left_alone(model), without_dropout(model), _awake(model):
        norms, counted, bound, together = _folded(model, losses, rows, units, clipping)
        if counted.shape != norms.shape:
            return math.inf, math.inf  # something else than units was clipped
        apart, expected = _alone(model, losses, units, bound / counted)
    floor = max(_FAINT * float(apart.max()), math.ulp(0.0))
    # what was counted with may be more than the norm, as much as rounding may hide, never less
    wrong = (norms - apart).abs().maximum(apart - counted)
    relative = wrong / apart.clamp(min=floor)
    both = zip(together, expected, strict=True)
    error = sum(float((one.double() - other).square().sum()) for one, other in both)
    whole = sum(float(one.square().sum()) for one in expected)
    return float(relative.max()), math.sqrt(error / max(whole, math.ulp(0.0)))


def _folded(
    model: Any, losses: UnitLosses, rows: Rows, units: Sequence[Any], clipping: str
) -> tuple[Any, Any, float, list[Any]]:
    """Return norms, those counted with, a bound, and the clipped sum, as training has them."""
    gradients = PerPairClipping(model, rows(units), clipping)
    with gradients.listening():
        losses(model, units).sum().backward()
    norms = gradients.norms().double().cpu()
    largest = float(norms.max())
    bound = largest / 2 if math.isfinite(largest) and largest > 0 else 1.0
    counted = gradients.add_clipped(bound).double().cpu()
    return norms, counted, bound, _taken(model)


def _alone(
    model: Any, losses: UnitLosses, units: Sequence[Any], shares: Any
) -> tuple[Any, list[Any]]:
    """Return norms and the clipped sum from one backward pass for every unit.

    Args:
        model: As it is trained.
        losses: Of each unit.
        units: Those that are compared.
        shares: The bound over the norm that each unit was counted with, shape (units,).
    """
    norms: list[float] = []
    total: list[Any] = []
    for unit, share in zip(units, shares.tolist(), strict=True):
        losses(model, [unit]).sum().backward()
        found = [one.double() for one in _taken(model)]
        norms.append(math.sqrt(sum(float(one.square().sum()) for one in found)))
        factor = min(1.0, share * (1 - ROUNDING))
        scaled = [factor * one for one in found]
        total = [a + b for a, b in zip(total, scaled, strict=True)] if total else scaled
    return torch.tensor(norms, dtype=torch.float64), total


def _taken(model: Any) -> list[Any]:
    """Return the gradient of every trained parameter, and leave none behind."""
    trained = [one for one in model.parameters() if one.requires_grad]
    found = [torch.zeros_like(one) if one.grad is None else one.grad for one in trained]
    for one in trained:
        one.grad = None
    return found


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
