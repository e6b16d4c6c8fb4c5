"""The stored answers beside a ledger, used by one process at a time, and only where both agree.

An answer that is stored is free and an answer that is not is drawn and paid for. So a memo that
lost answers would draw them again, and answers of another ledger would be free here although
nobody paid for them here. Both are refused.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from sordino import _random
from sordino._files import lock_taken
from sordino.errors import FileSystemError, PrivacyError
from sordino.preferences.memo import AnswerMemo
from sordino.privacy.chain import Row
from sordino.privacy.ledger import Ledger, Reservation

__all__ = [
    "agreeing_memo",
    "linked_entries",
    "memo_of_parts",
    "nothing_stored",
    "one_memo",
    "record_release",
    "refuse_disagreement",
    "refuse_loss",
    "rows_on_disk",
    "shown_entries",
    "turn",
]

_SHOWN = {"commit", "repeat"}

_PATIENCE = 60.0  # seconds, as long as SQLite waits
_PAUSE = 0.05


@contextmanager
def agreeing_memo(
    ledger: Ledger, *, settings: Mapping[str, str], dry_run: bool
) -> Iterator[AnswerMemo]:
    """Yield the memo beside a ledger; nobody else stores answers in it until the block ends.

    Args:
        ledger: Whose entries paid for the stored answers.
        settings: What answers are drawn with; they cannot be mixed.
        dry_run: Only look: nothing on disk is touched, and nobody is waited for.

    Raises:
        PrivacyError: The memo is gone or older than the ledger, or holds answers that were paid
            for elsewhere, or were drawn with other settings.
        FileSystemError: It cannot be read or written, or another process does not let go of it.
    """
    path = one_memo(ledger)
    with nullcontext() if dry_run else turn(path.with_suffix(".lock")):
        if memo_of_parts(ledger).exists():
            raise PrivacyError(
                f"The answers that people gave before are in {memo_of_parts(ledger).name}, where "
                "judgments in many files are answered. Nothing was released. Answer these in the "
                "same way (privatize_shards, --engine), or use another ledger."
            )
        refuse_loss(path, rows_on_disk(ledger))
        with AnswerMemo.open(path, settings=dict(settings), dry_run=dry_run) as memo:
            refuse_disagreement(path, memo.payers(), rows_on_disk(ledger))
            yield memo


def one_memo(ledger: Ledger) -> Path:
    """Return where the answers of one person after the other are stored beside a ledger."""
    return ledger.path.resolve().with_suffix(".memo.db")


def memo_of_parts(ledger: Ledger) -> Path:
    """Return the folder of stored answers that many machines write, by person."""
    return ledger.path.resolve().with_suffix(".memo")


def refuse_loss(path: Path, rows: Iterable[Row]) -> None:
    """Refuse to go on without the answers that entries of a ledger paid for.

    Raises:
        PrivacyError: There are such entries, and no memo.
    """
    if not path.exists() and linked_entries(rows):
        raise PrivacyError(
            f"{path.name} is gone: it held the answers that people gave before, and without it "
            "they would be answered again. Nothing was released. Restore it, or start a new "
            "ledger, whose total is apart from this one."
        )


def rows_on_disk(ledger: Ledger) -> Iterable[Row]:
    """Return the rows as they are on disk now, what other processes wrote included."""
    return Ledger.read(ledger.path).rows if ledger.path.exists() else ledger.rows


def linked_entries(rows: Iterable[Row]) -> set[str]:
    """Return the entries whose answers are stored, by person and question."""
    return {
        row.release_id
        for row in rows
        if row.kind == "reserve"
        and "largest_person_labels" in json.loads(row.payload).get("details", {})
    }


def shown_entries(rows: Iterable[Row]) -> set[str]:
    """Return the entries of which answers may have been seen.

    An entry whose run died before its commit is among them as soon as a later run released what
    it had stored.
    """
    return {row.release_id for row in rows if row.kind in _SHOWN}


def record_release(
    ledger: Ledger,
    reservation: Reservation | None,
    payers: Iterable[str],
    artifact: str,
    drawn: Callable[[str], Iterable[bytes]],
) -> None:
    """Write on the ledger what is about to be released, and which entries paid for it.

    Every entry whose answers are seen then has an outcome, so that its answers are missed if they
    are lost: also one of a run that died, whose stored answers this release is partly made of.

    Args:
        ledger: The ledger.
        reservation: What paid for the fresh answers; None if there are none.
        payers: Entries that paid for the answers.
        artifact: SHA-256 of what is released.
        drawn: What is stored of an entry.

    Raises:
        PrivacyError: What is stored of an entry is not what it drew.
    """
    own = None if reservation is None else reservation.release_id
    shown = set() if reservation is None else shown_entries(rows_on_disk(ledger))
    for payer in sorted(set(payers) - {own}):
        if payer in shown:
            ledger.check_drawn(payer, drawn(payer))
        else:
            ledger.repeat(payer, artifact, drawn=drawn(payer))
    if reservation is not None:
        reservation.commit(artifact, drawn=drawn(reservation.release_id))


def nothing_stored(_: str) -> Iterable[bytes]:
    """Return what is stored of an entry whose answers are to nobody in particular."""
    return ()


def refuse_disagreement(path: Path, payers: set[str], rows: Iterable[Row]) -> None:
    """Refuse answers that no entry paid for, and entries whose answers are not there.

    A reservation of which nothing was shown may have been interrupted before its first answer.

    Args:
        path: The memo, for messages.
        payers: Entries that paid for what is stored.
        rows: Of the ledger.

    Raises:
        PrivacyError: Memo and ledger do not belong together.
    """
    rows = list(rows)
    if not payers <= {row.release_id for row in rows}:
        raise PrivacyError(
            f"{path.name} holds answers that no entry of this ledger paid for: it is the memo of "
            "another ledger, or the ledger is an older copy. Nothing was released. Put the two "
            "back together that belong together."
        )
    if not linked_entries(rows) & shown_entries(rows) <= payers:
        raise PrivacyError(
            f"{path.name} lacks answers that this ledger paid for: it is an older copy or of "
            "another ledger, and people would be answered again. Nothing was released. Restore "
            "the newest one, or start a new ledger, whose total is apart from this one."
        )


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Wait until no other process is between its survey and its last stored answer.

    The operating system ends a turn with the process, however it dies.

    Raises:
        FileSystemError: Another process does not let go of it, or it cannot be made.
    """
    started = _random.clock()
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        reason = error.strerror
        handle = -1
    if handle < 0:
        raise FileSystemError(f"{path.name} cannot be made ({reason}). Nothing was released.")
    try:
        while not lock_taken(handle):
            if _random.clock() - started > _PATIENCE:
                raise FileSystemError(
                    f"{path.name}: another process is answering with this ledger. Nothing was "
                    "released. Try again when it is done."
                )
            threading.Event().wait(_PAUSE)
        yield
    finally:
        os.close(handle)
