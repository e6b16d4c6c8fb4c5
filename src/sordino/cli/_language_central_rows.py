"""Rows of a comparison that learn from raw judgments: every run is paid for on a ledger of its own.

They promise something to whole records, and the other rows to labels: the two are never added up.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sordino.cli._accounts import (
    Budget,
    Limit,
    future_ledger,
    open_ledger,
    spending_limit,
    with_spend,
)
from sordino.cli._language_options import language_module
from sordino.cli._language_releases import SEEDS_APART, labels_name
from sordino.cli._settings import DELTA
from sordino.engines.folders import passing_folder
from sordino.errors import BudgetExceeded
from sordino.preferences.pairs import Pairs
from sordino.privacy.accounting import composed_epsilon
from sordino.privacy.events import Event
from sordino.privacy.guarantee import REPLACE_SPECIAL
from sordino.privacy.ledger import Ledger
from sordino.privacy.spend import event_of
from sordino.reporting.result import describe_guarantee_and_caveats

__all__ = ["CentralRows", "central_labels"]

_MARGIN = 1 + 1e-6  # the search that fits a budget, and the sum, differ in their last digits
_PUBLIC = ("prompts", "answers", "number of judgments")  # which a table and its files tell of
_BELOW = 0.1  # of one over the number of records: a larger delta would permit to publish one


def central_labels(epsilon: float) -> str:
    """Return what a row of this epsilon is called."""
    return f"central, {labels_name(epsilon)}"


@dataclass(frozen=True, kw_only=True)
class CentralRows:
    """Raw judgments to learn from, and how often a policy is trained on them.

    Attributes:
        pairs: Training judgments; nothing is measured on others.
        epsilons: Of the rows: what one run costs a record.
        seeds: Runs at each of them.
        units: A guess of how many records there are, which counts as public.
        sizes: Of the training.
        folder: Where finished runs are kept.
        path: The ledger.
        data: Its name on the ledger.
        declare_unread: As ``--declare-unread``.
        budget: As ``--central-budget``; None for what the study spends.
        simulate_seed: As ``--simulate-seed``.
    """

    pairs: Pairs
    epsilons: tuple[float, ...]
    seeds: int
    units: float
    sizes: Any
    folder: Path
    path: Path
    data: str
    declare_unread: bool = False
    budget: Budget = field(default_factory=Budget)
    simulate_seed: int | None = None

    @property
    def delta(self) -> float:
        """Return the failure probability of one run, and of all together."""
        return min(DELTA, _BELOW / self.units)

    @property
    def runs(self) -> list[tuple[float, int]]:
        """Return every run as (epsilon, seed)."""
        return [(epsilon, seed) for epsilon in self.epsilons for seed in range(self.seeds)]

    def privacy(self, epsilon: float) -> Any:
        """Return the public settings of one run."""
        batch = min(float(self.sizes.expected_batch), self.units)
        return language_module("central.privacy_terms").CentralPrivacy(
            epsilon,
            self.delta,
            unit="record",
            neighbors=REPLACE_SPECIAL,
            sampling_probability=batch / self.units,
            steps=self.sizes.steps,
            expected_batch=batch,
            clip=self.sizes.clip,
        )

    def kept(self, epsilon: float, seed: int) -> Path:
        """Return where a finished run is kept: a study that goes on pays for it once."""
        return self.folder / f"dpo-central-{labels_name(epsilon)}-{seed}.json"

    @property
    def spend(self) -> float:
        """Return what all runs cost one record together."""
        return self._epsilon({self._event(epsilon): self.seeds for epsilon in self.epsilons})

    def _event(self, epsilon: float) -> Event:
        """Return what one run does."""
        privacy = self.privacy(epsilon)
        event: Event = privacy.event(privacy.steps)
        return event

    def _epsilon(self, events: dict[Event, int]) -> float:
        """Return what runs cost one record together."""
        return composed_epsilon(events, neighbors=REPLACE_SPECIAL, delta=self.delta)

    @property
    def limit(self) -> Limit:
        """Return the limit of a new ledger."""
        return spending_limit(
            self.spend * _MARGIN,
            self.budget,
            unit="record",
            trust="central",
            delta=self.delta,
            neighbors=REPLACE_SPECIAL,
        )

    def check(self, *, anew: bool) -> None:
        """Refuse what the ledger has not enough left for; nothing is touched.

        Args:
            anew: Whether runs that are kept will be thrown away, and paid for again.

        Raises:
            BudgetExceeded: It has not.
            LedgerMismatch: It belongs to another data set.
        """
        ledger = future_ledger(self.path, self.data, self.limit)
        ledger.check_data(self.data, None)
        try:
            for epsilon, seed in self.runs:
                if anew or not self.kept(epsilon, seed).exists():
                    promise = self.privacy(epsilon).promise(self.simulate_seed)
                    ledger = with_spend(ledger, self._event(epsilon), promise)
        except BudgetExceeded as error:
            raise BudgetExceeded(
                f"{error} A central run that was interrupted is paid for again: --central-budget "
                "EPSILON raises the limit, and the ledger records it."
            ) from None

    def open(self) -> Ledger:
        """Return the ledger."""
        return open_ledger(self.path, self.data, self.limit)

    def run(self, contest: Any, epsilon: float, seed: int) -> dict[str, Any]:
        """Return how a policy fares that one run made; it is paid for before anything is drawn.

        Args:
            contest: What all runs share.
            epsilon: What the run costs a record.
            seed: Of the first weights and of the draws.

        Raises:
            BudgetExceeded: The ledger has not enough left; nothing was drawn.
        """
        noise = self.simulate_seed
        if noise is not None:
            noise += seed + SEEDS_APART * self.epsilons.index(epsilon)
        with passing_folder(None) as scratch:
            place = Path(scratch) / "policy"
            language_module("studies.central_pipeline").train_policy_centrally(
                self.pairs,
                contest.reference,
                place,
                replace(self.sizes.terms, seed=seed),
                privacy=self.privacy(epsilon),
                ledger=self.open(),
                declare_unread=self.declare_unread,
                simulate_seed=noise,
            )
            return {"win": contest.fared(place, seed), "curve": []}

    def costs(self, labels: str) -> dict[str, Any]:
        """Return what a row cost one record by the ledger, interrupted runs among it.

        Args:
            labels: Of the row; nothing is returned for one that is not central.
        """
        named = {central_labels(epsilon): epsilon for epsilon in self.epsilons}
        if labels not in named:
            return {}
        event = self._event(named[labels])
        paid = sum(event_of(row) == event for row in Ledger.read(self.path).spends)
        return {
            "unit": "record",
            "delta": self.delta,
            "releases": paid,
            "epsilon_of_one_release": named[labels],
            "epsilon_of_all_releases": self._epsilon({event: paid}),
        }

    def promised(self) -> dict[str, Any]:
        """Return what all rows promise together: every run on the ledger."""
        total = self.open().total()
        known: dict[str, Any] = {
            "units": self.units,
            "public": list(_PUBLIC),
            "spent": 0.0,
            "guarantee": None,
            "caveats": [],
        }
        if total is None:
            return known
        return known | {"spent": total.epsilon, **describe_guarantee_and_caveats(total)}

    def planned(self) -> dict[str, Any]:
        """Return what the study would spend."""
        noise = {labels_name(each): self.privacy(each).noise_multiplier for each in self.epsilons}
        return {
            "spend": self.spend,
            "delta": self.delta,
            "unit": "record",
            "neighbors": REPLACE_SPECIAL.name,
            "units": self.units,
            "runs": len(self.runs),
            "noise_multipliers": noise,
        }

    def settings(self) -> dict[str, Any]:
        """Return everything public that a result depends on."""
        return {"epsilons": list(self.epsilons), "units": self.units, "delta": self.delta}
