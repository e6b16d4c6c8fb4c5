"""First choices of raw ballots in, randomized ones out, the spend recorded first."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Integer

from sordino import _random, _validate
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.randomized_response import KaryRandomizedResponse, debiased_choices
from sordino.preferences.pairs import digest_of_answers
from sordino.preferences.rankings import Rankings, Slates
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, never_less
from sordino.privacy.ledger import Ledger

_SLACK = 1e-9  # relative, of an ε that was rounded


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PrivateChoices(Slates):
    """Randomized first choices with the promise they carry: everything done with them is free."""

    # Which candidate of its ballot each answer is, from 0.
    answers: Integer[np.ndarray, " n"] = field(kw_only=True)
    mechanism: KaryRandomizedResponse = field(kw_only=True)  # what randomized them
    guarantee: Guarantee = field(kw_only=True)  # what the answers promise
    # Ledger entries that paid for them.
    release_ids: tuple[str, ...] = field(default=(), kw_only=True)
    artifact: str = field(kw_only=True)  # SHA-256 of the released answers

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_other_sizes(self, self.mechanism)
        debiased_choices(self.answers, self.mechanism)
        if len(self.answers) != len(self):
            raise DataError(f"answers must be {len(self)}, one for each ballot.")
        promised = self.guarantee.epsilon
        if not math.isclose(promised, self.mechanism.realized_epsilon, rel_tol=_SLACK):
            raise PrivacyError(
                f"These answers were not randomized for epsilon={never_less(promised)}, which "
                "they promise."
            )


def privatize_choices(
    rankings: Rankings,
    mechanism: KaryRandomizedResponse,
    *,
    ledger: Ledger,
    simulate_seed: int | None = None,
) -> PrivateChoices:
    """Return the best candidate of every ballot, randomized, after recording the spend.

    A fair die decides among candidates that tie as the best; where nothing is listed, all do. A
    repeat of one person on one question is left out.

    Args:
        rankings: Raw ballots in canonical order, each of ``mechanism.categories`` candidates.
        mechanism: The die.
        ledger: Where the spend is recorded before a word is drawn; its unit is ``"label"``.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Raises:
        PrivacyError: These are no raw rankings, they are not in canonical order, or the ledger is
            about another unit.
        DataError: A ballot has another number of candidates.
        UsageError: The mechanism or the ledger is something else, or the seed is negative.
        BudgetExceeded: The spend would pass the ledger's budget; nothing was drawn.
        LedgerMismatch: The ledger belongs to other questions.

    Guarantee:
        ε of the mechanism for one ballot, unit ``"label"``, ``REPLACE_ONE``, δ = 0, trust
        ``"central"``; caveats ``randomized-at-ingestion`` and, where persons are known,
        ``person-group``, and ``named-offered``. Shown by tests/soundness/test_rankings_release.py.

    Source:
        docs/local.md, "Randomized response".
    """
    _refuse_other_arguments(rankings, mechanism, ledger)
    if simulate_seed is not None:
        _validate.integer("simulate_seed", simulate_seed, at_least=0)
    entropy = _random.entropy(simulate_seed)
    promise = _promise(rankings, mechanism, ledger, entropy)
    once = np.flatnonzero(rankings.first_rows())
    used = rankings if len(once) == len(rankings) else rankings.part(once.tolist())
    released = ledger.charge(
        mechanism.event,
        lambda: mechanism.release(_first_choices(used, entropy), entropy=entropy),
        digest=lambda answers: digest_of_answers(used.public_digest, answers),
        promise=promise,
        questions=rankings.questions,
        people=rankings.people(),
    )
    return PrivateChoices(
        **{name: getattr(used, name) for name in Slates.__dataclass_fields__},
        answers=released.value,
        mechanism=mechanism,
        guarantee=promise,
        release_ids=(released.release_id,),
        artifact=released.artifact,
    )


def _refuse_other_arguments(rankings: object, mechanism: object, ledger: object) -> None:
    """Refuse what is no raw rankings in canonical order, and other settings."""
    if not isinstance(rankings, Rankings):
        raise PrivacyError(
            f"privatize_choices takes raw rankings, got {type(rankings).__name__}. Nothing was "
            "released."
        )
    if not isinstance(mechanism, KaryRandomizedResponse) or not isinstance(ledger, Ledger):
        raise UsageError(
            "privatize_choices needs a KaryRandomizedResponse and a Ledger. Nothing was released."
        )
    rankings.refuse_other_order()
    _refuse_other_sizes(rankings, mechanism)


def _refuse_other_sizes(slates: Slates, mechanism: KaryRandomizedResponse) -> None:
    """Refuse ballots whose number of candidates is not that of the die; it is public."""
    wrong = slates.sizes != mechanism.categories
    if wrong.any():
        raise DataError(
            f"Ballot {int(np.argmax(wrong))} has {slates.sizes[np.argmax(wrong)]} candidates, and "
            f"the mechanism is for categories={mechanism.categories}. Nothing was released."
        )


def _promise(
    rankings: Rankings, mechanism: KaryRandomizedResponse, ledger: Ledger, entropy: _random.Entropy
) -> Guarantee:
    """Return what the release promises, with every caveat."""
    promise = mechanism.guarantee(unit=ledger.budget.unit, neighbors=REPLACE_ONE, trust="central")
    caveats = {
        "randomized-at-ingestion": True,
        "person-group": rankings.persons is not None,
        "repeats-not-linked": rankings.persons is None and len(set(rankings.keys)) < len(rankings),
        "named-offered": rankings.named,
        "simulated": entropy.randomness == "simulated",
    }
    named = promise.with_caveats(*(name for name, applies in caveats.items() if applies))
    return replace(named, randomness=entropy.randomness)


def _first_choices(rankings: Rankings, entropy: _random.Entropy) -> Integer[np.ndarray, " n"]:
    """Return the place of the best candidate of every ballot; a fair die decides a tie."""
    # A word is drawn for every candidate, whatever the ballot says.
    k = int(rankings.sizes[0])
    doubled = rankings.doubled_ranks().reshape(-1, k)
    best = doubled == doubled.min(axis=1, keepdims=True)
    words = entropy.words(doubled.size).reshape(-1, k) >> np.uint64(1)
    return np.asarray(np.where(best, words, np.uint64(2**63)).argmin(axis=1))
