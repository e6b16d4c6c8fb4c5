"""From raw judgments to one noised sum of them: the spend is written first, then noise is drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from sordino import _random, _validate
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.label_gaussian import LabelDesign, LabelGaussian, LabelStatistic
from sordino.preferences.features import Features
from sordino.preferences.pairs import Pairs
from sordino.preferences.records import person_key
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privatization.crossing import refuse_unlinked
from sordino.rewards.design import known_feature_bound
from sordino.rewards.label_evidence import LabelEvidence

__all__ = ["ReleasedLabels", "countable_rows", "digest_of_statistic", "release_labels"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReleasedLabels:
    """All that is known of labels after their release: everything done with it is free.

    Attributes:
        evidence: The sum, its noise, and the public vectors it is about.
        guarantee: What the release promises.
        release_ids: Ledger entries that paid.
        artifact: SHA-256 of the released sum.
        features: Turns texts into vectors; None if pairs were made from features.
    """

    evidence: LabelEvidence
    guarantee: Guarantee
    release_ids: tuple[str, ...]
    artifact: str
    features: Features | None

    def __repr__(self) -> str:
        """Return size and promise."""
        return f"ReleasedLabels({self.evidence!r}, {self.guarantee})"


def release_labels(
    pairs: Pairs,
    mechanism: LabelGaussian,
    *,
    ledger: Ledger,
    features: Features | None = None,
    simulate_seed: int | None = None,
) -> ReleasedLabels:
    """Return all labels as one noised sum, after recording the spend.

    A repeat of one person to one question is the same observation and does not count. With
    ``records_per_person`` the rows of a person that count are the first in the order of a digest
    of person and question, which anybody can compute: no label and no coin decides.

    Args:
        pairs: Raw judgments in canonical order; prompts, answers and persons are public.
        mechanism: The noise.
        ledger: Where the spend is recorded before noise is drawn. The unit of its budget is the
            unit of the promise: ``"label"``, or ``"person"`` with ``records_per_person``.
        features: Turns texts into vectors; left out for pairs made by ``from_features``.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Raises:
        PrivacyError: The pairs are privatized already or not in canonical order, or the ledger
            is about another unit.
        DataError: Persons must be known and are not, or features cannot be used.
        UsageError: A setting is out of range.
        BudgetExceeded: The spend would pass the ledger's budget; no noise was drawn.
        LedgerMismatch: The ledger belongs to other prompts and answers.

    Guarantee:
        That of the mechanism, trust ``"central"``, under ``REPLACE_ONE``: unit ``"label"``, or
        unit ``"person"`` for all labels of one person (caveat ``labels-only``). Where persons are
        known and the unit is the label, the caveat is ``person-group``. Labels are read
        once, when the noise is added. Shown by tests/soundness/test_central_label.py.
    """
    _refuse_other_arguments(pairs, mechanism, ledger)
    entropy = _random.entropy(
        None
        if simulate_seed is None
        else _validate.integer("simulate_seed", simulate_seed, at_least=0)
    )
    promise = _promise(pairs, mechanism, ledger, entropy)
    public = pairs.public_digest if promise.unit == "label" else None
    ledger.check_data(None, public)
    ledger.check(mechanism.event, promise=promise)  # before the work on public vectors
    differences = pairs.differences(features)
    design = _prepared(pairs, mechanism, differences)
    most = mechanism.records_per_person
    reservation = ledger.reserve(
        design.event,
        promise=promise,
        public_digest=public,
        details=None if most is None else {"cap": most},
    )
    released = mechanism.release(pairs.labels, design=design, entropy=entropy)
    artifact = digest_of_statistic(pairs.public_digest, released.value)
    reservation.commit(artifact)
    return ReleasedLabels(
        evidence=_evidence(differences, released, design, features),
        guarantee=promise,
        release_ids=(reservation.release_id,),
        artifact=artifact,
        features=features,
    )


def _refuse_other_arguments(pairs: Any, mechanism: Any, ledger: Any) -> None:
    """Refuse what is released already, or not in canonical order, and other settings."""
    if not isinstance(pairs, Pairs):
        raise PrivacyError(
            "release_labels takes raw judgments; these are released already, so they can be used "
            "as they are."
        )
    if not isinstance(mechanism, LabelGaussian) or not isinstance(ledger, Ledger):
        raise UsageError("release_labels needs a LabelGaussian and a Ledger. Nothing was released.")
    pairs.refuse_other_order()
    if mechanism.records_per_person is not None and pairs.persons is None:
        refuse_unlinked(f"a limit of {mechanism.records_per_person} records of one person")


def _promise(
    pairs: Pairs, mechanism: LabelGaussian, ledger: Ledger, entropy: _random.Entropy
) -> Guarantee:
    """Return what the release promises, with every caveat that applies."""
    promise = mechanism.guarantee(
        unit="person" if ledger.budget.unit == "person" else "label",
        neighbors=REPLACE_ONE,
        trust="central",
    )
    caveats = {
        "person-group": promise.unit == "label" and pairs.persons is not None,
        "repeats-not-linked": pairs.persons is None and len(set(pairs.keys)) < len(pairs),
        "simulated": entropy.randomness == "simulated",
    }
    named = promise.with_caveats(*(name for name, applies in caveats.items() if applies))
    return replace(named, randomness=entropy.randomness)


def _prepared(pairs: Pairs, mechanism: LabelGaussian, differences: Any) -> LabelDesign:
    """Return the release made ready; no label is read."""
    limited = mechanism.records_per_person is not None
    return mechanism.prepare(
        differences,
        persons=pairs.persons if limited else None,
        rows=countable_rows(pairs),
    )


def countable_rows(pairs: Pairs) -> Int64[np.ndarray, " k"]:
    """Return the rows that may count, in order of preference; it is a public rule.

    Each question of each person once, in the order of a digest of both: where the rows of one
    person are limited, no file order and no person's habit decides which remain.
    """
    once = np.flatnonzero(pairs.first_rows())
    if pairs.persons is None:
        return once
    return np.array(sorted(once, key=_ranks(pairs.keys, pairs.persons).__getitem__))


def _ranks(keys: Sequence[bytes], persons: Sequence[str]) -> list[bytes]:
    """Return the digest of person and question of every row."""
    both = zip(keys, persons, strict=True)
    return [hashlib.sha256(person_key(person) + key).digest() for key, person in both]


def digest_of_statistic(public_digest: str, statistic: Float[np.ndarray, " d"]) -> str:
    """Return the SHA-256 of a released sum together with what it is about."""
    return hashlib.sha256(
        f"{public_digest}\n".encode() + statistic.astype("<f8").tobytes()
    ).hexdigest()


def _evidence(
    differences: Any, released: LabelStatistic, design: LabelDesign, features: Features | None
) -> LabelEvidence:
    """Return what a fit sees of a release."""
    rows = np.flatnonzero(released.used)
    # Of each row every coordinate is rounded by one step at most: twice a half.
    steps = len(rows) * np.sqrt(released.factor.shape[1])
    return LabelEvidence(
        differences=differences[rows],
        statistic=released.value,
        factor=released.factor,
        feature_bound=known_feature_bound(differences, features),
        rounding=float(steps / design.scale),
    )
