"""What stands behind the weights of a run besides its own draws, each release counted once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from sordino.language.models.promises import Answers
from sordino.privacy.chain import Row
from sordino.privacy.guarantee import Guarantee

__all__ = ["counted_once", "with_caveats_of"]


def counted_once(own: Answers, others: Iterable[Answers]) -> tuple[Answers, ...]:
    """Return what a run paid for, and then everything else that its weights were trained on.

    A model says what it was trained on, and so do its folder and its checkpoints: the same run
    may be found several times, each time with the entries that it had by then. The last counts.

    Args:
        own: What the run promises now.
        others: What was found on models and folders, perhaps the run itself at an earlier time.
    """
    different = [one for one in dict.fromkeys(others) if not _is_earlier(one, own)]
    apart = (one for one in different if not any(_covers(more, one) for more in different))
    return (own, *apart)


def with_caveats_of(promise: Guarantee, before: Guarantee, rows: Iterable[Row]) -> Guarantee:
    """Return a promise that is qualified as what it goes on from: seeds and caveats add up.

    Args:
        promise: What the settings promise now.
        before: What the checkpoint promises of its own run.
        rows: All entries of that run on the ledger, also those whose steps were lost.
    """
    for row in rows:
        before = before.with_caveats(*json.loads(row.payload)["caveats"])
        before = replace(before, randomness="simulated") if row.randomness != "system" else before
    randomness = "simulated" if before.simulated else promise.randomness
    return replace(promise.with_caveats(*before.caveats), randomness=randomness)


def _is_earlier(one: Answers, own: Answers) -> bool:
    """Return whether this is a run before it drew anything, or our own at an earlier time."""
    if not one.release_ids:
        return _is_run(one) and not one.artifact and one.guarantee.epsilon == 0
    return set(one.release_ids) <= set(own.release_ids)


def _covers(more: Answers, one: Answers) -> bool:
    """Return whether both are of one other run, and the first at a later time."""
    if not (_is_run(more) and _is_run(one) and one.release_ids):
        return False
    ids, later = set(one.release_ids), set(more.release_ids)
    same = ids == later and one != more and one.artifact in {"", more.artifact}
    return (ids < later or same) and _promises_no_more(more.guarantee, one.guarantee)


def _promises_no_more(more: Guarantee, one: Guarantee) -> bool:
    """Return whether a promise owns up to everything that another one does."""
    return (
        more.epsilon >= one.epsilon
        and more.delta >= one.delta
        and set(more.caveats) >= set(one.caveats)
        and (more.unit, more.neighbors) == (one.unit, one.neighbors)
        and more.trust == one.trust
        and (more.simulated or not one.simulated)
    )


def _is_run(one: Answers) -> bool:
    """Return whether gradients were noised: answers that people randomized say no such thing.

    Of those, two parts of one release may be different answers of the same person.
    """
    return "real-arithmetic" in one.guarantee.caveats
