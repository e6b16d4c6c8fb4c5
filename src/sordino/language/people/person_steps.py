"""Updates on batches of people: paid for, answered, clipped, summed, noised."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import Trainer
from transformers.trainer_utils import TrainOutput

from sordino import _random
from sordino.errors import UsageError
from sordino.language.central.steps import CentralTraining
from sordino.language.models._model_digests import weights_digest
from sordino.language.models._upstream import upstream
from sordino.language.people.batch_runs import BatchRun, reserve_batch
from sordino.language.people.person_gradients import (
    PersonAnswers,
    invented_people,
    person_losses,
)
from sordino.language.people.person_rounds import PersonRounds
from sordino.language.people.person_slots import Person

__all__ = ["PersonTraining"]

_TESTED = 4  # people, all of them invented


class PersonTraining(CentralTraining):
    """The part that goes from one batch of people to the next; who derives from it sets it up."""

    _privacy: Any  # SlotPrivacy
    _units: Sequence[tuple[PersonAnswers]] = ()  # of the batch that is paid for
    _run: BatchRun
    _people: list[list[Person]]
    _rounds: PersonRounds
    _replicas = False  # answers and rewards are asked for by one process

    def _losses(self, model: Any, units: Sequence[Any]) -> Any:
        """Return the loss of every person."""
        return person_losses(
            model,
            units,
            update=self.args.update,
            step=self.args.step,
            padding=self._tokens.tokenizer.pad_token_id,
        )

    def train(self, resume_from_checkpoint: str | Path | bool | None = None) -> Any:  # noqa: FBT001 (transformers')
        """Train, from the first batch or from where a checkpoint stands; every batch is paid for.

        Args:
            resume_from_checkpoint: The folder of a checkpoint of this run, or True for the last
                complete one in ``args.output_dir``. The batches after it are paid for anew.

        Returns:
            The number of updates; the loss is not known (NaN), and there is no metric.

        Raises:
            BudgetExceeded: The next batch would pass the budget; nobody of it was asked.
            DataError: A reward is missing or not finite; nothing was spent on that batch.
            LedgerMismatch: The ledger did not pay for the checkpoint.
            UsageError: There is no checkpoint, it was made with other settings or people, its run
                is finished, or the gradients of the model cannot be clipped.
        """
        first, folder = 0, None
        if resume_from_checkpoint:
            folder, first = self._run.resume(resume_from_checkpoint, self.args.output_dir)
        self._catch_up()
        if first >= self._privacy.steps:
            raise UsageError(
                f"The run made all of its {first} updates. Nothing was trained and nothing was "
                "spent."
            )
        self._run.check(first // self._privacy.updates_per_batch)
        self._paid, self._tested = 0, False
        self._promise = self._run.checkpoint()
        try:
            with upstream():
                Trainer.train(self, resume_from_checkpoint=folder)
        finally:
            self._units, self._paid = [], 0
        self._note(weights_digest(self.model))
        return TrainOutput(self.state.global_step, float("nan"), {})

    def _nobody(self) -> Sequence[Any]:
        """Return made-up people to test the model on."""
        return invented_people(_TESTED, self._tokens)

    def _pay(self) -> None:
        """Ask the people of the next batch and pay for its updates, unless that is done already."""
        if not self._paid:
            batch = self.state.global_step // self._privacy.updates_per_batch
            self._run.check(batch)
            policy = self.accelerator.unwrap_model(self.model)
            self._units = self._rounds.answers(
                policy, self._people[batch], entropy=self._coins(batch)
            )
            self._run.declare()
            reservation = reserve_batch(
                self._privacy,
                self._run.promise,
                ledger=self._ledger,
                scope=self._run.scopes[batch],
                details=self._run.details(batch),
            )
            self._run.add(reservation, self._privacy.event)
            self._mark()
            self._paid = self._privacy.updates_per_batch
        self._paid -= 1

    def _drawn(self, entropy: _random.Entropy) -> Sequence[int]:  # noqa: ARG002 (of those who draw)
        """Return everybody who has a slot of the batch: all of them take part."""
        return range(len(self._units))

    def _coins(self, batch: int) -> _random.Entropy:
        """Return system entropy for the answers of a batch, or for study a stream of its own."""
        if self._seed is None:
            return _random.entropy(None)
        words = hashlib.sha256(f"{self._seed}/answers/{batch}".encode()).digest()
        return _random.entropy(int.from_bytes(words[:8]))

    def _save_rng_state(self, output_dir: str) -> None:
        """Write no state of a generator: reward functions may have moved it for each answer."""
