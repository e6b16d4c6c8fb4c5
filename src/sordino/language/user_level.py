"""A policy that learns from batches of people, each with a private prompt and private rewards.

Who has which slot of which batch, what that person is promised, and what a run pays for it: the
entry of a batch is written before any noise of its updates is drawn. Whoever resumes finds the
last checkpoint and pays anew for every batch after it, in the scope of that batch: what was drawn
there before the run was killed is never drawn again, and stays paid for.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast, get_args

import torch
from peft import PeftConfig
from transformers import PreTrainedModel
from transformers.trainer_utils import TrainOutput

from sordino import _validate
from sordino._random import Entropy
from sordino.algorithms.user_slots import Slots
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.language.dp_sgd.clipping import refuse_shared_lengths
from sordino.language.dp_sgd.privacy import PaidRun, UnitPrivacy
from sordino.language.dp_sgd.training import (
    CentralTraining,
    TokenPair,
    UnitPairs,
    log_ratio_gaps,
    with_reference_gaps,
)
from sordino.language.models.generation import generators_kept, prompt_room, sample_completions
from sordino.language.models.promises import CheckpointPromise, folder_promises, reward_promises
from sordino.language.models.tokens import Dialogue, Overlong
from sordino.language.references.texts import TextsRead
from sordino.language.rewards.text_rewards import (
    RewardCallable,
    RewardFunction,
    listed_functions,
    summed_rewards,
)
from sordino.language.training.private_training import CentralConfig
from sordino.mechanisms.regressions.base import slot_relation
from sordino.preferences.records import Text, read_text
from sordino.privacy.accounting import calibrate, composed_epsilon
from sordino.privacy.guarantee import (
    DECLARED_DISJOINT,
    REPLACE_ONE,
    Event,
    GaussianEvent,
    Guarantee,
    NeighboringRelation,
)
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import canonical_json, event_of
from sordino.rewards.release_checks import refuse_large_delta

_MARGIN: Final = 1 + 1e-9  # the noise is rounded, and what it costs is not


@dataclass(frozen=True)
class SlotPrivacy(UnitPrivacy):
    """Public settings of updates on batches of people; choose them before the data.

    Every person has one slot of one batch. An update sums what the people of its batch
    contribute, each clipped as a whole, adds noise, and divides by the number of slots, whether
    or not they are taken. Batches share nobody, so that what is promised for one holds for all.

    Args:
        epsilon: Bound on the loss of a person; finite, greater than 0.
        delta: Probability that the bound may fail, in (0, 1); far below one over the number of
            people.
        neighbors: What one change is: ``REPLACE_SPECIAL`` (a person's slot is left empty) or
            ``REPLACE_ONE`` (another person has it).
        slots: m, how many people one batch has room for; at least 1.
        batches: T, how many batches; at least 1.
        clip: C, bound on the norm of what one person adds to a sum.
        updates_per_batch: K, how many updates are made of one batch; each of them is a noised
            sum, and all of them together keep epsilon.

    Raises:
        UsageError: A setting is out of range.
        PrivacyError: The relation adds or removes people, which moves those behind them into
            other batches; or no noise is shown to keep the promise.

    Guarantee:
        (ε, δ) for one person under the relation, for all updates of all batches and everything
        computed from them, trust ``"central"``; caveats ``real-arithmetic`` and ``timing``. Shown
        by tests/language/test_central_policy.py.

    Source:
        docs/policy_optimization.md, "Setting and privacy unit"; docs/privacy.md, "Gaussian
        mechanism".

    Example:
        >>> terms = {"slots": 100, "batches": 10}
        >>> one = SlotPrivacy(1.0, 1e-6, neighbors=REPLACE_ONE, **terms)
        >>> round(one.noise_multiplier, 3)  # times C: what hides a change of 2C
        8.449
    """

    epsilon: float
    delta: float
    _: KW_ONLY
    neighbors: NeighboringRelation
    slots: int
    batches: int
    clip: float = 1.0
    updates_per_batch: int = 1
    unit: Literal["person"] = field(default="person", init=False, repr=False)

    def __post_init__(self) -> None:
        _validate.positive("epsilon", self.epsilon)
        _validate.moderate("clip", self.clip)
        _validate.failure_probability("delta", self.delta, zero=False)
        slot_relation(self.neighbors)
        for name in ("slots", "batches", "updates_per_batch"):
            _validate.integer(name, getattr(self, name), at_least=1)
        refuse_large_delta(self.guarantee, self.people)

    @property
    def people(self) -> int:
        """Return how many people all batches have room for."""
        return self.slots * self.batches

    @property
    def steps(self) -> int:
        """Return how many updates are made."""
        return self.batches * self.updates_per_batch

    @property
    def expected_batch(self) -> float:
        """Return what noised sums are divided by: the number of slots, taken or not."""
        return float(self.slots)

    @property
    def sensitivity(self) -> float:
        """Return how far one change moves a sum, over C: replacing takes one out, and one in."""
        return 2.0 if self.neighbors is REPLACE_ONE else 1.0

    @property
    def event(self) -> GaussianEvent:
        """Return what one update does, for the ledger."""
        return GaussianEvent(
            _largest_mu(self.epsilon, self.delta, self.updates_per_batch, self.neighbors)
        )

    @property
    def noise_multiplier(self) -> float:
        """Return the standard deviation of the noise over C: the least that keeps the promise."""
        return self.sensitivity / self.event.mu * _MARGIN


@lru_cache
def _largest_mu(epsilon: float, delta: float, count: int, neighbors: NeighboringRelation) -> float:
    return calibrate(GaussianEvent, epsilon, delta, neighbors=neighbors, count=count)


class _BatchRun(PaidRun):
    """One run: its entries, one scope for each batch, and what they promise to its worst-off."""

    def __init__(
        self,
        privacy: SlotPrivacy,
        promise: Guarantee,
        training: Mapping[str, Any],
        starts: Iterable[CheckpointPromise],
        ledger: Ledger,
        people: Sequence[Sequence[str | int]],
    ) -> None:
        """Start a run that has spent nothing."""
        super().__init__(privacy, promise, training, starts, ledger, kind="policy")
        self._people, self._declared = people, False
        self._slots = Slots(users=privacy.people, batches=privacy.batches)

    @property
    def scopes(self) -> list[str]:
        """Return the name of every batch's scope."""
        return self._slots.scopes(self.name)

    @property
    def spent(self) -> float:
        """Return the epsilon of the person of this run who lost most."""
        # Guarantee: The maximum over batches, which share no person; within a batch all entries
        # count, also those whose updates were lost. Shown by tests/language/test_central_policy.py.
        spent: dict[str, Counter[Event]] = {scope: Counter() for scope in self.scopes}
        for row in self._ledger.spends:
            if row.scope in spent:
                spent[row.scope][event_of(row)] += row.count
        neighbors, delta = self.promise.neighbors, self.promise.delta
        different = {frozenset(events.items()): events for events in spent.values()}
        return max(
            composed_epsilon(events, neighbors=neighbors, delta=delta)
            for events in different.values()
        )

    def check(self, first: int) -> None:
        """Refuse the batch of an update that the budget has no room for; nobody was asked yet."""
        privacy = self._privacy
        scope, count = self.scopes[first // privacy.updates_per_batch], privacy.updates_per_batch
        self._ledger.check(privacy.event, promise=self.promise, scope=scope, count=count)

    def pay(self, first: int, steps: int) -> None:
        """Record what the updates of a batch spend, and before it that no batches share a person.

        Guarantee:
            That of :class:`SlotPrivacy` for the people of one batch; nothing is drawn here. Shown
            by tests/language/test_central_policy.py.
        """
        if not self._declared:
            Slots.declare(self._ledger, self.scopes)
            self._declared = True
        batch = first // self._privacy.updates_per_batch
        details = {"run": self.name, "people": self._digest(batch)}
        self._reserve_steps(self._privacy.event, details, self.scopes[batch], steps)

    def resume(self, wanted: str | Path | bool, output: str | Path) -> tuple[str, int]:  # noqa: FBT001 (transformers')
        """Go on with the run of a checkpoint, and return its folder and its number of updates."""
        folder, first = super().resume(wanted, output)
        self._declared = True
        if first % self._privacy.updates_per_batch:
            raise UsageError(
                "The checkpoint stands within a batch, whose answers are gone. Nothing was "
                "trained. Go on from one that was written after a batch."
            )
        # Nobody may have slots of two batches: now, and when the run was killed.
        number = {scope: batch for batch, scope in enumerate(self.scopes)}
        for row in Ledger.read(self._ledger.path).spends:
            if row.scope in number:
                batch = number[row.scope]
                found = (json.loads(row.payload).get("details") or {}).get("people")
                if found != self._digest(batch):
                    raise UsageError(
                        f"Other people have the slots of batch {batch} than when it was paid for. "
                        "Nothing was trained. Give them in the same order; more may follow."
                    )
        return folder, first

    def _digest(self, batch: int) -> str:
        """Return what tells whether the same people have a batch; it is another in every run."""
        ids = canonical_json([self.name, list(self._people[batch])])
        return hashlib.sha256(ids.encode()).hexdigest()


_FORM = "a mapping with 'person', a public id, and 'prompt', a text, chat messages or None"
_HIDDEN = "Which one is not said, as prompts are private. Nothing was trained."


class Person(NamedTuple):
    """Who has a slot."""

    id: str  # public
    prompt: Text | None  # what they ask; None where the slot is left empty


def batches_of(
    rows: object,
    privacy: SlotPrivacy,
    *,
    length: Callable[[Text], int],
    room: int,
    overlong: Overlong,
) -> list[list[Person]]:
    """Return the people of every batch, in the order of the data."""
    # The first row of a person counts, and no other: whoever has a slot gets no second one. Ids
    # alone decide, so that no prompt moves anybody's slot.
    found: dict[str, Person] = {}
    for person, row in _rows(rows):
        if len(found) < privacy.people and person not in found:
            found[person] = Person(person, _prompt(row, length, room, overlong))
    if len(found) < privacy.people:
        raise UsageError(
            f"There are {len(found)} different people, and {privacy.batches} batches of "
            f"{privacy.slots} slots need {privacy.people}. Nothing was trained. Choose fewer "
            "batches or slots, or give rows with prompt=None for people who are not there."
        )
    people, size = list(found.values()), privacy.slots
    return [people[start : start + size] for start in range(0, len(people), size)]


def _rows(rows: object) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Yield the person of every row, written as everywhere in this library, and the row."""
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise UsageError(
            f"train_dataset must hold for each person {_FORM}, got {type(rows).__name__}. Nothing "
            "was trained."
        )
    for row in rows:
        if not isinstance(row, Mapping) or "prompt" not in row:
            raise UsageError(f"Each row of train_dataset must be {_FORM}. Nothing was trained.")
        try:
            yield _validate.person_id("a person", row.get("person")), row
        except DataError:
            raise PrivacyError(
                "What is hidden is a person, and a row does not say whose it is. Nothing was "
                "trained. Give every row a 'person': a public id, a text or a whole number."
            ) from None


def _prompt(
    row: Mapping[str, Any], length: Callable[[Text], int], room: int, overlong: Overlong
) -> Text | None:
    if row["prompt"] is None:
        return None
    try:
        prompt = read_text(row, "prompt", "a row")
    except DataError:
        raise DataError(f"A prompt is neither text nor chat messages. {_HIDDEN}") from None
    if not prompt or (isinstance(prompt, str) and not prompt.strip()):
        raise DataError(
            f"A prompt is empty. {_HIDDEN} Give prompt=None to leave the slot of a person empty."
        )
    if length(prompt) <= room:
        return prompt
    if overlong == "drop":
        return None
    raise DataError(
        f"A prompt has more than {room} tokens, which leaves no room for an answer. {_HIDDEN} "
        "Lower max_completion_length, or leave such slots empty with overlong='drop'."
    )


_PolicyUpdate = Literal["pg", "rebel"]


class _PersonAnswers(NamedTuple):
    """Two answers that one person was shown, and what they were worth."""

    # The answers y and y′ after the prompt; `reference` is log π_t(y) − log π_t(y′) under the
    # policy π_t that the batch began with.
    pair: TokenPair
    advantage: float  # r(y) − r(y′), each reward clipped


class _Shown(NamedTuple):
    """One answer with its prompt, as tokens, and its text."""

    said: Dialogue
    text: str


@dataclass
class CentralPolicyConfig(CentralConfig):
    """Settings of :class:`CentralPolicyTrainer`; those of transformers and these.

    ``optim`` may be any optimizer: it reads noised gradients alone.

    Args:
        update: ``"pg"``, the policy gradient, or ``"rebel"``, regression on relative rewards.
        step: Of REBEL: how far a batch moves the log-odds of two answers, per unit of reward.
        reward_bound: R; every reward is clipped to ±R.
        max_completion_length: Most tokens of an answer, its end included.
        overlong: What happens to a prompt that leaves no room for an answer: ``"refuse"`` or
            ``"drop"``, which leaves that person's slot empty.
        save_batches: Batches between two checkpoints. Whoever resumes pays anew for every batch
            after the last one.
        save_total_limit: How many checkpoints are kept.

    Raises:
        UsageError: A setting cannot be used.
    """

    update: _PolicyUpdate = field(default="pg")
    step: float = field(default=1.0)
    reward_bound: float = field(default=1.0)
    max_completion_length: int = field(default=128)
    learning_rate: float = field(default=1e-5)
    save_batches: int = field(default=1)
    save_total_limit: int | None = field(default=2)

    def check(self) -> None:
        """Refuse settings that cannot be used."""
        super().check()
        _validate.one_of("update", self.update, get_args(_PolicyUpdate))
        for name in ("max_completion_length", "save_batches"):
            _validate.integer(name, getattr(self, name), at_least=1)

    def public_settings(self) -> dict[str, Any]:
        """Return what a reader of a checkpoint needs to know."""
        names = ("update", "step", "reward_bound", "max_completion_length")
        return {name: getattr(self, name) for name in names}


class CentralPolicyTrainer(CentralTraining):
    """Improves a policy on people's own prompts and rewards so that no person shows in it.

    People have fixed slots in batches. Everybody in a batch is shown two answers of the policy as
    it is, and says, or is measured for, what each is worth. The gradient of each person is
    clipped as a whole, the sum over the batch gets Gaussian noise, and is divided by the number
    of slots. Nobody is in two batches, so the policies after every batch are together as private
    as the worst batch. No loss, reward, length or divergence is logged, and no answer is written.

    Every policy on the way may be published: what a person is shown is a function of such a
    policy and of the person's own prompt, so all others together learn no more of anybody than
    the policies tell (joint differential privacy, by the billboard lemma). The answers that a
    person is shown depend on that person's prompt, and belong to that person alone.

    A batch is paid for on the ledger before any noise of it is drawn, and before that nothing but
    answers is: a reward function that fails, or returns what is no finite number, stops the run
    with nothing spent on the batch. That it stopped may tell of a person, and no guarantee covers
    it: a reward function should always return a number. It sees one person at a time, and must
    not remember those it saw before.

    Args:
        model: The folder of a causal language model, or such a model, in 32-bit floats.
        reward_funcs: One function or several, which are summed: of ``prompts``, ``completions``,
            ``persons`` and others by name, to one finite number for each completion, as trl takes
            them. They are called once for every person, with both answers of that person.
        **given: What :class:`~sordino.language.CentralRewardTrainer` takes. ``train_dataset`` has
            rows with ``person``, a public id, and ``prompt``: a text, chat messages, or None for
            an empty slot; the order of ids decides who has which slot, and only the first row of
            a person counts. ``privacy`` is a :class:`SlotPrivacy`, and there is no ``reference``:
            both answers are the policy's. With ``declare_unread`` you declare that neither start
            nor rewards have read these prompts before; it is needed where that is not known, as
            of every function of your own, and becomes a caveat.

    Raises:
        PrivacyError: The ledger counts something else, or a row does not say whose it is; or a
            start has read these prompts, or nobody knows what it has read.
        UsageError: A setting cannot be used, or there are fewer people than slots.
        DataError: A prompt is empty, too long or no text; which one is not said.
        FileSystemError: There is no such folder.

    Guarantee:
        What ``privacy`` says, for the policies after all batches together; after interruptions, the
        maximum over batches of what the entries of a batch promise, which every checkpoint carries.
        What the start and the rewards promise is added. Unit ``"person"``, trust ``"central"``,
        caveats ``real-arithmetic`` and ``timing``. Shown by tests/language/test_central_policy.py.

    Source:
        docs/policy_optimization.md, "Setting and privacy unit" and "Updates".
    """

    kind = "policy"
    _privacy: SlotPrivacy  # type: ignore[assignment]  # of slots, where pairs have coins
    _units: Sequence[tuple[_PersonAnswers]] = ()  # of the batch that is paid for
    _run: _BatchRun
    _people: list[list[Person]]
    _functions: Sequence[RewardCallable]
    _replicas = False  # answers and rewards are asked for by one process
    settings = CentralPolicyConfig

    def __init__(
        self,
        model: str | Path | PreTrainedModel,
        args: CentralPolicyConfig | None = None,
        *,
        reward_funcs: RewardCallable | Sequence[RewardCallable],
        **given: Any,
    ) -> None:
        """Set everything up; nothing is spent yet, and nobody was asked."""
        self._functions = listed_functions(reward_funcs)
        super().__init__(model, args, **given)

    def _open(
        self,
        rows: object,
        policy: PreTrainedModel,
        args: CentralPolicyConfig,
        adapters: PeftConfig | None,
        declared: bool,  # noqa: FBT001
    ) -> tuple[PreTrainedModel, PeftConfig | None]:
        """Give everybody their slot, and name a run."""
        privacy, functions, most = self._privacy, self._functions, args.max_completion_length
        if self._reference is not None:
            raise UsageError(
                "Both answers are the policy's, and no reference is asked. Nothing was trained. "
                "Leave reference out."
            )
        for one in functions:
            if isinstance(one, RewardFunction):  # it reads answers to several people at once
                refuse_shared_lengths(one.reward.model, one.reward.tokenizer, one.reward.max_length)
        carried = [*folder_promises(policy), *reward_promises(functions)]
        each, tokenizer = privacy.updates_per_batch, self._tokens.tokenizer
        if each > 1 and args.update == "pg":
            raise UsageError(
                f"After one update the answers are not the policy's any more: updates_per_batch="
                f"{each} needs update='rebel'. Nothing was trained."
            )
        args.save_steps = args.save_batches * each  # between batches
        prompt_room(policy, tokenizer, most)
        room = self._tokens.max_length - most
        if room < 1:
            raise UsageError(
                f"max_completion_length={most} leaves no room for a prompt "
                f"within max_length={self._tokens.max_length}. Nothing was trained. Lower it."
            )
        self._people = batches_of(
            rows,
            privacy,
            length=lambda prompt: len(self._tokens.prompt(prompt)),
            room=room,
            overlong=args.overlong,
        )
        rewards = [getattr(one, "reward", None) for one in functions]
        asked = [getattr(one, part, None) for one in rewards for part in ("model", "tokenizer")]
        asked += [one for one in functions if type(one) is not RewardFunction]  # do not say it
        prompts = (one.prompt for batch in self._people for one in batch)
        private = TextsRead.of_prompts(one for one in prompts if one is not None)
        self._read = TextsRead.on(policy, tokenizer, *asked)
        caveats = self._read.caveats(private, declared=declared)
        known = {**args.public_settings(), "max_length": self._tokens.max_length}
        known["privacy"] = privacy.to_dict()
        people = [[one.id for one in batch] for batch in self._people]
        apart = [DECLARED_DISJOINT] if privacy.batches > 1 else []  # only the worst batch counts
        promise = privacy.promise(self._seed).with_caveats(*caveats, *apart)
        self._run = _BatchRun(privacy, promise, known, carried, self._ledger, people)
        return policy, adapters

    def _losses(self, model: PreTrainedModel, units: Sequence[Any]) -> torch.Tensor:
        # With Δ = log π(y) − log π(y′):
        # - `"pg"`: −Â·Δ/2. Its gradient is minus an unbiased one of the mean reward where both
        #   answers are of the policy itself: each is the other's baseline.
        # - `"rebel"`: ((Δ − Δ_t)/step − Â)², with Δ_t = Δ under the policy that the batch began
        #   with.
        # Source: docs/policy_optimization.md, "Updates", before a log-linear policy makes them
        # linear.
        people: list[_PersonAnswers] = [one for (one,) in units]
        padding = self._tokens.tokenizer.pad_token_id
        gaps = log_ratio_gaps(model, [one.pair for one in people], padding=padding)
        advantages = gaps.new_tensor([one.advantage for one in people])
        if self.args.update == "pg":
            return -advantages * gaps / 2
        grown = gaps - gaps.new_tensor([one.pair.reference for one in people])
        return (grown / self.args.step - advantages).square()

    def train(self, resume_from_checkpoint: str | Path | bool | None = None) -> TrainOutput:  # noqa: FBT001 (transformers')
        """Train, from the first batch or from a checkpoint; every batch is paid for."""
        try:
            return super().train(resume_from_checkpoint)
        finally:
            self._units, self._paid = [], 0

    def _nobody(self) -> Sequence[Any]:
        return [(self._judged(unit[0]),) for unit in super()._nobody()]

    def _judged(self, pair: TokenPair) -> _PersonAnswers:
        return _PersonAnswers(pair, 2.0 * pair.liked - 1)

    def _ask(self, first: int) -> None:
        """Ask the people of the next batch, if the budget has room for it."""
        self._run.check(first)
        batch = first // self._privacy.updates_per_batch
        policy = self.accelerator.unwrap_model(self.model)
        self._units = self._answers(policy, self._people[batch], self._coins(batch))

    def _answers(
        self, policy: PreTrainedModel, people: Sequence[Person], entropy: Entropy
    ) -> list[tuple[_PersonAnswers]]:
        """Return what everybody in a batch contributes; nothing of it may leave."""
        # Guarantee: None, and none rests on the coins: what a person is shown depends on the policy
        # and on their own prompt, and all that is computed here stays until it is clipped, summed
        # and noised. Shown by tests/language/test_central_policy.py.
        # Nothing here sees more than one person at a time: padding and batches round otherwise, and
        # a word that is drawn, or a reward, could tip over. Coins are drawn anew for every slot,
        # and an empty one takes as many as any, so that nobody's coins tell of another.
        # Source: docs/policy_optimization.md, "Setting and privacy unit".
        # How far the generators of PyTorch moved tells of answers: they are left as they were.
        with generators_kept(policy.device), torch.no_grad():
            drawn = [
                (one, self._sampled(policy, [one.prompt or ""] * 2, entropy)) for one in people
            ]
            present = [(one, both) for one, both in drawn if one.prompt is not None]
            worth = [self._worth(*shown) for shown in present]
        units: list[UnitPairs] = [
            (TokenPair.of(first.said, second.said, 0.5),) for _, (first, second) in present
        ]
        padding = int(self._tokens.tokenizer.pad_token_id)
        known = with_reference_gaps(policy, units, padding=padding)
        return [(_PersonAnswers(unit[0], own),) for unit, own in zip(known, worth, strict=True)]

    def _sampled(
        self, model: PreTrainedModel, prompts: list[Text], entropy: Entropy
    ) -> list[_Shown]:
        """Return one answer to every prompt, by coins that are drawn for them."""
        torch.manual_seed(int(entropy.words(1)[0]) >> 1)
        room, tokenizer = self.args.max_completion_length, self._tokens.tokenizer
        drawn = sample_completions(model, tokenizer, prompts, max_new_tokens=room)
        rows = zip(drawn.prompt_ids, drawn.prompt_mask, strict=True)
        asked = [ids[mask.bool()].tolist() for ids, mask in rows]
        parts = zip(asked, drawn.token_lists(), drawn.texts(tokenizer), strict=True)
        return [_Shown(Dialogue(prompt, answer), text) for prompt, answer, text in parts]

    def _worth(self, person: Person, both: Sequence[_Shown]) -> float:
        """Return by how much the first answer is worth more, each reward clipped alone."""
        prompts = [cast("Text", person.prompt)] * 2
        texts, ids = [one.text for one in both], [one.said.answer for one in both]
        also = {"completion_ids": ids, "persons": [person.id] * 2}
        try:
            rewards = summed_rewards(self._functions, prompts, texts, **also)
        except (DataError, OverflowError):
            raise DataError(
                "A reward function returned another number of rewards than the answers it was "
                "asked about, or one that is not a finite number; which one is not said, as "
                "rewards are private. Nothing was spent on this batch. Have it return one finite "
                "number for each completion, 0 where it knows none, and resume."
            ) from None
        bound = float(self.args.reward_bound)
        first, second = (max(-bound, min(bound, one)) for one in rewards)
        return first - second

    def _until(self, first: int) -> int:
        return first + self._privacy.updates_per_batch

    def _drawn(self, entropy: Entropy) -> Sequence[int]:  # noqa: ARG002 (of those who draw)
        return range(len(self._units))

    def _coins(self, batch: int) -> Entropy:
        """Return system entropy for the answers of a batch, or for study a stream of its own."""
        return self._entropy(f"answers/{batch}")

    def _save_rng_state(self, output_dir: str) -> None:
        """Write no state of a generator: reward functions may have moved it for each answer."""
