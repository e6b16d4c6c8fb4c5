"""Worst-case neighbors for training: made-up pairs and people whose presence shows most.

Nothing here looks at anybody's data. Answers are tokens drawn at random, so that an audit with
them tells nothing but how the trainer works. Three kinds are made:

- :func:`worst_canary`: one record or person that moves the sum of a step as far as it goes, also
  where each answer of a pair is clipped alone;
- :func:`person_canaries`: people with several pairs, or records, who are there or not;
- :func:`label_canaries`: records that are there in any case, with one label or with the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt64

from sordino._random import Entropy
from sordino._validate import integer

_ANSWER: Final = 8  # tokens of the longest made-up answer
_GENES: Final = 4 + 2 * _ANSWER  # words that decide one pair
_FIRST: Final = 48  # pairs that a search starts from
_ROUNDS: Final = 40  # of children, at most
_PARENTS: Final = 6
_CHILDREN: Final = 6  # of each parent
_CHANGED: Final = 4  # one word in so many is drawn anew
_ENOUGH: Final = 0.98  # of the worst case: nothing more to look for
_MOST_PAIRS: Final = 4  # of a made-up person
_SAME: Final = 2  # tokens that both answers of a pair of partners begin with
_LONGEST: Final = 512  # tokens of a long unit


Unit: TypeAlias = tuple[object, ...]
"""All pairs of one record or person, each a ``language.dp_sgd.training.TokenPair``."""


@runtime_checkable
class Model(Protocol):
    """What an audit uses of a model of transformers."""

    config: Any

    def parameters(self) -> Iterable[Any]:
        """Return every tensor of weights."""
        ...

    def register_forward_hook(self, hook: Callable[..., object]) -> Any:
        """Call a function with what the model returns, until the handle is removed."""
        ...


@runtime_checkable
class Trainer(Protocol):
    """What an audit uses of a trainer on raw pairs."""

    # `language.dp_sgd.training.CentralTraining`. An audit looks inside, for it asks whether what is
    # private there does what it says.

    model: Model
    args: Any
    _privacy: Any  # `CentralPrivacy`, or what stands in for a part of it
    _run: Any  # `CentralRun`
    _tokens: Any  # how texts are cut
    _processes: Any
    _read: Any  # `TextsRead`
    processing_class: Any
    _units: Sequence[Any]

    def train(self) -> object:
        """Train, and pay for it."""
        ...

    def add_callback(self, callback: object) -> None:
        """Call an object at every event of the loop."""
        ...

    def remove_callback(self, callback: object) -> None:
        """Do so no longer."""
        ...

    def _loss(self, model: Model, pair: object) -> Any: ...

    def _losses(self, model: Model, units: Sequence[Unit]) -> Any: ...

    def _own_sum(self, model: Model, units: Sequence[Unit], bound: float) -> Any: ...

    def _clipped_sums(self, model: Model, chosen: Sequence[int]) -> list[Any]: ...

    def _add_noise(self, sums: Sequence[Any], entropy: Entropy) -> None: ...

    def _drawn(self, entropy: Entropy) -> Sequence[int]: ...


class Canary(NamedTuple):
    """Two neighboring contributions, one of which a fair coin puts into the data."""

    one: Unit  # the pairs of the unit if the coin says yes
    other: Unit | None  # its pairs if the coin says no; None if it is then left out


@dataclass(frozen=True, kw_only=True)
class WorstCanary:
    """The unit that a search found to show most, and how near the worst case it comes."""

    unit: Unit  # its pairs, as trainers take them
    reaches: float  # norm of its clipped gradient, over C: 1 is the worst case of a correct trainer
    # Norm of the sum of the clipped gradients of both answers of its pair, over 2C: 1 is the worst
    # case of a trainer that clips each answer alone.
    row_by_row: float


def worst_canary(trainer: Trainer, *, entropy: Entropy) -> WorstCanary:
    """Return a made-up unit whose answers pull the trainer's own model in one direction.

    Guarantee:
        None is needed: tokens are drawn at random, and nobody's judgments are read.
    """
    # A pair is two rows of a batch. Where each row is clipped alone, a pair moves the sum by up to
    # 2C, and does so only if the gradients of its rows point the same way. Pairs are drawn at
    # random and changed at random, and the best ones are kept: six parents, six children each.
    # Source: docs/auditing.md, "Training".
    genes = _drawn(entropy, _FIRST)
    fitness = _shares(trainer, genes)
    for _ in range(_ROUNDS):
        best = fitness.min(axis=1).argsort()[::-1][:_PARENTS]
        if fitness[best[0]].min() >= _ENOUGH:
            break
        parents = genes[best].repeat(_CHILDREN, axis=0)
        fresh, coins = (entropy.words(parents.size).reshape(parents.shape) for _ in range(2))
        children = np.where(coins % np.uint64(_CHANGED) == 0, fresh, parents)
        genes = np.concatenate([genes[best], children])
        fitness = np.concatenate([fitness[best], _shares(trainer, children)])
    winner = int(fitness.min(axis=1).argmax())
    pair = _pair(trainer, genes[winner])
    reaches, row_by_row = (float(share) for share in fitness[winner])
    return WorstCanary(
        unit=(pair,) * _pairs_of(trainer, None), reaches=reaches, row_by_row=row_by_row
    )


def person_canaries(
    trainer: Trainer, n: int, *, entropy: Entropy, pairs: int | None = None
) -> list[Canary]:
    """Return n made-up people with several pairs each, all of them there or none; or records.

    Guarantee:
        None is needed: tokens are drawn at random, and nobody's judgments are read.
    """
    each = _pairs_of(trainer, pairs)
    found = [_pair(trainer, genes) for genes in _drawn(entropy, n * each)]
    return [Canary(tuple(found[i : i + each]), None) for i in range(0, n * each, each)]


def label_canaries(trainer: Trainer, n: int, *, entropy: Entropy) -> list[Canary]:
    """Return n made-up records, each there with one of two labels.

    Guarantee:
        None is needed: tokens are drawn at random, and nobody's judgments are read.
    """
    # To flip a label is to take one record out and to put another one in: two changes under
    # `ADD_OR_REMOVE_ONE` and under `REPLACE_SPECIAL`.
    return [
        Canary((_pair(trainer, genes),), (_pair(trainer, genes, turned=True),))
        for genes in _drawn(entropy, n)
    ]


def partner_units(trainer: Trainer, *, entropy: Entropy) -> list[Unit]:
    """Return a short unit, and a long one with either label: their answers are almost the same.

    Guarantee:
        None is needed: tokens are drawn at random, and nobody's judgments are read.
    """
    # The gradient of such a pair is small beside those of its answers, so that whatever is added to
    # its norm for the size of a batch moves its factor most.
    from sordino.language.dp_sgd.training import TokenPair  # noqa: PLC0415 (loads torch)

    tokens = _tokens(trainer)
    longest = min(int(trainer._tokens.max_length), _LONGEST)  # noqa: SLF001
    size = max(1, min(_SAME + 1, longest - 1))
    words = [tokens[int(word) % len(tokens)] for word in entropy.words(longest + 2)]
    said, end, other = words[: size - 1], words[-1], words[-2]
    if end == other:
        other = tokens[(tokens.index(end) + 1) % len(tokens)]

    def unit(prompt: list[int], liked: float) -> Unit:
        """Return a unit with one pair."""
        first, second = [*prompt, *said, end], [*prompt, *said, other]
        return (TokenPair(first, second, liked, (size, size)),)

    long = words[size:longest]
    return [unit(words[:1], 1.0), unit(long, 0.0), unit(long, 1.0)]


def _tokens(trainer: Trainer) -> list[int]:
    config = trainer.model.config.get_text_config()
    return [one for one in range(config.vocab_size) if one != config.pad_token_id]


def _pairs_of(trainer: Trainer, pairs: int | None) -> int:
    if pairs is not None:
        return integer("pairs", pairs, at_least=1)
    cap = trainer._privacy.cap  # noqa: SLF001 (an audit looks inside)
    return 1 if cap is None else min(int(cap), _MOST_PAIRS)


def _drawn(entropy: Entropy, n: int) -> UInt64[np.ndarray, "n genes"]:
    """Return the words that decide n pairs."""
    n = integer("n", n, at_least=1)
    return entropy.words(n * _GENES).reshape(n, _GENES)


def _pair(trainer: Trainer, genes: UInt64[np.ndarray, " genes"], *, turned: bool = False) -> object:
    """Return the pair that some words decide: a prompt of one token, two answers, a label."""
    from sordino.language.dp_sgd.training import TokenPair  # noqa: PLC0415 (loads torch)

    tokens = _tokens(trainer)
    liked, asked, *rest = (int(word) for word in genes)
    sizes = [1 + word % _ANSWER for word in rest[:2]]
    ids = [tokens[word % len(tokens)] for word in rest[2:]]
    answers = ids[:_ANSWER][: sizes[0]], ids[_ANSWER:][: sizes[1]]
    first, second = ([tokens[asked % len(tokens)], *answer] for answer in answers)
    likes_first = float(liked % 2)
    likes_first = 1 - likes_first if turned else likes_first
    return TokenPair(first, second, likes_first, (len(first) - 1, len(second) - 1))


def _shares(trainer: Trainer, genes: UInt64[np.ndarray, "n genes"]) -> Float[np.ndarray, "n 2"]:
    """Return of each pair how near it comes to either worst case: clipped whole, and row by row."""
    rows = np.array([_row_products(trainer, _pair(trainer, one)) for one in genes])
    first, second, inner = rows[:, 0] ** 0.5, rows[:, 1] ** 0.5, rows[:, 2]
    whole = np.sqrt(np.maximum(rows[:, 0] + rows[:, 1] + 2 * inner, 0))
    bound = trainer._privacy.clip  # noqa: SLF001
    times = _pairs_of(trainer, None)
    one, other = (np.minimum(1, bound / np.maximum(norm, 1e-30)) for norm in (first, second))
    square = (one * first) ** 2 + (other * second) ** 2 + 2 * one * other * inner
    found = [np.minimum(1, times * whole / bound), np.sqrt(np.maximum(square, 0)) / (2 * bound)]
    return np.asarray(np.nan_to_num(np.stack(found, axis=1)))


def _row_products(trainer: Trainer, pair: object) -> tuple[float, float, float]:
    """Return the squared norms of the gradients of both rows of a pair, and their product."""
    from sordino.language.dp_sgd.clipping import without_dropout  # noqa: PLC0415 (loads torch)

    model, seen, rows = trainer.model, [], []
    trained = [one for one in model.parameters() if one.requires_grad]
    hook = model.register_forward_hook(lambda *given: seen.append(given[-1].logits))
    with gradients_kept(model), without_dropout(model):
        try:
            loss = trainer._losses(model, [(pair,)]).sum()  # noqa: SLF001
        finally:
            hook.remove()
        seen[0].retain_grad()
        loss.backward(retain_graph=True)
        behind = seen[0].grad.clone()
        for row in range(2):
            one = behind.new_zeros(behind.shape)
            one[row] = behind[row]
            for each in trained:
                each.grad = None
            seen[0].backward(one, retain_graph=True)
            rows.append([None if each.grad is None else each.grad.double() for each in trained])
    kept = [both for both in zip(*rows, strict=True) if both[0] is not None]
    products = ((0, 0), (1, 1), (0, 1))
    first, second, inner = (
        sum(float((both[i] * both[j]).sum()) for both in kept) for i, j in products
    )
    return first, second, inner


def unit_norms(trainer: Trainer, units: Sequence[Unit]) -> Float[np.ndarray, " n"]:
    """Return the norm of the gradient of each unit, as it is clipped by."""
    from sordino.language.dp_sgd.clipping import ClippedSum, without_dropout  # noqa: PLC0415 (loads torch)

    model = trainer.model
    with gradients_kept(model), without_dropout(model):
        total = ClippedSum(model, trainer._privacy.clip)  # noqa: SLF001
        norms = [
            total.add(partial(trainer._loss, model, pair) for pair in unit)  # noqa: SLF001
            for unit in units
        ]
    return np.asarray(norms, dtype=np.float64)


@contextmanager
def gradients_kept(model: Model) -> Iterator[None]:
    """Put the gradients of a model back in the end."""
    before = [(one, one.grad) for one in model.parameters()]
    try:
        yield
    finally:
        for one, gradient in before:
            one.grad = gradient
