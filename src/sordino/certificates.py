"""Ties an artifact, by digest, to the ledger entries that paid for it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino import _validate
from sordino._markup import card
from sordino._version import __version__
from sordino._withholding import Withholding
from sordino.errors import PrivacyError
from sordino.policies.gibbs import CandidatePolicy, ReleasedReward
from sordino.privacy import accounting, exports
from sordino.privacy.books import EVERY
from sordino.privacy.guarantee import Guarantee, anchor, merge, promise_rows, size
from sordino.privacy.ledger import Head, Ledger, Paid
from sordino.privacy.ledger_chain import Row, digest_of_json, event_of, promise_of

__all__ = [
    "Certificate",
    "certify",
    "certify_paid",
    "certify_releases",
    "claims_more",
    "ledger_of",
    "paid_guarantee",
]

CERTIFICATE_FORMAT = "sordino.certificate"
CERTIFICATE_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What one released artifact promises, and which entries of which ledger paid for it.

    Attributes:
        artifact: What it is: ``"reward"``, ``"policy"`` or ``"leaderboard"``.
        digest: SHA-256 of the artifact's canonical JSON.
        guarantee: The promise, recomputed from the ledger.
        data: Name of the data set on the ledger.
        release_ids: The entries that paid.
        ledger_head: Digest and number of rows of the ledger at that moment.
        ledger_total: The promise of everything on that ledger together; None if it spent nothing.
    """

    artifact: str
    digest: str
    guarantee: Guarantee
    data: str
    release_ids: tuple[str, ...]
    ledger_head: Head
    ledger_total: Guarantee | None

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON holds it."""
        total = self.ledger_total
        return {
            "format": CERTIFICATE_FORMAT,
            "version": CERTIFICATE_VERSION,
            "artifact": self.artifact,
            "digest": self.digest,
            "guarantee": self.guarantee.to_dict(),
            "caveats": list(self.guarantee.caveats),
            "data": self.data,
            "release_ids": list(self.release_ids),
            "ledger": {
                "head": self.ledger_head.digest,
                "rows": self.ledger_head.rows,
                "total": None
                if total is None
                else total.to_dict() | {"caveats": list(total.caveats)},
            },
            "sordino": __version__,
        }

    @property
    def anchored(self) -> str:
        """Return in one sentence what paid, and how the ledger was then."""
        head = self.ledger_head
        return (
            f"Certificate: {', '.join(self.release_ids)} on the ledger of {self.data!r} paid; its "
            f"head was {head.digest} after {head.rows} rows."
        )

    def export(self, form: exports.Form) -> str:
        """Return the promise in a standard form, with the artifact's digest and the anchor.

        Args:
            form: As in :func:`sordino.privacy.exports.export`, which says what may be refused.
        """
        told = (
            f"The SHA-256 of this {self.artifact} is {self.digest}.",
            f"What paid for it is on the ledger of {self.data!r}: {', '.join(self.release_ids)}.",
            f"The ledger's head was {self.ledger_head.digest} after {self.ledger_head.rows} rows.",
            f"Releases there that cover one {self.guarantee.unit} promise {self.ledger_total}.",
        )
        return exports.export(self.guarantee, form, title=f"A private {self.artifact}", said=told)

    def __str__(self) -> str:
        return f"{self.artifact}: {self.guarantee} (ledger head {self.ledger_head.digest[:12]}…)"

    def _repr_html_(self) -> str:
        """Return artifact, promise and anchor as a card, for notebooks."""
        total = self.ledger_total
        rows: list[tuple[str, object]] = [
            ("artifact", f"{self.artifact} {self.digest[:12]}…"),
            ("data", self.data),
            *promise_rows(self.guarantee),
            ("ledger total", size(total)),
            ("ledger head", anchor(self.ledger_head)),
        ]
        simulated = self.guarantee.simulated or (total is not None and total.simulated)
        return card("Certificate", rows, simulated=simulated)


@_validate.typed
def certify(
    artifact: ReleasedReward | CandidatePolicy, ledger: Ledger, *, for_study: bool = False
) -> Certificate:
    """Return what an artifact promises, checked against the ledger that paid for it.

    Args:
        artifact: A reward, or a policy made from one.
        ledger: The ledger that its data was released on; only read.
        for_study: Accept simulated randomness; the certificate still says so.

    Raises:
        PrivacyError: It is no released reward or policy; an entry is missing, was never
            committed, or paid for other data; the artifact claims more than was paid for; or
            randomness was simulated.

    Guarantee:
        The certificate's ε and δ are composed anew from the entries, so they hold for every
        reward that :func:`sordino.fit_reward` made of the answers those entries paid for. They
        do not prove that the weights in the artifact were made so: whoever writes an artifact by
        hand can write any weights. Shown by tests/soundness/test_certificates.py.
    """
    kind = type(artifact).__name__
    if isinstance(artifact, Withholding):
        raise PrivacyError(
            f"A certificate is for what was released, and {kind} stays with its curator, so "
            "nothing was certified. What was drawn from a withheld estimate, the ledger promises: "
            "read ledger.total(). An audit of the data is no promise and is not published."
        )
    if not isinstance(artifact, CandidatePolicy | ReleasedReward):
        raise PrivacyError(
            f"A certificate is for a RewardModel from fit_reward or a policy made from one, got "
            f"{kind}. Nothing was certified."
        )
    policy = isinstance(artifact, CandidatePolicy)
    reward = artifact.reward if isinstance(artifact, CandidatePolicy) else artifact
    kind, digest = "policy" if policy else "reward", digest_of_json(artifact.to_dict())
    return certify_paid(reward, ledger, kind=kind, digest=digest, for_study=for_study)


def certify_paid(
    paid: Paid, ledger: Ledger, *, kind: str, digest: str, for_study: bool = False
) -> Certificate:
    """Return the certificate of whatever says which entries paid for it."""
    guarantee = paid_guarantee(paid, ledger)
    if guarantee.simulated and not for_study:
        raise PrivacyError(
            "Randomness was simulated: whoever knows the seed can undo it, so there is nothing to "
            "certify. Run again without a seed, or pass for_study=True."
        )
    if claims_more(paid.guarantee, guarantee):
        raise PrivacyError(
            f"The artifact claims {paid.guarantee}, but its entries promise only {guarantee}."
        )
    return Certificate(
        artifact=kind,
        digest=digest,
        guarantee=guarantee,
        data=ledger.data,
        release_ids=paid.release_ids,
        ledger_head=ledger.head,
        ledger_total=ledger.counting(guarantee.unit).total(),
    )


def claims_more(claimed: Guarantee, paid: Guarantee) -> bool:
    """Return whether a claim is stronger than what was paid for, or about something else."""
    return (
        (claimed.unit, claimed.neighbors) != (paid.unit, paid.neighbors)
        or claimed.epsilon < paid.epsilon
        or claimed.delta < paid.delta
        or (claimed.trust == "local" and paid.trust == "central")
        or (paid.simulated and not claimed.simulated)
        or not set(paid.caveats) <= set(claimed.caveats)
    )


def certify_releases(
    releases: Sequence[Paid], path: Path, *, kind: str, digest: str, for_study: bool = False
) -> Certificate:
    """Return the certificate of the last of some releases, all of which a ledger paid for."""
    for each in releases:  # the last one speaks for all of them
        terms = {"kind": kind, "digest": digest}
        certificate = certify_paid(each, ledger_of(each, path), **terms, for_study=for_study)
    return certificate


def ledger_of(paid: Paid, ledger: Path | Ledger) -> Ledger:
    """Return a ledger for reading, about the data set that was paid for."""
    whole = ledger if isinstance(ledger, Ledger) else Ledger.read(ledger)
    names = {row.data for row in whole.rows if row.release_id in paid.release_ids}
    return whole.about(*names) if len(names) == 1 else whole


def paid_guarantee(reward: Paid, ledger: Ledger) -> Guarantee:
    """Return what the entries behind a reward promise together, composed anew."""
    wanted = set(reward.release_ids)
    rows = [row for row in ledger.rows if row.release_id in wanted]
    entries = [row for row in rows if row.kind in {"reserve", "receive"}]
    if not wanted or {row.release_id for row in entries} != wanted:
        raise PrivacyError(
            "The ledger lacks an entry that this artifact says paid for it, so nothing can be "
            "certified. Use the ledger that the data was released on (--ledger DB)."
        )
    told = [row for row in rows if row.kind in {"commit", "receive", "repeat"}]
    if reward.artifact not in {json.loads(row.payload)["artifact"] for row in told}:
        raise PrivacyError(
            "The entries on the ledger paid for other answers than those behind this artifact, or "
            "were never committed, so nothing can be certified."
        )
    spent = [row for row in entries if row.kind == "reserve"]
    received = [promise_of(row) for row in entries if row.kind == "receive"]
    apart = getattr(reward, "counted_apart", False) or any(
        row.scope != accounting.EVERYTHING for row in spent
    )
    if apart and len(spent) == len(entries) > 1:
        return _largest(reward, ledger)
    budget = ledger.budgets.get(reward.guarantee.unit, ledger.budget)
    relation, events, delta = budget.neighbors, _together(spent), 0.0
    paid = accounting.composed_epsilon(events, neighbors=relation, delta=delta)
    if math.isinf(paid):  # pure entries need no δ, whatever the budget allows
        delta = reward.guarantee.delta or budget.delta
        paid = accounting.composed_epsilon(events, neighbors=relation, delta=delta)
    promises = received + [promise_of(row) for row in spent]
    return merge(
        promises,
        epsilon=paid + sum(promise.epsilon for promise in received),
        delta=(delta if spent else 0.0) + sum(promise.delta for promise in received),
    )


def _largest(board: Paid, ledger: Ledger) -> Guarantee:
    """Return what updates promise together to whoever is in most of them."""
    # They are counted as the ledger counts: who took part in each update of a board is known, new
    # votes are of a data set of their own, and batches of a policy share nobody. Rows about budgets
    # and data sets stay, of others those that paid.
    others = {"reserve", "commit", "repeat", "receive"}
    wanted = {*board.release_ids}
    rows = [row for row in ledger.rows if row.kind not in others or row.release_id in wanted]
    unit, delta = board.guarantee.unit, board.guarantee.delta
    found = ledger.with_rows(rows, EVERY, unit).total(delta=delta)
    assert found is not None  # noqa: S101 - for the type checker: there are entries
    return found


def _together(rows: Iterable[Row]) -> Counter[Any]:
    """Return what entries did together to one unit."""
    # The answer of one person to one question is drawn once and stored, so under unit `"label"`
    # entries that were linked by person ids answer different labels, and only the largest counts.
    events: Counter[Any] = Counter()
    linked: Counter[Any] = Counter()
    for row in rows:
        if row.unit == "label" and "largest_person_labels" in row.payload:
            linked[event_of(row)] = max(linked[event_of(row)], row.count)
        else:
            events[event_of(row)] += row.count
    return events + linked
