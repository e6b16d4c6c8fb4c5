"""What a policy promises: what its reward, and the policy it started from, promised before."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sordino.errors import PrivacyError
from sordino.language.models.promises import CheckpointPromise
from sordino.privacy.guarantee import Guarantee

__all__ = ["folder_promises", "policy_promise", "reward_promises"]


def reward_promises(functions: Iterable[Any]) -> list[CheckpointPromise]:
    """Return the promises that reward functions carry, as ``promise`` or ``reward.promise``."""
    carried = [
        getattr(one, "promise", None) or getattr(getattr(one, "reward", None), "promise", None)
        for one in functions
    ]
    return [one for one in carried if isinstance(one, CheckpointPromise)]


def folder_promises(*models: Any) -> list[CheckpointPromise]:
    """Return the promises beside the weights that models were loaded from.

    Raises:
        DataError: A promise is there and malformed.
    """
    folders = {_folder(model) for model in models} - {None}
    return [CheckpointPromise.read(folder) for folder in sorted(filter(None, folders))]


def _folder(model: Any) -> Path | None:
    """Return the folder of a checkpoint that has a promise beside its weights."""
    place = model if isinstance(model, str | Path) else getattr(model, "name_or_path", None)
    return Path(place) if place and (Path(place) / "sordino.json").is_file() else None


def policy_promise(
    carried: Iterable[CheckpointPromise],
    given: CheckpointPromise | None,
    training: Mapping[str, Any],
) -> CheckpointPromise | None:
    """Return what a policy promises that was trained on public prompts and these rewards.

    Args:
        carried: Promises of everything private that enters.
        given: What the user says in their place; it must cover each of them.
        training: Public settings of the run.

    Returns:
        The promise with kind ``"policy"``, or None if nothing private enters.

    Raises:
        PrivacyError: Rewards of different releases enter and nothing says what they promise
            together, or what was given promises more than one of them.

    Guarantee:
        That of the randomized answers behind the reward: training is post-processing. Shown by
        tests/language/test_rebel.py.
    """
    found = {(one.artifact, str(one.guarantee)): one for one in carried}
    if given is None and len(found) > 1:
        raise PrivacyError(
            "Rewards and starting policy come from different releases, and what they promise "
            "together is more than what one of them does. Nothing was trained. Give promise=, with "
            "the guarantee that their common ledger certifies."
        )
    promise = given or next(iter(found.values()), None)
    if promise is None:
        return None
    _refuse_less_than(list(found.values()), promise)
    return replace(promise, kind="policy", training=dict(training))


def _refuse_less_than(carried: list[CheckpointPromise], promise: CheckpointPromise) -> None:
    """Refuse a promise that is stronger than those it stands on, which may be of one person."""
    above = promise.guarantee
    spent = math.fsum(one.guarantee.epsilon for one in carried)
    failed = math.fsum(one.guarantee.delta for one in carried)
    enough = spent <= above.epsilon and failed <= above.delta
    paid = {entry for one in carried for entry in one.release_ids} <= set(promise.release_ids)
    if not (enough and paid and all(_is_said_by(above, one.guarantee) for one in carried)):
        raise PrivacyError(
            f"This policy cannot promise {above}: what it is trained on promises "
            f"{'; '.join(str(one.guarantee) for one in carried)}, and releases of the same people "
            "add up. Nothing was trained. Leave promise out, or give one that covers all of them."
        )


def _is_said_by(above: Guarantee, below: Guarantee) -> bool:
    """Return whether one guarantee says of whom, by whom and with which caveats another holds."""
    same = (below.unit, below.neighbors) == (above.unit, above.neighbors)
    trusted = above.trust in {below.trust, "central"}
    caveats = set(below.caveats) <= set(above.caveats)
    return same and trusted and caveats and (above.simulated or not below.simulated)
