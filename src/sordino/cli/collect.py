"""``sordino collect``: ask people, whose choices are randomized on their own device."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, cast
from urllib.parse import urlsplit

import numpy as np
import typer

from sordino._files import atomic_draft, explained, refuse_output, refuse_unwritable, write_text
from sordino._random import new_token
from sordino.collection.study import (
    FEEDBACK,
    Study,
    new_study,
    read_languages,
    read_page,
    read_study,
)
from sordino.errors import DataError, FileSystemError, UsageError
from sordino.preferences.pairs import manifest_path
from sordino.privacy.guarantee import (
    REPLACE_ONE,
    WEAKEST_EPSILON,
    Guarantee,
    never_less,
    never_more,
)
from sordino.rewards import forecast
from sordino.runs.settings import (
    Argument,
    Json,
    Option,
    Output,
    Unit,
    collection_module,
    refuse_records,
    terms_of,
)

from . import COMMANDS, app, command, finish, grid

_LOOPBACK: Final = {"localhost", "::1"}
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_OTHERS: Final = 0o077  # what group and others may do
_DIMENSION: Final = 12  # as `sordino estimate` assumes
_MOST_ODDS: Final = 999  # beyond it almost any belief can become almost certain

collect = typer.Typer(help=COMMANDS["collect"], no_args_is_help=True)
app.add_typer(collect, name="collect")

_StudyFile = Annotated[Path, Argument("The study file (.toml).", metavar="STUDY")]


@contextmanager
def opened(study: Study, *, create: bool = False, empty: bool = False) -> Iterator[Any]:
    """Yield the engine of a study's database, of this study and no other; ``create`` begins it."""
    read_languages(study)  # before anybody is invited
    database = collection_module("database")
    engine = database.open_database(study.database_url)
    try:
        yield engine if empty else database.frozen(engine, study, create=create)
    finally:
        engine.dispose()  # the last connection folds SQLite's log into its one file


def _checked_url(url: str) -> str:
    """Return an address of the page, without a slash at its end; refuse what is none."""
    known, more = False, ""
    with suppress(ValueError):
        parts = urlsplit(url.strip())
        more = parts.query + parts.fragment
        known = parts.scheme in {"http", "https"} and parts.port != 0 and bool(parts.hostname)
    if more or not known:
        raise UsageError(
            "--url must be like https://study.example.org, or https://example.org/study where the "
            "page is mounted there. Nothing was done."
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _is_loopback(host: str) -> bool:
    return host in _LOOPBACK or host.startswith("127.")


@contextmanager
def _secret_file(path: Path | None, *, force: bool) -> Iterator[BinaryIO | None]:
    """Yield a file that only its owner may read, which appears on success; None for no path."""
    # It is made that way: there is no moment at which others could open it.
    if path is None:
        yield None
        return
    with ExitStack() as stack:
        before = os.umask(_OTHERS)
        try:
            draft = stack.enter_context(atomic_draft(path, force=force))
        finally:
            os.umask(before)
        yield draft.file


def admin_token(path: Path | None) -> str:
    """Return the token of the admin view: of a file, which is made if it is not there, or new."""
    if path is None:
        return new_token()
    with explained(f"{path.name} cannot be read"):
        if not path.exists():
            token = new_token()
            with _secret_file(path, force=False) as file:
                cast("BinaryIO", file).write(f"{token}\n".encode())
            return token
        open_to_others = os.name == "posix" and path.stat().st_mode & _OTHERS
        token = path.read_bytes().decode(errors="replace").strip()
    if open_to_others:
        raise DataError(
            f"{path.name} may be read or written by others than you, so its token is no secret. "
            f"Nothing was done. Delete it, and a new one is made; or, if nobody has read it: "
            f"chmod 600 {path.name}"
        )
    if not _TOKEN.match(token):
        raise DataError(
            f"{path.name} holds no admin token: 43 letters, digits, '-' or '_'. Nothing was done. "
            "Name a file that is not there, and one is made."
        )
    return token


def _study_values(study: Study) -> dict[str, Any]:
    return {"study": study.id, "title": study.title, "questions": len(study.questions)}


def _promise_values(study: Study) -> dict[str, Any]:
    person = study.guarantee("person")
    return {
        "epsilon": study.epsilon,
        "flip_probability": study.coin.flip_probability,
        "cap": study.most_labels,
        "person_epsilon": person.epsilon,
        "changes": study.changes,
        "trust": person.trust,
        "caveats": list(person.caveats),
    }


def promise_rows(study: Study) -> dict[str, str]:
    """Return what a study promises in lines for people; no number is rounded in its favor."""
    flips = study.coin.flip_probability
    person = study.guarantee("person")
    answer = study.coin.guarantee(unit="label", neighbors=REPLACE_ONE, trust="local")
    return {
        "each answer": f"epsilon={never_less(study.epsilon)}; {_reach(answer)}",
        "flipped": f"{never_more(100 * flips, 3)}% of the answers "
        f"(about 1 in {never_less(1 / flips, 3)}), by a coin on the person's own device",
        "one invitation": f"at most {study.most_labels:,} answers, "
        f"epsilon={never_less(person.epsilon)} together; {_reach(person)}",
        "a changed mind": "is not taken: the first answer stands"
        if study.changes == "refused"
        else "is a new answer that costs another epsilon, within the same cap",
        "caveats": ", ".join(person.caveats) or "none",
    }


def _reach(promise: Guarantee) -> str:
    """Return how far a promise lets odds and beliefs move, rounded up."""
    if promise.odds > _MOST_ODDS:
        return "too much to protect a person's taste as a whole"
    belief = never_less(100 / (1 + 1 / promise.odds), 3)
    factor = never_less(promise.odds, 3)
    return f"odds move by at most {factor} times, a belief of 50 % to {belief} %"


@dataclass(frozen=True, kw_only=True)
class _Init(Output):
    """What a new study asks, and what it promises."""

    path: _StudyFile
    title: str = Option("What people read at the top of the page.", "Which answer is better?")
    questions: Path | None = Option(
        "JSON Lines with prompt, first, second. Without it questions.jsonl beside the study, "
        "which is filled with examples if it is not there. `feedback` instead of a file: questions "
        "come with their answers, from a chat that shows the widget.",
        metavar="FILE",
    )
    open: bool = Option(
        "One public link for any number of devices, of which each counts as a person.", False
    )
    epsilon: float = Option("Privacy loss allowed for one answer.", 1.0)
    cap: int = Option("The most answers per invitation.", 20, min=1)
    accept_weak: bool = Option(
        f"Go on although epsilon is above {WEAKEST_EPSILON:g} for one answer, or for all of an "
        "invitation together. Page, study and exports then say so.",
        False,
    )


@command(collect, _Init)
def init(settings: _Init) -> None:
    """Write a study file, and say what it promises to the people who will be asked."""
    path, force = settings.path, settings.force
    if path.suffix != ".toml":
        raise UsageError("STUDY must be a name that ends in .toml. Nothing was done.")
    refuse_output(path, force=force)
    database = path.with_suffix(".db")
    if database.exists():
        raise UsageError(
            f"{database.name} is there already: it belongs to an earlier study, whose promise may "
            "not change. Nothing was done. Choose another name for the new study."
        )
    refuse_unwritable(path)
    file = settings.questions or path.with_name("questions.jsonl")
    made = settings.questions is None and not file.exists()
    feedback = settings.questions == Path(FEEDBACK)
    try:
        if made:
            # harmless, and people differ about them
            examples = resources.files("sordino.collection") / "examples.jsonl"
            write_text(file, examples.read_text(encoding="utf-8"))
        study = terms_of(settings, new_study, questions=file)
    except BaseException:
        if made:
            file.unlink(missing_ok=True)
        raise
    number, notes = len(study.questions), []  # what to know before anybody is invited
    if made:
        notes.append(f"{file.name} holds {number} examples: replace them by your own questions.")
    elif settings.questions is None:
        notes.append(f"{file.name} was there already and is used.")
    if study.cap > number and not feedback:
        notes.append(
            f"cap is {study.cap:,} and there are {number:,} questions: nobody is asked more than "
            f"{number:,}, and the promise counts {number:,}."
        )
    value = {**_study_values(study), **_promise_values(study), "examples": made, "notes": notes}
    shown = {
        "written": f"{path.name}{f' and {file.name}' if made else ''}",
        "questions": "those that come with answers" if feedback else f"{number:,}, public",
        **promise_rows(study),
        **{f"note {place}": note for place, note in enumerate(notes, start=1)},
        "next": f"edit {path.name}, then: sordino collect invite {path.name}"
        + " --count 10" * (not study.open),
    }
    finish("sordino collect init", shown, value, as_json=settings.as_json)


@dataclass(frozen=True, kw_only=True)
class _Invite(Output):
    path: _StudyFile
    count: int = Option("How many people; of an open study there is one public link.", 10, min=1)
    url: str = Option("Where people will find the page.", "http://127.0.0.1:8000")
    days: float = Option("How long an invitation lasts.", 30.0)
    out: Path | None = Option(
        "File for the links, which only you can read (mode 600).", metavar="FILE"
    )


@command(collect, _Invite)
def invite(settings: _Invite) -> None:
    """Make links for people, shown once; the first invitation freezes the study."""
    out, days, address = settings.out, settings.days, _checked_url(settings.url)
    if out is not None:
        refuse_output(out, force=settings.force)
    study = read_study(settings.path)
    count = 1 if study.open else settings.count
    answers = collection_module("answers")
    with opened(study, create=True) as engine, _secret_file(out, force=settings.force) as file:
        tokens = answers.invite(engine, study, count=count, days=days)
        links = {answers.handle_of(study, token): f"{address}/#{token}" for token in tokens}
        lines = [f"{handle} {link}\n" for handle, link in links.items()]
        if file is not None:
            file.write("".join(lines).encode())
    shown = [{"handle": handle} | ({} if out else {"link": link}) for handle, link in links.items()]
    rows = {
        "invitations": f"{count:,}, for any number of devices, for {days:g} days; each device is a "
        f"person with a cap of its own, at most {study.most_persons:,} in all"
        if study.open
        else f"{count:,}, each for one person on one device, for {days:g} days",
        "links": "below: handle and link; they are shown once and stored nowhere"
        if out is None
        else f"in {out.name}: handle and link; they are stored nowhere else",
        "next": (
            "put the link, or the token after #, where people find it"
            if study.open
            else "send each link to one person"
        )
        + f"; sordino collect serve {settings.path.name}",
    }
    value = {**_study_values(study), "invitations": shown, "days": days}
    finish("sordino collect invite", rows, value, as_json=settings.as_json)
    if out is None and not settings.as_json:
        sys.stdout.writelines(lines)
    if address.startswith("http://") and not _is_loopback(urlsplit(address).hostname or ""):
        _warn_of_plain_http()


def _warn_of_plain_http() -> None:
    sys.stderr.write(
        "Warning: over plain http the page takes no answers, except on this machine itself. "
        "docs/howto/deploy_collection.md shows how to put TLS in front.\n"
    )


@dataclass(frozen=True, kw_only=True)
class _Revoke(Json):
    path: _StudyFile
    handles: list[str] = Argument("Names of invitations.", metavar="HANDLE...")


@command(collect, _Revoke)
def revoke(settings: _Revoke) -> None:
    """Withdraw invitations for good; what was answered with them stays."""
    study, handles = read_study(settings.path), settings.handles
    answers = collection_module("answers")
    with opened(study) as engine:
        answers.revoke(engine, handles)
    value = {**_study_values(study), "revoked": handles}
    rows = {"revoked": ", ".join(handles), "answers": "those that were sent before stay"}
    finish("sordino collect revoke", rows, value, as_json=settings.as_json)


@dataclass(frozen=True, kw_only=True)
class _Reissue(Json):
    path: _StudyFile
    handle: str = Argument("Name of an invitation.", metavar="HANDLE")
    url: str = Option("Where people will find the page.", "http://127.0.0.1:8000")
    days: float = Option("How long the new invitation lasts.", 30.0)


@command(collect, _Reissue)
def reissue(settings: _Reissue) -> None:
    """Withdraw an invitation whose device is lost, and make a link for the same person."""
    address, answers = _checked_url(settings.url), collection_module("answers")
    study = read_study(settings.path)
    with opened(study) as engine:
        token = answers.reissue(engine, study, settings.handle, days=settings.days)
    made = {"handle": answers.handle_of(study, token), "link": f"{address}/#{token}"}
    rows = {
        "withdrawn": f"{settings.handle}; its device can send no more",
        "answers": "those that were sent before stay, and count for the same person",
        **made,
    }
    value = {**_study_values(study), "withdrawn": settings.handle, **made}
    finish("sordino collect reissue", rows, value, as_json=settings.as_json)


def _foresee(study: Study) -> Callable[[int], tuple[float, float]]:
    """Return what so many labels of a study are good for, as `sordino estimate` foresees it."""

    def foresee(labels: int) -> tuple[float, float]:
        ways = forecast.estimate(
            labels, epsilon=study.epsilon, dimension=_DIMENSION, delta=0.0
        ).ways
        return ways["labels"].accuracy, ways["labels"].standard_error

    return foresee


@dataclass(frozen=True, kw_only=True)
class _Status(Json):
    path: _StudyFile
    invitations: bool = Option("Also list every invitation by its handle.", False)


@command(collect, _Status)
def status(settings: _Status) -> None:
    """Show how many people were invited and how many answers there are."""
    study = read_study(settings.path)
    module = collection_module("answers")
    with opened(study) as engine:
        told: dict[str, Any] = module.progress_of(engine, study, _foresee(study))
        listed = module.states(engine) if settings.invitations else []
    value = told | ({"invitation_states": listed} if settings.invitations else {})
    invitations, counts = told["invitations"], [row["answers"] for row in told["per_question"]]
    rows = {
        "title": told["title"],
        "study": told["study"],
        "questions": f"{told['questions']:,}",
        "invitations": f"{invitations['made']:,} made, {invitations['opened']:,} opened, "
        f"{invitations['revoked']:,} revoked, {invitations['expired']:,} expired",
        "answers": f"{told['answers']:,} of {told['persons']:,} people "
        "(whoever has two invitations counts as two)",
        "per question": f"{min(counts):,} to {max(counts):,} answers",
        "promise": f"epsilon={never_less(told['epsilon'])} an answer, "
        f"{never_less(told['person_epsilon'])} per invitation ({told['cap']:,} answers at most)",
        "caveats": ", ".join(study.guarantee("person").caveats) or "none",
    }
    for seen in told["forecast"]:
        rows[_WHEN[seen["when"]]] = (
            f"{seen['answers']:,} answers to pairs would predict {100 * seen['accuracy']:.1f}% of "
            f"new judgments, with a standard error of {seen['standard_error']:.2g} "
            f"(assumed: the truth predicts 65%, {_DIMENSION} directions; sordino estimate)"
        )
    if told["answers"] < study.minimum:
        rows["too few"] = f"the study wants at least {study.minimum:,} before they are exported"
    if told["closed"]:
        rows["closed"] = "no invitation is left with which anybody could send"
    finish("sordino collect status", rows, value, as_json=settings.as_json)
    if settings.invitations and not settings.as_json:
        minutes = [np.datetime64(row["expires"], "s").astype("datetime64[m]") for row in listed]
        until = [f"{minute} UTC".replace("T", " ", 1) for minute in minutes]
        states = [[r["handle"], r["state"], end] for r, end in zip(listed, until, strict=True)]
        grid("invitations", ("handle", "state", "until"), states)


_WHEN: Final = {"now": "now", "minimum": "at the minimum", "all": "if everybody goes on"}


@dataclass(frozen=True, kw_only=True)
class Export(Output):
    """What is written of the answers."""

    path: _StudyFile
    out: Path = Option("Answers to write (.jsonl, .jsonl.gz).", required=True, metavar="FILE")
    unit: Unit = Option("What the manifest speaks about: one person, or one label.", Unit.person)
    forget: bool = Option(
        "Afterwards drop every link from an invitation to answers. Nobody can send any more, "
        "and nobody can tell who gave which.",
        False,
    )
    accept_few: bool = Option("Write them though there are fewer than the study's minimum.", False)


@command(collect, Export)
def export(settings: Export) -> None:
    """Write the randomized answers with a manifest that says how they were randomized."""
    refuse_records(settings.unit)
    study, out, unit = read_study(settings.path), settings.out, settings.unit.whose
    answers = collection_module("answers")
    with opened(study) as engine:
        made = answers.export_answers(
            engine, study, out, unit=unit, force=settings.force, accept_few=settings.accept_few
        )
        links = answers.forget(engine) if settings.forget else None
    manifest = next(iter(made.values()))
    one = max(mechanism.realized_epsilon for mechanism in study.mechanisms)
    promise = study.guarantee(unit)
    value = {
        **promise.to_dict(),
        "caveats": list(promise.caveats),
        "files": {path.name: said.to_dict() for path, said in made.items()},
        "epsilon_per_label": one,
        "links_forgotten": links,
    }
    together = ", for all files together" if len(made) > 1 and manifest.unit == "person" else ""
    rows = {
        "written": "\n".join(f"{path.name} and {manifest_path(path).name}" for path in made),
        "guarantee": f"epsilon={never_less(promise.epsilon)} per {manifest.unit}"
        f"{together}, trust: {manifest.trust}",
    }
    if manifest.unit == "person":
        most = f"at most {study.most_labels:,} per invitation"
        rows["each answer"] = f"epsilon={never_less(one)}, {most}"
    rows["caveats"] = ", ".join(manifest.caveats) or "none"
    rows["next"] = f"sordino align {next(iter(made)).name} --out runs/study (it spends nothing)"
    if links is not None:
        rows["forgotten"] = f"{links:,} links to people; nobody can send answers any more"
    finish("sordino collect export", rows, value, as_json=settings.as_json)


@dataclass(frozen=True, kw_only=True)
class _Backup(Output):
    path: _StudyFile
    out: Path = Option("Backup to write (.zip), for you alone.", required=True, metavar="FILE")


@command(collect, _Backup)
def backup(settings: _Backup) -> None:
    """Write everything that is stored into one file, while the service runs."""
    study, out = read_study(settings.path), settings.out
    with opened(study) as engine, _secret_file(out, force=settings.force) as file:
        stored = collection_module("backup").write_backup(engine, study, file)
    rows = {
        "written": f"{out.name} (mode 600): {_counted(stored)}",
        "holds": "links from invitations to answers: delete it when you export with --forget",
    }
    value = {**_study_values(study), "rows": stored}
    finish("sordino collect backup", rows, value, as_json=settings.as_json)


@dataclass(frozen=True, kw_only=True)
class _Restore(Json):
    path: _StudyFile
    backup: Path = Argument("What `sordino collect backup` wrote.", metavar="FILE")
    nothing_since: bool = Option(
        "The service took nothing in after this backup, so devices may go on. Otherwise every "
        "invitation ends, since somebody could be asked twice what the backup does not know.",
        False,
    )


@command(collect, _Restore)
def restore(settings: _Restore) -> None:
    """Store what a backup holds in the empty database of the same study."""
    study, file = read_study(settings.path), settings.backup
    with opened(study, empty=True) as engine:
        terms = {"nothing_since": settings.nothing_since}
        stored = collection_module("backup").restore(engine, study, file, **terms)
    rows = {
        "restored": f"{file.name}: {_counted(stored)}",
        "lost": "nothing, as you say"
        if settings.nothing_since
        else "what was sent after it; every invitation is revoked: make new ones",
    }
    value = {**_study_values(study), "rows": stored}
    finish("sordino collect restore", rows, value, as_json=settings.as_json)


def _counted(stored: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {name.removeprefix('sordino_')}" for name, n in stored.items())


@dataclass(frozen=True, kw_only=True)
class _Doctor(Json):
    url: str = Argument("Where people find the page.", metavar="URL")
    study: Path | None = Option("The study that it must be of, with its words.", metavar="STUDY")
    probe: bool = Option(
        "Also send about 30 wrong secrets: can a sender forge an address, to guess on? This "
        "address is slowed down for a minute.",
        False,
    )


@command(collect, _Doctor)
def doctor(settings: _Doctor) -> None:
    """Check from outside what stands between people and a service; exit code 7 says a problem."""
    url, study = _checked_url(settings.url), settings.study and read_study(settings.study)
    found = collection_module("doctor").examine(url, study, probe=settings.probe)
    words = {True: "ok", False: "PROBLEM", None: "-"}
    rows = {one["check"]: f"{words[one['ok']]}: {one['found']}. {one['do']}" for one in found}
    finish("sordino collect doctor", rows, {"url": url, "checks": found}, as_json=settings.as_json)
    if False in (one["ok"] for one in found):
        raise typer.Exit(FileSystemError.exit_code)


@dataclass(frozen=True, kw_only=True)
class _Preview(Json):
    path: _StudyFile
    host: str = Option("Address to listen at.", "127.0.0.1")
    port: int = Option("Its port.", 8000, min=1, max=65535)

    @property
    def local(self) -> str:
        """Where a browser on this machine finds the page."""
        # a name, compared
        host = "127.0.0.1" if self.host in {"0.0.0.0", "::"} else self.host  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


@command(collect, _Preview)
def preview(settings: _Preview) -> None:
    """Show a study as people will see it; nothing is kept, sent or frozen (Ctrl-C ends it)."""
    study, service = read_study(settings.path), collection_module("service")
    app = service.make_preview(study)
    listening = service.listener(settings.host, settings.port)
    page = f"{settings.local}/?preview"
    rows = {"title": study.title, "page": page, **promise_rows(study)}
    value = {**_study_values(study), **_promise_values(study), "page": page}
    finish("sordino collect preview", rows, value, as_json=settings.as_json)
    sys.stdout.flush()
    service.serve(app, listening=listening)


@dataclass(frozen=True, kw_only=True)
class _Serve(_Preview):
    url: str | None = Option("Where people find the page, if elsewhere.")
    admin_token_file: Path | None = Option(
        "File with the token of the admin view; made (mode 600) if it is not there. Without "
        "it a new token each time.",
        metavar="FILE",
    )


@command(collect, _Serve)
def serve(settings: _Serve) -> None:
    """Deliver the page and take answers, until it is told to stop (Ctrl-C)."""
    host, url = settings.host, settings.url
    address = settings.local if url is None else _checked_url(url)
    study = read_study(settings.path)
    service = collection_module("service")
    with opened(study) as engine:
        token = admin_token(settings.admin_token_file)
        about = {
            "page": f"{address}/",
            "admin": f"{address}/admin",  # without the token: browsers keep addresses
            "admin_token": token,
            "page_sha256": read_page(read_languages(study)).digest,
        }
        rows = {
            "title": study.title,
            "people": f"{about['page']} (each with a link of their own: sordino collect invite)",
            "you": f"{about['admin']} (it asks for the admin token)",
            "admin token": token,
            **promise_rows(study),
            "page digest": about["page_sha256"],
        }
        value = {**_study_values(study), **_promise_values(study), **about}
        listening = service.listener(host, settings.port)
        finish("sordino collect serve", rows, value, as_json=settings.as_json)
        sys.stdout.flush()
        if url is None and not _is_loopback(host):
            _warn_of_plain_http()
        app = service.make_app(engine, study, admin_token=token, foresee=_foresee(study))
        service.serve(app, listening=listening)
