"""What can be known to fail in a comparison, and is refused before anything is spent on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sordino.cli._language_options import language_module
from sordino.errors import PrivacyError
from sordino.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from sordino.cli._language_study import Study

__all__ = ["judge_promise", "refuse_reference", "refuse_texts"]


def judge_promise(judge: Path) -> Guarantee:
    """Return what the labels were promised that a judge learned from.

    Raises:
        DataError: Its promise is malformed.
        FileSystemError: It has none.
    """
    promise: Any = language_module("models.promises").CheckpointPromise.read(judge)
    guarantee: Guarantee = promise.guarantee
    return guarantee


def refuse_reference(model: Path) -> None:
    """Refuse a reference that does not write, or that carries a promise about judgments.

    Raises:
        FileSystemError: There is no such folder.
        DataError: It carries a promise that is malformed.
        PrivacyError: It was trained on somebody's judgments.
        UsageError: It does not write.
    """
    checkpoints = language_module("models.checkpoints")
    folder = checkpoints.checkpoint_folder(model, kinds=checkpoints.CAUSAL)
    if language_module("training.policy_promises").folder_promises(folder):
        raise PrivacyError(
            f"{folder.name} was trained on judgments: it carries a promise about them, which no "
            "row of a table would count. Nothing was done. Give the label-free checkpoint that it "
            "was trained from."
        )


def refuse_texts(study: Study) -> None:
    """Refuse a judge and texts that a comparison would stumble over; no label is read.

    Raises:
        DataError: An answer is empty, or no pair of a part fits.
        FileSystemError: The judge is no reward with a promise.
        UsageError: A chat template refuses them, or drawn answers leave no room for a prompt.
    """
    fitting, sizes, pairs = language_module("studies.fitting"), study.sizes, study.all_pairs
    longest = max(sizes.max_new_tokens, sizes.policy.max_new_tokens)
    starts: list[Any] = []
    if study.model is None:
        tokens = fitting.planned_tokens(study.reference_pairs, sizes.model, sizes.dpo)
    else:
        tokens = fitting.checkpoint_tokens(study.model, sizes.dpo, writes=True)
        starts += [_writer(study.model), tokens.tokenizer]
    fitting.refuse_unreadable(tokens, pairs, study.parts, answer_room=longest)
    if study.judge is not None:
        judge = language_module("rewards.text_rewards").TextRewardModel.load(study.judge)
        for row in study.parts["held_out"]:
            judge.can_read(pairs.prompts[row], pairs.first[row])  # a template may refuse
        starts += [judge.model, judge.tokenizer]
    if study.central is not None:
        read, rows = language_module("references.texts_read").TextsRead, study.central
        read.on(*starts).caveats(read.of(rows.pairs), declared=rows.declare_unread)


def _writer(model: Path) -> Any:
    """Return the reference that was given, which says what it has read."""
    return language_module("models.checkpoints").load_causal_model(model)
