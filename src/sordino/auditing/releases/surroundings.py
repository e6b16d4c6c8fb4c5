"""What lies beside a released file and inside its manifest, and should not.

Nothing here refutes a claim: what is found is bad practice, or what other attacks start from.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from sordino._files import UNPACKING_ERRORS, explained, sha256_of, unpacked
from sordino.auditing.findings import Finding
from sordino.auditing.releases.reading import READ, flat, layout_of, read_question, row_answer
from sordino.auditing.releases.repeats import canonical_answers, stated_losses
from sordino.errors import DataError
from sordino.preferences.files import read_table, separator
from sordino.preferences.pairs import MANIFEST_FORMAT
from sordino.preferences.records import LABELS, canonical
from sordino.privacy.guarantee import (
    Guarantee,
    Trust,
    Unit,
    float_to_json,
    never_less,
    never_more,
)

from .reading import Released, readable

__all__ = ["find_manifest_leaks", "find_neighbors", "find_other_claims"]

_RAW = r"raw|source|input|original"
_TELLING: Mapping[str, str] = {
    "exact flip counts or rates": r"flip.*(count|empirical|observed|actual|realized|ci|total)"
    r"|(count|number|num|n|observed|empirical)_?(of_)?flip|flipped|empirical_rate",
    "a seed": r"seed|salt$|secret|hmac.*key",
    "digests of raw files": rf"({_RAW}).*(sha|md5|digest|hash|checksum|crc)"
    rf"|(sha|md5|digest|hash|checksum|crc).*({_RAW})",
    "where raw files lie": rf"({_RAW}).*(file|path|folder|dir|uri|url|location)",
    "counts of raw records": rf"(split|{_RAW}|\b(train|test|val)).*(count|rows|lines|records|size)"
    rf"|(count|rows|lines|records|size)s?_?(of_)?({_RAW})",
    "samples of answers": r"sample|example|preview|excerpt",
    "time stamps to the second": r"(created|written|generated|modified|updated|finished|started)"
    r"|time|date",
}
_ONLY_LISTS = "samples of answers"
_ONLY_TIMES = "time stamps to the second"
_TIME = re.compile(r"\d\d:\d\d")
_EPOCH = 1e8  # seconds; a smaller number is no time stamp
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.\-]{1,80}")
_MOST_KEYS = 2000
_DEEPEST = 6
_EPSILONS = ("epsilon", "epsilon_float", "eps")
_ROUNDED = 0.01  # relative: people write 0.475 for 1/(1 + e^0.1)

_TERMS: Mapping[str, tuple[str, ...]] = {"unit": get_args(Unit), "trust": get_args(Trust)}

_MOST_FILES = 200
_HEAD = 1 << 20
_FEWEST_TO_COMPARE = 20
_NotOurs: TypeAlias = Literal["raw", "released"]


def find_manifest_leaks(released: Released) -> Finding:
    """Return what the manifest tells beside what a claim needs, by the names of its keys."""
    if released.manifest is None:
        return _skipped("manifest", "There is no manifest.")
    found: defaultdict[str, list[str]] = defaultdict(list)
    for key, value in islice(_entries(released.manifest), _MOST_KEYS):
        for what, pattern in _TELLING.items():
            if re.search(pattern, key.lower()) and _is_telling(what, value):
                found[what].append(key if _PLAIN_KEY.fullmatch(key) else "(a key that is no name)")
                break
    if not found:
        return Finding(
            attack="manifest",
            outcome="clear",
            summary="The manifest holds no counts of flips, no seed, and nothing of raw files.",
        )
    shown = "; ".join(f"{what} ({', '.join(keys[:3])})" for what, keys in found.items())
    return Finding(
        attack="manifest",
        outcome="warning",
        summary=f"The manifest tells more than a claim needs: {shown}.",
        details={"keys": {what: sorted(set(keys))[:10] for what, keys in found.items()}},
    )


def _entries(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of a JSON object: what lies deepest, and every list as it is."""
    if not isinstance(value, Mapping) or depth == _DEEPEST:
        yield path, value
        return
    for name, part in value.items():
        yield from _entries(part, f"{path}.{name}" if path else str(name), depth + 1)


def _is_telling(what: str, value: Any) -> bool:
    """Return whether a value is of the kind that its key suggests; empty ones say nothing."""
    if value is None or isinstance(value, bool) or value in ("", [], {}, "unknown"):
        return False
    if what == _ONLY_LISTS:
        return isinstance(value, list)
    if what == _ONLY_TIMES:
        if isinstance(value, str):
            return bool(_TIME.search(value))
        return isinstance(value, (int, float)) and value > _EPOCH
    return True


def find_other_claims(released: Released, claim: Guarantee, path: Path) -> Finding:
    """Return whether the manifest states another claim than the one that is tested."""
    has = released.manifest
    if has is None:
        return _skipped("claim", "There is no manifest, so the claim is only what was given.")
    states = {name: has[name] for name in _EPSILONS if _is_number(has.get(name))}
    losses = stated_losses(has)
    notes = [
        f"it states {name}={value:g} and epsilon={never_less(claim.epsilon)} was tested"
        for name, value in states.items()
        if not math.isclose(value, claim.epsilon, rel_tol=_ROUNDED)
    ]
    if losses is not None and losses[0] > claim.epsilon * (1 + _ROUNDED):
        notes.append(f"its flip probability costs at least epsilon={never_more(losses[0], 4)}")
    one = released.releases is None  # of a folder's files each has its own
    if one and has.get("format") == MANIFEST_FORMAT and has.get("sha256") != sha256_of(path):
        notes.append("it is of another file (its sha256 differs)")
    if has.get("local_dp_simulated") or "simulated" in _list(has.get("caveats")):
        notes.append("it says that the coins are simulated")
    notes += [
        f"its {name} is {has[name]!r} and {getattr(claim, name)!r} was tested"
        for name, permitted in _TERMS.items()
        if has.get(name) in permitted and has[name] != getattr(claim, name)
    ]
    return Finding(
        attack="claim",
        outcome="warning" if notes else "clear",
        summary=f"The manifest does not fit what was tested: {'; '.join(notes)}."
        if notes
        else "The manifest states nothing else than the claim that was tested.",
        details=states
        | ({} if losses is None else {"label_losses": list(map(float_to_json, losses))}),
    )


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number that a float holds."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max  # exact for whole numbers of any size


def _list(value: Any) -> Sequence[Any]:
    """Return a list, or an empty one where there is none."""
    return value if isinstance(value, list) else []


def find_neighbors(released: Released, path: Path) -> Finding:
    """Whether files beside a released one hold raw labels, or answers to the same questions."""
    # Of at most 200 names in the folder, the first MiB of each table or JSON Lines file is looked
    # at, and nothing is written.
    if released.releases is not None:
        return _skipped("surroundings", "All files of the folder were read as released ones.")
    ours: defaultdict[bytes, set[int]] = defaultdict(set)
    for key, answer in zip(released.keys, canonical_answers(released).tolist(), strict=True):
        ours[key].add(answer)
    files = list(_files(path))
    found: defaultdict[_NotOurs, list[str]] = defaultdict(list)
    for name in files:
        kind = _Seen.of(path.with_name(name), ours).kind
        if kind is not None:
            found[kind].append(readable(name))
    notes = []
    if found["raw"]:
        notes.append(f"raw labels of the same questions lie beside it ({_some(found['raw'])})")
    if found["released"]:
        notes.append(
            f"other answers to the same questions lie beside it ({_some(found['released'])}), and "
            "whoever has several pays the sum of their losses"
        )
    return Finding(
        attack="surroundings",
        outcome="warning" if notes else "clear",
        summary=f"Do not publish this folder: {'; '.join(notes)}."
        if notes
        else "No file beside it holds raw labels of these questions, or other answers to them.",
        details={"looked_at": len(files)} | {kind: sorted(n)[:10] for kind, n in found.items()},
    )


def _some(names: Sequence[str]) -> str:
    """Return up to three names."""
    return ", ".join(sorted(names)[:3]) + (" and others" if len(names) > 3 else "")  # noqa: PLR2004


def _files(path: Path) -> list[str]:
    """Return the names of files in the same folder that can be read, in alphabetical order."""
    folder = path.absolute().parent
    with explained("The folder of the file cannot be read"), os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in islice(entries, _MOST_FILES)
            if entry.name != path.name
            and READ.search(entry.name)
            and entry.is_file(follow_symlinks=False)
        )


@dataclass
class _Seen:
    """What the beginning of another file holds of the same questions."""

    raw: int = 0
    released: int = 0
    differing: int = 0

    @classmethod
    def of(cls, path: Path, ours: Mapping[bytes, set[int]]) -> _Seen:
        """Return what the beginning of a file holds."""
        seen = cls()
        with suppress(DataError):  # the rows before a malformed one count
            for row in _head_rows(path):
                seen.add(row, ours)
        return seen

    def add(self, row: Mapping[str, Any], ours: Mapping[bytes, set[int]]) -> None:
        """Take in one row, if it is of a question that was asked in the released file."""
        texts = read_question(row)
        if texts is None:
            return
        swap, key = canonical(*map(flat, texts))
        if key not in ours:
            return
        if {"label", LABELS} & row.keys() or layout_of(row) == "chosen-rejected":
            self.raw += 1
        else:
            answer = row_answer(row) ^ swap
            self.released += 1
            self.differing += answer not in ours[key]

    @property
    def kind(self) -> _NotOurs | None:
        """Return what kind of file it is, or None if it tells nothing more."""
        # Many answers that are all the same are a copy of the released file.
        if self.raw:
            return "raw"
        copied = self.released >= _FEWEST_TO_COMPARE and not self.differing
        return "released" if self.released and not copied else None


def _head_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows at the beginning of a file; whatever cannot be read is left out."""
    head = b""
    with suppress(OSError, *UNPACKING_ERRORS), path.open("rb") as file:
        head = unpacked(path, file).read(_HEAD)
    lines = head.removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True)
    if len(head) == _HEAD:
        lines = lines[:-1]
    mark = separator(path)
    if mark is not None:
        table = read_table(enumerate(lines, start=1), mark, longest=_HEAD, optional="person")
        yield from (row for _, row in table)
        return
    for line in lines:
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, Mapping):
                yield row


def _skipped(attack: str, summary: str) -> Finding:
    """Return an attack that could not be tried."""
    return Finding(attack=attack, outcome="skipped", summary=summary)
