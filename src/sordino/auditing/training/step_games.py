"""One step of a trainer, played many times with a worst canary and without it.

The sums are those of the trainer's own clipping, and the noise is added by its own code. What is
stood in for is the data (made up), the chance to be drawn (1) and the noise multiplier (1, so that
mu = 1 is claimed): clipping and noise are what is measured, and not how they are accounted for.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from jaxtyping import Float

from sordino._random import Entropy
from sordino._validate import integer
from sordino.auditing.training.canaries import gradients_kept, partner_units, unit_norms
from sordino.errors import UsageError

__all__ = [
    "PartnerScores",
    "StepScores",
    "noise_masses",
    "played_partners",
    "played_step",
    "stand_in",
]

CLAIMED_MU: Final = 1.0
"""Of one step whose noise multiplier is 1, by a unit that is drawn for certain."""

_MOST: Final = 1 << 13  # entries of the gradient that are looked at
_AT_ONCE: Final = 1 << 22  # entries that are drawn at once
_MOVES_NOTHING: Final = (
    "A made-up unit moves no gradient of this model, or moves it to no number: nothing can be told "
    "apart, and nothing was audited. Is anything trained?"
)


@dataclass(frozen=True, kw_only=True)
class StepScores:
    """The scores of a game on one step."""

    one: Float[np.ndarray, " n"]  # with the canary; shape (trials,)
    other: Float[np.ndarray, " n"]  # without it
    moved: float  # how far the canary moved the sum of clipped gradients, over C; 1 is permitted
    seen: float  # share of that which lies in the entries that were looked at, as a norm


@dataclass(frozen=True, kw_only=True)
class PartnerScores:
    """How far one unit moved steps of others, and how far it moved what the others add."""

    moved: float  # how far a unit moved the sum of clipped gradients, over C; 1 is permitted
    shared: float  # how much of that was not what it adds alone, over C; 0 is right


class _Terms:
    """The privacy settings of a trainer, some of them replaced."""

    def __init__(self, privacy: Any, **changed: Any) -> None:
        """Keep both."""
        self._privacy, self._changed = privacy, changed

    def __getattr__(self, name: str) -> Any:
        """Return what was replaced, or else the setting."""
        return self._changed[name] if name in self._changed else getattr(self._privacy, name)


def stand_in(trainer: Any, *, units: Sequence[Any], **terms: Any) -> Any:
    """Return a shallow copy of a trainer on other units, with some privacy settings replaced."""
    made = copy.copy(trainer)
    made._units = list(units)  # noqa: SLF001 (an audit looks inside)
    made._privacy = _Terms(trainer._privacy, **terms)  # noqa: SLF001
    return made


def played_step(
    trainer: Any, canary: Any, others: Sequence[Any], *, trials: int, entropy: Entropy
) -> StepScores:
    """Return scores of one step with a canary and without it, along the direction it moves.

    Guarantee:
        None: it draws many steps of made-up units, never of private data.
    """
    trials = integer("trials", trials, at_least=1)
    played = stand_in(trainer, units=(), noise_multiplier=CLAIMED_MU, sampling_probability=1.0)
    sums = [_sum(played, [*others, *extra]) for extra in ([canary], [])]
    direction = sums[0] - sums[1]
    length = float(np.linalg.norm(direction))
    if not np.isfinite(length) or length == 0:
        raise UsageError(_MOVES_NOTHING)
    kept = np.argpartition(np.abs(direction), -min(_MOST, direction.size))[-_MOST:]
    weights = direction[kept] / np.linalg.norm(direction[kept])
    scores = [_scores(played, total[kept], weights, trials, entropy) for total in sums]
    return StepScores(
        one=scores[0],
        other=scores[1],
        moved=length / trainer._privacy.clip,  # noqa: SLF001
        seen=float(np.linalg.norm(direction[kept])) / length,
    )


def played_partners(trainer: Any, *, partners: int, entropy: Entropy) -> PartnerScores:
    """Return how far a long unit moves steps of others, and the share of the others in that.

    Guarantee:
        None is needed: everybody is made up, and nothing is released.
    """
    # It stands behind as many short units as the trainer is set to read at once, so that it would
    # decide how far they are padded; and in front of blocks of so many long and short ones in turn,
    # so that each would be read with others than before. C is chosen so small that all of them are
    # clipped.
    partners = integer("partners", partners, at_least=2)
    size = int(trainer.args.per_device_train_batch_size)
    short, *canaries = partner_units(trainer, entropy=entropy)
    bound = float(unit_norms(trainer, [short, *canaries]).min()) / 2
    if not np.isfinite(bound) or bound == 0:
        raise UsageError(_MOVES_NOTHING)
    played, found = stand_in(trainer, units=(), clip=bound), []
    for canary in canaries:
        alone = _sum(played, [canary])
        blocks = [*[canary] * size, *[short] * size]
        blocks = (blocks * (1 + partners // len(blocks)))[:partners]
        few = [short] * min(size - 1, partners)
        for others, step in ((few, [*few, canary]), (blocks, [canary, *blocks])):
            change = _sum(played, step) - _sum(played, others)
            found.append((np.linalg.norm(change), np.linalg.norm(change - alone)))
    moved, shared = np.max(found, axis=0) / bound
    return PartnerScores(moved=float(moved), shared=float(shared))


def noise_masses(trainer: Any, *, entropy: Entropy) -> list[tuple[int, float]]:
    """Return of every trained tensor its size and the sum of squares of the noise of one step.

    Guarantee:
        None: nobody is in the step.
    """
    # The step is the trainer's own, with nobody in it; squares are in units of the variance that is
    # stated, so that each sum is that of so many squared standard normal numbers.
    terms = trainer._privacy  # noqa: SLF001
    scale = terms.noise_multiplier * terms.clip / terms.expected_batch
    with gradients_kept(trainer.model):
        sums = trainer._clipped_sums(trainer.model, [])  # noqa: SLF001
        trainer._add_noise(sums, entropy)  # noqa: SLF001
        return [(one.numel(), float((one / scale).square().sum())) for one in sums]


def _sum(trainer: Any, units: Sequence[Any]) -> Float[np.ndarray, " d"]:
    """Return the sum of clipped gradients that the trainer leaves, all tensors in a row."""
    played = stand_in(trainer, units=units)
    with gradients_kept(trainer.model):
        sums = played._clipped_sums(trainer.model, range(len(units)))  # noqa: SLF001
    return np.concatenate([one.cpu().numpy().ravel() for one in sums])


def _scores(
    trainer: Any,
    total: Float[np.ndarray, " k"],
    weights: Float[np.ndarray, " k"],
    trials: int,
    entropy: Entropy,
) -> Float[np.ndarray, " n"]:
    """Return one number for each noisy copy of a sum: how far it lies along a direction."""
    # The trainer's own code adds the noise, to many copies at once.
    like = next(iter(trainer.model.parameters())).detach().flatten()[:1].double()
    found, many = [], max(1, _AT_ONCE // len(total))
    for first in range(0, trials, many):
        copies = np.tile(total, (min(many, trials - first), 1))
        held = like.new_tensor(copies)
        trainer._add_noise([held], entropy)  # noqa: SLF001
        found.append(held.cpu().numpy() @ weights)
    return np.concatenate(found)
