"""The addresses of the service: a page, and a few JSON routes with one shape of error.

The description of the JSON routes, for programs: OpenAPI 3.1.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Engine, text
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sordino._random import moment
from sordino._version import __version__
from sordino.errors import DataError, FileSystemError

from .database import FAILURES, Job, Writer, reading
from .exporting import export_zip
from .invitations import open_invitation, progress_of
from .page_files import Page, PageFile
from .refusals import REFUSALS, Refusal
from .responses import Buckets, read_body
from .study import Study
from .submissions import MOST_ANSWERS, read_submission, store


def _object(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object that has exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: Any, **more: Any) -> dict[str, Any]:
    """Return the schema of a list."""
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
_REVISION: Final = {"type": "integer", "minimum": 1, "maximum": 1_000_000}
_ANSWER: Final = _object(
    id=_ID,
    question=_QUESTION,
    revision=_REVISION,
    answer={"type": "integer", "minimum": 0, "maximum": 1},
)
_STUDY: Final = _object(
    id=_TEXT,
    title=_TEXT,
    epsilon=_NUMBER,
    cap=_WHOLE,
    ties=_FLAG,
    skips=_FLAG,
    changes={"enum": ["refused", "paid"]},
    tick_seconds=_WHOLE,
    threshold={"type": "string", "pattern": "^[0-9]{1,20}$"},
    expires=_TIME,
)
_OPENED: Final = _object(
    study=_STUDY,
    questions=_list(_object(id=_QUESTION, prompt=_WORDS, first=_WORDS, second=_WORDS)),
)
_SENT: Final = _object(study=_TEXT, answers=_list(_ANSWER, minItems=1, maxItems=MOST_ANSWERS))
_STORED: Final = _object(
    stored=_list(_ID),
    refused=_list(_object(id=_ID, code=_TEXT, message=_TEXT)),
    spent=_WHOLE,
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
        _object(
            code=_TEXT,
            name=_TEXT,
            texts={"type": "object", "additionalProperties": _TEXT},
        )
    )
)
_HEALTH: Final = _object(status={"const": "ok"}, study=_TEXT, page=_TEXT)
_ERROR: Final = _object(error=_object(code={"enum": sorted(REFUSALS)}, message=_TEXT))
_COMMON: Final = (400, 405, 408, 429, 500, 503)


def _answered(schema: Any, kind: str = "application/json") -> dict[str, Any]:
    """Return the description of a response that is fine."""
    return {"description": "Done.", "content": {kind: {"schema": schema}}}


def _route(
    summary: str, response: dict[str, Any], refusals: Sequence[int] = (), **more: Any
) -> dict[str, Any]:
    """Return the description of one route."""
    refused = {
        "description": "Refused.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    codes = sorted({*_COMMON, *refusals})
    return {
        "summary": summary,
        "responses": {"200": response} | {str(code): refused for code in codes},
        **more,
    }


def _body(schema: Any) -> dict[str, Any]:
    """Return the description of a request's body."""
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _secured(name: str) -> dict[str, Any]:
    """Return what a route needs to let somebody in."""
    return {"security": [{name: []}]}


def description() -> dict[str, Any]:
    """Return the OpenAPI description of the service as a plain dict."""
    bearer = {"type": "http", "scheme": "bearer"}
    sending = (401, 403, 409, 413, 415)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sordino collection", "version": __version__},
        "paths": {
            "/api/health": {"get": _route("Whether answers can be stored", _answered(_HEALTH))},
            "/api/texts": {"get": _route("The words of the page", _answered(_LANGUAGES))},
            "/api/open": {
                "post": _route(
                    "Open an invitation on one device",
                    _answered(_OPENED),
                    sending,
                    requestBody=_body(_object(device=_SECRET)),
                    **_secured("invitation"),
                )
            },
            "/api/answers": {
                "post": _route(
                    "Store randomized answers",
                    _answered(_STORED),
                    sending,
                    requestBody=_body(_SENT),
                    **_secured("device"),
                )
            },
            "/api/admin/status": {
                "get": _route(
                    "How far the study is", _answered(_STATUS), (401,), **_secured("admin")
                )
            },
            "/api/admin/export": {
                "get": _route(
                    "The file of answers and its manifest",
                    _answered({"type": "string", "format": "binary"}, "application/zip"),
                    (401, 409),
                    **_secured("admin"),
                )
            },
        },
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {
                name: {**bearer, "description": f"The secret of this {name}."}
                for name in ("invitation", "device", "admin")
            },
        },
    }


_SECRET_ROUTE: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_SECONDS: Final = 10.0  # until a page is told to send again; what is stored by then is not doubled
_WAIT: Final = 5
_WRONG: Final = 4.0  # what a wrong secret costs its sender
_MOST_KNOWN: Final = 100_000


@dataclass(frozen=True)
class Service:
    """One study, its database and its page, as they answer requests."""

    study: Study  # the study, frozen
    engine: Engine  # its database
    writer: Writer  # the thread that writes
    page: Page  # the files of the page
    languages: list[dict[str, Any]]  # its texts
    admin_token: str = field(repr=False)  # what the admin view asks for
    senders: Buckets = field(default_factory=lambda: Buckets(burst=60, rate=5))
    strangers: Buckets = field(default_factory=lambda: Buckets(burst=120, rate=2))
    known: set[str] = field(default_factory=set, repr=False)

    def routes(self) -> list[Route]:
        """Return every address."""
        return [
            Route("/", self._file("index.html")),
            Route("/admin", self._file("admin.html")),
            Route("/worker.js", self._file("worker.js")),
            Route("/page/{name}", self.page_file),
            Route("/openapi.json", self.openapi),
            Route("/api/health", self.health),
            Route("/api/texts", self.texts),
            Route("/api/open", self.open, methods=["POST"]),
            Route("/api/answers", self.answers, methods=["POST"]),
            Route("/api/admin/status", self.admin_status),
            Route("/api/admin/export", self.admin_export),
        ]

    def _file(self, name: str) -> Any:
        """Return what answers with one file of the page."""

        async def answer(_: Request) -> Response:
            return _sent(self.page.files.get(name))

        return answer

    async def page_file(self, request: Request) -> Response:
        """Answer with a file that the page loads."""
        return _sent(self.page.files.get(request.path_params["name"]))

    async def openapi(self, _: Request) -> Response:
        """Answer with the description of the routes."""
        return JSONResponse(description())

    async def texts(self, _: Request) -> Response:
        """Answer with the words of the page."""
        return JSONResponse({"languages": self.languages})

    async def health(self, _: Request) -> Response:
        """Say whether answers can be stored, and which page is delivered."""
        try:
            await run_in_threadpool(self._look)
        except (FileSystemError, *FAILURES):
            raise Refusal("database-down", wait=_WAIT) from None
        value = {"status": "ok", "study": self.study.id, "page": self.page.digest}
        return JSONResponse(value)

    def _look(self) -> None:
        """Look whether the database answers."""
        with reading(self.engine) as connection:
            connection.execute(text("SELECT 1"))

    async def open(self, request: Request) -> Response:
        """Open an invitation on a device, and answer with what is asked."""
        token = self._secret(request, "unknown-invitation")
        body = await read_body(request)
        device = body.get("device") if isinstance(body, Mapping) else None
        if not isinstance(device, str) or not _SECRET_ROUTE.match(device) or len(body) != 1:
            raise Refusal("bad-request")

        def job(connection: Connection) -> tuple[list[str], int]:
            return open_invitation(connection, self.study, token=token, device=device)

        asked, expires = await self._done(request, token, job)
        self._let_in(device)
        questions = {question.id: question for question in self.study.questions}
        return JSONResponse(
            {
                "study": self._terms(expires),
                "questions": [questions[name].to_dict() for name in asked],
            }
        )

    def _terms(self, expires: int) -> dict[str, Any]:
        """Return what the page is told of the study."""
        study = self.study
        names = ("id", "title", "epsilon", "ties", "skips", "changes", "tick_seconds")
        return {name: getattr(study, name) for name in names} | {
            "cap": study.most_labels,
            "threshold": str(study.coin.threshold),
            "expires": moment(expires),
        }

    async def answers(self, request: Request) -> Response:
        """Store randomized answers, and say which are stored."""
        device = self._secret(request, "unknown-device")
        submitted = read_submission(await read_body(request), self.study)

        def job(connection: Connection) -> dict[str, Any]:
            return store(connection, self.study, device, submitted)

        return JSONResponse(await self._done(request, device, job))

    def _secret(self, request: Request, otherwise: str) -> str:
        """Return the bearer's secret, if it has the form of one and its sender may go on."""
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
        """Remember a secret that was right."""
        if len(self.known) >= _MOST_KNOWN:
            self.known.clear()
        self.known.add(secret)

    @contextmanager
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
        with self._charged(request, secret):
            try:
                future = asyncio.wrap_future(self.writer.submit(job))
                return await asyncio.wait_for(asyncio.shield(future), _SECONDS)
            except TimeoutError:
                raise Refusal("database-down", wait=_WAIT) from None

    def _refuse_stranger(self, request: Request) -> None:
        """Refuse whoever does not have the admin token."""
        secret = self._secret(request, "not-admin")
        with self._charged(request, secret):
            if not hmac.compare_digest(secret, self.admin_token):
                raise Refusal("not-admin")

    async def admin_status(self, request: Request) -> Response:
        """Answer with how far the study is."""
        self._refuse_stranger(request)
        return JSONResponse(await self._read(progress_of, self.engine, self.study))

    async def admin_export(self, request: Request) -> Response:
        """Answer with the file of answers and its manifest."""
        self._refuse_stranger(request)
        packed = await self._read(partial(export_zip, unit="person"), self.engine, self.study)
        disposition = {"Content-Disposition": 'attachment; filename="answers.zip"'}
        return Response(packed, media_type="application/zip", headers=disposition)

    async def _read(self, function: Any, *arguments: Any) -> Any:
        """Return what a function reads from the database, outside the loop."""
        try:
            return await run_in_threadpool(function, *arguments)
        except (FileSystemError, *FAILURES):
            raise Refusal("database-down", wait=_WAIT) from None
        except DataError:
            raise Refusal("no-answers") from None


def _host(request: Request) -> str:
    """Return the address of a sender; it is counted by, and written nowhere."""
    return request.client.host if request.client else ""


def _sent(file: PageFile | None) -> Response:
    """Return a file of the page; browsers ask each time whether it is still the same."""
    if file is None:
        raise Refusal("not-found")
    headers = {"Cache-Control": "no-cache"}
    return Response(file.content, headers={**headers, "Content-Type": file.kind})
