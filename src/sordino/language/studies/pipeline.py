"""From pairs to a reward or a policy: one call for each stage, and a comparison of what they give.

A comparison has sizes: what is trained, how long, and what is measured. One run of it trains a
policy on one release, and lets the judge compare it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from peft import LoraConfig
from transformers import (
    AutoConfig,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from sordino import _validate
from sordino._files import write_json
from sordino.engines.exchange import passing_folder
from sordino.language.dp_sgd.privacy import CentralPrivacy
from sordino.language.dp_sgd.training import CentralDPOTrainer, CentralRewardTrainer, units_of
from sordino.language.judging import Judge, draw_answers, win_rate
from sordino.language.models.checkpoints import (
    CAUSAL,
    checkpoint_folder,
    load_causal_model,
    load_reward_checkpoint,
    load_tokenizer,
    readable_length,
)
from sordino.language.models.loading import offline, quiet, upstream
from sordino.language.models.promises import Kind, folder_promises, policy_promise
from sordino.language.models.tokens import DialogueTokens
from sordino.language.policies.rebel import RebelConfig, RebelTrainer
from sordino.language.references.texts import TextsRead
from sordino.language.references.tiny import (
    TinyModel,
    both_answers,
    build_tiny,
    pretrain,
    save_tiny,
    train_tokenizer,
)
from sordino.language.rewards.text_rewards import TextRewardModel, reward_function
from sordino.language.training.label_training import PrivateDPOTrainer, PrivateRewardTrainer
from sordino.language.training.private_training import PolicyTerms, TrainingTerms
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.pairs import Pairs, PrivatePairs
from sordino.preferences.records import Text
from sordino.privacy.ledger import Ledger

Progress = Callable[[int, int], None]


class _Reporter(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Tells a bar how many steps are done."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        del args, control
        self._progress(state.global_step, state.max_steps)


def _silence(terms: TrainingTerms | PolicyTerms) -> dict[str, Any]:
    """Return what every trainer is told: no report, no bar of its own, no half-done checkpoint."""
    return {
        "seed": terms.seed,
        "logging_steps": terms.log_every,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def adapters(rank: int, task: str) -> LoraConfig | None:
    """Return low-rank adapters on every linear layer, or None for all weights."""
    if not rank:
        return None
    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type=task)


def _log_of(trainer: Trainer, progress: Progress | None) -> list[dict[str, Any]]:
    """Run a trainer; return its log, whose lines it prints nowhere else."""
    trainer.remove_callback(PrinterCallback)
    if progress is not None:
        trainer.add_callback(_Reporter(progress))
    with upstream(), quiet():
        trainer.train()
    timed = ("_runtime", "_per_second", "total_flos")  # which differ from run to run
    return [
        {name: value for name, value in row.items() if not name.endswith(timed)}
        for row in trainer.state.log_history
    ]


def _save_policy(trainer: Trainer, folder: Path) -> None:
    """Write a policy, without the pickled settings that transformers adds: they name folders."""
    with quiet():
        trainer.save_model(str(folder))
    (folder / "training_args.bin").unlink(missing_ok=True)


def checkpoint_tokens(model: Path, terms: TrainingTerms, *, writes: bool = False) -> DialogueTokens:
    """Return how training would turn texts into tokens; no weights are read."""
    folder = checkpoint_folder(model, kinds=CAUSAL) if writes else checkpoint_folder(model)
    tokenizer = load_tokenizer(folder)
    with offline(), quiet():
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    most = readable_length(SimpleNamespace(config=config), tokenizer, terms.max_length)
    return DialogueTokens(tokenizer, most, terms.overlong)


def _reference_tokenizer(pairs: Comparisons, size: TinyModel) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a tiny reference, a function of public texts alone."""
    texts = [
        text if isinstance(text, str) else "\n".join(turn["content"] for turn in text)
        for both in both_answers(pairs)
        for text in both
    ]
    return train_tokenizer(texts, size)


def planned_tokens(pairs: Comparisons, size: TinyModel, terms: TrainingTerms) -> DialogueTokens:
    """Return how a tiny reference that is not built yet would turn texts into tokens."""
    return DialogueTokens(_reference_tokenizer(pairs, size), size.context, terms.overlong)


TRAINING_LOG = "training_log.json"
"""What training said of itself, beside the weights: randomized answers alone enter."""


def build_reference(
    pairs: Comparisons,
    size: TinyModel,
    folder: Path,
    *,
    steps: int = 300,
    progress: Progress | None = None,
) -> list[float]:
    """Write a tiny model that read both answers of every pair; return its loss at every step."""
    # It is a label-free reference: tokenizer and weights are functions of public texts.
    dialogues = list(both_answers(pairs))
    tokenizer = _reference_tokenizer(pairs, size)
    model = build_tiny(size, tokenizer)
    losses = pretrain(model, tokenizer, dialogues, steps=steps, seed=size.seed, progress=progress)
    for made in (model, tokenizer):
        TextsRead.of(pairs).mark(made)
    save_tiny(model, tokenizer, folder)
    return losses


_TRAINERS: Mapping[Kind, tuple[Any, Any, str]] = {  # on answers, on raw pairs; task of adapters
    "reward": (PrivateRewardTrainer, CentralRewardTrainer, "SEQ_CLS"),
    "policy": (PrivateDPOTrainer, CentralDPOTrainer, "CAUSAL_LM"),
}
_KEPT = 2  # checkpoints of a run that is under way


def train(  # noqa: PLR0913 (each is one choice of the user)
    kind: Kind,
    pairs: PrivatePairs | Pairs,
    model: Path,
    folder: Path,
    terms: TrainingTerms,
    *,
    held_out: PrivatePairs | None = None,
    uncertain: bool = True,
    privacy: CentralPrivacy | None = None,
    ledger: Ledger | None = None,
    declare_unread: bool = False,
    simulate_seed: int | None = None,
    save_every: int | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Write a reward, or a policy that DPO made; return the log of training.

    With ``privacy`` and ``ledger`` it is of raw pairs, and the log has rates and spend alone.
    Within :meth:`sordino.Ledger.attempt` a run that was interrupted goes on, for nothing.

    Guarantee:
        On randomized answers what they say: training is post-processing. On raw pairs what
        ``privacy`` says, trust ``"central"``, caveats ``real-arithmetic`` and ``timing``; a run
        that was resumed promises what all its entries on the ledger do. And what the model it
        starts from promises, together. Shown by tests/language/test_pipeline.py.
    """
    labels, central, task = _TRAINERS[kind]
    made, more = (labels if privacy is None else central), dict[str, Any]()
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "learning_rate": terms.learning_rate,
        "max_length": terms.max_length,
        "overlong": terms.overlong,
        **_silence(terms),
    }
    if privacy is None:
        settings |= {
            "num_train_epochs": terms.epochs,
            "per_device_train_batch_size": terms.batch_size,
            "per_device_eval_batch_size": 2 * terms.batch_size,
            "eval_strategy": "no" if held_out is None else "steps",
        }
        if kind == "reward":
            # The trainer counts the epochs of the head among all; here they come before the others.
            settings["num_train_epochs"] = terms.head_epochs + terms.epochs
            settings |= {"loss": terms.loss, "head_epochs": terms.head_epochs}
        else:
            # that of DPO on randomized answers is trl's, and no other one is corrected for the
            # flips there
            _validate.one_of("loss", terms.loss, ("debiased",))
            settings["beta"] = terms.temperature
        more |= {"eval_dataset": held_out}
    else:
        # What was drawn is kept as a checkpoint, also the last, until the model is there.
        # Source: Abadi et al. (2016), Algorithm 1.
        settings |= {
            "loss": terms.loss,
            "save_strategy": "steps",
            "save_steps": save_every or privacy.steps,
            "save_total_limit": _KEPT,
            "save_only_model": save_every is None,
            **({} if kind == "reward" else {"temperature": terms.temperature}),
        }
        more |= {"privacy": privacy, "ledger": ledger}
        more |= {"declare_unread": declare_unread, "simulate_seed": simulate_seed}
    args, lora = made.settings(**settings), adapters(terms.lora, task)
    trainer = made(str(model), args, train_dataset=pairs, peft_config=lora, **more)
    log = _log_of(trainer, progress)
    if kind == "reward":
        reward = trainer.text_reward()
        if uncertain and privacy is None:
            reward = reward.with_uncertainty(pairs, overlong=terms.overlong)
        reward.save(folder, force=True)
    else:
        _save_policy(trainer, folder)
    write_json(folder / TRAINING_LOG, log, force=True)
    for kept in folder.glob("checkpoint-*") if privacy is not None else ():
        if save_every is None:
            shutil.rmtree(kept)
        else:  # pickled, and they name folders
            (kept / "training_args.bin").unlink(missing_ok=True)
    return log


def improve_policy(
    reward: TextRewardModel,
    model: Path,
    prompts: Sequence[Text],
    folder: Path,
    terms: PolicyTerms,
    *,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Write a policy that a private reward prefers to its reference; return the training log."""
    # Guarantee: What ``reward.guarantee`` says, and what the model it starts from promises,
    # together: optimizing against a released reward is post-processing. Shown by
    # tests/language/test_pipeline.py.
    carried = [reward.promise, *folder_promises(model)]
    settings = {"update": "rebel", "temperature": terms.temperature, "steps": terms.steps}
    promise = policy_promise(carried, None, settings)
    assert promise is not None  # noqa: S101 - for the type checker: the reward carries one
    short = min(1.0, 1 / terms.temperature)  # a strong pull to the reference asks for short steps
    trainer = RebelTrainer(
        load_causal_model(model),
        RebelConfig(
            output_dir=str(folder),
            max_steps=terms.steps,
            per_device_train_batch_size=terms.batch_size,
            learning_rate=terms.learning_rate,
            max_completion_length=terms.max_new_tokens,
            temperature=terms.temperature,
            step=short,
            **_silence(terms),
        ),
        reward_funcs=reward_function(reward, pessimism=terms.pessimism),
        train_dataset=prompts,
        processing_class=load_tokenizer(model),
        promise=reward.promise,
    )
    log = _log_of(trainer, progress)
    _save_policy(trainer, folder)
    promise.write(folder, title="A policy improved by rebel")
    write_json(folder / TRAINING_LOG, log, force=True)
    return log


def refuse_unusable(
    pairs: Pairs,
    model: Path,
    terms: TrainingTerms,
    privacy: CentralPrivacy,
    *,
    writes: bool = False,
    declare_unread: bool = False,
) -> tuple[str, ...]:
    """Refuse pairs and a checkpoint that training would refuse; nothing is spent or written."""
    tokens = checkpoint_tokens(model, terms, writes=writes)
    units_of(pairs, tokens, privacy)
    start = load_causal_model(model) if writes else load_reward_checkpoint(model)
    read = TextsRead.on(start, tokens.tokenizer)
    return read.caveats(TextsRead.of(pairs), declared=declare_unread)


_REWARD_RATE, _POLICY_RATE = 1e-4, 1e-5  # for models that can speak already
_CENTRAL_RATE = 1e-4


@dataclass(frozen=True, kw_only=True)
class CentralSizes:
    """Public sizes of one run on raw judgments, whose gradients are clipped, summed and noised."""

    # Few steps with many records at a high rate: noise drowns what a few records say. All weights
    # are trained, for adapters start at 0 and move little in so few steps.

    steps: int  # how many there are
    expected_batch: int  # records that take part in a step, in the mean; at most all of them
    clip: float  # bound on the norm of what one record adds
    terms: TrainingTerms  # the other settings


@dataclass(frozen=True, kw_only=True)
class StudySizes:
    """Public sizes of a comparison."""

    model: TinyModel  # the tiny reference that is built where no checkpoint is given
    pretraining: int  # steps of it
    judge: TrainingTerms  # how the judge is trained
    dpo: TrainingTerms  # how a policy is trained by DPO
    reward: TrainingTerms  # how a private reward is trained
    policy: PolicyTerms  # how a policy follows it
    central: CentralSizes  # how a policy is trained by DPO on raw judgments
    seeds: int  # releases at each epsilon
    prompts: int  # held-out prompts that are answered
    max_new_tokens: int  # longest answer

    def for_checkpoint(self) -> StudySizes:
        """Return the same sizes with smaller steps, for a checkpoint that was trained before."""
        return replace(
            self,
            judge=replace(self.judge, learning_rate=_REWARD_RATE),
            reward=replace(self.reward, learning_rate=_REWARD_RATE),
            dpo=replace(self.dpo, learning_rate=_POLICY_RATE),
            policy=replace(self.policy, learning_rate=_POLICY_RATE),
            central=replace(
                self.central, terms=replace(self.central.terms, learning_rate=_CENTRAL_RATE)
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return every size as JSON holds it."""
        return asdict(self)


_TAUGHT = TrainingTerms(epochs=2, learning_rate=3e-4, overlong="drop")
_NOISED = TrainingTerms(learning_rate=2e-3, overlong="drop")

QUICK = StudySizes(
    model=TinyModel(vocabulary=1024, width=64, layers=2, heads=4, context=192),
    pretraining=400,
    judge=_TAUGHT,
    dpo=replace(_TAUGHT, learning_rate=5e-4, log_every=15),
    reward=replace(_TAUGHT, log_every=15),
    policy=PolicyTerms(steps=80, learning_rate=5e-4, max_new_tokens=40, log_every=8),
    central=CentralSizes(steps=10, expected_batch=192, clip=1.0, terms=_NOISED),
    seeds=3,
    prompts=200,
    max_new_tokens=40,
)
"""Minutes on two cores."""

FULL = StudySizes(
    model=TinyModel(),
    pretraining=2000,
    judge=_TAUGHT,
    dpo=replace(_TAUGHT, epochs=3, learning_rate=5e-4, log_every=20),
    reward=replace(_TAUGHT, epochs=3, log_every=20),
    policy=PolicyTerms(steps=400, learning_rate=5e-4),
    central=CentralSizes(steps=40, expected_batch=1024, clip=1.0, terms=_NOISED),
    seeds=5,
    prompts=1000,
    max_new_tokens=64,
)
"""Hours on two cores, for the tiny model."""


_CURVE = {
    "loss": "loss",
    "eval_loss": "held_out_loss",
    "eval_accuracy": "held_out_accuracy",
    "eval_rewards/accuracies": "held_out_accuracy",  # what DPO calls it
}


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread for a while: threads of a tiny model mostly wait for each other."""
    # On a busy machine that waiting made a study several times slower.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, kw_only=True)
class Contest:
    """What all runs of a comparison share."""

    reference: Path  # checkpoint of the label-free reference
    judge: Judge  # who compares; no policy learned from its judgments
    prompts: Sequence[Text]  # public, held out from every training
    trained_prompts: Sequence[Text]  # public ones that REBEL tries answers to
    sizes: StudySizes  # of the study
    _known: dict[int, list[str]] = field(default_factory=dict, repr=False)

    def fared(self, folder: Path, seed: int) -> dict[str, Any]:
        """Return the win rate of the policy in a folder, with draws of this seed."""
        # Of the reference itself, drawn twice, it is what one half looks like here.
        drawn = self._drawn(folder, 2 * seed)
        if seed not in self._known:  # answers of the reference, which all runs of a seed share
            self._known[seed] = self._drawn(self.reference, 2 * seed + 1)
        return win_rate(self.judge, self.prompts, drawn, self._known[seed]).to_dict()

    def run(
        self, method: str, training: PrivatePairs, held_out: PrivatePairs, *, seed: int
    ) -> dict[str, Any]:
        """Return how a policy fares that one release taught, and its training curve."""
        # Guarantee: What ``training.guarantee`` says: all of this is post-processing. Shown by
        # tests/language/test_pipeline.py.
        sizes, reference = self.sizes, self.reference
        with passing_folder(None) as scratch:
            policy, place = Path(scratch) / "policy", Path(scratch) / "reward"
            if method == "dpo":
                terms = replace(sizes.dpo, seed=seed)
                log = train("policy", training, reference, policy, terms, held_out=held_out)
            else:
                terms = replace(sizes.reward, seed=seed)
                log = train(
                    "reward", training, reference, place, terms, held_out=held_out, uncertain=False
                )
                reward = TextRewardModel.load(place)
                update = replace(sizes.policy, seed=seed)
                improve_policy(reward, reference, self.trained_prompts, policy, update)
            return {"win": self.fared(policy, seed), "curve": _curve(log)}

    def _drawn(self, folder: Path, seed: int) -> list[str]:
        most = self.sizes.max_new_tokens
        return draw_answers(folder, self.prompts, max_new_tokens=most, seed=seed)


def _curve(log: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    steps: dict[int, dict[str, float]] = {}
    for row in log:
        found = {ours: float(row[name]) for name, ours in _CURVE.items() if name in row}
        if found and "step" in row:
            steps.setdefault(int(row["step"]), {}).update(found)
    return [{"step": step, **values} for step, values in sorted(steps.items())]
