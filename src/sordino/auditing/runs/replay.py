"""A run's certificate, derived anew from its ledger and its files.

``sordino align`` says what its result promises and what paid for it. Here every such sentence is
checked against the ledger, by somebody who trusts neither the run nor whoever passed it on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sordino.auditing.findings import Audit, Finding
from sordino.auditing.runs.stored import RESULT, REWARD, StoredRun, read_ledger
from sordino.certificates import claims_more, paid_guarantee
from sordino.errors import LedgerDamaged, PrivacyError, UsageError
from sordino.privacy.guarantee import Guarantee, float_to_json
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import Row
from sordino.privacy.spend import Books

from .claims import check_mechanism
from .stored import check_report, check_strays

__all__ = ["audit_run"]

_LEDGER = "spend.db"
_UNSUPPORTED = "Without a ledger that can be trusted there is nothing to check this against."
_UNPAID = "Nothing on the ledger is known to have paid, so there is nothing to check this against."
_CERTIFICATE = "the certificate"


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
    path = folder / _LEDGER if ledger is None else Path(ledger)
    heads = None
    try:
        case = _Case.of(run, read_ledger(path, given=ledger is not None))
    except LedgerDamaged as error:
        findings = tuple(_unsupported(run, str(error)))
    else:
        if ledger is None:
            _refuse_another_ledger(case)
        findings, heads = tuple(_supported(case)), _heads(case)
    return Audit(
        kind="run",
        subject=folder.resolve().name,
        claim=run.claim,
        findings=(*findings, check_report(folder, run.claim, heads), check_strays(folder)),
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
        """Return a run beside its ledger, with what was paid composed anew."""
        digests = [row.digest for row in ledger.rows]
        head = run.certificate.ledger_head.digest
        position = digests.index(head) + 1 if head in digests else None
        then = ledger if position is None else Ledger(ledger.path, ledger.rows[:position])
        paid, problem = None, ""
        try:
            paid = paid_guarantee(run.reward, then)
        except (PrivacyError, UsageError) as error:
            problem = str(error)
        return cls(run=run, ledger=ledger, position=position, then=then, paid=paid, problem=problem)

    @property
    def entries(self) -> Iterator[Row]:
        """Yield every row about the releases that the reward names."""
        named = set(self.run.reward.release_ids)
        return (row for row in self.then.rows if row.release_id in named)

    @property
    def stated(self) -> dict[str, Guarantee]:
        """Return the promise wherever it is stated."""
        return {
            RESULT: self.run.claim,
            REWARD: self.run.reward.guarantee,
            _CERTIFICATE: self.run.certificate.guarantee,
        }


def _refuse_another_ledger(case: _Case) -> None:
    """Refuse a ledger that nobody named and that knows neither head nor entry of the run."""
    # An earlier run may have left it in the folder of a run that spent on a ledger elsewhere: it
    # says nothing about this one.
    named = {*case.run.reward.release_ids, *case.run.certificate.release_ids}
    if case.position is None and named.isdisjoint(row.release_id for row in case.ledger.rows):
        raise UsageError(
            f"The {case.ledger.path.name} in the folder is not this run's ledger: it holds neither "
            "the head nor an entry that the run names. Nothing was audited. Say where the run's "
            "own ledger is: ledger=... (--ledger)."
        )


def _supported(case: _Case) -> Iterator[Finding]:
    """Yield what every check of an intact ledger found."""
    yield _clear(
        "chain", f"Each of the {len(case.ledger.rows)} rows follows from the one before it."
    )
    yield _check_head(case)
    yield _check_digests(case.run)
    yield _check_entries(case)
    if case.paid is None:
        unpaid = ("totals", "claim", "caveats", "mechanism")
        yield from (_skipped(name, _UNPAID) for name in unpaid)
    else:
        yield _check_totals(case, case.paid)
        yield _check_claim(case, case.paid)
        yield _check_caveats(case, case.paid)
        told, reward = case.run.stated, case.run.reward
        yield check_mechanism(told, case.paid, case.entries, reward=reward)
    yield _check_budget(case.ledger)


def _unsupported(run: StoredRun, damage: str) -> Iterator[Finding]:
    """Yield what can be said of a run whose ledger is damaged."""
    yield Finding(
        attack="chain",
        outcome="refutes",
        summary="The ledger is damaged, so nothing supports the claim.",
        details={"problem": damage},
    )
    yield _skipped("head", _UNSUPPORTED)
    yield _check_digests(run)
    for name in ("entries", "totals", "claim", "caveats", "mechanism", "budget"):
        yield _skipped(name, _UNSUPPORTED)


def _heads(case: _Case) -> list[str] | None:
    """Return the digests of the rows from the certificate's head on."""
    if case.position is None:
        return None
    return [row.digest for row in case.ledger.rows[case.position - 1 :]]


def _clear(attack: str, summary: str, **details: Any) -> Finding:
    """Return that a check found nothing."""
    return Finding(attack=attack, outcome="clear", summary=summary, details=details)


def _skipped(attack: str, summary: str) -> Finding:
    """Return that a check could not be made."""
    return Finding(attack=attack, outcome="skipped", summary=summary)


def _judged(
    attack: str,
    wrong: Iterable[str],
    odd: Iterable[str] = (),
    *,
    clear: str,
    **details: Any,
) -> Finding:
    """Return a finding that refutes if anything is wrong, and warns if anything is odd."""
    wrong, odd = list(wrong), list(odd)
    if not wrong and not odd:
        return _clear(attack, clear, **details)
    return Finding(
        attack=attack,
        outcome="refutes" if wrong else "warning",
        summary=" ".join([*wrong, *odd]),
        details=details,
    )


def _check_head(case: _Case) -> Finding:
    """Return whether the certificate's head lies in the history of this ledger."""
    head, wrong = case.run.certificate.ledger_head, []
    if case.position is None:
        wrong.append(
            "The ledger does not contain the certificate's head: rows were cut off, an older copy "
            "was put back, or it is the ledger of another run."
        )
    elif case.position != head.rows:
        wrong.append("The certificate counts other rows up to its head than the ledger holds.")
    if case.run.certificate.data != case.ledger.data:
        wrong.append("The certificate is about a data set of another name than the ledger.")
    return _judged(
        "head",
        wrong,
        clear="The certificate's head is in the history of this ledger.",
        position=case.position,
        rows=len(case.ledger.rows),
    )


def _check_digests(run: StoredRun) -> Finding:
    """Return whether the reward and the policy are those that were certified."""
    # The certificate binds what the file says; the SHA-256 in the result binds how it is written.
    wrong, odd = [], []
    if run.digest != run.certificate.digest:
        wrong.append(
            f"{REWARD}, with the settings of the policy, is not the {run.certificate.artifact} "
            "that was certified."
        )
    if run.found_sha256 != run.reward_sha256:
        odd.append(f"{REWARD} is not byte for byte the file that {RESULT} names.")
    return _judged("digests", wrong, odd, clear="The artifact is the one that was certified.")


def _check_entries(case: _Case) -> Finding:
    """Return whether the named entries are there and paid, once, for these answers."""
    named = set(case.run.reward.release_ids)
    wrong = [case.problem] if case.paid is None else []
    if set(case.run.certificate.release_ids) != named:
        wrong.append(f"The certificate and {REWARD} name different entries.")
    draws = Counter(row.release_id for row in case.ledger.rows if row.kind == "commit")
    if any(draws[name] > 1 for name in named):
        wrong.append("An entry that paid for one draw was used for several.")
    return _judged(
        "entries", wrong, clear="The entries are on the ledger and paid for these answers."
    )


def _check_totals(case: _Case, paid: Guarantee) -> Finding:
    """Return whether the certificate's sizes are at least what the ledger composes to."""
    stated, wrong = case.run.certificate.guarantee, []
    if claims_more(replace(paid, epsilon=stated.epsilon, delta=stated.delta), paid):
        wrong.append("The certificate states less than its entries spent.")
    lower, odd = _compare_ledger_total(case)
    return _judged(
        "totals",
        wrong + lower,
        odd,
        clear="The certificate states at least what its entries spent, and the ledger's total."
        if case.position
        else "The certificate states at least what its entries spent.",
        **{f"stated_{name}": value for name, value in _sizes(stated).items()},
        **{f"composed_{name}": value for name, value in _sizes(paid).items()},
    )


def _compare_ledger_total(case: _Case) -> tuple[list[str], list[str]]:
    """Return what is wrong and what is odd about the ledger's total in the certificate."""
    stated, total = case.run.certificate.ledger_total, case.then.total()
    if case.position is None or stated == total:
        return [], []
    where = "the total of the ledger at its head."
    less = total and (not stated or claims_more(stated, total))
    if less:
        return [f"The certificate states less than {where}"], []
    return [], [f"The certificate states more than {where}"]


def _sizes(guarantee: Guarantee) -> dict[str, float | str]:
    """Return ε and δ as JSON holds them."""
    return {
        "epsilon": float_to_json(guarantee.epsilon),
        "delta": float_to_json(guarantee.delta),
    }


def _check_claim(case: _Case, paid: Guarantee) -> Finding:
    """Return whether the promise, wherever it is stated, is no stronger than what was paid for."""
    stronger = [
        name
        for name, claim in case.stated.items()  # caveats are a check of their own
        if claims_more(replace(claim, caveats=paid.caveats, randomness=paid.randomness), paid)
    ]
    wrong = [f"More is promised than was paid for, in: {', '.join(stronger)}."] if stronger else []
    same = case.run.claim == case.run.certificate.guarantee
    return _judged(
        "claim",
        wrong,
        [] if same else [f"{RESULT} promises something else than its certificate."],
        clear="The promise is the same everywhere, and is no stronger than what was paid for.",
    )


def _check_caveats(case: _Case, paid: Guarantee) -> Finding:
    """Return whether every caveat of what was paid for is stated wherever the promise is."""
    silent = [
        name
        for name, claim in case.stated.items()
        if claims_more(replace(paid, caveats=claim.caveats, randomness=claim.randomness), paid)
    ]
    wrong = [f"A caveat of what was paid for is missing, in: {', '.join(silent)}."]
    simulated = "The run is simulated, and says so: for study only, it hides nothing."
    return _judged(
        "caveats",
        wrong if silent else [],
        [simulated] if paid.simulated and not silent else [],
        clear="Every caveat of what was paid for is stated.",
        paid=list(paid.caveats),
        randomness=paid.randomness,
    )


def _check_budget(ledger: Ledger) -> Finding:
    """Return whether the total was within the budget after every spend, row by row."""
    # A budget that was lowered below what was spent before forbids the next spend, not the last.
    first, *rows = ledger.rows
    books = Books.of(first)
    for row in rows:
        books.take(row)
        if row.kind == "reserve" and not books.spend.fits(books.budget):
            over = f"Row {row.sequence} of the ledger spends more than its budget allowed."
            return _judged("budget", [over], clear="", row=row.sequence)
    return _clear("budget", "Every spend was within the budget of its time.")
