"""What every response carries: headers that let a page load nothing from anywhere else.

How much one sender may ask for: requests by time, bytes, and seconds for a body.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import OrderedDict
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sordino._random import clock

from .refusals import LOG, Refusal

POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        *(f"{what}-src 'self'" for what in ("script", "style", "connect", "img", "worker")),
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types worker",
    ]
)
"""The Content-Security-Policy of every response."""

_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), interest-cohort=()",
}
_NO_STORE: Final = (b"cache-control", b"no-store")
_ENCODED: Final = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]


class Headers:
    """Adds the headers to every response, and notes each request in one line."""

    def __init__(self, app: ASGIApp, *, routes: frozenset[str]) -> None:
        """Wrap the application."""
        self._app, self._routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, started_to_answer = clock(), 500, False
        api = scope["path"].startswith("/api/")

        async def send_more(message: Message) -> None:
            nonlocal status, started_to_answer
            if message["type"] == "http.response.start":
                started_to_answer = True
                status = message["status"]
                extra = [*_ENCODED, _NO_STORE] if api else _ENCODED
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
            route = scope["path"] if scope["path"] in self._routes else "other"
            method = scope["method"] if scope["method"] in {"GET", "POST", "HEAD"} else "other"
            milliseconds = round(1000 * (clock() - started), 1)
            said = {"method": method, "route": route, "status": status}
            LOG.info("request", extra={"fields": said | {"milliseconds": milliseconds}})


def refused(_: Request, error: Exception) -> Response:
    """Return a refusal in the one shape of all errors."""
    refusal = error if isinstance(error, Refusal) else Refusal("server-error")
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


# Bytes of one request.
_MOST_BYTES: Final = 64 * 1024

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
        return json.loads(raw.decode(), object_pairs_hook=_object)
    except (ValueError, RecursionError):
        pass
    raise Refusal("bad-request")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON in which no name stands twice: which one counts would be a guess."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError
    return value


async def _bytes(request: Request) -> bytes:
    """Return the body, or stop reading where it is too large."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared[:20]) > _MOST_BYTES:
        raise Refusal("too-large")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > _MOST_BYTES:
            raise Refusal("too-large")
        parts.append(part)
    return b"".join(parts)
