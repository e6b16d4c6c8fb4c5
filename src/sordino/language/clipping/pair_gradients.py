"""Norms and clipped sums of the gradients of whole units, from one backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from sordino.errors import UsageError
from sordino.language.clipping._taps import Kind, tapped
from sordino.language.clipping._uses import Share
from sordino.language.clipping.unit_gradients import UnitGradients

__all__ = ["PairGradients", "rows_of_pairs"]


def rows_of_pairs(pairs: int) -> Any:
    """Return the rows of each pair of a stacked batch, shape (pairs, 2): i and i + pairs."""
    first = torch.arange(pairs)
    return torch.stack([first, first + pairs], 1)


class PairGradients(UnitGradients):
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
        super().__init__(model, rows)
        self._stacked = torch.equal(rows.T.flatten().cpu(), torch.arange(rows.numel()))

    @contextmanager
    def _attached(self) -> Iterator[None]:
        """Replace the forward passes of trained layers, and put the own ones back."""
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
        share.add(kind, x if x is None or kind == "embedding" else _as_tokens(x), _as_tokens(g))

    def _parts(self, values: Any) -> Sequence[Any]:
        """Return the rows of each unit one behind the other, or as they lie if they are stacked."""
        if self._stacked:
            chunks: Sequence[Any] = values.chunk(self._rows.shape[1])
            return chunks
        found = values[self._rows.clamp(min=0)]
        found[self._rows < 0] = 0  # not multiplied by 0: what stands in may be no number
        return (found.flatten(1, 2),)


def _as_tokens(values: Any) -> Any:
    """Return vectors of a row as one sequence, shape (rows, S, ·): those of all heads, or one."""
    return values.flatten(1, -2) if values.dim() > 2 else values[:, None]  # noqa: PLR2004
