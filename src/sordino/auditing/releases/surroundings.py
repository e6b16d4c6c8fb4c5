"""What lies beside a released file and inside its manifest, and should not.

Nothing here refutes a claim: what is found is bad practice, or what other attacks start from.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import get_args

from sordino._files import UNPACKING_ERRORS, explained, sha256_of, unpacked
from sordino.auditing.findings import Finding
from sordino.errors import DataError
from sordino.preferences.files import read_table, separator
from sordino.preferences.pairs import MANIFEST_FORMAT
from sordino.preferences.records import LABELS, canonical
from sordino.privacy.guarantee import Guarantee, Trust, Unit, float_to_json, never_less, never_more

from .reading import EPSILONS, READ, Released, flat, layout_of, read_question, readable, row_answer
from .repeats import canonical_answers, stated_losses

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
_ROUNDED = 0.01  # relative: people write 0.475 for 1/(1 + e^0.1)

_TERMS: Mapping[str, tuple[str, ...]] = {"unit": get_args(Unit), "trust": get_args(Trust)}

_MOST_FILES = 200
_HEAD = 1 << 20
_FEWEST_TO_COMPARE = 20


def find_manifest_leaks(released: Released) -> Finding:
    """Return what the manifest tells beside what a claim needs, by the names of its keys."""
    if released.manifest is None:
        return Finding.skipped("manifest", "There is no manifest.")
    found: defaultdict[str, list[str]] = defaultdict(list)
    for key, value in islice(_entries(released.manifest), _MOST_KEYS):
        for what, pattern in _TELLING.items():
            if re.search(pattern, key.lower()) and _is_telling(what, value):
                found[what].append(key if _PLAIN_KEY.fullmatch(key) else "(a key that is no name)")
                break
    shown = "; ".join(f"{what} ({', '.join(keys[:3])})" for what, keys in found.items())
    keys = {what: sorted(set(names))[:10] for what, names in found.items()}
    return Finding.judged(
        "manifest",
        odd=f"The manifest tells more than a claim needs: {shown}." if found else "",
        clear="The manifest holds no counts of flips, no seed, and nothing of raw files.",
        details={"keys": keys} if found else {},
    )


def _entries(value: object, path: str = "", depth: int = 0) -> Iterator[tuple[str, object]]:
    """Yield (dotted key, value) of a JSON object: what lies deepest, and every list as it is."""
    if not isinstance(value, Mapping) or depth == _DEEPEST:
        yield path, value
        return
    for name, part in value.items():
        yield from _entries(part, f"{path}.{name}" if path else str(name), depth + 1)


def _is_telling(what: str, value: object) -> bool:
    """Return whether a value is of the kind that its key suggests; empty ones say nothing."""
    if value is None or isinstance(value, bool) or value in ("", [], {}, "unknown"):
        return False
    if what == _ONLY_LISTS:
        return isinstance(value, list)
    if what == _ONLY_TIMES:
        if isinstance(value, str):
            return bool(_TIME.search(value))
        return isinstance(value, int | float) and value > _EPOCH
    return True


def find_other_claims(released: Released, claim: Guarantee, path: Path) -> Finding:
    """Return whether the manifest states another claim than the one that is tested."""
    has = released.manifest
    if has is None:
        return Finding.skipped(
            "claim", "There is no manifest, so the claim is only what was given."
        )
    states: dict[str, object] = {}
    notes = []
    for name in EPSILONS:
        value = has.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        if abs(value) <= sys.float_info.max:  # exact for whole numbers of any size
            states[name] = value
            if not math.isclose(value, claim.epsilon, rel_tol=_ROUNDED):
                tested = f"epsilon={never_less(claim.epsilon)} was tested"
                notes.append(f"it states {name}={value:g} and {tested}")
    losses = stated_losses(has)
    if losses is not None:
        if losses[0] > claim.epsilon * (1 + _ROUNDED):
            cost = never_more(losses[0], 4)
            notes.append(f"its flip probability costs at least epsilon={cost}")
        states["label_losses"] = list(map(float_to_json, losses))
    one = released.releases is None  # of a folder's files each has its own
    if one and has.get("format") == MANIFEST_FORMAT and has.get("sha256") != sha256_of(path):
        states["another_file"] = True
        notes.append("it is of another file (its sha256 differs)")
    caveats = has.get("caveats")
    simulated = isinstance(caveats, list) and "simulated" in caveats
    if has.get("local_dp_simulated") or simulated:
        notes.append("it says that the coins are simulated")
    notes += [
        f"its {name} is {has[name]!r} and {getattr(claim, name)!r} was tested"
        for name, permitted in _TERMS.items()
        if has.get(name) in permitted and has[name] != getattr(claim, name)
    ]
    return Finding.judged(
        "claim",
        odd=f"The manifest does not fit what was tested: {'; '.join(notes)}." if notes else "",
        clear="The manifest states nothing else than the claim that was tested.",
        details=states,
    )


def find_neighbors(released: Released, path: Path) -> Finding:
    """Whether files beside a released one hold raw labels, or answers to the same questions."""
    # Of at most 200 names in the folder, the first MiB of each table or JSON Lines file is looked
    # at, and nothing is written.
    if released.releases is not None:
        summary = "All files of the folder were read as released ones."
        return Finding.skipped("surroundings", summary)
    ours: defaultdict[bytes, set[int]] = defaultdict(set)
    for key, answer in zip(released.keys, canonical_answers(released).tolist(), strict=True):
        ours[key].add(answer)
    folder = path.absolute().parent
    with explained("The folder of the file cannot be read"), os.scandir(folder) as entries:
        names = sorted(
            entry.name
            for entry in islice(entries, _MOST_FILES)
            if entry.name != path.name
            and READ.search(entry.name)
            and entry.is_file(follow_symlinks=False)
        )
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        seen = _seen(path.with_name(name), ours)
        # Many answers that are all the same are a copy of the released file.
        copied = seen["released"] >= _FEWEST_TO_COMPARE and not seen["differing"]
        if seen["raw"]:
            found["raw"].append(readable(name))
        elif seen["released"] and not copied:
            found["released"].append(readable(name))
    notes = []
    if found["raw"]:
        notes.append(f"raw labels of the same questions lie beside it ({_some(found['raw'])})")
    if found["released"]:
        notes.append(
            f"other answers to the same questions lie beside it ({_some(found['released'])}), and "
            "whoever has several pays the sum of their losses"
        )
    return Finding.judged(
        "surroundings",
        odd=f"Do not publish this folder: {'; '.join(notes)}." if notes else "",
        clear="No file beside it holds raw labels of these questions, or other answers to them.",
        details={"looked_at": len(names)} | {kind: sorted(n)[:10] for kind, n in found.items()},
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)[:3]) + (" and others" if len(names) > 3 else "")  # noqa: PLR2004


def _seen(path: Path, ours: Mapping[bytes, set[int]]) -> Counter[str]:
    """Return how many rows at the beginning of a file are of questions that were asked in ours."""
    seen: Counter[str] = Counter()
    with suppress(DataError):  # the rows before a malformed one count
        for row in _head_rows(path):
            texts = read_question(row)
            if texts is None:
                continue
            swap, key = canonical(*map(flat, texts))
            if key not in ours:
                continue
            if {"label", LABELS} & row.keys() or layout_of(row) == "chosen-rejected":
                seen["raw"] += 1
            else:
                differs = row_answer(row) ^ swap not in ours[key]
                seen["released"] += 1
                seen["differing"] += differs
    return seen


def _head_rows(path: Path) -> Iterator[Mapping[str, object]]:
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
