"""One line of JSON for each request: when, which address, which status, how long. Never content.

No token, no id, no address of a sender and no text is written, so that a log tells nothing that
the database does not.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from sordino import _random

__all__ = ["LOG", "note_request", "write_to_stderr"]

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


def note_request(*, method: str, route: str, status: int, seconds: float) -> None:
    """Write one line about a request that was answered."""
    fields = {
        "method": method,
        "route": route,
        "status": status,
        "milliseconds": round(1000 * seconds, 1),
    }
    LOG.info("request", extra={"fields": fields})
