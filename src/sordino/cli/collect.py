"""``sordino collect``: ask people, whose choices are randomized on their own device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino._files import refuse_output, refuse_unwritable
from sordino.cli import _collect_parts as parts
from sordino.cli import _options as options
from sordino.cli._app import app
from sordino.cli._collect_examples import write_examples
from sordino.cli._collect_words import (
    export_rows,
    promise_rows,
    promise_values,
    status_rows,
    study_values,
)
from sordino.cli._console import finish, grid
from sordino.collection.study import Study, new_study, read_study
from sordino.errors import UsageError
from sordino.preferences.manifest import manifest_path

collect = typer.Typer(
    help="Ask people which of two answers is better; needs the extra 'collect'.",
    no_args_is_help=True,
)
app.add_typer(collect, name="collect")

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The study file (.toml).")]


@collect.command("init")
def init(
    path: StudyFile,
    title: Annotated[
        str, typer.Option("--title", help="What people read at the top of the page.")
    ] = "Which answer is better?",
    questions: Annotated[
        Path | None,
        typer.Option(
            "--questions",
            metavar="FILE",
            help="JSON Lines with prompt, first, second. Without it questions.jsonl beside the "
            "study, which is filled with examples if it is not there.",
        ),
    ] = None,
    epsilon: Annotated[
        float, typer.Option("--epsilon", help="Privacy loss allowed for one answer.")
    ] = 1.0,
    cap: Annotated[int, typer.Option("--cap", min=1, help="The most answers per invitation.")] = 20,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a study file, and say what it promises to the people who will be asked."""
    _refuse_study(path, force=force)
    file = questions or path.with_name("questions.jsonl")
    made = questions is None and not file.exists()
    try:
        if made:
            write_examples(file)
        study = new_study(path, title=title, questions=file, epsilon=epsilon, cap=cap, force=force)
    except BaseException:
        if made:
            file.unlink(missing_ok=True)
        raise
    notes = _notes(study, file, made=made, chosen=questions is not None)
    value = {**study_values(study), **promise_values(study), "examples": made, "notes": notes}
    rows = {
        "written": f"{path.name}{f' and {file.name}' if made else ''}",
        "questions": f"{len(study.questions):,}, public",
        **promise_rows(study),
        **{f"note {place}": note for place, note in enumerate(notes, start=1)},
        "next": f"edit {path.name}, then: sordino collect invite {path.name} --count 10",
    }
    finish("sordino collect init", rows, value, as_json=as_json)


def _refuse_study(path: Path, *, force: bool) -> None:
    """Refuse to write a study where one is, or where the answers of one are.

    Raises:
        UsageError: It exists, or its name ends otherwise, or a database is in its place.
        FileSystemError: It cannot be written.
    """
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


def _notes(study: Study, file: Path, *, made: bool, chosen: bool) -> list[str]:
    """Return what an organizer should know before anybody is invited."""
    notes = []
    number = len(study.questions)
    if made:
        notes.append(f"{file.name} holds {number} examples: replace them by your own questions.")
    elif not chosen:
        notes.append(f"{file.name} was there already and is used.")
    if study.cap > number:
        notes.append(
            f"cap is {study.cap:,} and there are {number:,} questions: nobody is asked more than "
            f"{number:,}, and the promise counts {number:,}."
        )
    return notes


@collect.command("invite")
def invite(
    path: StudyFile,
    count: Annotated[int, typer.Option("--count", min=1, help="How many people.")] = 10,
    url: Annotated[
        str, typer.Option("--url", help="Where people will find the page.")
    ] = "http://127.0.0.1:8000",
    days: Annotated[float, typer.Option("--days", help="How long an invitation lasts.")] = 30.0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="File for the links, which only you can read (mode 600)."
        ),
    ] = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Make links for people, shown once; the first invitation freezes the study."""
    address = parts.checked_url(url)
    if out is not None:
        refuse_output(out, force=force)
    study = read_study(path)
    invitations = parts.collection_module("invitations")
    with (
        parts.opened(study, create=True) as engine,
        parts.secret_file(out, force=force) as file,
    ):
        tokens = invitations.invite(engine, study, count=count, days=days)
        links = {invitations.handle_of(study, token): f"{address}/#{token}" for token in tokens}
        lines = [f"{handle} {link}\n" for handle, link in links.items()]
        if file is not None:
            file.write("".join(lines).encode())
    shown = [{"handle": handle} | ({} if out else {"link": link}) for handle, link in links.items()]
    rows = {
        "invitations": f"{count:,}, each for one person on one device, for {days:g} days",
        "links": "below: handle and link; they are shown once and stored nowhere"
        if out is None
        else f"in {out.name}: handle and link; they are stored nowhere else",
        "next": f"send each link to one person; sordino collect serve {path.name}",
    }
    value = {**study_values(study), "invitations": shown, "days": days}
    finish("sordino collect invite", rows, value, as_json=as_json)
    if out is None and not as_json:
        sys.stdout.writelines(lines)
    _warn_of_url(address)


def _warn_of_url(address: str) -> None:
    """Say so where browsers will not let the page work."""
    host = address.partition("://")[2].rpartition("@")[2]
    name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
    if address.startswith("http://") and not parts.is_loopback(name.strip("[]")):
        _warn_of_plain_http()


def _warn_of_plain_http() -> None:
    """Say on standard error what lacks without TLS."""
    sys.stderr.write(
        "Warning: over plain http the page takes no answers, except on this machine itself. "
        "docs/howto/deploy_collection.md shows how to put TLS in front.\n"
    )


@collect.command("revoke")
def revoke(
    path: StudyFile,
    handles: Annotated[
        list[str], typer.Argument(metavar="HANDLE...", help="Names of invitations.")
    ],
    as_json: options.AsJson = False,
) -> None:
    """Withdraw invitations for good; what was answered with them stays."""
    study = read_study(path)
    invitations = parts.collection_module("invitations")
    with parts.opened(study) as engine:
        invitations.revoke(engine, handles)
    value = {**study_values(study), "revoked": handles}
    rows = {"revoked": ", ".join(handles), "answers": "those that were sent before stay"}
    finish("sordino collect revoke", rows, value, as_json=as_json)


@collect.command("status")
def status(
    path: StudyFile,
    invitations: Annotated[
        bool, typer.Option("--invitations", help="Also list every invitation by its handle.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show how many people were invited and how many answers there are."""
    study = read_study(path)
    counting, links = map(parts.collection_module, ("progress", "invitations"))
    with parts.opened(study) as engine:
        told: dict[str, Any] = counting.progress_of(engine, study)
        listed = links.states(engine) if invitations else []
    value = told | ({"invitation_states": listed} if invitations else {})
    finish("sordino collect status", status_rows(told), value, as_json=as_json)
    if invitations and not as_json:
        rows = [[row["handle"], row["state"], parts.day(row["expires"])] for row in listed]
        grid("invitations", ("handle", "state", "until"), rows)


@collect.command("export")
def export(
    path: StudyFile,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Answers to write (.jsonl, .jsonl.gz).")
    ],
    unit: Annotated[
        options.Unit,
        typer.Option("--unit", help="What the manifest speaks about: one person, or one label."),
    ] = options.Unit.person,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Afterwards drop every link from an invitation to answers. Nobody can send any "
            "more, and nobody can tell who gave which.",
        ),
    ] = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Write the randomized answers with a manifest that says how they were randomized."""
    options.refuse_records(unit)
    study = read_study(path)
    exporting, invitations = map(parts.collection_module, ("exporting", "invitations"))
    with parts.opened(study) as engine:
        manifest = exporting.export_answers(engine, study, out, unit=unit.whose, force=force)
        links = invitations.forget(engine) if forget else None
    value = manifest.to_dict() | {
        "epsilon_per_label": study.coin.realized_epsilon,
        "links_forgotten": links,
    }
    rows = export_rows(manifest, study, name=out.name, note=manifest_path(out).name)
    if links is not None:
        rows["forgotten"] = f"{links:,} links to people; nobody can send answers any more"
    finish("sordino collect export", rows, value, as_json=as_json)


@collect.command("serve")
def serve(
    path: StudyFile,
    host: Annotated[str, typer.Option("--host", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Its port.")] = 8000,
    url: Annotated[
        str | None, typer.Option("--url", help="Where people find the page, if elsewhere.")
    ] = None,
    admin_token_file: Annotated[
        Path | None,
        typer.Option(
            "--admin-token-file",
            metavar="FILE",
            help="File with the token of the admin view; made (mode 600) if it is not there. "
            "Without it a new token each time.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Deliver the page and take answers, until it is told to stop (Ctrl-C)."""
    shown = host if host not in {"0.0.0.0", "::"} else "127.0.0.1"  # noqa: S104 (a name, compared)
    local = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"
    address = local if url is None else parts.checked_url(url)
    study = read_study(path)
    service, page = map(parts.collection_module, ("service", "page_files"))
    with parts.opened(study) as engine:
        token = parts.admin_token(admin_token_file)
        about = {
            "page": f"{address}/",
            "admin": f"{address}/admin",  # without the token: browsers keep addresses
            "admin_token": token,
            "page_sha256": page.read_page(page.read_languages(study)).digest,
        }
        rows = {
            "title": study.title,
            "people": f"{about['page']} (each with a link of their own: sordino collect invite)",
            "you": f"{about['admin']} (it asks for the admin token)",
            "admin token": token,
            **promise_rows(study),
            "page digest": about["page_sha256"],
        }
        value = {**study_values(study), **promise_values(study), **about}
        listening = service.listener(host, port)
        finish("sordino collect serve", rows, value, as_json=as_json)
        sys.stdout.flush()
        if url is None and not parts.is_loopback(host):
            _warn_of_plain_http()
        service.serve(engine, study, listening=listening, admin_token=token)
