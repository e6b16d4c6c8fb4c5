"""What the service refuses, and in which words: one table, one shape.

One line of JSON for each request: when, which address, which status, how long. Never content.

No token, no id, no address of a sender and no text is written, so that a log tells nothing that
the database does not.

Every response carries headers that let a page load nothing from anywhere else; what one sender may
ask for is limited: requests by time, bytes, and seconds for a body.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import tomllib
from collections import Counter, OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sordino import _random
from sordino._files import parsed
from sordino._random import clock


class _Reason(NamedTuple):
    """An HTTP status, and what a person can do."""

    status: int
    message: str


_TABLE: Final = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text("utf-8"))
REFUSALS: Final = {code: _Reason(*said) for code, said in _TABLE.items()}
"""Every code, its HTTP status and its message."""


class Refusal(Exception):
    """A request that is refused; nothing was stored for it."""

    def __init__(self, code: str, *, wait: int | None = None) -> None:
        """Keep the code; the message goes with it."""
        super().__init__(REFUSALS[code].message)
        self.code = code
        self.wait = wait

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        return REFUSALS[self.code].status

    def to_dict(self) -> dict[str, Any]:
        """Return the one shape that all errors have."""
        return {"error": {"code": self.code, "message": REFUSALS[self.code].message}}


LOG: Final = logging.getLogger("sordino.collection")
"""Where the service writes; silent unless a handler is set."""


class _Lines(logging.Formatter):
    """Writes a record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; an exception gives its kind and no more."""
        fields: dict[str, Any] = getattr(record, "fields", {})
        line = {"time": _random.now(), "level": record.levelname, "event": record.msg, **fields}
        if record.exc_info and record.exc_info[0]:
            line["problem"] = record.exc_info[0].__name__
        return json.dumps(line)


def write_to_stderr() -> None:
    """Send the service's lines, and warnings of its server, to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    LOG.handlers = [handler]
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    for name in ("uvicorn", "asyncio"):
        server = logging.getLogger(name)
        server.handlers = [handler]
        server.setLevel(logging.CRITICAL)  # what they say may hold an address, or a row
        server.propagate = False


HEADERS: Final = tomllib.loads(Path(__file__).with_name("headers.toml").read_text("utf-8"))
"""What every response carries."""

POLICY: Final = HEADERS["Content-Security-Policy"]
_ENCODED: Final = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class Metrics:
    """Counts since the service started, as Prometheus reads them.

    No label names a person, an invitation or a question, and no count depends on what was answered.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._requests: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()

    def note(self, route: str, status: int) -> None:
        """Count a request that was answered."""
        self._requests[f'{{route="{route}",status="{status}"}}'] += 1

    def refuse(self, *codes: str) -> None:
        """Count what was refused: requests, and answers inside of one that is fine."""
        self._refusals.update(f'{{code="{code}"}}' for code in codes)

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return everything; a gauge has a name and perhaps labels."""
        lines = []
        for name, counts in (("requests", self._requests), ("refusals", self._refusals)):
            lines += [f"# TYPE sordino_{name}_total counter"]
            lines += [f"sordino_{name}_total{which} {n}" for which, n in counts.items()]
        for name, value in gauges.items():
            lines += [f"# TYPE sordino_{name.partition('{')[0]} gauge", f"sordino_{name} {value}"]
        return "\n".join(lines) + "\n"


_CODES: Final = "sordino.refusals"  # where a request keeps why it was refused


class Headers:
    """Adds the headers to every response, and notes each request in one line, and counts it."""

    def __init__(
        self, app: ASGIApp, *, routes: frozenset[str], metrics: Metrics, embed: tuple[str, ...] = ()
    ) -> None:
        """Wrap the application; ``embed`` are origins of pages that may show the widget."""
        self._app, self._routes, self._metrics = app, routes, metrics
        self._embed = {origin.encode() for origin in embed}
        framed = POLICY.replace("ancestors 'none'", f"ancestors {' '.join(embed) or repr('none')}")
        self._framed = [(_ENCODED[0][0], framed.encode()), *_ENCODED[1:]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, started_to_answer = clock(), 500, False
        path = scope["path"].removeprefix(scope.get("root_path", ""))  # of where it is mounted
        api = path.startswith("/api/")

        async def send_more(message: Message) -> None:
            nonlocal status, started_to_answer
            if message["type"] == "http.response.start":
                started_to_answer = True
                status = message["status"]
                extra = [*(self._framed if path == "/feedback" else _ENCODED)]
                if api:
                    extra.append((b"cache-control", b"no-store"))
                if path == "/widget.js":  # a module, which other origins may load only like this
                    origin = dict(scope["headers"]).get(b"origin")
                    extra.append((b"vary", b"Origin"))
                    if origin in self._embed:
                        extra.append((b"access-control-allow-origin", origin))
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        try:
            await self._app(scope, receive, send_more)
        except Exception as error:
            if started_to_answer:
                raise
            response = undone(Request(scope), error)
            await response(scope, receive, send_more)
        finally:
            route = path if path in self._routes else "other"
            method = scope["method"] if scope["method"] in {"GET", "POST", "HEAD"} else "other"
            self._metrics.note(route, status)
            self._metrics.refuse(*scope.get(_CODES, ()))
            milliseconds = round(1000 * (clock() - started), 1)
            said = {"method": method, "route": route, "status": status}
            LOG.info("request", extra={"fields": said | {"milliseconds": milliseconds}})


def refused(request: Request, error: Exception) -> Response:
    """Return a refusal in the one shape of all errors."""
    refusal = error if isinstance(error, Refusal) else Refusal("server-error")
    request.scope[_CODES] = (refusal.code,)
    headers = {} if refusal.wait is None else {"Retry-After": str(refusal.wait)}
    if refusal.status == 401:  # noqa: PLR2004 (what HTTP asks for with this status)
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(refusal.to_dict(), refusal.status, headers)


def unmatched(request: Request, error: Exception) -> Response:
    """Return the framework's own refusals in our shape."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    codes = {404: "not-found", 405: "method-not-allowed"}
    response = refused(request, Refusal(codes.get(status, "bad-request")))
    allowed = getattr(error, "headers", None) or {}
    response.headers.update({name: value for name, value in allowed.items() if name == "Allow"})
    return response


def undone(request: Request, error: Exception) -> Response:
    """Return the answer to a request that met a bug; the log has its kind and no more."""
    LOG.error("bug", extra={"fields": {"problem": type(error).__name__}})
    return refused(request, Refusal("server-error"))


MOST_BYTES: Final = 64 * 1024
"""Bytes of one request."""

_SECONDS: Final = 20.0  # for a body to arrive
_MOST_SENDERS: Final = 100_000


class Buckets:
    """Lets each sender do so many things at once, and so many in a second afterwards."""

    def __init__(self, *, burst: float, rate: float) -> None:
        """Begin with no sender."""
        self._burst, self._rate = burst, rate
        self._senders: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, sender: str, *, cost: float = 1.0, least: float = 1.0) -> None:
        """Take from what a sender has left; with ``cost=0`` only look whether ``least`` is left."""
        now = clock()
        left, then = self._senders.pop(sender, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._rate)
        needed = max(cost, least)
        enough = left >= needed
        self._senders[sender] = (left - cost if enough else left, now)
        if len(self._senders) > _MOST_SENDERS:
            self._senders.popitem(last=False)
        if not enough:
            wait = math.ceil((needed - left) / self._rate)
            raise Refusal("too-many-requests", wait=max(1, wait))

    def give_back(self, sender: str, *, cost: float) -> None:
        """Return to a sender what :meth:`take` took; a sender that was forgotten has all."""
        if sender in self._senders:
            left, then = self._senders[sender]
            self._senders[sender] = (min(self._burst, left + cost), then)


async def read_body(request: Request) -> Any:
    """Return the JSON of a request that is neither too large nor too slow."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal("not-json")
    raw, otherwise = b"", ""
    try:
        raw = await asyncio.wait_for(_bytes(request), _SECONDS)
    except TimeoutError:
        otherwise = "too-slow"
    except ClientDisconnect:  # nobody reads the answer, but the log has a line
        otherwise = "bad-request"
    if otherwise:
        raise Refusal(otherwise)
    try:
        return parsed(raw.decode())
    except (ValueError, RecursionError):
        pass
    raise Refusal("bad-request")


async def _bytes(request: Request) -> bytes:
    """Return the body, or stop reading where it is too large."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise Refusal("too-large")
        parts.append(part)
    return b"".join(parts)
