"""Randomized judgments with the promise that they carry."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Integer

from sordino.errors import PrivacyError
from sordino.preferences.comparisons import Comparisons, outcomes
from sordino.privacy.conversions import flip_probability
from sordino.privacy.guarantee import Guarantee

__all__ = ["PrivatePairs", "digest_of_answers"]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PrivatePairs(Comparisons):
    """Randomized answers with the promise they carry: everything done with them is free.

    Attributes:
        answers: 1 where the randomized answer prefers ``first``, else 0.
        flip_probability: Chance that an answer is not the judgment.
        guarantee: What the answers promise.
        release_ids: Ledger entries that paid for them, or recorded their arrival.
        artifact: SHA-256 of the released answers.
    """

    answers: Integer[np.ndarray, " n"] = field(kw_only=True)
    flip_probability: float = field(kw_only=True)
    guarantee: Guarantee = field(kw_only=True)
    release_ids: tuple[str, ...] = field(default=(), kw_only=True)
    artifact: str = field(kw_only=True)
    seal: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse answers that are not those that the promise was made for."""
        super().__post_init__()
        object.__setattr__(self, "answers", outcomes("answers", self.answers, len(self)))
        seal = digest_of_answers(self.public_digest, self.answers)
        if self.seal not in {None, seal}:
            raise PrivacyError(
                "These are not the answers that were released under this promise, so it does not "
                "speak for them. Make private pairs with privatize or read_pairs."
            )
        object.__setattr__(self, "seal", seal)
        epsilon = self.guarantee.epsilon
        flips = 0.0 if math.isinf(epsilon) else flip_probability(epsilon)
        if not math.isclose(self.flip_probability, flips, rel_tol=1e-9):
            raise PrivacyError(
                f"Answers that promise epsilon={epsilon:g} are flipped with probability "
                f"{flips:.9g}, not {self.flip_probability:.9g}."
            )

    def received(self, release_id: str) -> PrivatePairs:
        """Return the same answers, tied to the ledger entry that recorded their arrival."""
        return replace(self, release_ids=(*self.release_ids, release_id))


def digest_of_answers(public_digest: str, answers: Integer[np.ndarray, " n"]) -> str:
    """Return the SHA-256 of released answers together with what they answer."""
    return hashlib.sha256(f"{public_digest}\n".encode() + answers.tobytes()).hexdigest()
