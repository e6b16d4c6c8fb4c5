"""Models in which people would show who are not clipped: refused by what is public of a model.

Units of made-up tokens, which are nobody's, for the test of a model before its first step.

Steps of central training: paid for, drawn, clipped, summed, noised. Nothing else leaves them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from peft import get_peft_model
from transformers import Trainer, set_seed
from transformers.trainer_utils import TrainOutput

from sordino import _random
from sordino.errors import UsageError
from sordino.language.clipping.clipped_sums import ClippedSum, without_dropout
from sordino.language.clipping.dp_sgd_step import add_gradient_noise
from sordino.language.clipping.gradient_check import refuse_shared_gradients
from sordino.language.clipping.poisson_batches import poisson_sample
from sordino.language.models.loading import upstream
from sordino.language.models.model_digests import weights_digest
from sordino.language.models.tokens import DialogueTokens
from sordino.language.models.trained_models import own_copy
from sordino.language.references.texts_read import TextsRead
from sordino.language.training.policy_promises import folder_promises
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger

from .distributed import ReplicaTraining
from .privacy_terms import CentralPrivacy
from .runs import CentralRun, reserve_steps
from .settings import CentralConfig, refuse_other_arithmetic, refuse_pieces
from .unit_rows import TokenPair, UnitPairs, units_of

_BY_LENGTH: Final = ("longrope", "dynamic")
"""Codes of positions that depend on the longest row of a batch."""


def refuse_few_embeddings(model: Any, tokenizer: Any) -> None:
    """Refuse a tokenizer with more tokens than a model: whoever used one would stop the run."""
    known = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > known:
        raise UsageError(
            f"The tokenizer has {len(tokenizer)} tokens and the model {known}: a text with one of "
            "the others could not be read, and that a run fails would tell of it. Nothing was "
            "trained. Resize the embeddings first (model.resize_token_embeddings)."
        )


def refuse_shared_positions(model: Any, max_length: int) -> None:
    """Refuse positions that are coded by a batch's longest row, within lengths where they are."""
    # One long record would change the gradients of all others that are read with it, and each of
    # them is clipped alone.
    config = model.config.get_text_config()
    for terms in _codes(getattr(config, "rope_parameters", None)):
        if terms.get("rope_type") in _BY_LENGTH:
            usual = terms.get("original_max_position_embeddings")
            safe = int(usual or getattr(config, "max_position_embeddings", None) or 0)
            if max_length > safe:
                raise UsageError(
                    f"This model codes positions ({terms['rope_type']}) by the longest text of a "
                    f"batch if one has more than {safe} tokens, so that one long text changes the "
                    "gradients of all others. Nothing was trained. Set max_length to at most "
                    f"{safe}."
                )


def _codes(found: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the codes of a model: one, or one for each kind of its layers."""
    if isinstance(found, Mapping):
        if "rope_type" in found:
            yield found
        for part in found.values():
            yield from _codes(part)


_PERSON: Final = 3  # every third unit is one
_USUAL: Final = 12  # tokens
_LONGEST: Final = 512


def invented_units(units: int, tokens: DialogueTokens) -> list[UnitPairs]:
    """Return units whose tokens are the same in every run: what a model is tested on."""
    # Whether a test passes may tell of those whom it is made with, so it is made with nobody. The
    # first unit holds a text as long as any (up to 512 tokens), beside short ones: were they coded
    # by the longest of a batch, it would show. Every third unit has two pairs, as a person has.
    coin = torch.Generator().manual_seed(0)
    padding = tokens.tokenizer.pad_token_id
    words = [one for one in range(len(tokens.tokenizer)) if one != padding]

    def text(length: int | None = None) -> list[int]:
        """Return some tokens, two at least: a prompt of one, and an answer."""
        most = min(tokens.max_length, _USUAL) + 1
        length = length or int(torch.randint(2, most, (), generator=coin))
        picked = torch.randint(len(words), (length,), generator=coin)
        return [words[one] for one in picked.tolist()]

    def pair(liked: float, length: int | None = None) -> TokenPair:
        """Return two answers to one prompt."""
        first, second = text(length), text()
        second[0] = first[0]
        return TokenPair(first, second, liked, (len(first) - 1, len(second) - 1))

    longest = min(tokens.max_length, _LONGEST)
    return [
        (
            pair(float(number % 2), None if number else longest),
            *([pair(1.0)] if number % _PERSON == _PERSON - 1 else []),
        )
        for number in range(units)
    ]


_TESTED = 4  # units


class CentralTraining(ReplicaTraining):
    """The part that trainers on raw pairs share, whatever their loss."""

    _privacy: CentralPrivacy
    _ledger: Ledger
    _units: Any  # list[UnitPairs]
    _seed: int | None
    _paid = 0  # steps that may still be taken
    _tested = False

    def _losses(self, model: Any, units: Sequence[UnitPairs]) -> Any:
        """Return the loss of every unit."""
        raise NotImplementedError

    def _start(self, model: Any, args: Any, tokenizer: Any) -> None:
        """Settle how texts become tokens, on a model whose rows are read one by one."""
        refuse_few_embeddings(model, tokenizer)
        super()._start(model, args, tokenizer)
        refuse_shared_positions(model, self._tokens.max_length)

    def _take(
        self,
        pairs: Any,
        privacy: CentralPrivacy,
        *starts: Any,
        ledger: Any,
        simulate_seed: int | None,
        declared: bool,
    ) -> Guarantee:
        """Keep the units of raw pairs, and return what all steps on them promise."""
        # Models and tokenizers that have read the pairs as they are, are refused.
        privacy.refuse_other_units(ledger)
        self._privacy, self._ledger, self._seed = privacy, ledger, simulate_seed
        self._units = units_of(pairs, self._tokens, privacy)
        self._read = TextsRead.on(*starts)
        caveats = self._read.caveats(TextsRead.of(pairs), declared=declared)
        return privacy.promise(simulate_seed).with_caveats(*caveats)

    def _open_run(self, promise: Guarantee, *starts: Any, **training: Any) -> None:
        """Name a run that starts from some models; nothing is spent yet."""
        known = {
            "max_length": self._tokens.max_length,
            "privacy": self._privacy.to_dict(),
            **training,
        }
        carried = folder_promises(*starts)
        self._run = CentralRun(promise, known, carried, self._ledger, kind=self.kind)
        self._promise = self._run.checkpoint()

    def _set_up(
        self, body: Any, args: CentralConfig, tokenizer: Any, adapters: Any, **given: Any
    ) -> None:
        """Hand everything but the pairs to transformers."""
        with upstream():
            set_seed(args.seed)  # new adapters start at random, which is public
            Trainer.__init__(
                self,
                model=body if adapters is None else get_peft_model(body, adapters),
                args=args,
                processing_class=tokenizer,
                **given,
            )
        refuse_pieces(self)
        self._refuse_others()

    def train(self, resume_from_checkpoint: str | Path | bool | None = None) -> Any:  # noqa: FBT001 (transformers')
        """Train, from the start or from where a checkpoint stands; every step is paid for."""
        folder = self._by_first("the start", lambda: self._starting(resume_from_checkpoint))
        self._paid, self._tested = 0, False
        self._promise = self._run.checkpoint()
        with upstream():
            Trainer.train(self, resume_from_checkpoint=folder)
        self._note(weights_digest(self.model))
        return TrainOutput(self.state.global_step, float("nan"), {})

    def _starting(self, resumed: str | Path | bool | None) -> str | None:  # noqa: FBT001
        """Return the folder to go on from, if any, where the budget has room for what is left."""
        first, folder = 0, None
        if resumed:
            folder, first = self._run.resume(resumed, self.args.output_dir)
        self._catch_up()
        if first >= self._privacy.steps:
            raise UsageError(
                f"The run took all of its {first} steps. Nothing was trained and nothing was spent."
            )
        left = self._privacy.event(self._privacy.steps - first)
        self._ledger.check(left, promise=self._run.promise)
        return folder

    def training_step(
        self,
        model: Any,
        inputs: dict[str, Any],  # noqa: ARG002 (transformers': there are none)
        num_items_in_batch: Any = None,  # noqa: ARG002
    ) -> Any:
        """Leave a noised mean of clipped gradients where the optimizer looks, and return 0.

        Guarantee:
            That of ``privacy`` for one step, paid for before anything is drawn, however many
            processes there are: the first alone draws. Shown by
            tests/language/test_central_training.py and tests/language/test_several_processes.py.
        """
        # Source: Abadi et al. (2016), Algorithm 1.
        self._test(model)
        self._pay()
        entropy = self._entropy()
        try:
            sums = self._clipped_sums(model, self._drawn(entropy))
            self._add_noise(sums, entropy)
        except BaseException:
            model.zero_grad(set_to_none=True)  # what has no noise stays with nobody
            raise
        trained = (one for one in model.parameters() if one.requires_grad)
        for one, noised in zip(trained, sums, strict=True):
            one.grad = noised.to(one)  # rounded to its floats only now
        return torch.zeros((), device=self.args.device)

    def _drawn(self, entropy: _random.Entropy) -> Sequence[int]:
        """Return the numbers of those who take part in a step, as the first process drew them."""
        chance, everybody = self._privacy.sampling_probability, range(len(self._units))
        return self._processes.from_first(
            "the sample", lambda: poisson_sample(everybody, chance, entropy=entropy)
        )

    def _clipped_sums(self, model: Any, chosen: Sequence[int]) -> list[Any]:
        """Return the sum of what those who take part contribute, for every trained parameter."""
        own = [self._units[number] for number in self._processes.share(chosen)]
        total = self._processes.together(lambda: self._own_sum(model, own, self._privacy.clip))
        self._processes.add_up(total.counts)
        return total.values()

    def _own_sum(self, model: Any, units: Sequence[UnitPairs], bound: float) -> ClippedSum:
        """Return the sum of what some units contribute: each is read alone, pair by pair."""
        total = ClippedSum(model, bound)
        with without_dropout(model):
            for unit in units:
                total.add(partial(self._loss, model, pair) for pair in unit)
        return total

    def _loss(self, model: Any, pair: Any) -> Any:
        """Return the part of the loss of a unit that is of one of its pairs."""
        return self._losses(model, [(pair,)]).sum()

    def _add_noise(self, sums: Sequence[Any], entropy: _random.Entropy) -> None:
        """Let the first process add the noise of a step to sums; all others copy it."""
        self._processes.from_first("the noise", lambda: self._noise_sums(sums, entropy))
        self._processes.copy_first(sums)

    def _noise_sums(self, sums: Sequence[Any], entropy: _random.Entropy) -> None:
        """Add the noise of a step to sums, and divide them by a public number."""
        size = self._privacy.noise_multiplier * self._privacy.clip
        add_gradient_noise(sums, size, entropy=entropy)
        for one in sums:
            one.div_(self._privacy.expected_batch)

    def _test(self, model: Any) -> None:
        """Try sums of made-up units on the model, as the first step of a run finds it."""
        if not self._tested:
            self._processes.together(lambda: self._refuse_model(model))
            self._refuse_other_replicas(model)
            self._tested = True

    def _refuse_model(self, model: Any) -> None:
        """Refuse settings and a model with which a unit could add more than the bound."""
        self.args.check()  # what was set since, also by transformers
        self._refuse_others()
        refuse_other_arithmetic(self)
        refuse_shared_gradients(
            model,
            self._losses,
            lambda units, bound: self._own_sum(model, units, bound).values(),
            self._nobody(),
        )

    def _nobody(self) -> Sequence[Any]:
        """Return made-up units to test the model on: a refusal must not tell of anybody."""
        return invented_units(_TESTED, self._tokens)

    def _pay(self) -> None:
        """Reserve the steps up to the next checkpoint, unless this one is paid for already."""
        if not self._paid:
            first = self.state.global_step
            steps = self._until(first) - first
            self._by_first("the entry", lambda: self._reserve(first, steps))
            self._mark()
            self._paid = steps
        self._paid -= 1

    def _reserve(self, first: int, steps: int) -> None:
        """Write on the ledger what so many steps spend."""
        reservation = reserve_steps(
            self._privacy,
            self._run.promise,
            ledger=self._ledger,
            run=self._run.name,
            first=first,
            steps=steps,
        )
        self._run.add(reservation, self._privacy.event(steps))

    def _until(self, first: int) -> int:
        """Return the step after which the next checkpoint is written; one step on at least."""
        last = max(self._privacy.steps, first + 1)
        if self.args.save_strategy != "steps":
            return last
        every = int(self.state.save_steps)
        return min((first // every + 1) * every, last)

    def _entropy(self) -> _random.Entropy:
        """Return system entropy, or for study a stream for every step of its own."""
        if self._seed is None:
            return _random.entropy(None)
        words = hashlib.sha256(f"{self._seed}/{self.state.global_step}".encode()).digest()
        return _random.entropy(int.from_bytes(words[:8]))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint, which carries what all draws so far promise, and record it."""
        digest = weights_digest(self.model)
        self._processes.refuse_differences(weights=digest)
        self._promise = self._run.checkpoint(digest)
        write = super()._save_checkpoint
        self._processes.together(lambda: write(model, trial))
        self._note(digest)

    def _note(self, digest: str) -> None:
        """Record on the ledger what came out."""
        self._by_first("the outcome", lambda: self._run.commit(digest))
        self._mark(digest)

    def _mark(self, digest: str = "") -> None:
        """Write what all draws so far promise on the model, which may leave as an object too."""
        self._promise = self._run.checkpoint(digest)
        self._write_marks(self.accelerator.unwrap_model(self.model))

    def _catch_up(self) -> None:
        """Take in what the models were trained on elsewhere: another trainer may hold them too."""
        self._run.start_from(folder_promises(*self._held()))
        self._promise = self._run.checkpoint(self._promise.artifact)

    def _held(self) -> list[Any]:
        """Return the models that a step reads."""
        return [self.accelerator.unwrap_model(self.model)]

    def merged(self) -> Any:
        """Return the model as it stands, as transformers knows it, adapters merged: a copy."""
        # Later steps do not show in it, so that what it promises stays what it promised.
        self._catch_up()
        whole = own_copy(self.accelerator.unwrap_model(self.model))
        self._write_marks(whole)
        return whole

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:  # noqa: FBT001, FBT002 (transformers')
        """Write model, tokenizer, promise and model card to a folder that transformers loads."""
        self._catch_up()
        super().save_model(output_dir, _internal_call)
