"""Norms and clipped sums of the gradients of whole units, from one backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from sordino._validate import positive
from sordino.errors import UsageError
from sordino.language.clipping._taps import Kind, tapped
from sordino.language.clipping._uses import Share

__all__ = ["ROUNDING", "PairGradients", "rows_of_pairs"]

ROUNDING = 1e-4
"""Kept free below the bound, relatively: norms are sums of 32-bit products."""


def rows_of_pairs(pairs: int) -> Any:
    """Return the rows of each pair of a stacked batch, shape (pairs, 2): i and i + pairs."""
    first = torch.arange(pairs)
    return torch.stack([first, first + pairs], 1)


class PairGradients:
    """Norms and clipped sums of the gradients of units, which are several rows of a batch.

    Trainers stack the preferred and the other answers into one batch, so that a pair is two rows,
    and a person all rows of their pairs. Clipping row by row lets a pair move the sum by twice
    the bound. Here the rows of a unit are folded into one sequence before anything is measured:
    the norm is that of the whole gradient of the unit, cross terms between its rows included.

    One backward pass is enough. Where the gradients of units are hardly larger than what they are
    made of, as for adapters, they are made in place of the gradient of the batch. Elsewhere layers
    keep what came in and what came back, from which follow the norms and then the clipped sum.

    Linear and embedding layers (tied ones too), layer and root-mean-square norms, adapters on
    them, and anything frozen will do. Compare with
    :func:`~sordino.language.clipping.self_test.differences_from_autograd` on the model
    and the data at hand before relying on it.

    Args:
        model: In 32-bit floats.
        rows: Rows of each unit, shape (units, m); −1 stands for none.

    Raises:
        UsageError: A row belongs to no unit or to two, or a trained layer is of a kind whose
            gradients are not known.

    Source:
        docs/language_models.md, "Norms of pairs".
    """

    def __init__(self, model: nn.Module, rows: Any) -> None:
        """Keep the model; nothing is changed yet."""
        used = rows[rows >= 0]
        if not torch.equal(used.sort().values.cpu(), torch.arange(len(used))):
            raise UsageError("Each row of the batch must belong to one unit, and every row to one.")
        self._model = model
        self._rows = rows.to(next(model.parameters()).device)
        self._batch = int(rows.max()) + 1
        self._stacked = torch.equal(rows.T.flatten().cpu(), torch.arange(rows.numel()))
        self._shares: dict[nn.Parameter, Share] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Run one forward and one backward pass within; it leaves ``grad`` alone.

        Raises:
            UsageError: A trained layer is not known, or 16-bit arithmetic is on.
        """
        self._shares.clear()
        with self._tapped():
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

    @contextmanager
    def _tapped(self) -> Iterator[None]:
        """Replace the forward passes of trained layers, and put the own ones back."""
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            raise UsageError("Gradients are clipped in 32-bit floats: set bf16 and fp16 to False.")
        changed = []
        try:
            for name, layer in self._model.named_modules():
                forward = tapped(name, layer, self._batch, self._note)
                if forward is not None:
                    changed.append(layer)
                    layer.forward = forward
            yield
        finally:
            for layer in changed:
                del layer.forward

    def _note(self, parameter: nn.Parameter, kind: Kind, x: Any, g: Any) -> None:
        """Take one use."""
        if g.shape[0] != self._batch:
            raise UsageError(
                "A layer saw another number of rows than the batch has, so gradients cannot be "
                "told apart by unit. Nothing was trained. Freeze what does not read row by row."
            )
        share = self._shares.setdefault(parameter, Share(len(self._rows), self._parts))
        share.add(kind, x, g)

    def _parts(self, values: Any) -> Sequence[Any]:
        """Return the rows of each unit one behind the other, or as they lie if they are stacked."""
        if self._stacked:
            chunks: Sequence[Any] = values.chunk(self._rows.shape[1])
            return chunks
        found = values[self._rows.clamp(min=0)]
        found[self._rows < 0] = 0  # not multiplied by 0: what stands in may be no number
        return (found.flatten(1, 2),)

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
