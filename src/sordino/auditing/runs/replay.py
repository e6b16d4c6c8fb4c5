"""A run's certificate, derived anew from its ledger and its files.

``sordino align`` says what its result promises and what paid for it. Here every such sentence is
checked against the ledger, by somebody who trusts neither the run nor whoever passed it on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sordino.auditing.findings import Audit, Finding
from sordino.certificates import claims_more, paid_guarantee
from sordino.errors import LedgerDamaged, LedgerMismatch, PrivacyError, UsageError
from sordino.privacy.data_sets import DataSets
from sordino.privacy.guarantee import Guarantee, float_to_json
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import promise_of
from sordino.privacy.project import ledger_of_run

from .claims import check_mechanism
from .stored import RESULT, REWARD, StoredRun, check_report, check_strays, read_ledger

_UNSUPPORTED = "Without a ledger that can be trusted there is nothing to check this against."
_NO_LEDGER = (
    "There is no ledger {name} here, so nothing can be compared with what was paid for. If it lies "
    "elsewhere, say where: ledger=... (--ledger)."
)
_OTHER_LEDGER = (
    "The {name} in the folder is not this run's ledger: it holds neither the head nor an entry "
    "that the run names. Say where the run's own ledger is: ledger=... (--ledger)."
)
_UNPAID = "Nothing on the ledger is known to have paid, so there is nothing to check this against."
_OF_PAYMENT = ("totals", "claim", "caveats", "mechanism")


def audit_run(folder: str | Path, *, ledger: str | Path | None = None) -> Audit:
    """Return whether a run's claim follows from its ledger and its files; only reads.

    Guarantee:
        Whoever makes the promise or the mechanism look stronger, drops a caveat, or changes the
        reward, the policy's settings, a digest or an entry, without changing everything that
        depends on it, is refuted, and so is a number of a curator's run that nothing paid for.
        What the run measured (accuracies, win rates, charts, counts) is not computed again.
        Somebody who forges the ledger and the run together is not caught: note the head elsewhere
        when a run ends. Shown by tests/soundness/test_run_audit.py and
        tests/soundness/test_central_run_audit.py.
    """
    folder = Path(folder)
    run = StoredRun.read(folder)
    path = ledger_of_run(folder) if ledger is None else Path(ledger)
    heads = None  # the digests of the rows from the certificate's head on
    lacks: tuple[str, ...] = ()
    lost = ("head", "entries", *_OF_PAYMENT, "budget")
    findings = [_check_digests(run)]
    try:
        there = ledger is not None or path.is_file()
        case = _Case.of(run, read_ledger(path, given=ledger is not None)) if there else None
    except LedgerDamaged as error:
        damage = "The ledger is damaged, so nothing supports the claim."
        findings += [
            Finding.judged("chain", wrong=damage, details={"problem": str(error)}),
            *(Finding.skipped(name, _UNSUPPORTED) for name in lost),
        ]
    else:
        # An earlier run may have left a ledger in the folder of a run that spent elsewhere: it says
        # nothing about this one.
        if case is None or (ledger is None and case.is_of_another_run):
            lacks = ((_NO_LEDGER if case is None else _OTHER_LEDGER).format(name=path.name),)
            findings += map(Finding.skipped, ("chain", *lost))
        else:
            findings = list(_supported(case))
            told = (each for each in findings if each.attack == "mechanism")
            lacks = tuple(each.summary for each in told if not each.ran)
            if case.position is not None:
                heads = [row.digest for row in case.ledger.rows[case.position - 1 :]]
    return Audit(
        kind="run",
        subject=folder.resolve().name,
        claim=run.claim,
        findings=(*findings, check_report(folder, run.claim, heads), check_strays(folder)),
        lacks=lacks,
    )


@dataclass(frozen=True, kw_only=True)
class _Case:
    """A run beside its ledger."""

    run: StoredRun  # what the run says
    ledger: Ledger  # the ledger as it is now
    position: int | None  # number of rows up to the certificate's head; None if the ledger lacks it
    then: Ledger  # the ledger as it was at that head; as it is now if it lacks it
    # What the entries behind the reward promise together; None if nothing shows that they paid.
    paid: Guarantee | None
    problem: str  # why nothing shows it

    @classmethod
    def of(cls, run: StoredRun, ledger: Ledger) -> _Case:
        with suppress(LedgerMismatch):
            ledger = ledger.about(run.certificate.data)
        ledger = ledger.counting(run.claim.unit)
        digests = [row.digest for row in ledger.rows]
        head = run.certificate.ledger_head.digest
        position = digests.index(head) + 1 if head in digests else None
        then = ledger if position is None else ledger.with_rows(ledger.rows[:position])
        paid, problem = None, ""
        try:
            paid = paid_guarantee(run.reward, then)
        except (PrivacyError, UsageError) as error:
            problem = str(error) or "Nothing shows that the entries paid."
        return cls(run=run, ledger=ledger, position=position, then=then, paid=paid, problem=problem)

    @property
    def is_of_another_run(self) -> bool:
        """Return whether the ledger knows neither the head nor any entry of the run."""
        named = {*self.run.reward.release_ids, *self.run.certificate.release_ids}
        known = (row.release_id for row in self.ledger.rows)
        return self.position is None and named.isdisjoint(known)


def _supported(case: _Case) -> Iterator[Finding]:
    """Yield what every check of an intact ledger found."""
    certificate, rows = case.run.certificate, case.ledger.rows
    yield Finding.judged(
        "chain", clear=f"Each of the {len(rows)} rows follows from the one before it."
    )
    head = []
    if case.position is None:
        head.append(
            "The ledger does not contain the certificate's head: rows were cut off, an older copy "
            "was put back, or it is the ledger of another run."
        )
    elif case.position != certificate.ledger_head.rows:
        head.append("The certificate counts other rows up to its head than the ledger holds.")
    if not case.ledger.is_about(certificate.data):
        head.append("The certificate is about a data set of another name than the ledger.")
    yield Finding.judged(
        "head",
        wrong=" ".join(head),
        clear="The certificate's head is in the history of this ledger.",
        details={"position": case.position, "rows": len(rows)},
    )
    yield _check_digests(case.run)
    # Whether the named entries are there and paid, once, for these answers.
    named = set(case.run.reward.release_ids)
    entries = [case.problem] if case.paid is None else []
    if set(certificate.release_ids) != named:
        entries.append(f"The certificate and {REWARD} name different entries.")
    draws = Counter(row.release_id for row in rows if row.kind == "commit")
    if any(draws[name] > 1 for name in named):
        entries.append("An entry that paid for one draw was used for several.")
    clear = "The entries are on the ledger and paid for these answers."
    yield Finding.judged("entries", wrong=" ".join(entries), clear=clear)
    if case.paid is None:
        yield from (Finding.skipped(name, _UNPAID) for name in _OF_PAYMENT)
    else:
        yield _check_totals(case, case.paid)
        yield from _check_promises(case.run, case.paid)
        paying = (row for row in case.then.rows if row.release_id in named)
        yield check_mechanism(case.run.stated, case.paid, paying, reward=case.run.reward)
    yield _check_budget(case.ledger)


def _check_digests(run: StoredRun) -> Finding:
    """Return whether the reward and the policy are those that were certified."""
    # The certificate binds what the file says; the SHA-256 in the result binds how it is written.
    other = (
        f"{REWARD}, with the settings of the policy, is not the {run.certificate.artifact} that "
        "was certified."
    )
    rewritten = f"{REWARD} is not byte for byte the file that {RESULT} names."
    return Finding.judged(
        "digests",
        wrong="" if run.digest == run.certificate.digest else other,
        odd="" if run.found_sha256 == run.reward_sha256 else rewritten,
        clear="The artifact is the one that was certified.",
    )


def _check_totals(case: _Case, paid: Guarantee) -> Finding:
    """Return whether the certificate's sizes are at least what the ledger composes to."""
    stated, wrong, odd = case.run.certificate.guarantee, [], ""
    if claims_more(replace(paid, epsilon=stated.epsilon, delta=stated.delta), paid):
        wrong.append("The certificate states less than its entries spent.")
    told, total = case.run.certificate.ledger_total, case.then.total()
    if case.position is not None and told != total:
        where = "the total of the ledger at its head."
        if total and (not told or claims_more(told, total)):
            wrong.append(f"The certificate states less than {where}")
        else:
            odd = f"The certificate states more than {where}"
    if case.position is not None:
        wrong += [
            f"{RESULT} does not state what all releases promise to one {unit}."
            for unit, account in case.then.accounts().items()
            if case.run.spent[unit] != account.to_dict()
        ]
    also = ", and the ledger's total" if case.position else ""
    return Finding.judged(
        "totals",
        wrong=" ".join(wrong),
        odd=odd,
        clear=f"The certificate states at least what its entries spent{also}.",
        details={
            f"{which}_{name}": float_to_json(getattr(guarantee, name))
            for which, guarantee in (("stated", stated), ("composed", paid))
            for name in ("epsilon", "delta")
        },
    )


def _check_promises(run: StoredRun, paid: Guarantee) -> Iterator[Finding]:
    """Yield whether the promise is nowhere stronger than what was paid, and no caveat missing."""
    stated = {
        RESULT: run.claim,
        REWARD: run.reward.guarantee,
        "the certificate": run.certificate.guarantee,
    }
    stronger = [
        name
        for name, claim in stated.items()  # caveats are a check of their own
        if claims_more(replace(claim, caveats=paid.caveats, randomness=paid.randomness), paid)
    ]
    same = run.claim == run.certificate.guarantee
    yield Finding.judged(
        "claim",
        wrong=f"More is promised than was paid for, in: {', '.join(stronger)}." if stronger else "",
        odd="" if same else f"{RESULT} promises something else than its certificate.",
        clear="The promise is the same everywhere, and is no stronger than what was paid for.",
    )
    silent = [
        name
        for name, claim in stated.items()
        if claims_more(replace(paid, caveats=claim.caveats, randomness=claim.randomness), paid)
    ]
    missing = f"A caveat of what was paid for is missing, in: {', '.join(silent)}."
    simulated = "The run is simulated, and says so: for study only, it hides nothing."
    yield Finding.judged(
        "caveats",
        wrong=missing if silent else "",
        odd=simulated if paid.simulated and not silent else "",
        clear="Every caveat of what was paid for is stated.",
        details={"paid": list(paid.caveats), "randomness": paid.randomness},
    )


def _check_budget(ledger: Ledger) -> Finding:
    """Return whether the total was within the budget after every spend, row by row."""
    # A budget that was lowered below what was spent before forbids the next spend, not the last.
    sets = DataSets([], ledger.rosters)
    for row in ledger.rows:
        sets.take(row)
        said = json.loads(row.payload)
        if row.kind == "reserve":
            promise = promise_of(row)
        elif row.kind == "receive" and "persons" in said:
            promise = Guarantee.from_dict(said["promise"], said["caveats"])
        else:
            continue
        if not all(books.fits(promise, said.get("persons")) for books in sets.of(row.data)):
            over = f"Row {row.sequence} of the ledger spends more than its budget allowed."
            return Finding.judged("budget", wrong=over, details={"row": row.sequence})
    return Finding.judged("budget", clear="Every spend was within the budget of its time.")
