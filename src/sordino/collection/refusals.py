"""What the service refuses, and in which words: one table, one shape.

One line of JSON for each request: when, which address, which status, how long. Never content.

No token, no id, no address of a sender and no text is written, so that a log tells nothing that
the database does not.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final, NamedTuple

from sordino import _random


class _Reason(NamedTuple):
    """An HTTP status, and what a person can do."""

    status: int
    message: str


REFUSALS: Final[dict[str, _Reason]] = {
    "bad-request": _Reason(400, "The request is not of the form that the description asks for."),
    "unknown-invitation": _Reason(401, "This invitation is not known here. Check the link."),
    "unknown-device": _Reason(401, "This device was not opened with an invitation to this study."),
    "not-admin": _Reason(401, "The admin token is not the one that the service was started with."),
    "invitation-expired": _Reason(403, "This invitation has expired. Ask for a new one."),
    "invitation-revoked": _Reason(403, "This invitation was withdrawn."),
    "not-found": _Reason(404, "There is nothing at this address."),
    "method-not-allowed": _Reason(405, "This address does not take that method."),
    "too-slow": _Reason(408, "The request did not arrive in time. Send it again."),
    "invitation-in-use": _Reason(
        409, "This invitation was opened on another device. An invitation is for one device."
    ),
    "wrong-study": _Reason(409, "These answers are for another study. Nothing was stored."),
    "too-large": _Reason(413, "The request is too large. Nothing was stored."),
    "not-json": _Reason(415, "The request must be JSON (Content-Type: application/json)."),
    "too-many-requests": _Reason(429, "Too many requests. Wait a little and send it again."),
    "server-error": _Reason(500, "Something went wrong on our side. Nothing was lost."),
    "database-down": _Reason(503, "Answers cannot be stored just now. Keep them and send again."),
    "no-answers": _Reason(409, "No answer has arrived yet, so there is nothing to export."),
    # of one answer, inside a request that is fine
    "unknown-question": _Reason(409, "This person was not asked this question."),
    "already-answered": _Reason(409, "Another answer to this question is stored."),
    "changes-refused": _Reason(409, "In this study the first answer stands."),
    "cap-reached": _Reason(409, "This person has given as many answers as the study takes."),
    "id-reused": _Reason(409, "This id belongs to another answer."),
    "revision-skipped": _Reason(409, "An earlier answer to this question is missing."),
}
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
