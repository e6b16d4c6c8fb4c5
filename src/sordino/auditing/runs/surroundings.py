"""What lies beside the files of a run: its page, and files that hold raw judgments."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from sordino._files import UNPACKING_ERRORS, explained, unpacked
from sordino.auditing.findings import Finding
from sordino.auditing.runs.stored import RESULT, REWARD
from sordino.preferences.labels import LABELS
from sordino.privacy.guarantee import CAVEATS, Guarantee, never_less

__all__ = ["check_report", "check_strays"]

REPORT = "report.html"
_OURS = {RESULT, REWARD, REPORT}
_RAW = ("chosen", "rejected", "label", LABELS)
_KEY = re.compile(rb'"(?:' + "|".join(_RAW).encode() + rb')"\s*:')
_SEPARATORS = re.compile(r"[,\t;|]")
_SQLITE = b"SQLite format 3\0"
_HEAD = 1 << 16
_MOST_FILES = 1000
_MOST_NAMES = 10
_TAG = re.compile(r"<[^<>]*>")  # without "<" inside: each is looked at once
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_EPSILON = re.compile(r"ε = (\d+(?:\.\d+)?)(?![\d.,]| ×)")
_PLAIN = (1e-3, 1e4)  # where numbers are written without powers of ten and separators
_DIGITS = 4  # of a bound on the page


def check_report(folder: Path, claim: Guarantee, heads: Iterable[str] | None) -> Finding:
    """Return whether the page of a run says what the run promises.

    Only what every version of the page says is looked for, so most of what is missing is a
    warning; a page that hides a simulation refutes.

    Args:
        folder: The run.
        claim: What ``result.json`` promises.
        heads: Digests of the ledger from the certificate's on; None if there is none such.
    """
    if not (folder / REPORT).is_file():
        return Finding(attack="report", outcome="skipped", summary=f"There is no {REPORT}.")
    with explained(f"{REPORT} cannot be read"):
        page = (folder / REPORT).read_bytes().decode(errors="replace")
    words = " ".join(html.unescape(_TAG.sub(" ", page)).split())
    if claim.simulated and "SIMULATED" not in words:
        return Finding(
            attack="report",
            outcome="refutes",
            summary="The run is simulated and its page does not say so.",
        )
    wrong = [*_other_words(words, claim), *_other_head(words, heads)]
    return Finding(
        attack="report",
        outcome="warning" if wrong else "clear",
        summary=f"The page does not state {', '.join(wrong)} of this run: it is of another run, "
        "or was edited."
        if wrong
        else "The page states the same promise, and a head of this ledger.",
    )


def _other_words(words: str, claim: Guarantee) -> Iterator[str]:
    """Yield what a page should say of a promise and does not."""
    size = _EPSILON.search(words)  # the first is the promise, later ones are the budget's
    if _PLAIN[0] <= claim.epsilon < _PLAIN[1] and not (
        size and float(size[1]) == float(never_less(claim.epsilon, _DIGITS))
    ):
        yield "the epsilon"
    if claim.change not in words.lower() or claim.neighbors.name not in words:
        yield "the unit"
    if any(" ".join(CAVEATS[name].split()) not in words for name in claim.caveats):
        yield "every caveat"


def _other_head(words: str, heads: Iterable[str] | None) -> Iterator[str]:
    """Yield the head if a page names none that the ledger had since the run."""
    if heads is not None and not set(heads) & set(_DIGEST.findall(words)):
        yield "a ledger head"


def check_strays(folder: Path) -> Finding:
    """Return whether files beside a run look like raw judgments, by their first bytes.

    At most a thousand files, also in folders below, and 64 KiB of each are looked at.
    """
    entries = list(islice(_files(folder), _MOST_FILES + 1))
    found = sorted(str(path.relative_to(folder)) for path in entries[:_MOST_FILES] if _is_raw(path))
    more = len(entries) > _MOST_FILES
    if not found:
        return Finding(
            attack="strays",
            outcome="clear",
            summary=f"No other file {'among the first thousand ' if more else ''}looks like raw "
            "judgments.",
            details={"looked_at": min(len(entries), _MOST_FILES)},
        )
    return Finding(
        attack="strays",
        outcome="warning",
        summary="Raw judgments seem to lie beside the run: whoever gets this folder reads them. "
        "Move them away before you pass it on.",
        details={"files": found[:_MOST_NAMES], "count": len(found)},
    )


def _files(folder: Path) -> Iterator[Path]:
    """Yield every ordinary file that is not one of the run's own, in a fixed order."""
    for here, below, names in os.walk(folder):
        below.sort()
        for name in sorted(names):
            path = Path(here) / name
            if path.is_file() and not (path.parent == folder and name in _OURS):
                yield path


def _is_raw(path: Path) -> bool:
    """Return whether the beginning of a file names fields that only raw judgments have."""
    head = b""
    with suppress(OSError, *UNPACKING_ERRORS), path.open("rb") as file:
        head = unpacked(path, file).read(_HEAD)
    if head.startswith(_SQLITE):
        return False
    return bool(_KEY.search(head)) or not {*_RAW}.isdisjoint(_columns(head))


def _columns(head: bytes) -> list[str]:
    """Return the names in the first line of a table."""
    line = head.partition(b"\n")[0].decode("utf-8-sig", errors="replace")
    return [name.strip().strip('"').lower() for name in _SEPARATORS.split(line)]
