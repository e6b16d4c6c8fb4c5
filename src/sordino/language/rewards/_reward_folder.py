"""A reward as a folder: a checkpoint that transformers loads, and what Sordino adds to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sordino._files import explained, refuse_existing
from sordino._validate import integer, positive
from sordino.errors import DataError, UsageError
from sordino.language.models._loading import quiet
from sordino.language.models._model_digests import weights_digest
from sordino.language.models.checkpoints import (
    checkpoint_folder,
    load_reward_checkpoint,
    load_tokenizer,
)
from sordino.language.models.promises import PROMISE_FILE, CheckpointPromise
from sordino.language.rewards._uncertainty_file import read_uncertainty, write_uncertainty

if TYPE_CHECKING:
    from sordino.language.rewards.text_rewards import TextRewardModel

__all__ = ["read_reward_parts", "write_reward"]

_DIGEST = "weights"  # among the settings of a saved reward; not of one that is in use


def write_reward(reward: TextRewardModel, folder: Path, *, force: bool) -> None:
    """Write a reward; the promise comes last, so that half a reward is not taken for one.

    Raises:
        UsageError: The folder exists and ``force`` is False.
        FileSystemError: It cannot be written.
    """
    refuse_existing(folder, force=force)
    with explained(f"The reward cannot be written to {folder.name}"), quiet():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PROMISE_FILE).unlink(missing_ok=True)
        reward.model.save_pretrained(folder)
        reward.tokenizer.save_pretrained(folder)
        write_uncertainty(reward.uncertainty, folder)
        training = {**reward.promise.training, _DIGEST: weights_digest(reward.model)}
        replace(reward.promise, training=training).write(folder, title="Private reward model")


def read_reward_parts(path: str | Path, *, device: str | None) -> dict[str, Any]:
    """Return the arguments that make the reward in a folder.

    Raises:
        FileSystemError: There is no such folder, or it cannot be read.
        UsageError: It is no reward of ours, or it cannot be loaded.
        DataError: A file is damaged, or was written by a newer version.
    """
    folder = checkpoint_folder(path)
    promise = _promise(folder)
    training = dict(promise.training)
    digest = training.pop(_DIGEST, None)
    try:
        bound = positive("reward_bound", training.get("reward_bound"))
        length = integer("max_length", training.get("max_length"), at_least=2)
    except UsageError:  # without its words, which quote the file
        raise DataError(
            f"{PROMISE_FILE} does not say how the reward scores: reward_bound and max_length must "
            "be numbers above 0. Train the reward again."
        ) from None
    model = load_reward_checkpoint(folder, device=device)
    if digest not in {None, weights_digest(model)}:
        raise DataError(
            f"The weights in {folder.name} are not those that were saved: a file is damaged or was "
            "exchanged. Nothing was loaded. Copy the folder again, or train the reward again."
        )
    return {
        "model": model,
        "tokenizer": load_tokenizer(folder),
        "promise": replace(promise, training=training),
        "reward_bound": bound,
        "max_length": length,
        "uncertainty": read_uncertainty(folder),
    }


def _promise(folder: Path) -> CheckpointPromise:
    """Return what a folder promises; refuse one without a promise, and that of a policy."""
    if not (folder / PROMISE_FILE).exists():
        raise UsageError(
            f"{str(folder)!r} holds no {PROMISE_FILE}, which says what the labels behind a reward "
            "were promised. Nothing was loaded. Give a folder that TextRewardModel.save or a "
            "trainer wrote."
        )
    promise = CheckpointPromise.read(folder)
    if promise.kind != "reward":
        raise UsageError(
            f"{str(folder)!r} holds a {promise.kind}, not a reward. Nothing was loaded."
        )
    return promise
