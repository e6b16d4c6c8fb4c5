"""A reward from raw pairs: gradients of whole units are clipped, summed and noised."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sordino.language.dp_sgd.privacy_terms import CentralPrivacy
from sordino.language.dp_sgd.settings import CentralRewardConfig
from sordino.language.dp_sgd.unit_rows import UnitPairs, reward_losses
from sordino.language.models.checkpoints import load_reward_checkpoint
from sordino.language.models.trained_models import matching_tokenizer, refuse_other_heads, with_head
from sordino.language.rewards.reward_training import PrivateRewardTrainer
from sordino.language.training.settings import own_settings
from sordino.preferences.pairs import Pairs
from sordino.privacy.ledger import Ledger

from .training import CentralTraining

if TYPE_CHECKING:
    from sordino.language.rewards.text_rewards import TextRewardModel

__all__ = ["CentralRewardConfig", "CentralRewardTrainer"]


class CentralRewardTrainer(CentralTraining):
    """Trains a reward on raw pairs so that no record, or no person, shows in what comes out.

    In every step units are drawn by a coin each, the gradient of each is clipped as a whole,
    Gaussian noise is added to the sum, and the sum is divided by a public number. The weights of
    every checkpoint, and everything computed from them, are covered. Nothing that is computed
    from the pairs leaves the trainer in another way: no loss and no metric is logged, and no row
    is written.

    What a checkpoint takes is reserved on the ledger before its first step. A run that is killed
    goes on from its last checkpoint and pays for every step from there on anew.

    Args:
        model: The folder of a causal model, which gets a head that starts at 0, or of a reward;
            or such a model, in 32-bit floats.
        args: Settings; defaults if left out.
        train_dataset: Raw pairs of texts.
        privacy: What is promised, and what it takes.
        ledger: Its budget must be of the same unit and relation.
        processing_class: The tokenizer; the one in the model's folder if left out.
        peft_config: Adapters to train instead of the whole model; the head is trained and saved
            with them.
        callbacks: As in transformers; they see noised gradients only.
        optimizers: An optimizer and a schedule, as in transformers.
        declare_unread: Whether you declare that nothing that training starts from has read these
            records before. It is needed where that is not known, and becomes a caveat.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Raises:
        PrivacyError: The ledger is about another unit or relation, or persons are not known; or a
            start has read these records, or nobody knows what it has read.
        UsageError: A setting, the model, the tokenizer or the pairs cannot be used.
        DataError: An answer is empty or longer than the model reads; which one is not said.
        FileSystemError: There is no such folder.

    Guarantee:
        What ``privacy`` says for a run that is not interrupted; after interruptions, what its
        entries on the ledger promise together, which every checkpoint carries. Unit and relation
        as in ``privacy``, trust ``"central"``, caveats ``real-arithmetic`` and ``timing``. Shown
        by tests/language/test_central_training.py.

    Source:
        Abadi et al. (2016), Algorithm 1; docs/language_models.md, "Norms of pairs".
    """

    kind = "reward"

    def __init__(  # noqa: PLR0913 (each is one choice of the user)
        self,
        model: Any,
        args: CentralRewardConfig | None = None,
        *,
        train_dataset: Pairs,
        privacy: CentralPrivacy,
        ledger: Ledger,
        processing_class: Any = None,
        peft_config: Any = None,
        callbacks: Sequence[Any] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        declare_unread: bool = False,
        simulate_seed: int | None = None,
    ) -> None:
        """Set everything up; nothing is spent yet."""
        args = own_settings(args, CentralRewardConfig).with_steps(privacy.steps)
        body = load_reward_checkpoint(model) if isinstance(model, str | Path) else model
        refuse_other_heads(body)
        tokenizer = matching_tokenizer(body, processing_class)
        body.config.get_text_config().pad_token_id = tokenizer.pad_token_id
        self._start(body, args, tokenizer)
        promise = self._take(
            train_dataset,
            privacy,
            *(body, tokenizer),
            ledger=ledger,
            simulate_seed=simulate_seed,
            declared=declare_unread,
        )
        self._open_run(promise, body, reward_bound=float(args.reward_bound))
        adapters = with_head(peft_config)
        given = {"callbacks": list(callbacks or []), "optimizers": optimizers}
        self._set_up(body, args, tokenizer, adapters, **given)

    def _losses(self, model: Any, units: Sequence[UnitPairs]) -> Any:
        """Return the loss of every unit."""
        return reward_losses(model, units, padding=self._tokens.tokenizer.pad_token_id)

    def _handed_out(self) -> Any:
        """Return a copy of the model that says what it promises."""
        return self.merged()

    def text_reward(self) -> TextRewardModel:
        """Return the reward as it stands, for scoring texts; later steps do not show in it."""
        return PrivateRewardTrainer.text_reward(cast("Any", self))
