"""The users of a run, batch by batch, and where their coins come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino import _random
from sordino.environments.interactions import Environment, bounded_contexts

from .user_slots import Slots, UserBatch, UserSlots, generator_from

__all__ = ["RunUsers"]


@dataclass(repr=False, eq=False)
class RunUsers:
    """The users of every batch, and the coins for them and for the noise.

    Args:
        environment: Users who are simulated, or who arrive.
        slots: How many in a batch.
        entropy: Where all coins come from. Of a seeded source every batch gets two seeds of its
            own at once, so that a study that is resumed is the same study.
    """

    environment: Any
    slots: Slots
    entropy: _random.Entropy
    _open: dict[int, tuple[Any, Any, np.random.Generator]] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """Return whether coins come from a seed."""
        return self.entropy.randomness == "simulated"

    def __post_init__(self) -> None:
        """Draw the seeds of a study."""
        n = self.slots.batches
        self._seeds: list[list[int]] = []
        if self.simulated:
            self._seeds = self.entropy.words(2 * n).reshape(n, 2).tolist()

    def batch(self, number: int) -> tuple[Any, Float[np.ndarray, "m k d"], np.random.Generator]:
        """Return the environment of a batch, its users' features, and the coins for them.

        Asked twice it is the same users: nobody is skipped because something went wrong.

        Raises:
            DataError: Features are not finite, or fewer users arrived than there are slots.
        """
        if number not in self._open:
            source = self._source(number, 0)
            rng, size, world = generator_from(source), self.slots.batch, self.environment
            open_now: Environment | UserBatch = (
                world.batch(number, size) if isinstance(world, UserSlots) else world
            )
            self._open[number] = (open_now, bounded_contexts(open_now, rng, size), rng)
        return self._open[number]

    def noise(self, number: int) -> _random.Entropy:
        """Return the entropy of a batch's noise, and let go of its users.

        Guarantee:
            None of its own: it is handed to the update, after the entry was written.
        """
        self._open.pop(number, None)
        return self._source(number, 1)

    def _source(self, number: int, which: int) -> _random.Entropy:
        """Return system entropy, or in a study that of one of the batch's two seeds."""
        return _random.entropy(self._seeds[number][which]) if self._seeds else self.entropy
