"""Steps on raw units, in one process or several: paid for, drawn, clipped, summed, noised.

Every process holds all units and a copy of the model. The first one alone draws who takes part,
draws the noise, writes the ledger and the checkpoints; the others clip the gradients of their
share, and take its word for everything else.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
import torch
from peft import PeftConfig, get_peft_model
from torch import distributed
from torch.utils.data import DataLoader, IterableDataset
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainerState,
    set_seed,
)
from transformers.trainer_utils import TrainOutput
from trl.trainer.reward_trainer import DataCollatorForPreference

from sordino import _random
from sordino.errors import DataError, EngineError, PrivacyError, UsageError
from sordino.language.dp_sgd.clipping import (
    ClippedSum,
    add_gradient_noise,
    refuse_other_arithmetic,
    refuse_pieces,
    refuse_shared_gradients,
    refuse_shared_lengths,
    without_dropout,
)
from sordino.language.dp_sgd.privacy import (
    HIDDEN,
    CentralPrivacy,
    CentralRun,
    PaidRun,
    poisson_sample,
)
from sordino.language.models.checkpoints import load_causal_model
from sordino.language.models.generation import (
    Completions,
    answer_log_probabilities,
    evaluating,
    generators_kept,
    padded,
)
from sordino.language.models.loading import upstream
from sordino.language.models.promises import LAST_WRITTEN, folder_promises, weights_digest
from sordino.language.models.tokens import Dialogue, DialogueTokens
from sordino.language.references.texts import TextsRead
from sordino.language.training.losses import LOSSES, PreferenceLoss
from sordino.language.training.private_training import (
    CentralConfig,
    CentralDPOConfig,
    CentralRewardConfig,
    PrivateTraining,
    RewardTraining,
    own_settings,
)
from sordino.mechanisms.randomized_response import label_shares
from sordino.preferences.pairs import Pairs, PrivatePairs
from sordino.privacy.ledger import Ledger

Result = TypeVar("Result")


@dataclass(frozen=True)
class Processes:
    """The processes that train one model together, as one of them sees them."""

    # With one process nothing here does anything but the work that it is given.

    number: int = 0  # which of them this is; 0 is the first
    count: int = 1  # how many there are

    @classmethod
    def here(cls) -> Processes:
        """Return the processes that ``torchrun`` or ``accelerate launch`` started with this one."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return cls()
        return cls(distributed.get_rank(), distributed.get_world_size())

    @property
    def several(self) -> bool:
        """Return whether there are others."""
        return self.count > 1

    def share(self, numbers: Iterable[int]) -> list[int]:
        """The units that this process clips: theirs is decided by nothing but their number."""
        return [one for one in numbers if one % self.count == self.number]

    def from_first(self, what: str, work: Callable[[], Result]) -> Result:
        """Return what some work gives, done by the first process alone and told to all others."""
        if not self.several:
            return work()
        outcome = _tried(work) if self.number == 0 else None
        message = [None if outcome is None else (what, outcome[0], _portable(outcome[1]))]
        with _heard():
            distributed.broadcast_object_list(message, src=0)
        place, *heard = cast("tuple[Any, ...]", message[0])
        if place != what:
            raise EngineError(
                f"The processes of this run are at different places: one at {what!r}, the first at "
                f"{place!r}. What was reserved stays on the ledger. Start all of them again."
            )
        return _taken(*(outcome or cast("_Outcome[Result]", tuple(heard))))

    def together(self, work: Callable[[], Result]) -> Result:
        """Return what some work gives, done by every process, if it succeeds in all of them."""
        # Nobody goes on before all are done. If it fails anywhere, the first failure is raised
        # everywhere: who went on alone would wait forever.
        result, error = _tried(work)
        if self.several:
            errors = dict(enumerate(self._gathered(_portable(error))))
            failed = next((number for number, other in errors.items() if other), self.number)
            if failed != self.number:
                raise errors[failed]
        return _taken(result, error)

    def refuse_differences(self, **digests: str) -> None:
        """Refuse processes that do not see the same: no number and no digest is said."""
        if not self.several:
            return
        seen = self._gathered(digests)
        differ = [name for name in digests if len({one[name] for one in seen}) > 1]
        if differ:
            raise UsageError(
                f"The processes of this run see different {' and '.join(differ)}. It ends here, "
                "and nothing more was drawn. Give all of them the same model, pairs and settings."
            )

    def copy_first(self, sums: Iterable[torch.Tensor]) -> None:
        """Replace tensors in every process by those of the first, bit by bit."""
        if self.several:
            with _heard():
                for one in sums:
                    distributed.broadcast(one, src=0)

    def _gathered(self, own: object) -> list[Any]:
        everybody: list[Any] = [None] * self.count
        with _heard():
            distributed.all_gather_object(everybody, own)
        return everybody


_Outcome: TypeAlias = tuple[Result | None, Exception | None]


def _tried(work: Callable[[], Result]) -> _Outcome[Result]:
    try:
        return work(), None
    except Exception as error:  # noqa: BLE001 (it is raised in every process)
        return None, error


def _taken(result: Result | None, error: Exception | None) -> Result:
    if error is not None:
        raise error
    return cast("Result", result)


def _portable(error: Exception | None) -> Exception | None:
    if error is None:
        return None
    try:
        same = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    except Exception:  # noqa: BLE001 (a foreign error may do anything)
        same = None
    if type(same) is type(error) and str(same) == str(error):
        return same
    return EngineError(f"Another process of this run failed: {type(error).__name__}: {error}")


@contextmanager
def _heard() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise EngineError(
            "Another process of this run is gone, or did not answer in time. What was reserved "
            "stays on the ledger. Start all of them again, with resume_from_checkpoint=True if "
            "there is a checkpoint."
        ) from error


class _Steps(IterableDataset[dict[str, Any]]):
    """One empty batch for every step: who takes part is drawn only after it is paid for."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            yield {}


_OWN: Final = frozenset({
    *("output_dir", "run_name", "report_to", "disable_tqdm", "log_level", "log_level_replica"),
    *("local_rank", "per_device_eval_batch_size"),
})  # fmt: skip
"""Settings that a process may have for itself: they change no step."""


class TokenPair(NamedTuple):
    """Both answers of a pair after their prompt, and how much the first one is preferred."""

    first: list[int]  # tokens of the prompt, then of the first answer
    second: list[int]  # likewise with the second answer
    # 1 where the first answer is preferred, 0 where the second one is, 1/2 for neither.
    liked: float
    answers: tuple[int, int] = (0, 0)  # how many of the last tokens of each are the answer
    reference: float = 0.0  # by how much the reference finds the first answer likelier, in nats

    @classmethod
    def of(cls, first: Dialogue, second: Dialogue, liked: float) -> TokenPair:
        """Return two dialogues as one pair."""
        one, other = ([*each.prompt, *each.answer] for each in (first, second))
        return cls(one, other, liked, (len(first.answer), len(second.answer)))


UnitPairs: TypeAlias = tuple[TokenPair, ...]
"""All pairs of one record or person that are used."""


def log_ratio_gaps(
    model: PreTrainedModel, pairs: Sequence[TokenPair], *, padding: int
) -> torch.Tensor:
    """Return by how much likelier the first answer of each pair is, in nats, shape (pairs,)."""
    first = [(pair.first, pair.answers[0]) for pair in pairs]
    second = [(pair.second, pair.answers[1]) for pair in pairs]
    prompts = [ids[: len(ids) - answer] for ids, answer in first + second]
    answers = [ids[len(ids) - answer :] for ids, answer in first + second]
    padding_of = partial(padded, padding=padding, device=next(model.parameters()).device)
    completions = Completions(*padding_of(prompts, left=True), *padding_of(answers))
    one, other = answer_log_probabilities(model, completions).chunk(2)
    return one - other


def with_reference_gaps(
    model: PreTrainedModel, units: Sequence[UnitPairs], *, padding: int
) -> list[UnitPairs]:
    """Return the units with what the reference makes of their pairs, each of them read alone."""
    # Beside others a pair would be padded, and rounded otherwise. Where the model has adapters, it
    # counts as it is with them.
    with torch.no_grad(), evaluating(model):
        return [
            tuple(
                pair._replace(reference=float(log_ratio_gaps(model, [pair], padding=padding)))
                for pair in unit
            )
            for unit in units
        ]


def reward_margins(
    model: PreTrainedModel, pairs: Sequence[TokenPair], *, padding: int
) -> torch.Tensor:
    """Return the difference of the rewards of both answers of each pair, shape (pairs,)."""
    examples = [{"chosen_ids": pair.first, "rejected_ids": pair.second} for pair in pairs]
    batch = DataCollatorForPreference(padding)(examples)
    device = next(model.parameters()).device
    inputs = {name: batch[name].to(device) for name in ("input_ids", "attention_mask")}
    first, second = model(**inputs, use_cache=False).logits.squeeze(-1).chunk(2)
    return first - second


def unit_losses(
    margins: torch.Tensor, units: Sequence[UnitPairs], loss: PreferenceLoss
) -> torch.Tensor:
    """Return the loss of every unit, shape (units,): the sum over its pairs."""
    liked = torch.tensor([pair.liked for unit in units for pair in unit], device=margins.device)
    owners = [number for number, unit in enumerate(units) for _ in unit]
    losses = torch.zeros(len(units), device=margins.device, dtype=margins.dtype)
    each = loss(margins, liked=liked)
    return losses.index_add(0, torch.tensor(owners, device=margins.device), each)


def units_of(pairs: object, tokens: DialogueTokens, privacy: CentralPrivacy) -> list[UnitPairs]:
    """Return the pairs of every unit, in the order of the data."""
    if isinstance(pairs, PrivatePairs):
        raise UsageError(
            "train_dataset holds answers that are randomized already: no gradient needs to be "
            "clipped. Nothing was trained. Train with PrivateRewardTrainer, which spends nothing."
        )
    if not isinstance(pairs, Pairs):
        raise UsageError(
            f"train_dataset must be raw pairs, from sordino.read_pairs, got {type(pairs).__name__}."
            " Nothing was trained."
        )
    pairs.refuse_other_order()
    if privacy.unit == "record":
        pairs.refuse_shared()
    try:
        first, second, rows = tokens.pairs(pairs, least=0)  # to refuse nobody would tell of one
    except DataError:
        raise DataError(
            "A pair holds no texts, or an answer that is empty or longer than the model reads; "
            "which one is not said, as records are private. Nothing was trained. Remove such "
            "pairs, or leave those that are too long out with overlong='drop'."
        ) from None
    liked = label_shares(pairs.labels[rows]).tolist()
    read = [TokenPair.of(*one) for one in zip(first, second, liked, strict=True)]
    if privacy.unit == "record" or not len(pairs):
        return [(pair,) for pair in read]
    if pairs.persons is None or privacy.cap is None:
        raise PrivacyError(
            "unit='person' hides all pairs of a person, and the pairs do not say whose they are. "
            "Nothing was trained. Read them with person ids, or use unit='record'."
        )
    people: dict[str, list[TokenPair]] = {}
    for pair, row in zip(read, rows, strict=True):
        people.setdefault(pairs.persons[row], []).append(pair)
    return [tuple(theirs[: privacy.cap]) for theirs in people.values()]


def _invented_units(units: int, tokens: DialogueTokens) -> list[UnitPairs]:
    """Return units whose tokens are the same in every run: what a model is tested on."""
    # Whether a test passes may tell of those whom it is made with: here, nobody. The first unit
    # holds a text as long as any (up to 512 tokens), beside short ones: were they coded by the
    # longest of a batch, it would show. Every third unit has two pairs, as a person has.
    coin = torch.Generator().manual_seed(0)
    padding = tokens.tokenizer.pad_token_id
    words = [one for one in range(len(tokens.tokenizer)) if one != padding]

    def text(length: int | None = None) -> list[int]:
        # Two tokens at least: a prompt of one, and an answer.
        most = min(tokens.max_length, 12)
        length = length or int(torch.randint(2, most + 1, (), generator=coin))
        picked = torch.randint(len(words), (length,), generator=coin)
        return [words[one] for one in picked.tolist()]

    def pair(liked: float, length: int | None = None) -> TokenPair:
        first, second = text(length), text()
        second[0] = first[0]
        return TokenPair(first, second, liked, (len(first) - 1, len(second) - 1))

    made: list[UnitPairs] = []
    for number in range(units):
        one = pair(float(number % 2), None if number else min(tokens.max_length, 512))
        made.append((one, pair(1.0)) if number % 3 == 2 else (one,))  # noqa: PLR2004
    return made


_TESTED: Final = 4  # units


class CentralTraining(PrivateTraining):
    """What trainers on raw units share, whatever their loss; none of their data is told."""

    settings: ClassVar[type[CentralConfig]]
    _privacy: CentralPrivacy
    _ledger: Ledger
    _run: PaidRun
    _units: Sequence[Any]  # of pairs, or of people who were asked
    _seed: int | None
    _paid = 0  # steps that may still be taken
    _tested = False
    _replicas = True  # whether several processes may train

    # The margin of every pair, where units are pairs.
    _margins: Callable[[PreTrainedModel, Sequence[TokenPair]], torch.Tensor]

    def _losses(self, model: PreTrainedModel, units: Sequence[Any]) -> torch.Tensor:
        margins = self._margins(model, [pair for unit in units for pair in unit])
        return unit_losses(margins, units, LOSSES[self.args.loss])

    @property
    def _processes(self) -> Processes:
        return Processes.here()

    # Setting up: what may be trained, on whom, and what it promises.

    def __init__(  # noqa: PLR0913 (each is one choice of the user)
        self,
        model: str | Path | PreTrainedModel,
        args: CentralConfig | None = None,
        *,
        train_dataset: object,
        privacy: CentralPrivacy,
        ledger: Ledger,
        reference: str | Path | PreTrainedModel | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        peft_config: PeftConfig | None = None,
        callbacks: Sequence[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        declare_unread: bool = False,
        simulate_seed: int | None = None,
    ) -> None:
        """Set everything up; nothing is spent yet."""
        if not isinstance(ledger, Ledger):
            raise UsageError(f"ledger must be a Ledger, got {type(ledger).__name__}.")
        args = own_settings(args, self.settings)
        self._privacy, self._ledger, self._seed = privacy, ledger, simulate_seed
        if args.max_steps not in {-1, privacy.steps}:
            raise UsageError(
                f"max_steps is that of the privacy settings, {privacy.steps}, got "
                f"{args.max_steps}: the noise was calibrated for it. Nothing was trained. Leave it "
                "out."
            )
        args.max_steps = privacy.steps
        args.ignore_data_skip = True  # who takes part is drawn anew in every step
        start, adapters = self._start(model, args, processing_class, peft_config, reference)
        refuse_shared_lengths(start, self._tokens.tokenizer, self._tokens.max_length)
        budget = ledger.budget
        if (budget.unit, budget.neighbors) != (privacy.unit, privacy.neighbors):
            raise PrivacyError(
                f"{ledger.path.name} counts unit={budget.unit!r}, {budget.neighbors.name}, and the "
                f"privacy settings hide unit={privacy.unit!r}, {privacy.neighbors.name}. Nothing "
                "was trained."
            )
        start, adapters = self._open(train_dataset, start, args, adapters, declare_unread)
        self._promise = self._run.checkpoint()
        with upstream():
            set_seed(args.seed)  # new adapters start at random, which is public
            Trainer.__init__(
                self,
                model=start if adapters is None else get_peft_model(start, adapters),
                args=args,
                processing_class=self._tokens.tokenizer,
                callbacks=list(callbacks or []),
                optimizers=optimizers,
            )
        refuse_pieces(self)
        self._refuse_others()

    def _open(
        self,
        pairs: object,
        start: PreTrainedModel,
        args: CentralConfig,
        adapters: PeftConfig | None,
        declared: bool,  # noqa: FBT001
    ) -> tuple[PreTrainedModel, PeftConfig | None]:
        """Name a run on raw pairs; return the model, and adapters that are to be put on it."""
        # Models and tokenizers that have read the pairs as they are, are refused.
        privacy, ledger = self._privacy, self._ledger
        fixed = None if self._reference is None else load_causal_model(self._reference)
        starts, self._units = (start, fixed), units_of(pairs, self._tokens, privacy)
        self._read = TextsRead.on(*starts, self._tokens.tokenizer)
        caveats = self._read.caveats(TextsRead.of(cast("Pairs", pairs)), declared=declared)
        if fixed is not None:
            refuse_shared_lengths(fixed, self._tokens.tokenizer, self._tokens.max_length)
        promise = privacy.promise(self._seed).with_caveats(*caveats, *(ledger.accepted or ()))
        settings = {"max_length": self._tokens.max_length, "privacy": privacy.to_dict()}
        settings |= args.public_settings()
        if self.kind == "policy":
            settings["reference"] = weights_digest(start if fixed is None else fixed)
        settings |= {} if args.loss == "debiased" else {"preference_loss": args.loss}
        carried = folder_promises(*starts)
        self._run = CentralRun(privacy, promise, settings, carried, ledger, kind=self.kind)
        if self.kind == "policy":
            # What the reference makes of the pairs of every unit that this process clips is kept.
            own, known = self._processes.share(range(len(self._units))), list(self._units)
            units, padding = [known[at] for at in own], self._tokens.tokenizer.pad_token_id
            model = (start if fixed is None else fixed).to(args.device)
            read = with_reference_gaps(model, units, padding=padding)
            for number, unit in zip(own, read, strict=True):
                known[number] = unit
            self._units = known
        return start, adapters

    def _refuse_others(self) -> None:
        """Refuse several processes where one must do everything, or that transformers overlooks."""
        counts = {self._processes.count, self.args.world_size, self.accelerator.num_processes}
        if len(counts) > 1:
            raise UsageError(
                "Processes were joined after the settings were made. Nothing was trained. Start "
                "them with torchrun or accelerate launch, and let transformers join them."
            )
        if self._processes.several and not self._replicas:
            raise UsageError(
                "Answers and rewards of a batch are asked for by one process, and there are "
                "several here. Nothing was trained. Start one (without torchrun or accelerate "
                "launch)."
            )

    # What transformers asks for: nothing of the data is given away.

    def get_train_dataloader(self) -> DataLoader[dict[str, Any]]:
        """Return empty batches: pairs are never shuffled, counted, or handed to transformers."""
        return DataLoader(_Steps(), batch_size=None)

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:  # noqa: ARG002
        """Return 0: how much was computed tells who took part."""
        return 0

    def evaluate(self, *_: object, **__: object) -> dict[str, float]:
        """Refuse to measure."""
        raise PrivacyError(
            "A metric on raw pairs is a release of its own, and none is made here. Nothing was "
            "measured. Score public pairs with text_reward()."
        )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:  # noqa: ARG002
        """Log the learning rate and the privacy spent; no loss, and no time that was taken."""
        if "learning_rate" in logs:
            self.state.epoch = self.state.global_step / self.args.max_steps
            known = {"learning_rate": logs["learning_rate"], "epsilon": self._run.spent}
            Trainer.log(self, known)

    def _prepare_for_training(self, *given: object, **named: object) -> Any:
        """Hand the model over as it is: transformers would average gradients over processes."""
        prepare = self.accelerator.prepare_model
        if self._processes.several:
            self.accelerator.prepare_model = partial(prepare, evaluation_mode=True)
        try:
            return super()._prepare_for_training(*given, **named)
        finally:
            self.accelerator.prepare_model = prepare

    def _maybe_log_save_evaluate(self, *given: object, **named: object) -> None:
        """Log, save and stop where the first process does: callbacks may go by their own clocks."""
        self.control = self._processes.from_first("the end of a step", lambda: self.control)
        super()._maybe_log_save_evaluate(*given, **named)

    def train(self, resume_from_checkpoint: str | Path | bool | None = None) -> TrainOutput:  # noqa: FBT001 (transformers')
        """Train, from the start or from where a checkpoint stands; every step is paid for."""

        def starting() -> tuple[str | None, int]:
            found = self._run.start(resume_from_checkpoint, self.args.output_dir)
            self._catch_up()
            return found

        folder, first = self._by_first("the start", starting)
        self._paid, self._tested = 0, False
        self._promise = self._run.checkpoint()
        with upstream():
            if folder is not None and first >= self._privacy.steps:  # interrupted after its last
                self._load_from_checkpoint(folder)
                self.state = TrainerState.load_from_json(str(Path(folder) / LAST_WRITTEN))
            else:
                Trainer.train(self, resume_from_checkpoint=folder)
        self._note(weights_digest(self.model))
        return TrainOutput(self.state.global_step, float("nan"), {})

    # One step.

    def training_step(
        self,
        model: PreTrainedModel,
        inputs: dict[str, Any],  # noqa: ARG002 (transformers': there are none)
        num_items_in_batch: object = None,  # noqa: ARG002
    ) -> torch.Tensor:
        """Leave a noised mean of clipped gradients where the optimizer looks, and return 0."""
        # Guarantee: That of ``privacy`` for one step, paid for before anything is drawn, however
        # many processes there are: the first alone draws. Shown by
        # tests/language/test_central_training.py and tests/language/test_several_processes.py.
        # Source: Abadi et al. (2016), Algorithm 1.
        self._test(model)
        self._pay()
        entropy = self._entropy(self.state.global_step)
        try:
            sums = self._clipped_sums(model, self._drawn(entropy))
            self._add_noise(sums, entropy)
        except BaseException as error:
            model.zero_grad(set_to_none=True)  # what has no noise stays with nobody
            self._run.fail(error)
            raise
        trained = (one for one in model.parameters() if one.requires_grad)
        for one, noised in zip(trained, sums, strict=True):
            one.grad = noised.to(one)  # rounded to its floats only now
        return torch.zeros((), device=self.args.device)

    def _test(self, model: PreTrainedModel) -> None:
        """Try sums of made-up units on the model, as the first step of a run finds it."""
        if self._tested:
            return

        def refuse() -> None:
            self.args.check()  # what was set since, also by transformers
            self._refuse_others()
            refuse_other_arithmetic(self)
            sums = lambda units, bound: self._own_sum(model, units, bound).values()  # noqa: E731
            refuse_shared_gradients(model, self._losses, sums, self._nobody())

        self._processes.together(refuse)
        if self._processes.several:
            digests = self._processes.together(lambda: self._replica_digests(model))
            self._processes.refuse_differences(**digests)
        self._tested = True

    def _nobody(self) -> Sequence[Any]:
        """Return made-up units to test the model on: a refusal must not tell of anybody."""
        return _invented_units(_TESTED, self._tokens)

    def _judged(self, pair: TokenPair) -> Any:
        """Return a made-up pair as a part of a unit."""
        return pair

    def _replica_digests(self, model: PreTrainedModel) -> dict[str, str]:
        """Return digests of what must be the same everywhere; they are never written or shown."""
        if model is not self.accelerator.unwrap_model(self.model):
            raise UsageError(
                f"The model is wrapped in {type(model).__name__}, which may average gradients over "
                "processes. Nothing was trained. Leave wrapping to the trainer."
            )
        # What the reference makes of a pair is left out: a process knows it of its own share alone.
        pairs = hashlib.sha256()
        for unit in self._units:
            for pair in unit:
                sizes = [len(unit), len(pair.first), len(pair.second), *pair.answers]
                numbers = [*sizes, *pair.first, *pair.second]
                pairs.update(np.asarray(numbers, np.int64).tobytes())
                pairs.update(np.float64(pair.liked).tobytes())
        args = {name: one for name, one in self.args.to_dict().items() if name not in _OWN}
        training = {name: one for name, one in self._promise.training.items() if name != "run"}
        known: list[Any] = [args, training, self._privacy.to_dict(), self._seed]
        known.append([name for name, one in model.named_parameters() if one.requires_grad])
        text = json.dumps(known, sort_keys=True, default=lambda one: type(one).__name__)
        return {
            "weights": weights_digest(model),
            "pairs": pairs.hexdigest(),
            "settings": hashlib.sha256(text.encode()).hexdigest(),
        }

    def _pay(self) -> None:
        """Pay for the steps up to the next checkpoint, unless this one is paid for already."""
        if not self._paid:
            first = self.state.global_step
            steps = self._until(first) - first
            self._ask(first)
            self._by_first("the entry", lambda: self._run.pay(first, steps))
            self._mark()
            self._paid = steps
        self._paid -= 1

    def _ask(self, first: int) -> None:
        """Gather the units of the steps that are about to be paid for; pairs are there already."""

    def _until(self, first: int) -> int:
        last = max(self._privacy.steps, first + 1)
        if self.args.save_strategy != "steps":
            return last
        every = int(self.state.save_steps)
        return min((first // every + 1) * every, last)

    def _entropy(self, name: int | str) -> _random.Entropy:
        """Return system entropy, or for study a stream of its own for everything with a name."""
        if self._seed is None:
            return _random.entropy(None)
        words = hashlib.sha256(f"{self._seed}/{name}".encode()).digest()
        return _random.SimulatedEntropy(int.from_bytes(words[:8]))

    def _drawn(self, entropy: _random.Entropy) -> Sequence[int]:
        chance, everybody = self._privacy.sampling_probability, range(len(self._units))
        return self._processes.from_first(
            "the sample", lambda: poisson_sample(everybody, chance, entropy=entropy)
        )

    def _clipped_sums(self, model: PreTrainedModel, chosen: Sequence[int]) -> list[torch.Tensor]:
        own = [self._units[one] for one in self._processes.share(chosen)]
        total = self._processes.together(lambda: self._own_sum(model, own, self._privacy.clip))
        if self._processes.several:
            with _heard():
                for one in total.counts:
                    distributed.all_reduce(one)
        return total.values()

    def _own_sum(self, model: PreTrainedModel, units: Sequence[Any], bound: float) -> ClippedSum:
        total = ClippedSum(model, bound)
        with without_dropout(model), generators_kept(self.args.device):
            for unit in units:
                torch.manual_seed(0)  # whatever draws draws alike of each, and how much stays here
                total.add(partial(self._loss, model, pair) for pair in unit)
        return total

    def _loss(self, model: PreTrainedModel, pair: NamedTuple) -> torch.Tensor:
        return self._losses(model, [(pair,)]).sum()

    def _add_noise(self, sums: Sequence[torch.Tensor], entropy: _random.Entropy) -> None:
        """Let the first process noise sums, and divide them by a public number; all others copy."""

        def noised() -> None:
            size = self._privacy.noise_multiplier * self._privacy.clip
            add_gradient_noise(sums, size, entropy=entropy)
            for one in sums:
                one.div_(self._privacy.expected_batch)

        self._processes.from_first("the noise", noised)
        self._processes.copy_first(sums)

    # What comes out: marked with what it promises, and recorded.

    def _by_first(self, what: str, work: Callable[[], Result]) -> Result:
        """Return what the first process gets from the ledger; all learn what is paid for now."""
        if not self._processes.several:
            return work()
        result, state = self._processes.from_first(what, lambda: (work(), self._run.state()))
        self._run.take(state)
        return result

    def _save_checkpoint(self, model: PreTrainedModel, trial: object) -> None:
        """Write a checkpoint, which carries what all draws so far promise, and record it."""
        digest = weights_digest(self.model)
        self._processes.refuse_differences(weights=digest)
        self._promise = self._run.checkpoint(digest)
        write = super()._save_checkpoint
        self._processes.together(lambda: write(model, trial))
        self._note(digest)
        show = partial(self._run.show, self.args.output_dir, most=self.args.save_total_limit)
        self._processes.from_first("the checkpoint", show)

    def _get_output_dir(self, trial: object) -> str:  # noqa: ARG002 (transformers')
        return str(Path(self.args.output_dir) / HIDDEN)  # nobody sees what is not recorded

    def _note(self, digest: str) -> None:
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

    def _held(self) -> list[PreTrainedModel]:
        return [self.accelerator.unwrap_model(self.model)]

    def merged(self) -> PreTrainedModel:
        """Return the model as it stands, as transformers knows it, adapters merged: a copy."""
        self._catch_up()
        return super().merged()

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:  # noqa: FBT001, FBT002 (transformers')
        """Write model, tokenizer, promise and model card to a folder that transformers loads."""
        self._catch_up()
        super().save_model(output_dir, _internal_call)


class CentralRewardTrainer(CentralTraining, RewardTraining):
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
            or such a model, in 32-bit floats. What is not named here is as for
            :class:`~sordino.language.PrivateDPOTrainer`; callbacks see noised gradients only.
        train_dataset: Raw pairs of texts.
        privacy: What is promised, and what it takes.
        ledger: Its budget must be of the same unit and relation.
        peft_config: Adapters to train instead of the whole model; the head is trained and saved
            with them.
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

    settings = CentralRewardConfig

    def _margins(self, model: PreTrainedModel, pairs: Sequence[TokenPair]) -> torch.Tensor:
        return reward_margins(model, pairs, padding=self._tokens.tokenizer.pad_token_id)


class CentralDPOTrainer(CentralTraining):
    """Trains a policy on raw pairs by DPO so that no record, or no person, shows in it.

    Steps are those of :class:`CentralRewardTrainer`. What the reference makes of each answer is
    computed once, before the first step, and kept in memory.

    Args:
        model: The folder of a causal model, or such a model, in 32-bit floats.
        reference: What the policy stays close to: a folder, a model, or the model as it is now
            if left out. It must not have been trained on the preferred answers alone.
        args: Settings; defaults if left out. This and what follows is as for
            :class:`CentralRewardTrainer`, and so is what is raised.

    Guarantee:
        That of :class:`CentralRewardTrainer`; what model and reference promise is added. Shown by
        tests/language/test_central_training.py.

    Source:
        Abadi et al. (2016), Algorithm 1, on the loss of Rafailov et al. (2023), equation 7;
        docs/language_models.md, "Norms of pairs".
    """

    kind, settings = "policy", CentralDPOConfig

    def _margins(self, model: PreTrainedModel, pairs: Sequence[TokenPair]) -> torch.Tensor:
        # Source: Rafailov et al. (2023), equation 7: Δ = temperature (there called β) times the gap
        # of the log ratios to the reference.
        gaps = log_ratio_gaps(model, pairs, padding=self._tokens.tokenizer.pad_token_id)
        reference = torch.tensor([pair.reference for pair in pairs], dtype=gaps.dtype)
        return self.args.temperature * (gaps - reference.to(gaps.device))
