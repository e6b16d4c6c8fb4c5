"""The private side of online alignment: who is asked, what is promised, how answers randomize."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Integer

from sordino import _random, _validate
from sordino.algorithms._online_rounds import Ask
from sordino.environments.online_worlds import (
    Contexts,
    DeviceWorld,
    OnlineWorld,
    PreferenceWorld,
)
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
from sordino.privacy.ledger import Ledger

__all__ = ["Coin", "asking", "checked_world", "coin_of", "flip_probability_of", "promise_of_rounds"]

Coin: TypeAlias = RandomizedResponse | NonPrivate
Features: TypeAlias = Float[np.ndarray, "n k d"]
Actions: TypeAlias = Integer[np.ndarray, " n"]


def coin_of(epsilon: float) -> Coin:
    """Return the coin of one label; none at infinity.

    Raises:
        UsageError: ``epsilon`` is out of range.
    """
    if _validate.non_negative("epsilon", epsilon) == math.inf:
        return NonPrivate()
    return RandomizedResponse(epsilon)


def flip_probability_of(coin: Coin) -> float:
    """Return how often an answer is not the judgment."""
    return 0.0 if isinstance(coin, NonPrivate) else coin.flip_probability


def checked_world(world: Any, coin: Coin) -> OnlineWorld:
    """Return the world; refuse one that cannot be asked.

    Raises:
        UsageError: It lacks a method, or its devices would have to randomize by nothing.
    """
    if isinstance(world, DeviceWorld) and isinstance(coin, NonPrivate):
        raise UsageError(
            "epsilon must be finite where devices randomize, got inf. Nothing was spent. Use a "
            "world with prefer, which shows judgments as they are."
        )
    if not isinstance(world, DeviceWorld | PreferenceWorld):
        raise UsageError(
            "world needs feature_bound, contexts(rng, n) and prefer(contexts, first, second, "
            f"rng), or answer(contexts, first, second, epsilon); got {type(world).__name__}. "
            "Nothing was spent."
        )
    return world


def promise_of_rounds(
    world: OnlineWorld, coin: Coin, ledger: Ledger, entropy: _random.Entropy
) -> Guarantee:
    """Return what all answers promise, with every caveat.

    Args:
        world: Whether devices randomize is all that is read.
        coin: What randomizes a label.
        ledger: Only its unit is read.
        entropy: Only read is whether it comes from a seed.

    Raises:
        PrivacyError: The ledger is about another unit.
    """
    if ledger.budget.unit != "label":
        raise PrivacyError(
            f"align_online protects one label at a time; this ledger counts {ledger.budget.unit} "
            "changes. Nothing was spent. Use a ledger of unit='label': a person who is asked m "
            "times is protected with m times epsilon."
        )
    local = isinstance(world, DeviceWorld)
    promise = coin.guarantee(
        unit="label", neighbors=REPLACE_ONE, trust="local" if local else "central"
    )
    caveats = {
        "randomized-at-ingestion": not local,
        "repeats-not-linked": True,
        "simulated": entropy.randomness == "simulated",
    }
    named = promise.with_caveats(*(name for name, applies in caveats.items() if applies))
    return replace(named, randomness=entropy.randomness)


def asking(contexts: Contexts, coin: Coin, entropy: _random.Entropy) -> Ask:
    """Return what gets randomized answers; call it only when the spend is on the ledger.

    Args:
        contexts: The world that is asked, and its own randomness.
        coin: What randomizes a label.
        entropy: Where the coin's words come from; devices have their own.

    Guarantee:
        ε of the coin for every label, each of which is randomized once. Shown by
        tests/unit/algorithms/test_online_alignment.py.
    """
    world: Any = contexts.world
    epsilon = coin.epsilon if isinstance(coin, RandomizedResponse) else math.inf

    def on_devices(features: Features, first: Actions, second: Actions) -> Actions:
        return _checked(world.answer(features, first, second, epsilon), first, (0, 1))

    def here(features: Features, first: Actions, second: Actions) -> Actions:
        given = world.prefer(features, first, second, contexts.rng)
        return coin.release(_checked(given, first, (0, 1, 2)), entropy=entropy)

    return on_devices if isinstance(world, DeviceWorld) else here


def _checked(given: Any, first: Actions, allowed: tuple[int, ...]) -> Actions:
    """Return what a world said; refuse what is no judgment of every question."""
    values = np.asarray(given)
    if values.shape != first.shape or not np.isin(values, allowed).all():
        raise DataError(
            f"The world must return {len(first)} judgments, each one of {allowed}; it did not. "
            "Nothing was released; the entry on the ledger stays."
        )
    return values.astype(np.int8)
