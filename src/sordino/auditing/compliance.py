"""Whether everything that a project released keeps to the policy of whoever answers for it.

A policy is a TOML file. It is held against the ledger, which knows what everything promises
together, and against the files in a folder, each of which must be known to the ledger.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast, get_args

from sordino import _validate
from sordino._files import explained, sha256_of
from sordino._version import __version__
from sordino.certificates import claims_more, paid_guarantee
from sordino.errors import (
    FileSystemError,
    LedgerDamaged,
    PrivacyError,
    SordinoError,
    UsageError,
)
from sordino.preferences.pairs import MANIFEST_FORMAT, Manifest, digest_of_files, read_manifest
from sordino.privacy.accountants import decimal
from sordino.privacy.books import Account, covers
from sordino.privacy.conversions import float_up
from sordino.privacy.guarantee import (
    CAVEATS,
    REPLACE_ONE,
    Guarantee,
    NeighboringRelation,
    Unit,
    merge,
    never_less,
    never_more,
)
from sordino.privacy.ledger import Head, Ledger
from sordino.privacy.ledger_chain import Row, digest_of_json, promise_of

from .findings import Verdict
from .runs.replay import audit_run
from .runs.stored import RESULT_FORMAT, REWARD, malformed, read_ledger

_State = Literal["met", "warning", "not met"]
_Views = Sequence[tuple[str, Ledger]]
_Promises = Sequence[tuple[Row, Guarantee]]

_KEYS = ("epsilon", "delta", "covered", "audits", "caveats_not_allowed", "head")
_AUDITS = ("run",)
_PLANNED = "sordino.intrinsic"  # a run that released nothing: its draws come later
_TOLD_ELSEWHERE = {
    f"sordino.{name}" for name in ("bandit", "certificate", "language-run", "language-table")
}  # whose promise names no digest of this file
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth"}
_RELEASED = (".jsonl", ".jsonl.gz", ".parquet")
_FOREIGN = (
    "No entry of this ledger paid for it, or recorded that it arrived. Take it away, or check it "
    "with the ledger that paid for it (--ledger)."
)
_OTHER = (
    "The entries that it names paid for something else: it was changed, or parts of the release "
    "are not here."
)
_MORE = "It promises more than its entries paid for."
_UNNAMED = "It names no digest on a ledger, so nothing shows what paid for it."
_ELSEWHERE = (
    "What it paid for does not count here. Check it by itself (--ledger), in a folder of its own."
)
_ALONE = "The file that it speaks for is not here."


def _table(where: str, value: object, known: Sequence[str]) -> Mapping[str, Any]:
    """Return a table of a policy; refuse what is none, and keys that nobody would read."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} must be a table, got {value!r}.")
    for key in value:
        if key not in known:
            raise UsageError(f"{where} has {key!r}, and may have {', '.join(known)} alone.")
    return value


def _words(where: str, value: object, permitted: Sequence[str]) -> tuple[Any, ...]:
    """Return a list of words of a policy."""
    if not isinstance(value, list):
        raise UsageError(f"{where} must be a list, got {value!r}.")
    return tuple(dict.fromkeys(_validate.one_of(where, word, permitted) for word in value))


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What everything that was released must keep to, as the data's owner wrote it down."""

    limits: Mapping[Unit, Guarantee]  # the largest epsilon for a unit, and what one change is
    below: Mapping[Unit, Fraction]  # what delta must be less than
    covered: tuple[Unit, ...] = ()  # units that every release must protect
    audits: tuple[str, ...] = ()  # audits that must end with "not refuted"
    caveats_not_allowed: tuple[str, ...] = ()
    head: str | None = None  # of the ledger, noted earlier
    name: str = ""  # of the file
    digest: str = ""  # SHA-256 of the file, so that a signature is under these words

    @classmethod
    def read(cls, path: Path) -> Policy:
        """Return the policy in a file.

        Raises:
            UsageError: It is no TOML, or holds what has no meaning in a policy, or limits nothing.
            FileSystemError: It cannot be read.
        """
        with explained(f"{path.name} cannot be read"):
            raw = path.read_bytes()
        problem = ""
        try:
            values = _table(path.name, tomllib.loads(raw.decode()), ("policy",)).get("policy", {})
            return replace(
                cls._of(_table("[policy]", values, _KEYS)),
                name=path.name,
                digest=sha256(raw).hexdigest(),
            )
        except (UsageError, ValueError, RecursionError) as error:  # of TOML and Unicode
            problem = str(error)
        raise UsageError(
            f"{path.name} is no policy: {problem} Nothing was checked. docs/what_to_sign.md shows "
            "a whole one."
        )

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> Policy:
        limits: dict[Unit, Guarantee] = {}
        units: tuple[Unit, ...] = get_args(Unit)
        written = _table("[policy.epsilon]", values.get("epsilon", {}), units)
        for unit in (unit for unit in units if unit in written):
            told = written[unit]
            given = told if isinstance(told, Mapping) else {"at_most": told}
            given = _table(f"epsilon of a {unit}", given, ("at_most", "neighbors"))
            relation = given.get("neighbors", REPLACE_ONE.name)
            _validate.one_of("neighbors", relation, tuple(NeighboringRelation.__members__))
            limits[unit] = Guarantee(
                _validate.positive(f"epsilon of a {unit}", given.get("at_most")),
                delta=0.0,
                unit=unit,
                neighbors=NeighboringRelation[relation],
                trust="central",
            )
        if not limits:
            raise UsageError(f"[policy.epsilon] must limit a {' or a '.join(units)}.")
        covered = _words("covered", values.get("covered", []), units)
        below: dict[Unit, Fraction] = {}
        if "delta" in values:
            told = _table("[policy.delta]", values["delta"], ("below", "records", "people"))
            for unit in dict.fromkeys((*limits, *covered)):
                if told.get("below") == "1/n":
                    # How many there are may be private: the owner declares it, nobody counts.
                    of = "people" if unit == "person" else "records"
                    below[unit] = Fraction(1, _validate.integer(of, told.get(of), at_least=1))
                else:
                    bound = _validate.failure_probability("below", told.get("below"), zero=False)
                    below[unit] = Fraction(repr(bound))
        head = values.get("head")
        if head is not None and not (isinstance(head, str) and re.fullmatch("[0-9a-f]{64}", head)):
            raise UsageError("head must be 64 hexadecimal digits, as sordino ledger verify prints.")
        return cls(
            limits=limits,
            below=below,
            covered=covered,
            audits=_words("audits", values.get("audits", []), _AUDITS),
            caveats_not_allowed=_words(
                "caveats_not_allowed", values.get("caveats_not_allowed", []), sorted(CAVEATS)
            ),
            head=head,
        )


@dataclass(frozen=True, kw_only=True)
class _Clause:
    """One sentence of a policy beside what was found."""

    subject: str
    allowed: str
    found: str
    state: _State
    way_out: str = ""

    @classmethod
    def of(cls, subject: str, allowed: str, found: str, *, met: bool, way_out: str) -> _Clause:
        """Return a sentence that is met or not; what is met needs no way out."""
        known = {"subject": subject, "allowed": allowed, "found": found}
        return cls(**known, state="met") if met else cls(**known, state="not met", way_out=way_out)


@dataclass(frozen=True, kw_only=True)
class _Artifact:
    """A file that says what it promises, and what the ledger knows of it."""

    name: str  # where it lies in the folder
    kind: str  # its format
    sha256: str  # of the file
    guarantee: Guarantee | None = None  # what it says
    release_ids: tuple[str, ...] = ()  # the entries that it names
    artifact: str = ""  # the digest that these entries must have on the ledger
    manifest: Manifest | None = None  # of randomized answers
    data: str = ""  # the data set whose entries they are
    entries: tuple[str, ...] = ()  # those entries, with their rows
    audit: Verdict | None = None  # how an audit of it ended, if it is a run
    state: _State = "met"
    problem: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the file as a page tells of it."""
        names = ("name", "kind", "sha256", "data", "audit", "state", "problem")
        return {name: getattr(self, name) for name in names} | {
            "promise": self.guarantee and str(self.guarantee),
            "entries": list(self.entries),
            "bound": bool(self.artifact) and self.artifact == self.sha256,
        }


def _ledger_views(path: Path) -> _Views:
    """Return every data set on a ledger, with the ledger as it is read for that data set."""
    ledger = read_ledger(path, given=True)
    return [(name, ledger.about(name)) for name in ledger.data_sets or (ledger.data,)]


def _promises_on(ledger: Ledger) -> Iterator[tuple[Row, Guarantee]]:
    """Yield every row by which something was paid for or arrived, with its promise."""
    for row in ledger.rows:
        if row.kind == "reserve":
            yield row, promise_of(row)
        elif row.kind == "receive":
            told = json.loads(row.payload)
            yield row, Guarantee.from_dict(told["promise"], told["caveats"])


def _outcomes_on(ledger: Ledger) -> dict[str, set[str]]:
    """Return the digests of what was released, by the entry that paid for it."""
    found: dict[str, set[str]] = {}
    for row in ledger.rows:
        if row.kind in {"commit", "repeat", "receive"}:
            found.setdefault(row.release_id, set()).add(json.loads(row.payload)["artifact"])
    return found


def _totals(ledger: Ledger) -> dict[Unit, Account]:
    """Return the accounts of a ledger, with the promises of what arrived already private.

    Guarantee:
        upper bounds, if those of the ledger are: losses add up. Shown by
        tests/soundness/test_compliance.py.
    """
    # What arrived costs a ledger nothing. For all that anybody knows it is of the same people, so
    # here it counts.
    arrived = [each for each in _promises_on(ledger) if each[0].kind == "receive"]
    found = ledger.accounts()
    for unit, held in [*found.items()] if arrived else ():
        bare = [row.release_id for row, told in arrived if not covers(told, unit)]
        if held.uncovered or bare:
            found[unit] = Account(unit, None, (*held.uncovered, *bare))
            continue
        known = [told for _, told in arrived]
        known += [] if held.guarantee is None else [held.guarantee]
        parts = [replace(told, unit=unit, neighbors=REPLACE_ONE) for told in known]
        epsilon, delta = (
            float_up(sum((decimal(getattr(part, size)) for part in parts), Decimal(0)))
            for size in ("epsilon", "delta")
        )
        adds_up = delta < 1 and all(told.neighbors is REPLACE_ONE for told in known)
        sizes = (
            {"epsilon": epsilon, "delta": delta} if adds_up else {"epsilon": math.inf, "delta": 0.0}
        )
        found[unit] = Account(unit, merge(parts, **sizes))
    return found


def _some(releases: Iterable[str]) -> str:
    """Return the first of some releases by name, and how many more there are."""
    first, *others = dict.fromkeys(releases)
    return f"{first} and {len(others)} more" if others else first


def _held(
    policy: Policy, data: str, accounts: Mapping[Unit, Account], told: _Promises
) -> Iterator[_Clause]:
    """Yield what a policy says of one data set, beside what its ledger says."""
    for unit in dict.fromkeys((*policy.limits, *policy.covered)):
        account, limit = accounts[unit], policy.limits.get(unit)
        promise = account.guarantee
        # Nothing was spent, or all of it is promised; what is not covered has no size at all.
        sizes = (math.inf, 1.0) if account.uncovered else (0.0, 0.0)
        epsilon, delta = sizes if promise is None else (promise.epsilon, promise.delta)
        if limit is not None:
            way = "Release less, or have the limit raised on purpose."
            same = promise is None or promise.neighbors is limit.neighbors
            if promise is not None and not same:
                way = (
                    f"It is counted under another relation. If that one is meant: {unit} = "
                    f'{{at_most = ..., neighbors = "{promise.neighbors.name}"}}.'
                )
            most = never_more(limit.epsilon, 15)
            yield _Clause.of(
                f"{data}: epsilon of one {unit}",
                f"at most {most} when {limit.change} ({limit.neighbors.name})",
                str(account),
                met=same and epsilon <= limit.epsilon,
                way_out=way,
            )
        if (bound := policy.below.get(unit)) is not None:
            yield _Clause.of(
                f"{data}: delta of one {unit}",
                f"below {bound if bound.numerator == 1 else float(bound)}",
                "not protected" if account.uncovered else never_less(delta, 15),
                met=Fraction(repr(delta)) < bound,
                way_out=f"Have the data's owner lower it: sordino budget set {unit} ... --delta.",
            )
        if unit in policy.covered:
            yield _Clause.of(
                f"{data}: protection of one {unit}",
                "by every release",
                "by every release" if epsilon < math.inf else str(account),
                met=epsilon < math.inf,
                way_out=f"Release it with --unit {unit}, on a ledger without those releases.",
            )
    whole = [("the total", held.guarantee) for held in accounts.values() if held.guarantee]
    for caveat in policy.caveats_not_allowed:
        named = [*((row.release_id, promise) for row, promise in told), *whole]
        having = [name for name, promise in named if caveat in promise.caveats]
        yield _Clause.of(
            f"{data}: caveat {caveat}",
            "not allowed",
            _some(having or ["none"]),
            met=not having,
            way_out=CAVEATS[caveat],
        )


@dataclass(frozen=True, kw_only=True)
class _Inventory:
    """The files of a folder that say what they promise, beside the ledger that must know them."""

    folder: Path
    ledger: Path
    views: _Views
    audits: tuple[str, ...]  # those that the policy asks for

    def __iter__(self) -> Iterator[_Artifact]:
        found = [each for path in self._files() for each in self._read(path)]
        for each in found:
            parts = {one.manifest for one in found if one.release_ids == each.release_ids}
            try:
                yield self._supported(each, digest_of_files(filter(None, parts)))
            except SordinoError as error:  # of an audit
                yield replace(each, state="not met", problem=str(error))

    def _files(self) -> Iterator[Path]:
        for here, below, names in os.walk(self.folder):
            below[:] = sorted(name for name in below if not name.startswith("."))
            paths = (Path(here) / name for name in sorted(names))
            yield from (path for path in paths if path.is_file())

    def _read(self, path: Path) -> Iterator[_Artifact]:
        """Yield what a file says, if it says what it promises."""
        name = path.relative_to(self.folder).as_posix()
        told: object = None  # what it holds as JSON
        if path.suffix.lower() == ".db":
            with suppress(SordinoError):  # a memo, or no database
                head = read_ledger(path).head.digest
                # Else it is this ledger, or an older copy of it.
                if all(head != row.digest for _, held in self.views for row in held.rows):
                    kind, why = "another ledger", _ELSEWHERE
                    yield _Artifact(name=name, kind=kind, sha256=head, state="not met", problem=why)
        if path.suffix.lower() != ".json":
            return
        with suppress(OSError, ValueError, RecursionError):
            told = json.loads(path.read_bytes())
        kind = str(told.get("format")) if isinstance(told, dict) else ""
        if not kind.startswith("sordino.") or kind == _PLANNED:
            return
        plain = _Artifact(name=name, kind=kind, sha256=sha256_of(path))
        try:
            with malformed(path.name):
                reader = self._answers if kind == MANIFEST_FORMAT else self._statement
                yield from reader(plain, path, cast("dict[str, Any]", told))
        except SordinoError as error:
            yield replace(plain, state="not met", problem=str(error))

    def _answers(self, plain: _Artifact, path: Path, _: object) -> Iterator[_Artifact]:
        stem = path.name.removesuffix(".manifest.json")
        near = [path.with_name(f"{stem}{ending}") for ending in _RELEASED]
        files = [file for file in near if file.is_file()]
        for file in files:
            manifest = read_manifest(file, path)
            yield replace(
                plain,
                name=file.relative_to(self.folder).as_posix(),
                sha256=manifest.sha256,
                guarantee=manifest.guarantee,
                release_ids=(manifest.release_id,),
                artifact=manifest.sha256,
                manifest=manifest,
            )
        if not files:
            yield replace(plain, state="warning", problem=_ALONE)

    def _statement(self, plain: _Artifact, path: Path, told: dict[str, Any]) -> Iterator[_Artifact]:
        if told.get("guarantee") is None:
            return
        promise = Guarantee.from_dict(told["guarantee"], told["caveats"])
        if plain.kind in _TOLD_ELSEWHERE:
            yield replace(plain, guarantee=promise, state="warning", problem=_UNNAMED)
            return
        sources = told.get("sources") or [told]
        if plain.kind == RESULT_FORMAT:
            with explained(f"{REWARD} beside it cannot be read"):
                reward = json.loads((path.parent / REWARD).read_bytes())
            sources = [told | {name: reward[name] for name in ("release_ids", "artifact")}]
        beside = [file for file in sorted(path.parent.iterdir()) if file.suffix in _WEIGHTS]
        parts = [Guarantee.from_dict(one["guarantee"], one["caveats"]) for one in sources]
        delta = min(math.fsum(part.delta for part in parts), math.nextafter(1.0, 0.0))
        whole = merge(parts, epsilon=math.fsum(part.epsilon for part in parts), delta=delta)
        for one, part in zip(sources, parts, strict=True):
            found = replace(
                plain,
                guarantee=part,
                release_ids=tuple(map(str, one["release_ids"])),
                artifact=str(one["artifact"]),
            )
            if claims_more(promise, whole):
                found = replace(found, state="not met", problem=_MORE)
            yield found
            if "sources" in told:  # weights lie beside what speaks for them
                for file in beside:
                    name = file.relative_to(self.folder).as_posix()
                    yield replace(found, name=name, sha256=sha256_of(file))

    def _supported(self, found: _Artifact, together: str) -> _Artifact:
        """Return a file with the entries that paid for it, or with what is wrong."""
        for data, held in self.views if found.state == "met" else ():
            outcomes, ids = _outcomes_on(held), found.release_ids
            entries = {row.release_id: row for row, _ in _promises_on(held)}
            if not ids or not entries.keys() >= set(ids):
                # It names none; or it is, byte for byte, what was released or arrived already.
                same = not ids or found.artifact == found.sha256
                ids = tuple(
                    name
                    for name, digests in outcomes.items()
                    if found.artifact in digests and (same or entries[name].kind == "receive")
                )
            if not ids:
                continue
            digests = set().union(*(outcomes.get(name, set()) for name in ids))
            found = replace(
                found,
                release_ids=ids,
                data=data,
                entries=tuple(f"row {entries[name].sequence}: {name}" for name in ids),
                # many files of one release have one digest on the ledger
                artifact=found.artifact if found.artifact in digests else together,
            )
            try:
                paid = paid_guarantee(cast("Any", found), held)
            except PrivacyError:
                return replace(found, state="not met", problem=_OTHER)
            if found.guarantee is None or claims_more(found.guarantee, paid):
                return replace(found, state="not met", problem=_MORE)
            if found.kind == RESULT_FORMAT:
                # An audit is done here and now: a file that says so could be of another run, or
                # of before.
                audit = audit_run((self.folder / found.name).parent, ledger=self.ledger)
                wrong = audit.refuted or (bool(audit.reasons) and "run" in self.audits)
                state: _State = "not met" if wrong else "warning" if audit.reasons else "met"
                why = " ".join(audit.reasons)
                return replace(found, audit=audit.verdict, state=state, problem=why)
            return found
        if found.state != "met":
            return found
        return replace(found, state="not met", problem=_FOREIGN)


@dataclass(frozen=True, kw_only=True)
class Compliance:
    """A policy, held against a ledger and the files of a folder.

    Guarantee:
        Met means: what all releases on the ledger promise together lies within the policy, no
        release is simulated, and every file in the folder that states a promise names entries of
        this ledger that paid for what it was made of, and states no more than they promise. It
        does not mean that the numbers in a file were computed from that: whoever writes a file by
        hand can write any. Shown by tests/soundness/test_compliance.py.
    """

    policy: Policy | None
    ledger: str  # name of its file
    head: Head
    accounts: Mapping[str, Mapping[Unit, Account]]  # by data set
    clauses: tuple[_Clause, ...]
    artifacts: tuple[_Artifact, ...]
    strict: bool
    simulated: bool

    @property
    def verdict(self) -> Literal["met", "not met", "no policy"]:
        """Return whether the policy is met; strictly, a warning is enough that it is not."""
        states = {each.state for each in self.clauses} | {each.state for each in self.artifacts}
        if "not met" in states or (self.strict and "warning" in states):
            return "not met"
        return "no policy" if self.policy is None else "met"

    @classmethod
    def of(
        cls, folder: Path, ledger: Path, policy: Policy | None, *, strict: bool = False
    ) -> Compliance:
        """Return how a policy fares; only reads.

        Raises:
            UsageError: ``ledger`` is no ledger.
            FileSystemError: There is no such folder or ledger.
            LedgerDamaged: The ledger was edited, or is older than the head that the policy notes.
        """
        if not folder.is_dir():
            raise FileSystemError(f"There is no folder {folder.name}. Nothing was checked.")
        views = _ledger_views(ledger)
        rows = {row.digest for _, held in views for row in held.rows}
        if policy is not None and policy.head is not None and policy.head not in rows:
            raise LedgerDamaged(
                f"{ledger.name} does not contain the head that {policy.name} notes: rows were cut "
                "off or an older copy was put back. Nothing was checked."
            )
        audits = () if policy is None else policy.audits
        files = tuple(_Inventory(folder=folder, ledger=ledger, views=views, audits=audits))
        accounts = {data: _totals(held) for data, held in views}
        clauses: list[_Clause] = []
        if policy is None:
            clauses.append(_warned("policy", "one", "none was given, so no limit was checked"))
        elif audits and not any(each.kind == RESULT_FORMAT for each in files):
            clauses.append(_warned("audits", "run", "no run is in the folder"))
        seeds: list[str] = []
        for data, held in views:
            told = [*_promises_on(held)]
            seeded = [
                row.release_id
                for row, promise in told
                if promise.simulated or "simulated" in promise.caveats
            ]
            seeds += seeded
            clauses.append(
                _Clause.of(
                    f"{data}: randomness",
                    "the operating system's",
                    f"simulated: {_some(seeded)}" if seeded else "the operating system's",
                    met=not seeded,
                    way_out="Release it without a seed, on a ledger without simulations.",
                )
            )
            clauses += _held(policy, data, accounts[data], told) if policy is not None else ()
            here = {name for each in files for name in each.release_ids if each.data == data}
            if gone := sorted(_outcomes_on(held).keys() - here):
                absent = f"not here: what {_some(gone)} paid for"
                clauses.append(_warned(f"{data}: files", "all here", absent))
        return cls(
            policy=policy,
            ledger=ledger.name,
            head=views[0][1].head,
            accounts=accounts,
            clauses=tuple(clauses),
            artifacts=files,
            strict=strict,
            simulated=bool(seeds),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict, each sentence and each file as JSON holds it, with one digest."""
        policy = self.policy
        told: dict[str, Any] = {
            "verdict": self.verdict,
            "strict": self.strict,
            "simulated": self.simulated,
            "policy": None if policy is None else {"name": policy.name, "sha256": policy.digest},
            "ledger": {"name": self.ledger, "head": self.head.digest, "rows": self.head.rows},
            "accounts": {
                data: {unit: account.to_dict() for unit, account in held.items()}
                for data, held in self.accounts.items()
            },
            "clauses": [asdict(clause) for clause in self.clauses],
            "artifacts": [artifact.to_dict() for artifact in self.artifacts],
            "sordino": __version__,
        }
        # On paper it ties the sheet that is signed to the sheets before it.
        return told | {"sha256": digest_of_json(told)}


def _warned(subject: str, allowed: str, found: str) -> _Clause:
    return _Clause(subject=subject, allowed=allowed, found=found, state="warning")
