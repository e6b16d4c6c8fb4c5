"""Randomized judgments with the promise that they carry."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Integer

from sordino.errors import PrivacyError
from sordino.preferences.comparisons import Comparisons, PublicDigest, outcomes
from sordino.privacy.conversions import flip_probability
from sordino.privacy.guarantee import Guarantee, never_less

__all__ = ["PrivatePairs", "digest_of_answers", "label_loss", "most_questions"]

_SLACK = 1e-9  # relative: a flip probability is the nearest float to a ratio of integers


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
        seal = self._sealed()
        if self.seal not in {None, seal}:
            raise PrivacyError(
                "These are not the answers that were released under this promise, so it does not "
                "speak for them. Make private pairs with privatize or read_pairs."
            )
        object.__setattr__(self, "seal", seal)
        if self.guarantee.unit == "person":
            self._refuse_more_than_promised()
        else:
            self._refuse_other_flips()

    def _sealed(self) -> str:
        """Return a digest of the answers, of what they answer, and of who gave them."""
        digest = PublicDigest()
        for index, key in enumerate(self.keys):
            digest.add(key, None if self.persons is None else self.persons[index])
        return digest_of_answers(f"{self.public_digest} {digest.hexdigest()}", self.answers)

    def _refuse_other_flips(self) -> None:
        """Refuse a flip probability that is not the one of the promise."""
        epsilon = self.guarantee.epsilon
        flips = 0.0 if math.isinf(epsilon) else flip_probability(epsilon)
        if not math.isclose(self.flip_probability, flips, rel_tol=_SLACK):
            raise PrivacyError(
                f"Answers that promise epsilon={never_less(epsilon)} are flipped with probability "
                f"{flips:.9g}, not {self.flip_probability:.9g}."
            )

    def _refuse_more_than_promised(self) -> None:
        """Refuse a promise about whole people that one of them has too many answers for."""
        if self.persons is None or "labels-only" not in self.guarantee.caveats:
            raise PrivacyError(
                "A promise about all labels of one person needs person ids, and the caveat "
                "labels-only: who answered what is in the answers."
            )
        if not 0 <= self.flip_probability < 0.5:  # noqa: PLR2004 (a fair coin says nothing)
            raise PrivacyError(
                f"flip_probability must be in [0, 0.5), got {self.flip_probability!r}."
            )
        labels = most_questions(self.persons, self.keys)
        loss = label_loss(self.flip_probability)
        if self.guarantee.epsilon < labels * loss * (1 - _SLACK):
            raise PrivacyError(
                f"A promise of epsilon={never_less(self.guarantee.epsilon)} for one person does "
                "not cover "
                f"{labels} answers of one person at epsilon={never_less(loss)} each."
            )

    @property
    def label_epsilon(self) -> float:
        """Return the loss of one label; under unit ``"person"`` a share of the guarantee's."""
        total = self.guarantee.epsilon
        if self.guarantee.unit != "person" or math.isinf(total):
            return total
        loss = label_loss(self.flip_probability)
        share = total / max(round(total / loss), 1)
        return share if math.isclose(share, loss, rel_tol=_SLACK) else loss

    def received(self, release_id: str) -> PrivatePairs:
        """Return the same answers, tied to the ledger entry that recorded their arrival."""
        return replace(self, release_ids=(*self.release_ids, release_id))


def digest_of_answers(public_digest: str, answers: Integer[np.ndarray, " n"]) -> str:
    """Return the SHA-256 of released answers together with what they answer."""
    return hashlib.sha256(f"{public_digest}\n".encode() + answers.tobytes()).hexdigest()


def label_loss(flips: float) -> float:
    """Return log((1 − f)/f), the loss of one label that is flipped with probability f.

    Args:
        flips: Flip probability in [0, 1/2]; 0 is no noise and an infinite loss.

    Source:
        Warner 1965; docs/local.md, "Randomized response", with e^ε = (1 − f)/f.

    Example:
        >>> round(label_loss(0.25), 6)
        1.098612
    """
    return math.inf if flips == 0 else math.log1p((1 - 2 * flips) / flips)


def most_questions(persons: Sequence[str], keys: Sequence[bytes]) -> int:
    """Return the largest number of different questions that one person answered.

    Example:
        >>> most_questions(["ann", "ann", "ann", "bo"], [b"q", b"q", b"r", b"q"])
        2
    """
    different = set(zip(persons, keys, strict=True))
    return max(Counter(person for person, _ in different).values(), default=0)
