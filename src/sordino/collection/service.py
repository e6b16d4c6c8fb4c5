"""The service: a study and its database behind a page and a few JSON routes.

The routes have one shape of error, and are described for programs too (OpenAPI 3.1). The service is
started and stopped in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import re
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, get_args

import numpy as np
import uvicorn
from sqlalchemy import Engine, func, select, text
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sordino._random import clock, entropy, new_secret, new_token, seconds_since_1970
from sordino._version import __version__
from sordino.errors import DataError, FileSystemError, UsageError

from .answers import (
    MOST_ANSWERS,
    STEPS,
    Foresee,
    Opened,
    claim,
    code_of,
    digest_of_secret,
    export_zip,
    has_too_few,
    invitation_of,
    open_invitation,
    prepare_move,
    progress_of,
    read_sent_questions,
    read_submission,
    store,
)
from .arena import Chooser, chooser_of
from .database import ANSWERS, FAILURES, Job, Writer, frozen, open_database, reading
from .refusals import (
    MOST_BYTES,
    REFUSALS,
    Buckets,
    Headers,
    Metrics,
    Refusal,
    read_body,
    refused,
    unmatched,
    write_to_stderr,
)
from .study import Ask, Choose, Page, Study, read_languages, read_page, read_study

_Schema: TypeAlias = dict[str, object]
_Read = TypeVar("_Read")
_STOPS: Final = (signal.SIGINT, signal.SIGTERM)
_GRACE: Final = 10  # seconds for requests that are under way when the service is asked to stop


def _object(**properties: object) -> _Schema:
    """Return the schema of an object that has exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: object, **more: int) -> _Schema:
    return {"type": "array", "items": items, **more}


_TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer", "minimum": 0}
_NUMBER: Final = {"type": "number"}
_FLAG: Final = {"type": "boolean"}
_TIME: Final = {"type": "string", "format": "date-time"}
_SECRET: Final = {"type": "string", "pattern": "^[A-Za-z0-9_-]{43}$"}
_QUESTION: Final = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_ID: Final = {
    "type": "string",
    "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
}
_MESSAGES: Final = _list(_object(role=_TEXT, content=_TEXT))
_WORDS: Final = {"oneOf": [_TEXT, _MESSAGES]}
_COUNT: Final = {"type": "string", "pattern": "^[0-9]{1,20}$"}  # of the 2^64 words
_NONE: Final = {"type": "null"}
_REVISION: Final = {"type": "integer", "minimum": 1, "maximum": 1_000_000}
_ANSWER: Final = _object(
    id=_ID,
    question=_QUESTION,
    revision=_REVISION,
    answer={"type": "integer", "minimum": 0, "maximum": 9},
)
_STUDY: Final = _object(
    id=_TEXT,
    title=_TEXT,
    epsilon=_NUMBER,
    cap=_WHOLE,
    ties=_FLAG,
    skips=_FLAG,
    changes={"enum": ["refused", "paid"]},
    choose={"enum": list(get_args(Choose))},
    asks=_WHOLE,
    markdown=_FLAG,
    tick_seconds=_WHOLE,
    threshold=_COUNT,
    die={"oneOf": [_object(categories=_WHOLE, threshold=_COUNT), _NONE]},
    levels={"oneOf": [_list({"type": "integer"}, minItems=2, maxItems=2), _NONE]},
    project={"oneOf": [_object(name=_TEXT, epsilon=_NUMBER), _NONE]},
    feedback=_FLAG,
    open=_FLAG,
    expires=_TIME,
    caveats=_list(_TEXT),
)
_QUESTIONS: Final = _list(
    _object(id=_QUESTION, ask={"enum": list(get_args(Ask))}, prompt=_WORDS, answers=_list(_WORDS))
)
_OPENED: Final = _object(
    study=_STUDY,
    questions=_QUESTIONS,
    stored=_list(_object(question=_QUESTION, revision=_REVISION)),
)
_CODE: Final = {"type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{12}$"}
_MOVING: Final = _object(study=_TEXT, step={"enum": list(STEPS)})
_MOVED: Final = _object(code={"oneOf": [_CODE, _NONE]}, seconds=_WHOLE)
_OR_NONE: Final = {"oneOf": [_TEXT, _NONE]}
_GIVEN: Final = _list(_ANSWER, minItems=1, maxItems=MOST_ANSWERS)
_SENT: Final = {  # questions come with their answers where the study does not know them
    **_object(study=_TEXT, answers=_GIVEN, questions=_QUESTIONS),
    "required": ["study", "answers"],
}
_STORED: Final = _object(
    stored=_list(_ID),
    refused=_list(_object(id=_ID, code=_TEXT, message=_TEXT)),
    spent=_WHOLE,
    questions=_QUESTIONS,
    completion={"oneOf": [_object(code=_OR_NONE, url=_OR_NONE), _NONE]},
)
_STATUS: Final = _object(
    title=_TEXT,
    study=_TEXT,
    epsilon=_NUMBER,
    flip_probability=_NUMBER,
    cap=_WHOLE,
    person_epsilon=_NUMBER,
    questions=_WHOLE,
    invitations=_object(made=_WHOLE, opened=_WHOLE, revoked=_WHOLE, expired=_WHOLE),
    answers=_WHOLE,
    persons=_WHOLE,
    per_question=_list(_object(id=_QUESTION, prompt=_TEXT, answers=_WHOLE)),
    closed=_FLAG,
    minimum=_WHOLE,
    forecast=_list(
        _object(
            when={"enum": ["now", "minimum", "all"]},
            answers=_WHOLE,
            accuracy=_NUMBER,
            standard_error=_NUMBER,
        )
    ),
)
_LANGUAGES: Final = _object(
    languages=_list(
        _object(code=_TEXT, name=_TEXT, texts={"type": "object", "additionalProperties": _TEXT})
    )
)
_HEALTH: Final = _object(status={"const": "ok"}, study=_TEXT, page=_TEXT)
_COUNTS: Final = {"type": "string"}
_ERROR: Final = _object(error=_object(code={"enum": sorted(REFUSALS)}, message=_TEXT))
_ZIP: Final = {"type": "string", "format": "binary"}
_SENDING: Final = (401, 403, 409, 413, 415)
_ROUTES: Final = (
    # who answers, path, method, what is answered, refusals, whose secret is asked for, what is sent
    ("health", "/api/health", "get", _HEALTH, (), "", None),
    ("texts", "/api/texts", "get", _LANGUAGES, (), "", None),
    ("open", "/api/open", "post", _OPENED, _SENDING, "invitation", _object(device=_SECRET)),
    ("answers", "/api/answers", "post", _STORED, _SENDING, "device", _SENT),
    ("metrics_text", "/api/metrics", "get", _COUNTS, (401,), "admin", None),
    ("move", "/api/move", "post", _MOVED, _SENDING, "device", _MOVING),
    ("claim", "/api/claim", "post", _OPENED, _SENDING, "device", _object(study=_TEXT, code=_CODE)),
    ("preview", "/api/preview", "post", _OPENED, (401, 403, 413, 415), "invitation", _object()),
    ("admin_status", "/api/admin/status", "get", _STATUS, (401,), "admin", None),
    ("admin_export", "/api/admin/export", "get", _ZIP, (401, 409), "admin", None),
)


def _api(service: _Preview, *names: str) -> Iterator[Route]:
    """Yield the routes that somebody answers; without names, all."""
    for name, path, method, *_ in _ROUTES:
        if name in names or not names:
            yield Route(path, getattr(service, name), methods=[method.upper()])


def _description() -> _Schema:
    """Return the OpenAPI description of the service as a plain dict."""
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    paths: dict[str, _Schema] = {}
    for name, path, method, answered, refusals, secret, body in _ROUTES:
        kinds = {id(_ZIP): "application/zip", id(_COUNTS): "text/plain"}
        kind = kinds.get(id(answered), "application/json")
        route: _Schema = {
            "summary": str(getattr(_Service, name).__doc__),
            "responses": {
                "200": {"description": "Done.", "content": {kind: {"schema": answered}}},
                **{
                    str(code): {"description": "Refused.", "content": error}
                    for code in sorted({400, 405, 408, 429, 500, 503, *refusals})
                },
            },
        }
        if body is not None:
            content = {"application/json": {"schema": body}}
            route["requestBody"] = {"required": True, "content": content}
        if secret:
            route["security"] = [{secret: []}]
        paths[path] = {method: route}
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sordino collection", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {
                name: {**bearer, "description": f"The secret of this {name}."}
                for name in ("invitation", "device", "admin")
            },
        },
    }


_NAMED: Final = {
    "/": "index.html",
    "/admin": "admin.html",
    "/worker.js": "worker.js",
    "/feedback": "feedback.html",
    "/widget.js": "widget.js",
}
_SECRET_ROUTE: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_SECONDS: Final = 10.0  # until a page is told to send again; what is stored by then is not doubled
_WAIT: Final = 5
_WRONG: Final = 4.0  # what a wrong secret costs its sender
_MOST_KNOWN: Final = 100_000
_CODE_SECONDS: Final = 15 * 60
_CODE_FORM: Final = re.compile(rf"{_CODE['pattern'][:-1]}\Z")
_PREVIEW_SECONDS: Final = 30 * 86_400  # until an invitation would end that is made now


@dataclass(frozen=True)
class _Preview:
    """A study and its page, as whoever asks may see them; it has no database."""

    study: Study  # the study, frozen
    page: Page  # the files of the page
    languages: list[dict[str, Any]]  # its texts

    async def page_file(self, request: Request, name: str = "") -> Response:
        """Answer with a file of the page; browsers ask each time whether it is still the same."""
        file = self.page.files.get(name or request.path_params["name"])
        if file is None:
            raise Refusal("not-found")
        content, kind = file
        return Response(content, headers={"Cache-Control": "no-cache", "Content-Type": kind})

    async def openapi(self, _: Request) -> Response:
        return JSONResponse(_description())

    async def texts(self, _: Request) -> Response:
        """Tell the words of the page."""
        return JSONResponse({"languages": self.languages})

    async def health(self, _: Request) -> Response:
        """Say which page is delivered."""
        told = {"status": "ok", "study": self.study.id, "page": self.page.digest}
        return JSONResponse(told)

    async def start(self, request: Request) -> Response:
        """Answer with the page, which shows a preview only at the address of one."""
        if request.url.query != "preview":
            return Response(status_code=307, headers={"Location": "?preview"})
        return await self.page_file(request, name="index.html")

    async def preview(self, request: Request) -> Response:
        """Tell terms, and questions that a person might be asked."""
        if await read_body(request) != {}:
            raise Refusal("bad-request")
        return self._sample()

    def _sample(self) -> Response:
        """Tell questions that a person might be asked; nothing is noted."""
        end, study = seconds_since_1970() + _PREVIEW_SECONDS, self.study
        order = np.argsort(entropy(None).words(len(study.questions)))[: study.most_questions]
        return self._told(Opened([study.questions[place].id for place in order], end, []))

    def _told(self, opened: Opened) -> Response:
        questions = [self.study.by_id[name].to_dict() for name in opened.questions]
        about = {"study": self.study.told(opened.expires), "questions": questions}
        return JSONResponse(about | {"stored": opened.stored})


@dataclass(frozen=True)
class _Service(_Preview):
    """One study, its database and its page, as they answer requests."""

    engine: Engine  # its database
    writer: Writer  # the thread that writes
    chooser: Chooser  # of questions
    admin_token: str = field(repr=False)  # what the admin view asks for
    foresee: Foresee | None = None  # what so many labels are good for
    metrics: Metrics = field(default_factory=Metrics)
    senders: Buckets = field(default_factory=lambda: Buckets(burst=60, rate=5))
    joins: Buckets = field(default_factory=lambda: Buckets(burst=30, rate=0.05))
    strangers: Buckets = field(default_factory=lambda: Buckets(burst=120, rate=2))
    known: set[str] = field(default_factory=set, repr=False)
    # When codes end, by digest and the clock of this process: no row holds a time. After a restart
    # none is valid, and the page asks for another one.
    codes: dict[str, float] = field(default_factory=dict, repr=False)

    async def health(self, request: Request) -> Response:
        """Say whether answers can be stored, and which page is delivered."""

        def look() -> None:
            with reading(self.engine) as connection:
                connection.execute(text("SELECT 1"))

        await self._read(look)
        return await super().health(request)

    async def preview(self, request: Request) -> Response:
        """Tell terms and questions as they might be, also to admins; an invitation stays closed."""
        secret = self._secret(request, "unknown-invitation")
        if await read_body(request) != {}:
            raise Refusal("bad-request")

        def look() -> None:
            if not hmac.compare_digest(secret, self.admin_token):
                with reading(self.engine) as connection:
                    invitation_of(connection, self.study, secret)

        with self._charged(request, secret):
            await self._read(look)
        return self._sample()

    async def open(self, request: Request) -> Response:
        """Open an invitation on one device."""
        token = self._secret(request, "unknown-invitation")
        body = await read_body(request)
        device = body.get("device") if isinstance(body, Mapping) else None
        if not isinstance(device, str) or not _SECRET_ROUTE.match(device) or len(body) != 1:
            raise Refusal("bad-request")

        if self.study.open and device not in self.known:
            self.joins.take(_host(request))
        terms: dict[str, Any] = {"study": self.study, "chooser": self.chooser}
        job = partial(open_invitation, **terms, token=token, device=device)
        opened = await self._done(request, token, job)
        self._let_in(device)
        return self._told(opened)

    async def move(self, request: Request) -> Response:
        """Give a device a code by which another one takes over, or take it back."""
        device = self._secret(request, "unknown-device")
        step = await self._said(request, "step")
        if step not in STEPS:
            raise Refusal("bad-request")
        code = code_of(new_secret())
        job = partial(prepare_move, study=self.study, device=device, step=step, code=code)
        await self._done(request, device, job)
        if step == "code":
            now = clock()
            for digest in [digest for digest, end in self.codes.items() if end <= now]:
                self.codes.pop(digest, None)
            self.codes[digest_of_secret(self.study, "code", code)] = now + _CODE_SECONDS
        told = code if step == "code" else None
        return JSONResponse({"code": told, "seconds": _CODE_SECONDS})

    async def claim(self, request: Request) -> Response:
        """Bind a new device by the code that the old one shows."""
        device = self._secret(request, "unknown-code")
        code = await self._said(request, "code")
        if not _CODE_FORM.match(code):
            raise Refusal("bad-request")
        fresh = self.codes.get(digest_of_secret(self.study, "code", code), 0.0) > clock()
        job = partial(claim, study=self.study, device=device, code=code, fresh=fresh)
        opened = await self._done(request, code, job)  # a wrong code is paid for as a wrong secret
        self._let_in(device)
        return self._told(opened)

    async def _said(self, request: Request, name: str) -> str:
        """Return the one text that was sent beside the name of this study."""
        body = await read_body(request)
        texts = isinstance(body, Mapping) and all(isinstance(text, str) for text in body.values())
        if not texts or body.keys() != {"study", name}:
            raise Refusal("bad-request")
        if body["study"] != self.study.id:
            raise Refusal("wrong-study")
        return str(body[name])

    async def answers(self, request: Request) -> Response:
        """Store randomized answers."""
        device = self._secret(request, "unknown-device")
        body = await read_body(request)
        submitted = read_submission(body, self.study)
        sent = read_sent_questions(body, self.study)

        terms: dict[str, Any] = {"study": self.study, "chooser": self.chooser}
        job = partial(store, **terms, device=device, answers=submitted, sent=sent)
        told = await self._done(request, device, job)
        self.metrics.refuse(*(each["code"] for each in told["refused"]))
        self.chooser.learned(self.engine, len(told["stored"]))
        questions = [self.study.by_id[name].to_dict() for name in told["questions"]]
        return JSONResponse(told | {"questions": questions})

    def _secret(self, request: Request, otherwise: str) -> str:
        """Return the bearer's secret, if it has the form of one and its sender may go on."""
        declared = request.headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared[:20]) > MOST_BYTES:
            raise Refusal("too-large")  # by its own account, whoever sends it
        # Wrong secrets slow down whoever shares an address with their sender, but not those whose
        # secret was right since the service started. After a restart a neighbor who guesses can
        # slow a device down until it is known again.
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if secret not in self.known:
            self.strangers.take(_host(request), cost=0.0, least=_WRONG)
        if kind.lower() != "bearer" or not _SECRET_ROUTE.match(secret):
            self.strangers.take(_host(request), cost=_WRONG)
            raise Refusal(otherwise)
        # Many have the token of an open study; each address then has a share of its own.
        self.senders.take(f"{secret} {_host(request)}" if self.study.open else secret)
        return secret

    def _let_in(self, secret: str) -> None:
        if len(self.known) >= _MOST_KNOWN:
            self.known.clear()
        self.known.add(secret)

    @contextlib.contextmanager
    def _charged(self, request: Request, secret: str) -> Iterator[None]:
        """Take what a wrong secret costs before it is looked up; give it back if it was right."""
        # So no more are looked up at once than may be wrong, however many arrive together.
        if secret in self.known:
            yield
            return
        host, wrong = _host(request), False
        self.strangers.take(host, cost=_WRONG)
        try:
            yield
        except Refusal as refusal:
            wrong = refusal.status == 401  # noqa: PLR2004 (a secret that is nobody's)
            raise
        finally:
            if not wrong:
                self.strangers.give_back(host, cost=_WRONG)
        self._let_in(secret)

    async def _done(self, request: Request, secret: str, job: Job) -> Any:
        """Return the result of a job for the bearer of a secret, once it is durable."""
        self.writer.start()  # where this is mounted, nobody may have run the lifespan
        with self._charged(request, secret):
            try:
                future = asyncio.wrap_future(self.writer.submit(job))
                return await asyncio.wait_for(asyncio.shield(future), _SECONDS)
            except TimeoutError:
                raise Refusal("database-down", wait=_WAIT) from None

    def _refuse_stranger(self, request: Request) -> None:
        secret = self._secret(request, "not-admin")
        with self._charged(request, secret):
            if not hmac.compare_digest(secret, self.admin_token):
                raise Refusal("not-admin")

    async def admin_status(self, request: Request) -> Response:
        """Say how far the study is."""
        self._refuse_stranger(request)
        look = partial(progress_of, self.engine, self.study, self.foresee)
        return JSONResponse(await self._read(look))

    async def admin_export(self, request: Request) -> Response:
        """Give the file of answers and its manifest."""
        self._refuse_stranger(request)
        if await self._read(partial(has_too_few, self.engine, self.study)):
            raise Refusal("too-few-answers")
        packed = await self._read(partial(export_zip, self.engine, self.study, unit="person"))
        disposition = {"Content-Disposition": 'attachment; filename="answers.zip"'}
        return Response(packed, media_type="application/zip", headers=disposition)

    async def metrics_text(self, request: Request) -> Response:
        """Say how many requests there were, and whether the database is up; nothing of a person."""
        self._refuse_stranger(request)

        def count() -> int:
            with reading(self.engine) as connection:
                counted = select(func.count()).select_from(ANSWERS)
                return int(connection.execute(counted).scalar_one())

        build = f'version="{__version__}",page="{self.page.digest}",study="{self.study.id}"'
        gauges = {f"build_info{{{build}}}": 1, "writer_waiting": self.writer.waiting}
        try:
            gauges |= {"answers": await self._read(count), "database_up": 1}
        except Refusal:
            gauges |= {"database_up": 0}
        return Response(self.metrics.text(gauges), media_type="text/plain; version=0.0.4")

    async def _read(self, function: Callable[[], _Read]) -> _Read:
        """Return what a function reads from the database, outside the loop."""
        try:
            return await run_in_threadpool(function)
        except (FileSystemError, *FAILURES):
            raise Refusal("database-down", wait=_WAIT) from None
        except DataError:
            raise Refusal("no-answers") from None


def _host(request: Request) -> str:
    """Return the address of a sender, or the network of 64 bits of IPv6 that one sender has.

    It is counted by, and written nowhere.
    """
    host = request.client.host if request.client else ""
    try:
        address = IPv6Address(host)
    except ValueError:  # IPv4, or no address at all
        return host
    return str(address.ipv4_mapped or IPv6Network((int(address) >> 64 << 64, 64)))


def make_preview(study: Study) -> Starlette:
    """Return an application that shows a study to whoever asks; there is nothing it could keep."""
    languages = read_languages(study)
    service = _Preview(study, read_page(languages), languages)
    routes = [
        Route("/", service.start),
        Route("/page/{name:path}", service.page_file),
        *_api(service, "health", "texts", "preview"),
    ]
    return _application(routes, Metrics())


def make_app(
    engine: Engine, study: Study, *, admin_token: str | None = None, foresee: Foresee | None = None
) -> Starlette:
    """Return the application for one study.

    Guarantee:
        What arrives is randomized already, and the application stores just that; it draws nothing
        but who is asked what. Shown by tests/soundness/test_collection.py.
    """
    writer = Writer(engine)
    languages = read_languages(study)
    service = _Service(
        study=study,
        engine=engine,
        writer=writer,
        chooser=chooser_of(study),
        page=read_page(languages),
        languages=languages,
        admin_token=admin_token or new_token(),
        foresee=foresee,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        writer.start()
        await run_in_threadpool(service.chooser.learned, engine, 0)
        try:
            yield
        finally:
            writer.stop()
            service.chooser.close()
            engine.dispose()

    routes = [
        *(Route(path, partial(service.page_file, name=name)) for path, name in _NAMED.items()),
        Route("/page/{name:path}", service.page_file),
        Route("/openapi.json", service.openapi),
        *_api(service),
    ]
    return _application(routes, service.metrics, lifespan, study.embedded_in)


def _application(
    routes: list[Route],
    metrics: Metrics,
    lifespan: Callable[[Starlette], Any] | None = None,
    embed: tuple[str, ...] = (),
) -> Starlette:
    named = frozenset(route.path for route in routes)
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Headers, routes=named, metrics=metrics, embed=embed)],
        exception_handlers={Refusal: refused, HTTPException: unmatched},
    )
    app.router.redirect_slashes = False  # it would repeat a sender's Host, and drop https
    return app


def app_of(path: Path, *, admin_token: str) -> Starlette:
    """Return the application for a study that has begun."""
    if not _SECRET_ROUTE.match(admin_token):
        raise UsageError(
            "admin_token must be 43 letters, digits, '-' or '_', as secrets.token_urlsafe(32) "
            "makes them. Nothing was done."
        )
    study = read_study(path)
    engine = frozen(open_database(study.database_url), study, create=False)
    return make_app(engine, study, admin_token=admin_token)


def listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens, so that what keeps it from that is known before all else."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
        )
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise FileSystemError(
        f"Nothing can listen at {host}, port {port} ({reason}). Nothing was started. Choose "
        "another one: --port."
    )


def serve(app: Starlette, *, listening: socket.socket) -> None:
    """Answer requests until told to stop; what is under way is finished first."""
    write_to_stderr()
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 (not on Windows)

        # Each connection is an open file.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        ws="none",  # nothing here speaks it, whatever else is installed
        server_header=False,
        proxy_headers=True,
        timeout_graceful_shutdown=_GRACE,
        lifespan="on",
    )
    # The server stops in order, and raises the signal once more afterwards: to be told to stop is
    # no failure, and nothing is left.
    stops = _STOPS if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, lambda *_: None) for number in stops}
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
