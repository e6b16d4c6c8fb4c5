"""One run of a comparison: train a policy on one release, and let the judge compare it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from sordino.engines.folders import passing_folder
from sordino.language.judging.contests import Judge, win_rate
from sordino.language.judging.policy_comparison import draw_answers
from sordino.language.rewards.text_rewards import TextRewardModel
from sordino.language.studies.pipeline import improve_policy, train_policy, train_reward
from sordino.language.studies.study_sizes import StudySizes
from sordino.preferences.private_pairs import PrivatePairs
from sordino.preferences.records import Text

__all__ = ["Contest", "Method", "one_thread"]

Method = Literal["dpo", "rebel"]
_CURVE = {
    "loss": "loss",
    "eval_loss": "held_out_loss",
    "eval_accuracy": "held_out_accuracy",
    "eval_rewards/accuracies": "held_out_accuracy",  # what DPO calls it
}


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread for a while: threads of a tiny model mostly wait for each other.

    On a busy machine that waiting made a study several times slower.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, kw_only=True)
class Contest:
    """What all runs of a comparison share.

    Attributes:
        reference: Checkpoint of the label-free reference.
        judge: Who compares; no policy learned from its judgments.
        prompts: Public, held out from every training.
        trained_prompts: Public ones that REBEL tries answers to.
        sizes: Of the study.
    """

    reference: Path
    judge: Judge
    prompts: Sequence[Text]
    trained_prompts: Sequence[Text]
    sizes: StudySizes
    _known: dict[int, list[str]] = field(default_factory=dict, repr=False)

    def baseline(self, seed: int) -> dict[str, Any]:
        """Return the reference against itself, drawn twice: what one half looks like here."""
        return {"win": self.fared(self.reference, seed), "curve": []}

    def fared(self, folder: Path, seed: int) -> dict[str, Any]:
        """Return the win rate of the policy in a folder, with draws of this seed."""
        return self._won(self._drawn(folder, 2 * seed), seed)

    def run(
        self, method: Method, training: PrivatePairs, held_out: PrivatePairs, *, seed: int
    ) -> dict[str, Any]:
        """Return how a policy fares that one release taught, and its training curve.

        Args:
            method: ``"dpo"``, or ``"rebel"`` on a private reward.
            training: Randomized answers to learn from.
            held_out: Randomized answers of the same release, to measure on.
            seed: Of training and draws.

        Guarantee:
            What ``training.guarantee`` says: all of this is post-processing. Shown by
            tests/language/test_comparisons.py.
        """
        with passing_folder(None) as scratch:
            train = self._by_dpo if method == "dpo" else self._by_rebel
            log = train(training, held_out, Path(scratch), seed)
            return {"win": self.fared(Path(scratch) / "policy", seed), "curve": _curve(log)}

    def _by_dpo(
        self, training: PrivatePairs, held_out: PrivatePairs, scratch: Path, seed: int
    ) -> list[dict[str, Any]]:
        """Train a policy on the answers themselves."""
        terms = replace(self.sizes.dpo, seed=seed)
        place = scratch / "policy"
        return train_policy(training, self.reference, place, terms, held_out=held_out)

    def _by_rebel(
        self, training: PrivatePairs, held_out: PrivatePairs, scratch: Path, seed: int
    ) -> list[dict[str, Any]]:
        """Train a reward on the answers, and a policy on the reward."""
        terms = replace(self.sizes.reward, seed=seed)
        place = scratch / "reward"
        log = train_reward(
            training, self.reference, place, terms, held_out=held_out, uncertain=False
        )
        reward = TextRewardModel.load(place)
        update = replace(self.sizes.policy, update="rebel", seed=seed)
        improve_policy(reward, self.reference, self.trained_prompts, scratch / "policy", update)
        return log

    def _won(self, drawn: list[str], seed: int) -> dict[str, Any]:
        """Return the win rate against answers of the reference, which all runs of a seed share."""
        if seed not in self._known:
            self._known[seed] = self._drawn(self.reference, 2 * seed + 1)
        return win_rate(self.judge, self.prompts, drawn, self._known[seed]).to_dict()

    def _drawn(self, folder: Path, seed: int) -> list[str]:
        """Return answers to the held-out prompts."""
        most = self.sizes.max_new_tokens
        return draw_answers(folder, self.prompts, max_new_tokens=most, seed=seed)


def _curve(log: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return loss and held-out metrics by step."""
    steps: dict[int, dict[str, float]] = {}
    for row in log:
        found = {ours: float(row[name]) for name, ours in _CURVE.items() if name in row}
        if found and "step" in row:
            steps.setdefault(int(row["step"]), {}).update(found)
    return [{"step": step, **values} for step, values in sorted(steps.items())]
