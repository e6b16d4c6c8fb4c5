"""What every response carries: headers that let a page load nothing from anywhere else."""

from __future__ import annotations

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sordino._random import clock
from sordino.collection.logs import LOG, note_request
from sordino.collection.refusals import Refusal

__all__ = ["POLICY", "Headers", "refused", "undone", "unmatched"]

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
    """Adds the headers to every response, and notes each request in one line.

    Args:
        app: What answers.
        routes: Addresses that a log may name; every other one is "other".
    """

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
            seconds = clock() - started
            note_request(method=method, route=route, status=status, seconds=seconds)


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
