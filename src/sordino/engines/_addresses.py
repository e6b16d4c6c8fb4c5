"""Whether something answers at an address, found out in seconds and without joining it."""

from __future__ import annotations

import os
import socket
from typing import Final

from sordino import _random

__all__ = ["answers"]

_PATIENCE: Final = 5.0  # seconds
_FRAME: Final = 9  # bytes that every frame of HTTP/2 begins with
# What opens HTTP/2, and a frame of no settings; all that Ray says to others is HTTP/2.
_OPENING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS: Final = 4  # the kind of frame that must come first


def answers(address: str) -> bool:
    """Return whether what listens at host:port speaks as Ray does.

    Ray itself would try for minutes where nothing listens, or something else does. With TLS it is
    enough that something listens.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        return False
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE) as place:
            if os.environ.get("RAY_USE_TLS", "0").lower() in {"1", "true"}:
                return True
            place.sendall(_OPENING)
            return _received(place)[3:4] == bytes([_SETTINGS])
    except (OSError, UnicodeError):  # a name that cannot be a host's
        return False


def _received(place: socket.socket) -> bytes:
    """Return how a first frame begins, as far as it comes in time."""
    received, end = b"", _random.clock() + _PATIENCE
    while len(received) < _FRAME and (left := end - _random.clock()) > 0:
        place.settimeout(left)
        more = place.recv(_FRAME - len(received))
        if not more:
            break
        received += more
    return received
