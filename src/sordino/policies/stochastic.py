"""A stochastic policy over given candidates, with the numbers that certify it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Integer

from sordino import _random
from sordino.privacy.guarantee import Guarantee

__all__ = ["StochasticPolicy"]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class StochasticPolicy:
    """Probabilities of all candidates of given contexts; worst-case optimal up to the gap.

    Made by :func:`sordino.policies.robust.robust_policy`, from what was released: using it is
    free.

    Attributes:
        chances: For every context the probabilities of its candidates.
        value: The least mean reward over all rewards that may be true, relative to the reference
            vector, less temperature · KL where there is a temperature.
        upper: What no policy exceeds in the worst case.
        certificate: What the best policy gains over this one at most if the true reward is in the
            confidence set.
        theta: The reward that shows ``upper``, shape (d,).
        confidence: How often the confidence set holds the true reward.
        radius_scale: What its radius was multiplied by; below 1 nothing is proved.
        temperature: KL strength, or None.
        guarantee: What the release behind the reward promises; None for a bare confidence set.
    """

    chances: tuple[Float[np.ndarray, " _"], ...]
    value: float
    upper: float
    certificate: float
    theta: Float[np.ndarray, " d"]
    confidence: float
    radius_scale: float = 1.0
    temperature: float | None = None
    guarantee: Guarantee | None = field(default=None)

    def __repr__(self) -> str:
        """Return the certified numbers, and whether they are proved."""
        soft = "" if self.temperature is None else f", temperature={self.temperature:g}"
        return (
            f"StochasticPolicy({len(self.chances)} contexts, value={self.value:.6g}, "
            f"gap={self.gap:.2g}, certificate={self.certificate:.6g}, "
            f"confidence={self.confidence:g}{soft}, {self.label})"
        )

    @property
    def gap(self) -> float:
        """How much a better policy could gain in the worst case, at most."""
        return max(self.upper - self.value, 0.0)

    @property
    def label(self) -> str:
        """``"valid"``, or ``"heuristic scale ..."`` for a radius smaller than the proved one."""
        return f"heuristic scale {self.radius_scale:g}" if self.radius_scale < 1 else "valid"

    @property
    def probabilities(self) -> list[Float[np.ndarray, " _"]]:
        """The probability of each candidate, one array for each context."""
        return list(self.chances)

    def draw(self, *, simulate_seed: int | None = None) -> Integer[np.ndarray, " n"]:
        """Return, for every context, the index of one candidate drawn from the policy.

        Guarantee:
            Drawing spends nothing: the probabilities were computed from what was released.
            tests/unit/policies/test_robust.py.

        Args:
            simulate_seed: A seed, so that a study can be repeated.
        """
        words = _random.entropy(simulate_seed).words(len(self.chances))
        uniform = (words >> np.uint64(11)) * 2.0**-53
        # a candidate of probability 0 is never drawn, also where rounding leaves a sum below 1
        drawn = [
            min(int(np.searchsorted(np.cumsum(p), u, side="right")), int(np.flatnonzero(p)[-1]))
            for p, u in zip(self.chances, uniform, strict=True)
        ]
        return np.array(drawn, dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as JSON holds it."""
        return {
            "probabilities": [chances.tolist() for chances in self.chances],
            "value": self.value,
            "gap": self.gap,
            "certificate": self.certificate,
            "confidence": self.confidence,
            "radius_scale": self.radius_scale,
            "temperature": self.temperature,
            "label": self.label,
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
        }
