"""What a release of whole records promises and keeps, settled before a feature is read."""

from __future__ import annotations

from dataclasses import dataclass

from sordino import _random, _validate
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.second_moment import SecondMoment
from sordino.preferences.features import Features
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, Guarantee
from sordino.privacy.ledger import Ledger

from .record_checks import keeps_ellipsoid, record_promise, refuse_unpaid
from .record_confidence import refuse_small_ridge
from .release_checks import entropy_of
from .tilted_minimizer import refuse_drowned, ridge_of

__all__ = ["RecordTerms"]


@dataclass(frozen=True, kw_only=True)
class RecordTerms:
    """What a release of records is about to promise and keep; made before a feature is read.

    Attributes:
        mechanism: The tilt.
        second_moment: What releases Σ xxᵀ too, or None.
        promise: What is promised.
        ball: Bound on the norm of the minimizer.
        ellipsoid: Whether a confidence set is kept.
        size: How many records there are, with those dropped; None where that is private.
        entropy: Source of 64-bit words.
    """

    mechanism: ObjectivePerturbation
    second_moment: SecondMoment | None
    promise: Guarantee
    ball: float
    ellipsoid: bool
    size: int | None
    entropy: _random.Entropy

    @classmethod
    def of(
        cls,
        mechanism: ObjectivePerturbation,
        ledger: Ledger,
        second_moment: SecondMoment | None,
        *,
        size: int,
        ball: float,
        ellipsoid: bool | None,
        simulate_seed: int | None,
        features: Features | None,
    ) -> RecordTerms:
        """Return the terms of a release; the ledger is only read.

        Args:
            mechanism: The tilt.
            ledger: Its unit and relation are those that are promised.
            second_moment: As in the attributes.
            size: How many records there are. One of identical answers is dropped, but one change
                may make a record such: it counts.
            ball: As in the attributes.
            ellipsoid: Whether to keep a confidence set; by default if there is a second moment.
            simulate_seed: A seed for study.
            features: What reads the texts of records.

        Raises:
            PrivacyError: Nobody knows what the features have read; or the ledger counts labels or
                persons, or another relation, or the second moment was not paid for.
            UsageError: A setting is out of range.
        """
        ball = _validate.workable("ball", ball)
        entropy = entropy_of(simulate_seed)
        promise = record_promise(mechanism, ledger, entropy, n=size, features=features)
        refuse_unpaid(second_moment, mechanism)
        return cls(
            mechanism=mechanism,
            second_moment=second_moment,
            promise=promise,
            ball=ball,
            ellipsoid=keeps_ellipsoid(second_moment, ellipsoid=ellipsoid),
            size=None if promise.neighbors == ADD_OR_REMOVE_ONE else size,
            entropy=entropy,
        )

    def refuse_useless(self, d: int) -> None:
        """Refuse settings with which nothing would be learned of so many features.

        Raises:
            UsageError: They are such.
        """
        if self.second_moment:
            _validate.refuse_unholdable("dimension", d, 4 * d**2)  # sum, noise, steps, result
        if self.ellipsoid and self.second_moment:
            refuse_small_ridge(ridge_of(self.mechanism), self.second_moment, d=d, ball=self.ball)
        refuse_drowned(self.mechanism, d=d, ball=self.ball)
