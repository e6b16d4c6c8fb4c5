"""What the uses of one parameter add to the gradient of every unit: its norm, then its sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from sordino.language.clipping._norm_bounds import apart, measured
from sordino.language.clipping._taps import Kind
from sordino.language.clipping.unit_gradients import Made

__all__ = ["Parts", "Share"]

Parts: TypeAlias = Callable[[Any], Sequence[Any]]
"""From rows of a batch to sequences, shape (units, S, ·), that together are those of each unit."""

_LARGEST = 2.0  # gradients of units that are made, over what they are made of
_THIN = 8  # a product this much higher than wide is faster when turned


class Share:
    """What one parameter adds to the gradient of every unit.

    Gradients of units that are hardly larger than what they are made of, as those of adapters,
    are made at once; then their sum costs next to nothing. Else what came in and back is kept.

    Args:
        units: How many.
        parts: From rows to units.
    """

    def __init__(self, units: int, parts: Parts) -> None:
        """Nothing was used yet."""
        self._units, self._parts = units, parts
        self._made: Any = None
        self._kept: dict[Kind, list[tuple[Any, Any]]] = {}

    def add(self, kind: Kind, x: Any, g: Any) -> None:
        """Add one use.

        Args:
            kind: How the parameter enters.
            x: Its input, shape (rows, T, i), tokens of shape (rows, T), or None.
            g: The gradient behind it, shape (rows, T, o).
        """
        if self._made is None and (self._kept or self._are_large(kind, x, g)):
            self._kept.setdefault(kind, []).append((x.detach(), g))
            return
        made = self._gradients(kind, x, g)
        if self._made is None:
            self._made = Made(made)
        else:
            self._made.add(made)

    def measured(self, units: Any = None) -> Any:
        """Return squared norms, bounds on their error, and squares of bounds on that of the sum.

        A parameter that is used twice, such as an embedding that is also the head, has the sum of
        two gradients, and its norm a cross term.

        Args:
            units: Indices of those that are measured, then in 64-bit floats; None for all.

        Returns:
            Shape (3, units).

        Raises:
            UsageError: It is used in two ways whose cross term is not known.

        Source:
            docs/language_models.md, "Norms of pairs"; Higham (2002), chapter 3.
        """
        if self._made is not None:
            return self._made.measured(units)
        kept = self._joined()
        if units is not None:
            kept = {kind: (_wide(x, units), _wide(g, units)) for kind, (x, g) in kept.items()}
        return measured(kept, self._units)

    def clipped_sum(self, parameter: Any, factors: Any, out: Any) -> Any:
        """Return the sum over units of factor times gradient; what was kept is let go.

        Args:
            parameter: For its shape.
            factors: Of each unit.
            out: Indices of units that add nothing, as their gradients may be no numbers.
        """
        if self._made is not None:
            return self._made.clipped_sum(parameter, factors, out)
        total = None
        for kind, (x, g) in self._joined().items():
            g.mul_(factors[:, None, None]).index_fill_(0, out, 0.0)
            x.index_fill_(0, out, 0)
            one = _sum(kind, x.flatten(0, 1), g.flatten(0, 1), parameter)
            total = one if total is None else total.add_(one)
        return total

    def _are_large(self, kind: Kind, x: Any, g: Any) -> bool:
        """Tell whether gradients of units would be much larger than what they are made of."""
        if kind in {"bias", "scale", "embedding"}:
            return kind == "embedding"
        made, given = self._units * x.shape[2] * g.shape[2], x.numel() + g.numel()
        return bool(made > _LARGEST * given)

    def _gradients(self, kind: Kind, x: Any, g: Any) -> Any:
        """Return the gradient of every unit from one use."""
        if kind in {"bias", "scale"}:
            return self._folded((g if x is None else x * g).sum(1, keepdim=True)).sum(1)
        if kind == "embedding":  # of few words, and tied to a head
            made = torch.zeros_like(self._made.gradients)
            tokens = apart(self._folded(x), made.shape[1])
            made.flatten(0, 1).index_add_(0, tokens, self._folded(g).flatten(0, 1))
            return made
        return self._products(x, g) if kind == "turned" else self._products(g, x)

    def _products(self, a: Any, b: Any) -> Any:
        """Return Σ_s a_s b_sᵀ for every unit."""
        if a.shape[2] > _THIN * b.shape[2]:
            return self._products(b, a).mT.contiguous()
        first, *others = zip(self._parts(a), self._parts(b), strict=True)
        total = first[0].mT @ first[1]
        for left, right in others:
            total.baddbmm_(left.mT, right)
        return total

    def _joined(self) -> dict[Kind, tuple[Any, ...]]:
        """Return copies of what is kept: two uses of a kind are one over a longer sequence."""
        return {
            kind: tuple(self._folded(*each) for each in zip(*uses, strict=True))
            for kind, uses in self._kept.items()
        }

    def _folded(self, *values: Any) -> Any:
        """Return the rows of each unit one behind the other, as one long sequence."""
        return torch.cat([part for one in values for part in self._parts(one)], 1)


def _wide(values: Any, units: Any) -> Any:
    """Return what was kept of some units in 64-bit floats, where the device has them."""
    found = values[units].cpu() if values.is_mps else values[units]
    return found.double() if found.is_floating_point() else found


def _sum(kind: Kind, x: Any, g: Any, parameter: Any) -> Any:
    """Return the sum of gradients of what was kept of one kind."""
    if kind == "embedding":
        return torch.zeros_like(parameter).index_add_(0, x, g)
    return x.T @ g if kind == "turned" else g.T @ x
