"""Units of made-up tokens, which are nobody's, for the test of a model before its first step."""

from __future__ import annotations

from typing import Final

import torch

from sordino.language.central.unit_rows import TokenPair, UnitPairs
from sordino.language.models.tokens import DialogueTokens

__all__ = ["invented_units"]

_LONGEST: Final = 12  # tokens


def invented_units(units: int, tokens: DialogueTokens) -> list[UnitPairs]:
    """Return units of one pair each, whose tokens are the same in every run.

    They stand in for units that are missing where a model is tested: how many there are is
    private, so that none must look like one, and one like many.

    Args:
        units: How many.
        tokens: Says which tokens there are, and how many are read.
    """
    coin = torch.Generator().manual_seed(0)
    padding = tokens.tokenizer.pad_token_id
    words = [one for one in range(len(tokens.tokenizer)) if one != padding]

    def text() -> list[int]:
        """Return some tokens, two at least: a prompt of one, and an answer."""
        length = int(torch.randint(2, min(tokens.max_length, _LONGEST) + 1, (), generator=coin))
        picked = torch.randint(len(words), (length,), generator=coin)
        return [words[one] for one in picked.tolist()]

    def pair(liked: float) -> TokenPair:
        """Return two answers to one prompt."""
        first, second = text(), text()
        second[0] = first[0]
        return TokenPair(first, second, liked, (len(first) - 1, len(second) - 1))

    return [(pair(float(number % 2)),) for number in range(units)]
