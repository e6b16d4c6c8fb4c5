"""Lower and upper confidence: one bound on how wrong a reward may be, with two signs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.rewards.candidates import CandidateLists, Candidates, Prompts, ReferenceLists

from .gibbs import CandidatePolicy, ReleasedReward, Scores

Kind = Literal["pessimistic", "optimistic"]
_SIGNS: dict[str, float] = {"pessimistic": -1.0, "optimistic": 1.0}


@runtime_checkable
class _ConfidenceSet(Protocol):
    """Rewards, linear in the features, among which the truth is with stated confidence."""

    @property
    def center(self) -> Float[np.ndarray, " d"]:
        """Return the weights in the middle."""

    def radius(self, confidence: float) -> float:
        """Return how large the set is."""

    def widths(self, rows: Any) -> Float[np.ndarray, " m"]:
        """Return how far the set reaches in the direction of each row, per unit of radius."""


def suboptimality_bound(
    widths: Float[np.ndarray, " k"],
    probabilities: Float[np.ndarray, " k"],
    *,
    radius: float,
    temperature: float,
) -> float:
    """Return what the pessimistic policy loses against the best one at most, at one prompt."""
    # The loss is that of E r − temperature · KL(π ‖ reference). The bound holds whenever the
    # confidence set holds the true reward; average it over prompts.
    # Source: PPKL, Theorem 4.2, with its constant made explicit (2); docs/local.md, confidence and
    # pessimism: (2/temperature) · radius² · E_π*‖φ − φ̄‖².
    return float(2 / temperature * radius**2 * np.sum(probabilities * widths**2))


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How well the comparisons cover what a policy does, prompt by prompt."""

    # E_π width² · pairs. About the number of directions that matter where the comparisons cover the
    # policy; much larger where it acts on what nobody compared.
    uncertainty: Float[np.ndarray, " n"]
    # The largest π / reference among the prompt's candidates.
    density_ratio: Float[np.ndarray, " n"]

    def to_dict(self) -> dict[str, float]:
        """Return the mean uncertainty and the largest density ratio over the prompts."""
        return {
            "mean_uncertainty": float(self.uncertainty.mean()),
            "max_density_ratio": float(self.density_ratio.max()),
        }


@dataclass(frozen=True, repr=False)
class ConfidencePolicy(CandidatePolicy):
    """Choose with probability ∝ reference · exp((reward ∓ bonus) / temperature)."""

    # Made by `pessimistic_policy` and `optimistic_policy`. The reward is that of the center of the
    # confidence set, for which the bonus is proved. See `CandidatePolicy` for what the methods
    # take.

    # `"pessimistic"`: the bonus is taken off; `"optimistic"`: it is added.
    kind: Kind = field(kw_only=True)
    # How often the confidence set holds the true reward, in (0, 1).
    confidence: float = field(default=0.95, kw_only=True)
    # What the bonus is multiplied by; below 1 nothing is proved.
    scale: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.one_of("kind", self.kind, _SIGNS)
        level = _validate.failure_probability("confidence", self.confidence, zero=False)
        scale = _validate.non_negative("scale", self.scale)
        if math.isinf(scale):
            raise UsageError("scale must be finite, got inf.")
        object.__setattr__(self, "confidence", level)
        object.__setattr__(self, "scale", scale)
        self._confidence_set()

    def __repr__(self) -> str:
        return (
            f"ConfidencePolicy({self.kind}, {self.reward!r}, temperature={self.temperature:g}, "
            f"confidence={self.confidence:g}, {self.label})"
        )

    @property
    def heuristic(self) -> bool:
        """Whether the bonus is smaller than the one that is proved."""
        return self.scale < 1

    @property
    def label(self) -> str:
        """``"valid"``, or ``"heuristic scale ..."`` for a bonus smaller than the proved one."""
        return f"heuristic scale {self.scale:g}" if self.heuristic else "valid"

    def to_dict(self) -> dict[str, Any]:
        """Return what makes this policy, as JSON holds it."""
        return super().to_dict() | {
            "kind": self.kind,
            "confidence": self.confidence,
            "scale": self.scale,
            "label": self.label,
        }

    def bonus(
        self, prompts: Prompts, candidates: CandidateLists, *, reference: ReferenceLists = None
    ) -> list[Float[np.ndarray, " k"]]:
        """Return, for every prompt, the bonus of each candidate, ≥ 0, in units of reward."""
        # A candidate's true reward, less its mean under the reference, is within the bonus of the
        # estimate (for a scale of at least 1, as often as the confidence says).
        # Source: docs/local.md, confidence and pessimism: scale · radius · ‖φ − E_reference
        # φ‖_{M⁻¹}.
        options = self._options(prompts, candidates, reference)
        return options.split(self._factor * self._reach(options)[1])

    def coverage(
        self, prompts: Prompts, candidates: CandidateLists, *, reference: ReferenceLists = None
    ) -> Coverage:
        """Return how well the comparisons cover what this policy does, prompt by prompt."""
        # Source: docs/local.md, confidence and pessimism: E_π‖φ − E_reference φ‖²_{M⁻¹} · n.
        if self.reward.pairs is None:
            raise UsageError(
                "Coverage is per comparison, and how many there were is private under this "
                "promise. Use bonuses, which do not need it."
            )
        options = self._options(prompts, candidates, reference)
        chances, widths = self._tilted(options)[0], self._reach(options)[1]
        return Coverage(
            uncertainty=options.means(widths**2, chances) * self.reward.pairs,
            density_ratio=np.maximum.reduceat(chances / options.reference, options.starts),
        )

    def _scores(self, options: Candidates) -> Scores:
        estimates, widths = self._reach(options)
        return estimates + _SIGNS[self.kind] * self._factor * widths, estimates

    @property
    def _factor(self) -> float:
        return self.scale * self._confidence_set().radius(self.confidence)

    def _reach(self, options: Candidates) -> Scores:
        """Return the center's reward of all candidates, and their widths."""
        known = self._confidence_set()
        estimates, widths = np.empty(len(options)), np.empty(len(options))
        for here, rows, centered in options.centered(self.reward.features):
            if rows.shape[1] != len(known.center):
                raise DataError(
                    f"candidates must have {len(known.center)} features, got {rows.shape[1]}."
                )
            estimates[here], widths[here] = rows @ known.center, known.widths(centered)
        return estimates, widths

    def _confidence_set(self) -> _ConfidenceSet:
        """Return the set that the bonus is made of; refuse a reward that has none."""
        # a finite class shapes its set by the confidence, an ellipsoid has one shape for all
        shaped = getattr(self.reward, "confidence_set", None)
        known = shaped(self.confidence) if shaped else getattr(self.reward, "ellipsoid", None)
        if known is None:
            raise UsageError(
                "This reward keeps no confidence set, so nothing says how wrong it may be. Fit "
                "it with fit_reward(..., ellipsoid=True), or use gibbs_policy, which takes it at "
                "its word."
            )
        found: _ConfidenceSet = known
        return found


def pessimistic_policy(
    reward: ReleasedReward, *, temperature: float, confidence: float = 0.95, scale: float = 1.0
) -> ConfidencePolicy:
    """Return the policy that trusts a private reward only as far as the comparisons reach.

    π(a | x) ∝ reference(a | x) · exp((reward(x, a) − bonus(x, a)) / temperature): candidates
    unlike anything that was compared are not chosen for a reward that may be noise. With the
    stated confidence, it loses at most what :func:`suboptimality_bound` says.

    Args:
        reward: A :class:`sordino.RewardModel` with a confidence set, or what
            :class:`sordino.FiniteRewards` fitted.
        temperature: KL strength in units of reward, finite and > 0.
        confidence: How often the confidence set holds the true reward, in (0, 1).
        scale: What the bonus is multiplied by, ≥ 0. The proved bonus is conservative, so less
            is often better, but a scale below 1 is a heuristic and is labelled as one; 0 is the
            Gibbs policy.

    Raises:
        UsageError: A setting is out of range, or the reward keeps no confidence set.
        PrivacyError: The reward is not a released reward.

    Source:
        PPKL, Algorithm 1; docs/local.md, confidence and pessimism.
    """
    return ConfidencePolicy(
        reward, temperature=temperature, kind="pessimistic", confidence=confidence, scale=scale
    )


def optimistic_policy(
    reward: ReleasedReward, *, temperature: float, confidence: float = 0.95, scale: float = 1.0
) -> ConfidencePolicy:
    """Return the policy that explores where the comparisons leave a private reward uncertain.

    π(a | x) ∝ reference(a | x) · exp((reward(x, a) + bonus(x, a)) / temperature).

    Args:
        reward: As in :func:`pessimistic_policy`.
        temperature: KL strength in units of reward, finite and > 0.
        confidence: How often the confidence set holds the true reward, in (0, 1).
        scale: What the bonus is multiplied by, ≥ 0; below 1 is a heuristic, labelled as one.

    Raises:
        UsageError: A setting is out of range, or the reward keeps no confidence set.
        PrivacyError: The reward is not a released reward.

    Source:
        PPKL, Algorithm 2 (the bonus); docs/local.md, confidence and pessimism.
    """
    return ConfidencePolicy(
        reward, temperature=temperature, kind="optimistic", confidence=confidence, scale=scale
    )
