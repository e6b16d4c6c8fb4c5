"""Norms and clipped sums of the gradients of whole units, from gradients by row that are folded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from sordino.language.clipping._row_hooks import row_hooks
from sordino.language.clipping.unit_gradients import Made, UnitGradients

__all__ = ["FoldedGradients"]


class FoldedGradients(UnitGradients):
    """Norms and clipped sums of the gradients of units, from hooks of opacus.

    The hooks find a gradient for every row of the batch. Those of the rows of a unit are summed
    before anything is measured, as soon as a layer has told of them, so that the norm is that of
    the whole gradient of the unit. It takes as much memory as the units have gradients, and serves
    every layer that opacus knows, such as convolutions, group norms and
    ``opacus.layers.DPMultiheadAttention``, and others that read one value and return one.
    Positions that are read once for all rows are read for each.

    A layer that reads several values (``nn.MultiheadAttention``), that does not read row by row,
    or that recomputes itself is refused by name. Compare with
    :func:`~sordino.language.clipping.self_test.differences_from_autograd` on the model and the
    data at hand before relying on it.

    Args:
        model: In 32-bit floats, and without hooks of opacus.
        rows: Rows of each unit, shape (units, m); −1 stands for none.

    Raises:
        UsageError: A row belongs to no unit or to two, or a trained layer is of a kind whose
            gradients are not known.

    Source:
        docs/language_models.md, "Norms of pairs"; Yousefpour et al. (2021), "Opacus".
    """

    def __init__(self, model: nn.Module, rows: Any) -> None:
        """Keep the model; nothing is changed yet."""
        super().__init__(model, rows)
        units = torch.arange(len(rows)).to(self._rows)[:, None].expand_as(self._rows)
        used = self._rows >= 0
        self._owners = torch.empty_like(self._rows[used])
        self._owners[self._rows[used]] = units[used]

    @contextmanager
    def _attached(self) -> Iterator[None]:
        """Take gradients by row from hooks, and put those of the batch back as they were."""
        before = [(one, one.grad) for one in self._model.parameters() if one.requires_grad]
        for one, _ in before:
            one.grad = None
        try:
            with row_hooks(self._model, self._batch, self._take):
                yield
        finally:
            for one, gradient in before:
                one.grad = gradient

    def _take(self, parameter: nn.Parameter, found: Any) -> None:
        """Fold gradients by row into those of units."""
        made = found.new_zeros(len(self._rows), *found.shape[1:])
        made.index_add_(0, self._owners, found)
        if parameter in self._shares:
            self._shares[parameter].add(made)
        else:
            self._shares[parameter] = Made(made)
