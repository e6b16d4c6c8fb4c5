"""What one collection holds: prompts, two answers to each, and what they were worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch.utils.data import Sampler

from sordino.language.models.completions import Completions

__all__ = ["Collection", "CollectionOrder", "Rollout"]


class Rollout(NamedTuple):
    """Two answers to each of n prompts: rows i and n + i answer prompt i.

    Attributes:
        prompt_ids: As in :class:`Completions`, as are the next three; 2n rows.
        prompt_mask: 1 where there is no padding.
        completion_ids: Tokens of the answers.
        completion_mask: 1 where there is no padding.
        start: Log-probability of each answer under the policy that the regression starts from.
        rewards: What each answer is worth, less what it costs to be far from the reference.
    """

    prompt_ids: Any
    prompt_mask: Any
    completion_ids: Any
    completion_mask: Any
    start: Any
    rewards: Any

    @property
    def completions(self) -> Completions:
        """Return the answers alone."""
        return Completions(*self[:4])


class Collection:
    """The rollouts of one collection, batch by batch, gone over as often as it is used."""

    def __init__(self, batches: int) -> None:
        """Start without any.

        Args:
            batches: How many make one collection, on each device.
        """
        self.batches, self.place = batches, 0
        self.rollouts: list[Rollout] = []

    def rollout(self, make: Callable[[], Rollout], *, fresh: bool) -> Rollout:
        """Return the rollout of the next batch: made now, or, if there is one, as before.

        Args:
            make: Draws its answers.
            fresh: Whether the answers of the last collection have served.
        """
        place, self.place = self.place, (self.place + 1) % self.batches
        if fresh and place == 0:
            self.rollouts.clear()
        if place == len(self.rollouts):
            self.rollouts.append(make())
        return self.rollouts[place]

    def save(self, path: Path) -> None:
        """Write the rollouts beside a checkpoint, so that a resumed run goes on with them."""
        named = {
            f"{i:04d}.{name}": part.contiguous()
            for i, rollout in enumerate(self.rollouts)
            for name, part in rollout._asdict().items()
        }
        save_file(named, path)

    def load(self, path: Path, device: Any) -> None:
        """Read what :meth:`save` wrote."""
        found = {name: part.to(device) for name, part in load_file(path).items()}
        batches = sorted({name.split(".")[0] for name in found})
        self.rollouts = [
            Rollout(**{name: found[f"{batch}.{name}"] for name in Rollout._fields})
            for batch in batches
        ]


class CollectionOrder(Sampler):  # type: ignore[type-arg, unused-ignore]
    """Yields which prompts come when: whole collections, each as often as it is used.

    Args:
        n: How many prompts there are.
        size: Prompts of one collection, over all devices.
        passes: How often each collection is gone over.
        seed: Of the order, which is public and new in every epoch.
    """

    def __init__(self, n: int, *, size: int, passes: int, seed: int) -> None:
        """Start before the first epoch."""
        self.n, self.size, self.passes, self.seed, self.epoch = n, size, passes, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, the same whenever a run arrives there."""
        self.epoch = epoch

    def __len__(self) -> int:
        return math.ceil(self.n / self.size) * self.size * self.passes

    def __iter__(self) -> Iterator[int]:
        chance = torch.Generator().manual_seed(self.seed + self.epoch)
        order = cycle(torch.randperm(self.n, generator=chance).tolist())
        for _ in range(math.ceil(self.n / self.size)):
            yield from list(islice(order, self.size)) * self.passes
