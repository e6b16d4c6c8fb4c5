"""What every way to find gradients of units shares: who is clipped by how much, and their sum."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn

from sordino._validate import positive
from sordino.errors import UsageError
from sordino.language.clipping._norm_bounds import gamma

__all__ = ["ROUNDING", "Made", "UnitGradients"]

ROUNDING = 1e-4
"""Kept free below the bound, relatively, for rounding; where more is proved, more is counted."""

_REST = ROUNDING / 4  # of the factors, and of sums over a few hundred batches
_DOUBTFUL = 0.04  # a squared norm whose error may be a larger share is found in 64-bit floats
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class Made:
    """Gradients of all units of one parameter, as they are.

    Args:
        gradients: Shape (units, ...); it is changed in place.
    """

    def __init__(self, gradients: Any) -> None:
        """Keep them."""
        self.gradients = gradients

    def add(self, gradients: Any) -> None:
        """Add those of another use of the parameter."""
        self.gradients.add_(gradients)

    def measured(self, units: Any = None) -> Any:
        """Return squared norms, bounds on their error, and squares of bounds on that of the sum.

        Nothing cancels in a sum of squares, so that both errors are small shares of the norm.

        Args:
            units: Indices of those that are measured; None for all.

        Returns:
            Shape (3, units).

        Source:
            Higham (2002), chapter 3, equation 3.5.
        """
        squares = self.gradients.square()
        while squares.dim() > 1:  # an axis at a time, so that no term is rounded often
            squares = squares.sum(-1)
        rounded = gamma(sum(self.gradients.shape[1:]) + 1, squares.dtype)
        added = gamma(len(squares) + 1, squares.dtype)
        found = torch.stack([squares, rounded * squares, added**2 * squares])
        return found if units is None else found[:, units]

    def clipped_sum(self, parameter: Any, factors: Any, out: Any) -> Any:
        """Return the sum over units of factor times gradient.

        Args:
            parameter: For its shape.
            factors: Of each unit.
            out: Indices of units that add nothing, as their gradients may be no numbers.
        """
        made = self.gradients.index_fill_(0, out, 0.0).flatten(1)
        return (factors @ made).view_as(parameter)


class UnitGradients:
    """Norms and clipped sums of gradients of units, whichever way they are found.

    Args:
        model: In 32-bit floats.
        rows: Rows of each unit, shape (units, m); −1 stands for none.

    Raises:
        UsageError: A row belongs to no unit or to two.
    """

    def __init__(self, model: nn.Module, rows: Any) -> None:
        """Keep the model; nothing is changed yet."""
        used = rows[rows >= 0]
        if not torch.equal(used.sort().values.cpu(), torch.arange(len(used))):
            raise UsageError("Each row of the batch must belong to one unit, and every row to one.")
        self._model = model
        self._rows = rows.to(next(model.parameters()).device)
        self._batch = len(used)
        self._shares: dict[nn.Parameter, Any] = {}  # what has square_norms and clipped_sum

    def _attached(self) -> AbstractContextManager[None]:
        """Fill the shares while a forward and a backward pass run, and leave the model as it was.

        Raises:
            UsageError: The gradients of a trained layer are not known.
        """
        raise NotImplementedError

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Run one forward and one backward pass within; it leaves ``grad`` alone.

        Raises:
            UsageError: A trained layer is not known, a trained parameter has hooks, or 16-bit
                arithmetic is on.
        """
        self._shares.clear()
        _refuse_hooks(self._model)
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            raise UsageError("Gradients are clipped in 32-bit floats: set bf16 and fp16 to False.")
        with self._attached():
            yield
        silent = [
            name
            for name, one in self._model.named_parameters()
            if one.requires_grad and one not in self._shares
        ]
        if silent:
            raise UsageError(
                f"No gradient of {silent[0]!r} was seen, and {len(silent) - 1} more: it does not "
                "enter the loss through a layer that is known here. Nothing was trained. Freeze "
                "it (requires_grad_(False))."
            )

    def norms(self) -> Any:
        """Return the norm of the gradient of each unit, shape (units,)."""
        return self._measured()[0].clamp(min=0).sqrt()

    def add_clipped(self, bound: float) -> Any:
        """Add the sum of clipped gradients to ``grad``; return the norms that were counted with.

        Those are the norms before clipping, or more where rounding might hide more than is kept
        free: then a unit is clipped more. A norm is at most its square's root, the bound on its
        error included, and the bound on the rounding of what the unit adds to the sum. A unit
        whose gradient is not finite adds nothing: what is released stays a number, whoever is in
        the data.

        Args:
            bound: C; rounding included, no unit adds more.

        Source:
            Higham (2002), chapter 3.
        """
        squares, errors, sums = self._measured()
        rest = 1 + _REST + gamma(len(self._shares), squares.dtype)
        most = ((squares.clamp(min=0) + errors).sqrt() + sums.sqrt()) * rest
        norms = squares.clamp(min=0).sqrt().maximum(most * (1 - ROUNDING))
        kept = positive("bound", bound) * (1 - ROUNDING)
        factors = (kept / norms.clamp(min=kept)).where(norms.isfinite(), 0.0)
        out = (factors == 0).nonzero()[:, 0]
        with torch.no_grad():
            for parameter in list(self._shares):
                share = self._shares.pop(parameter)  # what it holds is freed as the sums come in
                total = share.clipped_sum(parameter, factors, out)
                parameter.grad = total if parameter.grad is None else parameter.grad.add_(total)
        return norms

    def _measured(self) -> Any:
        """Return squared norms, bounds on their error, and those on that of the sums, squared.

        Where terms cancel, as for a pair whose answers are almost equal, nothing may be left of a
        squared norm but rounding. Those few are found again in 64-bit floats.
        """
        with torch.no_grad():
            found = self._sums()
            doubtful = (found[1] > _DOUBTFUL * found[0]).nonzero()[:, 0]
            if len(doubtful):
                found[:, doubtful] = self._sums(doubtful).to(found)
        return found

    def _sums(self, units: Any = None) -> Any:
        """Return what the shares measure, summed over parameters, shape (3, units)."""
        first, *others = (share.measured(units) for share in self._shares.values())
        return sum((one.to(first) for one in others), first)


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
