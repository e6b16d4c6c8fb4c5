"""The files of a run, read as they are: nothing in the folder changes, not even for a moment.

And what lies beside them: its page, and files that hold raw judgments.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from sordino import _validate
from sordino._files import UNPACKING_ERRORS, explained, read_json, sha256_of, unpacked
from sordino.auditing.findings import Finding
from sordino.certificates import CERTIFICATE_FORMAT, CERTIFICATE_VERSION, Certificate, digest_of
from sordino.engines.exchange import passing_folder
from sordino.errors import DataError, FileSystemError, LedgerDamaged, LedgerError, UsageError
from sordino.policies.gibbs import gibbs_policy
from sordino.policies.pessimism import ConfidencePolicy
from sordino.preferences.records import LABELS
from sordino.privacy import ledger_chain
from sordino.privacy.guarantee import CAVEATS, Guarantee, Unit, never_less
from sordino.privacy.ledger import Head, Ledger
from sordino.privacy.project import LEDGER
from sordino.rewards.model import REWARD_FORMAT, REWARD_VERSION, RewardModel

from .claims import StatedMechanism, text_of

RESULT, REWARD = "result.json", "reward.json"
RESULT_FORMAT = "sordino.result"
RESULT_VERSION = 1
_PROBLEM = "This run cannot be used"
_DRAWS = {"sordino.bandit", "sordino.intrinsic"}
_ARTIFACTS = ("reward", "policy")
_LOOKS = 100  # at a ledger that does not stand still
_SQLITE = b"SQLite format 3\0"
_NOT_OURS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    UsageError,
    ValueError,
)


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """What a run says of itself, field by field; whether it is true is another question."""

    claim: Guarantee  # the promise in `result.json`
    certificate: Certificate  # the certificate in `result.json`
    reward: RewardModel  # the reward in `reward.json`
    reward_sha256: str  # SHA-256 of `reward.json`, as `result.json` states it
    found_sha256: str  # SHA-256 of `reward.json` as it lies on disk
    digest: str  # SHA-256 of the artifact, made anew of `reward.json` and the policy's settings
    stated: StatedMechanism  # the mechanism and the numbers, as `result.json` states them
    spent: Mapping[Unit, Mapping[str, Any]]  # what all releases are said to promise a unit

    @classmethod
    def read(cls, folder: Path) -> StoredRun:
        """Return what ``result.json`` and ``reward.json`` in a folder say."""
        result = read_result(folder)
        values = read_json(
            folder / REWARD, kind=REWARD_FORMAT, version=REWARD_VERSION, problem=_PROBLEM
        )
        reward = RewardModel.load(folder / REWARD)
        return cls.of(result, values, reward, sha256_of(folder / REWARD))

    @classmethod
    def of(
        cls,
        result: Mapping[str, Any],
        values: Mapping[str, Any],
        reward: RewardModel,
        found_sha256: str,
    ) -> StoredRun:
        """Return what the two files hold, the second also as the reward that it describes."""
        with malformed(RESULT):
            signed = result["certificate"]
            version = _validate.integer("version", signed["version"], at_least=1)
            if signed["format"] != CERTIFICATE_FORMAT:
                raise TypeError
            if version > CERTIFICATE_VERSION:
                raise DataError(
                    f"{_PROBLEM}: its certificate was written by a newer sordino (version "
                    f"{version}; this one reads up to {CERTIFICATE_VERSION}). Upgrade sordino."
                )
            ledger = signed["ledger"]
            rows = _validate.integer("rows", ledger["rows"], at_least=1)
            total = ledger["total"]
            certificate = Certificate(
                artifact=_validate.one_of("artifact", signed["artifact"], _ARTIFACTS),
                digest=text_of(signed["digest"]),
                guarantee=Guarantee.from_dict(signed["guarantee"], _texts(signed["caveats"])),
                data=text_of(signed["data"]),
                release_ids=tuple(_texts(signed["release_ids"])),
                ledger_head=Head(text_of(ledger["head"]), rows),
                ledger_total=None
                if total is None
                else Guarantee.from_dict(total, _texts(total["caveats"])),
            )
            # The reward enters as it stands in its file: read back and written again, a file of an
            # older version would become one of this version, with another digest.
            artifact = values
            if certificate.artifact != "reward":
                told = result["policy"]
                own = {} if told["kind"] == "gibbs" else {"kind", "confidence", "scale"}
                settings = {name: told[name] for name in ("temperature", *own)}
                policy = (ConfidencePolicy if own else gibbs_policy)(reward, **settings)
                artifact = policy.to_dict() | {"reward": values}
            return cls(
                claim=Guarantee.from_dict(result["guarantee"], _texts(result["caveats"])),
                certificate=certificate,
                reward=reward,
                reward_sha256=text_of(result["reward_sha256"]),
                found_sha256=found_sha256,
                digest=digest_of(artifact),
                stated=StatedMechanism.read(result),
                spent={unit: dict(result["spent"][unit]) for unit in get_args(Unit)},
            )


def read_result(folder: Path) -> dict[str, Any]:
    """Return what ``result.json`` of an earlier run holds."""
    if not folder.is_dir():
        raise FileSystemError(f"There is no folder {folder.name}. Nothing was done.")
    if not (folder / RESULT).is_file():
        raise DataError(
            f"{_PROBLEM}: {folder.name or 'the folder'} holds no {RESULT}. Give the folder that "
            "sordino align wrote (--out)."
        )
    kind = ""
    with suppress(OSError, ValueError, AttributeError, RecursionError):
        kind = str(json.loads((folder / RESULT).read_text("utf-8")).get("format"))
    if kind in _DRAWS:  # which hold no reward; their promise is elsewhere
        raise DataError(
            f"{_PROBLEM}: {folder.name} holds draws of a withheld estimate, so there is no reward "
            "to report or to audit. Read its ledger: sordino ledger show."
        )
    return read_json(folder / RESULT, kind=RESULT_FORMAT, version=RESULT_VERSION, problem=_PROBLEM)


@contextmanager
def malformed(name: str) -> Iterator[None]:
    """Turn what reading foreign values may raise into one error; it quotes nothing."""
    try:
        yield
    except DataError:
        raise
    except _NOT_OURS:
        pass
    else:
        return
    raise DataError(f"{_PROBLEM}: {name} has a field that is missing or malformed.")


def _texts(values: object) -> list[str]:
    """Return a list of texts; TypeError if it is anything else."""
    if not isinstance(values, list):
        raise TypeError
    return [text_of(value) for value in values]


def read_ledger(path: Path, *, given: bool = False) -> Ledger:
    """Return the ledger at a path, read from a copy."""
    # To open a ledger, SQLite makes files beside it and may write into it what a crash left over.
    # An audit leaves the folder as it is, so it reads a copy.
    if not path.is_file():
        raise FileSystemError(
            f"There is no ledger {path.name} here. Nothing was audited. If it lies elsewhere, say "
            "where: ledger=... (--ledger)."
        )
    with explained(f"{path.name} cannot be copied to be read"), passing_folder(None) as folder:
        copy = Path(folder) / path.name
        for ending, content in _snapshot(path.resolve()).items():
            copy.with_name(copy.name + ending).write_bytes(content)
        if given and _is_something_else(copy):
            raise UsageError(
                f"{path.name} is no ledger, so nothing was audited. Give the ledger of this run: "
                "ledger=... (--ledger), by convention a file named *.db."
            )
        try:
            found = Ledger.read(copy)
        except LedgerDamaged as error:
            if not _is_newer(copy):
                raise
            newer = str(error)
        else:
            named = (json.loads(row.payload).get("persons") for row in found.rows)
            found.rosters.of(filter(None, named))  # while the copy is there
            return found
    raise LedgerError(newer)


def _is_something_else(path: Path) -> bool:
    """Return whether a file is no database, or a readable one without the table of a ledger."""
    with path.open("rb") as file:
        if file.read(len(_SQLITE)) != _SQLITE:
            return True
    query = "SELECT count(*) FROM sqlite_master WHERE name = 'rows'"
    with suppress(LedgerError), ledger_chain.connect_reader(path) as connection:
        return bool(connection.execute(query).fetchone() == (0,))
    return False


def _snapshot(path: Path) -> dict[str, bytes]:
    """Return the ledger and the rows that wait beside it, as they were at one moment."""
    # Two looks in a row that see the same saw what was there between them. SQLite can be killed at
    # any moment, so what was there at one moment is a whole ledger.
    before: dict[str, bytes] = {}
    for _ in range(_LOOKS):
        if (after := _look(path)) == before:
            return after
        before = after
    raise LedgerError(f"{path.name} is being written all the time. Nothing was audited; try again.")


def _look(path: Path) -> dict[str, bytes]:
    found = {"": path.read_bytes()}
    with suppress(FileNotFoundError):
        found["-wal"] = path.with_name(f"{path.name}-wal").read_bytes()
    return found


def _is_newer(path: Path) -> bool:
    """Return whether a ledger cannot be read because a newer version wrote it."""
    query = "SELECT payload FROM rows ORDER BY sequence LIMIT 1"
    with suppress(LedgerError, *_NOT_OURS), ledger_chain.connect(path) as connection:
        (payload,) = connection.execute(query).fetchone()
        version = json.loads(payload)["version"]
        return type(version) is int and version > ledger_chain.VERSION
    return False


_REPORT = "report.html"
_OURS = {RESULT, REWARD, _REPORT}
_RAW = ("chosen", "rejected", "label", LABELS)
_KEY = re.compile(rb'"(?:' + "|".join(_RAW).encode() + rb')"\s*:')
_SEPARATORS = re.compile(r"[,\t;|]")

_HEAD = 1 << 16
_MOST_FILES = 1000
_MOST_NAMES = 10
_TAG = re.compile(r"<[^<>]*>")  # without "<" inside: each is looked at once
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_EPSILON = re.compile(r"ε = (\d+(?:\.\d+)?)(?![\d.,]| ×)")
_PLAIN = (1e-3, 1e4)  # where numbers are written without powers of ten and separators
_DIGITS = 4  # of a bound on the page


def check_report(folder: Path, claim: Guarantee, heads: Iterable[str] | None) -> Finding:
    """Return whether the page of a run says what the run promises."""
    # Only what every version of the page says is looked for, so most of what is missing is a
    # warning; a page that hides a simulation refutes.
    if not (folder / _REPORT).is_file():
        return Finding.skipped("report", f"There is no {_REPORT}.")
    with explained(f"{_REPORT} cannot be read"):
        page = (folder / _REPORT).read_bytes().decode(errors="replace")
    words = " ".join(html.unescape(_TAG.sub(" ", page)).split())
    if claim.simulated and "SIMULATED" not in words:
        silent = "The run is simulated and its page does not say so."
        return Finding.judged("report", wrong=silent)
    missing = []
    size = _EPSILON.search(words)  # the first is the promise, later ones are the budget's
    right = size and float(size[1]) == float(never_less(claim.epsilon, _DIGITS))
    if _PLAIN[0] <= claim.epsilon < _PLAIN[1] and not right:
        missing.append("the epsilon")
    if claim.change not in words.lower() or claim.neighbors.name not in words:
        missing.append("the unit")
    if any(" ".join(CAVEATS[name].split()) not in words for name in claim.caveats):
        missing.append("every caveat")
    if heads is not None and not set(heads) & set(_DIGEST.findall(words)):
        missing.append("a ledger head")  # of those that the ledger had since the run
    odd = (
        f"The page does not state {', '.join(missing)} of this run: it is of another run, or was "
        "edited."
    )
    clear = "The page states the same promise, and a head of this ledger."
    return Finding.judged("report", odd=odd if missing else "", clear=clear)


def check_strays(folder: Path) -> Finding:
    """Return whether raw judgments lie beside a run, by their first bytes, or a ledger's secret."""
    # At most a thousand files, also in folders below, and 64 KiB of each are looked at.
    entries = list(islice(_files(folder), _MOST_FILES + 1))
    more, looked_at = len(entries) > _MOST_FILES, entries[:_MOST_FILES]
    found = sorted(str(path.relative_to(folder)) for path in looked_at if _is_raw(path))
    odd = "Raw judgments seem to lie beside the run: whoever gets this folder reads them. "
    if not found:
        # The store of answers holds digests of ids that anybody can make, and answers beside them.
        found = sorted(
            str(path.relative_to(folder))
            for path in looked_at
            if path.name.endswith((".secret", ".memo.db"))
            or path.parts[-2:] == (LEDGER.parent.name, "secret")
        )
        odd = "By these files whoever gets this folder can try out who took part in the run. "
    odd += "Move them away before you pass it on."
    some: dict[str, object] = {"files": found[:_MOST_NAMES], "count": len(found)}
    return Finding.judged(
        "strays",
        odd=odd if found else "",
        clear=f"No other file {'among the first thousand ' if more else ''}looks like raw "
        "judgments, or tells who took part.",
        details=some if found else {"looked_at": len(looked_at)},
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
    # Or the first line of a table does.
    line = head.partition(b"\n")[0].decode("utf-8-sig", errors="replace")
    columns = {name.strip().strip('"').lower() for name in _SEPARATORS.split(line)}
    return bool(_KEY.search(head)) or not columns.isdisjoint(_RAW)
