"""How much one sender may ask for: requests by time, bytes, and seconds for a body."""

from __future__ import annotations

import asyncio
import json
import math
from collections import OrderedDict
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from sordino._random import clock
from sordino.collection.refusals import Refusal

__all__ = ["MOST_BYTES", "Buckets", "read_body"]

MOST_BYTES: Final = 64 * 1024
"""Bytes of one request."""

_SECONDS: Final = 20.0  # for a body to arrive
_MOST_SENDERS: Final = 100_000


class Buckets:
    """Lets each sender do so many things at once, and so many in a second afterwards.

    Args:
        burst: How many at once.
        rate: How many in a second.
    """

    def __init__(self, *, burst: float, rate: float) -> None:
        """Begin with no sender."""
        self._burst, self._rate = burst, rate
        self._senders: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, sender: str, *, cost: float = 1.0, least: float = 1.0) -> None:
        """Take from what a sender has left; with ``cost=0`` only look whether ``least`` is left.

        Raises:
            Refusal: Nothing is left; it says when there will be.
        """
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
    """Return the JSON of a request that is neither too large nor too slow.

    Raises:
        Refusal: It is, or it is no JSON, or its sender left before the end.
    """
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
    if not declared.isdecimal() or int(declared[:20]) > MOST_BYTES:
        raise Refusal("too-large")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise Refusal("too-large")
        parts.append(part)
    return b"".join(parts)
