"""A reward model that reads texts: scores, how far they may be trusted, and what they promise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.language.models._model_digests import tokenizer_digest, weights_digest
from sordino.language.models.promises import CheckpointPromise
from sordino.language.models.tokens import Dialogue, DialogueTokens, Overlong
from sordino.language.rewards._last_tokens import Reading, read_dialogues, watched
from sordino.language.rewards._measuring import measured_uncertainty, numbered
from sordino.language.rewards._reward_checks import promised, usable_model, usable_tokenizer
from sordino.language.rewards._reward_feature import RewardFeature
from sordino.language.rewards._reward_folder import read_reward_parts, write_reward
from sordino.language.rewards.uncertainty import LastLayerUncertainty
from sordino.language.training.policy_promises import folder_promises
from sordino.preferences._tokens import flatten
from sordino.preferences.private_pairs import PrivatePairs
from sordino.preferences.records import Text
from sordino.privacy.guarantee import Guarantee

__all__ = ["TextRewardModel"]

_FORMAT, _VERSION = "sordino.text-reward", 1


@dataclass(frozen=True, repr=False, eq=False)
class TextRewardModel:
    """A language model with one scalar head, trained on randomized preferences, that scores texts.

    Scores, and everything made of them, are free: they are computed from answers that were
    private before training. A score depends on its own prompt and answer only, up to the last
    bits of 32-bit arithmetic. What is too long loses the beginning of its prompt, as in training.

    Guarantee:
        What ``promise.guarantee`` says of the answers it was trained on; scoring is
        post-processing. Shown by tests/language/test_text_rewards.py.

    Args:
        model: As ``load_reward_checkpoint`` returns it, or a trained one; its padding token is
            set to that of the tokenizer. Adapters must be merged.
        tokenizer: As ``load_tokenizer`` returns it.
        promise: What the labels behind it were promised; of kind ``"reward"``.
        reward_bound: Scores are clipped to ± this.
        max_length: Most tokens of prompt and answer together; at most the model's context.
        batch_size: Texts that are read at once.
        uncertainty: What pessimistic scores need; :meth:`with_uncertainty` measures it.

    Raises:
        PrivacyError: There is no promise.
        UsageError: Model, tokenizer or a setting cannot be used.
    """

    model: Any
    tokenizer: Any
    _: KW_ONLY
    promise: CheckpointPromise
    reward_bound: float
    max_length: int
    batch_size: int = 16
    uncertainty: LastLayerUncertainty | None = None

    def __post_init__(self) -> None:
        """Check the parts against each other, and write the settings into the promise."""
        usable_tokenizer(self.tokenizer)
        usable_model(self.model, self.tokenizer, self.max_length)
        _validate.positive("reward_bound", self.reward_bound)
        _validate.integer("batch_size", self.batch_size, at_least=1)
        known = {"reward_bound": float(self.reward_bound), "max_length": int(self.max_length)}
        promise = promised(self.promise, known).with_those_of(*folder_promises(self.model))
        promise.mark(self.model)
        object.__setattr__(self, "promise", promise)

    def __repr__(self) -> str:
        """Return kind of model, bound and promise; no weights."""
        kind = type(self.model).__name__
        return f"TextRewardModel({kind}, ±{self.reward_bound:g}, {self.guarantee})"

    @property
    def guarantee(self) -> Guarantee:
        """Return what the labels behind it were promised."""
        return self.promise.guarantee

    @property
    def release_ids(self) -> tuple[str, ...]:
        """Return the ledger entries that paid."""
        return self.promise.release_ids

    @property
    def artifact(self) -> str:
        """Return the SHA-256 of the randomized answers behind it."""
        return self.promise.artifact

    @property
    def pairs(self) -> int | None:
        """Return how many comparisons were used, if the checkpoint says so."""
        found = self.promise.training.get("pairs")
        return found if isinstance(found, int) else None

    @property
    def features(self) -> RewardFeature:
        """Return the score as a feature map of one column, which policies read texts with."""
        return RewardFeature(self)

    @cached_property
    def tokens(self) -> DialogueTokens:
        """Return what turns prompts and answers into tokens that fit."""
        return DialogueTokens(self.tokenizer, self.max_length)

    def can_read(self, prompt: Text, answer: Text) -> bool:
        """Return whether an answer is neither empty nor alone too long, so that it has a score."""
        try:
            self.tokens.dialogue(prompt, answer)
        except DataError:
            return False
        return True

    def score(self, prompts: Sequence[Text], answers: Sequence[Text]) -> Float[np.ndarray, " n"]:
        """Return the reward of each answer to its prompt, within ± ``reward_bound``.

        Rewards are comparable between answers to one prompt only.

        Args:
            prompts: n texts or lists of chat messages.
            answers: n texts or lists of chat messages.

        Raises:
            DataError: The lengths differ; or an element is no text, an answer is empty, or alone
                longer than ``max_length``: its index is named.
        """
        dialogues = self._dialogues(prompts, answers)
        rewards = np.empty(len(dialogues))
        for reading in self._readings(dialogues):
            rewards[reading.where] = reading.rewards
        return np.clip(rewards, -self.reward_bound, self.reward_bound)

    def pessimistic_score(
        self, prompts: Sequence[Text], answers: Sequence[Text], *, scale: float = 1.0
    ) -> Float[np.ndarray, " n"]:
        """Return the score of each answer less ``scale`` times its bonus, a heuristic.

        The bonus grows with the distance from the other answers to the same prompt in this call,
        if there are at least three, else from the training answers; see
        :class:`LastLayerUncertainty`. The result is not clipped: it may be below
        −``reward_bound``, so that answers far out are still told apart.

        Args:
            prompts: n texts or lists of chat messages.
            answers: n texts or lists of chat messages.
            scale: What the bonus is multiplied by, ≥ 0; at 0 this is :meth:`score`.

        Raises:
            DataError: As in :meth:`score`.
            UsageError: No uncertainty was measured, or the scale is out of range.

        Source:
            docs/local.md, confidence and pessimism: r̂ − Γ.
        """
        uncertainty, dialogues = self._known(scale), self._dialogues(prompts, answers)
        rewards = np.empty(len(dialogues))
        rows = np.empty((len(dialogues), len(uncertainty.mean)))
        for reading in self._readings(dialogues):
            rewards[reading.where], rows[reading.where] = reading.rewards, reading.features
        clipped = np.clip(rewards, -self.reward_bound, self.reward_bound)
        return np.asarray(clipped - scale * uncertainty.bonus(rows, numbered(prompts)))

    def score_features(self, rows: Any) -> Float[np.ndarray, " n"]:  # noqa: ARG002
        """Refuse: this reward reads texts.

        Raises:
            UsageError: Always.
        """
        raise UsageError(
            "This reward reads texts, not feature rows. Use score(prompts, answers). Nothing was "
            "scored."
        )

    def with_uncertainty(
        self,
        pairs: PrivatePairs,
        *,
        ball: float | None = None,
        ridge: float | None = None,
        confidence: float = 0.95,
        overlong: Overlong = "refuse",
    ) -> TextRewardModel:
        """Return the same reward, with the uncertainty that its training pairs leave.

        Only texts, the flip probability and the trained model are read, so it costs nothing; a
        repeat of one person counts once.

        Args:
            pairs: The randomized answers that it was trained on.
            ball: As :meth:`LastLayerUncertainty.of` takes it, as are the next two.
            ridge: As there.
            confidence: As there.
            overlong: What happens to pairs of which an answer alone is too long.

        Raises:
            PrivacyError: These are raw judgments.
            UsageError: They are not the answers behind this reward, or a setting is out of range.
            DataError: A pair cannot be read.
        """
        measured = measured_uncertainty(
            self, pairs, overlong=overlong, ball=ball, ridge=ridge, confidence=confidence
        )
        return replace(self, uncertainty=measured)

    def to_dict(self) -> dict[str, Any]:
        """Return the promise, the settings, and digests of everything a score depends on."""
        uncertainty = self.uncertainty
        return {
            **self.promise.to_dict(),
            "format": _FORMAT,
            "version": _VERSION,
            "weights": weights_digest(self.model),
            "tokenizer": tokenizer_digest(self.tokenizer),
            "uncertainty": None if uncertainty is None else uncertainty.to_dict(),
        }

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write a checkpoint that transformers loads, its promise, model card and uncertainty.

        Args:
            folder: Where to; it is made if it is missing.
            force: Overwrite what is there.

        Raises:
            UsageError: The folder exists and ``force`` is False.
            FileSystemError: It cannot be written.
        """
        write_reward(self, Path(folder), force=force)

    @classmethod
    def load(
        cls, folder: str | Path, *, device: str | None = None, batch_size: int = 16
    ) -> TextRewardModel:
        """Return the reward that :meth:`save`, or a trainer, wrote into a folder.

        Args:
            folder: On this machine; nothing is ever fetched.
            device: As PyTorch names it; an accelerator, if there is one, where it is left out.
            batch_size: Texts that are read at once.

        Raises:
            FileSystemError: There is no such folder, or it cannot be read.
            UsageError: It is no reward of ours, or it cannot be loaded.
            DataError: A file is damaged, or was written by a newer version.
        """
        return cls(**read_reward_parts(folder, device=device), batch_size=batch_size)

    def _known(self, scale: float) -> LastLayerUncertainty:
        """Return the uncertainty, if there is one and the scale is usable."""
        scale = _validate.non_negative("scale", scale)
        if not np.isfinite(scale):
            raise UsageError("scale must be finite, got inf.")
        if self.uncertainty is None:
            raise UsageError(
                "Nothing was measured that says how wrong this reward may be. Call "
                "with_uncertainty(pairs) with the pairs it was trained on, or use score."
            )
        return self.uncertainty

    def _readings(self, dialogues: Sequence[Dialogue]) -> Iterable[Reading]:
        """Return what the model makes of the dialogues, batch by batch."""
        return watched(
            read_dialogues(self.model, dialogues, batch_size=self.batch_size),
            texts=len(dialogues),
            steps=-(-len(dialogues) // self.batch_size),
            what="Scoring",
        )

    def _dialogues(self, prompts: Sequence[Text], answers: Sequence[Text]) -> list[Dialogue]:
        """Return tokens of checked texts."""
        flatten(prompts, "prompts")
        flatten(answers, "answers")
        if len(prompts) != len(answers):
            raise DataError(f"{len(prompts)} prompts, but {len(answers)} answers.")
        return [
            self.tokens.dialogue(prompt, answer, where=f"answers[{index}]")
            for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
        ]
