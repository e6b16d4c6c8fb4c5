"""The releases of a comparison: fresh coins for every epsilon and seed, all on one ledger."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sordino._files import read_json, write_json
from sordino.cli._accounts import (
    Budget,
    Limit,
    future_ledger,
    open_ledger,
    spending_limit,
    with_spend,
)
from sordino.cli._language_options import language_module
from sordino.errors import DataError, SordinoError
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs, digest_of_answers
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, never_less
from sordino.privacy.ledger import Ledger
from sordino.privatization.memory import privatize
from sordino.privatization.unprotected import use_unprotected
from sordino.reporting.result import describe_guarantee_and_caveats

__all__ = ["NON_PRIVATE", "SEEDS_APART", "Releases", "labels_name", "unlinked"]

NON_PRIVATE = math.inf
"""The epsilon of a row that protects nobody."""

SEEDS_APART = 10_000
"""Between the seeds of two epsilons."""

_FORMAT, _VERSION = "sordino.answers", 1


def labels_name(epsilon: float) -> str:
    """Return what a row of this epsilon is called: different epsilons differ in their names."""
    if math.isinf(epsilon):
        return "non-private"
    short = f"{epsilon:g}"
    return f"epsilon={short if float(short) == epsilon else repr(epsilon)}"


def unlinked(pairs: Pairs) -> Pairs:
    """Return the same judgments without person ids, so that every release tosses anew.

    With ids an answer that a person gave before would be repeated, and seeds would share coins.
    """
    return replace(pairs, persons=None)


@dataclass(frozen=True, kw_only=True)
class Releases:
    """Judgments to learn from, and how often they will be released.

    Attributes:
        pairs: Training and held-out judgments together.
        held_out: Row numbers of the held-out ones.
        epsilons: Of the rows; infinite for the one without privacy.
        seeds: Releases at each finite epsilon.
        path: The ledger.
        data: Its name on the ledger.
        budget: As ``--budget``; None for what the study spends.
        answers: Folder where randomized answers are kept.
        simulate_seed: As ``--simulate-seed``.
    """

    pairs: Pairs
    held_out: frozenset[int]
    epsilons: tuple[float, ...]
    seeds: int
    path: Path
    data: str
    answers: Path
    budget: Budget = field(default_factory=Budget)
    simulate_seed: int | None = None
    _unprotected: list[PrivatePairs] = field(default_factory=list, repr=False)

    @property
    def spend(self) -> float:
        """Return what all releases cost one label together."""
        finite = [epsilon for epsilon in self.epsilons if not math.isinf(epsilon)]
        total = math.fsum(epsilon for epsilon in finite for _ in range(self.seeds))
        return math.inf if len(finite) < len(self.epsilons) else float(never_less(total, 12))

    @property
    def of_labels(self) -> dict[str, list[float]]:
        """Return the epsilon of every release behind each kind of labels."""
        return {
            labels_name(epsilon): [epsilon] * (1 if math.isinf(epsilon) else self.seeds)
            for epsilon in self.epsilons
        }

    @property
    def limit(self) -> Limit:
        """Return the limit of a new ledger."""
        return spending_limit(self.spend, self.budget, unit="label", trust="central")

    def check(self, *, anew: bool) -> None:
        """Refuse what the ledger has not enough left for; nothing is touched.

        Args:
            anew: Whether answers that are kept will be thrown away, and paid for again.

        Raises:
            BudgetExceeded: It has not.
            LedgerMismatch: It belongs to another data set.
        """
        ledger = future_ledger(self.path, self.data, self.limit)
        ledger.check_data(self.data, self.pairs.public_digest)
        for epsilon in self.epsilons:
            for seed in range(1 if math.isinf(epsilon) else self.seeds):
                if anew or not self._file(epsilon, seed).exists():
                    ledger = with_spend(ledger, *_cost(epsilon))

    def open(self) -> Ledger:
        """Return the ledger."""
        return open_ledger(self.path, self.data, self.limit)

    def paid_answers(self, epsilon: float, seed: int) -> tuple[PrivatePairs, PrivatePairs]:
        """Return training and held-out answers of one release, which is paid for first.

        Args:
            epsilon: Of the coins, or infinite: judgments as they are, recorded once.
            seed: Which of the releases at this epsilon.

        Raises:
            BudgetExceeded: The ledger has not enough left; no coin was drawn.
        """
        if math.isinf(epsilon):
            if not self._unprotected:
                found = use_unprotected(self.pairs, NonPrivate(), ledger=self.open())
                self._unprotected.append(found)
            return self._parts(self._unprotected[0])
        kept = self._file(epsilon, seed)
        if not kept.exists():
            write_json(kept, _stored(self._tossed(epsilon, seed)))
        return self._parts(self._stored_answers(epsilon, kept))

    def _file(self, epsilon: float, seed: int) -> Path:
        """Return where the answers of one release are kept: a study that goes on pays once."""
        return self.answers / f"{labels_name(epsilon)}-{seed}.json"

    def _tossed(self, epsilon: float, seed: int) -> PrivatePairs:
        """Return new randomized answers, after recording what they cost."""
        coins = self.simulate_seed
        if coins is not None:
            coins += seed + SEEDS_APART * self.epsilons.index(epsilon)
        coin = RandomizedResponse(epsilon)
        return privatize(self.pairs, coin, ledger=self.open(), simulate_seed=coins)

    def _stored_answers(self, epsilon: float, path: Path) -> PrivatePairs:
        """Return answers that were kept.

        Raises:
            DataError: The file is malformed, or of other questions.
        """
        problem = "The answers of an earlier release cannot be used"
        found = read_json(path, kind=_FORMAT, version=_VERSION, problem=problem)
        try:
            private = PrivatePairs(
                **{name: getattr(self.pairs, name) for name in Comparisons.__dataclass_fields__},
                answers=np.array(found["answers"]),
                flip_probability=RandomizedResponse(epsilon).flip_probability,
                guarantee=Guarantee.from_dict(found["guarantee"], found["caveats"]),
                release_ids=tuple(found["release_ids"]),
                artifact=found["artifact"],
            )
        except (SordinoError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{problem}: {path.name} is malformed.") from error
        if digest_of_answers(private.public_digest, private.answers) != private.artifact:
            raise DataError(f"{problem}: {path.name} is of other questions, or was changed.")
        return private

    def _parts(self, private: PrivatePairs) -> tuple[PrivatePairs, PrivatePairs]:
        """Return the answers of one release in two parts."""
        part = language_module("studies.preference_split").part_of_answers
        rows = range(len(private))
        training = part(private, [row for row in rows if row not in self.held_out])
        return training, part(private, [row for row in rows if row in self.held_out])


def _cost(epsilon: float) -> tuple[Any, Guarantee]:
    """Return what one release does, and what it promises."""
    mechanism: Any = NonPrivate() if math.isinf(epsilon) else RandomizedResponse(epsilon)
    promise = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
    return mechanism.event, promise


def _stored(private: PrivatePairs) -> dict[str, Any]:
    """Return randomized answers as JSON holds them; their questions are in the user's file."""
    return {
        "format": _FORMAT,
        "version": _VERSION,
        **describe_guarantee_and_caveats(private.guarantee),
        "release_ids": list(private.release_ids),
        "artifact": private.artifact,
        "answers": private.answers.tolist(),
    }
