"""From randomized answers to the rows that a trainer reads: which answer comes first, as tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from datasets import Dataset

from sordino.errors import PrivacyError, UsageError
from sordino.language.models.promises import CheckpointPromise
from sordino.language.models.tokens import Dialogue, DialogueTokens
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs

__all__ = ["Row", "covering", "preference_rows", "private_pairs"]

Row: TypeAlias = Callable[[Dialogue, Dialogue], dict[str, list[int]]]
"""From the preferred and the other answer to the columns of a data set."""


def private_pairs(name: str, pairs: Any) -> PrivatePairs:
    """Return pairs that a model may be trained on.

    Raises:
        PrivacyError: They are raw judgments.
        UsageError: They are no pairs of ours.
    """
    if isinstance(pairs, Pairs):
        raise PrivacyError(
            f"{name} holds raw judgments; a model trained on them would give them away. Nothing "
            "was trained. Randomize them first with sordino.privatize(pairs, "
            "sordino.RandomizedResponse(epsilon=...), ledger=...), or read a file that sordino "
            "privatize wrote; or train on them with clipped, noised gradients, with "
            "privacy=CentralPrivacy(...) and a ledger. To record an infinite spend instead, pass "
            "them through sordino.privatization.unprotected.use_unprotected(pairs, "
            "sordino.NonPrivate(), ledger=...) with a ledger whose budget is infinite."
        )
    if not isinstance(pairs, PrivatePairs):
        raise UsageError(
            f"{name} must be private pairs, from sordino.privatize or sordino.read_pairs, got "
            f"{type(pairs).__name__}. Nothing was trained."
        )
    return pairs


def preference_rows(pairs: PrivatePairs, tokens: DialogueTokens, row: Row) -> Dataset:
    """Return a data set whose chosen answer is the one that the randomized label prefers.

    Raises:
        DataError: The pairs hold no texts, or an answer cannot be used.
    """
    first, second, kept = tokens.pairs(pairs)
    liked = pairs.answers[kept] == 1
    rows = [
        row(one, other) if prefers else row(other, one)
        for one, other, prefers in zip(first, second, liked, strict=True)
    ]
    return Dataset.from_dict({name: [each[name] for each in rows] for name in rows[0]})


def covering(promise: CheckpointPromise, pairs: PrivatePairs) -> CheckpointPromise:
    """Return the promise of a checkpoint that also carries metrics on other randomized answers.

    Answers of the same release are covered already. Those of another one may be of the same
    people, so the losses add up.

    Raises:
        PrivacyError: The other answers are not private at all, or promise something else.
    """
    if math.isinf(pairs.guarantee.epsilon) > math.isinf(promise.guarantee.epsilon):
        raise PrivacyError(
            "eval_dataset holds judgments that are not randomized, and a checkpoint carries the "
            "metrics on them. Nothing was trained. Randomize them as well, or measure the saved "
            "model with sordino.language.judging.contests, where you alone see the result."
        )
    return promise.with_those_of(CheckpointPromise.of(pairs, kind=promise.kind))
