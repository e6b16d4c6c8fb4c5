"""Two ways to clip the gradients of whole pairs, behind one name."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Literal, get_args

from torch import nn

from sordino import _validate
from sordino.language.clipping.pair_gradients import PairGradients
from sordino.language.clipping.unit_gradients import UnitGradients

__all__ = ["CLIPPINGS", "Clipping", "PerPairClipping"]

Clipping = Literal["ghost", "hooks"]
CLIPPINGS: tuple[str, ...] = get_args(Clipping)


class PerPairClipping:
    """Norms and clipped sums of the gradients of whole pairs or persons, never of single rows.

    Both ways find the same numbers and promise the same. ``"ghost"`` finds norms without making
    the gradients of units where those are large, and knows linear and embedding layers, usual
    norms, and adapters. ``"hooks"`` takes gradients by row from opacus and folds them; it knows
    more layers, and needs more memory and time.

    Args:
        model: In 32-bit floats.
        rows: Rows of each unit in the batch, shape (units, m); −1 stands for none.
        method: ``"ghost"`` or ``"hooks"``.

    Raises:
        UsageError: The method is another, or a row belongs to no unit or to two.

    Source:
        docs/language_models.md, "Norms of pairs".

    Example:
        >>> import torch
        >>> from sordino.language.clipping.pair_gradients import rows_of_pairs
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> pair = PerPairClipping(model, rows_of_pairs(1), method="hooks")
        >>> with pair.listening():  # both answers of the pair, and their difference
        ...     preferred, other = model(torch.tensor([[[5.0, 0.0]], [[2.0, 4.0]]]))
        ...     (preferred - other).sum().backward()
        >>> norms = pair.add_clipped(1.0)
        >>> print(norms, model.weight.grad.norm() <= 1)
        tensor([5.]) tensor(True)
    """

    def __init__(self, model: nn.Module, rows: Any, method: str = "ghost") -> None:
        """Keep the model; nothing is changed yet."""
        _validate.one_of("method", method, CLIPPINGS)
        self._gradients = _gradients(model, rows, method)

    def listening(self) -> AbstractContextManager[None]:
        """Return a context in which one forward and one backward pass run; ``grad`` stays.

        Raises:
            UsageError: A trained layer is not known to the method, a trained parameter has hooks,
                or 16-bit arithmetic is on.
        """
        return self._gradients.listening()

    def norms(self) -> Any:
        """Return the norm of the gradient of each unit, shape (units,)."""
        return self._gradients.norms()

    def add_clipped(self, bound: float) -> Any:
        """Add the sum of clipped gradients to ``grad``; return the norms that were counted with.

        Those are the norms before clipping, or more where rounding might hide more.

        Args:
            bound: C; rounding included, no unit adds more. One whose gradient is not finite adds
                nothing.
        """
        return self._gradients.add_clipped(bound)


def _gradients(model: nn.Module, rows: Any, method: str) -> UnitGradients:
    """Return the gradients of units by one of both methods."""
    if method == "ghost":
        return PairGradients(model, rows)
    from sordino.language.clipping.folded_gradients import FoldedGradients  # noqa: PLC0415 (slow)

    return FoldedGradients(model, rows)
