"""Training a policy by regression on differences of rewards, with transformers' trainer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sordino.errors import DataError, UsageError
from sordino.language.models.completions import answer_log_probabilities
from sordino.language.models.generation import prompt_room, prompt_texts
from sordino.language.models.promises import CheckpointPromise
from sordino.language.policies._collecting_training import CollectingTrainer
from sordino.language.policies.collector import Collector
from sordino.language.policies.rebel_config import RebelConfig
from sordino.language.policies.starting_policies import starting_policy, with_reference
from sordino.language.rewards.reward_sums import RewardFunction, listed_functions
from sordino.language.training.policy_promises import (
    folder_promises,
    policy_promise,
    reward_promises,
)
from sordino.preferences.records import Text

__all__ = ["RebelConfig", "RebelTrainer", "rebel_loss"]


def rebel_loss(log_ratio_gap: Any, reward_gap: Any, *, step: float) -> Any:
    """Return the mean squared error of regressing differences of rewards on log-ratios.

    Args:
        log_ratio_gap: Shape (n,): how much more log π(y | x) has grown since the collection, where
            π_t drew, than log π(y′ | x) has.
        reward_gap: Shape (n,): r(x, y) − r(x, y′), each reward less temperature times
            log π_t/reference of its answer.
        step: The step of mirror descent, per unit of reward.

    Source:
        docs/policy_optimization.md, "Updates", before a log-linear policy makes it linear:
        mean of ((log_ratio_gap)/step − reward_gap)².
    """
    return (log_ratio_gap / step - reward_gap).square().mean()


class RebelTrainer(CollectingTrainer):
    """Trains a policy on public prompts against a reward, by regression on relative rewards.

    In every round the policy π_t answers a batch of prompts twice (or once, and the reference
    once), and π is fitted so that the change of the log-odds of the two answers, over ``step``, is
    the difference of their rewards. The reward is less temperature · log(π_t/reference), so that
    the policy tends to reference · exp(reward / temperature). Dropout is off throughout: the
    policy that drew and the one that is fitted must be one function of the weights.

    Logged are ``loss`` (the regression), ``reward`` (mean, without the pull to the reference),
    ``kl`` (mean log-ratio of the policy's own answers, at sampling temperature 1 an unbiased
    estimate of the divergence from the reference, in nats) and ``length`` (mean, in tokens).

    Args:
        model: The folder of a causal language model, or such a model, which is changed in place.
        args: :class:`RebelConfig`.
        reward_funcs: One function or several, which are summed, as trl takes them: of (prompts,
            completions, **kwargs) to one finite number for each answer. An answer may be empty.
        train_dataset: Public prompts: texts or chat messages, or a data set with a column
            ``prompt``, of which no other column is read.
        processing_class: The tokenizer; that of the folder if left out.
        reference: Where the policy is pulled to: a folder or a model, which is not changed.
            Left out, it is the policy as it is now.
        peft_config: Train an adapter instead of all weights; the reference is then the model
            without it, and takes no memory of its own.
        promise: What the reward promises, where its functions do not say so themselves.
        callbacks: As for transformers.
        optimizers: As for transformers.

    Raises:
        DataError: There is no prompt, or one is no text; its index is named.
        PrivacyError: The promises of the rewards cannot be put into one.
        UsageError: A setting cannot be used.

    Guarantee:
        That of the randomized answers behind the reward: prompts are public and a private reward
        has been paid for, so training spends nothing. Shown by tests/language/test_rebel.py.

    Example:
        >>> trainer = RebelTrainer(  # doctest: +SKIP
        ...     "models/base", RebelConfig("out"), reward_funcs=reward_function(reward),
        ...     train_dataset=prompts,
        ... )
        >>> trainer.train()  # doctest: +SKIP
    """

    def __init__(  # noqa: PLR0913 (those of trl's trainers)
        self,
        model: Any,
        args: RebelConfig | None = None,
        *,
        reward_funcs: RewardFunction | Sequence[RewardFunction],
        train_dataset: Any,
        processing_class: Any = None,
        reference: Any = None,
        peft_config: Any = None,
        promise: CheckpointPromise | None = None,
        callbacks: list[Any] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
    ) -> None:
        """Check everything that can be checked before an answer is drawn."""
        args = RebelConfig() if args is None else args
        if not isinstance(args, RebelConfig):
            raise UsageError(f"args must be a RebelConfig, got {type(args).__name__}.")
        functions = listed_functions(reward_funcs)
        prompts = _prompts(train_dataset)
        carried = [*reward_promises(functions), *folder_promises(model, reference)]
        self.promise = policy_promise(carried, promise, args.public_settings())
        policy, tokenizer = starting_policy(model, processing_class)
        prompt_room(policy, tokenizer, args.max_completion_length)
        policy, reference = with_reference(policy, reference, peft_config)
        super().__init__(
            model=policy,
            args=args,
            train_dataset=prompts,
            processing_class=tokenizer,
            callbacks=callbacks,
            optimizers=optimizers,
        )
        if reference is not None:
            reference = self.accelerator.prepare_model(reference, evaluation_mode=True)
        self._collector = Collector(self.accelerator, tokenizer, functions, reference, args)

    def compute_loss(
        self,
        model: Any,
        inputs: list[Text],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 (transformers' signature)
        num_items_in_batch: Any = None,  # noqa: ARG002
    ) -> Any:
        """Return the regression loss of a batch of prompts, whose answers are drawn if need be."""
        rollout = self._rollout(inputs)
        grown = answer_log_probabilities(model, rollout.completions) - rollout.start
        loss = rebel_loss(_gap(grown), _gap(rollout.rewards), step=self.args.step)
        return (loss, {}) if return_outputs else loss


def _gap(both: Any) -> Any:
    """Return first answers less second ones."""
    first, second = both.chunk(2)
    return first - second


def _prompts(given: Any) -> list[Text]:
    """Return prompts as a list; refuse an empty one."""
    column = given["prompt"] if "prompt" in getattr(given, "column_names", ()) else given
    prompts = prompt_texts(column if isinstance(column, str) else list(column))
    if not prompts:
        raise DataError("train_dataset holds no prompt, so there is nothing to answer.")
    return prompts
