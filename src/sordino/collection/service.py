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
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, get_args

import uvicorn
from sqlalchemy import Engine, func, select, text
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sordino._random import new_token
from sordino._version import __version__
from sordino.errors import DataError, FileSystemError, UsageError

from .answers import MOST_ANSWERS, export_zip, open_invitation, progress_of, read_submission, store
from .arena import Chooser, chooser_of
from .database import ANSWERS, FAILURES, Job, Writer, frozen, open_database, reading
from .refusals import (
    REFUSALS,
    Buckets,
    Headers,
    Metrics,
    Refusal,
    read_body,
    refuse_large,
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
    expires=_TIME,
    caveats=_list(_TEXT),
)
_QUESTIONS: Final = _list(
    _object(id=_QUESTION, ask={"enum": list(get_args(Ask))}, prompt=_WORDS, answers=_list(_WORDS))
)
_OPENED: Final = _object(study=_STUDY, questions=_QUESTIONS)
_SENT: Final = _object(study=_TEXT, answers=_list(_ANSWER, minItems=1, maxItems=MOST_ANSWERS))
_STORED: Final = _object(
    stored=_list(_ID),
    refused=_list(_object(id=_ID, code=_TEXT, message=_TEXT)),
    spent=_WHOLE,
    questions=_QUESTIONS,
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
    # path, method, summary, what is answered, refusals, whose secret is asked for, what is sent
    ("/api/health", "get", "Whether answers can be stored", _HEALTH, (), "", None),
    ("/api/texts", "get", "The words of the page", _LANGUAGES, (), "", None),
    (
        *("/api/open", "post", "Open an invitation on one device", _OPENED),
        *(_SENDING, "invitation", _object(device=_SECRET)),
    ),
    ("/api/answers", "post", "Store randomized answers", _STORED, _SENDING, "device", _SENT),
    ("/api/metrics", "get", "Counts for Prometheus", _COUNTS, (401,), "admin", None),
    ("/api/admin/status", "get", "How far the study is", _STATUS, (401,), "admin", None),
    (
        *("/api/admin/export", "get", "The file of answers and its manifest", _ZIP),
        *((401, 409), "admin", None),
    ),
)


def _description() -> _Schema:
    """Return the OpenAPI description of the service as a plain dict."""
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    paths: dict[str, _Schema] = {}
    for path, method, summary, answered, refusals, secret, body in _ROUTES:
        kinds = {id(_ZIP): "application/zip", id(_COUNTS): "text/plain"}
        kind = kinds.get(id(answered), "application/json")
        route: _Schema = {
            "summary": summary,
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


_NAMED: Final = {"/": "index.html", "/admin": "admin.html", "/worker.js": "worker.js"}
_SECRET_ROUTE: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_SECONDS: Final = 10.0  # until a page is told to send again; what is stored by then is not doubled
_WAIT: Final = 5
_WRONG: Final = 4.0  # what a wrong secret costs its sender
_MOST_KNOWN: Final = 100_000


@dataclass(frozen=True)
class _Service:
    """One study, its database and its page, as they answer requests."""

    study: Study  # the study, frozen
    engine: Engine  # its database
    writer: Writer  # the thread that writes
    chooser: Chooser  # of questions
    page: Page  # the files of the page
    languages: list[dict[str, Any]]  # its texts
    admin_token: str = field(repr=False)  # what the admin view asks for
    senders: Buckets = field(default_factory=lambda: Buckets(burst=60, rate=5))
    metrics: Metrics = field(default_factory=Metrics)
    strangers: Buckets = field(default_factory=lambda: Buckets(burst=120, rate=2))
    known: set[str] = field(default_factory=set, repr=False)

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
        return JSONResponse({"languages": self.languages})

    async def health(self, _: Request) -> Response:
        """Say whether answers can be stored, and which page is delivered."""

        def look() -> None:
            with reading(self.engine) as connection:
                connection.execute(text("SELECT 1"))

        await self._read(look)
        told = {"status": "ok", "study": self.study.id, "page": self.page.digest}
        return JSONResponse(told)

    async def open(self, request: Request) -> Response:
        token = self._secret(request, "unknown-invitation")
        body = await read_body(request)
        device = body.get("device") if isinstance(body, Mapping) else None
        if not isinstance(device, str) or not _SECRET_ROUTE.match(device) or len(body) != 1:
            raise Refusal("bad-request")

        terms: dict[str, Any] = {"study": self.study, "chooser": self.chooser}
        job = partial(open_invitation, **terms, token=token, device=device)
        asked, expires = await self._done(request, token, job)
        self._let_in(device)
        questions = [self.study.by_id[name].to_dict() for name in asked]
        return JSONResponse({"study": self.study.told(expires), "questions": questions})

    async def answers(self, request: Request) -> Response:
        device = self._secret(request, "unknown-device")
        submitted = read_submission(await read_body(request), self.study)

        terms: dict[str, Any] = {"study": self.study, "chooser": self.chooser}
        job = partial(store, **terms, device=device, answers=submitted)
        told = await self._done(request, device, job)
        self.metrics.refuse(*(each["code"] for each in told["refused"]))
        self.chooser.learned(self.engine, len(told["stored"]))
        questions = [self.study.by_id[name].to_dict() for name in told["questions"]]
        return JSONResponse(told | {"questions": questions})

    def _secret(self, request: Request, otherwise: str) -> str:
        """Return the bearer's secret, if it has the form of one and its sender may go on."""
        refuse_large(request)
        # Wrong secrets slow down whoever shares an address with their sender, but not those whose
        # secret was right since the service started. After a restart a neighbor who guesses can
        # slow a device down until it is known again.
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if secret not in self.known:
            self.strangers.take(_host(request), cost=0.0, least=_WRONG)
        if kind.lower() != "bearer" or not _SECRET_ROUTE.match(secret):
            self.strangers.take(_host(request), cost=_WRONG)
            raise Refusal(otherwise)
        self.senders.take(secret)
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
        self._refuse_stranger(request)
        return JSONResponse(await self._read(partial(progress_of, self.engine, self.study)))

    async def admin_export(self, request: Request) -> Response:
        self._refuse_stranger(request)
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
    """Return the address of a sender; it is counted by, and written nowhere."""
    return request.client.host if request.client else ""


def make_app(engine: Engine, study: Study, *, admin_token: str | None = None) -> Starlette:
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
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        writer.start()
        await run_in_threadpool(service.chooser.learned, engine, 0)
        try:
            yield
        finally:
            writer.stop()
            engine.dispose()

    routes = [
        *(Route(path, partial(service.page_file, name=name)) for path, name in _NAMED.items()),
        Route("/page/{name:path}", service.page_file),
        Route("/openapi.json", service.openapi),
        Route("/api/health", service.health),
        Route("/api/texts", service.texts),
        Route("/api/open", service.open, methods=["POST"]),
        Route("/api/answers", service.answers, methods=["POST"]),
        Route("/api/metrics", service.metrics_text),
        Route("/api/admin/status", service.admin_status),
        Route("/api/admin/export", service.admin_export),
    ]
    named = frozenset(route.path for route in routes)
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Headers, routes=named, metrics=service.metrics)],
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


def serve(
    engine: Engine, study: Study, *, listening: socket.socket, admin_token: str | None = None
) -> None:
    """Answer requests until told to stop; what is under way is finished first."""
    write_to_stderr()
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 (not on Windows)

        # Each connection is an open file.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    app = make_app(engine, study, admin_token=admin_token)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=True,
        timeout_graceful_shutdown=_GRACE,
        lifespan="on",
    )
    with _stopping_in_order():
        uvicorn.Server(config).run(sockets=[listening])


@contextlib.contextmanager
def _stopping_in_order() -> Iterator[None]:
    """Let a signal that the server has obeyed end here: being told to stop is no failure."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # The server stopped in order, and raises the signal once more afterwards: nothing is left.
    before = {number: signal.signal(number, lambda *_: None) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
