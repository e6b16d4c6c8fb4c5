"""Squared norms of gradients that are never made, and how far rounding may have moved them."""

from __future__ import annotations

from typing import Any, Final

import torch

from sordino.errors import UsageError
from sordino.language.clipping._taps import Kind

__all__ = ["apart", "gamma", "measured"]

_SPAN: Final = 512  # entries of a vector that are multiplied at once; fewer are rounded less often


def gamma(roundings: int, dtype: Any) -> float:
    """Return how far so many roundings in a row move a number at most, relatively: γ_n.

    Args:
        roundings: n, of sums in whatever order and of products; underflow is left out.
        dtype: Of the floats.

    Source:
        Higham (2002), chapter 3, lemma 3.1: γ_n = nu / (1 − nu), with unit roundoff u.
    """
    share = roundings * torch.finfo(dtype).eps / 2
    return share / (1 - share) if share < 1 else float("inf")


def measured(kept: dict[Kind, tuple[Any, ...]], summed: int) -> Any:
    """Return squared norms, bounds on their error, and squares of bounds on that of the sums.

    With a = Σ_t ‖x_t‖ ‖g_t‖ for a unit (for an embedding, ‖x_t‖ = 1), no term of the squared norm
    is larger than the product of the lengths in it, so that rounding moves the square by at most
    γ_n a², where n counts roundings of any one term. The sum of gradients that are made later is
    a product of matrices in 32-bit floats, of which a unit moves the rounding by γ_m a.

    Args:
        kept: For each kind, inputs and gradients of units, shapes (units, S, ·).
        summed: Units that are summed over later.

    Returns:
        Shape (3, units).

    Raises:
        UsageError: It is used in two ways whose cross term is not known.

    Source:
        Higham (2002), chapter 3: equation 3.5 for products of vectors, section 3.5 for those of
        matrices.
    """
    each = [_of_kind(kind, *use) for kind, use in kept.items()]
    squares = sum(square for square, _, _ in each)
    if len(kept) > 1:
        squares = squares + 2 * _cross(kept)
    rounded = gamma(max(n for _, _, n in each) + len(kept), squares.dtype)
    # what the lengths themselves lost to rounding is put back
    longest = sum(lengths for _, lengths, _ in each) / (1 - rounded)
    tokens = sum(g.shape[1] for _, g in kept.values())
    added = gamma(summed * tokens + len(kept) + 2, torch.float32)
    return torch.stack([squares, rounded * longest.square(), (added * longest).square()])


def _of_kind(kind: Kind, x: Any, g: Any) -> tuple[Any, Any, int]:
    """Return squared norms, sums of lengths, and the roundings of a term of what was squared."""
    if kind == "embedding":
        return _square_norms_of_words(x, g), g.norm(dim=2).sum(1), g.shape[2] + 3 * g.shape[1] + 2
    inputs, behind = _gram(x), _gram(g)
    lengths = (inputs.diagonal(dim1=1, dim2=2) * behind.diagonal(dim1=1, dim2=2)).sqrt().sum(1)
    n = _roundings(x.shape[2]) + _roundings(g.shape[2]) + 2 * g.shape[1] + 2
    return inputs.mul_(behind).sum(2).sum(1), lengths, n


def _gram(x: Any) -> Any:
    """Return products of all vectors of a unit, shape (units, S, S)."""
    first, *others = x.split(_SPAN, 2)
    total = first @ first.mT
    for one in others:  # not in one call: it might round the total with every product
        total.add_(one @ one.mT)
    return total


def _roundings(size: int) -> int:
    """Return the roundings of any one term in a product of two vectors."""
    return min(size, _SPAN) + -(-size // _SPAN)


def _square_norms_of_words(x: Any, g: Any) -> Any:
    """Return squared norms of gradients of an embedding: rows of a word are summed first."""
    words = x.max() + 1
    tokens, at = apart(x, words).unique(return_inverse=True)
    rows = g.new_zeros(len(tokens), g.shape[2]).index_add_(0, at, g.flatten(0, 1))
    return g.new_zeros(len(x)).index_add_(0, tokens // words, rows.square().sum(1))


def apart(tokens: Any, words: Any) -> Any:
    """Return the tokens of all units, numbered so that no two units have one in common."""
    return (tokens + words * torch.arange(len(tokens)).to(tokens)[:, None]).flatten()


def _cross(kept: dict[Kind, tuple[Any, ...]]) -> Any:
    """Return the product of the gradients of a head and of the embedding that it is tied to."""
    if set(kept) != {"linear", "embedding"}:
        raise UsageError(
            f"One parameter is used as {' and '.join(sorted(kept))}, and the norm of such a "
            "gradient is not known here. Nothing was trained. Untie the weights, or freeze them."
        )
    (x, g), (tokens, rows) = kept["linear"], kept["embedding"]
    picked = g.gather(2, tokens[:, None, :].expand(-1, g.shape[1], -1))
    return (picked * (x @ rows.mT)).sum(2).sum(1)
