"""How large a comparison of policies is: what is trained, how long, and what is measured.

One run of a comparison: train a policy on one release, and let the judge compare it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from sordino.engines.exchange import passing_folder
from sordino.language.judging import Judge, draw_answers, win_rate
from sordino.language.references.tiny import TinyModel
from sordino.language.rewards.text_rewards import TextRewardModel
from sordino.language.studies.pipeline import improve_policy, train_policy, train_reward
from sordino.language.training.private_training import PolicyTerms, TrainingTerms
from sordino.preferences.pairs import PrivatePairs
from sordino.preferences.records import Text

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


QUICK = StudySizes(
    model=TinyModel(vocabulary=1024, width=64, layers=2, heads=4, context=192),
    pretraining=400,
    judge=TrainingTerms(epochs=2, learning_rate=3e-4, overlong="drop"),
    dpo=TrainingTerms(epochs=2, learning_rate=5e-4, overlong="drop", log_every=15),
    reward=TrainingTerms(epochs=2, learning_rate=3e-4, overlong="drop", log_every=15),
    policy=PolicyTerms(steps=80, learning_rate=5e-4, max_new_tokens=40, log_every=8),
    central=CentralSizes(
        steps=10,
        expected_batch=192,
        clip=1.0,
        terms=TrainingTerms(learning_rate=2e-3, overlong="drop"),
    ),
    seeds=3,
    prompts=200,
    max_new_tokens=40,
)
"""Minutes on two cores."""

FULL = StudySizes(
    model=TinyModel(),
    pretraining=2000,
    judge=TrainingTerms(epochs=2, learning_rate=3e-4, overlong="drop"),
    dpo=TrainingTerms(epochs=3, learning_rate=5e-4, overlong="drop", log_every=20),
    reward=TrainingTerms(epochs=3, learning_rate=3e-4, overlong="drop", log_every=20),
    policy=PolicyTerms(steps=400, learning_rate=5e-4),
    central=CentralSizes(
        steps=40,
        expected_batch=1024,
        clip=1.0,
        terms=TrainingTerms(learning_rate=2e-3, overlong="drop"),
    ),
    seeds=5,
    prompts=1000,
    max_new_tokens=64,
)
"""Hours on two cores, for the tiny model."""


Method = Literal["dpo", "rebel"]
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

    def baseline(self, seed: int) -> dict[str, Any]:
        """Return the reference against itself, drawn twice: what one half looks like here."""
        return {"win": self.fared(self.reference, seed), "curve": []}

    def fared(self, folder: Path, seed: int) -> dict[str, Any]:
        """Return the win rate of the policy in a folder, with draws of this seed."""
        drawn = self._drawn(folder, 2 * seed)
        if seed not in self._known:  # answers of the reference, which all runs of a seed share
            self._known[seed] = self._drawn(self.reference, 2 * seed + 1)
        return win_rate(self.judge, self.prompts, drawn, self._known[seed]).to_dict()

    def run(
        self, method: Method, training: PrivatePairs, held_out: PrivatePairs, *, seed: int
    ) -> dict[str, Any]:
        """Return how a policy fares that one release taught, and its training curve."""
        # Guarantee: What ``training.guarantee`` says: all of this is post-processing. Shown by
        # tests/language/test_pipeline.py.
        sizes, reference = self.sizes, self.reference
        with passing_folder(None) as scratch:
            policy, place = Path(scratch) / "policy", Path(scratch) / "reward"
            if method == "dpo":
                terms = replace(sizes.dpo, seed=seed)
                log = train_policy(training, reference, policy, terms, held_out=held_out)
            else:
                terms = replace(sizes.reward, seed=seed)
                log = train_reward(
                    training, reference, place, terms, held_out=held_out, uncertain=False
                )
                reward = TextRewardModel.load(place)
                update = replace(sizes.policy, update="rebel", seed=seed)
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
