"""What a policy promises: what its reward, and the policy it started from, promised before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sordino.language.models.promises import PROMISE_FILE, PROMISED, CheckpointPromise

__all__ = ["folder_promises", "policy_promise", "reward_promises"]


def reward_promises(functions: Iterable[Any]) -> list[CheckpointPromise]:
    """Return the promises that reward functions carry, as ``promise`` or ``reward.promise``."""
    carried = [
        getattr(one, "promise", None) or getattr(getattr(one, "reward", None), "promise", None)
        for one in functions
    ]
    return [one for one in carried if isinstance(one, CheckpointPromise)]


def folder_promises(*models: Any) -> list[CheckpointPromise]:
    """Return the promises that models carry: in their config, and beside their weights."""
    return [promise for model in models if model is not None for promise in _carried(model)]


def _carried(model: Any) -> list[CheckpointPromise]:
    """Return what one model carries."""
    place = model if isinstance(model, str | Path) else getattr(model, "name_or_path", None)
    folder = Path(place) if place else None
    marks = [getattr(getattr(model, "config", None), PROMISED, None)]
    if folder is not None and folder.is_dir():
        marks.append(_marked(folder))
    found = [CheckpointPromise.from_dict(mark) for mark in marks if mark]
    if folder is not None and (folder / PROMISE_FILE).is_file():
        found.append(CheckpointPromise.read(folder))
    return found


def _marked(folder: Path) -> Any:
    """Return what the config of a checkpoint says, if there is one."""
    with suppress(OSError, ValueError, AttributeError):
        return json.loads((folder / "config.json").read_bytes()).get(PROMISED)
    return None


def policy_promise(
    carried: Iterable[CheckpointPromise],
    given: CheckpointPromise | None,
    training: Mapping[str, Any],
) -> CheckpointPromise | None:
    """Return what a policy promises that was trained on public prompts and these rewards.

    Guarantee:
        That of the randomized answers behind the reward: training is post-processing. Shown by
        tests/language/test_rebel.py.
    """
    # Different releases may be of the same people, so their losses add up; one release counts once.
    known = [*carried, *([] if given is None else [given])]
    sources = tuple(source for one in known for source in one.sources)
    if not sources:
        return None
    return CheckpointPromise(kind="policy", sources=sources, training=dict(training))
