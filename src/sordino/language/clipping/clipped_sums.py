"""Sums of clipped gradients, in which nothing that is counted of a unit depends on another.

How a model stands while gradients are clipped: without dropout, wherever layers recompute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from sordino._validate import positive
from sordino.errors import UsageError

ROUNDING: Final = 1e-6
"""Kept free below the bound, relatively, for rounding in 64-bit floats."""

_PARTS: Final = 2**32  # of the bound: what is added is a whole number of them
_MOST_ENTRIES: Final = 2**32
_MOST_UNITS: Final = 2**30
_HOOKS: Final = ("_backward_hooks", "_post_accumulate_grad_hooks")


class ClippedSum:
    """The sum of the clipped gradients of units, which are read one at a time.

    Kernels round otherwise when a batch has another shape, so that whoever shares a batch with a
    unit would move its gradient, and with it its norm and its factor, in the last digits of all
    entries. A unit is therefore read alone, pair by pair at its own length, through autograd,
    which serves every layer. Its factor is min(1, C/norm), with the norm of its whole gradient in
    64-bit floats, and what it adds is rounded towards 0 to whole numbers of C/2³². Sums of whole
    numbers are exact: with a unit and without it they differ by what it adds alone, whoever the
    others are, how many, and in which order.

    No unit adds more than C, and the difference of two sums that :meth:`values` returns is no
    longer either. With u = 2⁻⁵³, a sum of P squares in whatever order is off by at most a share
    of γ_{P+1}, so that a computed norm is off by at most 2.4e-7 for P ≤ 2³²; truncation makes
    no entry larger. To turn whole numbers into floats rounds each entry twice, by at most 2u, and
    a sum over n units is at most nC long: for n ≤ 2³⁰ both sums are off by less than 4.8e-7 C
    together. Both fit into ``ROUNDING``, of which C is smaller when factors are found. More
    entries or units are refused.

    Args:
        model: Its trained parameters are those that require gradients.
        bound: C.

    Raises:
        UsageError: The bound is not above 0, more than 2³² entries are trained, or somebody
            reads gradients before they are clipped.

    Guarantee:
        None by itself: it bounds what one unit adds, to which noise is fitted. Shown by
        tests/language/test_clipped_sums.py.

    Source:
        Abadi et al. (2016), Algorithm 1; Higham (2002), chapter 3, lemma 3.1, for γ_n.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> total = ClippedSum(model, 1.0)
        >>> preferred, other = torch.tensor([5.0, 0.0]), torch.tensor([2.0, 4.0])
        >>> norm = total.add([lambda: (model(preferred) - model(other)).sum()])
        >>> print(norm, round(float(total.values()[0].norm()), 3))
        5.0 1.0
    """

    def __init__(self, model: nn.Module, bound: float) -> None:
        """Start at 0."""
        self._bound = positive("bound", bound)
        _refuse_hooks(model)
        self._trained = [one for one in model.parameters() if one.requires_grad]
        entries = sum(one.numel() for one in self._trained)
        if entries > _MOST_ENTRIES:
            raise UsageError(
                f"{entries:,} numbers are trained; what one unit adds to their sum can be bounded "
                f"for {_MOST_ENTRIES:,} at most. Nothing was trained. Train adapters "
                "(peft_config=), or freeze layers."
            )
        self._units = 0
        self.counts = [
            torch.zeros(one.shape, dtype=torch.int64, device="cpu" if one.is_mps else one.device)
            for one in self._trained
        ]
        """The sum in whole numbers of C/2³², a tensor for every trained parameter."""

    def add(self, losses: Iterable[Callable[[], Any]]) -> float:
        """Add the clipped gradient of one unit, and return its norm before clipping.

        A unit whose gradient is not finite adds nothing: what is released stays a number, whoever
        is in it. ``grad`` of every trained parameter is None afterwards.

        Args:
            losses: The parts of its loss, such as one for each pair; each is called, and its
                result differentiated, before the next.

        Raises:
            UsageError: There are more than 2³⁰ units.
        """
        self._units += 1
        if self._units > _MOST_UNITS:
            raise UsageError(f"A sum is bounded for {_MOST_UNITS:,} units at most.")
        self._forget()
        try:
            for loss in losses:
                loss().backward()
            return self._clipped()
        finally:
            self._forget()

    def values(self) -> list[Any]:
        """Return the sum in 64-bit floats, a tensor for every trained parameter."""
        return [count.double().mul_(self._bound / _PARTS) for count in self.counts]

    def _clipped(self) -> float:
        """Add what autograd left, clipped."""
        both = zip(self.counts, self._trained, strict=True)
        found = [(count, *_used(one.grad)) for count, one in both if one.grad is not None]
        norm = math.sqrt(sum(float(values.double().square_().sum()) for _, _, values in found))
        if not math.isfinite(norm) or norm == 0:
            return norm
        scale = min(_PARTS / self._bound, _PARTS * (1 - ROUNDING) / norm)
        for count, rows, values in found:
            whole = values.double().mul_(scale).trunc_().to(count.dtype)
            count.index_add_(0, rows, whole) if rows is not None else count.add_(whole)
        return norm

    def _forget(self) -> None:
        """Leave no gradient behind."""
        for one in self._trained:
            one.grad = None


def _used(gradient: Any) -> tuple[Any, Any]:
    """Return which rows of a gradient are not 0, or None for all, and these rows."""
    # Of an embedding they are those of the tokens of a unit, a few of many thousands.
    found = gradient.detach().to_dense()
    found = found.cpu() if found.is_mps else found  # which knows no 64-bit floats
    if found.dim() > 1:
        used = found.flatten(1).any(1)
        if not bool(used.all()):
            rows = used.nonzero()[:, 0]
            return rows, found[rows]
    return None, found


def _refuse_hooks(model: nn.Module) -> None:
    """Refuse parameters whose gradient somebody reads, or uses, before it is clipped."""
    for name, one in model.named_parameters():
        hooks = [getattr(one, kind, None) for kind in _HOOKS]  # empty once they are removed
        if one.requires_grad and any(hooks):
            raise UsageError(
                f"{name!r} has hooks that act within the backward pass, where gradients are not "
                "clipped yet. Nothing was trained. Remove them (each by the handle that "
                "register_hook or register_post_accumulate_grad_hook returned), and use an "
                "optimizer that steps after the backward pass, not layer by layer within it."
            )


@contextmanager
def without_dropout(model: Any) -> Iterator[None]:
    """Switch dropout off, and let layers that save memory go on recomputing themselves."""
    # They do so only while they stand in training, so those layers alone do.
    before = [(layer, layer.training) for layer in model.modules()]
    model.eval()
    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.training = bool(layer.gradient_checkpointing)
    try:
        yield
    finally:
        for layer, training in before:
            layer.training = training
