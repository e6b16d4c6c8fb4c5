"""What one run of the main job may spend, what it would, and the crossing itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino import _validate
from sordino._files import refuse_existing
from sordino.cli._options import (
    Unit,
    choose_coin,
    future_ledger,
    open_ledger,
    spending_limit,
)
from sordino.cli._policy import refuse_settings
from sordino.errors import DataError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs, most_questions
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privatization.crossing import Crossing, refuse_unlinked
from sordino.privatization.memory import plan_pairs, privatize
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.answer_fit import METHODS

__all__ = ["Settings", "cross", "plan"]

_LEAST_LEFT = 12


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user chose for one run."""

    out: Path
    epsilon: float | None
    unit: Unit
    cap: int | None
    budget: float | None
    ledger: Path | None
    data: str
    dimension: int
    temperature: float
    ridge: float | None
    method: str
    ball: float
    confidence: float | None
    scale: float | None
    simulate_seed: int | None
    force: bool

    def __post_init__(self) -> None:
        """Refuse unusable settings before a file is opened."""
        _validate.positive("--temperature", self.temperature)
        _validate.integer("--dimension", self.dimension, at_least=1)
        if self.epsilon is not None:
            RandomizedResponse(self.epsilon)
        if self.ridge is not None:
            _validate.positive("--ridge", self.ridge)
        _validate.positive("--ball", self.ball)
        _validate.one_of("--method", self.method, METHODS)
        refuse_settings(
            confidence=self.confidence,
            scale=self.scale,
            method=self.method,
            dimension=self.dimension,
        )
        refuse_existing(self.out, force=self.force)

    def coin(self, pairs: Pairs) -> RandomizedResponse:
        """Return the coin for raw labels: what one label may cost.

        Raises:
            UsageError: No epsilon was given.
            DataError: It is for a person, and there are no person ids.
        """

        def most() -> int:
            if pairs.persons is None:
                refuse_unlinked("a budget for each person")
            return most_questions(pairs.persons, pairs.keys)

        return choose_coin(self.total, unit=self.unit, cap=self.cap, most=most)

    @property
    def fitted_by(self) -> str:
        """Return the method of the fit: confidence sets are about the debiased estimate."""
        return self.method if self.confidence is None else "debiased"

    @property
    def total(self) -> float:
        """Return what may be spent on one unit.

        Raises:
            UsageError: No epsilon was given.
        """
        if self.epsilon is None:
            raise UsageError(
                "These are raw judgments, so --epsilon is needed: the privacy loss allowed per "
                f"{self.unit.value} (1 is strong, 4 is weak). Nothing was done."
            )
        return self.epsilon

    @property
    def ledger_path(self) -> Path:
        """Return where the spend is recorded."""
        return self.ledger or self.out / "spend.db"


def plan(settings: Settings, pairs: Pairs | PrivatePairs) -> dict[str, Any]:
    """Return what a run would spend; nothing is touched.

    Raises:
        BudgetExceeded: The ledger has not enough left.
    """
    limit = _limit(settings, pairs)
    ledger = future_ledger(
        settings.ledger_path, settings.data, limit, change=settings.budget is not None
    )
    ledger.check_data(settings.data, None)
    if isinstance(pairs, PrivatePairs):
        return _plan_received(settings, pairs)
    crossing = Crossing.of(
        settings.coin(pairs),
        ledger,
        on_device=False,
        simulate_seed=settings.simulate_seed,
        cap=settings.cap,
    )
    planned = plan_pairs(pairs, crossing, data=settings.data)
    _refuse_few_left(planned, pairs, settings.cap)
    return planned


def _plan_received(settings: Settings, pairs: PrivatePairs) -> dict[str, Any]:
    """Return what answers cost that are private already: nothing.

    Raises:
        UsageError: A setting asks for what can only be had before labels are randomized.
    """
    promise = pairs.guarantee
    wanted = []
    if settings.epsilon is not None and settings.epsilon < promise.epsilon:
        wanted.append(f"--epsilon {settings.epsilon:g}")
    if settings.unit is Unit.person and promise.unit != "person":
        wanted.append("--unit person")
    if wanted:
        raise UsageError(
            f"These answers were randomized with epsilon={promise.epsilon:g} per {promise.unit}; "
            f"{' and '.join(wanted)} cannot be promised of them any more. Nothing was done. Leave "
            f"{' and '.join(text.partition(' ')[0] for text in wanted)} out."
        )
    if settings.cap is not None:
        raise UsageError(
            "--cap chooses among raw judgments, before they are randomized; these answers are "
            "randomized already. Nothing was done. Leave it out."
        )
    counts = {"pairs": len(pairs), "dropped_identical": pairs.dropped}
    return {"spend": 0.0, **counts, **describe_guarantee_and_caveats(promise)}


def _refuse_few_left(planned: Mapping[str, Any], pairs: Pairs, cap: int | None) -> None:
    """Refuse a cap that leaves too few answers to hold any out, whichever are chosen.

    Raises:
        DataError: It leaves fewer than a dozen.
    """
    if not cap or not planned["capped_questions"]:
        return
    left = len(set(zip(pairs.persons or (), pairs.keys, strict=True))) - planned["capped_questions"]
    if left < _LEAST_LEFT:
        raise DataError(
            f"A cap of {cap} leaves {left} answers of {planned['persons']} persons, which are too "
            "few to measure anything on held-out ones; a dozen is the least. Nothing was spent. "
            "Raise --cap, or take in more people."
        )


def cross(settings: Settings, pairs: Pairs | PrivatePairs) -> tuple[PrivatePairs, Ledger]:
    """Return private answers and the ledger that says where they come from."""
    ledger = open_ledger(
        settings.ledger_path,
        settings.data,
        _limit(settings, pairs),
        change=settings.budget is not None,
    )
    if isinstance(pairs, PrivatePairs):
        return pairs.received(ledger.receive(pairs.artifact, pairs.guarantee)), ledger
    coin, seed = settings.coin(pairs), settings.simulate_seed
    return privatize(pairs, coin, ledger=ledger, cap=settings.cap, simulate_seed=seed), ledger


def _limit(settings: Settings, pairs: Pairs | PrivatePairs) -> Guarantee:
    """Return the limit of a new ledger: the first spend, or what arrived private."""
    if isinstance(pairs, PrivatePairs):
        found = pairs.guarantee
        return spending_limit(found.epsilon, settings.budget, unit=found.unit, trust=found.trust)
    unit = settings.unit.counted
    return spending_limit(settings.total, settings.budget, unit=unit, trust="central")
