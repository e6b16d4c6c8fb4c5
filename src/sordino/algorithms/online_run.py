"""What a run of online alignment leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Integer

from sordino import _validate
from sordino.algorithms._online_rounds import Exploration, Learner
from sordino.environments.values import gibbs_rows
from sordino.privacy.guarantee import Guarantee
from sordino.rewards.model import RewardModel

__all__ = ["OnlinePolicy", "OnlineRun"]


@dataclass(frozen=True, eq=False)
class OnlinePolicy:
    """The reference tilted by the final estimate over the temperature.

    Attributes:
        learner: What learned; only its final estimate is used.
        temperature: KL strength in units of reward.
    """

    learner: Learner = field(repr=False)
    temperature: float = field(kw_only=True)

    def probabilities(
        self,
        features: Float[np.ndarray, "n k d"],
        *,
        reference: Float[np.ndarray, "n k"] | None = None,
    ) -> Float[np.ndarray, "n k"]:
        """Return the probability of every action in n contexts; free, for answers were private.

        Args:
            features: Features of all actions.
            reference: Probabilities of the starting policy; uniform if left out.

        Source:
            KLDP, §2; PPKL, §2.
        """
        rows = _validate.finite_array("features", features, ndim=3)
        base = np.full(rows.shape[:2], 1 / rows.shape[1]) if reference is None else reference
        rewards = self.learner.belief.rewards(self.learner.encode(rows))
        return gibbs_rows(rewards, self.temperature, base)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class OnlineRun:
    """What was learned in all rounds, with the promise that it carries.

    Attributes:
        policy: The final policy, without any bonus.
        reward: The final linear reward, which other policies take; None for a finite class.
        name: The final candidate of a finite class; None for a linear reward.
        possible: Names of the candidates that are still possible; empty for a linear reward.
        guarantee: What all answers promise.
        release_ids: Ledger entries that paid.
        artifact: SHA-256 of all questions and randomized answers.
        actions: The two actions of every round.
        answers: Randomized answers; −1 where both actions were the same, so that nobody was
            asked.
        regrets: What the second policy gave away in each round's context; None where the world
            does not tell its reward.
        widths: How far two rewards that were still possible disagreed at most on the question of
            each round; 0 where there was none.
        refits: How many estimates were used.
        radius: Size of the final confidence set.
        exploration: Which rule chose the actions.
        heuristic: Whether the bonus is less than what the proof needs.
    """

    policy: OnlinePolicy
    reward: RewardModel | None
    name: str | None
    possible: tuple[str, ...]
    guarantee: Guarantee
    release_ids: tuple[str, ...]
    artifact: str
    actions: Integer[np.ndarray, "t 2"]
    answers: Integer[np.ndarray, " t"]
    regrets: Float[np.ndarray, " t"] | None
    widths: Float[np.ndarray, " t"]
    refits: int
    radius: float
    exploration: Exploration
    heuristic: bool

    def __repr__(self) -> str:
        """Return the size and the promise."""
        kind = f"{self.exploration}, heuristic" if self.heuristic else self.exploration
        return f"OnlineRun({len(self.answers)} rounds, {kind}, {self.guarantee})"

    @property
    def regret(self) -> Float[np.ndarray, " t"] | None:
        """Return the regret up to every round, where the world tells its reward."""
        return None if self.regrets is None else np.cumsum(self.regrets)

    @property
    def asked(self) -> int:
        """Return in how many rounds somebody was asked."""
        return int((self.answers >= 0).sum())

    def surprising_rounds(self, threshold: float) -> int:
        """Return in how many rounds rewards that were still possible disagreed by more.

        However long a run is, a class of small eluder dimension allows few.

        Args:
            threshold: In units of reward, > 0.

        Source:
            Russo & Van Roy 2013, Proposition 3; docs/policy_optimization.md, "Online alignment".
        """
        return int((self.widths > _validate.positive("threshold", threshold)).sum())
