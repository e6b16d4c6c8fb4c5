"""The service: a study and its database behind a few addresses, started and stopped in order."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Final

import uvicorn
from sqlalchemy import Engine
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from sordino._random import new_token
from sordino.collection.page_files import read_languages, read_page
from sordino.collection.refusals import Refusal
from sordino.collection.responses import Headers, refused, unmatched
from sordino.collection.routes import Service
from sordino.collection.study import Study
from sordino.errors import FileSystemError

from .database import Writer
from .refusals import write_to_stderr

__all__ = ["listener", "make_app", "serve"]

_STOPS: Final = (signal.SIGINT, signal.SIGTERM)
_GRACE: Final = 10  # seconds for requests that are under way when the service is asked to stop


def make_app(engine: Engine, study: Study, *, admin_token: str | None = None) -> Starlette:
    """Return the application for one study.

    Guarantee:
        What arrives is randomized already, and the application stores just that; it draws nothing
        but who is asked what. Shown by tests/soundness/test_collection.py.
    """
    writer = Writer(engine)
    languages = read_languages(study)
    service = Service(
        study=study,
        engine=engine,
        writer=writer,
        page=read_page(languages),
        languages=languages,
        admin_token=admin_token or new_token(),
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        writer.start()
        try:
            yield
        finally:
            writer.stop()
            engine.dispose()

    routes = service.routes()
    named = frozenset(route.path for route in routes)
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Headers, routes=named)],
        exception_handlers={Refusal: refused, HTTPException: unmatched},
    )
    app.router.redirect_slashes = False  # it would repeat a sender's Host, and drop https
    return app


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
    _take_all_files()
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


def _take_all_files() -> None:
    """Allow as many open files as may be: each connection is one."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 (not on Windows)

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextlib.contextmanager
def _stopping_in_order() -> Iterator[None]:
    """Let a signal that the server has obeyed end here: being told to stop is no failure."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _obeyed) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _obeyed(*_: object) -> None:
    """Do nothing: the server stopped in order, and raises the signal once more afterwards."""
