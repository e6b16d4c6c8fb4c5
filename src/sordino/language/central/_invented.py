"""Units of made-up tokens, which are nobody's, for the test of a model before its first step."""

from __future__ import annotations

from typing import Final

import torch

from sordino.language.central.unit_rows import TokenPair, UnitPairs
from sordino.language.models.tokens import DialogueTokens

__all__ = ["invented_units"]

_PERSON: Final = 3  # every third unit is one
_USUAL: Final = 12  # tokens
_LONGEST: Final = 512


def invented_units(units: int, tokens: DialogueTokens) -> list[UnitPairs]:
    """Return units whose tokens are the same in every run: what a model is tested on.

    Whether a test passes may tell of those whom it is made with, so it is made with nobody. The
    first unit holds a text as long as any (up to 512 tokens), beside short ones: were they coded
    by the longest of a batch, it would show. Every third unit has two pairs, as a person has.

    Args:
        units: How many.
        tokens: Says which tokens there are, and how many are read.
    """
    coin = torch.Generator().manual_seed(0)
    padding = tokens.tokenizer.pad_token_id
    words = [one for one in range(len(tokens.tokenizer)) if one != padding]

    def text(length: int | None = None) -> list[int]:
        """Return some tokens, two at least: a prompt of one, and an answer."""
        most = min(tokens.max_length, _USUAL) + 1
        length = length or int(torch.randint(2, most, (), generator=coin))
        picked = torch.randint(len(words), (length,), generator=coin)
        return [words[one] for one in picked.tolist()]

    def pair(liked: float, length: int | None = None) -> TokenPair:
        """Return two answers to one prompt."""
        first, second = text(length), text()
        second[0] = first[0]
        return TokenPair(first, second, liked, (len(first) - 1, len(second) - 1))

    longest = min(tokens.max_length, _LONGEST)
    return [
        (
            pair(float(number % 2), None if number else longest),
            *([pair(1.0)] if number % _PERSON == _PERSON - 1 else []),
        )
        for number in range(units)
    ]
