"""Invitations; and randomized answers, into the database and out of it as a file.

An invitation is a link that nobody can guess, for one device of one person. A token is stored as a
digest, so a copy of the database invites nobody. The person behind it gets a random id when the
link is first opened, and only the invitation leads to that id. How far a study has come is told by
counts of invitations, people and answers: nothing of any person, and no count depends on what
anybody answered.

What the page sends is checked, and stored once for each (person, question), never above the cap.
In a file lines stand in the order of the questions and then of random person ids, so that nothing
tells who answered first. What is written is private already: whoever has it learns from it for
nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final, NamedTuple, get_args

from sqlalchemy import (
    Connection,
    Engine,
    Executable,
    Row,
    String,
    bindparam,
    cast,
    delete,
    func,
    insert,
    select,
    update,
)

from sordino import _random, _validate
from sordino._files import atomic_draft, clear, refuse_output, sha256_of, to_json
from sordino.collection.arena import Chooser
from sordino.collection.database import (
    ANSWERS,
    INVITATIONS,
    PERSONS,
    QUESTIONS,
    failing,
    reading,
    rewrite,
    sorted_anew,
    take_turn,
)
from sordino.collection.refusals import REFUSALS, Refusal
from sordino.collection.study import AHEAD, Ask, Question, Study, sent_question
from sordino.errors import DataError, UsageError
from sordino.preferences.files import choice_line, line_of
from sordino.preferences.pairs import Manifest, manifest_path, stem
from sordino.preferences.records import Absent, Names, Text
from sordino.privacy.guarantee import Unit
from sordino.privatization.answers import manifest_of

_MOST_DAYS: Final = 3_650
_MOST: Final = 100_000  # invitations at once
ENDED: Final = 0  # when an invitation expired that a restore ended: no new link is made of it
_HANDLE: Final = 16  # hexadecimal digits by which an organizer names an invitation


def digest_of_secret(study: Study, kind: str, secret: str) -> str:
    """Return under what a token or a device's secret is stored: of this study and no other."""
    # A secret has 256 bits of entropy, so that a fast digest is as good as a slow one.
    return hashlib.sha256(f"{study.id} {kind} {secret}".encode()).hexdigest()


def handle_of(study: Study, token: str) -> str:
    """Return the name of an invitation, which invites nobody."""
    return digest_of_secret(study, "invitation", token)[:_HANDLE]


def invite(engine: Engine, study: Study, *, count: int, days: float) -> list[str]:
    """Return new tokens, which are stored nowhere; those of an open study are for any device."""
    count = _validate.integer("count", count, at_least=1, at_most=_MOST)
    expires = _end_of(days)
    tokens = [_random.new_token() for _ in range(count)]
    digests = [digest_of_secret(study, "invitation", token) for token in tokens]
    made = insert(INVITATIONS).values(expires=expires, revoked=False)
    rows = [{"token": one, "parent": one if study.open else None} for one in digests]
    _write(engine, [made.values(row) for row in rows], "No invitation was made.")
    return tokens


def _end_of(days: float) -> int:
    """Return when an invitation ends that is made now."""
    if not _validate.positive("days", days) <= _MOST_DAYS:
        raise UsageError(f"days must be at most {_MOST_DAYS}, got {days!r}.")
    return _random.seconds_since_1970() + round(days * 86_400)


def _write(engine: Engine, statements: Iterable[Executable], otherwise: str) -> int:
    """Carry out statements, all or none; return how many rows the last one touched."""
    problem, touched = f"The database cannot be written ({{}}). {otherwise}", 0
    with failing(problem), engine.begin() as connection:
        take_turn(connection)
        for statement in statements:
            touched = connection.execute(statement).rowcount
    return touched


def revoke(engine: Engine, handles: Sequence[str]) -> None:
    """Withdraw invitations, and who joined with them, for good; what was answered stays."""
    found = _named(engine, handles, "None was withdrawn.")
    named = INVITATIONS.c.token.in_(found) | INVITATIONS.c.parent.in_(found)
    chosen = update(INVITATIONS).where(named).values(revoked=True)
    _write(engine, [chosen], "None was withdrawn.")


def reissue(engine: Engine, study: Study, handle: str, *, days: float) -> str:
    """Withdraw an invitation and return the token of a new one for the same person.

    Guarantee:
        The person, their cap and what is stored stay. From this transaction on the device that had
        the old link stores nothing, and one that opens the new link is told what is stored: of two
        coins for one question at most one ever is. Shown by tests/soundness/test_moving.py.
    """
    otherwise = "The invitation is as it was."
    (old,) = _named(engine, [handle], otherwise)
    with reading(engine) as connection:
        row = connection.execute(select(INVITATIONS).where(INVITATIONS.c.token == old)).one()
    if row.expires == ENDED or row.parent == old:
        raise UsageError(f"This link is for anybody, or ended with a restore. {otherwise}")
    token, expires = _random.new_token(), _end_of(days)
    new = digest_of_secret(study, "invitation", token)
    person = select(INVITATIONS.c.person).where(INVITATIONS.c.token == new).scalar_subquery()
    _write(
        engine,
        [
            update(INVITATIONS)
            .where(INVITATIONS.c.token == old)
            .values(token=new, expires=expires, revoked=False),
            insert(INVITATIONS).values(token=old, expires=expires, revoked=True),
            update(PERSONS).where(PERSONS.c.id == person).values(device=None, moving=None),
        ],
        otherwise,
    )
    return token


def _named(engine: Engine, handles: Sequence[str], otherwise: str) -> list[str]:
    """Return the digests of the tokens that handles name."""
    with reading(engine) as connection:
        known = list(connection.execute(select(INVITATIONS.c.token)).scalars())
    found = []
    for handle in handles:
        wanted = handle.strip().lower()
        matches = [token for token in known if len(wanted) >= _HANDLE and token.startswith(wanted)]
        if len(matches) != 1:
            raise DataError(
                f"{handle!r} names {len(matches)} invitations. {otherwise} `sordino "
                "collect status STUDY --invitations` lists the handles."
            )
        found.append(matches[0])
    return found


def forget(engine: Engine) -> int:
    """Drop every link from an invitation to a person, and every device; return how many links."""
    # Nobody can send answers after that, and nobody who holds the database can tell who gave which,
    # or who came first. What browsers called their answers and the order in which somebody was
    # asked go as well; an export needs neither.
    with reading(engine) as connection:
        linked = select(func.count()).where(INVITATIONS.c.person.is_not(None))
        links = int(connection.execute(linked).scalar_one())
    dropped = [
        update(PERSONS).values(device=None, moving=None, questions="[]"),
        update(ANSWERS).values(id=""),
        delete(INVITATIONS),
    ]
    _write(engine, sorted_anew(engine, dropped), "Every link is still there.")
    rewrite(engine)
    return links


def states(engine: Engine) -> list[dict[str, object]]:
    """Return handle, state and expiry of every invitation; not who or what is behind it."""
    with reading(engine) as connection:
        rows = connection.execute(select(INVITATIONS).order_by(INVITATIONS.c.token)).all()
    now, found = _random.seconds_since_1970(), []
    for row in rows:
        state = _end(row, now) or ("made" if row.person is None else "opened")
        found.append({"handle": row.token[:_HANDLE], "state": state, "expires": row.expires})
    return found


def _end(row: Row[Any], now: int) -> str:
    """Return why an invitation can no longer be used; an empty text if it can."""
    return "revoked" if row.revoked else "expired" if row.expires <= now else ""


def _refuse_withdrawn(row: Row[Any]) -> None:
    """Refuse an invitation that was revoked or has expired, by the clock of the service."""
    end = _end(row, _random.seconds_since_1970())
    if end:
        raise Refusal(f"invitation-{end}")


def invitation_of(connection: Connection, study: Study, token: str) -> Row[Any]:
    """Return an invitation that can be used; refuse another one."""
    invited = INVITATIONS.c.token == digest_of_secret(study, "invitation", token)
    row = connection.execute(select(INVITATIONS).where(invited)).first()
    if row is None:
        raise Refusal("unknown-invitation")
    _refuse_withdrawn(row)
    return row


class Opened(NamedTuple):
    """What a device is told of the person who has it."""

    questions: list[str]  # in this person's order
    expires: int  # when the invitation ends
    stored: list[dict[str, object]]  # which questions are answered, and how often; never what


def open_invitation(
    connection: Connection, study: Study, chooser: Chooser, *, token: str, device: str
) -> Opened:
    """Return what a person is asked, and bind the invitation to the first device that opens it."""
    # Its memory of what it answered keeps a question from being answered by two coins.
    row = invitation_of(connection, study, token)
    digest = digest_of_secret(study, "device", device)
    public, name = row.parent == row.token, row.token
    if public:  # each device that joins has a row of its own
        name = digest_of_secret(study, "invitation", _random.new_token())
        joined = INVITATIONS.join(PERSONS, INVITATIONS.c.person == PERSONS.c.id)
        mine = (INVITATIONS.c.parent == row.token) & (PERSONS.c.device == digest)
        before = select(INVITATIONS).select_from(joined).where(mine)
        row = connection.execute(before).first() or row
        _refuse_withdrawn(row)
    if row.person is not None:
        person = connection.execute(select(PERSONS).where(PERSONS.c.id == row.person)).one()
        if person.device is None:  # a new link for somebody whose device is lost
            if study.feedback:  # only the lost device knows what it tossed coins for
                raise Refusal("invitation-in-use")
            _bind(connection, row.person, digest)
        elif person.device != digest:
            raise Refusal("invitation-in-use")
        return _opened(connection, person, row.expires)
    _refuse_bound(connection, digest)
    persons = connection.execute(select(func.count()).select_from(PERSONS)).scalar_one()
    if public and persons >= study.most_persons:
        raise Refusal("study-full")
    # Where questions come with answers, nobody is asked any.
    most = min(AHEAD, study.most_questions) if study.chooses else study.most_questions
    questions = [] if study.feedback else chooser.choose(connection, (), most)
    person_id = _random.new_release_id() + _random.new_release_id()
    values = {"id": person_id, "device": digest, "questions": json.dumps(questions)}
    connection.execute(insert(PERSONS), values)
    if public:
        one = {"expires": row.expires, "revoked": False, "parent": row.token}
        connection.execute(insert(INVITATIONS).values(one | {"token": name}))
    invited = INVITATIONS.c.token == name
    connection.execute(update(INVITATIONS).where(invited).values(person=person_id))
    return Opened(questions, row.expires, [])


def _refuse_bound(connection: Connection, digest: str) -> None:
    """Refuse a device that answers for somebody already."""
    if connection.execute(select(PERSONS.c.id).where(PERSONS.c.device == digest)).first():
        raise Refusal("invitation-in-use")


def _bind(connection: Connection, person: str, digest: str) -> None:
    """Let a device answer for a person: from now on this one, and no other."""
    _refuse_bound(connection, digest)
    bound = {"device": digest, "moving": None}
    connection.execute(update(PERSONS).where(PERSONS.c.id == person).values(bound))


def _opened(connection: Connection, person: Row[Any], expires: int) -> Opened:
    questions = json.loads(person.questions)
    query = select(ANSWERS.c.question, ANSWERS.c.revision).where(ANSWERS.c.person == person.id)
    given = {row.question: row.revision for row in connection.execute(query)}
    stored = [{"question": one, "revision": given[one]} for one in questions if one in given]
    return Opened(questions, expires, stored)


class _Submitted(NamedTuple):
    """One randomized answer as it arrived."""

    id: str  # what the page calls it; the same answer is sent again under the same id
    question: str  # which question it answers
    revision: int  # 1, or more where a mind was changed and the study takes that
    answer: int  # randomized: 1 for the first answer of two, or a yes, else 0; of a few, which one


# Statements of every submit are built once: that costs more than what they do. What a person gave
# comes with the person, as each statement is a way to the server and back. Nothing is locked:
# `take_turn` lets one transaction write at a time.
_NAMES: Final = ANSWERS.c.id + " " + ANSWERS.c.question + " "
_GIVEN: Final = _NAMES + cast(ANSWERS.c.revision, String) + " " + cast(ANSWERS.c.answer, String)
_PERSON: Final = select(
    PERSONS,
    INVITATIONS.c.expires,
    INVITATIONS.c.revoked,
    select(func.aggregate_strings(_GIVEN, ","))
    .where(ANSWERS.c.person == PERSONS.c.id)
    .scalar_subquery()
    .label("given"),
).join(INVITATIONS, INVITATIONS.c.person == PERSONS.c.id)
_PERSONS: Final = {
    name: _PERSON.where(PERSONS.c[name] == bindparam("digest")) for name in ("device", "moving")
}


def _person_with(connection: Connection, **digest: str) -> Row[Any] | None:
    """Return the person of a device or a code who may go on, with what they gave."""
    ((name, value),) = digest.items()
    row = connection.execute(_PERSONS[name], {"digest": value}).first()
    if row is not None:
        _refuse_withdrawn(row)
    return row


_CODE_DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # none looks like another

STEPS: Final = ("code", "stay", "look")
"""What a device that moves asks for: a code, to take it back, or whether it was used."""


def code_of(secret: bytes) -> str:
    """Return the first 60 bits of a secret as 12 digits that people can type."""
    bits = int.from_bytes(secret[:8], "big") >> 4
    return "".join(_CODE_DIGITS[bits >> 5 * place & 31] for place in range(12))


def prepare_move(
    connection: Connection, study: Study, *, device: str, step: str, code: str
) -> None:
    """Keep the digest of a code by which another device takes over, or take it back."""
    person = _person_with(connection, device=digest_of_secret(study, "device", device))
    if person is None:
        raise Refusal("unknown-device")
    if step != "look":
        moving = digest_of_secret(study, "code", code) if step == "code" else None
        chosen = update(PERSONS).where(PERSONS.c.id == person.id)
        connection.execute(chosen.values(moving=moving))


def claim(connection: Connection, study: Study, *, code: str, fresh: bool, device: str) -> Opened:
    """Bind a new device in place of the one that showed a code, and return what that one knew.

    Guarantee:
        In one transaction the old device is unbound and the code used up. Shown by
        tests/soundness/test_moving.py.
    """
    digest = digest_of_secret(study, "device", device)
    # A device that did not hear the answer asks again; the code is used up by then.
    person = _person_with(connection, device=digest)
    if person is not None:
        return _opened(connection, person, person.expires)
    shown = digest_of_secret(study, "code", code)
    person = _person_with(connection, moving=shown) if fresh and not study.feedback else None
    if person is None:
        raise Refusal("unknown-code")
    _bind(connection, person.id, digest)
    return _opened(connection, person, person.expires)


def _with_questions(engine: Engine, study: Study) -> Study:
    """Return a study with its questions, also where they came with answers."""
    if not study.feedback:
        return study
    with reading(engine) as connection:
        rows = connection.execute(select(QUESTIONS.c.content)).scalars()
        found = [sent_question(json.loads(row), study.levels) for row in rows]
    return replace(study, questions=tuple(sorted(found, key=lambda question: question.id)))


_SHOWN: Final = 80  # characters of a prompt


Foresee = Callable[[int], tuple[float, float]]
"""From a number of labels to the accuracy and the standard error that they are good for."""


def progress_of(engine: Engine, study: Study, foresee: Foresee | None = None) -> dict[str, object]:
    """Return what an organizer is shown of a study."""
    # Of `invitations`, `made` counts all, `opened` those that a device has opened, `revoked` and
    # `expired` those that can no longer be used. A study is `closed` when no invitation is left
    # that could.
    study = _with_questions(engine, study)
    now = _random.seconds_since_1970()
    per_question = select(ANSWERS.c.question, func.count()).group_by(ANSWERS.c.question)
    may_send = ~INVITATIONS.c.revoked & (INVITATIONS.c.expires > now)
    of_open = select(func.count()).where(ANSWERS.c.person == INVITATIONS.c.person, may_send)
    with reading(engine) as connection:
        rows = connection.execute(select(INVITATIONS)).all()
        given = int(connection.execute(of_open).scalar_one())
        counts = {question: int(n) for question, n in connection.execute(per_question)}
        persons = connection.execute(select(func.count(ANSWERS.c.person.distinct()))).scalar_one()
    ends = Counter(_end(row, now) for row in rows)
    here = sum(counts.values())
    coming = max(0, ends[""] * study.most_questions - given)
    return {
        "title": study.title,
        "study": study.id,
        "epsilon": study.epsilon,
        "flip_probability": study.coin.flip_probability,
        "cap": study.most_labels,
        "person_epsilon": study.guarantee("person").epsilon,
        "questions": len(study.questions),
        "invitations": {
            "made": sum(row.parent in {None, row.token} for row in rows),
            "opened": sum(row.person is not None for row in rows),
            "revoked": ends["revoked"],
            "expired": ends["expired"],
        },
        "answers": here,
        "persons": int(persons),
        "per_question": [
            {"id": asked.id, "prompt": _start(asked.prompt), "answers": counts.get(asked.id, 0)}
            for asked in study.questions
        ],
        "closed": not ends[""],
        "minimum": study.minimum,
        "forecast": _forecast(study, foresee, now=here, minimum=study.minimum, all=here + coming),
    }


def _forecast(study: Study, foresee: Foresee | None, **answers: int) -> list[dict[str, object]]:
    """Return what answers to pairs are good for, from their number alone."""
    pairs = sum(question.ask == "pair" for question in study.questions)
    found = []
    for when, count in answers.items():
        if foresee and (labels := count * pairs // max(1, len(study.questions))):
            accuracy, error = foresee(labels)
            told = {"when": when, "answers": labels}
            found.append(told | {"accuracy": accuracy, "standard_error": error})
    return found


def has_too_few(engine: Engine, study: Study) -> bool:
    """Return whether fewer answers are stored than the study wants at least."""
    with reading(engine) as connection:
        count = connection.execute(select(func.count()).select_from(ANSWERS)).scalar_one()
    return int(count) < study.minimum


def _start(prompt: Text) -> str:
    """Return the beginning of a prompt on one line; of messages, of the last one."""
    text = prompt if isinstance(prompt, str) else prompt[-1]["content"] if prompt else ""
    line = " ".join(text[: 4 * _SHOWN].split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


_AT_ONCE: Final = 100  # questions whose answers are in memory
_NAME: Final = Path("answers.jsonl")
_KINDS: Final = {ask: "choice" if ask == "ranking" else ask for ask in get_args(Ask)}


def files_of(study: Study, out: Path) -> dict[str, Path]:
    """Return the file of each kind of answers; one kind alone has the name that was given."""
    # One die answers choices and rankings, of which no file tells which was which.
    kinds = dict.fromkeys(_KINDS[question.ask] for question in study.questions)
    if len(kinds) <= 1:
        return dict.fromkeys(kinds, out)
    end = ".jsonl.gz" if out.name.endswith(".gz") else ".jsonl"
    return {kind: out.with_name(f"{stem(out)}.{kind}{end}") for kind in kinds}


def export_answers(
    engine: Engine,
    study: Study,
    out: Path,
    *,
    unit: Unit,
    force: bool = False,
    accept_few: bool = False,
) -> dict[Path, Manifest]:
    """Write the answers of a study, one file for each kind, and return what each manifest says.

    Guarantee:
        That of :meth:`Study.guarantee`; nothing is drawn and nothing is spent here. What is
        promised to a person is for all files together. Shown by
        tests/unit/collection/test_exporting.py and tests/soundness/test_collection.py.
    """
    if not out.name.endswith((".jsonl", ".jsonl.gz")):
        raise UsageError(
            "Answers are JSON Lines: give a name that ends in .jsonl or .jsonl.gz. Nothing was "
            "done."
        )
    study = _with_questions(engine, study)
    paths, made = files_of(study, out), dict[Path, Manifest]()
    for path in paths.values():
        for name in (path, manifest_path(path)):
            refuse_output(name, force=force)
    if not accept_few and has_too_few(engine, study):
        raise DataError(
            f"Fewer than {study.minimum:,} answers have arrived, which the study wants at least. "
            "Nothing was written. Wait for more, or say --accept-few."
        )
    with ExitStack() as drafts, closing(_lines(engine, study)) as lines:
        for kind, some in groupby(lines, key=itemgetter(0)):
            path = paths[kind]
            draft = drafts.enter_context(atomic_draft(path, force=force))
            note = drafts.enter_context(atomic_draft(manifest_path(path), force=force))
            draft.file.writelines(line for _, line in some)
            draft.finish()
            mechanism = study.mechanisms[kind == "choice"]
            promise = study.guarantee(unit)  # to a person, what all files promise
            if unit == "label":
                promise = replace(promise, epsilon=mechanism.realized_epsilon)
            made[path] = manifest_of(mechanism, promise, sha256_of(draft.path), study.id)
            note.file.write(to_json(made[path].to_dict()).encode())
            note.finish()
        for path in made:
            clear(path, force=force)  # no moment with a file and another's manifest
    return made


def export_zip(engine: Engine, study: Study, *, unit: Unit) -> bytes:
    """Return the same files, promised as they are, in a zip archive that holds no time."""
    whole = io.BytesIO()
    with TemporaryDirectory() as folder, zipfile.ZipFile(whole, "w") as archive:
        made = export_answers(engine, study, Path(folder) / _NAME, unit=unit, accept_few=True)
        for path in (name for one in made for name in (one, manifest_path(one))):
            archive.writestr(archive_entry(path.name), path.read_bytes())
    return whole.getvalue()


def archive_entry(name: str) -> zipfile.ZipInfo:
    """Return a file of an archive, without the time at which it was made."""
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _lines(engine: Engine, study: Study) -> Generator[tuple[str, bytes]]:
    """Yield every answer as a line with its kind, kind by kind, of one state of the database."""
    one = select(ANSWERS.c.question, func.count()).group_by(ANSWERS.c.question)
    given = select(func.count().label("given")).select_from(ANSWERS).group_by(ANSWERS.c.person)
    with reading(engine) as connection:
        counts = {question: int(count) for question, count in connection.execute(one)}
        if not counts:
            raise DataError("There are no answers yet. Nothing was written.")
        most = connection.execute(select(func.max(given.subquery().c.given))).scalar_one()
        if study.feedback:  # what comes in the meantime is for the next file
            counts = {name: count for name, count in counts.items() if name in study.by_id}
        if counts.keys() - {asked.id for asked in study.questions} or most > study.most_labels:
            raise DataError(
                "The database holds answers that this study does not take: to questions that it "
                "does not ask, or more of one person than its cap. Nothing was written."
            )
        for kind in files_of(study, _NAME):
            asked = [one for one in study.questions if _KINDS[one.ask] == kind]
            for at in range(0, len(asked), _AT_ONCE):
                for line in _answers(connection, study, asked[at : at + _AT_ONCE]):
                    yield kind, line


def _answers(
    connection: Connection, study: Study, questions: Sequence[Question]
) -> Iterator[bytes]:
    """Yield the answers to some questions, in the order of these and then of person ids."""
    places = {question.id: place for place, question in enumerate(questions)}
    columns = (ANSWERS.c.question, ANSWERS.c.person, ANSWERS.c.answer)
    rows = connection.execute(select(*columns).where(ANSWERS.c.question.in_(places)))
    for place, person, answer in sorted((places[row[0]], row[1], row[2]) for row in rows):
        asked = questions[place]
        if asked.ask in {"choice", "ranking"}:
            yield choice_line(asked.prompt, asked.answers, answer, person, asked.names)
            continue
        first, *others = asked.answers
        named = [*(asked.names or ()), ""]
        names = Names(named[0], named[1], asked.family) if asked.names else None
        second = others[0] if others else Absent(asked.family)
        levels = study.levels if asked.ask == "rating" else None
        yield line_of(asked.prompt, first, second, answer, person, levels, names)


MOST_ANSWERS: Final = 50
"""Answers in one request."""

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_QUESTION: Final = re.compile(r"[0-9a-f]{32}\Z")


def read_submission(body: object, study: Study) -> tuple[_Submitted, ...]:
    """Return the answers of a request."""
    keys = {"study", "answers"} | ({"questions"} if study.feedback else set())
    has = body if isinstance(body, Mapping) and body.keys() == keys else {}
    name, answers = has.get("study"), has.get("answers")
    few = isinstance(answers, list) and 1 <= len(answers) <= MOST_ANSWERS
    if not isinstance(name, str) or not isinstance(answers, list) or not few:
        raise Refusal("bad-request")
    if not all(map(_is_answer, answers)):
        raise Refusal("bad-request")
    if name != study.id:
        raise Refusal("wrong-study")
    found = tuple(_Submitted(**value) for value in answers)
    for one in found:
        question = study.by_id.get(one.question)
        if one.answer >= (question.outcomes if question else 2):
            raise Refusal("bad-request")
    return found


def read_sent_questions(body: Mapping[str, object], study: Study) -> dict[str, Question]:
    """Return the questions of a request by their ids, without what is none."""
    sent = body.get("questions", []) if study.feedback else []
    if not isinstance(sent, list) or len(sent) > MOST_ANSWERS:
        raise Refusal("bad-request")
    found: dict[str, Question] = {}
    for value in sent:
        with suppress(DataError):  # an answer to it is refused as one to no question
            question = sent_question(value, study.levels)
            found[question.id] = question
    return found


def _is_answer(value: object) -> bool:
    if not isinstance(value, Mapping) or value.keys() != set(_Submitted._fields):
        return False
    texts = ((value["id"], _ID), (value["question"], _QUESTION))
    numbers = ((value["revision"], 1, 1_000_000), (value["answer"], 0, 9))
    return all(isinstance(text, str) and form.match(text) for text, form in texts) and all(
        type(n) is int and low <= n <= high for n, low, high in numbers
    )


def _refusal(study: Study, new: _Submitted, stored: Mapping[str, _Submitted]) -> str | None:
    """Return why an answer to a question is not stored; None if it is, or was before."""
    if any(old.id == new.id and old != new for old in stored.values()):
        return "id-reused"
    old = stored.get(new.question)
    if old is not None and (old == new or new.revision < old.revision):
        return None  # stored before; a later one may have taken its place
    # An answer that would be a release of its own.
    latest = 0 if old is None else old.revision
    reasons = {
        "already-answered": new.revision == latest,
        "revision-skipped": new.revision > latest + 1,
        "changes-refused": latest > 0 and study.changes != "paid",
        "cap-reached": _spent(stored) >= study.most_labels,
    }
    return next((code for code, applies in reasons.items() if applies), None)


_ADD: Final = insert(ANSWERS)


def store(
    connection: Connection,
    study: Study,
    chooser: Chooser,
    device: str,
    answers: tuple[_Submitted, ...],
    sent: Mapping[str, Question] = MappingProxyType({}),
) -> dict[str, Any]:
    """Store what can be stored, and return what the page is told."""
    # `sent` are the questions themselves, of a study whose questions come with their answers.
    row = _person_with(connection, device=digest_of_secret(study, "device", device))
    if row is None:
        raise Refusal("unknown-device")
    given = json.loads(row.questions)
    asked = {*given, *sent}
    fields = [text.split(" ") for text in (row.given or "").split(",") if text]
    known = {name: _Submitted(id_, name, int(k), int(y)) for id_, name, k, y in fields}
    refused = []
    for answer in answers:
        code: str | None = "unknown-question"
        if answer.question in asked:
            code = _refusal(study, answer, known)
        old = known.get(answer.question)
        if code is not None:
            refused.append({"id": answer.id, "code": code, "message": REFUSALS[code].message})
        elif old is None or answer.revision > old.revision:
            # Write one answer, in the place of an earlier one of the same person if there is one.
            values = {"revision": answer.revision, "id": answer.id, "answer": answer.answer}
            if old is not None:
                same = (ANSWERS.c.person == row.id) & (ANSWERS.c.question == answer.question)
                connection.execute(update(ANSWERS).where(same).values(values))
            else:
                keys = {"person": row.id, "question": answer.question}
                connection.execute(_ADD, keys | values)
                if answer.question in sent:
                    _keep(connection, sent[answer.question])
            known[answer.question] = answer
    # Where questions are chosen as people answer, whoever has too few in hand gets more. They are
    # told again until they are answered: a reply may be lost.
    open_ones = [name for name in given if name not in known] if study.chooses else []
    wanted = min(AHEAD - len(open_ones), study.most_questions - len(given))
    more = chooser.choose(connection, given, wanted) if study.chooses and wanted > 0 else []
    if more:
        asking = update(PERSONS).where(PERSONS.c.id == row.id)
        connection.execute(asking.values(questions=json.dumps([*given, *more])))
    without = {each["id"] for each in refused}
    stored = [answer.id for answer in answers if answer.id not in without]
    # What is shown to somebody who is done, whatever they answered.
    done = len(known) >= study.most_questions or study.most_labels <= _spent(known)
    told = {"code": study.completion_code, "url": study.return_url}
    return {
        "stored": stored,
        "refused": refused,
        "spent": _spent(known),
        "questions": [*open_ones, *more],
        "completion": told if done and any(told.values()) else None,
    }


def _spent(given: Mapping[str, _Submitted]) -> int:
    """Return how many labels a person gave: each change of mind was one more."""
    return sum(one.revision for one in given.values())


def _keep(connection: Connection, question: Question) -> None:
    """Store a question that came with an answer, once; not who answered it, or when."""
    same = select(QUESTIONS.c.id).where(QUESTIONS.c.id == question.id)
    if connection.execute(same).first() is None:
        row = {"id": question.id, "asked": 0, "content": json.dumps(question.to_dict())}
        connection.execute(insert(QUESTIONS).values(row))
