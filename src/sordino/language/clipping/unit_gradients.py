"""What every way to find gradients of units shares: who is clipped by how much, and their sum."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn

from sordino._validate import positive
from sordino.errors import UsageError

__all__ = ["ROUNDING", "Made", "UnitGradients"]

ROUNDING = 1e-4
"""Kept free below the bound, relatively: norms are sums of 32-bit products."""


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

    def square_norms(self) -> Any:
        """Return the squared norm of every unit's gradient, shape (units,)."""
        return self.gradients.reshape(len(self.gradients), -1).square().sum(1)

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
            UsageError: A trained layer is not known, or 16-bit arithmetic is on.
        """
        self._shares.clear()
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
        with torch.no_grad():
            squares = [share.square_norms() for share in self._shares.values()]
            return torch.stack(squares).sum(0).clamp(min=0).sqrt()

    def add_clipped(self, bound: float) -> Any:
        """Add the sum of clipped gradients to ``grad``; return the norms before clipping.

        A unit whose gradient is not finite adds nothing: what is released stays a number, whoever
        is in the data.

        Args:
            bound: C; rounding included, no unit adds more.
        """
        norms = self.norms()
        kept = positive("bound", bound) * (1 - ROUNDING)
        factors = (kept / norms.clamp(min=kept)).where(norms.isfinite(), 0.0)
        out = (factors == 0).nonzero()[:, 0]
        with torch.no_grad():
            for parameter in list(self._shares):
                share = self._shares.pop(parameter)  # what it holds is freed as the sums come in
                total = share.clipped_sum(parameter, factors, out)
                parameter.grad = total if parameter.grad is None else parameter.grad.add_(total)
        return norms
