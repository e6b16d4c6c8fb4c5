"""What is promised to a person who has one slot of one batch, and what it takes."""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Final, cast

from sordino import _validate
from sordino.algorithms.user_slots import refuse_shifting
from sordino.language.central.privacy_terms import CentralPrivacy
from sordino.privacy.accounting import calibrate
from sordino.privacy.events import GaussianEvent
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, NeighboringRelation
from sordino.privacy.ledger import Ledger
from sordino.rewards.release_checks import refuse_large_delta

__all__ = ["SlotPrivacy"]

_MARGIN: Final = 1 + 1e-9  # the noise is rounded, and what it costs is not


@dataclass(frozen=True)
class SlotPrivacy:
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

    def __post_init__(self) -> None:
        """Refuse what nothing can be promised with."""
        for name in ("epsilon", "clip"):
            _validate.positive(name, getattr(self, name))
        _validate.failure_probability("delta", self.delta, zero=False)
        refuse_shifting(self.neighbors)
        for name in ("slots", "batches", "updates_per_batch"):
            _validate.integer(name, getattr(self, name), at_least=1)
        refuse_large_delta(self.guarantee, self.people)

    @property
    def unit(self) -> str:
        """Return whose change is hidden."""
        return "person"

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

    @property
    def guarantee(self) -> Guarantee:
        """Return what all updates of all batches promise together."""
        return Guarantee(
            self.epsilon,
            delta=self.delta,
            unit="person",
            neighbors=self.neighbors,
            trust="central",
            caveats=("real-arithmetic", "timing"),
        )

    def promise(self, simulate_seed: int | None) -> Guarantee:
        """Return what is promised, and whether it is for study alone.

        Args:
            simulate_seed: A seed for study, or None.

        Raises:
            UsageError: The seed is no whole number of at least 0.
        """
        if simulate_seed is None:
            return self.guarantee
        _validate.integer("simulate_seed", simulate_seed, at_least=0)
        return replace(self.guarantee.with_caveats("simulated"), randomness="simulated")

    def refuse_other_units(self, ledger: Any) -> None:
        """Refuse a ledger that counts something else than what is hidden.

        Raises:
            UsageError: It is none.
            PrivacyError: Its unit or relation is another.
        """
        CentralPrivacy.refuse_other_units(cast("Any", self), cast("Ledger", ledger))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON holds them; all of them are public."""
        noise = {"noise_multiplier": self.noise_multiplier}
        return {**asdict(self), "neighbors": self.neighbors.name, "unit": self.unit, **noise}


@lru_cache
def _largest_mu(epsilon: float, delta: float, count: int, neighbors: NeighboringRelation) -> float:
    """Return the most that each of some releases may cost."""
    return calibrate(GaussianEvent, epsilon, delta, neighbors=neighbors, count=count)
