"""A reward model that reads texts: its scores, how far to trust them, its folder and promise.

How far an answer lies from what people compared, as the last layer of the reward sees it, is kept
as a file of safetensors: matrices, and settings in the header. What answers are worth to trainers
of policies is a private reward as the callable that trl takes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Integer
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sordino import _validate
from sordino._files import atomic_writer, explained, refuse_existing
from sordino._validate import integer, positive
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.language.models.checkpoints import (
    checkpoint_folder,
    load_reward_checkpoint,
    load_tokenizer,
    readable_length,
    refuse_other_heads,
)
from sordino.language.models.generation import evaluating, padded
from sordino.language.models.loading import quiet
from sordino.language.models.promises import (
    PROMISE_FILE,
    CheckpointPromise,
    folder_promises,
    tokenizer_digest,
    weights_digest,
)
from sordino.language.models.tokens import Dialogue, DialogueTokens, Overlong, numbered
from sordino.preferences.features import flatten
from sordino.preferences.pairs import PrivatePairs
from sordino.preferences.records import Text
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger_chain import digest_of_array
from sordino.rewards.confidence import (
    ConfidenceEllipsoid,
    confidence_ellipsoid,
    flattest_curvature,
    packed,
)
from sordino.rewards.solver import Solution


class Reading(NamedTuple):
    """What a model made of some of the dialogues: where they stand, and one row for each."""

    where: list[int]
    rewards: Float[np.ndarray, " b"]
    features: Float[np.ndarray, "b d"]


_BATCHES = 16  # of pairs, whose features are held at once


def _features(
    reward: TextRewardModel, pairs: PrivatePairs, overlong: Overlong
) -> Iterator[tuple[Float[np.ndarray, "b d"], Float[np.ndarray, "b d"]]]:
    """Yield the features of first and second answers, one row for each person and question."""
    tokens = DialogueTokens(reward.tokenizer, reward.max_length, overlong=overlong)
    first, second, rows = tokens.pairs(pairs)
    once = pairs.first_rows()
    kept = [index for index, row in enumerate(rows) if once[row]]
    size = _BATCHES * reward.batch_size
    for start in range(0, len(kept), size):
        some = kept[start : start + size]
        dialogues = [*(first[i] for i in some), *(second[i] for i in some)]
        both = np.empty((len(dialogues), reward.model.score.in_features))
        for reading in reward.readings(dialogues):
            both[reading.where] = reading.features
        yield both[: len(some)], both[len(some) :]


@dataclass(frozen=True, repr=False, eq=False)
class _RewardFeature:
    """The score of a trained reward as the only feature of an answer."""

    # Policies read texts with it. It was learned from answers of people, so nothing may be fitted
    # on it: the fit would promise what its own answers do, and not what went into the feature.

    reward: TextRewardModel  # the trained reward

    @property
    def dimension(self) -> int:
        return 1

    @property
    def feature_bound(self) -> float:
        return float(self.reward.reward_bound)

    @property
    def guarantee(self) -> Guarantee:
        """Return what the answers behind the feature were promised: fits refuse it."""
        return self.reward.guarantee

    def transform(
        self, prompts: Sequence[Text], answers: Sequence[Text]
    ) -> Float[np.ndarray, "n 1"]:
        return self.reward.score(prompts, answers)[:, None]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values; of the reward only what it was trained on."""
        return {
            "kind": "text-reward",
            "dimension": self.dimension,
            "feature_bound": self.feature_bound,
            "artifact": self.reward.artifact,
        }


_DIGEST = "weights"  # among the settings of a saved reward; not of one that is in use
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

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    _: KW_ONLY
    promise: CheckpointPromise
    reward_bound: float
    max_length: int
    batch_size: int = 16
    uncertainty: LastLayerUncertainty | None = None

    def __post_init__(self) -> None:
        model, tokenizer = self.model, self.tokenizer
        if tokenizer.eos_token_id is None or tokenizer.pad_token_id is None:
            raise UsageError(
                "The tokenizer lacks a token that ends or pads a text, so nothing can be scored. "
                "Load it with sordino.language.models.checkpoints.load_tokenizer."
            )
        if hasattr(model, "merge_and_unload"):
            raise UsageError(
                "The model has adapters beside it, which a saved reward would lose. Merge them "
                "first: model = model.merge_and_unload()."
            )
        refuse_other_heads(model)
        readable_length(model, tokenizer, integer("max_length", self.max_length, at_least=2))
        model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
        positive("reward_bound", self.reward_bound)
        integer("batch_size", self.batch_size, at_least=1)
        promise: object = self.promise
        if not isinstance(promise, CheckpointPromise):
            raise PrivacyError(
                f"A reward needs the promise of the labels behind it, got {type(promise).__name__}."
                " Nothing was made. Pass what the trainer holds, or "
                'CheckpointPromise.of(private_pairs, kind="reward").'
            )
        if promise.kind != "reward":
            raise UsageError(f"The promise is about a {promise.kind}, not about a reward.")
        known = {"reward_bound": float(self.reward_bound), "max_length": int(self.max_length)}
        promise = replace(promise, training={**promise.training, **known})
        promise = promise.with_those_of(*folder_promises(model))
        promise.mark(model)
        object.__setattr__(self, "promise", promise)

    def __repr__(self) -> str:
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
    def features(self) -> _RewardFeature:
        """Return the score as a feature map of one column, which policies read texts with."""
        return _RewardFeature(self)

    @cached_property
    def tokens(self) -> DialogueTokens:
        """Return what turns prompts and answers into tokens that fit."""
        return DialogueTokens(self.tokenizer, self.max_length)

    def can_read(self, prompt: Text, answer: Text) -> bool:
        """Return whether an answer is neither empty nor alone too long, so that it has a score."""
        with suppress(DataError):
            self.tokens.dialogue(prompt, answer)
            return True
        return False

    def scores_of_readable(
        self, prompts: Sequence[Text], answers: Sequence[Text], *, pessimism: float = 0.0
    ) -> Float[np.ndarray, " n"]:
        """Return the score of each answer; of one that is empty, or alone too long, it is NaN."""
        both = zip(prompts, answers, strict=True)
        readable = [row for row, each in enumerate(both) if self.can_read(*each)]
        texts = [prompts[row] for row in readable], [answers[row] for row in readable]
        found = np.full(len(answers), np.nan)
        if pessimism:
            found[readable] = self.pessimistic_score(*texts, scale=pessimism)
        else:
            found[readable] = self.score(*texts)
        return found

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
        return self._scored(prompts, answers)[0]

    def pessimistic_score(
        self, prompts: Sequence[Text], answers: Sequence[Text], *, scale: float = 1.0
    ) -> Float[np.ndarray, " n"]:
        """Return the score of each answer less ``scale`` times its bonus, a heuristic.

        The bonus grows with the distance from the other answers to the same prompt in this call,
        if there are at least three, else from the training answers; see
        :class:`LastLayerUncertainty`. The result is not clipped: it may be below
        −``reward_bound``, so that answers far out are still told apart.

        Args:
            prompts: As in :meth:`score`, as are the answers.
            answers: As there.
            scale: What the bonus is multiplied by, ≥ 0; at 0 this is :meth:`score`.

        Raises:
            DataError: As in :meth:`score`.
            UsageError: No uncertainty was measured, or the scale is out of range.

        Source:
            docs/local.md, confidence and pessimism: r̂ − Γ.
        """
        if not np.isfinite(_validate.non_negative("scale", scale)):
            raise UsageError("scale must be finite, got inf.")
        uncertainty = self.uncertainty
        if uncertainty is None:
            raise UsageError(
                "Nothing was measured that says how wrong this reward may be. Call "
                "with_uncertainty(pairs) with the pairs it was trained on, or use score."
            )
        clipped, rows = self._scored(prompts, answers, width=len(uncertainty.mean))
        return np.asarray(clipped - scale * uncertainty.bonus(rows, numbered(prompts)))

    def score_features(self, rows: object) -> Float[np.ndarray, " n"]:  # noqa: ARG002
        """Refuse: this reward reads texts.

        Raises:
            UsageError: Always.
        """
        raise UsageError(
            "This reward reads texts, not feature rows. Use score(prompts, answers). Nothing was "
            "scored."
        )

    def with_uncertainty(
        self, pairs: PrivatePairs, *, overlong: Overlong = "refuse"
    ) -> TextRewardModel:
        """Return the same reward, with the uncertainty that its training pairs leave.

        Only texts, the flip probability and the trained model are read, so it costs nothing; a
        repeat of one person counts once.

        Args:
            pairs: The randomized answers that it was trained on.
            overlong: What happens to pairs of which an answer alone is too long.

        Raises:
            PrivacyError: These are raw judgments.
            UsageError: They are not the answers behind this reward, or it was not trained yet.
            DataError: A pair cannot be read.
        """
        if not isinstance(pairs, PrivatePairs):
            raise PrivacyError(
                "Uncertainty is measured on the randomized answers that the reward was trained on, "
                f"got {type(pairs).__name__}. Nothing was measured. Pass what sordino.privatize "
                "returned."
            )
        if pairs.artifact != self.artifact:
            raise UsageError(
                "These are not the answers that this reward was trained on, so they do not say "
                "what it learned. Nothing was measured. Pass the same private pairs."
            )
        measured = LastLayerUncertainty.of(
            _features(self, pairs, overlong),
            self.model.score.weight.detach().double().cpu().numpy()[0],
            flip_probability=pairs.flip_probability,
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
        # The promise comes last, so that half a reward is not taken for one.
        folder = Path(folder)
        refuse_existing(folder, force=force)
        with explained(f"The reward cannot be written to {folder.name}"), quiet():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / PROMISE_FILE).unlink(missing_ok=True)
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
            write_uncertainty(self.uncertainty, folder)
            training = {**self.promise.training, _DIGEST: weights_digest(self.model)}
            promise = replace(self.promise, training=training)
            promise.write(folder, title="Private reward model", more=(UNCERTAINTY_FILE,))

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
        folder = checkpoint_folder(folder)
        if not (folder / PROMISE_FILE).exists():
            raise UsageError(
                f"{str(folder)!r} holds no {PROMISE_FILE}, which says what the labels behind a "
                "reward were promised. Nothing was loaded. Give a folder that TextRewardModel.save "
                "or a trainer wrote."
            )
        promise = CheckpointPromise.read(folder)
        if promise.kind != "reward":
            raise UsageError(
                f"{str(folder)!r} holds a {promise.kind}, not a reward. Nothing was loaded."
            )
        training = dict(promise.training)
        digest = training.pop(_DIGEST, None)
        try:
            bound = positive("reward_bound", training.get("reward_bound"))
            length = integer("max_length", training.get("max_length"), at_least=2)
        except UsageError:  # without its words, which quote the file
            raise DataError(
                f"{PROMISE_FILE} does not say how the reward scores: reward_bound and max_length "
                "must be numbers above 0. Train the reward again."
            ) from None
        model = load_reward_checkpoint(folder, device=device)
        if digest not in {None, weights_digest(model)}:
            raise DataError(
                f"The weights in {folder.name} are not those that were saved: a file is damaged or "
                "was exchanged. Nothing was loaded. Copy the folder again, or train the reward "
                "again."
            )
        return cls(
            model,
            load_tokenizer(folder),
            promise=replace(promise, training=training),
            reward_bound=bound,
            max_length=length,
            batch_size=batch_size,
            uncertainty=read_uncertainty(folder),
        )

    def _scored(
        self, prompts: Sequence[Text], answers: Sequence[Text], *, width: int = 0
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n d"]]:
        """Return the reward of each answer, and as many features as are asked for: all, or none."""
        flatten(prompts, "prompts")
        flatten(answers, "answers")
        if len(prompts) != len(answers):
            raise DataError(f"{len(prompts)} prompts, but {len(answers)} answers.")
        dialogues = [
            self.tokens.dialogue(prompt, answer, where=f"answers[{index}]")
            for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
        ]
        rewards, rows = np.empty(len(dialogues)), np.empty((len(dialogues), width))
        for where, given, features in self.readings(dialogues):
            rewards[where], rows[where] = given, features[:, :width]
        return np.clip(rewards, -self.reward_bound, self.reward_bound), rows

    def readings(self, dialogues: Sequence[Dialogue]) -> Iterator[Reading]:
        """Yield rewards, and the states that the head made them of, batch by batch."""
        # Dialogues of one length stand together, so little is padded. They are padded on the right
        # and what pads is not attended to, so a reading depends on its own dialogue only, up to the
        # last bits of the model's arithmetic.
        model, pad = self.model, self.model.config.get_text_config().pad_token_id
        rows = [[*each.prompt, *each.answer] for each in dialogues]
        order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
        for start in range(0, len(order), self.batch_size):
            where = order[start : start + self.batch_size]
            ids, attended = padded([rows[index] for index in where], pad, model.device)
            last = (torch.arange(ids.shape[1], device=ids.device) * (ids != pad)).argmax(dim=1)
            heard: list[torch.Tensor] = []
            handle = model.score.register_forward_pre_hook(
                lambda _, given, heard=heard: heard.append(given[0])
            )
            try:
                with quiet(), torch.no_grad(), evaluating(model):
                    rewards = model(input_ids=ids, attention_mask=attended).logits[:, 0]
            finally:
                handle.remove()
            states = heard[0][torch.arange(len(where), device=ids.device), last]
            if not bool(torch.isfinite(rewards).all()):
                raise UsageError(
                    "The model's rewards are not finite numbers, so nothing was scored. Its "
                    "training diverged, or its weights are damaged: train it again with a smaller "
                    "learning rate."
                )
            yield Reading(where, rewards.double().cpu().numpy(), states.double().cpu().numpy())


@dataclass(frozen=True)
class RewardFunction:
    """What trl calls for rewards; made by :func:`reward_function`, which says what it promises."""

    reward: TextRewardModel  # the private reward
    pessimism: float = field(default=0.0, kw_only=True)  # `scale` of its pessimistic score

    def __post_init__(self) -> None:
        if not isinstance(self.reward, TextRewardModel):
            raise PrivacyError(
                f"A policy is trained on a TextRewardModel, got {type(self.reward).__name__}. "
                "Nothing was made. Use PrivateRewardTrainer.text_reward() or "
                "TextRewardModel.load(folder)."
            )
        if not np.isfinite(_validate.non_negative("pessimism", self.pessimism)):
            raise UsageError("pessimism must be finite, got inf.")
        if self.pessimism and self.reward.uncertainty is None:
            raise UsageError(
                "pessimism needs an uncertainty, and none was measured. Nothing was made. Call "
                "reward.with_uncertainty(pairs) with the pairs it was trained on first."
            )

    @property
    def __name__(self) -> str:
        return "pessimistic_reward" if self.pessimism else "private_reward"

    @property
    def promise(self) -> CheckpointPromise:
        """Return what a policy promises that is trained on this reward and on public prompts."""
        return self.reward.promise

    def __call__(
        self, prompts: Sequence[Text], completions: Sequence[Text], **_: object
    ) -> list[float]:
        """Return the reward of each completion; what cannot be read gets the lowest."""
        # A turn that only calls a tool says nothing.
        answers = [
            one
            if isinstance(one, str)
            else [{"role": turn["role"], "content": turn.get("content") or ""} for turn in one]
            for one in completions
        ]
        found = self.reward.scores_of_readable(prompts, answers, pessimism=self.pessimism)
        lowest = np.nanmin([-self.reward.reward_bound, *found])
        return [float(value) for value in np.where(np.isnan(found), lowest, found)]


def reward_function(reward: TextRewardModel, *, pessimism: float = 0.0) -> RewardFunction:
    """Return a function for ``reward_funcs`` of trl's ``RLOOTrainer`` and ``GRPOTrainer``.

    Optimizing a policy against it is post-processing: with public prompts, however long it runs,
    the promise of the reward is that of the policy. Prompts and completions may be texts or chat
    messages; the reward wraps them as it did in training.

    What a policy says must never end its training. A completion that is empty, or alone longer than
    the reward reads, gets −``reward_bound``, or less where pessimism gave another one in the same
    call less, so that saying nothing never pays. Give the trainer a ``max_completion_length`` below
    the reward's ``max_length``. A completion that was cut off is read as if it ended there.

    With pessimism the bonus of a completion is its distance from the others to its prompt, if
    there are at least three: set ``num_generations`` to 4 or more (the default of trl's
    ``RLOOConfig`` is 2, for which the center is that of the training answers).

    trl's trainers report their use over the network when they are made. With the environment
    variable ``HF_HUB_DISABLE_TELEMETRY=1`` (or ``HF_HUB_OFFLINE=1``), set before Python starts,
    they report nothing.

    Args:
        reward: The private reward.
        pessimism: ``scale`` of :meth:`TextRewardModel.pessimistic_score`; at 0 the score itself.

    Raises:
        PrivacyError: It is no private reward.
        UsageError: The pessimism is out of range, or no uncertainty was measured.

    Guarantee:
        What ``reward.guarantee`` says; calling it is post-processing. Shown by
        tests/language/test_text_rewards.py.

    Example:
        >>> trainer = RLOOTrainer(  # doctest: +SKIP
        ...     model, reward_funcs=reward_function(reward), args=RLOOConfig(beta=0.05), ...
        ... )
    """
    return RewardFunction(reward, pessimism=pessimism)


RewardCallable: TypeAlias = Callable[..., Sequence[float]]
"""From ``prompts`` and ``completions``, both given by name, to one number for each, as in trl."""


def listed_functions(given: object) -> list[RewardCallable]:
    """Return one or several reward functions as a list."""
    functions: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    models = torch.nn.Module | type  # which are called otherwise
    if not functions or not all(callable(f) and not isinstance(f, models) for f in functions):
        raise UsageError(
            "reward_funcs must be a function of (prompts, completions, **kwargs) that returns one "
            "number for each, or a list of such functions. For a reward model, give "
            "reward_function(TextRewardModel.load(folder))."
        )
    return functions


def summed_rewards(
    functions: Sequence[RewardCallable],
    prompts: Sequence[Text],
    texts: Sequence[str],
    **also: object,
) -> list[float]:
    """Return the sum of all rewards of each answer."""
    # Answers to chat messages are given as messages, others as text.
    said = [
        text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
        for prompt, text in zip(prompts, texts, strict=True)
    ]
    lists = [
        _checked(at, function(prompts=list(prompts), completions=said, **also), len(texts))
        for at, function in enumerate(functions)
    ]
    return [math.fsum(each) for each in zip(*lists, strict=True)]


def _checked(at: int, values: Iterable[Any], wanted: int) -> list[float]:
    """Return the rewards of one function as numbers, one for each answer."""
    values = list(values)
    if len(values) != wanted:
        raise DataError(
            f"Reward function {at} returned {len(values)} rewards for {wanted} answers. The policy "
            "was not changed by them."
        )
    for i, value in enumerate(values):
        if not isinstance(value, Real | torch.Tensor) or not math.isfinite(value):
            raise DataError(
                f"Reward function {at}: the reward of answer {i} is not a finite number. The "
                "policy was not changed by it."
            )
    return [float(value) for value in values]


_FEWEST_FOR_A_CENTER = 3
"""Answers to one prompt from which on their mean is the center; two are always equally far."""

_ARRAYS = {"center", "metric"}  # of the ellipsoid, beside its settings


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LastLayerUncertainty:
    """An elliptical bonus from last-layer features, computed as for a linear reward: a HEURISTIC.

    With h the state that the head reads at the last token, and x = h(first) − h(second) of each
    pair, the bonus of an answer is radius · ‖h − center‖ in the norm of M⁻¹, with
    M = Σ σ′(‖x‖B) xxᵀ + ΛI and the radius of docs/local.md, confidence and pessimism.

    Nothing is proved of it. That radius is about features that were fixed before anybody
    answered, and about the minimizer of the debiased loss inside a ball chosen beforehand.
    Fine-tuning makes the features depend on the randomized answers; where the body was frozen
    they are fixed, but the head is what gradient descent made of it, and not that minimizer. It
    costs no privacy: it sees public texts and the trained model only.

    The **center** of an answer is the mean of all answers to the same prompt in the same call, if
    there are at least three: what they share changes no choice among them. Of fewer it is the
    mean of all training answers, because two answers lie equally far from their own mean, and the
    bonus would cancel. So a bonus may change with the answers that stand beside an answer.

    Source:
        docs/local.md, confidence and pessimism: Γ(x, a) = radius·‖φ(x, a) − φ̄‖_{M⁻¹}.
    """

    ellipsoid: ConfidenceEllipsoid  # M, and what the radius is made of; around the head's weights
    mean: Float[np.ndarray, " d"]  # mean feature of the training answers
    confidence: float = 0.95  # how often the set would hold a linear truth, in (0, 1)

    def __post_init__(self) -> None:
        _validate.failure_probability("confidence", self.confidence, zero=False)
        mean = _validate.finite_array("mean", self.mean, ndim=1)
        if len(mean) != len(self.ellipsoid.center):
            raise DataError(f"mean must have {len(self.ellipsoid.center)} features.")

    def __repr__(self) -> str:
        return f"LastLayerUncertainty(d={len(self.mean)}, radius={self.radius:.4g}, heuristic)"

    @property
    def radius(self) -> float:
        """What the distance to the center is multiplied by."""
        return self.ellipsoid.radius(self.confidence)

    @classmethod
    def of(
        cls,
        pairs: Iterable[tuple[Float[np.ndarray, "b d"], Float[np.ndarray, "b d"]]],
        head: Float[np.ndarray, " d"],
        *,
        flip_probability: float,
    ) -> LastLayerUncertainty:
        """Return the uncertainty of a head from its training pairs' features, batch by batch."""
        # Only a few d × d matrices are kept, however many pairs there are. The ball is that of the
        # head: in a far larger one the bonus is useless, for M counts what a pair tells at the
        # largest margin that the ball permits. Λ is 1/B², which scales with the features as M does.
        # Source: docs/local.md, confidence and pessimism.
        bound, d = float(np.linalg.norm(head)), len(head)
        if not bound:
            raise UsageError(
                "The head's weights are all 0, so nothing was trained yet and nothing says how "
                "large they may be. Train the reward first."
            )
        strength = bound**-2
        gram, bent, total, n = np.zeros((d, d)), np.zeros((d, d)), np.zeros(d), 0
        for first, second in pairs:
            more, flat = flattest_curvature(first - second, ball=bound, ridge=0.0)
            gram, bent = gram + more, bent + flat
            total, n = total + first.sum(axis=0) + second.sum(axis=0), n + len(first)
        if not n:
            raise DataError("There are no pairs, so nothing says how far they reach.")
        ellipsoid = confidence_ellipsoid(
            (gram, bent + strength * np.eye(d)),
            Solution(theta=head, gradient_norm=0.0, multiplier=0.0, passes=0),
            flip_probability=flip_probability,
            ball=bound,
            ridge=strength,
            candidates=1,
        )
        return cls(ellipsoid=ellipsoid, mean=total / (2 * n))

    def bonus(
        self, rows: Float[np.ndarray, "n d"], prompts: Integer[np.ndarray, " n"]
    ) -> Float[np.ndarray, " n"]:
        """Return how wrong each answer's reward may be; answers to one prompt share its number."""
        # Source: docs/local.md, confidence and pessimism: radius · ‖h − center‖_{M⁻¹}.
        counts = np.bincount(prompts)
        totals = np.zeros((len(counts), len(self.mean)))
        np.add.at(totals, prompts, rows)
        centers = totals / np.maximum(counts, 1)[:, None]
        centers[counts < _FEWEST_FOR_A_CENTER] = self.mean
        return np.asarray(self.radius * self.ellipsoid.widths(rows - centers[prompts]))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, and digests of the arrays, as JSON holds them."""
        arrays = {"metric": self.ellipsoid.metric, "mean": self.mean}
        digests = {name: digest_of_array(values) for name, values in arrays.items()}
        return {**self.settings, **digests}

    @property
    def settings(self) -> dict[str, Any]:
        """Return the confidence, and what the ellipsoid holds besides arrays."""
        plain = self.ellipsoid.to_dict().items()
        return {"confidence": self.confidence, **{k: v for k, v in plain if k not in _ARRAYS}}


UNCERTAINTY_FILE = "uncertainty.safetensors"
"""Its name beside the weights of a reward."""

_UNCERTAINTY = {"format": "sordino.uncertainty", "version": "1"}
_FILE_ARRAYS = ("metric", "center", "mean")


def write_uncertainty(uncertainty: LastLayerUncertainty | None, folder: Path) -> None:
    """Write an uncertainty into a folder, or remove the one of an earlier reward."""
    path = folder / UNCERTAINTY_FILE
    if uncertainty is None:
        path.unlink(missing_ok=True)
        return
    known = uncertainty.ellipsoid
    content = save(
        {"metric": known.metric, "center": known.center, "mean": uncertainty.mean},
        metadata={**_UNCERTAINTY, "settings": json.dumps(uncertainty.settings)},
    )
    with atomic_writer(path, force=True) as file:
        file.write(content)


def read_uncertainty(folder: Path) -> LastLayerUncertainty | None:
    """Return what :func:`write_uncertainty` wrote; None if there is nothing."""
    path = folder / UNCERTAINTY_FILE
    if not path.exists():
        return None
    try:
        with explained(f"{path.name} cannot be read"), safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in _FILE_ARRAYS}
            header = file.metadata() or {}
        settings, mean = json.loads(header.pop("settings")), arrays.pop("mean")
        if header != _UNCERTAINTY:
            raise ValueError  # noqa: TRY301 (malformed like the others)
        confidence = settings.pop("confidence")
        arrays["metric"] = packed(arrays["metric"])
        known = ConfidenceEllipsoid.from_dict({**arrays, **settings})
        return LastLayerUncertainty(ellipsoid=known, mean=mean, confidence=confidence)
    except (SafetensorError, DataError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"The uncertainty of the reward cannot be used: {path.name} is damaged, or was "
            "written by a newer sordino."
        ) from error
