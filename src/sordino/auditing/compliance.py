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
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from sordino import _validate
from sordino._files import explained, parsed, sha256_of
from sordino._version import __version__
from sordino.certificates import claims_more, paid_guarantee
from sordino.errors import FileSystemError, LedgerDamaged, PrivacyError, SordinoError, UsageError
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

from .findings import ATTACKS, Verdict
from .runs.replay import RESULT_FORMAT, audit_run, malformed, read_ledger, released_by

_State = Literal["met", "warning", "not met"]

_KEYS = ("epsilon", "delta", "covered", "audits", "caveats_not_allowed", "head")
_PLANNED = "sordino.intrinsic"  # a run that released nothing: its draws come later
_UNNAMED_FORMATS = ("bandit", "certificate", "language-run", "language-table")
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth"}
_SAID = ATTACKS["check"]


def _table(where: str, value: object, known: Sequence[str]) -> Mapping[str, Any]:
    """Return a table of a policy; refuse what is none, and keys that nobody would read."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} must be a table, got {value!r}.")
    for key in value:
        if key not in known:
            raise UsageError(f"{where} has {key!r}, and may have {', '.join(known)} alone.")
    return value


def _words(where: str, value: object, permitted: Sequence[str]) -> tuple[Any, ...]:
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
        try:
            return cls._of(path.name, raw)
        except (UsageError, ValueError, RecursionError) as error:  # of TOML and Unicode
            raise UsageError(
                f"{path.name} is no policy: {error} Nothing was checked. docs/what_to_sign.md "
                "shows a whole one."
            ) from None

    @classmethod
    def _of(cls, name: str, raw: bytes) -> Policy:
        values = _table(name, tomllib.loads(raw.decode()), ("policy",)).get("policy", {})
        values = _table("[policy]", values, _KEYS)
        limits: dict[Unit, Guarantee] = {}
        units: tuple[Unit, ...] = get_args(Unit)
        written = _table("[policy.epsilon]", values.get("epsilon", {}), units)
        for unit in (unit for unit in units if unit in written):
            told, of = written[unit], f"epsilon of a {unit}"
            given = told if isinstance(told, Mapping) else {"at_most": told}
            given = _table(of, given, ("at_most", "neighbors"))
            relation = given.get("neighbors", REPLACE_ONE.name)
            _validate.one_of("neighbors", relation, tuple(NeighboringRelation.__members__))
            change = NeighboringRelation[relation]
            most = _validate.positive(of, given.get("at_most"))
            limits[unit] = Guarantee(most, delta=0.0, unit=unit, neighbors=change, trust="central")
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
                    most = _validate.failure_probability("below", told.get("below"), zero=False)
                    below[unit] = Fraction(repr(most))
        head = values.get("head")
        if head is not None and not (isinstance(head, str) and re.fullmatch("[0-9a-f]{64}", head)):
            raise UsageError("head must be 64 hexadecimal digits, as sordino ledger verify prints.")
        lists = (("audits", ["run"]), ("caveats_not_allowed", sorted(CAVEATS)))
        more: dict[str, Any] = {key: _words(key, values.get(key, []), own) for key, own in lists}
        more |= {"name": name, "digest": sha256(raw).hexdigest(), "head": head}
        return cls(limits=limits, below=below, covered=covered, **more)


@dataclass(frozen=True)
class _Clause:
    """One sentence of a policy beside what was found."""

    subject: str
    allowed: str
    found: str
    state: _State
    way_out: str = ""  # of what is not met

    @classmethod
    def of(cls, subject: str, allowed: str, found: str, way_out: str, *, met: bool) -> _Clause:
        """Return a sentence that is met or not."""
        more: tuple[_State, str] = ("met", "") if met else ("not met", way_out)
        return cls(subject, allowed, found, *more)


@dataclass(frozen=True, kw_only=True)
class _Artifact:
    """A file that says what it promises, and what the ledger knows of it."""

    name: str  # where it lies in the folder
    kind: str  # its format
    sha256: str  # of the file
    guarantee: Guarantee | None = None  # what it says
    release_ids: tuple[str, ...] = ()  # the entries that it names
    artifact: str = ""  # the digest that these entries must have on the ledger
    counted_apart: bool = False  # whether the entries are updates of one board
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


class _View(NamedTuple):
    """A ledger as it is read for one of its data sets."""

    data: str
    ledger: Ledger
    told: Sequence[tuple[Row, Guarantee]]  # by what something was paid for or arrived
    outcomes: Mapping[str, set[str]]  # digests of what was released, by the entry that paid for it

    @classmethod
    def of(cls, data: str, ledger: Ledger) -> _View:
        """Return what a ledger tells of a data set."""
        told, outcomes = [], defaultdict[str, set[str]](set)
        for row in ledger.rows:
            payload = json.loads(row.payload)
            if row.kind in {"reserve", "receive"}:
                told.append((row, promise_of(row)))
            if row.kind in {"commit", "repeat", "receive"}:
                outcomes[row.release_id].add(payload["artifact"])
        return cls(data, ledger, told, dict(outcomes))


def _totals(view: _View) -> dict[Unit, Account]:
    """Return the accounts of a ledger, with the promises of what arrived already private."""
    # What arrived costs a ledger nothing. For all that anybody knows it is of the same people, so
    # here it counts. Losses add up, so these are upper bounds if those of the ledger are.
    arrived = [each for each in view.told if each[0].kind == "receive"]
    found = view.ledger.accounts()
    for unit, held in [*found.items()] if arrived else ():
        if unit == "person":  # whose answers arrived, and how many, the ledger counts itself
            continue
        bare = [row.release_id for row, told in arrived if not covers(told, unit)]
        if held.uncovered or bare:
            found[unit] = Account(unit, None, (*held.uncovered, *bare))
            continue
        known = [told for told in (*(told for _, told in arrived), held.guarantee) if told]
        parts = [replace(told, unit=unit, neighbors=REPLACE_ONE) for told in known]
        epsilon, delta = (
            float_up(sum((decimal(getattr(part, size)) for part in parts), Decimal(0)))
            for size in ("epsilon", "delta")
        )
        if delta >= 1 or any(told.neighbors is not REPLACE_ONE for told in known):
            epsilon, delta = math.inf, 0.0  # they do not add up
        found[unit] = Account(unit, merge(parts, epsilon=epsilon, delta=delta))
    return found


def _some(releases: Iterable[str]) -> str:
    """Return the first of some releases by name, and how many more there are."""
    first, *others = dict.fromkeys(releases)
    return f"{first} and {len(others)} more" if others else first


def _held(policy: Policy, view: _View, accounts: Mapping[Unit, Account]) -> Iterator[_Clause]:
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
            allowed = f"at most {most} when {limit.change} ({limit.neighbors.name})"
            yield _Clause.of(
                *(f"{view.data}: epsilon of one {unit}", allowed, str(account), way),
                met=same and epsilon <= limit.epsilon,
            )
        if (bound := policy.below.get(unit)) is not None:
            yield _Clause.of(
                f"{view.data}: delta of one {unit}",
                f"below {bound if bound.numerator == 1 else float(bound)}",
                "not protected" if account.uncovered else never_less(delta, 15),
                f"Have the data's owner lower it: sordino budget set {unit} ... --delta.",
                met=Fraction(repr(delta)) < bound,
            )
        if unit in policy.covered:
            covers_it = epsilon < math.inf
            way = f"Release it with --unit {unit}, on a ledger without those releases."
            subject, all_of_them = f"{view.data}: protection of one {unit}", "by every release"
            found = all_of_them if covers_it else str(account)
            yield _Clause.of(subject, all_of_them, found, way, met=covers_it)
    named = [(row.release_id, promise) for row, promise in view.told]
    named += [("the total", held.guarantee) for held in accounts.values() if held.guarantee]
    for caveat in policy.caveats_not_allowed:
        having = [name for name, promise in named if caveat in promise.caveats]
        told = (f"{view.data}: caveat {caveat}", "not allowed", _some(having or ["none"]))
        yield _Clause.of(*told, CAVEATS[caveat], met=not having)


@dataclass(frozen=True, kw_only=True)
class _Inventory:
    """The files of a folder that say what they promise, beside the ledger that must know them."""

    folder: Path
    ledger: Path
    views: Sequence[_View]
    audits: tuple[str, ...]  # those that the policy asks for

    def __iter__(self) -> Iterator[_Artifact]:
        found, seen = list[_Artifact](), set[str]()
        for here, below, names in os.walk(self.folder, followlinks=True):
            below[:] = sorted(name for name in below if not name.startswith("."))
            if (place := os.path.realpath(here)) in seen:  # a link to what was looked at
                below.clear()
                continue
            seen.add(place)
            for path in (Path(here) / name for name in sorted(names)):
                found += self._read(path) if path.is_file() else ()
        for each in found:
            parts = {one.manifest for one in found if one.release_ids == each.release_ids}
            try:
                yield self._supported(each, digest_of_files(filter(None, parts)))
            except SordinoError as error:  # of an audit
                yield replace(each, state="not met", problem=str(error))

    def _read(self, path: Path) -> Iterator[_Artifact]:
        """Yield what a file says, if it says what it promises."""
        name = path.relative_to(self.folder).as_posix()
        told: Any = None  # what it holds as JSON
        if path.suffix.lower() == ".db":
            with suppress(SordinoError):  # a memo, or no database
                head = read_ledger(path).head.digest
                # Else it is this ledger, or an older copy of it.
                if all(head != row.digest for view in self.views for row in view.ledger.rows):
                    kind, why = "another ledger", _SAID["elsewhere"]
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
                parsed(path.read_bytes())  # else it says one thing to one reader
                if kind == MANIFEST_FORMAT:
                    yield from self._answers(plain, path)
                elif told.get("guarantee") is not None:
                    yield from self._statement(plain, path, told)
        except SordinoError as error:
            yield replace(plain, state="not met", problem=str(error))

    def _answers(self, plain: _Artifact, path: Path) -> Iterator[_Artifact]:
        stem = path.name.removesuffix(".manifest.json")
        near = (path.with_name(f"{stem}{ending}") for ending in (".jsonl", ".jsonl.gz", ".parquet"))
        files = [file for file in near if file.is_file()]
        for file in files:
            found = read_manifest(file, path)
            name, digest = file.relative_to(self.folder).as_posix(), found.sha256
            known = replace(plain, guarantee=found.guarantee, release_ids=(found.release_id,))
            yield replace(known, name=name, sha256=digest, artifact=digest, manifest=found)
        if not files:
            yield replace(plain, state="warning", problem=_SAID["alone"])

    def _statement(self, plain: _Artifact, path: Path, told: dict[str, Any]) -> Iterator[_Artifact]:
        promise = Guarantee.from_dict(told["guarantee"], told["caveats"])
        if plain.kind.removeprefix("sordino.") in _UNNAMED_FORMATS:
            yield replace(plain, guarantee=promise, state="warning", problem=_SAID["unnamed"])
            return
        sources = told.get("sources") or [told]
        if (held := released_by(path, told)) is not None:
            sources = [told | {"release_ids": held.release_ids, "artifact": held.artifact}]
            plain = replace(plain, counted_apart=getattr(held, "counted_apart", False))
        beside = [file for file in sorted(path.parent.iterdir()) if file.suffix in _WEIGHTS]
        parts = [Guarantee.from_dict(one["guarantee"], one["caveats"]) for one in sources]
        delta = min(math.fsum(part.delta for part in parts), math.nextafter(1.0, 0.0))
        whole = merge(parts, epsilon=math.fsum(part.epsilon for part in parts), delta=delta)
        for one, part in zip(sources, parts, strict=True):
            ids, digest = tuple(map(str, one["release_ids"])), str(one["artifact"])
            found = replace(plain, guarantee=part, release_ids=ids, artifact=digest)
            if claims_more(promise, whole):
                found = replace(found, state="not met", problem=_SAID["more"])
            yield found
            if "sources" in told:  # weights lie beside what speaks for them
                for file in beside:
                    name = file.relative_to(self.folder).as_posix()
                    yield replace(found, name=name, sha256=sha256_of(file))

    def _supported(self, found: _Artifact, together: str) -> _Artifact:
        """Return a file with the entries that paid for it, or with what is wrong."""
        if found.state != "met":
            return found
        for data, held, told, outcomes in self.views:
            ids = found.release_ids
            entries = {row.release_id: row for row, _ in told}
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
            paid_by = tuple(f"row {entries[name].sequence}: {name}" for name in ids)
            found = replace(found, release_ids=ids, data=data, entries=paid_by)
            if found.artifact not in digests:  # many files of one release have one on the ledger
                found = replace(found, artifact=together)
            try:
                paid = paid_guarantee(cast("Any", found), held)
            except PrivacyError:
                return replace(found, state="not met", problem=_SAID["other"])
            if found.guarantee is None or claims_more(found.guarantee, paid):
                return replace(found, state="not met", problem=_SAID["more"])
            if found.kind == RESULT_FORMAT:
                # An audit is done here and now: a file that says so could be of another run, or
                # of before.
                audit = audit_run((self.folder / found.name).parent, ledger=self.ledger)
                wrong = audit.refuted or (bool(audit.reasons) and "run" in self.audits)
                state: _State = "not met" if wrong else "warning" if audit.reasons else "met"
                why = " ".join(audit.reasons)
                return replace(found, audit=audit.verdict, state=state, problem=why)
            return found
        return replace(found, state="not met", problem=_SAID["foreign"])


@dataclass(frozen=True)
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
        whole = read_ledger(ledger, given=True)
        names = whole.data_sets or (whole.data,)
        views = [_View.of(name, whole.about(name)) for name in names]
        rows = {row.digest for view in views for row in view.ledger.rows}
        if policy is not None and policy.head is not None and policy.head not in rows:
            raise LedgerDamaged(
                f"{ledger.name} does not contain the head that {policy.name} notes: rows were cut "
                "off or an older copy was put back. Nothing was checked."
            )
        audits = () if policy is None else policy.audits
        files = tuple(_Inventory(folder=folder, ledger=ledger, views=views, audits=audits))
        accounts = {view.data: _totals(view) for view in views}
        clauses: list[_Clause] = []
        if policy is None:
            absent = "none was given, so no limit was checked"
            clauses.append(_Clause("policy", "one", absent, "warning"))
        elif audits and not any(each.kind == RESULT_FORMAT for each in files):
            clauses.append(_Clause("audits", "run", "no run is in the folder", "warning"))
        simulated = False
        for view in views:
            data, allowed = view.data, "the operating system's"
            seeded = [
                row.release_id
                for row, promise in view.told
                if promise.simulated or "simulated" in promise.caveats
            ]
            simulated |= bool(seeded)
            found = f"simulated: {_some(seeded)}" if seeded else allowed
            way = "Release it without a seed, on a ledger without simulations."
            clauses.append(_Clause.of(f"{data}: randomness", allowed, found, way, met=not seeded))
            clauses += _held(policy, view, accounts[data]) if policy is not None else ()
            here = {name for each in files for name in each.release_ids if each.data == data}
            if gone := sorted(view.outcomes.keys() - here):
                absent = f"not here: what {_some(gone)} paid for"
                clauses.append(_Clause(f"{data}: files", "all here", absent, "warning"))
        checked = (tuple(clauses), files, strict, simulated)
        return cls(policy, ledger.name, whole.head, accounts, *checked)

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
