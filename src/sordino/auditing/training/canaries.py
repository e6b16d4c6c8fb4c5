"""Worst-case neighbors for training: made-up pairs and people whose presence shows most.

Nothing here looks at anybody's data. Answers are tokens drawn at random, so that an audit with
them tells nothing but how the trainer works. Four kinds are made:

- :func:`worst_canary`: one record or person that moves the sum of a step as far as it goes, also
  where each answer of a pair is clipped alone;
- :func:`pair_canaries`: records that are there or not;
- :func:`person_canaries`: people with several pairs, who are there or not;
- :func:`label_canaries`: records that are there in any case, with one label or with the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float, UInt64

from sordino._random import Entropy
from sordino._validate import integer

__all__ = [
    "Canary",
    "WorstCanary",
    "label_canaries",
    "pair_canaries",
    "person_canaries",
    "unit_norms",
    "worst_canary",
]

_ANSWER: Final = 8  # tokens of the longest made-up answer
_GENES: Final = 4 + 2 * _ANSWER  # words that decide one pair
_FIRST: Final = 48  # pairs that a search starts from
_PARENTS: Final = 6
_CHILDREN: Final = 6  # of each parent
_CHANGED: Final = 4  # one word in so many is drawn anew
_ENOUGH: Final = 0.98  # of the worst case: nothing more to look for
_MOST_PAIRS: Final = 4  # of a made-up person


class Canary(NamedTuple):
    """Two neighboring contributions, one of which a fair coin puts into the data.

    Attributes:
        one: The pairs of the unit if the coin says yes.
        other: Its pairs if the coin says no; None if it is then left out.
    """

    one: tuple[Any, ...]
    other: tuple[Any, ...] | None


@dataclass(frozen=True, kw_only=True)
class WorstCanary:
    """The unit that a search found to show most, and how near the worst case it comes.

    Attributes:
        unit: Its pairs, as trainers take them.
        reaches: Norm of its clipped gradient, over C: 1 is the worst case of a correct trainer.
        row_by_row: Norm of the sum of the clipped gradients of both answers of its pair, over 2C:
            1 is the worst case of a trainer that clips each answer alone.
    """

    unit: tuple[Any, ...]
    reaches: float
    row_by_row: float


def worst_canary(trainer: Any, *, entropy: Entropy, rounds: int = 40) -> WorstCanary:
    """Return a made-up unit whose answers pull the trainer's own model in one direction.

    A pair is two rows of a batch. Where each row is clipped alone, a pair moves the sum by up to
    2C, and does so only if the gradients of its rows point the same way. Pairs are drawn at random
    and changed at random, and the best ones are kept: six parents, six children each.

    Args:
        trainer: One on raw pairs; its model is left as it is.
        entropy: Source of tokens.
        rounds: How many generations are bred at most; at least 0.

    Guarantee:
        None is needed: tokens are drawn at random, and nobody's judgments are read.

    Source:
        docs/auditing.md, "Training".
    """
    integer("rounds", rounds, at_least=0)
    genes = _drawn(entropy, _FIRST)
    fitness = _shares(trainer, genes)
    for _ in range(rounds):
        best = fitness.min(axis=1).argsort()[::-1][:_PARENTS]
        if fitness[best[0]].min() >= _ENOUGH:
            break
        children = _changed(genes[best].repeat(_CHILDREN, axis=0), entropy)
        genes = np.concatenate([genes[best], children])
        fitness = np.concatenate([fitness[best], _shares(trainer, children)])
    winner = int(fitness.min(axis=1).argmax())
    pair = _pair(trainer, genes[winner])
    reaches, row_by_row = (float(share) for share in fitness[winner])
    return WorstCanary(
        unit=(pair,) * _pairs_of(trainer, None), reaches=reaches, row_by_row=row_by_row
    )


def pair_canaries(trainer: Any, n: int, *, entropy: Entropy) -> list[Canary]:
    """Return n made-up records, each there or not.

    Args:
        trainer: Whose model reads them.
        n: How many; at least 1.
        entropy: Source of tokens.

    Guarantee:
        None is needed: tokens are drawn at random, and nobody's judgments are read.
    """
    return [Canary((pair,), None) for pair in _pairs(trainer, n, entropy)]


def person_canaries(
    trainer: Any, n: int, *, entropy: Entropy, pairs: int | None = None
) -> list[Canary]:
    """Return n made-up people with several pairs each, all of them there or none.

    Args:
        trainer: Whose model reads them.
        n: How many; at least 1.
        entropy: Source of tokens.
        pairs: Pairs of each; those that the trainer uses of one person, at most 4, if left out.

    Guarantee:
        None is needed: tokens are drawn at random, and nobody's judgments are read.
    """
    each = _pairs_of(trainer, pairs)
    found = _pairs(trainer, n * each, entropy)
    return [Canary(tuple(found[i : i + each]), None) for i in range(0, n * each, each)]


def label_canaries(trainer: Any, n: int, *, entropy: Entropy) -> list[Canary]:
    """Return n made-up records, each there with one of two labels.

    To flip a label is to take one record out and to put another one in: two changes under
    ``ADD_OR_REMOVE_ONE`` and under ``REPLACE_SPECIAL``.

    Args:
        trainer: Whose model reads them.
        n: How many; at least 1.
        entropy: Source of tokens.

    Guarantee:
        None is needed: tokens are drawn at random, and nobody's judgments are read.
    """
    return [
        Canary((pair,), (pair._replace(liked=1.0 - pair.liked),))
        for pair in _pairs(trainer, n, entropy)
    ]


def _pairs_of(trainer: Any, pairs: int | None) -> int:
    """Return how many pairs a made-up unit has."""
    if pairs is not None:
        return integer("pairs", pairs, at_least=1)
    cap = trainer._privacy.cap  # noqa: SLF001 (an audit looks inside)
    return 1 if cap is None else min(int(cap), _MOST_PAIRS)


def _pairs(trainer: Any, n: int, entropy: Entropy) -> list[Any]:
    """Return made-up pairs."""
    n = integer("n", n, at_least=1)
    return [_pair(trainer, genes) for genes in _drawn(entropy, n)]


def _drawn(entropy: Entropy, n: int) -> UInt64[np.ndarray, "n genes"]:
    """Return the words that decide n pairs."""
    return entropy.words(n * _GENES).reshape(n, _GENES)


def _changed(genes: UInt64[np.ndarray, "n genes"], entropy: Entropy) -> Any:
    """Return pairs of which one word in four was drawn anew."""
    fresh, coins = (entropy.words(genes.size).reshape(genes.shape) for _ in range(2))
    return np.where(coins % np.uint64(_CHANGED) == 0, fresh, genes)


def _pair(trainer: Any, genes: UInt64[np.ndarray, " genes"]) -> Any:
    """Return the pair that some words decide: a prompt of one token, two answers, a label."""
    from sordino.language.central.unit_rows import TokenPair  # noqa: PLC0415 (loads torch)

    config = trainer.model.config.get_text_config()
    tokens = [one for one in range(config.vocab_size) if one != config.pad_token_id]
    liked, asked, *rest = (int(word) for word in genes)
    sizes = [1 + word % _ANSWER for word in rest[:2]]
    ids = [tokens[word % len(tokens)] for word in rest[2:]]
    answers = ids[:_ANSWER][: sizes[0]], ids[_ANSWER:][: sizes[1]]
    first, second = ([tokens[asked % len(tokens)], *answer] for answer in answers)
    return TokenPair(first, second, float(liked % 2), (len(first) - 1, len(second) - 1))


def _shares(trainer: Any, genes: UInt64[np.ndarray, "n genes"]) -> Float[np.ndarray, "n 2"]:
    """Return of each pair how near it comes to either worst case: clipped whole, and row by row.

    The inner product of both rows follows from their norms and that of the whole.
    """
    pairs = [_pair(trainer, one) for one in genes]
    size = max(1, int(trainer.args.per_device_train_batch_size))
    parts = [_norms(trainer, pairs[i : i + size]) for i in range(0, len(pairs), size)]
    whole, first, second = (np.concatenate(each) for each in zip(*parts, strict=True))
    bound = trainer._privacy.clip  # noqa: SLF001
    times = _pairs_of(trainer, None)
    inner = (whole**2 - first**2 - second**2) / 2
    one, other = (np.minimum(1, bound / np.maximum(norm, 1e-30)) for norm in (first, second))
    square = (one * first) ** 2 + (other * second) ** 2 + 2 * one * other * inner
    found = [np.minimum(1, times * whole / bound), np.sqrt(np.maximum(square, 0)) / (2 * bound)]
    return np.asarray(np.nan_to_num(np.stack(found, axis=1)))


def _norms(trainer: Any, pairs: Sequence[Any]) -> list[Float[np.ndarray, " n"]]:
    """Return the norms of the gradients of pairs, of their first rows and of their second ones."""
    from sordino.language.central.unit_rows import rows_of_units  # noqa: PLC0415

    units = [(pair,) for pair in pairs]
    rows = rows_of_units(units)
    each = unit_norms(trainer, units, rows.T.reshape(-1, 1))
    return [unit_norms(trainer, units, rows), *np.split(each, 2)]


def unit_norms(trainer: Any, units: Sequence[Any], rows: Any) -> Float[np.ndarray, " n"]:
    """Return the norms of the gradients of groups of rows, shape (groups,).

    Args:
        trainer: Its model is left as it is.
        units: A few, whose loss is differentiated.
        rows: Rows of each group in the batch, shape (groups, m); −1 stands for none.
    """
    from sordino.language.clipping._modes import without_dropout  # noqa: PLC0415
    from sordino.language.clipping.methods import PerPairClipping  # noqa: PLC0415

    model = trainer.model
    gradients = PerPairClipping(model, rows.to(trainer.args.device), trainer.args.clipping)
    with without_dropout(model), gradients.listening():
        trainer._losses(model, units).sum().backward()  # noqa: SLF001
    return np.asarray(gradients.norms().cpu().numpy(), dtype=np.float64)
