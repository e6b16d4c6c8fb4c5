"""What a run takes from outside itself: entropy, identifiers and the time.

Everything that is not a function of its inputs passes through this file, so that a test can
inject coins, release ids and a clock and compare every byte of the output.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from sordino import _validate

Randomness = Literal["system", "simulated"]


@runtime_checkable
class Entropy(Protocol):
    """A source of independent uniform 64-bit words."""

    @property
    def randomness(self) -> Randomness:
        """Return what a ledger entry says of this source."""

    def words(self, n: int) -> np.ndarray:
        """Return n independent uniform 64-bit words, shape (n,), dtype uint64."""


@dataclass(frozen=True)
class SystemEntropy:
    """The operating system's generator: the only source that a release may use."""

    randomness: Randomness = field(default="system", init=False)

    def words(self, n: int) -> np.ndarray:
        """Return n independent uniform 64-bit words from ``os.urandom``."""
        return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)


@dataclass(frozen=True)
class SimulatedEntropy:
    """A seeded generator: whoever knows the seed knows the coins, so it is for study only."""

    seed: int
    randomness: Randomness = field(default="simulated", init=False)
    _generator: np.random.Generator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_generator", np.random.default_rng(self.seed))

    def words(self, n: int) -> np.ndarray:
        """Return the next n words of the seeded stream."""
        return self._generator.integers(0, 2**64, size=n, dtype=np.uint64)


def entropy(simulate_seed: int | None) -> Entropy:
    """Return system entropy, or a seeded stream marked ``simulated`` when a seed is given."""
    if simulate_seed is None:
        return SystemEntropy()
    _validate.integer("simulate_seed", simulate_seed, at_least=0)
    return SimulatedEntropy(simulate_seed)


def entropy_of_part(simulate_seed: int | None, part: str) -> Entropy:
    """Return system entropy, or the stream that one part of a seeded release has for itself."""
    if simulate_seed is None:
        return SystemEntropy()
    digest = hashlib.sha256(f"{simulate_seed} {part}".encode()).digest()
    return SimulatedEntropy(int.from_bytes(digest[:16], "big"))


def words_of_secret(secret: bytes, part: str, n: int) -> np.ndarray:
    """Return words that look uniform to whoever does not know a secret, always the same ones."""
    # For tasks that may be run twice and must then find the same coins.
    # Source: FIPS 202, SHAKE256: an extendable output is a stream that its input alone decides.
    stream = hashlib.shake_256(secret + part.encode()).digest(8 * n)
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64)


def normals(entropy: Entropy, n: int) -> Float[np.ndarray, " n"]:
    """Return n independent standard normal numbers in floating point, one word for each."""
    # The lowest bit of a word is the sign, and the other 63 are a probability in (0, 1/2] whose
    # quantile is the size: tails are as fine as floats are, and no number is beyond 9.2.
    from scipy.special import ndtri  # noqa: PLC0415 - it costs import time

    words = entropy.words(n)
    tail = ((words >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64
    return np.asarray(np.where(words & np.uint64(1), 1.0, -1.0) * -ndtri(tail))


def new_release_id() -> str:
    """Return a fresh identifier for one release; it is independent of all data."""
    return secrets.token_hex(8)


def new_secret() -> bytes:
    """Return 32 bytes that nobody knows; they are independent of all data."""
    return secrets.token_bytes(32)


def new_token() -> str:
    """Return 43 characters for a link that nobody can guess: 256 bits, as base64url."""
    return secrets.token_urlsafe(32)


def now() -> str:
    """Return the time in UTC to the second, as written on the ledger."""
    return moment(time.time())


def moment(seconds: float) -> str:
    """Return a time in UTC to the second, from the seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def today() -> str:
    """Return the day in UTC, for a ledger on which the time that a fit took would tell too much."""
    return datetime.now(UTC).strftime("%Y-%m-%dT00:00:00Z")


def seconds_since_1970() -> int:
    """Return the time in whole seconds, to tell what has expired."""
    return int(time.time())


def clock() -> float:
    """Return seconds of a clock that never goes back."""
    return time.perf_counter()
