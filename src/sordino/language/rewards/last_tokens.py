"""One reading of dialogues by a reward model: what its head says, and what the head reads."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from rich.console import Console
from rich.progress import track

from sordino.errors import UsageError
from sordino.language.models.loading import quiet
from sordino.language.models.tokens import Dialogue

_LONG = 1000  # texts from which on a bar is shown to whoever watches
_Item = TypeVar("_Item")


class Reading(NamedTuple):
    """What a model made of some of the dialogues: where they stand, and one row for each."""

    where: list[int]
    rewards: Float[np.ndarray, " b"]
    features: Float[np.ndarray, "b d"]


def read_dialogues(
    model: Any, dialogues: Sequence[Dialogue], *, batch_size: int
) -> Iterator[Reading]:
    """Yield the readings of all dialogues, the longest first, batch by batch."""
    # Dialogues of one length stand together, so little is padded. They are padded on the right and
    # what pads is not attended to, so a reading depends on its own dialogue only, up to the last
    # bits of the model's arithmetic.
    rows = [[*each.prompt, *each.answer] for each in dialogues]
    order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
    for start in range(0, len(order), batch_size):
        where = order[start : start + batch_size]
        yield Reading(where, *_read(model, [rows[index] for index in where]))


def watched(items: Iterable[_Item], *, texts: int, steps: int, what: str) -> Iterable[_Item]:
    """Return the items, with a bar if they take long and a person watches."""
    if texts < _LONG or not sys.stderr.isatty():
        return items
    return track(items, what, total=steps, console=Console(stderr=True), transient=True)


def _read(
    model: Any, rows: list[list[int]]
) -> tuple[Float[np.ndarray, " b"], Float[np.ndarray, "b d"]]:
    """Return the rewards of one batch, and the states that the head made them of."""
    ids, attended = _padded(rows, model.config.get_text_config().pad_token_id, model.device)
    with quiet(), torch.no_grad(), _judging(model), _overheard(model.score) as heard:
        rewards = model(input_ids=ids, attention_mask=attended).logits[:, 0]
        states = heard[0][torch.arange(len(rows), device=ids.device), _last(model, ids)]
    if not bool(torch.isfinite(rewards).all()):
        raise UsageError(
            "The model's rewards are not finite numbers, so nothing was scored. Its training "
            "diverged, or its weights are damaged: train it again with a smaller learning rate."
        )
    return rewards.double().cpu().numpy(), states.double().cpu().numpy()


def _padded(rows: list[list[int]], pad: int, device: Any) -> tuple[Any, Any]:
    """Return tokens padded on the right, and which of them are attended to."""
    lengths = torch.tensor([[len(row)] for row in rows])
    longest = int(lengths.max())
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    return ids.to(device), (torch.arange(longest) < lengths).long().to(device)


def _last(model: Any, ids: Any) -> Any:
    """Return where the head reads each row: at its last token that does not pad."""
    pad = model.config.get_text_config().pad_token_id
    return (torch.arange(ids.shape[1], device=ids.device) * (ids != pad)).argmax(dim=1)


@contextmanager
def _judging(model: Any) -> Iterator[None]:
    """Switch dropout off, and leave a model that is being trained as it was."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def _overheard(head: Any) -> Iterator[list[Any]]:
    """Yield a list that receives what the head is given."""
    heard: list[Any] = []
    handle = head.register_forward_pre_hook(lambda _, given: heard.append(given[0]))
    try:
        yield heard
    finally:
        handle.remove()
