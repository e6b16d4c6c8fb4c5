"""A run's certificate, derived anew from its ledger and its files.

``sordino align`` says what its result promises and what paid for it. Here every such sentence is
checked against the ledger, by somebody who trusts neither the run nor whoever passed it on.
The files are read as they are: nothing in the folder changes, not even for a moment.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias, get_args

from sordino import _validate
from sordino._files import IN_TURN, SQLITE, beginning, explained, parsed, read_json, sha256_of
from sordino.algorithms.planning import PLAN, PLAN_FORMAT, PLAN_VERSION
from sordino.algorithms.policy_optimization import FORMAT as POLICY_FORMAT
from sordino.algorithms.policy_optimization import POLICY
from sordino.algorithms.policy_optimization import VERSION as POLICY_VERSION
from sordino.algorithms.policy_optimization import Run as TrainedPolicy
from sordino.auditing.findings import ATTACKS, Audit, Finding
from sordino.certificates import (
    CERTIFICATE_FORMAT,
    CERTIFICATE_VERSION,
    Certificate,
    claims_more,
    ledger_of,
    paid_guarantee,
)
from sordino.engines.exchange import passing_folder
from sordino.errors import (
    DataError,
    FileSystemError,
    LedgerDamaged,
    LedgerError,
    LedgerMismatch,
    PrivacyError,
    UsageError,
)
from sordino.language.models.promises import (
    CERTIFICATE_FILE,
    PROMISE_FILE,
    PROMISED,
    Answers,
    CheckpointPromise,
    checkpoint_files,
    is_checkpoint,
)
from sordino.policies.gibbs import ConfidencePolicy, gibbs_policy
from sordino.preferences.records import LABELS
from sordino.privacy import ledger_chain
from sordino.privacy.books import DataSets
from sordino.privacy.guarantee import CAVEATS, Guarantee, Unit, float_to_json, never_less
from sordino.privacy.ledger import Head, Ledger
from sordino.privacy.ledger_chain import LEDGER, digest_of_json, ledger_of_run, promise_of
from sordino.rewards.leaderboard import BOARD, BOARD_FORMAT, BOARD_VERSION, Board
from sordino.rewards.model import REWARD_FORMAT, REWARD_VERSION, RewardModel

from .claims import (
    StatedMechanism,
    check_board,
    check_mechanism,
    check_plan,
    check_policy,
    check_training,
    text_of,
)

RESULT, REWARD = "result.json", "reward.json"
RESULT_FORMAT = "sordino.result"
RESULT_VERSION = 1
_PROBLEM = "This run cannot be used"
_KINDS = ("reward", "policy", "leaderboard", "model")  # of what is certified; the last on a hub
_CONFIG = "config.json"
_DRAWS = {"sordino.bandit", "sordino.intrinsic"}
_NOT_OURS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    UsageError,
    ValueError,
)


Certified: TypeAlias = RewardModel | Board | TrainedPolicy


class _File(NamedTuple):
    """What lies beside ``result.json``, and holds what was released."""

    name: str
    shown_as: str  # the field of the result that stands there with no other file
    seal: str  # the field that has its SHA-256
    model: type[Certified]
    form: str
    version: int


_FILES = (
    _File(BOARD, "leaderboard", "leaderboard_sha256", Board, BOARD_FORMAT, BOARD_VERSION),
    _File(POLICY, "trained", "policy_sha256", TrainedPolicy, POLICY_FORMAT, POLICY_VERSION),
    _File(REWARD, "reward", "reward_sha256", RewardModel, REWARD_FORMAT, REWARD_VERSION),
)


def _file_of(released: Certified) -> _File:
    return next(each for each in _FILES if isinstance(released, each.model))


def _shown_in(result: Mapping[str, Any]) -> _File:
    return next((each for each in _FILES if each.shown_as in result), _FILES[-1])


def released_by(path: Path, told: Mapping[str, Any]) -> Certified | None:
    """Return what a file of a run says was released, or the one beside it; None of other files."""
    if told["format"] == RESULT_FORMAT:
        path = path.with_name(_shown_in(told).name)
        return _shown_in(told).model.load(path)
    if told["format"] == PLAN_FORMAT:  # made of the reward beside it
        return RewardModel.load(path.with_name(REWARD))
    return next((each.model.load(path) for each in _FILES if each.form == told["format"]), None)


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """What a run says of itself, field by field; whether it is true is another question."""

    claim: Guarantee  # the promise in `result.json`
    certificate: Certificate  # the certificate in `result.json`
    reward: Certified  # in the file beside `result.json`
    reward_sha256: str  # SHA-256 of that file, as `result.json` states it
    found_sha256: str  # SHA-256 of it as it lies on disk
    digest: str  # SHA-256 of the artifact, made anew of that file and the policy's settings
    stated: StatedMechanism  # the mechanism and the numbers, as `result.json` states them
    spent: Mapping[Unit, Mapping[str, Any]]  # what all releases are said to promise a unit
    plan: Mapping[str, Any] | None = None  # what `plan.json` holds, if it was planned with it
    beside: str = ""  # files in the folder that would be used, and that are of another run

    @classmethod
    def read(cls, folder: Path) -> StoredRun:
        """Return what ``result.json`` and the file beside it in a folder say."""
        result = read_result(folder)
        shown = _shown_in(result)
        path = folder / shown.name
        values = read_json(path, kind=shown.form, version=shown.version, problem=_PROBLEM)
        others = [each.name for each in _FILES if each is not shown] + [PROMISE_FILE]
        beside = ", ".join(name for name in others if (folder / name).is_file())
        found = cls.of(result, values, shown.model.load(path), sha256_of(path))
        found = replace(found, beside=beside)
        if "plan" not in result and not (folder / PLAN).is_file():
            return found
        terms: dict[str, Any] = {"kind": PLAN_FORMAT, "version": PLAN_VERSION}
        return replace(found, plan=read_json(folder / PLAN, **terms, problem=_PROBLEM))

    @property
    def file(self) -> str:
        """Return the name of the file beside ``result.json``."""
        return _file_of(self.reward).name

    @property
    def promises(self) -> dict[str, Guarantee]:
        """Return what is promised, by who says it; the claim first."""
        certified = self.certificate.guarantee
        return {RESULT: self.claim, "the certificate": certified, self.file: self.reward.guarantee}

    @classmethod
    def of(
        cls,
        result: Mapping[str, Any],
        values: Mapping[str, Any],
        reward: Certified,
        found_sha256: str,
    ) -> StoredRun:
        """Return what the two files hold, the second also as the reward that it describes."""
        with malformed(RESULT):
            certificate = _certificate(result["certificate"])
            # The reward enters as it stands in its file: read back and written again, a file of an
            # older version would become one of this version, with another digest.
            artifact = values
            if isinstance(reward, Board) is not (certificate.artifact == "leaderboard"):
                raise TypeError
            if certificate.artifact == "policy" and not isinstance(reward, TrainedPolicy):
                told = result["policy"]
                own = {} if told["kind"] == "gibbs" else {"kind", "confidence", "scale"}
                settings = {name: told[name] for name in ("temperature", *own)}
                assert isinstance(reward, RewardModel)  # noqa: S101 - for the type checker
                policy = (ConfidencePolicy if own else gibbs_policy)(reward, **settings)
                artifact = policy.to_dict() | {"reward": values}
            return cls(
                claim=Guarantee.from_dict(result["guarantee"], _texts(result["caveats"])),
                certificate=certificate,
                reward=reward,
                reward_sha256=text_of(result[_file_of(reward).seal]),
                found_sha256=found_sha256,
                digest=digest_of_json(artifact),
                stated=StatedMechanism.read(result),
                spent={unit: dict(result["spent"][unit]) for unit in get_args(Unit)},
            )


def _certificate(signed: Mapping[str, Any]) -> Certificate:
    """Return what a certificate says; one of ``_NOT_OURS`` where it is malformed."""
    version = _validate.integer("version", signed["version"], at_least=1)
    if signed["format"] != CERTIFICATE_FORMAT:
        raise TypeError
    if version > CERTIFICATE_VERSION:
        raise DataError(
            f"{_PROBLEM}: its certificate was written by a newer sordino (version "
            f"{version}; this one reads up to {CERTIFICATE_VERSION}). Upgrade sordino."
        )
    ledger, total = signed["ledger"], signed["ledger"]["total"]
    rows = _validate.integer("rows", ledger["rows"], at_least=1)
    return Certificate(
        artifact=_validate.one_of("artifact", signed["artifact"], _KINDS),
        digest=text_of(signed["digest"]),
        guarantee=Guarantee.from_dict(signed["guarantee"], _texts(signed["caveats"])),
        data=text_of(signed["data"]),
        release_ids=tuple(_texts(signed["release_ids"])),
        ledger_head=Head(text_of(ledger["head"]), rows),
        ledger_total=None
        if total is None
        else Guarantee.from_dict(total, _texts(total["caveats"])),
    )


@dataclass(frozen=True, kw_only=True)
class _StoredCheckpoint:
    """What a folder of weights says of itself, as a run does."""

    claim: Guarantee  # the promise in `sordino.json`
    certificate: Certificate | None  # in `certificate.json`, if it was certified
    reward: CheckpointPromise  # the releases behind the weights
    marked: CheckpointPromise | None  # the promise in `config.json`, which goes with the weights
    digest: str  # SHA-256 of the names of the files and of their own
    changed: tuple[str, ...]  # files that are not those that `sordino.json` speaks for
    file = PROMISE_FILE
    spent: ClassVar[Mapping[Unit, Mapping[str, Any]]] = {}

    @property
    def promises(self) -> dict[str, Guarantee]:
        """Return what is promised, by who says it; the claim first."""
        signed, marked = self.certificate, self.marked
        certified = {} if signed is None else {"the certificate": signed.guarantee}
        return {
            self.file: self.claim,
            **certified,
            **({} if marked is None else {_CONFIG: marked.guarantee}),
        }

    @classmethod
    def read(cls, folder: Path) -> _StoredCheckpoint:
        """Return what the files in a folder say."""
        (values, changed, found), config = checkpoint_files(folder), folder / _CONFIG
        signed = folder / CERTIFICATE_FILE
        with malformed(PROMISE_FILE):
            sources = tuple(map(Answers.from_dict, values["sources"]))
            terms = {"kind": values["kind"], "training": dict(values["training"])}
            promise = CheckpointPromise(sources=sources, **terms)
            claim = Guarantee.from_dict(values["guarantee"], _texts(values["caveats"]))
        with malformed(_CONFIG):  # adapters alone have none
            mark = json.loads(config.read_bytes()).get(PROMISED) if config.is_file() else None
            marked = CheckpointPromise.from_dict(mark) if mark else None
        with malformed(CERTIFICATE_FILE):
            there = signed.is_file()
            certificate = _certificate(parsed(signed.read_bytes())) if there else None
        return cls(
            claim=claim,
            certificate=certificate,
            reward=promise,
            marked=marked,
            digest=digest_of_json(found),
            changed=tuple(changed),
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
        other = False  # whether it is no database, or a readable one without the table of a ledger
        if given:
            other = beginning(copy, len(SQLITE)) != SQLITE
            query = "SELECT count(*) FROM sqlite_master WHERE name = 'rows'"
            with suppress(LedgerError), ledger_chain.connect_reader(copy) as connection:
                other = other or bool(connection.execute(query).fetchone() == (0,))
        if other:
            raise UsageError(
                f"{path.name} is no ledger, so nothing was audited. Give the ledger of this run: "
                "ledger=... (--ledger), by convention a file named *.db."
            )
        found = Ledger.read(copy)
        named = (json.loads(row.payload).get("persons") for row in found.rows)
        found.rosters.of(filter(None, named))  # while the copy is there
        return found


def _snapshot(path: Path) -> dict[str, bytes]:
    """Return the ledger and the rows that wait beside it, as they were at one moment."""
    # Two looks in a row that see the same saw what was there between them. SQLite can be killed at
    # any moment, so what was there at one moment is a whole ledger.
    before: dict[str, bytes] = {}
    for _ in range(100):  # at a ledger that does not stand still
        if (after := _look(path)) == before:
            return after
        before = after
    raise LedgerError(f"{path.name} is being written all the time. Nothing was audited; try again.")


def _look(path: Path) -> dict[str, bytes]:
    with IN_TURN:
        found = {"": path.read_bytes()}
        with suppress(FileNotFoundError):
            found["-wal"] = path.with_name(f"{path.name}-wal").read_bytes()
    return found


_REPORT = "report.html"
_OURS = {RESULT, _REPORT, PROMISE_FILE, PLAN, *(each.name for each in _FILES)}
_RAW = ("chosen", "rejected", "label", LABELS)
_KEY = re.compile(rb'"(?:' + "|".join(_RAW).encode() + rb')"\s*:')
_SEPARATORS = re.compile(r"[,\t;|]")

_HEAD = 1 << 16
_MOST_FILES = 1000
_TAG = re.compile(r"<[^<>]*>")  # without "<" inside: each is looked at once
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_EPSILON = re.compile(r"ε = (\d+(?:\.\d+)?)(?![\d.,]| ×)")
_PLAIN = (1e-3, 1e4)  # where numbers are written without powers of ten and separators
_DIGITS = 4  # of a bound on the page


def _check_report(folder: Path, claim: Guarantee, heads: Iterable[str] | None) -> Finding:
    """Return whether the page of a run says what the run promises."""
    # Only what every version of the page says is looked for, so most of what is missing is a
    # warning; a page that hides a simulation refutes.
    if not (folder / _REPORT).is_file():
        return Finding.skipped("report", f"There is no {_REPORT}.")
    with explained(f"{_REPORT} cannot be read"):
        page = (folder / _REPORT).read_bytes().decode(errors="replace")
    words = " ".join(html.unescape(_TAG.sub(" ", page)).split())
    if claim.simulated and "SIMULATED" not in words:
        return Finding.judged("report", wrong=True)
    missing = []
    size = _EPSILON.search(words)  # the first is the promise, later ones are the budget's
    right = size and float(size[1]) == float(never_less(claim.epsilon, _DIGITS))
    if _PLAIN[0] <= claim.epsilon < _PLAIN[1] and not right:
        if size and float(size[1]) < claim.epsilon:
            return Finding.judged("report", wrong="less")
        missing.append("the epsilon")
    if claim.change not in words.lower() or claim.neighbors.name not in words:
        missing.append("the unit")
    if any(" ".join(CAVEATS[name].split()) not in words for name in claim.caveats):
        missing.append("every caveat")
    if heads is not None and not set(heads) & set(_DIGEST.findall(words)):
        missing.append("a ledger head")  # of those that the ledger had since the run
    return Finding.judged("report", odd=bool(missing), missing=", ".join(missing))


def _check_strays(folder: Path) -> Finding:
    """Return whether raw judgments lie beside a run, by their first bytes, or a ledger's secret."""
    # At most a thousand files, also in folders below, and 64 KiB of each are looked at.
    entries = list(islice(_files(folder), _MOST_FILES + 1))
    more, looked_at = len(entries) > _MOST_FILES, entries[:_MOST_FILES]
    found = sorted(str(path.relative_to(folder)) for path in looked_at if _is_raw(path))
    odd = "odd" if found else ""
    if not found:
        # The store of answers holds digests of ids that anybody can make, and answers beside them.
        secrets = [
            path
            for path in looked_at
            if path.name.endswith(".secret") or path.parts[-2:] == (LEDGER.parent.name, "secret")
        ]
        stores = {path.parent for path in looked_at if path.parent.suffix == ".memo"}
        found = sorted(str(path.relative_to(folder)) for path in (*secrets, *stores))
        odd = "secrets" if found else ""
    some: dict[str, object] = {"files": found[:10], "count": len(found)}
    details = some if found else {"looked_at": len(looked_at)}
    where = "among the first thousand " if more else ""
    return Finding.judged("strays", odd=odd, details=details, where=where)


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
    head = beginning(path, _HEAD)
    if head.startswith(SQLITE):
        return False
    # Or the first line of a table does.
    line = head.partition(b"\n")[0].decode("utf-8-sig", errors="replace")
    columns = {name.strip().strip('"').lower() for name in _SEPARATORS.split(line)}
    return bool(_KEY.search(head)) or not columns.isdisjoint(_RAW)


_LINKED = "largest_person_labels"  # of an entry whose answers are stored by person and question
_OF_PAYMENT = ("totals", "claim", "caveats", "mechanism")


def audit_run(folder: str | Path, *, ledger: str | Path | None = None) -> Audit:
    """Return whether a run's or a checkpoint's claim follows from its ledger and files; only reads.

    Guarantee:
        Whoever makes the promise or the mechanism look stronger, drops a caveat, or changes the
        reward, the policy's settings, a digest or an entry, without changing everything that
        depends on it, is refuted, and so is a number of a curator's run that nothing paid for.
        What the run measured (accuracies, win rates, charts, counts) is not computed again.
        Of a checkpoint, weights are known by the SHA-256 of their files. Somebody who forges the
        ledger and the run together is not caught: note the head elsewhere when a run ends. Shown by
        tests/soundness/test_run_audit.py, tests/soundness/test_central_run_audit.py and
        tests/language/test_checkpoint_audit.py.
    """
    folder = Path(folder)
    trained = is_checkpoint(folder) and not (folder / RESULT).is_file()
    run = _StoredCheckpoint.read(folder) if trained else StoredRun.read(folder)
    path = ledger_of_run(folder) if ledger is None else Path(ledger)
    heads = None  # the digests of the rows from the certificate's head on
    lacks: tuple[str, ...] = ()
    lost = ("head", "entries", *_OF_PAYMENT, "budget")
    findings = [_check_digests(run)]
    try:
        there = ledger is not None or path.is_file()
        case = _Case.of(run, read_ledger(path, given=ledger is not None)) if there else None
    except LedgerDamaged as error:
        findings += [
            Finding.judged("chain", wrong=True, details={"problem": str(error)}),
            *(Finding.skipped(name, ATTACKS["chain"]["unsupported"]) for name in lost),
        ]
    else:
        # An earlier run may have left a ledger in the folder of a run that spent elsewhere: it says
        # nothing about this one.
        if case is None or (ledger is None and case.is_of_another_run):
            said = ATTACKS["chain"]["absent" if case is None else "of_another_run"]
            lacks = (said.format(name=path.name),)
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
        findings=(*findings, _check_report(folder, run.claim, heads), _check_strays(folder)),
        lacks=lacks,
    )


@dataclass(frozen=True, kw_only=True)
class _Case:
    """A run beside its ledger."""

    run: StoredRun | _StoredCheckpoint  # what the run says
    ledger: Ledger  # the ledger as it is now
    position: int | None  # number of rows up to the certificate's head; None if the ledger lacks it
    then: Ledger  # the ledger as it was at that head; as it is now if it lacks it
    # What the entries behind the reward promise together; None if nothing shows that they paid.
    paid: Guarantee | None
    problem: str  # why nothing shows it

    @classmethod
    def of(cls, run: StoredRun | _StoredCheckpoint, ledger: Ledger) -> _Case:
        signed = run.certificate
        with suppress(LedgerMismatch):
            ledger = ledger_of(run.reward, ledger) if signed is None else ledger.about(signed.data)
        ledger = ledger.counting(run.claim.unit)
        digests = [row.digest for row in ledger.rows]
        head = signed and signed.ledger_head.digest
        position = digests.index(head) + 1 if head in digests else None
        then = ledger if position is None else ledger.with_rows(ledger.rows[:position])
        paid, problem = None, ""
        try:
            for one in getattr(run.reward, "sources", ()):  # each release behind a checkpoint
                paid_guarantee(one, ledger_of(one, then))
            paid = paid_guarantee(run.reward, then)
        except (PrivacyError, UsageError) as error:
            problem = str(error) or "Nothing shows that the entries paid."
        return cls(run=run, ledger=ledger, position=position, then=then, paid=paid, problem=problem)

    @property
    def is_of_another_run(self) -> bool:
        """Return whether the ledger knows neither the head nor any entry of the run."""
        signed = self.run.certificate
        named = {*self.run.reward.release_ids, *(signed.release_ids if signed else ())}
        known = (row.release_id for row in self.ledger.rows)
        return self.position is None and named.isdisjoint(known)


def _supported(case: _Case) -> Iterator[Finding]:
    """Yield what every check of an intact ledger found."""
    run, certificate, rows = case.run, case.run.certificate, case.ledger.rows
    yield Finding.judged("chain", rows=len(rows))
    if certificate is None:
        yield Finding.skipped("head", "uncertified")
    else:
        yield _check_head(case, certificate)
    yield _check_digests(run)
    # Whether the named entries are there and paid, once, for these answers.
    named = set(run.reward.release_ids)
    entries = [case.problem] if case.paid is None else []
    if certificate is not None and set(certificate.release_ids) != named:
        entries.append(f"The certificate and {run.file} name different entries.")
    if isinstance(run, _StoredCheckpoint):  # the weights themselves may say it
        marks = () if run.marked is None else (run.marked,)
        more = run.reward.with_those_of(*marks).sources != run.reward.sources
        entries += [f"{_CONFIG} speaks of more releases than {PROMISE_FILE}."] if more else []
    # Of stored answers all entries have what was made of them as an outcome.
    told = [(row, json.loads(row.payload)) for row in case.then.rows]
    stored = {row.release_id for row, said in told if _LINKED in (said.get("details") or {})}
    for one in (run.reward, *getattr(run.reward, "sources", ())):
        same = {row.release_id for row, said in told if said.get("artifact") == one.artifact}
        if stored & {*one.release_ids} and not stored & same <= {*one.release_ids}:
            entries.append(f"More entries paid for these answers than {run.file} names.")
    draws = Counter(row.release_id for row in rows if row.kind == "commit")
    if any(draws[name] > 1 for name in named):
        entries.append("An entry that paid for one draw was used for several.")
    yield Finding.judged("entries", wrong=" ".join(entries))
    if case.paid is None:
        yield from (Finding.skipped(name, ATTACKS["entries"]["unpaid"]) for name in _OF_PAYMENT)
    else:
        if certificate is None:
            yield Finding.skipped("totals", ATTACKS["head"]["uncertified"])
        else:
            yield _check_totals(case, certificate, case.paid)
        yield from _check_promises(run, case.paid)
        yield _check_origin(case, case.paid)
    yield _check_budget(case.ledger)


def _check_origin(case: _Case, paid: Guarantee) -> Finding:
    """Return whether what is described, and all that is told, is what the entries paid for."""
    run, held = case.run, case.then
    paying = [row for row in held.rows if row.release_id in run.reward.release_ids]
    if isinstance(run, _StoredCheckpoint):
        own = [row for row in paying if row.release_id in run.reward.sources[0].release_ids]
        return check_training(run.reward.training.get("privacy"), paid, own)
    if isinstance(run.reward, Board):
        return check_board(run.stated, paid, paying, held.rosters, board=run.reward)
    if isinstance(run.reward, TrainedPolicy):
        with malformed(RESULT):
            return check_policy(run.stated.result, paid, held, run.reward)
    found = check_mechanism(run.stated, paid, paying, reward=run.reward)
    if run.plan is not None:
        with malformed(PLAN):
            return check_plan(found, run.stated.result.get("plan"), run.plan, run.reward)
    return found


def _check_head(case: _Case, certificate: Certificate) -> Finding:
    """Return whether the ledger was as the certificate says, and is about the same data."""
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
    return Finding.judged(
        "head",
        wrong=" ".join(head),
        details={"position": case.position, "rows": len(case.ledger.rows)},
    )


def _check_digests(run: StoredRun | _StoredCheckpoint) -> Finding:
    """Return whether the reward and the policy are those that were certified."""
    if isinstance(run, _StoredCheckpoint):
        names, certified = ", ".join(run.changed), run.certificate and run.certificate.digest
        wrong = f"{PROMISE_FILE} speaks for other bytes, or for other files: {names}. "
        other = f"The files are not those that {CERTIFICATE_FILE} certifies."
        return Finding.judged(
            "digests",
            wrong=(wrong if names else "") + (other if certified not in {None, run.digest} else ""),
            clear="weights",
        )
    # The certificate binds what the file says; the SHA-256 in the result binds how it is written.
    return Finding.judged(
        "digests",
        wrong=run.digest != run.certificate.digest or (run.beside and "beside"),
        odd=run.found_sha256 != run.reward_sha256,
        beside=run.beside,
        file=run.file,
        artifact=run.certificate.artifact,
        result=RESULT,
    )


def _check_totals(case: _Case, certificate: Certificate, paid: Guarantee) -> Finding:
    """Return whether the certificate's sizes are at least what the ledger composes to."""
    stated, wrong, odd = certificate.guarantee, [], ""
    if claims_more(replace(paid, epsilon=stated.epsilon, delta=stated.delta), paid):
        wrong.append("The certificate states less than its entries spent.")
    told, total = certificate.ledger_total, case.then.total()
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
            if case.run.spent and case.run.spent[unit] != account.to_dict()
        ]
    also = ", and the ledger's total" if case.position else ""
    return Finding.judged(
        "totals",
        wrong=" ".join(wrong),
        odd=odd,
        also=also,
        details={
            f"{which}_{name}": float_to_json(getattr(guarantee, name))
            for which, guarantee in (("stated", stated), ("composed", paid))
            for name in ("epsilon", "delta")
        },
    )


def _check_promises(run: StoredRun | _StoredCheckpoint, paid: Guarantee) -> Iterator[Finding]:
    """Yield whether the promise is nowhere stronger than what was paid, and no caveat missing."""
    stated = run.promises
    stronger = [
        name
        for name, claim in stated.items()  # caveats are a check of their own
        if claims_more(replace(claim, caveats=paid.caveats, randomness=paid.randomness), paid)
    ]
    same = run.certificate is None or run.claim == run.certificate.guarantee
    yield Finding.judged(
        "claim",
        wrong=bool(stronger),
        odd="" if same else "differs",
        clear="same",
        stronger=", ".join(stronger),
        first=next(iter(stated)),
    )
    silent = [
        name
        for name, claim in stated.items()
        if claims_more(replace(paid, caveats=claim.caveats, randomness=claim.randomness), paid)
    ]
    yield Finding.judged(
        "caveats",
        wrong=bool(silent),
        odd=paid.simulated and not silent,
        silent=", ".join(silent),
        details={"paid": list(paid.caveats), "randomness": paid.randomness},
    )


def _check_budget(ledger: Ledger) -> Finding:
    """Return whether the total was within the budget after every spend, row by row."""
    # A budget that was lowered below what was spent before forbids the next spend, not the last.
    sets = DataSets([], ledger.rosters)
    for row in ledger.rows:
        sets.take(row)
        said = json.loads(row.payload)
        if row.kind != "reserve" and not (row.kind == "receive" and "persons" in said):
            continue
        promise = promise_of(row)
        if not all(books.fits(promise, said.get("persons")) for books in sets.of(row.data)):
            return Finding.judged("budget", wrong=True, details={"row": row.sequence})
    return Finding.judged("budget")
