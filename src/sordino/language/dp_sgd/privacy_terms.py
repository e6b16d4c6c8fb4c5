"""What is promised to a record or a person whose gradients are clipped, and what it takes."""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, get_args

from sordino import _validate
from sordino.errors import PrivacyError, UsageError
from sordino.language.clipping.poisson_batches import sampling_threshold
from sordino.privacy.accounting import calibrated_noise_multiplier
from sordino.privacy.events import PoissonGaussianEvent
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_SPECIAL,
    Guarantee,
    NeighboringRelation,
)
from sordino.privacy.ledger import Ledger
from sordino.rewards.release_checks import refuse_large_delta

__all__ = ["CentralPrivacy", "CentralUnit"]

CentralUnit = Literal["record", "person"]

_MARGIN: Final = 1 + 1e-6  # so that steps that are recorded in parts fit the budget of the whole


@dataclass(frozen=True)
class CentralPrivacy:
    """Public settings of training on noised sums of clipped gradients; choose them before the data.

    In every step each unit is drawn alone with one chance, its gradient is clipped, and noise is
    added to the sum. The sum is divided by a number that the user gives: dividing by the size of
    the data set, or of the sample, would tell it.

    Args:
        epsilon: Bound on the loss of all steps together; finite, greater than 0.
        delta: Probability that the bound may fail, in (0, 1); far below one over the number of
            units.
        unit: Whose change is hidden: ``"record"`` or ``"person"`` (all their pairs together).
        neighbors: What one change is: ``ADD_OR_REMOVE_ONE`` or ``REPLACE_SPECIAL``.
        sampling_probability: Chance of a unit to take part in a step; in (0, 1].
        steps: Number of steps; at least 1.
        expected_batch: What noised sums are divided by: a public guess of how many units take
            part in a step. A wrong one scales the learning rate, and nothing else.
        clip: C, bound on the norm of what one unit adds to a sum.
        cap: For unit ``"person"``, and needed there: the most pairs of one person that are used,
            the first ones in the order of the data.

    Raises:
        UsageError: A setting is out of range.

    Guarantee:
        (ε, δ) for one unit under the relation, for all steps and everything computed from them,
        trust ``"central"``; caveats ``real-arithmetic`` and ``timing``. Shown by
        tests/language/test_central_privacy.py and tests/language/test_central_training.py.

    Source:
        docs/privacy.md, "Poisson-sampled Gaussian".
    """

    epsilon: float
    delta: float
    _: KW_ONLY
    unit: CentralUnit
    neighbors: NeighboringRelation
    sampling_probability: float
    steps: int
    expected_batch: float
    clip: float = 1.0
    cap: int | None = None

    def __post_init__(self) -> None:
        """Refuse what nothing can be promised with."""
        for name in ("epsilon", "clip", "expected_batch"):
            _validate.positive(name, getattr(self, name))
        _validate.failure_probability("delta", self.delta, zero=False)
        _validate.one_of("unit", self.unit, get_args(CentralUnit))
        _validate.one_of("neighbors", self.neighbors, (ADD_OR_REMOVE_ONE, REPLACE_SPECIAL))
        _validate.integer("steps", self.steps, at_least=1)
        sampling_threshold(self.sampling_probability)
        if (self.cap is None) == (self.unit == "person"):
            raise UsageError(
                "cap is the most pairs of one person: give it with unit='person', and leave it "
                f"out with unit='record'; got cap={self.cap!r} with unit={self.unit!r}."
            )
        if self.cap is not None:
            _validate.integer("cap", self.cap, at_least=1)
        refuse_large_delta(self.guarantee, None)
        guess = self.expected_batch / self.sampling_probability
        if self.delta * guess >= 1:
            raise UsageError(
                f"delta must be below one over the {guess:,.0f} {self.unit}s that expected_batch "
                f"and sampling_probability speak of, got {self.delta!r}: so large a delta would "
                "permit to publish somebody's judgments as they are. Choose it far smaller."
            )

    @property
    def noise_multiplier(self) -> float:
        """Return the standard deviation of the noise over C: the least that keeps the promise.

        Raises:
            PrivacyError: No noise is shown to keep it.
        """
        terms = (self.epsilon, self.delta, self.sampling_probability, self.steps, self.neighbors)
        return _noise_multiplier(*terms)

    def event(self, steps: int) -> PoissonGaussianEvent:
        """Return what so many steps do, for the ledger."""
        return PoissonGaussianEvent(self.noise_multiplier, self.sampling_probability, steps)

    @property
    def guarantee(self) -> Guarantee:
        """Return what all steps promise together."""
        return Guarantee(
            self.epsilon,
            delta=self.delta,
            unit=self.unit,
            neighbors=self.neighbors,
            trust="central",
            caveats=("real-arithmetic", "timing"),
        )

    def promise(self, simulate_seed: int | None) -> Guarantee:
        """Return what all steps promise, with every caveat; nothing of the data enters.

        Args:
            simulate_seed: A seed for study, or None.

        Raises:
            UsageError: The seed is no whole number of at least 0.
        """
        promise = self.guarantee
        if self.unit == "record":  # whether records name persons is as private as all else of them
            promise = promise.with_caveats("person-group")
        if simulate_seed is None:
            return promise
        _validate.integer("simulate_seed", simulate_seed, at_least=0)
        return replace(promise.with_caveats("simulated"), randomness="simulated")

    def refuse_other_units(self, ledger: Any) -> None:
        """Refuse a ledger that counts something else than what is hidden.

        Raises:
            UsageError: It is none.
            PrivacyError: Its unit or relation is another.
        """
        if not isinstance(ledger, Ledger):
            raise UsageError(f"ledger must be a Ledger, got {type(ledger).__name__}.")
        unit, neighbors = ledger.budget.unit, ledger.budget.neighbors
        if (unit, neighbors) != (self.unit, self.neighbors):
            raise PrivacyError(
                f"{ledger.path.name} counts unit={unit!r}, {neighbors.name}, and the privacy "
                f"settings hide unit={self.unit!r}, {self.neighbors.name}. Nothing was trained."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON holds them; all of them are public."""
        noise = {"noise_multiplier": self.noise_multiplier}
        return {**asdict(self), "neighbors": self.neighbors.name, **noise}


@lru_cache
def _noise_multiplier(
    epsilon: float, delta: float, chance: float, steps: int, neighbors: NeighboringRelation
) -> float:
    """Return the calibrated noise, which takes seconds to find, once for all equal settings."""
    least = calibrated_noise_multiplier(
        epsilon, delta, sampling_probability=chance, steps=steps, neighbors=neighbors
    )
    return least * _MARGIN
